"""docmt average MODEL MODEL ... -o DIR

Average the weights of several models into a new model. They are models of one architecture and vocabulary, or
checkpoints of runs (trained with --checkpoints.keep).

usage:
    MODEL MODEL ... -o DIRECTORY
    RUN ... --last N -o DIRECTORY
    RUN ... --best N -o DIRECTORY
    MODEL --quantization TYPE -o DIRECTORY

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
    """model directories, run directories, or checkpoints of runs"""
    output: Path = option(flags=("-o",), metavar="DIRECTORY")
    """new model directory"""
    last: int = ranged(0, 0, 10_000)
    """average the last N checkpoints of each run"""
    best: int = ranged(0, 0, 10_000)
    """average the N best checkpoints of each run on the dev split"""
    quantization: Literal["float32", "float16", "int8"] | None = option(None, metavar="TYPE")
    """type of the stored weights: float32 (default), float16 or int8; also of a single model"""


def parser() -> Parser[AverageOptions]:
    """Return the parser of the command."""
    return Parser("average", AverageOptions, __doc__)


def run(arguments: Sequence[str]) -> int:
    """Average several models and write the result as a model."""
    options = parser().parse(arguments)
    if options.last and options.best:
        raise DocmtError("--last and --best are both set: choose one of them")
    # imported here because torch loads slowly
    from docmt.checkpoint.averaging import average_models
    from docmt.training.run_directory import select_snapshots

    models = [Path(model) for model in options.models]
    if count := options.last or options.best:
        which: Literal["last", "best"] = "last" if options.last else "best"
        models = [checkpoint for run in models for checkpoint in select_snapshots(run, which, count)]
    elif len(models) == 1 and options.quantization is None:
        raise DocmtError(
            f"{models[0]} is a single model: name several, or set --last N or --best N for the checkpoints of a run"
        )
    average_models(models, options.output, options.quantization)
    content = "mean" if models[1:] else f"copy in {options.quantization}"
    print(f"{options.output}: {content} of {', '.join(map(str, models))}")
    return 0
