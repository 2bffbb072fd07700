"""Hierarchical attention networks (HAN, Miculicich et al. 2018): attention to words, then sentences before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import DecodingOrder, System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.builder import ModelBuilder


@dataclass(frozen=True)
class Hierarchical(System):
    """Above the last layer, states attend to the words of each of k preceding sentences, then to these sentences.

    The decoder attends to its states of earlier target sentences (in translation: of its translations), so sentences
    are decoded in sequence. Published code takes preceding sentences from the same batch. Here context is never lost at
    the border of a batch. Here source words are not hidden if their ids are those of target boundary tokens. As
    published, boundary tokens of preceding sentences are hidden, and `<unk>` is visible.
    """

    sentences: int = ranged(3, 1, 10_000)
    """preceding sentences to attend to"""
    side: Literal["encoder", "decoder", "both"] = "encoder"
    """attend to the source (encoder), earlier translations (decoder), or both"""
    fusion: Literal["identity", "published"] = "identity"
    """identity: starts equal to the sentence model; published: as in the paper"""
    detach: bool = False
    """no gradient through the attended states and queries (published)"""

    @property
    def decoding_order(self) -> DecodingOrder:
        """Sequential with context on the target side."""
        return "sentences" if self.side == "encoder" else "sequential"

    @property
    def labelled_sentences(self) -> Literal["all", "last"]:
        """Target sentences of the context have their labels in other instances."""
        return "all" if self.side == "encoder" else "last"

    def context_spec(self) -> ContextSpec:
        """Return the k preceding sentences on each attended side.

        With both sides, source sentences start k before the first target sentence, whose states depend on them.
        """
        source, target = (self.sentences * (self.side != other) for other in ("decoder", "encoder"))
        return ContextSpec(source_context=source, target_context=target)

    def build_above_encoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build attention to preceding source sentences."""
        return [] if self.side == "decoder" else [self._build_hierarchy(builder, "source")]

    def build_above_decoder(self, builder: ModelBuilder) -> list[nn.Module]:
        """Build attention to preceding target sentences."""
        return [] if self.side == "encoder" else [self._build_hierarchy(builder, "target")]

    def _build_hierarchy(self, builder: ModelBuilder, side: Literal["source", "target"]) -> nn.Module:
        from docmt.model.blocks import Hierarchy

        scope = AttentionScope(extent="neighbour", offset=self.sentences, trim=builder.boundary_tokens.counts(side))
        return Hierarchy(builder, scope, identity=self.fusion == "identity", detach=self.detach)

    def initial_weight(self, name: str) -> str | None:
        """Initialize all but the modules above the stacks from the sentence model."""
        return None if name.startswith("above_") else name
