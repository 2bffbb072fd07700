"""A file that grows over hours, and two processes that want it at once."""

import pytest

from docmt.core.errors import DocmtError
from docmt.core.growing import Growing

FACTS = {"model": "a"}


def begun(path, *texts):
    """A file that was interrupted after these texts."""
    growing = Growing(path, FACTS, resume=False)
    for number, text in enumerate(texts):
        growing.add(text, {"number": number})
    growing.close()


@pytest.mark.parametrize("ends", ["complete", "forgotten", "further"])
def test_what_another_process_wrote_meanwhile_is_not_lost(tmp_path, ends):
    path = tmp_path / "out.txt"
    begun(path, "one\n")
    late, other = (Growing(path, FACTS, resume=True) for _ in range(2))
    other.add("two\n", {"number": 1})
    if ends != "further":
        other.finish()
    if ends == "forgotten":
        other.forget()
    other.close()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(DocmtError, match=r"another process has gone on with .*out.txt meanwhile: call the same again"):
        late.add("zwei\n", {"number": 1})
    late.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_another_process_began_meanwhile_is_not_lost(tmp_path):
    path = tmp_path / "out.txt"
    late = Growing(path, FACTS, resume=False)
    begun(path, "one\n", "two\n")
    with pytest.raises(DocmtError, match="another process has gone on"):
        late.add("eins\n", {"number": 0})
    late.close()
    going_on = Growing(path, FACTS, resume=True)
    assert [note["number"] for note in going_on.notes] == [0, 1]
    going_on.add("three\n", {"number": 2})
    going_on.finish()
    going_on.forget()
    assert path.read_text() == "one\ntwo\nthree\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


def test_what_another_process_begins_anew_is_not_forgotten(tmp_path):
    path = tmp_path / "out.txt"
    first = Growing(path, FACTS, resume=False)
    first.add("one\n", {"number": 0})
    first.finish()
    first.close()
    begun(path, "eins\n")
    first.forget()
    assert [note["number"] for note in Growing(path, FACTS, resume=True).notes] == [0]
