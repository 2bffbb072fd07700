"""The decoder one step at a time, after prefixes that one pass has read.

Notation as in `caches`: D documents (rows of the search), B beams of each, R = D * B; T tokens and S sentences of the
pass over the prefixes; P tokens of the longest prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from docmt.decoding.caches import (
    Cache,
    DocumentCrossCache,
    DocumentSelfCache,
    LinearCrossCache,
    LinearSelfCache,
    SentenceCrossCache,
    SentencesBeforeCache,
    SentenceSelfCache,
    cross_states,
    keys_and_values,
    with_something,
)
from docmt.decoding.models import Memories, Model, members_of, of_members
from docmt.decoding.rules import SearchRow
from docmt.model import Packed, pack
from docmt.model.attention import Attention, FullContext, Memory, attend_pattern, visible_spans
from docmt.model.linear import states_after
from docmt.model.linear_attention import KeyWeights, LinearAttention
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans
from docmt.model.transformer import TranslationModel
from docmt.text import SpecialTokens


class Recorded(NamedTuple):
    """Keys and values [T, H, k] that a self-attention saw in a pass."""

    keys: Tensor
    values: Tensor
    weighing: KeyWeights | None = None
    """weights of the keys in linear attention"""


class RecordingContext(FullContext):
    """A full pass that keeps the keys and values of every self-attention."""

    def __init__(self, *args: object) -> None:
        """See `FullContext`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.recorded: dict[Attention, Recorded] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        if attention.scope.memory != "self":
            return super().attend(attention, x)
        memory, pattern = self.seen(attention.scope, x)
        if isinstance(attention, LinearAttention):
            key, value, weighing = attention.shown(memory, pattern)
            self.recorded[attention] = Recorded(key, value, weighing)
            return attention.among(x, key, value, weighing, pattern)
        query, key, value = attention.projected(x, memory)
        self.recorded[attention] = Recorded(key, value)
        return attend_pattern(query, key, value, pattern, distances=attention.distances).flatten(-2)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [T, d] -> [T, k, d] and [T, k]."""
        keys, values = (attention.split(project(states)) for project in (attention.key, attention.value))
        self.recorded[attention] = Recorded(keys, values)
        return super().attend_before(attention, x, states)


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of D rows as one model read them, each followed by the marks of the next sentence."""

    recorded: Mapping[Attention, Recorded]
    target: Packed
    """the pass: a document for each row, but rows of which one's prefix begins another's share one"""
    aligned: Tensor
    """[S] number of each sentence in the packed source"""
    documents: Tensor
    """[D] number of each row's document in the pass"""
    next: Tensor
    """[D] number of each row's next sentence in the pass"""
    beams: int

    @property
    def starts(self) -> Tensor:
        """[D] the first token of each document's next sentence."""
        return self.target.sentences.starts[self.next]

    @property
    def lengths(self) -> Tensor:
        """[D] tokens of each prefix."""
        return self.starts - self.begins

    @property
    def begins(self) -> Tensor:
        """[D] the first token of each row's document."""
        return self.target.documents.starts[self.documents]

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
        starts = self.begins.repeat_interleave(repeats)
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
        sentences = self.target.sentences
        number = torch.arange(len(sentences))
        seen = (number >= sentences.holding(self.begins)[:, None]) & (number < self.next[:, None])  # [D, S]
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
    model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, beams: int
) -> list[Prefixes]:
    """Read the prefixes of these rows with each member of the model."""
    frame, device = model.parts.frame, model.device
    closing = [specials.eos] if frame.target_closes else []
    longest, documents = _nested(rows)
    whole = [[*row.prefix, ()] for row in longest]
    target = pack([[[*frame.target_opens, *words, *closing] for words in sentences] for sentences in whole]).to(device)
    aligned = torch.tensor([number for row in longest for number in row.sentences[: len(row.prefix) + 1]])
    firsts = torch.tensor([0, *map(len, whole)]).cumsum(0)
    following = firsts[documents] + torch.tensor([len(row.prefix) for row in rows])
    found = []
    for member, seen in zip(members_of(model), of_members(memories), strict=True):
        context = RecordingContext(target, seen, aligned, _document_numbers(seen.values(), longest))
        member.decode(member.embed("target", target), context)
        found.append(Prefixes(context.recorded, target, aligned, documents, following, beams))
    return found


def _nested(rows: Sequence[SearchRow]) -> tuple[list[SearchRow], Tensor]:
    """Return the rows whose prefixes contain those of the others of the same source, and for each row which [D]."""
    longest: list[SearchRow] = []
    by_source: dict[int, list[int]] = {}
    documents = [0] * len(rows)
    for place in sorted(range(len(rows)), key=lambda place: -len(rows[place].prefix)):
        row = rows[place]
        same = by_source.setdefault(row.sentences[0], [])
        for number in same:
            if list(longest[number].prefix[: len(row.prefix)]) == list(row.prefix):
                documents[place] = number
                break
        else:
            documents[place] = len(longest)
            same.append(len(longest))
            longest.append(row)
    return longest, torch.tensor(documents)


def _document_numbers(memories: Iterable[Memory], rows: Sequence[SearchRow]) -> Tensor:
    """The number in the memories of the document that each row is of: [D]."""
    for memory in memories:
        if memory.documents is not None:
            sentences = torch.tensor([row.sentences[0] for row in rows])
            return memory.documents.holding(memory.sentences.starts[sentences])
    return torch.arange(len(rows))


_NUMBERS_AT_ONCE = 2**19
_BLOCK = 64


class IncrementalDecoder:
    """A model, or every member of an ensemble, that reads one token of R = D * B hypotheses at a time."""

    def __init__(
        self,
        model: Model,
        memories: Memories,
        rows: Sequence[SearchRow],
        beams: int,
        prefixes: Sequence[Prefixes] = (),
    ) -> None:
        """memories: as `model.memories` gives them; rows: one for each of the D documents of the search; prefixes: what
        each member has read already of them."""
        self.members = members_of(model)
        seen = of_members(memories)
        read: Sequence[Prefixes | None] = prefixes or [None] * len(seen)
        self.incremental_states = [
            IncrementalState(member, memory, rows, beams, prefix)
            for member, memory, prefix in zip(self.members, seen, read, strict=True)
        ]
        self.caches = [cache for state in self.incremental_states for cache in state.caches]

    def read(self, tokens: Tensor, offsets: Tensor, places: Tensor | int, sentences: Tensor) -> list[Tensor]:
        """Decoder states [R, d] of each member after tokens [R].

        offsets [R]: position of the token in its sentence; places: in all that was said; sentences [R]: number of its
        source sentence in the packed source.
        """
        for cache in self.caches:
            cache.begin_step(offsets, sentences)
        states = []
        for member, state in zip(self.members, self.incremental_states, strict=True):
            positions = offsets if member.config.restarts else torch.zeros_like(offsets) + places
            states.append(member.decode(member.embed_step(tokens, positions), state))
        return states

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from hypothesis rows[i], one of the same document."""
        for cache in self.caches:
            cache.reorder(rows)

    def share(self, common: int) -> None:
        """The next `common` positions not yet shared are the same in all beams of each document."""
        for cache in self.caches:
            cache.share(common)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """Goes on with these documents (numbers as of now) and their rows only."""
        for cache in self.caches:
            cache.keep(rows, documents)


def normalizers(logits: Tensor) -> Tensor:
    """[n, V] -> [n, 1] float32: the logarithm of the sum of exponentials."""
    return torch.cat([own.logsumexp(-1, keepdim=True) for own in _in_parts(logits)])


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[n, V] -> the `count` largest of each row, largest first, float32, and their places: [n, count] each."""
    values, places = zip(*(_largest(own, count) for own in _in_parts(logits)), strict=True)
    return torch.cat(values), torch.cat(places)


def _in_parts(logits: Tensor) -> Iterator[Tensor]:
    """In float32, a few rows at a time, which stay in the processor's cache."""
    for own in logits.split(max(1, _NUMBERS_AT_ONCE // logits.shape[1])):
        yield own.float()


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`x.topk`, several times as fast on CPU: only the blocks with the largest maxima can hold the largest numbers."""
    if count == 1:
        return x.max(-1, keepdim=True)
    whole = x.shape[1] // _BLOCK * _BLOCK
    if whole < 8 * count * _BLOCK or x.device.type != "cpu":
        return x.topk(count, dim=-1)
    blocks = x[:, :whole].unflatten(1, (-1, _BLOCK))
    chosen = blocks.amax(-1).topk(count, dim=-1).indices.sort(-1).values[:, :, None]  # [n, count, 1]
    rest = torch.arange(whole, x.shape[1]).expand(len(x), -1)
    places = torch.cat(((chosen * _BLOCK + torch.arange(_BLOCK)).flatten(1), rest), dim=1)
    values, index = x.gather(1, places).topk(count, dim=-1)
    return values, places.gather(1, index)


class IncrementalState:
    """What attentions see when R = D * B hypotheses read one token each, equal to what they see in the full pass.

    All attentions of one scope (depth aside) have one cache. Hypotheses of a single sentence each see it as their
    document: then all beams share what they see.
    """

    def __init__(
        self,
        model: TranslationModel,
        memories: Mapping[str, Memory],
        rows: Sequence[SearchRow],
        beams: int,
        prefixes: Prefixes | None = None,
    ) -> None:
        """rows: one for each of the D documents of the search; prefixes: see `IncrementalDecoder`."""
        by_kind: dict[tuple[type[Attention], AttentionScope], list[Attention]] = {}
        for module in (*model.decoder.modules(), *model.above_decoder.modules()):
            if isinstance(module, Attention):
                by_kind.setdefault((type(module), module.scope.place), []).append(module)
        self.places: dict[Attention, tuple[Cache, int]] = {}
        self.caches: list[Cache] = []
        single = all(len(row.sentences) == 1 for row in rows)
        for (_, scope), attentions in by_kind.items():
            if scope.memory == "self":
                like = torch.empty(model.config.attention_width, dtype=_projected_dtype(model), device=model.device)
                self.caches.append(_own_cache(scope, attentions, like, len(rows), beams, single))
                if prefixes is not None:
                    prefixes.begin(self.caches[-1], attentions)
            else:
                self.caches.append(_memory_cache(scope, attentions, memories[scope.memory], rows, beams, single))
            self.places |= {attention: (self.caches[-1], number) for number, attention in enumerate(attentions)}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [R, d] -> [R, d]"""
        cache, number = self.places[attention]
        if isinstance(attention, LinearAttention):
            if isinstance(cache, LinearSelfCache):
                asked, shown = attention.asked_and_shown(x, x)
                gates = None if attention.gate is None else attention.gates(x)
                cache.read(number, shown, attention.values(x), gates)
            else:
                asked = attention.asked_features(x)
            return cache.attend(number, asked).to(x.dtype).flatten(-2)
        if attention.scope.memory == "self":
            query, pair = attention.asked_and_kept(x)
            cache.store(number, pair)
        else:
            query = attention.asked(x)
        return cache.attend(number, query).flatten(-2)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [R, d] -> [R, k, d] and [R, k]."""
        cache, number = self.places[attention]
        assert isinstance(cache, SentencesBeforeCache)
        pair = [attention.split(project(states)) for project in (attention.key, attention.value)]
        cache.store(number, torch.stack(pair, dim=1))
        return cache.attend_before(number, attention.asked(x)).flatten(-2), cache.there


def _projected_dtype(model: TranslationModel) -> torch.dtype:
    """That of what projections give: that of autocast, or the model's own, which its tables have."""
    device = model.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else next(model.parameters()).dtype


def _own_cache(
    scope: AttentionScope, attentions: Sequence[Attention], like: Tensor, documents: int, beams: int, single: bool
) -> Cache:
    """For the hypotheses' own states, whose keys are as `like` [H k]."""
    if isinstance(attentions[0], LinearAttention):
        return LinearSelfCache(len(attentions), attentions[0])
    if scope.part == "before":
        return SentencesBeforeCache(len(attentions), documents * beams, like, attentions[0].heads, scope)
    if scope.part == "sentence" and not single:
        own: Cache = SentenceSelfCache(len(attentions), documents * beams, like, attentions[0].heads)
    else:
        own = DocumentSelfCache(len(attentions), documents, beams, like, attentions[0].heads)
    own.distances = attentions[0].distances
    return own


def _memory_cache(
    scope: AttentionScope,
    attentions: Sequence[Attention],
    memory: Memory,
    rows: Sequence[SearchRow],
    beams: int,
    single: bool,
) -> Cache:
    """For a memory, whose keys and values are computed here, once: of what the rows see."""
    states = [memory.at(attention.scope) for attention in attentions]
    spans = visible_spans(memory, scope)
    if scope.part == "document":
        spans = spans.select(_document_numbers([memory], rows))
    elif single:
        spans = spans.select(torch.tensor([row.sentences[0] for row in rows]))
        index = spans.indices().to(memory.states.device)
        states, spans = [own.index_select(0, index) for own in states], Spans.tile(spans.lengths)
    if isinstance(attentions[0], LinearAttention):
        return LinearCrossCache(cross_states(attentions, states, spans), beams, attentions[0].features.floor)
    keys, values, spans = with_something(*keys_and_values(attentions, states), spans)
    if single or scope.part == "document":
        return DocumentCrossCache(keys, values, spans, beams)
    return SentenceCrossCache(keys, values, spans, len(rows) * beams)
