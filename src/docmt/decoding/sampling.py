"""Sampling of tokens by inversion: the first token whose cumulative probability reaches a random number.

The random number is a hash of the seed, the document, the sentence and the number of the token. So a sample does not
depend on other documents or batches, and no generator has a state that would have to be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import TypeVar
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens
from docmt.decoding.logits import float_blocks

Source = TypeVar("Source")
# SplitMix64 (Steele, Lea and Flood 2014), in integers with a sign.
_INCREMENT, _FIRST_FACTOR, _SECOND_FACTOR = (
    number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_BITS = 53  # of a float64


def draw_uniform(seed: int, rows: Tensor, positions: Tensor) -> Tensor:
    """Return a random number in (0, 1], float64, for each row and position: int64 [n], int64 [n] -> [n]."""
    state = torch.full_like(rows, seed)
    for number in (torch.zeros_like(rows), rows, positions):
        state = _hash(state, number)
    return (_shift(state, 64 - _BITS) + 1).double() * 2.0**-_BITS


def _hash(state: Tensor, number: Tensor) -> Tensor:
    """Return output `number` of the generator SplitMix64 with this state: int64 [n], int64 [n] -> int64 [n]."""
    x = state + (number + 1) * _INCREMENT
    x = (x ^ _shift(x, 30)) * _FIRST_FACTOR
    x = (x ^ _shift(x, 27)) * _SECOND_FACTOR
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Return integers without a sign, shifted to the right: int64 [n] -> int64 [n]."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def draw_tokens(logits: Tensor, uniform: Tensor) -> Tensor:
    """Return the id [n, 1] of one token of each row, drawn from its softmax.

    logits: [n, V], minus infinity for tokens that may not follow. uniform: random numbers in (0, 1], float64 [n].
    """
    ids, first = [], 0
    for block in float_blocks(logits):
        sums = block.softmax(-1, dtype=torch.float64).cumsum(-1)
        # The product is above 0 and at most the last sum, so the token has a probability.
        ids.append(torch.searchsorted(sums, uniform[first : first + len(block), None] * sums[:, -1:]))
        first += len(block)
    return torch.cat(ids).clamp_(max=logits.shape[1] - 1)  # weights that are not numbers have no sums


def count_copies(
    encode: Callable[[Source], Sequence[Sequence[int]]], documents: Iterable[Source], earlier: Counter[int]
) -> list[int]:
    """Return `copies` for documents that are translated in several calls: how often each came before.

    encode: gives the word ids of the sentences of a document. earlier: the counts so far, by checksum, which are
    updated.
    """
    copies = []
    for document in documents:
        try:
            sentences = [words for words in encode(document) if words]
        except DocmtError:  # which its translation will report
            copies.append(0)
            continue
        tokens = np.fromiter(chain.from_iterable(sentences), np.int64)
        checksum = _checksum(np.array(list(map(len, sentences)), np.int64), tokens)
        copies.append(earlier[checksum])
        earlier[checksum] += 1
    return copies


def _checksum(lengths: NDArray[np.int64], tokens: NDArray[np.int64]) -> int:
    """Return a checksum of the tokens of a document and the lengths of its sentences."""
    return crc32(lengths.tobytes(), crc32(tokens.tobytes()))


def number_samples(
    words: SentenceTokens, document_offsets: NDArray[np.int64], copies: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """Return the numbers [S] that samples of sentences depend on: document, sentence, and the copy of the document.

    So samples do not depend on other documents of a call. copies: tell equal documents apart; default: how often a
    document came before.
    """
    lengths, earlier, numbers = words.lengths, Counter[int](), []
    for document, (first, last) in enumerate(pairwise(document_offsets.tolist())):
        tokens = words.tokens[words.offsets[first] : words.offsets[last]].astype(np.int64)
        checksum = _checksum(lengths[first:last], tokens)
        copy = earlier[checksum] if copies is None else copies[document]
        numbers.append((checksum << 31) + (copy % 2**16 << 15) + np.arange(last - first) % 2**15)
        earlier[checksum] += 1
    return np.concatenate([np.zeros(0, np.int64), *numbers])
