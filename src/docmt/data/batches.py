"""Batches: which instances go together in which order, and what the model gets to see of them.

Notation: I instances, S sentences, T_s and T_t packed source and target tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.data.instances import MARKS, Instances
from docmt.data.store import ParallelStore
from docmt.model.packed import Packed
from docmt.model.spans import Spans
from docmt.text.tokenizer import SpecialTokens

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Instances laid end to end; `documents` of `source` and `target` are the instances.

    `target` is the decoder input, every sentence as <s> w .. </s>; labels [T_t] are the tokens after each of its
    positions: the decoder input shifted left by one, with <eod> at the end of each instance.
    """

    source: Packed
    target: Packed
    labels: Tensor

    @property
    def tokens(self) -> int:
        """How many tokens are predicted."""
        return self.labels.numel()

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device), self.labels.to(device))


def collate(
    store: ParallelStore, instances: Instances, indices: Sequence[int] | Indices, specials: SpecialTokens
) -> Batch:
    """The batch of the given instances, in the given order."""
    ranges = [(int(instances.first[index]), int(instances.last[index])) for index in indices]
    source = _lay_out(store.source_tokens, store.source_offsets, ranges, specials)
    target = _lay_out(store.target_tokens, store.target_offsets, ranges, specials)
    labels = torch.roll(target.tokens, -1)
    labels[target.documents.ends - 1] = specials.eod
    return Batch(source, target, labels)


def _lay_out(
    tokens: NDArray[np.unsignedinteger | np.signedinteger],
    offsets: NDArray[np.int64],
    ranges: Sequence[tuple[int, int]],
    specials: SpecialTokens,
) -> Packed:
    """The sentences of the ranges (end exclusive), each between <s> and </s>, each range a document."""
    lengths = np.concatenate([np.diff(offsets[first : last + 1]) for first, last in ranges]) + MARKS
    words = np.concatenate([tokens[offsets[first] : offsets[last]] for first, last in ranges])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    laid = np.empty(int(lengths.sum()), dtype=np.int64)
    is_word = np.ones(len(laid), dtype=bool)
    is_word[starts] = is_word[ends - 1] = False
    laid[starts], laid[ends - 1], laid[is_word] = specials.bos, specials.eos, words
    documents = [int(offsets[last] - offsets[first]) + MARKS * (last - first) for first, last in ranges]
    return Packed(torch.from_numpy(laid), Spans.tile(torch.from_numpy(lengths)), Spans.tile(documents))


class BatchPlan:
    """Which instances make up each batch: a function of (seed, epoch) alone, so it can be resumed anywhere.

    Instances are shuffled and cut greedily so that the token counts of a batch sum to at most `batch_tokens`; an
    instance above that is a batch of its own.
    """

    def __init__(
        self, instances: Instances, lengths: Sequence[int] | NDArray[np.int64], batch_tokens: int, seed: int
    ) -> None:
        """`lengths` [I]: the token count of each instance, as `instance_lengths` gives it.

        Raises ValueError for lengths of another number of instances, no instances, or a negative seed.
        """
        if len(lengths) != len(instances) or len(instances) == 0:
            raise ValueError(f"{len(lengths)} lengths for {len(instances)} instances; both must be equal and over 0")
        if batch_tokens < 1 or seed < 0:
            raise ValueError(f"batch_tokens {batch_tokens} must be at least 1, seed {seed} at least 0")
        self.instances = instances
        self.batch_tokens = batch_tokens
        self.seed = seed
        self._lengths: list[int] = np.asarray(lengths, dtype=np.int64).tolist()

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of one epoch (0, 1, ...): every instance once."""
        # Sorting raw random words, not Generator.permutation: numpy keeps the raw stream the same for ever, the
        # methods of a generator only until somebody finds a better algorithm.
        words = np.random.default_rng([self.seed, epoch]).bit_generator.random_raw(len(self._lengths))
        return self._cut(np.argsort(words, kind="stable"))

    def in_order(self) -> list[Indices]:
        """The batches without shuffling, for validation."""
        return self._cut(np.arange(len(self._lengths)))

    def batches(self, start_epoch: int = 0, start_batch: int = 0) -> Iterator[tuple[int, int, Indices]]:
        """Yields (epoch, number of the batch in it, indices of its instances) for ever, from the given place on.

        `start_batch` may be the number of batches of the epoch: then the next epoch follows.
        Raises ValueError if it is larger.
        """
        epoch, start = start_epoch, start_batch
        while True:
            planned = self.epoch(epoch)
            if not 0 <= start <= len(planned):
                raise ValueError(f"epoch {epoch} has {len(planned)} batches, so it cannot go on from batch {start}")
            for number in range(start, len(planned)):
                yield epoch, number, planned[number]
            epoch, start = epoch + 1, 0

    def _cut(self, order: NDArray[np.int64]) -> list[Indices]:
        borders, total = [], 0
        for place, instance in enumerate(order.tolist()):
            length = self._lengths[instance]
            if place and total + length > self.batch_tokens:
                borders.append(place)
                total = 0
            total += length
        return np.split(order, borders)
