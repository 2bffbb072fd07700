"""Attentions and gates of a model over a corpus: entropies by layer and head, how far back it looks, gates by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from docmt.analysis.entropy import mean_bits_of
from docmt.analysis.looks import GateLook, Look, Site, watching
from docmt.analysis.sentences import DocumentLooks, sentence_sums
from docmt.analysis.weights import bits
from docmt.data.batches import Placed
from docmt.model import TranslationModel


@dataclass
class AttentionSums:
    """What one attention did, summed over its queries."""

    heads: int
    queries: int = 0
    bits: float = 0.0
    """entropies of the weights that are averaged over the heads first"""
    head_bits: Tensor = field(default_factory=lambda: torch.zeros(0))
    """[H] entropies of each head's own weights"""
    distances: dict[int, Tensor] = field(default_factory=dict)
    """weights [H] by how many sentences before the one that asks those are that are seen (below 0: after it), where it
    chooses among several"""

    def entropy(self) -> float:
        """Mean over the queries, in bits."""
        return self.bits / self.queries

    def head_entropies(self) -> list[float]:
        """Of each head, in bits."""
        return [float(total) / self.queries for total in self.head_bits]

    def shares(self) -> dict[int, list[float]]:
        """By distance, of each head: how much of its weight is there."""
        total = torch.stack(list(self.distances.values())).sum(0) if self.distances else torch.zeros(self.heads)
        return {distance: (weights / total).tolist() for distance, weights in sorted(self.distances.items())}


@dataclass
class GateSums:
    """How far a gate let context in, summed over the tokens where there was any, and over elements."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def mean(self) -> float:
        """From 0 (nothing of the context) to 1."""
        return self.total / self.count

    def deviation(self) -> float:
        """Standard deviation over tokens and elements."""
        return math.sqrt(max(self.squares / self.count - self.mean() ** 2, 0.0))


@dataclass
class Report:
    """Of every attention and every gate that met a token, in the order of the model's modules."""

    attentions: dict[Site, AttentionSums] = field(default_factory=dict)
    gates: dict[Site, GateSums] = field(default_factory=dict)

    def look(self, look: Look, placed: Placed) -> None:
        """Adds what one attention looks at in a pass."""
        for block in look.blocks():
            sums = self.attentions.setdefault(look.site, AttentionSums(block.weights.shape[1]))
            sums.queries += int(block.real.sum())
            sums.bits += mean_bits_of(block)[block.real].sum(dtype=torch.float64).item()
            by_head = bits(block.weights).transpose(1, 2)[block.real].sum(0, dtype=torch.float64).cpu()  # [H]
            sums.head_bits = by_head + (sums.head_bits if len(sums.head_bits) else 0)
        if look.chooses:
            self._add_distances(look, placed)

    def _add_distances(self, look: Look, placed: Placed) -> None:
        for found in sentence_sums(look, placed):
            _, rows, columns, heads = found.weights.shape
            asking = found.asking[:, None, None] + torch.arange(rows)[:, None]
            distances = asking - (found.seen[:, None, None] + torch.arange(columns))  # [n, r, c]
            least = int(distances.min())
            sums = torch.zeros(int(distances.max()) - least + 1, heads, dtype=torch.float64)
            sums.index_add_(0, (distances - least).flatten(), found.weights.flatten(0, 2).double())
            own = self.attentions[look.site].distances
            for distance, weights in enumerate(sums, least):
                if weights.any():
                    own[distance] = weights + own.get(distance, 0)

    def gate(self, gate: GateLook) -> None:
        """Adds how far a gate was open in a pass."""
        shares = gate.shares[gate.there.to(gate.shares.device)].double()
        if shares.numel():
            sums = self.gates.setdefault(gate.site, GateSums())
            sums.count += shares.numel()
            sums.total += shares.sum().item()
            sums.squares += shares.square().sum().item()


def look_at_corpus(
    model: TranslationModel, passes: Iterable[Placed], on_pass: Callable[[Placed], object] = lambda placed: None
) -> Report:
    """What the model does on these passes. Means are over all query tokens, those read only for context included;
    how far back it looks is that of the sentences that are translated."""
    report = Report()
    _watch(model, passes, report.look, lambda gate, placed: report.gate(gate), on_pass)
    return report


def look_at_document(model: TranslationModel, passes: Iterable[Placed], sentences: int) -> DocumentLooks:
    """What the sentences of one document look at, of which these are the passes."""
    found = DocumentLooks(sentences)
    _watch(model, passes, found.look, found.gate, found.read)
    return found


def _watch(
    model: TranslationModel,
    passes: Iterable[Placed],
    on_look: Callable[[Look, Placed], object],
    on_gate: Callable[[GateLook, Placed], object],
    on_pass: Callable[[Placed], object],
) -> None:
    """Runs the passes, without dropout and without gradients; the mode of the model is left as it was."""
    was_training = model.training
    model.eval()
    now: list[Placed] = []
    try:
        with torch.no_grad(), watching(model, lambda look: on_look(look, now[-1]), lambda gate: on_gate(gate, now[-1])):
            for placed in passes:
                now[:] = [placed]
                model(placed.reading)
                on_pass(placed)
    finally:
        model.train(was_training)
