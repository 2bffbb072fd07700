"""A picture of one document: which sentences each sentence looks at, and how far gates are open at each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.analysis.figures import PANEL, format_of, new_figure, save_figure
from docmt.analysis.looks import Site
from docmt.analysis.sentences import EVEN, DocumentLooks, Row, side_of
from docmt.core.errors import DocmtError, printable

_COLUMNS = 3
_MOST_CELLS = 500
"""Sentences that a map shows one by one; of a longer document several share a cell."""
_MOST_TOKENS = 160
"""Tokens that gates are shown for one by one, with their text; of a longer document sentences are."""
_LAYER_HEIGHT, _TOKEN_WIDTH, _TOKEN_HEIGHT, _LABELS_HEIGHT = 0.3, 0.14, 0.16, 0.9  # inches

_BRIGHTEST = 0.98
"""The part of a map that is at most as bright as the brightest colour."""
_LEAST = 0.01
"""The least that the brightest colour stands for, as no colours are left where all is the same."""

Numbers = NDArray[np.float64]


def draw_document(
    looks: DocumentLooks,
    pieces: Mapping[str, Sequence[Sequence[str]]],
    figure: Path,
    layer: int | None = None,
    head: int | None = None,
    relative: bool = False,
) -> None:
    """Draws a map for each kind of attention that chooses among sentences, below them one of the tokens of one sentence
    (if `looks` has one), and a strip for each kind of gate.

    pieces: the text of the tokens of each sentence by side (source, target), marks included. layer (from 1) and head
    (from 0): of these alone; otherwise maps are means over them. relative: maps show weights beside those of even
    attention (log2 of their ratio), which are larger for longer sentences. `figure`: a .png, .pdf or .svg file. Raises
    DocmtError when there is nothing to draw, the file cannot be written or matplotlib is missing.
    """
    file_format = format_of(figure)
    maps = {kind: rows for kind in looks.kinds() if (rows := looks.rows(kind, layer, head))}
    tokens = {kind: rows for kind in looks.kinds() if (rows := looks.token_rows(kind, layer, head))}
    gates = _by_kind([(site, own) for site, own in looks.gates.items() if layer in (None, site.layer)])
    if not maps and not gates:
        raise DocmtError(
            "there is nothing to draw: no attention here chooses among several sentences, and there are no gates; "
            "choose another model, or leave out --layer"
        )
    strips = [_strip(kind, own, pieces) for kind, own in gates.items()]
    columns = max(1, min(len(maps), _COLUMNS))
    tallest = max(map(len, tokens.values()), default=0)
    heights = [PANEL[1]] * -(-len(maps) // columns)
    heights += [max(PANEL[1], 1 + _TOKEN_HEIGHT * tallest)] * -(-len(tokens) // columns)
    above = len(heights)
    heights += [0.5 + _LAYER_HEIGHT * len(values) + _LABELS_HEIGHT * bool(labels) for _, values, labels, _ in strips]
    widest = max((len(labels) for _, _, labels, _ in strips), default=0)
    drawing = new_figure(max(PANEL[0] * columns, _TOKEN_WIDTH * widest + 2), sum(heights))
    grid = drawing.add_gridspec(len(heights), columns, height_ratios=heights)
    for place, (kind, rows) in enumerate(maps.items()):
        axes = drawing.add_subplot(grid[place // columns, place % columns])
        even = looks.rows(kind, layer, EVEN) if relative else None
        _draw_map(drawing, axes, kind, rows, even, looks.sentences, [])
    for place, (kind, rows) in enumerate(tokens.items()):
        axes = drawing.add_subplot(grid[-(-len(maps) // columns) + place // columns, place % columns])
        even = looks.token_rows(kind, layer, EVEN) if relative else None
        _draw_map(drawing, axes, kind, rows, even, looks.sentences, pieces[side_of(kind)][looks.sentence or 0])
    for place, strip in enumerate(strips, above):
        _draw_strip(drawing, drawing.add_subplot(grid[place, :]), strip)
    save_figure(drawing, figure, file_format)


def matrix(rows: Mapping[int, Row], asking: int, seen: int, most_cells: int = _MOST_CELLS) -> Numbers:
    """[asking, seen] what each sentence (or token) looks at; nan: what it does not see.

    Of more than `most_cells` several share a cell: what they look at on average, in all that is seen together.
    """
    height, width = min(asking, most_cells), min(seen, most_cells)
    found, sees, counts = np.zeros((height, width)), np.zeros((height, width), dtype=bool), np.zeros(height)
    for number, row in rows.items():
        place = number * height // asking
        columns = (row.first + np.arange(len(row.weights))) * width // seen
        np.add.at(found[place], columns, row.weights.numpy())
        sees[place, columns] = True
        counts[place] += 1
    return np.where(sees, found / np.maximum(counts, 1)[:, None], np.nan)


def _draw_map(
    drawing: Any,
    axes: Any,
    kind: str,
    rows: Mapping[int, Row],
    even: Mapping[int, Row] | None,
    sentences: int,
    labels: Sequence[str],
) -> None:
    """labels: of the tokens that ask, where it is these; even: beside what weights are shown."""
    asking = len(labels) or sentences
    values = matrix(rows, asking, sentences)
    shown: dict[str, Any] = {"cmap": "viridis", "vmin": 0}
    if even is not None:
        with np.errstate(divide="ignore"):
            values = np.log2(values / matrix(even, asking, sentences))
        values[np.isinf(values)] = np.nan
        shown["cmap"] = "coolwarm"
    extent = (0.5, sentences + 0.5, asking + 0.5, 0.5)  # sentences are counted from 1
    # The first sentences see little and so give it much weight: they are not to decide over the colours of all.
    brightest = float(np.nanquantile(values if even is None else np.abs(values), _BRIGHTEST))
    brightest = max(brightest, _LEAST)
    shown |= {"vmax": brightest, "extent": extent, "interpolation": "nearest"}
    if even is not None:
        shown["vmin"] = -brightest
    image = axes.imshow(values, aspect="auto" if labels else "equal", **shown)
    title = kind.replace("_", " ")
    axes.set(
        title=title if even is None else f"{title}, log2 (weight / even)",
        xlabel="sentence that is looked at",
        ylabel="" if labels else "sentence",
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    if labels:
        axes.set_yticks(range(1, asking + 1), list(map(printable, labels)), fontsize=7)
    else:
        axes.yaxis.get_major_locator().set_params(integer=True)
    drawing.colorbar(image, ax=axes, shrink=0.8, extend="max" if np.nanmax(values) > brightest else "neither")


Strip = tuple[str, list[list[float]], list[str], list[int]]
"""Title, values by layer, labels of tokens (none: a value for each sentence), and the layers."""
_Gate = tuple[Site, dict[int, list[float | None]]]


def _by_kind(gates: Sequence[_Gate]) -> dict[str, list[_Gate]]:
    """The gates of each kind, bottom to top."""
    found: dict[str, list[_Gate]] = {}
    for site, own in gates:
        found.setdefault(site.kind, []).append((site, own))
    return found


def _strip(kind: str, gates: Sequence[_Gate], pieces: Mapping[str, Sequence[Sequence[str]]]) -> Strip:
    side = pieces[side_of(kind)]
    sentences = range(len(side))
    labels = [piece for sentence in side for piece in sentence]
    title = f"gate, {kind.replace('_', ' ')}: share of context"
    layers = [site.layer for site, _ in gates]
    if len(labels) <= _MOST_TOKENS:
        by_token = [
            [np.nan if share is None else share for sentence in sentences for share in own.get(sentence, [])]
            for _, own in gates
        ]
        return title, by_token, labels, layers
    means = [[_mean(own.get(sentence, [])) for sentence in sentences] for _, own in gates]
    return f"{title}, mean over the tokens of each sentence", means, [], layers


def _mean(shares: Sequence[float | None]) -> float:
    there = [share for share in shares if share is not None]
    return sum(there) / len(there) if there else float("nan")


def _draw_strip(drawing: Any, axes: Any, strip: Strip) -> None:
    title, values, labels, layers = strip
    first = 0 if labels else 1  # sentences are counted from 1
    extent = (first - 0.5, first + len(values[0]) - 0.5, len(values) - 0.5, -0.5)
    shown = {"cmap": "viridis", "vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(np.array(values), **shown)
    axes.set(title=title, ylabel="layer")
    axes.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    if labels:
        axes.set_xticks(range(len(labels)), list(map(printable, labels)), rotation=90, fontsize=7)
    else:
        axes.set_xlabel("sentence")
    drawing.colorbar(image, ax=axes)
