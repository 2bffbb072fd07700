"""Validation on the dev split: loss, and document BLEU of translations."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from lightning_fabric import Fabric

from docmt.analysis.entropy import EntropyMeter, mean_entropies, measure_entropy
from docmt.checkpoint.model_directory import AlignmentLayer
from docmt.core.errors import DocmtError
from docmt.data import ParallelStore, SentenceTokens
from docmt.decoding import SearchConfig, translate_ids
from docmt.decoding.alignment import choose_alignment_layer
from docmt.evaluation import document_bleu
from docmt.model import TranslationModel
from docmt.model.transformer import evaluation_mode
from docmt.text import Tokenizer
from docmt.training.distributed import gather_shares, sum_over_processes
from docmt.training.objective import batch_loss
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


@torch.no_grad()
def compute_dev_loss(
    fabric: Fabric, model: TranslationModel, dev: BatchedSplit, smoothing: float, entropy: bool = False
) -> DevLoss:
    """Return the loss of `model` on the dev split, without dropout. Processes share the batches.

    entropy: measure attention entropies in the same pass.
    """
    sums = np.zeros(3)
    with evaluation_mode(model), measure_entropy(model) if entropy else nullcontext(EntropyMeter(())) as meter:
        for indices in dev.plan.batches_in_order()[fabric.global_rank :: fabric.world_size]:
            batch = dev.build_batch(indices).to(fabric.device)
            with fabric.autocast():
                loss, nll = batch_loss(model, model(batch.inputs), batch.labels, smoothing)
            sums += (loss.item(), nll.item(), batch.tokens)
    kinds = list(meter.bits)
    local_sums = [*sums.tolist(), *meter.bits.values(), *map(float, meter.queries.values())]
    loss_sum, nll_sum, tokens, *entropies = sum_over_processes(fabric, local_sums)
    bits, queries = (dict(zip(kinds, part, strict=True)) for part in (entropies[: len(kinds)], entropies[len(kinds) :]))
    return DevLoss(loss_sum / tokens, nll_sum / tokens, mean_entropies(bits, queries))


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
            translations = translate_ids(
                model, self._sources, self._tokenizer.specials, self._search, drafts=self._drafts
            )
        hypotheses = [self._tokenizer.decode_batch(sentences, "target") for sentences in translations]
        score = document_bleu(gather_shares(self._fabric, hypotheses), self._references)
        self.signature = score.signature
        return score.score
