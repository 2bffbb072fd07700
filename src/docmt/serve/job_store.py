"""The jobs of a data directory: a table in SQLite, a folder for the files of each job, and those in memory.

In memory are the jobs that something works on, and the last ones that were asked for, with their journals.
"""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
import shutil
import sqlite3
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory, writing
from docmt.serve.data_directory import hide_folders, make_private, other_version_error, prepare_database
from docmt.serve.file_process import WORK_PREFIX, FileContents
from docmt.serve.file_worker import JobFacts
from docmt.serve.job_journal import JobJournal
from docmt.terms import Glossary

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE: tuple[JobState, ...] = ("queued", "running")
"""States of a job that is not at its end."""
_MAX_IDLE = 16
"""Jobs that stay in memory though nothing works on them."""
_ID_BYTES = 16
_PROBE_BYTES = 2**16
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS jobs (
        number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL,
        created REAL NOT NULL, changed REAL NOT NULL, finished INTEGER NOT NULL, edited INTEGER NOT NULL,
        error TEXT NOT NULL, facts TEXT NOT NULL,
        crashes INTEGER NOT NULL DEFAULT 0, unwanted INTEGER NOT NULL DEFAULT 0
    )
"""


@dataclass(frozen=True)
class DocumentOptions:
    """How a document is translated."""

    model: str = ""
    """name; empty: the first model"""
    format: str = "auto"
    """text, jsonl, or a name in `docmt.documents.input_formats`; auto: by name and content"""
    fields: tuple[str, ...] = ()
    context: str = ""
    """text before the document, which is not part of the translation"""
    name: str = ""
    """file name; empty: that of the file"""
    terms: Glossary | None = None
    """for this document alone"""
    glossary_ids: tuple[str, ...] = ()
    entries: str = ""
    """of these glossaries, for the languages of the model (`GlossaryStore.merge`)"""


@dataclass(frozen=True)
class JobEvent:
    """A server-sent event. `id` is the number of sentence events up to this one."""

    id: int
    name: Literal["sentence", "progress", "done"]
    data: dict[str, Any]


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
    crashes: int
    """processes in succession that died while they ran it, before any progress"""
    unwanted: bool
    """whether the command line asks for its end"""
    terms: Mapping[str, int] = field(default_factory=dict)
    """terms asked and met, and others by their state; empty: not counted"""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """requests, tokens and cost of a server that translates it"""
    last_change: int = 0
    """see `JobJournal.last_change`"""

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
            "terms": self.terms,
            **({"engine": self.engine} if self.engine else {}),
            "last_change": self.last_change,
            "created": _format_time(self.created),
            "expires": _format_time(self.expires),
        }


class JobStore:
    """The table and the folders. Every call may come from one thread only."""

    def __init__(self, data: Path, keep_seconds: float) -> None:
        """keep_seconds: from the end of a job, or its last edit, until it expires."""
        self._data, self._keep_seconds = data, keep_seconds
        self._spool, self._path = data / "spool", data / "jobs.sqlite"
        self._locks = ExitStack()
        self._connection: sqlite3.Connection | None = None

    def attach(self) -> None:
        """Open the table beside a server that may be running, for `list_jobs` and `ask_to_cancel`."""
        if not self._path.is_file():
            raise DocmtError(f"{self._data} has no documents: name the directory of the service with --data")
        self._connect()

    def _connect(self) -> None:
        try:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            self._locks.callback(self._connection.close)
            prepare_database(self._connection, self._path, _SCHEMA)
        except sqlite3.Error as error:
            raise self._error(error) from error
        self._connection.row_factory = sqlite3.Row

    def open(self) -> None:
        """Lock the directory for this process, and prepare the jobs that a killed process left.

        Running jobs are queued again, and their crashes counted. Expired jobs, folders without a job and unfinished
        files are removed. Raises DocmtError if another server uses the directory, and if it cannot be written.
        """
        with writing(self._spool):
            make_private(self._data, self._path)
            self._spool.mkdir(exist_ok=True, mode=0o700)
        self._locks.enter_context(lock_directory(self._data, f"{self._data} is used", mode=0o600))
        try:
            self._connect()
            self._execute("PRAGMA journal_mode = WAL")
            self._execute("PRAGMA synchronous = FULL")
            self._execute("UPDATE jobs SET status = 'queued', crashes = crashes + 1 WHERE status = 'running'")
        except DocmtError:
            self.close()
            raise
        self.remove_expired()
        self._remove_orphans()

    def queue_running(self) -> None:
        """Queue the running jobs for the next process, before a stop that is no crash."""
        self._execute("UPDATE jobs SET status = 'queued', crashes = 0 WHERE status = 'running'")

    def close(self) -> None:
        """Close the table and release the directory."""
        self._connection = None
        self._locks.close()

    def new_folder(self) -> tuple[str, Path]:
        """Return a new id, which cannot be guessed, and its empty folder."""
        id = secrets.token_hex(_ID_BYTES)
        with writing(self._spool):
            self.folder(id).mkdir(mode=0o700)
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
        return next(iter(self.list_jobs(id=id)), None)

    def list_jobs(self, **values: object) -> list[JobRecord]:
        """Return the jobs with these values in columns of the table, oldest first."""
        condition = " AND ".join(f"{column} = ?" for column in values) or "1"
        rows = self._execute(f"SELECT * FROM jobs WHERE {condition} ORDER BY number", tuple(values.values())).fetchall()
        return list(map(self._read_row, rows))

    def ask_to_cancel(self, id: str) -> None:
        """Ask the server, now or at its next start, to cancel a job. Raises DocmtError if none of this id is active."""
        changed = self._execute("UPDATE jobs SET unwanted = 1 WHERE id = ? AND status IN (?, ?)", (id, *ACTIVE))
        if not changed.rowcount:
            raise DocmtError(f"no document {id} waits or is translated. List them, and name one of these.")

    def ask_to_cancel_all(self, owner: str) -> None:
        """Ask the server to cancel the active jobs of an owner."""
        self._execute("UPDATE jobs SET unwanted = 1 WHERE owner = ? AND status IN (?, ?)", (owner, *ACTIVE))

    def update(
        self, id: str, status: JobState, *, finished: int | None = None, edited: int | None = None, error: str = ""
    ) -> None:
        """Change the state of a job, durably. None: as it is."""
        self._execute(
            "UPDATE jobs SET status = ?, changed = ?, finished = coalesce(?, finished), edited = coalesce(?, edited),"
            " error = ?, crashes = crashes * ?, unwanted = unwanted * ? WHERE id = ?",
            (status, time.time(), finished, edited, error, *[status in ACTIVE] * 2, id),
        )

    def note_progress(self, id: str, finished: int) -> None:
        """Note that a job goes on: it does not bring the server down."""
        self._execute("UPDATE jobs SET finished = ?, crashes = 0 WHERE id = ?", (finished, id))

    def count_active(self, owner: str | None = None) -> int:
        """Return the number of jobs that are not at their end: of an owner, or of all."""
        query = "SELECT count(*) FROM jobs WHERE owner = coalesce(?, owner) AND status IN (?, ?)"
        return int(self._execute(query, (owner, *ACTIVE)).fetchone()[0])

    def count_states(self) -> dict[str, int]:
        """Return the number of jobs in each state that occurs."""
        return dict(map(tuple, self._execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall()))

    def delete(self, id: str) -> None:
        """Remove a job and its files: these first, since a full disk has no room for the change of the table."""
        shutil.rmtree(self.folder(id), ignore_errors=True)
        self._execute("DELETE FROM jobs WHERE id = ?", (id,))

    def remove_expired(self) -> list[str]:
        """Remove jobs that ended too long ago. Return their ids."""
        query = "SELECT id FROM jobs WHERE changed < ? AND status NOT IN (?, ?)"
        rows = self._execute(query, (time.time() - self._keep_seconds, *ACTIVE)).fetchall()
        for row in rows:
            self.delete(row["id"])
        return [row["id"] for row in rows]

    def find_fault(self) -> OSError | None:
        """Return why the directory cannot be written, such as a full disk, or None."""
        probe = self._spool / "probe"
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))
        except OSError as error:
            return error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return None

    def _remove_orphans(self) -> None:
        known = {row["id"] for row in self._execute("SELECT id FROM jobs").fetchall()}
        for folder in self._spool.iterdir():
            for orphan in folder.glob(f"{WORK_PREFIX}*") if folder.name in known else [folder]:
                shutil.rmtree(orphan, ignore_errors=True)

    def _read_row(self, row: sqlite3.Row) -> JobRecord:
        values = dict(row)
        del values["number"]
        values["error"] = hide_folders(values["error"])
        try:
            facts = json.loads(values.pop("facts"))
            expires = values.pop("changed") + self._keep_seconds
            lists = {"fields": tuple(facts["fields"]), "glossary_ids": tuple(facts.get("glossary_ids", ()))}
            return JobRecord(**values, expires=expires, facts=JobFacts(**{**facts, **lists}))
        except (ValueError, KeyError, TypeError) as error:
            raise other_version_error(self._path, "a job with other fields") from error

    def _execute(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self._connection is None:
            raise DocmtError("the service is not running")
        try:
            return self._connection.execute(query, values)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> DocmtError:
        return DocmtError(f"{self._path} cannot be used ({error}): free space, or move it away")


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, is that of a full disk."""
    if isinstance(error, sqlite3.Error):
        return error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return is_full or (error is not None and is_disk_full(error.__cause__))


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JobQueue:
    """Jobs of a lane that wait. Owners take turns, and of each a few run at once."""

    def __init__(self, active: int) -> None:
        """active: jobs of an owner that run at once."""
        self._active = active
        self._waiting: dict[str, deque[str]] = {}  # ids by owner, in the order of their turns
        self._running, self._changed = Counter[str](), asyncio.Event()

    def put(self, owner: str, id: str) -> None:
        """Add a job."""
        self._waiting.setdefault(owner, deque()).append(id)
        self._changed.set()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[str]:
        """Wait for a job that may run, which runs until the end of the context."""
        while (owner := next((each for each in self._waiting if self._running[each] < self._active), None)) is None:
            self._changed.clear()
            await self._changed.wait()
        ids = self._waiting.pop(owner)
        id = ids.popleft()
        if ids:
            self._waiting[owner] = ids  # the last one now
        self._running[owner] += 1
        try:
            yield id
        finally:
            self._running[owner] -= 1
            self._changed.set()


class NoSuchDocument(DocmtError):  # noqa: N818 - as HTTP calls it
    """There is no document of this id for this owner."""

    status = 404


class DocumentNotReady(DocmtError):  # noqa: N818 - a state, not a fault
    """The document is not in a state for this."""

    status = 409


class DocumentChanged(DocmtError):  # noqa: N818 - a state, not a fault
    """A change is based on a state of the document that is no longer the present one."""

    status = 409

    def __init__(self, message: str, sentences: list[dict[str, Any]]) -> None:
        """sentences: as they are now, see `JobJournal.describe`."""
        super().__init__(message)
        self.details = {"sentences": sentences}


@dataclass(eq=False)
class LoadedJob:
    """A job in memory."""

    folder: Path
    facts: JobFacts
    journal: JobJournal
    entries: str
    """of glossaries"""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    rendering: asyncio.Lock = field(default_factory=asyncio.Lock)
    noted: int = 0
    """events of which the table knows the progress"""

    def notify(self) -> None:
        """Wake all that wait for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def find_source(self, number: int) -> str:
        """Return a source sentence. Raises DocmtError if there is none, or if it has no translation."""
        count = len(self.journal.sources)
        if not 0 <= number < count:
            raise DocmtError(f"there is no sentence {number}: the numbers are from 0 to below {count}")
        if self.journal.sentences[number].target is None:
            raise DocumentNotReady(f"sentence {number} is not translated yet. Wait for it.")
        return self.journal.sources[number]

    def check_versions(self, versions: Mapping[int, int]) -> None:
        """Raise DocumentChanged for sentences that are not in these versions, by number."""
        late = [number for number, version in versions.items() if self.journal.versions[number] != version]
        if late:
            names = f"sentence {late[0]} was" if len(late) == 1 else f"{len(late)} of {len(versions)} sentences were"
            advice = "look at the present translation, and send the change again with its version"
            raise DocumentChanged(f"{names} changed meanwhile: {advice}", list(map(self.journal.describe, late)))


class LoadedJobs:
    """The jobs of a store, read from the disk when they are asked for."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._loaded: WeakValueDictionary[str, LoadedJob] = WeakValueDictionary()  # those that something works on
        self._recent: deque[LoadedJob] = deque(maxlen=_MAX_IDLE)  # keeps the last ones loaded

    def __iter__(self) -> Iterator[tuple[str, LoadedJob]]:
        return iter(list(self._loaded.items()))

    def find(self, id: str, owner: str) -> JobRecord:
        """Return the row of a job. Raises NoSuchDocument, also for another owner's; one from before keys has none."""
        record = self._store.find(id)
        if record is None or record.owner not in ("", owner):
            raise NoSuchDocument("there is no such document. It may have expired: translate it again.")
        return record

    def open(self, id: str, owner: str) -> LoadedJob:
        """Return a job. Raises NoSuchDocument, and DocmtError for damaged files."""
        return self.load(self.find(id, owner))

    def load(self, record: JobRecord) -> LoadedJob:
        """Return a job with its journal."""
        job = self._loaded.get(record.id)
        if job is None:
            folder = self._store.folder(record.id)
            try:
                contents = FileContents.from_json((folder / "contents.json").read_bytes())
                entries = (folder / "glossary.tsv").read_text("utf-8") if record.facts.glossary_ids else ""
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DocmtError("the files of this document are damaged: translate it again") from error
            journal = JobJournal(folder / "journal.jsonl", contents, record.facts.languages)
            job = LoadedJob(folder, record.facts, journal, entries)
        self.keep(record.id, job)
        return job

    def get(self, id: str) -> LoadedJob | None:
        """Return a job if it is in memory."""
        return self._loaded.get(id)

    def keep(self, id: str, job: LoadedJob) -> None:
        """Keep a job in memory for a while."""
        self._loaded[id] = job
        self._recent.append(job)

    def drop(self, id: str) -> None:
        """Forget a job that was deleted, and wake those who wait for it."""
        if (job := self._loaded.pop(id, None)) is not None:
            job.notify()
