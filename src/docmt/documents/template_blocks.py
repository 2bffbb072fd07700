"""Blocks of templates: {% if a %} ... {% else %} ... {% endif %}. What their tags part is no sentence together."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from docmt.core.settings import read_package_yaml
from docmt.documents.words import Span

SIGNS = re.compile(r"[{<\[]%|\{\{|<\?|\*\||\{[#/:]?[a-z]|</?#")
"""What each tag of a template begins with."""
_NEAR = 50
"""Open tags before an end among which its beginning is searched."""


class TemplateTag(NamedTuple):
    """A tag of a template that shows nothing."""

    span: Span
    kind: Literal["open", "close", "single"]
    name: str
    """that both tags of a block share"""
    may_stand_alone: bool


@cache
def _load_tags() -> tuple[re.Pattern[str], list[dict[str, Any]]]:
    """Return the pattern of all tags, and that of each kind."""
    kinds = read_package_yaml(__package__, "template_tags.yaml", typed=True)
    return re.compile("|".join(each["pattern"] for each in kinds)), kinds


def find_template_tags(text: str) -> Iterator[TemplateTag]:
    """Yield the tags of blocks in a text."""
    pattern, kinds = _load_tags()
    for tag in pattern.finditer(text) if SIGNS.search(text) else ():
        matches = ((each, re.fullmatch(each["pattern"], tag[0])) for each in kinds)
        kind, match = next((kind, match) for kind, match in matches if match)
        name = tag[0][:2] + "".join(filter(None, match.groups())).lower()
        yield TemplateTag(tag.span(), kind["kind"], name, "alone" in kind)


def find_blocks(contents: Sequence[str]) -> list[list[int]]:
    """Return the indices of the contents of codes that are the tags of each block, see `match_blocks`."""
    tagged = [(index, tag) for index, content in enumerate(contents) for tag in find_template_tags(content)]
    return [[tagged[place][0] for place in block] for block in match_blocks([tag for _, tag in tagged])]


def match_blocks(tags: Sequence[TemplateTag]) -> Iterator[list[int]]:
    """Yield the indices of the tags of each block: its first one, those that part its alternatives, its last one.

    Tags of blocks that the text does not have as a whole are yielded one by one.
    """
    opened: list[int] = []
    breaks: list[int] = []
    alone: list[int] = []
    for index, tag in enumerate(tags):
        if tag.kind == "open":
            opened.append(index)
        elif tag.kind == "single":
            breaks.append(index)
        elif any(tags[each].name == tag.name for each in opened[-_NEAR:]):
            while tags[start := opened.pop()].name != tag.name:
                alone.append(start)
            count = bisect_left(breaks, start)
            yield [start, *breaks[count:], index]
            del breaks[count:]
        else:
            alone.append(index)
    yield from ([each] for each in (*alone, *opened, *breaks) if not tags[each].may_stand_alone)
