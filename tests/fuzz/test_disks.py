"""Disks that fill, that take nothing, that have no locks, and clocks that jump: told in a sentence, nothing is lost."""

import errno
import fcntl
import os
import resource
import signal
import sys
import time

import pytest
from commands import QUICK
from harness import TEXT, Child, check_outcome, contents, keeps_to_the_contract

pytestmark = pytest.mark.full

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def fail_from(number, code, folder):
    """The changes of files under the folder fail, from this one on; numbers begin with 0."""
    changes = 0

    def hook(event, arguments):
        nonlocal changes
        is_open = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if not (is_open or event in ("os.rename", "os.mkdir", "os.truncate")):
            return
        path = arguments[0]
        if isinstance(path, int) or not os.fsdecode(path).startswith(str(folder)):
            return
        changes += 1
        if changes > number:
            raise OSError(code, os.strerror(code), os.fsdecode(path))

    sys.addaudithook(hook)


def files_of_a_size(chance, _):
    """No file may be longer than some bytes, which the system itself says."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = int(10 ** chance.uniform(1, 5.5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def full_disk(chance, folder):
    """Nothing new fits after some changes."""
    fail_from(chance.randrange(25), errno.ENOSPC, folder)


def read_only(chance, folder):
    """The disk is mounted again for reading, now and then because of its own faults."""
    fail_from(chance.choice([0, chance.randrange(25)]), errno.EROFS, folder)


def jumping_clock(chance, _):
    """The clock goes back and forth by days."""
    true_time = time.time
    time.time = lambda: true_time() + chance.choice([-1e6, -3600, 0, 3600, 1e6])


def no_locks(*_):
    """As on some network file systems."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = fcntl.lockf = refuse


FAULTS = [files_of_a_size, full_disk, read_only, jumping_clock, no_locks]
HARMLESS = (jumping_clock, no_locks)


@pytest.fixture
def commands(prepare, train, run, source):
    """By name: the command without its place, the option that names it, and the command that goes on from there."""
    return {
        "prepare": ([*prepare], "--store", lambda place: [*prepare, "--store", place]),
        "train": (
            [*train],
            "--run",
            lambda place: (
                ["train", "--resume", place] if (place / "recipe.yaml").exists() else [*train, "--run", place]
            ),
        ),
        "translate": (
            ["translate", run, source, *QUICK],
            "-o",
            lambda place: ["translate", run, source, *QUICK, "-o", place, "--resume"],
        ),
    }


@pytest.fixture(scope="module")
def wholes(store, run, tmp_path_factory):
    """By name: what a command ends with that nothing disturbs."""
    source = tmp_path_factory.mktemp("whole") / "a.txt"
    source.write_text(TEXT * 20)
    translation = source.with_name("x")
    keeps_to_the_contract("translate", run, source, "-o", translation, *QUICK, statuses=(0,))
    return {"prepare": contents(store), "train": contents(run / "model"), "translate": contents(translation)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("name", ["prepare", "train", "translate"])
def test_a_disk_that_fails_is_told_and_nothing_is_lost(name, fault, cases, commands, wholes, tmp_path):
    command, option, go_on = commands[name]
    for number, chance in enumerate(cases(2, f"faults ({fault.__name__.replace('_', ' ')})")):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = folder / "x"
        harm = lambda chance=chance, folder=folder: fault(chance, folder)  # noqa: E731
        outcome = Child(tmp_path, *command, option, place, before=harm).end()
        check_outcome(outcome, (name, fault.__name__, number))
        assert outcome.status == 0 or fault not in HARMLESS
        chance.counts = outcome.status != 0 or fault in HARMLESS  # the disk failed before the end
        if outcome.status:
            again = Child(tmp_path, *go_on(place)).end()
            assert again.status == 0, (outcome, again)
        parts = ("model",) if name == "train" else ()
        assert contents(place.joinpath(*parts)) == wholes[name]
        assert list(folder.iterdir()) == [place], list(folder.rglob("*"))
        assert not list(folder.rglob(".*.tmp"))
