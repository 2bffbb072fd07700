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
from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Literal

from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.plain_text import aligned, escaped, table
from docmt.core.settings import check_fields
from docmt.documents import Document
from docmt.evaluation.significance import LEVEL, sign_p_value
from docmt.evaluation.suites import Item

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

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
INDENT = "  "
NOTES = (
    "percent of the items answered rightly, with 95 % confidence intervals (Wilson); ties are wrong",
    "intervals and p-values take items as independent: where several are of one document or film, the former are too "
    "narrow and the latter too small",
)
COMPARED = f"p < {LEVEL:g} (paired exact sign test over items, McNemar); of many rows some are so by chance"
ALSO_WRONG = {
    "miscounted": "the model gave another number of sentences than the source has, so that nobody knows the answer",
    "unanswered": "the model could not score or translate them",
}
"""Fields of `Count` that have a line of their own where there are such items, and why these are wrong."""
By = Literal["suite", "phenomenon", "distance", "label"]


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
    def sum(cls, counts: Iterable[Count]) -> Count:
        """The counts of all of them together."""
        columns = zip(*map(astuple, counts), strict=True)
        return cls(*map(sum, columns))

    @classmethod
    def of(cls, items: Sequence[Item], answers: str, numbers: Sequence[int]) -> Count:
        """Return the count of the answers to the items of these numbers."""
        chosen = [answers[number] for number in numbers]
        guessed = math.fsum(items[number].chance for number in numbers)
        right, *others = (chosen.count(kind) for kind in (RIGHT, TIED, MISCOUNTED, UNANSWERED))
        return cls(right, len(chosen), guessed, *others)


@dataclass(frozen=True)
class GeneratedForm:
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
    said: Sequence[GeneratedForm] = ()
    """of generative items, each"""

    @property
    def all(self) -> Count:
        """All items together."""
        return Count.sum(self.of(phenomenon) for phenomenon in self.cells)

    def of(self, phenomenon: str) -> Count:
        """All items of a phenomenon."""
        return Count.sum(self.cells[phenomenon].values())

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


def distance_name(distance: int | None) -> str:
    """A distance in words; a test set may not say it."""
    return "unknown" if distance is None else str(distance)


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

    def scores(group: Sequence[Item]) -> list[list[Translation]]:
        pairs: list[tuple[Document | str, Document | str]] = []
        for item in group:
            source = Document.from_sentences(item.source, id=item.id)
            pairs += [(source, Document.from_sentences(candidate, id=item.id)) for candidate in item.candidates]
        results = iter(translator.score_all(pairs, free_at_limit=False, context=context))
        return [[next(results) for _ in item.candidates] for item in group]

    answers = ""
    for item, result in _results(items, scores, on_item):
        if isinstance(result, DocmtError):
            answers += UNANSWERED
            continue
        worths = [_worth(candidate, item, config) for candidate in result]
        tie = TIE / max(length for _, length in worths)
        answers += answer_of(item, [score / length for score, length in worths], tie)
    return result_of(items, answers)


def evaluate_translations(
    translator: Translator, items: Sequence[Item], on_item: OnItem | None = None
) -> ContrastiveResult:
    """Translate every item after its context and count how often the expected form is there.

    on_item: as `evaluate_items` has it.
    """

    def translations(group: Sequence[Item]) -> list[list[Translation]]:
        documents = [Document.from_sentences(item.source, id=item.id) for item in group]
        return [[translation] for translation in translator.translate_all(documents)]

    answers, said = "", []
    for item, result in _results(items, translations, on_item):
        answers += UNANSWERED if isinstance(result, DocmtError) else _form_answer(item, result[0])
        text = None if isinstance(result, DocmtError) else result[0].sentences[item.sentence].target
        said.append(GeneratedForm(item.id, item.expected, text))
    return replace(result_of(items, answers), said=tuple(said))


def _results(
    items: Sequence[Item], work: Callable[[Sequence[Item]], list[list[Translation]]], on_item: OnItem | None
) -> Iterator[tuple[Item, list[Translation] | DocmtError]]:
    """Yield every item with its translations or, where `on_item` is told, its error; some are computed at a time."""
    for first in range(0, len(items), GROUP):
        group = items[first : first + GROUP]
        results = work(group) if on_item is None else map_or_error(group, work)
        for number, (item, result) in enumerate(zip(group, results, strict=True), first):
            if on_item is not None:
                on_item(number, result if isinstance(result, DocmtError) else result[0])
            yield item, result


def _form_answer(item: Item, translation: Translation) -> str:
    """Where the model gave another number of sentences for several, nobody knows which of them is the one asked for."""
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


def answer_of(item: Item, totals: Sequence[float], tie: float = TIE) -> str:
    """Compare the candidates of an item by their worth, such as log-probabilities (nats).

    It is right where its right candidate is more probable than every other one: a tie is wrong, as a model that gives
    two answers the same probability does not know the right one, and so is a number that is none.
    """
    ahead = [totals[item.correct] - totals[number] for number in item.wrong]
    if ahead and all(margin > tie for margin in ahead):
        return RIGHT
    return WRONG if any(not margin >= -tie for margin in ahead) else TIED


def result_of(items: Sequence[Item], answers: str) -> ContrastiveResult:
    """The answers to all items, counted."""
    by_phenomenon, by_label = _grouped(items)
    cells = {
        phenomenon: {distance: Count.of(items, answers, numbers) for distance, numbers in row.items()}
        for phenomenon, row in by_phenomenon.items()
    }
    labels = {label: Count.of(items, answers, numbers) for label, numbers in by_label.items()}
    return ContrastiveResult(cells, labels, answers)


def _grouped(items: Sequence[Item]) -> tuple[dict[str, dict[int | None, list[int]]], dict[str, list[int]]]:
    """Return the numbers of the items by phenomenon and distance (nearest first, unknown last), and by label."""
    cells: dict[str, dict[int | None, list[int]]] = {}
    labels: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        cells.setdefault(item.phenomenon, {}).setdefault(item.distance, []).append(number)
        if item.label:
            labels.setdefault(item.label, []).append(number)
    ordered = {
        phenomenon: {distance: row[distance] for distance in sorted(row, key=lambda d: math.inf if d is None else d)}
        for phenomenon, row in cells.items()
    }
    return ordered, dict(sorted(labels.items()))


@dataclass(frozen=True)
class SuiteRow:
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
            low, high = count.interval
            cell = f"{100 * count.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            if count is not first:
                cell += f" {100 * (count.accuracy - first.accuracy):+.1f}{'*' if p < LEVEL else ' '}"
            found.append(cell)
        return [f"{first.total:,}", f"{100 * first.chance:.1f}" if first.guessed else "-", *found]

    def to_json(self, systems: Sequence[str]) -> dict[str, Any]:
        """The row in types that JSON has."""
        named = {name: getattr(self, name) for name in ("suite", "by", "phenomenon", "distance", "label")}
        found = [
            {"system": system, **count.to_json(), "difference": count.accuracy - self.counts[0].accuracy, "p": p}
            for system, count, p in zip(systems, self.counts, self.p_values, strict=True)
        ]
        return {**named, "systems": found}


def rows_of(suite: str, items: Sequence[Item], results: Sequence[ContrastiveResult]) -> list[SuiteRow]:
    """All items, then those of each phenomenon, within it of each distance, then those of each label.

    results: of each system, the first of which the others are compared with.
    """

    def row(
        by: By, numbers: Sequence[int], phenomenon: str | None, distance: int | None = None, label: str | None = None
    ) -> SuiteRow:
        answers = ["".join(result.answers[number] for number in numbers) for result in results]
        counts = tuple(Count.of(items, result.answers, numbers) for result in results)
        tests = tuple(sign_test(answers[0], other) for other in answers)
        return SuiteRow(suite, by, phenomenon, distance, label, counts, tests)

    # What has but one kind has no rows for it.
    rows = [row("suite", range(len(items)), None)]
    by_phenomenon, by_label = _grouped(items)
    for phenomenon, by_distance in by_phenomenon.items():
        if len(by_phenomenon) > 1 or (phenomenon and len(by_distance) > 1):
            rows.append(row("phenomenon", sorted(chain.from_iterable(by_distance.values())), phenomenon))
        if len(by_distance) > 1:
            rows += [row("distance", numbers, phenomenon, distance) for distance, numbers in by_distance.items()]
    if len(by_label) > 1:
        rows += [row("label", numbers, None, label=label) for label, numbers in by_label.items()]
    return rows


def sign_test(first: str, other: str) -> float:
    """The two-sided p-value of the exact sign test over items that one system has right and the other has not.

    first, other: the answers of two systems to the same items (McNemar 1947; exact: the binomial distribution).
    """
    pairs = [(one == RIGHT, two == RIGHT) for one, two in zip(first, other, strict=True)]
    won, lost = pairs.count((False, True)), pairs.count((True, False))
    return sign_p_value(won, lost)


def _table(rows: Sequence[SuiteRow], systems: Sequence[str]) -> list[list[str]]:
    """A head, the rows, and after those of each test set the ties, and what else was wrong if anything was."""
    lines = [["", "items", "chance", *systems]]
    for _, group in groupby(rows, lambda row: row.suite):
        whole, *parts = group
        lines += [[row.name, *row.cells()] for row in (whole, *parts)]
        for name in ("ties", *_also_wrong([whole])):
            lines.append([f"{INDENT}{name}", "", "", *(f"{getattr(count, name):,}" for count in whole.counts)])
    return lines


def _also_wrong(rows: Sequence[SuiteRow]) -> list[str]:
    """Of the kinds of `ALSO_WRONG` those that any system has items of."""
    return [name for name in ALSO_WRONG if any(getattr(count, name) for row in rows for count in row.counts)]


def _notes(rows: Sequence[SuiteRow], systems: Sequence[str], first: str) -> list[str]:
    """What a reader of the table must know; first: what the others are compared with."""
    notes = [*NOTES, f"*: other than {first}, {COMPARED}"] if len(systems) > 1 else NOTES
    return [*notes, *(f"{name}: wrong, as {ALSO_WRONG[name]}" for name in _also_wrong(rows))]


def suite_text(rows: Sequence[SuiteRow], systems: Sequence[str], first: str = "the first system") -> str:
    """The table for people; first: what a reader knows the first column as."""
    lines = (line.rstrip() for line in aligned(_table(rows, systems)))
    return "\n".join([*lines, "", *_notes(rows, systems, first)])


def suite_markdown(rows: Sequence[SuiteRow], systems: Sequence[str]) -> str:
    """The table in Markdown."""
    lines = table([[escaped(cell) for cell in line] for line in _table(rows, systems)])
    return "\n".join([*lines, "", *(f"- {escaped(note)}" for note in _notes(rows, systems, "the first system"))]) + "\n"
