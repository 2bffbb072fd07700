"""The architecture of a model: sizes, a system, and that system's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from docmt.errors import DocmtError
from docmt.model.sizes import PRESETS, Linear, Sizes
from docmt.model.systems import SYSTEMS, Concat, Context, Group, Hierarchical, MultiHop, System
from docmt.settings import brief, build, check_fields, flat, plain


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

    def _check_family(self) -> None:
        """Raises DocmtError for what the family does not have."""
        if self.family == "docmt":
            if self.source_vocabulary_size:
                raise DocmtError("model.source_vocabulary_size is for model.family thumt or rfa: leave it out")
            return
        if self.family == "thumt":
            fits, systems = self.chosen.order == "sentences", "that translate sentence by sentence"
        else:
            fits, systems = self.chosen.needs().windows, "of windows (concat)"
        if not fits or self.embedding_normalization:
            raise DocmtError(
                f"model.family {self.family} is for systems {systems}, without model.embedding_normalization, not for "
                f"this {self.system} model: choose docmt"
            )

    def __repr__(self) -> str:
        return brief(self)

    def filled(self) -> ModelConfig:
        """The same with every size left at 0 taken from the preset, and positions chosen; a model's own config."""
        missing: dict[str, Any] = {
            name: size for name, size in PRESETS[self.preset].items() if getattr(self, name) == 0
        }
        if self.positions == "auto":
            missing["positions"] = self.chosen.usual_positions
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
        return self.max_positions if self.position_encoding == "learned" else None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The config stored in a model directory. Raises DocmtError for fields this version does not know."""
        usual = flat(plain(cls()))
        for name, value in flat(values).items():
            if isinstance(value, str) and not isinstance(usual.get(name, ""), str):
                raise DocmtError(f"model.{name} is {value!r}, where it may be {usual[name]!r}")
        return build(cls, values, "the configuration", "model.")
