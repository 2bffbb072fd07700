"""Front matter of Markdown: the strings of YAML (---) and of TOML (+++) by their paths. All else keeps its bytes.

A scanner finds the strings, keys among them, and each is replaced by a mark. The parser of the language then says at
which path each mark is.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import yaml

from docmt.core.errors import DocmtError
from docmt.formats.patched_text import PatchedText
from docmt.formats.string_files import MARK, NamedString, name_marks

_NO_STRINGS = frozenset(("", "~", "null", "true", "false"))
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


class _Token(NamedTuple):
    """A string or a key, without its path and the line break at its end."""

    start: int
    end: int
    name: str
    """its value as a key"""
    strings: list[FrontString]


def find_front_strings(text: str, path: str) -> list[FrontString]:
    """Return the strings of front matter. text: the front matter at the beginning of a file, with its marks.

    Raises DocmtError for what is no YAML or TOML. path: name of the file.
    """
    first, last = text.index("\n"), text.rstrip().rindex("\n") + 1
    body = " " * first + text[first:last]  # so that errors name the line
    is_toml = text.startswith("+")
    try:
        if is_toml:
            tomllib.loads(body)
        else:
            yaml.compose(body, Loader=yaml.BaseLoader)
        tokens = list(_scan_toml(body) if is_toml else _scan_yaml(body))
        marks = [(token.start, token.end, f'"{MARK}{number}"') for number, token in enumerate(tokens)]
        marked = PatchedText(body).render((), (), marks)
        tree = tomllib.loads(marked) if is_toml else yaml.load(marked, yaml.BaseLoader)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = f"{getattr(error, 'problem', '')} at line {mark.line + 1}" if mark else " ".join(str(error).split())
        raise DocmtError(f"{path}: broken front matter ({problem}): correct it, or leave out --fields") from error
    return [
        each._replace(value=each.value._replace(path=path, is_in_list=is_in_list))
        for number, path, is_in_list in name_marks(tree, lambda number: tokens[number].name)
        for each in tokens[number].strings
    ]


def _scan_yaml(text: str) -> Iterator[_Token]:
    depth = 0  # of [] and {}
    for token in yaml.scan(text, Loader=yaml.BaseLoader):
        depth += isinstance(token, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken))
        depth -= isinstance(token, (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken))
        if isinstance(token, yaml.ScalarToken):
            start, end = token.start_mark.index, token.end_mark.index
            strings: list[FrontString] = []
            if token.style in ("|", ">"):
                strings += _find_paragraphs(text, text.find("\n", start) + 1, end, token.style)
            elif token.style or token.value.lower() not in _NO_STRINGS:
                write = partial(_write_yaml, style=token.style or "", is_inline=depth > 0)
                strings.append(FrontString(NamedString((), start, end, ()), token.value, write))
            yield _Token(start, end - (text[end - 1] == "\n"), token.value, strings)


def _find_paragraphs(text: str, start: int, end: int, style: str) -> Iterator[FrontString]:
    """Yield the paragraphs of a block scalar. start, end: its lines."""
    for match in _PARAGRAPH.finditer(text, start, end):
        lines = [line.rstrip() for line in match[0].split("\n")]
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        lines = [line.removeprefix(indent) for line in lines]
        is_folded = style == ">" and not any(line[0].isspace() for line in lines)
        line_end = ("\r\n" if "\r\n" in text else "\n") + indent
        span = match.start() + len(indent), match.start() + len(match[0].rstrip())
        string = (" " if is_folded else "\n").join(lines)
        yield FrontString(NamedString((), *span, ()), string, partial(re.sub, r"\n", line_end))


def _write_yaml(text: str, style: str, is_inline: bool) -> str:
    """Return a string in its quotes, or in quotes if it needs them."""
    if style == "'" and "\n" not in text:
        return "'" + text.replace("'", "''") + "'"
    if not style:
        with suppress(yaml.YAMLError):
            if yaml.safe_load(f"[{text}]" if is_inline else f"- {text}") == [text]:
                return text
    return json.dumps(text, ensure_ascii=False)


def _scan_toml(text: str) -> Iterator[_Token]:
    for match in _TOML_TOKEN.finditer(text):
        if match[0][0] != "#":
            string = str(tomllib.loads(f"x = {match[0]}")["x"])
            named = NamedString((), match.start(), match.end(), ())
            yield _Token(*match.span(), string, [FrontString(named, string, partial(_write_toml, raw=match[0]))])


def _write_toml(text: str, raw: str) -> str:
    """Return a string in the quotes of another one, if they can hold it."""
    quotes = raw[:3] if raw[:3] in ('"""', "'''") else raw[0]
    first, line_end = re.match(r"\r?\n|", raw[len(quotes) :]), "\r\n" if "\r\n" in raw else "\n"
    if quotes == '"""':
        text = "\n".join(json.dumps(line, ensure_ascii=False)[1:-1] for line in text.split("\n"))
    elif quotes == '"' or quotes in text or text[-1:] == "'" or ("\n" in text and len(quotes) == 1):
        return json.dumps(text, ensure_ascii=False)
    return quotes + (first[0] if first else "") + text.replace("\n", line_end) + quotes
