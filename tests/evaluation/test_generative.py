"""Generative accuracy: is the form there?"""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import contrastive, evaluate_translations
from docmt.evaluation.contrastive import Count, GeneratedForm, has_form, result_of, rows_of, suite_text
from docmt.evaluation.suites import Item


@pytest.mark.parametrize(
    ("sentence", "form", "there"),
    [
        ("Elle vous aime.", "vous", True),
        ("Vous, elle aime.", "vous", True),
        ("Un rendezvous.", "vous", False),
        ("Ein rendez-vous.", "vous", True),
        ("Je t'aime.", "t'", True),
        ("Je t’aime.", "t'", True),
        ("Il est fort.", "t'", False),
        ("L'avant'garde", "t'", False),
        ("Er weiß.", "WEISS", False),
        ("Er WEIß.", "weiß", True),
        ("Ça va?", "ça", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("", "a", False),
        ("Cafe\u0301 noir.", "café", True),
        ("Café noir.", "cafe\u0301", True),
        ("Cafe\u0301 noir.", "cafe", False),
        ("Elle vous aime.", " vous ", True),
        ("Vous", "vous\n", True),
    ],
)
def test_a_form_is_a_word(sentence, form, there):
    assert has_form(sentence, form) == there


def translated(*sentences, miscounted=()):
    """A translation as the generative sets see it."""
    return SimpleNamespace(sentences=[SimpleNamespace(target=text) for text in sentences], miscounted=miscounted)


def read_back(items, written):
    """The result that its JSON describes."""
    said = tuple(GeneratedForm(own["id"], own["expected"], own["translation"]) for own in written["items"])
    return replace(result_of(items, written["answers"]), said=said)


def test_only_the_last_sentence_is_looked_at(monkeypatch):
    monkeypatch.setattr(contrastive, "GROUP", 2)
    asked = []

    class Echo:
        def translate_all(self, documents):
            asked.append([document.sentences for document in documents])
            return [translated(*own.sentences) for own in documents]

    sources = [("vous", "toi"), ("toi", "Vous!"), ("vous",)]
    items = [
        Item(f"{n}", "p", None, source, (), 0, len(source) - 1, f"r{n}", "vous") for n, source in enumerate(sources)
    ]
    found = evaluate_translations(Echo(), items)
    assert asked == [sources[:2], sources[2:]]
    assert (found.answers, found.all) == ("-++", Count(2, 3, 0.0))
    assert found.labels["r0"] == Count(0, 1, 0.0)
    assert found.said == (
        GeneratedForm("0", "vous", "toi"),
        GeneratedForm("1", "vous", "Vous!"),
        GeneratedForm("2", "vous", "vous"),
    )
    written = json.loads(json.dumps(found.to_json()))
    assert written["items"][0] == {"id": "0", "expected": "vous", "translation": "toi", "answer": "-"}
    assert (written["chance"], written["guessed"], written["labels"]["r1"]["chance"]) == (None, None, None)
    assert read_back(items, written) == found
    assert suite_text(rows_of("set", items, [found]), ["m"]).splitlines()[1].split()[:4] == ["set", "3", "-", "66.7"]


def test_where_sentences_are_miscounted_nobody_knows_the_answer():
    """But where the rest of the document was miscounted, or the one sentence became two, the answer is known."""
    ranges = [(), ((0, 2),), ((1, 3),), ((2, 3),), ((0, 2), (2, 3))]
    made = [translated("vous", "vous", "vous", miscounted=own) for own in ranges]
    items = [Item("i", "p", None, ("a", "b", "c"), (), 0, 2, "r", "vous")] * len(made)
    heard = []
    found = evaluate_translations(
        SimpleNamespace(translate_all=lambda documents: made), items, lambda *own: heard.append(own)
    )
    assert found.answers == "++?++"
    assert found.all == Count(4, 5, 0.0, miscounted=1)
    assert heard == list(enumerate(made))
    text = suite_text(rows_of("set", items, [found]), ["m"])
    assert "\nmiscounted: wrong, as the model gave another number of sentences" in text
    written = json.loads(json.dumps(found.to_json()))
    assert (written["miscounted"], read_back(items, written)) == (1, found)
    found = evaluate_translations(SimpleNamespace(translate_all=lambda documents: made[:1]), items[:1])
    assert "another number" not in suite_text(rows_of("set", items[:1], [found]), ["m"])


def test_items_that_cannot_be_translated_are_wrong():
    items = [Item(f"{n}", "p", None, ("a",), (), 0, 0, "r", "vous") for n in range(3)]

    def translate_all(documents):
        if any(document.id == "1" for document in documents):
            raise DocmtError("out of memory")
        return [translated("vous") for _ in documents]

    heard, translator = [], SimpleNamespace(translate_all=translate_all)
    found = evaluate_translations(translator, items, lambda number, own: heard.append((number, str(own))))
    assert (found.answers, found.all) == ("+!+", Count(2, 3, 0.0, unanswered=1))
    assert heard[1] == (1, "out of memory")
    assert [own.translation for own in found.said] == ["vous", None, "vous"]
    assert read_back(items, json.loads(json.dumps(found.to_json()))) == found
