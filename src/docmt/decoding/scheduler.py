"""Documents cut into the instances that a model reads, and these translated in the order that their system needs.

An instance is what the model reads at once, cut by the rule of training. Instances of one document are independent but
where a system looks at its own earlier output; `docmt.decoding.stream` makes documents of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY
from docmt.data import Instances, SentenceTokens, cut, read_source
from docmt.data.instances import instance_lengths, lengths_before, place_of
from docmt.data.prepare_config import MARKS
from docmt.decoding.beam_search import search
from docmt.decoding.models import Model, common_context_spec, members_of
from docmt.decoding.rules import SearchRow, WordIds, takes_rounds
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.translation import Hypothesis, TranslatedSpan, join
from docmt.model import ModelConfig, ModelInput
from docmt.model.systems import ContextSpec, System
from docmt.text import SpecialTokens

_SYSTEMS = {
    "instance_tokens": "see whole instances (group, document, concat)",
    "overlap": "translate whole instances sentence for sentence (group)",
    "window_decoding": "translate windows (concat)",
}
"""The systems for which each setting of ContextConfig is."""


class History:
    """Translations of earlier sentences, which later ones see, by the number of the sentence in the whole task.

    It changes while a task is worked on.
    """

    def __init__(self, other: History | None = None) -> None:
        """other: that it begins with a copy of."""
        self._ranks: dict[int, list[list[int]]] = {} if other is None else dict(other._ranks)

    def ranks(self, sentence: int) -> list[list[int]]:
        """Return the translations of a sentence, best first; an empty one where it could not be translated."""
        return self._ranks.get(sentence, [[]])

    def add(self, first: int, hypotheses: Sequence[WordIds]) -> None:
        """Keep translations, best first, of the sentences from `first` on."""
        for number, ranks in enumerate(zip(*hypotheses, strict=True), first):
            self._ranks[number] = [list(sentence) for sentence in ranks]

    def forget(self, before: int) -> None:
        """Drop the translations of the sentences before this one."""
        self._ranks = {number: ranks for number, ranks in self._ranks.items() if number >= before}


@dataclass(frozen=True)
class Task:
    """Documents without empty sentences and their instances; sentences are numbered through all documents."""

    model: Model
    words: SentenceTokens
    """of the source"""
    offsets: NDArray[np.int64]
    """[D + 1] number of each document's first sentence"""
    instances: Instances
    specials: SpecialTokens
    config: SearchConfig
    context: ContextConfig = ContextConfig()
    batch_tokens: int = BATCH_TOKENS
    drafts: SentenceTokens | None = None
    """of every sentence, where the model reads them"""
    start: int = 0
    """of a part of a task: the number of its first sentence in the whole one"""
    history: History = field(default_factory=lambda: History())
    """what all parts of a task share"""

    @classmethod
    def of(
        cls,
        model: Model,
        documents: Sequence[WordIds],
        specials: SpecialTokens,
        config: SearchConfig,
        context: ContextConfig = ContextConfig(),
        batch_tokens: int = BATCH_TOKENS,
        drafts: Sequence[WordIds] | None = None,
    ) -> Task:
        """Cuts the documents; drafts: of each of their sentences, where the model reads them and the task's parts are
        not to get them later.

        Raises DocmtError where a sentence cannot fit.
        """
        words, offsets = SentenceTokens.of(documents), np.cumsum([0, *map(len, documents)])
        drafted = SentenceTokens.of(drafts) if drafts is not None and common_context_spec(model).drafts else None
        instances = cut_source(words, offsets, model, config, context, drafted)
        return cls(model, words, offsets, instances, specials, config, context, batch_tokens, drafted)

    def part(self, chosen: Sequence[int]) -> Task:
        """The task of some instances, in order, with no more sentences than they read: numbers of these count from the
        first of them, those of documents stay."""
        instances = self.instances
        first, last = int(instances.before[chosen].min()), int(instances.last[chosen].max())
        moved = {name: getattr(instances, name)[chosen] - first for name in ("before", "first", "own", "last")}
        return replace(
            self,
            words=self.words.part(first, last),
            offsets=self.offsets - first,
            instances=Instances(instances.document[chosen], **moved, cost=instances.cost[chosen]),
            drafts=None if self.drafts is None else self.drafts.part(first, last),
            start=self.start + first,
        )

    def batches(self, chosen: Sequence[int] | None = None, times: int = 1) -> Iterator[list[int]]:
        """Instances (all, or those chosen) of similar length together, longest first; see `batches_of`.

        times: how many batches of the search they may fill.
        """
        numbers = range(len(self.instances)) if chosen is None else chosen
        return batches_of([(self.lengths[i], i) for i in numbers], times * self.batch_tokens)

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each instance, marks included."""
        drafted = None if self.drafts is None else self.drafts.lengths
        lengths: list[int] = instance_lengths(self.instances, self.words.lengths, draft_lengths=drafted).tolist()
        return lengths

    def turns(self) -> list[list[int]]:
        """The instances in an order in which each comes after all that it sees the translation of; those of a turn go
        together."""
        if (self.instances.own == self.instances.first).all():
            return [list(range(len(self.instances)))]
        documents = self.instances.document  # in rising order
        places = np.arange(len(documents)) - np.searchsorted(documents, documents)
        turns: list[list[int]] = [[] for _ in range(int(places.max(initial=-1)) + 1)]
        for number, place in enumerate(places.tolist()):
            turns[place].append(number)
        return turns

    def read(self, batch: Sequence[int]) -> ModelInput:
        """The source sides of these instances."""
        inputs = read_source(self.words, self.instances, batch, self.model.parts.frame, self.drafts)
        return inputs.to(self.model.device)

    def aligned(self, inputs: ModelInput, batch: Sequence[int]) -> Sequence[Tensor]:
        """Where the sentences first .. last - 1 of each of these instances are in what is read of them."""
        counts = self.instances.last[batch] - self.instances.first[batch]
        return inputs.aligned.split(counts.tolist())

    def span(self, first: int, last: int, ranks: Sequence[Hypothesis]) -> TranslatedSpan:
        """Translations of the sentences first .. last - 1 of this task, with their numbers in the whole one."""
        document, _ = place_of(first, self.offsets)
        return TranslatedSpan(document, self.start + first, self.start + last, ranks)


def filled_places(documents: Sequence[WordIds]) -> tuple[list[list[int]], list[WordIds]]:
    """Where each document has sentences that are not empty, and these."""
    places = [[i for i, sentence in enumerate(document) if sentence] for document in documents]
    return places, only_at(places, documents)


def drafts_at(
    places: Sequence[Sequence[int]], documents: Sequence[WordIds], drafts: Sequence[WordIds] | None
) -> list[WordIds] | None:
    """Of each document the drafts of the sentences at these places, if there are drafts.

    Raises ValueError unless there is one for every sentence.
    """
    if drafts is None:
        return None
    if list(map(len, drafts)) != list(map(len, documents)):
        raise ValueError("the drafts are not those of the documents: the model reads drafts of every sentence")
    return only_at(places, drafts)


def only_at(places: Sequence[Sequence[int]], documents: Sequence[WordIds]) -> list[WordIds]:
    """Of each document the sentences at these places."""
    return [[document[i] for i in own] for document, own in zip(documents, places, strict=True)]


def cut_source(
    words: SentenceTokens,
    document_offsets: NDArray[np.int64],
    model: Model,
    config: SearchConfig,
    context: ContextConfig = ContextConfig(),
    drafts: SentenceTokens | None = None,
) -> Instances:
    """Cuts documents by the rule of training, in an ensemble by the least limits of its members.

    Raises DocmtError where a sentence cannot fit.
    """
    context_spec, reserve = common_context_spec(model), None
    if context_spec.shown:  # the sentences that are shown must have been translated
        context_spec = replace(context_spec, sentences=1)
    configs = [member.config for member in members_of(model)]
    for own in configs:
        check_context(config, context, own)
    limits = [own.position_limit for own in configs if own.position_limit is not None]
    if limits and len(words.lengths):
        # The longest translation that the search may try must have positions too.
        longest = words.lengths
        if any(own.limits_target for own in configs):
            longest = np.maximum(longest, [config.sentence_limit(int(n)) for n in words.lengths])
        longest = longest if drafts is None else np.maximum(longest, drafts.lengths)
        before = context_spec.before if context_spec.joined else 0
        sizes = np.maximum(
            longest + model.parts.frame.most_marks, lengths_before(words.lengths, document_offsets, before)
        )
        number = int(sizes.argmax())
        if sizes[number] > min(limits):
            _, place = place_of(number, document_offsets)
            raise DocmtError(
                f"sentence {place + 1} of the document may need "
                f"{sizes[number]} positions, but the model has {min(limits)}: split the sentence, or use a "
                "model with sinusoidal positions"
            )
        if not all(own.restarts for own in configs if own.position_limit is not None):
            more = max(model.parts.frame.most_marks - MARKS, 0)  # than are counted for each sentence
            reserve = longest + more, min(limits) + 1
    return cut(
        words.lengths,
        None,
        document_offsets,
        context_spec,
        limit=instance_limit(model, context),
        max_sentences=MANY if context.instance_tokens else min(own.instance_sentences for own in configs),
        carry=context.overlap,
        reserve=reserve,
    )


def instance_limit(model: Model, context: ContextConfig) -> int:
    """Fewer source tokens than these, marks included, are one instance."""
    return context.instance_tokens or min(own.config.instance_tokens for own in members_of(model))


def supported(context: ContextConfig, system: System) -> ContextConfig:
    """Return the settings that have an effect with this system; the others are at their defaults."""
    has = {
        "instance_tokens": system.order != "sentences" and not system.context_spec().shown,
        "overlap": system.order == "documents" and system.rules == "frame",
        "window_decoding": bool(system.orders),
    }
    return ContextConfig(**{name: getattr(context, name) for name, has_effect in has.items() if has_effect})


def check_context(search: SearchConfig, context: ContextConfig, *models: ModelConfig) -> None:
    """Raise DocmtError for a setting that has no effect with any of these models, or asks for too many positions.

    Of the search that is `search.rounds`, which looks at context.
    """
    if search.rounds and not any(takes_rounds(context, model.chosen) for model in models):
        raise DocmtError(
            "search.rounds is for systems that see earlier translations (group; concat with window_decoding prefix; "
            "hierarchical at the target), not for this model: leave it out"
        )
    for name in context.changes():
        if not any(name in supported(context, model.chosen).changes() for model in models):
            systems = sorted({model.system for model in models})
            these = f"this {systems[0]} model" if len(systems) == 1 else f"models of {', '.join(systems)}"
            raise DocmtError(f"context.{name} is for systems that {_SYSTEMS[name]}, not for {these}: leave it out")
    for model in models:
        limit = None if model.restarts else model.position_limit
        if limit is not None and context.instance_tokens > limit + 1:
            raise DocmtError(
                f"context.instance_tokens is {context.instance_tokens}, but the model has {limit} learned positions: "
                f"choose at most {limit + 1}"
            )


def batches_of(sizes: Sequence[tuple[int, int]], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of things (size, number) of similar size, largest first, at most `batch_tokens` with padding."""
    return batches_in_order(sorted(sizes, key=lambda item: -item[0]), batch_tokens)


def batches_in_order(sizes: Iterable[tuple[int, int]], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of things (size, number) in this order, at most `batch_tokens` with padding."""
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


def packed_units(
    model: ModelConfig,
    source_lengths: Sequence[int] | NDArray[np.int64],
    target_lengths: Sequence[int] | NDArray[np.int64],
    document_offsets: Sequence[int] | NDArray[np.int64],
) -> list[list[tuple[int, int]]]:
    """For each document the ranges of its sentences that are packed together from both sides: the published units of
    d-BLEU (Bao et al. 2021), end to end whatever the system."""
    offsets = np.asarray(document_offsets)
    packed = cut(
        source_lengths,
        target_lengths,
        offsets,
        ContextSpec(),
        limit=model.instance_tokens,
        max_sentences=model.instance_sentences,
    )
    units: list[list[tuple[int, int]]] = [[] for _ in range(len(offsets) - 1)]
    for document, first, last in zip(packed.document, packed.first, packed.last, strict=True):
        start = offsets[document]
        units[int(document)].append((int(first - start), int(last - start)))
    return units


POOL = 4  # times as many tokens are read together as are searched: more sentences to find similar ones among
Counter = Callable[[int], object]
Found = dict[int, TranslatedSpan]
"""By the number of its first sentence in the whole task: what was searched as one, an instance or a sentence."""
_PREFIX_SHARE = 8  # a batch has at most so many times its tokens in prefixes, whose keys each row copies


def _whole_instances(task: Task, on_sentences: Counter) -> Found:
    """Orders "documents" and "in turn": a row of the search is an instance, whose own sentences are found together,
    after the translations of those before them that it has as well."""
    found: Found = {}
    own, first, last = task.instances.own, task.instances.first, task.instances.last
    for batch in (batch for turn in task.turns() for batch in task.batches(turn)):
        earlier = [range(int(first[i]), int(own[i])) for i in batch]
        prefixes = [[task.history.ranks(task.start + number)[0] for number in numbers] for numbers in earlier]
        for i, before, hypotheses in zip(batch, earlier, _search(task, batch, prefixes), strict=True):
            kept = [each.after(len(before), alone=task.config.implementation == "rfa") for each in hypotheses]
            span = task.span(int(own[i]), int(last[i]), kept)
            found[span.first] = span
            task.history.add(span.first, [each.fitted(span.last - span.first) for each in kept])
        on_sentences(int((last[batch] - own[batch]).sum()))
    return found


def _pooled_sentences(task: Task, on_sentences: Counter, after_earlier: bool = False) -> Found:
    """Order "sentences": the sentences of many instances are read together, and those of similar length searched.

    after_earlier: each after the translations of those before it that its instance has as well.
    """
    found: Found = {}
    instances, lengths = task.instances, task.words.lengths
    for batch in task.batches(times=1 if after_earlier else POOL):
        inputs = task.read(batch)
        memories = task.model.memories(inputs)
        rows: list[SearchRow] = []
        numbers: list[int] = []
        for i, aligned in zip(batch, task.aligned(inputs, batch), strict=True):
            first, own, last = (int(column[i]) for column in (instances.first, instances.own, instances.last))
            before = [task.history.ranks(task.start + n)[0] for n in range(first, last)] if after_earlier else []
            for n in range(own, last):
                seen = slice(0 if after_earlier else n - first, n + 1 - first)
                rows.append(SearchRow(aligned[seen].tolist(), lengths[first:last][seen].tolist(), before[: n - first]))
                numbers.append(n)
        sizes = [
            (max(row.lengths[-1] + MARKS, sum(map(len, row.prefix)) // _PREFIX_SHARE), place)
            for place, row in enumerate(rows)
        ]
        for places in batches_of(sizes, task.batch_tokens):
            ranks = search(task.model, memories, [rows[place] for place in places], task.specials, task.config)
            for place, hypotheses in zip(places, ranks, strict=True):
                kept = [each.after(len(rows[place].prefix)) for each in hypotheses]
                span = task.span(numbers[place], numbers[place] + 1, kept)
                found[span.first] = span
            on_sentences(len(places))
    return found


def _windows(task: Task, on_sentences: Counter) -> Found:
    """Order "windows": the last sentence of every window."""
    found: Found = {}
    for batch in task.batches():
        for i, hypotheses in zip(batch, _search(task, batch), strict=True):
            kept = [each.after(len(each.sentences) - 1) for each in hypotheses]
            span = task.span(int(task.instances.own[i]), int(task.instances.last[i]), kept)
            found[span.first] = span
            task.history.add(span.first, [each.sentences for each in kept])
        on_sentences(len(batch))
    return found


def _search(task: Task, batch: Sequence[int], prefixes: Sequence[WordIds] | None = None) -> list[list[Hypothesis]]:
    """The best translations of these instances, each a row, after the forced prefixes."""
    inputs = task.read(batch)
    rows = []
    for i, aligned, prefix in zip(batch, task.aligned(inputs, batch), prefixes or [()] * len(batch), strict=True):
        lengths = task.words.lengths[int(task.instances.first[i]) : int(task.instances.last[i])]
        rows.append(SearchRow(aligned.tolist(), lengths.tolist(), prefix))
    return search(task.model, task.model.memories(inputs), rows, task.specials, task.config)


def _rounds(task: Task, on_sentences: Counter) -> Found:
    """Decode in a fixed number of rounds: all sentences at once, each after drafts of those before it.

    The first round searches every sentence without earlier target sentences. Each further round searches every sentence
    again, after the drafts of the round before. Nothing is verified: a document costs as many sentence batches as there
    are rounds. After round r the first r sentences of an instance are those of sequential search (with beams inside of
    sentences); docs/contributing/decisions/0002-rounds.md has how fast the others agree. on_sentences hears of the last
    round.
    """
    instances, found = task.instances, Found()
    drafted = replace(task, history=History(task.history))  # drafts of a round that fails are nobody's context
    alone = replace(task, instances=replace(instances, before=instances.own, first=instances.own))
    for number in range(task.config.rounds):
        count = on_sentences if number + 1 == task.config.rounds else lambda sentences: None
        found = _pooled_sentences(drafted, count, after_earlier=True) if number else _pooled_sentences(alone, count)
        for span in found.values():
            drafted.history.add(span.first, [each.sentences for each in span.ranks])
    joined: Found = {}
    for own, last in zip(instances.own.tolist(), instances.last.tolist(), strict=True):
        start = task.start + own
        spans = [found[number] for number in range(start, task.start + last)]
        joined[start] = task.span(own, last, join(spans, task.config, start))
        for span in spans:
            task.history.add(span.first, [each.sentences for each in span.ranks])
    return joined


ORDERS: dict[str, Callable[[Task, Counter], Found]] = {
    "documents": _whole_instances,
    "sentences": _pooled_sentences,
    "windows": _windows,
    "in turn": _whole_instances,
    "rounds": _rounds,
}
"""By the name that systems have for them, and rounds, where those are set."""
