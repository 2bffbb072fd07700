"""Generative accuracy: is the form there?"""

from types import SimpleNamespace

import pytest

from docmt.evaluation import evaluate_translations, generative
from docmt.evaluation.contrastive import Count
from docmt.evaluation.generative import has_form
from docmt.evaluation.suite_items import Item


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


def test_only_the_last_sentence_is_looked_at(monkeypatch):
    monkeypatch.setattr(generative, "GROUP", 2)
    asked = []

    class Echo:
        def translate_all(self, documents):
            asked.append([document.sentences for document in documents])
            return [
                SimpleNamespace(sentences=[SimpleNamespace(target=text) for text in own.sentences]) for own in documents
            ]

    sources = [("vous", "toi"), ("toi", "Vous!"), ("vous",)]
    items = [
        Item(f"{n}", "p", None, source, (), 0, len(source) - 1, f"r{n}", "vous") for n, source in enumerate(sources)
    ]
    found = evaluate_translations(Echo(), items)
    assert asked == [sources[:2], sources[2:]]
    assert (found.answers, found.all) == ("-++", Count(2, 3, 0.0))
    assert found.labels["r0"] == Count(0, 1, 0.0)
    assert found.format().splitlines()[1].split()[:4] == ["p", "-", "66.7", "(3)"]
