"""Standard output and standard error that may be closed, or read by somebody who goes away."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from docmt.core.errors import printable

_quiet = False


def hush(quiet: bool) -> None:
    """Whether people want to hear only of warnings and errors from now on."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether progress and news are not wanted."""
    return _quiet


def tell(line: str) -> None:
    """News for people, one line on standard error, unless they are not wanted."""
    if not _quiet:
        warn(line)


def warn(line: str) -> None:
    """What people should know in any case, on standard error."""
    print(f"docmt: {printable(line)}", file=forgiving(sys.stderr), flush=True)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at the moment: while a progress bar is shown, lines go above it."""

    def emit(self, record: logging.LogRecord) -> None:
        if is_quiet() and record.levelno < logging.WARNING:
            return
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), kept="\n\t" if record.exc_info else "")


def show_log() -> None:
    """From now on the log of this process goes to standard error, unless somebody has said where it goes."""
    logging.basicConfig(level=logging.WARNING, format="docmt: %(message)s", handlers=[LogHandler()])


class Forgiving:
    """A text stream that drops what it cannot show, so that nobody's work ends with the wish to tell of it."""

    def __init__(self, stream: TextIO, forgiven: type[OSError] = OSError) -> None:
        self.stream, self.forgiven = stream, forgiven

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes, or drops, the text."""
        try:
            return self.stream.write(text)
        except ValueError:
            if not self.stream.closed:
                raise
            return len(text)
        except self.forgiven:
            silence(self.stream)
            return len(text)

    def flush(self) -> None:
        """Hands on what is buffered, or drops it."""
        try:
            self.stream.flush()
        except ValueError:
            if not self.stream.closed:
                raise
        except self.forgiven:
            silence(self.stream)


class NamedLines:
    """A text stream of one of several writers: whole lines, each after the writer's name; never a terminal."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name, self._begun = stream, name, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def end(self) -> None:
        """Writes what is left of a line."""
        if self._begun:
            self.write("\n")
        self.stream.flush()

    def isatty(self) -> bool:
        """No: nothing may be drawn over another's lines."""
        return False

    def write(self, text: str) -> int:
        """Writes the lines that are whole by now."""
        *lines, self._begun = (self._begun + text).split("\n")
        self.stream.write("".join(f"{self.name} {line}\n" for line in lines))
        return len(text)


def forgiving(stream: TextIO | None) -> TextIO:
    """The stream as one that drops what cannot be shown; None (closed by the caller) shows nothing."""
    if stream is None or isinstance(stream, Forgiving):
        return stream or _nowhere()
    return cast(TextIO, Forgiving(stream))


@contextmanager
def standard_streams() -> Iterator[None]:
    """While the block runs, standard error drops what it cannot show, and standard output what nobody reads.

    A standard error that was closed (2>&-) goes nowhere: `print(file=None)` would write to standard output. Standard
    output shows what its encoding lacks as \\u1234; other failures to write there are errors.
    """
    saved = sys.stdout, sys.stderr
    sys.stderr = forgiving(sys.stderr)
    if sys.stdout is not None and not isinstance(sys.stdout, Forgiving):
        with suppress(AttributeError, ValueError):
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout = cast(TextIO, Forgiving(sys.stdout, BrokenPipeError))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = saved


def silence(stream: TextIO) -> None:
    """Sends what is left for the stream to nowhere: Python would try again at exit, and end with another status."""
    with suppress(OSError, ValueError, AttributeError):
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - stays open as long as the program
