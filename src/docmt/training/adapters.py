"""Low-rank adapters: a small change of a large matrix is trained in its place (Hu et al. 2021, "LoRA")."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.checkpoint.weights import read_weights
from docmt.core.errors import DocmtError
from docmt.training.config import AdapterConfig
from docmt.training.tuning import fitting

ADAPTERS_FILE = "adapters.safetensors"
"""In the checkpoint that a run goes on from, whose weights have the adapters in them: both apart."""
_log = logging.getLogger(__name__)


class Adapted(nn.Linear):
    """x W^T + b + alpha / r * x A^T B^T, with A [r, in] (`down`), B [out, r] (`up`) at first zero.

    W and b are those of the module that it takes the place of.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)  # no weights are drawn that nobody needs
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = base.weight
        self.register_parameter("bias", base.bias)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as nn.Linear begins, and the authors' code

    def forward(self, input: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        return super().forward(input) + self.scale * F.linear(F.linear(input, self.down), self.up)


def adapt(model: nn.Module, config: AdapterConfig, new_weights: Collection[str]) -> None:
    """Freezes all loaded weights and puts adapters beside those that the configuration names.

    Modules that the system does not train are left. Raises DocmtError for patterns that fit no loaded linear module,
    and for a rank that would save nothing.
    """
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and f"{name}.weight" not in new_weights
    }
    chosen = {
        name for pattern in config.patterns for name in fitting("adapters.modules", pattern, linear, "linear module")
    }
    for name, parameter in model.named_parameters():
        if name not in new_weights:
            parameter.requires_grad_(False)
    for name, module in linear.items():
        if name not in chosen:
            continue
        if config.rank > min(module.weight.shape):
            raise DocmtError(
                f"adapters.rank is {config.rank}, but {name} has {' x '.join(map(str, module.weight.shape))} weights: "
                f"choose at most {min(module.weight.shape)}, or leave it out of adapters.modules"
            )
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, Adapted(module, config.rank, config.alpha))
    _log.info("adapters of rank %d beside %d linear modules", config.rank, len(chosen))


def adapters_of(model: nn.Module) -> dict[str, Adapted]:
    """The adapted modules by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Adapted)}


def without_adapters(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights (by the names of the model's state) of the same function without adapters: W + alpha / r * B A."""
    plain = dict(weights)
    for name, module in adapters_of(model).items():
        change = module.scale * (plain.pop(f"{name}.up") @ plain.pop(f"{name}.down"))
        plain[f"{name}.weight"] = plain[f"{name}.weight"] + change.to(plain[f"{name}.weight"].device)
    return plain


def remove_adapters(model: nn.Module) -> None:
    """Puts linear modules back in the place of adapted ones; what adapters have learned is gone with them."""
    for name, module in adapters_of(model).items():
        with torch.device("meta"):
            linear = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        linear.weight, linear.bias = module.weight, module.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, linear)


def adapter_tensors(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of the weights that adapted modules are made of."""
    parts = ("weight", "down", "up")
    return {f"{name}.{part}": weights[f"{name}.{part}"] for name in adapters_of(model) for part in parts}


def restore_adapters(model: nn.Module, path: Path) -> None:
    """Copies what `adapter_tensors` gave into the model. Raises DocmtError for a file that is damaged or of another."""
    tensors, own = read_weights(path), dict(model.named_parameters())
    for name, parameter in adapter_tensors(model, own).items():
        if name not in tensors or tensors[name].shape != parameter.shape:
            raise DocmtError(f"{path} does not fit the model (at {name}): copy the run directory again")
        with torch.no_grad():
            parameter.copy_(tensors[name])
