"""G-Transformer (Bao et al. 2021): attention within sentences, gated with attention over the document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.families import FAMILIES, TransformerConfig
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import DecodingOrder, System

if TYPE_CHECKING:
    from docmt.model.attention import GroupAttention
    from docmt.model.builder import ModelBuilder


@dataclass(frozen=True)
class Group(System):
    """Group attention in all layers, and also global attention in the top layers. Ablations are options.

    The Long-Short Term Masking Transformer (Zhang et al. 2020) has both in all layers, on blocks of 4 sentences
    (`model.instance_sentences`). How it combines them is not known to us: `fusion` heads and mean are two readings.
    """

    encoder_layers: int = ranged(2, 0, 1000)
    """top encoder layers with combined self-attention (at most all)"""
    decoder_layers: int = ranged(2, 0, 1000)
    """top decoder layers with combined self-attention (at most all)"""
    cross_layers: int = ranged(2, 0, 1000)
    """top decoder layers with combined cross-attention (at most all)"""
    top_attention: Literal["combined", "group", "global"] = "combined"
    """attention of the top layers: group and global combined, or one of them"""
    self_locality: bool = True
    """group attention in self-attention; false: all layers see the whole instance"""
    cross_locality: bool = True
    """group attention in cross-attention; false: all layers see the whole source"""
    fusion: Literal["auto", "published", "identity", "heads", "mean"] = "auto"
    """join of group and global attention: a gate (identity: starts equal to the sentence model), half of the heads
    each, or the mean"""
    gate_bias: float = ranged(0.0, -100, 100)
    """initial gate bias (at 3, global attention has weight 5 %)"""
    global_start: Literal["random", "local"] = "random"
    """initial weights of global attention: random, or a copy of group attention"""
    global_attention: Literal["softmax", "linear"] = "softmax"
    """kind of attention over the document; linear uses the options of model.linear"""
    sentence_distances: bool = False
    """global attention knows how many sentences lie between two tokens (rotated queries and keys)"""
    positions: ClassVar[None] = None
    random_start_pairs: ClassVar[int] = 1_000_000
    decoding_order: ClassVar[DecodingOrder] = "documents"

    @property
    def has_linear_attention(self) -> bool:
        """As `global_attention` says."""
        return self.global_attention == "linear"

    @property
    def splits_heads(self) -> bool:
        """As `fusion` says."""
        return self.fusion == "heads"

    @property
    def initialization_setting(self) -> str:
        """Copied weights need a model to copy from."""
        return "" if self.global_start == "random" else "model.group.global_start"

    def context_spec(self) -> ContextSpec:
        """Return a spec without limits."""
        return ContextSpec()

    def resolve_options(self, config: TransformerConfig) -> Group:
        """Resolve `fusion`: identity for pretrained families."""
        if self.fusion != "auto":
            return self
        return replace(self, fusion="identity" if FAMILIES[config.family].is_pretrained else "published")

    def check(self, config: TransformerConfig) -> None:
        """Raise DocmtError for more combined layers than there are."""
        totals = (config.encoder_layers, config.decoder_layers, config.decoder_layers)
        for name, total in zip(("encoder_layers", "decoder_layers", "cross_layers"), totals, strict=True):
            if (count := getattr(self, name)) > max(total, getattr(Group, name)):  # the default is valid for one layer
                raise DocmtError(f"model.group.{name} is {count}: choose from 0 to the {total} layers there are")
        linear, heads, distances = self.has_linear_attention, self.splits_heads, self.sentence_distances
        narrow, relative = config.attention_width < 2 * config.heads, config.position_encoding == "relative"
        has_gate, both = self.fusion not in ("heads", "mean"), self.top_attention == "combined"
        has_global = self.top_attention != "group" and max(self.encoder_layers, self.decoder_layers, self.cross_layers)
        nowhere = not has_global and self.self_locality and self.cross_locality
        for is_wrong, message in (
            (distances and narrow, "sentence_distances needs heads of 2 dimensions or more: set fewer model.heads"),
            (distances and linear, "sentence_distances cannot be used with model.group.global_attention linear"),
            (heads and config.heads < 2, "fusion heads gives half of the heads to each attention: set 2 model.heads"),
            (heads and (linear or relative), "fusion heads needs softmax attention, and no relative positions"),
            (self.gate_bias and not has_gate, f"gate_bias is set, but fusion {self.fusion} has no gate: leave it out"),
            (heads and self.global_start != "random", "global_start has no effect with fusion heads: leave it out"),
            (not (has_gate or both), f"fusion {self.fusion} joins two attentions: leave it or top_attention out"),
            (linear and nowhere, "global_attention is linear, but no layer has global attention: set top_attention"),
        ):
            if is_wrong:
                raise DocmtError(f"model.group.{message}")

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build the attention of a layer: local, or in the top layers what `top_attention` says.

        Without locality (`self_locality`, `cross_locality`) it is global in every layer.
        """
        global_ = replace(scope, extent="document")
        build = partial(
            builder.build_group_attention, linear=self.has_linear_attention, sentence_distances=self.sentence_distances
        )
        if not (self.self_locality if scope.memory == "self" else self.cross_locality):
            return build(global_=global_)
        total, top = builder.config.decoder_layers, self.cross_layers
        if scope.memory == "self":
            total = total if scope.causal else builder.config.encoder_layers
            top = self.decoder_layers if scope.causal else self.encoder_layers
        if number < total - top or self.top_attention == "group":
            return builder.build_group_attention(local=scope)
        if self.top_attention == "global":
            return build(global_=global_)
        fusion = "published" if self.fusion == "auto" else self.fusion  # "auto" is resolved in models
        return build(local=scope, global_=global_, gate_bias=self.gate_bias, fusion=fusion)

    def initial_weight(self, name: str) -> str | None:
        """Initialize group attention from the sentence model. Gates are new, global attention is new or a copy."""
        is_new = self.global_start == "random" and not self.splits_heads
        if ".gate." in name or ".features." in name or (".global." in name and is_new):
            return None
        if ".global.output." in name and self.fusion == "identity":
            return None
        return name.replace(".global.", ".local.")
