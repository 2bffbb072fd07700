"""Source and translation in one file: units cut into sentences, a translation memory (TMX) and a web page.

`docmt.formats.xliff_exchange` writes them as XLIFF.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from itertools import groupby, pairwise
from string import Template

from docmt.documents.words import Span
from docmt.formats.language_codes import format_language_tag, text_direction
from docmt.formats.marked_text import VISIBLE
from docmt.formats.placeholders import is_readable, tidy_spaces
from docmt.formats.unit_documents import Review
from docmt.formats.units import SPACE, Code, Unit
from docmt.formats.xml_tree import escape_text

Token = str | Code
"""A piece of text, or a code."""


@dataclass(frozen=True)
class BilingualSentence:
    """A sentence of a unit."""

    source_span: Span
    """characters of the source's text"""
    target_span: Span
    """characters of the target's text"""
    score: float | None = None
    has_translation: bool = True
    """whether the target, perhaps empty, is one"""
    review: Review = field(default_factory=Review)
    placeholders: Sequence[str] = ()
    """ids of the source's codes that are words of the sentence, see `ReadableUnit`"""

    @property
    def origin(self) -> str:
        """Where the translation comes from: machine, person or memory."""
        return "person" if self.review.edited else "memory" if self.review.match else "machine"

    @property
    def state(self) -> str:
        """The state of the translation in XLIFF."""
        return "final" if self.review.confirmed else "translated"


@dataclass(frozen=True)
class BilingualUnit:
    """A unit with its translation. Without sentences it is one segment."""

    id: str
    """name for people; the place in the file identifies the unit"""
    source: Unit
    target: Unit
    sentences: tuple[BilingualSentence, ...] = ()


@dataclass(frozen=True)
class BilingualPair:
    """A sentence with its codes in both languages, or what is between two sentences."""

    source: list[Token]
    target: list[Token]
    sentence: BilingualSentence | None


def split_unit(unit: BilingualUnit) -> list[BilingualPair]:
    """Return the sentences and what is between them, in order. Nothing is left out."""
    sentences = unit.sentences
    if not unit.target.text:
        sentences = tuple(replace(each, target_span=(0, 0)) for each in sentences)
    spans = [each.source_span for each in sentences], [each.target_span for each in sentences]
    if not sentences or not (_are_ordered(spans[0], unit.source) and _are_ordered(spans[1], unit.target)):
        has_translation = all(each.has_translation for each in sentences)
        whole = BilingualSentence((0, len(unit.source.text)), (0, len(unit.target.text)), None, has_translation)
        sentences, spans = (whole,), ([whole.source_span], [whole.target_span])
    pieces = zip(_cut_tokens(unit.source, spans[0]), _cut_tokens(unit.target, spans[1]), strict=True)
    pairs = [
        BilingualPair(source, target, sentences[number // 2] if number % 2 else None)
        for number, (source, target) in enumerate(pieces)
    ]
    return [pair for pair in pairs if pair.sentence or pair.source or pair.target]


def _are_ordered(spans: Iterable[Span], unit: Unit) -> bool:
    borders = [0, *(border for span in spans for border in span), len(unit.text)]
    return all(first <= second for first, second in pairwise(borders))


def _cut_tokens(unit: Unit, spans: Iterable[Span]) -> list[list[Token]]:
    """Return the text and codes before, in, between and after the spans: 2n + 1 lists for n spans."""
    borders = [0, *(border for span in spans for border in span), len(unit.text)]
    pieces: list[list[Token]] = [[] for _ in borders[1:]]
    by_offset = {offset: list(codes) for offset, codes in groupby(unit.codes, lambda code: code.offset)}
    stops = sorted({*borders, *by_offset})
    for number, stop in enumerate(stops):
        left = bisect_left(borders, stop, 1) - 1
        right = min(bisect_right(borders, stop), len(pieces)) - 1
        codes = by_offset.get(stop, [])
        count = _count_left(codes, left % 2 == 1, right % 2 == 1)
        pieces[left] += codes[:count]
        pieces[right] += codes[count:]
        if number + 1 < len(stops):
            pieces[right].append(unit.text[stop : stops[number + 1]])
    return pieces


def _count_left(codes: Sequence[Code], is_sentence: bool, meets_sentence: bool) -> int:
    """Return how many of the codes at a border go to the piece before it: ends of pairs, and marks of a sentence.

    Of two sentences that meet there, one that carries the space between them belongs to the second.
    """
    for number, code in enumerate(codes):
        is_second = not is_sentence or (meets_sentence and code.content.startswith(SPACE))
        if code.kind == "open" or (code.kind == "single" and is_second):
            return number
    return len(codes)


def _split_tidied(unit: BilingualUnit) -> list[BilingualPair]:
    """Return what `split_unit` does, with the spaces around placeholders where the translation needs them."""
    return split_unit(replace(unit, target=tidy_spaces(unit.target, unit.source)))


def show_tokens(tokens: Sequence[Token]) -> str:
    """Return a text as people read it: of its codes it has those that are words, and a space for a line break."""
    text = ""
    for token in tokens:
        if isinstance(token, str):
            text += token
        elif VISIBLE.match(token.content) or is_readable(token.content):
            text += token.content
        elif token.follows_space and not text.endswith(SPACE):
            text += SPACE
    return text


@dataclass
class CodeTable:
    """Numbers of the codes of a unit: equal ones share a number. Open codes stand for pairs."""

    numbers: dict[Code, int] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    """contents of the close codes of pairs, by number"""

    def find(self, code: Code) -> int:
        """Return the number of a code, whatever its offset."""
        return self.numbers[replace(code, offset=0)]

    def add(self, unit: Unit) -> None:
        """Number the codes of a unit that have none yet."""
        opened: list[int] = []
        for code in unit.codes:
            if code.kind == "close":
                self.ends.setdefault(opened.pop(), code.content)
                continue
            number = self.numbers.setdefault(replace(code, offset=0), len(self.numbers) + 1)
            if code.kind == "open":
                opened.append(number)


def write_page(units: Sequence[BilingualUnit], title: str, source_language: str, target_language: str) -> str:
    """Return an HTML page of two columns. The partner of the sentence under the mouse or the focus lights up."""
    rows = []
    count = 0
    languages = source_language, target_language
    sides = [f'lang="{format_language_tag(language)}" dir="{text_direction(language)}"' for language in languages]
    for unit in units:
        pairs = _split_tidied(unit)
        source = _write_column("s", count, [(pair, pair.source) for pair in pairs])
        target = _write_column("t", count, [(pair, pair.target) for pair in pairs])
        count += sum(pair.sentence is not None for pair in pairs)
        rows.append(f'<div class="unit"><p {sides[0]}>{source}</p><p {sides[1]}>{target}</p></div>')
    page = resources.files("docmt.formats").joinpath("bilingual_page.html").read_text(encoding="utf-8")
    return Template(page).substitute(
        language=format_language_tag(target_language),
        direction=text_direction(target_language),
        style=_hash(page, "style"),
        script=_hash(page, "script"),
        title=_escape(title),
        rows="\n".join(rows),
    )


def _write_column(side: str, count: int, pieces: Sequence[tuple[BilingualPair, list[Token]]]) -> str:
    """Return the sentences of a unit as spans. count: number of sentences before."""
    parts = []
    for pair, tokens in pieces:
        text = _escape(show_tokens(tokens))
        if pair.sentence:
            count += 1
            text = f'<span id="{side}{count}" tabindex="0">{text}</span>'
        parts.append(text)
    return "".join(parts)


def _escape(text: str) -> str:
    """Return text for HTML. What HTML cannot hold is shown as U+FFFD."""
    return html.escape(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


def _hash(page: str, name: str) -> str:
    """Return the hash of the contents of the only element with this name in the page."""
    _, content, _ = re.split(f"</?{name}>", page)
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def write_tmx(units: Iterable[BilingualUnit], source_language: str, target_language: str) -> bytes:
    """Return a translation memory (TMX 1.4b) of all sentences, without markup, so that they match in other files.

    Each names its origin. Equal input gives equal bytes but for the date.
    """
    source, target = format_language_tag(source_language), format_language_tag(target_language)
    date = f'creationdate="{datetime.now(UTC):%Y%m%dT%H%M%SZ}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
        f'<header creationtool="docmt" creationtoolversion="{version("docmt")}" segtype="sentence" o-tmf="docmt"'
        f' adminlang="en" srclang="{source}" datatype="plaintext" {date}/>\n<body>\n'
    ]
    for unit in units:
        for pair in _split_tidied(unit):
            first, second = (escape_text(show_tokens(tokens).strip()) for tokens in (pair.source, pair.target))
            if pair.sentence and pair.sentence.has_translation and first and second:
                state = "confirmed" if pair.sentence.review.confirmed else "open"
                match = f'<prop type="x-match">{quality}</prop>' if (quality := pair.sentence.review.match) else ""
                lines.append(
                    f'<tu {date}><prop type="x-origin">{pair.sentence.origin}</prop>{match}'
                    f'<prop type="x-state">{state}</prop>'
                    f'<tuv xml:lang="{source}"><seg>{first}</seg></tuv>'
                    f'<tuv xml:lang="{target}"><seg>{second}</seg></tuv></tu>\n'
                )
    return "".join([*lines, "</body>\n</tmx>\n"]).encode()
