"""The runs of an experiment: plan them, determine their states, train and evaluate them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from docmt.checkpoint.model_directory import load_model_config
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.files import json_checksum, lock_directory, read_json, write_error, write_text
from docmt.core.progress import progress
from docmt.core.settings import flatten, is_selected, nest, read_yaml
from docmt.data import ParallelStore, PreparedStore
from docmt.data.instances import cut_dbleu_units
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.scheduler import sees_translations, select_effective_settings
from docmt.evaluation import (
    ContrastiveResult,
    MetricConfig,
    compare_suite_contexts,
    evaluate_documents,
    evaluate_items,
    group_by_document,
    group_by_unit,
)
from docmt.evaluation.contrastive import summarize_answers
from docmt.evaluation.metrics import Ranges
from docmt.evaluation.suites import Suite
from docmt.experiments.experiment_files import Experiment, Variant
from docmt.experiments.run_names import IRRELEVANT_SETTINGS, START_SETTINGS, RunNames, locate_start
from docmt.model import ModelConfig
from docmt.model.products import precision_context
from docmt.model.systems import SYSTEMS
from docmt.training import TrainConfig, train
from docmt.training.distributed import plan_processes, stop_on_signals
from docmt.training.finetune import adopt_architecture, check_vocabulary, check_weight_patterns
from docmt.training.objective import find_word_tokens
from docmt.training.run_directory import RunDirectory, read_recipe
from docmt.training.train_config import first_difference
from docmt.training.training_corpus import fit_model_config, select_direction

SCORES_FILE, SUITE_FILE = "test.json", "suite.json"
TRANSLATIONS_FILE, CONTEXTS_FILE = "test-translations.json", "suite-contexts.json"
State = Literal["done", "trained", "resumable", "missing", "changed"]
_STEP_NAMES = {"trained": "evaluating", "resumable": "resuming", "missing": "training", "changed": "skipping"}


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
class Plan:
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
        groups: dict[str, list[str]] = {}
        for variant, reason in self.skipped.items():
            groups.setdefault(reason, []).append(variant)
        return groups

    def output_path(self, context: ContextConfig, suffix: str) -> Path:
        """Return the path of a table or figure. Its name has the options of `context` that are not defaults."""
        options = "".join(f"-{name}-{value}" for name, value in context.changes().items())
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
) -> Plan:
    """Plan an experiment.

    `seeds` replaces the seeds of the file. `overrides` (by dotted name) replaces settings of all runs; the option of a
    system applies to the variants of that system. Raises DocmtError for stores that lack a split, and for invalid
    recipes and settings.
    """
    store = PreparedStore.open(data)
    store.split("test")  # fail now, not after days of training
    plan = Plan(experiment, scale, output.resolve(), store, dict(overrides or {}))
    names = RunNames(plan.output)
    variants = experiment.order_variants(scale)
    recipes = {variant.name: _read_recipe(_recipe_path(plan, variant)) for variant in variants}
    runs: list[PlannedRun] = []
    skipped: dict[str, str] = {}
    for seed, axis in product(seeds or experiment.seeds, experiment.axes):
        for point, settings in axis.points[scale].items():
            configs: dict[str, TrainConfig] = {}
            for variant in variants:
                title = f"{variant.name} {axis.name} {point} {scale if '{scale}' in variant.recipe else ''}"
                find_run = partial(names.find, recipe=_recipe_path(plan, variant).stem, title=title)
                try:
                    values = {**recipes[variant.name], "seed": seed}
                    configs[variant.name] = _configure_run(plan, variant, values, settings, configs, find_run)
                    runs.append(PlannedRun(variant.name, axis.name, point, seed, configs[variant.name]))
                except _SkippedVariantError as error:
                    skipped[variant.name] = str(error)
    return replace(plan, runs=tuple(runs), skipped=skipped)


def check_overrides(plan: Plan) -> None:
    """Raise DocmtError for a setting of all runs (`Plan.overrides`) with which no run could start on this machine."""
    errors = [_find_override_error(plan, planned.config) for planned in plan.unique_runs()]
    if (first := next(iter(errors), None)) is not None and all(errors):
        raise first


def _find_override_error(plan: Plan, config: TrainConfig) -> DocmtError | None:
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


def _recipe_path(plan: Plan, variant: Variant) -> Path:
    return plan.experiment.path.parent / variant.recipe.replace("{scale}", plan.scale)


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the settings of a recipe by dotted name, without store and run."""
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise DocmtError(f"the recipe {path} is not a mapping. Write `option: value` lines.")
    return {name: value for name, value in flatten(values).items() if name not in ("store", "run")}


def _configure_run(
    plan: Plan,
    variant: Variant,
    values: dict[str, Any],
    settings: Mapping[str, Any],
    planned: Mapping[str, TrainConfig],
    find_run: Callable[[TrainConfig, Mapping[str, Any], PreparedStore], Path],
) -> TrainConfig:
    """Return the configuration of a run.

    values: recipe and seed, by dotted name. settings: those of the axis point. planned: configurations of the
    same point and seed, by variant. find_run: see `RunNames.find`. Raises _SkippedVariantError for missing files and
    runs, and for a starting model of another vocabulary.
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
    start = None if variant.starts or config.initialize_from is None else locate_start(config.initialize_from)
    paths = [config.store, *([start] if start else [])]
    if missing_paths := [str(each) for each in paths if not each.exists()]:
        raise _SkippedVariantError(f"{' and '.join(missing_paths)} missing: see {path} for how to create them")
    store = plan.store if config.store == plan.store.directory else PreparedStore.open(config.store)
    if config.model.system_options.context_spec().drafts and store.split("train").drafts is None:
        raise _SkippedVariantError(f"drafts are missing in {store.directory}: run `docmt prepare` again with --drafts")
    _check_directions(variant, config, planned, location)
    run = find_run(config, values, store)
    if variant.start_from:
        config = replace(config, model=adopt_architecture(config.model, planned[variant.start_from].model))
    elif start is not None:
        started = _load_start(start, store)
        config = replace(config, model=adopt_architecture(config.model, started), initialize_from=start)
    model = fit_model_config(config.model, select_direction(store, config))
    return replace(config, model=model, run=run)


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
    comparison: bool = False
    """keep translations for paired tests, and score contrastive items with other contexts, too"""

    def __post_init__(self) -> None:
        if self.suite is not None and not all(item.candidates for item in self.suite.items):
            raise DocmtError(f"{self.suite.name} is not contrastive. Use a test set with candidates.")

    @property
    def score_settings(self) -> dict[str, Any]:
        """Settings that translation scores depend on, without defaults."""
        return {name: _changed_settings(getattr(self, name)) for name in ("search", "context", "metrics")}

    @property
    def translation_settings(self) -> dict[str, Any]:
        """Settings that translations depend on, without defaults."""
        return {name: settings for name, settings in self.score_settings.items() if name != "metrics"}

    @cached_property
    def suite_settings(self) -> dict[str, Any] | None:
        """Settings that contrastive results depend on, or None without a test set."""
        if self.suite is None:
            return None
        items = json_checksum(list(map(asdict, self.suite.items)))
        scoring = {name: getattr(self.search, name) for name in ("temperature", "implementation")}
        return {"name": self.suite.name, "crc32": items, **scoring, "context": _changed_settings(self.context)}


def _changed_settings(settings: Any) -> dict[str, Any]:
    """Return the settings without their defaults."""
    defaults = asdict(type(settings)())
    return {name: value for name, value in asdict(settings).items() if value != defaults[name]}


def determine_state(planned: PlannedRun, evaluation: EvaluationConfig) -> State:
    """Return the state of a run: done (evaluated), trained, resumable, missing, or changed (trained differently)."""
    directory = RunDirectory(planned.config.run)
    if not directory.model.exists():
        return "resumable" if directory.recipe.exists() else "missing"
    if _explain_change(planned) is not None:
        return "changed"
    needs_suite = evaluation.suite is not None and not planned.config.reverse
    done = load_scores(planned.config.run, evaluation) is not None
    done &= not needs_suite or load_contrastive(planned.config.run, evaluation) is not None
    if evaluation.comparison:
        done &= load_translations(planned.config.run, evaluation) is not None
        done &= not needs_suite or load_contexts(planned.config.run, evaluation) is not None
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
    # The name of the directory tells the starting models, whose paths may change.
    ignored = (*IRRELEVANT_SETTINGS, *START_SETTINGS)
    difference = first_difference(stored, planned.config.to_dict(), ignored)
    if difference is None:
        return None
    return f"{directory.path} was trained with other settings ({difference}). Move it away to train again."


def reproduce(
    plan: Plan,
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
    try:
        plan.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(plan.output, error) from error
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
        process = subprocess.Popen(
            [sys.executable, "-m", "docmt", "train", *arguments], stdout=subprocess.DEVNULL, start_new_session=True
        )
        while (status := process.poll()) is None:
            time.sleep(0.2)
            if stop_request.requested:
                process.terminate()
                process.wait()
    if status not in (0, INTERRUPTED):
        raise DocmtError(f"docmt train exited with status {status}. See its message on standard error.")
    return status == INTERRUPTED


def load_scores(directory: Path, evaluation: EvaluationConfig) -> dict[str, Any] | None:
    """Return the stored scores of a run, or None if they are missing, damaged or of other settings."""
    return _load_result(directory / SCORES_FILE, evaluation.score_settings, "scores")


def load_contrastive(directory: Path, evaluation: EvaluationConfig) -> ContrastiveResult | None:
    """Return the stored contrastive result of a run, or None if it is missing, damaged or of another test set."""
    with suppress(DocmtError, KeyError, TypeError, IndexError):
        stored = read_json(directory / SUITE_FILE)
        if evaluation.suite is not None and stored["suite"] == evaluation.suite_settings:
            return summarize_answers(evaluation.suite.items, stored["result"]["answers"])
    return None


def load_translations(directory: Path, evaluation: EvaluationConfig) -> dict[str, Any] | None:
    """Return the stored translations of the test split, or None if they are missing, damaged or of another search.

    documents: their sentences. instances: sentence ranges by document. miscounted: instances with another number of
    sentences than their source.
    """
    return _load_result(directory / TRANSLATIONS_FILE, evaluation.translation_settings, "test")


def load_contexts(directory: Path, evaluation: EvaluationConfig) -> dict[str, Any] | None:
    """Return the stored results of the test set in other contexts, or None if they are missing or of another set."""
    return _load_result(directory / CONTEXTS_FILE, evaluation.suite_settings, "result")


def _load_result(path: Path, settings: Any, name: str) -> Any:
    with suppress(DocmtError):
        stored = read_json(path)
        return stored.get(name) if stored.get("config") == settings else None
    return None


def _save_result(path: Path, settings: Any, name: str, result: Any) -> None:
    write_text(path, json.dumps({"config": settings, name: result}, indent=2, ensure_ascii=False) + "\n")


def effective_settings(config: TrainConfig, evaluation: EvaluationConfig) -> tuple[SearchConfig, ContextConfig]:
    """Return the settings of the evaluation that have an effect with the system of a run."""
    system = config.model.system_options
    sequential = evaluation.search.sequential and sees_translations(evaluation.context, system)
    return replace(evaluation.search, sequential=sequential), select_effective_settings(evaluation.context, system)


def evaluate_run(config: TrainConfig, store: PreparedStore, evaluation: EvaluationConfig) -> None:
    """Score a run on the test split and on the contrastive test set, unless stored results exist."""
    device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
    search, context = effective_settings(config, evaluation)
    translator = Translator(config.run, search=search, context=context, device=device, precision=config.compute_dtype)
    missing = evaluation.comparison and load_translations(config.run, evaluation) is None
    if missing or load_scores(config.run, evaluation) is None:
        test = select_direction(store, config).split("test")
        scores, translations = _score_test(translator, config, test, evaluation.metrics)
        _save_result(config.run / TRANSLATIONS_FILE, evaluation.translation_settings, "test", translations)
        _save_result(config.run / SCORES_FILE, evaluation.score_settings, "scores", scores)
    if evaluation.suite is None or config.reverse:
        return
    if load_contrastive(config.run, evaluation) is None:
        result = evaluate_items(translator, evaluation.suite.items)
        written = {"suite": evaluation.suite_settings, "result": result.to_json()}
        write_text(config.run / SUITE_FILE, json.dumps(written, indent=2) + "\n")
    if evaluation.comparison and load_contexts(config.run, evaluation) is None:
        contexts = compare_suite_contexts(translator, evaluation.suite.items).to_json()
        _save_result(config.run / CONTEXTS_FILE, evaluation.suite_settings, "result", contexts)


def _score_test(
    translator: Translator, config: TrainConfig, test: ParallelStore, metrics: MetricConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate the test split from token ids.

    Return the scores of `Evaluation.to_json`, and the translations as `load_translations` does.

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
    with (
        precision_context(model, config.compute_dtype),
        progress("translating (sentences)", len(test.source.lengths)) as bar,
    ):
        search, context = translator.search, translator.context
        translated = translate_documents(
            model, units, specials, search, context=context, on_sentences=bar.advance, drafts=drafts
        )
    best = [ranks[0] for ranks in translated]
    hypotheses = group_by_document([tokenizer.decode_batch(unit.sentences, "target") for unit in best], instances)
    miscounted = sum(len(unit.miscounted) for unit in best)
    scores = evaluate_documents(hypotheses, references, metrics, instances, miscounted=miscounted).to_json()
    documents = [list(document) for document in hypotheses]
    return scores, {"documents": documents, "instances": instances, "miscounted": miscounted}
