"""What a server is asked: sentences until an answer is a translation, and the next ones of a document."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from docmt.core.errors import DocmtError
from docmt.decoding.document_translator import TOKEN_CHARACTERS
from docmt.decoding.long_sentences import place_sentences
from docmt.decoding.term_report import judge_terms
from docmt.decoding.translation_results import (
    EngineUse,
    PartialTranslation,
    PreparedDocument,
    ResumePoint,
    TermUse,
    TranslatedSentence,
    Translation,
)
from docmt.documents import Document, unwrap_lines
from docmt.documents.protected_text import Protected, find_protected
from docmt.documents.words import has_letters, overlaps
from docmt.engines.answers import clean_answer, find_fault, find_losses, is_copy
from docmt.engines.http_client import FailedRequest, RefusedRequest, Server
from docmt.engines.profile import EngineProfile
from docmt.engines.services import Answer, Question, Turn, make_request
from docmt.terms.matching import Occurrence, TermMatcher

ASKED_AGAIN = ("lost", "forbidden")
"""States of terms for which a sentence is asked again."""
_MOST_QUESTIONS = 3
"""Requests for a sentence whose answers are wrong."""


class UntranslatedSentence(DocmtError):  # noqa: N818 - it is no fault of docmt
    """No answer of a server for a sentence is a translation."""

    def __init__(self, message: str, engine: EngineUse) -> None:
        """engine: what the answers took."""
        super().__init__(message)
        self.engine = engine


@dataclass(frozen=True)
class SentenceRequests:
    """Translates sentences one by one. Safe for threads."""

    server: Server
    patterns: tuple[str, ...] | None = ()
    """of text that stays as it is; None: neither protected text nor numbers are looked for"""
    terms: TermMatcher | None = None

    @property
    def profile(self) -> EngineProfile:
        """The profile of the server."""
        return self.server.profile

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target code."""
        return self.profile.languages

    @property
    def reads_targets(self) -> bool:
        """Whether a sentence waits for the translations of earlier ones."""
        return self.profile.context.sentences > 0 and self.profile.kind != "deepl"

    def translate(
        self, source: str, question: Question, cancelled: threading.Event
    ) -> tuple[TranslatedSentence, Sequence[str]]:
        """Return the translation of a sentence, and what it lacks. Raises DocmtError if no answer is one."""
        occurrences, use, fault = self.find_terms(source), EngineUse(self.profile.name), ""
        best, losses, rank, previous, failures = None, list[str](), (0, 0), None, 0
        for attempt in range(_MOST_QUESTIONS):
            if attempt:
                question = Question(question.text, question.terms, fault=fault)  # apart from its document
            path, body = make_request(self.profile, question)
            if attempt and "seed" in body:
                body["seed"] = self.profile.seed + attempt
            if body == previous and (best is not None or attempt > 1):
                break  # the server would say the same
            previous = body
            try:
                answer, is_new = self.server.ask(path, body, cancelled)
            except RefusedRequest as error:
                fault, use = str(error), use + self.server.price(Answer(""))
                failures += isinstance(error, FailedRequest)
                continue
            use = use + self.server.price(answer) if is_new else use
            text = clean_answer(answer.text, question.text)
            if fault := find_fault(answer, text, question.text, self.languages):
                self.server.forget(path, body)
                continue
            lacks = [] if self.patterns is None else find_losses(source, text, self.languages, self.patterns)
            if is_copy(text, question.text, self.languages):  # kept if the server stays with it, and reported
                lacks = ["a translation", *lacks]
            uses = self.check_terms(occurrences, text, source, attempt)
            unmet = [each for each in uses if each.status in ASKED_AGAIN]
            if best is None or (len(lacks), len(unmet)) < rank:
                # What was cut off the answer is in its log-probability, too.
                scores = answer.scores if text == answer.text.strip() else ()
                best = replace(make_sentence(source, text), score=sum(scores, 0.0), tokens=len(scores))
                best, losses, rank = replace(best, terms=tuple(uses)), lacks, (len(lacks), len(unmet))
            if not any(rank):
                break
            wanted = [f"{use.term} = {' | '.join(use.wanted)}" for use in unmet if use.wanted]
            forbidden = [text for each in occurrences if not each.term.targets for text in each.term.forbidden]
            faults = {"it lacks or adds": lacks, "it lacks": wanted, "it may not have": forbidden}
            fault = "; ".join(f"{name} {', '.join(texts)}" for name, texts in faults.items() if texts)
        if best is None:
            if failures == use.requests:
                self.server.fail(fault)
            raise UntranslatedSentence(
                f"{self.profile.name} gives no translation of it in {use.requests} requests: {fault}", use
            )
        return replace(best, engine=use), losses

    def find_known(self, prepared: PreparedDocument, number: int) -> TranslatedSentence | None:
        """Return the translation of a sentence that needs no request: of the memory, or without words to translate."""
        source, match = prepared.whole.sentences[number], prepared.matches.get(number)
        if match is not None and match.target:
            return prepared.recall(number)
        rest = list(source)
        for each in self._find_protected(source):
            rest[slice(*each.span)] = " " * (each.span[1] - each.span[0])
        return None if has_letters("".join(rest)) else make_sentence(source, unwrap_lines(source).strip())

    def _find_protected(self, source: str) -> list[Protected]:
        return [] if self.patterns is None else find_protected(source, self.languages[0], extra=self.patterns)

    def find_terms(self, source: str) -> list[Occurrence]:
        """Return the terms of a sentence."""
        return self.terms.find(source) if self.terms else []

    def describe_terms(self, text: str) -> str:
        """Return what a request says of the terms of a sentence."""
        nouns = [each for each in self.find_terms(text) if not each.is_verb]
        rows = {each.written or each.term.source: each.targets for each in nouns if each.term.targets}
        if not rows or not self.profile.prompt.terms:
            return ""
        fill, prompt = self.profile.fill, self.profile.prompt
        lines = [fill(prompt.term, source=source, target=" | ".join(targets)) for source, targets in rows.items()]
        return str(fill(prompt.terms, terms="; ".join(lines)))

    def make_turn(self, source: str, target: str) -> Turn:
        """Return an earlier sentence as it was asked."""
        text = unwrap_lines(source).strip()
        return Turn(text, self.describe_terms(text), unwrap_lines(target).strip())

    def check_terms(self, occurrences: Sequence[Occurrence], text: str, source: str, attempt: int) -> list[TermUse]:
        """Return what became of the terms of a sentence."""
        if not (occurrences and self.terms):
            return []
        protected = self._find_protected(source)
        uses = judge_terms(self.terms, occurrences, text)
        for number, use in enumerate(uses):
            if overlaps(use.span, [each.span for each in protected]):
                uses[number] = replace(use, status="protected", found="")
            elif attempt:
                uses[number] = mark_as_asked_again(use)
        return uses


def mark_as_asked_again(use: TermUse) -> TermUse:
    """Return the use of a term in a sentence that was asked again."""
    return replace(use, status="second_search") if use.status in ("met", "other_form") else use


def make_sentence(source: str, target: str) -> TranslatedSentence:
    """Return a sentence with a translation that nobody has scored."""
    return TranslatedSentence(source, target, 0.0, (0, len(source)), (0, len(target)))


# Documents


@dataclass
class OpenText:
    """A document, translated up to a point."""

    requests: SentenceRequests
    prepared: PreparedDocument
    point: ResumePoint
    find_missing: Callable[[Sequence[TranslatedSentence]], set[int]]
    """returns the sentences (from 0) of which a part seems not to be translated"""
    targets: dict[int, str] = field(default_factory=dict)
    """translations of sentences, by number"""
    results: dict[int, TranslatedSentence | DocmtError] = field(default_factory=dict)
    """of sentences that are not in a part yet"""
    lossy: set[int] = field(default_factory=set)
    """sentences whose translation lacks something"""
    asked: set[int] = field(default_factory=set)
    """sentences whose answers are on their way"""

    is_within_sentence = False

    def __post_init__(self) -> None:
        """Read the history."""
        self.next = self.point.sentences
        first = self.next - len(self.point.history)
        for number, (ids, *_) in enumerate(self.point.history, first):
            if ids:
                self.targets[number] = bytes(ids).decode()
        self._shown = divide_source(self.document, self.requests.profile.context.source_characters)

    @property
    def document(self) -> Document:
        """The source."""
        return self.prepared.whole

    @property
    def is_done(self) -> bool:
        """Whether all sentences are in parts."""
        return self.point.sentences == len(self.document)

    def cost(self, number: int) -> int:
        """Return the tokens of a sentence, about."""
        return len(self.document.sentences[number]) // TOKEN_CHARACTERS + 2

    def count_tokens(self) -> int:
        """See `OpenTranslation`."""
        return sum(map(self.cost, range(self.point.sentences, len(self.document))))

    def take(self) -> tuple[int, Question] | None:
        """Return the next sentence to ask, if it waits for no other, and note those that need no request."""
        while self.next < len(self.document) and not (self.asked and self.requests.reads_targets):
            number, self.next = self.next, self.next + 1
            if number in self.results:
                continue
            if (known := self.requests.find_known(self.prepared, number)) is not None:
                self.add(number, known)
                continue
            self.asked.add(number)
            return number, self.make_question(number)
        return None

    def drop_questions(self) -> None:
        """Forget the questions whose answers nobody takes."""
        self.next = min(self.asked, default=self.next)
        self.asked.clear()

    def make_question(self, number: int) -> Question:
        """Return the question for a sentence."""
        most = self.requests.profile.context.sentences
        step = max(most // 2, 1)
        # Several old ones leave at once: a server that keeps what it has read reads the rest once.
        start = 0 if number <= most else -(-(number - most) // step) * step
        sources = self.document.sentences
        before = [
            self.requests.make_turn(sources[n], self.targets.get(n, ""))
            for n in range(start, number if most else start)
            if self.targets.get(n) or not self.requests.reads_targets
        ]
        text = unwrap_lines(sources[number]).strip()
        terms = self.requests.describe_terms(text)
        shown = next((text for last, text in self._shown if number < last), "")
        return Question(text, terms, before, shown)

    def add(self, number: int, result: TranslatedSentence | DocmtError) -> None:
        """Add the translation of a sentence, or why it has none."""
        self.asked.discard(number)
        self.results[number] = result
        if isinstance(result, TranslatedSentence):
            self.targets[number] = result.target

    def take_parts(self, number: int) -> list[PartialTranslation]:
        """Return the parts that are finished, as those of this document number."""
        first = self.point.sentences
        last = next(n for n in range(first, len(self.document) + 1) if n not in self.results)
        parts, rows = [], [(n, self.results.pop(n)) for n in range(first, last)]
        # Each sentence without a translation is a part of its own.
        for _, group in groupby(rows, lambda row: row[0] if isinstance(row[1], DocmtError) else None):
            numbers, results = zip(*group, strict=True)
            start, stop = numbers[0], numbers[-1] + 1
            self.point = ResumePoint(stop, self._make_history(stop))
            source, made, error = self.document.slice(start, stop), None, None
            if isinstance(results[0], DocmtError):
                error = results[0]
            else:
                lossy = {n - start for n in self.lossy.intersection(numbers)}
                made = _make_translation(source, results, lossy | self.find_missing(results))
            parts.append(PartialTranslation(number, start, source, self.point, made, error))
        return parts

    def _make_history(self, stop: int) -> list[list[list[int]]]:
        """Return the translations that the next sentences see, as bytes; what they do not see is dropped."""
        first = max(stop - self.requests.profile.context.sentences, 0)
        self.targets = {n: text for n, text in self.targets.items() if n >= first}
        return [[list(self.targets.get(n, "").encode())] for n in range(first, stop)]

    def join_parts(self, parts: Sequence[PartialTranslation]) -> Translation:
        """Return the translation of the document from those of its parts."""
        rows = [sentence for part in parts for sentence in part.translation or ()]
        missing = {part.first + n for part in parts if part.translation for n in part.translation.missing}
        return _make_translation(self.document, rows, missing)


def divide_source(document: Document, most: int) -> list[tuple[int, str]]:
    """Return the parts of a source that are shown, each with the number after its last sentence.

    most: characters of a part. A part ends with a paragraph, if it can.
    """
    parts, first, end, size = list[tuple[int, str]](), 0, 0, 0
    for number, sentence in enumerate(document.sentences if most else ()):
        size += len(sentence) + 1
        if size > most and number > first:
            stop = end if end > first else number
            parts.append((stop, document.slice(first, stop).text().strip()))
            first, size = stop, sum(len(each) + 1 for each in document.sentences[stop : number + 1])
        if "\n" in document.gaps[number + 1]:
            end = number + 1
    if most and first < len(document):
        parts.append((len(document), document.slice(first, len(document)).text().strip()))
    return parts


def _make_translation(source: Document, rows: Sequence[TranslatedSentence], missing: Collection[int]) -> Translation:
    """Return the translation of a document by those of its sentences. missing: see `Translation`."""
    score = sum(row.score for row in rows)
    return Translation(*place_sentences(source, rows), score, missing=tuple(sorted(missing)))
