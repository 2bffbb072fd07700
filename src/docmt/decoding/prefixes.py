"""Supplied prefixes, read in one pass instead of token by token.

Notation as in `caches`: D documents (rows of the search), B beams of each, R = D * B; T tokens and S sentences of the
pass; P tokens of the longest prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from docmt.decoding.caches import Cache, DocumentSelfCache, SentencesBeforeCache
from docmt.decoding.ensemble import Memories, Model, members_of, of_members
from docmt.decoding.frame import Row
from docmt.decoding.linear_caches import LinearSelfCache
from docmt.model import Packed, pack
from docmt.model.attention import Attention, FullView, Memory, attend_pattern
from docmt.model.linear import states_after
from docmt.model.linear_attention import LinearAttention, Weighing
from docmt.model.spans import Spans
from docmt.text import SpecialTokens


class Recorded(NamedTuple):
    """Keys and values [T, H, k] that a self-attention saw in a pass."""

    keys: Tensor
    values: Tensor
    weighing: Weighing | None = None
    """weights of the keys in linear attention"""


class RecordingView(FullView):
    """A full pass that keeps the keys and values of every self-attention."""

    def __init__(self, *args: object) -> None:
        """See `FullView`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.recorded: dict[Attention, Recorded] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        if attention.sight.memory != "self":
            return super().attend(attention, x)
        memory, pattern = self.seen(attention.sight, x)
        if isinstance(attention, LinearAttention):
            key, value, weighing = attention.shown(memory, pattern)
            self.recorded[attention] = Recorded(key, value, weighing)
            return attention.among(x, key, value, weighing, pattern)
        query, key, value = attention.projected(x, memory)
        self.recorded[attention] = Recorded(key, value)
        return attend_pattern(query, key, value, pattern, distances=attention.distances).flatten(-2)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `View`: x, states [T, d] -> [T, k, d] and [T, k]."""
        keys, values = (attention.split(project(states)) for project in (attention.key, attention.value))
        self.recorded[attention] = Recorded(keys, values)
        return super().attend_before(attention, x, states)


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of D documents as one model read them, each followed by the marks of the next sentence."""

    recorded: Mapping[Attention, Recorded]
    target: Packed
    """the pass: D documents"""
    aligned: Tensor
    """[S] number of each sentence in the packed source"""
    next: Tensor
    """[D] number of each document's next sentence in the pass, its last one"""
    beams: int

    @property
    def starts(self) -> Tensor:
        """[D] the first token of each document's next sentence."""
        return self.target.sentences.starts[self.next]

    @property
    def lengths(self) -> Tensor:
        """[D] tokens of each prefix."""
        return self.starts - self.target.documents.starts

    def begin(self, cache: Cache, attentions: Sequence[Attention]) -> None:
        """Fill an empty cache; attentions: those that share it."""
        if isinstance(cache, LinearSelfCache):
            cache.go_on_after([self._state(attention) for attention in attentions])
        elif isinstance(cache, SentencesBeforeCache):
            tokens, there = self._tokens(self.beams)
            sentences = self.target.sentences.holding(tokens)  # [R, P]
            offsets = tokens - self.target.sentences.starts[sentences]
            cache.go_on_after(self._pairs(attentions, tokens), self.aligned[sentences], offsets, there)
        elif isinstance(cache, DocumentSelfCache):
            tokens, _ = self._tokens()
            cache.go_on_after(self._pairs(attentions, tokens), self.lengths.to(cache.prefix.device))

    def _tokens(self, repeats: int = 1) -> tuple[Tensor, Tensor]:
        """The tokens [n, P] of each prefix, the last ones, and whether each exists [n, P]; n = D * repeats."""
        lengths = self.lengths.repeat_interleave(repeats)
        starts = self.target.documents.starts.repeat_interleave(repeats)
        places = torch.arange(-int(lengths.max()), 0) + lengths[:, None]
        return starts[:, None] + places.clamp(min=0), places >= 0

    def _pairs(self, attentions: Sequence[Attention], tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of these tokens [n, P] for each attention: [n, H, P, k]."""
        recorded = [self.recorded[attention] for attention in attentions]
        tokens = tokens.to(recorded[0].keys.device)
        return [(each.keys[tokens].transpose(1, 2), each.values[tokens].transpose(1, 2)) for each in recorded]

    def _state(self, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """The state [R, H, F, k + 1] of linear attention, and how much of it [R, H] the next sentence keeps."""
        keys, values, weighing = self.recorded[attention]
        assert isinstance(attention, LinearAttention) and weighing is not None
        sentences, documents = self.target.sentences, self.target.documents
        number = torch.arange(len(sentences))
        seen = (number >= sentences.holding(documents.starts)[:, None]) & (number < self.next[:, None])  # [D, S]
        nothing = Spans(self.starts, torch.zeros_like(self.starts))
        fading = weighing.fading
        state = states_after(
            *(keys, values, sentences, seen, nothing),
            features=attention.feature_map(),
            fading=fading,
            fresh=weighing.fresh,
        ).repeat_interleave(self.beams, 0)
        if fading is None:
            return state, None
        begun = (self.lengths > 0)[:, None].to(fading)
        left = (fading[self.starts] - fading[(self.starts - 1).clamp(min=0)]).clamp(max=0).exp() * begun
        return state, left.to(state.dtype).repeat_interleave(self.beams, 0)


def can_read_prefixes(model: Model) -> bool:
    """Return whether prefixes can be read in one pass: sentences are framed, and not joined by one mark."""
    return all(m.system.rules == "frame" and not m.parts.frame.joined for m in members_of(model))


def read_prefixes(
    model: Model, memories: Memories, rows: Sequence[Row], specials: SpecialTokens, beams: int
) -> list[Prefixes]:
    """Read the prefixes of these rows with each member of the model."""
    frame, device = model.parts.frame, model.device
    closing = [specials.eos] if frame.target_closes else []
    target = pack([[[*frame.target_opens, *words, *closing] for words in (*row.prefix, ())] for row in rows]).to(device)
    aligned = torch.tensor([number for row in rows for number in row.sentences[: len(row.prefix) + 1]])
    following = torch.tensor([len(row.prefix) + 1 for row in rows]).cumsum(0) - 1
    found = []
    for member, seen in zip(members_of(model), of_members(memories), strict=True):
        view = RecordingView(target, seen, aligned, _documents(seen.values(), rows))
        member.decode(member.embed("target", target), view)
        found.append(Prefixes(view.recorded, target, aligned, following, beams))
    return found


def _documents(memories: Iterable[Memory], rows: Sequence[Row]) -> Tensor:
    """The number in the memories of the document that each row is of: [D]."""
    for memory in memories:
        if memory.documents is not None:
            return memory.documents.holding(memory.sentences.starts[torch.tensor([row.sentences[0] for row in rows])])
    return torch.arange(len(rows))
