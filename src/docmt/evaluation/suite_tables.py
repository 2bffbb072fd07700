"""What several systems answered to test sets, side by side: accuracies with intervals, differences with a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from docmt.core.errors import printable
from docmt.core.markdown import escaped, table
from docmt.evaluation.contrastive import (
    BY_FAILING,
    BY_MISCOUNTING,
    RIGHT,
    ContrastiveResult,
    Count,
    aligned,
    distance_name,
    in_brackets,
    nearest_first,
)
from docmt.evaluation.significance import LEVEL, sign_p_value
from docmt.evaluation.suite_items import Item

INDENT = "  "
NOTES = (
    "percent of the items answered rightly, with 95 % confidence intervals (Wilson); ties are wrong",
    "intervals and p-values take items as independent: where several are of one document or film, the former are too "
    "narrow and the latter too small",
)
COMPARED = f"p < {LEVEL:g} (paired exact sign test over items, McNemar); of many rows some are so by chance"
ALSO_WRONG = {"miscounted": BY_MISCOUNTING, "unanswered": BY_FAILING}
"""Fields of `Count` that have a line of their own where there are such items, and why these are wrong."""
By = Literal["suite", "phenomenon", "distance", "label"]
Selection = tuple[By, str | None, int | None, str | None, list[int]]
"""What items are chosen by, their phenomenon, distance and label as far as they are alike, and their numbers."""


@dataclass(frozen=True)
class Row:
    """Some items of a test set, and how many each system had right."""

    suite: str
    by: By
    """what its items have in common"""
    phenomenon: str | None
    """None: of all"""
    distance: int | None
    """None: of all, or (by distance) not known"""
    label: str | None
    counts: tuple[Count, ...]
    """of each system"""
    p_values: tuple[float, ...]
    """of the difference of each system from the first, which is 1 for the first"""

    @property
    def name(self) -> str:
        """What the rows of a table say, in the order of `rows_of`."""
        names = {
            "suite": self.suite,
            "phenomenon": INDENT + (self.phenomenon or "(no name)"),
            "distance": f"{INDENT * 2}distance {distance_name(self.distance)}",
            "label": f"{INDENT}({self.label})",
        }
        return printable(names[self.by])

    def cells(self) -> list[str]:
        """The cells of a table after the name: items, chance, and the systems."""
        first, found = self.counts[0], []
        for count, p in zip(self.counts, self.p_values, strict=True):
            cell = f"{100 * count.accuracy:.1f} {in_brackets(count.interval)}"
            if count is not first:
                cell += f" {100 * (count.accuracy - first.accuracy):+.1f}{'*' if p < LEVEL else ' '}"
            found.append(cell)
        return [f"{first.total:,}", f"{100 * first.chance:.1f}" if first.guessed else "-", *found]

    def to_json(self, systems: Sequence[str]) -> dict[str, Any]:
        """The row in types that JSON has."""
        own = ("suite", "by", "phenomenon", "distance", "label")
        named = {name: getattr(self, name) for name in own}
        found = [
            {"system": system, **count.to_json(), "difference": count.accuracy - self.counts[0].accuracy, "p": p}
            for system, count, p in zip(systems, self.counts, self.p_values, strict=True)
        ]
        return {**named, "systems": found}


def rows_of(suite: str, items: Sequence[Item], results: Sequence[ContrastiveResult]) -> list[Row]:
    """All items, then those of each phenomenon, within it of each distance, then those of each label.

    results: of each system, the first of which the others are compared with.
    """
    answers = [result.answers for result in results]
    rows = []
    for by, phenomenon, distance, label, numbers in _selections(items):
        own = ["".join(given[number] for number in numbers) for given in answers]
        counts = tuple(Count.of((items[number] for number in numbers), given) for given in own)
        tests = tuple(sign_test(own[0], other) for other in own)
        rows.append(Row(suite, by, phenomenon, distance, label, counts, tests))
    return rows


def _selections(items: Sequence[Item]) -> Iterator[Selection]:
    """The items of each row; what has but one kind has no rows for it."""
    everything = list(range(len(items)))
    yield "suite", None, None, None, everything
    phenomena = list(dict.fromkeys(item.phenomenon for item in items))
    for phenomenon in phenomena:
        own = [number for number in everything if items[number].phenomenon == phenomenon]
        distances = sorted({items[number].distance for number in own}, key=nearest_first)
        if len(phenomena) > 1 or (phenomenon and len(distances) > 1):
            yield "phenomenon", phenomenon, None, None, own
        for distance in distances if len(distances) > 1 else ():
            chosen = [number for number in own if items[number].distance == distance]
            yield "distance", phenomenon, distance, None, chosen
    labels = sorted({item.label for item in items} - {""})
    for label in labels if len(labels) > 1 else ():
        yield "label", None, None, label, [number for number in everything if items[number].label == label]


def sign_test(first: str, other: str) -> float:
    """The two-sided p-value of the exact sign test over items that one system has right and the other has not.

    first, other: the answers of two systems to the same items (McNemar 1947; exact: the binomial distribution).
    """
    pairs = [(one == RIGHT, two == RIGHT) for one, two in zip(first, other, strict=True)]
    won, lost = pairs.count((False, True)), pairs.count((True, False))
    return sign_p_value(won, lost)


def _table(rows: Sequence[Row], systems: Sequence[str]) -> list[list[str]]:
    """A head, the rows, and after those of each test set the ties, and what else was wrong if anything was."""
    lines = [["", "items", "chance", *systems]]
    for number, row in enumerate(rows):
        lines.append([row.name, *row.cells()])
        if number + 1 == len(rows) or rows[number + 1].suite != row.suite:
            whole = next(each for each in rows if each.suite == row.suite)
            lines.append([f"{INDENT}ties", "", "", *(f"{count.ties:,}" for count in whole.counts)])
            for name in _also_wrong([whole]):
                lines.append([f"{INDENT}{name}", "", "", *(f"{getattr(count, name):,}" for count in whole.counts)])
    return lines


def _also_wrong(rows: Sequence[Row]) -> list[str]:
    """Of the kinds of `ALSO_WRONG` those that any system has items of."""
    return [name for name in ALSO_WRONG if any(getattr(count, name) for row in rows for count in row.counts)]


def _notes(rows: Sequence[Row], systems: Sequence[str], first: str) -> list[str]:
    """What a reader of the table must know; first: what the others are compared with."""
    notes = [*NOTES, f"*: other than {first}, {COMPARED}"] if len(systems) > 1 else NOTES
    return [*notes, *(f"{name}: wrong, as {ALSO_WRONG[name]}" for name in _also_wrong(rows))]


def suite_text(rows: Sequence[Row], systems: Sequence[str], first: str = "the first system") -> str:
    """The table for people; first: what a reader knows the first column as."""
    lines = (line.rstrip() for line in aligned(_table(rows, systems)))
    return "\n".join([*lines, "", *_notes(rows, systems, first)])


def suite_markdown(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """The table in Markdown."""
    lines = table([[escaped(cell) for cell in line] for line in _table(rows, systems)])
    return "\n".join([*lines, "", *(f"- {escaped(note)}" for note in _notes(rows, systems, "the first system"))]) + "\n"
