"""The conventions of THUMT, the toolkit of Zhang et al. (2018), as a family of parts.

Three matrices (source, target, softmax), a learned vector on every source embedding, positions from 0, a zero vector
instead of a start mark, and sentences `w .. </s>` without `<s>`. Ids are docmt's; `<s>`, `<eod>` and `<mask>`, which
THUMT does not have, have no row in the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from docmt.model.packed import SentenceFrame
from docmt.model.parts import Head, Parts, token_embedding

START_ID = 0
UNKNOWN_TO_THUMT = 3
"""<s>, <eod> and <mask>: rows that the softmax lacks, the first before its own, two after."""


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


class ThumtParts(Parts):
    """Bricks in THUMT's conventions."""

    frame = SentenceFrame(source_opens=False, target_goes_on=False)
    norm_epsilon = 1e-6
    first_position = 0

    def embeddings(self) -> dict[str, nn.Module]:
        """The modules that turn tokens into vectors, by the name that the model gives them."""
        sizes = self.sizes
        source_rows = sizes.source_vocabulary_size or sizes.vocabulary_size
        return {
            "source_tokens": token_embedding(source_rows, sizes.width),
            # Decoder input begins with <s>, whose row is the zero vector that THUMT puts there.
            "target_tokens": token_embedding(sizes.vocabulary_size, sizes.width, START_ID),
            "softmax": Softmax(sizes.vocabulary_size - UNKNOWN_TO_THUMT, sizes.width),
            "source_bias": SourceBias(sizes.width),
            "source_positions": self._positions(),
            "target_positions": self._positions(),
        }

    def lookup(self, model: nn.Module, side: str, tokens: Tensor) -> Tensor:
        """sqrt(d) * E[token], on the source side plus a learned vector: tokens [...] -> [..., d]"""
        vectors: Tensor = model.get_submodule(f"{side}_tokens")(tokens) * math.sqrt(self.sizes.width)
        return model.get_submodule("source_bias")(vectors) if side == "source" else vectors

    def head(self, model: nn.Module) -> Head:
        """What decoder states are multiplied with: a matrix of its own."""
        return Head(model.get_submodule("softmax").get_parameter("weight"), first=START_ID + 1)

    def tables(self) -> Sequence[str]:
        """The names of the token embeddings."""
        return ("source_tokens", "target_tokens")
