"""Segments of a packed sequence, packed documents, and what one pass of a model reads.

Spans are the one idea that every attention pattern is written in.
Notation used throughout `model/`: T packed tokens, S segments, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.scope import BoundaryTokens


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


@dataclass(frozen=True, eq=False)
class Packed:
    """T tokens of D documents with S sentences in all.

    `tokens` [T] int64; `sentences` and `documents` both tile the T positions, and a document begins where a
    sentence begins.
    """

    tokens: Tensor
    sentences: Spans
    documents: Spans
    counted: Spans | None = None
    """within which positions run on, where that is not `documents`"""

    def __repr__(self) -> str:
        sizes = f"{len(self.tokens)} tokens, {len(self.sentences)} sentences, {len(self.documents)} documents"
        return f"<Packed: {sizes}>"

    def to(self, device: torch.device | str) -> Packed:
        """The same with the tokens on `device` (spans stay on the host)."""
        return replace(self, tokens=self.tokens.to(device))

    def filled(self, multiple: int, filler: int) -> Packed:
        """The same with a last document of `filler` tokens (none, if it fits) up to a multiple of tokens.

        Matrix products are prepared anew for every new shape (about 1 ms each for bfloat16 on CPU): a training
        whose batches have few different sizes saves that.
        """
        missing = -len(self.tokens) % multiple
        tokens = torch.cat((self.tokens, self.tokens.new_full((missing,), filler)))
        return self._changed(tokens, lambda spans: Spans.tile([*spans.lengths.tolist(), missing]))

    @property
    def running(self) -> Spans:
        """The spans in which positions run on, unless they restart at each sentence."""
        return self.documents if self.counted is None else self.counted

    def apart(self) -> Packed:
        """The same with each sentence a document of its own, so that it sees no other; positions are as they were."""
        return replace(self, documents=self.sentences, counted=self.running)

    def only(self, sentences: Tensor) -> tuple[Packed, Tensor]:
        """These sentences alone [n, rising], and [T'] where their tokens stood."""
        index = self.sentences.select(sentences).indices()
        starts, lengths = self.sentences.starts[sentences], self.sentences.lengths[sentences]

        def kept(spans: Spans) -> Spans:
            if spans is self.sentences:
                return Spans.tile(lengths)
            per_span = torch.zeros(len(spans), dtype=torch.int64)
            return Spans.tile(per_span.index_add_(0, spans.holding(starts), lengths))

        return self._changed(self.tokens[index.to(self.tokens.device)], kept), index

    def contexts(self, count: int, frame: BoundaryTokens) -> tuple[Spans, Tensor]:
        """For each sentence the `count` ones before it in its document, as one sequence (Zhang et al. 2018, 3.1).

        Returns the S contexts, laid end to end, and [T'] the position in this sequence of each of their tokens. Where
        no sentence is before it, a context is a single mark (the paper's section 3.1; the code has `</s>`, too).
        """
        numbers = torch.arange(len(self.sentences))
        documents = self.documents.holding(self.sentences.starts)  # [S] the document of each sentence
        first_of_document = torch.searchsorted(documents, documents)  # [S] sentences are in order of their documents
        seen = torch.minimum(numbers - first_of_document, torch.tensor(count))  # [S] how many are before each
        owners = numbers.repeat_interleave(seen.clamp(min=1))  # [n] of n parts, of which a context is made
        parts = self.sentences.select(Spans(numbers - seen, seen.clamp(min=1)).indices())
        mark, last = seen[owners] == 0, F.pad(owners.diff(), (0, 1), value=1) > 0
        # Of sentences that nothing opens what closes them is left out, but for that of the last one of a context.
        closing = 0 if frame.source_opens else len(frame.source_closes)
        starts = parts.starts + (parts.lengths - closing).clamp(min=0) * (mark & bool(closing))
        lengths = torch.where(mark, parts.lengths.clamp(max=1), parts.lengths - closing * ~last)
        totals = torch.zeros_like(numbers).index_add_(0, owners, lengths)
        return Spans.tile(totals), Spans(starts, lengths).indices()

    def _changed(self, tokens: Tensor, change: Callable[[Spans], Spans]) -> Packed:
        """Other tokens, and all spans changed in the same way."""
        counted = None if self.counted is None else change(self.counted)
        return Packed(tokens, change(self.sentences), change(self.documents), counted)


def pack(documents: Sequence[Sequence[Sequence[int]]]) -> Packed:
    """Packs documents of sentences of token ids, marks included."""
    tokens = [token for document in documents for sentence in document for token in sentence]
    return Packed(
        torch.tensor(tokens, dtype=torch.int64),
        Spans.tile([len(sentence) for document in documents for sentence in document]),
        Spans.tile([sum(map(len, document)) for document in documents]),
    )


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Source and decoder input of some instances, and how they belong together.

    `source` may hold sentences before those that are translated; a `document` of it or of `target` is an instance.
    `aligned` [S_t] int64, on the host: the source sentence that each target sentence belongs to. Where a translation is
    still to be found there is no `target`, and these are the sentences to translate.
    `drafts` has a first translation of every sentence of the source, those only read too, in documents alike;
    `references`, in training where a system asks for them, their true translations.
    `predicted` [n] int64, on the device of the tokens: the positions of the decoder input that have a label; None: all.

    Where several translations of one source are read, `documents` [D_t] int64, on the host, has the document of the
    source that each document of the target belongs to (None: the one of the same number), and `same` [T_t] int64, on
    the device of the tokens, for each token of the decoder input one that has the same source and the same tokens
    before it (itself, or one for all of them), whose state is the same, so that it is computed once.
    """

    source: Packed
    aligned: Tensor
    target: Packed | None = None
    predicted: Tensor | None = None
    drafts: Packed | None = None
    references: Packed | None = None
    documents: Tensor | None = None
    same: Tensor | None = None

    def to(self, device: torch.device | str) -> ModelInput:
        """The same with tokens and positions on `device`."""
        predicted, same = (None if places is None else places.to(device) for places in (self.predicted, self.same))
        return replace(self._with_sides(lambda side: side.to(device)), predicted=predicted, same=same)

    def filled(self, multiple: int, filler: int) -> ModelInput:
        """The same with a last instance of filler tokens on each side, which has no labels; see `Packed.filled`.

        Where all positions are predicted, states of the filler come behind those that have labels.
        """
        assert self.target is not None
        aligned = torch.cat((self.aligned, torch.tensor([len(self.source.sentences)])))
        return replace(self._with_sides(lambda side: side.filled(multiple, filler)), aligned=aligned)

    def apart(self) -> ModelInput:
        """The same without context: through every scope a sentence sees itself alone; see `Packed.apart`."""
        return replace(self._with_sides(Packed.apart), documents=self.aligned)

    def _with_sides(self, change: Callable[[Packed], Packed]) -> ModelInput:
        """The same with every sequence that there is changed alike."""
        target, drafts, references = (
            None if side is None else change(side) for side in (self.target, self.drafts, self.references)
        )
        return replace(self, source=change(self.source), target=target, drafts=drafts, references=references)
