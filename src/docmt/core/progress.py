"""Progress of anything that takes more than a few seconds: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from docmt.core.errors import printable
from docmt.core.logging import forgiving, is_quiet

PLAIN_INTERVAL_SECONDS = 10.0
_shown: list[Progress] = []
"""what is drawn on the terminal now, if anything"""


class Bar:
    """One running task. `advance` is cheap enough to call for every item."""

    def __init__(self, title: str, total: int | None, display: Progress | None, done: int = 0) -> None:
        self.title, self.total, self.done = f"{_WITHIN.get()}{title}", total, done
        self._display, self._before = display, done
        self._task = None
        if display is not None:
            self._task = display.add_task(self.title, total=total, completed=done, note="", left=None)
        self._started = self._printed = time.monotonic()

    def advance(self, count: int = 1, note: str = "", left: float | None = None) -> None:
        """Counts `count` more items as done and shows `note` beside the bar.

        left: seconds until the end, where that is not a matter of the items alone.
        """
        self.done += count
        if self._display is not None and self._task is not None:
            self._display.update(self._task, advance=count, note=note, left=left)
        elif not is_quiet() and time.monotonic() - self._printed >= PLAIN_INTERVAL_SECONDS:
            self._printed = time.monotonic()
            self._print_line(note, left)

    def remove(self) -> None:
        """Takes the bar off a display that goes on with others."""
        if self._display is not None and self._task is not None:
            self._display.remove_task(self._task)

    def _print_line(self, note: str, left: float | None) -> None:
        elapsed = time.monotonic() - self._started
        of_total = f" of {self.total}" if self.total else ""
        if left is None and self.total and self._before < self.done <= self.total:
            left = elapsed * (self.total - self.done) / (self.done - self._before)
        shown = "" if left is None else f", {_clock(left)} left"
        print(
            f"{self.title}: {self.done}{of_total} {note} ({_clock(elapsed)}{shown})",
            file=forgiving(sys.stderr),
            flush=True,
        )


class _TimeLeft(TimeRemainingColumn):
    """The time left that the work gives, or else what the speed so far lets expect."""

    def render(self, task: Task) -> Text:
        """The clock."""
        left = task.fields["left"]
        return super().render(task) if left is None else Text(_clock(left), style="progress.remaining")


def on_terminal() -> bool:
    """Whether standard error is shown to somebody at once."""
    return Console(file=forgiving(sys.stderr)).is_terminal


_WITHIN: ContextVar[str] = ContextVar("within", default="")
_PLAIN: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain_lines() -> Iterator[None]:
    """While the block runs, progress is told in lines even on a terminal, as something else is written there, too."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


@contextmanager
def within(name: str) -> Iterator[None]:
    """While the block runs, progress says before its title what it belongs to: one of several models, most often."""
    token = _WITHIN.set(f"{printable(name)}: " if name else "")
    try:
        yield
    finally:
        _WITHIN.reset(token)


@contextmanager
def progress(title: str, total: int | None = None, done: int = 0) -> Iterator[Bar]:
    """Shows progress on standard error while the block runs; `done` items count as finished before it starts.

    What cannot be shown (a closed pipe, a terminal that is gone) is dropped: the work goes on. Within another block it
    is a part of that work, and its bar stands below the other one.
    """
    if _shown:
        bar = Bar(title, total, _shown[-1], done)
        try:
            yield bar
        finally:
            bar.remove()
        return
    console = Console(file=forgiving(sys.stderr))
    if is_quiet() or _PLAIN.get() or not console.is_terminal:
        yield Bar(title, total, None, done)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        _TimeLeft(),
    )
    with Progress(*columns, console=console, transient=True) as display:
        _shown.append(display)
        try:
            yield Bar(title, total, display, done)
        finally:
            _shown.pop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
