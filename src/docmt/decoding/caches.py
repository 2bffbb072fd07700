"""What a decoder remembers between steps, one cache for each kind of attention; no prefix is ever recomputed.

Notation: D documents, B hypotheses (beams) of each, R = D * B rows (row = document * B + beam), H heads, k = d / H,
L keys. F features of a head in linear attention.
All rows are at the same step: beams compete at equal length. A step's query, key and value are [R, H, k].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.attention import Attention
from docmt.model.embeddings import Distances
from docmt.model.linear import linear_states, read_linear, step_linear
from docmt.model.linear_attention import LinearAttention
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans

_CHUNK = 16  # caches grow by this many positions
_STEP = 4  # and are read in whole steps of so many: few different shapes, which have to be prepared once each


_CHECK_EVERY = 8  # steps between two times that the host asks a GPU for a number


def answers_at_once(device: torch.device) -> bool:
    """Return whether the host may ask for a number at every step: on a GPU it would wait for all that is queued."""
    return device.type == "cpu"


def bias_of(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """[n, L] bool -> [n, 1, 1, L] with minus infinity where a key must not be seen."""
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, -math.inf)[:, None, None, :]


class Cache:
    """What all attentions of one class and scope remember; the parts of the layers lie in it by number."""

    distances: Distances | None = None
    """biases of distances, which these attentions share, of self-attention to a sentence or a document"""

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """offsets [R]: position of the new token in its sentence; sentences [R]: number of its source sentence."""

    def store(self, layer: int, pair: Tensor) -> None:
        """Takes in the step's key and value of self-attention: [R, 2, H, k]."""

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, k] -> [R, H, k]"""
        raise NotImplementedError

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] of the same document remembers."""

    def share(self, common: int) -> None:
        """The next `common` positions not yet shared are the same in all beams of each document."""

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """Goes on with these documents (numbers as of now) and their rows only."""
        self.reorder(rows)


class _Swapped:
    """Reorders the rows (axis 2) of a buffer into a second one and back: fresh memory for every step is slower."""

    def __init__(self) -> None:
        self.spare: Tensor | None = None

    def select(self, buffer: Tensor, rows: Tensor) -> Tensor:
        """buffer[:, :, rows], in memory that is not the buffer's; the buffer's own must not be used any more."""
        shape = (*buffer.shape[:2], len(rows), *buffer.shape[3:])
        spare = self.spare if self.spare is not None and self.spare.shape == shape else buffer.new_empty(shape)
        self.spare = buffer
        return torch.index_select(buffer, 2, rows, out=spare)


class SentenceSelfCache(Cache):
    """Keys and values of the sentence each row is in; those of earlier sentences are overwritten."""

    def __init__(self, layers: int, rows: int, like: Tensor, heads: int) -> None:
        self.buffer = like.new_zeros(layers, 2, rows, heads, _CHUNK, like.shape[-1] // heads)
        self.length = self.steps = 0
        self.longest = 0  # tokens that the sentence of a row has at most
        self.swapped = _Swapped()

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        asks = answers_at_once(offsets.device) or self.steps % _CHECK_EVERY == 0
        self.longest = int(offsets.max()) + 1 if asks else self.longest + 1
        self.steps += 1
        self.length = -(-self.longest // _STEP) * _STEP
        if self.length > self.buffer.shape[4]:
            self.buffer = F.pad(self.buffer, (0, 0, 0, _CHUNK))
        self.rows = torch.arange(len(offsets), device=offsets.device)
        self.offsets = offsets
        positions = torch.arange(self.length, device=self.buffer.device)
        self.bias = bias_of(positions <= offsets[:, None], self.buffer.dtype)
        if self.distances is not None:
            self.bias = self.bias + self.distances(offsets[:, None], self.length).to(self.bias.dtype)

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        self.buffer[layer][:, self.rows, :, self.offsets] = pair

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attends to the sentence so far: [R, H, k]."""
        keys, values = self.buffer[layer, :, :, :, : self.length]
        return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=self.bias)[:, :, 0]

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] remembers."""
        used = min(-(-self.length // _CHUNK) * _CHUNK, self.buffer.shape[4])
        if used < self.buffer.shape[4]:
            self.buffer = self.buffer[:, :, :, :, :used].contiguous()
        self.buffer = self.swapped.select(self.buffer, rows)


class DocumentSelfCache(Cache):
    """Keys and values of the whole document so far.

    What all beams of every document have in common is stored once a document (`prefix`), the rest once a row
    (`tail`): reordering beams then moves only the tail, so a step's cost hardly grows with the document.
    """

    def __init__(self, layers: int, documents: int, beams: int, like: Tensor, heads: int) -> None:
        width = like.shape[-1] // heads
        self.beams = beams
        # With beams it is exactly as long as what is in use: bfloat16 products of a part of a buffer copy that part.
        self.prefix = like.new_zeros(layers, 2, documents, heads, 0 if beams > 1 else 4 * _CHUNK, width)
        self.tail = like.new_zeros(layers, 2, documents * beams, heads, _CHUNK, width)
        self.shared = self.own = 0  # positions in use of prefix and tail
        self.read = 0  # positions of the tail that are read, those beyond `own` in vain
        self.swapped = _Swapped()
        self.lengths: Tensor | None = None  # [D] how many of the first `before` positions are there, the last of them
        self.before = 0

    def go_on_after(self, pairs: Sequence[tuple[Tensor, Tensor]], lengths: Tensor) -> None:
        """Begins with so many positions of each document; pairs: for each layer [D, H, P, k], the last ones count."""
        self.prefix = torch.stack([torch.stack(pair) for pair in pairs])
        self.shared = self.before = self.prefix.shape[4]
        self.lengths = None if bool((lengths == self.before).all()) else lengths

    def _hidden(self) -> Tensor | None:
        """[D, 1, 1, shared] with minus infinity where there is nothing."""
        if self.lengths is None:
            return None
        places = torch.arange(self.before, device=self.lengths.device)
        bias = bias_of(places >= self.before - self.lengths[:, None], self.prefix.dtype)
        return F.pad(bias, (0, self.shared - self.before))

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """Makes room for one more position."""
        if self.beams == 1:
            self.shared += 1
            self.prefix = _with_room(self.prefix, self.shared)
        else:
            self.own += 1
            # The tail is read in whole chunks: products of ever new shapes cost bfloat16 on CPU a millisecond each.
            self.read = -(-self.own // _CHUNK) * _CHUNK
            self.tail = _with_room(self.tail, self.read)
            positions = torch.arange(self.read, device=self.tail.device)
            self.bias = bias_of(positions[None] < self.own, self.tail.dtype)[0, 0]  # [1, read]
        self.biases: Tensor | None = None  # [H, 1, shared + read]
        if self.distances is not None:
            place = torch.tensor([self.shared + self.own - 1], device=self.tail.device)
            self.biases = self.distances(place, self.shared + self.read).to(self.tail.dtype)
        self.hidden = self._hidden()

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        buffer, place = (self.prefix, self.shared - 1) if self.beams == 1 else (self.tail, self.own - 1)
        buffer[layer, :, :, :, place] = pair.transpose(0, 1)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attends to the document so far: [R, H, k]."""
        if self.beams == 1:
            keys, values = self.prefix[layer, :, :, :, : self.shared]
            bias = None if self.biases is None else self.biases.expand(len(query), -1, -1, -1)
            if self.hidden is not None:
                bias = self.hidden if bias is None else bias + self.hidden
            return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=bias)[:, :, 0]
        tail_keys, tail_values = self.tail[layer, :, :, :, : self.read]
        prefix_keys, prefix_values = self.prefix[layer]
        query = query * query.shape[-1] ** -0.5
        by_document = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, k]
        before = torch.matmul(by_document, prefix_keys.transpose(-1, -2))  # [D, H, B, shared]
        if self.hidden is not None:
            before = before + self.hidden
        before = before.transpose(1, 2).flatten(0, 1)  # [R, H, shared]
        own = torch.matmul(query[:, :, None], tail_keys.transpose(-1, -2))[:, :, 0] + self.bias  # [R, H, read]
        scores = torch.cat((before, own), dim=-1)
        weights = (scores if self.biases is None else scores + self.biases[:, 0]).softmax(-1)
        before, own = weights.split((self.shared, self.read), dim=-1)
        result = torch.matmul(own[:, :, None], tail_values)[:, :, 0]
        by_document = before.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, shared]
        return result + torch.matmul(by_document, prefix_values).transpose(1, 2).flatten(0, 1)

    def share(self, common: int) -> None:
        """Moves the first `common` positions of the tail, the same in all beams of a document, to the prefix."""
        self.prefix = torch.cat((self.prefix, self.tail[:, :, :: self.beams, :, :common]), dim=4)
        self.tail = self.tail[:, :, :, :, common:].contiguous()
        self.shared += common
        self.own -= common
        self.read -= common

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] of the same document remembers."""
        if self.beams > 1:
            if self.read < self.tail.shape[4]:
                self.tail = self.tail[:, :, :, :, : self.read].contiguous()
            self.tail = self.swapped.select(self.tail, rows)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """Goes on with these rows and documents only."""
        self.reorder(rows)
        self.prefix = self.prefix[:, :, :, :, : self.shared].index_select(2, documents)
        if self.lengths is not None:
            self.lengths = self.lengths[documents]


def _with_room(buffer: Tensor, length: int) -> Tensor:
    """Grows the position axis by half where `length` does not fit, so copies are rare."""
    capacity = buffer.shape[4]
    if length <= capacity:
        return buffer
    return F.pad(buffer, (0, 0, 0, max(length - capacity, capacity // 2, _CHUNK)))


def keys_and_values(attentions: Sequence[Attention], states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Of each attention, and of the states [T, d] that it looks at: [T, H, k]."""
    pairs = list(zip(attentions, states, strict=True))
    keys = [attention.split(attention.key(own)) for attention, own in pairs]
    return keys, [attention.split(attention.value(own)) for attention, own in pairs]


def with_something(keys: list[Tensor], values: list[Tensor], spans: Spans) -> tuple[list[Tensor], list[Tensor], Spans]:
    """The same [T, H, k] of each layer where every span has a key: an empty one gets one whose value is zero.

    So attention to nothing finds zeros, as in the full pass, not the mean of no numbers.
    """
    empty = spans.lengths == 0
    if not bool(empty.any()):
        return keys, values, spans
    starts = torch.where(empty, len(keys[0]), spans.starts)
    keys, values = ([F.pad(own, (0, 0, 0, 0, 0, 1)) for own in side] for side in (keys, values))
    return keys, values, Spans(starts, spans.lengths.clamp(min=1))


class SentenceCrossCache(Cache):
    """Keys and values of what belongs to the sentence that each row is in; fetched anew only where that changes."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], sentences: Spans, rows: int) -> None:
        """keys, values: for each layer [T, H, k] over the memory; sentences: its span for each source sentence."""
        self.packed = list(zip(keys, values, strict=True))
        device = keys[0].device
        self.starts = sentences.starts.to(device)
        self.lengths, self.longest = sentences.lengths.to(device), int(sentences.lengths.max())
        heads, width = keys[0].shape[1:]
        self.buffer = keys[0].new_zeros(len(keys), 2, rows, heads, 0, width)
        self.held = torch.full((rows,), -1, device=device)

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        needed = int(self.lengths[sentences].max()) if answers_at_once(sentences.device) else self.longest
        if needed > self.buffer.shape[4]:
            self.buffer = F.pad(self.buffer, (0, 0, 0, -(-needed // _CHUNK) * _CHUNK - self.buffer.shape[4]))
            self.held.fill_(-1)  # shorter rows were cut to the old size
        changed = (self.held != sentences).nonzero().flatten()
        if len(changed):
            self._fetch(changed, sentences[changed])
            self.held = sentences.clone()
            offsets = torch.arange(self.buffer.shape[4], device=sentences.device)
            self.bias = bias_of(offsets < self.lengths[sentences][:, None], self.buffer.dtype)

    def _fetch(self, rows: Tensor, sentences: Tensor) -> None:
        offsets = torch.arange(self.buffer.shape[4], device=rows.device)
        inside = torch.minimum(offsets, self.lengths[sentences][:, None] - 1)
        tokens = self.starts[sentences][:, None] + inside  # [n, L]
        for layer, pair in enumerate(self.packed):
            for which, packed in enumerate(pair):
                self.buffer[layer, which, rows] = packed[tokens].transpose(1, 2)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, k]"""
        keys, values = self.buffer[layer]
        return F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=self.bias)[:, :, 0]

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """Each row still holds the sentence it held."""
        self.buffer = self.buffer.index_select(2, rows)
        self.held = self.held[rows]
        self.bias = self.bias[rows]


class DocumentCrossCache(Cache):
    """Keys and values of what a document looks at all the time, stored once for all its beams."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], seen: Spans, beams: int) -> None:
        """keys, values: for each layer [T, H, k] over the memory; seen: the span of it that each document sees."""
        self.beams = beams
        lengths = seen.lengths.to(keys[0].device)
        offsets = torch.arange(int(lengths.max()), device=lengths.device)
        inside = torch.minimum(offsets, lengths[:, None] - 1)
        tokens = seen.starts.to(lengths.device)[:, None] + inside  # [D, L]
        self.keys = [packed[tokens].transpose(1, 2).contiguous() for packed in keys]  # [D, H, L, k]
        self.values = [packed[tokens].transpose(1, 2).contiguous() for packed in values]
        self.lengths = lengths
        self.bias = self._make_bias()

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, k]"""
        by_document = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, k]
        result = F.scaled_dot_product_attention(by_document, self.keys[layer], self.values[layer], attn_mask=self.bias)
        return result.transpose(1, 2).flatten(0, 1)

    def keep(self, rows: Tensor, documents: Tensor) -> None:
        """See `Cache`."""
        self.lengths = self.lengths[documents]
        longest = int(self.lengths.max())
        self.keys = [keys[documents, :, :longest] for keys in self.keys]
        self.values = [values[documents, :, :longest] for values in self.values]
        self.bias = self._make_bias()

    def _make_bias(self) -> Tensor | None:
        offsets = torch.arange(self.keys[0].shape[2], device=self.lengths.device)
        keep = offsets < self.lengths[:, None]
        return None if bool(keep.all()) else bias_of(keep, self.keys[0].dtype)


class SentencesBeforeCache(Cache):
    """Keys and values of all that a row has said, of which each of the K sentences before the row's is seen alone."""

    def __init__(self, layers: int, rows: int, like: Tensor, heads: int, scope: AttentionScope) -> None:
        """scope: its `back` is K."""
        self.scope = scope
        self.buffer = like.new_zeros(layers, 2, rows, heads, _CHUNK, like.shape[-1] // heads)
        # Of each position: its sentence, and its place there.
        self.numbers, self.offsets = torch.zeros(2, rows, 0, dtype=torch.int64, device=like.device)
        self.swapped = _Swapped()

    def go_on_after(
        self, pairs: Sequence[tuple[Tensor, Tensor]], numbers: Tensor, offsets: Tensor, there: Tensor
    ) -> None:
        """Begins with P positions of each row, as far as they are `there` [R, P]; pairs: for each layer [R, H, P, k];
        numbers [R, P]: of each position's source sentence; offsets [R, P]: its place in its sentence."""
        self.buffer = torch.stack([torch.stack(pair) for pair in pairs])
        nowhere = -1 - self.scope.back  # no row looks there
        device = self.buffer.device
        self.numbers, self.offsets = numbers.masked_fill(~there, nowhere).to(device), offsets.to(device)

    def begin_step(self, offsets: Tensor, sentences: Tensor) -> None:
        """See `Cache`."""
        self.numbers = torch.cat((self.numbers, sentences[:, None]), dim=1)
        self.offsets = torch.cat((self.offsets, offsets[:, None]), dim=1)
        self.buffer = _with_room(self.buffer, self.numbers.shape[1])
        opening, closing = self.scope.marks
        # A token is one of the last where the one that many further on is of another sentence.
        further = F.pad(self.numbers, (0, closing), value=-1)[:, closing:]
        word = (self.offsets >= opening) & (further == self.numbers)  # [R, L]
        back = torch.arange(self.scope.back, 0, -1, device=sentences.device)
        seen = (self.numbers[:, None] == (sentences[:, None] - back)[:, :, None]) & word[:, None]  # [R, K, L]
        self.there = seen.any(-1)
        # Attention to nothing has no numbers: it sees everything, and finds zeros all the same.
        self.bias = bias_of((seen | ~self.there[..., None]).flatten(0, 1), self.buffer.dtype)
        self.bias = self.bias.view(len(seen), 1, *seen.shape[1:])  # [R, 1, K, L]

    def store(self, layer: int, pair: Tensor) -> None:
        """See `Cache`."""
        place = self.numbers.shape[1] - 1
        self.buffer[layer, :, :, :, place] = pair.transpose(0, 1)

    def attend_before(self, layer: int, query: Tensor) -> Tensor:
        """[R, H, k] -> [R, K, H, k]: what is found in each of the sentences before, oldest first."""
        keys, values = self.buffer[layer, :, :, :, : self.numbers.shape[1]]
        query = query[:, :, None].expand(-1, -1, self.scope.back, -1)
        found = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=self.bias.expand(-1, query.shape[1], -1, -1)
        )
        return found.transpose(1, 2) * self.there[..., None, None]

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] remembers."""
        self.buffer = self.swapped.select(self.buffer, rows)
        self.numbers, self.offsets = self.numbers[rows], self.offsets[rows]


class LinearSelfCache(Cache):
    """The state of each row, with the gate that waits for its sentence to end."""

    def __init__(self, layers: int, like: LinearAttention) -> None:
        """like: one of the attentions, which differ in their weights alone."""
        self.averaging, self.floor, self.joined = like.averaging, like.features.floor, like.joined
        self.opened: Tensor | None = None  # [R, 1] whether the last token opened a sentence (not the first)
        self.states: list[Tensor | None] = [None] * layers  # [R, H, F, k + 1]
        self.gates: list[Tensor | None] = [None] * layers  # [R, H] after the last token, in 0..1
        self.fresh: list[Tensor | None] = [None] * layers  # [R, H] what the sentence's keys weigh

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
