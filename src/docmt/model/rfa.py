"""The conventions of the published code of Wu et al. (2022), which is built on fairseq, as a family of parts.

A matrix of embeddings for each side, that of the target for the output as well, and sentences of a window joined by one
mark, here `<s>`. The code has no `<eod>` and no `<mask>`: the softmax has no rows for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from docmt.model.packed import SentenceFrame
from docmt.model.parts import Head, Parts, token_embedding

UNKNOWN_TO_RFA = 2
"""<eod> and <mask>: the last rows of the embeddings, which the softmax lacks."""


class RfaParts(Parts):
    """Bricks in the conventions of that code, with linear attention or (its baseline) softmax."""

    frame = SentenceFrame(source_opens=False, target_goes_on=False, joined=True)

    def embeddings(self) -> dict[str, nn.Module]:
        """The modules that turn tokens into vectors, by the name that the model gives them."""
        sizes = self.sizes
        return {
            "source_tokens": token_embedding(sizes.source_vocabulary_size or sizes.vocabulary_size, sizes.width),
            "target_tokens": token_embedding(sizes.vocabulary_size, sizes.width),
            "source_positions": self._positions(),
            "target_positions": self._positions(),
        }

    def lookup(self, model: nn.Module, side: str, tokens: Tensor) -> Tensor:
        """sqrt(d) * E[token] of the side's matrix: tokens [...] -> [..., d]"""
        vectors: Tensor = model.get_submodule(f"{side}_tokens")(tokens) * math.sqrt(self.sizes.width)
        return vectors

    def head(self, model: nn.Module) -> Head:
        """What decoder states are multiplied with: the embedding of the target."""
        return Head(model.get_submodule("target_tokens").get_parameter("weight")[:-UNKNOWN_TO_RFA])

    def tables(self) -> Sequence[str]:
        """The names of the token embeddings."""
        return ("source_tokens", "target_tokens")
