"""Which target tokens a model chooses among where it does not compute the logits of all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FIRST, _LAST = 4, 2
"""Ids of marks, at both ends of a vocabulary, which are always candidates."""


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """The candidates that go with each source token, and those that are always there."""

    best: Tensor
    """[source vocabulary, K] int32: target tokens that go with each source token, the likeliest first; 0 where there
    are no more"""
    always: Tensor
    """[F] int32: target tokens that are candidates of every source"""
    size: int
    """of the target vocabulary"""

    def of(self, source: Tensor, count: int) -> Tensor:
        """[C] the candidates of source tokens [n], `count` for each of them, in rising order.

        As the marks are among them, the first and the last C are those of a vocabulary of C tokens.
        """
        chosen = torch.zeros(self.size, dtype=torch.bool)
        chosen[:_FIRST] = chosen[-_LAST:] = True
        chosen[self.always.long()] = True
        chosen[self.best[source.unique(), :count].flatten().long()] = True
        return chosen.nonzero().flatten()
