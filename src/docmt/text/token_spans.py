"""The characters of each token of a sentence."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby

from docmt.documents.words import INVISIBLE, Span
from docmt.text.tokenizer import Side, Tokenizer

_SLACK = 2
"""Characters that a tokenizer may drop before a token, besides those of tokens that are not in the text."""


def locate_tokens(
    tokenizer: Tokenizer, sentences: Sequence[str], encoded: Sequence[Sequence[int]], side: Side
) -> list[list[Span]]:
    """Return the characters of every token of sentences, which `encoded` has as word ids.

    Tokens are searched one after the other, without regard to case, compatibility forms and white space. Those that are
    not in the text (unknown words, single bytes, changes by the tokenizer) share the characters between their
    neighbours.
    """
    distinct = sorted({id for ids in encoded for id in ids})
    texts = dict(zip(distinct, tokenizer.decode_batch([[id] for id in distinct], side), strict=True))
    return [
        _locate([_fold(texts[id])[0] for id in ids], sentence) for sentence, ids in zip(sentences, encoded, strict=True)
    ]


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the characters that count, and the position in the text of each of them."""
    pairs = [
        (folded, position)
        for position, character in enumerate(text)
        for folded in unicodedata.normalize("NFKD", character).casefold()
        if not folded.isspace() and folded not in INVISIBLE
    ]
    return "".join(folded for folded, _ in pairs), [position for _, position in pairs]


def _locate(tokens: Sequence[str], sentence: str) -> list[Span]:
    """Return the span of each folded token."""
    text, positions = _fold(sentence)
    starts: list[int | None] = []
    cursor, slack = 0, _SLACK
    for token in tokens:
        position = text.find(token, cursor, cursor + slack + len(token)) if token else -1
        starts.append(position if position >= 0 else None)
        cursor, slack = (position + len(token), _SLACK) if position >= 0 else (cursor, slack + max(len(token), 1))
    ranges: list[Span] = []
    for is_missing, group in groupby(range(len(tokens)), lambda number: starts[number] is None):
        numbers = list(group)
        if is_missing:
            end = next((start for start in starts[numbers[-1] :] if start is not None), len(text))
            ranges += _share(ranges[-1][1] if ranges else 0, end, len(numbers))
        else:
            ranges += [(start, start + len(tokens[n])) for n in numbers if (start := starts[n]) is not None]
    return [_unfold(start, end, positions, len(sentence)) for start, end in ranges]


def _share(start: int, end: int, count: int) -> list[Span]:
    """Cut start .. end - 1 into `count` parts of nearly equal size; some overlap if there are too few characters."""
    size = end - start
    cuts = [start + number * size // count for number in range(count)]
    return [(cut, min(max(start + (number + 1) * size // count, cut + 1), end)) for number, cut in enumerate(cuts)]


def _unfold(start: int, end: int, positions: Sequence[int], length: int) -> Span:
    """Return the span in the sentence of a range of folded characters, empty for an empty range."""
    if start < end:
        return positions[start], positions[end - 1] + 1
    position = positions[start] if start < len(positions) else length
    return position, position
