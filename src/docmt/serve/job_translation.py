"""Work for a job: the translation of what its journal lacks, terms that a user asks for, and files.

The files are those that go out of a job, translated or with both sides, and reviewed XLIFF files that come back.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from docmt.checking import CheckConfig, check_documents
from docmt.core.errors import DocmtError
from docmt.core.files import write_text
from docmt.decoding.term_report import UNMET, judge_terms
from docmt.decoding.translation_results import PartialTranslation, TermUse, TranslatedSentence, WordLink
from docmt.documents import ParallelDocument
from docmt.engines.sentence_requests import UntranslatedSentence
from docmt.formats.language_codes import primary_language
from docmt.serve.engine import Engine, Overloaded
from docmt.serve.file_process import WORK_PREFIX, FileProcess
from docmt.serve.file_worker import JobFacts
from docmt.serve.job_journal import JobJournal, Links, TranslationPlan
from docmt.serve.job_store import LoadedJob
from docmt.serve.work_queue import Lane, Work
from docmt.terms import Glossary, Term
from docmt.terms.matching import Occurrence, TermMatcher, TermMode
from docmt.terms.memory import QUALITY

CHECKED_KINDS = ("empty", "untranslated", "loop", "number", "url", "placeholder", "bracket")
"""Checks of single sentences."""
_DIGITS = 4  # of scores: further ones depend on the batch
_AHEAD = 16
"""Documents of a job that wait in the engine."""
_AROUND = 64
"""Sentences before those that are searched for terms, and after these, that are read with them."""
_SHORT = 200
"""Sentences of a job whose user waits for it: a pasted text, a letter, a report."""
_MAX_DIGITS = 10
_MAX_PROBLEMS = 1000
"""Translations of a reviewed file of which is told that they are left out."""


def choose_lane(facts: JobFacts) -> Lane:
    """Return the lane of the engine for a job: a short one does not wait for the long ones."""
    return "interactive" if facts.sentences <= _SHORT else "jobs"


async def translate_job(engine: Engine, job: LoadedJob, on_part: Callable[[], None], owner: str) -> None:
    """Translate all sentences that are to be translated, document by document.

    owner: id of a key. on_part: called before a part is written. Raises DocmtError if the engine cannot translate at
    all, or for a full disk.
    """
    journal = job.journal
    while not journal.is_whole:
        terms = await engine.make_matcher(job.facts.model, job.entries, journal.join_terms())
        if terms is not None and journal.list_sought():
            await search_terms(engine, job, terms, on_part)
            continue
        before = len(journal.events), journal.edits
        works: deque[tuple[TranslationPlan, Work]] = deque()
        try:
            while plans := journal.list_plans(_AHEAD):
                # The next documents wait in the engine, so that short ones are translated together.
                new = plans[len(works) :]
                works += [(plan, submit_plan(engine, job, plan, owner, terms)) for plan in new]
                if not await _write_parts(job, *works.popleft(), on_part):
                    break
        finally:
            for _, work in works:
                work.cancel()
        if (len(journal.events), journal.edits) == before:
            raise DocmtError("the engine returned no translation")


def submit_plan(engine: Engine, job: LoadedJob, plan: TranslationPlan, owner: str, terms: TermMatcher | None) -> Work:
    """Start the translation of a document, or of its rest. Where too many texts wait, it goes to the lane of jobs."""
    lane = choose_lane(job.facts)
    if lane == "interactive":
        try:
            engine.check_room(job.facts.model, owner)
        except Overloaded:
            lane = "jobs"
    aligned, point = job.journal.contents.aligned, plan.resume_point
    work = Work(job.facts.model, plan.source, lane, resume_point=point, targets=plan.targets, owner=owner, terms=terms)
    work.align = lambda position: position + plan.shift in aligned
    return engine.submit(work)


async def _write_parts(job: LoadedJob, plan: TranslationPlan, work: Work, on_part: Callable[[], None]) -> bool:
    """Write the parts of a document to the journal. Return whether the document is whole, and no edit came between."""
    journal = job.journal
    edits = journal.edits
    try:
        async for part in work.parts():
            if journal.edits != edits:  # the part was translated after other sentences
                return False
            line, is_whole = describe_part(part, plan, job)
            on_part()
            journal.append(line)
            job.notify()
            if not is_whole:
                return False
    finally:
        work.cancel()
    last = journal.starts[plan.document + 1] - 1
    return journal.edits == edits and not journal.sentences[last].stale


def describe_part(part: PartialTranslation, plan: TranslationPlan, job: LoadedJob) -> tuple[dict[str, Any], bool]:
    """Return the line of the journal for a part, and whether it has all sentences of the part.

    A part ends before a sentence that the user wrote.
    """
    journal = job.journal
    start, first = journal.starts[plan.document], part.first + plan.shift
    last = first + len(part.source)
    end = next((number for number in range(max(first, start), last) if not journal.sentences[number].stale), last)
    rows = _describe_sentences(part, first, journal)[: end - first]
    line: dict[str, Any] = {"document": plan.document, "sentences": rows[max(0, start - first) :]}
    if first < start:
        line["context"] = [row.get("target", "") for row in rows[: start - first]]
    _add_findings([row for row in line["sentences"] if "target" in row], job)
    if end == last:
        history = [[list(map(int, words)) for words in each] for each in part.resume_point.history]
        line["resume"] = [part.resume_point.sentences, history]
    return line, end == last


def _add_findings(rows: Sequence[dict[str, Any]], job: LoadedJob) -> None:
    """Add findings to the values of translated sentences."""
    findings = check_pairs([(job.journal.sources[row["number"]], row["target"]) for row in rows], job.facts)
    for row, messages in zip(rows, findings, strict=True):
        row["findings"] = messages


async def search_terms(engine: Engine, job: LoadedJob, terms: TermMatcher, on_part: Callable[[], None]) -> None:
    """Search the next sentences again for terms of the user, among those around them.

    Sentences that the user changed meanwhile stay. on_part: see `translate_job`.
    """
    journal = job.journal
    sought = journal.list_sought()
    document, edits = journal.find_document(sought[0]), journal.edits
    whole, end = journal.extend(document), journal.starts[document + 1]
    shift, targets = end - len(whole), journal.list_targets(document, end)
    first, last = max(sought[0] - shift - _AROUND, 0), min(sought[0] - shift + 2 * _AROUND, len(whole))
    numbers = [n for n in sought if n < min(sought[0] + _AROUND, end)]
    scores = {n - shift - first: (journal.sentences[n].score or 0.0, journal.sentences[n].tokens) for n in numbers}
    found = await engine.search_terms(job.facts.model, whole.slice(first, last), targets[first:last], scores, terms)
    if journal.edits != edits:
        return
    rows = []
    for number, old in ((n, journal.sentences[n]) for n in numbers if not journal.sentences[n].is_fixed):
        if (new := found.get(number - shift - first)) is not None:
            row = _describe_sentence(number, new, old.warnings)
            if new.target == old.target:
                row |= {"score": old.score, "match": old.match, "links": old.links}
            rows.append(row)
    _add_findings(rows, job)
    on_part()
    journal.append({"document": document, "sentences": rows, "searched": numbers})
    job.notify()


def _describe_sentences(part: PartialTranslation, first: int, journal: JobJournal) -> list[dict[str, Any]]:
    """Return the values of each sentence of a part; first: number of the first one."""
    translation = part.translation
    if translation is None:
        rows = [{"number": first + index, "error": str(part.error)} for index in range(len(part.source))]
        if isinstance(part.error, UntranslatedSentence):
            rows[0]["engine"] = asdict(part.error.engine)
        return rows
    rows = []
    for number, (sentence, warnings) in enumerate(zip(translation, translation.warnings(), strict=True), first):
        row = _describe_sentence(number, sentence, warnings)
        if match := QUALITY.get(sentence.memory, 0):
            row |= {"match": match, "score": None}
        if sentence.alignment is not None and number in journal.contents.aligned:
            row["links"] = list_links(sentence.alignment)
        rows.append(row)
    return rows


def _describe_sentence(number: int, sentence: TranslatedSentence, warnings: Sequence[str]) -> dict[str, Any]:
    row = {"number": number, "target": sentence.target, "tokens": sentence.tokens, "warnings": warnings}
    row["score"] = round(float(sentence.score), _DIGITS) if sentence.has_score else None
    if sentence.engine:
        row["engine"] = asdict(sentence.engine)
    if sentence.terms:
        row["terms"] = [{**asdict(use), "loss": round(use.loss, _DIGITS)} for use in sentence.terms]
    return row


def list_links(alignment: Sequence[WordLink]) -> Links:
    """Return word links as values for JSON."""
    return [[*map(int, (*link.source, *link.target, link.mutual))] for link in alignment]


def check_pairs(pairs: Sequence[tuple[str, str]], facts: JobFacts, protect: tuple[str, ...] = ()) -> list[list[str]]:
    """Return the findings of `docmt check` in each pair of sentences, as short texts. protect: see `CheckConfig`."""
    findings: list[list[str]] = [[] for _ in pairs]
    if pairs:
        codes = primary_language(facts.source_language), primary_language(facts.target_language)
        sources, targets = zip(*pairs, strict=True)
        document = ParallelDocument("", sources, targets)
        for finding in check_documents([document], CheckConfig(*codes, protect=protect), kinds=CHECKED_KINDS).findings:
            findings[finding.sentences[0].sentence - 1].append(f"{finding.kind}: {finding.message}")
    return findings


class TermReview(NamedTuple):
    """A translation, and what became of terms in it."""

    target: str | None
    uses: Sequence[TermUse]


TermReviews = dict[int, TermReview]
"""By the number of the sentence."""


@dataclass(frozen=True)
class TermRequest:
    """A glossary that is to hold in a document, and the sentences that have its terms."""

    matcher: TermMatcher
    occurrences: dict[int, list[Occurrence]]
    """by the number of the sentence"""

    @classmethod
    def make(cls, sources: Sequence[str], glossary: Glossary, mode: TermMode) -> TermRequest:
        """Find the terms in source sentences."""
        matcher = TermMatcher(glossary, mode)
        found = {number: matcher.find(source) for number, source in enumerate(sources)}
        return cls(matcher, {number: each for number, each in found.items() if each})

    def check(self) -> None:
        """Raise DocmtError if no sentence has a term."""
        if not self.occurrences:
            terms = self.matcher.glossary.terms
            names = f"the term {terms[0].source}" if len(terms) == 1 else "a term of this glossary"
            raise DocmtError(f"no sentence of the document has {names}")

    def review(self, journal: JobJournal, known: Mapping[int, TermReview] | None = None) -> TermReviews:
        """Return what became of the terms in each present translation. known: of earlier ones, which may be the same.

        It takes a millisecond a sentence.
        """
        targets = {number: journal.sentences[number].target for number in self.occurrences}
        same = {number: each for number, each in (known or {}).items() if each.target == targets[number]}
        return {n: same.get(n) or self._review(n, target) for n, target in targets.items()}

    def _review(self, number: int, target: str | None) -> TermReview:
        uses = judge_terms(self.matcher, self.occurrences[number], target) if target is not None else []
        return TermReview(target, uses)

    def to_line(self, reviews: TermReviews) -> dict[str, object]:
        """Return the line of the journal, with those terms that occur."""
        found: dict[str, Term] = {one.term.source: one.term for each in self.occurrences.values() for one in each}
        rows = [[term.source, term.targets, term.forbidden, term.keep, term.case] for term in found.values()]
        uses = [[number, list(map(asdict, each.uses))] for number, each in reviews.items()]
        return {"terms": rows, "mode": self.matcher.mode, "uses": uses}

    def count_changes(self, before: TermReviews, journal: JobJournal) -> dict[str, int]:
        """Return what became of sentences that lacked terms.

        changed: they have other translations; kept: they are the user's; refused: they still lack terms; waiting: they
        are not searched yet.
        """
        lacking, after = list_lacking(before), self.review(journal, before)
        waiting, kept = lacking & set(journal.list_sought()), {n for n in lacking if journal.sentences[n].is_fixed}
        return {
            "changed": sum(after[number].target != before[number].target for number in lacking),
            "kept": len(kept),
            "refused": len((lacking & list_lacking(after)) - kept - waiting),
            "waiting": len(waiting),
        }


def list_lacking(reviews: TermReviews) -> set[int]:
    """Return the sentences that lack terms."""
    return {number for number, each in reviews.items() if any(use.status in UNMET for use in each.uses)}


class JobResults:
    """Writer and reader of these files. Only one call for a job may run at a time."""

    def __init__(self, engine: Engine, files: FileProcess) -> None:
        self._engine, self._files = engine, files

    async def align(self, job: LoadedJob, numbers: Sequence[int]) -> None:
        """Add links to these sentences, if they have none."""
        for number in numbers:
            sentence = job.journal.sentences[number]
            if sentence.links is None and sentence.target and not sentence.error:
                pair = job.journal.sources[number], sentence.target
                sentence.links = list_links((await self._engine.align(job.facts.model, [pair]))[0])

    async def _align_codes(self, job: LoadedJob) -> None:
        """Add links to the sentences that have codes, so that these stand where they stood in earlier results."""
        journal = job.journal
        wanted = [number for number in journal.contents.aligned if journal.sentences[number].code_links is None]
        with suppress(DocmtError):  # codes are then placed by the order of words
            await self.align(job, wanted)

    async def write(self, job: LoadedJob, format: str) -> Path:
        """Return the path of a result in the folder of the job, and remove those from before the last change."""
        facts, journal = job.facts, job.journal
        path = job.folder / f"result.{len(journal.events)}.{format}"
        if path.exists():
            return path
        if format == "terms":
            await asyncio.to_thread(write_text, path, journal.render_terms(facts.name))
            return path
        await self._align_codes(job)
        revision = f"{len(journal.events)}-{_hash_id(job.folder)}"
        await self._files.write(job.folder / "source", path, facts, journal.list_records(), format, revision=revision)
        for other in job.folder.glob("result.*"):
            if other.name.split(".")[1] != path.name.split(".")[1]:
                other.unlink(missing_ok=True)
        return path

    async def find_changes(self, job: LoadedJob, file: Path, name: str) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """Return the edits of a reviewed XLIFF file, as the journal has them, with counts, and why others are left out.

        What was changed in the document since the file was written stays: if the file changes it, too, that is told.
        Raises DocmtError for a file that cannot be read, or of another document.
        """
        path, facts, journal = job.folder / f"{WORK_PREFIX}changes", job.facts, job.journal

        async def compare(state: JobJournal, restored: Collection[int] = ()) -> tuple[list[list[Any]], list[str], str]:
            records, reviewed = state.list_records(restored), {"reviewed": str(file.absolute()), "reviewed_name": name}
            try:
                await self._files.write(job.folder / "source", path, facts, records, "changes", **reviewed)
                changes, problems, revision = json.loads(await asyncio.to_thread(path.read_bytes))
            finally:
                path.unlink(missing_ok=True)
            return changes, problems, revision

        await self._align_codes(job)
        changes, problems, revision = await compare(journal)
        events, _, document = revision.partition("-")
        if document == _hash_id(job.folder) and events.isdecimal() and len(events) < _MAX_DIGITS:
            base = await asyncio.to_thread(journal.read_earlier, int(events))
            late = {n for n, *_ in changes if base.sentences[n].visible != journal.sentences[n].visible}
            base.sentences = [(base if n in late else journal).sentences[n] for n in range(len(journal.sentences))]
            await self._align_codes(replace(job, journal=base))
            for n, target, *_ in (await compare(base))[0] if late else ():
                if n in late:
                    reason = f"“{journal.sources[n]}” was changed since this file was downloaded, so it stays"
                    problems.insert(0, f"{name}: {reason}" + (f"; the file has “{target}”" if target else ""))
            changes = [each for each in changes if each[0] not in late]
        edited = {n: each.machine.target for n, each in enumerate(journal.sentences) if each.edited and each.machine}
        restored = {number for number, target, *_ in changes if target is not None and edited.get(number) == target}
        if restored:  # with the codes of the machine's version, too, they are no edits
            others = (await compare(journal, restored))[0]
            restored -= {number for number, target, *_ in others if target is not None}
        changes = [[*each[:3], None if each[0] in restored else each[3]] for each in changes]
        pairs = [(journal.sources[number], target or "") for number, target, *_ in changes]
        findings = await asyncio.to_thread(check_pairs, pairs, facts, self._engine.models.patterns or ())
        edits = [(*each[:2], messages, *each[2:]) for each, messages in zip(changes, findings, strict=True)]
        return edits, {**_count_edits(edits, journal), "problems": problems[:_MAX_PROBLEMS]}


def _hash_id(folder: Path) -> str:
    """Return a name of a document that does not tell its id, which lets who knows it in."""
    return hashlib.sha256(folder.name.encode()).hexdigest()[:16]


def _count_edits(edits: Sequence[tuple[Any, ...]], journal: JobJournal) -> dict[str, int]:
    """Return how many sentences edits change or confirm, and how many of the user's own sentences they replace."""
    changed = [number for number, target, *_ in edits if target is not None]
    return {
        "changed": len(changed),
        "replaced": sum(journal.sentences[number].edited for number in changed),
        "confirmed": sum(is_confirmed for *_, is_confirmed, _ in edits),
    }
