"""Attention entropy: over how many tokens a model spreads its attention (Bao et al. 2021, figures 4, 5 and 8).

Weights are averaged over the heads first; then every query has the entropy -sum p log2 p in bits, from 0 (all on one
token) to log2 n (even over n tokens). Segment by segment, so that nothing is padding and nothing outside the pattern
is computed, and from outside of the model, which therefore pays nothing while nobody measures.

Notation as in `model/` (T packed tokens, H heads, k = d / H); in a block, n segments of up to q queries and l keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from docmt.data import Batch
from docmt.model import Spans, TranslationModel
from docmt.model.attention import Attention
from docmt.model.view import FullView, View

KINDS = tuple(
    f"{site}_{scope}" for site in ("encoder_self", "decoder_self", "decoder_cross") for scope in ("local", "global")
)
"""What is told apart in most systems: local attention stays within sentences, global attention sees the whole instance.
Attention to another memory is named after it, as in encoder_context_local, and attention to a sentence before ends in
_before. What looks at several sentences before at once (`View.attend_before`) is not measured."""
_SCOPES = {"sentence": "local", "document": "global", "before": "before"}

# Scores held at once: 16 MB in float32, several times over (90 MB in all for an instance of 2048 tokens with 8 heads,
# 256 queries at a time, where all of its scores would be 134 MB each time).
_MOST_SCORES = 1 << 22
# Segments share a block down to this part of its longest key span: below, most of a row would be padding.
_SIMILAR = 0.7


class EntropyMeter:
    """Entropies added up by kind; only the kinds that the model has.

    Each layer of a kind meets the same queries, so one mean over layers and queries is the mean over layers of the
    means over queries.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.bits = dict.fromkeys(sorted(set(kinds), key=lambda kind: (*KINDS, kind).index(kind)), 0.0)
        """sums over layers and query tokens"""
        self.queries = dict.fromkeys(self.bits, 0)
        """how many entropies each sum is made of"""

    def add(self, kind: str, entropies: Tensor) -> None:
        """Adds the entropies [T] of one layer."""
        self.bits[kind] += entropies.sum(dtype=torch.float64).item()
        self.queries[kind] += entropies.numel()

    def means(self) -> dict[str, float]:
        """Bits per query and layer, by kind; kinds that met no query are left out."""
        return mean_bits(self.bits, self.queries)


def mean_bits(bits: Mapping[str, float], queries: Mapping[str, float]) -> dict[str, float]:
    """Sums divided by their counts; kinds without a count are left out."""
    return {kind: total / queries[kind] for kind, total in bits.items() if queries[kind]}


def attention_entropy(model: TranslationModel, batches: Iterable[Batch]) -> dict[str, float]:
    """Mean attention entropy of the model on these batches, in bits, for each of `KINDS` that it has.

    The mean is over all query tokens of all batches (decoder: the decoder input) and over the layers that have this
    kind of attention. Dropout is off; the model's mode is left as it was.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), measuring_entropy(model) as meter:
            for batch in batches:
                model(batch.reading.to(model.device))
    finally:
        model.train(was_training)
    return meter.means()


@contextmanager
def measuring_entropy(model: TranslationModel) -> Iterator[EntropyMeter]:
    """While the block runs, every forward pass of `model` adds to the meter, and computes what it computes without.

    A pass takes about 1.5 times as long (256-wide model, 500-token instances, CPU), so measure in validation, not in
    every update; there, the tokens that fill up training batches would count as well. Decoding step by step does
    not pass through here.
    """
    attentions = list(_attentions(model))
    meter = EntropyMeter(kind for kind, _ in attentions)
    handles = [
        # After the forward pass, not before: what autocast keeps of the weights that it casts is then made by the
        # model itself, with gradients.
        attention.register_forward_hook(_Measurement(meter, kind))
        for kind, attention in attentions
    ]
    try:
        yield meter
    finally:
        for handle in handles:
            handle.remove()


def _attentions(model: TranslationModel) -> Iterator[tuple[str, Attention]]:
    """Every attention of the model with its kind, which its stack and its sight tell."""
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            sight = module.sight
            seen = {"self": "self", "source": "cross"}.get(sight.memory, sight.memory)
            yield f"{name.split('.')[0]}_{seen}_{_SCOPES[sight.part]}", module


class _Measurement:
    """A forward hook that computes the weights of an attention once more, as the kernels do not give them out."""

    def __init__(self, meter: EntropyMeter, kind: str) -> None:
        self.meter, self.kind = meter, kind

    @torch.no_grad()
    def __call__(self, attention: Attention, arguments: tuple[Tensor, View], output: Tensor) -> None:
        """Adds the entropies of this call, if it was one of a whole pass."""
        x, view = arguments
        if isinstance(view, FullView):
            memory, pattern = view.seen(attention.sight, x)
            query, key = attention.split(attention.query(x)), attention.split(attention.key(memory))
            bits = query_entropies(query, key, pattern.queries, pattern.keys, pattern.causal)
            sees = (pattern.keys.lengths > 0).repeat_interleave(pattern.queries.lengths)
            self.meter.add(self.kind, bits if bool(sees.all()) else bits[sees.to(bits.device)])


def query_entropies(
    query: Tensor, key: Tensor, queries: Spans, keys: Spans, causal: bool = False, *, most_scores: int = _MOST_SCORES
) -> Tensor:
    """Entropy in bits [Tq] of each query's attention weights, averaged over the heads first.

    query [Tq, H, k], key [Tk, H, k] and the pattern as `attend` takes them. At most `most_scores` scores (or one
    query against its keys) are held at once; float32 throughout. A query without any key has entropy 0.
    """
    heads, width = query.shape[1:]
    entropies = torch.zeros(len(query), device=query.device)
    with torch.autocast(query.device.type, enabled=False):
        for members, first, last in _blocks(queries, keys, heads, most_scores):
            q_rows, q_real = _rows(queries, members, first, last)
            k_rows, k_real = _rows(keys, members, 0, int(keys.lengths[members].max()))
            seen = k_real[:, None, :]  # [n, 1, l]
            if causal:
                seen = seen & (torch.arange(k_rows.shape[1]) <= torch.arange(first, last)[:, None])  # [n, q, l]
            q = query[q_rows.to(query.device)].float().transpose(1, 2) * width**-0.5  # [n, H, q, k]
            k = key[k_rows.to(key.device)].float().permute(0, 2, 3, 1)  # [n, H, k, l]
            scores = (q @ k).masked_fill_(~seen[:, None].to(query.device), -math.inf)  # [n, H, q, l]
            weights = scores.softmax(-1).mean(1)  # [n, q, l]
            bits = torch.special.entr(weights).sum(-1) / math.log(2)  # [n, q]
            real = q_real.to(query.device)
            entropies[q_rows.to(query.device)[real]] = bits[real]
    return entropies


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
