"""Contrastive test sets: does a model find the right translation of a document more probable than wrong ones?

After Müller et al. 2018, "A Large-Scale Test Set for the Evaluation of Context-Aware Pronoun Translation in Neural
Machine Translation". Nothing is translated: every candidate is scored as it stands (force decoding). A test set is a
file of JSON Lines, one item a line:

    {"id": "a", "phenomenon": "pronoun", "distance": 1, "source": ["This is a key.", "I need it."],
     "candidates": [["Das ist ein Schlüssel.", "Ich brauche ihn."], ["Das ist ein Schlüssel.", "Ich brauche sie."]],
     "correct": 0, "sentence": 1}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from docmt.documents import Document
from docmt.documents.jsonl import LONE_SURROGATE
from docmt.documents.plain_text import decoded_lines
from docmt.errors import DocmtError

GROUP = 512
"""Items whose candidates are scored together."""
TIE = 1e-4
"""Nats. Numbers closer than this are equal: so much the same text can differ in batches of other shapes."""


@dataclass(frozen=True)
class Item:
    """One question: which of these target documents is the translation of the source?"""

    id: str
    phenomenon: str
    """what is asked for; empty if the file does not say"""
    distance: int
    """sentences back to the one that decides"""
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    """two or more, each with one sentence for each of the source; no two are equal"""
    correct: int
    """index of the right candidate"""
    sentence: int
    """index of the sentence in which they differ"""


def read_items(path: Path) -> list[Item]:
    """The items of a test set. Raises DocmtError, naming the line, for what is none."""
    items = [_item(line, f"{path}, line {number}") for number, line in decoded_lines(path) if line.strip()]
    if not items:
        raise DocmtError(f"{path} is empty: give a contrastive test set, one JSON object a line")
    return items


def _item(line: str, where: str) -> Item:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocmtError(f"{where}: not valid JSON: a contrastive test set has one object a line") from error
    if not isinstance(record, dict):
        raise DocmtError(f"{where}: not a JSON object: a contrastive test set has one a line")
    source = _sentences(record.get("source"), where, "source")
    candidates = record.get("candidates")
    if not isinstance(candidates, list) or len(candidates) < 2:
        raise DocmtError(f"{where}: `candidates` is no list of two or more target documents: give such a list")
    found = tuple(_sentences(each, where, f"candidate {number}") for number, each in enumerate(candidates, 1))
    for number, candidate in enumerate(found, 1):
        if len(candidate) != len(source):
            raise DocmtError(
                f"{where}: candidate {number} has {len(candidate)} sentences and `source` {len(source)}: give one for "
                "each"
            )
    if len(set(found)) < len(found):
        raise DocmtError(f"{where}: two of the `candidates` are equal: leave one of them out")
    sentence = _index(record, "sentence", len(source), where)
    if len({(*candidate[:sentence], *candidate[sentence + 1 :]) for candidate in found}) > 1:
        raise DocmtError(
            f"{where}: the `candidates` differ elsewhere than in sentence {sentence} (from 0): name the one in which "
            "they differ in `sentence`, and let the others be equal"
        )
    return Item(
        id=_text(record, "id", where),
        phenomenon=_text(record, "phenomenon", where),
        distance=_index(record, "distance", 1_000_000, where),
        source=source,
        candidates=found,
        correct=_index(record, "correct", len(found), where),
        sentence=sentence,
    )


def _sentences(values: object, where: str, what: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise DocmtError(f"{where}: {what} is no list of sentences: give strings in brackets")
    if any(LONE_SURROGATE.search(value) for value in values):
        raise DocmtError(f"{where}: {what} holds a lone surrogate, which is no character: remove it")
    return tuple(values)


def _text(record: Mapping[str, object], entry: str, where: str) -> str:
    """A text, empty if there is none."""
    value = record.get(entry, "")
    if not isinstance(value, str) or LONE_SURROGATE.search(value):
        raise DocmtError(f"{where}: `{entry}` is no text: give a string, or leave it out")
    return value


def _index(record: Mapping[str, object], entry: str, end: int, where: str) -> int:
    value = record.get(entry)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise DocmtError(f"{where}: `{entry}` is no whole number from 0 to {end - 1}: give one")
    return value


class _Sentence(Protocol):
    @property
    def score(self) -> float: ...


class _Scored(Protocol):
    @property
    def sentences(self) -> Sequence[_Sentence]: ...


class Scorer(Protocol):
    """What scores given translations: a `docmt.Translator`."""

    def score_all(
        self, pairs: Sequence[tuple[Document | str, Document | str]], limited: bool = True
    ) -> Sequence[_Scored]:
        """The log-probability of every sentence of the target documents, each in its document.

        Unless `limited`, no limit of length of a search makes the end of a sentence free, which one of them would gain.
        """
        ...


@dataclass(frozen=True)
class Count:
    """How many of some items were right."""

    correct: int
    total: int
    guessed: float
    """how many a model that guesses has right on average"""

    @property
    def accuracy(self) -> float:
        """Share of right answers, 0 to 1."""
        return self.correct / self.total

    @property
    def chance(self) -> float:
        """Share of right answers of a model that guesses, 0 to 1."""
        return self.guessed / self.total

    def to_json(self) -> dict[str, Any]:
        """The counts with both shares."""
        return {**asdict(self), "accuracy": self.accuracy, "chance": self.chance}

    @classmethod
    def sum(cls, counts: Iterable[Count]) -> Count:
        """The counts of all of them together."""
        own = list(counts)
        return cls(sum(c.correct for c in own), sum(c.total for c in own), math.fsum(c.guessed for c in own))


@dataclass(frozen=True)
class ContrastiveResult:
    """How many items were right, by phenomenon and distance."""

    cells: Mapping[str, Mapping[int, Count]]
    """phenomena in the order of the test set, distances from the nearest on"""

    @property
    def all(self) -> Count:
        """All items together."""
        return Count.sum(self.of(phenomenon) for phenomenon in self.cells)

    def of(self, phenomenon: str) -> Count:
        """All items of a phenomenon."""
        return Count.sum(self.cells[phenomenon].values())

    def distances(self) -> list[int]:
        """All distances, from the nearest on."""
        return sorted({distance for row in self.cells.values() for distance in row})

    def to_json(self) -> dict[str, Any]:
        """Counts and shares in types that JSON has."""
        phenomena = {
            name: {**self.of(name).to_json(), "distances": {str(d): count.to_json() for d, count in row.items()}}
            for name, row in self.cells.items()
        }
        return {**self.all.to_json(), "phenomena": phenomena}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ContrastiveResult:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        return cls(
            {
                name: {
                    int(distance): Count(int(count["correct"]), int(count["total"]), float(count["guessed"]))
                    for distance, count in row["distances"].items()
                }
                for name, row in values["phenomena"].items()
            }
        )

    def format(self) -> str:
        """A table for people: percent right (of how many items) by phenomenon and distance, and what guessing gives."""
        distances = self.distances()
        rows = [["", "chance", *(f"distance {distance}" for distance in distances), "all"]]
        for name, row in self.cells.items():
            cells = [_cell(row[distance]) if distance in row else "-" for distance in distances]
            rows.append([name or "(no name)", f"{100 * self.of(name).chance:.1f}", *cells, _cell(self.of(name))])
        if len(self.cells) > 1:
            columns = [
                Count.sum(row[distance] for row in self.cells.values() if distance in row) for distance in distances
            ]
            rows.append(["all", f"{100 * self.all.chance:.1f}", *map(_cell, columns), _cell(self.all)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        return "\n".join(lines)


def _cell(count: Count) -> str:
    return f"{100 * count.accuracy:.1f} ({count.total:,})"


def evaluate_items(scorer: Scorer, items: Sequence[Item]) -> ContrastiveResult:
    """Scores every candidate of every item and counts how often the right one is best."""
    totals: list[list[float]] = []
    for first, last in pairwise([*range(0, len(items), GROUP), len(items)]):
        group = items[first:last]
        pairs: list[tuple[Document | str, Document | str]] = []
        for item in group:
            source = Document.from_sentences(item.source, id=item.id)
            pairs += [(source, Document.from_sentences(candidate, id=item.id)) for candidate in item.candidates]
        scored = iter(scorer.score_all(pairs, limited=False))
        totals += [[_total(next(scored)) for _ in item.candidates] for item in group]
    return count_right(items, totals)


def _total(scored: _Scored) -> float:
    """The log-probability of a whole document."""
    return math.fsum(sentence.score for sentence in scored.sentences)


def count_right(items: Sequence[Item], totals: Sequence[Sequence[float]]) -> ContrastiveResult:
    """Compares the candidates of each item by the log-probabilities (nats) of their documents.

    An item is right where its right candidate is more probable than every other one: a tie is wrong, as a model that
    gives two answers the same probability does not know the right one, and so is a number that is none.
    """
    cells: dict[str, dict[int, Count]] = {}
    for item, own in zip(items, totals, strict=True):
        others = (total for number, total in enumerate(own) if number != item.correct)
        right = all(own[item.correct] - other > TIE for other in others)
        row = cells.setdefault(item.phenomenon, {})
        before = row.get(item.distance, Count(0, 0, 0.0))
        row[item.distance] = Count.sum([before, Count(int(right), 1, 1 / len(own))])
    return ContrastiveResult({name: dict(sorted(row.items())) for name, row in cells.items()})
