"""Options of models of every system, and conventions of the families of checkpoints, which are in families.yaml.

Options are what differs between checkpoints of a family: sizes, norms, positions, dropout, linear attention.
Conventions are what they share: boundary tokens, the kind of norm, the Hugging Face layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from docmt.core.settings import MANY, Excludes, Needs, OptionError, ranged, read_package_yaml
from docmt.model.scope import SPECIAL_TOKEN_IDS, BoundaryTokens

# Width, feed-forward width, heads, layers of each stack (Bao et al. 2021: base and large in section 4 and Table 7).
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 256, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "small": {"width": 512, "feed_forward": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
    "base": {"width": 512, "feed_forward": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    "big": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6},
    "large": {"width": 1024, "feed_forward": 4096, "heads": 16, "encoder_layers": 12, "decoder_layers": 12},
}

MAX_VOCABULARY = 10_000_000
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

    option_rules = (
        *(Needs(name, "gate") for name in ("gate_per", "gate_bias")),
        *(Excludes(name, "feature_map learned") for name in ("feature_sampling", "temperature_per")),
    )


@dataclass(frozen=True)
class TransformerConfig:
    """Options of models of every system."""

    preset: Literal["tiny", "small", "base", "big", "large"] = "base"
    """published sizes (width, layers, heads, ...); an option for a size counts before them"""
    family: Literal[
        "docmt", "thumt", "rfa", "bart", "mbart", "mbart50", "m2m_100", "marian", "t5", "madlad", "bert", "roberta"
    ] = "docmt"
    """conventions of embeddings, boundary tokens and norms"""
    vocabulary_size: int = ranged(0, 0, MAX_VOCABULARY)
    """entries of the vocabulary (0: as in the prepared store)"""
    source_vocabulary_size: int = ranged(0, 0, MAX_VOCABULARY)
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

    option_rules = tuple(
        Needs(name, "position_encoding relative") for name in ("relative_buckets", "relative_distance")
    )

    def check_sizes(self) -> None:
        """Raise OptionError for incompatible sizes, after sizes of 0 are resolved."""
        if (not self.head_width and self.width % self.heads) or self.width % 2:
            problem = f"is {self.width}: choose an even multiple of {{}} ({self.heads})"
            raise OptionError("model.width", problem, "model.heads")
        if self.relative_distance <= self.relative_buckets // 2:
            problem = f"is {self.relative_distance}: choose more than half of the {self.relative_buckets} {{}}"
            raise OptionError("model.relative_distance", problem, "model.relative_buckets")

    def without_system(self, **changes: Any) -> TransformerConfig:
        """Return these options without a system, some of them changed."""
        return TransformerConfig(
            **{item.name: getattr(self, item.name) for item in fields(TransformerConfig)} | changes
        )

    @property
    def attention_width(self) -> int:
        """Width of all heads of an attention together, after sizes of 0 are resolved."""
        return self.heads * (self.head_width or self.width // self.heads)


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
