"""Conventions of the families of checkpoints: boundary tokens, norms, positions, and the Hugging Face layout.

The families are in families.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from docmt.core.settings import read_package_yaml
from docmt.model.scope import SPECIAL_TOKEN_IDS, BoundaryTokens
from docmt.model.transformer_config import TransformerConfig

PADDING_ID = SPECIAL_TOKEN_IDS["<pad>"]
SOURCE, TARGET = "SOURCE", "TARGET"
ENCODER_SIZES = ("width", "feed_forward", "heads")
"""Sizes that a separate encoder sets by `encoder_width` and so on."""


@dataclass(frozen=True)
class HuggingFace:
    """Layout of a family in a model directory of the library transformers."""

    model_types: tuple[str, ...]
    """values of `model_type` in config.json"""
    architecture: str
    """class of translation models"""
    entries: Mapping[str, tuple[str, ...]]
    """entries of config.json by docmt size; several entries must agree"""
    defaults: Mapping[str, object]
    """defaults of entries missing in config.json: a value, or the name of another entry"""
    weight_names: tuple[tuple[str, str], ...]
    """patterns and replacements that turn weight names into those of docmt, in order"""
    fixed_sizes: Mapping[str, object] = field(default_factory=dict)
    """docmt sizes with one value in the whole family"""
    value_names: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """values of entries, and the docmt names of these values"""
    supported_values: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """supported values of entries without a docmt size"""
    token_tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """weight names of each docmt token table; several names are copies of one table"""
    ignored_weights: str = r"$^"
    """pattern of names that are not weights, such as computed positions"""
    first_position: int = 0
    """rows of position tables before the first position"""
    scaled_types: tuple[str, ...] = ()
    """types that divide states by sqrt(d) before a tied output projection"""
    tokenizers: tuple[str, ...] = ()
    """tokenizer classes that identify the family if several share a type"""
    starts_with_padding: bool | None = None
    """whether translations start with `<pad>`, which identifies the family if several share a type"""


@dataclass(frozen=True)
class Encoder:
    """Conventions of an encoder that comes from another model than the decoder."""

    fixed_sizes: Mapping[str, Any]
    """docmt sizes with one value in the whole family"""
    norm_epsilon: float


@dataclass(frozen=True)
class Family:
    """Conventions shared by all checkpoints of a family. `TransformerConfig` has what differs between them.

    To add a family, write it into families.yaml, and name it in `TransformerConfig.family`.
    """

    source: str = "<s> w </s>"
    """template of a source sentence: words (w) and boundary tokens; SOURCE and TARGET stand for
    `model.source_language_ids` and `model.target_language_ids`"""
    target: str = "<s> w </s>"
    """template of decoder input; translation supplies the tokens before w"""
    predicts_boundary: bool = False
    """the token after a target sentence (the next `<s>`, or the end of the document) has a label"""
    joined: bool = False
    """see `BoundaryTokens`"""
    norm: Literal["layer", "rms"] = "layer"
    """layer norm, or root mean square norm without bias"""
    norm_epsilon: float = 1e-5
    biases: bool = True
    """linear maps have biases"""
    scaled: bool = True
    """attention scores are divided by the square root of the head width"""
    first_position: int = 2
    """index of the first computed position; published code counts from the padding id + 1 (Bao et al. 2021)"""
    frequencies: Literal["fairseq", "vaswani"] = "fairseq"
    """of computed positions: from 1 to 1/10000 (fairseq), or to just above it (Vaswani et al. 2017)"""
    tables: Literal["one", "two", "either"] = "one"
    """one token table for both sides, two, or two with a separate source vocabulary"""
    head: Literal["tied", "untied"] = "tied"
    """default of `model.output` auto: the (target) token table, or a separate matrix"""
    head_bias: bool = False
    """logits have an untrained bias"""
    ids_without_logits: tuple[int, int] = (0, 0)
    """numbers of first and last ids without logits, because checkpoints lack them: `<s>`, or `<eod>` and `<mask>`"""
    can_generate_padding: bool = True
    """the original toolkit can generate `<pad>`"""
    zero_row: int | None = PADDING_ID
    """row of the target table that is zero and never trained"""
    source_bias: bool = False
    """a learned vector is added to every source embedding"""
    system_order: Literal["any", "sentences", "windows"] = "any"
    """decoding order of the supported systems"""
    encoder: Encoder | None = None
    """conventions of a separate encoder; the fields above then describe the decoder"""
    huggingface: HuggingFace | None = None

    def encoder_conventions(self, config: TransformerConfig) -> tuple[TransformerConfig, Family]:
        """Return the options and conventions of the encoder."""
        if self.encoder is None:
            return config, self
        sizes = {name: getattr(config, f"encoder_{name}") or getattr(config, name) for name in ENCODER_SIZES}
        conventions = replace(self, norm_epsilon=self.encoder.norm_epsilon, encoder=None)
        return config.without_system(**sizes, head_width=0, **self.encoder.fixed_sizes), conventions

    def boundary_tokens(self, config: TransformerConfig) -> BoundaryTokens:
        """Return the boundary tokens of a model with these options."""
        language_tokens = {SOURCE: config.source_language_ids, TARGET: config.target_language_ids}
        return BoundaryTokens.parse(
            self.source, self.target, language_tokens, predicts_boundary=self.predicts_boundary, joined=self.joined
        )

    @property
    def is_pretrained(self) -> bool:
        """True if its models are converted pretrained models."""
        return self.huggingface is not None

    def has_language_token(self, language: str) -> bool:
        """Return whether its sentences have a token that names this language."""
        placeholder = SOURCE if language == "source" else TARGET
        return placeholder in f"{self.source} {self.target}".split()


def _read_family(values: Mapping[str, Any]) -> Family:
    """Return a family of families.yaml."""
    nested = {"encoder": Encoder, "huggingface": HuggingFace}
    return Family(**{name: nested[name](**value) if name in nested else value for name, value in values.items()})


FAMILIES = {
    name: _read_family(values) for name, values in read_package_yaml(__package__, "families.yaml", typed=True).items()
}
