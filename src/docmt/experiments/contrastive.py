"""What the runs of an experiment said to a contrastive test set, beside what their systems are known to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import nan, sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

from docmt.analysis import Point, draw_accuracies
from docmt.core.markdown import escaped, table
from docmt.evaluation.contrastive import ContrastiveResult, Count, distance_name
from docmt.experiments.experiment import Variant
from docmt.experiments.plan import Plan
from docmt.experiments.scores import EvaluationConfig, stored_contrastive
from docmt.synthetic import PHENOMENA

MARGIN = 3.0
"""Standard errors of guessing: what is so far above chance is not guessed."""
ALL = "all"
"""Phenomena together."""
Row = dict[str, Any]
"""What the JSON file has for a variant at a point: `cells` by phenomenon and distance."""


def collect_contrastive(plan: Plan, evaluation: EvaluationConfig) -> list[Row]:
    """The rows of the table as far as runs are done; without a contrastive test set there are none."""
    rows = []
    for axis in plan.experiment.axes:
        for variant, point in product(plan.experiment.variants_at(plan.scale).values(), axis.points[plan.scale]):
            key = (variant.name, axis.name, point)
            own = [run.config.run for run in plan.runs if (run.variant, run.axis, run.point) == key]
            results = [found for run in own if (found := stored_contrastive(run, evaluation)) is not None]
            if results:
                row = dict(zip(("variant", "axis", "point"), key, strict=True))
                row |= {"line": variant.line, "at": variant.at, "runs": len(results)}
                rows.append({**row, "cells": _cells(variant, results)})
    return rows


def _cells(variant: Variant, results: Sequence[ContrastiveResult]) -> dict[str, dict[str, Any]]:
    """Of each phenomenon (known ones first) and distance the counts of all runs, and what was predicted."""
    cells: dict[str, dict[str, Any]] = {}
    for phenomenon in sorted(results[0].cells, key=[*PHENOMENA, *results[0].cells].index):
        for distance in results[0].cells[phenomenon]:
            counts = [result.cells[phenomenon][distance] for result in results]
            count = Count.sum(counts)
            shares = [100 * each.accuracy for each in counts]
            cells.setdefault(phenomenon, {})[distance_name(distance)] = {
                **count.to_json(),
                "spread": stdev(shares) if len(shares) > 1 else None,
                "above_chance": is_above_chance(count),
                "predicted": predicted(variant, phenomenon, distance),
            }
    return cells


def predicted(variant: Variant, phenomenon: str, distance: int | None) -> bool | None:
    """Whether the system sees what decides, so that it can be above chance; None where that is not known.

    What decides in the source is seen in a given translation of it, too.
    """
    known = PHENOMENA.get(phenomenon)
    if known is None or variant.sees is None or distance is None:
        return None
    sides = ("source", "target") if known.visible == "source" else ("target",)
    return any(variant.sees.get(side, 0) >= distance for side in sides)


def is_above_chance(count: Count) -> bool | None:
    """Whether so many right answers are more than guessing gives; None for too few items to tell."""
    least = count.chance + MARGIN * sqrt(count.chance * (1 - count.chance) / count.total)
    return count.accuracy > least if least < 1 else None


def contrastive_lines(rows: Sequence[Row], suite: str) -> list[str]:
    """The table in Markdown, with what its marks mean; nothing where no run is done."""
    if not rows:
        return []
    first: Mapping[str, Mapping[str, Any]] = rows[0]["cells"]
    columns = [(phenomenon, distance) for phenomenon, row in first.items() for distance in row]
    heads = [""]
    for phenomenon, distance in columns:
        chance = 100 * first[phenomenon][distance]["chance"]
        named = distance == next(iter(first[phenomenon]))
        heads.append(f"{escaped(phenomenon)} ({chance:.0f}): {distance}" if named else distance)
    shown = [
        [escaped(_name(row)), *(_cell(row["cells"][phenomenon][distance]) for phenomenon, distance in columns)]
        for row in rows
    ]
    lines = [f"## Right candidates of {escaped(suite)}", "", *table([heads, *shown])]
    sizes = sorted({cell["total"] for row in rows for by in row["cells"].values() for cell in by.values()})
    items = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    lines += [
        "",
        f"- percent of the items ({items} a cell) whose right candidate is the most probable, by phenomenon (in "
        "brackets what guessing gives) and distance of what decides, in sentences",
        "- **bold**: the system sees what decides, as far as it is known what it sees; in `()`: it does not",
    ]
    known = [cell for row in rows for by in row["cells"].values() for cell in by.values() if _is_predicted(cell)]
    checked = [cell for cell in known if cell["above_chance"] is not None]
    if checked:
        lines.append(
            f"- otherwise than that predicts (`!`; above chance: by more than {MARGIN:g} standard errors of guessing): "
            f"{sum(map(_surprises, checked))} of {len(checked)} cells"
        )
    if len(checked) < len(known):
        lines.append(f"- too few items to tell from guessing: {len(known) - len(checked)} cells")
    return [*lines, *map(_surprises_of, filter(_surprises_of, rows)), ""]


def lines_of(rows: Sequence[Row], over: str) -> list[str]:
    """Where variants lie on lines: a table in Markdown of each phenomenon, all distances together."""
    placed = [row for row in rows if row["line"]]
    if not placed:
        return []
    names = [*placed[0]["cells"], ALL]
    chances = [100 * _together(placed[0], name).chance for name in names]
    heads = [f"{escaped(name)} ({chance:.0f})" for name, chance in zip(names, chances, strict=True)]
    shown = [
        [escaped(row["line"]), escaped(row["at"]), *(_with_interval(_together(row, name)) for name in names)]
        for row in placed
    ]
    return [
        f"## Right candidates over {escaped(over)}",
        "",
        *table([["", escaped(over), *heads], *shown], 2),
        "",
        "- percent right at all distances together, with the interval of 95 % for so many items (Wilson 1927)",
        "",
    ]


def _together(row: Row, name: str) -> Count:
    """Of a phenomenon, or of all, the counts of all distances."""
    chosen = row["cells"].values() if name == ALL else [row["cells"][name]]
    return Count.sum(Count.from_json(cell) for cells in chosen for cell in cells.values())


def _with_interval(count: Count) -> str:
    low, high = count.interval
    return f"{100 * count.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _surprises_of(row: Row) -> str:
    """Where a row is otherwise than predicted, as an item of a list; empty where it is not."""
    found = {
        phenomenon: [distance for distance, cell in cells.items() if _surprises(cell)]
        for phenomenon, cells in row["cells"].items()
    }
    words = [f"{phenomenon} at {', '.join(distances)}" for phenomenon, distances in found.items() if distances]
    return f"  - {escaped(_name(row))}: {escaped('; '.join(words))}" if words else ""


def _name(row: Row) -> str:
    return f"{row['variant']}, {row['axis']} {row['point']}" if row["axis"] else str(row["variant"])


def _is_predicted(cell: Mapping[str, Any]) -> bool:
    return cell["predicted"] is not None


def _surprises(cell: Mapping[str, Any]) -> bool:
    return None not in (cell["predicted"], cell["above_chance"]) and cell["predicted"] != cell["above_chance"]


def _cell(cell: Mapping[str, Any]) -> str:
    text = f"{100 * cell['accuracy']:.1f}"
    if cell["spread"] is not None:
        text += f" ± {cell['spread']:.1f}"
    if _is_predicted(cell):
        text = f"**{text}**" if cell["predicted"] else f"({text})"
    return text + (" !" if _surprises(cell) else "")


def write_contrastive_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draws a panel for each phenomenon; returns the file.

    Accuracy over distance, a line for each variant; or, where variants lie on lines, over what these count. Raises
    DocmtError when nothing is there to draw or matplotlib is missing.
    """
    rows = collect_contrastive(plan, evaluation)
    first = rows[0]["cells"] if rows else {}
    chances = {phenomenon: 100 * next(iter(cells.values()))["chance"] for phenomenon, cells in first.items()}
    figure = plan.place(evaluation.context, "-suite.png")
    if any(row["line"] for row in rows):
        draw_accuracies({name: _over_lines(plan, rows, name) for name in first}, chances, figure, plan.experiment.over)
    else:
        draw_accuracies({name: _over_distance(rows, name) for name in first}, chances, figure)
    return figure


def _over_distance(rows: Sequence[Row], phenomenon: str) -> dict[str, list[Point]]:
    return {
        _name(row): [
            Point(distance, 100 * cell["accuracy"], cell["spread"] or 0.0)
            for distance, cell in row["cells"][phenomenon].items()
        ]
        for row in rows
    }


def _over_lines(plan: Plan, rows: Sequence[Row], phenomenon: str) -> dict[str, list[Point]]:
    """All distances together; what is not measured yet keeps its place."""
    shares = {row["variant"]: 100 * _together(row, phenomenon).accuracy for row in rows}
    lines: dict[str, list[Point]] = {}
    for variant in plan.experiment.variants_at(plan.scale).values():
        if variant.line:
            lines.setdefault(variant.line, []).append(Point(variant.at, shares.get(variant.name, nan)))
    return lines
