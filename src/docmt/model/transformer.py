"""The encoder-decoder of every system, and the parts that it consists of.

A family of checkpoints has its own parts. A system chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import Attention, AttentionContext, FullContext, Gate, GroupAttention, Memory, SharedContext
from docmt.model.embeddings import (
    DistanceBiases,
    Embeddings,
    HeadBias,
    LearnedPositions,
    OutputProjection,
    SentenceRelation,
    SentenceRotation,
    SentenceVectors,
    SinusoidalPositions,
    SourceBias,
    build_token_embedding,
)
from docmt.model.families import FAMILIES, Family
from docmt.model.layers import (
    Dropout,
    FeedForward,
    GatedResidual,
    HierarchicalAttention,
    Hops,
    Layer,
    Residual,
    SentenceAttention,
    SentenceEncoder,
    run_layers,
)
from docmt.model.linear_attention import LinearAttention
from docmt.model.model_config import ModelConfig, Sizes
from docmt.model.scope import AttentionScope
from docmt.model.spans import ModelInput, Packed, pack

SentenceIds = Sequence[Sequence[int]]


class Parts:
    """Builder of model parts for given sizes, in the conventions of a family.

    Parts of the encoder, and of everything that reads the source, come from `encoder`, in most families the same
    object.
    """

    def __init__(self, sizes: Sizes, family: Family | None = None) -> None:
        """family: conventions, if not those of `sizes.family`."""
        self.sizes, self.family = sizes, family or FAMILIES[sizes.family]
        self.encoder = self if self.family.encoder is None else Parts(*self.family.encoder_conventions(sizes))
        self.pre_norm = sizes.normalization == "pre"
        self.boundary_tokens = self.family.boundary_tokens(sizes)
        self.has_two_tables = self.family.tables == "two" or (
            self.family.tables == "either" and sizes.source_vocabulary_size > 0
        )
        self.has_separate_head = (self.family.head if sizes.output == "auto" else sizes.output) == "untied"
        self.head_width = sizes.attention_width // sizes.heads
        self._distances: dict[bool, DistanceBiases] = {}
        if sizes.position_encoding == "relative":
            shape = (sizes.relative_buckets, sizes.relative_distance, sizes.heads)
            self._distances = {causal: DistanceBiases(*shape, causal=causal) for causal in (False, True)}

    # Layers

    def build_attention(
        self,
        scope: AttentionScope,
        memory_width: int | None = None,
        *,
        zero_init: bool = False,
        output_bias: bool = True,
        relation: SentenceRelation | None = None,
        heads: int = 0,
    ) -> Attention:
        """Build attention over the states of `scope`.

        memory_width: their width, if not that of the computing stack; zero_init: the initial output is zero;
        output_bias, relation: see `Attention`; heads: how many of usual width (0: as in the model).
        """
        sizes, family = self.sizes, self.family
        has_distances = scope.memory == "self" and scope.extent != "neighbour"  # distances to others are undefined
        attention = Attention(
            *(sizes.width, heads or sizes.heads, scope, sizes.attention_dropout),
            *(memory_width or self.memory_width(scope), output_bias),
            head_width=self.head_width,
            biases=family.biases,
            scaled=family.scaled,
            distances=self._distances.get(scope.causal) if has_distances else None,
            relation=relation,
        )
        if zero_init:
            nn.init.zeros_(attention.output.weight)
        return attention

    def build_sentence_vectors(self, recent: int | None = None, farthest: int = 0) -> SentenceVectors:
        """Build vectors by sentence distance: for each head in scopes of recent sentences, otherwise shared by all."""
        return SentenceVectors(self.head_width, 1 if recent is None else self.sizes.heads, recent, farthest)

    def memory_width(self, scope: AttentionScope) -> int:
        """Return the width of the states of `scope`. The encoder computes those of source and context."""
        return (self.encoder if scope.memory in ("source", "context") else self).sizes.width

    def build_hops(self, scopes: Sequence[AttentionScope], zero_init: bool) -> Hops:
        """Build successive attentions, one per scope. zero_init: their initial output is zero."""
        return Hops([self.build_attention(scope, zero_init=zero_init, output_bias=False) for scope in scopes])

    def build_hierarchical_attention(self, scopes: Sequence[AttentionScope], zero_init: bool) -> HierarchicalAttention:
        """Build attentions to a sentence each, one per scope, and to their outputs. zero_init: see `build_hops`."""
        sizes = self.sizes
        words = [self.build_attention(scope, output_bias=False) for scope in scopes]
        sentences = SentenceAttention(sizes.width, sizes.heads, sizes.attention_width, scopes[0].memory)
        if zero_init:
            nn.init.zeros_(sentences.output.weight)
        return HierarchicalAttention(words, sentences)

    def build_sentence_encoder(self, side: str, *, whole: bool, frozen: bool) -> SentenceEncoder:
        """Build an encoder of single sentences. Layer i of a side's stack reads its layer i.

        The memory of a layer is taken after its self-attention, or (`whole`) after the whole layer. The encoder of the
        target side has separate embeddings.
        """
        target = side == "target"
        if not target and self.encoder is not self:
            return self.encoder.build_sentence_encoder(side, whole=whole, frozen=frozen)
        depth = self.sizes.decoder_layers if target else self.sizes.encoder_layers
        blocks = [
            {"attention": self.build_group_attention(local=AttentionScope()), "feed_forward": self.build_feed_forward()}
            for _ in range(depth)
        ]
        if not whole:
            del blocks[-1]["feed_forward"]  # nothing reads its output
        return SentenceEncoder(
            [self.build_layer(**layer_blocks) for layer_blocks in blocks],
            "feed_forward" if whole else "attention",
            [self.build_norm() for _ in blocks] if self.pre_norm else [],
            self._build_target_reader() if target else None,
            frozen,
        )

    def _build_target_reader(self) -> Embeddings:
        """Build embeddings for an encoder that reads target text as its source."""
        # The table names are those of the model: two tables, or one.
        size = self.sizes.vocabulary_size if self.has_two_tables else 0
        reader = Embeddings(Parts(replace(self.sizes, source_vocabulary_size=size)))
        for name, _ in list(reader.named_children()):
            if name.partition("_")[0] not in ("source", "tokens"):
                delattr(reader, name)
        return reader

    def build_linear_attention(self, scope: AttentionScope) -> LinearAttention:
        """Build linear attention over the states of `scope`."""
        sizes = self.sizes
        return LinearAttention(
            *(sizes.width, sizes.heads, scope, sizes.linear, self.boundary_tokens.joined),
            memory_width=self.memory_width(scope),
            head_width=sizes.head_width,
            biases=self.family.biases,
        )

    def build_group_attention(
        self,
        local: AttentionScope | None = None,
        whole: AttentionScope | None = None,
        gate_bias: float = 0.0,
        linear: bool = False,
        fusion: Literal["published", "identity", "heads", "mean"] = "published",
        sentence_distances: bool = False,
    ) -> GroupAttention:
        """Build attention within sentences (`local`), over the document (`whole`), or both, combined as `fusion` says.

        gate_bias: initial bias of the gate; linear: attention over the document is linear; fusion: a gate as published,
        one that initially equals attention within sentences, half of the heads for each, or the mean;
        sentence_distances: attention over the document knows them.
        """
        both = local is not None and whole is not None
        heads = self.sizes.heads // 2 if both and fusion == "heads" else 0
        within = None if local is None else self.build_attention(local, heads=heads and self.sizes.heads - heads)
        over_document: Attention | None = None
        if whole is not None and linear:
            over_document = self.build_linear_attention(whole)
        elif whole is not None:
            relation = SentenceRotation(self.head_width) if sentence_distances else None
            over_document = self.build_attention(whole, heads=heads, output_bias=not heads, relation=relation)
        if within is None or over_document is None or fusion in ("heads", "mean"):
            return GroupAttention(within, over_document, weight=0.5 if both and fusion == "mean" else 1.0)
        if fusion == "identity":
            nn.init.zeros_(over_document.output.weight)
        return GroupAttention(within, over_document, Gate(self.sizes.width, gate_bias, additive=fusion == "identity"))

    def build_feed_forward(self) -> FeedForward:
        """Build the feed-forward block."""
        return FeedForward(self.sizes.width, self.sizes.feed_forward, self.sizes.activation, self.family.biases)

    def build_norm(self) -> nn.Module:
        """Build a norm of states."""
        norm = nn.RMSNorm if self.family.norm == "rms" else nn.LayerNorm
        return norm(self.sizes.width, eps=self.family.norm_epsilon)

    def build_residual(self, has_norm: bool = True) -> Residual:
        """Build a residual branch. Without `has_norm` no norm follows it. Pre-norm branches always have one."""
        return Residual(self.build_norm() if has_norm or self.pre_norm else None, self.sizes.dropout, self.pre_norm)

    def build_gated_residual(self, additive: bool, has_norm: bool = False) -> GatedResidual:
        """Build the gated branch of context attention. has_norm: a norm follows an additive one."""
        norm = self.build_norm() if self.pre_norm or has_norm or not additive else None
        return GatedResidual(norm, self.sizes.width, self.pre_norm, additive)

    def build_layer(self, **blocks: nn.Module | tuple[nn.Module, Residual]) -> Layer:
        """Build a layer of these blocks in order, each in the usual branch or in the supplied one."""
        return Layer(
            {
                name: block if isinstance(block, tuple) else (block, self.build_residual())
                for name, block in blocks.items()
            }
        )

    # Embeddings and output

    def build_embeddings(self) -> dict[str, nn.Module]:
        """Build token embeddings, positions, norms and output head, by their attribute names in the model."""
        sizes, family = self.sizes, self.family
        modules: dict[str, nn.Module] = {}
        if self.has_two_tables:
            source_rows = sizes.source_vocabulary_size or sizes.vocabulary_size
            modules["source_tokens"] = build_token_embedding(source_rows, self.encoder.sizes.width)
        modules[self.table_name("target")] = build_token_embedding(sizes.vocabulary_size, sizes.width, family.zero_row)
        rows = sizes.vocabulary_size - sum(family.ids_without_logits)
        if self.has_separate_head:
            modules["softmax"] = OutputProjection(rows, sizes.width)
        if family.head_bias:
            modules["head_bias"] = HeadBias(rows)
        if family.source_bias:
            modules["source_bias"] = SourceBias(sizes.width)
        for side, stack in (("source", "encoder"), ("target", "decoder")):
            side_parts = self.for_side(side)
            if side_parts.sizes.position_encoding == "relative":
                modules[f"{stack}_distances"] = side_parts._distances[stack == "decoder"]
            else:
                modules[f"{side}_positions"] = side_parts._build_positions()
            if side_parts.sizes.embedding_normalization:
                modules[f"{side}_norm"] = side_parts.build_norm()
        return modules

    def for_side(self, side: str) -> Parts:
        """Return the parts that read this side, source or target."""
        return self.encoder if side == "source" else self

    def table_name(self, side: str) -> str:
        """Return the name of the token embedding of a side."""
        return f"{side}_tokens" if self.has_two_tables else "tokens"

    def _build_positions(self) -> nn.Module:
        if self.sizes.position_encoding == "learned":
            return LearnedPositions(self.sizes.width, self.sizes.max_positions)
        return SinusoidalPositions(self.sizes.width, self.family.first_position, self.family.frequencies)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Turn dropout off while the block runs, then restore the mode of the model."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class TranslationModel(Embeddings):
    """Transformer over packed documents, with the parts of a family in the composition of a system.

    Token streams include boundary tokens. Source and decoder input are `<s> w .. </s>` per sentence. Labels are the
    decoder input shifted left by one, with the end-of-document token at the end. Families may have other ones.
    """

    def __init__(self, config: ModelConfig) -> None:
        config = config.resolve()
        super().__init__(Parts(config))
        self.config, self.system = config, config.system_options
        inputs = self.parts.encoder
        self.encoder = nn.ModuleList(self.system.build_encoder(inputs))
        self.decoder = nn.ModuleList(self.system.build_decoder(self.parts))
        self.encoder_norm = inputs.build_norm() if inputs.pre_norm else None
        self.decoder_norm = self.parts.build_norm() if self.parts.pre_norm else None
        self.above_encoder = nn.ModuleList(self.system.build_above_encoder(inputs))
        self.above_decoder = nn.ModuleList(self.system.build_above_decoder(self.parts))
        for name, module in self.system.build_modules(self.parts).items():
            self.add_module(name, module)
        for name, weights in self.named_parameters():
            if self.system.is_frozen(name):
                weights.requires_grad_(False)
        self.dropout = Dropout(config.dropout)
        # Replaces the product with the head if a translator has rearranged its weights.
        self.projection: nn.Module | None = None

    def __repr__(self) -> str:
        millions = sum(weights.numel() for weights in self.parameters()) / 1e6
        return f"<TranslationModel: {millions:.1f} million parameters on {self.device}, {self.config}>"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def compute_memories(self, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute the memories of the decoder, once per input."""
        return self.system.compute_memories(self, inputs)

    def forward(self, inputs: ModelInput) -> Tensor:
        """Return decoder states before the output projection: [Tt, d], or [n, d] of the label positions.

        Raises ValueError for an input without a target.
        """
        target = inputs.target
        if target is None:
            raise ValueError("a forward pass needs decoder input: set the target of the input")
        x, memories = self.embed("target", target), self.compute_memories(inputs)
        context = FullContext(target, memories, inputs.alignment, inputs.document_alignment)
        if inputs.representatives is None:
            states = self.decode(x, context)
            return states if inputs.label_positions is None else states.index_select(0, inputs.label_positions)
        shared = SharedContext(context, inputs.representatives)
        states = self.decode(x.index_select(0, shared.unique), shared)
        positions = shared.inverse if inputs.label_positions is None else shared.inverse[inputs.label_positions]
        return states.index_select(0, positions)

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
        spans = packed.sentences if self.config.restarts_positions else packed.position_spans
        return spans.positions().to(packed.tokens.device)

    def project(self, states: Tensor) -> Tensor:
        """Project states [..., d] to logits [..., V], minus infinity for ids that the head lacks."""
        head = self.head()
        if head.scale != 1.0:
            states = states * head.scale
        product = partial(F.linear, weight=head.weight, bias=head.bias) if self.projection is None else self.projection
        logits: Tensor = product(states)
        missing = self.config.vocabulary_size - logits.shape[-1]
        return F.pad(logits, (head.first, missing - head.first), value=-torch.inf) if missing else logits

    @torch.no_grad()
    def logits(
        self, pairs: Sequence[tuple[SentenceIds, SentenceIds]], drafts: Sequence[SentenceIds] = ()
    ) -> list[Tensor]:
        """Return the logits [decoder input tokens, V] of each document.

        `pairs` holds (source sentences, target sentences) of token ids with boundary tokens (`<s> .. </s>`). The target
        sentences are the decoder input. `drafts` has a document per pair, laid out as its source, for systems that read
        drafts. Dropout is off, and the mode of the model is restored. Raises ValueError for a document with unequal
        numbers of sentences, except in the document system.
        """
        for number, (source_sentences, target_sentences) in enumerate(pairs if self.system.rules == "frame" else (), 1):
            if len(source_sentences) != len(target_sentences):
                raise ValueError(
                    f"document {number} has {len(source_sentences)} source but {len(target_sentences)} target "
                    "sentences: give one target sentence per source sentence"
                )
        with evaluation_mode(self):
            source, target = (pack([pair[side] for pair in pairs]) for side in (0, 1))
            # If counts differ, no attention uses the alignment.
            alignment = torch.arange(len(target.sentences))
            inputs = ModelInput(source, alignment, target, drafts=pack(drafts) if drafts else None)
            logits = self.project(self(inputs.to(self.device)))
        return list(logits.split(target.documents.lengths.tolist()))
