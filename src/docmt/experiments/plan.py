"""From an experiment to its runs: every variant, point and seed, with its configuration and its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from docmt.checkpoint.model_directory import find_model, load_model_config
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import read_json, recorded
from docmt.core.options import flat, is_among, nested, read_yaml
from docmt.data import PreparedStore
from docmt.data.statistics import STATISTICS_FILE
from docmt.decoding.config import ContextConfig
from docmt.experiments.experiment import STARTS, Experiment, Variant
from docmt.model import ModelConfig
from docmt.model.systems import SYSTEMS
from docmt.training import TrainConfig
from docmt.training.corpus import fit_model_config, in_direction
from docmt.training.finetune import with_architecture_of

RUNS_FOLDER = "runs"
# What makes no other model of a run. Of the run that it starts from the name counts, not the place.
NO_DIFFERENCE = ("store", "run", "device", "log_every", "tensorboard", "checkpoints.keep")


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
    """The runs of an experiment in an order in which each comes after the one that it starts from.

    Cells of the table that are the same training (the same settings, data and seed) have the same `config.run`, also
    those of other experiments with the same output directory.
    """

    experiment: Experiment
    scale: str
    output: Path
    store: PreparedStore
    runs: tuple[PlannedRun, ...]
    overrides: Mapping[str, Any]
    """settings of all runs, by dotted name, that were asked for instead of those of the recipes"""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """variants that cannot be trained here, and why"""

    def place(self, context: ContextConfig, ending: str) -> Path:
        """Where a table or a figure goes: of other instances or windows (`ContextConfig`) another one."""
        asked = "".join(f"-{name}-{value}" for name, value in context.changes().items())
        return self.output / f"{self.experiment.name}-{self.scale}{asked}{ending}"

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which opens the store itself."""
        return {**vars(self), "store": self.store.directory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, store=PreparedStore.open(state["store"]))

    def store_of(self, config: TrainConfig) -> PreparedStore:
        """Of a run: that of all but pretrained models."""
        return self.store if config.store == self.store.directory else PreparedStore.open(config.store)

    def trainings(self) -> list[PlannedRun]:
        """Every training once."""
        return list({run.config.run: run for run in reversed(self.runs)}.values())[::-1]


def make_plan(
    experiment: Experiment,
    scale: str,
    data: Path,
    output: Path,
    seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """Plans an experiment; `seeds` replaces those of its file, `overrides` (by dotted name) any setting of any run.

    An override of a system's option holds for the variants of that system. Raises DocmtError for stores that lack a
    split, and for recipes and settings that no training can have.
    """
    store = PreparedStore.open(data)
    store.split("test")  # now, not after days of training
    output = output.resolve()
    there, left_out = _there(experiment, scale)
    stores = {name: _own_store(variant, recipe, store) for name, (variant, recipe) in there.items() if variant.own_data}
    runs = []
    for seed, axis in product(seeds or experiment.seeds, experiment.axes):
        for point, settings in axis.points[scale].items():
            configs: dict[str, TrainConfig] = {}
            for variant, recipe in there.values():
                layers = (experiment.settings, variant.settings, settings, overrides or {})
                changes = {name: value for layer in layers for name, value in flat(layer).items()}
                own = stores.get(variant.name, store)
                changes |= {"store": str(own.directory), "run": "", "seed": seed}
                changes |= {setting: str(configs[start].run) for setting, start in variant.starts.items()}
                path = _recipe_of(experiment, variant, scale)
                where = f"{experiment.path}, variant {variant.name} with {path.name}"
                settings_of_all = nested(_of_own_system({**recipe, **changes}, overrides or {}), where)
                config = TrainConfig.from_dict(settings_of_all, where)
                if variant.own_data and config.model.chosen.needs().drafts:
                    raise DocmtError(f"{where}: own_data is not for systems that read drafts: leave it out")
                started = _started(config, configs.get(variant.start_from))
                if started is not None:
                    config = replace(config, model=with_architecture_of(config.model, started))
                config = replace(config, model=fit_model_config(config.model, in_direction(own, config)))
                _check_directions(variant, config, configs, where)
                if config.model.chosen.needs().drafts and own.split("train").drafts is None:
                    left_out[variant.name] = (
                        f"the {config.model.system} system reads drafts, and {own.directory} has none: run `docmt "
                        "prepare` again with --drafts"
                    )
                    continue
                name = f"{path.stem}-seed{seed}-{_identity(config, own, output)}"
                configs[variant.name] = replace(config, run=output / RUNS_FOLDER / name)
                runs.append(PlannedRun(variant.name, axis.name, point, seed, configs[variant.name]))
    _check_windows(experiment, runs)
    return Plan(experiment, scale, output, store, tuple(runs), dict(overrides or {}), left_out)


def _recipe_of(experiment: Experiment, variant: Variant, scale: str) -> Path:
    return experiment.path.parent / variant.recipe.replace("{scale}", scale)


def _there(experiment: Experiment, scale: str) -> tuple[dict[str, tuple[Variant, dict[str, Any]]], dict[str, str]]:
    """The variants that can be trained, in order, with the settings of their recipes; and why others cannot."""
    there, left_out = {}, {}
    for variant in experiment.in_order(scale):
        path = _recipe_of(experiment, variant, scale)
        recipe = _read_recipe(path)
        wanted = [str(recipe[name]) for name in ("store", "initialize_from") if name in recipe]
        missing = [name for name in wanted if not Path(name).exists()] if variant.own_data else []
        if missing:
            left_out[variant.name] = f"{' and '.join(missing)} missing here: {path} says how to make them"
        else:
            there[variant.name] = variant, recipe
    return there, left_out


def _own_store(variant: Variant, recipe: Mapping[str, Any], store: PreparedStore) -> PreparedStore:
    """The store of a variant that has one of its own. Raises DocmtError unless it holds the documents of the others."""
    if "store" not in recipe:
        raise DocmtError(f"variant {variant.name} has own_data, but its recipe names no store: add `store`")
    own = PreparedStore.open(Path(str(recipe["store"])))
    ours, theirs = (each.split("test").document_offsets.tolist() for each in (own, store))
    if ours != theirs:
        raise DocmtError(
            f"{own.directory}, the store of {variant.name}, has another test split than {store.directory}: prepare "
            "both from the same documents"
        )
    return own


def _started(config: TrainConfig, start: TrainConfig | None) -> ModelConfig | None:
    """The architecture of the model that a run starts from, if any: of a planned run, or of one that is there."""
    if start is not None:
        return start.model
    return load_model_config(config.initialize_from, encoders=True) if config.initialize_from else None


def _check_windows(experiment: Experiment, runs: Sequence[PlannedRun]) -> None:
    """Raises DocmtError where the speed of what does not translate windows would be measured."""
    compared = () if experiment.speed is None else (experiment.speed.of, experiment.speed.to)
    for run in runs:
        if run.variant not in compared:
            continue
        if not run.config.model.chosen.needs().windows:
            raise DocmtError(
                f"{experiment.path}: speed is that of windows, which {run.variant} does not translate: name a variant "
                "of the concat system"
            )
        if experiment.variants[run.variant].own_data:
            raise DocmtError(
                f"{experiment.path}: speed is of one store, but {run.variant} has own_data: choose another"
            )


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
    """The settings without overrides that are options of another system than this variant has."""
    system = settings.get("model.system", ModelConfig.system)
    others = tuple(f"model.{name}." for name in SYSTEMS if name != system)
    return {name: value for name, value in settings.items() if not (name in overrides and name.startswith(others))}


def _read_recipe(path: Path) -> dict[str, Any]:
    """The settings of a recipe by dotted name, as text."""
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise DocmtError(f"the recipe {path} does not consist of `option: value` lines: write them")
    return flat(values)


def _identity(config: TrainConfig, store: PreparedStore, output: Path) -> str:
    """Eight digits that differ where data, settings or the run to start from do.

    Every setting in effect counts, those at their defaults too: when a later version has another default, or a setting
    that is new, its runs are others, and no old result is reported as theirs.
    """
    settings, starts = flat(config.to_dict()), [f"initialize_{way}" for way in STARTS]
    facts = {
        "settings": {name: value for name, value in settings.items() if not is_among(name, (*NO_DIFFERENCE, *starts))},
        "starts": [_start(getattr(config, setting), output) for setting in starts],
        "data": hashlib.sha256((store.directory / STATISTICS_FILE).read_bytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _start(start: Path | None, output: Path) -> str:
    """A run to start from. The directory of everything may move; in the name of the run is an identity of its own."""
    if start is None or start.parent == output / RUNS_FOLDER:
        return str(start and start.name)
    with suppress(DocmtError):  # of another model in the same place the run is another
        path = find_model(start) / CONFIG_FILE
        return f"{start} {recorded(read_json(path), path)}"
    return str(start)
