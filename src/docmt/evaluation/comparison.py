"""Several systems on one test set: scores with intervals, differences from the first system, scores by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import aligned, escaped, table
from docmt.core.progress import progress
from docmt.evaluation.metrics import NAMES, OF_SENTENCES, Evaluation, count
from docmt.evaluation.scores import MetricScore
from docmt.evaluation.significance import (
    FEWEST,
    LEVEL,
    Estimate,
    Outcome,
    SignificanceConfig,
    compare_statistics,
    estimate,
    too_few,
)

TESTS = {
    "randomization": "paired approximate randomization",
    "bootstrap": "paired bootstrap",
    "sign": "sign test on exchanged segments",
}
SMALLEST = 1e-4
"""Smaller p-values are not printed."""

STARTS = (1, 2, 3, 4, 7, 13)
"""The first place (from 1) of each bucket, which ends before the next one."""
BUCKETS = (*(f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in pairwise(STARTS)), f"{STARTS[-1]}+")
"""Names of the buckets, in the order of the places."""


@dataclass(frozen=True)
class Comparison:
    """Systems by name, the baseline first, and what resampling says of each in each metric.

    outcomes: by metric and system; None where the metric is not defined for the system, or there is a single segment.
    """

    config: SignificanceConfig
    systems: Mapping[str, Evaluation]
    outcomes: Mapping[str, Sequence[Outcome | None]]

    def rows(self) -> list[list[str]]:
        """The table as text: a row for each system, a column for each metric, names at the edges."""
        found = [["", *(NAMES[key] for key in self.outcomes)]]
        for number, (name, evaluation) in enumerate(self.systems.items()):
            scores = evaluation.scores()
            found.append([name, *(_cell(scores[key], own[number]) for key, own in self.outcomes.items())])
        return found

    def notes(self) -> list[str]:
        """What a reader of the table must know, a sentence each."""
        baseline, first = next(iter(self.systems.items()))
        segments = {key: self.segments(key) for key in self.outcomes}
        usual = next(iter(segments.values()))
        also = [f"{NAMES[key]}: {own}" for key, own in segments.items() if own != usual]
        over = f"{usual} ({', '.join(also)})" if also else usual
        notes = [
            f"±: half of the 95 % confidence interval, by the bootstrap over {over}; p and * (p < {LEVEL}): against "
            f"{baseline}, {TESTS[self.config.test]}; {self.config.samples:,} samples, seed {self.config.seed}",
            f"{count(first.documents, 'document')}, {count(first.sentences, 'sentence')}",
        ]
        if protocol := first.config.describe_protocol():
            notes.append(protocol)
        if self.config.test != "bootstrap":
            notes += self._too_few()
        for name, evaluation in self.systems.items():
            if evaluation.undefined is not None:
                notes.append(f"{name}: {evaluation.undefined_names()} are not defined: {evaluation.undefined}")
        return notes

    def _too_few(self) -> Iterator[str]:
        """Yield which metrics have so few segments that no difference is significant, however large."""
        first = next(iter(self.systems.values()))
        for kind, number in (("document", first.documents), ("sentence", first.sentences)):
            keys = [key for key in self.outcomes if _segment(key, self.config) == kind]
            if keys and number < FEWEST:
                which = f" of {' and '.join(NAMES[key] for key in keys)}" if len(keys) < len(self.outcomes) else ""
                yield f"with fewer than {FEWEST} {kind}s no difference{which} can be significant: take more of them"

    def segments(self, metric: str) -> str:
        """What is resampled in a metric, counted: `200 documents`."""
        first = next(iter(self.systems.values()))
        kind = _segment(metric, self.config)
        return count(getattr(first, f"{kind}s"), kind)

    def signatures(self) -> dict[str, str]:
        """The signature of each metric, which is that of all systems."""
        found = {}
        for key in self.outcomes:
            scores = (evaluation.scores()[key] for evaluation in self.systems.values())
            found[key] = next((score.signature for score in scores if score is not None), "not defined")
        return found

    def format(self) -> str:
        """A table for people, the signatures, and what the numbers mean."""
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [f"{NAMES[key]:<6}  {text}" for key, text in self.signatures().items()]
        return "\n".join([*lines, *self.notes()])

    def to_markdown(self) -> str:
        """The same as Markdown."""
        rows = [[escaped(cell) for cell in row] for row in self.rows()]
        lines = table(rows, left=len(rows[0]))
        lines += ["", *(f"- {escaped(note)}" for note in self.notes())]
        lines += [f"- {NAMES[key]}: `{text}`" for key, text in self.signatures().items()]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Everything but the statistics, in types that `json.dumps` takes."""
        systems = []
        for number, (name, evaluation) in enumerate(self.systems.items()):
            own = {key: outcomes[number] for key, outcomes in self.outcomes.items()}
            outcomes = {key: outcome and asdict(outcome) for key, outcome in own.items()}
            systems.append({"name": name, **evaluation.to_json(), "outcomes": outcomes})
        resampled = {key: self.segments(key) for key in self.outcomes}
        return {"significance": asdict(self.config), "resampled": resampled, "systems": systems}


def compare(systems: Mapping[str, Evaluation], config: SignificanceConfig | None = None) -> Comparison:
    """Compares the first system with the others in every metric.

    systems: by name, evaluated by the same settings on the same references. The segments that are resampled are whole
    documents, or sentences; those of d-BLEU and d-chrF are documents in any case.
    Raises DocmtError for fewer than two systems, for unlike evaluations, and for a single document.
    """
    config = config or SignificanceConfig()
    if len(systems) < 2:
        raise DocmtError(f"{count(len(systems), 'system')} cannot be compared: give two or more")
    first, *others = systems.values()
    for name, other in zip(list(systems)[1:], others, strict=True):
        if (other.config, other.documents, other.sentences) != (first.config, first.documents, first.sentences):
            raise DocmtError(
                f"{name} was scored on other references, or with other settings, than {next(iter(systems))}: "
                "compare scores of one test set alone"
            )
    check_enough(first.documents, config)
    outcomes, evaluations = {}, list(systems.values())
    with progress("comparing (metrics)", len(first.scores())) as bar:
        for key in first.scores():
            outcomes[key] = _outcomes(key, evaluations, config)
            bar.advance()
    return Comparison(config, dict(systems), outcomes)


def check_enough(documents: int, config: SignificanceConfig) -> None:
    """Raises DocmtError for a single document, of which nothing can be drawn."""
    if documents < 2 and config.resample == "documents":
        raise DocmtError(
            "there is a single document, and documents are what is resampled: give more of them, or resample sentences "
            "(--significance.resample sentences)"
        )


def _outcomes(key: str, evaluations: Sequence[Evaluation], config: SignificanceConfig) -> list[Outcome | None]:
    """What resampling says of each system in a metric; without the baseline's score it is the intervals alone."""
    scores = [evaluation.scores()[key] for evaluation in evaluations]
    defined = {number: score for number, score in enumerate(scores) if score is not None}
    alone = _segment(key, config) == "sentence"
    documents = evaluations[0].documents
    statistics = [score.statistics if alone else score.by_document(documents) for score in defined.values()]
    found: list[Outcome | None] = [None] * len(scores)
    if not statistics or len(statistics[0]) < 2:
        return found
    formula, lower = defined[min(defined)].from_many_sums, defined[min(defined)].lower_is_better
    for number, outcome in zip(defined, compare_statistics(np.stack(statistics), formula, config, lower), strict=True):
        found[number] = outcome if 0 in defined else Outcome(outcome.interval)
    return found


def _segment(metric: str, config: SignificanceConfig) -> str:
    """Return what is resampled in a metric."""
    return "sentence" if config.resample == "sentences" and metric in OF_SENTENCES else "document"


def _cell(score: MetricScore | None, outcome: Outcome | None) -> str:
    """`22.87 ± 0.61  p 0.0123*`."""
    if score is None:
        return "-"
    text = f"{score.score:.2f}"
    if outcome is not None:
        text += f" ± {outcome.interval.half_width:.2f}"
    if outcome is not None and outcome.difference is not None:
        p = outcome.difference.p_value
        shown = f"p {p:.4f}" if p >= SMALLEST else f"p <{SMALLEST:.4f}"
        text += f"  {shown}{'*' if outcome.difference.is_significant else ''}"
    return text


def buckets(places: ArrayLike) -> NDArray[np.int64]:
    """The numbers of the buckets that sentences lie in; places: in their documents, from 1."""
    return np.searchsorted(STARTS, places, side="right") - 1


@dataclass(frozen=True)
class AccuracyBucket:
    """s-BLEU and chrF of several systems on the sentences at some places in their documents."""

    sentences: int
    documents: int
    """that have any of these"""
    systems: dict[str, dict[str, Estimate]]
    """by name and metric"""


@dataclass(frozen=True)
class PositionScores:
    """s-BLEU and chrF of several systems by the place of the sentences in their documents.

    Sentences at other places are other sentences (the first is often a title): compare systems, not places.
    """

    buckets: Mapping[str, AccuracyBucket]
    """by name, in the order of the places"""

    def format(self) -> str:
        """A table for people: a row for each bucket and metric, a column for each system."""
        rows = [["sentence", "metric", "count", *next(iter(self.buckets.values())).systems]]
        for name, bucket in self.buckets.items():
            cells = bucket.systems.values()
            rows.append([name, "s-BLEU", f"{bucket.sentences:,}", *(cell["s_bleu"].format(2) for cell in cells)])
            rows.append(["", "chrF", "", *(cell["chrf"].format(2) for cell in cells)])
        documents = {name: bucket.documents for name, bucket in self.buckets.items()}
        return "\n".join([*aligned(rows), *too_few(max(documents.values()), documents)])

    def to_json(self) -> dict[str, Any]:
        """Counts and scores by bucket."""
        return {name: asdict(bucket) for name, bucket in self.buckets.items()}


def scores_by_position(systems: Mapping[str, Evaluation], config: SignificanceConfig | None = None) -> PositionScores:
    """The sentence scores of each system for the first sentences of documents, the second ones, and so on.

    systems: by name, all of the same references; config: samples and seed of the intervals. Raises DocmtError for a
    system without sentence scores.
    """
    config = config or SignificanceConfig()
    found: dict[str, AccuracyBucket] = {}
    for system, evaluation in systems.items():
        if evaluation.s_bleu is None or evaluation.chrf is None:
            raise DocmtError(f"{system} has no scores of sentences, so none by position: {evaluation.undefined}")
        metrics = {"s_bleu": evaluation.s_bleu, "chrf": evaluation.chrf}
        numbers = evaluation.s_bleu.documents
        lies_in = buckets(np.arange(len(numbers)) - np.searchsorted(numbers, numbers) + 1)
        for number in np.unique(lies_in).tolist():
            chosen = lies_in == number
            empty = AccuracyBucket(int(chosen.sum()), len(np.unique(numbers[chosen])), {})
            cell = {key: _estimate(metric, chosen, config) for key, metric in metrics.items()}
            found.setdefault(BUCKETS[number], empty).systems[system] = cell
    return PositionScores(found)


def _estimate(metric: MetricScore, chosen: NDArray[np.bool_], config: SignificanceConfig) -> Estimate:
    """The score of the chosen sentences with its interval over the documents that have any."""
    rows = metric.by_document(int(metric.documents[-1]) + 1, chosen)
    return estimate(rows[np.unique(metric.documents[chosen])], metric.from_many_sums, config)
