"""The layer: residual branches, feed-forward blocks and dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import GateSigmoid
from docmt.model.contexts import AttentionContext


class Layer(nn.Module):
    """Blocks such as self-attention, cross-attention and feed-forward, each in its residual branch.

    A block is called with (states, context). Its branch prepares the input of the block and adds its output.
    """

    def __init__(self, blocks: Mapping[str, tuple[nn.Module, Residual]]) -> None:
        """blocks: by name; block `x` becomes the attribute `x`, and its branch `x_residual`."""
        super().__init__()
        self.order: list[str] = []
        for name, (block, branch) in blocks.items():
            self.insert(name, block, branch)

    @property
    def blocks(self) -> dict[str, tuple[nn.Module, Residual]]:
        """The blocks with their branches, by name."""
        return {name: (self._modules[name], self._modules[f"{name}_residual"]) for name in self.order}  # type: ignore[misc]

    def insert(self, name: str, block: nn.Module, branch: Residual, after: str = "") -> Layer:
        """Insert a block after the named one, or at the end. Returns the layer."""
        if after and after not in self.order:
            raise ValueError(f"the layer has no block {after!r}: insert {name!r} after one of {self.order}")
        self.order.insert(self.order.index(after) + 1 if after else len(self.order), name)
        self.add_module(name, block)
        self.add_module(f"{name}_residual", branch)
        return self

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        for block, branch in self.blocks.values():
            x = branch.add_output(x, block(branch.prepare_input(x), context))
        return x

    def iterate_blocks(self, x: Tensor, context: AttentionContext) -> Iterator[tuple[str, Tensor]]:
        """Yield each block's name, and the states [..., d] after its branch."""
        for name, (block, branch) in self.blocks.items():
            x = branch.add_output(x, block(branch.prepare_input(x), context))
            yield name, x


class Residual(nn.Module):
    """Residual branch around a block f: norm(x + dropout(f(x))), or with pre-norm x + dropout(f(norm(x))).

    Without a norm: x + dropout(f(x)).
    """

    def __init__(self, norm: nn.Module | None, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def prepare_input(self, x: Tensor) -> Tensor:
        """Return the input of the block."""
        return self.norm(x) if self.pre_norm and self.norm is not None else x

    def add_output(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the block's output to the input x of the branch."""
        total = self.join(x, output)
        return total if self.pre_norm or self.norm is None else self.norm(total)

    def join(self, x: Tensor, output: Tensor) -> Tensor:
        """Join the input and the output, before the norm."""
        return x + self.dropout(output)


class GatedResidual(Residual):
    """Residual branch around context attention, with a gate lam = sigmoid(W x + U y) in [0, 1]^d.

    Published (Zhang et al. 2018, section 3.3, and their code): norm(lam * x + (1 - lam) * y). Additive:
    x + (1 - lam) * y. Without a norm, the latter is the identity as long as y is zero.
    """

    def __init__(self, norm: nn.Module | None, width: int, pre_norm: bool, additive: bool) -> None:
        super().__init__(norm, 0.0, pre_norm)
        self.additive = additive
        self.gate_input = nn.Linear(width, width, bias=False)
        self.gate_context = nn.Linear(width, width, bias=False)
        self.opening = GateSigmoid("input")
        for projection in (self.gate_input, self.gate_context):
            nn.init.xavier_uniform_(projection.weight)

    def join(self, x: Tensor, output: Tensor) -> Tensor:
        """Join the input and the output by the gate, before the norm."""
        gate = self.opening(self.gate_input(x) + self.gate_context(output))
        # Not `lerp`: under autocast, x from a norm may have another precision.
        return x + (1 - gate) * output if self.additive else output + gate * (x - output)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED_PREFIX = "gated_"
"""Prefix of gated activations: their output is multiplied by a third product (Shazeer 2020)."""


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, or gated W2 (f(W1 x + b1) * (W3 x + b3)) + b2, element by element."""

    def __init__(self, width: int, inner: int, activation: str, biases: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation.removeprefix(GATED_PREFIX)]
        self.inner = nn.Linear(width, inner, bias=biases)
        self.factor = nn.Linear(width, inner, bias=biases) if activation.startswith(GATED_PREFIX) else None
        self.outer = nn.Linear(inner, width, bias=biases)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]; the context is unused."""
        states = self.activation(self.inner(x))
        return self.outer(states if self.factor is None else states * self.factor(x))


def run_layers(layers: Iterable[nn.Module], x: Tensor, context: AttentionContext) -> Tensor:
    """Run x [..., d] through a stack of layers."""
    for layer in layers:
        x = layer(x, context)
    return x


class Dropout(nn.Module):
    """Dropout with 16 random bits per element on CPU.

    The generator is the bottleneck there, and this needs a quarter of its calls (4 times faster). The rate is rounded
    to 1/65536.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """x [...] -> [...]"""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        return _BitDropout.apply(x, self.rate)  # type: ignore[no-untyped-call]


class _BitDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        num_dropped = round(rate * 65536)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        is_kept = (words.view(torch.int16)[: x.numel()] >= num_dropped - 32768).view(x.shape)
        factors = is_kept.to(x.dtype).mul_(65536 / (65536 - num_dropped))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (factors,) = ctx.saved_tensors
        return gradients[0] * factors, None
