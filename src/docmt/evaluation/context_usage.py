"""Measures of how much a model uses its context, on references and on test sets.

One model scores all conditions. All log-probabilities are in nats.

- CXMI (`context_gain`): conditional cross-mutual information (Fernandes et al. 2021, "Measuring and Increasing Context
  Usage in Context-Aware Machine Translation"), log p(reference | source, context) - log p(reference | source). The
  second term uses the same passes with the context hidden: no sentence sees another one.
- Contexts (`compare_contexts`): each sentence is scored as the last one of a short document. It follows the n sentences
  before it (true), n sentences of another document (shuffled), its true context hidden (empty), or nothing (alone). A
  model that gains from true but not from shuffled context uses the content of the context. Empty and alone differ if
  positions continue through a document.
- Test sets (`compare_suite_contexts`): items are evaluated with true, empty and shuffled context, and scored ones with
  noise, too (`ContextNoise`). Items that are right without their context are right by default. The marked tokens of an
  item are those of the right candidate that a wrong one does not share: from the first token that differs to the last
  one. Their gain from context is CXMI on these tokens alone, which the many tokens that need no context do not dilute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns
from docmt.core.progress import progress_prefix
from docmt.core.settings import CheckedSettings, ranged
from docmt.documents import ParallelDocument
from docmt.documents.document import shorten
from docmt.evaluation.contrastive import (
    TIE,
    ContrastiveResult,
    MarkedScore,
    SuiteConfig,
    SuiteRow,
    build_suite_rows,
    evaluate_items,
    evaluate_translations,
    pair_sides,
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
    from docmt.decoding import Translation, Translator


@dataclass(frozen=True)
class UsageConfig(CheckedSettings, prefix="cxmi."):
    """Settings of the context usage measures."""

    replaced_sentences: int = ranged(3, 0, 1000)
    """previous sentences to replace by those of another document (0: skip)"""
    examples: int = ranged(10, 0, 1_000_000)
    """sentences to print with the largest gain from context"""


@dataclass(frozen=True)
class SentenceGain:
    """Reference sentence with its log-probability with and without document context."""

    document: str
    """document id"""
    number: int
    """position in the document, from 1"""
    source: str
    target: str
    tokens: int
    """number of scored tokens, including predicted boundary tokens"""
    with_context: float
    """log-probability (nats)"""
    without: float
    """log-probability without context (nats)"""

    @property
    def gain(self) -> float:
        """Gain in log-probability (nats) from context."""
        return self.with_context - self.without


def sentence_gains(translator: Translator, documents: Sequence[ParallelDocument]) -> list[list[SentenceGain]]:
    """Return the gains from context of each document's sentences, except those empty on both sides.

    The length limits of a search do not apply. Raises DocmtError for a sentence that is too long, and for a model
    whose scores are not numbers.
    """
    scored = score_with_and_without_context(translator, documents)
    return [document_gains(document, *pair) for document, pair in zip(documents, scored, strict=True)]


def score_with_and_without_context(
    translator: Translator, documents: Sequence[ParallelDocument]
) -> list[tuple[Translation, Translation]]:
    """Score the references of each document with and without context; see `sentence_gains`."""
    pairs = [pair_sides(each.source, each.target, each.id) for each in documents]
    with progress_prefix("with context"):
        visible = translator.score_all(pairs, free_at_limit=False, context=True)
    with progress_prefix("without context"):
        hidden = translator.score_all(pairs, free_at_limit=False, context=False)
    return list(zip(visible, hidden, strict=True))


def document_gains(document: ParallelDocument, visible: Translation, hidden: Translation) -> list[SentenceGain]:
    """Return the gains of a document scored with visible and hidden context. Skips sentences empty on both sides."""
    scores = zip(document, visible.sentences, hidden.sentences, strict=True)
    return [
        SentenceGain(document.id, number, source, target, scored.tokens, scored.score, baseline.score)
        for number, ((source, target), scored, baseline) in enumerate(scores, 1)
        if source or target
    ]


@dataclass(frozen=True)
class Gain:
    """Mean difference of log-probabilities (nats) per sentence and per token."""

    per_sentence: Estimate
    per_token: Estimate
    sentences: int
    tokens: int
    documents: int
    """documents that contain the sentences"""

    @classmethod
    def from_rows(cls, rows: NDArray[np.float64], config: SignificanceConfig) -> Gain:
        """Return the gain of rows [D, 3]: summed difference, sentences and tokens of each document."""
        statistics = np.stack([rows[:, [0, column]] for column in (1, 2)])
        per_sentence, per_token = estimate_each(statistics, ratio, config)
        return cls(per_sentence, per_token, int(rows[:, 1].sum()), int(rows[:, 2].sum()), len(rows))


def _table(gains: Mapping[str, Gain]) -> Iterator[str]:
    """Return the lines of a table of gains."""
    rows = [["", "per sentence", "per token", "sentences"]]
    for name, gain in gains.items():
        means = (mean.format(4, signed=True) for mean in (gain.per_sentence, gain.per_token))
        rows.append([name, *means, f"{gain.sentences:,}"])
    return align_columns(rows)


@dataclass(frozen=True)
class ContextGain:
    """Gain in log-probability of the references from the model's context (CXMI)."""

    overall: Gain
    examples: list[SentenceGain]
    """sentences with the largest gains, largest first"""

    def format(self) -> str:
        """Return a table of gains, and the examples."""
        documents = self.overall.documents
        intervals = "" if self.overall.per_sentence.low is None else f"; 95 % intervals over {documents} documents"
        title = f"CXMI: gain in log-probability of the reference from context (nats{intervals})"
        lines = [title, *_table({"all": self.overall}), *few_documents_notes(documents)]
        if self.examples:
            lines += ["", "largest gains"]
        for example in self.examples:
            location = f"document {example.document or '?'}, sentence {example.number}"
            lines.append(f"{example.gain:+8.3f}  {location}: {shorten(example.source)} -> {shorten(example.target)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the gains and examples as JSON values."""
        examples = [{**asdict(example), "gain": example.gain} for example in self.examples]
        return {**asdict(self.overall), "examples": examples}


def context_gain(
    gains: Iterable[Sequence[SentenceGain]],
    config: UsageConfig = UsageConfig(),
    significance: SignificanceConfig = SignificanceConfig(),
) -> ContextGain:
    """Compute CXMI from the `sentence_gains` of documents.

    significance: samples and seed of the intervals. Raises DocmtError if no document has two sentences.
    """
    documents = [sentences for sentences in gains if sentences]
    check_has_context(max(map(len, documents), default=0))
    rows = [[sum(s.gain for s in document), len(document), sum(s.tokens for s in document)] for document in documents]
    overall = Gain.from_rows(np.array(rows, dtype=np.float64), significance)
    ranked = sorted((sentence for sentences in documents for sentence in sentences), key=lambda s: -s.gain)
    examples = ranked[: config.examples]
    return ContextGain(overall, [sentence for sentence in examples if sentence.gain > 0])


def check_has_context(max_sentences: int) -> None:
    """Raise DocmtError if the longest document of a corpus has fewer than two sentences."""
    if max_sentences < 2:
        raise DocmtError("no document has two sentences, so there is no context to measure. Give whole documents")


@dataclass(frozen=True)
class ContextWindow:
    """Sentence after its true context, and after equally many sentences of another document."""

    document: int
    """number of its document, from 0"""
    source: tuple[str, ...]
    target: tuple[str, ...]
    other_source: tuple[str, ...]
    """source with all but the last sentence from another document"""
    other_target: tuple[str, ...]
    """target with all but the last sentence from another document"""


def build_windows(documents: Sequence[ParallelDocument], before: int, seed: int) -> list[ContextWindow]:
    """Return every sentence but the first of each document, with at most `before` true and shuffled previous ones.

    The other document is the next one in a random order that is long enough. Its sentences are taken up to the same
    position, or up to its end. If no other document is long enough, the window is shorter.
    Raises DocmtError if there are not two documents, or none has two sentences.
    """
    lengths = [len(document) for document in documents]
    check_has_context(max(lengths, default=0))
    if len(documents) < 2:
        raise DocmtError("there is only one document, so no other one can lend its context. Give two or more")
    second, longest = sorted(lengths)[-2:]
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(documents)), kind="stable").tolist()
    windows: list[ContextWindow] = []
    for rank, number in sorted(enumerate(order), key=lambda pair: pair[1]):
        document, others = documents[number], (order[rank - len(order) + step] for step in range(1, len(order)))
        most, other = second if lengths[number] == longest else longest, next(others)
        for position in range(1, lengths[number]):
            count = min(before, position, most)
            while lengths[other] < count:  # count never shrinks, so skipped documents stay too short
                other = next(others)
            end = min(position, lengths[other])
            context, other_context = slice(position - count, position), slice(end - count, end)
            lender, source, target = documents[other], (document.source[position],), (document.target[position],)
            true = document.source[context] + source, document.target[context] + target
            shuffled = lender.source[other_context] + source, lender.target[other_context] + target
            windows.append(ContextWindow(number, *true, *shuffled))
    return windows


@dataclass(frozen=True)
class ContextComparison:
    """Log-probabilities of the references by condition, and gains of true context."""

    before: int
    """largest number of previous sentences"""
    likelihood: dict[str, Gain]
    """log-probability (nats) of the references by condition"""
    gains: dict[str, Gain]
    """gain of true context over each other condition"""

    def format(self) -> str:
        """Return a table of log-probabilities and gains."""
        title = f"log-probability of the reference after up to {self.before} previous sentences (nats)"
        notes = few_documents_notes(self.likelihood["true"].documents)
        return "\n".join([title, *_table(self.likelihood | self.gains), *notes])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def compare_contexts(
    translator: Translator,
    documents: Sequence[ParallelDocument],
    config: UsageConfig = UsageConfig(),
    significance: SignificanceConfig = SignificanceConfig(),
) -> ContextComparison:
    """Measure the log-probability of references after true, empty, shuffled and no context.

    Scores 3 (before + 1) + 1 sentences for each window. significance: samples and seed of the intervals, and seed of
    the shuffling. Raises DocmtError for the reasons of `build_windows`.
    """
    windows = build_windows(documents, config.replaced_sentences, significance.seed)
    true = [(window.source, window.target) for window in windows]
    shuffled = [(window.other_source, window.other_target) for window in windows]
    alone = [(source[-1:], target[-1:]) for source, target in true]
    conditions = {"true": true, "empty": true, "shuffled": shuffled, "alone": alone}
    scores, tokens = {}, np.zeros(0)
    for name, sides in conditions.items():
        pairs = [pair_sides(source, target) for source, target in sides]
        with progress_prefix("no context" if name == "alone" else f"{name} context"):
            scored = translator.score_all(pairs, free_at_limit=False, context=name != "empty")
        last = [translation.sentences[-1] for translation in scored]
        scores[name] = np.array([sentence.score for sentence in last])
        if name == "true":
            tokens = np.array([sentence.tokens for sentence in last], dtype=np.float64)
    document_starts = np.flatnonzero(np.diff([window.document for window in windows], prepend=-1))

    def mean(totals: NDArray[np.float64]) -> Gain:
        rows = np.stack([totals, np.ones_like(totals), tokens], axis=1)
        return Gain.from_rows(np.add.reduceat(rows, document_starts, axis=0), significance)

    likelihood = {name: mean(totals) for name, totals in scores.items()}
    gains = {f"true - {name}": mean(scores["true"] - totals) for name, totals in scores.items() if name != "true"}
    return ContextComparison(config.replaced_sentences, likelihood, gains)


# Test sets

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
