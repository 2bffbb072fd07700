"""Boundary tokens of sentences, attention scopes, and the context that a system reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

WORDS_PLACEHOLDER = "w"
SPECIAL_TOKEN_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
"""Ids of the special tokens, equal in all vocabularies."""


@dataclass(frozen=True)
class BoundaryTokens:
    """Ids of the tokens that open and close a sentence. Families of checkpoints differ in them.

    A source sentence is `source_opening w .. source_closing`. Decoder input is `target_opening w ..`, with `</s>` if
    `target_has_end`. Labels are the words and `</s>`, and more with `predicts_boundary` or `joined`. Translation
    supplies the other boundary tokens.
    """

    source_opening: tuple[int, ...] = (SPECIAL_TOKEN_IDS["<s>"],)
    source_closing: tuple[int, ...] = (SPECIAL_TOKEN_IDS["</s>"],)
    target_opening: tuple[int, ...] = (SPECIAL_TOKEN_IDS["<s>"],)
    target_has_end: bool = True
    """decoder input contains the `</s>` of each sentence, visible to later sentences"""
    predicts_boundary: bool = True
    """the token after `</s>` (the next `<s>`, or the end of the document) is a label"""
    joined: bool = False
    """a single `<s>` separates two sentences of an instance, and `</s>` ends the last one

    Source and labels are `w .. <s> w .. </s>`. Decoder input is `</s> w .. <s> w ..`."""

    @classmethod
    def parse(
        cls,
        source: str,
        target: str,
        named_tokens: Mapping[str, Sequence[int]] | None = None,
        *,
        predicts_boundary: bool = False,
        joined: bool = False,
    ) -> BoundaryTokens:
        """Parse templates such as `<s> w </s>`, in which w stands for the words.

        named_tokens: ids of further names in the templates.
        """
        token_ids = {**{name: (id,) for name, id in SPECIAL_TOKEN_IDS.items()}, **(named_tokens or {})}
        before, after = _parse_template(source, token_ids)
        opening, closing = _parse_template(target, token_ids)
        return cls(before, after, opening, bool(closing), predicts_boundary, joined)

    @property
    def target_starts_with_bos(self) -> bool:
        """True if `<s>` alone opens target sentences. It never occurs inside one."""
        return self.target_opening == (SPECIAL_TOKEN_IDS["<s>"],)

    @property
    def max_per_sentence(self) -> int:
        """Number of boundary tokens of a sentence, on the side that has more."""
        source, target = (sum(self.counts(side)) for side in ("source", "target"))
        return max(source, target)

    def counts(self, side: Literal["source", "target"]) -> tuple[int, int]:
        """Return how many tokens open and close a sentence of the source, or of the decoder input."""
        if side == "source":
            return len(self.source_opening), len(self.source_closing)
        return len(self.target_opening), int(self.target_has_end)


def _parse_template(sentence: str, token_ids: Mapping[str, Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token ids before and after the words."""
    names = sentence.split()
    index = names.index(WORDS_PLACEHOLDER)
    before, after = (
        tuple(id for name in part for id in token_ids[name]) for part in (names[:index], names[index + 1 :])
    )
    return before, after


@dataclass(frozen=True)
class AttentionScope:
    """The part of a memory that the queries of a sentence see.

    Attentions of equal scope (their layer aside) share spans, patterns and, in decoding, one cache. Systems declare
    scopes, so nothing else needs to know which system it is.
    """

    memory: str = "self"
    """"self" (the computed sequence itself), or the name of a memory of the system, such as "source" """
    extent: Literal["sentence", "document", "neighbour", "preceding", "recent"] = "sentence"
    """the (aligned) sentence, the whole document, another sentence of the document, the `offset` sentences before as
    one span (preceding, of another memory than self), or these and the sentence itself (recent)"""
    offset: int = 0
    """of a neighbour: how many sentences before, or after if negative; nothing is seen outside the document.
    Of the sequence itself: each of the `offset` sentences before, separately"""
    trim: tuple[int, int] = (0, 0)
    """of a neighbour: hidden boundary tokens at the start and end of that sentence"""
    layer: int | None = None
    """index of the memory's layer, from 0; None: the memory has one layer"""
    causal: bool = False
    """a token sees no later tokens"""

    @property
    def sees_each_preceding(self) -> bool:
        """True if each of the `offset` sentences before, of the sequence itself, is attended to separately."""
        return self.memory == "self" and self.extent == "neighbour"

    @property
    def without_layer(self) -> AttentionScope:
        """The scope for any layer. It decides which tokens see which."""
        return self if self.layer is None else replace(self, layer=None)


@dataclass(frozen=True)
class ContextSpec:
    """The sentences that a system reads together. Training and translation cut instances by it."""

    sentences: int | None = None
    """maximum sentences of an instance; None: limited by the model's options alone"""
    source_context: int = 0
    """preceding source sentences that are read but not translated"""
    joined_context: bool = False
    """preceding sentences are read as one sequence, with positions through all of them"""
    windows: bool = False
    """an instance ends at every sentence and outputs one; otherwise instances output consecutive ranges of sentences"""
    padding_windows: bool = False
    """with windows, in training: additional shorter windows at the end of each document"""
    target_context: int = 0
    """preceding target sentences that are decoder input without labels"""
    drafts: bool = False
    """each source sentence is read with a draft from a sentence model"""
    references: bool = False
    """training also reads the reference translation of each source sentence"""

    @property
    def reads_instances(self) -> bool:
        """True if a sentence is read with as many others as an instance has."""
        return self.sentences is None and not self.source_context and not self.target_context

    @property
    def reads_context(self) -> bool:
        """True if a sentence is read with others of its document."""
        return self.sentences != 1 or self.source_context > 0 or self.target_context > 0
