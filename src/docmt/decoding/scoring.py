"""The log-probabilities of supplied translations (force decoding).

What these translations have in common is computed once. Candidates of one source differ in a word or two. Each source
is encoded once, translations that are equal in all that is read with them are scored once, and a beginning that several
translations of a source share is decoded once, as a decoder's states depend on the source and the tokens before alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from docmt.data import Batch, SentenceTokens, collate
from docmt.decoding.models import Model, mean_probability, members_of
from docmt.decoding.rules import TargetBoundaries, WordIds, rules_of
from docmt.decoding.scheduler import Counter, Found, Task, batches_of, drafts_at, only_at
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.translation import Hypothesis, join, not_numbers
from docmt.model import ModelInput, TranslationModel
from docmt.model.spans import Packed
from docmt.text import SpecialTokens

Equal = list[int]
"""Numbers of instances that are equal in source, target and context."""
OneSource = list[Equal]
"""Those of one source."""


def shared_batches(task: Task, target: SentenceTokens) -> Iterator[list[OneSource]]:
    """All instances, those of one source together, in batches of at most `batch_tokens` of all that is scored."""
    groups = [part for group in _by_source(task, target) for part in _cut(group, task, task.lengths)]
    sizes = [(task.lengths[group[0][0]] * len(group), number) for number, group in enumerate(groups)]
    for batch in batches_of(sizes, task.batch_tokens):
        yield [groups[number] for number in batch]


def _cut(group: OneSource, task: Task, lengths: Sequence[int]) -> Iterator[OneSource]:
    """The translations of one source, in parts that fit a batch."""
    most = max(1, task.batch_tokens // max(1, lengths[group[0][0]]))
    for first in range(0, len(group), most):
        yield group[first : first + most]


def _by_source(task: Task, target: SentenceTokens) -> list[OneSource]:
    found: dict[object, dict[object, Equal]] = {}
    instances = task.instances
    columns = (instances.before, instances.first, instances.own, instances.last)
    for number, (before, first, own, last) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        drafted = None if task.drafts is None else _content(task.drafts, before, last)
        source = (_content(task.words, before, last), drafted, first - before, own - before)
        found.setdefault(source, {}).setdefault(_content(target, first, last), []).append(number)
    return [list(group.values()) for group in found.values()]


def _content(words: SentenceTokens, first: int, last: int) -> tuple[bytes, bytes]:
    """What the sentences first .. last - 1 hold, as something to compare."""
    offsets = words.offsets[first : last + 1]
    return words.tokens[offsets[0] : offsets[-1]].tobytes(), np.diff(offsets).tobytes()


def shared_reading(task: Task, inputs: ModelInput, batch: Sequence[OneSource]) -> ModelInput:
    """What is read of the first of each of the equal ones, one after the other, with every source once."""
    counts = torch.tensor([len(group) for group in batch])
    if len(batch) == int(counts.sum()):
        return inputs
    assert inputs.target is not None
    firsts = [group[0][0] for group in batch]
    own = task.read(firsts)
    aligned = [part for part, group in zip(task.aligned(own, firsts), batch, strict=True) for _ in group]
    return replace(
        inputs,
        source=own.source,
        drafts=own.drafts,
        aligned=torch.cat(aligned),
        documents=torch.arange(len(batch)).repeat_interleave(counts),
        same=_same_beginnings(inputs.target, counts.tolist()),
    )


def _same_beginnings(target: Packed, counts: Sequence[int]) -> Tensor:
    """[T] for each token the one that stands for it: of the documents of each source (so many) alike beginnings."""
    tokens, starts = target.tokens.tolist(), target.documents.starts.tolist()
    documents = [tokens[start:end] for start, end in zip(starts, target.documents.ends.tolist(), strict=True)]
    same = list(range(len(tokens)))
    reached = 0
    for count in counts:
        # In the order of the alphabet the one that a document shares the longest beginning with stands next to it.
        order = sorted(range(reached, reached + count), key=documents.__getitem__)
        for one, other in pairwise(order):
            common = _common(documents[one], documents[other])
            same[starts[other] : starts[other] + common] = same[starts[one] : starts[one] + common]
        reached += count
    return torch.tensor(same)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens are equal from the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


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
    on_sentences: Counter = lambda count: None,
    drafts: Sequence[WordIds] | None = None,
    limited: bool = True,
    apart: bool = False,
) -> list[Hypothesis]:
    """The given translations with the log-probabilities that the search would have given them.

    sources and targets: documents of the same numbers of sentences of word ids; drafts: a first translation of every
    source sentence, for a model that reads them. The context is the translator's: the same instances; a sentence
    exactly at its length limit has its `</s>` forced there, so it costs nothing here (unless not `limited`: where given
    texts are compared, one of just that length would gain). Pairs of empty sentences cost nothing either. With
    `apart` the same passes are made over the same instances, but no sentence sees another (`ModelInput.apart`). Raises
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
    found = score_task(task, SentenceTokens.of(targets), on_sentences, limited, apart)
    hypotheses = []
    for (start, end), own, count in zip(pairwise(task.offsets.tolist()), places, counts, strict=True):
        (joined,) = join([found[number] for number in range(start, end) if number in found], config, start)
        hypotheses.append(joined.spread(own, count))
    return hypotheses


@torch.inference_mode()
def score_task(
    task: Task,
    words: SentenceTokens,
    on_sentences: Counter = lambda count: None,
    limited: bool = True,
    apart: bool = False,
) -> Found:
    """Like `score_documents` for the instances of a task; words: all their targets."""
    found: Found = {}
    model, specials = task.model, task.specials
    for groups in shared_batches(task, words):
        equal = [numbers for group in groups for numbers in group]
        indices = [numbers[0] for numbers in equal]
        batch = collate(task.words, words, task.instances, indices, specials, model.parts.frame, "last", task.drafts)
        inputs = shared_reading(task, batch.inputs, groups)
        batch = replace(batch, inputs=inputs.apart() if apart else inputs).to(model.device)
        for numbers, hypothesis in zip(equal, _score(task, words, batch, indices, limited), strict=True):
            for i in numbers:
                span = task.span(int(task.instances.own[i]), int(task.instances.last[i]), [hypothesis])
                found[span.first] = span
                on_sentences(span.last - span.first)
    return found


def _score(task: Task, target: SentenceTokens, batch: Batch, indices: Sequence[int], limited: bool) -> list[Hypothesis]:
    """Force decoding of the own sentences of one batch of instances."""
    scores = mean_probability(
        [_label_scores(member, batch, task.config.temperature) for member in members_of(task.model)]
    )
    frame, rules, config = task.model.parts.frame, rules_of(task.model, task.config), task.config
    said, marks = TargetBoundaries(task.specials, frame), 1 + frame.goes_on
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
        if config.implementation == "huggingface":
            free += said.inner * len(own)
        if config.implementation == "gtransformer":
            free = len(stream)
        sentences, sentence_scores = said.split(stream, worth)
        score = config.normalized(sum(sentence_scores), free)
        counts = said.chosen(stream, set(forced))
        hypotheses.append(Hypothesis(sentences, sentence_scores, counts, score, free))
    return hypotheses


def _label_scores(model: TranslationModel, batch: Batch, temperature: float) -> Tensor:
    """[n] log-probability of each label, by one model. States that are the same are projected once."""
    inputs, labels = batch.inputs, batch.labels
    assert inputs.target is not None
    predicted = inputs.predicted
    if predicted is None:
        predicted = torch.arange(len(labels), device=labels.device)
    computed, place = (predicted if inputs.same is None else inputs.same[predicted]).unique(return_inverse=True)
    states = model(replace(inputs, predicted=computed))  # [u, d], state place[i] has label i
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
) -> Iterator[tuple[ModelInput, Tensor]]:
    """Yield what the model reads to score these translations, on its device, and which sentences are translated.

    The latter is [S] bool, of the sentences of the packed source; the others are there as context. sources, targets and
    drafts as `score_documents` has them, but without empty source sentences. Raises DocmtError where a sentence cannot
    fit.
    """
    task, words = Task.of(model, sources, specials, config, context, batch_tokens, drafts), SentenceTokens.of(targets)
    cut = task.instances
    for indices in task.batches():
        batch = collate(task.words, words, cut, indices, specials, model.parts.frame, drafts=task.drafts)
        translated = [torch.arange(int(cut.before[i]), int(cut.last[i])) >= int(cut.own[i]) for i in indices]
        yield batch.inputs.to(model.device), torch.cat(translated)
