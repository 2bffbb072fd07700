"""Log-probability of the tokens that decide the items of a contrastive test set.

The marked tokens of an item are those of the right candidate that a wrong one does not share: from the first token that
differs to the last one. Their gain from context is CXMI on these tokens alone (Fernandes et al. 2021), which the many
tokens that need no context do not dilute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.evaluation.significance import (
    Estimate,
    SignificanceConfig,
    estimate,
    few_documents_notes,
    randomization,
    ratio,
    sampled_p_value,
)
from docmt.evaluation.suites import SuiteItem

if TYPE_CHECKING:
    from docmt.decoding import Translation

TIE = 1e-4
"""Differences below this (nats) are ties: scores of equal text vary this much with the shape of the batch."""


@dataclass(frozen=True)
class MarkedScore:
    """Log-probability of the marked tokens of an item."""

    score: float
    """nats"""
    tokens: int


def find_marked(right: Sequence[Any], wrong: Sequence[Sequence[Any]]) -> range:
    """Return the positions of the tokens of the right candidate that a wrong one does not share at its ends.

    Wrong candidates that share all of them count only if all do.
    """
    spans = []
    for other in wrong:
        start = _common_length(right, other)
        spans.append((start, len(right) - _common_length(right[start:][::-1], other[start:][::-1])))
    marked = [(start, end) for start, end in spans if start < end]
    return range(min(start for start, _ in marked), max(end for _, end in marked)) if marked else range(0)


def _common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def score_marked(item: SuiteItem, candidates: Sequence[Translation]) -> MarkedScore | None:
    """Return the score of the marked tokens of an item, whose candidates were scored; None if it has none."""
    tested = [candidate.sentences[item.sentence] for candidate in candidates]
    right = tested[item.correct]
    marked = find_marked(right.token_ids, [tested[number].token_ids for number in item.wrong])
    return MarkedScore(sum(right.token_scores[marked.start : marked.stop]), len(marked)) if marked else None


@dataclass(frozen=True)
class MarkedDifference:
    """Gain of true context over another one, per item (nats)."""

    gain: Estimate
    """with its interval over documents"""
    p_value: float
    """of paired approximate randomization over documents"""


@dataclass(frozen=True)
class MarkedTokens:
    """Log-probabilities of the marked tokens by condition, and the gains of true context (nats per item)."""

    items: int
    tokens: int
    documents: int
    left_out: int
    """items without marked tokens, or without a finite score in a condition"""
    likelihood: Mapping[str, Estimate]
    gains: Mapping[str, MarkedDifference]
    """by the other condition"""

    def format(self) -> str:
        """Return a table."""
        return "\n".join([self._title(), *align_columns(self._rows()), *self._remarks()])

    def markdown(self) -> str:
        """Return a table in Markdown."""
        rows = [[escape_markdown(cell) for cell in row] for row in self._rows()]
        remarks = [f"- {escape_markdown(remark)}" for remark in self._remarks()]
        table = "\n".join(markdown_table(rows))
        return "\n\n".join(filter(None, [escape_markdown(self._title()), table, "\n".join(remarks)]))

    def _title(self) -> str:
        return (
            f"log-probability of the marked tokens (nats; {self.items:,} items, {self.tokens:,} tokens; 95 % intervals "
            f"over {self.documents:,} documents; p: randomization)"
        )

    def _rows(self) -> list[list[str]]:
        rows = [["", "per item", "p"], *([name, value.format(4), ""] for name, value in self.likelihood.items())]
        for name, difference in self.gains.items():
            rows.append([f"true - {name}", difference.gain.format(4, signed=True), f"{difference.p_value:.4f}"])
        return rows

    def _remarks(self) -> list[str]:
        left_out = [f"{self.left_out:,} items without marked tokens or scores are left out"] if self.left_out else []
        return [*left_out, *few_documents_notes(self.documents)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def compare_marked(
    items: Sequence[SuiteItem], scores: Mapping[str, Sequence[MarkedScore | None]], config: SignificanceConfig
) -> MarkedTokens | None:
    """Compare the marked tokens in conditions, the true one first. None if no item has marked tokens in all of them.

    Scores of an item that differ by less than TIE from the true condition count as equal to it.
    """
    numbers = [
        number
        for number, values in enumerate(zip(*scores.values(), strict=True))
        if all(value is not None and isfinite(value.score) for value in values)
    ]
    if not numbers:
        return None
    keys = [items[number].document or number for number in numbers]  # without a name: a document of its own
    rows = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    statistics = {name: np.zeros((len(rows), 2)) for name in scores}
    true, *others = statistics
    for name, values in scores.items():
        for key, number in zip(keys, numbers, strict=True):
            value, right = values[number], scores[true][number]
            assert value is not None and right is not None
            statistics[name][rows[key]] += right.score if abs(value.score - right.score) < TIE else value.score, 1
    gains = {}
    for name in others:
        differences = statistics[true] - statistics[name] * [1, 0]
        pair = np.stack([statistics[name], statistics[true]])
        gain = estimate(differences, ratio, config)
        drawn = randomization(pair, ratio, config.samples, config.seed)
        gains[name] = MarkedDifference(gain, sampled_p_value(drawn, abs(gain.value)))
    tokens = sum(value.tokens for number in numbers if (value := scores[true][number]))
    likelihood = {name: estimate(rows, ratio, config) for name, rows in statistics.items()}
    return MarkedTokens(len(numbers), tokens, len(rows), len(items) - len(numbers), likelihood, gains)
