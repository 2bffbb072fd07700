"""Settings from nested mappings, typed or as text, and YAML files whose words stay as they are written."""

import dataclasses
import math
import pickle
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from docmt.cli.commands.translate import InputConfig
from docmt.core.errors import DocmtError
from docmt.core.settings import (
    Excludes,
    Needs,
    OptionError,
    build,
    check_fields,
    check_number,
    field_docs,
    field_range,
    find_differences,
    first_difference,
    flatten,
    nest,
    ranged,
    read_yaml,
    to_mapping,
)
from docmt.data import PrepareConfig
from docmt.decoding import SearchConfig
from docmt.evaluation import MetricConfig
from docmt.model import ModelConfig
from docmt.training import TrainConfig


@dataclass(frozen=True)
class Inner:
    """The deepest."""

    rate: float = 0.5
    name: str = "x"


@dataclass(frozen=True)
class Middle:
    """Between them."""

    inner: Inner = field(default_factory=Inner)
    count: int = 1

    def __post_init__(self):
        if self.count < 1:
            raise DocmtError(f"middle.count is {self.count}: choose more")


@dataclass(frozen=True)
class Outer:
    """All that there is."""

    place: Path
    middle: Middle = field(default_factory=Middle)
    kind: Literal["a", "b"] = "a"
    start: Path | None = None
    limit: float | None = None
    flag: bool = False
    pairs: list[tuple[int, float]] = field(default_factory=list)


def test_text_and_types_build_the_same():
    typed = {
        "place": Path("p"),
        "middle": {"inner": {"rate": 5e-4, "name": "no"}, "count": 3},
        "kind": "b",
        "start": "s",
        "limit": 1,
        "flag": True,
        "pairs": [[1, 2.5]],
    }
    text = {
        "place": "p",
        "middle": {"inner": {"rate": "5e-4", "name": "no"}, "count": "3"},
        "kind": "b",
        "start": "s",
        "limit": "1",
        "flag": "true",
        "pairs": [["1", "2.5"]],
    }
    built = build(Outer, typed, "here")
    assert built == build(Outer, text, "here") == build(Outer, to_mapping(built), "here")
    assert built.middle.inner == Inner(0.0005, "no")
    assert built.pairs == [(1, 2.5)]
    assert build(Outer, {"place": "p", "start": None}, "here") == Outer(Path("p"))
    assert nest(flatten(to_mapping(built)), "here") == to_mapping(built)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "here has no setting place: add it"),
        ({"place": "p", "plaice": 1}, "here has the unknown setting plaice: remove it"),
        ({"place": "p", "middle": {"inner": {"x": 1}}}, "here has the unknown setting middle.inner.x"),
        ({"place": "p", "middle": {"inner": 3}}, "middle.inner in here is not a group of settings"),
        ({"place": "p", "middle": {"inner": {"rate": "fast"}}}, "here: middle.inner.rate is 'fast': give a number"),
        ({"place": "p", "middle": {"inner": {"rate": True}}}, "here: middle.inner.rate is True: give a number"),
        ({"place": "p", "middle": {"count": 1.5}}, "here: middle.count is 1.5: give a whole number"),
        ({"place": "p", "middle": {"count": "0"}}, "here: middle.count is 0: choose more"),
        ({"place": "p", "middle": {"count": None}}, "here: middle.count is None: give a whole number"),
        ({"place": "p", "flag": "yes"}, "here: flag is 'yes': choose true or false"),
        ({"place": "p", "kind": "c"}, "here: kind is 'c': choose one of a, b"),
        ({"place": 5}, "here: place is 5: give a path"),
        ({"place": "p", "start": 5}, "here: start is 5: give a path"),
        ({"place": "a\0"}, "here: place is 'a.x00': give a path"),
        ({"place": "p", "pairs": "1"}, "here: pairs is '1': give a list"),
        ({"place": "p", "pairs": [[1]]}, "here: pairs is .*: give a list"),
        ([], "the configuration in here is not a group of settings"),
    ],
)
def test_what_does_not_fit(values, message):
    with pytest.raises(DocmtError, match=message):
        build(Outer, values, "here")


def test_differences_at_any_depth():
    old, new = {"a": {"b": {"c": 1}}, "d": 2}, {"a": {"b": {"c": 3}}, "e": None}
    assert list(find_differences(old, new)) == [("a.b.c", 1, 3), ("d", 2, None), ("e", None, None)]
    assert first_difference(old, new) == "a.b.c is 3 but was 1"
    assert first_difference(old, new, ignored=["a", "d", "e"]) is None


def test_yaml_is_text(tmp_path):
    (tmp_path / "a.yaml").write_text("rate: 5e-4\ncode: no\nlist: [on, 1_0]\nnone: null\nempty:\nword: 'null'\n")
    expected = {"rate": "5e-4", "code": "no", "list": ["on", "1_0"], "none": None, "empty": None, "word": "null"}
    assert read_yaml(tmp_path / "a.yaml") == expected


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: " + "[" * 5_000, "a.yaml: too many nested levels"),
        (BOMB, "a.yaml, line .*aliases .* expand to too many values"),
        ("a: &a [*a]", "a.yaml: too many nested levels"),
        ("a: 1\nb: {c: 2, c: 3}", "a.yaml, line 2: b.c is set twice; remove one of the lines"),
        ("b: {c: 2}\nb.c: 3", "a.yaml, line 2: b.c is set twice"),
        ("? [a]\n: 1", "a.yaml, line 1: not an `option: value` line"),
        ("a: [", "a.yaml, line 1: not valid YAML"),
    ],
)
def test_yaml_that_is_refused(tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DocmtError, match=message) as caught:
        read_yaml(tmp_path / "a.yaml")
    assert "\n" not in str(caught.value)


def reachable(settings):
    """The dataclass and all that are the type of a field of one of them."""
    yield settings
    for kind in typing.get_type_hints(settings).values():
        if dataclasses.is_dataclass(kind):
            yield from reachable(kind)


@pytest.mark.parametrize("settings", [PrepareConfig, TrainConfig, SearchConfig, MetricConfig, InputConfig])
def test_every_number_of_every_command_has_a_finite_range(settings):
    for each in reachable(settings):
        hints = typing.get_type_hints(each)
        kinds = {one.name: hints[one.name] for one in dataclasses.fields(each)}
        # (Each of these is checked when the settings are made.)
        several = [name for name, kind in kinds.items() if {int, float} & set(typing.get_args(kind))]
        assert set(several) <= {"source_language_ids", "target_language_ids"}
        for name in [name for name, kind in kinds.items() if kind in (int, float)]:
            least, most = field_range(each, name)
            assert -math.inf < least <= getattr(each, name) <= most < math.inf
            for value in (least - 1, most + 1, 10**400, -(10**5000), math.nan, -math.inf, None, "1", True, []):
                with pytest.raises(DocmtError, match=r"x is .*: (choose a number from|give a)"):
                    check_number("x", value, (least, most), whole=kinds[name] is int)


def test_text_is_a_path_in_python_too():
    config = PrepareConfig(store="stores/mine", train=["a", Path("b")], source_tokenizer="m")
    assert (config.store, config.train) == (Path("stores/mine"), [Path("a"), Path("b")])
    assert config.source_tokenizer == Path("m")
    assert TrainConfig(store="s", run="r").store == Path("s")
    assert TrainConfig(store="s", run="r", initialize_from="m").initialize_from == Path("m")
    with pytest.raises(DocmtError, match=r"^train is PosixPath\('a'\): give a list"):
        PrepareConfig(store="s", train=Path("a"))
    with pytest.raises(DocmtError, match=r"^store is 3: give a path"):
        TrainConfig(store=3, run="r")


def test_the_help_is_below_the_field():
    docs = field_docs(SearchConfig)
    assert set(docs) == {each.name for each in dataclasses.fields(SearchConfig)}
    assert docs["beam"] == "hypotheses kept for each instance, window or sentence; 1 is greedy search"
    assert {"system", "width"} <= set(field_docs(ModelConfig)), "those of the class above it, too"


@pytest.mark.parametrize("value", [10**400, 1e300, math.nan, "1", -5])
def test_a_range_is_checked_where_the_settings_are_made(value):
    with pytest.raises(DocmtError, match=r"search.beam is .*: (choose a number from 1 to 10,000|give a whole number)"):
        SearchConfig(beam=value)


@dataclass(frozen=True)
class Draws:
    beam: int = ranged(5, 1, 9)
    sampling: bool = False


@dataclass(frozen=True)
class Job:
    seed: int = ranged(1, 0, 9)
    kind: Literal["a", "b"] = "a"
    files: list[str] = field(default_factory=list)
    draws: Draws = Draws()
    option_rules = (
        Needs("seed", "draws.sampling"),
        Needs("draws.sampling", "draws.beam 1", "needs {}"),
        Excludes("draws", "kind b"),
        Excludes("files", "kind b", "are read only without {}"),
    )

    def __post_init__(self):
        check_fields(self, "o.")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": 2}, "o.seed has no effect without o.draws.sampling: leave it out, or add o.draws.sampling"),
        ({"draws": Draws(sampling=True)}, "o.draws.sampling needs o.draws.beam 1"),
        ({"draws": Draws(beam=2), "kind": "b"}, "o.draws.beam has no effect with o.kind b: leave it out"),
        ({"files": ["x"], "kind": "b"}, "o.files are read only without o.kind b"),
    ],
)
def test_options_that_do_not_go_together(values, message):
    with pytest.raises(OptionError, match=f"^{message}$") as caught:
        Job(**values)
    error = pickle.loads(pickle.dumps(caught.value))  # a worker's error reaches the process that waits for it
    assert (str(error), error.option) == (message, message.split()[0])


def test_options_that_go_together():
    assert Job(seed=2, draws=Draws(beam=1, sampling=True)).seed == 2
    assert Job(kind="b", seed=1).kind == "b"
