"""Units of HTML and XHTML: the running text of blocks, and attributes that people read.

HTML and XHTML hand over their markup as tokens. Tables and rules follow the HTML standard
(https://html.spec.whatwg.org/multipage/): its element index, `translate` and `lang`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import unescape
from itertools import pairwise
from typing import Literal, NamedTuple

from docmt.documents.words import has_letters
from docmt.formats.language_codes import primary_language, text_direction
from docmt.formats.patched_text import PatchedText, Replacement, Span
from docmt.formats.placeholders import tidy_pieces
from docmt.formats.units import ReadConfig, Unit, UnitBuilder, UnitFile, is_last_line


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input keygen link meta param source track wbr")
_BLOCKS = _names(
    "address article aside blockquote body button caption center col colgroup datalist dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu "
    "nav noframes noscript ol optgroup option p pre search section select summary table tbody td textarea tfoot th "
    "thead title tr ul xmp"
)
_READINGS = _names("rp rt rtc")
"""What stands above the base of a ruby."""
_EMBEDDED = _READINGS | _names("audio canvas iframe map math noembed object picture svg video")
"""Elements that are one code with all that they hold."""
_SKIPPED = {
    **dict.fromkeys(("code", "kbd", "pre", "samp", "var", "xmp"), "code"),
    **dict.fromkeys(("noframes", "script", "style", "template"), ""),
    "textarea": "text fields",
}
"""Elements that are not translated, and what they are called in `Skipped`; "" for what readers do not see."""
_CAN_COPY = _names(
    "abbr acronym b bdi bdo big cite del dfn em font i ins mark nobr s small span strike strong sub sup tt u"
)
"""Pairs that may enclose several passages. Others are one thing: a link, a <q> with its marks, an element of XML."""
_NOTE_MARKS = _names("a sup")
"""Elements that are one code where they have no letters and follow a word at once: 1, [2], *."""
_ATTRIBUTES = _names("alt aria-description aria-label placeholder title")
_ELEMENT_ATTRIBUTES = _names("th@abbr option@label optgroup@label track@label table@summary")
_METAS = _names("description keywords title og:title og:description twitter:title twitter:description")
_TABLE_PARTS = _names("tbody tfoot thead tr td th")
_IMPLIED_ENDS = {
    "li": _names("li"),
    "dt": _names("dt dd"),
    "dd": _names("dt dd"),
    "td": _names("td th"),
    "th": _names("td th"),
    "tr": _names("tr td th"),
    "tbody": _TABLE_PARTS,
    "tfoot": _TABLE_PARTS,
    "thead": _TABLE_PARTS,
    "option": _names("option"),
    "optgroup": _names("option optgroup"),
    "body": _names("head"),
}
"""Open elements that the start of an element _closes. Every block _closes a paragraph."""
_ATTRIBUTE = re.compile(r"([^\s/>=][^\s/>=]*)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>\"'][^\s>]*))?")
_TAG_NAME = re.compile(r"<[^\s/>]*")
_LANGUAGE_TAGS: tuple[str, ...] = ("lang", "xml:lang")
_SPACES = " \t\n\r\f"
_DRAWN = re.compile(r"<(?:text|tspan|textPath|title|desc)\b[^<>]*>([^<]+)", re.IGNORECASE)
_SEPARATOR = re.compile("[|¦•·‣›»]")
_PATH_SEPARATOR = re.compile(r"[|¦•·‣›»>/→]")
_NBSP = re.compile("&nbsp;|&#160;|&#x0*a0;", re.IGNORECASE)
_MAX_DEPTH = 50
"""Open elements around one that is not translated where parts of it may be."""


class _TagAttribute(NamedTuple):
    """An attribute of a start tag. start, end: its value without quotes; quote: "", '"' or "'"."""

    start: int
    end: int
    value: str
    """unescaped"""
    quote: str


class Token(NamedTuple):
    """A tag, characters, or markup that shows nothing."""

    kind: Literal["start", "end", "text", "aside"]
    """"aside": comment, declaration, processing instruction, contents of scripts"""
    start: int
    end: int
    name: str = ""
    """of a tag, in lower case for HTML"""
    value: str = ""
    """characters, unescaped"""
    is_empty: bool = False
    """whether a start tag is the whole element"""


class _Item(NamedTuple):
    """A piece of running text."""

    kind: Literal["text", "open", "close", "single", "break", "aside"]
    start: int
    end: int
    name: str = ""
    value: str = ""
    """characters; those of an element that is not translated"""
    can_copy: bool = True
    has_patches: bool = False
    """whether its tag has attributes that are written anew"""
    reason: str = ""
    """why it is not translated"""


class MarkupFile(UnitFile):
    """An HTML or XHTML file."""

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        config: ReadConfig,
        escape: Callable[[str], str],
        encode: Callable[[str], bytes],
        language_tag: str = "lang",
    ) -> None:
        """Read the units.

        escape: writes character data. encode: returns the bytes of a text. language_tag: attribute that names the
        language of a page that does not name it yet.
        """
        super().__init__()
        self._text, self._tokens, self._encode, self._language_tag = text, tokens, encode, language_tag
        self._patched = PatchedText(text)
        self._unquoted: list[tuple[int, int, int]] = []
        """start, end and unit of values of attributes without quotes"""
        self._language_tags: list[Token] = []
        """start tags that name the language of the text"""
        self._ends = _find_ends(tokens)
        self._frames: list[tuple[int, str | None]] = []
        """start tags of open elements, and why their text is not translated"""
        self._items: list[_Item] = []
        self._values: list[tuple[_TagAttribute, str]] = []
        """attributes in running text, with the names of their units"""
        nbsp = _NBSP.search(text)
        self._nbsp, self._raw_escape = nbsp[0] if nbsp else "\xa0", escape
        self._languages = self._find_languages(config)
        self._read()

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. language: see `UnitFile`; sets `lang` and `dir`."""
        changes = [
            (start, end, f'"{self._escape_double(units[index].text)}"')
            for start, end, index in self._unquoted
            if units[index] != self.units[index]
        ]
        if language:
            changes += self._name_language(language.replace("_", "-"))
        tidied = [tidy_pieces(old, new) for old, new in zip(self.units, units, strict=True)]
        return self._encode(self._patched.render(self.units, tidied, changes))

    def _name_language(self, language: str) -> Iterator[Replacement]:
        direction = text_direction(language)
        for token in self._language_tags:
            attributes = _read_attributes(self._text[token.start : token.end], token.start)
            values = {tag: language for tag in _LANGUAGE_TAGS if tag in attributes}
            if token.name == "html" and not values:
                values[self._language_tag] = language
            old = attributes["dir"].value.strip().lower() if "dir" in attributes else ""
            if old in ("ltr", "rtl") or (token.name == "html" and not old and direction == "rtl"):
                values["dir"] = direction
            added = [f' {tag}="{value}"' for tag, value in values.items() if tag not in attributes]
            match = _TAG_NAME.match(self._text, token.start)
            if match and added:
                yield match.end(), match.end(), "".join(added)
            for tag, value in values.items():
                if tag in attributes and attributes[tag].value.lower() != value.lower():
                    yield _set_value(attributes[tag], value)

    def _escape(self, text: str) -> str:
        """Return character data as the file writes it."""
        return self._raw_escape(text).replace("\xa0", self._nbsp)

    def _escape_double(self, text: str) -> str:
        """Return the value of an attribute in double quotes."""
        return self._escape(text).replace('"', "&quot;")

    def _escape_single(self, text: str) -> str:
        return self._escape(text).replace("'", "&#39;")

    def _find_languages(self, config: ReadConfig) -> set[str]:
        """Return the languages that count as that of the text."""
        languages = {primary_language(config.source_language)}
        for token in self._tokens:
            if token.kind == "start" and token.name in ("html", "body"):
                languages.add(primary_language(_find_language(self._read_tag(token))))
                if token.name == "body":
                    break
        return languages - {""}

    def _read_tag(self, token: Token) -> dict[str, _TagAttribute]:
        return _read_attributes(self._text[token.start : token.end], token.start)

    def _read(self) -> None:
        """Read all tokens."""
        index = 0
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.kind == "start":
                index = self._start(index)
                continue
            if token.kind == "end":
                self._end(index)
            elif self._reason is None:
                self._items.append(_Item(token.kind, token.start, token.end, value=token.value))
            elif token.kind == "text":
                self.skip(self._reason, token.value)
            index += 1
        self._flush()

    @property
    def _reason(self) -> str | None:
        return self._frames[-1][1] if self._frames else None

    def _start(self, index: int) -> int:
        """Read a start tag, or a whole element. Return the index of the next token."""
        token = self._tokens[index]
        self._close(index)
        attributes = self._read_tag(token)
        is_enabled = _find_translate(attributes) == "yes"
        reason = self._find_reason(token.name, attributes)
        if self._reason is None and (reason is not None or token.name in _EMBEDDED):
            end = self._ends[index]
            is_whole = reason is None or len(self._frames) > _MAX_DEPTH  # each deeper one would be searched again
            if is_whole or not any(self._is_enabled(each) for each in self._tokens[index + 1 : end]):
                self._add_whole(index, end, reason)
                return end
        state = reason if reason is not None else None if is_enabled else self._reason
        if token.name in _BLOCKS or state != self._reason:
            self._flush()
        if state is None:
            self._add_tag(token, attributes)
        if not token.is_empty and token.name not in _VOID:
            self._frames.append((index, state))
        return index + 1

    def _add_tag(self, token: Token, attributes: dict[str, _TagAttribute]) -> None:
        """Add a start tag to the running text."""
        has_patches = self._read_values(token, attributes)
        if token.name in _BLOCKS or token.name == "meta":
            self._flush()
            return
        if token.name == "br":
            self._items.append(_Item("break", token.start, token.end, has_patches=has_patches))
            return
        is_alone = token.is_empty or token.name in _VOID
        can_copy = token.name in _CAN_COPY and "id" not in attributes
        kind: Literal["single", "open"] = "single" if is_alone else "open"
        self._items.append(_Item(kind, token.start, token.end, token.name, can_copy=can_copy, has_patches=has_patches))

    def _end(self, index: int) -> None:
        token, old = self._tokens[index], self._reason
        self._close(index)
        start = self._frames[-1][0] if self._frames else 0
        if self._frames and self._ends[start] == index + 1 and self._tokens[start].name == token.name:
            self._frames.pop()
        if token.name in _BLOCKS or self._reason != old:
            self._flush()
        elif self._reason is None:
            kind: Literal["aside", "close"] = "aside" if token.name in _VOID else "close"
            self._items.append(_Item(kind, token.start, token.end, token.name))

    def _close(self, index: int) -> None:
        """Close the elements that end before a token."""
        while self._frames and self._ends[self._frames[-1][0]] <= index:
            self._frames.pop()

    def _find_reason(self, name: str, attributes: dict[str, _TagAttribute]) -> str | None:
        """Return why an element is not translated, or None."""
        translate = _find_translate(attributes)
        if translate == "no":
            return 'translate="no"'
        language = primary_language(_find_language(attributes))
        if language and self._languages and language not in self._languages and name not in ("html", "body"):
            return "passages in another language"
        return _SKIPPED.get(name) if translate != "yes" else None

    def _is_enabled(self, token: Token) -> bool:
        return token.kind == "start" and _find_translate(self._read_tag(token)) == "yes"

    def _add_whole(self, index: int, end: int, reason: str | None) -> None:
        """Add an element that is one code, or skip it where it is a block."""
        tokens = self._tokens[index:end]
        first = tokens[0]
        if first.name in _BLOCKS:
            self._flush()
        read = tokens if reason is None else tokens[:1] if reason == _SKIPPED.get(first.name) else []
        patches = [self._read_values(each, self._read_tag(each)) for each in read if each.kind == "start"]
        value = " ".join(token.value for token in tokens if token.kind == "text")
        if first.name in _BLOCKS:
            self.skip(reason or "", value)
            self._flush()
        else:
            if reason is None and first.name == "svg":
                for match in _DRAWN.finditer(self._text, first.start, tokens[-1].end):
                    self.skip("texts of drawings", unescape(match[1]))
            span = first.start, tokens[-1].end
            self._items.append(_Item("single", *span, first.name, value, has_patches=any(patches), reason=reason or ""))

    def _read_values(self, token: Token, attributes: dict[str, _TagAttribute]) -> bool:
        """Note what is translated of a tag, and whether it names the language. Return whether it has either."""
        names = [name for name in attributes if _is_translated(token.name, name, attributes)]
        values = [
            (attributes[name], f"{name} of {token.name}") for name in names if has_letters(attributes[name].value)
        ]
        self._values += values
        names_language = (
            token.name in ("html", "body") or primary_language(_find_language(attributes)) in self._languages
        )
        if names_language:
            self._language_tags.append(token)
        return bool(values) or names_language

    def _flush(self) -> None:
        """Make units of the running text and of its attributes."""
        items, self._items = self._items, []
        for segment in _split(items):
            self._add_unit(segment)
        values, self._values = self._values, []
        for attribute, name in values:
            text = attribute.value.strip(_SPACES)
            index = self.add_unit(Unit(text, id=name))
            if not attribute.quote:
                self._unquoted.append((attribute.start, attribute.end, index))
                continue
            start, end = _strip(self._text, attribute.start, attribute.end)
            self._patched.add(start, end, index, self._escape_double if attribute.quote == '"' else self._escape_single)

    def _add_unit(self, items: Sequence[_Item]) -> None:
        if not any(item.kind == "text" and has_letters(item.value) for item in items):
            for item in items:
                self.skip(item.reason, item.value)
            return
        partners = _match_pairs(items)
        inner = [
            index
            for index, item in enumerate(items)
            if item.kind == "single" or item.value.strip(_SPACES) or (index in partners and item.kind != "text")
        ]
        first, last = inner[0], inner[-1]
        start, _ = _strip(self._text, items[first].start, items[first].end)
        _, end = _strip(self._text, items[last].start, items[last].end)
        unit, nested = self._build(items, range(first, last + 1), partners, end)
        self._patched.add(start, end, self.add_unit(unit), self._escape, nested)

    def _build(
        self, items: Sequence[_Item], indices: Iterable[int], partners: dict[int, int], end: int
    ) -> tuple[Unit, dict[str, Span]]:
        """Return the unit of some items, and the spans of codes that are written anew."""
        builder = UnitBuilder(collapse=True, escape=self._escape)
        nested: dict[str, Span] = {}
        has_space = True  # whether the text ends with white space
        for index in indices:
            item, id = items[index], str(min(index, partners.get(index, index)) + 1)
            last = item.end
            if item.kind == "text":
                builder.add_text(item.value.rstrip(_SPACES) if last > end else item.value)
                has_space = item.value[-1:] in _SPACES if item.value else has_space
                continue
            if item.kind == "single" and has_space:
                # The unit's text has no second space for that after the code.
                last = min(end, last + _count_spaces(self._text, last))
            content = self._text[item.start : last]
            if item.name in _READINGS and not item.has_patches:
                builder.add_reading(id, content)
                continue
            if item.has_patches:
                nested[id] = item.start, last
            if index not in partners:
                builder.add_alone(id, content, is_space=item.kind == "break")
                has_space = has_space or item.kind == "break"
            elif item.kind == "open":
                builder.open(id, content, item.can_copy, is_mark=item.name in _NOTE_MARKS)
            else:
                builder.close(id, content)
        return builder.finish(), nested


def _set_value(attribute: _TagAttribute, value: str) -> Replacement:
    if attribute.quote:
        return attribute.start, attribute.end, value
    equals = "" if attribute.end > attribute.start else "="
    return attribute.start, attribute.end, f'{equals}"{value}"'


def _strip(text: str, start: int, end: int) -> Span:
    """Return the span without white space at its ends."""
    raw = text[start:end]
    return start + len(raw) - len(raw.lstrip(_SPACES)), end - len(raw) + len(raw.rstrip(_SPACES))


def _count_spaces(text: str, start: int) -> int:
    end = start
    while text[end : end + 1] in _SPACES and end < len(text):
        end += 1
    return end - start


def _match_pairs(items: Sequence[_Item]) -> dict[int, int]:
    """Return the index of the other tag of each pair. Tags that overlap or have no other tag are left out."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    counts: Counter[str] = Counter()
    for index, item in enumerate(items):
        if item.kind == "open":
            opened.append(index)
            counts[item.name] += 1
        elif item.kind == "close" and counts[item.name]:
            while items[other := opened.pop()].name != item.name:
                counts[items[other].name] -= 1
            counts[item.name] -= 1
            partners[other], partners[index] = index, other
    return partners


def _split(items: list[_Item]) -> Iterator[list[_Item]]:
    """Yield the parts of running text that are units: paragraphs between line breaks, lines, links of menus."""
    if not items:
        return
    cuts = sorted({0, *_cut_lines(items), *_cut_links(items), len(items)})
    for start, end in pairwise(cuts):
        yield items[start:end]


def _cut_lines(items: Sequence[_Item]) -> Iterator[int]:
    """Yield the indices of line breaks at empty lines and between the lines of an address."""
    breaks = [index for index, item in enumerate(items) if item.kind == "break"]
    borders = [-1, *breaks, len(items)]
    lines = [items[start + 1 : end] for start, end in pairwise(borders)]
    texts = [_join_text(line) for line in lines]
    blank = [not text and all(item.kind != "single" for item in line) for line, text in zip(lines, texts, strict=True)]
    for number, index in enumerate(breaks):
        if blank[number] or blank[number + 1] or is_last_line(texts[number], texts[number + 1]):
            yield index


def _cut_links(items: Sequence[_Item]) -> Iterator[int]:
    """Yield the borders of links of a menu: links without words between them, and perhaps one item after them."""
    links = [
        (index, other)
        for index, other in sorted(_match_pairs(items).items())
        if index < other and items[index].name == "a"
    ]
    if len(links) < 2:
        return
    borders = [(-1, -1), *links, (len(items), len(items))]
    gaps = [_join_text(items[end + 1 : start]) for (_, end), (start, _) in pairwise(borders)]
    is_menu = not any(map(has_letters, gaps))
    is_path = not any(map(has_letters, gaps[:-1])) and _PATH_SEPARATOR.match(gaps[-1])
    for (_, end), (start, _), gap in zip(borders, borders[1:], gaps, strict=False):
        if is_menu or ((is_path or _SEPARATOR.search(gap)) and not has_letters(gap)):
            yield from (end + 1, start)
        elif is_path:
            yield end + 1


def _join_text(items: Sequence[_Item]) -> str:
    return " ".join("".join(item.value for item in items if item.kind == "text").split())


def _find_ends(tokens: Sequence[Token]) -> list[int]:
    """Return, for each start tag, the index after the last token of its element."""
    ends = list(range(1, len(tokens) + 1))
    opened: list[int] = []
    counts: Counter[str] = Counter()
    for number, token in enumerate(tokens):
        if token.kind == "start":
            while opened and _closes(token.name, tokens[opened[-1]].name):
                ends[opened[-1]] = number
                counts[tokens[opened.pop()].name] -= 1
            if not token.is_empty and token.name not in _VOID:
                opened.append(number)
                counts[token.name] += 1
        elif token.kind == "end" and counts[token.name]:
            while tokens[start := opened.pop()].name != token.name:
                ends[start] = number
                counts[tokens[start].name] -= 1
            ends[start] = number + 1
            counts[token.name] -= 1
    for start in opened:
        ends[start] = len(tokens)
    return ends


def _read_attributes(tag: str, start: int) -> dict[str, _TagAttribute]:
    """Return the attributes of a start tag that begins at `start` by name, the first one of each name."""
    attributes: dict[str, _TagAttribute] = {}
    name = _TAG_NAME.match(tag)
    for match in _ATTRIBUTE.finditer(tag, name.end() if name else 0):
        raw = match[2] or ""
        quote = raw[:1] if raw[:1] in ('"', "'") else ""
        first, last = (match.start(2), match.end(2)) if match[2] else (match.end(), match.end())
        span = start + first + len(quote), start + last - len(quote)
        value = unescape(raw[1:-1] if quote else raw)
        attributes.setdefault(match[1].lower(), _TagAttribute(*span, value, quote))
    return attributes


def _find_translate(attributes: dict[str, _TagAttribute]) -> str:
    """Return "yes", "no", or "" where an element does not tell."""
    if "translate" in attributes:
        return {"no": "no", "yes": "yes", "": "yes"}.get(attributes["translate"].value.strip().lower(), "")
    return "no" if "class" in attributes and "notranslate" in attributes["class"].value.lower().split() else ""


def _find_language(attributes: dict[str, _TagAttribute]) -> str:
    """Return the code of the language that an element names, or an empty string."""
    attribute = attributes.get("lang") or attributes.get("xml:lang")
    return attribute.value if attribute else ""


def _is_translated(tag: str, name: str, attributes: dict[str, _TagAttribute]) -> bool:
    """Return whether an attribute of an element is translated."""
    if tag == "meta":
        kind = attributes.get("name") or attributes.get("property")
        return name == "content" and kind is not None and kind.value.strip().lower() in _METAS
    if tag == "input" and name == "value":
        return "type" in attributes and attributes["type"].value.strip().lower() in ("submit", "button", "reset")
    return (name in _ATTRIBUTES and tag not in ("link", "style")) or f"{tag}@{name}" in _ELEMENT_ATTRIBUTES


def _closes(name: str, opened: str) -> bool:
    """Return whether the start of an element _closes an open one."""
    return opened in _IMPLIED_ENDS.get(name, ()) or (opened == "p" and name in _BLOCKS and name != "button")
