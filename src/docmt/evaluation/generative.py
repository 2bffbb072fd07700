"""Generative accuracy: does a translation have the form that its context requires?

After ctxPro (Wicks and Post 2023, "Identifying Context-Dependent Translations for Evaluation Set Production"): the
sentence is translated with its context, and right if the expected form stands in its translation as a word, whatever
its case. So a translation that says it in other words is wrong, and accuracies compare systems but do not say how
often one is right.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.evaluation.asking import Each, OnItem, asked, together
from docmt.evaluation.contrastive import MISCOUNTED, RIGHT, UNANSWERED, WRONG, ContrastiveResult, Said, result_of
from docmt.evaluation.suite_items import Item


class _Sentence(Protocol):
    @property
    def target(self) -> str: ...


class _Translated(Protocol):
    @property
    def sentences(self) -> Sequence[_Sentence]: ...

    @property
    def miscounted(self) -> Sequence[tuple[int, int]]: ...


class Generator(Protocol):
    """What translates: a `docmt.Translator`."""

    def translate_all(self, documents: Sequence[Document | str]) -> Sequence[_Translated]:
        """The translations of documents, sentence by sentence."""
        ...


def evaluate_translations(
    translator: Generator,
    items: Sequence[Item],
    on_item: OnItem = lambda number, translation: None,
    each: Each = together,
) -> ContrastiveResult:
    """Translates every item, its context before it, and counts how often the expected form is there.

    each: what does not raise the DocmtError of an item leaves it unanswered, which is wrong.
    """

    def translations(group: Sequence[Item]) -> Sequence[_Translated]:
        return translator.translate_all([Document.from_sentences(item.source, id=item.id) for item in group])

    answers, said = "", []
    for number, item, made in asked(items, translations, each):
        on_item(number, made)
        answers += _answer(item, made)
        text = None if isinstance(made, DocmtError) else made.sentences[item.sentence].target
        said.append(Said(item.id, item.expected, text))
    return replace(result_of(items, answers), said=tuple(said))


def _answer(item: Item, translation: _Translated | DocmtError) -> str:
    """Where the model gave another number of sentences for several, nobody knows which of them is the one asked for."""
    if isinstance(translation, DocmtError):
        return UNANSWERED
    if any(first <= item.sentence < last and last - first > 1 for first, last in translation.miscounted):
        return MISCOUNTED
    return RIGHT if has_form(translation.sentences[item.sentence].target, item.expected) else WRONG


def has_form(sentence: str, form: str) -> bool:
    """Whether the form stands in the sentence as a word of its own, in any case, with any apostrophe.

    An elided form ("t'") stands before a word without a blank. Accents are the same whether they are written with
    their letter or after it (Unicode's NFC), and blanks around the form are none of it.
    """
    plain, wanted = (unicodedata.normalize("NFC", text).replace("’", "'").strip() for text in (sentence, form))
    before = r"(?<!\w)" if re.match(r"\w", wanted) else ""
    after = r"(?!\w)" if re.search(r"\w$", wanted) else ""
    return re.search(before + re.escape(wanted) + after, plain, re.IGNORECASE) is not None
