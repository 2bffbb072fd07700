"""Experiment files: recipes to train, their settings, and the published results.

title: what it reproduces
source: paper and table of the published figures
seeds: [1]                             # default seeds
settings: {validation.entropy: true}   # of all runs, with the option names of docmt train
variants:                              # the rows of the table
  sentence:
    recipe: sentence-{scale}.yaml      # beside this file; {scale} becomes cpu or full
  finetune:
    recipe: finetune-{scale}.yaml
    start_from: sentence               # initialised from the run of this variant with the same seed
    start_reverse_from: backward       # and from the run of a variant with `reverse: true` in its settings
    settings: {optimizer.warmup: 100}  # `store` names another store: of a pretrained model with its own vocabulary
    published: {s-BLEU: 25.12}         # shown beside the scores of docmt
    scale: cpu                         # the only scale; at the other, variants that start from it begin at random
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
from docmt.core.settings import build, check_choice, read_yaml
from docmt.evaluation import PROTOCOLS

SCALES = ("cpu", "full")
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Variant:
    """A row of the table: a recipe with settings."""

    name: str
    recipe: str
    """path relative to the experiment file, with {scale} as a placeholder"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """by dotted name"""
    start_from: str = ""
    """the variant whose run initialises this one, if any"""
    start_reverse_from: str = ""
    """the variant of the other direction whose run initialises this one, if any"""
    published: Mapping[str, float] = field(default_factory=dict)
    scale: str = ""
    """the only scale at which it is trained, empty for both"""

    def __post_init__(self) -> None:
        if self.scale:
            check_choice("scale", self.scale, SCALES)

    @property
    def starts(self) -> dict[str, str]:
        """The variants that initialise this one, by the setting that names their runs."""
        starts = {"initialize_from": self.start_from, "initialize_reverse_from": self.start_reverse_from}
        return {setting: variant for setting, variant in starts.items() if variant}


@dataclass(frozen=True)
class Axis:
    """A quantity that varies. Without a name it has a single point without settings."""

    name: str
    points: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """settings by scale, point and dotted name"""
    published: Mapping[str, Mapping[str, float]]
    """scores by point and column"""


@dataclass(frozen=True)
class Experiment:
    """One experiment file."""

    path: Path
    title: str
    variants: Mapping[str, Variant]
    axes: tuple[Axis, ...]
    """at least one, without a name if the file has none"""
    source: str = ""
    protocol: str = ""
    """how the published scores were computed: a protocol of `docmt evaluate`; empty: unknown"""
    seeds: tuple[int, ...] = (1,)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol:
            check_choice("protocol", self.protocol, tuple(PROTOCOLS))

    @property
    def name(self) -> str:
        return self.path.stem

    def select_variants(self, scale: str) -> dict[str, Variant]:
        """Return the variants of a scale. Those that start from a variant of the other scale lose that start."""
        others = {name for name, variant in self.variants.items() if variant.scale not in ("", scale)}
        variants = {name: variant for name, variant in self.variants.items() if name not in others}
        for name, variant in variants.items():
            starts = {"start_from": variant.start_from, "start_reverse_from": variant.start_reverse_from}
            lost: dict[str, Any] = {field: "" for field, start in starts.items() if start in others}
            variants[name] = replace(variant, **lost)
        return variants

    def order_variants(self, scale: str) -> list[Variant]:
        """Return the variants of a scale, each after its starts.

        Raises DocmtError for starts that are unknown or circular.
        """
        waiting = self.select_variants(scale)
        ordered: dict[str, Variant] = {}
        while waiting:
            ready = next((each for each in waiting.values() if ordered.keys() >= set(each.starts.values())), None)
            if ready is None:
                first = next(iter(waiting.values()))
                missing = next(name for name in first.starts.values() if name not in ordered)
                raise DocmtError(
                    f"{self.path}: variant {first.name} cannot start from {missing!r}. "
                    "Name another variant, and avoid circular starts."
                )
            ordered[ready.name] = waiting.pop(ready.name)
        return list(ordered.values())


def recipes_folder() -> Path:
    """Return the folder of docmt's recipes, in the installed package or in its clone."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "recipes"


def list_experiments() -> dict[str, Experiment]:
    """Return the named experiments of docmt and of recipes/experiments in the current directory."""
    folders = (Path("recipes") / "experiments", recipes_folder() / "experiments")
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}
    return {name: _read_file(path) for name, path in sorted(files.items())}


def read_experiment(name: str) -> Experiment:
    """Return an experiment by name or by the path of its file. Raises DocmtError if there is none."""
    if name.endswith((".yaml", ".yml")):
        return _read_file(Path(name))
    known = list_experiments()
    if name not in known:
        raise DocmtError(f"unknown experiment {name!r}: choose one of {', '.join(known)}, or give the path of a file")
    return known[name]


def _read_file(path: Path) -> Experiment:
    values = check_mapping(read_yaml(path), str(path))
    rows = check_mapping(values.get("variants"), f"{path}: variants").items()
    variants = {name: _parse_variant(name, variant, path) for name, variant in rows}
    axes = values.get("axes", [{"name": "", "points": {"": {}}}])
    if not isinstance(axes, list):
        raise DocmtError(f"{path}: axes is not a list. Begin each axis with `- name: ...`.")
    parsed = {"path": path, "variants": variants, "axes": tuple(_parse_axis(axis, path) for axis in axes)}
    return build(Experiment, {**values, **parsed}, str(path))


def _parse_variant(name: str, values: Any, path: Path) -> Variant:
    location = f"{path}: variant {name}"
    parsed: dict[str, Any] = {"name": name, **check_mapping(values, location)}
    parsed["settings"] = check_mapping(parsed.get("settings", {}), f"{location}: settings")
    parsed["published"] = _parse_numbers(parsed.get("published", {}), f"{location}: published")
    return build(Variant, parsed, location)


def _parse_axis(values: Any, path: Path) -> Axis:
    values = check_mapping(values, f"{path}: an axis")
    location = f"{path}: axis {values.get('name')}"
    points = {}
    for scale in SCALES:
        at_scale = check_mapping(values.pop(scale, values.get("points", {})), f"{location}: points")
        if not at_scale:
            raise DocmtError(f"{location} has no points at scale {scale}. Add `{scale}` or `points`.")
        points[scale] = {name: check_mapping(settings, f"{location}: {name}") for name, settings in at_scale.items()}
    rows = check_mapping(values.get("published", {}), f"{location}: published").items()
    published = {point: _parse_numbers(row, f"{location}: published: {point}") for point, row in rows}
    return build(Axis, {**values, "points": points, "published": published}, location)


def _parse_numbers(values: Any, location: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in check_mapping(values, location).items()}
    except (TypeError, ValueError) as error:
        raise DocmtError(f"{location}: {error}. Use numbers.") from error


def check_mapping(values: Any, location: str) -> dict[str, Any]:
    """Return the values. Raises DocmtError if they are not a mapping."""
    if not isinstance(values, dict):
        raise DocmtError(f"{location} is not a mapping. Write `name: value` lines.")
    return values
