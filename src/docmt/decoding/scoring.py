"""The log-probabilities of given translations (force decoding)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from docmt.data import Batch, Words, collate
from docmt.decoding.config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.document import DocumentHypothesis, Part, join, ranked
from docmt.decoding.ensemble import Model, mean_probability, members_of
from docmt.decoding.frame import WordIds
from docmt.decoding.hypothesis import Hypothesis, not_numbers
from docmt.decoding.rules import marks_of, rules_of
from docmt.decoding.sharing import shared_batches, shared_reading
from docmt.decoding.task import Task, drafts_at, only_at
from docmt.model import Reading, TranslationModel
from docmt.text import SpecialTokens

_CHUNK = 512  # tokens that are projected to the vocabulary at a time
_NO_LIMIT = -1  # which no sentence stands at


@torch.inference_mode()
def score_documents(
    model: Model,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    *,
    context: ContextConfig = ContextConfig(),
    batch_tokens: int = BATCH_TOKENS,
    on_sentences: Callable[[int], object] = lambda count: None,
    drafts: Sequence[WordIds] | None = None,
    limited: bool = True,
    apart: bool = False,
) -> list[DocumentHypothesis]:
    """The given translations with the log-probabilities that the search would have given them.

    sources and targets: documents of the same numbers of sentences of word ids; drafts: a first translation of every
    source sentence, for a model that reads them. The context is the translator's: the same instances; a sentence
    exactly at its length limit has its `</s>` forced there, so it costs nothing here (unless not `limited`: where given
    texts are compared, one of just that length would gain). Pairs of empty sentences cost nothing either. With
    `apart` the same passes are made over the same instances, but no sentence sees another (`Reading.apart`). Raises
    ValueError where the counts of sentences differ, and DocmtError where scores are not numbers.
    """
    places, counts = [], [len(document) for document in sources]
    for source_document, target_document in zip(sources, targets, strict=True):
        both = enumerate(zip(source_document, target_document, strict=True))
        places.append([i for i, (one, other) in both if one or other])
    drafts = drafts_at(places, sources, drafts)
    sources, targets = only_at(places, sources), only_at(places, targets)
    on_sentences(sum(counts) - sum(map(len, sources)))
    task = Task.of(model, sources, specials, config, context, batch_tokens, drafts)
    found = score_task(task, Words.of(targets), on_sentences, limited, apart)
    return [
        join(parts[0], config).spread(own, count)
        for parts, own, count in zip(ranked(found, len(sources)), places, counts, strict=True)
    ]


@torch.inference_mode()
def score_task(
    task: Task,
    words: Words,
    on_sentences: Callable[[int], object] = lambda count: None,
    limited: bool = True,
    apart: bool = False,
) -> dict[tuple[int, int], list[Part]]:
    """Like `score_documents` for the instances of a task, by document and first sentence; words: all their targets."""
    found: dict[tuple[int, int], list[Part]] = {}
    model, specials = task.model, task.specials
    for groups in shared_batches(task, words):
        equal = [numbers for group in groups for numbers in group]
        indices = [numbers[0] for numbers in equal]
        batch = collate(task.words, words, task.instances, indices, specials, model.parts.frame, "last", task.drafts)
        reading = shared_reading(task, batch.reading, groups)
        batch = replace(batch, reading=reading.apart() if apart else reading).to(model.device)
        for numbers, hypothesis in zip(equal, _score(task, words, batch, indices, limited), strict=True):
            for i in numbers:
                document, first, last = task.place(int(task.instances.own[i]), int(task.instances.last[i]))
                found[document, first] = [Part(document, first, last, hypothesis)]
                on_sentences(last - first)
    return found


def _score(task: Task, target: Words, batch: Batch, indices: Sequence[int], limited: bool) -> list[Hypothesis]:
    """Force decoding of the own sentences of one batch of instances."""
    scores = mean_probability(
        [_label_scores(member, batch, task.config.temperature) for member in members_of(task.model)]
    )
    frame, rules, config = task.model.parts.frame, rules_of(task.model, task.config), task.config
    said, marks = marks_of(task.model, task.specials), 1 + frame.goes_on
    hypotheses, reached = [], 0
    for i in indices:
        own = range(int(task.instances.own[i]), int(task.instances.last[i]))
        size = sum(int(target.lengths[number]) + marks for number in own)
        stream = batch.labels[reached : reached + size].tolist()
        worth = scores[reached : reached + size].tolist()
        reached += size
        if not all(map(math.isfinite, worth)):
            raise not_numbers()
        limits = [config.sentence_limit(int(task.words.lengths[number])) if limited else _NO_LIMIT for number in own]
        forced = rules.forced_labels([int(target.lengths[number]) for number in own], limits, frame.goes_on)
        for position in forced:
            worth[position] = 0.0
        free = len(stream) - len(forced)
        if config.compatibility == "huggingface":
            free += said.inner * len(own)
        if config.as_published:
            free = len(stream)
        sentences, sentence_scores = said.split(stream, worth)
        score = config.normalized(sum(sentence_scores), free)
        counts = said.chosen(stream, set(forced))
        hypotheses.append(Hypothesis(sentences, sentence_scores, counts, score, free))
    return hypotheses


def _label_scores(model: TranslationModel, batch: Batch, temperature: float) -> Tensor:
    """[n] log-probability of each label, by one model. States that are the same are projected once."""
    reading, labels = batch.reading, batch.labels
    assert reading.target is not None
    predicted = reading.predicted
    if predicted is None:
        predicted = torch.arange(len(labels), device=labels.device)
    computed, place = (predicted if reading.same is None else reading.same[predicted]).unique(return_inverse=True)
    states = model(replace(reading, predicted=computed))  # [u, d], state place[i] has label i
    scores = torch.empty(len(labels), device=labels.device)
    for start, part in enumerate(states.split(_CHUNK)):
        logits = model.project(part).float() / temperature  # [c, V]
        totals = logits.logsumexp(dim=-1)
        own = (place // _CHUNK == start).nonzero().flatten()
        rows = place[own] - start * _CHUNK
        scores[own] = logits[rows, labels[own]] - totals[rows]
    return scores


def scoring_passes(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    *,
    context: ContextConfig = ContextConfig(),
    batch_tokens: int = BATCH_TOKENS,
    drafts: Sequence[WordIds] | None = None,
) -> Iterator[tuple[Reading, Tensor]]:
    """Yield what the model reads to score these translations, on its device, and which sentences are translated.

    The latter is [S] bool, of the sentences of the packed source; the others are there as context. sources, targets and
    drafts as `score_documents` has them, but without empty source sentences. Raises DocmtError where a sentence cannot
    fit.
    """
    task, words = Task.of(model, sources, specials, config, context, batch_tokens, drafts), Words.of(targets)
    cut = task.instances
    for indices in task.batches():
        batch = collate(task.words, words, cut, indices, specials, model.parts.frame, drafts=task.drafts)
        translated = [torch.arange(int(cut.before[i]), int(cut.last[i])) >= int(cut.own[i]) for i in indices]
        yield batch.reading.to(model.device), torch.cat(translated)
