"""What an experiment found: one table, in Markdown and in JSON, and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from docmt.analysis import Point, draw_curves, draw_points, read_curves
from docmt.experiments.plan import Plan, PlannedRun
from docmt.experiments.runner import state_of
from docmt.experiments.scores import EvaluationConfig, stored_scores
from docmt.files import write_text
from docmt.training.run_directory import RunDirectory

MEASURES = {"s_bleu": "s-BLEU", "d_bleu": "d-BLEU", "chrf": "chrF", "dev_loss": "dev loss"}


@dataclass(frozen=True)
class _Result:
    """One run as it stands."""

    run: PlannedRun
    state: str
    failure: str | None
    scores: Mapping[str, Any] | None
    measures: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        run = self.run
        return {
            "variant": run.variant,
            "axis": run.axis,
            "point": run.point,
            "seed": run.seed,
            "directory": run.config.run.name,
            "state": self.state,
            "failure": self.failure,
            "dev_loss": self.measures.get("dev_loss"),
            "scores": self.scores,
        }


@dataclass(frozen=True)
class _Row:
    """The runs of a variant at a point, one for each seed."""

    results: Sequence[_Result]
    published: Mapping[str, float]

    @property
    def run(self) -> PlannedRun:
        return self.results[0].run

    def values(self, measure: str) -> list[float]:
        return [result.measures[measure] for result in self.results if measure in result.measures]

    def to_json(self) -> dict[str, Any]:
        found = {measure: self.values(measure) for measure in MEASURES}
        return {
            "variant": self.run.variant,
            "axis": self.run.axis,
            "point": self.run.point,
            **{name: _summary(values) for name, values in found.items() if values},
            "published": dict(self.published),
        }


def write_report(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> str:
    """Writes EXPERIMENT-SCALE.md and .json into the output directory, as far as runs are done; returns the former."""
    rows = _rows(plan, evaluation, failures)
    results = [result for row in rows for result in row.results]
    signatures = _signatures(results)
    experiment = plan.experiment
    content = {
        "experiment": experiment.name,
        "title": experiment.title,
        "scale": plan.scale,
        "data": plan.store.directory.name,
        "signatures": signatures,
        "published_in": experiment.source,
        "rows": [row.to_json() for row in rows],
        "runs": [result.to_json() for result in results],
    }
    lines = [f"# {experiment.title}", "", f"Scale `{plan.scale}`, data `{plan.store.directory.name}`.", ""]
    lines += _table(rows)
    if any(len(row.results) > 1 for row in rows):
        lines += ["Mean ± standard deviation over seeds.", ""]
    lines += [f"- {MEASURES[measure]}: `{signature}`" for measure, signature in signatures.items()]
    lines += [f"- beam {evaluation.search.beam}, test split; dev loss: the lowest, label-smoothed, in nats per token"]
    if experiment.source:
        lines.append(f"- published: {experiment.source}")
    lines += _troubles(results)
    text = "\n".join(lines) + "\n"
    base = plan.output / f"{experiment.name}-{plan.scale}"
    write_text(base.with_suffix(".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_text(base.with_suffix(".md"), text)
    return text


def write_figure(plan: Plan, evaluation: EvaluationConfig) -> Path:
    """Draws d-BLEU over the points of the axes or, without axes, the learning curves; returns the file.

    Raises DocmtError when nothing is there to draw or matplotlib is missing.
    """
    figure = plan.output / f"{plan.experiment.name}-{plan.scale}.png"
    if not plan.experiment.axes:
        curves = {run.title: RunDirectory(run.config.run).metrics for run in plan.runs}
        draw_curves({title: path for title, path in curves.items() if path.exists()}, figure)
        return figure
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in _rows(plan, evaluation, {}):
        line = panels.setdefault(row.run.axis, {}).setdefault(row.run.variant, [])
        if values := row.values("d_bleu"):
            summary = _summary(values)
            line.append(Point(row.run.point, summary["mean"], summary["spread"] or 0.0))
    draw_points(panels, "d-BLEU", figure)
    return figure


def _rows(plan: Plan, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> list[_Row]:
    """In the order of the experiment file, whatever the order of training."""
    experiment = plan.experiment
    axes, variants = [axis.name for axis in experiment.axes] or [""], list(experiment.variants)
    points = {axis.name: list(axis.points[plan.scale]) for axis in experiment.axes} or {"": [""]}

    def place(run: PlannedRun) -> tuple[int, int, int]:
        return axes.index(run.axis), variants.index(run.variant), points[run.axis].index(run.point)

    rows = []
    for _, runs in groupby(sorted(plan.runs, key=place), place):
        results = [_result(run, evaluation, failures) for run in runs]
        run = results[0].run
        published = dict(experiment.variants[run.variant].published)
        if run.axis:
            published |= experiment.axes[axes.index(run.axis)].published.get(run.point, {})
        rows.append(_Row(results, published))
    return rows


def _result(run: PlannedRun, evaluation: EvaluationConfig, failures: Mapping[Path, str]) -> _Result:
    directory = run.config.run
    failure = failures.get(directory)
    scores = stored_scores(directory, evaluation) if failure is None else None
    measures = {}
    if scores is not None:
        measures = {name: scores[name]["score"] for name in MEASURES if scores.get(name)}
        losses = read_curves(RunDirectory(directory).metrics).get("valid_loss")
        if losses:
            measures["dev_loss"] = min(losses.values)
    return _Result(run, "failed" if failure else state_of(run, evaluation), failure, scores, measures)


def _summary(values: Sequence[float]) -> dict[str, Any]:
    """spread: the standard deviation of a sample, None for a single value."""
    return {"mean": mean(values), "spread": stdev(values) if len(values) > 1 else None, "values": list(values)}


def _signatures(results: Sequence[_Result]) -> dict[str, str]:
    found: dict[str, str] = {}
    for result in results:
        for measure in MEASURES:
            if result.scores and result.scores.get(measure):
                found.setdefault(measure, result.scores[measure]["signature"])
    return found


def _table(rows: Sequence[_Row]) -> list[str]:
    """A Markdown table for each axis."""
    lines = []
    for axis, group in groupby(rows, lambda row: row.run.axis):
        own = list(group)
        published = list(dict.fromkeys(column for row in own for column in row.published))
        heads = ["", *([axis] if axis else []), "seeds", *MEASURES.values(), *(f"published {p}" for p in published)]
        lines += [_line(heads), _line(["---"] * (2 if axis else 1) + ["--:"] * (len(heads) - (2 if axis else 1)))]
        for row in own:
            done = sum(result.scores is not None for result in row.results)
            cells = [row.run.variant, *([row.run.point] if axis else []), f"{done}/{len(row.results)}"]
            cells += [_cell(row.values(measure), 3 if measure == "dev_loss" else 2) for measure in MEASURES]
            cells += [f"{row.published[column]:.2f}" if column in row.published else "" for column in published]
            lines.append(_line(cells))
        lines.append("")
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def _troubles(results: Sequence[_Result]) -> list[str]:
    """What failed and what is not done, a line each."""
    failed = {result.run.config.run: result for result in results if result.failure}
    lines = [f"- failed: {result.run.title}: {result.failure}" for result in failed.values()]
    undone = {result.run.config.run for result in results if not result.failure and result.scores is None}
    if undone:
        lines.append(f"- not done yet: {len(undone)} runs; the same command goes on with them")
    undefined = {result.scores["undefined"] for result in results if result.scores and result.scores["undefined"]}
    return lines + [f"- s-BLEU and chrF are not defined where {reason}" for reason in sorted(undefined)]
