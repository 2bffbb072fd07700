"""One update of the weights: batches in, summed gradients, one step of Adam at the scheduled learning rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from docmt.checkpoint.weights import WEIGHTS_FILE, check_shapes, read_shapes, read_weights
from docmt.data import Batch
from docmt.model import Packed, TranslationModel
from docmt.model.attention import AttentionContext
from docmt.model.embeddings import OutputProjection
from docmt.model.layers import Layer
from docmt.text import SpecialTokens
from docmt.text.tokenizer import Side
from docmt.training.finetune import (
    ADAPTERS_FILE,
    BY_RUN,
    adapt,
    adapter_tensors,
    freeze,
    parameter_groups,
    remove_adapters,
    restore_adapters,
    trained,
    without_adapters,
)
from docmt.training.objective import batch_loss, drop_words, rate_in_epoch
from docmt.training.train_config import TrainConfig
from docmt.training.training_data import UpdatePlan

OPTIMIZER_FILE = "optimizer.safetensors"
_SIZE_STEP = 128  # batches are filled up to a multiple of this many tokens


def constant(update: int, peak: float, warmup: int) -> float:
    """Linear from 0 to `peak` over `warmup` updates, then `peak`. `update` counts from 1."""
    return peak * min(update / max(warmup, 1), 1.0)


def inverse_square_root(update: int, peak: float, warmup: int) -> float:
    """Linear from 0 to `peak` over `warmup` updates, then peak * sqrt(warmup / update) (Vaswani et al. 2017, 5.3).

    `update` counts from 1. Without warm-up the decay starts at the first update.
    """
    if update < warmup:
        return peak * update / warmup
    return peak * (max(warmup, 1) / update) ** 0.5


def recompute_layers(model: nn.Module) -> None:
    """Lets every layer of the model keep its input alone while it is trained (Chen et al. 2016).

    Numbers stay the same: dropout draws again what it drew. Outside of training nothing changes.
    """
    for module in model.modules():
        if isinstance(module, Layer):
            module.forward = partial(_recomputed, module, module.forward)  # type: ignore[method-assign]


def _recomputed(
    layer: Layer, forward: Callable[[Tensor, AttentionContext], Tensor], x: Tensor, context: AttentionContext
) -> Tensor:
    if not (layer.training and torch.is_grad_enabled()):
        return forward(x, context)
    result: Tensor = checkpoint(forward, x, context, use_reentrant=False)
    return result


class MasterWeights:
    """The float32 weights of a model whose linear modules and embeddings are bfloat16.

    The optimiser changes those that are trained; frozen ones wait on the CPU for the model to be written. All other
    weights (of norms, of recurrent modules) are few, and float32 in the model itself.
    """

    def __init__(self, model: nn.Module) -> None:
        """Makes those of the model's weights bfloat16, where they are."""
        large = (
            module for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding | OutputProjection)
        )
        rounded = {parameter for module in large for parameter in module.parameters(recurse=False)}
        self.trained: dict[str, nn.Parameter] = {}
        """what the optimiser changes, by name"""
        self._frozen: dict[str, Tensor] = {}
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []  # of the model, and its master
        for name, own in model.named_parameters():
            exact = own.detach()
            if own not in rounded:
                if own.requires_grad:
                    self.trained[name] = own
                continue
            own.data = exact.to(torch.bfloat16)
            if own.requires_grad:
                self.trained[name] = nn.Parameter(exact)
                self._pairs.append((own, self.trained[name]))
            else:
                self._frozen[name] = exact.cpu()

    def add_gradients(self) -> None:
        """Add the gradients of a batch, in float32, to those of the float32 weights."""
        for own, master in self._pairs:
            if own.grad is not None:
                master.grad = own.grad.float() if master.grad is None else master.grad.add_(own.grad)
                own.grad = None

    @torch.no_grad()
    def give_weights(self) -> None:
        """Rounds the float32 weights into the model."""
        for own, master in self._pairs:
            own.copy_(master)

    def exact(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state of the model with the float32 weights in it."""
        return {**state, **self._frozen, **{name: master.detach() for name, master in self.trained.items()}}


@dataclass(frozen=True)
class UpdateResult:
    """What an update found before it changed the weights."""

    sums: Tensor
    """[2] float64: loss and negative log-likelihood in nats, summed over the label tokens of all processes"""
    gradient_norm: Tensor | None
    """norm of the gradient of the mean loss, before clipping; None if it was not asked for"""


class Updater:
    """A model with its optimiser, set up for the devices of a run."""

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        model: TranslationModel,
        new_weights: Collection[str] = (),
        checkpoint: Path | None = None,
    ) -> None:
        """new_weights: parameters that did not come from `config.initialize_from`, where that is set; checkpoint: where
        the training goes on, whose weights the model has.

        Raises DocmtError where everything would be frozen, for patterns that fit nothing, and for a damaged checkpoint.
        """
        self.fabric, self.config, self.model = fabric, config, model
        if config.adapters.rank:
            adapt(model, config.adapters, new_weights)
            if checkpoint is not None:
                restore_adapters(model, checkpoint / ADAPTERS_FILE)
        freeze(model, config.frozen, new_weights)
        if config.activation_checkpointing:
            recompute_layers(model)
        module = fabric.to_device(_BatchLoss(model, config.objective.label_smoothing))
        self.masters = MasterWeights(model) if config.precision == "bfloat16-weights" else None
        self.trained = trained(model) if self.masters is None else self.masters.trained
        settings, names = config.optimizer, [name for name, _ in model.named_parameters()]
        self.optimizer = torch.optim.Adam(
            parameter_groups(self.trained, names, settings, new_weights),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,  # on CPU too: three to five times faster than the loop over parameters
        )
        if checkpoint is not None:
            restore_optimizer(self.trained, self.optimizer, checkpoint / OPTIMIZER_FILE)
        self._module, self._stepper = fabric.setup(module, self.optimizer)

    def weights(self) -> dict[str, Tensor]:
        """Those of an ordinary model that does what this one does: float32, with the changes of adapters in them."""
        return without_adapters(self.model, self._exact())

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """All that a training goes on from, by file."""
        adapters = adapter_tensors(self.model, self._exact())
        return {
            WEIGHTS_FILE: self.weights(),
            OPTIMIZER_FILE: optimizer_tensors(self.trained, self.optimizer),
            **({ADAPTERS_FILE: adapters} if adapters else {}),
        }

    def finish(self) -> None:
        """Makes an ordinary model of the model, which is not trained any more."""
        weights = self.weights()
        remove_adapters(self.model)
        self.model.float().load_state_dict(weights)

    def _exact(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.model.state_dict()
        return state if self.masters is None else self.masters.exact(state)

    def learning_rate(self, number: int) -> float:
        """That of update `number`, counted from 1."""
        settings = self.config.optimizer
        rate = constant if settings.schedule == "constant" else inverse_square_root
        return rate(number, settings.learning_rate, settings.warmup)

    def update(
        self, number: int, plan: UpdatePlan, batches: Sequence[Batch], measure_norm: bool = False
    ) -> UpdateResult:
        """Make update `number` (counted from 1): the gradient of the loss per label token of all its batches.

        Everything random in it depends on the seed, the number, the batch and the process alone, so that a resumed
        run needs no state of the generators.
        """
        fabric = self.fabric
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for place, ((_, weight), batch) in enumerate(zip(plan.batches, batches, strict=True)):
            torch.manual_seed(seed_of(self.config.seed, number, place, fabric.global_rank))
            batch = self._noised(batch, plan.epoch).to(fabric.device)
            # Several processes exchange gradients only with the last batch of the update, or with each where the
            # sum over batches is kept apart from the gradients that are exchanged.
            more = place + 1 < len(plan.batches)
            with fabric.no_backward_sync(self._module, enabled=more and self.masters is None):
                loss, nll = self._module(_Sealed(batch))
                # The exchange takes the mean over processes, where the sum is wanted: hence the world size.
                fabric.backward(loss * (weight * fabric.world_size / plan.label_tokens))
            sums += torch.stack((loss.detach(), nll)) * weight
            if self.masters is not None:
                self.masters.add_gradients()
        if fabric.world_size > 1:
            fabric.all_reduce(sums, reduce_op="sum")
        norm = self._clip(measure_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(number) * group["scale"]
        self._stepper.step()
        if self.masters is not None:
            self.masters.give_weights()
        self.optimizer.zero_grad()
        return UpdateResult(sums, norm)

    def _noised(self, batch: Batch, epoch: int) -> Batch:
        """Return the batch with words hidden in source and decoder input, by the rate of the epoch; labels stay."""
        objective, model = self.config.objective, self.model.config
        rate = rate_in_epoch(objective.word_dropout, objective.word_dropout_epochs, epoch)
        if rate == 0:
            return batch

        def hide(packed: Packed, side: Side, vocabulary_size: int) -> Packed:
            words = packed.sentences.trim(*self.model.parts.boundary_tokens.counts(side)).indices()
            return replace(packed, tokens=drop_words(packed.tokens, rate, SpecialTokens(vocabulary_size), words))

        inputs, size = batch.inputs, model.vocabulary_size
        source = hide(inputs.source, "source", model.source_vocabulary_size or size)
        target = None if inputs.target is None else hide(inputs.target, "target", size)
        return replace(batch, inputs=replace(inputs, source=source, target=target))

    def _clip(self, measure_norm: bool) -> Tensor | None:
        limit = self.config.optimizer.clip_norm
        if limit:
            return nn.utils.clip_grad_norm_(self.trained.values(), limit)
        if measure_norm:
            return nn.utils.get_total_norm([p.grad for p in self.trained.values() if p.grad is not None])
        return None


def seed_of(*numbers: int) -> int:
    """A well-mixed 64-bit seed from whole numbers of at least 0."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _Sealed:
    """Keeps Fabric from looking into a batch: it would try to rebuild the frozen dataclass."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


class _BatchLoss(nn.Module):
    """The loss as the output of a module, so that wrappers of modules (gradient exchange, precision) see all of it."""

    def __init__(self, model: TranslationModel, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, sealed: _Sealed) -> tuple[Tensor, Tensor]:
        """Summed loss and negative log-likelihood of a batch."""
        batch = sealed.batch
        positions = self.model.config.position_limit
        inputs = batch.inputs
        if positions is None or positions >= _SIZE_STEP:  # the filler needs positions, too
            inputs = inputs.pad_to_multiple(_SIZE_STEP, SpecialTokens.pad)
        states = self.model(inputs)[: batch.tokens]
        return batch_loss(self.model, states, batch.labels, self.smoothing)


def optimizer_tensors(trained: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """name.key -> tensor for everything the optimiser remembers about each of the parameters that it trains."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained.items():
        # A parameter that no update has reached yet starts from zero: so no entry is ever missing in a whole file.
        state = optimizer.state.get(parameter) or {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        tensors |= {f"{name}.{key}": value for key, value in state.items()}
    return tensors


def restore_optimizer(trained: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Puts back what `optimizer_tensors` gave. Raises DocmtError for a file that is damaged or of another model."""
    tensors = read_weights(path)
    if not tensors:  # of an earlier version, before the first update
        return
    check_shapes(optimizer_tensors(trained, optimizer), read_shapes(path), path, BY_RUN)
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        # Cloned, because a memory-mapped file is not aligned as torch's own tensors are, which changes last bits.
        optimizer.state[trained[name]][key] = tensor.clone().to(trained[name].device)
