"""Test sets for context with true, empty and shuffled context: is an answer right for what the context says?

Shuffled context is that of another item. With empty context candidates are scored in the same passes, but no sentence
sees another; where there are no candidates the sentence is translated as a document of its own. What a model has right
without the context that decides, it has right by habit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.evaluation.asking import Each, together
from docmt.evaluation.contrastive import ContrastiveResult, SuiteConfig, evaluate_items
from docmt.evaluation.generative import evaluate_translations
from docmt.evaluation.significance import SignificanceConfig
from docmt.evaluation.suite_items import Item
from docmt.evaluation.suite_tables import Row, rows_of
from docmt.evaluation.usage import CONDITIONS, ContextScorer, Scored

OnItem = Callable[[str, int, Any], object]
"""Hears of every item under each condition: this, its number, and what the model made of it, or why it could not."""


@dataclass(frozen=True)
class SuiteContext:
    """The answers to the same items with true, empty and shuffled context."""

    items: Sequence[Item]
    results: dict[str, ContrastiveResult]
    """by condition"""
    left_out: int
    """items to which no other can lend its context: their candidates have contexts of their own, or no other item has
    as many sentences before and after the one asked for"""

    def rows(self, name: str) -> list[Row]:
        """Of a table whose columns are the conditions; name: of the test set."""
        return rows_of(name, self.items, [self.results[condition] for condition in CONDITIONS])

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


def suite_context(
    scorer: ContextScorer,
    items: Sequence[Item],
    candidates: SuiteConfig | None = None,
    significance: SignificanceConfig | None = None,
    on_item: OnItem = lambda condition, number, made: None,
    each: Each = together,
) -> SuiteContext:
    """The answers of a model to items with their context, with none, and with that of another item.

    candidates: how they compare; significance: its seed chooses the other items; each: as `evaluate_items` has it.
    Raises DocmtError where no item has a context, or none can have that of another one.
    """
    shuffled = with_other_context(items, (significance or SignificanceConfig()).seed)
    kept = [items[number] for number in shuffled]
    alone = [replace(item, source=(item.source[item.sentence],), sentence=0) for item in kept]
    results = {}
    for condition in CONDITIONS:
        own = list(shuffled.values()) if condition == "shuffled" else kept
        hears = partial(_with_number, partial(on_item, condition), list(shuffled))
        if kept[0].candidates:
            asked = _WithoutContext(scorer) if condition == "empty" else scorer
            results[condition] = evaluate_items(asked, own, candidates, hears, each)
        else:
            own = alone if condition == "empty" else own
            results[condition] = evaluate_translations(scorer, own, hears, each)
    return SuiteContext(kept, results, len(items) - len(kept))


def _with_number(on_item: Callable[[int, Any], object], numbers: Sequence[int], place: int, made: Any) -> None:
    """Tells of an item by its number in the test set, of which `numbers` are those that are asked."""
    on_item(numbers[place], made)


def with_other_context(items: Sequence[Item], seed: int) -> dict[int, Item]:
    """Numbers of the items that can have the context of another one, and each of these with it.

    Raises DocmtError where no item has a context, or none can have that of another one.
    """
    if not any(item.has_context for item in items):
        raise DocmtError("no item has a context, so there is none to measure: give items with other sentences around")
    comparable = [number for number, item in enumerate(items) if _differs_at_its_sentence_alone(item)]
    others = shuffled_items([items[number] for number in comparable], seed)
    found = {number: other for number, other in zip(comparable, others, strict=True) if other}
    if not found:
        raise DocmtError(
            "no two items have as many sentences before and after the one that is asked for, with other words in them "
            "and the same for all candidates, so none can have the context of another one: give a larger test set"
        )
    return found


def _differs_at_its_sentence_alone(item: Item) -> bool:
    """Whether all candidates have one context, so that another one leaves what they differ in."""
    return len({_around(candidate, item.sentence) for candidate in item.candidates}) <= 1


def shuffled_items(items: Sequence[Item], seed: int) -> list[Item | None]:
    """Each item with the other sentences, on both sides, of another item of as many sentences before and after.

    The other one is the next in a random order whose context has another source; of its target that of its right
    candidate is taken. None where there is no such item.
    """
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
    own = item.sentence

    def among(theirs: tuple[str, ...], ours: tuple[str, ...]) -> tuple[str, ...]:
        return (*theirs[:own], ours[own], *theirs[own + 1 :])

    candidates = tuple(among(other.candidates[other.correct], candidate) for candidate in item.candidates)
    return replace(item, source=among(other.source, item.source), candidates=candidates)
