"""`attend`, multi-head attention over spans, and the gate that joins group and global attention."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from docmt.model import kernels
from docmt.model.gates import Opening
from docmt.model.kernels import Pattern
from docmt.model.positions import Distances
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
    distances: Distances | None = None,
) -> Tensor:
    """Scaled dot-product attention in which segment i of the queries sees span i of the keys and nothing else.

    query [Tq, H, k]; key, value [Tk, H, k]; returns [Tq, H, k]. `queries` must tile the Tq positions; key spans
    may lie anywhere. With `causal`, token j of a segment sees tokens 0..j of its span. `kernel` forces one of
    `kernels.KERNELS`. `distances` biases scores by how far a key is from a query, both counted from where their
    segment and span begin. Work is the sum of |segment| x |span|: nothing outside the pattern is computed.
    Raises ValueError when spans do not fit together.
    """
    pattern = Pattern(queries, keys, causal, len(key))
    return attend_pattern(query, key, value, pattern, dropout=dropout, kernel=kernel, distances=distances)


def attend_pattern(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    *,
    dropout: float = 0.0,
    kernel: str | None = None,
    distances: Distances | None = None,
) -> Tensor:
    """`attend` with a pattern that is worked out already."""
    if pattern.sees_nothing:
        # Gradients (zeros) must reach all three nevertheless, or processes that exchange them would wait for ever.
        return query * 0.0 + 0.0 * (key.sum() + value.sum())
    if kernel is None:
        kernel, reason = kernels.choose(query, dropout, distances is not None)
        if reason not in _reasons_logged:
            _reasons_logged.add(reason)
            _log.info("attention kernel: %s (%s)", kernel, reason)
    if kernel not in kernels.KERNELS:
        raise ValueError(f"kernel {kernel!r}: choose one of {', '.join(kernels.KERNELS)}")
    function = {"reference": kernels.reference, "padded": kernels.padded, "varlen": kernels.varlen}[kernel]
    # Queries, keys and values come in the precision that the projections chose; autocast would only add copies here.
    with torch.autocast(query.device.type, enabled=False):
        return function(query, key, value, pattern, dropout, distances)


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
        *,
        head_width: int = 0,
        biases: bool = True,
        scaled: bool = True,
        distances: Distances | None = None,
    ) -> None:
        """memory_width: of the states that are looked at, where that is not `width`. Without `output_bias`, an
        attention that sees nothing gives zero. head_width: k (0: width / heads); scaled: scores are divided by the
        square root of k; distances: biases of them, which belong to the model."""
        super().__init__()
        self.heads, self.sight, self.dropout = heads, sight, dropout
        inner = heads * (head_width or width // heads)
        self.query = nn.Linear(width, inner, bias=biases)
        self.key = nn.Linear(memory_width or width, inner, bias=biases)
        self.value = nn.Linear(memory_width or width, inner, bias=biases)
        self.output = nn.Linear(inner, width, bias=biases and output_bias)
        self.joint: nn.Module | None = None
        self.factor = 1.0 if scaled else (inner // heads) ** 0.5
        self._distances = (distances,)  # not a module of this one
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    @property
    def distances(self) -> Distances | None:
        """What scores have for the distance of a key, shared by all attentions of a stack."""
        return self._distances[0]

    def split(self, x: Tensor) -> Tensor:
        """[..., H k] -> [..., H, k]"""
        return x.unflatten(-1, (self.heads, -1))

    def asked(self, x: Tensor) -> Tensor:
        """What x [..., d] asks, for kernels, which divide by the square root of k: [..., H, k]."""
        query = self.split(self.query(x))
        return query if self.factor == 1.0 else query * self.factor

    def join_projections(self) -> None:
        """Makes one product of the three projections where all are of the same states: fewer, larger calls."""
        if self.sight.memory != "self" or self.sight.part == "before":
            return
        parts = (self.query, self.key, self.value)
        weights = torch.cat([own.weight.detach() for own in parts])
        biased = self.query.bias is not None
        self.joint = nn.Linear(weights.shape[1], weights.shape[0], bias=biased, device="meta")
        self.joint.weight = nn.Parameter(weights)
        if biased:
            self.joint.bias = nn.Parameter(torch.cat([own.bias.detach() for own in parts]))
        del self.query, self.key, self.value

    def projected(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What x [..., d] asks, and keys and values of memory [..., d] (the same tensor for self-attention), each
        [..., H, k]."""
        if self.joint is None:
            return self.asked(x), self.split(self.key(memory)), self.split(self.value(memory))
        query, pair = self.asked_and_kept(x)
        key, value = pair.unbind(-3)
        return query, key, value

    def asked_and_kept(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What x [..., d] asks of the sequence that it belongs to, [..., H, k], and its own keys and values,
        [..., 2, H, k]."""
        if self.joint is None:
            return self.asked(x), torch.stack((self.split(self.key(x)), self.split(self.value(x))), dim=-3)
        parts = self.joint(x).unflatten(-1, (3, self.heads, -1))
        query = parts[..., 0, :, :]
        return query if self.factor == 1.0 else query * self.factor, parts[..., 1:, :, :]

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]"""
        output: Tensor = self.output(view.attend(self, x))
        return output

    def over(self, x: Tensor, memory: Tensor, pattern: Pattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d] (the same tensor for self-attention): [Tq, H k].

        times: how often the pattern has the queries, one time after the other; then [times * Tq, d].
        """
        query, key, value = self.projected(x, memory)
        return attend_pattern(
            query if times == 1 else query.repeat(times, 1, 1),
            key,
            value,
            pattern,
            dropout=self.dropout if self.training else 0.0,
            distances=self.distances,
        ).flatten(-2)


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3).

    Additive: local + (1 - g) * global, which is what is there without the document where global is zero.
    """

    def __init__(self, width: int, bias: float = 0.0, *, additive: bool = False) -> None:
        """bias: its start; at 3, 5 % of the attention over the document come through."""
        super().__init__()
        self.additive = additive
        self.linear = nn.Linear(2 * width, width)
        self.opening = Opening("own")
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """local, whole [..., d] -> [..., d]"""
        gate = self.opening(self.linear(torch.cat((local, whole), dim=-1)))
        return local + (1 - gate) * whole if self.additive else torch.lerp(whole, local, gate)


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
