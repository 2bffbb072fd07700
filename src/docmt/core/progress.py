"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar

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

from docmt.core.errors import printable
from docmt.core.logging import is_quiet, make_tolerant
from docmt.core.settings import assigned

LINE_INTERVAL_SECONDS = 10.0
_OFTEN_SECONDS = 40.0
"""After this time lines become rarer: a quarter of the time since the start lies between two."""
_displays: list[Progress] = []
"""progress display on the terminal, if any"""


class Bar:
    """Progress of one task. `advance` is cheap enough to call for every item."""

    def __init__(self, title: str, total: int | None, display: Progress | None, done: int = 0) -> None:
        self.title, self.total, self.done = f"{_PREFIX.get()}{title}", total, done
        self._display, self._initial, self._is_hidden = display, done, _HIDDEN.get()
        self._task = None if display is None else display.add_task(self.title, total=total, completed=done, note="")
        self._started = self._printed = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more items as done and show `note` beside the bar."""
        self.done += count
        if self._display is not None and self._task is not None:
            self._display.update(self._task, advance=count, note=note)
        elif not (is_quiet() or self._is_hidden):
            now = time.monotonic()
            if now - self._printed >= LINE_INTERVAL_SECONDS * max(1.0, (now - self._started) / _OFTEN_SECONDS):
                self._printed = now
                self._print_line(note)

    def close(self) -> None:
        """Remove the bar from a display that shows others."""
        if self._display is not None and self._task is not None:
            self._display.remove_task(self._task)

    def _print_line(self, note: str) -> None:
        elapsed = time.monotonic() - self._started
        total = f" of {self.total}" if self.total else ""
        remaining = ""
        if self.total and self._initial < self.done <= self.total:
            seconds_left = elapsed * (self.total - self.done) / (self.done - self._initial)
            remaining = f", {format_time(seconds_left)} left"
        line = f"{self.title}: {self.done}{total} {note} ({format_time(elapsed)}{remaining})"
        print(line, file=make_tolerant(sys.stderr), flush=True)


def is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return Console(file=make_tolerant(sys.stderr)).is_terminal


_PREFIX: ContextVar[str] = ContextVar("prefix", default="")
_PLAIN_LINES: ContextVar[bool] = ContextVar("plain", default=False)
_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


def plain_progress() -> AbstractContextManager[None]:
    """Print progress in lines while the block runs, even on a terminal, because other output goes there."""
    return assigned(_PLAIN_LINES, True)


def hidden_progress() -> AbstractContextManager[None]:
    """Show no further progress while the block runs."""
    return assigned(_HIDDEN, True)


def progress_prefix(name: str) -> AbstractContextManager[None]:
    """Put a name, such as that of a model, before the titles of progress while the block runs, after outer names."""
    return assigned(_PREFIX, f"{_PREFIX.get()}{printable(name)}: " if name else _PREFIX.get())


@contextmanager
def progress(title: str, total: int | None = None, done: int = 0) -> Iterator[Bar]:
    """Show progress on standard error while the block runs; `done` items count as finished before it starts.

    Output errors (a closed pipe, a lost terminal) are ignored. In a nested block the bar is shown below the outer one.
    """
    if _displays and not _HIDDEN.get():
        with closing(Bar(title, total, _displays[-1], done)) as bar:
            yield bar
        return
    console = Console(file=make_tolerant(sys.stderr))
    if is_quiet() or _PLAIN_LINES.get() or _HIDDEN.get() or not console.is_terminal:
        yield Bar(title, total, None, done)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as display:
        _displays.append(display)
        try:
            yield Bar(title, total, display, done)
        finally:
            _displays.pop()


def format_time(seconds: float) -> str:
    """Return a duration as minutes and seconds, 1:05, or hours, 1:00:05."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
