"""The parts of `train` for a training loop or a loss of one's own: its batches, and its loss of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from docmt.data import Batch, PreparedStore
from docmt.model import TranslationModel
from docmt.training.loop import resolve_model_config
from docmt.training.objective import BatchLoss, pad_batch
from docmt.training.train_config import ObjectiveConfig, TrainConfig
from docmt.training.training_corpus import TrainingCorpus, select_direction


def batches(store: PreparedStore, config: TrainConfig) -> Iterator[Batch]:
    """Yield the batches of the training split in the order of `train(config)`, epoch after epoch, without end.

    They are on the CPU, without word dropout and padding. `config.run` is not used. An update of `train` takes
    `gradient_accumulation` of them from each process, but not over the end of an epoch.
    Raises DocmtError where `train` does, for a store or a start model that does not fit.
    """
    store = select_direction(store, config)
    config = replace(config, model=resolve_model_config(config, store))
    for _, update in TrainingCorpus(store, config).iterate_updates(epoch=0, position=0):
        yield from update


def loss(model: TranslationModel, batch: Batch, label_smoothing: float = 0.1) -> Tensor:
    """Return the loss [] that `train` minimizes, in nats per label token, with gradients; without `weighted_words`.

    Of several batches, `train` takes the mean over all their label tokens: that of losses times `batch.tokens`.
    Its logits [T, V] are never stored as a whole (`objective.smoothed_cross_entropy`). Dropout is on in training mode.
    """
    padded = pad_batch(batch, model.config).to(model.device)
    total, _ = BatchLoss(model, ObjectiveConfig(label_smoothing=label_smoothing), ())(lambda: padded)
    mean: Tensor = total / batch.tokens
    return mean
