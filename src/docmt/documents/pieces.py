"""Sentences that are longer than a model reads well: where they are cut into pieces, which are joined again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from docmt.documents.document import Document
from docmt.documents.protected_text import find_protected
from docmt.documents.segmentation import base_language, unwrap_lines
from docmt.documents.words import MARKS, UNSPACED, Span, has_words

_CONJUNCTIONS = (
    "and|or|but|because|while|which|who|that|when|where|whether|if|although|since|so|then|et|ou|mais|donc|parce|que|"
    "qui|quand|si|lorsque|und|oder|aber|sondern|denn|weil|dass|wenn|obwohl|y|o|pero|sino|porque|cuando|e|ma|perché|"
    "quando|mas|en|maar|omdat|dat|wanneer"
)
_CLOSING = r"[\"'”’»)\]]*"
_BORDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:[!?…;:]|(?<=[^\W\d_]{{5}})\.){_CLOSING}\s+|[。！？；：]",
        rf"[,،]{_CLOSING}\s+|[，、]|\s[-–—]+\s+|—",
        rf"(?<!\s)\s+(?=(?:{_CONJUNCTIONS})\s)",
        r"(?<![\d\s])\s+(?=[^\d\s])",
        r"(?<![\d\s])\s+(?=\S)|(?<!\s)\s+(?=[^\d\s])",
        rf"(?<=[{UNSPACED}{MARKS}])(?=[{UNSPACED}])(?![{MARKS}])",
    )
)
"""Where pieces may end, the best first: after a clause, after a part of one, before a conjunction, at a space between
words, at a space beside a number, between characters of scripts without spaces."""
_FINAL_MARKS = ".!?…。！？"
_MARKS = _FINAL_MARKS + ",;:،，、；：-–—"
_CAPITAL_NOUNS = ("de", "lb")
"""Languages with capitals in the middle of sentences."""


def cut_sentence(
    sentence: str, count_tokens: Callable[[str], int], limit: int, patterns: Sequence[str] = ()
) -> list[Span]:
    """Return the spans of the pieces of a sentence, without the white space between them.

    Pieces have at most `limit` tokens, unless a word has more. A part that is too long is cut at the best border in
    its middle third, or else at the one nearest to its middle. No word, number or protected text is cut. patterns:
    of the user, see `find_protected`.
    """
    borders = _find_borders(sentence, patterns)
    positions = [position for position, _ in borders]
    density = count_tokens(sentence) / max(len(sentence), 1)

    def cut(start: int, end: int) -> list[Span]:
        def judge(border: tuple[int, int]) -> tuple[bool, int, float]:
            distance = abs(border[0] - (start + end) / 2)
            is_far = distance > (end - start) / 6
            return is_far, 0 if is_far else border[1], distance

        # Tokens are estimated first: counting those of all parts would read a long text many times.
        if density * (end - start) <= 2 * limit and count_tokens(sentence[start:end]) <= limit:
            return [(start, end)]
        inside = borders[bisect_right(positions, start) : bisect_left(positions, end)]
        inside = [(at, rank) for at, rank in inside if has_words(sentence[start:at]) and has_words(sentence[at:end])]
        if not inside:
            return [(start, end)]
        middle = min(inside, key=judge)[0]
        return [*cut(start, middle), *cut(middle, end)]

    pieces = cut(0, len(sentence))
    return [(start, start + len(sentence[start:end].rstrip())) for start, end in pieces]


def _find_borders(sentence: str, patterns: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places where a piece may begin, in order, and the rank of each among `_BORDERS`."""
    protected = [part.span for part in find_protected(sentence, extra=patterns)]
    inside = {place for start, end in protected for place in range(start + 1, end)}
    ranks: dict[int, int] = {}
    for rank, pattern in enumerate(_BORDERS):
        for match in pattern.finditer(sentence):
            ranks.setdefault(match.end(), rank)
    return sorted((position, rank) for position, rank in ranks.items() if position not in inside)


def divide_document(document: Document, pieces: Sequence[Sequence[Span]]) -> Document:
    """Return a document of the same text whose sentences are these pieces of each sentence."""
    sentences, gaps, gap = list[str](), list[str](), ""
    for sentence, before, spans in zip(document.sentences, document.gaps, pieces, strict=False):
        gap, position = gap + before, 0
        for start, end in spans:
            gaps.append(gap + sentence[position:start])
            sentences.append(sentence[start:end])
            gap, position = "", end
        gap = sentence[position:]
    return Document(tuple(sentences), (*gaps, gap + document.gaps[-1]), document.id)


def _find_last_protected(text: str) -> int:
    """Return where the last protected text ends."""
    return max((part.span[1] for part in find_protected(text)), default=0)


def join_pieces(sources: Sequence[str], targets: Sequence[str], language: str) -> tuple[str, list[Span]]:
    """Return the translation of a sentence from those of its pieces, and where these are in it.

    A model begins and ends each piece like a sentence. So within the sentence a piece ends on the mark of its source,
    and begins with a small letter where its source does, except in a language with capitals of nouns.
    """
    text, spans, may_lower = "", list[Span](), False
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if may_lower and source[:1].islower() and target[:1].isupper() and not target[1:2].isupper():
            first_word = re.split(r"\W", target, maxsplit=1)[0]
            if first_word != "I" and first_word not in source:
                target = target[0].lower() + target[1:]
        may_lower = source[-1:] not in _FINAL_MARKS and base_language(language) not in _CAPITAL_NOUNS
        if number + 1 < len(sources) and source[-1:] not in _FINAL_MARKS:
            mark = re.search(rf"\s*[{re.escape(_MARKS)}]?\Z", source)
            assert mark is not None  # it also matches nothing
            end = max(len(target.rstrip(_MARKS + " ")), _find_last_protected(target))  # :smile: ends with no mark
            target = target[:end] + (mark[0] if target and mark.end() > _find_last_protected(source) else "")
        space = unwrap_lines(f"{text[-1:]}\n{target[:1]}")[1:-1] if text and target else ""
        spans.append((len(text + space), len(text + space + target)))
        text += space + target
    return text, spans
