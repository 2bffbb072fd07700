"""Markdown: CommonMark with tables, footnotes, definition lists and formulas of GitHub and Pandoc.

Marks of lists, headings and quotes, code, HTML blocks and link definitions stay. The lines of a changed paragraph
become one line. The syntax is that of CommonMark 0.31 (https://spec.commonmark.org/0.31.2/) and of GitHub's tables, as
far as whole lines can show it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from docmt.documents.segmentation import find_fence_end
from docmt.documents.words import has_letters
from docmt.formats.markdown_inline import (
    escape_cell,
    escape_inline,
    escape_title,
    guard_markup,
    normalise_label,
    read_inline_markdown,
    read_title,
)
from docmt.formats.patched_text import TextFile
from docmt.formats.placeholders import tidy_pieces
from docmt.formats.units import ReadConfig, Skipped, Unit

Span = tuple[int, int]
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM_MARK = r"(?:[-*+]|\d{1,9}[.)])(?=\s|$)(?:[ \t]+\[[ xX]\](?=\s))?"
_MARKS = re.compile(rf"(?:[ \t]*(?:>|{_ITEM_MARK}|\[\^[^\]\s]+\]:|:(?=[ \t])|\#{{1,6}}(?=\s|$)))*[ \t]*")
_QUOTES = re.compile(r"[ \t]*(?:>[ \t]?)*[ \t]*")
_ITEM_START = re.compile(rf"[ \t>]*({_ITEM_MARK}|\[\^[^\]\s]+\]:|:[ \t])[ \t]*")
_HEADING = re.compile(r"[ \t]*#{1,6}(?=\s|$)")
_HEADING_END = re.compile(r"(?:[ \t]+#+)?\s*$")
_UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)\s*$")
_RULE = re.compile(r"[ \t>]*(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\s*$")
_FENCED_DIV = re.compile(r"[ \t>]*:{3,}")
_DEFINITION = re.compile(
    r"""^[ \t>]*\[(?!\^)((?:\\.|[^\[\]\\])+)\]:\s*(?:<[^>\n]*>|\S+)"""
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|\([^)\n]*\)))?[ \t]*\r?$""",
    re.MULTILINE,
)
_CELL = re.compile(r"(?:\\.|[^|\\])+|\\$")
_TABLE_RULE = re.compile(r"[ \t>]*\|?[ \t:|-]*$")
_KEY = re.compile(r"^([A-Za-z_][\w-]*):[ \t]+([^\r\n]*?)[ \t]*$", re.MULTILINE)
_PLAIN_START = re.compile(r"[\w(“„«¿¡‘—–…]")
_NOTE = re.compile(r"\[\^[^\]\s]+\]:")
_RULE_LINE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
_DEFINITION_LINE = re.compile(r"""\[(?!\^)[^\]]+\]:\s*(?:<[^>]*>|\S+)(?:\s+(?:"[^"]*"|'[^']*'|\([^)]*\)))?$""")
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
_KEPT = frozenset(("code", "HTML", "formulas"))
"""Kinds of blocks that are reported as not translated."""


class Block(NamedTuple):
    """Consecutive lines that are no running text."""

    start: int
    end: int
    kind: str
    """for messages: "code", "tables", ..."""


class MarkdownFile(TextFile):
    """A Markdown text."""

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Text that would be markup is escaped. Markdown names no language."""
        guarded = [
            new if new == old else guard_markup(tidy_pieces(old, new))
            for old, new in zip(self.units, units, strict=True)
        ]
        return self.render(guarded)


@dataclass
class _Paragraph:
    """The lines of an open paragraph: start and end of the text of each."""

    lines: list[Span]
    depth: int
    """number of quote marks"""


def read(data: bytes, path: str, config: ReadConfig) -> MarkdownFile:
    """Return the units of Markdown. `config.fields`: keys of the front matter whose strings are translated."""
    file = MarkdownFile(data, path)
    text = file.text
    reader = _Reader(file, frozenset(normalise_label(match[1]) for match in _DEFINITION.finditer(text)))
    position = 0
    for block in find_blocks(text):
        reader.read_lines(position, block.start)
        _read_block(file, reader, block, config.fields)
        position = block.end
    reader.read_lines(position, len(text))
    return file


def _read_block(file: MarkdownFile, reader: _Reader, block: Block, fields: Sequence[str]) -> None:
    """Read a table or front matter, or note what is skipped."""
    text = file.text[block.start : block.end]
    if block.kind == "tables":
        reader.read_table(block.start, block.end)
    elif block.kind == "front matter":
        for match in _KEY.finditer(text):
            if match[1] in fields:
                _add_value(file, match[1], match[2], block.start + match.start(2))
    elif block.kind in _KEPT:
        file.skipped.append(Skipped(block.kind, text.strip()[:200]))


def _add_value(file: MarkdownFile, key: str, value: str, start: int) -> None:
    """Add the unit of a string of YAML."""
    end = start + len(value)
    escape: Callable[[str], str] = _quote_plain
    if re.fullmatch(r'"(?:\\.|[^"\\])*"', value):
        try:
            string, escape = str(json.loads(value)), _escape_double
        except ValueError:
            return
        start, end = start + 1, end - 1
    elif re.fullmatch(r"'(?:''|[^'])*'", value):
        string, escape = value[1:-1].replace("''", "'"), _escape_single
        start, end = start + 1, end - 1
    elif _PLAIN_START.match(value) and " #" not in value:
        string = value
    else:
        return
    if has_letters(string):
        file.patches.add(start, end, file.add_unit(Unit(string, id=key)), escape)


def _escape_double(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escape_single(text: str) -> str:
    return text.replace("'", "''")


def _quote_plain(text: str) -> str:
    """Return a string of YAML, in quotes if it needs them."""
    is_plain = _PLAIN_START.match(text) and not re.search(r":(?:\s|$)|\s#|\n|\s$", text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)


class _Reader:
    """Reader of the lines outside of verbatim blocks."""

    def __init__(self, file: MarkdownFile, labels: frozenset[str]) -> None:
        self._file, self._text, self._labels = file, file.text, labels
        self._indent = 0  # of the text of the list item
        self._follows_blank = True
        self._starts = [match.start() for match in _LINE.finditer(self._text)]

    def read_lines(self, start: int, end: int) -> None:
        """Add the units of the paragraphs in a part of the text."""
        paragraph: _Paragraph | None = None
        for match in _LINE.finditer(self._text, start, end):
            line = match[0].rstrip("\r\n")
            paragraph = self._read_line(line, match.start(), paragraph)
            self._follows_blank = not line.strip(" \t>")
        self._finish(paragraph)
        self._follows_blank = True

    def _read_line(self, line: str, start: int, paragraph: _Paragraph | None) -> _Paragraph | None:
        """Return the paragraph that is open after a line."""
        quotes = _QUOTES.match(line)
        depth = quotes[0].count(">") if quotes else 0
        if not line.strip(" \t>") or _FENCED_DIV.match(line):
            self._finish(paragraph)
            return None
        if paragraph and _UNDERLINE.match(line) and depth == paragraph.depth:
            self._finish(paragraph)
            return None
        if _RULE.match(line):
            self._finish(paragraph)
            self._indent = 0
            return None
        if paragraph and depth <= paragraph.depth and not self._interrupts(line):
            assert quotes is not None
            paragraph.lines.append((start + quotes.end(), start + len(line.rstrip())))
            return paragraph
        self._finish(paragraph)
        return self._open(line, start, depth)

    def _interrupts(self, line: str) -> bool:
        """Return whether a line begins something else than text."""
        if _HEADING.match(line.lstrip(" \t>")):
            return True
        item = _ITEM_START.match(line)
        if item is None:
            return False
        return not item[1][0].isdigit() or item[1][:-1] == "1" or self._indent > 0

    def _open(self, line: str, start: int, depth: int) -> _Paragraph | None:
        """Return the paragraph that a line begins; None for code and headings."""
        width = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        item = _ITEM_START.match(line)
        if not depth and self._follows_blank and not item and width < self._indent:
            self._indent = 0
        if not depth and width >= self._indent + 4:
            self._file.skipped.append(Skipped("code", line.strip()[:200]))
            return None
        if item:
            self._indent = len(line[: item.end()].expandtabs(4))
        if _NOTE.match(line):
            self._indent = 4  # of its further paragraphs
        marks = _MARKS.match(line)
        begin = marks.end() if marks else 0
        end = len(line.rstrip())
        if begin >= end:  # a list item whose text begins in the next line
            self._indent = len(line.rstrip().expandtabs(4)) + 1 if item else self._indent
            return None
        if "#" in line[:begin]:
            ending = _HEADING_END.search(line, begin)
            self._add([(start + begin, start + max(begin, ending.start() if ending else end))])
            return None
        return _Paragraph([(start + begin, start + max(begin, end))], depth)

    def _finish(self, paragraph: _Paragraph | None) -> None:
        if paragraph:
            self._add(paragraph.lines)

    def read_table(self, start: int, end: int) -> None:
        """Add the units of the cells of a table."""
        for number, match in enumerate(_LINE.finditer(self._text, start, end)):
            line = match[0].rstrip("\r\n")
            if number == 1 and _TABLE_RULE.match(line):
                continue
            marks = _MARKS.match(line)
            for cell in _CELL.finditer(line, marks.end() if marks else 0):
                inner = cell[0].strip()
                begin = match.start() + cell.start() + len(cell[0]) - len(cell[0].lstrip())
                self._add([(begin, begin + len(inner))], escape_cell)

    def _add(self, lines: Sequence[Span], escape: Callable[[str], str] = escape_inline) -> None:
        """Add the unit of a paragraph, and those of its images' texts."""
        parts = [self._text[start:end] for start, end in lines]
        breaks = []
        for index, ((_, end), (start, _)) in enumerate(pairwise(lines)):
            between = self._text[end:start]
            breaks.append(("\\" if parts[index].endswith("\\") else "") + between)
            parts[index] += "  \n" if between.startswith("  ") else "\n"
        source = "".join(parts)
        inline = read_inline_markdown(source, self._labels, breaks, f"line {bisect_right(self._starts, lines[0][0])}")
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + len(part))

        def locate(position: int) -> int:
            index = min(bisect_right(starts, position) - 1, len(lines) - 1)
            return lines[index][0] + position - starts[index]

        whole = {id: (locate(start), locate(end - 1) + 1) for id, (start, end) in inline.nested.items()}
        if has_letters(inline.unit.text):
            self._file.patches.add(lines[0][0], lines[-1][1], self._file.add_unit(inline.unit), escape, whole)
        for start, end in inline.alts:
            if "\n" not in source[start:end] and start < end:
                self._add([(locate(start), locate(start) + end - start)], escape)
        for start, end in inline.titles:
            if has_letters(source[start:end]):
                write = partial(escape_title, quote=source[start])
                index = self._file.add_unit(Unit(read_title(source[start + 1 : end - 1])))
                self._file.patches.add(locate(start) + 1, locate(end - 1), index, write)


def find_blocks(text: str) -> Iterator[Block]:
    """Yield what is not running text, in order.

    That is code, tables, HTML, formulas ($$), front matter, link definitions and marks of alerts (> [!NOTE]).
    """
    lines = list(_LINE.finditer(text))
    stripped = [line[0].strip() for line in lines]
    unclosed: dict[str, int] = {}
    index, kind = 0, ""
    while index < len(lines):
        start = index
        kind, index = _match_block(stripped, start, unclosed, follows=kind != "")
        if kind:
            yield Block(lines[start].start(), lines[index - 1].end(), kind)


def _match_block(lines: list[str], index: int, unclosed: dict[str, int], follows: bool) -> tuple[str, int]:
    """Return the kind of the block that begins in this line, perhaps "", and the index after its last line.

    unclosed: see `find_fence_end`. follows: whether the line before ends another block.
    """
    if end := find_fence_end(lines, index, unclosed, markdown=True):
        return "code", end
    if index == 0 and (end := _match_front_matter(lines)):
        return "front matter", end
    if end := _match_table(lines, index):
        return "tables", end
    if end := _match_html(lines, index):
        return "HTML", end
    if end := _match_formula(lines, index):
        return "formulas", end
    if _ALERT.match(lines[index]):
        return "marks of alerts", index + 1
    if _DEFINITION_LINE.match(lines[index]) and (follows or not index or _NO_PARAGRAPH.match(lines[index - 1])):
        return "link definitions", index + 1
    return "", index + 1


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
    if "|" not in rule or not _RULE_LINE.match(rule):
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
