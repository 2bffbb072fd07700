"""Instances in few bytes: cut block by block, they are those that are cut at once."""

from dataclasses import astuple, fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmt.data import Instances, cut_instances
from docmt.data.compact_instances import CompactInstances, document_blocks, narrow
from docmt.data.instances import Integers
from docmt.model.systems import ContextSpec

KINDS = [
    ContextSpec(),
    ContextSpec(sentences=1),
    ContextSpec(sentences=1, source_context=3, target_context=1),
    ContextSpec(sentences=4, windows=True, padding_windows=True),
]


def cut_in_blocks(lengths: Integers, offsets: Integers, kind: ContextSpec, size: int) -> CompactInstances:
    parts = []
    for first, last in document_blocks(offsets, size):
        borders = offsets[first : last + 1]
        block = lengths[borders[0] : borders[-1]]
        instances = cut_instances(block, block, borders - borders[0], kind, limit=60, training=True)
        parts.append(CompactInstances.pack(instances, offsets, int(borders[0])))
    return CompactInstances.concatenate(parts)


def assert_equal(one: Instances, other: Instances) -> None:
    for column, mine, theirs in zip(fields(Instances), astuple(one), astuple(other), strict=True):
        assert mine.dtype == theirs.dtype == np.int64 and mine.tolist() == theirs.tolist(), column.name


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [1, 10, 10**6])
def test_blocks_change_nothing(kind: ContextSpec, size: int) -> None:
    generator = np.random.default_rng(size)
    offsets = np.cumsum([0, *generator.integers(1, 9, 40)])
    lengths = generator.integers(1, 70, int(offsets[-1]))
    whole = cut_instances(lengths, lengths, offsets, kind, limit=60, training=True)
    compact = cut_in_blocks(lengths, offsets, kind, size)
    assert len(compact) == len(whole)
    assert_equal(compact.expand(), whole)
    order = generator.permutation(len(whole))
    assert_equal(compact.reorder(order).expand(), whole.select(order))
    for indices in (order[:5], [2], order[:0], order.astype(np.int32)):
        assert_equal(compact.select(indices), whole.select(indices))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 30))
def test_blocks_are_all_documents_in_order(sizes: list[int], least: int) -> None:
    offsets = np.cumsum([0, *sizes])
    blocks = list(document_blocks(offsets, least))
    assert [number for first, last in blocks for number in range(first, last)] == list(range(len(sizes)))
    counts = [int(offsets[last] - offsets[first]) for first, last in blocks]
    assert all(count >= least for count in counts[:-1])
    assert all(offsets[last - 1] - offsets[first] < least for first, last in blocks), "none is larger than it must be"
    assert all(one[1] == other[0] for one, other in pairwise(blocks))


def test_numbers_take_as_few_bytes_as_they_can() -> None:
    for numbers, kind in (([0, 255], "u1"), ([3, 256], "u2"), ([1, 1 << 16], "u4"), ([0, 1 << 32], "u8")):
        narrowed = narrow(np.array(numbers))
        assert narrowed.tolist() == numbers and narrowed.dtype == kind
    equal = narrow(np.full(1000, 70_000))
    assert equal.tolist() == [70_000] * 1000 and equal.dtype == "u4" and equal.strides == (0,)
    assert narrow(np.empty(0, dtype=np.int64)).tolist() == []


def test_single_sentences_take_the_memory_of_where_they_begin_and_their_cost() -> None:
    count = 100_000
    compact = cut_in_blocks(np.full(count, 20) + np.arange(count) % 7, np.arange(0, count + 1, 10), KINDS[1], 1000)
    owned = [column for column in compact.columns if column.strides != (0,)]
    assert sum(column.nbytes for column in owned) == (4 + 1) * count
