"""Attention over spans: `attend`, multi-head attention, gates, and attention contexts.

An attention context is the only interface between a layer and a full pass or a decoding step.
Notation: T packed tokens, S sentences, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

from docmt.model import kernels
from docmt.model.embeddings import DistanceBiases, SentenceRelation
from docmt.model.kernels import AttentionPattern
from docmt.model.scope import AttentionScope
from docmt.model.spans import Packed, Spans

if TYPE_CHECKING:
    from docmt.model.selective_attention import SelectiveAttention


class GateSigmoid(nn.Module):
    """Elementwise sigmoid of a gate that weights an input and its context."""

    def __init__(self, passes: Literal["input", "context"]) -> None:
        """passes: what an open gate (1) lets through."""
        super().__init__()
        self.passes = passes

    def forward(self, x: Tensor) -> Tensor:
        """x [..., d] -> [..., d]"""
        return torch.sigmoid(x)

    def context_share(self, opening: Tensor) -> Tensor:
        """Return the weight of the context for an output of `forward`."""
        return opening if self.passes == "context" else 1 - opening


@dataclass(frozen=True, eq=False)
class Memory:
    """States that attentions read, computed once. Sentence i belongs to source sentence i.

    `states` is [T, d], with S spans in `sentences` and D spans in `documents`. `layers` has the states of each layer,
    if attentions read several layers. `source_positions` [T] are the positions of the states in the packed source, if
    a sentence of the memory consists of several source sentences.
    """

    states: Tensor
    sentences: Spans
    documents: Spans | None = None
    layers: Sequence[Tensor] = ()
    source_positions: Tensor | None = None
    projected: dict[Attention, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """keys and values [T, H, k] that searches have projected, which further ones share"""

    @classmethod
    def from_packed(cls, states: Tensor, packed: Packed) -> Memory:
        """Build the memory of a packed sequence from its states."""
        return cls(states, packed.sentences, packed.documents)

    def select_states(self, scope: AttentionScope) -> Tensor:
        """Return the states [T, d] that an attention of this scope reads."""
        return self.states if scope.layer is None else self.layers[scope.layer]


PackedSentences = Packed | Memory
"""A sequence of sentences and documents."""


class AttentionContext(Protocol):
    """Access of attentions to the states that they see."""

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """Attend from x [..., d] to the visible states. Returns [..., H k], before the output projection."""
        ...

    def attend_preceding(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from x [..., d] to each of the n = `scope.offset` preceding sentences separately.

        `states` [..., d] are the states of the sequence. Returns [..., n, d], oldest first and before the output
        projection, and [..., n] bool: whether the sentence exists. The scope must be that of neighbours.
        """
        ...

    def attend_sentences(self, attention: SelectiveAttention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from x [..., d] to the words of other sentences. `states` [..., d] are those of the sequence.

        Returns [..., H k], before the output projection, and [...] bool: whether another sentence is visible.
        """
        ...


class FullContext:
    """Attention context of a full pass: training, scoring, encoding. Patterns are built once per scope."""

    def __init__(
        self,
        sequence: PackedSentences,
        memories: Mapping[str, Memory] | None = None,
        alignment: Tensor | None = None,
        document_alignment: Tensor | None = None,
        is_read: Tensor | None = None,
    ) -> None:
        """sequence: whose states are computed; alignment [S], document_alignment [D]: the sentence and document of the
        memories for each sentence and document of the sequence (None: those with the same index); is_read [S]: whether
        the states of a sentence are read after this pass (None: all are)."""
        self.sequence, self.memories, self.is_read = sequence, memories or {}, is_read
        self.alignment, self.document_alignment = alignment, document_alignment
        self._patterns: dict[AttentionScope, AttentionPattern] = {}
        self._preceding: dict[AttentionScope, tuple[AttentionPattern, Tensor]] = {}

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [T, d] -> [T, H k]"""
        memory, pattern = self.resolve_scope(attention.scope, x)
        return attention.attend_memory(x, memory, pattern)

    def attend_preceding(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [T, d] -> [T, n, d] and [T, n]."""
        scope = attention.scope
        pattern, exists = self.resolve_preceding(scope, len(states))
        output = attention.attend_memory(x, states, pattern, repeats=scope.offset)
        return output.unflatten(0, (scope.offset, -1)).transpose(0, 1), exists.to(x.device)

    def attend_sentences(self, attention: SelectiveAttention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [T, d] -> [T, H k] and [T]."""
        memory, sentences = self.resolve_sentences(attention.memory, states)
        return attention.attend_documents(x, sentences, attention.project_memory(memory))

    def resolve_sentences(self, name: str, states: Tensor) -> tuple[Memory, Tensor]:
        """Return the memory of this name, and the number [T] in it of each token's sentence.

        states [T, d]: of the sequence, for the memory self.
        """
        lengths = self.sequence.sentences.lengths
        if name == "self":
            memory = Memory(states, self.sequence.sentences, self.sequence.documents)
            return memory, torch.arange(len(lengths)).repeat_interleave(lengths)
        aligned = torch.arange(len(lengths)) if self.alignment is None else self.alignment
        return self.memories[name], aligned.repeat_interleave(lengths)

    def resolve_preceding(self, scope: AttentionScope, num_tokens: int) -> tuple[AttentionPattern, Tensor]:
        """Return a pattern with n copies of the queries, one per preceding sentence, and which of them exist [T, n].

        num_tokens: T, tokens of the sequence.
        """
        if scope not in self._preceding:
            spans = [visible_spans(self.sequence, replace(scope, offset=back)) for back in range(scope.offset, 0, -1)]
            lengths = self.sequence.sentences.lengths
            keys = Spans(torch.cat([each.starts for each in spans]), torch.cat([each.lengths for each in spans]))
            exists = torch.stack([each.lengths > 0 for each in spans], dim=1)  # [S, n]
            pattern = AttentionPattern(Spans.tile(lengths.repeat(scope.offset)), keys, False, num_tokens)
            self._preceding[scope] = pattern, exists.repeat_interleave(lengths, dim=0)
        return self._preceding[scope]

    def resolve_scope(self, scope: AttentionScope, x: Tensor) -> tuple[Tensor, AttentionPattern]:
        """Return the states that an attention of this scope reads, and which of them each token sees."""
        if scope.memory not in ("self", *self.memories):
            raise ValueError(f"the system has no memory {scope.memory!r}, only self and {list(self.memories)}")
        memory = x if scope.memory == "self" else self.memories[scope.memory].select_states(scope)
        pattern = self._patterns.get(scope.without_layer)
        if pattern is None:
            queries = self.sequence.documents if scope.extent == "document" else self.sequence.sentences
            if queries is None:
                raise ValueError(f"the computed sequence has no documents, but {scope} needs them")
            sentences, others = self.sequence.sentences, self.memories.get(scope.memory)
            # It refers to no pattern: no cycle of references.
            number = partial(number_sentences, self.sequence, self.alignment, find_source(self.memories), others)
            pattern = AttentionPattern(queries, self._keys(scope), scope.causal, len(memory), sentences, number)
            self._patterns[scope.without_layer] = pattern
        return memory, pattern

    def _keys(self, scope: AttentionScope) -> Spans:
        if scope.memory == "self":
            return visible_spans(self.sequence, scope)
        spans = visible_spans(self.memories[scope.memory], scope)
        indices = self.document_alignment if scope.extent == "document" else self.alignment
        return spans if indices is None else spans.select(indices)


def find_source(memories: Mapping[str, Memory]) -> Memory | None:
    """Return a memory with the sentences and documents of the packed source, if there is one."""
    return next((memory for memory in memories.values() if memory.documents is not None), None)


def number_sentences(
    sequence: PackedSentences, alignment: Tensor | None, source: Memory | None, memory: Memory | None
) -> tuple[Tensor, Tensor]:
    """Return the number in its document of the (aligned) sentence of each query [Tq], and of that of each key [Tk].

    alignment [S]: numbers in the packed source; memory: that of the keys (None: the sequence).
    """
    if alignment is None or source is None:
        queries = number_in_documents(sequence)
    else:
        queries = number_in_documents(source)[alignment]
    own = queries.repeat_interleave(sequence.sentences.lengths)
    return own, own if memory is None else number_in_documents(memory).repeat_interleave(memory.sentences.lengths)


def number_in_documents(sequence: PackedSentences) -> Tensor:
    """Return the number of each sentence in its document: [S] int64, on the host. Raises ValueError without documents.

    Numbers of a document must not depend on others in the batch, as rotated states are rounded.
    """
    if sequence.documents is None:
        raise ValueError("distances in sentences need the documents of the sequence")
    return sequence.sentences.numbers_within(sequence.documents)


class SharedContext:
    """Attention context of a full pass that computes equal states (`ModelInput.representatives`) once.

    U of the T tokens are computed. Attention sees all T, because spans must be complete. Everything with weights, which
    takes the time, runs on U tokens.
    """

    def __init__(self, context: FullContext, representatives: Tensor) -> None:
        """context: of all T tokens; representatives [T]: the token computed for each token."""
        self.context = context
        self.unique, self.inverse = representatives.unique(return_inverse=True)  # [U] of T, [T] of U

    def attend(self, attention: Attention, x: Tensor) -> Tensor:
        """x [U, d] -> [U, d]"""
        return self.context.attend(attention, x.index_select(0, self.inverse)).index_select(0, self.unique)

    def attend_preceding(self, attention: Attention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [U, d] -> [U, n, d] and [U, n]."""
        output, exists = self.context.attend_preceding(
            attention, *(each.index_select(0, self.inverse) for each in (x, states))
        )
        return output.index_select(0, self.unique), exists.index_select(0, self.unique)

    def attend_sentences(self, attention: SelectiveAttention, x: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """See `AttentionContext`: x, states [U, d] -> [U, H k] and [U]."""
        output, exists = self.context.attend_sentences(
            attention, *(each.index_select(0, self.inverse) for each in (x, states))
        )
        return output.index_select(0, self.unique), exists.index_select(0, self.unique)


def visible_spans(sequence: PackedSentences, scope: AttentionScope) -> Spans:
    """Return the span that each sentence sees, or each document in scopes of documents."""
    if scope.extent == "sentence":
        return sequence.sentences
    if sequence.documents is None:
        raise ValueError(f"the memory {scope.memory!r} has no documents, but {scope} needs them")
    if scope.extent == "document":
        return sequence.documents
    if scope.extent in ("preceding", "recent"):
        return sequence.sentences.join_preceding(sequence.documents, scope.offset, itself=scope.extent == "recent")
    return sequence.sentences.select_preceding(sequence.documents, scope.offset).trim(*scope.trim)


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
    distances: DistanceBiases | None = None,
) -> Tensor:
    """Scaled dot-product attention in which segment i of the queries sees span i of the keys and nothing else.

    query [Tq, H, k]; key, value [Tk, H, k]; returns [Tq, H, k]. `queries` must tile the Tq positions; key spans
    may lie anywhere. With `causal`, token j of a segment sees its span up to the j-th of its last |segment| tokens.
    `kernel` selects one of `kernels.KERNELS`. `distances` biases scores by the distance of a key from a query, each
    counted from the start of its segment or span. The cost is the sum of |segment| x |span|. Raises ValueError for
    incompatible spans.
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
    distances: DistanceBiases | None = None,
) -> Tensor:
    """Attend as `attend` does, with a prepared pattern."""
    if pattern.is_empty:
        # All three still need (zero) gradients. Otherwise processes that exchange gradients would deadlock.
        return query * 0.0 + 0.0 * (key.sum() + value.sum())
    if kernel is None:
        kernel, reason = kernels.choose_kernel(query, dropout, distances is not None)
        if reason not in _reasons_logged:
            _reasons_logged.add(reason)
            _log.info("attention kernel: %s (%s)", kernel, reason)
    if kernel not in kernels.KERNELS:
        raise ValueError(f"kernel {kernel!r}: choose one of {', '.join(kernels.KERNELS)}")
    # The projections have chosen the precision. Autocast would only add copies here.
    with torch.autocast(query.device.type, enabled=False):
        return kernels.KERNELS[kernel](query, key, value, pattern, dropout, distances)


class Attention(nn.Module):
    """Multi-head attention over the states of a scope (Vaswani et al. 2017, section 3.2.2)."""

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
        distances: DistanceBiases | None = None,
        relation: SentenceRelation | None = None,
    ) -> None:
        """memory_width: width of the visible states, if not `width`; output_bias: without it, an attention that sees
        nothing gives zero; head_width: k (0: width / heads); scaled: scores are divided by sqrt(k); distances: shared
        biases of the scores, owned by the model; relation: what it knows of the distance in sentences."""
        super().__init__()
        self.heads, self.scope, self.dropout = heads, scope, dropout
        self.head_width = head_width or width // heads
        inner = heads * self.head_width
        self.query = nn.Linear(width, inner, bias=biases)
        self.key = nn.Linear(memory_width or width, inner, bias=biases)
        self.value = nn.Linear(memory_width or width, inner, bias=biases)
        self.output = nn.Linear(inner, width, bias=biases and output_bias)
        self.joint: nn.Module | None = None
        self.query_scale = 1.0 if scaled else self.head_width**0.5
        self._distances = (distances,)  # in a tuple, so that it is no submodule
        self.relation = relation
        for projection in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.output.weight)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    @property
    def distances(self) -> DistanceBiases | None:
        """Biases of scores by distance, shared by all attentions of a stack."""
        return self._distances[0]

    def split_heads(self, x: Tensor) -> Tensor:
        """[..., H k] -> [..., H, k]"""
        return x.view(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)  # x may be empty

    def project_query(self, x: Tensor) -> Tensor:
        """Project x [..., d] to queries [..., H, k] for kernels, which divide scores by sqrt(k)."""
        query = self.split_heads(self.query(x))
        return query if self.query_scale == 1.0 else query * self.query_scale

    def join_projections(self) -> None:
        """Join the three projections of self-attention into one: fewer, larger products."""
        if self.scope.memory != "self" or self.scope.extent == "neighbour":
            return
        projections = (self.query, self.key, self.value)
        weights = torch.cat([projection.weight.detach() for projection in projections])
        has_bias = self.query.bias is not None
        self.joint = nn.Linear(weights.shape[1], weights.shape[0], bias=has_bias, device="meta")
        self.joint.weight = nn.Parameter(weights)
        if has_bias:
            self.joint.bias = nn.Parameter(torch.cat([projection.bias.detach() for projection in projections]))
        del self.query, self.key, self.value

    def project(self, x: Tensor, memory: Tensor, pattern: AttentionPattern) -> tuple[Tensor, Tensor, Tensor]:
        """Project x [Tq, d] to queries, and memory [Tk, d] (x itself for self-attention) to keys and values. Each is
        [..., H, k]."""
        if self.joint is None:
            query, key = self.project_query(x), self.split_heads(self.key(memory))
            value = self.split_heads(self.value(memory))
        else:
            query, pair = self.project_self(x)
            key, value = pair.unbind(-3)
        if self.relation is not None:
            queries, keys = self.describe_sentences(pattern, x.device)
            query, (key, value) = (
                self.relation.change_query(query, queries),
                self.relation.change_pair(key, value, keys),
            )
        return query, key, value

    def describe_sentences(self, pattern: AttentionPattern, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return what the relation needs of the sentences of queries and keys, once for all layers of this scope."""
        relation = self.relation
        assert relation is not None

        def describe() -> tuple[Tensor, Tensor]:
            queries, keys = pattern.sentence_numbers()
            count = 1 + max((int(numbers.max()) for numbers in (queries, keys) if numbers.numel()), default=0)
            return relation.describe_queries(queries, count, device), relation.describe_keys(keys, count, device)

        return pattern.get_or_build(("sentences", type(relation), device), describe)

    def project_self(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project x [..., d] to queries [..., H, k], and to keys and values [..., 2, H, k]."""
        if self.joint is None:
            pair = self.split_heads(self.key(x)), self.split_heads(self.value(x))
            return self.project_query(x), torch.stack(pair, dim=-3)
        joined: Tensor = self.joint(x)
        parts = joined.view(*x.shape[:-1], 3, self.heads, joined.shape[-1] // (3 * self.heads))
        query = parts[..., 0, :, :]
        return query if self.query_scale == 1.0 else query * self.query_scale, parts[..., 1:, :, :]

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        output: Tensor = self.output(context.attend(self, x))
        return output

    def attend_memory(self, x: Tensor, memory: Tensor, pattern: AttentionPattern, repeats: int = 1) -> Tensor:
        """Attend from x [Tq, d] to memory [Tk, d] (x itself for self-attention). Returns [Tq, H k].

        repeats: how many copies of the queries the pattern has, one after the other. Then it is [repeats * Tq, H k].
        """
        query, key, value = self.project(x, memory, pattern)
        return self.attend_projected(query if repeats == 1 else query.repeat(repeats, 1, 1), key, value, pattern)

    def attend_projected(self, query: Tensor, key: Tensor, value: Tensor, pattern: AttentionPattern) -> Tensor:
        """Attend with what `project` returns: [Tq, H k], before the output projection."""
        dropout = self.dropout if self.training else 0.0
        output = attend_pattern(query, key, value, pattern, dropout=dropout, distances=self.distances)
        if self.relation is not None:
            output = self.relation.read_output(output, self.describe_sentences(pattern, query.device)[0])
        return output.flatten(-2)


class Gate(nn.Module):
    """g = sigmoid(W [local; global] + b); g * local + (1 - g) * global, element by element (Bao et al. 2021, 3.3).

    Additive: local + (1 - g) * global. It equals local as long as global is zero.
    """

    def __init__(self, width: int, bias: float = 0.0, *, additive: bool = False) -> None:
        """bias: initial bias. At 3, the weight of the attention over the document is 5 %."""
        super().__init__()
        self.additive = additive
        self.linear = nn.Linear(2 * width, width)
        self.opening = GateSigmoid("input")
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """local, whole [..., d] -> [..., d]"""
        gate = self.opening(self.linear(torch.cat((local, whole), dim=-1)))
        return torch.addcmul(local, 1 - gate, whole) if self.additive else torch.lerp(whole, local, gate)


class GroupAttention(nn.Module):
    """Attention within sentences (`local`), over the document (`whole`), or both: by a gate, or weighted equally."""

    def __init__(
        self,
        local: Attention | None = None,
        whole: Attention | None = None,
        gate: Gate | None = None,
        weight: float = 1.0,
    ) -> None:
        """weight: of each attention, without a gate."""
        super().__init__()
        self.local, self.whole, self.gate, self.weight = local, whole, gate, weight

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        outputs: list[Tensor] = [module(x, context) for module in (self.local, self.whole) if module is not None]
        if self.gate is not None:
            joined: Tensor = self.gate(*outputs)
            return joined
        total = outputs[0] if len(outputs) == 1 else outputs[0] + outputs[1]
        return total if self.weight == 1.0 else self.weight * total
