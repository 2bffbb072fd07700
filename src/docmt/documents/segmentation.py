"""Sentence segmentation: text is laid out in blocks, sentencex segments them, and a few rules correct it.

A *block* is one line, or the joined lines of one paragraph. Text between blocks (white space, bullets, numbering,
quote and heading marks, ruled lines) is never translated, and nor is fenced code. Code that is only indented counts as
text: it mostly is.

abbreviations.yaml has three tables for each of seven languages. The full stop of a word ends no sentence whatever
follows (`always`: titles), before a number (`before_number`), or before a capital, unless the next word is one that
often begins sentences (`before_name`). For other languages sentencex decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import sentencex

from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK
from docmt.core.settings import read_package_yaml
from docmt.documents.columns import find_columns, is_row
from docmt.documents.protected_text import find_protected
from docmt.documents.words import has_letters, has_words, is_symbol, strip_span

DEFAULT_LANGUAGE = "en"
"""Its rules serve where the language is unknown, or has none."""
_TABLES = read_package_yaml(__package__, "abbreviations.yaml")
_STARTERS = {language: frozenset(words.split()) for language, words in _TABLES.pop("starters").items()}
"""Words that begin sentences, by language."""
_KNOWN_LANGUAGES = frozenset(_TABLES.pop("languages").split())
"""Languages with rules in sentencex."""
_ORDINALS = {name: "|".join(patterns.split()) for name, patterns in _TABLES.pop("german_ordinals").items()}
GERMAN_ORDINAL_NOUN = rf"(?:{_ORDINALS['before']})(?!\w)"
"""German ordinals have a full stop: "3. Oktober" at the start of a line is a date, not item 3 of a list."""


def _index_tables(language: str) -> dict[str, set[str]]:
    """Return the names of the tables that have a word, by its forms: as written, with a capital, in capitals."""
    index: dict[str, set[str]] = {}
    for name, table in _TABLES.items():
        for word in f"{table.get('all', '')} {table[language]}".split():
            forms = {word, word.capitalize() if word.islower() else word}
            for form in forms if name == "before_name" else {*forms, word.upper()}:
                index.setdefault(form, set()).add(name)
    return index


_ABBREVIATIONS = {language: _index_tables(language) for language in _STARTERS}

_WORD_BEFORE_STOP = re.compile(r"(?<![\w.-])[^\W\d_]+(?=\.\s)")
_LAST_WORD = re.compile(r"(?<![\w.-])(?<!['’](?=\w\.))(\w(?:[\w-]|\.(?=[\w-]))*)\.$")
_LAST_INITIAL = re.compile(r"(?<![^\s(\[.„“\"«'’–-])[^\W\d_]\.$")
_WITHOUT_VOWELS = re.compile(r"(?<![\w.'’-])(?<!\d\s)[^\W\d_aeiouyAEIOUYÀ-ÿ][b-df-hj-np-tv-xz]{1,5}\.$")
"""An abbreviation in any language: Sgt, Blk. After a number it is a unit, which may end a sentence: 5 km."""
_TWO_STOPS = re.compile(r"\.\s\S+$")
_FIRST_WORD = re.compile(r"(?:[^\W\d_]['’]|[^\W\d_]+)(?![\w.])")
_NUMBER = re.compile(r"[§#(]?\d|[A-Z]{1,5}[-/]?\d|[IVXLC]{2,}\b|[B-HJ-Z]\b(?!['’])|[AI](?=[.,;:)\d–]|$| (?:of|and)\b)")
_GERMAN_ORDINAL = re.compile(r"(?<![\w.,])\d{1,3}\.$")
_GERMAN_NOUN = re.compile(GERMAN_ORDINAL_NOUN)
_ORDINAL_AFTER_DETERMINER = re.compile(
    rf"\b(?i:{_ORDINALS['after']}) (?:\d{{1,3}}\.,? ?(?:und|oder|bis|[/–-])? ?)*(?:\d{{1,3}}|[IVXL]+)\.$"
)


def hide_words(text: str, language: str) -> str:
    """Return the text, of the same length, with words before a full stop as no abbreviation that sentencex knows.

    Its lists have words such as no, ill and mar, after which it would end no sentence.
    """
    if language not in _STARTERS:
        return text
    return _WORD_BEFORE_STOP.sub(lambda word: f"{word[0][:-1][:1]:ø<{len(word[0])}}", text)


def is_abbreviated(preceding: str, following: str, language: str) -> bool:
    """Return whether the full stop at the end of a text ends no sentence, as far as abbreviations tell.

    preceding: the sentence up to the full stop. following: the text after it, without white space at its start.
    """
    initial = _LAST_INITIAL.search(preceding)
    tables = _find_tables(preceding, language)
    if "always" in tables or ("before_number" in tables and _NUMBER.match(following)):
        return True
    if following.lstrip('"“«„')[:1].islower():
        return bool(initial or tables)
    if language not in _STARTERS or following[0].isdigit() or _starts_sentence(following, language):
        return False
    if initial and initial[0].isupper() and following[0] != "-":
        return True
    first = following.split(maxsplit=1)[0]
    are_several = _TWO_STOPS.search(preceding) or _LAST_INITIAL.match(first) or _find_tables(first, language)
    if (tables or initial) and are_several:
        return True  # "Reg. No. 5", "a. D."
    if not following[0].isupper():
        return False
    is_dated = _GERMAN_ORDINAL.search(preceding) and _GERMAN_NOUN.match(following)
    is_ordinal = language == "de" and bool(is_dated or _ORDINAL_AFTER_DETERMINER.search(preceding))
    return "before_name" in tables or is_ordinal


def _find_tables(text: str, language: str) -> set[str]:
    """Return the names of the tables that have the word before the full stop at the end of a text."""
    abbreviations, word = _ABBREVIATIONS.get(language, {}), _LAST_WORD.search(text)
    if word is None or not abbreviations:
        return set()
    forms = (word[1], word[1].rpartition("-")[2], f"-{word[1][-3:]}")
    tables = next((abbreviations[form] for form in forms if form in abbreviations), set())
    return tables | {"before_number"} if _WITHOUT_VOWELS.search(text) else tables


def _starts_sentence(text: str, language: str) -> bool:
    """Return whether the text begins with a word that often begins sentences."""
    word = _FIRST_WORD.match(text)
    return word is not None and word[0].replace("’", "'") in _STARTERS[language]


LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_PARAGRAPH_BREAKS = ("\x0c", "\u2029")  # form feed and paragraph separator

# Marks before the text of a line. Nested marks ("> - 1. text") belong together.
_MARK = r"""
    (?: (?P<quote> >+ )
      | (?: (?P<heading> \#{1,6} )
          | (?P<bullet> [-*+•‣⁃◦∙·▪▫●○■□–—] | \[[ xX]\] )
          | (?P<number> \d{1,3}[.)] %s | \(\d{1,3}\) | \(?[A-Za-z]\) | \(?[ivxIVX]{2,5}\)
            | (?:[ivx]{1,5}|[IVX]{2,5})\. | \d{1,3}(?:\.\d{1,3}){1,4}\.? (?=\s+["“(]?[A-ZÀ-Þ]) )
        ) (?= \s | $ )
    ) \s*
"""
_MARKS = re.compile(_MARK % "", re.VERBOSE)
_GERMAN_MARKS = re.compile(_MARK % rf"(?! \s+ {GERMAN_ORDINAL_NOUN} )", re.VERBOSE)
_FIRST_NUMBERS = {"1.", "1)", "(1)", "a)", "(a)", "A)", "(A)"}
_UNDERLINE = re.compile(r"([=\-~^*\"'`#+_])\1+")
_MIN_PAGE_WIDTH = 30
"""Least width, in characters, of hard-wrapped lines."""
_OPEN_END = re.compile(r"[^.!?…:;,。！？：；，、)\]\-–—]$")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
_ITEM = re.compile(r"^(?:>\s?|[-*+]\s+|\d{1,9}[.)]\s+)+")  # list and quote marks before a fence

# sentencex takes quadratic time on some long texts (Chinese without spaces, unclosed quotes), so long blocks are
# segmented in windows. Boundaries near the end of a window lack the context to be reliable.
_WINDOW = 10_000
_MARGIN = 500

# sentencex 1.0.32 panics on a capital, white space outside ASCII and a full stop ("B\u00a0."): pass ASCII spaces.
_WHITE_SPACE = re.compile(r"\s")

_ENDS_NO_SENTENCE = re.compile(r"(?<!\w)[^\W\d_]\.$|[\w\s,;‚„«‹(\[{]$")
_NEVER_STARTS_SENTENCE = re.compile(r"[-‐‑’”»›)\]},;ºª]|‘\s")
_OPENING_QUOTE = re.compile(r"\s[\"'’“„«‘](?=\S)")
_BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]\s+(?=[^\w\s]?[^\W_])")
_NAME_IN_SMALL_LETTERS = re.compile(r"\w+(?:(?<=[^\W\d_A-Z])[A-Z]|[(_@]|://|(?<=\w\w)\.\w)")
"""iPhone, macOS, free(), php.ini, addresses: words that may begin a sentence, though not with a capital."""

_WHITE_SPACES = re.compile(r"\s+")
UNSPACED_SCRIPT = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


def sentence_spans(
    text: str, language: str = "en", join_lines: bool = False, protect: Sequence[str] = ()
) -> list[tuple[int, int]]:
    """Return the (start, end) of every sentence of `text` in characters, in order.

    No sentence is empty, starts or ends with white space, or lacks a letter or digit. Time is linear in the text.
    `language` is a code such as "de" or "de-AT". English rules are used for languages unknown to sentencex.
    `join_lines`: see `_find_blocks`. `protect`: patterns of the user, see `find_protected`; no sentence ends within.
    Raises DocmtError for lone surrogates.
    """
    language = base_language(language)
    spans: list[tuple[int, int]] = []
    for block_start, block_end in _find_blocks(text, language, join_lines):
        for cell_start, cell_end in _split_block(text, block_start, block_end, language):
            cell = text[cell_start:cell_end]
            for start, end in pairwise([0, *_find_boundaries(cell, language, protect)]):
                if has_words(cell[start:end]):
                    spans.append(strip_span(text, cell_start + start, cell_start + end))
    return spans


def _split_block(text: str, start: int, end: int, language: str) -> Iterator[tuple[int, int]]:
    """Yield the texts between the gaps of a block, without marks; a block without gaps as it is."""
    columns = find_columns(text[start:end])
    if len(columns) == 1:
        yield start, end
        return
    marks = _find_marks(language)
    for first, last in columns:
        line = _parse_line(text[start + first : start + last], start + first, marks, False)
        cell = text[line.start : line.end]
        if has_letters(cell) and not is_symbol(cell):
            yield line.start, line.end


def knows_language(language: str) -> bool:
    """Return whether there are segmentation rules for this language. Others use those of English."""
    return base_language(language) in _KNOWN_LANGUAGES


def base_language(language: str) -> str:
    """Return a language code without country or script: de for de_AT."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def unwrap_lines(sentence: str) -> str:
    """Return a sentence without the line breaks and indentation of hard-wrapped text.

    A break becomes one space, or nothing between Chinese or Japanese characters.
    """
    return _WHITE_SPACES.sub(_replace_break, sentence)


def _replace_break(spaces: re.Match[str]) -> str:
    if not LINE_BREAK.search(spaces[0]):
        return spaces[0]
    text, (start, end) = spaces.string, spaces.span()
    unspaced = UNSPACED_SCRIPT.match(text[start - 1 : start]) and UNSPACED_SCRIPT.match(text[end : end + 1])
    return "" if unspaced else " "


def _find_boundaries(block: str, language: str, protect: Sequence[str]) -> Iterator[int]:
    """Yield the ends of the sentences of a block. The last one is the end of the block."""
    normalized = _WHITE_SPACE.sub(" ", block)
    protected = (each.span for each in find_protected(normalized, language, extra=protect) if not each.is_sign)
    inside = {place for start, end in protected for place in range(start + 1, end)}
    start, size, last = 0, _WINDOW, 0
    while start < len(normalized):
        window = _cut_window(normalized, start, size)
        ends = _sentencex_ends(window, language)
        if start + len(window) < len(normalized):
            ends = [end for end in ends if end <= len(window) - _MARGIN]
            if not ends:  # a sentence longer than the window
                size *= 2
                continue
        # sentencex takes a quote for a closing one where their number is odd: ends go before it if words follow.
        boundaries = {start + end - bool(_OPENING_QUOTE.match(normalized, start + end - 2)) for end in ends}
        following = start + ends[-1]
        brackets = {match.end(): match for match in _BRACKETS.finditer(normalized, start, following)}
        for boundary in sorted(boundaries | brackets.keys()):
            if boundary not in boundaries and not _is_sentence(brackets[boundary], last):
                continue
            if boundary < len(block) and (boundary in inside or _must_join(normalized, last, boundary, language)):
                continue
            last = boundary
            yield boundary
        start, size = following, _WINDOW


def _is_sentence(brackets: re.Match[str], start: int) -> bool:
    """Return whether brackets hold a whole sentence, which begins at `start`."""
    marks = brackets[1].rstrip("\"'”’»")[-1:]
    return not brackets.string[start : brackets.start()].strip() and marks in set(".!?…")


def _cut_window(text: str, start: int, size: int) -> str:
    """Return about `size` characters from `start`, not ending within straight quotes.

    sentencex splits within all straight quotes of a text with an odd number of them.
    """
    window = text[start : start + size]
    if start + size < len(text) and window.count('"') % 2:
        quote = window.rindex('"')
        if size - quote < 4 * _MARGIN:
            return window[:quote]
    return window


def _sentencex_ends(text: str, language: str) -> list[int]:
    try:
        pieces = sentencex.segment(language, hide_words(text, language))
    except UnicodeEncodeError as error:
        raise DocmtError(f"the text contains a lone surrogate (U+{ord(text[error.start]):04X}). Remove it.") from error
    except BaseException as error:
        # A panic of the Rust library is no Exception. One long sentence is better than no translation.
        if type(error).__name__ != "PanicException":
            raise
        return [len(text)]
    ends = list(accumulate(map(len, pieces)))
    return ends if ends[-1:] == [len(text)] else [len(text)]


def _must_join(text: str, start: int, boundary: int, language: str) -> bool:
    """Return whether the boundary is a mistake of sentencex, so that no sentence ends there. start: of the sentence."""
    left = text[max(start, boundary - 40) : boundary]
    right = text[boundary : boundary + 40]
    preceding, following = left.rstrip(), right.lstrip()
    if not preceding or not following:
        return False
    if preceding == left and following == right:  # no space: "J.-C.", "O.N.U.", an opening quote cut from its sentence
        return bool(_ENDS_NO_SENTENCE.search(preceding) or _NEVER_STARTS_SENTENCE.match(following))
    if is_abbreviated(preceding, following, language):
        return True
    if preceding[-1] != "." or not following[0].islower():
        return False
    # A small letter begins no sentence, unless it begins a name, or the writer uses no capitals.
    uses_capitals = next(filter(str.isalpha, text[start : min(start + 80, boundary)]), "").isupper()
    return uses_capitals and not _NAME_IN_SMALL_LETTERS.match(following)


class _Line(NamedTuple):
    """A line of text without white space and marks. start == end for a line without words."""

    start: int
    end: int
    kind: str = "text"  # "text" | "quote" | "heading" | "bullet" | "number": the last mark before the text
    opens: bool = True  # whether its marks may interrupt a paragraph
    bare_start: int = 0  # start of the text if marks count as text
    ends_paragraph: bool = False

    @property
    def empty(self) -> bool:
        return self.start == self.end


def _find_blocks(text: str, language: str = "en", join_lines: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of every block of `text`, in order, without white space at its ends.

    Each line is a block. With `join_lines` the lines of a hard-wrapped paragraph are one block, which contains the
    line breaks. Blank lines, headings, list items and quoted lines (each line that starts with `>`) end it. Blocks
    without a letter (numbers, times, rows of marks) are left out.
    """
    lines = list(_split_lines(text, language))
    spans = _join_paragraphs(text, lines) if join_lines else [(line.start, line.end) for line in lines]
    yield from ((start, end) for start, end in spans if has_letters(text[start:end]))


def looks_wrapped(text: str, language: str = "en") -> bool:
    """Return whether the lines of the text look hard-wrapped.

    Only lines that another line of their paragraph follows count. At least half of them (and three) must be broken
    off: they end within a sentence, and the next line goes on in lower case. Their widths must be similar.
    """
    lines = _split_lines(text, language)
    followed = [
        (line, below) for line, below in pairwise(lines) if not line.empty and not below.empty and below.kind == "text"
    ]
    continued = [line for line, below in followed if text[below.start].islower()]
    broken = [line for line in continued if _OPEN_END.search(text[line.start : line.end].rstrip(",;"))]
    widths = sorted(line.end - line.bare_start for line in broken)
    if len(widths) < max(3, len(followed) / 2):
        return False
    widest = widths[-1 - len(widths) // 20]
    return widest >= _MIN_PAGE_WIDTH and sum(3 * width >= 2 * widest for width in widths) >= 0.8 * len(widths)


def _split_lines(text: str, language: str) -> Iterator[_Line]:
    marks = _find_marks(language)
    start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    while start < len(text):
        line_break = LINE_BREAK.search(text, start)
        end, following = line_break.span() if line_break else (len(text), len(text))
        yield _parse_line(text[start:end], start, marks, text[end:following] in _PARAGRAPH_BREAKS)
        start = following


def _find_marks(language: str) -> re.Pattern[str]:
    return _GERMAN_MARKS if language == "de" else _MARKS


def _parse_line(raw: str, offset: int, marks: re.Pattern[str], ends_paragraph: bool) -> _Line:
    content = raw.strip()
    content_start = offset + len(raw) - len(raw.lstrip())
    end = content_start + len(content)
    position, kind, opens = 0, "text", True
    while mark := marks.match(content, position):
        if position == 0:
            opens = mark["number"] is None or mark["number"] in _FIRST_NUMBERS
        position, kind = mark.end(), mark.lastgroup or kind
    if not has_words(content[position:]):
        return _Line(end, end, kind, opens, end if position == 0 else content_start, ends_paragraph)
    return _Line(content_start + position, end, kind, opens, content_start, ends_paragraph)


def _join_paragraphs(text: str, lines: list[_Line]) -> list[tuple[int, int]]:
    """Return the (start, end) of each paragraph."""
    paragraphs: list[list[_Line]] = []
    block: list[_Line] = []  # the open paragraph
    for index, line in enumerate(lines):
        # As in Markdown, only a first number starts a list within a paragraph, as a sentence may be wrapped just before
        # "12. Then ...". Within a list any number does.
        if block and not line.opens and block[0].kind not in ("number", "bullet"):
            line = _Line(line.bare_start, line.end, ends_paragraph=line.ends_paragraph)
        if line.empty:
            block = []
            continue
        underlined = index + 1 < len(lines) and _is_underline(text, line, lines[index + 1])
        row = is_row(text[line.start : line.end])
        begins = not block or line.kind != "text" or underlined or row
        if begins or (len(block) == 1 and _is_title(text, block[0], line)):
            block = []
            paragraphs.append(block)
        block.append(line)
        if line.kind == "heading" or underlined or row or line.ends_paragraph:
            block = []
    return [(block[0].start, block[-1].end) for block in paragraphs]


def _is_underline(text: str, line: _Line, below: _Line) -> bool:
    """Return whether the next line is a row of one character about as long as the line."""
    if not below.empty:
        return False
    row = LINE_BREAK.sub("", text[line.end : below.end]).strip()
    return _UNDERLINE.fullmatch(row) is not None and abs(len(row) - (line.end - line.bare_start)) <= 2


def _is_title(text: str, first: _Line, second: _Line) -> bool:
    """Return whether the first line of a paragraph is a title: much shorter than the next, without punctuation."""
    is_short = 2 * (first.end - first.start) <= second.end - second.start
    is_open = _OPEN_END.search(text[first.start : first.end]) is not None
    return first.kind == "text" and is_short and is_open and text[second.start].isupper()


def find_fenced_code(text: str) -> list[tuple[int, int]]:
    """Return the start and end of fenced code in plain text, whole lines each.

    Fences must be closed, and rows of ~, which underline headings, open code only with the name of its language
    (`~~~ python`).
    """
    lines = list(re.finditer(r"[^\n]*\n|[^\n]+", text))
    stripped = [line[0].removeprefix(BYTE_ORDER_MARK).strip() for line in lines]
    blocks, index = [], 0
    unclosed: dict[str, int] = {}
    while index < len(lines):
        if end := find_fence_end(stripped, index, unclosed):
            blocks.append((lines[index].start(), lines[end - 1].end()))
        index = end or index + 1
    return blocks


def find_fence_end(lines: list[str], index: int, unclosed: dict[str, int], markdown: bool = False) -> int:
    """Return the index after the fenced code that begins in a line, or 0.

    In Markdown an unclosed fence lasts to the end. unclosed: length of the shortest fence of each kind known to be
    unclosed, so that its end is not searched again.
    """
    opening = _FENCE.match(_ITEM.sub("", lines[index]))
    if opening is None or (not markdown and opening["marks"][0] == "~" and not opening["info"].strip()):
        return 0
    marks = opening["marks"]
    if unclosed.get(marks[0], len(marks) + 1) <= len(marks):
        return 0
    for closing in range(index + 1, len(lines)):
        line = lines[closing].lstrip("> ")
        if line.startswith(marks) and not line.strip(marks[0]):
            return closing + 1
    unclosed[marks[0]] = len(marks)
    return len(lines) if markdown else 0
