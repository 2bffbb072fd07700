"""Strings of programs: Java properties (x.properties) and Apple strings (x.strings). Keys and comments stay.

Strings of any file have the paths of their keys, which `--fields` names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import find_content_suffix
from docmt.formats.patched_text import TextFile
from docmt.formats.units import ReadConfig, Unit

ANY = "*"
MARK = "\ue000"
"""Beginning of what stands for a string while a file is parsed; its number follows."""
SHOWN_PATHS = 5
"""Paths in a message."""
_IDENTIFIER = re.compile(
    r"""
    [\w+.-]+://\S* | (?:mailto|tel|data):\S+ | www\.\S+ | [\w.+-]+@[\w-]+\.[\w.]+  # addresses
    | (?:\.{0,2}/|~/|[A-Za-z]:\\)\S* | [\w.@-]+(?:/[\w.@-]+){2,}/? | [\w-]+/[\w-]+\.\w{1,5}  # paths
    | [\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{1,4}  # names of files
    | [\w-]+(?:\.[\w-]+){2,}  # keys
    | \#[0-9A-Fa-f]{3,8} | (?:rgb|hsl)a?\([^()]*\)  # colours
    | [-+]?\d[\d.,]*\s?(?:px|em|rem|pt|vh|vw|ms|s|%)?  # numbers
    | \d{4}-\d\d(?:-\d\d)?(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)? | \d\d?[./]\d\d?[./]\d{2,4}  # dates
    | \w*_\w* | [a-z]+(?:[A-Z][a-z0-9]*)+ | [A-Z][a-z]+(?:[A-Z][a-z]+)+ | [a-z0-9]+(?:-[a-z0-9]+){2,}  # names
    | (?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9-]{6,} | [a-z]{2}-[A-Z]{2}  # ids, languages
    """,
    re.VERBOSE | re.ASCII,
)


class NamedString(NamedTuple):
    """A string of a file with named values."""

    path: tuple[str, ...]
    start: int
    end: int
    """of its characters with the quotes"""
    is_in_list: tuple[bool, ...]
    """of each part of the path, whether it is an index"""

    @property
    def pattern(self) -> str:
        """The path with * for indices."""
        return ".".join(ANY if index else part for part, index in zip(self.path, self.is_in_list, strict=True))


def name_marks(tree: object, read_key: Callable[[int], str]) -> Iterator[tuple[int, tuple[str, ...], tuple[bool, ...]]]:
    """Yield the number of each string of a parsed file, its path, and whether each part of this is an index.

    tree: objects and lists, with `MARK` and their numbers for strings, and perhaps for keys. read_key: returns a key.
    """
    nodes: list[tuple[object, tuple[str, ...], tuple[bool, ...]]] = [(tree, (), ())]
    passed = set()
    while nodes:
        node, path, is_in_list = nodes.pop()
        if id(node) in passed:
            continue  # an alias of YAML
        passed.add(id(node))
        if isinstance(node, str) and node.startswith(MARK):
            yield int(node[1:]), path, is_in_list
        elif isinstance(node, dict):
            names = [read_key(int(key[1:])) if key.startswith(MARK) else key for key in map(str, node)]
            children = zip(names, node.values(), strict=True)
            nodes += [(child, (*path, name), (*is_in_list, False)) for name, child in children][::-1]
        elif isinstance(node, list):
            nodes += [(child, (*path, str(number)), (*is_in_list, True)) for number, child in enumerate(node)][::-1]


def select_strings(
    values: Sequence[NamedString], fields: Sequence[str], path: str
) -> Iterator[tuple[NamedString, bool]]:
    """Yield the strings at the paths of `fields`, each with whether its whole path is one of them.

    Raises DocmtError for a path without strings. path: name of the file.
    """
    patterns = [tuple(each.split(".")) for each in fields]
    used = set()
    for value in values:
        parts = tuple(".".join(value.path).split("."))  # keys may have dots
        matches = [each for each in patterns if _matches(each, parts)]
        if matches:
            used.update(matches)
            yield value, any(len(each) == len(parts) and each[-1] != ANY for each in matches)
    for name, pattern in zip(fields, patterns, strict=True):
        if pattern not in used:
            paths = list(dict.fromkeys(value.pattern for value in values))
            near = ", ".join(get_close_matches(name, paths[:1000], SHOWN_PATHS, 0.5) or paths[:SHOWN_PATHS])
            advice = f"Strings are at {near}: name one of these." if near else "It has no strings."
            raise DocmtError(f"{path}: no string at {name}. {advice}")


def _matches(field: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(field) <= len(path) and all(part in (ANY, other) for part, other in zip(field, path, strict=False))


def is_identifier(text: str) -> bool:
    """Return whether a string looks like an id, an address, a path, a number, a colour, a date or a name of a file."""
    return len(text) < 2000 and _IDENTIFIER.fullmatch(text.strip()) is not None


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
        for match in (_PROPERTY if self._is_java else _STRING).finditer(self.text):
            value = self._read_value(match["value"] or "")
            if is_identifier(value):
                self.skip("identifiers", value)
            else:
                self.add_string(value, match["key"] or "", match.span("value"))

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Properties that are not UTF-8 get escapes for letters outside of ASCII."""
        return self.render_strings(units, self._write_value)

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
    return StringsFile(data, path, config.patterns)


def _decode_escape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _CONTROLS.get(match[2], match[2] or "")
