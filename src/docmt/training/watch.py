"""Watch over the processes of a training: when one is lost or all are stuck, every process ends with one sentence.

A waiting process sees nothing itself: an exchange on a GPU waits for a lost process for ever, and one on a CPU for one
that hangs. So a thread of each process counts in the store through which the processes have met, and reads the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed import Store, distributed_c10d  # type: ignore[attr-defined]

from docmt.core.errors import USAGE_ERROR, printable

POLL_SECONDS = 5.0
LOST_POLLS = 12
"""polls without a sign of a process, after which it counts as lost: stopped, killed, or on a machine without network"""
STUCK_POLLS = 360
"""polls without progress of any process, after which all count as stuck; longer than any batch takes"""
GRACE_SECONDS = 5.0
"""from a failure to the exit: most processes notice it themselves and say more"""
_ALIVE, _PROGRESS = "docmt/alive", "docmt/progress"
_steps = 0
_local_work = 0


def note_progress() -> None:
    """Note that this process has finished a batch."""
    global _steps
    _steps += 1


@contextmanager
def local_work() -> Iterator[None]:
    """Count as progress while the block runs: long work without an exchange, such as translating or writing."""
    global _local_work
    _local_work += 1
    try:
        yield
    finally:
        _local_work -= 1


def lost_process_message(
    run: Path, problem: str = "another process of this training failed or was killed; see its output"
) -> str:
    """Return the sentence on the end of a training whose processes cannot go on."""
    return f"{problem}. Continue from the last checkpoint with docmt train --resume {run}"


def exit_with(message: str) -> None:
    """Print an error and end the process at once, from any thread."""
    with suppress(OSError):  # not through sys.stderr: a thread that holds its lock at exit aborts Python
        os.write(2, f"docmt: error: {printable(message)}\n".encode())
    os._exit(USAGE_ERROR)


class _Counter:
    """A number that others count up, and how many polls have seen no change."""

    def __init__(self) -> None:
        self.value, self.unchanged = -1, 0

    def see(self, value: int) -> int:
        """Compare with the last poll; return the polls without a change."""
        self.unchanged = 0 if value != self.value else self.unchanged + 1
        self.value = value
        return self.unchanged


@contextmanager
def watch_processes(run: Path) -> Iterator[None]:
    """End this process if another is lost, or if none makes progress, while the block runs.

    Polls are counted, not seconds, so a machine that sleeps wakes up in peace.
    """
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        yield
        return
    ended = threading.Event()
    # A connection of its own: a call that waits in another thread must not block it.
    store: Store = distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=LOST_POLLS * POLL_SECONDS))
    threading.Thread(target=_watch, args=(store, run, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(store: Store, run: Path, ended: threading.Event) -> None:
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    others = {number: _Counter() for number in range(size) if number != rank}
    progress, steps = _Counter(), -1
    while not ended.wait(POLL_SECONDS):
        problem = ""
        try:
            store.add(f"{_ALIVE}/{rank}", 1)
            if _local_work or steps != _steps:
                store.add(_PROGRESS, 1)
            steps = _steps
            for number, seen in others.items():
                if seen.see(store.add(f"{_ALIVE}/{number}", 0)) >= LOST_POLLS:
                    problem = f"process {number} of this training failed, was killed or hangs; see its output"
            if progress.see(store.add(_PROGRESS, 0)) >= STUCK_POLLS:
                problem = f"no process of this training has gone on for {STUCK_POLLS * POLL_SECONDS / 60:.3g} minutes"
        except RuntimeError:  # the process that keeps the store has ended
            problem = "another process of this training failed or was killed; see its output"
        if problem and not ended.wait(GRACE_SECONDS):
            exit_with(lost_process_message(run, problem))
