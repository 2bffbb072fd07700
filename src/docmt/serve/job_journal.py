"""The journal of a job: every part of its translation and every change of the user.

The journal is all that a job knows. Its lines, JSON objects, are read again after a restart. Each is synced to the disk
before anything else sees it. It is also the log of events: each sentence of a line is the next event.

    {"context": ["source", ...]}                                  first line: sentences before the first document
    {"document": 0, "sentences": [...], "context": ["target", ...], "resume": [sentences, history]}     a part
    {"edits": [[7, "target", [findings], confirmed, [links]], ...], "retranslate": true}      all are undone at once
    {"machine": 7}                                                an edited sentence gets the machine's translation back
    {"confirm": 7, "confirmed": true}                             the user has read it, or takes that back
    {"terms": [["source", ["target", ...], [forbidden], keep, case], ...], "mode": "require", "uses": [[7, [...]], ...]}
                                                                  terms, and what became of them in the sentences;
                                                                  `undoable` is false where the document came with them
    {"undo": true}                                                the last change of the user that holds is taken back
    {"stop": true}                                                translations after an edit stay as they were

A part has an object for each sentence, with `number` and, if it has no translation, `error`; its `terms`, if any, are
those of `TermUse`. `context` has translations of context sentences. `resume` is the `ResumePoint` of the document, if
the engine can go on from there. A part of a search for terms has the numbers of its sentences in `searched`. An edit
without a target only changes the state of its sentence; its links, if any, put the codes where the user had them.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, chain, count
from math import exp
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes, write_all, write_error
from docmt.decoding.term_report import UNMET, count_statuses, join_uses, make_rows, render_rows, review_terms
from docmt.decoding.translation_results import EngineUse, ResumePoint, TermUse, sum_uses
from docmt.documents import Document
from docmt.serve.file_process import FileContents
from docmt.terms import Glossary, Term
from docmt.terms.matching import TermMode

Links = list[list[int]]
"""Word links of a sentence: source and target characters (first, one after the last), and 1 if mutual, else 0."""
Uses = list[tuple[int, list[dict[str, Any]]]]
"""Sentences, by number, with the fields of the `TermUse` of each term."""
FAILED = "failed"
"""Warning of a sentence without a translation, which keeps its source."""
_SHOWN = ("target", "score", "tokens", "warnings", "edited", "confirmed", "findings", "match")
"""Of the state of a sentence, as it is shown."""
_MAX_CHANGES = 100
"""Changes of a job that can be undone."""


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
    terms: list[TermUse] = field(default_factory=list)
    """terms of glossaries in it"""
    links: Links | None = None
    code_links: Links | None = None
    """links that put the codes where the user had them"""
    error: str = ""
    edited: bool = False
    confirmed: bool = False
    """whether the user has read it and found it right"""
    machine: JobSentence | None = None
    """the last state of an edited sentence that the user did not write"""
    match: int = 0
    """match quality of what a memory gave, see `Review`"""
    stale: bool = True
    """whether it is to be translated, for the first time or again"""

    @property
    def visible(self) -> tuple[object, ...]:
        """Text and state, as a person sees them."""
        return self.target, self.edited, self.confirmed, self.code_links

    @property
    def is_fixed(self) -> bool:
        """Whether it is never translated again, as it is the user's."""
        return self.edited or self.confirmed


@dataclass(frozen=True)
class Change:
    """A change of the user, with what is needed to undo it."""

    line: int
    """of the journal, by which it is known"""
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

    def __init__(
        self, path: Path, contents: FileContents, languages: tuple[str, str] = ("", ""), events: int | None = None
    ) -> None:
        """Read the journal, if it exists; an incomplete last line of a killed process is dropped.

        languages: of the terms. events: see `read_earlier`. Raises DocmtError for a damaged journal.
        """
        self._path, self.contents, self._languages = path, contents, languages
        self.sources = [sentence for document in contents.documents for sentence in document.sentences]
        self.starts = [0, *accumulate(map(len, contents.documents))]
        """number of the first sentence of each document, and of all sentences"""
        self.sentences = [JobSentence() for _ in self.sources]
        self.events: list[int] = []
        """number of the sentence that each event changed; event ids begin with 1"""
        self.versions = Counter[int]()
        """changes of the text or the state of each sentence, by its number"""
        self.edits = 0
        """edits after which sentences are translated again, and those that were undone"""
        self.changes: deque[Change] = deque(maxlen=_MAX_CHANGES)
        """changes that can be undone, the last one at the end"""
        self.engine_use: EngineUse | None = None
        """what servers took for all translations so far, also for those that were replaced"""
        self.terms: list[tuple[Sequence[Sequence[Any]], TermMode]] = []
        """of the user, the latest ones at the end: the first fields of each `Term`"""
        self.context: list[str] = []
        self._sought: set[int] = set()
        self._context_targets: list[str] = []
        self._points: dict[int, ResumePoint] = {}
        self._latest: dict[int, int] = {}
        self._lines = 0
        self._first = 0  # no sentence before it is to be translated
        self._read(events)

    def _read(self, events: int | None) -> None:
        if not self._path.exists():
            return
        data = read_bytes(self._path)
        complete = data.rfind(b"\n") + 1
        if complete < len(data) and events is None:
            os.truncate(self._path, complete)
        try:
            for line in data[:complete].splitlines():
                if events is not None and len(self.events) >= events:
                    break
                self._apply(json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DocmtError("the journal of this document is damaged: translate it again") from error

    def read_earlier(self, events: int) -> JobJournal:
        """Return the state after so many events, to which nothing is added."""
        return JobJournal(self._path, self.contents, self._languages, events)

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
        self._lines += 1
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
            self._sought.difference_update(line.get("searched", ()))
            self._context_targets += line.get("context", [])
            self._points.pop(line["document"], None)
            if "resume" in line:
                self._points[line["document"]] = ResumePoint(*line["resume"])

    def _apply_sentence(self, number: int, target: str = "", error: str = "", **values: Any) -> None:
        if engine := values.pop("engine", None):
            self.engine_use = sum_uses([self.engine_use, EngineUse(**engine)])
        values["terms"] = [TermUse(**use) for use in values.get("terms", ())]
        sentence = JobSentence(target, error=error, stale=False, **values)
        if error:
            sentence.target, sentence.warnings = self.sources[number], [FAILED]
        if (old := self.sentences[number]).target is not None:
            cause = next((change for change in reversed(self.changes) if number in change), None)
            if cause is not None:
                cause.replaced.setdefault(number, old)
        self._replace(number, sentence)

    def _apply_edits(self, edits: list[tuple[Any, ...]], retranslate: bool) -> None:
        edited = {number: self._edit(self.sentences[number], *values) for number, *values in edits}
        first = min(edited)
        end = self.starts[self.find_document(first) + 1] if retranslate else 0
        self._change(edited, end)
        if retranslate:
            self._restart(first)
            for sentence in self.sentences[first + 1 : end]:
                sentence.stale = not sentence.is_fixed

    def _apply_terms(self, terms: list[list[Any]], mode: TermMode, uses: Uses, undoable: bool = True) -> None:
        changed = {
            number: replace(old, terms=join_uses(old.terms, (TermUse(**use) for use in each)))
            for number, each in uses
            if (old := self.sentences[number]).target is not None
        }
        if not uses:
            return
        first, last = uses[0][0], uses[-1][0]
        if undoable:
            self._change(changed, last + 1, first)
        self.terms.append((terms, mode))
        self._sought |= {number for number, each in uses if any(use["status"] in UNMET for use in each)}
        self._restart(first)

    def _edit(
        self,
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
        new.terms = review_terms(old.terms, target, self._languages)
        return replace(new, confirmed=confirmed, code_links=code_links, stale=False)

    def _change(self, changed: Mapping[int, JobSentence], end: int = 0, first: int | None = None) -> None:
        """Replace sentences for the user. first, end: of the sentences that are translated again, if any."""
        first = min(changed) if first is None else first
        stale = bytes(each.stale for each in self.sentences[first : max(end, 1 + max(changed, default=first))])
        replaced = {number: self.sentences[number] for number in changed}
        self.changes.append(Change(self._lines, first, replaced, stale, frozenset(self._sought), len(self.terms)))
        for number, sentence in changed.items():
            self._replace(number, sentence)
        self._first = min(self._first, first)

    def _undo(self, change: Change) -> None:
        for number, sentence in change.replaced.items():
            self._replace(number, sentence)
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

    def _replace(self, number: int, sentence: JobSentence) -> None:
        """Give a sentence another state. It is another version if a person sees a difference."""
        self.versions[number] += self.sentences[number].visible != sentence.visible
        self.sentences[number] = sentence
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
        head = {"number": number, "version": self.versions[number], "paragraph": self.contents.paragraphs[number]}
        state = {name: getattr(sentence, name) for name in _SHOWN}
        return head | {"source": self.sources[number]} | state | {"terms": list(map(asdict, sentence.terms))}

    @property
    def last_change(self) -> int:
        """The change that is undone next, by its line of the journal; 0: there is none."""
        return self.changes[-1].line if self.changes else 0

    def count_all(self) -> dict[str, Any]:
        """Return the counts of a `JobRecord`."""
        use = asdict(self.engine_use) if self.engine_use else {}
        terms = count_statuses(use.status for sentence in self.sentences for use in sentence.terms)
        counts = {"finished": self.finished, "edited": self.edited, "terms": terms, "engine": use}
        return counts | {"last_change": self.last_change}

    def render_terms(self, name: str) -> str:
        """Return the report of the terms (docs/terms.md). name: of the document."""
        triples = zip(count(1), self.sources, self.sentences, strict=False)
        rows = (make_rows(name, n, source, each.target or "", each.terms) for n, source, each in triples)
        return render_rows(chain.from_iterable(rows))

    def count_after(self, number: int) -> int:
        """Return the number of characters that are translated again after an edit of a sentence."""
        numbers = range(number + 1, self.starts[self.find_document(number) + 1])
        return sum(len(self.sources[each]) for each in numbers if not self.sentences[each].is_fixed)

    def list_events(self, after: int) -> list[tuple[int, int]]:
        """Return id and sentence of the events after an id, without those that a later one replaces."""
        ids = range(after + 1, len(self.events) + 1)
        return [(id, self.events[id - 1]) for id in ids if self._latest[self.events[id - 1]] == id]

    def list_records(self, restored: Collection[int] = ()) -> list[dict[str, Any]]:
        """Return the record of each sentence, as `FileProcess.write` takes them.

        restored: edited sentences that have the machine's version there.
        """
        records = []
        for number, present in enumerate(self.sentences):
            sentence = (present.machine if number in restored else present) or present
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

    def join_terms(self) -> list[tuple[Glossary, TermMode]]:
        """Return all terms of the user, of those with one source the latest; required ones win over others."""
        latest = {row[0]: (row, mode) for rows, mode in self.terms for row in rows}
        terms: dict[TermMode, list[Term]] = {"require": [], "prefer": []}
        for (source, targets, forbidden, *rest), mode in latest.values():
            terms[mode].append(Term(source, tuple(targets), tuple(forbidden), *rest))
        return [(Glossary(self._languages, tuple(each)), mode) for mode, each in terms.items() if each]

    def list_sought(self) -> list[int]:
        """Return the translated sentences that are to be searched for terms; those of the user stay."""
        each = self.sentences
        return [n for n in sorted(self._sought) if not (each[n].stale or each[n].is_fixed or each[n].error)]

    @property
    def is_whole(self) -> bool:
        """Whether no sentence is to be translated, or searched for terms."""
        return self._find_stale() == len(self.sentences) and not self.list_sought()

    def _find_stale(self) -> int:
        """Return the first sentence that is to be translated; the number of all if there is none."""
        while self._first < len(self.sentences) and not self.sentences[self._first].stale:
            self._first += 1
        return self._first

    def list_plans(self, count: int) -> list[TranslationPlan]:
        """Return what is to be translated next, in at most `count` documents.

        Sentences that the user wrote are never translated again. They are context for those after them.
        """
        plans: list[TranslationPlan] = []
        number = self._find_stale()
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
        marked = (*self.context, *whole.marked) if whole.marked else ()
        return Document((*self.context, *whole.sentences), gaps, whole.id, marked)


def _describe_review(sentence: JobSentence) -> dict[str, Any]:
    """Return the fields of a `Review`."""
    machine = (sentence.machine if sentence.edited else sentence) or sentence
    review: dict[str, Any] = {name: getattr(sentence, name) for name in ("edited", "confirmed", "match")}
    review["notes"] = [name.replace("_", " ") for name in sentence.warnings] + sentence.findings
    if machine.tokens and machine.score is not None:
        review |= {"machine": machine.target, "quality": 100 * exp(machine.score / machine.tokens)}
    return review
