"""Documents of random words with sentences as long as real ones."""

from __future__ import annotations

import numpy as np

from docmt.text import SpecialTokens

MEAN_SENTENCE = 23
"""Tokens of a sentence, boundary tokens included; about as in news and parliament."""
_SPREAD = 0.5  # standard deviation of the logarithm of a sentence's length
_SHORTEST = 4

Sentences = list[list[int]]


def draw_parallel_lengths(total: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
    """Draw the sentence lengths of a document of `total` tokens, boundary tokens included; long sources have long
    targets.
    """
    count = max(1, round(total / MEAN_SENTENCE))
    weights = np.exp(generator.normal(0, _SPREAD, count))
    source, target = (_apportion(total, weights * np.exp(generator.normal(0, 0.2, count))) for _ in range(2))
    return source, target


def draw_words(lengths: list[int], specials: SpecialTokens, generator: np.random.Generator) -> Sentences:
    """Draw word ids of sentences with these lengths, which count their two boundary tokens."""
    return [generator.integers(specials.first_word, specials.eod, length - 2).tolist() for length in lengths]


def _apportion(total: int, weights: np.ndarray) -> list[int]:
    """Return integers in proportion to the weights, none below the shortest length, that sum to `total`."""
    free = total - _SHORTEST * len(weights)
    borders = np.round(np.cumsum(weights) / weights.sum() * free).astype(int)
    shares: list[int] = (np.diff(borders, prepend=0) + _SHORTEST).tolist()
    return shares
