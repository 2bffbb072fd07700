"""What may stand before a noun in place of the articles that do."""

import pytest

from docmt.terms.articles import Articles


@pytest.mark.parametrize(
    ("language", "text", "noun", "found", "others"),
    [
        ("fr", "Nous avons lu le ", "réunion", "le ", ["le ", "la "]),
        ("fr", "Nous avons lu le ", "étude", "le ", ["l'"]),
        ("fr", "Il parle de l’", "plan", "de l’", ["du ", "de la "]),
        ("fr", "Du ", "hôte", "Du ", ["Du ", "De la ", "De l'"]),
        ("fr", "Du ", "hôtel", "Du ", ["Du ", "De l'"]),  # masculine by its ending
        ("fr", "la ", "cordon d'alimentation", "la ", ["le "]),
        ("fr", "Le nouveau ", "pièce détachée", "Le nouveau ", ["La nouvelle "]),
        ("fr", "une ", "sèche-linge", "une ", ["un "]),
        (
            "fr",
            "la version ",
            "standard",
            "la version ",
            ["le version ", "la version ", "le versions ", "la versions "],
        ),
        ("fr", "la ", "bastion", "la ", ["le ", "la "]),
        ("fr", "le ", "porte-fenêtre", "le ", ["la "]),
        ("fr", "le ", "DEL", "le ", ["le ", "la "]),
        ("fr", "Qu'est-ce ", "coupure", "", [""]),
        ("fr", "un ", "silence", "un ", ["un ", "une "]),
        ("fr", "l'", "Hangar", "l'", ["le ", "la "]),
        ("fr", "de l'", "hauteur", "de l'", ["du ", "de la "]),
        ("fr", "le ", "hiver", "le ", ["le ", "la ", "l'"]),
        ("fr", "C'est un nouveau ", "étude", "un nouveau ", ["un nouvel ", "une nouvelle "]),
        ("fr", "Cette ", "amour", "Cette ", ["Cet ", "Cette "]),
        ("fr", "Nous voulons que le ", "avis", "que le ", ["que l'"]),
        ("fr", "Les ", "étude", "Les ", ["Les "]),
        ("en", "I see a ", "interface", "a ", ["an "]),
        ("en", "I see a ", "user", "a ", ["a ", "an "]),
        ("it", "il ", "albero", "il ", ["l'"]),
        ("de", "Das ist ein ", "Katze", "ein ", ["ein ", "eine ", "einen "]),
    ],
)
def test_others_fit_the_noun(language, text, noun, found, others):
    articles = Articles(language)
    assert articles.find(text) == found
    assert articles.list_others(found, noun) == others


@pytest.mark.parametrize(
    ("language", "text"), [("fr", "Il a lu "), ("fr", "une table ronde "), ("fr", ""), ("fi", "se "), ("fr", "la")]
)
def test_without_an_article_nothing_is_found(language, text):
    assert Articles(language).find(text) == ""


def test_an_adjective_may_have_any_form_after_an_article():
    articles = Articles("de")
    found = articles.find("Sie hat Ein schönes ")
    assert (found, articles.cut_adjective(found)) == ("Ein schönes ", "Ein ")
    others = articles.list_others(found, "Lampe")
    assert {"Ein schönes ", "Eine schöne ", "Einen schönen "} < set(others)
    assert {each.split()[0] for each in others} == {"Ein", "Eine", "Einen"}
    assert all(len(each.split()[1]) <= len("schönes") for each in others)  # schönere compares


def test_an_elided_article_cannot_stand_before_a_consonant():
    articles = Articles("fr")
    cut = ["plan", "hangar", "haricot", "hall", "halo", "hibou", "huit", "haïku", "hausse"]
    kept = ["étude", "hiver", "hibernation", "hallucination", "halogène", "harissa", "huitre", "Haïtien"]
    assert [noun for noun in (*cut, *kept) if articles.is_cut("Voici l'", noun)] == cut
