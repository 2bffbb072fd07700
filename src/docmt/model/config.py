"""What a model is made of: systems, their ablations, and the published sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from docmt.errors import DocmtError

System = Literal["sentence", "document", "group"]
Scope = Literal["sentence", "document", "both"]
Site = Literal["encoder", "decoder", "cross"]

# Width, feed-forward width, heads, layers of each stack (Bao et al. 2021: base and large in section 4 and Table 7).
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 256, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "small": {"width": 512, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "base": {"width": 512, "feed_forward": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    "big": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6},
    "large": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 12, "decoder_layers": 12},
}


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a translation model.

    Systems: `sentence` (a Transformer on single sentences), `document` (the same on whole instances) and `group`
    (G-Transformer, Bao et al. 2021: attention within sentences everywhere, joined by a gate with attention over
    the whole instance in the top layers).
    """

    system: System = "group"
    """which system: sentence, document or group"""
    preset: Literal["tiny", "small", "base", "big", "large"] = "base"
    """published size that fills every size left at 0"""
    vocabulary_size: int = 0
    """entries of the joint vocabulary, marks included (0: that of the prepared store)"""
    width: int = 0
    """model width d (0, here and below: that of the preset)"""
    feed_forward: int = 0
    """inner width of the feed-forward sub-layers"""
    heads: int = 0
    """attention heads"""
    encoder_layers: int = 0
    """layers of the encoder"""
    decoder_layers: int = 0
    """layers of the decoder"""
    encoder_global_layers: int = 2
    """group system: top encoder layers whose self-attention combines group and global attention"""
    decoder_global_layers: int = 2
    """group system: top decoder layers whose self-attention combines group and global attention"""
    cross_global_layers: int = 2
    """group system: top decoder layers whose cross-attention combines group and global attention"""
    top_attention: Literal["combined", "group", "global"] = "combined"
    """group system: what the top layers do: combined (published), only group, or only global attention"""
    self_locality: bool = True
    """group system: group attention in self-attention; false attends to the whole instance in every layer"""
    cross_locality: bool = True
    """group system: group attention in cross-attention; false attends to the whole source in every layer"""
    normalization: Literal["post", "pre"] = "post"
    """layer norm after each residual sum (post, published) or before each sub-layer (pre)"""
    activation: Literal["relu", "gelu"] = "relu"
    """between the two products of the feed-forward sub-layers"""
    embedding_normalization: bool = False
    """layer norm after the sum of embedding and position vector, one for each side"""
    position_encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    """position vectors: computed (any length) or learned (up to max_positions)"""
    positions: Literal["document", "sentence"] = "document"
    """positions run on through the instance (document, published) or restart at each sentence"""
    max_positions: int = 1024
    """number of learned positions; not used with sinusoidal ones"""
    dropout: float = 0.3
    """dropout after the embedding and in every residual branch"""
    attention_dropout: float = 0.0
    """dropout on attention weights (slow on CPU)"""
    instance_tokens: int = 512
    """instances hold fewer tokens than this on each side, in training and in translation"""

    def __post_init__(self) -> None:
        _one_of("model.preset", self.preset, tuple(PRESETS))
        self.filled()._check()

    def filled(self) -> ModelConfig:
        """The same with every size left at 0 taken from the preset; what a model holds as its config."""
        sizes: dict[str, Any] = {name: size for name, size in PRESETS[self.preset].items() if getattr(self, name) == 0}
        return replace(self, **sizes) if sizes else self

    def _check(self) -> None:
        _one_of("model.system", self.system, ("sentence", "document", "group"))
        _one_of("model.top_attention", self.top_attention, ("combined", "group", "global"))
        _one_of("model.normalization", self.normalization, ("post", "pre"))
        _one_of("model.activation", self.activation, ("relu", "gelu"))
        _one_of("model.position_encoding", self.position_encoding, ("sinusoidal", "learned"))
        _one_of("model.positions", self.positions, ("document", "sentence"))
        for name in ("width", "feed_forward", "heads", "encoder_layers", "decoder_layers", "max_positions"):
            if getattr(self, name) < 1:
                raise DocmtError(f"model.{name} is {getattr(self, name)}: choose a number of at least 1")
        if self.width % self.heads or self.width % 2:
            raise DocmtError(f"model.width {self.width} must be even and a multiple of model.heads {self.heads}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise DocmtError(
                    f"model.{name} is {getattr(self, name)}: choose a number from 0 up to, not including, 1"
                )
        if self.instance_tokens < 8:
            raise DocmtError(f"model.instance_tokens is {self.instance_tokens}: choose at least 8")
        for site in ("encoder", "decoder", "cross") if self.system == "group" else ():
            count = getattr(self, f"{site}_global_layers")
            layers = self.encoder_layers if site == "encoder" else self.decoder_layers
            if not 0 <= count <= layers:
                raise DocmtError(
                    f"model.{site}_global_layers is {count}: choose from 0 to the {layers} layers there are"
                )

    def scopes(self, site: Site) -> list[Scope]:
        """What each layer's attention at `site` can see, bottom to top."""
        layers = self.encoder_layers if site == "encoder" else self.decoder_layers
        local = self.cross_locality if site == "cross" else self.self_locality
        if self.system != "group" or not local:
            return ["document"] * layers
        top_scopes: dict[str, Scope] = {"combined": "both", "group": "sentence", "global": "document"}
        count: int = getattr(self, f"{site}_global_layers")
        bottom: list[Scope] = ["sentence"] * (layers - count)
        return bottom + [top_scopes[self.top_attention]] * count

    @property
    def framed(self) -> bool:
        """Whether decoding gives one target sentence per source sentence by construction.

        The plain document Transformer has no notion of the source sentence a target sentence belongs to.
        """
        return self.system != "document"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """The config stored in a model directory. Raises DocmtError for fields this version does not know."""
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise DocmtError(f"unknown field {unknown[0]!r}")
        for name, value in values.items():
            default = cls.__dataclass_fields__[name].default
            if type(value) is not type(default) and not (type(default) is float and type(value) is int):
                raise DocmtError(f"model.{name} is {value!r}, where it may be {default!r}")
        return cls(**values)


def _one_of(flag: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise DocmtError(f"{flag} is {value!r}: choose one of {', '.join(allowed)}")
