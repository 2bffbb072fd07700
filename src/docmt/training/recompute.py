"""Activation checkpointing: layers keep their input alone, and are computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from docmt.model.layers import Layer
from docmt.model.view import View


def recompute_layers(model: nn.Module) -> None:
    """Lets every layer of the model keep its input alone while it is trained (Chen et al. 2016).

    Numbers stay the same: dropout draws again what it drew. Outside of training nothing changes.
    """
    for module in model.modules():
        if isinstance(module, Layer):
            module.forward = _recomputed(module, module.forward)  # type: ignore[assignment, method-assign]


def _recomputed(layer: Layer, forward: Callable[[Tensor, View], Tensor]) -> Callable[[Tensor, View], Tensor]:
    def recomputed(x: Tensor, view: View) -> Tensor:
        if not (layer.training and torch.is_grad_enabled()):
            return forward(x, view)
        found: Any = checkpoint(forward, x, view, use_reentrant=False)
        result: Tensor = found
        return result

    return recomputed
