"""Fully sharded training (FSDP2): each process holds a part of every weight, its gradient and its optimizer state.

A layer is gathered for its computation, then freed again (Rajbhandari et al. 2020, ZeRO-3).
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from docmt.checkpoint.weights import STATE_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import check_checksum, read_json, stored_checksums
from docmt.model.layers import Layer, SentenceEncoder
from docmt.training.train_config import TrainConfig

_SHARD_SUFFIX = ".distcp"


def is_sharded(fabric: Fabric) -> bool:
    """Return whether models that this Fabric sets up are sharded."""
    return isinstance(fabric.strategy, ModelParallelStrategy)


def shard(module: nn.Module, mesh: DeviceMesh, config: TrainConfig) -> None:
    """Shard a module in place: each layer by itself, everything else (embeddings, head, last norms) together.

    Weights of the "meta" device become memory without values on the device of the mesh.
    """
    mixed = config.precision == "bfloat16-weights"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if mixed else None,
        reduce_dtype=torch.float32 if mixed else None,
        cast_forward_inputs=False,  # states between layers stay float32, as autocast keeps them
    )
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if config.cpu_offload else OffloadPolicy()
    for unit in (*find_units(module), module):
        # An LSTM computes in float32, outside of autocast.
        exact = isinstance(unit, nn.LSTM)
        fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy() if exact else policy, offload_policy=offload)
    if any(tensor.is_meta for tensor in module.state_dict().values()):
        _materialize(module, mesh, config)


def _materialize(module: nn.Module, mesh: DeviceMesh, config: TrainConfig) -> None:
    """Give memory to all tensors without values; buffers with values keep them."""
    values = {name: buffer.clone() for name, buffer in module.named_buffers() if not buffer.is_meta}
    module.to_empty(device="cpu" if config.cpu_offload else mesh.device_type)
    for name, buffer in list(module.named_buffers()):
        parent, _, last = name.rpartition(".")
        buffer = values.get(name, buffer).to(mesh.device_type)  # never offloaded
        module.get_submodule(parent)._buffers[last] = buffer


def find_units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that are gathered by themselves, inner ones first.

    Sentence encoders run their layers block by block, outside of the layers' `forward`, so these are no units.
    """
    if isinstance(module, SentenceEncoder):
        return
    for child in module.children():
        yield from find_units(child)
    if isinstance(module, Layer | nn.LSTM):
        yield module


def spread_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give every process its part of `weights`, which only the first process has. One tensor at a time is sent."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, dict(weights), options=options)


def copy_like(tensor: Tensor, reference: Tensor) -> Tensor:
    """Return a copy of a tensor on the device of `reference`, and sharded as that is if it has the same shape."""
    if isinstance(tensor, DTensor) or not isinstance(reference, DTensor) or tensor.shape != reference.shape:
        return tensor.clone().to(reference.device)
    tensor = tensor.to(reference.device)
    return distribute_tensor(tensor, reference.device_mesh, reference.placements, src_data_rank=None)


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a sharded tensor. Every process must ask for it. Other tensors are returned as they are."""
    result: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return result


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor in this process."""
    result: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return result


def collect(tensors: Mapping[str, Tensor], everywhere: bool) -> dict[str, Tensor]:
    """Return whole tensors: in every process if `everywhere`, otherwise in the first one alone, on the CPU.

    Every process must call it. The other processes then get an empty mapping.
    """
    collected: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        complete = whole(tensor.detach())
        if everywhere:
            collected[name] = complete
        elif torch.distributed.get_rank() == 0:
            collected[name] = complete.cpu()
    return collected


def has_shards(checkpoint: Path) -> bool:
    """Return whether a checkpoint is one of `save_shards`."""
    return (checkpoint / ".metadata").is_file()


def check_shards(fabric: Fabric, checkpoint: Path) -> None:
    """Raise DocmtError for a missing or damaged file. Each process reads some of the files."""
    sums = stored_checksums(read_json(checkpoint / STATE_FILE), checkpoint / STATE_FILE)
    for name in sorted(sums)[fabric.global_rank :: fabric.world_size]:
        if name.endswith(_SHARD_SUFFIX):
            check_checksum(checkpoint / name, STATE_FILE)


def save_shards(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write tensors (by part, then by name) into a new folder. Every process writes its share.

    All processes must call it. All raise DocmtError if one cannot write.
    """
    try:
        save(dict(tensors), checkpoint_id=folder)
    except CheckpointException as error:
        raise DocmtError(f"{folder} cannot be written ({_first_reason(error)})") from error


def load_shards(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Read `save_shards` into existing tensors, whole or sharded over any number of processes.

    All processes must call it. All raise DocmtError if a file is missing or damaged, or belongs to another model.
    """
    try:
        stored = FileSystemReader(folder).read_metadata().state_dict_metadata
        missing = sorted({f"{part}.{name}" for part in tensors for name in tensors[part]} ^ stored.keys())
        if missing:
            raise DocmtError(f"{folder} is of another model (it differs in {missing[0]}). Copy the run directory again")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process resumes with ddp
            load({part: dict(values) for part, values in tensors.items()}, checkpoint_id=folder)
    except (OSError, EOFError, pickle.UnpicklingError, ValueError, CheckpointException) as error:
        raise DocmtError(f"{folder} is damaged ({_first_reason(error)}). Copy the run directory again") from error


def _first_reason(error: BaseException) -> str:
    """Return what the first of the failed processes says."""
    failures = getattr(error, "failures", None)
    reason = next(iter(failures.values()))[0] if failures else error
    return " ".join(str(reason).split()) or type(reason).__name__
