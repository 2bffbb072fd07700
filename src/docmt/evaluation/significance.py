"""Significance tests and confidence intervals by resampling or exchanging segments.

Notation: S systems, G segments that are drawn or exchanged (documents, since their sentences are not independent, or
sentences), K sufficient statistics of a segment, B samples, * any shape. The first system is the baseline.
Random numbers and p-values are those of sacreBLEU (`--paired-bs`, `--paired-ar`), so sentence-level results match it.
One difference: samples equal to the observed difference count as extreme. sacreBLEU ignores them, so that equal
systems, or a handful of segments, seem to differ significantly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.core.progress import progress
from docmt.core.settings import CheckedSettings, ranged
from docmt.evaluation.metric_config import METRIC_NAMES, SEGMENTS
from docmt.evaluation.metrics import Evaluation, MetricScore, Scores, Statistics, format_count

SIGNIFICANCE_LEVEL = 0.05
"""Differences with a smaller p-value are significant. Intervals contain all but this share of the samples."""
MIN_DOCUMENTS = 6
"""Fewest documents with which a difference can be significant: one system wins all six by chance in 2 of 2^6 cases."""
TEST_NAMES = {
    "randomization": "paired approximate randomization",
    "bootstrap": "paired bootstrap",
    "sign": "sign test on exchanged segments",
}
MIN_PRINTED_P_VALUE = 1e-4
"""Smaller p-values are printed as `p <0.0001`."""

BUCKET_STARTS = (1, 2, 3, 4, 7, 13)
"""First sentence position (from 1) of each bucket. A bucket ends before the next one starts."""
BUCKET_NAMES = ("1", "2", "3", "4-6", "7-12", "13+")
"""Bucket names in order of position."""
_TOLERANCE = 1e-9  # sums of floats in another order differ in the last digits
_MAX_WEIGHTS = 2**22  # elements of a weight matrix: 32 MiB
_MOST_COLUMNS = 6  # metrics side by side
_ROW_MULTIPLE = 32  # one random number gives 32 random bits, so chunks of other sizes would draw other bits

Formula: TypeAlias = Callable[[Statistics], Scores]
"""Function from sums of statistics [*, K] to scores [*]."""


@dataclass(frozen=True)
class SignificanceConfig(CheckedSettings, prefix="significance."):
    """Settings of significance tests and confidence intervals."""

    test: Literal["randomization", "bootstrap", "sign"] = "randomization"
    """significance test: approximate randomization, paired bootstrap or sign test"""
    resample: Literal["documents", "sentences"] = "documents"
    """segments to resample (scores of documents and paragraphs always resample documents)"""
    samples: int = ranged(10_000, 100, 1_000_000)
    """random samples of the test and of the confidence intervals"""
    seed: int = ranged(12345, 0, 2**32 - 1)
    """seed of the random samples"""


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
    """Confidence interval of one system in one metric, and its differences from the systems before it."""

    interval: Interval
    differences: Mapping[int, Difference] = field(default_factory=dict)
    """by the number of the other system, from 0; those without a score are left out"""

    @property
    def difference(self) -> Difference | None:
        """Difference from the baseline; None for the baseline, and if it has no score."""
        return self.differences.get(0)

    def to_json(self) -> dict[str, Any]:
        """Return the interval and the difference from the baseline as JSON values."""
        return {"interval": asdict(self.interval), "difference": self.difference and asdict(self.difference)}


def compare_statistics(
    statistics: Statistics, formula: Formula, config: SignificanceConfig, lower_is_better: bool = False
) -> list[Outcome]:
    """Compare each system with those before it in a metric. statistics: [S, G, K] with G at least 2."""
    statistics = statistics.astype(np.float64)  # integers stay exact, and float products are fast
    samples = bootstrap(statistics, formula, config.samples, config.seed)
    scores = formula(statistics.sum(axis=1)).tolist()
    is_exchanged = config.test == "randomization"
    exchanged = randomization(statistics, formula, config.samples, config.seed) if is_exchanged else None
    outcomes = []
    for system, drawn in enumerate(samples):
        differences = {}
        for other in range(system):
            between, value = drawn - samples[other], scores[system] - scores[other]
            signs: tuple[int, ...] = ()
            if config.test == "sign":
                signs = count_exchange_signs(statistics[[other, system]], formula, lower_is_better)
                p_value = sign_p_value(*signs)
            elif exchanged is not None:
                p_value = sampled_p_value(exchanged[other, system], abs(value))
            else:
                distances = np.abs(between)
                p_value = sampled_p_value(distances - distances.mean(), abs(value))
            differences[other] = Difference(value, Interval.from_samples(between), p_value, *signs)
        outcomes.append(Outcome(Interval.from_samples(drawn), differences))
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


def randomization(statistics: Statistics, formula: Formula, samples: int, seed: int) -> Scores:
    """Return [S, S, B], absolute differences of each system and a later one whose segments are exchanged at random.

    statistics: [S, G, K]. All pairs exchange the same segments. Below the diagonal are zeros.
    """
    generator = np.random.default_rng(seed)
    systems, segments, _ = statistics.shape
    sums, differences = statistics.sum(axis=1), []
    for rows in _chunk_sizes(samples, segments):
        exchanged = generator.integers(2, size=(rows, segments), dtype=bool).astype(np.float64) @ statistics
        differences.append(np.zeros((systems, systems, rows)))
        for one, other in combinations(range(systems), 2):
            mixed = sums[other] + exchanged[one] - exchanged[other]
            differences[-1][one, other] = np.abs(formula(mixed) - formula(sums[one] + sums[other] - mixed))
    return np.concatenate(differences, axis=-1)


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


def estimate_each(statistics: Statistics, formula: Formula, config: SignificanceConfig) -> list[Estimate]:
    """Return the scores of summed statistics [S, G, K], with intervals over the segments, drawn together."""
    values = formula(statistics.sum(axis=1)).tolist()
    if statistics.shape[1] < 2:
        return list(map(Estimate, values))
    intervals = map(Interval.from_samples, bootstrap(statistics, formula, config.samples, config.seed))
    return [Estimate(value, each.low, each.high) for value, each in zip(values, intervals, strict=True)]


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


@dataclass(frozen=True)
class Comparison:
    """Scores of several systems, the baseline first, with the results of resampling.

    outcomes: by metric and system. None where the metric is undefined for the system, or there is a single segment.
    counts: resampled segments by metric.
    """

    config: SignificanceConfig
    systems: Mapping[str, Evaluation]
    outcomes: Mapping[str, Sequence[Outcome | None]]
    counts: Mapping[str, int]

    def rows(self) -> list[list[str]]:
        """Return the table as text: a header, then one row per system with one column per metric."""
        rows = [["", *(METRIC_NAMES[key] for key in self.outcomes)]]
        for number, (name, evaluation) in enumerate(self.systems.items()):
            cells = [_format_cell(evaluation.metrics[key], row[number]) for key, row in self.outcomes.items()]
            rows.append([name, *cells])
        return rows

    def notes(self) -> list[str]:
        """Return explanations for a reader of the table, one sentence each."""
        baseline, first = next(iter(self.systems.items()))
        groups = group_pairs((self.segments(key), METRIC_NAMES[key]) for key in self.outcomes)
        default, *others = groups
        exceptions = "; ".join(f"{', '.join(groups[text])}: {text}" for text in others)
        resampled = f"{default} ({exceptions})" if others else default
        notes = [
            f"±: half of the 95 % bootstrap confidence interval over {resampled}; p and * "
            f"(p < {SIGNIFICANCE_LEVEL}): against {baseline}, {TEST_NAMES[self.config.test]}; "
            f"{self.config.samples:,} samples, seed {self.config.seed}",
            f"{format_count(first.documents, 'document')}, {format_count(first.sentences, first.counted)}",
        ]
        if protocol := first.config.describe_protocol():
            notes.append(protocol)
        if self.config.test != "bootstrap":
            notes += self._few_segments_notes()
        return notes + [f"{name}: {each}" for name, evaluation in self.systems.items() for each in evaluation.remarks()]

    def _few_segments_notes(self) -> Iterator[str]:
        """Yield notes on metrics with too few segments for any significant difference."""
        for kind in ("document", "sentence"):
            keys = [key for key in self.outcomes if _segment_kind(key, self.config) == kind]
            if keys := [key for key in keys if self.counts[key] < MIN_DOCUMENTS]:
                names = " and ".join(METRIC_NAMES[key] for key in keys)
                metrics = f" of {names}" if len(keys) < len(self.outcomes) else ""
                yield f"with fewer than {MIN_DOCUMENTS} {kind}s no difference{metrics} can be significant: add {kind}s"

    def segments(self, metric: str) -> str:
        """Return the number and kind of the segments that are resampled for a metric, such as `200 documents`."""
        return format_count(self.counts[metric], _segment_kind(metric, self.config))

    def signatures(self) -> dict[str, str]:
        """Return the signature of each metric, with those of systems that have another one, as after an alignment."""
        signatures = {}
        for key in self.outcomes:
            scores = {name: evaluation.metrics[key] for name, evaluation in self.systems.items()}
            names = group_pairs((score.signature, name) for name, score in scores.items() if score)
            first, *others = names or ["not defined"]
            signatures[key] = "; ".join([first, *(f"{', '.join(names[other])}: {other}" for other in others)])
        return signatures

    def format(self) -> str:
        """Return the table, the signatures and the notes as text."""
        rows = self.rows()
        lines = list[str]()
        for first in range(1, len(rows[0]), _MOST_COLUMNS):
            block = [[row[0], *row[first : first + _MOST_COLUMNS]] for row in rows]
            lines += map(str.rstrip, align_columns(block, left_columns=len(block[0])))
        width = max(len(METRIC_NAMES[key]) for key in self.outcomes)
        lines += [f"{METRIC_NAMES[key]:<{width}}  {text}" for key, text in self.signatures().items()]
        return "\n".join([*lines, *self.notes()])

    def to_markdown(self) -> str:
        """Return the table, the notes and the signatures as Markdown."""
        rows = [[escape_markdown(cell) for cell in row] for row in self.rows()]
        lines = markdown_table(rows, left_columns=len(rows[0]))
        lines += ["", *(f"- {escape_markdown(note)}" for note in self.notes())]
        lines += [f"- {METRIC_NAMES[key]}: `{text}`" for key, text in self.signatures().items()]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return all but the sufficient statistics as JSON values."""
        systems = []
        for number, (name, evaluation) in enumerate(self.systems.items()):
            of_system = {key: outcomes[number] for key, outcomes in self.outcomes.items()}
            outcomes = {key: outcome and outcome.to_json() for key, outcome in of_system.items()}
            systems.append({"name": name, **evaluation.to_json(), "outcomes": outcomes})
        resampled = {key: self.segments(key) for key in self.outcomes}
        return {"significance": asdict(self.config), "resampled": resampled, "systems": systems}


def compare(systems: Mapping[str, Evaluation], config: SignificanceConfig = SignificanceConfig()) -> Comparison:
    """Compare the first system with the others in every metric.

    systems: by name, evaluated with equal settings on the same references. Metrics of documents and paragraphs always
    resample documents; those of sentences resample what `config` says.
    Raises DocmtError for fewer than two systems, evaluations that differ in settings or references, and a single
    document.
    """
    if len(systems) < 2:
        raise DocmtError(f"cannot compare {format_count(len(systems), 'system')}. Give two or more")
    baseline, first = next(iter(systems.items()))
    for name, other in systems.items():
        if (other.config, other.documents, other.sentences) != (first.config, first.documents, first.sentences):
            raise DocmtError(
                f"{name} and {baseline} were scored with different references or settings. Score both in the same way"
            )
        if other.alignment is not None and config.resample == "sentences":
            raise DocmtError(f"{name} has other sentences than its source, so resample documents")
    check_can_resample(first.documents, config)
    return compare_metrics(systems, config)


def check_can_resample(documents: int, config: SignificanceConfig) -> None:
    """Raise DocmtError if documents are resampled but there is only one."""
    if documents < 2 and config.resample == "documents":
        raise DocmtError(
            "cannot resample a single document. Give more documents, or resample sentences "
            "(--significance.resample sentences)"
        )


def compare_metrics(systems: Mapping[str, Evaluation], config: SignificanceConfig) -> Comparison:
    """Compare systems that fit each other; see `compare`. Without the baseline's score there are intervals only."""
    outcomes, counts, evaluations = dict[str, list[Outcome | None]](), dict[str, int](), list(systems.values())
    with progress("comparing (metrics)", len(evaluations[0].metrics)) as bar:
        for key in evaluations[0].metrics:
            rows, outcomes[key] = _segment_rows(key, evaluations, config), [None] * len(evaluations)
            counts[key] = next(map(len, rows.values()), evaluations[0].documents)
            score = next((evaluation.metrics[key] for evaluation in evaluations if evaluation.metrics[key]), None)
            if score is not None and counts[key] > 1:
                compared = compare_statistics(np.stack([*rows.values()]), score.formula, config, score.lower_is_better)
                numbers = list(rows)
                for number, outcome in zip(numbers, compared, strict=True):
                    differences = {numbers[other]: each for other, each in outcome.differences.items()}
                    outcomes[key][number] = Outcome(outcome.interval, differences)
            bar.advance()
    return Comparison(config, dict(systems), outcomes, counts)


def _segment_rows(key: str, evaluations: Sequence[Evaluation], config: SignificanceConfig) -> dict[int, Statistics]:
    """Return the statistics [G, K] of the systems with a score, by their numbers.

    Documents in which there is nothing to count for any system, such as those without repeated terms, are left out:
    a sample of them alone would have no score.
    """
    scores = {number: each.metrics[key] for number, each in enumerate(evaluations)}
    defined = {number: score for number, score in scores.items() if score is not None}
    if _segment_kind(key, config) == "sentence":
        return {number: score.statistics for number, score in defined.items()}
    rows = {number: score.by_document(evaluations[0].documents) for number, score in defined.items()}
    counted = np.any([each.any(axis=1) for each in rows.values()], axis=0)
    return {number: each[counted] for number, each in rows.items()}


def _segment_kind(metric: str, config: SignificanceConfig) -> str:
    """Return the kind of segment that is resampled for a metric: sentence or document."""
    return "sentence" if config.resample == "sentences" and SEGMENTS[metric] == "sentence" else "document"


def _format_cell(score: MetricScore | None, outcome: Outcome | None) -> str:
    """Format a score such as `22.87 ± 0.61  p 0.0123*`."""
    if score is None:
        return "-"
    text = f"{score.score:.{score.digits}f}"
    if outcome is not None:
        text += f" ± {outcome.interval.half_width:.{score.digits}f}"
    if outcome is not None and outcome.difference is not None:
        p = outcome.difference.p_value
        p_text = f"p {p:.4f}" if p >= MIN_PRINTED_P_VALUE else f"p <{MIN_PRINTED_P_VALUE:.4f}"
        text += f"  {p_text}{'*' if outcome.difference.is_significant else ''}"
    return text


def bucket_numbers(positions: ArrayLike) -> NDArray[np.int64]:
    """Return the bucket number of each sentence. positions: within their documents, from 1."""
    return np.searchsorted(BUCKET_STARTS, positions, side="right") - 1


@dataclass(frozen=True)
class BucketScores:
    """Scores of several systems on the sentences of one bucket of positions."""

    sentences: int
    documents: int
    """documents with sentences in this bucket"""
    systems: dict[str, dict[str, Estimate]]
    """scores by system name and metric"""


@dataclass(frozen=True)
class PositionScores:
    """Scores of several systems by sentence position in the document.

    Buckets contain different sentences (the first is often a title). Compare systems, not positions.
    """

    buckets: Mapping[str, BucketScores]
    """scores by bucket name, in order of position"""
    missing: Sequence[str]
    """why systems are left out, one sentence each"""

    def format(self) -> str:
        """Return a table with a row per bucket and metric and a column per system."""
        rows = [["sentence", "metric", "count", *next(iter(self.buckets.values())).systems]]
        for name, bucket in self.buckets.items():
            heads = [(name, f"{bucket.sentences:,}")]
            for key in next(iter(bucket.systems.values())):
                head, count = heads.pop() if heads else ("", "")
                cells = (scores[key].format(2) for scores in bucket.systems.values())
                rows.append([head, METRIC_NAMES[key], count, *cells])
        documents = {name: bucket.documents for name, bucket in self.buckets.items()}
        return "\n".join([*align_columns(rows), *few_documents_notes(max(documents.values()), documents)])

    def to_json(self) -> dict[str, Any]:
        """Return counts and scores by bucket as JSON values."""
        return {name: asdict(bucket) for name, bucket in self.buckets.items()}


def scores_by_position(
    systems: Mapping[str, Evaluation], config: SignificanceConfig = SignificanceConfig()
) -> PositionScores:
    """Return sentence scores of each system by position: first sentences of documents, second ones, and so on.

    systems: by name, all with the same references. config: samples and seed of the intervals. Systems without sentence
    scores are left out. Raises DocmtError if none has any.
    """
    buckets = dict[str, BucketScores]()
    metrics = {name: scores for name, evaluation in systems.items() if (scores := evaluation.sentence_metrics())}
    missing = [f"{name} {systems[name].describe_missing_sentences()}" for name in systems if name not in metrics]
    if not metrics:
        raise DocmtError(missing[0])
    first = next(iter(metrics.values()))
    documents = next(iter(first.values())).documents
    numbers = bucket_numbers(np.arange(len(documents)) - np.searchsorted(documents, documents) + 1)
    for number in np.unique(numbers).tolist():
        selected = numbers == number
        inside = np.unique(documents[selected])
        bucket = BucketScores(int(selected.sum()), len(inside), {name: {} for name in metrics})
        for key, metric in first.items():
            rows = [each[key].by_document(int(documents[-1]) + 1, selected)[inside] for each in metrics.values()]
            for name, score in zip(metrics, estimate_each(np.stack(rows), metric.formula, config), strict=True):
                bucket.systems[name][key] = score
        buckets[BUCKET_NAMES[number]] = bucket
    return PositionScores(buckets, missing)
