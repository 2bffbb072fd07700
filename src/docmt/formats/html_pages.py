"""HTML, and XHTML with the same units: the text of a page and of attributes that people read. All other bytes stay."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

from docmt.core.errors import DocmtError
from docmt.formats.html_units import MarkupFile, Token
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
_HAS_REFERENCES = frozenset(("textarea", "title"))
_COMMENT_END = re.compile(r"<!--(?:-?>|.*?--!?>|.*\Z)", re.DOTALL)
_END_TAG = re.compile(r"</([A-Za-z][^\s/>]*)[^>]*(?:>|\Z)")


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
    return MarkupFile(text, _Tokenizer(text).tokens, config, escape_html, encode)


def escape_html(text: str) -> str:
    """Return character data of HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def _find_encoding(data: bytes, path: str) -> tuple[bytes, str]:
    """Return the byte order mark and the codec."""
    mark, encoding = find_mark(data)
    if mark:
        return mark, encoding
    head = _COMMENT.sub(b"", data[:_HEAD_SIZE])
    match = _CHARSET.search(head) or _XML_ENCODING.match(head)
    label = match[1].decode("latin-1").lower() if match else "utf-8"
    encoding = _ENCODINGS.get(label, label)
    try:
        if _LABEL.match(encoding):
            return b"", codecs.lookup(encoding).name
    except LookupError:
        pass
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


class _Tokenizer(HTMLParser):
    """The tokens of a text, which cover it without gaps.

    Rules that differ between versions of Python (ends of comments, scripts and declarations) are those of the HTML
    standard, section 13.2.5.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._starts: list[tuple[int, str, str]] = []
        """begin, kind and name of each token"""
        self.feed(text.replace("&", "_"))  # after wrong references, the parser takes all that follows as text
        self.close()
        self.tokens = self._join_tokens()

    def _join_tokens(self) -> list[Token]:
        tokens = []
        starts = [
            start
            for index, start in enumerate(self._starts)
            if index == 0 or start[1] != "text" or self._starts[index - 1][1] != "text"
        ]
        for (start, kind, name), (end, *_) in pairwise([*starts, (len(self._text), "", "")]):
            if kind in ("start", "end"):
                is_empty = name in _FOREIGN and self._text[end - 2 : end] == "/>"
                tokens.append(Token("start" if kind == "start" else "end", start, end, name, is_empty=is_empty))
            elif kind == "text" and end > start:
                tokens.append(Token("text", start, end, value=unescape(self._text[start:end])))
            elif end > start:
                tokens.append(Token("aside", start, end))
        return tokens

    def _begin(self, kind: str, name: str = "", distance: int = 0) -> None:
        """Begin a token at the place of the parser, or at a distance from it."""
        line, column = self.getpos()
        self._starts.append((self._lines[line - 1] + column + distance, kind, name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a start tag."""
        self._begin("start", tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a start tag: the slash of <p/> means nothing in HTML."""
        self._begin("start", tag)

    def handle_data(self, data: str) -> None:
        """Begin characters."""
        self._begin("text")

    def set_cdata_mode(self, *args: Any, **options: Any) -> None:
        """Do nothing: `parse_starttag` passes over scripts."""

    def parse_starttag(self, i: int) -> int:
        """Parse a start tag, and what follows if it is no markup. Return its end."""
        count = len(self._starts)
        end = super().parse_starttag(i)
        if end < 0:  # not closed
            del self._starts[count:]
            self._begin("aside")
            return len(self.rawdata)
        name = self._starts[-1][2] if len(self._starts) > count else ""
        if name in _FOREIGN:
            finish = _find_foreign_end(self.rawdata, i, end, name)
        elif name in _RAW:
            match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self.rawdata, end)
            finish = match.start() if match else len(self.rawdata)
        else:
            return end
        if finish > end:
            self._begin("text" if name in _HAS_REFERENCES else "aside", distance=end - i)
        return finish

    def parse_endtag(self, i: int) -> int:
        """Parse an end tag. Return its end."""
        match = _END_TAG.match(self.rawdata, i)
        if match:
            self._begin("end", match[1].lower())
            return match.end()
        return self._pass_over(i)

    def parse_html_declaration(self, i: int) -> int:
        """Parse a declaration. Return its end."""
        return self.parse_comment(i) if self.rawdata.startswith("<!--", i) else self._pass_over(i)

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Parse a comment. Return its end."""
        match = _COMMENT_END.match(self.rawdata, i)
        if match:
            self._begin("aside")
            return match.end()
        return self._pass_over(i)

    def parse_pi(self, i: int) -> int:
        """Parse a processing instruction. Return its end."""
        return self._pass_over(i)

    def _pass_over(self, i: int) -> int:
        self._begin("aside")
        end = self.rawdata.find(">", i)
        return end + 1 if end >= 0 else len(self.rawdata)


def _find_foreign_end(text: str, start: int, end: int, name: str) -> int:
    """Return the start of the end tag of an SVG or MathML element with this start tag; of an empty one its end."""
    depth = 0
    for match in re.compile(rf"<(/?){name}(?=[\s/>])[^>]*>", re.IGNORECASE).finditer(text, start):
        depth += -1 if match[1] else not match[0].endswith("/>")
        if not depth:
            return max(end, match.start())
    return len(text)


def read_xhtml(data: bytes, path: str, config: ReadConfig) -> MarkupFile:
    """Return the units of an XHTML page. Raises DocmtError for broken XML."""
    file = XmlFile(data, path, doctype=True)
    return MarkupFile(
        file.text, list(_iterate_xml(file.root)), config, escape_text, file.encode, language_tag="xml:lang"
    )


def _iterate_xml(root: Element) -> Iterator[Token]:
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
            name = _XML_FOREIGN.get(node.name, node.name.removeprefix(_XHTML))
            yield Token("start", node.start, node.inner_start, name, is_empty=node.is_empty_tag)
            if node.is_empty_tag:
                continue
            stack.append(Token("end", node.inner_end, node.end, name))
            if node.name in _XML_FOREIGN:
                stack.append(Token("aside", node.inner_start, node.inner_end))
            else:
                stack += reversed(node.children)
