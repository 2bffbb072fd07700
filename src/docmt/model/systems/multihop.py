"""The Multi-Hop Transformer (2021): attention to one context sentence after the other, on both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from docmt.core.settings import Excludes, Needs, ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.layers import Layer
    from docmt.model.spans import ModelInput, Packed

_EMBEDDINGS = "target_sentences.embeddings."


@dataclass(frozen=True)
class MultiHop(System):
    """Layers attend to the k preceding sentences in turn: source in the encoder, drafts in the decoder.

    One sentence encoder per side reads each sentence once. Layer n attends to its layer n. Choices where the paper is
    silent: hops have residual branches and separate weights, and add nothing for missing sentences. One gate without
    bias, sigmoid(W a + U (b - a)), joins input a and output b of the hops (a reparametrised W a + U b). The draft
    encoder has separate embeddings, like the reverse model that initializes it.
    """

    sentences: int = ranged(3, 1, 100)
    """preceding sentences to attend to"""
    context_attention: Literal["hops", "joined", "hierarchical"] = "hops"
    """hops: to one sentence after the other; joined: to all at once; hierarchical: to each, then to the results"""
    direction: Literal["L2R", "R2L"] = "L2R"
    """hops from the farthest sentence to the nearest (L2R), or reverse (R2L)"""
    side: Literal["both", "source", "target"] = "both"
    """read the source, drafts of the target, or both"""
    target_context: Literal["drafts", "references"] = "drafts"
    """preceding target sentences in training: drafts or references"""
    keys: Literal["attention", "output"] = "attention"
    """states that hops attend to: after self-attention, or after the whole layer"""
    sentence_encoders: Literal["tuned", "frozen"] = "tuned"
    """train or freeze the sentence encoders (shared embeddings are always trained)"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: starts equal to the sentence model; published: as in the paper"""

    option_rules = (Needs("direction", "context_attention hops"), Excludes("target_context", "side source"))

    @property
    def initialization_setting(self) -> str:
        """Frozen encoders need pretrained weights."""
        return "" if self.sentence_encoders == "tuned" else "model.multihop.sentence_encoders"

    def context_spec(self) -> ContextSpec:
        """Return sentences with the k before them, and drafts for the target side."""
        drafts, references = self.side != "source", self.target_context == "references"
        return ContextSpec(source_context=self.sentences, drafts=drafts, references=drafts and references)

    def build_encoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers of self-attention, hops, feed-forward."""
        layers = super().build_encoder(builder)
        for number, layer in enumerate(layers if self.side != "target" else ()):
            self._insert_hops(layer, AttentionScope("context", layer=number), "attention", builder)
        return layers

    def build_decoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers of self-attention, draft attention, hops, cross-attention, feed-forward."""
        layers = super().build_decoder(builder)
        for number, layer in enumerate(layers if self.side != "source" else ()):
            draft = builder.build_attention(AttentionScope("drafts", layer=number), zero_init=self.fusion == "identity")
            layer.insert("draft", draft, builder.build_residual(has_norm=self.fusion == "published"), after="attention")
            self._insert_hops(layer, AttentionScope("earlier", layer=number), "draft", builder)
        return layers

    def _insert_hops(self, layer: Layer, scope: AttentionScope, after: str, builder: ModelBuilder) -> None:
        from docmt.model.blocks import HierarchicalAttention, Hops

        step, identity = -1 if self.direction == "L2R" else 1, self.fusion == "identity"
        scopes = [replace(scope, extent="neighbour", offset=n) for n in range(1, self.sentences + 1)[::step]]
        if self.context_attention == "joined":  # a single hop
            scopes = [replace(scope, extent="preceding", offset=self.sentences)]
        kind = HierarchicalAttention if self.context_attention == "hierarchical" else Hops
        hops = kind(builder, scopes, zero_init=identity)
        layer.insert("hops", hops, builder.build_gated_residual(additive=True, has_norm=not identity), after)

    def build_modules(self, builder: ModelBuilder) -> dict[str, nn.Module]:
        """Build the sentence encoders."""
        from docmt.model.blocks import SentenceEncoder

        whole, frozen = self.keys == "output", self.sentence_encoders == "frozen"
        sides = ("source", "target") if self.side == "both" else (self.side,)
        return {f"{side}_sentences": SentenceEncoder(builder, side, whole=whole, frozen=frozen) for side in sides}

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute encoded sentences, and states of the sentence encoders by layer. Raises ValueError without drafts."""
        from docmt.model.contexts import FullContext, Memory

        source, memories = inputs.source, {}
        if self.side != "target":
            memories["context"] = model.get_submodule("source_sentences")(model.embed("source", source), source)
        current, _ = source.select_sentences(sentences := inputs.alignment.unique())
        states = model.run_encoder(model.embed("source", current), FullContext(current, memories, sentences))
        memories["source"] = Memory(states, source.sentences.tile_selected(sentences))
        if self.side != "source":
            memories["drafts"] = memories["earlier"] = self._read_target(model, inputs.require_drafts())
            if inputs.references is not None:
                memories["earlier"] = self._read_target(model, inputs.references)
        return memories

    def _read_target(self, model: EncoderDecoder, text: Packed) -> Memory:
        encoder: Any = model.get_submodule("target_sentences")
        return encoder(model.embed("source", text, encoder.embeddings), text)

    def initial_weight(self, name: str) -> str | None:
        """Initialize sentence encoders from the encoder, with target embeddings. Hops and draft attention are new."""
        if ".hops" in name or ".draft" in name or "_sentences.norms." in name:
            return None
        if name.startswith(_EMBEDDINGS):
            return name.removeprefix(_EMBEDDINGS).replace("source_tokens", "target_tokens")
        return re.sub(r"^(source|target)_sentences\.layers\.", "encoder.", name)

    def initial_reverse_weight(self, name: str) -> str | None:
        """Initialize the draft encoder from the reverse model's encoder and embeddings."""
        weight = self.initial_weight(name) if name.startswith("target_sentences.") else None
        return name.removeprefix(_EMBEDDINGS) if name.startswith(_EMBEDDINGS) else weight
