"""The tokens that decide an item: which they are, their scores by a model, and their gain from context."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import save_tiny_model

import docmt
from docmt.documents import Document
from docmt.evaluation import SignificanceConfig, evaluate_items, evaluate_translations
from docmt.evaluation.context_usage import compare_marked
from docmt.evaluation.contrastive import MarkedScore, build_suite_rows, find_forms, find_marked, suite_text
from docmt.evaluation.suites import SuiteItem


def item(*texts, correct=0, id="i"):
    candidates = tuple(("Il.", text) for text in texts)
    return SuiteItem(id, "p", 1, ("It.", "It sleeps."), candidates, correct, 1)


@pytest.mark.parametrize(
    ("right", "wrong", "marked"),
    [
        ("Elles dorment.", ["Ils dorment."], "Elles"),
        ("a b c", ["a x c", "a b y"], "b c"),
        ("a a", ["a"], "a"),
        ("a", ["a a"], ""),
        ("a b c d", ["x b c d", "a b c d", "a b c d e"], "a"),
        ("a", ["a"], ""),
        ("a b", ["x y"], "a b"),
    ],
)
def test_marked_tokens_by_hand(right, wrong, marked):
    words = right.split()
    found = find_marked(words, [each.split() for each in wrong])
    assert words[found.start : found.stop] == marked.split()


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=3))
def test_what_is_not_marked_is_shared(right, wrong):
    """By all candidates but those that only add tokens."""
    marked = find_marked(right, wrong)
    for other in wrong:
        one = find_marked(right, [other])
        assert not one or (marked.start <= one.start and one.stop <= marked.stop)
        assert one or len(other) >= len(right)
        assert other[: one.start] == right[: one.start]
        assert right[one.stop :] == other[len(other) - (len(right) - one.stop) :] or one == range(0)


def test_forms_are_the_words_that_differ():
    assert find_forms(item("Je sais qu'elle dort.", "Je sais qu'il dort.")) == ["qu'elle", "qu'il"]
    assert find_forms(item("Ils sont là.", "Elles sont là.", correct=1)) == ["Elles", "Ils"]
    assert find_forms(item("Je les aime.", "Je les déteste !")) == ["aime", "déteste"]
    assert find_forms(item("Elle ne dort.", "Elle dort.")) == ["Elle ne", "Elle"]
    assert find_forms(item("Elle dort.", "Elle ne dort.")) == ["Elle dort", "Elle ne dort"]


def test_translations_have_the_form_that_comes_first():
    texts = ["Elle dit qu'il dort.", "Il dit qu'elle dort.", "Cela dort.", "Dort-elle ?", "elles"]
    items = [item("Elle dort.", "Il dort.", id=text) for text in texts]

    def translate_all(documents):
        return [
            SimpleNamespace(miscounted=(), sentences=[None, SimpleNamespace(target=document.id)])
            for document in documents
        ]

    result = evaluate_translations(SimpleNamespace(translate_all=translate_all), items)
    assert (result.answers, result.overall.neither) == ("+-.+.", 2)
    assert result.generated[0].expected == "Elle"
    added = [item("Elle ne dort.", "Elle dort.", correct=n, id="Elle ne dort pas.") for n in (0, 1)]
    assert evaluate_translations(SimpleNamespace(translate_all=translate_all), added).answers == "+-"
    assert result.overall.chance == 0
    text = suite_text(build_suite_rows("set", items, [result]), ["m"])
    assert "\nneither: wrong, because the translation has the form of no candidate" in text


@pytest.mark.parametrize("system", ["sentence", "group"])
def test_scores_of_marked_tokens_are_those_of_the_decoder(system, tmp_path):
    """The score of a sentence is the sum of those of its tokens and of its end."""
    items = [
        SuiteItem("1", "p", 1, ("a cat.", "it is."), (("un chat.", "il est."), ("un chat.", "elle est.")), 0, 1),
        SuiteItem("2", "p", 1, ("a", "it", "b"), (("x", "il dort", "y"), ("x", "elle dort", "y")), 1, 1),
    ]
    translator = docmt.Translator(save_tiny_model(tmp_path, system=system))
    result = evaluate_items(translator, items)
    for one, marked in zip(items, result.marked, strict=True):
        pairs = [(Document.from_sentences(one.source), Document.from_sentences(each)) for each in one.candidates]
        scored = translator.score_all(pairs)
        for sentence in (sentence for translation in scored for sentence in translation):
            assert len(sentence.token_ids) == len(sentence.token_scores) > 0
            assert all(score < 0 for score in sentence.token_scores)
            assert sentence.score < sum(sentence.token_scores)
        right, other = (scored[number].sentences[1] for number in (one.correct, *one.wrong))
        spelled = [translator.tokenizer.decode_batch([each.token_ids], "target")[0] for each in (right, other)]
        assert spelled == [one.candidates[number][1] for number in (one.correct, *one.wrong)]
        assert marked.tokens == {"il est.": len("il"), "elle dort": len("elle")}[spelled[0]]
        # The first token is a blank, the letters of the pronouns follow.
        assert marked.score == pytest.approx(sum(right.token_scores[1 : 1 + marked.tokens]), abs=1e-4)


def test_gain_from_context_by_hand():
    """Two documents: of two items, and of one; an item without a score in one condition is left out."""
    items = [replace(item("a", "b"), document=document) for document in ("x", "x", "", "2")]
    true = [MarkedScore(-1, 1), MarkedScore(-2, 2), MarkedScore(-3, 1), None]
    other = [MarkedScore(-2, 1), MarkedScore(-2, 2), MarkedScore(-5, 1), MarkedScore(0, 1)]
    marked = compare_marked(items, {"true": true, "empty": other}, SignificanceConfig(samples=200))
    assert (marked.items, marked.tokens, marked.documents, marked.left_out) == (3, 4, 2, 1)
    assert "\n1 items without marked tokens or scores are left out\n" in marked.format()
    assert (marked.likelihood["true"].value, marked.gains["empty"].gain.value) == (-2, 1)
    assert (marked.gains["empty"].gain.low, marked.gains["empty"].gain.high) == (0.5, 2)
    assert 0.4 < marked.gains["empty"].p_value < 0.6, "both documents gain in one of two exchanges of each"
    assert json.loads(json.dumps(marked.to_json()))["gains"]["empty"]["gain"]["value"] == 1
    assert re.search(r"\ntrue - empty +\+1.0000 \[0.5000, 2.0000\] +0.5\d", marked.format())
    for broken in (float("nan"), float("-inf")):  # in one condition or in all
        scores = {"true": [*true[:2], MarkedScore(broken, 1)], "empty": [MarkedScore(broken, 1), *other[1:3]]}
        marked = compare_marked(items[:3], scores, SignificanceConfig(samples=200))
        assert (marked.items, marked.left_out, marked.likelihood["true"].value) == (1, 2, -2)
    assert compare_marked(items, {"true": [None] * 4, "empty": other}, SignificanceConfig(samples=200)) is None


def test_rounding_of_scores_is_no_gain():
    """A model that reads no context scores equal text in other batches, where the last digits differ."""
    items = [item("a", "b")] * 50
    true = [MarkedScore(-2.0, 1)] * 50
    rounded = [MarkedScore(-2.0 - 2e-6, 1)] * 50
    real = [MarkedScore(-2.0 - 2e-4, 1)] * 50
    gains = compare_marked(
        items, {"true": true, "rounded": rounded, "real": real}, SignificanceConfig(samples=200)
    ).gains
    assert (gains["rounded"].gain.value, gains["rounded"].p_value) == (0, 1)
    assert gains["real"].gain.value == pytest.approx(2e-4) and gains["real"].p_value < 0.01
