"""Attention entropy: over how many tokens a model spreads its attention (Bao et al. 2021, figures 4, 5 and 8).

Weights are averaged over the heads first; then every query has the entropy -sum p log2 p in bits, from 0 (all on one
token) to log2 n (even over n tokens). Measured from outside of the model (`docmt.analysis.looks`).

Notation as in `model/` (T packed tokens, H heads, k = d / H).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from docmt.analysis.looks import Look, attention_sites, watching
from docmt.analysis.weights import MOST_SCORES, Block, bits, weight_blocks
from docmt.data import Batch
from docmt.model import Spans, TranslationModel

KINDS = tuple(
    f"{site}_{scope}" for site in ("encoder_self", "decoder_self", "decoder_cross") for scope in ("local", "global")
)
"""What is told apart in most systems: local attention stays within sentences, global attention sees the whole instance.
Attention to another memory is named after it, as in encoder_context_local, and attention to a sentence before ends in
_before. What looks at several sentences before at once does so at their words (_before), then at them (_sentences)."""


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
    meter = EntropyMeter(site.kind for site in attention_sites(model))

    def measure(look: Look) -> None:
        meter.add(look.site.kind, _in_order([(block, mean_bits_of(block)) for block in look.blocks()]))

    with watching(model, measure):
        yield meter


def mean_bits_of(block: Block) -> Tensor:
    """Entropy in bits [n, q] of the weights of each query, averaged over the heads first."""
    return bits(block.shares().mean(1))


def _in_order(found: Sequence[tuple[Block, Tensor]]) -> Tensor:
    """[T] what was found [n, q] for the queries of every block, in the order of the queries."""
    if not found:
        return torch.empty(0)
    positions = torch.cat([block.queries[block.real] for block, _ in found])
    return torch.cat([own[block.real] for block, own in found])[positions.argsort()]


def query_entropies(
    query: Tensor, key: Tensor, queries: Spans, keys: Spans, causal: bool = False, *, most_scores: int = MOST_SCORES
) -> Tensor:
    """Entropy in bits [Tq] of each query's attention weights, averaged over the heads first.

    query [Tq, H, k], key [Tk, H, k] and the pattern as `attend` takes them. At most `most_scores` scores (or one
    query against its keys) are held at once; float32 throughout. A query without any key has entropy 0.
    """
    entropies = torch.zeros(len(query), device=query.device)
    for block in weight_blocks(query, key, queries, keys, causal, most_scores=most_scores):
        entropies[block.queries[block.real]] = mean_bits_of(block)[block.real]
    return entropies
