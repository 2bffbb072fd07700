"""Lines without any letter (numbers, times, rows of marks), which are no language: they are copied, not translated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from docmt import decoding
from docmt.documents import Document
from docmt.documents.layout import has_letters

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_LINE_START = re.compile(r"\n[^\S\n]*$")
_LINE_END = re.compile(r"[^\S\n]*\n")


def translate_words(translator: Translator, documents: Sequence[Document]) -> list[Translation]:
    """`translate_all` for documents without the sentences that have no letter and a line for themselves.

    These are in the translations as they are, with score 0: no model had a choice. A number within a paragraph is
    translated with it.
    """
    kept = [_to_translate(document) for document in documents]
    words = [document.keep(numbers) for document, numbers in zip(documents, kept, strict=True)]
    translations = translator.translate_all(words)
    return [_with_copies(*each) for each in zip(documents, kept, translations, strict=True)]


def _to_translate(document: Document) -> list[int]:
    # What stands around the document ends a line as well as a line feed does.
    gaps = [f"\n{document.gaps[0]}", *document.gaps[1:-1], f"{document.gaps[-1]}\n"] if document.sentences else []
    around = zip(document.sentences, gaps, gaps[1:], strict=False)
    return [
        number
        for number, (sentence, before, after) in enumerate(around)
        if has_letters(sentence) or not (_LINE_START.search(before) and _LINE_END.match(after))
    ]


def _with_copies(document: Document, kept: Sequence[int], translation: Translation) -> Translation:
    """The translation of the sentences that were kept as one of the document."""
    if len(kept) == len(document.sentences):
        return translation
    own = dict(zip(kept, translation.sentences, strict=True))
    target = document.replace_sentences(
        [own[number].target if number in own else sentence for number, sentence in enumerate(document.sentences)]
    )
    fields = zip(document.sentences, target.sentences, document.spans(), target.spans(), strict=True)
    sentences = [
        replace(own[number], source_span=source_span, target_span=target_span)
        if number in own
        else decoding.TranslatedSentence(source, copy, 0.0, source_span, target_span)
        for number, (source, copy, source_span, target_span) in enumerate(fields)
    ]
    return replace(
        translation,
        document=target,
        sentences=tuple(sentences),
        miscounted=tuple((kept[first], kept[after - 1] + 1) for first, after in translation.miscounted),
        at_limit=tuple(kept[number] for number in translation.at_limit),
        overlong=tuple(kept[number] for number in translation.overlong),
        alternatives=tuple(_with_copies(document, kept, other) for other in translation.alternatives),
    )
