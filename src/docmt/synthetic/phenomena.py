"""Documents for six phenomena of discourse, each with one sentence whose translation depends on an earlier one.

A document is an item (`items`: the sentence that decides and the marked one, as many sentences apart as asked) among
fillers. It comes in several versions, one for each answer, which differ in the deciding sentence and in the marked one
alone. So a model that does not see the deciding sentence gives the same answer to every version, and of whole groups of
versions it gets exactly one in each right: chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.documents.corpus import ParallelDocument
from docmt.synthetic import items
from docmt.synthetic.wordings import VERBS_OFFERED

DISTANCES = range(1, 5)
SHORTEST, LONGEST = 5, 8


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
    write: Callable[[random.Random], items.Item]

    @property
    def chance(self) -> float:
        """The share of right answers without the deciding sentence, 0 to 1."""
        return 1 / self.candidates


PHENOMENA: dict[str, Phenomenon] = {
    phenomenon.name: phenomenon
    for phenomenon in (
        Phenomenon("pronoun", "source", 3, items.pronoun),
        Phenomenon("sense", "source", 2, items.sense),
        Phenomenon("address", "source", 2, items.address),
        Phenomenon("ellipsis", "source", VERBS_OFFERED, items.ellipsis),
        Phenomenon("address-free", "target", 2, items.address_free),
        Phenomenon("name", "target", 2, items.name),
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
    return [_named(item, f"{name}-{number}") for number, item in enumerate(marked)]


def _named(item: MarkedDocument, id: str) -> MarkedDocument:
    return replace(item, document=replace(item.document, id=id))


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
    around = items.fillers(rng, length - 2)
    deciding = rng.randrange(length - distance)
    versions = []
    for answer in rng.sample(range(len(item.marked)), len(item.marked)):
        sentences = [*around[:deciding], item.deciding[answer], *around[deciding:]]
        sentences.insert(deciding + distance, item.marked[answer])
        document = ParallelDocument("", tuple(s.source for s in sentences), tuple(s.target for s in sentences))
        candidates = tuple(sentence.target for sentence in item.marked)
        versions.append(MarkedDocument(document, phenomenon.name, distance, deciding + distance, candidates, answer))
    return versions
