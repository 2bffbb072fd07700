"""Flat-Transformer (Ma et al. 2020): one encoder reads a sentence with those before it, then the sentence alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import GroupAttention
    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.families import TransformerConfig
    from docmt.model.spans import ModelInput


@dataclass(frozen=True)
class Flat(System):
    """The lower encoder layers see a window: the sentence and the k before it. The top layers see the sentence alone.

    Segment vectors tell the sentence from its context. They start at zero. The decoder is that of the sentence
    Transformer. The paper's positions and order are not known to us: here positions restart at each sentence.
    """

    sentences: int = ranged(2, 0, 10_000)
    """preceding source sentences in the window"""
    top_layers: int = ranged(1, 0, 1000)
    """top encoder layers that see the sentence alone"""

    def context_spec(self) -> ContextSpec:
        """Return sentences with the k before them."""
        return ContextSpec(source_context=self.sentences)

    def check(self, config: TransformerConfig) -> None:
        """Raise DocmtError for more top layers than there are."""
        if self.top_layers > config.encoder_layers:
            raise DocmtError(
                f"model.flat.top_layers is {self.top_layers}: choose from 0 to the {config.encoder_layers} layers "
                "there are"
            )

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build attention over the window in the lower layers of the encoder, and within sentences elsewhere."""
        in_encoder = scope.memory == "self" and not scope.causal
        if in_encoder and number < builder.config.encoder_layers - self.top_layers:
            return builder.build_group_attention(global_=replace(scope, extent="document"))
        return super().build_attention(builder, scope, number)

    def build_modules(self, builder: ModelBuilder) -> dict[str, nn.Module]:
        """Build the vectors of the two segments: context and sentence."""
        from torch import nn

        segments = nn.Embedding(2, builder.encoder.config.width)
        nn.init.zeros_(segments.weight)
        return {"segments": segments}

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Encode each sentence in its window. Sentences that are only context are not encoded separately."""
        import torch

        from docmt.model.contexts import FullContext, Memory
        from docmt.model.layers import run_layers

        source, sentences = inputs.source, inputs.alignment.unique()
        windows, index, numbers = source.gather_windows(sentences, self.sentences)
        is_last = torch.isin(windows.sentences.ends, windows.documents.ends)  # [S']
        is_current = is_last.repeat_interleave(windows.sentences.lengths)  # [T']
        device = source.tokens.device
        vectors = model.look_up_tokens("source", source.tokens).index_select(0, index.to(device))
        vectors = vectors + model.get_submodule("segments")(is_current.long().to(device))
        x = model.add_packed_positions("source", vectors, windows)
        layers = list(model.encoder)
        lower = len(layers) - self.top_layers
        x = run_layers(layers[:lower], x, FullContext(windows, alignment=numbers, is_read=is_last))
        current, _ = source.select_sentences(sentences)
        x = x.index_select(0, is_current.nonzero().flatten().to(device))
        states = model.run_encoder(x, FullContext(current, alignment=sentences), first=lower)
        return {"source": Memory(states, source.sentences.tile_selected(sentences))}

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but the segment vectors from the sentence model."""
        return None if name.startswith("segments") else name.replace(".global.", ".local.")
