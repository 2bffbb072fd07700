"""How far a gate is open, as a module of its own: who looks into a model finds every gate by this class."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class Opening(nn.Module):
    """sigmoid(x), element by element: how much of two things a gate lets through."""

    def __init__(self, lets: Literal["own", "context"]) -> None:
        """lets: what passes at 1. own: what is there without context; context: what was found in the context."""
        super().__init__()
        self.lets = lets

    def forward(self, x: Tensor) -> Tensor:
        """x [..., d] -> [..., d]"""
        return torch.sigmoid(x)

    def of_context(self, opening: Tensor) -> Tensor:
        """The share of context, of what `forward` gave."""
        return opening if self.lets == "context" else 1 - opening
