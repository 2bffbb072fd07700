"""The mean of the weights of several checkpoints as the final model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from docmt.errors import DocmtError
from docmt.model_directory import read_weights


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors of safetensors files with the same names, summed in float64.

    Raises DocmtError if a file is missing or damaged, or has other tensors than the first.
    """
    first, *others = paths
    weights = read_weights(first)
    sums = {name: tensor.double() for name, tensor in weights.items()}
    for path in others:
        found = read_weights(path)
        for name in {**weights, **found}:
            if name not in found or name not in weights or found[name].shape != weights[name].shape:
                raise DocmtError(f"{path} and {first} are not of the same model (at {name}): copy the run again")
            sums[name] += found[name]
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
