"""Recipes: options in a YAML file, read as if they stood on the command line, with errors that name the line."""

from __future__ import annotations

from argparse import Action
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from docmt.cli.spelling import closest
from docmt.core.errors import DocmtError
from docmt.core.yaml_files import compose, place_of


@dataclass(frozen=True)
class Setting:
    """One option of a recipe."""

    name: str
    """dotted, as after the two dashes of the flag"""
    values: tuple[str, ...]
    """as they would be typed; more than one for options that take several"""
    place: str
    """file and line, for messages"""

    def arguments(self) -> list[str]:
        """The setting as command line arguments."""
        if len(self.values) == 1:
            return [f"--{self.name}={self.values[0]}"]
        return [f"--{self.name}", *self.values] if self.values else []


def read_recipe(path: str, options: Sequence[Action], program: str, also: Mapping[str, str]) -> list[Setting]:
    """The settings of a recipe for a command with these options, in order; `also`: further names and what they mean.

    Raises DocmtError, naming the line, for files that are no YAML (or that `compose` refuses for another reason), and
    for settings that the command does not have.
    """
    root = compose(path)
    if root is None:
        raise DocmtError(f"the recipe {path} is empty: write options into it, such as those in {program} --help")
    if not isinstance(root, yaml.MappingNode):
        raise DocmtError(f"the recipe {path} does not consist of `option: value` lines; see {program} --help")
    known = {
        option.dest: option for option in options if option.option_strings and "--help" not in option.option_strings
    }
    settings = list(_settings(root, "", path, known | {name: known[meant] for name, meant in also.items()}, program))
    places: dict[str, str] = {}
    for setting in settings:  # under two of its names: YAML itself sees only equal ones
        if before := places.get(setting.name):
            raise DocmtError(f"{setting.place}: {setting.name} is set here and in {before}: write it once")
        places[setting.name] = setting.place
    return settings


def is_recipe(argument: str) -> bool:
    """Whether the first argument of a command is a recipe."""
    return argument.endswith((".yaml", ".yml")) and not argument.startswith("-")


def group_names(options: Sequence[Action]) -> set[str]:
    """The names before the dots of dotted options."""
    return {option.dest.rpartition(".")[0] for option in options} - {""}


def _settings(
    mapping: yaml.MappingNode, prefix: str, path: str, known: dict[str, Action], program: str
) -> Iterator[Setting]:
    groups = group_names(list(known.values()))
    for key, value in mapping.value:
        place = place_of(path, key)
        name = prefix + key.value
        if name in groups:
            if not isinstance(value, yaml.MappingNode):
                example = next(option for option in known if option.startswith(f"{name}.")).rpartition(".")[2]
                raise DocmtError(
                    f"{place}: {name} is a group of options; put them indented below it, as `{example}: ...`"
                )
            yield from _settings(value, f"{name}.", path, known, program)
            continue
        if name not in known:
            raise DocmtError(f"{place}: {_unknown(name, [*known, *groups], program)}")
        yield Setting(known[name].dest, _values(value, name, known[name], place), place)


def _values(node: yaml.Node, name: str, option: Action, place: str) -> tuple[str, ...]:
    """What was written, unchanged: YAML's own types would turn the language code `no` into false."""
    if isinstance(node, yaml.SequenceNode) and option.nargs in ("+", "*"):
        if (node.value or option.default == []) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
            return tuple(item.value for item in node.value)
        raise DocmtError(f"{place}: {name} needs a list of values, such as [one, two]")
    if not isinstance(node, yaml.ScalarNode):
        raise DocmtError(f"{place}: {name} takes one value; write it after the colon")
    if node.value == "" and node.style is None:
        raise DocmtError(f"{place}: {name} has no value; write one after the colon, or remove the line")
    return (node.value,)


def _unknown(name: str, known: Sequence[str], program: str) -> str:
    close = closest(name, known)
    hint = f"did you mean {close}?" if close else f"see {program} --help"
    return f"{program} has no option {name}; {hint}"
