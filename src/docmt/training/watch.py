"""Watch over the processes of a training: when one is lost or all are stuck, every process ends with one sentence.

A waiting process sees nothing itself: an exchange on a GPU waits for a lost process for ever, and one on a CPU for one
that hangs. So a thread of each process counts in the store through which the processes have met, and reads the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch.distributed import Store, distributed_c10d  # type: ignore[attr-defined]

from docmt.core.errors import USAGE_ERROR, printable

POLL_SECONDS = 5.0
LOST_POLLS = 12
"""polls without a sign of a process, after which it counts as lost: stopped, killed, or on a machine without network"""
STUCK_POLLS = 360
"""polls without progress of any process, after which all count as stuck; longer than any batch takes"""
MEETING_SECONDS = 1800.0
"""in which all processes must connect; machines of a cluster start minutes apart"""
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
    advice = f"Continue from the last checkpoint with docmt train --resume {run}, or start again if there is none"
    return f"{problem}. {advice}"


def exit_with(message: str) -> None:
    """Print an error and end the process at once, from any thread."""
    with suppress(OSError):  # not through sys.stderr: a thread that holds its lock at exit aborts Python
        os.write(2, f"docmt: error: {printable(message)}\n".encode())
    os._exit(USAGE_ERROR)


@contextmanager
def limit_meeting(count: int) -> Iterator[None]:
    """End this process if `count` processes are not connected in time, which the block waits for without end."""
    message = (
        f"the {count} processes of this training have not met within {MEETING_SECONDS / 60:.3g} minutes: look for "
        "those that did not start or have failed, and start all of them again"
    )
    timer = threading.Timer(MEETING_SECONDS, exit_with, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Counter:
    """A number that is counted up elsewhere, and how many polls have seen no change."""

    def __init__(self) -> None:
        self.value, self.unchanged = -1, 0

    def see(self, value: int) -> int:
        """Compare with the last poll; return the polls without a change."""
        self.unchanged = 0 if value != self.value else self.unchanged + 1
        self.value = value
        return self.unchanged


@contextmanager
def watch_processes(run: Path) -> Iterator[None]:
    """End this process if another is lost, or if none makes progress, while the block runs."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        yield
        return
    watch = _Watch(run)
    for loop in (watch.exchange, watch.judge):
        threading.Thread(target=loop, daemon=True).start()
    try:
        yield
    finally:
        watch.ended.set()


class _Watch:
    """Two threads: one exchanges signs with the other processes, and one notices if that or the others stop.

    An exchange waits for the process that keeps the store, without end if that hangs. Polls are counted, not seconds,
    so a machine that sleeps wakes up in peace.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.ended, self.problem, self.exchanges = run, threading.Event(), "", 0
        # A connection of its own: a call that waits in another thread must not block it.
        self.store: Store = distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]

    def exchange(self) -> None:
        """Count signs of this process in the store and compare those of the others, until a problem is found."""
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        others = {number: _Counter() for number in range(size) if number != rank}
        progress, steps = _Counter(), -1
        while not self.problem and not self.ended.wait(POLL_SECONDS):
            try:
                self.store.add(f"{_ALIVE}/{rank}", 1)
                if _local_work or steps != _steps:
                    self.store.add(_PROGRESS, 1)
                steps = _steps
                lost = [n for n, seen in others.items() if seen.see(self.store.add(f"{_ALIVE}/{n}", 0)) >= LOST_POLLS]
                stuck = progress.see(self.store.add(_PROGRESS, 0)) >= STUCK_POLLS
            except RuntimeError:  # the process that keeps the store has ended
                lost, stuck = [0], False
            if lost:
                self.problem = f"process {lost[0]} of this training failed, was killed or hangs; see its output"
            elif stuck:
                minutes = STUCK_POLLS * POLL_SECONDS / 60
                self.problem = f"no process of this training has gone on for {minutes:.3g} minutes"
            self.exchanges += 1

    def judge(self) -> None:
        """End this process some seconds after a problem, or when exchanges stop."""
        done = _Counter()
        while not self.problem and not self.ended.wait(POLL_SECONDS):
            if done.see(self.exchanges) > LOST_POLLS + 1:  # rather name the process that was found
                self.problem = "process 0 of this training hangs; see its output"
        if not self.ended.wait(GRACE_SECONDS):
            exit_with(lost_process_message(self.run, self.problem))
