"""What a model directory says of its model, and a run directory of its training: facts, curves, and figures."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from docmt.analysis.entropy import KINDS
from docmt.checkpoint.model_directory import (
    CARD_FILE,
    find_drafter,
    find_model,
    load_languages,
    load_model_config,
    load_model_tokenizer,
)
from docmt.checkpoint.weights import CONFIG_FILE, WEIGHTS_FILE, read_shapes
from docmt.core.errors import DocmtError, printable
from docmt.core.files import atomic_path, check_writable, read_bytes, read_json
from docmt.core.settings import plain
from docmt.model import ModelConfig
from docmt.model.linear_attention import DIRECTIONS

FORMATS = ("png", "pdf", "svg")
_COLUMNS = 3
_PANEL = (4.2, 3.0)  # inches


@dataclass
class Curve:
    """One metric over the updates of a training."""

    updates: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def read_curves(metrics: Path) -> dict[str, Curve]:
    """Every numeric metric in a metrics.jsonl, by name, as far as the run has come.

    A last line without its end is still being written and is left out. Raises DocmtError for a file that cannot be
    read or a damaged line.
    """
    advice = "name the metrics.jsonl of a run directory"
    try:
        text = read_bytes(metrics, advice=advice).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocmtError(f"cannot read {metrics}: it is no text in UTF-8; {advice}") from error
    curves: dict[str, Curve] = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            update = int(values["update"])
        except (ValueError, KeyError, TypeError) as error:
            raise DocmtError(f"{metrics}, line {number}: this is no line of metrics; {advice}") from error
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                curve = curves.setdefault(name, Curve())
                curve.updates.append(update)
                curve.values.append(value)
    return curves


def draw_curves(metrics: Mapping[str, Path], figure: Path) -> None:
    """Draws the losses and the attention entropies of trainings over their updates, one panel each, side by side.

    `metrics`: the metrics.jsonl of each training by the name that stands in the legend. `figure`: a .png, .pdf or
    .svg file. Entropies are there if the trainings had `validation.entropy` (Bao et al. 2021, figures 4, 5 and 8).
    Raises DocmtError when there is nothing to draw, the file cannot be written or matplotlib is missing.
    """
    file_format = format_of(figure)
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
    shown = [drawing.axes[0].plot([], [], color=f"C{number}")[0] for number in range(len(runs))]
    _draw_legend(drawing.axes[0], shown, list(runs))
    _save_figure(drawing, figure, file_format)


@dataclass(frozen=True)
class Point:
    """A measured value of one setting."""

    label: str
    """the setting"""
    mean: float
    """not a number where nothing is measured yet: the setting then keeps its place, empty"""
    spread: float = 0.0
    """standard deviation over seeds, 0 for a single one"""


def draw_points(
    panels: Mapping[str, Mapping[str, Sequence[Point]]],
    unit: str,
    figure: Path,
    over: str = "",
    chances: Mapping[str, float] | None = None,
) -> None:
    """Draws values over settings (input length, data scale, ...): a panel for each title, in it a line for each name.

    Settings stand side by side in the order in which they first come. over: what they are. chances: of percentages,
    what guessing gives in each panel (dotted). Raises DocmtError as `draw_curves` does.
    """
    file_format = format_of(figure)
    if all(math.isnan(point.mean) for lines in panels.values() for points in lines.values() for point in points):
        raise DocmtError("there is nothing to draw: no run has a score yet; let one finish")
    drawing = _new_drawing(len(panels))
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    handles: dict[str, Any] = {}
    for axes, (title, lines) in zip(drawing.axes, panels.items(), strict=False):
        labels = list(dict.fromkeys(point.label for points in lines.values() for point in points))
        for name, points in lines.items():
            number = names.index(name)
            # Accuracies a little beside each other, as lines of systems that see the same lie upon each other.
            apart = 0.03 * (number - len(names) / 2) if chances else 0.0
            places = [labels.index(point.label) + apart for point in points]
            means, spreads = [point.mean for point in points], [point.spread for point in points]
            style = {"color": f"C{number}", "marker": "o", "capsize": 3, "linewidth": 1.2}
            handles[name] = axes.errorbar(places, means, yerr=spreads, **style)
        axes.set_xticks(range(len(labels)), list(map(printable, labels)))
        axes.grid(alpha=0.3)
        axes.set(title=printable(title), xlabel=over, ylabel=unit)
        if chances:
            axes.axhline(chances[title], color="grey", linestyle=":", linewidth=1.2)
            axes.set_ylim(0, 103)
    _draw_legend(drawing, list(handles.values()), list(handles), loc="outside lower center", ncols=min(len(handles), 4))
    _save_figure(drawing, figure, file_format)


def _draw_legend(where: Any, handles: Sequence[Any], names: Sequence[str], **place: Any) -> None:
    """A legend of what may have any names. Those that begin with `_` matplotlib would hide, so they are set later."""
    legend = where.legend(handles, list(map(str, range(len(names)))), **place)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(printable(name))


def format_of(figure: Path) -> str:
    """The file format of a figure. Raises DocmtError for others, and where it could not be written."""
    file_format = figure.suffix.removeprefix(".").lower()
    if file_format not in FORMATS:
        raise DocmtError(f"cannot draw {figure}: name a file that ends in .{', .'.join(FORMATS)}")
    check_writable(figure)
    return file_format


def _save_figure(drawing: Any, figure: Path, file_format: str) -> None:
    """Writes a figure, in which all text stands as it is: what is between two `$` is no formula."""
    from matplotlib.text import Text

    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    with atomic_path(figure) as temporary, warnings.catch_warnings():
        # Characters that the font lacks are boxes; nobody needs a line on the terminal for each.
        warnings.filterwarnings("ignore", "Glyph")
        drawing.savefig(temporary, format=file_format, dpi=150)


def _panels(runs: Mapping[str, Mapping[str, Curve]]) -> list[tuple[str, str, dict[str, str]]]:
    """(title, unit, metrics to draw with their line styles) of every panel for which some run has a metric."""
    panels = [("loss (dotted: training, solid: dev)", "nats per token", {"loss": ":", "valid_loss": "-"})]
    panels += [(f"entropy, {kind.replace('_', ' ')}", "bits", {f"entropy_{kind}": "-"}) for kind in KINDS]
    found = [panel for panel in panels if any(name in curves for curves in runs.values() for name in panel[2])]
    if not found:
        raise DocmtError("there is nothing to draw: the metrics hold no losses and no entropies yet; train on")
    return found


def _new_drawing(panels: int) -> Any:
    """Return a matplotlib figure with axes for each panel, which belongs to no window and to no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DocmtError("figures are drawn by matplotlib, which is missing here: pip install docmt[plots]") from error
    columns, rows = min(panels, _COLUMNS), -(-panels // _COLUMNS)
    drawing = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows), layout="constrained")
    drawing.subplots(rows, columns, squeeze=False)
    for unused in drawing.axes[panels:]:
        unused.set_axis_off()
    return drawing


METRICS = "metrics.jsonl"
"""Where a run directory keeps its curves."""


@dataclass
class ModelFacts:
    """Facts of a model, as far as its directory says them."""

    place: Path
    config: ModelConfig
    languages: tuple[str, str]
    """codes, empty where they are not known"""
    tokenizer: str
    """its kind"""
    written_by: str
    """version of docmt"""
    parameters: Counter[str]
    """by the first word of their names"""
    weights: dict[str, list[int]]
    """shapes by the names that patterns of `docmt train` fit"""
    card: dict[str, dict[str, str]] = field(default_factory=dict)
    """facts of the model card by its headings, Data and Training"""
    scores: list[dict[str, str]] = field(default_factory=list)
    """metric, score and signature"""
    recipe: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    """of its run, where that is what was given"""
    drafter: Path | None = None
    """the model whose drafts it reads"""

    @classmethod
    def of(cls, directory: Path | str) -> ModelFacts:
        """What a model directory or a run directory says. Raises DocmtError where it is none, or is damaged."""
        found, config = find_model(directory), load_model_config(directory)
        shapes = read_shapes(found / WEIGHTS_FILE).items()
        weights = {name: shape for name, shape in shapes if not name.endswith(DIRECTIONS)}  # which are drawn
        parameters = Counter[str]()
        for name, shape in weights.items():
            parameters[name.partition(".")[0]] += prod(shape)
        facts = cls(
            found,
            config,
            load_languages(directory),
            load_model_tokenizer(directory).kind,
            str(read_json(found / CONFIG_FILE).get("docmt_version", "")),
            parameters,
            weights,
        )
        facts._read_card()
        metrics = Path(directory, METRICS)
        if metrics.exists():
            facts.curves = read_curves(metrics)
        if config.chosen.context_spec().drafts:
            facts.drafter = find_drafter(directory)
        return facts

    def _read_card(self) -> None:
        """What the page beside the weights says; people may have written another one, which says less."""
        with suppress(DocmtError, UnicodeDecodeError):
            text = read_bytes(self.place / CARD_FILE, regular=True).decode("utf-8")
            sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
            for heading in ("Data", "Training"):
                if facts := dict(re.findall(r"^- ([^:\n]+): (.*)$", sections.get(heading, ""), re.M)):
                    self.card[heading] = facts
            rows = re.findall(r"^\| (?!metric )(.+?) \| ([\d.]+) \| `(.*)` \|$", sections.get("Scores", ""), re.M)
            self.scores = [
                {"metric": metric, "score": score, "signature": signature.replace("\\|", "|")}
                for metric, score, signature in rows
            ]
            recipe = re.search(r"```json\n(.*?)\n```", sections.get("Recipe", ""), re.S)
            with suppress(ValueError, RecursionError):
                values = json.loads(recipe[1]) if recipe else {}
                self.recipe = values if isinstance(values, dict) else {}

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "model": str(self.place),
            "system": self.config.system,
            "source_language": self.languages[0],
            "target_language": self.languages[1],
            "tokenizer": self.tokenizer,
            "docmt_version": self.written_by,
            "parameters": {"all": self.parameters.total(), **self.parameters},
            "weights": self.weights,
            "config": plain(self.config),
            **{heading.lower(): facts for heading, facts in self.card.items()},
            "scores": self.scores,
            "run": best_of(self.curves),
            "drafter": str(self.drafter or ""),
            "recipe": self.recipe,
        }

    def format(self) -> str:
        """For people."""
        config = self.config
        pair = " to ".join(self.languages) if all(self.languages) else "languages not recorded"
        parts = ", ".join(f"{name} {_millions(count)}" for name, count in self.parameters.items())
        encoder = ""
        if config.encoder_width:
            encoder = f"; encoder {config.encoder_width}, {config.encoder_feed_forward}, {config.encoder_heads} heads"
        family = "" if config.family == "docmt" else f" of family {config.family}"
        lines = [
            f"{self.place}: {config.system} model{family}, {pair}, written by docmt {self.written_by}",
            "",
            *_listed(
                {
                    "layers": f"{config.encoder_layers} + {config.decoder_layers}",
                    "width": f"{config.width}, feed-forward {config.feed_forward}, {config.heads} heads{encoder}",
                    "norms": f"{config.normalization}-norm, {config.activation}",
                    "positions": f"{config.position_encoding}, by {'sentence' if config.restarts else 'document'}",
                    "vocabulary": f"{config.vocabulary_size:,}, tokenizer {self.tokenizer}",
                    "reads at once": f"fewer than {config.instance_tokens:,} tokens, {_reads(config)}",
                    "parameters": f"{_millions(self.parameters.total())} ({parts})",
                }
            ),
        ]
        run = best_of(self.curves).items()
        blocks: dict[str, Mapping[str, object]] = {
            f"Options of {config.system}": vars(config.chosen),
            "Options of linear attention": vars(config.linear) if config.chosen.linear else {},
            **self.card,
            "Drafts": {"by": self.drafter} if self.drafter else {},
            "Started from": {name: self.recipe[name] for name in _STARTS if self.recipe.get(name)},
            "Run": {name.replace("_", " "): f"{value:,.5g}" for name, value in run},
            "Scores": {row["metric"]: f"{row['score']} ({row['signature']})" for row in self.scores},
        }
        for heading, facts in blocks.items():
            if facts:
                lines += ["", heading, *_listed(facts)]
        return "\n".join(lines)


_STARTS = ("initialize_from", "initialize_reverse_from")


def best_of(curves: Mapping[str, Curve]) -> dict[str, float]:
    """The last update of a training, the best dev loss and when that was; what it does not have is left out."""
    found: dict[str, float] = {}
    if curves:
        found["updates"] = max(curve.updates[-1] for curve in curves.values())
    for name in ("loss", "seconds"):
        if name in curves:
            found[f"last_{name}" if name == "loss" else name] = curves[name].values[-1]
    if "valid_loss" in curves:
        own = curves["valid_loss"]
        place = min(range(len(own.values)), key=own.values.__getitem__)
        found |= {"best_dev_loss": own.values[place], "at_update": own.updates[place]}
    return found


def _reads(config: ModelConfig) -> str:
    context_spec = config.chosen.context_spec()
    sentences = "as many sentences as fit"
    if context_spec.sentences is not None:
        sentences = f"{context_spec.sentences} sentence{'' if context_spec.sentences == 1 else 's'}"
    more = [
        f"{count} {name}"
        for count, name in ((context_spec.before, "before"), (context_spec.shown, "translations before"))
        if count
    ]
    return ", ".join([sentences, *more])


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} million" if count >= 1e4 else f"{count:,}"


def _listed(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts))
    return [f"  {name:<{width}}  {value}" for name, value in facts.items()]
