"""The units of a file as documents of sentences, and the units of their translations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from docmt.documents import Document, sentence_spans
from docmt.documents.words import is_symbol
from docmt.formats.marked_text import mark_sentence
from docmt.formats.projection import Link, Passage, project_codes
from docmt.formats.units import Unit, UnitFile, find_line_spans

UNIT_GAP = "\n\n"
"""Text between two units of a document."""


@dataclass(frozen=True)
class UnitSentence:
    """A sentence of a unit."""

    unit: int
    """index of the unit in the file"""
    start: int
    end: int
    """characters of the unit's text"""


@dataclass(frozen=True)
class Review:
    """The origin of a translation, and what people and checks say of it."""

    edited: bool = False
    """whether a person wrote it"""
    confirmed: bool = False
    """whether a person has found it right"""
    machine: str | None = None
    """translation of the machine, if there is a probability of it"""
    quality: float = 0.0
    """mean probability of its tokens, in percent"""
    notes: Sequence[str] = ()
    """reasons to look at it"""
    match: int = 0
    """match quality of what a memory gave, in percent; 101: after the same sentence"""


@dataclass(frozen=True)
class SentenceTranslation:
    """Translation of one sentence of a unit."""

    target: str | None
    """None: it failed, and the source stays"""
    links: Sequence[Link] | None = None
    """word alignment; None: guessed"""
    score: float | None = None
    """log-probability (nats)"""
    review: Review = Review()


@dataclass(frozen=True)
class TranslatedUnits:
    """The units of a translated file."""

    units: list[Unit]
    target_spans: list[list[tuple[int, int]]]
    """for each unit the characters of its sentences in the new text"""
    sentences: list[SentenceTranslation]
    """of all units in order"""
    misplaced: list[str]
    """codes that stand at the end of their unit, because no word of the translation has them"""
    failed: list[list[bool]]
    """for each unit, whether its sentences failed"""


class UnitDocuments:
    """A file of units, and its documents: all sentences of its units in reading order, never across a unit."""

    def __init__(self, file: UnitFile, language: str, id: str = "", protect: Sequence[str] = ()) -> None:
        """Cut the units into sentences. language: code, for the rules. id: name of the documents. protect: patterns."""
        self.file, self._protect = file, protect
        self.documents: list[Document] = []
        self.sentences: list[list[UnitSentence]] = []
        """sentences of each document"""
        borders = [*file.document_starts, len(file.units)]
        for number, (first, last) in enumerate(pairwise(borders), 1):
            name = f"{id} {number}".strip() if len(borders) > 2 else id
            self._add_document(range(first, last), language, name)

    def _add_document(self, units: range, language: str, id: str) -> None:
        sentences: list[UnitSentence] = []
        texts: list[str] = []
        gaps: list[str] = []
        gap = ""
        for index in units:
            unit = self.file.units[index]
            text, position = unit.text, 0
            for start, end in find_sentences(unit, language, self._protect):
                gaps.append(gap + text[position:start])
                texts.append(text[start:end])
                sentences.append(UnitSentence(index, start, end))
                gap, position = "", end
            gap += text[position:] + UNIT_GAP * (index < units[-1])
        has_codes = any(self.file.units[index].codes for index in units)
        marked = (mark_sentence(self.file.units[each.unit], each.start, each.end) for each in sentences)
        self.documents.append(Document(tuple(texts), (*gaps, gap), id, tuple(marked) if has_codes else ()))
        self.sentences.append(sentences)

    def needs_alignment(self, document: int, sentence: int) -> bool:
        """Return whether a sentence has codes between its words, so that their places depend on word alignment."""
        place = self.sentences[document][sentence]
        codes = self.file.units[place.unit].codes
        following = bisect_right(codes, place.start, key=lambda code: code.offset)
        return following < len(codes) and codes[following].offset < place.end

    def translate(self, translations: Sequence[Sequence[SentenceTranslation]]) -> TranslatedUnits:
        """Return the units with translated sentences; translations: those of each document."""
        by_unit: dict[int, list[tuple[UnitSentence, SentenceTranslation]]] = {}
        for sentences, row in zip(self.sentences, translations, strict=True):
            for sentence, translation in zip(sentences, row, strict=True):
                by_unit.setdefault(sentence.unit, []).append((sentence, translation))
        units, spans, misplaced, failed = [], [], [], []
        for index, unit in enumerate(self.file.units):
            pairs = by_unit.get(index, [])
            passages = [_make_passage(unit, each, new) for each, new in pairs]
            failed.append([new.target is None for _, new in pairs])
            is_equal = all(unit.text[each.start : each.end] == each.target for each in passages)
            projected, missing = (unit, []) if is_equal else project_codes(unit, passages)
            units.append(projected)
            spans.append(_target_spans(passages))
            misplaced += [f"{code.content} in {projected.text}" for code in missing]
        return TranslatedUnits(units, spans, [each for row in translations for each in row], misplaced, failed)

    def count_skipped(self) -> dict[str, int]:
        """Return the number of parts of the file that are not translated, by reason."""
        return dict(Counter(part.reason for part in self.file.skipped))


def find_sentences(unit: Unit, language: str, protect: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the characters of the sentences of a unit. A line that is a symbol alone has none, and so it stays."""
    for line_start, line_end in find_line_spans(unit):
        line = unit.text[line_start:line_end]
        for start, end in [] if is_symbol(line) else sentence_spans(line, language, protect=protect):
            yield line_start + start, line_start + end


def _make_passage(unit: Unit, sentence: UnitSentence, new: SentenceTranslation) -> Passage:
    """Return a sentence with its translation. The words and the codes of one that failed stay."""
    start, end = sentence.start, sentence.end
    if new.target is not None:
        return Passage(start, end, new.target, new.links)
    return Passage(start, end, unit.text[start:end], [(place, place + 1) * 2 for place in range(end - start)])


def _target_spans(passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Return the characters of translated sentences in the text of their unit."""
    spans, shift = [], 0
    for passage in passages:
        start = passage.start + shift
        spans.append((start, start + len(passage.target)))
        shift += len(passage.target) - (passage.end - passage.start)
    return spans
