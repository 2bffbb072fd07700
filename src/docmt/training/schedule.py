"""The learning rate of every update."""

from __future__ import annotations


def inverse_square_root(update: int, peak: float, warmup: int) -> float:
    """Linear from 0 to `peak` over `warmup` updates, then peak * sqrt(warmup / update) (Vaswani et al. 2017, 5.3).

    `update` counts from 1. Without warm-up the decay starts at the first update.
    """
    if update < warmup:
        return peak * update / warmup
    return peak * (max(warmup, 1) / update) ** 0.5
