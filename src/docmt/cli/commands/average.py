"""docmt average MODEL MODEL ... -o DIR

Writes a model whose weights are the mean of those of several: of models of one architecture and vocabulary, or of
checkpoints that runs have kept (train them with --checkpoints.keep).

usage:
    MODEL MODEL ... -o DIRECTORY
    RUN ... --last N -o DIRECTORY
    RUN ... --best N -o DIRECTORY

examples:
    docmt average runs/group --last 5 -o models/mean
    docmt average models/one models/two -o models/mean
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from docmt.cli.options import Parser
from docmt.core.errors import DocmtError
from docmt.core.settings import option, ranged


@dataclass(frozen=True)
class AverageOptions:
    """The options of the command."""

    models: list[str] = option(positional=True, metavar="MODEL")
    """model directory, checkpoint of a run, or run directory, which stands for its model"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """model directory, made new"""
    last: int = ranged(0, 0, 10_000)
    """of each run, the last N checkpoints that it keeps"""
    best: int = ranged(0, 0, 10_000)
    """of each run, those N of them that were the best on the dev split"""


def parser() -> Parser[AverageOptions]:
    """Return the parser of the command."""
    return Parser("average", AverageOptions, __doc__)


def run(arguments: Sequence[str]) -> int:
    """Writes the mean of several models as a model."""
    options = parser().parse(arguments)
    if options.last and options.best:
        raise DocmtError("--last and --best are both given: choose one of them")
    # torch takes a while to load
    from docmt.checkpoint.averaging import average_models
    from docmt.training.run_directory import kept_checkpoints

    models = [Path(model) for model in options.models]
    if count := options.last or options.best:
        which: Literal["last", "best"] = "last" if options.last else "best"
        models = [checkpoint for run in models for checkpoint in kept_checkpoints(run, which, count)]
    elif len(models) == 1:
        raise DocmtError(
            f"{models[0]} alone is one model: name others, or, for a run, say how many checkpoints (--last N, --best N)"
        )
    average_models(models, options.output)
    print(f"{options.output}: mean of {', '.join(map(str, models))}")
    return 0
