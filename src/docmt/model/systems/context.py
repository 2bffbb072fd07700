"""The document-context Transformer (Zhang et al. 2018): attention to the encoded sentences before.

Notation: S source sentences, d model width; a context is the sequence of the k sentences before one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import Tensor, nn

    from docmt.model.attention import Memory
    from docmt.model.layers import Layer
    from docmt.model.model_config import Sizes
    from docmt.model.spans import ModelInput
    from docmt.model.transformer import Parts, TranslationModel


@dataclass(frozen=True)
class Context(System):
    """Encoder and decoder attend to the sentences before, between self-attention and what follows it.

    A document's first sentence has a single mark as its context. Training has two steps in the paper: a sentence model,
    then the new parameters alone (`initialize_from` it, `freeze` what is loaded).
    """

    sentences: int = ranged(2, 1, 10_000)
    """k, the source sentences before each that it looks at (Table 1 of the paper)"""
    layers: int = ranged(1, 1, 1000)
    """layers of the context encoder (Table 2)"""
    representation: Literal["encoder", "embedding", "bilstm"] = "encoder"
    """what is made of the context: the output of a Transformer encoder (published), or of a bidirectional LSTM, or the
    embeddings themselves"""
    side: Literal["both", "encoder", "decoder"] = "both"
    """where context is looked at (Table 8)"""
    gating: Literal["gate", "residual"] = "gate"
    """how it is joined: lam x + (1 - lam) y with a gate at every position, or x + y (Table 9)"""
    fusion: Literal["identity", "published"] = "identity"
    """published: the joined states are normalised, so that new weights change what a sentence model says even with
    gates at 1; exact: x + (1 - lam) y (or x + y), not normalised, and y begins at zero: the sentence model exactly"""

    def context_spec(self) -> ContextSpec:
        """Sentences of a document, and the k before them."""
        return ContextSpec(before=self.sentences, joined=True)

    def check(self, sizes: Sizes) -> None:
        """Raises DocmtError for layers of what has none."""
        if self.layers > 1 and self.representation != "encoder":
            raise DocmtError(
                f"model.context.layers is {self.layers}, but representation {self.representation} has no layers: leave "
                "it out, or choose representation encoder"
            )

    def encoder(self, parts: Parts) -> list[Layer]:
        """Self-attention, attention to the context, feed-forward."""
        layers = super().encoder(parts)
        return layers if self.side == "decoder" else [self._with_context(layer, parts) for layer in layers]

    def decoder(self, parts: Parts) -> list[Layer]:
        """Self-attention, attention to the context, cross-attention, feed-forward."""
        layers = super().decoder(parts)
        return layers if self.side == "encoder" else [self._with_context(layer, parts) for layer in layers]

    def _with_context(self, layer: Layer, parts: Parts) -> Layer:
        wide = 2 * parts.encoder.sizes.width if self.representation == "bilstm" else None
        exact = self.fusion == "identity"
        attention = parts.attention(AttentionScope("context"), wide, at_zero=exact)
        branch = parts.gated_residual(exact) if self.gating == "gate" else parts.residual(normed=not exact)
        return layer.insert("context", attention, branch, after="attention")

    def modules(self, parts: Parts) -> dict[str, nn.Module]:
        """The context encoder."""
        from torch import nn

        from docmt.model.layers import Bilstm

        parts = parts.encoder
        if self.representation == "embedding":
            return {}
        if self.representation == "bilstm":
            return {"context": Bilstm(parts.sizes.width)}
        layers = [
            parts.layer(attention=self.attend(parts, AttentionScope(), number), feed_forward=parts.feed_forward())
            for number in range(self.layers)
        ]
        return {"context": nn.ModuleList(layers)} | ({"context_norm": parts.norm()} if parts.pre_norm else {})

    def memories(self, model: TranslationModel, inputs: ModelInput) -> Mapping[str, Memory]:
        """The contexts and the encoded sentences; those that are only looked back at are not encoded themselves."""
        from docmt.model.attention import FullContext, Memory

        source = inputs.source
        vectors = model.lookup("source", source.tokens)  # [T, d], each token once
        spans, index = source.contexts(self.sentences, model.parts.frame)
        contexts = Memory(vectors.index_select(0, index.to(vectors.device)), spans, places=index)
        context = replace(contexts, states=self._represent(model, contexts))
        numbers = inputs.aligned.unique()
        current, index = source.only(numbers)
        if len(index) < len(vectors):
            vectors = vectors.index_select(0, index.to(vectors.device))
        x = model.place("source", vectors, current)
        states = model.run_encoder(x, FullContext(current, {"context": context}, numbers))
        return {"context": context, "source": Memory(states, source.sentences.with_only(numbers))}

    def _represent(self, model: TranslationModel, contexts: Memory) -> Tensor:
        """What is made of embedded contexts: [T', d] (bilstm: [T', 2 d])."""
        from docmt.model.attention import FullContext
        from docmt.model.layers import run

        if self.representation == "encoder":
            positions = contexts.sentences.positions().to(contexts.states.device)
            x = model.add_positions("source", contexts.states, positions)
            x = run(model.get_submodule("context").children(), x, FullContext(contexts))
            return model.get_submodule("context_norm")(x) if model.parts.encoder.pre_norm else x
        x = model.add_positions("source", contexts.states, None)
        return x if self.representation == "embedding" else model.get_submodule("context")(x, contexts.sentences)

    def origin(self, name: str) -> str | None:
        """All but the context encoder and what looks at it is the sentence model's."""
        return None if "context" in name else name
