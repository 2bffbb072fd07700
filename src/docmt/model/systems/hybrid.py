"""The hybrid-context model (Zheng et al. 2020): a document layer above the encoder, and a decoder with history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import DecodingOrder, System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import GroupAttention
    from docmt.model.builder import ModelBuilder


@dataclass(frozen=True)
class Hybrid(System):
    """Sentences are encoded alone, then one more layer attends to the document. A gate joins both.

    Self-attention of the decoder also sees the target sentences before, each layer the states of that layer. Vectors by
    the distance of sentences are added to keys and values of both. Differences from the published code: the decoder has
    sinusoidal positions and these vectors, not token distances; gradients reach the sentences before; an instance is
    one hypothesis of the sequential search; the document layer comes after the final norm of a pre-norm encoder; source
    tokens get no vector of their sentence's number.
    """

    history: int = ranged(1, 0, 1000)
    """preceding target sentences that each decoder layer sees; 0: none"""
    farthest: int = ranged(20, 1, 1000)
    """distance in sentences from which the document layer treats all sentences alike"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: the document layer starts without effect; published: at random, and a norm follows"""

    @property
    def decoding_order(self) -> DecodingOrder:
        """Instance by instance with target sentences before."""
        return "documents" if self.history else "sentences"

    def context_spec(self) -> ContextSpec:
        """Return a spec without limits."""
        return ContextSpec()

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build attention within sentences, in the decoder also to those before."""
        from docmt.model.attention import GroupAttention

        if scope.memory != "self" or not scope.causal or not self.history:
            return super().build_attention(builder, scope, number)
        vectors = builder.build_sentence_vectors(recent=self.history)
        return GroupAttention(
            builder.build_attention(replace(scope, extent="recent", offset=self.history), relation=vectors)
        )

    def build_above_encoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build the document layer."""
        from docmt.model.blocks import DocumentLayer

        vectors = builder.build_sentence_vectors(farthest=self.farthest)
        attention = builder.build_attention(AttentionScope(extent="document"), relation=vectors)
        return [DocumentLayer(builder, attention, identity=self.fusion == "identity")]

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but the document layer and the vectors from the sentence model."""
        return None if name.startswith("above_") or ".relation." in name else name
