"""A corpus for six discourse phenomena, in which one sentence of each document depends on an earlier one.

python -m benchmarks.phenomena DIRECTORY --train N --dev N --test N [--seed N]

A document contains an item (a deciding and a marked sentence at a given distance) among fillers. It has one version
for each answer. Versions differ only in the deciding and the marked sentence. So a model that does not see the
deciding sentence gives the same answer to every version, and scores exactly at chance on groups of versions. Where
English does not show the answer, the deciding sentences differ in German only.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.synthetic.grammar import (
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
    capitalise,
    list_slot_names,
    make_noun_phrase,
)
from benchmarks.synthetic.synthetic_corpus import CONTRASTIVE_FILE, check_directory, make_item, write_splits
from docmt.core.errors import DocmtError
from docmt.core.settings import read_package_yaml
from docmt.documents.corpus_files import ParallelDocument

DISTANCES = range(1, 5)
SHORTEST, LONGEST = 5, 8


@dataclass(frozen=True)
class Sense:
    """A meaning of an English word: the German noun, and sentences that fix this meaning."""

    german: str
    oblique: str
    gender: Gender
    fixed_by: tuple[Line, ...]

    def phrase(self, english: str) -> NounPhrase:
        """Return the noun with the definite article."""
        return _decline(f"the {english}", self.gender, self.german, self.oblique)


@dataclass(frozen=True)
class Verb:
    """A verb without object and with the perfect auxiliary *haben*, in the forms of the patterns."""

    did: str
    does: str
    participle: str
    german: str


@dataclass(frozen=True)
class Tense:
    """Sentences with a verb, and elliptic ones that can follow them."""

    full: tuple[Line, ...]
    elliptic: tuple[Line, ...]


@dataclass(frozen=True)
class Name:
    """A name that German may translate or keep."""

    translated: NounPhrase
    untranslated: NounPhrase


def _decline(english: str, gender: Gender, nominative: str, oblique: str) -> NounPhrase:
    """Return a noun with the definite article. `oblique` is its accusative and dative form."""
    nouns = {Case.NOMINATIVE: nominative, Case.ACCUSATIVE: oblique, Case.DATIVE: oblique}
    return NounPhrase(english, *(f"{DEFINITE_ARTICLES[case, gender]} {noun}" for case, noun in nouns.items()))


def _parse_lines(table: Mapping[str, str]) -> tuple[Line, ...]:
    return tuple(Line(*row) for row in table.items())


def _parse_sense(german: Sequence[str], gender: str, fixed_by: Mapping[str, str]) -> Sense:
    """Return a sense. german: the nominative and, if different, the form of the other cases."""
    return Sense(german[0], german[-1], Gender(gender), _parse_lines(fixed_by))


def _parse_name(english: str, *german: str) -> Name:
    """Return a name of a ship, newspaper or street (feminine), or of an inn, with a form for the other cases.

    A translated inn has the gender of its German noun, an untranslated one that of *das Gasthaus*.
    """
    untranslated = english.removeprefix("the ")
    is_inn = len(german) > 1
    translated = _decline(english, Gender.MASCULINE if is_inn else Gender.FEMININE, german[0], german[-1])
    return Name(translated, _decline(english, Gender.NEUTER if is_inn else Gender.FEMININE, untranslated, untranslated))


_DATA = read_package_yaml(__package__, "phenomena.yaml")
FILLERS, ACQUISITIONS, MENTIONS, REMARKS, ARRIVALS, ADDRESSES = (
    _parse_lines(_DATA[name]) for name in ("fillers", "acquisitions", "mentions", "remarks", "arrivals", "addresses")
)
SENSES: dict[str, tuple[Sense, ...]] = {
    word: tuple(_parse_sense(**sense) for sense in senses) for word, senses in _DATA["senses"].items()
}
FORMAL, FAMILIAR = (tuple(Person(*row) for row in _DATA[name]) for name in ("formal", "familiar"))
VERBS = tuple(Verb(*row) for row in _DATA["verbs"])
VERBS_OFFERED = 4  # candidates of an ellipsis item
TENSES = tuple(Tense(_parse_lines(tense["full"]), _parse_lines(tense["elliptic"])) for tense in _DATA["tenses"])
NAMES = tuple(_parse_name(*row) for row in (*_DATA["names"], *_DATA["inns"]))


_Value = Word | NounPhrase | Verb


@dataclass(frozen=True)
class Versions:
    """The versions of an item. Version v has the sentences `deciding[v]` and, later, `marked[v]`.

    The marked sentences share one source and differ in the target.
    """

    deciding: tuple[Line, ...]
    marked: tuple[Line, ...]


def make_pronoun_versions(rng: random.Random) -> Versions:
    """Return versions by gender: the German for *it* has the gender of an earlier noun."""
    things = [{"x": make_noun_phrase(rng.choice(group), None, definite=False)} for group in _NOUNS]
    acquisition, mention = rng.choice(ACQUISITIONS), rng.choice(MENTIONS)
    people = _name_people(rng.sample(PEOPLE, 2))
    deciding = _vary(acquisition, _draw_words(rng, acquisition) | people, things)
    return Versions(deciding, _vary(mention, _draw_words(rng, mention) | people, things))


def make_sense_versions(rng: random.Random) -> Versions:
    """Return versions by meaning: the German for an ambiguous English word depends on its meaning."""
    word, senses = rng.choice(list(SENSES.items()))
    row = rng.randrange(len(senses[0].fixed_by))
    first, *people = rng.sample(PEOPLE, 3)
    deciding = tuple(_fill_slots(meaning.fixed_by[row], {"R": first}) for meaning in senses)
    remark = rng.choice(REMARKS)
    things = [{"x": meaning.phrase(word)} for meaning in senses]
    return Versions(deciding, _vary(remark, _draw_words(rng, remark) | _name_people(people), things))


def make_address_versions(rng: random.Random) -> Versions:
    """Return a formal and an informal version: the German for *you* depends on the addressee."""
    people = [{"who": rng.choice(group)} for group in (FORMAL, FAMILIAR)]
    arrival = rng.choice(ARRIVALS)
    deciding = _vary(arrival, _draw_words(rng, arrival), people)
    question = rng.choice(ADDRESSES)
    return Versions(deciding, _vary(question, _draw_words(rng, question), people))


def make_address_free_versions(rng: random.Random) -> Versions:
    """Return a formal and an informal version without a reason in the source, but consistent in the document."""
    return Versions(*(_vary(pattern, _draw_words(rng, pattern), [{}, {}]) for pattern in rng.sample(ADDRESSES, 2)))


def make_ellipsis_versions(rng: random.Random) -> Versions:
    """Return versions by verb: German repeats the verb that English omits."""
    verbs = [{"verb": verb} for verb in rng.sample(VERBS, VERBS_OFFERED)]
    tense = rng.choice(TENSES)
    full, elliptic = rng.choice(tense.full), rng.choice(tense.elliptic)
    values = _draw_words(rng, full) | _name_people(rng.sample(PEOPLE, 2))
    return Versions(_vary(full, values, verbs), _vary(elliptic, values, verbs))


def make_name_versions(rng: random.Random) -> Versions:
    """Return a version with a translated and one with an untranslated name, as at its first mention."""
    drawn = rng.choice(NAMES)
    names = [{"x": drawn.translated}, {"x": drawn.untranslated}]
    remarks, people = rng.sample(REMARKS, 2), rng.sample(PEOPLE, 4)
    pairs = zip(remarks, (people[:2], people[2:]), strict=True)
    return Versions(*(_vary(remark, _draw_words(rng, remark) | _name_people(pair), names) for remark, pair in pairs))


def make_fillers(rng: random.Random, count: int) -> list[Line]:
    """Return different sentences that are unrelated to any item."""
    return [_fill_slots(filler, _draw_words(rng, filler)) for filler in rng.sample(FILLERS, count)]


_NOUNS_A_GENDER = 12  # enough to learn the gender of each from a small corpus


def _select_nouns() -> list[list[Noun]]:
    """Return nouns of each gender that are unrelated to the ambiguous words."""
    ambiguous = {*SENSES, *(meaning.german for senses in SENSES.values() for meaning in senses)}
    free = [noun for noun in NOUNS if ambiguous.isdisjoint({noun.english, noun.german})]
    return [[noun for noun in free if noun.gender == gender][:_NOUNS_A_GENDER] for gender in Gender]


_NOUNS = _select_nouns()


def _vary(pattern: Line, values: Mapping[str, _Value], differing: Sequence[Mapping[str, _Value]]) -> tuple[Line, ...]:
    """Return the versions of a sentence, each with its values and with its alternative of [one|two]."""

    def choose(index: int) -> str:
        return re.sub(r"\[(.*?)\]", lambda match: match[1].split("|")[index], pattern.target)

    lines = (Line(pattern.source, choose(index)) for index in range(len(differing)))
    return tuple(_fill_slots(line, {**values, **changes}) for line, changes in zip(lines, differing, strict=True))


def _name_people(people: Sequence[Person]) -> dict[str, _Value]:
    """Return the values of the slots for two people."""
    return dict(zip("RS", people, strict=True))


def _draw_words(rng: random.Random, pattern: Line) -> dict[str, _Value]:
    """Draw a value for every slot of the pattern that has a table."""
    return {slot: rng.choice(WORDS[slot]) for slot in list_slot_names(pattern.source) if slot in WORDS}


def _fill_slots(pattern: Line, values: Mapping[str, _Value]) -> Line:
    """Return the pattern with filled slots."""
    words = {slot: value if isinstance(value, Verb) else value.english for slot, value in values.items()}
    return Line(capitalise(pattern.source.format(**words)), capitalise(pattern.target.format(**values)))


PHENOMENA: dict[str, Callable[[random.Random], Versions]] = {
    "pronoun": make_pronoun_versions,
    "sense": make_sense_versions,
    "address": make_address_versions,
    "ellipsis": make_ellipsis_versions,
    "address-free": make_address_free_versions,
    "name": make_name_versions,
}
"""Phenomena with the functions that make an item. Source sentences are sufficient, but for the last two: only a system
that sees its own translation can be right there. All answers of an item are equally frequent."""
FEWEST_DOCUMENTS = len(PHENOMENA) * len(DISTANCES)


@dataclass(frozen=True)
class MarkedDocument:
    """A document with a marked sentence, `document.target[sentence] == candidates[correct]`.

    `candidates` are the target sentences of all versions. `distance` counts sentences back to the deciding one.
    """

    document: ParallelDocument
    phenomenon: str
    distance: int
    sentence: int
    candidates: tuple[str, ...]
    correct: int


def make_documents(documents: int, name: str, seed: str, used_sources: set[tuple[str, ...]]) -> list[MarkedDocument]:
    """Return documents with the ids `name`-0, `name`-1, ...; `used_sources` as in `stream_versions`."""
    if documents < FEWEST_DOCUMENTS:
        raise DocmtError(
            f"{name} would have {documents} documents, too few for {len(PHENOMENA)} phenomena at {len(DISTANCES)} "
            f"distances. Use {FEWEST_DOCUMENTS} or more."
        )
    cells = [(phenomenon, distance) for distance in DISTANCES for phenomenon in PHENOMENA]
    marked: list[MarkedDocument] = []
    for index, (phenomenon, distance) in enumerate(cells):
        count = len(range(index, documents, len(cells)))
        # One generator for each, so that a longer list begins like a shorter one.
        rng = random.Random(f"{seed} {phenomenon} {distance}")
        marked += islice(stream_versions(phenomenon, distance, rng, used_sources), count)
    random.Random(seed).shuffle(marked)
    ids = (f"{name}-{number}" for number in range(documents))
    return [replace(item, document=replace(item.document, id=id)) for item, id in zip(marked, ids, strict=True)]


def stream_versions(
    phenomenon: str, distance: int, rng: random.Random, used_sources: set[tuple[str, ...]]
) -> Iterator[MarkedDocument]:
    """Yield documents without end and without ids, all versions of an item together.

    `used_sources` has the source sides to avoid. Every new one is added. Where only the target decides, the versions
    of a document share one source side.
    """
    while True:
        versions = _build_versions(phenomenon, distance, rng)
        sources = {version.document.source for version in versions}
        if used_sources.isdisjoint(sources):
            used_sources |= sources
            yield from versions


def _build_versions(phenomenon: str, distance: int, rng: random.Random) -> list[MarkedDocument]:
    """Return one document in all its versions, in random order, so that a part of them favours no answer."""
    item = PHENOMENA[phenomenon](rng)
    length = rng.randint(SHORTEST, LONGEST)
    around = make_fillers(rng, length - 2)
    deciding = rng.randrange(length - distance)
    versions = []
    for answer in rng.sample(range(len(item.marked)), len(item.marked)):
        sentences = [*around[:deciding], item.deciding[answer], *around[deciding:]]
        sentences.insert(deciding + distance, item.marked[answer])
        document = ParallelDocument("", tuple(s.source for s in sentences), tuple(s.target for s in sentences))
        candidates = tuple(sentence.target for sentence in item.marked)
        versions.append(MarkedDocument(document, phenomenon, distance, deciding + distance, candidates, answer))
    return versions


def make_phenomenon_items(documents: Sequence[MarkedDocument]) -> list[dict[str, Any]]:
    """Return a contrastive item with its `phenomenon` for each document; see `make_item`."""
    return [
        {
            **make_item(each.document.id, each.document, each.sentence, each.candidates, each.correct, each.distance),
            "phenomenon": each.phenomenon,
        }
        for each in documents
    ]


def write_phenomena(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Write a corpus of all `PHENOMENA`, with equal numbers of documents for each phenomenon and distance.

    train/dev/test `.en` and `.de` have one sentence a line and an empty line between documents, in random order.
    test.contrastive.jsonl has an item a line, in the order of the test documents. No source document is in two splits.
    Within a split it may recur with another translation where only the target decides. With a multiple of 288 test
    documents, a model that does not see the deciding sentence scores exactly at chance. An existing corpus is
    replaced. Raises DocmtError for a split with too few documents for every phenomenon and distance, a directory that
    cannot be written, and one with other files.
    """
    check_directory(directory)
    used_sources: set[tuple[str, ...]] = set()
    splits = {
        name: make_documents(count, name, f"{seed} {name}", used_sources)
        for name, count in (("train", train), ("dev", dev), ("test", test))
    }
    documents = {name: [each.document for each in marked] for name, marked in splits.items()}
    write_splits(directory, documents, {CONTRASTIVE_FILE: make_phenomenon_items(splits["test"])})


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a corpus of the phenomena."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phenomena")
    parser.add_argument("directory", type=Path)
    for split in ("train", "dev", "test"):
        parser.add_argument(f"--{split}", type=int, required=True, help="number of documents")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        write_phenomena(**vars(options))
    except DocmtError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
