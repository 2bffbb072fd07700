"""The context-aware decoder (CADec, Voita et al. 2019): a second decoder reads drafts of a frozen first model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.core.settings import ranged
from docmt.model.scope import SPECIAL_TOKEN_IDS, AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import Attention, GroupAttention
    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.layers import Layer
    from docmt.model.spans import ModelInput, Packed


@dataclass(frozen=True)
class Cadec(System):
    """The decoder attends to source sentences and to drafts: those of its own sentence and of the k before it.

    A draft has a state for each token y: [E(y); the state of the first decoder that predicts y], of width 2 d. Vectors
    by the distance of sentences are added to keys and values. They equal a one-hot distance appended to the states.

    Encoder, embeddings and first decoder are those of a sentence model, and frozen. Tied to the embedding, the output
    is frozen, too. Differences from the published code: sentences before have drafts, not references in training and
    own translations after it, so sentences are translated at once. Words of drafts are not replaced at random, and no
    reference stands for a draft. E is scaled as elsewhere. Dropout of the frozen layers stays on in training.
    """

    sentences: int = ranged(3, 1, 100)
    """preceding sentences to attend to, in source and drafts"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: the decoder starts equal to that of the sentence model; published: at random"""
    initialization_setting: ClassVar[str] = "model.system cadec"  # frozen layers need pretrained weights

    def context_spec(self) -> ContextSpec:
        """Return sentences with the k before them, all with drafts."""
        return ContextSpec(source_context=self.sentences, drafts=True)

    def build_decoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build layers of self-attention, cross-attention, draft attention, feed-forward."""
        layers = super().build_decoder(builder)
        for layer in layers:
            draft = self._build_recent(builder, AttentionScope("drafts"), 2 * builder.config.width)
            layer.insert("draft", draft, builder.build_residual(has_norm=self.fusion == "published"), after="cross")
        return layers

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build cross-attention to recent sentences. Identity: added to attention to the own one, zero at first."""
        from docmt.model.attention import GroupAttention

        if scope.memory != "source":
            return super().build_attention(builder, scope, number)
        local = builder.build_attention(scope) if self.fusion == "identity" else None
        return GroupAttention(local, self._build_recent(builder, scope))

    def _build_recent(self, builder: ModelBuilder, scope: AttentionScope, memory_width: int | None = None) -> Attention:
        recent = replace(scope, extent="recent", offset=self.sentences)
        vectors, zero = builder.build_sentence_vectors(recent=self.sentences), self.fusion == "identity"
        return builder.build_attention(recent, memory_width, zero_init=zero, relation=vectors)

    def build_modules(self, builder: ModelBuilder) -> dict[str, nn.Module]:
        """Build the first decoder."""
        return builder.build_stack("first_decoder", System().build_decoder(builder))

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute encoded sentences, and drafts. Raises ValueError without drafts."""
        drafts, source = inputs.require_drafts(), model.encode_memory(inputs.source)
        return {"source": source, "drafts": self._read_drafts(model, drafts, source)}

    def _read_drafts(self, model: EncoderDecoder, drafts: Packed, source: Memory) -> Memory:
        """Run the first decoder over drafts, each with its source sentence: a memory of their words and `</s>`."""
        import torch

        from docmt.model.contexts import FullContext, Memory

        boundaries, closing = model.boundary_tokens, (SPECIAL_TOKEN_IDS["</s>"],)
        opening, counts = boundaries.target_opening, boundaries.counts("source")
        predicted = drafts.replace_boundaries(counts, closing=closing)
        read = drafts.replace_boundaries(counts, opening, closing)
        index = read.sentences.trim(len(opening) - 1, 1).indices()  # each state predicts the token after it
        context = FullContext(read, {"source": source})
        states = model.run_stack("first_decoder", model.embed("target", read), context)
        states = states.index_select(0, index.to(model.device))
        words = model.look_up_tokens("target", predicted.tokens).to(states.dtype)
        return Memory.from_packed(torch.cat((words, states), dim=-1), predicted)

    def is_frozen(self, name: str) -> bool:
        """Train the decoder alone, with its norm and an untied output."""
        return not name.startswith(("decoder.", "decoder_norm.", "softmax."))

    def initial_weight(self, name: str) -> str | None:
        """Initialize both decoders from that of the sentence model. Attention to other sentences and drafts is new."""
        if name.startswith(("decoder.", "decoder_norm.")) and self.fusion == "published":
            return None
        return None if ".cross.global." in name or ".draft" in name else name.removeprefix("first_")
