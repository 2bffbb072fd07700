"""Instances: consecutive sentences of a document, up to a token limit, that a model reads at once.

Notation: S sentences, D documents, I instances. The cost of a sentence is the length of its longer side plus two
boundary tokens, <s> and </s>.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.model import ModelConfig
from docmt.model.systems import ContextSpec

NUM_BOUNDARY_TOKENS = 2
"""Boundary tokens, <s> and </s>, that are counted for every sentence of a packed sequence."""
DEFAULT_LIMIT = 512
"""Default token limit of an instance."""
DEFAULT_MAX_SENTENCES = 1000

Integers = NDArray[np.int64]
Numbers = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Instances:
    """Sentence ranges of I instances; all arrays are int64 [I].

    Instance i is of document[i]. It reads source sentences before[i] .. last[i] - 1 and target sentences first[i] ..
    last[i] - 1. Its output sentences are first_output[i] .. last[i] - 1; the others are context. Together the output
    sentences of all instances are every sentence once, in order (with padding windows: some more than once). cost[i] is
    the summed cost of first[i] .. last[i] - 1.
    """

    document: Integers
    before: Integers
    first: Integers
    first_output: Integers
    last: Integers
    cost: Integers

    def __len__(self) -> int:
        return len(self.first)

    def select(self, indices: Numbers) -> Instances:
        """Return the instances with these indices, in this order."""
        return Instances(*(getattr(self, column.name)[np.asarray(indices)] for column in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Instances]) -> Instances:
        """Return all instances of the parts, in order."""
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))


def cut_instances(
    source_lengths: Numbers,
    target_lengths: Numbers | None,
    document_offsets: Numbers,
    context_spec: ContextSpec,
    *,
    limit: int = DEFAULT_LIMIT,
    max_sentences: int = DEFAULT_MAX_SENTENCES,
    training: bool = False,
    overlap: int = 0,
    second_limit: tuple[Integers, int] | None = None,
) -> Instances:
    """Cut documents into the instances that a system needs, in training and in translation.

    End to end (Bao et al. 2021, section 4.1 and published code): a sentence joins the instance before it if the summed
    cost stays strictly below `limit` and the count within `max_sentences` and the needs of the system. Otherwise, and
    at each document, a new instance begins.
    Windows: one ends at every sentence, with as many sentences before it as the system needs and the limit allows.
    Context that a system only reads before an instance (`ContextSpec`) does not count in these limits, so it is never
    shortened. A sentence at or over the limit is an instance of its own: nothing is truncated.

    Lengths [S] are in words, without boundary tokens. Without target lengths (in translation) the source alone counts.
    document_offsets [D + 1] are in sentences. training: add the padding windows that a system may ask for. overlap:
    number of sentences before its output that an end-to-end instance repeats, as far as they fit into half of the
    limit. second_limit: other lengths [S] with a limit of their own. Translation limits the longest translations, where
    the decoder has learned positions.
    """
    lengths = np.asarray(source_lengths) if target_lengths is None else np.maximum(source_lengths, target_lengths)
    costs = _cumulative_costs(lengths)
    budgets = [(costs, limit)]
    if second_limit is not None:
        budgets.append((_cumulative_costs(second_limit[0]), second_limit[1]))
    borders = np.asarray(document_offsets, dtype=np.int64)
    max_count = max_sentences if context_spec.sentences is None else min(max_sentences, context_spec.sentences)
    if context_spec.windows:
        extra = max_count - 1 if training and context_spec.padding_windows else 0
        document, first, last = _cut_windows(budgets, borders, max_count, extra)
        before, first_output = first, last - 1
    else:
        document, overlap_start, first_output, last = _cut_end_to_end(budgets, borders, max_count, overlap)
        start = borders[document]
        first = overlap_start
        if context_spec.target_context:
            first = np.maximum(first_output - context_spec.target_context, start)
        before = np.maximum(first - context_spec.source_context, start)
    return Instances(document, before, first, first_output, last, costs[last] - costs[first])


Budget = tuple[Integers, int]
"""Cumulative costs [S + 1] before each sentence, and the strict upper limit of the cost of an instance."""


def _cumulative_costs(lengths: Numbers) -> Integers:
    """Return the summed cost [S + 1] of all sentences before each."""
    costs = np.asarray(lengths, dtype=np.int64) + NUM_BOUNDARY_TOKENS
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(costs)])


def _cut_end_to_end(budgets: Sequence[Budget], borders: Integers, max_count: int, overlap: int) -> tuple[Integers, ...]:
    """Return [I] document, first, first output and last of instances end to end.

    The end of an instance depends on its first output sentence alone. So ends are computed for all S sentences at once,
    then followed from the first sentence on.
    """
    start, end = (np.repeat(side, np.diff(borders)) for side in (borders[:-1], borders[1:]))  # [S]
    first_output = np.arange(borders[0], borders[-1])
    overlap_start = first_output
    if overlap:  # the overlap fits into half of the limit, and into the limit with the first output sentence
        overlap_start = np.maximum(start, first_output - min(overlap, max_count // 2))
        for costs, limit in budgets:
            half = np.searchsorted(costs, costs[first_output] - limit // 2)
            whole = np.searchsorted(costs, costs[first_output + 1] - limit, side="right")
            overlap_start = np.maximum(overlap_start, np.maximum(half, whole))
        overlap_start = np.minimum(overlap_start, first_output)
    last = np.minimum(end, overlap_start + max_count)
    for costs, limit in budgets:
        last = np.minimum(last, np.searchsorted(costs, costs[overlap_start] + limit) - 1)
    last = np.maximum(last, first_output + 1)
    starts = first_output if (last == first_output + 1).all() else _follow(last, int(borders[0]), int(borders[-1]))
    document = np.searchsorted(borders, starts, side="right") - 1
    rows = starts - borders[0]
    return document, overlap_start[rows], starts, last[rows]


def _follow(last: Integers, start: int, end: int) -> Integers:
    """Return the first sentence of each instance from `start` to `end`; last [end - start]: where one would end."""
    firsts, sentence = array("q"), start
    while sentence < end:
        firsts.append(sentence)
        sentence = int(last[sentence - start])
    return np.array(firsts, dtype=np.int64)


def _cut_windows(budgets: Sequence[Budget], borders: Integers, max_count: int, padding: int) -> tuple[Integers, ...]:
    """Return [I] document, first and last of windows that end at each sentence of a document, then at padding."""
    sizes = np.diff(borders)
    counts = np.where(sizes > 0, sizes + padding, 0)
    document = np.repeat(np.arange(len(sizes)), counts)
    start = borders[document]
    window_end = start + 1 + np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    last = np.minimum(window_end, borders[document + 1])
    first = np.maximum(start, window_end - max_count)
    for costs, limit in budgets:
        first = np.maximum(first, np.minimum(np.searchsorted(costs, costs[last] - limit, side="right"), last - 1))
    return document, first, last


def instance_lengths(
    instances: Instances,
    source_lengths: Numbers,
    target_lengths: Numbers | None = None,
    draft_lengths: Numbers | None = None,
) -> Integers:
    """Return [I] the tokens of the longest side of each instance, with boundary tokens and context."""
    sides = [(source_lengths, instances.before), (target_lengths, instances.first), (draft_lengths, instances.before)]
    totals = [_sum_costs(lengths, first, instances.last) for lengths, first in sides if lengths is not None]
    return np.max(totals, axis=0)


def context_lengths(source_lengths: Numbers, document_offsets: Numbers, count: int) -> Integers:
    """Return [S] the source tokens, with boundary tokens, of the `count` sentences before each in its document."""
    offsets, sentences = np.asarray(document_offsets), np.arange(len(source_lengths))
    first = offsets[np.searchsorted(offsets, sentences, side="right") - 1]
    return _sum_costs(source_lengths, np.maximum(sentences - count, first), sentences)


def locate_sentence(sentence: int, document_offsets: Numbers) -> tuple[int, int]:
    """Return the document of a sentence that is numbered through all documents, and its number there, from 0."""
    document = int(np.searchsorted(document_offsets, sentence, side="right")) - 1
    return document, sentence - int(document_offsets[document])


def _sum_costs(lengths: Numbers, first: Integers, last: Integers) -> Integers:
    costs = _cumulative_costs(lengths)
    totals: Integers = costs[last] - costs[first]
    return totals


def cut_dbleu_units(
    model: ModelConfig, source_lengths: Numbers, target_lengths: Numbers, document_offsets: Numbers
) -> list[list[tuple[int, int]]]:
    """Return the units of d-BLEU (Bao et al. 2021): ranges of sentences of each document, packed by both sides.

    The units do not depend on the system.
    """
    offsets = np.asarray(document_offsets)
    packed = cut_instances(
        source_lengths,
        target_lengths,
        offsets,
        ContextSpec(),
        limit=model.instance_tokens,
        max_sentences=model.instance_sentences,
    )
    units: list[list[tuple[int, int]]] = [[] for _ in range(len(offsets) - 1)]
    for document, first, last in zip(packed.document, packed.first, packed.last, strict=True):
        start = offsets[document]
        units[int(document)].append((int(first - start), int(last - start)))
    return units
