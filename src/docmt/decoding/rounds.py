"""Decoding in a fixed number of rounds: all sentences of a document at once, each after drafts of those before it.

The first round searches every sentence without earlier target sentences. Each further round searches every sentence
again, after the drafts of the round before. Nothing is verified: a document costs as many sentence batches as there are
rounds. After round r the first r sentences of an instance are those of sequential search (with beams inside of
sentences); docs/decisions/0002-rounds.md has how fast the others agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from docmt.data.config import MARKS
from docmt.decoding.beam_search import search
from docmt.decoding.rules import Row
from docmt.decoding.scheduler import Task, batches_of
from docmt.decoding.translation import Hypothesis, TranslatedSpan

_PREFIX_SHARE = 8  # a batch has at most so many times its tokens in prefixes, whose keys each row copies


def translate_in_rounds(task: Task, on_sentences: Callable[[int], object]) -> dict[tuple[int, int], TranslatedSpan]:
    """Return the translations of each instance, best first, by document and first sentence.

    on_sentences hears how many sentences the last round has translated.
    """
    instances, hypotheses = task.instances, dict[int, list[Hypothesis]]()
    alone = replace(task, instances=replace(instances, before=instances.own, first=instances.own))
    for number in range(task.config.rounds):
        drafts = {n: ranks[0].sentences[0] for n, ranks in hypotheses.items()} if number else None
        for batch in (task if number else alone).batches():
            hypotheses |= _search_sentences(task if number else alone, batch, drafts)
            if number + 1 == task.config.rounds:
                on_sentences(int((instances.last[batch] - instances.own[batch]).sum()))
    results = {}
    for first, last in zip(instances.own.tolist(), instances.last.tolist(), strict=True):
        document, begin, end = task.place(first, last)
        ranks = [
            _joined(task, sentences) for sentences in zip(*(hypotheses[n] for n in range(first, last)), strict=False)
        ]
        results[document, begin] = TranslatedSpan(document, begin, end, ranks)
        task.history.add(task.start + first, [hypothesis.sentences for hypothesis in ranks])
    return results


def _search_sentences(
    task: Task, batch: Sequence[int], drafts: Mapping[int, list[int]] | None
) -> dict[int, list[Hypothesis]]:
    """Search each sentence of these instances; return its hypotheses by its number in the task.

    drafts: the translation of each sentence by its number, to be read before later ones; None: each begins anew.
    """
    reading, instances, lengths = task.read(batch), task.instances, task.words.lengths
    memories = task.model.memories(reading)
    rows: list[Row] = []
    numbers: list[int] = []
    reached = 0
    for i in batch:
        first, last = int(instances.first[i]), int(instances.last[i])
        packed = reading.aligned[reached : reached + last - first].tolist()
        reached += last - first
        for n in range(int(instances.own[i]), last):
            seen = range(first if drafts is not None else n, n + 1)
            prefix = [_draft(task, drafts, other) for other in seen[:-1]] if drafts is not None else []
            rows.append(Row([packed[s - first] for s in seen], [int(lengths[s]) for s in seen], prefix))
            numbers.append(n)
    sizes = [
        (max(row.lengths[-1] + MARKS, sum(map(len, row.prefix)) // _PREFIX_SHARE), place)
        for place, row in enumerate(rows)
    ]
    results: dict[int, list[Hypothesis]] = {}
    for places in batches_of(sizes, task.batch_tokens):
        ranks = search(task.model, memories, [rows[place] for place in places], task.specials, task.config)
        for place, hypotheses in zip(places, ranks, strict=True):
            results[numbers[place]] = [each.after(len(rows[place].prefix)) for each in hypotheses]
    return results


def _draft(task: Task, drafts: Mapping[int, list[int]], number: int) -> list[int]:
    """Return the draft of a sentence, or its translation if it is none of this task's own sentences."""
    return drafts[number] if number in drafts else task.history.ranks(task.start + number)[0]


def _joined(task: Task, sentences: Sequence[Hypothesis]) -> Hypothesis:
    """Return one hypothesis of an instance from those of its sentences."""
    scores = [each.sentence_scores[0] for each in sentences]
    free = sum(each.free_tokens for each in sentences)
    return Hypothesis(
        [each.sentences[0] for each in sentences],
        scores,
        [each.sentence_tokens[0] for each in sentences],
        task.config.normalized(sum(scores), free),
        free,
    )
