"""Is one system better than another, or luckier with this test set? Three tests, on resampled or exchanged segments.

Notation: S systems, G segments that are drawn or exchanged as a whole (documents, whose sentences are not independent,
or sentences), K sufficient statistics of a segment, B samples, * any shape. The first system is the baseline.
Random numbers and p-values are those of sacreBLEU (`--paired-bs`, `--paired-ar`), so that its results are found again
where segments are sentences; the only difference is that what is as extreme as the observed counts as at least as
extreme. (sacreBLEU leaves it out, so that equal systems, or a handful of segments, seem to differ significantly.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from docmt.core.settings import check_fields, ranged
from docmt.evaluation.scores import Scores, Statistics

LEVEL = 0.05
"""a difference with a smaller p-value is marked; intervals hold all but this share of the samples"""
FEWEST = 6
"""documents with which a difference can be significant: all six for one system has a chance of 2 / 2^6"""
_EQUAL = 1e-9  # scores that differ by less are equal: floating point sums in another order differ in the last digits
_WEIGHTS = 2**22  # numbers of a matrix of weights that is held at once: 32 MiB
_ROWS = 32  # of such a matrix at least; a multiple of it, as 32 random bits come from one random number

Formula: TypeAlias = Callable[[Statistics], Scores]
"""Sums of statistics [*, K] -> scores [*]."""


@dataclass(frozen=True)
class SignificanceConfig:
    """How several systems are compared."""

    test: Literal["randomization", "bootstrap", "sign"] = "randomization"
    """randomization: paired approximate randomization (Riezler and Maxwell 2005), whose p-values hold what they
    promise; bootstrap: paired bootstrap (Koehn 2004), as sacreBLEU has it, which finds about one in ten pairs of
    equally good systems different at 0.05; sign: sign test on what exchanging single segments does to the score of the
    corpus (Collins et al. 2005), as in the paper of G-Transformer"""
    resample: Literal["documents", "sentences"] = "documents"
    """what is drawn or exchanged as a whole: documents (usual), as the sentences of one are not independent, or
    sentences, as most papers do (d-BLEU and d-chrF are over documents in any case)"""
    samples: int = ranged(10_000, 100, 1_000_000)
    """random samples of the test and of the confidence intervals"""
    seed: int = ranged(12345, 0, 2**32 - 1)
    """seed of the samples; the usual one is that of sacreBLEU"""

    def __post_init__(self) -> None:
        check_fields(self, "significance.")


@dataclass(frozen=True)
class Interval:
    """Where the middle 95 % of the samples lie."""

    mean: float
    low: float
    high: float
    half_width: float

    @classmethod
    def of_samples(cls, scores: Scores) -> Interval:
        """scores: [B]; both ends are samples, as in sacreBLEU."""
        ordered = np.sort(scores)
        outside = len(ordered) // 40
        low, high = float(ordered[outside]), float(ordered[-1 - outside])
        return cls(float(scores.mean()), low, high, (high - low) / 2)


@dataclass(frozen=True)
class Difference:
    """What a system has more than the baseline (less, where lower is better, is a negative number, too)."""

    value: float
    interval: Interval
    p_value: float
    segments_better: int | None = None
    """of the sign test: the segments that make the baseline better when they are exchanged"""
    segments_worse: int | None = None
    """likewise, worse"""

    @property
    def is_significant(self) -> bool:
        return self.p_value < LEVEL


@dataclass(frozen=True)
class Outcome:
    """One system in one metric: how sure its score is, and (but for the baseline) how sure the difference."""

    interval: Interval
    difference: Difference | None = None


def compare_statistics(
    statistics: Statistics, formula: Formula, config: SignificanceConfig, lower_is_better: bool = False
) -> list[Outcome]:
    """Compares the first system with each other one in a metric; statistics: [S, G, K], G at least 2."""
    statistics = statistics.astype(np.float64)  # whole numbers stay exact, and their products are fast
    samples = bootstrap(statistics, formula, config.samples, config.seed)
    scores = formula(statistics.sum(axis=1)).tolist()
    outcomes = [Outcome(Interval.of_samples(samples[0]))]
    for system in range(1, len(statistics)):
        pair = statistics[[0, system]]
        drawn, value = samples[system] - samples[0], scores[system] - scores[0]
        signs: tuple[int, ...] = ()
        if config.test == "sign":
            signs = exchange_signs(pair, formula, lower_is_better)
            p_value = sign_p_value(*signs)
        elif config.test == "bootstrap":
            distances = np.abs(drawn)
            p_value = sampled_p_value(distances - distances.mean(), abs(value))
        else:
            p_value = sampled_p_value(randomization(pair, formula, config.samples, config.seed), abs(value))
        difference = Difference(value, Interval.of_samples(drawn), p_value, *signs)
        outcomes.append(Outcome(Interval.of_samples(samples[system]), difference))
    return outcomes


def bootstrap(statistics: Statistics, formula: Formula, samples: int, seed: int) -> Scores:
    """[S, B], the scores of test sets made of G segments drawn with replacement, the same for all systems.

    statistics: [S, G, K].
    """
    generator = np.random.default_rng(seed)
    segments = statistics.shape[1]
    found = []
    for rows in _chunks(samples, segments):
        drawn = generator.choice(segments, size=(rows, segments))
        flat = drawn + segments * np.arange(rows)[:, None]  # a range of numbers for each sample
        weights = np.bincount(flat.ravel(), minlength=rows * segments).reshape(rows, segments)
        found.append(formula(weights.astype(np.float64) @ statistics))
    return np.concatenate(found, axis=-1)


def randomization(pair: Statistics, formula: Formula, samples: int, seed: int) -> Scores:
    """[B], how far apart two systems are when each segment is given to either by the toss of a coin.

    pair: [2, G, K].
    """
    generator = np.random.default_rng(seed)
    segments = pair.shape[1]
    baseline, system = pair.sum(axis=1)
    found = []
    for rows in _chunks(samples, segments):
        kept = generator.integers(2, size=(rows, segments), dtype=bool).astype(np.float64)
        first = system + kept @ (pair[0] - pair[1])
        found.append(np.abs(formula(first) - formula(baseline + system - first)))
    return np.concatenate(found)


def sampled_p_value(samples: Scores, observed: float) -> float:
    """How often samples are at least what was observed; the observation itself is one of them (Noreen 1989)."""
    return float((np.count_nonzero(samples >= observed - _EQUAL) + 1) / (len(samples) + 1))


def exchange_signs(pair: Statistics, formula: Formula, lower_is_better: bool = False) -> tuple[int, int]:
    """How many segments make the baseline better, and worse, when that one alone is taken from the other system.

    pair: [2, G, K], the baseline first; better and worse by the score of the corpus (Collins et al. 2005).
    """
    baseline, system = pair
    whole = baseline.sum(axis=0)
    gains = formula(whole + system - baseline) - formula(whole)
    better, worse = (int(np.count_nonzero(sign * gains > _EQUAL)) for sign in (1, -1))
    return (worse, better) if lower_is_better else (better, worse)


def sign_p_value(better: int, worse: int) -> float:
    """The chance of counts at least as unequal if better and worse were equally likely: two-sided, exact."""
    count = better + worse
    ways = tail = 1  # with no head, then with one more, ...: whole numbers, so that nothing is rounded
    for heads in range(min(better, worse)):
        ways = ways * (count - heads) // (heads + 1)
        tail += ways
    return min(1.0, 2 * tail / 2**count)


def _chunks(samples: int, segments: int) -> Iterator[int]:
    """Sizes of the parts in which samples are drawn, so that memory does not grow with their number."""
    size = max(1, _WEIGHTS // segments // _ROWS) * _ROWS
    for first in range(0, samples, size):
        yield min(size, samples - first)


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval of 95 %, which a single document does not have."""

    value: float
    low: float | None = None
    high: float | None = None

    def format(self, digits: int, *, signed: bool = False) -> str:
        """Such as `+0.25 [0.10, 0.41]`."""
        value = f"{self.value:{'+' if signed else ''}z.{digits}f}"
        return value if self.low is None else f"{value} [{self.low:z.{digits}f}, {self.high:z.{digits}f}]"


def estimate(rows: Statistics, formula: Formula, config: SignificanceConfig) -> Estimate:
    """What `formula` makes of the sum of rows [D, K], one a document, with its interval (bootstrap over documents).

    config: its samples and seed.
    """
    statistics = rows.astype(np.float64)
    value = float(formula(statistics.sum(axis=0)))
    if len(rows) < 2:
        return Estimate(value)
    interval = Interval.of_samples(bootstrap(statistics[None], formula, config.samples, config.seed)[0])
    return Estimate(value, interval.low, interval.high)


def ratio(sums: Statistics) -> Scores:
    """The first of two sums divided by the second one, [*, 2] -> [*]."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def too_few(documents: int, parts: Mapping[str, int] | None = None) -> list[str]:
    """A note, or none, on intervals over so few documents that no difference is significant, however narrow they are.

    documents: how many there are; parts: of how many each row of a table is, by name. One has no interval.
    """
    few = [name for name, count in (parts or {}).items() if 1 < count < FEWEST]
    if documents < 2 or (documents >= FEWEST and not few):
        return []
    which = f" ({', '.join(few)})" if documents >= FEWEST else ""
    return [
        f"with fewer than {FEWEST} documents{which} no difference can be significant, whatever its interval: take more "
        "of them"
    ]
