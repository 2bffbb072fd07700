"""Attention entropy and gates of a model over a corpus (Bao et al. 2021, figures 4, 5 and 8).

Weights are averaged over the heads. The entropy of a query is -sum p log2 p in bits, from 0 (all weight on one token)
to log2 n (uniform over n tokens). Weights come from `docmt.analysis.attention_records`.

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

from docmt.analysis.attention_records import (
    AttentionRecord,
    GateRecord,
    SentenceAttentionRecord,
    Site,
    TokenAttentionRecord,
    attention_sites,
    entropy_bits,
    record_attention,
)
from docmt.core.plain_text import align_columns
from docmt.data import Batch
from docmt.model import ModelInput, Spans, TranslationModel
from docmt.model.attention_weights import WeightBlock
from docmt.model.linear_attention import LinearAttention
from docmt.model.transformer import evaluation_mode

KINDS = tuple(
    f"{site}_{scope}" for site in ("encoder_self", "decoder_self", "decoder_cross") for scope in ("local", "global")
)
"""Kinds of attention in most systems: local attention stays in a sentence, global attention sees the whole instance.
Attention to another memory is named after it, such as encoder_context_local. Attention to previous sentences ends in
_before. Hierarchical attention attends to words (_before), then to sentences (_sentences). Selective attention has the
weights of sentences (_sentences)."""


class EntropyMeter:
    """Sums of entropies by the kinds of attention that a model has.

    All layers of a kind have the same queries, so the mean over layers and queries is the mean of the layers' means.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.bits = dict.fromkeys(sorted(set(kinds), key=lambda kind: (*KINDS, kind).index(kind)), 0.0)
        """sums over layers and query tokens"""
        self.queries = dict.fromkeys(self.bits, 0)
        """number of entropies in each sum"""

    def add(self, kind: str, entropies: Tensor) -> None:
        """Add the entropies [n] of queries of one layer."""
        self.bits[kind] += entropies.sum(dtype=torch.float64).item()
        self.queries[kind] += entropies.numel()

    def means(self) -> dict[str, float]:
        """Return bits per query and layer by kind. Kinds without a query are left out."""
        return mean_entropies(self.bits, self.queries)


def mean_entropies(bits: Mapping[str, float], queries: Mapping[str, float]) -> dict[str, float]:
    """Divide sums of entropies by their counts. Kinds without a query are left out."""
    return {kind: total / queries[kind] for kind, total in bits.items() if queries[kind]}


def attention_entropy(model: TranslationModel, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the mean attention entropy of a model on batches, in bits, for each of `KINDS` that it has.

    The mean is over all query tokens (decoder: the decoder input) and over the layers with this kind of attention.
    Dropout is off. The mode of the model is restored.
    """
    with evaluation_mode(model), torch.no_grad(), measure_entropy(model) as meter:
        for batch in batches:
            model(batch.inputs.to(model.device))
    return meter.means()


@contextmanager
def measure_entropy(model: TranslationModel) -> Iterator[EntropyMeter]:
    """Add the entropies of every full pass of `model` to the meter while the block runs.

    A pass takes about 1.5 times as long (256-wide model, 500-token instances, CPU). Measure in validation, not in
    training, where padding tokens would count as well. Incremental decoding is not measured.
    """
    meter = EntropyMeter(site.kind for site in attention_sites(model))

    def measure(record: AttentionRecord) -> None:
        for block in record.blocks():
            meter.add(record.site.kind, block_entropies(block)[block.is_query])

    with record_attention(model, measure):
        yield meter


def block_entropies(block: WeightBlock) -> Tensor:
    """Return the entropy in bits [n, q] of each query's weights, averaged over the heads."""
    return entropy_bits(block.shares().mean(1))


MAX_DISTANCE = 4
"""Largest distance with its own table column. Larger ones share it."""
ENTROPIES = "attention entropy in bits: of the mean over heads, and of each head"
DISTANCES = "attention by distance in sentences: percent of weight, mean over heads"
TEMPERATURES = "temperatures of linear attention: lower is sharper"
SENTENCE_GATES = "sentence gates: share of the history passed to the next sentence (0 to 1), by head"
GATES = "gates: share of context let in, where there is context (0 to 1; mean and deviation over elements)"


@dataclass
class RunningMean:
    """Running means of columns."""

    count: int = 0
    """number of rows"""
    total: Tensor | float = 0.0
    """[k] sums of the columns"""

    def add(self, rows: Tensor) -> None:
        """Add rows [n, k]."""
        self.count += len(rows)
        self.total = self.total + rows.sum(0, dtype=torch.float64).cpu()

    def values(self) -> list[float]:
        """Return the mean of each column, empty without rows."""
        return (torch.as_tensor(self.total) / self.count).tolist() if self.count else []


@dataclass
class AttentionSums:
    """Sums over the queries of one attention."""

    entropies: RunningMean = field(default_factory=RunningMean)
    """entropies in bits: of the mean over heads, then of each head"""
    distances: dict[int, Tensor] = field(default_factory=dict)
    """weights [H + 1] (last: of uniform attention) by distance: sentences from the key back to the query, negative for
    later keys"""
    sentences: dict[int, dict[int, float]] = field(default_factory=dict)
    """of attention to sentences: by the number of a sentence in the text, from 0, the weights of other sentences above
    zero, by number, mean over heads and tokens"""

    def add_distances(self, block: WeightBlock, distances: Tensor, is_counted: Tensor) -> None:
        """Add the weights of one block.

        distances [n, q, l]: sentences from key back to query. is_counted [n, q] bool: queries to count.
        """
        uniform = block.visible / block.visible.sum(-1, keepdim=True).clamp(min=1)  # [n, q or 1, l]
        shares = block.shares()
        weights = torch.cat((shares, uniform[:, None].expand_as(shares[:, :1])), dim=1).cpu()
        weights = weights * is_counted[:, None, :, None]
        least = int(distances.min())
        totals = torch.zeros(int(distances.max()) - least + 1, weights.shape[1], dtype=torch.float64)
        totals.index_add_(0, (distances - least).flatten(), weights.permute(0, 2, 3, 1).flatten(0, 2).double())
        for distance, total in enumerate(totals, least):
            if total.any():
                self.distances[distance] = total + self.distances.get(distance, 0)

    def add_sentences(self, block: WeightBlock, query_sentences: Tensor, numbers: Tensor) -> None:
        """Add the weights of sentences in a block whose keys are sentences.

        query_sentences [n, 1]: the sentence of each query; numbers [S]: its number in the text, or -1.
        """
        weights = (block.weights.mean(1) * block.visible)[:, 0].cpu()  # [n, l]
        keys, is_query = block.keys.cpu(), block.is_query[:, 0].cpu()
        for sentence in query_sentences[is_query].unique().tolist():
            if (number := int(numbers[sentence])) < 0:
                continue
            rows = is_query & (query_sentences[:, 0] == sentence)
            means = dict(zip(keys[rows][0].tolist(), weights[rows].mean(0).tolist(), strict=True))
            # Sentences of an instance follow each other in the text.
            self.sentences[number] = {number + key - sentence: mean for key, mean in means.items() if mean > 0}

    def shares(self) -> dict[int, list[float]]:
        """Return the share of the weight at each distance, by head and last for uniform attention."""
        total = sum(self.distances.values())
        return {distance: (weights / total).tolist() for distance, weights in sorted(self.distances.items())}


@dataclass
class LinearSums:
    """Temperatures and sentence gates of one linear attention."""

    temperatures: list[float]
    """temperature of each head"""
    sentence_gates: RunningMean = field(default_factory=RunningMean)
    """share of the history that a sentence passes to the next one, by head"""


def mean_and_deviation(sums: RunningMean) -> tuple[float, float]:
    """Return mean and standard deviation from the means of a number and its square."""
    mean, square = sums.values()
    return mean, math.sqrt(max(square - mean**2, 0.0))


@dataclass
class AttentionReport:
    """Entropies, distances and gates of a model, in the order of its modules."""

    attentions: dict[Site, AttentionSums] = field(default_factory=dict)
    linear: dict[Site, LinearSums] = field(default_factory=dict)
    gates: dict[Site, RunningMean] = field(default_factory=dict)
    """share of the context that a gate lets in, and its square, over elements of tokens with context"""
    num_sentences: int = 0
    """number of translated sentences"""

    def add_attention(self, record: AttentionRecord, source: Spans, numbers: Tensor) -> None:
        """Add the record of one attention.

        source: the S sentences of the packed source. numbers: [S] int64, their numbers in the text, -1 for sentences
        read only as context.
        """
        for block in record.blocks():
            if not block.is_query.any():
                continue
            sums = self.attentions.setdefault(record.site, AttentionSums())
            shares = block.shares()
            entropies = entropy_bits(torch.cat((shares.mean(1, keepdim=True), shares), dim=1))  # [n, 1 + H, q]
            sums.entropies.add(entropies.transpose(1, 2)[block.is_query])
            if record.sees_several_sentences:
                query_sentences = record.query_sentences()[block.queries.cpu()]  # [n, q]
                key_sentences = record.key_sentences(source)[block.keys.cpu()]  # [n, l]
                is_translated = numbers[query_sentences] >= 0
                is_counted = block.is_query.cpu() & is_translated & record.is_read()[block.queries.cpu()]
                sums.add_distances(block, query_sentences[:, :, None] - key_sentences[:, None], is_counted)
                if isinstance(record, SentenceAttentionRecord):
                    sums.add_sentences(block._replace(keys=key_sentences), query_sentences, numbers)
        if isinstance(record, TokenAttentionRecord) and isinstance(record.attention, LinearAttention):
            temperatures = record.attention.features.temperatures().tolist()
            sentence_gates = self.linear.setdefault(record.site, LinearSums(temperatures)).sentence_gates
            sentence_gates.add(record.sentence_gates())

    def add_gate(self, record: GateRecord, source: Spans) -> None:
        """Add the record of one gate. source: sentences of the packed source."""
        has_context = record.has_context(source)
        shares = record.shares[has_context.to(record.shares.device)].double().flatten()
        if shares.numel():
            self.gates.setdefault(record.site, RunningMean()).add(torch.stack((shares, shares.square()), dim=1))

    def to_json(self) -> dict[str, Any]:
        """Return lists of all attentions and gates as JSON values."""
        return {
            "attentions": [
                {
                    **_site_fields(site),
                    "queries": sums.entropies.count,
                    "entropy": round(sums.entropies.values()[0], 6),
                    "head_entropies": _rounded(sums.entropies.values()[1:]),
                    "shares_by_distance": {str(d): _rounded(shares[:-1]) for d, shares in sums.shares().items()},
                    "even_shares": {str(d): round(shares[-1], 6) for d, shares in sums.shares().items()},
                    **({"sentence_weights": _by_sentence(sums.sentences)} if sums.sentences else {}),
                }
                for site, sums in self.attentions.items()
            ],
            "linear": [
                {
                    **_site_fields(site),
                    "temperatures": _rounded(sums.temperatures),
                    "sentence_gates": _rounded(sums.sentence_gates.values()),
                }
                for site, sums in self.linear.items()
            ],
            "gates": [
                {**_site_fields(site), "context_share": share, "deviation": deviation}
                for site, sums in self.gates.items()
                for share, deviation in [_rounded(mean_and_deviation(sums))]
            ],
        }

    def format(self) -> str:
        """Return the report as tables."""
        entropies = {site: sums.entropies.values() for site, sums in self.attentions.items()}
        linear = self.linear.items()
        temperatures = {site: _mean_and_all(sums.temperatures) for site, sums in linear if sums.temperatures}
        sentence_gates = {
            site: _mean_and_all(sums.sentence_gates.values()) for site, sums in linear if sums.sentence_gates.count
        }
        gates = {site: mean_and_deviation(sums) for site, sums in self.gates.items()}
        tables = {
            ENTROPIES: _by_head(entropies, 2),
            DISTANCES: self._distances(),
            TEMPERATURES: _by_head(temperatures, 3),
            SENTENCE_GATES: _by_head(sentence_gates, 3),
            GATES: [["", "layer", "mean", "deviation"], *_value_rows(gates, 3)],
        }
        return "\n\n".join("\n".join([title, *align_columns(rows)]) for title, rows in tables.items() if rows[1:])

    def _distances(self) -> list[list[str]]:
        nearer = [f"{distance} before" for distance in range(MAX_DISTANCE - 1, 0, -1)]
        rows = [["", "layer", f"{MAX_DISTANCE}+ before", *nearer, "same", "after"]]
        by_kind: dict[str, list[tuple[Site, dict[int, list[float]]]]] = {}
        for site, sums in self.attentions.items():
            if sums.distances:
                by_kind.setdefault(site.kind, []).append((site, sums.shares()))
        for layers in by_kind.values():
            for site, shares in layers:
                means = {distance: sum(heads) / len(heads) for distance, (*heads, _) in shares.items()}
                rows.append([*_site_cells(site), *_distance_cells(means)])
            uniform = {distance: share for distance, (*_, share) in layers[0][1].items()}  # equal in all layers
            rows.append(["  if uniform", "", *_distance_cells(uniform)])
        return rows


def _by_head(values: Mapping[Site, Sequence[float]], digits: int) -> list[list[str]]:
    """Return a table with the mean and each head."""
    columns = max(map(len, values.values()), default=0)
    return [["", "layer", "mean", *(f"head {number}" for number in range(1, columns))], *_value_rows(values, digits)]


def _value_rows(values: Mapping[Site, Sequence[float]], digits: int) -> list[list[str]]:
    return [[*_site_cells(site), *(f"{value:.{digits}f}" for value in row)] for site, row in values.items()]


def _mean_and_all(values: Sequence[float]) -> list[float]:
    return [sum(values) / len(values), *values]


def _distance_cells(shares: Mapping[int, float]) -> list[str]:
    """Return cells in percent, from the farthest previous sentence to later ones."""
    cells = [0.0] * (MAX_DISTANCE + 2)
    for distance, share in shares.items():
        cells[MAX_DISTANCE - max(min(distance, MAX_DISTANCE), -1)] += 100 * share
    return [f"{cell:.1f}" for cell in cells]


def _site_fields(site: Site) -> dict[str, Any]:
    return {"kind": site.kind, "layer": site.layer, **({"back": site.back} if site.back else {})}


def _site_cells(site: Site) -> list[str]:
    words = site.kind.replace("_", " ")
    if site.back < 0:
        words = words.replace("before", "after")
    return [f"{words} {abs(site.back)}" if site.back else words, str(site.layer)]


def _by_sentence(weights: Mapping[int, Mapping[int, float]]) -> dict[str, dict[str, float]]:
    """Return the weights of other sentences by sentence, numbered from 1."""
    return {
        str(number + 1): {str(other + 1): round(weight, 6) for other, weight in sorted(others.items())}
        for number, others in sorted(weights.items())
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def report_attention(
    model: TranslationModel, passes: Iterable[tuple[ModelInput, Tensor]], report: AttentionReport | None = None
) -> AttentionReport:
    """Add the attentions and gates of these passes to a report, or to a new one, and return it.

    A pass is a model input and [S] int64, the number of each source sentence in the text of these passes, or -1 if it
    is only context. Numbers continue after those of the report. Means are over all query tokens, including context.
    Distances are only those of translated sentences. Dropout is off. The mode of the model is restored.
    """
    report = AttentionReport() if report is None else report
    first = report.num_sentences
    with evaluation_mode(model):
        for inputs, numbers in passes:
            source = inputs.source.sentences
            numbers = torch.where(numbers >= 0, numbers + first, -1)
            report.num_sentences = max(report.num_sentences, int(numbers.max()) + 1)
            on_attention = partial(report.add_attention, source=source, numbers=numbers)
            on_gate = partial(report.add_gate, source=source)
            with torch.no_grad(), record_attention(model, on_attention, on_gate):
                model(inputs)
    return report
