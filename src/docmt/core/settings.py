"""Options as dataclasses: checked ranges, building from nested mappings and from YAML files, comparison, field docs."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, field, fields, is_dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_text

Settings = TypeVar("Settings")
Number = TypeVar("Number", int, float)

MANY = 10**9
"""The most of anything that is only counted: updates, tokens, minutes."""
LONGEST_SHOWN = 80
"""Characters of a value in a message."""
MOST_VALUES = 100_000
"""Values of a YAML file, with those that aliases (*name) stand for."""


# Fields and their checks


def flag_of(name: str) -> str:
    """Return how an option with this full name is written on the command line: `search.n_best` is `--search.n-best`."""
    return f"--{name.replace('_', '-')}"


def ranged(default: Number, least: float, most: float) -> Number:
    """Return a field of a dataclass for a number from `least` to `most`, which `check_fields` checks."""
    return field(default=default, metadata={"range": (least, most)})


def option(
    default: Any = MISSING,
    *,
    range: tuple[float, float] | None = None,
    flags: tuple[str, ...] = (),
    metavar: str = "",
    positional: bool = False,
    skip: tuple[str, ...] = (),
) -> Any:
    """Return a field of a dataclass of options, with what the command line needs besides type and help.

    flags: further ways to write it, such as "-o". metavar: what stands for the value in the help.
    skip: of a dataclass in this one, the fields that are no options.
    """
    metadata: dict[str, Any] = {"flags": flags, "metavar": metavar, "positional": positional, "skip": skip}
    if range is not None:
        metadata["range"] = range
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def range_of(settings: type, name: str) -> tuple[float, float]:
    """Return the least and the most that a field made with `ranged` may be."""
    least, most = {each.name: each for each in fields(settings)}[name].metadata["range"]
    return least, most


@cache
def kinds_of(settings: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass."""
    return typing.get_type_hints(settings)


def check_fields(settings: Any, prefix: str) -> None:
    """Check the ranges of numbers and the values of Literals, and turn text into a path where a path is expected.

    Every whole or decimal number has a range, so that no number overflows somewhere later.
    Raises DocmtError naming the field, after `prefix`.
    """
    cls: type = type(settings)
    for each in fields(settings):
        name, value, kind = f"{prefix}{each.name}", getattr(settings, each.name), kinds_of(cls)[each.name]
        if typing.get_origin(kind) is Literal:
            one_of(name, value, typing.get_args(kind))
        elif kind in (int, float):
            check_number(name, value, each.metadata["range"], whole=kind is int)
        elif kind is Path or Path in typing.get_args(kind):
            object.__setattr__(settings, each.name, convert_or_raise(kind, value, name))  # the dataclass is frozen


def one_of(flag: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise DocmtError unless `value` is allowed."""
    if value not in allowed:
        raise DocmtError(f"{flag} is {shown(value)}: choose one of {', '.join(allowed)}")


def check_number(flag: str, value: Any, range: tuple[float, float], whole: bool = True) -> None:
    """Raise DocmtError unless `value` is a number (or whole number) in the range."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise DocmtError(f"{flag} is {shown(value)}: {wanted(int if whole else float)}")
    least, most = range
    if not least <= value <= most:  # NaN fails, too
        raise DocmtError(f"{flag} is {shown(value)}: choose a number from {least:,} to {most:,}")


def shown(value: object) -> str:
    """Return the value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


# Values as their fields have them

_ACCEPTED: dict[Any, tuple[type, ...]] = {
    int: (int, str),
    float: (int, float, str),
    bool: (bool, str),
    str: (str,),
    Path: (str, Path),
}
_WORDS = {"true": True, "false": False, ".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


def convert(kind: Any, value: Any) -> Any:
    """Return a value, which may be text from a file or the command line, as its type has it.

    Raises ValueError, TypeError or OverflowError for a value that does not fit.
    """
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if type(None) in members and value in (None, "null"):
            return None
        return _first_fit([(member, None) for member in members if member is not type(None)], value)
    if origin is Literal:
        return _first_fit([(type(member), member) for member in members], value)
    if origin in (list, tuple, set, frozenset, Sequence):
        return _sequence(origin, members, value)
    if kind not in _ACCEPTED:
        return value
    if not isinstance(value, _ACCEPTED[kind]) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(value)
    if kind is Path and b"\0" in os.fsencode(str(value)):  # which raises ValueError for half characters
        raise ValueError(value)
    if kind in (bool, float) and isinstance(value, str):
        value = _WORDS.get(value.lower(), value)
        if (kind is bool) is not isinstance(value, bool):
            raise ValueError(value)
    return kind(value)


def _first_fit(members: Sequence[tuple[Any, Any]], value: Any) -> Any:
    """Return the value as the first type that it fits; each has the only value that is allowed, or None for any."""
    for kind, allowed in members:
        with suppress(ValueError, TypeError):
            converted = convert(kind, value)
            if allowed is None or converted == allowed:
                return converted
    raise ValueError(value)


def _sequence(origin: Any, members: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    if origin is tuple and not (len(members) == 2 and members[1] is Ellipsis):
        return tuple(convert(member, item) for member, item in zip(members, value, strict=True))
    items = [convert(members[0], item) for item in value]
    return items if origin is Sequence else origin(items)


def convert_or_raise(kind: Any, value: Any, name: str) -> Any:
    """Return a value as its type has it. Raises DocmtError naming the option for a value that does not fit."""
    if typing.get_origin(kind) is list and isinstance(value, list) and typing.get_args(kind)[0] in _ACCEPTED:
        return [convert_or_raise(typing.get_args(kind)[0], item, name) for item in value]
    try:
        return convert(kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise DocmtError(f"{name} is {shown(value)}: {wanted(kind)}") from error


def wanted(kind: Any) -> str:
    """Return how to ask for a value of this type."""
    kind = without_none(kind)
    if typing.get_origin(kind) is Literal:
        return f"choose one of {', '.join(map(str, typing.get_args(kind)))}"
    known = {int: "give a whole number", float: "give a number", bool: "choose true or false"}
    return (known | {str: "give text", Path: "give a path"}).get(kind, "give a list")


def without_none(kind: Any) -> Any:
    """Return the first type that is not None of an optional type; any other type as it is."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    return next(member for member in typing.get_args(kind) if member is not type(None))


# Dataclasses from nested mappings, and back


def build(cls: type[Settings], values: Any, where: str, prefix: str = "") -> Settings:
    """Build a dataclass from a nested mapping of its fields; a missing field keeps its default.

    Dataclasses may nest to any depth. A value may have the type of its field, or be text: "5e-4" becomes a number
    where the field is a number. Raises DocmtError naming `where` the values are (nothing, if that is empty) and the
    dotted name, after `prefix`, of what is unknown, missing, or of another type.
    """
    if not isinstance(values, Mapping):
        raise DocmtError(f"{prefix.rstrip('.') or 'the configuration'} in {where} is no group of settings")
    known = {each.name: each for each in fields(typing.cast(Any, cls)) if each.init}
    for name in sorted(map(str, set(values) - set(known))):
        raise DocmtError(f"{where} has the unknown setting {prefix}{name}: remove it, or check its spelling")
    for name, each in known.items():
        if name not in values and is_required(each):
            raise DocmtError(f"{where} has no setting {prefix}{name}: add it")
    built: dict[str, Any] = {}
    for name, value in values.items():
        kind = kinds_of(typing.cast(type, cls))[name]
        if is_dataclass(kind):
            built[name] = build(typing.cast(type[Any], kind), value, where, f"{prefix}{name}.")
        else:
            built[name] = convert_or_raise(kind, value, f"{where}: {prefix}{name}" if where else f"{prefix}{name}")
    try:
        return cls(**built)
    except DocmtError as error:
        raise DocmtError(f"{where}: {error}" if where else str(error)) from error


def is_required(each: Field[Any]) -> bool:
    """Return whether a field has no default."""
    return each.default is MISSING and each.default_factory is MISSING


def default_of(each: Field[Any]) -> Any:
    """Return the default of a field."""
    return each.default_factory() if each.default_factory is not MISSING else each.default


def plain(settings: Any) -> dict[str, Any]:
    """Return a dataclass as nested mappings of what JSON and YAML have: the inverse of `build`."""
    return dict(_plain(asdict(settings)))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def nested(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return settings by dotted name in their groups: the inverse of `flat`.

    Raises DocmtError for a name that is a setting and a group.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        inner: Any = found
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                raise DocmtError(f"{where} has the unknown setting {name}: check its spelling")
        if isinstance(inner.get(last), dict):
            raise DocmtError(f"{where} sets {name}, which is a group of settings: name the one that is meant")
        inner[last] = value
    return found


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted name, stored and wanted value of every setting that differs; None where one lacks it."""
    old, new = flat(stored), flat(wanted)
    for name in {**old, **new}:
        if name not in old or name not in new or old[name] != new[name]:
            yield name, old.get(name), new.get(name)


def first_difference(stored: Mapping[str, Any], wanted: Mapping[str, Any], but: Sequence[str] = ()) -> str | None:
    """Return the first setting in which two configurations differ, in words. `but`: names or groups to leave out."""
    for name, old, new in difference(stored, wanted):
        if not is_among(name, but):
            return f"{name} is {new!r} but was {old!r}"
    return None


def is_among(name: str, names: Sequence[str]) -> bool:
    """Return whether a setting, by its dotted name, is one of those named, or in a group that is."""
    return name in names or name.split(".")[0] in names


def names_of(settings: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a dataclass and of those in it."""
    for name, kind in kinds_of(settings).items():
        if is_dataclass(kind):
            yield from names_of(typing.cast(type, kind), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def brief(settings: Any) -> str:
    """Return a repr of settings that has only what differs from the defaults."""
    parts = [
        f"{each.name}={brief(value) if is_dataclass(value) else repr(value)}"
        for each in fields(settings)
        if (value := getattr(settings, each.name)) != default_of(each)
    ]
    return f"{type(settings).__name__}({', '.join(parts)})"


# Docstrings of fields


def field_docs(cls: type) -> dict[str, str]:
    """Return what the string below each field of a dataclass says, on one line."""
    classes = [each for each in reversed(cls.__mro__) if is_dataclass(each)]
    return {name: doc for each in classes for name, doc in _docs_of_module(each.__module__)[each.__name__].items()}


@cache
def _docs_of_module(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of every class of a module: by class, then by field."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ClassDef):
            docs[node.name] = {
                name.target.id: " ".join(doc.value.value.split())
                for name, doc in pairwise(node.body)
                if isinstance(name, ast.AnnAssign) and isinstance(name.target, ast.Name)
                if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
                if isinstance(doc.value.value, str)
            }
    return docs


# YAML files


def read_yaml(path: Path | str) -> Any:
    """Return what a YAML file holds: nested mappings and lists of text, None for nothing and for a plain `null`.

    YAML's own types would make text of the number 5e-4 and `false` of the language code `no`. So every value is text,
    and becomes what its setting is in `build`. Raises DocmtError, naming the line, as `read_yaml_lines` does.
    """
    return read_yaml_lines(path)[0]


def read_yaml_lines(path: Path | str) -> tuple[Any, dict[str, int]]:
    """Return what a YAML file holds, as `read_yaml` does, and the line of each value by its dotted name.

    Raises DocmtError, naming the line, for a file that cannot be read, is no YAML, says the same thing twice, or has
    names that are no text.
    """
    text, lines = read_text(path), dict[str, int]()
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        return (None if root is None else _value(root, "", path, lines)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "it holds characters that YAML does not allow"
        raise DocmtError(f"{place}: not valid YAML ({problem}); mend the line, or the one above it") from error
    except RecursionError as error:
        raise DocmtError(f"{path}: too many levels in each other; write it with fewer") from error


def read_data(package: str, name: str) -> Any:
    """Return what a YAML file beside the modules of a package of ours holds, all scalars as text."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    return yaml.load(resources.files(package).joinpath(name).read_text(encoding="utf-8"), loader)


def _value(node: yaml.Node, name: str, path: Path | str, lines: dict[str, int]) -> Any:
    """Return what a node holds, and add the lines of the values in it; entries of lists are numbered from 1."""
    start = f"{name}." if name else ""
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in ("", "~", "null", "Null", "NULL") else node.value
    items = enumerate(node.value, 1) if isinstance(node, yaml.SequenceNode) else node.value
    values: dict[Any, Any] = {}
    for key, item in items:
        mark = (item if isinstance(key, int) else key).start_mark
        place = f"{path}, line {mark.line + 1}"
        if not isinstance(key, int | yaml.ScalarNode):
            raise DocmtError(f"{place}: not an `option: value` line; write a word before the colon")
        last = key if isinstance(key, int) else key.value
        if (dotted := f"{start}{last}") in lines:
            raise DocmtError(f"{place}: {dotted} is there twice; remove one of them")
        lines[dotted] = mark.line + 1
        if len(lines) > MOST_VALUES:
            raise DocmtError(f"{place}: the aliases (*name) of the file stand for too many values; write them out")
        values[last] = _value(item, dotted, path, lines)
    return list(values.values()) if isinstance(node, yaml.SequenceNode) else values
