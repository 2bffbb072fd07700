"""What an experiment found: one table, in Markdown and in JSON, and a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from docmt.analysis import Point, draw_curves, draw_points, read_curves
from docmt.core.files import write_text
from docmt.core.markdown import escaped, table
from docmt.experiments.contrastive import collect_contrastive, contrastive_lines, lines_of
from docmt.experiments.plan import Plan, PlannedRun
from docmt.experiments.runner import state_of
from docmt.experiments.scores import EvaluationConfig, stored_scores
from docmt.experiments.speed import speed_lines
from docmt.training.run_directory import RunDirectory

MEASURES = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "dev_loss": "dev loss"}


Row = dict[str, Any]
"""What the JSON file has for a variant at a point: means and spreads over its runs, the published, and the runs."""


def collect(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> list[Row]:
    """The rows of the table as far as runs are done, in the order of the experiment file."""
    rows = []
    for axis in plan.experiment.axes:
        for variant, point in product(plan.experiment.variants_at(plan.scale).values(), axis.points[plan.scale]):
            key = (variant.name, axis.name, point)
            own = [run for run in plan.runs if (run.variant, run.axis, run.point) == key]
            runs = [_result(run, evaluation, failures.get(run.config.run)) for run in own]
            measured = {
                measure: [run["measures"][measure] for run in runs if measure in run["measures"]]
                for measure in MEASURES
            }
            done = sum(run["state"] == "done" for run in runs)  # a mean over some of them would mislead
            row: Row = dict(zip(("variant", "axis", "point"), key, strict=True))
            row |= {measure: _summary(values) for measure, values in measured.items() if 0 < len(values) == done}
            rows.append(row | {"published": {**variant.published, **axis.published.get(point, {})}, "runs": runs})
    return rows


def _result(run: PlannedRun, evaluation: EvaluationConfig, failure: str | None) -> dict[str, Any]:
    """One run as it stands."""
    directory = run.config.run
    state = "failed" if failure else state_of(run, evaluation)
    scores = stored_scores(directory, evaluation) if state == "done" else None
    measures = {}
    if scores is not None:
        measures = {name: scores[name]["score"] for name in MEASURES if scores.get(name)}
        if losses := read_curves(RunDirectory(directory).metrics).get("valid_loss"):
            measures["dev_loss"] = min(losses.values)
    place = {"title": run.title, "seed": run.seed, "directory": directory.name, "reverse": run.config.reverse}
    return {**place, "state": state, "failure": failure, "measures": measures, "scores": scores}


def _summary(values: Sequence[float]) -> dict[str, float | None]:
    """spread: the standard deviation of a sample, None for a single value."""
    return {"mean": mean(values), "spread": stdev(values) if len(values) > 1 else None}


def write_report(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> str:
    """Writes EXPERIMENT-SCALE.md and .json into the output directory, as far as runs are done; returns the former."""
    experiment, data = plan.experiment, plan.store.directory.name
    rows = collect(plan, evaluation, failures)
    runs = list({run["directory"]: run for row in rows for run in row["runs"]}.values())
    # Those of the other direction first: what they say of the language of their translations is not of the others.
    all_scores = [run["scores"] for run in sorted(runs, key=lambda run: not run["reverse"]) if run["scores"]]
    signatures = {m: scores[m]["signature"] for m in MEASURES for scores in all_scores if scores.get(m)}
    lines = [f"# {experiment.title}", "", f"Scale `{plan.scale}`, data `{data}`.", "", *_tables(rows)]
    lines += [f"- {MEASURES[measure]}: `{signature}`" for measure, signature in signatures.items()]
    asked = "".join(f", `{name}: {value}`" for name, value in evaluation.context.changes().items())
    lines.append(
        f"- test split, beam {evaluation.search.beam}{asked}; dev loss: the lowest, label-smoothed, nats per token "
        "(not to be compared between systems that predict other marks beside the words)"
    )
    lines.append("- with several seeds: mean ± standard deviation")
    if backward := dict.fromkeys(row["variant"] for row in rows if any(run["reverse"] for run in row["runs"])):
        lines.append(f"- from the target to the source language, and scored against the source: {', '.join(backward)}")
    if plan.overrides:
        changed = ", ".join(f"{name} {value}" for name, value in plan.overrides.items())
        lines.append(
            f"- instead of what the recipes say: {changed} (options of a system only where that is the variant's)"
        )
    if experiment.source:
        lines.append(f"- published: {experiment.source}")
    lines += [f"- left out: {variant} ({why})" for variant, why in plan.left_out.items()]
    lines += [f"- failed: {run['title']}: {run['failure']}" for run in runs if run["failure"]]
    if undone := sum(run["state"] not in ("done", "failed") for run in runs):
        lines.append(f"- runs not done yet: {undone}; the same command goes on with them")
    if miscounted := sum(bool(scores["undefined"]) for scores in all_scores):
        what = "where the model gave other numbers of sentences than the source has"
        lines.append(f"- no s-BLEU and chrF {what}: {miscounted} of {len(runs)} runs (`undefined` in the JSON file)")
    contrastive = collect_contrastive(plan, evaluation)
    if evaluation.suite is not None:
        lines += ["", *contrastive_lines(contrastive, evaluation.suite.name)]
        lines += lines_of(contrastive, experiment.over)
    lines += ["", *speed_lines(plan, evaluation)]
    text = "\n".join(lines).rstrip() + "\n"
    content: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": plan.scale,
        "data": data,
        "overrides": {name: str(value) for name, value in plan.overrides.items()},
        "published_in": experiment.source,
        "signatures": signatures,
        "left_out": dict(plan.left_out),
        "rows": rows,
    }
    if evaluation.suite is not None:
        content |= {"suite": {**evaluation.suite.facts, "rows": contrastive}}
    write_text(plan.place(evaluation.context, ".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_text(plan.place(evaluation.context, ".md"), text)
    return text


def _tables(rows: Sequence[Row]) -> list[str]:
    """A Markdown table for each axis."""
    lines = []
    for axis, group in groupby(rows, lambda row: str(row["axis"])):
        own = list(group)
        published = list(dict.fromkeys(column for row in own for column in row["published"]))
        names = ["", axis] if axis else [""]
        heads = [*names, "seeds", *MEASURES.values(), *(f"published {column}" for column in published)]
        shown = [[escaped(head) for head in heads]]
        for row in own:
            done = sum(run["state"] == "done" for run in row["runs"])
            cells = [escaped(name) for name in (row["variant"], row["point"])[: len(names)]]
            cells.append(f"{done}/{len(row['runs'])}")
            cells += [_cell(row.get(measure), 3 if measure == "dev_loss" else 2) for measure in MEASURES]
            cells += [f"{row['published'][column]:.2f}" if column in row["published"] else "" for column in published]
            shown.append(cells)
        lines += [*table(shown, len(names)), ""]
    return lines


def _cell(summary: Mapping[str, float | None] | None, digits: int) -> str:
    if summary is None:
        return "-"
    spread = summary["spread"]
    return f"{summary['mean']:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def write_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draws d-BLEU over the points of the axes or, without axes, the learning curves; returns the file.

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
        found = row.get("d_bleu", {"mean": math.nan, "spread": None})
        line.append(Point(row["point"], found["mean"], found["spread"] or 0.0))
    draw_points(panels, "d-BLEU", figure)
    return figure
