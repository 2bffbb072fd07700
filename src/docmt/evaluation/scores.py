"""Scores of sacreBLEU with what they are made of: counts for each segment, of which any sum can be scored.

Notation: G segments of a metric (sentences, documents or instances), K sufficient statistics of a segment, * any shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.evaluation.config import MetricConfig

Statistics: TypeAlias = NDArray[Any]
"""Whole numbers; those of TER are decimal, as the lengths of several references are averaged."""
Scores: TypeAlias = NDArray[np.float64]

ORDERS = 4
"""of the n-grams of BLEU"""
BETA = 2
"""how much more recall weighs than precision in chrF"""
_AT_ONCE = 50
"""sentences of which TER counts the edits, in one or two seconds, before the next sign of progress"""


@dataclass(frozen=True)
class MetricScore:
    """The score of a corpus in one metric, 0 to 100 (TER may be above), and what it was computed from.

    statistics: [G, K], a row for each segment; `from_sums` scores a sum of rows as sacreBLEU does, `from_many_sums`
    many sums at once ([*, K] -> [*]), the same up to the last digits. documents: [G], the document of each segment.
    """

    score: float
    signature: str
    name: str
    statistics: Statistics = field(repr=False, compare=False)
    documents: NDArray[np.int64] = field(repr=False, compare=False)
    from_sums: Callable[[Statistics], float] = field(repr=False, compare=False)
    from_many_sums: Callable[[Statistics], Scores] = field(repr=False, compare=False)
    lower_is_better: bool = False

    @property
    def segments(self) -> int:
        return len(self.statistics)

    def of_segments(self, segments: NDArray[np.int64]) -> float:
        """The score of the corpus made of these segments (indices, repetitions allowed), to resample."""
        return self.from_sums(self.statistics[segments].sum(axis=0))

    def by_document(self, count: int, chosen: NDArray[np.bool_] | slice = slice(None)) -> Statistics:
        """[D, K], the statistics of the (chosen) segments of each document summed.

        count: D, as a last one may be empty; chosen: [G].
        """
        summed = np.zeros((count, self.statistics.shape[1]), self.statistics.dtype)
        np.add.at(summed, self.documents[chosen], self.statistics[chosen])
        return summed

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "score": self.score,
            "signature": self.signature,
            "segments": self.segments,
        }


@dataclass(frozen=True)
class Segments:
    """What a metric compares: G hypotheses, and G segments of each reference.

    unit: what the segments are where the metric itself could not tell (d-BLEU of documents or of instances).
    """

    hypotheses: list[str]
    references: list[list[str]]
    documents: NDArray[np.int64]
    unit: str | None = None

    def score(
        self,
        name: str,
        metric: BLEU | CHRF | TER,
        from_sums: Callable[[Statistics], float],
        from_many_sums: Callable[[Statistics], Scores],
        more: str | None = None,
    ) -> MetricScore:
        """The score in a metric of sacreBLEU; `more`: the form of the text, for the signature."""
        statistics = self._statistics(name, metric)
        signature = metric.get_signature()
        # Unlike scores must not look alike, and sacreBLEU cannot know what it was given.
        for key, value in (("text", more), ("unit", self.unit)):
            if value is not None:
                signature.update(key, value)
        return MetricScore(
            score=from_sums(statistics.sum(axis=0)),
            signature=signature.format(),
            name=name,
            statistics=statistics,
            documents=self.documents,
            from_sums=from_sums,
            from_many_sums=from_many_sums,
            lower_is_better=isinstance(metric, TER),
        )

    def _statistics(self, name: str, metric: BLEU | CHRF | TER) -> Statistics:
        """[G, K]. TER, which takes a minute for thousands of sentences, shows how far it is."""
        # sacreBLEU has no public call for these (its own significance module uses this one); a test compares
        # the scores made of them with its public corpus scores.
        extract, count = metric._extract_corpus_statistics, len(self.hypotheses)
        if not isinstance(metric, TER):
            return np.array(extract(self.hypotheses, self.references))
        parts = []
        with progress(f"{name} (sentences)", count) as bar:
            for first in range(0, count, _AT_ONCE):
                own = slice(first, first + _AT_ONCE)
                parts.append(np.array(extract(self.hypotheses[own], [side[own] for side in self.references])))
                bar.advance(len(parts[-1]))
        return np.concatenate(parts)


def bleu(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """BLEU of segments in the form `config.text`. Raises DocmtError for a tokenizer that cannot be used."""
    try:
        # `force` silences the advice to detokenize: with "none" the text is meant to be tokenized.
        metric = BLEU(lowercase=config.lowercase, tokenize=config.tokenize, force=config.tokenize == "none")
    except (ImportError, RuntimeError, OSError) as error:
        package = re.search(r"pip install (\S+)", str(error))
        reason = re.split(r", but|\. ", " ".join(str(error).split()))[0].rstrip(".")
        advice = f"pip install '{package[1]}'" if package else "install what it needs"
        raise DocmtError(
            f"the tokenizer {config.tokenize} cannot be used: {reason}; {advice}, or choose another tokenizer"
        ) from error
    return segments.score(name, metric, bleu_from_sums, bleu_from_many_sums, config.text_signature())


def chrf(name: str, segments: Segments, config: MetricConfig) -> MetricScore:
    """chrF2 of segments of plain text."""
    return segments.score(name, CHRF(lowercase=config.lowercase), chrf_from_sums, chrf_from_many_sums)


def ter(name: str, segments: Segments) -> MetricScore:
    """TER of segments of plain text, in lower case, as sacreBLEU and Tercom have it."""
    return segments.score(name, TER(), ter_from_sums, ter_from_many_sums)


def bleu_score(sums: Statistics) -> BLEUScore:
    """What `bleu_from_sums` scores, with its lengths and precisions."""
    hypothesis_length, reference_length, *counts = sums.tolist()
    return BLEU.compute_bleu(counts[:ORDERS], counts[ORDERS:], hypothesis_length, reference_length, smooth_method="exp")


def bleu_from_sums(sums: Statistics) -> float:
    """BLEU (Papineni et al. 2002, exponential smoothing) from summed statistics.

    sums: [K = 10] hypothesis length, reference length, then for n = 1..4 the matched n-grams, then for
    n = 1..4 the hypothesis n-grams.
    """
    return float(bleu_score(sums).score)


def bleu_from_many_sums(sums: Statistics) -> Scores:
    """`bleu_from_sums` along the last axis."""
    hypothesis_length, reference_length = sums[..., 0], sums[..., 1]
    matched, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # The k-th order without a match counts as 1 / 2^k matches.
    smoothed = np.where(matched == 0, 0.5 ** np.cumsum(matched == 0, axis=-1), matched)
    logs = np.log(smoothed / np.maximum(total, 1))
    shorter = 1 - reference_length / np.maximum(hypothesis_length, 1)
    score = 100 * np.exp(np.minimum(shorter, 0) + logs.mean(axis=-1))
    return np.where(matched.any(axis=-1) & (total > 0).all(axis=-1), score, 0.0)


def chrf_from_sums(sums: Statistics) -> float:
    """chrF2 (Popović 2016) from summed statistics.

    sums: [K = 18] for n = 1..6 the hypothesis n-grams, the reference n-grams and the matched ones.
    """
    return float(CHRF()._compute_score_from_stats(sums.tolist()).score)


def chrf_from_many_sums(sums: Statistics) -> Scores:
    """`chrf_from_sums` along the last axis."""
    ours, theirs, matched = (sums[..., place::3] for place in range(3))
    counts = (ours > 0) & (theirs > 0)
    orders = np.maximum(counts.sum(axis=-1), 1)
    precision = (counts * matched / np.maximum(ours, 1)).sum(axis=-1) / orders
    recall = (counts * matched / np.maximum(theirs, 1)).sum(axis=-1) / orders
    weighted = BETA**2 * precision + recall
    found: Scores = 100 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1)
    return found


def ter_from_sums(sums: Statistics) -> float:
    """TER (Snover et al. 2006) from summed statistics: [K = 2] edits, and words of the reference."""
    return float(TER()._compute_score_from_stats(sums.tolist()).score)


def ter_from_many_sums(sums: Statistics) -> Scores:
    """`ter_from_sums` along the last axis; edits where the reference has no word are 100 %."""
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * edits / np.where(words > 0, words, 1), 100.0 * (edits > 0))


def documents_of(segments: Sequence[int]) -> NDArray[np.int64]:
    """[G], the document of each segment; `segments`: how many each document has."""
    return np.repeat(np.arange(len(segments)), segments)
