"""Which words go together in a tiny split, worked out by hand."""

import numpy as np
import pytest

from docmt.data import ParallelStore, StoreWriter, cooccurrence
from docmt.data.cooccurrence import count_together

SIZE = 20


def split_of(tmp_path, pairs):
    """A split of one document with these pairs of sentences."""
    with StoreWriter(tmp_path, SIZE) as writer:
        writer.add("a", *zip(*pairs, strict=True))
    return ParallelStore.open(tmp_path)


def test_one_round_counts_shares_and_the_next_lets_words_compete(tmp_path, monkeypatch):
    split = split_of(tmp_path, [([4], [10]), ([4, 5, 5], [10, 11]), ([6], [12, 12])])
    monkeypatch.setattr(cooccurrence, "ROUNDS", 1)
    # 4 gets 1 + 1/2 of 10 and 1/2 of 11; 5 gets 1/2 of each: of equals the one with the smaller id comes first.
    best = count_together(split, (SIZE, SIZE), 2, 0, 10).best
    assert best[[4, 5, 6, 7]].tolist() == [[10, 11], [10, 11], [12, 0], [0, 0]]
    monkeypatch.setattr(cooccurrence, "ROUNDS", 2)
    # Shares per sentence that holds the word: 4 has 3/4 of 10 and 1/4 of 11, 5 has 1/2 of each. So of the 10 beside 5
    # it now gets 1/2 / (3/4 + 1/2) = 2/5, and of the 11 1/2 / (1/4 + 1/2) = 2/3.
    best = count_together(split, (SIZE, SIZE), 2, 0, 10).best
    assert best[[4, 5, 6]].tolist() == [[10, 11], [11, 10], [12, 0]]


def test_shares_in_numbers(tmp_path):
    split = split_of(tmp_path, [([4], [10]), ([4, 5], [10, 11])])
    source = cooccurrence._different(split.source_tokens, split.source_offsets, np.arange(2), SIZE)
    assert source.words.tolist() == [4, 4, 5] and source.sentences.tolist() == [0, 1, 1]
    for size in (SIZE, 8 * 12):  # the two ways to add up
        ids, sums = cooccurrence._sums(np.array([10, 11, 10]), np.array([0.5, 0.25, 1.0]), size)
        assert ids.tolist() == [10, 11] and sums.tolist() == [1.5, 0.25]


def test_the_most_frequent_are_apart(tmp_path):
    split = split_of(tmp_path, [([4], [10, 9]), ([5], [9, 11]), ([5], [11, 9, 12])])
    found = count_together(split, (SIZE, SIZE), 3, 2, 10)
    assert found.frequent.tolist() == [9, 11]
    assert found.best[[4, 5]].tolist() == [[10, 0, 0], [12, 0, 0]]
    everything = count_together(split, (SIZE, SIZE), 3, 1000, 10)
    assert sorted(everything.frequent.tolist()) == [9, 10, 11, 12] and not everything.best.any()
    assert found.best.dtype == found.frequent.dtype == np.int32


@pytest.mark.parametrize(("most", "sentences"), [(10, [0, 1, 2, 3, 4]), (4, [0, 2, 4]), (2, [0, 3]), (1, [0])])
def test_at_most_so_many_sentences_are_counted(tmp_path, most, sentences):
    split = split_of(tmp_path, [([4 + n], [10 + n]) for n in range(5)])
    best = count_together(split, (SIZE, SIZE), 1, 0, most).best
    assert {4 + n for n in sentences} == set(best.any(axis=1).nonzero()[0].tolist())
    assert best[4:9, 0].tolist() == [10 + n if n in sentences else 0 for n in range(5)]


def test_many_blocks_are_as_one(tmp_path, monkeypatch):
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 6, (50, 2))
    split = split_of(tmp_path, [[generator.integers(4, SIZE - 2, n).tolist() for n in pair] for pair in lengths])
    one = count_together(split, (SIZE, SIZE), 5, 2, 50)
    monkeypatch.setattr(cooccurrence, "_BLOCK", 7)
    other = count_together(split, (SIZE, SIZE), 5, 2, 50)
    assert np.array_equal(one.best, other.best) and np.array_equal(one.frequent, other.frequent)
