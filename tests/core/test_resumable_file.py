"""Resumable files, and two processes that write one at once."""

import pytest

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_text
from docmt.core.resumable_file import ResumableFile

FINGERPRINT = {"model": "a"}


def acquire(path, resume=True, fingerprint=FINGERPRINT):
    """Return the file, locked by this process."""
    file = ResumableFile(path, fingerprint, resume)
    file.acquire()
    return file


def interrupt_after(path, *texts):
    """Write an unfinished file with these texts."""
    file = acquire(path, resume=False)
    for number, text in enumerate(texts):
        file.add(text, {"number": number})
    file.close()


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "out.txt"
    interrupt_after(path, "one\n")
    late, other = ResumableFile(path, FINGERPRINT, resume=True), acquire(path)
    with pytest.raises(DocmtError, match=r"out\.txt is being written by process \d+ on \S+: wait for it, or stop it"):
        late.acquire()
    other.add("two\n", {"number": 1})
    other.close()
    late.acquire()  # and continues after the other
    assert [note["number"] for note in late.notes] == [0, 1]
    late.add("three\n", {"number": 2})
    late.finish()
    late.remove()
    assert path.read_text() == "one\ntwo\nthree\n"
    assert names(tmp_path) == ["out.txt"]


def test_a_file_that_another_process_started_meanwhile_is_not_lost(tmp_path):
    path = tmp_path / "out.txt"
    late = ResumableFile(path, FINGERPRINT, resume=False)
    interrupt_after(path, "one\n", "two\n")
    before = (tmp_path / "out.txt.partial").read_bytes()
    with pytest.raises(DocmtError, match=r"out\.txt\.partial is unfinished: continue it with --resume"):
        late.acquire()
    late.close()
    assert (tmp_path / "out.txt.partial").read_bytes() == before


def test_a_file_that_another_process_started_again_is_not_removed(tmp_path):
    path = tmp_path / "out.txt"
    first = acquire(path, resume=False)
    first.add("one\n", {"number": 0})
    first.finish()
    interrupt_after(path, "eins\n")
    first.remove()
    assert [note["number"] for note in ResumableFile(path, FINGERPRINT, resume=True).notes] == [0]


def test_a_finished_file_is_known_until_it_is_removed(tmp_path):
    path = tmp_path / "out.txt"
    file = acquire(path, resume=False)
    file.add("one\n", {"number": 0})
    file.finish()
    again = ResumableFile(path, FINGERPRINT, resume=True)
    assert (again.finished, again.notes) == (True, [{"number": 0}])
    assert "one" not in (tmp_path / "out.txt.partial").read_text()  # the text is in OUT only
    with pytest.raises(DocmtError, match="started with another model"):
        ResumableFile(path, {"model": "b"}, resume=True)
    path.unlink()
    gone = ResumableFile(path, FINGERPRINT, resume=True)
    assert (gone.finished, gone.notes) == (False, [])
    path.write_text("one\n")
    file.remove()
    assert names(tmp_path) == ["out.txt"]


def test_kill_between_the_last_text_and_the_rendering(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    file = acquire(path, resume=False)
    file.add("one\n", {"number": 0})
    with monkeypatch.context() as patch:
        patch.setattr(ResumableFile, "_render", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    file.close()
    again = acquire(path)
    assert (again.finished, len(again.notes), path.exists()) == (False, 1, False)
    again.finish()
    assert path.read_text() == "one\n"


def test_an_option_of_another_version_is_named(tmp_path):
    path = tmp_path / "out.txt"
    file = ResumableFile(path, {**FINGERPRINT, "--search.length_penalty": 1.0}, resume=False)
    file.acquire()
    file.add("one\n", {"number": 0})
    file.close()
    with pytest.raises(DocmtError, match=r"started with another --search.length_penalty\. Use the same, or"):
        ResumableFile(path, FINGERPRINT, resume=True)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed(tmp_path, suffix):
    outputs = []
    for name in "ab":
        path = tmp_path / f"{name}.txt{suffix}"
        file = acquire(path, resume=False)
        file.add("one\n", {})
        file.add("zwölf\n", {})
        file.finish()
        assert read_text(path) == "one\nzwölf\n"
        outputs.append(path.read_bytes())
    assert outputs[0] == outputs[1]
