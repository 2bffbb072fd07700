"""The one seam between a full pass and a decoding step: what an attention sees of what.

Notation: T packed tokens, S sentences, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from docmt.model.kernels import Pattern
from docmt.model.packed import Packed
from docmt.model.sight import Sight
from docmt.model.spans import Spans

if TYPE_CHECKING:
    from docmt.model.attention import Attention


@dataclass(frozen=True, eq=False)
class Memory:
    """States that attentions can look at, computed once: sentence i of it belongs to source sentence i.

    `states` [T, d]; the S spans of `sentences` and the D spans of `documents` (where it has any) lie in it.
    """

    states: Tensor
    sentences: Spans
    documents: Spans | None = None

    @classmethod
    def of(cls, states: Tensor, packed: Packed) -> Memory:
        """The states of a packed sequence."""
        return cls(states, packed.sentences, packed.documents)


class Layout(Protocol):
    """A sequence of sentences and documents: `Packed`, or a `Memory`."""

    @property
    def sentences(self) -> Spans: ...

    @property
    def documents(self) -> Spans | None: ...


class View(Protocol):
    """What an attention is given beside the states it computes from."""

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """What `attention` finds for states x [..., d] in what it sees: [..., d], before its output projection."""
        ...


class FullView:
    """A whole pass at once: training, scoring, encoding. Patterns are worked out once a sight and die with the view."""

    def __init__(
        self, layout: Layout, memories: Mapping[str, Memory] | None = None, aligned: Tensor | None = None
    ) -> None:
        """layout: of what is computed; aligned [S]: the sentence of the memories that belongs to each of its sentences
        (None: the one of the same number)."""
        self.layout, self.memories, self.aligned = layout, memories or {}, aligned
        self._patterns: dict[Sight, Pattern] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        memory, pattern = self.seen(attention.sight, x)
        return attention.over(x, memory, pattern)

    def seen(self, sight: Sight, x: Tensor) -> tuple[Tensor, Pattern]:
        """The states that an attention of this sight looks at, and which of them each token sees."""
        memory = x if sight.memory == "self" else self.memories[sight.memory].states
        pattern = self._patterns.get(sight)
        if pattern is None:
            queries = _spans(self.layout, sight)
            pattern = Pattern(queries, self._keys(sight, queries), sight.causal, len(memory))
            self._patterns[sight] = pattern
        return memory, pattern

    def _keys(self, sight: Sight, queries: Spans) -> Spans:
        if sight.memory == "self":
            return queries
        spans = _spans(self.memories[sight.memory], sight)
        return spans if self.aligned is None or sight.part == "document" else spans.select(self.aligned)


def _spans(layout: Layout, sight: Sight) -> Spans:
    spans = layout.sentences if sight.part == "sentence" else layout.documents
    if spans is None:
        raise ValueError(f"the memory {sight.memory!r} has no documents, but {sight} asks for them")
    return spans
