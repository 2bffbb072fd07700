"""Attention weights, computed again from the states that an attention reads: kernels do not return them.

Notation as in the other files of `model/` (T packed tokens, H heads, d model width, k = d / H). A block of weights has
n segments of up to q queries and l keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from docmt.model.attention import Attention
from docmt.model.contexts import PackedStates
from docmt.model.kernels import AttentionPattern
from docmt.model.linear_attention import KeyWeights, LinearAttention
from docmt.model.spans import Spans

# Scores in memory at once: 16 MB in float32, several times over. An instance of 2048 tokens with 8 heads takes 90 MB
# in all, 256 queries at a time. All of its scores would take 134 MB each time.
MAX_SCORES = 1 << 22
# Shortest key span in a block, relative to its longest one. With shorter spans most of a row would be padding.
_MIN_LENGTH_RATIO = 0.7


class WeightBlock(NamedTuple):
    """Attention weights of some segments, float32, with positions in the packed sequences."""

    queries: Tensor
    """[n, q] query positions"""
    is_query: Tensor
    """[n, q] bool, False for padding"""
    keys: Tensor
    """[n, l] key positions, arbitrary for padding"""
    visible: Tensor
    """[n, q, l] bool (or [n, 1, l] if equal for all queries): keys that a query sees"""
    weights: Tensor
    """[n, H, q, l], which sum to 1 over the keys except in linear attention"""
    linear: bool = False
    """True if weights may be negative and need not sum to 1"""

    def shares(self) -> Tensor:
        """Return the weights [n, H, q, l] as shares of 1. Negative weights of linear attention count as 0."""
        if not self.linear:
            return self.weights
        positive = self.weights.clamp(min=0)
        return positive / positive.sum(-1, keepdim=True).clamp(min=torch.finfo(positive.dtype).tiny)


def weight_blocks(
    query: Tensor, key: Tensor, pattern: AttentionPattern, linear: KeyWeights | None
) -> Iterator[WeightBlock]:
    """Yield the attention weights of query [Tq, H, k] over key [Tk, H, k] with this pattern.

    linear: key weights of linear attention, whose query and key are features. Its weights may be negative and sum to
    less than 1. At most `MAX_SCORES` scores (or one query against its keys) are in memory at once, in float32.
    Queries without keys are in no block.
    """
    queries, keys, (heads, width) = pattern.queries, pattern.keys, query.shape[1:]
    for members, first, last in _group_segments(queries, keys, heads):
        q_positions, is_query = queries.select(members).padded_positions(first, last)
        k_positions, is_key = keys.select(members).padded_positions(0, int(keys.lengths[members].max()))
        visible = is_key[:, None, :]  # [n, 1, l]
        if pattern.causal:
            before = (keys.lengths - queries.lengths)[members, None, None]
            visible = visible & (torch.arange(k_positions.shape[1]) <= torch.arange(first, last)[:, None] + before)
        with torch.autocast(query.device.type, enabled=False):
            q = query[q_positions.to(query.device)].float().transpose(1, 2) * width**-0.5  # [n, H, q, k]
            k = key[k_positions.to(key.device)].float().permute(0, 2, 3, 1)  # [n, H, k, l]
            visible = visible.to(query.device)
            scores = q @ k  # [n, H, q, l]
            if linear is None:
                weights = scores.masked_fill_(~visible[:, None], -math.inf).softmax(-1)
            else:
                weights = _linear_weights(scores * width**0.5, linear, q_positions, k_positions, visible)
        q_positions, is_query, k_positions = (x.to(q.device) for x in (q_positions, is_query, k_positions))
        yield WeightBlock(q_positions, is_query, k_positions, visible, weights, linear is not None)


def _linear_weights(
    products: Tensor, key_weights: KeyWeights, q_positions: Tensor, k_positions: Tensor, visible: Tensor
) -> Tensor:
    """Return the weights that `attend_linear` gives to values, from products of features [n, H, q, l]."""
    if key_weights.log_decay is not None:
        query_fading = key_weights.log_decay[q_positions].transpose(1, 2)  # [n, H, q]
        key_fading = key_weights.log_decay[k_positions].transpose(1, 2)  # [n, H, l]
        products = products * (query_fading[..., None] - key_fading[:, :, None]).clamp(max=0).exp().float()
    if key_weights.input_weights is not None:
        products = products * key_weights.input_weights[k_positions].transpose(1, 2)[:, :, None].float()
    if key_weights.log_weights is not None:
        salience = key_weights.log_weights[k_positions].transpose(1, 2)[:, :, None]
        salience = salience.masked_fill(~visible[:, None], -math.inf)
        products = products * (salience - salience.amax(-1, keepdim=True)).exp()
    products = products.masked_fill(~visible[:, None], 0.0)
    return products / products.sum(-1, keepdim=True).clamp(min=key_weights.min_denominator)


def attention_weights(
    attention: Attention, x: Tensor, memory: Tensor, pattern: AttentionPattern
) -> Iterator[WeightBlock]:
    """Yield the weights of an attention from x [Tq, d] to memory [Tk, d] with this pattern.

    Queries are positions in x, or in several repetitions of it in a row. Biases by distance are left out.
    """
    key_weights = None
    if isinstance(attention, LinearAttention):
        key_weights = attention.weigh_keys(memory, attention.split_heads(attention.key(memory)), pattern)
        query, key = attention.project_features(x, memory)
    else:
        query, projected, _ = attention.project(x, PackedStates(memory, pattern))
        assert projected is not None
        key = projected
        query = query.repeat(pattern.query_total // max(len(query), 1), 1, 1)
    return weight_blocks(query, key, pattern, key_weights)


def _group_segments(queries: Spans, keys: Spans, heads: int) -> Iterator[tuple[Tensor, int, int]]:
    """Yield numbers [n] of segments of similar length with a range of query offsets. Each query occurs once."""
    q_lengths, k_lengths = queries.lengths.tolist(), keys.lengths.tolist()
    order = [i for i in range(len(q_lengths)) if q_lengths[i] and k_lengths[i]]
    order.sort(key=lambda i: (-k_lengths[i], -q_lengths[i]))
    start = 0
    while start < len(order):
        longest, num_queries, end = k_lengths[order[start]], q_lengths[order[start]], start + 1
        while end < len(order) and k_lengths[order[end]] >= _MIN_LENGTH_RATIO * longest:
            max_queries = max(num_queries, q_lengths[order[end]])
            if (end + 1 - start) * heads * max_queries * longest > MAX_SCORES:
                break
            num_queries, end = max_queries, end + 1
        step = max(1, MAX_SCORES // ((end - start) * heads * longest))
        for first in range(0, num_queries, step):
            yield torch.tensor(order[start:end]), first, min(first + step, num_queries)
        start = end
