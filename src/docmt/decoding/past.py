"""What a full pass over what was said leaves for those that go on from there.

Notation as in `caches`: R rows, of D documents, at most M of one; T, the tokens of the pass, of S sentences; P, those
of the longest document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from docmt.decoding.abreast_caches import SeatedCrossCache, SeatedLinearCrossCache, Seats
from docmt.decoding.caches import (
    Cache,
    DocumentSelfCache,
    SentencesBeforeCache,
    SentenceSelfCache,
    bias_of,
    keys_and_values,
    with_something,
)
from docmt.decoding.linear_caches import LinearSelfCache, cross_states
from docmt.model.attention import Attention, FullView, Memory, attend_pattern
from docmt.model.linear import states_after
from docmt.model.linear_attention import LinearAttention, Weighing
from docmt.model.spans import Spans


class Shown(NamedTuple):
    """What an attention to the sequence itself was shown in a pass: keys and values [T, H, k]."""

    keys: Tensor
    values: Tensor
    weighing: Weighing | None = None
    """what keys weigh in linear attention"""


class RecordingView(FullView):
    """A full pass that keeps what each attention to the sequence itself was shown."""

    def __init__(self, *args: object) -> None:
        """See `FullView`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.kept: dict[Attention, Shown] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        if attention.sight.memory != "self":
            return super().attend(attention, x)
        memory, pattern = self.seen(attention.sight, x)
        if isinstance(attention, LinearAttention):
            key, value, weighing = attention.shown(memory, pattern)
            self.kept[attention] = Shown(key, value, weighing)
            return attention.among(x, key, value, weighing, pattern)
        query, key, value = attention.projected(x, memory)
        self.kept[attention] = Shown(key, value)
        found = attend_pattern(query, key, value, pattern, distances=attention.distances)
        return found.flatten(-2)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `View`: x, states [T, d] -> [T, k, d] and [T, k]."""
        self.kept[attention] = Shown(attention.split(attention.key(states)), attention.split(attention.value(states)))
        return super().attend_before(attention, x, states)


@dataclass(frozen=True)
class Past:
    """What one model has read of D documents in a full pass, as far as R of their sentences go on from there."""

    kept: Mapping[Attention, Shown]
    """by that pass (by none: empty)"""
    sentences: Spans
    """[S] of each sentence in the pass"""
    aligned: Tensor
    """[S] the number of each in the packed source"""
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
        """For attentions of one sight to what is said, of rows of a sentence each; like: keys of a token [H k]."""
        sight = attentions[0].sight
        if isinstance(attentions[0], LinearAttention):
            cache: Cache = LinearSelfCache.of(attentions)
        elif sight.part == "before":
            cache = SentencesBeforeCache(len(attentions), len(self.own), like, attentions[0].heads, sight)
        else:
            return (PastSelfCache if sight.part == "document" else BegunSelfCache)(attentions, self, like)
        self.begin(cache, attentions)
        return cache

    def begin(self, cache: Cache, attentions: Sequence[Attention]) -> None:
        """Has a cache go on after what was read; R rows of several sentences, or of a sentence each."""
        if not self.kept:
            return
        if isinstance(cache, LinearSelfCache):
            cache.go_on_after([self._state(attention) for attention in attentions])
        elif isinstance(cache, SentencesBeforeCache):
            self._begin_before(cache, attentions)
        elif isinstance(cache, DocumentSelfCache):
            tokens, _ = self._tokens(slice(None, None, cache.beams))
            cache.go_on_after(self._pairs(attentions, tokens), self.limit[:: cache.beams].to(cache.prefix.device))

    def cross_cache(self, attentions: Sequence[Attention], memory: Memory) -> Cache:
        """For attentions of one sight to the documents of a memory."""
        assert memory.documents is not None
        states = [memory.at(attention.sight) for attention in attentions]
        spans = memory.documents.select(self.sources)
        seats = Seats(self.documents.to(states[0].device), len(self.sources))
        if isinstance(attentions[0], LinearAttention):
            return SeatedLinearCrossCache(cross_states(attentions, states, spans), attentions[0].features.floor, seats)
        keys, values, spans = with_something(*keys_and_values(attentions, states), spans)
        return SeatedCrossCache(keys, values, spans, seats)

    def _begin_before(self, cache: SentencesBeforeCache, attentions: Sequence[Attention]) -> None:
        tokens, there = self._tokens(slice(None))
        sentence = self.sentences.holding(tokens)  # [R, P]
        numbers = self.aligned[sentence]
        offsets = tokens - self.sentences.starts[sentence]
        cache.go_on_after(self._pairs(attentions, tokens), numbers, offsets, there)

    def _pairs(self, attentions: Sequence[Attention], tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of these tokens [n, P] for each attention: [n, H, P, k]."""
        kept = [self.kept[attention] for attention in attentions]
        tokens = tokens.to(kept[0].keys.device)
        return [(own.keys[tokens].transpose(1, 2), own.values[tokens].transpose(1, 2)) for own in kept]

    def _tokens(self, rows: slice) -> tuple[Tensor, Tensor]:
        """What n of the rows have seen: tokens [n, P] of the pass, the last ones, and whether each is there [n, P]."""
        counts, starts = (self.limit + self.own.lengths)[rows], self.spans.starts[self.documents[rows]]
        places = torch.arange(-int(counts.max()), 0) + counts[:, None]
        return starts[:, None] + places.clamp(min=0), places >= 0

    def _state(self, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """The state [R, H, F, k + 1] of linear attention, and how much of it [R, H] is left to the sentence after the
        last one that has ended (nothing before the first)."""
        keys, values, weighing = self.kept[attention]
        assert isinstance(attention, LinearAttention) and weighing is not None
        first, last = (self.sentences.holding(own) for own in (self.spans.starts[self.documents], self.own.starts))
        number = torch.arange(len(self.sentences))
        seen = (number >= first[:, None]) & (number < last[:, None])  # [R, S]
        fading = weighing.fading
        state = states_after(
            *(keys, values, self.sentences, seen, self.own),
            features=attention.feature_map(),
            fading=fading,
            fresh=weighing.fresh,
        )
        if fading is None:
            return state, None
        starts, begun = self.own.starts, (self.limit > 0)[:, None].to(fading)
        left = (fading[starts] - fading[(starts - 1).clamp(min=0)]).clamp(max=0).exp()
        return state, (left * begun).to(state.dtype)


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
