"""The units of a file as documents of sentences, and the units of their translations."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from docmt.documents import Document
from docmt.documents.words import Span
from docmt.formats.marked_text import mark_sentence
from docmt.formats.projection import Link, Passage
from docmt.formats.readable_units import make_readable
from docmt.formats.units import Unit, UnitFile

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
    readable: Span
    """characters of the text that a model reads, see `ReadableUnit`"""


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

    def __init__(self, file: UnitFile, language: str, id: str = "", protect: Sequence[str] | None = ()) -> None:
        """Cut the units into sentences. language: code, for the rules. id: of the documents. protect: patterns."""
        self.file, self._protect = file, protect or ()
        self.units = [make_readable(unit, protect) for unit in file.units]
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
            unit = self.units[index]
            text, position = unit.unit.text, 0
            for start, end in unit.find_sentences(language, self._protect):
                gaps.append(gap + text[position:start])
                texts.append(text[start:end])
                sentences.append(UnitSentence(index, unit.locate(start), unit.locate(end), (start, end)))
                gap, position = "", end
            gap += text[position:] + UNIT_GAP * (index < units[-1])
        has_codes = any(self.units[index].unit.codes for index in units)
        marked = (mark_sentence(self.units[each.unit].unit, *each.readable) for each in sentences)
        self.documents.append(Document(tuple(texts), (*gaps, gap), id, tuple(marked) if has_codes else ()))
        self.sentences.append(sentences)

    def needs_alignment(self, document: int, sentence: int) -> bool:
        """Return whether a sentence has codes between its words, so that their places depend on word alignment."""
        place = self.sentences[document][sentence]
        codes, (start, end) = self.units[place.unit].unit.codes, place.readable
        following = bisect_right(codes, start, key=lambda code: code.offset)
        return following < len(codes) and codes[following].offset < end

    def translate(self, translations: Sequence[Sequence[SentenceTranslation]]) -> TranslatedUnits:
        """Return the units with translated sentences; translations: those of each document."""
        by_unit: dict[int, list[tuple[UnitSentence, SentenceTranslation]]] = {}
        for sentences, row in zip(self.sentences, translations, strict=True):
            for sentence, translation in zip(sentences, row, strict=True):
                by_unit.setdefault(sentence.unit, []).append((sentence, translation))
        units, spans, misplaced, failed = [], [], [], []
        for index, unit in enumerate(self.units):
            pairs = by_unit.get(index, [])
            failed.append([new.target is None for _, new in pairs])
            projected, borders, missing = unit.project([_make_passage(unit.unit, *pair) for pair in pairs])
            units.append(projected)
            spans.append(borders)
            misplaced += [f"{code.content} in {projected.text}" for code in missing]
        return TranslatedUnits(units, spans, [each for row in translations for each in row], misplaced, failed)

    def count_skipped(self) -> dict[str, int]:
        """Return the number of parts of the file that are not translated, by reason."""
        return dict(Counter(part.reason for part in self.file.skipped))


def _make_passage(unit: Unit, sentence: UnitSentence, new: SentenceTranslation) -> Passage:
    """Return a sentence with its translation. The words and the codes of one that failed stay."""
    start, end = sentence.readable
    if new.target is not None:
        return Passage(start, end, new.target, new.links)
    return Passage(start, end, unit.text[start:end], [(place, place + 1) * 2 for place in range(end - start)])
