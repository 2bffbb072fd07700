"""Elements of HTML and XML: their tokens, where they end, and which of them end a unit.

Rules follow the HTML standard (https://html.spec.whatwg.org/multipage/). Its names are in html_names.yaml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from html import unescape
from typing import Literal, NamedTuple

from docmt.core.settings import read_package_yaml
from docmt.formats.patched_text import Replacement
from docmt.formats.units import TagRules


def list_names(text: str) -> frozenset[str]:
    """Return names that are separated by spaces."""
    return frozenset(text.split())


def read_table(section: str) -> dict[str, str]:
    """Return the value of each name in a section of html_names.yaml."""
    return {name: value for names, value in _TABLES[section].items() for name in names.split()}


_TABLES = read_package_yaml(__package__, "html_names.yaml")
_NAMES = {kind: list_names(names) for kind, names in read_table("names").items()}
VOID, READINGS, CAN_COPY = _NAMES["void"], _NAMES["readings"], _NAMES["can_copy"]
BLOCKS = _NAMES["controls"] | _NAMES["blocks"]
EMBEDDED = READINGS | _NAMES["embedded"]
"""Elements that are one code with all that they hold."""
_INLINE = CAN_COPY | EMBEDDED | VOID | _NAMES["inline"]
"""Elements of running text in HTML. Others, such as custom ones, are so where they stand beside words."""
_XML_PREFIX = "{}"
"""Of names of XML, which mean nothing in HTML."""
_SPEAKS = re.compile(r"\w|[.,:;!?…()]")
"""Text that makes its neighbours parts of a sentence; white space and separators do not."""
_IMPLIED_ENDS = {name: list_names(closed) for name, closed in read_table("implied_ends").items()}


class Token(NamedTuple):
    """A tag, characters, or markup that shows nothing."""

    kind: Literal["start", "end", "text", "hidden"]
    """"hidden": comment, declaration, processing instruction, contents of scripts"""
    start: int
    end: int
    name: str = ""
    """of a tag, in lower case for HTML"""
    value: str = ""
    """characters, unescaped"""
    is_empty: bool = False
    """whether a start tag is the whole element"""


def find_ends(tokens: Sequence[Token]) -> list[int]:
    """Return, for each start tag, the index after the last token of its element."""
    ends = list(range(1, len(tokens) + 1))
    opened: list[int] = []
    counts: Counter[str] = Counter()
    for number, token in enumerate(tokens):
        if token.kind == "start":
            while opened and _closes(token.name, tokens[opened[-1]].name):
                ends[opened[-1]] = number
                counts[tokens[opened.pop()].name] -= 1
            if not token.is_empty and token.name not in VOID:
                opened.append(number)
                counts[token.name] += 1
        elif token.kind == "end" and counts[token.name]:
            while tokens[start := opened.pop()].name != token.name:
                ends[start] = number
                counts[tokens[start].name] -= 1
            ends[start] = number + 1
            counts[token.name] -= 1
    for start in opened:
        ends[start] = len(tokens)
    return ends


def _closes(name: str, opened: str) -> bool:
    """Return whether the start of an element closes an open one."""
    return opened in _IMPLIED_ENDS.get(name, ()) or (opened == "p" and name in _NAMES["blocks"])


def find_borders(tokens: Sequence[Token], ends: Sequence[int], tags: TagRules | None) -> set[int]:
    """Return the start tags of elements that end a unit, besides those of HTML.

    An element does if it is not inside running text. So does an item that touches another one of its name, and a list:
    without words, of several equal elements.
    tags: rules of XML, where no name has a meaning; None for HTML.
    """
    parents: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    touching: set[int] = set()
    speaking: set[int] = set()  # elements with words of their own
    opened = [-1]
    for index, token in enumerate(tokens):
        while opened[-1] >= 0 and ends[opened[-1]] <= index:
            opened.pop()
        if token.kind == "text" and _SPEAKS.search(token.value):
            speaking.add(opened[-1])
        elif token.kind == "start":
            parents[index] = opened[-1]
            before = children.setdefault(opened[-1], [])
            if before and tokens[index - 1].kind == "end" and tokens[before[-1]].name == token.name not in CAN_COPY:
                touching |= {index, before[-1]}
            before.append(index)
            if ends[index] > index + 1:
                opened.append(index)
    borders: set[int] = set()
    running = set(speaking)  # elements whose parts are inside running text
    for index, parent in parents.items():
        inner = [tokens[each].name for each in children.get(index, [])]
        is_list = index not in speaking and len(inner) > 1 and {*inner} == {inner[0]} and inner[0] != tokens[index].name
        is_item = is_list or index in touching or parent not in running
        name = tokens[index].name.removeprefix(_XML_PREFIX)
        is_known = name in _INLINE | BLOCKS if tags is None else name in tags.non_splitting or not tags.outline
        if (tags and name in tags.splitting) or (is_item and not is_known):
            borders.add(index)
        elif parent in running and (tags or name not in BLOCKS):
            running.add(index)
    return borders


_ATTRIBUTES, _ELEMENT_ATTRIBUTES = _NAMES["attributes"], _NAMES["element_attributes"]
_KEPT_METAS = read_table("kept_metas")
_META_NAMES = ("name", "property", "itemprop")
_TEXT_FIELDS = list_names("text search")
_PROSE = re.compile(r"[^\W\d_](?=[^\n{}<>=;|]*[^\W_][,:]? [^\W_])[^{}<>=;|]*")
"""Several words in an attribute of scripts."""
_TEMPLATE = (
    r"(?:\{\{(?:[^{}\n]|\{[^{}\n]*\})*\}?\}\}|\{%[^\n]{0,300}?%\}|\{\#[^\n]{0,300}?\#\}"
    r"|<%[^\n]{0,300}?%>|<\?(?:php|=)[^\n]{0,500}?\?>)"
)
_TEMPLATES = re.compile(f"({_TEMPLATE})")
_NAME_REST = r"(?:(?!\{[{%\#]|<[%?])[^\s/>])*+"
"""Characters of the name of a tag after the first one."""
_VALUE = rf"""(?:"(?:{_TEMPLATE}|[^"])*+"|'(?:{_TEMPLATE}|[^'])*+'|(?!["'])(?:{_TEMPLATE}|[^\s>])++)"""
_ATTRIBUTE = rf"(?:{_TEMPLATE}|([^\s/>](?:(?!\{{[{{%\#]|<[%?])[^\s/>=])*+)(?:\s*=\s*({_VALUE}))?)"
"""Of HTML, where tags of templates may stand in values and between attributes."""
_ATTRIBUTE_OF_TAG = re.compile(_ATTRIBUTE)
_TAG_NAME = re.compile(f"<{_NAME_REST}")


def convert_text(text: str, convert: Callable[[str], str], page: Collection[str] = ()) -> str:
    """Return a text after a function that leaves tags of templates alone. page: those of the page with < and >.

    Others of these were escaped: &lt;%= x %&gt;.
    """
    parts = enumerate(_TEMPLATES.split(text))
    return "".join([part if n % 2 and (part[0] == "{" or part in page) else convert(part) for n, part in parts])


def find_templates(page: str) -> frozenset[str]:
    """Return the tags of templates of a page that have < and >."""
    return frozenset(each for each in _TEMPLATES.findall(page) if each[0] == "<")


def unescape_text(raw: str) -> str:
    """Return characters of HTML, unescaped."""
    return convert_text(raw, unescape, find_templates(raw))


class TagAttribute(NamedTuple):
    """An attribute of a start tag. start, end: its value without quotes; quote: "", '"' or "'".

    Or the text between two tags; quote: ">".
    """

    start: int
    end: int
    value: str
    """unescaped"""
    quote: str

    def set_value(self, value: str) -> Replacement:
        """Return the replacement that sets the value."""
        if self.quote:
            return self.start, self.end, value
        equals = "" if self.end > self.start else "="
        return self.start, self.end, f'{equals}"{value}"'


class Attributes(dict[str, TagAttribute]):
    """The attributes of a start tag by name, the first one of each name. start: where they begin in the text."""

    def __init__(self, tag: str, start: int) -> None:
        """start: where the tag begins in its text."""
        super().__init__()
        name = _TAG_NAME.match(tag)
        begin = name.end() if name else 0
        self.start = start + begin
        for match in _ATTRIBUTE_OF_TAG.finditer(tag, begin):
            raw = match[2] or ""
            quote = raw[:1] if raw[:1] in ('"', "'") else ""
            first, last = (match.start(2), match.end(2)) if match[2] else (match.end(), match.end())
            span = start + first + len(quote), start + last - len(quote)
            if match[1]:
                value = unescape_text(raw[1:-1] if quote else raw)
                self.setdefault(match[1].lower(), TagAttribute(*span, value, quote))

    def find_translate(self) -> str:
        """Return "yes", "no", or "" where the element does not tell."""
        if "translate" in self:
            return {"no": "no", "yes": "yes", "": "yes"}.get(self["translate"].value.strip().lower(), "")
        return "no" if "class" in self and "notranslate" in self["class"].value.lower().split() else ""

    def find_language(self) -> str:
        """Return the code of the language that the element names, or an empty string."""
        return next((self[name].value for name in ("lang", "xml:lang") if name in self), "")

    def is_translated(self, tag: str, name: str) -> bool:
        """Return whether the attribute of this name is translated. tag: name of the element."""
        if tag == "meta":
            return name == "content" and not _NAMES["metas"].isdisjoint(self._find_values(*_META_NAMES))
        if tag == "input" and name == "value":
            return self._find_values("type") in (["submit"], ["button"], ["reset"])
        return (name in _ATTRIBUTES and tag not in ("link", "style")) or f"{tag}@{name}" in _ELEMENT_ATTRIBUTES

    def find_kept(self, tag: str, name: str) -> str:
        """Return what an attribute that is not translated holds for people, or an empty string."""
        if tag == "meta" and name == "content":
            return next((_KEPT_METAS[each] for each in self._find_values(*_META_NAMES) if each in _KEPT_METAS), "")
        if tag == "input" and name == "value":
            return "text fields" if _TEXT_FIELDS.issuperset(self._find_values("type")) else ""
        return "data attributes" if name.startswith("data-") and _PROSE.fullmatch(self[name].value) else ""

    def _find_values(self, *names: str) -> list[str]:
        """Return the values of those of these attributes that the element has, in small letters."""
        return [self[name].value.strip().lower() for name in names if name in self]


_FOREIGN = ("math", "svg")
_HAS_TEXT = _NAMES["raw"] - {"script", "style"}
_MARKUP = re.compile(
    r"""
    (?P<hidden><!--(?:-?>|.*?--!?>|.*\Z) | <%(?:(?!<%).)*?%> | <\?(?:php\b|=).*?(?:\?>|\Z)
    | <(?:[!?]|/(?![A-Za-z]))[^>]*(?:>|\Z))
    | </(?P<end>[A-Za-z][^\s/>]*)[^>]*(?:>|\Z)
    | <(?P<start>[A-Za-z]"""
    rf"""{_NAME_REST})(?>[\s/]+ | {_ATTRIBUTE})*+>?
    """,
    re.DOTALL | re.VERBOSE,
)
_CDATA = "<![CDATA["
_XML_MARKUP = re.compile(
    _MARKUP.pattern.replace("[A-Za-z]", r"[^\W\d]").replace("hidden>", r"hidden><!\[CDATA\[.*?\]\]> | "), _MARKUP.flags
)
_XML_KNOWN = CAN_COPY | list_names("a br code kbd samp var")
"""Names that mean in pieces of XML what they mean in HTML."""


def tokenize(text: str, is_html: bool = True) -> Iterator[Token]:
    """Yield the tokens of a text, which cover it without gaps, by the rules of the HTML standard (13.2.5) or XML."""
    markup = _MARKUP if is_html else _XML_MARKUP
    decode = unescape_text if is_html else unescape
    position = begin = 0  # begin: of the characters before
    while match := markup.search(text, position):
        if match.start() > begin:
            yield Token("text", begin, match.start(), value=decode(text[begin : match.start()]))
        end = match.end() if match["hidden"] or match["end"] or match[0].endswith(">") else len(text)
        tag = match["start"] or match["end"] or ""
        name = tag.lower() if is_html else tag if tag in _XML_KNOWN else _XML_PREFIX + tag
        if not is_html and match[0].startswith(_CDATA):
            yield Token("text", match.start(), end, value=match[0][len(_CDATA) : -3])
        elif match["end"]:
            yield Token("end", match.start(), end, name)
        elif match["hidden"] or not match[0].endswith(">"):  # or a tag that nothing closes
            yield Token("hidden", match.start(), end)
        else:
            is_empty = match[0].endswith("/>") and (name in _FOREIGN or not is_html)
            yield Token("start", match.start(), end, name, is_empty=is_empty)
            finish = _find_raw_end(text, match.start(), end, name)
            if finish > end and name in _HAS_TEXT:
                yield Token("text", end, finish, value=decode(text[end:finish]))
            elif finish > end:
                yield Token("hidden", end, finish)
            end = finish
        position = begin = end
    if begin < len(text):
        yield Token("text", begin, len(text), value=decode(text[begin:]))


def _find_raw_end(text: str, start: int, end: int, name: str) -> int:
    """Return the end of what follows a start tag and is no markup; the end of the tag if all of it is."""
    if name in _NAMES["raw"]:
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
