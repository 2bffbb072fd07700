"""Models that draft training documents which they have never seen (jack-knifing).

A model translates what it was trained on better than anything else, so that a system which learns from such drafts is
not prepared for those of new text. Of N parts of the training documents each is therefore drafted by a model of its
own that was trained on the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.data import PreparedStore
from docmt.data.parts import Part
from docmt.training.config import TrainConfig, absolute
from docmt.training.corpus import TrainingCorpus, fit_model_config, in_direction
from docmt.training.loop import train
from docmt.training.run_directory import RunDirectory, read_recipe, read_state

_log = logging.getLogger(__name__)


def part_configs(
    model: Path,
    store: PreparedStore,
    count: int,
    runs: Path | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> list[TrainConfig]:
    """The trainings of a run directory's recipe without part 1, 2, ..., count of the training documents.

    runs: where their run directories go (None: beside the run); device: another one than the recipe's.
    Raises DocmtError for a model that is no run, and for runs that cannot be trained here.
    """
    recipe = RunDirectory(model).recipe
    if not recipe.is_file():
        raise DocmtError(
            f"--jackknife trains models by the recipe of the one that drafts, but {model} is no run directory "
            f"({recipe.name} is missing): give the run"
        )
    config = TrainConfig.from_dict(read_recipe(recipe, model), str(recipe))
    if config.batches.leave_out:
        raise DocmtError(
            f"the run {model} was itself trained without a part ({config.batches.leave_out}): give a run that was "
            "trained on all documents"
        )
    folder = runs if runs is not None else absolute(model).with_name(f"{absolute(model).name}-jackknife")
    configs = [
        replace(
            config,
            store=store.directory,
            run=folder / f"part-{number}-of-{count}",
            model=fit_model_config(config.model, store),
            batches=replace(config.batches, leave_out=str(Part(number, count))),
            device=device or config.device,
        )
        for number in range(1, count + 1)
    ]
    if config.devices > 1 and not all(map(_finished, configs)):
        example = configs[0]
        raise DocmtError(
            f"the run {model} was trained by {config.devices} processes: train the parts with `docmt train "
            f"{recipe} --run {example.run} --batches.leave_out {example.batches.leave_out}` and so on, then draft again"
        )
    if config.initialize_from is not None:
        _log.warning(
            "the models of the parts start from %s: if that was trained on these documents, it has seen the part that "
            "each is to draft",
            config.initialize_from,
        )
    return configs


def train_parts(configs: Sequence[TrainConfig], tell: Callable[[str], object] = lambda line: None) -> bool:
    """Trains what is not trained yet; returns whether all is (or else a signal ended it, and it can be resumed).

    Raises DocmtError for a run that was trained in another way or on other data.
    """
    for config in configs:
        run = RunDirectory(config.run)
        if _finished(config):
            run.check_resumable(config)
            _check_data(config, run)
            continue
        tell(f"training without part {config.batches.leave_out} ({config.run})")
        if train(config, resume=run.recipe.exists()).interrupted:
            return False
    return True


def _check_data(config: TrainConfig, run: RunDirectory) -> None:
    """Raises DocmtError unless a finished run was trained on this store: part i of another one has other documents."""
    store = in_direction(PreparedStore.open(config.store), config)
    if read_state(run.last).data != TrainingCorpus(store, config).fingerprint:
        raise DocmtError(
            f"the run {run.path} was trained on other data than the store {config.store}, so that it may have seen "
            "what it is to draft: remove it, or name another directory with --runs"
        )


def _finished(config: TrainConfig) -> bool:
    return RunDirectory(config.run).model.exists()
