"""Memory of a training, estimated before it starts, and the smallest change of settings that fits."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import torch
from lightning_fabric import Fabric
from torch import nn

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY
from docmt.model import ModelConfig, TranslationModel
from docmt.model.layers import Layer
from docmt.training.objective import CHUNK_BYTES, MIN_CHUNK_TOKENS
from docmt.training.sharding import is_sharded
from docmt.training.train_config import BatchConfig, TrainConfig

_log = logging.getLogger(__name__)

_LEAST_TOKENS = 256
"""smallest batch that is proposed"""
_MOST_PROCESSES = 1024
_LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")
Strategy = Literal["ddp", "fsdp"]


@dataclass(frozen=True)
class ModelSize:
    """Numbers of weights of a model, and of values that its layers keep for the backward pass."""

    weights: int
    trainable: int
    unit: int
    """weights of the largest layer, which a sharded training gathers at once"""
    rest: int
    """weights outside of layers, which stay gathered during an update"""
    activations: int
    """values per token that all layers keep"""
    layer_activations: int
    """values per token of the layer that keeps most"""
    layers: int
    width: int

    @classmethod
    def measure(cls, model: TranslationModel) -> ModelSize:
        """Return the size of a model, which may be on the "meta" device."""
        layers = [module for module in model.modules() if isinstance(module, Layer)]
        counts, kept = [sum(w.numel() for w in layer.parameters()) for layer in layers], list(map(_kept_values, layers))
        total = sum(w.numel() for w in model.parameters())
        trainable = sum(w.numel() for w in model.parameters() if w.requires_grad)
        sizes = total, trainable, max(counts, default=0), max(total - sum(counts), 0)
        return cls(*sizes, sum(kept), max(kept, default=0), len(layers), model.config.width)


def _kept_values(layer: nn.Module) -> int:
    """Return the values per token that a layer keeps: inputs and outputs of products, and about four norms."""
    linear = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in layer.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    values = sum(module.in_features + module.out_features for module in linear)
    return values + 2 * sum(int(module.normalized_shape[0]) for module in norms)


@dataclass(frozen=True)
class Estimate:
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
    config: TrainConfig, size: ModelSize, strategy: Strategy, processes: int, on_gpu: bool, largest: int = MANY
) -> Estimate:
    """Return the memory of a process. Activations vary with the lengths of sentences.

    largest: tokens of a batch without the limit `batches.batch_tokens`.
    """
    short = config.precision != "float32"
    gathered = 2 if config.precision == "bfloat16-weights" else 4  # bytes of a weight that computes
    row, tokens = 4 * config.model.vocabulary_size, min(config.batches.batch_tokens, largest)
    logits = 3 * row * min(tokens, max(MIN_CHUNK_TOKENS, CHUNK_BYTES // max(row, 1)))  # with what the softmax needs
    if strategy == "fsdp":
        share = 0 if config.cpu_offload and on_gpu else 1 / processes
        # Weights and gradients of the rest and of two layers: one computes while the next one arrives.
        work = (size.rest + 2 * size.unit) * (gathered + gathered) if share < 1 else 0
        weights, optimizer = int(share * 4 * (size.weights + size.trainable)) + work, int(share * 8 * size.trainable)
        end = int(share * 4 * size.weights) + optimizer + (6 if short else 4) * size.weights + logits
    else:
        exchanged = gathered * size.trainable if processes > 1 else 0  # buckets of gradients
        weights = gathered * (size.weights + size.trainable) + exchanged
        masters = 8 * size.trainable if gathered == 2 else 0  # float32 weights and gradients
        optimizer = 8 * size.trainable + masters
        end = 4 * size.weights + optimizer
    width = 2 if short else 4  # bytes of a value
    # Autocast keeps copies of weights. Without checkpointing, they are mostly in the margin of the other figure.
    copies = 2 * max(size.trainable - size.rest, 0) if config.precision == "bfloat16" else 0
    activations = tokens * (size.layers * size.width + size.layer_activations) * width + copies
    if not config.activation_checkpointing:
        activations = max(activations, tokens * size.activations * width)
    return Estimate(weights, optimizer, activations + logits + row * size.width, end)


def available_memory(on_gpu: bool, local_processes: int) -> int:
    """Return the bytes that a process may use: its GPU, or its share of the machine (or of the container)."""
    if on_gpu:
        return min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or no limit
        total = min(total, int(_LIMIT_FILE.read_text()))
    return total // local_processes


def choose_strategy(config: TrainConfig, processes: int, local_processes: int, on_gpu: bool) -> Strategy:
    """Return the configured strategy; for auto, ddp if the model fits each process, otherwise fsdp.

    All machines must have the same memory, or their processes may choose differently. Raises DocmtError for options of
    GPUs on a CPU.
    """
    if config.cpu_offload and not on_gpu:
        raise DocmtError("cpu_offload is true, but this training runs on a CPU: set it to false")
    if config.strategy != "auto":
        return config.strategy
    if processes == 1 or not config.model.vocabulary_size:
        return "ddp"
    size = _measure_config(config.model)
    if config.adapters.rank or config.freeze_patterns == ["pretrained"]:
        size = replace(size, trainable=0)  # next to nothing
    need = estimate(config, size, "ddp", processes, on_gpu).total
    fits = need <= available_memory(on_gpu, local_processes)
    return "ddp" if fits or need <= estimate(config, size, "fsdp", processes, on_gpu).total else "fsdp"


def _measure_config(model: ModelConfig) -> ModelSize:
    with torch.device("meta"):
        return ModelSize.measure(TranslationModel(model))


def check_memory(fabric: Fabric, config: TrainConfig, largest: int, model: TranslationModel | None = None) -> None:
    """Raise DocmtError if the training needs more memory than there is. Log the estimate of a model otherwise.

    largest: see `estimate`. model: with its frozen weights and adapters. None, before it takes memory: then weights of
    a fine-tuning that freezes some count as frozen.
    """
    if model is not None:
        size = ModelSize.measure(model)
    else:
        size = _measure_config(config.model)
        if config.adapters.rank or config.freeze_patterns:
            size = replace(size, trainable=0)
    on_gpu = fabric.device.type == "cuda"
    strategy: Strategy = "fsdp" if is_sharded(fabric) else "ddp"
    processes, local = fabric.world_size, getattr(fabric.strategy, "num_processes", 1)
    limit, need = available_memory(on_gpu, local), estimate(config, size, strategy, processes, on_gpu, largest)
    if need.total <= limit:
        if model is not None:
            _log.info("each process needs about %s; it has %s GB", need, _gigabytes(limit))
        return
    advice = "a smaller model, or adapters (--adapters.rank)"
    for option, changed, other_strategy, count in _changes(config, strategy, processes, on_gpu):
        # Further processes have machines of their own.
        machine = limit if on_gpu or count <= processes else limit * local
        if estimate(changed, size, other_strategy, count, on_gpu, largest).total <= machine:
            advice = option
            break
    raise DocmtError(
        f"each process would need about {need}, but has {_gigabytes(limit)} GB. The smallest change that fits: {advice}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g}"


def _changes(
    config: TrainConfig, strategy: Strategy, processes: int, on_gpu: bool
) -> Iterator[tuple[str, TrainConfig, Strategy, int]]:
    """Yield changes in the order of their cost, from none on: options, configuration, strategy, processes."""
    kinds: list[Strategy] = [strategy, "fsdp"] if strategy == "ddp" and processes > 1 else [strategy]
    offloads = [False, True] if processes > 1 and on_gpu and not config.cpu_offload else [config.cpu_offload]
    checkpointing = [False, True] if not config.activation_checkpointing else [True]
    for offload, batches, checkpoints, kind in product(offloads, _halve(config.batches), checkpointing, kinds):
        if offload and kind == "ddp":
            continue
        options = {
            "--strategy fsdp": kind != strategy,
            "--activation-checkpointing true": checkpoints != config.activation_checkpointing,
            f"--batch-tokens {batches.batch_tokens} --gradient-accumulation {batches.gradient_accumulation}": (
                batches != config.batches
            ),
            "--cpu-offload true": offload != config.cpu_offload,
        }
        settings = {"batches": batches, "activation_checkpointing": checkpoints, "cpu_offload": offload}
        changed = replace(config, strategy=kind, **settings)  # type: ignore[arg-type]
        yield " ".join(option for option, is_changed in options.items() if is_changed), changed, kind, processes
    while processes < _MOST_PROCESSES:
        processes *= 2
        for checkpoints in checkpointing:
            option = "--activation-checkpointing true " * (checkpoints != config.activation_checkpointing)
            changed = replace(config, strategy="fsdp", cpu_offload=False, activation_checkpointing=checkpoints)
            yield f"--strategy fsdp {option}in {processes} processes", changed, "fsdp", processes


def _halve(batches: BatchConfig) -> Iterator[BatchConfig]:
    """Yield the batches, and smaller ones with as many tokens an update."""
    while True:
        yield batches
        tokens = batches.batch_tokens // 2
        if tokens < _LEAST_TOKENS:
            return
        batches = replace(batches, batch_tokens=tokens, gradient_accumulation=2 * batches.gradient_accumulation)
