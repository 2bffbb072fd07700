"""What the sentences of a document see of each other where all of them are decoded at the same time.

Notation as in `caches`: a row is a sentence, so R = the sentences of all D documents that are decoded; M, the most of
one document; P, the tokens of the longest document so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.decoding.caches import DocumentCrossCache, SentenceSelfCache, bias_of
from docmt.decoding.linear_caches import LinearCrossCache
from docmt.model.attention import Attention
from docmt.model.linear import read_linear
from docmt.model.spans import Spans

if TYPE_CHECKING:
    from docmt.decoding.past import Past


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


class BegunSelfCache(SentenceSelfCache):
    """Keys and values of the sentence that each row is in, of which the row has read a part already."""

    def __init__(self, attentions: Sequence[Attention], past: Past, like: Tensor) -> None:
        """like: keys of a token [H k]."""
        rows = len(past.own)
        super().__init__(len(attentions), rows, like, attentions[0].heads)
        self.distances = attentions[0].distances
        longest = int(past.own.lengths.max())
        if not longest:
            return
        self.buffer = self.buffer.new_zeros(*self.buffer.shape[:4], longest, self.buffer.shape[5])
        index = past.own.indices().to(like.device)
        row = torch.arange(rows).repeat_interleave(past.own.lengths).to(like.device)
        offset = past.own.positions().to(like.device)
        for layer, attention in enumerate(attentions):
            for which, kept in enumerate(past.kept[attention][:2]):
                self.buffer[layer, which, row, :, offset] = kept[index]


class PastSelfCache(BegunSelfCache):
    """The same, with keys and values of the sentences before it in its document, which are stored once a document."""

    def __init__(self, attentions: Sequence[Attention], past: Past, like: Tensor) -> None:
        super().__init__(attentions, past, like)
        self.seats, self.limit = Seats(past.documents.to(like.device), len(past.spans)), past.limit.to(like.device)
        self.pairs: list[tuple[Tensor, Tensor]] = []
        longest = int(past.limit.max())
        if not longest:
            return
        inside = torch.minimum(torch.arange(longest), past.spans.lengths[:, None].clamp(min=1) - 1)
        tokens = (past.spans.starts[:, None] + inside).to(like.device)  # [D, P]
        for attention in attentions:
            key, value = (kept[tokens].transpose(1, 2).contiguous() for kept in past.kept[attention][:2])
            self.pairs.append((key, value))  # [D, H, P, k]
        self._see()

    def _see(self) -> None:
        """Works out which of the past each row sees."""
        length = self.pairs[0][0].shape[2]
        keep = torch.arange(length, device=self.limit.device) < self.limit[:, None]  # [R, P]
        self.before = self.seats.table(bias_of(keep, self.pairs[0][0].dtype)[:, 0]).transpose(1, 2)  # [D, 1, M, P]

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        super().begin_step(offsets, sentences)
        self.biases: Tensor | None = None  # [R, H, P]
        if self.pairs and self.distances is not None:
            keys = self.pairs[0][0]
            self.biases = self.distances((self.limit + offsets)[:, None], keys.shape[2])[:, :, 0].to(keys.dtype)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attends to the document so far: [R, H, k]."""
        if not self.pairs:
            return super().attend(layer, query)
        own_keys, own_values = self.buffer[layer, :, :, :, : self.length]
        keys, values = self.pairs[layer]
        query = query * query.shape[-1] ** -0.5
        asked = self.seats.table(query).transpose(1, 2)  # [D, H, M, k]
        before = self.seats.rows((asked @ keys.transpose(-1, -2) + self.before).transpose(1, 2))  # [R, H, P]
        if self.biases is not None:
            before = before + self.biases
        own = (query[:, :, None] @ own_keys.transpose(-1, -2) + self.bias)[:, :, 0]  # [R, H, L]
        weights = torch.cat((before, own), dim=-1).softmax(-1)
        before, own = weights.split((before.shape[-1], own.shape[-1]), dim=-1)
        found = self.seats.rows((self.seats.table(before).transpose(1, 2) @ values).transpose(1, 2))
        return found + (own[:, :, None] @ own_values)[:, :, 0]

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        super().keep(rows, documents)
        self.seats, self.limit = self.seats.keep(rows), self.limit[rows]
        if self.pairs:
            self._see()


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
