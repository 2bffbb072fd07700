"""Training curves of a run, and figures of curves and of measured values (matplotlib)."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.core.errors import DocmtError, missing_package_error, printable
from docmt.core.files import atomic_path, check_writable, read_bytes

if TYPE_CHECKING:
    from docmt.analysis.token_maps import AttentionMap

METRICS_FILE = "metrics.jsonl"
"""Training curves in a run directory."""
FORMATS = ("png", "pdf", "svg")
_COLUMNS = 3
_PANEL = (4.2, 3.0)  # inches


@dataclass
class Curve:
    """Values of one metric by training update."""

    updates: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def read_curves(metrics: Path) -> dict[str, Curve]:
    """Read the numeric metrics of a metrics.jsonl by name.

    A last line without newline is still being written and is ignored. Raises DocmtError for an unreadable file or an
    invalid line.
    """
    advice = "give the metrics.jsonl of a run directory"
    try:
        text = read_bytes(metrics, advice=advice).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocmtError(f"cannot read {metrics}: it is not UTF-8 text; {advice}") from error
    curves: dict[str, Curve] = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            update = int(values["update"])
        except (ValueError, KeyError, TypeError) as error:
            raise DocmtError(f"{metrics}, line {number}: not a line of metrics; {advice}") from error
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                curve = curves.setdefault(name, Curve())
                curve.updates.append(update)
                curve.values.append(value)
    return curves


def summarize_run(curves: Mapping[str, Curve]) -> dict[str, float]:
    """Return the last update, loss and time of a training, and the best dev loss with its update, as far as known."""
    summary: dict[str, float] = {}
    if curves:
        summary["updates"] = max(curve.updates[-1] for curve in curves.values())
    names = {"loss": "last_loss", "seconds": "seconds"}
    summary |= {name: curves[metric].values[-1] for metric, name in names.items() if metric in curves}
    if "valid_loss" in curves:
        losses = curves["valid_loss"]
        best = min(range(len(losses.values)), key=losses.values.__getitem__)
        summary |= {"best_dev_loss": losses.values[best], "at_update": losses.updates[best]}
    return summary


def draw_curves(metrics: Mapping[str, Path], figure: Path) -> None:
    """Draw losses and attention entropies of trainings over their updates, one panel each.

    metrics: the metrics.jsonl of each training by legend name. figure: a .png, .pdf or .svg file. Entropies exist if
    the trainings had `validation.entropy` (Bao et al. 2021, figures 4, 5 and 8).
    Raises DocmtError if there is nothing to draw, the file cannot be written or matplotlib is missing.
    """
    file_format = figure_format(figure)
    runs = {name: read_curves(path) for name, path in metrics.items()}
    panels = _panels(runs)
    drawing = _new_drawing(len(panels))
    for axes, (title, unit, styles) in zip(drawing.axes, panels, strict=False):
        for number, curves in enumerate(runs.values()):
            for name, style in styles.items():
                if name in curves:
                    axes.plot(curves[name].updates, curves[name].values, style, color=f"C{number}", linewidth=1.2)
        axes.set(title=title, xlabel="updates", ylabel=unit)
        axes.grid(alpha=0.3)
    handles = [drawing.axes[0].plot([], [], color=f"C{number}")[0] for number in range(len(runs))]
    _draw_legend(drawing.axes[0], handles, list(runs))
    _save_figure(drawing, figure, file_format)


@dataclass(frozen=True)
class Point:
    """Measured value of one setting."""

    label: str
    """setting"""
    mean: float
    """NaN if not measured yet; the setting then stays on the axis without a point"""
    spread: float = 0.0
    """standard deviation over seeds, 0 for one seed"""


def draw_points(
    panels: Mapping[str, Mapping[str, Sequence[Point]]],
    unit: str,
    figure: Path,
    x_label: str = "",
    chances: Mapping[str, float] | None = None,
) -> None:
    """Draw values over settings (input length, data scale, ...), with a panel for each title and a line for each name.

    Settings are in order of first occurrence. chances: percentages of guessing by panel title (dotted lines).
    Raises DocmtError for the reasons of `draw_curves`.
    """
    file_format = figure_format(figure)
    if all(math.isnan(point.mean) for lines in panels.values() for points in lines.values() for point in points):
        raise DocmtError("there is nothing to draw, as no run has a score yet. Let one finish")
    drawing = _new_drawing(len(panels))
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    handles: dict[str, Any] = {}
    for axes, (title, lines) in zip(drawing.axes, panels.items(), strict=False):
        labels = list(dict.fromkeys(point.label for points in lines.values() for point in points))
        for name, points in lines.items():
            number = names.index(name)
            # Accuracies of systems with equal context coincide, so their lines are shifted apart.
            shift = 0.03 * (number - len(names) / 2) if chances else 0.0
            positions = [labels.index(point.label) + shift for point in points]
            means, spreads = [point.mean for point in points], [point.spread for point in points]
            style = {"color": f"C{number}", "marker": "o", "capsize": 3, "linewidth": 1.2}
            handles[name] = axes.errorbar(positions, means, yerr=spreads, **style)
        axes.set_xticks(range(len(labels)), list(map(printable, labels)))
        axes.grid(alpha=0.3)
        axes.set(title=printable(title), xlabel=x_label, ylabel=unit)
        if chances:
            axes.axhline(chances[title], color="grey", linestyle=":", linewidth=1.2)
            axes.set_ylim(0, 103)
    _draw_legend(drawing, list(handles.values()), list(handles), loc="outside lower center", ncols=min(len(handles), 4))
    _save_figure(drawing, figure, file_format)


def draw_attention(maps: Mapping[str, AttentionMap], figure: str | Path) -> None:
    """Draw heat maps of attentions, the mean over heads, with their tokens: keys from left to right.

    maps: by title. Raises DocmtError for the reasons of `draw_curves`.
    """
    figure = Path(figure)
    file_format = figure_format(figure)
    longest = max(len(tokens) for each in maps.values() for tokens in (each.queries, each.keys))
    side = 1.5 + 0.13 * longest  # inches, with room for names of tokens
    drawing = _new_drawing(len(maps), (side, side))
    for axes, (title, each) in zip(drawing.axes, maps.items(), strict=False):
        axes.imshow(each.weights.mean(0), cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(each.keys)), list(map(printable, each.keys)), rotation=90, fontsize=6)
        axes.set_yticks(range(len(each.queries)), list(map(printable, each.queries)), fontsize=6)
        axes.set(title=printable(title))
    _save_figure(drawing, figure, file_format)


def _draw_legend(parent: Any, handles: Sequence[Any], names: Sequence[str], **options: Any) -> None:
    """Draw a legend with arbitrary names. Names are set afterwards, as matplotlib hides those that begin with `_`."""
    legend = parent.legend(handles, list(map(str, range(len(names)))), **options)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(printable(name))


def figure_format(figure: Path) -> str:
    """Return the file format of a figure. Raises DocmtError for other formats and unwritable files."""
    file_format = figure.suffix.removeprefix(".").lower()
    if file_format not in FORMATS:
        raise DocmtError(f"cannot draw {figure}: give a file name that ends in .{', .'.join(FORMATS)}")
    check_writable(figure)
    return file_format


def _save_figure(drawing: Any, figure: Path, file_format: str) -> None:
    """Write a figure without math in its texts, so that `$` is printed."""
    from matplotlib.text import Text

    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    with atomic_path(figure) as temporary, warnings.catch_warnings():
        # matplotlib draws boxes for characters that the font lacks, and warns about each.
        warnings.filterwarnings("ignore", "Glyph")
        drawing.savefig(temporary, format=file_format, dpi=150)


def _panels(runs: Mapping[str, Mapping[str, Curve]]) -> list[tuple[str, str, dict[str, str]]]:
    """Return (title, unit, line styles by metric) of every panel for which some run has a metric."""
    names = dict.fromkeys(name for curves in runs.values() for name in curves)
    panels = []
    if {"loss", "valid_loss"} & names.keys():
        styles = {"loss": ":", "valid_loss": "-"}
        panels.append(("loss (dotted: training, solid: dev)", "nats per token", styles))
    for name in names:
        if name.startswith("entropy_"):
            title = f"entropy, {name.removeprefix('entropy_').replace('_', ' ')}"
            panels.append((title, "bits", {name: "-"}))
    if not panels:
        raise DocmtError("there is nothing to draw, as there are no losses and entropies yet. Continue training")
    return panels


def _new_drawing(panels: int, size: tuple[float, float] = _PANEL) -> Any:
    """Return a matplotlib figure with axes of this size for each panel, without a window or global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package_error("a figure", "matplotlib", "plots") from error
    columns, rows = min(panels, _COLUMNS), -(-panels // _COLUMNS)
    drawing = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    drawing.subplots(rows, columns, squeeze=False)
    for unused in drawing.axes[panels:]:
        unused.set_axis_off()
    return drawing
