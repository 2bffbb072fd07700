"""Numbers with the interval that a corpus of other documents would let expect.

Notation: D documents, K sums that a number is made of, * any shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from docmt.evaluation.scores import Scores, Statistics
from docmt.evaluation.significance import FEWEST, Formula, Interval, SignificanceConfig, bootstrap


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

    def to_json(self) -> dict[str, Any]:
        """Value and ends of the interval, null where there is none."""
        return asdict(self)


def estimate(
    rows: Statistics, formula: Formula, config: SignificanceConfig, minus: Statistics | None = None
) -> Estimate:
    """What `formula` makes of the sum of rows [D, K], one a document, with its interval (bootstrap over documents).

    config: its samples and seed; minus: rows of the same documents, what is made of which is subtracted.
    """
    both = np.stack([rows] if minus is None else [rows, minus]).astype(np.float64)  # [1 or 2, D, K]
    value = float(_first_minus_second(formula(both.sum(axis=1))))
    if len(rows) < 2:
        return Estimate(value)
    interval = Interval.of_samples(_first_minus_second(bootstrap(both, formula, config.samples, config.seed)))
    return Estimate(value, interval.low, interval.high)


def _first_minus_second(scores: Scores) -> Scores:
    """[1 or 2, *] -> [*]"""
    return scores[0] if len(scores) == 1 else scores[0] - scores[1]


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
