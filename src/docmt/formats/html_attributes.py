"""Attributes of tags of HTML: their values, and which of them people read."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple

from docmt.formats.html_elements import list_names
from docmt.formats.patched_text import Replacement

_ATTRIBUTES = list_names("alt aria-description aria-label aria-roledescription aria-valuetext placeholder title")
_ELEMENT_ATTRIBUTES = list_names("th@abbr option@label optgroup@label track@label table@summary")
_METAS = list_names(
    "description keywords title og:title og:description og:image:alt twitter:title twitter:description "
    "twitter:image:alt dc.title dc.description dcterms.title dcterms.description abstract headline name"
)
_KEPT_METAS = {
    **dict.fromkeys(("og:site_name", "application-name", "apple-mobile-web-app-title"), "names of sites"),
    **dict.fromkeys(("author", "creator", "publisher"), "authors"),
}
_META_NAMES = ("name", "property", "itemprop")
_TEXT_FIELDS = list_names("text search")
_PROSE = re.compile(r"[^\W\d_][^\n{}<>=;|]*[^\W_][,:]? [^\W_][^{}<>=;|]*")
"""Several words in an attribute of scripts."""
_ATTRIBUTE = re.compile(r"([^\s/>=][^\s/>=]*)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>\"'][^\s>]*))?")
TAG_NAME = re.compile(r"<[^\s/>]*")


class TagAttribute(NamedTuple):
    """An attribute of a start tag. start, end: its value without quotes; quote: "", '"' or "'".

    Or the text between two tags; quote: ">".
    """

    start: int
    end: int
    value: str
    """unescaped"""
    quote: str


def set_value(attribute: TagAttribute, value: str) -> Replacement:
    """Return the replacement that sets the value of an attribute."""
    if attribute.quote:
        return attribute.start, attribute.end, value
    equals = "" if attribute.end > attribute.start else "="
    return attribute.start, attribute.end, f'{equals}"{value}"'


def read_attributes(tag: str, start: int) -> dict[str, TagAttribute]:
    """Return the attributes of a start tag that begins at `start` by name, the first one of each name."""
    attributes: dict[str, TagAttribute] = {}
    name = TAG_NAME.match(tag)
    for match in _ATTRIBUTE.finditer(tag, name.end() if name else 0):
        raw = match[2] or ""
        quote = raw[:1] if raw[:1] in ('"', "'") else ""
        first, last = (match.start(2), match.end(2)) if match[2] else (match.end(), match.end())
        span = start + first + len(quote), start + last - len(quote)
        value = unescape(raw[1:-1] if quote else raw)
        attributes.setdefault(match[1].lower(), TagAttribute(*span, value, quote))
    return attributes


def find_translate(attributes: dict[str, TagAttribute]) -> str:
    """Return "yes", "no", or "" where an element does not tell."""
    if "translate" in attributes:
        return {"no": "no", "yes": "yes", "": "yes"}.get(attributes["translate"].value.strip().lower(), "")
    return "no" if "class" in attributes and "notranslate" in attributes["class"].value.lower().split() else ""


def find_language(attributes: dict[str, TagAttribute]) -> str:
    """Return the code of the language that an element names, or an empty string."""
    attribute = attributes.get("lang") or attributes.get("xml:lang")
    return attribute.value if attribute else ""


def is_translated(tag: str, name: str, attributes: dict[str, TagAttribute]) -> bool:
    """Return whether an attribute of an element is translated."""
    if tag == "meta":
        return name == "content" and not _METAS.isdisjoint(_find_values(attributes, *_META_NAMES))
    if tag == "input" and name == "value":
        return _find_values(attributes, "type") in (["submit"], ["button"], ["reset"])
    return (name in _ATTRIBUTES and tag not in ("link", "style")) or f"{tag}@{name}" in _ELEMENT_ATTRIBUTES


def find_kept(tag: str, name: str, attributes: dict[str, TagAttribute]) -> str:
    """Return what an attribute of an element that is not translated holds for people, or an empty string."""
    if tag == "meta" and name == "content":
        return next((_KEPT_METAS[each] for each in _find_values(attributes, *_META_NAMES) if each in _KEPT_METAS), "")
    if tag == "input" and name == "value":
        return "text fields" if _TEXT_FIELDS.issuperset(_find_values(attributes, "type")) else ""
    return "data attributes" if name.startswith("data-") and _PROSE.fullmatch(attributes[name].value) else ""


def _find_values(attributes: dict[str, TagAttribute], *names: str) -> list[str]:
    """Return the values of those of these attributes that an element has, in small letters."""
    return [attributes[name].value.strip().lower() for name in names if name in attributes]
