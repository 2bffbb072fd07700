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
    start_reverse_from: backward       # the run of a variant with `reverse: true` in its settings, likewise
    settings: {optimizer.warmup: 100}  # `store` names another store: of a pretrained model with its own vocabulary
    published: {s-BLEU: 25.12}         # shown beside our scores
    sees: {source: 3, target: 0}       # how many sentences before its own, as far as that is known
    scale: cpu                         # at this scale alone; at the other, what starts from it has random weights
axes:                                  # each variant is trained at every point of every axis
  - name: model size
    cpu: {small: {model.width: 128}, large: {model.width: 256}}
    full: {base: {model.preset: base}, big: {model.preset: big}}    # or `points` for both scales
    published: {base: {d-BLEU: 33.87}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, build, check_fields, one_of, ranged, read_yaml

SCALES = ("cpu", "full")
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Reach:
    """How many sentences before its own a system sees of each side (supplied ones, no drafts)."""

    source: int = ranged(0, 0, MANY)
    target: int = ranged(0, 0, MANY)

    def __post_init__(self) -> None:
        check_fields(self, "sees.")


@dataclass(frozen=True)
class Variant:
    """A row of the table: a recipe with settings."""

    name: str
    recipe: str
    """path of the recipe, beside the experiment file, with {scale} where the scale stands"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """by dotted name"""
    start_from: str = ""
    """the variant whose run it is initialised from, or nothing"""
    start_reverse_from: str = ""
    """the variant of the other direction whose run it is initialised from, too, or nothing"""
    published: Mapping[str, float] = field(default_factory=dict)
    sees: Reach | None = None
    """None: not known"""
    scale: str = ""
    """the only scale at which it is trained, or nothing"""

    def __post_init__(self) -> None:
        if self.scale:
            one_of("scale", self.scale, SCALES)

    @property
    def starts(self) -> dict[str, str]:
        """The variants that it starts from, by the setting that names their runs."""
        starts = {"initialize_from": self.start_from, "initialize_reverse_from": self.start_reverse_from}
        return {setting: variant for setting, variant in starts.items() if variant}


@dataclass(frozen=True)
class Axis:
    """A quantity that is varied besides. Without a name: a single point, no settings."""

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
    variants: Mapping[str, Variant]
    axes: tuple[Axis, ...]
    """at least one, which has no name if the file has none"""
    source: str = ""
    seeds: tuple[int, ...] = (1,)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    def variants_at(self, scale: str) -> dict[str, Variant]:
        """Return those that are trained at a scale. What would start from one that is not starts from nothing."""
        elsewhere = {name for name, variant in self.variants.items() if variant.scale not in ("", scale)}

        def start(name: str) -> str:
            return "" if name in elsewhere else name

        return {
            name: replace(
                variant, start_from=start(variant.start_from), start_reverse_from=start(variant.start_reverse_from)
            )
            for name, variant in self.variants.items()
            if name not in elsewhere
        }

    def in_order(self, scale: str) -> list[Variant]:
        """Return the variants of a scale, each after those that it starts from. Raises DocmtError where none is."""
        waiting = self.variants_at(scale)
        ordered: dict[str, Variant] = {}
        while waiting:
            ready = next((each for each in waiting.values() if ordered.keys() >= set(each.starts.values())), None)
            if ready is None:
                first = next(iter(waiting.values()))
                missing = next(name for name in first.starts.values() if name not in ordered)
                raise DocmtError(
                    f"{self.path}: variant {first.name} cannot start from {missing!r}: name another variant, and let "
                    "none start from itself by way of others"
                )
            ordered[ready.name] = waiting.pop(ready.name)
        return list(ordered.values())


def recipes_folder() -> Path:
    """Return the folder of the recipes that come with docmt: in the installed package, or in the clone it runs from."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "recipes"


def list_experiments() -> dict[str, Experiment]:
    """Return the named experiments: those that come with docmt, and those in recipes/experiments here."""
    folders = (Path("recipes") / "experiments", recipes_folder() / "experiments")
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}
    return {name: _read(path) for name, path in sorted(files.items())}


def read_experiment(name: str) -> Experiment:
    """Return the experiment of that name, or in the file of that path. Raises DocmtError if there is none."""
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    known = list_experiments()
    if name not in known:
        raise DocmtError(f"unknown experiment {name!r}: choose one of {', '.join(known)}, or give the path of a file")
    return known[name]


def _read(path: Path) -> Experiment:
    values = _group(read_yaml(path), str(path))
    variants = {
        name: _variant(name, variant, path)
        for name, variant in _group(values.get("variants"), f"{path}: variants").items()
    }
    axes = values.get("axes", [{"name": "", "points": {"": {}}}])
    if not isinstance(axes, list):
        raise DocmtError(f"{path}: axes is no list: begin each axis with `- name: ...`")
    made = {"path": path, "variants": variants, "axes": tuple(_axis(axis, path) for axis in axes)}
    return build(Experiment, {**values, **made}, str(path))


def _variant(name: str, values: Any, path: Path) -> Variant:
    where = f"{path}: variant {name}"
    made: dict[str, Any] = {"name": name, **_group(values, where)}
    made["settings"] = _group(made.get("settings", {}), f"{where}: settings")
    made["published"] = _numbers(made.get("published", {}), f"{where}: published")
    if "sees" in made:
        made["sees"] = build(Reach, made["sees"], where, "sees.")
    return build(Variant, made, where)


def _axis(values: Any, path: Path) -> Axis:
    values = _group(values, f"{path}: an axis")
    where = f"{path}: axis {values.get('name')}"
    points = {}
    for scale in SCALES:
        at_scale = _group(values.pop(scale, values.get("points", {})), f"{where}: points")
        if not at_scale:
            raise DocmtError(f"{where} has no points at scale {scale}: add `{scale}` or `points`")
        points[scale] = {label: _group(settings, f"{where}: {label}") for label, settings in at_scale.items()}
    published = {
        point: _numbers(row, f"{where}: published: {point}")
        for point, row in _group(values.get("published", {}), f"{where}: published").items()
    }
    return build(Axis, {**values, "points": points, "published": published}, where)


def _numbers(values: Any, where: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in _group(values, where).items()}
    except (TypeError, ValueError) as error:
        raise DocmtError(f"{where}: {error}: write numbers") from error


def _group(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise DocmtError(f"{where} is no group of settings: write `name: value` lines")
    return values
