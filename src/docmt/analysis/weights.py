"""The weights of an attention, block by block: nothing is padding, and nothing outside the pattern is computed.

Notation as in `model/` (T packed tokens, H heads, k = d / H); in a block, n segments of up to q queries and l keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from docmt.model import Spans
from docmt.model.linear_attention import Weighing

# Scores held at once: 16 MB in float32, several times over (90 MB in all for an instance of 2048 tokens with 8 heads,
# 256 queries at a time, where all of its scores would be 134 MB each time).
MOST_SCORES = 1 << 22
# Segments share a block down to this part of its longest key span: below, most of a row would be padding.
_SIMILAR = 0.7


class Block(NamedTuple):
    """Weights of some segments, float32. Positions of queries and keys are those in their packed sequences."""

    queries: Tensor
    """[n, q]"""
    real: Tensor
    """[n, q] bool: which of them are queries, not padding"""
    keys: Tensor
    """[n, l]; where a weight is 0 there may be padding"""
    seen: Tensor
    """[n, q, l] bool (where all queries see the same: [n, 1, l]): which keys a query sees"""
    weights: Tensor
    """[n, H, q, l]; over the keys, those of each query sum to 1, but for linear attention"""
    linear: bool = False
    """whether weights may be below 0, and sum to anything"""

    def shares(self) -> Tensor:
        """The weights [n, H, q, l] as shares of 1: those of linear attention that are below 0 count as none."""
        if not self.linear:
            return self.weights
        positive = self.weights.clamp(min=0)
        return positive / positive.sum(-1, keepdim=True).clamp(min=torch.finfo(positive.dtype).tiny)


def weight_blocks(
    query: Tensor,
    key: Tensor,
    queries: Spans,
    keys: Spans,
    causal: bool = False,
    *,
    linear: Weighing | None = None,
    most_scores: int = MOST_SCORES,
) -> Iterator[Block]:
    """The attention weights of query [Tq, H, k] over key [Tk, H, k], with the pattern as `attend` takes it.

    linear: both are features, and this is what keys weigh; then weights are those of linear attention, some of
    which may be below 0, and whose sum may be below 1. At most `most_scores` scores (or one query against its keys)
    are held at once; float32 throughout. Queries without any key are in no block.
    """
    heads, width = query.shape[1:]
    for members, first, last in _blocks(queries, keys, heads, most_scores):
        q_rows, q_real = _rows(queries, members, first, last)
        k_rows, k_real = _rows(keys, members, 0, int(keys.lengths[members].max()))
        seen = k_real[:, None, :]  # [n, 1, l]
        if causal:
            seen = seen & (torch.arange(k_rows.shape[1]) <= torch.arange(first, last)[:, None])  # [n, q, l]
        with torch.autocast(query.device.type, enabled=False):
            q = query[q_rows.to(query.device)].float().transpose(1, 2) * width**-0.5  # [n, H, q, k]
            k = key[k_rows.to(key.device)].float().permute(0, 2, 3, 1)  # [n, H, k, l]
            seen = seen.to(query.device)
            scores = q @ k  # [n, H, q, l]
            if linear is None:
                weights = scores.masked_fill_(~seen[:, None], -math.inf).softmax(-1)
            else:
                weights = _linear_weights(scores * width**0.5, linear, q_rows, k_rows, seen)
            q_rows, q_real, k_rows = (rows.to(q.device) for rows in (q_rows, q_real, k_rows))
            yield Block(q_rows, q_real, k_rows, seen, weights, linear is not None)


def _linear_weights(products: Tensor, weighing: Weighing, q_rows: Tensor, k_rows: Tensor, seen: Tensor) -> Tensor:
    """Products of features [n, H, q, l] as the weights that `attend_linear` gives values."""
    if weighing.fading is not None:
        asked, there = (weighing.fading[rows].transpose(1, 2) for rows in (q_rows, k_rows))  # [n, H, q], [n, H, l]
        products = products * (asked[..., None] - there[:, :, None]).clamp(max=0).exp().float()
    if weighing.fresh is not None:
        products = products * weighing.fresh[k_rows].transpose(1, 2)[:, :, None].float()
    if weighing.salience is not None:
        own = weighing.salience[k_rows].transpose(1, 2)[:, :, None].masked_fill(~seen[:, None], -math.inf)
        products = products * (own - own.amax(-1, keepdim=True)).exp()
    products = products.masked_fill(~seen[:, None], 0.0)
    return products / products.sum(-1, keepdim=True).clamp(min=weighing.floor)


def bits(weights: Tensor) -> Tensor:
    """Entropy -sum p log2 p of distributions [..., l]: [...]."""
    return torch.special.entr(weights).sum(-1) / math.log(2)


def _blocks(queries: Spans, keys: Spans, heads: int, most_scores: int) -> Iterator[tuple[Tensor, int, int]]:
    """Segment numbers [n] of similar length and the range of query offsets to take of each, all work once."""
    q_lengths, k_lengths = queries.lengths.tolist(), keys.lengths.tolist()
    order = [i for i in range(len(q_lengths)) if q_lengths[i] and k_lengths[i]]
    order.sort(key=lambda i: (-k_lengths[i], -q_lengths[i]))
    start = 0
    while start < len(order):
        longest, most_queries, end = k_lengths[order[start]], q_lengths[order[start]], start + 1
        while end < len(order) and k_lengths[order[end]] >= _SIMILAR * longest:
            grown = max(most_queries, q_lengths[order[end]])
            if (end + 1 - start) * heads * grown * longest > most_scores:
                break
            most_queries, end = grown, end + 1
        step = max(1, most_scores // ((end - start) * heads * longest))
        for first in range(0, most_queries, step):
            yield torch.tensor(order[start:end]), first, min(first + step, most_queries)
        start = end


def _rows(spans: Spans, members: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Positions [n, last - first] of these offsets in the packed sequence, and which of them the segment has."""
    offsets = torch.arange(first, last)
    real = offsets < spans.lengths[members, None]
    return torch.where(real, spans.starts[members, None] + offsets, spans.starts[members, None]), real
