"""Attention in linear time: features for the softmax, fading by gates (Peng et al. 2021; Wu et al. 2022).

Shapes: T tokens, H heads, k = d / H, F features. With features phi a query finds sum_s w_s v_s / max(sum_s w_s, floor),
w_s = phi(q) . phi(k_s): the sums over s are a state [H, F, k + 1] (the last column is the denominator), so that nobody
need look at every key again. `attend_linear` does it chunk by chunk, `step_linear` token by token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.spans import Spans

FLOOR = 0.1
"""Denominators are at least this: sums of random features may be near zero, or negative (the authors' EPS)."""
CHUNK = 64


def attend_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Spans,
    keys: Spans,
    causal: bool = False,
    *,
    fading: Tensor | None = None,
    salience: Tensor | None = None,
    floor: float = FLOOR,
    chunk: int = CHUNK,
) -> Tensor:
    """What segment i of the queries finds in span i of the keys, in time and memory linear in their lengths.

    query [Tq, H, F] and key [Tk, H, F] are features, value is [Tk, H, k]; returns [Tq, H, k]. `queries` tile the Tq
    positions. With `causal`, queries and keys are the same spans, and a token sees those up to itself. fading [T, H],
    with causal only: the logarithm of what is left, from the begin on, of a key of weight 1; that of key s in the eyes
    of query t is multiplied by exp(fading_t - fading_s). salience [Tk, H], without causal only: the logarithm of a
    weight of each key; in each span they are divided by the largest, which gets no gradient.
    """
    asked = _Chunks(queries, chunk, query.device)
    with torch.autocast(query.device.type, enabled=False):
        if causal:
            if not queries.same_as(keys):
                raise ValueError("causal linear attention is of a sequence to itself: give the same spans twice")
            found = _causal(query, key, value, asked, None if fading is None else asked.gather(fading))
        else:
            states = linear_states(key, value, keys, salience, chunk)
            found = torch.matmul(asked.gather(query), states[asked.segments])
    return _divided(asked.scatter(found), floor)


def linear_states(
    key: Tensor, value: Tensor, keys: Spans, salience: Tensor | None = None, chunk: int = CHUNK
) -> Tensor:
    """[S, H, F, k + 1]: all that there is to find in each span; see `attend_linear`."""
    seen = _Chunks(keys, chunk, key.device)
    k = seen.gather(key)  # [N, H, C, F]
    if salience is not None:
        own = seen.gather(salience)  # [N, H, C, 1]
        most = own.new_full((len(keys), own.shape[1]), -math.inf)
        index = seen.segments[:, None].expand(-1, own.shape[1])
        most = most.scatter_reduce(0, index, own.detach().amax(dim=(2, 3)), "amax")
        k = k * (own - most[seen.segments][..., None, None]).exp()
    with torch.autocast(key.device.type, enabled=False):
        states = torch.matmul(k.mT, seen.gather(_with_ones(value)))
    return states.new_zeros(len(keys), *states.shape[1:]).index_add(0, seen.segments, states)


def _causal(query: Tensor, key: Tensor, value: Tensor, chunks: _Chunks, fading: Tensor | None) -> Tensor:
    """[N, H, C, k + 1]: numerators and denominators for every token of every chunk."""
    q, k, v = chunks.gather(query), chunks.gather(key), chunks.gather(_with_ones(value))
    weights = torch.matmul(q, k.mT).tril()  # [N, H, C, C]
    if fading is None:
        found = torch.matmul(weights, v)
        if chunks.most <= 1:
            return found
        return found + torch.matmul(q, chunks.before(torch.matmul(k.mT, v), None))
    # Fading never grows along a span, so that no exponential is above 1; beyond the diagonal it is left out.
    between = (fading - fading.mT).to(q.dtype)  # [N, H, C, C]
    found = torch.matmul(weights * between.clamp(max=0).exp(), v)
    if chunks.most <= 1:
        return found
    first = fading[:, :, :1]
    until = chunks.next_first(first, fading)  # [N, H, 1, 1] the fading where the next chunk begins
    states = torch.matmul((k * (until - fading).to(k.dtype).exp()).mT, v)
    before = chunks.before(states, (until - first).to(k.dtype).exp())
    return found + torch.matmul(q * (fading - first).to(q.dtype).exp(), before)


class _Chunks:
    """Spans cut into chunks of C tokens, those at the ends padded: N chunks, those of a span one after the other."""

    def __init__(self, spans: Spans, size: int, device: torch.device) -> None:
        counts = -(-spans.lengths // size)
        self.most = int(counts.max()) if len(counts) else 0
        segments = torch.repeat_interleave(torch.arange(len(spans)), counts)
        places = Spans.tile(counts).positions()  # [N] the number of the chunk in its span
        offsets = places[:, None] * size + torch.arange(size)
        self.real = (offsets < spans.lengths[segments][:, None]).to(device)  # [N, C]
        last = spans.lengths[segments][:, None] - 1
        self.tokens = (spans.starts[segments][:, None] + torch.minimum(offsets, last)).to(device)
        self.segments, self.counts, self.places = segments.to(device), counts, places
        self.total = int(spans.lengths.sum())

    def gather(self, x: Tensor) -> Tensor:
        """x [T, H] or [T, H, n] -> [N, H, C, 1] or [N, H, C, n]; features and values of padding are zero.

        Of [T, H], fading or salience, padding repeats the last.
        """
        if x.dim() == 2:
            return x[self.tokens].transpose(1, 2)[..., None]
        return (x[self.tokens] * self.real[..., None, None]).transpose(1, 2)

    def scatter(self, x: Tensor) -> Tensor:
        """[N, H, C, n] -> [T, H, n], where the spans lie end to end."""
        return x.transpose(1, 2)[self.real]

    def next_first(self, first: Tensor, fading: Tensor) -> Tensor:
        """[N, H, 1, 1]: the fading of the first token of the chunk after each, or that of its own last token."""
        following = torch.cat((first[1:], first[-1:]))
        ends = torch.ones(len(first), dtype=torch.bool)
        ends[:-1] = self.places[1:] == 0
        return torch.where(ends.to(first.device)[:, None, None, None], fading[:, :, -1:], following)

    def before(self, states: Tensor, left: Tensor | None) -> Tensor:
        """[N, H, F, n] the sum of the states of the chunks before each in its span.

        left [N, H, 1, 1]: how much is left, after a chunk, of what was there before it; None: all.
        """
        # Spans with most chunks first: those that have a chunk of number j are then the first ones.
        order = torch.argsort(self.counts, descending=True, stable=True)
        begins = (self.counts.cumsum(0) - self.counts)[order]
        active = (self.counts[None] > torch.arange(self.most)[:, None]).sum(1).tolist()
        carried = states.new_zeros(active[0], *states.shape[1:])
        befores, numbers = [], []
        for place, count in enumerate(active):
            rows = (begins[:count] + place).to(states.device)
            carried = carried[:count]
            befores.append(carried)
            numbers.append(rows)
            carried = states[rows] + (carried if left is None else carried * left[rows])
        place_of = torch.empty(len(states), dtype=torch.int64, device=states.device)
        place_of[torch.cat(numbers)] = torch.arange(len(states), device=states.device)
        return torch.cat(befores)[place_of]


def step_linear(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, left: Tensor | None = None, floor: float = FLOOR
) -> tuple[Tensor, Tensor]:
    """One token of causal attention for each of R rows, in constant time and memory.

    state [R, H, F, k + 1], zeros at the begin; query and key [R, H, F], value [R, H, k]; left [R, H]: how much is left
    of what was said before this token. Returns [R, H, k] and the new state.
    """
    if left is not None:
        state = state * left[..., None, None]
    state = state + key[..., None] * _with_ones(value)[..., None, :]
    return read_linear(query[..., None, :], state, floor)[..., 0, :], state


def read_linear(query: Tensor, state: Tensor, floor: float = FLOOR) -> Tensor:
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
class Fading:
    """What the gates of sentences make of the weights of keys (Wu et al. 2022, section 3.2).

    `fading` [T, H] as for `attend_linear`; `fresh` [T, H] multiplies keys, None: by 1.
    """

    fading: Tensor
    fresh: Tensor | None = None

    @classmethod
    def of(cls, gates: Tensor, sentences: Spans, documents: Spans, averaging: bool = False) -> Fading:
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
