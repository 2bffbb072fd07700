"""The mean of the weights of several checkpoints as the final model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from docmt.model_directory import read_tensors


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors of safetensors files with the same names, summed in float64.

    Raises DocmtError if a file is missing or damaged.
    """
    first, *others = paths
    weights = read_tensors(first)
    sums = {name: tensor.double() for name, tensor in weights.items()}
    for path in others:
        for name, tensor in read_tensors(path).items():
            sums[name] += tensor
    return {name: (total / len(paths)).to(weights[name].dtype) for name, total in sums.items()}


def updates_to_average(
    measured: Sequence[tuple[int, float]], which: Literal["none", "last", "best"], count: int, higher_is_better: bool
) -> list[tuple[int, float]]:
    """Those of the (update, score) pairs, in order of time, whose weights belong to the average so far."""
    if which == "none":
        return []
    if which == "last":
        return list(measured[-count:])
    ranked = sorted(measured, key=lambda pair: -pair[1] if higher_is_better else pair[1])
    return sorted(ranked[:count])


def load_average(model: torch.nn.Module, paths: Sequence[Path]) -> None:
    """Puts the mean of the files' weights into `model`."""
    model.load_state_dict(average_weights(paths))
