"""Units of HTML and XHTML: the running text of blocks, and attributes that people read.

HTML, XHTML and pieces of XML hand over their markup as tokens. Rules follow the HTML standard
(https://html.spec.whatwg.org/multipage/): its element index, `translate` and `lang`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import unescape
from itertools import accumulate, pairwise, permutations
from typing import Literal, NamedTuple

from docmt.documents.columns import TAG_SIGN, find_template_tags
from docmt.documents.words import Span, has_letters, has_words, strip_span
from docmt.formats.html_elements import (
    BLOCKS,
    CAN_COPY,
    EMBEDDED,
    READINGS,
    VOID,
    Attributes,
    TagAttribute,
    Token,
    convert_text,
    find_borders,
    find_ends,
    find_templates,
    list_names,
    read_table,
    unescape_text,
)
from docmt.formats.language_codes import primary_language, text_direction
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.placeholders import tidy_pieces
from docmt.formats.units import BULLET, ReadConfig, TagRules, Unit, UnitBuilder, UnitFile, is_last_line, match_tags

_SKIPPED = read_table("skipped")
"""Elements that are not translated, and what they are called in `Skipped`; "" for what readers do not see."""
_NOTE_MARKS = list_names("a sup")
"""Elements that are one code where they have no letters and follow a word at once: 1, [2], *."""
_SIGNATURES = list_names("sig-object member-signature")
"""Classes of the declarations that a page about a program explains."""
_FALLBACKS = {"math": "formulas", "svg": "texts of drawings"}
"""What texts in embedded elements are called in `Skipped`, if not fallback texts."""
_LANGUAGE_TAGS: tuple[str, ...] = ("lang", "xml:lang")
_SPACES = " \t\n\r\f"
_OLD, _NEW = list_names("del s strike"), list_names("ins u")
_PREFORMATTED = list_names("listing pre xmp")
_LAYOUT = re.compile(rf"[ ]*[\t\n\r][ \t\n\r]*(?:{BULLET})?|[ ]{{2,}}")
"""White space that preformatted text shows, with the mark of a list item."""
_DRAWN = re.compile(r"<(?:text|tspan|textPath|title|desc|mtext)\b[^<>]*>([^<]+)", re.IGNORECASE)
_ICON = re.compile(r"(?:^|[-_])(?:icons?|symbols)(?:$|[-_])", re.IGNORECASE)
"""Classes and custom elements whose text is the name of a picture."""
_ICON_ELEMENTS = list_names("b div em i span")
_ICON_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_NOTE_LINK = re.compile(r"[\[({]?(?:\d{1,3}|[A-Za-z]|[ivxl]{2,5})[\])}]?")
_NOTE_ROLES = list_names("noteref doc-noteref doc-backlink backlink")
_MAX_SIGN = 12
"""Tokens of an element that may be a sign: an icon, the number of a note."""
_PICTURES = list_names("canvas iframe img object picture svg video")
_FORMATS = CAN_COPY - {"span"}
_LAST_WORD = re.compile(r"[^\W_]+\Z")
_FIRST_WORD = re.compile(r"[^\W_]+")
_STOP = re.compile(r"[^\W_]{2,}[.!?…:;,][)\]\"'”’»]*\Z")
_SEPARATOR = re.compile("[|¦•·‣›»]")
_PATH_SEPARATOR = re.compile(r"\s*[|¦•·‣›»>/→]\s*")
_NBSP = re.compile("&nbsp;|&#160;|&#x0*a0;", re.IGNORECASE)
_MAX_DEPTH = 50
"""Open elements around one that is not translated where parts of it may be."""


_Kind = Literal["text", "open", "close", "single", "break", "hidden"]


class _Item(NamedTuple):
    """A piece of running text."""

    kind: _Kind
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
        tags: TagRules | None = None,
    ) -> None:
        """Read the units.

        escape: writes character data. encode: returns the bytes of a text. language_tag: attribute that names the
        language of a page that does not name it yet. tags: rules of a piece of XML.
        """
        super().__init__()
        self._text, self._tokens, self._encode, self._language_tag = text, tokens, encode, language_tag
        self._patched, self._templates = PatchedText(text), find_templates(text)
        self._unquoted: list[tuple[int, int, int]] = []
        """start, end and unit of values of attributes without quotes"""
        self._language_tags: list[Token] = []
        """start tags that name the language of the text"""
        self._ends = find_ends(tokens)
        self._borders = find_borders(tokens, self._ends, tags)
        self._is_html = tags is None
        self._decode = unescape if tags or language_tag != "lang" else unescape_text
        self._frames: list[tuple[int, str | None]] = []
        """start tags of open elements, and why their text is not translated"""
        self._items: list[_Item] = []
        self._values: list[tuple[TagAttribute, str]] = []
        """attributes in running text, with the names of their units"""
        nbsp = _NBSP.search(text)
        self._nbsp, self._raw_escape = nbsp[0] if nbsp else "\xa0", escape
        self._languages = self._find_languages(config)
        self._read()

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. language: see `UnitFile`; sets `lang` and `dir`."""
        changed = (each for each in self._unquoted if units[each[2]] != self.units[each[2]])
        changes = [(start, end, f'"{self._escape_value(units[index].text)}"') for start, end, index in changed]
        if language:
            changes += self._name_language(language.replace("_", "-"))
        tidied = [tidy_pieces(old, new) for old, new in zip(self.units, units, strict=True)]
        return self._encode(self._patched.render(self.units, tidied, changes))

    def _name_language(self, language: str) -> Iterator[Replacement]:
        direction = text_direction(language)
        for token in self._language_tags:
            attributes = self._read_tag(token)
            values = {tag: language for tag in _LANGUAGE_TAGS if tag in attributes}
            if token.name == "html" and not values:
                values[self._language_tag] = language
            old = attributes["dir"].value.strip().lower() if "dir" in attributes else ""
            if old in ("ltr", "rtl") or (token.name == "html" and not old and direction == "rtl"):
                values["dir"] = direction
            added = [f' {tag}="{value}"' for tag, value in values.items() if tag not in attributes]
            if added:
                yield attributes.start, attributes.start, "".join(added)
            for tag, value in values.items():
                if tag in attributes and attributes[tag].value.lower() != value.lower():
                    yield attributes[tag].set_value(value)

    def _escape(self, text: str) -> str:
        """Return character data as the file writes it."""
        return self._raw_escape(text).replace("\xa0", self._nbsp)

    def _escape_value(self, text: str, quote: str = '"') -> str:
        """Return the value of an attribute in quotes."""
        reference = {'"': "&quot;", "'": "&#39;"}[quote]
        return convert_text(text, lambda part: self._escape(part).replace(quote, reference), self._templates)

    def _find_languages(self, config: ReadConfig) -> set[str]:
        """Return the languages that count as that of the text."""
        languages = {primary_language(config.source_language)}
        for token in self._tokens:
            if token.kind == "start" and token.name in ("html", "body"):
                languages.add(primary_language(self._read_tag(token).find_language()))
                if token.name == "body":
                    break
        return languages - {""}

    def _read_tag(self, token: Token) -> Attributes:
        return Attributes(self._text[token.start : token.end], token.start)

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
                self._items += self._read_text(token)
            elif token.kind == "text":
                self.skip(self._reason, token.value)
            index += 1
        self._flush()

    def _read_text(self, token: Token) -> Iterator[_Item]:
        """Yield the items of a text; where it is preformatted, with its line breaks and wide spaces."""
        raw, position = self._text[token.start : token.end], 0
        is_laid_out = any(self._tokens[start].name in _PREFORMATTED for start, _ in self._frames[-_MAX_DEPTH:])
        for match in _LAYOUT.finditer(raw) if is_laid_out and token.kind == "text" else ():
            start, end = token.start + match.start(), token.start + match.end()
            yield _Item("text", token.start + position, start, value=self._decode(raw[position : match.start()]))
            yield _Item("break", start, end)
            position = match.end()
        step = _PATH_SEPARATOR.match(raw) if self._items and self._items[-1].name == "a" else None
        if step and step[0].strip() == token.value[: step.end()].strip():
            yield _Item("text", token.start, token.start + step.end(), value=step[0])
            position = step.end()
        for (start, end), tag, name, _ in find_template_tags(raw) if not (is_laid_out or raw.startswith("<!")) else ():
            yield _Item("text", token.start + position, token.start + start, value=self._decode(raw[position:start]))
            yield _Item(tag, token.start + start, token.start + end, name, can_copy=False)
            position = end
        value = self._decode(raw[position:]) if position else token.value
        yield _Item("text" if token.kind == "text" else "hidden", token.start + position, token.end, value=value)

    @property
    def _reason(self) -> str | None:
        return self._frames[-1][1] if self._frames else None

    def _start(self, index: int) -> int:
        """Read a start tag, or a whole element. Return the index of the next token."""
        token = self._tokens[index]
        self._close(index)
        attributes = self._read_tag(token)
        is_enabled = attributes.find_translate() == "yes"
        reason = self._find_reason(token.name, attributes)
        if self._reason is None and (reason is not None or token.name in EMBEDDED or self._is_sign(index, attributes)):
            end = self._ends[index]
            is_whole = reason is None or len(self._frames) > _MAX_DEPTH  # each deeper one would be searched again
            tags = (self._read_tag(each) for each in self._tokens[index + 1 : end] if each.kind == "start")
            if is_whole or not any(each.find_translate() == "yes" for each in tags):
                self._add_whole(index, end, reason)
                return end
        if self._reason is None and self._is_replaced(index):
            text, closing = self._tokens[index + 1 : index + 3]
            self._values.append((TagAttribute(text.start, text.end, text.value, ">"), token.name))
            self._items.append(_Item("single", token.start, closing.end, token.name, has_patches=True))
            return index + 3
        state = reason if reason is not None else None if is_enabled else self._reason
        is_block = self._is_block(index)
        if is_block or state != self._reason:
            self._flush()
        if state is None:
            self._add_tag(token, attributes, is_block)
        if not token.is_empty and token.name not in VOID:
            self._frames.append((index, state))
        return index + 1

    def _is_block(self, start: int) -> bool:
        """Return whether the element of a start tag ends a unit."""
        return self._tokens[start].name in BLOCKS or start in self._borders

    def _is_sign(self, index: int, attributes: Attributes) -> bool:
        """Return whether an element is a sign that nobody reads as a word: an icon, an anchor, the number of a note."""
        name, tokens = self._tokens[index].name, self._tokens[index : self._ends[index]]
        text = "".join(token.value for token in tokens[:_MAX_SIGN] if token.kind == "text").strip()
        if not text or len(tokens) > _MAX_SIGN:
            return False
        values = {name: attributes[name].value for name in attributes}
        if name in _NOTE_MARKS:
            roles = f"{values.get('role', '')} {values.get('epub:type', '')}".lower().split()
            is_note = values.get("href", "").startswith("#") or not _NOTE_ROLES.isdisjoint(roles)
            after = self._text[tokens[-1].end : tokens[-1].end + 1]
            is_raised = name == "sup" and not has_letters(text) and text[0] not in ".," and after not in ("/", "⁄")
            return is_raised or not has_words(text) or bool(is_note and _NOTE_LINK.fullmatch(text))
        is_icon = any(map(_ICON.search, [*values.get("class", "").split(), name if "-" in name else ""]))
        is_hidden = values.get("aria-hidden") == "true"
        may_be_icon = (is_icon or is_hidden) and (name in _ICON_ELEMENTS or "-" in name)
        return may_be_icon and (not has_words(text) or _ICON_NAME.fullmatch(text) is not None)

    def _is_replaced(self, index: int) -> bool:
        """Return whether an element is an old text, of words, that touches its new one: <del>old</del><ins>new</ins>.

        It is then a unit of its own within the running text.
        """
        sides = self._tokens[max(0, index - 2) : index][::-1], self._tokens[index + 3 : index + 5]
        around = [next((each for each in side if each.kind != "text" or each.value.strip()), None) for side in sides]
        is_plain = self._ends[index] == index + 3 and has_words(self._tokens[index + 1].value)
        is_old = is_plain and self._tokens[index].name in _OLD
        is_part = sides[0] != [] and sides[0][0].value[-1:].isalnum()
        return is_old and not is_part and any(each and each.name in _NEW for each in around)

    def _add_tag(self, token: Token, attributes: Attributes, is_block: bool) -> None:
        """Add a start tag to the running text."""
        has_patches = self._read_values(token, attributes)
        if is_block or token.name == "meta":
            self._flush()
            return
        is_single = token.is_empty or token.name in VOID
        can_copy = token.name in CAN_COPY - {"sub", "sup"} and "id" not in attributes
        kind: _Kind = "break" if token.name == "br" else "single" if is_single else "open"
        self._items.append(_Item(kind, token.start, token.end, token.name, can_copy=can_copy, has_patches=has_patches))

    def _end(self, index: int) -> None:
        token, old = self._tokens[index], self._reason
        self._close(index)
        start = self._frames[-1][0] if self._frames else 0
        is_block = token.name in BLOCKS
        if self._frames and self._ends[start] == index + 1 and self._tokens[start].name == token.name:
            self._frames.pop()
            is_block = self._is_block(start)
        if is_block or self._reason != old:
            self._flush()
        elif self._reason is None:
            self._items.append(_Item("hidden" if token.name in VOID else "close", token.start, token.end, token.name))

    def _close(self, index: int) -> None:
        """Close the elements that end before a token."""
        while self._frames and self._ends[self._frames[-1][0]] <= index:
            self._frames.pop()

    def _find_reason(self, name: str, attributes: Attributes) -> str | None:
        """Return why an element is not translated, or None."""
        translate = attributes.find_translate()
        if translate == "no":
            return 'translate="no"'
        language = primary_language(attributes.find_language())
        if language and self._languages and language not in self._languages and name not in ("html", "body"):
            return "passages in another language"
        if "class" in attributes and not _SIGNATURES.isdisjoint(attributes["class"].value.split()):
            return "code"
        return _SKIPPED.get(name) if translate != "yes" else None

    def _add_whole(self, index: int, end: int, reason: str | None) -> None:
        """Add an element that is one code, or skip it where it is a block."""
        tokens = self._tokens[index:end]
        first, is_block = tokens[0], self._is_block(index)
        if is_block:
            self._flush()
        read = tokens if reason is None else tokens[:1] if reason == _SKIPPED.get(first.name) else []
        patches = [self._read_values(each, self._read_tag(each)) for each in read if each.kind == "start"]
        value = " ".join(token.value for token in tokens if token.kind == "text")
        if first.name == "script" and "ld+json" in self._text[first.start : first.end]:
            self.skip("data for search engines", self._text[first.end : tokens[-1].start])
        if is_block:
            self.skip(reason or "", value)
            self._flush()
        else:
            if reason is None and first.name in EMBEDDED - READINGS:
                drawn = _DRAWN.findall(self._text, first.start, tokens[-1].end) if first.name in _FALLBACKS else [value]
                for text in drawn:
                    self.skip(_FALLBACKS.get(first.name, "fallback texts"), unescape(text))
            span = first.start, tokens[-1].end
            self._items.append(_Item("single", *span, first.name, value, has_patches=any(patches), reason=reason or ""))

    def _read_values(self, token: Token, attributes: Attributes) -> bool:
        """Note what is translated of a tag, and whether it names the language. Return whether it has either."""
        values = []
        for name, attribute in attributes.items():
            self.skip(attributes.find_kept(token.name, name), attribute.value)
            if attributes.is_translated(token.name, name) and has_letters(attribute.value):
                values.append((attribute, f"{name} of {token.name}"))
        self._values += values
        language = primary_language(attributes.find_language())
        names_language = token.name in ("html", "body") or language in self._languages
        if names_language:
            self._language_tags.append(token)
        return bool(values) or names_language

    def _flush(self) -> None:
        """Make units of the running text and of its attributes."""
        items, self._items = self._items, []
        items, cuts = _part_words(items)
        borders = {0, *(cuts if self._is_html else ()), *_cut_lines(items), *_cut_links(items), len(items)}
        for start, end in pairwise(sorted(borders)):
            self._add_unit(items[start:end])
        values, self._values = self._values, []
        for attribute, name in values:
            index = self.add_unit(Unit(attribute.value.strip(_SPACES), id=name))
            if not attribute.quote:
                self._unquoted.append((attribute.start, attribute.end, index))
                continue
            start, end = strip_span(self._text, attribute.start, attribute.end, _SPACES)
            is_text = attribute.quote == ">"
            escape = self._escape if is_text else partial(self._escape_value, quote=attribute.quote)
            self._patched.add(start, end, index, escape)

    def _add_unit(self, items: Sequence[_Item]) -> None:
        if not any(item.kind == "text" and has_letters(item.value) for item in items):
            for item in items:
                self.skip(item.reason, item.value)
            return
        ends = match_tags([(item.kind, item.name) for item in items])
        partners = ends | {end: start for start, end in ends.items()}
        shown = (index for index, item in enumerate(items) if item.kind == "single" or item.value.strip(_SPACES))
        inner = {*partners, *shown}
        first, last = min(inner), max(inner)
        start, _ = strip_span(self._text, items[first].start, items[first].end, _SPACES)
        _, end = strip_span(self._text, items[last].start, items[last].end, _SPACES)
        for item in items:
            self.skip(item.reason if item.reason != "code" else "", item.value)
        unit, nested = self._build(items, range(first, last + 1), partners, end)
        self._patched.add(start, end, self.add_unit(unit), self._escape, nested)

    def _build(
        self, items: Sequence[_Item], indices: Iterable[int], partners: dict[int, int], end: int
    ) -> tuple[Unit, dict[str, Span]]:
        """Return the unit of some items, and the spans of codes that are written anew."""
        builder = UnitBuilder(collapse=True)
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
                last = end - len(self._text[last:end].lstrip(_SPACES))
            content = self._text[item.start : last]
            if item.name in READINGS and not item.has_patches:
                builder.add_reading(id, content)
                continue
            if item.has_patches:
                nested[id] = item.start, last
            if index not in partners:
                builder.add_single(id, content, is_space=item.kind == "break")
                has_space = has_space or item.kind == "break"
            elif item.kind == "open":
                builder.open(id, content, item.can_copy)
            else:
                builder.close(id, content)
        return builder.finish(), nested


def _part_words(items: Sequence[_Item]) -> tuple[list[_Item], list[int]]:
    """Return running text with spaces between words that only tags part, and the borders of such elements in a row.

    A picture between two words is a line break.
    """
    texts = [index for index, item in enumerate(items) if item.kind == "text" and item.value]
    depths = list(accumulate(((item.kind == "open") - (item.kind == "close") for item in items), initial=0))
    top = min((depths[index] for index in texts if has_words(items[index].value)), default=0) - 1
    new, cuts, position = list[_Item](), list[int](), 0
    for before, after in pairwise(texts):
        tags = [item for item in items[before + 1 : after] if item.kind != "hidden"]
        place = next((index for index in range(before + 1, after) if items[index].kind == "open"), after)
        picture = next((index for index in range(before + 1, after) if items[index].name in _PICTURES), after)
        if picture < after and _LAST_WORD.search(items[before].value) and _FIRST_WORD.match(items[after].value):
            new += [*items[position:picture], items[picture]._replace(kind="break")]
            position = picture + 1
        elif len(tags) == after - before - 1 == 1 and _is_note(tags[0], items[before].value, items[after].value):
            # The model reads a comma after its word, and the number has its space.
            text, size = items[before], len(items[before].value) - len(items[before].value.rstrip(_SPACES))
            new += [*items[position:before], text._replace(value=text.value[:-size], end=text.end - size)]
            new.append(tags[0]._replace(start=tags[0].start - size))
            position = after
        elif tags and _are_apart(items[before].value, items[after].value, tags):
            new += items[position:place]
            position = place
            if depths[place] <= top:
                cuts.append(len(new))
            new.append(_Item("text", items[place].start, items[place].start, value=" "))
    return [*new, *items[position:]], cuts


def _are_apart(before: str, after: str, tags: Sequence[_Item]) -> bool:
    """Return whether two texts with these tags, and no space, between them do not join a word.

    One of a single letter does (<b>E</b>uropean), and small letters of another format (<b>Euro</b><i>pean</i>).
    """
    names = {tag.name for tag in tags}
    last, first = _LAST_WORD.search(before), _FIRST_WORD.match(after)
    if first is None or {"sub", "sup"} & names or any(tag.kind == "single" or TAG_SIGN.match(tag.name) for tag in tags):
        return False
    are_siblings = tags[0].kind == "close" and tags[-1].kind == "open"
    is_capital = after[0].isupper()
    if last is None:
        goes_on = is_capital or (are_siblings and after[0].isalpha() and before[-1] != ".")
        return goes_on and _STOP.search(before) is not None
    is_new = is_capital and before[-1].islower()
    if not are_siblings:
        is_count = any(a.isdigit() and b.isalpha() and len(b) > 2 for a, b in permutations((last[0], first[0])))
        return is_count or (is_new and len(last[0]) > 2 and first[0][1:].islower())
    is_whole = len(last[0]) > 1 and (len(first[0]) > 1 or not after[0].islower())
    is_element = is_new or {"del", "ins"} <= names or not names <= _FORMATS
    return is_whole and is_element and (last[0] + first[0]).lower() != (last[0] + first[0]).upper()


def _is_note(item: _Item, before: str, after: str) -> bool:
    """Return whether an item is the number of a note after a space and before a mark that ends a part of a sentence."""
    is_number = item.kind == "single" and item.name in _NOTE_MARKS and not item.has_patches
    return is_number and before[-1] in _SPACES and before.strip(_SPACES) != "" and after[0] in ",.;:!?)"


def _cut_lines(items: Sequence[_Item]) -> Iterator[int]:
    """Yield the indices of line breaks at empty lines and between the lines of an address."""
    breaks = [index for index, item in enumerate(items) if item.kind == "break"]
    lines = [items[start + 1 : end] for start, end in pairwise([-1, *breaks, len(items)])]
    texts = [_join_text(line) for line in lines]
    blank = [not text and all(item.kind != "single" for item in line) for line, text in zip(lines, texts, strict=True)]
    for number, index in enumerate(breaks):
        if blank[number] or blank[number + 1] or is_last_line(texts[number], texts[number + 1]):
            yield index


def _cut_links(items: Sequence[_Item]) -> Iterator[int]:
    """Yield the borders of links of a menu: links without words between them, and perhaps one item after them."""
    pairs = sorted(match_tags([(item.kind, item.name) for item in items]).items())
    links = [(start, end) for start, end in pairs if items[start].name == "a"]
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
            if not has_letters(items[end + 1].value):
                yield end + 2


def _join_text(items: Sequence[_Item]) -> str:
    return " ".join("".join(item.value for item in items if item.kind == "text").split())
