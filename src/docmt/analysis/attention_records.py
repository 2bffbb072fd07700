"""Records of the attention weights and gates of a full pass, made by forward hooks.

Without hooks a model has no overhead. Attentions and gates are found by class, so every system is covered.
Incremental decoding is not recorded, but scoring a translation computes the same.

Notation as in `model/` (T packed tokens, S sentences, H heads, d model width, k = d / H). A block of weights has n
segments of up to q queries and l keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from docmt.model import Spans, TranslationModel
from docmt.model.attention import Attention, AttentionContext, FullContext, GateSigmoid
from docmt.model.kernels import AttentionPattern
from docmt.model.layers import Hierarchy, Layer, SentenceAttention
from docmt.model.linear_attention import KeyWeights, LinearAttention

# Scores in memory at once: 16 MB in float32, several times over. An instance of 2048 tokens with 8 heads takes 90 MB
# in all, 256 queries at a time. All of its scores would take 134 MB each time.
MAX_SCORES = 1 << 22
# Shortest key span in a block, relative to its longest one. With shorter spans most of a row would be padding.
_MIN_LENGTH_RATIO = 0.7


class WeightBlock(NamedTuple):
    """Attention weights of some segments, float32, with positions in the packed sequences."""

    queries: Tensor
    """[n, q] query positions"""
    is_query: Tensor
    """[n, q] bool, False for padding"""
    keys: Tensor
    """[n, l] key positions, arbitrary for padding"""
    visible: Tensor
    """[n, q, l] bool (or [n, 1, l] if equal for all queries): keys that a query sees"""
    weights: Tensor
    """[n, H, q, l], which sum to 1 over the keys except in linear attention"""
    linear: bool = False
    """True if weights may be negative and need not sum to 1"""

    def shares(self) -> Tensor:
        """Return the weights [n, H, q, l] as shares of 1. Negative weights of linear attention count as 0."""
        if not self.linear:
            return self.weights
        positive = self.weights.clamp(min=0)
        return positive / positive.sum(-1, keepdim=True).clamp(min=torch.finfo(positive.dtype).tiny)


def weight_blocks(
    query: Tensor,
    key: Tensor,
    queries: Spans,
    keys: Spans,
    causal: bool = False,
    *,
    linear: KeyWeights | None = None,
    max_scores: int = MAX_SCORES,
) -> Iterator[WeightBlock]:
    """Yield the attention weights of query [Tq, H, k] over key [Tk, H, k] with the pattern of `attend`.

    linear: key weights of linear attention, whose query and key are features. Its weights may be negative and sum to
    less than 1. At most `max_scores` scores (or one query against its keys) are in memory at once, in float32.
    Queries without keys are in no block.
    """
    heads, width = query.shape[1:]
    for members, first, last in _group_segments(queries, keys, heads, max_scores):
        q_positions, is_query = _positions(queries, members, first, last)
        k_positions, is_key = _positions(keys, members, 0, int(keys.lengths[members].max()))
        visible = is_key[:, None, :]  # [n, 1, l]
        if causal:
            visible = visible & (torch.arange(k_positions.shape[1]) <= torch.arange(first, last)[:, None])  # [n, q, l]
        with torch.autocast(query.device.type, enabled=False):
            q = query[q_positions.to(query.device)].float().transpose(1, 2) * width**-0.5  # [n, H, q, k]
            k = key[k_positions.to(key.device)].float().permute(0, 2, 3, 1)  # [n, H, k, l]
            visible = visible.to(query.device)
            scores = q @ k  # [n, H, q, l]
            if linear is None:
                weights = scores.masked_fill_(~visible[:, None], -math.inf).softmax(-1)
            else:
                weights = _linear_weights(scores * width**0.5, linear, q_positions, k_positions, visible)
            q_positions, is_query, k_positions = (x.to(q.device) for x in (q_positions, is_query, k_positions))
            yield WeightBlock(q_positions, is_query, k_positions, visible, weights, linear is not None)


def _linear_weights(
    products: Tensor, key_weights: KeyWeights, q_positions: Tensor, k_positions: Tensor, visible: Tensor
) -> Tensor:
    """Return the weights that `attend_linear` gives to values, from products of features [n, H, q, l]."""
    if key_weights.log_decay is not None:
        query_fading = key_weights.log_decay[q_positions].transpose(1, 2)  # [n, H, q]
        key_fading = key_weights.log_decay[k_positions].transpose(1, 2)  # [n, H, l]
        products = products * (query_fading[..., None] - key_fading[:, :, None]).clamp(max=0).exp().float()
    if key_weights.input_weights is not None:
        products = products * key_weights.input_weights[k_positions].transpose(1, 2)[:, :, None].float()
    if key_weights.log_weights is not None:
        salience = key_weights.log_weights[k_positions].transpose(1, 2)[:, :, None]
        salience = salience.masked_fill(~visible[:, None], -math.inf)
        products = products * (salience - salience.amax(-1, keepdim=True)).exp()
    products = products.masked_fill(~visible[:, None], 0.0)
    return products / products.sum(-1, keepdim=True).clamp(min=key_weights.min_denominator)


def entropy_bits(weights: Tensor) -> Tensor:
    """Return the entropy -sum p log2 p of distributions [..., l]: [...]."""
    return torch.special.entr(weights).sum(-1) / math.log(2)


def _group_segments(queries: Spans, keys: Spans, heads: int, max_scores: int) -> Iterator[tuple[Tensor, int, int]]:
    """Yield numbers [n] of segments of similar length with a range of query offsets. Each query occurs once."""
    q_lengths, k_lengths = queries.lengths.tolist(), keys.lengths.tolist()
    order = [i for i in range(len(q_lengths)) if q_lengths[i] and k_lengths[i]]
    order.sort(key=lambda i: (-k_lengths[i], -q_lengths[i]))
    start = 0
    while start < len(order):
        longest, num_queries, end = k_lengths[order[start]], q_lengths[order[start]], start + 1
        while end < len(order) and k_lengths[order[end]] >= _MIN_LENGTH_RATIO * longest:
            max_queries = max(num_queries, q_lengths[order[end]])
            if (end + 1 - start) * heads * max_queries * longest > max_scores:
                break
            num_queries, end = max_queries, end + 1
        step = max(1, max_scores // ((end - start) * heads * longest))
        for first in range(0, num_queries, step):
            yield torch.tensor(order[start:end]), first, min(first + step, num_queries)
        start = end


def _positions(spans: Spans, members: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return packed positions [n, last - first] of these offsets, and whether the segments are long enough for them."""
    offsets = torch.arange(first, last)
    is_inside = offsets < spans.lengths[members, None]
    return torch.where(is_inside, spans.starts[members, None] + offsets, spans.starts[members, None]), is_inside


_SCOPES = {"sentence": "local", "document": "global", "neighbour": "before"}


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


class _Record:
    """Record of one attention in one pass."""

    def __init__(self, site: Site, context: FullContext) -> None:
        self.site, self.context = site, context

    def sentence_numbers(self) -> Tensor:
        """Return [S] the source sentence number of each sentence of the computed side."""
        return (
            torch.arange(len(self.context.sequence.sentences))
            if self.context.alignment is None
            else self.context.alignment
        )

    def query_sentences(self) -> Tensor:
        """Return [Tq] the source sentence number of each query."""
        return self.sentence_numbers().repeat_interleave(self.context.sequence.sentences.lengths)


class TokenAttentionRecord(_Record):
    """Record of an attention to tokens."""

    def __init__(
        self,
        site: Site,
        context: FullContext,
        attention: Attention,
        query_states: Tensor,
        memory: Tensor,
        pattern: AttentionPattern,
    ) -> None:
        """Record an attention of query_states [Tq, d] to memory [Tk, d]."""
        super().__init__(site, context)
        self.attention, self.query_states, self.memory, self.pattern = attention, query_states, memory, pattern

    def blocks(self) -> Iterator[WeightBlock]:
        """Yield the weights. They are computed again, as the kernels do not return them.

        Queries are positions on the computed side, or several repetitions of them in a row.
        """
        pattern, key_weights = self.pattern, None
        if isinstance(self.attention, LinearAttention):
            key = self.attention.split_heads(self.attention.key(self.memory))
            key_weights = self.attention.weigh_keys(self.memory, key, pattern)
            query, key = self.attention.project_features(self.query_states, self.memory)
        else:
            query, key, _ = self.attention.project(self.query_states, self.memory)
            query = query.repeat(pattern.query_total // max(len(query), 1), 1, 1)
        return weight_blocks(query, key, pattern.queries, pattern.keys, pattern.causal, linear=key_weights)

    def sentence_gates(self) -> Tensor:
        """Return [n, H] the share of the history that each sentence passes to the next one (Wu et al. 2022).

        Only sentences with a next one count. Empty without gated linear attention.
        """
        if not isinstance(self.attention, LinearAttention) or self.attention.gate is None:
            return torch.zeros(0, self.attention.heads)
        gates, sentences = self.attention.compute_sentence_gates(self.memory, self.pattern)
        has_next = torch.ones(len(sentences), dtype=torch.bool)
        has_next[sentences.find_segments(self.pattern.keys.ends - 1)] = False
        return gates[has_next.to(gates.device)].sigmoid()

    @property
    def sees_several_sentences(self) -> bool:
        """Whether the weights are distributed over several sentences.

        False within a sentence, and for one fixed previous sentence. Attention within a sequence of several sentences
        does not count, as its queries do not belong to a single sentence.
        """
        scope = self.attention.scope
        memory = self.context.memories.get(scope.memory)
        is_joined = memory is not None and memory.source_positions is not None
        return scope.extent == "document" or (scope.extent == "sentence" and is_joined)

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
        last = first + (queries.positions() if self.pattern.causal else length - 1)
        ends = (numbers[position.clamp(0, len(numbers) - 1)] for position in (first, last))
        query_sentences = self.query_sentences()
        return torch.stack([number != query_sentences for number in ends]).any(0) & (length > 0)


class SentenceAttentionRecord(_Record):
    """Record of a `SentenceAttention`, whose keys are whole sentences."""

    def __init__(self, site: Site, context: FullContext, weights: Tensor, exists: Tensor) -> None:
        """Record weights [T, H, k] and which sentences exist [T, k], oldest sentence first."""
        super().__init__(site, context)
        self.weights, self.exists = weights, exists

    def blocks(self) -> Iterator[WeightBlock]:
        """Yield one block, whose keys are sentence numbers."""
        count = self.weights.shape[-1]
        lengths = self.context.sequence.sentences.lengths
        sentences = torch.arange(len(lengths)).repeat_interleave(lengths)  # [T]
        keys = (sentences[:, None] - torch.arange(count, 0, -1)).clamp(min=0)  # [T, k]
        device = self.weights.device
        is_query = self.exists.any(-1, keepdim=True).to(device)
        queries = torch.arange(len(sentences), device=device)[:, None]
        visible = self.exists.to(device)[:, None]
        yield WeightBlock(queries, is_query, keys.to(device), visible, self.weights.float()[:, :, None])

    sees_several_sentences = True

    def key_sentences(self, source: Spans) -> Tensor:
        """Return the source sentence number of each key."""
        return self.sentence_numbers()

    def sees_other_sentences(self, source: Spans) -> Tensor:
        """Return [T] bool, whether there is a previous sentence."""
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
    return [
        _attention_site(name, module)
        for name, module in model.named_modules()
        if isinstance(module, Attention | SentenceAttention)
    ]


def _attention_site(name: str, module: Attention | SentenceAttention) -> Site:
    """Return the site of an attention from its stack and scope."""
    stack, layer = _layer_of(name)
    if isinstance(module, SentenceAttention):
        return Site(f"{stack}_self_sentences", layer, name=name)
    scope = module.scope
    memory = {"self": "self", "source": "cross"}.get(scope.memory, scope.memory)
    # An attention to several sentences at once (`AttentionContext.attend_preceding`) has one site for all of them.
    back = 0 if scope.memory == "self" else scope.offset
    return Site(f"{stack}_{memory}_{_SCOPES[scope.extent]}", layer, back, name)


def _gate_site(name: str) -> Site:
    stack, layer = _layer_of(name)
    *_, block = ["", *(part for part in name.split(".")[1:-1] if not part.isdigit() and part != "gate")]
    block = {"attention": "self"}.get(block, block.removesuffix("_residual"))
    return Site(f"{stack}_{block}" if block else stack, layer, name=name)


def _layer_of(name: str) -> tuple[str, int]:
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
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, Layer | Hierarchy):
            handles.append(module.register_forward_pre_hook(recorder.enter_layer))
        # Hooks after the forward pass: the model itself then fills autocast's cache of cast weights, with gradients.
        if isinstance(module, Attention | SentenceAttention):
            site = _attention_site(name, module)
            handles.append(module.register_forward_hook(partial(recorder.record_attention, site)))
        elif isinstance(module, Hierarchy):
            site = _attention_site(f"{name}.words", module.words)
            handles.append(module.register_forward_hook(partial(recorder.record_hierarchy, site)))
        elif isinstance(module, GateSigmoid):
            handles.append(module.register_forward_hook(partial(recorder.record_gate, _gate_site(name))))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Recorder:
    """Forward hooks, with the state of the current layer."""

    def __init__(
        self, on_attention: Callable[[AttentionRecord], object], on_gate: Callable[[GateRecord], object]
    ) -> None:
        self.on_attention, self.on_gate = on_attention, on_gate
        self.context: AttentionContext | None = None
        self.attentions: list[AttentionRecord] = []
        """records of the layer since its last gate"""

    def enter_layer(self, module: nn.Module, arguments: tuple[Tensor, AttentionContext]) -> None:
        """Hook before a layer, or before the hierarchy above a stack."""
        self.context, self.attentions = arguments[1], []

    @torch.no_grad()
    def record_attention(
        self, site: Site, module: Attention | SentenceAttention, arguments: Any, output: Tensor
    ) -> None:
        """Hook after an attention to tokens or sentences."""
        context = self.context if isinstance(module, SentenceAttention) else arguments[1]
        if not isinstance(context, FullContext):
            return
        if isinstance(module, SentenceAttention):
            weights = module.attention_weights(*arguments)
            record: AttentionRecord = SentenceAttentionRecord(site, context, weights, arguments[-1])
        else:
            memory, pattern = context.resolve_scope(module.scope, arguments[0])
            record = TokenAttentionRecord(site, context, module, arguments[0], memory, pattern)
        self.attentions.append(record)
        self.on_attention(record)

    @torch.no_grad()
    def record_hierarchy(
        self, site: Site, module: Hierarchy, arguments: tuple[Tensor, AttentionContext], output: Tensor
    ) -> None:
        """Hook for the attention to the words of several previous sentences, which is not called as a module."""
        x, context = arguments
        if isinstance(context, FullContext):
            pattern, _ = context.resolve_preceding(module.words.scope, len(x))
            self.on_attention(TokenAttentionRecord(site, context, module.words, module.words_norm(x), x, pattern))

    @torch.no_grad()
    def record_gate(self, site: Site, module: GateSigmoid, arguments: tuple[Tensor], output: Tensor) -> None:
        """Hook after a gate."""
        if isinstance(self.context, FullContext):
            attentions, self.attentions = self.attentions, []
            self.on_gate(GateRecord(site, self.context, module.context_share(output), attentions))
