"""One update of the weights: summed gradients of its batches and one step of Adam."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from docmt.checkpoint.weights import WEIGHTS_FILE, check_shapes, read_shapes, read_weights
from docmt.core.settings import MANY
from docmt.data import Batch
from docmt.model import Packed, TranslationModel
from docmt.model.contexts import AttentionContext
from docmt.model.embeddings import OutputProjection
from docmt.model.layers import Layer
from docmt.text import SpecialTokens
from docmt.text.tokenizer import Side
from docmt.training.distributed import raise_together
from docmt.training.finetune import (
    ADAPTERS_FILE,
    RUN_MISMATCH,
    adapter_tensors,
    add_adapters,
    build_parameter_groups,
    freeze,
    merge_adapters,
    remove_adapters,
    restore_adapters,
    trainable_parameters,
)
from docmt.training.memory import check_memory
from docmt.training.objective import batch_loss, drop_words, word_dropout_rate
from docmt.training.sharding import (
    check_shards,
    collect,
    copy_like,
    has_shards,
    is_sharded,
    load_shards,
    spread_weights,
    whole,
)
from docmt.training.train_config import ObjectiveConfig, TrainConfig
from docmt.training.training_corpus import UpdatePlan
from docmt.training.watch import note_progress

OPTIMIZER_FILE = "optimizer.safetensors"
_PAD_MULTIPLE = 128  # batches are padded to a multiple of this many tokens


def constant_with_warmup(update: int, peak: float, warmup: int) -> float:
    """Return the learning rate: linear from 0 to `peak` over `warmup` updates, then `peak`. `update` starts at 1."""
    return peak * min(update / max(warmup, 1), 1.0)


def inverse_square_root(update: int, peak: float, warmup: int) -> float:
    """Return the learning rate: linear from 0 to `peak` over `warmup` updates, then peak * sqrt(warmup / update).

    `update` starts at 1. Without warm-up the decay starts at the first update (Vaswani et al. 2017, section 5.3).
    """
    if update < warmup:
        return peak * update / warmup
    return peak * (max(warmup, 1) / update) ** 0.5


def enable_activation_checkpointing(model: nn.Module) -> None:
    """Make every layer keep only its input in training and recompute the rest (Chen et al. 2016).

    Results stay equal, as dropout repeats its random numbers. Outside of training nothing changes.
    """
    for module in model.modules():
        if isinstance(module, Layer):
            module.forward = partial(_checkpointed_forward, module, module.forward)  # type: ignore[method-assign]


def _checkpointed_forward(
    layer: Layer, forward: Callable[[Tensor, AttentionContext], Tensor], x: Tensor, context: AttentionContext
) -> Tensor:
    if not (layer.training and torch.is_grad_enabled()):
        return forward(x, context)
    result: Tensor = checkpoint(forward, x, context, use_reentrant=False)
    return result


class MasterWeights:
    """Float32 weights of a model whose linear modules and embeddings are bfloat16.

    The optimizer changes the trainable ones; frozen ones stay on the CPU until the model is written. All other weights
    (norms, recurrent modules) are few and stay float32 in the model.
    """

    def __init__(self, model: nn.Module) -> None:
        """Convert the large weights of the model to bfloat16 in place."""
        modules = (
            module for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding | OutputProjection)
        )
        bfloat16_parameters = {parameter for module in modules for parameter in module.parameters(recurse=False)}
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


@dataclass(frozen=True)
class UpdateResult:
    """Sums and gradient norm of an update, from before the weights changed."""

    sums: Tensor
    """[2] float64: loss and negative log-likelihood in nats, summed over the label tokens of all processes"""
    gradient_norm: Tensor | None
    """norm of the gradient of the mean loss before clipping; None if neither clipping nor a log needs it"""


class Updater:
    """Model and optimizer, set up for the devices of a run."""

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        model: TranslationModel,
        new_weights: Collection[str] = (),
        checkpoint: Path | None = None,
        weighted_tokens: Sequence[int] = (),
        corpus_tokens: int = MANY,
    ) -> None:
        """new_weights: parameters that `config.initialize_from` did not have. checkpoint: checkpoint to resume from,
        whose weights the model has. weighted_tokens: ids that have the loss weight `objective.word_weight`.
        corpus_tokens: of all instances; no batch has more.

        Raises DocmtError if everything would be frozen, if a pattern matches nothing, if the checkpoint is damaged, or
        if memory is too small.
        """
        self.fabric, self.config, self.model = fabric, config, model
        self.is_sharded = is_sharded(fabric)
        """True if each process holds a part of each weight; only the first one then needs `model` with values"""
        whole_files = checkpoint is not None and not has_shards(checkpoint)
        if config.adapters.rank:
            with model.device:  # "meta" in the processes without values
                add_adapters(model, config.adapters, new_weights)
            if whole_files and checkpoint is not None and model.device.type != "meta":
                restore_adapters(model, checkpoint / ADAPTERS_FILE)
        freeze(model, config.freeze_patterns, new_weights)
        if config.activation_checkpointing:
            enable_activation_checkpointing(model)
        check_memory(fabric, config, corpus_tokens, model)
        self._loss, self.master_weights = _BatchLoss(model, config.objective, weighted_tokens), None
        if self.is_sharded:
            weights = dict(model.state_dict())
            self._module = fabric.setup_module(self._loss)
            spread_weights(model, weights if fabric.is_global_zero else {})
            del weights
        else:
            fabric.to_device(self._loss)
            self.master_weights = MasterWeights(model) if config.precision == "bfloat16-weights" else None
            self._module = fabric.setup_module(self._loss)
        self.trainable = trainable_parameters(model) if self.master_weights is None else self.master_weights.trainable
        settings, names = config.optimizer, [name for name, _ in model.named_parameters()]
        self.optimizer = torch.optim.Adam(
            build_parameter_groups(self.trainable, names, settings, new_weights),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,  # on CPU too: three to five times faster than the loop over parameters
        )
        if whole_files and checkpoint is not None:
            restore_optimizer(self.trainable, self.optimizer, checkpoint / OPTIMIZER_FILE)
        elif checkpoint is not None:
            self._load_shards(checkpoint)
        self._fabric_optimizer: Any = fabric.setup_optimizers(self.optimizer)

    def _load_shards(self, checkpoint: Path) -> None:
        """Load weights and optimizer state of `sharded_tensors`, in any number of processes."""
        raise_together(self.fabric, partial(check_shards, self.fabric, checkpoint))
        tensors = self.sharded_tensors()
        load_shards(checkpoint, tensors)
        if self.master_weights is not None:
            self.master_weights.copy_to_model(self.model)
        set_optimizer_state(self.trainable, self.optimizer, tensors["optimizer"])

    def merged_weights(self, everywhere: bool = False) -> dict[str, Tensor]:
        """Return float32 weights of an equivalent model without adapters.

        Sharded ones are collected, for which every process must call this. Only the first process gets them, unless
        `everywhere`.
        """
        state = self._full_precision_state()
        if self.is_sharded:
            state = collect(state, everywhere)
        return merge_adapters(self.model, state) if state else {}

    def sharded_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that resuming needs, each process its parts, for `save_shards`."""
        return {"weights": self._full_precision_state(), "optimizer": optimizer_tensors(self.trainable, self.optimizer)}

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that resuming needs, by file."""
        adapters = adapter_tensors(self.model, self._full_precision_state())
        return {
            WEIGHTS_FILE: self.merged_weights(),
            OPTIMIZER_FILE: optimizer_tensors(self.trainable, self.optimizer),
            **({ADAPTERS_FILE: adapters} if adapters else {}),
        }

    def finish(self) -> TranslationModel:
        """Return the model in float32 without adapters, whole in every process. It cannot be trained further."""
        if self.is_sharded:
            return self.whole_model()
        weights = self.merged_weights()
        remove_adapters(self.model)
        self.model.float().load_state_dict(weights)
        return self.model

    def whole_model(self) -> TranslationModel:
        """Return a model that can translate: this one, or a whole copy of a sharded one in every process."""
        if not self.is_sharded:
            return self.model
        weights = self.merged_weights(everywhere=True)
        with torch.device("meta"):
            model = TranslationModel(self.model.config)
        model.load_state_dict(weights, assign=True)
        return model.requires_grad_(False).to(self.fabric.device)  # else autocast would keep copies of the weights

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return summed loss and negative log-likelihood of a batch as `objective.batch_loss` does.

        The model must be in evaluation mode. All processes must call it equally often if the model is sharded.
        """
        loss, nll = self._loss(_OpaqueBatch(batch))
        return loss, nll

    def _full_precision_state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.model.state_dict()
        return state if self.master_weights is None else self.master_weights.full_precision_state(state)

    def learning_rate(self, number: int) -> float:
        """Return the learning rate of update `number`, counted from 1."""
        settings = self.config.optimizer
        rate = constant_with_warmup if settings.schedule == "constant" else inverse_square_root
        return rate(number, settings.learning_rate, settings.warmup)

    def update(
        self, number: int, plan: UpdatePlan, batches: Sequence[Batch], measure_norm: bool = False
    ) -> UpdateResult:
        """Make update `number` (counted from 1) with the gradient of the loss per label token of all its batches.

        Random numbers depend on seed, update and batch alone, so neither resuming nor another number of processes
        changes them.
        """
        fabric, masters = self.fabric, self.master_weights
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for index, ((_, weight), batch) in enumerate(zip(plan.batches, batches, strict=True)):
            place = index * fabric.world_size + fabric.global_rank  # of the batch in the update
            torch.manual_seed(derive_seed(self.config.seed, number, place, 0))
            batch = self._drop_words(batch, plan.epoch).to(fabric.device)
            # Processes exchange gradients with the last batch, but master weights sum them first, in float32. Shards
            # are exchanged with each batch, as the whole gradients would not fit.
            keeps = not self.is_sharded and (masters is not None or index + 1 < len(plan.batches))
            with fabric.no_backward_sync(self._module, enabled=keeps):
                loss, nll = self._module(_OpaqueBatch(batch))
                # The exchange takes the mean over processes; times the world size it is the sum.
                fabric.backward(loss * (weight * fabric.world_size / plan.label_tokens))
            sums += torch.stack((loss.detach(), nll)) * weight
            note_progress()
            if masters is not None:
                masters.accumulate_gradients()
        if fabric.world_size > 1:
            fabric.all_reduce(sums, reduce_op="sum")
            if masters is not None:
                masters.exchange_gradients(fabric)
        norm = self._clip_gradients(measure_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(number) * group["scale"]
        self._fabric_optimizer.step()
        if masters is not None:
            masters.copy_to_model()
        self.optimizer.zero_grad()
        return UpdateResult(sums, norm)

    def _drop_words(self, batch: Batch, epoch: int) -> Batch:
        """Return the batch with word dropout in source and decoder input, at the rate of the epoch."""
        objective, model = self.config.objective, self.model.config
        rate = word_dropout_rate(objective.word_dropout, objective.word_dropout_epochs, epoch)
        if rate == 0:
            return batch

        def drop(packed: Packed, side: Side, vocabulary_size: int) -> Packed:
            droppable = packed.sentences.trim(*self.model.boundary_tokens.counts(side)).indices()
            return replace(packed, tokens=drop_words(packed.tokens, rate, SpecialTokens(vocabulary_size), droppable))

        inputs, size = batch.inputs, model.vocabulary_size
        source = drop(inputs.source, "source", model.source_vocabulary_size or size)
        target = None if inputs.target is None else drop(inputs.target, "target", size)
        return replace(batch, inputs=replace(inputs, source=source, target=target))

    def _clip_gradients(self, measure_norm: bool) -> Tensor | None:
        limit = self.config.optimizer.clip_norm
        if not (limit or measure_norm):
            return None
        norm = nn.utils.get_total_norm([_row_norms(p.grad) for p in self.trainable.values() if p.grad is not None])
        if limit:
            nn.utils.clip_grads_with_norm_(self.trainable.values(), limit, norm)
        return whole(norm)


def _row_norms(gradient: Tensor) -> Tensor:
    """Return values with the same norm. On a CPU, float32 loses half a percent of the norm of 260 million at once."""
    if gradient.device.type != "cpu" or gradient.dim() < 2:
        return gradient
    return torch.linalg.vector_norm(gradient, dim=-1)


def derive_seed(*numbers: int) -> int:
    """Return a well-mixed 64-bit seed from non-negative integers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _OpaqueBatch:
    """Wrapper that keeps Fabric from rebuilding the frozen dataclass of a batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


class _BatchLoss(nn.Module):
    """Module whose output is the loss, so that wrappers (gradient exchange, precision) cover all of it."""

    token_weights: Tensor | None

    def __init__(self, model: TranslationModel, objective: ObjectiveConfig, weighted_tokens: Sequence[int]) -> None:
        super().__init__()
        self.model, self.smoothing, weights = model, objective.label_smoothing, None
        if weighted_tokens:
            weights = torch.ones(model.config.vocabulary_size)
            weights[list(weighted_tokens)] = objective.word_weight
        self.register_buffer("token_weights", weights, persistent=False)

    def forward(self, opaque: _OpaqueBatch) -> tuple[Tensor, Tensor]:
        """Return summed loss and negative log-likelihood of a batch. Word weights count in training only."""
        batch = opaque.batch
        positions = self.model.config.position_limit
        inputs = batch.inputs
        if not self.model.training:
            return batch_loss(self.model, self.model(inputs), batch.labels, self.smoothing)
        if positions is None or positions >= _PAD_MULTIPLE:  # padding needs positions, too
            inputs = inputs.pad_to_multiple(_PAD_MULTIPLE, SpecialTokens.pad)
        states = self.model(inputs)[: batch.tokens]
        weights = None if self.token_weights is None else self.token_weights[batch.labels]
        return batch_loss(self.model, states, batch.labels, self.smoothing, weights)


def optimizer_tensors(trainable: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state of each trainable parameter as {"name.key": tensor}."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trainable.items():
        # Parameters without an update yet get zeros, so a complete file has every entry.
        state = optimizer.state.get(parameter) or {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        tensors |= {f"{name}.{key}": value for key, value in state.items()}
    return tensors


def restore_optimizer(trainable: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Load tensors of `optimizer_tensors`. Raises DocmtError for a damaged file or one of another model."""
    tensors = read_weights(path)
    check_shapes(optimizer_tensors(trainable, optimizer), read_shapes(path), path, RUN_MISMATCH)
    set_optimizer_state(trainable, optimizer, tensors)


def set_optimizer_state(
    trainable: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Set the state of the optimizer to `optimizer_tensors`, whole or sharded as the weights are."""
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        # Copied, as the alignment of a memory-mapped file changes the last bits of results.
        optimizer.state[trainable[name]][key] = copy_like(tensor, trainable[name])
