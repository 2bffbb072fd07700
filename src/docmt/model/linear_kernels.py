"""Linear attention, computed chunk by chunk or token by token (Peng et al. 2021; Wu et al. 2022).

Shapes: T tokens, H heads, k = d / H, F features. With features phi the output of a query q is
sum_s w_s v_s / max(sum_s w_s, min_denominator), w_s = phi(q) . phi(k_s). The sums over s form a state [H, F, k + 1],
whose last column is the denominator. `attend_linear` updates it per chunk, `step_linear` per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from docmt.model.kernels import AttentionPattern, Rows, gather_rows, product_dtype, scatter_rows
from docmt.model.spans import Spans

CHUNK = 64
"""Tokens of a chunk. All pairs within a chunk are computed, and states connect chunks."""
BLOCK = 4096
"""Tokens of a block of chunks. Its features stay in memory, and are recomputed for gradients."""

_MAX_SENTENCES = 64  # sentences whose states are in memory at a time

Features = Callable[[Tensor], Tensor]
"""Maps queries or keys [H, n, k] to features [H, n, F]."""


def attend_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    *,
    min_denominator: float,
    features: Features | None = None,
    log_decay: Tensor | None = None,
    input_weights: Tensor | None = None,
    log_weights: Tensor | None = None,
    chunk: int = CHUNK,
    block: int = BLOCK,
) -> Tensor:
    """Attend from each query segment to its key span, in time and memory linear in their lengths.

    query [Tq, H, k], key and value [Tk, H, k]; returns [Tq, H, k]. Without `features`, query and key are features
    already, [T, H, F]. A causal pattern needs equal query and key spans. Autocast sets the precision of products. Sums
    of chunks are float32.

    min_denominator: lower bound of denominators.
    log_decay [T, H], for causal patterns: the cumulative log decay from the start. For query t the weight of key s is
    multiplied by exp(log_decay_t - log_decay_s).
    input_weights [T, H], for causal patterns: initial weights of keys.
    log_weights [Tk, H], for other patterns: log weights of keys, relative to the largest of the span, which gets no
    gradient.
    """
    dtype = product_dtype(query.device, _sum_dtype(query.dtype))
    with torch.autocast(query.device.type, enabled=False):
        heads, device = query.shape[1], query.device

        def split(side: str, spans: Spans, total: int) -> Chunks:
            name = ("chunks", side, chunk, block, heads, device)
            return pattern.get_or_build(name, lambda: Chunks(spans, heads, total, device, chunk, block))

        chunks = split("queries", pattern.queries, pattern.query_total)
        if pattern.causal:
            if not pattern.queries.equals(pattern.keys):
                raise ValueError("causal linear attention needs equal query and key spans: pass the same spans twice")
            weights = None if input_weights is None else chunks.gather(input_weights[..., None])[..., 0]
            values = chunks.weigh_values(value, dtype, weights)
            decay = None if log_decay is None else chunks.gather(log_decay[..., None])[..., 0].view(heads, -1, chunk)
            sums = _attend_causal(chunks.gather(query), chunks.gather(key), values, features, decay, chunks)
        else:
            key_chunks = split("keys", pattern.keys, pattern.key_total)
            values = key_chunks.weigh_values(value, dtype, key_chunks.relative_weights(log_weights))
            states = _compute_segment_states(key, values, key_chunks, features)
            sums = _read_segment_states(chunks.gather(query), states.to(dtype), features, chunks)
        return chunks.scatter(_normalize(sums, min_denominator))


def compute_states(
    key: Tensor, value: Tensor, keys: Spans, features: Features | None = None, log_weights: Tensor | None = None
) -> Tensor:
    """Return the state [S, H, F, k + 1] of each span; see `attend_linear`."""
    dtype = product_dtype(key.device, _sum_dtype(key.dtype))
    with torch.autocast(key.device.type, enabled=False):
        key_chunks = Chunks(keys, key.shape[1], len(key), key.device)
        values = key_chunks.weigh_values(value, dtype, key_chunks.relative_weights(log_weights))
        return _compute_segment_states(key, values, key_chunks, features)


def compute_states_after(
    key: Tensor,
    value: Tensor,
    sentences: Spans,
    visible: Tensor,
    prefix: Spans,
    *,
    features: Features | None = None,
    log_decay: Tensor | None = None,
    input_weights: Tensor | None = None,
) -> Tensor:
    """Return R states [R, H, F, k + 1] of causal attention after several sentences and a prefix of the next one.

    `visible` [R, S] selects the sentences. `prefix` has R spans, possibly empty. key and value are [T, H, k]. log_decay
    and input_weights [T, H] are those of `attend_linear`, constant within a sentence.
    """
    total, last = compute_states(key, value, prefix, features), (prefix.ends - 1).clamp(min=0)
    if input_weights is not None:
        total = total * input_weights[prefix.starts].to(total)[..., None, None]
    for indices in visible.any(0).nonzero().flatten().split(_MAX_SENTENCES):  # limits memory
        states, starts = compute_states(key, value, sentences.select(indices), features), sentences.starts[indices]
        retention = visible[:, indices, None].to(states).expand(-1, -1, key.shape[1])  # [R, n, H]
        if log_decay is not None:
            retention = retention * (log_decay[last][:, None] - log_decay[starts]).clamp(max=0).exp().to(states)
        if input_weights is not None:
            retention = retention * input_weights[starts].to(states)
        with torch.autocast(key.device.type, enabled=False):
            total = total + torch.einsum("rsh,shfk->rhfk", retention, states)
    return total


def _compute_segment_states(key: Tensor, values: Tensor, chunks: Chunks, features: Features | None) -> Tensor:
    """Return the state [S, H, F, k + 1] of each span. values: of `Chunks.weigh_values`."""
    k = chunks.gather(key)
    parts = []
    for rows, _ in chunks.blocks():
        parts.append(_recompute(_compute_chunk_states, k[:, rows], values[:, rows], features, chunks.size))
    states = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]  # [H, N, F, k + 1]
    if not chunks.has_one_per_segment:
        empty = states.new_zeros(len(states), chunks.count, *states.shape[2:])
        states = empty.index_add(1, chunks.segments, states)
    return states.transpose(0, 1)


def _compute_chunk_states(k: Tensor, v: Tensor, features: Features | None, chunk: int) -> Tensor:
    """Return the states [H, B, F, k + 1] of B chunks of keys [H, B * C, k] and values [H, B * C, k + 1]."""
    key_features = _apply_features(k, features, v.dtype)
    return torch.matmul(_split(key_features, chunk).mT, _split(v, chunk)).to(_sum_dtype(v.dtype))


def _read_segment_states(q: Tensor, states: Tensor, features: Features | None, chunks: Chunks) -> Tensor:
    """Read the states [S, H, F, k + 1] of their segments for queries [H, N * C, k]. Returns [H, N * C, k + 1]."""
    sums = []
    for rows, numbers in chunks.blocks():
        sums.append(_recompute(_read_block, q[:, rows], states, chunks.segments[numbers], features, chunks.size))
    return torch.cat(sums, dim=1) if len(sums) > 1 else sums[0]


def _read_block(q: Tensor, states: Tensor, segments: Tensor, features: Features | None, chunk: int) -> Tensor:
    segment_states = states.index_select(0, segments).transpose(0, 1)  # [H, B, F, k + 1]
    query_features = _split(_apply_features(q, features, states.dtype), chunk)
    return torch.matmul(query_features, segment_states).flatten(1, 2).to(_sum_dtype(states.dtype))


def _attend_causal(
    q: Tensor, k: Tensor, v: Tensor, features: Features | None, log_decay: Tensor | None, chunks: Chunks
) -> Tensor:
    """Return numerators and denominators [H, N * C, k + 1] of all tokens. log_decay: [H, N, C]."""
    sums = []
    state: Tensor | None = None
    state_decay: Tensor | None = None  # [H, 1] log decay of the last token in the state
    for rows, numbers in chunks.blocks():
        block_decay = None if log_decay is None else log_decay[:, numbers]
        retention = chunks.compute_retention(numbers, block_decay, state_decay, _sum_dtype(v.dtype))
        part, state = _recompute(
            _attend_causal_block, q[:, rows], k[:, rows], v[:, rows], state, block_decay, retention, features, chunks
        )
        state_decay = None if block_decay is None else block_decay[:, -1, -1:]
        sums.append(part)
    return torch.cat(sums, dim=1) if len(sums) > 1 else sums[0]


def _attend_causal_block(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor | None,
    log_decay: Tensor | None,
    retention: Tensor,
    features: Features | None,
    chunks: Chunks,
) -> tuple[Tensor, Tensor]:
    """Attend in B chunks of queries and keys [H, B * C, k] and values [H, B * C, k + 1]. Returns sums and a new state.

    state [H, 1, F, k + 1]: before the chunks; log_decay [H, B, C]; retention: of `Chunks.compute_retention`.
    """
    size = chunks.size
    q, k = (_apply_features(x, features, v.dtype) for x in (q, k))
    q, k, v = (_split(x, size) for x in (q, k, v))
    weights = torch.matmul(q, k.mT)  # [H, B, C, C]
    if log_decay is None:
        weights = weights.tril()
    else:
        # Log decay never grows along a span, so no exponential exceeds 1. Beyond the diagonal it is masked.
        between = (log_decay[..., None] - log_decay[..., None, :]).clamp(max=0).exp().tril()
        weights = weights * between.to(weights.dtype)
    sums = torch.matmul(weights, v).to(_sum_dtype(v.dtype))
    if log_decay is None:
        states = torch.matmul(k.mT, v)
    else:
        states = torch.matmul(k.mT, v * (log_decay[..., -1:] - log_decay).exp().to(v.dtype)[..., None])
    states = states.to(_sum_dtype(v.dtype))
    if state is None:
        state = torch.zeros_like(states[:, :1])
    before = torch.matmul(retention, torch.cat((state, states), dim=1).flatten(2)).unflatten(2, states.shape[2:])
    if log_decay is not None:
        q = q * (log_decay - log_decay[..., :1]).exp().to(q.dtype)[..., None]
    sums = sums + torch.matmul(q, before[:, :-1].to(q.dtype))
    return sums.flatten(1, 2), before[:, -1:]


def _apply_features(x: Tensor, features: Features | None, dtype: torch.dtype) -> Tensor:
    return (x if features is None else features(x)).to(dtype)


def _split(x: Tensor, chunk: int) -> Tensor:
    """[H, B * C, n] -> [H, B, C, n]"""
    return x.unflatten(1, (-1, chunk))


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _recompute(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function, and recompute it for gradients instead of storing its intermediate results."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


class Chunks:
    """Spans split into N chunks of C tokens in order. The last chunk of a span is padded."""

    def __init__(
        self, spans: Spans, heads: int, total: int, device: torch.device, size: int = CHUNK, block: int = BLOCK
    ) -> None:
        """total: T, the tokens of the sequence; size: C; block: tokens of a block of chunks."""
        self.heads, self.size, self.block = heads, size, max(block // size, 1)
        counts = -(-spans.lengths // size)
        self.count, self.has_one_per_segment = len(spans), bool((counts == 1).all())
        segments = torch.repeat_interleave(torch.arange(len(spans)), counts)
        offsets = Spans.tile(counts).positions()[:, None] * size + torch.arange(size)
        real = (offsets < spans.lengths[segments][:, None]).flatten()  # [N * C]
        last = spans.lengths[segments][:, None] - 1
        tokens = (spans.starts[segments][:, None] + torch.minimum(offsets, last)).flatten()
        rows = [(tokens * heads + head, real) for head in range(heads)]
        # Rows in several spans can be gathered, but not scattered.
        unique = -1 if spans.has_overlap() else total * heads
        self.rows = Rows(rows, unique, device)
        self.real = real.to(device)
        self.segments, self.host_segments = segments.to(device), segments

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield the blocks, at least one: the rows of its tokens in what is gathered, and the numbers of its chunks."""
        total = len(self.host_segments)
        for first in range(0, max(total, 1), self.block):
            last = min(first + self.block, total)
            yield slice(first * self.size, last * self.size), slice(first, last)

    def gather(self, x: Tensor) -> Tensor:
        """Gather x [T, H, n] into [H, N * C, n]. Padding repeats the last token of its span."""
        return gather_rows(x, self.rows).view(self.heads, -1, x.shape[-1])

    def scatter(self, x: Tensor) -> Tensor:
        """Scatter x [H, N * C, n] to [T, H, n]. The spans must lie end to end."""
        return scatter_rows(x.reshape(-1, x.shape[-1]), self.rows).view(-1, self.heads, x.shape[-1])

    def weigh_values(self, value: Tensor, dtype: torch.dtype, weights: Tensor | None) -> Tensor:
        """Append ones to values [T, H, k] and multiply by weights [H, N * C] (None: 1; padding: 0): [H, N * C, k +
        1]."""
        real = self.real.to(_sum_dtype(value.dtype))
        weights = real if weights is None else weights * real
        return (_append_ones(self.gather(value)) * weights[..., None]).to(dtype)

    def relative_weights(self, log_weights: Tensor | None) -> Tensor | None:
        """Return exp(log_weights [T, H]), divided by the largest of the span: [H, N * C]; None for None."""
        if log_weights is None:
            return None
        chunk_weights = self.gather(log_weights[..., None])[..., 0].view(self.heads, -1, self.size)
        largest = chunk_weights.new_full((self.heads, self.count), -math.inf)
        index = self.segments.expand(self.heads, -1)
        largest = largest.scatter_reduce(1, index, chunk_weights.detach().amax(dim=2), "amax")  # padding repeats tokens
        return (chunk_weights - largest[:, self.segments][..., None]).exp().flatten(1)

    def compute_retention(
        self, numbers: slice, log_decay: Tensor | None, state_decay: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """Return the share of each earlier state that remains at the chunks of a block, and after them.

        It is [H or 1, B + 1, B + 1]. The first column is for the state from earlier blocks. log_decay: [H, B, C];
        state_decay [H, 1]: log decay of the last token in that state.
        """
        segments, before = self.host_segments[numbers], self.host_segments[max(numbers.start - 1, 0)]
        earlier = torch.cat((before[None], segments))  # segments of the states
        later = torch.cat((segments, segments[-1:]))
        visible = (earlier == later[:, None]).tril()
        if numbers.start == 0:
            visible[:, 0] = False
        visible = visible.to(self.real.device)
        if log_decay is None:
            return visible.to(dtype)[None]
        lasts, firsts = log_decay[:, :, -1], log_decay[:, :, 0]  # [H, B]
        first_decay = firsts[:, :1] if state_decay is None else state_decay
        between = torch.cat((firsts, lasts[:, -1:]), dim=1)[..., None] - torch.cat((first_decay, lasts), dim=1)[:, None]
        return between.clamp(max=0).exp().to(dtype) * visible


def step_linear(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, retention: Tensor | None, min_denominator: float
) -> tuple[Tensor, Tensor]:
    """Attend causally from one token in each of R rows, in constant time and memory.

    state [R, H, F, k + 1], initially zeros; query and key [R, H, F], value [R, H, k]; retention [R, H]: the share of
    the state that remains. Returns [R, H, k] and the new state.
    """
    if retention is not None:
        state = state * retention[..., None, None]
    state = state + key[..., None] * _append_ones(value)[..., None, :]
    return read_states(query[..., None, :], state, min_denominator)[..., 0, :], state


def read_states(query: Tensor, state: Tensor, min_denominator: float) -> Tensor:
    """Read states [..., F, k + 1] with n queries [..., n, F]: [..., n, k]."""
    with torch.autocast(query.device.type, enabled=False):
        return _normalize(torch.matmul(query, state), min_denominator)


def _append_ones(value: Tensor) -> Tensor:
    """Append a one to value [..., k]: [..., k + 1]. The sum of the ones is the denominator."""
    return F.pad(value, (0, 1), value=1.0)


def _normalize(sums: Tensor, min_denominator: float) -> Tensor:
    """Divide numerators by denominators: sums [..., k + 1] -> [..., k]."""
    return sums[..., :-1] / sums[..., -1:].clamp(min=min_denominator)


@dataclass(frozen=True)
class GateDecay:
    """Decay of key weights by sentence gates (Wu et al. 2022, section 3.2).

    log_decay [T, H] is that of `attend_linear`. input_weights [T, H] multiply keys, None: by 1.
    """

    log_decay: Tensor
    input_weights: Tensor | None = None

    @classmethod
    def from_gates(cls, gates: Tensor, sentences: Spans, documents: Spans, averaging: bool = False) -> GateDecay:
        """Build the decay from gates [S, H] before the sigmoid: the share of the state that each sentence passes on.

        averaging: new keys get the weight 1 - g of the sentence before, or 1 in the first sentence of a document.
        """
        logs = F.logsigmoid(gates.double())  # float64 for differences of sums over books
        first = torch.zeros(len(sentences), dtype=torch.bool)
        first[sentences.find_segments(documents.starts)] = True
        first_column = first.to(gates.device)[:, None]
        before = F.pad(logs, (0, 0, 1, 0))[:-1].masked_fill(first_column, 0.0)  # [S, H] of the preceding sentence
        lengths = sentences.lengths.to(gates.device)
        # A sum through all documents is fine: only differences within a document count.
        log_decay = before.cumsum(0).repeat_interleave(lengths, dim=0)
        input_weights = None
        if averaging:
            rest = torch.sigmoid(-F.pad(gates, (0, 0, 1, 0))[:-1]).masked_fill(first_column, 1.0)
            input_weights = rest.repeat_interleave(lengths, dim=0)
        return cls(log_decay, input_weights)
