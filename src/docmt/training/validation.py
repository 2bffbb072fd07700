"""Measures of the dev split: loss, document BLEU of translations, and the decoder layer that aligns words best.

The layer is chosen without alignments by people: it agrees best with IBM model 1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from docmt.analysis.attention_analysis import EntropyMeter, mean_entropies, measure_entropy
from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.checkpoint.model_directory import AlignmentLayer
from docmt.core.errors import DocmtError
from docmt.data import Batch, ParallelStore, SentenceTokens
from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.alignment import iterate_alignment_weights
from docmt.decoding.scheduler import Task
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig
from docmt.decoding.search_rules import WordIds
from docmt.evaluation import document_bleu
from docmt.model import TranslationModel
from docmt.model.transformer import evaluation_mode
from docmt.text import SpecialTokens, Tokenizer
from docmt.training.distributed import gather_shares, sum_over_processes
from docmt.training.training_corpus import BatchedSplit

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DevLoss:
    """Means over the label tokens of the dev split, in nats."""

    loss: float
    """label-smoothed"""
    nll: float
    entropy: dict[str, float] = field(default_factory=dict)
    """attention entropy in bits by kind, mean over query tokens and layers; empty unless measured"""


LossFunction = Callable[[Batch], tuple[Tensor, Tensor]]
"""Function of a batch: its summed loss and negative log-likelihood, as of `objective.model_loss`."""


@torch.no_grad()
def compute_dev_loss(
    fabric: Fabric, model: TranslationModel, dev: BatchedSplit, loss_function: LossFunction, entropy: bool = False
) -> DevLoss:
    """Return the loss of `model` on the dev split, without dropout. Processes share the batches.

    loss_function: of the model. All processes call it equally often, as sharded models need.
    entropy: measure attention entropies in the same pass.
    """
    sums = np.zeros(3)
    batches = dev.plan.batches_in_order()
    with evaluation_mode(model), measure_entropy(model) if entropy else nullcontext(EntropyMeter(())) as meter:
        for first in range(0, len(batches), fabric.world_size):
            number = first + fabric.global_rank
            batch = dev.build_batch(batches[min(number, len(batches) - 1)]).to(fabric.device)
            entropies_before = dict(meter.bits), dict(meter.queries)
            with fabric.autocast():
                loss, nll = loss_function(batch)
            if number < len(batches):
                sums += (loss.item(), nll.item(), batch.tokens)
            else:  # the batch of another process, computed for company
                meter.bits.update(entropies_before[0])
                meter.queries.update(entropies_before[1])
    kinds = list(meter.bits)
    local_sums = [*sums.tolist(), *meter.bits.values(), *map(float, meter.queries.values())]
    loss_sum, nll_sum, tokens, *entropies = sum_over_processes(fabric, local_sums)
    bits, queries = (dict(zip(kinds, part, strict=True)) for part in (entropies[: len(kinds)], entropies[len(kinds) :]))
    return DevLoss(loss_sum / tokens, nll_sum / tokens, mean_entropies(bits, queries))


class DevBleu:
    """Document BLEU (0 to 100) of translations of the dev split.

    Each process translates its share of the documents.
    """

    def __init__(self, fabric: Fabric, dev: BatchedSplit, tokenizer: Tokenizer, beam: int) -> None:
        store, drafts = dev.store, dev.drafts
        self._fabric, self._tokenizer, self._search = fabric, tokenizer, SearchConfig(beam=beam)
        share = slice(fabric.global_rank, None, fabric.world_size)
        self._sources = store.documents("source")[share]
        self._drafts = None if drafts is None else drafts.to_documents(store.document_offsets)[share]
        self._references = [tokenizer.decode_batch(document, "target") for document in store.documents("target")]
        self.signature = ""
        """signature of the score; empty before the first score"""

    def __call__(self, model: TranslationModel) -> float:
        """Return the score of `model`, equal on all processes. Keeps the mode of the model."""
        with evaluation_mode(model), self._fabric.autocast():
            translations = translate_documents(
                model, self._sources, self._tokenizer.specials, self._search, drafts=self._drafts
            )
        hypotheses = [self._tokenizer.decode_batch(ranks[0].sentences, "target") for ranks in translations]
        score = document_bleu(gather_shares(self._fabric, hypotheses), self._references)
        self.signature = score.signature
        return score.score


_ALIGNED_SENTENCES = 300
"""Dev sentences by which the layer that aligns words is chosen."""
_EXAMPLES = 5000
"""Training sentences from which IBM model 1 learns besides."""


def choose_alignment(
    fabric: Fabric, model: TranslationModel, train: ParallelStore, dev: BatchedSplit
) -> AlignmentLayer | None:
    """Return the layer whose attention aligns words best, or None if it cannot be chosen.

    It takes some seconds. The documents at the beginning of the dev split decide.
    """
    sentences = min(_ALIGNED_SENTENCES, len(dev.store.source.offsets) - 1)
    offsets = np.unique(dev.store.document_offsets.clip(max=sentences))

    def read_documents(column: SentenceTokens) -> list[list[list[int]]]:
        return column.slice(0, sentences).to_documents(offsets)

    sources, targets = map(read_documents, (dev.store.source, dev.store.target))
    drafts = None if dev.drafts is None else read_documents(dev.drafts)
    size = min(_EXAMPLES, len(train.source.offsets) - 1)
    source, target = (side.slice(0, size).to_documents([0, size])[0] for side in (train.source, train.target))
    examples, specials = (source, target), dev.specials
    try:
        with evaluation_mode(model), fabric.autocast():
            return choose_alignment_layer(model, sources, targets, specials, examples=examples, drafts=drafts)
    except DocmtError as error:  # such as too few positions for the longest possible translation
        _log.warning("no layer was chosen for word alignments: %s", error)
        return None


def choose_alignment_layer(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    **settings: Any,
) -> AlignmentLayer | None:
    """Return the layer whose links agree best with those of IBM model 1, or None if that has no links.

    sources, targets, settings: see `score_alignment_layers`. The links of IBM model 1 are tokens that prefer each other
    in both directions, and occur once in their sentences. Agreement is the share of these whose source token has the
    highest weight for the target token; as each such target token has one link on both sides, this is precision, recall
    and F at once.
    """
    scores = score_alignment_layers(model, sources, targets, specials, **settings)
    return max(scores, key=scores.__getitem__) if scores else None


@torch.inference_mode()
def score_alignment_layers(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    *,
    examples: tuple[WordIds, WordIds] = ((), ()),
    batch_tokens: int = BATCH_TOKENS,
    drafts: Sequence[WordIds] | None = None,
) -> dict[AlignmentLayer, float]:
    """Return the agreement of each layer, shifted or not, in [0, 1]; empty without links of IBM model 1.

    sources, targets: documents of word ids, without empty sentences. examples: further sentence pairs, from which IBM
    model 1 learns as well. Agreement: see `choose_alignment_layer`.
    """
    task = Task.from_documents(model, sources, specials, SearchConfig(), ContextConfig(), batch_tokens, drafts)
    sides = [[sentence for document in side for sentence in document] for side in (sources, targets)]
    links = _learn_links((*sides[0], *examples[0]), (*sides[1], *examples[1]), len(sides[0]))
    numbers = range(1, len(model.decoder) + 1)
    layers = [AlignmentLayer(number, shifted) for number in numbers for shifted in (True, False)]
    agreed = np.zeros(len(layers))
    for sentences, weights in iterate_alignment_weights(task, SentenceTokens.from_documents(targets), [layers], links):
        for index, matrices in enumerate(weights):
            for number, matrix in zip(sentences, matrices, strict=True):
                source, target = np.array(links[number]).T
                agreed[index] += (matrix[target].argmax(1) == source).sum()
    total = sum(map(len, links.values()))
    return dict(zip(layers, (agreed / total).tolist(), strict=True)) if total else {}


def _learn_links(sources: WordIds, targets: WordIds, count: int) -> dict[int, list[tuple[int, int]]]:
    """Return the links (source index, target index) of the first `count` sentence pairs that have any, learned from
    all."""
    size = 1 + max((id for side in (sources, targets) for sentence in side for id in sentence), default=0)
    source, target = (SentenceWords.from_tokens(side, size) for side in (sources, targets))
    pairs, linked = link_words(source, target)
    links: dict[int, list[tuple[int, int]]] = {}
    for one, other in zip(pairs.source_index[linked].tolist(), pairs.target_index[linked].tolist(), strict=True):
        number = int(source.sentence[one])
        if number < count:
            position = sources[number].index(source.ids[one]), targets[number].index(target.ids[other])
            links.setdefault(number, []).append(position)
    return links
