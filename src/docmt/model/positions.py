"""Position vectors: sinusoidal or learned."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from docmt.errors import DocmtError

# The first position has index 2: the published code counts from the padding id (1) plus one.
FIRST_POSITION = 2


class SinusoidalPositions(nn.Module):
    """P[position], computed for any length (Vaswani et al. 2017, section 3.5, sines and cosines in halves)."""

    def __init__(self, width: int, first: int = FIRST_POSITION) -> None:
        """first: the index of the first position."""
        super().__init__()
        self.width, self.first = width, first

    def forward(self, positions: Tensor) -> Tensor:
        """positions [...] counted from 0 -> [..., d]"""
        last = int(positions.max()) if positions.numel() else 0
        # Sizes are powers of two, so that few tables are ever computed.
        count = 1 << max(10, last.bit_length())
        return sinusoids(count, self.width, self.first, positions.device)[positions]


class LearnedPositions(nn.Module):
    """P[position], learned for up to `count` positions."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.table = nn.Embedding(count, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, positions: Tensor) -> Tensor:
        """positions [...] counted from 0 -> [..., d]. Raises DocmtError beyond the last learned position."""
        last = int(positions.max()) if positions.numel() else 0
        if last >= self.table.num_embeddings:
            raise DocmtError(
                f"a piece of {last + 1} tokens is longer than the {self.table.num_embeddings} learned positions of "
                "this model: split its longest sentence, or use a model with sinusoidal positions"
            )
        return self.table(positions)


@lru_cache(maxsize=16)
def sinusoids(count: int, width: int, first: int = FIRST_POSITION, device: torch.device | str = "cpu") -> Tensor:
    """[count, d] position vectors: sines in the first half, cosines in the second, from index `first` on."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(first, count + first, dtype=torch.float32)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1).to(device)
