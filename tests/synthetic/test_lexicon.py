from collections import Counter

from docmt.synthetic.grammar import make_noun_phrase
from docmt.synthetic.lexicon import (
    ATTRIBUTES,
    DISTRACTORS,
    INTRODUCTIONS,
    MENTIONS,
    NOUNS,
    PEOPLE,
    PRONOUNS,
    ROOMS,
    TRAITS,
    WORDS,
    Attribute,
    Case,
    Gender,
    Noun,
)

MASCULINE, FEMININE, NEUTER = Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER


def test_there_are_enough_nouns_of_every_gender() -> None:
    genders = Counter(noun.gender for noun in NOUNS)
    assert len(NOUNS) >= 150
    assert min(genders[gender] for gender in Gender) >= 45
    assert max(genders.values()) - min(genders.values()) <= 3


def test_an_english_noun_has_one_german_noun_and_the_other_way_round() -> None:
    assert len({noun.english for noun in NOUNS}) == len(NOUNS)
    assert len({noun.german for noun in NOUNS}) == len(NOUNS)
    for noun in NOUNS:
        assert noun.german[0].isupper() and noun.german.isalpha()
        assert noun.english.islower() and noun.english.isalpha()


def test_no_other_english_entry_stands_for_two_german_ones() -> None:
    tables = [[word.english for word in table] for table in WORDS.values()]
    tables += [[trait.english for trait in TRAITS], [attribute.english for attribute in ATTRIBUTES]]
    tables += [[person.english for person in PEOPLE], [room.english for room in ROOMS]]
    for english in tables:
        assert len(set(english)) == len(english)


def test_endings_that_tell_the_gender_agree_with_the_table() -> None:
    # Suffixes that settle the gender of a German noun; a slip in the table would show here.
    rules = {"ung": FEMININE, "heit": FEMININE, "ette": FEMININE, "zeug": NEUTER, "ling": MASCULINE}
    for noun in NOUNS:
        for suffix, gender in rules.items():
            if noun.german.endswith(suffix):
                assert noun.gender == gender, noun
    for noun in NOUNS:
        if noun.german.endswith("e") and noun.german not in ("Gemälde", "Puzzle", "Portemonnaie"):
            assert noun.gender == FEMININE, noun
    heads = {"Tasche": FEMININE, "Decke": FEMININE, "Tisch": MASCULINE, "Mantel": MASCULINE, "Brett": NEUTER}
    for noun in NOUNS:
        for head, gender in heads.items():
            if noun.german.lower().endswith(head.lower()):
                assert noun.gender == gender, noun


def test_pronouns_of_every_case_and_gender() -> None:
    rows = {case: " ".join(PRONOUNS[case, gender] for gender in Gender) for case in Case}
    assert rows == {Case.NOMINATIVE: "er sie es", Case.ACCUSATIVE: "ihn sie es", Case.DATIVE: "ihm ihr ihm"}


def test_noun_phrases_are_declined() -> None:
    lamp, table, book = (
        Noun("lamp", "Lampe", FEMININE),
        Noun("table", "Tisch", MASCULINE),
        Noun("book", "Buch", NEUTER),
    )
    new, old = Attribute("new", "neu", "age"), Attribute("old", "alt", "age")

    def forms(noun: Noun, attribute: Attribute | None, definite: bool) -> list[str]:
        phrase = make_noun_phrase(noun, attribute, definite)
        return [phrase.english, phrase.nominative, phrase.accusative, phrase.dative]

    assert forms(table, None, False) == ["a table", "ein Tisch", "einen Tisch", "einem Tisch"]
    assert forms(lamp, None, False) == ["a lamp", "eine Lampe", "eine Lampe", "einer Lampe"]
    assert forms(book, None, True) == ["the book", "das Buch", "das Buch", "dem Buch"]
    assert forms(table, new, False) == ["a new table", "ein neuer Tisch", "einen neuen Tisch", "einem neuen Tisch"]
    assert forms(lamp, new, False) == ["a new lamp", "eine neue Lampe", "eine neue Lampe", "einer neuen Lampe"]
    assert forms(book, old, False) == ["an old book", "ein altes Buch", "ein altes Buch", "einem alten Buch"]
    assert forms(table, old, True) == ["the old table", "der alte Tisch", "den alten Tisch", "dem alten Tisch"]
    assert forms(lamp, old, True) == ["the old lamp", "die alte Lampe", "die alte Lampe", "der alten Lampe"]
    assert forms(book, new, True) == ["the new book", "das neue Buch", "das neue Buch", "dem neuen Buch"]


def test_articles_before_vowels() -> None:
    assert make_noun_phrase(Noun("umbrella", "Regenschirm", MASCULINE), None, False).english == "an umbrella"
    # Nouns whose first letter would mislead the rule (an hour, a uniform) are not in the lexicon.
    words = [noun.english for noun in NOUNS] + [attribute.english for attribute in ATTRIBUTES]
    assert not [w for w in words if w.startswith(("uni", "use", "eu", "hour", "heir", "honest", "one"))]


def test_there_are_enough_patterns() -> None:
    assert len(INTRODUCTIONS) >= 15
    assert len(MENTIONS) >= 25
    assert len(DISTRACTORS) >= 20
    english = [pattern.english for pattern in (*INTRODUCTIONS, *MENTIONS, *DISTRACTORS)]
    assert len(set(english)) == len(english)


def test_only_mentions_hold_the_english_pronoun() -> None:
    def count(text: str) -> int:
        return text.lower().strip(".?").replace(",", "").split().count("it")

    assert all(count(pattern.english) == 1 and pattern.german.count("{it}") == 1 for pattern in MENTIONS)
    assert all(pattern.case is not None for pattern in MENTIONS)
    assert all(count(p.english) == 0 and "{it}" not in p.german for p in (*INTRODUCTIONS, *DISTRACTORS))
