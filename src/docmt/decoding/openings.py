"""Search again for single sentences of translated documents, each after a given beginning of its translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Memories, Model
from docmt.decoding.scheduler import POOL_FACTOR, Task, batch_by_length, find_nonempty, select_drafts, select_sentences
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


class OpeningSearch:
    """Search of openings in some documents, each of whose sources is encoded once."""

    def __init__(
        self,
        model: Model,
        sources: Sequence[WordIds],
        specials: SpecialTokens,
        config: SearchConfig,
        *,
        drafts: Sequence[WordIds] | None = None,
        **settings: Any,
    ) -> None:
        """sources, drafts: word ids of documents and of their first translations.

        settings: context and batch_tokens, see `Task`.
        """
        self._model, self._specials = model, specials
        self._positions, filled = find_nonempty(sources)
        drafted = select_drafts(self._positions, sources, drafts)
        self._task = Task.from_documents(model, filled, specials, config, drafts=drafted, **settings)
        self._alone = choose_order(model, config, self._task.context) == "sentences"
        self._batches: list[Memories] = []
        self._read: dict[int, tuple[int, Tensor]] = {}
        """batch of each instance that was read, and the numbers of its sentences there"""

    @torch.inference_mode()
    def search(
        self, targets: Sequence[WordIds], openings: Sequence[Opening], config: SearchConfig
    ) -> list[list[Hypothesis]]:
        """Return for each opening the best translations of its sentence that begin with it.

        targets: word ids of the translations. A sentence sees those of earlier ones in its instance, if its system
        sees any. Scores count the tokens of an opening as if they were chosen. None for a system of the rules `open`.
        """
        completed: list[list[Hypothesis]] = [[] for _ in openings]
        if choose_rules(self._model, config) is not FramedRules:
            return completed
        task, instances = self._task, self._task.instances
        translations = [words for document in select_sentences(self._positions, targets) for words in document]
        groups: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        rows: dict[int, SearchRow] = {}
        places = [
            int(task.offsets[each.document]) + self._positions[each.document].index(each.sentence) for each in openings
        ]
        found = np.searchsorted(instances.last, places, side="right").tolist()
        self._encode(dict.fromkeys(found))
        for index, (number, instance, (_, _, words, stops)) in enumerate(zip(places, found, openings, strict=True)):
            first = int(instances.first[instance])
            batch, aligned = self._read[instance]
            start = number if self._alone else first
            sentences = aligned[start - first : number + 1 - first].tolist()
            lengths = task.words.lengths[start : number + 1].tolist()
            rows[index] = SearchRow(sentences, lengths, translations[start:number], opening=words, stops=stops)
            groups.setdefault((batch, stops and -1 not in words), []).append((task.lengths[instance], index))
        for (number, is_fixed), sizes in groups.items():
            row_config = replace(config, beam=1, n_best=1) if is_fixed else config
            for order in batch_by_length(sizes, task.batch_tokens):
                made = search(self._model, self._batches[number], [rows[i] for i in order], self._specials, row_config)
                for index, hypotheses in zip(order, made, strict=True):
                    completed[index] = hypotheses
        return completed

    def _encode(self, instances: Iterable[int]) -> None:
        """Read the sources of instances that were not read yet."""
        new = [instance for instance in instances if instance not in self._read]
        for batch in self._task.batches(new, times=POOL_FACTOR):
            inputs = self._task.read_sources(batch)
            self._read |= {
                instance: (len(self._batches), aligned)
                for instance, aligned in zip(batch, self._task.split_aligned(inputs, batch), strict=True)
            }
            self._batches.append(self._model.compute_memories(inputs))
