"""Test suites: does a model find the right translation more probable than wrong ones, or say the form that is expected?

Contrastive items are scored, not translated (Müller et al. 2018, "A Large-Scale Test Set for the Evaluation of
Context-Aware Pronoun Translation in Neural Machine Translation"). Generative items are translated (ctxPro; Wicks and
Post 2023, "Identifying Context-Dependent Translations for Evaluation Set Production"): right is a translation that has
the expected form as a word, whatever its case. A translation that says it in other words is wrong, so accuracies
compare systems but do not say how often one is right.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.markdown import aligned, escaped, table
from docmt.core.options import check_fields
from docmt.documents import Document
from docmt.evaluation.significance import LEVEL, sign_p_value
from docmt.evaluation.suites import Item

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

Result = TypeVar("Result")

GROUP = 512
"""Items that are scored or translated together."""
OnItem = Callable[[int, Any], object]
"""Gets, for every item, its number and the translation (of the first candidate), or the DocmtError of a failure."""
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
INDENT = "  "
NOTES = (
    "percent of the items answered rightly, with 95 % confidence intervals (Wilson); ties are wrong",
    "intervals and p-values take items as independent: where several are of one document or film, the former are too "
    "narrow and the latter too small",
)
COMPARED = f"p < {LEVEL:g} (paired exact sign test over items, McNemar); of many rows some are so by chance"
ALSO_WRONG = {"miscounted": BY_MISCOUNTING, "unanswered": BY_FAILING}
"""Fields of `Count` that have a line of their own where there are such items, and why these are wrong."""
By = Literal["suite", "phenomenon", "distance", "label"]
Selection = tuple[By, str | None, int | None, str | None, list[int]]
"""What items are chosen by, their phenomenon, distance and label as far as they are alike, and their numbers."""


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


def distance_name(distance: int | None) -> str:
    """A distance in words."""
    return UNKNOWN if distance is None else str(distance)


def nearest_first(distance: int | None) -> float:
    """A key to sort distances by: those that are not known stand last."""
    return math.inf if distance is None else distance


def evaluate_items(
    translator: Translator,
    items: Sequence[Item],
    config: SuiteConfig | None = None,
    on_item: OnItem | None = None,
    *,
    context: bool = True,
) -> ContrastiveResult:
    """Score every candidate of every item and count how often the right one is best.

    on_item: if it is given, it is called for every item, and an item that fails is unanswered, which is wrong. Without
    it the error is raised. context: whether sentences see the others of their documents.
    """
    config = config or SuiteConfig()

    def scored(group: Sequence[Item]) -> list[list[Translation]]:
        pairs: list[tuple[Document | str, Document | str]] = []
        for item in group:
            source = Document.from_sentences(item.source, id=item.id)
            pairs += [(source, Document.from_sentences(candidate, id=item.id)) for candidate in item.candidates]
        results = iter(translator.score_all(pairs, limited=False, context=context))
        return [[next(results) for _ in item.candidates] for item in group]

    totals: list[list[float] | None] = []
    lengths: list[int] = []
    for number, (item, result) in enumerate(_results(items, scored, on_item is not None)):
        if on_item is not None:
            on_item(number, result if isinstance(result, DocmtError) else result[0])
        if isinstance(result, DocmtError):
            totals.append(None)
            lengths.append(1)
            continue
        worths = [_worth(candidate, item, config) for candidate in result]
        totals.append([score / length for score, length in worths])
        lengths.append(max(length for _, length in worths))
    return count_right(items, totals, lengths)


def evaluate_translations(
    translator: Translator, items: Sequence[Item], on_item: OnItem | None = None
) -> ContrastiveResult:
    """Translate every item after its context and count how often the expected form is there.

    on_item: as `evaluate_items` has it.
    """

    def translations(group: Sequence[Item]) -> Sequence[Translation]:
        return translator.translate_all([Document.from_sentences(item.source, id=item.id) for item in group])

    answers, said = "", []
    for number, (item, result) in enumerate(_results(items, translations, on_item is not None)):
        if on_item is not None:
            on_item(number, result)
        answers += _form_answer(item, result)
        text = None if isinstance(result, DocmtError) else result.sentences[item.sentence].target
        said.append(Said(item.id, item.expected, text))
    return replace(result_of(items, answers), said=tuple(said))


def _results(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]], go_on: bool
) -> Iterator[tuple[Item, Result | DocmtError]]:
    """Yield every item with its result, some at a time; go_on: whether an item that fails yields its error."""
    for first in range(0, len(items), GROUP):
        group = items[first : first + GROUP]
        yield from zip(group, map_or_error(group, work) if go_on else work(group), strict=True)


def _form_answer(item: Item, translation: Translation | DocmtError) -> str:
    """Where the model gave another number of sentences for several, nobody knows which of them is the one asked for."""
    if isinstance(translation, DocmtError):
        return UNANSWERED
    if any(first <= item.sentence < last and last - first > 1 for first, last in translation.miscounted):
        return MISCOUNTED
    return RIGHT if has_form(translation.sentences[item.sentence].target, item.expected) else WRONG


def has_form(sentence: str, form: str) -> bool:
    """Whether the form stands in the sentence as a word of its own, in any case, with any apostrophe.

    An elided form ("t'") stands before a word without a blank. Accents are the same whether they are written with
    their letter or after it (Unicode's NFC), and blanks around the form are none of it.
    """
    plain, wanted = (unicodedata.normalize("NFC", text).replace("’", "'").strip() for text in (sentence, form))
    before = r"(?<!\w)" if re.match(r"\w", wanted) else ""
    after = r"(?!\w)" if re.search(r"\w$", wanted) else ""
    return re.search(before + re.escape(wanted) + after, plain, re.IGNORECASE) is not None


def _worth(scored: Translation, item: Item, config: SuiteConfig) -> tuple[float, int]:
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


@dataclass(frozen=True)
class Row:
    """Some items of a test set, and how many each system had right."""

    suite: str
    by: By
    """what its items have in common"""
    phenomenon: str | None
    """None: of all"""
    distance: int | None
    """None: of all, or (by distance) not known"""
    label: str | None
    counts: tuple[Count, ...]
    """of each system"""
    p_values: tuple[float, ...]
    """of the difference of each system from the first, which is 1 for the first"""

    @property
    def name(self) -> str:
        """What the rows of a table say, in the order of `rows_of`."""
        names = {
            "suite": self.suite,
            "phenomenon": INDENT + (self.phenomenon or "(no name)"),
            "distance": f"{INDENT * 2}distance {distance_name(self.distance)}",
            "label": f"{INDENT}({self.label})",
        }
        return printable(names[self.by])

    def cells(self) -> list[str]:
        """The cells of a table after the name: items, chance, and the systems."""
        first, found = self.counts[0], []
        for count, p in zip(self.counts, self.p_values, strict=True):
            cell = f"{100 * count.accuracy:.1f} {in_brackets(count.interval)}"
            if count is not first:
                cell += f" {100 * (count.accuracy - first.accuracy):+.1f}{'*' if p < LEVEL else ' '}"
            found.append(cell)
        return [f"{first.total:,}", f"{100 * first.chance:.1f}" if first.guessed else "-", *found]

    def to_json(self, systems: Sequence[str]) -> dict[str, Any]:
        """The row in types that JSON has."""
        own = ("suite", "by", "phenomenon", "distance", "label")
        named = {name: getattr(self, name) for name in own}
        found = [
            {"system": system, **count.to_json(), "difference": count.accuracy - self.counts[0].accuracy, "p": p}
            for system, count, p in zip(systems, self.counts, self.p_values, strict=True)
        ]
        return {**named, "systems": found}


def rows_of(suite: str, items: Sequence[Item], results: Sequence[ContrastiveResult]) -> list[Row]:
    """All items, then those of each phenomenon, within it of each distance, then those of each label.

    results: of each system, the first of which the others are compared with.
    """
    answers = [result.answers for result in results]
    rows = []
    for by, phenomenon, distance, label, numbers in _selections(items):
        own = ["".join(given[number] for number in numbers) for given in answers]
        counts = tuple(Count.of((items[number] for number in numbers), given) for given in own)
        tests = tuple(sign_test(own[0], other) for other in own)
        rows.append(Row(suite, by, phenomenon, distance, label, counts, tests))
    return rows


def _selections(items: Sequence[Item]) -> Iterator[Selection]:
    """The items of each row; what has but one kind has no rows for it."""
    everything = list(range(len(items)))
    yield "suite", None, None, None, everything
    phenomena = list(dict.fromkeys(item.phenomenon for item in items))
    for phenomenon in phenomena:
        own = [number for number in everything if items[number].phenomenon == phenomenon]
        distances = sorted({items[number].distance for number in own}, key=nearest_first)
        if len(phenomena) > 1 or (phenomenon and len(distances) > 1):
            yield "phenomenon", phenomenon, None, None, own
        for distance in distances if len(distances) > 1 else ():
            chosen = [number for number in own if items[number].distance == distance]
            yield "distance", phenomenon, distance, None, chosen
    labels = sorted({item.label for item in items} - {""})
    for label in labels if len(labels) > 1 else ():
        yield "label", None, None, label, [number for number in everything if items[number].label == label]


def sign_test(first: str, other: str) -> float:
    """The two-sided p-value of the exact sign test over items that one system has right and the other has not.

    first, other: the answers of two systems to the same items (McNemar 1947; exact: the binomial distribution).
    """
    pairs = [(one == RIGHT, two == RIGHT) for one, two in zip(first, other, strict=True)]
    won, lost = pairs.count((False, True)), pairs.count((True, False))
    return sign_p_value(won, lost)


def _table(rows: Sequence[Row], systems: Sequence[str]) -> list[list[str]]:
    """A head, the rows, and after those of each test set the ties, and what else was wrong if anything was."""
    lines = [["", "items", "chance", *systems]]
    for number, row in enumerate(rows):
        lines.append([row.name, *row.cells()])
        if number + 1 == len(rows) or rows[number + 1].suite != row.suite:
            whole = next(each for each in rows if each.suite == row.suite)
            lines.append([f"{INDENT}ties", "", "", *(f"{count.ties:,}" for count in whole.counts)])
            for name in _also_wrong([whole]):
                lines.append([f"{INDENT}{name}", "", "", *(f"{getattr(count, name):,}" for count in whole.counts)])
    return lines


def _also_wrong(rows: Sequence[Row]) -> list[str]:
    """Of the kinds of `ALSO_WRONG` those that any system has items of."""
    return [name for name in ALSO_WRONG if any(getattr(count, name) for row in rows for count in row.counts)]


def _notes(rows: Sequence[Row], systems: Sequence[str], first: str) -> list[str]:
    """What a reader of the table must know; first: what the others are compared with."""
    notes = [*NOTES, f"*: other than {first}, {COMPARED}"] if len(systems) > 1 else NOTES
    return [*notes, *(f"{name}: wrong, as {ALSO_WRONG[name]}" for name in _also_wrong(rows))]


def suite_text(rows: Sequence[Row], systems: Sequence[str], first: str = "the first system") -> str:
    """The table for people; first: what a reader knows the first column as."""
    lines = (line.rstrip() for line in aligned(_table(rows, systems)))
    return "\n".join([*lines, "", *_notes(rows, systems, first)])


def suite_markdown(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """The table in Markdown."""
    lines = table([[escaped(cell) for cell in line] for line in _table(rows, systems)])
    return "\n".join([*lines, "", *(f"- {escaped(note)}" for note in _notes(rows, systems, "the first system"))]) + "\n"
