"""Encoder and decoder layers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import ScopedAttention
from docmt.model.config import ModelConfig, Scope
from docmt.model.packed import Packed


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


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, with f = relu or gelu"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = F.relu if config.activation == "relu" else F.gelu
        self.inner = nn.Linear(config.width, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., d] -> [..., d]"""
        output: Tensor = self.outer(self.activation(self.inner(x)))
        return output


class SubLayer(nn.Module):
    """The residual branch around a sub-layer: norm(x + dropout(f(x))), or with pre-norm x + dropout(f(norm(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.normalization == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        normed: Tensor = self.norm(x) if self.pre_norm else x
        return normed

    def leave(self, x: Tensor, output: Tensor) -> Tensor:
        """The residual sum of the branch's input and the sub-layer's output."""
        total = x + self.dropout(output)
        normed: Tensor = total if self.pre_norm else self.norm(total)
        return normed


class EncoderLayer(nn.Module):
    """Self-attention over the scope of the layer, then a feed-forward sub-layer."""

    def __init__(self, config: ModelConfig, scope: Scope) -> None:
        super().__init__()
        self.attention = ScopedAttention(config.width, config.heads, scope, config.attention_dropout)
        self.attention_residual = SubLayer(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = SubLayer(config)

    def forward(self, x: Tensor, source: Packed) -> Tensor:
        """x [Ts, d] -> [Ts, d]"""
        entered = self.attention_residual.enter(x)
        x = self.attention_residual.leave(x, self.attention(entered, entered, source, source))
        return self.feed_forward_residual.leave(x, self.feed_forward(self.feed_forward_residual.enter(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and a feed-forward sub-layer, each over the scope of the layer."""

    def __init__(self, config: ModelConfig, self_scope: Scope, cross_scope: Scope) -> None:
        super().__init__()
        self.attention = ScopedAttention(config.width, config.heads, self_scope, config.attention_dropout)
        self.attention_residual = SubLayer(config)
        self.cross = ScopedAttention(config.width, config.heads, cross_scope, config.attention_dropout)
        self.cross_residual = SubLayer(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = SubLayer(config)

    def forward(self, x: Tensor, target: Packed, memory: Tensor, source: Packed) -> Tensor:
        """x [Tt, d], memory [Ts, d] -> [Tt, d]"""
        entered = self.attention_residual.enter(x)
        x = self.attention_residual.leave(x, self.attention(entered, entered, target, target, causal=True))
        x = self.cross_residual.leave(x, self.cross(self.cross_residual.enter(x), memory, target, source))
        return self.feed_forward_residual.leave(x, self.feed_forward(self.feed_forward_residual.enter(x)))
