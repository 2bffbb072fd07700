"""The plain Transformer on whole instances: the baseline of Bao et al. (2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from docmt.model.scope import Needs, Sight
from docmt.model.systems.base import Order, Rules, System

if TYPE_CHECKING:
    from docmt.model.attention import GroupAttention
    from docmt.model.transformer import Parts


@dataclass(frozen=True)
class Document(System):
    """Every attention sees the whole instance; which source sentence a target sentence belongs to is unknown."""

    @property
    def order(self) -> Order:
        """A row of the search is an instance."""
        return "documents"

    @property
    def rules(self) -> Rules:
        """The model itself ends sentences and the document."""
        return "open"

    @property
    def positions(self) -> None:
        """As `model.positions` says."""
        return None

    @property
    def usual_positions(self) -> Literal["document"]:
        """The order of sentences is known from positions alone."""
        return "document"

    def needs(self) -> Needs:
        """As much as fits."""
        return Needs()

    def check_counts(self, pairs: Sequence[tuple[Sequence[object], Sequence[object]]]) -> None:
        """Any number of target sentences will do."""

    def attend(self, parts: Parts, sight: Sight, number: int) -> GroupAttention:
        """Attention over the document."""
        return parts.group_attention(whole=replace(sight, part="document"))

    def origin(self, name: str) -> str | None:
        """Attention over the document starts from that within the sentence."""
        return name.replace(".whole.", ".local.")
