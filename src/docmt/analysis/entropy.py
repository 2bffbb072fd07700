"""Attention entropy and gates of a model over a corpus (Bao et al. 2021, figures 4, 5 and 8).

Weights are averaged over the heads first; then every query has the entropy -sum p log2 p in bits, from 0 (all on one
token) to log2 n (even over n tokens). Measured from outside of the model (`docmt.analysis.looks`).

Notation as in `model/` (T packed tokens, H heads, k = d / H).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from docmt.analysis.looks import Block, GateLook, Look, Site, TokenLook, attention_sites, bits, watching
from docmt.core.plain_text import aligned
from docmt.data import Batch
from docmt.model import ModelInput, Spans, TranslationModel
from docmt.model.linear_attention import LinearAttention
from docmt.model.transformer import evaluating

KINDS = tuple(
    f"{site}_{scope}" for site in ("encoder_self", "decoder_self", "decoder_cross") for scope in ("local", "global")
)
"""What is told apart in most systems: local attention stays within sentences, global attention sees the whole instance.
Attention to another memory is named after it, as in encoder_context_local, and attention to a sentence before ends in
_before. What looks at several sentences before at once does so at their words (_before), then at them (_sentences)."""


class EntropyMeter:
    """Entropies added up by kind; only the kinds that the model has.

    Each layer of a kind meets the same queries, so one mean over layers and queries is the mean over layers of the
    means over queries.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.bits = dict.fromkeys(sorted(set(kinds), key=lambda kind: (*KINDS, kind).index(kind)), 0.0)
        """sums over layers and query tokens"""
        self.queries = dict.fromkeys(self.bits, 0)
        """how many entropies each sum is made of"""

    def add(self, kind: str, entropies: Tensor) -> None:
        """Adds the entropies [n] of some queries of one layer."""
        self.bits[kind] += entropies.sum(dtype=torch.float64).item()
        self.queries[kind] += entropies.numel()

    def means(self) -> dict[str, float]:
        """Bits per query and layer, by kind; kinds that met no query are left out."""
        return mean_bits(self.bits, self.queries)


def mean_bits(bits: Mapping[str, float], queries: Mapping[str, float]) -> dict[str, float]:
    """Sums divided by their counts; kinds without a count are left out."""
    return {kind: total / queries[kind] for kind, total in bits.items() if queries[kind]}


def attention_entropy(model: TranslationModel, batches: Iterable[Batch]) -> dict[str, float]:
    """Mean attention entropy of the model on these batches, in bits, for each of `KINDS` that it has.

    The mean is over all query tokens of all batches (decoder: the decoder input) and over the layers that have this
    kind of attention. Dropout is off; the model's mode is left as it was.
    """
    with evaluating(model), torch.no_grad(), measuring_entropy(model) as meter:
        for batch in batches:
            model(batch.inputs.to(model.device))
    return meter.means()


@contextmanager
def measuring_entropy(model: TranslationModel) -> Iterator[EntropyMeter]:
    """While the block runs, every forward pass of `model` adds to the meter, and computes what it computes without.

    A pass takes about 1.5 times as long (256-wide model, 500-token instances, CPU), so measure in validation, not in
    every update; there, the tokens that fill up training batches would count as well. Decoding step by step does
    not pass through here.
    """
    meter = EntropyMeter(site.kind for site in attention_sites(model))

    def measure(look: Look) -> None:
        for block in look.blocks():
            meter.add(look.site.kind, mean_bits_of(block)[block.real])

    with watching(model, measure):
        yield meter


def mean_bits_of(block: Block) -> Tensor:
    """Entropy in bits [n, q] of the weights of each query, averaged over the heads first."""
    return bits(block.shares().mean(1))


FAR_BACK = 4
ENTROPIES = "attention entropy in bits: of the mean over the heads, and of each head"
DISTANCES = "where attention looks, in sentences: percent of its weight, mean over the heads"
TEMPERATURES = "temperatures of linear attention: the lower, the more a head chooses"
SENTENCE_GATES = "gates of sentences: share of all that was said that is left to the next one (0 to 1), of each head"
GATES = "gates: share of the context that they let in, where there is any (0 to 1; mean and deviation over elements)"


@dataclass
class Mean:
    """Means of columns of numbers, whose rows come bit by bit."""

    count: int = 0
    """rows"""
    total: Tensor | float = 0.0
    """[k] of the columns"""

    def add(self, rows: Tensor) -> None:
        """Add rows [n, k]."""
        self.count += len(rows)
        self.total = self.total + rows.sum(0, dtype=torch.float64).cpu()

    def values(self) -> list[float]:
        """Return the mean of each column; empty where there is no row."""
        return (torch.as_tensor(self.total) / self.count).tolist() if self.count else []


@dataclass
class AttentionSums:
    """What one attention did."""

    entropies: Mean = field(default_factory=Mean)
    """in bits, of each query: of the weights that are averaged over the heads first, then of those of each head"""
    distances: dict[int, Tensor] = field(default_factory=dict)
    """weights [H + 1] (the last: of even attention) by how many sentences before the one that asks those are that are
    seen (below 0: after it), where it chooses among several"""

    def add_distances(self, block: Block, distances: Tensor, counts: Tensor) -> None:
        """Add the weights of one block.

        distances [n, q, l]: how many sentences before the one that asks those are that are seen; counts [n, q] bool:
        which queries count.
        """
        even = block.seen / block.seen.sum(-1, keepdim=True).clamp(min=1)  # [n, q or 1, l]
        shares = block.shares()
        weights = torch.cat((shares, even[:, None].expand_as(shares[:, :1])), dim=1).cpu() * counts[:, None, :, None]
        least = int(distances.min())
        totals = torch.zeros(int(distances.max()) - least + 1, weights.shape[1], dtype=torch.float64)
        totals.index_add_(0, (distances - least).flatten(), weights.permute(0, 2, 3, 1).flatten(0, 2).double())
        for distance, total in enumerate(totals, least):
            if total.any():
                self.distances[distance] = total + self.distances.get(distance, 0)

    def shares(self) -> dict[int, list[float]]:
        """By distance, of each head, and last of even attention: how much of its weight is there."""
        total = sum(self.distances.values())
        return {distance: (weights / total).tolist() for distance, weights in sorted(self.distances.items())}


@dataclass
class LinearSums:
    """What one linear attention has learned, and how far the gates of sentences, if it has any, are open."""

    temperatures: list[float]
    """of each head"""
    left: Mean = field(default_factory=Mean)
    """what each sentence that has another one after it leaves to that one: of each head, from 0 (nothing) to 1"""


def mean_and_deviation(sums: Mean) -> tuple[float, float]:
    """Return the mean of a number, of which it and its square are added up, and its standard deviation."""
    mean, square = sums.values()
    return mean, math.sqrt(max(square - mean**2, 0.0))


@dataclass
class AttentionReport:
    """Of every attention and every gate that met a token, in the order of the model's modules."""

    attentions: dict[Site, AttentionSums] = field(default_factory=dict)
    linear: dict[Site, LinearSums] = field(default_factory=dict)
    gates: dict[Site, Mean] = field(default_factory=dict)
    """of the share of the context that they let in, and of its square, over tokens where there is any, and elements"""

    def look(self, look: Look, source: Spans, translated: Tensor) -> None:
        """Add what one attention looks at in a pass.

        source: the S sentences of the packed source; translated [S] bool: others are read as context alone.
        """
        for block in look.blocks():
            if not block.real.any():
                continue
            sums = self.attentions.setdefault(look.site, AttentionSums())
            shares = block.shares()
            entropies = bits(torch.cat((shares.mean(1, keepdim=True), shares), dim=1))  # [n, 1 + H, q]
            sums.entropies.add(entropies.transpose(1, 2)[block.real])
            if look.chooses:
                asking = look.query_sentences()[block.queries.cpu()]  # [n, q]
                seen = look.key_sentences(source)[block.keys.cpu()]  # [n, l]
                counts = block.real.cpu() & translated[asking]
                sums.add_distances(block, asking[:, :, None] - seen[:, None], counts)
        if isinstance(look, TokenLook) and isinstance(look.attention, LinearAttention):
            temperatures = look.attention.features.temperatures().tolist()
            self.linear.setdefault(look.site, LinearSums(temperatures)).left.add(look.left())

    def gate(self, gate: GateLook, source: Spans) -> None:
        """Add how far a gate was open in a pass; source: the sentences of the packed source."""
        there = gate.there(source)
        shares = gate.shares[there.to(gate.shares.device)].double().flatten()
        if shares.numel():
            self.gates.setdefault(gate.site, Mean()).add(torch.stack((shares, shares.square()), dim=1))

    def to_json(self) -> dict[str, Any]:
        """Lists of all attentions and of all gates."""
        return {
            "attentions": [
                {
                    **_place(site),
                    "queries": sums.entropies.count,
                    "entropy": round(sums.entropies.values()[0], 6),
                    "head_entropies": _rounded(sums.entropies.values()[1:]),
                    "shares_by_distance": {str(d): _rounded(shares[:-1]) for d, shares in sums.shares().items()},
                    "even_shares": {str(d): round(shares[-1], 6) for d, shares in sums.shares().items()},
                }
                for site, sums in self.attentions.items()
            ],
            "linear": [
                {
                    **_place(site),
                    "temperatures": _rounded(sums.temperatures),
                    "sentence_gates": _rounded(sums.left.values()),
                }
                for site, sums in self.linear.items()
            ],
            "gates": [
                {**_place(site), "context_share": share, "deviation": deviation}
                for site, sums in self.gates.items()
                for share, deviation in [_rounded(mean_and_deviation(sums))]
            ],
        }

    def format(self) -> str:
        """Tables for people."""
        entropies = {site: sums.entropies.values() for site, sums in self.attentions.items()}
        linear = self.linear.items()
        temperatures = {site: _mean_and_all(sums.temperatures) for site, sums in linear if sums.temperatures}
        sentence_gates = {site: _mean_and_all(sums.left.values()) for site, sums in linear if sums.left.count}
        gates = {site: mean_and_deviation(sums) for site, sums in self.gates.items()}
        tables = {
            ENTROPIES: _by_head(entropies, 2),
            DISTANCES: self._distances(),
            TEMPERATURES: _by_head(temperatures, 3),
            SENTENCE_GATES: _by_head(sentence_gates, 3),
            GATES: [["", "layer", "mean", "deviation"], *_numbers(gates, 3)],
        }
        return "\n\n".join("\n".join([title, *aligned(rows)]) for title, rows in tables.items() if rows[1:])

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


def _by_head(values: Mapping[Site, Sequence[float]], digits: int) -> list[list[str]]:
    """Return a table of the mean and of each head."""
    columns = max(map(len, values.values()), default=0)
    return [["", "layer", "mean", *(f"head {number}" for number in range(1, columns))], *_numbers(values, digits)]


def _numbers(values: Mapping[Site, Sequence[float]], digits: int) -> list[list[str]]:
    return [[*_named(site), *(f"{value:.{digits}f}" for value in row)] for site, row in values.items()]


def _mean_and_all(values: Sequence[float]) -> list[float]:
    return [sum(values) / len(values), *values]


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


def look_at_corpus(
    model: TranslationModel, passes: Iterable[tuple[ModelInput, Tensor]], report: AttentionReport | None = None
) -> AttentionReport:
    """Add what the model does in these passes to a report, or to a new one, and return it.

    A pass is what the model reads, and [S] bool: which sentences of the source are translated. Means are over all
    query tokens, also of what is only read as context; where attention looks is that of the sentences that are
    translated. Dropout is off; the model's mode is left as it was.
    """
    report = AttentionReport() if report is None else report
    with evaluating(model):
        for inputs, translated in passes:
            source = inputs.source.sentences
            looking = partial(report.look, source=source, translated=translated)
            gating = partial(report.gate, source=source)
            with torch.no_grad(), watching(model, looking, gating):
                model(inputs)
    return report
