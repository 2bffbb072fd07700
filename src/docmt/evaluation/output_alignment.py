"""Alignment of translations that have other sentences than their source, so that sentences can be scored.

Sentences are aligned in order by their lengths (Gale and Church 1993) and by the words that translate each other,
which are learned from the source and its reference (IBM model 1, Brown et al. 1993). Notation: D documents, N source
sentences and M sentences of the translation of one document.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from docmt.checking.languages import FUNCTION_WORDS, detect_language, split_words, stem
from docmt.checking.renderings import TermStatistics
from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.documents import ParallelDocument
from docmt.documents.segmentation import sentence_spans

Documents: TypeAlias = Sequence[Sequence[str]]
Sources: TypeAlias = Sequence[tuple[str, Sequence[str]]]
"""Ids and sentences of documents."""
Ranges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
Bead: TypeAlias = tuple[range, range]
"""Source sentences and sentences of the translation that belong together; either may be empty."""
Lines: TypeAlias = Sequence[tuple[int, str]]
"""Sentences with the numbers of their lines."""
Link: TypeAlias = tuple[int, int]
Array: TypeAlias = NDArray[np.float64]

_PRIORS = {(1, 1): 0.89, (1, 0): 0.005, (2, 1): 0.0445, (1, 2): 0.0445, (2, 2): 0.011, (3, 1): 0.002, (1, 3): 0.002}
"""Probabilities of beads (Gale and Church 1993, table 5), with some for three sentences."""
_COSTS = {size: -math.log(prior) for size, prior in _PRIORS.items()}
_VARIANCE = 6.8
"""Of the length of a translation, by character (Gale and Church 1993)."""
_LEAST_UNKNOWN = 0.5
"""Cost of a word of the lexicon whose translation is missing."""
_MOST_EVIDENCE = 4.0
_LEAST_LETTERS = 4
"""Letters of the shortest word that counts as its own translation."""


@dataclass(frozen=True)
class AlignmentShares:
    """Sentences of the source and of a translation, and how many of them are not aligned one by one."""

    source: int
    translated: int
    omitted: int
    """source sentences without a translation"""
    added: int
    """sentences of the translation without a source"""
    merged: int
    """source sentences that share their translation with others"""

    @classmethod
    def count(cls, beads: Iterable[Bead]) -> AlignmentShares:
        """Count the sentences of all documents."""
        source, translated = np.array([(len(one), len(other)) for one, other in beads]).reshape(-1, 2).T
        omitted, added, merged = translated == 0, source == 0, (source > 1) & (translated > 0)
        counts = source, translated, source[omitted], translated[added], source[merged]
        return cls(*(int(each.sum()) for each in counts))

    def format(self) -> str:
        """Return the shares as a sentence."""
        omitted, merged = (100 * count / max(1, self.source) for count in (self.omitted, self.merged))
        return (
            f"aligned with the source by length and lexicon: of {self.source:,} source sentences {omitted:.1f} % are "
            f"omitted and {merged:.1f} % merged; of {self.translated:,} in the translation "
            f"{100 * self.added / max(1, self.translated):.1f} % are added"
        )


@dataclass(frozen=True)
class AlignedOutput:
    """A translation in units that its reference has, too.

    ranges: [D] source lines of each unit, which together are all. texts: [D] their translations, which may be empty.
    """

    ranges: Ranges
    texts: Documents
    shares: AlignmentShares | None = None
    links: Sequence[Set[Link]] = ()
    """[D] lines of the source and of the translation with sentences that translate each other"""

    def pair(self, *sides: Documents) -> list[list[list[str]]]:
        """Return the translation and other sides, which have the lines of the source, by unit."""
        return [list(map(list, self.texts)), *(join_units(side, self.ranges) for side in sides)]

    def merge(self, paragraphs: Ranges) -> AlignedOutput:
        """Return units of whole paragraphs. A unit over the border of two paragraphs joins them."""
        ranges, texts = [], []
        for units, lines, borders in zip(self.ranges, self.texts, paragraphs, strict=True):
            between = {line for (_, end), (start, _) in pairwise(borders) for line in range(end, start + 1)}
            cuts = sorted({0, *(number for number, (start, _) in enumerate(units) if start in between), len(units)})
            ranges.append([(units[first][0], units[last - 1][1]) for first, last in pairwise(cuts)])
            texts.append([" ".join(filter(None, lines[first:last])) for first, last in pairwise(cuts)])
        return AlignedOutput(ranges, texts, self.shares)


def join_units(documents: Documents, ranges: Ranges) -> list[list[str]]:
    """Return the texts of ranges of lines, by document."""
    pairs = zip(documents, ranges, strict=True)
    return [[" ".join(filter(None, document[start:end])) for start, end in each] for document, each in pairs]


def whole(sides: Sequence[Documents]) -> list[list[tuple[int, int]]]:
    """Return a range over all lines of each document, of whatever side has the most."""
    return [[(0, max(map(len, documents)))] for documents in zip(*sides, strict=True)]


def find_paragraphs(documents: Documents) -> list[list[tuple[int, int]]]:
    """Return the ranges of lines between empty lines, or of a document without empty lines each line."""
    found = []
    for document in documents:
        empty = [number for number, line in enumerate(document) if not line]
        borders = pairwise([-1, *empty, len(document)]) if empty else ((n - 1, n + 1) for n in range(len(document)))
        found.append([(before + 1, after) for before, after in borders if before + 1 < after])
    return found


def align_output(sources: Documents, translations: Documents, references: Documents) -> AlignedOutput:
    """Align the sentences of translated documents with the lines of their sources.

    references: with the lines of the sources. Lines of several sentences are cut into these. Sentences without a source
    go with those before them, so that they count as well. Raises DocmtError for a reference with other lines.
    """
    if list(map(len, sources)) != list(map(len, references)):
        raise DocmtError("the source has other sentences than the reference. Give a reference for each of them")
    source_language, target_language = (detect_language(chain.from_iterable(side)) for side in (sources, references))
    pieces = [_cut(document, source_language) for document in sources]
    translated = [_cut(document, target_language) for document in translations]
    pairs = ParallelDocument("", tuple(chain.from_iterable(sources)), tuple(chain.from_iterable(references)))
    languages = source_language, target_language
    lexicon = TermStatistics([pairs], languages, 1.0).counts
    lengths = [sum(len(text) for document in side for _, text in document) for side in (pieces, translated)]
    aligner = _Aligner.from_lexicon(lexicon, languages, lengths[1] / max(1, lengths[0]) or 1.0)
    documents = list(zip(pieces, translated, strict=True))
    beads = [list(aligner.align(*([text for _, text in side] for side in document))) for document in documents]
    grouped = [_group(*each) for each in zip(beads, pieces, translated, map(len, sources), strict=True)]
    ranges, texts = [units for units, _ in grouped], [texts for _, texts in grouped]
    links = [
        {(one[n][0], other[m][0]) for bead in rows for n in bead[0] for m in bead[1]}
        for rows, (one, other) in zip(beads, documents, strict=True)
    ]
    return AlignedOutput(ranges, texts, AlignmentShares.count(chain.from_iterable(beads)), links)


def _cut(document: Sequence[str], language: str) -> Lines:
    """Return the sentences of the lines of a document, with the numbers of their lines."""
    rows = []
    for number, line in enumerate(document):
        starts = [0, *(start for start, _ in sentence_spans(line, language or "en")[1:]), len(line)]
        rows += [(number, line[start:end].strip()) for start, end in pairwise(starts)]
    return [(number, text) for number, text in rows if text]


def _group(
    beads: Sequence[Bead], source: Lines, translated: Lines, count: int
) -> tuple[list[tuple[int, int]], list[str]]:
    """Return units of whole source lines, of which there are `count`, and the translation of each."""
    if not (beads or count):
        return [], []
    starts, end = list[int](), 0
    texts: list[list[str]] = [[]]  # before the first unit
    for numbers, others in beads:
        if numbers and source[numbers[0]][0] >= end:
            starts.append(source[numbers[0]][0])
            texts.append([])
        end = source[numbers[-1]][0] + 1 if numbers else end
        texts[-1] += [translated[other][1] for other in others]
    before, *texts = texts if starts else [[], *texts]  # of a document without source sentences
    texts[0] = before + texts[0]
    return list(pairwise([0, *starts[1:], count])), [" ".join(words) for words in texts]


@dataclass(frozen=True)
class _Aligner:
    """Aligns the sentences of documents.

    lexicon: stems that translate each source stem. known: the stems of each side that are in it. functions: stems of
    the function words of each side. ratio: characters of a translation by character of its source.
    """

    lexicon: Mapping[str, Sequence[str]]
    known: tuple[Set[str], Set[str]]
    functions: tuple[Set[str], Set[str]]
    ratio: float

    @classmethod
    def from_lexicon(cls, pairs: Iterable[tuple[str, str]], languages: tuple[str, str], ratio: float) -> _Aligner:
        """Return an aligner for pairs of stems that translate each other."""
        lexicon = group_pairs(pairs)
        source, target = ({stem(word) for word in FUNCTION_WORDS.get(language, ())} for language in languages)
        return cls(lexicon, (lexicon.keys(), set(chain.from_iterable(lexicon.values()))), (source, target), ratio)

    def align(self, source: Sequence[str], translated: Sequence[str]) -> Iterator[Bead]:
        """Yield the beads of a document in order."""
        size = len(translated)
        lengths = [np.array([0, *np.cumsum([len(text) for text in side])], float) for side in (source, translated)]
        evidence, word_costs = self._weigh_words(source, translated)
        summed = [np.array([0, *np.cumsum(each)], float) for each in word_costs]
        added = _COSTS[1, 0] * np.arange(size + 1)
        costs, kinds = np.full((len(source) + 1, size + 1), np.inf), np.zeros((len(source) + 1, size + 1), np.int8)
        costs[0], sizes = added, [(0, 1), *_COSTS]
        for row in range(1, len(source) + 1):
            for kind, (many, few) in enumerate(sizes[1:], 1):
                if many > row or few > size:
                    continue
                cost = costs[row - many, : size + 1 - few] + _COSTS[many, few]
                if few:
                    length = lengths[0][row] - lengths[0][row - many]
                    cost = cost + self._compare_lengths(length, lengths[1][few:] - lengths[1][: size + 1 - few])
                    cost += summed[0][row] - summed[0][row - many] + summed[1][few:] - summed[1][: size + 1 - few]
                    cost -= self._add_evidence(evidence[row - many : row], few)
                better = cost < costs[row, few:]
                costs[row, few:][better], kinds[row, few:][better] = cost[better], kind
            least = np.minimum.accumulate(costs[row] - added) + added
            kinds[row][least < costs[row] - 1e-9] = 0
            costs[row] = least
        path, row, column = list[Bead](), len(source), size
        while row or column:
            many, few = sizes[kinds[row, column]] if row else (0, 1)
            path.append((range(row - many, row), range(column - few, column)))
            row, column = row - many, column - few
        yield from reversed(path)

    def _add_evidence(self, rows: Array, few: int) -> Array:
        """Return the evidence for beads of these source sentences and `few` sentences, by the first of the latter.

        Of two and two sentences that of the other order, as two beads would have that of the usual one.
        """
        if len(rows) == few == 2:
            rows, few = np.stack([rows[1, :-1] + rows[0, 1:]]), 1
        return np.lib.stride_tricks.sliding_window_view(rows.sum(axis=0), few).sum(axis=1)

    def _compare_lengths(self, length: float, others: Array) -> Array:
        """Return minus the logarithm of the probability that lengths differ as much, close to that of a normal law."""
        deviations = np.abs(others - self.ratio * length) / np.sqrt(_VARIANCE * (length + others / self.ratio) / 2 + 1)
        compared: Array = deviations**2 / 2 + np.log1p(math.sqrt(math.pi / 2) * deviations)
        return compared

    def _weigh_words(self, source: Sequence[str], translated: Sequence[str]) -> tuple[Array, tuple[Array, Array]]:
        """Return how much the words of two sentences speak for each other, [N, M], and what a bead costs for each.

        That is the logarithm of how much more frequent a word is beside its translation than elsewhere.
        """
        places = [_find_words(*side) for side in zip((source, translated), self.functions, strict=True)]
        evidence = np.zeros((len(source), len(translated)))
        costs = np.zeros(len(source)), np.zeros(len(translated))
        for one, rows in places[0].items():  # in the order of the text, as sums of floats depend on it
            others = dict.fromkeys([*self.lexicon.get(one, ()), *[one] * (len(one) >= _LEAST_LETTERS)])
            for columns in (places[1][other] for other in others if other in places[1]):
                chance = len(rows) * len(columns) / len(source) / len(translated)
                evidence[np.ix_(rows, columns)] += min(_MOST_EVIDENCE, max(0.0, -math.log(2 * chance) / 2))
        for numbers, known, cost in zip(places, self.known, costs, strict=True):
            for word in numbers.keys() & known:
                cost[numbers[word]] += _LEAST_UNKNOWN  # exact in any order
        return evidence, costs


def _find_words(sentences: Sequence[str], functions: Set[str]) -> dict[str, list[int]]:
    """Return the numbers of the sentences with each stem that is no function word, in order."""
    stems = (dict.fromkeys(map(stem, split_words(text))) for text in sentences)
    return group_pairs((word, number) for number, words in enumerate(stems) for word in words if word not in functions)
