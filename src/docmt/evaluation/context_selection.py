"""Selection of the training data where a model gains most from context.

MaxPCXMI (Mąka et al. 2025): the gain of a sentence is the largest gain in log-probability of one of its tokens, with
against without context. Few tokens need context, and a mean over the sentence would hide them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docmt.documents import ParallelDocument
from docmt.evaluation.context_usage import score_with_and_without_context

if TYPE_CHECKING:
    from docmt.decoding import TranslatedSentence, Translator


@dataclass(frozen=True, order=True)
class TokenGain:
    """The largest gain from context of a token of a sentence."""

    gain: float
    """nats"""
    token: int
    """id of the token"""
    document: int
    """number of the document, from 0"""
    sentence: int
    """number in the document, from 0"""


def measure_token_gains(
    translator: Translator, documents: Sequence[tuple[int, ParallelDocument]], before: int
) -> list[list[TokenGain]]:
    """Return the gains of the sentences of each document, but for the first and those without tokens.

    A sentence is scored at the end of the document that `cut_selected` would make of it: with the context that training
    would see, and with that context hidden. documents: each with its number. Raises DocmtError as `sentence_gains`.
    """
    positions = [(number, document, i) for number, document in documents for i in range(1, len(document))]
    windows = [_cut(document, number, i, before) for number, document, i in positions]
    gains: dict[int, list[TokenGain]] = {number: [] for number, _ in documents}
    scores = score_with_and_without_context(translator, windows)
    for (number, _, i), (visible, hidden) in zip(positions, scores, strict=True):
        if best := largest_token_gain(visible.sentences[-1], hidden.sentences[-1]):
            gains[number].append(TokenGain(*best, number, i))
    return list(gains.values())


def largest_token_gain(visible: TranslatedSentence, hidden: TranslatedSentence) -> tuple[float, int] | None:
    """Return the largest gain of a token of a sentence (nats) and its id; None for a sentence without tokens.

    visible, hidden: the sentence scored with and without context.
    """
    pairs = zip(visible.token_scores, hidden.token_scores, strict=True)
    return max(
        ((one - other, token) for (one, other), token in zip(pairs, visible.token_ids, strict=True)), default=None
    )


def cut_selected(
    documents: Sequence[ParallelDocument], selected: Sequence[TokenGain], before: int
) -> Iterator[ParallelDocument]:
    """Yield the selected sentences, in order, each at the end of a document with at most `before` earlier sentences."""
    for document, number in sorted((each.document, each.sentence) for each in selected):
        yield _cut(documents[document], document, number, before)


def _cut(document: ParallelDocument, document_number: int, number: int, before: int) -> ParallelDocument:
    part = slice(max(number - before, 0), number + 1)
    id = f"{document.id or document_number + 1}-{number + 1}"
    return ParallelDocument(id, document.source[part], document.target[part])
