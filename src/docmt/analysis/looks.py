"""What a model looks at in a whole pass, and how far its gates are open: seen from outside, by forward hooks.

A model therefore pays nothing while nobody watches. Attentions and gates are recognised by their classes, whatever the
system. Decoding step by step is not watched: scoring a translation computes the same.

Notation as in `model/` (T packed tokens, S sentences, H heads, d model width, k = d / H); in a block of weights, n
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
from docmt.model.attention import Attention, AttentionContext, FullContext, Opening
from docmt.model.kernels import AttentionPattern
from docmt.model.layers import Hierarchy, Layer, SentenceAttention
from docmt.model.linear_attention import KeyWeights, LinearAttention

# Scores held at once: 16 MB in float32, several times over (90 MB in all for an instance of 2048 tokens with 8 heads,
# 256 queries at a time, where all of its scores would be 134 MB each time).
MOST_SCORES = 1 << 22
# Segments share a block down to this part of its longest key span: below, most of a row would be padding.
_SIMILAR = 0.7


class Block(NamedTuple):
    """Weights of some segments, float32. Positions of queries and keys are those in their packed sequences."""

    queries: Tensor
    """[n, q]"""
    real: Tensor
    """[n, q] bool: which of them are queries, not padding"""
    keys: Tensor
    """[n, l]; where a weight is 0 there may be padding"""
    seen: Tensor
    """[n, q, l] bool (where all queries see the same: [n, 1, l]): which keys a query sees"""
    weights: Tensor
    """[n, H, q, l]; over the keys, those of each query sum to 1, but for linear attention"""
    linear: bool = False
    """whether weights may be below 0, and sum to anything"""

    def shares(self) -> Tensor:
        """The weights [n, H, q, l] as shares of 1: those of linear attention that are below 0 count as none."""
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
    most_scores: int = MOST_SCORES,
) -> Iterator[Block]:
    """The attention weights of query [Tq, H, k] over key [Tk, H, k], with the pattern as `attend` takes it.

    linear: both are features, and this is what keys weigh; then weights are those of linear attention, some of
    which may be below 0, and whose sum may be below 1. At most `most_scores` scores (or one query against its keys)
    are held at once; float32 throughout. Queries without any key are in no block.
    """
    heads, width = query.shape[1:]
    for members, first, last in _blocks(queries, keys, heads, most_scores):
        q_rows, q_real = _rows(queries, members, first, last)
        k_rows, k_real = _rows(keys, members, 0, int(keys.lengths[members].max()))
        seen = k_real[:, None, :]  # [n, 1, l]
        if causal:
            seen = seen & (torch.arange(k_rows.shape[1]) <= torch.arange(first, last)[:, None])  # [n, q, l]
        with torch.autocast(query.device.type, enabled=False):
            q = query[q_rows.to(query.device)].float().transpose(1, 2) * width**-0.5  # [n, H, q, k]
            k = key[k_rows.to(key.device)].float().permute(0, 2, 3, 1)  # [n, H, k, l]
            seen = seen.to(query.device)
            scores = q @ k  # [n, H, q, l]
            if linear is None:
                weights = scores.masked_fill_(~seen[:, None], -math.inf).softmax(-1)
            else:
                weights = _linear_weights(scores * width**0.5, linear, q_rows, k_rows, seen)
            q_rows, q_real, k_rows = (rows.to(q.device) for rows in (q_rows, q_real, k_rows))
            yield Block(q_rows, q_real, k_rows, seen, weights, linear is not None)


def _linear_weights(products: Tensor, weighing: KeyWeights, q_rows: Tensor, k_rows: Tensor, seen: Tensor) -> Tensor:
    """Products of features [n, H, q, l] as the weights that `attend_linear` gives values."""
    if weighing.fading is not None:
        asked, there = (weighing.fading[rows].transpose(1, 2) for rows in (q_rows, k_rows))  # [n, H, q], [n, H, l]
        products = products * (asked[..., None] - there[:, :, None]).clamp(max=0).exp().float()
    if weighing.fresh is not None:
        products = products * weighing.fresh[k_rows].transpose(1, 2)[:, :, None].float()
    if weighing.salience is not None:
        own = weighing.salience[k_rows].transpose(1, 2)[:, :, None].masked_fill(~seen[:, None], -math.inf)
        products = products * (own - own.amax(-1, keepdim=True)).exp()
    products = products.masked_fill(~seen[:, None], 0.0)
    return products / products.sum(-1, keepdim=True).clamp(min=weighing.floor)


def bits(weights: Tensor) -> Tensor:
    """Entropy -sum p log2 p of distributions [..., l]: [...]."""
    return torch.special.entr(weights).sum(-1) / math.log(2)


def _blocks(queries: Spans, keys: Spans, heads: int, most_scores: int) -> Iterator[tuple[Tensor, int, int]]:
    """Segment numbers [n] of similar length and the range of query offsets to take of each, all work once."""
    q_lengths, k_lengths = queries.lengths.tolist(), keys.lengths.tolist()
    order = [i for i in range(len(q_lengths)) if q_lengths[i] and k_lengths[i]]
    order.sort(key=lambda i: (-k_lengths[i], -q_lengths[i]))
    start = 0
    while start < len(order):
        longest, most_queries, end = k_lengths[order[start]], q_lengths[order[start]], start + 1
        while end < len(order) and k_lengths[order[end]] >= _SIMILAR * longest:
            grown = max(most_queries, q_lengths[order[end]])
            if (end + 1 - start) * heads * grown * longest > most_scores:
                break
            most_queries, end = grown, end + 1
        step = max(1, most_scores // ((end - start) * heads * longest))
        for first in range(0, most_queries, step):
            yield torch.tensor(order[start:end]), first, min(first + step, most_queries)
        start = end


def _rows(spans: Spans, members: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Positions [n, last - first] of these offsets in the packed sequence, and which of them the segment has."""
    offsets = torch.arange(first, last)
    real = offsets < spans.lengths[members, None]
    return torch.where(real, spans.starts[members, None] + offsets, spans.starts[members, None]), real


_SCOPES = {"sentence": "local", "document": "global", "before": "before"}


@dataclass(frozen=True)
class Site:
    """Where an attention or a gate stands."""

    kind: str
    """of attentions stack, memory and scope, as in decoder_cross_global; of gates stack and block, as in
    encoder_context"""
    layer: int
    """from 1, in its stack"""
    back: int = 0
    """of an attention to one sentence before: how far back"""
    name: str = field(default="", compare=False)
    """of the module"""


class _Seen:
    """What one attention or gate did in one pass."""

    def __init__(self, site: Site, context: FullContext) -> None:
        self.site, self.context = site, context

    def numbers(self) -> Tensor:
        """Return [S] the number of the source sentence that each sentence of what is computed belongs to."""
        return (
            torch.arange(len(self.context.layout.sentences)) if self.context.aligned is None else self.context.aligned
        )

    def query_sentences(self) -> Tensor:
        """Return [Tq] the source sentence (by number) that each query belongs to."""
        return self.numbers().repeat_interleave(self.context.layout.sentences.lengths)


class TokenLook(_Seen):
    """A look at tokens."""

    def __init__(
        self,
        site: Site,
        context: FullContext,
        attention: Attention,
        asks: Tensor,
        memory: Tensor,
        pattern: AttentionPattern,
    ) -> None:
        """asks [Tq, d]: the states that ask; memory [Tk, d]: what they look at."""
        super().__init__(site, context)
        self.attention, self.asks, self.memory, self.pattern = attention, asks, memory, pattern

    def blocks(self) -> Iterator[Block]:
        """Yield the weights. The kernels do not give them out, so they are computed once more.

        Queries are positions in what is computed, or several times that, one after the other.
        """
        pattern, weighing = self.pattern, None
        if isinstance(self.attention, LinearAttention):
            key = self.attention.split(self.attention.key(self.memory))
            weighing = self.attention.weighing(self.memory, key, pattern)
            query, key = self.attention.asked_and_shown(self.asks, self.memory)
        else:
            query, key, _ = self.attention.projected(self.asks, self.memory)
            query = query.repeat(pattern.query_total // max(len(query), 1), 1, 1)
        return weight_blocks(query, key, pattern.queries, pattern.keys, pattern.causal, linear=weighing)

    def left(self) -> Tensor:
        """[n, H] of linear attention with gates (Wu et al. 2022): how much of all that was said each sentence leaves to
        the next one, where there is one."""
        if not isinstance(self.attention, LinearAttention) or self.attention.gate is None:
            return torch.zeros(0, self.attention.heads)
        gates, sentences = self.attention.sentence_gates(self.memory, self.pattern)
        followed = torch.ones(len(sentences), dtype=torch.bool)
        followed[sentences.holding(self.pattern.keys.ends - 1)] = False
        return gates[followed.to(gates.device)].sigmoid()

    @property
    def chooses(self) -> bool:
        """Whether it may see several sentences, so that its weights tell how much it looks at each.

        Not within a sentence, and not where a sentence before is given. What happens within a sequence made of several
        sentences is not yet a look of a sentence.
        """
        scope = self.attention.scope
        memory = self.context.memories.get(scope.memory)
        joined = memory is not None and memory.places is not None
        return scope.part == "document" or (scope.part == "sentence" and joined)

    def key_sentences(self, source: Spans) -> Tensor:
        """Return [Tk] the number of the source sentence of each key; source: the sentences of the packed source."""
        scope = self.attention.scope
        if scope.memory == "self":
            return self.query_sentences()
        memory = self.context.memories[scope.memory]
        if memory.places is not None:
            return source.holding(memory.places.cpu())
        return memory.sentences.holding(torch.arange(len(self.memory)))

    def sees_others(self, source: Spans) -> Tensor:
        """Return [Tq] bool: whether each query sees a sentence other than its own; source: as for `key_sentences`."""
        # Tokens are in the order of their sentences, so the first and the last that are seen tell it.
        numbers, spans, queries = self.key_sentences(source), self.pattern.keys, self.pattern.queries
        own, segments = self.query_sentences(), torch.arange(len(queries)).repeat_interleave(queries.lengths)  # [Tq]
        first, length = spans.starts[segments], spans.lengths[segments]
        last = first + (queries.positions() if self.pattern.causal else length - 1)
        ends = (numbers[place.clamp(0, len(numbers) - 1)] for place in (first, last))
        return torch.stack([number != own for number in ends]).any(0) & (length > 0)


class SentenceLook(_Seen):
    """A look at whole sentences: the weights of a `SentenceAttention`."""

    def __init__(self, site: Site, context: FullContext, weights: Tensor, there: Tensor) -> None:
        """weights [T, H, k] and there [T, k], oldest sentence first."""
        super().__init__(site, context)
        self.weights, self.there = weights, there

    def blocks(self) -> Iterator[Block]:
        """One block, in which keys are numbers of sentences."""
        count = self.weights.shape[-1]
        lengths = self.context.layout.sentences.lengths
        own = torch.arange(len(lengths)).repeat_interleave(lengths)  # [T]
        keys = (own[:, None] - torch.arange(count, 0, -1)).clamp(min=0)  # [T, k]
        device = self.weights.device
        real = self.there.any(-1, keepdim=True).to(device)
        tokens = torch.arange(len(own), device=device)[:, None]
        seen = self.there.to(device)[:, None]
        yield Block(tokens, real, keys.to(device), seen, self.weights.float()[:, :, None])

    chooses = True

    def key_sentences(self, source: Spans) -> Tensor:
        """Return the number of each key, which is a sentence."""
        return self.numbers()

    def sees_others(self, source: Spans) -> Tensor:
        """Return [T] bool: whether there is a sentence before."""
        return self.there.any(-1).cpu()


Look = TokenLook | SentenceLook


class GateLook:
    """How far a gate lets context in, in one pass."""

    def __init__(self, site: Site, context: FullContext, shares: Tensor, looks: Sequence[Look]) -> None:
        """shares [T, d]: of the context, element by element; looks: what it joins, of which some find the context."""
        self.site, self.context, self.shares, self.looks = site, context, shares.float(), looks

    def there(self, source: Spans) -> Tensor:
        """[T] bool: where there is any context, which is a sentence other than that of the token itself; source: the
        sentences of the packed source."""
        return torch.stack([look.sees_others(source) for look in self.looks]).any(0)


def attention_sites(model: TranslationModel) -> list[Site]:
    """Where the model has attentions, in the order of its modules."""
    return [
        _attention_site(name, module)
        for name, module in model.named_modules()
        if isinstance(module, Attention | SentenceAttention)
    ]


def _attention_site(name: str, module: Attention | SentenceAttention) -> Site:
    """Return the site of an attention, which its stack and its scope tell."""
    stack, layer = _layer_of(name)
    if isinstance(module, SentenceAttention):
        return Site(f"{stack}_self_sentences", layer, name=name)
    scope = module.scope
    seen = {"self": "self", "source": "cross"}.get(scope.memory, scope.memory)
    # Of an attention to several sentences at once (`AttentionContext.attend_before`) there is one site for all of them.
    back = 0 if scope.memory == "self" else scope.back
    return Site(f"{stack}_{seen}_{_SCOPES[scope.part]}", layer, back, name)


def _gate_site(name: str) -> Site:
    stack, layer = _layer_of(name)
    *_, block = ["", *(part for part in name.split(".")[1:-1] if not part.isdigit() and part != "gate")]
    block = {"attention": "self"}.get(block, block.removesuffix("_residual"))
    return Site(f"{stack}_{block}" if block else stack, layer, name=name)


def _layer_of(name: str) -> tuple[str, int]:
    """The stack that a module stands in, and the number of its layer there, from 1."""
    stack, *parts = name.split(".")
    return stack, 1 + next((int(part) for part in parts if part.isdigit()), 0)


@contextmanager
def watching(
    model: TranslationModel,
    on_look: Callable[[Look], object] = lambda look: None,
    on_gate: Callable[[GateLook], object] = lambda gate: None,
) -> Iterator[None]:
    """While the block runs, every whole pass of `model` tells what it looks at, and computes what it computes without.

    Looks and gates are handed out when they are met, in the order of the layers, and without gradients.
    """
    watcher = _Watcher(on_look, on_gate)
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, Layer | Hierarchy):
            handles.append(module.register_forward_pre_hook(watcher.enter))
        # The others after the forward pass, not before: what autocast keeps of the weights that it casts is then made
        # by the model itself, with gradients.
        if isinstance(module, Attention | SentenceAttention):
            handles.append(module.register_forward_hook(partial(watcher.attention, _attention_site(name, module))))
        elif isinstance(module, Hierarchy):
            site = _attention_site(f"{name}.words", module.words)
            handles.append(module.register_forward_hook(partial(watcher.hierarchy, site)))
        elif isinstance(module, Opening):
            handles.append(module.register_forward_hook(partial(watcher.gate, _gate_site(name))))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Watcher:
    """The hooks, and what they know of the layer that is being computed."""

    def __init__(self, on_look: Callable[[Look], object], on_gate: Callable[[GateLook], object]) -> None:
        self.on_look, self.on_gate = on_look, on_gate
        self.context: AttentionContext | None = None
        self.looks: list[Look] = []
        """of the layer, since its last gate"""

    def enter(self, module: nn.Module, arguments: tuple[Tensor, AttentionContext]) -> None:
        """Before a layer, or what stands above a stack."""
        self.context, self.looks = arguments[1], []

    @torch.no_grad()
    def attention(self, site: Site, module: Attention | SentenceAttention, arguments: Any, output: Tensor) -> None:
        """After an attention, of either kind."""
        context = self.context if isinstance(module, SentenceAttention) else arguments[1]
        if not isinstance(context, FullContext):
            return
        if isinstance(module, SentenceAttention):
            look: Look = SentenceLook(site, context, module.weights(*arguments), arguments[-1])
        else:
            memory, pattern = context.seen(module.scope, arguments[0])
            look = TokenLook(site, context, module, arguments[0], memory, pattern)
        self.looks.append(look)
        self.on_look(look)

    @torch.no_grad()
    def hierarchy(
        self, site: Site, module: Hierarchy, arguments: tuple[Tensor, AttentionContext], output: Tensor
    ) -> None:
        """After the attention to the words of several sentences before, which is not called as a module."""
        x, context = arguments
        if isinstance(context, FullContext):
            pattern, _ = context.seen_before(module.words.scope, len(x))
            self.on_look(TokenLook(site, context, module.words, module.words_norm(x), x, pattern))

    @torch.no_grad()
    def gate(self, site: Site, module: Opening, arguments: tuple[Tensor], output: Tensor) -> None:
        """After a gate."""
        if isinstance(self.context, FullContext):
            looks, self.looks = self.looks, []
            self.on_gate(GateLook(site, self.context, module.of_context(output), looks))
