"""Inline markup of Markdown as codes, by the rules of CommonMark 0.31 (https://spec.commonmark.org/0.31.2/#inlines).

Markup of Pandoc, of Obsidian, and of generators of sites (MkDocs, Hugo, Jekyll, Docusaurus) is read, too.
"""

from __future__ import annotations

import html
import re
import string
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from docmt.core.settings import read_package_yaml
from docmt.documents.columns import find_blocks
from docmt.documents.protected_text import find_protected
from docmt.documents.words import has_letters
from docmt.formats.units import SPACE, Code, Unit, UnitBuilder

_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*+\})*+\}"
"""Braces with what they enclose, in which braces may be, to a depth of three."""
_VALUE = rf"""(?:"[^"]*"|'[^']*'|{_BRACES}|[^\s"'=<>`{{]+)"""
_TAG = rf"""</?[A-Za-z][\w.-]*(?:\s+(?:{_BRACES}|[\w:@.-]+(?:\s*=\s*{_VALUE})?))*\s*/?>|</?>"""


def read_markup(section: str) -> list[dict[str, str]]:
    """Return the entries of a section of markdown_markup.yaml."""
    entries = read_package_yaml("docmt.formats", "markdown_markup.yaml")[section]
    return [
        {key: each.replace(r"\p{braces}", _BRACES) if isinstance(each, str) else each for key, each in entry.items()}
        for entry in entries
    ]


_SINGLES = "|".join(f"(?-x:{each['pattern']})" for each in read_markup("singles"))
_LEX = re.compile(
    rf"""
    (?P<single>{_SINGLES}) | (?P<escape>\\[{re.escape(string.punctuation)}])
  | (?P<hard>(?:[ ]{{2,}}|\\)\n) | (?P<soft>[ \t]*\n) | (?P<tab>[ ]*\t[ \t]*)
  | (?P<ticks>`+)
  | (?P<math>\$\$(?=\S)[^$]*[^\s$]\$\$|(?<!%\d)\$(?=[^\s$])(?:[^$\\\n]|\\.)*(?<=[^\s])\$(?!\d))
  | (?P<reading><(?P<name>r[tp])\b[^<>]*>.*?</(?P=name)>)
  | (?P<link><[A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^\s<>]*>|<[\w.+-]+@[\w.-]+>)
  | (?P<comment><!--.*?-->|<\?.*?\?>) | (?P<tag>{_TAG})
  | (?P<note>\[\^[^\]\s]+\]|\[[\w -]+::[^\[\]\n]*\])
  | (?P<citation>\[(?:[^\[\]\n]*[\s;(])?-?@[\w{{][^\[\]\n]*\](?![(\[:]))
  | (?P<wiki>!?\[\[[^\[\]\n]+\]\](?![(\[])) | (?P<raised>\^[^\s^\[\]]+\^|(?<=[\w^])~[^\s~]{{1,3}}~(?!\w))
  | (?P<open>[!^]?\[) | (?P<close>\])
  | (?P<delimiter>\*+|_+|~+|(?<!=)==(?!=)|\^\^)
  | (?P<entity>&(?:\#\d{{1,7}}|\#[xX][0-9A-Fa-f]{{1,6}}|[A-Za-z][A-Za-z0-9]{{1,31}});)
    """,
    re.VERBOSE | re.DOTALL,
)
_TARGET = re.compile(
    rf"""\(\s*(?:<[^<>\n]*>|(?:{_BRACES}|\\.|[^\s()\\]|\((?:\\.|[^\s()\\])*\))*)"""
    r"""(?:\s+(?P<title>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)))?\s*\)(?:\{[^{}\n]*\})?"""
)
_TIGHT = re.compile(r"[/:.–]")
"""Between tags of templates that stay together: {hours}:{minutes}."""
_LABEL = re.compile(r"\[((?:\\.|[^\[\]\\])*)\]")
_SPAN = re.compile(r"\{[^{}\n]*\}")
_WIKI = re.compile(r"\[\[(?P<target>[^|\\]+)(?P<bar>\\?\|)(?P<text>.+)\]\]|\[\[(?P<name>[^|\\#]+)\]\]")
_ADDRESS = re.compile(r"(?:[^()\[\]`*]|\*(?!\*)|\([^()]*\)|\[[^\[\]()]*\](?!\())*")
"""The characters of a web address that are no markup."""
_ESCAPED = re.compile(
    rf"""[\\`*\[\]] | \A\| | (?<![^\W_])_ | _(?![^\W_]) | ~ | <(?=[A-Za-z/!?>%]) | &(?=\#?\w+;) | \$ | \^(?=[^\s^]+\^)
    | (?<!=)=(?==(?!=))(?!(?<=\s=)=\s) | (?=(?:{_SINGLES}))[^\w\s]""",
    re.VERBOSE,
)
_LINE_MARK = re.compile(
    r"(?:\#{1,6}|\#\.|[-+*:]|===[!+]?|\?\?\?\+?)(?=\s|$)|!!!|[!?]?>|=+\s*$|-[- ]*$|--8<--|~~~|:::"
    r"|(?P<number>\d{1,9})[.)](?=\s|$)"
)


@dataclass
class _Item:
    """A piece of the source."""

    kind: str
    start: int
    end: int
    partner: int = -1
    """of brackets that are a link: index of the other one"""
    content: str = ""
    title: tuple[int, int] = (-1, -1)
    """of the end of a link: start and end of its title with the quotes"""
    can_open: bool = False
    can_close: bool = False
    count: int = 0
    """delimiters that are not matched yet"""
    opens: list[str] = field(default_factory=list)
    closes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Inline:
    """The unit of a paragraph, and what is translated within its codes."""

    unit: Unit
    nested: dict[str, tuple[int, int]]
    """start and end in the source of images by id, and of ends of links that have a title by "/" and the id"""
    alts: list[tuple[int, int]]
    """start and end of texts of images"""
    titles: list[tuple[int, int]]
    """start and end of titles with their quotes"""


def read_inline_markdown(source: str, labels: Collection[str], breaks: Sequence[str], id: str, is_cell: bool) -> Inline:
    """Return the unit of a paragraph. source: its lines, joined by \\n, without indents and quote marks.

    labels: normalised names of the link definitions. breaks: what the file has for each line break. is_cell: whether it
    is a cell of a table.
    """
    items = _lex(source, labels)
    _match_template_tags(source, items)
    _match_brackets(source, items, labels)
    _match_delimiters(source, items)
    return _Writer(source, items, breaks, "\\|" if is_cell else "|").write(id)


def normalise_label(label: str) -> str:
    """Return the name of a link definition as it is compared."""
    return SPACE.join(label.split()).casefold()


def _mask_addresses(text: str, with_ends: bool = False) -> str:
    """Return text with x for each character of its addresses and paths. with_ends: also for _, * and ~ after them."""
    masked = text
    for (start, end), kind, _ in find_protected(text):
        match = _ADDRESS.match(text, start, end)
        if kind in ("address", "path") and match and text[start - 1 : start] != "<":
            end = match.end()
            marks = match[0][len(match[0].rstrip("*_~")) :]
            end -= len(marks) if marks and not with_ends and marks in text[:start] else 0
            masked = masked[:start] + "x" * (end - start) + masked[end:]
    return masked


def _lex(source: str, labels: Collection[str]) -> list[_Item]:
    items: list[_Item] = []
    masked = _mask_addresses(source)
    runs = {run[0]: run.start() for run in re.finditer(r"`+", source)}  # last place of each run of backticks
    position = 0
    while match := _LEX.search(masked, position):
        kind, start, end = match.lastgroup or "", match.start(), match.end()
        if kind == "ticks":
            is_last = runs.get(match[0], -1) <= start
            closing = None if is_last else re.compile(rf"(?<!`){match[0]}(?!`)").search(source, end)
            kind, end = ("code", closing.end()) if closing else ("text", end)
        if kind == "wiki" and normalise_label(match[0].strip("![]")) in labels:
            kind, end = "open", match[0].index("[") + start + 1
        if start > position:
            items.append(_Item("text", position, start))
        before = [each.kind for each in items[-2:]]
        if kind == "single" and before == ["single", "text"] and _TIGHT.fullmatch(source, position, start):
            start = items[-2].start
            del items[-2:]
        items.append(_Item(kind, start, end))
        position = end
    if position < len(source):
        items.append(_Item("text", position, len(source)))
    return items


def _match_template_tags(source: str, items: list[_Item]) -> None:
    """Find pairs such as {% if x %} and {% endif %}, or {{< a >}} and {{< /a >}}."""
    contents = [source[each.start : each.end] if each.kind in ("single", "comment") else "" for each in items]
    for first, *_, last in (block for block in find_blocks(contents) if len(block) > 1):
        items[first].kind, items[last].kind = "begin", "end"
        items[first].content = items[last].content = f"block {first}"


def _match_brackets(source: str, items: list[_Item], labels: Collection[str]) -> None:
    """Find links and images. The items of a target are emptied."""
    opened: list[int] = []
    covered = 0
    for index, item in enumerate(items):
        if item.start < covered:
            item.kind, item.start = "none" if item.end <= covered else "text", covered
        elif item.kind == "open":
            opened.append(index)
        elif item.kind == "close" and opened:
            start = opened.pop()
            if source[items[start].start] == "^":  # a note of Pandoc
                items[start].partner, item.partner = index, start
                continue
            end, content = _find_target(source, items[start].end, item, labels)
            if not content:
                continue
            items[start].partner, item.partner, item.content = index, start, content
            covered = item.end = end
            if source[items[start].start] == "[":
                opened = [each for each in opened if source[items[each].start] != "["]  # no links in links


def _find_target(source: str, start: int, close: _Item, labels: Collection[str]) -> tuple[int, str]:
    """Return the end of a link, and what ends it; "" if it is none. A label that is the text is named in the end."""
    text = source[start : close.start]
    if match := _TARGET.match(source, close.end):
        close.title = match.span("title")
        return match.end(), "]" + match[0].replace("\n", SPACE)
    if (match := _LABEL.match(source, close.end)) and normalise_label(match[1]) in labels:
        return match.end(), "]" + match[0].replace("\n", SPACE)
    if normalise_label(text) in labels:
        end = close.end + 2 if source.startswith("[]", close.end) else close.end
        return end, f"][{text}]".replace("\n", SPACE)
    if (match := _SPAN.match(source, close.end)) and text.strip():
        return match.end(), "]" + match[0]
    return close.end, ""


def _match_delimiters(source: str, items: list[_Item]) -> None:
    """Find emphasis. Delimiters match within one link only."""
    stacks: list[dict[str, list[_Item]]] = [{}]  # of the links around, by character
    for item in items:
        if item.kind == "open" and item.partner >= 0:
            stacks.append({})
        elif item.kind == "close" and item.partner >= 0:
            stacks.pop()
        elif item.kind == "delimiter":
            _flank(source, item)
            _close_emphasis(source, item, stacks[-1])
            if item.can_open and item.count:
                stacks[-1].setdefault(source[item.start], []).append(item)


def _flank(source: str, item: _Item) -> None:
    """Set whether a run of delimiters can open and close emphasis."""
    before, after = _rank(source[item.start - 1 : item.start]), _rank(source[item.end : item.end + 1])
    is_left, is_right = 0 < after >= before, 0 < before >= after
    item.count = item.end - item.start
    can_flank, within_words = source[item.start] != "~" or item.count <= 2, source[item.start] != "_"
    item.can_open = can_flank and is_left and (within_words or not is_right or before == 1)
    item.can_close = can_flank and is_right and (within_words or not is_left or after == 1)


def _rank(character: str) -> int:
    """Return 0 for white space and what is outside of the text, 1 for punctuation, 2 for other characters."""
    return 0 if not character.strip() else 1 if unicodedata.category(character)[0] in "PS" else 2


def _close_emphasis(source: str, item: _Item, stacks: dict[str, list[_Item]]) -> None:
    """Match a run of delimiters with those before it."""
    character = source[item.start]
    stack = stacks.get(character, [])
    while item.can_close and item.count:
        size = item.end - item.start
        for depth in range(len(stack) - 1, max(-1, len(stack) - 50), -1):
            other = stack[depth]
            length = other.end - other.start
            both = item.can_open or other.can_close
            is_allowed = not both or (length + size) % 3 != 0 or (length % 3 == 0 and size % 3 == 0)
            fits = other.count == item.count if character in "~=^" else is_allowed
            if fits:
                break
        else:
            return
        used = item.count if character in "~=^" else 2 if other.count >= 2 and item.count >= 2 else 1
        other.opens.insert(0, character * used)
        item.closes.append(character * used)
        other.count -= used
        item.count -= used
        del stack[depth + (other.count > 0) :]
        for others in stacks.values():  # what is opened in between stays text
            while others and others[-1].start > other.start:
                others.pop()


class _Writer:
    """Builder of the unit of a paragraph from its items."""

    def __init__(self, source: str, items: Sequence[_Item], breaks: Sequence[str], bar: str) -> None:
        """bar: how the file writes a bar in a link."""
        self._source, self._items, self._bar = source, items, bar
        self._breaks = breaks
        self._builder = UnitBuilder(collapse=True)
        self._opened: list[tuple[str, str]] = []  # name and id of pairs
        self._nested: dict[str, tuple[int, int]] = {}
        self._alts: list[tuple[int, int]] = []
        self._titles: list[tuple[int, int]] = []

    def write(self, id: str) -> Inline:
        """Return the unit, and what is translated within its codes."""
        last = -1  # item of the last image
        for index, item in enumerate(self._items):
            if index > last and item.kind == "open" and item.partner >= 0 and self._source[item.start] in "!^":
                self._add_image(item, self._items[item.partner])
                last = item.partner
            elif index > last:
                self._add(item)
        return Inline(self._builder.finish(id), self._nested, self._alts, self._titles)

    def _add_image(self, item: _Item, end: _Item) -> None:
        id = self._name()
        self._builder.add_single(id, self._source[item.start : end.end])
        self._nested[id] = item.start, end.end
        is_name = self._source[end.start : end.end] in ("]", "][]")  # the text is also the name of the target
        if self._source[item.start] == "^" or not is_name:
            self._alts.append((item.end, end.start))
        self._add_title(end)

    def _add_title(self, end: _Item) -> bool:
        """Note the title at the end of a link or an image. Return whether it has one, on its line."""
        has_title = end.title[0] >= 0 and "\n" not in self._source[end.start : end.end]
        self._titles += [end.title] * has_title
        return has_title

    def _name(self) -> str:
        return str(self._builder.code_count + 1)

    def _add(self, item: _Item) -> None:
        content = self._source[item.start : item.end]
        if item.kind == "hard":
            content = self._breaks[self._source.count("\n", 0, item.start)]
        elif item.kind != "text":
            content = content.replace("\n", SPACE)  # codes are on one line, as the text is
        wiki = _WIKI.fullmatch(content) if item.kind == "wiki" else None
        if item.kind in ("text", "soft"):
            self._builder.add_text(content)
        elif item.kind == "escape":
            self._builder.add_text(content[1])
        elif item.kind == "entity":
            self._builder.add_text(html.unescape(content))
        elif item.kind in ("open", "close"):
            self._add_bracket(item, content)
        elif item.kind == "delimiter":
            self._add_delimiter(item, content)
        elif item.kind == "tag":
            self._add_tag(content)
        elif item.kind == "reading":
            self._builder.add_reading(self._name(), content)
        elif item.kind == "begin":
            self._open(item.content, content, can_copy=False)
        elif item.kind == "end":
            self._close(item.content, content)
        elif wiki and has_letters(wiki["text"] or wiki["name"]):
            self._open("[[", f"[[{wiki['target'] or wiki['name']}{wiki['bar'] or self._bar}", can_copy=False)
            self._builder.add_text(wiki["text"] or wiki["name"])
            self._close("[[", "]]")
        elif item.kind != "none":
            self._builder.add_single(self._name(), content, is_space=item.kind in ("hard", "tab"))

    def _add_bracket(self, item: _Item, content: str) -> None:
        if item.partner < 0:
            self._builder.add_text(content)
        elif item.kind == "open":
            self._open("[", content, can_copy=False)
        else:
            id = self._close("[", item.content)
            if self._add_title(item) and id:
                self._nested[f"/{id}"] = item.start, item.end

    def _add_delimiter(self, item: _Item, content: str) -> None:
        for mark in item.closes:
            self._close(mark, mark)
        self._builder.add_text(content[: item.count])
        for mark in item.opens:
            self._open(mark, mark)

    def _add_tag(self, content: str) -> None:
        name = re.sub(r"\W.*", "", content.strip("</"), flags=re.DOTALL).lower()
        if name == "br":
            self._builder.add_single(self._name(), content, is_space=True)
        elif content.startswith("</"):
            self._close(name, content)
        elif content.endswith("/>"):
            self._builder.add_single(self._name(), content)
        else:
            self._open(name, content, can_copy=name != "a")

    def _open(self, name: str, content: str, can_copy: bool = True) -> None:
        """Open a pair. Equal ones share their id."""
        is_free = can_copy and content not in (id for _, id in self._opened)
        id = content if is_free else self._name()
        self._opened.append((name, id))
        self._builder.open(id, content, can_copy)

    def _close(self, name: str, content: str) -> str:
        """Close a pair. Return its id, if it was open."""
        index = next((each for each in reversed(range(len(self._opened))) if self._opened[each][0] == name), None)
        if index is None:
            self._builder.add_single(self._name(), content)
            return ""
        id = self._opened[index][1]
        self._builder.close(id, content)
        del self._opened[index:]
        return id


def escape_inline(text: str) -> str:
    """Return text as Markdown that shows it, within a line. Addresses and paths stay."""
    line = SPACE.join(re.split(r"\s*[\r\n]+\s*", text))
    places = {match.start() for match in _ESCAPED.finditer(_mask_addresses(line, with_ends=True))}
    return "".join("\\" * (place in places) + character for place, character in enumerate(line))


def escape_cell(text: str) -> str:
    """Return text as Markdown for a cell of a table."""
    return re.sub(r"(?<!\\)((?:\\\\)*)\|", r"\1\\|", escape_inline(text))


def read_title(raw: str) -> str:
    """Return the text of a title that is written without its quotes."""
    pattern = rf"\\([{re.escape(string.punctuation)}])|&#?\w+;"
    return re.sub(pattern, lambda match: match[1] or html.unescape(match[0]), raw)


def escape_title(text: str, quote: str) -> str:
    """Return text as Markdown for a title, perhaps in a cell of a table. quote: what begins the title."""
    marks = "()" if quote == "(" else quote
    return re.sub(rf"[\\|{marks}]|&(?=\#?\w+;)", r"\\\g<0>", SPACE.join(text.split()))


def guard_markup(unit: Unit) -> Unit:
    """Return the unit with backslashes as codes where its text would be markup beside a code or as a beginning.

    Emphasis by _ within a word becomes emphasis by *.
    """
    text = unit.text
    offsets = set()
    for start in [0, *(code.offset + 1 for code in unit.codes if code.is_space and "\n" in code.content)]:
        if match := _LINE_MARK.match(text, start):
            offset = match.end("number") if match["number"] else start
            if not any(start <= code.offset <= offset and not code.is_space for code in unit.codes):
                offsets.add(offset)
    opening = {code.offset - 1 for code in unit.codes if code.kind == "open" and code.content == "["}
    offsets |= {offset for offset in opening if text[max(0, offset) : offset + 1] == "!"}
    guards = [Code(each, "single", f"escape{each}", "\\") for each in offsets if not _ESCAPED.match(text, each)]
    codes = sorted([*unit.codes, *guards], key=lambda code: code.offset)  # stable: a guard is after the others
    if any(_is_within_word(text, code) for code in codes):
        codes = [
            replace(code, content=code.content.replace("_", "*")) if code.id[:1] == "_" else code for code in codes
        ]
    return replace(unit, codes=tuple(codes))


def _is_within_word(text: str, code: Code) -> bool:
    """Return whether emphasis by _ touches a word outside, where it would be no emphasis."""
    outside = text[code.offset - 1 : code.offset] if code.kind == "open" else text[code.offset : code.offset + 1]
    return code.content in ("_", "__") and code.kind != "single" and outside.isalnum()
