"""docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from docmt.cli.parsing import make_parser, parse
from docmt.errors import DocmtError
from docmt.training import TrainConfig, train

INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Trains a model in a run directory, or goes on with a run that was interrupted."""
    parser = make_parser("train", "Trains a model on a prepared store.")
    parser.add_argument(
        "--resume", type=Path, help="run directory to go on with; its recipe is used, only limits may be changed"
    )
    parser.add_class_arguments(TrainConfig, None)
    options = parse(parser, _with_stored_recipe(list(arguments)))
    config = TrainConfig(**{name: getattr(options, name) for name in TrainConfig.__dataclass_fields__})
    result = train(config, resume=options.resume is not None)
    if result.interrupted:
        print(
            f"docmt: interrupted after update {result.update}; go on with: docmt train --resume {result.run}",
            file=sys.stderr,
        )
        return INTERRUPTED
    print(f"{result.reason}; the model is in {result.model}")
    return 0


def _with_stored_recipe(arguments: list[str]) -> list[str]:
    """The arguments with the recipe of the run that --resume names put before them."""
    for place, argument in enumerate(arguments):
        if argument == "--resume" and place + 1 < len(arguments):
            run = arguments[place + 1]
        elif argument.startswith("--resume="):
            run = argument.removeprefix("--resume=")
        else:
            continue
        recipe = Path(run) / "recipe.yaml"
        if not recipe.is_file():
            raise DocmtError(f"there is no run to resume in {run} (recipe.yaml is missing): give a run directory")
        return ["--config", str(recipe), "--run", run, *arguments]
    return arguments
