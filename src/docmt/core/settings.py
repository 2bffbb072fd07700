"""Settings: dataclasses whose fields are checked, built from nested mappings, and compared."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from docmt.core.errors import DocmtError

Settings = TypeVar("Settings")
Number = TypeVar("Number", int, float)

OLD_NAME = "old name"
"""Key of a field's metadata: what earlier versions called it. `build` still reads it."""
MANY = 10**9
"""The most of anything that is only counted: updates, tokens, minutes."""
LONGEST_SHOWN = 80
"""Characters of a value in a message."""


def one_of(flag: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raises DocmtError unless `value` is allowed."""
    if value not in allowed:
        raise DocmtError(f"{flag} is {shown(value)}: choose one of {', '.join(allowed)}")


def ranged(default: Number, least: float, most: float) -> Number:
    """A field of a dataclass that may be a number from `least` to `most`; `check_fields` sees to it."""
    return field(default=default, metadata={"range": (least, most)})


def range_of(settings: type, name: str) -> tuple[float, float]:
    """The least and the most that a field made with `ranged` may be."""
    found: tuple[float, float] = {each.name: each for each in fields(settings)}[name].metadata["range"]
    return found


def check_fields(settings: Any, prefix: str) -> None:
    """Raises DocmtError for a number outside of the range of its field, and for what is none of a Literal's values.

    Every whole or decimal number has a range: those that no machine can compute with are mistakes, and are told here
    instead of overflowing somewhere later.
    """
    kinds = typing.get_type_hints(type(settings))
    for each in fields(settings):
        flag, value, kind = f"{prefix}{each.name}", getattr(settings, each.name), kinds[each.name]
        if typing.get_origin(kind) is Literal:
            one_of(flag, value, typing.get_args(kind))
        elif kind in (int, float):
            check_number(flag, value, each.metadata["range"], whole=kind is int)


def check_number(flag: str, value: Any, range: tuple[float, float], whole: bool = True) -> None:
    """Raises DocmtError unless `value` is a number (or whole number) in the range."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise DocmtError(f"{flag} is {shown(value)}: {_wanted(int if whole else float)}")
    least, most = range
    if not least <= value <= most:  # not so either for what is no number
        raise DocmtError(f"{flag} is {shown(value)}: choose a number from {least:,} to {most:,}")


def shown(value: object) -> str:
    """The value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def build(cls: type[Settings], values: Any, where: str, prefix: str = "") -> Settings:
    """A dataclass from a nested mapping of its fields; fields that are not there keep their defaults.

    Dataclasses may nest to any depth. A value may be of the type of its field or, as in YAML files and on the command
    line, text: "5e-4" becomes a number where the field is one. Raises DocmtError naming `where` the values are and the
    dotted name (after `prefix`) of what is unknown, missing, or of another type.
    """
    if not isinstance(values, Mapping):
        raise DocmtError(f"{prefix.rstrip('.') or 'the configuration'} in {where} is no group of settings")
    values, kinds = _current_names(cls, values), typing.get_type_hints(cls)
    known = {each.name: each for each in fields(typing.cast(Any, cls)) if each.init}
    for name in sorted(map(str, set(values) - set(known))):
        raise DocmtError(f"{where} has the unknown setting {prefix}{name}: remove it, or check its spelling")
    for name, each in known.items():
        if name not in values and _is_required(each):
            raise DocmtError(f"{where} has no setting {prefix}{name}: add it")
    built = {name: _converted(kinds[name], value, where, f"{prefix}{name}") for name, value in values.items()}
    try:
        return cls(**built)
    except DocmtError as error:
        raise DocmtError(f"{where}: {error}") from error


def _current_names(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a dataclass with the names that earlier versions had (`OLD_NAME`) replaced."""
    new_names = {each.metadata[OLD_NAME]: each.name for each in fields(cls) if OLD_NAME in each.metadata}
    return {name if (new := new_names.get(name, name)) in values else new: value for name, value in values.items()}


def _is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _converted(kind: Any, value: Any, where: str, name: str) -> Any:
    """The value as the type of its field has it."""
    if is_dataclass(kind):
        return build(typing.cast(type[Any], kind), value, where, f"{name}.")
    try:
        return _of_kind(kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise DocmtError(f"{where}: {name} is {shown(value)}: {_wanted(kind)}") from error


def _of_kind(kind: Any, value: Any) -> Any:
    """Raises ValueError or TypeError for what is not of this kind."""
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in members:
            return None
        return _first_fit([member for member in members if member is not type(None)], value)
    if origin is Literal:
        return _first_fit([type(member) for member in members], value, members)
    if origin in (list, tuple, set, frozenset, Sequence):
        return _sequence(origin, members, value)
    convert = _CONVERSIONS.get(kind)
    return value if convert is None else convert(value)


def _first_fit(kinds: Iterable[Any], value: Any, allowed: tuple[Any, ...] | None = None) -> Any:
    for kind in kinds:
        try:
            found = _of_kind(kind, value)
        except (ValueError, TypeError):
            continue
        if allowed is None or found in allowed:
            return found
    raise ValueError(value)


def _sequence(origin: Any, members: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    made = tuple if origin is Sequence else origin
    if origin is tuple and not (len(members) == 2 and members[1] is Ellipsis):
        return tuple(_of_kind(member, item) for member, item in zip(members, value, strict=True))
    return made(_of_kind(members[0], item) for item in value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    if isinstance(value, str):
        value = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}.get(value.lower(), value)
    return float(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if _text(value) not in ("true", "True", "TRUE", "false", "False", "FALSE"):
        raise ValueError(value)
    return value.lower() == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError(value)
    if "\0" in str(value):
        raise ValueError(value)
    return Path(value)


_CONVERSIONS: dict[Any, typing.Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _truth,
    str: _text,
    Path: _path,
}


def _wanted(kind: Any) -> str:
    """How to ask for a value of this type."""
    if typing.get_origin(kind) is Literal:
        return f"choose one of {', '.join(map(str, typing.get_args(kind)))}"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return _wanted(next(member for member in typing.get_args(kind) if member is not type(None)))
    known = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return f"give {known.get(kind, 'a list')}"


def plain(settings: Any) -> dict[str, Any]:
    """A dataclass as nested mappings of what JSON and YAML have: the inverse of `build`."""
    made: dict[str, Any] = _plain(asdict(settings))
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def nested(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings by dotted name in their groups: the inverse of `flat`.

    Raises DocmtError for a name that is a setting and a group.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        place: Any = found
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise DocmtError(f"{where} has the unknown setting {name}: check its spelling")
        if isinstance(place.get(last), dict):
            raise DocmtError(f"{where} sets {name}, which is a group of settings: name the one that is meant")
        place[last] = value
    return found


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Dotted name, stored and wanted value of every setting in which the two differ; None where one lacks it."""
    old, new = flat(stored), flat(wanted)
    for name in {**old, **new}:
        if name not in old or name not in new or old[name] != new[name]:
            yield name, old.get(name), new.get(name)


def first_difference(stored: Mapping[str, Any], wanted: Mapping[str, Any], but: Sequence[str] = ()) -> str | None:
    """The first setting in which two configurations differ, in words. `but`: names or groups that do not count."""
    for name, old, new in difference(stored, wanted):
        if not is_among(name, but):
            return f"{name} is {new!r} but was {old!r}"
    return None


def is_among(name: str, names: Sequence[str]) -> bool:
    """Whether a setting, by its dotted name, is one of those named, or in a group that is."""
    return name in names or name.split(".")[0] in names


def brief(settings: Any) -> str:
    """A repr of settings that tells only what differs from the defaults."""
    given = [
        f"{field.name}={brief(value) if is_dataclass(value) else repr(value)}"
        for field in fields(settings)
        if (value := getattr(settings, field.name)) != _default(field)
    ]
    return f"{type(settings).__name__}({', '.join(given)})"


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
