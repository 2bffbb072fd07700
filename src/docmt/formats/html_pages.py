"""HTML, and XHTML with the same units: the text of a page and of attributes that people read. All other bytes stay."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from html import escape

from docmt.core.errors import DocmtError
from docmt.formats.html_elements import Token, convert_text, find_templates, read_table, tokenize
from docmt.formats.html_units import MarkupFile
from docmt.formats.patched_text import find_mark
from docmt.formats.units import ReadConfig
from docmt.formats.xml_tree import COMMENT, Element, Text, XmlFile, escape_text

_HEAD_SIZE = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_CHARSET = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([\w.:-]+)")
_LABEL = re.compile(r"(utf-?8|iso-?8859-\d+|windows-\d+|cp\d+|koi8-[ru]|euc-(jp|kr)|gb18030|big5|iso-2022-jp|mac\w+)\Z")
_CODECS = read_table("codecs")
_XHTML = "{http://www.w3.org/1999/xhtml}"
_XML_FOREIGN = {"{http://www.w3.org/2000/svg}svg": "svg", "{http://www.w3.org/1998/Math/MathML}math": "math"}


def read(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of an HTML page. Raises DocmtError if it is not text in its charset."""
    mark, encoding = _find_encoding(data, path)
    try:
        text = data[len(mark) :].decode(encoding, "docmt_controls")
    except ValueError as error:
        message = f"{path} is not text in {encoding}, which its charset names or which is assumed. Save it as UTF-8."
        raise DocmtError(message) from error

    def encode(new: str) -> bytes:
        return mark + new.encode(encoding, "docmt_controls")

    if encode(text) != data:  # such as two byte sequences for one character
        raise DocmtError(f"{path} has bytes that its charset {encoding} would not write. Save it as UTF-8.")
    write_text = partial(convert_text, convert=escape_html, page=find_templates(text))
    return MarkupFile(text, list(tokenize(text)), config, write_text, encode)


def read_fragment(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of a piece of XML, which need not be well-formed."""
    text = data.decode()
    return MarkupFile(text, list(tokenize(text, is_html=False)), config, escape_text, str.encode, tags=config.tags)


def escape_html(text: str) -> str:
    """Return character data of HTML."""
    return escape(text, quote=False).replace("\r", "&#13;")


def _find_encoding(data: bytes, path: str) -> tuple[bytes, str]:
    """Return the byte order mark and the codec."""
    mark, encoding = find_mark(data)
    if mark:
        return mark, encoding
    head = _COMMENT.sub(b"", data[:_HEAD_SIZE])
    match = _CHARSET.search(head) or _XML_ENCODING.match(head)
    label = match[1].decode("latin-1").lower() if match else "utf-8"
    encoding = _CODECS.get(label, label)
    with suppress(LookupError):
        if _LABEL.match(encoding):
            return b"", codecs.lookup(encoding).name
    raise DocmtError(f"{path}: docmt does not know the charset {label!r}. Save it as UTF-8, and correct its meta tag.")


def _replace_controls(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handle the bytes without characters of windows code pages as browsers do: they are control characters.

    Characters that a charset cannot hold become references.
    """
    is_windows = getattr(error, "encoding", "").startswith(("cp125", "windows-125", "charmap"))
    if isinstance(error, UnicodeDecodeError) and is_windows:
        return chr(error.object[error.start]), error.start + 1
    if isinstance(error, UnicodeEncodeError):
        character = error.object[error.start]
        is_control = is_windows and "\x80" <= character <= "\x9f"
        return (character.encode("latin-1"), error.start + 1) if is_control else codecs.xmlcharrefreplace_errors(error)
    raise error


codecs.register_error("docmt_controls", _replace_controls)


def read_xhtml(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of an XHTML page. Raises DocmtError for broken XML."""
    file = XmlFile(data, path, doctype=True)
    tokens = list(_iterate_xml(file.root))
    return MarkupFile(file.text, tokens, config, escape_text, file.encode, language_tag="xml:lang")


def _iterate_xml(node: Element | Text) -> Iterator[Token]:
    """Yield the tokens of an element."""
    if isinstance(node, Text):
        yield Token("text", node.start, node.end, value=node.value)
    elif node.name == COMMENT:
        yield Token("hidden", node.start, node.end)
    else:
        name = _XML_FOREIGN.get(node.name, node.name.removeprefix(_XHTML))
        yield Token("start", node.start, node.inner_start, name, is_empty=node.is_empty_tag)
        if node.is_empty_tag:
            return
        if node.name in _XML_FOREIGN:
            yield Token("hidden", node.inner_start, node.inner_end)
        else:
            for child in node.children:
                yield from _iterate_xml(child)
        yield Token("end", node.inner_end, node.end, name)
