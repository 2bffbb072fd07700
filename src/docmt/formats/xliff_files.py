"""XLIFF 1.2 and 2.0 to 2.2, with the extensions of other tools: the sources are read, the targets are written.

Segments with a translation stay, unless their state is new or initial, and so do those that people have locked or
confirmed. Inline elements are codes that are not copied,
because tools compare their number in source and target. Extensions keep their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from docmt.core.errors import DocmtError
from docmt.documents.words import has_letters
from docmt.formats.language_codes import format_language_tag, is_same_language
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.placeholders import find_letters_beside, hide_placeholders, is_icu_message, space_words, tidy_spaces
from docmt.formats.units import ReadConfig, Unit, UnitBuilder, UnitFile, UnitPair
from docmt.formats.xml_tree import COMMENT, Element, Text, XmlFile, escape_text, set_attribute

_ROOT = re.compile(r"(?:\{urn:oasis:names:tc:xliff:document:(\d)\.\d\})?xliff")
"""Name of the root, with the version."""
_NEW_STATES = frozenset(["new", "needs-translation", "initial"])
_EDITED = re.compile("(?i)\\w*edited|rejected")
"""Values of `status` of a segment that somebody has written, but not finished."""
_FINISHED = {
    "locked": re.compile("(?i)true|yes|1|locked"),
    "confirmed": re.compile("(?i)true|yes|[1-9]"),
    "conf": re.compile("Translated|(?:Approved|Rejected)\\w+"),
    "status": re.compile("(?i)\\w*confirmed\\w*|proofread|approved|reviewed|finished|translated|done|completed"),
}
"""Attributes by which people finish a segment, and their values: of Phrase (`m:confirmed`), SDL Trados (`conf`), memoQ
(`mq:status`), and of several tools (`locked`). Such a segment stays even if it is empty or equal to the source."""
_FINISHED_REASONS = ("locked segments", "confirmed segments")
LANGUAGES = ("srcLang", "trgLang"), ("source-language", "target-language")
"""Attributes of XLIFF 2 and 1."""
_STARTS = {"sc": ("id",), "sm": ("id",), "bx": ("rid", "id"), "bpt": ("rid", "id")}
_ENDS = {"ec": ("startRef", "id"), "em": ("startRef",), "ex": ("rid", "id"), "ept": ("rid", "id")}
"""Elements that begin and end pairs, and the attributes that their elements share."""
_TAG = re.compile(r"[<\[](/?)([A-Za-z][\w:.-]*)(?:[\s=][^<>]*)?[>\]]")
"""What a placeholder says that it stands for: <b>, </b>, [b], [url=a]."""


@dataclass(frozen=True)
class _Segment:
    source: Element
    """element whose content is translated: <source> or <mrk>"""
    target: Element | None
    unit: int | None
    """index of the unit; None for a skipped segment"""
    is_finished: bool = False
    """whether people have locked or confirmed it"""
    states: Mapping[str, str] = field(default_factory=dict)
    """see `read_states`"""


@dataclass(frozen=True)
class _Entry:
    """A trans-unit of XLIFF 1.2, or a segment of XLIFF 2."""

    element: Element
    source: Element
    """<source>, or <seg-source> where there is one"""
    target: Element | None
    segments: list[_Segment] = field(default_factory=list)


def read(data: bytes, path: str, config: ReadConfig) -> XliffFile:
    """Return the segments that have no translation. Raises DocmtError if the languages are not those of the config."""
    return XliffFile(data, path, config)


class XliffFile(UnitFile):
    """An XLIFF file."""

    def __init__(self, data: bytes, path: str, config: ReadConfig) -> None:
        super().__init__()
        self._data, self._protect = data, config.patterns
        self._file, version = parse_xliff(data, path)
        if not version:
            raise DocmtError(f"{path} is not an XLIFF file: its root is <{self._file.root.tag}>.")
        self._is_old = version == "1"
        self._check_languages(config)
        self._entries = list(self._read_entries())
        self._has_states = any(each.target and "state" in each.target.attributes for each in self._entries)

    def list_pairs(self) -> list[UnitPair]:
        """See `UnitFile`. Segments that only have a copy of the source, and no state, have no translation."""
        names = LANGUAGES[self._is_old]
        stated = {id(each): each.attributes for each in self._language_elements()}
        pairs = []
        for entry in self._entries:
            attributes = next((stated[id(each)] for each in entry.element.lineage() if id(each) in stated), {})
            languages = attributes.get(names[0], ""), attributes.get(names[1], "")
            for segment in entry.segments:
                sides = [self._read_unit(each) if each else Unit("") for each in (segment.source, segment.target)]
                if sides[1].text.strip() and (sides[0] != sides[1] or segment.states.get("state")):
                    pairs.append(UnitPair(sides[0], sides[1], segment.states, languages))
        return pairs

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with targets for the changed units; if `language` is given, for all units that were read.

        Segments that failed get none, so that they are translated another time.
        """
        replacements: list[Replacement] = []
        written = {index for index, unit in enumerate(units) if language or unit != self.units[index]} - self.failed
        for entry in self._entries:
            if segments := [each for each in entry.segments if each.unit in written]:
                replacements += self._write_entry(entry, segments, units)
        if not replacements:
            return self._data
        if language:
            _, name = LANGUAGES[self._is_old]
            unnamed = [each for each in self._language_elements() if name not in each.attributes]
            replacements += [set_attribute(self._file, each, name, format_language_tag(language)) for each in unnamed]
        return self._file.encode(PatchedText(self._file.text).render((), (), replacements))

    def _language_elements(self) -> list[Element]:
        """Return the elements that name the languages."""
        return list(self._file.root.iter("file")) if self._is_old else [self._file.root]

    def _check_languages(self, config: ReadConfig) -> None:
        sides = ("source", "target"), LANGUAGES[self._is_old], (config.source_language, config.target_language)
        for element in self._language_elements():
            for side, name, language in zip(*sides, strict=True):
                stated = element.attributes.get(name, "")
                if not is_same_language(stated, language):
                    line = self._file.text.count("\n", 0, element.start) + 1
                    raise DocmtError(
                        f"{self._file.path}, line {line}: the {side} language of the file is {stated}, not {language}."
                        f" Translate with {side} language {stated}, or change {name} in the file."
                    )

    def _read_entries(self) -> Iterator[_Entry]:
        for unit in self._file.root.iter("trans-unit" if self._is_old else "unit"):
            id = unit.attributes.get("id", "")
            parts = [unit] if self._is_old else [each for each in unit.elements if each.name == "segment"]
            for part in parts:
                source = part.find("source")
                if source is None:
                    continue
                segmented = part.find("seg-source") if self._is_old else None
                entry = _Entry(part, segmented or source, part.find("target"))
                reason = self._find_reason(unit)
                pairs = self._find_segments(entry)
                name = id if self._is_old or len(parts) == 1 else f"{id}/{part.attributes.get('id', len(self.units))}"
                for segment, target, mid in pairs:
                    states = read_states(unit, *filter(None, (part, entry.target)), mid=mid)
                    why = reason or self._find_reason_of_segment(states, segment, target)
                    unit_index = self._add_unit(segment, why, f"{name}/{mid}" if mid else name)
                    is_finished = why.startswith(_FINISHED_REASONS)
                    entry.segments.append(_Segment(segment, target, unit_index, is_finished, states))
                yield entry

    def _find_segments(self, entry: _Entry) -> list[tuple[Element, Element | None, str]]:
        """Return the segments of an entry with their targets and names."""
        marks = self._find_marks(entry.source) if entry.source.name == "seg-source" else {}
        if not marks:
            return [(entry.source, entry.target, "")]
        targets = self._find_marks(entry.target) if entry.target else {}
        return [(mark, targets.get(mid), mid) for mid, mark in marks.items()]

    def _find_marks(self, element: Element) -> dict[str, Element]:
        """Return the outer <mrk mtype="seg"> elements in an element by their mid."""
        marks: dict[str, Element] = {}
        end = 0
        for mark in element.iter("mrk"):
            if mark.attributes.get("mtype") == "seg" and mark.start >= end:
                marks.setdefault(mark.attributes.get("mid", ""), mark)
                end = mark.end
        return marks

    def _find_reason(self, unit: Element) -> str:
        """Return why no segment of a unit is translated, or an empty text."""
        if unit.attributes.get("approved") == "yes":
            return "approved segments"
        values = (each.attributes["translate"] for each in unit.lineage() if "translate" in each.attributes)
        return 'translate="no"' if next(values, "") == "no" else ""

    def _find_reason_of_segment(self, states: Mapping[str, str], source: Element, target: Element | None) -> str:
        """Return why a segment is not translated, or an empty text. Without a state, a copy of the source is none."""
        if any(name in states and values.fullmatch(states[name]) for name, values in _FINISHED.items()):
            return _FINISHED_REASONS[not _FINISHED["locked"].fullmatch(states.get("locked", ""))]
        if target is not None and target.text().strip():
            state = states.get("state") or states.get("status", "") * bool(_EDITED.fullmatch(states.get("status", "")))
            if state not in _NEW_STATES if state else target.text() != source.text():
                return "translated segments"
        return "ICU messages" if is_icu_message(source.text()) else ""

    def _add_unit(self, source: Element, reason: str, id: str) -> int | None:
        """Add the unit of a segment, and return its index. Return None if it is skipped."""
        unit = self._read_unit(source, id)
        for part in source.iter("sub"):
            self.skip("texts within codes", "" if reason else part.text())
        self.skip(reason, source.text() if is_icu_message(source.text()) else unit.text)
        return None if reason or not has_letters(unit.text) else self.add_unit(unit)

    def _read_unit(self, element: Element, id: str = "") -> Unit:
        """Return the content of a source or target."""
        builder = UnitBuilder(hold_spaces=True)
        _InlineReader(self._file, builder).add(element.children)
        return _hide_placeholders(builder.finish(id), self._protect)

    def _write_entry(self, entry: _Entry, segments: Sequence[_Segment], units: Sequence[Unit]) -> list[Replacement]:
        """Return the replacements that write the target of an entry."""
        replacements = self._write_state(entry)
        if entry.target and all(each.target for each in segments):
            for each in segments:
                if each.target and each.unit is not None:
                    replacements.append(self._fill(each.target, self._render(units, each.unit)))
            return replacements
        content = self._render_source(entry, units)
        if entry.target:
            return [*replacements, self._fill(entry.target, content)]
        source = entry.element.find("source") or entry.source
        after = max(source.end, entry.source.end)
        tag = source.tag.removesuffix("source") + "target"
        attributes = ' state="needs-review-translation"' if self._is_old and self._has_states else ""
        attributes += ' xml:space="preserve"' if source.attributes.get("xml:space") == "preserve" else ""
        space = _find_indent(self._file.text, source.start)
        return [*replacements, (after, after, f"{space}<{tag}{attributes}>{content}</{tag}>")]

    def _render(self, units: Sequence[Unit], index: int) -> str:
        old, new = self.units[index], units[index]
        if new == old:
            return new.render(escape_text)
        single = [code for code in old.codes if code.kind == "single" and _WORD_LIKE.match(code.content)]
        apart = {code.id for code in single if not code.is_break and not any(find_letters_beside(old, code))}
        return space_words(old, tidy_spaces(new, old), apart).render(escape_text)

    def _fill(self, element: Element, content: str) -> Replacement:
        """Return the replacement of the content of an element."""
        if element.is_empty_tag:
            return element.inner_start - len("/>"), element.inner_start, f">{content}</{element.tag}>"
        return element.inner_start, element.inner_end, content

    def _render_source(self, entry: _Entry, units: Sequence[Unit]) -> str:
        """Return the content of a new target: that of the source, with translated segments."""
        parts, position, text = [], entry.source.inner_start, self._file.text
        for each in entry.segments:
            parts.append(text[position : each.source.inner_start])
            if each.unit is not None:
                parts.append(self._render(units, each.unit))
            elif each.target or not each.is_finished:
                kept = each.target or each.source
                parts.append(text[kept.inner_start : kept.inner_end])
            position = each.source.inner_end
        return "".join([*parts, text[position : entry.source.inner_end]])

    def _write_state(self, entry: _Entry) -> list[Replacement]:
        """Return the replacements that set the state, and remove the sub-state, which belongs to the old one."""
        element = entry.target if self._is_old else entry.element
        if element is None or (self._is_old and not self._has_states):
            return []
        name = "state-qualifier" if self._is_old else "subState"
        pattern = re.compile(rf"\s+{name}\s*=\s*(?:\"[^\"]*\"|'[^']*')")
        matches = pattern.finditer(self._file.text, element.start, element.inner_start)
        state = "needs-review-translation" if self._is_old else "translated"
        return [set_attribute(self._file, element, "state", state), *((*match.span(), "") for match in matches)]


def parse_xliff(data: bytes, path: str) -> tuple[XmlFile, str]:
    """Return a file whose elements of XLIFF have names without a namespace, and its version: 1, 2, or none of XLIFF."""
    file = XmlFile(data, path)
    match, core = _ROOT.fullmatch(file.root.name), file.root.name.removesuffix("xliff")
    for element in file.root.iter() if match else ():
        element.name = element.name.removeprefix(core)
    return file, (match[1] or "1") if match else ""


def read_states(*elements: Element, mid: str | None = None) -> dict[str, str]:
    """Return the attributes that tell the state of a segment, without prefixes.

    elements: that of the unit, and those of the segment. mid: its name in the definitions that Trados adds to the unit;
    None: any.
    """
    defined = [each for part in elements[0].elements if part.name.endswith("}seg-defs") for each in part.elements]
    found = [*elements, *(each for each in defined if mid in (None, each.attributes.get("id")))]
    return {name.rpartition("}")[2]: value for each in found for name, value in each.attributes.items()}


def _hide_placeholders(unit: Unit, protect: Sequence[str]) -> Unit:
    """Return the unit with its placeholders as codes, which are written as character data."""
    elements = {code.id for code in unit.codes}
    hidden = hide_placeholders(unit, protect=protect)
    codes = (code if code.id in elements else replace(code, content=escape_text(code.content)) for code in hidden.codes)
    return replace(hidden, codes=tuple(codes))


class _InlineReader:
    """Reader of the content of a source."""

    def __init__(self, file: XmlFile, builder: UnitBuilder) -> None:
        self._file, self._builder = file, builder
        self._numbers = count(1)
        self._opened: dict[tuple[str, str], str] = {}
        """ids of the codes that begin pairs, by the kind of element and the name that their ends share"""

    def add(self, nodes: Sequence[Element | Text]) -> None:
        """Add the text and the codes of nodes."""
        tags = [_find_tag(node) if isinstance(node, Element) else ("", "") for node in nodes]
        ended = {name for mark, name in tags if mark}
        for node, (mark, name) in zip(nodes, tags, strict=True):
            if isinstance(node, Text):
                self._builder.add_text(node.value)
                continue
            id = str(next(self._numbers))
            whole = self._file.text[node.start : node.end]
            is_protected = node.attributes.get("translate") == "no" or node.attributes.get("mtype") == "protected"
            if node.name in ("pc", "g", "mrk") and not node.is_empty_tag and not is_protected:
                self._builder.open(id, self._file.text[node.start : node.inner_start], can_copy=False)
                self.add(node.children)
                self._builder.close(id, self._file.text[node.inner_end : node.end])
            elif partner := _find_name(node, _STARTS.get(node.name, ())):
                self._opened[_FAMILIES[node.name], partner] = id
                self._builder.open(id, whole, can_copy=False)
            elif partner := _find_name(node, _ENDS.get(node.name, ())):
                self._builder.close(self._opened.pop((_FAMILIES[node.name], partner), id), whole)
            elif node.name in _SINGLE and mark:
                self._builder.close(self._opened.pop(("x", name), id), whole)
            elif node.name in _SINGLE and name in ended:
                self._opened["x", name] = id
                self._builder.open(id, whole, can_copy=False)
            else:
                is_space = node.attributes.get("ctype") == "lb" or node.attributes.get("subType") == "xlf:lb"
                self._builder.add_single(id, whole, is_space and node.name != COMMENT)


def _find_indent(text: str, end: int) -> str:
    """Return the line break and the spaces before a position, or an empty text."""
    start = end
    while start and text[start - 1] in " \t":
        start -= 1
    size = 2 if text[max(0, start - 2) : start] == "\r\n" else 1
    return text[start - size : end] if start and text[start - 1] in "\r\n" else ""


_WORD_LIKE = re.compile(r"<(?:[\w.-]+:)?(?:ph|x|mrk)\b")
"""Elements that may show words in their line."""
_SINGLE = ("x", "ph", "it")
_FAMILIES = {"sc": "c", "ec": "c", "sm": "m", "em": "m", "bx": "x", "ex": "x", "bpt": "pt", "ept": "pt"}


def _find_name(element: Element, attributes: Sequence[str]) -> str:
    """Return the first attribute that an element has of these."""
    return next((element.attributes[name] for name in attributes if element.attributes.get(name)), "")


def _find_tag(element: Element) -> tuple[str, str]:
    """Return "/" for the end of a tag that a placeholder stands for, and its name, or else the id: <x id="/b1"/>."""
    id, names = element.attributes.get("id", ""), ("equiv-text", "equiv", "disp")
    texts = [*(element.attributes.get(name, "") for name in names), element.text()]
    if match := next(filter(None, map(_TAG.fullmatch, texts)), None):
        return match[1], match[2].lower()
    return "/" * id.startswith("/"), id.removeprefix("/")
