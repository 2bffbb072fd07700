"""A page to send: scores of systems with intervals and tests, pictures, and the documents on which they differ most.

Notation: S systems, D documents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from docmt.core.html_page import escape_text, mark_spans, render_page
from docmt.documents.segmentation import UNSPACED_SCRIPT
from docmt.evaluation.metric_config import METRIC_NAMES, MetricConfig
from docmt.evaluation.metrics import Evaluation, evaluate_documents
from docmt.evaluation.output_alignment import Documents, Sources
from docmt.evaluation.significance import Comparison, scores_by_position

MOST_DOCUMENTS = 20
MOST_SENTENCES = 40
"""Sentences of a document that are shown; those on which systems agree are left out but for the one before."""
_COLORS = 6  # of the page
_WORD = re.compile(rf"{UNSPACED_SCRIPT.pattern}|(?:(?!{UNSPACED_SCRIPT.pattern})\w)+|[^\w\s]")
_DIFFERENCES = '<p class="less">Row minus column. Bold: p &lt; 0.05, without correction for many tests.</p>'


def render_report(
    title: str, comparison: Comparison, sources: Sources, references: Documents, translations: Mapping[str, Documents]
) -> str:
    """Return the report on the systems of a comparison as an HTML page.

    sources: [D] ids and sentences; references and translations, by system: [D] sentences.
    """
    systems, names = comparison.systems, list(comparison.systems)
    metric = next((key for key in systems[names[0]].metrics if key in ("d_chrf", "d_chrf_pp")), "d_chrf")
    label, scores = METRIC_NAMES[metric], _score_documents(systems, translations, references, metric)
    spread = scores.max(axis=0) - scores.min(axis=0)
    ranked = [int(number) for number in np.argsort(-spread, kind="stable") if spread[number] > 0][:MOST_DOCUMENTS]
    figures = [_draw_documents(names, label, scores, [id for id, _ in sources]), *_draw_positions(comparison)]
    sections = [_table(comparison), "<h2>Significance</h2>", _DIFFERENCES, *_beside(_matrices(comparison))]
    legend = "&emsp;".join(_key(number) + escape_text(name) for number, name in enumerate(names))
    sections += [f"<h2>By document and by position</h2><p>{legend}</p>", *_beside(figures)]
    sections.append(f"<h2>The {len(ranked)} documents that differ most in {label}</h2>")
    sections.append('<p class="less">Marked: words that differ from the first system, and there from any other.</p>')
    for number in ranked:
        values = ", ".join(f"{name} {value:.1f}" for name, value in zip(names, scores[:, number], strict=True))
        head = f"<summary>document {escape_text(sources[number][0])}</summary>"
        sections.append(f'<details open>{head}<p class="less">{escape_text(values)}</p>')
        texts = [sources[number][1], references[number], *(translations[name][number] for name in names)]
        sections += [*_list_sentences(names, texts), "</details>"]
    return render_page(title, sections)


def _key(number: int) -> str:
    kind = "key hollow" if number // _COLORS % 2 else "key"
    return f'<span class="{kind}" style="color: var(--{number % _COLORS})"></span> '


def _beside(parts: Iterable[str]) -> list[str]:
    return ['<div class="beside">', *parts, "</div>"]


def _rows(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of HTML cells with a header."""
    tags = ["th", *["td"] * (len(rows) - 1)]
    cells = ["".join(f"<{tag}>{cell}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=True)]
    return f'<div class="wide"><table>{"".join(f"<tr>{row}</tr>" for row in cells)}</table></div>'


def _table(comparison: Comparison) -> str:
    """Return the scores of all systems, and the notes."""
    rows = [[escape_text(cell) for cell in row] for row in comparison.rows()]
    rows = [rows[0], *([_key(number) + row[0], *row[1:]] for number, row in enumerate(rows[1:]))]
    signatures = [f"{METRIC_NAMES[key]}: {signature}" for key, signature in comparison.signatures().items()]
    notes = "<br>".join(map(escape_text, [*comparison.notes(), *signatures]))
    return f'{_rows(rows)}<p class="less">{notes}</p>'


def _matrices(comparison: Comparison) -> Iterator[str]:
    """Yield the p-values of all pairs of systems in each metric."""
    names = list(map(escape_text, comparison.systems))
    for key, outcomes in comparison.outcomes.items():
        rows = [[METRIC_NAMES[key], *names[:-1]]]
        digits = next((score.digits for each in comparison.systems.values() if (score := each.metrics[key])), 2)
        for second, outcome in enumerate(outcomes[1:], 1):
            cells = []
            for first in range(second):
                difference = outcome and outcome.differences.get(first)
                text = f"{difference.value:+.{digits}f}, p {difference.p_value:.4f}" if difference else "-"
                cells.append(f"<b>{text}</b>" if difference and difference.is_significant else text)
            rows.append([names[second], *cells])
        yield _rows(rows)


def _score_documents(
    systems: Mapping[str, Evaluation], translations: Mapping[str, Documents], references: Documents, metric: str
) -> NDArray[np.float64]:
    """Return the d-chrF or d-chrF++ of each document [S, D], which all systems have, whatever is in the tables."""
    config = MetricConfig(names=[METRIC_NAMES[metric]])
    metrics = [
        each.metrics.get(metric) or evaluate_documents(translations[name], references, config).metrics[metric]
        for name, each in systems.items()
    ]
    return np.array([score.formula(score.by_document(len(references))) for score in metrics if score is not None])


def _draw_documents(names: Sequence[str], metric: str, scores: NDArray[np.float64], ids: Sequence[str]) -> str:
    """Return a picture with a point for each document: score of the baseline across, of another system up."""
    low, high = float(scores.min()), float(scores.max())
    points = [
        (number, float(across), float(up), None, f"{id}: {names[0]} {across:.1f}, {names[number]} {up:.1f}")
        for number in range(1, len(names))
        for id, across, up in zip(ids, scores[0], scores[number], strict=True)
    ]
    title = f"{metric} of each document: {names[0]} across, the others up; better above the line"
    return _draw(title, points, {value: f"{value:g}" for value in _ticks(low, high)}, (low, high), True)


def _draw_positions(comparison: Comparison) -> Iterator[str]:
    """Yield pictures of scores by the position of sentences, of the systems that have scores of sentences."""
    names = list(comparison.systems)
    if not any(each.sentence_metrics() for each in comparison.systems.values()):
        return
    buckets = scores_by_position(comparison.systems, comparison.config).buckets
    defined = next(iter(buckets.values())).systems
    others = ", ".join(name for name in names if name not in defined)
    remark = f", without {others}: other sentences than the source" if others else ""
    for metric in next(iter(defined.values())):
        points = []
        for place, (bucket, scores) in enumerate(buckets.items()):
            for name, each in scores.systems.items():
                number, value = names.index(name), each[metric]
                ends = None if value.low is None or value.high is None else (value.low, value.high)
                x = place + 0.12 * (number - (len(names) - 1) / 2)
                points.append((number, x, value.value, ends, f"{name}, sentence {bucket}: {value.format(2)}"))
        heights = [end for _, _, value, ends, _ in points for end in (value, *(ends or ()))]
        title = f"{METRIC_NAMES[metric]} by position of sentences in documents{remark}"
        yield _draw(title, points, dict(enumerate(buckets)), (min(heights), max(heights)))


Point = tuple[int, float, float, tuple[float, float] | None, str]
"""Number of the system, place across and up, interval, and description."""


def _draw(
    title: str,
    points: Sequence[Point],
    columns: Mapping[float, str],
    heights: tuple[float, float],
    diagonal: bool = False,
) -> str:
    """Return points with axes as SVG. columns: labels across by place. diagonal: both axes are the same, and drawn."""
    width, height, left, below = 560, 360, 45, 25
    xs = heights if diagonal else (min(columns) - 0.5, max(columns) + 0.5)

    def across(value: float) -> float:
        return round(float(np.interp(value, xs, (left + 8, width - 8))), 1)

    def up(value: float) -> float:
        return round(float(np.interp(-value, (-heights[1], -heights[0]), (8, height - below - 8))), 1)

    lines = [
        f'<path class="axis" d="M{left} {up(tick)}H{width}"/><text x="{left - 6}" y="{up(tick) + 4}" '
        f'text-anchor="end">{tick:g}</text>'
        for tick in _ticks(*heights)
    ]
    lines += [
        f'<text x="{across(tick)}" y="{height - 6}" text-anchor="middle">{label}</text>'
        for tick, label in columns.items()
    ]
    if diagonal:
        low, high = heights
        lines.append(f'<path class="axis" d="M{across(low)} {up(low)}L{across(high)} {up(high)}"/>')
    for number, x, y, ends, label in points:
        color = f"var(--{number % _COLORS})"
        fill = f'fill="none" stroke="{color}"' if number // _COLORS % 2 else f'fill="{color}" fill-opacity=".7"'
        bar = f'<path stroke="{color}" d="M{across(x)} {up(ends[0])}V{up(ends[1])}"/>' if ends else ""
        circle = f'<circle cx="{across(x)}" cy="{up(y)}" r="4" {fill}/>'
        lines.append(f"<g>{bar}{circle}<title>{escape_text(label)}</title></g>")
    svg = f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img">{"".join(lines)}</svg>'
    return f"<figure><figcaption>{escape_text(title)}</figcaption>{svg}</figure>"


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-6)))
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if (high - low) / (step * factor) <= 6)
    return [round(number * step, 9) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _list_sentences(names: Sequence[str], sides: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the sentences of a document that systems translate differently, each after the one before.

    sides: source, reference, then the systems. With other numbers of sentences, the document is one.
    """
    if len(set(map(len, sides))) > 1:
        sides = [[" ".join(sentences)] for sentences in sides]
    labels = ["source", "reference", *(_key(number) + escape_text(name) for number, name in enumerate(names))]
    rows, shown = list(zip(*sides, strict=True)), 0
    differs = [len(set(row[2:])) > 1 for row in rows]
    for number, (source, reference, first, *others) in enumerate(rows):
        if not any(differs[number : number + 2]):
            continue
        if (shown := shown + 1) > MOST_SENTENCES:
            yield f'<p class="less">... and more, {sum(differs[number:])} of them with differences</p>'
            return
        spans = [_find_differences(first, text) for text in others]
        marks = [[span for left, _ in spans for span in left], *(right for _, right in spans)]
        texts = [escape_text(source), escape_text(reference), *map(mark_spans, (first, *others), marks)]
        cells = (
            f'<p dir="auto"><span class="less" dir="auto">{label}</span><br>{text}</p>'
            for label, text in zip(labels, texts, strict=True)
        )
        yield f'<div class="sentence">{"".join(cells)}</div>'


def _find_differences(one: str, other: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the characters of words that differ, in each of two texts."""
    words = [list(_WORD.finditer(text)) for text in (one, other)]
    left, right = ([word[0] for word in side] for side in words)
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for operation, *ends in matcher.get_opcodes():
        for side, (first, last) in enumerate((ends[:2], ends[2:])):
            if operation != "equal" and first < last:
                spans[side].append((words[side][first].start(), words[side][last - 1].end()))
    return spans
