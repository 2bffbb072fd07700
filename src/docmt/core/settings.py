"""Options as dataclasses: checks, construction from mappings and YAML files, comparison, field docstrings.

What options exclude or need is a table in their dataclass: `option_rules`, a tuple of `Needs` and `Excludes`.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import yaml

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_text

Settings = TypeVar("Settings")
Number = TypeVar("Number", int, float)
Value = TypeVar("Value")

MANY = 10**9
"""Upper limit of plain counts, such as updates, tokens or minutes."""
MAX_VALUE_LENGTH = 80
"""Maximum characters of a value in a message."""
MAX_YAML_VALUES = 100_000
"""Maximum values of a YAML file, with aliases (*name) expanded."""


class OptionError(DocmtError):
    """A wrong value of an option, or one that does not go together with another option.

    The command line writes the names as flags, or names the line of a recipe.
    """

    def __init__(self, option: str, problem: str, other: str = "") -> None:
        """option, other: full names, `search.n_best`. problem: what is wrong with it; {} stands for `other`."""
        super().__init__(option, problem, other)  # so that it can be sent to another process
        self.option, self._problem, self._other = option, problem, other

    def __str__(self) -> str:
        return str(DocmtError(self.describe()))

    def describe(self, write: Callable[[str], str] = str, option: str = "") -> str:
        """Return the message, with names as `write` returns them. option: text in place of the name of the option."""
        return f"{option or write(self.option)} {self._problem.replace('{}', write(self._other))}"


# Fields and their checks


def format_flag(name: str) -> str:
    """Return how an option with this full name is written on the command line: `search.n_best` is `--search.n-best`."""
    return f"--{name.replace('_', '-')}"


def ranged(default: Number, least: float, most: float) -> Number:
    """Return a dataclass field for a number from `least` to `most`. `check_fields` checks the range."""
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
    """Return a dataclass field with metadata for the command line.

    flags: further names, such as "-o". metavar: placeholder of the value in the help.
    skip: fields of a nested dataclass that are no options.
    """
    metadata: dict[str, Any] = {"flags": flags, "metavar": metavar, "positional": positional, "skip": skip}
    if range is not None:
        metadata["range"] = range
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def field_range(settings: type, name: str) -> tuple[float, float]:
    """Return the range of a field made with `ranged`."""
    least, most = {each.name: each for each in fields(settings)}[name].metadata["range"]
    return least, most


@cache
def field_types(settings: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, by name."""
    return typing.get_type_hints(settings)


def check_fields(settings: Any, prefix: str) -> None:
    """Check the ranges of numbers and the values of Literals, and convert text to paths.

    Every number has a range, so that no number overflows later. Then the `option_rules` of the dataclass are checked.
    Raises OptionError naming the field, after `prefix`.
    """
    cls: type = type(settings)
    for setting in fields(settings):
        value, kind = getattr(settings, setting.name), field_types(cls)[setting.name]
        check_field(cls, setting.name, value, prefix)
        if kind is Path or Path in typing.get_args(kind):
            value = convert_or_raise(kind, value, f"{prefix}{setting.name}")
            object.__setattr__(settings, setting.name, value)  # the dataclass is frozen
    for rule in getattr(cls, "option_rules", ()):
        rule.check(settings, prefix)


class CheckedSettings:
    """Base of a dataclass of options that `check_fields` checks. prefix: before their names in messages."""

    _prefix: ClassVar[str]

    def __init_subclass__(cls, prefix: str = "") -> None:
        cls._prefix = prefix

    def __post_init__(self) -> None:
        check_fields(self, self._prefix)


@dataclass(frozen=True)
class OptionRule:
    """A relation between two options. An option is set if it differs from its default."""

    option: str
    """name of a field of the dataclass, or of one in it (`input.join_lines`), or of a group: any option in it"""
    other: str
    """name of the other option, alone or with a value (`implementation thumt`)"""
    problem: str
    """what the message says after the name of the option; {} stands for the other one, {value} for the
    value of the option"""
    breaks_if_set: ClassVar[bool]

    def check(self, settings: Any, prefix: str) -> None:
        """Raise OptionError if the settings break the rule. prefix: of the names of their fields."""
        name, _, value = self.other.partition(" ")
        is_set = str(attrgetter(name)(settings)) == value if value else any(find_set(settings, name))
        for option in find_set(settings, self.option) if is_set is self.breaks_if_set else ():
            problem = self.problem.replace("{value}", str(attrgetter(option)(settings)))
            raise OptionError(f"{prefix}{option}", problem, f"{prefix}{self.other}")


@dataclass(frozen=True)
class Needs(OptionRule):
    """The option has no effect, or no meaning, unless the other one is set."""

    problem: str = "has no effect without {}: leave it out, or add {}"
    breaks_if_set = False


@dataclass(frozen=True)
class Excludes(OptionRule):
    """The option has no effect, or no meaning, if the other one is set."""

    problem: str = "has no effect with {}: leave it out"
    breaks_if_set = True


def find_set(settings: Any, *names: str) -> list[str]:
    """Return the full names of options that are not as by default: of those with these names, or in these groups."""
    changed = list[str]()
    for name in names:
        group, _, last = name.rpartition(".")
        owner = attrgetter(group)(settings) if group else settings
        value, default = getattr(owner, last), next(field_default(each) for each in fields(owner) if each.name == last)
        if is_dataclass(value):
            changed += [f"{name}.{inner}" for inner, *_ in find_differences(to_mapping(default), to_mapping(value))]
        elif value != default:
            changed.append(name)
    return changed


def check_field(cls: type, name: str, value: Any, prefix: str) -> None:
    """Raise OptionError for a number out of the range of a field, or a value that is none of its Literals."""
    kind = field_types(cls)[name]
    if typing.get_origin(kind) is Literal:
        check_choice(f"{prefix}{name}", value, typing.get_args(kind))
    elif kind in (int, float):
        check_number(f"{prefix}{name}", value, field_range(cls, name), whole=kind is int)


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise OptionError unless `value` is allowed."""
    if value not in allowed:
        raise OptionError(name, f"is {quote(value)}: choose one of {', '.join(allowed)}")


def check_number(name: str, value: Any, range: tuple[float, float], whole: bool = True) -> None:
    """Raise OptionError unless `value` is a number (or whole number) in the range."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise OptionError(name, f"is {quote(value)}: {value_hint(int if whole else float)}")
    least, most = range
    if not least <= value <= most:  # NaN fails, too
        raise OptionError(name, f"is {quote(value)}: choose a number from {least:,} to {most:,}")


def quote(value: object) -> str:
    """Return the repr of a value for a message, truncated if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to format integers of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}..."


# Conversion of values to the types of their fields

_ACCEPTED: dict[Any, tuple[type, ...]] = {
    int: (int, str),
    float: (int, float, str),
    bool: (bool, str),
    str: (str,),
    Path: (str, Path),
}
_SPELLINGS = {"true": True, "false": False, ".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


def convert(kind: Any, value: Any) -> Any:
    """Return a value, such as text from a file or the command line, converted to a type.

    Raises ValueError, TypeError or OverflowError for an invalid value.
    """
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if type(None) in members and value in (None, "null"):
            return None
        return _convert_to_first([(member, None) for member in members if member is not type(None)], value)
    if origin is Literal:
        return _convert_to_first([(type(member), member) for member in members], value)
    if origin in (list, tuple):
        return _convert_sequence(origin, members, value)
    if kind not in _ACCEPTED:
        return value
    if not isinstance(value, _ACCEPTED[kind]) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(value)
    if kind is Path and b"\0" in os.fsencode(str(value)):  # fsencode raises ValueError for lone surrogates
        raise ValueError(value)
    if kind in (bool, float) and isinstance(value, str):
        value = _SPELLINGS.get(value.lower(), value)
        if (kind is bool) is not isinstance(value, bool):
            raise ValueError(value)
    return kind(value)


def _convert_to_first(members: Sequence[tuple[Any, Any]], value: Any) -> Any:
    """Return the value converted to the first type that accepts it. A type may come with its only allowed value."""
    for kind, allowed in members:
        with suppress(ValueError, TypeError):
            converted = convert(kind, value)
            if allowed is None or converted == allowed:
                return converted
    raise ValueError(value)


def _convert_sequence(origin: Any, members: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    if origin is tuple and not (len(members) == 2 and members[1] is Ellipsis):
        return tuple(convert(member, item) for member, item in zip(members, value, strict=True))
    return origin(convert(members[0], item) for item in value)


def convert_or_raise(kind: Any, value: Any, name: str) -> Any:
    """Return a value converted to a type. Raises OptionError if it is invalid."""
    if typing.get_origin(kind) is list and isinstance(value, list) and typing.get_args(kind)[0] in _ACCEPTED:
        return [convert_or_raise(typing.get_args(kind)[0], item, name) for item in value]
    try:
        return convert(kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise OptionError(name, f"is {quote(value)}: {value_hint(kind)}") from error


def value_hint(kind: Any) -> str:
    """Return advice for a value of this type, such as "give a whole number"."""
    kind = strip_optional(kind)
    if typing.get_origin(kind) is Literal:
        return f"choose one of {', '.join(map(str, typing.get_args(kind)))}"
    hints = {int: "give a whole number", float: "give a number", bool: "choose true or false"}
    return (hints | {str: "give text", Path: "give a path"}).get(kind, "give a list")


def strip_optional(kind: Any) -> Any:
    """Return the type inside an optional type, and any other type unchanged."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    return next(member for member in typing.get_args(kind) if member is not type(None))


# Conversion between dataclasses and nested mappings


def build(cls: type[Settings], values: Any, location: str, prefix: str = "") -> Settings:
    """Build a dataclass from a nested mapping of its fields. A missing field has its default.

    Dataclasses may nest to any depth. Text is converted to the type of its field ("5e-4" to a number).
    Raises DocmtError for unknown, missing and invalid settings. It names their location, if that is not empty, and
    their dotted name, after `prefix`.
    """
    if not isinstance(values, Mapping):
        raise DocmtError(f"{prefix.rstrip('.') or 'the configuration'} in {location} is not a group of settings")
    known = {setting.name: setting for setting in fields(typing.cast(Any, cls)) if setting.init}
    for name in sorted(map(str, set(values) - set(known))):
        raise DocmtError(f"{location} has the unknown setting {prefix}{name}: remove it, or check its spelling")
    for name, setting in known.items():
        if name not in values and is_required(setting):
            raise DocmtError(f"{location} has no setting {prefix}{name}: add it")
    converted: dict[str, Any] = {}
    for name, value in values.items():
        kind = field_types(typing.cast(type, cls))[name]
        if is_dataclass(kind):
            converted[name] = build(typing.cast(type[Any], kind), value, location, f"{prefix}{name}.")
        else:
            name_in_error = f"{location}: {prefix}{name}" if location else f"{prefix}{name}"
            converted[name] = convert_or_raise(kind, value, name_in_error)
    try:
        return cls(**converted)
    except DocmtError as error:
        if not location:
            raise
        raise DocmtError(f"{location}: {error}") from error


def is_required(setting: Field[Any]) -> bool:
    """Return whether a field has no default."""
    return setting.default is MISSING and setting.default_factory is MISSING


def field_default(setting: Field[Any]) -> Any:
    """Return the default of a field."""
    return setting.default_factory() if setting.default_factory is not MISSING else setting.default


def to_mapping(settings: Any) -> dict[str, Any]:
    """Return a dataclass as nested mappings of JSON and YAML types, the inverse of `build`."""
    return dict(_to_plain(asdict(settings)))


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def nest(values: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return settings nested in their groups, from dotted names: the inverse of `flatten`.

    location: for errors. Raises DocmtError for a name that is both a setting and a group.
    """
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        inner: Any = nested
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                raise DocmtError(f"{location} has the unknown setting {name}: check its spelling")
        if isinstance(inner.get(last), dict):
            raise DocmtError(f"{location} sets {name}, which is a group of settings: name one setting in it")
        inner[last] = value
    return nested


def find_differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted name, stored and current value of every different setting. A missing value is None."""
    old, new = flatten(stored), flatten(current)
    for name in {**old, **new}:
        if name not in old or name not in new or old[name] != new[name]:
            yield name, old.get(name), new.get(name)


def first_difference(stored: Mapping[str, Any], current: Mapping[str, Any], ignored: Sequence[str] = ()) -> str | None:
    """Return a description of the first different setting. ignored: names of settings or groups."""
    for name, old, new in find_differences(stored, current):
        if not is_selected(name, ignored):
            return f"{name} is {new!r} but was {old!r}"
    return None


def is_selected(name: str, names: Sequence[str]) -> bool:
    """Return whether a setting (dotted name) is in `names`, or in a group that is."""
    return name in names or name.split(".")[0] in names


def list_names(settings: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a dataclass and of those in it."""
    for name, kind in field_types(settings).items():
        if is_dataclass(kind):
            yield from list_names(typing.cast(type, kind), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def find_changed(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass whose values are not their defaults."""
    values = {setting: getattr(settings, setting.name) for setting in fields(settings)}
    return {setting.name: value for setting, value in values.items() if value != field_default(setting)}


def short_repr(settings: Any) -> str:
    """Return a repr of settings without those that have their defaults."""
    changed = find_changed(settings).items()
    parts = [f"{name}={short_repr(value) if is_dataclass(value) else repr(value)}" for name, value in changed]
    return f"{type(settings).__name__}({', '.join(parts)})"


# Docstrings of fields


def field_docs(cls: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, on one line, by field name."""
    classes = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
    return {name: doc for base in classes for name, doc in _module_docs(base.__module__)[base.__name__].items()}


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of every class of a module, by class name and field name."""
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
    """Return the contents of a YAML file as nested mappings and lists of text. Empty values and `null` are None.

    Values stay text because YAML reads 5e-4 as text and the language code `no` as false. `build` converts them.
    Raises DocmtError as `read_yaml_with_lines` does.
    """
    return read_yaml_with_lines(path)[0]


def read_yaml_with_lines(path: Path | str) -> tuple[Any, dict[str, int]]:
    """Return the contents of a YAML file, as `read_yaml` does, and the line of each value by its dotted name.

    Raises DocmtError, naming the line, for a file that cannot be read or is no YAML, and for repeated or invalid names.
    """
    text, lines = read_text(path), dict[str, int]()
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        return (None if root is None else _read_node(root, "", path, lines)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "characters that YAML does not allow"
        raise DocmtError(f"{location}: not valid YAML ({problem}); correct this line or the one above") from error
    except RecursionError as error:
        raise DocmtError(f"{path}: too many nested levels; use fewer") from error


def read_package_yaml(package: str, name: str, typed: bool = False) -> Any:
    """Return the contents of a YAML file in a docmt package. typed: whether scalars are not all text."""
    kind = "SafeLoader" if typed else "BaseLoader"
    loader = getattr(yaml, f"C{kind}", getattr(yaml, kind))
    return yaml.load(resources.files(package).joinpath(name).read_text(encoding="utf-8"), loader)


def _read_node(node: yaml.Node, name: str, path: Path | str, lines: dict[str, int]) -> Any:
    """Return the value of a node, and add the lines of its values to `lines`. List entries are numbered from 1."""
    prefix = f"{name}." if name else ""
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in ("", "~", "null", "Null", "NULL") else node.value
    items = enumerate(node.value, 1) if isinstance(node, yaml.SequenceNode) else node.value
    values: dict[Any, Any] = {}
    for key, item in items:
        mark = (item if isinstance(key, int) else key).start_mark
        location = f"{path}, line {mark.line + 1}"
        if not isinstance(key, int | yaml.ScalarNode):
            raise DocmtError(f"{location}: not an `option: value` line; write a name before the colon")
        last = key if isinstance(key, int) else key.value
        if (dotted := f"{prefix}{last}") in lines:
            raise DocmtError(f"{location}: {dotted} is set twice; remove one of the lines")
        lines[dotted] = mark.line + 1
        if len(lines) > MAX_YAML_VALUES:
            raise DocmtError(f"{location}: the aliases (*name) of the file expand to too many values; use fewer")
        values[last] = _read_node(item, dotted, path, lines)
    return list(values.values()) if isinstance(node, yaml.SequenceNode) else values


@contextmanager
def assigned(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Give a context variable a value while the block runs."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
