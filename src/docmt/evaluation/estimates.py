"""Numbers with the interval that a corpus of other documents would let expect, and tables of them.

Notation: D documents, K sums that a number is made of, B samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""of the intervals"""
_CHUNK = 4096
"""samples that are drawn together"""


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval of 95%, which a single document does not have."""

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


def estimate(rows: NDArray[Any], statistic: Callable[[NDArray[Any]], float], samples: int, seed: int = 1) -> Estimate:
    """A statistic of the sum of rows [D, K], one a document, and the interval by the bootstrap over documents.

    Each sample draws D documents with replacement (Efron 1979; over whole documents, as their sentences are not
    independent); the interval holds the middle 95% of what the statistic is of the samples' sums [K].
    """
    value = float(statistic(rows.sum(axis=0)))
    count = len(rows)
    if count < 2 or samples == 0:
        return Estimate(value)
    random, found = np.random.default_rng(seed), []
    for first in range(0, samples, _CHUNK):
        drawn = random.multinomial(count, np.full(count, 1 / count), size=min(_CHUNK, samples - first))  # [B, D]
        found += [float(statistic(sums)) for sums in drawn @ rows]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))


def ratio(sums: NDArray[Any]) -> float:
    """The first sum divided by the second one; 0 where that is 0."""
    return float(sums[0] / sums[1]) if sums[1] else 0.0


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of as many cells each, the first cells to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        [cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(cells)]
        for cells in (zip(row, widths, strict=True) for row in rows)
    )
    return "\n".join("  ".join(row).rstrip() for row in padded)
