"""docmt reproduce NAME --scale cpu --store STORE --output DIRECTORY

Train and evaluate all systems of a published table or figure, and write it. The same command skips finished runs and
resumes interrupted ones.

usage:
    NAME --store STORE --output DIRECTORY [options]
    NAME --store STORE --output DIRECTORY --dry-run
    --list

examples:
    docmt reproduce --list
    docmt reproduce zhang2018-table1 --store stores/mine --output experiments

common:
    list store output scale seeds dry_run
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from docmt import experiments
from docmt.cli.options import EveryCommand, Parser, is_recipe
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import check_field, check_number, convert_or_raise, field_range, option, quote
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.search_config import FOR_TRANSLATE
from docmt.evaluation import MetricConfig, read_suite
from docmt.experiments import list_experiments, read_experiment
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)

_SET_BY_PLAN = {"store", "run", "seed", "initialize_from", "initialize_reverse_from", "reverse"}


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """The options of the command, without those of the training runs."""

    name: str | None = option(None, positional=True, metavar="NAME")
    """experiment of --list, or path of an experiment file"""
    scale: Literal["cpu", "full"] = "cpu"
    """size of the recipes; cpu: for one small machine; full: as published"""
    store: Path | None = option(None, metavar="STORE")
    """prepared store with train, dev and test splits"""
    output: Path | None = option(None, metavar="DIRECTORY")
    """directory for runs, tables and figures; experiments can share runs there"""
    suite: Path | None = option(None, metavar="NAME")
    """contrastive test set for every run, a file or a name such as phenomena"""
    seeds: str = option("", metavar="1,2,...")
    """random seeds of the runs (default: those of the experiment)"""
    list: bool = False
    """list the experiments, and exit"""
    dry_run: bool = False
    """list the runs with their states, and exit"""
    metrics: MetricConfig = MetricConfig()
    """settings of the metrics"""
    search: SearchConfig = option(SearchConfig(), skip=FOR_TRANSLATE)
    """beam search on the test split"""
    context: ContextConfig = ContextConfig()
    """division of documents into instances"""


def make_reproduce_parser() -> Parser[ReproduceOptions]:
    """Return the parser of the command."""
    parser = Parser("reproduce", ReproduceOptions, __doc__)
    parser.add_settings(TrainConfig, "", "settings of all runs, which override their recipes", _SET_BY_PLAN)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Complete an experiment and print its table. Return 2 if any run failed."""
    remaining = list(arguments)
    # In this command, a first argument ending in .yaml is an experiment instead of a recipe.
    file = remaining.pop(0) if remaining and is_recipe(remaining[0]) else None
    option_parser = make_reproduce_parser()
    options = option_parser.parse(remaining)
    if options.list:
        titles = {name: experiment.title for name, experiment in list_experiments().items()}
        width = max(map(len, titles), default=0)
        print("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()))
        return 0
    if file is not None and options.name:
        raise DocmtError(f"{file} and {options.name} both name an experiment: name one of them")
    overrides = _read_overrides(option_parser, remaining)
    plan, evaluation = _make_plan(file or options.name, options, overrides)
    skipped = plan.group_skipped()
    if not plan.runs:
        raise DocmtError(f"no variant can be trained here: {' and '.join(skipped)}")
    for reason, variants in skipped.items():
        _log.info(f"left out: {'; '.join(variants)} ({reason})")
    if not options.dry_run:
        return _reproduce(plan, evaluation)
    for run in plan.unique_runs():
        print(printable(f"{experiments.determine_state(run, evaluation):<10} {run.title} ({run.config.run.name})"))
    return 0


def _read_overrides(option_parser: Parser[ReproduceOptions], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the settings of all runs that are set, by full name. Raises DocmtError for wrong values."""
    command_options = [setting.name for cls in (ReproduceOptions, EveryCommand) for setting in fields(cls)]
    values, locations = option_parser.read(arguments)
    overrides = dict[str, Any]()
    try:
        for name, value in values.items():
            if name.split(".")[0] not in command_options:
                setting, (group, dot, last) = option_parser.names[name], name.rpartition(".")
                overrides[name] = convert_or_raise(setting.kind, value, name)
                check_field(setting.owner, last, overrides[name], group + dot)
    except DocmtError as error:
        raise option_parser.locate(error, locations) from error
    return overrides


def _make_plan(
    name: str | None, options: ReproduceOptions, overrides: Mapping[str, Any]
) -> tuple[experiments.ExperimentPlan, experiments.EvaluationConfig]:
    if not name:
        raise DocmtError("NAME is missing; docmt reproduce --list shows the experiments")
    experiment = read_experiment(name)
    if options.store is None or options.output is None:
        raise DocmtError(f"--{'output' if options.store else 'store'} is missing; see docmt reproduce --help")
    suite = read_suite(options.suite) if options.suite else None
    evaluation = experiments.EvaluationConfig(options.search, options.metrics, suite, options.context)
    seeds = _parse_seeds(options.seeds)
    plan = experiments.make_plan(experiment, options.scale, options.store, options.output, seeds, overrides)
    from docmt.decoding.scheduler import check_context  # imported here because torch loads slowly

    if plan.runs:
        check_context(evaluation.search, evaluation.context, *(run.config.model for run in plan.runs))
    experiments.check_overrides(plan)
    if suite is not None:
        suite.check_languages(f"a model of {options.store}", plan.store.statistics.languages)
    return plan, evaluation


def _parse_seeds(text: str) -> list[int]:
    try:
        seeds = list(dict.fromkeys(map(int, text.split(",")))) if text else []
    except ValueError:
        raise DocmtError(f"--seeds is {quote(text)}: give whole numbers, such as 1,2,3") from None
    for seed in seeds:
        check_number("--seeds", seed, field_range(TrainConfig, "seed"))
    return seeds


def _reproduce(plan: experiments.ExperimentPlan, evaluation: experiments.EvaluationConfig) -> int:
    try:
        failures = experiments.reproduce(
            plan, evaluation, _log.info, lambda failures: experiments.write_report(plan, evaluation, failures)
        )
    except KeyboardInterrupt:
        _log.warning("to continue, run the same command again: it skips finished runs and resumes the interrupted one")
        raise
    print(printable(experiments.write_report(plan, evaluation, failures), allowed="\n"), end="")
    paths = [plan.output_path(evaluation.context, ending) for ending in (".md", ".json")]
    _log.info(f"the table is in {paths[0]} and {paths[1]}")
    try:
        _log.info(f"the figure is in {experiments.write_figure(plan, evaluation)}")
    except DocmtError as error:
        _log.info(f"no figure: {error}")
    if failures:
        count = f"{len(failures)} of {len(plan.unique_runs())} runs"
        raise DocmtError(f"{count} failed, see the table; run the same command to try them again")
    return 0
