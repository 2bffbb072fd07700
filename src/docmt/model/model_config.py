"""The architecture of a model: the options of every system, a system, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import build, check_fields, check_number, find_changed, flatten, short_repr, to_mapping
from docmt.model import systems
from docmt.model.families import ENCODER_SIZES, FAMILIES, MAX_VOCABULARY, PRESETS, Family, Linear, TransformerConfig


@dataclass(frozen=True)
class ModelConfig(TransformerConfig):
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
    group: systems.Group = field(default_factory=systems.Group)
    """G-Transformer (Bao et al. 2021)"""
    concat: systems.Concat = field(default_factory=systems.Concat)
    """windows of concatenated sentences (as in Wu et al. 2022)"""
    context: systems.Context = field(default_factory=systems.Context)
    """document-context Transformer (Zhang et al. 2018)"""
    multihop: systems.MultiHop = field(default_factory=systems.MultiHop)
    """Multi-Hop Transformer (2021)"""
    hierarchical: systems.Hierarchical = field(default_factory=systems.Hierarchical)
    """hierarchical attention networks (Miculicich et al. 2018)"""
    flat: systems.Flat = field(default_factory=systems.Flat)
    """Flat-Transformer (Ma et al. 2020)"""
    hybrid: systems.Hybrid = field(default_factory=systems.Hybrid)
    """Hybrid context (Zheng et al. 2020)"""
    selective: systems.Selective = field(default_factory=systems.Selective)
    """selective attention networks (Maruf et al. 2019)"""
    cadec: systems.Cadec = field(default_factory=systems.Cadec)
    """context-aware decoder (Voita et al. 2019)"""

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        resolved = self.resolve()
        resolved.check_sizes()
        for name in systems.SYSTEMS:
            if name != self.system and hasattr(self, name) and (changed := find_changed(getattr(self, name))):
                raise DocmtError(
                    f"model.{name}.{next(iter(changed))} is set, but model.system is {self.system}: leave it out, or "
                    f"set model.system {name}"
                )
        check_fields(self.system_options, f"model.{self.system}.")
        check_fields(self.linear, "model.linear.")
        if self.linear != Linear() and not self.system_options.has_linear_attention:
            raise DocmtError(
                f"model.linear is set, but this {self.system} model has no linear attention: leave it out, or set "
                "model.group.global_attention or model.concat.attention linear"
            )
        self.system_options.check(resolved)
        self._check_family()

    @property
    def is_encoder(self) -> bool:
        """True if this describes only an encoder, which can initialize a training."""
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
                check_number(f"model.{side}_language_ids", id, (0, MAX_VOCABULARY))
            if ids and not family.has_language_token(side):
                raise DocmtError(
                    f"model.{side}_language_ids is set, but model.family {self.family} has no token for it: "
                    "leave it out"
                )
        fits, fitting = {
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
                f"model.family {self.family} is for systems {fitting}{without}, not for this {self.system} model: "
                f"choose {choice}"
            )
        if self.position_encoding == "relative" and system.has_linear_attention:
            raise DocmtError(
                "model.position_encoding is relative, but linear attention has no scores to bias: choose "
                "another position encoding, or softmax attention"
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

    __repr__ = short_repr

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
    def system_options(self) -> systems.System:
        """The system with its options."""
        return getattr(self, self.system, None) or systems.SYSTEMS[self.system]()

    @property
    def restarts_positions(self) -> bool:
        """True if positions restart at each sentence."""
        return (self.system_options.positions or self.resolve().positions) == "sentence"

    @property
    def position_limit(self) -> int | None:
        """Maximum tokens of a sentence or instance, through which positions run; None: no limit."""
        encoder, _ = FAMILIES[self.family].encoder_conventions(self)
        return self.max_positions if "learned" in (self.position_encoding, encoder.position_encoding) else None

    @property
    def limits_target(self) -> bool:
        """True if `position_limit` also holds for the target, not only for the encoder."""
        return self.position_encoding == "learned"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Read the config of a model directory. Raises DocmtError for unknown fields."""
        defaults = flatten(to_mapping(cls()))
        for name, value in flatten(values).items():
            if isinstance(value, str) and not isinstance(defaults.get(name, ""), str):
                raise DocmtError(f"model.{name} is {value!r}, but must be of another type, such as {defaults[name]!r}")
        return build(cls, values, "the configuration", "model.")
