"""Work in processes of their own, which share the threads of the machine, and end with the process that wants it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

import torch

from docmt.experiments.runner import INTERRUPTED
from docmt.streams import NamedLines, forgiving, hush, is_quiet, show_log, tell
from docmt.training.interrupts import StopWish

_LOOK_EVERY = 0.2  # seconds
_START = multiprocessing.get_context("spawn")  # a fork of a process that has used its threads or a GPU would hang


class Worker:
    """A function at work, which returns a sentence or None; `tell` is its last argument."""

    def __init__(self, name: str, share: int, function: Callable[..., str | None], arguments: Sequence[Any]) -> None:
        """name: what its lines on standard error begin with; share: of how many workers it is one, for the threads."""
        self._answers, sender = _START.Pipe(duplex=False)
        threads = max(1, torch.get_num_threads() // share)
        shown = bool(logging.getLogger().handlers), is_quiet()
        self.process = _START.Process(
            target=_work, args=(name, threads, shown, sender, function, arguments), daemon=True
        )
        self.process.start()
        sender.close()

    def has_ended(self) -> bool:
        """Whether there is an answer, or never will be."""
        return not self.process.is_alive()

    def answer(self) -> str | None:
        """What the function returned, or how its process died. Raises KeyboardInterrupt if it was interrupted."""
        try:
            answer: str | None = self._answers.recv()
        except EOFError:
            status = self.process.exitcode
            if status == INTERRUPTED:
                raise KeyboardInterrupt from None
            killed = status == -signal.SIGKILL
            return f"its process ended with status {status}{' (perhaps there was not enough memory)' if killed else ''}"
        return answer


def wait_for_one(workers: Sequence[Worker], wish: StopWish) -> None:
    """Returns as soon as one has ended. Raises KeyboardInterrupt if somebody wishes to stop before."""
    while not wish.wished:
        if wait([worker.process.sentinel for worker in workers], timeout=_LOOK_EVERY):
            return
    raise KeyboardInterrupt


def stop(workers: Sequence[Worker]) -> None:
    """Asks all to stop, as by SIGTERM, and waits until they have saved what they do."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()


def _work(
    name: str,
    threads: int,
    shown: tuple[bool, bool],
    sender: Connection,
    function: Callable[..., str | None],
    arguments: Any,
) -> None:
    os.setsid()  # Ctrl-C is for the process that started this one, which passes it on once
    Thread(target=_end_with_parent, daemon=True).start()
    sys.stderr = NamedLines(forgiving(sys.stderr), name)
    log, quiet = shown
    if log:
        show_log()
    hush(quiet)
    torch.set_num_threads(threads)
    try:
        sender.send(function(*arguments, tell))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
