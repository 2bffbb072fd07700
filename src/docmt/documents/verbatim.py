"""Lines that are never translated: code, tables and HTML in Markdown, code between fences in plain text.

What a line is follows CommonMark 0.31 (https://spec.commonmark.org/0.31.2/) and the tables of GitHub, as far as whole
lines can say it. Code that is only indented is taken for text: in plain text and in lists it mostly is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
_ITEM = re.compile(r"(?:>\s?|[-*+]\s+|\d{1,9}[.)]\s+)+")  # what a fence may stand behind: marks of lists and quotes
_RULE_LINE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
_DEFINITION = re.compile(r"\[(?!\^)[^\]]+\]:\s*\S")
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}

# The blocks of HTML that CommonMark knows: how they begin, and how they end (None: with an empty line).
_BLOCK_TAGS = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|"
    "track|ul"
)
_HTML: tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...] = (
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<(script|pre|style|textarea)(\s|>|$)", re.IGNORECASE), re.compile(r"</(script|pre|style|textarea)>")),
    (re.compile(rf"</?({_BLOCK_TAGS})(\s|/?>|$)", re.IGNORECASE), None),
    (re.compile(r"</?[a-z][\w-]*(\s[^<>]*)?>$", re.IGNORECASE), None),
)


@dataclass(frozen=True)
class Verbatim:
    """Lines that follow each other and stay as they are."""

    start: int
    end: int
    lines: int
    kind: str
    """what they are, as a message says it: "code", "tables", ..."""


def fenced(text: str) -> list[Verbatim]:
    """The code in plain text: what stands between fences, which must be closed.

    Rows of ~ underline headings in plain text, and open code only where they name its language (`~~~ python`).
    """
    return _found(text, markdown=False)


def markdown_blocks(text: str) -> list[Verbatim]:
    """The code, tables, HTML, front matter and link definitions of Markdown."""
    return _found(text, markdown=True)


def _found(text: str, markdown: bool) -> list[Verbatim]:
    lines = list(_LINE.finditer(text))
    bare = [line[0].removeprefix("\ufeff").strip() for line in lines]
    found = []
    number = 0
    unclosed: dict[str, int] = {}
    while number < len(lines):
        kind, after = next(_blocks(bare, number, markdown, unclosed), ("", number + 1))
        if kind:
            found.append(Verbatim(lines[number].start(), lines[after - 1].end(), after - number, kind))
        number = after
    return found


def _blocks(lines: list[str], number: int, markdown: bool, unclosed: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yields (kind, line after the last) of what begins in this line and stays as it is.

    `unclosed`: of each kind of fence the shortest that nothing after it closes, so that none is looked for again.
    """
    if after := _fence(lines, number, markdown, unclosed):
        yield "code", after
    if not markdown:
        return
    if number == 0 and (after := _front_matter(lines)):
        yield "front matter", after
    if after := _table(lines, number):
        yield "tables", after
    if after := _html(lines, number):
        yield "HTML", after
    if _DEFINITION.match(lines[number]) and (number == 0 or not lines[number - 1] or _is_definition(lines[number - 1])):
        yield "link definitions", number + 1


def _is_definition(line: str) -> bool:
    return _DEFINITION.match(line) is not None


def _fence(lines: list[str], number: int, markdown: bool, unclosed: dict[str, int]) -> int:
    """The line after the code that a fence opens here, or 0. In Markdown an open fence lasts to the end."""
    opening = _FENCE.match(_without_marks(lines[number]))
    if opening is None or (not markdown and opening["marks"][0] == "~" and not opening["info"].strip()):
        return 0
    marks = opening["marks"]
    if unclosed.get(marks[0], len(marks) + 1) <= len(marks):
        return 0
    for place in range(number + 1, len(lines)):
        line = lines[place].lstrip("> ")
        if line.startswith(marks) and not line.strip(marks[0]):
            return place + 1
    unclosed[marks[0]] = len(marks)
    return len(lines) if markdown else 0


def _without_marks(line: str) -> str:
    item = _ITEM.match(line)
    return line[item.end() :] if item else line


def _front_matter(lines: list[str]) -> int:
    ends = _FRONT_MATTER.get(lines[0], ())
    return next((number + 1 for number, line in enumerate(lines) if number and line in ends), 0)


def _table(lines: list[str], number: int) -> int:
    """The line after a table: a row of headings, a rule line, and rows as long as there are bars in them."""
    if "|" not in lines[number] or number + 1 == len(lines):
        return 0
    rule = lines[number + 1]
    if "|" not in rule or not _RULE_LINE.match(rule):
        return 0
    after = number + 2
    while after < len(lines) and "|" in lines[after]:
        after += 1
    return after


def _html(lines: list[str], number: int) -> int:
    for opening, closing in _HTML:
        if not opening.match(lines[number]):
            continue
        if closing is None:
            return next((place for place in range(number, len(lines)) if not lines[place]), len(lines))
        return next((place + 1 for place in range(number, len(lines)) if closing.search(lines[place])), len(lines))
    return 0
