"""Renderings made consistent: what changes, what stays, and that neither other documents nor parts matter."""

from array import array
from dataclasses import replace

import pytest

import docmt
from docmt.decoding.translation_results import TermUse
from docmt.terms import Glossary

SENTENCES = [
    "The committee has adopted the report.",
    "I thank the committee for its work.",
    "The committee will meet here.",
    "We must help the committee.",
    "Nothing here.",
]
OTHER = docmt.Document.from_sentences(["This is another document.", "It has two sentences."])


@pytest.fixture(scope="module", params=["en-fr-sentence", pytest.param("en-fr", marks=pytest.mark.full)])
def translator(request):
    return docmt.Translator(request.param, search=docmt.SearchConfig(beam=1))


@pytest.fixture
def inconsistent(translator, monkeypatch):
    """A translator whose first pass says "comité" in one of four sentences, and the same with consistency."""
    first, words = translator._translate, "comité"

    def translate(sources, copies=None):
        return [spoil(each, source) for each, source in zip(first(sources, copies), sources, strict=True)]

    def spoil(translation, source):
        sentences = list(translation.sentences)
        for number, each in enumerate(sentences):
            if each.source == SENTENCES[3]:
                target = f"Nous devons aider le {words}."
                ids = array("i", translator.encode([target], "target")[0])
                sentences[number] = replace(each, target=target, token_ids=ids)
        document = source.document.replace_sentences([each.target for each in sentences])
        return replace(translation, document=document, sentences=tuple(sentences))

    monkeypatch.setattr(translator, "_translate", translate)
    consistent = translator.with_terms(None, consistent=True)
    return translator, consistent


def uses(translation):
    return [use for sentence in translation for use in sentence.terms]


def test_the_usual_rendering_takes_the_place_of_another(inconsistent):
    translator, consistent = inconsistent
    document = docmt.Document.from_sentences(SENTENCES)
    plain, made = translator.translate(document), consistent.translate(document)
    assert "comité" in plain.sentences[3].target and "commission" in made.sentences[3].target
    assert "comité" not in made.text()
    assert [each.target for n, each in enumerate(made) if n != 3] == [
        each.target for n, each in enumerate(plain) if n != 3
    ]
    (use,) = uses(made)
    assert (use.status, use.term, use.replaced) == ("consistent", "committee", "comité")
    assert use.found == "commission" and SENTENCES[3][slice(*use.span)] == "committee"


def test_the_terms_of_the_user_win(inconsistent):
    translator, _ = inconsistent
    document = docmt.Document.from_sentences(SENTENCES)
    glossary = Glossary.from_pairs({"committee": ["comité"]}, translator.languages)
    made = translator.with_terms(glossary, "require", consistent=True).translate(document)
    assert [each.target.count("comité") for each in made] == [1, 1, 1, 1, 0]
    assert {each.status for each in uses(made)} <= {"met", "second_search"}
    glossary = Glossary.from_pairs({"help": ["aider"]}, translator.languages)
    made = translator.with_terms(glossary, consistent=True).translate(document)
    assert [(each.term, each.status) for each in uses(made)] == [("help", "met"), ("committee", "consistent")]
    assert "aider" in made.sentences[3].target and "commission" in made.sentences[3].target


def test_other_documents_and_parts_do_not_matter(translator):
    consistent = translator.with_terms(None, consistent=True)
    document = docmt.Document.from_sentences([text for text in SENTENCES for _ in range(2)])
    alone = consistent.translate(document)
    assert consistent.translate([OTHER, document, OTHER])[1].text() == alone.text()  # scores differ in last digits
    parts = [part for parts in consistent.stream_parts([OTHER, document], look_ahead=8) for part in parts]
    assert [(part.document, part.first, part.resume_point.sentences) for part in parts] == [(0, 0, 2), (1, 0, 10)]
    assert parts[1].translation.text() == alone.text()
    points = {0: parts[0].resume_point}
    (again,) = [part for parts in consistent.stream_parts([OTHER, document], resume_points=points) for part in parts]
    assert again.translation.text() == alone.text() and again.document == 1


def test_a_document_that_repeats_nothing_stays(translator):
    consistent = translator.with_terms(None, consistent=True)
    made = consistent.translate(OTHER)
    assert made == translator.translate(OTHER) and not uses(made)
    assert consistent.translate("") == ""
    assert TermUse((0, 1), "a", (), "", "met").replaced == ""
