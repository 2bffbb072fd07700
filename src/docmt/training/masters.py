"""Weights in bfloat16 to compute with, and in float32 to train (master weights: Micikevicius et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from docmt.model.parts import Softmax


class Masters:
    """The float32 weights of a model whose linear modules and embeddings are bfloat16.

    The optimiser changes those that are trained; frozen ones wait on the CPU for the model to be written. All other
    weights (of norms, of recurrent modules) are few, and float32 in the model itself.
    """

    def __init__(self, model: nn.Module) -> None:
        """Makes those of the model's weights bfloat16, where they are."""
        large = (module for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding | Softmax))
        rounded = {parameter for module in large for parameter in module.parameters(recurse=False)}
        self.trained: dict[str, nn.Parameter] = {}
        """what the optimiser changes, by name"""
        self._frozen: dict[str, Tensor] = {}
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []  # of the model, and its master
        for name, own in model.named_parameters():
            exact = own.detach()
            if own not in rounded:
                if own.requires_grad:
                    self.trained[name] = own
                continue
            own.data = exact.to(torch.bfloat16)
            if own.requires_grad:
                self.trained[name] = nn.Parameter(exact)
                self._pairs.append((own, self.trained[name]))
            else:
                self._frozen[name] = exact.cpu()

    def take_gradients(self) -> None:
        """Moves the gradients of the model to the float32 weights."""
        for own, master in self._pairs:
            master.grad = None if own.grad is None else own.grad.float()
            own.grad = None

    @torch.no_grad()
    def give_weights(self) -> None:
        """Rounds the float32 weights into the model."""
        for own, master in self._pairs:
            own.copy_(master)

    def exact(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state of the model with the float32 weights in it."""
        return {**state, **self._frozen, **{name: master.detach() for name, master in self.trained.items()}}
