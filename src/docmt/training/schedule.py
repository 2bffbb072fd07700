"""The learning rate of every update."""

from __future__ import annotations


def constant(update: int, peak: float, warmup: int) -> float:
    """Linear from 0 to `peak` over `warmup` updates, then `peak`. `update` counts from 1."""
    return peak * min(update / max(warmup, 1), 1.0)


def inverse_square_root(update: int, peak: float, warmup: int) -> float:
    """Linear from 0 to `peak` over `warmup` updates, then peak * sqrt(warmup / update) (Vaswani et al. 2017, 5.3).

    `update` counts from 1. Without warm-up the decay starts at the first update.
    """
    if update < warmup:
        return peak * update / warmup
    return peak * (max(warmup, 1) / update) ** 0.5
