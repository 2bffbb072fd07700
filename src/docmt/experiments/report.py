"""The results of an experiment: tables in Markdown and JSON, and figures."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from docmt.analysis import Point, draw_curves, draw_points, read_curves
from docmt.core.files import write_text
from docmt.core.plain_text import escape_markdown, markdown_table
from docmt.evaluation.contrastive import AnswerCounts, ContrastiveResult, distance_name
from docmt.experiments.comparison import format_comparison
from docmt.experiments.experiment_files import Variant
from docmt.experiments.runs import EvaluationConfig, Plan, PlannedRun, determine_state, load_contrastive, load_scores
from docmt.synthetic import PHENOMENA
from docmt.training.run_directory import RunDirectory

DIGITS = {"s_bleu": 2, "d_bleu": 2, "chrf": 2, "dev_loss": 3}
MEASURES = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "dev_loss": "dev loss"}
MARGIN = 3.0
"""Standard errors above chance from which accuracy is not guessing."""
TableRow = dict[str, Any]
"""JSON entry of a variant at a point: means and spreads over its runs, published scores, and the runs."""


def _iterate_rows(plan: Plan) -> Iterator[tuple[Variant, TableRow, list[PlannedRun]]]:
    """Yield all variants at all points in file order, each with the names of its row and its runs."""
    for axis in plan.experiment.axes:
        for variant, point in product(plan.experiment.select_variants(plan.scale).values(), axis.points[plan.scale]):
            names = {"variant": variant.name, "axis": axis.name, "point": point}
            runs = [run for run in plan.runs if (run.variant, run.axis, run.point) == tuple(names.values())]
            yield variant, {**names, "published": {**variant.published, **axis.published.get(point, {})}}, runs


def collect_rows(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> list[TableRow]:
    """Return the rows of the table in file order, with the scores of finished runs."""
    rows = []
    for _, row, planned in _iterate_rows(plan):
        runs = [_summarize_run(run, evaluation, failures.get(run.config.run)) for run in planned]
        done = sum(run["state"] == "done" for run in runs)  # a mean of only some of them would mislead
        for measure in MEASURES:
            values = [run["measures"][measure] for run in runs if measure in run["measures"]]
            if 0 < len(values) == done:
                row[measure] = {"mean": mean(values), "spread": stdev(values) if len(values) > 1 else None}
        rows.append(row | {"runs": runs})
    return rows


def _summarize_run(run: PlannedRun, evaluation: EvaluationConfig, failure: str | None) -> dict[str, Any]:
    """Return the state and scores of one run."""
    directory = run.config.run
    state = "failed" if failure else determine_state(run, evaluation)
    scores = load_scores(directory, evaluation) if state == "done" else None
    measures = {}
    if scores is not None:
        measures = {name: scores[name]["score"] for name in MEASURES if scores.get(name)}
        if losses := read_curves(RunDirectory(directory).metrics).get("valid_loss"):
            measures["dev_loss"] = min(losses.values)
    names = {"title": run.title, "seed": run.seed, "directory": directory.name, "reverse": run.config.reverse}
    return {**names, "state": state, "failure": failure, "measures": measures, "scores": scores}


def write_report(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> str:
    """Write EXPERIMENT-SCALE.md and .json with the finished runs to the output directory; return the Markdown."""
    experiment = plan.experiment
    rows, contrastive = collect_rows(plan, evaluation, failures), collect_contrastive(plan, evaluation)
    runs = list({run["directory"]: run for row in rows for run in row["runs"]}.values())
    # Reverse runs first, so that the others overwrite the target language in the signatures.
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
        "left_out": dict(plan.skipped),
        "rows": rows,
    }
    lines = [f"# {experiment.title}", "", f"Scale `{plan.scale}`, data `{content['data']}`.", "", *_format_tables(rows)]
    lines += [f"- {MEASURES[name]}: `{signature}`" for name, signature in signatures.items()]
    lines += _notes(plan, evaluation, rows, runs)
    if evaluation.suite is not None:
        lines += ["", *format_contrastive_table(contrastive, evaluation.suite.name)]
        content["suite"] = {**(evaluation.suite_settings or {}), "rows": contrastive}
    if evaluation.comparison:
        lines += format_comparison(plan, evaluation)
    text = "\n".join(map(_wrap_note, lines)).rstrip() + "\n"
    write_text(plan.output_path(evaluation.context, ".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_text(plan.output_path(evaluation.context, ".md"), text)
    return text


def _wrap_note(line: str) -> str:
    """Wrap a list item, so that a diff can show it. Other lines stay."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _notes(
    plan: Plan, evaluation: EvaluationConfig, rows: Sequence[TableRow], runs: Sequence[TableRow]
) -> Iterator[str]:
    """Yield the notes below the table, a line each."""
    options = "".join(f", `{name}: {value}`" for name, value in evaluation.context.changes().items())
    yield (
        f"- test split, beam {evaluation.search.beam}{options}; dev loss: lowest, label-smoothed, nats per token "
        "(not comparable between systems with different boundary tokens)"
    )
    yield "- with several seeds: mean ± standard deviation"
    if backward := dict.fromkeys(row["variant"] for row in rows if any(run["reverse"] for run in row["runs"])):
        yield f"- translated from target to source language and scored against the source: {', '.join(backward)}"
    if plan.overrides:
        changed = ", ".join(f"{name} {value}" for name, value in plan.overrides.items())
        yield f"- overrides of the recipes: {changed} (options of a system only for its variants)"
    if plan.experiment.source:
        yield f"- published: {plan.experiment.source}"
    yield from (f"- skipped: {'; '.join(variants)} ({reason})" for reason, variants in plan.group_skipped().items())
    yield from (f"- failed: {run['title']}: {run['failure']}" for run in runs if run["failure"])
    if undone := sum(run["state"] not in ("done", "failed") for run in runs):
        yield f"- unfinished runs: {undone}; repeat the command to continue"
    if miscounted := sum(bool(run["scores"] and run["scores"]["undefined"]) for run in runs):
        reason = "if the model changed the number of sentences"
        yield f"- no s-BLEU and chrF {reason}: {miscounted} of {len(runs)} runs (`undefined` in the JSON file)"


def _format_tables(rows: Sequence[TableRow]) -> list[str]:
    """Return a Markdown table for each axis."""
    lines = []
    for axis, group in groupby(rows, lambda row: str(row["axis"])):
        members = list(group)
        published = list(dict.fromkeys(column for row in members for column in row["published"]))
        names = ["", axis] if axis else [""]
        heads = [*names, "seeds", *MEASURES.values(), *(f"published {column}" for column in published)]
        cells = [[escape_markdown(head) for head in heads]]
        for row in members:
            done = sum(run["state"] == "done" for run in row["runs"])
            line = [escape_markdown(name) for name in (row["variant"], row["point"])[: len(names)]]
            line.append(f"{done}/{len(row['runs'])}")
            line += [_format_number(**row[name], digits=DIGITS[name]) if name in row else "-" for name in MEASURES]
            line += [f"{row['published'][column]:.2f}" if column in row["published"] else "" for column in published]
            cells.append(line)
        lines += [*markdown_table(cells, len(names)), ""]
    return lines


def _format_number(mean: float, spread: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def write_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draw d-BLEU over the points of the axes or, without axes, the learning curves; return the path.

    Raises DocmtError if there is nothing to draw or matplotlib is missing.
    """
    figure = plan.output_path(evaluation.context, ".png")
    if not plan.experiment.axes[0].name:
        curves = {run.title: RunDirectory(run.config.run).metrics for run in plan.runs}
        draw_curves({title: path for title, path in curves.items() if path.exists()}, figure)
        return figure
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in collect_rows(plan, evaluation, {}):
        line = panels.setdefault(row["axis"], {}).setdefault(row["variant"], [])
        score = row.get("d_bleu", {"mean": math.nan, "spread": None})
        line.append(Point(row["point"], score["mean"], score["spread"] or 0.0))
    draw_points(panels, "d-BLEU", figure)
    return figure


def collect_contrastive(plan: Plan, evaluation: EvaluationConfig) -> list[TableRow]:
    """Return the contrastive rows of finished runs, with `cells` by phenomenon and distance."""
    rows = []
    for variant, row, runs in _iterate_rows(plan):
        results = [result for run in runs if (result := load_contrastive(run.config.run, evaluation)) is not None]
        if results:
            names = {name: row[name] for name in ("variant", "axis", "point")}
            rows.append({**names, "runs": len(results), "cells": _sum_cells(variant, results)})
    return rows


def _sum_cells(variant: Variant, results: Sequence[ContrastiveResult]) -> dict[str, dict[str, Any]]:
    """Return summed counts and predictions by phenomenon (known ones first) and distance."""
    cells: dict[str, dict[str, Any]] = {}
    for phenomenon in sorted(results[0].cells, key=[*PHENOMENA, *results[0].cells].index):
        for distance in results[0].cells[phenomenon]:
            counts = [result.cells[phenomenon][distance] for result in results]
            shares = [100 * each.accuracy for each in counts]
            cells.setdefault(phenomenon, {})[distance_name(distance)] = {
                **AnswerCounts.sum(counts).to_json(),
                "spread": stdev(shares) if len(shares) > 1 else None,
                "above_chance": is_above_chance(AnswerCounts.sum(counts)),
                "predicted": predict_above_chance(variant, phenomenon, distance),
            }
    return cells


def predict_above_chance(variant: Variant, phenomenon: str, distance: int | None) -> bool | None:
    """Return whether the system sees the deciding sentence, so that it can be above chance; None if unknown.

    A system that sees supplied target sentences also sees what decides in their sources.
    """
    info = PHENOMENA.get(phenomenon)
    if info is None or variant.sees is None or distance is None:
        return None
    return variant.sees.target >= distance or (info.visible == "source" and variant.sees.source >= distance)


def is_above_chance(count: AnswerCounts) -> bool | None:
    """Return whether the accuracy is above guessing, or None for too few items."""
    least = count.chance + MARGIN * math.sqrt(count.chance * (1 - count.chance) / count.total)
    return count.accuracy > least if least < 1 else None


def format_contrastive_table(rows: Sequence[TableRow], suite: str) -> list[str]:
    """Return the Markdown table with a legend, or nothing without rows."""
    if not rows:
        return []
    first: Mapping[str, Mapping[str, Any]] = rows[0]["cells"]
    columns = [(phenomenon, distance) for phenomenon, row in first.items() for distance in row]
    heads = [""]
    for phenomenon, distance in columns:
        chance = 100 * first[phenomenon][distance]["chance"]
        named = distance == next(iter(first[phenomenon]))
        heads.append(f"{escape_markdown(phenomenon)} ({chance:.0f}): {distance}" if named else distance)
    body = [
        [escape_markdown(_row_name(row)), *(_format_share(row["cells"][name][distance]) for name, distance in columns)]
        for row in rows
    ]
    cells = [cell for row in rows for by_distance in row["cells"].values() for cell in by_distance.values()]
    sizes = sorted({cell["total"] for cell in cells})
    items = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    predicted = [cell for cell in cells if cell["predicted"] is not None]
    checked = [cell for cell in predicted if cell["above_chance"] is not None]
    lines = [f"## Right candidates of {escape_markdown(suite)}", "", *markdown_table([heads, *body]), ""]
    lines += [
        f"- percent of the items ({items} a cell) whose right candidate is the most probable, by phenomenon (chance "
        "in brackets) and distance of the deciding sentence in sentences",
        "- **bold**: the system sees the deciding sentence; in `()`: it does not; neither: unknown",
    ]
    if checked:
        lines.append(
            f"- contrary to that (`!`; above chance means by more than {MARGIN:g} standard errors): "
            f"{sum(map(_differs, checked))} of {len(checked)} cells"
        )
    if len(checked) < len(predicted):
        lines.append(f"- too few items for a comparison with chance: {len(predicted) - len(checked)} cells")
    for row in rows:
        different = {name: [d for d, cell in cells.items() if _differs(cell)] for name, cells in row["cells"].items()}
        if parts := [f"{name} at {', '.join(distances)}" for name, distances in different.items() if distances]:
            lines.append(f"  - {escape_markdown(_row_name(row))}: {escape_markdown('; '.join(parts))}")
    return [*lines, ""]


def _row_name(row: TableRow) -> str:
    return f"{row['variant']}, {row['axis']} {row['point']}" if row["axis"] else str(row["variant"])


def _differs(cell: Mapping[str, Any]) -> bool:
    return None not in (cell["predicted"], cell["above_chance"]) and cell["predicted"] != cell["above_chance"]


def _format_share(cell: Mapping[str, Any]) -> str:
    text = _format_number(100 * cell["accuracy"], cell["spread"], 1)
    if cell["predicted"] is not None:
        text = f"**{text}**" if cell["predicted"] else f"({text})"
    return text + (" !" if _differs(cell) else "")


def write_contrastive_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draw accuracy over distance, a panel for each phenomenon, a line for each variant; return the path.

    Raises DocmtError if there is nothing to draw or matplotlib is missing.
    """
    rows = collect_contrastive(plan, evaluation)
    panels: dict[str, dict[str, list[Point]]] = {}
    chances: dict[str, float] = {}
    for row in rows:
        for phenomenon, cells in row["cells"].items():
            chances[phenomenon] = 100 * next(iter(cells.values()))["chance"]
            panels.setdefault(phenomenon, {})[_row_name(row)] = [
                Point(distance, 100 * cell["accuracy"], cell["spread"] or 0.0) for distance, cell in cells.items()
            ]
    figure = plan.output_path(evaluation.context, "-suite.png")
    draw_points(panels, "right (%)", figure, "distance (sentences)", chances)
    return figure
