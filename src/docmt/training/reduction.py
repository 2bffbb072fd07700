"""Small sums over the processes of a run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning_fabric import Fabric


def sum_over_processes(fabric: Fabric, values: Sequence[float]) -> list[float]:
    """Each value summed over all processes, in float64 where the device has it."""
    if fabric.world_size == 1:
        return list(values)
    total = fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=fabric.device), reduce_op="sum")
    assert isinstance(total, torch.Tensor)
    result: list[float] = total.tolist()
    return result
