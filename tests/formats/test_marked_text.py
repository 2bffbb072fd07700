"""Marks for codes: equal sentences have equal marks, and what is reused has its codes where the memory has them."""

import random

import pytest

from docmt.formats.marked_text import fill, mark_pair, mark_sentence, show
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import Code, Unit, UnitBuilder

WORDS = ["the", "cat", "sleeps", "in", "a", "house", ",", "and", "it", "'s", "good", "."]


def build(generator, codes):
    """Return a unit of random words with these codes, each once, between its first and its last word."""
    builder, opened, left = UnitBuilder(), [], generator.sample(codes, len(codes))
    builder.add_text("First ")
    for word in generator.choices(WORDS, k=generator.randint(1, 8)):
        while left and generator.random() < 0.4:
            kind, content = left.pop()
            if kind == "single":
                builder.add_single(content, content)
            else:
                builder.open(content, content)
                opened.append(content)
        builder.add_text(word)
        while opened and generator.random() < 0.4:
            builder.close(opened.pop(), "/")
        builder.add_text(" ")
    for content in reversed(opened):
        builder.close(content, "/")
    for _, content in left:
        builder.add_single(content, content)
    builder.add_text("last")
    return builder.finish()


def whole(unit):
    return unit, 0, len(unit.text)


def outline(unit):
    """Return the codes and what is between them, without white space."""
    return "".join(unit.render().split())


@pytest.mark.parametrize("seed", range(4))
def test_what_is_reused_is_the_translation_of_the_memory(seed):
    generator, reused = random.Random(seed), 0
    for _ in range(150):
        contents = generator.sample(["<a>", "<b>", "<c>", "{x}", "<br/>"], generator.randint(0, 3))
        codes = [("single" if each[-2:] == "/>" or each[0] == "{" else "open", each) for each in contents]
        source, target = build(generator, codes), build(generator, codes)
        pair = mark_pair(whole(source), whole(target))
        if pair is None:
            continue
        assert show(mark_sentence(*whole(source))) == pair[0]
        if (filled := fill(mark_sentence(*whole(source)), pair[1])) is not None:
            reused += 1
            projected, missing = project_codes(source, [Passage(0, len(source.text), *filled)])
            assert not missing and outline(projected) == outline(target)
    assert reused > 40


def test_pairs_that_go_on_beyond_a_sentence_end_with_it():
    unit = Unit("One is bold. So is this one. Not that.", (Code(7, "open", "b", "<b>"), Code(28, "close", "b", "</b>")))
    sentences = [mark_sentence(unit, *span) for span in ((0, 12), (13, 28), (29, 38))]
    assert sentences[1:] == ["So is this one.", "Not that."]  # codes around all of a sentence do not depend on words
    inside = Unit("One is bold.", (Code(7, "open", "b", "<b>"), Code(12, "close", "b", "</b>")))
    assert sentences[0] == mark_sentence(*whole(inside)) != "One is bold."


def test_what_shows_nothing_has_no_marks():
    codes = Code(4, "open", "r", "<r>", is_plain=True), Code(6, "close", "r", "</r>", is_plain=True)
    assert mark_sentence(*whole(Unit("One is bold.", codes))) == "One is bold."


def test_other_codes_make_no_pair():
    bold, plain = (Unit("One is bold.", (Code(7, "single", "1", text),)) for text in ("<br/>", "<hr/>"))
    assert mark_pair(whole(bold), whole(plain)) is None
    assert mark_pair(whole(bold), whole(Unit("Une est grasse."))) is None
    assert mark_pair(whole(Unit("a \ufdd0")), whole(Unit("b"))) is None
