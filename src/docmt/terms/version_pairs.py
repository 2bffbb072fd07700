"""Which texts of a file are surely translated by which ones of another file.

Texts are aligned in order by their lengths (Gale and Church 1993), numbers and common words. All alignments count, by
their probabilities: a pair is sure if nearly all of them have it, and the pairs on both sides of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from docmt.core.grouping import group_pairs

_KEY = re.compile(r"\d+|[^\W\d_]{4,}")
"""A number, or a word that may be a name."""
_VARIANCE = 6.8
"""Of the length of a translation, by character (Gale and Church 1993)."""
_LEAST_DENSITY, _MOST_DEVIATION = 0.02, 8.0
_MOST_EVIDENCE, _OTHER_NUMBER = 3.0, 2.0
"""Logarithms: for a common word, and against a number that only one side has."""
_GAP = math.log(0.01)
"""Log-probability of a text without a translation."""
_LEAST_SURE = 0.99
_MOST_TEXTS = 1000
"""Texts that are aligned at once."""


def pair_texts(sources: Sequence[str], targets: Sequence[str]) -> dict[int, int]:
    """Return the numbers of texts and of their translations, as far as they are sure."""
    pairs, first, other = dict[int, int](), 0, 0
    while True:
        ends = first + _MOST_TEXTS, other + _MOST_TEXTS
        is_last = ends[0] >= len(sources) and ends[1] >= len(targets)
        sure = _pair(sources[first : ends[0]], targets[other : ends[1]])
        if not is_last:
            sure = {one: two for one, two in sure.items() if max(one, two) < _MOST_TEXTS // 2}
        pairs |= {first + one: other + two for one, two in sure.items()}
        if is_last or len(sure) < 2:
            break
        first, other = next(reversed(pairs.items()))
    around = {-1: -1, len(sources): len(targets)} | pairs
    return {one: two for one, two in pairs.items() if around.get(one - 1) == two - 1 and around.get(one + 1) == two + 1}


def _pair(sources: Sequence[str], targets: Sequence[str]) -> dict[int, int]:
    if not sources or not targets:
        return {}
    scores = _compare_lengths(sources, targets)
    places, others = _find_keys(sources), _find_keys(targets)
    for key in places | others:  # in the order of the text, as sums of floats depend on it
        rows, columns = places.get(key, []), others.get(key, [])
        evidence = math.log(max(1.0, len(sources) * len(targets) / (len(rows) * len(columns) or 1))) / 2
        if key.isdigit():
            scores[rows] -= _OTHER_NUMBER
            scores[:, columns] -= _OTHER_NUMBER
            evidence += 2 * _OTHER_NUMBER
        scores[np.ix_(rows, columns)] += min(evidence, _MOST_EVIDENCE + 2 * _OTHER_NUMBER * key.isdigit())
    before, after = _sum_paths(scores), _sum_paths(scores[::-1, ::-1])[::-1, ::-1]
    shares = np.exp(before[:-1, :-1] + scores + after[1:, 1:] - before[-1, -1])
    return {int(one): int(two) for one, two in np.argwhere(shares >= _LEAST_SURE)}


def _compare_lengths(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.float64]:
    """Return how much more probable the lengths of two texts are than those of others, as logarithms."""
    one, other = (np.array([len(text) for text in side], float) for side in (sources, targets))
    one = one[:, None] * (other.sum() or 1) / (one.sum() or 1)
    deviations = np.minimum(np.abs(other - one) / np.sqrt(_VARIANCE * (one + other) / 2 + 1), _MOST_DEVIATION)
    densities = np.exp(-(deviations**2) / 2)
    usual = np.maximum(densities.mean(0, keepdims=True), densities.mean(1, keepdims=True))
    compared: NDArray[np.float64] = np.log(densities) - np.log(np.maximum(usual, _LEAST_DENSITY))
    return compared


def _find_keys(texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the texts that have each number, and each longer word."""
    keys = [dict.fromkeys(map(str.casefold, _KEY.findall(text))) for text in texts]
    return group_pairs((key, number) for number, each in enumerate(keys) for key in each)


def _sum_paths(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-probability of all alignments of the first texts of both sides, by their numbers."""
    gaps = _GAP * np.arange(scores.shape[1] + 1)
    sums = np.empty((len(scores) + 1, len(gaps)))
    sums[0] = gaps
    for number, row in enumerate(scores):
        new = sums[number] + _GAP
        new[1:] = np.logaddexp(new[1:], sums[number, :-1] + row)
        sums[number + 1] = np.logaddexp.accumulate(new - gaps) + gaps
    return sums
