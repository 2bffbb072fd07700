"""Which words are forms of verbs."""

import pytest

from docmt.terms.word_forms import load_word_forms

pytest.importorskip("simplemma")


@pytest.mark.parametrize(
    ("language", "verbs", "others"),
    [
        ("fr", "augmentent rapporter signalez prennent", "rapport mesures salariés papier grande rapporté"),
        ("de", "berichtet steigt erhöht", "Berichte schöne Haus"),
        ("es", "informar aumentan", "informe medidas trabajo"),
        ("it", "riferire aumentano", "rapporto misure"),
        ("en", "", "report writes house"),
        ("xx", "", "word"),
    ],
)
def test_forms_of_verbs_are_known(language, verbs, others):
    forms = load_word_forms(language)
    assert [each for each in verbs.split() if not forms.is_verb(each)] == []
    assert [each for each in others.split() if forms.is_verb(each)] == []


def test_a_word_after_a_pronoun_is_a_verb():
    forms = load_word_forms("en")
    for before in ("We ", "Please ", "They don\u2019t ", "You must "):
        assert forms.is_verb_after(before, "report"), before
    assert not forms.is_verb_after("The ", "report") and not forms.is_verb_after("USA: show ", "report")
    assert not forms.is_verb_after("We ", "always") and not load_word_forms("fr").is_verb_after("We ", "report")
