"""Reading and writing of UTF-8 text, byte for byte, and tables in plain text and Markdown.

Files compressed by gzip (x.gz) or Zstandard (x.zst) are recognised by their beginning and decompressed, whatever their
names. Files with names in .gz or .zst are written compressed.
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
from typing import Any, BinaryIO, cast

from docmt.core.errors import DocmtError, printable
from docmt.core.files import atomic_path, encode_utf8, open_for_reading, read_error, write_all, writing
from docmt.core.logging import discard_output

STANDARD = "-"
"""Path of standard input when reading, and of standard output when writing."""

BYTE_ORDER_MARK = "\ufeff"
# Markdown markup, and starts of tags (`<b`), links (`](`) and character references (`&lt;`).
_MARKDOWN = re.compile(r"[\\`*_|~]|<(?=[a-zA-Z/!?])|\](?=\()|&(?=#?\w+;)")
GZIP_SUFFIX = ".gz"
ZSTD_SUFFIX = ".zst"
SUFFIXES = (GZIP_SUFFIX, ZSTD_SUFFIX)
_MAGIC = {GZIP_SUFFIX: re.compile(rb"\x1f\x8b"), ZSTD_SUFFIX: re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")}
"""First bytes of files. pzstd writes a frame that is skipped before each frame of data."""
_MAX_WINDOW = 1 << 31  # of `zstd --long=31`
_BLOCK_BYTES = 1 << 17


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of a UTF-8 file, split at line feeds only, without a byte-order mark.

    Raises DocmtError as `read_text` does, naming the line.
    """
    name = "standard input" if str(path) == STANDARD else path
    for number, raw in read_raw_lines(path):
        line = decode_utf8(raw, name, number)
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


def read_raw_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of a file, decompressed and not decoded. Raises DocmtError if it cannot be read."""
    with open_bytes(path) as (file, _):
        yield from enumerate(file, 1)


def read_text(path: Path | str) -> str:
    """Return UTF-8 text unchanged, with byte-order mark and CRLF. "-" is standard input.

    Raises DocmtError for a file that cannot be read and for bytes that are not UTF-8.
    """
    with open_bytes(path) as (file, name):
        return decode_utf8(file.read(), name)


def read_bytes(path: Path | str, most: int = -1) -> bytes:
    """Return the bytes of a file, decompressed. "-" is standard input.

    most: bytes that it may have, if there is a limit. Raises DocmtError if it cannot be read, and for a larger one.
    """
    with open_bytes(path) as (file, name):
        data = file.read() if most < 0 else file.read(most + 1)
    if 0 <= most < len(data):
        raise DocmtError(f"{name} is larger than {most / 2**20:.0f} MiB: split it")
    return data


@contextmanager
def open_bytes(path: Path | str) -> Iterator[tuple[io.BufferedReader, Path | str]]:
    """Open a file or standard input, decompressed, and yield it with its name. Errors become DocmtErrors."""
    name = "standard input" if str(path) == STANDARD else path
    try:
        with (
            _standard_input() if str(path) == STANDARD else open_for_reading(path) as file,
            open_decompressed(file, path) as contents,
        ):
            yield contents, name
    except DamagedError as error:
        raise DocmtError(f"{name} is {error}: copy or compress it again") from error
    except OSError as error:
        raise read_error(name, error) from error


def _standard_input() -> io.BufferedReader:
    if sys.stdin is None:
        raise DocmtError("cannot read standard input: it is closed; name a file")
    return io.BufferedReader(io.BytesIO(sys.stdin.buffer.read()))


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text without newline translation, atomically to a file, or to standard output for "-".

    A file whose name ends in .gz or .zst is compressed. A closed pipe (`| head`) is no error.
    Raises DocmtError for lone surrogates and for operating system errors.
    """
    write_bytes(path, encode_utf8(text, path))


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write bytes as `write_text` writes text."""
    if str(path) == STANDARD:
        if sys.stdout is None:
            raise DocmtError("cannot write to standard output: it is closed; name a file")
        _write_standard_output(data)
        return
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        # Write to a device or a named pipe. Never replace it by a file.
        with writing(path):
            path.write_bytes(data)
        return
    with atomic_path(path) as temporary:
        # Without a time stamp, equal texts give equal files.
        temporary.write_bytes(compress(data, find_suffix(path)))


def decode_utf8(data: bytes, path: Path | str, first_line: int = 1) -> str:
    """Decode UTF-8. The first byte of `data` begins line `first_line` of `path`.

    Raises DocmtError with the line, the byte in it, and the likely encoding.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        byte = error.start - data.rfind(b"\n", 0, error.start)
        raise DocmtError(
            f"{path}, line {line}, byte {byte}: not UTF-8 (0x{data[error.start]:02X}); {_suggest_fix(data, error)}"
        ) from error


def _suggest_fix(data: bytes, error: UnicodeDecodeError) -> str:
    """Return the likely encoding of data that is not UTF-8, and how to convert it."""
    if data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return _suggest_iconv("UTF-32", "utf-32")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _suggest_iconv("UTF-16", "utf-16")
    if data.startswith(b"PK\x03\x04"):
        return "it looks like a zip archive or an office document; extract its text first"
    if data.startswith((b"\x89PNG", b"\xff\xd8\xff")):
        return "it looks like a picture; give a text file"
    if data.startswith(b"%PDF-"):
        return "it looks like a PDF document; extract its text first, such as with pdftotext"
    if error.reason == "unexpected end of data":
        return "the last character is truncated; copy the file again"
    if b"\x00" in data:
        return "it looks like a binary file; give a text file"
    high = [byte for byte in data if byte >= 0x80]
    letters = sum(1 for byte in data if 0x41 <= byte <= 0x7A)
    # Western European text has few accented letters among many plain ones; other scripts have mostly high bytes.
    if len(high) > letters:
        return "find its encoding (`file -i` helps) and convert it with iconv -f ENCODING -t utf-8"
    if any(byte < 0xA0 for byte in high):
        return _suggest_iconv("Windows-1252", "windows-1252")
    return _suggest_iconv("Latin-1", "latin1")


def _suggest_iconv(name: str, iconv: str) -> str:
    return f"it looks like {name}; save it as UTF-8, or convert it with iconv -f {iconv} -t utf-8"


def _write_standard_output(data: bytes) -> None:
    try:
        sys.stdout.flush()
        write_all(sys.stdout.buffer, data)  # unbuffered output (PYTHONUNBUFFERED) may accept a part only
        sys.stdout.buffer.flush()
    except OSError as error:
        discard_output(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            raise DocmtError(f"cannot write to standard output: {reason}; write to a file instead") from error


class DamagedError(Exception):
    """A compressed file ends too early, is damaged, or is not compressed as its name says."""


def find_suffix(path: Path | str) -> str:
    """Return the suffix of compression in a name (".gz", ".zst"), or an empty string."""
    return next((suffix for suffix in SUFFIXES if str(path).endswith(suffix)), "")


def plain_name(path: Path | str) -> str:
    """Return a path without the suffix of compression."""
    return str(path).removesuffix(find_suffix(path))


@contextmanager
def open_decompressed(file: io.BufferedReader, path: Path | str) -> Iterator[io.BufferedReader]:
    """Yield the decompressed contents of an open file; a file that is not compressed is yielded as it is.

    path: its name. Raises DamagedError, also while the contents are read.
    """
    start = file.peek(4)
    suffix = next((suffix for suffix, magic in _MAGIC.items() if magic.match(start)), "")
    named = find_suffix(path) or suffix
    problem = f"damaged, truncated, or not compressed by {'gzip' if named == GZIP_SUFFIX else 'Zstandard'}"
    if named != suffix:
        raise DamagedError(problem)
    try:
        if suffix == GZIP_SUFFIX:
            yield io.BufferedReader(gzip.GzipFile(fileobj=file))
        elif suffix == ZSTD_SUFFIX:
            yield io.BufferedReader(_ZstdFile(file), _BLOCK_BYTES)
        else:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedError(problem) from error


def compress(data: bytes, suffix: str) -> bytes:
    """Return data compressed as a suffix of a name says; unchanged for other suffixes. Equal data give equal bytes."""
    if suffix == GZIP_SUFFIX:
        return gzip.compress(data, mtime=0)
    if suffix == ZSTD_SUFFIX:
        import zstandard

        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return data


@contextmanager
def open_compressing(file: BinaryIO, suffix: str) -> Iterator[BinaryIO]:
    """Yield a file whose data are written to `file` compressed, as `compress` does with the whole."""
    if suffix == GZIP_SUFFIX:
        # Without a name and a time stamp, equal texts give equal files.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as target:
            yield cast(BinaryIO, target)
    elif suffix == ZSTD_SUFFIX:
        import zstandard

        with zstandard.ZstdCompressor(write_checksum=True).stream_writer(file, closefd=False) as target:
            yield target
    else:
        yield file


class _ZstdFile(io.RawIOBase):
    """Reader of Zstandard frames, which (unlike that of the library) raises EOFError for a truncated one."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._blocks = _decompress_frames(file)
        self._output = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer. Return the number of bytes, 0 at the end."""
        while not self._output and (block := next(self._blocks, None)) is not None:
            self._output = memoryview(block)
        count = min(len(buffer), len(self._output))
        buffer[:count], self._output = self._output[:count], self._output[count:]
        return count


def _decompress_frames(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield the decompressed data of frames, some of them empty. Raises EOFError for a truncated or damaged frame."""
    import zstandard

    decompressor, data = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW), b""
    frame: Any = None
    try:
        while data := data or file.read(_BLOCK_BYTES):
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(data)
            data = b""
            if frame.eof:
                data, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise EOFError from error
    if frame is not None:
        raise EOFError


def escape_markdown(text: str) -> str:
    """Return text as literal Markdown for a line or a table cell, with its indent."""
    text = printable(text)
    inner = text.lstrip(" ")
    return "&nbsp;" * (len(text) - len(inner)) + _MARKDOWN.sub(r"\\\g<0>", inner.rstrip(" "))


def code_cell(text: str) -> str:
    """Return text without backticks as code in a table cell. Bars are escaped, because they end a cell even there."""
    return f"`{printable(text)}`".replace("|", "\\|")


def markdown_table(rows: Sequence[Sequence[str]], left_columns: int = 1) -> list[str]:
    """Return the lines of a Markdown table. The first row is its head.

    Cells are Markdown; pass other text through `escape_markdown`. left: number of left-aligned columns; the others are
    right-aligned.
    """
    head, *body = rows
    rule = ["---"] * left_columns + ["--:"] * (len(head) - left_columns)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]


def align_columns(rows: Sequence[Sequence[str]], left_columns: int = 1) -> Iterator[str]:
    """Yield the lines of a plain-text table. left_columns: number of left-aligned columns; others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = "<" * left_columns + ">" * len(widths)
    for row in rows:
        yield "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=False))
