import re
from collections import Counter, defaultdict
from itertools import islice
from random import Random

import pytest
from benchmarks.synthetic.grammar import (
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
    Pronoun,
    SyntheticDocument,
    make_noun_phrase,
    stream_documents,
)

FORMS = {"er", "sie", "es", "ihn", "ihm", "ihr"}
MASCULINE, FEMININE, NEUTER = Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER


def generate(count: int, seed: int) -> list[SyntheticDocument]:
    return list(islice(stream_documents(Random(seed)), count))


@pytest.fixture(scope="module")
def documents() -> list[SyntheticDocument]:
    return generate(2000, seed=1)


@pytest.fixture(scope="module")
def pronouns(documents: list[SyntheticDocument]) -> list[Pronoun]:
    return [pronoun for item in documents for pronoun in item.pronouns]


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def test_the_same_seed_gives_the_same_documents() -> None:
    assert generate(30, seed=5) == generate(30, seed=5)
    assert generate(40, seed=5)[:30] == generate(30, seed=5)
    assert generate(30, seed=5) != generate(30, seed=6)


@pytest.mark.full
def test_documents_differ_and_have_five_to_ten_sentences(documents: list[SyntheticDocument]) -> None:
    assert len({item.document.source for item in documents}) == len(documents)
    assert len({item.document.id for item in documents}) == len(documents)
    lengths = Counter(len(item.document.source) for item in documents)
    assert set(lengths) == {5, 6, 7, 8, 9, 10}
    assert all(len(item.document.source) == len(item.document.target) for item in documents)


@pytest.mark.full
def test_genders_are_balanced(pronouns: list[Pronoun]) -> None:
    counts = Counter(pronoun.gender for pronoun in pronouns)
    assert all(0.30 <= counts[gender] / len(pronouns) <= 0.37 for gender in Gender)


def test_distances_are_balanced(pronouns: list[Pronoun]) -> None:
    counts = Counter(pronoun.distance for pronoun in pronouns)
    assert set(counts) == {1, 2, 3, 4}
    assert all(0.20 <= count / len(pronouns) <= 0.30 for count in counts.values())


def test_every_pattern_and_every_noun_occurs(documents: list[SyntheticDocument], pronouns: list[Pronoun]) -> None:
    assert {pronoun.pattern for pronoun in pronouns} == {pattern.english for pattern in MENTIONS}
    assert {pronoun.antecedent for pronoun in pronouns} == {noun.german for noun in NOUNS}
    text = "\n".join(sentence for item in documents for sentence in item.document.source)
    for pattern in (*INTRODUCTIONS, *DISTRACTORS):
        regex = ".+".join(re.escape(part) for part in re.split(r"\{\w+\}", pattern.english))
        assert re.search(f"^{regex}$", text, re.MULTILINE), pattern


def test_spans_point_at_the_pronoun(documents: list[SyntheticDocument]) -> None:
    for item in documents:
        for pronoun in item.pronouns:
            sentence = item.document.target[pronoun.sentence]
            assert sentence[pronoun.start : pronoun.end] == pronoun.form == pronoun.candidates[pronoun.correct]
            assert pronoun.form.casefold() == PRONOUNS[pronoun.case, pronoun.gender]
            assert pronoun.form[0].isupper() == (pronoun.start == 0)


def test_candidates_are_all_forms_of_the_case(pronouns: list[Pronoun]) -> None:
    expected = {
        Case.NOMINATIVE: ("er", "sie", "es"),
        Case.ACCUSATIVE: ("ihn", "sie", "es"),
        Case.DATIVE: ("ihm", "ihr"),
    }
    for pronoun in pronouns:
        assert tuple(candidate.casefold() for candidate in pronoun.candidates) == expected[pronoun.case]


def test_the_antecedent_is_the_last_topic_noun(documents: list[SyntheticDocument]) -> None:
    genders = {noun.german: noun.gender for noun in NOUNS}
    for item in documents:
        for pronoun in item.pronouns:
            index, noun = next(
                (index, word)
                for index in range(pronoun.sentence, -1, -1)
                for word in words(item.document.target[index])
                if word in genders
            )
            assert (noun, genders[noun]) == (pronoun.antecedent, pronoun.gender)
            assert pronoun.sentence - index == pronoun.distance


def test_english_says_it_exactly_where_a_pronoun_is_marked(documents: list[SyntheticDocument]) -> None:
    for item in documents:
        marked = {pronoun.sentence for pronoun in item.pronouns}
        assert len(marked) == len(item.pronouns)
        for index, sentence in enumerate(item.document.source):
            assert [word.lower() for word in words(sentence)].count("it") == (index in marked)


def test_no_sentence_holds_another_form_of_the_pronoun(documents: list[SyntheticDocument]) -> None:
    for item in documents:
        marked = {pronoun.sentence for pronoun in item.pronouns}
        for index, sentence in enumerate(item.document.target):
            forms = [word for word in words(sentence.casefold()) if word in FORMS]
            assert len(forms) == (index in marked), sentence


def test_no_location_directly_precedes_a_pronoun(documents: list[SyntheticDocument]) -> None:
    locations = [word.english for slot in ("place", "outdoors", "landmark") for word in WORDS[slot]]
    for item in documents:
        for pronoun in item.pronouns:
            before = item.document.source[pronoun.sentence - 1]
            if pronoun.distance > 1:
                assert not any(location in before for location in locations), before


def test_sentences_are_short_and_well_formed(documents: list[SyntheticDocument]) -> None:
    for item in documents:
        for sentence in (*item.document.source, *item.document.target):
            assert 3 <= len(words(sentence)) <= 14, sentence
            assert sentence[0].isupper() and sentence[-1] in ".?"
            assert "  " not in sentence and "{" not in sentence
        for sentence in item.document.target:
            # A subordinate clause is parted by a comma and ends with its verb.
            if {"dass", "ob", "weil", "wenn", "obwohl"} & {word.casefold() for word in words(sentence)}:
                assert "," in sentence


def majority(pronouns: list[Pronoun]) -> str:
    return Counter(pronoun.form for pronoun in pronouns).most_common(1)[0][0]


def test_a_vote_for_each_english_pattern_is_near_chance(pronouns: list[Pronoun]) -> None:
    patterns: defaultdict[str, list[Pronoun]] = defaultdict(list)
    for pronoun in pronouns:
        patterns[pronoun.pattern].append(pronoun)
    right = 0
    for group in patterns.values():
        best = majority(group)
        right += sum(pronoun.form == best for pronoun in group)
    assert right / len(pronouns) < 0.42


@pytest.mark.full
def test_a_vote_for_each_english_sentence_is_near_chance(documents: list[SyntheticDocument]) -> None:
    # The best sentence-level model there can be: it has seen every sentence before and knows the pattern of new ones.
    sentences: defaultdict[str, list[Pronoun]] = defaultdict(list)
    for item in documents:
        for pronoun in item.pronouns:
            sentences[item.document.source[pronoun.sentence]].append(pronoun)
            sentences[pronoun.pattern].append(pronoun)
    right = total = 0
    for item in generate(1000, seed=2):
        for pronoun in item.pronouns:
            known = sentences[item.document.source[pronoun.sentence]] or sentences[pronoun.pattern]
            right += majority(known) == pronoun.form
            total += 1
    assert right / total < 0.42


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
