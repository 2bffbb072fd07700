"""Weights of a training: with adapters, frozen ones, float32 masters, and whole or sharded over the processes.

In fully sharded training (FSDP2), each process holds a part of every weight, its gradient and its optimizer state. A
layer is gathered for its computation, then freed again (Rajbhandari et al. 2020, ZeRO-3). Memory is estimated once,
before a training starts: it decides on this, or refuses the training.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from docmt.checkpoint.weights import STATE_FILE, WEIGHTS_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import check_checksum, read_json, stored_checksums
from docmt.core.settings import MANY
from docmt.model import TranslationModel
from docmt.model.blocks import SentenceEncoder
from docmt.model.embeddings import OutputProjection
from docmt.model.layers import Layer
from docmt.training import finetune
from docmt.training.objective import CHUNK_BYTES, MIN_CHUNK_TOKENS, BatchLoss
from docmt.training.train_config import TrainConfig

_SHARD_SUFFIX = ".distcp"


class MasterWeights:
    """Float32 weights of a model whose linear modules and embeddings are bfloat16.

    The optimizer changes the trainable ones; frozen ones stay on the CPU until the model is written. All other weights
    (norms, recurrent modules) are few and stay float32 in the model.
    """

    def __init__(self, model: nn.Module) -> None:
        """Convert the large weights of the model to bfloat16 in place."""
        large = [each for each in model.modules() if isinstance(each, nn.Linear | nn.Embedding | OutputProjection)]
        bfloat16_parameters = {parameter for module in large for parameter in module.parameters(recurse=False)}
        self.trainable: dict[str, nn.Parameter] = {}
        """parameters that the optimizer changes, by name"""
        self._frozen: dict[str, Tensor] = {}
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []  # model parameter and its master
        for name, parameter in model.named_parameters():
            full = parameter.detach()
            if parameter not in bfloat16_parameters:
                if parameter.requires_grad:
                    self.trainable[name] = parameter
                continue
            parameter.data = full.to(torch.bfloat16)
            if parameter.requires_grad:
                self.trainable[name] = nn.Parameter(full)
                self._pairs.append((parameter, self.trainable[name]))
            else:
                self._frozen[name] = full.cpu()

    def accumulate_gradients(self) -> None:
        """Add the gradients of a batch to those of the float32 weights."""
        for parameter, master in self._pairs:
            if parameter.grad is not None:
                master.grad = parameter.grad.float() if master.grad is None else master.grad.add_(parameter.grad)
                parameter.grad = None

    def exchange_gradients(self, fabric: Fabric) -> None:
        """Take the mean of the gradients over processes."""
        for parameter in self.trainable.values():
            if parameter.grad is not None:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad.div_(fabric.world_size)

    @torch.no_grad()
    def copy_to_model(self, model: nn.Module | None = None) -> None:
        """Round the float32 weights into the model; with `model`, also the frozen ones, which are to be found there."""
        for parameter, master in self._pairs:
            parameter.copy_(master)
        if model is not None:
            for name, weights in self._frozen.items():
                model.get_parameter(name).copy_(weights)

    def full_precision_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of the model with the float32 weights in it."""
        return {**state, **self._frozen, **{name: master.detach() for name, master in self.trainable.items()}}


class TrainedWeights:
    """Weights of a model and its loss, set up for the devices and the precision of a run."""

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        loss: BatchLoss,
        new_weights: Collection[str],
        checkpoint: Path | None,
    ) -> None:
        """new_weights, checkpoint: see `Updater`.

        Raises DocmtError if everything would be frozen, if a pattern matches nothing, or if the adapters of the
        checkpoint are damaged.
        """
        self.fabric, self.model = fabric, loss.model
        self.is_sharded = is_sharded(fabric)
        """True if each process holds a part of each weight; only the first one then needs `model` with values"""
        self.masters: MasterWeights | None = None
        if config.adapters.rank:
            with self.model.device:  # "meta" in the processes without values
                finetune.add_adapters(self.model, config.adapters, new_weights)
            if checkpoint is not None and not has_shards(checkpoint) and self.model.device.type != "meta":
                finetune.restore_adapters(self.model, checkpoint / finetune.ADAPTERS_FILE)
        finetune.freeze(self.model, config.freeze_patterns, new_weights)
        if self.is_sharded:
            weights = dict(self.model.state_dict())
            self.module = fabric.setup_module(loss)
            # Gives every process its part of the weights, which only the first one has. One tensor at a time is sent.
            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            set_model_state_dict(self.model, weights if fabric.is_global_zero else {}, options=options)
        else:
            fabric.to_device(loss)
            if config.precision == "bfloat16-weights":
                self.masters = MasterWeights(self.model)
            self.module = fabric.setup_module(loss)
        self.trainable = finetune.trainable_parameters(self.model) if self.masters is None else self.masters.trainable
        """parameters that the optimizer changes, by name"""

    def full_precision(self) -> dict[str, Tensor]:
        """Return the state of the model in float32, with adapters; of a sharded one the parts of this process."""
        state: dict[str, Tensor] = self.model.state_dict()
        return state if self.masters is None else self.masters.full_precision_state(state)

    def merged(self, everywhere: bool = False) -> dict[str, Tensor]:
        """Return float32 weights of an equivalent model without adapters.

        Sharded ones are collected, for which every process must call this. Only the first process gets them, unless
        `everywhere`.
        """
        if self.is_sharded:
            options = StateDictOptions(full_state_dict=True, cpu_offload=not everywhere)
            state: Mapping[str, Any] = get_model_state_dict(self.model, options=options)
        else:
            state = self.full_precision()
        return finetune.merge_adapters(self.model, state) if state else {}

    def files(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of weights that resuming needs, by file."""
        adapters = finetune.adapter_tensors(self.model, self.full_precision())
        return {WEIGHTS_FILE: self.merged(), **({finetune.ADAPTERS_FILE: adapters} if adapters else {})}

    def whole_model(self) -> TranslationModel:
        """Return a model that can translate: this one, or a whole copy of a sharded one in every process."""
        if not self.is_sharded:
            return self.model
        weights = self.merged(everywhere=True)
        with torch.device("meta"):
            model = TranslationModel(self.model.config)
        model.load_state_dict(weights, assign=True)
        return model.requires_grad_(False).to(self.fabric.device)  # else autocast would keep copies of the weights

    def finish(self) -> TranslationModel:
        """Return the model in float32 without adapters, whole in every process. It cannot be trained further."""
        if self.is_sharded:
            return self.whole_model()
        weights = self.merged()
        finetune.remove_adapters(self.model)
        self.model.float().load_state_dict(weights)
        return self.model


def is_sharded(fabric: Fabric) -> bool:
    """Return whether models that this Fabric sets up are sharded."""
    return isinstance(fabric.strategy, ModelParallelStrategy)


def shard(module: nn.Module, mesh: DeviceMesh, config: TrainConfig) -> nn.Module:
    """Shard a module in place: each layer by itself, everything else (embeddings, head, last norms) together.

    Returns the module. Weights of the "meta" device become memory without values on the device of the mesh.
    """
    mesh = mesh["data_parallel"]
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
    return module


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


_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")
Strategy = Literal["ddp", "fsdp"]
STRATEGIES: tuple[Strategy, Strategy] = ("ddp", "fsdp")


def _kept_values(layer: nn.Module) -> int:
    """Return the values per token that a layer keeps: inputs and outputs of products, and about four norms."""
    linear = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in layer.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    values = sum(module.in_features + module.out_features for module in linear)
    return values + 2 * sum(int(module.normalized_shape[0]) for module in norms)


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a process needs on its device."""

    weights: int
    """with gradients and what is gathered of other processes"""
    optimizer: int
    """with float32 copies of bfloat16 weights"""
    activations: int
    end: int = 0
    """all bytes at the end, when each process has the whole model in float32"""

    @property
    def updates(self) -> int:
        """All bytes during updates."""
        return self.weights + self.optimizer + self.activations

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return max(self.updates, self.end)

    def __str__(self) -> str:
        if self.end > self.updates:
            return f"{_gigabytes(self.end)} GB (at the end, with the whole model)"
        parts = map(_gigabytes, (self.weights, self.optimizer, self.activations))
        return "{} GB (weights and gradients {}, optimizer {}, activations {})".format(_gigabytes(self.total), *parts)


def estimate(
    config: TrainConfig,
    model: TranslationModel,
    strategy: Strategy,
    processes: int,
    on_gpu: bool,
    corpus_tokens: int = MANY,
) -> MemoryNeed:
    """Return the memory of a process. Activations vary with the lengths of sentences.

    model: on any device, such as "meta". corpus_tokens: tokens of the training corpus; no batch has more.
    """
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    layer_weights = [sum(weight.numel() for weight in layer.parameters()) for layer in layers]
    kept = [_kept_values(layer) for layer in layers]
    total = sum(weight.numel() for weight in model.parameters())
    trainable = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    rest = max(total - sum(layer_weights), 0)  # outside of layers
    short = config.precision != "float32"
    gathered = 2 if config.precision == "bfloat16-weights" else 4  # bytes of a weight that computes
    row, tokens = 4 * config.model.vocabulary_size, min(config.batches.batch_tokens, corpus_tokens)
    logits = 3 * row * min(tokens, max(MIN_CHUNK_TOKENS, CHUNK_BYTES // max(row, 1)))  # with what the softmax needs
    if strategy == "fsdp":
        share = 0 if config.cpu_offload and on_gpu else 1 / processes
        # Weights and gradients of the rest and of two layers: one computes while the next one arrives.
        work = 2 * gathered * (rest + 2 * max(layer_weights, default=0)) if share < 1 else 0
        weights, optimizer = int(share * 4 * (total + trainable)) + work, int(share * 8 * trainable)
        end = int(share * 4 * total) + optimizer + (6 if short else 4) * total + logits
    else:
        exchanged = gathered * trainable if processes > 1 else 0  # buckets of gradients
        weights = gathered * (total + trainable) + exchanged
        masters = 8 * trainable if gathered == 2 else 0  # float32 weights and gradients
        optimizer = 8 * trainable + masters
        end = 4 * total + optimizer
    width = 2 if short else 4  # bytes of a value
    # Autocast keeps copies of weights. Without checkpointing, they are mostly in the margin of the other figure.
    copies = 2 * max(trainable - rest, 0) if config.precision == "bfloat16" else 0
    activations = tokens * (len(layers) * model.config.width + max(kept, default=0)) * width + copies
    if not config.activation_checkpointing:
        activations = max(activations, tokens * sum(kept) * width)
    return MemoryNeed(weights, optimizer, activations + logits + row * model.config.width, end)


def available_memory(on_gpu: bool, local_processes: int) -> int:
    """Return the bytes that a process may use: its GPU, or its share of the machine (or of the container)."""
    if on_gpu:
        return min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or no limit
        total = min(total, int(_LIMIT_FILE.read_text()))
    return total // local_processes


def choose_strategy(
    config: TrainConfig, processes: int, local_processes: int, on_gpu: bool, corpus_tokens: int = MANY
) -> tuple[Strategy, MemoryNeed]:
    """Return the strategy and what a process needs with it. For auto, it is fsdp only if ddp does not fit.

    All machines must have the same memory, or their processes may choose differently. corpus_tokens: see `estimate`.
    Raises DocmtError if the training needs more memory than there is, and for options of GPUs on a CPU.
    """
    if config.cpu_offload and not on_gpu:
        raise DocmtError("cpu_offload is true, but this training runs on a CPU: set it to false")
    model, limit = build_outline(config), available_memory(on_gpu, local_processes)
    whole, parts = (estimate(config, model, kind, processes, on_gpu, corpus_tokens) for kind in STRATEGIES)
    strategy: Strategy = "ddp" if config.strategy == "auto" else config.strategy
    if config.strategy == "auto" and processes > 1 and whole.total > max(limit, parts.total):
        strategy = "fsdp"
    need = whole if strategy == "ddp" else parts
    if need.total <= limit:
        return strategy, need
    size_of_batch = f"--batch-tokens {config.batches.batch_tokens // 2}"
    accumulation = f"--gradient-accumulation {2 * config.batches.gradient_accumulation}"
    options = [f"{size_of_batch} {accumulation}", "--activation-checkpointing true", "--adapters.rank"]
    advice = [] if need.end > need.updates else options
    advice += ["--strategy fsdp in several processes" if strategy == "ddp" else "more processes", "a smaller model"]
    raise DocmtError(
        f"each process would need about {need}, but has {_gigabytes(limit)} GB. What saves memory: {', '.join(advice)}"
    )


def build_outline(config: TrainConfig) -> TranslationModel:
    """Return the model of a training without values. New weights that a pattern of `freeze` matches count as frozen.

    Raises DocmtError for a pattern that matches nothing.
    """
    with torch.device("meta"):
        model = TranslationModel(config.model)
    words = ["pretrained"] if config.adapters.rank else config.freeze_patterns
    names = [name for name, _ in model.named_parameters()]
    for name in {name for word in words for name in finetune.match_freeze_word(model, word, names)}:
        model.get_parameter(name).requires_grad_(False)
    return model


def check_weight_patterns(config: TrainConfig) -> None:
    """Raise DocmtError for a pattern of `freeze` or `optimizer.lr_factors` that matches no weight of the model."""
    names = [name for name, _ in build_outline(config).named_parameters()]
    for pattern, _ in config.optimizer.factors:
        finetune.match_names("optimizer.lr_factors", pattern, names)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g}"
