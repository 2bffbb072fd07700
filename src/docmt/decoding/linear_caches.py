"""What linear attention remembers between steps: a state of one size, however much was said.

Notation as in `caches`; F features of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from docmt.decoding.caches import Cache
from docmt.model.attention import Attention
from docmt.model.linear import linear_states, read_linear, step_linear
from docmt.model.linear_attention import LinearAttention
from docmt.model.spans import Spans


class LinearSelfCache(Cache):
    """The state of each row, with the gate that waits for its sentence to end."""

    def __init__(self, layers: int, averaging: bool, floor: float, joined: bool = False) -> None:
        """averaging: what is new weighs what the gate takes from the old; floor: least denominator; joined: as
        `LinearAttention` has it."""
        self.averaging, self.floor, self.joined = averaging, floor, joined
        self.opened: Tensor | None = None  # [R, 1] whether the last token opened a sentence (not the first)
        self.states: list[Tensor | None] = [None] * layers  # [R, H, F, k + 1]
        self.gates: list[Tensor | None] = [None] * layers  # [R, H] after the last token, in 0..1
        self.fresh: list[Tensor | None] = [None] * layers  # [R, H] what the sentence's keys weigh

    @classmethod
    def of(cls, attentions: Sequence[Attention]) -> LinearSelfCache:
        """For attentions of one sight, which are linear."""
        first = attentions[0]
        assert isinstance(first, LinearAttention)
        return cls(len(attentions), first.averaging, first.features.floor, first.joined)

    def go_on_after(self, begun: Sequence[tuple[Tensor, Tensor | None]]) -> None:
        """Begins with a state [R, H, F, k + 1] of each layer, and how much of what was there before the row's sentence
        is left to it [R, H] (None: all)."""
        self.states[:] = [state for state, _ in begun]
        self.gates[:] = [left for _, left in begun]
        self.fresh[:] = [None if left is None else 1.0 - left for left in self.gates]

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        opens = (offsets == 0)[:, None]
        if self.joined:
            # The mark is taken in with the sentence that it ends, which fades from the next token on.
            self.begins = torch.zeros_like(opens) if self.opened is None else self.opened
            self.opened = torch.zeros_like(opens) if self.opened is None else opens
        else:
            self.begins = opens

    def read(self, layer: int, key: Tensor, value: Tensor, gates: Tensor | None) -> None:
        """Takes in features [R, H, F] and values [R, H, k]; gates [R, H], before the sigmoid, if there are any."""
        self.key, self.value = key, value
        self.left: Tensor | None = None
        if gates is None:
            return
        before, fresh = self.gates[layer], self.fresh[layer]
        self.gates[layer] = gates.sigmoid()
        if before is None or fresh is None:  # the first sentence weighs all
            self.fresh[layer] = torch.ones_like(gates)
            return
        self.left = torch.where(self.begins, before, 1.0)
        self.fresh[layer] = fresh = torch.where(self.begins, 1.0 - before, fresh)
        if self.averaging:
            self.key = key * fresh[..., None]

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, F] -> [R, H, k]"""
        state = self.states[layer]
        if state is None:
            state = self.key.new_zeros(*self.key.shape, self.value.shape[-1] + 1)
        found, self.states[layer] = step_linear(state, query, self.key, self.value, self.left, self.floor)
        return found

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] remembers."""
        for kept in (self.states, self.gates, self.fresh):
            kept[:] = [None if own is None else own.index_select(0, rows) for own in kept]
        self.opened = None if self.opened is None else self.opened.index_select(0, rows)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        self.reorder(rows)


def cross_states(attentions: Sequence[Attention], states: Sequence[Tensor], spans: Spans) -> list[Tensor]:
    """For each layer [D, H, F, k + 1]: all that its attention can find in each of D spans of its states [T, d]."""
    found = []
    for attention, own in zip(attentions, states, strict=True):
        assert isinstance(attention, LinearAttention)
        key, value = attention.split(attention.key(own)), attention.values(own)
        found.append(linear_states(key, value, spans, attention.feature_map(), attention.salience(key)))
    return found


class LinearCrossCache(Cache):
    """All that there is to find in what each document looks at."""

    def __init__(self, states: Sequence[Tensor], beams: int, floor: float) -> None:
        """states: for each layer [D, H, F, k + 1]; floor: least denominator."""
        self.states, self.beams, self.floor = list(states), beams, floor

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, F] -> [R, H, k]"""
        by_document = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, F]
        return read_linear(by_document, self.states[layer], self.floor).transpose(1, 2).flatten(0, 1)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        self.states = [own.index_select(0, documents) for own in self.states]
