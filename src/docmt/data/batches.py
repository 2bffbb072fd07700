"""Batches: which instances go together, in which order, and their model inputs and labels.

Notation: I instances, S sentences, T_s and T_t packed source and target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.data.instances import Instances, Numbers
from docmt.data.store import SentenceTokens
from docmt.model.scope import BoundaryTokens
from docmt.model.spans import ModelInput, Packed, Spans
from docmt.text.tokenizer import SpecialTokens

Indices = NDArray[np.integer[Any]]
PAD_MULTIPLE = 128
"""Padded batches have a multiple of this many tokens."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Model input of some instances (each a document of the packed sides) and its labels [n].

    A label is the token after a position of the decoder input: the input shifted left by one. The last label of an
    instance is <eod> if the family predicts boundaries (`BoundaryTokens.predicts_boundary`), otherwise </s>.
    """

    inputs: ModelInput
    labels: Tensor

    @property
    def tokens(self) -> int:
        """Number of label tokens."""
        return self.labels.numel()

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def pad(self) -> Batch:
        """Fill each side up to a multiple of `PAD_MULTIPLE` tokens without labels: few sizes are faster."""
        return replace(self, inputs=self.inputs.pad_to_multiple(PAD_MULTIPLE, SpecialTokens.pad))


def collate(
    source: SentenceTokens,
    target: SentenceTokens,
    instances: Instances,
    indices: Numbers,
    specials: SpecialTokens,
    boundaries: BoundaryTokens,
    labelled: Literal["all", "last"] = "all",
    drafts: SentenceTokens | None = None,
    references: bool = False,
) -> Batch:
    """Return the batch of the instances with these indices, in order.

    labelled: "last" gives labels to output sentences only. drafts: of every source sentence, if the system reads them.
    references: the model reads the target, too.
    """
    selected, closing = instances.select(indices), (specials.eos,) if boundaries.target_has_end else ()
    inputs = collate_source(source, instances, indices, boundaries, drafts)
    if references:
        inputs = replace(inputs, references=_pack_source_side(target, selected, boundaries))
    packed = _pack_sentences(
        target, selected.first, selected.last, boundaries.target_opening, closing, boundaries.joined
    )
    labels = torch.roll(packed.tokens, -1)
    if boundaries.predicts_boundary:
        labels[packed.documents.ends - 1] = specials.eod
    elif not boundaries.target_has_end:
        labels[(packed.documents if boundaries.joined else packed.sentences).ends - 1] = specials.eos
    outputs = _sentence_indices(selected.first, selected.first_output, selected.last) if labelled == "last" else None
    predicted = _predicted_positions(packed, boundaries, outputs)
    labels = labels if predicted is None else labels[predicted]
    return Batch(replace(inputs, target=packed, label_positions=predicted), labels)


def _predicted_positions(packed: Packed, boundaries: BoundaryTokens, outputs: Tensor | None) -> Tensor | None:
    """Return the decoder input positions with a label: [n] int64, or None if every position has one.

    outputs: indices [m] of the sentences with labels, or None if every sentence has labels.
    """
    num_opening, num_closing = boundaries.counts("target")
    skip_start, skip_end = num_opening - 1, 0 if boundaries.predicts_boundary else num_closing
    if outputs is None and not skip_start and not skip_end:
        return None
    spans = packed.sentences.trim(skip_start, skip_end)
    return (spans if outputs is None else spans.select(outputs)).indices()


def _sentence_indices(first: Indices, first_output: Indices, last: Indices) -> Tensor:
    """Return [n] the indices of sentences first_output .. last - 1 among packed sentences first .. last - 1."""
    starts = Spans.tile(torch.from_numpy(last - first)).starts
    return Spans(starts + torch.from_numpy(first_output - first), torch.from_numpy(last - first_output)).indices()


def collate_source(
    source: SentenceTokens,
    instances: Instances,
    indices: Numbers,
    boundaries: BoundaryTokens,
    drafts: SentenceTokens | None = None,
) -> ModelInput:
    """Return the source input of the instances with these indices; its `alignment` excludes source-only context.

    drafts: of every source sentence, if the system reads them.
    """
    selected = instances.select(indices)
    packed = _pack_source_side(source, selected, boundaries)
    packed_drafts = None if drafts is None else _pack_source_side(drafts, selected, boundaries)
    return ModelInput(packed, _sentence_indices(selected.before, selected.first, selected.last), drafts=packed_drafts)


def _pack_source_side(words: SentenceTokens, selected: Instances, boundaries: BoundaryTokens) -> Packed:
    """Return what the instances have for every source sentence (source, reference or draft), packed as a source."""
    opening, closing = boundaries.source_opening, boundaries.source_closing
    return _pack_sentences(words, selected.before, selected.last, opening, closing, boundaries.joined)


def _pack_sentences(
    words: SentenceTokens, first: Indices, last: Indices, opening: Sequence[int], closing: Sequence[int], joined: bool
) -> Packed:
    """Return sentences first .. last - 1 [I] packed, each range a document, each sentence with its boundary tokens.

    If sentences are joined, the boundary token inside a document is <s>; at its end (decoder input: its begin) it is
    </s>.
    """
    offsets, num_boundaries = words.offsets, len(opening) + len(closing)
    sentences = Spans(torch.from_numpy(first), torch.from_numpy(last - first)).indices().numpy()
    lengths = offsets[sentences + 1] - offsets[sentences] + num_boundaries
    tokens = np.asarray(words.tokens)  # slices of a memory map take longer
    ends = np.cumsum(lengths)
    starts = ends - lengths
    packed = np.empty(int(lengths.sum()), dtype=np.int64)
    is_word = np.ones(len(packed), dtype=bool)
    for index, token in [*enumerate(opening), *((index - len(closing), token) for index, token in enumerate(closing))]:
        positions = (starts if index >= 0 else ends) + index
        is_word[positions], packed[positions] = False, SpecialTokens.bos if joined else token
    ranges = zip(offsets[first], offsets[last], strict=True)
    packed[is_word] = np.concatenate([tokens[start:end] for start, end in ranges])
    documents = Spans.tile(torch.from_numpy(offsets[last] - offsets[first] + num_boundaries * (last - first)))
    if joined:
        packed[documents.starts if opening else documents.ends - 1] = SpecialTokens.eos
    return Packed(torch.from_numpy(packed), Spans.tile(torch.from_numpy(lengths)), documents)


@dataclass(frozen=True)
class BatchPlan:
    """Assignment of instances to batches, a function of (seed, epoch) alone: it can be resumed anywhere.

    Instances are shuffled and split greedily so that a batch has at most `batch_tokens` tokens. A longer instance is a
    batch of its own.
    """

    lengths: Indices
    """[I] tokens of each instance, from `instance_lengths`"""
    batch_tokens: int
    seed: int

    def batches_in_epoch(self, epoch: int) -> list[Indices]:
        """Return the instance indices of each batch of an epoch (0, 1, ...): every instance once."""
        # Raw numbers are sorted, as numpy guarantees their stream, but not that of Generator.permutation.
        numbers = np.random.default_rng([self.seed, epoch]).bit_generator.random_raw(len(self.lengths))
        return self._split_by_tokens(np.argsort(numbers, kind="stable"))

    def batches_in_order(self) -> list[Indices]:
        """Return the batches without shuffling, for validation."""
        return self._split_by_tokens(np.arange(len(self.lengths)))

    def _split_by_tokens(self, order: Indices) -> list[Indices]:
        cumulative = np.cumsum(self.lengths[order])  # tokens up to and including each instance
        borders, start, before = [], 0, 0
        while start < len(order):
            end = int(np.searchsorted(cumulative, before + self.batch_tokens, side="right"))
            start = max(end, start + 1)
            before = int(cumulative[start - 1])
            borders.append(start)
        return np.split(order, borders[:-1])
