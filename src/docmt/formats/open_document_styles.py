"""Styles of OpenDocument files: which are code, which are equal, and the language that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docmt.formats.code_styles import is_code_style
from docmt.formats.language_codes import is_right_to_left
from docmt.formats.xml_tree import Element, XmlFile, escape_text, set_attribute

Replacement = tuple[int, int, str]
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_FO = "{urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0}"
_DC_URI = "http://purl.org/dc/elements/1.1/"
_DEFAULT_STYLE, _TEXT_PROPERTIES = _STYLE + "default-style", _STYLE + "text-properties"
_MAX_PARENTS = 20
_INVISIBLE = re.compile(r"\{[^}]*\}((paragraph-)?rsid|(language|country|script|rfc-language-tag)(-asian|-complex)?)$")
"""Attributes of text properties that do not show: revisions and languages."""
_NO_LANGUAGES = frozenset({"zxx", "none", ""})
_ASIAN = frozenset({"zh", "ja", "ko", "yue"})
_COMPLEX = {"bn", "bo", "gu", "hi", "km", "kn", "lo", "ml", "mr", "my", "ne", "pa", "si", "ta", "te", "th"}


class Styles:
    """The styles that a part sees; later roots go before earlier ones."""

    def __init__(self, roots: Sequence[Element]) -> None:
        self._styles: dict[tuple[str, str], Element] = {}
        for root in roots:
            for style in root.iter(_STYLE + "style"):
                key = style.attributes.get(_STYLE + "family", ""), style.attributes.get(_STYLE + "name", "")
                self._styles[key] = style
        self._formats: dict[str, str] = {}

    def is_code(self, family: str, name: str) -> bool:
        """Return whether a style, or one that it is derived from, is that of code."""
        for _ in range(_MAX_PARENTS):
            if is_code_style(name):
                return True
            style = self._styles.get((family, name))
            if style is None:
                return False
            name = style.attributes.get(_STYLE + "parent-style-name", "")
        return False

    def describe(self, name: str) -> str:
        """Return a key of the look of a text style, equal for automatic styles that look the same; empty: no look."""
        if name not in self._formats:
            style = self._styles.get(("text", name))
            is_automatic = style is not None and style.parent and style.parent.name == OFFICE + "automatic-styles"
            self._formats[name] = _describe(style) if style is not None and is_automatic else name
        return self._formats[name]


def _describe(style: Element) -> str:
    parts = (
        [f"^{style.attributes[_STYLE + 'parent-style-name']}"]
        if _STYLE + "parent-style-name" in style.attributes
        else []
    )
    for element in style.iter():
        visible = sorted(pair for pair in element.attributes.items() if not _INVISIBLE.match(pair[0]))
        if element is not style and (visible or element.name != _TEXT_PROPERTIES):
            parts.append(f"{element.name}{visible}")
    return "".join(parts)


def find_prefix(file: XmlFile, uri: str) -> str:
    """Return the prefix that the root declares for a URI, written {URI}; empty if there is none."""
    head = file.text[file.root.start : file.root.inner_start]
    match = re.search(r"xmlns:([^\s=]+)\s*=\s*[\"']" + re.escape(uri.strip("{}")) + r"[\"']", head)
    return match[1] if match else ""


def set_language(file: XmlFile, language: str) -> list[Replacement]:
    """Return the replacements that set a language in the styles of a part, and in its `office:meta`.

    Default styles get it, and others that name a language. Asian and complex scripts have attributes of their own. The
    default paragraph of a language that is written from right to left gets this direction.
    """
    code, *others = language.split("-")
    country = next((each.upper() for each in others if len(each) == 2), "none")
    replacements = [
        change
        for element in file.root.iter(_TEXT_PROPERTIES)
        for change in _set_properties(file, element, code.lower(), country)
    ]
    style = find_prefix(file, _STYLE)
    if is_right_to_left(language) and style:
        for default in file.root.iter(_DEFAULT_STYLE):
            for element in default.elements:
                if element.name == _STYLE + "paragraph-properties":
                    replacements.append(set_attribute(file, element, f"{style}:writing-mode", "rl-tb"))
    return replacements + _set_meta(file, language)


def _set_properties(file: XmlFile, element: Element, code: str, country: str) -> list[Replacement]:
    is_default = element.parent is not None and element.parent.name == _DEFAULT_STYLE
    changes = []
    kinds = [(_FO, "")]
    if code in _ASIAN:
        kinds.append((_STYLE, "-asian"))
    elif code in _COMPLEX or is_right_to_left(code):
        kinds.append((_STYLE, "-complex"))
    for uri, suffix in kinds:
        old = element.attributes.get(f"{uri}language{suffix}", "")
        prefix = find_prefix(file, uri)
        if prefix and (is_default or old not in _NO_LANGUAGES):
            changes.append(set_attribute(file, element, f"{prefix}:language{suffix}", code))
            changes.append(set_attribute(file, element, f"{prefix}:country{suffix}", country))
    return changes


def _set_meta(file: XmlFile, language: str) -> list[Replacement]:
    meta = file.root.find(OFFICE + "meta")
    if meta is None or meta.is_empty_tag:
        return []
    element = meta.find(f"{{{_DC_URI}}}language")
    if element is not None and not element.is_empty_tag:
        return [(element.inner_start, element.inner_end, escape_text(language))]
    tag = f'<dc:language xmlns:dc="{_DC_URI}">{escape_text(language)}</dc:language>'
    return [(element.start, element.end, tag) if element is not None else (meta.inner_end, meta.inner_end, tag)]
