"""The results of an experiment: a table in Markdown and JSON, and a figure."""

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
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import escape_markdown, markdown_table
from docmt.core.settings import find_changed
from docmt.evaluation import PROTOCOLS
from docmt.experiments.runs import (
    EvaluationConfig,
    ExperimentPlan,
    PlannedRun,
    determine_state,
    load_scores,
    load_suite_result,
)
from docmt.training.run_directory import RunDirectory

HEADINGS = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "dev_loss": "dev loss"}
"""Measures of every table. With a test set, each of its phenomena at each distance is a measure, too."""
_UNNAMED = "distance"  # heading of items without a phenomenon
TableRow = dict[str, Any]
"""JSON entry of a variant at a point: means and spreads over its runs, published scores, and the runs."""


def collect_rows(plan: ExperimentPlan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> list[TableRow]:
    """Return the rows of the table in file order, with the scores of finished runs."""
    rows = []
    for axis in plan.experiment.axes:
        for variant, point in product(plan.experiment.select_variants(plan.scale).values(), axis.points[plan.scale]):
            names = {"variant": variant.name, "axis": axis.name, "point": point}
            published = {**variant.published, **axis.published.get(point, {})}
            planned = [run for run in plan.runs if (run.variant, run.axis, run.point) == tuple(names.values())]
            runs = [_summarize_run(run, evaluation, failures.get(run.config.run)) for run in planned]
            rows.append({**names, "published": published, "measures": _average(runs), "runs": runs})
    return rows


def _average(runs: Sequence[TableRow]) -> dict[str, dict[str, float | None]]:
    """Return the mean and the spread of each measure, if all finished runs have it: a mean of some would mislead."""
    finished = [run["measures"] for run in runs if run["state"] == "done"]
    averages: dict[str, dict[str, float | None]] = {}
    for name in finished[0] if finished else ():
        if all(name in measures for measures in finished):
            values = [measures[name] for measures in finished]
            averages[name] = {"mean": mean(values), "spread": stdev(values) if len(values) > 1 else None}
    return averages


def _summarize_run(run: PlannedRun, evaluation: EvaluationConfig, failure: str | None) -> dict[str, Any]:
    """Return the state and scores of one run."""
    directory = run.config.run
    state = "failed" if failure else determine_state(run, evaluation)
    measures, scores, suite = {}, None, None
    if state == "done":
        scores, suite = load_scores(directory, evaluation) or {}, load_suite_result(directory, evaluation)
        measures = {name: scores[name]["score"] for name in HEADINGS if scores.get(name)}
        if losses := read_curves(RunDirectory(directory).metrics).get("valid_loss"):
            measures["dev_loss"] = min(losses.values)
        for phenomenon, counts in (suite["phenomena"] if suite else {}).items():
            for distance, cell in counts["distances"].items():
                measures[f"{phenomenon or _UNNAMED} {distance}"] = 100 * cell["accuracy"]
    names = {"title": run.title, "seed": run.seed, "directory": directory.name, "reverse": run.config.reverse}
    return {**names, "state": state, "failure": failure, "measures": measures, "scores": scores, "suite": suite}


def write_report(plan: ExperimentPlan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> str:
    """Write EXPERIMENT-SCALE.md and .json with the finished runs to the output directory; return the Markdown."""
    experiment = plan.experiment
    rows = collect_rows(plan, evaluation, failures)
    runs = list({run["directory"]: run for row in rows for run in row["runs"]}.values())
    # Reverse runs first, so that the others overwrite the target language in the signatures.
    scores = [run["scores"] for run in sorted(runs, key=lambda run: not run["reverse"]) if run["scores"]]
    signatures = {name: each[name]["signature"] for name in HEADINGS for each in scores if each.get(name)}
    content: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": plan.scale,
        "data": plan.store.directory.name,
        "overrides": {name: str(value) for name, value in plan.overrides.items()},
        "published_in": experiment.source,
        "signatures": signatures,
        "suite": evaluation.suite_settings,
        "left_out": dict(plan.skipped),
        "rows": rows,
    }
    lines = [f"# {experiment.title}", "", f"Scale `{plan.scale}`, data `{content['data']}`.", "", *_format_tables(rows)]
    lines += [f"- {HEADINGS[name]}: `{signature}`" for name, signature in signatures.items()]
    lines += _notes(plan, evaluation, runs)
    text = "\n".join(lines) + "\n"
    write_text(plan.output_path(evaluation.context, ".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_text(plan.output_path(evaluation.context, ".md"), text)
    return text


def _notes(plan: ExperimentPlan, evaluation: EvaluationConfig, runs: Sequence[TableRow]) -> Iterator[str]:
    """Yield the notes below the table, a line each."""
    options = "".join(f", `{name}: {value}`" for name, value in find_changed(evaluation.context).items())
    yield f"- test split, beam {evaluation.search.beam}{options}"
    if evaluation.suite is not None:
        yield f"- phenomena and distances: percent right in {escape_markdown(evaluation.suite.name)}"
    if plan.overrides:
        yield f"- overrides of the recipes: {', '.join(f'{name} {value}' for name, value in plan.overrides.items())}"
    if plan.experiment.source:
        yield f"- published: {plan.experiment.source}"
    if (protocol := plan.experiment.protocol) and protocol != evaluation.metrics.protocol:
        settings = ", ".join(f"{name} {str(value).lower()}" for name, value in PROTOCOLS[protocol].settings.items())
        yield (
            f"- published scores have other segments or text than these, so do not compare them: {settings}. "
            f"`--metrics.protocol {protocol} --metrics.language CODE` scores in that way"
        )
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
        measures = list(dict.fromkeys([*HEADINGS, *(name for row in members for name in row["measures"])]))
        published = list(dict.fromkeys(column for row in members for column in row["published"]))
        names = ["", axis] if axis else [""]
        heads = [*names, "seeds", *(HEADINGS.get(name, name) for name in measures)]
        cells = [[escape_markdown(head) for head in (*heads, *(f"published {column}" for column in published))]]
        for row in members:
            done = sum(run["state"] == "done" for run in row["runs"])
            line = [escape_markdown(name) for name in (row["variant"], row["point"])[: len(names)]]
            line.append(f"{done}/{len(row['runs'])}")
            line += [_format_measure(name, row["measures"].get(name)) for name in measures]
            line += [f"{row['published'][column]:.2f}" if column in row["published"] else "" for column in published]
            cells.append(line)
        lines += [*markdown_table(cells, len(names)), ""]
    return lines


def _format_measure(name: str, score: Mapping[str, float | None] | None) -> str:
    if score is None:
        return "-"
    digits = 3 if name == "dev_loss" else 2 if name in HEADINGS else 1
    spread = "" if score["spread"] is None else f" ± {score['spread']:.{digits}f}"
    return f"{score['mean']:.{digits}f}{spread}"


def write_figure(plan: ExperimentPlan, evaluation: EvaluationConfig) -> Path:
    """Draw the figure of an experiment, and return its path.

    With a test set it has the right answers over the distance, with axes d-BLEU over their points, otherwise learning
    curves. Raises DocmtError if there is nothing to draw or matplotlib is missing.
    """
    figure = plan.output_path(evaluation.context, ".png")
    panels: dict[str, dict[str, list[Point]]] = {}
    rows = collect_rows(plan, evaluation, {})
    if evaluation.suite is not None:
        chances = group_pairs((item.phenomenon or _UNNAMED, 100 * item.chance) for item in evaluation.suite.items)
        for row in rows:
            line = " ".join(filter(None, (row["variant"], row["axis"], row["point"])))
            for name, score in row["measures"].items():
                if name not in HEADINGS:
                    phenomenon, _, distance = name.rpartition(" ")
                    point = Point(distance, score["mean"], score["spread"] or 0.0)
                    panels.setdefault(phenomenon, {}).setdefault(line, []).append(point)
        means = {phenomenon: mean(values) for phenomenon, values in chances.items()}
        draw_points(panels, "right (%)", figure, "distance (sentences)", means)
    elif plan.experiment.axes[0].name:
        for row in rows:
            score = row["measures"].get("d_bleu", {"mean": math.nan, "spread": None})
            point = Point(row["point"], score["mean"], score["spread"] or 0.0)
            panels.setdefault(row["axis"], {}).setdefault(row["variant"], []).append(point)
        draw_points(panels, "d-BLEU", figure)
    else:
        curves = {run.title: RunDirectory(run.config.run).metrics for run in plan.runs}
        draw_curves({title: path for title, path in curves.items() if path.exists()}, figure)
    return figure
