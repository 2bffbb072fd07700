"""Decoder steps of one token for each hypothesis, after prefixes that were read in one pass.

Notation as in `caches`: D search rows, B beams of each, R = D * B hypotheses; T tokens and S sentences of
the pass over the prefixes; P tokens of the longest prefix.
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
    RecentSelfCache,
    SentenceCrossCache,
    SentencesBeforeCache,
    SentenceSelfCache,
    compute_cross_states,
    pad_empty_spans,
    project_keys_values,
)
from docmt.decoding.ensembles import Memories, Model, list_members, list_memories
from docmt.decoding.search_rules import SearchRow
from docmt.model import Packed, pack
from docmt.model.attention import Attention, FullContext, Memory, find_source, number_in_documents, visible_spans
from docmt.model.embeddings import SentenceVectors
from docmt.model.linear_attention import KeyWeights, LinearAttention
from docmt.model.linear_kernels import compute_states_after
from docmt.model.scope import AttentionScope
from docmt.model.selective_attention import SelectiveAttention
from docmt.model.spans import Spans
from docmt.model.transformer import TranslationModel
from docmt.text import SpecialTokens


class AttentionRecord(NamedTuple):
    """Keys and values [T, H, k] of a self-attention in a full pass."""

    keys: Tensor
    values: Tensor
    weighing: KeyWeights | None = None
    """weights of the keys in linear attention"""


class RecordingContext(FullContext):
    """Full pass that records the keys and values of every self-attention."""

    def __init__(self, *args: object) -> None:
        """See `FullContext`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.recorded: dict[Attention, AttentionRecord] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """Attend and record: x [T, d] -> [T, d]."""
        if attention.scope.memory != "self":
            return super().attend(attention, x)
        memory, pattern = self.resolve_scope(attention.scope, x)
        if isinstance(attention, LinearAttention):
            key, value, weighing = attention.project_keys_values(memory, pattern)
            self.recorded[attention] = AttentionRecord(key, value, weighing)
            return attention.attend_keys(x, key, value, weighing, pattern)
        query, key, value = attention.project(x, memory, pattern)
        self.recorded[attention] = AttentionRecord(key, value)
        return attention.attend_projected(query, key, value, pattern)

    def attend_preceding(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to earlier sentences and record (see `AttentionContext`): x, states [T, d] -> [T, n, d] and [T, n]."""
        keys, values = (attention.split_heads(project(states)) for project in (attention.key, attention.value))
        self.recorded[attention] = AttentionRecord(keys, values)
        return super().attend_preceding(attention, x, states)


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of D search rows as read by one model, each followed by the opening tokens of the next sentence."""

    recorded: Mapping[Attention, AttentionRecord]
    target: Packed
    """target side of the pass: a document for each search row; rows whose prefix begins another's share its document"""
    aligned: Tensor
    """[S] number of each sentence in the packed source"""
    documents: Tensor
    """[D] number in `target` of each row's document"""
    next_sentences: Tensor
    """[D] number in `target` of each row's next sentence"""
    beams: int

    @property
    def starts(self) -> Tensor:
        """[D] first token of each row's next sentence."""
        return self.target.sentences.starts[self.next_sentences]

    @property
    def lengths(self) -> Tensor:
        """[D] number of tokens of each prefix."""
        return self.starts - self.document_starts

    @property
    def document_starts(self) -> Tensor:
        """[D] first token of each row's document."""
        return self.target.documents.starts[self.documents]

    def fill_cache(self, cache: Cache, attentions: Sequence[Attention]) -> None:
        """Fill an empty cache that these attentions share."""
        if isinstance(cache, LinearSelfCache):
            cache.start_after([self._compute_state(attention) for attention in attentions])
        elif isinstance(cache, SentencesBeforeCache):
            tokens, exists = self._find_tokens(self.beams)
            sentences = self.target.sentences.find_segments(tokens)  # [R, P]
            offsets = tokens - self.target.sentences.starts[sentences]
            cache.start_after(self._gather_pairs(attentions, tokens), self.aligned[sentences], offsets, exists)
        elif isinstance(cache, DocumentSelfCache):
            tokens, _ = self._find_tokens()
            cache.start_after(self._gather_pairs(attentions, tokens), self.lengths.to(cache.shared.device))

    def _find_tokens(self, repeats: int = 1) -> tuple[Tensor, Tensor]:
        """Return the last tokens of each prefix [n, P], and whether each exists [n, P]; n = D * repeats."""
        lengths = self.lengths.repeat_interleave(repeats)
        starts = self.document_starts.repeat_interleave(repeats)
        positions = torch.arange(-int(lengths.max()), 0) + lengths[:, None]
        return starts[:, None] + positions.clamp(min=0), positions >= 0

    def _gather_pairs(self, attentions: Sequence[Attention], tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values of these tokens [n, P] for each attention: [n, H, P, k]."""
        records = [self.recorded[attention] for attention in attentions]
        tokens = tokens.to(records[0].keys.device)
        return [(record.keys[tokens].transpose(1, 2), record.values[tokens].transpose(1, 2)) for record in records]

    def _compute_state(self, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """Return the state [R, H, F, k + 1] of linear attention, and its decay [R, H] at the next sentence."""
        keys, values, weighing = self.recorded[attention]
        assert isinstance(attention, LinearAttention) and weighing is not None
        sentences = self.target.sentences
        number = torch.arange(len(sentences))
        first, next_sentence = sentences.find_segments(self.document_starts), self.next_sentences
        visible = (number >= first[:, None]) & (number < next_sentence[:, None])  # [D, S]
        empty = Spans(self.starts, torch.zeros_like(self.starts))
        log_decay = weighing.log_decay
        state = compute_states_after(
            *(keys, values, sentences, visible, empty),
            features=attention.build_feature_map(),
            log_decay=log_decay,
            input_weights=weighing.input_weights,
        ).repeat_interleave(self.beams, 0)
        if log_decay is None:
            return state, None
        has_prefix = (self.lengths > 0)[:, None].to(log_decay)
        decay = (log_decay[self.starts] - log_decay[(self.starts - 1).clamp(min=0)]).clamp(max=0).exp() * has_prefix
        return state, decay.to(state.dtype).repeat_interleave(self.beams, 0)


def can_read_prefixes(model: Model) -> bool:
    """Return whether prefixes can be read in one pass: sentences are framed, and not joined by one token."""
    return all(
        member.system.rules == "frame" and not member.parts.boundary_tokens.joined for member in list_members(model)
    )


def read_prefixes(
    model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, beams: int
) -> list[Prefixes]:
    """Read the prefixes of these rows with each member of the model."""
    boundary_tokens, device = model.parts.boundary_tokens, model.device
    closing = [specials.eos] if boundary_tokens.target_has_end else []
    longest, documents = _merge_nested(rows)
    whole = [[*row.prefix, ()] for row in longest]
    target = pack(
        [[[*boundary_tokens.target_opening, *words, *closing] for words in sentences] for sentences in whole]
    ).to(device)
    aligned = torch.tensor([number for row in longest for number in row.sentences[: len(row.prefix) + 1]])
    firsts = torch.tensor([0, *map(len, whole)]).cumsum(0)
    following = firsts[documents] + torch.tensor([len(row.prefix) for row in rows])
    prefixes = []
    for member, member_memories in zip(list_members(model), list_memories(memories), strict=True):
        numbers = _document_numbers(member_memories.values(), longest)
        context = RecordingContext(target, member_memories, aligned, numbers)
        member.decode(member.embed("target", target), context)
        prefixes.append(Prefixes(context.recorded, target, aligned, documents, following, beams))
    return prefixes


def _merge_nested(rows: Sequence[SearchRow]) -> tuple[list[SearchRow], Tensor]:
    """Return the rows with the longest prefixes, and for each row the index of one that contains its prefix: [D]."""
    longest: list[SearchRow] = []
    by_source: dict[int, list[int]] = {}
    documents = [0] * len(rows)
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index].prefix)):
        row = rows[index]
        candidates = by_source.setdefault(row.sentences[0], [])
        for number in candidates:
            if list(longest[number].prefix[: len(row.prefix)]) == list(row.prefix):
                documents[index] = number
                break
        else:
            documents[index] = len(longest)
            candidates.append(len(longest))
            longest.append(row)
    return longest, torch.tensor(documents)


def _document_numbers(memories: Iterable[Memory], rows: Sequence[SearchRow]) -> Tensor:
    """Return the number of each row's document in the memories: [D]."""
    for memory in memories:
        if memory.documents is not None:
            sentences = torch.tensor([row.sentences[0] for row in rows])
            return memory.documents.find_segments(memory.sentences.starts[sentences])
    return torch.arange(len(rows))


_BLOCK_NUMBERS = 2**19
_BLOCK = 64


class IncrementalDecoder:
    """Model, or members of an ensemble, reading one token of R = D * B hypotheses at each step."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[SearchRow], beams: int, prefixes: Sequence[Prefixes] = ()
    ) -> None:
        """memories: from `compute_memories`; rows: the D search rows; prefixes: as read by each member."""
        self.members = list_members(model)
        member_memories = list_memories(memories)
        member_prefixes: Sequence[Prefixes | None] = prefixes or [None] * len(member_memories)
        self.incremental_states = [
            IncrementalState(member, memory, rows, beams, prefix)
            for member, memory, prefix in zip(self.members, member_memories, member_prefixes, strict=True)
        ]
        self.caches = [cache for state in self.incremental_states for cache in state.caches]

    def step(self, tokens: Tensor, offsets: Tensor, positions: Tensor | int, sentences: Tensor) -> list[Tensor]:
        """Read tokens [R] and return the decoder states [R, d] of each member.

        offsets [R]: position of the token in its sentence. positions: position in the whole target. sentences
        [R]: number of its source sentence in the packed source.
        """
        for cache in self.caches:
            cache.begin_step(offsets, sentences)
        states = []
        for member, state in zip(self.members, self.incremental_states, strict=True):
            state.begin_step(sentences)
            embedded = offsets if member.config.restarts_positions else torch.zeros_like(offsets) + positions
            states.append(member.decode(member.embed_step(tokens, embedded), state))
        return states

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i], one of the same search row."""
        for cache in self.caches:
            cache.reorder(hypotheses)

    def share_positions(self, common: int) -> None:
        """Store the next `common` positions, the same in all beams of each search row, once a row."""
        for cache in self.caches:
            cache.share_positions(common)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these search rows (numbered as of now) and their hypotheses only."""
        for cache in self.caches:
            cache.select_rows(hypotheses, rows)


def log_normalizers(logits: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials, in float32: [n, V] -> [n, 1]."""
    return torch.cat([block.logsumexp(-1, keepdim=True) for block in float_blocks(logits)])


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest logits of each row [n, V], largest first, float32, and their ids: [n, count] each."""
    values, ids = zip(*(_top_values(block, count) for block in float_blocks(logits)), strict=True)
    return torch.cat(values), torch.cat(ids)


def float_blocks(logits: Tensor) -> Iterator[Tensor]:
    """Yield a few rows at a time in float32, so that they stay in the processor's cache."""
    for block in logits.split(max(1, _BLOCK_NUMBERS // logits.shape[1])):
        yield block.float()


def _top_values(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return `x.topk`, several times as fast on CPU: it searches the blocks with the largest maxima only."""
    if count == 1:
        return x.max(-1, keepdim=True)
    whole = x.shape[1] // _BLOCK * _BLOCK
    if whole < 8 * count * _BLOCK or x.device.type != "cpu":
        return x.topk(count, dim=-1)
    blocks = x[:, :whole].unflatten(1, (-1, _BLOCK))
    top_blocks = blocks.amax(-1).topk(count, dim=-1).indices.sort(-1).values[:, :, None]  # [n, count, 1]
    remainder = torch.arange(whole, x.shape[1]).expand(len(x), -1)
    ids = torch.cat(((top_blocks * _BLOCK + torch.arange(_BLOCK)).flatten(1), remainder), dim=1)
    values, index = x.gather(1, ids).topk(count, dim=-1)
    return values, ids.gather(1, index)


class IncrementalState:
    """Caches of the decoder. At each step R = D * B hypotheses read one token each.

    Results equal those of the full pass. All attentions of one scope (the memory's layer aside) and number of heads
    share a cache. Where every search row has a single sentence, it is treated as a document: then all beams share its
    keys.
    """

    def __init__(
        self,
        model: TranslationModel,
        memories: Mapping[str, Memory],
        rows: Sequence[SearchRow],
        beams: int,
        prefixes: Prefixes | None = None,
    ) -> None:
        """rows: the D search rows; prefixes: see `IncrementalDecoder`."""
        by_kind: dict[tuple[type[Attention], AttentionScope, int], list[Attention]] = {}
        for module in (*model.decoder.modules(), *model.above_decoder.modules()):
            if isinstance(module, Attention):
                by_kind.setdefault((type(module), module.scope.without_layer, module.heads), []).append(module)
        has_relations = any(attentions[0].relation is not None for attentions in by_kind.values())
        source = find_source(memories) if has_relations else None
        numbers = None if source is None else number_in_documents(source)  # [S]
        # By scope: what relations need of each source sentence, as query and as key.
        self._sentences: dict[AttentionScope, tuple[Tensor, Tensor]] = {}
        self.described: dict[AttentionScope, tuple[Tensor, Tensor]] = {}  # of each hypothesis, see `begin_step`
        self.cache_slots: dict[Attention, tuple[Cache, int]] = {}
        self.caches: list[Cache] = []
        self.documents = {
            module: module.project_memory(memories[module.memory])
            for module in model.decoder.modules()
            if isinstance(module, SelectiveAttention)
        }
        single = all(len(row.sentences) == 1 for row in rows)
        for (_, scope, heads), attentions in by_kind.items():
            relation, width = attentions[0].relation, attentions[0].head_width
            if relation is not None:
                if numbers is None or (isinstance(relation, SentenceVectors) and scope.extent != "recent"):
                    raise ValueError(f"a decoder cannot have vectors by sentence distance in {scope}")
                count = 1 + int(numbers.max())
                width += relation.extra_width(count)
                self._sentences[scope] = (
                    relation.describe_queries(numbers, count, model.device),
                    relation.describe_keys(numbers, count, model.device),
                )
            if scope.memory == "self":
                like = torch.empty(heads * width, dtype=_projected_dtype(model), device=model.device)
                self.caches.append(_build_self_cache(scope, attentions, like, len(rows), beams, single))
                if prefixes is not None:
                    prefixes.fill_cache(self.caches[-1], attentions)
            else:
                self.caches.append(_build_cross_cache(scope, attentions, memories[scope.memory], rows, beams, single))
            self.cache_slots |= {attention: (self.caches[-1], number) for number, attention in enumerate(attentions)}

    def begin_step(self, sentences: Tensor) -> None:
        """Look up what attentions need of the source sentence [R] of each hypothesis."""
        self.sentences = sentences.cpu() if self.documents else sentences
        self.described = {scope: (each[0][sentences], each[1][sentences]) for scope, each in self._sentences.items()}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """Attend to the cache: x [R, d] -> [R, H k]."""
        cache, number = self.cache_slots[attention]
        if isinstance(attention, LinearAttention):
            if isinstance(cache, LinearSelfCache):
                query, key = attention.project_features(x, x)
                gates = None if attention.gate is None else attention.compute_gates(x)
                cache.update(number, key, attention.project_values(x), gates)
            else:
                query = attention.project_query_features(x)
            return cache.attend(number, query).to(x.dtype).flatten(-2)
        relation, is_self = attention.relation, attention.scope.memory == "self"
        if is_self:
            query, pair = attention.project_self(x)
        else:
            query = attention.project_query(x)
        if relation is None:
            if is_self:
                cache.store(number, pair)
            return cache.attend(number, query).flatten(-2)
        queries, keys = self.described[attention.scope.without_layer]
        if is_self:
            key, value = pair.unbind(-3)
            cache.store(number, torch.stack(relation.change_pair(key, value, keys), dim=-3))
        output = cache.attend(number, relation.change_query(query, queries))
        return relation.read_output(output, queries).flatten(-2)

    def attend_preceding(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to earlier sentences (see `AttentionContext`): x, states [R, d] -> [R, n, d] and [R, n]."""
        cache, number = self.cache_slots[attention]
        assert isinstance(cache, SentencesBeforeCache)
        pair = [attention.split_heads(project(states)) for project in (attention.key, attention.value)]
        cache.store(number, torch.stack(pair, dim=1))
        return cache.attend_preceding(number, attention.project_query(x)).flatten(-2), cache.sentence_exists

    def attend_sentences(self, attention: SelectiveAttention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the words of other sentences (see `AttentionContext`): x, states [R, d] -> [R, H k] and [R]."""
        return attention.attend_documents(x, self.sentences, self.documents[attention])


def _projected_dtype(model: TranslationModel) -> torch.dtype:
    """Return the dtype of projections: that of autocast, or of the model's weights."""
    device = model.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else next(model.parameters()).dtype


def _build_self_cache(
    scope: AttentionScope, attentions: Sequence[Attention], like: Tensor, rows: int, beams: int, single: bool
) -> Cache:
    """Build the cache of self-attentions, whose keys are like `like` [H k]."""
    if isinstance(attentions[0], LinearAttention):
        return LinearSelfCache(len(attentions), attentions[0])
    if scope.extent == "recent":
        cache: Cache = RecentSelfCache(len(attentions), rows * beams, like, attentions[0].heads, scope)
    elif scope.extent == "neighbour":
        return SentencesBeforeCache(len(attentions), rows * beams, like, attentions[0].heads, scope)
    elif scope.extent == "sentence" and not single:
        cache = SentenceSelfCache(len(attentions), rows * beams, like, attentions[0].heads)
    else:
        cache = DocumentSelfCache(len(attentions), rows, beams, like, attentions[0].heads)
    cache.distances = attentions[0].distances
    return cache


def _relate_keys(
    attentions: Sequence[Attention], keys: Sequence[Tensor], values: Sequence[Tensor], numbers: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return keys and values [T, H, k] as the relation of each attention changes them. numbers [T]: of sentences."""
    pairs = []
    for attention, key, value in zip(attentions, keys, values, strict=True):
        assert attention.relation is not None
        described = attention.relation.describe_keys(numbers, 1 + int(numbers.max()), key.device)
        pairs.append(attention.relation.change_pair(key, value, described))
    return [key for key, _ in pairs], [value for _, value in pairs]


def _build_cross_cache(
    scope: AttentionScope,
    attentions: Sequence[Attention],
    memory: Memory,
    rows: Sequence[SearchRow],
    beams: int,
    single: bool,
) -> Cache:
    """Build the cache of attentions to a memory, with the keys and values of the spans that the search rows see."""
    states = [memory.select_states(attention.scope) for attention in attentions]
    spans, index = visible_spans(memory, scope), torch.arange(len(memory.states))
    if scope.extent == "document":
        spans = spans.select(_document_numbers([memory], rows))
    elif single:
        spans = spans.select(torch.tensor([row.sentences[0] for row in rows]))
        index = spans.indices()
        on_device = index.to(memory.states.device)
        states, spans = [x.index_select(0, on_device) for x in states], Spans.tile(spans.lengths)
    if isinstance(attentions[0], LinearAttention):
        return LinearCrossCache(
            compute_cross_states(attentions, states, spans), beams, attentions[0].features.min_denominator
        )
    keys, values = project_keys_values(attentions, states)
    if attentions[0].relation is not None:
        numbers = number_in_documents(memory).repeat_interleave(memory.sentences.lengths)
        keys, values = _relate_keys(attentions, keys, values, numbers[index])
    keys, values, spans = pad_empty_spans(keys, values, spans)
    if single or scope.extent == "document":
        return DocumentCrossCache(keys, values, spans, beams)
    return SentenceCrossCache(keys, values, spans, len(rows) * beams)
