"""XML with the place of every element in the text, so that parts are replaced and all else keeps its bytes.

Documents are checked by lxml first, without entities, DTDs or network. Names are prefix:local where the reader gives
the prefix of a URI, whatever the document calls it; others are {URI}local. `xml:` is always known.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from docmt.core.errors import DocmtError
from docmt.formats.patched_text import find_mark

MAX_DEPTH = 250
COMMENT = "#comment"
"""Name of comments and processing instructions among the children of an element."""
_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE[^>]*>|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>|[^<]+", re.DOTALL
)
_ATTRIBUTE = re.compile(r"([^\s=/<>]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#([0-9]+)|[^\s&;]+);")
_ENCODING = re.compile(rb"^[^>]*?<\?xml[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._:-]+)[\"']", re.DOTALL)


class BrokenXmlError(DocmtError):
    """Text that is not well-formed XML."""


class Text(NamedTuple):
    """Characters between two tags, or a CDATA section."""

    start: int
    end: int
    value: str
    """unescaped"""


@dataclass(eq=False)
class Element:
    """An element: the spans of its tags in the text, and its children in order."""

    name: str
    tag: str
    """name with its prefix, as in the text"""
    start: int
    inner_start: int
    """end of the start tag"""
    parent: Element | None = None
    inner_end: int = 0
    """start of the end tag; that of an empty tag is its end"""
    end: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    """values by name; those without a prefix have no URI"""
    children: list[Element | Text] = field(default_factory=list)

    @property
    def local_name(self) -> str:
        """Name without what tells its namespace."""
        return self.tag.rpartition(":")[2]

    @property
    def elements(self) -> list[Element]:
        """The children that are elements."""
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def is_empty_tag(self) -> bool:
        """Whether it is written as one tag, <a/>."""
        return self.inner_start == self.end

    def find(self, *names: str) -> Element | None:
        """Return the first descendant along a path of child names, or None."""
        element: Element | None = self
        for name in names:
            element = next((child for child in element.elements if child.name == name), None) if element else None
        return element

    def iter(self, *names: str) -> Iterator[Element]:
        """Yield the element and its descendants in document order, those of these names if any are given."""
        stack = [self]
        while stack:
            element = stack.pop()
            if not names or element.name in names:
                yield element
            stack += reversed(element.elements)

    def lineage(self) -> Iterator[Element]:
        """Yield the element, its parent, the parent of that, and so on."""
        element: Element | None = self
        while element is not None:
            yield element
            element = element.parent

    def is_within(self, name: str) -> bool:
        """Return whether the element has this name, or one of this name encloses it."""
        return any(each.name == name for each in self.lineage())

    def text(self) -> str:
        """Return all characters in it."""
        return "".join(child.value if isinstance(child, Text) else child.text() for child in self.children)


class XmlFile:
    """A parsed XML text."""

    def __init__(
        self, data: bytes, path: str, prefixes: Mapping[str, str] = MappingProxyType({}), doctype: bool = False
    ) -> None:
        """Parse.

        path: name of the file in messages. prefixes: those of names, by URI. doctype: whether a DOCTYPE without
        declarations is allowed, as XHTML has. Raises DocmtError for broken XML, other DOCTYPEs and other charsets.
        """
        self.path = path
        self._mark, self.encoding = _detect_encoding(data)
        if b"<!DOCTYPE" in data or self.encoding.startswith("utf-16"):
            _refuse_declarations(data, self.encoding, path, doctype)
        _check_xml(data, path)
        try:
            self.text = data[len(self._mark) :].decode(self.encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise BrokenXmlError(f"{path} is not text in {self.encoding}, which it names. Save it as UTF-8.") from error
        self.root = _build_tree(self.text, path, prefixes)

    def encode(self, text: str) -> bytes:
        """Return the bytes of a text that replaces `text`, in the same encoding."""
        return self._mark + text.encode(self.encoding, "xmlcharrefreplace")


def escape_text(text: str) -> str:
    """Return character data. Characters that XML cannot hold are left out, and a carriage return is written out."""
    return escape(ILLEGAL.sub("", text), {"\r": "&#13;"})


def quote_attribute(value: str) -> str:
    """Return the value of an attribute in quotes."""
    return quoteattr(ILLEGAL.sub("", value))


def escape_attribute(value: str) -> str:
    """Return the value of an attribute for quotes of both kinds."""
    marks = {'"': "&quot;", "'": "&apos;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
    return escape(ILLEGAL.sub("", value), marks)


ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
"""Characters that XML 1.0 cannot hold."""


def set_attribute(file: XmlFile, element: Element, tag: str, value: str) -> tuple[int, int, str]:
    """Return the replacement that sets an attribute, named as in the text with its prefix, of a start tag."""
    for match in _ATTRIBUTE.finditer(file.text, element.start, element.inner_start):
        if match[1] == tag:
            return *match.span(2), quote_attribute(value)
    position = element.start + 1 + len(element.tag)
    return position, position, f" {tag}={quote_attribute(value)}"


def find_value(file: XmlFile, element: Element, name: str) -> tuple[int, int]:
    """Return the span of the value of an attribute. name: with a prefix if it has that of the element."""
    tag = f"{element.tag.rpartition(':')[0]}:{name.rpartition(':')[2]}" if ":" in name else name
    start, end, _ = set_attribute(file, element, tag, "")
    return start + 1, end - 1


def _detect_encoding(data: bytes) -> tuple[bytes, str]:
    mark, encoding = find_mark(data)
    if not mark:
        match = _ENCODING.match(data[:1000])
        declared = match[1].decode() if match else "utf-8"
        encoding = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}.get(data[:2], declared)
    return mark, encoding


def _refuse_declarations(data: bytes, encoding: str, path: str, allowed: bool) -> None:
    """Raise DocmtError for a DOCTYPE; if allowed, only for one with declarations of its own."""
    text = data.decode(encoding, "replace") if encoding.startswith("utf-16") else data.decode("latin-1")
    match = re.search(r"<!DOCTYPE[^\[>]*(\[)?", text)
    if match and (not allowed or match[1]):
        raise DocmtError(f"{path} has a DOCTYPE, which may declare entities. It is refused: remove it and retry.")


def _check_xml(data: bytes, path: str) -> None:
    try:
        etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True))
    except (etree.Error, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else path
        reason = str(error).split(", line ")[0]
        raise BrokenXmlError(f"{place}: broken XML ({reason}). Mend it, or save it again with its program.") from error


def _build_tree(text: str, path: str, prefixes: Mapping[str, str]) -> Element:
    """Return the root of a text, which the XML parser found well-formed."""
    document = current = Element("", "", 0, 0)
    spaces: list[dict[str, str]] = [{"xml": "xml:"}]
    for token in _TOKEN.finditer(text):
        raw, start, end = token[0], token.start(), token.end()
        if not raw.startswith("<"):
            current.children.append(Text(start, end, unescape(raw)))
        elif raw.startswith("<![CDATA["):
            current.children.append(Text(start, end, normalize_lines(raw[9:-3])))
        elif raw.startswith("</") and current.parent:
            current.inner_end, current.end, current = start, end, current.parent
            spaces.pop()
        elif raw.startswith(("<!", "<?")):
            current.children.append(Element(COMMENT, "", start, end, current, end, end))
        else:
            element = _parse_tag(raw, start, current, spaces, prefixes)
            current.children.append(element)
            if raw.endswith("/>"):
                element.inner_end = element.end = end
                spaces.pop()
            else:
                current = element
                if len(spaces) > MAX_DEPTH:
                    raise DocmtError(f"{path}: elements are nested deeper than {MAX_DEPTH}. It is refused.")
    root = next((each for each in document.elements if each.name != COMMENT), None)
    if root is None or current is not document:
        raise DocmtError(f"{path}: broken XML. Save it again with its program.")
    root.parent = None
    return root


def _parse_tag(
    raw: str, start: int, parent: Element | None, spaces: list[dict[str, str]], prefixes: Mapping[str, str]
) -> Element:
    """Return the element of a start tag, and add what its prefixes stand for in names to `spaces`."""
    tag = re.split(r"[\s/>]", raw[1:], maxsplit=1)[0]
    pairs = [(name, unescape(value[1:-1])) for name, value in _ATTRIBUTE.findall(raw, 1 + len(tag))]
    scope = spaces[-1]
    for name, uri in pairs:
        if name == "xmlns" or name.startswith("xmlns:"):
            scope = {**scope, name[6:]: f"{prefixes[uri]}:" if uri in prefixes else f"{{{uri}}}" if uri else ""}
    spaces.append(scope)
    attributes = {_resolve(name, scope) if ":" in name else name: value for name, value in pairs}
    return Element(_resolve(tag, scope), tag, start, start + len(raw), parent, attributes=attributes)


def _resolve(tag: str, scope: Mapping[str, str]) -> str:
    prefix, _, local = tag.rpartition(":")
    return scope.get(prefix, "") + local


def unescape(raw: str) -> str:
    """Return the characters of raw character data. A number is a code point, also 128 to 159, unlike in HTML."""
    raw = normalize_lines(raw)
    return _REFERENCE.sub(_read_reference, raw) if "&" in raw else raw


def _read_reference(match: re.Match[str]) -> str:
    hexadecimal, decimal = match.groups()
    if hexadecimal or decimal:
        return chr(int(hexadecimal, 16) if hexadecimal else int(decimal))
    return html.unescape(match[0])


def normalize_lines(raw: str) -> str:
    """Return text with the line ends that an XML parser reports."""
    return raw.replace("\r\n", "\n").replace("\r", "\n") if "\r" in raw else raw
