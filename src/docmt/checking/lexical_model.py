"""Word translations learned from sentence pairs alone: IBM model 1 (Brown et al. 1993), one in each direction.

A link is a pair of words that both prefer each other. Notation: N pairs of words of all sentence pairs (counted per
sentence), K distinct pairs ("kinds").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
_ITERATIONS = 5
_PRIOR = 0.05
"""Added for every kind of pair, in the denominator of its probability only (compare Moore 2004), or else rare words
explain everything in their sentences."""
_MIN_POSTERIOR = 0.3
"""Least probability of a link in both directions."""


@dataclass(frozen=True)
class SentenceWords:
    """Distinct words of the sentences of one side, concatenated."""

    ids: Ids
    sentence: Ids
    """sentence index of each word"""
    sentences: int
    vocabulary: int
    """number of distinct words; ids are below it"""

    @classmethod
    def from_tokens(cls, sentences: Sequence[Sequence[int]], vocabulary: int) -> SentenceWords:
        """Return the token ids that occur once in their sentence: links of the others would be ambiguous."""
        counts = [Counter(sentence) for sentence in sentences]
        once = [(id, number) for number, each in enumerate(counts) for id, count in each.items() if count == 1]
        ids, numbers = np.array(once, dtype=np.int64).reshape(-1, 2).T
        return cls(ids, numbers, len(sentences), vocabulary)


class WordPairs:
    """All pairs of words of the two sides of a sentence, [N], and their kinds, [K]."""

    def __init__(self, source: SentenceWords, target: SentenceWords) -> None:
        sizes = np.bincount(source.sentence, minlength=source.sentences)
        starts = np.cumsum(sizes) - sizes
        repeats = sizes[target.sentence]
        before = np.cumsum(repeats) - repeats
        self.target_index = np.repeat(np.arange(len(target.ids)), repeats)
        """[N], indices into `SentenceWords.ids`"""
        self.source_index = np.arange(len(self.target_index)) - np.repeat(before - starts[target.sentence], repeats)
        """[N]"""
        keys = source.ids[self.source_index] * target.vocabulary + target.ids[self.target_index]
        kinds, self.kind = np.unique(keys, return_inverse=True)
        """[N], indices into the kinds"""
        self.kind_source, self.kind_target = np.divmod(kinds, max(1, target.vocabulary))
        """[K], the ids of the words"""


def link_words(source: SentenceWords, target: SentenceWords) -> tuple[WordPairs, NDArray[np.bool_]]:
    """Learn from all sentences. Return the pairs of words, and which of them are links, [N]."""
    pairs = WordPairs(source, target)
    forward = _estimate_posteriors(pairs.kind, pairs.target_index, target, pairs.kind_source)
    backward = _estimate_posteriors(pairs.kind, pairs.source_index, source, pairs.kind_target)
    linked = _find_best(forward, pairs.target_index) & _find_best(backward, pairs.source_index)
    return pairs, linked & (np.minimum(forward, backward) >= _MIN_POSTERIOR)


def _estimate_posteriors(kind: Ids, index: Ids, side: SentenceWords, conditions: Ids) -> Values:
    """Return the probability [N] that each pair explains its word.

    kind: [N]. index: [N], the explained words of `side`. conditions: [K], the ids of the words that explain them. The
    null word explains each word by its frequency.
    """
    null = (np.bincount(side.ids) / max(1, len(side.ids)))[side.ids]
    probability = np.full(len(conditions), 1 / max(1, side.vocabulary))
    posterior = np.zeros(len(kind))
    for _ in range(_ITERATIONS):
        weights = probability[kind]
        posterior = weights / (np.bincount(index, weights, minlength=len(side.ids)) + null)[index]
        counts = np.bincount(kind, posterior, minlength=len(conditions))
        probability = counts / np.bincount(conditions, counts + _PRIOR)[conditions]
    return posterior


def _find_best(posterior: Values, index: Ids) -> NDArray[np.bool_]:
    """Return whether each pair [N] is the most probable of its word."""
    best = np.zeros(int(index.max(initial=-1)) + 1)
    np.maximum.at(best, index, posterior)
    return posterior >= best[index]
