"""One update of the weights: batches in, summed gradients, one step of Adam."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from docmt.data import Batch
from docmt.errors import DocmtError
from docmt.model import TranslationModel
from docmt.text import SpecialTokens
from docmt.training.config import ObjectiveConfig, TrainConfig
from docmt.training.corpus import TrainingCorpus, UpdatePlan
from docmt.training.objective import batch_loss
from docmt.training.schedule import inverse_square_root
from docmt.training.word_dropout import drop_words, rate_in_epoch

_SIZE_STEP = 128  # batches are filled up to a multiple of this many tokens


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
        self, fabric: Fabric, config: TrainConfig, model: TranslationModel, new_weights: Collection[str] = ()
    ) -> None:
        """new_weights: parameters that did not come from `config.initialize_from`, where that is set.

        Raises DocmtError where everything would be frozen.
        """
        self.fabric, self.config, self.model = fabric, config, model
        if config.freeze == "loaded":
            freeze(model, set(new_weights))
        module = fabric.to_device(_BatchLoss(model, config.objective.label_smoothing))
        settings = config.optimizer
        self.optimizer = torch.optim.Adam(
            _parameter_groups(model, settings.loaded_scale, new_weights),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,  # on CPU too: three to five times faster than the loop over parameters
        )
        self._module, self._stepper = fabric.setup(module, self.optimizer)

    def learning_rate(self, number: int) -> float:
        """That of update `number`, counted from 1."""
        return inverse_square_root(number, self.config.optimizer.learning_rate, self.config.optimizer.warmup)

    def update(
        self, number: int, epoch: int, plan: UpdatePlan, corpus: TrainingCorpus, measure_norm: bool = False
    ) -> UpdateResult:
        """Makes update `number` (counted from 1): the gradient of the loss per label token of all its batches.

        Everything random in it depends on the seed, the number, the batch and the process alone, so that a resumed
        run needs no state of the generators.
        """
        fabric = self.fabric
        self.model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
        for place, (indices, weight) in enumerate(plan.batches):
            torch.manual_seed(seed_of(self.config.seed, number, place, fabric.global_rank))
            batch = noised(
                corpus.train.batch(indices), self.config.objective, epoch, corpus.specials, corpus.source_specials
            )
            batch = batch.to(fabric.device)
            # Several processes exchange gradients only with the last batch of the update.
            with fabric.no_backward_sync(self._module, enabled=place + 1 < len(plan.batches)):
                loss, nll = self._module(_Sealed(batch))
                # The exchange takes the mean over processes, where the sum is wanted: hence the world size.
                fabric.backward(loss * (weight * fabric.world_size / plan.label_tokens))
            sums += torch.stack((loss.detach(), nll)) * weight
        if fabric.world_size > 1:
            fabric.all_reduce(sums, reduce_op="sum")
        norm = self._clip(measure_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(number) * group["scale"]
        self._stepper.step()
        self.optimizer.zero_grad()
        return UpdateResult(sums, norm)

    def _clip(self, measure_norm: bool) -> Tensor | None:
        limit = self.config.optimizer.clip_norm
        if limit:
            return nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if measure_norm:
            return nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return None


def freeze(model: nn.Module, new_weights: Collection[str]) -> None:
    """Lets only these parameters be trained. Raises DocmtError if there are none."""
    if not new_weights:
        raise DocmtError(
            "freeze loaded would freeze everything, as initialize_from has every weight of this model: leave it out, "
            "or choose a system with weights of its own"
        )
    for name, parameter in model.named_parameters():
        if name not in new_weights:
            parameter.requires_grad_(False)


def _parameter_groups(model: nn.Module, loaded_scale: float, new_weights: Collection[str]) -> list[dict[str, Any]]:
    """What the optimiser trains: all alike, or new weights and loaded ones with a learning rate each."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if loaded_scale == 1:
        return [{"params": list(trained.values()), "scale": 1.0}]
    new = [parameter for name, parameter in trained.items() if name in new_weights]
    loaded = [parameter for name, parameter in trained.items() if name not in new_weights]
    groups = [{"params": new, "scale": 1.0}, {"params": loaded, "scale": loaded_scale}]
    return [group for group in groups if group["params"]]


def seed_of(*numbers: int) -> int:
    """A well-mixed 64-bit seed from whole numbers of at least 0."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def noised(
    batch: Batch,
    objective: ObjectiveConfig,
    epoch: int,
    specials: SpecialTokens,
    source_specials: SpecialTokens | None = None,
) -> Batch:
    """The batch with words hidden in source and decoder input, by the rate of the epoch; labels stay.

    source_specials: those of the source, where its vocabulary is another one.
    """
    rate = rate_in_epoch(objective.word_dropout, objective.word_dropout_epochs, epoch)
    if rate == 0:
        return batch
    source, target = (
        replace(side, tokens=drop_words(side.tokens, rate, own))
        for side, own in ((batch.reading.source, source_specials or specials), (batch.reading.target, specials))
        if side is not None
    )
    return replace(batch, reading=replace(batch.reading, source=source, target=target))


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
        reading = batch.reading
        if positions is None or positions >= _SIZE_STEP:  # the filler needs positions, too
            reading = reading.filled(_SIZE_STEP, SpecialTokens.pad)
        states = self.model(reading)[: batch.tokens]
        return batch_loss(self.model, states, batch.labels, self.smoothing)
