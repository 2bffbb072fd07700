"""The jobs of a data directory: a table in SQLite, and a folder for the files of each job."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory, write_error

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE: tuple[JobState, ...] = ("queued", "running")
"""States of a job that is not at its end."""
WORK_PREFIX = "work."
"""Beginning of the names of folders, in that of a job, in which a file is being written."""
_ID_BYTES = 16
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS jobs (
        number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL,
        created REAL NOT NULL, changed REAL NOT NULL, finished INTEGER NOT NULL, edited INTEGER NOT NULL,
        error TEXT NOT NULL, facts TEXT NOT NULL
    )
"""


@dataclass(frozen=True)
class JobFacts:
    """The properties of a job that never change."""

    name: str
    """file name as the user knows it"""
    format: str
    """text, jsonl, or a name in `docmt.documents.input_formats`"""
    model: str
    source_language: str
    target_language: str
    """codes of the model; empty where it has none"""
    sentences: int
    fields: tuple[str, ...] = ()
    """see `docmt.formats.units.ReadConfig`"""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """number of parts that are not translated, by reason"""


@dataclass(frozen=True)
class JobRecord:
    """A row of the table."""

    id: str
    owner: str
    """id of the access key, or empty"""
    status: JobState
    created: float
    """seconds since 1970"""
    expires: float
    """the same, counted from the last change of the status, or the last edit"""
    finished: int
    """sentences with an up-to-date translation, at that time"""
    edited: int
    error: str
    facts: JobFacts

    def to_json(self) -> dict[str, Any]:
        """Return what the owner may see, with times in ISO 8601 (UTC)."""
        facts = asdict(self.facts)
        del facts["fields"]
        return {
            "id": self.id,
            "status": self.status,
            **facts,
            "finished": self.finished,
            "edited": self.edited,
            "error": self.error,
            "created": _format_time(self.created),
            "expires": _format_time(self.expires),
        }


class JobStore:
    """The table and the folders. Every call may come from one thread only."""

    def __init__(self, data: Path, keep_seconds: float) -> None:
        """keep_seconds: from the end of a job, or its last edit, until it expires."""
        self._data, self._keep_seconds = data, keep_seconds
        self._spool = data / "spool"
        self._locks = ExitStack()
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Lock the directory for this process, and prepare the jobs that a killed process left.

        Running jobs are queued again. Expired jobs, folders without a job and unfinished files are removed. Raises
        DocmtError if another server uses the directory, and if it cannot be written.
        """
        try:
            self._data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._spool.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise write_error(self._spool, error) from error
        self._locks.enter_context(lock_directory(self._data, f"{self._data} is used"))
        try:
            connection = sqlite3.connect(self._data / "jobs.sqlite", isolation_level=None)
            self._locks.callback(connection.close)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            connection.execute("UPDATE jobs SET status = 'queued' WHERE status = 'running'")
        except sqlite3.Error as error:
            self._locks.close()
            raise self._error(error) from error
        self._connection = connection
        self.remove_expired()
        self._remove_orphans()

    def close(self) -> None:
        """Close the table and release the directory."""
        self._connection = None
        self._locks.close()

    def new_folder(self) -> tuple[str, Path]:
        """Return a new id, which cannot be guessed, and its empty folder."""
        id = secrets.token_urlsafe(_ID_BYTES)
        try:
            self.folder(id).mkdir(mode=0o700)
        except OSError as error:
            raise write_error(self._spool, error) from error
        return id, self.folder(id)

    def folder(self, id: str) -> Path:
        """Return the folder of a job. id: of this store, never text of a request."""
        return self._spool / id

    def add(self, id: str, owner: str, facts: JobFacts) -> None:
        """Insert a queued job."""
        now = time.time()
        values = (id, owner, "queued", now, now, 0, 0, "", json.dumps(asdict(facts)))
        columns = "id, owner, status, created, changed, finished, edited, error, facts"
        self._execute(f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def find(self, id: str) -> JobRecord | None:
        """Return a job, or None."""
        row = self._execute("SELECT * FROM jobs WHERE id = ?", (id,)).fetchone()
        return None if row is None else self._read_row(row)

    def list_queued(self) -> list[JobRecord]:
        """Return the queued jobs, oldest first."""
        rows = self._execute("SELECT * FROM jobs WHERE status = 'queued' ORDER BY number").fetchall()
        return [self._read_row(row) for row in rows]

    def list_ids(self, owner: str) -> list[str]:
        """Return the ids of an owner's jobs, the newest first."""
        rows = self._execute("SELECT id FROM jobs WHERE owner = ? ORDER BY number DESC", (owner,)).fetchall()
        return [row["id"] for row in rows]

    def update(
        self, id: str, status: JobState, *, finished: int | None = None, edited: int | None = None, error: str = ""
    ) -> None:
        """Change the state of a job, durably. None: as it is."""
        self._execute(
            "UPDATE jobs SET status = ?, changed = ?, finished = coalesce(?, finished), edited = coalesce(?, edited),"
            " error = ? WHERE id = ?",
            (status, time.time(), finished, edited, error, id),
        )

    def count_active(self, owner: str) -> int:
        """Return the number of jobs of an owner that are not at their end."""
        query = "SELECT count(*) FROM jobs WHERE owner = ? AND status IN (?, ?)"
        return int(self._execute(query, (owner, *ACTIVE)).fetchone()[0])

    def count_states(self) -> dict[str, int]:
        """Return the number of jobs in each state that occurs."""
        return dict(map(tuple, self._execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall()))

    def delete(self, id: str) -> None:
        """Remove a job and its files."""
        self._execute("DELETE FROM jobs WHERE id = ?", (id,))
        shutil.rmtree(self.folder(id), ignore_errors=True)

    def remove_expired(self) -> list[str]:
        """Remove jobs that ended too long ago. Return their ids."""
        query = "SELECT id FROM jobs WHERE changed < ? AND status NOT IN (?, ?)"
        rows = self._execute(query, (time.time() - self._keep_seconds, *ACTIVE)).fetchall()
        for row in rows:
            self.delete(row["id"])
        return [row["id"] for row in rows]

    def _remove_orphans(self) -> None:
        known = {row["id"] for row in self._execute("SELECT id FROM jobs", ()).fetchall()}
        for folder in self._spool.iterdir():
            for orphan in folder.glob(f"{WORK_PREFIX}*") if folder.name in known else [folder]:
                shutil.rmtree(orphan, ignore_errors=True)

    def _read_row(self, row: sqlite3.Row) -> JobRecord:
        values = dict(row)
        del values["number"]
        facts = json.loads(values.pop("facts"))
        expires = values.pop("changed") + self._keep_seconds
        return JobRecord(**values, expires=expires, facts=JobFacts(**{**facts, "fields": tuple(facts["fields"])}))

    def _execute(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self._connection is None:
            raise DocmtError("the service is not running")
        try:
            return self._connection.execute(query, values)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> DocmtError:
        return DocmtError(f"{self._data / 'jobs.sqlite'} cannot be used ({error}): free space, or move it away")


def move_file(source: Path, target: Path) -> None:
    """Move a file. Raises DocmtError if it cannot be moved."""
    try:
        shutil.move(source, target)
    except OSError as error:
        raise write_error(target, error) from error


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
