"""Matrix products in the precision of a translator, by the processor and the number of rows (decisions 0007 and 0009).

Lower precision means less memory to read, which bounds decoding speed.
"""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.core.errors import DocmtError
from docmt.core.settings import check_choice
from docmt.model.attention import Attention
from docmt.model.embeddings import OutputProjection
from docmt.model.transformer import TranslationModel

Precision = Literal["float32", "bfloat16", "int8"]
_FEW_ROWS, _LARGE_WEIGHT = range(4, 32), 2**20
"""Rows, and values of a weight, for which oneDNN mostly gains. It keeps compiled code for each number of rows."""


class FloatLinear(nn.Module):
    """Product x W^T + b in float32, by oneDNN for a few rows and a large weight.

    There it is 0.9 to 2.2 times as fast as `linear` (MKL on x86).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    @staticmethod
    def available(device: torch.device) -> bool:
        """Return whether oneDNN's product exists for tensors on this device."""
        return device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        rows = x.numel() // x.shape[-1]
        gains = rows in _FEW_ROWS and self.weight.numel() >= _LARGE_WEIGHT
        if not gains or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


class PackedLinear(nn.Module):
    """Product x W^T + b with W in the layout in which the CPU multiplies bfloat16.

    1.2 to 1.8 times as fast for a few rows, no slower for many. The operators are those that torch's compiler generates
    for a frozen model.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16), 1)
        self.bias = None if bias is None else bias.detach().to(torch.bfloat16)

    @staticmethod
    def available(device: torch.device) -> bool:
        """Return whether this installation and processor can pack weights on this device."""
        operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
        if device.type != "cpu" or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
            return False
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        return torch.ops.mkldnn._linear_pointwise(x.to(torch.bfloat16), self.weight, self.bias, "none", [], "")


class Int8Linear(nn.Module):
    """Product x W^T + b in integers of 8 bits: W with a scale for each output, x with a scale for each row.

    A row's result does not depend on other rows, to the last bit: sums of integers are exact.
    """

    _ZERO = 128  # the value of 0: rows are unsigned

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
        """Return whether this installation and processor multiply such integers (without VNNI, sums would overflow)."""
        operators = ("qlinear_prepack", "qlinear_pointwise")
        if device.type != "cpu" or not all(hasattr(torch.ops.onednn, name) for name in operators):
            return False
        return bool(torch.cpu._is_vnni_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], float32"""
        x = x.float()
        scale = _scale(x)
        # Conversion truncates, so adding a half rounds.
        rows = (x * scale.reciprocal()).add_(self._ZERO + 0.5).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, self._ZERO, self.packed, self.scale, self.zero), *(None, 1.0, 0, torch.float32, "none", [], "")
        )
        return product.mul_(scale) if self.bias is None else torch.addcmul(self.bias, product, scale)


def _scale(x: Tensor) -> Tensor:
    """Return the size of one of 127 steps up to the largest value of each row: [..., n] -> [..., 1]."""
    return (x.abs().amax(-1, keepdim=True) / 127).clamp_(min=1e-30)


Product = type[FloatLinear] | type[PackedLinear] | type[Int8Linear]


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16. A CPU without them is slower than with float32."""
    if device.type != "cpu":
        return True
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return True
    return platform.machine() == "aarch64" and PackedLinear.available(device)


_PRODUCTS: dict[Precision, Product] = {"float32": FloatLinear, "bfloat16": PackedLinear, "int8": Int8Linear}


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise DocmtError for an unknown precision, or one that this device lacks."""
    check_choice("precision", precision, get_args(Precision))
    if precision == "int8" and not Int8Linear.available(device):
        device_name = "this processor: it lacks the VNNI instructions" if device.type == "cpu" else f"device {device}"
        raise DocmtError(f"precision int8 is not available on {device_name}. Choose bfloat16 or float32.")


def prepare_products(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Set up matrix products in `precision`, in place.

    Linear modules become those that are fastest on the device, in float32 too. With bfloat16, states are bfloat16
    (`precision_context`); norms compute in float32.
    Raises DocmtError where the model's device has no such products.
    """
    check_precision(precision, model.device)
    product = _PRODUCTS[precision]
    if precision == "bfloat16":
        for name in model.table_names():
            model.get_submodule(name).to(torch.bfloat16)
        for module in model.modules():
            if isinstance(module, nn.Linear | OutputProjection):
                module.to(torch.bfloat16)
    if not product.available(model.device):
        return model
    if precision != "float32":  # whose model can be saved
        for attention in [module for module in model.modules() if type(module) is Attention]:
            attention.join_projections()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear) and (precision != "float32" or module.weight.numel() >= _LARGE_WEIGHT):
                setattr(parent, name, product(module.weight, module.bias))
    head = model.full_head()
    model.projection = product(head.weight.detach(), head.bias)  # detached: the parameter exists already
    return model


class HasDevice(Protocol):
    """A model, or an ensemble."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""


def precision_context(model: HasDevice, precision: Precision) -> AbstractContextManager[object]:
    """Return the context manager in which models of this precision run."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)
