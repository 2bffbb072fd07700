"""Decoding and encoding of text files, byte for byte: byte-order marks and line breaks are kept."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from docmt.core.errors import DocmtError
from docmt.core.plain_text import decode_utf8

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True)
class TextEncoding:
    """The encoding of a file, and its byte-order mark."""

    name: str
    mark: bytes = b""

    def encode(self, text: str, path: str) -> bytes:
        """Return the bytes of a text. A text that does not fit in Windows-1252 becomes UTF-8 with a byte-order mark."""
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            if self.name == "cp1252":
                return TextEncoding("utf-8", codecs.BOM_UTF8).encode(text, path)
            raise DocmtError(
                f"{path}: a translation has half a character (a lone surrogate), which no file can hold: change it"
            ) from error


UTF_8 = TextEncoding("utf-8")


def find_mark(data: bytes) -> tuple[bytes, str]:
    """Return the byte-order mark at the beginning and the encoding that it stands for, or two empty values."""
    return next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))


def decode_text(data: bytes, path: str, fallback: str = "") -> tuple[str, TextEncoding]:
    """Return the text without its byte-order mark, and its encoding: that of the mark, else UTF-8, else `fallback`.

    Raises DocmtError for bytes that are no text in these.
    """
    mark, name = find_mark(data)
    name = name or "utf-8"
    try:
        text = data[len(mark) :].decode(name)
    except UnicodeDecodeError as error:
        if name != "utf-8":
            raise DocmtError(f"{path}: broken UTF-16 at byte {error.start + len(mark)}: save it as UTF-8") from error
        if mark or not fallback:
            decode_utf8(data, path)  # raises with the line and a guess
        text, name = _decode_fallback(data, path, fallback), fallback
    if "\0" in text:
        raise DocmtError(f"{path}: it has null bytes, so it is no text, or UTF-16 without a mark: save it as UTF-8")
    return text, TextEncoding(name, mark)


def _decode_fallback(data: bytes, path: str, fallback: str) -> str:
    try:
        return data.decode(fallback)
    except UnicodeDecodeError:
        decode_utf8(data, path)
        raise
