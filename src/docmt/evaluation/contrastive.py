"""Contrastive test sets: does a model find the right translation of a document more probable than wrong ones?

After Müller et al. 2018, "A Large-Scale Test Set for the Evaluation of Context-Aware Pronoun Translation in Neural
Machine Translation". Nothing is translated: every candidate is scored as it stands (force decoding).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from docmt.core.errors import DocmtError
from docmt.core.settings import check_fields
from docmt.documents import Document
from docmt.evaluation.asking import Each, OnItem, asked, together
from docmt.evaluation.suite_items import Item

TIE = 1e-4
"""Nats. Numbers closer than this are equal: so much the same text can differ in batches of other shapes."""
RIGHT, WRONG, TIED, MISCOUNTED, UNANSWERED = "+-=?!"
"""An answer, as a character. All but the first are wrong; miscounted: the model gave another number of sentences than
the source has, so that nobody knows which of them is the answer; unanswered: it could not score or translate the item.
"""
NORMAL = 1.959964
"""Standard deviations on each side of the mean of a normal distribution between which 95 % of it lie."""
BY_MISCOUNTING = (
    "the model gave another number of sentences than the source has, so that nobody knows which one is the answer"
)
BY_FAILING = "the model could not score or translate them"
UNKNOWN = "unknown"
"""Stands for a distance that the test set does not say."""


@dataclass(frozen=True)
class SuiteConfig:
    """How the candidates of contrastive test sets are compared.

    The published protocols differ: the consistency sets and ContraPro compare sums, others means over tokens, and the
    two disagree where candidates are of different lengths. The sum over all sentences is the probability of the
    document, and needs no choice of what belongs to the question: what follows may depend on it, too.
    """

    normalization: Literal["sum", "mean"] = "sum"
    """candidates compare by the sum of the log-probabilities of their tokens, or by the mean, which favours neither
    short nor long ones"""
    sentences: Literal["all", "deciding"] = "all"
    """which sentences count: all of the document, or only the one that is decided (in published sets the last)"""

    def __post_init__(self) -> None:
        check_fields(self, "candidates.")


class _Sentence(Protocol):
    @property
    def score(self) -> float: ...

    @property
    def tokens(self) -> int: ...


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
    """how many a model that guesses has right on average; 0 where nobody can guess"""
    ties: int = 0
    """items, all wrong, in which the right candidate is as probable as the best wrong one"""
    miscounted: int = 0
    """items, all wrong, of which nobody knows which sentence of the translation is the answer"""
    unanswered: int = 0
    """items, all wrong, that the model could not score or translate"""

    @property
    def accuracy(self) -> float:
        """Share of right answers, 0 to 1."""
        return self.correct / self.total

    @property
    def chance(self) -> float:
        """Share of right answers of a model that guesses, 0 to 1."""
        return self.guessed / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Between which shares the accuracy over all such items lies, at 95 % confidence (Wilson 1927)."""
        n, p, z = self.total, self.accuracy, NORMAL
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(middle - half, 0.0), min(middle + half, 1.0)

    def to_json(self) -> dict[str, Any]:
        """The counts with both shares and the confidence interval; of guessing None where nobody can guess."""
        guessing = {"guessed": self.guessed or None, "chance": self.chance or None}
        return {**asdict(self), "accuracy": self.accuracy, **guessing, "interval": list(self.interval)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Count:
        """The inverse of `to_json`."""
        others = (int(values.get(name, 0)) for name in ("ties", "miscounted", "unanswered"))
        return cls(int(values["correct"]), int(values["total"]), float(values["guessed"] or 0), *others)

    @classmethod
    def sum(cls, counts: Iterable[Count]) -> Count:
        """The counts of all of them together."""
        own = list(counts)
        names = ("correct", "total", "ties", "miscounted", "unanswered")
        correct, total, *others = (sum(getattr(count, name) for count in own) for name in names)
        return cls(correct, total, math.fsum(count.guessed for count in own), *others)

    @classmethod
    def of(cls, items: Iterable[Item], answers: Iterable[str]) -> Count:
        """The count of the answers to these items."""
        pairs = list(zip(items, answers, strict=True))
        guessed = math.fsum(item.chance for item, _ in pairs)
        kinds = (RIGHT, TIED, MISCOUNTED, UNANSWERED)
        right, *others = ([answer for _, answer in pairs].count(kind) for kind in kinds)
        return cls(right, len(pairs), guessed, *others)


@dataclass(frozen=True)
class Said:
    """What a model said where a form was expected."""

    id: str
    """of the item"""
    expected: str
    translation: str | None
    """of the sentence that was asked for; None where the model could not translate"""


@dataclass(frozen=True)
class ContrastiveResult:
    """How many items were right, by phenomenon and distance."""

    cells: Mapping[str, Mapping[int | None, Count]]
    """phenomena in the order of the test set, distances from the nearest on, unknown ones last"""
    labels: Mapping[str, Count] = field(default_factory=dict)
    """by what else the test set tells items apart by, such as the pronoun"""
    answers: str = ""
    """a character for each item: + right, - wrong, = wrong by a tie, ? wrong as sentences are miscounted, ! wrong as
    the model could not score or translate it"""
    said: Sequence[Said] = ()
    """of generative items, each"""

    @property
    def all(self) -> Count:
        """All items together."""
        return Count.sum(self.of(phenomenon) for phenomenon in self.cells)

    def of(self, phenomenon: str) -> Count:
        """All items of a phenomenon."""
        return Count.sum(self.cells[phenomenon].values())

    def distances(self) -> list[int | None]:
        """All distances, from the nearest on."""
        return sorted({distance for row in self.cells.values() for distance in row}, key=nearest_first)

    def to_json(self) -> dict[str, Any]:
        """Counts and shares in types that JSON has; of generative items also what was said, as `items`."""
        phenomena = {
            name: {
                **self.of(name).to_json(),
                "distances": {distance_name(distance): count.to_json() for distance, count in row.items()},
            }
            for name, row in self.cells.items()
        }
        labels = {name: count.to_json() for name, count in self.labels.items()}
        found = {**self.all.to_json(), "phenomena": phenomena, "labels": labels, "answers": self.answers}
        items = [{**asdict(own), "answer": answer} for own, answer in zip(self.said, self.answers, strict=False)]
        return {**found, "items": items} if items else found

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ContrastiveResult:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        return cls(
            {
                name: {
                    None if distance == UNKNOWN else int(distance): Count.from_json(count)
                    for distance, count in row["distances"].items()
                }
                for name, row in values["phenomena"].items()
            },
            {name: Count.from_json(count) for name, count in values.get("labels", {}).items()},
            str(values.get("answers", "")),
            tuple(Said(item["id"], item["expected"], item["translation"]) for item in values.get("items", ())),
        )

    def format(self) -> str:
        """A table for people: percent right (of how many items) by phenomenon and distance, and what guessing gives.

        Of all items of a phenomenon the confidence interval and the number of ties as well.
        """
        distances = [distance for distance in self.distances() if distance is not None]
        rows = [["", "chance", *(f"distance {distance}" for distance in distances), "all", "", "ties"]]
        for name, row in self.cells.items():
            cells = [_cell(row[distance]) if distance in row else "-" for distance in distances]
            rows.append([name or "(no name)", *_whole(self.of(name), cells)])
        if len(self.cells) > 1:
            columns = [
                Count.sum(row[distance] for row in self.cells.values() if distance in row) for distance in distances
            ]
            rows.append(["all", *_whole(self.all, map(_cell, columns))])
        blank = ["-"] * len(distances)
        rows += [[f"({label})", *_whole(count, blank)] for label, count in self.labels.items()]
        lines = list(aligned(rows))
        for count, reason in ((self.all.miscounted, BY_MISCOUNTING), (self.all.unanswered, BY_FAILING)):
            if count:
                lines.append(f"{count:,} of {self.all.total:,} items are wrong as {reason}")
        return "\n".join(lines)


def _cell(count: Count) -> str:
    return f"{100 * count.accuracy:.1f} ({count.total:,})"


def _whole(count: Count, cells: Iterable[str]) -> list[str]:
    """The cells of a row after its name, with those of a count of all in the row."""
    chance = f"{100 * count.chance:.1f}" if count.guessed else "-"
    return [chance, *cells, _cell(count), in_brackets(count.interval), f"{count.ties:,}"]


def in_brackets(interval: tuple[float, float]) -> str:
    """An interval of shares, in percent."""
    return "[{:.1f}, {:.1f}]".format(*(100 * share for share in interval))


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, its first column to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])


def distance_name(distance: int | None) -> str:
    """A distance in words."""
    return UNKNOWN if distance is None else str(distance)


def nearest_first(distance: int | None) -> float:
    """A key to sort distances by: those that are not known stand last."""
    return math.inf if distance is None else distance


def evaluate_items(
    scorer: Scorer,
    items: Sequence[Item],
    config: SuiteConfig | None = None,
    on_item: OnItem = lambda number, scored: None,
    each: Each = together,
) -> ContrastiveResult:
    """Scores every candidate of every item and counts how often the right one is best.

    on_item: hears of the first candidate, whose source is that of all. each: what does not raise the DocmtError of an
    item leaves it unanswered, which is wrong.
    """
    config = config or SuiteConfig()
    totals: list[list[float] | None] = []
    lengths: list[int] = []
    for number, item, scored in asked(items, partial(_scored, scorer), each):
        if isinstance(scored, DocmtError):
            on_item(number, scored)
            totals.append(None)
            lengths.append(1)
            continue
        if scored:
            on_item(number, scored[0])
        worths = [_worth(candidate, item, config) for candidate in scored]
        totals.append([score / length for score, length in worths])
        lengths.append(max((length for _, length in worths), default=1))
    return count_right(items, totals, lengths)


def _scored(scorer: Scorer, items: Sequence[Item]) -> list[list[_Scored]]:
    """The candidates of each item, all scored together."""
    pairs: list[tuple[Document | str, Document | str]] = []
    for item in items:
        source = Document.from_sentences(item.source, id=item.id)
        pairs += [(source, Document.from_sentences(candidate, id=item.id)) for candidate in item.candidates]
    scored = iter(scorer.score_all(pairs, limited=False))
    return [[next(scored) for _ in item.candidates] for item in items]


def _worth(scored: _Scored, item: Item, config: SuiteConfig) -> tuple[float, int]:
    """The log-probability of what counts of a document, and what it is divided by."""
    counted = scored.sentences if config.sentences == "all" else [scored.sentences[item.sentence]]
    length = sum(sentence.tokens for sentence in counted) if config.normalization == "mean" else 1
    return math.fsum(sentence.score for sentence in counted), max(length, 1)


def count_right(
    items: Sequence[Item], totals: Sequence[Sequence[float] | None], lengths: Sequence[int] | None = None
) -> ContrastiveResult:
    """Compares the candidates of each item by their worth: log-probabilities (nats), or these divided by `lengths`.

    Of an item that the model could not score there is None.

    An item is right where its right candidate is more probable than every other one: a tie is wrong, as a model that
    gives two answers the same probability does not know the right one, and so is a number that is none.
    """
    divided = lengths or [1] * len(items)
    answers = [_answer(item, own, TIE / length) for item, own, length in zip(items, totals, divided, strict=True)]
    return result_of(items, "".join(answers))


def _answer(item: Item, totals: Sequence[float] | None, tie: float) -> str:
    if totals is None:
        return UNANSWERED
    ahead = [totals[item.correct] - totals[number] for number in item.wrong]
    if ahead and all(margin > tie for margin in ahead):
        return RIGHT
    return WRONG if any(not margin >= -tie for margin in ahead) else TIED


def result_of(items: Sequence[Item], answers: str) -> ContrastiveResult:
    """The answers to all items, counted."""

    def counted(numbers: Sequence[int]) -> Count:
        return Count.of((items[number] for number in numbers), (answers[number] for number in numbers))

    places: dict[str, dict[int | None, list[int]]] = {}
    labels: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        places.setdefault(item.phenomenon, {}).setdefault(item.distance, []).append(number)
        if item.label:
            labels.setdefault(item.label, []).append(number)
    cells = {
        name: {distance: counted(row[distance]) for distance in sorted(row, key=nearest_first)}
        for name, row in places.items()
    }
    return ContrastiveResult(cells, {label: counted(labels[label]) for label in sorted(labels)}, answers)
