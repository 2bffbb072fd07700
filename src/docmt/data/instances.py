"""Instances: what a model reads at once, consecutive sentences of one document up to a token limit.

Notation: S sentences, D documents, I instances. A sentence costs its longer side plus its two marks, <s> and </s>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MARKS = 2
"""<s> and </s>, which every sentence of a packed sequence has."""

DEFAULT_LIMIT = 512
DEFAULT_MAX_SENTENCES = 1000

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Instances:
    """I instances; instance i holds the sentences first[i] .. last[i] - 1, all of document[i].

    All arrays are int64 [I]; cost[i] is the sum of the costs of its sentences. Together the instances hold every
    sentence once, in order.
    """

    first: Integers
    last: Integers
    document: Integers
    cost: Integers

    def __len__(self) -> int:
        return len(self.first)


def pack_instances(
    source_lengths: Sequence[int] | Integers,
    target_lengths: Sequence[int] | Integers,
    document_offsets: Sequence[int] | Integers,
    *,
    limit: int = DEFAULT_LIMIT,
    max_sentences: int = DEFAULT_MAX_SENTENCES,
) -> Instances:
    """Packs sentences greedily, in order, into instances (Bao et al. 2021, section 4.1, as their code does it).

    A sentence joins the instance before it if the costs stay below `limit` (strictly) and the count within
    `max_sentences`; otherwise, and at each document, an instance begins. A sentence at or over the limit is an
    instance of its own: nothing is cut.
    Lengths [S] are in words, without marks; document_offsets [D + 1] in sentences.
    """
    _check_limits(limit, max_sentences)
    costs = (np.maximum(source_lengths, target_lengths) + MARKS).tolist()
    rows: list[tuple[int, int, int, int]] = []
    for document, (start, end) in enumerate(pairwise(np.asarray(document_offsets).tolist())):
        rows += [(first, last, document, cost) for first, last, cost in _pack(costs, start, end, limit, max_sentences)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Instances(*(np.ascontiguousarray(column) for column in table.T))


def pack_source(
    source_lengths: Sequence[int] | Integers,
    *,
    limit: int = DEFAULT_LIMIT,
    max_sentences: int = DEFAULT_MAX_SENTENCES,
) -> list[tuple[int, int]]:
    """Packs one document by its source alone, as at translation time.

    Returns (first, last) of each instance, last exclusive; the rule is that of `pack_instances`.
    """
    _check_limits(limit, max_sentences)
    costs = (np.asarray(source_lengths, dtype=np.int64) + MARKS).tolist()
    return [(first, last) for first, last, _ in _pack(costs, 0, len(costs), limit, max_sentences)]


def _pack(costs: list[int], start: int, end: int, limit: int, max_sentences: int) -> list[tuple[int, int, int]]:
    """(first, last, cost) of the instances of one document, sentences start .. end - 1."""
    packed: list[tuple[int, int, int]] = []
    first, total = start, 0
    for sentence in range(start, end):
        cost = costs[sentence]
        if sentence > first and not (total + cost < limit and sentence - first < max_sentences):
            packed.append((first, sentence, total))
            first, total = sentence, 0
        total += cost
    if end > start:
        packed.append((first, end, total))
    return packed


def instance_lengths(
    instances: Instances, source_lengths: Sequence[int] | Integers, target_lengths: Sequence[int] | Integers
) -> Integers:
    """[I] tokens of each instance, marks included: those of its longer side.

    At most the instance's cost, which takes the longer side sentence by sentence.
    """
    sides = []
    for lengths in (source_lengths, target_lengths):
        before = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64) + MARKS)])
        sides.append(before[instances.last] - before[instances.first])
    return np.maximum(*sides)


def _check_limits(limit: int, max_sentences: int) -> None:
    if limit < 1 or max_sentences < 1:
        raise ValueError(f"limit {limit} and max_sentences {max_sentences} must be at least 1")
