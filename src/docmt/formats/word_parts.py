"""Pairs around a part of a word: H<sub>2</sub>O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from docmt.documents.words import Span

_Stack = tuple[str, ...]


def split_words(
    text: str,
    words: Sequence[Span],
    stacks: Sequence[_Stack],
    translation: str,
    target: Sequence[Span],
    target_stacks: Sequence[_Stack],
    aligned: Sequence[int | None],
) -> tuple[list[Span], list[_Stack]]:
    """Return the target words with their stacks, cut where the source word has the same letters around a border.

    stacks: ids of the pairs around each source character. aligned: index of the source word of each target word.
    """
    spans: list[Span] = []
    new: list[_Stack] = []
    for (start, end), stack, index in zip(target, target_stacks, aligned, strict=True):
        letters = [stack] * (end - start)
        if index is not None:
            first, last = words[index]
            inner = stacks[first:last]
            ids = {id for each in inner for id in each}
            parts = _map_letters(text[first:last], inner, translation[start:end]) if len(set(inner)) > 1 else []
            if (
                parts and ids.issuperset(stack) and ids == {id for each in parts for id in each}
            ):  # none is lost, none is added
                letters = parts
        for each, group in groupby(letters):
            size = len(list(group))
            spans.append((start, start + size))
            new.append(each)
            start += size
    return spans, new


def _map_letters(word: str, stacks: Sequence[_Stack], other: str) -> list[_Stack]:
    """Return the stack of each letter of another word; the letters between equal beginnings and ends have one."""
    before = _count_equal(word, other)
    after = _count_equal(word[before:][::-1], other[before:][::-1])
    middle = stacks[before : len(stacks) - after] or stacks[max(0, before - 1) : before + 1]
    inner = [max(middle, key=len)] * (len(other) - before - after)
    return [*stacks[:before], *inner, *stacks[len(stacks) - after :]]


def _count_equal(word: str, other: str) -> int:
    """Return the length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
