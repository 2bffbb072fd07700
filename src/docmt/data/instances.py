"""Instances: what a model reads at once, consecutive sentences of one document up to a token limit.

Notation: S sentences, D documents, I instances. A sentence costs its longer side plus two marks, <s> and </s>.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from docmt.data.prepare_config import DEFAULT_LIMIT, MARKS
from docmt.model.systems import ContextSpec

DEFAULT_MAX_SENTENCES = 1000

Integers = NDArray[np.int64]
Numbers = Sequence[int] | Integers


@dataclass(frozen=True)
class Instances:
    """I instances; instance i holds the sentences first[i] .. last[i] - 1, all of document[i].

    All arrays are int64 [I]. Of the source it reads before[i] .. first[i] - 1 as well. Its own sentences are
    own[i] .. last[i] - 1: together, those of all instances are every sentence once, in order (of padding windows: more
    than once); the others are there for their context. cost[i] is the sum of the costs of first[i] .. last[i] - 1.
    """

    document: Integers
    before: Integers
    first: Integers
    own: Integers
    last: Integers
    cost: Integers

    def __len__(self) -> int:
        return len(self.first)

    def at(self, indices: Numbers) -> Instances:
        """Those of these numbers, in this order."""
        return Instances(*(getattr(self, each.name)[np.asarray(indices)] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Instances]) -> Instances:
        """All of these, one after the other."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))


def cut(
    source_lengths: Numbers,
    target_lengths: Numbers | None,
    document_offsets: Numbers,
    context_spec: ContextSpec,
    *,
    limit: int = DEFAULT_LIMIT,
    max_sentences: int = DEFAULT_MAX_SENTENCES,
    training: bool = False,
    carry: int = 0,
    reserve: tuple[Integers, int] | None = None,
) -> Instances:
    """Cuts documents into the instances that a system needs: the one rule of training and of translation.

    End to end (Bao et al. 2021, section 4.1, as their code does it): a sentence joins the instance before it if the
    costs stay below `limit` (strictly) and the count within `max_sentences` and what the system needs; otherwise, and
    at each document, an instance begins. Windows: one ends at every sentence, with as many before it as the system
    needs and the limit allows. What a system only reads before an instance (`ContextSpec`) does not count in these
    limits, so that context is never cut short. A sentence at or over the limit is an instance of its own: nothing is
    cut off.
    Lengths [S] are in words, without marks; without target lengths (in translation) the source alone counts;
    document_offsets [D + 1] in sentences. `training` adds the padding windows that a system may ask for. `carry`: of
    instances end to end, how many sentences before its own an instance has as well, as far as they fit into half of it.
    `reserve`: further lengths and their limit, such as those of the longest translations.
    """
    if limit < 1 or max_sentences < 1:
        raise ValueError(f"limit {limit} and max_sentences {max_sentences} must be at least 1")
    longer = np.asarray(source_lengths) if target_lengths is None else np.maximum(source_lengths, target_lengths)
    costs = _running_sum(longer)
    budgets = [(costs, limit)] + ([(_running_sum(reserve[0]), reserve[1])] if reserve is not None else [])
    borders = np.asarray(document_offsets, dtype=np.int64)
    most = max_sentences if context_spec.sentences is None else min(max_sentences, context_spec.sentences)
    if context_spec.windows:
        extra = most - 1 if training and context_spec.padding_windows else 0
        document, first, last = _windows(budgets, borders, most, extra)
        before, own = first, last - 1
    else:
        document, carried, own, last = _tiles(budgets, borders, most, carry)
        start = borders[document]
        first = np.maximum(own - context_spec.target_context, start) if context_spec.target_context else carried
        before = np.maximum(first - context_spec.source_context, start)
    return Instances(document, before, first, own, last, costs[last] - costs[first])


Budget = tuple[Integers, int]
"""Costs of all sentences before each, [S + 1], and the limit below which those of an instance stay."""


def _running_sum(lengths: Numbers) -> Integers:
    """[S + 1] costs of all sentences before each."""
    costs = np.asarray(lengths, dtype=np.int64) + MARKS
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(costs)])


def _tiles(budgets: Sequence[Budget], borders: Integers, most: int, carry: int) -> tuple[Integers, ...]:
    """[I] document, first carried, first own and last of instances end to end.

    Where an instance ends depends on its first own sentence alone. So ends are found for all S sentences at once, and
    then followed from the first on.
    """
    start, end = (np.repeat(side, np.diff(borders)) for side in (borders[:-1], borders[1:]))  # [S] of its document
    own = np.arange(borders[0], borders[-1])
    carried = own
    if carry:  # as many sentences before, as fit into half of the limit, and into the limit with the first own one
        carried = np.maximum(start, own - min(carry, most // 2))
        for costs, limit in budgets:
            half = np.searchsorted(costs, costs[own] - limit // 2)
            whole = np.searchsorted(costs, costs[own + 1] - limit, side="right")
            carried = np.maximum(carried, np.maximum(half, whole))
        carried = np.minimum(carried, own)
    last = np.minimum(end, carried + most)
    for costs, limit in budgets:
        last = np.minimum(last, np.searchsorted(costs, costs[carried] + limit) - 1)
    last = np.maximum(last, own + 1)
    firsts, sentence = array("q"), int(borders[0])
    while sentence < borders[-1]:
        firsts.append(sentence)
        sentence = int(last[sentence - borders[0]])
    chosen = np.array(firsts, dtype=np.int64)
    document = np.searchsorted(borders, chosen, side="right") - 1
    rows = chosen - borders[0]
    return document, carried[rows], chosen, last[rows]


def _windows(budgets: Sequence[Budget], borders: Integers, most: int, extra: int) -> tuple[Integers, ...]:
    """[I] document, first and last of windows that end at each sentence, then at `extra` imagined ones, of each."""
    sizes = np.diff(borders)
    counts = np.where(sizes > 0, sizes + extra, 0)
    document = np.repeat(np.arange(len(sizes)), counts)
    start = borders[document]
    reached = start + 1 + np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    last = np.minimum(reached, borders[document + 1])
    first = np.maximum(start, reached - most)
    for costs, limit in budgets:
        first = np.maximum(first, np.minimum(np.searchsorted(costs, costs[last] - limit, side="right"), last - 1))
    return document, first, last


def instance_lengths(
    instances: Instances,
    source_lengths: Numbers,
    target_lengths: Numbers | None = None,
    draft_lengths: Numbers | None = None,
) -> Integers:
    """[I] tokens of each instance, marks included: those of its longest side, what is only read counted in."""
    sides = [(source_lengths, instances.before), (target_lengths, instances.first), (draft_lengths, instances.before)]
    totals = [_totals(lengths, first, instances.last) for lengths, first in sides if lengths is not None]
    return np.max(totals, axis=0)


def lengths_before(source_lengths: Numbers, document_offsets: Numbers, count: int) -> Integers:
    """[S] source tokens, marks included, of the `count` sentences before each in its document."""
    offsets, numbers = np.asarray(document_offsets), np.arange(len(source_lengths))
    first = offsets[np.searchsorted(offsets, numbers, side="right") - 1]
    return _totals(source_lengths, np.maximum(numbers - count, first), numbers)


def place_of(sentence: int, document_offsets: Numbers) -> tuple[int, int]:
    """Number of the document of a sentence that is numbered through all of them, and its number there, from 0."""
    document = int(np.searchsorted(document_offsets, sentence, side="right")) - 1
    return document, sentence - int(document_offsets[document])


def _totals(lengths: Numbers, first: Integers, last: Integers) -> Integers:
    reached = _running_sum(lengths)
    totals: Integers = reached[last] - reached[first]
    return totals


@dataclass(frozen=True)
class Mixture:
    """Which of I instances, cut at several limits, an epoch may take together.

    This is multi-resolution training (Sun et al. 2022). Documents are cut into stretches: the instances at the longest
    limit. In every epoch each stretch draws one of the limits and is cut at it. Each batch holds instances of one
    limit. So every sentence comes once an epoch, and each limit has an equal share of the text. What an epoch reads is
    a function of seed and epoch alone.
    (If instead each batch drew its limit, an epoch would repeat some sentences and miss others.)
    """

    stretch: Integers
    """[I] the stretch that each instance is a part of"""
    limit: Integers
    """[I] which of the limits it was cut at, from 0"""
    limits: int
    """how many there are"""

    def drawn(self, words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """For each limit, which of the instances [I] an epoch takes; words: a random one for each stretch."""
        own = (words % np.uint64(self.limits)).astype(np.int64)[self.stretch] == self.limit
        return [own & (self.limit == number) for number in range(self.limits)]


def cut_mixed(
    source_lengths: Integers,
    target_lengths: Integers,
    document_offsets: Integers,
    context_spec: ContextSpec,
    limits: Sequence[int],
    max_sentences: int,
) -> tuple[Instances, Mixture]:
    """Cuts documents at each limit, as `cut` does at one, and says which of the instances are of one stretch.

    For systems whose instances depend on the limit alone (`ContextSpec()`).
    """
    stretches = cut(
        source_lengths, target_lengths, document_offsets, context_spec, limit=max(limits), max_sentences=max_sentences
    )
    borders = np.append(stretches.first, stretches.last[-1:])  # they lie end to end
    parts = [
        cut(source_lengths, target_lengths, borders, context_spec, limit=limit, max_sentences=max_sentences)
        for limit in sorted(limits)
    ]
    together = Instances.joined(parts)
    limit = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    instances = replace(together, document=stretches.document[together.document])
    return instances, Mixture(together.document, limit, len(parts))
