"""Spans of a packed sequence, packed documents, and the input of one pass of a model.

Every attention pattern is expressed in spans.
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

    `starts` and `lengths` are int64 tensors of shape [S] in host memory, where buckets and masks are planned.
    Kernels copy to the device what they need. Segments may overlap or leave gaps. `Spans.tile` lays them end to end.
    """

    __slots__ = ("lengths", "starts")

    def __init__(self, starts: Tensor, lengths: Tensor) -> None:
        if starts.shape != lengths.shape or starts.dim() != 1:
            raise ValueError(f"starts {tuple(starts.shape)} and lengths {tuple(lengths.shape)} must both be [S]")
        self.starts = starts.to("cpu", torch.int64)
        self.lengths = lengths.to("cpu", torch.int64)

    @classmethod
    def tile(cls, lengths: Tensor | Sequence[int]) -> Spans:
        """Lay segments of these lengths end to end from position 0."""
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
        return cls(lengths.cumsum(0) - lengths, lengths)

    @property
    def ends(self) -> Tensor:
        """[S]: the position after the last token of each segment."""
        return self.starts + self.lengths

    def is_tiling(self, total: int) -> bool:
        """Return whether the segments, in order, cover each position 0..total-1 once."""
        return int(self.lengths.sum()) == total and torch.equal(self.starts, self.lengths.cumsum(0) - self.lengths)

    def has_overlap(self) -> bool:
        """Return whether some position lies in two segments."""
        filled = self.lengths > 0
        starts, order = self.starts[filled].sort()
        return bool((starts[:-1] + self.lengths[filled][order][:-1] > starts[1:]).any())

    def select(self, segments: Tensor) -> Spans:
        """Return the segments with these indices [n] (int64, on the host), in this order."""
        return Spans(self.starts[segments], self.lengths[segments])

    def select_preceding(self, documents: Spans, offset: int) -> Spans:
        """Return for each segment the one `offset` before it in its document (negative: after it), or an empty one."""
        indices = torch.arange(len(self)) - offset
        others = indices.clamp(0, len(self) - 1)
        document_indices = documents.find_segments(self.starts)
        exists = (indices == others) & (document_indices == document_indices[others])
        return Spans(self.starts[others], self.lengths[others] * exists)

    def join_preceding(self, documents: Spans, count: int, itself: bool = False) -> Spans:
        """Return for each segment one span over up to `count` ones before it in its document, empty without any.

        itself: the segment too. Segments must lie end to end.
        """
        firsts = self.starts[torch.arange(len(self)) - self.numbers_within(documents).clamp(max=count)]
        return Spans(firsts, (self.ends if itself else self.starts) - firsts)

    def shift_boundaries(self, documents: Spans) -> Spans:
        """Move each segment boundary inside a document one position later. Segments must tile the documents."""
        inside = torch.ones(len(self), dtype=torch.int64)  # 1: starts inside a document
        inside[self.find_segments(documents.starts)] = 0
        return Spans.tile(self.lengths - inside + torch.cat((inside[1:], inside[:1])))

    def trim(self, num_first: int, num_last: int) -> Spans:
        """Remove the first and last tokens of each segment. A shorter one becomes empty."""
        return Spans(self.starts + num_first, (self.lengths - num_first - num_last).clamp(min=0))

    def find_segments(self, positions: Tensor) -> Tensor:
        """Return the index [n] of the segment that holds each position [n]. Segments must lie end to end."""
        # An empty segment starts where the next one does. The last segment that starts there holds the position.
        return torch.searchsorted(self.ends, positions, right=True).clamp(max=len(self) - 1)

    def tile_selected(self, segments: Tensor) -> Spans:
        """Lay the segments with these indices end to end from position 0 and make all others empty."""
        lengths = torch.zeros_like(self.lengths)
        lengths[segments] = self.lengths[segments]
        return Spans.tile(lengths)

    def positions(self) -> Tensor:
        """Return [sum of lengths]: the offset of every token inside its segment, segment by segment."""
        begins = torch.repeat_interleave(self.lengths.cumsum(0) - self.lengths, self.lengths)
        return torch.arange(int(self.lengths.sum())) - begins

    def padded_positions(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Return the positions [S, last - first] of the tokens at these offsets, and whether each exists.

        Where a segment is too short, the position is its start.
        """
        offsets = torch.arange(first, last)
        exists = offsets < self.lengths[:, None]
        return self.starts[:, None] + offsets * exists, exists

    def numbers_within(self, documents: Spans) -> Tensor:
        """Return [S]: the number of each segment in its document, from 0."""
        indices = documents.find_segments(self.starts)
        return torch.arange(len(self)) - torch.searchsorted(indices, indices)

    def indices(self) -> Tensor:
        """Return [sum of lengths]: the position in the sequence of every token, segment by segment."""
        return torch.repeat_interleave(self.starts, self.lengths) + self.positions()

    def __len__(self) -> int:
        return self.starts.numel()

    def equals(self, other: Spans) -> bool:
        """Return whether both have the same segments in the same order. `==` is identity, a key of caches."""
        return torch.equal(self.starts, other.starts) and torch.equal(self.lengths, other.lengths)

    def __repr__(self) -> str:
        spans = ", ".join(f"{s}+{n}" for s, n in zip(self.starts[:8].tolist(), self.lengths[:8].tolist(), strict=True))
        return f"Spans({spans}{', ...' if len(self) > 8 else ''})"


@dataclass(frozen=True, eq=False)
class Packed:
    """T tokens of D documents with S sentences in total.

    `tokens` is [T] int64. `sentences` and `documents` both tile the T positions, and a document starts where a
    sentence starts.
    """

    tokens: Tensor
    sentences: Spans
    documents: Spans
    position_documents: Spans | None = None
    """the spans that positions run through, if not `documents`"""

    def last_sentences(self) -> Tensor:
        """Return the number of the last sentence of each document: [D]."""
        return self.sentences.find_segments(self.documents.ends - 1)

    def __repr__(self) -> str:
        sizes = f"{len(self.tokens)} tokens, {len(self.sentences)} sentences, {len(self.documents)} documents"
        return f"<Packed: {sizes}>"

    def to(self, device: torch.device | str) -> Packed:
        """Copy the tokens to `device`. Spans stay on the host."""
        return replace(self, tokens=self.tokens.to(device))

    def pad_to_multiple(self, multiple: int, token_id: int) -> Packed:
        """Append a document of `token_id` tokens up to a multiple of tokens, empty if none are missing.

        A matrix product of a new shape needs preparation (about 1 ms for bfloat16 on CPU). Training with few batch
        sizes avoids it.
        """
        missing = -len(self.tokens) % multiple
        tokens = torch.cat((self.tokens, self.tokens.new_full((missing,), token_id)))
        return self._map_spans(tokens, lambda spans: Spans.tile([*spans.lengths.tolist(), missing]))

    @property
    def position_spans(self) -> Spans:
        """The spans that positions run through, unless they restart at each sentence."""
        return self.documents if self.position_documents is None else self.position_documents

    def isolate_sentences(self) -> Packed:
        """Make each sentence its own document, which sees no other. Positions are unchanged."""
        return replace(self, documents=self.sentences, position_documents=self.position_spans)

    def select_sentences(self, sentences: Tensor) -> tuple[Packed, Tensor]:
        """Return only these sentences [n, ascending], and the former positions [T'] of their tokens."""
        index = self.sentences.select(sentences).indices()
        starts, lengths = self.sentences.starts[sentences], self.sentences.lengths[sentences]
        return self._replace_tokens(self.tokens[index.to(self.tokens.device)], starts, lengths), index

    def replace_boundaries(
        self, counts: tuple[int, int], opening: Sequence[int] = (), closing: Sequence[int] = ()
    ) -> Packed:
        """Replace the tokens that open and close each sentence. counts: how many there are of each now."""
        words = self.sentences.trim(*counts)
        sentences = Spans.tile(words.lengths + len(opening) + len(closing))
        tokens = self.tokens.new_empty(int(sentences.lengths.sum()))
        parts = [(sentences.trim(len(opening), len(closing)).indices(), self.tokens[words.indices().to(tokens.device)])]
        parts += [(sentences.starts + offset, tokens.new_tensor(token)) for offset, token in enumerate(opening)]
        parts += [(sentences.ends - offset, tokens.new_tensor(token)) for offset, token in enumerate(closing[::-1], 1)]
        for positions, values in parts:
            tokens[positions.to(tokens.device)] = values
        return self._replace_tokens(tokens, self.sentences.starts, sentences.lengths)

    def _replace_tokens(self, tokens: Tensor, starts: Tensor, lengths: Tensor) -> Packed:
        """Return sentences of these tokens and lengths [n]. starts [n]: the former starts of these sentences."""

        def sum_lengths(spans: Spans) -> Spans:
            if spans is self.sentences:
                return Spans.tile(lengths)
            per_span = torch.zeros(len(spans), dtype=torch.int64)
            return Spans.tile(per_span.index_add_(0, spans.find_segments(starts), lengths))

        return self._map_spans(tokens, sum_lengths)

    def gather_contexts(self, count: int, boundary_tokens: BoundaryTokens) -> tuple[Spans, Tensor]:
        """Concatenate for each sentence the `count` ones before it in its document (Zhang et al. 2018, 3.1).

        Returns the S contexts, laid end to end, and the position [T'] in this sequence of each of their tokens. The
        context of a first sentence is a single boundary token (section 3.1 of the paper; the code also has `</s>`).
        Example: with a count of 2, sentences A, B, C, D of a document have the contexts boundary token; A; A B; B C.
        """
        sentences = torch.arange(len(self.sentences))
        preceding = self.sentences.numbers_within(self.documents)  # [S]
        visible = preceding.clamp(max=count)  # [S] number of context sentences
        owners = sentences.repeat_interleave(visible.clamp(min=1))  # [n] the sentence of each part of a context
        parts = self.sentences.select(Spans(sentences - visible, visible.clamp(min=1)).indices())
        is_placeholder, is_last = visible[owners] == 0, F.pad(owners.diff(), (0, 1), value=1) > 0
        # Without a source prefix only the last sentence of a context keeps its suffix.
        suffix_length = 0 if boundary_tokens.source_opening else len(boundary_tokens.source_closing)
        starts = parts.starts + (parts.lengths - suffix_length).clamp(min=0) * (is_placeholder & bool(suffix_length))
        lengths = torch.where(is_placeholder, parts.lengths.clamp(max=1), parts.lengths - suffix_length * ~is_last)
        totals = torch.zeros_like(sentences).index_add_(0, owners, lengths)
        return Spans.tile(totals), Spans(starts, lengths).indices()

    def gather_windows(self, sentences: Tensor, before: int) -> tuple[Packed, Tensor, Tensor]:
        """Pack each of these sentences [n] with the `before` ones before it in its document: n documents.

        Returns also the position [T'] in this sequence of each token, and the number [S'] of each sentence.
        """
        first = sentences - self.sentences.numbers_within(self.documents)[sentences].clamp(max=before)
        numbers = Spans(first, sentences - first + 1).indices()
        parts = self.sentences.select(numbers)
        totals = self.sentences.ends[sentences] - self.sentences.starts[first]
        index = parts.indices()
        tokens = self.tokens[index.to(self.tokens.device)]
        return Packed(tokens, Spans.tile(parts.lengths), Spans.tile(totals)), index, numbers

    def _map_spans(self, tokens: Tensor, change: Callable[[Spans], Spans]) -> Packed:
        """Replace the tokens, and apply `change` to all spans."""
        position_documents = None if self.position_documents is None else change(self.position_documents)
        return Packed(tokens, change(self.sentences), change(self.documents), position_documents)


def pack(documents: Sequence[Sequence[Sequence[int]]]) -> Packed:
    """Pack documents of sentences of token ids, boundary tokens included."""
    tokens = [token for document in documents for sentence in document for token in sentence]
    return Packed(
        torch.tensor(tokens, dtype=torch.int64),
        Spans.tile([len(sentence) for document in documents for sentence in document]),
        Spans.tile([sum(map(len, document)) for document in documents]),
    )


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Source and decoder input of some instances, and their alignment.

    A `document` of `source` or `target` is an instance. `source` may start with context sentences.
    `alignment` [S_t] int64, on the host: the source sentence of each target sentence. Without a `target`, these are
    the sentences to translate and those of target context.
    `drafts` has a first translation of every source sentence, context included. `references` has their reference
    translations, in training, if a system reads them.
    `label_positions` [n] int64, on the device: the positions of the decoder input that have a label; None: all.

    The last two fields serve several translations of one source. `document_alignment` [D_t] int64, on the host: the
    source document of each target document; None: the one with the same index. `representatives` [T_t] int64, on the
    device: for each token of the decoder input a token with the same source and the same tokens before it. Both
    have the same state, which is computed once.
    """

    source: Packed
    alignment: Tensor
    target: Packed | None = None
    label_positions: Tensor | None = None
    drafts: Packed | None = None
    references: Packed | None = None
    document_alignment: Tensor | None = None
    representatives: Tensor | None = None

    def require_drafts(self) -> Packed:
        """Return the drafts. Raises ValueError if there are none."""
        if self.drafts is None:
            raise ValueError("this model reads drafts: pass one of every source sentence as `drafts`")
        return self.drafts

    def to(self, device: torch.device | str) -> ModelInput:
        """Copy tokens and positions to `device`."""
        labels, same = (None if x is None else x.to(device) for x in (self.label_positions, self.representatives))
        moved = self._map_sides(lambda side: side.to(device))
        return replace(moved, label_positions=labels, representatives=same)

    def pad_to_multiple(self, multiple: int, token_id: int) -> ModelInput:
        """Append an instance of `token_id` tokens without labels to each side; see `Packed.pad_to_multiple`.

        If all positions are predicted, the states of the padding follow those with labels.
        """
        assert self.target is not None
        alignment = torch.cat((self.alignment, torch.tensor([len(self.source.sentences)])))
        return replace(self._map_sides(lambda side: side.pad_to_multiple(multiple, token_id)), alignment=alignment)

    def isolate_sentences(self) -> ModelInput:
        """Remove the context: in every scope a sentence sees itself alone; see `Packed.isolate_sentences`."""
        return replace(self._map_sides(Packed.isolate_sentences), document_alignment=self.alignment)

    def _map_sides(self, change: Callable[[Packed], Packed]) -> ModelInput:
        """Apply `change` to every sequence."""
        target, drafts, references = (
            None if side is None else change(side) for side in (self.target, self.drafts, self.references)
        )
        return replace(self, source=change(self.source), target=target, drafts=drafts, references=references)
