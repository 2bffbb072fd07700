"""Caches of decoding steps, one for each kind of attention; no prefix is ever recomputed.

Notation: D search rows, B beams of each, R = D * B hypotheses (hypothesis = row * B + beam), H heads, k = d / H, L
keys, F features of a head in linear attention. All hypotheses are at the same step: they compete at equal length. A
step's query, key and value are [R, H, k].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.attention import Attention
from docmt.model.embeddings import DistanceBiases
from docmt.model.linear_attention import LinearAttention
from docmt.model.linear_kernels import compute_states, read_states, step_linear
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans

# Positions. Caches grow by chunks. They are read in few shapes, because each has to be prepared once: caches of
# documents in whole chunks, those of sentences in whole steps.
_CHUNK = 16
_STEP = 4
_CHECK_EVERY = 8  # steps between two values that the host reads from a GPU


def can_synchronize(device: torch.device) -> bool:
    """Return whether the host may read a value at every step: on a GPU it would wait for all queued work."""
    return device.type == "cpu"


def build_mask_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bias [n, 1, 1, L] of a mask [n, L] bool: minus infinity at hidden keys."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)[:, None, None, :]


class Cache:
    """Cache of all attentions of one class and scope; layers are numbered."""

    distances: DistanceBiases | None = None
    """position biases that these self-attentions to a sentence or a document share"""

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """Prepare a step; offsets, sentences [R]: of the new token in its sentence, number of its source sentence."""

    def store(self, layer: int, pair: Tensor) -> None:
        """Store the step's key and value of self-attention: [R, 2, H, k]."""

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Return the attention output: [R, H, k] -> [R, H, k]."""
        raise NotImplementedError

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i] of the same search row."""

    def share_positions(self, common: int) -> None:
        """Store the next `common` positions, the same in all beams of each search row, once a row."""

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these hypotheses and the search rows that they belong to (numbered as of now) only."""
        self.reorder(hypotheses)


class _DoubleBuffer:
    """Pair of buffers for reordering hypotheses (axis 2): fresh memory for every step is slower."""

    def __init__(self) -> None:
        self.spare: Tensor | None = None

    def select(self, buffer: Tensor, hypotheses: Tensor) -> Tensor:
        """Return buffer[:, :, hypotheses] in other memory; the buffer must not be used any more."""
        shape = (*buffer.shape[:2], len(hypotheses), *buffer.shape[3:])
        spare = self.spare if self.spare is not None and self.spare.shape == shape else buffer.new_empty(shape)
        self.spare = buffer
        return torch.index_select(buffer, 2, hypotheses, out=spare)


class SentenceSelfCache(Cache):
    """Keys and values of each hypothesis's current sentence; those of earlier sentences are overwritten."""

    def __init__(self, layers: int, hypotheses: int, like: Tensor, heads: int) -> None:
        self.buffer = like.new_zeros(layers, 2, hypotheses, heads, _CHUNK, like.shape[-1] // heads)
        self.length = self.steps = 0
        self.longest = 0  # upper bound of the tokens in a current sentence
        self.double_buffer = _DoubleBuffer()

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        synchronize = can_synchronize(offsets.device) or self.steps % _CHECK_EVERY == 0
        self.longest = int(offsets.max()) + 1 if synchronize else self.longest + 1
        self.steps += 1
        self.length = -(-self.longest // _STEP) * _STEP
        if self.length > self.buffer.shape[4]:
            self.buffer = F.pad(self.buffer, (0, 0, 0, _CHUNK))
        self.hypotheses = torch.arange(len(offsets), device=offsets.device)
        self.offsets = offsets
        positions = torch.arange(self.length, device=self.buffer.device)
        self.bias = build_mask_bias(positions <= offsets[:, None], self.buffer.dtype)
        if self.distances is not None:
            self.bias = self.bias + self.distances(offsets[:, None], self.length).to(self.bias.dtype)

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        self.buffer[layer][:, self.hypotheses, :, self.offsets] = pair

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the current sentence: [R, H, k]."""
        keys, values = self.buffer[layer, :, :, :, : self.length]
        return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=self.bias)[:, :, 0]

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i]."""
        used = min(-(-self.length // _CHUNK) * _CHUNK, self.buffer.shape[4])
        if used < self.buffer.shape[4]:
            self.buffer = self.buffer[:, :, :, :, :used].contiguous()
        self.buffer = self.double_buffer.select(self.buffer, hypotheses)


class DocumentSelfCache(Cache):
    """Keys and values of the whole document so far.

    Positions that all beams of a search row share are stored once a row (`shared`), the others once a hypothesis
    (`tail`). Reordering hypotheses then moves only the tail, so the cost of a step hardly grows with the document.
    """

    def __init__(self, layers: int, rows: int, beams: int, like: Tensor, heads: int) -> None:
        width = like.shape[-1] // heads
        self.beams = beams
        # With beams it has no spare positions: bfloat16 products of a part of a buffer copy that part.
        self.shared = like.new_zeros(layers, 2, rows, heads, 0 if beams > 1 else 4 * _CHUNK, width)
        self.tail = like.new_zeros(layers, 2, rows * beams, heads, _CHUNK, width)
        self.shared_length = self.tail_length = 0  # positions in use of `shared` and `tail`
        self.read_length = 0  # positions of the tail that are read; those beyond `tail_length` are masked
        self.double_buffer = _DoubleBuffer()
        self.start_length = 0
        # [D] tokens of each prefix. Prefixes are aligned at the right of the first `start_length` positions.
        self.start_lengths: Tensor | None = None

    def start_after(self, pairs: Sequence[tuple[Tensor, Tensor]], lengths: Tensor) -> None:
        """Begin with a prefix of each search row: the last `lengths` [D] of the positions of `pairs`.

        pairs: for each layer [D, H, P, k].
        """
        self.shared = torch.stack([torch.stack(pair) for pair in pairs])
        self.shared_length = self.start_length = self.shared.shape[4]
        self.start_lengths = None if bool((lengths == self.start_length).all()) else lengths

    def _make_shared_bias(self) -> Tensor | None:
        """Return the bias [D, 1, 1, shared_length]: minus infinity where a search row has no position."""
        if self.start_lengths is None:
            return None
        positions = torch.arange(self.start_length, device=self.start_lengths.device)
        bias = build_mask_bias(positions >= self.start_length - self.start_lengths[:, None], self.shared.dtype)
        return F.pad(bias, (0, self.shared_length - self.start_length))

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """Make room for one more position."""
        if self.beams == 1:
            self.shared_length += 1
            self.shared = _with_capacity(self.shared, self.shared_length)
        else:
            self.tail_length += 1
            # The tail is read in whole chunks: each new shape of a bfloat16 product costs a millisecond on CPU.
            self.read_length = -(-self.tail_length // _CHUNK) * _CHUNK
            self.tail = _with_capacity(self.tail, self.read_length)
            positions = torch.arange(self.read_length, device=self.tail.device)
            self.bias = build_mask_bias(positions[None] < self.tail_length, self.tail.dtype)[0, 0]  # [1, read]
        self.biases: Tensor | None = None  # [H, 1, shared + read]
        if self.distances is not None:
            position = torch.tensor([self.shared_length + self.tail_length - 1], device=self.tail.device)
            self.biases = self.distances(position, self.shared_length + self.read_length).to(self.tail.dtype)
        self.shared_bias = self._make_shared_bias()

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        buffer, used = (self.shared, self.shared_length) if self.beams == 1 else (self.tail, self.tail_length)
        buffer[layer, :, :, :, used - 1] = pair.transpose(0, 1)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the document so far: [R, H, k]."""
        if self.beams == 1:
            keys, values = self.shared[layer, :, :, :, : self.shared_length]
            bias = None if self.biases is None else self.biases.expand(len(query), -1, -1, -1)
            if self.shared_bias is not None:
                bias = self.shared_bias if bias is None else bias + self.shared_bias
            return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=bias)[:, :, 0]
        tail_keys, tail_values = self.tail[layer, :, :, :, : self.read_length]
        shared_keys, shared_values = self.shared[layer]
        query = query * query.shape[-1] ** -0.5
        by_row = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, k]
        shared_scores = torch.matmul(by_row, shared_keys.transpose(-1, -2))  # [D, H, B, shared]
        if self.shared_bias is not None:
            shared_scores = shared_scores + self.shared_bias
        shared_scores = shared_scores.transpose(1, 2).flatten(0, 1)  # [R, H, shared]
        tail_scores = torch.matmul(query[:, :, None], tail_keys.transpose(-1, -2))[:, :, 0] + self.bias  # [R, H, read]
        scores = torch.cat((shared_scores, tail_scores), dim=-1)
        weights = (scores if self.biases is None else scores + self.biases[:, 0]).softmax(-1)
        shared_weights, tail_weights = weights.split((self.shared_length, self.read_length), dim=-1)
        result = torch.matmul(tail_weights[:, :, None], tail_values)[:, :, 0]
        by_row = shared_weights.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, shared]
        return result + torch.matmul(by_row, shared_values).transpose(1, 2).flatten(0, 1)

    def share_positions(self, common: int) -> None:
        """Move the first `common` positions of the tail, the same in all beams of a search row, to the shared ones."""
        self.shared = torch.cat((self.shared, self.tail[:, :, :: self.beams, :, :common]), dim=4)
        self.tail = self.tail[:, :, :, :, common:].contiguous()
        self.shared_length += common
        self.tail_length -= common
        self.read_length -= common

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i] of the same search row."""
        if self.beams > 1:
            if self.read_length < self.tail.shape[4]:
                self.tail = self.tail[:, :, :, :, : self.read_length].contiguous()
            self.tail = self.double_buffer.select(self.tail, hypotheses)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these hypotheses and search rows only."""
        self.reorder(hypotheses)
        self.shared = self.shared[:, :, :, :, : self.shared_length].index_select(2, rows)
        if self.start_lengths is not None:
            self.start_lengths = self.start_lengths[rows]


def _with_capacity(buffer: Tensor, length: int) -> Tensor:
    """Return the buffer with room for `length` positions; it grows by half, so copies are rare."""
    capacity = buffer.shape[4]
    if length <= capacity:
        return buffer
    return F.pad(buffer, (0, 0, 0, max(length - capacity, capacity // 2, _CHUNK)))


def project_keys_values(attentions: Sequence[Attention], states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Project the states [T, d] that each attention sees to keys and values: [T, H, k]."""
    pairs = list(zip(attentions, states, strict=True))
    keys = [attention.split_heads(attention.key(x)) for attention, x in pairs]
    return keys, [attention.split_heads(attention.value(x)) for attention, x in pairs]


def pad_empty_spans(keys: list[Tensor], values: list[Tensor], spans: Spans) -> tuple[list[Tensor], list[Tensor], Spans]:
    """Add a key with value zero to empty spans; keys and values: [T, H, k] of each layer.

    Attention to an empty span then returns zeros, as in the full pass, not a mean of nothing.
    """
    empty = spans.lengths == 0
    if not bool(empty.any()):
        return keys, values, spans
    starts = torch.where(empty, len(keys[0]), spans.starts)
    keys, values = ([F.pad(x, (0, 0, 0, 0, 0, 1)) for x in side] for side in (keys, values))
    return keys, values, Spans(starts, spans.lengths.clamp(min=1))


class SentenceCrossCache(Cache):
    """Keys and values of the source sentence of each hypothesis, fetched only when the sentence changes."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], sentences: Spans, hypotheses: int) -> None:
        """keys, values: for each layer [T, H, k] over the memory; sentences: its span for each source sentence."""
        self.packed = list(zip(keys, values, strict=True))
        device = keys[0].device
        self.starts = sentences.starts.to(device)
        self.lengths, self.longest = sentences.lengths.to(device), int(sentences.lengths.max())
        heads, width = keys[0].shape[1:]
        self.buffer = keys[0].new_zeros(len(keys), 2, hypotheses, heads, 0, width)
        self.cached_sentences = torch.full((hypotheses,), -1, device=device)

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        needed = int(self.lengths[sentences].max()) if can_synchronize(sentences.device) else self.longest
        if needed > self.buffer.shape[4]:
            self.buffer = F.pad(self.buffer, (0, 0, 0, -(-needed // _CHUNK) * _CHUNK - self.buffer.shape[4]))
            self.cached_sentences.fill_(-1)  # what is cached has the old size
        changed = (self.cached_sentences != sentences).nonzero().flatten()
        if len(changed):
            self._fetch(changed, sentences[changed])
            self.cached_sentences = sentences.clone()
            offsets = torch.arange(self.buffer.shape[4], device=sentences.device)
            self.bias = build_mask_bias(offsets < self.lengths[sentences][:, None], self.buffer.dtype)

    def _fetch(self, hypotheses: Tensor, sentences: Tensor) -> None:
        """Copy the keys and values of these sentences to these hypotheses."""
        offsets = torch.arange(self.buffer.shape[4], device=hypotheses.device)
        inside = torch.minimum(offsets, self.lengths[sentences][:, None] - 1)
        tokens = self.starts[sentences][:, None] + inside  # [n, L]
        for layer, pair in enumerate(self.packed):
            for side, packed in enumerate(pair):
                self.buffer[layer, side, hypotheses] = packed[tokens].transpose(1, 2)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the source sentence: [R, H, k]."""
        keys, values = self.buffer[layer]
        return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=self.bias)[:, :, 0]

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these hypotheses with their cached sentences."""
        self.buffer = self.buffer.index_select(2, hypotheses)
        self.cached_sentences = self.cached_sentences[hypotheses]
        self.bias = self.bias[hypotheses]


class DocumentCrossCache(Cache):
    """Keys and values that a search row sees at every step, stored once for all its beams."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], visible: Spans, beams: int) -> None:
        """keys, values: for each layer [T, H, k] over the memory; visible: the span that each search row sees."""
        self.beams = beams
        lengths = visible.lengths.to(keys[0].device)
        offsets = torch.arange(int(lengths.max()), device=lengths.device)
        inside = torch.minimum(offsets, lengths[:, None] - 1)
        tokens = visible.starts.to(lengths.device)[:, None] + inside  # [D, L]
        self.keys = [packed[tokens].transpose(1, 2).contiguous() for packed in keys]  # [D, H, L, k]
        self.values = [packed[tokens].transpose(1, 2).contiguous() for packed in values]
        self.lengths = lengths
        self.bias = self._make_bias()

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the span of the search row: [R, H, k]."""
        by_row = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, k]
        result = F.scaled_dot_product_attention(by_row, self.keys[layer], self.values[layer], attn_mask=self.bias)
        return result.transpose(1, 2).flatten(0, 1)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """See `Cache`."""
        self.lengths = self.lengths[rows]
        longest = int(self.lengths.max())
        self.keys = [keys[rows, :, :longest] for keys in self.keys]
        self.values = [values[rows, :, :longest] for values in self.values]
        self.bias = self._make_bias()

    def _make_bias(self) -> Tensor | None:
        """Return the bias of padded positions, or None without any."""
        offsets = torch.arange(self.keys[0].shape[2], device=self.lengths.device)
        visible = offsets < self.lengths[:, None]
        return None if bool(visible.all()) else build_mask_bias(visible, self.keys[0].dtype)


class SentencesBeforeCache(Cache):
    """Keys and values of all tokens of a hypothesis; each of the K sentences before is attended to separately."""

    def __init__(self, layers: int, hypotheses: int, like: Tensor, heads: int, scope: AttentionScope) -> None:
        """scope: its `offset` is K."""
        self.scope = scope
        self.buffer = like.new_zeros(layers, 2, hypotheses, heads, _CHUNK, like.shape[-1] // heads)
        # Sentence of each position, and offset in the sentence.
        self.numbers, self.offsets = torch.zeros(2, hypotheses, 0, dtype=torch.int64, device=like.device)
        self.double_buffer = _DoubleBuffer()

    def start_after(
        self, pairs: Sequence[tuple[Tensor, Tensor]], numbers: Tensor, offsets: Tensor, exists: Tensor
    ) -> None:
        """Begin with P positions of each hypothesis, as far as they exist (`exists` [R, P]).

        pairs: for each layer [R, H, P, k]. numbers [R, P]: source sentence of each position. offsets [R, P]: offset in
        its sentence.
        """
        self.buffer = torch.stack([torch.stack(pair) for pair in pairs])
        hidden_number = -1 - self.scope.offset  # a sentence that no hypothesis sees
        device = self.buffer.device
        self.numbers, self.offsets = numbers.masked_fill(~exists, hidden_number).to(device), offsets.to(device)

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        self._add_position(offsets, sentences)
        opening, closing = self.scope.trim
        # A token is one of the last `closing` ones where the token that many positions later is of another sentence.
        later = F.pad(self.numbers, (0, closing), value=-1)[:, closing:]
        is_word = (self.offsets >= opening) & (later == self.numbers)  # [R, L]
        back = torch.arange(self.scope.offset, 0, -1, device=sentences.device)
        visible = (self.numbers[:, None] == (sentences[:, None] - back)[:, :, None]) & is_word[:, None]  # [R, K, L]
        self.sentence_exists = visible.any(-1)
        # A missing sentence would give NaN: all keys are visible instead, and the result is set to zero.
        self.bias = build_mask_bias((visible | ~self.sentence_exists[..., None]).flatten(0, 1), self.buffer.dtype)
        self.bias = self.bias.view(len(visible), 1, *visible.shape[1:])  # [R, 1, K, L]

    def _add_position(self, offsets: Tensor, sentences: Tensor) -> None:
        """Make room for the new token; see `begin_step`."""
        self.numbers = torch.cat((self.numbers, sentences[:, None]), dim=1)
        self.offsets = torch.cat((self.offsets, offsets[:, None]), dim=1)
        self.buffer = _with_capacity(self.buffer, self.numbers.shape[1])

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        position = self.numbers.shape[1] - 1
        self.buffer[layer, :, :, :, position] = pair.transpose(0, 1)

    def attend_preceding(self, layer: int, query: Tensor) -> Tensor:
        """Attend to each sentence before, oldest first: [R, H, k] -> [R, K, H, k]."""
        keys, values = self.buffer[layer, :, :, :, : self.numbers.shape[1]]
        query = query[:, :, None].expand(-1, -1, self.scope.offset, -1)
        result = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=self.bias.expand(-1, query.shape[1], -1, -1)
        )
        return result.transpose(1, 2) * self.sentence_exists[..., None, None]

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i]."""
        self.buffer = self.double_buffer.select(self.buffer, hypotheses)
        self.numbers, self.offsets = self.numbers[hypotheses], self.offsets[hypotheses]


class RecentSelfCache(SentencesBeforeCache):
    """Keys and values of all tokens of a hypothesis, of which it sees its sentence and the K before."""

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        self._add_position(offsets, sentences)
        is_visible = self.numbers >= (sentences - self.scope.offset)[:, None]  # [R, L]
        self.bias = build_mask_bias(is_visible, self.buffer.dtype)
        if self.distances is not None:
            last = torch.full((1,), self.numbers.shape[1] - 1, device=sentences.device)
            self.bias = self.bias + self.distances(last, self.numbers.shape[1]).to(self.bias.dtype)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the sentence and those before it: [R, H, k]."""
        keys, values = self.buffer[layer, :, :, :, : self.numbers.shape[1]]
        return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=self.bias)[:, :, 0]


class LinearSelfCache(Cache):
    """State of linear attention of each hypothesis, with the gate that applies when its sentence ends."""

    def __init__(self, layers: int, like: LinearAttention) -> None:
        """like: one of the attentions, which differ in their weights alone."""
        self.averaging, self.floor, self.joined = like.is_averaging, like.features.min_denominator, like.joined
        self.opened: Tensor | None = None  # [R, 1] whether the last token opened a sentence (not the first)
        self.states: list[Tensor | None] = [None] * layers  # [R, H, F, k + 1]
        self.gates: list[Tensor | None] = [None] * layers  # [R, H] after the last token, in 0..1
        self.fresh: list[Tensor | None] = [None] * layers  # [R, H] weight of the sentence's keys

    def start_after(self, states: Sequence[tuple[Tensor, Tensor | None]]) -> None:
        """Begin with a state [R, H, F, k + 1] and a decay [R, H] (or None) of each layer."""
        self.states[:] = [state for state, _ in states]
        self.gates[:] = [decay for _, decay in states]
        self.fresh[:] = [None if decay is None else 1.0 - decay for decay in self.gates]

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        is_opening = (offsets == 0)[:, None]
        if self.joined:
            # The joining token belongs to the sentence that it ends; the decay applies from the next token on.
            self.sentence_begins = torch.zeros_like(is_opening) if self.opened is None else self.opened
            self.opened = torch.zeros_like(is_opening) if self.opened is None else is_opening
        else:
            self.sentence_begins = is_opening

    def update(self, layer: int, key: Tensor, value: Tensor, gates: Tensor | None) -> None:
        """Add features [R, H, F] and values [R, H, k]; gates [R, H], before the sigmoid, if there are any."""
        self.key, self.value = key, value
        self.decay: Tensor | None = None
        if gates is None:
            return
        before, fresh = self.gates[layer], self.fresh[layer]
        self.gates[layer] = gates.sigmoid()
        if before is None or fresh is None:  # the first sentence weighs all
            self.fresh[layer] = torch.ones_like(gates)
            return
        self.decay = torch.where(self.sentence_begins, before, 1.0)
        self.fresh[layer] = fresh = torch.where(self.sentence_begins, 1.0 - before, fresh)
        if self.averaging:
            self.key = key * fresh[..., None]

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the state: [R, H, F] -> [R, H, k]."""
        state = self.states[layer]
        if state is None:
            state = self.key.new_zeros(*self.key.shape, self.value.shape[-1] + 1)
        result, self.states[layer] = step_linear(state, query, self.key, self.value, self.decay, self.floor)
        return result

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i]."""
        for tensors in (self.states, self.gates, self.fresh):
            tensors[:] = [None if x is None else x.index_select(0, hypotheses) for x in tensors]
        self.opened = None if self.opened is None else self.opened.index_select(0, hypotheses)


def compute_cross_states(attentions: Sequence[Attention], states: Sequence[Tensor], spans: Spans) -> list[Tensor]:
    """Return the states [D, H, F, k + 1] of linear attention over each of D spans of the memory states [T, d]."""
    result = []
    for attention, x in zip(attentions, states, strict=True):
        assert isinstance(attention, LinearAttention)
        key, value = attention.split_heads(attention.key(x)), attention.project_values(x)
        result.append(compute_states(key, value, spans, attention.build_feature_map(), attention.key_log_weights(key)))
    return result


class LinearCrossCache(Cache):
    """States of linear attention over what each search row sees."""

    def __init__(self, states: Sequence[Tensor], beams: int, floor: float) -> None:
        """states: for each layer [D, H, F, k + 1]; floor: least denominator."""
        self.states, self.beams, self.floor = list(states), beams, floor

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the states: [R, H, F] -> [R, H, k]."""
        by_row = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, F]
        return read_states(by_row, self.states[layer], self.floor).transpose(1, 2).flatten(0, 1)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """See `Cache`."""
        self.states = [x.index_select(0, rows) for x in self.states]
