"""Cut documents into instances and translate these in the order that their system needs.

An instance is the consecutive sentences that a model reads at once, cut by the rule of training. Instances of one
document are independent, except where a system reads its own earlier output. `docmt.decoding.document_stream` joins
them to documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.settings import MANY, find_changed
from docmt.data import Instances, SentenceTokens, cut_instances
from docmt.data.batches import collate_source
from docmt.data.instances import NUM_BOUNDARY_TOKENS, context_lengths, instance_lengths, locate_sentence
from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Model, combine_context_specs, list_members
from docmt.decoding.logits import number_samples
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.search_rules import FramedRules, SearchRow, WordIds, choose_rules
from docmt.decoding.translation_results import Hypothesis, TranslatedSpan
from docmt.model import ModelConfig, ModelInput
from docmt.model.systems import System
from docmt.text import SpecialTokens

_SYSTEMS = {
    "instance_tokens": "see whole instances (group, document, concat, hybrid, selective)",
    "overlap": "translate whole instances sentence for sentence (group)",
    "window_decoding": "translate windows (concat)",
}
"""Systems for which each setting of ContextConfig has an effect."""


class History:
    """Translations of earlier sentences, which later ones see, by the number of the sentence in the task.

    It changes during the search of a task.
    """

    def __init__(self) -> None:
        self._translations: dict[int, list[list[int]]] = {}
        self.fixed: set[int] = set()
        """sentences that are not searched, because their translations are given"""

    def ranked_translations(self, sentence: int) -> list[list[int]]:
        """Return all translations of a sentence, best first; an empty one if it could not be translated."""
        return self._translations.get(sentence, [[]])

    def add(self, first: int, hypotheses: Sequence[WordIds]) -> None:
        """Add translations, best first, of the sentences from `first` on."""
        for number, translations in enumerate(zip(*hypotheses, strict=True), first):
            if number not in self.fixed:
                self._translations[number] = [list(sentence) for sentence in translations]

    def fix(self, sentence: int, words: Sequence[int]) -> None:
        """Give a sentence a translation that no search changes."""
        self._translations[sentence] = [list(words)]
        self.fixed.add(sentence)

    def take(self, other: History, first: int, last: int, start: int) -> None:
        """Take the translations of the sentences first .. last - 1 of `other`, for the sentences from `start` on."""
        for number in range(first, last):
            if number in other._translations:
                self._translations[start + number - first] = other._translations[number]
        self.fixed |= {start + number - first for number in range(first, last) if number in other.fixed}

    def forget(self, before: int) -> None:
        """Drop the translations of the sentences before this one."""
        self._translations = {n: translations for n, translations in self._translations.items() if n >= before}
        self.fixed = {n for n in self.fixed if n >= before}


@dataclass(frozen=True)
class Task:
    """Documents without empty sentences and their instances; sentences are numbered through all documents."""

    model: Model
    words: SentenceTokens
    """words of the source sentences"""
    offsets: NDArray[np.int64]
    """[D + 1] number of each document's first sentence"""
    instances: Instances
    specials: SpecialTokens
    config: SearchConfig
    context: ContextConfig = ContextConfig()
    batch_tokens: int = BATCH_TOKENS
    drafts: SentenceTokens | None = None
    """drafts of all sentences, for a model that reads them"""
    history: History = field(default_factory=History)
    """translations of earlier sentences"""
    sample_numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """with `search.sampling`, see `number_samples`"""

    @classmethod
    def from_documents(
        cls,
        model: Model,
        documents: Sequence[WordIds],
        specials: SpecialTokens,
        config: SearchConfig,
        context: ContextConfig = ContextConfig(),
        batch_tokens: int = BATCH_TOKENS,
        drafts: Sequence[WordIds] | None = None,
        copies: Sequence[int] | None = None,
    ) -> Task:
        """Cut documents into instances.

        drafts: of each sentence, unless the model reads none or the parts of the task get them later. copies: see
        `number_samples`. Raises DocmtError where a sentence cannot fit.
        """
        words, offsets = SentenceTokens.from_documents(documents), np.cumsum([0, *map(len, documents)])
        drafts = drafts if combine_context_specs(model).drafts else None
        drafted = None if drafts is None else SentenceTokens.from_documents(drafts)
        instances = cut_source(words, offsets, model, config, context, drafted)
        task = cls(model, words, offsets, instances, specials, config, context, batch_tokens, drafted)
        return replace(task, sample_numbers=number_samples(words, offsets, copies)) if config.sampling else task

    def sample_number(self, sentence: int) -> int:
        """Return the number that the samples of this sentence depend on."""
        return int(self.sample_numbers[sentence]) if self.config.sampling else 0

    def select_instances(self, indices: Sequence[int]) -> Task:
        """Return the task of some instances, in order, with no more sentences than they read, numbered from 0."""
        instances, history = self.instances.select(indices), History()
        first, last = int(instances.before.min()), int(instances.last.max())
        history.take(self.history, first, last, 0)
        return replace(
            self,
            words=self.words.slice(first, last),
            offsets=np.array([0, last - first]),
            instances=_move(instances, -first),
            drafts=None if self.drafts is None else self.drafts.slice(first, last),
            history=history,
            sample_numbers=self.sample_numbers[first:last],
        )

    @classmethod
    def join(cls, tasks: Sequence[Task]) -> Task:
        """Return one task of the sentences and instances of tasks with the same model and settings, in order."""
        if len(tasks) == 1:
            return tasks[0]
        offsets, history, documents = np.cumsum([0, *(len(task.words.lengths) for task in tasks)]), History(), 0
        instances, drafts = list[Instances](), [task.drafts for task in tasks if task.drafts is not None]
        for task, (first, last) in zip(tasks, pairwise(offsets.tolist()), strict=True):
            history.take(task.history, 0, last - first, first)
            numbers = task.instances.document + documents
            instances.append(replace(_move(task.instances, first), document=numbers))
            documents = int(numbers[-1]) + 1
        return replace(
            tasks[0],
            words=_concatenate([task.words for task in tasks]),
            offsets=offsets,
            instances=Instances.concatenate(instances),
            drafts=_concatenate(drafts) if drafts else None,
            history=history,
            sample_numbers=np.concatenate([task.sample_numbers for task in tasks]),
        )

    def batches(self, indices: Sequence[int] | None = None, times: int = 1) -> Iterator[list[int]]:
        """Batch instances (all, or those of `indices`) of similar length, longest first (see `batch_by_length`).

        times: number of search batches that a batch may fill.
        """
        numbers = range(len(self.instances)) if indices is None else indices
        return batch_by_length([(self.lengths[i], i) for i in numbers], times * self.batch_tokens)

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each instance, boundary tokens included."""
        drafted = None if self.drafts is None else self.drafts.lengths
        return instance_lengths(self.instances, self.words.lengths, draft_lengths=drafted).tolist()

    def dependency_groups(self) -> list[list[int]]:
        """Group instances so that each comes after all instances whose translations it sees."""
        if (self.instances.first_output == self.instances.first).all():
            return [list(range(len(self.instances)))]
        documents = self.instances.document  # in rising order
        levels = np.arange(len(documents)) - np.searchsorted(documents, documents)
        return list(group_pairs(zip(levels.tolist(), range(len(levels)), strict=True)).values())

    def read_sources(self, batch: Sequence[int]) -> ModelInput:
        """Return the model input of these instances."""
        inputs = collate_source(self.words, self.instances, batch, self.model.boundary_tokens, self.drafts)
        return inputs.to(self.model.device)

    def outputs(self, instance: int) -> range:
        """Return the sentences that an instance translates."""
        return range(int(self.instances.first_output[instance]), int(self.instances.last[instance]))

    def list_searched(self, instance: int) -> list[int]:
        """Return the sentences of an instance whose translations are not given."""
        return [number for number in self.outputs(instance) if number not in self.history.fixed]

    def keep(self, spans: SearchResults, sentences: range, hypotheses: Sequence[Hypothesis]) -> None:
        """Add translations of consecutive sentences to the results of a search, and to the history."""
        spans[sentences.start] = TranslatedSpan(0, sentences.start, sentences.stop, hypotheses)
        self.history.add(sentences.start, [each.fit_sentences(len(sentences)) for each in hypotheses])

    def split_aligned(self, inputs: ModelInput, batch: Sequence[int]) -> Sequence[Tensor]:
        """Split the aligned source sentences of a model input by instance."""
        counts = self.instances.last[batch] - self.instances.first[batch]
        return inputs.alignment.split(counts.tolist())

    def make_rows(self, numbers: Iterable[int], sentences: Iterable[int]) -> list[SearchRow]:
        """Return a search row for each of these sentences; sentences: their numbers in the packed source."""
        pairs = zip(numbers, sentences, strict=True)
        return [SearchRow([each], [int(self.words.lengths[n])], (), self.sample_number(n)) for n, each in pairs]


def _move(instances: Instances, count: int) -> Instances:
    """Return instances of the sentences with numbers that are higher by `count`."""
    moved = {name: getattr(instances, name) + count for name in ("before", "first", "first_output", "last")}
    return replace(instances, **moved)


def _concatenate(columns: Sequence[SentenceTokens]) -> SentenceTokens:
    """Return the sentences of all columns, in order."""
    lengths = np.concatenate([column.lengths for column in columns])
    return SentenceTokens(np.concatenate([column.tokens for column in columns]), np.cumsum([0, *lengths]))


def find_nonempty(documents: Sequence[WordIds]) -> tuple[list[list[int]], list[WordIds]]:
    """Return the positions of each document's non-empty sentences, and these sentences."""
    positions = find_nonempty_pairs(documents, documents)
    return positions, select_sentences(positions, documents)


def find_nonempty_pairs(sources: Sequence[WordIds], targets: Sequence[WordIds]) -> list[list[int]]:
    """Return the positions in each document of the sentences with words on any side.

    Raises ValueError where the numbers of sentences differ.
    """
    return [
        [i for i, pair in enumerate(zip(source, target, strict=True)) if any(pair)]
        for source, target in zip(sources, targets, strict=True)
    ]


def select_drafts(
    positions: Sequence[Sequence[int]], documents: Sequence[WordIds], drafts: Sequence[WordIds] | None
) -> list[WordIds] | None:
    """Return the drafts of the sentences at these positions of each document, or None without drafts.

    Raises ValueError unless there is one for every sentence.
    """
    if drafts is None:
        return None
    if list(map(len, drafts)) != list(map(len, documents)):
        raise ValueError("the model reads drafts: give one for every sentence")
    return select_sentences(positions, drafts)


def select_sentences(positions: Sequence[Sequence[int]], documents: Sequence[WordIds]) -> list[WordIds]:
    """Return the sentences at these positions of each document."""
    return [[document[i] for i in indices] for document, indices in zip(documents, positions, strict=True)]


def cut_source(
    words: SentenceTokens,
    document_offsets: NDArray[np.int64],
    model: Model,
    config: SearchConfig,
    context: ContextConfig = ContextConfig(),
    drafts: SentenceTokens | None = None,
) -> Instances:
    """Cut documents into instances by the rule of training; an ensemble uses the smallest limits of its members.

    Raises DocmtError where a sentence cannot fit.
    """
    context_spec, second_limit = combine_context_specs(model), None
    if context_spec.target_context:  # target context must have been translated before
        context_spec = replace(context_spec, sentences=1)
    configs = [member.config for member in list_members(model)]
    for member in configs:
        check_context(config, context, member)
    limits = [member.position_limit for member in configs if member.position_limit is not None]
    if limits and len(words.lengths):
        # The longest possible translation needs positions too.
        longest = words.lengths
        if any(member.limits_target for member in configs):
            longest = np.maximum(longest, [config.sentence_limit(int(n)) for n in words.lengths])
        longest = longest if drafts is None else np.maximum(longest, drafts.lengths)
        before = context_spec.source_context if context_spec.joined_context else 0
        sizes = np.maximum(
            longest + model.boundary_tokens.max_per_sentence, context_lengths(words.lengths, document_offsets, before)
        )
        number = int(sizes.argmax())
        if sizes[number] > min(limits):
            _, position = locate_sentence(number, document_offsets)
            raise DocmtError(
                f"sentence {position + 1} of the document may need "
                f"{sizes[number]} positions, but the model has {min(limits)}. Split the sentence, or use a "
                "model with sinusoidal positions."
            )
        if not all(member.restarts_positions for member in configs if member.position_limit is not None):
            # Boundary tokens of a sentence beyond NUM_BOUNDARY_TOKENS.
            more = max(model.boundary_tokens.max_per_sentence - NUM_BOUNDARY_TOKENS, 0)
            second_limit = longest + more, min(limits) + 1
    return cut_instances(
        words.lengths,
        None,
        document_offsets,
        context_spec,
        limit=find_instance_limit(model, context),
        max_sentences=MANY if context.instance_tokens else min(member.instance_sentences for member in configs),
        overlap=context.overlap,
        second_limit=second_limit,
    )


def find_instance_limit(model: Model, context: ContextConfig) -> int:
    """Return the limit of source tokens, boundary tokens included. An instance has fewer."""
    return context.instance_tokens or min(member.config.instance_tokens for member in list_members(model))


def select_effective_settings(context: ContextConfig, system: System) -> ContextConfig:
    """Return the settings that have an effect with this system, with all others at their defaults."""
    spec = system.context_spec()
    effective = {
        "instance_tokens": spec.reads_instances or (system.decoding_order != "sentences" and not spec.target_context),
        "overlap": system.decoding_order == "documents" and system.rules == "frame",
        "window_decoding": bool(system.decoding_orders),
    }
    return ContextConfig(**{name: getattr(context, name) for name, has_effect in effective.items() if has_effect})


def check_context(search: SearchConfig, context: ContextConfig, *models: ModelConfig) -> None:
    """Raise DocmtError for a setting that has no effect with any of these models, or needs too many positions.

    The only setting of the search that is checked is `search.sequential`.
    """
    if search.sequential and not any(sees_translations(context, model.system_options) for model in models):
        raise DocmtError(
            "search.sequential is for systems whose decoder sees earlier translations (group; hybrid; concat with "
            "window_decoding prefix; hierarchical at the decoder), not for this model. Leave it out."
        )
    for name in find_changed(context):
        if not any(name in find_changed(select_effective_settings(context, each.system_options)) for each in models):
            systems = sorted({model.system for model in models})
            kinds = f"this {systems[0]} model" if len(systems) == 1 else f"models of {', '.join(systems)}"
            raise DocmtError(f"context.{name} is for systems that {_SYSTEMS[name]}, not for {kinds}. Leave it out.")
    for model in models:
        limit = None if model.restarts_positions else model.position_limit
        if limit is not None and context.instance_tokens > limit + 1:
            raise DocmtError(
                f"context.instance_tokens is {context.instance_tokens}, but the model has {limit} learned positions. "
                f"Choose at most {limit + 1}."
            )


def sees_translations(context: ContextConfig, system: System) -> bool:
    """Return whether the decoder sees translations of earlier sentences, sentence for sentence."""
    order = system.decoding_orders.get(context.window_decoding, system.decoding_order)
    return system.rules == "frame" and order in ("documents", "sequential")


def batch_by_length(sizes: Sequence[tuple[int, int]], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of numbers in the order of their sizes, largest first (see `batch_ordered`)."""
    return batch_ordered(sorted(sizes, key=lambda item: -item[0]), batch_tokens)


def batch_ordered(sizes: Iterable[tuple[int, int]], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of numbers in this order, of at most `batch_tokens` with padding; sizes: (size, number)."""
    batch: list[int] = []
    longest = 0
    for size, number in sizes:
        longest = max(longest, size)
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch, longest = [], size
        batch.append(number)
    if batch:
        yield batch


POOL_FACTOR = 4  # more tokens are read together than searched: more sentences of similar length to choose from
OnSentences = Callable[[int], object]
SearchResults = dict[int, TranslatedSpan]
"""Results of a search, instances or sentences, by the number of their first sentence."""


def search_instances(task: Task, on_sentences: OnSentences) -> SearchResults:
    """Search whole instances, for the orders "documents" and "sequential".

    A search row is an instance. The translations of earlier sentences in it are the prefix.
    """
    spans: SearchResults = {}
    for batch in (batch for group in task.dependency_groups() for batch in task.batches(group)):
        outputs = list(map(task.outputs, batch))
        earlier = [range(int(task.instances.first[i]), each.start) for i, each in zip(batch, outputs, strict=True)]
        prefixes = [[task.history.ranked_translations(n)[0] for n in numbers] for numbers in earlier]
        for numbers, prefix, hypotheses in zip(outputs, prefixes, _search_rows(task, batch, prefixes), strict=True):
            if task.config.implementation == "rfa":
                hypotheses = [each.drop_prefix(len(prefix), only_next=True) for each in hypotheses]
            task.keep(spans, numbers, hypotheses)
        on_sentences(sum(map(len, outputs)))
    return spans


def search_sentences(task: Task, on_sentences: OnSentences) -> SearchResults:
    """Search single sentences, for the order "sentences".

    Many instances are read together, and sentences of similar length are searched together.
    """
    spans: SearchResults = {}
    for batch in task.batches(times=POOL_FACTOR):
        inputs = task.read_sources(batch)
        memories = task.model.compute_memories(inputs)
        rows: list[SearchRow] = []
        numbers = [n for i in batch for n in task.list_searched(i)]
        for i, aligned in zip(batch, task.split_aligned(inputs, batch), strict=True):
            searched = task.list_searched(i)
            rows += task.make_rows(searched, aligned[np.array(searched) - int(task.instances.first[i])].tolist())
        for indices in batch_rows(rows, task.batch_tokens):
            results = search(task.model, memories, [rows[index] for index in indices], task.specials, task.config)
            for number, hypotheses in zip([numbers[index] for index in indices], results, strict=True):
                spans[number] = TranslatedSpan(0, number, number + 1, hypotheses)
            on_sentences(len(indices))
    return spans


def batch_rows(rows: Sequence[SearchRow], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of the numbers of search rows of one sentence, of similar length (see `batch_by_length`)."""
    sizes = [(row.lengths[0] + NUM_BOUNDARY_TOKENS, number) for number, row in enumerate(rows)]
    return batch_by_length(sizes, batch_tokens)


def search_windows(task: Task, on_sentences: OnSentences) -> SearchResults:
    """Search windows and keep the last sentence of each, for the order "windows"."""
    spans: SearchResults = {}
    for batch in task.batches():
        for i, results in zip(batch, _search_rows(task, batch), strict=True):
            task.keep(spans, task.outputs(i), [each.drop_prefix(len(each.sentences) - 1) for each in results])
        on_sentences(len(batch))
    return spans


def _search_rows(task: Task, batch: Sequence[int], prefixes: Sequence[WordIds] | None = None) -> list[list[Hypothesis]]:
    """Return the best translations of these instances, each a search row, after the forced prefixes."""
    inputs = task.read_sources(batch)
    rows = []
    for i, aligned, prefix in zip(batch, task.split_aligned(inputs, batch), prefixes or [()] * len(batch), strict=True):
        first, last = int(task.instances.first[i]), int(task.instances.last[i])
        number = task.sample_number(task.outputs(i).start)
        is_framed = choose_rules(task.model, task.config) is FramedRules  # others know no sentences
        fixed = [n for n in range(first, last) if is_framed and n in task.history.fixed]
        given = {n - first: task.history.ranked_translations(n)[0] for n in fixed}
        lengths = task.words.lengths[first:last].tolist()
        rows.append(SearchRow(aligned.tolist(), lengths, prefix, number, given=given))
    return search(task.model, task.model.compute_memories(inputs), rows, task.specials, task.config)
