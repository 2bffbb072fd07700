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
    settings: {optimizer.warmup: 100}
    published: {s-BLEU: 25.12}         # shown beside our scores
    sees: {source: 3, target: 0}       # how many sentences before its own, as far as that is known
    scale: cpu                         # at this scale alone; at the other, what starts from it has random weights
    own_data: true                     # store and start are those of its recipe; left out while they are not there
    line: finetune                     # of a figure of right candidates, a line of several variants,
    at: 4                              # and where on it this one lies
over: sentences of a window            # what `at` counts
axes:                                  # each variant is trained at every point of every axis
  - name: model size
    cpu: {small: {model.width: 128}, large: {model.width: 256}}
    full: {base: {model.preset: base}, big: {model.preset: big}}    # or `points` for both scales
    published: {base: {d-BLEU: 33.87}}
speed:                                 # how many times as fast one variant translates as another, in windows of L
  of: finetune
  to: sentence
  windows: [1, 2, 4]                   # L, whatever the models were trained with
  documents: 8                         # so many, of so many sentences of the test split
  sentences: 30
  rounds: 3
  published: {4: {CPU: 3.27}}
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.options import MANY, build, check_fields, check_number, one_of, range_of, ranged, read_yaml, shown
from docmt.training import TrainConfig

SCALES = ("cpu", "full")
STARTS = ("from", "reverse_from")
"""What a run starts from: `start_from` in the file is `initialize_from` of the training, and so on."""
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
    start_reverse_from: str
    """the variant of the other direction whose run it is initialised from, too, or nothing"""
    published: Mapping[str, float]
    sees: Mapping[str, int] | None
    """how many sentences before its own it sees of "source" and "target" (given ones, no drafts); None: not known"""
    scale: str = ""
    """the only scale at which it is trained, or nothing"""
    line: str = ""
    """of a figure of right candidates: the line that it belongs to, or nothing"""
    at: str = ""
    """where on the line"""
    own_data: bool = False
    """whether `data` and `initialize_from` are those of its recipe: a pretrained model has a vocabulary of its own"""

    @property
    def starts(self) -> dict[str, str]:
        """The variants that it starts from, by the setting that names their runs."""
        starts = zip(STARTS, (self.start_from, self.start_reverse_from), strict=True)
        return {f"initialize_{way}": variant for way, variant in starts if variant}


@dataclass(frozen=True)
class Axis:
    """What is varied besides: points with their settings at each scale. Without a name: a single point, no settings."""

    name: str
    points: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """scale, point, settings by dotted name"""
    published: Mapping[str, Mapping[str, float]]
    """point, column"""


@dataclass(frozen=True)
class Speed:
    """How many times as fast one variant translates as another, by the sentences of a window.

    Both are trained once; the windows are of translation alone.
    """

    of: str
    to: str
    windows: tuple[int, ...]
    documents: int = ranged(4, 1, 100_000)
    sentences: int = ranged(20, 1, 100_000)
    """of each document"""
    rounds: int = ranged(3, 1, 1000)
    """how often everything is done, both variants in turn"""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """window, column"""

    def __post_init__(self) -> None:
        check_fields(self, "speed.")
        if not self.windows:
            raise DocmtError("speed.windows is empty: name the sentences of a window, such as [1, 2, 4]")
        for window in self.windows:
            check_number("speed.windows", window, (1, 10_000))


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
    """at least one, which has no name if the file has none"""
    over: str = ""
    """what `Variant.at` counts, or nothing"""
    speed: Speed | None = None

    @property
    def name(self) -> str:
        return self.path.stem

    def variants_at(self, scale: str) -> dict[str, Variant]:
        """Those that are trained at a scale. What would start from one that is not has nothing to start from."""
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
        """The variants of a scale, each after those that it starts from. Raises DocmtError where that cannot be."""
        waiting = self.variants_at(scale)
        ordered: dict[str, Variant] = {}
        while waiting:
            ready = next((one for one in waiting.values() if ordered.keys() >= set(one.starts.values())), None)
            if ready is None:
                one = next(iter(waiting.values()))
                missing = next(name for name in one.starts.values() if name not in ordered)
                raise DocmtError(
                    f"{self.path}: variant {one.name} cannot start from {missing!r}: name another variant, and let "
                    "none start from itself by way of others"
                )
            ordered[ready.name] = waiting.pop(ready.name)
        return list(ordered.values())


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
    known = {"title", "source", "seeds", "settings", "variants", "axes", "over", "speed"}
    top = _group(read_yaml(path), str(path), known, {"title", "variants"})
    made = [_variant(name, value, path) for name, value in _group(top["variants"], f"{path}: variants").items()]
    variants = {variant.name: variant for variant in made}
    over = _text(top.get("over", ""), f"{path}: over")
    for variant in made:
        if bool(variant.line) != bool(variant.at) or (variant.line and not over):
            raise DocmtError(
                f"{path}: variant {variant.name} has a part of what a line of a figure needs: give it both line and "
                "at, and the file `over`, which says what `at` counts"
            )
        linked = (variant.name, *variant.starts.values()) if variant.starts else ()
        if alone := [name for name in linked if name in variants and variants[name].own_data]:
            raise DocmtError(
                f"{path}: variant {variant.name} starts from another, but {alone[0]} has own_data, and so another "
                "vocabulary: leave out one of the two"
            )
        if variant.line and "axes" in top:
            raise DocmtError(
                f"{path}: variant {variant.name} lies on a line of a figure, which has one point for a variant, not "
                "one for each of `axes`: leave out line and at, or axes"
            )
    axes = top.get("axes", [{"name": "", "points": {"": {}}}])
    if not isinstance(axes, list):
        raise DocmtError(f"{path}: axes is no list: begin each axis with `- name: ...`")
    return Experiment(
        path=path,
        title=_text(top["title"], f"{path}: title"),
        source=_text(top.get("source", ""), f"{path}: source"),
        seeds=whole_seeds(top.get("seeds", ["1"]), f"{path}: seeds", "[1, 2, 3]"),
        settings=_group(top.get("settings", {}), f"{path}: settings"),
        variants=variants,
        axes=tuple(_axis(value, path) for value in axes),
        over=over,
        speed=_speed(top["speed"], variants, path) if "speed" in top else None,
    )


def _variant(name: str, values: Any, path: Path) -> Variant:
    where = f"{path}: variant {name}"
    known = {"recipe", "settings", "start_from", "start_reverse_from", "published", "sees", "scale", "line", "at"}
    values = _group(values, where, known | {"own_data"}, {"recipe"})
    settings = _group(values.get("settings", {}), f"{where}: settings")
    published = _numbers(values.get("published", {}), f"{where}: published")
    recipe = _text(values["recipe"], f"{where}: recipe")
    start, start_reverse = (_text(values.get(f"start_{way}", ""), f"{where}: start_{way}") for way in STARTS)
    sees = _reach(values["sees"], f"{where}: sees") if "sees" in values else None
    scale, line, at = (_text(values.get(key, ""), f"{where}: {key}") for key in ("scale", "line", "at"))
    if scale:
        one_of(f"{where}: scale", scale, SCALES)
    own_data = _text(values.get("own_data", "false"), f"{where}: own_data")
    one_of(f"{where}: own_data", own_data, ("true", "false"))
    return Variant(name, recipe, settings, start, start_reverse, published, sees, scale, line, at, own_data == "true")


def _reach(values: Any, where: str) -> dict[str, int]:
    """How many sentences before its own a system sees, of each side."""
    found = _numbers(_group(values, where, {"source", "target"}), where)
    for side, number in found.items():
        check_number(f"{where}: {side}", int(number) if number == int(number) else number, (0, MANY))
    return {side: int(number) for side, number in found.items()}


def _axis(values: Any, path: Path) -> Axis:
    values = _group(values, f"{path}: an axis", {"name", "points", "published", *SCALES}, {"name"})
    name = _text(values["name"], f"{path}: an axis: name")
    where = f"{path}: axis {name}"
    points = {}
    for scale in SCALES:
        own = _group(values.get(scale, values.get("points", {})), f"{where}: points")
        if not own:
            raise DocmtError(f"{where} has no points at scale {scale}: add `{scale}` or `points`")
        points[scale] = {label: _group(settings, f"{where}: {label}") for label, settings in own.items()}
    published = _group(values.get("published", {}), f"{where}: published")
    return Axis(
        name,
        points,
        {point: _numbers(row, f"{where}: published: {point}") for point, row in published.items()},
    )


def _speed(values: Any, variants: Mapping[str, Variant], path: Path) -> Speed:
    where = f"{path}: speed"
    values = _group(values, where)
    published = {
        window: _numbers(row, f"{where}: published: {window}")
        for window, row in _group(values.get("published", {}), f"{where}: published").items()
    }
    speed = build(Speed, {**values, "published": published}, str(path), "speed.")
    for name in (speed.of, speed.to):
        if name not in variants or variants[name].scale:
            known = ", ".join(variant.name for variant in variants.values() if not variant.scale)
            raise DocmtError(f"{where}: {name!r} is no variant that every scale has: choose from {known}")
    if others := [window for window in published if window not in map(str, speed.windows)]:
        raise DocmtError(f"{where}: published has {others[0]}, which is none of the windows: add it to them")
    return speed


def _numbers(values: Any, where: str) -> dict[str, float]:
    numbers = {}
    for name, value in _group(values, where).items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError) as error:
            raise DocmtError(f"{where}: {name} is {_shown(value)}: write a number") from error
        check_number(f"{where}: {name}", numbers[name], (-MANY, MANY), whole=False)
    return numbers


def whole_seeds(values: Any, where: str, example: str) -> tuple[int, ...]:
    """The seeds in a list of texts. Raises DocmtError, naming `where` they are, for any that no training can have."""
    try:
        if not isinstance(values, list) or not values:
            raise ValueError
        seeds = tuple(int(seed) for seed in values)
    except (TypeError, ValueError):
        raise DocmtError(f"{where} is {shown(values)}: give whole numbers, such as {example}") from None
    for seed in seeds:
        check_number(where, seed, range_of(TrainConfig, "seed"))
    return seeds


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DocmtError(f"{where} is {_shown(value)}: write text")
    return value


def _shown(value: Any) -> str:
    """The value for a message, if it is not long."""
    return value if isinstance(value, str) else f"a {type(value).__name__}" if value is not None else "nothing"


def _group(values: Any, where: str, known: Set[str] = frozenset(), needed: Set[str] = frozenset()) -> dict[str, Any]:
    """A mapping with the names as text. Raises DocmtError for anything else, and for entries not known (if given)."""
    if not isinstance(values, dict):
        raise DocmtError(f"{where} is no group of settings: write `name: value` lines")
    for name in values:
        if known and name not in known:
            raise DocmtError(f"{where} has the unknown entry {name!r}: choose from {', '.join(sorted(known))}")
    for name in sorted(needed - set(values)):
        raise DocmtError(f"{where} has no entry {name}: add it")
    return values
