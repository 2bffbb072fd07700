"""Search again for single sentences of translated documents, each after a given beginning of its translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Model
from docmt.decoding.scheduler import Task, batch_by_length, find_nonempty, select_drafts, select_sentences
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.search_rules import FramedRules, SearchRow, WordIds, choose_order, choose_rules
from docmt.decoding.translation_results import Hypothesis
from docmt.text import SpecialTokens

OPENING_BEAM, REST_BEAM = 4, 2
"""Beam of a search of openings alone, in which articles may change, and the most of one after them."""


class Opening(NamedTuple):
    """The beginning of the translation of a sentence."""

    document: int
    sentence: int
    words: Sequence[int]
    """word ids, -1 for any word"""
    stops: bool = False
    """search the opening alone"""


@torch.inference_mode()
def search_openings(
    model: Model,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    openings: Sequence[Opening],
    specials: SpecialTokens,
    config: SearchConfig,
    *,
    drafts: Sequence[WordIds] | None = None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Return for each opening the best translations of its sentence that begin with it.

    sources, targets, drafts: word ids of documents, their translations and first translations. settings: context and
    batch_tokens, see `Task`. A sentence sees the translations of earlier ones in its instance, if its system sees any.
    Scores count the tokens of an opening as if they were chosen. None for a system of the rules `open`.
    """
    if choose_rules(model, config) is not FramedRules:
        return [[] for _ in openings]
    positions, filled = find_nonempty(sources)
    drafted = select_drafts(positions, sources, drafts)
    task = Task.from_documents(model, filled, specials, config, drafts=drafted, **settings)
    translations = [words for document in select_sentences(positions, targets) for words in document]
    instances, alone = task.instances, choose_order(model, config, task.context) == "sentences"
    numbers = [int(task.offsets[each.document]) + positions[each.document].index(each.sentence) for each in openings]
    by_instance: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        by_instance.setdefault(int(np.searchsorted(instances.last, number, side="right")), []).append(index)
    completed: list[list[Hypothesis]] = [[] for _ in openings]
    sizes = [(task.lengths[instance] * len(indices), instance) for instance, indices in by_instance.items()]
    for batch in batch_by_length(sizes, task.batch_tokens):
        inputs = task.read_sources(batch)
        rows: dict[bool, list[tuple[int, SearchRow]]] = {}
        for instance, aligned in zip(batch, task.split_aligned(inputs, batch), strict=True):
            first = int(instances.first[instance])
            for index in by_instance[instance]:
                number = numbers[index]
                start = number if alone else first
                sentences = aligned[start - first : number + 1 - first].tolist()
                lengths = task.words.lengths[start : number + 1].tolist()
                _, _, words, stops = openings[index]
                row = SearchRow(sentences, lengths, translations[start:number], opening=words, stops=stops)
                rows.setdefault(stops and -1 not in words, []).append((index, row))
        memories = model.compute_memories(inputs)
        for is_fixed, pairs in rows.items():
            order, group = zip(*pairs, strict=True)
            row_config = replace(config, beam=1, n_best=1) if is_fixed else config
            for index, hypotheses in zip(order, search(model, memories, group, specials, row_config), strict=True):
                completed[index] = hypotheses
    return completed
