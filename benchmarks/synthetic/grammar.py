"""English-German documents in which the German for *it* depends on a noun one to four sentences earlier.

A document has one or two topics of at most five sentences. An introduction makes a thing the topic. The following
sentences refer to it with a pronoun or are about something else. Every pronoun refers to the last introduction.
Gender, noun and distance are drawn independently of the sentence pattern, so an English sentence with *it* does not
reveal the form of the German pronoun. Words and sentence patterns are in lexicon.yaml and stories.yaml.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from string import Formatter
from typing import NamedTuple

from docmt.core.settings import read_package_yaml
from docmt.documents.corpus_files import ParallelDocument


class Gender(StrEnum):
    """The grammatical gender of a German noun."""

    MASCULINE = "masculine"
    FEMININE = "feminine"
    NEUTER = "neuter"


class Case(StrEnum):
    """The grammatical cases of the synthetic language."""

    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"


def _table(nominative: str, accusative: str, dative: str) -> dict[tuple[Case, Gender], str]:
    """Return words by case and gender; each argument lists masculine, feminine and neuter."""
    rows = zip(Case, (nominative, accusative, dative), strict=True)
    return {(case, gender): word for case, row in rows for gender, word in zip(Gender, row.split(), strict=True)}


PRONOUNS = _table("er sie es", "ihn sie es", "ihm ihr ihm")
INDEFINITE_ARTICLES = _table("ein eine ein", "einen eine ein", "einem einer einem")
DEFINITE_ARTICLES = _table("der die das", "den die das", "dem der dem")
# Endings of an adjective after the indefinite (mixed declension) and the definite article (weak declension).
INDEFINITE_ENDINGS = _table("er e es", "en e es", "en en en")
DEFINITE_ENDINGS = _table("e e e", "en e e", "en en en")


@dataclass(frozen=True)
class Word:
    """A word or phrase without inflection."""

    english: str
    german: str

    def __str__(self) -> str:
        return self.german


@dataclass(frozen=True)
class Noun(Word):
    """A topic noun in English and German, with the gender that decides the pronoun."""

    gender: Gender


@dataclass(frozen=True)
class NounPhrase:
    """A noun with article and adjective, or a name, in English and in the German cases."""

    english: str
    nominative: str
    accusative: str
    dative: str

    def __str__(self) -> str:
        return self.nominative


@dataclass(frozen=True)
class Person(NounPhrase):
    """A person. `possessive` is the English word (his, her)."""

    possessive: str


@dataclass(frozen=True)
class Room:
    """A room. German distinguishes its location (`at`, dative) from a destination (`to`, accusative)."""

    english: str
    at: str
    to: str


@dataclass(frozen=True)
class Trait(Word):
    """A property of a thing. A thing never gets two traits of one `aspect`."""

    aspect: str
    good: bool
    gradable: bool


@dataclass(frozen=True)
class Attribute:
    """An adjective before a noun; `stem` takes the German ending."""

    english: str
    stem: str
    aspect: str


@dataclass(frozen=True)
class SentencePattern:
    """One sentence of a story in both languages. `case` is that of its pronoun, or None."""

    english: str
    german: str
    case: Case | None = None
    aspects: tuple[str, ...] = ()
    last: bool = False

    @property
    def names_location(self) -> bool:
        """True if the sentence names a location, to which a following "it" might refer."""
        return any(slot in self.german for slot in ("{place}", "{outdoors}", "{landmark}"))


class Line(NamedTuple):
    """A sentence in both languages, with slots or without."""

    source: str
    target: str


def _parse_pattern(row: list[str], case: Case | None = None) -> SentencePattern:
    english, german, *labels = row
    return SentencePattern(english, german, case, tuple(label for label in labels if label != "last"), "last" in labels)


_LEXICON, _STORIES = read_package_yaml(__package__, "lexicon.yaml"), read_package_yaml(__package__, "stories.yaml")

NOUNS = tuple(
    Noun(english, german, gender) for gender in Gender for english, german in _LEXICON["nouns"][gender].items()
)
PEOPLE = (
    *(Person(name, name, name, name, possessive) for possessive, names in _LEXICON["names"].items() for name in names),
    *(Person(*row) for row in _LEXICON["relatives"]),
)
TRAITS = tuple(Trait(row[0], row[1], row[2], row[3] == "good", "gradable" in row) for row in _LEXICON["traits"])
ATTRIBUTES = tuple(Attribute(*row) for row in _LEXICON["attributes"])
ROOMS = tuple(Room(*row) for row in _LEXICON["rooms"])
WORDS = {slot: tuple(Word(*pair) for pair in words.items()) for slot, words in _LEXICON["words"].items()}
INTRODUCTIONS = tuple(map(_parse_pattern, _STORIES["introductions"]))
MENTIONS = tuple(_parse_pattern(row, case) for case in Case for row in _STORIES["mentions"][case])
DISTRACTORS = tuple(map(_parse_pattern, _STORIES["distractors"]))

MAX_DISTANCE = 4
MIN_SENTENCES, MAX_SENTENCES = 5, 10

_DISTANCES = range(1, MAX_DISTANCE + 1)
_CAST = 5
# The dative is rare, as it is easier to guess: two genders share one form.
_CASE_WEIGHTS = {Case.NOMINATIVE: 0.47, Case.ACCUSATIVE: 0.47, Case.DATIVE: 0.06}
_TRAIT_SLOTS: dict[str, Callable[[Trait], bool]] = {
    "trait": lambda trait: True,
    "gradable": lambda trait: trait.gradable,
    "good": lambda trait: trait.good,
    "bad": lambda trait: not trait.good,
}


@dataclass(frozen=True)
class Pronoun:
    """A German pronoun for *it* and the antecedent of its form.

    `sentence` is its sentence index, `start` and `end` its characters in that target sentence. `candidates` are the
    forms of its case in the order masculine, feminine, neuter, with the capitals of the sentence; `form ==
    candidates[correct]`. `distance` counts sentences back to the one with `antecedent`, the German noun. `pattern` is
    the English sentence pattern with its slots.
    """

    sentence: int
    form: str
    candidates: tuple[str, ...]
    correct: int
    distance: int
    start: int
    end: int
    gender: Gender
    case: Case
    antecedent: str
    pattern: str


@dataclass(frozen=True)
class SyntheticDocument:
    """A parallel document with its marked pronouns in sentence order, at most one a sentence."""

    document: ParallelDocument
    pronouns: tuple[Pronoun, ...]


def stream_documents(
    rng: random.Random,
    nouns: Sequence[Noun] = NOUNS,
    name: str = "story",
    used_sources: set[tuple[str, ...]] | None = None,
) -> Iterator[SyntheticDocument]:
    """Yield documents without end on topics from `nouns`, with the ids `name`-0, `name`-1, ...

    `used_sources` has the source sides to avoid. Every new one is added.
    """
    used_sources = set() if used_sources is None else used_sources
    by_gender = [[noun for noun in nouns if noun.gender == gender] for gender in Gender]
    choice = [group for group in by_gender if group]
    number = 0
    while True:
        document = _DocumentWriter(rng, choice).write(f"{name}-{number}")
        if document.document.source not in used_sources:
            used_sources.add(document.document.source)
            number += 1
            yield document


def make_noun_phrase(noun: Noun, attribute: Attribute | None, definite: bool) -> NounPhrase:
    """Return article, adjective and noun, inflected: a new lamp, eine neue Lampe, einer neuen Lampe."""
    articles = DEFINITE_ARTICLES if definite else INDEFINITE_ARTICLES
    endings = DEFINITE_ENDINGS if definite else INDEFINITE_ENDINGS
    english = f"{attribute.english} {noun.english}" if attribute else noun.english
    article = "the" if definite else "an" if english[0] in "aeiouAEIOU" else "a"

    def german(case: Case) -> str:
        form = (case, noun.gender)
        adjective = f"{attribute.stem}{endings[form]} " if attribute else ""
        return f"{articles[form]} {adjective}{noun.german}"

    return NounPhrase(f"{article} {english}", *map(german, Case))


_Value = NounPhrase | Word | Room


@dataclass
class _Topic:
    """A thing, its owner, its giver, and the aspects mentioned so far."""

    noun: Noun
    sentence: int
    owner: Person
    giver: Person
    used_aspects: set[str] = field(default_factory=set)


class _DocumentWriter:
    """Builds one document, sentence by sentence."""

    def __init__(self, rng: random.Random, nouns: Sequence[Sequence[Noun]]) -> None:
        self.rng = rng
        self.nouns = nouns
        self.cast = rng.sample(PEOPLE, _CAST)
        self.used: set[str] = set()
        self.source: list[str] = []
        self.target: list[str] = []
        self.pronouns: list[Pronoun] = []

    def write(self, id: str) -> SyntheticDocument:
        topics = [self._draw_distances() for _ in range(self.rng.choice((1, 2, 2)))]
        length = sum(1 + max(distances) for distances in topics)
        longest = min(MAX_SENTENCES, length + 2)
        spare = self.rng.randint(max(MIN_SENTENCES, length), max(MIN_SENTENCES, longest)) - length
        # Spare sentences precede a topic or end the document. They are never inside a topic.
        gaps = [self.rng.randrange(len(topics) + 1) for _ in range(spare)]
        for index, distances in enumerate(topics):
            for _ in range(gaps.count(index)):
                self._add_distractor()
            self._add_topic(distances)
        for _ in range(gaps.count(len(topics))):
            self._add_distractor()
        document = ParallelDocument(id, tuple(self.source), tuple(self.target))
        return SyntheticDocument(document, tuple(self.pronouns))

    def _draw_distances(self) -> set[int]:
        """Draw the distances of a topic's pronouns from its introduction. All distances are equally likely."""
        return set(self.rng.sample(_DISTANCES, self.rng.choice((1, 2, 2, 3))))

    def _add_distractor(self, before_pronoun: bool = False) -> None:
        patterns = [p for p in DISTRACTORS if p.english not in self.used and not (before_pronoun and p.names_location)]
        self._add_sentence(self.rng.choice(patterns), None)

    def _add_topic(self, distances: set[int]) -> None:
        owner, giver = self.rng.sample(self.cast, 2)
        topic = _Topic(self.rng.choice(self.rng.choice(self.nouns)), len(self.source), owner, giver)
        self._add_sentence(self.rng.choice([p for p in INTRODUCTIONS if p.english not in self.used]), topic)
        for distance in range(1, max(distances) + 1):
            if distance not in distances:
                self._add_distractor(before_pronoun=distance + 1 in distances)
                continue
            cases, weights = zip(*_CASE_WEIGHTS.items(), strict=True)
            case = self.rng.choices(cases, weights)[0]
            mentions = self._list_mentions(topic, case, last=distance == max(distances))
            self._add_sentence(self.rng.choice(mentions), topic)

    def _list_mentions(self, topic: _Topic, case: Case, last: bool) -> list[SentencePattern]:
        """Return the patterns of a case that mention unused aspects of the topic."""
        return [
            pattern
            for pattern in MENTIONS
            if pattern.case == case
            and pattern.english not in self.used
            and (last or not pattern.last)
            and topic.used_aspects.isdisjoint(pattern.aspects)
            and all(self._list_traits(slot, topic) for slot in _list_slots(pattern) if slot in _TRAIT_SLOTS)
        ]

    def _list_traits(self, slot: str, topic: _Topic) -> list[Trait]:
        return [t for t in TRAITS if _TRAIT_SLOTS[slot](t) and t.aspect not in topic.used_aspects]

    def _draw_values(self, pattern: SentencePattern, topic: _Topic | None) -> dict[str, _Value]:
        """Draw a value for every slot of the pattern, and note its aspects of the topic."""
        bystanders = [person for person in self.cast if topic is None or person not in (topic.owner, topic.giver)]
        first, second = self.rng.sample(bystanders, 2)
        people = {"Q": first, "R": first, "S": second}
        values: dict[str, _Value] = {}
        if topic is not None:
            people |= {"P": topic.owner, "G": topic.giver}
            topic.used_aspects.update(pattern.aspects)
        for slot in _list_slots(pattern):
            if slot in people:
                values[slot] = people[slot]
            elif slot == "room":
                values[slot] = self.rng.choice(ROOMS)
            elif slot in WORDS:
                values[slot] = self.rng.choice(WORDS[slot])
            elif topic is not None:
                values[slot] = self._draw_description(slot, topic)
        return values

    def _draw_description(self, slot: str, topic: _Topic) -> _Value:
        """Draw a trait of the topic, or its noun phrase. "the" always has an adjective, which sounds natural."""
        if slot in _TRAIT_SLOTS:
            trait = self.rng.choice(self._list_traits(slot, topic))
            topic.used_aspects.add(trait.aspect)
            return trait
        attribute = None
        if slot == "the" or self.rng.random() < 0.5:
            attribute = self.rng.choice([a for a in ATTRIBUTES if a.aspect not in topic.used_aspects])
            topic.used_aspects.add(attribute.aspect)
        return make_noun_phrase(topic.noun, attribute, definite=slot == "the")

    def _add_sentence(self, pattern: SentencePattern, topic: _Topic | None) -> None:
        """Append a sentence in both languages, and its pronoun if the pattern has one (then there is a topic)."""
        self.used.add(pattern.english)
        values = self._draw_values(pattern, topic)
        english: dict[str, str] = {slot: value.english for slot, value in values.items()}
        if topic is not None:
            english["his"] = topic.owner.possessive
        self.source.append(capitalise(pattern.english.format(**english)))
        if pattern.case is None or topic is None:
            self.target.append(capitalise(pattern.german.format(**values)))
            return
        preceding, following = (part.format(**values) for part in pattern.german.split("{it}"))
        forms = tuple(dict.fromkeys(PRONOUNS[pattern.case, gender] for gender in Gender))
        form = PRONOUNS[pattern.case, topic.noun.gender]
        correct = forms.index(form)
        candidates = forms if preceding else tuple(capitalise(candidate) for candidate in forms)
        form = candidates[correct]
        self.pronouns.append(
            Pronoun(
                sentence=len(self.target),
                form=form,
                candidates=candidates,
                correct=correct,
                distance=len(self.target) - topic.sentence,
                start=len(preceding),
                end=len(preceding) + len(form),
                gender=topic.noun.gender,
                case=pattern.case,
                antecedent=topic.noun.german,
                pattern=pattern.english,
            )
        )
        self.target.append(capitalise(f"{preceding}{form}{following}"))


def _list_slots(pattern: SentencePattern) -> list[str]:
    """Return the names of the slots to draw, in the order of the English sentence."""
    names = list_slot_names(pattern.english) + list_slot_names(pattern.german)
    return list(dict.fromkeys(name for name in names if name not in ("it", "his")))


def list_slot_names(text: str) -> list[str]:
    """Return the names of the slots of a pattern in one language, without cases."""
    parsed: Iterable[tuple[str, str | None, str | None, str | None]] = Formatter().parse(text)
    return [name.split(".")[0] for _, name, _, _ in parsed if name]


def capitalise(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]
