"""The results of an experiment: one table, in Markdown and in JSON, and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from docmt.analysis import Point, draw_curves, draw_points, read_curves
from docmt.core.files import write_text
from docmt.core.plain_text import escaped, table
from docmt.evaluation.contrastive import ContrastiveResult, Count, distance_name
from docmt.experiments.grid import Variant
from docmt.experiments.runs import EvaluationConfig, Plan, PlannedRun, state_of, stored_contrastive, stored_scores
from docmt.synthetic import PHENOMENA
from docmt.training.run_directory import RunDirectory

DIGITS = {"s_bleu": 2, "d_bleu": 2, "chrf": 2, "dev_loss": 3}
MEASURES = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "dev_loss": "dev loss"}
MARGIN = 3.0
"""Standard errors of guessing: what is so far above chance is not guessed."""
TableRow = dict[str, Any]
"""What the JSON file has for a variant at a point: means and spreads over its runs, the published, and the runs."""


def _rows(plan: Plan) -> Iterator[tuple[Variant, TableRow, list[PlannedRun]]]:
    """Yield the variants at all points in the order of the file, each with the names of its row and its runs."""
    for axis in plan.experiment.axes:
        for variant, point in product(plan.experiment.variants_at(plan.scale).values(), axis.points[plan.scale]):
            names = {"variant": variant.name, "axis": axis.name, "point": point}
            runs = [run for run in plan.runs if (run.variant, run.axis, run.point) == tuple(names.values())]
            yield variant, {**names, "published": {**variant.published, **axis.published.get(point, {})}}, runs


def collect(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> list[TableRow]:
    """Return the rows of the table as far as runs are done, in the order of the experiment file."""
    rows = []
    for _, row, planned in _rows(plan):
        runs = [_result(run, evaluation, failures.get(run.config.run)) for run in planned]
        done = sum(run["state"] == "done" for run in runs)  # a mean over some of them would mislead
        for measure in MEASURES:
            values = [run["measures"][measure] for run in runs if measure in run["measures"]]
            if 0 < len(values) == done:
                row[measure] = {"mean": mean(values), "spread": stdev(values) if len(values) > 1 else None}
        rows.append(row | {"runs": runs})
    return rows


def _result(run: PlannedRun, evaluation: EvaluationConfig, failure: str | None) -> dict[str, Any]:
    """Return one run as it stands."""
    directory = run.config.run
    state = "failed" if failure else state_of(run, evaluation)
    scores = stored_scores(directory, evaluation) if state == "done" else None
    measures = {}
    if scores is not None:
        measures = {name: scores[name]["score"] for name in MEASURES if scores.get(name)}
        if losses := read_curves(RunDirectory(directory).metrics).get("valid_loss"):
            measures["dev_loss"] = min(losses.values)
    names = {"title": run.title, "seed": run.seed, "directory": directory.name, "reverse": run.config.reverse}
    return {**names, "state": state, "failure": failure, "measures": measures, "scores": scores}


def write_report(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> str:
    """Write EXPERIMENT-SCALE.md and .json into the output directory, as far as runs are done; return the former."""
    experiment = plan.experiment
    rows, contrastive = collect(plan, evaluation, failures), collect_contrastive(plan, evaluation)
    runs = list({run["directory"]: run for row in rows for run in row["runs"]}.values())
    # Those of the other direction first: what they say of the language of their translations is not of the others.
    scores = [run["scores"] for run in sorted(runs, key=lambda run: not run["reverse"]) if run["scores"]]
    signatures = {name: each[name]["signature"] for name in MEASURES for each in scores if each.get(name)}
    content: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": plan.scale,
        "data": plan.store.directory.name,
        "overrides": {name: str(value) for name, value in plan.overrides.items()},
        "published_in": experiment.source,
        "signatures": signatures,
        "left_out": dict(plan.left_out),
        "rows": rows,
    }
    lines = [f"# {experiment.title}", "", f"Scale `{plan.scale}`, data `{content['data']}`.", "", *_tables(rows)]
    lines += [f"- {MEASURES[name]}: `{signature}`" for name, signature in signatures.items()]
    lines += _notes(plan, evaluation, rows, runs)
    if evaluation.suite is not None:
        lines += ["", *contrastive_lines(contrastive, evaluation.suite.name)]
        content["suite"] = {**(evaluation.suite_facts or {}), "rows": contrastive}
    text = "\n".join(lines).rstrip() + "\n"
    write_text(plan.place(evaluation.context, ".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_text(plan.place(evaluation.context, ".md"), text)
    return text


def _notes(
    plan: Plan, evaluation: EvaluationConfig, rows: Sequence[TableRow], runs: Sequence[TableRow]
) -> Iterator[str]:
    """Yield what is to be said of the table, a line each."""
    options = "".join(f", `{name}: {value}`" for name, value in evaluation.context.changes().items())
    yield (
        f"- test split, beam {evaluation.search.beam}{options}; dev loss: the lowest, label-smoothed, nats per token "
        "(not to be compared between systems that predict other marks beside the words)"
    )
    yield "- with several seeds: mean ± standard deviation"
    if backward := dict.fromkeys(row["variant"] for row in rows if any(run["reverse"] for run in row["runs"])):
        yield f"- from the target to the source language, and scored against the source: {', '.join(backward)}"
    if plan.overrides:
        changed = ", ".join(f"{name} {value}" for name, value in plan.overrides.items())
        yield f"- instead of what the recipes say: {changed} (options of a system only where that is the variant's)"
    if plan.experiment.source:
        yield f"- published: {plan.experiment.source}"
    yield from (f"- left out: {variant} ({why})" for variant, why in plan.left_out.items())
    yield from (f"- failed: {run['title']}: {run['failure']}" for run in runs if run["failure"])
    if undone := sum(run["state"] not in ("done", "failed") for run in runs):
        yield f"- runs not done yet: {undone}; the same command goes on with them"
    if miscounted := sum(bool(run["scores"] and run["scores"]["undefined"]) for run in runs):
        what = "where the model gave other numbers of sentences than the source has"
        yield f"- no s-BLEU and chrF {what}: {miscounted} of {len(runs)} runs (`undefined` in the JSON file)"


def _tables(rows: Sequence[TableRow]) -> list[str]:
    """Return a Markdown table for each axis."""
    lines = []
    for axis, group in groupby(rows, lambda row: str(row["axis"])):
        members = list(group)
        published = list(dict.fromkeys(column for row in members for column in row["published"]))
        names = ["", axis] if axis else [""]
        heads = [*names, "seeds", *MEASURES.values(), *(f"published {column}" for column in published)]
        cells = [[escaped(head) for head in heads]]
        for row in members:
            done = sum(run["state"] == "done" for run in row["runs"])
            line = [escaped(name) for name in (row["variant"], row["point"])[: len(names)]]
            line.append(f"{done}/{len(row['runs'])}")
            line += [_number(**row[name], digits=DIGITS[name]) if name in row else "-" for name in MEASURES]
            line += [f"{row['published'][column]:.2f}" if column in row["published"] else "" for column in published]
            cells.append(line)
        lines += [*table(cells, len(names)), ""]
    return lines


def _number(mean: float, spread: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def write_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draw d-BLEU over the points of the axes or, without axes, the learning curves; return the file.

    Raises DocmtError when nothing is there to draw or matplotlib is missing.
    """
    figure = plan.place(evaluation.context, ".png")
    if not plan.experiment.axes[0].name:
        curves = {run.title: RunDirectory(run.config.run).metrics for run in plan.runs}
        draw_curves({title: path for title, path in curves.items() if path.exists()}, figure)
        return figure
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in collect(plan, evaluation, {}):
        line = panels.setdefault(row["axis"], {}).setdefault(row["variant"], [])
        score = row.get("d_bleu", {"mean": math.nan, "spread": None})
        line.append(Point(row["point"], score["mean"], score["spread"] or 0.0))
    draw_points(panels, "d-BLEU", figure)
    return figure


def collect_contrastive(plan: Plan, evaluation: EvaluationConfig) -> list[TableRow]:
    """Return the rows of the table as far as runs are done; without a contrastive test set there are none.

    A row has `cells` by phenomenon and distance.
    """
    rows = []
    for variant, row, runs in _rows(plan):
        results = [result for run in runs if (result := stored_contrastive(run.config.run, evaluation)) is not None]
        if results:
            names = {name: row[name] for name in ("variant", "axis", "point")}
            rows.append({**names, "runs": len(results), "cells": _cells(variant, results)})
    return rows


def _cells(variant: Variant, results: Sequence[ContrastiveResult]) -> dict[str, dict[str, Any]]:
    """Return, of each phenomenon (known ones first) and distance, the counts of all runs and what was predicted."""
    cells: dict[str, dict[str, Any]] = {}
    for phenomenon in sorted(results[0].cells, key=[*PHENOMENA, *results[0].cells].index):
        for distance in results[0].cells[phenomenon]:
            counts = [result.cells[phenomenon][distance] for result in results]
            shares = [100 * each.accuracy for each in counts]
            cells.setdefault(phenomenon, {})[distance_name(distance)] = {
                **Count.sum(counts).to_json(),
                "spread": stdev(shares) if len(shares) > 1 else None,
                "above_chance": is_above_chance(Count.sum(counts)),
                "predicted": predicted(variant, phenomenon, distance),
            }
    return cells


def predicted(variant: Variant, phenomenon: str, distance: int | None) -> bool | None:
    """Return whether the system sees what decides, so that it can be above chance; None where that is not known.

    What decides in the source is seen in a supplied translation of it, too.
    """
    known = PHENOMENA.get(phenomenon)
    if known is None or variant.sees is None or distance is None:
        return None
    return variant.sees.target >= distance or (known.visible == "source" and variant.sees.source >= distance)


def is_above_chance(count: Count) -> bool | None:
    """Return whether so many right answers are more than guessing gives; None for too few items to tell."""
    least = count.chance + MARGIN * math.sqrt(count.chance * (1 - count.chance) / count.total)
    return count.accuracy > least if least < 1 else None


def contrastive_lines(rows: Sequence[TableRow], suite: str) -> list[str]:
    """Return the table in Markdown, with what its marks mean; nothing where no run is done."""
    if not rows:
        return []
    first: Mapping[str, Mapping[str, Any]] = rows[0]["cells"]
    columns = [(phenomenon, distance) for phenomenon, row in first.items() for distance in row]
    heads = [""]
    for phenomenon, distance in columns:
        chance = 100 * first[phenomenon][distance]["chance"]
        named = distance == next(iter(first[phenomenon]))
        heads.append(f"{escaped(phenomenon)} ({chance:.0f}): {distance}" if named else distance)
    body = [
        [escaped(_name(row)), *(_share(row["cells"][phenomenon][distance]) for phenomenon, distance in columns)]
        for row in rows
    ]
    cells = [cell for row in rows for by_distance in row["cells"].values() for cell in by_distance.values()]
    sizes = sorted({cell["total"] for cell in cells})
    items = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    known = [cell for cell in cells if cell["predicted"] is not None]
    checked = [cell for cell in known if cell["above_chance"] is not None]
    lines = [f"## Right candidates of {escaped(suite)}", "", *table([heads, *body]), ""]
    lines += [
        f"- percent of the items ({items} a cell) whose right candidate is the most probable, by phenomenon (in "
        "brackets what guessing gives) and distance of what decides, in sentences",
        "- **bold**: the system sees what decides, as far as it is known what it sees; in `()`: it does not",
    ]
    if checked:
        lines.append(
            f"- otherwise than that predicts (`!`; above chance: by more than {MARGIN:g} standard errors of guessing): "
            f"{sum(map(_surprises, checked))} of {len(checked)} cells"
        )
    if len(checked) < len(known):
        lines.append(f"- too few items to tell from guessing: {len(known) - len(checked)} cells")
    for row in rows:
        surprises = {name: [at for at, cell in by.items() if _surprises(cell)] for name, by in row["cells"].items()}
        if words := [f"{phenomenon} at {', '.join(at)}" for phenomenon, at in surprises.items() if at]:
            lines.append(f"  - {escaped(_name(row))}: {escaped('; '.join(words))}")
    return [*lines, ""]


def _name(row: TableRow) -> str:
    return f"{row['variant']}, {row['axis']} {row['point']}" if row["axis"] else str(row["variant"])


def _surprises(cell: Mapping[str, Any]) -> bool:
    return None not in (cell["predicted"], cell["above_chance"]) and cell["predicted"] != cell["above_chance"]


def _share(cell: Mapping[str, Any]) -> str:
    text = _number(100 * cell["accuracy"], cell["spread"], 1)
    if cell["predicted"] is not None:
        text = f"**{text}**" if cell["predicted"] else f"({text})"
    return text + (" !" if _surprises(cell) else "")


def write_contrastive_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draw accuracy over distance, a panel for each phenomenon, a line for each variant; return the file.

    Raises DocmtError when nothing is there to draw or matplotlib is missing.
    """
    rows = collect_contrastive(plan, evaluation)
    panels: dict[str, dict[str, list[Point]]] = {}
    chances: dict[str, float] = {}
    for row in rows:
        for phenomenon, cells in row["cells"].items():
            chances[phenomenon] = 100 * next(iter(cells.values()))["chance"]
            panels.setdefault(phenomenon, {})[_name(row)] = [
                Point(distance, 100 * cell["accuracy"], cell["spread"] or 0.0) for distance, cell in cells.items()
            ]
    figure = plan.place(evaluation.context, "-suite.png")
    draw_points(panels, "right (%)", figure, "distance (sentences)", chances)
    return figure
