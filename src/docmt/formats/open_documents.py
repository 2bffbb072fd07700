"""OpenDocument packages: texts (odt), presentations (odp) and spreadsheets (ods), OASIS ODF 1.2 and later.

A unit is a paragraph (`text:p`, `text:h`) of `content.xml`, of the headers and footers of `styles.xml`, or of an
embedded object (the titles and labels of a chart); an alternative text; a label of a form; or the title, subject or
description of `meta.xml`. Spans of equal format are one pair. Macros, pictures, sheet names, and what forms contain,
stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

from docmt.core.errors import DocmtError
from docmt.documents.words import Span, has_letters
from docmt.formats.language_codes import is_right_to_left
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.units import ReadConfig, Unit, UnitBuilder, UnitFile, is_code_style
from docmt.formats.xml_tree import Element, Text, XmlFile, escape_attribute, escape_text, find_value, set_attribute
from docmt.formats.zip_package import ZipPackage

_URI = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
_DC_URI = "http://purl.org/dc/elements/1.1/"
_PREFIXES = {
    **{_URI.format(name): name for name in ("form", "office", "presentation", "style", "table", "text")},
    _URI.format("drawing"): "draw",
    _URI.format("svg-compatible"): "svg",
    _URI.format("xsl-fo-compatible"): "fo",
    _DC_URI: "dc",
    "http://www.w3.org/1998/Math/MathML": "math",
    "http://www.w3.org/1999/xlink": "xlink",
}
"""Of the names in this module."""
_URIS = {prefix: uri for uri, prefix in _PREFIXES.items()}
_MAX_PARENTS = 20
_INVISIBLE = re.compile(r".*[:}]((paragraph-)?rsid|(language|country|script|rfc-language-tag)(-asian|-complex)?)$")
"""Attributes of text properties that do not show: revisions and languages."""
_NO_LANGUAGES = frozenset({"zxx", "none", ""})
_ASIAN = frozenset({"zh", "ja", "ko", "yue"})
_COMPLEX = {"bn", "bo", "gu", "hi", "km", "kn", "lo", "ml", "mr", "my", "ne", "pa", "si", "ta", "te", "th"}
_PARAGRAPHS = frozenset({"text:p", "text:h"})
_ALTERNATIVES = frozenset({"svg:title", "svg:desc", "table:title", "table:desc"})
_PLAIN = _ALTERNATIVES | {"presentation:header-decl", "presentation:footer-decl"}
_LABELS = ("form:label", "form:title", "table:title")
"""Attributes that people read."""
_LEFT = {
    "office:title": "tips of links",
    **dict.fromkeys(("text:description", "text:help", "text:hint"), "help texts of form fields"),
    **dict.fromkeys(("form:value", "form:current-value"), "default texts of form fields"),
    **dict.fromkeys(("text:string-value-if-true", "text:string-value-if-false"), "field instructions"),
    "text:string-value": "entries of indexes",
}
"""Attributes that people read and that stay, and what they are called in `Skipped`."""
_TEXT_FIELDS = ("text:placeholder", "text:drop-down", "text:text-input", "text:conditional-text")
_SHEETS = ("office:spreadsheet", "office:chart")
_SPACES = frozenset({"text:s", "text:tab", "text:line-break"})
_MASTER_TEXT = frozenset({"header", "footer", "date-time", "page-number"})
"""Classes of the frames of a master page that slides show; others hold a prompt such as "Click to edit"."""
_WHITE = re.compile(r"(?<= ) +|\t|\n")
_IDENTIFIER = re.compile(r"(?=.*[\d_])\S+")
_STRING_VALUE = re.compile(r"\s[^\s=]*:string-value\s*=\s*(?:\"[^\"]*\"|'[^']*')")


class OpenDocumentFile(UnitFile):
    """An odt, odp or ods file."""

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__()
        self._package, self._path = ZipPackage(data, path), path
        self._parts: list[_Part] = []
        manifest = "META-INF/manifest.xml"
        if manifest in self._package and b"encryption-data" in self._package.read(manifest):
            raise DocmtError(f"{path} is encrypted. Save it without a password, and translate that.")
        content = self._parse("content.xml")
        styles, meta = (self._parse(name) if name in self._package else None for name in ("styles.xml", "meta.xml"))
        if meta:
            part = self._add_part("meta.xml", meta, [])
            for element in meta.root.iter("dc:title", "dc:subject", "dc:description"):
                if not self.skip_of_program(element.text()):
                    part.add_plain(element)
        self._add_part("content.xml", content, [styles.root, content.root] if styles else [content.root]).read()
        if styles:
            self._add_part("styles.xml", styles, [styles.root]).read()

    def _add_part(self, name: str, file: XmlFile, styles: Sequence[Element]) -> _Part:
        """Return a part, which is added. styles: elements that hold the styles of its texts."""
        self._parts.append(_Part(self, name, file, _Styles(styles)))
        return self._parts[-1]

    def read_object(self, folder: str, reference: str) -> None:
        """Read an embedded object once. folder: that of the part which refers to it."""
        inner = reference.removeprefix("./").rstrip("/")
        for name in (f"{folder}/{inner}/content.xml", f"{inner}/content.xml"):
            if name in self._package and all(part.name != name for part in self._parts):
                file = self._parse(name)
                self._add_part(name, file, [file.root]).read()
                return

    def _parse(self, name: str) -> XmlFile:
        return XmlFile(self._package.read(name), f"{self._path} ({name})", _PREFIXES)

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the package with other units. language: is set in the default styles and in `meta.xml`."""
        contents = {}
        for part in self._parts:
            replacements = _set_language(part.file, language) if language else []
            for start, end, indices in part.string_values:
                if any(units[index] != self.units[index] for index in indices):
                    replacements.append((start, end, ""))  # the paragraphs tell the value
            text = part.text.render(self.units, units, replacements)
            if text != part.file.text:
                contents[part.name] = part.file.encode(text)
        return self._package.replace(contents)


def read(data: bytes, path: str, config: ReadConfig) -> OpenDocumentFile:
    """Return the units of an odt, odp or ods file. Raises DocmtError for damaged and encrypted ones."""
    return OpenDocumentFile(data, path)


class _Part:
    """An XML file of the package, which reads its units."""

    def __init__(self, document: OpenDocumentFile, name: str, file: XmlFile, styles: _Styles) -> None:
        self.name, self.file, self.text = name, file, PatchedText(file.text)
        self.string_values: list[tuple[int, int, list[int]]] = []
        """span of the attribute that repeats the text of a cell, and the units of the cell"""
        self._document, self._styles = document, styles
        body = file.root.find("office:body")
        kinds = [element.name for element in body.elements] if body is not None else []
        self._is_sheet = any(kind in _SHEETS for kind in kinds)
        self._is_chart = "office:chart" in kinds

    def read(self) -> None:
        """Read all units."""
        self._walk(self.file.root, is_master=False)
        units = {unit.text: number for number, unit in enumerate(self._document.units) if not unit.codes}
        for element in self.file.root.iter():
            for name, value in element.attributes.items():
                self._document.skip(_LEFT.get(name, ""), value)
            if element.name in _TEXT_FIELDS:
                self._document.skip("texts of fields", element.text())
            elif element.name == "table:filter-condition" and (value := element.attributes.get("table:value", "")):
                if value in units:
                    self._add_attribute(element, "table:value", units[value])
                else:
                    self._document.skip("criteria of filters", value)

    def _walk(self, element: Element, is_master: bool) -> None:
        """Read the units in an element. is_master: whether it is in the master page of a presentation."""
        name = element.name
        if name in ("text:tracked-changes", "table:tracked-changes"):
            return
        frame = element.attributes.get("presentation:class")
        is_prompt = is_master and frame is not None and frame not in _MASTER_TEXT
        if is_prompt or name == "text:index-body":
            for paragraph in element.iter(*_PARAGRAPHS):
                self._document.skip("prompts of master pages" if is_prompt else "table of contents", paragraph.text())
            return
        if name.startswith("math:"):
            self._document.skip("formulas", element.text())
            return
        if name in _PLAIN:
            if not (self._is_chart and name in _ALTERNATIVES):  # those of charts are references to cells
                self.add_plain(element)
            return
        if name in ("table:table-cell", "table:covered-table-cell"):
            self._read_cell(element, is_master)
            return
        if name in _PARAGRAPHS:
            self._add_paragraph(element)
        for label in _LABELS:
            if has_letters(value := element.attributes.get(label, "")):
                self._add_attribute(element, label, self._document.add_unit(Unit(value)))
        if name == "draw:object" and "xlink:href" in element.attributes:
            self._document.read_object(self.name.rpartition("/")[0], element.attributes["xlink:href"])
        is_master = is_master or name in ("style:master-page", "style:handout-master")
        for child in element.elements:
            self._walk(child, is_master)

    def _read_cell(self, cell: Element, is_master: bool) -> None:
        is_text = cell.attributes.get("office:value-type", "string") == "string"
        reason = "formulas" if "table:formula" in cell.attributes else "" if is_text else "numbers and dates"
        indices = []
        for child in cell.elements:
            if child.name not in _PARAGRAPHS:
                self._walk(child, is_master)
            elif reason:
                self._document.skip(reason, child.text())
            elif self._is_sheet and _IDENTIFIER.fullmatch(child.text().strip()):
                self._document.skip("codes and identifiers", child.text())
            else:
                indices += self._add_paragraph(child)
                for inner in child.elements:
                    self._walk(inner, is_master)
        match = _STRING_VALUE.search(self.file.text, cell.start, cell.inner_start)
        if match and indices:
            self.string_values.append((match.start(), match.end(), indices))

    def _add_attribute(self, element: Element, name: str, index: int) -> None:
        """Add an attribute, which has the prefix of its element, with a unit."""
        self.text.add(*find_value(self.file, element, name), index, escape_attribute)

    def add_plain(self, element: Element) -> None:
        """Add an element that holds text only."""
        if not element.elements and has_letters(element.text()):
            index = self._document.add_unit(Unit(element.text()))
            self.text.add(element.inner_start, element.inner_end, index, escape_text)

    def _add_paragraph(self, element: Element) -> list[int]:
        """Add a paragraph. Return the index of its unit, if there is anything to translate."""
        if self._styles.is_code("paragraph", element.attributes.get("text:style-name", "")):
            self._document.skip("code", element.text())
            return []
        inline = _InlineReader(self._document, self.file, self._styles)
        inline.add(element.children)
        unit = inline.builder.finish()
        if not has_letters(unit.text):
            return []
        index = self._document.add_unit(unit)
        self.text.add(element.inner_start, element.inner_end, index, _make_escape(element.tag[:-1]), inline.nested)
        return [index]


class _InlineReader:
    """Reader of the text and the codes of a paragraph."""

    def __init__(self, document: OpenDocumentFile, file: XmlFile, styles: _Styles) -> None:
        self.builder = UnitBuilder(collapse=True)
        self.nested: dict[str, Span] = {}
        self._document, self._file, self._styles = document, file, styles
        self._ids: dict[str, str] = {}  # of pairs, by format
        self._opened: list[str] = []
        self._count = 0

    def add(self, nodes: Sequence[Element | Text]) -> None:
        """Add nodes. Neighbours of equal format are one pair."""
        for (kind, format), group in groupby(nodes, self._classify):
            elements = []
            for node in group:
                if isinstance(node, Text):
                    self.builder.add_text(node.value)
                elif kind in ("pair", "link"):
                    elements.append(node)
                elif kind == "plain":
                    self.add(node.children)
                else:
                    self._add_single(node, kind)
            if elements:
                self._add_pair(elements, kind, format)

    def _add_pair(self, run: Sequence[Element], kind: str, format: str) -> None:
        if kind == "pair":
            id = self._ids.setdefault(format, str(len(self._ids) + 1))
        else:
            self._count += 1
            id = f"a{self._count}"
        # A span within one of equal format adds nothing, and nor does one without text.
        is_new = id not in self._opened and (kind == "link" or not all(map(_is_blank, run)))
        inner = [element.find("text:ruby-base") or element for element in run]  # the reading of a ruby stays
        if is_new:
            self.builder.open(id, self._file.text[run[0].start : inner[0].inner_start], can_copy=kind == "pair")
            self._opened.append(id)
        for element in inner:
            self.add(element.children)
        if is_new:
            self._opened.pop()
            self.builder.close(id, self._file.text[inner[-1].inner_end : run[-1].end])

    def _add_single(self, node: Element, kind: str) -> None:
        self._count += 1
        id = f"a{self._count}"
        self.builder.add_single(id, self._file.text[node.start : node.end], is_space=kind == "space")
        if next(node.iter(*_PARAGRAPHS, *_PLAIN), None) is not None:
            self.nested[id] = node.start, node.end
        elif kind == "code":
            self._document.skip("code", node.text())

    def _classify(self, node: Element | Text) -> tuple[str, str]:
        """Return "pair", "link", "space", "single", "code" or "plain" (no code at all), and the format of a pair."""
        if isinstance(node, Text):
            return "plain", ""
        if node.name in _SPACES:
            return "space", ""
        if node.name == "text:soft-page-break" or (node.name == "text:span" and not node.children):
            return "plain", ""  # a page once ended here, or a format ended where it began
        if node.is_empty_tag:
            return "single", ""
        if node.name == "text:span":
            style = node.attributes.get("text:style-name", "")
            if self._styles.is_code("text", style):
                return "code", ""
            format = self._styles.describe(style)
            others = sorted((name, value) for name, value in node.attributes.items() if name != "text:style-name")
            return ("pair", f"{format} {others}") if format or others else ("plain", "")
        if node.name == "text:ruby":
            return "link", str(node.start)
        if node.name in ("text:a", "text:meta") or node.local_name == "content-control":
            return "link", self._file.text[node.start : node.inner_start]
        return "single", ""


def _is_blank(element: Element) -> bool:
    """Return whether it holds white space only, in itself or in spans."""
    text = "".join(child.value for child in element.children if isinstance(child, Text))
    inner = [child for child in element.elements if child.name != "text:soft-page-break"]
    return not text.strip(" \t\r\n") and all(child.name == "text:span" and _is_blank(child) for child in inner)


def _make_escape(prefix: str) -> Callable[[str], str]:
    """Return the function that writes text in a paragraph, where white space collapses. prefix: of its tag."""
    tags = {"\t": f"<{prefix}tab/>", "\n": f"<{prefix}line-break/>"}

    def replace(match: re.Match[str]) -> str:
        return tags.get(match[0]) or f"<{prefix}s/>" * len(match[0])

    return lambda text: _WHITE.sub(replace, escape_text(text))


class _Styles:
    """The styles that a part sees; later roots go before earlier ones."""

    def __init__(self, roots: Sequence[Element]) -> None:
        self._styles: dict[tuple[str, str], Element] = {}
        for root in roots:
            for style in root.iter("style:style"):
                key = style.attributes.get("style:family", ""), style.attributes.get("style:name", "")
                self._styles[key] = style

    def is_code(self, family: str, name: str) -> bool:
        """Return whether a style, or one that it is derived from, is that of code."""
        for _ in range(_MAX_PARENTS):
            if is_code_style(name):
                return True
            style = self._styles.get((family, name))
            if style is None:
                return False
            name = style.attributes.get("style:parent-style-name", "")
        return False

    def describe(self, name: str) -> str:
        """Return a key of the look of a text style, equal for automatic styles that look the same; empty: no look."""
        style = self._styles.get(("text", name))
        if not (style and style.parent and style.parent.name == "office:automatic-styles"):
            return name
        parent = style.attributes.get("style:parent-style-name")
        parts = [f"^{parent}"] if parent is not None else []
        for element in style.iter():
            visible = sorted(pair for pair in element.attributes.items() if not _INVISIBLE.match(pair[0]))
            if element is not style and (visible or element.name != "style:text-properties"):
                parts.append(f"{element.name}{visible}")
        return "".join(parts)


def _find_prefix(file: XmlFile, name: str) -> str:
    """Return the prefix that the root declares for a namespace that is called `name` here; empty if there is none."""
    head = file.text[file.root.start : file.root.inner_start]
    match = re.search(r"xmlns:([^\s=]+)\s*=\s*[\"']" + re.escape(_URIS[name]) + r"[\"']", head)
    return match[1] if match else ""


def _set_language(file: XmlFile, language: str) -> list[Replacement]:
    """Return the replacements that set a language in the styles of a part, and in its `office:meta`.

    Default styles get it, and others that name a language. Asian and complex scripts have attributes of their own. The
    default paragraph of a language that is written from right to left gets this direction.
    """
    code, *others = language.lower().split("-")
    country = next((each.upper() for each in others if len(each) == 2), "none")
    script = "-asian" if code in _ASIAN else "-complex" if code in _COMPLEX or is_right_to_left(code) else ""
    style = _find_prefix(file, "style")
    kinds = [("fo", _find_prefix(file, "fo"), ""), ("style", style if script else "", script)]
    replacements = _set_meta(file, language)
    for element in file.root.iter("style:text-properties", "style:paragraph-properties"):
        is_default = element.parent is not None and element.parent.name == "style:default-style"
        if element.name == "style:text-properties":
            for name, prefix, suffix in kinds:
                old = element.attributes.get(f"{name}:language{suffix}", "")
                if prefix and (is_default or old not in _NO_LANGUAGES):
                    replacements.append(set_attribute(file, element, f"{prefix}:language{suffix}", code))
                    replacements.append(set_attribute(file, element, f"{prefix}:country{suffix}", country))
        elif is_default and style and is_right_to_left(language):
            replacements.append(set_attribute(file, element, f"{style}:writing-mode", "rl-tb"))
    return replacements


def _set_meta(file: XmlFile, language: str) -> list[Replacement]:
    meta = file.root.find("office:meta")
    if meta is None or meta.is_empty_tag:
        return []
    element = meta.find("dc:language")
    if element is not None and not element.is_empty_tag:
        return [(element.inner_start, element.inner_end, escape_text(language))]
    tag = f'<dc:language xmlns:dc="{_DC_URI}">{escape_text(language)}</dc:language>'
    return [(element.start, element.end, tag) if element is not None else (meta.inner_end, meta.inner_end, tag)]
