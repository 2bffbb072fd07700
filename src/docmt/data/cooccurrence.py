"""Which target words go with a source word, counted in parallel sentences.

It is IBM model 1 (Brown et al. 1993) on the different words of each sentence, in a few rounds: every target word is
shared among the source words of its sentence, by how often each was given it in the round before. So words that are
everywhere (the full stop) do not take what belongs to others, as they would if pairs were only counted.

N different target words of all sentences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from docmt.core.progress import progress
from docmt.data.arrays import Offsets, Tokens, token_dtype
from docmt.data.store import ParallelStore

ROUNDS = 3
_KEPT = 512  # target words of a source word that go into the next round
_BLOCK = 1 << 15  # sentences that are sorted at once
Ids = NDArray[np.int64]
Numbers = NDArray[Any]


class Cooccurrence(NamedTuple):
    """Ids of target words."""

    best: NDArray[np.int32]
    """[source vocabulary, K] those that go with each source word, the likeliest first; 0 where there are no more"""
    frequent: NDArray[np.int32]
    """[F] those that are in the most sentences; they are not in `best`"""


class _Words(NamedTuple):
    """The different words of every sentence, in rising order of sentences, then words."""

    words: Tokens
    sentences: NDArray[np.int32]


def count_together(
    split: ParallelStore, sizes: tuple[int, int], per_word: int, frequent: int, most: int
) -> Cooccurrence:
    """Counts a split, of which at most `most` pairs of sentences, evenly spread, are read.

    sizes: of the two vocabularies. Memory: about 40 bytes for each token, and up to 8 KB for each source word.
    """
    count = len(split.source_lengths)
    chosen = np.arange(0, count, -(-count // most))
    source = _different(split.source_tokens, split.source_offsets, chosen, sizes[0])
    target = _different(split.target_tokens, split.target_offsets, chosen, sizes[1])
    often = np.bincount(target.words, minlength=sizes[1])
    usual = np.argsort(-often, kind="stable")[: min(frequent, int((often > 0).sum()))]
    rare = ~np.isin(target.words, usual)
    target = _Words(target.words[rare], target.sentences[rare])
    return Cooccurrence(_share(source, target, len(chosen), sizes, per_word), usual.astype(np.int32))


def _different(tokens: Tokens, offsets: Offsets, chosen: Ids, size: int) -> _Words:
    """Of the chosen sentences, numbered anew."""
    words, sentences = [], []
    with progress("reading (sentences)", len(chosen)) as bar:
        for first in range(0, len(chosen), _BLOCK):
            numbers = chosen[first : first + _BLOCK]
            lengths = offsets[numbers + 1] - offsets[numbers]
            keys = np.repeat(np.arange(len(numbers)), lengths) * size + tokens[_ranges(offsets[numbers], lengths)]
            keys.sort()
            keys = keys[np.diff(keys, prepend=-1) > 0]
            words.append((keys % size).astype(token_dtype(size)))
            sentences.append((keys // size + first).astype(np.int32))
            bar.advance(len(numbers))
    return _Words(np.concatenate(words), np.concatenate(sentences))


def _ranges(starts: Ids, lengths: Ids) -> Ids:
    """The numbers starts[i] .. starts[i] + lengths[i] - 1 of each i, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _share(source: _Words, target: _Words, sentences: int, sizes: tuple[int, int], per_word: int) -> NDArray[np.int32]:
    """[source vocabulary, K] the target words that each source word is given most of, most first."""
    order = np.argsort(source.words, kind="stable")
    holding = source.sentences[order]  # the sentences that hold each source word, one word after the other
    borders = np.searchsorted(source.words[order], np.arange(sizes[0] + 1))
    starts = np.searchsorted(target.sentences, np.arange(sentences + 1))
    lengths = np.diff(starts)
    # [N] what all source words of its sentence ask for together; at first all ask alike for everything.
    asked = np.bincount(source.sentences, minlength=sentences)[target.sentences].astype(np.float32)
    found: dict[int, tuple[Ids, Numbers]] = {}
    with progress("counting (words)", ROUNDS * len(holding)) as bar:
        for _ in range(ROUNDS):
            asked_next = np.zeros_like(asked)
            for word in np.flatnonzero(np.diff(borders)).tolist():
                own = holding[borders[word] : borders[word + 1]]
                places = _ranges(starts[own], lengths[own])
                words = target.words[places]
                wanted = _dense(*found[word], sizes[1])[words] if word in found else np.ones(len(words))
                ids, given = _sums(words, wanted / np.maximum(asked[places], 1e-30), sizes[1])
                most = np.argsort(-given, kind="stable")[: max(_KEPT, per_word)]
                found[word] = ids[most], given[most] / len(own)
                asked_next[places] += _dense(*found[word], sizes[1])[words]
                bar.advance(len(own))
            asked = asked_next
    best = np.zeros((sizes[0], per_word), np.int32)
    for word, (ids, _) in found.items():
        best[word, : len(ids[:per_word])] = ids[:per_word]
    return best


def _dense(ids: Ids, values: Numbers, size: int) -> Numbers:
    """[size] the values at their ids, 0 elsewhere."""
    made = np.zeros(size)
    made[ids] = values
    return made


def _sums(words: Tokens, weights: Numbers, size: int) -> tuple[Ids, Numbers]:
    """The words whose weights have a sum above 0, rising, and these sums."""
    if len(words) < size // 8:
        ids, place = np.unique(words, return_inverse=True)
        sums = np.bincount(place, weights, len(ids))
    else:
        sums = np.bincount(words, weights, size)
        ids = np.arange(size)
    there = sums > 0
    return ids[there].astype(np.int64), sums[there]
