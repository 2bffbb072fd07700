"""Translating in bfloat16: half the memory traffic of the weights, which is what decoding waits for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from docmt.decoding.ensemble import Model
from docmt.model import TranslationModel
from docmt.model.parts import Softmax

Precision = Literal["float32", "bfloat16"]


class PackedLinear(nn.Module):
    """x W^T + b with W in the layout in which the CPU multiplies bfloat16, so that it is not rearranged every time.

    1.2 to 1.8 times as fast for a few rows, no slower for many (docs/log.md). The operators are those that torch's own
    compiler generates for a frozen model; `available` says whether this installation and processor have them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 1)
        self.bias = None if bias is None else bias.detach()

    @staticmethod
    def available(device: torch.device) -> bool:
        """Whether weights on this device can be packed."""
        operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
        if device.type != "cpu" or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
            return False
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(torch.bfloat16), self.weight, self.bias, "none", [], ""
        )
        return result


def lower_precision(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Puts weights of matrix products into `precision`, in place; norms and sums stay in float32."""
    if precision == "float32":
        return model
    for name in model.parts.tables():
        model.get_submodule(name).to(torch.bfloat16)
    packs = PackedLinear.available(model.device)
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear):
                module.to(torch.bfloat16)
                if packs:
                    setattr(parent, name, PackedLinear(module.weight, module.bias))
    for module in model.modules():
        if isinstance(module, Softmax):
            module.to(torch.bfloat16)
    if packs:
        head = model.head()
        bias = None if head.bias is None else head.bias.to(torch.bfloat16)
        model.projection = PackedLinear(head.weight.to(torch.bfloat16), bias)
    return model


def computing_in(model: Model, precision: Precision) -> AbstractContextManager[object]:
    """The context in which such a model, or an ensemble of such, is run."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)
