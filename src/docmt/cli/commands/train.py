"""docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from docmt import training
from docmt.cli.parsing import Parser, add_settings, make_parser, parse
from docmt.cli.recipes import is_recipe
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)

USAGE = """RECIPE.yaml [options]
--store STORE --run DIRECTORY [options]
--resume RUN [--max_steps N ...]"""
EXAMPLES = (
    "docmt train --store stores/mine --run runs/group --system group --preset base --patience 10",
    "docmt train --store stores/mine --run runs/context --system context --initialize_from runs/sentence "
    "--freeze loaded",
    "docmt train --resume runs/group",
)
COMMON = (
    "store",
    "run",
    "resume",
    "model.system",
    "model.preset",
    "batches.batch_tokens",
    "optimizer.learning_rate",
    "stop.max_steps",
    "stop.patience",
    "initialize_from",
)
ALSO = {"data": "store"}  # its name before 0.4


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "train",
        "Trains a model on a prepared store (see docmt prepare). A training that was interrupted or killed goes on "
        "with --resume from its last checkpoint.",
        USAGE,
        examples=EXAMPLES,
        common=COMMON,
        also=ALSO,
    )
    made.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="run directory to go on with; its own recipe is used, and only stop limits, device, log_every, "
        "tensorboard, checkpoints.keep and the place of the data may be changed",
    )
    add_settings(made, TrainConfig, None, "the run")
    return made


def run(arguments: Sequence[str]) -> int:
    """Trains a model in a run directory, or goes on with a run that was interrupted."""
    options = parse(parser(), _with_stored_recipe(list(arguments)), TrainConfig)
    try:
        result = training.train(options.settings, resume=options.resume is not None)
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


def _with_stored_recipe(arguments: list[str]) -> list[str]:
    """The arguments with the recipe of the run that --resume names put before them."""
    arguments = _as_paths("--resume", arguments)
    run = _value_of("--resume", arguments)
    if run is None:
        return arguments
    recipe = Path(run) / "recipe.yaml"
    if not recipe.is_file():
        raise DocmtError(f"there is no run to resume in {run} (recipe.yaml is missing): give a run directory")
    other = _value_of("--run", arguments)
    if other is not None and Path(other) != Path(run):
        raise DocmtError(f"--resume names {run} and --run {other}: give --resume alone to go on with a run")
    if is_recipe(arguments[0]):
        arguments = ["--config", *arguments]
    return ["--config", str(recipe), *arguments, *([] if other else [f"--run={run}"])]


def _as_paths(flag: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with a value of the flag that YAML takes for nothing (`null`) written as the path it is."""
    found, before = [], ""
    for argument in arguments:
        name, equals, value = argument.rpartition("=")
        if value in ("null", "Null", "NULL", "~") and (name == flag if equals else before == flag):
            argument = f"{name}{equals}./{value}"
        found.append(argument)
        before = argument
    return found


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    """The value of a flag among arguments that are not parsed yet."""
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None
