"""The runs of an experiment: their configurations and places, how far each has come, training and evaluating them."""

from __future__ import annotations

import hashlib
import json
import os
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
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.files import cannot_write, checksum_of, lock_directory, read_json, recorded, write_text
from docmt.core.progress import progress
from docmt.core.settings import flat, is_among, nested, read_yaml
from docmt.data import ParallelStore, PreparedStore
from docmt.decoding import ContextConfig, SearchConfig, Translator, translate_documents
from docmt.decoding.models import computing_in
from docmt.decoding.rules import takes_rounds
from docmt.decoding.scheduler import packed_units, supported
from docmt.evaluation import ContrastiveResult, MetricConfig, evaluate_documents, evaluate_items, in_documents, in_units
from docmt.evaluation.contrastive import result_of
from docmt.evaluation.metrics import Ranges
from docmt.evaluation.suites import Suite
from docmt.experiments.grid import Experiment, Variant
from docmt.model import ModelConfig
from docmt.model.systems import SYSTEMS
from docmt.training import TrainConfig, train
from docmt.training.distributed import stop_on_signals
from docmt.training.finetune import with_architecture_of
from docmt.training.run_directory import RunDirectory, read_recipe
from docmt.training.train_config import first_difference
from docmt.training.training_data import fit_model_config, in_direction

RUNS_FOLDER = "runs"
SCORES_FILE, SUITE_FILE = "test.json", "suite.json"
STARTS = ("initialize_from", "initialize_reverse_from")
# Settings that make no other model of a run. Of the run that it starts from the name counts, not the place.
NO_DIFFERENCE = ("store", "run", "device", "log_every", "tensorboard", "checkpoints.keep")
State = Literal["done", "trained", "resumable", "missing", "changed"]
_STEPS = {"trained": "evaluating", "resumable": "going on with", "missing": "training", "changed": "not using"}


class _LeftOutError(DocmtError):
    """A variant that cannot be trained here; the others can."""


@dataclass(frozen=True)
class PlannedRun:
    """One training of an experiment."""

    variant: str
    axis: str
    """what is varied, or nothing"""
    point: str
    """where on the axis, or nothing"""
    seed: int
    config: TrainConfig
    """complete; `config.run` is the place"""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.variant}{f', {self.axis} {self.point}' if self.axis else ''}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment in an order in which each comes after those that it starts from.

    Cells of the table that are the same training (the same settings, data and seed) have the same `config.run`, also
    those of other experiments with the same output directory.
    """

    experiment: Experiment
    scale: str
    output: Path
    store: PreparedStore
    overrides: Mapping[str, Any]
    """settings of all runs, by dotted name, that were asked for instead of those of the recipes"""
    runs: tuple[PlannedRun, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """variants that cannot be trained here, and why"""

    def place(self, context: ContextConfig, ending: str) -> Path:
        """Return where a table or a figure goes: of other instances or windows (`ContextConfig`) another one."""
        options = "".join(f"-{name}-{value}" for name, value in context.changes().items())
        return self.output / f"{self.experiment.name}-{self.scale}{options}{ending}"

    def trainings(self) -> list[PlannedRun]:
        """Return every training once."""
        return list({run.config.run: run for run in reversed(self.runs)}.values())[::-1]


def make_plan(
    experiment: Experiment,
    scale: str,
    data: Path,
    output: Path,
    seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan an experiment; `seeds` replaces those of its file, `overrides` (by dotted name) any setting of any run.

    An override of a system's option holds for the variants of that system. Raises DocmtError for stores that lack a
    split, and for recipes and settings that no training can have.
    """
    store = PreparedStore.open(data)
    store.split("test")  # now, not after days of training
    plan = Plan(experiment, scale, output.resolve(), store, dict(overrides or {}))
    variants = experiment.in_order(scale)
    recipes = {variant.name: _read_recipe(_recipe_of(plan, variant)) for variant in variants}
    runs: list[PlannedRun] = []
    left_out: dict[str, str] = {}
    for seed, axis in product(seeds or experiment.seeds, experiment.axes):
        for point, settings in axis.points[scale].items():
            configs: dict[str, TrainConfig] = {}
            for variant in variants:
                try:
                    values = {**recipes[variant.name], "seed": seed}
                    configs[variant.name] = _config(plan, variant, values, settings, configs)
                    runs.append(PlannedRun(variant.name, axis.name, point, seed, configs[variant.name]))
                except _LeftOutError as error:
                    left_out[variant.name] = str(error)
    return replace(plan, runs=tuple(runs), left_out=left_out)


def _recipe_of(plan: Plan, variant: Variant) -> Path:
    return plan.experiment.path.parent / variant.recipe.replace("{scale}", plan.scale)


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the settings of a recipe by dotted name, as text, without its store and its run."""
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise DocmtError(f"the recipe {path} does not consist of `option: value` lines: write them")
    return {name: value for name, value in flat(values).items() if name not in ("store", "data", "run")}


def _config(
    plan: Plan,
    variant: Variant,
    values: dict[str, Any],
    settings: Mapping[str, Any],
    others: Mapping[str, TrainConfig],
) -> TrainConfig:
    """Return the configuration of a run.

    values: of its recipe and seed, by dotted name; settings: of the point of the axis; others: the runs of the same
    point and seed, which it may start from. Raises _LeftOutError for what is missing here.
    """
    path = _recipe_of(plan, variant)
    where = f"{plan.experiment.path}, variant {variant.name} with {path.name}"
    for layer in (plan.experiment.settings, variant.settings, settings, plan.overrides):
        values |= flat(layer)
    values = {"store": str(plan.store.directory), "run": "", **_of_own_system(values, plan.overrides)}
    if missing := next((start for start in variant.starts.values() if start not in others), None):
        raise _LeftOutError(f"it starts from {missing}, which is left out")
    values |= {setting: str(others[start].run) for setting, start in variant.starts.items()}
    config = TrainConfig.from_dict(nested(values, where), where)
    outside = [config.store, *([config.initialize_from] if not variant.starts and config.initialize_from else [])]
    if missing_paths := [str(each) for each in outside if not each.exists()]:
        raise _LeftOutError(f"{' and '.join(missing_paths)} missing here: {path} says how to make them")
    store = plan.store if config.store == plan.store.directory else PreparedStore.open(config.store)
    if config.model.chosen.context_spec().drafts and store.split("train").drafts is None:
        raise _LeftOutError(
            f"the {config.model.system} system reads drafts, and {store.directory} has none: run `docmt prepare` again "
            "with --drafts"
        )
    _check_directions(variant, config, others, where)
    name = f"{path.stem}-seed{config.seed}-{_identity(config, values, store, plan.output)}"
    if variant.start_from:
        config = replace(config, model=with_architecture_of(config.model, others[variant.start_from].model))
    elif config.initialize_from is not None:
        start = load_model_config(config.initialize_from, encoders=True)
        config = replace(config, model=with_architecture_of(config.model, start))
    model = fit_model_config(config.model, in_direction(store, config))
    return replace(config, model=model, run=plan.output / RUNS_FOLDER / name)


def _check_directions(variant: Variant, config: TrainConfig, others: Mapping[str, TrainConfig], where: str) -> None:
    """Raises DocmtError where a run would start from one of the wrong direction."""
    for setting, start in variant.starts.items():
        wanted = config.reverse if setting == "initialize_from" else not config.reverse
        if others[start].reverse != wanted:
            raise DocmtError(
                f"{where}: {setting.replace('initialize', 'start')} names {start}, which has reverse "
                f"{str(not wanted).lower()}: name a variant whose settings have reverse {str(wanted).lower()}"
            )


def _of_own_system(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without overrides that are options of another system than this variant has."""
    system = settings.get("model.system", ModelConfig.system)
    others = tuple(f"model.{name}." for name in SYSTEMS if name != system)
    return {name: value for name, value in settings.items() if not (name in overrides and name.startswith(others))}


def _identity(config: TrainConfig, names: Mapping[str, Any], store: PreparedStore, output: Path) -> str:
    """Return eight digits that differ where data, what the run sets, or the run to start from do.

    names: the settings that recipe, experiment and overrides name. One that has its default anyway does not count, nor
    one that nobody names: so a later version may add options without making other runs of these.
    """
    values, defaults = flat(config.to_dict()), flat(TrainConfig(store=Path(), run=Path()).to_dict())
    drafts = config.model.chosen.context_spec().drafts
    facts = {
        "settings": {
            name: values[name]
            for name in sorted(names)
            if not is_among(name, (*NO_DIFFERENCE, *STARTS)) and values.get(name) != defaults.get(name)
        },
        "starts": [_start(getattr(config, setting), output) for setting in STARTS],
        "data": {
            name: [
                *(split.sentences, split.source_tokens, split.target_tokens),
                *(checksum for file, checksum in split.crc32.items() if drafts or "draft" not in file),
            ]
            for name, split in store.statistics.splits.items()
        },
        "vocabulary": store.statistics.vocabulary_size,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _start(start: Path | None, output: Path) -> str:
    """Return what tells a run to start from. Everything may move; in the name of a planned run is its identity."""
    if start is None or start.parent == output / RUNS_FOLDER:
        return str(start and start.name)
    with suppress(DocmtError):  # of another model in the same place the run is another
        path = find_model(start) / CONFIG_FILE
        return f"{start} {recorded(read_json(path), path)}"
    return str(start)


@dataclass(frozen=True)
class EvaluationConfig:
    """How runs are evaluated; scores of other settings are computed anew."""

    search: SearchConfig = field(default_factory=SearchConfig)
    metrics: MetricConfig = field(default_factory=MetricConfig)
    suite: Suite | None = None
    """contrastive test set that is asked besides, of the runs that translate in the direction of the store"""
    context: ContextConfig = ContextConfig()

    def __post_init__(self) -> None:
        if self.suite is not None and not all(item.candidates for item in self.suite.items):
            raise DocmtError(
                f"{self.suite.name} asks for translations: runs are asked contrastive test sets, with candidates"
            )

    @property
    def facts(self) -> dict[str, Any]:
        """What scores of translations depend on, as far as it is not as usual."""
        return {name: _unusual(getattr(self, name)) for name in ("search", "context", "metrics")}

    @cached_property
    def suite_facts(self) -> dict[str, Any] | None:
        """What the answers to the contrastive test set depend on, if there is one."""
        if self.suite is None:
            return None
        items = checksum_of(list(map(asdict, self.suite.items)))
        scoring = {name: getattr(self.search, name) for name in ("temperature", "implementation")}
        return {"name": self.suite.name, "crc32": items, **scoring, "context": _unusual(self.context)}


def _unusual(settings: Any) -> dict[str, Any]:
    """Return the settings that have not their defaults."""
    usual = asdict(type(settings)())
    return {name: value for name, value in asdict(settings).items() if value != usual[name]}


def state_of(run: PlannedRun, evaluation: EvaluationConfig) -> State:
    """Return how far a run has come: done (evaluated), trained, resumable, missing, or changed (trained otherwise)."""
    directory = RunDirectory(run.config.run)
    if not directory.model.exists():
        return "resumable" if directory.recipe.exists() else "missing"
    if _change(run) is not None:
        return "changed"
    asked = evaluation.suite is not None and not run.config.reverse
    done = stored_scores(run.config.run, evaluation) is not None
    done &= not asked or stored_contrastive(run.config.run, evaluation) is not None
    return "done" if done else "trained"


def _change(run: PlannedRun) -> str | None:
    """Return why the model in the run's directory is not what is planned, in a sentence; None if it is.

    Somebody may have gone on with it in another way, or a later version may have other defaults. Settings that are
    younger than the run have no part in this.
    """
    directory = RunDirectory(run.config.run)
    try:
        stored = TrainConfig.from_dict(read_recipe(directory.recipe, directory.path), str(directory.recipe)).to_dict()
    except DocmtError as error:
        return f"it is not known how {directory.path} was trained ({error})"
    difference = first_difference(stored, run.config.to_dict(), NO_DIFFERENCE)
    if difference is None:
        return None
    return f"{directory.path} was trained with other settings ({difference}): move it away, and it is trained again"


def reproduce(
    plan: Plan,
    evaluation: EvaluationConfig,
    tell: Callable[[str], object] = lambda line: None,
    after_each: Callable[[dict[Path, str]], object] = lambda failures: None,
) -> dict[Path, str]:
    """Train and evaluate what is not done yet; return what failed: directory of the run, and why in a sentence.

    `tell` gets a line at each step, `after_each` what has failed so far whenever a run has ended. A run that failed
    does not stop the others; it is tried again (from its last checkpoint, if it has one) when this is called again.
    Raises KeyboardInterrupt when Ctrl-C or SIGTERM ended a training, which then can be resumed to the last bit, and
    DocmtError at once if another process is working in the same output directory.
    """
    if "LOCAL_RANK" in os.environ:
        raise DocmtError("docmt reproduce starts its processes itself: set --devices instead of using torchrun")
    try:
        plan.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(plan.output, error) from error
    failures: dict[Path, str] = {}
    trainings = plan.trainings()
    with lock_directory(plan.output, f"the experiments in {plan.output} are being run"):
        for number, run in enumerate(trainings, 1):
            state = state_of(run, evaluation)
            if state == "done":
                continue
            place = f"[{number}/{len(trainings)}]"
            tell(f"{place} {_STEPS[state]} {run.title} ({run.config.run.name})")
            try:
                _complete(run, state, evaluation, failures)
            except (DocmtError, MemoryError, torch.OutOfMemoryError) as error:
                failure = " ".join(str(error).split()) or "there was not enough memory"
                failures[run.config.run] = failure
                tell(f"{place} failed: {failure}")
            after_each(failures)
    return failures


def _complete(run: PlannedRun, state: State, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> None:
    """Train a run as far as that is left, and evaluate it. Raises DocmtError where that cannot be done."""
    config = run.config
    for start in (config.initialize_from, config.initialize_reverse_from):
        if start is not None and start in failures:
            raise DocmtError(f"the run that it starts from, {start.name}, failed")
    if state == "changed":
        raise DocmtError(_change(run) or "")
    if state != "trained":
        resume = state == "resumable"
        interrupted = train(config, resume).interrupted if config.devices == 1 else _train_on_devices(config, resume)
        if interrupted:
            raise KeyboardInterrupt
    evaluate_run(config, PreparedStore.open(config.store), evaluation)


def _train_on_devices(config: TrainConfig, resume: bool) -> bool:
    """Train by `docmt train`, which starts the processes of several devices as copies of its own command line.

    Return whether it was interrupted. Raises DocmtError if it failed.
    """
    with tempfile.TemporaryDirectory() as folder, stop_on_signals() as wish:
        recipe = Path(folder) / f"{config.run.name}.yaml"
        write_text(recipe, yaml.safe_dump(config.to_dict(), sort_keys=False))
        arguments = [str(recipe)]
        if resume:
            arguments = ["--resume", str(config.run), "--store", str(config.store), "--device", config.device]
        # In a session of its own, so that Ctrl-C reaches it only once: by the lines below.
        process = subprocess.Popen(
            [sys.executable, "-m", "docmt", "train", *arguments], stdout=subprocess.DEVNULL, start_new_session=True
        )
        while (status := process.poll()) is None:
            time.sleep(0.2)
            if wish.wished:
                process.terminate()
                process.wait()
    if status not in (0, INTERRUPTED):
        raise DocmtError(f"docmt train ended with status {status}: it has told why on standard error")
    return status == INTERRUPTED


def stored_scores(run: Path, config: EvaluationConfig) -> dict[str, Any] | None:
    """Return the scores beside a run, if they are there, whole, and of this configuration."""
    with suppress(DocmtError):
        stored = read_json(run / SCORES_FILE)
        return stored.get("scores") if stored.get("config") == config.facts else None
    return None


def stored_contrastive(run: Path, config: EvaluationConfig) -> ContrastiveResult | None:
    """Return the answers of a run to the contrastive test set, if they are there, whole, and of the same set."""
    with suppress(DocmtError, KeyError, TypeError, IndexError):
        stored = read_json(run / SUITE_FILE)
        if config.suite is not None and stored["suite"] == config.suite_facts:
            return result_of(config.suite.items, stored["result"]["answers"])
    return None


def evaluate_run(run: TrainConfig, store: PreparedStore, config: EvaluationConfig) -> None:
    """Score a run on the test split and ask it the contrastive test set; what stands there already is left."""
    device = "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"
    # The settings that have an effect with the system of the run.
    context = supported(config.context, run.model.chosen)
    search = config.search if takes_rounds(config.context, run.model.chosen) else replace(config.search, rounds=0)
    translator = Translator(run.run, search=search, context=context, device=device, precision=run.products)
    if stored_scores(run.run, config) is None:
        scores = _scores(translator, run, in_direction(store, run).split("test"), config.metrics)
        write_text(run.run / SCORES_FILE, json.dumps({"config": config.facts, "scores": scores}, indent=2) + "\n")
    if config.suite is not None and not run.reverse and stored_contrastive(run.run, config) is None:
        result = evaluate_items(translator, config.suite.items)
        written = {"suite": config.suite_facts, "result": result.to_json()}
        write_text(run.run / SUITE_FILE, json.dumps(written, indent=2) + "\n")


def _scores(translator: Translator, run: TrainConfig, test: ParallelStore, metrics: MetricConfig) -> dict[str, Any]:
    """Translate the test split, from token ids as in training; the scores are as `Evaluation.to_json` has them.

    With unit instance the instances of the split, packed as in training, are translated one by one, as the published
    code does.
    """
    tokenizer, model = translator.tokenizer, translator.model
    if run.reverse and metrics.language:  # that of the translations
        metrics = replace(metrics, language=translator.languages[1] or metrics.language)
    sources = test.documents("source")
    references = [tokenizer.decode_batch(document, "target") for document in test.documents("target")]
    instances: Ranges = [[(0, len(document))] for document in sources]
    if metrics.unit == "instance":
        instances = packed_units(model.config, test.source.lengths, test.target.lengths, test.document_offsets)
    units = in_units(sources, instances)
    drafts, specials = translator.drafts(units), tokenizer.specials
    with computing_in(model, run.products), progress("translating (sentences)", len(test.source.lengths)) as bar:
        search, context = translator.search, translator.context
        translated = translate_documents(
            model, units, specials, search, context=context, on_sentences=bar.advance, drafts=drafts
        )
    best = [ranks[0] for ranks in translated]
    hypotheses = in_documents([tokenizer.decode_batch(unit.sentences, "target") for unit in best], instances)
    miscounted = sum(len(unit.miscounted) for unit in best)
    return evaluate_documents(hypotheses, references, metrics, instances, miscounted=miscounted).to_json()
