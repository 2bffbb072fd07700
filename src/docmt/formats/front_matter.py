"""Front matter of Markdown: the strings of YAML (---) and of TOML (+++) by their paths. All else keeps its bytes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import yaml

from docmt.core.errors import DocmtError
from docmt.formats.json_files import NamedString

_Child = tuple[str, Any, bool]
"""Key or index, value, and whether it is an index."""
_NO_STRINGS = frozenset(("", "~", "null", "true", "false"))
_ANCHOR = re.compile(r"(?:[&!]\S*\s+)*")
_PARAGRAPH = re.compile(r"[ \t]*[^\s][^\n]*(?:\n[ \t]*[^\s][^\n]*)*")
_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'|#[^\n]*", re.DOTALL
)


class FrontString(NamedTuple):
    """A string of front matter, or a paragraph of one."""

    value: NamedString
    text: str
    write: Callable[[str], str]
    """writes another text in its place"""


def find_front_strings(text: str, path: str) -> list[FrontString]:
    """Return the strings of front matter. text: the front matter at the beginning of a file, with its marks.

    Raises DocmtError for what is no YAML or TOML. path: name of the file.
    """
    start = text.index("\n")
    body = text[start : text.rstrip().rindex("\n") + 1]  # from the end of the first line, so that errors name the line
    try:
        strings = list(_find_toml(body) if text.startswith("+") else _find_yaml(body))
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = f"{getattr(error, 'problem', '')} at line {mark.line + 1}" if mark else " ".join(str(error).split())
        raise DocmtError(f"{path}: broken front matter ({problem}): correct it, or leave out --fields") from error
    return [
        each._replace(value=each.value._replace(start=each.value.start + start, end=each.value.end + start))
        for each in strings
    ]


def _walk(
    value: Any,
    list_children: Callable[[Any], Sequence[_Child] | None],
    path: tuple[str, ...] = (),
    is_in_list: tuple[bool, ...] = (),
) -> Iterator[tuple[Any, Callable[[int, int], NamedString]]]:
    """Yield the values without children, each with what names its characters."""
    children = list_children(value)
    if children is None:
        yield value, lambda start, end: NamedString(path, start, end, is_in_list)
    for name, child, is_index in children or ():
        yield from _walk(child, list_children, (*path, name), (*is_in_list, is_index))


def _find_yaml(text: str) -> Iterator[FrontString]:
    passed: set[int] = set()
    inline: set[int] = set()
    """ids of nodes in [] or {}"""

    def list_children(node: yaml.Node | None) -> Sequence[_Child] | None:
        if node is None or id(node) in passed:  # an alias
            return ()
        passed.add(id(node))
        children: list[_Child]
        if isinstance(node, yaml.MappingNode):
            children = [(str(key.value), child, False) for key, child in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(str(number), child, True) for number, child in enumerate(node.value)]
        else:
            return None
        if node.flow_style or id(node) in inline:
            inline.update(id(child) for _, child, _ in children)
        return children

    for node, name in _walk(yaml.compose(text, Loader=yaml.BaseLoader), list_children):
        anchor = _ANCHOR.match(text, node.start_mark.index)
        start, end = anchor.end() if anchor else 0, node.end_mark.index
        if node.style in ("|", ">"):
            yield from _find_paragraphs(text, text.find("\n", start) + 1, end, node.style, name)
        elif node.style or node.value.lower() not in _NO_STRINGS:
            write = partial(_write_yaml, style=node.style or "", is_inline=id(node) in inline)
            yield FrontString(name(start, end), node.value, write)


def _find_paragraphs(
    text: str, start: int, end: int, style: str, name: Callable[[int, int], NamedString]
) -> Iterator[FrontString]:
    """Yield the paragraphs of a block scalar. start, end: its lines."""
    for match in _PARAGRAPH.finditer(text, start, end):
        lines = [line.rstrip() for line in match[0].split("\n")]
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        lines = [line.removeprefix(indent) for line in lines]
        is_folded = style == ">" and not any(line[0].isspace() for line in lines)
        line_end = ("\r\n" if "\r\n" in text else "\n") + indent
        yield FrontString(
            name(match.start() + len(indent), match.start() + len(match[0].rstrip())),
            (" " if is_folded else "\n").join(lines),
            partial(re.sub, r"\n", line_end),
        )


def _write_yaml(text: str, style: str, is_inline: bool) -> str:
    """Return a string in its quotes, or in quotes if it needs them."""
    if style == "'" and "\n" not in text:
        return "'" + text.replace("'", "''") + "'"
    if not style:
        try:
            if yaml.safe_load(f"[{text}]" if is_inline else f"- {text}") == [text]:
                return text
        except yaml.YAMLError:
            pass
    return json.dumps(text, ensure_ascii=False)


def _find_toml(text: str) -> Iterator[FrontString]:
    tomllib.loads(text)
    tokens = [match for match in _TOML_TOKEN.finditer(text) if match[0][0] != "#"]
    by_mark = {f"\ue000{number}": token for number, token in enumerate(tokens)}
    marked, position = "", 0
    for mark, token in by_mark.items():
        marked, position = f'{marked}{text[position : token.start()]}"{mark}"', token.end()

    def list_children(value: Any) -> Sequence[_Child] | None:
        if isinstance(value, dict):
            return [
                (_read_toml(by_mark[key][0]) if key in by_mark else key, child, False) for key, child in value.items()
            ]
        if isinstance(value, list):
            return [(str(number), child, True) for number, child in enumerate(value)]
        return None if isinstance(value, str) else ()

    for mark, name in _walk(tomllib.loads(marked + text[position:]), list_children):
        raw = by_mark[mark][0]
        yield FrontString(name(*by_mark[mark].span()), _read_toml(raw), partial(_write_toml, raw=raw))


def _read_toml(raw: str) -> str:
    return str(tomllib.loads(f"x = {raw}")["x"])


def _write_toml(text: str, raw: str) -> str:
    """Return a string in the quotes of another one, if they can hold it."""
    quotes = raw[:3] if raw[:3] in ('"""', "'''") else raw[0]
    if quotes[0] == "'" and "'" not in text and ("\n" not in text or len(quotes) == 3):
        inner = text
    elif quotes == '"""':
        inner = "\n".join(json.dumps(line, ensure_ascii=False)[1:-1] for line in text.split("\n"))
    else:
        return json.dumps(text, ensure_ascii=False)
    line_end = "\r\n" if "\r\n" in raw else "\n"
    first = line_end if len(quotes) == 3 and raw[3:].lstrip("\r")[:1] == "\n" else ""
    return quotes + first + inner.replace("\n", line_end) + quotes
