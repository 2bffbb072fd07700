"""Terms in sentences and in their translations."""

from itertools import product

import pytest

from docmt.terms import Glossary, Term
from docmt.terms.matching import TermMatcher
from docmt.terms.word_forms import WordForms


def matcher(pairs, languages=("en", "fr")):
    return TermMatcher(Glossary.from_pairs(pairs, languages))


def found(terms, sentence):
    return [sentence[slice(*each.span)] for each in terms.find(sentence)]


@pytest.mark.parametrize(
    ("pairs", "sentence", "terms"),
    [
        ({"measure": "x"}, "These measures measure. A measurement.", ["measures", "measure"]),
        ({"bank": "x", "central bank": "y"}, "The Central Bank and a bank", ["Central Bank", "bank"]),
        ({"a b": "x", "b c d": "y"}, "a b c d", ["b c d"]),
        ({"MT": "x"}, "MT, mt and MTs", ["MT", "MTs"]),
        ({"decision-making": "x"}, "Decision-making is hard", ["Decision-making"]),
        ({"policy": "x"}, "no police, but policies", ["policies"]),
        ({"C++": "x"}, "C and C++ and C#", ["C++"]),
        ({"log file": "x", "e-mail": "y"}, "The log-file - a log - file, an E-mail", ["log-file", "E-mail"]),
        ({"order": "x", "course": "y"}, "In order to win, of course, give the order", ["order"]),
        ({"measure": "x"}, "", []),
        ({"drawbar": "x"}, "Drawbars, drawbar", ["Drawbars", "drawbar"]),
        ({"İ": "x", "straße": "y"}, "STRASSE Straße", ["STRASSE", "Straße"]),
        ({"log file": "x"}, "The log-files, the log--file", ["log-files"]),
        ({"log-file": "x"}, "The log files", ["log files"]),
        ({"make-up": "x"}, "It is made up of make-ups", ["make-ups"]),
        ({"A-": "x", "-5": "y"}, "A-, B- (-5 °C)", ["A-", "-5"]),
        ({"part": "x", "case": "y"}, "In part Part II, in Case 3, in case 4", ["Part", "Case", "case"]),
    ],
)
def test_terms_of_a_sentence(pairs, sentence, terms):
    assert found(matcher(pairs), sentence) == terms


def test_a_term_with_case_is_found_in_its_capitals_only():
    terms = TermMatcher(Glossary(("en", "fr"), (Term("Agent", ("agent",), case=True),)))
    assert found(terms, "An agent. Agents. An Agent.") == ["Agent"]


@pytest.mark.parametrize(
    ("pairs", "source", "target", "matches"),
    [
        ({"measure": ["disposition", "mesure"]}, "a measure", "une mesure", ["mesure"]),
        ({"measure": "disposition"}, "a measure", "Disposition et mesure", ["Disposition"]),
        ({"measure": "disposition"}, "measure, measure", "des dispositions", ["dispositions", None]),
        (
            {"measure": "disposition", "provision": "disposition"},
            "measure provision",
            "une disposition",
            ["disposition", None],
        ),
        ({"report": "compte rendu"}, "reports", "les comptes rendus", ["comptes rendus"]),
        ({"report": "compte rendu"}, "report", "le compte sera rendu", [None]),
        ({"EU": "UE"}, "the EU", "l'UE", ["UE"]),
        ({"EU": "UE"}, "the EU", "une EUE", [None]),
    ],
)
def test_what_stands_for_terms(pairs, source, target, matches):
    terms = matcher(pairs)
    found = terms.match(terms.find(source), target)
    assert [each and target[slice(*each.span)] for each in found] == matches


def test_a_listed_form_is_told_from_another():
    terms = matcher({"measure": "disposition"})
    (listed,), (other,) = (terms.match(terms.find("measure"), text) for text in ("Disposition", "dispositions"))
    assert (listed.is_listed, other.is_listed) == (True, False)


def test_forms_are_those_of_the_table():
    terms = matcher({"report": "compte rendu"})
    assert terms.list_forms(*terms.find("a report")) == ["compte rendu"]
    assert "comptes rendus" in terms.list_forms(*terms.find("reports"))


@pytest.mark.parametrize(
    ("pairs", "languages", "sentence", "has", "lacks"),
    [
        ({"user": "usager"}, "en fr", "The user", {"usager"}, {"usagers"}),
        ({"user": "usager"}, "en fr", "The USERS", {"usagers"}, {"usager"}),
        ({"users": "usagers"}, "en fr", "A user", {"usager"}, {"usagers"}),
        ({"furniture": "meubles"}, "en fr", "the furniture", {"meuble"}, set()),
        ({"price": "prix"}, "en fr", "a price", {"prix"}, set()),
        ({"child": "enfant"}, "en fr", "children", {"enfants"}, {"enfant"}),
        ({"drawbar": ["timon", "flèche"]}, "en fr", "drawbars", {"timons", "flèche"}, set()),
        ({"umbrella": "Schirm"}, "en de", "the umbrellas", {"Schirme"}, {"Schirm"}),
        ({"house": "Haus"}, "en de", "the house", {"Haus", "Hauses"}, {"Häuser"}),
        ({"customer": "Kunde"}, "en de", "the customer", {"Kunde", "Kunden"}, set()),
        ({"teacher": "Lehrer"}, "en de", "the teachers", {"Lehrer"}, set()),
        ({"Bank": "banque"}, "de fr", "eine Bank", {"banque"}, {"banques"}),
        ({"Haus": "maison"}, "de fr", "die Häuser", {"maisons"}, {"maison"}),
        ({"Kunde": "client"}, "de fr", "den Kunden", {"client", "clients"}, set()),
        ({"house": "casa"}, "en it", "houses", {"case"}, {"casa"}),
        ({"house": "casa"}, "en es", "houses", {"casas"}, {"casa"}),
        ({"maison": "house"}, "fr en", "les maisons", {"houses"}, {"house"}),
        ({"measured": "mesuré"}, "en fr", "it is measured", {"mesuré", "mesurés"}, set()),
        ({"people": "personne"}, "en fr", "people", {"personne", "personnes"}, set()),
        ({"house": "xyz"}, "en fr", "houses", {"xyz"}, set()),
        ({"employee": "salarié"}, "en fr", "employees", {"salariés"}, {"salarié", "salariées", "salariais"}),
        ({"party": "partie prenante"}, "en fr", "parties", {"parties prenantes"}, {"partie prenantes"}),
    ],
)
def test_forms_agree_in_number_with_the_source(pairs, languages, sentence, has, lacks):
    terms = matcher(pairs, tuple(languages.split()))
    (occurrence,) = terms.find(sentence)
    forms = set(terms.list_forms(occurrence))
    assert forms >= has and forms.isdisjoint(lacks)


def test_words_that_the_table_lacks_are_compared_by_their_ends():
    forms = WordForms("en")
    assert forms.are_forms("drawbar", "drawbars") and not forms.are_forms("drawbar", "drawbridge")
    assert not forms.are_forms("police", "policies") and not forms.are_forms("pump", "pumper")


def test_words_without_a_table_are_compared_by_their_ends(monkeypatch):
    monkeypatch.setattr("docmt.terms.word_forms._load_simplemma", lambda language: None)
    forms = WordForms("en")
    assert not forms.has_table and forms.list_forms("measure") == []
    assert forms.are_forms("Measure", "measures") and forms.are_forms("commitment", "commitments")
    assert not any(forms.are_forms(*pair) for pair in [("car", "cars"), ("commit", "committee"), ("1999", "19999")])
    assert found(matcher({"measure": "x"}), "Measures were measured.") == ["Measures", "measured"]


@pytest.mark.parametrize(
    ("source", "target", "sentence", "translation"),
    [
        ("waiting room", "salle d’attente", "the waiting room", "la salle d'attente"),
        ("waiting room", "salle d'attente", "the waiting room", "la salle d’attente"),
        ("Council's report", "x", "the Council’s report", "x"),
        ("Council’s report", "x", "the Council's report", "x"),
        ("café", "bistrot", "a cafe\u0301", "un bistrot"),
        ("e-mail", "courriel", "an e\u2011mail", "un courriel"),
        ("committee", "comité", "a com\u00admittee", "un comité"),
    ],
)
def test_apostrophes_hyphens_and_accents_may_be_written_otherwise(source, target, sentence, translation):
    terms = matcher({source: target})
    occurrences = terms.find(sentence)
    assert len(occurrences) == 1
    assert [match and match.is_listed for match in terms.match(occurrences, translation)] == [True]


@pytest.mark.parametrize(
    ("term", "translation", "is_met"),
    [
        (Term("UN", ("UN",), keep=True), "une organisation", False),
        (Term("UN", ("UN",), keep=True), "un homme de l'UN", True),
        (Term("OR", ("OR",), keep=True), "l'or", False),
        (Term("Apple", ("Apple",), keep=True, case=True), "l'apple", False),
        (Term("Apple", ("pomme",), case=True), "Pommes", True),
    ],
)
def test_acronyms_and_terms_with_case_are_met_in_their_capitals_only(term, translation, is_met):
    terms = TermMatcher(Glossary(("en", "fr"), (term,)))
    (match,) = terms.match(terms.find(term.source), translation)
    assert (match is not None) == is_met


def test_a_term_that_only_forbids_is_met_where_nothing_forbidden_stands():
    terms = TermMatcher(
        Glossary(("en", "fr"), (Term("lamp", forbidden=("lampe",)), Term("old lamp", ("vieille lampe",))))
    )
    assert found(terms, "a lamp and an old lamp") == ["lamp", "old lamp"]
    asked = terms.find("a lamp")
    assert terms.match(asked, "des lampes") == [None] and terms.match(asked, "un luminaire") == [((0, 0), True)]
    assert terms.find_forbidden(asked[0].term, "des lampes") == (4, 10)


def test_many_terms_with_the_same_first_word_are_found_fast():
    names = ["".join(letters) for letters in product("abcdefgh", repeat=4)]
    terms = matcher({f"European {name} x": name for name in names})
    calls = []
    terms._is_term = lambda *arguments: calls.append(arguments) or False
    terms.find("The European Union and European abcd x")
    assert len(calls) < 100


def test_invisible_characters_are_no_words():
    matcher = TermMatcher(Glossary.from_pairs({"cat": "chat"}, ("en", "fr")))
    (found,) = matcher.find("The \u200b cat \u200e\u2060.")
    assert found.span == (6, 9) and matcher.match([found], "Le \u200b chat.") == [((5, 9), True)]


def test_terms_that_begin_alike_are_told_apart():
    """They are found as if each were alone, and a sentence costs what it would with a few of them."""
    endings = [f"{number} b{number} {'c ' * (number % 40)}d" for number in range(300)]
    pairs = {f"part no. {ending}": str(number) for number, ending in enumerate(endings)} | {"part": "x", "part no": "y"}
    matcher = TermMatcher(Glossary.from_pairs(pairs, ("en", "fr")))
    checked = []
    matcher._is_term = lambda words, phrase, term: (
        checked.append(term) or TermMatcher._is_term(matcher, words, phrase, term)
    )
    for number in (0, 7, 39, 299):
        (occurrence,) = matcher.find(f"See part no. {endings[number]}, please.")
        assert occurrence.term.targets == (str(number),)
    assert [each.term.targets for each in matcher.find("Parts of part no 5 b6.")] == [("x",), ("y",)]
    assert len(checked) < 100


def test_of_two_terms_for_the_same_words_the_one_in_their_form_counts():
    pairs = {"cats": "chats", "cat": "chat", "Cat": "Chat"}
    matcher = TermMatcher(Glossary.from_pairs(pairs, ("en", "fr")))
    found = [each.term.targets[0] for each in matcher.find("Cat, cats and cat.")]
    assert found == ["Chat", "chats", "chat"]
    above = TermMatcher(Glossary.from_pairs({"cat": "matou"}, ("en", "fr")), base=matcher)
    assert [each.term.targets[0] for each in above.find("Cats and dogs.")] == ["matou"]


def test_a_kept_name_stays_as_it_is_written():
    glossary = Glossary(("en", "fr"), (Term("Northgate", ("Northgate",), keep=True), Term("plan", ("projet",))))
    matcher = TermMatcher(glossary)
    found = matcher.find("Northgate, NORTHGATE and Northgates have plans.")
    assert [each.targets[0] for each in found] == ["Northgate", "NORTHGATE", "Northgates", "projet"]
    assert {each.term.targets for each in found[:3]} == {("Northgate",)}
    matches = matcher.match(found[:3], "Northgate, Northgate et Northgates")
    assert all(match is not None and match.is_listed for match in matches)


def test_a_forbidden_spelling_of_a_kept_name_is_not_kept():
    terms = TermMatcher(Glossary(("en", "fr"), (Term("GitHub", ("GitHub",), ("Github",), keep=True),)))
    (asked,) = terms.find("The Github platform.")
    assert asked.targets == ("GitHub",) and terms.find_forbidden(asked.term, "La plateforme Github.") is not None


@pytest.mark.parametrize(
    ("pairs", "sentence", "expected"),
    [
        ({"coastal region": "zone côtière"}, "coastal regions", ["zones côtières"]),
        ({"annual report": "bilan annuel"}, "annual reports", ["bilans annuels"]),
        ({"small firm": "petite société"}, "small firms", ["petites sociétés"]),
        ({"strategy": "plan d'action"}, "strategies", ["plans d'action"]),
        ({"price": "niveau des prix"}, "the price", ["niveau des prix"]),
        ({"corporate tax": "impôt sur les sociétés"}, "corporate tax", ["impôt sur les sociétés"]),
        ({"member state": "État membre"}, "Member States", ["États membres"]),
        ({"agency": "ONG"}, "agencies", ["ONG"]),
        ({"invoice": "facturette"}, "invoices", ["facturettes"]),
        ({"local animal": "animal local"}, "local animals", ["animaux locaux"]),
        ({"luggage": "bagages"}, "the luggage", ["bagages", "bagage"]),
        ({"set-up": "bagages"}, "the set-up", ["bagages", "bagage"]),
        ({"board of directors": "comité directeur"}, "the board of directors", ["comité directeur"]),
        ({"sports car": "voiture de sport"}, "sports cars", ["voitures de sport"]),
        ({"message": "e-mail"}, "messages", ["e-mails"]),
        ({"page": "page web"}, "pages", ["pages web"]),
        ({"chairman": "vice-président"}, "chairmen", ["vice-présidents"]),
        ({"woman": "dame"}, "women", ["dames"]),
        ({"progress": "avancée"}, "the progress", ["avancée", "avancées"]),
    ],
)
def test_phrases_agree_in_themselves_and_their_complements_stay(pairs, sentence, expected):
    pytest.importorskip("simplemma")
    terms = matcher(pairs, ("en", "fr"))
    assert terms.list_forms(*terms.find(sentence)) == expected


def test_prepositions_and_articles_of_a_phrase_are_no_forms_of_one_another():
    pytest.importorskip("simplemma")
    terms = matcher({"price stability": "constance des prix"}, ("en", "fr"))
    found = terms.find("price stability")
    assert terms.match(found, "La constance des prix")[0] is not None
    assert terms.match(found, "La constance un prix") == [None]


def test_a_noun_has_the_translation_before_a_verb_has_it():
    pytest.importorskip("simplemma")
    terms = matcher({"measure": "disposition"}, ("en", "fr"))
    found = terms.find("We measure these measures.")
    assert [each.is_verb for each in found] == [True, False]
    assert [match is not None for match in terms.match(found, "Nous mesurons ces dispositions.")] == [False, True]


@pytest.mark.parametrize(
    ("pairs", "languages", "sentence", "has", "lacks"),
    [
        ({"rapport": "report"}, "fr en", "rapports", {"reports"}, {"reported"}),
        ({"femme": "woman"}, "fr en", "femmes", {"women"}, {"womaned"}),
        ({"chef d'État": "head of state"}, "fr en", "chefs d'État", {"heads of state"}, {"head of states"}),
        ({"ministry": "Amt für Wasser"}, "en de", "ministries", {"Ämter für Wasser"}, {"Amt für Wassers"}),
        ({"human right": "direito humano"}, "en pt", "human rights", {"direitos humanos"}, {"direito humano"}),
    ],
)
def test_the_noun_of_a_phrase_has_the_number_in_every_language(pairs, languages, sentence, has, lacks):
    pytest.importorskip("simplemma")
    terms = matcher(pairs, tuple(languages.split()))
    (occurrence,) = terms.find(sentence)
    forms = set(terms.list_forms(occurrence))
    assert forms >= has and forms.isdisjoint(lacks)


def test_a_kept_name_is_no_common_noun():
    terms = TermMatcher(Glossary(("en", "fr"), (Term("Word", ("Word",), keep=True),)))
    assert found(terms, "Word has words, and WORDS.") == ["Word", "WORDS"]


def test_a_row_of_a_verb_is_found_as_a_verb():
    pytest.importorskip("simplemma")
    terms = matcher({"report": "rapport", "to report": "signaler", "to log in": "se connecter", "to date": "à ce jour"})
    wanted = {
        "We want to report it": ["to report"],
        "They must not report the loss": ["to report"],
        "The report is long": ["report"],
        "You log in, to date": ["to log in", "to date"],
    }
    assert {text: [each.term.source for each in terms.find(text)] for text in wanted} == wanted
    alone = matcher({"to report": "signaler"})
    assert found(alone, "He reported the loss. The report is here.") == ["reported"]


def test_plurals_of_acronyms_are_found_in_large_glossaries():
    names = [f"{first}{second}X" for first, second in product("ABCDE", "FGHI")]
    terms = matcher({name: name[::-1] for name in names})
    assert found(terms, "The AFX and two BGXs") == ["AFX", "BGXs"]


def test_peut_etre_is_no_verb():
    pytest.importorskip("simplemma")
    assert found(matcher({"peut-être": "perhaps"}, ("fr", "en")), "Il peut être vrai, peut-être.") == ["peut-être"]


@pytest.mark.parametrize("rows", [("report", "to report"), ("to report", "report")])
def test_a_verb_row_counts_where_a_verb_stands(rows):
    """Whatever the order of the rows, and not after words that end in to."""
    pytest.importorskip("simplemma")
    pairs = {"report": "rapport", "to report": "signaler"}
    terms = matcher({row: pairs[row] for row in rows})
    asked = [each.term.source for each in terms.find("We report it. I want to report. See the photo report.")]
    assert asked == ["to report", "to report", "report"]


def test_a_row_of_a_verb_that_no_table_has_is_found_in_all_its_forms():
    matcher = TermMatcher(Glossary.from_pairs({"to pair": "appairer"}, ("en", "fr")))
    found = [matcher.find(text) for text in ("Pair the devices.", "It is paired.", "A pair is missing.")]
    assert [len(each) for each in found] == [1, 1, 0] and not any(each.is_verb for row in found for each in row)
    assert [matcher.list_forms(each) for row in found for each in row] == [["appairer"]] * 2
    assert [matcher.list_forms(each) for each in matcher.find("It pairs.")] == [["appairer"]]
