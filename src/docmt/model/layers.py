"""The only layer there is: named blocks in order, each in its residual branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.gates import Opening
from docmt.model.view import View


class Layer(nn.Module):
    """Blocks such as self-attention, cross-attention and feed-forward, one after the other.

    A block is called with (states, view), its branch has `enter` (what the block reads) and `leave` (what goes on).
    """

    def __init__(self, blocks: dict[str, tuple[nn.Module, Residual]]) -> None:
        """Block `x` becomes the attribute `x`, its branch `x_residual`."""
        super().__init__()
        self.order: list[tuple[str, str]] = []
        for name, (block, branch) in blocks.items():
            self.insert(name, block, branch)

    def insert(self, name: str, block: nn.Module, branch: Residual, after: str = "") -> Layer:
        """Puts in one more block, behind the named one (or behind all); returns the layer."""
        names = [block_name for block_name, _ in self.order]
        place = names.index(after) + 1 if after else len(names)
        self.order.insert(place, (name, f"{name}_residual"))
        self.add_module(name, block)
        self.add_module(f"{name}_residual", branch)
        return self

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]"""
        for _, passed in self.passed(x, view):
            x = passed
        return x

    def passed(self, x: Tensor, view: View) -> Iterator[tuple[str, Tensor]]:
        """x [..., d] behind each block and its branch, with the name of the block."""
        for block_name, branch_name in self.order:
            block: Any = self._modules[block_name]
            branch: Any = self._modules[branch_name]
            x = branch.leave(x, block(branch.enter(x), view))
            yield block_name, x


class Residual(nn.Module):
    """The branch around a block f: norm(x + dropout(f(x))), or with pre-norm x + dropout(f(norm(x))).

    Without a norm: x + dropout(f(x)).
    """

    def __init__(self, norm: nn.Module | None, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """What the block reads."""
        normed: Tensor = self.norm(x) if self.pre_norm and self.norm is not None else x
        return normed

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """What goes on after the branch, from its input and the block's output."""
        total = x + self.dropout(output)
        normed: Tensor = total if self.pre_norm or self.norm is None else self.norm(total)
        return normed


class GatedResidual(Residual):
    """The branch around an attention to context, joined by a gate lam = sigmoid(W x + U y) in [0, 1]^d.

    Published (Zhang et al. 2018, section 3.3, and their code): norm(lam * x + (1 - lam) * y). Additive:
    x + (1 - lam) * y, which, where no norm follows, is the identity as long as y is zero.
    """

    def __init__(self, norm: nn.Module | None, width: int, pre_norm: bool, additive: bool) -> None:
        super().__init__(norm, 0.0, pre_norm)
        self.additive = additive
        self.gate_input = nn.Linear(width, width, bias=False)
        self.gate_context = nn.Linear(width, width, bias=False)
        self.opening = Opening("own")
        for projection in (self.gate_input, self.gate_context):
            nn.init.xavier_uniform_(projection.weight)

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """What goes on after the branch, from its input and the block's output."""
        gate = self.opening(self.gate_input(x) + self.gate_context(output))
        # Not `lerp`: under autocast x may be of another precision, where a norm gave it.
        total = x + (1 - gate) * output if self.additive else output + gate * (x - output)
        normed: Tensor = total if self.pre_norm or self.norm is None else self.norm(total)
        return normed


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED = "gated_"
"""Before the name of an activation: what it gives is multiplied with a product of its own (Shazeer 2020)."""


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, or gated W2 (f(W1 x + b1) * (W3 x + b3)) + b2, element by element."""

    def __init__(self, width: int, inner: int, activation: str, biases: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation.removeprefix(GATED)]
        self.inner = nn.Linear(width, inner, bias=biases)
        self.factor = nn.Linear(width, inner, bias=biases) if activation.startswith(GATED) else None
        self.outer = nn.Linear(inner, width, bias=biases)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """x [..., d] -> [..., d]; looks at nothing else."""
        states = self.activation(self.inner(x))
        output: Tensor = self.outer(states if self.factor is None else states * self.factor(x))
        return output


def run(layers: Iterable[nn.Module], x: Tensor, view: View) -> Tensor:
    """x [..., d] through a stack of layers."""
    for layer in layers:
        x = layer(x, view)
    return x


class Dropout(nn.Module):
    """Dropout with 16 random bits an element on CPU: the generator is the bottleneck there, and this needs a
    quarter of its calls (4 times faster; the rate is rounded to 1/65536)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """x [...] -> [...]"""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        result: Tensor = _BitDropout.apply(x, self.rate)  # type: ignore[no-untyped-call]
        return result


class _BitDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        dropped = round(rate * 65536)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = (words.view(torch.int16)[: x.numel()] >= dropped - 32768).view(x.shape)
        factors = kept.to(x.dtype).mul_(65536 / (65536 - dropped))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (factors,) = ctx.saved_tensors
        return gradients[0] * factors, None
