"""The bricks of which systems are composed; a family of checkpoints has its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from docmt.model.attention import Attention, Gate, GroupAttention
from docmt.model.hops import Hops, SentenceEncoder
from docmt.model.layers import FeedForward, GatedResidual, Layer, Residual
from docmt.model.linear_attention import LinearAttention
from docmt.model.packed import SentenceFrame
from docmt.model.positions import FIRST_POSITION, LearnedPositions, SinusoidalPositions
from docmt.model.recurrent import Bilstm
from docmt.model.sight import Sight
from docmt.model.sizes import Sizes

PADDING_ID = 1


class Head(NamedTuple):
    """What projects decoder states to the vocabulary: logits of the ids from `first` on, one for each row."""

    weight: Tensor
    """[rows, d]"""
    first: int = 0


class Parts:
    """Bricks in the conventions of docmt's own models (those of Bao et al. 2021), for models of the given sizes."""

    frame = SentenceFrame()
    norm_epsilon = 1e-5
    first_position = FIRST_POSITION

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.pre_norm = sizes.normalization == "pre"

    # Layers

    def attention(
        self, sight: Sight, memory_width: int | None = None, *, at_zero: bool = False, output_bias: bool = True
    ) -> Attention:
        """Attention over what `sight` names; memory_width: of its states, if not the model's width.

        at_zero: at first it finds zeros; output_bias: see `Attention`.
        """
        sizes = self.sizes
        made = Attention(sizes.width, sizes.heads, sight, sizes.attention_dropout, memory_width, output_bias)
        if at_zero:
            nn.init.zeros_(made.output.weight)
        return made

    def hops(self, sights: Sequence[Sight], at_zero: bool) -> Hops:
        """Attention to what each of the sights names, one after the other; at_zero: at first they find nothing."""
        return Hops([self.attention(own, at_zero=at_zero, output_bias=False) for own in sights])

    def sentence_encoder(self, side: str, *, whole: bool, frozen: bool) -> SentenceEncoder:
        """An encoder of single sentences for the layers of a side's stack to look at, each at the layer of its number.

        What is kept of a layer stands behind its self-attention, or (`whole`) behind all of it. That of the target side
        has embeddings of its own.
        """
        target = side == "target"
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
        for name, module in type(self)(replace(self.sizes, source_vocabulary_size=0)).embeddings().items():
            if name.partition("_")[0] in ("source", "tokens"):
                holder.add_module(name, module)
        return holder

    def linear_attention(self, sight: Sight) -> LinearAttention:
        """Linear attention over what `sight` names."""
        return LinearAttention(self.sizes.width, self.sizes.heads, sight, self.sizes.linear, self.frame.joined)

    def group_attention(
        self, local: Sight | None = None, whole: Sight | None = None, gate_bias: float = 0.0, linear: bool = False
    ) -> GroupAttention:
        """Attention within sentences (`local`), over the document (`whole`), or both joined by a gate.

        gate_bias: where the bias of the gate begins; linear: that over the document is.
        """
        over_document = self.linear_attention if linear else self.attention
        both = local is not None and whole is not None
        return GroupAttention(
            None if local is None else self.attention(local),
            None if whole is None else over_document(whole),
            Gate(self.sizes.width, gate_bias) if both else None,
        )

    def feed_forward(self) -> FeedForward:
        """The feed-forward block."""
        return FeedForward(self.sizes.width, self.sizes.feed_forward, self.sizes.activation)

    def norm(self) -> nn.LayerNorm:
        """A layer norm."""
        return nn.LayerNorm(self.sizes.width, eps=self.norm_epsilon)

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
        """The modules that turn tokens into vectors, by the name that the model gives them."""
        sizes = self.sizes
        modules: dict[str, nn.Module] = {"tokens": token_embedding(sizes.vocabulary_size, sizes.width)}
        for side in ("source", "target"):
            modules[f"{side}_positions"] = self._positions()
            if sizes.embedding_normalization:
                modules[f"{side}_norm"] = self.norm()
        return modules

    def _positions(self) -> nn.Module:
        if self.sizes.position_encoding == "learned":
            return LearnedPositions(self.sizes.width, self.sizes.max_positions)
        return SinusoidalPositions(self.sizes.width, self.first_position)

    def lookup(self, model: nn.Module, side: str, tokens: Tensor) -> Tensor:
        """sqrt(d) * E[token] (Vaswani et al. 2017, section 3.4): tokens [...] -> [..., d]; side: source or target."""
        vectors: Tensor = model.get_submodule("tokens")(tokens) * math.sqrt(self.sizes.width)
        return vectors

    def place(self, model: nn.Module, side: str, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Vectors [..., d] with those of their positions [...] added; None: a sequence without order."""
        if positions is not None:
            vectors = vectors + model.get_submodule(f"{side}_positions")(positions)
        if torch.is_autocast_enabled(vectors.device.type):
            # From here on states are in the precision of autocast: casting them to and fro around every product made
            # 240 copies in a training step of a small model (docs/log.md).
            vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
        if self.sizes.embedding_normalization:
            vectors = model.get_submodule(f"{side}_norm")(vectors)
        return vectors

    def head(self, model: nn.Module) -> Head:
        """What decoder states are multiplied with: the embedding."""
        return Head(model.get_submodule("tokens").get_parameter("weight"))

    def tables(self) -> Sequence[str]:
        """The names of the token embeddings, whose rows are looked up in lower precision where that is asked for."""
        return ("tokens",)


def token_embedding(rows: int, width: int, zero: int = PADDING_ID) -> nn.Embedding:
    """E ~ N(0, 1/d) with a zero row that is never trained, that of padding."""
    embedding = nn.Embedding(rows, width, padding_idx=zero)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    with torch.no_grad():
        embedding.weight[zero].zero_()
    return embedding
