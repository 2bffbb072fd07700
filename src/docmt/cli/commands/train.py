"""docmt prepare, train and reproduce: from documents to a store, to a model, and to the table of a paper."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from docmt import data, experiments, training
from docmt.cli.model_arguments import resolve_model_names
from docmt.cli.options import EveryCommand, Parser, is_recipe
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.core.plain_text import align_columns
from docmt.core.settings import check_field, check_number, convert_or_raise, field_range, option, quote
from docmt.data import PrepareConfig
from docmt.data.preparation import LEARNED_KINDS
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.search_config import FOR_TRANSLATE
from docmt.evaluation import MetricConfig, read_suite
from docmt.experiments import list_experiments, read_experiment
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)

_SET_BY_PLAN = {"store", "run", "seed", "initialize_from", "initialize_reverse_from", "reverse"}
"""Settings of a run that docmt reproduce does not take."""


class PrepareOptions(PrepareConfig):
    """docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ...

    Learn a tokenizer from parallel documents, and write them as a store of token ids for docmt train. JSONL has one
    object a line, {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or {"document": "a", "source":
    "One.", "target": "Eins."} for each sentence.

    usage:
        --store DIRECTORY --train SOURCE TARGET ... [options]
        RECIPE.yaml [options]

    examples:
        docmt prepare --store stores/mine --train train.en train.de --dev dev.en dev.de --source-language en
            --target-language de

    common:
        store train dev test source_language target_language tokenizer source_tokenizer vocabulary_size overwrite
    """


def run_prepare(options: PrepareOptions) -> int:
    """Write a prepared store and print its statistics."""
    names = ["source_tokenizer", *(["tokenizer"] if options.tokenizer not in LEARNED_KINDS else [])]
    options = resolve_model_names(options, *names)
    store = data.prepare(options)
    print(printable(data.format_statistics(store.statistics), allowed="\n"))
    tokenizers = (options.source_tokenizer, options.ready_tokenizer)
    pretrained = next((path for path in tokenizers if _is_model(path)), None)
    model = "sentence --preset base"
    if options.drafts or pretrained is not None:
        start = "MODEL" if pretrained is None else shlex.quote(str(pretrained))
        model = f"{'multihop' if options.drafts else 'group'} --initialize-from {start}"
    _log.info(f"try: docmt train --store {shlex.quote(str(store.directory))} --run RUN --system {model}")
    if options.drafts and pretrained is None:
        _log.info("MODEL: the sentence model that wrote the drafts, which needs the tokenizer of this store")
    return 0


def _is_model(path: Path | None) -> bool:
    """Return whether the directory of a tokenizer has a model that training can start from."""
    return path is not None and any((folder / "model.safetensors").is_file() for folder in (path, path / "model"))


@dataclass(frozen=True)
class TrainOptions:
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
        store run resume model.system model.preset batches.batch_tokens optimizer.learning_rate stop.max_steps
            stop.patience initialize_from
    """

    resume: Path | None = option(None, metavar="RUN")
    """run directory to resume, with its recipe; only stop limits and a few settings may change"""


def make_train_parser() -> Parser[TrainConfig]:
    """Return the parser of docmt train: the settings of a run, and what is none."""
    parser = Parser("train", TrainConfig, TrainOptions.__doc__, title="the run")
    parser.add_settings(TrainOptions, "", "options")
    return parser


def run_train(arguments: Sequence[str]) -> int:
    """Train a model in a run directory, or resume an interrupted run."""
    # Before PyTorch is imported: it adds its own calls to the one sentence on a lost process.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    parser, recipes = make_train_parser(), []
    explicit, _ = parser.read(arguments)
    if (run := explicit.get("resume")) is not None:
        recipes = [_find_stored_recipe(Path(run), explicit.get("run"))]
        arguments = [*arguments, *([] if "run" in explicit else [f"--run={run}"])]
    config = parser.parse(arguments, recipes)
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


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """docmt reproduce NAME --scale cpu --store STORE --output DIRECTORY

    Train and evaluate all systems of a published table or figure, and write it. The same command skips finished runs
    and resumes interrupted ones.

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
    """Return the parser of docmt reproduce: its options, and settings of its runs."""
    parser = Parser("reproduce", ReproduceOptions, ReproduceOptions.__doc__)
    parser.add_settings(TrainConfig, "", "settings of all runs, which override their recipes", _SET_BY_PLAN)
    return parser


def run_reproduce(arguments: Sequence[str]) -> int:
    """Complete an experiment and print its table. Return 2 if any run failed."""
    remaining = list(arguments)
    # In this command, a first argument ending in .yaml is an experiment instead of a recipe.
    file = remaining.pop(0) if remaining and is_recipe(remaining[0]) else None
    parser = make_reproduce_parser()
    options = parser.parse(remaining)
    if options.list:
        rows = [[name, experiment.title] for name, experiment in list_experiments().items()]
        print("\n".join(map(str.rstrip, align_columns(rows, left_columns=2))))
        return 0
    if file is not None and options.name:
        raise DocmtError(f"{file} and {options.name} both name an experiment: name one of them")
    overrides = _read_overrides(parser, remaining)
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


def _read_overrides(parser: Parser[ReproduceOptions], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the settings of all runs that are set, by full name. Raises DocmtError for wrong values."""
    command_options = [setting.name for cls in (ReproduceOptions, EveryCommand) for setting in fields(cls)]
    values, locations = parser.read(arguments)
    overrides = dict[str, Any]()
    try:
        for name, value in values.items():
            if name.split(".")[0] not in command_options:
                setting, (group, dot, last) = parser.names[name], name.rpartition(".")
                overrides[name] = convert_or_raise(setting.kind, value, name)
                check_field(setting.owner, last, overrides[name], group + dot)
    except DocmtError as error:
        raise parser.locate(error, locations) from error
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
