"""Plain text files: bytes read are bytes written, and errors say where and what to do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.core.plain_text import code_cell, escape_markdown, markdown_table
from docmt.documents import Document

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.full
@given(TEXTS, st.booleans())
def test_bytes_read_are_bytes_written(tmp_path_factory: pytest.TempPathFactory, text: str, join_lines: bool) -> None:
    directory = tmp_path_factory.getbasetemp()
    (directory / "in.txt").write_bytes(text.encode())
    Document.read(directory / "in.txt", join_lines=join_lines).write(directory / "out.txt")
    assert (directory / "out.txt").read_bytes() == text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n\n",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbfHi.\r\nHo.\r\n",
        b"Hi.\rHo.",
        b"no newline at the end",
        b"a\x00b\n\x0c",
    ],
)
def test_awkward_files_come_back(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "in.txt").write_bytes(data)
    Document.read(tmp_path / "in.txt").write(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == data


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"\xef\xbb\xbfHi there.\r\nHo.")
    assert Document.read(path) == Document(("Hi there.", "Ho."), ("\ufeff", "\r\n", ""), str(path))
    assert Document.read(str(path), join_lines=True).sentences == ("Hi there.", "Ho.")


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n"])
def test_file_without_text_has_no_sentences(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "in.txt").write_bytes(data)
    document = Document.read(tmp_path / "in.txt")
    assert (document.sentences, document.gaps) == ((), (data.decode(),))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            "Grüße\nCafé".encode("latin1"),
            r"in\.txt, line 1, byte 3: not UTF-8 \(0xFC\).*Latin-1.*iconv -f latin1 -t utf-8",
        ),
        (b"fine\nalso fine\nab\x93quoted\x94 text", r"line 3, byte 3: .*Windows-1252.*iconv -f windows-1252"),
        ("fine".encode("utf-16"), r"line 1, byte 1: .*UTF-16.*iconv -f utf-16"),
        ("fine".encode("utf-32"), r"line 1, byte 1: .*UTF-32.*iconv -f utf-32"),
        ("Он жил в Москве".encode("cp1251"), r"line 1, byte 1: .*find its encoding"),
        ("One.\nÄ".encode()[:-1], r"line 2, byte 1: .*truncated"),
        (b"\x7fELF\x00\x00\xff\xff", r"line 1, byte 7: .*binary"),
    ],
)
def test_bad_utf8_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "in.txt").write_bytes(data)
    with pytest.raises(DocmtError, match=message):
        Document.read(tmp_path / "in.txt")


def test_unreadable_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match=r"cannot read .*missing\.txt: there is no such file"):
        Document.read(tmp_path / "missing.txt")
    with pytest.raises(DocmtError, match="it is a directory"):
        Document.read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_forbidden_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    (tmp_path / "in.txt").chmod(0)
    with pytest.raises(DocmtError, match="permission denied"):
        Document.read(tmp_path / "in.txt")


def test_unwritable_paths_are_refused(tmp_path: Path) -> None:
    document = Document.from_text("One.")
    with pytest.raises(DocmtError, match="cannot write"):
        document.write(tmp_path / "missing" / "out.txt")
    with pytest.raises(DocmtError, match="cannot write"):
        document.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogate_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("old")
    with pytest.raises(DocmtError, match=r"character 2 is a lone surrogate \(U\+DC80\)"):
        Document.from_sentences(["a\udc80"]).write(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        Document.from_sentences(["é"]).write(pipe)
        assert os.read(reader, 100) == "é\n".encode()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Hé.\r\nHo.".encode()), encoding="ascii"))
    assert Document.read("-") == Document(("Hé.", "Ho."), ("", "\r\n", ""), "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff")))
    with pytest.raises(DocmtError, match="standard input, line 2, byte 1"):
        Document.read("-")


def run(code: str, stdout: int, unbuffered: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", f"from docmt.documents import Document\n{code}"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


def test_standard_output_is_exact() -> None:
    write = "Document.from_text('\\ufeffH\\u00e9.\\r\\n\\U0001f600\\r').write('-')"
    process = run(f"print('before', end='')\n{write}\nprint('after')", subprocess.PIPE)
    out, error = process.communicate()
    assert (out, error) == ("before\ufeffHé.\r\n😀\rafter\n".encode(), b"")


@pytest.mark.parametrize("words", [1, 100_000])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_ends_quietly(words: int, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = run(f"Document.from_sentences(['word'] * {words}).write('-')", writer, unbuffered)
    os.close(writer)
    _, error = process.communicate()
    assert (process.returncode, error) == (0, b"")


def test_unbuffered_output_that_takes_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.got = b""

        def writable(self) -> bool:
            return True

        def write(self, data: memoryview) -> int:  # type: ignore[override]
            self.got += bytes(data[:3])
            return len(data[:3])

    slow = Slow()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(slow, write_through=True))  # type: ignore[type-var]
    Document.from_sentences(["eight bytes"]).write("-")
    monkeypatch.undo()
    assert slow.got == b"eight bytes\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_standard_output_is_an_error() -> None:
    with Path("/dev/full").open("wb") as full:
        process = run("Document.from_sentences(['word']).write('-')", full.fileno())
    _, error = process.communicate()
    assert b"DocmtError: cannot write to standard output: No space left" in error
    assert b"Exception ignored" not in error


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b_c*", r"a\|b\_c\*"),
        ("`x` \\ ~~y~~", r"\`x\` \\ \~\~y\~\~"),
        ("<b>bold</b> <!-- x", r"\<b>bold\</b> \<!-- x"),
        ("p < 0.05, p <0.0001", "p < 0.05, p <0.0001"),
        ("[a](http://b) [1.0, 2.0]", r"[a\](http://b) [1.0, 2.0]"),
        ("&lt; &#60; R&D", r"\&lt; \&#60; R&D"),
        ("two\nlines\x1b\u202e", r"two\\nlines\\x1b\\u202e"),
        ("  indented ", "&nbsp;&nbsp;indented"),
        ("", ""),
    ],
)
def test_what_would_be_a_mark_is_text_in_markdown(text: str, written: str) -> None:
    assert escape_markdown(text) == written


def test_a_markdown_table() -> None:
    assert code_cell("nrefs:1|a") == r"`nrefs:1\|a`"
    assert markdown_table([["", "b", "c"], ["x", "1", "2"]]) == ["|  | b | c |", "| --- | --: | --: |", "| x | 1 | 2 |"]
    assert markdown_table([["", "b", "c"]], left_columns=3) == ["|  | b | c |", "| --- | --- | --- |"]
