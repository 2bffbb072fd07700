"""Units: the text of a paragraph, cell, cue or message of a file, with its inline markup as codes.

`Unit` is the one value between all file formats and the engine. A format reads a file into units, and writes the file
again with other ones. The texts of the units, in reading order, are translated as one document. XLIFF 2 has the same
model of codes (`pc`, `ph`, `sc`, `ec`).
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from docmt.documents.columns import pass_marks
from docmt.documents.input_formats import FileFormat
from docmt.documents.template_blocks import SIGNS, find_template_tags, match_blocks
from docmt.documents.words import has_letters

CodeKind = Literal["open", "close", "single"]
SPACE = " "
COLLAPSIBLE = re.compile(r"[ \t\n\r\f]+")
"""White space of HTML and of XML."""
_CODE_STYLE = re.compile(
    r"(?i)(source ?(code|text)|preformatted ?text|html ?(code|preformatted)|verbatim( ?char)?|code( ?block| ?char)?)"
)
"""Names of styles of code in Word, LibreOffice and pandoc."""
_MAX_SKIPPED = 100
_MAX_LINE = 40
"""Characters of a line of an address, or of a heading."""
_GOES_ON = re.compile(r"[.!?…:;,。！？：；，、][\"'”’»)\]]*$")
_STOP = re.compile(r"[.!?…]\s")
BULLET = r"(?:[-*•‣▪–]|\d{1,2}[.)])[ ]+"
"""Mark of a list item in plain text."""
_NEW_LINE = r"[ ]*(?:\r(?!\n)|\r?\n|(?:\\r)?\\n|<[bB][rR]\s*/?>)(?:[ \t]|\\t)*"
_EMPTY_LINE, _NEW_ITEM = re.compile(rf"(?:{_NEW_LINE}){{2,}}"), re.compile(rf"(?:{_NEW_LINE})+{BULLET}")
_COLUMN = re.compile(
    r"(?:</[\w:]+>)?[ ]*(?:<(?:\w+:)?p?tab\b|<[\w:]+ [\w:]+:c=\"(?:[2-9]|\d\d)|\t|\\t|\|)", re.IGNORECASE
)
"""Markup of a tab (`w:tab`, `text:tab`), of several spaces (`text:s`), a tab, and a bar between plural forms."""
_BREAK = re.compile(
    r"(?:</[\w:]+>)?\s*<(?:\w+:)?(?:br|cr|line-break)\b|(?:[ ]*|\\)(?:\r|\r?\n|(?:\\r)?\\n)", re.IGNORECASE
)
"""Markup of a line break (`w:br`, `a:br`, `text:line-break`, `<br>`), which a run of Word is closed for; or one."""


@dataclass(frozen=True)
class Code:
    """A piece of inline markup before the character `offset` of a unit's text."""

    offset: int
    kind: CodeKind
    id: str
    """name within the unit, shared by the open and the close code of a pair; a pair may enclose several passages, each
    time with the same id"""
    content: str = ""
    """markup, as its format writes it"""
    can_copy: bool = True
    """whether a pair may enclose several passages of a translation; False for links and fields"""
    is_space: bool = False
    """whether the code separates words as a space does (a line break): the text has a space at `offset` for it, which
    the file does not have"""
    is_plain: bool = False
    """whether a pair shows nothing, such as a run without format beside a bold one; it may enclose no word"""
    follows_space: bool = False
    """whether it would be `is_space`, but the text has a space before it already"""

    @property
    def is_break(self) -> bool:
        """Whether the code is a line break or a tab."""
        return self.is_space or self.follows_space


@dataclass(frozen=True)
class Unit:
    """Text without markup, and its codes in their order.

    Invariants: offsets do not decrease, and pairs are nested. Raises ValueError otherwise.
    """

    text: str
    codes: tuple[Code, ...] = ()
    id: str = ""
    """name of the unit in its file, for people"""

    def __post_init__(self) -> None:
        position = 0
        opened: list[str] = []
        for code in self.codes:
            if not position <= code.offset <= len(self.text):
                raise ValueError(f"code {code.id} at {code.offset} is out of order in {self.text!r}")
            position = code.offset
            if code.kind == "open":
                opened.append(code.id)
            elif code.kind == "close" and (not opened or opened.pop() != code.id):
                raise ValueError(f"code {code.id} closes what is not open in {self.text!r}")
        if opened:
            raise ValueError(f"code {opened[-1]} is not closed in {self.text!r}")

    def segments(self) -> Iterator[str | Code]:
        """Yield the pieces of text and the codes between them, without the spaces that stand for codes."""
        position = 0
        for code in self.codes:
            if code.offset > position:
                yield self.text[position : code.offset]
            yield code
            position = max(position, code.offset)
            if code.is_space and position == code.offset and self.text[position : position + 1] == SPACE:
                position += 1
        if position < len(self.text):
            yield self.text[position:]

    def render(self, escape: Callable[[str], str] = str) -> str:
        """Return the text with the contents of the codes; `escape` writes a piece of text in the format."""
        return "".join(escape(part) if isinstance(part, str) else part.content for part in self.segments())


class UnitBuilder:
    """Builder of a unit from pieces of text and markup in their order.

    collapse: whether white space is one space, as browsers show it; spaces at the beginning and after a space are left
    out. hold_spaces: whether the second of two spaces around a single code goes into its content, as it does with
    `collapse`. Pairs that are not closed, and ends without a beginning, become
    single codes.
    """

    def __init__(self, collapse: bool = False, escape: Callable[[str], str] = str, hold_spaces: bool = False) -> None:
        """escape: writes a piece of text in the format, for marks (see `open`)."""
        self._collapse, self._escape, self._hold_spaces = collapse, escape, hold_spaces
        self._marks: set[int] = set()  # indices of open codes
        self._parts: list[str] = []
        self._length = 0
        self._codes: list[Code] = []
        self._opened: list[int] = []  # indices of open codes
        self._readings: list[tuple[int, str]] = []  # index of the open code around, and markup
        self._ends_with_space = True
        self._last_single: int | None = None  # index of a single code with no text after it
        self._empty_end: int | None = None  # index of the end of a pair without text, with no text after it

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    @property
    def code_count(self) -> int:
        """Number of codes so far."""
        return len(self._codes)

    def add_text(self, text: str) -> None:
        """Add text, unescaped."""
        if self._collapse:
            text = COLLAPSIBLE.sub(SPACE, text)
        is_held = self._hold_spaces and self._last_single is not None and self._length > 0
        if (self._collapse or is_held) and self._ends_with_space and text.startswith(SPACE):
            text = text[1:]
            self._add_space_to_code()
        if text:
            self._parts.append(text)
            self._length += len(text)
            self._ends_with_space = text.endswith(SPACE)
            self._last_single = self._empty_end = None

    def open(self, id: str, content: str, can_copy: bool = True, is_mark: bool = False) -> None:
        """Open a pair.

        is_mark: whether the pair is one single code if it has no letters and follows a word at once, as the raised
        number of a note does; it is then not translated.
        """
        if is_mark and not self._ends_with_space:
            self._marks.add(len(self._codes))
        self._opened.append(len(self._codes))
        self._codes.append(Code(self._length, "open", id, content, can_copy))
        self._hold_space()

    def close(self, id: str, content: str) -> None:
        """Close the pair of this id, and make single codes of all that was opened inside and is not closed."""
        index = next((i for i in reversed(self._opened) if self._codes[i].id == id), None)
        if index is None:
            self.add_alone(id, content)
            return
        while self._opened[-1] != index:
            self._set_alone(self._opened.pop())
        self._opened.pop()
        start = self._codes[index]
        content = "".join([*(held for place, held in self._readings if place == index), content])
        self._codes.append(Code(self._length, "close", id, content, start.can_copy))
        self._hold_space()
        if start.offset == self._length:
            self._empty_end = len(self._codes) - 1
        if index in self._marks and len(self._codes) == index + 2:  # with text alone
            text = self.text[start.offset :]
            if text.strip() and not any(map(str.isalpha, text)):
                self._join_mark(start, self._codes[-1], text)

    def _join_mark(self, start: Code, end: Code, text: str) -> None:
        """Make one single code of the last pair, which encloses this text."""
        content = start.content + self._escape(text) + end.content
        self._codes[-2:] = [Code(start.offset, "single", start.id, content)]
        self._parts, self._length, self._ends_with_space = [self.text[: start.offset]], start.offset, False

    def add_reading(self, id: str, content: str) -> None:
        """Add the reading of a ruby to the end of the innermost pair, or as a single code outside of any."""
        if self._opened:
            self._readings.append((self._opened[-1], content))
        else:
            self.add_alone(id, content)

    def add_alone(self, id: str, content: str, is_space: bool = False) -> None:
        """Add a single code. is_space: see `Code`; no space is added after another one."""
        if is_space and not self._ends_with_space:
            self._codes.append(Code(self._length, "single", id, content, is_space=True))
            self._parts.append(SPACE)
            self._length += 1
            self._ends_with_space = True
            self._last_single = None
        else:
            self._codes.append(Code(self._length, "single", id, content, follows_space=is_space))
            self._last_single = None if is_space else len(self._codes) - 1

    def finish(self, id: str = "") -> Unit:
        """Return the unit."""
        for index in self._opened:
            self._set_alone(index)
        return Unit(self.text, tuple(self._codes), id)

    def _add_space_to_code(self) -> None:
        """Keep the second of two spaces around a code: in the content of a single one, or after a pair without text."""
        if self._collapse and self._empty_end == len(self._codes) - 1:
            self._codes.append(Code(self._length, "single", f"space{len(self._codes)}", SPACE))
            self._last_single = None
        elif self._last_single is not None:
            code = self._codes[self._last_single]
            self._codes[self._last_single] = replace(code, content=code.content.removesuffix(SPACE) + SPACE)
            self._last_single = None

    def _hold_space(self) -> None:
        """Let the last code have the second of two spaces around it if it is a tag of a template: it may trim one."""
        if SIGNS.match(self._codes[-1].content):
            self._last_single = len(self._codes) - 1

    def _set_alone(self, index: int) -> None:
        code = self._codes[index]
        self._codes[index] = Code(code.offset, "single", code.id, code.content)


@dataclass(frozen=True)
class Skipped:
    """A part of a file that is not translated."""

    reason: str
    """kind of the part, in the plural: "code", "formulas", "approved segments" """
    text: str
    """its text, perhaps shortened"""


@dataclass(frozen=True)
class UnitPair:
    """A unit of a bilingual file, and its translation there."""

    source: Unit
    target: Unit
    states: Mapping[str, str] = field(default_factory=dict)
    """attributes that tell the state of the translation, without prefixes"""
    languages: tuple[str, str] = ("", "")
    """codes, as far as the file names them"""


@dataclass
class UnitFile(ABC):
    """A file that was read: its units, and how it is written with others."""

    units: list[Unit] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    document_starts: list[int] = field(default_factory=lambda: [0])
    """index of the first unit of each document; a book has one for each chapter"""
    failed: frozenset[int] = frozenset()
    """units that have no translation, set before writing: XLIFF and PO leave them so, others write their source"""

    def add_unit(self, unit: Unit) -> int:
        """Add a unit, and return its index."""
        self.units.append(unit)
        return len(self.units) - 1

    def skip(self, reason: str, text: str) -> None:
        """Note that a text is not translated. One without letters, or without a reason, is not worth a word."""
        if reason and has_letters(text):
            self.skipped.append(Skipped(reason, " ".join(text.split())[:_MAX_SKIPPED]))

    def list_pairs(self) -> list[UnitPair] | None:
        """Return the units that have a translation in the file; None if its format holds one side only."""
        return None

    @abstractmethod
    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units, one for each of `units`; equal units keep their bytes.

        language: code of the language of the new texts, which the file shall name; empty: the file names what it named.
        """


@dataclass(frozen=True)
class TagRules:
    """Which elements of XML end a sentence."""

    splitting: frozenset[str] = frozenset()
    """names of elements that always do"""
    non_splitting: frozenset[str] = frozenset()
    """names of elements that never do"""
    outline: bool = True
    """whether others do that are not inside running text"""


ALL_TAGS = TagRules()


@dataclass(frozen=True)
class ReadConfig:
    """How a file is read."""

    fields: tuple[str, ...] = ()
    """names of fields to translate: paths of JSON (menu.items.title), columns of TSV and CSV, keys of front matter"""
    source_language: str = ""
    """code of the language of the texts; empty: any"""
    target_language: str = ""
    """code of the language of the translation; empty: any"""
    tags: TagRules = ALL_TAGS
    """of a piece of XML"""
    protect: tuple[str, ...] = ()
    """regular expressions of the user, see `hide_placeholders`"""


def read_units(format: FileFormat, data: bytes, path: str, config: ReadConfig = ReadConfig()) -> UnitFile:
    """Return the units of a file. path: its name in messages. Raises DocmtError if it cannot be read."""
    module, _, function = format.reader.partition(".")
    reader: Callable[[bytes, str, ReadConfig], UnitFile]
    reader = getattr(importlib.import_module(f"docmt.formats.{module}"), function)
    return reader(data, path, config)


def match_codes(tokens: Sequence[str | Code]) -> dict[int, int]:
    """Return the index of the close code of each open one that has it in these tokens."""
    opened: list[int] = []
    pairs = {}
    for index, token in enumerate(tokens):
        if isinstance(token, Code) and token.kind == "open":
            opened.append(index)
        elif isinstance(token, Code) and token.kind == "close" and opened:
            pairs[opened.pop()] = index
    return pairs


def is_last_line(before: str, after: str) -> bool:
    """Return whether a line break between two lines ends a sentence, as that of an address or of a heading does.

    Both lines are short, and neither the punctuation of the first one nor a small letter goes on with the sentence.
    """
    is_short = 0 < len(before) <= _MAX_LINE and 0 < len(after) <= _MAX_LINE
    return is_short and not _GOES_ON.search(before) and not after[:1].islower()


def find_line_spans(unit: Unit) -> Iterator[tuple[int, int]]:
    """Yield the characters of the lines of a unit that end at its end, a column, an empty line, or by `is_last_line`.

    In plain text only lines before an item of a list, or before an empty line and no small letter, end. So does a line
    at tags of blocks of templates, see `_find_block_ends`.
    """
    cuts = _find_block_ends(unit)
    patterns = (_BREAK.match, _EMPTY_LINE.fullmatch, _NEW_ITEM.fullmatch, _COLUMN.match)
    kinds = [
        (code.offset, [index in cuts or (code.kind == "single" and each(code.content)) for each in patterns])
        for index, code in enumerate(unit.codes)
    ]
    breaks = [(offset, kind) for offset, kind in kinds if any(kind)]
    borders = [0, *(offset for offset, _ in breaks), len(unit.text)]
    lines = [unit.text[start:end].strip() for start, end in pairwise(borders)]
    start = 0
    for (end, (is_break, is_empty, is_item, is_column)), (before, after) in zip(breaks, pairwise(lines), strict=True):
        is_last = is_break and (not before or not after or is_last_line(before, after))
        if is_last or is_item or is_column or (is_empty and not after[:1].islower()):
            yield start, end
            start = pass_marks(unit.text, end)
    yield start, len(unit.text)


def _find_block_ends(unit: Unit) -> set[int]:
    """Return the codes that are tags of blocks of a template and end a sentence.

    Those of a block within one sentence do not, unless it has alternatives: {% if a %}old{% else %}new{% endif %}, or
    {{#a}}old{{/a}}{{^a}}new{{/a}}.
    """
    tagged = [(index, tag) for index, code in enumerate(unit.codes) for tag in find_template_tags(code.content)]
    ends, last = set[int](), set[int]()
    for block in sorted(match_blocks([tag for _, tag in tagged])):
        codes = {tagged[place][0] for place in block}
        first, final = (unit.codes[each].offset for each in (min(codes), max(codes)))
        touches = last and max(last) < min(codes) and not unit.text[unit.codes[max(last)].offset : first].strip()
        if touches or len(block) != 2 or _STOP.search(unit.text, first, final):
            ends |= codes | (last if touches else set())
        last = codes
    return ends


def is_code_style(name: str) -> bool:
    """Return whether the text of a style with this name is code, which is not translated."""
    return _CODE_STYLE.fullmatch(name.replace("_20_", " ").replace("_", " ").strip()) is not None
