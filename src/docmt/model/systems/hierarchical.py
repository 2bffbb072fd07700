"""Hierarchical attention networks (HAN, Miculicich et al. 2018): attention to the states of the sentences before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import Order, System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.transformer import Parts


@dataclass(frozen=True)
class Hierarchical(System):
    """Above the last layer states look at those of the k sentences before: at their words, then at the sentences.

    The decoder looks at its own states of the target sentences before (in translation: of its own translations), so
    it translates sentence after sentence. Unlike in the published code, which takes the sentences before from the
    same batch, context is never lost at the border of a batch; and the words of the source are not hidden where
    their ids are those of target marks. The marks of the sentences before are hidden, as published: they stand in
    every sentence, and what they gather of a sentence its words have as well; `<unk>` stands for a word, and is seen.
    """

    sentences: int = ranged(3, 1, 10_000)
    """k, the sentences before each that it looks at"""
    side: Literal["encoder", "decoder", "both"] = "encoder"
    """where: at the source, at the translation so far, or both (in the paper: HAN encoder, HAN decoder, HAN joint; with
    both, the source reaches 2 k sentences back, as the translations that are looked at have looked at theirs)"""
    fusion: Literal["identity", "published"] = "identity"
    """how it is joined. published: norm((1 - l) x + l s) with a gate l; exact: x + l s without a norm, where s begins
    at zero: the sentence model exactly"""
    detach: bool = False
    """no gradient through the states that are looked at and what asks for them (published), so that these never learn
    to be looked at"""

    @property
    def order(self) -> Order:
        """With context on the target side each sentence waits for those before it."""
        return "sentences" if self.side == "encoder" else "in turn"

    @property
    def predicts(self) -> Literal["all", "last"]:
        """Target sentences that are shown as context have their labels elsewhere."""
        return "all" if self.side == "encoder" else "last"

    def context_spec(self) -> ContextSpec:
        """The k sentences before on each side that is looked at.

        With both, source sentences are read from k before the first target sentence that is shown, as that one's
        states depend on them.
        """
        before, shown = self.side != "decoder", self.side != "encoder"
        return ContextSpec(before=self.sentences * before, shown=self.sentences * shown)

    def above_encoder(self, parts: Parts) -> list[nn.Module]:
        """Attention to the source sentences before."""
        return [] if self.side == "decoder" else [self._hierarchy(parts, "source")]

    def above_decoder(self, parts: Parts) -> list[nn.Module]:
        """Attention to the target sentences before."""
        return [] if self.side == "encoder" else [self._hierarchy(parts, "target")]

    def _hierarchy(self, parts: Parts, side: Literal["source", "target"]) -> nn.Module:
        from docmt.model.layers import Hierarchy

        scope = AttentionScope(part="before", back=self.sentences, marks=parts.frame.marks(side))
        return Hierarchy(parts, scope, exact=self.fusion == "identity", detach=self.detach)

    def origin(self, name: str) -> str | None:
        """What stands above the stacks is new."""
        return None if name.startswith("above_") else name
