"""Files of every kind: told apart in one place, and nothing of them is lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from docmt.core.errors import DocmtError
from docmt.core.plain_text import compress, read_text, write_text
from docmt.documents import Document, read_documents, read_input, read_parallel
from docmt.documents.input_formats import check_known, detect_format, guess_markup
from docmt.documents.segmentation import find_fenced_code, knows_language
from docmt.documents.words import has_letters

LIST = {"id": "a", "source": ["One.", " Two. "]}
FIRST, SECOND = ({"document": "b", "sentence": number, "source": f"Go {number}."} for number in (1, 2))
TEXT = {"id": "c", "text": "One here. Two there.\nThree."}

READER = "(docmt does not read|only docmt translate (and docmt check read|reads))[^.]*"


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read_sentences(path: Path, **options: object) -> list[tuple[str, tuple[str, ...]]]:
    return [(document.id, document.sentences) for document in read_input(path, **options).documents]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.JSONL", "x.txt", "x"])
def test_jsonl_in_all_its_forms(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, LIST, FIRST, SECOND, TEXT, {"source": "Four. Five."}, {"source": ["Six."]})
    result = read_input(path)
    assert result.format == "jsonl"
    assert read_sentences(path) == [
        ("a", ("One.", "Two.")),
        ("b", ("Go 1.", "Go 2.")),
        ("c", ("One here.", "Two there.", "Three.")),
        ("4", ("Four.", "Five.")),
        ("5", ("Six.",)),
    ]
    joined = "".join(document.text() for document in result.documents)
    assert joined == "One.\nTwo.\n\nGo 1.\nGo 2.\n\nOne here. Two there.\nThree.\n\nFour. Five.\n\nSix.\n"
    assert read_sentences(path, layout="text") != read_sentences(path)


@pytest.mark.parametrize(
    ("rows", "documents"),
    [
        ([FIRST, SECOND, FIRST], [("b", ("Go 1.", "Go 2.")), ("b", ("Go 1.",))]),
        ([FIRST, {**SECOND, "document": "x"}], [("b", ("Go 1.",)), ("x", ("Go 2.",))]),
        ([FIRST, LIST, SECOND], [("b", ("Go 1.",)), ("a", ("One.", "Two.")), ("b", ("Go 2.",))]),
        ([{"document": 7, "source": "A."}, {"document": "7", "source": "B."}], [("7", ("A.", "B."))]),
        ([{"document": "x", "source": ""}, {"document": "x", "source": "B."}], [("x", ("", "B."))]),
        ([{"document": "x", "source": "A.", "error": "no"}], [("x", ("A.",))]),
        ([{"id": "x", "source": []}], [("x", ())]),
        ([], []),
    ],
)
def test_document_starts_of_single_sentences(
    tmp_path: Path, rows: list[object], documents: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert read_sentences(write(tmp_path / "x.jsonl", *rows)) == documents


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "x"}, "line 2: `source` is missing. Add a list of sentences.$"),
        ({"document": "b", "source": None}, "line 2: `source` is null. Use a list"),
        ({"document": True, "source": "A."}, "line 2: `document` is true or false"),
        ({"document": "b", "source": "\ud800"}, "line 2: contains a lone surrogate"),
        ({"text": "\ud800"}, "line 2: contains a lone surrogate"),
        (["a"], "line 2: not a JSON object"),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(DocmtError, match=message):
        read_input(write(tmp_path / "x.jsonl", FIRST, row))


def test_both_sides_of_jsonl_in_one_or_two_files(tmp_path: Path) -> None:
    both = [{"document": "b", "source": "A.", "target": "X."}, {"document": "b", "source": "B.", "target": "Y."}]
    lists = {"id": "l", "source": ["C.", "D."], "target": ["Z.", ""]}
    path = write(tmp_path / "both.jsonl", *both, lists)
    expected = [("b", ("A.", "B."), ("X.", "Y.")), ("l", ("C.",), ("Z.",))]
    assert [(d.id, d.source, d.target) for d in read_parallel(path)] == expected
    assert [(d.id, d.source, d.target) for d in read_parallel(path, path)] == expected
    assert list(read_documents(path, "target")) == [("b", ("X.", "Y.")), ("l", ("Z.", ""))]
    text = tmp_path / "text.de"
    text.write_text("X.\nY.\n\nZ.\nQ.\n")
    assert [d.target for d in read_parallel(path, text)] == [("X.", "Y."), ("Z.", "Q.")]
    text.write_text("X.\nY.\n\nZ.\n")
    with pytest.raises(DocmtError, match=r"document 2 \('l'\) has 2 sentences in \S+both.jsonl but 1 in \S+text.de"):
        list(read_parallel(path, text))
    text.write_text("X.\nY.\n")
    with pytest.raises(DocmtError, match=r"text\.de has 1 documents but \S+both\.jsonl has more"):
        list(read_parallel(path, text))
    with pytest.raises(DocmtError, match=r"line 1: `source` is a string\. Use a list of sentences, or add the `d"):
        list(read_parallel(write(tmp_path / "x.jsonl", {"source": "A.", "target": "X."})))
    with pytest.raises(DocmtError, match=r"`source` is missing.*Running text \(`text`\) can only be translated"):
        list(read_parallel(write(tmp_path / "x.jsonl", TEXT)))


def test_compressed_files(tmp_path: Path) -> None:
    for name in ("x.txt", "x.jsonl"):
        path = tmp_path / name
        content = f"{json.dumps(LIST)}\n" if name == "x.jsonl" else "One.\r\n\n```\ncode\n```\nTwo.\n"
        path.write_bytes(content.encode())
        expected = read_input(path)
        for other in (f"{name}.gz", f"gz-{name}"):
            (tmp_path / other).write_bytes(gzip.compress(content.encode()))
            result = read_input(tmp_path / other)
            assert (result.format, result.code_lines) == (expected.format, expected.code_lines)
            assert [d.text() for d in result.documents] == [d.text() for d in expected.documents]
    sides = [tmp_path / name for name in ("c.en.gz", "c.de.gz")]
    for side in sides:
        side.write_bytes(gzip.compress("\ufeffA\n\nB\n".encode()))
    assert [d.source for d in read_parallel(*sides)] == [("A",), ("B",)]


@pytest.mark.parametrize(("suffix", "library"), [(".gz", "gzip"), (".zst", "Zstandard")])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:30], lambda data: b"A\n", lambda data: b""]
)
def test_damaged_compression_names_the_file(tmp_path: Path, damage, suffix, library) -> None:  # type: ignore[no-untyped-def]
    good = compress(b"".join(b"%d is a number.\n" % number for number in range(999)), suffix)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(damage(good))
    for read in (read_text, lambda path: list(read_parallel(path, path)), read_input):
        with pytest.raises(
            DocmtError, match=rf"x\{suffix} is damaged, truncated, or not compressed by {library}: copy"
        ):
            read(path)  # type: ignore[operator]
    path.write_bytes(good[:40] + b"\0\0\0\0" + good[44:])
    with pytest.raises(DocmtError, match=rf"x\{suffix} is damaged"):
        read_text(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_output(tmp_path: Path, suffix) -> None:  # type: ignore[no-untyped-def]
    one, two = (tmp_path / f"{name}{suffix}" for name in ("one", "two"))
    for path in (one, two):
        write_text(path, "Grüße\r\n")
    data = one.read_bytes()
    assert data == two.read_bytes()
    with gzip.open(one) if suffix == ".gz" else zstandard.open(one) as file:
        assert file.read().decode() == "Grüße\r\n"
    one.write_bytes(data + data)  # as `cat a.gz b.gz` writes them
    assert read_text(one) == "Grüße\r\n" * 2


REFUSED = {
    "x.srt": "Hi.",
    "x.vtt": "Hi.",
    "x.HTML": "Hi.",
    "x.htm.gz": "Hi.",
    "x.docx": "Hi.",
    "x.pdf": "Hi.",
    "x.docm": "Hi.",
    "x.yaml": "Hi.",
    "x.po": "Hi.",
    "x.tmx": "Hi.",
    "x.xliff": "Hi.",
    "x.json": "Hi.",
    "x.md": "Hi.",
    "x.tex": "Hi.",
    "x.RST": "Hi.",
    "x.ipynb": "{}",
    "x.properties": "a=Hi.",
    "subtitles": "1\r\n00:00:01,000 --> 00:00:02,000\r\nHi.\r\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nHi.\n",
    "page": "\n<!DOCTYPE html>\n<p>Hi.</p>",
    "page2": "<html lang='en'>\n",
    "x.sgm": "<refset setid='a'>\n",
    "testset": "<tstset setid='a'>\n",
    "xml": "\ufeff<?xml version='1.0'?>\n<x/>",
    "pdf": "%PDF-1.4\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_formats_that_are_refused(tmp_path: Path, name: str) -> None:
    data = REFUSED[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(
        DocmtError, match=rf"{name}(?: is [^.]+, which {READER}|: docmt does not read \.\w+ files)\. \S+"
    ) as refused:
        read_input(tmp_path / name)
    assert ("--layout text" in str(refused.value)) == ("pdf" not in name)  # whose text is compressed
    (document,) = read_input(tmp_path / name, layout="text").documents
    assert document.text() == REFUSED[name]
    if name in ("page", "page2", "xml", "vtt"):
        sides = [tmp_path / name] * 2
        with pytest.raises(DocmtError, match=rf"is [^.]+, which {READER}\. (?!.*--layout text)"):
            list(read_parallel(*sides))


def test_office_documents_without_their_name(tmp_path: Path) -> None:
    for start, message in (
        (b"PK\x03\x04\x14\0\xff", "zip archive or an office"),
        (b"%PDF-1.7\n%\xe2\xe3", "looks like a PDF"),
        (b"\x89PNG\r\n\x1a\n\x00", "looks like a picture"),
    ):
        (tmp_path / "x").write_bytes(start)
        with pytest.raises(DocmtError, match=message):
            read_input(tmp_path / "x")


def test_fenced_code_of_plain_text_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text('Before. After.\n```python\nprint("no")\n```\n\n~~~\nopen to the end\n')
    assert [each[1] for each in read_sentences(path)] == [("Before.", "After.", "open to the end")]
    assert read_input(path).code_lines == 3
    assert read_input(path, layout="text").code_lines == 0


@pytest.mark.parametrize(
    "text",
    [
        "Title\n~~~~~\n\nText here.\n\nOther\n~~~~~\n",  # headings
        "```\nnever closed\n",
        "A ``` in a line.\n```\n",
    ],
)
def test_unfenced_lines_are_no_code_in_plain_text(text: str) -> None:
    assert find_fenced_code(text) == []
    assert find_fenced_code("~~~ sh\nls\n~~~\n") == [(0, 14)]


def test_many_open_fences_take_linear_time() -> None:
    assert find_fenced_code("".join(f"```{number}\n" for number in range(50_000))) == []


@pytest.mark.parametrize("join_lines", [False, True])
def test_lines_without_letters_are_gaps(join_lines: bool) -> None:
    text = "One.\n\n42\n\n00:01:02,000 --> 00:02\n\n***\n\n1. 2.\n\nHe was 42. 1984. Yes.\n"
    document = Document.from_text(text, join_lines=join_lines)
    assert document.text() == text
    assert document.sentences == ("One.", "He was 42.", "1984.", "Yes.")
    assert all(map(has_letters, ("é", "я", "中", "ا", "한")))
    assert not any(map(has_letters, ("", "12", "½", "Ⅳ", "①", "—", "😀", "٣")))


def test_a_line_without_letters_inside_of_a_paragraph_is_a_part_of_it() -> None:
    text = "He was born in\n1984.\nThen he left.\n"
    assert Document.from_text(text, join_lines=True).sentences == ("He was born in\n1984.", "Then he left.")


WRAPPED = """\
It is a truth universally acknowledged, that a single man
in possession of a good fortune, must be in want of a wife.
However little known the feelings or views of such a man
may be on his first entering a neighbourhood, this truth is
so well fixed in the minds of the surrounding families, that
he is considered as the rightful property of some one.
"""


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        (WRAPPED, True),
        (f"# Title\n\n{WRAPPED}\n- item\n", True),
        (f"> {WRAPPED}", True),
        (WRAPPED.replace("\n", " "), False),
        ("One sentence here that goes on.\nAnother sentence that stands alone.\n" * 9, False),
        ("apple\npear and other things that are\nplum\nfig\ncherry\n" * 5, False),
        ("\n\n".join(WRAPPED.splitlines()), False),
        (f"```\n{WRAPPED}```\n", False),
        ("", False),
    ],
)
def test_wrapped_text_is_noticed(tmp_path: Path, text: str, wrapped: bool) -> None:
    (tmp_path / "x").write_text(text)
    assert read_input(tmp_path / "x").looks_wrapped == wrapped
    assert not read_input(tmp_path / "x", join_lines=True).looks_wrapped


def test_languages_with_rules() -> None:
    assert all(map(knows_language, ("en", "de-AT", "DE", "zh_Hant", "gsw", "cs")))
    assert not any(map(knows_language, ("xx", "", "sv", "klingon")))


def test_document_ids_beside_a_corpus(tmp_path: Path) -> None:
    def read(source: str, target: str, ids: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, ...]]]:
        for name, text in (("s", source), ("t", target), ("i", ids)):
            (tmp_path / name).write_text(text)
        result = read_parallel(tmp_path / "s", tmp_path / "t", docids=tmp_path / "i")
        return [(d.id, d.source, d.target, d.lines) for d in result]

    assert read("a\nb\nc\n", "A\nB\nC\n", "x\nx\ny\n") == [
        ("x", ("a", "b"), ("A", "B"), (1, 2)),
        ("y", ("c",), ("C",), (3,)),
    ]
    # A line that is empty in all files is no border; one with an id is a pair without sides.
    assert read("a\n\nb\n\nc\n", "A\n\nB\n\n\n", "x\n\nx\nx\ny\n") == [("x", ("a", "b"), ("A", "B"), (1, 3))]
    assert [id for id, *_ in read("a\nb\na\n", "A\nB\nA\n", "x\ny\nx")] == ["x", "y", "x"]
    for files, message in (
        (("a\nb\n", "A\nB\n", "x\n"), r"i ends after line 1 but \S+s has text in line 2"),
        (("a\n", "A\n", "x\nx\n"), r"s ends after line 1 but \S+i has text in line 2"),
        (("a\nb\n", "A\nB\n", "x\n\n"), r"i, line 2: the sentence has no id"),
        (("<d>\na\n", "<d>\nA\n", "x\nx\n"), r"s, line 1: document mark <d> in a corpus with document ids in \S+i"),
    ):
        with pytest.raises(DocmtError, match=message):
            read(*files)
    with pytest.raises(DocmtError, match=r"x\.jsonl is JSONL, which contains document ids\. Give - instead of \S+i"):
        list(read_parallel(write(tmp_path / "x.jsonl", LIST), docids=tmp_path / "i"))


def test_frames_of_pzstd_and_of_a_long_window(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    (tmp_path / "a.zst").write_bytes(b"".join(skipped + zstandard.compress(line) for line in (b"A\n", b"B\n")))
    assert read_text(tmp_path / "a.zst") == "A\nB\n"
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3])  # the size is unknown, the window has 2 GB
    (tmp_path / "b.zst").write_bytes(header + ((2 << 3) | 1).to_bytes(3, "little") + b"C\n")
    assert read_text(tmp_path / "b.zst") == "C\n"


def test_hashtags_are_no_comments_of_a_po_file():
    """Nor does it take for ever to see that."""
    assert detect_format("-", " ".join(f"#tag{i}" for i in range(300)) + " x\n") == "text"


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("<p>It is <b>good</b>.</p>", "html"),
        ("<a><b>One</b><b>Two</b></a>", "html"),
        ('msgid "a"\nmsgstr ""\n', "po"),
        ('{\n "a": "b"\n}', "json"),
        ("\\documentclass{article}\n\\begin{document}\nHi.\n", "LaTeX"),
        ("def f(x):\n    if x:\n        return (x)\n", "program code"),
        ("int main() {\n  run();\n}\n#include <x>\n", "program code"),
        ("id,text\n1,It is good.\n2,It is bad.\n", "tsv"),
        ('id;text\r\n1;"It is; or not."\r\n', "tsv"),
        ("It is good, I think.\nIt is bad, I know.\n", ""),
        ('<div class="a">\nThe House\n</div>\n', "html"),
        ("<p>The House.<br>\n<p>The vote.\n", "html"),
        ("The \\textbf{House} is \\emph{good}.\n", "LaTeX"),
        ("{100}{200}It is good.|No.\n{300}{400}It is bad.\n", "subtitles"),
        ("[00:12.00]It is good.\n[00:17.20]It is bad.\n", "subtitles"),
        ("0:00:01.000,0:00:02.000\nIt is good.\n\n0:00:03.000,0:00:04.000\nNo.\n", "subtitles"),
        ("# A report\n\nIt is [new](http://x.eu).\n", "markdown"),
        ("A report\n========\n\n.. note:: It is new.\n", "reStructuredText"),
        ("== A report ==\n'''It''' is [[a|new]].\n", "wiki markup"),
        ("#!/bin/sh\necho no\n", "program code"),
        ("package main\n\nfunc main() {\n}\n", "program code"),
        ("SELECT name\nFROM house;\n", "program code"),
        ("[a]\ntitle = It is good.\n", "settings"),
        ("title: It\nitems:\n  - name: No\n", "YAML"),
        ("One; two\nthree; four\n", ""),
        ("Title: It\nDate: today\nPlace: here\n", ""),
        ("See <http://x.eu> and <me@x.eu>, x < y, y > z.\n", ""),
        ("10:30 The House opens.\n11:45 The vote.\n", ""),
        ("- One\n- Two\n\n1. Three\n[1] Four\n", ""),
        ("For this is so;\nif so, it is good;\nwe return to it.\n", ""),
        ("We came for this:\nit is a < b.\n", ""),
        ("For\tAgainst\n1\t2\n", ""),
        ("", ""),
    ],
)
def test_what_a_text_looks_like(text: str, look: str) -> None:
    assert guess_markup(text) == look


SUFFIXES = (
    "ini toml rst adoc tex php svg dfxp ics eml lrc py yaml resx xcstrings ass vue mobi doc otp odg rs env jsonc"
    " shtml resw ps1 scss jsp mustache pod usf"
)


def test_files_of_unknown_formats_are_refused_with_advice() -> None:
    for suffix in SUFFIXES.split():
        with pytest.raises(DocmtError, match=f"a.{suffix}: docmt does not read .{suffix} files. Save it as .*"):
            check_known(f"a.{suffix}")
    for suffix in ["txt", "en", "cs", "pl", "ts", "ml", "properties", "strings", "arb", "ipynb", "mdx"]:
        check_known(f"a.{suffix}")
