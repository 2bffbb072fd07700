"""The kernels behind `attend`: a plain reference, padded buckets for any device, and varlen for CUDA.

Shapes: query [Tq, H, k], key and value [Tk, H, k], result [Tq, H, k]. Segment i of the queries attends to span i
of the keys; with `causal`, token j of a segment sees tokens 0..j of its span. An empty key span gives zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.embeddings import Distances
from docmt.model.spans import Spans

Kept = TypeVar("Kept")

# A bucket takes in segments down to this share of its padded area, so at most that much is computed in vain,
# against one more round of small products.
_BUCKET_FILL = 0.55
# Plain products beat scaled_dot_product_attention on a CPU up to these key lengths:
# docs/contributing/decisions/0010-attention-on-cpu.md.
_PLAIN_UP_TO = {torch.bfloat16: 1024, torch.float32: 256}


@dataclass(eq=False)
class Bucket:
    """n segments of similar length, padded to q queries and l keys. What depends on it alone is built once."""

    count: int
    query_length: int
    key_length: int
    key_mask: Tensor | None
    """[n, 1, 1, l] bool, True = attend; None when no key is padding or causality hides it"""
    causal: bool
    device: torch.device
    _built: dict[object, Tensor | None] = field(default_factory=dict)

    def hidden(self, dtype: torch.dtype) -> Tensor | None:
        """Return 0 where a query may look and minus infinity elsewhere: [q, l] or [n, 1, 1, l]; None: all is seen."""
        if dtype not in self._built:
            bias: Tensor | None = None
            if self.causal:
                shape = (self.query_length, self.key_length)
                bias = torch.full(shape, -math.inf, dtype=dtype, device=self.device).triu_(1)
            elif self.key_mask is not None:
                bias = self.key_mask.new_zeros(self.key_mask.shape, dtype=dtype)
                bias.masked_fill_(~self.key_mask, -math.inf)
            self._built[dtype] = bias
        return self._built[dtype]

    def distance_biases(self, distances: Distances) -> Tensor:
        """Return the biases [H, q, l] of scores; which number each distance has is worked out once."""
        kind = (distances.buckets, distances.most, distances.causal)
        if kind not in self._built:
            queries = torch.arange(self.query_length, device=self.device)
            self._built[kind] = distances.numbers(queries, self.key_length)
        numbers = self._built[kind]
        assert numbers is not None
        return distances.biases(numbers)


class VarlenLayout(NamedTuple):
    """What the varlen kernel needs of a pattern. Segments with an empty side are left out."""

    queries: Tensor | None
    """[n] positions of the queries that see something; None: all in order"""
    keys: Tensor | None
    """[n] positions of the keys, span after span; None: all in order"""
    query_ends: Tensor
    """[S + 1] int32, cumulative lengths of the segments, from 0"""
    key_ends: Tensor
    """[S + 1] int32, the same of the key spans"""
    longest_query: int
    longest_key: int


class AttentionPattern:
    """Which query segments see which key spans: what the kernels need to know, worked out once a batch."""

    def __init__(
        self, queries: Spans, keys: Spans, causal: bool, key_total: int, sentences: Spans | None = None
    ) -> None:
        """key_total: tokens of the memory that the key spans lie in; sentences: of what asks, where that matters."""
        if len(queries) != len(keys):
            raise ValueError(f"{len(queries)} query segments but {len(keys)} key spans: they must be aligned")
        if causal and not torch.equal(queries.lengths, keys.lengths):
            raise ValueError("causal attention needs key spans as long as their query segments")
        total = int(queries.lengths.sum())
        if not queries.tiles(total):
            raise ValueError("query segments must lie end to end from position 0")
        self.queries, self.keys, self.causal, self.sentences = queries, keys, causal, sentences
        self.query_total, self.key_total = total, key_total
        self.sees_nothing = not bool((queries.lengths * keys.lengths).any())
        self._kept: dict[object, Any] = {}

    def _order(self) -> list[list[int]]:
        """Segment numbers by bucket, largest area first; segments with an empty side are left out."""
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
        """Gather indices and masks of the padded kernel, on `device`."""
        return self.kept(("padded", heads, device), lambda: PaddedLayout(self, self._order(), heads, device))

    def varlen_layout(self, device: torch.device) -> VarlenLayout:
        """Indices and lengths for the varlen kernel, on `device`."""
        queries, keys = self.queries, self.keys
        filled = (queries.lengths > 0) & (keys.lengths > 0)
        if not bool(filled.all()):
            chosen = filled.nonzero().flatten()
            queries, keys = queries.select(chosen), keys.select(chosen)
        query_ends, key_ends = (F.pad(spans.lengths.cumsum(0), (1, 0)) for spans in (queries, keys))
        return VarlenLayout(
            None if queries.tiles(self.query_total) else queries.indices().to(device),
            None if keys.tiles(self.key_total) else keys.indices().to(device),
            query_ends.to(device, torch.int32),
            key_ends.to(device, torch.int32),
            int(queries.lengths.max()),
            int(keys.lengths.max()),
        )

    def kept(self, name: object, make: Callable[[], Kept]) -> Kept:
        """What `make` gives, which is made once and then kept by this name."""
        if name not in self._kept:
            self._kept[name] = make()
        found: Kept = self._kept[name]
        return found


class PaddedLayout:
    """Where every token of every head goes when segments are padded into buckets.

    Counts and lengths of buckets are rounded up to few different numbers: a bfloat16 product of a shape not seen
    before takes half a millisecond more on CPU, about a fifth of the training step of a small model:
    docs/contributing/decisions/0011-bfloat16-training.md.

    Rows are (token, head) pairs, token-major in the packed tensors and head-major inside a bucket [n, H, l, k],
    so that one gather pads, splits heads and brings all buckets into the layout of a batched product.
    """

    def __init__(self, pattern: AttentionPattern, order: list[list[int]], heads: int, device: torch.device) -> None:
        self.buckets: list[Bucket] = []
        query_rows, key_rows = [], []
        for members in order:
            index = torch.tensor(members)
            count = _coarse(len(members))
            q = _coarse(int(pattern.queries.lengths[index].max()))
            length = _coarse(int(pattern.keys.lengths[index].max()))
            query_rows.append(_bucket_rows(pattern.queries, index, count, q, heads))
            key_rows.append(_bucket_rows(pattern.keys, index, count, length, heads))
            mask = key_rows[-1][1].view(count, heads, length)[:, :1, None, :].clone()
            mask[len(members) :] = True  # segments that only fill the count may look anywhere
            masked = not pattern.causal and not bool(mask.all())
            key_mask = mask.to(device) if masked else None
            self.buckets.append(Bucket(count, q, length, key_mask, pattern.causal, device))
        self.query = Rows(query_rows, pattern.query_total * heads, device)
        self.key = Rows(key_rows, -1 if pattern.keys.overlap() else pattern.key_total * heads, device)


class Rows:
    """Padded rows and their inverse. `inverse` [total] is None when a row may be gathered several times."""

    def __init__(self, rows: Sequence[tuple[Tensor, Tensor]], total: int, device: torch.device) -> None:
        """rows: parts of the padded rows, of each [n] the row that stands there and [n] bool whether it is no padding;
        total: of the rows that are packed (-1: some are gathered several times)."""
        index, kept = (torch.cat(parts) for parts in zip(*rows, strict=True))
        self.index = index.to(device)
        self.padding = torch.nonzero(~kept).flatten().to(device)
        self.inverse: Tensor | None = None
        self.missing: Tensor | None = None
        if total >= 0:
            inverse = torch.full((total,), -1, dtype=torch.int64)
            places = torch.nonzero(kept).flatten()
            inverse[index[places]] = places
            # Rows of segments without counterpart (an empty key span) are in no bucket: they come back as zeros.
            missing = torch.nonzero(inverse < 0).flatten()
            self.missing = missing.to(device) if len(missing) else None
            self.inverse = inverse.clamp(min=0).to(device)


def _coarse(n: int) -> int:
    """n rounded up to three binary digits: 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ..."""
    step = 1 << max(n.bit_length() - 3, 0)
    return -(-n // step) * step


def _bucket_rows(spans: Spans, members: Tensor, count: int, length: int, heads: int) -> tuple[Tensor, Tensor]:
    """Row numbers (token * H + head) in the order [n, H, l], and which of them are no padding."""
    starts, lengths = spans.starts.new_zeros(count), spans.lengths.new_zeros(count)
    starts[: len(members)], lengths[: len(members)] = spans.starts[members], spans.lengths[members]
    offset = torch.arange(length)
    real = offset < lengths[:, None]  # [n, l]
    tokens = torch.where(real, starts[:, None] + offset, starts[:, None])
    rows = tokens[:, None, :] * heads + torch.arange(heads)[:, None]  # [n, H, l]
    return rows.flatten(), real[:, None, :].expand_as(rows).flatten()


class _Move(torch.autograd.Function):
    """Rows of x by index, where each is wanted at most once besides padding: both ways are plain copies.

    `there` [m] is the row of x for each row of the result, `back` [n] the other way round. What has no counterpart
    (`unfilled` rows of the result, `unread` ones of x) is zero, of the result and of the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, there: Tensor, back: Tensor, unfilled: Tensor | None, unread: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(back, unread)
        return _Move.copied(x, there, unfilled)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _Move.copied(gradients[0], *ctx.saved_tensors), None, None, None, None

    @staticmethod
    def copied(x: Tensor, index: Tensor, zeros: Tensor | None) -> Tensor:
        result = x.index_select(0, index)
        return result if zeros is None else result.index_fill_(0, zeros, 0.0)


def padded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    dropout: float = 0.0,
    distances: Distances | None = None,
) -> Tensor:
    """Segments gathered into padded buckets of similar length, each one batched product. Works on every device."""
    heads, width = query.shape[1:]
    layout = pattern.padded_layout(heads, query.device)
    q_rows = gather_rows(query, layout.query)  # [sum of n * H * q, k]
    k_rows, v_rows = gather_rows(key, layout.key), gather_rows(value, layout.key)
    query_sizes = [b.count * heads * b.query_length for b in layout.buckets]
    key_sizes = [b.count * heads * b.key_length for b in layout.buckets]
    outputs = []
    for bucket, q, k, v in zip(
        layout.buckets,
        q_rows.split(query_sizes),
        k_rows.split(key_sizes),
        v_rows.split(key_sizes),
        strict=True,
    ):
        shape = (bucket.count, heads, -1, width)
        bias = None if distances is None else bucket.distance_biases(distances).to(q.dtype)
        found = _dense(q.view(shape), k.view(shape), v.view(shape), bucket, dropout, bias)
        outputs.append(found.reshape(-1, width))
    rows = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
    return scatter_rows(rows, layout.query).view(-1, heads, width)


def gather_rows(x: Tensor, rows: Rows) -> Tensor:
    """x [..., n], whose leading axes count the rows -> [padded rows, n]"""
    flat = x.reshape(-1, x.shape[-1])
    if rows.inverse is None:
        return flat.index_select(0, rows.index)
    result: Tensor = _Move.apply(flat, rows.index, rows.inverse, None, rows.missing)  # type: ignore[no-untyped-call]
    return result


def scatter_rows(x: Tensor, rows: Rows) -> Tensor:
    """Padded rows [.., n] -> [total, n], each where it came from."""
    result: Tensor = _Move.apply(x, rows.inverse, rows.index, rows.missing, rows.padding)  # type: ignore[no-untyped-call]
    return result


def _dense(q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, dropout: float, bias: Tensor | None = None) -> Tensor:
    """Attention over a padded bucket: q [n, H, q, k], k and v [n, H, l, k], bias [H, q, l]."""
    if q.device.type != "cpu" or k.shape[2] > _PLAIN_UP_TO.get(q.dtype, 0):
        mask, causal = bucket.key_mask, bucket.causal
        if bias is not None:
            hidden, causal = bucket.hidden(q.dtype), False
            mask = (bias if hidden is None else bias + hidden).expand(len(q), -1, -1, -1)
        elif mask is not None:
            mask = mask.expand(-1, -1, q.shape[2], -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    # Scores are the largest tensors here: they are changed in place, before any view is taken of them (in-place
    # changes of views make autograd copy), and by sums, whose gradient needs no work.
    scores = torch.bmm(q.flatten(0, 1) * q.shape[-1] ** -0.5, k.flatten(0, 1).transpose(1, 2))  # [n * H, q, l]
    if bias is not None:
        scores += bias.repeat(len(q), 1, 1)
    hidden = bucket.hidden(scores.dtype)
    if hidden is not None:
        scores += hidden if bucket.causal else hidden.expand(-1, q.shape[1], -1, -1).flatten(0, 1)
    weights = F.dropout(scores.softmax(-1), dropout)
    return torch.bmm(weights, v.flatten(0, 1)).view_as(q)


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    dropout: float = 0.0,
    distances: Distances | None = None,
) -> Tensor:
    """One segment after the other, written out: slow, and what the other kernels are compared with."""
    outputs = []
    layout = zip(
        pattern.queries.starts.tolist(),
        pattern.queries.lengths.tolist(),
        pattern.keys.starts.tolist(),
        pattern.keys.lengths.tolist(),
        strict=True,
    )
    for q_start, q_length, k_start, k_length in layout:
        q = query[q_start : q_start + q_length].transpose(0, 1)  # [H, q, k]
        k = key[k_start : k_start + k_length].transpose(0, 1)  # [H, l, k]
        v = value[k_start : k_start + k_length].transpose(0, 1)
        if k_length == 0:
            outputs.append(torch.zeros_like(query[q_start : q_start + q_length]))
            continue
        scores = q @ k.transpose(1, 2) / math.sqrt(query.shape[-1])
        if distances is not None:
            scores = scores + distances(torch.arange(q_length, device=q.device), k_length)
        if pattern.causal:
            scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -math.inf)
        weights = F.dropout(scores.softmax(-1), dropout)
        outputs.append((weights @ v).transpose(0, 1))
    return torch.cat(outputs)


def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    dropout: float = 0.0,
    distances: Distances | None = None,
) -> Tensor:
    """Flash attention on the packed tensors themselves (CUDA, 16-bit floats, no attention dropout, no distances)."""
    from torch.nn.attention.varlen import varlen_attn

    layout = pattern.kept(("varlen", query.device), lambda: pattern.varlen_layout(query.device))
    if layout.keys is not None:
        key, value = key[layout.keys], value[layout.keys]
    result = varlen_attn(
        query if layout.queries is None else query[layout.queries],
        key,
        value,
        layout.query_ends,
        layout.key_ends,
        layout.longest_query,
        layout.longest_key,
        window_size=(-1, 0) if pattern.causal else (-1, -1),
    )
    assert isinstance(result, Tensor)
    if layout.queries is None:
        return result
    return torch.zeros_like(query).index_copy(0, layout.queries, result)  # queries without keys give zeros


KERNELS = {"reference": reference, "padded": padded, "varlen": varlen}


def choose(query: Tensor, dropout: float, biased: bool = False) -> tuple[str, str]:
    """The kernel for these tensors and the reason for it; biased: scores have biases."""
    if query.device.type != "cuda":
        return "padded", f"no varlen kernel on {query.device.type}"
    if query.dtype not in (torch.bfloat16, torch.float16):
        return "padded", f"varlen needs 16-bit floats, not {query.dtype}"
    if dropout:
        return "padded", "varlen has no attention dropout"
    if biased:
        return "padded", "varlen has no biases of distances"
    return "varlen", "CUDA with 16-bit floats"
