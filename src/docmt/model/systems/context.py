"""The document-context Transformer (Zhang et al. 2018): attention to the encoded sentences before.

Notation: d model width. A context is the sequence of the k sentences before one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from docmt.core.settings import Needs, ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import Tensor, nn

    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.layers import Layer
    from docmt.model.spans import ModelInput


@dataclass(frozen=True)
class Context(System):
    """Encoder and decoder attend to preceding sentences, directly after self-attention.

    The context of a document's first sentence is a single boundary token. The paper trains in two steps: a sentence
    model, then only the new parameters (`initialize_from` it, and `freeze` what is loaded).
    """

    sentences: int = ranged(2, 1, 10_000)
    """preceding source sentences to attend to"""
    layers: int = ranged(1, 1, 1000)
    """layers of the context encoder"""
    representation: Literal["encoder", "embedding", "bilstm"] = "encoder"
    """context states: a Transformer encoder, plain embeddings, or a bidirectional LSTM"""
    side: Literal["both", "encoder", "decoder"] = "both"
    """stacks that attend to the context"""
    gating: Literal["gate", "residual"] = "gate"
    """combination with the context: a gate at every position, or a plain sum"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: starts equal to the sentence model; published: as in the paper"""

    option_rules = (Needs("layers", "representation encoder"),)

    def context_spec(self) -> ContextSpec:
        """Return sentences with the k before them."""
        return ContextSpec(source_context=self.sentences, joined_context=True)

    def build_encoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers of self-attention, context attention, feed-forward."""
        layers = super().build_encoder(builder)
        return layers if self.side == "decoder" else [self._insert_context(layer, builder) for layer in layers]

    def build_decoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers of self-attention, context attention, cross-attention, feed-forward."""
        layers = super().build_decoder(builder)
        return layers if self.side == "encoder" else [self._insert_context(layer, builder) for layer in layers]

    def _insert_context(self, layer: Layer, builder: ModelBuilder) -> Layer:
        memory_width = 2 * builder.encoder.config.width if self.representation == "bilstm" else None
        identity = self.fusion == "identity"
        attention = builder.build_attention(AttentionScope("context"), memory_width, zero_init=identity)
        gated = self.gating == "gate"
        branch = builder.build_gated_residual(identity) if gated else builder.build_residual(has_norm=not identity)
        return layer.insert("context", attention, branch, after="attention")

    def build_modules(self, builder: ModelBuilder) -> dict[str, nn.Module]:
        """Build the context encoder."""
        from docmt.model.blocks import Bilstm

        builder = builder.encoder
        if self.representation == "embedding":
            return {}
        if self.representation == "bilstm":
            return {"context": Bilstm(builder.config.width)}
        layers = [self.build_encoder_layer(builder, number) for number in range(self.layers)]
        return builder.build_stack("context", layers)

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute contexts and encoded sentences. Sentences that are only context are not encoded separately."""
        from docmt.model.contexts import FullContext, Memory

        source = inputs.source
        vectors = model.look_up_tokens("source", source.tokens)  # [T, d], each token once
        spans, index = source.gather_contexts(self.sentences, model.boundary_tokens)
        contexts = Memory(vectors.index_select(0, index.to(vectors.device)), spans, source_positions=index)
        context = replace(contexts, states=self._encode_contexts(model, contexts))
        sentences = inputs.alignment.unique()
        current, index = source.select_sentences(sentences)
        if len(index) < len(vectors):
            vectors = vectors.index_select(0, index.to(vectors.device))
        x = model.add_packed_positions("source", vectors, current)
        states = model.run_encoder(x, FullContext(current, {"context": context}, sentences))
        return {"context": context, "source": Memory(states, source.sentences.tile_selected(sentences))}

    def _encode_contexts(self, model: EncoderDecoder, contexts: Memory) -> Tensor:
        """Encode embedded contexts: [T', d] (bilstm: [T', 2 d])."""
        from docmt.model.contexts import FullContext

        if self.representation == "encoder":
            positions = contexts.sentences.positions().to(contexts.states.device)
            x = model.add_positions("source", contexts.states, positions)
            return model.run_stack("context", x, FullContext(contexts))
        x = model.add_positions("source", contexts.states, None)
        return x if self.representation == "embedding" else model.get_submodule("context")(x, contexts.sentences)

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but the context encoder and its attentions from the sentence model."""
        return None if "context" in name else name
