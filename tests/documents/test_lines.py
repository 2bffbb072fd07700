"""Files of one sentence a line: nothing between the sentences is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.documents import Document, read_documents, read_input

LINES = st.lists(st.sampled_from(["A b.", " C\t", "", "  ", "\r", "D\r", "é\u2028e", "\ufeffF"]), max_size=12)


def read(folder: Path, text: str) -> list[Document]:
    path = folder / "lines.txt"
    path.write_bytes(text.encode())
    return read_input(path, layout="lines").documents


@given(lines=LINES, marks=st.sets(st.integers(0, 11)), ends=st.booleans(), byte_order_mark=st.booleans())
@example(lines=[], marks=set(), ends=False, byte_order_mark=True)
@example(lines=["A b.", "", "", "D\r"], marks=set(), ends=True, byte_order_mark=False)
def test_documents_are_those_of_a_corpus_and_texts_join_to_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], marks: set[int], ends: bool, byte_order_mark: bool
) -> None:
    lines = list(lines)
    for mark in sorted(marks, reverse=True):
        lines.insert(mark, "<d>")
    if marks:
        lines.insert(0, "<d>")
    text = "\ufeff" * byte_order_mark + "\n".join(lines) + "\n" * ends
    folder = tmp_path_factory.mktemp("lines")
    documents = read(folder, text)
    assert "".join(document.text() for document in documents) == text
    expected = {id: tuple(filter(None, sentences)) for id, sentences in read_documents(folder / "lines.txt")}
    expected = {id: sentences for id, sentences in expected.items() if sentences}
    assert {document.id: document.sentences for document in documents if document.sentences} == expected
    assert len(documents) == max(len(expected), 1)


def test_gaps_hold_the_rest_of_the_text(tmp_path: Path) -> None:
    one, two = read(tmp_path, "\n A. \r\nB.\n\n\nC.\n\n")
    assert one == Document(("A.", "B."), ("\n ", " \r\n", "\n"), "1")
    assert two == Document(("C.",), ("\n\n", "\n\n"), "2")


def test_a_stray_mark_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match=r"lines.txt, line 3: document mark <d> in a file that does not begin"):
        read(tmp_path, "A.\n\n<d>\nB.\n")
