"""Batches: which instances go together in which order, and what the model gets to see of them.

Notation: I instances, S sentences, T_s and T_t packed source and target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.data.instances import Instances, Mixture, Numbers
from docmt.data.store import SentenceTokens
from docmt.model.scope import BoundaryTokens
from docmt.model.spans import ModelInput, Packed, Spans
from docmt.text.tokenizer import SpecialTokens

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """What is read of some instances, which are the documents of its sides, and the labels [n] of what is predicted.

    A label is the token after a position of the decoder input: the input shifted left by one, with <eod> at the end of
    each instance (or, in frames that end with `</s>`, that at the end of each sentence or of each instance).
    """

    inputs: ModelInput
    labels: Tensor

    @property
    def tokens(self) -> int:
        """How many tokens are predicted."""
        return self.labels.numel()

    def to(self, device: torch.device | str) -> Batch:
        """The same on `device`."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))


def collate(
    source: SentenceTokens,
    target: SentenceTokens,
    instances: Instances,
    indices: Numbers,
    specials: SpecialTokens,
    frame: BoundaryTokens,
    predicts: Literal["all", "last"] = "all",
    drafts: SentenceTokens | None = None,
    references: bool = False,
) -> Batch:
    """The batch of the given instances, in the given order; `last`: only their own sentences have labels.

    drafts: of every source sentence, where a system reads them; references: the model reads the target, too.
    """
    inputs = read_source(source, instances, indices, frame, drafts)
    if references:
        inputs = replace(inputs, references=_beside_source(target, instances.at(indices), frame))
    chosen, closes = instances.at(indices), (specials.eos,) if frame.target_has_end else ()
    laid = _lay_out(target, chosen.first, chosen.last, frame.target_prefix, closes, frame.joined)
    labels = torch.roll(laid.tokens, -1)
    if frame.predicts_boundary:
        labels[laid.documents.ends - 1] = specials.eod
    elif not frame.target_has_end:
        labels[(laid.documents if frame.joined else laid.sentences).ends - 1] = specials.eos
    own = _numbers_of(chosen.first, chosen.own, chosen.last) if predicts == "last" else None
    predicted = _predicted(laid, frame, own)
    labels = labels if predicted is None else labels[predicted]
    return Batch(replace(inputs, target=laid, label_positions=predicted), labels)


def _predicted(laid: Packed, frame: BoundaryTokens, own: Tensor | None) -> Tensor | None:
    """[n] the positions of decoder input that have a label, in the sentences `own` [m] (None: all); None: all."""
    opens, closes = frame.counts("target")
    before, behind = opens - 1, 0 if frame.predicts_boundary else closes
    if own is None and not before and not behind:
        return None
    spans = laid.sentences.trim(before, behind)
    return (spans if own is None else spans.select(own)).indices()


def _numbers_of(first: Indices, own: Indices, last: Indices) -> Tensor:
    """[n] the numbers of the sentences own .. last - 1 of instances whose sentences first .. last - 1 are laid out."""
    starts = Spans.tile(torch.from_numpy(last - first)).starts
    return Spans(starts + torch.from_numpy(own - first), torch.from_numpy(last - own)).indices()


def read_source(
    source: SentenceTokens,
    instances: Instances,
    indices: Numbers,
    frame: BoundaryTokens,
    drafts: SentenceTokens | None = None,
) -> ModelInput:
    """The source sides of the given instances; `aligned` are their sentences without those that are only read.

    drafts: of every source sentence, where a system reads them.
    """
    chosen = instances.at(indices)
    laid = _beside_source(source, chosen, frame)
    drafted = None if drafts is None else _beside_source(drafts, chosen, frame)
    return ModelInput(laid, _numbers_of(chosen.before, chosen.first, chosen.last), drafts=drafted)


def _beside_source(words: SentenceTokens, chosen: Instances, frame: BoundaryTokens) -> Packed:
    """What there is for every source sentence of the instances (its words, or a translation), as a source."""
    return _lay_out(words, chosen.before, chosen.last, frame.source_prefix, frame.source_suffix, frame.joined)


def _lay_out(
    words: SentenceTokens, first: Indices, last: Indices, opens: Sequence[int], closes: Sequence[int], joined: bool
) -> Packed:
    """Sentences from `first` to before `last` [I], each a document; each sentence between marks that open and close it.

    If they are joined, the mark inside a document is <s>, and that at its end (of decoder input, its begin) </s>.
    """
    offsets, marks = words.offsets, len(opens) + len(closes)
    sentences = Spans(torch.from_numpy(first), torch.from_numpy(last - first)).indices().numpy()
    lengths = offsets[sentences + 1] - offsets[sentences] + marks
    tokens = np.asarray(words.tokens)  # slices of a memory map take longer
    ends = np.cumsum(lengths)
    starts = ends - lengths
    laid = np.empty(int(lengths.sum()), dtype=np.int64)
    is_word = np.ones(len(laid), dtype=bool)
    for place, mark in [*enumerate(opens), *((place - len(closes), mark) for place, mark in enumerate(closes))]:
        at = (starts if place >= 0 else ends) + place
        is_word[at], laid[at] = False, SpecialTokens.bos if joined else mark
    ranges = zip(offsets[first], offsets[last], strict=True)
    laid[is_word] = np.concatenate([tokens[start:end] for start, end in ranges])
    documents = Spans.tile(torch.from_numpy(offsets[last] - offsets[first] + marks * (last - first)))
    if joined:
        laid[documents.starts if opens else documents.ends - 1] = SpecialTokens.eos
    return Packed(torch.from_numpy(laid), Spans.tile(torch.from_numpy(lengths)), documents)


@dataclass(frozen=True)
class BatchPlan:
    """Which instances make up each batch: a function of (seed, epoch) alone, so it can be resumed anywhere.

    Instances are shuffled and cut greedily so that the token counts of a batch sum to at most `batch_tokens`; an
    instance above that is a batch of its own. Of a mixture an epoch takes what it draws; each batch is of one limit.
    """

    lengths: Indices
    """[I] the token count of each instance, as `instance_lengths` gives it"""
    batch_tokens: int
    seed: int
    mixture: Mixture | None = None
    """of instances that were cut at several limits"""

    def __post_init__(self) -> None:
        if self.batch_tokens < 1 or self.seed < 0 or not len(self.lengths):
            raise ValueError(
                f"{len(self.lengths)} lengths, batch_tokens {self.batch_tokens} and seed {self.seed} must be at least "
                "1, 1 and 0"
            )

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of one epoch (0, 1, ...): every instance once, or of a mixture every sentence."""
        # Sorting raw random words, not Generator.permutation: numpy keeps the raw stream the same for ever, the
        # methods of a generator only until somebody finds a better algorithm.
        draw = np.random.default_rng([self.seed, epoch]).bit_generator.random_raw
        order = np.argsort(draw(len(self.lengths)), kind="stable")
        if self.mixture is None:
            return self._cut(order)
        taken = self.mixture.drawn(draw(int(self.mixture.stretch.max()) + 1))
        batches = [batch for own in taken for batch in self._cut(order[own[order]])]
        return [batches[number] for number in np.argsort(draw(len(batches)), kind="stable")]

    def in_order(self) -> list[Indices]:
        """The batches without shuffling, for validation."""
        return self._cut(np.arange(len(self.lengths)))

    def _cut(self, order: Indices) -> list[Indices]:
        reached = np.cumsum(self.lengths[order])  # tokens up to each instance, that included
        borders, start = [], 0
        while start < len(order):
            if start:
                borders.append(start)
            before = reached[start - 1] if start else 0
            fitting = int(np.searchsorted(reached, before + self.batch_tokens, side="right"))
            start = max(fitting, start + 1)
        return np.split(order, borders) if len(order) else []
