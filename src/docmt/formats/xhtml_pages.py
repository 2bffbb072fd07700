"""XHTML: HTML written as XML, with the same units."""

from __future__ import annotations

from collections.abc import Iterator

from docmt.formats.html_elements import Token
from docmt.formats.html_units import MarkupFile
from docmt.formats.registry import ReadConfig
from docmt.formats.xml_tree import ASIDE, Element, Text, XmlFile, escape_text

_URI = "{http://www.w3.org/1999/xhtml}"
_FOREIGN = {"{http://www.w3.org/2000/svg}svg": "svg", "{http://www.w3.org/1998/Math/MathML}math": "math"}


def read(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of an XHTML page. Raises DocmtError for broken XML."""
    file = XmlFile(data, path, doctype=True)
    return MarkupFile(file.text, list(_iterate(file.root)), config, escape_text, file.encode, language_tag="xml:lang")


def _iterate(root: Element) -> Iterator[Token]:
    stack: list[Element | Text | Token] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Token):
            yield node
        elif isinstance(node, Text):
            yield Token("text", node.start, node.end, value=node.value)
        elif node.name == ASIDE:
            yield Token("aside", node.start, node.end)
        else:
            name = _FOREIGN.get(node.name, node.name.removeprefix(_URI))
            yield Token("start", node.start, node.inner_start, name, is_empty=node.is_empty_tag)
            if node.is_empty_tag:
                continue
            stack.append(Token("end", node.inner_end, node.end, name))
            if node.name in _FOREIGN:
                stack.append(Token("aside", node.inner_start, node.inner_end))
            else:
                stack += reversed(node.children)
