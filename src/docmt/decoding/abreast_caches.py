"""What the sentences of a document share where all of them are decoded at the same time.

Notation as in `caches`: a row is a sentence, so R = the sentences of all D documents that are decoded; M, the most of
one document.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.decoding.caches import DocumentCrossCache
from docmt.decoding.linear_caches import LinearCrossCache
from docmt.model.linear import read_linear
from docmt.model.spans import Spans


class Seats:
    """The rows [R], in order of their documents, as a table [D, M] of a document a line."""

    def __init__(self, documents: Tensor, count: int) -> None:
        """documents [R]: of each row, rising; count: D."""
        self.documents, self.count = documents, count
        sizes = torch.bincount(documents, minlength=count)
        self.most = int(sizes.max())
        firsts = sizes.cumsum(0) - sizes
        self.place = documents * self.most + torch.arange(len(documents), device=documents.device) - firsts[documents]
        self.full = len(documents) == count * self.most

    def table(self, x: Tensor) -> Tensor:
        """[R, ...] -> [D, M, ...], zeros where there is no row"""
        if not self.full:
            x = x.new_zeros(self.count * self.most, *x.shape[1:]).index_copy_(0, self.place, x)
        return x.unflatten(0, (self.count, self.most))

    def rows(self, x: Tensor) -> Tensor:
        """[D, M, ...] -> [R, ...]"""
        x = x.flatten(0, 1)
        return x if self.full else x.index_select(0, self.place)

    def keep(self, rows: Tensor) -> Seats:
        """With these rows only, in the same order."""
        return Seats(self.documents[rows], self.count)


class SeatedCrossCache(DocumentCrossCache):
    """Keys and values of what a document looks at all the time, stored once for all its sentences."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], seen: Spans, seats: Seats) -> None:
        """See `DocumentCrossCache`."""
        super().__init__(keys, values, seen, 1)
        self.seats = seats

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, k]"""
        asked = self.seats.table(query).transpose(1, 2)  # [D, H, M, k]
        found = F.scaled_dot_product_attention(asked, self.keys[layer], self.values[layer], attn_mask=self.bias)
        return self.seats.rows(found.transpose(1, 2))

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        self.seats = self.seats.keep(rows)


class SeatedLinearCrossCache(LinearCrossCache):
    """All that linear attention can find in what each document looks at, stored once for all its sentences."""

    def __init__(self, states: Sequence[Tensor], floor: float, seats: Seats) -> None:
        """See `LinearCrossCache`."""
        super().__init__(states, 1, floor)
        self.seats = seats

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, F] -> [R, H, k]"""
        asked = self.seats.table(query).transpose(1, 2)  # [D, H, M, F]
        return self.seats.rows(read_linear(asked, self.states[layer], self.floor).transpose(1, 2))

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        self.seats = self.seats.keep(rows)
