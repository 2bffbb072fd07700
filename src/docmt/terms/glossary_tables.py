"""Glossaries as tables: TSV and CSV with or without a header, and tables with a column for each language."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.settings import quote, read_package_yaml
from docmt.formats.language_codes import find_language

ALTERNATIVES = "|"
"""What stands between several translations in a cell."""
COLUMNS = ("source", "target", "source_lang", "target_lang", "forbidden", "keep", "case", "note")
"""Names of the columns that docmt writes."""
_NAMES = read_package_yaml(__package__, "glossary_columns.yaml")
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
_YES = frozenset(["yes", "y", "true", "1", "x", "oui", "ja", "sí", "sim"])
_NO = frozenset(["", *["no", "n", "false", "0", "-", "non", "nein", "nee", "não"]])
_TITLE_ROWS = 5
"""Rows of a table in which its columns may be named."""
_FORBIDDEN = re.compile(
    r"deprecated|forbidden|obsol[eè]te|superseded|rejected|prohibited|not[ -]?recommended|do not use|interdit"
    r"|déconseillé|verboten|veraltet|nicht verwenden"
)
_SEPARATORS = "\t;,"
_SAMPLE = 100_000
"""Characters from which the separator is found."""
_LANGUAGE_SHARE = 0.9
"""Of the cells of a column without a name, if it holds languages."""
_NUMBERED = re.compile(r"[^\W\d_]{0,3}\d+")
"""Letters and digits of a cell of a column that counts rows, whose name may look like a language: No, Nr."""
_SEVERAL = re.compile(r"(?i)translations|targets|traductions|übersetzungen")
"""Names of columns with several translations in a cell, also with semicolons between them."""
_GUARD = re.compile(r"'[=+\-@]")


class EntryWord(NamedTuple):
    """A word or phrase in one language."""

    text: str
    language: str = ""
    """empty if the file does not say"""
    forbidden: bool = False
    keep: bool = False
    """whether it is the same in all languages"""


class Entry(NamedTuple):
    """A row of a table, or a concept of a term base."""

    line: int
    words: Sequence[EntryWord] = ()
    directed: bool = False
    """whether the first word is the source of the others; otherwise they mean the same in several languages"""
    keep: bool = False
    case: bool = False
    note: str = ""
    problem: str = ""
    """why it cannot be used"""


@dataclass
class EntryFile:
    """What a file holds."""

    path: str
    format: str
    entries: list[Entry] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    """(line, what looks wrong although it is used)"""

    @property
    def counted(self) -> str:
        """What `Entry.line` counts."""
        return "entry" if self.format == "JSON" else "line"

    def place(self, line: int) -> str:
        """Return the place of an entry, for messages."""
        return f"{self.path}, {self.counted} {line}"


@lru_cache(1024)
def is_forbidden_status(value: str) -> bool:
    """Return whether a status of a term means that it must not be used."""
    return _FORBIDDEN.search(value.casefold()) is not None


def read_flag(value: str) -> bool | None:
    """Return whether text means yes or no; None if it is neither."""
    text = value.strip().casefold() if value else ""
    return True if text in _YES else False if text in _NO else None


def split_alternatives(cell: str) -> list[str]:
    """Return the alternatives of a cell."""
    return [text for text in map(str.strip, cell.split(ALTERNATIVES)) if text] if cell else []


def read_table(text: str, path: str) -> EntryFile:
    """Return the entries of a table. Raises DocmtError for a text without columns, and for quotes that do not pair."""
    separator, rows = _split_rows(text, path)
    file = EntryFile(path, "TSV" if separator == "\t" else "CSV")
    if not rows:
        return file
    for line, _ in rows[: (above := _count_titles(rows))]:
        file.remarks.append((line, "stands above the names of the columns and is not used"))
    rows = rows[above:]
    roles = _read_header(rows[0][1])
    if roles is None:
        if any(_find_role(cell) or (len(cell) > 3 and find_language(cell)) for cell in rows[0][1][:2]):
            file.remarks.append((rows[0][0], "looks like names of columns, but is read as a term"))
        roles = _guess_roles([cells for _, cells in rows], wide=separator == "\t")
    else:
        line, head = rows.pop(0)
        unused = [cell for cell, role in zip(head, roles, strict=True) if not role and cell.strip()]
        file.remarks += [(line, f"the column {name!r} is not used") for name in unused]
        roles = [
            "ignored" if role.startswith(":") and _counts_rows(rows, column) else role
            for column, role in enumerate(roles)
        ]
        several = [column for column, cell in enumerate(head) if _SEVERAL.search(cell) and roles[column] == "target"]
        for column, (_, cells) in product(several, rows):
            cells[column : column + 1] = [cell.replace(";", ALTERNATIVES) for cell in cells[column : column + 1]]
    read = _read_row if "source" in roles else _read_concept
    notes = [column for column, role in enumerate(roles) if role == "note"]
    guarded = _GUARD.search(text)
    for line, cells in rows:
        if problem := _find_problem(cells, roles):
            file.entries.append(Entry(line, problem=problem))
            continue
        cells += [""] * (len(roles) - len(cells))
        note = " ".join(cells[column] for column in notes)
        file.entries.append(read(line, dict(zip(roles, cells, strict=False)), note))
        if any("; " in cell for cell, role in zip(cells, roles, strict=False) if role == "target" or role[:1] == ":"):
            file.remarks.append((line, f"has a semicolon in a term: write {ALTERNATIVES} between several translations"))
        if guarded and any(map(_GUARD.match, cells)):
            file.remarks.append((line, "begins with an apostrophe, which a spreadsheet may have added; it is kept"))
    return file


def _counts_rows(rows: Sequence[tuple[int, list[str]]], column: int) -> bool:
    """Return whether a column has numbers in place of terms."""
    cells = [re.sub(r"\W+", "", cells[column]) for _, cells in rows if column < len(cells) and cells[column].strip()]
    return bool(cells) and all(map(_NUMBERED.fullmatch, cells))


def _count_titles(rows: Sequence[tuple[int, list[str]]]) -> int:
    """Return how many of the first rows stand above one that names the columns."""
    named = (
        n for n, (_, cells) in enumerate(rows[:_TITLE_ROWS]) if {"source", "target"} <= {*(_read_header(cells) or ())}
    )
    return next(named, 0)


def _find_problem(cells: Sequence[str], roles: Sequence[str]) -> str:
    """Return what is wrong with the cells of a row, or an empty string."""
    if len(cells) == 1:
        return "it has one column"
    if any(cells[len(roles) :]):
        return f"{len(cells)} columns instead of {len(roles)}: quote a cell that has the separator in it"
    lines = " ".join([cell for cell, role in zip(cells, roles, strict=False) if role not in ("note", "ignored", "")])
    return "a cell has a line break: close its quotes" if "\n" in lines or "\r" in lines else ""


def _split_rows(text: str, path: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the separator, and the rows that are not empty with their lines."""
    if not text.strip():
        return "\t", []
    named = re.match(r"sep=([;,\t])(?=\r?\n)", text)  # Excel's own
    if named:
        text = text[named.end() :]
    separator = named[1] if named else _find_separator(text)
    if not separator:
        raise DocmtError(f"{path} has no columns: separate a term and its translation by a tab, a semicolon or a comma")
    try:
        rows = list(_parse(text, separator, csv.QUOTE_MINIMAL, path))
    except DocmtError:
        if separator != "\t":
            raise
        rows = list(_parse(text, separator, csv.QUOTE_NONE, path))  # most programs write TSV without quotes
    return separator, [(line, cells) for line, cells in rows if any(map(str.strip, cells))]


def _find_separator(text: str) -> str:
    """Return the separator that splits most lines, and evenly; empty if none does."""
    lines = [line for line in io.StringIO(text[:_SAMPLE], newline="") if line.strip()]
    scores = []
    for separator in _SEPARATORS:
        widths = [len(cells) for cells in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
        scores.append((sum(width > 1 for width in widths), -len(set(widths)), separator))
    best = max(scores, key=lambda score: score[:2])
    return best[2] if best[0] else ""


def _parse(text: str, separator: str, quoting: Literal[0, 3], path: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True, quoting=quoting
    )
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        reason = "quotes do not pair: write a quote within a quoted cell twice"
        reason = "a cell is too long: shorten it" if "limit" in str(error) else reason
        raise DocmtError(f"{path}, line {line}: {reason}") from error


def _find_role(cell: str) -> str:
    """Return the role of a column by its name; empty if that is not known."""
    name = re.sub(r"[\W_]+", "", cell.casefold())
    return _ROLES.get(name, "") if name or not cell.strip() else "ignored"  # such as #


def _read_header(cells: Sequence[str]) -> list[str] | None:
    """Return the roles of columns: names of columns, languages after a colon, empty ones for those unknown.

    None if the cells are no header.
    """
    roles = list(map(_find_role, cells))
    if "source" not in roles or "target" not in roles:
        roles = [
            role or (f":{code}" if (code := find_language(cell)) else "")
            for cell, role in zip(cells, roles, strict=True)
        ]
        languages = {role for role in roles if role.startswith(":")}
        known = all(role for cell, role in zip(cells, roles, strict=True) if cell.strip())
        names = [cell for cell in cells if len(cell) > 3 and cell.strip().isalpha() and find_language(cell)]
        has_languages = len(languages) > 1 and (known or len(names) > 1)
        if not has_languages and not (known and "source" in roles and len(roles) > 1):
            return None
    return [role if role not in roles[:number] or role == "note" else "" for number, role in enumerate(roles)]


def _guess_roles(rows: Sequence[Sequence[str]], wide: bool) -> list[str]:
    """Return the roles of columns without a header. wide: whether any row may have more columns than most have."""
    widths = Counter(map(len, rows))
    width = max(widths) if wide else widths.most_common(1)[0][0]
    roles = ["source", "target"]
    for column in range(2, min(max(width, 2), 5)):
        cells = [row[column] for row in rows if len(row) > column and row[column].strip()]
        if not cells or sum(bool(find_language(cell)) for cell in cells) < _LANGUAGE_SHARE * len(cells):
            numbers = all(re.fullmatch(r"[\d.,]+", cell.strip()) for cell in cells)
            roles.append("ignored" if numbers else "note")
        else:
            roles.append("source_lang")
    languages = [column for column, role in enumerate(roles) if role == "source_lang"]
    named = ("source_lang", "target_lang", "ignored") if len(languages) > 1 else ("target_lang",)
    for column, role in zip(languages, named, strict=False):
        roles[column] = role
    return roles


def _read_row(line: int, values: dict[str, str], note: str) -> Entry:
    """Return the entry of a row with a source and a target."""
    keep, case, problem = _read_flags(values)
    source = values["source"]
    source_language, language = (
        find_language(code) or code.strip() for code in (values.get("source_lang", ""), values.get("target_lang", ""))
    )
    all_forbidden = read_flag(values.get("forbidden", ""))
    bad = all_forbidden or is_forbidden_status(values.get("status", ""))
    words = [EntryWord(text, language, bad) for text in split_alternatives(values.get("target", ""))]
    if all_forbidden is None:
        words += [EntryWord(text, language, True) for text in split_alternatives(values["forbidden"])]
    if keep and not words:
        words = [EntryWord(source, language)]
    if ALTERNATIVES in source:
        problem = problem or f"several sources, with {ALTERNATIVES} between them: give each a row of its own"
    return Entry(line, [EntryWord(source, source_language), *words], True, keep, case, note, problem)


def _read_concept(line: int, values: dict[str, str], note: str) -> Entry:
    """Return the entry of a row with a column for each language."""
    languages = [name for name in values if name.startswith(":")]
    keep, case, problem = _read_flags(values)
    bad = read_flag(forbidden := values.get("forbidden", ""))
    if bad is None:
        problem = f"the column 'forbidden' has {quote(forbidden)}: write yes or no, or name columns source and target"
    bad = bad or is_forbidden_status(values.get("status", ""))
    words = [EntryWord(text, name[1:], bad) for name in languages for text in split_alternatives(values[name])]
    return Entry(line, words, False, keep, case, note, problem)


def _read_flags(values: dict[str, str]) -> tuple[bool, bool, str]:
    """Return the flags keep and case, and what is wrong with them."""
    keep, case = (read_flag(values.get(name, "")) for name in ("keep", "case"))
    wrong = "keep" if keep is None else "case" if case is None else ""
    problem = f"the column {wrong!r} has {quote(values[wrong])}: write yes or no" if wrong else ""
    return bool(keep), bool(case), problem
