"""How much a model uses its context: sums by hand, with a scorer whose numbers are known."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.documents import Document, ParallelDocument
from docmt.evaluation import (
    SignificanceConfig,
    UsageConfig,
    compare_contexts,
    compare_suite_contexts,
    context_gain,
    sentence_gains,
)
from docmt.evaluation.context_usage import build_windows, swap_contexts
from docmt.evaluation.contrastive import SuiteItem, evaluate_items, suite_markdown
from docmt.evaluation.significance import estimate_each, ratio
from docmt.model.embeddings import ContextNoise

FEW = SignificanceConfig(samples=100, seed=1)
MANY = SignificanceConfig(samples=5000, seed=1)


class Scorer:
    """A model that knows a target word better the oftener it stands in the sources around it, and never forgets."""

    def __init__(self):
        self.asked = []

    def score_all(self, pairs, free_at_limit=True, context=True, noise=None):
        self.asked.append((len(pairs), free_at_limit, context, noise))
        return [self._scored(source, target, context and noise is None) for source, target in pairs]

    def _scored(self, source, target, context):
        results = []
        for number, sentence in enumerate(target.sentences):
            around = [words for i, words in enumerate(source.sentences) if i != number] if context else []
            known = sum(word in words.split() for word in sentence.split() for words in around)
            words = len(sentence.split())
            results.append(SimpleNamespace(score=known - 10.0 * words, target=sentence, tokens=words + 1, token_ids=()))
        return SimpleNamespace(sentences=results, miscounted=())

    def translate_all(self, documents):
        """Each sentence is copied, with the first word of the sentence before it in front."""
        results = []
        for document in documents:
            before = ["", *document.sentences]
            copies = [f"{a.split(' ')[0]} {b}".strip() for a, b in zip(before, document.sentences, strict=False)]
            results.append(
                SimpleNamespace(sentences=[SimpleNamespace(score=0.0, target=c) for c in copies], miscounted=())
            )
        return results


def document(id, *pairs):
    return ParallelDocument(id, *(tuple(pair[side] for pair in pairs) for side in (0, 1)))


CORPUS = [document("a", ("x y", "u"), ("z", "x y"), ("x", "x v")), document("b", ("p", "q"), ("", ""), ("q", "p p"))]


def test_what_context_adds_summed_by_hand():
    gains = sentence_gains(scorer := Scorer(), CORPUS)
    assert scorer.asked == [(2, False, True, None), (2, False, False, None)]
    by_document = [[(s.document, s.number, s.gain, s.tokens) for s in own] for own in gains]
    assert by_document == [[("a", 1, 0, 2), ("a", 2, 3, 3), ("a", 3, 1, 3)], [("b", 1, 1, 2), ("b", 3, 2, 3)]]
    gain = context_gain(gains, significance=FEW)
    assert (gain.overall.per_sentence.value, gain.overall.per_token.value) == (7 / 5, 7 / 13)
    assert (gain.overall.sentences, gain.overall.tokens, gain.overall.documents) == (5, 13, 2)
    assert [(s.document, s.number) for s in gain.examples] == [("a", 2), ("b", 3), ("a", 3), ("b", 1)]
    assert len(context_gain(gains, UsageConfig(examples=2)).examples) == 2
    written = json.loads(json.dumps(gain.to_json()))
    assert written["per_sentence"] == {"value": 7 / 5, "low": 4 / 3, "high": 3 / 2}
    assert written["examples"][0]["target"] == "x y" and written["examples"][0]["gain"] == 3


def test_the_table_names_the_sentences_that_gain_most():
    lines = context_gain(sentence_gains(Scorer(), CORPUS), significance=FEW).format().splitlines()
    assert lines[1].split() == ["per", "sentence", "per", "token", "sentences"]
    assert lines[2].split() == ["all", "+1.4000", "[1.3333,", "1.5000]", "+0.5385", "[0.5000,", "0.6000]", "5"]
    assert lines[-4] == "  +3.000  document a, sentence 2: 'z' -> 'x y'"


@pytest.mark.parametrize(
    ("lengths", "is_noted"),
    [([3], False), ([3, 3], True), ([2, 2, 2, 3, 3], True), ([4] * 6, False)],  # a single document has no interval
)
def test_intervals_over_few_documents_have_a_note(lengths, is_noted):
    text = context_gain(sentence_gains(Scorer(), of_lengths(lengths)), significance=FEW).format()
    note = "\nwith fewer than 6 documents no difference can be significant, whatever its interval: add documents"
    assert (note in text) == ("with fewer than" in text) == is_noted


@pytest.mark.parametrize("documents", [2, 5, 6])
def test_other_context_of_few_documents_has_the_note_too(documents):
    """A document of a single sentence is none of them."""
    comparison = compare_contexts(Scorer(), of_lengths([2] * documents + [1]), significance=FEW)
    assert comparison.gains["true - alone"].documents == documents
    assert ("\nwith fewer than 6 documents no difference can be significant" in comparison.format()) == (documents < 6)


def estimate_one(rows, config):
    return estimate_each(rows[None], ratio, config)[0]


def test_an_interval_is_that_of_whole_documents():
    """Of two documents a sample has both (half of the time) or one of them twice."""
    rows = np.array([[0.0, 1], [4, 1]])
    interval = estimate_one(rows, MANY)
    assert (interval.value, interval.low, interval.high) == (2, 0, 4)
    same = estimate_one(np.array([[3.0, 1]] * 5), FEW)
    assert (same.value, same.low, same.high) == (3, 3, 3)
    assert estimate_one(rows, MANY) == interval
    assert estimate_one(rows[:1], FEW).low is None
    many = estimate_one(np.random.default_rng(0).normal(0, 1, (400, 1)) * [[1, 0]] + [[0, 1]], MANY)
    assert many.high - many.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def test_a_corpus_without_context():
    single = [document("a", ("x", "y")), document("b", ("x", "y"))]
    message = "no document has two sentences, so there is no context to measure"
    with pytest.raises(DocmtError, match=message):
        context_gain(sentence_gains(Scorer(), single))
    with pytest.raises(DocmtError, match=message):
        compare_contexts(Scorer(), single)
    with pytest.raises(DocmtError, match=message):
        context_gain([])


LONG = [
    document(name, *((f"{name}{i}", f"{name.upper()}{i}") for i in range(size)))
    for name, size in zip("abc", (5, 2, 3), strict=True)
]


def test_windows_have_as_many_true_as_other_sentences():
    windows = build_windows(LONG, 3, 1)
    assert [(each.document, each.source[-1]) for each in windows] == [
        *((0, f"a{i}") for i in range(1, 5)),
        (1, "b1"),
        *((2, f"c{i}") for i in range(1, 3)),
    ]
    for window in windows:
        name, *own = "abc"[window.document], int(window.source[-1][1:])
        count = len(window.source) - 1
        assert list(window.source) == [f"{name}{i}" for i in range(own[0] - count, own[0] + 1)]
        assert [each.upper() for each in window.source] == list(window.target)
        assert [each.upper() for each in window.other_source] == list(window.other_target)
        assert len(window.other_source) == count + 1 and window.other_source[-1] == window.source[-1]
        others = {each[0] for each in window.other_source[:-1]}
        assert len(others) == 1 and name not in others
    # Of the two others the longest has 3 sentences, so the last sentence of the first has 3 before it as well.
    assert [len(each.source) - 1 for each in windows] == [1, 2, 3, 3, 1, 1, 2]
    assert build_windows(LONG, 3, 1) == windows
    assert any(build_windows(LONG, 3, seed) != windows for seed in range(2, 9))


def plain_windows(documents, before, seed):
    """(document, source, other source) of every window, each found by looking through all documents."""
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(documents)), kind="stable").tolist()
    windows = []
    for number, document in enumerate(documents):
        rank = order.index(number)
        others = [documents[i] for i in order[rank + 1 :] + order[:rank]]
        for position in range(1, len(document)):
            count = min(before, position, max(map(len, others)))
            other = next(each for each in others if len(each) >= count)
            end = min(position, len(other))
            sentence = document.source[position]
            windows.append((number, (*document.source[position - count : position], sentence)))
            windows[-1] += ((*other.source[end - count : end], sentence),)
    return windows


def of_lengths(lengths):
    return [document(str(d), *((f"{d}.{i}", f"{d}:{i}") for i in range(n))) for d, n in enumerate(lengths)]


@pytest.mark.parametrize("before", [1, 3, 50])
@pytest.mark.parametrize("seed", range(6))
def test_windows_are_those_that_a_search_through_all_documents_finds(seed, before):
    lengths = np.random.default_rng(seed).geometric([0.1, 0.3, 0.6][seed % 3], size=30)
    documents = of_lengths([*lengths, 1, lengths.max() + 7][: [32, 31][seed % 2]])
    windows = [(each.document, each.source, each.other_source) for each in build_windows(documents, before, seed)]
    assert windows == plain_windows(documents, before, seed)


@pytest.mark.parametrize("lengths", [[2, 3], [2] * 19 + [40], [1] * 19 + [2]])
def test_windows_take_time_in_proportion_to_the_documents(lengths, monkeypatch):
    """Counted by how often one is asked for its length."""
    calls, plainly = [], ParallelDocument.__len__
    monkeypatch.setattr(ParallelDocument, "__len__", lambda self: calls.append(1) or plainly(self))
    counts = []
    for times in (20, 80):
        documents = of_lengths(lengths * times)
        calls.clear()
        build_windows(documents, 50, 1)
        counts.append(len(calls))
    assert counts[1] < 6 * counts[0]


def test_fewer_sentences_stand_before_where_no_other_document_is_as_long():
    windows = build_windows([LONG[0], LONG[1]], 3, 1)
    assert [(len(each.source), len(each.other_source)) for each in windows] == [(2, 2), (3, 3), (3, 3), (3, 3), (2, 2)]
    with pytest.raises(DocmtError, match="only one document, so no other one can lend its context"):
        build_windows(LONG[:1], 3, 1)


def test_true_empty_and_shuffled_context_by_hand():
    corpus = [document("a", ("x", "u"), ("y", "x")), document("b", ("z", "u"), ("w", "z z z"))]
    comparison = compare_contexts(scorer := Scorer(), corpus, significance=FEW)
    assert scorer.asked == [(2, False, context, None) for context in (True, False, True, True)]
    means = {name: gain.per_sentence.value for name, gain in comparison.likelihood.items()}
    assert means == {"true": -18.0, "empty": -20.0, "shuffled": -20.0, "alone": -20.0}
    assert {name: gain.per_token.value for name, gain in comparison.gains.items()} == {
        "true - empty": 4 / 6,
        "true - shuffled": 4 / 6,
        "true - alone": 4 / 6,
    }
    assert json.loads(json.dumps(comparison.to_json()))["likelihood"]["true"]["tokens"] == 6


def item(id, context, right, wrong, sentence=1, phenomenon="p"):
    """An item of two sentences, of which the first (or, with sentence 0, the second) is the context."""
    order = 1 if sentence else -1
    candidates = tuple(tuple([context.upper(), words][::order]) for words in (right, wrong))
    return SuiteItem(id, phenomenon, 1, tuple([context, "it"][::order]), candidates, 0, sentence)


def test_items_are_right_for_what_their_context_says():
    items = [item("1", "m", "m", "f"), item("2", "f", "f", "m"), item("3", "n", "n", "f"), item("4", "x", "x", "y", 0)]
    comparison = compare_suite_contexts(scorer := Scorer(), items)
    *others, with_noise = [asked[1:] for asked in scorer.asked]
    assert others == [(False, True, None), (False, False, None), (False, True, None)]
    assert with_noise == (False, True, ContextNoise([1] * 6, SignificanceConfig().seed))
    heard = []
    compare_suite_contexts(
        Scorer(), [items[3], *items[:3]], on_item=lambda condition, number, result: heard.append((condition, number))
    )
    assert heard == [
        (condition, number) for condition in ("true", "empty", "shuffled", "noise") for number in (1, 2, 3)
    ]
    assert comparison.skipped == 1
    assert {name: (result.overall.correct, result.overall.total) for name, result in comparison.results.items()} == {
        "true": (3, 3),
        "empty": (0, 3),
        "shuffled": (0, 3),
        "noise": (0, 3),
    }
    (row,) = comparison.rows("suite")
    assert (row.name, [count.accuracy for count in row.counts]) == ("suite", [1, 0, 0, 0])
    assert row.p_values == (1, 0.25, 0.25, 0.25)
    assert json.loads(json.dumps(comparison.to_json()))["true"]["total"] == 3


def test_after_noise_the_tested_sentence_alone_counts():
    """The scorer finds the context of the wrong candidate more probable. Noise makes such scores meaningless."""
    own = SuiteItem("1", "p", 1, ("m", "it"), (("a b c", "m"), ("a", "f f")), 0, 1)
    assert evaluate_items(Scorer(), [own]).answers == "-"
    assert evaluate_items(Scorer(), [own], noise_seed=1).answers == "+"


def test_items_that_are_translated_have_no_noise():
    """Test sets of both kinds share a table. Cells without counts are empty."""
    scored = compare_suite_contexts(Scorer(), [item("1", "m", "m", "f"), item("2", "f", "f", "m")], translate=True)
    assert list(scored.results) == ["true", "empty", "shuffled", "noise"]
    assert list(scored.translated) == ["true", "empty", "shuffled"]
    form = SuiteItem("1", "p", 1, ("m", "it"), (), 0, 1, expected="m")
    asked = compare_suite_contexts(Scorer(), [form, replace(form, source=("f", "it"), expected="f")])
    assert list(asked.to_json()) == ["left_out", "true", "empty", "shuffled"]
    rows, columns = [*scored.rows("scored"), *asked.rows("asked")], ["true", "empty", "shuffled", "noise"]
    lines = [line.split("|")[1:-1] for line in suite_markdown(rows, columns).splitlines() if line.startswith("|")]
    assert {len(cells) for cells in lines} == {7}
    last = {name.strip(): cell.strip() for name, *_, cell in lines if name.strip()}
    assert last["scored"].startswith("0.0 [") and last["asked"] == last["scored, translated"] == ""


def test_items_whose_candidates_have_contexts_of_their_own_are_left_out():
    items = [item("1", "m", "m", "f"), item("2", "f", "f", "m")]
    item_with_contexts = replace(items[0], id="3", candidates=(("M", "m"), ("F", "m")))
    comparison = compare_suite_contexts(Scorer(), [*items, item_with_contexts])
    assert (comparison.skipped, [each.id for each in comparison.items]) == (1, ["1", "2"])
    with pytest.raises(DocmtError, match="one context for all candidates"):
        compare_suite_contexts(Scorer(), [item_with_contexts, item_with_contexts])


def test_the_context_of_another_item_comes_from_its_right_candidate():
    first, second, same = item("1", "m", "m", "f"), item("2", "f", "f", "m"), item("3", "m", "f", "m")
    swapped = swap_contexts([first, second, same], 1)
    assert swapped[0].source == ("f", "it") and swapped[0].candidates == (("F", "m"), ("F", "f"))
    assert swapped[2].source == ("f", "it"), "an item with the same context lends nothing"
    assert (swapped[0].id, swapped[0].correct, swapped[0].sentence) == ("1", 0, 1)


def test_the_context_of_items_of_other_lengths_is_cut_or_joined():
    def long_item(id, before, after=0):
        source = (*(f"{id}{number}" for number in range(before)), "it", *(f"{id}+{number}" for number in range(after)))
        right = tuple(text.upper() for text in source)
        wrong = (*right[:before], "X", *right[before + 1 :])
        return SuiteItem(id, "p", 1, source, (right, wrong), 0, before)

    items = [long_item("a", 1), long_item("b", 3), long_item("c", 2, 1), long_item("d", 5)]
    swapped = swap_contexts(items, 1)
    assert [len(each.source) if each else 0 for each in swapped] == [2, 4, 0, 6], "nobody else has a sentence after"
    for own, other in zip(items, swapped, strict=True):
        assert not other or (other.source[own.sentence], other.candidates[1][own.sentence]) == ("it", "X")
        assert not other or not set(own.source) & set(other.source) - {"it"}
    assert swapped[0].source[0] in ("b2", "c1", "d4"), "the nearest sentence"
    assert swapped[1].source == ("d2", "d3", "d4", "it"), "the only one that is as long"
    assert swapped[3].candidates[0] == tuple(text.upper() for text in swapped[3].source)
    assert len({text[0] for text in swapped[3].source}) > 2, "none is as long: several are joined"
    assert swap_contexts([long_item("a", 2), replace(long_item("a", 3), source=("z", "a0", "a1", "it"))], 1)[0] is None


def test_items_without_context_or_without_others():
    lonely = SuiteItem("1", "p", 0, ("it",), (("a",), ("b",)), 0, 0)
    with pytest.raises(DocmtError, match="no item has a context, so there is none to measure"):
        compare_suite_contexts(Scorer(), [lonely, lonely])
    with pytest.raises(DocmtError, match="no two items can exchange their contexts"):
        compare_suite_contexts(
            Scorer(), [item("1", "m", "m", "f"), item("2", "m", "f", "m"), item("3", "x", "x", "y", 0)]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [({"replaced_sentences": -1}, "cxmi.replaced_sentences"), ({"examples": 1.5}, "cxmi.examples")],
)
def test_settings_that_do_not_go(options, message):
    with pytest.raises(DocmtError, match=message):
        UsageConfig(**options)


def test_documents_are_scored_by_the_translators_names():
    """What is read is a document with its id, so that messages can name it."""
    scored_pairs = []
    scorer = Scorer()
    scorer.score_all = lambda pairs, free_at_limit, context: (
        scored_pairs.extend(pairs) or Scorer().score_all(pairs, free_at_limit, context)
    )
    sentence_gains(scorer, CORPUS)
    assert [(one.id, two.id) for one, two in scored_pairs] == [("a", "a"), ("b", "b")] * 2
    assert all(isinstance(each, Document) for pair in scored_pairs for each in pair)
