"""One update of the weights: batches in, summed gradients, one step of Adam."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from docmt.checkpoint.weights import WEIGHTS_FILE
from docmt.data import Batch
from docmt.model import Packed, TranslationModel
from docmt.model.frame import SentenceFrame
from docmt.text import SpecialTokens
from docmt.text.tokenizer import Side
from docmt.training.adapters import (
    ADAPTERS_FILE,
    adapt,
    adapter_tensors,
    remove_adapters,
    restore_adapters,
    without_adapters,
)
from docmt.training.checkpoints import OPTIMIZER_FILE, optimizer_tensors, restore_optimizer
from docmt.training.config import ObjectiveConfig, TrainConfig
from docmt.training.corpus import TrainingCorpus, UpdatePlan
from docmt.training.masters import Masters
from docmt.training.objective import batch_loss
from docmt.training.recompute import recompute_layers
from docmt.training.schedule import constant, inverse_square_root
from docmt.training.tuning import freeze, parameter_groups, trained
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
        self.masters = Masters(model) if config.precision == "bfloat16-weights" else None
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
        rate = constant if settings.decay == "none" else inverse_square_root
        return rate(number, settings.learning_rate, settings.warmup)

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
                *(corpus.train.batch(indices), self.config.objective, epoch, corpus.specials, corpus.source_specials),
                frame=self.model.parts.frame,
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
        if self.masters is not None:
            self.masters.take_gradients()
        norm = self._clip(measure_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(number) * group["scale"]
        self._stepper.step()
        if self.masters is not None:
            self.masters.give_weights()
        self.optimizer.zero_grad()
        return UpdateResult(sums, norm)

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


def noised(
    batch: Batch,
    objective: ObjectiveConfig,
    epoch: int,
    specials: SpecialTokens,
    source_specials: SpecialTokens | None = None,
    frame: SentenceFrame | None = None,
) -> Batch:
    """The batch with words hidden in source and decoder input, by the rate of the epoch; labels stay.

    source_specials: those of the source, where its vocabulary is another one; frame: the marks of the model's
    family, which may be words elsewhere.
    """
    rate = rate_in_epoch(objective.word_dropout, objective.word_dropout_epochs, epoch)
    if rate == 0:
        return batch
    sides: list[tuple[Side, Packed | None, SpecialTokens]] = [
        ("source", batch.reading.source, source_specials or specials),
        ("target", batch.reading.target, specials),
    ]
    source, target = (
        replace(packed, tokens=drop_words(packed.tokens, rate, own, _inside(packed, side, frame)))
        for side, packed, own in sides
        if packed is not None
    )
    return replace(batch, reading=replace(batch.reading, source=source, target=target))


def _inside(packed: Packed, side: Side, frame: SentenceFrame | None) -> Tensor | None:
    """[n] where the words of all sentences are; None: everywhere, but for the marks that are no words anywhere."""
    return None if frame is None else packed.sentences.within(*frame.marks(side)).indices()


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
