"""Log-probabilities of supplied translations (force decoding).

Shared computation is done once. Candidates of one source differ in a word or two. So each source is encoded once, and
translations with equal source, target and context are scored once. A beginning that several translations of a source
share is decoded once, as decoder states depend on the source and the tokens before alone.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise, takewhile

import numpy as np
import torch
from torch import Tensor

from docmt.data import Batch, SentenceTokens, collate
from docmt.decoding.ensembles import Model, average_probabilities, list_members
from docmt.decoding.scheduler import (
    OnSentences,
    SearchResults,
    Task,
    batch_by_length,
    find_nonempty_pairs,
    select_drafts,
    select_sentences,
)
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig, between_steps
from docmt.decoding.search_rules import TargetBoundaries, WordIds, choose_rules
from docmt.decoding.translation_results import Hypothesis, TranslatedSpan, join_spans, non_finite_error
from docmt.model import ModelInput, TranslationModel
from docmt.model.embeddings import ContextNoise, replaced_words
from docmt.model.spans import Packed
from docmt.text import SpecialTokens

EqualInstances = list[int]
"""Numbers of instances that are equal in source, target and context."""
SourceGroup = list[EqualInstances]
"""Groups of equal instances with the same source."""


def batch_by_source(task: Task, target: SentenceTokens) -> Iterator[list[SourceGroup]]:
    """Yield all instances, those of one source together, in batches of at most `batch_tokens` scored tokens."""
    sources = _group_by_source(task, target)
    groups = []
    for source in sources:  # in parts that fit a batch
        size = max(1, task.batch_tokens // max(1, task.lengths[source[0][0]]))
        groups += [source[first : first + size] for first in range(0, len(source), size)]
    sizes = [(task.lengths[group[0][0]] * len(group), number) for number, group in enumerate(groups)]
    for batch in batch_by_length(sizes, task.batch_tokens):
        yield [groups[number] for number in batch]


def _group_by_source(task: Task, target: SentenceTokens) -> list[SourceGroup]:
    """Group instances by source and context, then by target."""
    groups: dict[object, dict[object, EqualInstances]] = {}
    instances = task.instances
    columns = (instances.before, instances.first, instances.first_output, instances.last)
    for number, (before, first, start, last) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        drafted = None if task.drafts is None else _content_key(task.drafts, before, last)
        source = (_content_key(task.words, before, last), drafted, first - before, start - before)
        groups.setdefault(source, {}).setdefault(_content_key(target, first, last), []).append(number)
    return [list(group.values()) for group in groups.values()]


def _content_key(words: SentenceTokens, first: int, last: int) -> tuple[bytes, bytes]:
    """Return a key that is equal for equal sentences first .. last - 1."""
    offsets = words.offsets[first : last + 1]
    return words.tokens[offsets[0] : offsets[-1]].tobytes(), np.diff(offsets).tobytes()


def share_sources(task: Task, inputs: ModelInput, batch: Sequence[SourceGroup]) -> ModelInput:
    """Return the model input of one instance of each equal group, with every source once."""
    counts = torch.tensor([len(group) for group in batch])
    if len(batch) == int(counts.sum()):
        return inputs
    assert inputs.target is not None
    firsts = [group[0][0] for group in batch]
    sources = task.read_sources(firsts)
    aligned = [part for part, group in zip(task.split_aligned(sources, firsts), batch, strict=True) for _ in group]
    return replace(
        inputs,
        source=sources.source,
        drafts=sources.drafts,
        alignment=torch.cat(aligned),
        document_alignment=torch.arange(len(batch)).repeat_interleave(counts),
        representatives=_share_beginnings(inputs.target, counts.tolist()),
    )


def _share_beginnings(target: Packed, counts: Sequence[int]) -> Tensor:
    """Return for each target token the one whose state it shares: [T]; counts: documents of each source."""
    tokens, starts = target.tokens.tolist(), target.documents.starts.tolist()
    documents = [tokens[start:end] for start, end in zip(starts, target.documents.ends.tolist(), strict=True)]
    representatives = list(range(len(tokens)))
    first = 0
    for count in counts:
        # In sorted order each document stands next to the one with which it shares the longest beginning.
        order = sorted(range(first, first + count), key=documents.__getitem__)
        for previous, document in pairwise(order):
            pairs = zip(documents[previous], documents[document], strict=False)
            common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            start, shared = starts[document], starts[previous]
            representatives[start : start + common] = representatives[shared : shared + common]
        first += count
    return torch.tensor(representatives)


CHUNK = 512  # tokens that are projected to the vocabulary at a time


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
    on_sentences: OnSentences = lambda count: None,
    drafts: Sequence[WordIds] | None = None,
    free_at_limit: bool = True,
    without_context: bool = False,
    noise: ContextNoise | None = None,
) -> list[Hypothesis]:
    """Return supplied translations with the log-probabilities that the search would give them.

    sources and targets: documents of word ids with equal numbers of sentences. drafts: a first translation of every
    source sentence, for a model that reads them. Instances are those of the translator. free_at_limit: the `</s>` of a
    sentence exactly at its length limit is forced as in the search, and costs nothing; where supplied texts are
    compared, one of just that length would gain by it. Pairs of empty sentences cost nothing. without_context: the same
    instances and passes, but no sentence sees another (`ModelInput.isolate_sentences`). noise: replaces the words that
    the model reads of all sentences but one of each document; only scores of these have a meaning. Raises ValueError
    where the numbers of sentences differ, and DocmtError where scores are not numbers.
    """
    if noise is not None:
        sources, targets = noise.replace_context(sources), noise.replace_context(targets)
        drafts = None if drafts is None else noise.replace_context(drafts)
    positions, counts = find_nonempty_pairs(sources, targets), [len(document) for document in sources]
    drafts = select_drafts(positions, sources, drafts)
    sources, targets = select_sentences(positions, sources), select_sentences(positions, targets)
    on_sentences(sum(counts) - sum(map(len, sources)))
    task = Task.from_documents(model, sources, specials, config, context, batch_tokens, drafts)
    with nullcontext() if noise is None else noise.readable():
        spans = score_task(task, SentenceTokens.from_documents(targets), on_sentences, free_at_limit, without_context)
    hypotheses = []
    for (start, end), indices, count in zip(pairwise(task.offsets.tolist()), positions, counts, strict=True):
        (joined,) = join_spans([spans[number] for number in range(start, end) if number in spans], config, start)
        hypotheses.append(joined.insert_empty(indices, count))
    return hypotheses


@torch.inference_mode()
def score_task(
    task: Task,
    words: SentenceTokens,
    on_sentences: OnSentences = lambda count: None,
    free_at_limit: bool = True,
    without_context: bool = False,
) -> SearchResults:
    """Score the instances of a task as `score_documents` does; words: all their targets."""
    spans: SearchResults = {}
    model, specials = task.model, task.specials
    for batch_groups in batch_by_source(task, words):
        equal = [numbers for group in batch_groups for numbers in group]
        indices = [numbers[0] for numbers in equal]
        batch = collate(
            task.words, words, task.instances, indices, specials, model.boundary_tokens, "last", task.drafts
        )
        inputs = share_sources(task, batch.inputs, batch_groups)
        inputs = inputs.isolate_sentences() if without_context else inputs
        batch = Batch(inputs, replaced_words(batch.labels)).to(model.device)
        member_scores = [_score_labels(member, batch, task.config.temperature) for member in list_members(model)]
        scores = average_probabilities(member_scores)
        hypotheses = split_scores(task, words, batch.labels, scores, indices, free_at_limit)
        for numbers, hypothesis in zip(equal, hypotheses, strict=True):
            for outputs in map(task.outputs, numbers):
                spans[outputs.start] = TranslatedSpan(0, outputs.start, outputs.stop, [hypothesis])
                on_sentences(len(outputs))
    return spans


def split_scores(
    task: Task, target: SentenceTokens, labels: Tensor, scores: Tensor, indices: Sequence[int], free_at_limit: bool
) -> list[Hypothesis]:
    """Return the supplied translation of each of these instances; labels, scores [n]: of their output sentences.

    Raises DocmtError where scores are not numbers.
    """
    config, boundaries = task.config, TargetBoundaries(task.specials, task.model.boundary_tokens)
    labels_per_sentence = 1 + boundaries.tokens.predicts_boundary
    hypotheses, first = [], 0
    for i in indices:
        numbers = task.outputs(i)
        size = sum(int(target.lengths[number]) + labels_per_sentence for number in numbers)
        stream = labels[first : first + size].tolist()
        log_probs = scores[first : first + size].tolist()
        first += size
        if not all(map(math.isfinite, log_probs)):
            raise non_finite_error()
        forced = find_forced_labels(task, target, numbers, free_at_limit)
        for position in forced:
            log_probs[position] = 0.0
        chosen = len(stream) - len(forced)
        if config.implementation == "huggingface":
            chosen += boundaries.inner_openers * len(numbers)
        if config.implementation == "gtransformer":
            chosen = len(stream)
        sentences, sentence_scores = boundaries.split_sentences(stream, log_probs)
        score = config.normalize_score(sum(sentence_scores), chosen)
        counts = boundaries.count_chosen(stream, set(forced))
        token_scores, start = [], 0
        for number in numbers:
            token_scores.append(array("f", log_probs[start : start + int(target.lengths[number])]))
            start += int(target.lengths[number]) + labels_per_sentence
        hypotheses.append(Hypothesis(sentences, sentence_scores, counts, score, chosen, token_scores=token_scores))
    return hypotheses


def find_forced_labels(
    task: Task, target: SentenceTokens, numbers: Sequence[int], free_at_limit: bool = True
) -> list[int]:
    """Return the positions, among the labels of these sentences, of those that the search would force."""
    lengths = [int(task.words.lengths[number]) for number in numbers]
    limits = [task.config.sentence_limit(length) if free_at_limit else -1 for length in lengths]
    rules, boundary_labelled = choose_rules(task.model, task.config), task.model.boundary_tokens.predicts_boundary
    return rules.find_forced_labels([int(target.lengths[n]) for n in numbers], limits, boundary_labelled)


def _score_labels(model: TranslationModel, batch: Batch, temperature: float) -> Tensor:
    """Return the log-probability of each label by one model: [n]; equal states are projected once."""
    inputs, labels = batch.inputs, batch.labels
    assert inputs.target is not None
    predicted = inputs.label_positions
    if predicted is None:
        predicted = torch.arange(len(labels), device=labels.device)
    computed, state = (predicted if inputs.representatives is None else inputs.representatives[predicted]).unique(
        return_inverse=True
    )
    states = model(replace(inputs, label_positions=computed))  # [u, d]; label i belongs to state index[i]
    scores = torch.empty(len(labels), device=labels.device)
    for start, block in enumerate(states.split(CHUNK)):
        logits = model.project(block).float() / temperature  # [c, V]
        totals = logits.logsumexp(dim=-1)
        selected = (state // CHUNK == start).nonzero().flatten()
        rows = state[selected] - start * CHUNK
        scores[selected] = logits[rows, labels[selected]] - totals[rows]
    return scores


def iterate_scoring_inputs(task: Task, targets: Sequence[WordIds]) -> Iterator[tuple[ModelInput, Tensor]]:
    """Yield the model inputs for scoring these translations, on the model's device, and the numbers of their sentences.

    The latter is [S] int64 over the sentences of the packed source: which of all sentences of the task it is, or -1 if
    it is only context. targets: documents of word ids.
    """
    words, cut, boundaries = SentenceTokens.from_documents(targets), task.instances, task.model.boundary_tokens
    for indices in task.batches():
        between_steps()
        batch = collate(task.words, words, cut, indices, task.specials, boundaries, drafts=task.drafts)
        numbers = [torch.arange(int(cut.before[i]), int(cut.last[i])) for i in indices]
        numbers = [each.where(each >= int(cut.first_output[i]), -1) for i, each in zip(indices, numbers, strict=True)]
        yield batch.inputs.to(task.model.device), torch.cat(numbers)
