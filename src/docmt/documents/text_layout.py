"""The layout of text: blocks to segment, marks and blank lines between them, and verbatim lines.

A *block* is one line, or the joined lines of one paragraph. Text between blocks (white space, bullets, numbering,
quote and heading marks, ruled lines) is never translated.

*Verbatim* lines are not translated either: code, tables and HTML in Markdown, fenced code in plain text. Their syntax
is that of CommonMark 0.31 (https://spec.commonmark.org/0.31.2/) and of GitHub's tables, as far as whole lines can show
it. Code that is only indented counts as text: in plain text and in lists it mostly is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from docmt.core.plain_text import BYTE_ORDER_MARK

LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_PARAGRAPH_BREAKS = ("\x0c", "\u2029")  # form feed and paragraph separator

# Marks before the text of a line. Nested marks ("> - 1. text") belong together.
_MARK = r"""
    (?: (?P<quote> >+ )
      | (?: (?P<heading> \#{1,6} )
          | (?P<bullet> [-*+•‣⁃◦∙·▪▫●○■□–—] | \[[ xX]\] )
          | (?P<number> \d{1,3}[.)] %s | \(\d{1,3}\) | \(?[A-Za-z]\) | \(?[ivxIVX]{2,5}\) )
        ) (?= \s | $ )
    ) \s*
"""
# German ordinals have a full stop: "3. Oktober" at the start of a line is a date, not item 3 of a list.
GERMAN_ORDINAL_NOUN = (
    r"(?:Jan(?:uar|\.)|Jänner|Feb(?:ruar|\.)|März|April|Mai|Juni|Juli|Aug(?:ust|\.)|Sept(?:ember|\.)|"
    r"Okt(?:ober|\.)|Nov(?:ember|\.)|Dez(?:ember|\.)|Jahrhunderts?|Jh\.|Jahrtausends?|Weltkriegs?|Weltkrieges|"
    r"Geburtstage?s?|Lebensjahre?s?|Klasse|Auflage|Etage|Stock|Platz|Tag|Mal|Runde|Spieltag|Liga)(?!\w)"
)
_MARKS = re.compile(_MARK % "", re.VERBOSE)
_GERMAN_MARKS = re.compile(_MARK % rf"(?! \s+ {GERMAN_ORDINAL_NOUN} )", re.VERBOSE)
_FIRST_NUMBERS = {"1.", "1)", "(1)", "a)", "(a)", "A)", "(A)"}
_UNDERLINE = re.compile(r"([=\-~^*\"'`#+_])\1+")
_MIN_PAGE_WIDTH = 30
"""Least width, in characters, of hard-wrapped lines."""
_OPEN_END = re.compile(r"[^.!?…:;,。！？：；，、)\]\-–—]$")


class _Line(NamedTuple):
    """A line of text without white space and marks. start == end for a line without words."""

    start: int
    end: int
    kind: str = "text"  # "text" | "quote" | "heading" | "bullet" | "number": the last mark before the text
    opens: bool = True  # whether its marks may interrupt a paragraph
    bare_start: int = 0  # start of the text if marks count as text
    ends_paragraph: bool = False

    @property
    def empty(self) -> bool:
        return self.start == self.end


def has_words(text: str) -> bool:
    """Return whether the text has a letter or a digit."""
    return any(map(str.isalnum, text))


def has_letters(text: str) -> bool:
    """Return whether the text has a letter of any script, and so anything to translate."""
    return any(map(str.isalpha, text))


def find_blocks(text: str, language: str = "en", join_lines: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of every block of `text`, in order, without white space at its ends.

    Each line is a block. With `join_lines` the lines of a hard-wrapped paragraph are one block, which contains the
    line breaks. Blank lines, headings, list items and quoted lines (each line that starts with `>`) end it. Blocks
    without a letter (numbers, times, rows of marks) are left out.
    """
    lines = list(_split_lines(text, language))
    spans = _join_paragraphs(text, lines) if join_lines else [(line.start, line.end) for line in lines]
    yield from ((start, end) for start, end in spans if has_letters(text[start:end]))


def looks_wrapped(text: str, language: str = "en") -> bool:
    """Return whether the lines of the text look hard-wrapped.

    Only lines that another line of their paragraph follows count. At least half of them (and three) must be broken
    off: they end within a sentence, and the next line goes on in lower case. Their widths must be similar.
    """
    lines = _split_lines(text, language)
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
    return widest >= _MIN_PAGE_WIDTH and sum(3 * width >= 2 * widest for width in widths) >= 0.8 * len(widths)


def _split_lines(text: str, language: str) -> Iterator[_Line]:
    marks = _GERMAN_MARKS if language == "de" else _MARKS
    start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    while start < len(text):
        line_break = LINE_BREAK.search(text, start)
        end, following = line_break.span() if line_break else (len(text), len(text))
        yield _parse_line(text[start:end], start, marks, text[end:following] in _PARAGRAPH_BREAKS)
        start = following


def _parse_line(raw: str, offset: int, marks: re.Pattern[str], ends_paragraph: bool) -> _Line:
    content = raw.strip()
    content_start = offset + len(raw) - len(raw.lstrip())
    end = content_start + len(content)
    position, kind, opens = 0, "text", True
    while mark := marks.match(content, position):
        if position == 0:
            opens = mark["number"] is None or mark["number"] in _FIRST_NUMBERS
        position, kind = mark.end(), mark.lastgroup or kind
    if not has_words(content[position:]):
        return _Line(end, end, kind, opens, end if position == 0 else content_start, ends_paragraph)
    return _Line(content_start + position, end, kind, opens, content_start, ends_paragraph)


def _join_paragraphs(text: str, lines: list[_Line]) -> list[tuple[int, int]]:
    """Return the (start, end) of each paragraph."""
    paragraphs: list[list[_Line]] = []
    block: list[_Line] = []  # the open paragraph
    for index, line in enumerate(lines):
        # As in Markdown, only a first number starts a list within a paragraph, as a sentence may be wrapped just before
        # "12. Then ...". Within a list any number does.
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
    """Return whether the next line is a row of one character about as long as the line."""
    if not below.empty:
        return False
    row = LINE_BREAK.sub("", text[line.end : below.end]).strip()
    return _UNDERLINE.fullmatch(row) is not None and abs(len(row) - (line.end - line.bare_start)) <= 2


def _is_title(text: str, first: _Line, second: _Line) -> bool:
    """Return whether the first line of a paragraph is a title: much shorter than the next, without punctuation."""
    return (
        first.kind == "text"
        and 2 * (first.end - first.start) <= second.end - second.start
        and _OPEN_END.search(text[first.start : first.end]) is not None
        and text[second.start].isupper()
    )


_WHOLE_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
_ITEM = re.compile(r"^(?:>\s?|[-*+]\s+|\d{1,9}[.)]\s+)+")  # list and quote marks before a fence
_TABLE_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
_DEFINITION = re.compile(r"""\[(?!\^)[^\]]+\]:\s*(?:<[^>]*>|\S+)(?:\s+(?:"[^"]*"|'[^']*'|\([^)]*\)))?$""")
_NO_PARAGRAPH = re.compile(r"$|#{1,6}(?:\s|$)|(?:=+|-+|(?:\*\s*){3,}|(?:_\s*){3,})$")
"""Lines after which no paragraph is open: empty ones, headings, underlines and rules."""
_ALERT = re.compile(r"(?:>\s*)+\[!\w+\]$")
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}

# Start and end conditions of CommonMark's HTML blocks (None: an empty line).
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
    """Consecutive lines that are not translated."""

    start: int
    end: int
    lines: int
    kind: str
    """for messages: "code", "tables", ..."""


def find_verbatim(text: str, markdown: bool) -> list[Verbatim]:
    """Return what is not running text in Markdown, or fenced code of plain text.

    That is code, tables, HTML, formulas ($$), front matter, link definitions and marks of alerts (> [!NOTE]).

    In plain text fences must be closed, and rows of ~, which underline headings there, open code only with the name of
    its language (`~~~ python`).
    """
    lines = list(_WHOLE_LINE.finditer(text))
    stripped = [line[0].removeprefix(BYTE_ORDER_MARK).strip() for line in lines]
    blocks: list[Verbatim] = []
    index = 0
    unclosed: dict[str, int] = {}
    while index < len(lines):
        follows = bool(blocks) and blocks[-1].end == lines[index].start()
        kind, end = next(_match_verbatim(stripped, index, markdown, unclosed, follows), ("", index + 1))
        if kind:
            blocks.append(Verbatim(lines[index].start(), lines[end - 1].end(), end - index, kind))
        index = end
    return blocks


def _match_verbatim(
    lines: list[str], index: int, markdown: bool, unclosed: dict[str, int], follows: bool
) -> Iterator[tuple[str, int]]:
    """Yield (kind, end) of the verbatim block that begins in this line; `end` is the index after its last line.

    unclosed: length of the shortest fence of each kind known to be unclosed, so that its end is not searched again.
    follows: whether the line before ends another verbatim block.
    """
    if end := _match_fence(lines, index, markdown, unclosed):
        yield "code", end
    if not markdown:
        return
    if index == 0 and (end := _match_front_matter(lines)):
        yield "front matter", end
    if end := _match_table(lines, index):
        yield "tables", end
    if end := _match_html(lines, index):
        yield "HTML", end
    if end := _match_formula(lines, index):
        yield "formulas", end
    if _ALERT.match(lines[index]):
        yield "marks of alerts", index + 1
    if _DEFINITION.match(lines[index]) and (follows or not index or _NO_PARAGRAPH.match(lines[index - 1])):
        yield "link definitions", index + 1


def _match_fence(lines: list[str], index: int, markdown: bool, unclosed: dict[str, int]) -> int:
    """Return the index after the fenced code that begins here, or 0. In Markdown an unclosed fence lasts to the end."""
    opening = _FENCE.match(_ITEM.sub("", lines[index]))
    if opening is None or (not markdown and opening["marks"][0] == "~" and not opening["info"].strip()):
        return 0
    marks = opening["marks"]
    if unclosed.get(marks[0], len(marks) + 1) <= len(marks):
        return 0
    for closing in range(index + 1, len(lines)):
        line = lines[closing].lstrip("> ")
        if line.startswith(marks) and not line.strip(marks[0]):
            return closing + 1
    unclosed[marks[0]] = len(marks)
    return len(lines) if markdown else 0


def _match_formula(lines: list[str], index: int) -> int:
    """Return the index after the display formula ($$) that begins here, or 0.

    It has empty lines only if it begins with $$ alone.
    """
    first = lines[index]
    if not first.startswith("$$"):
        return 0
    if len(first) > 4 and "$$" in first[2:]:
        return index + 1 if first.endswith("$$") and first.count("$$") == 2 else 0
    for end in range(index + 1, len(lines)):
        if not lines[end] and first != "$$":
            break
        if "$$" in lines[end]:
            return end + 1 if lines[end].endswith("$$") else 0
    return 0


def _match_front_matter(lines: list[str]) -> int:
    ends = _FRONT_MATTER.get(lines[0], ())
    return next((index + 1 for index, line in enumerate(lines) if index and line in ends), 0)


def _match_table(lines: list[str], index: int) -> int:
    """Return the index after the table that begins here (headings, rule, rows with bars), or 0."""
    if "|" not in lines[index] or index + 1 == len(lines):
        return 0
    rule = lines[index + 1]
    if "|" not in rule or not _TABLE_RULE.match(rule):
        return 0
    end = index + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _match_html(lines: list[str], index: int) -> int:
    for opening, closing in _HTML:
        if not opening.match(lines[index]):
            continue
        if closing is None:
            return next((end for end in range(index, len(lines)) if not lines[end]), len(lines))
        return next((end + 1 for end in range(index, len(lines)) if closing.search(lines[end])), len(lines))
    return 0
