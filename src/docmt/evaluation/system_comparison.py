"""Comparison of systems on one test set: confidence intervals, significance tests, scores by sentence position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.core.progress import progress
from docmt.evaluation.metrics import METRIC_NAMES, SENTENCE_METRICS, Evaluation, format_count
from docmt.evaluation.scores import MetricScore
from docmt.evaluation.significance import (
    MIN_DOCUMENTS,
    SIGNIFICANCE_LEVEL,
    Estimate,
    Outcome,
    SignificanceConfig,
    compare_statistics,
    estimate,
    few_documents_notes,
)

TEST_NAMES = {
    "randomization": "paired approximate randomization",
    "bootstrap": "paired bootstrap",
    "sign": "sign test on exchanged segments",
}
MIN_PRINTED_P_VALUE = 1e-4
"""Smaller p-values are printed as `p <0.0001`."""

BUCKET_STARTS = (1, 2, 3, 4, 7, 13)
"""First sentence position (from 1) of each bucket. A bucket ends before the next one starts."""
BUCKET_NAMES = (
    *(f"{start}" if end == start + 1 else f"{start}-{end - 1}" for start, end in pairwise(BUCKET_STARTS)),
    f"{BUCKET_STARTS[-1]}+",
)
"""Bucket names in order of position."""


@dataclass(frozen=True)
class Comparison:
    """Scores of several systems, the baseline first, with the results of resampling.

    outcomes: by metric and system. None where the metric is undefined for the system, or there is a single segment.
    """

    config: SignificanceConfig
    systems: Mapping[str, Evaluation]
    outcomes: Mapping[str, Sequence[Outcome | None]]

    def rows(self) -> list[list[str]]:
        """Return the table as text: a header, then one row per system with one column per metric."""
        rows = [["", *(METRIC_NAMES[key] for key in self.outcomes)]]
        for number, (name, evaluation) in enumerate(self.systems.items()):
            scores = evaluation.scores()
            cells = [_format_cell(scores[key], outcomes[number]) for key, outcomes in self.outcomes.items()]
            rows.append([name, *cells])
        return rows

    def notes(self) -> list[str]:
        """Return explanations for a reader of the table, one sentence each."""
        baseline, first = next(iter(self.systems.items()))
        segments = {key: self.segments(key) for key in self.outcomes}
        default = next(iter(segments.values()))
        exceptions = [f"{METRIC_NAMES[key]}: {text}" for key, text in segments.items() if text != default]
        resampled = f"{default} ({', '.join(exceptions)})" if exceptions else default
        notes = [
            f"±: half of the 95 % bootstrap confidence interval over {resampled}; p and * "
            f"(p < {SIGNIFICANCE_LEVEL}): against {baseline}, {TEST_NAMES[self.config.test]}; "
            f"{self.config.samples:,} samples, seed {self.config.seed}",
            f"{format_count(first.documents, 'document')}, {format_count(first.sentences, 'sentence')}",
        ]
        if protocol := first.config.describe_protocol():
            notes.append(protocol)
        if self.config.test != "bootstrap":
            notes += self._few_segments_notes()
        for name, evaluation in self.systems.items():
            if evaluation.undefined is not None:
                notes.append(f"{name}: {evaluation.undefined_names()} are not defined: {evaluation.undefined}")
        return notes

    def _few_segments_notes(self) -> Iterator[str]:
        """Yield notes on metrics with too few segments for any significant difference."""
        first = next(iter(self.systems.values()))
        for kind, number in (("document", first.documents), ("sentence", first.sentences)):
            keys = [key for key in self.outcomes if _segment_kind(key, self.config) == kind]
            if keys and number < MIN_DOCUMENTS:
                metrics = (
                    f" of {' and '.join(METRIC_NAMES[key] for key in keys)}" if len(keys) < len(self.outcomes) else ""
                )
                yield f"with fewer than {MIN_DOCUMENTS} {kind}s no difference{metrics} can be significant: add {kind}s"

    def segments(self, metric: str) -> str:
        """Return the number and kind of the segments that are resampled for a metric, such as `200 documents`."""
        first = next(iter(self.systems.values()))
        kind = _segment_kind(metric, self.config)
        return format_count(getattr(first, f"{kind}s"), kind)

    def signatures(self) -> dict[str, str]:
        """Return the signature of each metric. All systems share it."""
        signatures = {}
        for key in self.outcomes:
            scores = (evaluation.scores()[key] for evaluation in self.systems.values())
            signatures[key] = next((score.signature for score in scores if score is not None), "not defined")
        return signatures

    def format(self) -> str:
        """Return the table, the signatures and the notes as text."""
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"{METRIC_NAMES[key]:<6}  {text}" for key, text in self.signatures().items()]
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
            outcomes = {key: outcome and asdict(outcome) for key, outcome in of_system.items()}
            systems.append({"name": name, **evaluation.to_json(), "outcomes": outcomes})
        resampled = {key: self.segments(key) for key in self.outcomes}
        return {"significance": asdict(self.config), "resampled": resampled, "systems": systems}


def compare(systems: Mapping[str, Evaluation], config: SignificanceConfig | None = None) -> Comparison:
    """Compare the first system with the others in every metric.

    systems: by name, evaluated with equal settings on the same references. d-BLEU and d-chrF always resample
    documents; other metrics resample what `config` says.
    Raises DocmtError for fewer than two systems, evaluations that differ in settings or references, and a single
    document.
    """
    config = config or SignificanceConfig()
    if len(systems) < 2:
        raise DocmtError(f"cannot compare {format_count(len(systems), 'system')}. Give two or more")
    baseline, first = next(iter(systems.items()))
    for name, other in systems.items():
        if (other.config, other.documents, other.sentences) != (first.config, first.documents, first.sentences):
            raise DocmtError(
                f"{name} and {baseline} were scored with different references or settings. Score both in the same way"
            )
    check_can_resample(first.documents, config)
    outcomes, evaluations = {}, list(systems.values())
    with progress("comparing (metrics)", len(first.scores())) as bar:
        for key in first.scores():
            outcomes[key] = _compare_metric(key, evaluations, config)
            bar.advance()
    return Comparison(config, dict(systems), outcomes)


def check_can_resample(documents: int, config: SignificanceConfig) -> None:
    """Raise DocmtError if documents are resampled but there is only one."""
    if documents < 2 and config.resample == "documents":
        raise DocmtError(
            "cannot resample a single document. Give more documents, or resample sentences "
            "(--significance.resample sentences)"
        )


def _compare_metric(key: str, evaluations: Sequence[Evaluation], config: SignificanceConfig) -> list[Outcome | None]:
    """Return the outcome of each system in a metric. Without the baseline's score it has intervals only."""
    scores = [evaluation.scores()[key] for evaluation in evaluations]
    defined = {number: score for number, score in enumerate(scores) if score is not None}
    by_sentence = _segment_kind(key, config) == "sentence"
    documents = evaluations[0].documents
    statistics = [score.statistics if by_sentence else score.by_document(documents) for score in defined.values()]
    outcomes: list[Outcome | None] = [None] * len(scores)
    if not statistics or len(statistics[0]) < 2:
        return outcomes
    formula, lower = defined[min(defined)].formula, defined[min(defined)].lower_is_better
    for number, outcome in zip(defined, compare_statistics(np.stack(statistics), formula, config, lower), strict=True):
        outcomes[number] = outcome if 0 in defined else Outcome(outcome.interval)
    return outcomes


def _segment_kind(metric: str, config: SignificanceConfig) -> str:
    """Return the kind of segment that is resampled for a metric: sentence or document."""
    return "sentence" if config.resample == "sentences" and metric in SENTENCE_METRICS else "document"


def _format_cell(score: MetricScore | None, outcome: Outcome | None) -> str:
    """Format a score such as `22.87 ± 0.61  p 0.0123*`."""
    if score is None:
        return "-"
    text = f"{score.score:.2f}"
    if outcome is not None:
        text += f" ± {outcome.interval.half_width:.2f}"
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
    """s-BLEU and chrF of several systems on the sentences of one bucket of positions."""

    sentences: int
    documents: int
    """documents with sentences in this bucket"""
    systems: dict[str, dict[str, Estimate]]
    """scores by system name and metric"""


@dataclass(frozen=True)
class PositionScores:
    """s-BLEU and chrF of several systems by sentence position in the document.

    Buckets contain different sentences (the first is often a title). Compare systems, not positions.
    """

    buckets: Mapping[str, BucketScores]
    """scores by bucket name, in order of position"""

    def format(self) -> str:
        """Return a table with a row per bucket and metric and a column per system."""
        rows = [["sentence", "metric", "count", *next(iter(self.buckets.values())).systems]]
        for name, bucket in self.buckets.items():
            cells = bucket.systems.values()
            rows.append([name, "s-BLEU", f"{bucket.sentences:,}", *(cell["s_bleu"].format(2) for cell in cells)])
            rows.append(["", "chrF", "", *(cell["chrf"].format(2) for cell in cells)])
        documents = {name: bucket.documents for name, bucket in self.buckets.items()}
        return "\n".join([*align_columns(rows), *few_documents_notes(max(documents.values()), documents)])

    def to_json(self) -> dict[str, Any]:
        """Return counts and scores by bucket as JSON values."""
        return {name: asdict(bucket) for name, bucket in self.buckets.items()}


def scores_by_position(systems: Mapping[str, Evaluation], config: SignificanceConfig | None = None) -> PositionScores:
    """Return sentence scores of each system by position: first sentences of documents, second ones, and so on.

    systems: by name, all with the same references. config: samples and seed of the intervals.
    Raises DocmtError for a system without sentence scores.
    """
    config = config or SignificanceConfig()
    buckets: dict[str, BucketScores] = {}
    for system, evaluation in systems.items():
        if evaluation.s_bleu is None or evaluation.chrf is None:
            raise DocmtError(f"{system} has no sentence scores, so none by position: {evaluation.undefined}")
        metrics = {"s_bleu": evaluation.s_bleu, "chrf": evaluation.chrf}
        documents = evaluation.s_bleu.documents
        numbers = bucket_numbers(np.arange(len(documents)) - np.searchsorted(documents, documents) + 1)
        for number in np.unique(numbers).tolist():
            selected = numbers == number
            empty = BucketScores(int(selected.sum()), len(np.unique(documents[selected])), {})
            scores = {key: _estimate(metric, selected, config) for key, metric in metrics.items()}
            buckets.setdefault(BUCKET_NAMES[number], empty).systems[system] = scores
    return PositionScores(buckets)


def _estimate(metric: MetricScore, selected: NDArray[np.bool_], config: SignificanceConfig) -> Estimate:
    """Return the score of the selected sentences with its interval over the documents that contain them."""
    rows = metric.by_document(int(metric.documents[-1]) + 1, selected)
    return estimate(rows[np.unique(metric.documents[selected])], metric.formula, config)
