"""G-Transformer (Bao et al. 2021): attention within sentences, joined by a gate with attention over the document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.families import FAMILIES
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import Order, System

if TYPE_CHECKING:
    from docmt.model.attention import GroupAttention
    from docmt.model.model_config import Sizes
    from docmt.model.transformer import Parts


@dataclass(frozen=True)
class Group(System):
    """Group attention in every layer; in the top layers global attention as well. The ablations are options."""

    encoder_layers: int = ranged(2, 0, 1000)
    """top encoder layers whose self-attention combines group and global attention; 2 means all of fewer layers"""
    decoder_layers: int = ranged(2, 0, 1000)
    """top decoder layers whose self-attention combines group and global attention; 2 means all of fewer layers"""
    cross_layers: int = ranged(2, 0, 1000)
    """top decoder layers whose cross-attention combines group and global attention; 2 means all of fewer layers"""
    top_attention: Literal["combined", "group", "global"] = "combined"
    """what the top layers do: combined (published), only group, or only global attention"""
    self_locality: bool = True
    """group attention in self-attention; false attends to the whole instance in every layer"""
    cross_locality: bool = True
    """group attention in cross-attention; false attends to the whole source in every layer"""
    fusion: Literal["auto", "published", "identity"] = "auto"
    """how the two are joined by a gate g: g * group + (1 - g) * global attention (published), or group + (1 - g) *
    global attention that begins at zero, so that at first a model is that which it starts from (exact); auto: exact
    for pretrained families, otherwise published"""
    gate_bias: float = ranged(0.0, -100, 100)
    """bias that gates start with; at 3 they let 5 % of the attention over the document in"""
    global_start: Literal["random", "local"] = "random"
    """with initialize_from: attention over the document starts at random (published), or as a copy of that within
    sentences (but for its output, if the join is exact)"""

    global_attention: Literal["softmax", "linear"] = "softmax"
    """attention over the document: softmax (published), or linear in its length, with the options of model.linear"""
    positions: ClassVar[None] = None

    @property
    def linear(self) -> bool:
        """As `global_attention` says."""
        return self.global_attention == "linear"

    @property
    def order(self) -> Order:
        """A row of the search is an instance."""
        return "documents"

    @property
    def from_start(self) -> str:
        """A copy needs what it is a copy of."""
        return "" if self.global_start == "random" else "global_start"

    def context_spec(self) -> ContextSpec:
        """As much as fits."""
        return ContextSpec()

    def settled(self, sizes: Sizes) -> Group:
        """With a join that is chosen."""
        if self.fusion != "auto":
            return self
        return replace(self, fusion="identity" if FAMILIES[sizes.family].pretrained else "published")

    def check(self, sizes: Sizes) -> None:
        """Raises DocmtError for more combined layers than there are."""
        for name, total in (
            ("encoder_layers", sizes.encoder_layers),
            ("decoder_layers", sizes.decoder_layers),
            ("cross_layers", sizes.decoder_layers),
        ):
            # The default serves models of one layer, too.
            if getattr(self, name) > max(total, getattr(Group, name)):
                raise DocmtError(
                    f"model.group.{name} is {getattr(self, name)}: choose from 0 to the {total} layers there are"
                )

        whole = self.top_attention != "group" and any((self.encoder_layers, self.decoder_layers, self.cross_layers))
        if self.linear and not whole and self.self_locality and self.cross_locality:
            raise DocmtError(
                "model.group.global_attention is linear, but no layer attends to the document: leave it out, or let "
                "model.group.top_attention and its numbers of layers say which do"
            )

    def attend(self, parts: Parts, scope: AttentionScope, number: int) -> GroupAttention:
        """Group attention, in the top layers what `top` says, and without locality attention over the document."""
        whole = replace(scope, part="document")
        if not (self.self_locality if scope.memory == "self" else self.cross_locality):
            return parts.group_attention(whole=whole, linear=self.linear)
        total, top = parts.sizes.decoder_layers, self.cross_layers
        if scope.memory == "self":
            total, top = (
                (total, self.decoder_layers) if scope.causal else (parts.sizes.encoder_layers, self.encoder_layers)
            )
        if number < total - top or self.top_attention == "group":
            return parts.group_attention(local=scope)
        if self.top_attention == "global":
            return parts.group_attention(whole=whole, linear=self.linear)
        exact = self.fusion == "identity"  # models have settled systems
        return parts.group_attention(
            local=scope, whole=whole, gate_bias=self.gate_bias, linear=self.linear, exact=exact
        )

    def origin(self, name: str) -> str | None:
        """Group attention starts from that of the sentence model; gates and global attention are new, or its copy."""
        if ".gate." in name or ".features." in name or (".whole." in name and self.global_start == "random"):
            return None
        if ".whole.output." in name and self.fusion == "identity":
            return None
        return name.replace(".whole.", ".local.")
