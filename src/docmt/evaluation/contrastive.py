"""Accuracy on contrastive and generative test suites.

Contrastive items are scored, not translated (Müller et al. 2018, "A Large-Scale Test Set for the Evaluation of
Context-Aware Pronoun Translation in Neural Machine Translation"). Generative items are translated (ctxPro; Wicks and
Post 2023, "Identifying Context-Dependent Translations for Evaluation Set Production"). A translation is right if it has
the expected form as a word, in any case. Correct paraphrases count as wrong, so accuracies compare systems but do not
measure how often one is right.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, takewhile
from typing import TYPE_CHECKING, Any, Literal

from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.core.settings import CheckedSettings
from docmt.documents import Document
from docmt.evaluation.significance import SIGNIFICANCE_LEVEL, sign_p_value
from docmt.evaluation.suites import SuiteItem

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_PUNCTUATION = re.compile(r"^[^\w'’]+|[^\w'’]+$")
ITEMS_AT_ONCE = 512
"""Items that are scored or translated together."""
OnItem = Callable[[int, Any], object]
"""Callback with the number of an item and its translation (of the first candidate) or DocmtError."""
RIGHT, WRONG, TIED, MISCOUNTED, UNANSWERED, NEITHER = "+-=?!."
"""Answers as characters. All but the first are wrong. Miscounted: the model generated another number of sentences than
the source has, so the tested one is unknown. Unanswered: the model could not score or translate the item. Neither: the
translation has the form of no candidate.
"""
NORMAL_QUANTILE = 1.959964
"""97.5 % quantile of the standard normal distribution, for two-sided 95 % intervals."""
TIE = 1e-4
"""Differences below this (nats) are ties: scores of equal text vary this much with the shape of the batch."""
INDENT = "  "
NOTES = (
    "percent of items answered correctly, with 95 % confidence intervals (Wilson); ties are wrong",
    "intervals and p-values assume independent items: with several items from one document or film, the intervals are "
    "too narrow and the p-values too small",
)
SIGNIFICANCE_NOTE = (
    f"p < {SIGNIFICANCE_LEVEL:g} (paired exact sign test over items, McNemar); of many rows some are marked by chance"
)
WRONG_REASONS = {
    "miscounted": "the model generated another number of sentences than the source has",
    "unanswered": "the model could not score or translate them",
    "neither": "the translation has the form of no candidate",
}
"""Reasons why items are wrong, by fields of `AnswerCounts` that have a table line if there are such items."""
RowKind = Literal["suite", "phenomenon", "distance", "label"]


@dataclass(frozen=True)
class SuiteConfig(CheckedSettings, prefix="contrastive."):
    """Comparison of the candidates of contrastive test sets.

    Published protocols differ: the consistency sets and ContraPro compare sums, others means over tokens. The two
    disagree if candidates have different lengths. The sum over all sentences is the probability of the document,
    including later sentences that depend on the tested one.
    """

    normalization: Literal["sum", "mean"] = "sum"
    """compare candidates by the sum or the mean of their token log-probabilities"""
    sentences: Literal["all", "deciding"] = "all"
    """sentences that count: all of the document, or only the tested one"""


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of correct and wrong answers."""

    correct: int
    total: int
    guessed: float
    """expected number of correct answers by guessing; 0 for generative items"""
    ties: int = 0
    """wrong items whose right candidate is as probable as the best wrong one"""
    miscounted: int = 0
    """wrong items whose translation has another number of sentences than the source"""
    unanswered: int = 0
    """wrong items that the model could not score or translate"""
    neither: int = 0
    """wrong items whose translation has the form of no candidate"""

    @property
    def accuracy(self) -> float:
        """Share of correct answers, 0 to 1."""
        return self.correct / self.total

    @property
    def chance(self) -> float:
        """Expected share of correct answers by guessing, 0 to 1."""
        return self.guessed / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the accuracy (Wilson 1927)."""
        n, p, z = self.total, self.accuracy, NORMAL_QUANTILE
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        half_width = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(center - half_width, 0.0), min(center + half_width, 1.0)

    def to_json(self) -> dict[str, Any]:
        """Return counts, shares and the interval as JSON values. Guessing is None for generative items."""
        guessing = {"guessed": self.guessed or None, "chance": self.chance or None}
        return {**asdict(self), "accuracy": self.accuracy, **guessing, "interval": list(self.interval)}


@dataclass(frozen=True)
class GeneratedForm:
    """Translation of a generative item, beside the expected form."""

    id: str
    """id of the item"""
    expected: str
    translation: str | None
    """translation of the tested sentence; None if the model could not translate it"""


@dataclass(frozen=True)
class MarkedScore:
    """Log-probability of the marked tokens of an item."""

    score: float
    """nats"""
    tokens: int


@dataclass(frozen=True)
class ContrastiveResult:
    """Answers to the items of a test suite, and their counts by phenomenon, distance and label."""

    items: Sequence[SuiteItem]
    answers: str = ""
    """one character per item: + right, - wrong, = tie, ? miscounted, ! unanswered"""
    generated: Sequence[GeneratedForm] = ()
    """translations of items"""
    marked: Sequence[MarkedScore | None] = field(default=(), compare=False)
    """scores of the marked tokens of the right candidates"""

    def count(self, numbers: Iterable[int]) -> AnswerCounts:
        """Count the answers to the items with these numbers."""
        pairs = [(self.answers[number], self.items[number].chance) for number in numbers]
        answers = [answer for answer, _ in pairs]
        correct, *wrong = (answers.count(kind) for kind in (RIGHT, TIED, MISCOUNTED, UNANSWERED, NEITHER))
        return AnswerCounts(correct, len(pairs), math.fsum(chance for _, chance in pairs), *wrong)

    @property
    def overall(self) -> AnswerCounts:
        """Counts of all items."""
        return self.count(range(len(self.items)))

    @property
    def cells(self) -> dict[str, dict[int | None, AnswerCounts]]:
        """Counts by phenomenon (in suite order) and distance (nearest first, unknown last)."""
        rows, _ = group_items(self.items)
        return {name: {distance: self.count(group) for distance, group in row.items()} for name, row in rows.items()}

    @property
    def labels(self) -> dict[str, AnswerCounts]:
        """Counts by label, such as the pronoun."""
        return {label: self.count(numbers) for label, numbers in group_items(self.items)[1].items()}

    def phenomenon_counts(self, phenomenon: str) -> AnswerCounts:
        """Return the counts of all items of a phenomenon."""
        return self.count(number for number, item in enumerate(self.items) if item.phenomenon == phenomenon)

    def to_json(self) -> dict[str, Any]:
        """Return counts and shares as JSON values, with the translations of generative items as `items`."""
        phenomena = {}
        for name, row in self.cells.items():
            distances = {distance_name(distance): count.to_json() for distance, count in row.items()}
            phenomena[name] = {**self.phenomenon_counts(name).to_json(), "distances": distances}
        labels = {name: count.to_json() for name, count in self.labels.items()}
        result = {**self.overall.to_json(), "phenomena": phenomena, "labels": labels, "answers": self.answers}
        pairs = zip(self.generated, self.answers, strict=False)
        items = [{**asdict(form), "answer": answer} for form, answer in pairs]
        return {**result, "items": items} if items else result


def distance_name(distance: int | None) -> str:
    """Return the printed name of a distance, which a test set may leave out."""
    return "unknown" if distance is None else str(distance)


def pair_sides(source: Sequence[str], target: Sequence[str], id: str = "") -> tuple[Document, Document]:
    """Return both sides of a document that is scored."""
    return Document.from_sentences(source, id=id), Document.from_sentences(target, id=id)


def evaluate_items(
    translator: Translator,
    items: Sequence[SuiteItem],
    config: SuiteConfig = SuiteConfig(),
    on_item: OnItem | None = None,
    *,
    context: bool = True,
    noise_seed: int | None = None,
) -> ContrastiveResult:
    """Score every candidate of every item and count how often the right one is best.

    on_item: called for every item. With it an item that fails counts as unanswered, without it the error is raised.
    context: whether sentences see the other sentences of their documents. noise_seed: noise replaces the sentences
    around the tested one (`ContextNoise`), which alone counts.
    """
    if noise_seed is not None:
        config = replace(config, sentences="deciding")

    def score_group(group: Sequence[SuiteItem]) -> list[list[Translation]]:
        pairs = [pair_sides(item.source, candidate, item.id) for item in group for candidate in item.candidates]
        noise = None
        if noise_seed is not None:
            from docmt.model.embeddings import ContextNoise  # imported here: it needs torch

            noise = ContextNoise([item.sentence for item in group for _ in item.candidates], noise_seed)
        results = iter(translator.score_all(pairs, free_at_limit=False, context=context, noise=noise))
        return [[next(results) for _ in item.candidates] for item in group]

    answers, marked = "", list[MarkedScore | None]()
    for item, result in _results(items, score_group, on_item):
        if isinstance(result, DocmtError):
            answers += UNANSWERED
            marked.append(None)
            continue
        marked.append(score_marked(item, result))
        totals = [_total_score(candidate, item, config) for candidate in result]
        tie = TIE / max(length for _, length in totals)
        answers += grade_item(item, [total / length for total, length in totals], tie)
    return ContrastiveResult(items, answers, marked=marked)


def evaluate_translations(
    translator: Translator, items: Sequence[SuiteItem], on_item: OnItem | None = None
) -> ContrastiveResult:
    """Translate every item with its context and count how often the expected form occurs.

    For contrastive items the forms are the words in which the candidates differ, and the one that comes first counts.
    on_item: see `evaluate_items`.
    """

    def translate_group(group: Sequence[SuiteItem]) -> list[list[Translation]]:
        documents = [Document.from_sentences(item.source, id=item.id) for item in group]
        return [[translation] for translation in translator.translate_all(documents)]

    answers, generated = "", []
    for item, result in _results(items, translate_group, on_item):
        answers += UNANSWERED if isinstance(result, DocmtError) else _grade_translation(item, result[0])
        text = None if isinstance(result, DocmtError) else result[0].sentences[item.sentence].target
        generated.append(GeneratedForm(item.id, item.expected or find_forms(item)[0], text))
    # Nobody guesses among candidates here.
    return ContrastiveResult([replace(item, candidates=()) for item in items], answers, tuple(generated))


def _results(
    items: Sequence[SuiteItem], work: Callable[[Sequence[SuiteItem]], list[list[Translation]]], on_item: OnItem | None
) -> Iterator[tuple[SuiteItem, list[Translation] | DocmtError]]:
    """Yield every item with its translations or, if there is `on_item`, its error. Items run in groups."""
    for first in range(0, len(items), ITEMS_AT_ONCE):
        group = items[first : first + ITEMS_AT_ONCE]
        results = work(group) if on_item is None else map_or_error(group, work)
        for number, (item, result) in enumerate(zip(group, results, strict=True), first):
            if on_item is not None:
                on_item(number, result if isinstance(result, DocmtError) else result[0])
            yield item, result


def _grade_translation(item: SuiteItem, translation: Translation) -> str:
    """Return the answer of a generative item, miscounted if the tested sentence cannot be told from its neighbours."""
    if any(first <= item.sentence < last and last - first > 1 for first, last in translation.miscounted):
        return MISCOUNTED
    sentence = translation.sentences[item.sentence].target
    if not item.candidates:
        return RIGHT if has_form(sentence, item.expected) else WRONG
    # Of forms that begin at one place, the longest is there.
    right, *wrong = ((_find_form(sentence, form), -len(form)) for form in find_forms(item))
    if min(right, *wrong)[0] == math.inf:
        return NEITHER
    return RIGHT if right < min(wrong, default=(math.inf, 0)) else WRONG


def find_marked(right: Sequence[Any], wrong: Sequence[Sequence[Any]]) -> range:
    """Return the positions of the tokens of the right candidate that a wrong one does not share at its ends.

    Wrong candidates that share all of them count only if all do.
    """
    spans = []
    for other in wrong:
        start = _common_length(right, other)
        spans.append((start, len(right) - _common_length(right[start:][::-1], other[start:][::-1])))
    marked = [(start, end) for start, end in spans if start < end]
    return range(min(start for start, _ in marked), max(end for _, end in marked)) if marked else range(0)


def _common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def score_marked(item: SuiteItem, candidates: Sequence[Translation]) -> MarkedScore | None:
    """Return the score of the marked tokens of an item, whose candidates were scored; None if it has none."""
    tested = [candidate.sentences[item.sentence] for candidate in candidates]
    right = tested[item.correct]
    marked = find_marked(right.token_ids, [tested[number].token_ids for number in item.wrong])
    return MarkedScore(sum(right.token_scores[marked.start : marked.stop]), len(marked)) if marked else None


def find_forms(item: SuiteItem) -> list[str]:
    """Return the words of the right candidate that a wrong one does not share at its ends, and those of each wrong one.

    "Elles dorment." and "Ils dorment." give "Elles" and "Ils". No form is empty, or has punctuation at its ends.
    """
    right, *wrong = (item.candidates[number][item.sentence].split() for number in (item.correct, *item.wrong))
    marked = find_marked(right, wrong) or range(len(right))
    first, after = marked.start, len(right) - marked.stop
    while True:
        texts = [" ".join(words[first : len(words) - after]) for words in (right, *wrong)]
        forms = [_PUNCTUATION.sub("", text) or text for text in texts]
        if all(forms) or not (first or after):
            return forms
        # A candidate that only adds words has a neighbour of them in its form.
        first, after = (first - 1, after) if first else (first, after - 1)


def has_form(sentence: str, form: str) -> bool:
    """Return whether the form occurs in the sentence as a whole word, in any case and with any apostrophe.

    An elided form ("t'") precedes a word without a blank. Both texts are compared in Unicode NFC, and blanks around
    the form are ignored.
    """
    return _find_form(sentence, form) < math.inf


def _find_form(sentence: str, form: str) -> float:
    """Return the position of the first occurrence of a form, infinity if there is none; see `has_form`."""
    text, word = (unicodedata.normalize("NFC", string).replace("’", "'").strip() for string in (sentence, form))
    start = r"(?<!\w)" if re.match(r"\w", word) else ""
    end = r"(?!\w)" if re.search(r"\w$", word) else ""
    match = re.search(start + re.escape(word) + end, text, re.IGNORECASE)
    return match.start() if match else math.inf


def _total_score(scored: Translation, item: SuiteItem, config: SuiteConfig) -> tuple[float, int]:
    """Return the log-probability of the counted sentences of a candidate, and its divisor."""
    counted = scored.sentences if config.sentences == "all" else [scored.sentences[item.sentence]]
    length = sum(sentence.tokens for sentence in counted) if config.normalization == "mean" else 1
    return math.fsum(sentence.score for sentence in counted), max(length, 1)


def grade_item(item: SuiteItem, scores: Sequence[float], tie: float = TIE) -> str:
    """Compare the candidates of an item by their scores, such as log-probabilities (nats).

    The answer is right if the right candidate is more probable than every other one. Ties and NaN are wrong.
    """
    margins = [scores[item.correct] - scores[number] for number in item.wrong]
    if margins and all(margin > tie for margin in margins):
        return RIGHT
    return WRONG if any(not margin >= -tie for margin in margins) else TIED


def group_items(items: Sequence[SuiteItem]) -> tuple[dict[str, dict[int | None, list[int]]], dict[str, list[int]]]:
    """Return item numbers by phenomenon and distance (nearest first, unknown last), and by label."""
    cells = {}
    for phenomenon, numbers in group_pairs((item.phenomenon, number) for number, item in enumerate(items)).items():
        row = group_pairs((items[number].distance, number) for number in numbers)
        cells[phenomenon] = dict(sorted(row.items(), key=lambda pair: math.inf if pair[0] is None else pair[0]))
    labels = group_pairs((item.label, number) for number, item in enumerate(items) if item.label)
    return cells, dict(sorted(labels.items()))


@dataclass(frozen=True)
class SuiteRow:
    """Table row: answer counts of each system on a group of items."""

    suite: str
    by: RowKind
    """property that the items share"""
    phenomenon: str | None
    """None: all phenomena"""
    distance: int | None
    """None: all distances or, in a row by distance, unknown"""
    label: str | None
    counts: tuple[AnswerCounts, ...]
    """counts of each system"""
    p_values: tuple[float, ...]
    """p-value of each system's difference from the first system (1 for the first)"""

    @property
    def name(self) -> str:
        """Printed name of the row."""
        names = {
            "suite": self.suite,
            "phenomenon": INDENT + (self.phenomenon or "(no name)"),
            "distance": f"{INDENT * 2}distance {distance_name(self.distance)}",
            "label": f"{INDENT}({self.label})",
        }
        return printable(names[self.by])

    def cells(self) -> list[str]:
        """Return the table cells after the name: items, chance, and the systems."""
        first, systems = self.counts[0], []
        for count, p in zip(self.counts, self.p_values, strict=True):
            low, high = count.interval
            cell = f"{100 * count.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            if count is not first:
                cell += f" {100 * (count.accuracy - first.accuracy):+.1f}{'*' if p < SIGNIFICANCE_LEVEL else ' '}"
            systems.append(cell)
        return [f"{first.total:,}", f"{100 * first.chance:.1f}" if first.guessed else "-", *systems]

    def to_json(self, systems: Sequence[str]) -> dict[str, Any]:
        """Return the row as JSON values."""
        fields = {name: getattr(self, name) for name in ("suite", "by", "phenomenon", "distance", "label")}
        rows = [
            {"system": system, **count.to_json(), "difference": count.accuracy - self.counts[0].accuracy, "p": p}
            for system, count, p in zip(systems, self.counts, self.p_values, strict=True)
        ]
        return {**fields, "systems": rows}


def build_suite_rows(suite: str, items: Sequence[SuiteItem], results: Sequence[ContrastiveResult]) -> list[SuiteRow]:
    """Return a row for all items, one per phenomenon and distance in it, and one per label.

    results: one per system. The first system is the baseline.
    """

    def row(
        by: RowKind,
        numbers: Sequence[int],
        phenomenon: str | None,
        distance: int | None = None,
        label: str | None = None,
    ) -> SuiteRow:
        answers = ["".join(result.answers[number] for number in numbers) for result in results]
        counts = tuple(result.count(numbers) for result in results)
        p_values = tuple(sign_test(answers[0], other) for other in answers)
        return SuiteRow(suite, by, phenomenon, distance, label, counts, p_values)

    # A single phenomenon, distance or label would only repeat the row above it.
    rows = [row("suite", range(len(items)), None)]
    by_phenomenon, by_label = group_items(items)
    for phenomenon, by_distance in by_phenomenon.items():
        if len(by_phenomenon) > 1 or (phenomenon and len(by_distance) > 1):
            rows.append(row("phenomenon", sorted(chain.from_iterable(by_distance.values())), phenomenon))
        if len(by_distance) > 1:
            rows += [row("distance", numbers, phenomenon, distance) for distance, numbers in by_distance.items()]
    if len(by_label) > 1:
        rows += [row("label", numbers, None, label=label) for label, numbers in by_label.items()]
    return rows


def sign_test(first: str, other: str) -> float:
    """Return the two-sided p-value of the exact sign test over items that only one system has right (McNemar 1947).

    first, other: answers of two systems to the same items.
    """
    pairs = [(a == RIGHT, b == RIGHT) for a, b in zip(first, other, strict=True)]
    better, worse = pairs.count((False, True)), pairs.count((True, False))
    return sign_p_value(better, worse)


def _table(rows: Sequence[SuiteRow], systems: Sequence[str]) -> list[list[str]]:
    """Return a header and the rows. Counts of ties and other wrong answers follow each test set.

    Cells of systems without counts are empty.
    """
    lines = [["", "items", "chance", *systems]]
    for _, group in groupby(rows, lambda row: row.suite):
        suite_row, *subset_rows = group
        lines += [[row.name, *row.cells()] for row in (suite_row, *subset_rows)]
        for name in ("ties", *_wrong_kinds([suite_row])):
            lines.append([f"{INDENT}{name}", "", "", *(f"{getattr(count, name):,}" for count in suite_row.counts)])
    return [[*line, *[""] * (len(lines[0]) - len(line))] for line in lines]


def _wrong_kinds(rows: Sequence[SuiteRow]) -> list[str]:
    """Return the kinds of `WRONG_REASONS` that occur."""
    return [name for name in WRONG_REASONS if any(getattr(count, name) for row in rows for count in row.counts)]


def _notes(rows: Sequence[SuiteRow], systems: Sequence[str], baseline: str) -> list[str]:
    """Return explanations for a reader of the table."""
    notes = [*NOTES, f"*: different from {baseline}, {SIGNIFICANCE_NOTE}"] if len(systems) > 1 else NOTES
    return [*notes, *(f"{name}: wrong, because {WRONG_REASONS[name]}" for name in _wrong_kinds(rows))]


def suite_text(rows: Sequence[SuiteRow], systems: Sequence[str], baseline: str = "the first system") -> str:
    """Return the table as text. baseline: name of the first column in the notes."""
    lines = (line.rstrip() for line in align_columns(_table(rows, systems)))
    return "\n".join([*lines, "", *_notes(rows, systems, baseline)])


def suite_markdown(rows: Sequence[SuiteRow], systems: Sequence[str]) -> str:
    """Return the table as Markdown."""
    lines = markdown_table([[escape_markdown(cell) for cell in line] for line in _table(rows, systems)])
    notes = [f"- {escape_markdown(note)}" for note in _notes(rows, systems, "the first system")]
    return "\n".join([*lines, "", *notes]) + "\n"
