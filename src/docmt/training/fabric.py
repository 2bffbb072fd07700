"""Where a run computes: one process, or several under torchrun, on CPU or GPU."""

from __future__ import annotations

import logging
import os

import torch
from lightning_fabric import Fabric

from docmt.errors import DocmtError
from docmt.training.config import TrainConfig


def will_lead() -> bool:
    """Whether this process is the one of several that writes: known before they are connected, from the launcher.

    torchrun and Fabric number their processes in the environment, Slurm likewise; a process that nobody has numbered
    is alone, or will start the others.
    """
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def start_fabric(config: TrainConfig) -> Fabric:
    """A launched Fabric for the configured devices, or for the processes that torchrun started.

    Raises DocmtError when there are not as many GPUs.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    accelerator = ("cuda" if gpus else "cpu") if config.device == "auto" else config.device
    devices, nodes = config.devices, 1
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    if accelerator == "cuda" and devices > gpus:
        if not gpus:
            raise DocmtError("device is cuda, but PyTorch sees no GPU here: choose --device cpu")
        raise DocmtError(f"devices is {devices}, but there are {gpus} GPUs for them: choose {gpus} or fewer")
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # it greets every process
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        precision="bf16-mixed" if config.precision == "bfloat16" else "32-true",
    )
    fabric.launch()
    return fabric
