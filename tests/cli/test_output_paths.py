"""Where commands write: links, modes, read-only places, odd names, and what killed commands left."""

import os
import shutil
import stat
import subprocess

import pytest
from commands import QUICK, TINY, call, fails

from docmt.core.files import host_id

DEAD = 2**22 + 1  # more than any process number
SHORT = ["--stop.max-steps", 1]


@pytest.fixture
def text(tmp_path):
    """A source file of one document, and its translation."""
    for side in ("en", "de"):
        (tmp_path / f"a.{side}").write_text("She sees the dog.\nIt is cheap.\n")
    return tmp_path / "a.en", tmp_path / "a.de"


@pytest.fixture
def read_only(tmp_path):
    """A function that makes a folder read-only, as a disk that was mounted so."""
    mounted = []

    def mount(folder):
        if os.geteuid() != 0 or subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(folder)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def leftover(path, kind):
    """What a killed process of this machine left of the writing of `path`."""
    left = path.with_name(f".{path.name}.{DEAD}-{host_id()}.0a1b2c3d.tmp")
    if kind == "file":
        left.write_text("half")
    else:
        (left / "train").mkdir(parents=True)
        (left / "train" / "source_tokens.npy").write_text("half")
    return left


def commands(run, text, folder):
    """Each command that writes, with what it writes."""
    pair = ["--train", *text, "--vocabulary-size", 262]
    yield ["prepare", "--store", folder / "s", *pair], folder / "s", "directory"
    yield ["translate", run, text[0], "-o", folder / "t", *QUICK], folder / "t", "file"
    yield ["evaluate", "--hypothesis", text[1], "--reference", text[1], "--json", folder / "e"], folder / "e", "file"
    yield ["score", run, *text, "-o", folder / "c"], folder / "c", "file"


def test_what_a_killed_command_left_is_swept_by_the_next(run, text, tmp_path):
    for arguments, path, kind in commands(run, text, tmp_path):
        left = leftover(path, kind)
        outcome = call(*arguments)
        assert outcome.status == 0, outcome
        assert path.exists()
        assert not left.exists(), arguments


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_outputs_that_are_links_stay_links_and_files_keep_their_mode(run, text, tmp_path, mode):
    (tmp_path / "disk").mkdir()
    for arguments, path, kind in commands(run, text, tmp_path):
        place = tmp_path / "disk" / path.name
        place.mkdir() if kind == "directory" else place.touch(mode)
        if kind == "file":
            place.chmod(mode)
        path.symlink_to(place)
        assert call(*arguments).status == 0
        assert path.readlink() == place
        if kind == "file":
            assert place.stat().st_size
            assert stat.S_IMODE(place.stat().st_mode) == mode
        else:
            assert (place / "statistics.json").is_file()
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["c", "e", "s", "t"]


@pytest.mark.full
def test_a_run_may_be_a_link_and_resumed_through_it(store, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for arguments in (["--store", store, "--run", tmp_path / "link", *TINY, *SHORT], ["--resume", tmp_path / "link"]):
        assert call("train", *arguments).status == 0
        assert (tmp_path / "link").readlink() == tmp_path / "disk"
        assert (tmp_path / "disk" / "model" / "config.json").is_file()


@pytest.mark.full
@pytest.mark.parametrize("name", [".", "link", "new"])
def test_a_start_that_fails_says_why_and_leaves_nothing(store, tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path / "disk" if name == "." else tmp_path / "here")
    arguments = ["train", "--store", store, "--run", name, *TINY, *SHORT]
    fails(*arguments, "--initialize-from", "nope", message=r"there is no directory nope")
    assert list((tmp_path / "disk").iterdir()) == []
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["link"]
    assert call(*arguments).status == 0


def test_a_run_in_a_full_current_directory(store, tmp_path, monkeypatch):
    (tmp_path / "work").touch()
    monkeypatch.chdir(tmp_path)
    fails("train", "--store", store, "--run", ".", *TINY, message="the run directory . already exists: choose another")
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.full
def test_read_only_runs_and_outputs(run, corpus, tmp_path, read_only):
    sides = [corpus / "dev.en", corpus / "dev.de"]
    splits = [part for split in ("train", "dev", "test") for part in (f"--{split}", *sides)]
    assert call("prepare", "--store", tmp_path / "s", *splits, "--vocabulary-size", 300).status == 0
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "out").mkdir()
    for folder in ("run", "out"):
        read_only(tmp_path / folder)
    refusal = "Read-only file system; choose another path"
    fails("train", "--resume", tmp_path / "run", "--stop.max-steps", 120, message=rf"cannot write \S+run\S*: {refusal}")
    for output in (tmp_path / "out", tmp_path / "out" / "new"):
        arguments = ["reproduce", "figure3", "--store", tmp_path / "s", "--output", output]
        fails(*arguments, message=rf"cannot write {output}\S*: {refusal}")


def test_widths_that_do_not_fit_their_heads(store, tmp_path):
    arguments = ["train", "--store", store, "--run", tmp_path / "r", "--model.width", 12]
    fails(*arguments, message=r"model\.width is 12: choose an even multiple of --model\.heads .8")
