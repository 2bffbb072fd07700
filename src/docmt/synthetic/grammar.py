"""Writes English-German documents in which the German for *it* depends on a noun one to four sentences earlier.

A document is one or two topics of at most five sentences. An introduction makes a thing the topic; the sentences
after it come back to the topic with a pronoun or speak of something else. Every pronoun belongs to the last
introduction. Gender, noun and distance are drawn independently of the sentence pattern, so an English sentence with
*it* says nothing about the form of the German pronoun.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from string import Formatter

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import ParallelDocument
from docmt.synthetic.lexicon import (
    ATTRIBUTES,
    DEFINITE_ARTICLES,
    DEFINITE_ENDINGS,
    DISTRACTORS,
    INDEFINITE_ARTICLES,
    INDEFINITE_ENDINGS,
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
    NounPhrase,
    Person,
    Room,
    SentencePattern,
    Trait,
    Word,
)

MAX_DISTANCE = 4
MIN_SENTENCES, MAX_SENTENCES = 5, 10

_DISTANCES = range(1, MAX_DISTANCE + 1)
_CAST = 5
# The dative has one form for two genders and so is easier to guess: it stays rare.
_CASE_WEIGHTS = {Case.NOMINATIVE: 0.47, Case.ACCUSATIVE: 0.47, Case.DATIVE: 0.06}
_TRAIT_SLOTS: dict[str, Callable[[Trait], bool]] = {
    "trait": lambda trait: True,
    "gradable": lambda trait: trait.gradable,
    "good": lambda trait: trait.good,
    "bad": lambda trait: not trait.good,
}


@dataclass(frozen=True)
class Pronoun:
    """A German pronoun for *it* and what its form depends on.

    `sentence` is its sentence index, `start` and `end` its characters in that target sentence. `candidates` are the
    forms its case has, in the order masculine, feminine, neuter, written as they would stand in the sentence;
    `form == candidates[correct]`. `distance` counts sentences back to the one that holds `antecedent`, the German
    noun. `pattern` is the English sentence pattern, with its slots.
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
    """A parallel document and its marked pronouns, in the order of their sentences (at most one a sentence)."""

    document: ParallelDocument
    pronouns: tuple[Pronoun, ...]


def generate(documents: int, seed: int) -> list[SyntheticDocument]:
    """Writes that many documents, all different; the same seed gives the same ones, and a longer list starts alike."""
    stream = write_documents(random.Random(seed), NOUNS, f"synthetic-{seed}", set())
    return [next(stream) for _ in range(documents)]


def write_documents(
    rng: random.Random, nouns: Sequence[Noun], name: str, seen: set[tuple[str, ...]]
) -> Iterator[SyntheticDocument]:
    """Writes documents without end on topics from `nouns`, with the ids `name`-0, `name`-1, ...

    `seen` holds the source sides that must not come again; every new one is added to it.
    """
    if not nouns:
        raise DocmtError("there is no noun to write about; give at least one")
    by_gender = [[noun for noun in nouns if noun.gender == gender] for gender in Gender]
    choice = [group for group in by_gender if group]
    number = 0
    while True:
        document = _Writer(rng, choice).write(f"{name}-{number}")
        if document.document.source not in seen:
            seen.add(document.document.source)
            number += 1
            yield document


def noun_phrase(noun: Noun, attribute: Attribute | None, definite: bool) -> NounPhrase:
    """Declines article, adjective and noun: a new lamp, eine neue Lampe, einer neuen Lampe."""
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
    """What is being told of: the thing, its owner, who gave it, and the aspects already settled."""

    noun: Noun
    sentence: int
    owner: Person
    giver: Person
    settled: set[str] = field(default_factory=set)


class _Writer:
    """Writes one document, sentence by sentence."""

    def __init__(self, rng: random.Random, nouns: Sequence[Sequence[Noun]]) -> None:
        self.rng = rng
        self.nouns = nouns
        self.cast = rng.sample(PEOPLE, _CAST)
        self.used: set[str] = set()
        self.source: list[str] = []
        self.target: list[str] = []
        self.pronouns: list[Pronoun] = []

    def write(self, id: str) -> SyntheticDocument:
        topics = [self._distances() for _ in range(self.rng.choice((1, 2, 2)))]
        length = sum(1 + max(distances) for distances in topics)
        longest = min(MAX_SENTENCES, length + 2)
        spare = self.rng.randint(max(MIN_SENTENCES, length), max(MIN_SENTENCES, longest)) - length
        # Spare sentences stand before a topic or at the end of the document, never inside a topic.
        gaps = [self.rng.randrange(len(topics) + 1) for _ in range(spare)]
        for index, distances in enumerate(topics):
            for _ in range(gaps.count(index)):
                self._distract()
            self._tell(distances)
        for _ in range(gaps.count(len(topics))):
            self._distract()
        document = ParallelDocument(id, tuple(self.source), tuple(self.target))
        return SyntheticDocument(document, tuple(self.pronouns))

    def _distances(self) -> set[int]:
        """Draws how far behind the introduction the pronouns of a topic stand; all distances are equally likely."""
        return set(self.rng.sample(_DISTANCES, self.rng.choice((1, 2, 2, 3))))

    def _distract(self, before_pronoun: bool = False) -> None:
        fitting = [p for p in DISTRACTORS if p.english not in self.used and not (before_pronoun and p.names_place)]
        self._say(self.rng.choice(fitting), None)

    def _tell(self, distances: set[int]) -> None:
        owner, giver = self.rng.sample(self.cast, 2)
        topic = _Topic(self.rng.choice(self.rng.choice(self.nouns)), len(self.source), owner, giver)
        self._say(self.rng.choice([p for p in INTRODUCTIONS if p.english not in self.used]), topic)
        for distance in range(1, max(distances) + 1):
            if distance not in distances:
                self._distract(before_pronoun=distance + 1 in distances)
                continue
            cases, weights = zip(*_CASE_WEIGHTS.items(), strict=True)
            case = self.rng.choices(cases, weights)[0]
            self._say(self.rng.choice(self._mentions(topic, case, last=distance == max(distances))), topic)

    def _mentions(self, topic: _Topic, case: Case, last: bool) -> list[SentencePattern]:
        """The patterns of a case that say something new of the topic."""
        return [
            pattern
            for pattern in MENTIONS
            if pattern.case == case
            and pattern.english not in self.used
            and (last or not pattern.last)
            and topic.settled.isdisjoint(pattern.settles)
            and all(self._traits(slot, topic) for slot in _slots(pattern) if slot in _TRAIT_SLOTS)
        ]

    def _traits(self, slot: str, topic: _Topic) -> list[Trait]:
        return [t for t in TRAITS if _TRAIT_SLOTS[slot](t) and t.aspect not in topic.settled]

    def _fill(self, pattern: SentencePattern, topic: _Topic | None) -> dict[str, _Value]:
        """Draws a value for every slot of the pattern and notes what it settles about the topic."""
        others = [person for person in self.cast if topic is None or person not in (topic.owner, topic.giver)]
        first, second = self.rng.sample(others, 2)
        people = {"Q": first, "R": first, "S": second}
        values: dict[str, _Value] = {}
        if topic is not None:
            people |= {"P": topic.owner, "G": topic.giver}
            topic.settled.update(pattern.settles)
        for slot in _slots(pattern):
            if slot in people:
                values[slot] = people[slot]
            elif slot == "room":
                values[slot] = self.rng.choice(ROOMS)
            elif slot in WORDS:
                values[slot] = self.rng.choice(WORDS[slot])
            elif topic is not None:
                values[slot] = self._describe(slot, topic)
        return values

    def _describe(self, slot: str, topic: _Topic) -> _Value:
        """A trait of the topic, or the noun itself: "the" always with an adjective, which makes it natural."""
        if slot in _TRAIT_SLOTS:
            trait = self.rng.choice(self._traits(slot, topic))
            topic.settled.add(trait.aspect)
            return trait
        attribute = None
        if slot == "the" or self.rng.random() < 0.5:
            attribute = self.rng.choice([a for a in ATTRIBUTES if a.aspect not in topic.settled])
            topic.settled.add(attribute.aspect)
        return noun_phrase(topic.noun, attribute, definite=slot == "the")

    def _say(self, pattern: SentencePattern, topic: _Topic | None) -> None:
        """Appends a sentence in both languages, and its pronoun if the pattern has one (then there is a topic)."""
        self.used.add(pattern.english)
        values = self._fill(pattern, topic)
        english: dict[str, str] = {slot: value.english for slot, value in values.items()}
        if topic is not None:
            english["his"] = topic.owner.possessive
        self.source.append(capitalised(pattern.english.format(**english)))
        if pattern.case is None or topic is None:
            self.target.append(capitalised(pattern.german.format(**values)))
            return
        before, after = (part.format(**values) for part in pattern.german.split("{it}"))
        forms = tuple(dict.fromkeys(PRONOUNS[pattern.case, gender] for gender in Gender))
        form = PRONOUNS[pattern.case, topic.noun.gender]
        correct = forms.index(form)
        candidates = forms if before else tuple(capitalised(candidate) for candidate in forms)
        form = candidates[correct]
        self.pronouns.append(
            Pronoun(
                sentence=len(self.target),
                form=form,
                candidates=candidates,
                correct=correct,
                distance=len(self.target) - topic.sentence,
                start=len(before),
                end=len(before) + len(form),
                gender=topic.noun.gender,
                case=pattern.case,
                antecedent=topic.noun.german,
                pattern=pattern.english,
            )
        )
        self.target.append(capitalised(f"{before}{form}{after}"))


def _slots(pattern: SentencePattern) -> list[str]:
    """The names of the slots to draw, in the order of the English sentence."""
    names = slot_names(pattern.english) + slot_names(pattern.german)
    return list(dict.fromkeys(name for name in names if name not in ("it", "his")))


def slot_names(text: str) -> list[str]:
    """The names of the slots of a pattern in one language, without their cases."""
    parsed: Iterable[tuple[str, str | None, str | None, str | None]] = Formatter().parse(text)
    return [name.split(".")[0] for _, name, _, _ in parsed if name]


def capitalised(text: str) -> str:
    """The text with its first letter large, the others as they are."""
    return text[:1].upper() + text[1:]
