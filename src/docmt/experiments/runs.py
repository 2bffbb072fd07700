"""The runs of an experiment: plan them, determine their states, train and evaluate them.

The directory runs/multihop-seed1-0a1b2c3d has the variant, the seed, and an identifier of the training in its name. It
serves all variants and experiments with the same seed and identifier, whatever their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from docmt.checkpoint.model_directory import find_model, load_model_config
from docmt.checkpoint.model_names import find_path
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.files import json_checksum, lock_directory, make_directory, read_json, stored_checksums, write_text
from docmt.core.grouping import group_pairs
from docmt.core.progress import progress
from docmt.core.settings import find_changed, flatten, is_selected, nest, read_yaml
from docmt.data import ParallelStore, PreparedStore
from docmt.data.instances import cut_dbleu_units
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.scheduler import sees_translations, select_effective_settings
from docmt.evaluation import MetricConfig, evaluate_documents, evaluate_items, group_by_document, group_by_unit
from docmt.evaluation.output_alignment import Ranges
from docmt.evaluation.suites import Suite
from docmt.experiments.experiment_files import Experiment, Variant, check_mapping
from docmt.model import ModelConfig
from docmt.model.products import precision_context
from docmt.model.systems import SYSTEMS
from docmt.training import TrainConfig, train
from docmt.training.distributed import plan_processes, stop_on_signals
from docmt.training.finetune import adopt_architecture, check_vocabulary
from docmt.training.objective import find_word_tokens
from docmt.training.run_directory import RunDirectory, read_recipe
from docmt.training.train_config import first_difference
from docmt.training.trained_weights import check_weight_patterns
from docmt.training.training_corpus import fit_model_config, select_direction

RUNS_FOLDER = "runs"
SCORES_FILE, SUITE_FILE = "test.json", "suite.json"
State = Literal["done", "trained", "resumable", "missing", "changed"]
_STEP_NAMES = {"trained": "evaluating", "resumable": "resuming", "missing": "training", "changed": "skipping"}
_START_SETTINGS = ("initialize_from", "initialize_reverse_from")
# Settings that do not change the model. Paths of starting models may change, and their identity counts instead.
_IRRELEVANT_SETTINGS = ("store", "run", "device", "log_every", "tensorboard", "checkpoints.keep", *_START_SETTINGS)
_LONGEST_TITLE = 80


class _SkippedVariantError(DocmtError):
    """A variant cannot be trained here. The others can."""


@dataclass(frozen=True)
class PlannedRun:
    """One training of an experiment."""

    variant: str
    axis: str
    """name of the axis, or empty"""
    point: str
    """point of the axis, or empty"""
    seed: int
    config: TrainConfig
    """complete, with the directory `config.run`"""

    @property
    def title(self) -> str:
        """Description for messages."""
        return f"{self.variant}{f', {self.axis} {self.point}' if self.axis else ''}, seed {self.seed}"


@dataclass(frozen=True)
class ExperimentPlan:
    """The runs of an experiment, each after the runs that initialise it.

    Cells of the table with the same training (settings, data and seed) share one `config.run`, also with other
    experiments of the same output directory.
    """

    experiment: Experiment
    scale: str
    output: Path
    store: PreparedStore
    overrides: Mapping[str, Any]
    """settings of all runs, by dotted name, that replace those of the recipes"""
    runs: tuple[PlannedRun, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """variants that cannot be trained here, with the reason"""

    def group_skipped(self) -> dict[str, list[str]]:
        """Return the reasons why variants are skipped, each with its variants."""
        return group_pairs((reason, variant) for variant, reason in self.skipped.items())

    def output_path(self, context: ContextConfig, suffix: str) -> Path:
        """Return the path of a table or figure. Its name has the options of `context` that are not defaults."""
        options = "".join(f"-{name}-{value}" for name, value in find_changed(context).items())
        return self.output / f"{self.experiment.name}-{self.scale}{options}{suffix}"

    def unique_runs(self) -> list[PlannedRun]:
        """Return every training once, in order."""
        return list({planned.config.run: planned for planned in reversed(self.runs)}.values())[::-1]


def make_plan(
    experiment: Experiment,
    scale: str,
    data: Path,
    output: Path,
    seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> ExperimentPlan:
    """Plan an experiment.

    `seeds` replaces the seeds of the file. `overrides` (by dotted name) replaces settings of all runs; the option of a
    system applies to the variants of that system. Raises DocmtError for stores that lack a split, and for invalid
    recipes and settings.
    """
    store = PreparedStore.open(data)
    store.split("test")  # fail now, not after days of training
    plan = ExperimentPlan(experiment, scale, output.resolve(), store, dict(overrides or {}))
    variants = experiment.order_variants(scale)
    recipes = {variant.name: _read_recipe(_recipe_path(plan, variant)) for variant in variants}
    folder = plan.output / RUNS_FOLDER
    directories = {_identifier(path): path for path in sorted(folder.glob("*-seed*"))}
    runs: list[PlannedRun] = []
    skipped: dict[str, str] = {}
    for seed, axis in product(seeds or experiment.seeds, experiment.axes):
        for point, settings in axis.points[scale].items():
            configs: dict[str, TrainConfig] = {}
            for variant in variants:
                values = {**recipes[variant.name], "seed": seed}
                try:
                    config, identity = _configure_run(plan, variant, values, settings, configs)
                except _SkippedVariantError as error:
                    skipped[variant.name] = str(error)
                    continue
                title = f"{variant.name} {axis.name} {point} {scale if '{scale}' in variant.recipe else ''}"
                title = re.sub(r"[^\w.]+", "-", title).strip("-.")[:_LONGEST_TITLE]
                new = folder / f"{title or 'run'}-seed{identity}"
                configs[variant.name] = replace(config, run=directories.setdefault(identity, new))
                runs.append(PlannedRun(variant.name, axis.name, point, seed, configs[variant.name]))
    return replace(plan, runs=tuple(runs), skipped=skipped)


def check_overrides(plan: ExperimentPlan) -> None:
    """Raise DocmtError for a setting of all runs (`overrides`) with which no run could start on this machine."""
    errors = [_find_override_error(plan, planned.config) for planned in plan.unique_runs()]
    if (first := next(iter(errors), None)) is not None and all(errors):
        raise first


def _find_override_error(plan: ExperimentPlan, config: TrainConfig) -> DocmtError | None:
    def is_set(*names: str) -> bool:
        return any(is_selected(override, names) for override in plan.overrides)

    try:
        if is_set("device", "devices"):
            plan_processes(config)
        if is_set("freeze", "optimizer.lr_factors"):
            check_weight_patterns(config)
        if is_set("objective.weighted_words"):
            find_word_tokens(plan.store.tokenizer, config.objective.weighted_words)
    except DocmtError as error:
        return error
    return None


def _recipe_path(plan: ExperimentPlan, variant: Variant) -> Path:
    return plan.experiment.path.parent / variant.recipe.replace("{scale}", plan.scale)


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the settings of a recipe by dotted name, without store and run."""
    values = check_mapping(read_yaml(path), f"the recipe {path}")
    return {name: value for name, value in flatten(values).items() if name not in ("store", "run")}


def _configure_run(
    plan: ExperimentPlan,
    variant: Variant,
    values: dict[str, Any],
    settings: Mapping[str, Any],
    planned: Mapping[str, TrainConfig],
) -> tuple[TrainConfig, str]:
    """Return the configuration of a run, and its seed and identifier.

    values: recipe and seed, by dotted name. settings: those of the axis point. planned: configurations of the
    same point and seed, by variant. Raises _SkippedVariantError for missing files and runs, and for a starting model
    of another vocabulary.
    """
    path = _recipe_path(plan, variant)
    location = f"{plan.experiment.path}, variant {variant.name} with {path.name}"
    for layer in (plan.experiment.settings, variant.settings, settings, plan.overrides):
        values |= flatten(layer)
    values = {"store": str(plan.store.directory), "run": "", **_drop_foreign_overrides(values, plan.overrides)}
    if missing := next((start for start in variant.starts.values() if start not in planned), None):
        raise _SkippedVariantError(f"it starts from {missing}, which is skipped")
    values |= {setting: str(planned[start].run) for setting, start in variant.starts.items()}
    config = TrainConfig.from_dict(nest(values, location), location)
    start = None if variant.starts or config.initialize_from is None else find_path(config.initialize_from)
    if missing_paths := [str(each) for each in (config.store, start) if each is not None and not each.exists()]:
        raise _SkippedVariantError(f"{' and '.join(missing_paths)} missing: see {path} for how to create them")
    store = plan.store if config.store == plan.store.directory else PreparedStore.open(config.store)
    if config.model.system_options.context_spec().drafts and store.split("train").drafts is None:
        raise _SkippedVariantError(f"drafts are missing in {store.directory}: run `docmt prepare` again with --drafts")
    _check_directions(variant, config, planned, location)
    identity = f"{config.seed}-{_identify_training(plan, config, store)}"
    if variant.start_from:
        config = replace(config, model=adopt_architecture(config.model, planned[variant.start_from].model))
    elif start is not None:
        started = _load_start(start, store)
        config = replace(config, model=adopt_architecture(config.model, started), initialize_from=start)
    return replace(config, model=fit_model_config(config.model, select_direction(store, config))), identity


def _identify_training(plan: ExperimentPlan, config: TrainConfig, store: PreparedStore) -> str:
    """Return eight hexadecimal digits that identify data, settings and starting models of a run.

    Defaults do not count, so that later versions may add options.
    """
    values, defaults = flatten(config.to_dict()), flatten(TrainConfig(store=Path(), run=Path()).to_dict())
    drafts = config.model.system_options.context_spec().drafts
    changed = {name: value for name, value in values.items() if value != defaults.get(name)}
    facts = {
        "settings": {name: value for name, value in changed.items() if not is_selected(name, _IRRELEVANT_SETTINGS)},
        "starts": [_identify_start(plan, getattr(config, setting)) for setting in _START_SETTINGS],
        "data": {
            name: {file: checksum for file, checksum in split.crc32.items() if drafts or "draft" not in file}
            for name, split in store.statistics.splits.items()
        },
        "vocabulary": store.statistics.vocabulary_size,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _identify_start(plan: ExperimentPlan, start: Path | None) -> str:
    """Return a string that identifies a starting model: a run of the output directory, or another model."""
    if start is None or start.parent == plan.output / RUNS_FOLDER:
        return "" if start is None else _identifier(start)
    with suppress(DocmtError):  # another model at the same path, or of the same name, makes another run
        path = find_model(find_path(start)) / CONFIG_FILE
        return f"{start} {stored_checksums(read_json(path), path)}"
    return str(start)


def _identifier(run: Path) -> str:
    """Return the seed and the identifier in the name of a run directory."""
    return run.name.rpartition("-seed")[2]


def _load_start(start: Path, store: PreparedStore) -> ModelConfig:
    """Return the architecture of a starting model. Raises _SkippedVariantError if it has another vocabulary."""
    started = load_model_config(start, encoders=True)
    try:
        check_vocabulary(start, started, store.tokenizer)
    except DocmtError as error:
        raise _SkippedVariantError(str(error)) from error
    return started


def _check_directions(variant: Variant, config: TrainConfig, planned: Mapping[str, TrainConfig], location: str) -> None:
    """Raise DocmtError for a start of the wrong direction."""
    for setting, start in variant.starts.items():
        wanted = config.reverse if setting == "initialize_from" else not config.reverse
        if planned[start].reverse != wanted:
            raise DocmtError(
                f"{location}: {setting.replace('initialize', 'start')} names {start}, which has reverse "
                f"{str(not wanted).lower()}. Name a variant with reverse {str(wanted).lower()}."
            )


def _drop_foreign_overrides(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without overrides for other systems than the variant's."""
    system = settings.get("model.system", ModelConfig.system)
    foreign = tuple(f"model.{name}." for name in SYSTEMS if name != system)
    return {name: value for name, value in settings.items() if not (name in overrides and name.startswith(foreign))}


@dataclass(frozen=True)
class EvaluationConfig:
    """Settings of the evaluation of runs. Scores of other settings are computed again."""

    search: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricConfig = field(default_factory=MetricConfig)
    suite: Suite | None = None
    """contrastive test set, scored by the runs in the direction of the store"""
    context: ContextConfig = ContextConfig()

    def __post_init__(self) -> None:
        if self.suite is not None and not all(item.candidates for item in self.suite.items):
            raise DocmtError(f"{self.suite.name} is not contrastive. Use a test set with candidates.")

    @property
    def score_settings(self) -> dict[str, Any]:
        """Settings that translation scores depend on, without defaults."""
        return {name: _find_changed(getattr(self, name)) for name in ("search", "context", "metrics")}

    @cached_property
    def suite_settings(self) -> dict[str, Any] | None:
        """Settings that contrastive results depend on, or None without a test set."""
        if self.suite is None:
            return None
        items = json_checksum(list(map(asdict, self.suite.items)))
        scoring = {name: getattr(self.search, name) for name in ("temperature", "implementation")}
        return {"name": self.suite.name, "crc32": items, **scoring, "context": _find_changed(self.context)}


def _find_changed(settings: Any) -> dict[str, Any]:
    """Return the settings that an object without any does not have: it may fill in what its fields leave empty."""
    default = type(settings)()
    return {name: value for name, value in asdict(settings).items() if value != getattr(default, name)}


def determine_state(planned: PlannedRun, evaluation: EvaluationConfig) -> State:
    """Return the state of a run: done (evaluated), trained, resumable, missing, or changed (trained differently)."""
    directory = RunDirectory(planned.config.run)
    if not directory.model.exists():
        return "resumable" if directory.recipe.exists() else "missing"
    if _explain_change(planned) is not None:
        return "changed"
    needs_suite = evaluation.suite is not None and not planned.config.reverse
    done = load_scores(planned.config.run, evaluation) is not None
    done &= not needs_suite or load_suite_result(planned.config.run, evaluation) is not None
    return "done" if done else "trained"


def _explain_change(planned: PlannedRun) -> str | None:
    """Return why the stored model is not the planned one, or None if it is.

    It may have been trained further with other settings, or a later version may have other defaults. Settings newer
    than the run do not count.
    """
    directory = RunDirectory(planned.config.run)
    try:
        stored = TrainConfig.from_dict(read_recipe(directory.recipe, directory.path), str(directory.recipe)).to_dict()
    except DocmtError as error:
        return f"the training settings of {directory.path} cannot be read ({error})"
    difference = first_difference(stored, planned.config.to_dict(), _IRRELEVANT_SETTINGS)
    if difference is None:
        return None
    return f"{directory.path} was trained with other settings ({difference}). Move it away to train again."


def reproduce(
    plan: ExperimentPlan,
    evaluation: EvaluationConfig,
    log: Callable[[str], object] = lambda line: None,
    on_run_end: Callable[[dict[Path, str]], object] = lambda failures: None,
) -> dict[Path, str]:
    """Train and evaluate the runs that are not done. Return the failed run directories with the errors.

    `log` receives a line at each step. `on_run_end` receives the failures so far after each run. A failed run does not
    stop the others; the next call tries it again, from its last checkpoint if there is one. Raises KeyboardInterrupt
    if Ctrl-C or SIGTERM ended a training, which can then be resumed exactly, and DocmtError if another process works
    in the output directory.
    """
    if "LOCAL_RANK" in os.environ:
        raise DocmtError("docmt reproduce starts its own processes. Set --devices instead of using torchrun.")
    make_directory(plan.output)
    failures: dict[Path, str] = {}
    trainings = plan.unique_runs()
    with lock_directory(plan.output, f"the experiments in {plan.output} are being run"):
        for number, planned in enumerate(trainings, 1):
            state = determine_state(planned, evaluation)
            if state == "done":
                continue
            progress_label = f"[{number}/{len(trainings)}]"
            log(f"{progress_label} {_STEP_NAMES[state]} {planned.title} ({planned.config.run.name})")
            try:
                _complete_run(planned, state, evaluation, failures)
            except (DocmtError, MemoryError, torch.OutOfMemoryError) as error:
                failure = " ".join(str(error).split()) or "out of memory"
                failures[planned.config.run] = failure
                log(f"{progress_label} failed: {failure}")
            on_run_end(failures)
    return failures


def _complete_run(
    planned: PlannedRun, state: State, evaluation: EvaluationConfig, failures: Mapping[Path, str]
) -> None:
    """Train a run as far as necessary, and evaluate it. Raises DocmtError for failures."""
    config = planned.config
    for start in (config.initialize_from, config.initialize_reverse_from):
        if start is not None and start in failures:
            raise DocmtError(f"the run it starts from, {start.name}, failed")
    if state == "changed":
        raise DocmtError(_explain_change(planned) or "")
    if state != "trained":
        resume = state == "resumable"
        interrupted = train(config, resume).interrupted if config.devices == 1 else _train_on_devices(config, resume)
        if interrupted:
            raise KeyboardInterrupt
    evaluate_run(config, PreparedStore.open(config.store), evaluation)


def _train_on_devices(config: TrainConfig, resume: bool) -> bool:
    """Run `docmt train`, which starts the processes of several devices. Return whether it was interrupted.

    Raises DocmtError if it failed.
    """
    with tempfile.TemporaryDirectory() as folder, stop_on_signals() as stop_request:
        recipe = Path(folder) / f"{config.run.name}.yaml"
        write_text(recipe, yaml.safe_dump(config.to_dict(), sort_keys=False))
        arguments = [str(recipe)]
        if resume:
            arguments = ["--resume", str(config.run), "--store", str(config.store), "--device", config.device]
        # A new session, so that Ctrl-C reaches the process only through terminate() below.
        command = [sys.executable, "-m", "docmt", "train", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        while (status := process.poll()) is None:
            time.sleep(0.2)
            if stop_request.is_set():
                process.terminate()
                process.wait()
    if status not in (0, INTERRUPTED):
        raise DocmtError(f"docmt train exited with status {status}. See its message on standard error.")
    return status == INTERRUPTED


def load_scores(directory: Path, evaluation: EvaluationConfig) -> dict[str, Any] | None:
    """Return the stored scores of a run, or None if they are missing, damaged or of other settings."""
    return _load_result(directory / SCORES_FILE, evaluation.score_settings)


def load_suite_result(directory: Path, evaluation: EvaluationConfig) -> dict[str, Any] | None:
    """Return the stored `ContrastiveResult.to_json` of a run; None if it is missing, damaged or of another test set."""
    return _load_result(directory / SUITE_FILE, evaluation.suite_settings)


def _load_result(path: Path, settings: Any) -> dict[str, Any] | None:
    with suppress(DocmtError):
        stored = read_json(path)
        return stored.get("result") if stored.get("config") == settings else None
    return None


def _save_result(path: Path, settings: Any, result: Any) -> None:
    write_text(path, json.dumps({"config": settings, "result": result}, indent=2) + "\n")


def evaluate_run(config: TrainConfig, store: PreparedStore, evaluation: EvaluationConfig) -> None:
    """Score a run on the test split and on the contrastive test set, unless stored results exist."""
    device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
    system = config.model.system_options
    sequential = evaluation.search.sequential and sees_translations(evaluation.context, system)
    search = replace(evaluation.search, sequential=sequential)
    context = select_effective_settings(evaluation.context, system)
    translator = Translator(config.run, search=search, context=context, device=device, precision=config.compute_dtype)
    if load_scores(config.run, evaluation) is None:
        test = select_direction(store, config).split("test")
        scores = _score_test(translator, config, test, evaluation.metrics)
        _save_result(config.run / SCORES_FILE, evaluation.score_settings, scores)
    if evaluation.suite is not None and not config.reverse and load_suite_result(config.run, evaluation) is None:
        result = evaluate_items(translator, evaluation.suite.items).to_json()
        _save_result(config.run / SUITE_FILE, evaluation.suite_settings, result)


def _score_test(
    translator: Translator, config: TrainConfig, test: ParallelStore, metrics: MetricConfig
) -> dict[str, Any]:
    """Translate the test split from token ids, and return the scores of `Evaluation.to_json`.

    With unit instance, the instances of the split, packed as in training, are translated separately, like the
    published code.
    """
    tokenizer, model = translator.tokenizer, translator.model
    if config.reverse and metrics.language:  # the language of the translations
        metrics = replace(metrics, language=translator.languages[1] or metrics.language)
    sources = test.documents("source")
    references = [tokenizer.decode_batch(document, "target") for document in test.documents("target")]
    instances: Ranges = [[(0, len(document))] for document in sources]
    if metrics.unit == "instance":
        instances = cut_dbleu_units(model.config, test.source.lengths, test.target.lengths, test.document_offsets)
    units = group_by_unit(sources, instances)
    drafts, specials = translator.draft_documents(units), tokenizer.specials
    search, context, count = translator.search, translator.context, len(test.source.lengths)
    with precision_context(model, config.compute_dtype), progress("translating (sentences)", count) as bar:
        translated = translate_documents(
            model, units, specials, search, context=context, on_sentences=bar.advance, drafts=drafts
        )
    best = [ranks[0] for ranks in translated]
    hypotheses = group_by_document([tokenizer.decode_batch(unit.sentences, "target") for unit in best], instances)
    miscounted = sum(len(unit.miscounted) for unit in best)
    return evaluate_documents(hypotheses, references, metrics, instances, miscounted=miscounted).to_json()
