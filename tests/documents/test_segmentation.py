"""Sentence segmentation: layout stays in the gaps, abbreviations do not end sentences, time stays linear."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from docmt.documents import Document, segmentation, sentence_spans, unwrap_lines


def split(text: str, language: str = "en", join_lines: bool = False) -> list[str]:
    document = Document.from_text(text, language=language, join_lines=join_lines)
    assert document.text() == text
    return list(document.sentences)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Dr. Smith went to Washington.", "He arrived at 5 p.m. on Jan. 5."]),
        ("en", ["It costs $3.50.", "That is cheap."]),
        ("en", ["The U.S. economy grew.", "J. R. R. Tolkien wrote it."]),
        ("en", ["See Fig. 3 and Sec. 4.2.", "It works (see p. 5).", "Next."]),
        ("en", ['He said: "I am here. You are not."', "Then he left."]),
        ("en", ["Well... I don't know.", "Maybe."]),
        ("en", ["What?!", "Really??", "Yes!"]),
        ("en", ["Visit www.example.com.", "Mail a.b@c.de now."]),
        ("en", ["See https://a.org/SP.POP.TOTL and go.", "It ends."]),
        ("en", ["Approx. 5 people came.", "Good."]),
        ("en", ["They chose plan B\xa0.", "It was by J.\xa0Smith."]),
        ("de", ["Das ist z. B. ein Test.", "Er geht."]),
        ("de", ["Am 3. Oktober 1990 war es.", "Das 19. Jahrhundert war lang.", "Der 2. Weltkrieg auch."]),
        ("de", ["Ich sah ihn am 5.", "Er war krank."]),
        ("de", ["Es kostet 3,50 Euro, d.h. wenig.", "Er kam mit Hrn. Schmidt von der Fa. Meyer."]),
        ("de", ["„Ich komme. Warte!“, sagte er.", "Dann ging er."]),
        ("fr", ["M. Dupont et Mme. Petit sont arrivés.", "Le Dr. Roy est parti."]),
        ("fr", ["Il est 5 h. du matin.", "J.-C. est né.", "L'O.N.U. a dit oui."]),
        ("fr", ["L'art. 5 du code, n. 3.", "Voir p. 3.", "Il aime l'art.", "Elle aussi."]),
        ("fr", ["« Viens ici. Vite ! » dit-il.", "Il partit."]),
        ("de-AT", ["Das 19. Jahrhundert war lang.", "Gut."]),
        ("no-such-language", ["One sentence.", "Two sentences."]),
    ],
)
def test_typical_sentences(language: str, expected: list[str]) -> None:
    assert split(" ".join(expected), language) == expected


def test_scripts_without_spaces() -> None:
    assert split("你好。我很好！你呢？", "zh") == ["你好。", "我很好！", "你呢？"]
    assert split("שלום. מה שלומך?", "he") == ["שלום.", "מה שלומך?"]


def test_marks_belong_to_the_gaps() -> None:
    text = "# Head\n- one\n* two\n• three\n1. four\n12) five\na) six\n(iv) seven\n> eight\n> > - 3. nine\n- [x] ten\n"
    assert split(text) == ["Head", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    document = Document.from_text(text)
    assert document.gaps[0] == "# "
    assert document.gaps[9] == "\n> > - 3. "


def test_text_that_only_looks_like_a_mark() -> None:
    lines = ["1.5 million came", "-5 degrees", "#hashtag", "2019. Then it ended", "(see) this", "3D films", "a.b.c"]
    assert split("\n".join(lines)) == [
        *("1.5 million came", "-5 degrees", "#hashtag", "2019.", "Then it ended", "(see) this", "3D films", "a.b.c")
    ]


def test_german_date_at_the_start_of_a_line_is_no_list_item() -> None:
    assert split("3. Oktober 1990", "de") == ["3. Oktober 1990"]
    assert split("3. Oktopus", "de") == ["Oktopus"]


@pytest.mark.parametrize("join_lines", [False, True])
def test_lines_without_letters_or_digits_are_gaps(join_lines: bool) -> None:
    document = Document.from_text("One\n-----\n***\n😀 !\n1.\n- \nTwo. ?! Three.", join_lines=join_lines)
    assert document.sentences == ("One", "Two.", "Three.")
    assert document.gaps == ("", "\n-----\n***\n😀 !\n1.\n- \n", " ?! ", "")


def test_every_kind_of_line_break_ends_a_line() -> None:
    assert split("a\nb\r\nc\rd\x0be\x0cf\x85g\u2028h\u2029i") == list("abcdefghi")


def test_byte_order_mark_is_in_the_first_gap_only() -> None:
    assert Document.from_text("\ufeffHi.").gaps == ("\ufeff", "")
    assert split("Hi.\n\ufeffHo.") == ["Hi.", "\ufeffHo."]


def test_joined_lines() -> None:
    text = (
        "This is a sentence that\r\n  goes on. And this\r\none ends. \r\n\r\nNew\nparagraph\u2028here\u2029And another"
    )
    assert split(text, join_lines=True) == [
        *("This is a sentence that\r\n  goes on.", "And this\r\none ends."),
        *("New\nparagraph\u2028here", "And another"),
    ]
    assert len(split(text)) == 8


def test_headings_end_sentences_in_joined_lines() -> None:
    text = (
        "# Mark\nText under it\ngoes on\n## Mark\n\nTitle\n=====\nText which\nOther title\n-----------\n"
        "Introduction\nThis line is much longer than the title\nand goes on."
    )
    assert split(text, join_lines=True) == [
        *("Mark", "Text under it\ngoes on", "Mark", "Title", "Text which", "Other title", "Introduction"),
        "This line is much longer than the title\nand goes on.",
    ]


def test_short_first_line_that_runs_on_is_no_title() -> None:
    text = "However,\nThe rest of this paragraph is long"
    assert split(text, join_lines=True) == [text]
    text = "In the\nmiddle of a long sentence this goes on"
    assert split(text, join_lines=True) == [text]


def test_lists_and_quotes_in_joined_lines() -> None:
    text = "Items:\n1. one is\n   long\n2. two\n- three\n  more\n> q\n> r\nwith a wrap before\n12. Not a list"
    assert split(text, join_lines=True) == [
        *("Items:", "one is\n   long", "two", "three\n  more", "q", "r\nwith a wrap before\n12.", "Not a list")
    ]


def test_one_line() -> None:
    assert unwrap_lines("goes \r\n   on  and\non") == "goes on  and on"
    assert unwrap_lines("在\n  中国 in\n中国") == "在中国 in 中国"
    assert unwrap_lines("no\tbreak ") == "no\tbreak "


def test_sentence_of_5000_words_is_one_sentence() -> None:
    long = " ".join(["Word"] + ["word"] * 4999) + "."
    assert split(f"Short. {long} Short.") == ["Short.", long, "Short."]


@pytest.mark.full
def test_long_blocks_are_cut_as_short_ones() -> None:
    """Blocks longer than the window: no boundary is lost, added or moved where windows meet."""
    unit = ["It costs $3.50 at Dr. Smith's.", 'He said: "I am here. You are not."', "Die 你好 😀 next!", "Yes?"]
    assert split(" ".join(unit * 2000)) == unit * 2000
    assert split("你好。我很好！" * 10_000, "zh") == ["你好。", "我很好！"] * 10_000


@pytest.mark.full
def test_100_000_sentences() -> None:
    assert len(split("This is a sentence. And one more.\n" * 50_000)) == 100_000


@pytest.mark.parametrize("failure", ["panic", "loss"])
def test_failing_library_loses_no_text(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    class PanicException(BaseException):
        pass

    def segment(language: str, text: str) -> list[str]:
        if failure == "panic":
            raise PanicException
        return [text[:-1]]

    monkeypatch.setattr(segmentation, "sentencex", SimpleNamespace(segment=segment))
    assert split("One. Two.\nThree.") == ["One. Two.", "Three."]


def test_interrupting_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(language: str, text: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(segmentation, "sentencex", SimpleNamespace(segment=segment))
    with pytest.raises(KeyboardInterrupt):
        split("One.")


@pytest.mark.parametrize(
    "text", ["See ./lalune.jpg now.", "See ../Files now.", "./lalune.jpg", "It is in docs/Files.md today."]
)
def test_paths_are_not_cut(text):
    assert sentence_spans(text, "en") == [(0, len(text))]


def test_clause_numbers_and_roman_numbers_are_marks():
    text = (
        "1.1 The Landlord pays.\n1.2. The Tenant pays.\ni. two beds\nIV. Part four\n3.5 million came.\nX. Smith came."
    )
    document = Document.from_text(text, language="en")
    wanted = ["The Landlord pays.", "The Tenant pays.", "two beds", "Part four", "3.5 million came.", "X. Smith came."]
    assert list(document.sentences) == wanted and document.text() == text


def test_no_sentence_ends_within_a_pattern_of_the_user():
    text = "We like Acme! Corp. Now we go. It saw @@A! B? C@@ here. End."
    protect = [r"Acme! Corp\.", "@@.*?@@"]
    expected = ("We like Acme! Corp.", "Now we go.", "It saw @@A! B? C@@ here.", "End.")
    assert Document.from_text(text, protect=protect).sentences == expected
    assert len(Document.from_text(text)) == 7
