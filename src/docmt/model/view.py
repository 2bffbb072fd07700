"""The one seam between a full pass and a decoding step: what an attention sees of what.

Notation: T packed tokens, S sentences, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
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

    `states` [T, d]; the S spans of `sentences` and the D spans of `documents` (where it has any) lie in it. Where
    attentions look at several depths, `layers` has the states of each layer that computed them. `places` [T]: where in
    the packed source the token of each state stands, if sentences of the memory are made of several of the source.
    """

    states: Tensor
    sentences: Spans
    documents: Spans | None = None
    layers: Sequence[Tensor] = ()
    places: Tensor | None = None

    @classmethod
    def of(cls, states: Tensor, packed: Packed) -> Memory:
        """The states of a packed sequence."""
        return cls(states, packed.sentences, packed.documents)

    def at(self, sight: Sight) -> Tensor:
        """The states [T, d] that an attention of this sight looks at."""
        return self.states if sight.depth is None else self.layers[sight.depth]


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

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """What `attention`, whose sight is of a sentence before, finds in each of the k = `sight.back` before.

        x [..., d] asks, and the sequence's own states [..., d] are what is looked at. Returns [..., k, d], oldest
        first and before the output projection, and [..., k] bool: whether there was something to look at.
        """
        ...


class FullView:
    """A whole pass at once: training, scoring, encoding. Patterns are worked out once a sight and die with the view."""

    def __init__(
        self,
        layout: Layout,
        memories: Mapping[str, Memory] | None = None,
        aligned: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> None:
        """layout: of what is computed; aligned [S], documents [D]: the sentence and the document of the memories that
        belong to each of its own (None: those of the same numbers)."""
        self.layout, self.memories, self.aligned, self.documents = layout, memories or {}, aligned, documents
        self._patterns: dict[Sight, Pattern] = {}
        self._before: dict[Sight, tuple[Pattern, Tensor]] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        memory, pattern = self.seen(attention.sight, x)
        return attention.over(x, memory, pattern)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `View`: x, states [T, d] -> [T, k, d] and [T, k]."""
        sight = attention.sight
        pattern, there = self.seen_before(sight, len(states))
        found = attention.over(x, states, pattern, times=sight.back)
        return found.unflatten(0, (sight.back, -1)).transpose(0, 1), there.to(x.device)

    def seen_before(self, sight: Sight, total: int) -> tuple[Pattern, Tensor]:
        """The pattern in which all sentences ask k times, once for each before, and what is there [T, k].

        total: T, tokens of the sequence.
        """
        if sight not in self._before:
            self._before[sight] = self._patterns_before(sight, total)
        return self._before[sight]

    def _patterns_before(self, sight: Sight, total: int) -> tuple[Pattern, Tensor]:
        backs = range(sight.back, 0, -1)
        spans = [seen_spans(self.layout, replace(sight, back=back)) for back in backs]
        own = self.layout.sentences.lengths
        keys = Spans(torch.cat([each.starts for each in spans]), torch.cat([each.lengths for each in spans]))
        there = torch.stack([each.lengths > 0 for each in spans], dim=1)  # [S, k]
        return Pattern(Spans.tile(own.repeat(sight.back)), keys, False, total), there.repeat_interleave(own, dim=0)

    def seen(self, sight: Sight, x: Tensor) -> tuple[Tensor, Pattern]:
        """The states that an attention of this sight looks at, and which of them each token sees."""
        memory = x if sight.memory == "self" else self.memories[sight.memory].at(sight)
        pattern = self._patterns.get(sight.place)
        if pattern is None:
            queries = self.layout.documents if sight.part == "document" else self.layout.sentences
            if queries is None:
                raise ValueError(f"what is computed has no documents, but {sight} asks for them")
            pattern = Pattern(queries, self._keys(sight), sight.causal, len(memory), self.layout.sentences)
            self._patterns[sight.place] = pattern
        return memory, pattern

    def _keys(self, sight: Sight) -> Spans:
        if sight.memory == "self":
            return seen_spans(self.layout, sight)
        spans = seen_spans(self.memories[sight.memory], sight)
        chosen = self.documents if sight.part == "document" else self.aligned
        return spans if chosen is None else spans.select(chosen)


class SharedView(FullView):
    """A whole pass in which states that are the same (`Reading.same`) are computed once.

    Of the T tokens of the layout U are computed. Attention sees all T, as there spans must be whole; what has weights,
    and takes the time, has the U alone.
    """

    def __init__(
        self,
        layout: Layout,
        memories: Mapping[str, Memory],
        aligned: Tensor,
        documents: Tensor | None,
        same: Tensor,
    ) -> None:
        """same [T]: for each token the one that is computed in its place; for the rest see `FullView`."""
        super().__init__(layout, memories, aligned, documents)
        self.computed, self.place = same.unique(return_inverse=True)  # [U] of the T, [T] of the U

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [U, d] -> [U, d]"""
        return super().attend(attention, x.index_select(0, self.place)).index_select(0, self.computed)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `View`: x, states [U, d] -> [U, k, d] and [U, k]."""
        found, there = super().attend_before(attention, *(each.index_select(0, self.place) for each in (x, states)))
        return found.index_select(0, self.computed), there.index_select(0, self.computed)


def seen_spans(layout: Layout, sight: Sight) -> Spans:
    """What each sentence (of sights of documents: each document) sees: a span in the layout."""
    if sight.part == "sentence":
        return layout.sentences
    if layout.documents is None:
        raise ValueError(f"the memory {sight.memory!r} has no documents, but {sight} asks for them")
    if sight.part == "document":
        return layout.documents
    return layout.sentences.before(layout.documents, sight.back).within(*sight.marks)
