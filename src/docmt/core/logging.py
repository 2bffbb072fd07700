"""Messages for people: the logger "docmt", and standard streams that survive a reader who goes away.

Modules log to `logging.getLogger(__name__)`. A library user decides where that goes; the command line calls `show_log`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from docmt.core.errors import printable

# Their news (level INFO) is for whoever calls them. Elsewhere news is for the log of a training.
_COMMANDS = "docmt.cli"
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Choose whether progress and news are left out from now on; warnings and errors stay."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Return whether progress and news are left out."""
    return _quiet


class LogHandler(logging.StreamHandler[TextIO]):
    """Write to what is standard error at the moment: while a progress bar is shown, lines go above it."""

    def emit(self, record: logging.LogRecord) -> None:
        if is_quiet() and record.levelno < logging.WARNING:
            return
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), kept="\n\t" if record.exc_info else "")


class _Lines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return f"docmt: {'error: ' * (record.levelno >= logging.ERROR)}{record.message}"


def show_log() -> None:
    """Send the log of docmt to standard error, as lines `docmt: ...` and `docmt: error: ...`.

    Where the host process has set up logging, only messages of the commands go there; the rest stays with the host.
    """
    whole, commands = logging.getLogger("docmt"), logging.getLogger(_COMMANDS)
    if not any(isinstance(handler, LogHandler) for handler in (*whole.handlers, *commands.handlers)):
        handler = LogHandler()
        handler.setFormatter(_Lines())
        (commands if logging.getLogger().handlers else whole).addHandler(handler)
    commands.setLevel(logging.INFO)


class TolerantStream:
    """A text stream that drops what it cannot show, so that nobody's work ends with the wish to tell of it."""

    def __init__(self, stream: TextIO, forgiven: type[OSError] = OSError) -> None:
        self.stream, self.forgiven = stream, forgiven

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        with self._dropping():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what is buffered, or drop it."""
        with self._dropping():
            self.stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except ValueError:
            if not self.stream.closed:
                raise
        except self.forgiven:
            silence(self.stream)


def forgiving(stream: TextIO | None) -> TextIO:
    """Return the stream as one that drops what cannot be shown; None (closed by the caller) shows nothing."""
    if stream is None or isinstance(stream, TolerantStream):
        # A file that stays open as long as the program.
        return stream or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    return cast(TextIO, TolerantStream(stream))


@contextmanager
def standard_streams() -> Iterator[None]:
    """While the block runs, standard error drops what it cannot show, and standard output what nobody reads.

    A standard error that was closed (2>&-) goes nowhere: `print(file=None)` would write to standard output. Standard
    output shows what its encoding lacks as \\u1234; other failures to write there are errors.
    """
    saved = sys.stdout, sys.stderr
    sys.stderr = forgiving(sys.stderr)
    if sys.stdout is not None and not isinstance(sys.stdout, TolerantStream):
        with suppress(AttributeError, ValueError):
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout = cast(TextIO, TolerantStream(sys.stdout, BrokenPipeError))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = saved


def silence(stream: TextIO) -> None:
    """Send what is left for the stream to nowhere: Python would try again at exit, and end with another status."""
    with suppress(OSError, ValueError, AttributeError):
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
