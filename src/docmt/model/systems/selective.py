"""Selective attention networks (SAN, Maruf et al. 2019): sparse attention to the other sentences of the document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from docmt.core.errors import DocmtError
from docmt.model.scope import ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.model_config import Sizes
    from docmt.model.transformer import Parts


@dataclass(frozen=True)
class Selective(System):
    """Above the encoder, states attend to a few other source sentences of the instance, and to the words in them.

    This is the monolingual context of the paper. Its bilingual context at the decoder, from translations of a first
    pass, is not there. Context is a set: positions restart at each sentence, and their order has no effect. As
    published, boundary tokens of other sentences are hidden. Where no other sentence is visible, states are unchanged.
    (There the published code attends to rounded scores without a mask, so that it sees its own and later sentences.)
    """

    reach: Literal["all", "before"] = "all"
    """other sentences to attend to: all (offline), or only those before (online)"""
    attention: Literal["hierarchical", "word", "sentence"] = "hierarchical"
    """sparse attention to sentences times attention to their words, or to all words or all sentences at once"""
    words: Literal["softmax", "sparsemax"] = "softmax"
    """weights of words: softmax, or sparsemax, by which many are zero"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: starts equal to the sentence model; published: as in the paper"""
    detach: bool = False
    """no gradient through the attended states (published: stored states of a first model)"""

    def context_spec(self) -> ContextSpec:
        """Read as many sentences together as the limits allow."""
        return ContextSpec()

    def check(self, sizes: Sizes) -> None:
        """Raise DocmtError for weights of words without attention to words."""
        if self.attention == "sentence" and self.words != "softmax":
            raise DocmtError(
                f"model.selective.words is {self.words}, but attention sentence has no weights of words: leave it out, "
                "or choose attention hierarchical or word"
            )

    def build_above_encoder(self, parts: Parts) -> list[nn.Module]:
        """Build the layer of selective attention, whose gate joins the state h and its context c.

        With g = sigmoid(W h + U c), it is g h + (1 - g) c (published), or h + (1 - g) c (identity).
        """
        from docmt.model.layers import GatedResidual
        from docmt.model.selective_attention import SelectiveAttention

        identity = self.fusion == "identity"
        attention = SelectiveAttention(
            parts,
            preceding=self.reach == "before",
            level=self.attention,
            words=self.words,
            detach=self.detach,
            identity=identity,
        )
        branch = GatedResidual(None, parts.sizes.width, pre_norm=False, additive=identity)
        return [parts.build_layer(context=(attention, branch))]

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but the layer above the encoder from the sentence model."""
        return None if name.startswith("above_encoder.") else name
