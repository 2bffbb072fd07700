"""Scores by the place of a sentence in its document: does a system gain where there is more before a sentence?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.evaluation.contrastive import aligned
from docmt.evaluation.estimates import Estimate, estimate, too_few
from docmt.evaluation.metrics import Evaluation
from docmt.evaluation.scores import MetricScore
from docmt.evaluation.significance import SignificanceConfig

STARTS = (1, 2, 3, 4, 7, 13)
"""The first place (from 1) of each bucket, which ends before the next one."""
NAMES = (*(f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in pairwise(STARTS)), f"{STARTS[-1]}+")
"""Of the buckets, in the order of the places."""


def bucket(place: int) -> int:
    """The number of the bucket that a sentence lies in; place: in its document, from 1."""
    return bisect_right(STARTS, place) - 1


@dataclass(frozen=True)
class Cell:
    """The scores of one system on the sentences of one bucket."""

    bleu: Estimate
    chrf: Estimate

    def to_json(self) -> dict[str, Any]:
        """Both with their intervals."""
        return {"s_bleu": self.bleu.to_json(), "chrf": self.chrf.to_json()}


@dataclass(frozen=True)
class PositionScores:
    """s-BLEU and chrF of several systems by the place of the sentences in their documents.

    Sentences at other places are other sentences (the first is often a title): compare systems, not places.
    """

    sentences: Mapping[str, int]
    """how many there are, by bucket"""
    documents: Mapping[str, int]
    """that have any of these"""
    systems: Mapping[str, Mapping[str, Cell]]
    """by name and bucket"""

    def format(self) -> str:
        """A table for people: a row for each bucket and metric, a column for each system."""
        rows = [["sentence", "metric", "count", *self.systems]]
        for name, count in self.sentences.items():
            cells = [own[name] for own in self.systems.values()]
            rows.append([name, "s-BLEU", f"{count:,}", *(cell.bleu.format(2) for cell in cells)])
            rows.append(["", "chrF", "", *(cell.chrf.format(2) for cell in cells)])
        return "\n".join([*aligned(rows), *too_few(max(self.documents.values(), default=0), self.documents)])

    def to_json(self) -> dict[str, Any]:
        """Counts and scores by bucket."""
        return {
            name: {
                "sentences": count,
                "documents": self.documents[name],
                "systems": {system: cells[name].to_json() for system, cells in self.systems.items()},
            }
            for name, count in self.sentences.items()
        }


def scores_by_position(systems: Mapping[str, Evaluation], config: SignificanceConfig | None = None) -> PositionScores:
    """The sentence scores of each system for the first sentences of documents, the second ones, and so on.

    systems: by name, all of the same references; config: samples and seed of the intervals. Raises DocmtError for a
    system without sentence scores.
    """
    config = config or SignificanceConfig()
    sentences: dict[str, int] = {}
    documents: dict[str, int] = {}
    found: dict[str, dict[str, Cell]] = {}
    for system, evaluation in systems.items():
        if evaluation.s_bleu is None or evaluation.chrf is None:
            raise DocmtError(f"{system} has no scores of sentences, so none by position: {evaluation.undefined}")
        metrics = evaluation.s_bleu, evaluation.chrf
        buckets = _buckets(evaluation.s_bleu.documents)
        for number in np.unique(buckets).tolist():
            chosen = buckets == number
            cell = Cell(*(_estimate(metric, chosen, config) for metric in metrics))
            found.setdefault(system, {})[NAMES[number]] = cell
            sentences[NAMES[number]] = int(chosen.sum())
            documents[NAMES[number]] = len(np.unique(metrics[0].documents[chosen]))
    return PositionScores(sentences, documents, found)


def _buckets(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """[G] the bucket of each sentence; documents [G]: that of each, in order."""
    places = np.arange(len(documents)) - np.searchsorted(documents, documents) + 1
    return np.searchsorted(STARTS, places, side="right") - 1


def _estimate(metric: MetricScore, chosen: NDArray[np.bool_], config: SignificanceConfig) -> Estimate:
    """The score of the chosen sentences with its interval over the documents that have any."""
    rows = metric.by_document(int(metric.documents[-1]) + 1, chosen)
    return estimate(rows[np.unique(metric.documents[chosen])], metric.from_many_sums, config)
