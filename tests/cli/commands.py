"""The command line in this process and in processes of its own, and settings that make it quick."""

import io
import re
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple

from forked import ForkedPython

from docmt.cli.app import main
from docmt.core import resumable_file

SIZES = {
    "width": 16,
    "feed_forward": 32,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "group.encoder_layers": 1,
    "group.decoder_layers": 1,
    "group.cross_layers": 1,
    "instance_tokens": 128,
    "positions": "document",  # with which so small a model ends its sentences after so few updates
}
TINY = [
    *[f"--model.{name}={value}" for name, value in SIZES.items()],
    "--batches.batch-tokens=512",
    "--optimizer.learning-rate=0.02",
    "--optimizer.warmup=10",
    "--validation.every=20",
    "--device=cpu",
]
# For systems that have no options of group attention.
TINY_SENTENCE = [argument for argument in TINY if not argument.startswith("--model.group.")]
QUICK = ["--search.beam=1", "--search.max-length-ratio=0", "--search.max-length-extra=2"]


NOISE = ("Traceback", "<class", "Parser key", "typing.", "Error:", "Exception")


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


def call(*arguments, stdin=b""):
    """Runs `docmt ARGUMENTS` in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="") for data in (stdin, b"", b"")]
    saved = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as end:  # --help
        status = end.code or 0
    finally:
        sys.stdin, sys.stdout, sys.stderr = saved
    for stream in streams[1:]:
        stream.flush()
    return Outcome(status, *(stream.buffer.getvalue().decode() for stream in streams[1:]))


def start(*arguments, **options):
    """Starts `docmt ARGUMENTS` as a process with pipes."""
    return ForkedPython(["-m", "docmt.cli.app", *arguments], **options)


def wait_for_lines(path, count, process):
    """Until the file has that many lines."""
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def assert_one_sentence(err, message):
    """`err` is one line for people that matches `message`."""
    assert re.fullmatch(r"docmt: error: [^\n]+\n", err), err
    assert re.search(message, err), err
    assert not any(noise in err for noise in NOISE), err


def fails(*arguments, message, stdin=b""):
    """The command ends with status 2, one sentence and nothing on standard output."""
    outcome = call(*arguments, stdin=stdin)
    assert outcome.status == 2, outcome
    assert outcome.out == ""
    assert_one_sentence(outcome.err, message)


@contextmanager
def interrupting(monkeypatch, additions):
    """Interrupt a translation that can be resumed when it has added so much to its journal: a head, then parts."""
    real, added = resumable_file._append, []

    def append(*values):
        if len(added) == additions:
            raise KeyboardInterrupt
        added.append(values)
        real(*values)

    with monkeypatch.context() as patch:
        patch.setattr(resumable_file, "_append", append)
        yield
