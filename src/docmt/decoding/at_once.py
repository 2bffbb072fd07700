"""Instances that wait for translations before them, translated at the same time, with the same result.

At first each is translated as if its document began there. Then those that see earlier translations are translated
again, after these drafts, all at the same time, and again those of them that saw a draft which has changed since, until
none has: then each was translated after what is before it, as one after the other would have been. In every round at
least one instance more of each document is as it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from docmt.decoding.drafts import RISK, cost_of
from docmt.decoding.task import Task


def translate_at_once(
    task: Task, translate: Callable[[Task, Sequence[int], int], None], count: Callable[[Sequence[int]], None]
) -> list[int]:
    """Translates instances as far as that is worth it; returns those, to the end of each document, that are left.

    translate: is given a task, numbers of its instances and that of the round, finds their translations after those
    before them, and has `task` remember them; count: is told which are as they stay.
    """
    instances = task.instances
    everything, waits = list(range(len(instances))), instances.own > instances.before
    if not waits.any():
        return everything
    one_by_one = _costs_one_by_one(task)
    alone = replace(task, instances=replace(instances, before=instances.own, first=instances.own))
    spent, risk = _cost(alone, everything), RISK * sum(one_by_one)
    if spent > risk:
        return everything
    translate(alone, everything, 1)
    stale, left = [i for i in everything if waits[i]], everything
    number = 1
    while True:
        still = _from_first_of_each(task, stale)
        if settled := sorted(set(left) - set(still)):
            count(settled)
        left, spent = still, spent + _cost(task, stale)
        if not stale or spent > sum(one_by_one) - sum(one_by_one[i] for i in left) + risk:
            return left
        before = {i: _said(task, i) for i in stale}
        number += 1
        translate(task, stale, number)
        changed = {n for i in stale if _said(task, i) != before[i] for n in _own(task, i)}
        stale = [i for i in left if not changed.isdisjoint(range(int(instances.first[i]), int(instances.own[i])))]


def _own(task: Task, instance: int) -> range:
    """Numbers of its own sentences."""
    return range(int(task.instances.own[instance]), int(task.instances.last[instance]))


def _said(task: Task, instance: int) -> list[list[int]]:
    """Its translation so far."""
    return [task.said[task.start + number][0] for number in _own(task, instance)]


def _from_first_of_each(task: Task, chosen: Sequence[int]) -> list[int]:
    """All instances but those that are before the first of these in its document, or in a document without any."""
    firsts: dict[int, int] = {}
    for i in chosen:
        firsts.setdefault(int(task.instances.document[i]), i)
    documents = task.instances.document.tolist()
    return [i for i, document in enumerate(documents) if document in firsts and i >= firsts[document]]


def _cost(task: Task, chosen: Sequence[int]) -> float:
    """Of translating these instances together, in steps of one row."""
    beam, batches, device = task.config.beam, task.batches(chosen), task.model.device
    return sum(max(task.lengths[i] for i in batch) * cost_of(len(batch) * beam, device) for batch in batches)


def _costs_one_by_one(task: Task) -> list[float]:
    """Of each instance, where those of a document are translated one after the other."""
    costs = [0.0] * len(task.instances)
    for turn in task.turns(range(len(costs))):
        together = _cost(task, turn)
        for i in turn:
            costs[i] = together / len(turn)
    return costs
