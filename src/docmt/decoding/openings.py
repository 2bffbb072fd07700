"""Search again for single sentences of translated documents, each after a given beginning of its translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Memories, Model, compute_next_logits
from docmt.decoding.logits import log_normalizers
from docmt.decoding.prefixes import can_read_prefixes, read_prefixes
from docmt.decoding.scheduler import Task, batch_by_length, find_nonempty, select_drafts, select_sentences
from docmt.decoding.scoring import CHUNK
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
        rows, order = list[SearchRow](), list[int]()
        for instance, aligned in zip(batch, task.split_aligned(inputs, batch), strict=True):
            first = int(instances.first[instance])
            for index in by_instance[instance]:
                number, order = numbers[index], [*order, index]
                start = number if alone else first
                sentences = aligned[start - first : number + 1 - first].tolist()
                lengths = task.words.lengths[start : number + 1].tolist()
                _, _, words, stops = openings[index]
                rows.append(SearchRow(sentences, lengths, translations[start:number], opening=words, stops=stops))
        find = _fill_openings if can_read_prefixes(model) and all(row.stops for row in rows) else search
        results = find(model, model.compute_memories(inputs), rows, specials, config)
        for index, hypotheses in zip(order, results, strict=True):
            completed[index] = hypotheses
    return completed


def _fill_openings(
    model: Model, memories: Memories, rows: Sequence[SearchRow], specials: SpecialTokens, config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return what `search` finds for openings that stop; words up to the next free one are read in one pass."""
    beams = [[_Filled([], 0.0)] for _ in rows]
    while wanted := [
        (number, each, _add_words(row.opening, each.words))
        for number, row in enumerate(rows)
        for each in beams[number]
        if len(each.words) < len(row.opening)
    ]:
        keys = [(rows[n].sentences[-1], len(each.words), *words) for n, each, words in wanted]
        unique = {key: (rows[n], len(each.words), words) for key, (n, each, words) in zip(keys, wanted, strict=True)}
        results = dict(zip(unique, _read_words(model, memories, list(unique.values()), specials, config), strict=True))
        grown: dict[int, list[_Filled]] = {}
        for key, (number, before, words) in zip(keys, wanted, strict=True):
            score, following = results[key]
            others = following if len(words) < len(rows[number].opening) else [_Filled([], 0.0)]
            grown.setdefault(number, []).extend(
                _Filled([*words, *each.words], before.score + score + each.score) for each in others
            )
        for number, several in grown.items():
            beams[number] = sorted(several, key=lambda each: -each.score)[: config.beam]
    return [[each.to_hypothesis(specials, config) for each in several] for several in beams]


class _Filled(NamedTuple):
    """The beginning of an opening with words in place of free ones."""

    words: list[int]
    score: float
    """log-probability"""

    def to_hypothesis(self, specials: SpecialTokens, config: SearchConfig) -> Hypothesis:
        """Return a hypothesis of one sentence, which may be closed."""
        size = len(self.words)
        words = self.words[:-1] if self.words[-1:] == [specials.eos] else self.words
        return Hypothesis([words], [self.score], [size], config.normalize_score(self.score, size), size)


def _add_words(opening: Sequence[int], words: Sequence[int]) -> list[int]:
    """Return the words with those of the opening that follow, up to the next free one."""
    rest = list(opening[len(words) :])
    return [*words, *(rest[: rest.index(-1)] if -1 in rest else rest)]


def _read_words(
    model: Model,
    memories: Memories,
    wanted: Sequence[tuple[SearchRow, int, Sequence[int]]],
    specials: SpecialTokens,
    config: SearchConfig,
) -> list[tuple[float, list[_Filled]]]:
    """Return the log-probability of first words of the translation of each row, and the best words after them.

    wanted: rows, how many of the words have a score already, and the words.
    """
    words = [each for *_, each in wanted]
    prefixes = read_prefixes(model, memories, [row for row, *_ in wanted], specials, words)
    opening, sizes = len(model.boundary_tokens.target_opening), [len(each) - known + 1 for _, known, each in wanted]
    starts = [start + known for start, (_, known, _) in zip(prefixes[0].starts.tolist(), wanted, strict=True)]
    index = torch.cat([torch.arange(size) + start for size, start in zip(sizes, starts, strict=True)])
    labels = torch.tensor([word for _, known, each in wanted for word in (*each[known:], specials.eos)])
    special = torch.tensor([specials.bos, specials.pad, specials.unk, specials.eos, specials.eod, specials.mask])
    scores, best = list[Tensor](), list[tuple[Tensor, Tensor]]()
    for part in torch.arange(len(index)).split(CHUNK):
        states = [each.read.states[index[part] + opening - 1] for each in prefixes]
        logits = compute_next_logits(model, states, config.temperature).float()
        norms = log_normalizers(logits)
        scores.append((logits.gather(1, labels[part, None].to(logits.device)) - norms)[:, 0].cpu())
        logits[:, special] = -torch.inf
        values, tokens = (logits - norms).topk(config.beam, dim=1)
        best.append((values.cpu(), tokens.cpu()))
    values, tokens = (torch.cat(each) for each in zip(*best, strict=True))
    results, last = [], -1
    for each in torch.cat(scores).split(sizes):
        last += len(each)
        following = zip(tokens[last].tolist(), values[last].tolist(), strict=True)
        results.append((float(each[:-1].sum()), [_Filled([token], value) for token, value in following]))
    return results
