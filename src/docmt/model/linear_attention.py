"""The module of linear attention, in the place of a softmax attention, and its options."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from docmt.model.attention import Attention
from docmt.model.features import RandomFeatures, wide
from docmt.model.kernels import Pattern
from docmt.model.linear import Fading, attend_linear
from docmt.model.sight import Sight
from docmt.model.sizes import Linear
from docmt.model.spans import Spans


class Shown(NamedTuple):
    """What a query can look at in linear attention."""

    key: Tensor
    """[T, H, F] features"""
    fading: Tensor | None = None
    """[T, H], as for `attend_linear`"""
    salience: Tensor | None = None
    """[T, H], as for `attend_linear`"""


class LinearAttention(Attention):
    """Random feature attention (Peng et al. 2021) over what the sight names, with the gate of Wu et al. (2022).

    The gate is that of attention to what was said before, one a head or one in all: at the end of each sentence it says
    how much of all so far is left to the next.
    """

    def __init__(self, width: int, heads: int, sight: Sight, options: Linear) -> None:
        super().__init__(width, heads, sight)
        own = sight.memory == "self"
        self.features = RandomFeatures(
            heads,
            width // heads,
            options.features if own else options.cross_features,
            options.drawing,
            per_dimension=options.temperature == "dimension",
        )
        self.rescaled = options.rescale and not own
        self.averaging = options.gate == "average"
        self.gate: nn.Linear | None = None
        if sight.causal and options.gate != "none":
            self.gate = nn.Linear(width, heads if options.gates == "head" else 1)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, options.gate_start)

    def over(self, x: Tensor, memory: Tensor, pattern: Pattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d], the same tensor for self-attention: [Tq, d].

        Raises ValueError where queries ask several times, which needs weights that can be told apart.
        """
        if times != 1:
            raise ValueError("linear attention asks once: look at sentences one by one with softmax attention")
        asks, shows = self.features_of(x, memory, pattern)
        found = attend_linear(
            asks,
            shows.key,
            self.values(memory),
            pattern.queries,
            pattern.keys,
            pattern.causal,
            fading=shows.fading,
            salience=shows.salience,
        )
        return found.to(x.dtype).flatten(-2)

    def features_of(self, x: Tensor, memory: Tensor, pattern: Pattern) -> tuple[Tensor, Shown]:
        """The features [Tq, H, F] of what x [Tq, d] asks, and what memory [Tk, d] shows."""
        directions = self.features.directions()
        shown = self.shown(memory, directions)
        if self.gate is not None:
            faded = Fading.of(*self.sentence_gates(memory, pattern), pattern.keys, self.averaging)
            key = shown.key if faded.fresh is None else shown.key * faded.fresh[..., None]
            shown = shown._replace(key=key, fading=faded.fading)
        return self.asked(x, directions), shown

    def asked(self, x: Tensor, directions: Tensor) -> Tensor:
        """The features of what x [T, d] asks: [T, H, F]."""
        return self.features(self.split(self.query(x)), directions)

    def shown(self, memory: Tensor, directions: Tensor) -> Shown:
        """What memory [T, d] shows, before anything fades."""
        key = self.split(self.key(memory))
        return Shown(self.features(key, directions), salience=self.features.salience(key) if self.rescaled else None)

    def values(self, memory: Tensor) -> Tensor:
        """[T, d] -> [T, H, k], float32 or wider: sums of many are made of them."""
        return wide(self.split(self.value(memory)))

    def sentence_gates(self, memory: Tensor, pattern: Pattern) -> tuple[Tensor, Spans]:
        """The gates [S, H], before the sigmoid, at the ends of the sentences of memory [T, d], and these sentences."""
        if pattern.sentences is None:
            raise ValueError("a gate needs to know where sentences end")
        ends = (pattern.sentences.ends - 1).clamp(min=0).to(memory.device)
        return self.gates(memory[ends]), pattern.sentences

    def gates(self, x: Tensor) -> Tensor:
        """The gates of x [n, d] before the sigmoid: [n, H]."""
        assert self.gate is not None
        return wide(self.gate(x)).expand(-1, self.heads)
