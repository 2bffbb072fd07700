"""Significance tests and confidence intervals by resampling or exchanging segments.

Notation: S systems, G segments that are drawn or exchanged (documents, since their sentences are not independent, or
sentences), K sufficient statistics of a segment, B samples, * any shape. The first system is the baseline.
Random numbers and p-values are those of sacreBLEU (`--paired-bs`, `--paired-ar`), so sentence-level results match it.
One difference: samples equal to the observed difference count as extreme. sacreBLEU ignores them, so that equal
systems, or a handful of segments, seem to differ significantly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from docmt.core.settings import check_fields, ranged
from docmt.evaluation.scores import Scores, Statistics

SIGNIFICANCE_LEVEL = 0.05
"""Differences with a smaller p-value are significant. Intervals contain all but this share of the samples."""
MIN_DOCUMENTS = 6
"""Fewest documents with which a difference can be significant: one system wins all six by chance in 2 of 2^6 cases."""
_TOLERANCE = 1e-9  # sums of floats in another order differ in the last digits
_MAX_WEIGHTS = 2**22  # elements of a weight matrix: 32 MiB
_ROW_MULTIPLE = 32  # one random number gives 32 random bits, so chunks of other sizes would draw other bits

Formula: TypeAlias = Callable[[Statistics], Scores]
"""Function from sums of statistics [*, K] to scores [*]."""


@dataclass(frozen=True)
class SignificanceConfig:
    """Settings of significance tests and confidence intervals."""

    test: Literal["randomization", "bootstrap", "sign"] = "randomization"
    """significance test: approximate randomization, paired bootstrap or sign test"""
    resample: Literal["documents", "sentences"] = "documents"
    """segments to resample (d-BLEU and d-chrF always resample documents)"""
    samples: int = ranged(10_000, 100, 1_000_000)
    """random samples of the test and of the confidence intervals"""
    seed: int = ranged(12345, 0, 2**32 - 1)
    """seed of the random samples"""

    def __post_init__(self) -> None:
        check_fields(self, "significance.")


@dataclass(frozen=True)
class Interval:
    """Interval of the middle 95 % of the samples."""

    mean: float
    low: float
    high: float
    half_width: float

    @classmethod
    def from_samples(cls, scores: Scores) -> Interval:
        """Return the interval of scores [B]. Both ends are samples, as in sacreBLEU."""
        ordered = np.sort(scores)
        outside = len(ordered) // 40
        low, high = float(ordered[outside]), float(ordered[-1 - outside])
        return cls(float(scores.mean()), low, high, (high - low) / 2)


@dataclass(frozen=True)
class Difference:
    """Score of a system minus the score of the baseline, also where lower is better."""

    value: float
    interval: Interval
    p_value: float
    segments_better: int | None = None
    """sign test: segments whose exchange makes the baseline better"""
    segments_worse: int | None = None
    """sign test: segments whose exchange makes the baseline worse"""

    @property
    def is_significant(self) -> bool:
        return self.p_value < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class Outcome:
    """Confidence interval of one system in one metric, and its difference from the baseline (None for the baseline)."""

    interval: Interval
    difference: Difference | None = None


def compare_statistics(
    statistics: Statistics, formula: Formula, config: SignificanceConfig, lower_is_better: bool = False
) -> list[Outcome]:
    """Compare the first system with each other one in a metric. statistics: [S, G, K] with G at least 2."""
    statistics = statistics.astype(np.float64)  # integers stay exact, and float products are fast
    samples = bootstrap(statistics, formula, config.samples, config.seed)
    scores = formula(statistics.sum(axis=1)).tolist()
    outcomes = [Outcome(Interval.from_samples(samples[0]))]
    for system in range(1, len(statistics)):
        pair = statistics[[0, system]]
        drawn, value = samples[system] - samples[0], scores[system] - scores[0]
        signs: tuple[int, ...] = ()
        if config.test == "sign":
            signs = count_exchange_signs(pair, formula, lower_is_better)
            p_value = sign_p_value(*signs)
        elif config.test == "bootstrap":
            distances = np.abs(drawn)
            p_value = sampled_p_value(distances - distances.mean(), abs(value))
        else:
            p_value = sampled_p_value(randomization(pair, formula, config.samples, config.seed), abs(value))
        difference = Difference(value, Interval.from_samples(drawn), p_value, *signs)
        outcomes.append(Outcome(Interval.from_samples(samples[system]), difference))
    return outcomes


def bootstrap(statistics: Statistics, formula: Formula, samples: int, seed: int) -> Scores:
    """Return [S, B], scores of test sets of G segments drawn with replacement, the same for all systems.

    statistics: [S, G, K].
    """
    generator = np.random.default_rng(seed)
    segments = statistics.shape[1]
    scores = []
    for rows in _chunk_sizes(samples, segments):
        drawn = generator.choice(segments, size=(rows, segments))
        flat = drawn + segments * np.arange(rows)[:, None]  # disjoint ranges of numbers for the samples
        weights = np.bincount(flat.ravel(), minlength=rows * segments).reshape(rows, segments)
        scores.append(formula(weights.astype(np.float64) @ statistics))
    return np.concatenate(scores, axis=-1)


def randomization(pair: Statistics, formula: Formula, samples: int, seed: int) -> Scores:
    """Return [B], absolute differences of two systems whose segments are exchanged at random.

    pair: [2, G, K].
    """
    generator = np.random.default_rng(seed)
    segments = pair.shape[1]
    baseline, system = pair.sum(axis=1)
    differences = []
    for rows in _chunk_sizes(samples, segments):
        exchanged = generator.integers(2, size=(rows, segments), dtype=bool).astype(np.float64)
        first = system + exchanged @ (pair[0] - pair[1])
        differences.append(np.abs(formula(first) - formula(baseline + system - first)))
    return np.concatenate(differences)


def sampled_p_value(samples: Scores, observed: float) -> float:
    """Return the share of samples not below the observation, which counts as a sample itself (Noreen 1989)."""
    return float((np.count_nonzero(samples >= observed - _TOLERANCE) + 1) / (len(samples) + 1))


def count_exchange_signs(pair: Statistics, formula: Formula, lower_is_better: bool = False) -> tuple[int, int]:
    """Count the segments whose exchange makes the baseline's corpus score better, and worse (Collins et al. 2005).

    pair: [2, G, K], the baseline first. Each segment is exchanged alone.
    """
    baseline, system = pair
    total = baseline.sum(axis=0)
    gains = formula(total + system - baseline) - formula(total)
    better, worse = (int(np.count_nonzero(sign * gains > _TOLERANCE)) for sign in (1, -1))
    return (worse, better) if lower_is_better else (better, worse)


def sign_p_value(better: int, worse: int) -> float:
    """Return the exact two-sided p-value of these counts if better and worse are equally likely."""
    count = better + worse
    ways = tail = 1  # integers, so that nothing is rounded
    for heads in range(min(better, worse)):
        ways = ways * (count - heads) // (heads + 1)
        tail += ways
    return min(1.0, 2 * tail / 2**count)


def _chunk_sizes(samples: int, segments: int) -> Iterator[int]:
    """Yield the sizes of the chunks in which samples are drawn, so that memory does not grow with their number."""
    size = max(1, _MAX_WEIGHTS // segments // _ROW_MULTIPLE) * _ROW_MULTIPLE
    for first in range(0, samples, size):
        yield min(size, samples - first)


@dataclass(frozen=True)
class Estimate:
    """Value with its 95 % bootstrap interval, None for a single document."""

    value: float
    low: float | None = None
    high: float | None = None

    def format(self, digits: int, *, signed: bool = False) -> str:
        """Format the estimate, such as `+0.25 [0.10, 0.41]`."""
        value = f"{self.value:{'+' if signed else ''}z.{digits}f}"
        return value if self.low is None else f"{value} [{self.low:z.{digits}f}, {self.high:z.{digits}f}]"


def estimate(rows: Statistics, formula: Formula, config: SignificanceConfig) -> Estimate:
    """Return the score of summed rows [D, K], one per document, with its bootstrap interval over documents.

    config: samples and seed.
    """
    statistics = rows.astype(np.float64)
    value = float(formula(statistics.sum(axis=0)))
    if len(rows) < 2:
        return Estimate(value)
    interval = Interval.from_samples(bootstrap(statistics[None], formula, config.samples, config.seed)[0])
    return Estimate(value, interval.low, interval.high)


def ratio(sums: Statistics) -> Scores:
    """Divide the first of two sums by the second, [*, 2] -> [*]."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def few_documents_notes(documents: int, parts: Mapping[str, int] | None = None) -> list[str]:
    """Return a note, or none, on intervals over too few documents for a significant difference.

    documents: total number. parts: number of documents of each table row, by name. One document has no interval.
    """
    few = [name for name, count in (parts or {}).items() if 1 < count < MIN_DOCUMENTS]
    if documents < 2 or (documents >= MIN_DOCUMENTS and not few):
        return []
    names = f" ({', '.join(few)})" if documents >= MIN_DOCUMENTS else ""
    return [
        f"with fewer than {MIN_DOCUMENTS} documents{names} no difference can be significant, whatever its interval: "
        "add documents"
    ]
