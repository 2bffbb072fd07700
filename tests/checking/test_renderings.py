"""Phrases that a text repeats, and their translations by links of words."""

from collections import Counter

from docmt.checking.renderings import find_renderings, find_repeated_phrases, is_other_rendering, link_by_counts
from docmt.documents.words import WordLink

SENTENCES = [
    ("The committee met the Commission.", "Le comité a rencontré la Commission."),
    ("A large committee is old.", "Une grande commission est vieille."),
    ("We thank the Committee.", "Nous remercions le comité."),
    ("Mr Vallersund thanks the large committee.", "M. Vallersund remercie la grande commission."),
    ("Then Mr Vallersund left.", "Puis M. Vallersun est parti."),
]


def links(number, *words):
    """Return links between words of a pair."""
    source, target = SENTENCES[number]
    return [
        WordLink((source.index(one), source.index(one) + len(one)), (start, start + len(other)), 1.0, True)
        for one, other in words
        for start in [target.index(other)]
    ]


LINKS = {
    0: links(0, ("committee", "comité"), ("Commission", "Commission")),
    1: links(1, ("committee", "commission"), ("large", "grande")),
    2: links(2, ("Committee", "comité")),
    3: links(3, ("committee", "commission"), ("large", "grande"), ("Vallersund", "Vallersund"), ("Mr", "M")),
    4: links(4, ("Vallersund", "Vallersun"), ("Mr", "M")),
}


def find():
    phrases = find_repeated_phrases([source for source, _ in SENTENCES], "en", str.casefold)
    return phrases, find_renderings(SENTENCES, phrases, LINKS, "fr", str.casefold)


def test_the_longest_repeated_phrases_win():
    phrases, _ = find()
    texts = [[SENTENCES[n][0][slice(*span)] for span, _ in row] for n, row in enumerate(phrases)]
    assert texts == [["committee"], ["large committee"], ["Committee"], ["Mr Vallersund", "large committee"],
                     ["Mr Vallersund"]]  # fmt: skip


def test_renderings_are_what_links_name_without_function_words():
    _, found = find()
    assert {each.text: [[one.text for one in group] for group in each.groups] for each in found} == {
        "committee": [["comité", "comité"]],
        "large committee": [["grande commission", "grande commission"]],
        "Mr Vallersund": [["Vallersund"], ["Vallersun"]],
    }
    name = found[-1]
    assert is_other_rendering(name.groups[1][0], name.groups[0][0])  # a name that is misspelt is another one
    assert not is_other_rendering(found[0].groups[0][0], found[0].groups[0][1])


def test_links_of_other_words_inside_make_a_rendering_unknown():
    phrases, _ = find()
    more = {**LINKS, 1: [*LINKS[1], *links(1, ("old", "commission"))]}
    found = find_renderings(SENTENCES, phrases, more, "fr", str.casefold)
    assert [each.total for each in found if each.text == "large committee"] == [1]


def test_counts_alone_link_words_that_always_meet():
    pairs = [
        (f"the {a} saw a {b} .", f"le {a}o vit un {b}o .") for a in ["cat", "dog", "cow"] for b in ["bee", "fly", "ant"]
    ]
    found = link_by_counts(pairs, ("en", "fr"), (str.casefold, str.casefold))
    words = Counter(
        (pairs[number][0][slice(*link.source)], pairs[number][1][slice(*link.target)])
        for number, rows in found.items()
        for link in rows
        if len(pairs[number][0][slice(*link.source)]) == 3 and pairs[number][0][slice(*link.source)] != "saw"
    )
    assert words and all(target == source + "o" for source, target in words)
