"""Decoder steps of one token for each hypothesis, and target text before them, which is read in one full pass.

Notation as in `caches`; T tokens and S sentences of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from docmt.core.grouping import group_pairs
from docmt.decoding.caches import (
    Cache,
    CrossCache,
    LinearCrossCache,
    LinearSelfCache,
    SelfCache,
    SharedKeys,
    Step,
    TargetKeys,
)
from docmt.decoding.ensembles import Memories, Model, compute_next_logits, list_members, pair_members
from docmt.decoding.logits import log_normalizers
from docmt.decoding.search_rules import SearchRow
from docmt.model import Packed, pack
from docmt.model.attention import Attention
from docmt.model.blocks import ContextDocument, SelectiveAttention
from docmt.model.contexts import (
    FullContext,
    Memory,
    PackedStates,
    find_source,
    number_in_documents,
    number_sentences,
    visible_spans,
)
from docmt.model.embeddings import SentenceRelation, SentenceVectors
from docmt.model.kernels import AttentionPattern, product_dtype
from docmt.model.linear_attention import KeyWeights, LinearAttention
from docmt.model.linear_kernels import compute_states, compute_states_after
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans
from docmt.model.transformer import TranslationModel
from docmt.text import SpecialTokens

_CHUNK = 1024
"""Labels whose logits are computed at once."""


class AttentionRecord(NamedTuple):
    """Keys and values [T, H, k] of a self-attention in a full pass."""

    keys: Tensor
    values: Tensor
    weighing: KeyWeights | None = None
    """weights of the keys in linear attention"""


class RecordingContext(FullContext):
    """Full pass that records the keys and values of self-attentions. Those of memories are shared with searches."""

    def __init__(self, *args: object) -> None:
        """See `FullContext`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.recorded: dict[Attention, AttentionRecord] = {}

    def find(self, attention: Attention, x: Tensor) -> PackedStates:
        """See `AttentionContext`: x [T, d]."""
        visible, scope = super().find(attention, x), attention.scope
        if scope.memory == "self":
            return _RecordedStates(visible, attention, self)
        is_linear = isinstance(attention, LinearAttention)
        return visible if is_linear else _ProjectedStates(visible, attention, self.memories[scope.memory])

    def record(self, attention: Attention, projected: AttentionRecord) -> AttentionRecord:
        """Record what an attention has projected; return all that it sees."""
        self.recorded[attention] = projected
        return projected


class _ProjectedStates(PackedStates):
    """Visible states of a memory, which is projected once for all passes and searches."""

    def __init__(self, states: PackedStates, attention: Attention, memory: Memory) -> None:
        super().__init__(memory.states, states.pattern, states.exists)
        self.memory, self.projected = None, _project_memory(attention, memory)

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`."""
        return super().attend(query, *self.projected, **options)


class _RecordedStates(PackedStates):
    """Visible states whose keys and values are recorded when an attention reads them."""

    def __init__(self, states: PackedStates, attention: Attention, context: RecordingContext) -> None:
        assert states.memory is not None
        super().__init__(states.memory, states.pattern, states.exists)
        self.attention, self.context = attention, context

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`."""
        assert key is not None and value is not None
        record = self.context.record(self.attention, AttentionRecord(key, value))
        return super().attend(query, record.keys, record.values, **options)

    def attend_linear(self, attention: Any, x: Tensor) -> Tensor:
        """See `VisibleStates`."""
        key, value, weighing = attention.project_keys_values(self.memory, self.pattern)
        self.context.record(attention, AttentionRecord(key, value, weighing))
        return attention.attend_keys(x, key, value, weighing, self.pattern)


class TargetPass:
    """Full pass of one model over the target side of documents; it keeps what the self-attentions computed."""

    def __init__(
        self, model: TranslationModel, memories: Mapping[str, Memory], target: Packed, aligned: Tensor, numbers: Tensor
    ) -> None:
        """aligned [S]: number of each target sentence in the packed source; numbers: of each document there."""
        context = RecordingContext(target, memories, aligned, numbers)
        self.states = model.decode(model.embed("target", target), context)  # [T, d]
        self.recorded, self.target, self.aligned = context.recorded, target, aligned.cpu()


class LaterPass(TargetPass):
    """Full pass over one more sentence after each of some prefixes. It has what was computed for these, too."""

    def __init__(
        self,
        model: TranslationModel,
        memories: Mapping[str, Memory],
        before: Prefixes,
        added: Packed,
        aligned: Tensor,
        numbers: Tensor,
    ) -> None:
        """added: a document of one sentence for each prefix; aligned [D], numbers: of these, see `TargetPass`."""
        earlier, lengths = before.read, added.sentences.lengths
        known, first = earlier.target, earlier.target.sentences.find_segments(before.document_starts)
        sentences = _append(Spans(first, before.next_sentences - first), torch.ones_like(lengths), len(known.sentences))
        tokens = _append(Spans(before.document_starts, before.lengths), lengths, len(known.tokens))
        index = tokens.to(added.tokens.device)

        def join(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat((old, new)).index_select(0, index)

        self.target = Packed(
            join(known.tokens, added.tokens),
            Spans.tile(torch.cat((known.sentences.lengths, lengths))[sentences]),
            Spans.tile(before.lengths + lengths),
        )
        self.aligned = torch.cat((earlier.aligned, aligned))[sentences]
        context = _LaterContext(self.target, earlier, join, added, memories, aligned, numbers)
        embedded = model.embed("target", self.target)[index >= len(known.tokens)]
        self.states = join(earlier.states, model.decode(embedded, context))
        self.recorded = context.recorded


def _append(spans: Spans, lengths: Tensor, total: int) -> Tensor:
    """Return the index of what lies in each span, followed by `lengths` of what comes after `total`."""
    starts = torch.stack((spans.starts, total + lengths.cumsum(0) - lengths), dim=1)
    return Spans(starts.flatten(), torch.stack((spans.lengths, lengths), dim=1).flatten()).indices()


class _LaterContext(RecordingContext):
    """Pass over the last sentence of each document, whose self-attentions see what was computed for those before."""

    def __init__(
        self, whole: Packed, earlier: TargetPass, join: Callable[[Tensor, Tensor], Tensor], *args: object
    ) -> None:
        """whole: the documents; earlier: the pass over the sentences before; join: adds keys or values of the last
        sentences to earlier ones; args: of these sentences, see `FullContext`."""
        super().__init__(*args)
        self.whole, self.earlier, self.join = whole, earlier.recorded, join

    def find(self, attention: Attention, x: Tensor) -> PackedStates:
        """See `AttentionContext`: x [U, d] of the U tokens of the last sentences."""
        scope, last = attention.scope, self.sequence.sentences
        if scope.memory != "self":
            return super().find(attention, x)
        if scope not in self._patterns:
            keys = visible_spans(self.whole, scope)
            if scope.extent != "document":
                keys = keys.select(self.whole.last_sentences())
            numbers = partial(number_sentences, self.sequence, self.alignment, find_source(self.memories), None)
            self._patterns[scope] = AttentionPattern(last, keys, scope.causal, len(self.whole.tokens), last, numbers)
        return _RecordedStates(PackedStates(x, self._patterns[scope]), attention, self)

    def record(self, attention: Attention, projected: AttentionRecord) -> AttentionRecord:
        """See `RecordingContext`: after what the earlier pass has recorded."""
        (keys, values, _), (added_keys, added_values, _) = self.earlier[attention], projected
        return super().record(attention, AttentionRecord(self.join(keys, added_keys), self.join(values, added_values)))


@dataclass(frozen=True)
class Prefixes:
    """Beginnings of the documents of a pass, one for each of D search rows, each ending before or in a sentence."""

    read: TargetPass
    documents: Tensor
    """[D] number in the pass of each row's document"""
    next_sentences: Tensor
    """[D] number in the pass of each row's next sentence"""
    begun: Tensor | None = None
    """[D] tokens of this sentence that belong to the prefix; None: no row has any"""

    @property
    def starts(self) -> Tensor:
        """[D] first token after each prefix."""
        return self.sentence_starts if self.begun is None else self.sentence_starts + self.begun

    @property
    def sentence_starts(self) -> Tensor:
        """[D] first token of each row's next sentence."""
        return self.read.target.sentences.starts[self.next_sentences]

    @property
    def lengths(self) -> Tensor:
        """[D] number of tokens of each prefix."""
        return self.starts - self.document_starts

    @property
    def document_starts(self) -> Tensor:
        """[D] first token of each row's document."""
        return self.read.target.documents.starts[self.documents]

    def select_keys(self, attentions: Sequence[Attention], single: bool) -> TargetKeys | None:
        """Return the keys and values of these attentions, which have one scope; None if they see none of them.

        single: each row has one sentence.
        """
        in_sentence, spans = attentions[0].scope.extent == "sentence", Spans(self.document_starts, self.lengths)
        if in_sentence and self.begun is not None:
            spans = Spans(self.sentence_starts, self.begun)
        elif in_sentence and single:
            return None
        records = [self.read.recorded[attention] for attention in attentions]
        device, sentences = records[0].keys.device, self.read.target.sentences
        is_word = torch.zeros(len(records[0].keys), dtype=torch.bool)
        is_word[sentences.trim(*attentions[0].scope.trim).indices()] = True
        return TargetKeys(
            SharedKeys([record.keys for record in records], [record.values for record in records], spans),
            self.read.aligned.repeat_interleave(sentences.lengths).to(device),
            is_word.to(device),
            (self.sentence_starts if in_sentence else self.starts).to(device),
        )

    def compute_state(self, attention: Attention, beams: int) -> tuple[Tensor, Tensor | None]:
        """Return the state [R, H, F, k + 1] of linear attention, and its decay [R, H] at the next sentence."""
        keys, values, weighing = self.read.recorded[attention]
        assert isinstance(attention, LinearAttention) and weighing is not None
        sentences = self.read.target.sentences
        number = torch.arange(len(sentences))
        first, next_sentence = sentences.find_segments(self.document_starts), self.next_sentences
        visible = (number >= first[:, None]) & (number < next_sentence[:, None])  # [D, S]
        starts = self.sentence_starts
        begun = Spans(starts, torch.zeros_like(starts) if self.begun is None else self.begun)
        log_decay = weighing.log_decay
        state = compute_states_after(
            *(keys, values, sentences, visible, begun),
            features=attention.build_feature_map(),
            log_decay=log_decay,
            input_weights=weighing.input_weights,
        ).repeat_interleave(beams, 0)
        if log_decay is None:
            return state, None
        has_prefix = (starts > self.document_starts)[:, None].to(log_decay)
        decay = (log_decay[starts] - log_decay[(starts - 1).clamp(min=0)]).clamp(max=0).exp() * has_prefix
        return state, decay.to(state.dtype).repeat_interleave(beams, 0)


def can_read_prefixes(model: Model) -> bool:
    """Return whether prefixes can be read in one pass: sentences are framed, and not joined by one token."""
    return all(member.system.rules == "frame" and not member.boundary_tokens.joined for member in list_members(model))


def can_share_prefixes(model: Model) -> bool:
    """Return whether a `LaterPass` is possible: self-attentions keep keys and values only, of one span."""
    own = [each for member in list_members(model) for each in list_attentions(member) if each.scope.memory == "self"]
    are_linear = any(isinstance(each, LinearAttention) or each.scope.sees_each_preceding for each in own)
    return can_read_prefixes(model) and not are_linear


def list_attentions(model: TranslationModel) -> list[Attention]:
    """Return the attentions of the decoder and above it."""
    modules = (*model.decoder.modules(), *model.above_decoder.modules())
    return [module for module in modules if isinstance(module, Attention)]


def read_prefixes(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    words: Sequence[Sequence[int]] | None = None,
    before: Sequence[Prefixes] = (),
) -> list[Prefixes]:
    """Read the prefixes of these rows with each member of the model.

    words: read as well, the first word ids of the next sentence of each row. All but the last belong to the prefixes.
    before: what each member has read already; the rows then have no prefixes.
    """
    boundary_tokens, device = model.boundary_tokens, model.device
    closing = [specials.eos] if boundary_tokens.target_has_end else []
    whole = [[*row.prefix, after] for row, after in zip(rows, words or [()] * len(rows), strict=True)]
    target = pack(
        [[[*boundary_tokens.target_opening, *words, *closing] for words in sentences] for sentences in whole]
    ).to(device)
    aligned = torch.tensor([number for row in rows for number in row.sentences[: len(row.prefix) + 1]])
    opening, documents = len(boundary_tokens.target_opening), torch.arange(len(rows))
    begun = torch.tensor([len(each) + opening - 1 if each else 0 for each in words]) if words else None
    passes = list[TargetPass]()
    for number, (member, memory) in enumerate(pair_members(model, memories)):
        settings = target, aligned, number_documents(memory.values(), rows)
        if before:
            passes.append(LaterPass(member, memory, before[number], *settings))
        else:
            passes.append(TargetPass(member, memory, *settings))
    following = passes[0].target.last_sentences()
    return [Prefixes(each, documents, following, begun) for each in passes]


def score_words(
    model: Model,
    prefixes: Sequence[Prefixes],
    rows: Sequence[SearchRow],
    words: Sequence[Sequence[int]],
    temperature: float,
) -> list[list[tuple[float, float]]]:
    """Return the log-probability of each word that `read_prefixes` has read, and that of the likeliest in its place.

    Rows of one sentence, whose prefixes are equal, share the scores of the words with which they begin.
    """
    first = prefixes[0].sentence_starts + len(model.boundary_tokens.target_opening) - 1
    numbers: dict[tuple[object, int], int] = {}  # of each word and what stands before it
    places, index = list[list[int]](), list[int]()
    for row, start, each in zip(rows, first.tolist(), words, strict=True):
        before: object = tuple(row.sentences)
        places.append([])
        for position, word in enumerate(each):
            before = number = numbers.setdefault((before, word), len(numbers))
            index += [start + position] * (number == len(index))
            places[-1].append(number)
    positions, labels = (torch.tensor(each, dtype=torch.int64) for each in (index, [word for _, word in numbers]))
    scores = list[list[float]]()
    for part in torch.arange(len(index)).split(_CHUNK):
        states = [each.read.states[positions[part]] for each in prefixes]
        logits = compute_next_logits(model, states, temperature).float()
        chosen = torch.cat(
            (logits.gather(1, labels[part, None].to(logits.device)), logits.amax(1, keepdim=True)), dim=1
        )
        scores += (chosen - log_normalizers(logits)).tolist()
    return [[(scores[number][0], scores[number][1]) for number in each] for each in places]


def number_documents(memories: Iterable[Memory], rows: Sequence[SearchRow]) -> Tensor:
    """Return the number of each row's document in the memories: [D]."""
    for memory in memories:
        if memory.documents is not None:
            sentences = torch.tensor([row.sentences[0] for row in rows])
            return memory.documents.find_segments(memory.sentences.starts[sentences])
    return torch.arange(len(rows))


class IncrementalDecoder:
    """Model, or members of an ensemble, reading one token of R = D * B hypotheses at each step."""

    def __init__(
        self, model: Model, memories: Memories, rows: Sequence[SearchRow], beams: int, prefixes: Sequence[Prefixes] = ()
    ) -> None:
        """memories: from `compute_memories`; rows: the D search rows; prefixes: what each member has read before."""
        self.members = list_members(model)
        self.incremental_states = [
            IncrementalState(member, memory, rows, beams, prefixes[number] if prefixes else None)
            for number, (member, memory) in enumerate(pair_members(model, memories))
        ]
        self.caches = [cache for state in self.incremental_states for cache in state.caches]

    def step(self, tokens: Tensor, offsets: Tensor, positions: Tensor | int, sentences: Tensor) -> list[Tensor]:
        """Read tokens [R] and return the decoder states [R, d] of each member.

        offsets [R]: position of the token in its sentence. positions: position in the whole target. sentences
        [R]: number of its source sentence in the packed source.
        """
        step = Step(tokens, offsets, sentences)
        for cache in self.caches:
            cache.begin_step(step)
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

    def forget(self) -> None:
        """Drop from the caches what no hypothesis sees any more."""
        for cache in self.caches:
            cache.forget()

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these search rows (numbered as of now) and their hypotheses only."""
        for cache in self.caches:
            cache.select_rows(hypotheses, rows)


class IncrementalState:
    """Attention context of a decoding step, in which R = D * B hypotheses read one token each.

    Results equal those of the full pass. All attentions of one scope (the memory's layer aside) and number of heads
    share a cache.
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
        kinds = (((type(each), each.scope.without_layer, each.heads), each) for each in list_attentions(model))
        by_kind = group_pairs(kinds)
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
            if scope.memory != "self":
                cache: Cache = _build_cross_cache(attentions, memories[scope.memory], rows, beams, single)
            elif isinstance(attentions[0], LinearAttention):
                starts = [prefixes.compute_state(each, beams) if prefixes else (None, None) for each in attentions]
                cache = LinearSelfCache(attentions[0], starts)
            else:
                dtype = product_dtype(model.device, next(model.parameters()).dtype)
                like = torch.empty(heads, width, dtype=dtype, device=model.device)
                keys = None if prefixes is None else prefixes.select_keys(attentions, single)
                cache = SelfCache(attentions, len(rows), beams, like, single, keys)
            self.caches.append(cache)
            self.cache_slots |= {attention: (cache, number) for number, attention in enumerate(attentions)}

    def begin_step(self, sentences: Tensor) -> None:
        """Look up what attentions need of the source sentence [R] of each hypothesis."""
        self.sentences = sentences.cpu() if self.documents else sentences
        self.described = {scope: (each[0][sentences], each[1][sentences]) for scope, each in self._sentences.items()}

    def find(self, attention: Attention, x: Tensor) -> CachedStates:
        """See `AttentionContext`: x [R, d]."""
        scope, (cache, number) = attention.scope, self.cache_slots[attention]
        described = self.described.get(scope.without_layer)
        exists = cache.exists if isinstance(cache, SelfCache) and scope.sees_each_preceding else None
        return CachedStates(cache, number, x if scope.memory == "self" else None, described, exists)

    def find_documents(self, attention: SelectiveAttention, x: Tensor) -> tuple[list[ContextDocument], Tensor]:
        """See `AttentionContext`: x [R, d]."""
        return self.documents[attention], self.sentences


@dataclass
class CachedStates:
    """Visible states of a decoding step: the cache of an attention."""

    cache: Cache
    layer: int
    """number of the attention in the cache"""
    memory: Tensor | None
    """states [R, d] of self-attention"""
    described: tuple[Tensor, Tensor] | None
    """of the sentences of hypotheses, for a relation"""
    exists: Tensor | None
    """[R, n], see `VisibleStates`"""

    def describe_sentences(self, relation: SentenceRelation) -> tuple[Tensor, Tensor]:
        """See `VisibleStates`."""
        assert self.described is not None
        return self.described

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`: [R, H, k] each, or the result [R, n, H, k]. The cache knows the distances."""
        if key is not None and value is not None:
            self.cache.store(self.layer, key, value)
        return self.cache.attend(self.layer, query)

    def attend_linear(self, attention: LinearAttention, x: Tensor) -> Tensor:
        """See `VisibleStates`: x [R, d] -> [R, H, k]."""
        if isinstance(self.cache, LinearSelfCache):
            query, key = attention.project_features(x, x)
            gates = None if attention.gate is None else attention.compute_gates(x)
            self.cache.update(self.layer, key, attention.project_values(x), gates)
        else:
            query = attention.project_query_features(x)
        return self.cache.attend(self.layer, query)


def _build_cross_cache(
    attentions: Sequence[Attention], memory: Memory, rows: Sequence[SearchRow], beams: int, single: bool
) -> Cache:
    """Build the cache of attentions to a memory, with the keys and values of the spans that the search rows see."""
    scope = attentions[0].scope
    sentences = visible_spans(memory, scope)
    if scope.extent == "document":
        spans = sentences.select(number_documents([memory], rows))
    elif single:
        spans = sentences.select(torch.tensor([row.sentences[0] for row in rows]))
    else:
        visible = [sentences.select(torch.tensor(row.sentences)) for row in rows]
        starts = torch.stack([each.starts.min() for each in visible])
        spans = Spans(starts, torch.stack([each.ends.max() for each in visible]) - starts)
    if isinstance(attentions[0], LinearAttention):
        floor = attentions[0].features.min_denominator
        return LinearCrossCache(compute_cross_states(attentions, memory, spans), beams, floor)
    keys, values = zip(*(_project_memory(attention, memory) for attention in attentions), strict=True)
    return CrossCache(keys, values, spans, beams, None if single or scope.extent == "document" else sentences)


def _project_memory(attention: Attention, memory: Memory) -> tuple[Tensor, Tensor]:
    """Return keys and values [T, H, k] of the states that an attention sees, as its relation changes them."""
    if attention not in memory.projected:
        states, relation = memory.select_states(attention.scope), attention.relation
        key, value = attention.project_memory(states)
        if relation is not None:
            numbers = number_in_documents(memory).repeat_interleave(memory.sentences.lengths)
            described = relation.describe_keys(numbers, 1 + int(numbers.max()), states.device)
            key, value = relation.change_pair(key, value, described)
        memory.projected[attention] = key, value
    return memory.projected[attention]


def compute_cross_states(attentions: Sequence[Attention], memory: Memory, spans: Spans) -> list[Tensor]:
    """Return the states [D, H, F, k + 1] of linear attention over each of D spans of a memory."""
    result = []
    for attention in attentions:
        assert isinstance(attention, LinearAttention)
        x = memory.select_states(attention.scope)
        key, value = attention.split_heads(attention.key(x)), attention.project_values(x)
        result.append(compute_states(key, value, spans, attention.build_feature_map(), attention.key_log_weights(key)))
    return result
