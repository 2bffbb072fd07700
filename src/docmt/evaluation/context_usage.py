"""Measures of how much a model uses its context.

One model scores all conditions. All log-probabilities are in nats.

- CXMI (`context_gain`): conditional cross-mutual information (Fernandes et al. 2021, "Measuring and Increasing Context
  Usage in Context-Aware Machine Translation"), log p(reference | source, context) - log p(reference | source). The
  second term uses the same passes with the context hidden: no sentence sees another one.
- Contexts (`compare_contexts`): each sentence is scored as the last one of a short document. It follows the n sentences
  before it (true), n sentences of another document (shuffled), its true context hidden (empty), or nothing (alone). A
  model that gains from true but not from shuffled context uses the content of the context. Empty and alone differ if
  positions continue through a document.
- Test suites (`compare_suite_contexts`): true, empty and shuffled context for items of a suite, and noise for scored
  ones (`ContextNoise`). Items that are right without their context are right by default. The gain on the tokens in
  which candidates differ is measured alone (`marked_tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns
from docmt.core.progress import progress_prefix
from docmt.core.settings import check_fields, ranged
from docmt.documents import Document, ParallelDocument
from docmt.documents.document import shorten
from docmt.evaluation.contrastive import (
    ContrastiveResult,
    SuiteConfig,
    SuiteRow,
    build_suite_rows,
    evaluate_items,
    evaluate_translations,
)
from docmt.evaluation.marked_tokens import MarkedTokens, compare_marked
from docmt.evaluation.significance import Estimate, SignificanceConfig, estimate, few_documents_notes, ratio
from docmt.evaluation.suites import SuiteItem, remove_sentence
from docmt.evaluation.system_comparison import BUCKET_NAMES, bucket_numbers

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

CONDITIONS = ("true", "empty", "shuffled")
"""Compared contexts: the true one, none, and that of another document or item."""
SCORED_CONDITIONS = (*CONDITIONS, "noise")
"""Contexts of contrastive items that are scored. A search after noise would read its own translations of it."""


@dataclass(frozen=True)
class UsageConfig:
    """Settings of the context usage measures."""

    replaced_sentences: int = ranged(3, 0, 1000)
    """previous sentences to replace by those of another document (0: skip)"""
    examples: int = ranged(10, 0, 1_000_000)
    """sentences to print with the largest gain from context"""

    def __post_init__(self) -> None:
        check_fields(self, "cxmi.")


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
    pairs = [
        (Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in documents
    ]
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
        per_sentence, per_token = (estimate(rows[:, [0, column]], ratio, config) for column in (1, 2))
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
    by_position: dict[str, Gain]
    """gains by sentence position in the document"""
    examples: list[SentenceGain]
    """sentences with the largest gains, largest first"""
    documents: int

    def format(self) -> str:
        """Return a table of gains, and the examples."""
        by_position = {f"sentence {name}": gain for name, gain in self.by_position.items()}
        intervals = "" if self.overall.per_sentence.low is None else f"; 95 % intervals over {self.documents} documents"
        lines = [
            f"CXMI: gain in log-probability of the reference from context (nats{intervals})",
            *_table({"all": self.overall, **by_position}),
            *few_documents_notes(self.documents, {name: gain.documents for name, gain in by_position.items()}),
        ]
        if self.examples:
            lines += ["", "largest gains"]
        for example in self.examples:
            location = f"document {example.document or '?'}, sentence {example.number}"
            lines.append(f"{example.gain:+8.3f}  {location}: {shorten(example.source)} -> {shorten(example.target)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the gains and examples as JSON values."""
        return {
            **asdict(self.overall),
            "documents": self.documents,
            "by_position": {name: asdict(gain) for name, gain in self.by_position.items()},
            "examples": [{**asdict(example), "gain": example.gain} for example in self.examples],
        }


def context_gain(
    gains: Iterable[Sequence[SentenceGain]],
    config: UsageConfig | None = None,
    significance: SignificanceConfig | None = None,
) -> ContextGain:
    """Compute CXMI from the `sentence_gains` of documents.

    significance: samples and seed of the intervals. Raises DocmtError if no document has two sentences.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    documents = [sentences for sentences in gains if sentences]
    check_has_context(max(map(len, documents), default=0))
    by_bucket: dict[int, list[list[SentenceGain]]] = {}
    for sentences in documents:
        for number, group in groupby(sentences, lambda sentence: int(bucket_numbers(sentence.number))):
            by_bucket.setdefault(number, []).append(list(group))
    ranked = sorted((sentence for sentences in documents for sentence in sentences), key=lambda s: -s.gain)
    return ContextGain(
        Gain.from_rows(_rows(documents), significance),
        {
            BUCKET_NAMES[number]: Gain.from_rows(_rows(groups), significance)
            for number, groups in sorted(by_bucket.items())
        },
        [sentence for sentence in ranked[: config.examples] if sentence.gain > 0],
        len(documents),
    )


def check_has_context(max_sentences: int) -> None:
    """Raise DocmtError if the longest document of a corpus has fewer than two sentences."""
    if max_sentences < 2:
        raise DocmtError("no document has two sentences, so there is no context to measure. Give whole documents")


def _rows(documents: Sequence[Sequence[SentenceGain]]) -> NDArray[np.float64]:
    """Return [D, 3] the gain, sentences and tokens of each document."""
    rows = [[sum(s.gain for s in document), len(document), sum(s.tokens for s in document)] for document in documents]
    return np.array(rows, dtype=np.float64)


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
        others = (documents[order[(rank + step) % len(order)]] for step in range(1, len(order)))
        max_before = min(before, max(second, 1) if lengths[number] == longest else longest)
        windows += _document_windows(documents[number], number, others, max_before)
    return windows


def _document_windows(
    document: ParallelDocument, number: int, others: Iterator[ParallelDocument], max_before: int
) -> Iterator[ContextWindow]:
    """Yield the windows of one document. The other documents are tried in order until one is long enough."""
    other = next(others)
    for position in range(1, len(document)):
        count = min(max_before, position)
        while len(other) < count:  # count never shrinks, so skipped documents stay too short
            other = next(others)
        end = min(position, len(other))
        context, other_context = slice(position - count, position), slice(end - count, end)
        yield ContextWindow(
            number,
            source=(*document.source[context], document.source[position]),
            target=(*document.target[context], document.target[position]),
            other_source=(*other.source[other_context], document.source[position]),
            other_target=(*other.target[other_context], document.target[position]),
        )


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
    config: UsageConfig | None = None,
    significance: SignificanceConfig | None = None,
) -> ContextComparison:
    """Measure the log-probability of references after true, empty, shuffled and no context.

    Scores 3 (before + 1) + 1 sentences for each window. significance: samples and seed of the intervals, and seed of
    the shuffling. Raises DocmtError for the reasons of `build_windows`.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    windows = build_windows(documents, config.replaced_sentences, significance.seed)
    true = [_document_pair(window.source, window.target) for window in windows]
    shuffled = [_document_pair(window.other_source, window.other_target) for window in windows]
    alone = [_document_pair(window.source[-1:], window.target[-1:]) for window in windows]
    conditions = {"true": (true, True), "empty": (true, False), "shuffled": (shuffled, True), "alone": (alone, True)}
    last = {}
    for name, (pairs, context) in conditions.items():
        with progress_prefix("no context" if name == "alone" else f"{name} context"):
            scored = translator.score_all(pairs, free_at_limit=False, context=context)
        last[name] = [translation.sentences[-1] for translation in scored]
    scores = {name: np.array([sentence.score for sentence in sentences]) for name, sentences in last.items()}
    tokens = np.array([sentence.tokens for sentence in last["true"]], dtype=np.float64)
    document_starts = np.flatnonzero(np.diff([window.document for window in windows], prepend=-1))

    def mean(totals: NDArray[np.float64]) -> Gain:
        rows = np.stack([totals, np.ones_like(totals), tokens], axis=1)
        return Gain.from_rows(np.add.reduceat(rows, document_starts, axis=0), significance)

    return ContextComparison(
        config.replaced_sentences,
        {name: mean(totals) for name, totals in scores.items()},
        {f"true - {name}": mean(scores["true"] - totals) for name, totals in scores.items() if name != "true"},
    )


def _document_pair(source: Sequence[str], target: Sequence[str]) -> tuple[Document, Document]:
    return Document.from_sentences(source), Document.from_sentences(target)


OnItem = Callable[[str, int, Any], object]
"""Callback with a condition, the number of an item, and its translation or DocmtError."""


@dataclass(frozen=True)
class SuiteContextComparison:
    """Results of the same items with true, empty and shuffled context, and with noise if they are scored."""

    items: Sequence[SuiteItem]
    results: dict[str, ContrastiveResult]
    """results by condition"""
    skipped: int
    """items without a shuffled context: their candidates have different contexts, or no other item has as many
    sentences before and after the tested one"""
    marked: MarkedTokens | None = None
    """gain from context on the tokens in which candidates differ"""
    translated: dict[str, ContrastiveResult] = field(default_factory=dict)
    """answers of contrastive items by their translations, by condition"""

    def rows(self, name: str) -> list[SuiteRow]:
        """Return table rows with the conditions as columns. name: name of the test set."""
        rows = build_suite_rows(name, self.items, list(self.results.values()))
        if self.translated:
            items = [replace(item, candidates=()) for item in self.items]
            rows += build_suite_rows(f"{name}, translated", items, list(self.translated.values()))
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
    config: SuiteConfig | None = None,
    significance: SignificanceConfig | None = None,
    on_item: OnItem | None = None,
    *,
    translate: bool = False,
) -> SuiteContextComparison:
    """Evaluate items with their context, with none, with the context of another item, and with noise if scored.

    config: comparison of candidates. significance: its seed draws items and noise. on_item: see `evaluate_items`.
    translate: whether to translate contrastive items, too. Raises DocmtError if no item has a context, or no two items
    can exchange theirs.
    """
    significance = significance or SignificanceConfig()
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

    config = config or SuiteConfig()
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
            "no two items can exchange their contexts: they need equal sentence counts before and after the tested "
            "sentence, different texts, and one context for all candidates. Give a larger test set"
        )
    return shuffled


def swap_contexts(items: Sequence[SuiteItem], seed: int) -> list[SuiteItem | None]:
    """Return each item with the context of another one with equal sentence counts before and after the tested sentence.

    The other item is the next one in a random order with another source context. The target context is that of its
    right candidate. None if there is no such item.
    """
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(items)), kind="stable").tolist()
    groups: dict[tuple[int, int], list[int]] = {}
    for number in order:
        groups.setdefault((len(items[number].source), items[number].sentence), []).append(number)
    swapped: list[SuiteItem | None] = [None] * len(items)
    for numbers in groups.values():
        for rank, number in enumerate(numbers):
            item = items[number]
            others = (items[i] for i in (*numbers[rank + 1 :], *numbers[:rank]))
            context = remove_sentence(item.source, item.sentence)
            donor = next((other for other in others if remove_sentence(other.source, item.sentence) != context), None)
            swapped[number] = _replace_context(item, donor) if donor else None
    return swapped


def _replace_context(item: SuiteItem, donor: SuiteItem) -> SuiteItem:
    """Return the tested sentence of an item in the context of another item."""
    tested = item.sentence

    def insert(sentences: tuple[str, ...], context: tuple[str, ...]) -> tuple[str, ...]:
        return (*context[:tested], sentences[tested], *context[tested + 1 :])

    candidates = tuple(insert(candidate, donor.candidates[donor.correct]) for candidate in item.candidates)
    return replace(item, source=insert(item.source, donor.source), candidates=candidates)
