"""Missing text: sentences of which a part seems not to be translated, by the links of their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from docmt.decoding.long_sentences import Align, Key, Rows, make_translation
from docmt.decoding.translation_results import PreparedDocument, Translation
from docmt.documents.words import find_words, has_words

_LEAST_WORDS, _LEAST_RUN = 10, 7
"""Fewest words of a sentence that is checked, and of a run without links that counts as missing."""
_DOUBTFUL = 1.0
"""Target tokens for a source token below which the links of a sentence are read. These take time."""
_SHORT = 1 / 3
"""Target words for a source word below which text is missing whatever the links are."""


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
