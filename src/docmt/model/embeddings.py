"""From tokens to vectors and back: token tables, positions, biases of distances, and the output layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.core.errors import DocmtError
from docmt.model.families.family import PADDING_ID

if TYPE_CHECKING:
    from docmt.model.transformer import Parts

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
        return self.biases(self.numbers(places, length))

    def numbers(self, places: Tensor, length: int) -> Tensor:
        """Return the bucket numbers [..., q, length] of the distances of keys 0 .. length - 1 from places [..., q]."""
        return self.bucket(torch.arange(length, device=places.device) - places[..., None])

    def biases(self, numbers: Tensor) -> Tensor:
        """Return the biases [..., H, q, l] of distances with these bucket numbers [..., q, l]."""
        biases: Tensor = self.table(numbers)  # [..., q, l, H]
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


class Head(NamedTuple):
    """What projects decoder states to the vocabulary: logits of the ids from `first` on, one for each row."""

    weight: Tensor
    """[rows, d]"""
    first: int = 0
    bias: Tensor | None = None
    """[rows], not trained"""
    scale: float = 1.0
    """of the states"""


class SourceBias(nn.Module):
    """A learned vector that is added to every source embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors [..., d] -> [..., d]"""
        return vectors + self.vector


class Softmax(nn.Module):
    """The matrix that projects to the target vocabulary, [rows, d]."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        nn.init.normal_(self.weight, std=width**-0.5)


class HeadBias(nn.Module):
    """What is added to the logits [rows]; it is not trained."""

    vector: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("vector", torch.zeros(rows))


def token_embedding(rows: int, width: int, zero: int | None = PADDING_ID) -> nn.Embedding:
    """E ~ N(0, 1/d), if asked for with a zero row that is never trained, that of padding."""
    embedding = nn.Embedding(rows, width, padding_idx=zero)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    if zero is not None:
        with torch.no_grad():
            embedding.weight[zero].zero_()
    return embedding


class Embeddings(nn.Module):
    """Token embeddings, positions and norms of both sides, and the head that makes logits.

    They are attributes of this module itself. A model inherits from it, so that its weights have the same names
    whatever its system.
    """

    source_bias: SourceBias
    softmax: Softmax
    head_bias: HeadBias

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        for name, module in parts.embeddings().items():
            self.add_module(name, module)

    def lookup(self, side: str, tokens: Tensor) -> Tensor:
        """sqrt(d) * E[token] (Vaswani et al. 2017, section 3.4): tokens [...] -> [..., d]; side: source or target."""
        vectors: Tensor = getattr(self, self.parts.table(side))(tokens)
        sizes = self.parts.of(side).sizes
        if sizes.scale_embeddings:
            vectors = vectors * math.sqrt(sizes.width)
        return self.source_bias(vectors) if self.parts.family.source_bias and side == "source" else vectors

    def add_positions(self, side: str, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Add to vectors [..., d] those of their positions [...] (None: a sequence without order), and normalise."""
        sizes = self.parts.of(side).sizes
        if positions is not None and sizes.position_encoding != "relative":
            vectors = vectors + getattr(self, f"{side}_positions")(positions)
        if torch.is_autocast_enabled(vectors.device.type):
            # From here on states are in the precision of autocast: casting them to and fro around every product made
            # 240 copies in a training step of a small model (docs/contributing/decisions/0011-bfloat16-training.md).
            vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
        normed: Tensor = getattr(self, f"{side}_norm")(vectors) if sizes.embedding_normalization else vectors
        return normed

    def head(self) -> Head:
        """Return what decoder states are multiplied with: the embedding of the target, or a matrix of its own."""
        parts = self.parts
        first, last = parts.family.unpredicted
        bias = self.head_bias.vector if parts.family.head_bias else None
        if parts.own_head:
            return Head(self.softmax.weight, first, bias)
        table = self._target_table()
        scale = parts.sizes.width**-0.5 if parts.sizes.output == "scaled" else 1.0
        return Head(table[first : len(table) - last] if first or last else table, first, bias, scale)

    def whole_head(self) -> Head:
        """Return the same, but of a table all rows, with a bias of minus infinity where the id has no logit."""
        head, table = self.head(), self._target_table()
        if self.parts.own_head or len(head.weight) == len(table):
            return head
        bias = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias
        return Head(table, 0, F.pad(bias.detach(), self.parts.family.unpredicted, value=-torch.inf), head.scale)

    def tables(self) -> Sequence[str]:
        """Return the names of the token embeddings."""
        return tuple(dict.fromkeys(self.parts.table(side) for side in ("source", "target")))

    def _target_table(self) -> Tensor:
        table: Tensor = getattr(self, self.parts.table("target")).weight
        return table
