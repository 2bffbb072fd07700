"""Attention over spans: `attend`, multi-head attention, gates that join several, and attention contexts.

An attention context is the one seam between a full pass and a decoding step.
Notation: T packed tokens, S sentences, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from docmt.model import kernels
from docmt.model.embeddings import Distances
from docmt.model.kernels import AttentionPattern
from docmt.model.scope import AttentionScope
from docmt.model.spans import Packed, Spans


class Opening(nn.Module):
    """sigmoid(x), element by element: how much of two things a gate lets through."""

    def __init__(self, lets: Literal["own", "context"]) -> None:
        """lets: what passes at 1. own: what is there without context; context: what was found in the context."""
        super().__init__()
        self.lets = lets

    def forward(self, x: Tensor) -> Tensor:
        """x [..., d] -> [..., d]"""
        return torch.sigmoid(x)

    def of_context(self, opening: Tensor) -> Tensor:
        """The share of context, of what `forward` gave."""
        return opening if self.lets == "context" else 1 - opening


@dataclass(frozen=True, eq=False)
class Memory:
    """States that attentions can look at, computed once: sentence i of it belongs to source sentence i.

    `states` [T, d]; the S spans of `sentences` and the D spans of `documents` (where it has any) lie in it. Where
    attentions look at several depths, `layers` has the states of each layer that computed them. `places` [T]: where in
    the packed source the token of each state stands, if sentences of the memory are made of several of the source.
    """

    states: Tensor
    sentences: Spans
    documents: Spans | None = None
    layers: Sequence[Tensor] = ()
    places: Tensor | None = None

    @classmethod
    def of(cls, states: Tensor, packed: Packed) -> Memory:
        """The states of a packed sequence."""
        return cls(states, packed.sentences, packed.documents)

    def at(self, scope: AttentionScope) -> Tensor:
        """The states [T, d] that an attention of this scope looks at."""
        return self.states if scope.depth is None else self.layers[scope.depth]


Layout = Packed | Memory
"""A sequence of sentences and documents."""


class AttentionContext(Protocol):
    """What an attention is given beside the states it computes from."""

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """What `attention` finds for states x [..., d] in what it sees: [..., d], before its output projection."""
        ...

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """What `attention`, whose scope is of a sentence before, finds in each of the k = `scope.back` before.

        x [..., d] asks, and the sequence's own states [..., d] are what is looked at. Returns [..., k, d], oldest
        first and before the output projection, and [..., k] bool: whether there was something to look at.
        """
        ...


class FullContext:
    """A whole pass at once: training, scoring, encoding. Patterns are built once for each scope."""

    def __init__(
        self,
        layout: Layout,
        memories: Mapping[str, Memory] | None = None,
        aligned: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> None:
        """layout: of what is computed; aligned [S], documents [D]: the sentence and the document of the memories that
        belong to each of its own (None: those of the same numbers)."""
        self.layout, self.memories, self.aligned, self.documents = layout, memories or {}, aligned, documents
        self._patterns: dict[AttentionScope, AttentionPattern] = {}
        self._before: dict[AttentionScope, tuple[AttentionPattern, Tensor]] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]"""
        memory, pattern = self.seen(attention.scope, x)
        return attention.over(x, memory, pattern)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [T, d] -> [T, k, d] and [T, k]."""
        scope = attention.scope
        pattern, there = self.seen_before(scope, len(states))
        found = attention.over(x, states, pattern, times=scope.back)
        return found.unflatten(0, (scope.back, -1)).transpose(0, 1), there.to(x.device)

    def seen_before(self, scope: AttentionScope, total: int) -> tuple[AttentionPattern, Tensor]:
        """The pattern in which all sentences ask k times, once for each before, and what is there [T, k].

        total: T, tokens of the sequence.
        """
        if scope not in self._before:
            spans = [visible_spans(self.layout, replace(scope, back=back)) for back in range(scope.back, 0, -1)]
            own = self.layout.sentences.lengths
            keys = Spans(torch.cat([each.starts for each in spans]), torch.cat([each.lengths for each in spans]))
            there = torch.stack([each.lengths > 0 for each in spans], dim=1)  # [S, k]
            pattern = AttentionPattern(Spans.tile(own.repeat(scope.back)), keys, False, total)
            self._before[scope] = pattern, there.repeat_interleave(own, dim=0)
        return self._before[scope]

    def seen(self, scope: AttentionScope, x: Tensor) -> tuple[Tensor, AttentionPattern]:
        """The states that an attention of this scope looks at, and which of them each token sees."""
        memory = x if scope.memory == "self" else self.memories[scope.memory].at(scope)
        pattern = self._patterns.get(scope.place)
        if pattern is None:
            queries = self.layout.documents if scope.part == "document" else self.layout.sentences
            if queries is None:
                raise ValueError(f"what is computed has no documents, but {scope} asks for them")
            pattern = AttentionPattern(queries, self._keys(scope), scope.causal, len(memory), self.layout.sentences)
            self._patterns[scope.place] = pattern
        return memory, pattern

    def _keys(self, scope: AttentionScope) -> Spans:
        if scope.memory == "self":
            return visible_spans(self.layout, scope)
        spans = visible_spans(self.memories[scope.memory], scope)
        chosen = self.documents if scope.part == "document" else self.aligned
        return spans if chosen is None else spans.select(chosen)


class SharedContext:
    """A whole pass in which states that are the same (`ModelInput.same`) are computed once.

    Of the T tokens of the layout U are computed. Attention sees all T, as there spans must be whole; what has weights,
    and takes the time, has the U alone.
    """

    def __init__(self, context: FullContext, same: Tensor) -> None:
        """context: of all T tokens; same [T]: for each token the one that is computed in its place."""
        self.context = context
        self.computed, self.place = same.unique(return_inverse=True)  # [U] of the T, [T] of the U

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [U, d] -> [U, d]"""
        return self.context.attend(attention, x.index_select(0, self.place)).index_select(0, self.computed)

    def attend_before(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [U, d] -> [U, k, d] and [U, k]."""
        found, there = self.context.attend_before(
            attention, *(each.index_select(0, self.place) for each in (x, states))
        )
        return found.index_select(0, self.computed), there.index_select(0, self.computed)


def visible_spans(layout: Layout, scope: AttentionScope) -> Spans:
    """What each sentence (of scopes of documents: each document) sees: a span in the layout."""
    if scope.part == "sentence":
        return layout.sentences
    if layout.documents is None:
        raise ValueError(f"the memory {scope.memory!r} has no documents, but {scope} asks for them")
    if scope.part == "document":
        return layout.documents
    return layout.sentences.before(layout.documents, scope.back).within(*scope.marks)


_log = logging.getLogger(__name__)
_reasons_logged: set[str] = set()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Spans,
    keys: Spans,
    causal: bool = False,
    *,
    dropout: float = 0.0,
    kernel: str | None = None,
    distances: Distances | None = None,
) -> Tensor:
    """Scaled dot-product attention in which segment i of the queries sees span i of the keys and nothing else.

    query [Tq, H, k]; key, value [Tk, H, k]; returns [Tq, H, k]. `queries` must tile the Tq positions; key spans
    may lie anywhere. With `causal`, token j of a segment sees tokens 0..j of its span. `kernel` forces one of
    `kernels.KERNELS`. `distances` biases scores by how far a key is from a query, both counted from where their
    segment and span begin. Work is the sum of |segment| x |span|: nothing outside the pattern is computed.
    Raises ValueError when spans do not fit together.
    """
    pattern = AttentionPattern(queries, keys, causal, len(key))
    return attend_pattern(query, key, value, pattern, dropout=dropout, kernel=kernel, distances=distances)


def attend_pattern(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: AttentionPattern,
    *,
    dropout: float = 0.0,
    kernel: str | None = None,
    distances: Distances | None = None,
) -> Tensor:
    """`attend` with a pattern that is worked out already."""
    if pattern.sees_nothing:
        # Gradients (zeros) must reach all three nevertheless, or processes that exchange them would wait for ever.
        return query * 0.0 + 0.0 * (key.sum() + value.sum())
    if kernel is None:
        kernel, reason = kernels.choose(query, dropout, distances is not None)
        if reason not in _reasons_logged:
            _reasons_logged.add(reason)
            _log.info("attention kernel: %s (%s)", kernel, reason)
    if kernel not in kernels.KERNELS:
        raise ValueError(f"kernel {kernel!r}: choose one of {', '.join(kernels.KERNELS)}")
    # Queries, keys and values come in the precision that the projections chose; autocast would only add copies here.
    with torch.autocast(query.device.type, enabled=False):
        return kernels.KERNELS[kernel](query, key, value, pattern, dropout, distances)


class Attention(nn.Module):
    """Projections, H heads over what the scope names, output projection (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(
        self,
        width: int,
        heads: int,
        scope: AttentionScope,
        dropout: float = 0.0,
        memory_width: int | None = None,
        output_bias: bool = True,
        *,
        head_width: int = 0,
        biases: bool = True,
        scaled: bool = True,
        distances: Distances | None = None,
    ) -> None:
        """memory_width: of the states that are looked at, where that is not `width`. Without `output_bias`, an
        attention that sees nothing gives zero. head_width: k (0: width / heads); scaled: scores are divided by the
        square root of k; distances: biases of them, which belong to the model."""
        super().__init__()
        self.heads, self.scope, self.dropout = heads, scope, dropout
        inner = heads * (head_width or width // heads)
        self.query = nn.Linear(width, inner, bias=biases)
        self.key = nn.Linear(memory_width or width, inner, bias=biases)
        self.value = nn.Linear(memory_width or width, inner, bias=biases)
        self.output = nn.Linear(inner, width, bias=biases and output_bias)
        self.joint: nn.Module | None = None
        self.factor = 1.0 if scaled else (inner // heads) ** 0.5
        self._distances = (distances,)  # not a module of this one
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    @property
    def distances(self) -> Distances | None:
        """What scores have for the distance of a key, shared by all attentions of a stack."""
        return self._distances[0]

    def split(self, x: Tensor) -> Tensor:
        """[..., H k] -> [..., H, k]"""
        return x.unflatten(-1, (self.heads, -1))

    def asked(self, x: Tensor) -> Tensor:
        """What x [..., d] asks, for kernels, which divide by the square root of k: [..., H, k]."""
        query = self.split(self.query(x))
        return query if self.factor == 1.0 else query * self.factor

    def join_projections(self) -> None:
        """Makes one product of the three projections where all are of the same states: fewer, larger calls."""
        if self.scope.memory != "self" or self.scope.part == "before":
            return
        parts = (self.query, self.key, self.value)
        weights = torch.cat([own.weight.detach() for own in parts])
        biased = self.query.bias is not None
        self.joint = nn.Linear(weights.shape[1], weights.shape[0], bias=biased, device="meta")
        self.joint.weight = nn.Parameter(weights)
        if biased:
            self.joint.bias = nn.Parameter(torch.cat([own.bias.detach() for own in parts]))
        del self.query, self.key, self.value

    def projected(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What x [..., d] asks, and keys and values of memory [..., d] (the same tensor for self-attention), each
        [..., H, k]."""
        if self.joint is None:
            return self.asked(x), self.split(self.key(memory)), self.split(self.value(memory))
        query, pair = self.asked_and_kept(x)
        key, value = pair.unbind(-3)
        return query, key, value

    def asked_and_kept(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What x [..., d] asks of the sequence that it belongs to, [..., H, k], and its own keys and values,
        [..., 2, H, k]."""
        if self.joint is None:
            return self.asked(x), torch.stack((self.split(self.key(x)), self.split(self.value(x))), dim=-3)
        parts = self.joint(x).unflatten(-1, (3, self.heads, -1))
        query = parts[..., 0, :, :]
        return query if self.factor == 1.0 else query * self.factor, parts[..., 1:, :, :]

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        output: Tensor = self.output(context.attend(self, x))
        return output

    def over(self, x: Tensor, memory: Tensor, pattern: AttentionPattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d] (the same tensor for self-attention): [Tq, H k].

        times: how often the pattern has the queries, one time after the other; then [times * Tq, d].
        """
        query, key, value = self.projected(x, memory)
        return attend_pattern(
            query if times == 1 else query.repeat(times, 1, 1),
            key,
            value,
            pattern,
            dropout=self.dropout if self.training else 0.0,
            distances=self.distances,
        ).flatten(-2)


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3).

    Additive: local + (1 - g) * global, which is what is there without the document where global is zero.
    """

    def __init__(self, width: int, bias: float = 0.0, *, additive: bool = False) -> None:
        """bias: its start; at 3, 5 % of the attention over the document come through."""
        super().__init__()
        self.additive = additive
        self.linear = nn.Linear(2 * width, width)
        self.opening = Opening("own")
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """local, whole [..., d] -> [..., d]"""
        gate = self.opening(self.linear(torch.cat((local, whole), dim=-1)))
        return local + (1 - gate) * whole if self.additive else torch.lerp(whole, local, gate)


class GroupAttention(nn.Module):
    """Attention within sentences (`local`), over the document (`whole`), or both joined by a gate."""

    def __init__(
        self, local: Attention | None = None, whole: Attention | None = None, gate: Gate | None = None
    ) -> None:
        super().__init__()
        self.local, self.whole, self.gate = local, whole, gate

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        found: list[Tensor] = [part(x, context) for part in (self.local, self.whole) if part is not None]
        joined: Tensor = found[0] if self.gate is None else self.gate(*found)
        return joined
