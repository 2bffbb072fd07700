"""Attentions and gates of a model over a corpus: entropies by layer and head, how far back it looks, gates by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from docmt.analysis.entropy import mean_bits_of
from docmt.analysis.looks import GateLook, Look, Site, TokenLook, watching
from docmt.analysis.sentences import DocumentLooks, Sums
from docmt.analysis.weights import bits
from docmt.data.batches import Placed
from docmt.model import TranslationModel
from docmt.model.linear_attention import LinearAttention

FAR_BACK = 4
ENTROPIES = "attention entropy in bits: of the mean over the heads, and of each head"
DISTANCES = "where attention looks, in sentences: percent of its weight, mean over the heads"
TEMPERATURES = "temperatures of linear attention: the lower, the more a head chooses"
SENTENCE_GATES = "gates of sentences: share of all that was said that is left to the next one (0 to 1), of each head"
GATES = "gates: share of the context that they let in, where there is any (0 to 1; mean and deviation over elements)"


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
    """weights [H + 1] (the last: of even attention) by how many sentences before the one that asks those are that are
    seen (below 0: after it), where it chooses among several"""

    def add_distances(self, sums: Sums) -> None:
        """Adds weights of one block."""
        asking, weights = sums.by_sentence()
        _, rows, columns, heads = weights.shape
        seen = sums.seen[:, None, None] + torch.arange(columns)
        distances = asking[:, None, None] + torch.arange(rows)[:, None] - seen  # [n, r, c]
        least = int(distances.min())
        totals = torch.zeros(int(distances.max()) - least + 1, heads, dtype=torch.float64)
        totals.index_add_(0, (distances - least).flatten(), weights.flatten(0, 2).double())
        for distance, total in enumerate(totals, least):
            if total.any():
                self.distances[distance] = total + self.distances.get(distance, 0)

    def entropy(self) -> float:
        """Mean over the queries, in bits."""
        return self.bits / self.queries

    def head_entropies(self) -> list[float]:
        """Of each head, in bits."""
        return [float(total) / self.queries for total in self.head_bits]

    def shares(self) -> dict[int, list[float]]:
        """By distance, of each head, and last of even attention: how much of its weight is there."""
        total = torch.stack(list(self.distances.values())).sum(0) if self.distances else torch.zeros(self.heads + 1)
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
class LinearSums:
    """What one linear attention has learned, and how far the gates of sentences, if it has any, are open."""

    temperatures: list[float]
    """of each head"""
    sentences: int = 0
    """that have another one after them"""
    left: Tensor | float = 0.0
    """[H] what they leave to the next, summed over them"""

    def add(self, left: Tensor) -> None:
        """Adds what n sentences leave to the next, [n, H]."""
        self.sentences += len(left)
        self.left = self.left + left.sum(0, dtype=torch.float64).cpu()

    def means(self) -> list[float]:
        """Of each head, from 0 (all is forgotten) to 1; empty where there is no gate."""
        return (torch.as_tensor(self.left) / self.sentences).tolist() if self.sentences else []


@dataclass
class Report:
    """Of every attention and every gate that met a token, in the order of the model's modules."""

    attentions: dict[Site, AttentionSums] = field(default_factory=dict)
    linear: dict[Site, LinearSums] = field(default_factory=dict)
    gates: dict[Site, GateSums] = field(default_factory=dict)

    def look(self, look: Look, placed: Placed) -> None:
        """Adds what one attention looks at in a pass."""
        for block in look.blocks():
            if not block.real.any():
                continue
            sums = self.attentions.setdefault(look.site, AttentionSums(block.weights.shape[1]))
            sums.queries += int(block.real.sum())
            sums.bits += mean_bits_of(block)[block.real].sum(dtype=torch.float64).item()
            by_head = bits(block.shares()).transpose(1, 2)[block.real].sum(0, dtype=torch.float64).cpu()  # [H]
            sums.head_bits = by_head + (sums.head_bits if len(sums.head_bits) else 0)
            if look.chooses:
                sums.add_distances(Sums(look, placed, block))
        if isinstance(look, TokenLook) and isinstance(look.attention, LinearAttention):
            temperatures = look.attention.features.temperatures().tolist()
            self.linear.setdefault(look.site, LinearSums(temperatures)).add(look.left())

    def gate(self, gate: GateLook, placed: Placed) -> None:
        """Adds how far a gate was open in a pass."""
        there = gate.there(placed.reading.source.sentences)
        shares = gate.shares[there.to(gate.shares.device)].double()
        if shares.numel():
            sums = self.gates.setdefault(gate.site, GateSums())
            sums.count += shares.numel()
            sums.total += shares.sum().item()
            sums.squares += shares.square().sum().item()

    def to_json(self) -> dict[str, Any]:
        """Lists of all attentions and of all gates."""
        return {
            "attentions": [
                {
                    **_place(site),
                    "queries": sums.queries,
                    "entropy": round(sums.entropy(), 6),
                    "head_entropies": _rounded(sums.head_entropies()),
                    "shares_by_distance": {str(d): _rounded(shares[:-1]) for d, shares in sums.shares().items()},
                    "even_shares": {str(d): round(shares[-1], 6) for d, shares in sums.shares().items()},
                }
                for site, sums in self.attentions.items()
            ],
            "linear": [
                {
                    **_place(site),
                    "temperatures": _rounded(sums.temperatures),
                    "sentence_gates": _rounded(sums.means()),
                }
                for site, sums in self.linear.items()
            ],
            "gates": [
                {
                    **_place(site),
                    "context_share": round(sums.mean(), 6),
                    "deviation": round(sums.deviation(), 6),
                }
                for site, sums in self.gates.items()
            ],
        }

    def format(self) -> str:
        """Tables for people."""
        parts = [f"{ENTROPIES}\n{_table(self._entropies())}"]
        if any(sums.distances for sums in self.attentions.values()):
            parts.append(f"{DISTANCES}\n{_table(self._distances())}")
        if any(sums.temperatures for sums in self.linear.values()):
            parts.append(f"{TEMPERATURES}\n{_table(self._by_head(lambda sums: sums.temperatures))}")
        if any(sums.sentences for sums in self.linear.values()):
            parts.append(f"{SENTENCE_GATES}\n{_table(self._by_head(LinearSums.means))}")
        if self.gates:
            parts.append(f"{GATES}\n{_table(self._gates())}")
        return "\n\n".join(parts)

    def _entropies(self) -> list[list[str]]:
        heads = max((sums.heads for sums in self.attentions.values()), default=0)
        rows = [["", "layer", "mean", *(f"head {number}" for number in range(1, heads + 1))]]
        for site, sums in self.attentions.items():
            rows.append([*_named(site), *(f"{value:.2f}" for value in (sums.entropy(), *sums.head_entropies()))])
        return rows

    def _distances(self) -> list[list[str]]:
        nearer = [f"{distance} before" for distance in range(FAR_BACK - 1, 0, -1)]
        rows = [["", "layer", f"{FAR_BACK}+ before", *nearer, "own", "after"]]
        by_kind: dict[str, list[tuple[Site, dict[int, list[float]]]]] = {}
        for site, sums in self.attentions.items():
            if sums.distances:
                by_kind.setdefault(site.kind, []).append((site, sums.shares()))
        for layers in by_kind.values():
            for site, shares in layers:
                means = {distance: sum(own[:-1]) / len(own[:-1]) for distance, own in shares.items()}
                rows.append([*_named(site), *_by_distance(means)])
            even = {distance: own[-1] for distance, own in layers[0][1].items()}  # all layers see the same
            rows.append(["  if it were even", "", *_by_distance(even)])
        return rows

    def _by_head(self, values: Callable[[LinearSums], Sequence[float]]) -> list[list[str]]:
        """A row for each linear attention that has such values, one for each head."""
        found = {site: values(sums) for site, sums in self.linear.items() if values(sums)}
        heads = max(map(len, found.values()))
        rows = [["", "layer", "mean", *(f"head {number}" for number in range(1, heads + 1))]]
        for site, own in found.items():
            rows.append([*_named(site), *(f"{value:.3f}" for value in (sum(own) / len(own), *own))])
        return rows

    def _gates(self) -> list[list[str]]:
        rows = [["", "layer", "mean", "deviation"]]
        for site, sums in self.gates.items():
            rows.append([*_named(site), f"{sums.mean():.3f}", f"{sums.deviation():.3f}"])
        return rows


def _by_distance(shares: Mapping[int, float]) -> list[str]:
    """Cells in percent, from the farthest before to those after."""
    cells = [0.0] * (FAR_BACK + 2)
    for distance, share in shares.items():
        cells[FAR_BACK - max(min(distance, FAR_BACK), -1)] += 100 * share
    return [f"{cell:.1f}" for cell in cells]


def _place(site: Site) -> dict[str, Any]:
    return {"kind": site.kind, "layer": site.layer, **({"back": site.back} if site.back else {})}


def _named(site: Site) -> list[str]:
    words = site.kind.replace("_", " ")
    return [f"{words} {site.back}" if site.back else words, str(site.layer)]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns of the same width, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *cells[1:]]) for row, cells in zip(rows, aligned, strict=True))


def look_at_corpus(model: TranslationModel, passes: Iterable[Placed], report: Report | None = None) -> Report:
    """What the model does on these passes, added to a report, or in a new one.

    Means are over all query tokens, also of what is only read as context; where attention looks is that of the
    sentences that are translated.
    """
    report = Report() if report is None else report
    _watch(model, passes, report.look, report.gate, lambda placed: None)
    return report


def look_at_document(
    model: TranslationModel, passes: Iterable[Placed], sentences: int, sentence: int | None = None
) -> DocumentLooks:
    """What the sentences of one document look at, of which these are the passes; sentence (from 0): also its tokens."""
    found = DocumentLooks(sentences, sentence)
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
