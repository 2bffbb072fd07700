"""Documents that the service translates as jobs: they survive a restart, and a user may edit them.

Where what follows an edit is translated again, sentences of the user stay, and are context of those after them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import encode_utf8, write_text, writing
from docmt.documents import Document
from docmt.serve.engine import Engine
from docmt.serve.file_process import RESULTS, FileProcess, name_result
from docmt.serve.file_worker import FileLimits, JobFacts
from docmt.serve.job_journal import JobJournal, Links
from docmt.serve.job_store import (
    ACTIVE,
    DocumentChanged,
    DocumentNotReady,
    DocumentOptions,
    JobEvent,
    JobQueue,
    JobRecord,
    JobState,
    JobStore,
    LoadedJob,
    LoadedJobs,
    is_disk_full,
)
from docmt.serve.job_translation import JobResults, TermRequest, check_pairs, choose_lane, list_lacking, translate_job
from docmt.serve.work_queue import LANES, MAX_ALTERNATIVES, Lane, Work

_log = logging.getLogger(__name__)

_ACTIVE_OWNERS = 4
"""Owners who can have all the jobs of a lane at once that one may have."""
_SWEEP_SECONDS = 60
_STOPPED: tuple[JobState, ...] = ("failed", "cancelled")
_WATCH_SECONDS = 1.0
"""How soon the server sees what the command line asks for."""
_MAX_CRASHES = 2
"""Processes in succession that may die at the same place of a job."""
_SUSPECT_SECONDS = 10.0
"""From the start until such a job is tried again: a server that is killed before dies of something else."""
Versions = Mapping[int, int]
"""See `JobJournal.versions`."""
_ANY: Versions = {}
_CRASHED = "the server died twice while it translated this document. Split it, or send it again."


@dataclass(frozen=True)
class JobConfig:
    """How jobs are run and kept."""

    keep_hours: float = 24.0
    """hours from the end of a job, or its last edit, until it is removed"""
    max_file_bytes: int = 50 * 2**20
    active: int = 4
    """short jobs of an owner that are translated at once, and long ones; the others wait"""
    files: FileLimits = field(default_factory=FileLimits)
    protect: tuple[str, ...] | None = ()
    """patterns of text that stays as it is"""


class DocumentJobs:
    """The jobs of a data directory. All methods are called in the event loop of `start`."""

    def __init__(self, engine: Engine, data: Path, config: JobConfig = JobConfig()) -> None:
        self._engine, self.config = engine, config
        self.store = JobStore(data, config.keep_hours * 3600)
        self._files = FileProcess(config.files, config.protect)
        self._results = JobResults(engine, self._files)
        self._jobs = LoadedJobs(self.store)
        self._queues: dict[Lane, JobQueue] = {lane: JobQueue(config.active) for lane in LANES}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = True

    async def start(self) -> None:
        """Lock the data directory, and go on with the jobs of an earlier process. Raises DocmtError if it is in use."""
        self.store.open()
        self._stopped = False
        suspects: list[str] = []
        for record in self.store.list_jobs(status="queued"):
            if record.crashes >= _MAX_CRASHES:
                self._put_aside(record)
            elif record.crashes:
                suspects.append(record.id)
            else:
                self._queues[choose_lane(record.facts)].put(record.owner, record.id)
        for work in (
            self._sweep(),
            self._watch(),
            self._run_suspects(suspects),
            *(self._run_queue(lane) for lane in LANES for _ in range(_ACTIVE_OWNERS * self.config.active)),
        ):
            self._keep(asyncio.create_task(work))

    async def stop(self) -> None:
        """Stop the work, before the engine stops. Jobs go on at the next start. Streams of events end."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, job in self._jobs:
            job.notify()
        with suppress(DocmtError):  # such as a full disk
            self.store.queue_running()
        self.store.close()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create(self, file: Path, options: DocumentOptions, owner: str) -> JobRecord:
        """Start the translation of a file, which is moved into the data directory.

        Raises DocmtError for a file that cannot be read, and UnknownModel.
        """
        model = self._engine.models.find(options.model)
        description, name = self._engine.models.describe_one(model), options.name or file.name
        languages = description.source_language, description.target_language
        facts = JobFacts(name, options.format, model, *languages, 0, options.fields, glossary_ids=options.glossary_ids)
        if file.stat().st_size > self.config.max_file_bytes:
            raise DocmtError(f"{name} has more than {self.config.max_file_bytes // 2**20} MiB. Split it.")
        id, folder = self.store.new_folder()
        try:
            with writing(folder / "source"):
                await asyncio.to_thread(shutil.move, file, folder / "source")
            contents = await self._files.read(folder / "source", folder / "contents.json", facts)
            if options.entries:
                await asyncio.to_thread(write_text, folder / "glossary.tsv", options.entries)
            journal = JobJournal(folder / "journal.jsonl", contents, facts.languages)
            if options.context and description.reads_context:
                context = await self._engine.segment(model, options.context)
                journal.append({"context": context.sentences})
            if options.terms:
                terms = await asyncio.to_thread(TermRequest.make, journal.sources, options.terms, "prefer")
                journal.append(terms.to_line(terms.review(journal)) | {"undoable": False})
            facts = replace(facts, format=contents.format, sentences=len(journal.sources), skipped=contents.skipped)
            self.store.add(id, owner, facts)
        except BaseException:
            with suppress(DocmtError):  # such as a full disk
                self.store.delete(id)
            raise
        self._jobs.keep(id, LoadedJob(folder, facts, journal, options.entries))
        self._queues[choose_lane(facts)].put(owner, id)
        return self.status(id, owner)

    def status(self, id: str, owner: str) -> JobRecord:
        """Return the state of a job, with counts of now. Raises NoSuchDocument, also for another owner's."""
        record = self._jobs.find(id, owner)
        with suppress(DocmtError):  # such as damaged files
            self._jobs.load(record)
        return self._add_counts(record)

    def _add_counts(self, record: JobRecord) -> JobRecord:
        """Return the state of a job with counts of now."""
        job = self._jobs.get(record.id)
        return replace(record, **job.journal.count_all()) if job else record

    def sources(self, id: str, owner: str) -> Sequence[str]:
        """Return the source sentences of a document."""
        return self._jobs.open(id, owner).journal.sources

    def count_characters(self, id: str, owner: str) -> int:
        """Return the number of characters of the sentences of a document."""
        return sum(map(len, self.sources(id, owner)))

    def count_sentence(self, id: str, owner: str, number: int) -> int:
        """Return the number of characters of a source sentence. Raises DocmtError if it has no translation."""
        return len(self._jobs.open(id, owner).find_source(number))

    def count_after(self, id: str, owner: str, number: int, versions: Versions) -> int:
        """Return the number of characters that an edit of a sentence translates again. Raises DocmtError as `edit`."""
        job = self._jobs.open(id, owner)
        job.find_source(number)
        job.check_versions(versions)
        return job.journal.count_after(number)

    def sentences(self, id: str, owner: str, numbers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """Return sentences, by default all in order; see `JobJournal.describe`."""
        journal = self._jobs.open(id, owner).journal
        return list(map(journal.describe, range(len(journal.sentences)) if numbers is None else numbers))

    def last_event(self, id: str, owner: str) -> int:
        """Return the id of the last event of a document."""
        return len(self._jobs.open(id, owner).journal.events)

    def list_documents(self, owner: str) -> list[JobRecord]:
        """Return the jobs of an owner, the newest first."""
        return list(map(self._add_counts, reversed(self.store.list_jobs(owner=owner))))

    async def events(self, id: str, owner: str, after: int = 0, stay: bool = False) -> AsyncIterator[JobEvent]:
        """Yield the changes of sentences after an event id, with the progress, until the job is at its end.

        A sentence that has changed twice comes once. Without `done` the service was stopped, or the job deleted.
        stay: go on after `done`, with changes of the user.
        """
        job = self._jobs.open(id, owner)
        after = min(after, len(job.journal.events))
        while not self._stopped and (record := self.store.find(id)) is not None:
            changed, events, last = job.changed, job.journal.list_events(after), len(job.journal.events)
            for number, sentence in events:
                yield JobEvent(number, "sentence", job.journal.describe(sentence))
            after = last
            progress: dict[str, Any] = {"status": record.status, "sentences": record.facts.sentences}
            progress |= {"finished": job.journal.finished, "changes": len(job.journal.changes)}
            yield JobEvent(after, "progress", progress | {"last_change": job.journal.last_change})
            if len(job.journal.events) > after:
                continue
            if record.status not in ACTIVE:
                yield JobEvent(after, "done", self._add_counts(record).to_json())
                if not stay:
                    return
            await changed.wait()

    async def edit(
        self, id: str, owner: str, targets: Mapping[int, str], retranslate: bool, versions: Versions = _ANY
    ) -> JobRecord:
        """Replace translations by the user's. targets: by the number of the sentence, at least one.

        retranslate: translate the sentences after the first one in its document again, except those that the user wrote
        or confirmed. versions: of sentences that the user has seen, by number. Raises DocmtError for a sentence without
        a translation, and a lone surrogate, DocumentChanged for other versions, and UnknownModel.
        """
        job = self._jobs.open(id, owner)
        pairs = [(job.find_source(number), target) for number, target in targets.items()]
        for number, target in targets.items():
            encode_utf8(target, f"sentence {number}")
        if retranslate:
            self._engine.models.describe_one(job.facts.model)
        findings = await asyncio.to_thread(check_pairs, pairs, job.facts, self._engine.models.patterns or ())
        edits = list(zip(targets, targets.values(), findings, strict=True))
        return self._change(id, owner, {"edits": edits, "retranslate": retranslate}, versions)

    async def restore(self, id: str, owner: str, number: int, versions: Versions = _ANY) -> JobRecord:
        """Give an edited sentence the machine's translation back. Raises DocmtError as `edit`, or for no edit."""
        job = self._jobs.open(id, owner)
        job.find_source(number)
        job.check_versions(versions)
        if not job.journal.sentences[number].edited:
            raise DocumentNotReady(f"sentence {number} is not edited: it has the machine's translation")
        return self._change(id, owner, {"machine": number})

    async def use_terms(
        self, id: str, owner: str, request: TermRequest, take_characters: Callable[[int], object] = int
    ) -> tuple[JobRecord, dict[str, int]]:
        """Search the sentences that lack terms again, as one change of the user; see `TermRequest.count_changes`.

        Raises UnknownModel.
        """
        job = self._jobs.open(id, owner)
        self._engine.models.describe_one(job.facts.model)
        reviews = request.review(job.journal, await asyncio.to_thread(request.review, job.journal))
        lacking = list_lacking(reviews)
        take_characters(sum(len(job.journal.sources[number]) for number in lacking))
        self._change(id, owner, request.to_line(reviews))
        while (
            not self._stopped and self._jobs.find(id, owner).status in ACTIVE and lacking & {*job.journal.list_sought()}
        ):
            await job.changed.wait()
        return self.status(id, owner), await asyncio.to_thread(request.count_changes, reviews, job.journal)

    async def confirm(self, id: str, owner: str, number: int, confirmed: bool, versions: Versions = _ANY) -> JobRecord:
        """Note that the user has read a sentence, so that it is not translated again; or take that back. See `edit`."""
        self._jobs.open(id, owner).find_source(number)
        return self._change(id, owner, {"confirm": number, "confirmed": confirmed}, versions)

    async def undo(self, id: str, owner: str, last_change: int = -1) -> JobRecord:
        """Take the last change of the user back, and what was translated again because of it.

        last_change: the one that the user has seen (`JobJournal.last_change`); -1: any. Raises DocumentChanged for
        another one.
        """
        job = self._jobs.open(id, owner)
        if last_change not in (-1, job.journal.last_change):
            message = "the document was changed meanwhile: look at the last change, and undo it with its number"
            numbers = job.journal.changes[-1].replaced if job.journal.changes else ()
            raise DocumentChanged(message, list(map(job.journal.describe, numbers)))
        if not job.journal.changes:
            raise DocumentNotReady("there is no change to undo")
        return self._change(id, owner, {"undo": True})

    def _change(self, id: str, owner: str, line: dict[str, Any], versions: Versions = _ANY) -> JobRecord:
        """Write a change of the user to the journal. A job that has ended goes on if sentences are to be translated."""
        record = self._jobs.find(id, owner)
        job = self._jobs.load(record)
        job.check_versions(versions)
        is_ended = record.status not in ACTIVE
        is_stopped = record.status in _STOPPED and any(each.target is None for each in job.journal.sentences)
        if is_ended and not is_stopped:
            # before the journal: if the server is killed in between, the next one looks at the job
            self.store.update(id, "running", error=record.error)
        try:
            job.journal.append(line)
        finally:
            if is_stopped:
                with suppress(DocmtError):  # such as a full disk
                    self._end(id, job, record.status, record.error)
            elif is_ended:
                self._go_on(id, job)
        job.notify()
        return self.status(id, owner)

    def _go_on(self, id: str, job: LoadedJob) -> None:
        """Run a job after a change: a user waits, and does not stand behind the files of the queue."""
        with suppress(DocmtError):  # such as a full disk
            if job.journal.is_whole:
                return self._end(id, job, "done")
        self._keep(asyncio.create_task(self._run(id)))

    async def resume(self, id: str, owner: str) -> JobRecord:
        """Go on with a job that was cancelled or failed, where it has sentences without a translation."""
        record = self._jobs.find(id, owner)
        if record.status in _STOPPED and not self._jobs.load(record).journal.is_whole:
            self.store.update(id, "queued", finished=record.finished)
            self._queues[choose_lane(record.facts)].put(owner, id)
        return self.status(id, owner)

    async def alternatives(self, id: str, owner: str, number: int, count: int) -> list[dict[str, Any]]:
        """Return the best translations of a sentence (target, score) after the present ones before it."""
        if not 1 <= count <= MAX_ALTERNATIVES:
            raise DocmtError(f"{count} alternatives are asked for. Ask for 1 to {MAX_ALTERNATIVES}.")
        job = self._jobs.open(id, owner)
        job.find_source(number)
        journal, document = job.journal, job.journal.find_document(number)
        source, targets = journal.extend(document), journal.list_targets(document, number)
        end = Document(source.sentences[: len(targets) + 1], (*source.gaps[: len(targets) + 1], ""), source.id)
        self._engine.check_room(job.facts.model, owner)
        terms = await self._engine.make_matcher(job.facts.model, job.entries, journal.join_terms())
        work = Work(job.facts.model, end, n_best=count, targets=targets, owner=owner, terms=terms)
        parts = await self._engine.submit(work).result()
        results: dict[str, float] = {}
        for translation in (part.translation for part in parts):
            for each in (translation, *translation.alternatives) if translation else ():
                results.setdefault(each.sentences[-1].target, each.sentences[-1].score)
        if not results:
            raise parts[-1].error or DocmtError("there is no translation of this sentence")
        return [{"target": target, "score": score} for target, score in results.items()]

    async def alignment(self, id: str, owner: str, number: int) -> Links:
        """Return the linked words of a sentence, in characters: [source start, end, target start, end]."""
        job = self._jobs.open(id, owner)
        job.find_source(number)
        await self._results.align(job, [number])
        return [link[:4] for link in job.journal.sentences[number].links or () if link[4]]

    async def result(self, id: str, owner: str, format: str = "original") -> tuple[Path, str]:
        """Return the path of the translated file, and a name for it.

        format: original, html (both sides), xlf (2.1), xlf12, tmx, txt, or terms (their report). Of a cancelled job,
        sentences without a translation keep their source. Raises DocmtError for another format, and DocumentNotReady
        before the end of the translation.
        """
        if format not in RESULTS:
            raise DocmtError(f"{format} is no format of results. Choose one of {', '.join(RESULTS)}.")
        record = self._find_ended(id, owner)
        if record.status == "failed":
            raise DocumentNotReady("the document has failed: go on with it, or translate it again")
        job = self._jobs.load(record)
        async with job.rendering:
            self._jobs.find(id, owner)  # it may have been deleted meanwhile
            path = await self._results.write(job, format)
        return path, name_result(record.facts, format)

    async def review(self, id: str, owner: str, file: Path, name: str) -> tuple[JobRecord, dict[str, Any]]:
        """Take the translations of a reviewed XLIFF file over, as one change of the user, and return what was changed.

        name: of the file, in messages. Raises DocmtError for a file that cannot be read, or of another document, and
        DocumentNotReady as `result` does.
        """
        record = self._find_ended(id, owner)
        job = self._jobs.load(record)
        async with job.rendering:
            events = len(job.journal.events)
            edits, report = await self._results.find_changes(job, file, name)
            self._find_ended(id, owner)
            if len(job.journal.events) != events:
                raise DocumentNotReady("the document was changed meanwhile: upload the file again")
            if edits:
                self._change(id, owner, {"edits": edits, "retranslate": False})
        return self.status(id, owner), report

    def _find_ended(self, id: str, owner: str) -> JobRecord:
        record = self._jobs.find(id, owner)
        if record.status in ACTIVE:
            raise DocumentNotReady(f"the document is {record.status}: wait until it is done, or stop it")
        return record

    async def cancel(self, id: str, owner: str, keep: bool = False) -> JobRecord:
        """Stop a job that is not at its end; delete another one and its files, unless `keep`. Return its last state."""
        record = self._jobs.find(id, owner)
        if record.status not in ACTIVE:
            status = self.status(id, owner)
            if not keep:
                self.store.delete(id)
                self._jobs.drop(id)
            return status
        job = self._jobs.load(record)
        self._end(id, job, "cancelled")
        if job.task is not None:
            job.task.cancel()
            job.task = None
        return self.status(id, owner)

    async def _sweep(self) -> None:
        """Remove expired jobs, again and again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                for id in self.store.remove_expired():
                    self._jobs.drop(id)
            except DocmtError as error:  # such as a full disk
                _log.error("%s", error)

    async def _watch(self) -> None:
        """Note the progress of running jobs, and cancel those for which the command line asks, again and again."""
        while True:
            with suppress(DocmtError):  # such as a full disk
                for record in self.store.list_jobs(unwanted=True):
                    await self.cancel(record.id, record.owner, keep=True)
                for id, job in self._jobs:
                    if job.task is not None and len(job.journal.events) > job.noted:
                        self._note_progress(id, job)
            await asyncio.sleep(_WATCH_SECONDS)

    def _note_progress(self, id: str, job: LoadedJob) -> None:
        self.store.note_progress(id, job.journal.finished)
        job.noted = len(job.journal.events)

    async def _run_suspects(self, ids: Sequence[str]) -> None:
        """Run the jobs of a server that died, each after the first progress of the one before.

        If a server dies again, one of them alone was running without progress.
        """
        await asyncio.sleep(_SUSPECT_SECONDS)
        for id in ids:
            self._keep(work := asyncio.create_task(self._run(id)))
            while not work.done() and (record := self.store.find(id)) is not None and record.crashes:
                await asyncio.sleep(_WATCH_SECONDS / 10)

    def _put_aside(self, record: JobRecord) -> None:
        """End a job that brings the server down."""
        with suppress(DocmtError):  # its files are damaged, too
            return self._end(record.id, self._jobs.load(record), "failed", _CRASHED)
        self.store.update(record.id, "failed", error=_CRASHED)

    async def _run_queue(self, lane: Lane) -> None:
        """Run queued jobs of a lane, one after the other."""
        while True:
            try:
                async with self._queues[lane].take() as id:
                    await self._run(id)
            except Exception as error:  # such as a table that cannot be written; the job goes on at the next start
                _log.error("%s", _describe_error(error))

    async def _run(self, id: str) -> None:
        """Run a job to its end. Where the disk is full, it goes on as soon as there is room."""
        while True:
            try:
                return await self._run_once(id)
            except DocmtError as error:
                if not is_disk_full(error):
                    raise
                _log.error("%s", error)
            while is_disk_full(self.store.find_fault()):
                await asyncio.sleep(_WATCH_SECONDS)

    async def _run_once(self, id: str) -> None:
        """Translate a job to its end, if it was not cancelled while it waited. Raises DocmtError for a full disk."""
        record = self.store.find(id)
        if record is None or record.status not in ACTIVE:
            return
        try:
            job = self._jobs.load(record)
        except DocmtError as error:
            self.store.update(id, "failed", error=str(error))
            return
        if job.task is not None:  # it was cancelled and resumed before its first turn
            return
        self.store.update(id, "running")

        def note_part() -> None:
            if record.crashes:  # before the part is written: a kill in between would count as one without progress
                self._note_progress(id, job)

        job.task = task = asyncio.create_task(translate_job(self._engine, job, note_part, record.owner))
        job.notify()
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()  # where this task is cancelled
        if job.task is not task:  # the user has cancelled it, and perhaps edited a sentence since
            return
        job.task = None
        failure = task.exception()
        if failure is not None and is_disk_full(failure):
            raise failure
        if failure is None and not job.journal.is_whole:  # an edit at the last moment
            await self._run(id)
        else:
            self._end(id, job, "done" if failure is None else "failed", _describe_error(failure))

    def _end(self, id: str, job: LoadedJob, status: JobState, error: str = "") -> None:
        """Write the last state of a job, which is "done" if it has all sentences, and wake those who wait for it."""
        journal = job.journal
        if status != "done" and all(sentence.target is not None for sentence in journal.sentences):
            if not journal.is_whole:  # an edit is translated again; the rest stays as it was
                journal.append({"stop": True})
            status = "done"
        failures = [sentence.error for sentence in journal.sentences if sentence.error]
        if status == "done" and failures:
            count = len(journal.sentences)
            amount = "nothing" if len(failures) == count else f"{len(failures)} of {count} sentences"
            error = f"{amount} could not be translated: {failures[0]}"
            status = "failed" if len(failures) == count else "done"
        self.store.update(id, status, finished=journal.finished, edited=journal.edited, error=error)
        job.notify()


def _describe_error(error: BaseException | None) -> str:
    """Return the message for a user. What no one expects is logged without its message, which may hold text."""
    if error is None or isinstance(error, DocmtError):
        return str(error or "")
    _log.error("a job failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return "the translation stopped for an internal reason. Translate the document again."
