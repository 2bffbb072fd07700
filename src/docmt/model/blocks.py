"""Blocks of systems: hops, sentence encoders, hierarchical and selective attention, a bidirectional LSTM.

Notation: T tokens of the memory, d model width, H heads, k width of a head. A document has J sentences of up to W
words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from docmt.model.attention import Attention, Gate, GateSigmoid
from docmt.model.attention_weights import MAX_SCORES
from docmt.model.builder import ModelBuilder
from docmt.model.contexts import AttentionContext, DraftContext, FullContext, Memory
from docmt.model.embeddings import Embeddings
from docmt.model.kernels import upcast
from docmt.model.layers import Dropout, GatedResidual, Layer, Residual
from docmt.model.scope import AttentionScope
from docmt.model.spans import Packed, Spans
from docmt.model.systems.base import System


class Hops(nn.Module):
    """Successive attentions to single sentences. Each adds its output to the queries of the next (Multi-Hop).

    The outputs have no bias, so a missing sentence adds nothing.
    """

    def __init__(self, builder: ModelBuilder, scopes: Sequence[AttentionScope], *, zero_init: bool) -> None:
        """scopes: one for each attention; zero_init: their initial output is zero."""
        super().__init__()
        self.hops = nn.ModuleList(
            builder.build_attention(scope, zero_init=zero_init, output_bias=False) for scope in scopes
        )

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> the sum of all hops, [..., d]"""
        first, *following = self.hops
        total: Tensor = first(x, context)
        for hop in following:
            total = total + hop(x + total, context)
        return total


class HierarchicalAttention(nn.Module):
    """Attention to each of n sentences, then to the n outputs (after Miculicich et al. 2018), as a block of a layer.

    Attentions to sentences have no output bias. So the output of a missing sentence is zero, by which it is hidden.
    """

    def __init__(self, builder: ModelBuilder, scopes: Sequence[AttentionScope], *, zero_init: bool) -> None:
        """scopes: one for each sentence, oldest first; zero_init: the initial output is zero."""
        super().__init__()
        self.words = nn.ModuleList(builder.build_attention(scope, output_bias=False) for scope in scopes)
        self.sentences = SentenceAttention(builder, scopes[0].memory)
        if zero_init:
            nn.init.zeros_(self.sentences.output.weight)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d], zero without any sentence"""
        summaries = torch.stack([attention(x, context) for attention in self.words], dim=-2)  # [..., n, d]
        exists = summaries.detach().any(-1)  # [..., n]
        output: Tensor = self.sentences(x, summaries, exists)
        return output * exists.any(-1, keepdim=True)


class SentenceEncoder(nn.Module):
    """Encoder of single sentences whose memory has the states of every layer."""

    def __init__(self, builder: ModelBuilder, side: str, *, whole: bool, frozen: bool) -> None:
        """side: of the text; layer i of its stack reads layer i of this encoder; whole: the memory of a layer is taken
        after the whole layer, not after its self-attention; frozen: not trained.

        The encoder of the target side has separate embeddings.
        """
        super().__init__()
        is_target = side == "target"
        builder = builder if is_target else builder.encoder
        depth = builder.config.decoder_layers if is_target else builder.config.encoder_layers
        layers = [System().build_encoder_layer(builder, number) for number in range(depth)]
        if not whole:  # nothing reads the output of the last feed-forward block
            layers[-1] = builder.build_layer(attention=layers[-1].get_submodule("attention"))
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(builder.build_norm() for _ in layers if builder.pre_norm)
        """for the states of each layer"""
        self.embeddings = _build_target_reader(builder) if is_target else None
        """separate ones for the text; None: those of the source"""
        self.memory_block, self.frozen = "feed_forward" if whole else "attention", frozen
        self.requires_grad_(not frozen)

    def forward(self, x: Tensor, text: Packed) -> Memory:
        """Embedded text [T, d] -> a memory with the states [T, d] after the memory block of each layer."""
        x = x.detach() if self.frozen else x
        context, states = FullContext(text), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for block, output in layer.iterate_blocks(x, context):
                x = output
                if block == self.memory_block:
                    states.append(x)
        if self.norms:
            states = [norm(state) for norm, state in zip(self.norms, states, strict=True)]
        return Memory(states[-1], text.sentences, text.documents, states)


def _build_target_reader(builder: ModelBuilder) -> Embeddings:
    """Build embeddings for an encoder that reads target text as its source."""
    # The table names are those of the model: two tables, or one.
    size = builder.config.vocabulary_size if builder.has_two_tables else 0
    builder = ModelBuilder(replace(builder.config, source_vocabulary_size=size))
    reader = Embeddings(builder.encoder, builder)
    for name, _ in list(reader.named_children()):
        if name.partition("_")[0] not in ("source", "tokens"):
            delattr(reader, name)
    return reader


def zero_projections(*projections: nn.Module) -> None:
    """Set weights and biases to zero, so that a new block starts without effect."""
    for weights in (weights for projection in projections for weights in projection.parameters()):
        nn.init.zeros_(weights)


class Hierarchy(nn.Module):
    """Hierarchical attention above a stack, from each state to the n preceding sentences (Miculicich et al. 2018).

    s_j is the attention of LN(x) to the states of sentence j, with one attention for all j. s is the attention of
    LN'(x) to LN(s_1) .. LN(s_n), followed by a feed-forward block. g = sigmoid(W [x; s] + b). Published: LN((1 - g) x +
    g s). Identity: x + g s without a norm, where both output projections start at zero. Then a new model equals the
    sentence model bit for bit.

    Without a preceding sentence x is unchanged. (There the published code takes the mean over all positions of the
    first sentence of the batch, later target words included.) Missing sentences are hidden.
    """

    def __init__(self, builder: ModelBuilder, scope: AttentionScope, *, identity: bool, detach: bool) -> None:
        """scope: the n = `scope.offset` preceding sentences; identity: it starts without effect; detach: no gradient
        reaches the states through queries and keys, but through x alone, as published."""
        super().__init__()
        self.detach, width = detach, builder.config.width
        self.words_norm, self.sentences_norm, self.summary_norm = (builder.build_norm() for _ in range(3))
        self.words, self.sentences = builder.build_attention(scope), SentenceAttention(builder)
        self.feed_forward = builder.build_feed_forward()
        self.feed_forward_residual = Residual(builder.build_norm(), builder.config.dropout, pre_norm=True)
        self.gate = nn.Linear(2 * width, width)
        self.opening = GateSigmoid("context")
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.norm = None if identity else builder.build_norm()
        if identity:
            zero_projections(self.sentences.output, self.feed_forward.outer)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        states = x.detach() if self.detach else x
        exists = context.find(self.words, states).exists  # [..., n]
        assert exists is not None
        summaries = self.summary_norm(self.words(self.words_norm(states), context, states))  # [..., n, d]
        s = self.sentences(self.sentences_norm(states), summaries, exists)
        branch = self.feed_forward_residual
        s = branch.add_output(s, self.feed_forward(branch.prepare_input(s), context))
        gate = self.opening(self.gate(torch.cat((x, s), dim=-1)))
        # Not `lerp`: under autocast, x from a norm may have another precision.
        joined = x + gate * s if self.norm is None else self.norm(x + gate * (s - x))
        return torch.where(exists.any(-1, keepdim=True), joined, x)


class DocumentLayer(nn.Module):
    """Layer of attention to the document above sentence states x, joined with them by a gate (Zheng et al. 2020).

    With y = layer(x), in pre-norm branches: g x + (1 - g) y, followed by a norm if published. As x + (1 - g) (y - x),
    it is x bit for bit while the outputs of the layer are zero. The gate reads x and y - x, a reparametrisation.
    """

    def __init__(self, builder: ModelBuilder, attention: Attention, *, identity: bool) -> None:
        """identity: it starts without effect."""
        super().__init__()
        feed_forward, dropout = builder.build_feed_forward(), builder.config.dropout
        self.layer = Layer({})
        for name, block in (("attention", attention), ("feed_forward", feed_forward)):
            self.layer.insert(name, block, Residual(builder.build_norm(), dropout, pre_norm=True))
        self.gate = Gate(builder.config.width, additive=True)
        self.norm = None if identity else builder.build_norm()
        if identity:
            zero_projections(attention.output, feed_forward.outer)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d]"""
        joined: Tensor = self.gate(x, self.layer(x, context) - x)
        return joined if self.norm is None else self.norm(joined)


class SentenceAttention(nn.Module):
    """Attention of each position to its n sentence summaries, without those of missing sentences.

    It reads no other position, so it has no scope and needs no cache, and is no `Attention`.
    """

    def __init__(self, builder: ModelBuilder, memory: str = "self") -> None:
        """memory: that is summarized (`AttentionScope.memory`)."""
        super().__init__()
        width = builder.config.width
        self.heads, self.memory = builder.config.heads, memory
        inner = width if width % self.heads == 0 else builder.config.attention_width
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.output = nn.Linear(inner, width)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, summaries: Tensor, exists: Tensor) -> Tensor:
        """x [..., d], summaries [..., n, d], exists [..., n] bool -> [..., d], finite even without summaries."""
        values = self._split(self.value(summaries))  # [..., H, n, d / H]
        weights = self.attention_weights(x, summaries, exists).to(values.dtype)
        return self.output((weights[..., None, :] @ values).flatten(-3))

    def attention_weights(self, x: Tensor, summaries: Tensor, exists: Tensor) -> Tensor:
        """Return the attention weights of each position for its summaries: [..., H, n]."""
        query = self.query(x).unflatten(-1, (self.heads, -1))[..., None, :]  # [..., H, 1, d / H]
        keys = self._split(self.key(summaries))  # [..., H, n, d / H]
        scores = (query @ keys.transpose(-1, -2))[..., 0, :] * query.shape[-1] ** -0.5  # [..., H, n]
        visible = exists | ~exists.any(-1, keepdim=True)  # a softmax over no key is NaN
        return scores.masked_fill(~visible[..., None, :], -torch.inf).softmax(-1)

    def _split(self, x: Tensor) -> Tensor:
        """[..., n, d] -> [..., H, n, d / H]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


class Bilstm(nn.Module):
    """Bidirectional LSTM over each segment, with d units per direction (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True)

    def forward(self, x: Tensor, segments: Spans) -> Tensor:
        """x [T, d], segments laid end to end -> [T, 2 d]: forward states, then backward states."""
        parts = [part for part in upcast(x).split(segments.lengths.tolist()) if len(part)]
        with torch.autocast(x.device.type, enabled=False):
            output, _ = self.lstm(pack_sequence(parts, enforce_sorted=False))
        return torch.cat(unpack_sequence(output)).to(x.dtype)


Normalization = Literal["softmax", "sparsemax"]


def sparsemax(scores: Tensor) -> Tensor:
    """Return the distribution nearest to the scores [..., n] (Martins and Astudillo 2016): [..., n].

    It is max(z - tau, 0), where tau makes the sum 1 (their algorithm 1), so low scores have weight 0 and gradient 0.
    Scores of minus infinity have weight 0. At least one score must be finite.
    """
    scores = scores - scores.detach().amax(-1, keepdim=True)  # sums near 0 are more precise, and the result is the same
    with torch.no_grad():
        ordered = scores.sort(-1, descending=True).values
        sums, counts = ordered.cumsum(-1), torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        count = (1 + counts * ordered > sums).sum(-1, keepdim=True).clamp(min=1)  # 0 if a score is NaN
        in_support = scores > (sums.gather(-1, count - 1) - 1) / count
    tau = (scores.masked_fill(~in_support, 0).sum(-1, keepdim=True) - 1) / in_support.sum(-1, keepdim=True)
    return (scores - tau).relu()


class ContextDocument(NamedTuple):
    """Projected words of a document. At sentence level, each sentence has one: the mean of its words."""

    first: int
    """number of its first sentence in the memory"""
    has_words: Tensor
    """[J] bool, on the host"""
    is_word: Tensor
    """[J, W] bool, False for padding"""
    keys: Tensor
    """[H, J W, k]"""
    values: Tensor
    """[H, J W, k]"""
    sentence_keys: Tensor | None
    """[H, J, k] means of the keys of sentences, at hierarchical level"""


class _Queries(NamedTuple):
    """Queries that belong to one document."""

    states: dict[str, Tensor]
    """[H, q, k] by name of the projection"""
    visible: Tensor
    """[q, J] bool: sentences that each of them sees"""


class SelectiveAttention(nn.Module):
    """Context c of each state x: attention to the words of other sentences of its document, then a feed-forward block.

    c = LN(FFN(LN(W a))) without residual branches. a has per head the sum of the values V w of words w, with weights:

    - hierarchical: sparsemax over sentences j of (Q x)(K mean of j) / sqrt(k), times the weights within sentence j
    - word: weights of all words of all visible sentences, of (Q' x)(K' w) / sqrt(k)
    - sentence: softmax over sentences; a sentence is the mean of its words

    Identity: the last norm is left out, and FFN ends with zero. `GatedResidual` then leaves the state unchanged. No
    projection has a bias. A memory with layers has the states of keys in its first one.
    """

    def __init__(
        self,
        builder: ModelBuilder,
        memory: Literal["self", "drafts"],
        trim: tuple[int, int],
        *,
        identity: bool,
        preceding: bool,
        level: Literal["sentence", "word", "hierarchical"],
        words: Normalization,
        detach: bool,
    ) -> None:
        """memory: that of the words; trim: hidden boundary tokens at the start and end of a sentence; preceding: only
        sentences before are visible; words: weights of words; detach: no gradient reaches the memory."""
        super().__init__()
        config = builder.config
        self.heads, self.memory, self.trim = config.heads, memory, trim
        self.preceding, self.level, self.detach = preceding, level, detach
        self.norm, self.feed_forward = builder.build_norm(), builder.build_feed_forward()
        self.last_norm = None if identity else builder.build_norm()
        self.normalize = sparsemax if words == "sparsemax" else partial(torch.softmax, dim=-1)
        self.projections = ["query", "key", "value"]
        if level == "hierarchical":
            self.projections += ["sentence_query", "sentence_key"]
        for name in self.projections:
            self.add_module(name, _build_projection(config.width, config.attention_width))
        self.output = _build_projection(config.attention_width, config.width)
        self.dropout_of_weights, self.dropout = Dropout(config.attention_dropout), Dropout(config.dropout)
        if identity:
            zero_projections(self.feed_forward.outer)

    def forward(self, x: Tensor, context: AttentionContext, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return c [..., d], and whether anything is visible [...] bool, for queries x [..., d].

        states [..., d]: of the computed sequence, which other sentences read.
        """
        documents, sentences = context.find_documents(self, states)
        attended, exists = self.attend_documents(x, sentences, documents)
        c = self.feed_forward(self.norm(self.dropout(self.output(attended))), context)
        return c if self.last_norm is None else self.last_norm(c), exists

    def attend_documents(
        self, x: Tensor, sentences: Tensor, documents: Sequence[ContextDocument]
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted values [n, H k] of queries x [n, d], and whether anything is visible [n] bool.

        sentences [n]: number of each query's sentence in the memory, on the host.
        """
        outputs, exists = [], []
        order, queries = self._group_queries(x, sentences, documents)
        for document, each in zip(documents, queries, strict=True):
            exists.append(each.visible.any(-1))
            if exists[-1].any():
                for weights in self._iterate_blocks(document, each):
                    outputs.append(self.dropout_of_weights(weights).to(document.values.dtype) @ document.values)
            else:  # all need (zero) gradients, or processes that exchange gradients would deadlock
                projected = (document.keys, document.values, document.sentence_keys)
                unused = sum(keys.sum() for keys in projected if keys is not None)
                outputs.append((sum(each.states.values()) + unused) * 0.0)
        inverse = order.argsort()
        output = torch.cat(outputs, dim=1).transpose(0, 1).flatten(1)
        return output.index_select(0, inverse.to(x.device)), torch.cat(exists)[inverse].to(x.device)

    @torch.no_grad()
    def attention_weights(self, x: Tensor, memory: Memory, sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weight of each other sentence for each query x [n, d], arbitrary where none is visible.

        sentences: see `attend_documents`. Returns weights [n, H, m], and on the host which sentences of the memory are
        visible [n, m] bool, and their numbers [n, m] int64. m is the number of sentences of the longest document.
        """
        documents = self.project_memory(memory)
        count = max(len(document.is_word) for document in documents)
        weights, visible, numbers = [], [], []
        order, queries = self._group_queries(x, sentences, documents)
        for document, each in zip(documents, queries, strict=True):
            rows, missing = len(each.visible), (0, count - len(document.is_word))
            if each.visible.any():
                blocks = [block.unflatten(-1, document.is_word.shape) for block in self._iterate_blocks(document, each)]
                weights.append(F.pad(torch.cat(blocks, dim=1).sum(-1).transpose(0, 1), missing))
            else:
                weights.append(upcast(x.new_zeros(rows, self.heads, count)))
            visible.append(F.pad(each.visible, missing))
            numbers.append((document.first + torch.arange(count)).expand(rows, -1))
        inverse = order.argsort()
        return (
            torch.cat(weights)[inverse.to(x.device)],
            torch.cat(visible)[inverse],
            torch.cat(numbers)[inverse].clamp(max=len(memory.sentences) - 1),
        )

    def project_memory(self, memory: Memory) -> list[ContextDocument]:
        """Project the words of each document of the memory."""
        assert memory.documents is not None
        values, keys = memory.states, memory.layers[0] if memory.layers else memory.states
        if self.detach:
            values, keys = values.detach(), keys.detach()
        projected = {
            name: self._split_heads(self.get_submodule(name)(values if name == "value" else keys))
            for name in self.projections
            if not name.endswith("query")
        }
        words = memory.sentences.trim(*self.trim)
        counts = torch.bincount(
            memory.documents.find_segments(memory.sentences.starts), minlength=len(memory.documents)
        )
        numbers = torch.arange(len(memory.sentences)).split(counts.tolist())
        return [
            self._select_words(words.select(each), projected, first)
            for each, first in zip(numbers, (counts.cumsum(0) - counts).tolist(), strict=True)
        ]

    def _select_words(self, words: Spans, projected: dict[str, Tensor], first: int) -> ContextDocument:
        """Select the words of the J sentences of a document in what is projected [H, T, k]."""
        index, is_word = words.padded_positions(0, max([1, *words.lengths.tolist()]))  # [J, W]
        device = projected["value"].device
        is_word, index = is_word.to(device), index.masked_fill(~is_word, 0).flatten().to(device)
        key, value, *sentence_keys = (
            states.index_select(1, index).unflatten(1, is_word.shape) for states in projected.values()
        )
        if self.level == "sentence":
            key, value, is_word = _mean(key, is_word), _mean(value, is_word), is_word.any(-1, keepdim=True)
        means = _mean(sentence_keys[0], is_word).flatten(1, 2) if sentence_keys else None
        return ContextDocument(first, words.lengths > 0, is_word, key.flatten(1, 2), value.flatten(1, 2), means)

    def _group_queries(
        self, x: Tensor, sentences: Tensor, documents: Sequence[ContextDocument]
    ) -> tuple[Tensor, list[_Queries]]:
        """Return the order [n] of queries x [n, d] by document, and those of each document."""
        firsts = torch.tensor([document.first for document in documents])
        numbers = torch.searchsorted(firsts, sentences, right=True) - 1
        order = numbers.argsort(stable=True)
        counts = torch.bincount(numbers, minlength=len(documents)).tolist()
        x = x.index_select(0, order.to(x.device))
        names = [name for name in self.projections if name.endswith("query")]
        parts = [self._split_heads(self.get_submodule(name)(x)).split(counts, dim=1) for name in names]
        queries = []
        for document, queried, *states in zip(documents, sentences[order].split(counts), *parts, strict=True):
            others, queried = torch.arange(len(document.has_words)), queried[:, None] - document.first
            visible = (others < queried if self.preceding else others != queried) & document.has_words
            queries.append(_Queries(dict(zip(names, states, strict=True)), visible))
        return order, queries

    def _split_heads(self, x: Tensor) -> Tensor:
        """[T, H k] -> [H, T, k]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def _iterate_blocks(self, document: ContextDocument, queries: _Queries) -> Iterator[Tensor]:
        """Yield the weights [H, q, J W] of the queries, some at a time.

        Queries that see nothing have arbitrary weights, as a distribution over no key is NaN.
        """
        is_word, size = document.is_word, max(1, MAX_SCORES // (self.heads * document.is_word.numel()))
        for first in range(0, len(queries.visible), size):
            rows = slice(first, first + size)
            visible = queries.visible[rows].to(is_word.device)
            visible = visible | ~visible.any(-1, keepdim=True)  # [q, J]
            scores = _score(queries.states["query"][:, rows], document.keys).unflatten(-1, is_word.shape)
            if document.sentence_keys is not None:
                is_filled = is_word | ~is_word.any(-1, keepdim=True)
                weights = self.normalize(scores.masked_fill(~is_filled, -torch.inf))
                scores = _score(queries.states["sentence_query"][:, rows], document.sentence_keys)
                weights = weights * sparsemax(scores.masked_fill(~visible, -torch.inf))[..., None]
                yield weights.flatten(-2)
            else:
                scores = scores.masked_fill(~(visible[..., None] & is_word), -torch.inf)
                yield self.normalize(scores.flatten(-2))


class SelectiveLayer(Layer):
    """Layer whose output h is joined with its context, by `GatedResidual`.

    Queries are the states after the block `cross`, or h without one. Where nothing is visible, the output is h.
    """

    def __init__(
        self, blocks: Mapping[str, tuple[nn.Module, Residual]], attention: SelectiveAttention, branch: GatedResidual
    ) -> None:
        super().__init__(blocks)
        self.context, self.context_residual = attention, branch

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [..., d] -> [..., d], or of drafts the states [2, T, d] that others read: keys, values"""
        h, after_cross = x, None
        for name, h in self.iterate_blocks(x, context):
            after_cross = h if name == "cross" else after_cross
        branch = self.context_residual
        query, states = (branch.prepare_input(each) for each in (h if after_cross is None else after_cross, h))
        if isinstance(context, DraftContext):
            return torch.stack((query, states))
        c, exists = self.context(query, context, states)
        return torch.where(exists[..., None], branch.add_output(h, c), h)


def _build_projection(width: int, output_width: int) -> nn.Linear:
    projection = nn.Linear(width, output_width, bias=False)
    nn.init.xavier_uniform_(projection.weight)
    return projection


def _mean(states: Tensor, is_word: Tensor) -> Tensor:
    """Return the mean over the words of each sentence, zero without words: [H, J, W, k] -> [H, J, 1, k]."""
    counts = is_word.sum(-1).clamp(min=1)[:, None, None]
    return states.masked_fill(~is_word[..., None], 0).sum(2, keepdim=True) / counts


def _score(query: Tensor, key: Tensor) -> Tensor:
    """Return scaled products [H, q, n], at least float32, of query [H, q, k] and key [H, n, k]."""
    return upcast(query @ key.transpose(1, 2)) * query.shape[-1] ** -0.5
