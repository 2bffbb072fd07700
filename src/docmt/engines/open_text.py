"""A document that a server translates: its next questions, and the parts that are finished."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from docmt.core.errors import DocmtError
from docmt.decoding.document_translator import TOKEN_CHARACTERS
from docmt.decoding.long_sentences import place_sentences
from docmt.decoding.translation_results import (
    PartialTranslation,
    PreparedDocument,
    ResumePoint,
    TranslatedSentence,
    Translation,
)
from docmt.documents import Document, unwrap_lines
from docmt.engines.sentence_requests import SentenceRequests
from docmt.engines.services import Question


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
        rows = [(n, self.results.pop(n)) for n in range(first, last)]
        parts = []
        for is_failed, group in groupby(rows, lambda row: isinstance(row[1], DocmtError)):
            pairs = list(group)
            for each in [[pair] for pair in pairs] if is_failed else [pairs]:
                start, stop = each[0][0], each[-1][0] + 1
                self.point = ResumePoint(stop, self._make_history(stop))
                source = self.document.slice(start, stop)
                made = None if is_failed else self._make_translation(source, start, [row[1] for row in each])
                error = each[0][1] if isinstance(each[0][1], DocmtError) else None
                parts.append(PartialTranslation(number, start, source, self.point, made, error))
        return parts

    def _make_history(self, stop: int) -> list[list[list[int]]]:
        """Return the translations that the next sentences see, as bytes; what they do not see is dropped."""
        first = max(stop - self.requests.profile.context.sentences, 0)
        self.targets = {n: text for n, text in self.targets.items() if n >= first}
        return [[list(self.targets.get(n, "").encode())] for n in range(first, stop)]

    def _make_translation(self, source: Document, first: int, rows: Sequence[Any]) -> Translation:
        """Return the translation of consecutive sentences."""
        lossy = {n - first for n in self.lossy} & set(range(len(rows)))
        return _make_translation(source, rows, lossy | self.find_missing(rows))


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


def join_parts(source: Document, parts: Sequence[PartialTranslation]) -> Translation:
    """Return the translation of a document from those of its parts."""
    rows = [sentence for part in parts for sentence in part.translation or ()]
    missing = {part.first + n for part in parts if part.translation for n in part.translation.missing}
    return _make_translation(source, rows, missing)


def _make_translation(source: Document, rows: Sequence[TranslatedSentence], missing: Collection[int]) -> Translation:
    """Return the translation of a document by those of its sentences. missing: see `Translation`."""
    score = sum(row.score for row in rows)
    return Translation(*place_sentences(source, rows), score, missing=tuple(sorted(missing)))
