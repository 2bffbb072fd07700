"""Which words translate each other, found in the sentences of a file alone.

Two lexical models (IBM model 1, Brown et al. 1993), one in each direction, over the sets of word stems of each pair of
sentences; a link is where both prefer each other. Notation: N pairs of stems that stand in one pair of sentences
(one for each sentence that they stand in), K kinds of such pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docmt.checking.languages import FUNCTION_WORDS
from docmt.checking.words import stem, words
from docmt.documents import ParallelDocument

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
_ITERATIONS = 5
_COMMON = 0.5
"""Share of sentences in which a stem is no term."""
_LONGEST = 500
"""Stems of a sentence in which links are looked for: of a longer one, which is none, all pairs would be too many."""
_PRIOR = 0.05
"""Added to the counts of every kind of pair (Moore 2004), or else rare words explain everything in their sentences."""
_LEAST_POSTERIOR = 0.3
"""Probability that a link has in both directions, at least."""


@dataclass(frozen=True)
class Links:
    """Links of stems, by sentence, and how often each link was found."""

    links: Sequence[tuple[tuple[str, str], ...]]
    """(source, target) of every link of each sentence, sentences counted through all documents"""
    counts: Counter[tuple[str, str]]
    """sentences with each link"""
    translated: Counter[str]
    """sentences in which a source stem has a link"""


def find_links(documents: Sequence[ParallelDocument], languages: tuple[str, str]) -> Links:
    """The links of all sentences of these documents."""
    sides = [_Side.of(documents, number, language) for number, language in enumerate(languages)]
    pairs = _Pairs.of(*sides)
    source, target = sides
    forward = _posteriors(pairs.kind, pairs.target_place, target, pairs.kind_source)
    backward = _posteriors(pairs.kind, pairs.source_place, source, pairs.kind_target)
    linked = _is_best(forward, pairs.target_place) & _is_best(backward, pairs.source_place)
    linked &= np.minimum(forward, backward) >= _LEAST_POSTERIOR
    return _named(pairs, source, target, linked)


def _named(pairs: _Pairs, source: _Side, target: _Side, linked: NDArray[np.bool_]) -> Links:
    """The links by the names of their stems."""
    kinds = pairs.kind[linked]
    sentence = source.sentence[pairs.source_place[linked]]
    found: list[list[tuple[str, str]]] = [[] for _ in range(source.sentences)]
    names = zip(pairs.kind_source[kinds].tolist(), pairs.kind_target[kinds].tolist(), strict=True)
    for where, (one, other) in zip(sentence.tolist(), names, strict=True):
        found[where].append((source.names[one], target.names[other]))
    counts = Counter(link for links in found for link in links)
    translated = Counter(name for links in found for name in {one for one, _ in links})
    return Links([tuple(links) for links in found], counts, translated)


@dataclass(frozen=True)
class _Side:
    """The distinct stems of all sentences of one language, laid end to end."""

    names: list[str]
    ids: Ids
    sentence: Ids
    """of each stem"""
    sentences: int

    @classmethod
    def of(cls, documents: Sequence[ParallelDocument], side: int, language: str) -> _Side:
        """Without function words and stems that stand in very many sentences."""
        passed = {stem(word) for word in FUNCTION_WORDS.get(language, ())}
        texts = (text for document in documents for text in (document.source, document.target)[side])
        found = [{each for each in map(stem, words(text)) if len(each) > 1} - passed for text in texts]
        spread = Counter(each for stems in found for each in stems)
        most = max(_COMMON * len(found), 20)
        names = [name for name, count in spread.items() if count <= most]
        numbers = {name: number for number, name in enumerate(names)}
        kept = [sorted(numbers[each] for each in stems if each in numbers) for stems in found]
        kept = [own if len(own) <= _LONGEST else [] for own in kept]
        sizes = np.array([len(own) for own in kept], dtype=np.int64)
        flat = np.fromiter((id for own in kept for id in own), dtype=np.int64, count=int(sizes.sum()))
        return cls(names, flat, np.repeat(np.arange(len(kept)), sizes), len(kept))


@dataclass(frozen=True)
class _Pairs:
    """All pairs of stems of the two sides of a sentence, [N], and their kinds, [K]."""

    source_place: Ids  # [N], in _Side.ids
    target_place: Ids  # [N]
    kind: Ids  # [N]
    kind_source: Ids  # [K], the id of the source stem
    kind_target: Ids  # [K]

    @classmethod
    def of(cls, source: _Side, target: _Side) -> _Pairs:
        sizes = np.bincount(source.sentence, minlength=source.sentences)
        starts = np.cumsum(sizes) - sizes
        repeats = sizes[target.sentence]
        target_place = np.repeat(np.arange(len(target.ids)), repeats)
        before = np.cumsum(repeats) - repeats
        source_place = np.arange(len(target_place)) - np.repeat(before - starts[target.sentence], repeats)
        keys = source.ids[source_place] * len(target.names) + target.ids[target_place]
        kinds, kind = np.unique(keys, return_inverse=True)
        return cls(source_place, target_place, kind, *np.divmod(kinds, max(1, len(target.names))))


def _posteriors(kind: Ids, place: Ids, told: _Side, given: Ids) -> Values:
    """The probability [N] of each pair to be what explains its word.

    kind: [N]; place: [N] those of the words of `told` that are explained; given: [K] the ids of the stems that explain
    them. Beside these there is always nothing (NULL), which explains each word by its frequency.
    """
    nothing = (np.bincount(told.ids) / max(1, len(told.ids)))[told.ids]
    probability = np.full(len(given), 1 / max(1, len(told.names)))
    posterior = np.zeros(len(kind))
    for _ in range(_ITERATIONS):
        weights = probability[kind]
        posterior = weights / (np.bincount(place, weights, minlength=len(told.ids)) + nothing)[place]
        counts = np.bincount(kind, posterior, minlength=len(given))
        probability = counts / np.bincount(given, counts + _PRIOR)[given]
    return posterior


def _is_best(posterior: Values, place: Ids) -> NDArray[np.bool_]:
    """Whether a pair [N] is the most probable of its word."""
    best = np.zeros(int(place.max(initial=-1)) + 1)
    np.maximum.at(best, place, posterior)
    return posterior >= best[place]


def sentences_of(documents: Sequence[ParallelDocument]) -> Iterator[tuple[int, ParallelDocument]]:
    """Yields the number of the first sentence of each document, counted through all, and the document."""
    first = 0
    for document in documents:
        yield first, document
        first += len(document)
