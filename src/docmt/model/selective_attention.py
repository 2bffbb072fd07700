"""Selective attention to the other sentences of a document (SAN, Maruf et al. 2019), and its sparse weights.

Notation: T tokens of the memory, d model width, H heads, k width of a head. A document has J sentences of up to W
words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention_weights import MAX_SCORES
from docmt.model.contexts import AttentionContext, DraftContext, Memory
from docmt.model.families import TransformerConfig
from docmt.model.kernels import upcast
from docmt.model.layers import Dropout, FeedForward, GatedResidual, Layer, Residual, zero_projections
from docmt.model.spans import Spans

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
        config: TransformerConfig,
        memory: Literal["self", "drafts"],
        trim: tuple[int, int],
        norm: nn.Module,
        feed_forward: FeedForward,
        last_norm: nn.Module | None,
        *,
        preceding: bool,
        level: Literal["sentence", "word", "hierarchical"],
        words: Normalization,
        detach: bool,
    ) -> None:
        """memory: that of the words; trim: hidden boundary tokens at the start and end of a sentence; last_norm: None
        for identity; preceding: only sentences before are visible; words: weights of words; detach: no gradient reaches
        the memory."""
        super().__init__()
        self.heads, self.inner, self.memory, self.trim = config.heads, config.attention_width, memory, trim
        self.preceding, self.level, self.detach = preceding, level, detach
        self.normalize = sparsemax if words == "sparsemax" else partial(torch.softmax, dim=-1)
        self.projections = ["query", "key", "value"]
        if level == "hierarchical":
            self.projections += ["sentence_query", "sentence_key"]
        for name in self.projections:
            self.add_module(name, _build_projection(config.width, self.inner))
        self.output = _build_projection(self.inner, config.width)
        self.dropout_of_weights, self.dropout = Dropout(config.attention_dropout), Dropout(config.dropout)
        self.norm, self.feed_forward, self.last_norm = norm, feed_forward, last_norm
        if last_norm is None:
            zero_projections(feed_forward.outer)

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
        offsets = torch.arange(max([1, *words.lengths.tolist()]))
        is_word = offsets < words.lengths[:, None]  # [J, W]
        index = (words.starts[:, None] + offsets).masked_fill(~is_word, 0).flatten()
        device = projected["value"].device
        is_word, index = is_word.to(device), index.to(device)
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
