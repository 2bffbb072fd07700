"""Translating with weights of less precision: less memory to read, which is what decoding waits for.

What stands for a product x W^T + b is chosen here: it depends on the precision, the processor and the number of rows.
Speeds are in docs/log.md.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.core.errors import DocmtError
from docmt.core.settings import one_of
from docmt.decoding.ensemble import Model
from docmt.model import TranslationModel
from docmt.model.attention import Attention
from docmt.model.embeddings import Softmax

Precision = Literal["float32", "bfloat16", "int8"]
_FEW_ROWS = range(2, 257)
_LEAST_SIZE = 8192


class FloatLinear(nn.Module):
    """x W^T + b in float32, by oneDNN for a few rows of large products, where it is 1.1 to 1.7 times as fast as what
    `linear` takes (MKL on x86)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    @staticmethod
    def available(device: torch.device) -> bool:
        """Whether oneDNN's product is there for tensors on this device."""
        return device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        rows = x.numel() // x.shape[-1]
        gains = rows in _FEW_ROWS and rows * max(self.weight.shape) >= _LEAST_SIZE
        if not gains or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


class PackedLinear(nn.Module):
    """x W^T + b with W in the layout in which the CPU multiplies bfloat16, so that it is not rearranged every time.

    1.2 to 1.8 times as fast for a few rows, no slower for many. The operators are those that torch's own compiler
    generates for a frozen model; `available` says whether this installation and processor have them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16), 1)
        self.bias = None if bias is None else bias.detach().to(torch.bfloat16)

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


class Int8Linear(nn.Module):
    """x W^T + b in integers of 8 bits: W with a scale for each output, x with one for each row.

    So a row's result does not depend on what other rows there are, to the last bit: sums of integers are exact.
    """

    _ZERO = 128  # what 0 becomes: rows are unsigned

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        self.scale = _scale(weight).flatten()
        rounded = (weight / self.scale[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().float()

    @staticmethod
    def available(device: torch.device) -> bool:
        """Whether this installation and processor multiply such integers (without VNNI, sums would overflow)."""
        operators = ("qlinear_prepack", "qlinear_pointwise")
        if device.type != "cpu" or not all(hasattr(torch.ops.onednn, name) for name in operators):
            return False
        return bool(torch.cpu._is_vnni_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], float32"""
        x = x.float()
        scale = _scale(x)
        # (Conversion cuts off: what is a half more is rounded.)
        rows = (x * scale.reciprocal()).add_(self._ZERO + 0.5).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, self._ZERO, self.packed, self.scale, self.zero),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return product.mul_(scale) if self.bias is None else torch.addcmul(self.bias, product, scale)


def _scale(x: Tensor) -> Tensor:
    """[..., n] -> [..., 1]: what 1 of 127 steps is worth, up to the largest of each row."""
    return (x.abs().amax(-1, keepdim=True) / 127).clamp_(min=1e-30)


Product = type[FloatLinear] | type[PackedLinear] | type[Int8Linear]
_PRODUCTS: dict[Precision, Product] = {"float32": FloatLinear, "bfloat16": PackedLinear, "int8": Int8Linear}


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raises DocmtError for a precision that there is not, or not on this device."""
    one_of("precision", precision, get_args(Precision))
    if precision == "int8" and not Int8Linear.available(device):
        where = "this processor, which lacks the instructions (VNNI)" if device.type == "cpu" else f"device {device}"
        raise DocmtError(f"precision int8 is not for {where}: choose bfloat16 or float32")


def lower_precision(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Puts weights of matrix products into `precision`, in place; norms and sums stay in float32.

    Raises DocmtError where the model's device has no such products.
    """
    check_precision(precision, model.device)
    made = _PRODUCTS[precision]
    if precision == "bfloat16":
        for name in model.tables():
            model.get_submodule(name).to(torch.bfloat16)
        for module in model.modules():
            if isinstance(module, nn.Linear | Softmax):
                module.to(torch.bfloat16)
    if not made.available(model.device):
        return model
    if precision != "float32":
        for attention in [module for module in model.modules() if type(module) is Attention]:
            attention.join_projections()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear):
                setattr(parent, name, made(module.weight, module.bias))
    head = model.whole_head()
    model.projection = made(head.weight.detach(), head.bias)  # (not a parameter once more)
    return model


def computing_in(model: Model, precision: Precision) -> AbstractContextManager[object]:
    """The context in which such a model, or an ensemble of such, is run."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)
