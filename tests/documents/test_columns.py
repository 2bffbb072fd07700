"""Columns: what keeps texts of a line apart is a gap, and prose has no gaps."""

from __future__ import annotations

import pytest

from docmt.documents import Document


def split(text: str, language: str = "en", join_lines: bool = False) -> list[str]:
    document = Document.from_text(text, language=language, join_lines=join_lines)
    assert document.text() == text
    return list(document.sentences)


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("For\tAgainst\tAbstentions", ["For", "Against", "Abstentions"]),
        ("\tThe seller\t\tThe buyer\t", ["The seller", "The buyer"]),
        ("1.\tThe House\t2.\tThe Senate", ["The House", "The Senate"]),
        ("X\tThe House\tB", ["The House"]),
        ("The seller     The buyer", ["The seller", "The buyer"]),
        ("The seller\xa0\xa0\xa0\xa0The buyer", ["The seller", "The buyer"]),
        ("Total   1,200   3,400", ["Total"]),
        ("Home | Products | Contact", ["Home", "Products", "Contact"]),
        ("| Name | Country |", ["Name", "Country"]),
        ("|Name|Country|", ["Name", "Country"]),
        ("One • Two · Three", ["One", "Two", "Three"]),
        ("Name: ____ Date: ____", ["Name:", "Date:"]),
        ("Name____ Date____.", ["Name", "Date"]),
        ("Signed on __/__/____ at __:__", ["Signed on", "at"]),
        ("Name: ........ Date: ........", ["Name:", "Date:"]),
        ("The House ........ 5", ["The House"]),
        ("The House.........................iv", ["The House"]),
        ("Chapter 1 . . . . . . . . 12", ["Chapter 1"]),
        ("☐ Yes ☑ No", ["Yes", "No"]),
        ("☐Yes ☒No", ["Yes", "No"]),
        ("[ ] Yes [x] No ( ) Neither", ["Yes", "No", "Neither"]),
        ("Home › Products › New chairs", ["Home", "Products", "New chairs"]),
        ("Home » Products", ["Home", "Products"]),
        ("Home > Products > Chairs", ["Home", "Products", "Chairs"]),
        ("One is here|Two are here", ["One is here", "Two are here"]),
        ("Home / Products / Chairs", ["Home", "Products", "Chairs"]),
        ("Paris → London", ["Paris", "London"]),
    ],
)
def test_texts_between_gaps_are_sentences(line: str, texts: list[str]) -> None:
    assert split(line) == texts


@pytest.mark.parametrize(
    "sentence",
    [
        "He said .... nothing",
        "So, considering......",
        "« Bonjour » dit-il.",
        "Mr.   Smith came.",
        "Smith,   John",
        "This  is  justified   text  with  spaces.",
        "The set {x | x > 0} is P(A | B) or A_B | C_D here.",
        "The pipe | character is read by sh | grep.",
        "Then go to Tools > Settings > Security and change it.",
        "Use a || b or __init__ or a___b.",
        "The values are > 0 and < 5",
        "See f(x) and [x].",
    ],
)
def test_prose_has_no_gaps(sentence: str) -> None:
    assert split(sentence) == [sentence]


def test_a_row_is_no_part_of_a_paragraph() -> None:
    text = "This is a long line of a\nparagraph.\nThe seller\tThe buyer\nYes\tNo\nAnd text\nagain.\n"
    expected = ["This is a long line of a\nparagraph.", "The seller", "The buyer", "Yes", "No", "And text\nagain."]
    assert split(text, join_lines=True) == expected
