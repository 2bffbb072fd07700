"""How much a model uses its context: what the context of a sentence adds to the log-probability of its reference.

Conditional cross-mutual information (CXMI; Fernandes et al. 2021, "Measuring and Increasing Context Usage in
Context-Aware Machine Translation"): log p(reference | source, context) - log p(reference | source), with one model for
both, as theirs is, whose context is hidden for the second: the same passes are made, and no sentence sees another one.
All log-probabilities are in nats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.settings import check_fields, ranged
from docmt.documents import Document, ParallelDocument
from docmt.documents.document import shorten
from docmt.evaluation.contrastive import aligned
from docmt.evaluation.estimates import Estimate, estimate, ratio, too_few
from docmt.evaluation.positions import NAMES, bucket
from docmt.evaluation.significance import SignificanceConfig

CONDITIONS = ("true", "empty", "shuffled")
"""Contexts that are compared: the sentence's own, none, and another document's."""


@dataclass(frozen=True)
class UsageConfig:
    """How the use of context is measured."""

    before: int = ranged(3, 0, 1000)
    """sentences before each that are replaced by those of another document, to see whether it matters which they are
    (0: this is not measured)"""
    translate: bool = False
    """also translate each sentence after its own sentences before, after those of another document and after none, and
    compare the BLEU: searches 2 * (before + 1) + 1 sentences for each"""
    examples: int = ranged(10, 0, 1_000_000)
    """sentences with the largest gain from their context that are shown"""

    def __post_init__(self) -> None:
        check_fields(self, "usage.")
        if self.translate and not self.before:
            raise DocmtError("usage.translate needs sentences before each: set usage.before above 0, or leave it out")


class _Sentence(Protocol):
    @property
    def score(self) -> float: ...

    @property
    def target(self) -> str: ...

    @property
    def tokens(self) -> int: ...


class Scored(Protocol):
    """A `docmt.Translation`."""

    @property
    def sentences(self) -> Sequence[_Sentence]: ...

    @property
    def miscounted(self) -> Sequence[tuple[int, int]]: ...

    @property
    def at_limit(self) -> Sequence[int]: ...

    @property
    def overlong(self) -> Sequence[int]: ...


class ContextScorer(Protocol):
    """What scores given translations with and without their context: a `docmt.Translator`."""

    def score_all(
        self, pairs: Sequence[tuple[Document | str, Document | str]], limited: bool = True, context: bool = True
    ) -> Sequence[Scored]: ...

    def translate_all(self, documents: Sequence[Document | str]) -> Sequence[Scored]: ...


@dataclass(frozen=True)
class SentenceGain:
    """A reference sentence, and how probable it is with and without the other sentences of its document."""

    document: str
    """its id"""
    number: int
    """its place in the document, from 1"""
    source: str
    target: str
    tokens: int
    """whose log-probabilities are summed: its words, as the model has them, and the marks that it predicts"""
    with_context: float
    """log-probability (nats)"""
    without: float

    @property
    def gain(self) -> float:
        """What the context adds to the log-probability (nats)."""
        return self.with_context - self.without

    def to_json(self) -> dict[str, Any]:
        """All of it, with the gain."""
        return {**asdict(self), "gain": self.gain}


def sentence_gains(scorer: ContextScorer, documents: Sequence[ParallelDocument]) -> list[list[SentenceGain]]:
    """Of each document all sentences that are not empty on both sides, with what their context adds.

    Limits of length of a search do not count: the end of a sentence costs what it costs. Raises DocmtError where a
    sentence cannot fit, and for a model whose scores are not numbers.
    """
    scored = scored_twice(scorer, documents)
    return [gains_of(document, *both) for document, both in zip(documents, scored, strict=True)]


def scored_twice(scorer: ContextScorer, documents: Sequence[ParallelDocument]) -> list[tuple[Scored, Scored]]:
    """The references of each document as they are scored with and without context, as `sentence_gains` has it."""
    pairs = [
        (Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in documents
    ]
    seen, hidden = (scorer.score_all(pairs, limited=False, context=context) for context in (True, False))
    return list(zip(seen, hidden, strict=True))


def gains_of(document: ParallelDocument, seen: Scored, hidden: Scored) -> list[SentenceGain]:
    """What context adds to the sentences of a document that was scored twice, but for those empty on both sides."""
    scores = zip(document, seen.sentences, hidden.sentences, strict=True)
    return [
        SentenceGain(document.id, number, source, target, ours.tokens, ours.score, theirs.score)
        for number, ((source, target), ours, theirs) in enumerate(scores, 1)
        if source or target
    ]


@dataclass(frozen=True)
class Gain:
    """A difference of log-probabilities (nats), on average over sentences and over tokens."""

    per_sentence: Estimate
    per_token: Estimate
    sentences: int
    tokens: int
    documents: int
    """that have any of the sentences"""

    @classmethod
    def of(cls, rows: NDArray[np.float64], config: SignificanceConfig) -> Gain:
        """rows [D, 3]: of each document that has any sentences the summed difference, the sentences and the tokens."""
        per_sentence, per_token = (estimate(rows[:, [0, column]], ratio, config) for column in (1, 2))
        return cls(per_sentence, per_token, int(rows[:, 1].sum()), int(rows[:, 2].sum()), len(rows))

    def cells(self) -> list[str]:
        """For a table."""
        return [self.per_sentence.format(4, signed=True), self.per_token.format(4, signed=True), f"{self.sentences:,}"]

    def to_json(self) -> dict[str, Any]:
        """Both means with their intervals, and of how many sentences, tokens and documents."""
        return asdict(self)


@dataclass(frozen=True)
class ContextGain:
    """What the model's own context adds to the log-probability of the references (CXMI)."""

    all: Gain
    by_position: dict[str, Gain]
    """by the place of the sentences in their documents"""
    examples: list[SentenceGain]
    """those with the largest gains, largest first"""
    documents: int

    def format(self) -> str:
        """Tables for people."""
        places = {f"sentence {name}": gain for name, gain in self.by_position.items()}
        rows = [["", "per sentence", "per token", "sentences"], ["all", *self.all.cells()]]
        rows += [[name, *gain.cells()] for name, gain in places.items()]
        intervals = "" if self.all.per_sentence.low is None else f"; 95 % intervals over {self.documents} documents"
        lines = [
            f"CXMI: what context adds to the log-probability of the reference (nats{intervals})",
            "\n".join(aligned(rows)),
            *too_few(self.documents, {name: gain.documents for name, gain in places.items()}),
        ]
        if self.examples:
            lines += ["", "largest gains"]
        for own in self.examples:
            place = f"document {own.document or '?'}, sentence {own.number}"
            lines.append(f"{own.gain:+8.3f}  {place}: {shorten(own.source)} -> {shorten(own.target)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            **self.all.to_json(),
            "documents": self.documents,
            "by_position": {name: gain.to_json() for name, gain in self.by_position.items()},
            "examples": [own.to_json() for own in self.examples],
        }


def context_gain(
    found: Iterable[Sequence[SentenceGain]],
    config: UsageConfig | None = None,
    significance: SignificanceConfig | None = None,
) -> ContextGain:
    """CXMI of documents whose sentences were scored (`sentence_gains`).

    significance: samples and seed of the intervals. Raises DocmtError where no document has two sentences, so that
    none has a context.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    documents = [own for own in found if own]
    check_context(max(map(len, documents), default=0))
    by_bucket: dict[int, list[list[SentenceGain]]] = {}
    for own in documents:
        for number in sorted({bucket(sentence.number) for sentence in own}):
            by_bucket.setdefault(number, []).append([s for s in own if bucket(s.number) == number])
    ranked = sorted((sentence for own in documents for sentence in own), key=lambda sentence: -sentence.gain)
    return ContextGain(
        Gain.of(_rows(documents), significance),
        {NAMES[number]: Gain.of(_rows(own), significance) for number, own in sorted(by_bucket.items())},
        [sentence for sentence in ranked[: config.examples] if sentence.gain > 0],
        len(documents),
    )


def check_context(most_sentences: int) -> None:
    """Raises DocmtError for a corpus whose longest document has fewer than two sentences."""
    if most_sentences < 2:
        raise DocmtError(
            "no document has two sentences, so there is no context to measure: give whole documents, with borders only "
            "between them"
        )


def _rows(documents: Sequence[Sequence[SentenceGain]]) -> NDArray[np.float64]:
    """[D, 3] the gain, sentences and tokens of each document."""
    return np.array(
        [[sum(s.gain for s in own), len(own), sum(s.tokens for s in own)] for own in documents], dtype=np.float64
    )
