"""What an attention can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sight:
    """Which part of which memory the queries of a sentence see.

    Attentions of equal sight share spans, patterns and, in decoding, one cache; so systems say what their attentions
    see, and nothing else needs to know which system it is.
    """

    memory: str = "self"
    """"self" (the sequence that is computed), or the name of a memory of the system, such as "source" """
    part: Literal["sentence", "document"] = "sentence"
    """the sentence (of a memory: the one that belongs to it) or the whole document"""
    causal: bool = False
    """whether a token sees only those up to itself"""
