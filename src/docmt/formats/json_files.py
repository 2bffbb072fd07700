"""JSON: the strings at named paths, such as those of catalogues of messages. All else keeps its bytes.

Two kinds need no names: messages of Flutter (x.arb), and the Markdown cells of notebooks (x.ipynb).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import find_content_suffix
from docmt.documents.words import has_letters
from docmt.formats import markdown_texts
from docmt.formats.patched_text import TextFile
from docmt.formats.placeholders import is_icu_message
from docmt.formats.string_files import SHOWN_PATHS, NamedString, is_identifier, select_strings
from docmt.formats.units import ReadConfig, Skipped, Unit

MAX_DEPTH = 1000
_STRING = r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"'
_TOKEN = re.compile(
    rf"[ \t\r\n]*(?:(?P<string>{_STRING})|(?P<mark>[{{}}\[\],:])"
    r"|(?P<other>-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity)|true|false|null|NaN))"
)
_PROSE = re.compile(r"\w \w")
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonFile(TextFile):
    """A JSON file with strings to translate."""

    def __init__(self, data: bytes, path: str, protect: Sequence[str] = ()) -> None:
        super().__init__(data, path, protect=protect)
        self.spans: list[tuple[int, int]] = []
        """start and end of each unit's string with its quotes"""
        self.locales: list[tuple[int, int]] = []
        """start and end of the string that names the language, if one does"""

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. A file of ASCII with escapes stays one. ARB names the language."""
        names = [(*span, json.dumps(language.replace("-", "_"))) for span in self.locales if language]
        return self.render_strings(units, self.spans, self.quote, names)

    def quote(self, text: str, old: str) -> str:
        """Return a string with the escapes that the file, and the string in its place, have."""
        is_ascii = self.text.isascii() and re.search(r"\\u[0-9A-Fa-f]{4}", self.text) is not None
        return json.dumps(text, ensure_ascii=is_ascii).replace("/", "\\/" if "\\/" in old else "/")


class NotebookFile(JsonFile):
    """A Jupyter notebook."""

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(data, path)
        self.cells: list[tuple[list[NamedString], markdown_texts.MarkdownFile]] = []
        """strings of each Markdown cell, and its text"""

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the notebook with other units. A cell that changes keeps the form of its strings: one, or a list."""
        replacements, position = [], 0
        for values, cell in self.cells:
            new = units[position : position + len(cell.units)]
            position += len(cell.units)
            if list(new) == cell.units:
                continue
            text, start, end = cell.write(new).decode(), values[0].start, values[-1].end
            lines = re.findall(r"[^\n]*\n|[^\n]+", text) if values[0].is_in_list[-1] else [text]
            between = self.text[values[0].end : values[1].start] if len(values) > 1 else ", "
            replacements.append((start, end, between.join(self.quote(line, self.text[start:end]) for line in lines)))
        return self.render(self.units, replacements)


def read_notebook(data: bytes, path: str, config: ReadConfig) -> NotebookFile:
    """Return the units of the Markdown cells of a notebook."""
    file = NotebookFile(data, path)
    kinds: dict[str, str] = {}
    sources: dict[str, list[NamedString]] = {}
    for value in _find_strings(file):
        if value.path[::2][:2] == ("cells", "cell_type"):
            kinds[value.path[1]] = _decode(file, value.start, value.end)
        elif value.path[::2][:2] == ("cells", "source"):
            sources.setdefault(value.path[1], []).append(value)
    for number, values in sources.items():
        text = "".join(_decode(file, value.start, value.end) for value in values)
        if kinds.get(number) == "markdown":
            cell = markdown_texts.read(text.encode(errors="surrogatepass"), f"{path}, cell {number}", ReadConfig())
            file.cells.append((values, cell))
            file.units += cell.units
            file.skipped += cell.skipped
        else:
            file.skip("code", text)
    return file


def read(data: bytes, path: str, config: ReadConfig) -> JsonFile:
    """Return the units of the strings that `config.fields` names.

    A field is a path with dots (menu.items.title), in which * is any key or index. One that names an object or a list
    stands for all strings in it but identifiers. ARB needs none: all its messages are read.
    Raises DocmtError for broken JSON, and if a field has no strings.
    """
    file = JsonFile(data, path, config.patterns)
    values = list(_find_strings(file))
    is_arb = find_content_suffix(path) == ".arb"
    if is_arb:
        file.locales = [(value.start, value.end) for value in values if value.path == ("@@locale",)]
        values = [value for value in values if not value.path[0].startswith("@")]
    names = config.fields or ("*",) * is_arb
    if not names:
        raise DocmtError(
            f"{path}: name the values to translate with --fields, such as {_list_paths(file.text, values)}. "
            f"* is any key, and a path to an object or a list stands for all strings in it."
        )
    for value, is_named in select_strings(values, names, path):
        _add_unit(file, value, is_named)
    return file


def _list_paths(text: str, values: Sequence[NamedString]) -> str:
    """Return some paths of strings that look like text."""
    strings = [(value.pattern, text[value.start + 1 : value.end - 1]) for value in values]
    prose = [path for path, string in strings if _PROSE.search(string)]
    paths = dict.fromkeys([*prose, *(path for path, string in strings if not is_identifier(string))])
    return ", ".join(list(paths)[:SHOWN_PATHS]) or "title (it has none)"


def _add_unit(file: JsonFile, value: NamedString, is_named: bool) -> None:
    """Add the unit of a string. is_named: whether its path was given, and not one above it."""
    name = ".".join(value.path)
    string = _decode(file, value.start, value.end)
    if _SURROGATE.search(string):
        raise DocmtError(f"{file.find_line(value.start)}: {name} has half a character (a lone \\uD800): correct it")
    if not has_letters(string):
        return
    if not is_named and not is_icu_message(string) and is_identifier(string):
        file.skipped.append(Skipped("identifiers", string))
    elif file.add_string(string, name):
        file.spans.append((value.start, value.end))


def _decode(file: JsonFile, start: int, end: int) -> str:
    """Return the value of a string."""
    try:
        return str(json.loads(file.text[start:end]))
    except ValueError as error:
        raise _broken(file, start, "a wrong escape") from error


def _broken(file: JsonFile, position: int, problem: str) -> DocmtError:
    return DocmtError(f"{file.find_line(position)}: broken JSON ({problem}): correct it")


@dataclass
class _Container:
    """An object or a list that is read."""

    is_object: bool
    key: str = ""
    index: int = 0


_VALUE = {"string": "comma", "other": "comma", "{": "first key", "[": "first value"}
_NEXT = {
    "value": _VALUE,
    "first value": {**_VALUE, "]": "comma"},
    "key": {"string": "colon"},
    "first key": {"string": "colon", "}": "comma"},
    "colon": {":": "value"},
    "comma or closing bracket": {",": "comma", "}": "comma", "]": "comma"},
}
"""What comes next after each token, by what is expected."""


def _find_strings(file: JsonFile) -> Iterator[NamedString]:
    """Yield the strings that are values, in their order. Raises DocmtError for what is not JSON."""
    stack: list[_Container] = []
    text, position, expected = file.text, 0, "value"
    while expected:
        match = _TOKEN.match(text, position)
        token = "" if match is None else match["mark"] or ("string" if match["string"] else "other")
        following = _NEXT[expected].get(token)
        if match is None or following is None or (token in ("}", "]") and stack[-1].is_object != (token == "}")):
            raise _broken(file, _skip_space(text, position), f"a {expected.removeprefix('first ')} is missing")
        start, position = match.start(match.lastgroup or 0), match.end()
        if token in ("{", "["):
            stack.append(_Container(token == "{"))
        elif token in ("}", "]"):
            stack.pop()
        elif following == "colon":
            stack[-1].key = _decode(file, start, position)
        elif token == "string":
            keys = tuple(each.key if each.is_object else str(each.index) for each in stack)
            yield NamedString(keys, start, position, tuple(not each.is_object for each in stack))
        elif token == ",":
            stack[-1].index += 1
            following = "key" if stack[-1].is_object else "value"
        if len(stack) > MAX_DEPTH:
            raise _broken(file, start, f"nested deeper than {MAX_DEPTH} levels")
        if following == "comma":
            following = "comma or closing bracket" if stack else ""
        expected = following
    if _skip_space(text, position) != len(text):
        raise _broken(file, position, "text after its end; if it is JSON Lines, name it .jsonl")


def _skip_space(text: str, position: int) -> int:
    return len(text) - len(text[position:].lstrip(" \t\r\n"))
