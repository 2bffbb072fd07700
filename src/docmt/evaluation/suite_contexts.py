"""Test sets with other contexts than their true one, and what the context adds to the tokens that decide an item.

Items are evaluated with true, empty and shuffled context, and scored ones with noise, too (`ContextNoise`). Items that
are right without their context are right by default.

The marked tokens of an item are those of the right candidate that a wrong one does not share: from the first token that
differs to the last one. Their gain from context is CXMI on these tokens alone (Fernandes et al. 2021), which the many
tokens that need no context do not dilute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns
from docmt.core.progress import progress_prefix
from docmt.evaluation.contrastive import (
    TIE,
    ContrastiveResult,
    MarkedScore,
    SuiteConfig,
    SuiteRow,
    build_suite_rows,
    evaluate_items,
    evaluate_translations,
)
from docmt.evaluation.significance import (
    Estimate,
    SignificanceConfig,
    estimate_each,
    few_documents_notes,
    randomization,
    ratio,
    sampled_p_value,
)
from docmt.evaluation.suites import SuiteItem, remove_sentence

if TYPE_CHECKING:
    from docmt.decoding import Translator

CONDITIONS = ("true", "empty", "shuffled")
"""Compared contexts: the true one, none, and that of another document or item."""
SCORED_CONDITIONS = (*CONDITIONS, "noise")
"""Contexts of contrastive items that are scored. A search after noise would read its own translations of it."""
OnItem = Callable[[str, int, Any], object]
"""Callback with a condition, the number of an item, and its translation or DocmtError."""


@dataclass(frozen=True)
class SuiteContextComparison:
    """Results of the same items with true, empty and shuffled context, and with noise if they are scored."""

    items: Sequence[SuiteItem]
    results: dict[str, ContrastiveResult]
    """results by condition"""
    skipped: int
    """items without a shuffled context: they have none, their candidates have different ones, or the others have too
    few sentences before or after the tested one"""
    marked: MarkedTokens | None = None
    """gain from context on the tokens in which candidates differ"""
    translated: dict[str, ContrastiveResult] = field(default_factory=dict)
    """answers of contrastive items by their translations, by condition"""

    def rows(self, name: str) -> list[SuiteRow]:
        """Return table rows with the conditions as columns. name: name of the test set."""
        rows = build_suite_rows(name, self.items, list(self.results.values()))
        if self.translated:
            rows += build_suite_rows(f"{name}, translated", self.items, list(self.translated.values()))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the results, and the number of skipped items as `left_out`, as JSON values."""
        content = {"left_out": self.skipped, **{name: result.to_json() for name, result in self.results.items()}}
        content |= {"marked_tokens": self.marked.to_json()} if self.marked else {}
        translated = {name: result.to_json() for name, result in self.translated.items()}
        return {**content, "translated": translated} if translated else content


def compare_suite_contexts(
    translator: Translator,
    items: Sequence[SuiteItem],
    config: SuiteConfig = SuiteConfig(),
    significance: SignificanceConfig = SignificanceConfig(),
    on_item: OnItem | None = None,
    *,
    translate: bool = False,
) -> SuiteContextComparison:
    """Evaluate items with their context, with none, with the context of another item, and with noise if scored.

    config: comparison of candidates. significance: its seed draws items and noise. on_item: see `evaluate_items`.
    translate: whether to translate contrastive items, too. Raises DocmtError if no item has a context, or no two items
    can exchange theirs.
    """
    shuffled = shuffle_contexts(items, significance.seed)
    numbers = list(shuffled)
    true = [items[number] for number in numbers]

    def evaluate(condition: str, is_translated: bool = False) -> ContrastiveResult:
        inputs = list(shuffled.values()) if condition == "shuffled" else true
        name = f"{condition}, translated" if is_translated else condition
        callback = None if on_item is None else lambda index, result: on_item(name, numbers[index], result)
        with progress_prefix(f"{condition} context"):
            if true[0].candidates and not is_translated:
                seed = significance.seed if condition == "noise" else None
                seen = condition != "empty"
                return evaluate_items(translator, inputs, config, callback, context=seen, noise_seed=seed)
            if condition == "empty":
                inputs = [_drop_context(item) for item in true]
            return evaluate_translations(translator, inputs, callback)

    # With noise the tested sentence alone counts. Means over other sentences, too, would not compare with that.
    has_noise = bool(true[0].candidates) and not (config.normalization == "mean" and config.sentences == "all")
    conditions = SCORED_CONDITIONS if has_noise else CONDITIONS
    results = {condition: evaluate(condition) for condition in conditions}
    translated, marked = dict[str, ContrastiveResult](), None
    if true[0].candidates:
        marked = compare_marked(true, {name: result.marked for name, result in results.items()}, significance)
        translated = {condition: evaluate(condition, True) for condition in CONDITIONS} if translate else {}
    return SuiteContextComparison(true, results, len(items) - len(true), marked, translated)


def _drop_context(item: SuiteItem) -> SuiteItem:
    """Return an item with the tested sentence alone."""
    candidates = tuple((candidate[item.sentence],) for candidate in item.candidates)
    return replace(item, source=(item.source[item.sentence],), candidates=candidates, sentence=0)


def shuffle_contexts(items: Sequence[SuiteItem], seed: int) -> dict[int, SuiteItem]:
    """Return items with the context of another item, by item number. Items without a match are left out.

    Raises DocmtError if no item has a context, or no two items can exchange theirs.
    """
    if not any(item.has_context for item in items):
        raise DocmtError("no item has a context, so there is none to measure. Give items of several sentences")
    # If candidates had different contexts, one shared context could remove their difference.
    comparable = [
        number
        for number, item in enumerate(items)
        if len({remove_sentence(candidate, item.sentence) for candidate in item.candidates}) <= 1
    ]
    swapped = swap_contexts([items[number] for number in comparable], seed)
    shuffled = {number: item for number, item in zip(comparable, swapped, strict=True) if item}
    if not shuffled:
        raise DocmtError(
            "no two items can exchange their contexts: they need sentences on the same side of the tested sentence, "
            "different texts, and one context for all candidates. Give a larger test set"
        )
    return shuffled


def swap_contexts(items: Sequence[SuiteItem], seed: int) -> list[SuiteItem | None]:
    """Return each item with another source context, in which the target is that of the right candidate.

    It is that of the next item in a random order with equal sentence counts before and after the tested sentence. If
    there is none, that of a longer one is cut at its far ends, and those of several shorter ones are joined. None if
    all others together are too short.
    """
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(items)), kind="stable").tolist()
    shapes = [(item.sentence, len(item.source) - item.sentence - 1) for item in items]
    swapped = list[SuiteItem | None]()
    for number, item in enumerate(items):
        rank, (before, after) = order.index(number), shapes[number]
        others = [*order[rank + 1 :], *order[:rank]]
        equal = (other for other in others if shapes[other] == (before, after))
        longer = (other for other in others if shapes[other][0] >= before and shapes[other][1] >= after)
        swapped.append(_borrow_context(item, (items[other] for other in chain(equal, longer, others))))
    return swapped


def _borrow_context(item: SuiteItem, donors: Iterable[SuiteItem]) -> SuiteItem | None:
    """Return the tested sentence of an item in the context of the first donors, or None if they are too short."""
    tested, count = item.sentence, len(item.source)
    true_context = remove_sentence(item.source, tested)
    pairs = list[tuple[str, ...]]()  # source and target
    place = 0  # of the tested sentence among them
    for donor in donors:
        lent = list(zip(donor.source, *donor.candidates[donor.correct :][:1], strict=True))
        before = [*lent[: donor.sentence], *pairs[:place]][-tested:] if tested else []
        after = [*pairs[place:], *lent[donor.sentence + 1 :]][: count - tested - 1]
        sources = tuple(pair[0] for pair in (*before, *after))
        if sources == true_context:
            continue
        pairs, place = [*before, *after], len(before)
        if len(pairs) == len(true_context):
            targets = tuple(pair[-1] for pair in pairs)
            candidates = tuple(_insert(each[tested], targets, tested) for each in item.candidates)
            return replace(item, source=_insert(item.source[tested], sources, tested), candidates=candidates)
    return None


def _insert(sentence: str, context: Sequence[str], place: int) -> tuple[str, ...]:
    """Return a sentence in its context."""
    return (*context[:place], sentence, *context[place:])


@dataclass(frozen=True)
class MarkedDifference:
    """Gain of true context over another one, per item (nats)."""

    gain: Estimate
    """with its interval over documents"""
    p_value: float
    """of paired approximate randomization over documents"""


@dataclass(frozen=True)
class MarkedTokens:
    """Log-probabilities of the marked tokens by condition, and the gains of true context (nats per item)."""

    items: int
    tokens: int
    documents: int
    left_out: int
    """items without marked tokens, or without a finite score in a condition"""
    likelihood: Mapping[str, Estimate]
    gains: Mapping[str, MarkedDifference]
    """by the other condition"""

    def format(self) -> str:
        """Return a table."""
        title = (
            f"log-probability of the marked tokens (nats; {self.items:,} items, {self.tokens:,} tokens; 95 % intervals "
            f"over {self.documents:,} documents; p: randomization)"
        )
        rows = [["", "per item", "p"], *([name, value.format(4), ""] for name, value in self.likelihood.items())]
        for name, difference in self.gains.items():
            rows.append([f"true - {name}", difference.gain.format(4, signed=True), f"{difference.p_value:.4f}"])
        left_out = [f"{self.left_out:,} items without marked tokens or scores are left out"] if self.left_out else []
        return "\n".join([title, *align_columns(rows), *left_out, *few_documents_notes(self.documents)])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def compare_marked(
    items: Sequence[SuiteItem], scores: Mapping[str, Sequence[MarkedScore | None]], config: SignificanceConfig
) -> MarkedTokens | None:
    """Compare the marked tokens in conditions, the true one first. None if no item has marked tokens in all of them.

    Scores of an item that differ by less than TIE from the true condition count as equal to it.
    """
    by_item = enumerate(zip(*scores.values(), strict=True))
    numbers = [number for number, values in by_item if all(value and isfinite(value.score) for value in values)]
    if not numbers:
        return None
    keys = [items[number].document or number for number in numbers]  # without a name: a document of its own
    rows = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    statistics, true = np.zeros((len(scores), len(rows), 2)), next(iter(scores.values()))
    for condition, values in zip(statistics, scores.values(), strict=True):
        for key, number in zip(keys, numbers, strict=True):
            value, right = values[number], true[number]
            assert value is not None and right is not None
            condition[rows[key]] += right.score if abs(value.score - right.score) < TIE else value.score, 1
    drawn = randomization(statistics, ratio, config.samples, config.seed)[0]
    estimates = estimate_each(statistics[0] - statistics * [1, 0], ratio, config)
    gains = {
        name: MarkedDifference(gain, sampled_p_value(samples, abs(gain.value)))
        for name, gain, samples in list(zip(scores, estimates, drawn, strict=True))[1:]
    }
    tokens = sum(value.tokens for number in numbers if (value := true[number]))
    likelihood = dict(zip(scores, estimate_each(statistics, ratio, config), strict=True))
    return MarkedTokens(len(numbers), tokens, len(rows), len(items) - len(numbers), likelihood, gains)
