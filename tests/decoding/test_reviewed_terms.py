"""What became of terms in a translation that a person has written, in place of one that was searched."""

from dataclasses import replace

import pytest

from docmt.decoding.term_report import review_terms
from docmt.decoding.translation_results import TermUse

LANGUAGES = ("en", "de")
USES = {
    "allowed and forbidden": TermUse((2, 10), "umbrella", ("Schirm",), "Schirm", "met", forbidden=("Parapluie",)),
    "forbidden alone": TermUse((2, 10), "umbrella", (), "", "met", forbidden=("Parapluie",)),
    "refused": TermUse((2, 10), "umbrella", ("Schirm",), "", "refused", 12.0, dropped="red", forbidden=("Parapluie",)),
    "broken": TermUse((2, 10), "umbrella", ("Schirm",), "Parapluies", "forbidden", forbidden=("Parapluie",)),
}
EDITS = [
    ("allowed and forbidden", "Ein Schirm.", ("met", "Schirm")),
    ("allowed and forbidden", "Ein Schirm, ein Parapluie.", ("forbidden", "Parapluie")),
    ("allowed and forbidden", "Ein Dach.", ("lost", "")),
    ("forbidden alone", "Ein Dach.", ("met", "")),
    ("forbidden alone", "Ein Parapluie.", ("forbidden", "Parapluie")),
    ("refused", "Ein roter Schirm.", ("met", "Schirm")),
    ("refused", "Ein roter Parapluie.", ("forbidden", "Parapluie")),
    ("broken", "Ein Schirm.", ("met", "Schirm")),
    ("broken", "Der Parapluie.", ("forbidden", "Parapluie")),
]


@pytest.mark.parametrize(("name", "target", "result"), EDITS)
def test_an_edit_is_judged_by_all_that_the_glossary_says(name, target, result):
    (use,) = review_terms([USES[name]], target, LANGUAGES)
    assert (use.status, use.found) == result
    assert (use.loss, use.dropped, use.forbidden) == (0, "", ("Parapluie",))
    assert review_terms([use], "Ein Parapluie.", LANGUAGES)[0].status == "forbidden"


def test_a_forbidden_word_within_an_allowed_one_is_none():
    use = TermUse((0, 4), "lamp", ("Lampenschirm",), "", "lost", forbidden=("Lampe",))
    other = TermUse((6, 14), "umbrella", ("Lampe",), "Lampe", "met")
    reviewed = review_terms([use, other], "Lampenschirm, Lampe", LANGUAGES)
    assert [each.status for each in reviewed] == ["met", "met"]


def test_nothing_is_lost_of_a_term_whose_forbidden_word_stands_for_another_one():
    use = TermUse((0, 4), "deal", (), "", "met", forbidden=("Vertrag",))
    other = TermUse((6, 14), "contract", ("Vertrag",), "Vertrag", "met")
    reviewed = review_terms([use, other], "Die Abmachung, ein Vertrag", LANGUAGES)
    assert [(each.status, each.found) for each in reviewed] == [("met", ""), ("met", "Vertrag")]


def test_protected_terms_stay():
    use = TermUse((0, 4), "lamp", ("Lampe",), "lamp", "protected", forbidden=("Leuchte",))
    assert review_terms([use], "Leuchte", LANGUAGES) == [use]


def test_capitals_count_for_a_term_that_asked_for_them():
    use = TermUse((0, 4), "Word", ("Word",), "Word", "met", case=True)
    assert review_terms([use], "Ein word.", LANGUAGES)[0].status == "lost"
    assert review_terms([replace(use, case=False)], "Ein word.", LANGUAGES)[0].status == "other_form"
