"""Builder of the modules that systems compose, in the conventions of a family, and the stacks that these fill."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import Attention, Gate, GroupAttention
from docmt.model.contexts import AttentionContext, FullContext, Memory
from docmt.model.embeddings import Embeddings, SentenceRotation, SentenceVectors, Stack
from docmt.model.families import FAMILIES, Family, TransformerConfig
from docmt.model.layers import Dropout, FeedForward, GatedResidual, Layer, Residual, run_layers
from docmt.model.linear_attention import LinearAttention
from docmt.model.scope import AttentionScope
from docmt.model.spans import Packed


class ModelBuilder(Stack):
    """Builder of the modules of a model, with the options of a config and in the conventions of a family.

    Modules of the encoder, and of everything that reads the source, come from `encoder`, in most families the same
    builder.
    """

    def __init__(self, config: TransformerConfig, family: Family | None = None) -> None:
        """family: conventions, if not those of `config.family`."""
        super().__init__(config, family or FAMILIES[config.family])
        self.encoder = self if self.family.encoder is None else ModelBuilder(*self.family.encoder_conventions(config))
        self.boundary_tokens = self.family.boundary_tokens(config)

    def build_attention(
        self, scope: AttentionScope, memory_width: int | None = None, *, zero_init: bool = False, **options: Any
    ) -> Attention:
        """Build attention over the states of `scope`.

        memory_width: their width, if not the usual one; zero_init: the initial output is zero; options: see
        `Attention`.
        """
        attention = Attention(self, scope, memory_width or self.memory_width(scope), **options)
        if zero_init:
            nn.init.zeros_(attention.output.weight)
        return attention

    def build_sentence_vectors(self, recent: int | None = None, farthest: int = 0) -> SentenceVectors:
        """Build vectors by sentence distance: for each head in scopes of recent sentences, otherwise shared by all."""
        return SentenceVectors(self.head_width, 1 if recent is None else self.config.heads, recent, farthest)

    def memory_width(self, scope: AttentionScope) -> int:
        """Return the width of the states of `scope`. The encoder computes those of source and context."""
        return (self.encoder if scope.memory in ("source", "context") else self).config.width

    def build_group_attention(
        self,
        local: AttentionScope | None = None,
        global_: AttentionScope | None = None,
        gate_bias: float = 0.0,
        linear: bool = False,
        fusion: Literal["published", "identity", "heads", "mean"] = "published",
        sentence_distances: bool = False,
    ) -> GroupAttention:
        """Build local attention (within sentences), global attention (`global_`), or both, joined by `fusion`.

        gate_bias: initial bias of the gate; linear: global attention is linear; fusion: a gate as published, one that
        initially equals local attention, half of the heads for each, or the mean; sentence_distances: global attention
        knows them.
        """
        both = local is not None and global_ is not None
        heads = self.config.heads // 2 if both and fusion == "heads" else 0
        local_heads = heads and self.config.heads - heads
        local_attention = None if local is None else self.build_attention(local, heads=local_heads)
        global_attention: Attention | None = None
        if global_ is not None and linear:
            global_attention = LinearAttention(self, global_, self.memory_width(global_))
        elif global_ is not None:
            relation = SentenceRotation(self.head_width) if sentence_distances else None
            global_attention = self.build_attention(global_, heads=heads, output_bias=not heads, relation=relation)
        if local_attention is None or global_attention is None or fusion in ("heads", "mean"):
            return GroupAttention(local_attention, global_attention, weight=0.5 if both and fusion == "mean" else 1.0)
        if fusion == "identity":
            nn.init.zeros_(global_attention.output.weight)
        return GroupAttention(
            local_attention, global_attention, Gate(self.config.width, gate_bias, additive=fusion == "identity")
        )

    def build_feed_forward(self) -> FeedForward:
        """Build the feed-forward block."""
        return FeedForward(self.config.width, self.config.feed_forward, self.config.activation, self.family.biases)

    def build_residual(self, has_norm: bool = True) -> Residual:
        """Build a residual branch. Without `has_norm` no norm follows it. Pre-norm branches always have one."""
        return Residual(self.build_norm() if has_norm or self.pre_norm else None, self.config.dropout, self.pre_norm)

    def build_gated_residual(self, additive: bool, has_norm: bool = False) -> GatedResidual:
        """Build the gated branch of context attention. has_norm: a norm follows an additive one."""
        norm = self.build_norm() if self.pre_norm or has_norm or not additive else None
        return GatedResidual(norm, self.config.width, self.pre_norm, additive)

    def build_layer(self, **blocks: nn.Module) -> Layer:
        """Build a layer of these blocks in order, each in the usual branch."""
        return Layer({name: (block, self.build_residual()) for name, block in blocks.items()})

    def build_stack(self, name: str, layers: Sequence[nn.Module]) -> dict[str, nn.Module]:
        """Build a further stack of these layers, and its norm if blocks have theirs before them, by their names."""
        norm = {f"{name}_norm": self.build_norm()} if self.pre_norm else {}
        return {name: nn.ModuleList(layers), **norm}


class EncoderDecoder(Embeddings):
    """Encoder and decoder stacks with their embeddings, in the conventions of a family.

    Systems read it to compute memories. `TranslationModel` fills the stacks.
    """

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder.encoder, builder)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        self.encoder_norm = builder.encoder.build_norm() if builder.encoder.pre_norm else None
        self.decoder_norm = builder.build_norm() if builder.pre_norm else None
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
        return run_layers(self.above_encoder, self.run_stack("encoder", x, context, first), context)

    def decode(self, x: Tensor, context: AttentionContext) -> Tensor:
        """Run the decoder on embedded decoder input [..., d]: decoder states [..., d]."""
        return run_layers(self.above_decoder, self.run_stack("decoder", x, context), context)

    def run_stack(self, name: str, x: Tensor, context: AttentionContext, first: int = 0) -> Tensor:
        """Run a stack of this name on the input [..., d] of its layer `first`, and its norm, if it has one."""
        x, norm = run_layers(list(getattr(self, name))[first:], x, context), getattr(self, f"{name}_norm", None)
        return x if norm is None else norm(x)

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
        return self.dropout((embeddings or self).add_positions(side, vectors, positions))

    def embed_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed single tokens [R] of the decoder input at positions [R]: [R, d]."""
        return self.dropout(self.add_positions("target", self.look_up_tokens("target", tokens), positions))

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
