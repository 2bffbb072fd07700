"""The architecture of a model: sizes, a system, and that system's options."""

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
from docmt.model.families.family import ENCODER_SIZES
from docmt.model.systems import SYSTEMS, Concat, Context, Group, Hierarchical, MultiHop, System

# Width, feed-forward width, heads, layers of each stack (Bao et al. 2021: base and large in section 4 and Table 7).
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 256, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "small": {"width": 512, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "base": {"width": 512, "feed_forward": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    "big": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6},
    "large": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 12, "decoder_layers": 12},
}


RANDOM_FEATURES, RANDOM_CROSS_FEATURES = 32, 256
"""Of Wu et al. (2022) for IWSLT."""


@dataclass(frozen=True)
class Linear:
    """Linear attention (Katharopoulos et al. 2020; RFA: Peng et al. 2021, Wu et al. 2022), where the system has any."""

    feature_map: Literal["learned", "random"] = "learned"
    """what makes features of queries and keys: learned directions and a softmax over them (Zhang et al. 2024), or sine
    and cosine of random ones (RFA)"""
    features: int = ranged(0, 0, 65_536)
    """pairs of features of each head, of attention to the sequence itself (0: as many as a head is wide, or 32 random
    ones)"""
    cross_features: int = ranged(0, 0, 65_536)
    """the same of attention to the source, which has no gate to help it (0: as many as a head is wide, or 256 random
    ones)"""
    feature_sampling: Literal["independent", "orthogonal", "quasi"] = "independent"
    """how random features are drawn: independently, in blocks at right angles, or from a low-discrepancy sequence"""
    temperature_per: Literal["head", "dimension"] = "head"
    """what is learned of the sharpness of random ones: a temperature a head (Wu et al. 2022), or a scale of each
    dimension of a head (Peng et al. 2021)"""
    gate: Literal["none", "decay", "average"] = "none"
    """how what was said fades at the end of each sentence: not, by a gate (sgate), or by a gate whose rest is the
    weight of what is new (sgate-avg)"""
    gate_per: Literal["head", "layer"] = "head"
    """a gate for each head (their code) or one for the layer (their paper)"""
    gate_bias: float = ranged(2.0, -100, 100)
    """bias that these gates start with; at 2 a sentence leaves 88 % of what was there to the next
    (published for gate decay: 1 or 2; for average, where the rest is the weight of what is new: 0)"""
    rescale_keys: bool = True
    """long keys of the source weigh more ("norm rescaling")"""


@dataclass(frozen=True)
class Sizes:
    """What a model has whatever its system."""

    preset: Literal["tiny", "small", "base", "big", "large"] = "base"
    """published size that fills every size left at 0"""
    family: Literal[
        "docmt", "thumt", "rfa", "bart", "mbart", "mbart50", "m2m_100", "marian", "t5", "madlad", "bert", "roberta"
    ] = "docmt"
    """whose conventions embeddings, marks and norms follow: ours, those of THUMT checkpoints (Zhang et al. 2018), of
    the code of Wu et al. (2022), or of pretrained models, which `docmt convert` reads (BART, mBART of 25 and of 50
    languages, M2M100 and NLLB, Marian, T5, MADLAD-400); bert, roberta: the encoder is one of those, the decoder ours"""
    vocabulary_size: int = ranged(0, 0, 10_000_000)
    """entries of the joint vocabulary, marks included (0: that of the prepared store)"""
    source_vocabulary_size: int = ranged(0, 0, 10_000_000)
    """families with vocabularies apart (thumt, rfa, marian, bert, roberta): entries of the source vocabulary, where
    that is another one than the target's"""
    source_language_ids: list[int] = field(default_factory=list)
    """pretrained families of many languages: ids of the tokens that name the source language"""
    target_language_ids: list[int] = field(default_factory=list)
    """the same of the target language (t5: what stands before a source sentence, such as `translate English to ..:`)"""
    width: int = ranged(0, 0, 65_536)
    """model width d (0, here and below: that of the preset)"""
    feed_forward: int = ranged(0, 0, 1_048_576)
    """inner width of the feed-forward sub-layers"""
    heads: int = ranged(0, 0, 4096)
    """attention heads"""
    head_width: int = ranged(0, 0, 65_536)
    """width of each head (0: width / heads)"""
    encoder_layers: int = ranged(0, 0, 1000)
    """layers of the encoder"""
    decoder_layers: int = ranged(0, 0, 1000)
    """layers of the decoder"""
    encoder_width: int = ranged(0, 0, 65_536)
    """families bert and roberta: width of the encoder (0, also of the next two: that of the decoder)"""
    encoder_feed_forward: int = ranged(0, 0, 1_048_576)
    """the same: inner width of its feed-forward sub-layers"""
    encoder_heads: int = ranged(0, 0, 4096)
    """the same: its attention heads"""
    normalization: Literal["post", "pre"] = "post"
    """layer norm after each residual sum (post, published) or before each sub-layer (pre)"""
    activation: Literal[
        "relu", "gelu", "gelu_tanh", "silu", "gated_relu", "gated_gelu", "gated_gelu_tanh", "gated_silu"
    ] = "relu"
    """between the two products of the feed-forward sub-layers; gated: multiplied with a third one (Shazeer 2020)"""
    scale_embeddings: bool = True
    """embeddings are multiplied by the square root of the width"""
    output: Literal["auto", "tied", "scaled", "untied"] = "auto"
    """the matrix that projects to the vocabulary: the embedding of the target (tied), the same for states that are
    divided by the square root of the width (scaled), or one of its own; auto: as the family has it"""
    embedding_normalization: bool = False
    """layer norm after the sum of embedding and position vector, one for each side"""
    position_encoding: Literal["sinusoidal", "learned", "relative"] = "sinusoidal"
    """position vectors, computed (any length) or learned (up to max_positions), or none, but learned biases of
    attention for the distance of two tokens (Raffel et al. 2020)"""
    relative_buckets: int = ranged(32, 4, 65_536)
    """relative positions: how many biases there are for each head"""
    relative_distance: int = ranged(128, 2, MANY)
    """relative positions: tokens that are as far from each other, or further, all have the same bias"""
    positions: Literal["auto", "document", "sentence"] = "auto"
    """positions run on through the instance (document, published) or restart at each sentence; auto: sentence, but for
    systems that cannot tell sentences apart otherwise (document, concat)"""
    max_positions: int = ranged(1024, 1, 100_000_000)
    """number of learned positions; not used with others"""
    dropout: float = ranged(0.3, 0, 0.99)
    """dropout after the embedding and in every residual branch"""
    attention_dropout: float = ranged(0.0, 0, 0.99)
    """dropout on attention weights (slow on CPU); linear attention has no weights to drop"""
    instance_tokens: int = ranged(512, 8, MANY)
    """instances hold fewer tokens than this on each side, in training and in translation"""
    instance_sentences: int = ranged(1000, 1, MANY)
    """most sentences of an instance, in training and in translation"""

    linear: Linear = field(default_factory=Linear)
    """linear attention, for systems that have any"""

    def check_sizes(self) -> None:
        """Raises DocmtError for sizes that do not fit together; those left at 0 must have been filled in."""
        if (not self.head_width and self.width % self.heads) or self.width % 2:
            raise DocmtError(
                f"model.width {self.width} must be even and a multiple of model.heads {self.heads}: change one of them"
            )
        if self.relative_distance <= self.relative_buckets // 2:
            raise DocmtError(
                f"model.relative_distance is {self.relative_distance}: choose more than half of the "
                f"{self.relative_buckets} model.relative_buckets"
            )

    def changed(self, **sizes: Any) -> Sizes:
        """These sizes alone, without a system, with others in the place of some."""
        return Sizes(**{own.name: getattr(self, own.name) for own in fields(Sizes)} | sizes)

    @property
    def attention_width(self) -> int:
        """Of what all heads of an attention ask and find together; sizes must have been filled in."""
        return self.heads * (self.head_width or self.width // self.heads)


@dataclass(frozen=True)
class ModelConfig(Sizes):
    """The architecture of a translation model.

    Each system has a group of options of its own name, if it has any; those of another system cannot be set.
    """

    system: Literal["sentence", "document", "group", "concat", "context", "multihop", "hierarchical"] = "group"
    """sentence (a Transformer on single sentences), document (on whole instances), group (G-Transformer: attention
    within sentences, joined with attention over the document), concat (sliding windows of sentences), context
    (attention to encoded sentences before), multihop (attention to one sentence before after the other, on both
    sides), or hierarchical (attention to the words of each sentence before, then to these sentences, above the last
    layer)"""
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

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        filled = self.filled()
        filled.check_sizes()
        for name, kind in SYSTEMS.items():
            options = getattr(self, name, None)
            if options is not None and name != self.system and options != (default := kind()):
                changed = next(option for option in vars(options) if vars(options)[option] != vars(default)[option])
                raise DocmtError(
                    f"model.{name}.{changed} is set, but model.system is {self.system}: leave it out, or set "
                    f"model.system {name}"
                )
        check_fields(self.chosen, f"model.{self.system}.")
        check_fields(self.linear, "model.linear.")
        linear, usual = self.linear, Linear()
        if linear != usual and not self.chosen.linear:
            raise DocmtError(
                f"model.linear is set, but this {self.system} model has no linear attention: leave it out, or set "
                "model.group.global_attention or model.concat.attention linear"
            )
        if linear.gate == "none" and (linear.gate_per, linear.gate_bias) != (usual.gate_per, usual.gate_bias):
            raise DocmtError(
                "model.linear.gate_per and gate_bias are of a gate, but model.linear.gate is none: choose one"
            )
        if linear.feature_map == "learned" and (linear.feature_sampling, linear.temperature_per) != (
            usual.feature_sampling,
            usual.temperature_per,
        ):
            raise DocmtError(
                "model.linear.feature_sampling and temperature_per need model.linear.feature_map random. "
                "Leave them out, or set feature_map random"
            )
        self.chosen.check(filled)
        self._check_family()

    @property
    def is_encoder(self) -> bool:
        """Whether this is the stored config of an encoder alone, which a training can start from."""
        return not self.vocabulary_size and self.source_vocabulary_size > 0

    def _check_family(self) -> None:
        """Raises DocmtError for what the family does not have."""
        family, chosen = FAMILIES[self.family], self.chosen
        self._check_encoder(family)
        if self.source_vocabulary_size and family.tables == "one":
            apart = ", ".join(name for name, own in FAMILIES.items() if own.tables != "one")
            raise DocmtError(f"model.source_vocabulary_size is for model.family {apart}: leave it out")
        for side, ids in (("source", self.source_language_ids), ("target", self.target_language_ids)):
            for id in ids:
                check_number(f"model.{side}_language_ids", id, (0, field_range(Sizes, "vocabulary_size")[1]))
            if ids and not family.names(side):
                raise DocmtError(
                    f"model.{side}_language_ids is set, but model.family {self.family} has no language tokens. "
                    "Leave it out"
                )
        fits, systems = {
            "any": (not family.unpredicted[1] or chosen.rules == "frame", "that keep to the sentences of the source"),
            "sentences": (chosen.order == "sentences", "that translate sentence by sentence"),
            "windows": (chosen.context_spec().windows, "of windows (concat)"),
        }[family.order]
        if not fits or (self.embedding_normalization and family.order != "any"):
            without = "" if family.order == "any" else ", without model.embedding_normalization"
            choice = "another system" if family.pretrained else "docmt"
            raise DocmtError(
                f"model.family {self.family} is for systems {systems}{without}, not for this {self.system} model: "
                f"choose {choice}"
            )
        if self.position_encoding == "relative" and chosen.linear:
            raise DocmtError(
                "model.position_encoding is relative, but linear attention has no scores to add biases to: choose "
                "another position encoding, or softmax attention"
            )
        for name in ("relative_buckets", "relative_distance"):
            if getattr(self, name) != getattr(Sizes, name) and self.position_encoding != "relative":
                raise DocmtError(
                    f"model.{name} is set, but model.position_encoding is {self.position_encoding}: leave it out, or "
                    "choose relative"
                )

    def _check_encoder(self, family: Family) -> None:
        """Raises DocmtError for sizes of an encoder that is like the decoder, and for those that do not fit."""
        if family.encoder is None:
            for name in ENCODER_SIZES:
                if getattr(self, f"encoder_{name}"):
                    apart = ", ".join(name for name, own in FAMILIES.items() if own.encoder is not None)
                    raise DocmtError(f"model.encoder_{name} is for one of the families {apart}: leave it out")
            return
        filled = self.filled()
        if filled.encoder_width % filled.encoder_heads:
            raise DocmtError(
                f"model.encoder_width {filled.encoder_width} must be a multiple of model.encoder_heads "
                f"{filled.encoder_heads}: change one of them"
            )
        if self.chosen.context_spec().drafts:
            raise DocmtError(
                f"model.family {self.family} has an encoder for the source alone, but this {self.system} model reads "
                "drafts, which are of the target: choose another system, or family docmt"
            )

    def __repr__(self) -> str:
        return short_repr(self)

    def filled(self) -> ModelConfig:
        """The same with every size left at 0 taken from the preset, and positions chosen; a model's own config."""
        missing: dict[str, Any] = {
            name: size for name, size in PRESETS[self.preset].items() if getattr(self, name) == 0
        }
        if FAMILIES[self.family].encoder is not None:
            for name in ENCODER_SIZES:
                if not getattr(self, f"encoder_{name}"):
                    missing[f"encoder_{name}"] = missing.get(name, getattr(self, name))
        if self.positions == "auto":
            missing["positions"] = self.chosen.usual_positions
        if (settled := self.chosen.settled(self)) != self.chosen:
            missing[self.system] = settled
        return replace(self, **missing) if missing else self

    @property
    def chosen(self) -> System:
        """The system with its options."""
        options: System | None = getattr(self, self.system, None)
        return options if options is not None else SYSTEMS[self.system]()

    @property
    def restarts(self) -> bool:
        """Whether positions restart at each sentence."""
        return (self.chosen.positions or self.filled().positions) == "sentence"

    @property
    def position_limit(self) -> int | None:
        """Most tokens of what positions run through, a sentence or an instance; None: any number."""
        encoder, _ = FAMILIES[self.family].of_encoder(self)
        return self.max_positions if "learned" in (self.position_encoding, encoder.position_encoding) else None

    @property
    def limits_target(self) -> bool:
        """Whether `position_limit` is one of the target, too, and not of the encoder alone."""
        return self.position_encoding == "learned"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The config stored in a model directory. Raises DocmtError for fields this version does not know."""
        values = with_current_names(values)
        usual = flatten(to_mapping(cls()))
        for name, value in flatten(values).items():
            if isinstance(value, str) and not isinstance(usual.get(name, ""), str):
                raise DocmtError(f"model.{name} is {value!r}, but must be of another type, such as {usual[name]!r}")
        return build(cls, values, "the configuration", "model.")
