"""The journal of a job, every part of its translation and every edit, and the translation of what it lacks.

The journal is all that a job knows. Its lines, JSON objects, are read again after a restart. Each is synced to the disk
before anything else sees it. It is also the log of events: each sentence of a line is the next event.

    {"context": ["source", ...]}                                  first line: sentences before the first document
    {"document": 0, "sentences": [...], "context": ["target", ...], "resume": [sentences, history]}     a part
    {"edits": [[7, "target", [findings], confirmed, [links]], ...], "retranslate": true}      all are undone at once
    {"machine": 7}                                                an edited sentence gets the machine's translation back
    {"confirm": 7, "confirmed": true}                             the user has read it, or takes that back
    {"terms": [["source", ["target", ...], [forbidden], keep, case], ...], "mode": "require",
     "numbers": [7, 8, ...], "lacking": [8, ...]}                 terms, sentences that have them, and lack them now
    {"undo": true}                                                the last change of the user that holds is taken back
    {"stop": true}                                                translations after an edit stay as they were

A part has an object for each sentence, with `number` and, if it has no translation, `error`. `context` has translations
of context sentences. An edit without a target only changes the state of its sentence; its links, if any, put the codes
where the user had them. `resume` is the `ResumePoint` of the document, if the engine can go on from there. A part of a
search for terms has the numbers of its sentences in `searched`, and only those that it changed in `sentences`.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

from docmt.checking import CheckConfig, check_documents
from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes, write_all, write_error
from docmt.decoding.translation_results import PartialTranslation, ResumePoint, WordLink
from docmt.documents import Document, ParallelDocument
from docmt.formats.language_codes import primary_language
from docmt.serve.engine import Engine, Overloaded
from docmt.serve.file_process import FileContents
from docmt.serve.job_store import JobFacts
from docmt.serve.work_queue import Lane, Work
from docmt.terms import Glossary, Term
from docmt.terms.matching import TermMode

Links = list[list[int]]
"""Word links of a sentence: source and target characters (first, one after the last), and 1 if mutual, else 0."""
FAILED = "failed"
"""Warning of a sentence without a translation, which keeps its source."""
CHECKED_KINDS = ("empty", "untranslated", "loop", "number", "url", "placeholder", "bracket")
"""Checks of single sentences."""
_DIGITS = 4
_AHEAD = 16
"""Documents of a job that wait in the engine."""
_MAX_CHANGES = 100
"""Changes of a job that can be undone."""
_AROUND = 64
"""Sentences before those that are searched for terms, and after these, that are read with them."""
_SHORT = 200
"""Sentences of a job whose user waits for it: a pasted text, a letter, a report."""


@dataclass
class JobSentence:
    """The present state of a sentence."""

    target: str | None = None
    """None: not translated yet"""
    score: float | None = None
    """log-probability (nats); None: failed, or written by the user"""
    tokens: int = 0
    warnings: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    links: Links | None = None
    code_links: Links | None = None
    """links that put the codes where the user had them"""
    error: str = ""
    edited: bool = False
    confirmed: bool = False
    """whether the user has read it and found it right"""
    machine: JobSentence | None = None
    """the last state of an edited sentence that the user did not write"""
    stale: bool = True
    """whether it is to be translated, for the first time or again"""

    @property
    def is_fixed(self) -> bool:
        """Whether it is never translated again, as it is the user's."""
        return self.edited or self.confirmed


class UserTerms(NamedTuple):
    """Terms of the user for a document."""

    terms: Sequence[Sequence[Any]]
    """the first fields of each `Term`"""
    mode: TermMode
    numbers: frozenset[int]
    """sentences that have them"""


@dataclass(frozen=True)
class Change:
    """A change of the user, with what is needed to undo it."""

    first: int
    """number of the first sentence"""
    replaced: dict[int, JobSentence]
    """those that it changed, and those that were translated again because of it, as they were before"""
    stale: bytes
    """1 for each sentence from the first one on that was to be translated before, as far as the change reaches"""
    sought: frozenset[int]
    """sentences that were to be searched for terms before"""
    terms: int
    """`JobJournal.terms` before"""

    def __contains__(self, number: int) -> bool:
        return self.first <= number < self.first + len(self.stale)


@dataclass(frozen=True)
class TranslationPlan:
    """What the engine is asked next: the sentences first .. last - 1 of a document."""

    document: int
    source: Document
    """the document, after the context if it is the first"""
    shift: int
    """number of a sentence in the job, minus its number in `source`"""
    resume_point: ResumePoint | None
    targets: tuple[str, ...]
    """translations of the sentences of `source` before those to be translated, unless the engine resumes"""


class JobJournal:
    """The sentences of a job, with the file that all their changes are written to."""

    def __init__(self, path: Path, contents: FileContents) -> None:
        """Read the journal, if it exists; an incomplete last line of a killed process is dropped.

        Raises DocmtError for a damaged one.
        """
        self._path, self.contents = path, contents
        self.sources = [sentence for document in contents.documents for sentence in document.sentences]
        self.starts = [0, *accumulate(map(len, contents.documents))]
        """number of the first sentence of each document, and of all sentences"""
        self.sentences = [JobSentence() for _ in self.sources]
        self.events: list[int] = []
        """number of the sentence that each event changed; event ids begin with 1"""
        self.edits = 0
        """edits after which sentences are translated again, and those that were undone"""
        self.changes: deque[Change] = deque(maxlen=_MAX_CHANGES)
        """changes that can be undone, the last one at the end"""
        self.terms: list[UserTerms] = []
        """of the user, the latest ones at the end"""
        self.context: list[str] = []
        self._sought: set[int] = set()
        self._context_targets: list[str] = []
        self._points: dict[int, ResumePoint] = {}
        self._latest: dict[int, int] = {}
        self._first = 0  # no sentence before it is to be translated
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        data = read_bytes(self._path)
        complete = data.rfind(b"\n") + 1
        if complete < len(data):
            os.truncate(self._path, complete)
        try:
            for line in data[:complete].splitlines():
                self._apply(json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DocmtError("the journal of this document is damaged: translate it again") from error

    def append(self, line: dict[str, Any]) -> None:
        """Write a line, synced to the disk, and apply it. Raises DocmtError if it cannot be written."""
        data, size = json.dumps(line).encode() + b"\n", 0
        try:
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                write_all(file, data)
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._path, size)  # half a line would spoil the next one
            raise write_error(self._path.name, error) from error
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        if "edits" in line:
            self._apply_edits(**line)
        elif "machine" in line:
            machine = self.sentences[line["machine"]].machine or JobSentence()
            self._change({line["machine"]: replace(machine, confirmed=False, stale=machine.target is None)})
        elif "confirm" in line:
            number = line["confirm"]
            self._change({number: replace(self.sentences[number], confirmed=line["confirmed"], stale=False)})
        elif "terms" in line:
            self._apply_terms(**line)
        elif "undo" in line:
            self._undo(self.changes.pop())
        elif "stop" in line:
            for sentence in self.sentences:
                sentence.stale = sentence.target is None
            self._sought.clear()
        elif "document" not in line:
            self.context = line["context"]
        else:
            for row in line["sentences"]:
                self._apply_sentence(**row)
            self._sought |= {row["number"] for row in line["sentences"]} & self._with_terms
            self._sought.difference_update(line.get("searched", ()))
            self._context_targets += line.get("context", [])
            self._points.pop(line["document"], None)
            if "resume" in line:
                self._points[line["document"]] = ResumePoint(*line["resume"])

    def _apply_sentence(self, number: int, target: str = "", error: str = "", **values: Any) -> None:
        sentence = JobSentence(target, error=error, stale=False, **values)
        if error:
            sentence.target, sentence.warnings = self.sources[number], [FAILED]
        if (old := self.sentences[number]).target is not None:
            cause = next((change for change in reversed(self.changes) if number in change), None)
            if cause is not None:
                cause.replaced.setdefault(number, old)
        self.sentences[number] = sentence
        self._log(number)

    def _apply_edits(self, edits: list[tuple[Any, ...]], retranslate: bool) -> None:
        edited = {number: self._edit(self.sentences[number], *values) for number, *values in edits}
        first = min(edited)
        end = self.starts[self.find_document(first) + 1] if retranslate else 0
        self._change(edited, end)
        if retranslate:
            self._restart(first)
            for sentence in self.sentences[first + 1 : end]:
                sentence.stale = not sentence.is_fixed

    def _apply_terms(
        self, terms: list[list[Any]], mode: TermMode, numbers: Sequence[int], lacking: Sequence[int]
    ) -> None:
        if any(each.target is not None for each in self.sentences):  # else the document begins with them
            self._note_change(min(numbers), max(numbers) + 1, ())
        self.terms.append(UserTerms(terms, mode, frozenset(numbers)))
        self._sought.update(lacking)
        self._restart(min(numbers))

    @property
    def _with_terms(self) -> frozenset[int]:
        """Sentences that have terms of the user."""
        return frozenset().union(*(each.numbers for each in self.terms))

    @staticmethod
    def _edit(
        old: JobSentence,
        target: str | None,
        findings: list[str],
        confirmed: bool = False,
        code_links: Links | None = None,
    ) -> JobSentence:
        """Return an edited sentence. Without a target, only its state is another. The machine's text is no edit."""
        if target is None:
            return replace(old, confirmed=confirmed, stale=False)
        machine = old.machine if old.edited else old
        if machine and target == machine.target and not machine.error and code_links is None:
            return replace(machine, confirmed=confirmed, stale=False)
        new = JobSentence(target, findings=findings, edited=True, machine=machine)
        return replace(new, confirmed=confirmed, code_links=code_links, stale=False)

    def _change(self, changed: Mapping[int, JobSentence], end: int = 0) -> None:
        """Replace sentences for the user. end: of the sentences that are translated again, if any."""
        first = min(changed)
        self._note_change(first, max(end, max(changed) + 1), changed)
        for number, sentence in changed.items():
            self.sentences[number] = sentence
            self._log(number)
        self._first = min(self._first, first)

    def _note_change(self, first: int, end: int, changed: Collection[int]) -> None:
        """Keep what is needed to undo a change of these sentences, and of others from `first` to before `end`."""
        stale = bytes(each.stale for each in self.sentences[first:end])
        replaced = {number: self.sentences[number] for number in changed}
        self.changes.append(Change(first, replaced, stale, frozenset(self._sought), len(self.terms)))

    def _undo(self, change: Change) -> None:
        for number, sentence in change.replaced.items():
            self.sentences[number] = sentence
            self._log(number)
        for number, is_stale in enumerate(change.stale, change.first):
            self.sentences[number].stale = bool(is_stale)
        self._sought = set(change.sought)
        del self.terms[change.terms :]
        self._restart(change.first)

    def _restart(self, number: int) -> None:
        """Translate from a sentence on, whatever is being translated now."""
        self.edits += 1
        self._points.pop(self.find_document(number), None)
        self._first = min(self._first, number)

    def _log(self, number: int) -> None:
        self.events.append(number)
        self._latest[number] = len(self.events)

    def find_document(self, number: int) -> int:
        """Return the document of a sentence, from 0."""
        return bisect_right(self.starts, number) - 1

    @property
    def finished(self) -> int:
        """Number of sentences with an up-to-date translation."""
        return sum(not sentence.stale for sentence in self.sentences) - len(self.list_sought())

    @property
    def edited(self) -> int:
        """Number of sentences that the user wrote."""
        return sum(sentence.edited for sentence in self.sentences)

    def describe(self, number: int) -> dict[str, Any]:
        """Return a sentence as values for JSON; its target is None until it is translated."""
        sentence = self.sentences[number]
        return {
            "number": number,
            "paragraph": self.contents.paragraphs[number],
            "source": self.sources[number],
            "target": sentence.target,
            "score": sentence.score,
            "tokens": sentence.tokens,
            "warnings": sentence.warnings,
            "edited": sentence.edited,
            "confirmed": sentence.confirmed,
            "findings": sentence.findings,
        }

    def count_after(self, number: int) -> int:
        """Return the number of characters that are translated again after an edit of a sentence."""
        numbers = range(number + 1, self.starts[self.find_document(number) + 1])
        return sum(len(self.sources[each]) for each in numbers if not self.sentences[each].is_fixed)

    def list_events(self, after: int) -> list[tuple[int, int]]:
        """Return id and sentence of the events after an id, without those that a later one replaces."""
        ids = range(after + 1, len(self.events) + 1)
        return [(id, self.events[id - 1]) for id in ids if self._latest[self.events[id - 1]] == id]

    def list_records(self) -> list[dict[str, Any]]:
        """Return the record of each sentence, as `FileProcess.write` takes them."""
        records = []
        for number, sentence in enumerate(self.sentences):
            row: dict[str, Any] = {"document": self.find_document(number)}
            if sentence.error or sentence.target is None:
                row["error"] = sentence.error
            else:
                row |= {"target": sentence.target, "score": sentence.score, "review": _describe_review(sentence)}
                if (links := sentence.code_links or sentence.links) is not None:
                    row["links"] = [link[:4] for link in links]
            records.append(row)
        return records

    def list_targets(self, document: int, last: int) -> tuple[str, ...]:
        """Return the translations of a document before the sentence `last`, those of its context first."""
        context = self._context_targets if document == 0 else []
        sentences = self.sentences[self.starts[document] : last]
        return (*context, *("" if each.error else each.target or "" for each in sentences))

    def join_terms(self) -> tuple[Term, ...]:
        """Return all terms of the user; of those with one source, the latest."""
        rows = {row[0]: row for each in self.terms for row in each.terms}
        return tuple(Term(source, tuple(targets), tuple(bad), *rest) for source, targets, bad, *rest in rows.values())

    def list_sought(self) -> list[int]:
        """Return the translated sentences that are to be searched for terms; those of the user stay."""
        each = self.sentences
        return [n for n in sorted(self._sought) if not (each[n].stale or each[n].is_fixed or each[n].error)]

    @property
    def is_whole(self) -> bool:
        """Whether no sentence is to be translated, or searched for terms."""
        return self._is_translated and not self.list_sought()

    @property
    def _is_translated(self) -> bool:
        while self._first < len(self.sentences) and not self.sentences[self._first].stale:
            self._first += 1
        return self._first == len(self.sentences)

    def list_plans(self, count: int) -> list[TranslationPlan]:
        """Return what is to be translated next, in at most `count` documents.

        Sentences that the user wrote are never translated again. They are context for those after them.
        """
        plans: list[TranslationPlan] = []
        number = len(self.sentences) if self._is_translated else self._first
        while number < len(self.sentences) and len(plans) < count:
            document = self.find_document(number)
            if self.sentences[number].stale:
                plans.append(self._make_plan(document, number))
                number = self.starts[document + 1]
            else:
                number += 1
        return plans

    def _make_plan(self, document: int, first: int) -> TranslationPlan:
        source, start = self.extend(document), self.starts[document]
        shift = self.starts[document + 1] - len(source)
        point, position = self._points.get(document), first - shift
        # Otherwise the user wrote the sentences in between.
        if point is not None and point.sentences != position and not (first == start and point.sentences < position):
            point = None
        targets = () if point is not None else self.list_targets(document, first)
        return TranslationPlan(document, source, shift, point, targets)

    def extend(self, document: int) -> Document:
        """Return a document, after the sentences of the context if it is the first."""
        whole = self.contents.documents[document]
        if document or not self.context:
            return whole
        gaps = ("", *[" "] * (len(self.context) - 1), "\n\n" + whole.gaps[0], *whole.gaps[1:])
        return Document((*self.context, *whole.sentences), gaps, whole.id)


def _describe_review(sentence: JobSentence) -> dict[str, Any]:
    """Return the fields of a `Review`."""
    machine = (sentence.machine if sentence.edited else sentence) or sentence
    review: dict[str, Any] = {"edited": sentence.edited, "confirmed": sentence.confirmed}
    review["notes"] = [name.replace("_", " ") for name in sentence.warnings] + sentence.findings
    if machine.tokens and machine.score is not None:
        review |= {"machine": machine.target, "quality": 100 * exp(machine.score / machine.tokens)}
    return review


def choose_lane(facts: JobFacts) -> Lane:
    """Return the lane of the engine for a job: a short one does not wait for the long ones."""
    return "interactive" if facts.sentences <= _SHORT else "jobs"


async def translate_job(
    engine: Engine, facts: JobFacts, journal: JobJournal, on_change: Callable[[], None], owner: str = ""
) -> None:
    """Translate all sentences that are to be translated, document by document.

    owner: id of a key. on_change: called after each part. Raises DocmtError if the engine cannot translate at all, or
    for a full disk.
    """
    while not journal.is_whole:
        if journal.list_sought():
            await search_terms(engine, facts, journal)
            on_change()
            continue
        events = len(journal.events)
        works: deque[tuple[TranslationPlan, Work]] = deque()
        try:
            while plans := journal.list_plans(_AHEAD):
                # The next documents wait in the engine, so that short ones are translated together.
                works += [(plan, submit_plan(engine, facts, journal, plan, owner)) for plan in plans[len(works) :]]
                if not await _write_parts(facts, journal, *works.popleft(), on_change):
                    break
        finally:
            for _, work in works:
                work.cancel()
        if len(journal.events) == events:
            raise DocmtError("the engine returned no translation")


def submit_plan(engine: Engine, facts: JobFacts, journal: JobJournal, plan: TranslationPlan, owner: str = "") -> Work:
    """Start the translation of a document, or of its rest. Where too many texts wait, it goes to the lane of jobs."""
    lane = choose_lane(facts)
    if lane == "interactive":
        try:
            engine.check_room(facts.model, owner)
        except Overloaded:
            lane = "jobs"
    return engine.submit(
        facts.model,
        plan.source,
        align=lambda position: position + plan.shift in journal.contents.aligned,
        resume_point=plan.resume_point,
        targets=plan.targets,
        lane=lane,
        owner=owner,
    )


async def _write_parts(
    facts: JobFacts, journal: JobJournal, plan: TranslationPlan, work: Work, on_change: Callable[[], None]
) -> bool:
    """Write the parts of a document to the journal. Return whether the document is whole, and no edit came between."""
    edits = journal.edits
    try:
        async for part in work.parts():
            if journal.edits != edits:  # the part was translated after other sentences
                return False
            line, is_whole = describe_part(part, plan, journal, facts)
            journal.append(line)
            on_change()
            if not is_whole:
                return False
    finally:
        work.cancel()
    last = journal.starts[plan.document + 1] - 1
    return journal.edits == edits and not journal.sentences[last].stale


def describe_part(
    part: PartialTranslation, plan: TranslationPlan, journal: JobJournal, facts: JobFacts
) -> tuple[dict[str, Any], bool]:
    """Return the line of the journal for a part, and whether it has all sentences of the part.

    A part ends before a sentence that the user wrote.
    """
    start, first = journal.starts[plan.document], part.first + plan.shift
    last = first + len(part.source)
    end = next((number for number in range(max(first, start), last) if not journal.sentences[number].stale), last)
    rows = _describe_sentences(part, first, journal)[: end - first]
    line: dict[str, Any] = {"document": plan.document, "sentences": rows[max(0, start - first) :]}
    if first < start:
        line["context"] = [row.get("target", "") for row in rows[: start - first]]
    _add_findings([row for row in line["sentences"] if "target" in row], journal, facts)
    if end == last:
        history = [[list(map(int, words)) for words in each] for each in part.resume_point.history]
        line["resume"] = [part.resume_point.sentences, history]
    return line, end == last


def _add_findings(rows: Sequence[dict[str, Any]], journal: JobJournal, facts: JobFacts) -> None:
    """Add findings to the values of translated sentences."""
    findings = check_pairs([(journal.sources[row["number"]], row["target"]) for row in rows], facts)
    for row, messages in zip(rows, findings, strict=True):
        row["findings"] = messages


async def search_terms(engine: Engine, facts: JobFacts, journal: JobJournal) -> None:
    """Search the next sentences again for terms of the user, among those around them.

    Sentences that the user changed meanwhile stay.
    """
    sought = journal.list_sought()
    document, edits = journal.find_document(sought[0]), journal.edits
    whole, end = journal.extend(document), journal.starts[document + 1]
    shift, targets = end - len(whole), journal.list_targets(document, end)
    first, last = max(sought[0] - shift - _AROUND, 0), min(sought[0] - shift + 2 * _AROUND, len(whole))
    numbers = [n for n in sought if n < min(sought[0] + _AROUND, end)]
    scores = {n - shift - first: (journal.sentences[n].score or 0.0, journal.sentences[n].tokens) for n in numbers}
    glossary = Glossary((facts.source_language, facts.target_language), journal.join_terms())
    source, mode = whole.slice(first, last), journal.terms[-1].mode
    found = await engine.search_terms(facts.model, source, targets[first:last], scores, glossary, mode)
    if journal.edits != edits:
        return
    rows = []
    for number, old in ((n, journal.sentences[n]) for n in numbers if not journal.sentences[n].is_fixed):
        new = found.get(number - shift - first)
        if new is not None and new.target != old.target:
            score = round(float(new.score), _DIGITS)
            row = {"number": number, "target": new.target, "score": score, "tokens": new.tokens}
            rows.append(row | {"warnings": old.warnings})
    _add_findings(rows, journal, facts)
    journal.append({"document": document, "sentences": rows, "searched": numbers})


def _describe_sentences(part: PartialTranslation, first: int, journal: JobJournal) -> list[dict[str, Any]]:
    """Return the values of each sentence of a part; first: number of the first one."""
    translation = part.translation
    if translation is None:
        return [{"number": first + index, "error": str(part.error)} for index in range(len(part.source))]
    rows = []
    for number, (sentence, warnings) in enumerate(zip(translation, translation.warnings(), strict=True), first):
        row = {"number": number, "target": sentence.target, "tokens": sentence.tokens, "warnings": warnings}
        row["score"] = round(float(sentence.score), _DIGITS)  # further digits depend on the batch
        if sentence.alignment is not None and number in journal.contents.aligned:
            row["links"] = list_links(sentence.alignment)
        rows.append(row)
    return rows


def list_links(alignment: Sequence[WordLink]) -> Links:
    """Return word links as values for JSON."""
    return [[*map(int, (*link.source, *link.target, link.mutual))] for link in alignment]


def check_pairs(pairs: Sequence[tuple[str, str]], facts: JobFacts) -> list[list[str]]:
    """Return the findings of `docmt check` in each pair of sentences, as short texts."""
    findings: list[list[str]] = [[] for _ in pairs]
    if pairs:
        codes = primary_language(facts.source_language), primary_language(facts.target_language)
        sources, targets = zip(*pairs, strict=True)
        document = ParallelDocument("", sources, targets)
        for finding in check_documents([document], CheckConfig(*codes), kinds=CHECKED_KINDS).findings:
            findings[finding.sentences[0].sentence - 1].append(f"{finding.kind}: {finding.message}")
    return findings
