"""The layout of text: what of it is running text, what are marks and blank lines, and what stays as it is.

A *block* is a stretch that sentences are looked for in: one line, or the joined lines of one paragraph. What
stands between blocks (white space, bullets, numbering, quote and heading marks, ruled lines) is never translated.

Nor are *verbatim* lines: code, tables and HTML in Markdown, code between fences in plain text. What a line is follows
CommonMark 0.31 (https://spec.commonmark.org/0.31.2/) and the tables of GitHub, as far as whole lines can say it. Code
that is only indented is taken for text: in plain text and in lists it mostly is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from docmt.core.plain_text import BYTE_ORDER_MARK

LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_PARAGRAPH_BREAKS = ("\x0c", "\u2029")  # a form feed and a paragraph separator end a paragraph by themselves

# What may stand before the text of a line. Nested marks ("> - 1. text") are taken together.
_MARK = r"""
    (?: (?P<quote> >+ )
      | (?: (?P<heading> \#{1,6} )
          | (?P<bullet> [-*+•‣⁃◦∙·▪▫●○■□–—] | \[[ xX]\] )
          | (?P<number> \d{1,3}[.)] %s | \(\d{1,3}\) | \(?[A-Za-z]\) | \(?[ivxIVX]{2,5}\) )
        ) (?= \s | $ )
    ) \s*
"""
# German writes ordinals with a full stop: "3. Oktober" at the start of a line is a date, not item 3 of a list.
GERMAN_ORDINAL_NOUN = (
    r"(?:Jan(?:uar|\.)|Jänner|Feb(?:ruar|\.)|März|April|Mai|Juni|Juli|Aug(?:ust|\.)|Sept(?:ember|\.)|"
    r"Okt(?:ober|\.)|Nov(?:ember|\.)|Dez(?:ember|\.)|Jahrhunderts?|Jh\.|Jahrtausends?|Weltkriegs?|Weltkrieges|"
    r"Geburtstage?s?|Lebensjahre?s?|Klasse|Auflage|Etage|Stock|Platz|Tag|Mal|Runde|Spieltag|Liga)(?!\w)"
)
_MARKS = re.compile(_MARK % "", re.VERBOSE)
_GERMAN_MARKS = re.compile(_MARK % rf"(?! \s+ {GERMAN_ORDINAL_NOUN} )", re.VERBOSE)
_FIRST_NUMBERS = {"1.", "1)", "(1)", "a)", "(a)", "A)", "(A)"}
_UNDERLINE = re.compile(r"([=\-~^*\"'`#+_])\1+")
_NARROWEST_PAGE = 30
"""Lines that end in the middle of sentences are not wrapped at fewer characters than these."""
_OPEN_END = re.compile(r"[^.!?…:;,。！？：；，、)\]\-–—]$")


class _Line(NamedTuple):
    """One line of text without its white space and marks; start == end for a line with nothing to translate."""

    start: int
    end: int
    kind: str = "text"  # "text" | "quote" | "heading" | "bullet" | "number": the last mark before the text
    opens: bool = True  # whether the marks may interrupt a paragraph
    bare_start: int = 0  # where the text starts if the marks are taken for text
    ends_paragraph: bool = False

    @property
    def empty(self) -> bool:
        return self.start == self.end


def has_words(text: str) -> bool:
    """Whether there is anything that a sentence is made of: a letter or a digit."""
    return any(map(str.isalnum, text))


def has_letters(text: str) -> bool:
    """Whether there is anything to translate: a letter of any script."""
    return any(map(str.isalpha, text))


def blocks(text: str, language: str = "en", join_lines: bool = False) -> Iterator[tuple[int, int]]:
    """Yields the (start, end) of every block of `text`, in order; no block starts or ends with white space.

    Each line is a block. With `join_lines` the lines of one hard-wrapped paragraph are one block, which then holds
    the line breaks; blank lines, headings, list items and quoted lines (each line that starts with `>`) end it.
    What has no letter (numbers, times, rows of marks) is no block.
    """
    lines = list(_lines(text, language))
    found = _paragraphs(text, lines) if join_lines else [(line.start, line.end) for line in lines]
    yield from ((start, end) for start, end in found if has_letters(text[start:end]))


def looks_wrapped(text: str, language: str = "en") -> bool:
    """Whether the lines of the text are those of a page, not of sentences.

    They are where, of the lines that another one of their paragraph follows, at least half (and three) are broken off:
    they end without the end of a sentence, the next one goes on in lower case, and they are about equally wide.
    """
    lines = _lines(text, language)
    followed = [
        (line, below) for line, below in pairwise(lines) if not line.empty and not below.empty and below.kind == "text"
    ]
    widths = sorted(
        line.end - line.bare_start
        for line, below in followed
        if _OPEN_END.search(text[line.start : line.end].rstrip(",;")) and text[below.start].islower()
    )
    if len(widths) < max(3, len(followed) / 2):
        return False
    widest = widths[-1 - len(widths) // 20]
    return widest >= _NARROWEST_PAGE and sum(3 * width >= 2 * widest for width in widths) >= 0.8 * len(widths)


def _lines(text: str, language: str) -> Iterator[_Line]:
    marks = _GERMAN_MARKS if language == "de" else _MARKS
    start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    while start < len(text):
        line_break = LINE_BREAK.search(text, start)
        end, after = line_break.span() if line_break else (len(text), len(text))
        yield _line(text[start:end], start, marks, text[end:after] in _PARAGRAPH_BREAKS)
        start = after


def _line(raw: str, offset: int, marks: re.Pattern[str], ends_paragraph: bool) -> _Line:
    content = raw.strip()
    bare = offset + len(raw) - len(raw.lstrip())
    end = bare + len(content)
    position, kind, opens = 0, "text", True
    while mark := marks.match(content, position):
        if position == 0:
            opens = mark["number"] is None or mark["number"] in _FIRST_NUMBERS
        position, kind = mark.end(), mark.lastgroup or kind
    if not has_words(content[position:]):
        return _Line(end, end, kind, opens, end if position == 0 else bare, ends_paragraph)
    return _Line(bare + position, end, kind, opens, bare, ends_paragraph)


def _paragraphs(text: str, lines: list[_Line]) -> list[tuple[int, int]]:
    """Joins lines into paragraphs."""
    paragraphs: list[list[_Line]] = []
    block: list[_Line] = []  # the open paragraph
    for index, line in enumerate(lines):
        # As in Markdown, a number in the middle of a paragraph starts a list only if it is the first: a sentence may
        # well be wrapped just before "12. Then ...". Inside a list any number does.
        if block and not line.opens and block[0].kind not in ("number", "bullet"):
            line = _Line(line.bare_start, line.end, ends_paragraph=line.ends_paragraph)
        if line.empty:
            block = []
            continue
        underlined = index + 1 < len(lines) and _is_underline(text, line, lines[index + 1])
        if not block or line.kind != "text" or underlined or (len(block) == 1 and _is_title(text, block[0], line)):
            block = []
            paragraphs.append(block)
        block.append(line)
        if line.kind == "heading" or underlined or line.ends_paragraph:
            block = []
    return [(block[0].start, block[-1].end) for block in paragraphs]


def _is_underline(text: str, line: _Line, below: _Line) -> bool:
    """Whether the line below is a row of one character about as long as the line."""
    if not below.empty:
        return False
    row = LINE_BREAK.sub("", text[line.end : below.end]).strip()
    return _UNDERLINE.fullmatch(row) is not None and abs(len(row) - (line.end - line.bare_start)) <= 2


def _is_title(text: str, first: _Line, second: _Line) -> bool:
    """Whether the first line of a paragraph is a title: it stops far before the margin, in the middle of nothing."""
    return (
        first.kind == "text"
        and 2 * (first.end - first.start) <= second.end - second.start
        and _OPEN_END.search(text[first.start : first.end]) is not None
        and text[second.start].isupper()
    )


_WHOLE_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
_ITEM = re.compile(r"^(?:>\s?|[-*+]\s+|\d{1,9}[.)]\s+)+")  # what a fence may stand behind: marks of lists and quotes
_TABLE_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
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


class Verbatim(NamedTuple):
    """Lines that follow each other and stay as they are."""

    start: int
    end: int
    lines: int
    kind: str
    """what they are, as a message says it: "code", "tables", ..."""


def verbatim_lines(text: str, markdown: bool) -> list[Verbatim]:
    """The code, tables, HTML, front matter and link definitions of Markdown; of plain text the code between fences.

    In plain text fences must be closed, and rows of ~, which underline headings there, open code only where they name
    its language (`~~~ python`).
    """
    lines = list(_WHOLE_LINE.finditer(text))
    bare = [line[0].removeprefix(BYTE_ORDER_MARK).strip() for line in lines]
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
    before = lines[number - 1] if number else ""
    if _DEFINITION.match(lines[number]) and (not before or _DEFINITION.match(before)):
        yield "link definitions", number + 1


def _fence(lines: list[str], number: int, markdown: bool, unclosed: dict[str, int]) -> int:
    """The line after the code that a fence opens here, or 0. In Markdown an open fence lasts to the end."""
    opening = _FENCE.match(_ITEM.sub("", lines[number]))
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


def _front_matter(lines: list[str]) -> int:
    ends = _FRONT_MATTER.get(lines[0], ())
    return next((number + 1 for number, line in enumerate(lines) if number and line in ends), 0)


def _table(lines: list[str], number: int) -> int:
    """The line after a table: a row of headings, a rule line, and rows as long as there are bars in them."""
    if "|" not in lines[number] or number + 1 == len(lines):
        return 0
    rule = lines[number + 1]
    if "|" not in rule or not _TABLE_RULE.match(rule):
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
