import re
from collections import Counter, defaultdict

import pytest

from docmt.synthetic import Pronoun, SyntheticDocument, generate_documents
from docmt.synthetic.lexicon import DISTRACTORS, INTRODUCTIONS, MENTIONS, NOUNS, PRONOUNS, WORDS, Case, Gender

FORMS = {"er", "sie", "es", "ihn", "ihm", "ihr"}


@pytest.fixture(scope="module")
def documents() -> list[SyntheticDocument]:
    return generate_documents(2000, seed=1)


@pytest.fixture(scope="module")
def pronouns(documents: list[SyntheticDocument]) -> list[Pronoun]:
    return [pronoun for item in documents for pronoun in item.pronouns]


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def test_the_same_seed_gives_the_same_documents() -> None:
    assert generate_documents(30, seed=5) == generate_documents(30, seed=5)
    assert generate_documents(40, seed=5)[:30] == generate_documents(30, seed=5)
    assert generate_documents(30, seed=5) != generate_documents(30, seed=6)


def test_documents_differ_and_have_five_to_ten_sentences(documents: list[SyntheticDocument]) -> None:
    assert len({item.document.source for item in documents}) == len(documents)
    assert len({item.document.id for item in documents}) == len(documents)
    lengths = Counter(len(item.document.source) for item in documents)
    assert set(lengths) == {5, 6, 7, 8, 9, 10}
    assert all(len(item.document.source) == len(item.document.target) for item in documents)


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
    for item in generate_documents(1000, seed=2):
        for pronoun in item.pronouns:
            known = sentences[item.document.source[pronoun.sentence]] or sentences[pronoun.pattern]
            right += majority(known) == pronoun.form
            total += 1
    assert right / total < 0.42
