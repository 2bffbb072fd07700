"""Documents for six phenomena of discourse, each with one sentence whose translation depends on an earlier one.

A document is an item (the sentence that decides and the marked one, as many sentences apart as asked) among fillers.
It comes in several versions, one for each answer, which differ in the deciding sentence and in the marked one alone.
So a model that does not see the deciding sentence gives the same answer to every version, and of whole groups of
versions it gets exactly one in each right: chance. Where English does not show the answer, the deciding sentences
differ in German alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import read_data
from docmt.documents.corpus_files import ParallelDocument
from docmt.synthetic.grammar import capitalised, noun_phrase, slot_names
from docmt.synthetic.lexicon import (
    DEFINITE_ARTICLES,
    NOUNS,
    PEOPLE,
    WORDS,
    Case,
    Gender,
    Line,
    Noun,
    NounPhrase,
    Person,
    Word,
)

DISTANCES = range(1, 5)
SHORTEST, LONGEST = 5, 8


@dataclass(frozen=True)
class Sense:
    """One meaning of an English word: the German noun, and sentences whose words say that this one is meant."""

    german: str
    oblique: str
    gender: Gender
    fixed_by: tuple[Line, ...]

    def phrase(self, english: str) -> NounPhrase:
        """The noun with the definite article."""
        return _declined(f"the {english}", self.gender, self.german, self.oblique)


@dataclass(frozen=True)
class Verb:
    """A verb without an object that forms its perfect with *haben*, in the forms that the patterns need."""

    did: str
    does: str
    participle: str
    german: str


@dataclass(frozen=True)
class Tense:
    """Sentences with a verb, and the elliptic ones that can follow them."""

    full: tuple[Line, ...]
    elliptic: tuple[Line, ...]


@dataclass(frozen=True)
class Name:
    """A name that German may translate or keep."""

    translated: NounPhrase
    kept: NounPhrase


def _declined(english: str, gender: Gender, nominative: str, oblique: str) -> NounPhrase:
    """A noun behind the definite article; `oblique` is its form in the accusative and dative."""
    nouns = {Case.NOMINATIVE: nominative, Case.ACCUSATIVE: oblique, Case.DATIVE: oblique}
    return NounPhrase(english, *(f"{DEFINITE_ARTICLES[case, gender]} {noun}" for case, noun in nouns.items()))


def _lines(table: Mapping[str, str]) -> tuple[Line, ...]:
    return tuple(Line(*row) for row in table.items())


def _sense(german: Sequence[str], gender: str, fixed_by: Mapping[str, str]) -> Sense:
    """german: the nominative and, where it is another, the form of the other cases."""
    return Sense(german[0], german[-1], Gender(gender), _lines(fixed_by))


def _name(english: str, *german: str) -> Name:
    """A name of a ship, newspaper or street, which is feminine; or of an inn, with a form for the other cases.

    A translated inn has the gender of its German noun, a kept one that of *das Gasthaus*.
    """
    kept = english.removeprefix("the ")
    is_inn = len(german) > 1
    translated = _declined(english, Gender.MASCULINE if is_inn else Gender.FEMININE, german[0], german[-1])
    return Name(translated, _declined(english, Gender.NEUTER if is_inn else Gender.FEMININE, kept, kept))


_DATA = read_data(__package__, "phenomena.yaml")
FILLERS, ACQUISITIONS, MENTIONS, REMARKS, ARRIVALS, ADDRESSES = (
    _lines(_DATA[name]) for name in ("fillers", "acquisitions", "mentions", "remarks", "arrivals", "addresses")
)
SENSES: dict[str, tuple[Sense, ...]] = {
    word: tuple(_sense(**sense) for sense in senses) for word, senses in _DATA["senses"].items()
}
FORMAL, FAMILIAR = (tuple(Person(*row) for row in _DATA[name]) for name in ("formal", "familiar"))
VERBS = tuple(Verb(*row) for row in _DATA["verbs"])
VERBS_OFFERED = 4  # of which the ellipsis repeats one
TENSES = tuple(Tense(_lines(tense["full"]), _lines(tense["elliptic"])) for tense in _DATA["tenses"])
NAMES = tuple(_name(*row) for row in (*_DATA["names"], *_DATA["inns"]))


_Value = Word | NounPhrase | Verb


@dataclass(frozen=True)
class Versions:
    """Version v of a document has the sentence `deciding[v]` and, some sentences later, `marked[v]`.

    The marked sentences have one source, and targets that differ.
    """

    deciding: tuple[Line, ...]
    marked: tuple[Line, ...]


def pronoun(rng: random.Random) -> Versions:
    """The German for *it* has the gender of an earlier noun: one version a gender."""
    things = [{"x": noun_phrase(rng.choice(group), None, definite=False)} for group in _NOUNS]
    acquisition, mention = rng.choice(ACQUISITIONS), rng.choice(MENTIONS)
    people = _people(rng.sample(PEOPLE, 2))
    deciding = _variants(acquisition, _draw(rng, acquisition) | people, things)
    return Versions(deciding, _variants(mention, _draw(rng, mention) | people, things))


def sense(rng: random.Random) -> Versions:
    """The German for an ambiguous English word depends on its meaning: one version a meaning."""
    word, senses = rng.choice(list(SENSES.items()))
    row = rng.randrange(len(senses[0].fixed_by))
    first, *others = rng.sample(PEOPLE, 3)
    deciding = tuple(_say(meaning.fixed_by[row], {"R": first}) for meaning in senses)
    remark = rng.choice(REMARKS)
    things = [{"x": meaning.phrase(word)} for meaning in senses]
    return Versions(deciding, _variants(remark, _draw(rng, remark) | _people(others), things))


def address(rng: random.Random) -> Versions:
    """The German for *you* depends on who is spoken to: one formal, one informal version."""
    people = [{"who": rng.choice(group)} for group in (FORMAL, FAMILIAR)]
    arrival = rng.choice(ARRIVALS)
    deciding = _variants(arrival, _draw(rng, arrival), people)
    question = rng.choice(ADDRESSES)
    return Versions(deciding, _variants(question, _draw(rng, question), people))


def address_free(rng: random.Random) -> Versions:
    """The German for *you* is formal or informal for no reason, but the same in the whole document."""
    return Versions(*(_variants(pattern, _draw(rng, pattern), [{}, {}]) for pattern in rng.sample(ADDRESSES, 2)))


def ellipsis(rng: random.Random) -> Versions:
    """German repeats the verb that English leaves out: one version for each of some verbs."""
    verbs = [{"verb": verb} for verb in rng.sample(VERBS, VERBS_OFFERED)]
    tense = rng.choice(TENSES)
    full, elliptic = rng.choice(tense.full), rng.choice(tense.elliptic)
    values = _draw(rng, full) | _people(rng.sample(PEOPLE, 2))
    return Versions(_variants(full, values, verbs), _variants(elliptic, values, verbs))


def name(rng: random.Random) -> Versions:
    """A name is translated or kept for no reason, but as it was the first time: one version each."""
    chosen = rng.choice(NAMES)
    renderings = [{"x": chosen.translated}, {"x": chosen.kept}]
    remarks, people = rng.sample(REMARKS, 2), rng.sample(PEOPLE, 4)
    mentions = zip(remarks, (people[:2], people[2:]), strict=True)
    return Versions(*(_variants(remark, _draw(rng, remark) | _people(pair), renderings) for remark, pair in mentions))


def fillers(rng: random.Random, count: int) -> list[Line]:
    """Different sentences that say nothing about any item."""
    return [_say(filler, _draw(rng, filler)) for filler in rng.sample(FILLERS, count)]


_NOUNS_A_GENDER = 12  # enough to learn the gender of each from a small corpus


def _nouns() -> list[list[Noun]]:
    """Nouns of each gender that have nothing to do with the ambiguous words."""
    taken = {*SENSES, *(meaning.german for senses in SENSES.values() for meaning in senses)}
    free = [noun for noun in NOUNS if taken.isdisjoint({noun.english, noun.german})]
    return [[noun for noun in free if noun.gender == gender][:_NOUNS_A_GENDER] for gender in Gender]


_NOUNS = _nouns()


def _variants(
    pattern: Line, values: Mapping[str, _Value], differing: Sequence[Mapping[str, _Value]]
) -> tuple[Line, ...]:
    """The versions of a sentence: each takes its values of those that differ, and its alternative where there are."""

    def taking(index: int) -> str:
        return re.sub(r"\[(.*?)\]", lambda found: found[1].split("|")[index], pattern.target)

    lines = (Line(pattern.source, taking(index)) for index in range(len(differing)))
    return tuple(_say(line, {**values, **own}) for line, own in zip(lines, differing, strict=True))


def _people(chosen: Sequence[Person]) -> dict[str, _Value]:
    """The values of the slots for two people."""
    return dict(zip("RS", chosen, strict=True))


def _draw(rng: random.Random, pattern: Line) -> dict[str, _Value]:
    """Draws a value for every slot of the pattern that has a table."""
    return {slot: rng.choice(WORDS[slot]) for slot in slot_names(pattern.source) if slot in WORDS}


def _say(pattern: Line, values: Mapping[str, _Value]) -> Line:
    """Fills the slots of a pattern."""
    words = {slot: value if isinstance(value, Verb) else value.english for slot, value in values.items()}
    return Line(capitalised(pattern.source.format(**words)), capitalised(pattern.target.format(**values)))


@dataclass(frozen=True)
class Phenomenon:
    """Something whose translation depends on an earlier sentence.

    `visible` says where the deciding words stand: in the "source", so that reading source sentences is enough (the
    target has them too), or in the "target" alone, so that only a system that sees its own translation can be right.
    `candidates` is the number of answers, all equally frequent.
    """

    name: str
    visible: Literal["source", "target"]
    candidates: int
    write: Callable[[random.Random], Versions]

    @property
    def chance(self) -> float:
        """The share of right answers without the deciding sentence, 0 to 1."""
        return 1 / self.candidates


PHENOMENA: dict[str, Phenomenon] = {
    phenomenon.name: phenomenon
    for phenomenon in (
        Phenomenon("pronoun", "source", 3, pronoun),
        Phenomenon("sense", "source", 2, sense),
        Phenomenon("address", "source", 2, address),
        Phenomenon("ellipsis", "source", VERBS_OFFERED, ellipsis),
        Phenomenon("address-free", "target", 2, address_free),
        Phenomenon("name", "target", 2, name),
    )
}
FEWEST_DOCUMENTS = len(PHENOMENA) * len(DISTANCES)


@dataclass(frozen=True)
class MarkedDocument:
    """A document and its marked sentence, `document.target[sentence] == candidates[correct]`.

    `candidates` are the target sentences of all versions; `distance` counts sentences back to the deciding one.
    """

    document: ParallelDocument
    phenomenon: str
    distance: int
    sentence: int
    candidates: tuple[str, ...]
    correct: int


def generate_phenomena(documents: int, seed: int) -> list[MarkedDocument]:
    """Writes that many documents, all different: for every phenomenon and distance equally many (or one more).

    The same seed gives the same documents. Raises DocmtError if there are too few for every phenomenon and distance.
    """
    return write_marked(documents, f"synthetic-{seed}", str(seed), set())


def write_marked(documents: int, name: str, seed: str, seen: set[tuple[str, ...]]) -> list[MarkedDocument]:
    """Writes documents with the ids `name`-0, `name`-1, ...; `seen` as in `write_versions`."""
    if documents < FEWEST_DOCUMENTS:
        raise DocmtError(
            f"{name} would have {documents} documents, too few for {len(PHENOMENA)} phenomena at {len(DISTANCES)}"
            f" distances; ask for {FEWEST_DOCUMENTS} or more"
        )
    cells = [(phenomenon, distance) for distance in DISTANCES for phenomenon in PHENOMENA.values()]
    marked: list[MarkedDocument] = []
    for index, (phenomenon, distance) in enumerate(cells):
        count = len(range(index, documents, len(cells)))
        # A generator for each: more documents leave the first ones as they were.
        rng = random.Random(f"{seed} {phenomenon.name} {distance}")
        marked += islice(write_versions(phenomenon, distance, rng, seen), count)
    random.Random(seed).shuffle(marked)
    ids = (f"{name}-{number}" for number in range(documents))
    return [replace(item, document=replace(item.document, id=id)) for item, id in zip(marked, ids, strict=True)]


def write_versions(
    phenomenon: Phenomenon, distance: int, rng: random.Random, seen: set[tuple[str, ...]]
) -> Iterator[MarkedDocument]:
    """Writes documents without end and without ids, all versions of one after the other.

    `seen` holds the source sides that must not come again; every new one is added to it. (Where only the target
    decides, the versions of a document have one source side.)
    """
    while True:
        versions = _versions(phenomenon, distance, rng)
        sources = {version.document.source for version in versions}
        if seen.isdisjoint(sources):
            seen |= sources
            yield from versions


def _versions(phenomenon: Phenomenon, distance: int, rng: random.Random) -> list[MarkedDocument]:
    """One document in all its versions, in any order, so that a part of them favours no answer."""
    item = phenomenon.write(rng)
    length = rng.randint(SHORTEST, LONGEST)
    around = fillers(rng, length - 2)
    deciding = rng.randrange(length - distance)
    versions = []
    for answer in rng.sample(range(len(item.marked)), len(item.marked)):
        sentences = [*around[:deciding], item.deciding[answer], *around[deciding:]]
        sentences.insert(deciding + distance, item.marked[answer])
        document = ParallelDocument("", tuple(s.source for s in sentences), tuple(s.target for s in sentences))
        candidates = tuple(sentence.target for sentence in item.marked)
        versions.append(MarkedDocument(document, phenomenon.name, distance, deciding + distance, candidates, answer))
    return versions
