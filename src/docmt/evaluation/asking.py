"""The items of a test set, some at a time, and what a model makes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from docmt.core.errors import DocmtError
from docmt.evaluation.suite_items import Item

Made = TypeVar("Made")

GROUP = 512
"""Items that are scored or translated together."""
OnItem = Callable[[int, Any], object]
"""Hears of every item its number and what the model made of it, a `docmt.Translation`, or why it could not: the
DocmtError, if `Each` does not raise it."""


class Each(Protocol):
    """Does work on items; in the place of one that cannot be done may stand its DocmtError."""

    def __call__(
        self, items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Made]], /
    ) -> Sequence[Made | DocmtError]: ...


def together(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Made]]) -> Sequence[Made]:
    """What `work` makes of all items, which fail together."""
    return work(items)


def asked(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Made]], each: Each
) -> Iterator[tuple[int, Item, Made | DocmtError]]:
    """Number, item, and what `work` makes of it, or why it could not; one group of items after the other."""
    for first in range(0, len(items), GROUP):
        group = items[first : first + GROUP]
        for number, (item, made) in enumerate(zip(group, each(group, work), strict=True), first):
            yield number, item, made
