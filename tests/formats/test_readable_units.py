"""Placeholders are text of the sentences that a model reads, and codes of the units that are written."""

import random
import re
from collections import Counter
from operator import attrgetter

import pytest
from test_unit_documents import Listed

from docmt.documents.protected_text import find_protected
from docmt.formats.bilingual_files import BilingualSentence, BilingualUnit, split_unit
from docmt.formats.placeholders import hide_placeholders, tidy_pieces
from docmt.formats.readable_units import make_readable
from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import Unit

WORDS = ["files", "of", "the page", "was", "deleted,", "(now)", "today"]
get_mark = attrgetter("kind", "id", "content")
NAMES = ["{a}", "{b}", "%s", "%1$s", "{{ user.name }}", "${price}", "%@", "<%= x %>", "[NAME]"]


def translate(text, *targets, links=None):
    """Return the codes and the text of a translated message."""
    documents = UnitDocuments(Listed([hide_placeholders(Unit(text))]), "en")
    made = documents.translate([[SentenceTranslation(target, links) for target in targets]])
    assert made.misplaced == []
    (unit,), (old,) = made.units, documents.file.units
    assert Counter(map(get_mark, unit.codes)) == Counter(map(get_mark, old.codes))
    for (start, end), target in zip(made.target_spans[0], targets, strict=True):
        for code in unit.codes:
            target = target.replace(code.content.strip(), "")
        assert "".join(unit.text[start:end].split()) == "".join(target.split())
    return [code.content.strip() for code in unit.codes], tidy_pieces(old, unit).render()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Page {a} of {b}", ["Page {a} of {b}"]),
        ("Read %#@x@ now", ["Read %#@x@ now"]),
        ("You have {n} files. {m} were deleted.", ["You have {n} files.", "{m} were deleted."]),
        ("From {start} to {end}", ["From {start} to {end}"]),
        ("Click {0}here{1}, <b>{name}</b>", ["Click here, {name}"]),
        ("{% if a %}old{% endif %} {{ x }} is here", ["old {{ x }} is here"]),
        ("{0} No cars|{1} one car", ["No cars", "one car"]),
        ("Total<br>{count}", ["Total"]),
        ("Great :tada:", ["Great"]),
        ("A {n}-day trip, {w}x{h} px", ["A {n}-day trip, {w}x{h} px"]),
        ("{a} {b}", []),
    ],
)
def test_sentences_have_the_placeholders_that_stand_for_words(text, sentences):
    readable = make_readable(hide_placeholders(Unit(text)))
    assert [readable.unit.text[slice(*span)] for span in readable.find_sentences("en")] == sentences


def test_a_placeholder_stands_where_the_translation_has_it():
    assert translate("Page {a} of {b}", "{b} : page {a}") == (["{b}", "{a}"], "{b} : page {a}")
    assert translate("Deleted %s files.", "Fichiers supprimés : %s.") == (["%s"], "Fichiers supprimés : %s.")
    assert translate("Hi {a}. Bye {b}.", "Salut {a}.", "Au revoir {b} !")[1] == "Salut {a}. Au revoir {b} !"


def test_a_placeholder_that_a_person_left_out_gets_a_place():
    links = [(0, 4, 0, 4), (9, 11, 5, 7), (5, 8, 5, 7)]
    assert translate("Page {a} of {b}", "Page von", links=links) == (["{a}", "{b}"], "Page {a} von {b}")
    assert sorted(translate("Page {a} of {b}", "{b} Seiten")[0]) == ["{a}", "{b}"]


def test_any_order_of_words_and_placeholders_is_written_as_it_is():
    chance = random.Random(1)
    for _ in range(300):
        names = chance.sample(NAMES, chance.randint(1, 3))
        words = [*chance.sample(WORDS, 3), *names]
        source, target = (" ".join(chance.sample(words, len(words))) for _ in range(2))
        codes, text = translate(source, target)
        assert text == target
        assert sorted(codes) == sorted(names)


def test_pairs_enclose_placeholders_as_words():
    text = "Shared by <b>{name}</b> in {group}"
    links = [(0, 6, 3, 10), (10, 16, 11, 17), (20, 27, 19, 26)]
    codes, made = translate(text, "In {group} von {name} geteilt")
    assert sorted(codes) == sorted(["<b>", "{name}", "</b>", "{group}"])
    assert re.sub("</?b>", "", made) == "In {group} von {name} geteilt"
    assert links


def test_a_sign_that_two_placeholders_could_have_is_there_once():
    assert hide_placeholders(Unit("Read {0}%,d bytes")).render() == "Read {0}%,d bytes"
    assert [each.span for each in find_protected("{0}%,d, {1}%.")] == [(0, 3), (3, 6), (8, 12)]


@pytest.mark.parametrize(
    "text",
    ["Released v{version} {date} by us", "Ticket #%d [[name]] is open", "From {a} {b}-x to us", "by -%s {c} and us"],
)
def test_what_touches_a_placeholder_beside_another_one_still_does(text):
    assert translate(text, text.replace("us", "nous"))[1] == text.replace("us", "nous")


def test_of_equal_placeholders_each_has_the_spaces_that_it_needs():
    assert translate("Page-%s of %s files", "%s fichiers, page-%s")[1] == "%s fichiers, page-%s"
    assert translate("{n} of page-{n} files", "page-{n} des {n} fichiers")[1] == "page-{n} des {n} fichiers"


LIST = "The following user could not be found in the list of all users:"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (f"{LIST}\n{{name}}\nPlease try it again.", [LIST, "Please try it again."]),
        ("{name}\nis online", ["is online"]),
        ("{name}\n“This” was by you", ["“This” was by you"]),
        ("{name}\\n“This” was by you", ["“This” was by you"]),
        ("The file %s\\nis not in the list of all the files", ["The file %s is not in the list of all the files"]),
        ("Read <b>{name}</b><br>and all the others that you know", ["Read {name} and all the others that you know"]),
        ("We know {b}.\n{name}\nand all the others", ["We know {b}.", "and all the others"]),
    ],
)
def test_lines_after_placeholders_are_apart(text, sentences):
    readable = make_readable(hide_placeholders(Unit(text)))
    spans = list(readable.find_sentences("en"))
    assert [readable.unit.text[slice(*span)] for span in spans] == sentences
    new = [f"X {each}" for each in sentences]
    links = [(start, start + 1, start + 2, start + 3) for start in range(len(text))]
    made = translate(text, *new, links=links)[1]
    expected = text
    for each in sentences:
        first = each.split()[0]
        expected = expected.replace(first, f"X {first}", 1)
    assert made == expected


def test_unchanged_units_have_the_characters_of_their_sentences():
    text = "It was deleted %s {n} %d?  We read it now."
    documents = UnitDocuments(Listed([hide_placeholders(Unit(text))]), "en")
    made = documents.translate([[SentenceTranslation(each) for each in documents.documents[0].sentences]])
    (unit,), (spans,) = made.units, made.target_spans
    assert [unit.text[slice(*span)] for span in spans] == ["It was deleted?", "We read it now."]


def test_a_placeholder_takes_no_space_of_another_sentence():
    text = "It was deleted. {a}, you did it. It is good."
    documents = UnitDocuments(Listed([hide_placeholders(Unit(text))]), "en")
    targets = ["Il.", "{a} vous.", "Bon."]
    made = documents.translate([[SentenceTranslation(each) for each in targets]])
    spans = [(each.start, each.end) for each in documents.sentences[0]]
    pairs = tuple(map(BilingualSentence, spans, made.target_spans[0]))
    unit = BilingualUnit("", documents.file.units[0], made.units[0], pairs)
    sides = [(pair.source, pair.target) for pair in split_unit(unit) if pair.sentence]
    assert [[[getattr(each, "content", each) for each in side] for side in pair] for pair in sides] == [
        [["It was deleted."], ["Il."]],
        [[" {a}", ", you did it."], [" {a}", "vous."]],
        [["It is good."], ["Bon."]],
    ]
