"""Selective attention networks (SAN, Maruf et al. 2019): sparse attention to the other sentences of the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from docmt.core.settings import Excludes
from docmt.model.scope import ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.layers import Layer, Residual
    from docmt.model.spans import ModelInput, Packed


@dataclass(frozen=True)
class Selective(System):
    """States attend to a few other sentences of the instance, and to the words in them.

    The monolingual context of the paper: source sentences, read above the encoder. Its bilingual context: drafts, read
    in the last decoder layer. The decoder itself makes the states of drafts, without context. Context is a set:
    positions restart at each sentence, and their order has no effect. As published, boundary tokens of other sentences
    are hidden. Where no other sentence is visible, states are unchanged. (There the published code attends to rounded
    scores without a mask, so that it sees its own and later sentences.)
    """

    side: Literal["encoder", "decoder", "both"] = "encoder"
    """attend to the source (encoder), to drafts (decoder), or both"""
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

    option_rules = (Excludes("words", "attention sentence"),)

    def context_spec(self) -> ContextSpec:
        """Read as many sentences together as the limits allow, with drafts for the decoder."""
        return ContextSpec(drafts=self.side != "encoder")

    def build_above_encoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build selective attention to source sentences."""
        return [] if self.side == "decoder" else [self._build_layer(builder, {})]

    def build_decoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers, the last one with selective attention to drafts."""
        layers = super().build_decoder(builder)
        if self.side != "encoder":
            layers[-1] = self._build_layer(builder, layers[-1].blocks)
        return layers

    def _build_layer(self, builder: ModelBuilder, blocks: Mapping[str, tuple[nn.Module, Residual]]) -> Layer:
        """Build a layer of these blocks (none above the encoder), whose gate joins the state h and its context c.

        With g = sigmoid(W h + U c), it is g h + (1 - g) c (published), or h + (1 - g) c (identity).
        """
        from docmt.model.blocks import SelectiveAttention, SelectiveLayer
        from docmt.model.layers import GatedResidual

        identity, pre_norm = self.fusion == "identity", builder.pre_norm and bool(blocks)
        boundaries = builder.boundary_tokens  # the states of a draft predict the tokens after them, `</s>` at the end
        attention = SelectiveAttention(
            builder,
            "drafts" if blocks else "self",
            (len(boundaries.target_opening) - 1, 1) if blocks else boundaries.counts("source"),
            identity=identity,
            preceding=self.reach == "before",
            level=self.attention,
            words=self.words,
            detach=self.detach,
        )
        norm = builder.build_norm() if pre_norm else None
        branch = GatedResidual(norm, builder.config.width, pre_norm, additive=identity)
        return SelectiveLayer(blocks, attention, branch)

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute encoded sentences, and drafts for the decoder. Raises ValueError if they are missing."""
        source = model.encode_memory(inputs.source)
        if self.side == "encoder":
            return {"source": source}
        return {"source": source, "drafts": self._read_drafts(model, inputs.require_drafts(), source)}

    def _read_drafts(self, model: EncoderDecoder, drafts: Packed, source: Memory) -> Memory:
        """Run the decoder over drafts, each with its source sentence: a memory of the states that predict words."""
        import torch

        from docmt.model.contexts import DraftContext, Memory
        from docmt.model.layers import run_layers

        boundaries = model.boundary_tokens
        read = drafts.replace_boundaries(boundaries.counts("source"), boundaries.target_opening)
        context = DraftContext(read, {"source": source})
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.detach):
            keys, values = run_layers(model.decoder, model.embed("target", read), context)
        return Memory(values, read.sentences, read.documents, [keys])

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but selective attention from the sentence model."""
        return None if ".context" in name else name
