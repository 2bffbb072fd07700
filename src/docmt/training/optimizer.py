"""One update of the weights: summed gradients of its batches and one step of Adam."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from docmt.data import Batch
from docmt.model import TranslationModel
from docmt.model.contexts import AttentionContext
from docmt.model.layers import Layer
from docmt.training.distributed import raise_together
from docmt.training.finetune import build_parameter_groups, read_run_tensors
from docmt.training.objective import BatchLoss, drop_words, pad_batch
from docmt.training.train_config import TrainConfig
from docmt.training.trained_weights import TrainedWeights, check_shards, copy_like, has_shards, load_shards, whole
from docmt.training.training_corpus import UpdatePlan

OPTIMIZER_FILE = "optimizer.safetensors"
_BETA1 = 0.9  # decay rate of the gradient mean


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


class Updater:
    """Updates of a model: the gradient of its loss, exchanged among processes, and a step of Adam."""

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        model: TranslationModel,
        new_weights: Collection[str] = (),
        checkpoint: Path | None = None,
        weighted_tokens: Sequence[int] = (),
    ) -> None:
        """new_weights: parameters that `config.initialize_from` did not have. checkpoint: checkpoint to resume from,
        whose weights the model has. weighted_tokens: ids that have the loss weight `objective.word_weight`.

        Raises DocmtError as `TrainedWeights` does, for a pattern of learning rates without effect, and for a damaged
        checkpoint.
        """
        self.fabric, self.config, self.model = fabric, config, model
        if config.activation_checkpointing:
            enable_activation_checkpointing(model)
        self.loss = BatchLoss(model, config.objective, weighted_tokens)
        self.weights = TrainedWeights(fabric, config, self.loss, new_weights, checkpoint)
        settings, names = config.optimizer, [name for name, _ in model.named_parameters()]
        self.optimizer = torch.optim.Adam(
            build_parameter_groups(self.weights.trainable, names, settings, new_weights),
            lr=settings.learning_rate,
            betas=(_BETA1, settings.beta2),
            eps=settings.epsilon,
            fused=True,  # on CPU too: three to five times faster than the loop over parameters
        )
        if checkpoint is not None and has_shards(checkpoint):
            self._load_shards(checkpoint)
        elif checkpoint is not None:
            restore_optimizer(self.weights.trainable, self.optimizer, checkpoint / OPTIMIZER_FILE)
        self._fabric_optimizer: Any = fabric.setup_optimizers(self.optimizer)

    def _load_shards(self, checkpoint: Path) -> None:
        """Load weights and optimizer state of `sharded_tensors`, in any number of processes."""
        raise_together(self.fabric, partial(check_shards, self.fabric, checkpoint))
        tensors = self.sharded_tensors()
        load_shards(checkpoint, tensors)
        if self.weights.masters is not None:
            self.weights.masters.copy_to_model(self.model)
        set_optimizer_state(self.weights.trainable, self.optimizer, tensors["optimizer"])

    def sharded_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that resuming needs, each process its parts, for `save_shards`."""
        optimizer = optimizer_tensors(self.weights.trainable, self.optimizer)
        return {"weights": self.weights.full_precision(), "optimizer": optimizer}

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors that resuming needs, by file."""
        return {**self.weights.files(), OPTIMIZER_FILE: optimizer_tensors(self.weights.trainable, self.optimizer)}

    def learning_rate(self, number: int) -> float:
        """Return the learning rate of update `number`, counted from 1."""
        settings = self.config.optimizer
        rate = constant_with_warmup if settings.schedule == "constant" else inverse_square_root
        return rate(number, settings.learning_rate, settings.warmup)

    def update(
        self, number: int, plan: UpdatePlan, batches: Sequence[Batch], measure_norm: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Make update `number` (counted from 1) with the gradient of the loss per label token of all its batches.

        Return loss and negative log-likelihood in nats [2], float64, summed over the label tokens of all processes; and
        the norm of the gradient of the mean loss before clipping, None if neither clipping nor `measure_norm` needs it.
        All are from before the weights changed.

        Random numbers depend on seed, update and batch alone, so neither resuming nor another number of processes
        changes them.
        """
        fabric, masters = self.fabric, self.weights.masters
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for index, ((_, weight), batch) in enumerate(zip(plan.batches, batches, strict=True)):
            batch_number = index * fabric.world_size + fabric.global_rank  # in the update
            torch.manual_seed(derive_seed(self.config.seed, number, batch_number, 0))
            batch = self._prepare(batch, plan.epoch)
            # Processes exchange gradients with the last batch, but master weights sum them first, in float32. Shards
            # are exchanged with each batch, as the whole gradients would not fit.
            keeps = not self.weights.is_sharded and (masters is not None or index + 1 < len(plan.batches))
            with fabric.no_backward_sync(self.weights.module, enabled=keeps):
                loss, nll = self.weights.module(lambda batch=batch: batch)
                # The exchange takes the mean over processes; times the world size it is the sum.
                fabric.backward(loss * (weight * fabric.world_size / plan.label_tokens))
            sums += torch.stack((loss.detach(), nll)) * weight
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
        return sums, norm

    def _prepare(self, batch: Batch, epoch: int) -> Batch:
        """Return a batch with word dropout at the rate of the epoch, padded, on the device."""
        objective = self.config.objective
        if epoch < objective.word_dropout_epochs:
            batch = drop_words(batch, objective.word_dropout, self.model)
        return pad_batch(batch, self.model.config).to(self.fabric.device)

    def _clip_gradients(self, measure_norm: bool) -> Tensor | None:
        limit = self.config.optimizer.clip_norm
        if not (limit or measure_norm):
            return None
        trainable = self.weights.trainable.values()
        norm = nn.utils.get_total_norm([_row_norms(p.grad) for p in trainable if p.grad is not None])
        if limit:
            nn.utils.clip_grads_with_norm_(trainable, limit, norm)
        return whole(norm)


def _row_norms(gradient: Tensor) -> Tensor:
    """Return values with the same norm. On a CPU, float32 loses half a percent of the norm of 260 million at once."""
    if gradient.device.type != "cpu" or gradient.dim() < 2:
        return gradient
    return torch.linalg.vector_norm(gradient, dim=-1)


def derive_seed(*numbers: int) -> int:
    """Return a well-mixed 64-bit seed from non-negative integers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


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
    set_optimizer_state(trainable, optimizer, read_run_tensors(path, optimizer_tensors(trainable, optimizer)))


def set_optimizer_state(
    trainable: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Set the state of the optimizer to `optimizer_tensors`, whole or sharded as the weights are."""
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        # Copied, as the alignment of a memory-mapped file changes the last bits of results.
        optimizer.state[trainable[name]][key] = copy_like(tensor, trainable[name])
