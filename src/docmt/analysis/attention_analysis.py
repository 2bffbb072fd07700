"""Attention of a model: records of weights and gates by forward hooks, and their entropies and distances in a corpus.

Without hooks a model has no overhead. Attentions and gates are found by class, so every system is covered.
Incremental decoding is not recorded, but scoring a translation computes the same.

The entropy of a query is -sum p log2 p in bits, from 0 (all weight on one token) to log2 n (uniform over n tokens), of
weights averaged over the heads (Bao et al. 2021, figures 4, 5 and 8).

Notation as in `model/` (T packed tokens, S sentences, H heads, d model width, k = d / H).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from docmt.core.plain_text import align_columns
from docmt.data import Batch
from docmt.model import ModelInput, Spans, TranslationModel
from docmt.model.attention import Attention, GateSigmoid
from docmt.model.attention_weights import WeightBlock, attention_weights
from docmt.model.blocks import Hierarchy, SelectiveAttention, SentenceAttention
from docmt.model.contexts import AttentionContext, DraftContext, FullContext
from docmt.model.kernels import AttentionPattern
from docmt.model.layers import Layer
from docmt.model.transformer import evaluation_mode

KINDS = tuple(
    f"{site}_{scope}" for site in ("encoder_self", "decoder_self", "decoder_cross") for scope in ("local", "global")
)
"""Kinds of attention in most systems: local attention stays in a sentence, global attention sees the whole instance.
Attention to another memory is named after it, such as encoder_context_local. Attention to previous sentences ends in
_before. Hierarchical attention attends to words (_before), then to sentences (_sentences). Selective attention has the
weights of sentences (_sentences)."""
MAX_DISTANCE = 4
"""Largest distance with its own table column. Larger ones share it."""
_SCOPES = {"sentence": "local", "document": "global", "neighbour": "before", "recent": "recent", "preceding": "before"}
_ATTENTIONS = (Attention, SentenceAttention, SelectiveAttention)


@dataclass(frozen=True)
class Site:
    """Kind and layer of an attention or a gate."""

    kind: str
    """attentions: stack, memory and scope, such as decoder_cross_global; gates: stack and block, such as
    encoder_context"""
    layer: int
    """number in its stack, from 1"""
    back: int = 0
    """sentences back to the attended sentence, 0 for other scopes"""
    name: str = field(default="", compare=False)
    """module name"""


@dataclass(frozen=True, eq=False)
class _Record:
    """Record of one attention in one pass."""

    site: Site
    context: FullContext

    def query_sentences(self) -> Tensor:
        """Return [Tq] the source sentence number of each query."""
        lengths = self.context.sequence.sentences.lengths
        numbers = torch.arange(len(lengths)) if self.context.alignment is None else self.context.alignment
        return numbers.repeat_interleave(lengths)

    def is_read(self) -> Tensor:
        """Return [Tq] bool, whether the state of each query is read after the pass."""
        sentences = self.context.sequence.sentences
        read = torch.ones(len(sentences), dtype=torch.bool) if self.context.is_read is None else self.context.is_read
        return read.repeat_interleave(sentences.lengths)


@dataclass(frozen=True, eq=False)
class TokenAttentionRecord(_Record):
    """Record of an attention to tokens."""

    attention: Attention
    query_states: Tensor
    """[Tq, d]"""
    memory: Tensor
    """[Tk, d]"""
    pattern: AttentionPattern

    def blocks(self) -> Iterator[WeightBlock]:
        """Yield the weights; queries are positions on the computed side, or several repetitions of them in a row."""
        return attention_weights(self.attention, self.query_states, self.memory, self.pattern)

    @property
    def sees_several_sentences(self) -> bool:
        """True if the weights are distributed over several sentences.

        False within a sentence, and for one fixed previous sentence. Attention within a sequence of several sentences
        does not count, as its queries do not belong to a single sentence.
        """
        scope = self.attention.scope
        memory = self.context.memories.get(scope.memory)
        is_joined = memory is not None and memory.source_positions is not None
        is_wide = scope.extent in ("document", "recent", "preceding")
        return is_wide or (scope.extent == "sentence" and is_joined)

    def key_sentences(self, source: Spans) -> Tensor:
        """Return [Tk] the source sentence number of each key. source: sentences of the packed source."""
        scope = self.attention.scope
        if scope.memory == "self":
            return self.query_sentences()
        memory = self.context.memories[scope.memory]
        if memory.source_positions is not None:
            return source.find_segments(memory.source_positions.cpu())
        return memory.sentences.find_segments(torch.arange(len(self.memory)))

    def sees_other_sentences(self, source: Spans) -> Tensor:
        """Return [Tq] bool, whether each query sees a sentence other than the one it belongs to.

        source: sentences of the packed source.
        """
        # Keys are in the order of their sentences, so the first and the last visible key decide.
        numbers, spans, queries = self.key_sentences(source), self.pattern.keys, self.pattern.queries
        segments = torch.arange(len(queries)).repeat_interleave(queries.lengths)  # [Tq]
        first, length = spans.starts[segments], spans.lengths[segments]
        before = (spans.lengths - queries.lengths)[segments]
        last = first + (queries.positions() + before if self.pattern.causal else length - 1)
        ends = (numbers[position.clamp(0, len(numbers) - 1)] for position in (first, last))
        query_sentences = self.query_sentences()
        return torch.stack([number != query_sentences for number in ends]).any(0) & (length > 0)


@dataclass(frozen=True, eq=False)
class SentenceAttentionRecord(_Record):
    """Record of an attention whose keys are whole sentences, or whose weights are summed over their words."""

    weights: Tensor
    """[T, H, n]"""
    exists: Tensor
    """[T, n] bool, which sentences are visible"""
    keys: Tensor
    """[T, n] their numbers in the source"""

    def blocks(self) -> Iterator[WeightBlock]:
        """Yield one block, whose keys are numbers of source sentences."""
        device = self.weights.device
        is_query = self.exists.any(-1, keepdim=True).to(device)
        queries = torch.arange(len(self.weights), device=device)[:, None]
        visible = self.exists.to(device)[:, None]
        yield WeightBlock(queries, is_query, self.keys.to(device), visible, self.weights.float()[:, :, None])

    sees_several_sentences = True

    def key_sentences(self, source: Spans) -> Tensor:
        """Return the source sentence number of each key."""
        return torch.arange(len(source))

    def sees_other_sentences(self, source: Spans) -> Tensor:
        """Return [T] bool, whether another sentence is visible."""
        return self.exists.any(-1).cpu()


AttentionRecord = TokenAttentionRecord | SentenceAttentionRecord


class GateRecord:
    """Record of how far a gate lets context in, in one pass."""

    def __init__(self, site: Site, context: FullContext, shares: Tensor, attentions: Sequence[AttentionRecord]) -> None:
        """Record the shares [T, d] of the context per element. attentions: inputs of the gate."""
        self.site, self.context, self.shares, self.attentions = site, context, shares.float(), attentions

    def has_context(self, source: Spans) -> Tensor:
        """Return [T] bool, whether a token sees another sentence. source: sentences of the packed source."""
        return torch.stack([attention.sees_other_sentences(source) for attention in self.attentions]).any(0)


def attention_sites(model: TranslationModel) -> list[Site]:
    """Return the sites of the model's attentions, in the order of its modules."""
    return [_attention_site(name, module) for name, module in model.named_modules() if isinstance(module, _ATTENTIONS)]


def _attention_site(name: str, module: Attention | SentenceAttention | SelectiveAttention) -> Site:
    """Return the site of an attention from its stack and scope."""
    stack, layer = _find_layer(name)
    if not isinstance(module, Attention):
        return Site(f"{stack}_{module.memory}_sentences", layer, name=name)
    scope = module.scope
    memory = {"self": "self", "source": "cross"}.get(scope.memory, scope.memory)
    # An attention to several sentences at once has one site for all of them.
    back = scope.offset if scope.memory != "self" and scope.extent == "neighbour" else 0
    return Site(f"{stack}_{memory}_{_SCOPES[scope.extent]}", layer, back, name)


def _gate_site(name: str) -> Site:
    stack, layer = _find_layer(name)
    *_, block = ["", *(part for part in name.split(".")[1:-1] if not part.isdigit() and part != "gate")]
    block = {"attention": "self"}.get(block, block.removesuffix("_residual"))
    return Site(f"{stack}_{block}" if block else stack, layer, name=name)


def _find_layer(name: str) -> tuple[str, int]:
    """Return the stack of a module and its layer number there, from 1."""
    stack, *parts = name.split(".")
    return stack, 1 + next((int(part) for part in parts if part.isdigit()), 0)


@contextmanager
def record_attention(
    model: TranslationModel,
    on_attention: Callable[[AttentionRecord], object] = lambda record: None,
    on_gate: Callable[[GateRecord], object] = lambda record: None,
) -> Iterator[None]:
    """Record attentions and gates in every full pass of `model` while the block runs.

    The callbacks get the records in layer order, without gradients. The outputs of the model do not change.
    """
    recorder = _Recorder(on_attention, on_gate)
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, Layer | Hierarchy):
                hooks.enter_context(module.register_forward_pre_hook(recorder.enter_layer))
            # After the forward pass: the model itself then fills the cache of cast weights of autocast, with gradients.
            if isinstance(module, _ATTENTIONS):
                site = _attention_site(name, module)
                hooks.enter_context(module.register_forward_hook(partial(recorder.record_attention, site)))
            elif isinstance(module, Hierarchy):
                site = _attention_site(f"{name}.words", module.words)
                hooks.enter_context(module.register_forward_hook(partial(recorder.record_hierarchy, site)))
            elif isinstance(module, GateSigmoid):
                hooks.enter_context(module.register_forward_hook(partial(recorder.record_gate, _gate_site(name))))
        yield


@dataclass
class _Recorder:
    """Forward hooks, with the state of the current layer."""

    on_attention: Callable[[AttentionRecord], object]
    on_gate: Callable[[GateRecord], object]
    context: AttentionContext | None = None
    attentions: list[AttentionRecord] = field(default_factory=list)
    """records of the layer since its last gate"""

    def enter_layer(self, module: nn.Module, arguments: tuple[Tensor, AttentionContext]) -> None:
        """Hook before a layer, or before the hierarchy above a stack."""
        self.context, self.attentions = arguments[1], []

    @torch.no_grad()
    def record_attention(
        self, site: Site, module: Attention | SentenceAttention | SelectiveAttention, arguments: Any, output: Tensor
    ) -> None:
        """Hook after an attention to tokens or sentences. The reading of drafts is not recorded."""
        context = self.context if isinstance(module, SentenceAttention) else arguments[1]
        if not isinstance(context, FullContext) or isinstance(context, DraftContext):
            return
        if isinstance(module, Attention) and module.scope.sees_each_preceding:
            return  # see `record_hierarchy`
        if isinstance(module, SentenceAttention):
            weights, exists = module.attention_weights(*arguments), arguments[-1]
            sentences = _Record(site, context).query_sentences()
            keys = (sentences[:, None] - torch.arange(exists.shape[-1], 0, -1)).clamp(min=0)  # oldest first
            record: AttentionRecord = SentenceAttentionRecord(site, context, weights, exists, keys)
        elif isinstance(module, SelectiveAttention):
            x, _, states = arguments
            weights, exists, keys = module.attention_weights(x, *context.resolve_sentences(module.memory, states))
            record = SentenceAttentionRecord(site, context, weights, exists, keys)
        else:
            visible = context.find(module, arguments[0])
            assert visible.memory is not None
            record = TokenAttentionRecord(site, context, module, arguments[0], visible.memory, visible.pattern)
        self.attentions.append(record)
        self.on_attention(record)

    @torch.no_grad()
    def record_hierarchy(
        self, site: Site, module: Hierarchy, arguments: tuple[Tensor, AttentionContext], output: Tensor
    ) -> None:
        """Hook for the attention to the words of several previous sentences, which is not called as a module."""
        x, context = arguments
        if isinstance(context, FullContext):
            pattern = context.find(module.words, x).pattern
            self.on_attention(TokenAttentionRecord(site, context, module.words, module.words_norm(x), x, pattern))

    @torch.no_grad()
    def record_gate(self, site: Site, module: GateSigmoid, arguments: tuple[Tensor], output: Tensor) -> None:
        """Hook after a gate."""
        if isinstance(self.context, FullContext):
            attentions, self.attentions = self.attentions, []
            self.on_gate(GateRecord(site, self.context, module.context_share(output), attentions))


def entropy_bits(weights: Tensor) -> Tensor:
    """Return the entropy -sum p log2 p of distributions [..., l]: [...]."""
    return torch.special.entr(weights).sum(-1) / math.log(2)


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

    def shares(self) -> dict[int, list[float]]:
        """Return the share of the weight at each distance, by head and last for uniform attention."""
        total = sum(self.distances.values())
        return {distance: (weights / total).tolist() for distance, weights in sorted(self.distances.items())}


def mean_and_deviation(sums: RunningMean) -> tuple[float, float]:
    """Return mean and standard deviation from the means of a number and its square."""
    mean, square = sums.values()
    return mean, math.sqrt(max(square - mean**2, 0.0))


@dataclass
class AttentionReport:
    """Entropies, distances and gates of a model, in the order of its modules."""

    attentions: dict[Site, AttentionSums] = field(default_factory=dict)
    gates: dict[Site, RunningMean] = field(default_factory=dict)
    """share of the context that a gate lets in, and its square, over elements of tokens with context"""

    def add_attention(self, record: AttentionRecord, source: Spans, is_translated: Tensor) -> None:
        """Add the record of one attention.

        source: the S sentences of the packed source. is_translated: [S] bool, False for those read only as context.
        """
        for block in record.blocks():
            if not block.is_query.any():
                continue
            sums = self.attentions.setdefault(record.site, AttentionSums())
            shares = block.shares()
            entropies = entropy_bits(torch.cat((shares.mean(1, keepdim=True), shares), dim=1))  # [n, 1 + H, q]
            sums.entropies.add(entropies.transpose(1, 2)[block.is_query])
            if record.sees_several_sentences:
                queries = block.queries.cpu()
                query_sentences = record.query_sentences()[queries]  # [n, q]
                key_sentences = record.key_sentences(source)[block.keys.cpu()]  # [n, l]
                is_counted = block.is_query.cpu() & is_translated[query_sentences] & record.is_read()[queries]
                sums.add_distances(block, query_sentences[:, :, None] - key_sentences[:, None], is_counted)

    def add_gate(self, record: GateRecord, source: Spans) -> None:
        """Add the record of one gate. source: sentences of the packed source."""
        has_context = record.has_context(source)
        shares = record.shares[has_context.to(record.shares.device)].double().flatten()
        if shares.numel():
            self.gates.setdefault(record.site, RunningMean()).add(torch.stack((shares, shares.square()), dim=1))

    def to_json(self) -> dict[str, Any]:
        """Return lists of all attentions and gates as JSON values."""
        attentions, gates = [], []
        for site, sums in self.attentions.items():
            entropy, *head_entropies = _rounded(sums.entropies.values())
            shares = {str(distance): _rounded(row) for distance, row in sums.shares().items()}
            numbers = {"queries": sums.entropies.count, "entropy": entropy, "head_entropies": head_entropies}
            numbers["shares_by_distance"] = {distance: heads for distance, (*heads, _) in shares.items()}
            numbers["even_shares"] = {distance: uniform for distance, (*_, uniform) in shares.items()}
            attentions.append(_site_fields(site) | numbers)
        for site, gate in self.gates.items():
            share, deviation = _rounded(mean_and_deviation(gate))
            gates.append(_site_fields(site) | {"context_share": share, "deviation": deviation})
        return {"attentions": attentions, "gates": gates}

    def format(self) -> str:
        """Return the report as tables."""
        entropies = {site: sums.entropies.values() for site, sums in self.attentions.items()}
        heads = max(map(len, entropies.values()), default=1)
        gates = {site: mean_and_deviation(sums) for site, sums in self.gates.items()}
        tables = {
            "attention entropy in bits: of the mean over heads, and of each head": [
                ["", "layer", "mean", *(f"head {number}" for number in range(1, heads))],
                *([*_site_cells(site), *(f"{value:.2f}" for value in row)] for site, row in entropies.items()),
            ],
            "attention by distance in sentences: percent of weight, mean over heads": self._distances(),
            "gates: share of context let in, where there is context (0 to 1; mean and deviation over elements)": [
                ["", "layer", "mean", "deviation"],
                *([*_site_cells(site), *(f"{value:.3f}" for value in row)] for site, row in gates.items()),
            ],
        }
        return "\n\n".join("\n".join([title, *align_columns(rows)]) for title, rows in tables.items() if rows[1:])

    def _distances(self) -> list[list[str]]:
        nearer = [f"{distance} before" for distance in range(MAX_DISTANCE - 1, 0, -1)]
        rows = [["", "layer", f"{MAX_DISTANCE}+ before", *nearer, "same", "after"]]
        shares = {site: sums.shares() for site, sums in self.attentions.items() if sums.distances}
        for kind in dict.fromkeys(site.kind for site in shares):
            layers = {site: by_distance for site, by_distance in shares.items() if site.kind == kind}
            for site, by_distance in layers.items():
                means = {distance: sum(heads) / len(heads) for distance, (*heads, _) in by_distance.items()}
                rows.append([*_site_cells(site), *_distance_cells(means)])
            uniform = {distance: share for distance, (*_, share) in next(iter(layers.values())).items()}
            rows.append(["  if uniform", "", *_distance_cells(uniform)])  # equal in all layers
        return rows


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


def describe_site(site: Site) -> str:
    """Return the words of a site with its layer, such as `decoder cross global 2`."""
    return " ".join(_site_cells(site))


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def report_attention(
    model: TranslationModel, passes: Iterable[tuple[ModelInput, Tensor]], report: AttentionReport | None = None
) -> AttentionReport:
    """Add the attentions and gates of these passes to a report, or to a new one, and return it.

    A pass is a model input and [S] int64, the number of each source sentence in the text, or -1 if it is only context.
    Means are over all query tokens, including context. Distances are only those of translated sentences. Dropout is
    off. The mode of the model is restored.
    """
    report = AttentionReport() if report is None else report
    with evaluation_mode(model):
        for inputs, numbers in passes:
            source = inputs.source.sentences
            on_attention = partial(report.add_attention, source=source, is_translated=numbers >= 0)
            with torch.no_grad(), record_attention(model, on_attention, partial(report.add_gate, source=source)):
                model(inputs)
    return report
