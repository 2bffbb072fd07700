"""What every command keeps to, whatever it is given: it ends, with status 0 or with 2 and sentences that say why."""

import os
import re
import resource
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from commands import Outcome, call

from docmt.cli.app import load_command, main

CONTROLS = re.compile(r"[^\n\x20-\x7e\xa0-\U0010ffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What does things to a terminal: controls, marks that turn the direction of writing, separators, half characters."""
PYTHON = ("Traceback", "<class", "Errno", "Parser key", "typing.", "Exception", "object at 0x")
LONGEST = 2100
"""Characters of a sentence that somebody may still read."""


TEXT = "She sees the dog. It is cheap.\n\nHe buys it.\n"


class TooLongError(BaseException):
    """A command did not end; no Exception, so that nothing on the way takes it for one of its own."""


@contextmanager
def limits(seconds, more_memory):
    """Raises TooLongError in whatever waits or computes for longer, and MemoryError for more memory (bytes)."""

    def end(*_):
        raise TooLongError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_memory, hard))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def keeps_to_the_contract(*arguments, stdin=b"", statuses=(0, 2)):
    """Runs `docmt ARGUMENTS` in this process and checks what it says; returns the outcome."""
    try:
        outcome = call(*arguments, stdin=stdin)
    except (Exception, TooLongError) as error:
        raise AssertionError(f"docmt {arguments!r}: {type(error).__name__}: {error}") from error
    check_outcome(outcome, arguments, statuses)
    return outcome


def check_outcome(outcome, arguments, statuses=(0, 2)):
    """Asserts that the status is one of those, and that standard error holds sentences for people."""
    said = f"docmt {arguments!a} ended with {outcome.status} and said {outcome.err[:2000]!a}"
    assert outcome.status in statuses, said
    errors = [line for line in outcome.err.splitlines() if line.startswith("docmt: error: ")]
    assert bool(errors) == (outcome.status == 2), said
    assert all(line.startswith("docmt: ") for line in outcome.err.splitlines()), said
    assert all(len(line) <= LONGEST for line in errors), said
    assert not CONTROLS.search(outcome.err), f"{said}: {CONTROLS.search(outcome.err)}"
    assert not any(name in outcome.err for name in PYTHON), said


def is_refused(*arguments, stdin=b""):
    """The command ends with status 2 and a single sentence."""
    outcome = keeps_to_the_contract(*arguments, stdin=stdin, statuses=(2,))
    assert outcome.err.count("docmt: error: ") == outcome.err.count("\n") == 1, (arguments, outcome.err)
    return outcome


def options_of(command):
    """The options of a command, without those that only print something."""
    options = load_command(command)[0].options
    return [option for option in options if option.flags and option.name not in ("help", "print_config", "list")]


def contents(path):
    """The bytes of a file, or of every file of a directory, but for what tells the time or the place."""
    if path.is_file():
        return path.read_bytes()
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files if file.suffix in (".safetensors", ".npy")}


class Child:
    """`docmt ARGUMENTS` in a process of its own, forked, so that it does not begin by importing for seconds.

    Its standard output and error go to files, unless they are given: file descriptors, or CLOSED. `before` is called
    in the process, and may harm it.
    """

    CLOSED = -1
    left: ClassVar[set["Child"]] = set()
    """those that nobody has waited for"""

    def __init__(self, folder, *arguments, out=None, err=None, encoding="utf-8", before=lambda: None):
        self.arguments, self.before = arguments, before
        self.files = [folder / "stdout", folder / "stderr"]
        for file in self.files:
            file.write_bytes(b"")
        self.pid = os.fork()
        if self.pid == 0:
            self._run([out, err], encoding)
        self.left.add(self)

    def _run(self, streams, encoding):
        status = 70
        try:
            signal.alarm(0)
            for number, name in ((1, "stdout"), (2, "stderr")):
                own = (
                    os.open(self.files[number - 1], os.O_WRONLY) if streams[number - 1] is None else streams[number - 1]
                )
                if own == self.CLOSED:
                    os.close(number)
                    setattr(sys, name, None)  # as Python does where they are closed when it starts
                else:
                    os.dup2(own, number)
                    errors = "strict" if number == 1 else "backslashreplace"
                    setattr(sys, name, open(number, "w", -1 if number == 1 else 1, encoding, errors))  # noqa: PTH123, SIM115
            self.before()
            status = main([str(argument) for argument in self.arguments])
        except BaseException:
            self.files[1].write_text(traceback.format_exc())
        finally:
            os._exit(status)

    @property
    def is_running(self):
        """Whether it has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def kill(self, seconds=0.0):
        """Kills it after so many seconds; returns whether it was still running."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        return self._wait() == -signal.SIGKILL

    def _wait(self):
        """Waits until it has ended; its status, or minus the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        self.left.discard(self)
        return os.waitstatus_to_exitcode(status)

    def end(self):
        """Waits until it has ended; what it left behind, which keeps to the contract."""
        outcome = Outcome(self._wait(), *(file.read_bytes().decode() for file in self.files))
        assert not any(name in outcome.err for name in PYTHON), outcome
        return outcome
