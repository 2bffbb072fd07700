"""Inline markup of documentation in message catalogs: reStructuredText and POD, in which po4a also writes manual pages.

The patterns are in documentation_markup.yaml. Their sources are perlpod and the specification of reStructuredText,
https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html#inline-markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from docmt.core.settings import read_package_yaml
from docmt.formats.placeholders import hide_placeholders
from docmt.formats.units import Code, Unit, UnitBuilder

_CLASSES = {
    r"\p{roles}": "abbr|dfn|emphasis|guilabel|menuselection|strong|title|title-reference|t",
    r"\p{angles}": r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*+>)*+>",
}


class Markup(NamedTuple):
    """A language of inline markup."""

    comments: str
    texts: str
    singles: str
    pairs: str
    """regular expressions: see documentation_markup.yaml"""
    separator: str
    """what stands between a word and markup beside it"""


@cache
def load_markup() -> list[Markup]:
    """Return the languages of inline markup."""
    return [_read_markup(each) for each in read_package_yaml("docmt.formats", "documentation_markup.yaml")]


def _read_markup(entry: dict[str, Any]) -> Markup:
    singles, pairs = "|".join(entry["singles"]), "|".join(entry["pairs"])
    for name, pattern in _CLASSES.items():
        singles, pairs = singles.replace(name, pattern), pairs.replace(name, pattern)
    return Markup(entry["comments"], entry["texts"], singles, pairs, entry["separator"])


def find_markup(comments: str, texts: Iterable[str]) -> Markup | None:
    """Return the markup of a catalog. comments: its lines; texts: its messages."""
    messages = "\n\n".join(texts)
    for markup in load_markup():
        if re.search(markup.comments, comments, re.MULTILINE) or re.search(markup.texts, messages):
            return markup
    return None


def hide_markup(text: str, markup: Markup, id: str, protect: Sequence[str] = ()) -> Unit:
    """Return the unit of a message, with its markup and its placeholders as codes. protect: see `ReadConfig`."""
    builder = UnitBuilder()
    _add(builder, text, re.compile(f"{markup.singles}|{markup.pairs}", re.DOTALL))
    return hide_placeholders(builder.finish(id), [f"(?s:{markup.singles})"], protect)


def _add(builder: UnitBuilder, text: str, pattern: re.Pattern[str]) -> None:
    position = 0
    for match in pattern.finditer(text):
        if groups := [group for group in match.groups() if group]:
            builder.add_text(text[position : match.start()])
            id, end = f"m{builder.code_count + 1}", f" <{groups[1]}_>`_" if groups[2] == "`_" else groups[2]
            builder.open(id, groups[0], can_copy=end[-1] in "*>" and groups[0] != "L<")
            _add(builder, groups[1], pattern)
            builder.close(id, end)
            position = match.end()
    builder.add_text(text[position:])


def separate_words(unit: Unit, markup: Markup) -> str:
    """Return a message with the separator between each letter and the markup beside it."""
    parts: list[str] = []
    last: str | Code = ""
    for part in unit.segments():
        before, after = last if isinstance(last, str) else last.content, part if isinstance(part, str) else part.content
        is_end = isinstance(last, Code) and last.kind != "open" and before[-1:] in ("`", "*", "|", "_")
        is_start = isinstance(part, Code) and part.kind != "close" and re.match(r"[`*|]|:\w", after) is not None
        is_glued = (is_end and after[:1].isalnum()) or (is_start and before[-1:].isalnum())
        parts += [markup.separator * is_glued, after]
        last = part
    return "".join(parts)
