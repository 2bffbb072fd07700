"""Kernels of `attend`: a plain reference, padded buckets for any device, and varlen for CUDA.

Shapes: query [Tq, H, k], key and value [Tk, H, k], result [Tq, H, k]. Segment i of the queries attends to span i
of the keys. With `causal`, the last query of a segment sees its whole span, and each earlier one a token less. An empty
key span gives zeros.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.embeddings import DistanceBiases
from docmt.model.spans import Spans

Built = TypeVar("Built")

# A bucket accepts segments down to this share of its padded area. It balances wasted work against more, smaller
# products.
_BUCKET_FILL = 0.55
# Up to these key lengths, plain products beat scaled_dot_product_attention on a CPU (decision 0010).
_PLAIN_MAX_KEY_LENGTH = {torch.bfloat16: 1024, torch.float32: 256}
_VARLEN_MAX_WIDTH, _VARLEN_WIDTH_UNIT = 256, 8

_log = logging.getLogger(__name__)
_reasons_logged: set[str] = set()


def attend_reference(
    query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern, dropout: float, biases: DistanceBiases | None
) -> Tensor:
    """Attend segment by segment: softmax(Q K^T / sqrt(k) + bias) V. The other kernels equal it, but are fast."""
    outputs, sides = [], (pattern.queries, pattern.keys)
    columns = [column.tolist() for spans in sides for column in (spans.starts, spans.lengths)]
    for q_start, q_length, k_start, k_length in zip(*columns, strict=True):
        q = query[q_start : q_start + q_length].transpose(0, 1)  # [H, q, k]
        k = key[k_start : k_start + k_length].transpose(0, 1)  # [H, l, k]
        v = value[k_start : k_start + k_length].transpose(0, 1)
        if k_length == 0:
            outputs.append(torch.zeros_like(query[q_start : q_start + q_length]))
            continue
        scores = q @ k.transpose(1, 2) / math.sqrt(query.shape[-1])
        before = k_length - q_length if pattern.causal else 0
        if biases is not None:
            scores = scores + biases(torch.arange(before, before + q_length, device=q.device), k_length)
        if pattern.causal:
            scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(before + 1), -math.inf)
        weights = F.dropout(scores.softmax(-1), dropout)
        outputs.append((weights @ v).transpose(0, 1))
    return torch.cat(outputs)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Spans,
    keys: Spans,
    causal: bool = False,
    *,
    dropout: float = 0.0,
    kernel: str | None = None,
    distances: DistanceBiases | None = None,
) -> Tensor:
    """Scaled dot-product attention in which segment i of the queries sees span i of the keys and nothing else.

    query [Tq, H, k]; key, value [Tk, H, k]; returns [Tq, H, k]. `queries` must tile the Tq positions; key spans
    may lie anywhere. With `causal`, token j of a segment sees its span up to the j-th of its last |segment| tokens.
    `kernel` selects one of `KERNELS`. `distances` biases scores by the distance of a key from a query, each
    counted from the start of its segment or span. The cost is the sum of |segment| x |span|. Raises ValueError for
    incompatible spans.
    """
    pattern = AttentionPattern(queries, keys, causal, len(key))
    return attend_pattern(query, key, value, pattern, dropout=dropout, kernel=kernel, distances=distances)


def attend_pattern(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    *,
    dropout: float = 0.0,
    kernel: str | None = None,
    distances: DistanceBiases | None = None,
) -> Tensor:
    """Attend as `attend` does, with a prepared pattern."""
    if pattern.is_empty:
        # All three still need (zero) gradients. Otherwise processes that exchange gradients would deadlock.
        return query * 0.0 + 0.0 * (key.sum() + value.sum())
    if kernel is None:
        kernel, reason = choose_kernel(query, dropout, distances is not None)
        if reason not in _reasons_logged:
            _reasons_logged.add(reason)
            _log.info("attention kernel: %s (%s)", kernel, reason)
    if kernel not in KERNELS:
        raise ValueError(f"kernel {kernel!r}: choose one of {', '.join(KERNELS)}")
    # The projections have chosen the precision. Autocast would only add copies here.
    with torch.autocast(query.device.type, enabled=False):
        return KERNELS[kernel](query, key, value, pattern, dropout, distances)


class BuiltOnce:
    """Data of which more is built when it is first asked for."""

    _built: dict[object, Any]

    def get_or_build(self, name: object, build: Callable[[], Built]) -> Built:
        """Return the value cached under this name. The first call builds it."""
        if name not in self._built:
            self._built[name] = build()
        return self._built[name]


@dataclass(eq=False)
class Bucket(BuiltOnce):
    """n segments of similar length, padded to q queries and l keys. Masks and biases are built once."""

    count: int
    query_length: int
    key_length: int
    key_mask: Tensor | None
    """[n, 1, 1, l] or [n, 1, q, l] bool, True: attend; None if no key is padding, or causality hides it"""
    causal: bool
    """each query sees keys up to its own number; otherwise `key_mask` says all"""
    device: torch.device
    before: Tensor | None = None
    """[n] keys before those of the first query, if its number in the span is not 0"""
    _built: dict[object, Any] = field(default_factory=dict)

    def mask_bias(self, dtype: torch.dtype) -> Tensor | None:
        """Return 0 for visible keys and minus infinity elsewhere: [q, l], or as `key_mask`; None: all are visible."""

        def build() -> Tensor | None:
            if self.causal:
                shape = (self.query_length, self.key_length)
                return torch.full(shape, -math.inf, dtype=dtype, device=self.device).triu_(1)
            return None if self.key_mask is None else build_bias(self.key_mask, dtype)

        return self.get_or_build(dtype, build)

    def look_up_distance_biases(self, distances: DistanceBiases) -> Tensor:
        """Return the biases [H, q, l] or [n, H, q, l] of scores. The buckets of distances are computed once."""

        def build() -> Tensor:
            queries = torch.arange(self.query_length, device=self.device)
            queries = queries if self.before is None else queries + self.before[:, None].to(self.device)
            return distances.find_buckets(queries, self.key_length)

        name = (distances.buckets, distances.max_distance, distances.causal)
        return distances.look_up_biases(self.get_or_build(name, build))


class AttentionPattern(BuiltOnce):
    """The key spans that query segments see, with the data for kernels, built once per batch."""

    def __init__(
        self,
        queries: Spans,
        keys: Spans,
        causal: bool,
        key_total: int,
        sentences: Spans | None = None,
        number_sentences: Callable[[], tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        """key_total: number of tokens of the memory; sentences: of the queries, for sentence gates; number_sentences:
        returns the numbers of the sentences of queries [Tq] and keys [Tk], for attentions that know distances."""
        if len(queries) != len(keys):
            raise ValueError(f"{len(queries)} query segments but {len(keys)} key spans: pass one span per segment")
        if causal and bool((keys.lengths < queries.lengths).any()):
            raise ValueError("causal attention needs key spans at least as long as their query segments")
        total = int(queries.lengths.sum())
        if not queries.is_tiling(total):
            raise ValueError("query segments must lie end to end from position 0")
        self.queries, self.keys, self.causal, self.sentences = queries, keys, causal, sentences
        self.query_total, self.key_total = total, key_total
        self._number_sentences = number_sentences
        self.is_empty = not bool((queries.lengths * keys.lengths).any())
        self._built = {}

    def sentence_numbers(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of the sentences of queries [Tq] and keys [Tk], int64, on the host."""
        if self._number_sentences is None:
            raise ValueError("the attention needs numbers of sentences: pass `number_sentences` to AttentionPattern")
        return self.get_or_build("sentence numbers", self._number_sentences)

    def _fill_buckets(self) -> list[list[int]]:
        """Return segment indices by bucket, largest area first, without segments that have an empty side."""
        areas = (self.queries.lengths * self.keys.lengths).tolist()
        sizes = list(zip(self.queries.lengths.tolist(), self.keys.lengths.tolist(), strict=True))
        buckets: list[list[int]] = []
        widest = (0, 0)
        for i in sorted(range(len(areas)), key=lambda i: (-areas[i], -sizes[i][0])):
            if areas[i] == 0:
                continue
            grown = (max(widest[0], sizes[i][0]), max(widest[1], sizes[i][1]))
            if not buckets or areas[i] < _BUCKET_FILL * grown[0] * grown[1]:
                buckets.append([])
                grown = sizes[i]
            buckets[-1].append(i)
            widest = grown
        return buckets

    def padded_layout(self, heads: int, device: torch.device) -> PaddedLayout:
        """Return gather indices and masks for the padded kernel, on `device`."""
        name = ("padded", heads, device)
        return self.get_or_build(name, lambda: PaddedLayout(self, self._fill_buckets(), heads, device))

    def varlen_layout(self, device: torch.device) -> tuple[Tensor | None, Tensor | None, tuple[Any, ...]]:
        """Return the data for the varlen kernel, on `device`, without segments that have an empty side.

        These are the positions of the queries and of the keys, span by span (None: all in order), and four lengths:
        the cumulative ones of both, from 0 ([S + 1] int32), and the longest of both.
        """

        def build() -> tuple[Tensor | None, Tensor | None, tuple[Any, ...]]:
            filled = ((self.queries.lengths > 0) & (self.keys.lengths > 0)).nonzero().flatten()
            queries, keys = self.queries.select(filled), self.keys.select(filled)
            ends = (F.pad(spans.lengths.cumsum(0), (1, 0)).to(device, torch.int32) for spans in (queries, keys))
            return (
                None if queries.is_tiling(self.query_total) else queries.indices().to(device),
                None if keys.is_tiling(self.key_total) else keys.indices().to(device),
                (*ends, int(queries.lengths.max()), int(keys.lengths.max())),
            )

        return self.get_or_build(("varlen", device), build)


class PaddedLayout:
    """Gather indices that pad the tokens of every head into buckets.

    Counts and lengths of buckets are rounded up to few values, because each bfloat16 product of a new shape takes half
    a millisecond more on CPU. That was a fifth of the training step of a small model (decision 0011).

    Rows are (token, head) pairs, token-major in the packed tensors and head-major inside a bucket [n, H, l, k]. So one
    gather pads, splits heads and lays out all buckets for a batched product.
    """

    def __init__(self, pattern: AttentionPattern, order: list[list[int]], heads: int, device: torch.device) -> None:
        self.buckets: list[Bucket] = []
        query_rows, key_rows = [], []
        for members in order:
            index = torch.tensor(members)
            count = round_up(len(members))
            q = round_up(int(pattern.queries.lengths[index].max()))
            length = round_up(int(pattern.keys.lengths[index].max()))
            query_rows.append(_index_bucket_rows(pattern.queries, index, count, q, heads))
            key_rows.append(_index_bucket_rows(pattern.keys, index, count, length, heads))
            mask = key_rows[-1][1].view(count, heads, length)[:, :1, None, :].clone()
            mask[len(members) :] = True  # a softmax of padding segments needs a visible key
            before = F.pad(pattern.keys.lengths[index] - pattern.queries.lengths[index], (0, count - len(members)))
            causal = pattern.causal and not bool(before.any())
            if pattern.causal and not causal:
                visible = torch.arange(length) <= torch.arange(q)[:, None] + before[:, None, None]  # [n, q, l]
                mask = mask & visible[:, None]
            key_mask = None if causal or bool(mask.all()) else mask.to(device)
            earlier = before if pattern.causal and not causal else None
            self.buckets.append(Bucket(count, q, length, key_mask, causal, device, earlier))
        self.query = Rows(query_rows, pattern.query_total * heads, device)
        self.key = Rows(key_rows, -1 if pattern.keys.has_overlap() else pattern.key_total * heads, device)


class Rows:
    """Padded rows and their inverse.

    `index` [m] is the packed row of each padded row, `inverse` [total] the reverse (None: a row may be gathered several
    times). `padding` of the padded rows and `missing` of the packed rows have no counterpart.
    """

    def __init__(self, rows: Sequence[tuple[Tensor, Tensor]], total: int, device: torch.device) -> None:
        """rows: parts of the padded rows, each with row indices [n] and [n] bool (False: padding); total: number of
        packed rows (-1: some are gathered several times)."""
        index, is_real = (torch.cat(parts) for parts in zip(*rows, strict=True))
        self.index = index.to(device)
        self.padding = torch.nonzero(~is_real).flatten().to(device)
        self.inverse: Tensor | None = None
        self.missing: Tensor | None = None
        if total >= 0:
            inverse = torch.full((total,), -1, dtype=torch.int64)
            positions = torch.nonzero(is_real).flatten()
            inverse[index[positions]] = positions
            # Rows of segments with an empty key span are in no bucket. They become zeros.
            missing = torch.nonzero(inverse < 0).flatten()
            self.missing = missing.to(device) if len(missing) else None
            self.inverse = inverse.clamp(min=0).to(device)


def round_up(n: int) -> int:
    """Round n up to three binary digits: 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ..."""
    step = 1 << max(n.bit_length() - 3, 0)
    return -(-n // step) * step


def _index_bucket_rows(spans: Spans, members: Tensor, count: int, length: int, heads: int) -> tuple[Tensor, Tensor]:
    """Return row indices (token * H + head) in the order [n, H, l], and which rows are real."""
    missing = (0, count - len(members))
    padded = Spans(F.pad(spans.starts[members], missing), F.pad(spans.lengths[members], missing))
    tokens, real = padded.padded_positions(0, length)  # [n, l]
    rows = tokens[:, None, :] * heads + torch.arange(heads)[:, None]  # [n, H, l]
    return rows.flatten(), real[:, None, :].expand_as(rows).flatten()


def attend_padded(
    query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern, dropout: float, biases: DistanceBiases | None
) -> Tensor:
    """Attend with one batched product per bucket of padded segments. Works on every device."""
    heads, width = query.shape[1:]
    layout = pattern.padded_layout(heads, query.device)
    q_rows = gather_rows(query, layout.query)  # [sum of n * H * q, k]
    k_rows, v_rows = gather_rows(key, layout.key), gather_rows(value, layout.key)
    query_sizes = [b.count * heads * b.query_length for b in layout.buckets]
    key_sizes = [b.count * heads * b.key_length for b in layout.buckets]
    outputs = []
    for bucket, q, k, v in zip(
        layout.buckets, q_rows.split(query_sizes), k_rows.split(key_sizes), v_rows.split(key_sizes), strict=True
    ):
        shape = (bucket.count, heads, -1, width)
        bias = None if biases is None else bucket.look_up_distance_biases(biases).to(q.dtype)
        output = _attend_bucket(q.view(shape), k.view(shape), v.view(shape), bucket, dropout, bias)
        outputs.append(output.reshape(-1, width))
    rows = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    return scatter_rows(rows, layout.query).view(-1, heads, width)


def gather_rows(x: Tensor, rows: Rows) -> Tensor:
    """Gather the padded rows [m, n] of x [..., n], whose leading axes count the rows."""
    flat = x.reshape(-1, x.shape[-1])
    if rows.inverse is None:
        return flat.index_select(0, rows.index)
    return _GatherRows.apply(flat, rows)  # type: ignore[no-untyped-call]


def scatter_rows(x: Tensor, rows: Rows) -> Tensor:
    """Return padded rows [.., n] to their origin: [total, n]."""
    return _ScatterRows.apply(x, rows)  # type: ignore[no-untyped-call]


class _GatherRows(torch.autograd.Function):
    """Copies of rows, each used at most once besides padding, whose gradient is a copy, too, and not a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return x.index_select(0, rows.index)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _copy_rows(gradients[0], ctx.rows.inverse, ctx.rows.missing), None


class _ScatterRows(torch.autograd.Function):
    """The inverse of `_GatherRows`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return _copy_rows(x, rows.inverse, rows.missing)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _copy_rows(gradients[0], ctx.rows.index, ctx.rows.padding), None


def _copy_rows(x: Tensor, index: Tensor | None, zeros: Tensor | None) -> Tensor:
    """Return the rows of x at these indices; rows `zeros` of the result are zero."""
    assert index is not None
    result = x.index_select(0, index)
    return result if zeros is None else result.index_fill_(0, zeros, 0.0)


def _attend_bucket(
    q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, dropout: float, bias: Tensor | None = None
) -> Tensor:
    """Attend in a padded bucket: q [n, H, q, k], k and v [n, H, l, k], bias [H, q, l] or [n, H, q, l]."""
    if q.device.type != "cpu" or k.shape[2] > _PLAIN_MAX_KEY_LENGTH.get(q.dtype, 0):
        mask, causal = bucket.key_mask, bucket.causal
        if bias is not None:
            mask_bias, causal = bucket.mask_bias(q.dtype), False
            mask = (bias if mask_bias is None else bias + mask_bias).expand(len(q), -1, -1, -1)
        elif mask is not None:
            mask = mask.expand(-1, -1, q.shape[2], -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    # Scores are the largest tensors here. They change in place, before any view exists (in-place changes of views make
    # autograd copy), and by sums, whose gradient is free.
    scores = torch.bmm(q.flatten(0, 1) * q.shape[-1] ** -0.5, k.flatten(0, 1).transpose(1, 2))  # [n * H, q, l]
    if bias is not None:
        scores += bias.repeat(len(q), 1, 1) if bias.dim() == 3 else bias.flatten(0, 1)
    mask_bias = bucket.mask_bias(scores.dtype)
    if mask_bias is not None:
        scores += mask_bias if bucket.causal else mask_bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1)
    weights = F.dropout(scores.softmax(-1), dropout)
    return torch.bmm(weights, v.flatten(0, 1)).view_as(q)


def attend_varlen(
    query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern, dropout: float, biases: DistanceBiases | None
) -> Tensor:
    """Attend by flash attention on the packed tensors (CUDA, 16-bit floats, no attention dropout, no distances)."""
    from torch.nn.attention.varlen import varlen_attn

    queries, keys, lengths = pattern.varlen_layout(query.device)
    if keys is not None:
        key, value = key[keys], value[keys]
    visible, window = query if queries is None else query[queries], (-1, 0) if pattern.causal else (-1, -1)
    result = varlen_attn(visible, key, value, *lengths, window_size=window)
    assert isinstance(result, Tensor)
    if queries is None:
        return result
    return torch.zeros_like(query).index_copy(0, queries, result)  # zeros for queries without keys


KERNELS = {"reference": attend_reference, "padded": attend_padded, "varlen": attend_varlen}


def choose_kernel(query: Tensor, dropout: float, has_biases: bool = False) -> tuple[str, str]:
    """Choose the kernel for these tensors, and give the reason. has_biases: scores have biases."""
    if query.device.type != "cuda":
        return "padded", f"no varlen kernel on {query.device.type}"
    if query.dtype not in (torch.bfloat16, torch.float16):
        return "padded", f"varlen needs 16-bit floats, not {query.dtype}"
    if dropout:
        return "padded", "varlen has no attention dropout"
    if has_biases:
        return "padded", "varlen has no distance biases"
    if query.shape[-1] > _VARLEN_MAX_WIDTH:
        return "padded", f"varlen has heads of at most {_VARLEN_MAX_WIDTH} dimensions"
    if query.shape[-1] % _VARLEN_WIDTH_UNIT:
        return "padded", f"varlen has heads of a multiple of {_VARLEN_WIDTH_UNIT} dimensions"
    return "varlen", "CUDA with 16-bit floats"


def build_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bias of which keys are visible: bool [...] -> [...]."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -math.inf)


def product_dtype(device: torch.device, otherwise: torch.dtype) -> torch.dtype:
    """Return the dtype of products on a device: that of autocast, or without it another one."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else otherwise


def upcast(x: Tensor) -> Tensor:
    """Cast to float32, unless float64: phases and long sums need more than 16 bits."""
    return x if x.dtype == torch.float64 else x.float()
