"""Search again for single sentences of translated documents, each after a given beginning of its translation.

Their sources are read once for all searches, and for the alignment of their words.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docmt.checkpoint.model_directory import AlignmentLayer
from docmt.data import SentenceTokens
from docmt.decoding.alignment import NO_WEIGHTS, Weights, align_rows, align_task
from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Memories, Model, list_memories
from docmt.decoding.incremental import (
    Prefixes,
    TargetPass,
    can_read_prefixes,
    can_share_prefixes,
    read_prefixes,
    score_words,
)
from docmt.decoding.scheduler import POOL_FACTOR, Task, batch_by_length, find_nonempty, select_drafts, select_sentences
from docmt.decoding.search_config import SearchConfig, between_steps
from docmt.decoding.search_rules import FramedRules, SearchRow, WordIds, choose_order, choose_rules
from docmt.decoding.translation_results import Hypothesis
from docmt.model.products import Precision, precision_context
from docmt.text import SpecialTokens

_MOST_KEPT = 2
"""Batches of instances of which more is kept for further searches than the memories of their sources."""


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
        layers: Sequence[AlignmentLayer] = (),
        precision: Precision = "float32",
        drafts: Sequence[WordIds] | None = None,
        **settings: Any,
    ) -> None:
        """sources, drafts: word ids of documents and of their first translations.

        layers: see `align_documents`. settings: context and batch_tokens, see `Task`.
        """
        self._model, self._specials, self._layers, self._precision = model, specials, layers, precision
        self._positions, filled = find_nonempty(sources)
        drafted = select_drafts(self._positions, sources, drafts)
        self._task = Task.from_documents(model, filled, specials, config, drafts=drafted, **settings)
        self._alone = choose_order(model, config, self._task.context) == "sentences"
        self._shares_prefixes = not self._alone and can_share_prefixes(model)
        self._encoded: dict[int, tuple[_Batch, Tensor]] = {}
        """batch of each instance that was encoded, and the numbers of its sentences there"""
        self._recent: list[_Batch] = []

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
        for is_fixed in (True, False):
            row_config = replace(config, beam=1, n_best=1) if is_fixed else config
            find = score_openings if is_fixed and can_read_prefixes(self._model) else search
            numbers = [n for n, (_, _, words, stops) in enumerate(openings) if (stops and -1 not in words) == is_fixed]
            with precision_context(self._model, self._precision):
                for batch, memories, rows, prefixes in self._make_rows(targets, [openings[n] for n in numbers]):
                    made = find(self._model, memories, rows, self._specials, row_config, prefixes)
                    for index, hypotheses in zip(batch, made, strict=True):
                        completed[numbers[index]] = hypotheses
        return completed

    @torch.inference_mode()
    def align(self, targets: Sequence[WordIds], wanted: Sequence[Opening]) -> list[Weights]:
        """Return the attention weights [t, s] of sentences and these translations; see `align_documents`.

        targets, systems: as in `search`.
        """
        weights = [NO_WEIGHTS for _ in wanted]
        if choose_rules(self._model, self._task.config) is not FramedRules:
            return weights
        with precision_context(self._model, self._precision):
            if not can_read_prefixes(self._model):
                return self._align_in_documents(targets, wanted)
            for batch, memories, rows, prefixes in self._make_rows(targets, wanted):
                words = [row.opening for row in rows]
                made = align_rows(self._model, memories, rows, self._specials, words, self._layers, prefixes)
                for index, matrix in zip(batch, made, strict=True):
                    weights[index] = matrix
        return weights

    def _align_in_documents(self, targets: Sequence[WordIds], wanted: Sequence[Opening]) -> list[Weights]:
        """Return the attention weights of sentences in a pass that reads their instances anew."""
        numbers, translations = self._number_sentences(wanted), self._flatten(targets)
        for number, each in zip(numbers, wanted, strict=True):
            translations[number] = each.words
        words = SentenceTokens.from_documents([translations])
        weights = align_task(self._task, words, self._layers, set(numbers))
        return [weights[number] for number in numbers]

    def _flatten(self, targets: Sequence[WordIds]) -> list[Sequence[int]]:
        """Return the translations of the sentences of the task."""
        return [words for document in select_sentences(self._positions, targets) for words in document]

    def _number_sentences(self, openings: Sequence[Opening]) -> list[int]:
        """Return the number in the task of the sentence of each opening."""
        positions, offsets = self._positions, self._task.offsets
        return [int(offsets[each.document]) + positions[each.document].index(each.sentence) for each in openings]

    def _make_rows(
        self, targets: Sequence[WordIds], openings: Sequence[Opening]
    ) -> Iterator[tuple[list[int], Memories, list[SearchRow], list[Prefixes]]]:
        """Yield batches: the numbers of their openings, the memories of their sources, and a row for each opening.

        At last comes what each member has read before the rows, if they can share it. Else rows have prefixes.
        """
        task, instances = self._task, self._task.instances
        numbers, translations = self._number_sentences(openings), self._flatten(targets)
        indices = np.searchsorted(instances.last, numbers, side="right").tolist()
        self._encode(dict.fromkeys(indices))
        groups = defaultdict[_Batch, list[tuple[int, int]]](list)
        for index, (number, instance) in enumerate(zip(numbers, indices, strict=True)):
            size = int(task.words.lengths[instances.first[instance] : number + 1].sum())  # and of its translations
            groups[self._encoded[instance][0]].append((size, index))
        most = task.batch_tokens * (POOL_FACTOR if self._shares_prefixes else 1)  # beams share what stands before
        for batch, sizes in groups.items():
            self._forget_all_but(batch)
            if self._shares_prefixes:
                self._read_targets(batch, [(indices[index], numbers[index]) for _, index in sizes], translations)
            for order in batch_by_length(sizes, most):
                between_steps()
                rows = []
                for number, instance, (_, _, words, stops) in ((numbers[i], indices[i], openings[i]) for i in order):
                    first = int(instances.first[instance])
                    start = number if self._alone or self._shares_prefixes else first
                    sentences = self._encoded[instance][1][start - first : number + 1 - first].tolist()
                    lengths = task.words.lengths[start : number + 1].tolist()
                    rows.append(SearchRow(sentences, lengths, translations[start:number], opening=words, stops=stops))
                places = [(indices[i], numbers[i] - int(instances.first[indices[i]])) for i in order]
                yield order, batch.memories, rows, batch.list_prefixes(places) if self._shares_prefixes else []

    def _forget_all_but(self, batch: _Batch) -> None:
        """Forget what was computed for all batches but the last ones, of which this is one: a text may have many."""
        recent = [*(each for each in self._recent if each is not batch), batch]
        for each in recent[:-_MOST_KEPT]:
            each.forget()
        self._recent = recent[-_MOST_KEPT:]

    def _read_targets(
        self, batch: _Batch, wanted: Sequence[tuple[int, int]], translations: Sequence[Sequence[int]]
    ) -> None:
        """Read the translations of instances up to the last wanted sentence, unless that was done.

        wanted: instances, and numbers of their sentences in the task.
        """
        first, last = self._task.instances.first, dict[int, int]()
        for instance, number in wanted:
            last[instance] = max(number, last.get(instance, 0))
        before = {each: translations[first[each] : number + 1] for each, number in sorted(last.items())}
        if all(batch.has_read(each, words[:-1]) for each, words in before.items()):
            return
        batch.read = before
        rows = [
            SearchRow(self._encoded[each][1][: len(words)].tolist(), [0] * len(words), words[:-1])
            for each, words in before.items()
        ]
        words = [words[-1] for words in before.values()]
        batch.passes = [each.read for each in read_prefixes(self._model, batch.memories, rows, self._specials, words)]

    def _encode(self, instances: Iterable[int]) -> None:
        """Encode the sources of instances that were not read yet, in the context of the model's precision."""
        new = [instance for instance in instances if instance not in self._encoded]
        for numbers in self._task.batches(new, times=POOL_FACTOR):
            inputs = self._task.read_sources(numbers)
            batch = _Batch(self._model.compute_memories(inputs))
            aligned = self._task.split_aligned(inputs, numbers)
            self._encoded |= {each: (batch, sentences) for each, sentences in zip(numbers, aligned, strict=True)}


def score_openings(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    config: SearchConfig,
    prefixes: Sequence[Prefixes] = (),
) -> list[list[Hypothesis]]:
    """Return what `search` finds for rows that stop after an opening without free words: one translation each."""
    words = [row.list_opening_words(specials) for row in rows]
    read = read_prefixes(model, memories, rows, specials, words, prefixes)
    scored = score_words(
        model, read, [row.after_prefix() for row in rows], [row.opening for row in rows], config.temperature
    )
    results = []
    for known, each in zip(words, scored, strict=True):
        score, count = sum(score for score, _ in each), len(each)
        at_limit = [] if count > len(known) else [0]  # the latter does not end
        made = Hypothesis([known], [score], [count], config.normalize_score(score, count), count, at_limit)
        made.token_scores.append(array("d", [score for score, _ in each[: len(known)]]))
        made.token_losses.append(array("d", [best - score for score, best in each[: len(known)]]))
        results.append([made])
    return results


@dataclass(eq=False)
class _Batch:
    """Instances whose sources were encoded together."""

    memories: Memories
    passes: Sequence[TargetPass] = ()
    """of each member, over the translations of some instances"""
    read: dict[int, Sequence[Sequence[int]]] = field(default_factory=dict)
    """these translations, by instance"""

    def forget(self) -> None:
        """Keep the memories alone."""
        self.passes, self.read = (), {}
        for memory in (each for memories in list_memories(self.memories) for each in memories.values()):
            memory.projected.clear()

    def has_read(self, instance: int, translations: Sequence[Sequence[int]]) -> bool:
        """Return whether the translations of the first sentences of an instance were read, and the next one."""
        read = self.read.get(instance, ())
        return len(read) > len(translations) and read[: len(translations)] == translations

    def list_prefixes(self, places: Sequence[tuple[int, int]]) -> list[Prefixes]:
        """Return what stands before sentences, for each member; places: their instances, and numbers in these."""
        documents = {instance: number for number, instance in enumerate(self.read)}
        starts = np.cumsum([0, *map(len, self.read.values())])
        index = torch.tensor([documents[instance] for instance, _ in places])
        following = torch.tensor([starts[documents[instance]] + number for instance, number in places])
        return [Prefixes(each, index, following) for each in self.passes]
