"""Memory of a training, estimated once before it starts: it decides on the strategy, or refuses the training."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY
from docmt.model import TranslationModel
from docmt.model.layers import Layer
from docmt.training.finetune import match_freeze_word
from docmt.training.objective import CHUNK_BYTES, MIN_CHUNK_TOKENS
from docmt.training.train_config import TrainConfig

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
    """Return the model of a training without values. New weights that a pattern of `freeze` matches count as frozen."""
    with torch.device("meta"):
        model = TranslationModel(config.model)
    words = ["pretrained"] if config.adapters.rank else config.freeze_patterns
    names = [name for name, _ in model.named_parameters()]
    for name in {name for word in words for name in match_freeze_word(model, word, names)}:
        model.get_parameter(name).requires_grad_(False)
    return model


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g}"
