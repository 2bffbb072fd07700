"""Where tokens stand: position vectors, sinusoidal or learned, or biases of distances."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from docmt.core.errors import DocmtError

# The first position has index 2: the published code counts from the padding id (1) plus one.
FIRST_POSITION = 2


class SinusoidalPositions(nn.Module):
    """P[position], computed for any length (Vaswani et al. 2017, section 3.5, sines and cosines in halves)."""

    def __init__(
        self, width: int, first: int = FIRST_POSITION, frequencies: Literal["fairseq", "vaswani"] = "fairseq"
    ) -> None:
        """first: the index of the first position; frequencies: see `sinusoids`."""
        super().__init__()
        self.width, self.first, self.frequencies = width, first, frequencies

    def forward(self, positions: Tensor) -> Tensor:
        """positions [...] counted from 0 -> [..., d]"""
        last = int(positions.max()) if positions.numel() else 0
        # Sizes are powers of two, so that few tables are ever computed.
        count = 1 << max(10, last.bit_length())
        return sinusoids(count, self.width, self.first, positions.device, self.frequencies)[positions]


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


class Distances(nn.Module):
    """What attention adds to scores for the distance between two tokens, one number a head (Raffel et al. 2020, 2.1).

    Distances share a number in buckets: short ones have one each, longer ones ever fewer, and all from `most` on one.
    """

    def __init__(self, buckets: int, most: int, heads: int, *, causal: bool) -> None:
        """causal: only tokens before are seen; otherwise half of the buckets are of those after."""
        super().__init__()
        self.buckets, self.most, self.causal = buckets, most, causal
        self.table = nn.Embedding(buckets, heads)
        nn.init.zeros_(self.table.weight)

    def forward(self, places: Tensor, length: int) -> Tensor:
        """Of queries at places [..., q], counted as keys 0 .. length - 1 are: [..., H, q, length]."""
        keys = torch.arange(length, device=places.device)
        biases: Tensor = self.table(self.bucket(keys - places[..., None]))  # [..., q, length, H]
        return biases.movedim(-1, -3)

    def bucket(self, distance: Tensor) -> Tensor:
        """The number of the bucket of each distance [...], that of the key minus that of the query."""
        count = self.buckets if self.causal else self.buckets // 2
        after = torch.zeros_like(distance) if self.causal else (distance > 0) * count
        far = -distance.clamp(max=0) if self.causal else distance.abs()
        short = count // 2
        grown = (far.clamp(min=1).float() / short).log() / math.log(self.most / short) * (count - short)
        return after + torch.where(far < short, far, (short + grown.long()).clamp(max=count - 1))


@lru_cache(maxsize=16)
def sinusoids(
    count: int,
    width: int,
    first: int = FIRST_POSITION,
    device: torch.device | str = "cpu",
    frequencies: Literal["fairseq", "vaswani"] = "fairseq",
) -> Tensor:
    """[count, d] position vectors: sines in the first half, cosines in the second, from index `first` on.

    Frequencies fall from 1 to 1/10000 (fairseq), or would reach that with one more (vaswani; as Marian has it, in
    double precision).
    """
    half = width // 2
    exact = frequencies == "vaswani"
    kind, steps = (torch.float64, half) if exact else (torch.float32, max(half - 1, 1))
    falling = torch.exp(torch.arange(half, dtype=kind) * -(math.log(10000) / steps))
    angles = torch.arange(first, count + first, dtype=kind)[:, None] * falling
    return torch.cat((angles.sin(), angles.cos()), dim=1).float().to(device)
