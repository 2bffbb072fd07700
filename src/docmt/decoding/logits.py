"""Readings of logits in a search: normalizers, the best tokens, tokens that must follow, and samples.

Samples are drawn by inversion: the first token whose cumulative probability reaches a random number. That is a hash of
the seed, the document, the sentence and the number of the token. So a sample does not depend on other documents or
batches, and no generator has a state that would have to be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TypeVar
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens
from docmt.text import SpecialTokens

_BLOCK_NUMBERS = 2**17
_BLOCK = 64


def log_normalizers(logits: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials, in float32: [n, V] -> [n, 1]."""
    return torch.cat([block.logsumexp(-1, keepdim=True) for block in float_blocks(logits)])


def float_blocks(logits: Tensor) -> Iterator[Tensor]:
    """Yield a few rows at a time in float32, so that they stay in the processor's cache."""
    for block in logits.split(max(1, _BLOCK_NUMBERS // logits.shape[1])):
        yield block.float()


def top_tokens(logits: Tensor, count: int, offsets: Tensor) -> Tensor:
    """Return the indices [n, count] of the largest sums of logits and offsets, largest first.

    logits: [n m, V]; offsets: [n, m] float32, added to rows of logits. m rows compete; the index is row * V + id, with
    row < m. Logits are read once: only blocks with the largest maxima can have the best.
    """
    size, width = logits.shape[1], _BLOCK if logits.shape[1] >= 8 * _BLOCK else 1
    blocks = -(-size // width)
    padded = logits if size % width == 0 else F.pad(logits, (0, blocks * width - size), value=-torch.inf)
    padded = padded.view(-1, blocks, width)  # [n m, blocks, width]
    maxima = torch.cat([block.float().amax(-1) for block in padded.split(max(1, _BLOCK_NUMBERS // size))])
    maxima = maxima.view(*offsets.shape, blocks)
    best = _find_largest((maxima + offsets[:, :, None]).flatten(1), count)  # [n, blocks that can have the best]
    if width == 1:
        return best
    rows = torch.arange(len(best), device=best.device)[:, None] * (offsets.shape[1] * blocks)
    candidates = padded.flatten(0, 1).index_select(0, (rows + best).flatten()).view(*best.shape, width).float()
    index = _find_largest((candidates + offsets.gather(1, best // blocks)[:, :, None]).flatten(1), count)
    best = best.gather(1, index // width)
    ids = best % blocks * width + index % width
    ids = ids.where(ids < size, SpecialTokens.pad)  # where fewer are above minus infinity; it never follows
    return best // blocks * size + ids


def _find_largest(x: Tensor, count: int) -> Tensor:
    """Return the indices of the largest values: [n, m] -> [n, min(count, m)]."""
    return x.argmax(-1, keepdim=True) if count == 1 else x.topk(min(count, x.shape[1]), dim=-1).indices


def force_tokens(logits: Tensor, hypotheses: Tensor, tokens: int | Tensor) -> None:
    """Set all logits [R, V] of these hypotheses [n] but those of one token each to minus infinity, in place.

    tokens: one for all hypotheses, or [n].
    """
    forced_logits = logits[hypotheses, tokens]
    logits[hypotheses] = -torch.inf
    logits[hypotheses, tokens] = forced_logits


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
