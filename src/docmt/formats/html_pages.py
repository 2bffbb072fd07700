"""HTML, and XHTML with the same units: the text of a page and of attributes that people read. All other bytes stay."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from html import escape, unescape

from docmt.core.errors import DocmtError
from docmt.formats.html_elements import (
    ATTRIBUTE,
    CAN_COPY,
    NAME_REST,
    XML_PREFIX,
    Token,
    convert_text,
    find_templates,
    list_names,
    unescape_text,
)
from docmt.formats.html_units import MarkupFile
from docmt.formats.patched_text import find_mark
from docmt.formats.units import ReadConfig
from docmt.formats.xml_tree import ASIDE, Element, Text, XmlFile, escape_text

_HEAD_SIZE = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_CHARSET = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([\w.:-]+)")
_LABEL = re.compile(r"(utf-?8|iso-?8859-\d+|windows-\d+|cp\d+|koi8-[ru]|euc-(jp|kr)|gb18030|big5|iso-2022-jp|mac\w+)\Z")
_ENCODINGS = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "ascii", "us-ascii"), "cp1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk", "gb_2312-80"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("tis-620", "iso-8859-11"), "cp874"),
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8"),  # as the label itself is readable
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987"), "cp949"),
    "big5": "big5hkscs",
}
"""Codecs of labels that browsers read otherwise than Python (https://encoding.spec.whatwg.org/#names-and-labels)."""
_RAW = frozenset(["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"])
"""Elements that hold characters only."""
_XHTML = "{http://www.w3.org/1999/xhtml}"
_XML_FOREIGN = {"{http://www.w3.org/2000/svg}svg": "svg", "{http://www.w3.org/1998/Math/MathML}math": "math"}
_FOREIGN = ("math", "svg")
_HAS_TEXT = _RAW - {"script", "style"}
_MARKUP = re.compile(
    r"""
    (?P<aside><!--(?:-?>|.*?--!?>|.*\Z) | <%(?:(?!<%).)*?%> | <\?(?:php\b|=).*?(?:\?>|\Z)
    | <(?:[!?]|/(?![A-Za-z]))[^>]*(?:>|\Z))
    | </(?P<end>[A-Za-z][^\s/>]*)[^>]*(?:>|\Z)
    | <(?P<start>[A-Za-z]"""
    rf"""{NAME_REST})(?>[\s/]+ | {ATTRIBUTE})*+>?
    """,
    re.DOTALL | re.VERBOSE,
)
_CDATA = "<![CDATA["
_XML_MARKUP = re.compile(
    _MARKUP.pattern.replace("[A-Za-z]", r"[^\W\d]").replace("aside>", r"aside><!\[CDATA\[.*?\]\]> | "), _MARKUP.flags
)
_XML_KNOWN = CAN_COPY | list_names("a br code kbd samp var")
"""Names that mean in pieces of XML what they mean in HTML."""


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
    return MarkupFile(text, list(_tokenize(text)), config, write_text, encode)


def read_fragment(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of a piece of XML, which need not be well-formed."""
    text = data.decode()
    return MarkupFile(text, list(_tokenize(text, is_html=False)), config, escape_text, str.encode, tags=config.tags)


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
    encoding = _ENCODINGS.get(label, label)
    with suppress(LookupError):
        if _LABEL.match(encoding):
            return b"", codecs.lookup(encoding).name
    raise DocmtError(f"{path}: docmt does not know the charset {label!r}. Save it as UTF-8, and correct its meta tag.")


def _replace_controls(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handle the bytes without characters of windows code pages as browsers do: they are control characters.

    Characters that a charset cannot hold become references.
    """
    if isinstance(error, UnicodeDecodeError) and error.encoding.startswith(("cp125", "windows-125", "charmap")):
        return chr(error.object[error.start]), error.start + 1
    if isinstance(error, UnicodeEncodeError) and error.encoding.startswith(("cp125", "windows-125", "charmap")):
        character = error.object[error.start]
        if "\x80" <= character <= "\x9f":
            return character.encode("latin-1"), error.start + 1
    if isinstance(error, UnicodeEncodeError):
        return codecs.xmlcharrefreplace_errors(error)
    raise error


codecs.register_error("docmt_controls", _replace_controls)


def _tokenize(text: str, is_html: bool = True) -> Iterator[Token]:
    """Yield the tokens of a text, which cover it without gaps, by the rules of the HTML standard (13.2.5) or XML."""
    markup = _MARKUP if is_html else _XML_MARKUP
    decode = unescape_text if is_html else unescape
    position = begin = 0  # begin: of the characters before
    while match := markup.search(text, position):
        if match.start() > begin:
            yield Token("text", begin, match.start(), value=decode(text[begin : match.start()]))
        end = match.end() if match["aside"] or match["end"] or match[0].endswith(">") else len(text)
        tag = match["start"] or match["end"] or ""
        name = tag.lower() if is_html else tag if tag in _XML_KNOWN else XML_PREFIX + tag
        if not is_html and match[0].startswith(_CDATA):
            yield Token("text", match.start(), end, value=match[0][len(_CDATA) : -3])
        elif match["end"]:
            yield Token("end", match.start(), end, name)
        elif match["aside"] or not match[0].endswith(">"):  # or a tag that nothing closes
            yield Token("aside", match.start(), end)
        else:
            is_empty = match[0].endswith("/>") and (name in _FOREIGN or not is_html)
            yield Token("start", match.start(), end, name, is_empty=is_empty)
            finish = _find_raw_end(text, match.start(), end, name)
            if finish > end and name in _HAS_TEXT:
                yield Token("text", end, finish, value=decode(text[end:finish]))
            elif finish > end:
                yield Token("aside", end, finish)
            end = finish
        position = begin = end
    if begin < len(text):
        yield Token("text", begin, len(text), value=decode(text[begin:]))


def _find_raw_end(text: str, start: int, end: int, name: str) -> int:
    """Return the end of what follows a start tag and is no markup; the end of the tag if all of it is."""
    if name in _RAW:
        match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, end)
        return match.start() if match else len(text)
    if name not in _FOREIGN:
        return end
    depth = 0
    for match in re.compile(rf"<(/?){name}(?=[\s/>])[^>]*>", re.IGNORECASE).finditer(text, start):
        depth += -1 if match[1] else not match[0].endswith("/>")
        if not depth:
            return max(end, match.start())
    return len(text)


def read_xhtml(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of an XHTML page. Raises DocmtError for broken XML."""
    file = XmlFile(data, path, doctype=True)
    tokens = list(_iterate_xml(file.root))
    return MarkupFile(file.text, tokens, config, escape_text, file.encode, language_tag="xml:lang")


def _iterate_xml(node: Element | Text) -> Iterator[Token]:
    """Yield the tokens of an element."""
    if isinstance(node, Text):
        yield Token("text", node.start, node.end, value=node.value)
    elif node.name == ASIDE:
        yield Token("aside", node.start, node.end)
    else:
        name = _XML_FOREIGN.get(node.name, node.name.removeprefix(_XHTML))
        yield Token("start", node.start, node.inner_start, name, is_empty=node.is_empty_tag)
        if node.is_empty_tag:
            return
        if node.name in _XML_FOREIGN:
            yield Token("aside", node.inner_start, node.inner_end)
        else:
            for child in node.children:
                yield from _iterate_xml(child)
        yield Token("end", node.inner_end, node.end, name)
