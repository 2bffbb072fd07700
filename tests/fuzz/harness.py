"""What every command keeps to, whatever it is given: it ends, with status 0 or with 2 and sentences that say why."""

import re
import resource
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

from commands import call
from jsonargparse import ArgumentParser

CONTROLS = re.compile(r"[^\n\x20-\x7e\xa0-\U0010ffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What does things to a terminal: controls, marks that turn the direction of writing, separators, half characters."""
PYTHON = ("Traceback", "<class", "Errno", "Parser key", "typing.", "Exception", "object at 0x")
LONGEST = 2100
"""Characters of a sentence that somebody may still read."""


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
    said = f"docmt {arguments!r} ended with {outcome.status} and said {outcome.err[:2000]!r}"
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


def options_of(command, monkeypatch):
    """The options of a command as its parser has them (argparse actions), without those that only print something."""

    class SeenError(BaseException):
        pass

    found = []

    def see(parser, *_, **__):
        found.extend(parser._actions)
        raise SeenError

    with monkeypatch.context() as patch:
        patch.setattr(ArgumentParser, "parse_args", see)
        with suppress(SeenError):
            call(command)
    return [action for action in found if action.dest not in ("help", "print_config", "list") and action.help]
