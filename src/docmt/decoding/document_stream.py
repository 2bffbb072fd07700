"""Documents of any length, translated span by span: finished sentences are yielded while the rest waits.

Instances are cut from whole documents, by the lengths of their sentences. They are translated a few at a time, in
order. Only those translations stay in memory that a later instance sees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from docmt.core.errors import DocmtError, map_or_error
from docmt.core.settings import MANY
from docmt.data import SentenceTokens
from docmt.data.instances import NUM_BOUNDARY_TOKENS
from docmt.decoding.ensembles import Model
from docmt.decoding.repair import can_repair, search_with_repair
from docmt.decoding.scheduler import (
    History,
    OnSentences,
    SearchResults,
    Task,
    batch_ordered,
    find_nonempty,
    search_instances,
    search_sentences,
    search_windows,
    select_drafts,
)
from docmt.decoding.scoring import score_task
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.search_rules import OpenRules, WordIds, choose_order, choose_rules
from docmt.decoding.translation_results import Hypothesis, ResumePoint, TranslatedSpan, join_spans
from docmt.text import SpecialTokens

_log = logging.getLogger(__name__)
Drafts = Callable[[int, int], Sequence[Sequence[int]]]
"""Returns the drafts of the sentences first .. last - 1 (non-empty ones, numbered through all documents); the numbers
of successive calls rise."""
InstanceResults = list[TranslatedSpan]
"""Results of one instance, in order."""
_FIRST_TOKENS, _GROWTH = 256, 4
"""Source tokens that are translated together at first, and by how much the next ones are more."""
ORDERS: dict[str, Callable[[Task, OnSentences], SearchResults]] = {
    "documents": search_instances,
    "sentences": search_sentences,
    "windows": search_windows,
    "sequential": search_instances,
    "repair": search_with_repair,
}
"""Search functions by the order of a system, or "repair" where sentences can be drafted side by side."""


class DocumentStream:
    """Translation of documents of any length, in order."""

    def __init__(
        self,
        model: Model,
        documents: Sequence[WordIds],
        specials: SpecialTokens,
        config: SearchConfig,
        *,
        context: ContextConfig = ContextConfig(),
        batch_tokens: int = BATCH_TOKENS,
        drafts: Sequence[WordIds] | Drafts | None = None,
        look_ahead: int | None = None,
        resume_points: Mapping[int, ResumePoint] | None = None,
        yield_errors: bool = False,
        copies: Sequence[int] | None = None,
        numbers: Sequence[Sequence[int]] | None = None,
        given: Sequence[Mapping[int, Sequence[int]]] = (),
    ) -> None:
        """documents: word ids without boundary tokens.

        drafts: a first translation of every sentence, for a model that reads them. look_ahead: about how many source
        tokens are translated together, None: all. resume_points: progress of documents by number. yield_errors: a
        document that cannot be translated is yielded as a span with its error, instead of raising it. copies: see
        `number_samples`. numbers: for each document see `PreparedDocument`; a span ends with a whole sentence. given:
        word ids of translations of some sentences of each document, which are not searched. Raises DocmtError where a
        sentence cannot fit.
        """
        self._model, self._config, self._look_ahead = model, config, look_ahead
        self._context, self._batch_tokens = context, batch_tokens
        self._order = find_order(model, config, context)
        self._resume_points, self.yields_errors = dict(resume_points or {}), yield_errors
        self._sizes = [len(document) for document in documents]
        positions, filled = find_nonempty(documents)
        draft_ids = None if drafts is None or callable(drafts) else select_drafts(positions, documents, drafts)
        self._drafts = drafts if callable(drafts) else None
        self._nonempty = [np.array(indices, dtype=np.int64) for indices in positions]
        self._numbers, self._held = numbers, dict[int, list[tuple[int, InstanceResults | DocmtError]]]()
        self._errors: dict[int, DocmtError] = {}
        self._task = self._cut(filled, specials, draft_ids, copies)
        self._offsets = self._task.offsets
        self._borders = np.searchsorted(self._task.instances.document, np.arange(len(positions) + 1))
        for document, translations in enumerate(given):
            self._fix(document, translations)
        self._done = np.zeros(len(self._task.instances), dtype=np.bool_)
        for document, resume_point in self._resume_points.items():
            if document not in self._errors:
                self._resume_document(document, resume_point)
        instances, offsets = self._task.instances, self._task.words.offsets
        first, last = instances.first_output, instances.last
        self._costs = offsets[last] - offsets[first] + NUM_BOUNDARY_TOKENS * (last - first)
        """source tokens that each instance translates, boundary tokens included"""
        self._sees_others = bool((first > instances.first).any()) and self._order != "windows"
        """whether instances see translations of earlier ones"""
        self._is_serial = self._sees_others and self._order != "repair"
        """whether they wait for these"""
        self._reported = 0  # documents before this one have been yielded if they have no instances

    def _cut(
        self,
        documents: list[WordIds],
        specials: SpecialTokens,
        drafts: list[WordIds] | None,
        copies: Sequence[int] | None,
    ) -> Task:
        """Return the task. With `yield_errors`, record errors of documents that cannot be cut and empty these."""

        def cut_documents(numbers: Sequence[int]) -> Task:
            selected = [documents[number] for number in numbers]
            selected_drafts = None if drafts is None else [drafts[number] for number in numbers]
            settings = (specials, self._config, self._context, self._batch_tokens)
            selected_copies = None if copies is None else [copies[number] for number in numbers]
            return Task.from_documents(self._model, selected, *settings, selected_drafts, selected_copies)

        numbers = range(len(documents))
        try:
            return cut_documents(numbers)
        except DocmtError:
            if not self.yields_errors:
                raise
        checked = map_or_error(numbers, lambda group: [cut_documents(group)] * len(group))
        self._errors = {number: error for number, error in enumerate(checked) if isinstance(error, DocmtError)}
        for number in self._errors:
            documents[number], self._nonempty[number] = [], self._nonempty[number][:0]
            if drafts is not None:
                drafts[number] = []
        return cut_documents(numbers)

    def _fix(self, document: int, translations: Mapping[int, Sequence[int]]) -> None:
        """Give some sentences of a document their translations, but none before the point from which it resumes."""
        done = self._count_resumed(document)
        for number, position in enumerate(self._nonempty[document].tolist(), int(self._offsets[document])):
            if done <= position and position in translations:
                self._task.history.fix(number, translations[position])

    def _resume_document(self, document: int, resume_point: ResumePoint) -> None:
        """Restore the history of a resumed document. Raises DocmtError where no instance begins at that sentence."""
        history, start = resume_point.history, self._find_sentence(document, resume_point.sentences)
        first = start - len(history)  # of the sentences whose translations are known
        instances, borders = self._task.instances, slice(self._borders[document], self._borders[document + 1])
        begins = ((instances.first_output[borders] == start) & (instances.first[borders] == first)).any()
        if resume_point.is_supplied:
            offset = int(self._offsets[document])
            if first != offset:
                raise ValueError(
                    f"{start - offset} sentences have words, but {len(history)} have a supplied translation"
                )
            number = int(borders.start + np.searchsorted(instances.last[borders], start, side="right"))
            if number < borders.stop:  # the instance that holds the next sentence begins its output there
                first_output = instances.first_output.copy()
                first_output[number] = start
                self._task = replace(self._task, instances=replace(instances, first_output=first_output))
        elif resume_point.sentences != self._sizes[document] and not begins:
            raise DocmtError(
                f"document {document + 1} cannot be resumed after sentence {resume_point.sentences}: this model was "
                "not interrupted there. Translate the document from the beginning."
            )
        for position, translations in enumerate(history, first):
            self._task.history.add(position, [[words] for words in translations])
        self._done[borders] = self._task.instances.first_output[borders] < start

    def _find_sentence(self, document: int, sentence: int) -> int:
        """Return the first sentence with words from this one of a document on, numbered through all documents."""
        return int(self._offsets[document] + np.searchsorted(self._nonempty[document], sentence))

    def _count_resumed(self, document: int) -> int:
        """Return how many sentences of a document were translated before."""
        return self._resume_points[document].sentences if document in self._resume_points else 0

    def translate(
        self, on_sentences: OnSentences = lambda count: None, start: tuple[int, int] | None = None
    ) -> Iterator[list[TranslatedSpan]]:
        """Yield spans that were translated together, in order; each sentence of each document comes once.

        on_sentences: called with the number of further translated sentences. start: document and sentence; earlier ones
        may be skipped, as far as that leaves the batches as they are.
        """
        wanted = 0
        if start is not None:
            wanted = self._find_sentence(start[0], 0 if self._sees_others else start[1])
        for chunk in self._make_chunks():
            indices = [i for i in chunk if not self._done[i]]
            if not indices or self._task.instances.last[chunk[-1]] <= wanted:
                continue
            spans: list[TranslatedSpan] = []
            for _, span in _translate_chunk([(self, i) for i in indices], on_sentences):
                spans += [*self.report_without_instances(span.document), span]
            for span in spans:
                first, last = (self._find_sentence(span.document, number) for number in (span.first, span.last))
                on_sentences(span.last - span.first - (last - first))  # its empty sentences
            if spans:
                yield spans
            self._forget(chunk.stop)
        if remaining := self.report_without_instances():
            on_sentences(sum(span.last for span in remaining))
            yield remaining

    def translate_whole(self, on_sentences: OnSentences) -> Iterator[list[TranslatedSpan]]:
        """Yield the spans of `translate` as one of each document, as soon as it ends or fails."""
        held: dict[int, list[TranslatedSpan]] = {}
        for group in self.translate(on_sentences):
            ready = list[TranslatedSpan]()
            for span in group:
                spans = held.setdefault(span.document, [])
                if not span.error:
                    spans.append(span)
                if span.error or span.last == self._sizes[span.document]:
                    if spans:
                        hypotheses = join_spans(spans, self._config, spans[0].first)
                        ready.append(replace(spans[-1], first=spans[0].first, hypotheses=hypotheses))
                    ready += [span] * (span.error is not None)
                    held.pop(span.document)
            if ready:
                yield ready

    def find_ready(self, tokens: int) -> tuple[list[int], list[int]]:
        """Return the next instances that wait for no others, up to the first beyond so many tokens, and their costs."""
        left = np.flatnonzero(~self._done)
        if self._is_serial:
            left = left[np.unique(self._task.instances.document[left], return_index=True)[1]]
        count = int(np.searchsorted(np.cumsum(self._costs[left]), tokens, side="right")) + 1
        return left[:count].tolist(), self._costs[left[:count]].tolist()

    def _make_chunks(self) -> Iterator[range]:
        """Yield the instances that are translated together.

        Where an instance sees the translations of an earlier one, a chunk is several short documents, or one instance
        of a long document. Otherwise a chunk has as many instances as are read ahead, so that instances of similar
        length can be one batch. It is a single batch where that saves no batches. The first chunks are smaller, so that
        the first sentences come early; but batches of published searches change results, so these are not.
        """
        instances = self._task.instances
        count = len(instances)
        if self._look_ahead is None:
            yield from [range(count)] if count else []
            return
        units = np.unique(self._borders) if self._is_serial else np.arange(count + 1)
        cumulative_costs = np.concatenate([[0], np.cumsum(self._costs)])
        first, tokens = 0, _FIRST_TOKENS if self._config.implementation == "docmt" else MANY
        while first < count:
            tokens = min(tokens, self._look_ahead)
            most = np.searchsorted(cumulative_costs, cumulative_costs[first] + tokens, side="right") - 1
            last = int(max(units[units <= most].max(), units[units > first].min()))
            if not self._is_serial:
                yield from self._split_into_batches(range(first, last))
            elif instances.document[first] == instances.document[last - 1]:
                yield from (range(i, i + 1) for i in range(first, last))
            else:
                yield range(first, last)
            first, tokens = last, tokens * _GROWTH

    def _split_into_batches(self, chunk: range) -> list[range]:
        """Return the batches of these instances one by one, so that finished ones can be yielded early.

        They stay one chunk where sorting by length makes fewer batches, or where the batch changes results.
        """
        if self._order == "sentences" or self._config.implementation != "docmt":
            return [chunk]
        sizes = [(self._task.lengths[i], i) for i in chunk]
        batches = [range(batch[0], batch[-1] + 1) for batch in batch_ordered(sizes, self._batch_tokens)]
        return batches if len(batches) <= len(list(self._task.batches(chunk))) else [chunk]

    @property
    def is_within_sentence(self) -> bool:
        """True if pieces of a sentence are translated, and others are not."""
        return bool(self._held)

    def count_tokens(self) -> int:
        """Return the source tokens still to translate, boundary tokens included."""
        return int(self._costs[~self._done].sum())

    def find_document(self, instance: int) -> int:
        """Return the number of the document of an instance."""
        return int(self._task.instances.document[instance])

    def count_sentences(self, instance: int) -> int:
        """Return how many sentences an instance translates."""
        return len(self._task.outputs(instance))

    def select(self, indices: Sequence[int]) -> Task:
        """Return the task of these instances, with their drafts."""
        task = self._task.select_instances(indices)
        if self._drafts is None:
            return task
        return replace(task, drafts=SentenceTokens.from_documents([self._prepare_drafts(task, self._first(indices))]))

    def _first(self, indices: Sequence[int]) -> int:
        """Return the first sentence that these instances read."""
        return int(self._task.instances.before[indices].min())

    def take_results(
        self, indices: Sequence[int], history: History, start: int, results: Iterable[InstanceResults]
    ) -> list[InstanceResults]:
        """Return the results of these instances with the numbers of this stream, and keep what later instances see.

        start: number that their first sentence had in the search, of which these are results and history.
        """
        moved = self._first(indices) - start
        for numbers in map(self._task.outputs, indices):
            self._task.history.take(history, numbers.start - moved, numbers.stop - moved, numbers.start)
        return [
            [replace(span, first=span.first + moved, last=span.last + moved) for span in spans] for spans in results
        ]

    def _prepare_drafts(self, task: Task, start: int) -> list[Sequence[int]]:
        """Return a draft for each sentence of a task; an empty one for those that its instances do not read.

        start: number of its first sentence.
        """
        assert self._drafts is not None
        drafts = list[Sequence[int]]([[]] * len(task.words.lengths))
        ranges: list[list[int]] = []
        for first, last in sorted(zip(task.instances.before.tolist(), task.instances.last.tolist(), strict=True)):
            if ranges and first <= ranges[-1][1]:
                ranges[-1][1] = max(last, ranges[-1][1])
            else:
                ranges.append([first, last])
        for first, last in ranges:
            drafts[first:last] = self._drafts(start + first, start + last)
        return drafts

    def join_instances(self, pairs: Sequence[tuple[int, InstanceResults | DocmtError]]) -> TranslatedSpan | None:
        """Join consecutive instances of one document to a span. They are done then.

        Instances at the end that do not end with a whole sentence are held back for the next span; None: all are.
        """
        self._done[[index for index, _ in pairs]] = True
        document = self.find_document(pairs[0][0])
        pairs = [*self._held.pop(document, []), *pairs]
        count = max((count for count, (index, _) in enumerate(pairs, 1) if self._ends_sentence(index)), default=0)
        if pairs[count:]:
            self._held[document] = list(pairs[count:])
        if not count:
            return None
        pairs = pairs[:count]
        instances, first_index, last_index = self._task.instances, pairs[0][0], pairs[-1][0]
        outcome = next((each for _, each in pairs if isinstance(each, DocmtError)), None)
        first_in_task = int(instances.first_output[first_index])
        nonempty, size = self._nonempty[document], self._sizes[document]  # indices of its sentences with text
        start, stop = (int(each - self._offsets[document]) for each in (first_in_task, instances.last[last_index]))
        first, last = (int(nonempty[start]) if start else 0), (int(nonempty[stop]) if stop < len(nonempty) else size)
        resumed = self._count_resumed(document)
        if resumed and first_in_task == self._find_sentence(document, resumed):
            first = resumed
        history: list[list[list[int]]] = []
        if last_index + 1 < self._borders[document + 1]:
            sees = range(int(instances.first[last_index + 1]), int(instances.first_output[last_index + 1]))
            # Earlier sentences that were skipped (see `translate`) have no translations.
            history = [self._task.history.ranked_translations(number) for number in sees]
        resume_point = ResumePoint(last, history)
        if outcome is not None:
            return TranslatedSpan(document, first, last, resume_point=resume_point, error=outcome)
        spans = [span for _, result in pairs if not isinstance(result, DocmtError) for span in result]
        joined = join_spans(spans, self._config, first_in_task)
        indices = (nonempty[start:stop] - first).tolist()
        hypotheses = [each.insert_empty(indices, last - first) for each in joined]
        return TranslatedSpan(document, first, last, hypotheses, resume_point)

    def _ends_sentence(self, instance: int) -> bool:
        """Return whether an instance ends with a whole sentence, not within one that is translated in pieces."""
        document, last = self.find_document(instance), int(self._task.instances.last[instance])
        stop, nonempty = last - int(self._offsets[document]), self._nonempty[document]
        if self._numbers is None or stop == len(nonempty):
            return True
        numbers = self._numbers[document]
        return numbers[nonempty[stop]] != numbers[nonempty[stop - 1]]

    def report_without_instances(self, before: int | None = None) -> list[TranslatedSpan]:
        """Return, once, the documents before this one that have nothing to translate, or cannot be translated."""
        numbers = range(self._reported, len(self._sizes) if before is None else before)
        self._reported, spans = max(numbers.stop, self._reported), list[TranslatedSpan]()
        for document in numbers:
            size, error = self._sizes[document], self._errors.get(document)
            start = self._count_resumed(document)
            has_words = self._find_sentence(document, start) < self._offsets[document + 1]
            if has_words or (document in self._resume_points and start == size):
                continue
            hypotheses = [] if error else [each.insert_empty([], size - start) for each in join_spans([], self._config)]
            spans.append(TranslatedSpan(document, start, size, hypotheses, ResumePoint(size), error))
        return spans

    def forget_done(self) -> None:
        """Drop the translations that no instance sees that is not done."""
        left = np.flatnonzero(~self._done)
        self._forget(int(left[0]) if len(left) else len(self._done))

    def _forget(self, instance: int) -> None:
        """Drop the translations that no instance from this one on sees."""
        instances = self._task.instances
        first = int(instances.first[instance]) if instance < len(instances) else int(self._offsets[-1])
        self._task.history.forget(first)


Chunk = Sequence[tuple[DocumentStream, int]]
"""Instances of streams, in order."""


def translate_next(streams: Sequence[DocumentStream], tokens: int) -> list[tuple[int, TranslatedSpan]]:
    """Translate the next instances of streams together, about so many source tokens of them all.

    Return spans with the numbers of their streams. The streams have the same model and settings.
    """
    numbers = {stream: number for number, stream in enumerate(streams)}
    spans = [(number, span) for stream, number in numbers.items() for span in stream.report_without_instances()]
    budget, progressed = tokens, False
    while True:
        chunk, costs = list[tuple[DocumentStream, int]](), list[int]()
        for stream in streams:
            indices, more = stream.find_ready(budget - sum(costs))
            chunk, costs = [*chunk, *((stream, index) for index in indices)], [*costs, *more]
        count = sum(cost <= budget for cost in accumulate(costs)) or int(not progressed)
        if not chunk[:count]:
            break
        spans += [(numbers[stream], span) for stream, span in _translate_chunk(chunk[:count])]
        budget, progressed = budget - sum(costs[:count]), True
    for stream in streams:
        stream.forget_done()
    return spans


def _translate_chunk(
    chunk: Chunk, on_sentences: OnSentences = lambda count: None
) -> list[tuple[DocumentStream, TranslatedSpan]]:
    """Return spans of consecutive instances of a document that all succeeded, or all failed with the same error."""
    counted = 0

    def count(sentences: int) -> None:
        nonlocal counted
        counted += sentences
        on_sentences(sentences)

    (yield_errors,) = {stream.yields_errors for stream, _ in chunk}
    work = partial(_search_chunk, on_sentences=count)
    outcomes: Sequence[InstanceResults | DocmtError] = map_or_error(chunk, work) if yield_errors else work(chunk)
    # Instances that were tried again were counted again.
    on_sentences(sum(stream.count_sentences(index) for stream, index in chunk) - counted)

    def stream_and_error(pair: tuple[tuple[DocumentStream, int], InstanceResults | DocmtError]) -> tuple[Any, ...]:
        (stream, index), outcome = pair
        return stream, stream.find_document(index), str(outcome) if isinstance(outcome, DocmtError) else ""

    spans = []
    for (stream, *_), group in groupby(zip(chunk, outcomes, strict=True), stream_and_error):
        span = stream.join_instances([(index, outcome) for (_, index), outcome in group])
        spans += [(stream, span)] if span else []
    return spans


def _search_chunk(chunk: Chunk, on_sentences: OnSentences) -> list[InstanceResults]:
    """Return the translations of these instances, searched as one task."""
    groups = [(stream, [index for _, index in group]) for stream, group in groupby(chunk, itemgetter(0))]
    parts = [stream.select(indices) for stream, indices in groups]
    task = Task.join(parts)
    results, start, taken = iter(search_task(task, on_sentences)), 0, list[InstanceResults]()
    for (stream, indices), part in zip(groups, parts, strict=True):
        taken += stream.take_results(indices, task.history, start, islice(results, len(indices)))
        start += len(part.words.lengths)
    return taken


def find_order(model: Model, config: SearchConfig, context: ContextConfig) -> str:
    """Return the name of the search function. Raises DocmtError for a published search of other models or orders."""
    choose_rules(model, config)
    order = choose_order(model, config, context)
    return "repair" if can_repair(model, config, context, order) else order


def search_task(task: Task, on_sentences: OnSentences) -> list[InstanceResults]:
    """Return the translations of the instances of a task."""
    config, instances, order = task.config, task.instances, find_order(task.model, task.config, task.context)
    wanted = [number for number in range(len(instances)) if task.list_searched(number)]
    with torch.inference_mode():
        spans = ORDERS[order](replace(task, instances=instances.select(wanted)), on_sentences) if wanted else {}
    spans |= _list_given(task, spans)
    # Lower ranks were searched given the best translations of earlier sentences, not their own. The published
    # search of RFA may close a sentence with a token that is dropped. The plain document system may generate other
    # boundary tokens than those of the translation.
    has_prefixes = order == "repair" or bool((instances.first_output > instances.first).any())
    other_context = order == "windows" or (order != "sentences" and has_prefixes and config.n_best > 1)
    is_open = choose_rules(task.model, config) is OpenRules
    if other_context or config.implementation == "rfa" or (is_open and config.implementation == "docmt"):
        spans = _rescore(task, spans)
    return [[spans[number] for number in task.outputs(i) if number in spans] for i in range(len(instances))]


def _list_given(task: Task, spans: SearchResults) -> SearchResults:
    """Return the sentences whose translations are given and not in any of these spans."""
    covered = {number for span in spans.values() for number in range(span.first, span.last)}
    return {
        number: TranslatedSpan(
            0, number, number + 1, [Hypothesis(task.history.ranked_translations(number), [0.0], [0], 0.0, 0)]
        )
        for number in task.history.fixed - covered
    }


def _rescore(task: Task, spans: SearchResults) -> SearchResults:
    """Return the translations with scores that are conditioned on their own document's sentences.

    The scores of a search may be those of a window whose other sentences were translated differently.
    """
    rescored: dict[int, list[Hypothesis]] = {number: [] for number in spans}
    for rank in range(max((len(span.hypotheses) for span in spans.values()), default=0)):
        history = [task.history.ranked_translations(number) for number in range(len(task.words.lengths))]
        targets = SentenceTokens.from_documents(
            [[translations[min(rank, len(translations) - 1)] for translations in history]]
        )
        for scored in score_task(task, targets).values():
            (whole,) = scored.hypotheses
            for number in range(scored.first, scored.last):  # a span of the whole instance, or one of each sentence
                if number not in spans or rank >= len(spans[number].hypotheses):
                    continue
                is_whole = spans[number].last - number == scored.last - scored.first
                new = whole if is_whole else whole.drop_prefix(number - scored.first, only_next=True)
                scores = {name: getattr(new, name) for name in ("sentence_scores", "sentence_tokens", "chosen_tokens")}
                rescored[number].append(replace(spans[number].hypotheses[rank], **scores))
    return {number: replace(span, hypotheses=rescored[number]) for number, span in spans.items()}


def translate_documents(
    model: Model,
    documents: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    *,
    on_sentences: OnSentences = lambda count: None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Translate documents (word ids without boundary tokens), all searched together; return the best results of each.

    on_sentences: called with the number of further translated sentences. settings: context, batch_tokens, drafts and
    copies, see `DocumentStream`.

    With `n_best` above 1 the j-th translation joins the j-th best of every part. Empty sentences stay empty; the model
    does not see them. Where sentences are translated in windows, ranks are those of the search, scores those of the
    whole document. Raises DocmtError where a sentence cannot fit, and for a model whose scores are not numbers.
    """
    stream = DocumentStream(model, documents, specials, config, **settings)
    return [list(span.hypotheses) for together in stream.translate(on_sentences) for span in together]
