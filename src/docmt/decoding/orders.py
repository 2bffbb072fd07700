"""The instances of a task, translated in the order that their system needs.

An instance is what the model reads at once, cut by the rule of training. Instances of one document are independent but
where a system looks at its own earlier output; `docmt.decoding.stream` makes documents of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docmt.data.config import MARKS
from docmt.decoding.document import Part
from docmt.decoding.frame import Row, WordIds
from docmt.decoding.hypothesis import Hypothesis
from docmt.decoding.search import search
from docmt.decoding.task import Task, batches_of

POOL = 4  # times as many tokens are read together as are searched: more sentences to find similar ones among
Found = dict[tuple[int, int], list[Part]]
"""By document and first sentence: the translations of that part, best first."""


def _whole_instances(task: Task, on_sentences: Callable[[int], object]) -> Found:
    """Orders "documents" and "in turn": a row of the search is an instance, whose own sentences are found together,
    after the translations of those before them that it has as well."""
    found: Found = {}
    instances = task.instances

    own, first, last = instances.own, instances.first, instances.last
    for batch in (batch for turn in task.turns(range(len(instances))) for batch in task.batches(turn)):
        earlier = [range(int(first[i]), int(own[i])) for i in batch]
        # (Nothing was said where the sentence could not be translated.)
        prefixes = [[task.said.get(task.start + number, [[]])[0] for number in numbers] for numbers in earlier]
        for i, before, hypotheses in zip(batch, earlier, _search(task, batch, prefixes), strict=True):
            document, begin, end = task.place(int(own[i]), int(last[i]))
            kept = [each.after(len(before), alone=task.config.compatibility == "rfa") for each in hypotheses]
            found[document, begin] = [Part(document, begin, end, hypothesis) for hypothesis in kept]
            task.remember(int(own[i]), [hypothesis.sentences for hypothesis in kept])
        on_sentences(int((last[batch] - own[batch]).sum()))
    return found


def _pooled_sentences(task: Task, on_sentences: Callable[[int], object]) -> Found:
    """Order "sentences": the sentences of many instances are read together, and those of similar length searched."""
    found: Found = {}
    instances, lengths = task.instances, task.words.lengths
    for batch in task.batches(times=POOL):
        reading = task.read(batch)
        memories = task.model.memories(reading)
        numbers = [n for i in batch for n in range(int(instances.first[i]), int(instances.last[i]))]
        sizes = [(int(lengths[n]) + MARKS, place) for place, n in enumerate(numbers)]
        for places in batches_of(sizes, task.batch_tokens):
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
        for i, hypotheses in zip(batch, _search(task, batch), strict=True):
            document, first, last = task.place(int(task.instances.own[i]), int(task.instances.last[i]))
            own = [each.after(len(each.sentences) - 1) for each in hypotheses]
            found[document, first] = [Part(document, first, last, hypothesis) for hypothesis in own]
            task.remember(int(task.instances.own[i]), [hypothesis.sentences for hypothesis in own])
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


ORDERS: dict[str, Callable[[Task, Callable[[int], object]], Found]] = {
    "documents": _whole_instances,
    "sentences": _pooled_sentences,
    "windows": _windows,
    "in turn": _whole_instances,
}
