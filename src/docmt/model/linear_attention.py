"""The module of linear attention, in the place of a softmax attention, and its options."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from docmt.model.attention import Attention
from docmt.model.features import RandomFeatures
from docmt.model.kernels import Pattern
from docmt.model.linear import Fading, attend_linear
from docmt.model.sight import Sight
from docmt.model.sizes import Linear


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
            nn.init.constant_(self.gate.bias, options.gate_bias)

    def over(self, x: Tensor, memory: Tensor, pattern: Pattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d], the same tensor for self-attention: [Tq, d].

        Raises ValueError where queries ask several times, which needs weights that can be told apart.
        """
        if times != 1:
            raise ValueError("linear attention asks once: look at sentences one by one with softmax attention")
        query, key, value = (
            self.split(projection(own))
            for projection, own in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        with torch.autocast(x.device.type, enabled=False):
            directions = self.features.directions()
            query, rows = _wide(query), _wide(key)
            key, fading = self.features(rows, directions), None
            if self.gate is not None:
                if pattern.sentences is None:
                    raise ValueError("a gate needs to know where sentences end")
                ends = (pattern.sentences.ends - 1).clamp(min=0).to(x.device)
                gates = self.gates(memory[ends])
                faded = Fading.of(gates, pattern.sentences, pattern.keys, self.averaging)
                fading = faded.fading
                key = key if faded.fresh is None else key * faded.fresh[..., None]
            found = attend_linear(
                self.features(query, directions),
                key,
                _wide(value),
                pattern.queries,
                pattern.keys,
                pattern.causal,
                fading=fading,
                salience=self.features.salience(rows) if self.rescaled else None,
            )
        return found.to(value.dtype).flatten(-2)

    def asked(self, x: Tensor) -> Tensor:
        """The features of what x [R, d] asks, in evaluation: [R, H, F]."""
        return self.features(_wide(self.split(self.query(x))), self.features.directions())

    def shown(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The features [T, H, F] and values [T, H, k] of what is looked at, in evaluation."""
        key, value = self.split(self.key(memory)), self.split(self.value(memory))
        return self.features(_wide(key), self.features.directions()), _wide(value)

    def salience(self, memory: Tensor) -> Tensor | None:
        """The logarithm of the weights of keys [T, H], if lengths of keys count."""
        return self.features.salience(_wide(self.split(self.key(memory)))) if self.rescaled else None

    def gates(self, x: Tensor) -> Tensor:
        """The gates of x [n, d] before the sigmoid: [n, H]."""
        assert self.gate is not None
        gates: Tensor = _wide(self.gate(x.to(self.gate.weight.dtype)))
        return gates.expand(-1, self.heads)


def _wide(x: Tensor) -> Tensor:
    """At least float32: phases and long sums are not for 16 bits."""
    return x if x.dtype == torch.float64 else x.float()
