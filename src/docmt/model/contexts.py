"""Visible states of attentions: memories, and the contexts that find the visible states of an attention.

A context is the only interface between a layer and a full pass (`FullContext`, here) or a decoding step
(`docmt.decoding.incremental`).
Notation: T packed tokens, S sentences, D documents, H heads, d model width, k = d / H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from docmt.model.embeddings import SentenceRelation
from docmt.model.kernels import AttentionPattern, attend_pattern
from docmt.model.scope import AttentionScope
from docmt.model.spans import Packed, Spans


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
    projected: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """keys and values [T, H, k] that searches have projected, which further ones share, by attention"""

    @classmethod
    def from_packed(cls, states: Tensor, packed: Packed) -> Memory:
        """Build the memory of a packed sequence from its states."""
        return cls(states, packed.sentences, packed.documents)

    def select_states(self, scope: AttentionScope) -> Tensor:
        """Return the states [T, d] that an attention of this scope reads."""
        return self.states if scope.layer is None else self.layers[scope.layer]


PackedSentences = Packed | Memory
"""A sequence of sentences and documents."""


class VisibleStates(Protocol):
    """States that the queries of one attention see, in a full pass or in a decoding step."""

    @property
    def memory(self) -> Tensor | None:
        """States [..., d] of keys and values; None if these are stored already."""

    @property
    def exists(self) -> Tensor | None:
        """[..., n] bool: which of n preceding sentences exist, if an attention sees each of them separately."""

    def describe_sentences(self, relation: SentenceRelation) -> tuple[Tensor, Tensor]:
        """Return what the relation needs of the sentences of queries and of keys."""

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """Return softmax(query key^T / sqrt(k)) value over the visible keys: [..., H, k] each.

        To several sentences, the result is [..., n, H, k]. options: dropout and distances (`kernels.attend`).
        """

    def attend_linear(self, attention: Any, x: Tensor) -> Tensor:
        """Return the output [..., H, k] of a linear attention for x [..., d]."""


class AttentionContext(Protocol):
    """Access of attentions to the states that they see."""

    def find(self, attention: Any, x: Tensor) -> VisibleStates:
        """Find what this attention sees. x [..., d] are the states of the sequence.

        Of its own sequence, an attention to neighbours sees each of the n = `scope.offset` sentences before, oldest
        first.
        """

    def find_documents(self, attention: Any, x: Tensor) -> tuple[list[Any], Tensor]:
        """Find the documents of a selective attention's memory, as it projects them.

        x [..., d] are the states of the sequence. Also returns the number [...] in the memory of each query's sentence.
        """


class PackedStates:
    """Visible states of a full pass: a memory [Tk, d], and the pattern of which query sees which of them."""

    def __init__(self, memory: Tensor, pattern: AttentionPattern, exists: Tensor | None = None) -> None:
        """exists [T, n]: see `VisibleStates`. The pattern then has n copies of the queries, one after the other."""
        self.memory: Tensor | None = memory
        self.device, self.pattern, self.exists = memory.device, pattern, exists

    def describe_sentences(self, relation: SentenceRelation) -> tuple[Tensor, Tensor]:
        """See `VisibleStates`. All attentions with this pattern share the result."""
        device = self.device

        def describe() -> tuple[Tensor, Tensor]:
            queries, keys = self.pattern.sentence_numbers()
            count = 1 + max((int(numbers.max()) for numbers in (queries, keys) if numbers.numel()), default=0)
            return relation.describe_queries(queries, count, device), relation.describe_keys(keys, count, device)

        return self.pattern.get_or_build(("sentences", type(relation), device), describe)

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`: query [T, H, k], key and value [Tk, H, k] -> [T, H, k] or [T, n, H, k]."""
        assert key is not None and value is not None
        if self.exists is None:
            return attend_pattern(query, key, value, self.pattern, **options)
        count = self.exists.shape[1]
        output = attend_pattern(query.repeat(count, 1, 1), key, value, self.pattern, **options)
        return output.unflatten(0, (count, -1)).transpose(0, 1)

    def attend_linear(self, attention: Any, x: Tensor) -> Tensor:
        """See `VisibleStates`: x [T, d] -> [T, H, k]."""
        return attention.attend_memory(x, self.memory, self.pattern)


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

    def find(self, attention: Any, x: Tensor) -> PackedStates:
        """See `AttentionContext`: x [T, d]. Raises ValueError for a memory that is missing, or has no documents."""
        scope: AttentionScope = attention.scope
        if scope.sees_each_preceding:
            return self._find_preceding(scope, x)
        if scope.memory not in ("self", *self.memories):
            raise ValueError(f"the system has no memory {scope.memory!r}, only self and {list(self.memories)}")
        memory = x if scope.memory == "self" else self.memories[scope.memory].select_states(scope)
        pattern = self._patterns.get(scope.without_layer)
        if pattern is None:
            whole = scope.extent == "document"
            queries = self.sequence.documents if whole else self.sequence.sentences
            if queries is None:
                raise ValueError(f"the computed sequence has no documents, but {scope} needs them")
            sentences, others = self.sequence.sentences, self.memories.get(scope.memory)
            # It refers to no pattern: no cycle of references.
            number = partial(number_sentences, self.sequence, self.alignment, find_source(self.memories), others)
            keys = visible_spans(others or self.sequence, scope)
            aligned = self.document_alignment if whole else self.alignment
            if others is not None and aligned is not None:
                keys = keys.select(aligned)
            pattern = AttentionPattern(queries, keys, scope.causal, len(memory), sentences, number)
            self._patterns[scope.without_layer] = pattern
        return PackedStates(memory, pattern)

    def _find_preceding(self, scope: AttentionScope, x: Tensor) -> PackedStates:
        """Find each of the n preceding sentences."""
        if scope not in self._preceding:
            spans = [visible_spans(self.sequence, replace(scope, offset=back)) for back in range(scope.offset, 0, -1)]
            lengths = self.sequence.sentences.lengths
            keys = Spans(torch.cat([span.starts for span in spans]), torch.cat([span.lengths for span in spans]))
            exists = torch.stack([span.lengths > 0 for span in spans], dim=1)  # [S, n]
            pattern = AttentionPattern(Spans.tile(lengths.repeat(scope.offset)), keys, False, len(x))
            self._preceding[scope] = pattern, exists.repeat_interleave(lengths, dim=0).to(x.device)
        return PackedStates(x, *self._preceding[scope])

    def find_documents(self, attention: Any, x: Tensor) -> tuple[list[Any], Tensor]:
        """See `AttentionContext`: x [T, d]."""
        memory, sentences = self.resolve_sentences(attention.memory, x)
        return attention.project_memory(memory), sentences

    def resolve_sentences(self, name: str, x: Tensor) -> tuple[Memory, Tensor]:
        """Return the memory of this name, and the number [T] in it of each token's sentence.

        x [T, d]: states of the sequence, for the memory self.
        """
        lengths = self.sequence.sentences.lengths
        if name == "self":
            memory = Memory(x, self.sequence.sentences, self.sequence.documents)
            return memory, torch.arange(len(lengths)).repeat_interleave(lengths)
        aligned = torch.arange(len(lengths)) if self.alignment is None else self.alignment
        return self.memories[name], aligned.repeat_interleave(lengths)


class DraftContext(FullContext):
    """Full pass over drafts: they see no other sentence, and the last layer returns what others read of them.

    It passes through the layers as any other context, whose hooks gather sharded weights.
    """


class SharedContext:
    """Attention context of a full pass that computes equal states (`ModelInput.representatives`) once.

    U of the T tokens are computed. Attention sees all T, because spans must be complete. Everything with weights, which
    takes the time, runs on U tokens.
    """

    def __init__(self, context: FullContext, representatives: Tensor) -> None:
        """context: of all T tokens; representatives [T]: the token computed for each token."""
        self.context = context
        self.unique, self.inverse = representatives.unique(return_inverse=True)  # [U] of T, [T] of U

    def find(self, attention: Any, x: Tensor) -> SharedStates:
        """See `AttentionContext`: x [U, d]."""
        is_self = attention.scope.memory == "self"
        return SharedStates(self.context.find(attention, self.expand(x) if is_self else x), x, is_self, self)

    def find_documents(self, attention: Any, x: Tensor) -> tuple[list[Any], Tensor]:
        """See `AttentionContext`: x [U, d]."""
        documents, sentences = self.context.find_documents(attention, self.expand(x))
        return documents, sentences[self.unique.cpu()]

    def expand(self, x: Tensor) -> Tensor:
        """Return the states of all tokens: [U, ...] -> [T, ...]."""
        return x.index_select(0, self.inverse)

    def select(self, x: Tensor) -> Tensor:
        """Return the states of the computed tokens: [T, ...] -> [U, ...]."""
        return x.index_select(0, self.unique)


class SharedStates:
    """Visible states of a full pass that computes U of its T tokens."""

    def __init__(self, states: PackedStates, x: Tensor, is_self: bool, shared: SharedContext) -> None:
        """states: what all T tokens see; x [U, d]; is_self: keys are of the sequence itself."""
        self.states, self.is_self, self.shared = states, is_self, shared
        self.memory = x if is_self else states.memory
        self.exists = None if states.exists is None else shared.select(states.exists)

    def describe_sentences(self, relation: SentenceRelation) -> tuple[Tensor, Tensor]:
        """See `VisibleStates`."""
        queries, keys = self.states.describe_sentences(relation)
        return self.shared.select(queries), self.shared.select(keys) if self.is_self else keys

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`: query [U, H, k] -> [U, H, k] or [U, n, H, k]."""
        assert key is not None and value is not None
        if self.is_self:
            key, value = self.shared.expand(key), self.shared.expand(value)
        return self.shared.select(self.states.attend(self.shared.expand(query), key, value, **options))

    def attend_linear(self, attention: Any, x: Tensor) -> Tensor:
        """See `VisibleStates`: x [U, d] -> [U, H, k]."""
        return self.shared.select(self.states.attend_linear(attention, self.shared.expand(x)))


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
    of_queries = queries.repeat_interleave(sequence.sentences.lengths)
    if memory is None:
        return of_queries, of_queries
    return of_queries, number_in_documents(memory).repeat_interleave(memory.sentences.lengths)


def number_in_documents(sequence: PackedSentences) -> Tensor:
    """Return the number of each sentence in its document: [S] int64, on the host. Raises ValueError without documents.

    Numbers of a document must not depend on others in the batch, as rotated states are rounded.
    """
    if sequence.documents is None:
        raise ValueError("distances in sentences need the documents of the sequence")
    return sequence.sentences.numbers_within(sequence.documents)


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
