"""YAML files: one reader for recipes, experiments and runs, which takes words as they are written.

YAML's own types would make text of the number 5e-4 and `false` of the language code `no`. So every value is text here,
and becomes what its setting is in `docmt.core.settings.build`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_text

DEEPEST = 40
"""levels of mappings and lists in each other"""
MOST_VALUES = 100_000
"""values of a file, those that aliases (*name) stand for counted each time"""
_NOTHING = ("", "~", "null", "Null", "NULL")


def read_yaml(path: Path | str) -> Any:
    """What stands in a YAML file: nested mappings and lists of text, None for nothing and for a plain `null`.

    Raises DocmtError, naming the line, for what `compose` refuses.
    """
    node = compose(path)
    return None if node is None else _value(node)


def compose(path: Path | str) -> yaml.Node | None:
    """The nodes of a YAML file, whose scalars hold what was written; None for an empty file.

    Raises DocmtError, naming the line, for a file that cannot be read, is no YAML, is nested too deeply, says the same
    thing twice, has names that are no text, characters that no setting can have, or aliases that stand for too much.
    """
    text = read_text(path)
    try:
        _check_depth(text, path)
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise DocmtError(_broken(path, error)) from error
    if root is not None:
        _check_nodes(root, path)
    return root


def place_of(path: Path | str, node: yaml.Node) -> str:
    """File and line, for messages."""
    return f"{path}, line {node.start_mark.line + 1}"


def _check_depth(text: str, path: Path | str) -> None:
    """Looks before anything walks through the file, which takes a call for each level."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            place = f"{path}, line {event.start_mark.line + 1}" if event.start_mark else path
            raise DocmtError(f"{place}: more than {DEEPEST} levels in each other; write it with fewer")


def _check_nodes(root: yaml.Node, path: Path | str) -> None:
    names: set[str] = set()
    for count, (node, name, depth) in enumerate(_walk(root, "", path, 0)):
        place = place_of(path, node)
        if count > MOST_VALUES or depth > DEEPEST:
            raise DocmtError(f"{place}: the aliases (*name) of the file stand for too many values; write them out")
        if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
            raise DocmtError(f"{place}: {name} holds a NUL character (\\0), which no setting can have; remove it")
        if name and name in names:
            raise DocmtError(f"{place}: {name} is there twice; remove one of them")
        names.add(name)


def _walk(node: yaml.Node, name: str, path: Path | str, depth: int) -> Iterator[tuple[yaml.Node, str, int]]:
    """Every value with its dotted name, aliases followed; entries of lists are numbered from 1."""
    yield node, name, depth
    start = f"{name}." if name else ""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value, 1):
            yield from _walk(item, f"{start}{number}", path, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DocmtError(f"{place_of(path, key)}: not an `option: value` line; write a word before the colon")
            # Told where the name stands, which is above a group.
            yield from _walk(_named(value, key), f"{start}{key.value}", path, depth + 1)


def _named(value: yaml.Node, key: yaml.Node) -> yaml.Node:
    return type(value)(value.tag, value.value, key.start_mark, value.end_mark)


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    is_plain = getattr(node, "style", None) is None  # not in quotes
    return None if is_plain and node.value in _NOTHING else node.value


def _broken(path: Path | str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"{path}, line {mark.line + 1}" if mark else str(path)
    problem = getattr(error, "problem", None) or "it holds characters that YAML does not allow"
    return f"{place}: not valid YAML ({problem}); mend the line, or the one above it"
