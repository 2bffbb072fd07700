"""Where long sentences are cut, and how the translations of their pieces are joined."""

import random
from itertools import pairwise

import pytest

from docmt.decoding.long_sentences import cut_sentence, divide_document, join_pieces
from docmt.documents import Document
from docmt.documents.protected_text import find_protected


def cut(sentence, limit=8):
    spans = cut_sentence(sentence, lambda text: len(text.split()), limit)
    return [sentence[start:end] for start, end in spans]


CUTS = [
    (
        "We waited for two days; then, in the end, they came home",
        ["We waited for two days;", "then, in the end, they came home"],
    ),
    (
        "He asked them once more: was it there, or was it here",
        ["He asked them once more:", "was it there, or was it here"],
    ),
    ("We saw the old house, the new one, the lake", ["We saw the old house,", "the new one, the lake"]),
    ("The house was very old – nobody lived there at all", ["The house was very old –", "nobody lived there at all"]),
    (
        "the house was very old and nobody lived there any more",
        ["the house was very old", "and nobody lived there any more"],
    ),
    ("das Haus war sehr alt weil niemand mehr dort wohnte", ["das Haus war sehr alt", "weil niemand mehr dort wohnte"]),
    ("one two three four five six seven eight nine ten", ["one two three four five", "six seven eight nine ten"]),
    (
        "they sold about one million of 12 500 000 tons there",
        ["they sold about one million", "of 12 500 000 tons there"],
    ),
    ("we are a group of 1, 2, 3 and 4 people", ["we are a group of 1,", "2, 3 and 4 people"]),
    (
        "see the big file {first, of the two names} on the disk",
        ["see the big file", "{first, of the two names} on the disk"],
    ),
]


@pytest.mark.parametrize(("sentence", "pieces"), CUTS)
def test_a_sentence_is_cut_at_the_best_border_near_its_middle(sentence, pieces):
    assert cut(sentence) == pieces


def test_a_sentence_within_the_limit_and_one_word_stay_whole():
    assert cut("one, two; three") == ["one, two; three"]
    assert cut_sentence("a" * 5000, len, 80) == [(0, 5000)]
    assert cut_sentence("", len, 80) == [(0, 0)]
    assert cut_sentence("a" * 100 + " .", len, 80) == [(0, 102)]


def test_scripts_without_spaces_are_cut_at_their_marks_and_then_between_characters():
    pieces = cut_sentence("我们昨天去了那里，但是没有人在家", len, 10)
    assert pieces == [(0, 9), (9, 16)]
    assert cut_sentence("我们昨天去了那里没有人在家", len, 10) == [(0, 6), (6, 13)]


def test_pieces_are_within_the_limit_and_lose_nothing():
    chance = random.Random(5)
    words = ["and", "house", "word,", "end;", "12 000", "a@b.org", "https://x.org/a,b", "–", "{a b}", "l’an", "家在"]
    for _ in range(60):
        sentence = " ".join(chance.choices(words, k=chance.randrange(1, 200)))
        limit = chance.randrange(20, 60)
        spans = cut_sentence(sentence, len, limit)
        assert all(sentence[end:start].isspace() for (_, end), (start, _) in pairwise(spans))
        assert spans[0][0] == 0 and spans[-1][1] == len(sentence)
        assert all(end - start <= limit for start, end in spans)
        borders = {border for span in spans for border in span}
        for start, end in (part.span for part in find_protected(sentence)):
            assert borders.isdisjoint(range(start + 1, end))


def test_cutting_takes_linear_time():
    counted = []

    def count(text):
        counted.append(len(text))
        return len(text.split())

    sentence = "some words, and others " * 5000
    assert len(cut_sentence(sentence, count, 80)) > 200
    assert sum(counted) < 6 * len(sentence)


def test_a_document_in_pieces_has_the_same_text():
    document = Document.from_text("One two, three four. Five.\n\n- six seven, eight nine")
    spans = [[(0, 8), (9, len(document.sentences[0]))], [(0, 5)], [(0, 10), (11, 21)]]
    divided = divide_document(document, spans)
    assert divided.text() == document.text()
    assert divided.sentences == ("One two,", "three four.", "Five.", "six seven,", "eight nine")


JOINED = [
    (("He came,", "and it rained."), ("Il est venu.", "Et il pleuvait."), "Il est venu, et il pleuvait."),
    (("He came", "and it rained"), ("Il est venu.", "Il pleuvait."), "Il est venu il pleuvait."),
    (("He came:", "The end."), ("Il est venu:", "La fin."), "Il est venu: La fin."),
    (("Did he come?", "yes."), ("Est-il venu ?", "Oui."), "Est-il venu ? Oui."),
    (("the rain –", "of the NATO"), ("La pluie", "OTAN"), "La pluie – OTAN"),
    (("when it", "to Paul it fell"), ("Quand", "Paul le voit"), "Quand Paul le voit"),
    (("say hi :a: and", "go"), ("Dites et :a:", "va"), "Dites et :a: va"),
    (("hi :a:", "go"), ("Salut :a:", "va"), "Salut :a: va"),
    (("one", "two"), ("", "Deux"), "deux"),
    (("one", "two", "three"), ("Un", "", "Trois"), "Un trois"),
]


@pytest.mark.parametrize(("sources", "targets", "text"), JOINED)
def test_translations_of_pieces_are_joined_to_a_sentence(sources, targets, text):
    joined, spans = join_pieces(sources, targets, "fr")
    assert joined == text
    assert [joined[start:end].casefold()[:2] for start, end in spans] == [target.casefold()[:2] for target in targets]


def test_languages_join_pieces_their_own_way():
    assert join_pieces(("the house,", "the trees"), ("Das Haus.", "Bäume"), "de_AT")[0] == "Das Haus, Bäume"
    assert join_pieces(("he came", "and i saw"), ("He came", "I saw"), "en")[0] == "He came I saw"
    assert join_pieces(("他来了，", "我走了。"), ("彼は来た。", "私は行った。"), "ja")[0] == "彼は来た，私は行った。"
