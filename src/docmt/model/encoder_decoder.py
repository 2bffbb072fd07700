"""The encoder and decoder of a model, over packed documents, without the system that composes their layers."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.builder import ModelBuilder
from docmt.model.contexts import AttentionContext, FullContext, Memory
from docmt.model.embeddings import Embeddings
from docmt.model.layers import Dropout, run_layers
from docmt.model.spans import Packed


class EncoderDecoder(Embeddings):
    """Encoder and decoder stacks with their embeddings, in the conventions of a family.

    Systems read it to compute memories. `TranslationModel` fills the stacks.
    """

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder.encoder.stack, builder.stack)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        self.encoder_norm = builder.encoder.build_norm() if builder.encoder.stack.pre_norm else None
        self.decoder_norm = builder.build_norm() if builder.stack.pre_norm else None
        self.above_encoder, self.above_decoder = nn.ModuleList(), nn.ModuleList()
        self.dropout = Dropout(builder.config.dropout)
        self.restarts_positions = True
        # Replaces the product with the head if a translator has rearranged its weights.
        self.projection: nn.Module | None = None

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def encode(self, source: Packed) -> Tensor:
        """Return encoder states [Ts, d] of a source without other memories."""
        return self.run_encoder(self.embed("source", source), FullContext(source))

    def encode_memory(self, source: Packed) -> Memory:
        """Encode a source into a memory."""
        return Memory.from_packed(self.encode(source), source)

    def run_encoder(self, x: Tensor, context: AttentionContext, first: int = 0) -> Tensor:
        """Run the encoder on embedded source, or on the input of layer `first` [Ts, d]: encoder states [Ts, d]."""
        x = run_layers(list(self.encoder)[first:], x, context)
        return run_layers(self.above_encoder, self.encoder_norm(x) if self.encoder_norm is not None else x, context)

    def decode(self, x: Tensor, context: AttentionContext) -> Tensor:
        """Run the decoder on embedded decoder input [..., d]: decoder states [..., d]."""
        x = run_layers(self.decoder, x, context)
        return run_layers(self.above_decoder, self.decoder_norm(x) if self.decoder_norm is not None else x, context)

    def embed(self, side: str, packed: Packed, embeddings: Embeddings | None = None) -> Tensor:
        """Embed tokens with their positions as input [T, d] of the first layer.

        embeddings: used instead of those of the model.
        """
        vectors = (embeddings or self).look_up_tokens(side, packed.tokens)
        return self.add_packed_positions(side, vectors, packed, embeddings)

    def add_packed_positions(
        self, side: str, vectors: Tensor, packed: Packed, embeddings: Embeddings | None = None
    ) -> Tensor:
        """Add positions to the embedded tokens [T, d] of a packed sequence, with dropout. embeddings: see `embed`."""
        positions = self.token_positions(packed)
        states: Tensor = self.dropout((embeddings or self).add_positions(side, vectors, positions))
        return states

    def embed_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed single tokens [R] of the decoder input at positions [R]: [R, d]."""
        vectors: Tensor = self.dropout(self.add_positions("target", self.look_up_tokens("target", tokens), positions))
        return vectors

    def token_positions(self, packed: Packed) -> Tensor:
        """Return the position [T] of every token in its document or sentence, as configured."""
        spans = packed.sentences if self.restarts_positions else packed.position_spans
        return spans.positions().to(packed.tokens.device)

    def project(self, states: Tensor) -> Tensor:
        """Project states [..., d] to logits [..., V], minus infinity for ids that the head lacks."""
        head = self.head()
        if head.scale != 1.0:
            states = states * head.scale
        product = partial(F.linear, weight=head.weight, bias=head.bias) if self.projection is None else self.projection
        logits: Tensor = product(states)
        missing = self.stacks["target"].config.vocabulary_size - logits.shape[-1]
        return F.pad(logits, (head.first, missing - head.first), value=-torch.inf) if missing else logits
