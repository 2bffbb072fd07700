"""Experiment files: which recipes are trained with which settings, and what was published about them.

title: what it reproduces
source: paper and table of the published figures
seeds: [1]                             # unless others are asked for
settings: {validation.entropy: true}   # of all runs, named as on the command line of docmt train
variants:                              # the rows of the table
  sentence:
    recipe: sentence-{scale}.yaml      # beside this file; {scale} becomes cpu or full
  finetune:
    recipe: finetune-{scale}.yaml
    start_from: sentence               # the run of this variant with the same seed is trained first
    settings: {optimizer.warmup: 100}
    published: {s-BLEU: 25.12}         # shown beside our scores
axes:                                  # each variant is trained at every point of every axis
  - name: model size
    cpu: {small: {model.width: 128}, large: {model.width: 256}}
    full: {base: {model.preset: base}, big: {model.preset: big}}    # or `points` for both scales
    published: {base: {d-BLEU: 33.87}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from docmt.errors import DocmtError

SCALES = ("cpu", "full")
_SHIPPED = Path("recipes") / "experiments"


@dataclass(frozen=True)
class Variant:
    """A row of the table: a recipe with settings."""

    name: str
    recipe: str
    """path of the recipe, beside the experiment file, with {scale} where the scale stands"""
    settings: Mapping[str, Any]
    """by dotted name"""
    start_from: str
    """the variant whose run it is initialised from, or nothing"""
    published: Mapping[str, float]


@dataclass(frozen=True)
class Axis:
    """What is varied besides: points with their settings at each scale."""

    name: str
    points: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """scale, point, settings by dotted name"""
    published: Mapping[str, Mapping[str, float]]
    """point, column"""


@dataclass(frozen=True)
class Experiment:
    """One experiment file."""

    path: Path
    title: str
    source: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    variants: Mapping[str, Variant]
    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def experiment_folders() -> list[Path]:
    """Where named experiments are: in the clone that docmt runs from, and in the working directory."""
    return [Path(__file__).parents[3] / _SHIPPED, _SHIPPED]


def list_experiments() -> dict[str, Experiment]:
    """The named experiments."""
    files = {path.stem: path for folder in reversed(experiment_folders()) for path in sorted(folder.glob("*.yaml"))}
    return {name: _read(path) for name, path in sorted(files.items())}


def read_experiment(name: str) -> Experiment:
    """The experiment of that name, or in the file of that path. Raises DocmtError if there is none or it is wrong."""
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    known = list_experiments()
    if not known:
        raise DocmtError(
            f"there is no {_SHIPPED} here: run docmt from its clone, or give the path of an experiment file"
        )
    if name not in known:
        raise DocmtError(f"unknown experiment {name!r}: choose one of {', '.join(known)}, or give the path of a file")
    return known[name]


def _read(path: Path) -> Experiment:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DocmtError(f"cannot read {path}: there is no such file") from error
    except OSError as error:
        raise DocmtError(f"cannot read {path}: {error.strerror}; give the path of an experiment file") from error
    except (ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise DocmtError(f"{path} is not valid YAML ({problem}): mend it") from error
    top = _group(values, str(path), {"title", "source", "seeds", "settings", "variants", "axes"}, {"title", "variants"})
    variants = {str(name): _variant(str(name), value, path) for name, value in _names(top["variants"], path).items()}
    seeds, axes = top.get("seeds", [1]), top.get("axes", [])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise DocmtError(f"{path}: seeds is {seeds!r}: give a list of whole numbers, such as [1, 2, 3]")
    if not isinstance(axes, list):
        raise DocmtError(f"{path}: axes is no list: begin each axis with `- name: ...`")
    experiment = Experiment(
        path=path,
        title=str(top["title"]),
        source=str(top.get("source", "")),
        seeds=tuple(seeds),
        settings=_names(top.get("settings", {}), path),
        variants=variants,
        axes=tuple(_axis(value, path) for value in axes),
    )
    for variant in variants.values():
        _check_start(variant, experiment)
    return experiment


def _variant(name: str, values: Any, path: Path) -> Variant:
    keys = {"recipe", "settings", "start_from", "published"}
    values = _group(values, f"{path}: variant {name}", keys, {"recipe"})
    return Variant(
        name=name,
        recipe=str(values["recipe"]),
        settings=_names(values.get("settings", {}), path),
        start_from=str(values.get("start_from", "")),
        published=_names(values.get("published", {}), path),
    )


def _axis(values: Any, path: Path) -> Axis:
    values = _group(values, f"{path}: an axis", {"name", "points", "published", *SCALES}, {"name"})
    points = {}
    for scale in SCALES:
        own = _names(values.get(scale, values.get("points", {})), path)
        if not own:
            raise DocmtError(f"{path}: axis {values['name']} has no points at scale {scale}: add `{scale}` or `points`")
        points[scale] = {str(label): _names(settings, path) for label, settings in own.items()}
    published = {str(label): _names(row, path) for label, row in _names(values.get("published", {}), path).items()}
    return Axis(str(values["name"]), points, published)


def _check_start(variant: Variant, experiment: Experiment) -> None:
    """Raises DocmtError if the runs that a variant starts from do not exist or go round in a circle."""
    seen = [variant.name]
    while start := experiment.variants[seen[-1]].start_from:
        if start not in experiment.variants:
            raise DocmtError(f"{experiment.path}: {seen[-1]} starts from {start!r}, which is no variant of it: add it")
        if start in seen:
            raise DocmtError(f"{experiment.path}: {start} starts from itself by way of start_from: break the circle")
        seen.append(start)


def _group(values: Any, where: str, known: set[str], needed: set[str]) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise DocmtError(f"{where} is no group of settings: write `name: value` lines")
    for name in values:
        if name not in known:
            raise DocmtError(f"{where} has the unknown entry {name!r}: choose from {', '.join(sorted(known))}")
    for name in sorted(needed - set(values)):
        raise DocmtError(f"{where} has no entry {name}: add it")
    return values


def _names(values: Any, path: Path) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise DocmtError(f"{path}: {values!r} stands where `name: value` lines are needed")
    return {str(name): value for name, value in values.items()}
