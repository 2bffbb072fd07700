"""A file that is written over hours, and two processes that want it at once."""

import pytest

from docmt.core.errors import DocmtError
from docmt.core.partial import PartialFile

FACTS = {"model": "a"}


def partial(path, resume=True, facts=FACTS):
    """The file, held by this process."""
    file = PartialFile(path, facts, resume)
    file.hold()
    return file


def begin(path, *texts):
    """Leaves a file that was interrupted after these texts."""
    file = partial(path, resume=False)
    for number, text in enumerate(texts):
        file.add(text, {"number": number})
    file.close()


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "out.txt"
    begin(path, "one\n")
    late, other = PartialFile(path, FACTS, resume=True), partial(path)
    with pytest.raises(DocmtError, match=r"out\.txt is being written by process \d+ on \S+: wait for it, or stop it"):
        late.hold()
    other.add("two\n", {"number": 1})
    other.close()
    late.hold()  # and goes on where the other has stopped
    assert [note["number"] for note in late.notes] == [0, 1]
    late.add("three\n", {"number": 2})
    late.finish()
    late.remove()
    assert path.read_text() == "one\ntwo\nthree\n"
    assert names(tmp_path) == ["out.txt"]


def test_what_another_process_began_meanwhile_is_not_lost(tmp_path):
    path = tmp_path / "out.txt"
    late = PartialFile(path, FACTS, resume=False)
    begin(path, "one\n", "two\n")
    before = (tmp_path / "out.txt.partial").read_bytes()
    with pytest.raises(DocmtError, match=r"out\.txt\.partial is unfinished: go on with it with --resume"):
        late.hold()
    late.close()
    assert (tmp_path / "out.txt.partial").read_bytes() == before


def test_what_another_process_begins_anew_is_not_removed(tmp_path):
    path = tmp_path / "out.txt"
    first = partial(path, resume=False)
    first.add("one\n", {"number": 0})
    first.finish()
    begin(path, "eins\n")
    first.remove()
    assert [note["number"] for note in PartialFile(path, FACTS, resume=True).notes] == [0]


def test_a_finished_file_is_known_until_it_is_removed(tmp_path):
    path = tmp_path / "out.txt"
    file = partial(path, resume=False)
    file.add("one\n", {"number": 0})
    file.finish()
    again = PartialFile(path, FACTS, resume=True)
    assert (again.finished, again.notes) == (True, [{"number": 0}])
    assert "one" not in (tmp_path / "out.txt.partial").read_text()  # what is in place need not be here, too
    with pytest.raises(DocmtError, match="begun with another model"):
        PartialFile(path, {"model": "b"}, resume=True)
    path.unlink()
    gone = PartialFile(path, FACTS, resume=True)
    assert (gone.finished, gone.notes) == (False, [])
    path.write_text("one\n")
    file.remove()
    assert names(tmp_path) == ["out.txt"]


def test_killed_between_the_last_text_and_its_place(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    file = partial(path, resume=False)
    file.add("one\n", {"number": 0})
    with monkeypatch.context() as patch:
        patch.setattr(PartialFile, "_render", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    file.close()
    again = partial(path)
    assert (again.finished, len(again.notes), path.exists()) == (False, 1, False)
    again.finish()
    assert path.read_text() == "one\n"
