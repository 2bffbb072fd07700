"""What the sentences of a document see of each other where all of them are decoded at the same time.

Notation as in `caches`: a row is a sentence, so R = the sentences of all D documents that are decoded; M, the most of
one document; P, the tokens of the longest document so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.decoding.caches import (
    Cache,
    DocumentCrossCache,
    DocumentSelfCache,
    SentenceSelfCache,
    bias_of,
    keys_and_values,
    with_something,
)
from docmt.model.attention import Attention, attend_pattern
from docmt.model.spans import Spans
from docmt.model.view import FullView, Memory


class RecordingView(FullView):
    """A full pass that keeps keys and values [T, H, k] of each attention to the sequence itself."""

    def __init__(self, *args: object) -> None:
        """See `FullView`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.kept: dict[Attention, tuple[Tensor, Tensor]] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        if attention.sight.memory != "self":
            return super().attend(attention, x)
        memory, pattern = self.seen(attention.sight, x)
        query, key, value = attention.projected(x, memory)
        self.kept[attention] = key, value
        found = attend_pattern(query, key, value, pattern, distances=attention.distances)
        return found.flatten(-2)


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
            for which, kept in enumerate(past.kept[attention]):
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
            key, value = (kept[tokens].transpose(1, 2).contiguous() for kept in past.kept[attention])
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


@dataclass(frozen=True)
class Past:
    """What one model has read of D documents in a full pass, as far as R of their sentences go on from there."""

    kept: Mapping[Attention, tuple[Tensor, Tensor]]
    """keys and values [T, H, k] of that pass (of none: empty)"""
    spans: Spans
    """[D] of each document in the pass"""
    documents: Tensor
    """[R] the document of each row, rising"""
    limit: Tensor
    """[R] how many tokens of its document each row sees before its sentence"""
    own: Spans
    """[R] where in the pass the begin of each row's sentence is, as far as it stays"""
    sources: Tensor
    """[D] the number of each document in the memories"""

    def cache(self, attentions: Sequence[Attention], like: Tensor) -> Cache:
        """For attentions of one sight to what is said; like: keys of a token [H k]."""
        kind = PastSelfCache if attentions[0].sight.part == "document" else BegunSelfCache
        return kind(attentions, self, like)

    def begin(self, cache: Cache, attentions: Sequence[Attention]) -> None:
        """Has a cache of rows of several sentences go on after what was read; D documents, B rows each."""
        if not isinstance(cache, DocumentSelfCache):
            return
        limits = self.limit[:: cache.beams]  # [D]
        longest = int(limits.max())
        spans = self.spans.select(self.documents[:: cache.beams])
        inside = torch.arange(longest) - longest + limits[:, None]
        device = cache.prefix.device
        tokens = (spans.starts[:, None] + inside.clamp(min=0)).to(device)  # [D, P]
        kept = [self.kept[attention] for attention in attentions]
        pairs = [(keys[tokens].transpose(1, 2), values[tokens].transpose(1, 2)) for keys, values in kept]
        cache.go_on_after(pairs, limits.to(device))

    def cross_cache(self, attentions: Sequence[Attention], memory: Memory) -> Cache:
        """For attentions of one sight to the documents of a memory."""
        assert memory.documents is not None
        states = [memory.at(attention.sight) for attention in attentions]
        spans = memory.documents.select(self.sources)
        keys, values, spans = with_something(*keys_and_values(attentions, states), spans)
        return SeatedCrossCache(keys, values, spans, Seats(self.documents.to(keys[0].device), len(self.sources)))
