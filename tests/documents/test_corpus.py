"""Parallel corpora: formats, streaming, and errors that name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.documents import ParallelDocument, SkipReport, read_documents, read_parallel, write_jsonl, write_parallel
from docmt.documents.input_formats import check_markup

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n") | st.sampled_from(
    "\ufeff\u2028\u2029\x0b\x0c\x1c\x85\t\x00"
)


def is_text(text: str) -> bool:
    """Return whether a text is a sentence, also as the first of a file: that of another format is refused."""
    try:
        check_markup("text", text)
    except DocmtError:
        return False
    return text not in ("", "<d>")


SENTENCES = st.text(CHARACTERS).map(str.strip).filter(is_text)
# How fast examples are made says only how busy the machine is.
BUSY = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
PAIRS = st.lists(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=5), max_size=5)


def documents_of(pairs: list[list[tuple[str, str]]]) -> list[ParallelDocument]:
    return [
        ParallelDocument(str(number), tuple(source for source, _ in document), tuple(target for _, target in document))
        for number, document in enumerate(pairs, 1)
    ]


@BUSY
@given(PAIRS)
@example([[("\ufeffa", "\ufeff\ufeff")], [("\ufeff", "x\u2028y\x85z\x0b\x0c!")]])
def test_text_files_come_back(tmp_path_factory: pytest.TempPathFactory, pairs: list[list[tuple[str, str]]]) -> None:
    directory, documents = tmp_path_factory.getbasetemp(), documents_of(pairs)
    write_parallel(documents, directory / "s", directory / "t")
    assert list(read_parallel(directory / "s", directory / "t")) == documents
    assert list(read_documents(directory / "s")) == [(document.id, document.source) for document in documents]
    assert list(read_documents(str(directory / "t"))) == [(document.id, document.target) for document in documents]


@BUSY
@given(PAIRS, st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_jsonl_comes_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[list[tuple[str, str]]], prefix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "corpus.jsonl"
    documents = [ParallelDocument(prefix + d.id, d.source, d.target) for d in documents_of(pairs)]
    write_jsonl(documents, path)
    assert list(read_parallel(path)) == documents


class Files:
    """Writes the two sides (and JSONL) into a folder and reads them."""

    def __init__(self, directory: Path) -> None:
        self.source, self.target, self.jsonl = (directory / name for name in ("s.txt", "t.txt", "c.jsonl"))
        self.skipped = SkipReport()

    def read(self, source: str | bytes, target: str | bytes) -> list[tuple[str, str, str]]:
        for path, data in ((self.source, source), (self.target, target)):
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return self._as_strings(read_parallel(self.source, self.target, skipped=self.skipped))

    def read_json(self, *lines: object) -> list[tuple[str, str, str]]:
        self.jsonl.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines), newline="\n")
        return self._as_strings(read_parallel(self.jsonl, skipped=self.skipped))

    @staticmethod
    def _as_strings(documents: Iterator[ParallelDocument]) -> list[tuple[str, str, str]]:
        return [(d.id, "|".join(d.source), "|".join(d.target)) for d in documents]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


AB = [("1", "a|b", "A|B"), ("2", "c", "C")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a\nb\n\nc\n", "A\nB\n\nC\n"),
        ("a\nb\n\nc", "A\nB\n\nC\n"),  # no newline at the end
        ("a\r\nb\r\n\r\nc\r\n", "A\nB\n\nC\n"),
        ("\ufeffa\nb\n\nc\n", "A\nB\n\nC\n"),
        ("\ufeff\na\nb\n\nc\n", "\nA\nB\n\nC\n"),
        ("\n\na\nb\n\n\n\nc\n\n\n", "\n\nA\nB\n \t\n\n\nC\n"),  # runs of empty lines; more at the end of one side
        (" a \n\tb\n\nc\u3000\n", "A\u2028\nB\n\nC\n"),
        ("<d>\na\nb\n<d>\nc\n", "<d>\nA\nB\n<d>\nC\n"),
        ("\ufeff<d>\r\na\r\nb\r\n<d> \r\nc\r\n\r\n", "<d>\nA\nB\n<d>\nC"),
        ("\n<d>\na\nb\n<d>\nc", "\n<d>\nA\nB\n<d>\nC\n\n\n"),
    ],
)
def test_formats(files: Files, source: str, target: str) -> None:
    assert files.read(source, target) == AB
    assert files.skipped.counts == {}


def test_only_line_feeds_end_lines(files: Files) -> None:
    line = "a\tb\u2028c\x0bd\x0ce\x85f\rg\u2029h\x1ci\ufeffj"
    assert files.read(f"{line}\n", f"{line}\r\n") == [("1", line, line)]


@pytest.mark.parametrize("text", ["", "\n\n\n", "\ufeff"])
def test_files_without_documents(files: Files, text: str) -> None:
    assert files.read(text, text) == []
    assert files.read(text, "") == []
    assert list(read_documents(files.source)) == []
    assert files.skipped.counts == {}


def test_empty_sides_between_marks_are_skipped_and_counted(files: Files) -> None:
    source = "<d>\na\n\nc\n<d>\n\n<d>\n<d>\nx\n\n"
    target = "<d>\nA\nB\n \n<d>\nY\n<d>\n<d>\nX\n\n"
    assert files.read(source, target) == [("1", "a", "A"), ("4", "x", "X")]
    assert files.skipped.counts == {"pair with an empty side": 4, "document without sentences": 2}
    assert files.skipped.examples == {
        "pair with an empty side": [f"{files.source}, line {number}" for number in (3, 4, 6)],
        "document without sentences": [f"{files.source}, line {number}" for number in (5, 7)],
    }
    assert list(read_documents(files.source)) == [("1", ("a", "", "c")), ("2", ("",)), ("4", ("x", ""))]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n\nc\nd\n", "A\n\nC\nD\n", r"^line 2: .*t\.txt has an empty line .* but .*s\.txt does not"),
        ("a\n\nc\n", "A\nB\nC\n", r"^line 2: .*s\.txt has an empty line .* but .*t\.txt does not"),
        ("\na\n", "A\n", r"^line 1: .*s\.txt has an empty line"),
        ("a\nb\nc\n", "A\nB\n", r"t\.txt ends after line 2 but .*s\.txt has text in line 3"),
        ("a\n", "A\n\n\nB", r"s\.txt ends after line 1 but .*t\.txt has text in line 4"),
        ("", "A\n", r"s\.txt is empty but .*t\.txt has text in line 1"),
        ("a\nb\n\nc\n", "A\n\nC\n", r"^line 2: "),  # the marks part before the shorter file ends
        ("<d>\na\nb\n<d>\nc\n", "<d>\nA\n<d>\nC\n", r"^line 3: .*t\.txt has a document mark <d> but .*s\.txt"),
        ("<d>\na\n<d>\nc\n", "<d>\nA\nC\n", r"^line 3: .*s\.txt has a document mark"),
        ("<d>\na\n<d>\n", "<d>\nA\n", r"t\.txt ends after line 2 but .*s\.txt has text in line 3"),
        ("<d>\na\n", "A\n", r"^line 1: .*s\.txt has a document mark"),
        ("a\n", "<d>\nA\n", r"^line 1: .*t\.txt has a document mark"),
        ("a\n<d>\nb\n", "A\n<d>\nB\n", r"s\.txt, line 2: document mark <d> in a file that does not begin with one"),
        ("a\n\nb\n", "A\n<d>\nB\n", r"t\.txt, line 2: document mark <d> in a file"),
        ("a\nb\n", "A\nB\xe9\n".encode("latin1"), r"t\.txt, line 2, byte 2: not UTF-8 \(0xE9\).*Latin-1"),
        ("a\n", b"A\nB\xe9", r"t\.txt, line 2, byte 2: not UTF-8"),
    ],
)
def test_sides_that_do_not_fit(files: Files, source: str, target: str | bytes, message: str) -> None:
    with pytest.raises(DocmtError, match=message):
        files.read(source, target)


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a\n")
    for read in (
        read_parallel(tmp_path / "s", tmp_path / "none"),
        read_parallel(tmp_path / "none"),
        read_documents(tmp_path / "none"),
    ):
        with pytest.raises(DocmtError, match="there is no such file"):
            list(read)
    with pytest.raises(DocmtError, match="it is a directory"):
        list(read_parallel(tmp_path, tmp_path / "s"))


def test_reading_is_a_stream(files: Files) -> None:
    """The first document comes before the bad lines behind it are looked at."""
    with pytest.raises(DocmtError, match="line 3"):
        files.read("a\n\nb\n", b"A\n\n\xff\n")
    documents = read_parallel(files.source, files.target)
    assert next(documents) == ParallelDocument("1", ("a",), ("A",))
    with pytest.raises(DocmtError, match="line 4: not valid JSON"):
        files.read_json({"source": ["a"], "target": ["A"]}, "", "", "nonsense")


def test_jsonl(files: Files) -> None:
    assert files.read_json(
        {"id": "x", "source": [" a ", "b"], "target": ["A", "B\n"], "more": {"ignored": None}},
        "",
        {"source": ["c"], "target": ["C\u2028D"]},
        {"id": 7, "source": ["d", "e", " "], "target": ["", "E", ""]},
        {"id": None, "source": [], "target": []},
    ) == [("x", "a|b", "A|B"), ("2", "c", "C\u2028D"), ("7", "e", "E")]
    assert files.skipped.counts == {"pair with an empty side": 2, "document without sentences": 1}
    assert files.skipped.examples["document without sentences"] == [f"{files.jsonl}, line 5"]


def test_jsonl_with_byte_order_mark_and_carriage_returns(files: Files) -> None:
    assert files.read_json('\ufeff{"source": ["a"], "target": ["A"]}\r') == [("1", "a", "A")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a plain sentence", r"c\.jsonl, line 2: not valid JSON"),
        ('{"source": ["a"], "target": ["A"]', r"c\.jsonl, line 2: not valid JSON \(.* at character 35\)"),
        ("[" * 100_000, r"c\.jsonl, line 2: not valid JSON"),
        ('{"id": ' + "1" * 5000 + "}", r"c\.jsonl, line 2: not valid JSON"),
        (["a"], "line 2: not a JSON object"),
        ({"target": ["A"]}, "line 2: `source` is missing"),
        ({"source": ["a"]}, "line 2: `target` is missing"),
        ({"source": "a", "target": ["A"]}, "line 2: `source` is a string. Use a list"),
        ({"source": ["a"], "target": None}, "line 2: `target` is null. Use a list"),
        ({"source": ["a", 5], "target": ["A", "B"]}, "line 2: sentence 2 of `source` is a number"),
        ({"source": ["a", "b"], "target": ["A"]}, "line 2: `source` has 2 sentences but `target` has 1"),
        ({"id": True, "source": ["a"], "target": ["A"]}, "line 2: `id` is true or false"),
        ({"id": ["x"], "source": ["a"], "target": ["A"]}, "line 2: `id` is a list"),
        ({"source": ["a\ud800"], "target": ["A"]}, "line 2: contains a lone surrogate"),
        ({"id": "\udc00", "source": ["a"], "target": ["A"]}, "line 2: contains a lone surrogate"),
    ],
)
def test_bad_jsonl(files: Files, line: object, message: str) -> None:
    with pytest.raises(DocmtError, match=message):
        files.read_json({"source": ["a"], "target": ["A"]}, line)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("", "target of document two: sentence 2 is empty"),
        (" \u2028", "sentence 2 is empty"),
        ("a\nb", "sentence 2 contains a line break"),
        ("a\rb", "sentence 2 contains a line break"),
        ("<d>", "sentence 2 is the document mark <d>"),
        ("\ud800", "sentence 2 contains a lone surrogate"),
    ],
)
def test_sentences_that_text_files_cannot_hold(tmp_path: Path, sentence: str, message: str) -> None:
    documents = [ParallelDocument("one", ("a",), ("A",)), ParallelDocument("two", ("b", "c"), ("B", sentence))]
    with pytest.raises(DocmtError, match=message):
        write_parallel(documents, tmp_path / "s", tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_other_things_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="document none has no sentences"):
        write_parallel([ParallelDocument("none", (), ())], tmp_path / "s", tmp_path / "t")
    with pytest.raises(DocmtError, match="two different paths"):
        write_parallel([], tmp_path / "s", tmp_path / "s")
    with pytest.raises(DocmtError, match="document x contains a lone surrogate"):
        write_jsonl([ParallelDocument("x", ("\ud800",), ("A",))], tmp_path / "c")
    with pytest.raises(ValueError, match="2 source sentences, 1 target sentences"):
        ParallelDocument("x", ("a", "b"), ("A",))
    assert list(tmp_path.iterdir()) == []


def test_files_as_written(tmp_path: Path) -> None:
    write_parallel(documents_of([[("a", "A"), ("b", "B")], [("é", "C")]]), tmp_path / "s", tmp_path / "t")
    assert (tmp_path / "s").read_bytes() == "a\nb\n\né\n".encode()
    assert (tmp_path / "t").read_bytes() == b"A\nB\n\nC\n"
