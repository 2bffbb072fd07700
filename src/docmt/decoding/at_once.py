"""Instances that wait for translations before them, translated at the same time, with the same result.

At first each is translated as if its document began there. Then those that see earlier translations are translated
again, after these drafts, all at the same time, and again those of them that saw a draft which has changed since, until
none has: then each was translated after what is before it, as one after the other would have been. In every round at
least one instance more of each document is as it stays. Only as many are begun as may be risked, more where drafts
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from docmt.core.errors import DocmtError
from docmt.decoding.risk import RISK, cost_of
from docmt.decoding.task import Task


def translate_at_once(
    task: Task, translate: Callable[[Task, Sequence[int], int], None], count: Callable[[Sequence[int]], None]
) -> list[int]:
    """Translates instances as far as that is worth it; returns those, to the end of each document, that are left.

    translate: is given a task, numbers of its instances and that of the round, finds their translations after those
    before them, and has `task` remember them; count: is told which are as they stay.
    """
    instances = task.instances
    left, waits = list(range(len(instances))), instances.own > instances.before
    if not waits.any():
        return left
    alone = replace(task, instances=replace(instances, before=instances.own, first=instances.own))
    one_by_one, spent, number = _costs_one_by_one(task), 0.0, 0
    budget, begun, stale = RISK * sum(one_by_one), set[int](), list[int]()
    while left:
        new = _affordable(task, alone, [i for i in left if i not in begun], stale, budget - spent)
        if new is None:
            break
        again = sorted([*stale, *(i for i in new if waits[i])])
        spent, number = spent + _cost(alone, new) + _cost(task, again), number + 1
        try:
            translate(alone, new, number)
            before = {i: _said(task, i) for i in again}
            translate(task, again, number)
        except (DocmtError, MemoryError, RuntimeError):  # perhaps of a draft: one by one will show
            break
        begun.update(new)
        changed = {n for i in again if _said(task, i) != before[i] for n in _own(task, i)}
        sees = {i: range(int(instances.first[i]), int(instances.own[i])) for i in left if i in begun}
        stale = [i for i, seen in sees.items() if not changed.isdisjoint(seen)]
        still = _from_first_of_each(task, sorted([*stale, *(i for i in left if i not in begun)]))
        if settled := sorted(set(left) - set(still)):
            count(settled)
            budget += sum(one_by_one[i] for i in settled)
        left = still
    for place in (place for i in left for place in _own(task, i)):  # a draft is not what an instance that fails said
        task.said.pop(task.start + place, None)
    return left


def _affordable(
    task: Task, alone: Task, waiting: Sequence[int], stale: Sequence[int], budget: float
) -> list[int] | None:
    """Instances to begin with as well, the next ones of each document; None if not even those are worth it that are
    translated again."""
    by_document: dict[int, list[int]] = {}
    for i in waiting:
        by_document.setdefault(int(task.instances.document[i]), []).append(i)
    reach = max(map(len, by_document.values()), default=0)
    while reach > 1 or stale:  # (one alone would see what stays as it is: nothing is gained)
        new = sorted(i for own in by_document.values() for i in own[:reach])
        if _cost(alone, new) + _cost(task, sorted([*stale, *new])) <= budget:
            return new
        if not reach:
            break
        reach //= 2
    return None


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
    beam, batches = task.config.beam, task.batches(chosen)
    return sum(max(task.lengths[i] for i in batch) * cost_of(len(batch) * beam, task.model) for batch in batches)


def _costs_one_by_one(task: Task) -> list[float]:
    """Of each instance, where those of a document are translated one after the other."""
    costs = [0.0] * len(task.instances)
    for turn in task.turns(range(len(costs))):
        together = _cost(task, turn)
        for i in turn:
            costs[i] = together / len(turn)
    return costs
