"""Batch plans and what collate makes of them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from docmt.data import (
    BatchPlan,
    Instances,
    ParallelStore,
    SentenceTokens,
    StoreWriter,
    collate,
    collate_source,
    cut_instances,
    instance_lengths,
)
from docmt.model.scope import BoundaryTokens
from docmt.model.spans import Spans, pack
from docmt.model.systems import ContextSpec
from docmt.text import SpecialTokens


def plan_of(lengths: list[int], batch_tokens: int, seed: int = 1) -> BatchPlan:
    return BatchPlan(np.array(lengths, dtype=np.int64), batch_tokens, seed)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 60), st.integers(0, 9), st.integers(0, 9))
def test_every_instance_once_within_the_budget(lengths: list[int], budget: int, seed: int, epoch: int) -> None:
    plan = plan_of(lengths, budget, seed)
    for batches in (plan.batches_in_epoch(epoch), plan.batches_in_order()):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
        totals = [sum(lengths[i] for i in batch) for batch in batches]
        assert all(len(batch) == 1 or total <= budget for batch, total in zip(batches, totals, strict=True))
        for total, following in zip(totals[:-1], batches[1:], strict=True):
            assert total + lengths[following[0]] > budget  # greedy: nothing more would have fitted
    assert np.concatenate(plan.batches_in_order()).tolist() == list(range(len(lengths)))


def test_an_oversize_instance_is_alone() -> None:
    assert [batch.tolist() for batch in plan_of([3, 3, 99, 3, 7], 10).batches_in_order()] == [[0, 1], [2], [3, 4]]


@pytest.mark.full
def test_a_plan_depends_on_seed_and_epoch_alone() -> None:
    lengths = list(range(1, 60))
    orders = {
        (seed, epoch): tuple(np.concatenate(plan_of(lengths, 50, seed).batches_in_epoch(epoch)).tolist())
        for seed in (1, 2)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    program = (
        "import numpy as np\n"
        "from docmt.data import BatchPlan\n"
        "plan = BatchPlan(np.arange(1, 60), 50, 2)\n"
        "print(tuple(np.concatenate(plan.batches_in_epoch(1)).tolist()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(orders[2, 1])


def test_the_order_of_an_epoch_never_changes() -> None:
    """Written down once: a change here would make every interrupted training go on with other data."""
    assert np.concatenate(plan_of([1] * 10, 3, seed=7).batches_in_epoch(2)).tolist() == [8, 6, 4, 0, 5, 7, 1, 3, 9, 2]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 600), st.integers(0, 9))
def test_an_epoch_is_laid_out_as_one_by_one(lengths: list[int], budget: int, epoch: int) -> None:
    numbers = np.random.default_rng([1, epoch]).bit_generator.random_raw(len(lengths)).tolist()
    wanted: list[list[int]] = []
    for instance in sorted(range(len(lengths)), key=lambda number: numbers[number]):
        if not wanted or sum(lengths[other] for other in wanted[-1]) + lengths[instance] > budget:
            wanted.append([])
        wanted[-1].append(instance)
    assert [batch.tolist() for batch in plan_of(lengths, budget).batches_in_epoch(epoch)] == wanted


@pytest.fixture
def store(tmp_path: Path) -> ParallelStore:
    with StoreWriter(tmp_path, 30) as writer:
        writer.add("a", [[10, 11], [12]], [[20], [21, 22]])
        writer.add("b", [[13, 14, 15]], [[23, 24]])
        writer.add("c", [[16]], [[25]])
    return ParallelStore(tmp_path)


def cut_store(
    store: ParallelStore,
    context_spec: ContextSpec = ContextSpec(),  # noqa: B008
    **limits: int,
) -> tuple[SentenceTokens, SentenceTokens, Instances]:
    """Both sides of the store and their instances."""
    instances = cut_instances(
        store.source.lengths, store.target.lengths, store.document_offsets, context_spec, **limits
    )
    source, target = store.source, store.target
    return source, target, instances


def test_collate_by_hand(store: ParallelStore) -> None:
    specials = SpecialTokens(30)  # <eod> is 28
    source, target, instances = cut_store(store)
    batch = collate(source, target, instances, [1, 0], specials, BoundaryTokens())
    assert batch.inputs.label_positions is None
    assert batch.inputs.alignment.tolist() == [0, 1, 2]
    inputs = batch.inputs
    assert batch.inputs.source.tokens.tolist() == [0, 13, 14, 15, 2, 0, 10, 11, 2, 0, 12, 2]
    assert batch.inputs.target.tokens.tolist() == [0, 23, 24, 2, 0, 20, 2, 0, 21, 22, 2]
    assert batch.labels.tolist() == [23, 24, 2, 28, 20, 2, 0, 21, 22, 2, 28]
    assert batch.inputs.source.sentences.equals(Spans.tile([5, 4, 3])) and batch.inputs.source.documents.equals(
        Spans.tile([5, 7])
    )
    assert batch.inputs.target.sentences.equals(Spans.tile([4, 3, 4])) and batch.inputs.target.documents.equals(
        Spans.tile([4, 7])
    )
    assert batch.inputs.source.tokens.dtype == batch.inputs.target.tokens.dtype == batch.labels.dtype == torch.int64
    assert batch.tokens == 11
    moved = batch.to("cpu")
    assert torch.equal(moved.labels, batch.labels) and moved.inputs.target.sentences.equals(inputs.target.sentences)


def test_collate_cuts_documents_at_instances(store: ParallelStore) -> None:
    source, target, instances = cut_store(store, max_sentences=1)
    batch = collate(source, target, instances, np.array([1, 3]), SpecialTokens(30), BoundaryTokens())
    expected = pack([[[0, 12, 2]], [[0, 16, 2]]])
    assert torch.equal(batch.inputs.source.tokens, expected.tokens)
    assert batch.inputs.source.sentences.equals(expected.sentences) and batch.inputs.source.documents.equals(
        expected.documents
    )
    assert batch.labels.tolist() == [21, 22, 2, 28, 25, 2, 28]


def test_collate_of_windows_by_hand(store: ParallelStore) -> None:
    """The window of both sentences of the first document: all labels, or those of its last sentence alone."""
    specials = SpecialTokens(30)
    source, target, instances = cut_store(store, ContextSpec(sentences=2, windows=True))
    assert len(instances) == 4
    every, last = (
        collate(source, target, instances, [1, 2], specials, BoundaryTokens(), predicts) for predicts in ("all", "last")
    )
    assert every.labels.tolist() == [20, 2, 0, 21, 22, 2, 28, 23, 24, 2, 28]
    assert last.labels.tolist() == [21, 22, 2, 28, 23, 24, 2, 28]
    assert last.inputs.label_positions is not None and last.inputs.target is not None
    assert last.inputs.label_positions.tolist() == [3, 4, 5, 6, 7, 8, 9, 10]
    assert last.tokens == 8
    assert torch.equal(last.inputs.target.tokens, every.inputs.target.tokens)
    assert torch.equal(last.inputs.source.tokens, every.inputs.source.tokens)


def test_collate_with_sentences_before_by_hand(store: ParallelStore) -> None:
    source, target, instances = cut_store(store, ContextSpec(source_context=2), max_sentences=1)
    batch = collate(source, target, instances, [2, 1], SpecialTokens(30), BoundaryTokens())
    assert batch.inputs.source.tokens.tolist() == [0, 13, 14, 15, 2, 0, 10, 11, 2, 0, 12, 2]
    assert batch.inputs.target is not None
    assert batch.inputs.target.tokens.tolist() == [0, 23, 24, 2, 0, 21, 22, 2]
    assert batch.inputs.alignment.tolist() == [0, 2]
    assert batch.labels.tolist() == [23, 24, 2, 28, 21, 22, 2, 28]
    alone = collate_source(source, instances, [2, 1], BoundaryTokens())
    assert torch.equal(alone.source.tokens, batch.inputs.source.tokens)
    assert alone.target is None and alone.alignment.tolist() == [0, 2]


def test_collate_in_another_frame_by_hand(store: ParallelStore) -> None:
    """Sentences that only close; decoder input that only opens; `</s>` is the last label of each sentence."""
    boundary_tokens = BoundaryTokens.parse("w </s>", "<s> w")
    source, target, instances = cut_store(store)
    batch = collate(source, target, instances, [0, 1], SpecialTokens(30), boundary_tokens)
    assert batch.inputs.source.tokens.tolist() == [10, 11, 2, 12, 2, 13, 14, 15, 2]
    assert batch.inputs.target is not None
    assert batch.inputs.target.tokens.tolist() == [0, 20, 0, 21, 22, 0, 23, 24]
    assert batch.labels.tolist() == [20, 2, 21, 22, 2, 23, 24, 2]
    assert batch.inputs.target.documents.equals(Spans.tile([5, 3]))


def test_collate_of_joined_sentences_by_hand(store: ParallelStore) -> None:
    """One mark between two sentences of an instance; decoder input begins with `</s>`, and labels end with it."""
    boundary_tokens = BoundaryTokens.parse("w </s>", "<s> w", joined=True)
    source, target, instances = cut_store(store)
    batch = collate(source, target, instances, [0, 1], SpecialTokens(30), boundary_tokens)
    assert batch.inputs.source.tokens.tolist() == [10, 11, 0, 12, 2, 13, 14, 15, 2]
    assert batch.inputs.source.sentences.equals(Spans.tile([3, 2, 4]))
    assert batch.inputs.target is not None
    assert batch.inputs.target.tokens.tolist() == [2, 20, 0, 21, 22, 2, 23, 24]
    assert batch.inputs.target.sentences.equals(Spans.tile([2, 3, 3]))
    assert batch.labels.tolist() == [20, 0, 21, 22, 2, 23, 24, 2]
    windows = cut_store(store, ContextSpec(sentences=2, windows=True))
    last = collate(*windows, [1, 2], SpecialTokens(30), boundary_tokens, "last")
    assert last.labels.tolist() == [21, 22, 2, 23, 24, 2]


def test_words_of_documents() -> None:
    words = SentenceTokens.from_documents([[[5, 6], [7]], [], [[], [8]]])
    assert words.tokens.tolist() == [5, 6, 7, 8] and words.offsets.tolist() == [0, 2, 3, 3, 4]
    assert words.lengths.tolist() == [2, 1, 0, 1]
    assert len(SentenceTokens.from_documents([]).lengths) == 0


def test_drafts_and_references_lie_beside_every_source_sentence(store: ParallelStore) -> None:
    source, target, instances = cut_store(store, ContextSpec(source_context=1), max_sentences=1)
    drafts = SentenceTokens.from_documents([[[5, 6, 7], []], [[8]], [[9]]])
    specials, boundary_tokens = SpecialTokens(30), BoundaryTokens()
    batch = collate(source, target, instances, [1, 0, 3], specials, boundary_tokens, drafts=drafts, references=True)
    assert instances.before.tolist() == [0, 0, 2, 3]
    expected = pack([[[0, 5, 6, 7, 2], [0, 2]], [[0, 5, 6, 7, 2]], [[0, 9, 2]]])
    references = pack([[[0, 20, 2], [0, 21, 22, 2]], [[0, 20, 2]], [[0, 25, 2]]])
    for laid, wanted in ((batch.inputs.drafts, expected), (batch.inputs.references, references)):
        assert laid is not None
        assert torch.equal(laid.tokens, wanted.tokens)
        assert laid.sentences.equals(wanted.sentences) and laid.documents.equals(wanted.documents)
    assert len(expected.sentences) == len(batch.inputs.source.sentences)
    usual = collate(source, target, instances, [1, 0, 3], specials, boundary_tokens)
    assert usual.inputs.drafts is None and usual.inputs.references is None
    marks = BoundaryTokens(source_opening=())
    alone = collate_source(source, instances, [1], marks, drafts)
    assert alone.drafts is not None and alone.drafts.tokens.tolist() == [5, 6, 7, 2, 2]


def test_the_longest_side_counts(store: ParallelStore) -> None:
    source, target, instances = cut_store(store, ContextSpec(source_context=1), max_sentences=1)
    assert instance_lengths(instances, source.lengths, target.lengths).tolist() == [4, 7, 5, 3]
    assert instance_lengths(instances, source.lengths, target.lengths, [9, 0, 1, 1]).tolist() == [11, 13, 5, 3]
