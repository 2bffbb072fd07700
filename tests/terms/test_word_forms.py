"""Which words are forms of verbs."""

import pytest

from docmt.terms.word_forms import load_word_forms

pytest.importorskip("simplemma")


@pytest.mark.parametrize(
    ("language", "verbs", "others"),
    [
        ("fr", "augmentent rapporter signalez prennent", "rapport mesures salariés papier grande votes visite"),
        ("de", "berichtet steigt erhöht", "Berichte schöne Haus bitte"),
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


@pytest.mark.parametrize(
    "sentence",
    [
        *(
            "We [report] it.",
            "Please [report] it.",
            "They don\u2019t [report] it.",
            "You must [report].",
            "I can't [report].",
        ),
        *(
            "We want to [support] them.",
            "If you [plan] well, it [works].",
            "Don\u2019t [report] it.",
            "It [costs] a lot.",
            "It is there to [support] the firm.",
        ),
        *("The machine does not [work].", "They must never [test] it.", "It won't [cost] much."),
    ],
)
def test_english_verbs_are_known_by_what_stands_around_them(sentence):
    before, word, after = sentence.replace("[", "|").replace("]", "|").split("|")[:3]
    assert load_word_forms("en").is_verb_between(word, before, after)


@pytest.mark.parametrize(
    "sentence",
    [
        *(
            "The [report] is long.",
            "The WHO [report] was long.",
            "The IT [report] was long.",
            "We gave it [support].",
            "Part I [reports].",
        ),
        *(
            "I offer you [work].",
            "We [always] agree.",
            "He spoke to [reporters].",
            "Thanks to [work] at home, we live.",
            "This isn't [work].",
        ),
    ],
)
def test_english_nouns_are_no_verbs(sentence):
    before, word, after = sentence.replace("[", "|").replace("]", "|").split("|")[:3]
    assert not load_word_forms("en").is_verb_between(word, before, after)
    assert not load_word_forms("fr").is_verb_between(word, before, after)


def test_what_follows_may_show_a_verb():
    forms = load_word_forms("en")
    assert forms.may_be_verb_before("measures", " the temperature") and forms.may_be_verb_before("reports", " a loss")
    assert not forms.may_be_verb_before("measures", " of length") and not forms.may_be_verb_before("also", " the other")


@pytest.mark.parametrize(
    ("before", "word"),
    [("How should ", "parents"), ("According to ", "reports"), ("We ", "doctors"), ("Class I ", "measure")],
)
def test_plurals_and_numerals_make_no_verbs(before, word):
    assert not load_word_forms("en").is_verb_between(word, before, " the Commission knows")


def test_a_word_after_an_article_and_one_in_ing_cannot_be_verbs():
    forms = load_word_forms("en")
    assert forms.cannot_be_verb("question", "It is just a ") and forms.cannot_be_verb("reading", "I like ")
    assert not forms.cannot_be_verb("report", "We ")
    assert forms.is_past("planned") and not forms.is_past("need") and not load_word_forms("fr").is_past("planned")


@pytest.mark.parametrize(
    ("language", "word", "plural"),
    [
        ("fr", "issue", "issues"),
        ("fr", "été", "étés"),
        ("fr", "arrêté", "arrêtés"),
        ("en", "report", "reports"),
        ("en", "annex", "annexes"),
        ("en", "hotfix", "hotfixes"),
    ],
)
def test_a_plural_that_the_table_lacks_has_a_key_of_its_word(language, word, plural):
    """Terms of a large glossary are looked up by keys, those of a small one are compared."""
    pytest.importorskip("simplemma")
    forms = load_word_forms(language)
    assert forms.are_forms(word, plural) and forms.keys(word) & forms.keys(plural)


def test_adjectives_have_no_plural():
    pytest.importorskip("simplemma")
    assert not load_word_forms("en").are_forms("new", "news")
