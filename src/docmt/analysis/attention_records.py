"""Records of the attention weights and gates of a full pass, made by forward hooks.

Without hooks a model has no overhead. Attentions and gates are found by class, so every system is covered.
Incremental decoding is not recorded, but scoring a translation computes the same.

Notation as in `model/` (T packed tokens, S sentences, H heads, d model width, k = d / H).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from docmt.model import Spans, TranslationModel
from docmt.model.attention import Attention, GateSigmoid
from docmt.model.attention_weights import WeightBlock, attention_weights
from docmt.model.contexts import AttentionContext, DraftContext, FullContext
from docmt.model.kernels import AttentionPattern
from docmt.model.layers import Hierarchy, Layer, SentenceAttention
from docmt.model.linear_attention import LinearAttention
from docmt.model.selective_attention import SelectiveAttention


def entropy_bits(weights: Tensor) -> Tensor:
    """Return the entropy -sum p log2 p of distributions [..., l]: [...]."""
    return torch.special.entr(weights).sum(-1) / math.log(2)


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

    def is_read(self) -> Tensor:
        """Return [Tq] bool, whether the state of each query is read after the pass."""
        sentences = self.context.sequence.sentences
        read = torch.ones(len(sentences), dtype=torch.bool) if self.context.is_read is None else self.context.is_read
        return read.repeat_interleave(sentences.lengths)


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
        """Yield the weights; queries are positions on the computed side, or several repetitions of them in a row."""
        return attention_weights(self.attention, self.query_states, self.memory, self.pattern)

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


class SentenceAttentionRecord(_Record):
    """Record of an attention whose keys are whole sentences, or whose weights are summed over their words."""

    def __init__(self, site: Site, context: FullContext, weights: Tensor, exists: Tensor, keys: Tensor) -> None:
        """Record weights [T, H, n], which sentences are visible [T, n], and their source sentences [T, n]."""
        super().__init__(site, context)
        self.weights, self.exists, self.keys = weights, exists, keys

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
    stack, layer = _layer_of(name)
    if not isinstance(module, Attention):
        return Site(f"{stack}_{module.memory}_sentences", layer, name=name)
    scope = module.scope
    memory = {"self": "self", "source": "cross"}.get(scope.memory, scope.memory)
    # An attention to several sentences at once (`AttentionContext.attend_preceding`) has one site for all of them.
    back = scope.offset if scope.memory != "self" and scope.extent == "neighbour" else 0
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
        if isinstance(module, _ATTENTIONS):
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
        self, site: Site, module: Attention | SentenceAttention | SelectiveAttention, arguments: Any, output: Tensor
    ) -> None:
        """Hook after an attention to tokens or sentences. The reading of drafts is not recorded."""
        context = self.context if isinstance(module, SentenceAttention) else arguments[1]
        if not isinstance(context, FullContext) or isinstance(context, DraftContext):
            return
        if isinstance(module, Attention) and module.scope.sees_each_preceding:
            return  # see `record_hierarchy`
        if isinstance(module, SentenceAttention):
            lengths = context.sequence.sentences.lengths
            numbers = torch.arange(len(lengths)) if context.alignment is None else context.alignment  # in the source
            weights, exists = module.attention_weights(*arguments), arguments[-1]
            sentences = numbers.repeat_interleave(lengths)  # [T]
            keys = (sentences[:, None] - torch.arange(exists.shape[-1], 0, -1)).clamp(min=0)  # oldest first
            record: AttentionRecord = SentenceAttentionRecord(site, context, weights, exists, keys)
        elif isinstance(module, SelectiveAttention):
            x, _, states = arguments
            weights, exists, keys = module.attention_weights(x, *context.resolve_sentences(module.memory, states))
            record = SentenceAttentionRecord(site, context, weights, exists, keys)
        else:
            visible = context.find(module, arguments[0])
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
