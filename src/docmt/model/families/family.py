"""What the checkpoints of a family have in common: how their sentences are marked, and what their layers are like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from docmt.model.scope import MARKS, BoundaryTokens

if TYPE_CHECKING:
    from docmt.model.model_config import Sizes

PADDING_ID, START_ID = MARKS["<pad>"], MARKS["<s>"]
SOURCE, TARGET = "SOURCE", "TARGET"
ENCODER_SIZES = ("width", "feed_forward", "heads")
"""Sizes of which an encoder of its own has another setting, `encoder_width` and so on."""


@dataclass(frozen=True)
class HuggingFace:
    """How a family is laid out in a directory of the library transformers."""

    types: tuple[str, ...]
    """what `model_type` may be in config.json"""
    architecture: str
    """the class of models that translate"""
    entries: Mapping[str, tuple[str, ...]]
    """by the name of one of our sizes: the entries of config.json that hold it, all of which must agree"""
    usual: Mapping[str, object]
    """what entries are where config.json leaves them out: a value, or the name of another entry"""
    names: tuple[tuple[str, str], ...]
    """their names of weights and ours: patterns and what takes their place, applied in this order"""
    sizes: Mapping[str, object] = field(default_factory=dict)
    """those of our sizes that are the same in all of them"""
    values: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """of entries whose values have other names: theirs and ours"""
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """entries that choose something that our model cannot do otherwise: what they may be"""
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """their names of each of our token tables; where there are several, they are copies of each other"""
    no_weights: str = r"$^"
    """pattern of names of what is no weight, such as computed positions"""
    first_position: int = 0
    """rows of their tables of positions that come before that of the first position"""
    scaled_types: tuple[str, ...] = ()
    """types in which states are divided by sqrt(d) before the table projects them, unless config.json unties it"""
    tokenizers: tuple[str, ...] = ()
    """where families share a type: the class of tokenizer that tells this one"""
    pad_begins: bool | None = None
    """where families share a type: whether the id of the first token of translations is that of `<pad>`"""


@dataclass(frozen=True)
class Encoder:
    """What the encoder of a family has of its own, where it is that of another model than the decoder."""

    sizes: Mapping[str, Any]
    """those of our sizes that are the same in all of them"""
    norm_epsilon: float


@dataclass(frozen=True)
class Family:
    """Facts about all checkpoints of a family; what differs between its checkpoints is in `Sizes`.

    A new family is one of these, in `families` or `families.huggingface`, and its name in `FAMILIES`.
    """

    source: str = "<s> w </s>"
    """a source sentence: its words (w) and the marks before and after them; SOURCE and TARGET stand for
    `model.source_language_ids` and `model.target_language_ids`"""
    target: str = "<s> w </s>"
    """the same of the decoder input; what comes before w is given, not predicted"""
    goes_on: bool = False
    """what follows the last mark of a target sentence (the next `<s>`, or the end of the document) has a label, too"""
    joined: bool = False
    """see `BoundaryTokens`"""
    norm: Literal["layer", "rms"] = "layer"
    """layer norm, or root mean square norm without a bias"""
    norm_epsilon: float = 1e-5
    biases: bool = True
    """linear maps have biases"""
    scaled: bool = True
    """what attention asks is divided by the square root of a head's width"""
    first_position: int = 2
    """index of the first computed position; published code counts from the padding id plus one (Bao et al. 2021)"""
    frequencies: Literal["fairseq", "vaswani"] = "fairseq"
    """of computed positions: from 1 to 1/10000 (fairseq), or to just above it (Vaswani et al. 2017)"""
    tables: Literal["one", "two", "either"] = "one"
    """one table of tokens for both sides, two, or two where the source has a vocabulary of its own"""
    head: Literal["tied", "own"] = "tied"
    """what projects to the vocabulary, if `model.output` does not say: the (target's) table, or a matrix of its own"""
    head_bias: bool = False
    """logits have a bias, which is not trained"""
    unpredicted: tuple[int, int] = (0, 0)
    """how many ids from the first on, and how many last ones, the checkpoints do not have, so that they have no logit:
    `<s>`, or `<eod>` and `<mask>`"""
    says_padding: bool = True
    """whether its own toolkit lets a search say `<pad>`"""
    zero: int | None = PADDING_ID
    """the row of the target's table that is zero and never trained"""
    source_bias: bool = False
    """a learned vector is added to every source embedding"""
    order: Literal["any", "sentences", "windows"] = "any"
    """what the systems that it is for read at once"""
    encoder: Encoder | None = None
    """what differs in the encoder, which then has a width of its own, too; what is said above is of the decoder"""
    huggingface: HuggingFace | None = None

    def of_encoder(self, sizes: Sizes) -> tuple[Sizes, Family]:
        """Sizes and conventions of the encoder of a model of these sizes."""
        if self.encoder is None:
            return sizes, self
        own = {name: getattr(sizes, f"encoder_{name}") or getattr(sizes, name) for name in ENCODER_SIZES}
        theirs = replace(self, norm_epsilon=self.encoder.norm_epsilon, encoder=None)
        return sizes.changed(**own, head_width=0, **self.encoder.sizes), theirs

    def frame(self, sizes: Sizes) -> BoundaryTokens:
        """The marks around the sentences of a model of these sizes."""
        marks = {SOURCE: sizes.source_language_ids, TARGET: sizes.target_language_ids}
        return BoundaryTokens.written(self.source, self.target, marks, goes_on=self.goes_on, joined=self.joined)

    @property
    def pretrained(self) -> bool:
        """Whether its models come from elsewhere, to be used or trained on as they are."""
        return self.huggingface is not None

    def names(self, language: str) -> bool:
        """Whether its sentences have a place for a mark that names this language."""
        mark = SOURCE if language == "source" else TARGET
        return mark in f"{self.source} {self.target}".split()
