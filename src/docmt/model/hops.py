"""The bricks of the Multi-Hop Transformer: hops over the sentences before, and the encoders of those sentences."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from docmt.model.attention import Attention
from docmt.model.layers import Layer
from docmt.model.packed import Packed
from docmt.model.view import FullView, Memory, View


class Hops(nn.Module):
    """Attention to one sentence after the other, each asking with what was found so far.

    A hop adds to what it asks with. Its output has no bias, so that it adds nothing where its sentence is missing.
    """

    def __init__(self, hops: Sequence[Attention]) -> None:
        super().__init__()
        self.hops = nn.ModuleList(hops)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> what all hops together add to it, [..., d]"""
        first, *others = self.hops
        found: Tensor = first(x, view)
        for hop in others:
            found = found + hop(x + found, view)
        return found


class SentenceEncoder(nn.Module):
    """Encodes the sentences of a document each by itself and keeps the states of every layer to be looked at."""

    def __init__(
        self, layers: Sequence[Layer], kept: str, norms: Sequence[nn.Module], embeddings: nn.Module | None, frozen: bool
    ) -> None:
        """kept: the block of each layer whose states are kept; norms: for those of each layer, or none; embeddings: its
        own, to embed what it reads with, or None for those of the model's source; frozen: it is not trained."""
        super().__init__()
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self.embeddings = embeddings
        self.kept, self.frozen = kept, frozen
        self.requires_grad_(not frozen)

    def forward(self, x: Tensor, text: Packed) -> Memory:
        """Embedded text [T, d] -> what can be looked at of it: states [T, d] behind the kept block of each layer."""
        x = x.detach() if self.frozen else x
        view, states = FullView(text), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for block, passed in layer.passed(x, view):
                x = passed
                if block == self.kept:
                    states.append(x)
        if self.norms:
            states = [norm(state) for norm, state in zip(self.norms, states, strict=True)]
        return Memory(states[-1], text.sentences, text.documents, states)
