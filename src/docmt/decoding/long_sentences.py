"""Sentences that are translated in pieces or again: long ones, and those whose translation lacks words or numbers.

The model reads pieces as sentences. All others see one sentence with one translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Protocol

from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation_results import PreparedDocument, TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.numbers import find_number_faults, find_numbers, write_number
from docmt.documents.pieces import cut_sentence, divide_document, join_pieces
from docmt.documents.protected_text import Protection
from docmt.documents.words import Span, WordLink, find_words, has_words
from docmt.text import Side

_LEAST_WORDS, _LEAST_RUN = 10, 7
"""Fewest words of a sentence that is checked, and of a run without links that counts as missing."""
_DOUBTFUL = 1.0
"""Target tokens for a source token below which the links of a sentence are read. These take time."""
_SHORT = 1 / 3
"""Target words for a source word below which text is missing whatever the links are."""


class PieceTranslator(Protocol):
    """What is used of a translator: see `docmt.Translator`."""

    search: SearchConfig
    languages: tuple[str, str]
    protection: Protection | None

    def encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]: ...
    def prepare(self, document: Document) -> PreparedDocument: ...


def _cut(translator: PieceTranslator, sentence: str, limit: int) -> list[Span]:
    """Return the spans of pieces of at most so many tokens."""
    patterns = translator.protection.patterns if translator.protection else ()
    return cut_sentence(sentence, lambda text: len(translator.encode([text], "source")[0]), limit, patterns)


def cut_long_sentences(translator: PieceTranslator, prepared: PreparedDocument) -> PreparedDocument:
    """Return a prepared document with its long sentences in pieces. Published searches read them whole."""
    limit = translator.search.sentence_tokens
    if translator.search.implementation != "docmt" or max(map(len, prepared.words), default=0) <= limit:
        return prepared
    pieces = [
        _cut(translator, sentence, limit) if len(ids) > limit else [(0, len(sentence))]
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


def complete_translations(
    translator: PieceTranslator,
    sources: Sequence[PreparedDocument],
    translations: Sequence[Translation],
    translate: Translate,
    align: Align,
) -> list[Translation]:
    """Return the translations of whole sentences from those of what the model read.

    What seems to lack text is searched again once, in two pieces or more. The translation that lacks less is kept.
    So is what lacks numbers, with these protected. Without protection the model is let alone.
    """
    rows = {
        (document, number): [sentence]
        for document, translation in enumerate(translations)
        if translator.protection and translation.has_finite_scores
        for number, sentence in enumerate(translation)
    }
    doubtful = {
        (document, number): sentences
        for (document, number), sentences in rows.items()
        if _LEAST_WORDS <= len(sources[document].words[number]) > sentences[0].tokens / _DOUBTFUL
    }
    missing, changed = _count_missing(doubtful, align), dict[Key, Rows]()
    if translator.search.implementation == "docmt" and not translator.search.sampling:
        again = _search_in_pieces(translator, [(key, sources[key[0]]) for key in missing], translate)
        counts = _count_missing(again, align)
        changed = {key: pieces for key, pieces in again.items() if counts.get(key, 0) < missing[key]}
        missing = {key: counts.get(key, 0) if key in changed else count for key, count in missing.items()}
        with_numbers, lost = _search_numbers(translator, rows | changed, translate)
        changed, missing = changed | with_numbers, {**missing, **lost}
    by_document: list[tuple[dict[int, Rows], set[int]]] = [({}, set()) for _ in sources]
    for (document, number), sentences in changed.items():
        by_document[document][0][number] = sentences
    for (document, number), count in missing.items():
        by_document[document][1].update([number] if count else [])
    triples = zip(sources, translations, by_document, strict=True)
    return [_join(translator.languages[1], source, made, *each) for source, made, each in triples]


def _search_numbers(
    translator: PieceTranslator, rows: Mapping[Key, Rows], translate: Translate
) -> tuple[dict[Key, Rows], dict[Key, int]]:
    """Return new translations of sentences that lost or invented numbers, and how many numbers still lack.

    Each sentence is translated apart from its document. Its numbers are protected, with the words that have them: IPv4.
    """
    wanted = list[tuple[Key, int, Protection, PreparedDocument]]()
    known = translator.protection.patterns if translator.protection else ()
    for key, sentences in rows.items():
        for part, each in enumerate(sentences):
            lost, invented = find_number_faults(each.source, each.target, translator.languages)
            if lost or invented:
                numbers = map(re.escape, find_numbers(each.source) if invented else lost)
                patterns = [
                    rf"(?:[^\W\d_]+{number}[^\W\d_]*|(?<!\d){number}(?:bn|tn|[mkMK]\b)?)(?!\d)" for number in numbers
                ]
                protection = Protection(translator.languages, [*patterns, *known])
                hidden = Document.from_sentences([protection.hide(each.source)])
                wanted.append((key, part, protection, translator.prepare(hidden)))
    found = translate([prepared for *_, prepared in wanted]) if wanted else []
    changed, missing = dict[Key, Rows](), dict[Key, int]()
    for (key, part, protection, _), translation in zip(wanted, found, strict=True):
        old, new = rows[key][part], translation.sentences[0]
        target = protection.restore(new.target, old.source)
        (lost, invented), faults = (
            find_number_faults(old.source, text, translator.languages) for text in (old.target, target)
        )
        for number in lost:
            target = re.sub(rf"(?<!\d){re.escape(number)}(?!\d)", write_number(number, translator.languages), target)
        is_better = len(faults[0]) <= len(lost) and len(faults[0]) + len(faults[1]) < len(lost) + len(invented)
        if len(translation) == 1 and translation.has_finite_scores and is_better:
            # The tokens were found for another source: it is scored as a text, as pieces are.
            pieces = (((0, len(old.source)), (0, len(target))),)
            changed.setdefault(key, list(rows[key]))[part] = replace(
                new, source=old.source, target=target, pieces=pieces
            )
            lost = faults[0]
        if lost:
            missing[key] = len(lost)
    return changed, missing


def _search_in_pieces(
    translator: PieceTranslator, wanted: Sequence[tuple[Key, PreparedDocument]], translate: Translate
) -> dict[Key, Rows]:
    """Return new translations of sentences in pieces, each apart from its document, where they can be cut."""
    divided = {}
    for key, source in wanted:
        sentence, size = source.document.sentences[key[1]], len(source.words[key[1]])
        pieces = [sentence[slice(*span)] for span in _cut(translator, sentence, size * 2 // 3)]
        if len(pieces) > 1:
            divided[key] = translator.prepare(Document.from_sentences(pieces))
    translations = translate(list(divided.values())) if divided else []
    return {key: list(each.sentences) for key, each in zip(divided, translations, strict=True)}


def _count_missing(rows: Mapping[Key, Rows], align: Align) -> dict[Key, int]:
    """Return how many words of sentences seem not to be translated: a long run without links, or nearly all."""
    texts = [_pair(each) for each in rows.values()]
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


def _pair(sentences: Sequence[TranslatedSentence]) -> Translation:
    """Return sentences as one translation."""
    return Translation(Document.from_sentences([each.target for each in sentences]), tuple(sentences), 0.0)


def _join(
    language: str,
    source: PreparedDocument,
    translation: Translation,
    changed: Mapping[int, Rows],
    missing: Collection[int],
) -> Translation:
    """Return the translation of whole sentences. changed: other translations of what the model read, by number."""
    if len(source.whole) == len(translation) and not changed and not missing:
        return translation
    rows: list[Rows] = [[] for _ in source.whole.sentences]
    for number, sentence in enumerate(translation):
        rows[source.numbers[number]] += changed.get(number, [sentence])
    joined = [_join_rows(*pair, language) for pair in zip(source.whole.sentences, rows, strict=True)]
    target = source.whole.replace_sentences([each.target for each in joined])
    spans = zip(source.whole.spans(), target.spans(), strict=True)
    sentences = [
        replace(each, source_span=one, target_span=other) for each, (one, other) in zip(joined, spans, strict=True)
    ]

    def find_whole(numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(source.numbers[number] for number in numbers))

    scores = [sum(each.score for each in rows) - translation.sentences[n].score for n, rows in changed.items()]
    return replace(
        translation,
        document=target,
        score=translation.score + sum(scores),
        sentences=tuple(sentences),
        miscounted=tuple(
            (source.numbers[first], source.numbers[last - 1] + 1) for first, last in translation.miscounted
        ),
        at_limit=find_whole(number for number in translation.at_limit if number not in changed or number in missing),
        overlong=find_whole(translation.overlong),
        missing=find_whole(sorted(missing)),
        alternatives=tuple(_join(language, source, each, {}, ()) for each in translation.alternatives),
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
    )


def align_pieces(align: Align, wanted: Sequence[tuple[Translation, Collection[int]]]) -> list[Links]:
    """Return the links of the wanted sentences of translations, whose pieces are aligned apart."""
    divided = [_DividedTranslation.divide(*pair) for pair in wanted]
    links = align([each.translation for each in divided], [list(each.origins) for each in divided])
    return [each.join_links(rows) for each, rows in zip(divided, links, strict=True)]


@dataclass(frozen=True)
class _DividedTranslation:
    """A translation as the model reads it in one pass for alignment: pieces are sentences."""

    translation: Translation
    origins: Mapping[int, tuple[int, Span, Span]]
    """for each sentence to align, the number of its whole sentence, and the characters that it is there"""

    @classmethod
    def divide(cls, translation: Translation, wanted: Collection[int]) -> _DividedTranslation:
        """Return a translation with its pieces as sentences."""
        rows, origins, selected = list[TranslatedSentence](), {}, set(wanted)
        for number, sentence in enumerate(translation):
            for one, other in sentence.pieces or [((0, len(sentence.source)), (0, len(sentence.target)))]:
                if number in selected:
                    origins[len(rows)] = number, one, other
                texts = sentence.source[slice(*one)], sentence.target[slice(*other)]
                rows.append(
                    replace(sentence, source=texts[0], target=texts[1], pieces=()) if sentence.pieces else sentence
                )
        return cls(_pair(rows), origins)

    def join_links(self, links: Links) -> Links:
        """Return the links of whole sentences from those of the rows."""
        joined: Links = {}
        for row, (number, (source, _), (target, _)) in self.origins.items():
            moved = tuple(
                replace(
                    link,
                    source=(link.source[0] + source, link.source[1] + source),
                    target=(link.target[0] + target, link.target[1] + target),
                )
                for link in links[row]
            )
            joined[number] = joined.get(number, ()) + moved
        return joined
