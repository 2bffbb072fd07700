"""The architecture of a model: sizes, a system, and that system's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import brief, build, check_fields, check_number, flat, plain, range_of
from docmt.model.families import FAMILIES, Family
from docmt.model.families.family import ENCODER_SIZES
from docmt.model.sizes import PRESETS, Linear, Sizes
from docmt.model.systems import SYSTEMS, Concat, Context, Group, Hierarchical, MultiHop, System


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
        if self.linear != Linear() and not self.chosen.linear:
            raise DocmtError(
                f"model.linear is set, but this {self.system} model has no linear attention: leave it out, or set "
                "model.group.global_attention or model.concat.attention linear"
            )
        if self.linear.gate == "none" and (self.linear.gates, self.linear.gate_start) != (
            Linear.gates,
            Linear.gate_start,
        ):
            raise DocmtError(
                "model.linear.gates and gate_start are of a gate, but model.linear.gate is none: choose one"
            )
        if self.linear.map == "learned" and (self.linear.drawing, self.linear.temperature) != (
            Linear.drawing,
            Linear.temperature,
        ):
            raise DocmtError(
                "model.linear.drawing and temperature are of random features, but model.linear.map is learned: leave "
                "them out, or set map random"
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
        for name, ids, has in (
            ("source_mark", self.source_mark, family.names("source")),
            ("target_mark", self.target_mark, family.names("target")),
        ):
            for id in ids:
                check_number(f"model.{name}", id, (0, range_of(Sizes, "vocabulary_size")[1]))
            if ids and not has:
                raise DocmtError(
                    f"model.{name} is set, but sentences of model.family {self.family} have no such mark: leave it out"
                )
        fits, systems = {
            "any": (not family.unpredicted[1] or chosen.rules == "frame", "that keep to the sentences of the source"),
            "sentences": (chosen.order == "sentences", "that translate sentence by sentence"),
            "windows": (chosen.needs().windows, "of windows (concat)"),
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
        if self.chosen.needs().drafts:
            raise DocmtError(
                f"model.family {self.family} has an encoder for the source alone, but this {self.system} model reads "
                "drafts, which are of the target: choose another system, or family docmt"
            )

    def __repr__(self) -> str:
        return brief(self)

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
        usual = flat(plain(cls()))
        for name, value in flat(values).items():
            if isinstance(value, str) and not isinstance(usual.get(name, ""), str):
                raise DocmtError(f"model.{name} is {value!r}, where it may be {usual[name]!r}")
        return build(cls, values, "the configuration", "model.")
