"""JSON: the strings at named paths, such as those of catalogues of messages. All else keeps its bytes.

Two kinds need no names: messages of Flutter (x.arb), and the Markdown cells of notebooks (x.ipynb).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, count

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import find_content_suffix
from docmt.documents.words import Span, has_letters
from docmt.formats import markdown_texts
from docmt.formats.patched_text import TextFile
from docmt.formats.placeholders import is_icu_message
from docmt.formats.string_files import MARK, SHOWN_PATHS, NamedString, is_identifier, name_marks, select_strings
from docmt.formats.units import ReadConfig, Skipped, Unit

MAX_DEPTH = 900
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_PROSE = re.compile(r"\w \w")
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonFile(TextFile):
    """A JSON file with strings to translate."""

    locales: Sequence[Span] = ()
    """span of the string that names the language, if one does"""

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. A file of ASCII with escapes stays one. ARB names the language."""
        names = [(*span, json.dumps(language.replace("-", "_"))) for span in self.locales if language]
        return self.render_strings(units, self.quote, names)

    def quote(self, text: str, old: str) -> str:
        """Return a string with the escapes that the file, and the string in its place, have."""
        is_ascii = self.text.isascii() and re.search(r"\\u[0-9A-Fa-f]{4}", self.text) is not None
        return json.dumps(text, ensure_ascii=is_ascii).replace("/", "\\/" if "\\/" in old else "/")


class NotebookFile(JsonFile):
    """A Jupyter notebook."""

    cells: list[tuple[list[NamedString], markdown_texts.MarkdownFile]]
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
    file.cells = []
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
    file = JsonFile(data, path, protect=config.patterns)
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
    else:
        file.add_string(string, name, (value.start, value.end))


def _decode(file: JsonFile, start: int, end: int) -> str:
    """Return the value of a string."""
    try:
        return str(json.loads(file.text[start:end]))
    except ValueError as error:
        raise DocmtError(f"{file.find_line(start)}: broken JSON (a wrong escape): correct it") from error


def _find_strings(file: JsonFile) -> Iterator[NamedString]:
    """Yield the strings that are values, in their order. Raises DocmtError for what is not JSON."""
    spans = [match.span() for match in _STRING.finditer(file.text)]
    numbers = count()
    marked = _STRING.sub(lambda match: f'"{MARK}{next(numbers)}"', file.text)
    brackets = re.findall(r"[\[\]{}]", marked)
    try:
        if max(accumulate(1 if each in "[{" else -1 for each in brackets), default=0) > MAX_DEPTH:
            raise RecursionError
        tree = json.loads(marked, parse_int=str)
    except RecursionError as error:  # the parser raises it as well, below many calls
        raise DocmtError(f"{file.path}: broken JSON (nested deeper than {MAX_DEPTH} levels): correct it") from error
    except json.JSONDecodeError as error:
        is_more = error.msg == "Extra data"
        problem = "text after its end; if it is JSON Lines, name it .jsonl" if is_more else error.msg
        raise DocmtError(f"{file.path}, line {error.lineno}: broken JSON ({problem}): correct it") from error
    for number, path, is_in_list in name_marks(tree, lambda number: _decode(file, *spans[number])):
        yield NamedString(path, *spans[number], is_in_list)
