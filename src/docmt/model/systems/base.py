"""The interface of systems, and the simplest one: the Transformer on single sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.model.scope import AttentionScope, ContextSpec

# Systems are also command-line options, whose help must not import torch. `builder` builds their modules.
if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import GroupAttention
    from docmt.model.builder import EncoderDecoder, ModelBuilder
    from docmt.model.contexts import Memory
    from docmt.model.families import TransformerConfig
    from docmt.model.layers import Layer
    from docmt.model.spans import ModelInput

Rules = Literal["frame", "open"]
"""Constraint of translations. frame: one target sentence per source sentence; open: the model decides."""
DecodingOrder = Literal["documents", "sentences", "windows", "sequential"]
"""Order in which sentences are decoded.

documents: a search row is an instance. sentences: a search row is a sentence, of any document. windows: a search row is
a window, of which the last sentence is used. sequential: sentence i of all documents, then sentence i + 1, each after
the earlier translations of its document. With framed targets, sentences of documents and sequential are drafted and
repaired instead, unless `search.sequential` is set (`docmt.decoding.repair`)."""


@dataclass(frozen=True)
class System:
    """The sentence Transformer, and the base of all systems: options (fields) and what systems define.

    Definitions that depend on options are properties and methods.
    """

    decoding_orders: ClassVar[Mapping[str, DecodingOrder]] = {}
    """decoding orders by value of `context.window_decoding`, if translation may choose"""
    rules: ClassVar[Rules] = "frame"
    """constraint of its translations"""
    positions: ClassVar[Literal["sentence"] | None] = "sentence"
    """where positions restart; None: as `model.positions` says"""
    default_positions: ClassVar[Literal["document", "sentence"]] = "sentence"
    """value of `model.positions` auto"""

    random_start_pairs: ClassVar[int] = 0
    """sentence pairs that it needs to learn from random weights; 0: as a sentence model"""

    @property
    def decoding_order(self) -> DecodingOrder:
        """The order in which its sentences are decoded."""
        return "sentences"

    @property
    def labelled_sentences(self) -> Literal["all", "last"]:
        """The sentences of an instance that have labels in training."""
        return "all"

    @property
    def initialization_setting(self) -> str:
        """The setting that requires initialization from a model, or ""."""
        return ""

    @property
    def has_linear_attention(self) -> bool:
        """True if some attentions are linear."""
        return False

    @property
    def splits_heads(self) -> bool:
        """True if attentions within sentences and over the document have half of the heads each."""
        return False

    def context_spec(self) -> ContextSpec:
        """Return which sentences it reads together."""
        return ContextSpec(sentences=1)

    def resolve_options(self, config: TransformerConfig) -> System:
        """Replace options "auto" by values for a model of these config."""
        return self

    def check(self, config: TransformerConfig) -> None:
        """Raise DocmtError, naming the option, for incompatible options or config."""

    def build_encoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build the layers of the encoder, bottom to top."""
        return [self.build_encoder_layer(builder, number) for number in range(builder.config.encoder_layers)]

    def build_encoder_layer(self, builder: ModelBuilder, number: int) -> Layer:
        """Build layer `number` (from 0) of the encoder."""
        attention = self.build_attention(builder, AttentionScope(), number)
        return builder.build_layer(attention=attention, feed_forward=builder.build_feed_forward())

    def build_decoder(self, builder: ModelBuilder) -> list[Layer]:
        """Build the layers of the decoder, bottom to top."""
        return [
            builder.build_layer(
                attention=self.build_attention(builder, AttentionScope(causal=True), number),
                cross=self.build_attention(builder, AttentionScope("source"), number),
                feed_forward=builder.build_feed_forward(),
            )
            for number in range(builder.config.decoder_layers)
        ]

    def build_above_encoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build modules (states, context) after the last encoder layer and its norm."""
        return []

    def build_above_decoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build modules (states, context) after the last decoder layer and its norm."""
        return []

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build the attention of layer `number` (from 0) that sees at least `scope`."""
        return builder.build_group_attention(local=scope)

    def build_modules(self, builder: ModelBuilder) -> dict[str, nn.Module]:
        """Build further modules of the model, by name."""
        return {}

    def compute_memories(self, model: EncoderDecoder, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute the memories of the decoder once, by their names in scopes."""
        return {"source": model.encode_memory(inputs.source)}

    def is_frozen(self, name: str) -> bool:
        """Return whether this weight is never trained."""
        return False

    def initial_weight(self, name: str) -> str | None:
        """Return the name of the sentence model's weight that initializes this weight; None: it is new."""
        return name

    def initial_reverse_weight(self, name: str) -> str | None:
        """Return the name of the reverse sentence model's weight that initializes this weight, if any."""
        return None
