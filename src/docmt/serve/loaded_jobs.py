"""Jobs in memory, with their journals: those that something works on, and the last ones that were asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from docmt.core.errors import DocmtError
from docmt.serve.file_process import FileContents
from docmt.serve.job_journal import JobJournal
from docmt.serve.job_store import JobFacts, JobRecord, JobStore

_MAX_IDLE = 16
"""Jobs that stay in memory though nothing works on them."""


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
            job = LoadedJob(record.facts, journal, entries)
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
