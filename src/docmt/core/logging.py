"""The logger "docmt", and standard streams that survive a closed pipe.

Modules log to `logging.getLogger(__name__)`. A library user decides where that goes; the command line calls `show_log`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO, cast

from docmt.core.errors import printable

# Messages of level INFO are shown for commands only. Those of other modules go to training logs.
_COMMAND_LOGGER = "docmt.cli"
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Turn progress and INFO messages off or on. Warnings and errors are always shown."""
    global _quiet
    _quiet = quiet


def show_times() -> None:
    """Begin each line of the log with its time (UTC), as for a process that runs for long."""
    _LineFormatter.start = "%Y-%m-%dT%H:%M:%SZ "


def is_quiet() -> bool:
    """Return whether progress and INFO messages are turned off."""
    return _quiet


class LogHandler(logging.StreamHandler[TextIO]):
    """Handler that writes to the current `sys.stderr`, so that lines appear above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        if is_quiet() and record.levelno < logging.WARNING:
            return
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), allowed="\n\t" if record.exc_info else "")


class _LineFormatter(logging.Formatter):
    start = ""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        start = time.strftime(self.start, time.gmtime(record.created))
        return f"{start}docmt: {'error: ' * (record.levelno >= logging.ERROR)}{record.message}"


def show_log() -> None:
    """Log to standard error, in lines `docmt: ...` and `docmt: error: ...`.

    If the host process has configured logging, only messages of the commands go there.
    """
    whole, commands = logging.getLogger("docmt"), logging.getLogger(_COMMAND_LOGGER)
    if not any(isinstance(handler, LogHandler) for handler in (*whole.handlers, *commands.handlers)):
        handler = LogHandler()
        handler.setFormatter(_LineFormatter())
        (commands if logging.getLogger().handlers else whole).addHandler(handler)
    commands.setLevel(logging.INFO)


class TolerantStream:
    """Text stream that drops output it cannot write, so that a failed message does not end the work."""

    def __init__(self, stream: TextIO, ignored: type[OSError] = OSError) -> None:
        self.stream, self.ignored = stream, ignored

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        with self._ignore_errors():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or drop it."""
        with self._ignore_errors():
            self.stream.flush()

    @contextmanager
    def _ignore_errors(self) -> Iterator[None]:
        try:
            yield
        except ValueError:
            if not self.stream.closed:
                raise
        except self.ignored:
            discard_output(self.stream)


def make_tolerant(stream: TextIO | None) -> TextIO:
    """Wrap a stream in a `TolerantStream`. None (closed by the caller) becomes a stream that drops everything."""
    if stream is None or isinstance(stream, TolerantStream):
        # This file stays open until the program ends.
        return stream or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    return cast(TextIO, TolerantStream(stream))


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the standard streams tolerant while the block runs.

    Standard error drops what it cannot write. A closed one (2>&-) drops everything, as `print(file=None)` would write
    to standard output. Standard output ignores a closed pipe and escapes characters outside its encoding (\\u1234).
    Other write errors are raised.
    """
    output = sys.stdout
    if output is not None and not isinstance(output, TolerantStream):
        with suppress(AttributeError, ValueError):
            output.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        output = cast(TextIO, TolerantStream(output, BrokenPipeError))
    with redirect_stderr(make_tolerant(sys.stderr)), redirect_stdout(output):
        yield


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to the null device. Otherwise Python writes its buffer at exit and changes the exit status."""
    with suppress(OSError, ValueError, AttributeError):
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
