"""Generative accuracy: is the form there?"""

import json
from types import SimpleNamespace

import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import contrastive, evaluate_translations
from docmt.evaluation.contrastive import (
    AnswerCounts,
    ContrastiveResult,
    GeneratedForm,
    build_suite_rows,
    has_form,
    suite_text,
)
from docmt.evaluation.suites import SuiteItem


@pytest.mark.parametrize(
    ("sentence", "form", "expected"),
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
def test_a_form_is_a_word(sentence, form, expected):
    assert has_form(sentence, form) == expected


def translated(*sentences, miscounted=()):
    """A translation as the generative sets see it."""
    return SimpleNamespace(sentences=[SimpleNamespace(target=text) for text in sentences], miscounted=miscounted)


def read_back(items, written):
    """The result that its JSON describes."""
    generated = tuple(GeneratedForm(entry["id"], entry["expected"], entry["translation"]) for entry in written["items"])
    return ContrastiveResult(items, written["answers"], generated)


def test_only_the_last_sentence_is_looked_at(monkeypatch):
    monkeypatch.setattr(contrastive, "ITEMS_AT_ONCE", 2)
    asked = []

    class Echo:
        def translate_all(self, documents):
            asked.append([document.sentences for document in documents])
            return [translated(*document.sentences) for document in documents]

    sources = [("vous", "toi"), ("toi", "Vous!"), ("vous",)]
    items = [
        SuiteItem(f"{n}", "p", None, source, (), 0, len(source) - 1, f"r{n}", "vous")
        for n, source in enumerate(sources)
    ]
    result = evaluate_translations(Echo(), items)
    assert asked == [sources[:2], sources[2:]]
    assert (result.answers, result.overall) == ("-++", AnswerCounts(2, 3, 0.0))
    assert result.labels["r0"] == AnswerCounts(0, 1, 0.0)
    assert result.generated == (
        GeneratedForm("0", "vous", "toi"),
        GeneratedForm("1", "vous", "Vous!"),
        GeneratedForm("2", "vous", "vous"),
    )
    written = json.loads(json.dumps(result.to_json()))
    assert written["items"][0] == {"id": "0", "expected": "vous", "translation": "toi", "answer": "-"}
    assert (written["chance"], written["guessed"], written["labels"]["r1"]["chance"]) == (None, None, None)
    assert read_back(items, written) == result
    assert suite_text(build_suite_rows("set", items, [result]), ["m"]).splitlines()[1].split()[:4] == [
        "set",
        "3",
        "-",
        "66.7",
    ]


def test_where_sentences_are_miscounted_nobody_knows_the_answer():
    """But where the rest of the document was miscounted, or the one sentence became two, the answer is known."""
    ranges = [(), ((0, 2),), ((1, 3),), ((2, 3),), ((0, 2), (2, 3))]
    translations = [translated("vous", "vous", "vous", miscounted=own) for own in ranges]
    items = [SuiteItem("i", "p", None, ("a", "b", "c"), (), 0, 2, "r", "vous")] * len(translations)
    heard = []
    result = evaluate_translations(
        SimpleNamespace(translate_all=lambda documents: translations), items, lambda *own: heard.append(own)
    )
    assert result.answers == "++?++"
    assert result.overall == AnswerCounts(4, 5, 0.0, miscounted=1)
    assert heard == list(enumerate(translations))
    text = suite_text(build_suite_rows("set", items, [result]), ["m"])
    assert "\nmiscounted: wrong, because the model generated another number of sentences" in text
    written = json.loads(json.dumps(result.to_json()))
    assert (written["miscounted"], read_back(items, written)) == (1, result)
    result = evaluate_translations(SimpleNamespace(translate_all=lambda documents: translations[:1]), items[:1])
    assert "another number" not in suite_text(build_suite_rows("set", items[:1], [result]), ["m"])


def test_items_that_cannot_be_translated_are_wrong():
    items = [SuiteItem(f"{n}", "p", None, ("a",), (), 0, 0, "r", "vous") for n in range(3)]

    def translate_all(documents):
        if any(document.id == "1" for document in documents):
            raise DocmtError("out of memory")
        return [translated("vous") for _ in documents]

    heard, translator = [], SimpleNamespace(translate_all=translate_all)
    result = evaluate_translations(translator, items, lambda number, own: heard.append((number, str(own))))
    assert (result.answers, result.overall) == ("+!+", AnswerCounts(2, 3, 0.0, unanswered=1))
    assert heard[1] == (1, "out of memory")
    assert [own.translation for own in result.generated] == ["vous", None, "vous"]
    assert read_back(items, json.loads(json.dumps(result.to_json()))) == result
