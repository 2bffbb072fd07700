"""Segments of a packed sequence: the one idea that every attention pattern is written in.

Notation used throughout `model/`: T packed tokens, S segments, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Spans:
    """Start and length of each of S segments in a packed sequence.

    `starts` and `lengths` are int64 tensors of shape [S] in host memory: they describe a layout, and layout
    decisions (bucketing, masks) are taken on the host; what a kernel needs on a device, it puts there.
    Segments may overlap or leave gaps (windows, contexts); `Spans.tile` lays segments end to end.
    """

    __slots__ = ("lengths", "starts")

    def __init__(self, starts: Tensor, lengths: Tensor) -> None:
        if starts.shape != lengths.shape or starts.dim() != 1:
            raise ValueError(f"starts {tuple(starts.shape)} and lengths {tuple(lengths.shape)} must both be [S]")
        self.starts = starts.to("cpu", torch.int64)
        self.lengths = lengths.to("cpu", torch.int64)

    @classmethod
    def tile(cls, lengths: Tensor | Sequence[int]) -> Spans:
        """Segments of the given lengths, laid end to end from position 0."""
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
        return cls(lengths.cumsum(0) - lengths, lengths)

    @property
    def ends(self) -> Tensor:
        """[S] position after the last token of each segment."""
        return self.starts + self.lengths

    def tiles(self, total: int) -> bool:
        """Whether the segments, in order, cover positions 0..total-1 once each."""
        return bool(
            int(self.lengths.sum()) == total and torch.equal(self.starts, self.lengths.cumsum(0) - self.lengths)
        )

    def overlap(self) -> bool:
        """Whether some position lies in two segments."""
        filled = self.lengths > 0
        starts, order = self.starts[filled].sort()
        return bool((starts[:-1] + self.lengths[filled][order][:-1] > starts[1:]).any())

    def select(self, segments: Tensor) -> Spans:
        """The segments with these numbers, in this order; [n] int64 on the host."""
        return Spans(self.starts[segments], self.lengths[segments])

    def before(self, documents: Spans, back: int) -> Spans:
        """For each segment the one `back` places before it in its document, or an empty one; segments in order."""
        numbers = torch.arange(len(self)) - back
        earlier = numbers.clamp(min=0)
        there = (numbers >= 0) & (documents.holding(self.starts) == documents.holding(self.starts[earlier]))
        return Spans(self.starts[earlier], self.lengths[earlier] * there)

    def borders_later(self, documents: Spans) -> Spans:
        """Segments that tile the documents, where each border inside a document lies one position later."""
        inside = torch.ones(len(self), dtype=torch.int64)  # begins inside a document
        inside[self.holding(documents.starts)] = 0
        return Spans.tile(self.lengths - inside + torch.cat((inside[1:], inside[:1])))

    def within(self, first: int, last: int) -> Spans:
        """Each segment without its first and last tokens, as many as told, or as it has."""
        return Spans(self.starts + first, (self.lengths - first - last).clamp(min=0))

    def holding(self, positions: Tensor) -> Tensor:
        """[n] the number of the segment in which each position [n] lies, of segments that lie end to end."""
        # Empty segments begin where the next one does: the last that begins there is the one that holds the position.
        return torch.searchsorted(self.ends, positions, right=True).clamp(max=len(self) - 1)

    def with_only(self, segments: Tensor) -> Spans:
        """As many segments, those with these numbers laid end to end from position 0, all others empty."""
        lengths = torch.zeros_like(self.lengths)
        lengths[segments] = self.lengths[segments]
        return Spans.tile(lengths)

    def positions(self) -> Tensor:
        """[sum of lengths] the offset of every token inside its segment, segments in order."""
        begins = torch.repeat_interleave(self.lengths.cumsum(0) - self.lengths, self.lengths)
        return torch.arange(int(self.lengths.sum())) - begins

    def indices(self) -> Tensor:
        """[sum of lengths] the position in the sequence of every token of every segment, segments in order."""
        return torch.repeat_interleave(self.starts, self.lengths) + self.positions()

    def __len__(self) -> int:
        return self.starts.numel()

    def same_as(self, other: Spans) -> bool:
        """Whether both have the same segments in the same order (`==` is identity, as patterns are kept by it)."""
        return torch.equal(self.starts, other.starts) and torch.equal(self.lengths, other.lengths)

    def __repr__(self) -> str:
        shown = ", ".join(f"{s}+{n}" for s, n in zip(self.starts[:8].tolist(), self.lengths[:8].tolist(), strict=True))
        return f"Spans({shown}{', ...' if len(self) > 8 else ''})"
