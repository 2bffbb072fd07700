"""What each phenomenon puts into a document: the sentence that decides, and the marked one whose German it decides.

An item has several versions, one for each answer. They have one marked English sentence, so that it says nothing about
its translation; they differ in the sentence that decides, in German alone where English does not show the answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from docmt.synthetic.grammar import NounPhrase, capitalised, noun_phrase, slot_names
from docmt.synthetic.lexicon import NOUNS, PEOPLE, WORDS, Gender, Noun, Person, Word
from docmt.synthetic.wordings import (
    ACQUISITIONS,
    ADDRESSES,
    ARRIVALS,
    FAMILIAR,
    FILLERS,
    FORMAL,
    MENTIONS,
    NAMES,
    REMARKS,
    SENSES,
    TENSES,
    VERBS,
    VERBS_OFFERED,
    Line,
    Verb,
)

_Value = Person | Word | NounPhrase | Verb


@dataclass(frozen=True)
class Item:
    """Version v of a document has the sentence `deciding[v]` and, some sentences later, `marked[v]`.

    The marked sentences have one source, and targets that differ.
    """

    deciding: tuple[Line, ...]
    marked: tuple[Line, ...]


def pronoun(rng: random.Random) -> Item:
    """The German for *it* has the gender of an earlier noun: one version a gender."""
    nouns = [rng.choice(group) for group in _NOUNS]
    acquisition, mention = rng.choice(ACQUISITIONS), rng.choice(MENTIONS)
    people = dict(zip("RS", rng.sample(PEOPLE, 2), strict=True))
    values = _draw(rng, acquisition) | people
    deciding = (_say(acquisition, values | {"x": noun_phrase(noun, None, definite=False)}) for noun in nouns)
    return Item(tuple(deciding), _choices(mention, _draw(rng, mention) | people, len(nouns)))


def sense(rng: random.Random) -> Item:
    """The German for an ambiguous English word depends on its meaning: one version a meaning."""
    word, senses = rng.choice(list(SENSES.items()))
    row = rng.randrange(len(senses[0].fixed_by))
    first, *others = rng.sample(PEOPLE, 3)
    deciding = tuple(_say(meaning.fixed_by[row], {"R": first}) for meaning in senses)
    remark = rng.choice(REMARKS)
    values = _draw(rng, remark) | dict(zip("RS", others, strict=True))
    return Item(deciding, tuple(_say(remark, values | {"x": meaning.phrase(word)}) for meaning in senses))


def address(rng: random.Random) -> Item:
    """The German for *you* depends on who is spoken to: one formal, one informal version."""
    people = rng.choice(FORMAL), rng.choice(FAMILIAR)
    arrival = rng.choice(ARRIVALS)
    values = _draw(rng, arrival)
    deciding = tuple(_say(arrival, values | {"who": person}) for person in people)
    return Item(deciding, _addresses(rng, rng.choice(ADDRESSES)))


def address_free(rng: random.Random) -> Item:
    """The German for *you* is formal or informal for no reason, but the same in the whole document."""
    first, second = rng.sample(ADDRESSES, 2)
    return Item(_addresses(rng, first), _addresses(rng, second))


def ellipsis(rng: random.Random) -> Item:
    """German repeats the verb that English leaves out: one version for each of some verbs."""
    verbs = rng.sample(VERBS, VERBS_OFFERED)
    tense = rng.choice(TENSES)
    full, elliptic = rng.choice(tense.full), rng.choice(tense.elliptic)
    values = _draw(rng, full) | dict(zip("RS", rng.sample(PEOPLE, 2), strict=True))
    versions = [values | {"verb": verb} for verb in verbs]
    return Item(tuple(_say(full, version) for version in versions), tuple(_say(elliptic, v) for v in versions))


def name(rng: random.Random) -> Item:
    """A name is translated or kept for no reason, but as it was the first time: one version each."""
    chosen = rng.choice(NAMES)
    renderings = chosen.translated, chosen.kept
    first, second = rng.sample(REMARKS, 2)
    people = rng.sample(PEOPLE, 4)

    def mentions(remark: Line, those: Sequence[Person]) -> tuple[Line, ...]:
        values = _draw(rng, remark) | dict(zip("RS", those, strict=True))
        return tuple(_say(remark, values | {"x": rendering}) for rendering in renderings)

    return Item(mentions(first, people[:2]), mentions(second, people[2:]))


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


def _addresses(rng: random.Random, pattern: Line) -> tuple[Line, ...]:
    """The formal and the informal version of a sentence with *you*."""
    return _choices(pattern, _draw(rng, pattern), 2)


def _choices(pattern: Line, values: Mapping[str, _Value], count: int) -> tuple[Line, ...]:
    """The versions of a pattern that has so many alternatives."""

    def taking(index: int) -> str:
        return re.sub(r"\[(.*?)\]", lambda found: found[1].split("|")[index], pattern.target)

    return tuple(_say(Line(pattern.source, taking(index)), values) for index in range(count))


def _draw(rng: random.Random, pattern: Line) -> dict[str, _Value]:
    """Draws a value for every slot of the pattern that has a table."""
    return {slot: rng.choice(WORDS[slot]) for slot in slot_names(pattern.source) if slot in WORDS}


def _say(pattern: Line, values: Mapping[str, _Value]) -> Line:
    """Fills the slots of a pattern."""
    words = {slot: value if isinstance(value, Verb) else value.english for slot, value in values.items()}
    return Line(capitalised(pattern.source.format(**words)), capitalised(pattern.target.format(**values)))
