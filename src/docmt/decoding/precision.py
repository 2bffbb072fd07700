"""Translating in bfloat16: half the memory traffic of the weights, which is what decoding waits for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import nn

from docmt.model import TranslationModel

Precision = Literal["float32", "bfloat16"]


def lower_precision(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Puts weights of matrix products into `precision`, in place; norms and sums stay in float32."""
    if precision == "bfloat16":
        for module in model.modules():
            if isinstance(module, nn.Linear) or module is model.tokens:
                module.to(torch.bfloat16)
    return model


def computing_in(model: TranslationModel, precision: Precision) -> AbstractContextManager[object]:
    """The context in which such a model is run."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)
