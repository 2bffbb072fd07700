"""What an attention can see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Sight:
    """Which part of which memory the queries of a sentence see.

    Attentions of equal sight (depth aside) share spans, patterns and, in decoding, one cache; so systems say what their
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
    def place(self) -> Sight:
        """The same at any depth: what decides which tokens see which."""
        return self if self.depth is None else replace(self, depth=None)
