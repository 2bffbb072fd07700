"""Files written at once or not at all: links, modes, names, what a kill leaves behind, and locks."""

import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from docmt.core.errors import DocmtError
from docmt.core.files import (
    LOCK_FILE,
    atomic_directory,
    atomic_path,
    check_writable,
    find_leftovers,
    lock,
    lock_directory,
    write_text,
)


@pytest.fixture
def umask():
    """A function that sets the umask for the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "file", "directory"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_new_files_and_directories_have_the_mode_of_the_umask(tmp_path, umask, mask, file, directory):
    umask(mask)
    write_text(tmp_path / "a", "a")
    with atomic_directory(tmp_path / "d") as temporary:
        (temporary / "secret").touch(mode=0o600)  # as safetensors does
    assert (mode(tmp_path / "a"), mode(tmp_path / "d"), mode(tmp_path / "d" / "secret")) == (file, directory, file)


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, umask):
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o640)
    write_text(tmp_path / "a", "new")
    assert (mode(tmp_path / "a"), (tmp_path / "a").read_text()) == (0o640, "new")


@pytest.mark.parametrize("name", ["n" * 245, "n" * 255, "ä" * 127])
def test_long_names(tmp_path, name):
    for _ in range(2):
        write_text(tmp_path / name, "text")
    with atomic_directory(tmp_path / name[::-1].replace("n", "m").replace("ä", "ö")) as temporary:
        (temporary / "a").write_text("a")
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / name).read_text() == "text"


def test_places_where_nothing_can_be_made(tmp_path):
    message = "cannot write .*none/a: No such file or directory; create the directory, or choose another path"
    with pytest.raises(DocmtError, match=message):
        write_text(tmp_path / "none" / "a", "text")
    if not Path("/proc/self").exists():
        pytest.skip("there is no file system that is none of the disk")
    with pytest.raises(DocmtError, match=r"cannot write /proc/a: .*; choose another path") as caught:
        write_text(Path("/proc/a"), "text")
    assert "create the directory" not in str(caught.value)


def test_names_that_cannot_be(tmp_path):
    with pytest.raises(DocmtError, match="File name too long"):
        write_text(tmp_path / ("n" * 256), "text")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DocmtError, match=r"cannot write \S+loop: "):
        write_text(tmp_path / "loop", "text")


def test_text_that_utf8_cannot_hold(tmp_path):
    with pytest.raises(DocmtError, match=r"cannot write \S+out: character 2 is a lone surrogate \(U\+DC80\)"):
        write_text(tmp_path / "out", "a\udc80")
    assert list(tmp_path.iterdir()) == []


def test_links_go_on_pointing(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old").touch()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with atomic_directory(tmp_path / "link") as temporary:
        (temporary / "new").touch()
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]


def test_no_planted_link_is_written_through(tmp_path):
    """The names were `.out.PID.tmp`, which anybody could foresee."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".out.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    write_text(tmp_path / "out", "text")
    assert (tmp_path / "victim").read_text() == "mine"
    with atomic_path(tmp_path / "out") as one, atomic_path(tmp_path / "out") as other:
        assert one != other
        for path in (one, other):
            assert path.is_file()
            assert not path.is_symlink()


KILLED = """
import os, signal, sys
from pathlib import Path
from docmt.core.files import atomic_directory, atomic_path
with atomic_path(Path("file")) as file, atomic_directory(Path("folder")) as folder:
    (folder / "a").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_left_is_removed_by_the_next_writing(tmp_path):
    (tmp_path / "folder").mkdir()
    assert subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path).returncode == -9
    assert sorted(found.target for found in find_leftovers(tmp_path)) == ["file", "folder"]
    with atomic_path(tmp_path / "file") as at_work:
        write_text(tmp_path / "file", "text")
        assert at_work.exists(), "its process runs"
    with atomic_directory(tmp_path / "folder"):
        pass
    assert find_leftovers(tmp_path) == []


def test_leftovers_of_others_stay(tmp_path):
    names = {
        f".a.1-{'0' * 8}.x1.tmp": "of another machine",
        f".ab.{2**22 + 1}-{'0' * 8}.x1.tmp": "of another file",
        ".a.notes.tmp": "of a person",
    }
    for name in names:
        (tmp_path / name).touch()
    write_text(tmp_path / "a", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"a", *names}
    os.utime(tmp_path / f".a.1-{'0' * 8}.x1.tmp", (0, 0))
    write_text(tmp_path / "a", "text")
    assert len(list(tmp_path.iterdir())) == 3


def test_an_old_directory_whose_successor_never_came_is_put_back(tmp_path):
    with pytest.raises(DocmtError), atomic_directory(tmp_path / "d") as temporary:
        aside = temporary.with_suffix(".old").name.replace(f".{os.getpid()}-", f".{2**22 + 1}-")
        (tmp_path / aside).mkdir()
        (tmp_path / aside / "kept").touch()
        raise OSError("the disk is gone")
    with pytest.raises(DocmtError), atomic_directory(tmp_path / "d"):
        raise OSError("the disk is gone again")
    assert (tmp_path / "d" / "kept").exists()


def test_a_lock_is_held_by_one(tmp_path):
    with lock_directory(tmp_path, "the run r is being trained"):
        message = f"the run r is being trained by process {os.getpid()} on {socket.gethostname()}: wait for it, or stop"
        with pytest.raises(DocmtError, match=message), lock_directory(tmp_path, "the run r is being trained"):
            pass
    with lock_directory(tmp_path, "x"):
        pass
    with pytest.raises(DocmtError, match=r"cannot write .*none/\.lock"), lock_directory(tmp_path / "none", "x"):
        pass


def test_a_lock_that_was_taken_just_now_tells_its_holder(tmp_path):
    """Between taking it and writing its name there is a moment."""
    with lock_directory(tmp_path, "x"):
        pass
    file = tmp_path / LOCK_FILE
    assert not file.read_bytes()  # of an earlier holder nothing is told
    with file.open("r+b", buffering=0) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        late = Timer(0.2, other.write, [b"123 there\n"])
        late.start()
        with pytest.raises(DocmtError, match="x by process 123 on there: wait for it"), lock_directory(tmp_path, "x"):
            pass
        late.join()


@pytest.mark.parametrize("remove", [False, True])
def test_a_lock_that_is_interrupted_while_it_is_taken(tmp_path, monkeypatch, remove):
    """The lock file stayed, because only an error of the system removed it."""

    def interrupt(path, text, encoding):
        raise KeyboardInterrupt

    file = tmp_path / LOCK_FILE
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", interrupt)
        with pytest.raises(KeyboardInterrupt), lock(file, "x", remove):
            pytest.fail("the block runs without the lock")
    assert file.exists() != remove
    with lock(file, "x", remove):
        assert file.read_text()


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom docmt.core.files import lock_directory\n"
        "with lock_directory(Path('.'), 'x'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == -9
    assert (Path(tmp_path) / ".lock").exists()
    with lock_directory(tmp_path, "x"):
        pass


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
@pytest.mark.parametrize("remove", [False, True])
def test_without_locks_in_the_file_system_the_work_goes_on(tmp_path, monkeypatch, caplog, number, remove):
    """A lock file whose existence was the lock stayed after a kill, and nobody could go on."""

    def flock(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    file = tmp_path / LOCK_FILE
    file.touch()  # as a killed process leaves it
    for _ in range(2):
        with lock(file, "the run r is being trained", remove), lock(file, "the run r is being trained", remove):
            pass
    assert file.exists() != remove
    [message] = caplog.messages
    assert (
        message
        == f"files in {tmp_path} cannot be locked ({os.strerror(number)}): use the directory in one process at a time"
    )


@pytest.mark.parametrize("name", ["a\0b", "\ud83d\ude00"])
def test_names_that_no_file_can_have_are_refused_before_the_work(name, tmp_path):
    with pytest.raises(DocmtError, match="no file can have such a name; choose another path"):
        check_writable(tmp_path / name)
