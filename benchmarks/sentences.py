"""Documents of random words with sentences as long as real ones."""

from __future__ import annotations

import numpy as np

from docmt.text import SpecialTokens

MEAN_SENTENCE = 23
"""tokens of a sentence, marks included; about what news and parliament have"""
_SPREAD = 0.5  # standard deviation of the logarithm of a sentence's length
_SHORTEST = 4

Sentences = list[list[int]]


def parallel_lengths(total: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
    """Tokens, marks included, of the sentences of a document of `total` tokens; long ones face long ones."""
    count = max(1, round(total / MEAN_SENTENCE))
    weights = np.exp(generator.normal(0, _SPREAD, count))
    source, target = (_apportion(total, weights * np.exp(generator.normal(0, 0.2, count))) for _ in range(2))
    return source, target


def random_words(lengths: list[int], specials: SpecialTokens, generator: np.random.Generator) -> Sentences:
    """Word ids without marks of sentences that have these lengths with their two marks."""
    return [generator.integers(specials.first_word, specials.eod, length - 2).tolist() for length in lengths]


def _apportion(total: int, weights: np.ndarray) -> list[int]:
    """Whole numbers in proportion to the weights, none too small, that sum to `total`."""
    free = total - _SHORTEST * len(weights)
    borders = np.round(np.cumsum(weights) / weights.sum() * free).astype(int)
    shares: list[int] = (np.diff(borders, prepend=0) + _SHORTEST).tolist()
    return shares
