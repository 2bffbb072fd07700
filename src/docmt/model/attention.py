"""`attend`, multi-head attention over spans, and the gate that joins group and global attention."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from docmt.model import kernels
from docmt.model.gates import Opening
from docmt.model.kernels import Pattern
from docmt.model.sight import Sight
from docmt.model.spans import Spans
from docmt.model.view import View

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
    return attend_pattern(query, key, value, Pattern(queries, keys, causal, len(key)), dropout=dropout, kernel=kernel)


def attend_pattern(
    query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, *, dropout: float = 0.0, kernel: str | None = None
) -> Tensor:
    """`attend` with a pattern that is worked out already."""
    if pattern.sees_nothing:
        # Gradients (zeros) must reach all three nevertheless, or processes that exchange them would wait for ever.
        return query * 0.0 + 0.0 * (key.sum() + value.sum())
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
        return function(query, key, value, pattern, dropout)


class Attention(nn.Module):
    """Projections, H heads over what the sight names, output projection (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(
        self,
        width: int,
        heads: int,
        sight: Sight,
        dropout: float = 0.0,
        memory_width: int | None = None,
        output_bias: bool = True,
    ) -> None:
        """memory_width: of the states that are looked at, where that is not `width`. Without `output_bias`, an
        attention that sees nothing gives zero."""
        super().__init__()
        self.heads, self.sight, self.dropout = heads, sight, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(memory_width or width, width)
        self.value = nn.Linear(memory_width or width, width)
        self.output = nn.Linear(width, width, bias=output_bias)
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        if output_bias:
            nn.init.zeros_(self.output.bias)

    def split(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., H, k]"""
        return x.unflatten(-1, (self.heads, -1))

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]"""
        output: Tensor = self.output(view.attend(self, x))
        return output

    def over(self, x: Tensor, memory: Tensor, pattern: Pattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d] (the same tensor for self-attention): [Tq, d].

        times: how often the pattern has the queries, one time after the other; then [times * Tq, d].
        """
        query = self.split(self.query(x))
        return attend_pattern(
            query if times == 1 else query.repeat(times, 1, 1),
            self.split(self.key(memory)),
            self.split(self.value(memory)),
            pattern,
            dropout=self.dropout if self.training else 0.0,
        ).flatten(-2)


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3)."""

    def __init__(self, width: int, bias: float = 0.0) -> None:
        """bias: its start; at 3, 5 % of the attention over the document come through."""
        super().__init__()
        self.linear = nn.Linear(2 * width, width)
        self.opening = Opening("own")
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """local, whole [..., d] -> [..., d]"""
        gate = self.opening(self.linear(torch.cat((local, whole), dim=-1)))
        return torch.lerp(whole, local, gate)


class GroupAttention(nn.Module):
    """Attention within sentences (`local`), over the document (`whole`), or both joined by a gate."""

    def __init__(
        self, local: Attention | None = None, whole: Attention | None = None, gate: Gate | None = None
    ) -> None:
        super().__init__()
        self.local, self.whole, self.gate = local, whole, gate

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]"""
        found: list[Tensor] = [part(x, view) for part in (self.local, self.whole) if part is not None]
        joined: Tensor = found[0] if self.gate is None else self.gate(*found)
        return joined
