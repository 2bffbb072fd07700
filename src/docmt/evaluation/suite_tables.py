"""What several systems answered to test sets, side by side: accuracies with intervals, differences with a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from docmt.errors import printable
from docmt.evaluation.contrastive import (
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
from docmt.markdown import escaped, table

INDENT = "  "
NOTES = (
    "percent of the items answered rightly, with 95 % confidence intervals (Wilson); ties are wrong",
    "intervals and p-values take items as independent: where several are of one document or film, the former are too "
    "narrow and the latter too small",
    f"*: other than the first system, p < {LEVEL:g} (paired exact sign test over items, McNemar); of many rows some "
    "are so by chance",
)


@dataclass(frozen=True)
class Row:
    """Some items of a test set, and how many each system had right."""

    suite: str
    phenomenon: str | None
    """None: of all"""
    distance: str | None
    label: str | None
    counts: tuple[Count, ...]
    """of each system"""
    p_values: tuple[float, ...]
    """of the difference of each system from the first, which is 1 for the first"""

    @property
    def name(self) -> str:
        """What the rows of a table say, in the order of `rows_of`."""
        if self.label is not None:
            name = f"{INDENT}({self.label})"
        elif self.distance is not None:
            name = f"{INDENT * 2}distance {self.distance}"
        else:
            name = self.suite if self.phenomenon is None else INDENT + (self.phenomenon or "(no name)")
        return printable(name)

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
        named = {"suite": self.suite, "phenomenon": self.phenomenon, "distance": self.distance, "label": self.label}
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
    for phenomenon, distance, label, numbers in _selections(items):
        own = ["".join(given[number] for number in numbers) for given in answers]
        counts = tuple(Count.of((items[number] for number in numbers), given) for given in own)
        tests = tuple(sign_test(own[0], other) for other in own)
        rows.append(Row(suite, phenomenon, distance, label, counts, tests))
    return rows


def _selections(items: Sequence[Item]) -> Iterator[tuple[str | None, str | None, str | None, list[int]]]:
    """Phenomenon, distance, label and the numbers of items, of each row; what has but one kind has no rows for it."""
    everything = list(range(len(items)))
    yield None, None, None, everything
    phenomena = list(dict.fromkeys(item.phenomenon for item in items))
    for phenomenon in phenomena:
        own = [number for number in everything if items[number].phenomenon == phenomenon]
        distances = sorted({items[number].distance for number in own}, key=nearest_first)
        if len(phenomena) > 1 or (phenomenon and len(distances) > 1):
            yield phenomenon, None, None, own
        for distance in distances if len(distances) > 1 else ():
            chosen = [number for number in own if items[number].distance == distance]
            yield phenomenon, distance_name(distance), None, chosen
    labels = sorted({item.label for item in items} - {""})
    for label in labels if len(labels) > 1 else ():
        yield None, None, label, [number for number in everything if items[number].label == label]


def sign_test(first: str, other: str) -> float:
    """The two-sided p-value of the exact sign test over items that one system has right and the other has not.

    first, other: the answers of two systems to the same items (McNemar 1947; exact: the binomial distribution).
    """
    pairs = [(one == RIGHT, two == RIGHT) for one, two in zip(first, other, strict=True)]
    won, lost = pairs.count((False, True)), pairs.count((True, False))
    return sign_p_value(won, lost)


def _table(rows: Sequence[Row], systems: Sequence[str]) -> list[list[str]]:
    """A head, the rows, and after those of each test set the ties, and what was miscounted if anything was."""
    lines = [["", "items", "chance", *systems]]
    for number, row in enumerate(rows):
        lines.append([row.name, *row.cells()])
        if number + 1 == len(rows) or rows[number + 1].suite != row.suite:
            whole = next(each for each in rows if each.suite == row.suite)
            lines.append([f"{INDENT}ties", "", "", *(f"{count.ties:,}" for count in whole.counts)])
            if _miscounted([whole]):
                lines.append([f"{INDENT}miscounted", "", "", *(f"{count.miscounted:,}" for count in whole.counts)])
    return lines


def _miscounted(rows: Sequence[Row]) -> bool:
    """Whether any system gave another number of sentences where one of them is asked for."""
    return any(count.miscounted for row in rows for count in row.counts)


def _notes(rows: Sequence[Row], systems: Sequence[str]) -> list[str]:
    """What a reader of the table must know."""
    notes = list(NOTES if len(systems) > 1 else NOTES[:-1])
    return [*notes, f"miscounted: wrong, as {BY_MISCOUNTING}"] if _miscounted(rows) else notes


def suite_text(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """The table for people."""
    lines = (line.rstrip() for line in aligned(_table(rows, systems)))
    return "\n".join([*lines, "", *_notes(rows, systems)])


def suite_markdown(rows: Sequence[Row], systems: Sequence[str]) -> str:
    """The table in Markdown."""
    lines = table([[escaped(cell) for cell in line] for line in _table(rows, systems)])
    return "\n".join([*lines, "", *(f"- {escaped(note)}" for note in _notes(rows, systems))]) + "\n"
