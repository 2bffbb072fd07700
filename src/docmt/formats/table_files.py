"""Tables in text: TSV with and without quotes, and CSV (RFC 4180) with commas, semicolons or tabs. Cells are units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS, find_content_suffix
from docmt.documents.words import has_letters
from docmt.formats.patched_text import TextFile
from docmt.formats.units import ReadConfig, Unit

TAB = "\t"
_SEPARATORS = (",", ";", TAB)
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_BREAKS = re.compile(r"[ ]*[\t\r\n]+[ ]*")


class _Cell(NamedTuple):
    """A cell with its place in the text."""

    start: int
    end: int
    value: str
    is_quoted: bool


class TableFile(TextFile):
    """A table with cells to translate."""

    def __init__(self, data: bytes, path: str, protect: Sequence[str] = ()) -> None:
        super().__init__(data, path, protect=protect)
        is_csv = _is_csv(path, self.text)
        self.has_quotes = is_csv or _has_quoted_cells(self)
        self.separator = max(_SEPARATORS, key=_read_head(self.text).count) if is_csv else TAB  # the most frequent one

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Quotes are kept, and added where a value needs them."""
        return self.render_strings(units, self._write_value)

    def _write_value(self, value: str, old: str) -> str:
        if not self.has_quotes:
            return _BREAKS.sub(" ", value)
        if old.startswith('"') or re.search(rf'["\r\n{self.separator}]', value):
            return '"' + value.replace('"', '""') + '"'
        return value


def read(data: bytes, path: str, config: ReadConfig) -> TableFile:
    """Return the units of the cells in the columns that `config.fields` names.

    A field is a name in the first row, or a number from 1. If all are numbers, the table has no row of names, and its
    first row is translated, too. Raises DocmtError for columns that the table does not have.
    """
    file = TableFile(data, path, config.patterns)
    rows = _read_rows(file, file.separator) if file.has_quotes else _split_rows(file.text)
    first = next(rows, [])
    names = [cell.value.strip() for cell in first]
    columns = [_find_column(name, names, path) for name in config.fields]
    if not columns:
        raise DocmtError(f"{path}: name the columns to translate with --fields. The columns are {_list(names)}.")
    if not any(name in names for name in config.fields):
        _add_row(file, first, 1, columns, [])
    for number, row in enumerate(rows, 2):
        _add_row(file, row, number, columns, names)
    return file


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:30]) if any(names) else "1 to " + str(max(1, len(names)))


def _find_column(name: str, names: Sequence[str], path: str) -> int:
    """Return the index of a column."""
    if name in names:
        return names.index(name)
    if re.fullmatch(r"[0-9]{1,6}", name) and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise DocmtError(f"{path} has no column {name}. Its columns are {_list(names)}: name one of these, or its number.")


def _add_row(file: TableFile, row: Sequence[_Cell], number: int, columns: Sequence[int], names: Sequence[str]) -> None:
    """Add the units of a row."""
    for column in sorted(set(columns)):
        if column < len(row) and has_letters(row[column].value):
            name, cell = names[column] if column < len(names) else str(column + 1), row[column]
            file.add_string(cell.value, f"row {number}, {name}", (cell.start, cell.end))


def _is_csv(path: str, text: str) -> bool:
    """Return whether a table is CSV: by its name or, without one, because its first row has no tab."""
    suffix = find_content_suffix(path)
    return suffix == ".csv" if suffix in FORMATS["tsv"].suffixes else TAB not in _read_head(text)


def _has_quoted_cells(file: TableFile) -> bool:
    """Return whether a TSV file has quoted cells, as spreadsheets write them.

    Then its rows have equal lengths, which they have not without the quotes, or quotes are doubled in cells. No cell
    has both a tab and a line break: that is rather a speech over several rows.
    """
    if re.search(r'(?:^|[\t\r\n])"', file.text) is None:
        return False
    try:
        rows = [row for row in _read_rows(file, TAB) if len(row) > 1 or row[0].value]
    except DocmtError:
        return False
    quoted = [cell.value for row in rows for cell in row if cell.is_quoted]
    if len(set(map(len, rows))) != 1 or any(TAB in value and re.search(r"[\r\n]", value) for value in quoted):
        return False
    plain = {len(row) for row in _split_rows(file.text) if len(row) > 1 or row[0].value}
    return len(plain) > 1 or any('"' in value for value in quoted)


def _read_head(text: str) -> str:
    """Return the first row without its quoted cells."""
    return re.split(r"[\r\n]", _QUOTED.sub("", text[:100_000]).lstrip("\r\n"), maxsplit=1)[0]


def _split_rows(text: str) -> Iterator[list[_Cell]]:
    """Yield the rows of a table without quotes."""
    for line in re.finditer(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text):
        cells, start = [], line.start()
        for value in line[0].rstrip("\r\n").split(TAB):
            cells.append(_Cell(start, start + len(value), value, False))
            start += len(value) + 1
        yield cells


def _read_rows(file: TableFile, separator: str) -> Iterator[list[_Cell]]:
    """Yield the rows of a CSV file."""
    text, plain = file.text, re.compile(rf"[^\r\n{separator}]*")
    row: list[_Cell] = []
    position = 0
    while position < len(text) or row:
        is_quoted = text.startswith('"', position)
        match = (_QUOTED if is_quoted else plain).match(text, position)
        if match is None:
            raise _broken(file, position, "a cell begins with a quote that nothing closes")
        value = match[0][1:-1].replace('""', '"') if is_quoted else match[0]
        row.append(_Cell(*match.span(), value, is_quoted))
        position = match.end()
        if text.startswith(separator, position):
            position += 1
            continue
        if position < len(text) and text[position] not in "\r\n":
            raise _broken(file, position, "text after the closing quote of a cell")
        position += 2 if text.startswith("\r\n", position) else 1
        yield row
        row = []


def _broken(file: TableFile, position: int, problem: str) -> DocmtError:
    return DocmtError(f"{file.find_line(position)}: {problem}. Double quotes within a cell are doubled.")
