"""Addresses and paths are translated as years and put back."""

from dataclasses import replace

import pytest

from docmt import Document
from docmt.decoding.stand_ins import hide_addresses, restore_addresses, restore_part
from docmt.decoding.translation_results import (
    PartialTranslation,
    ResumePoint,
    TranslatedSentence,
    Translation,
    WordLink,
)
from docmt.documents.addresses import find_addresses
from docmt.documents.words import find_words

SENTENCE = "Visit https://a.org/b?c=d or write to me@b.org."
HIDDEN = "Visit 1857 or write to 1868."


def translate(source, *targets, links=None):
    """The translation of a hidden document with these target sentences."""
    hidden = hide_addresses(source)
    target = hidden.replace_sentences(targets)
    fields = zip(hidden.sentences, targets, hidden.spans(), target.spans(), strict=True)
    sentences = tuple(TranslatedSentence(one, other, -1.0, *spans, alignment=links) for one, other, *spans in fields)
    return Translation(target, sentences, -1.0)


def restore(sentence, target):
    source = Document.from_sentences([sentence])
    return restore_addresses(translate(source, target), source).sentences[0].target


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See https://a.org/x_(y), or (www.b.org/z).", ["https://a.org/x_(y)", "www.b.org/z"]),
        ("Ask a.b+c@d.co.uk.", ["a.b+c@d.co.uk"]),
        ("Écris à josé.b@c.fr, ou été/vu.md.", ["josé.b@c.fr"]),
        ("请看https://a.org/b。或写信到me@b.org吧，www.c.org也行。", ["https://a.org/b", "me@b.org", "www.c.org"]),
        (r"Open C:\Texts\a.docx, please.", [r"C:\Texts\a.docx"]),
        ("In /srv/www/a and ~/notes.txt and ../b/c.", ["/srv/www/a", "~/notes.txt", "../b/c"]),
        ("Change src/main/config.yaml.", ["src/main/config.yaml"]),
        ("He and/or she, 5 km/h, 24/7, 1/2, n/a, w/o. On 3/4/2020 at 50 €/m2; TCP/IP v1.2.", []),
    ],
)
def test_addresses_and_paths_are_found(text, found):
    assert [text[start:end] for start, end in find_addresses(text, with_paths=True)] == found


def test_long_texts_of_slashes_take_linear_time():
    assert find_addresses("a/+" * 100_000, with_paths=True) == []


def test_years_stand_for_addresses():
    source = Document.from_text(f"{SENTENCE}\nIn 1857, see www.a.org.")
    assert hide_addresses(source).sentences == (HIDDEN, "In 1857, see 1868.")
    assert hide_addresses(source).gaps == source.gaps


@pytest.mark.parametrize(
    ("target", "restored"),
    [
        ("À 1868 ou 1857.", "À me@b.org ou https://a.org/b?c=d."),
        ("Le 1868e, 1868!", "Le me@b.org e, me@b.org https://a.org/b?c=d!"),
        ("در ١٨٦٨ یا ۱۸۵۷.", "در me@b.org یا https://a.org/b?c=d."),
        ("Rien 18570.", "Rien 18570 https://a.org/b?c=d me@b.org."),
        ("", "https://a.org/b?c=d me@b.org"),
    ],
)
def test_every_address_comes_back(target, restored):
    assert restore(SENTENCE, target) == restored


@pytest.mark.parametrize("number", ["1857", "1,857", "۱۸۵۷", "18 57"])
def test_numbers_of_the_sentence_are_no_stand_ins(number):
    source = Document.from_sentences([f"It sold {number} copies at www.a.org."])
    assert hide_addresses(source).sentences == (f"It sold {number} copies at 1868.",)


def test_an_address_beside_a_digit_stays():
    source = Document.from_sentences(["第5http://a.b/c章，www.a.org５"])
    assert hide_addresses(source) == source


def test_a_sentence_of_addresses_is_copied():
    assert restore("(www.a.org, www.b.org)", "Ein Satz.") == "(www.a.org, www.b.org)"
    source = Document.from_sentences(["+1 23: www.a.org, www.b.org"])
    links = (WordLink((3, 5), (7, 10), 0.5, True),)  # of words that are not in the copy
    (restored,) = restore_addresses(translate(source, "12: 1857 or 1868", links=links), source)
    assert restored.target == restored.source
    assert [each.source for each in restored.alignment] == find_words(restored.source)
    assert all(each.source == each.target for each in restored.alignment)


def test_spans_are_those_of_the_restored_texts():
    source = Document.from_text(f"{SENTENCE} It ends.")
    restored = restore_addresses(translate(source, "À 1857 ou 1868.", "Fin."), source)
    assert restored.text() == "À https://a.org/b?c=d ou me@b.org. Fin."
    for each in restored:
        assert source.text()[slice(*each.source_span)] == each.source
        assert restored.text()[slice(*each.target_span)] == each.target


def test_links_are_moved_and_join_equal_words_of_addresses():
    source = Document.from_sentences(["Visit www.a.org now."])
    links = (WordLink((11, 14), (0, 3), 0.5, True), WordLink((6, 10), (7, 11), 0.5, True))
    restored = restore_addresses(translate(source, "Nun zu 1857!", links=links), source)
    assert [(each.source, each.target) for each in restored.sentences[0].alignment] == [
        ((16, 19), (0, 3)),
        *(((6 + start, 6 + end), (7 + start, 7 + end)) for start, end in [(0, 3), (3, 4), (4, 5), (5, 6), (6, 9)]),
    ]
    text, target = source.sentences[0], restored.sentences[0].target
    (first, *others) = restored.sentences[0].alignment
    assert text[slice(*first.source)] == "now"
    assert all(text[slice(*each.source)] == target[slice(*each.target)] for each in others)


def test_parts_have_the_source_again():
    source = Document.from_sentences(["It is old.", SENTENCE])
    translation = translate(Document.from_sentences([SENTENCE]), "1857 1868.")
    part = PartialTranslation(0, 1, hide_addresses(source).slice(1, 2), ResumePoint(2), translation)
    restored = restore_part(part, source)
    assert restored.source == source.slice(1, 2) and "https://a.org/b?c=d me@b.org." in restored.text()
    failed = restore_part(replace(part, translation=None), source)
    assert failed.source == restored.source and failed.translation is None
