"""Glossaries that clients store, by key: a name, and dictionaries of a pair of languages each, in a table in SQLite."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.settings import quote
from docmt.formats.language_codes import primary_language
from docmt.serve.data_directory import make_private, prepare_database
from docmt.terms.glossary import MAX_TERM_BYTES, clean_text

Pair = tuple[str, str]
"""Languages of a dictionary, source and target, without regions."""
Entries = dict[str, str]
MAX_GLOSSARIES = 1000
"""Of a key."""
MAX_BYTES, MAX_ENTRIES = 10 * 2**20, 100_000
"""Of a glossary, and of all that one request names."""
MAX_OWNER_BYTES = 100 * 2**20
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS glossaries (
        number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS dictionaries (
        glossary TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, size INTEGER NOT NULL,
        bytes INTEGER NOT NULL, entries TEXT NOT NULL, PRIMARY KEY (glossary, source, target)
    )
"""


class NoSuchGlossary(DocmtError):  # noqa: N818 - as HTTP calls it
    """There is no glossary of this id for this owner."""


class NoSuchDictionary(NoSuchGlossary):
    """A glossary has no dictionary of these languages."""


class GlossaryRefused(DocmtError):  # noqa: N818 - an answer
    """Entries or names that cannot be used, or a limit that is reached."""


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary without its entries."""

    id: str
    name: str
    created: float
    """seconds since 1970"""
    sizes: Mapping[Pair, int]
    """number of entries of each dictionary"""

    def check_pair(self, pair: Pair) -> None:
        """Raise NoSuchDictionary without a dictionary of these languages."""
        if pair not in self.sizes:
            has = ", ".join(map(" to ".join, self.sizes)) or "none"
            raise NoSuchDictionary(f"glossary {self.id} has no dictionary for {' to '.join(pair)}: it has {has}")


def make_pair(source: str, target: str) -> Pair:
    """Return the languages of a dictionary, which serves all their regions. Raises GlossaryRefused."""
    pair = primary_language(source), primary_language(target)
    if not all(code.isalpha() for code in pair) or pair[0] == pair[1]:
        raise GlossaryRefused("source_lang and target_lang must be codes of two languages, such as EN and FR")
    return pair


def parse_entries(text: str, is_csv: bool, pair: Pair) -> Entries:
    """Return entries by their sources. Rows of CSV may also have the languages of the dictionary.

    Raises GlossaryRefused for the first one that cannot be used, and if there is none.
    """
    entries: Entries = {}
    for line, cells in _split_rows(text.removeprefix("\ufeff"), is_csv):
        if problem := _find_problem(cells, is_csv, pair, entries):
            raise GlossaryRefused(f"entries, line {line}: {problem}")
        entries[cells[0].strip()] = cells[1].strip()
    if not entries:
        raise GlossaryRefused("entries is empty: send a source, a tab and its target in each line")
    return entries


def _split_rows(text: str, is_csv: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, with their numbers. Raises GlossaryRefused for broken quotes."""
    if not is_csv:
        yield from ((n, line.split("\t")) for n, line in enumerate(re.split(r"\r\n|\r|\n", text), 1) if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise GlossaryRefused(f"entries, line {reader.line_num}: {error}. Check the quotes.") from error


def _find_problem(cells: Sequence[str], is_csv: bool, pair: Pair, entries: Entries) -> str:
    """Return why a row is no entry, or an empty string."""
    codes = tuple(map(primary_language, cells[2:]))
    if len(cells) not in (2, 4) or codes not in ((), pair) or (codes and not is_csv):
        return "it must have a source and a target" + f", and may have the languages {' and '.join(pair)}" * is_csv
    for cell in (cells[0].strip(), cells[1].strip()):
        cleaned, problem = clean_text(cell)
        if problem or re.search(r"[\t\r\n]", cell):
            return problem or f"{quote(cell)} has a tab or a line break"
        if not cleaned or len(cell.encode()) > MAX_TERM_BYTES:
            return f"a text must have 1 to {MAX_TERM_BYTES:,} bytes, not {len(cell.encode()):,}"
    return f"{quote(cells[0].strip())} is there twice: remove one of them" * (cells[0].strip() in entries)


def join_entries(entries: Entries) -> str:
    """Return entries as lines with tabs, without a line end at the end."""
    return "\n".join(map("\t".join, entries.items()))


def split_entries(text: str) -> Entries:
    """Return the entries of `join_entries`."""
    return dict(line.split("\t") for line in text.split("\n") if line)


class GlossaryStore:
    """The glossaries of a data directory. Several processes and threads may use it at once."""

    def __init__(self, data: Path) -> None:
        """Raises DocmtError if the table cannot be opened."""
        self._path = data / "glossaries.sqlite"
        make_private(data, self._path)
        with self._connect():
            pass

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Return a connection whose changes are written together at the end. Raises DocmtError."""
        try:
            with closing(sqlite3.connect(self._path)) as connection, connection:
                prepare_database(connection, self._path, _SCHEMA)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        except sqlite3.Error as error:
            raise DocmtError(f"{self._path} cannot be used ({error}): free space, or move it away") from error

    def create(self, owner: str, name: str, dictionaries: Mapping[Pair, Entries]) -> StoredGlossary:
        """Store a glossary. Raises GlossaryRefused."""
        with self._connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM glossaries WHERE owner = ?", (owner,)).fetchone()
            if count >= MAX_GLOSSARIES:
                raise GlossaryRefused(f"there are {count:,} glossaries already. Delete one of them.")
            id = str(uuid.uuid4())
            values = (id, owner, _check_name(name), round(time.time(), 3))
            connection.execute("INSERT INTO glossaries (id, owner, name, created) VALUES (?, ?, ?, ?)", values)
            _write(connection, id, owner, dictionaries)
            return _find(connection, id, owner)

    def update(self, owner: str, id: str, name: str | None, merged: Mapping[Pair, Entries]) -> StoredGlossary:
        """Rename a glossary, and add entries, which replace those of the same source. Raises DocmtError."""
        with self._connect() as connection:
            known = _find(connection, id, owner).sizes
            if name is not None:
                connection.execute("UPDATE glossaries SET name = ? WHERE id = ?", (_check_name(name), id))
            old = {pair: split_entries(_read(connection, id, pair)) for pair in merged if pair in known}
            _write(connection, id, owner, {pair: old.get(pair, {}) | merged[pair] for pair in merged})
            return _find(connection, id, owner)

    def replace(self, owner: str, id: str, pair: Pair, entries: Entries) -> StoredGlossary:
        """Put a dictionary in the place of the one of its languages, if there is one. Raises DocmtError."""
        with self._connect() as connection:
            _find(connection, id, owner)
            _write(connection, id, owner, {pair: entries})
            return _find(connection, id, owner)

    def delete(self, owner: str, id: str, pair: Pair | None = None) -> None:
        """Delete a glossary, or one of its dictionaries. Raises NoSuchGlossary."""
        with self._connect() as connection:
            glossary = _find(connection, id, owner)
            if pair is None:
                connection.execute("DELETE FROM glossaries WHERE id = ?", (id,))
                connection.execute("DELETE FROM dictionaries WHERE glossary = ?", (id,))
            else:
                glossary.check_pair(pair)
                connection.execute("DELETE FROM dictionaries WHERE (glossary, source, target) = (?, ?, ?)", (id, *pair))

    def find(self, owner: str, id: str) -> StoredGlossary:
        """Return a glossary. Raises NoSuchGlossary, also for another owner's."""
        with self._connect() as connection:
            return _find(connection, id, owner)

    def list_owned(self, owner: str) -> list[StoredGlossary]:
        """Return the glossaries of an owner, oldest first."""
        with self._connect() as connection:
            rows = connection.execute("SELECT id FROM glossaries WHERE owner = ? ORDER BY number", (owner,)).fetchall()
            return [_find(connection, id, owner) for (id,) in rows]

    def read_entries(self, owner: str, id: str, pair: Pair) -> str:
        """Return the entries of a dictionary, as `join_entries`. Raises NoSuchGlossary."""
        with self._connect() as connection:
            _find(connection, id, owner).check_pair(pair)
            return _read(connection, id, pair)

    def merge(self, owner: str, ids: Sequence[str], pair: Pair) -> str:
        """Return the entries of several glossaries; of one source, those of the first one. Raises DocmtError."""
        texts = [self.read_entries(owner, id, pair) for id in ids]
        if len(texts) == 1:
            return texts[0]
        entries: Entries = {}
        for text in reversed(texts):
            entries |= split_entries(text)
        _check_size(len(entries), sum(len(text.encode()) for text in texts))
        return join_entries(entries)


def _check_name(name: str) -> str:
    """Return the name of a glossary. Raises GlossaryRefused."""
    if not (name.strip() and name.isprintable() and len(name.encode()) <= MAX_TERM_BYTES):
        raise GlossaryRefused(f"name must be one line of 1 to {MAX_TERM_BYTES:,} bytes: send another one")
    return name


def _check_size(entries: int, size: int) -> None:
    """Raise GlossaryRefused for a glossary that is too large."""
    if entries > MAX_ENTRIES or size > MAX_BYTES:
        raise GlossaryRefused(
            f"the glossary has {entries:,} entries and {size:,} bytes, more than {MAX_ENTRIES:,} or {MAX_BYTES:,}. "
            "Divide it."
        )


def _find(connection: sqlite3.Connection, id: str, owner: str) -> StoredGlossary:
    query = "SELECT name, created FROM glossaries WHERE id = ? AND owner = ?"
    row = connection.execute(query, (id, owner)).fetchone()
    if row is None:
        raise NoSuchGlossary("there is no such glossary. List them, and name one of these.")
    query = "SELECT source, target, size FROM dictionaries WHERE glossary = ? ORDER BY rowid"
    sizes = {(source, target): size for source, target, size in connection.execute(query, (id,))}
    name, created = row
    return StoredGlossary(id, name, created, sizes)


def _read(connection: sqlite3.Connection, id: str, pair: Pair) -> str:
    query = "SELECT entries FROM dictionaries WHERE (glossary, source, target) = (?, ?, ?)"
    (entries,) = connection.execute(query, (id, *pair)).fetchone()
    return str(entries)


def _write(connection: sqlite3.Connection, id: str, owner: str, dictionaries: Mapping[Pair, Entries]) -> None:
    """Write dictionaries of a glossary. Raises GlossaryRefused where a limit is reached; nothing is written then."""
    for pair, entries in dictionaries.items():
        text = join_entries(entries)
        values = (id, *pair, len(entries), len(text.encode()), text)
        connection.execute(
            "INSERT INTO dictionaries VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " size = excluded.size, bytes = excluded.bytes, entries = excluded.entries",
            values,
        )
    query = "SELECT coalesce(sum(size), 0), coalesce(sum(bytes), 0) FROM dictionaries WHERE glossary"
    _check_size(*connection.execute(f"{query} = ?", (id,)).fetchone())
    _, size = connection.execute(f"{query} IN (SELECT id FROM glossaries WHERE owner = ?)", (owner,)).fetchone()
    if size > MAX_OWNER_BYTES:
        raise GlossaryRefused(f"all glossaries have more than {MAX_OWNER_BYTES:,} bytes. Delete one of them.")
