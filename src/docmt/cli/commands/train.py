"""docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN

Trains a model on a prepared store (see docmt prepare). A training that was interrupted or killed goes on with
--resume from its last checkpoint.

usage:
    RECIPE.yaml [options]
    --store STORE --run DIRECTORY [options]
    --resume RUN [--max-steps N ...]

examples:
    docmt train --store stores/mine --run runs/group --system group --preset base --patience 10
    docmt train --store stores/mine --run runs/context --system context --initialize-from runs/sentence --freeze
        pretrained
    docmt train --resume runs/group
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt import training
from docmt.cli.options import Parser
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.core.settings import option
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumeOption:
    """The option of the command that is no setting of a run."""

    resume: Path | None = option(None, metavar="RUN")
    """run directory to go on with; its own recipe is used, and only stop limits, device, log_every, tensorboard,
    checkpoints.keep and the place of the data may be changed"""


def parser() -> Parser[TrainConfig]:
    """Return the parser of the command."""
    made = Parser(
        "train",
        TrainConfig,
        __doc__,
        common="store run resume model.system model.preset batches.batch_tokens optimizer.learning_rate "
        "stop.max_steps stop.patience initialize_from",
        title="the run",
    )
    made.add_settings(ResumeOption, "", "options")
    return made


def run(arguments: Sequence[str]) -> int:
    """Trains a model in a run directory, or goes on with a run that was interrupted."""
    made, recipes = parser(), []
    given, _ = made.read(arguments)
    if (run := given.get("resume")) is not None:
        recipes = [_stored_recipe(Path(run), given.get("run"))]
        arguments = [*arguments, *([] if "run" in given else [f"--run={run}"])]
    config = made.parse(arguments, recipes)
    try:
        result = training.train(config, resume="resume" in given)
    except training.LostProcessError as error:
        _log.error(str(error))
        os._exit(USAGE_ERROR)  # at once: see LostProcessError
    if result.interrupted:
        if result.leads:
            run = shlex.quote(str(result.run))
            _log.warning(f"go on with: docmt train --resume {run}")
            _log.warning(f"its model so far can be used already: docmt translate {run} FILE")
        return INTERRUPTED
    if result.leads:
        print(printable(f"{result.reason}; the model is in {result.model}"))
    return 0


def _stored_recipe(run: Path, other: str | None) -> Path:
    """Return the recipe of a run to resume; other: the run directory that is named besides.

    Raises DocmtError where there is none, and for another run directory.
    """
    recipe = run / "recipe.yaml"
    if not recipe.is_file():
        raise DocmtError(f"there is no run to resume in {run} (recipe.yaml is missing): give a run directory")
    if other is not None and Path(other) != run:
        raise DocmtError(f"--resume names {run} and --run {other}: give --resume alone to go on with a run")
    from docmt.training.run_directory import read_recipe

    read_recipe(recipe, run)
    return recipe
