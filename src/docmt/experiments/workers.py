"""Runs at work in processes of their own, which share the threads of the machine and end with the process that asked.

A worker is this module as a program: what it is to do comes from standard input, its answer goes to standard output.
So nothing is left of whoever asks, who may be a script, and no signal is for both.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread

import torch

from docmt.core.errors import INTERRUPTED, DocmtError, is_out_of_memory
from docmt.core.logging import NamedLines, forgiving, is_quiet, set_quiet, show_log
from docmt.experiments.plan import Plan, PlannedRun
from docmt.experiments.runner import complete, why_of
from docmt.experiments.scores import EvaluationConfig
from docmt.training.distributed import StopWish

_log = logging.getLogger("docmt.experiments")

_LOOK_EVERY = 0.2  # seconds


class Worker:
    """A run that is completed in a process of its own."""

    def __init__(
        self,
        name: str,
        threads: int,
        plan: Plan,
        run: PlannedRun,
        evaluation: EvaluationConfig,
        failures: Mapping[Path, str],
    ) -> None:
        """name: what its lines on standard error begin with; the rest as for `complete`."""
        self.run = run
        quiet = is_quiet() or not logging.getLogger("docmt").handlers  # a library says nothing of its own accord
        # Files, not pipes: nobody waits for a process that has died, or for one that reads nothing yet.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with tempfile.TemporaryFile() as work:
            pickle.dump((name, threads, quiet), work)
            pickle.dump((plan, run, evaluation, dict(failures)), work)
            work.seek(0)
            # In a session of its own, so that Ctrl-C reaches it only once: by `stop`.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=work, stdout=self._answer, start_new_session=True
            )

    def has_ended(self) -> bool:
        """Whether there is an answer, or never will be."""
        return self._process.poll() is not None

    def answer(self) -> str | None:
        """Why the run failed, None if it did not. Raises KeyboardInterrupt if somebody interrupted it."""
        status = self._process.wait()
        with self._answer as file:
            file.seek(0)
            written = file.read()
        if status == 0:
            failure: str | None = json.loads(written)
            return failure
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        killed = status == -signal.SIGKILL
        return f"its process ended with status {status}{' (perhaps there was not enough memory)' if killed else ''}"

    def terminate(self) -> None:
        """Asks the run to stop, as by SIGTERM."""
        self._process.terminate()

    def wait(self) -> None:
        """Waits until it has ended."""
        self._process.wait()


def wait_for_one(workers: Sequence[Worker], wish: StopWish, seconds: float) -> None:
    """Returns as soon as one has ended, or after so long. Raises KeyboardInterrupt if somebody wishes to stop."""
    until = time.monotonic() + seconds
    while not any(worker.has_ended() for worker in workers):
        if wish.wished:
            raise KeyboardInterrupt
        if time.monotonic() > until:
            return
        time.sleep(_LOOK_EVERY)


def stop(workers: Sequence[Worker]) -> None:
    """Asks all to stop, and waits until they have saved what they do."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


def main() -> int:
    """Completes the run that standard input names, and prints why that failed, or null, as JSON."""
    asked_by = os.getppid()
    Thread(target=_end_with, args=(asked_by,), daemon=True).start()
    name, threads, quiet = pickle.load(sys.stdin.buffer)
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever is printed besides is no answer
    sys.stderr = lines = NamedLines(forgiving(sys.stderr), name)
    show_log()
    set_quiet(quiet)
    torch.set_num_threads(threads)
    try:
        failure = _complete()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        lines.end()
    json.dump(failure, answer)
    answer.flush()
    return 0


def _complete() -> str | None:
    try:
        plan, run, evaluation, failures = pickle.load(sys.stdin.buffer)
        return complete(plan, run, evaluation, failures, _log.info)
    except (DocmtError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        return why_of(error)


def _end_with(parent: int) -> None:
    """Ends this process, as by SIGTERM, when the one that started it is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
