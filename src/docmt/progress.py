"""Progress of anything that takes more than a few seconds: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from docmt.streams import forgiving, is_quiet

PLAIN_INTERVAL_SECONDS = 10.0


class Bar:
    """One running task. `advance` is cheap enough to call for every item."""

    def __init__(self, title: str, total: int | None, display: Progress | None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._display = display
        self._task = display.add_task(title, total=total, note="") if display else None
        self._started = self._printed = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more items as done and shows `note` beside the bar."""
        self.done += count
        if self._display is not None and self._task is not None:
            self._display.update(self._task, advance=count, note=note)
        elif not is_quiet() and time.monotonic() - self._printed >= PLAIN_INTERVAL_SECONDS:
            self._printed = time.monotonic()
            self._print_line(note)

    def _print_line(self, note: str) -> None:
        elapsed = time.monotonic() - self._started
        of_total, left = "", ""
        if self.total:
            of_total = f" of {self.total}"
            if 0 < self.done <= self.total:
                left = f", {_clock(elapsed * (self.total - self.done) / self.done)} left"
        print(
            f"{self.title}: {self.done}{of_total} {note} ({_clock(elapsed)}{left})",
            file=forgiving(sys.stderr),
            flush=True,
        )


def on_terminal() -> bool:
    """Whether standard error is shown to somebody at once."""
    return Console(file=forgiving(sys.stderr)).is_terminal


@contextmanager
def progress(title: str, total: int | None = None, done: int = 0) -> Iterator[Bar]:
    """Shows progress on standard error while the block runs; `done` items count as finished before it starts.

    What cannot be shown (a closed pipe, a terminal that is gone) is dropped: the work goes on.
    """
    console = Console(file=forgiving(sys.stderr))
    if is_quiet() or not console.is_terminal:
        bar = Bar(title, total, None)
        bar.done = done
        yield bar
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as display:
        bar = Bar(title, total, display)
        bar.advance(done)
        yield bar


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
