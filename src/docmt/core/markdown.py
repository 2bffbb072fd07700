"""Markdown that says what it was given: names that strangers wrote become no marks, links, tags or cells of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from docmt.core.errors import printable

# What is a mark, and what begins a tag (`<b`), a link (`](`) or a character by its name (`&lt;`).
_MARKS = re.compile(r"[\\`*_|~]|<(?=[a-zA-Z/!?])|\](?=\()|&(?=#?\w+;)")


def escaped(text: str) -> str:
    """A text as a line or a cell of a table shows it, character by character, with the indent that would be dropped."""
    shown = printable(text)
    inner = shown.lstrip(" ")
    return "&nbsp;" * (len(shown) - len(inner)) + _MARKS.sub(r"\\\g<0>", inner.rstrip(" "))


def code_cell(text: str) -> str:
    """A text without backticks as code in a cell of a table, which a bar would end even there."""
    return f"`{printable(text)}`".replace("|", "\\|")


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a table, whose first row is its head; cells are Markdown: what is none must be `escaped` before.

    left: how many columns begin at the left; the others, numbers, end at the right.
    """
    head, *others = rows
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *others)]


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table in plain text: the first column at the left, all others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])
