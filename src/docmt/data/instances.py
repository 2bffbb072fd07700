"""Instances: what a model reads at once, consecutive sentences of one document up to a token limit.

Notation: S sentences, D documents, I instances. A sentence costs its longer side plus two marks, <s> and </s>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from docmt.data.config import DEFAULT_LIMIT, MARKS
from docmt.model.systems import Needs

DEFAULT_MAX_SENTENCES = 1000

Integers = NDArray[np.int64]


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

    def only(self, chosen: NDArray[np.bool_]) -> Instances:
        """Those instances alone; chosen [I]."""
        return Instances(*(getattr(self, each.name)[chosen] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Instances]) -> Instances:
        """All of these, one after the other."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))


Budget = tuple[list[int], int]
"""Costs of all sentences and the limit below which those of an instance stay."""


def cut(
    source_lengths: Sequence[int] | Integers,
    target_lengths: Sequence[int] | Integers | None,
    document_offsets: Sequence[int] | Integers,
    needs: Needs,
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
    needs and the limit allows. What a system is only shown or only reads before an instance (`Needs`) does not count in
    these limits, so that context is never cut short. A sentence at or over the limit is an instance of its own:
    nothing is cut off.
    Lengths [S] are in words, without marks; without target lengths (in translation) the source alone counts;
    document_offsets [D + 1] in sentences. `training` adds the padding windows that a system may ask for. `carry`: of
    instances end to end, how many sentences before its own an instance has as well, as far as they fit into half of it.
    `reserve`: further lengths and their limit, such as those of the longest translations.
    """
    if limit < 1 or max_sentences < 1:
        raise ValueError(f"limit {limit} and max_sentences {max_sentences} must be at least 1")
    longer = np.asarray(source_lengths) if target_lengths is None else np.maximum(source_lengths, target_lengths)
    costs = _costs(longer)
    budgets: list[Budget] = [(costs, limit)] + ([(_costs(reserve[0]), reserve[1])] if reserve is not None else [])
    most = max_sentences if needs.sentences is None else min(max_sentences, needs.sentences)
    rows: list[tuple[int, int, int, int, int, int]] = []
    for document, (start, end) in enumerate(pairwise(np.asarray(document_offsets).tolist())):
        if needs.windows:
            extra = most - 1 if training and needs.padding_windows else 0
            for first, last in _windows(budgets, start, end, most, extra):
                rows.append((document, first, first, last - 1, last, sum(costs[first:last])))
        else:
            for carried, own, last in _tiles(budgets, start, end, most, carry):
                first = max(own - needs.shown, start) if needs.shown else carried
                rows.append((document, max(first - needs.before, start), first, own, last, sum(costs[first:last])))
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    return Instances(*(np.ascontiguousarray(column) for column in table.T))


def _costs(lengths: Sequence[int] | Integers) -> list[int]:
    costs: list[int] = (np.asarray(lengths).astype(np.int64) + MARKS).tolist()
    return costs


def _tiles(budgets: Sequence[Budget], start: int, end: int, most: int, carry: int) -> list[tuple[int, int, int]]:
    """(first carried, first own, last) of the instances of one document, sentences start .. end - 1."""
    packed: list[tuple[int, int, int]] = []
    carried = first = start
    totals = [0] * len(budgets)
    for sentence in range(start, end):
        grown = [total + costs[sentence] for total, (costs, _) in zip(totals, budgets, strict=True)]
        fits = sentence - carried < most and all(
            total < limit for total, (_, limit) in zip(grown, budgets, strict=True)
        )
        if sentence > first and not fits:
            packed.append((carried, first, sentence))
            first = sentence
            carried = _carried(budgets, max(start, first - carry, first - most // 2), first)
            grown = [sum(costs[carried : first + 1]) for costs, _ in budgets]
        totals = grown
    if end > start:
        packed.append((carried, first, end))
    return packed


def _carried(budgets: Sequence[Budget], first: int, own: int) -> int:
    """The first of the sentences first .. own - 1 from which on they fit into half an instance, and `own` with them."""
    while first < own and any(
        sum(costs[first:own]) > limit // 2 or sum(costs[first : own + 1]) >= limit for costs, limit in budgets
    ):
        first += 1
    return first


def _windows(budgets: Sequence[Budget], start: int, end: int, most: int, extra: int) -> list[tuple[int, int]]:
    """(first, last) of the windows of one document, then those of `extra` imagined sentences after its end."""
    totals = [([0, *accumulate(costs[start:end])], limit) for costs, limit in budgets]
    windows, first = [], start
    for reached in range(start + 1, end + 1 + (extra if end > start else 0)):
        # What does not fit into a window does not fit into the next one either: first sentences only move on.
        first, last = max(first, reached - most), min(reached, end)
        while first < last - 1 and any(total[last - start] - total[first - start] >= limit for total, limit in totals):
            first += 1
        windows.append((first, last))
    return windows


def instance_lengths(
    instances: Instances,
    source_lengths: Sequence[int] | Integers,
    target_lengths: Sequence[int] | Integers | None = None,
    draft_lengths: Sequence[int] | Integers | None = None,
) -> Integers:
    """[I] tokens of each instance, marks included: those of its longest side, what is only read counted in."""
    longest = _totals(source_lengths, instances.before, instances.last)
    if target_lengths is not None:
        longest = np.maximum(longest, _totals(target_lengths, instances.first, instances.last))
    if draft_lengths is not None:
        longest = np.maximum(longest, _totals(draft_lengths, instances.before, instances.last))
    return longest


def lengths_before(
    source_lengths: Sequence[int] | Integers, document_offsets: Sequence[int] | Integers, count: int
) -> Integers:
    """[S] source tokens, marks included, of the `count` sentences before each in its document."""
    offsets, numbers = np.asarray(document_offsets), np.arange(len(source_lengths))
    first = offsets[np.searchsorted(offsets, numbers, side="right") - 1]
    return _totals(source_lengths, np.maximum(numbers - count, first), numbers)


def place_of(sentence: int, document_offsets: Sequence[int] | Integers) -> tuple[int, int]:
    """Number of the document of a sentence that is numbered through all of them, and its number there, from 0."""
    document = int(np.searchsorted(document_offsets, sentence, side="right")) - 1
    return document, sentence - int(document_offsets[document])


def _totals(lengths: Sequence[int] | Integers, first: Integers, last: Integers) -> Integers:
    reached = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64) + MARKS)])
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

    def only(self, chosen: NDArray[np.bool_]) -> Mixture:
        """That of the chosen instances [I] alone."""
        return replace(self, stretch=self.stretch[chosen], limit=self.limit[chosen])

    def drawn(self, words: NDArray[np.uint64]) -> list[NDArray[np.bool_]]:
        """For each limit, which of the instances [I] an epoch takes; words: a random one for each stretch."""
        own = (words % np.uint64(self.limits)).astype(np.int64)[self.stretch] == self.limit
        return [own & (self.limit == number) for number in range(self.limits)]


def cut_mixed(
    source_lengths: Integers,
    target_lengths: Integers,
    document_offsets: Integers,
    needs: Needs,
    limits: Sequence[int],
    max_sentences: int,
) -> tuple[Instances, Mixture]:
    """Cuts documents at each limit, as `cut` does at one, and says which of the instances are of one stretch.

    For systems whose instances depend on the limit alone (`Needs()`).
    """
    stretches = cut(
        source_lengths, target_lengths, document_offsets, needs, limit=max(limits), max_sentences=max_sentences
    )
    borders = np.append(stretches.first, stretches.last[-1:])  # they lie end to end
    parts = [
        cut(source_lengths, target_lengths, borders, needs, limit=limit, max_sentences=max_sentences)
        for limit in sorted(limits)
    ]
    together = Instances.joined(parts)
    limit = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    instances = replace(together, document=stretches.document[together.document])
    return instances, Mixture(together.document, limit, len(parts))
