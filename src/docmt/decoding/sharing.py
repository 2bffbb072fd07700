"""What given translations have in common, so that it is computed once: whole instances, sources, beginnings.

Candidates of one source differ in a word or two. Each source is encoded once, translations that are equal in all that
is read with them are scored once, and a beginning that several translations of a source share is decoded once: what a
decoder says of a token depends on the source and on the tokens before it, whatever the system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from docmt.data import Words
from docmt.decoding.task import Task, batches_of
from docmt.model import Reading
from docmt.model.spans import Packed

Equal = list[int]
"""Numbers of instances that are equal in source, target and context."""
OneSource = list[Equal]
"""Those of one source."""


def shared_batches(task: Task, target: Words) -> Iterator[list[OneSource]]:
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


def _by_source(task: Task, target: Words) -> list[OneSource]:
    found: dict[object, dict[object, Equal]] = {}
    instances = task.instances
    columns = (instances.before, instances.first, instances.own, instances.last)
    for number, (before, first, own, last) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        drafted = None if task.drafts is None else _content(task.drafts, before, last)
        source = (_content(task.words, before, last), drafted, first - before, own - before)
        found.setdefault(source, {}).setdefault(_content(target, first, last), []).append(number)
    return [list(group.values()) for group in found.values()]


def _content(words: Words, first: int, last: int) -> tuple[bytes, bytes]:
    """What the sentences first .. last - 1 hold, as something to compare."""
    offsets = words.offsets[first : last + 1]
    return words.tokens[offsets[0] : offsets[-1]].tobytes(), np.diff(offsets).tobytes()


def shared_reading(task: Task, reading: Reading, batch: Sequence[OneSource]) -> Reading:
    """What is read of the first of each of the equal ones, one after the other, with every source once."""
    counts = torch.tensor([len(group) for group in batch])
    if len(batch) == int(counts.sum()):
        return reading
    assert reading.target is not None
    firsts = [group[0][0] for group in batch]
    own = task.read(firsts)
    sentences = (task.instances.last[firsts] - task.instances.first[firsts]).tolist()
    aligned = [part for part, group in zip(own.aligned.split(sentences), batch, strict=True) for _ in group]
    return replace(
        reading,
        source=own.source,
        drafts=own.drafts,
        aligned=torch.cat(aligned),
        documents=torch.arange(len(batch)).repeat_interleave(counts),
        same=_same_beginnings(reading.target, counts.tolist()),
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
