"""Validation on the dev split: loss, and document BLEU of translations."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from lightning_fabric import Fabric

from docmt.analysis.entropy import EntropyMeter, mean_entropies, measure_entropy
from docmt.decoding import SearchConfig, translate_ids
from docmt.evaluation import document_bleu
from docmt.model import TranslationModel
from docmt.model.transformer import evaluation_mode
from docmt.text import Tokenizer
from docmt.training.distributed import gather_shares, sum_over_processes
from docmt.training.objective import batch_loss
from docmt.training.training_corpus import BatchedSplit


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
