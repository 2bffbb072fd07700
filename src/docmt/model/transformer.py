"""The encoder-decoder in which every system is composed, and the bricks of which it is built.

A family of checkpoints has its own bricks; a system says which of them it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import Attention, AttentionContext, FullContext, Gate, GroupAttention, Memory, SharedContext
from docmt.model.embeddings import (
    Distances,
    Embeddings,
    HeadBias,
    LearnedPositions,
    SinusoidalPositions,
    Softmax,
    SourceBias,
    token_embedding,
)
from docmt.model.families import FAMILIES, Family
from docmt.model.layers import (
    Dropout,
    FeedForward,
    GatedResidual,
    Hops,
    Layer,
    Residual,
    SentenceEncoder,
    run,
)
from docmt.model.linear_attention import LinearAttention
from docmt.model.model_config import ModelConfig, Sizes
from docmt.model.scope import AttentionScope
from docmt.model.spans import ModelInput, Packed, pack

SentenceIds = Sequence[Sequence[int]]


class Parts:
    """Bricks of models of the given sizes, in the conventions of their family.

    Those of the encoder, and of all that reads the source, are in `encoder`: in most families the same ones.
    """

    def __init__(self, sizes: Sizes, family: Family | None = None) -> None:
        """family: whose conventions to take, if not those of the family of that name."""
        self.sizes, self.family = sizes, family or FAMILIES[sizes.family]
        self.encoder = self if self.family.encoder is None else Parts(*self.family.of_encoder(sizes))
        self.pre_norm = sizes.normalization == "pre"
        self.frame = self.family.frame(sizes)
        self.two_tables = self.family.tables == "two" or (
            self.family.tables == "either" and sizes.source_vocabulary_size > 0
        )
        self.own_head = (self.family.head if sizes.output == "auto" else sizes.output) == "own"
        self._distances: dict[bool, Distances] = {}
        if sizes.position_encoding == "relative":
            shape = (sizes.relative_buckets, sizes.relative_distance, sizes.heads)
            self._distances = {causal: Distances(*shape, causal=causal) for causal in (False, True)}

    # Layers

    def attention(
        self, scope: AttentionScope, memory_width: int | None = None, *, at_zero: bool = False, output_bias: bool = True
    ) -> Attention:
        """Attention over what `scope` names; memory_width: of its states, if not that of what computes them.

        at_zero: at first it finds zeros; output_bias: see `Attention`.
        """
        sizes, family = self.sizes, self.family
        near = scope.memory == "self" and scope.part != "before"  # of others no distance is known
        made = Attention(
            *(sizes.width, sizes.heads, scope, sizes.attention_dropout),
            *(memory_width or self.memory_width(scope), output_bias),
            head_width=sizes.head_width,
            biases=family.biases,
            scaled=family.scaled,
            distances=self._distances.get(scope.causal) if near else None,
        )
        if at_zero:
            nn.init.zeros_(made.output.weight)
        return made

    def memory_width(self, scope: AttentionScope) -> int:
        """Of the states that `scope` names: the encoder computes those of source and context."""
        return (self.encoder if scope.memory in ("source", "context") else self).sizes.width

    def hops(self, scopes: Sequence[AttentionScope], at_zero: bool) -> Hops:
        """Attention to what each of the scopes names, one after the other; at_zero: at first they find nothing."""
        return Hops([self.attention(own, at_zero=at_zero, output_bias=False) for own in scopes])

    def sentence_encoder(self, side: str, *, whole: bool, frozen: bool) -> SentenceEncoder:
        """An encoder of single sentences for the layers of a side's stack to look at, each at the layer of its number.

        What is kept of a layer stands behind its self-attention, or (`whole`) behind all of it. That of the target side
        has embeddings of its own.
        """
        target = side == "target"
        if not target and self.encoder is not self:
            return self.encoder.sentence_encoder(side, whole=whole, frozen=frozen)
        depth = self.sizes.decoder_layers if target else self.sizes.encoder_layers
        blocks = [
            {"attention": self.group_attention(local=AttentionScope()), "feed_forward": self.feed_forward()}
            for _ in range(depth)
        ]
        if not whole:
            del blocks[-1]["feed_forward"]  # nothing would look at what it gives
        return SentenceEncoder(
            [self.layer(**own) for own in blocks],
            "feed_forward" if whole else "attention",
            [self.norm() for _ in blocks] if self.pre_norm else [],
            self._reader() if target else None,
            frozen,
        )

    def _reader(self) -> Embeddings:
        """Return embeddings for an encoder of target text, which reads it as its source."""
        # The names of the tables are the model's own: two tables, or one.
        size = self.sizes.vocabulary_size if self.two_tables else 0
        reader = Embeddings(Parts(replace(self.sizes, source_vocabulary_size=size)))
        for name, _ in list(reader.named_children()):
            if name.partition("_")[0] not in ("source", "tokens"):
                delattr(reader, name)
        return reader

    def linear_attention(self, scope: AttentionScope) -> LinearAttention:
        """Linear attention over what `scope` names."""
        sizes = self.sizes
        return LinearAttention(
            *(sizes.width, sizes.heads, scope, sizes.linear, self.frame.joined),
            memory_width=self.memory_width(scope),
            head_width=sizes.head_width,
            biases=self.family.biases,
        )

    def group_attention(
        self,
        local: AttentionScope | None = None,
        whole: AttentionScope | None = None,
        gate_bias: float = 0.0,
        linear: bool = False,
        exact: bool = False,
    ) -> GroupAttention:
        """Attention within sentences (`local`), over the document (`whole`), or both joined by a gate.

        gate_bias: where the bias of the gate begins; linear: that over the document is; exact: both together begin as
        that within sentences alone.
        """
        both = local is not None and whole is not None
        within = None if local is None else self.attention(local)
        over_document = None
        if whole is not None:
            over_document = self.linear_attention(whole) if linear else self.attention(whole)
            if both and exact:
                nn.init.zeros_(over_document.output.weight)
        gate = Gate(self.sizes.width, gate_bias, additive=exact) if both else None
        return GroupAttention(within, over_document, gate)

    def feed_forward(self) -> FeedForward:
        """The feed-forward block."""
        return FeedForward(self.sizes.width, self.sizes.feed_forward, self.sizes.activation, self.family.biases)

    def norm(self) -> nn.Module:
        """A norm of states."""
        made = nn.RMSNorm if self.family.norm == "rms" else nn.LayerNorm
        return made(self.sizes.width, eps=self.family.norm_epsilon)

    def residual(self, normed: bool = True) -> Residual:
        """The usual residual branch; without `normed` no norm follows it (with pre-norm, one always comes before)."""
        return Residual(self.norm() if normed or self.pre_norm else None, self.sizes.dropout, self.pre_norm)

    def gated_residual(self, additive: bool, normed: bool = False) -> GatedResidual:
        """The branch of an attention to context, joined by a gate; an additive one is followed by a norm if asked."""
        norm = self.norm() if self.pre_norm or normed or not additive else None
        return GatedResidual(norm, self.sizes.width, self.pre_norm, additive)

    def layer(self, **blocks: nn.Module | tuple[nn.Module, Residual]) -> Layer:
        """The blocks in this order, each in the usual branch or in that given with it."""
        return Layer(
            {name: block if isinstance(block, tuple) else (block, self.residual()) for name, block in blocks.items()}
        )

    # Embeddings and output

    def embeddings(self) -> dict[str, nn.Module]:
        """The modules that turn tokens into vectors, and what there is beside layers, by the name that the model gives
        them."""
        sizes, family = self.sizes, self.family
        modules: dict[str, nn.Module] = {}
        if self.two_tables:
            modules["source_tokens"] = token_embedding(
                sizes.source_vocabulary_size or sizes.vocabulary_size, self.encoder.sizes.width
            )
        modules[self.table("target")] = token_embedding(sizes.vocabulary_size, sizes.width, family.zero)
        rows = sizes.vocabulary_size - sum(family.unpredicted)
        if self.own_head:
            modules["softmax"] = Softmax(rows, sizes.width)
        if family.head_bias:
            modules["head_bias"] = HeadBias(rows)
        if family.source_bias:
            modules["source_bias"] = SourceBias(sizes.width)
        for side, stack in (("source", "encoder"), ("target", "decoder")):
            own = self.of(side)
            if own.sizes.position_encoding == "relative":
                modules[f"{stack}_distances"] = own._distances[stack == "decoder"]
            else:
                modules[f"{side}_positions"] = own._positions()
            if own.sizes.embedding_normalization:
                modules[f"{side}_norm"] = own.norm()
        return modules

    def of(self, side: str) -> Parts:
        """The parts of what reads this side, source or target."""
        return self.encoder if side == "source" else self

    def table(self, side: str) -> str:
        """Return the name of the token embedding of a side."""
        return f"{side}_tokens" if self.two_tables else "tokens"

    def _positions(self) -> nn.Module:
        if self.sizes.position_encoding == "learned":
            return LearnedPositions(self.sizes.width, self.sizes.max_positions)
        return SinusoidalPositions(self.sizes.width, self.family.first_position, self.family.frequencies)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off while the block runs. The model's mode is then as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class TranslationModel(Embeddings):
    """A Transformer over packed documents, made of the parts of its family in the way of its system.

    Streams (marks included): source and decoder input are `<s> w .. </s>` per sentence, labels are the decoder
    input shifted left by one with the end-of-document mark in the end; families may have other marks.
    """

    def __init__(self, config: ModelConfig) -> None:
        config = config.filled()
        super().__init__(Parts(config))
        self.config, self.system = config, config.chosen
        inputs = self.parts.encoder
        self.encoder = nn.ModuleList(self.system.encoder(inputs))
        self.decoder = nn.ModuleList(self.system.decoder(self.parts))
        self.encoder_norm = inputs.norm() if inputs.pre_norm else None
        self.decoder_norm = self.parts.norm() if self.parts.pre_norm else None
        self.above_encoder = nn.ModuleList(self.system.above_encoder(inputs))
        self.above_decoder = nn.ModuleList(self.system.above_decoder(self.parts))
        for name, module in self.system.modules(self.parts).items():
            self.add_module(name, module)
        self.dropout = Dropout(config.dropout)
        # Stands in for the product with the head, or with the whole one, where a translator has rearranged its weights.
        self.projection: nn.Module | None = None

    def __repr__(self) -> str:
        millions = sum(weights.numel() for weights in self.parameters()) / 1e6
        return f"<TranslationModel: {millions:.1f} million parameters on {self.device}, {self.config}>"

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def memories(self, inputs: ModelInput) -> Mapping[str, Memory]:
        """What the decoder can look at, computed once for what is read."""
        return self.system.memories(self, inputs)

    def forward(self, inputs: ModelInput) -> Tensor:
        """Decoder states before the output projection: [Tt, d], or [n, d] of the predicted positions alone.

        Raises ValueError where source and target do not belong together.
        """
        target = inputs.target
        if target is None:
            raise ValueError("a forward pass needs decoder input: give the input a target")
        x, memories = self.embed("target", target), self.memories(inputs)
        context = FullContext(target, memories, inputs.aligned, inputs.documents)
        if inputs.same is None:
            states = self.decode(x, context)
            return states if inputs.predicted is None else states.index_select(0, inputs.predicted)
        shared = SharedContext(context, inputs.same)
        states = self.decode(x.index_select(0, shared.computed), shared)
        return states.index_select(0, shared.place if inputs.predicted is None else shared.place[inputs.predicted])

    def encode(self, source: Packed) -> Tensor:
        """Encoder states [Ts, d] of a source that looks at nothing but itself."""
        return self.run_encoder(self.embed("source", source), FullContext(source))

    def memory(self, source: Packed) -> Memory:
        """What `encode` gives, as something to look at."""
        return Memory.of(self.encode(source), source)

    def run_encoder(self, x: Tensor, context: AttentionContext) -> Tensor:
        """Embedded source [Ts, d] -> encoder states [Ts, d]."""
        x = run(self.encoder, x, context)
        return run(self.above_encoder, self.encoder_norm(x) if self.encoder_norm is not None else x, context)

    def decode(self, x: Tensor, context: AttentionContext) -> Tensor:
        """Embedded decoder input [..., d] -> decoder states [..., d]."""
        x = run(self.decoder, x, context)
        return run(self.above_decoder, self.decoder_norm(x) if self.decoder_norm is not None else x, context)

    def embed(self, side: str, packed: Packed, embeddings: Embeddings | None = None) -> Tensor:
        """Return tokens embedded with their positions, as the first layer reads them: [T, d].

        embeddings: what to take instead of the model's own.
        """
        return self.place(side, (embeddings or self).lookup(side, packed.tokens), packed, embeddings)

    def place(self, side: str, vectors: Tensor, packed: Packed, embeddings: Embeddings | None = None) -> Tensor:
        """Add their positions to embedded tokens [T, d]; embeddings: as `embed` has it."""
        placed: Tensor = self.dropout((embeddings or self).add_positions(side, vectors, self.positions(packed)))
        return placed

    def embed_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Decoder input of single tokens [R] at positions [R]: [R, d]."""
        placed: Tensor = self.dropout(self.add_positions("target", self.lookup("target", tokens), positions))
        return placed

    def positions(self, packed: Packed) -> Tensor:
        """[T] position of every token in its document or sentence, as the model counts them."""
        spans = packed.sentences if self.config.restarts else packed.running
        return spans.positions().to(packed.tokens.device)

    def project(self, states: Tensor) -> Tensor:
        """States [..., d] to logits [..., V]; minus infinity for ids that the head lacks."""
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
        """Logits [decoder input tokens, V] of each document, one row for each decoder input position.

        `pairs` holds (source sentences, target sentences) as lists of token ids with their marks (`<s> .. </s>`);
        the target sentences are the decoder input. `drafts`, for systems that need them, has a document for each pair,
        laid out as its source. Dropout is off; the model's mode is left as it was. Raises
        ValueError where a document has unequal numbers of them, but for the plain document system.
        """
        for number, (ours, theirs) in enumerate(pairs if self.system.rules == "frame" else (), 1):
            if len(ours) != len(theirs):
                raise ValueError(
                    f"document {number} has {len(ours)} source but {len(theirs)} target sentences: sentence i of the "
                    "target belongs to sentence i of the source"
                )
        with evaluating(self):
            source, target = (pack([pair[side] for pair in pairs]) for side in (0, 1))
            # Where counts differ no attention asks which sentences belong together.
            aligned = torch.arange(len(target.sentences))
            inputs = ModelInput(source, aligned, target, drafts=pack(drafts) if drafts else None)
            logits = self.project(self(inputs.to(self.device)))
        return list(logits.split(target.documents.lengths.tolist()))
