"""Markdown: CommonMark with tables, footnotes, definition lists and formulas of GitHub and Pandoc.

Marks of lists, headings and quotes, code, HTML blocks and link definitions stay, as do lines of generators of sites
(MkDocs, Hugo, Jekyll, Docusaurus). The lines of a changed paragraph become one line. The syntax is that of CommonMark
0.31 (https://spec.commonmark.org/0.31.2/) and of GitHub's tables, as far as whole lines can show it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from docmt.documents.segmentation import find_fence_end
from docmt.documents.words import Span, has_letters, strip_span
from docmt.formats.front_matter import FrontString, find_front_strings
from docmt.formats.markdown_inline import (
    escape_cell,
    escape_inline,
    escape_title,
    guard_markup,
    normalise_label,
    read_inline_markdown,
    read_markup,
    read_title,
)
from docmt.formats.patched_text import TextFile
from docmt.formats.placeholders import tidy_pieces, tidy_spaces
from docmt.formats.string_files import is_identifier, select_strings
from docmt.formats.units import ReadConfig, Skipped, Unit

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM_MARK = (
    r"(?:[-*+]|\d{1,9}[.)]|#\.|\(@[\w-]*\)|\|(?!.*\|))(?=\s|$)(?:[ \t]+\[[^\]\w]\](?=\s)|[ \t]+\[[xX]\](?=\s))?"
)
_MARKS = re.compile(rf"(?:[ \t]*(?:[!?]?>|{_ITEM_MARK}|\[\^[^\]\s]+\]:|[:~](?=[ \t])|\#{{1,6}}(?=\s|$)))*[ \t]*")
_QUOTES = re.compile(r"[ \t]*(?:>[ \t]?)*[ \t]*")
_ITEM_START = re.compile(rf"[ \t>]*({_ITEM_MARK}|\[\^[^\]\s]+\]:|[:~][ \t])[ \t]*")
_HEADING = re.compile(r"[ \t]*#{1,6}(?=\s|$)")
_HEADING_END = re.compile(r"(?:[ \t]+#+)?\s*$")
_UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)\s*$")
_RULE = re.compile(r"[ \t>]*(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\s*$")
_FENCED_DIV = re.compile(r"[ \t>]*:{3,}")
_TITLE_LINE = re.compile(
    r"""[ \t>]*(?:
    (?P<box>(?:!!!|\?\?\?\+?)[ ]?[\w-]+(?:[ ]+[a-z\d-]+)*|===[!+]?(?=[ ]+"))(?:[ ]+"(?P<quoted>.*)")?
    | :{3,}[ \t]*(?:\{[^{}]*\}|[\w-]+)(?:\[(?P<label>.*)\]|[ \t]+(?P<words>[^\s{:].*?))?[ \t]*(?:\{[^{}]*\})?[ \t]*:*
    | \[!\w[^\]\n]*\][+-]?[ \t]+(?P<callout>\S.*?)
    | \*\[[^\]\n]+\]:[ \t]+(?P<meaning>\S.*?)
    | /{3,}(?:[ \t]*[\w-]+(?:[ \t]*\|[ \t]*(?P<caption>\S.*?))?)?
    | %[ \t]+(?P<percent>\S.*?)
    )\s*$""",
    re.VERBOSE,
)
"""Lines that begin a box, give the meaning of an abbreviation, or are a title of Pandoc, with the text of each."""
_ATTRIBUTE = re.compile(
    r"""(?:[\w-]*(?:alt|cap|caption|description|label|summary|text|title|tooltip)=|\\\w+\{)["']?([^"'{}<>]+)"""
)
"""Texts of attributes and of commands of TeX, which stay."""
_NO_TEXT = re.compile(r"(?:bg|[wh]:|width:|height:|:\w)[^.]*$")
"""Instructions for a picture or a link, in the place of its text or title."""
_DEFINITION = re.compile(
    r"""^[ \t>]*\[(?!\^)((?:\\.|[^\[\]\\])+)\]:\s*(?:<[^>\n]*>|\S+)"""
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|\([^)\n]*\)))?[ \t]*\r?$""",
    re.MULTILINE,
)
_CELL = re.compile(r"(?:\{\{[^{}]*\}\}|\{%[^{}]*%\}|\\.|[^|\\])+|\\$")
_TABLE_RULE = re.compile(r"[ \t>]*\|?[ \t:|-]*$")
_NOTE = re.compile(r"\[\^[^\]\s]+\]:")
_SIMPLE_RULE = re.compile(r"-{2,}(?:\s+-{2,})+$")
_ROW = re.compile(r"\|.*[^\\|].*\|$")
_RULE_LINE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$")
_DEFINITION_LINE = re.compile(r"""\[(?!\^)[^\]]+\]:\s*(?:<[^>]*>|\S+)(?:\s+(?:"[^"]*"|'[^']*'|\([^)]*\)))?$""")
_NO_PARAGRAPH = re.compile(r"$|#{1,6}(?:\s|$)|(?:=+|-+|(?:\*\s*){3,}|(?:_\s*){3,})$")
"""Lines after which no paragraph is open: empty ones, headings, underlines and rules."""
_ALERT = re.compile(r"(?:>\s*)+\[![^\]]+\][+-]?$")
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}

_BLOCKS = [
    (each["kind"], re.compile(each["start"]), re.compile(each["end"]) if "end" in each else None)
    for each in read_markup("blocks")
]
_KEPT = frozenset(("code", "formulas", "simple tables", *(kind for kind, *_ in _BLOCKS)))
"""Kinds of blocks that are reported as not translated."""


class Block(NamedTuple):
    """Consecutive lines that are no running text."""

    start: int
    end: int
    kind: str
    """for messages: "code", "tables", ..."""


class MarkdownFile(TextFile):
    """A Markdown text."""

    strings: Mapping[int, FrontString]
    """strings of the front matter, by the index of their unit"""

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Text that would be markup is escaped. Markdown names no language."""
        pairs = zip(self.units, units, strict=True)
        guarded = [new if new == old else guard_markup(tidy_pieces(old, new)) for old, new in pairs]
        strings = [
            (each.value.start, each.value.end, each.write(tidy_spaces(units[index], self.units[index]).render()))
            for index, each in self.strings.items()
            if units[index] != self.units[index]
        ]
        return self.render(guarded, strings)


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
    blocks = list(find_blocks(text))
    file.strings = _read_front_matter(file, blocks, config.fields)
    for block in blocks:
        reader.read_lines(position, block.start)
        _read_block(file, reader, block)
        position = block.end
    reader.read_lines(position, len(text))
    return file


def _read_block(file: MarkdownFile, reader: _Reader, block: Block) -> None:
    """Read a table, or note what is skipped."""
    text = file.text[block.start : block.end]
    if block.kind == "tables":
        reader.read_table(block.start, block.end)
    elif block.kind in _KEPT:
        file.skipped.append(Skipped(block.kind, text.strip()[:200]))
        if block.kind == "components":
            reader.open_box(text, indent=1)


def _read_front_matter(file: MarkdownFile, blocks: Sequence[Block], fields: Sequence[str]) -> dict[int, FrontString]:
    """Add the units of the strings of the front matter that `fields` names, and return these by their units."""
    text = file.text[: blocks[0].end] if blocks and blocks[0].kind == "front matter" else ""
    if not fields:
        file.skip("front matter", text.strip().strip("-+."))
        return {}
    by_value = {each.value: each for each in (find_front_strings(text, file.path) if text else ())}
    strings = {}
    for value, is_named in select_strings(list(by_value), fields, f"{file.path}, front matter"):
        if not is_named and is_identifier(by_value[value].text):
            file.skip("identifiers", by_value[value].text)
        elif file.add_string(by_value[value].text, ".".join(value.path), (value.start, value.end)):
            strings[len(file.units) - 1] = by_value[value]
    return strings


class _Reader:
    """Reader of the lines outside of verbatim blocks."""

    def __init__(self, file: MarkdownFile, labels: frozenset[str]) -> None:
        self._file, self._text, self._labels = file, file.text, labels
        self._indents: list[int] = []  # of the texts of list items and boxes
        self._starts = [match.start() for match in _LINE.finditer(self._text)]

    def read_lines(self, start: int, end: int) -> None:
        """Add the units of the paragraphs in a part of the text."""
        paragraph: _Paragraph | None = None
        for match in _LINE.finditer(self._text, start, end):
            paragraph = self._read_line(match[0].rstrip("\r\n"), match.start(), paragraph)
        if paragraph:
            self._add(paragraph.lines)

    def _read_line(self, line: str, start: int, paragraph: _Paragraph | None) -> _Paragraph | None:
        """Return the paragraph that is open after a line."""
        quotes = _QUOTES.match(line)
        depth = quotes[0].count(">") if quotes else 0
        title = _TITLE_LINE.match(line)
        if title and (title["percent"] if paragraph else not depth and self._is_code(line)):
            title = None
        is_empty = not line.strip(" \t>")
        is_underline = paragraph and _UNDERLINE.match(line) and depth == paragraph.depth
        is_mark = is_underline or _RULE.match(line) or _FENCED_DIV.match(line)
        if paragraph and not (title or is_empty or is_mark or depth > paragraph.depth or self._interrupts(line)):
            paragraph.lines.append((start + (quotes.end() if quotes else 0), start + len(line.rstrip())))
            return paragraph
        if paragraph:
            self._add(paragraph.lines)
        if title:
            self._read_title(line, start, title)
        elif is_mark and not is_underline:
            self._leave(line)
            self._report_attributes(line)
        elif not (is_empty or is_mark):
            return self._open(line, start, depth)
        return None

    def _interrupts(self, line: str) -> bool:
        """Return whether a line begins something else than text."""
        if _HEADING.match(line.lstrip(" \t>")):
            return True
        item = _ITEM_START.match(line)
        if item is None:
            return False
        return not item[1][0].isdigit() or item[1][:-1] == "1" or bool(self._indents)

    def _leave(self, line: str) -> int:
        """Leave the list items and boxes that end before a line. Return the columns before its text."""
        line = line.expandtabs(4)
        width = len(line) - len(line.lstrip())
        while self._indents and width < self._indents[-1]:
            self._indents.pop()
        return width

    def open_box(self, line: str, indent: int) -> None:
        """Enter what is indented after a line by `indent` columns or more."""
        self._indents.append(self._leave(line) + indent)

    def _is_code(self, line: str) -> bool:
        return self._leave(line) >= sum(self._indents[-1:]) + 4

    def _read_title(self, line: str, start: int, match: re.Match[str]) -> None:
        """Add the unit of the title of a box, or of the meaning of an abbreviation."""
        self._report_attributes(line)
        if match["box"]:
            self.open_box(line, indent=4)
        else:
            self._leave(line)
        name = match.lastgroup or "box"
        if name != "box" and match[name]:
            self._add([(start + match.start(name), start + match.end(name))])

    def _report_attributes(self, markup: str) -> None:
        for match in _ATTRIBUTE.finditer(markup):
            self._file.skip("attributes", match[1])

    def _open(self, line: str, start: int, depth: int) -> _Paragraph | None:
        """Return the paragraph that a line begins; None for code and headings."""
        item = _ITEM_START.match(line)
        if not depth and self._is_code(line):
            self._file.skipped.append(Skipped("code", line.strip()[:200]))
            return None
        if item:  # further paragraphs of a note are indented by four
            self._indents.append(4 if _NOTE.match(line) else len(line[: item.end()].expandtabs(4)))
        marks = _MARKS.match(line)
        begin = marks.end() if marks else 0
        end = len(line.rstrip())
        if begin >= end:  # a list item whose text begins in the next line
            if item and not _NOTE.match(line):
                self._indents[-1] = len(line.rstrip().expandtabs(4)) + 1
            return None
        if "#" in line[:begin]:
            ending = _HEADING_END.search(line, begin)
            self._add([(start + begin, start + max(begin, ending.start() if ending else end))])
            return None
        return _Paragraph([(start + begin, start + max(begin, end))], depth)

    def read_table(self, start: int, end: int) -> None:
        """Add the units of the cells of a table."""
        for number, match in enumerate(_LINE.finditer(self._text, start, end)):
            line = match[0].rstrip("\r\n")
            if number == 1 and _TABLE_RULE.match(line):
                continue
            marks = _MARKS.match(line)
            for cell in _CELL.finditer(line, marks.end() if marks else 0):
                span = strip_span(self._text, match.start() + cell.start(), match.start() + cell.end())
                self._add([span], escape_cell)

    def _add(self, lines: Sequence[Span], escape: Callable[[str], str] = escape_inline) -> None:
        """Add the unit of a paragraph, and those of its images' texts."""
        parts = [self._text[start:end] for start, end in lines]
        breaks = []
        for index, ((_, end), (start, _)) in enumerate(pairwise(lines)):
            between = self._text[end:start]
            breaks.append(("\\" if parts[index].endswith("\\") else "") + between)
            parts[index] += "  \n" if between.startswith("  ") else "\n"
        source = "".join(parts)
        id = f"line {bisect_right(self._starts, lines[0][0])}"
        inline = read_inline_markdown(source, self._labels, breaks, id, is_cell=escape == escape_cell)
        for code in inline.unit.codes:
            self._report_attributes(code.content if code.id not in inline.nested else "")
        starts = list(accumulate(map(len, parts), initial=0))

        def locate(position: int) -> int:
            index = min(bisect_right(starts, position) - 1, len(lines) - 1)
            return lines[index][0] + position - starts[index]

        whole = {id: (locate(start), locate(end - 1) + 1) for id, (start, end) in inline.nested.items()}
        if has_letters(inline.unit.text):
            self._file.patches.add(lines[0][0], lines[-1][1], self._file.add_unit(inline.unit), escape, whole)
        for start, end in [each for each in inline.alts if not _NO_TEXT.match(source[slice(*each)])]:
            end = start + len(re.sub(r"\|[\dx]+\s*\Z", "", source[start:end]))  # ![text|200]
            inner = re.compile(r"\S(?:[^\n]*\S)?").finditer(source, start, end)
            if spans := [(locate(match.start()), locate(match.end() - 1) + 1) for match in inner]:
                self._add(spans, escape)
        for start, end in inline.titles:
            if has_letters(source[start:end]) and not _NO_TEXT.match(source, start + 1, end - 1):
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
    if lines[index] and any(map(_SIMPLE_RULE.match, lines[index : index + 2])):  # a table may have no header
        return "simple tables", _find_end(lines, index, None)
    for kind, start, closing in _BLOCKS:
        if start.match(lines[index]):
            return kind, _find_end(lines, index, closing)
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
    """Return the index after the table that begins here (rows with bars, the second one may be a rule), or 0."""
    rule = lines[index + 1] if index + 1 < len(lines) else ""
    has_rule = "|" in lines[index] and "|" in rule and _RULE_LINE.match(rule) is not None
    if not has_rule and not _ROW.match(lines[index]):
        return 0
    end = index + 1 + has_rule
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _find_end(lines: list[str], index: int, closing: re.Pattern[str] | None) -> int:
    """Return the index after the block that begins in this line.

    closing: matches its last line; None: the block ends before an empty line.
    """
    if closing is None:
        return next((end for end in range(index, len(lines)) if not lines[end]), len(lines))
    return next((end + 1 for end in range(index, len(lines)) if closing.search(lines[end])), len(lines))
