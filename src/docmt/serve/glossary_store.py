"""Glossaries that clients store, by key: a name, and dictionaries of a pair of languages each, in tables of SQLite."""

from __future__ import annotations

import csv
import io
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
"""Targets by sources."""
MAX_GLOSSARIES, MAX_OWNER_BYTES = 1000, 100 * 2**20
"""Of a key."""
MAX_ENTRIES, MAX_BYTES = 100_000, 10 * 2**20
"""Of a glossary, and of all that one request names."""
_BUSY_SECONDS = 60
"""How long a change waits for those of other processes."""
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS glossaries (
        number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS dictionaries (
        id TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, size INTEGER NOT NULL, bytes INTEGER NOT NULL,
        entries TEXT NOT NULL, PRIMARY KEY (id, source, target)
    )
"""


class GlossaryError(DocmtError):
    """A glossary that is not there, or entries that cannot be used. status: of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary without its entries."""

    id: str
    name: str
    created: float
    """seconds since 1970"""
    sizes: Mapping[Pair, int]
    """number of entries of each dictionary"""


def make_pair(source: str, target: str) -> Pair:
    """Return the languages of a dictionary, which serves all their regions. Raises GlossaryError."""
    pair = primary_language(source), primary_language(target)
    if not all(map(str.isalpha, pair)) or pair[0] == pair[1]:
        raise GlossaryError("source_lang and target_lang must be codes of two languages, such as EN and FR")
    return pair


def parse_entries(text: str, is_csv: bool, pair: Pair) -> Entries:
    """Return entries by their sources. Rows of CSV may also have the languages of the dictionary.

    Raises GlossaryError for the first one that cannot be used, and if there is none.
    """
    layout = {"delimiter": ","} if is_csv else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True, **layout)
    entries: Entries = {}
    try:
        for cells in filter(None, reader):
            if problem := _find_problem(cells, is_csv, pair, entries):
                raise GlossaryError(f"entries, line {reader.line_num}: {problem}")
            entries[cells[0].strip()] = cells[1].strip()
    except csv.Error as error:
        raise GlossaryError(f"entries, line {reader.line_num}: {error}. Check the quotes.") from error
    if not entries:
        raise GlossaryError("entries is empty: send a source, a tab and its target in each line")
    return entries


def _find_problem(cells: Sequence[str], is_csv: bool, pair: Pair, entries: Entries) -> str:
    """Return why a row is no entry, or an empty string."""
    codes = tuple(map(primary_language, cells[2:]))
    if len(cells) < 2 or codes not in ((), pair)[: 1 + is_csv]:
        return "it must have a source and a target" + f", and may have the languages {' and '.join(pair)}" * is_csv
    for cell in map(str.strip, cells[:2]):
        cleaned, problem = clean_text(cell)
        if problem or not {*cell}.isdisjoint("\t\r\n"):
            return problem or f"{quote(cell)} has a tab or a line break"
        if not cleaned or len(cell.encode()) > MAX_TERM_BYTES:
            return f"a text must have 1 to {MAX_TERM_BYTES:,} bytes"
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
        """Raises DocmtError if the tables cannot be opened."""
        self._path = data / "glossaries.sqlite"
        make_private(data, self._path)
        with self._connect():
            pass

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Return a connection whose changes are written together at the end. Raises GlossaryError."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection, connection:
                prepare_database(connection, self._path, _SCHEMA)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        except sqlite3.Error as error:
            message = f"{self._path} cannot be used ({error}): try again, free space, or move it away"
            raise GlossaryError(message, 503) from error

    def create(self, owner: str, name: str, dictionaries: Mapping[Pair, Entries]) -> StoredGlossary:
        """Store a glossary. Raises GlossaryError."""
        with self._connect() as connection:
            (count,) = connection.execute("SELECT count(*) FROM glossaries WHERE owner = ?", (owner,)).fetchone()
            if count >= MAX_GLOSSARIES:
                raise GlossaryError(f"there are {count:,} glossaries already. Delete one of them.")
            id, now = str(uuid.uuid4()), round(time.time(), 3)
            query = "INSERT INTO glossaries (id, owner, name, created) VALUES (?, ?, ?, ?)"
            connection.execute(query, (id, owner, _check_name(name), now))
            return _write(connection, owner, id, dictionaries)

    def change(
        self, owner: str, id: str, dictionaries: Mapping[Pair, Entries], name: str | None = None, merge: bool = True
    ) -> StoredGlossary:
        """Rename a glossary, and add entries to its dictionaries, or put others in the place of these.

        merge: keep entries of other sources. Raises GlossaryError.
        """
        with self._connect() as connection:
            stored = _find(connection, owner, id)
            if name is not None:
                connection.execute("UPDATE glossaries SET name = ? WHERE id = ?", (_check_name(name), id))
            for pair in dictionaries.keys() & stored.sizes if merge else ():
                old = split_entries(_read(connection, owner, id, pair))
                dictionaries = {**dictionaries, pair: old | dictionaries[pair]}
            return _write(connection, owner, id, dictionaries)

    def delete(self, owner: str, id: str = "", pair: Pair | None = None) -> None:
        """Delete a glossary, or one of its dictionaries; without an id all of an owner. Raises GlossaryError."""
        with self._connect() as connection:
            if pair is not None:
                _read(connection, owner, id, pair)
                connection.execute("DELETE FROM dictionaries WHERE (id, source, target) = (?, ?, ?)", (id, *pair))
                return
            if id:
                _find(connection, owner, id)
            connection.execute("DELETE FROM glossaries WHERE owner = ? AND ? IN (id, '')", (owner, id))
            connection.execute("DELETE FROM dictionaries WHERE id NOT IN (SELECT id FROM glossaries)")

    def find(self, owner: str, id: str) -> StoredGlossary:
        """Return a glossary. Raises GlossaryError, also for another owner's."""
        with self._connect() as connection:
            return _find(connection, owner, id)

    def list_owned(self, owner: str) -> list[StoredGlossary]:
        """Return the glossaries of an owner, oldest first."""
        with self._connect() as connection:
            rows = connection.execute("SELECT id FROM glossaries WHERE owner = ? ORDER BY number", (owner,)).fetchall()
            return [_find(connection, owner, id) for (id,) in rows]

    def read(self, owner: str, id: str, pair: Pair) -> str:
        """Return the entries of a dictionary, as `join_entries`. Raises GlossaryError."""
        with self._connect() as connection:
            return _read(connection, owner, id, pair)

    def merge(self, owner: str, ids: Sequence[str], pair: Pair) -> str:
        """Return the entries of glossaries, as `join_entries`. The first one wins. Raises GlossaryError."""
        entries: Entries = {}
        for id in reversed(ids):
            entries |= split_entries(self.read(owner, id, pair))
        text = join_entries(entries)
        _check_size(len(entries), len(text.encode()))
        return text


def _check_name(name: str) -> str:
    """Return the name of a glossary. Raises GlossaryError."""
    if not (name.strip() and name.isprintable() and len(name.encode()) <= MAX_TERM_BYTES):
        raise GlossaryError(f"name must be one line of 1 to {MAX_TERM_BYTES:,} bytes: send another one")
    return name


def _check_size(entries: int, size: int) -> None:
    """Raise GlossaryError for too many entries or bytes."""
    if entries > MAX_ENTRIES or size > MAX_BYTES:
        limits = f"more than {MAX_ENTRIES:,} or {MAX_BYTES:,}"
        raise GlossaryError(f"the glossary has {entries:,} entries and {size:,} bytes, {limits}. Divide it.", 413)


def _find(connection: sqlite3.Connection, owner: str, id: str) -> StoredGlossary:
    query = "SELECT name, created FROM glossaries WHERE id = ? AND owner = ?"
    if (row := connection.execute(query, (id, owner)).fetchone()) is None:
        raise GlossaryError("there is no such glossary. List them, and name one of these.", 404)
    query = "SELECT source, target, size FROM dictionaries WHERE id = ? ORDER BY rowid"
    sizes = {(source, target): size for source, target, size in connection.execute(query, (id,))}
    name, created = row
    return StoredGlossary(id, name, created, sizes)


def _read(connection: sqlite3.Connection, owner: str, id: str, pair: Pair) -> str:
    if pair not in (sizes := _find(connection, owner, id).sizes):
        present = ", ".join(map(" to ".join, sizes)) or "none"
        raise GlossaryError(f"glossary {id} has no dictionary for {' to '.join(pair)}: it has {present}", 404)
    query = "SELECT entries FROM dictionaries WHERE (id, source, target) = (?, ?, ?)"
    (entries,) = connection.execute(query, (id, *pair)).fetchone()
    return str(entries)


def _write(connection: sqlite3.Connection, owner: str, id: str, dictionaries: Mapping[Pair, Entries]) -> StoredGlossary:
    """Write dictionaries of a glossary. Raises GlossaryError where a limit is reached; nothing is written then."""
    query = """
        INSERT INTO dictionaries VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
        SET size = excluded.size, bytes = excluded.bytes, entries = excluded.entries
    """
    for pair, entries in dictionaries.items():
        text = join_entries(entries)
        connection.execute(query, (id, *pair, len(entries), len(text.encode()), text))
    query = "SELECT coalesce(sum(size), 0), coalesce(sum(bytes), 0) FROM dictionaries WHERE id"
    _check_size(*connection.execute(f"{query} = ?", (id,)).fetchone())
    _, size = connection.execute(f"{query} IN (SELECT id FROM glossaries WHERE owner = ?)", (owner,)).fetchone()
    if size > MAX_OWNER_BYTES:
        raise GlossaryError(f"all glossaries have more than {MAX_OWNER_BYTES:,} bytes. Delete one of them.", 413)
    return _find(connection, owner, id)
