"""The plain Transformer on whole instances (Bao et al. 2021), or on windows of sentences (Wu et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import Order, Rules, System

if TYPE_CHECKING:
    from docmt.model.attention import GroupAttention
    from docmt.model.model_config import Sizes
    from docmt.model.transformer import Parts


@dataclass(frozen=True)
class WholeDocument(System):
    """The plain Transformer on whole instances: the baseline of Bao et al. (2021).

    Every attention sees the whole instance; which source sentence a target sentence belongs to is unknown.
    """

    rules: ClassVar[Rules] = "open"  # the model itself ends sentences and the document
    positions: ClassVar[None] = None
    usual_positions: ClassVar[Literal["document"]] = "document"  # the order of sentences is known from positions alone

    @property
    def order(self) -> Order:
        """A row of the search is an instance."""
        return "documents"

    def context_spec(self) -> ContextSpec:
        """As much as fits."""
        return ContextSpec()

    def attend(self, parts: Parts, scope: AttentionScope, number: int) -> GroupAttention:
        """Attention over the document."""
        return parts.group_attention(whole=replace(scope, part="document"))

    def origin(self, name: str) -> str | None:
        """Attention over the document starts from that within the sentence."""
        return name.replace(".whole.", ".local.")


@dataclass(frozen=True)
class Concat(WholeDocument):
    """Every attention sees the whole window: the sentence and those before it, L in all.

    A window whose sentences do not fit into `model.instance_tokens` has fewer of them, the nearest ones.
    """

    sentences: int = ranged(4, 1, 10_000)
    """L, the sentences of a window: one that is new, and L - 1 before it"""
    loss: Literal["all", "last"] = "all"
    """which sentences of a window have labels in training"""
    window_decoding: Literal["last", "prefix"] = "last"
    """translation: every window is translated anew and its last sentence kept (last, as in the paper), or the
    document's own earlier translations are forced and only the last sentence is searched (prefix, as in their code)"""
    attention: Literal["softmax", "linear"] = "softmax"
    """of the decoder: softmax, or linear, with the options of model.linear (RFA: model.linear.feature_map random)"""
    padding_windows: bool = False
    """train on further, shorter windows at the end of each document, so that its last sentences stand in every place of
    a window as well"""
    orders: ClassVar[Mapping[str, Order]] = {"last": "windows", "prefix": "in turn"}  # by what `window_decoding` may be
    rules: ClassVar[Rules] = "frame"  # a window has as many target as source sentences

    @property
    def order(self) -> Order:
        """Window by window, as `window_decoding` says."""
        return self.orders[self.window_decoding]

    @property
    def predicts(self) -> Literal["all", "last"]:
        """As `loss` says."""
        return self.loss

    @property
    def linear(self) -> bool:
        """As `attention` says."""
        return self.attention == "linear"

    def attend(self, parts: Parts, scope: AttentionScope, number: int) -> GroupAttention:
        """Attention over the window; where it is linear, that of the encoder is not."""
        in_decoder = scope.causal or scope.memory != "self"
        return parts.group_attention(whole=replace(scope, part="document"), linear=self.linear and in_decoder)

    def origin(self, name: str) -> str | None:
        """Attention over the window starts from that within the sentence; features and gates are new."""
        new = self.linear and (".features." in name or ".gate." in name)
        return None if new else super().origin(name)

    def context_spec(self) -> ContextSpec:
        """A window at every sentence."""
        return ContextSpec(sentences=self.sentences, windows=True, padding_windows=self.padding_windows)

    def check(self, sizes: Sizes) -> None:
        """Raises DocmtError for padding windows that would repeat documents."""
        if self.padding_windows and (self.sentences == 1 or self.loss == "last"):
            raise DocmtError(
                "model.concat.padding_windows needs windows of several sentences and a loss on all of them: "
                "set sentences above 1 and loss all, or leave it out"
            )
