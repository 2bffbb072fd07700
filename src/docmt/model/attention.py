"""`attend`, multi-head attention over spans, and the gate that joins group and global attention."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from docmt.model import kernels
from docmt.model.packed import Packed
from docmt.model.spans import Spans

_log = logging.getLogger(__name__)
_reasons_logged: set[str] = set()


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
) -> Tensor:
    """Scaled dot-product attention in which segment i of the queries sees span i of the keys and nothing else.

    query [Tq, H, k]; key, value [Tk, H, k]; returns [Tq, H, k]. `queries` must tile the Tq positions; key spans
    may lie anywhere. With `causal`, token j of a segment sees tokens 0..j of its span. `kernel` forces one of
    `kernels.KERNELS`. Work is the sum of |segment| x |span|: nothing outside the pattern is computed.
    Raises ValueError when spans do not fit together.
    """
    key_of_pattern = (id(keys), causal)
    remembered = queries._patterns.get(key_of_pattern)
    if not isinstance(remembered, kernels.Pattern):
        remembered = kernels.Pattern(queries, keys, causal)
        queries._patterns[key_of_pattern] = remembered
    if kernel is None:
        kernel, reason = kernels.choose(query, dropout)
        if reason not in _reasons_logged:
            _reasons_logged.add(reason)
            _log.info("attention kernel: %s (%s)", kernel, reason)
    if kernel not in kernels.KERNELS:
        raise ValueError(f"kernel {kernel!r}: choose one of {', '.join(kernels.KERNELS)}")
    function = {"reference": kernels.reference, "padded": kernels.padded, "varlen": kernels.varlen}[kernel]
    # Queries, keys and values come in the precision that the projections chose; autocast would only add copies here.
    with torch.autocast(query.device.type, enabled=False):
        return function(query, key, value, remembered, dropout)


class MultiHeadAttention(nn.Module):
    """Projections, H heads over spans, output projection (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def split(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., H, k]"""
        return x.unflatten(-1, (self.heads, -1))

    def forward(self, x: Tensor, memory: Tensor, queries: Spans, keys: Spans, causal: bool = False) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d] (the same tensor for self-attention); returns [Tq, d]."""
        attended = attend(
            self.split(self.query(x)),
            self.split(self.key(memory)),
            self.split(self.value(memory)),
            queries,
            keys,
            causal,
            dropout=self.dropout if self.training else 0.0,
        )
        output: Tensor = self.output(attended.flatten(-2))
        return output


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * width, width)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """local, whole [..., d] -> [..., d]"""
        gate = torch.sigmoid(self.linear(torch.cat((local, whole), dim=-1)))
        return torch.lerp(whole, local, gate)


class ScopedAttention(nn.Module):
    """Attention within sentences, within documents, or both joined by a gate; each scope has its own projections.

    `scope` is "sentence" (group attention), "document" (global attention) or "both" (combined).
    """

    def __init__(self, width: int, heads: int, scope: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.scope = scope
        self.local = MultiHeadAttention(width, heads, dropout) if scope != "document" else None
        self.whole = MultiHeadAttention(width, heads, dropout) if scope != "sentence" else None
        self.gate = Gate(width) if scope == "both" else None

    def forward(self, x: Tensor, memory: Tensor, queries: Packed, keys: Packed, causal: bool = False) -> Tensor:
        """x [Tq, d], memory [Tk, d] -> [Tq, d]"""
        local = whole = None
        if self.local is not None:
            local = self.local(x, memory, queries.sentences, keys.sentences, causal)
        if self.whole is not None:
            whole = self.whole(x, memory, queries.documents, keys.documents, causal)
        return self.join(local, whole)

    def join(self, local: Tensor | None, whole: Tensor | None) -> Tensor:
        """The gate where both scopes are there, else the one that is."""
        if self.gate is not None and local is not None and whole is not None:
            joined: Tensor = self.gate(local, whole)
            return joined
        one = local if local is not None else whole
        assert one is not None
        return one
