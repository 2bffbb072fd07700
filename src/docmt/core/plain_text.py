"""Plain text in and out: UTF-8, byte for byte, with errors that say where the bytes are bad and what to do.

What is compressed by gzip is read as what it holds, whatever its name; what is written to a name in .gz is compressed.

Tables, plain and in Markdown: names that strangers wrote become no marks, links, tags or cells of a table.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from docmt.core.errors import DocmtError, printable
from docmt.core.files import atomic_path, cannot_read, cannot_write, open_for_reading, utf8_of, write_all
from docmt.core.logging import silence

STANDARD = "-"
"""The path that stands for standard input when reading and standard output when writing."""


BYTE_ORDER_MARK = "\ufeff"
GZIP_SUFFIX = ".gz"
_GZIP_START = b"\x1f\x8b"
# What is a mark, and what begins a tag (`<b`), a link (`](`) or a character by its name (`&lt;`).
_MARKS = re.compile(r"[\\`*_|~]|<(?=[a-zA-Z/!?])|\](?=\()|&(?=#?\w+;)")


def decoded_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Streams (number, line) of a UTF-8 file, split at line feeds only, without a byte-order mark at its start.

    Raises DocmtError, naming the line, as `read_text` does.
    """
    with _opened(path) as (file, name):
        for number, raw in enumerate(file, 1):
            line = decode_utf8(raw, name, number)
            yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


def read_text(path: Path | str) -> str:
    """Reads UTF-8 text exactly as it stands (byte-order mark, CRLF and all); "-" is standard input.

    What is compressed by gzip is decompressed.
    Raises DocmtError for a file that cannot be read and for bytes that are not UTF-8.
    """
    with _opened(path) as (file, name):
        return decode_utf8(file.read(), name)


@contextmanager
def _opened(path: Path | str) -> Iterator[tuple[io.BufferedReader, Path | str]]:
    """Open a file, or standard input, for its bytes, decompressed, with its name. What fails then is a DocmtError."""
    name = "standard input" if str(path) == STANDARD else path
    try:
        with _standard_input() if str(path) == STANDARD else open_for_reading(path) as file:
            start = file.peek(len(_GZIP_START))
            if start.startswith(_GZIP_START):
                yield io.BufferedReader(gzip.GzipFile(fileobj=file)), name
            elif str(path).endswith(GZIP_SUFFIX):
                raise gzip.BadGzipFile
            else:
                yield file, name
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DocmtError(
            f"{name} is damaged or cut off, or was not compressed by gzip: copy or compress it again"
        ) from error
    except OSError as error:
        raise cannot_read(name, error) from error


def _standard_input() -> io.BufferedReader:
    if sys.stdin is None:
        raise DocmtError("cannot read standard input: it is closed; name a file")
    return io.BufferedReader(io.BytesIO(sys.stdin.buffer.read()))


def write_text(path: Path | str, text: str) -> None:
    """Writes text as UTF-8 with no newline translation: atomically to a file, or to standard output for "-".

    A file whose name ends in .gz is compressed. A reader that closes the pipe early (`| head`) ends the writing
    quietly. Raises DocmtError for lone surrogates and for operating system errors.
    """
    data = utf8_of(text, path)
    if str(path) == STANDARD:
        if sys.stdout is None:
            raise DocmtError("cannot write to standard output: it is closed; name a file")
        _write_standard_output(data)
        return
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        # A device or a named pipe is written to, never replaced by a file of the same name.
        try:
            path.write_bytes(data)
        except OSError as error:
            raise cannot_write(path, error) from error
        return
    with atomic_path(path) as temporary:
        # Without the time: equal texts are equal files.
        temporary.write_bytes(gzip.compress(data, mtime=0) if path.suffix == GZIP_SUFFIX else data)


def decode_utf8(data: bytes, path: Path | str, first_line: int = 1) -> str:
    """Decodes UTF-8; the first byte of `data` stands at the start of line `first_line` of `path`.

    Raises DocmtError naming the line, the byte within it, and the encoding the data looks like.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        byte = error.start - data.rfind(b"\n", 0, error.start)
        raise DocmtError(
            f"{path}, line {line}, byte {byte}: not UTF-8 (0x{data[error.start]:02X}); {_advice(data, error)}"
        ) from error


def _advice(data: bytes, error: UnicodeDecodeError) -> str:
    """What bad UTF-8 most likely is, and the command that mends it."""
    if data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return _looks_like("UTF-32", "utf-32")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _looks_like("UTF-16", "utf-16")
    if data.startswith(b"PK\x03\x04"):
        return "it looks like a zip archive or an office document; extract its text, and give that"
    if data.startswith(b"%PDF-"):
        return "it looks like a PDF document; extract its text (pdftotext does), and give that"
    if error.reason == "unexpected end of data":
        return "the last character is cut off; fetch or copy the file again"
    if b"\x00" in data:
        return "it looks like a binary file; give a text file"
    high = [byte for byte in data if byte >= 0x80]
    letters = sum(1 for byte in data if 0x41 <= byte <= 0x7A)
    # Western European text has few accented letters among many plain ones; other scripts have mostly high bytes.
    if len(high) > letters:
        return "find its encoding (`file -i` helps) and convert it with iconv -f ENCODING -t utf-8"
    if any(byte < 0xA0 for byte in high):
        return _looks_like("Windows-1252", "windows-1252")
    return _looks_like("Latin-1", "latin1")


def _looks_like(name: str, iconv: str) -> str:
    return f"it looks like {name}; convert it with iconv -f {iconv} -t utf-8"


def _write_standard_output(data: bytes) -> None:
    try:
        sys.stdout.flush()
        write_all(sys.stdout.buffer, data)  # unbuffered output (PYTHONUNBUFFERED) may take less than it is given
        sys.stdout.buffer.flush()
    except OSError as error:
        silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            raise DocmtError(f"cannot write to standard output: {reason}; send it to another place") from error


def escaped(text: str) -> str:
    """A text as a line or a cell of a table shows it, character by character, with the indent that would be dropped."""
    shown = printable(text)
    inner = shown.lstrip(" ")
    return "&nbsp;" * (len(shown) - len(inner)) + _MARKS.sub(r"\\\g<0>", inner.rstrip(" "))


def code_cell(text: str) -> str:
    """A text without backticks as code in a cell of a table, which a bar would end even there."""
    return f"`{printable(text)}`".replace("|", "\\|")


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a table, whose first row is its head; cells are Markdown: what is none must be `escaped` before.

    left: how many columns begin at the left; the others, numbers, end at the right.
    """
    head, *others = rows
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *others)]


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table in plain text: the first column at the left, all others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])
