"""Attention in linear time: features for the softmax, fading by gates (Peng et al. 2021; Wu et al. 2022).

Shapes: T tokens, H heads, k = d / H, F features. With features phi a query finds sum_s w_s v_s / max(sum_s w_s, floor),
w_s = phi(q) . phi(k_s): the sums over s are a state [H, F, k + 1] (the last column is the denominator), so that nobody
need look at every key again. `attend_linear` does it chunk by chunk, `step_linear` token by token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from docmt.model.kernels import AttentionPattern, Rows, gather_rows, scatter_rows
from docmt.model.spans import Spans

CHUNK = 64
"""Tokens of a chunk, in which all pairs are looked at; between chunks there are states."""
BLOCK = 4096
"""Tokens of a block of chunks. Its features are in memory, and are computed again for its gradients."""

_STATES = 64  # sentences whose states are in memory at a time, where those that they leave are wanted

Features = Callable[[Tensor], Tensor]
"""The features [H, n, F] of queries or keys [H, n, k]."""


def attend_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    *,
    floor: float,
    features: Features | None = None,
    fading: Tensor | None = None,
    fresh: Tensor | None = None,
    salience: Tensor | None = None,
    chunk: int = CHUNK,
    block: int = BLOCK,
) -> Tensor:
    """What each segment of the queries finds in its span of the keys, in time and memory linear in their lengths.

    query [Tq, H, k], key [Tk, H, k] and value [Tk, H, k]; returns [Tq, H, k] (without `features` query and key are
    features already, [T, H, F]). In a causal pattern queries and keys are the same spans. floor: denominators are at
    least this. fading [T, H], of causal patterns only: the logarithm of what is left, from the begin on, of a key of
    weight 1; that of key s in the eyes of query t is multiplied by exp(fading_t - fading_s). fresh [T, H], of the same:
    what keys weigh to begin with. salience [Tk, H], of others only: the logarithm of a weight of each key; in each span
    they are divided by the largest, which gets no gradient. Under autocast products are in its precision, sums of
    chunks in float32.
    """
    dtype = _product_dtype(query)
    with torch.autocast(query.device.type, enabled=False):
        heads, device = query.shape[1], query.device
        asked = pattern.kept(
            ("asked", chunk, heads, device), lambda: Chunks(pattern.queries, chunk, heads, pattern.query_total, device)
        )
        if pattern.causal:
            if not pattern.queries.same_as(pattern.keys):
                raise ValueError("causal linear attention is of a sequence to itself: give the same spans twice")
            values = asked.values(value, dtype, None if fresh is None else asked.gather(fresh[..., None])[..., 0])
            faded = None if fading is None else asked.gather(fading[..., None])[..., 0].view(heads, -1, chunk)
            found = _causal(asked.gather(query), asked.gather(key), values, features, faded, asked, block)
        else:
            seen = pattern.kept(
                ("seen", chunk, heads, device), lambda: Chunks(pattern.keys, chunk, heads, pattern.key_total, device)
            )
            states = _all_states(key, value, seen, features, salience, dtype, block)
            found = _asked(asked.gather(query), states.to(dtype), features, asked, block)
        return asked.scatter(_divided(found, floor))


def linear_states(
    key: Tensor, value: Tensor, keys: Spans, features: Features | None = None, salience: Tensor | None = None
) -> Tensor:
    """[S, H, F, k + 1]: all that there is to find in each span; see `attend_linear`."""
    dtype = _product_dtype(key)
    with torch.autocast(key.device.type, enabled=False):
        seen = Chunks(keys, CHUNK, key.shape[1], len(key), key.device)
        return _all_states(key, value, seen, features, salience, dtype, BLOCK)


def states_after(
    key: Tensor,
    value: Tensor,
    sentences: Spans,
    seen: Tensor,
    own: Spans,
    *,
    features: Features | None = None,
    fading: Tensor | None = None,
    fresh: Tensor | None = None,
) -> Tensor:
    """[R, H, F, k + 1]: what R states of causal attention hold after the S sentences that `seen` [R, S] names, and
    `own`, the begin of one more, of which perhaps nothing was read.

    key and value [T, H, k]; fading and fresh [T, H] as for `attend_linear`, the same in all of a sentence.
    """
    found, last = linear_states(key, value, own, features), (own.ends - 1).clamp(min=0)
    if fresh is not None:
        found = found * fresh[own.starts].to(found)[..., None, None]
    for chosen in seen.any(0).nonzero().flatten().split(_STATES):  # the states of many at a time would be large
        states, starts = linear_states(key, value, sentences.select(chosen), features), sentences.starts[chosen]
        left = seen[:, chosen, None].to(states).expand(-1, -1, key.shape[1])  # [R, n, H]
        if fading is not None:
            left = left * (fading[last][:, None] - fading[starts]).clamp(max=0).exp().to(states)
        if fresh is not None:
            left = left * fresh[starts].to(states)
        with torch.autocast(key.device.type, enabled=False):
            found = found + torch.einsum("rsh,shfk->rhfk", left, states)
    return found


def _all_states(
    key: Tensor,
    value: Tensor,
    seen: Chunks,
    features: Features | None,
    salience: Tensor | None,
    dtype: torch.dtype,
    block: int,
) -> Tensor:
    values = seen.values(value, dtype, None if salience is None else seen.relative(salience))
    k = seen.gather(key)
    parts = []
    for first, last in seen.blocks(block):
        rows = slice(first * seen.size, last * seen.size)
        parts.append(_again(_states, k[:, rows], values[:, rows], features, seen.size))
    states = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]  # [H, N, F, k + 1]
    if not seen.one_each:
        empty = states.new_zeros(len(states), seen.count, *states.shape[2:])
        states = empty.index_add(1, seen.segments, states)
    return states.transpose(0, 1)


def _states(k: Tensor, v: Tensor, features: Features | None, chunk: int) -> Tensor:
    """[H, B, F, k + 1] of B chunks of keys [H, B * C, k] and values [H, B * C, k + 1]."""
    shown = _featured(k, features, v.dtype)
    return torch.matmul(_cut(shown, chunk).mT, _cut(v, chunk)).to(_wide(v.dtype))


def _asked(q: Tensor, states: Tensor, features: Features | None, asked: Chunks, block: int) -> Tensor:
    """What queries [H, N * C, k] find in the states [S, H, F, k + 1] of their segments: [H, N * C, k + 1]."""
    found = []
    for first, last in asked.blocks(block):
        rows, segments = slice(first * asked.size, last * asked.size), asked.segments[first:last]
        found.append(_again(_asked_block, q[:, rows], states, segments, features, asked.size))
    return torch.cat(found, dim=1) if len(found) > 1 else found[0]


def _asked_block(q: Tensor, states: Tensor, segments: Tensor, features: Features | None, chunk: int) -> Tensor:
    own = states.index_select(0, segments).transpose(0, 1)  # [H, B, F, k + 1]
    return torch.matmul(_cut(_featured(q, features, states.dtype), chunk), own).flatten(1, 2).to(_wide(states.dtype))


def _causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    features: Features | None,
    fading: Tensor | None,
    chunks: Chunks,
    block: int,
) -> Tensor:
    """[H, N * C, k + 1]: numerators and denominators for every token; fading [H, N, C]."""
    found = []
    carried: Tensor | None = None
    until: Tensor | None = None  # [H, 1] the fading of the last token that is carried
    for first, last in chunks.blocks(block):
        rows = slice(first * chunks.size, last * chunks.size)
        own = None if fading is None else fading[:, first:last]
        left = chunks.left(first, last, own, until, _wide(v.dtype))
        part, carried = _again(_causal_block, q[:, rows], k[:, rows], v[:, rows], carried, own, left, features, chunks)
        until = None if own is None else own[:, -1, -1:]
        found.append(part)
    return torch.cat(found, dim=1) if len(found) > 1 else found[0]


def _causal_block(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    carried: Tensor | None,
    fading: Tensor | None,
    left: Tensor,
    features: Features | None,
    chunks: Chunks,
) -> tuple[Tensor, Tensor]:
    """B chunks of queries and keys [H, B * C, k], values [H, B * C, k + 1]; what is found, and the state after them.

    carried [H, 1, F, k + 1]: the state before them; fading [H, B, C]; left as `Chunks.left` gives it.
    """
    size = chunks.size
    q, k, v = (_cut(x, size) for x in (_featured(q, features, v.dtype), _featured(k, features, v.dtype), v))
    weights = torch.matmul(q, k.mT)  # [H, B, C, C]
    if fading is None:
        weights = weights.tril()
    else:
        # Fading never grows along a span, so that no exponential is above 1; beyond the diagonal it is left out.
        between = (fading[..., None] - fading[..., None, :]).clamp(max=0).exp().tril()
        weights = weights * between.to(weights.dtype)
    found = torch.matmul(weights, v).to(_wide(v.dtype))
    if fading is None:
        states = torch.matmul(k.mT, v)
    else:
        states = torch.matmul(k.mT, v * (fading[..., -1:] - fading).exp().to(v.dtype)[..., None])
    states = states.to(_wide(v.dtype))
    if carried is None:
        carried = torch.zeros_like(states[:, :1])
    before = torch.matmul(left, torch.cat((carried, states), dim=1).flatten(2)).unflatten(2, states.shape[2:])
    if fading is not None:
        q = q * (fading - fading[..., :1]).exp().to(q.dtype)[..., None]
    found = found + torch.matmul(q, before[:, :-1].to(q.dtype))
    return found.flatten(1, 2), before[:, -1:]


def _featured(x: Tensor, features: Features | None, dtype: torch.dtype) -> Tensor:
    return (x if features is None else features(x)).to(dtype)


def _cut(x: Tensor, chunk: int) -> Tensor:
    """[H, B * C, n] -> [H, B, C, n]"""
    return x.unflatten(1, (-1, chunk))


def _product_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else _wide(x.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _again(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, which for gradients is computed again instead of kept."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


class Chunks:
    """Spans cut into chunks of C tokens, those at the ends padded: N chunks, those of a span one after the other."""

    def __init__(self, spans: Spans, size: int, heads: int, total: int, device: torch.device) -> None:
        """total: T, tokens of the sequence in which the spans lie."""
        self.size, self.heads = size, heads
        counts = -(-spans.lengths // size)
        self.count, self.one_each = len(spans), bool((counts == 1).all())
        segments = torch.repeat_interleave(torch.arange(len(spans)), counts)
        offsets = Spans.tile(counts).positions()[:, None] * size + torch.arange(size)
        real = (offsets < spans.lengths[segments][:, None]).flatten()  # [N * C]
        last = spans.lengths[segments][:, None] - 1
        tokens = (spans.starts[segments][:, None] + torch.minimum(offsets, last)).flatten()
        rows = [(tokens * heads + head, real) for head in range(heads)]
        # Rows that several spans have can be gathered, but not put back.
        unique = -1 if spans.overlap() else total * heads
        self.rows = Rows(rows, unique, device)
        self.real = real.to(device)
        self.segments, self.own = segments.to(device), segments

    def blocks(self, tokens: int) -> list[tuple[int, int]]:
        """Ranges of chunks that have about so many tokens."""
        count = max(tokens // self.size, 1)
        total = len(self.own)
        return [(first, min(first + count, total)) for first in range(0, total, count)] or [(0, 0)]

    def gather(self, x: Tensor) -> Tensor:
        """x [T, H, n] -> [H, N * C, n]; padding repeats the last token of its span."""
        return gather_rows(x, self.rows).view(self.heads, -1, x.shape[-1])

    def scatter(self, x: Tensor) -> Tensor:
        """[H, N * C, n] -> [T, H, n], where the spans lie end to end."""
        return scatter_rows(x.reshape(-1, x.shape[-1]), self.rows).view(-1, self.heads, x.shape[-1])

    def values(self, value: Tensor, dtype: torch.dtype, weights: Tensor | None) -> Tensor:
        """[H, N * C, k + 1]: values [T, H, k] and ones, times what keys weigh, [H, N * C] (None: 1); padding: zeros."""
        real = self.real.to(_wide(value.dtype))
        weights = real if weights is None else weights * real
        return (_with_ones(self.gather(value)) * weights[..., None]).to(dtype)

    def relative(self, salience: Tensor) -> Tensor:
        """[T, H] -> [H, N * C]: its exponential, divided by the largest of the span."""
        own = self.gather(salience[..., None])[..., 0].view(self.heads, -1, self.size)
        most = own.new_full((self.heads, self.count), -math.inf)
        index = self.segments.expand(self.heads, -1)
        most = most.scatter_reduce(1, index, own.detach().amax(dim=2), "amax")  # padding repeats a token
        return (own - most[:, self.segments][..., None]).exp().flatten(1)

    def left(self, first: int, last: int, fading: Tensor | None, until: Tensor | None, dtype: torch.dtype) -> Tensor:
        """[H or 1, B + 1, B + 1]: how much of the state of each chunk before is left where each of chunks first ..
        last - 1 begins, and behind the last of them; the first column is for the state carried from the blocks before.

        fading [H, B, C]; until [H, 1]: that of the last token of what is carried.
        """
        count = last - first
        owners = self.own[first:last]
        earlier = torch.cat((self.own[max(first - 1, 0)][None], owners))  # of what there is a state of
        later = torch.cat((owners, owners[-1:]))
        places = torch.arange(count + 1)
        seen = (earlier == later[:, None]) & (places <= places[:, None])
        if first == 0:
            seen[:, 0] = False
        seen = seen.to(self.real.device)
        if fading is None:
            return seen.to(dtype)[None]
        lasts, firsts = fading[:, :, -1], fading[:, :, 0]  # [H, B]
        begun = firsts[:, :1] if until is None else until
        between = torch.cat((firsts, lasts[:, -1:]), dim=1)[..., None] - torch.cat((begun, lasts), dim=1)[:, None]
        return between.clamp(max=0).exp().to(dtype) * seen


def step_linear(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, left: Tensor | None, floor: float
) -> tuple[Tensor, Tensor]:
    """One token of causal attention for each of R rows, in constant time and memory.

    state [R, H, F, k + 1], zeros at the begin; query and key [R, H, F], value [R, H, k]; left [R, H]: how much is left
    of what was said before this token. Returns [R, H, k] and the new state.
    """
    if left is not None:
        state = state * left[..., None, None]
    state = state + key[..., None] * _with_ones(value)[..., None, :]
    return read_linear(query[..., None, :], state, floor)[..., 0, :], state


def read_linear(query: Tensor, state: Tensor, floor: float) -> Tensor:
    """What n queries [..., n, F] find in each state [..., F, k + 1]: [..., n, k]."""
    with torch.autocast(query.device.type, enabled=False):
        return _divided(torch.matmul(query, state), floor)


def _with_ones(value: Tensor) -> Tensor:
    """[..., k] -> [..., k + 1]: the sum of the ones is the denominator."""
    return F.pad(value, (0, 1), value=1.0)


def _divided(found: Tensor, floor: float) -> Tensor:
    """[..., k + 1] -> [..., k]"""
    return found[..., :-1] / found[..., -1:].clamp(min=floor)


@dataclass(frozen=True)
class GateDecay:
    """What the gates of sentences make of the weights of keys (Wu et al. 2022, section 3.2).

    `fading` [T, H] as for `attend_linear`; `fresh` [T, H] multiplies keys, None: by 1.
    """

    fading: Tensor
    fresh: Tensor | None = None

    @classmethod
    def of(cls, gates: Tensor, sentences: Spans, documents: Spans, averaging: bool = False) -> GateDecay:
        """gates [S, H] before the sigmoid: how much of all up to its end a sentence leaves to the next one.

        averaging: what is new gets the rest, 1 - g of the sentence before (the first sentence of a document: all).
        """
        logs = F.logsigmoid(gates.double())  # sums over books, of which differences are wanted
        first = torch.zeros(len(sentences), dtype=torch.bool)
        first[sentences.holding(documents.starts)] = True
        first_column = first.to(gates.device)[:, None]
        before = F.pad(logs, (0, 0, 1, 0))[:-1].masked_fill(first_column, 0.0)  # [S, H] of the sentence before
        lengths = sentences.lengths.to(gates.device)
        # Documents are apart: a sum that runs on through all of them does no harm.
        fading = before.cumsum(0).repeat_interleave(lengths, dim=0)
        fresh = None
        if averaging:
            rest = torch.sigmoid(-F.pad(gates, (0, 0, 1, 0))[:-1]).masked_fill(first_column, 1.0)
            fresh = rest.repeat_interleave(lengths, dim=0)
        return cls(fading, fresh)
