"""Strings of a file by the paths of their keys, and those that `--fields` names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from docmt.core.errors import DocmtError

ANY = "*"
SHOWN_PATHS = 5
"""Paths in a message."""
_IDENTIFIER = re.compile(
    r"""
    [\w+.-]+://\S* | (?:mailto|tel|data):\S+ | www\.\S+ | [\w.+-]+@[\w-]+\.[\w.]+  # addresses
    | (?:\.{0,2}/|~/|[A-Za-z]:\\)\S* | [\w.@-]+(?:/[\w.@-]+){2,}/? | [\w-]+/[\w-]+\.\w{1,5}  # paths
    | [\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{1,4}  # names of files
    | [\w-]+(?:\.[\w-]+){2,}  # keys
    | \#[0-9A-Fa-f]{3,8} | (?:rgb|hsl)a?\([^()]*\)  # colours
    | [-+]?\d[\d.,]*\s?(?:px|em|rem|pt|vh|vw|ms|s|%)?  # numbers
    | \d{4}-\d\d(?:-\d\d)?(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)? | \d\d?[./]\d\d?[./]\d{2,4}  # dates
    | \w*_\w* | [a-z]+(?:[A-Z][a-z0-9]*)+ | [A-Z][a-z]+(?:[A-Z][a-z]+)+ | [a-z0-9]+(?:-[a-z0-9]+){2,}  # names
    | (?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9-]{6,} | [a-z]{2}-[A-Z]{2}  # ids, languages
    """,
    re.VERBOSE | re.ASCII,
)


class NamedString(NamedTuple):
    """A string of a file with named values."""

    path: tuple[str, ...]
    start: int
    end: int
    """of its characters with the quotes"""
    is_in_list: tuple[bool, ...]
    """of each part of the path, whether it is an index"""

    @property
    def pattern(self) -> str:
        """The path with * for indices."""
        return ".".join(ANY if index else part for part, index in zip(self.path, self.is_in_list, strict=True))


def select_strings(
    values: Sequence[NamedString], fields: Sequence[str], path: str
) -> Iterator[tuple[NamedString, bool]]:
    """Yield the strings at the paths of `fields`, each with whether its whole path is one of them.

    Raises DocmtError for a path without strings. path: name of the file.
    """
    patterns = [tuple(each.split(".")) for each in fields]
    used = set()
    for value in values:
        parts = tuple(".".join(value.path).split("."))  # keys may have dots
        matches = [number for number, each in enumerate(patterns) if _matches(each, parts)]
        if matches:
            used.update(matches)
            yield value, any(len(patterns[each]) == len(parts) and patterns[each][-1] != ANY for each in matches)
    for number, name in enumerate(fields):
        if number not in used:
            paths = list(dict.fromkeys(value.pattern for value in values))
            near = get_close_matches(name, paths[:1000], SHOWN_PATHS, 0.5)
            raise DocmtError(f"{path}: no string at {name}. {_suggest(near or paths[:SHOWN_PATHS])}")


def _suggest(paths: Sequence[str]) -> str:
    return f"Strings are at {', '.join(paths)}: name one of these." if paths else "It has no strings."


def _matches(field: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(field) <= len(path) and all(
        part in (ANY, other) for part, other in zip(field, path[: len(field)], strict=True)
    )


def is_identifier(text: str) -> bool:
    """Return whether a string looks like an id, an address, a path, a number, a colour, a date or a name of a file."""
    return len(text) < 2000 and _IDENTIFIER.fullmatch(text.strip()) is not None
