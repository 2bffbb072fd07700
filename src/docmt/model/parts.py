"""The bricks of which systems are composed; a family of checkpoints has its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import Attention, Gate, GroupAttention
from docmt.model.config import Sizes
from docmt.model.embeddings import Distances, LearnedPositions, SinusoidalPositions
from docmt.model.families import FAMILIES
from docmt.model.families.family import PADDING_ID, Family
from docmt.model.layers import Bilstm, FeedForward, GatedResidual, Hops, Layer, Residual, SentenceEncoder
from docmt.model.linear_attention import LinearAttention
from docmt.model.scope import Sight


class Head(NamedTuple):
    """What projects decoder states to the vocabulary: logits of the ids from `first` on, one for each row."""

    weight: Tensor
    """[rows, d]"""
    first: int = 0
    bias: Tensor | None = None
    """[rows], not trained"""
    scale: float = 1.0
    """of the states"""


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
            self._distances = {causal: self._new_distances(causal) for causal in (False, True)}

    # Layers

    def attention(
        self, sight: Sight, memory_width: int | None = None, *, at_zero: bool = False, output_bias: bool = True
    ) -> Attention:
        """Attention over what `sight` names; memory_width: of its states, if not that of what computes them.

        at_zero: at first it finds zeros; output_bias: see `Attention`.
        """
        sizes, family = self.sizes, self.family
        near = sight.memory == "self" and sight.part != "before"  # of others no distance is known
        made = Attention(
            *(sizes.width, sizes.heads, sight, sizes.attention_dropout),
            *(memory_width or self.memory_width(sight), output_bias),
            head_width=sizes.head_width,
            biases=family.biases,
            scaled=family.scaled,
            distances=self._distances.get(sight.causal) if near else None,
        )
        if at_zero:
            nn.init.zeros_(made.output.weight)
        return made

    def memory_width(self, sight: Sight) -> int:
        """Of the states that `sight` names: the encoder computes those of source and context."""
        return (self.encoder if sight.memory in ("source", "context") else self).sizes.width

    def hops(self, sights: Sequence[Sight], at_zero: bool) -> Hops:
        """Attention to what each of the sights names, one after the other; at_zero: at first they find nothing."""
        return Hops([self.attention(own, at_zero=at_zero, output_bias=False) for own in sights])

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
            {"attention": self.group_attention(local=Sight()), "feed_forward": self.feed_forward()}
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

    def _reader(self) -> nn.Module:
        """Embeddings for an encoder of target text; `lookup` and `place` take them for those of a model's source."""
        holder = nn.Module()
        # The names of the tables are the model's own: two tables, or one.
        size = self.sizes.vocabulary_size if self.two_tables else 0
        for name, module in Parts(replace(self.sizes, source_vocabulary_size=size)).embeddings().items():
            if name.partition("_")[0] in ("source", "tokens"):
                holder.add_module(name, module)
        return holder

    def linear_attention(self, sight: Sight) -> LinearAttention:
        """Linear attention over what `sight` names."""
        sizes = self.sizes
        return LinearAttention(
            *(sizes.width, sizes.heads, sight, sizes.linear, self.frame.joined),
            memory_width=self.memory_width(sight),
            head_width=sizes.head_width,
            biases=self.family.biases,
        )

    def group_attention(
        self,
        local: Sight | None = None,
        whole: Sight | None = None,
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

    def stack(self, layers: Sequence[Layer]) -> nn.ModuleList:
        """Layers as one module, for `run` to go through."""
        return nn.ModuleList(layers)

    def bilstm(self) -> Bilstm:
        """A bidirectional LSTM over sentences: [T, d] -> [T, 2 d]."""
        return Bilstm(self.sizes.width)

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
        modules[self._table("target")] = token_embedding(sizes.vocabulary_size, sizes.width, family.zero)
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

    def _table(self, side: str) -> str:
        return f"{side}_tokens" if self.two_tables else "tokens"

    def _positions(self) -> nn.Module:
        if self.sizes.position_encoding == "learned":
            return LearnedPositions(self.sizes.width, self.sizes.max_positions)
        return SinusoidalPositions(self.sizes.width, self.family.first_position, self.family.frequencies)

    def _new_distances(self, causal: bool) -> Distances:
        sizes = self.sizes
        return Distances(sizes.relative_buckets, sizes.relative_distance, sizes.heads, causal=causal)

    def lookup(self, model: nn.Module, side: str, tokens: Tensor) -> Tensor:
        """sqrt(d) * E[token] (Vaswani et al. 2017, section 3.4): tokens [...] -> [..., d]; side: source or target."""
        vectors: Tensor = model.get_submodule(self._table(side))(tokens)
        sizes = self.of(side).sizes
        if sizes.scale_embeddings:
            vectors = vectors * math.sqrt(sizes.width)
        return model.get_submodule("source_bias")(vectors) if self.family.source_bias and side == "source" else vectors

    def place(self, model: nn.Module, side: str, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Vectors [..., d] with those of their positions [...] added; None: a sequence without order."""
        sizes = self.of(side).sizes
        if positions is not None and sizes.position_encoding != "relative":
            vectors = vectors + model.get_submodule(f"{side}_positions")(positions)
        if torch.is_autocast_enabled(vectors.device.type):
            # From here on states are in the precision of autocast: casting them to and fro around every product made
            # 240 copies in a training step of a small model (docs/log.md).
            vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
        if sizes.embedding_normalization:
            vectors = model.get_submodule(f"{side}_norm")(vectors)
        return vectors

    def head(self, model: nn.Module) -> Head:
        """What decoder states are multiplied with: the embedding of the target, or a matrix of its own."""
        first, last = self.family.unpredicted
        bias = model.get_buffer("head_bias.vector") if self.family.head_bias else None
        if self.own_head:
            return Head(model.get_submodule("softmax").get_parameter("weight"), first, bias)
        table = self._target_table(model)
        scale = self.sizes.width**-0.5 if self.sizes.output == "scaled" else 1.0
        return Head(table[first : len(table) - last] if first or last else table, first, bias, scale)

    def whole_head(self, model: nn.Module) -> Head:
        """The same, but of a table all rows, with a bias of minus infinity where the id has no logit."""
        head, table = self.head(model), self._target_table(model)
        if self.own_head or len(head.weight) == len(table):
            return head
        bias = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias
        return Head(table, 0, F.pad(bias.detach(), self.family.unpredicted, value=-torch.inf), head.scale)

    def _target_table(self, model: nn.Module) -> Tensor:
        return model.get_submodule(self._table("target")).get_parameter("weight")

    def tables(self) -> Sequence[str]:
        """The names of the token embeddings, whose rows are looked up in lower precision where that is asked for."""
        return tuple(dict.fromkeys(self._table(side) for side in ("source", "target")))


class SourceBias(nn.Module):
    """A learned vector that is added to every source embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors [..., d] -> [..., d]"""
        return vectors + self.vector


class Softmax(nn.Module):
    """The matrix that projects to the target vocabulary, [rows, d]."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        nn.init.normal_(self.weight, std=width**-0.5)


class HeadBias(nn.Module):
    """What is added to the logits [rows]; it is not trained."""

    vector: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("vector", torch.zeros(rows))


def token_embedding(rows: int, width: int, zero: int | None = PADDING_ID) -> nn.Embedding:
    """E ~ N(0, 1/d), if asked for with a zero row that is never trained, that of padding."""
    embedding = nn.Embedding(rows, width, padding_idx=zero)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    if zero is not None:
        with torch.no_grad():
            embedding.weight[zero].zero_()
    return embedding
