"""Strings of programs: Java properties (x.properties) and Apple strings (x.strings). Keys and comments stay."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from docmt.documents.input_formats import find_content_suffix
from docmt.formats.named_strings import is_identifier
from docmt.formats.patched_text import Span, TextFile
from docmt.formats.units import ReadConfig, Unit

_PROPERTY = re.compile(
    r"^[ \t\f]*(?P<key>(?:\\[\s\S]|[^\s:=\\#!])(?:\\[\s\S]|[^\s:=\\])*)(?:[ \t\f]*[:=][ \t\f]*|[ \t\f]+)"
    r"(?P<value>(?:\\(?:\r\n|[\s\S])|[^\\\r\n])+)",
    re.MULTILINE,
)
_STRING = re.compile(
    r'/\*.*?\*/|//[^\r\n]*|(?P<key>"(?:\\.|[^"\\])*"|[\w.-]+)\s*=\s*"(?P<value>(?:\\.|[^"\\])*)"', re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|(?:\r\n|[\r\n])[ \t\f]*|([\s\S]))")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ARGUMENT = re.compile(r"\{\d")
"""Of a pattern of Java's MessageFormat, where an apostrophe is written twice."""


class StringsFile(TextFile):
    """A file of strings."""

    def __init__(self, data: bytes, path: str, protect: Sequence[str] = ()) -> None:
        super().__init__(data, path, "latin-1", protect)
        self._is_java = find_content_suffix(path) == ".properties"
        self._spans: list[Span] = []
        """of the value of each unit"""
        for match in (_PROPERTY if self._is_java else _STRING).finditer(self.text):
            value = self._read_value(match["value"] or "")
            if is_identifier(value):
                self.skip("identifiers", value)
            elif self.add_string(value, match["key"] or ""):
                self._spans.append(match.span("value"))

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Properties that are not UTF-8 get escapes for letters outside of ASCII."""
        return self.render_strings(units, self._spans, self._write_value)

    def _read_value(self, raw: str) -> str:
        value = _ESCAPE.sub(_decode_escape, raw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value.replace("''", "'") if self._is_java and _ARGUMENT.search(raw) else value

    def _write_value(self, value: str, old: str) -> str:
        if not self._is_java:
            return json.dumps(value, ensure_ascii=False)[1:-1]
        value = value.replace("'", "''") if _ARGUMENT.search(old) else value
        is_ascii = self.is_guessed or self.text.isascii()
        return "\\" * value.startswith(" ") + json.dumps(value, ensure_ascii=is_ascii)[1:-1].replace('\\"', '"')


def read(data: bytes, path: str, config: ReadConfig) -> StringsFile:
    """Return the units of the values of a file of strings."""
    return StringsFile(data, path, config.protect)


def _decode_escape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _CONTROLS.get(match[2], match[2]) if match[2] else ""
