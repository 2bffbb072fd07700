"""Selection of the training data where a model gains most from context.

MaxPCXMI (Mąka et al. 2025): the gain of a sentence is the largest gain in log-probability of one of its tokens, with
against without context. Few tokens need context, and a mean over the sentence would hide them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from docmt.documents import ParallelDocument

if TYPE_CHECKING:
    from docmt.decoding import Translation


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


def largest_token_gains(document: int, visible: Translation, hidden: Translation) -> list[TokenGain]:
    """Return the gain of each sentence that has a token; visible and hidden: scored with and without context."""
    gains = []
    for number, (scored, baseline) in enumerate(zip(visible, hidden, strict=True)):
        pairs = zip(scored.token_scores, baseline.token_scores, strict=True)
        tokens = [(one - other, token) for (one, other), token in zip(pairs, scored.token_ids, strict=True)]
        if tokens:
            gains.append(TokenGain(*max(tokens), document, number))
    return gains


def cut_selected(
    documents: Sequence[ParallelDocument], selected: Sequence[TokenGain], before: int
) -> Iterator[ParallelDocument]:
    """Yield the selected sentences, in order, each at the end of a document with at most `before` earlier sentences."""
    for document, number in sorted((each.document, each.sentence) for each in selected):
        whole, first = documents[document], max(number - before, 0)
        id = f"{whole.id or document + 1}-{number + 1}"
        yield ParallelDocument(id, whole.source[first : number + 1], whole.target[first : number + 1])
