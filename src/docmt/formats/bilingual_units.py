"""Units with their translations, cut into sentences: what all bilingual files are written from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from docmt.formats.units import Code, Unit

Span = tuple[int, int]
Token = str | Code
"""A piece of text, or a code."""


@dataclass(frozen=True)
class BilingualSentence:
    """A sentence of a unit."""

    source_span: Span
    """characters of the source's text"""
    target_span: Span
    """characters of the target's text"""
    score: float | None = None
    has_translation: bool = True
    """whether the target, perhaps empty, is one"""


@dataclass(frozen=True)
class BilingualUnit:
    """A unit with its translation. Without sentences it is one segment."""

    id: str
    """name for people; the place in the file identifies the unit"""
    source: Unit
    target: Unit
    sentences: tuple[BilingualSentence, ...] = ()


@dataclass(frozen=True)
class BilingualPair:
    """A sentence with its codes in both languages, or what is between two sentences."""

    source: list[Token]
    target: list[Token]
    sentence: BilingualSentence | None


def split_unit(unit: BilingualUnit) -> list[BilingualPair]:
    """Return the sentences and what is between them, in order. Nothing is left out."""
    sentences = unit.sentences
    if not unit.target.text:
        sentences = tuple(replace(each, target_span=(0, 0)) for each in sentences)
    spans = [each.source_span for each in sentences], [each.target_span for each in sentences]
    if not sentences or not (_are_ordered(spans[0], unit.source) and _are_ordered(spans[1], unit.target)):
        has_translation = all(each.has_translation for each in sentences)
        whole = BilingualSentence((0, len(unit.source.text)), (0, len(unit.target.text)), None, has_translation)
        sentences, spans = (whole,), ([whole.source_span], [whole.target_span])
    pieces = zip(_cut_tokens(unit.source, spans[0]), _cut_tokens(unit.target, spans[1]), strict=True)
    pairs = [
        BilingualPair(source, target, sentences[number // 2] if number % 2 else None)
        for number, (source, target) in enumerate(pieces)
    ]
    return [pair for pair in pairs if pair.sentence or pair.source or pair.target]


def _are_ordered(spans: Iterable[Span], unit: Unit) -> bool:
    borders = [0, *(border for span in spans for border in span), len(unit.text)]
    return all(first <= second for first, second in pairwise(borders))


def _cut_tokens(unit: Unit, spans: Iterable[Span]) -> list[list[Token]]:
    """Return the text and codes before, in, between and after the spans: 2n + 1 lists for n spans."""
    borders = [0, *(border for span in spans for border in span), len(unit.text)]
    pieces: list[list[Token]] = [[] for _ in borders[1:]]
    by_offset: dict[int, list[Code]] = {}
    for code in unit.codes:
        by_offset.setdefault(code.offset, []).append(code)
    stops = sorted({*borders, *by_offset})
    for number, stop in enumerate(stops):
        left = bisect_left(borders, stop, 1) - 1
        right = min(bisect_right(borders, stop), len(pieces)) - 1
        codes = by_offset.get(stop, [])
        count = _count_left(codes, is_sentence=left % 2 == 1)
        pieces[left] += codes[:count]
        pieces[right] += codes[count:]
        if number + 1 < len(stops):
            pieces[right].append(unit.text[stop : stops[number + 1]])
    return pieces


def _count_left(codes: Sequence[Code], is_sentence: bool) -> int:
    """Return how many of the codes at a border go to the piece before it: ends of pairs, and marks of a sentence."""
    for number, code in enumerate(codes):
        if code.kind == "open" or (code.kind == "alone" and not is_sentence):
            return number
    return len(codes)


def find_closed(tokens: Sequence[Token]) -> set[int]:
    """Return the indices of the open codes whose pairs end in the same piece."""
    opened: list[int] = []
    closed = set()
    for index, token in enumerate(tokens):
        if isinstance(token, Code) and token.kind == "open":
            opened.append(index)
        elif isinstance(token, Code) and token.kind == "close" and opened:
            closed.add(opened.pop())
    return closed
