"""Measures of how much a model uses its context, on references.

One model scores all conditions. All log-probabilities are in nats.

- CXMI (`context_gain`): conditional cross-mutual information (Fernandes et al. 2021, "Measuring and Increasing Context
  Usage in Context-Aware Machine Translation"), log p(reference | source, context) - log p(reference | source). The
  second term uses the same passes with the context hidden: no sentence sees another one.
- Contexts (`compare_contexts`): each sentence is scored as the last one of a short document. It follows the n sentences
  before it (true), n sentences of another document (shuffled), its true context hidden (empty), or nothing (alone). A
  model that gains from true but not from shuffled context uses the content of the context. Empty and alone differ if
  positions continue through a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns
from docmt.core.progress import progress_prefix
from docmt.core.settings import check_fields, ranged
from docmt.documents import Document, ParallelDocument
from docmt.documents.document import shorten
from docmt.evaluation.significance import Estimate, SignificanceConfig, estimate_each, few_documents_notes, ratio

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator


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
        pairs = [(Document.from_sentences(source), Document.from_sentences(target)) for source, target in sides]
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
