"""Packing sentences into instances."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmt.data import Instances, cut_instances, instance_lengths
from docmt.model.systems import ContextSpec


def pack_instances(source, target, offsets, **limits):
    """As much as fits, end to end."""
    return cut_instances(source, target, offsets, ContextSpec(), **limits)


def pack_source(lengths, **limits):
    """The ranges of one document of which only the source is known."""
    packed = cut_instances(lengths, None, [0, len(lengths)], ContextSpec(), **limits)
    return [(int(first), int(last)) for first, last in zip(packed.first, packed.last, strict=True)]


def costs_of_instances(costs: list[int], limit: int = 512, max_sentences: int = 1000) -> list[list[int]]:
    """Packs one document whose sentences cost as given (lengths are two less)."""
    lengths = [cost - 2 for cost in costs]
    packed = pack_instances(lengths, [0] * len(costs), [0, len(costs)], limit=limit, max_sentences=max_sentences)
    groups = [costs[first:last] for first, last in zip(packed.first, packed.last, strict=True)]
    assert packed.cost.tolist() == [sum(group) for group in groups]
    assert pack_source(lengths, limit=limit, max_sentences=max_sentences) == [
        (int(first), int(last)) for first, last in zip(packed.first, packed.last, strict=True)
    ]
    return groups


@pytest.mark.parametrize(
    ("costs", "groups"),
    [
        ([200, 200, 112, 50], [[200, 200], [112, 50]]),  # 512 is not below 512
        ([200, 200, 111, 50], [[200, 200, 111], [50]]),
        ([50, 700, 5, 6], [[50], [700], [5, 6]]),
        ([700, 800], [[700], [800]]),
        ([512, 3], [[512], [3]]),
        ([511], [[511]]),
    ],
)
def test_worked_examples(costs: list[int], groups: list[list[int]]) -> None:
    assert costs_of_instances(costs) == groups


def test_the_number_of_sentences_is_limited_too() -> None:
    assert costs_of_instances([5] * 7, max_sentences=3) == [[5] * 3, [5] * 3, [5]]
    assert costs_of_instances([5] * 3, max_sentences=1) == [[5], [5], [5]]


def test_the_longer_side_counts_sentence_by_sentence() -> None:
    packed = pack_instances([10, 1], [1, 10], [0, 2])
    assert packed.cost.tolist() == [24]
    assert instance_lengths(packed, [10, 1], [1, 10]).tolist() == [15]


def test_documents_never_share_an_instance() -> None:
    packed = pack_instances([1] * 5, [1] * 5, [0, 2, 5])
    assert packed.first.tolist() == [0, 2] and packed.last.tolist() == [2, 5]
    assert packed.document.tolist() == [0, 1]
    assert len(packed) == 2 and packed.first.dtype == np.int64


def test_nothing_to_pack() -> None:
    assert len(pack_instances([], [], [0])) == 0
    assert pack_source([]) == []
    for context_spec in (ContextSpec(windows=True, sentences=3, padding_windows=True), ContextSpec(source_context=2)):
        assert len(cut_instances([], [], [0], context_spec, training=True)) == 0
        assert cut_instances([1], [1], [0, 0, 1, 1], context_spec, training=True).document.tolist()[0] == 1


lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12)


@given(st.lists(lengths, min_size=1, max_size=6), st.integers(1, 80), st.integers(1, 5))
def test_every_sentence_once_in_order_within_the_limits(
    documents: list[list[tuple[int, int]]], limit: int, most: int
) -> None:
    pairs = [pair for document in documents for pair in document]
    source, target = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    offsets = np.cumsum([0] + [len(document) for document in documents])
    packed = pack_instances(source, target, offsets, limit=limit, max_sentences=most)
    ranges = [range(first, last) for first, last in zip(packed.first, packed.last, strict=True)]
    assert [sentence for instance in ranges for sentence in instance] == list(range(len(pairs)))
    costs = [max(pair) + 2 for pair in pairs]
    for i, instance in enumerate(ranges):
        cost = sum(costs[sentence] for sentence in instance)
        assert packed.cost[i] == cost
        assert len(instance) == 1 or (cost < limit and len(instance) <= most)
        document = int(packed.document[i])
        assert offsets[document] <= instance.start and instance.stop <= offsets[document + 1]
        is_last_of_document = instance.stop == offsets[document + 1]
        assert is_last_of_document or cost + costs[instance.stop] >= limit or len(instance) == most
    check_lengths(packed, source, target)


def check_lengths(packed: Instances, source: list[int], target: list[int]) -> None:
    expected = [
        max(sum(n + 2 for n in side[first:last]) for side in (source, target))
        for first, last in zip(packed.first, packed.last, strict=True)
    ]
    assert instance_lengths(packed, source, target).tolist() == expected


def windows(
    costs: list[int], most: int, limit: int = 512, offsets: list[int] | None = None, **options: bool
) -> Instances:
    lengths = [cost - 2 for cost in costs]
    context_spec = ContextSpec(sentences=most, windows=True, padding_windows=options.get("padding_windows", False))
    return cut_instances(
        lengths, lengths, offsets or [0, len(costs)], context_spec, limit=limit, training=options.get("training", True)
    )


def ranges_of(packed: Instances) -> list[list[int]]:
    """Sentences of each instance, counted from 1."""
    return [list(range(first + 1, last + 1)) for first, last in zip(packed.first, packed.last, strict=True)]


def test_windows_by_hand() -> None:
    """The worked example of the specification: five sentences, windows of three."""
    packed = windows([5] * 5, 3)
    assert ranges_of(packed) == [[1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert packed.first_output.tolist() == [0, 1, 2, 3, 4] and packed.last.tolist() == [1, 2, 3, 4, 5]
    assert packed.cost.tolist() == [5, 10, 15, 15, 15]
    assert packed.before.tolist() == packed.first.tolist()
    padded = windows([5] * 5, 3, padding_windows=True)
    assert ranges_of(padded) == [*ranges_of(packed), [4, 5], [5]]
    assert ranges_of(windows([5] * 5, 3, padding_windows=True, training=False)) == ranges_of(packed)


def test_short_documents_have_short_windows() -> None:
    packed = windows([5] * 4, 3, offsets=[0, 1, 1, 4])
    assert ranges_of(packed) == [[1], [2], [2, 3], [2, 3, 4]]
    assert packed.document.tolist() == [0, 2, 2, 2]
    padded = windows([5] * 4, 3, offsets=[0, 1, 1, 4], padding_windows=True)
    assert ranges_of(padded) == [[1], [1], [1], [2], [2, 3], [2, 3, 4], [3, 4], [4]]


def test_windows_of_one_sentence_are_the_sentences() -> None:
    assert ranges_of(windows([5, 700, 6], 1)) == [[1], [2], [3]]


def test_windows_that_do_not_fit_lose_the_furthest_sentences() -> None:
    assert ranges_of(windows([5] * 5, 3, limit=15)) == [[1], [1, 2], [2, 3], [3, 4], [4, 5]]
    assert ranges_of(windows([5, 5, 600, 5, 5], 3)) == [[1], [1, 2], [3], [4], [4, 5]]


@given(st.lists(st.integers(3, 40), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 90))
def test_a_window_ends_at_every_sentence(costs: list[int], most: int, limit: int) -> None:
    packed = windows(costs, most, limit=limit)
    assert packed.first_output.tolist() == list(range(len(costs)))
    for first, last, cost in zip(packed.first.tolist(), packed.last.tolist(), packed.cost.tolist(), strict=True):
        assert cost == sum(costs[first:last]) and 1 <= last - first <= most
        assert last - first == 1 or cost < limit
        widest = last - first == most or first == 0
        assert widest or cost + costs[first - 1] >= limit


def test_sentences_before_an_instance_are_those_of_its_document() -> None:
    lengths = [1] * 7
    packed = cut_instances(lengths, lengths, [0, 5, 7], ContextSpec(source_context=2), max_sentences=2)
    assert packed.first.tolist() == [0, 2, 4, 5] and packed.last.tolist() == [2, 4, 5, 7]
    assert packed.before.tolist() == [0, 0, 2, 5]
    assert packed.first_output.tolist() == packed.first.tolist()
    assert packed.cost.tolist() == [6, 6, 3, 6]
    assert instance_lengths(packed, lengths, lengths).tolist() == [6, 12, 9, 6]


def test_single_sentences() -> None:
    packed = cut_instances([1] * 3, [1] * 3, [0, 2, 3], ContextSpec(sentences=1))
    assert packed.first.tolist() == [0, 1, 2] and packed.document.tolist() == [0, 0, 1]


def reference_cut(
    source_lengths, target_lengths, document_offsets, context_spec, limit, most, training, overlap, second_limit
):
    """The rule, sentence by sentence: rows of document, before, first, output, last and cost."""
    longer = np.asarray(source_lengths) if target_lengths is None else np.maximum(source_lengths, target_lengths)
    budgets = [((longer + 2).tolist(), limit)] + (
        [((second_limit[0] + 2).tolist(), second_limit[1])] if second_limit else []
    )
    most = most if context_spec.sentences is None else min(most, context_spec.sentences)
    rows = []
    for document, (start, end) in enumerate(pairwise(document_offsets)):
        if context_spec.windows:
            extra = most - 1 if training and context_spec.padding_windows and end > start else 0
            for reached in range(start + 1, end + extra + 1):
                first, last = max(start, reached - most), min(reached, end)
                while first < last - 1 and any(sum(costs[first:last]) >= full for costs, full in budgets):
                    first += 1
                rows.append((document, first, first, last - 1, last))
        else:
            for overlap_start, output, last in reference_end_to_end(budgets, start, end, most, overlap):
                first = (
                    max(output - context_spec.target_context, start) if context_spec.target_context else overlap_start
                )
                rows.append((document, max(first - context_spec.source_context, start), first, output, last))
    costs = budgets[0][0]
    return [(*row, sum(costs[row[2] : row[4]])) for row in rows]


def reference_end_to_end(budgets, start, end, most, overlap):
    """(first carried, first output, last) of the instances of one document."""
    tiles, overlap_start, output = [], start, start
    for sentence in range(start, end):
        fits = sentence - overlap_start < most and all(
            sum(costs[overlap_start : sentence + 1]) < full for costs, full in budgets
        )
        if sentence > output and not fits:
            tiles.append((overlap_start, output, sentence))
            output, overlap_start = sentence, max(start, sentence - overlap, sentence - most // 2)
            while overlap_start < output and any(
                sum(costs[overlap_start:output]) > full // 2 or sum(costs[overlap_start : output + 1]) >= full
                for costs, full in budgets
            ):
                overlap_start += 1
    return [*tiles, (overlap_start, output, end)] if end > start else tiles


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"sentences": 1},
        {"source_context": 2},
        {"sentences": 1, "source_context": 3, "target_context": 1},
        {"sentences": 4, "target_context": 2},
        {"sentences": 3, "windows": True},
        {"sentences": 4, "windows": True, "padding_windows": True},
    ],
    ids=str,
)
def test_all_sentences_at_once_are_cut_as_one_by_one(kind) -> None:
    generator = np.random.default_rng(1)
    for trial in range(200):
        offsets = np.cumsum([0, *generator.choice([0, 1, 2, 3, 9], size=trial % 5)])
        source, target, longest = generator.integers(0, 60, size=(3, int(offsets[-1])))
        limit, most, overlap, full = (int(generator.integers(least, 90)) for least in (1, 1, 0, 1))
        most, overlap = 1 + most % 8, overlap % 4 if trial % 2 else 0
        known, second_limit = (target if trial % 3 else None), ((longest, full) if trial % 7 > 3 else None)
        options = {"training": trial % 11 > 5, "overlap": overlap, "second_limit": second_limit}
        instances = cut_instances(
            source, known, offsets, ContextSpec(**kind), limit=limit, max_sentences=most, **options
        )
        columns = (
            instances.document,
            instances.before,
            instances.first,
            instances.first_output,
            instances.last,
            instances.cost,
        )
        assert all(column.dtype == np.int64 for column in columns)
        wanted = reference_cut(source, known, offsets.tolist(), ContextSpec(**kind), limit, most, **options)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted
