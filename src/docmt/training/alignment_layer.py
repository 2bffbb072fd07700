"""Choice of the decoder layer that aligns words, without alignments by people: it agrees best with IBM model 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.checkpoint.model_directory import AlignmentLayer
from docmt.data import SentenceTokens
from docmt.decoding.alignment import iterate_alignment_weights
from docmt.decoding.scheduler import Task
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.search_rules import WordIds
from docmt.model import TranslationModel
from docmt.text import SpecialTokens


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
