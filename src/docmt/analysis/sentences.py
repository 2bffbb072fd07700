"""Which sentences each sentence looks at: attention weights summed over the tokens of each sentence that is seen.

Notation: S sentences, H heads; in a block (`docmt.analysis.weights`), n segments of up to q queries and l keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from docmt.analysis.looks import GateLook, Look, Site
from docmt.data.batches import Placed


class Sums(NamedTuple):
    """Weights of some segments of a look, summed over sentences on both sides."""

    asking: Tensor
    """[n] number of the first sentence that asks, in the packed source"""
    seen: Tensor
    """[n] number of the first sentence that is seen"""
    weights: Tensor
    """[n, r, c, H]: of sentence asking + r, over its tokens, what they look at in sentence seen + c"""


def sentence_sums(look: Look, placed: Placed) -> Iterator[Sums]:
    """The sums of all sentences that are translated in this pass."""
    asking = look.query_sentences()
    keys = look.key_sentences(placed.reading.source.sentences)
    for block in look.blocks():
        own = asking[block.queries.cpu() % max(len(asking), 1)]  # [n, q]
        counts = (block.real.cpu() & placed.own[own]).to(torch.float32)
        seen = keys[block.keys.cpu()]  # [n, l]
        first, first_seen = own.amin(1), seen.amin(1)
        rows = _one_hot(own - first[:, None]) * counts[..., None]  # [n, q, r]
        columns = _one_hot(seen - first_seen[:, None])  # [n, l, c]
        device = block.weights.device
        by_sentence = block.weights @ columns.to(device)[:, None]  # [n, H, q, c]
        yield Sums(first, first_seen, torch.einsum("nqr,nhqc->nrch", rows.to(device), by_sentence).cpu())


def _one_hot(numbers: Tensor) -> Tensor:
    """[n, l] -> [n, l, largest + 1], float32"""
    return F.one_hot(numbers).to(torch.float32)


class Row(NamedTuple):
    """What a sentence looks at, from sentence `first` on."""

    first: int
    weights: Tensor
    """[c], or [c, H]"""

    def plus(self, other: Row) -> Row:
        """Both, added up."""
        first = min(self.first, other.first)
        end = max(row.first + len(row.weights) for row in (self, other))
        total = self.weights.new_zeros(end - first, *self.weights.shape[1:])
        for row in (self, other):
            total[row.first - first : row.first - first + len(row.weights)] += row.weights
        return Row(first, total)


@dataclass
class Map:
    """Which sentences the sentences of one document look at in one attention."""

    site: Site
    sums: dict[int, Row] = field(default_factory=dict)
    """by sentence, over its tokens"""

    def add(self, sentence: int, row: Row) -> None:
        """Adds what tokens of a sentence look at."""
        self.sums[sentence] = self.sums[sentence].plus(row) if sentence in self.sums else row

    def rows(self, head: int | None = None) -> dict[int, Row]:
        """By sentence, on average over its tokens and over all heads (or of one, from 0): weights [c] that sum to 1.

        Sentences that see nothing are left out.
        """
        found = {}
        for sentence, row in self.sums.items():
            total = row.weights.sum(0, keepdim=True)  # [1, H]: a weight of 1 for each token
            if float(total.max()) > 0:
                shares = row.weights / total
                found[sentence] = Row(row.first, shares.mean(1) if head is None else shares[:, head])
        return found


def mean_rows(maps: Sequence[Mapping[int, Row]]) -> dict[int, Row]:
    """The rows of several attentions on average; of each sentence over those in which it sees something."""
    found: dict[int, Row] = {}
    counts: dict[int, int] = {}
    for rows in maps:
        for sentence, row in rows.items():
            found[sentence] = found[sentence].plus(row) if sentence in found else row
            counts[sentence] = counts.get(sentence, 0) + 1
    return {sentence: Row(row.first, row.weights / counts[sentence]) for sentence, row in sorted(found.items())}


class DocumentLooks:
    """What the sentences of one document look at, and how far gates are open at their tokens; it grows pass by pass."""

    def __init__(self, sentences: int) -> None:
        self.sentences = sentences
        self.maps: dict[Site, Map] = {}
        """of attentions that see several sentences and choose among them"""
        self.gates: dict[Site, dict[int, list[float | None]]] = {}
        """by sentence, for each token of the source (gates of the encoder) or of the decoder input: how far context
        is let in, on average over the elements; None: there is none"""
        self.tokens: dict[str, dict[int, list[int]]] = {"source": {}, "target": {}}
        """ids by side and sentence, marks included"""

    def read(self, placed: Placed) -> None:
        """Notes the tokens of a pass."""
        reading = placed.reading
        assert reading.target is not None
        for side, packed, numbers in (
            ("source", reading.source, torch.arange(len(reading.source.sentences))),
            ("target", reading.target, reading.aligned),
        ):
            own = packed.tokens.split(packed.sentences.lengths.tolist())
            for number, tokens in zip(numbers.tolist(), own, strict=True):
                if placed.own[number]:
                    self.tokens[side][int(placed.numbers[number])] = tokens.tolist()

    def look(self, look: Look, placed: Placed) -> None:
        """Adds what one attention looks at in a pass."""
        if not look.chooses:
            return
        own = self.maps.setdefault(look.site, Map(look.site))
        for sums in sentence_sums(look, placed):
            for first, first_seen, weights in zip(*sums, strict=True):
                for offset, row in enumerate(weights):
                    if row.any():
                        # A row may end with columns that are another segment's alone, with no weight in them.
                        kept = row[: int(row.any(1).nonzero().max()) + 1]
                        number = int(placed.numbers[int(first) + offset])
                        own.add(number, Row(int(placed.numbers[int(first_seen)]), kept))

    def gate(self, gate: GateLook, placed: Placed) -> None:
        """Adds how far a gate was open in a pass."""
        found = self.gates.setdefault(gate.site, {})
        numbers, shares = gate.query_sentences(), gate.shares.mean(-1).tolist()
        there = gate.there.tolist()
        for position, number in enumerate(numbers.tolist()):
            if placed.own[number]:
                share = shares[position] if there[position] else None
                found.setdefault(int(placed.numbers[number]), []).append(share)
