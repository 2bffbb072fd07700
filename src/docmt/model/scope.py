"""What systems say of sentences: the boundary tokens around them, what an attention sees, what is read together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

WORDS = "w"
MARKS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
"""The ids of marks, which are the same in all vocabularies."""


@dataclass(frozen=True)
class BoundaryTokens:
    """Which marks, by their ids, stand around the words of a sentence; families differ in it.

    A source sentence is `source_opens w .. source_closes`; decoder input is `target_opens w ..`, and `</s>` if
    `target_closes`. Labels are the words and `</s>`; the rest is given.
    """

    source_opens: tuple[int, ...] = (MARKS["<s>"],)
    source_closes: tuple[int, ...] = (MARKS["</s>"],)
    target_opens: tuple[int, ...] = (MARKS["<s>"],)
    target_closes: bool = True
    """decoder input has the `</s>` of each sentence as well, for those after it to look at"""
    goes_on: bool = True
    """what follows `</s>` (the next `<s>`, or the end) is a label as well"""
    joined: bool = False
    """between two sentences of an instance is one mark, `<s>`, which ends one and opens the other, and `</s>` ends the
    last: the source is `w .. <s> w .. </s>`, and so are the labels; decoder input is `</s> w .. <s> w ..`"""

    @classmethod
    def written(
        cls,
        source: str,
        target: str,
        others: Mapping[str, Sequence[int]] | None = None,
        *,
        goes_on: bool = False,
        joined: bool = False,
    ) -> BoundaryTokens:
        """From sentences such as `<s> w </s>`, in which w stands for the words; others: marks by further names."""
        known = {**{name: (id,) for name, id in MARKS.items()}, **(others or {})}
        before, after = _around(source, known)
        opens, closes = _around(target, known)
        return cls(before, after, opens, bool(closes), goes_on, joined)

    @property
    def opens_alike(self) -> bool:
        """Target sentences are opened by `<s>` alone, which is never said inside of one."""
        return self.target_opens == (MARKS["<s>"],)

    @property
    def most_marks(self) -> int:
        """The marks of a sentence on the side where it has more of them."""
        source, target = (sum(self.marks(side)) for side in ("source", "target"))
        return max(source, target)

    def marks(self, side: Literal["source", "target"]) -> tuple[int, int]:
        """How many marks open and close each sentence of the source, or of the decoder input."""
        if side == "source":
            return len(self.source_opens), len(self.source_closes)
        return len(self.target_opens), int(self.target_closes)


def _around(sentence: str, known: Mapping[str, Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of the marks before and after the words."""
    names = sentence.split()
    place = names.index(WORDS)
    before, after = (tuple(id for name in part for id in known[name]) for part in (names[:place], names[place + 1 :]))
    return before, after


@dataclass(frozen=True)
class AttentionScope:
    """Which part of which memory the queries of a sentence see.

    Attentions of equal scope (depth aside) share spans, patterns and, in decoding, one cache; so systems say what their
    attentions see, and nothing else needs to know which system it is.
    """

    memory: str = "self"
    """"self" (the sequence that is computed), or the name of a memory of the system, such as "source" """
    part: Literal["sentence", "document", "before"] = "sentence"
    """the sentence (of a memory: the one that belongs to it), the whole document, or a sentence `before`"""
    back: int = 0
    """with "before": the sentence that many places back in its document; where there is none, nothing is seen"""
    marks: tuple[int, int] = (0, 0)
    """with "before": how many tokens at the begin and at the end of that sentence, its marks, are not seen"""
    depth: int | None = None
    """of a memory that has states of several layers: which layer's, from 0; None: its only ones"""
    causal: bool = False
    """whether a token sees only those up to itself"""

    @property
    def place(self) -> AttentionScope:
        """The same at any depth: what decides which tokens see which."""
        return self if self.depth is None else replace(self, depth=None)


@dataclass(frozen=True)
class ContextSpec:
    """Which sentences a system reads together; instances are cut by it, in training and in translation alike."""

    sentences: int | None = None
    """most sentences of an instance; None: as many as the limits of the model allow"""
    before: int = 0
    """sentences of the source before the first one that is translated: they are read, not translated"""
    joined: bool = False
    """those before are read as one sequence, so that positions must reach through all of them"""
    windows: bool = False
    """an instance ends at every sentence, so that instances overlap; otherwise they lie end to end"""
    padding_windows: bool = False
    """with windows, in training: further, shorter ones at the end of each document"""
    shown: int = 0
    """sentences of the target before the first one that is translated: they are decoder input, too, without labels"""
    drafts: bool = False
    """a first translation of every sentence that is read, by a model of single sentences"""
    references: bool = False
    """in training also the true translation of every sentence that is read"""
