"""Compressed files: gzip (x.gz) and Zstandard (x.zst). They are recognised by their beginning when read."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP_SUFFIX = ".gz"
ZSTD_SUFFIX = ".zst"
SUFFIXES = (GZIP_SUFFIX, ZSTD_SUFFIX)
_MAGIC = {GZIP_SUFFIX: re.compile(rb"\x1f\x8b"), ZSTD_SUFFIX: re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")}
"""How files begin. pzstd writes a frame that is skipped before each frame of data."""
_MAX_WINDOW = 1 << 31  # of `zstd --long=31`
_BLOCK_BYTES = 1 << 17


class DamagedError(Exception):
    """A compressed file ends too early, is damaged, or is not compressed as its name says."""


def find_suffix(path: Path | str) -> str:
    """Return the suffix of compression in a name (".gz", ".zst"), or an empty string."""
    return next((suffix for suffix in SUFFIXES if str(path).endswith(suffix)), "")


def plain_name(path: Path | str) -> str:
    """Return a path without the suffix of compression."""
    return str(path).removesuffix(find_suffix(path))


@contextmanager
def open_decompressed(file: BufferedReader, path: Path | str) -> Iterator[BufferedReader]:
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
            yield BufferedReader(gzip.GzipFile(fileobj=file))
        elif suffix == ZSTD_SUFFIX:
            yield BufferedReader(_ZstdFile(file), _BLOCK_BYTES)
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

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._output = file, memoryview(b"")
        self._frame: Any = None  # the decompressor of the open frame
        self._input = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer. Return the number of bytes, 0 at the end."""
        import zstandard

        try:
            while not self._output and self._read_block():
                pass
        except zstandard.ZstdError as error:
            raise EOFError from error
        count = min(len(buffer), len(self._output))
        buffer[:count], self._output = self._output[:count], self._output[count:]
        return count

    def _read_block(self) -> bool:
        """Decompress a block. Return False at the end of the file."""
        import zstandard

        data, self._input = self._input or self._file.read(_BLOCK_BYTES), b""
        if not data:
            if self._frame is not None:
                raise EOFError
            return False
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
        self._output = memoryview(self._frame.decompress(data))
        if self._frame.eof:
            self._input, self._frame = self._frame.unused_data, None
        return True
