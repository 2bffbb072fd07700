"""The elements and attributes of HTML: which are translated, and which end a unit.

HTML and XHTML hand over their markup as tokens. Tables and rules follow the HTML standard
(https://html.spec.whatwg.org/multipage/): its element index, `translate` and `lang`.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Literal, NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = _names("area base br col embed hr img input keygen link meta param source track wbr")
BLOCKS = _names(
    "address article aside blockquote body button caption center col colgroup datalist dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu "
    "nav noframes noscript ol optgroup option p pre search section select summary table tbody td textarea tfoot th "
    "thead title tr ul xmp"
)
EMBEDDED = _names("audio canvas iframe map math noembed object picture rp rt svg video")
"""Elements that are one code with all that they hold."""
SKIPPED = {
    **dict.fromkeys(("code", "kbd", "pre", "samp", "var", "xmp"), "code"),
    **dict.fromkeys(("noframes", "script", "style", "template"), ""),
    "textarea": "text fields",
}
"""Elements that are not translated, and what they are called in `Skipped`; "" for what readers do not see."""
CAN_COPY = _names(
    "abbr acronym b bdi bdo big cite del dfn em font i ins mark nobr s small span strike strong sub sup tt u"
)
"""Pairs that may enclose several passages. Others are one thing: a link, a <q> with its marks, an element of XML."""
NOTE_MARKS = _names("a sup")
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
"""Open elements that the start of an element closes. Every block closes a paragraph."""
_ATTRIBUTE = re.compile(r"([^\s/>=][^\s/>=]*)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>\"'][^\s>]*))?")
TAG_NAME = re.compile(r"<[^\s/>]*")


class TagAttribute(NamedTuple):
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
        kind = attributes.get("name") or attributes.get("property")
        return name == "content" and kind is not None and kind.value.strip().lower() in _METAS
    if tag == "input" and name == "value":
        return "type" in attributes and attributes["type"].value.strip().lower() in ("submit", "button", "reset")
    return (name in _ATTRIBUTES and tag not in ("link", "style")) or f"{tag}@{name}" in _ELEMENT_ATTRIBUTES


def closes(name: str, opened: str) -> bool:
    """Return whether the start of an element closes an open one."""
    return opened in _IMPLIED_ENDS.get(name, ()) or (opened == "p" and name in BLOCKS and name != "button")
