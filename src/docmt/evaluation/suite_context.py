"""Contrastive items with true, empty and shuffled context: are the right candidates found for what the context says?

With empty context the same passes are made, and no sentence sees another; shuffled context is that of another item.
Where a model is right without the context that decides, it knows the test set's habits, not the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from docmt.documents import Document
from docmt.errors import DocmtError
from docmt.evaluation.contrastive import ContrastiveResult, Item, evaluate_items
from docmt.evaluation.estimates import table
from docmt.evaluation.usage import ContextScorer, Scored, UsageConfig


@dataclass(frozen=True)
class SuiteContext:
    """How often the right candidate is preferred with true, empty and shuffled context, of the same items."""

    results: dict[str, ContrastiveResult]
    """by condition"""
    left_out: int
    """items to which no other can lend its context, as none has as many sentences before and after the one asked for"""

    def format(self) -> str:
        """A table for people: percent right by phenomenon and condition."""
        first = self.results["true"]
        rows = [["", "chance", *(f"{name} context" for name in self.results), "items"]]
        for name in [*first.cells, None] if len(first.cells) > 1 else first.cells:
            counts = [own.all if name is None else own.of(name) for own in self.results.values()]
            shown = [f"{100 * count.accuracy:.1f}" for count in counts]
            title = "all" if name is None else name or "(no name)"
            rows.append([title, f"{100 * counts[0].chance:.1f}", *shown, f"{counts[0].total:,}"])
        remark = f"\n{self.left_out} items left out, as no other item has as many sentences" if self.left_out else ""
        return table(rows) + remark

    def to_json(self) -> dict[str, Any]:
        """The results, and how many items were left out."""
        return {"left_out": self.left_out, **{name: result.to_json() for name, result in self.results.items()}}


class _WithoutContext:
    """A scorer whose model sees no context."""

    def __init__(self, scorer: ContextScorer) -> None:
        self.scorer = scorer

    def score_all(
        self, pairs: Sequence[tuple[Document | str, Document | str]], limited: bool = True
    ) -> Sequence[Scored]:
        return self.scorer.score_all(pairs, limited, context=False)


def suite_context(scorer: ContextScorer, items: Sequence[Item], config: UsageConfig | None = None) -> SuiteContext:
    """The accuracy on contrastive items with their context, with none, and with that of another item.

    Raises DocmtError where no item has a context, or none can have that of another one.
    """
    check_items(items)
    pairs = [(item, other) for item, other in zip(items, shuffled_items(items, config), strict=True) if other]
    if not pairs:
        raise DocmtError(
            "no two items have as many sentences before and after the one in which candidates differ, with other words "
            "in them, so none can have the context of another one: give a larger test set"
        )
    kept, shuffled = [item for item, _ in pairs], [other for _, other in pairs]
    results = {
        "true": evaluate_items(scorer, kept),
        "empty": evaluate_items(_WithoutContext(scorer), kept),
        "shuffled": evaluate_items(scorer, shuffled),
    }
    return SuiteContext(results, len(items) - len(kept))


def check_items(items: Sequence[Item]) -> None:
    """Raises DocmtError where no item has a context."""
    if max((len(item.source) for item in items), default=0) < 2:
        raise DocmtError("no item has two sentences, so there is no context to measure: give items with context")


def shuffled_items(items: Sequence[Item], config: UsageConfig | None = None) -> list[Item | None]:
    """Each item with the other sentences, on both sides, of another item of as many sentences before and after.

    The other one is the next in a random order whose context has another source; of its target that of its right
    candidate is taken. None where there is no such item.
    """
    seed = (config or UsageConfig()).seed
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(items)), kind="stable").tolist()
    alike: dict[tuple[int, int], list[int]] = {}
    for number in order:
        alike.setdefault((len(items[number].source), items[number].sentence), []).append(number)
    found: list[Item | None] = [None] * len(items)
    for numbers in alike.values():
        for place, number in enumerate(numbers):
            others = (items[i] for i in (*numbers[place + 1 :], *numbers[:place]))
            own = _around(items[number].source, items[number].sentence)
            other = next((each for each in others if _around(each.source, each.sentence) != own), None)
            found[number] = _with_context_of(items[number], other) if other else None
    return found


def _around(sentences: tuple[str, ...], own: int) -> tuple[str, ...]:
    return sentences[:own] + sentences[own + 1 :]


def _with_context_of(item: Item, other: Item) -> Item:
    """The item with its own sentence among those of the other one."""
    own, right = item.sentence, other.candidates[other.correct]

    def among(theirs: tuple[str, ...], ours: tuple[str, ...]) -> tuple[str, ...]:
        return (*theirs[:own], ours[own], *theirs[own + 1 :])

    candidates = tuple(among(right, candidate) for candidate in item.candidates)
    return replace(item, source=among(other.source, item.source), candidates=candidates)
