"""The architecture of a model: sizes, a system, and the options of that system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import (
    MANY,
    build,
    check_fields,
    check_number,
    field_range,
    flatten,
    ranged,
    short_repr,
    to_mapping,
)
from docmt.model.earlier_versions import with_current_names
from docmt.model.families import FAMILIES, Family
from docmt.model.families.conventions import ENCODER_SIZES
from docmt.model.systems import (
    SYSTEMS,
    Cadec,
    Concat,
    Context,
    Flat,
    Group,
    Hierarchical,
    Hybrid,
    MultiHop,
    Selective,
    System,
)

# Width, feed-forward width, heads, layers of each stack (Bao et al. 2021: base and large in section 4 and Table 7).
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 256, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "small": {"width": 512, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "base": {"width": 512, "feed_forward": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    "big": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6},
    "large": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 12, "decoder_layers": 12},
}


RANDOM_FEATURES, RANDOM_CROSS_FEATURES = 32, 256
"""Numbers of features of Wu et al. (2022) for IWSLT."""


@dataclass(frozen=True)
class Linear:
    """Linear attention (Katharopoulos et al. 2020; RFA: Peng et al. 2021, Wu et al. 2022)."""

    feature_map: Literal["learned", "random"] = "learned"
    """feature map of queries and keys: learned, or random Fourier features (RFA)"""
    features: int = ranged(0, 0, 65_536)
    """feature pairs per head of self-attention (0: the head width, or 32 if random)"""
    cross_features: int = ranged(0, 0, 65_536)
    """feature pairs per head of cross-attention (0: the head width, or 256 if random)"""
    feature_sampling: Literal["independent", "orthogonal", "quasi"] = "independent"
    """sampling of random features: independent, orthogonal blocks, or low-discrepancy"""
    temperature_per: Literal["head", "dimension"] = "head"
    """learned scale of random features: a temperature per head, or one per dimension"""
    gate: Literal["none", "decay", "average"] = "none"
    """forgetting at sentence ends: none, a gate (sgate), or a weighted average (sgate-avg)"""
    gate_per: Literal["head", "layer"] = "head"
    """one gate per head, or one per layer"""
    gate_bias: float = ranged(2.0, -100, 100)
    """initial bias of these gates (at 2, 88 % of the state remains)"""
    rescale_keys: bool = True
    """weight source keys by their norm"""


@dataclass(frozen=True)
class Sizes:
    """Options of models of every system."""

    preset: Literal["tiny", "small", "base", "big", "large"] = "base"
    """published sizes (width, layers, heads, ...); an option for a size counts before them"""
    family: Literal[
        "docmt", "thumt", "rfa", "bart", "mbart", "mbart50", "m2m_100", "marian", "t5", "madlad", "bert", "roberta"
    ] = "docmt"
    """conventions of embeddings, boundary tokens and norms"""
    vocabulary_size: int = ranged(0, 0, 10_000_000)
    """entries of the vocabulary (0: as in the prepared store)"""
    source_vocabulary_size: int = ranged(0, 0, 10_000_000)
    """entries of a separate source vocabulary (0: none)"""
    source_language_ids: list[int] = field(default_factory=list)
    """ids of the tokens that name the source language (multilingual families)"""
    target_language_ids: list[int] = field(default_factory=list)
    """ids of the tokens that name the target language (t5: the prompt)"""
    width: int = ranged(0, 0, 65_536)
    """model width (0: as in the preset; so for all sizes below)"""
    feed_forward: int = ranged(0, 0, 1_048_576)
    """inner width of feed-forward blocks"""
    heads: int = ranged(0, 0, 4096)
    """attention heads"""
    head_width: int = ranged(0, 0, 65_536)
    """width of each head (0: width / heads)"""
    encoder_layers: int = ranged(0, 0, 1000)
    """layers of the encoder"""
    decoder_layers: int = ranged(0, 0, 1000)
    """layers of the decoder"""
    encoder_width: int = ranged(0, 0, 65_536)
    """width of a separate encoder: bert, roberta (0: as in the decoder)"""
    encoder_feed_forward: int = ranged(0, 0, 1_048_576)
    """inner feed-forward width of a separate encoder (0: as in the decoder)"""
    encoder_heads: int = ranged(0, 0, 4096)
    """attention heads of a separate encoder (0: as in the decoder)"""
    normalization: Literal["post", "pre"] = "post"
    """norm after each residual sum (post) or before each block (pre)"""
    activation: Literal[
        "relu", "gelu", "gelu_tanh", "silu", "gated_relu", "gated_gelu", "gated_gelu_tanh", "gated_silu"
    ] = "relu"
    """activation of feed-forward blocks; gated: multiplied by a third product"""
    scale_embeddings: bool = True
    """multiply embeddings by the square root of the width"""
    output: Literal["auto", "tied", "scaled", "untied"] = "auto"
    """output matrix: tied to target embeddings, tied and scaled, or untied"""
    embedding_normalization: bool = False
    """normalise the sum of embedding and position vector"""
    position_encoding: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    """position vectors (sinusoidal: any length), or relative attention biases"""
    relative_buckets: int = ranged(32, 4, 65_536)
    """relative positions: number of biases per head"""
    relative_distance: int = ranged(128, 2, MANY)
    """relative positions: distance in tokens from which all share one bias"""
    positions: Literal["auto", "document", "sentence"] = "auto"
    """positions run through the instance (document) or restart at each sentence"""
    max_positions: int = ranged(1024, 1, 100_000_000)
    """number of learned positions, in tokens"""
    dropout: float = ranged(0.3, 0, 0.99)
    """dropout of embeddings and residual branches"""
    attention_dropout: float = ranged(0.0, 0, 0.99)
    """dropout of softmax attention weights (slow on CPU)"""
    instance_tokens: int = ranged(512, 8, MANY)
    """instances have fewer tokens than this on each side"""
    instance_sentences: int = ranged(1000, 1, MANY)
    """maximum sentences of an instance"""

    linear: Linear = field(default_factory=Linear)
    """linear attention, in systems that support it"""

    def check_sizes(self) -> None:
        """Raise DocmtError for incompatible sizes, after sizes of 0 are resolved."""
        if (not self.head_width and self.width % self.heads) or self.width % 2:
            raise DocmtError(f"model.width is {self.width}: choose an even multiple of model.heads ({self.heads})")
        if self.relative_distance <= self.relative_buckets // 2:
            raise DocmtError(
                f"model.relative_distance is {self.relative_distance}: choose more than half of the "
                f"{self.relative_buckets} model.relative_buckets"
            )

    def replace_sizes(self, **sizes: Any) -> Sizes:
        """Return only the sizes, without a system, with some replaced."""
        return Sizes(**{size.name: getattr(self, size.name) for size in fields(Sizes)} | sizes)

    @property
    def attention_width(self) -> int:
        """Width of all heads of an attention together, after sizes of 0 are resolved."""
        return self.heads * (self.head_width or self.width // self.heads)


@dataclass(frozen=True)
class ModelConfig(Sizes):
    """The architecture of a translation model.

    The options of a system form a group of its name. Those of another system cannot be set.
    """

    system: Literal[
        "sentence",
        "document",
        "group",
        "concat",
        "context",
        "multihop",
        "hierarchical",
        "flat",
        "hybrid",
        "selective",
        "cadec",
    ] = "group"
    """architecture: the context that a model reads, and how"""
    group: Group = field(default_factory=Group)
    """G-Transformer (Bao et al. 2021)"""
    concat: Concat = field(default_factory=Concat)
    """windows of concatenated sentences (as in Wu et al. 2022)"""
    context: Context = field(default_factory=Context)
    """document-context Transformer (Zhang et al. 2018)"""
    multihop: MultiHop = field(default_factory=MultiHop)
    """Multi-Hop Transformer (2021)"""
    hierarchical: Hierarchical = field(default_factory=Hierarchical)
    """hierarchical attention networks (Miculicich et al. 2018)"""
    flat: Flat = field(default_factory=Flat)
    """Flat-Transformer (Ma et al. 2020)"""
    hybrid: Hybrid = field(default_factory=Hybrid)
    """Hybrid context (Zheng et al. 2020)"""
    selective: Selective = field(default_factory=Selective)
    """selective attention networks (Maruf et al. 2019)"""
    cadec: Cadec = field(default_factory=Cadec)
    """context-aware decoder (Voita et al. 2019)"""

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        resolved = self.resolve()
        resolved.check_sizes()
        for name, system_class in SYSTEMS.items():
            options = getattr(self, name, None)
            if options is not None and name != self.system and options != (default := system_class()):
                changed = next(option for option in vars(options) if vars(options)[option] != vars(default)[option])
                raise DocmtError(
                    f"model.{name}.{changed} is set, but model.system is {self.system}: leave it out, or set "
                    f"model.system {name}"
                )
        check_fields(self.system_options, f"model.{self.system}.")
        check_fields(self.linear, "model.linear.")
        linear, defaults = self.linear, Linear()
        if linear != defaults and not self.system_options.has_linear_attention:
            raise DocmtError(
                f"model.linear is set, but this {self.system} model has no linear attention: leave it out, or set "
                "model.group.global_attention or model.concat.attention linear"
            )
        if linear.gate == "none" and (linear.gate_per, linear.gate_bias) != (defaults.gate_per, defaults.gate_bias):
            raise DocmtError(
                "model.linear.gate_per or gate_bias is set, but model.linear.gate is none: set model.linear.gate"
            )
        if linear.feature_map == "learned" and (linear.feature_sampling, linear.temperature_per) != (
            defaults.feature_sampling,
            defaults.temperature_per,
        ):
            raise DocmtError(
                "model.linear.feature_sampling or temperature_per is set, but model.linear.feature_map is learned: "
                "leave them out, or set model.linear.feature_map random"
            )
        self.system_options.check(resolved)
        self._check_family()

    @property
    def is_encoder(self) -> bool:
        """Whether this describes only an encoder, which can initialize a training."""
        return not self.vocabulary_size and self.source_vocabulary_size > 0

    def _check_family(self) -> None:
        """Raise DocmtError for options that the family does not support."""
        family, system = FAMILIES[self.family], self.system_options
        self._check_encoder(family)
        if self.source_vocabulary_size and family.tables == "one":
            apart = ", ".join(name for name, each in FAMILIES.items() if each.tables != "one")
            raise DocmtError(f"model.source_vocabulary_size is only for model.family {apart}: leave it out")
        for side, ids in (("source", self.source_language_ids), ("target", self.target_language_ids)):
            for id in ids:
                check_number(f"model.{side}_language_ids", id, (0, field_range(Sizes, "vocabulary_size")[1]))
            if ids and not family.has_language_token(side):
                raise DocmtError(
                    f"model.{side}_language_ids is set, but model.family {self.family} has no token for it: "
                    "leave it out"
                )
        fits, systems = {
            "any": (
                not family.ids_without_logits[1] or system.rules == "frame",
                "with one target sentence per source sentence",
            ),
            "sentences": (system.decoding_order == "sentences", "that translate sentence by sentence"),
            "windows": (system.context_spec().windows, "of windows (concat)"),
        }[family.system_order]
        if not fits or (self.embedding_normalization and family.system_order != "any"):
            without = "" if family.system_order == "any" else ", without model.embedding_normalization"
            choice = "another system" if family.is_pretrained else "model.family docmt"
            raise DocmtError(
                f"model.family {self.family} is for systems {systems}{without}, not for this {self.system} model: "
                f"choose {choice}"
            )
        if self.position_encoding == "relative" and system.has_linear_attention:
            raise DocmtError(
                "model.position_encoding is relative, but linear attention has no scores to bias: choose "
                "another position encoding, or softmax attention"
            )
        for name in ("relative_buckets", "relative_distance"):
            if getattr(self, name) != getattr(Sizes, name) and self.position_encoding != "relative":
                raise DocmtError(
                    f"model.{name} is set, but model.position_encoding is {self.position_encoding}: leave it out, or "
                    "choose relative"
                )

    def _check_encoder(self, family: Family) -> None:
        """Raise DocmtError for sizes of a separate encoder without one, or incompatible ones."""
        if family.encoder is None:
            for name in ENCODER_SIZES:
                if getattr(self, f"encoder_{name}"):
                    apart = ", ".join(name for name, each in FAMILIES.items() if each.encoder is not None)
                    raise DocmtError(f"model.encoder_{name} is only for model.family {apart}: leave it out")
            return
        resolved = self.resolve()
        if resolved.encoder_width % resolved.encoder_heads:
            raise DocmtError(
                f"model.encoder_width is {resolved.encoder_width}: choose a multiple of model.encoder_heads "
                f"({resolved.encoder_heads})"
            )
        if self.system_options.context_spec().drafts:
            raise DocmtError(
                f"model.family {self.family} cannot encode target text, but this {self.system} model reads drafts: "
                "choose another system, or model.family docmt"
            )

    def __repr__(self) -> str:
        return short_repr(self)

    def resolve(self) -> ModelConfig:
        """Replace sizes of 0 by those of the preset, and options "auto" by values, as models need them."""
        missing: dict[str, Any] = {
            name: size for name, size in PRESETS[self.preset].items() if getattr(self, name) == 0
        }
        if FAMILIES[self.family].encoder is not None:
            for name in ENCODER_SIZES:
                if not getattr(self, f"encoder_{name}"):
                    missing[f"encoder_{name}"] = missing.get(name, getattr(self, name))
        if self.positions == "auto":
            missing["positions"] = self.system_options.default_positions
        if (options := self.system_options.resolve_options(self)) != self.system_options:
            missing[self.system] = options
        return replace(self, **missing) if missing else self

    @property
    def system_options(self) -> System:
        """The system with its options."""
        options: System | None = getattr(self, self.system, None)
        return options if options is not None else SYSTEMS[self.system]()

    @property
    def restarts_positions(self) -> bool:
        """Whether positions restart at each sentence."""
        return (self.system_options.positions or self.resolve().positions) == "sentence"

    @property
    def position_limit(self) -> int | None:
        """Maximum tokens of a sentence or instance, through which positions run; None: no limit."""
        encoder, _ = FAMILIES[self.family].encoder_conventions(self)
        return self.max_positions if "learned" in (self.position_encoding, encoder.position_encoding) else None

    @property
    def limits_target(self) -> bool:
        """Whether `position_limit` also holds for the target, not only for the encoder."""
        return self.position_encoding == "learned"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Read the config of a model directory. Raises DocmtError for unknown fields."""
        values = with_current_names(values)
        defaults = flatten(to_mapping(cls()))
        for name, value in flatten(values).items():
            if isinstance(value, str) and not isinstance(defaults.get(name, ""), str):
                raise DocmtError(f"model.{name} is {value!r}, but must be of another type, such as {defaults[name]!r}")
        return build(cls, values, "the configuration", "model.")
