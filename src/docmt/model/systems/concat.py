"""The plain Transformer on whole instances (Bao et al. 2021), or on windows of sentences (Wu et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.core.settings import Excludes, ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import DecodingOrder, Rules, System

if TYPE_CHECKING:
    from docmt.model.attention import GroupAttention
    from docmt.model.builder import ModelBuilder


@dataclass(frozen=True)
class WholeDocument(System):
    """Plain Transformer on whole instances, the baseline of Bao et al. (2021).

    Every attention sees the whole instance. Sentences of source and target are not aligned.
    """

    rules: ClassVar[Rules] = "open"  # the model itself ends sentences and the document
    positions: ClassVar[None] = None
    default_positions: ClassVar[Literal["document"]] = "document"  # only positions distinguish sentences

    @property
    def decoding_order(self) -> DecodingOrder:
        """Instance by instance."""
        return "documents"

    def context_spec(self) -> ContextSpec:
        """Return a spec without limits."""
        return ContextSpec()

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build attention over the document."""
        return builder.build_group_attention(global_=replace(scope, extent="document"))

    def initial_weight(self, name: str) -> str | None:
        """Initialize attention over the document from that within sentences."""
        return name.replace(".global.", ".local.")


@dataclass(frozen=True)
class Concat(WholeDocument):
    """Every attention sees a window of L sentences: a sentence and those before it.

    A window that exceeds `model.instance_tokens` has fewer sentences, the nearest ones.
    """

    sentences: int = ranged(4, 1, 10_000)
    """sentences per window, the translated one included"""
    loss: Literal["all", "last"] = "all"
    """sentences of a window with labels in training"""
    window_decoding: Literal["last", "prefix"] = "last"
    """translate every window anew (last), or force the earlier translations (prefix)"""
    attention: Literal["softmax", "linear"] = "softmax"
    """attention of the decoder; linear uses the options of model.linear"""
    padding_windows: bool = False
    """also train on shorter windows at the end of each document"""
    option_rules = (Excludes("padding_windows", "sentences 1"), Excludes("padding_windows", "loss last"))
    # By value of `window_decoding`.
    decoding_orders: ClassVar[Mapping[str, DecodingOrder]] = {"last": "windows", "prefix": "sequential"}
    rules: ClassVar[Rules] = "frame"  # a window has as many target as source sentences

    @property
    def decoding_order(self) -> DecodingOrder:
        """Window by window, as `window_decoding` says."""
        return self.decoding_orders[self.window_decoding]

    @property
    def labelled_sentences(self) -> Literal["all", "last"]:
        """As `loss` says."""
        return self.loss

    @property
    def has_linear_attention(self) -> bool:
        """As `attention` says."""
        return self.attention == "linear"

    def build_attention(self, builder: ModelBuilder, scope: AttentionScope, number: int) -> GroupAttention:
        """Build attention over the window. Only that of the decoder may be linear."""
        in_decoder = scope.causal or scope.memory != "self"
        linear = self.has_linear_attention and in_decoder
        return builder.build_group_attention(global_=replace(scope, extent="document"), linear=linear)

    def initial_weight(self, name: str) -> str | None:
        """Initialize attention over the window from that within sentences. Features and gates are new."""
        new = self.has_linear_attention and (".features." in name or ".gate." in name)
        return None if new else super().initial_weight(name)

    def context_spec(self) -> ContextSpec:
        """Return a window at every sentence."""
        return ContextSpec(sentences=self.sentences, windows=True, padding_windows=self.padding_windows)
