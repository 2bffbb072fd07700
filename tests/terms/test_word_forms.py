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
        *("What does it [cost]?", "He [breaches] it.", "The party that [breaches] the contract pays."),
        *("Nothing [changes] here.", "Close the boxes and [store] them.", "The device [updates] itself."),
        *("We are [meeting] the members.", "Doctors [query] the figures."),
        *("[Display] the settings.", "It is late. [Close] all windows."),
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
            "We know that [breaches] are rare.",
            "The [meeting] was long.",
            "[People] all over the world know.",
            "[Work] these days is rare.",
            "It rose. [Demand] this year fell.",
            "[Time] it takes",
            "[Date] the file was changed",
            "After the [test] it was late.",
        ),
    ],
)
def test_english_nouns_are_no_verbs(sentence):
    before, word, after = sentence.replace("[", "|").replace("]", "|").split("|")[:3]
    assert not load_word_forms("en").is_verb_between(word, before, after)
    assert not load_word_forms("fr").is_verb_between(word, before, after)


def test_an_infinitive_may_be_one_that_the_table_does_not_have():
    forms = load_word_forms("fr")
    assert forms.is_infinitive("coupler") and not forms.is_infinitive("couple") and not forms.is_infinitive("appairer")
    assert forms.is_infinitive("appairer", is_expected=True) and not forms.is_infinitive("un appairer", True)
    assert (forms.conjugate("appairer", "coupler"), forms.conjugate("appairer", "couplons")) == ("appairer", "")


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
        *(("en", "hotfix", "hotfixes"), ("en", "leaf", "leaves"), ("en", "axis", "axes"), ("en", "sky", "skies")),
        *(("en", "cancel", "cancelled"), ("fr", "écarter", "écartée"), ("fr", "voir", "vues")),
    ],
)
def test_a_plural_that_the_table_lacks_has_a_key_of_its_word(language, word, plural):
    """Terms of a large glossary are looked up by keys, those of a small one are compared."""
    pytest.importorskip("simplemma")
    forms = load_word_forms(language)
    assert forms.are_forms(word, plural) and forms.keys(word) & forms.keys(plural)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("es", "informarles", "informar"),
        ("it", "inviarlo", "inviare"),
        ("de", "Wachen", "Wacht"),
        ("en", "metanalyses", "metanalysis"),
    ],
)
def test_forms_have_a_key_in_common_in_either_order(language, one, other):
    pytest.importorskip("simplemma")
    forms = load_word_forms(language)
    assert forms.are_forms(one, other) and forms.are_forms(other, one) and forms.keys(one) & forms.keys(other)


def test_verbs_are_no_plurals():
    pytest.importorskip("simplemma")
    forms = load_word_forms("en")
    pairs = [("believes", "belief"), ("relieves", "relief"), ("serves", "serf"), ("waives", "waif")]
    assert not any(forms.are_forms(*pair) for pair in pairs)
    assert all(forms.are_forms(*pair) for pair in [("shelves", "shelf"), ("thieves", "thief"), ("midwives", "midwife")])


@pytest.mark.parametrize(
    ("word", "feminine"),
    [
        *[("commun", "commune"), ("actif", "active"), ("long", "longue"), ("frais", "fraîche"), ("permis", "permise")],
        *[("rapport", ""), ("accord", ""), ("projet", ""), ("emploi", ""), ("parlement", "")],
    ],
)
def test_a_form_of_a_verb_is_no_feminine_of_a_noun(word, feminine):
    pytest.importorskip("simplemma")
    assert load_word_forms("fr").feminine(word) == feminine


@pytest.mark.parametrize(
    ("word", "expected"), [("dealer", True), ("settings", True), ("faulty", False), ("recent", False), ("old", False)]
)
def test_nouns_are_told_by_their_plural(word, expected):
    assert load_word_forms("en").may_be_noun(word) == expected


def test_adjectives_have_no_plural():
    pytest.importorskip("simplemma")
    assert not load_word_forms("en").are_forms("new", "news")


@pytest.mark.parametrize(
    ("verb", "model", "made"),
    [
        ("résilier", "annulés", "résiliés"),
        ("écarter", "rejetée", "écartée"),
        ("régler", "payées", "réglées"),
        ("prolonger", "étendu", ""),
        ("valider", "salle", ""),
    ],
)
def test_verbs_have_the_form_of_other_verbs(verb, model, made):
    pytest.importorskip("simplemma")
    assert load_word_forms("fr").conjugate(verb, model) == made


def test_feminines_of_adjectives():
    pytest.importorskip("simplemma")
    forms = load_word_forms("fr")
    feminines = {"commun": "commune", "moyen": "moyenne", "actif": "active", "net": "nette", "étendu": "étendue"}
    feminines |= {"nouveau": "nouvelle", "particulier": "particulière", "heureux": "heureuse", "large": "large"}
    assert {word: forms.feminine(word) for word in feminines} == feminines
    assert all(map(forms.is_feminine, ("grandes", "nouvelle", "privée", "particulière")))
    assert not any(map(forms.is_feminine, ("maison", "grand", "voiture", "vaste", "porte")))
    assert not forms.feminine("maison") and not load_word_forms("en").feminine("new")


def test_words_of_idioms_are_told():
    forms, sentence = load_word_forms("en"), "In order to win, of course, the order counts"
    assert [sentence[slice(*span)] for span in forms.find_idioms(sentence)] == ["In order to", "of course"]
    assert load_word_forms("cs").find_idioms(sentence) == []


def test_an_unknown_word_may_be_expected_to_be_a_verb():
    forms = load_word_forms("fr")
    assert forms.begins_with_verb("appairer", is_expected=True) and not forms.begins_with_verb("appairer")
    assert not forms.begins_with_verb("rapport", is_expected=True)
    assert not load_word_forms("xx").begins_with_verb("appairer", is_expected=True)


def test_misspelled_feminines_are_known_by_their_endings():
    forms = load_word_forms("fr")
    assert forms.is_feminine("fauteuses") and not forms.is_feminine("fauteux")
