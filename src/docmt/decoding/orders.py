"""Documents of any length, translated in the order that their system needs.

An instance is what the model reads at once, cut by the rule of training. Instances of one document are independent but
where a system looks at its own earlier output; the caller sees whole documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from docmt.data.config import MARKS
from docmt.decoding.config import SearchConfig
from docmt.decoding.document import DocumentHypothesis, Part, ended_by_limit, join, ranked
from docmt.decoding.ensemble import Model
from docmt.decoding.frame import Row, WordIds
from docmt.decoding.rules import rules_of
from docmt.decoding.scoring import score_documents
from docmt.decoding.search import Hypothesis, search
from docmt.decoding.task import Task, batches_of, drafts_at, filled_places
from docmt.text import SpecialTokens

_POOL = 4  # times as many tokens are read together as are searched: more sentences to find similar ones among
Found = dict[tuple[int, int], list[Part]]
"""By document and first sentence: the translations of that part, best first."""


def translate_documents(
    model: Model,
    documents: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    on_sentences: Callable[[int], object] = lambda count: None,
    drafts: Sequence[WordIds] | None = None,
) -> list[list[DocumentHypothesis]]:
    """The best translations of each document (word ids without marks), best first.

    drafts: a first translation of every sentence, for a model that reads them (`Needs.drafts`).

    With `n_best` above 1 the j-th translation joins the j-th best of every part. Empty sentences stay empty; the
    model does not see them. Where sentences are translated in windows, ranks are those of the search, scores
    those of the whole document. `on_sentences` is told how many more sentences are translated. Raises DocmtError
    where a sentence cannot fit, and for a model whose scores are not numbers.
    """
    rules = rules_of(model, config)
    places, filled = filled_places(documents)
    on_sentences(sum(map(len, documents)) - sum(map(len, filled)))
    task = Task.of(model, filled, specials, config, drafts_at(places, documents, drafts))
    with torch.inference_mode():
        found = ranked(_ORDERS[model.system.order](task, on_sentences), len(documents))
    translated = []
    for source, own, ranks, document in zip(filled, places, found, documents, strict=True):
        whole = [replace(join(parts, config), at_limit=ended_by_limit(parts, source, rules, config)) for parts in ranks]
        translated.append([hypothesis.spread(own, len(document)) for hypothesis in whole])
    # Ranks below the best were found after the best translations of the sentences before, not after their own. In the
    # published search of RFA a sentence may have been closed by a mark that goes on, with nothing kept of what follows.
    order = model.system.order
    others_before = order == "windows" or ((order == "in turn" or config.carry > 0) and config.n_best > 1)
    if others_before or config.compatibility == "rfa":
        return _with_own_scores(task, documents, translated, drafts)
    return translated


def _with_own_scores(
    task: Task,
    documents: Sequence[WordIds],
    translated: list[list[DocumentHypothesis]],
    drafts: Sequence[WordIds] | None,
) -> list[list[DocumentHypothesis]]:
    """The translations with the scores that they have after their own document's sentences, not those of a window
    whose other sentences were translated otherwise."""
    for rank in range(max(map(len, translated), default=0)):
        numbers = [number for number, found in enumerate(translated) if rank < len(found)]
        sources, targets = [documents[i] for i in numbers], [translated[i][rank].sentences for i in numbers]
        drafted = None if drafts is None else [drafts[i] for i in numbers]
        scored = score_documents(task.model, sources, targets, task.specials, task.config, drafts=drafted)
        for number, own in zip(numbers, scored, strict=True):
            found = translated[number]
            found[rank] = replace(
                found[rank],
                sentence_scores=own.sentence_scores,
                sentence_tokens=own.sentence_tokens,
                score=own.score,
            )
    return translated


def _whole_instances(task: Task, on_sentences: Callable[[int], object]) -> Found:
    """Orders "documents" and "in turn": a row of the search is an instance, whose own sentences are found together,
    after the translations of those before them that it has as well."""
    found: Found = {}
    said: dict[int, list[int]] = {}
    """of each sentence that was translated, numbered through all documents, its best translation"""
    instances = task.instances
    for turn in task.turns():
        for batch in task.batches(turn):
            earlier = [range(int(instances.first[i]), int(instances.own[i])) for i in batch]
            prefixes = [[said[number] for number in numbers] for numbers in earlier]
            ranks = _search(task, batch, prefixes)
            for i, before, hypotheses in zip(batch, earlier, ranks, strict=True):
                document, first, last = task.place(int(instances.own[i]), int(instances.last[i]))
                own = [
                    hypothesis.after(len(before), alone=task.config.compatibility == "rfa") for hypothesis in hypotheses
                ]
                found[document, first] = [Part(document, first, last, hypothesis) for hypothesis in own]
                said |= dict(enumerate(own[0].sentences, int(instances.own[i])))
            on_sentences(int((instances.last[batch] - instances.own[batch]).sum()))
    return found


def _pooled_sentences(task: Task, on_sentences: Callable[[int], object]) -> Found:
    """Order "sentences": the sentences of many instances are read together, and those of similar length searched."""
    found: Found = {}
    instances, lengths = task.instances, task.words.lengths
    for batch in task.batches(times=_POOL):
        reading = task.read(batch)
        memories = task.model.memories(reading)
        numbers = [n for i in batch for n in range(int(instances.first[i]), int(instances.last[i]))]
        sizes = [(int(lengths[n]) + MARKS, place) for place, n in enumerate(numbers)]
        for places in batches_of(sizes, task.config.batch_tokens):
            rows = [Row([int(reading.aligned[place])], [int(lengths[numbers[place]])]) for place in places]
            ranks = search(task.model, memories, rows, task.specials, task.config)
            for place, hypotheses in zip(places, ranks, strict=True):
                document, first, last = task.place(numbers[place], numbers[place] + 1)
                found[document, first] = [Part(document, first, last, hypothesis) for hypothesis in hypotheses]
            on_sentences(len(places))
    return found


def _windows(task: Task, on_sentences: Callable[[int], object]) -> Found:
    """Order "windows": the last sentence of every window."""
    found: Found = {}
    for batch in task.batches():
        places = [task.place(int(own), int(own) + 1) for own in task.instances.own[batch]]
        for (document, first, last), hypotheses in zip(places, _search(task, batch), strict=True):
            found[document, first] = [
                Part(document, first, last, hypothesis.after(len(hypothesis.sentences) - 1))
                for hypothesis in hypotheses
            ]
        on_sentences(len(batch))
    return found


def _search(task: Task, batch: Sequence[int], prefixes: Sequence[WordIds] | None = None) -> list[list[Hypothesis]]:
    """The best translations of these instances, each a row, after the forced prefixes."""
    reading = task.read(batch)
    rows, reached = [], 0
    for place, i in enumerate(batch):
        first, last = int(task.instances.first[i]), int(task.instances.last[i])
        numbers = [int(number) for number in reading.aligned[reached : reached + last - first]]
        rows.append(Row(numbers, task.words.lengths[first:last].tolist(), prefixes[place] if prefixes else ()))
        reached += last - first
    return search(task.model, task.model.memories(reading), rows, task.specials, task.config)


_ORDERS: dict[str, Callable[[Task, Callable[[int], object]], Found]] = {
    "documents": _whole_instances,
    "sentences": _pooled_sentences,
    "windows": _windows,
    "in turn": _whole_instances,
}


def translate_ids(
    model: Model,
    documents: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    drafts: Sequence[WordIds] | None = None,
) -> list[list[list[int]]]:
    """The best translation of each document: one list of word ids per source sentence."""
    found = translate_documents(model, documents, specials, config, drafts=drafts)
    return [ranks[0].sentences for ranks in found]
