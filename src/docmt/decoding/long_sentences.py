"""Long sentences: how they are cut into pieces, how translations of pieces are joined, and whether a part is missing.

The model reads pieces as sentences. All others see one sentence with one translation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Protocol

from docmt.core.errors import DocmtError
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation_results import PartialTranslation, PreparedDocument, TranslatedSentence, Translation
from docmt.documents.document import Document
from docmt.documents.protected_text import Protection, find_protected
from docmt.documents.segmentation import base_language, unwrap_lines
from docmt.documents.words import MARKS, UNSPACED, Span, WordLink, find_words, has_words
from docmt.terms.matching import TermMatcher
from docmt.text import Side, Tokenizer

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
"""Borders of pieces, the best first: after a clause, after a part of one, before a conjunction, at a space between
words, at a space beside a number, between characters of scripts without spaces."""
_FINAL_MARKS = ".!?…。！？"
_MARKS = _FINAL_MARKS + ",;:،，、；：-–—"
_CAPITAL_NOUNS = ("de", "lb")
"""Languages with capitals in the middle of sentences."""
_LEAST_WORDS, _LEAST_RUN = 10, 7
"""Fewest words of a sentence that is checked, and of a run without links that counts as missing."""
_DOUBTFUL = 1.0
"""Target tokens for a source token below which the links of a sentence are read. These take time."""
_SHORT = 1 / 3
"""Target words for a source word below which text is missing whatever the links are."""


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


class PieceTranslator(Protocol):
    """The part of `docmt.Translator` that is used here."""

    search: SearchConfig
    languages: tuple[str, str]
    protection: Protection | None
    patterns: tuple[str, ...] | None
    tokenizer: Tokenizer
    terms: TermMatcher | None
    consistent: bool

    def encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]: ...
    def prepare(self, document: Document) -> PreparedDocument: ...


def cut_by_tokens(translator: PieceTranslator, sentence: str, limit: int) -> list[Span]:
    """Return the spans of pieces of at most so many tokens."""
    patterns = translator.patterns or ()
    return cut_sentence(sentence, lambda text: len(translator.encode([text], "source")[0]), limit, patterns)


def cut_long_sentences(translator: PieceTranslator, prepared: PreparedDocument) -> PreparedDocument:
    """Return a prepared document with its long sentences in pieces. Published searches read them whole."""
    limit = translator.search.sentence_tokens
    if translator.search.implementation != "docmt" or max(map(len, prepared.words), default=0) <= limit:
        return prepared
    pieces = [
        cut_by_tokens(translator, sentence, limit) if len(ids) > limit else [(0, len(sentence))]
        for sentence, ids in zip(prepared.document.sentences, prepared.words, strict=True)
    ]
    if max(map(len, pieces)) == 1:
        return prepared
    divided = translator.prepare(divide_document(prepared.whole, pieces))
    numbers = [number for number, spans in enumerate(pieces) for _ in spans]
    return replace(divided, whole=prepared.whole, numbers=numbers)


Key = tuple[int, int]
"""Numbers of a document and of a sentence that the model reads."""
Rows = list[TranslatedSentence]
"""The pieces of a sentence."""
Links = dict[int, tuple[WordLink, ...]]
"""The links of sentences by their numbers."""
Translate = Callable[[Sequence[PreparedDocument]], list[Translation]]
"""Returns translations of what the model reads."""
Align = Callable[[Sequence[Translation], Sequence[Collection[int]]], Sequence[Links]]
"""Returns the links of some sentences of each translation."""


def make_translation(sentences: Sequence[TranslatedSentence]) -> Translation:
    """Return sentences as one translation."""
    return Translation(Document.from_sentences([each.target for each in sentences]), tuple(sentences), 0.0)


def place_sentences(
    source: Document, rows: Sequence[TranslatedSentence]
) -> tuple[Document, tuple[TranslatedSentence, ...]]:
    """Return the translation of a document by its sentences, and these with the places that they have there."""
    target = source.replace_sentences([row.target for row in rows])
    spans = zip(rows, source.spans(), target.spans(), strict=True)
    return target, tuple(replace(row, source_span=one, target_span=other) for row, one, other in spans)


def join_whole(
    language: str,
    source: PreparedDocument,
    translation: Translation,
    changed: Mapping[int, Rows],
    missing: Collection[int],
) -> Translation:
    """Return the translation of whole sentences. changed: other translations of what the model read, by number."""
    if len(source.whole) == len(translation) and not (changed or missing or source.matches):
        return translation
    rows: list[Rows] = [[] for _ in source.whole.sentences]
    for number, sentence in enumerate(translation):
        rows[source.numbers[number]] += changed.get(number, [sentence])
    joined = [_join_rows(*pair, language) for pair in zip(source.whole.sentences, rows, strict=True)]
    for number, match in source.matches.items():
        if match.kind == "conflict":
            joined[number] = replace(joined[number], memory="conflict")
    target, sentences = place_sentences(source.whole, joined)

    def find_whole(numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(source.numbers[number] for number in numbers))

    return replace(
        translation,
        document=target,
        sentences=sentences,
        miscounted=tuple(
            (source.numbers[first], source.numbers[last - 1] + 1) for first, last in translation.miscounted
        ),
        at_limit=find_whole(number for number in translation.at_limit if number not in changed or number in missing),
        overlong=find_whole(translation.overlong),
        missing=find_whole(sorted(missing)),
        alternatives=tuple(
            join_whole(language, source, each, source.list_given(each), ()) for each in translation.alternatives
        ),
    )


def _join_rows(source: str, rows: Rows, language: str) -> TranslatedSentence:
    """Return the translation of a sentence from those of its pieces."""
    if len(rows) == 1:
        return rows[0]
    target, targets = join_pieces([each.source for each in rows], [each.target for each in rows], language)
    sources, position = list[Span](), 0
    for each in rows:
        start = source.index(each.source, position)
        position = start + len(each.source)
        sources.append((start, position))
    return TranslatedSentence(
        source,
        target,
        sum(each.score for each in rows),
        *((0, len(source)), (0, len(target))),
        rank_score=fmean(each.rank_score for each in rows),
        tokens=sum(each.tokens for each in rows),
        pieces=tuple(zip(sources, targets, strict=True)),
        terms=tuple(
            replace(use, span=_move(use.span, start))
            for each, (start, _) in zip(rows, sources, strict=True)
            for use in each.terms
        ),
    )


def align_selected(align: Align, translations: Sequence[Any], sentences: Sequence[Collection[int]] | None) -> list[Any]:
    """Return translations, or parts, with the links of these sentences; see `Translator.align`."""
    whole: list[Any] = [each.translation if isinstance(each, PartialTranslation) else each for each in translations]
    wanted = [range(len(each or ())) for each in whole] if sentences is None else list(map(set, sentences))
    if len(wanted) != len(whole):
        raise DocmtError(
            f"there are {len(whole)} translations but {len(wanted)} lists of sentences. Give one for each."
        )
    selected = [index for index, each in enumerate(whole) if each and wanted[index]]
    for index in selected:
        if not 0 <= min(wanted[index]) <= max(wanted[index]) < len(whole[index]):
            raise DocmtError(
                f"translation {index + 1} has {len(whole[index])} sentences, numbered from 0, but sentences has "
                f"{sorted(wanted[index])}. Name existing ones."
            )
    # A memory puts codes where it has them.
    placed = [{n for n, each in enumerate(whole[index]) if each.memory and each.alignment} for index in selected]
    divided = [_divide_pieces(whole[n], set(wanted[n]) - each) for n, each in zip(selected, placed, strict=True)]
    links = align([made for made, _ in divided], [list(origins) for _, origins in divided])
    joined = [_join_links(origins, each) for (_, origins), each in zip(divided, links, strict=True)]
    aligned = {index: whole[index].with_links(each) for index, each in zip(selected, joined, strict=True)}
    return [
        replace(each, translation=aligned[index])
        if index in aligned and isinstance(each, PartialTranslation)
        else aligned.get(index, each)
        for index, each in enumerate(translations)
    ]


Origins = dict[int, tuple[int, int, int]]
"""For each piece to align, the number of its whole sentence, and where it begins in the source and in the target."""


def _divide_pieces(translation: Translation, wanted: Collection[int]) -> tuple[Translation, Origins]:
    """Return a translation as the model reads it in one pass for alignment: its pieces are sentences."""
    rows, origins = list[TranslatedSentence](), Origins()
    for number, sentence in enumerate(translation):
        for one, other in sentence.pieces or [((0, len(sentence.source)), (0, len(sentence.target)))]:
            if number in wanted:
                origins[len(rows)] = number, one[0], other[0]
            texts = sentence.source[slice(*one)], sentence.target[slice(*other)]
            rows.append(replace(sentence, source=texts[0], target=texts[1], pieces=()) if sentence.pieces else sentence)
    return make_translation(rows), origins


def _join_links(origins: Origins, links: Links) -> Links:
    """Return the links of whole sentences from those of their pieces."""
    joined: Links = {}
    for row, (number, source, target) in origins.items():
        moved = (
            replace(link, source=_move(link.source, source), target=_move(link.target, target)) for link in links[row]
        )
        joined[number] = (*joined.get(number, ()), *moved)
    return joined


def _move(span: Span, offset: int) -> Span:
    return span[0] + offset, span[1] + offset


def find_doubtful(sources: Sequence[PreparedDocument], rows: Mapping[Key, Rows]) -> dict[Key, Rows]:
    """Return the sentences whose translation is so short that text may be missing."""
    return {
        (document, number): pieces
        for (document, number), pieces in rows.items()
        if _LEAST_WORDS <= len(sources[document].words[number]) > sum(each.tokens for each in pieces) / _DOUBTFUL
    }


def count_missing(rows: Mapping[Key, Rows], align: Align) -> dict[Key, int]:
    """Return how many words of sentences seem not to be translated: a long run without links, or nearly all."""
    texts = [make_translation(each) for each in rows.values()]
    links = align(texts, [range(len(each)) for each in texts]) if texts else []
    aligned = [each.with_links(by_number) for each, by_number in zip(texts, links, strict=True)]
    counts = zip(rows, map(_find_missing, aligned), strict=True)
    return {key: count for key, count in counts if count}


def _find_missing(translation: Translation) -> int:
    """Return the missing words of aligned pieces of a sentence."""
    linked, size, words = list[bool](), 0, 0
    for sentence in translation:
        targets = {link.source for link in sentence.alignment or ()}
        spans = [span for span in find_words(sentence.source) if has_words(sentence.source[slice(*span)])]
        linked += [span in targets for span in spans]
        size += sum(has_words(sentence.target[slice(*span)]) for span in find_words(sentence.target))
    words = len(linked)
    if words < _LEAST_WORDS:
        return 0
    if size < _SHORT * words:
        return words - size
    ends = [-1, *(number for number, each in enumerate(linked) if each), words]
    run = max(end - start - 1 for start, end in pairwise(ends))
    # Characters of scripts without spaces are words here, more than other languages have.
    return run if run * min(1.0, size / max(words - run, 1)) >= _LEAST_RUN else 0
