"""Selective attention to the other sentences of a document (SAN, Maruf et al. 2019), and its sparse weights.

Notation: T tokens of the packed sequence, d model width, H heads, k width of a head. A document has L tokens and J
sentences of up to W words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import AttentionContext, FullContext, PackedSentences
from docmt.model.attention_weights import MAX_SCORES
from docmt.model.layers import Dropout, zero_projections
from docmt.model.linear_attention import upcast

if TYPE_CHECKING:
    from docmt.model.transformer import Parts

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


class _Document(NamedTuple):
    """What the queries of a document see."""

    first: int
    """number of its first sentence in the packed sequence"""
    words: Tensor
    """[J, W] position of each word in the document, without boundary tokens; arbitrary for padding"""
    is_word: Tensor
    """[J, W] bool, False for padding"""
    visible: Tensor
    """[L, J] bool: sentences that each of its tokens sees"""


class SelectiveAttention(nn.Module):
    """Context c of each state x: attention to the words of other sentences of its document, then a feed-forward block.

    c = LN(FFN(LN(W a))) without residual branches. a has per head the sum of the values V w of words w, with weights:

    - hierarchical: sparsemax over sentences j of (Q x)(K mean of j) / sqrt(k), times the weights within sentence j
    - word: weights of all words of all visible sentences, of (Q' x)(K' w) / sqrt(k)
    - sentence: softmax over sentences; a sentence is the mean of its words

    Where no other sentence is visible, c is x (published), or zero (identity). Identity: the last norm is left out, and
    FFN ends with zero. `GatedResidual` then leaves x unchanged. No projection has a bias.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        preceding: bool,
        level: Literal["sentence", "word", "hierarchical"],
        words: Normalization,
        detach: bool,
        identity: bool,
    ) -> None:
        """preceding: only sentences before are visible; words: weights of words; detach: no gradient reaches the states
        as context, but only as queries."""
        super().__init__()
        sizes = parts.sizes
        inner = sizes.attention_width
        self.heads, self.trim = sizes.heads, parts.boundary_tokens.counts("source")
        self.preceding, self.level, self.detach, self.identity = preceding, level, detach, identity
        self.normalize = sparsemax if words == "sparsemax" else _softmax
        self.projections = ["query", "key", "value"]
        if level == "hierarchical":
            self.projections += ["sentence_query", "sentence_key"]
        for name in self.projections:
            self.add_module(name, _build_projection(sizes.width, inner))
        self.output = _build_projection(inner, sizes.width)
        self.dropout_of_weights, self.dropout = Dropout(sizes.attention_dropout), Dropout(sizes.dropout)
        self.norm, self.feed_forward = parts.build_norm(), parts.build_feed_forward()
        self.last_norm = None if identity else parts.build_norm()
        if identity:
            zero_projections(self.feed_forward.outer)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x [T, d] -> [T, d]"""
        assert isinstance(context, FullContext)
        attended, exists = self._attend(x, context.sequence)
        c = self.feed_forward(self.norm(self.dropout(self.output(attended))), context)
        c = c if self.last_norm is None else self.last_norm(c)
        return torch.where(exists[:, None], c, torch.zeros_like(c) if self.identity else x)

    @torch.no_grad()
    def attention_weights(self, x: Tensor, sequence: PackedSentences) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weight of each other sentence for each state x [T, d], arbitrary where none is visible.

        Returns weights [T, H, n], and on the host which sentences are visible [T, n] bool, and their numbers [T, n]
        int64. n is the number of sentences of the longest document.
        """
        documents = list(self._documents(sequence))
        count = max(len(document.words) for document in documents)
        weights, visible, numbers = [], [], []
        for document, states in zip(documents, self._project(x, sequence), strict=True):
            missing = (0, count - len(document.words))
            if document.visible.any():
                blocks = [block.sum(-1) for block, _ in self._iterate_blocks(document, states)]  # [H, q, J]
                weights.append(F.pad(torch.cat(blocks, dim=1).transpose(0, 1), missing))
            else:
                weights.append(upcast(x.new_zeros(len(document.visible), self.heads, count)))
            visible.append(F.pad(document.visible, missing))
            numbers.append((document.first + torch.arange(count)).expand(len(document.visible), -1))
        return torch.cat(weights), torch.cat(visible), torch.cat(numbers).clamp(max=len(sequence.sentences) - 1)

    def _attend(self, x: Tensor, sequence: PackedSentences) -> tuple[Tensor, Tensor]:
        """Return the weighted values [T, H k] of each state x [T, d], and whether it sees any sentence [T] bool."""
        outputs, exists = [], []
        for document, states in zip(self._documents(sequence), self._project(x, sequence), strict=True):
            exists.append(document.visible.any(-1))
            if exists[-1].any():
                for weights, values in self._iterate_blocks(document, states):
                    outputs.append(self.dropout_of_weights(weights).to(values.dtype).flatten(-2) @ values)
            else:  # all need (zero) gradients, or processes that exchange gradients would deadlock
                outputs.append(torch.stack([*states.values()]).sum(0) * 0.0)
        return torch.cat(outputs, dim=1).transpose(0, 1).flatten(1), torch.cat(exists).to(x.device)

    def _project(self, x: Tensor, sequence: PackedSentences) -> Iterator[dict[str, Tensor]]:
        """Project x [T, d] to queries, keys and values by name, and yield those [H, L, k] of each document."""
        assert sequence.documents is not None
        lengths, context = sequence.documents.lengths.tolist(), x.detach() if self.detach else x
        parts = [
            self.get_submodule(name)(x if name.endswith("query") else context)
            .unflatten(-1, (self.heads, -1))
            .transpose(0, 1)
            .split(lengths, dim=1)
            for name in self.projections
        ]
        for states in zip(*parts, strict=True):
            yield dict(zip(self.projections, states, strict=True))

    def _documents(self, sequence: PackedSentences) -> Iterator[_Document]:
        """Yield what each document sees."""
        sentences, documents = sequence.sentences, sequence.documents
        assert documents is not None
        words = sentences.trim(*self.trim)
        counts = torch.bincount(documents.find_segments(sentences.starts), minlength=len(documents)).tolist()
        first = 0
        for start, count in zip(documents.starts.tolist(), counts, strict=True):
            numbers = torch.arange(count)
            spans = words.select(first + numbers)
            offsets = torch.arange(max([1, *spans.lengths.tolist()]))
            is_word = offsets < spans.lengths[:, None]  # [J, W]
            positions = (spans.starts[:, None] - start + offsets).masked_fill(~is_word, 0)
            own = numbers.repeat_interleave(sentences.lengths[first : first + count])[:, None]  # [L, 1]
            visible = (numbers < own if self.preceding else numbers != own) & is_word.any(-1)
            yield _Document(first, positions, is_word, visible)
            first += count

    def _iterate_blocks(self, document: _Document, states: dict[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the weights [H, q, J, W] of the queries of a document, some at a time, and its values [H, J W, k].

        W is 1 at sentence level. Queries that see nothing have arbitrary weights, as a distribution over no key is NaN.
        """
        device = states["query"].device
        is_word, index = document.is_word.to(device), document.words.to(device).flatten()
        key, value, *sentence_keys = (
            states[name].index_select(1, index).unflatten(1, is_word.shape)  # [H, J, W, k]
            for name in self.projections
            if not name.endswith("query")
        )
        if self.level == "sentence":
            key, value, is_word = _mean(key, is_word), _mean(value, is_word), is_word.any(-1, keepdim=True)
        means = [_mean(each, is_word).flatten(1, 2) for each in sentence_keys]  # [H, J, k], at hierarchical level
        size = max(1, MAX_SCORES // (self.heads * is_word.numel()))
        for first in range(0, len(document.visible), size):
            rows = slice(first, first + size)
            visible = document.visible[rows].to(device)
            visible = visible | ~visible.any(-1, keepdim=True)  # [q, J]
            scores = _score(states["query"][:, rows], key.flatten(1, 2)).unflatten(-1, is_word.shape)
            if means:
                is_filled = is_word | ~is_word.any(-1, keepdim=True)
                weights = self.normalize(scores.masked_fill(~is_filled, -torch.inf))
                scores = _score(states["sentence_query"][:, rows], means[0]).masked_fill(~visible, -torch.inf)
                weights = weights * sparsemax(scores)[..., None]
            else:
                scores = scores.masked_fill(~(visible[..., None] & is_word), -torch.inf)
                weights = self.normalize(scores.flatten(-2)).unflatten(-1, is_word.shape)
            yield weights, value.flatten(1, 2)


def _build_projection(width: int, output_width: int) -> nn.Linear:
    projection = nn.Linear(width, output_width, bias=False)
    nn.init.xavier_uniform_(projection.weight)
    return projection


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def _mean(states: Tensor, is_word: Tensor) -> Tensor:
    """Return the mean over the words of each sentence, zero without words: [H, J, W, k] -> [H, J, 1, k]."""
    counts = is_word.sum(-1).clamp(min=1)[:, None, None]
    return states.masked_fill(~is_word[..., None], 0).sum(2, keepdim=True) / counts


def _score(query: Tensor, key: Tensor) -> Tensor:
    """Return scaled products [H, q, n], at least float32, of query [H, q, k] and key [H, n, k]."""
    return upcast(query @ key.transpose(1, 2)) * query.shape[-1] ** -0.5
