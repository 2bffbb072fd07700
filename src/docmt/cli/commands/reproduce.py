"""docmt reproduce NAME --scale cpu --store STORE --output DIRECTORY

Trains and evaluates everything that a published table or figure shows, and writes the table and the figure. What is
done already is skipped, what was interrupted goes on: give the same command again.

usage:
    NAME --store STORE --output DIRECTORY [--scale full] [--seeds 1,2,3] [options]
    NAME --store STORE --output DIRECTORY --dry-run
    --list

examples:
    docmt reproduce --list
    docmt reproduce zhang2018-table1 --store stores/mine --output experiments
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docmt import experiments
from docmt.cli.options import EveryCommand, Parser, is_recipe
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import option, shown
from docmt.decoding import ContextConfig, SearchConfig
from docmt.evaluation import MetricConfig, read_suite
from docmt.experiments import list_experiments, read_experiment
from docmt.training import TrainConfig

if TYPE_CHECKING:
    from docmt.experiments import EvaluationConfig, Plan

_log = logging.getLogger(__name__)

PLANNED = {"store", "run", "seed", "initialize_from", "initialize_reverse_from", "reverse"}


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """The options of the command, without those of its trainings."""

    name: str | None = option(None, positional=True, metavar="NAME")
    """an experiment of --list, or the path of an experiment file"""
    scale: Literal["cpu", "full"] = "cpu"
    """cpu: recipes for one small machine; full: as published"""
    store: Path | None = option(None, metavar="STORE")
    """prepared store with train, dev and test split"""
    output: Path | None = option(None, metavar="DIRECTORY")
    """where the runs, the tables and the figures go; experiments with the same directory share runs"""
    suite: Path | None = option(None, metavar="NAME")
    """contrastive test set that every run is asked, a file or a name (phenomena): a table of right answers by
    phenomenon and distance, and a figure"""
    seeds: str = option("", metavar="1,2,...")
    """seeds of the runs, instead of the experiment's"""
    list: bool = False
    """show the experiments and what each reproduces, and exit"""
    dry_run: bool = False
    """show the runs and which are done, resumable or missing, and exit"""
    metrics: MetricConfig = MetricConfig()
    """how text becomes scores"""
    search: SearchConfig = option(SearchConfig(), skip=("n_best",))
    """beam search over whole documents, to translate the test split"""
    context: ContextConfig = ContextConfig()
    """what of a document is read at once"""


def parser() -> Parser[ReproduceOptions]:
    """Return the parser of the command."""
    made = Parser(
        "reproduce",
        ReproduceOptions,
        __doc__,
        common="list store output scale seeds dry_run",
        also={"data": "store"},
    )
    made.add_settings(TrainConfig, "", "settings of all runs, instead of those of their recipes", PLANNED)
    return made


def run(arguments: Sequence[str]) -> int:
    """Does what is left of an experiment and prints its table; returns 2 if any of its runs failed."""
    given = list(arguments)
    # A first argument ending in .yaml is an experiment here, no recipe with options.
    file = given.pop(0) if given and is_recipe(given[0]) else None
    made = parser()
    options = made.parse(given)
    if options.list:
        titles = {name: experiment.title for name, experiment in list_experiments().items()}
        width = max(map(len, titles), default=0)
        print("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()))
        return 0
    if file is not None and options.name:
        raise DocmtError(f"{file} and {options.name} both name an experiment: give one of them")
    own = [each.name for command in (ReproduceOptions, EveryCommand) for each in fields(command)]
    overrides = {name: value for name, value in made.parse_given(given).items() if name.split(".")[0] not in own}
    plan, evaluation = _plan(file or options.name, options, overrides)
    for variant, why in plan.skipped.items():
        _log.info(f"left out: {variant} ({why})")
    if not options.dry_run:
        return _reproduce(plan, evaluation)
    for run in plan.unique_runs():
        print(printable(f"{experiments.determine_state(run, evaluation):<10} {run.title} ({run.config.run.name})"))
    return 0


def _plan(name: str | None, options: ReproduceOptions, overrides: Mapping[str, Any]) -> tuple[Plan, EvaluationConfig]:
    if not name:
        raise DocmtError("NAME is missing; docmt reproduce --list shows the experiments")
    experiment = read_experiment(name)
    if options.store is None or options.output is None:
        raise DocmtError(f"--{'output' if options.store else 'store'} is missing; see docmt reproduce --help")
    suite = read_suite(options.suite) if options.suite else None
    evaluation = experiments.EvaluationConfig(options.search, options.metrics, suite, options.context)
    seeds = _seeds(options.seeds)
    plan = experiments.make_plan(experiment, options.scale, options.store, options.output, seeds, overrides)
    from docmt.decoding.scheduler import check_context  # torch takes a while to load

    check_context(evaluation.search, evaluation.context, *(run.config.model for run in plan.runs))
    return plan, evaluation


def _seeds(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(map(int, text.split(",")))) if text else []
    except ValueError:
        raise DocmtError(f"--seeds is {shown(text)}: give whole numbers, such as 1,2,3") from None


def _reproduce(plan: Plan, evaluation: EvaluationConfig) -> int:
    failures = experiments.reproduce(
        plan, evaluation, _log.info, lambda failures: experiments.write_report(plan, evaluation, failures)
    )
    print(printable(experiments.write_report(plan, evaluation, failures), kept="\n"), end="")
    written = [plan.output_path(evaluation.context, ending) for ending in (".md", ".json")]
    _log.info(f"the table is in {written[0]} and {written[1]}")
    draw = [experiments.write_figure]
    draw += [experiments.write_contrastive_figure] if evaluation.suite is not None else []
    for write in draw:
        try:
            _log.info(f"the figure is in {write(plan, evaluation)}")
        except DocmtError as error:
            _log.info(f"no figure: {error}")
    if failures:
        count = f"{len(failures)} of {len(plan.unique_runs())} runs"
        raise DocmtError(f"{count} failed, as the table says; the same command tries them again")
    return 0
