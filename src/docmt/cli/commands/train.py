"""docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN

Train a model on a prepared store (see docmt prepare). After an interruption, --resume continues from the last
checkpoint.

usage:
    RECIPE.yaml [options]
    --store STORE --run DIRECTORY [options]
    --resume RUN [--max-steps N ...]

examples:
    docmt train --store stores/mine --run runs/group --system group --preset base --patience 10
    docmt train --store stores/mine --run runs/context --system context --initialize-from runs/sentence --freeze
        pretrained
    docmt train --resume runs/group

common:
    store run resume model.system model.preset batches.batch_tokens optimizer.learning_rate stop.max_steps stop.patience
        initialize_from
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt import training
from docmt.cli.model_arguments import resolve_model_names
from docmt.cli.options import Parser
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.core.settings import option
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumeOption:
    """The option of the command that is not a setting of a run."""

    resume: Path | None = option(None, metavar="RUN")
    """run directory to resume, with its recipe; only stop limits and a few settings may change"""


def parser() -> Parser[TrainConfig]:
    """Return the parser of the command."""
    parser = Parser("train", TrainConfig, __doc__, title="the run")
    parser.add_settings(ResumeOption, "", "options")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Train a model in a run directory, or resume an interrupted run."""
    # Before PyTorch is imported: it adds its own calls to the one sentence on a lost process.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    option_parser, recipes = parser(), []
    explicit, _ = option_parser.read(arguments)
    if (run := explicit.get("resume")) is not None:
        recipes = [_find_stored_recipe(Path(run), explicit.get("run"))]
        arguments = [*arguments, *([] if "run" in explicit else [f"--run={run}"])]
    config = option_parser.parse(arguments, recipes)
    config = resolve_model_names(config, "initialize_from", "initialize_reverse_from", "drafter")
    try:
        result = training.train(config, resume="resume" in explicit, explicit=explicit)
    except training.LostProcessError as error:
        _log.error(str(error))
        os._exit(USAGE_ERROR)  # exit without cleanup, see LostProcessError
    if result.interrupted:
        if result.is_main_process:
            run = shlex.quote(str(result.run))
            _log.warning(f"to continue: docmt train --resume {run}")
            _log.warning(f"the current model can be used: docmt translate {run} FILE")
        return INTERRUPTED
    if result.is_main_process:
        print(printable(f"{result.reason}; the model is in {result.model}"))
    return 0


def _find_stored_recipe(run: Path, other: str | None) -> Path:
    """Return the recipe of a run to resume. other: value of --run, if set.

    Raises DocmtError if there is no recipe, and if --run is another directory.
    """
    recipe = run / "recipe.yaml"
    if other is not None and Path(other) != run:
        raise DocmtError(f"--resume is {run} but --run is {other}: to resume a run, use --resume only")
    from docmt.training.run_directory import read_recipe

    read_recipe(recipe, run)
    return recipe
