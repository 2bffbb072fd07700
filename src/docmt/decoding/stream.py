"""Documents of any length, translated stretch by stretch: what is finished is given out while the rest waits.

Instances are cut from whole documents, by the lengths of their sentences. They are then translated some at a time, in
order, and of all translations only those are kept that an instance still to come sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from docmt.core.errors import DocmtError, map_or_error
from docmt.data import SentenceTokens
from docmt.data.prepare_config import MARKS
from docmt.decoding.models import Model
from docmt.decoding.rules import OpenRules, WordIds, order_of, rules_of
from docmt.decoding.scheduler import ORDERS, Counter, Found, Task, batches_in_order, drafts_at, filled_places
from docmt.decoding.scoring import score_task
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig
from docmt.decoding.translation import Hypothesis, ResumePoint, TranslatedSpan, join
from docmt.text import SpecialTokens

Drafts = Callable[[int, int], Sequence[Sequence[int]]]
"""Gives the drafts of the sentences first .. last - 1 (of those that are not empty, numbered through all documents);
the numbers that it is asked for rise."""
Parts = list[TranslatedSpan]
"""What was searched of an instance, in order."""


class Stream:
    """Documents on their way through a model."""

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
        done: Mapping[int, ResumePoint] | None = None,
        lenient: bool = False,
    ) -> None:
        """documents: word ids without marks.

        drafts: a first translation of every sentence, for a model that reads them. look_ahead: how many source tokens
        are worked on together, about; None: all. done: by number, how far documents are translated already. lenient:
        what cannot be translated is a stretch with its error; otherwise that is raised. Raises DocmtError where a
        sentence cannot fit.
        """
        self._model, self._config, self._look_ahead = model, config, look_ahead
        self._context, self._batch_tokens = context, batch_tokens
        self._rules, self._order = rules_of(model, config), order_of(model, config, context)
        self._done, self._lenient = dict(done or {}), lenient
        self._sizes = [len(document) for document in documents]
        places, filled = filled_places(documents)
        given = None if drafts is None or callable(drafts) else drafts_at(places, documents, drafts)
        self._draft = drafts if callable(drafts) else None
        self._places = [np.array(own, dtype=np.int64) for own in places]
        self._errors: dict[int, DocmtError] = {}
        self._task = self._cut(filled, specials, given)
        self._offsets = self._task.offsets
        self._borders = np.searchsorted(self._task.instances.document, np.arange(len(places) + 1))
        for document, reached in self._done.items():
            self._go_on(document, reached)

    def _cut(self, documents: list[WordIds], specials: SpecialTokens, drafts: list[WordIds] | None) -> Task:
        """The task. Of documents that cannot be cut, if that is to stop no others, the errors are noted."""

        def task_of(numbers: Sequence[int]) -> Task:
            own = [documents[number] for number in numbers]
            drafted = None if drafts is None else [drafts[number] for number in numbers]
            how = (specials, self._config, self._context, self._batch_tokens)
            return Task.of(self._model, own, *how, drafted)

        numbers = range(len(documents))
        try:
            return task_of(numbers)
        except DocmtError:
            if not self._lenient:
                raise
        checked = map_or_error(numbers, lambda some: [task_of(some)] * len(some))
        self._errors = {number: each for number, each in enumerate(checked) if isinstance(each, DocmtError)}
        for number in self._errors:
            documents[number], self._places[number] = [], self._places[number][:0]
            if drafts is not None:
                drafts[number] = []
        return task_of(numbers)

    def _go_on(self, document: int, reached: ResumePoint) -> None:
        """Takes up what was said. Raises DocmtError where no instance begins at that sentence."""
        own = self._task.instances.own[self._borders[document] : self._borders[document + 1]]
        begins = self._begins(document, reached)
        if begins == self._offsets[document + 1] and reached.sentences == self._sizes[document]:
            return
        number = int(np.searchsorted(own, begins))
        if (
            number == len(own)
            or own[number] != begins
            or self._seen(self._borders[document] + number) != len(reached.said)
        ):
            raise DocmtError(
                f"document {document + 1} cannot go on after sentence {reached.sentences}, which is not where this "
                "model was interrupted: translate it from the beginning"
            )
        for place, ranks in enumerate(reached.said, begins - len(reached.said)):
            self._task.history.add(place, [[words] for words in ranks])

    def _begins(self, document: int, reached: ResumePoint) -> int:
        """The first sentence, numbered through all documents, that is still to be translated."""
        return int(self._offsets[document] + np.searchsorted(self._places[document], reached.sentences))

    def _seen(self, instance: int) -> int:
        """How many translations before its own an instance sees."""
        return int(self._task.instances.own[instance] - self._task.instances.first[instance])

    def stretches(
        self, on_sentences: Counter = lambda count: None, start: tuple[int, int] | None = None
    ) -> Iterator[list[TranslatedSpan]]:
        """Yields what was translated together, in order; each sentence of each document comes once.

        `on_sentences` is told how many more sentences are translated. start: document and sentence before which nothing
        is asked for; what need not be translated for the rest is left out as far as that leaves batches as they are.
        """
        document = wanted = 0
        if start is not None:
            wanted = self._begins(start[0], ResumePoint(0 if self._is_serial() else start[1]))
        for chunk in self._chunks():
            chosen = [i for i in chunk if not self._is_done(i)]
            if not chosen or self._task.instances.last[chunk[-1]] <= wanted:
                continue
            found: list[TranslatedSpan] = []
            for stretch in self._translated(chosen, on_sentences):
                found += [*self._without_instances(document, stretch.document), stretch]
                document = stretch.document + 1
            for own in found:
                words = self._begins(own.document, ResumePoint(own.last)) - self._begins(
                    own.document, ResumePoint(own.first)
                )
                on_sentences(own.last - own.first - words)
            yield found
            self._forget(chunk.stop)
        if rest := list(self._without_instances(document, len(self._sizes))):
            on_sentences(sum(own.last for own in rest))
            yield rest

    def _chunks(self) -> Iterator[range]:
        """Instances that are translated together.

        Where those of a document come one after the other, these are whole documents, so that many may go side by side,
        or a single instance of a document that is longer: nothing is gained if it waits for the next one. Else they are
        as many as are looked through for those of similar length, or single batches where there is nothing to gain.
        """
        instances, words = self._task.instances, self._task.words
        count = len(instances)
        if self._look_ahead is None:
            yield from [range(count)] if count else []
            return
        serial = self._is_serial()
        units = np.unique(self._borders) if serial else np.arange(count + 1)
        costs = words.offsets[instances.last] - words.offsets[instances.own] + MARKS * (instances.last - instances.own)
        reached = np.concatenate([[0], np.cumsum(costs)])
        first = 0
        while first < count:
            most = np.searchsorted(reached, reached[first] + self._look_ahead, side="right") - 1
            last = int(max(units[units <= most].max(), units[units > first].min()))
            if not serial:
                yield from self._in_order(range(first, last))
            elif instances.document[first] == instances.document[last - 1] and not self._config.rounds:
                yield from (range(i, i + 1) for i in range(first, last))
            else:
                yield range(first, last)
            first = last

    def _in_order(self, chunk: range) -> list[range]:
        """The batches of these instances one by one, so that what is finished can be given out; or all together, where
        sorting them by length makes fewer batches, or what is searched together makes a difference."""
        if self._order == "sentences" or self._config.implementation != "docmt":
            return [chunk]
        sizes = [(self._task.lengths[i], i) for i in chunk]
        batches = [range(own[0], own[-1] + 1) for own in batches_in_order(sizes, self._batch_tokens)]
        return batches if len(batches) <= len(list(self._task.batches(chunk))) else [chunk]

    def _is_serial(self) -> bool:
        """Whether instances wait for those before them."""
        instances = self._task.instances
        return bool((instances.own > instances.first).any()) and self._order != "windows"

    def _is_done(self, instance: int) -> bool:
        document = int(self._task.instances.document[instance])
        reached = self._done.get(document)
        return reached is not None and bool(self._task.instances.own[instance] < self._begins(document, reached))

    def _translated(self, chosen: list[int], on_sentences: Counter) -> Iterator[TranslatedSpan]:
        """The stretches of these instances: those of a document that follow each other and have a like fate."""
        instances, counted = self._task.instances, 0

        def count(sentences: int) -> None:
            nonlocal counted
            counted += sentences
            on_sentences(sentences)

        def work(numbers: Sequence[int]) -> list[Parts]:
            return self._search(numbers, count)

        found: Sequence[Parts | DocmtError] = map_or_error(chosen, work) if self._lenient else work(chosen)
        # What was tried again was counted again.
        on_sentences(int((instances.last[chosen] - instances.own[chosen]).sum()) - counted)

        def fate(pair: tuple[int, Parts | DocmtError]) -> tuple[int, str]:
            return int(instances.document[pair[0]]), str(pair[1]) if isinstance(pair[1], DocmtError) else ""

        for _, group in groupby(zip(chosen, found, strict=True), fate):
            yield self._stretch(list(group))

    def _search(self, chosen: Sequence[int], on_sentences: Counter) -> list[Parts]:
        """The translations of these instances."""
        task = self._task.part(chosen)
        if self._draft is not None:
            drafted = self._draft(task.start, task.start + len(task.words.lengths))
            task = replace(task, drafts=SentenceTokens.of([drafted]))
        with torch.inference_mode():
            found = ORDERS["rounds" if self._config.rounds else self._order](task, on_sentences)
        found = {number: self._with_limits(task, span) for number, span in found.items()}
        # Ranks below the best were found after the best translations of the sentences before, not after their own. In
        # the published search of RFA a sentence may have been closed by a mark that goes on, and nothing is kept of it.
        # The plain document system may have said other marks than those of the translation that it is read as.
        config, carried = self._config, self._order == "in turn" or self._context.overlap > 0
        others_before = self._order == "windows" or (carried and config.n_best > 1)
        other_marks = config.implementation == "rfa" or (self._rules is OpenRules and config.implementation == "docmt")
        if others_before or config.rounds or other_marks:
            found = _with_own_scores(task, found)
        parts: list[Parts] = []
        for own, last in zip(task.instances.own.tolist(), task.instances.last.tolist(), strict=True):
            numbers = range(task.start + own, task.start + last)
            parts.append([found[number] for number in numbers if number in found])
        return parts

    def _with_limits(self, task: Task, span: TranslatedSpan) -> TranslatedSpan:
        """The span with the sentences that the length limit ended."""
        words = task.words.lengths[span.first - task.start : span.last - task.start].tolist()
        limits = [self._config.sentence_limit(length) for length in words]
        ended = [self._rules.ended_by_limit(list(map(len, e.sentences)), limits, e.free_tokens) for e in span.ranks]
        ranks = [replace(each, at_limit=at_limit) for each, at_limit in zip(span.ranks, ended, strict=True)]
        return replace(span, ranks=ranks)

    def _stretch(self, pairs: Sequence[tuple[int, Parts | DocmtError]]) -> TranslatedSpan:
        """That of instances of one document that follow each other."""
        instances, (begin, _), (end, own) = self._task.instances, pairs[0], pairs[-1]
        document, number = int(instances.document[begin]), int(instances.own[begin])
        start, stop = (int(each - self._offsets[document]) for each in (number, instances.last[end]))
        places, size = self._places[document], self._sizes[document]
        first, last = (int(places[start]) if start else 0), (int(places[stop]) if stop < len(places) else size)
        said: list[list[list[int]]] = []
        if end + 1 < self._borders[document + 1]:
            sees = range(int(instances.first[end + 1]), int(instances.own[end + 1]))
            # (Nothing, where what is before was not asked for: see `stretches`.)
            said = [self._task.history.ranks(number) for number in sees]
        reached = ResumePoint(last, said)
        if isinstance(own, DocmtError):
            return TranslatedSpan(document, first, last, reached=reached, error=own)
        spans = [span for _, found in pairs if not isinstance(found, DocmtError) for span in found]
        within = (places[start:stop] - first).tolist()
        ranks = [each.spread(within, last - first) for each in join(spans, self._config, number)]
        return TranslatedSpan(document, first, last, ranks, reached)

    def _without_instances(self, first: int, last: int) -> Iterator[TranslatedSpan]:
        """Of the documents first .. last - 1 those in which there is nothing to translate, or that cannot be."""
        for document in range(first, last):
            if self._borders[document] == self._borders[document + 1] and document not in self._done:
                size, error = self._sizes[document], self._errors.get(document)
                ranks = [] if error else [each.spread([], size) for each in join([], self._config)]
                yield TranslatedSpan(document, 0, size, ranks, ResumePoint(size), error)

    def _forget(self, instance: int) -> None:
        """Drops the translations that no instance from this one on sees."""
        instances = self._task.instances
        seen = int(instances.first[instance]) if instance < len(instances) else int(self._offsets[-1])
        self._task.history.forget(seen)


def _with_own_scores(task: Task, found: Found) -> Found:
    """The translations with the scores that they have after their own document's sentences, not those of a window
    whose other sentences were translated otherwise."""
    rescored: dict[int, list[Hypothesis]] = {number: [] for number in found}
    for rank in range(max((len(span.ranks) for span in found.values()), default=0)):
        known = [task.history.ranks(task.start + number) for number in range(len(task.words.lengths))]
        targets = SentenceTokens.of([[ranks[min(rank, len(ranks) - 1)] for ranks in known]])
        for number, span in score_task(task, targets).items():
            if rank < len(found[number].ranks):
                own, (new,) = found[number].ranks[rank], span.ranks
                scores = {name: getattr(new, name) for name in ("sentence_scores", "sentence_tokens", "free_tokens")}
                rescored[number].append(replace(own, **scores))
    return {number: replace(span, ranks=rescored[number]) for number, span in found.items()}


def translate_documents(
    model: Model,
    documents: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    *,
    context: ContextConfig = ContextConfig(),
    batch_tokens: int = BATCH_TOKENS,
    on_sentences: Counter = lambda count: None,
    drafts: Sequence[WordIds] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each document (word ids without marks), best first, all searched together.

    drafts: a first translation of every sentence, for a model that reads them (`ContextSpec.drafts`).

    With `n_best` above 1 the j-th translation joins the j-th best of every part. Empty sentences stay empty; the
    model does not see them. Where sentences are translated in windows, ranks are those of the search, scores
    those of the whole document. `on_sentences` is told how many more sentences are translated. Raises DocmtError
    where a sentence cannot fit, and for a model whose scores are not numbers.
    """
    stream = Stream(model, documents, specials, config, context=context, batch_tokens=batch_tokens, drafts=drafts)
    return [list(stretch.ranks) for together in stream.stretches(on_sentences) for stretch in together]


def translate_ids(
    model: Model, documents: Sequence[WordIds], specials: SpecialTokens, config: SearchConfig, **settings: Any
) -> list[list[list[int]]]:
    """The best translation of each document: one list of word ids per source sentence; see `translate_documents`."""
    return [ranks[0].sentences for ranks in translate_documents(model, documents, specials, config, **settings)]
