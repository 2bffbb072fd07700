"""What a system is, and the plainest one: the Transformer on single sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.model.scope import AttentionScope, ContextSpec

# Systems are options, too, which the command line shows without waiting for torch: they build models out of `parts`.
if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import GroupAttention, Memory
    from docmt.model.layers import Layer
    from docmt.model.model_config import Sizes
    from docmt.model.spans import ModelInput
    from docmt.model.transformer import Parts, TranslationModel

Rules = Literal["frame", "open"]
"""What a translation may say next. frame: one target sentence per source sentence; open: what the model says."""
Order = Literal["documents", "sentences", "windows", "in turn"]
"""How sentences are decoded. documents: a row of the search is an instance; sentences: every sentence of every document
in one pool; windows: overlapping windows, the last sentence of each kept; in turn: sentence i of all documents, then
sentence i + 1, each after its document's own earlier translations."""


@dataclass(frozen=True)
class System:
    """A system: its options (fields) and the answers in which systems differ. This one: the sentence Transformer.

    Answers that depend on options are properties and methods.
    """

    orders: ClassVar[Mapping[str, Order]] = {}
    """the orders between which translation may choose, by the names that `context.window_decoding` has for them"""
    rules: ClassVar[Rules] = "frame"
    """what its translations may say next"""
    positions: ClassVar[Literal["sentence"] | None] = "sentence"
    """where positions restart, if that is not for `model.positions` to say"""
    usual_positions: ClassVar[Literal["document", "sentence"]] = "sentence"
    """what `model.positions` auto stands for"""

    @property
    def order(self) -> Order:
        """How its sentences are decoded."""
        return "sentences"

    @property
    def predicts(self) -> Literal["all", "last"]:
        """Which sentences of an instance have labels in training."""
        return "all"

    @property
    def from_start(self) -> str:
        """The option, if it is set, that has a meaning only with a model to start from."""
        return ""

    @property
    def linear(self) -> bool:
        """Whether some of its attentions are linear."""
        return False

    def context_spec(self) -> ContextSpec:
        """Which sentences it reads together."""
        return ContextSpec(sentences=1)

    def settled(self, sizes: Sizes) -> System:
        """The same with every option chosen that depends on the rest of the model."""
        return self

    def check(self, sizes: Sizes) -> None:
        """Raises DocmtError, naming the option, for values that do not go with the sizes or with each other."""

    def encoder(self, parts: Parts) -> list[Layer]:
        """The layers of the encoder, bottom to top."""
        return [
            parts.layer(attention=self.attend(parts, AttentionScope(), number), feed_forward=parts.feed_forward())
            for number in range(parts.sizes.encoder_layers)
        ]

    def decoder(self, parts: Parts) -> list[Layer]:
        """The layers of the decoder, bottom to top."""
        return [
            parts.layer(
                attention=self.attend(parts, AttentionScope(causal=True), number),
                cross=self.attend(parts, AttentionScope("source"), number),
                feed_forward=parts.feed_forward(),
            )
            for number in range(parts.sizes.decoder_layers)
        ]

    def above_encoder(self, parts: Parts) -> list[nn.Module]:
        """What encoder states (states, attention context) go through after the last layer and its norm."""
        return []

    def above_decoder(self, parts: Parts) -> list[nn.Module]:
        """What decoder states (states, attention context) go through after the last layer and its norm."""
        return []

    def attend(self, parts: Parts, scope: AttentionScope, number: int) -> GroupAttention:
        """The attention of layer `number` (from 0) that sees, at the least, what `scope` names."""
        return parts.group_attention(local=scope)

    def modules(self, parts: Parts) -> dict[str, nn.Module]:
        """What the model has besides embeddings, encoder and decoder, by name."""
        return {}

    def memories(self, model: TranslationModel, inputs: ModelInput) -> Mapping[str, Memory]:
        """What the decoder can look at, computed once; the names are those of the scopes."""
        return {"source": model.memory(inputs.source)}

    def origin(self, name: str) -> str | None:
        """The weight of a sentence model that the weight of this name starts from; None: it is new."""
        return name

    def origin_reverse(self, name: str) -> str | None:
        """The weight of a sentence model of the other direction that the weight of this name starts from, if any."""
        return None
