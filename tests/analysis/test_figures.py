"""Curves read from metrics.jsonl, and figures of them."""

import json
import math
import sys
import warnings
from xml.etree import ElementTree

import pytest

from docmt.analysis import KINDS, Point, draw_curves, draw_points, figures, read_curves
from docmt.core.errors import DocmtError

FULL = pytest.mark.full


def write_metrics(path, entropy=True, steps=6):
    with path.open("w") as file:
        for update in range(2, 2 * steps + 1, 2):
            file.write(json.dumps({"update": update, "epoch": 0, "loss": 8 / update, "nll": 7 / update}) + "\n")
            if update % 4 == 0:
                line = {"update": update, "valid_loss": 9 / update, "best": True}
                line |= {f"entropy_{kind}": 1 + number / update for number, kind in enumerate(KINDS) if entropy}
                file.write(json.dumps(line) + "\n")
    return path


def test_every_number_is_a_curve(tmp_path):
    curves = read_curves(write_metrics(tmp_path / "metrics.jsonl"))
    assert curves["loss"].updates == [2, 4, 6, 8, 10, 12]
    assert curves["loss"].values[:2] == [4.0, 2.0]
    assert curves["entropy_encoder_self_global"].updates == [4, 8, 12]
    assert curves["entropy_encoder_self_global"].values[0] == 1.25
    assert "best" not in curves


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    path = write_metrics(tmp_path / "metrics.jsonl")
    whole = read_curves(path)
    path.open("a").write('{"update": 14, "loss": 0.')
    assert read_curves(path) == whole


@pytest.mark.parametrize("line", ["oops", '{"loss": 1}', "[1]", '{"update": "x"}', ""])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1, "loss": 2.0}\n' + line + "\n")
    with pytest.raises(DocmtError, match=r"metrics.jsonl, line 2: not a line of metrics; give"):
        read_curves(path)


def test_files_that_cannot_be_read_or_drawn(tmp_path):
    metrics = write_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(DocmtError, match=r"cannot read .*nothing.jsonl: there is no such file"):
        read_curves(tmp_path / "nothing.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(DocmtError, match=r"cannot read .*binary: it is not UTF-8 text"):
        read_curves(tmp_path / "binary")
    with pytest.raises(DocmtError, match=r"cannot draw .*x.gif: give a file name that ends in .png, .pdf, .svg"):
        draw_curves({"one": metrics}, tmp_path / "x.gif")
    with pytest.raises(DocmtError, match="there is no directory"):
        draw_curves({"one": metrics}, tmp_path / "missing" / "x.png")
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n')
    with pytest.raises(DocmtError, match="there is nothing to draw"):
        draw_curves({"one": metrics}, tmp_path / "x.png")


def test_without_matplotlib_the_user_is_told_what_to_install(tmp_path, monkeypatch):
    metrics = write_metrics(tmp_path / "metrics.jsonl")
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DocmtError, match=r"a figure needs matplotlib: run pip install '\.\[plots\]'"):
        draw_curves({"one": metrics}, tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    ("suffix", "start"), [pytest.param("png", b"\x89PNG", marks=FULL), pytest.param("pdf", b"%PDF", marks=FULL)]
)
def test_a_figure_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    runs = {"group": write_metrics(tmp_path / "a.jsonl"), "document": write_metrics(tmp_path / "b.jsonl", False, 3)}
    draw_curves(runs, tmp_path / f"curves.{suffix}")
    assert (tmp_path / f"curves.{suffix}").read_bytes().startswith(start)


@pytest.fixture
def drawings(monkeypatch):
    """Every drawing that is made."""
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    figures_drawn, original = [], figures._new_drawing

    def keep(panels):
        figures_drawn.append(original(panels))
        return figures_drawn[-1]

    monkeypatch.setattr(figures, "_new_drawing", keep)
    return figures_drawn


NAMES = ["b$\\x", "_run", "$x_1^$", "a\x1b[2J", "\udcff", "\u05d0\u65e5", "&<--"]
"""What is a formula, hidden, no XML or no character to others, as the name of a run."""
SHOWN = ["b$\\x", "_run", "$x_1^$", "a\\x1b[2J", "\\udcff", "\u05d0\u65e5", "&<--"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "suffix"), [("points", "svg"), ("curves", "png"), ("accuracies", "pdf"), ("curves", "svg")]
)
def test_names_are_shown_as_they_are(tmp_path, drawings, kind, suffix):
    from matplotlib.text import Text

    figure = tmp_path / f"x.{suffix}"
    lines = {name: [Point(label, 50.0) for label in NAMES] for name in NAMES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if kind == "curves":
            draw_curves(dict.fromkeys(NAMES, write_metrics(tmp_path / "metrics.jsonl")), figure)
        elif kind == "points":
            draw_points(dict.fromkeys(NAMES, lines), "d-BLEU", figure)
        else:
            draw_points(dict.fromkeys(NAMES, lines), "%", figure, "distance", dict.fromkeys(NAMES, 50.0))
    if suffix == "svg":
        ElementTree.parse(figure)
    (drawing,) = drawings
    texts = [text.get_text() for text in drawing.findobj(Text) if text.get_visible()]
    times = {"curves": 1, "points": 7 + 1 + 1, "accuracies": 7 + 1 + 1}[kind]  # in legends, as settings, as titles
    assert {text: texts.count(text) for text in SHOWN} == dict.fromkeys(SHOWN, times)


def test_points_stand_over_their_settings(tmp_path, drawings):
    document = [Point("64", math.nan), Point("128", 12.0, 0.5), Point("256", 3.0)]
    group = [Point("64", 10.0), Point("128", 11.0), Point("256", 12.0)]
    panels = {"length": {"document": document, "group": group}, "size": {"group": [Point("base", 9.0)]}}
    draw_points(panels, "d-BLEU", tmp_path / "points.svg")
    assert (tmp_path / "points.svg").read_bytes().startswith(b"<?xml")
    length, size = drawings[0].axes
    assert [text.get_text() for text in length.get_xticklabels()] == ["64", "128", "256"]
    assert [list(line[0].get_xdata()) for line in length.containers] == [[0, 1, 2]] * 2
    assert list(length.containers[1][0].get_ydata()) == [10, 11, 12]
    assert (length.get_title(), size.get_title(), size.get_ylabel()) == ("length", "size", "d-BLEU")
    with pytest.raises(DocmtError, match="there is nothing to draw, as no run has a score yet"):
        draw_points({"length": {"document": document[:1]}}, "d-BLEU", tmp_path / "points.png")
    with pytest.raises(DocmtError, match=r"cannot draw .*points.gif"):
        draw_points(panels, "d-BLEU", tmp_path / "points.gif")


def test_every_run_is_a_line_in_every_panel_that_it_has(tmp_path, drawings):
    runs = {"group": write_metrics(tmp_path / "a.jsonl"), "document": write_metrics(tmp_path / "b.jsonl", False, 3)}
    draw_curves(runs, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")
    panels = drawings[0].axes
    assert len(panels) == 9
    assert [panel.axison for panel in panels] == [True] * 7 + [False] * 2
    assert [panel.get_title() for panel in panels[1:7]] == [f"entropy, {k.replace('_', ' ')}" for k in KINDS]
    lines = [(list(line.get_xdata()), line.get_color(), line.get_linestyle()) for line in panels[0].lines]
    assert [(updates[-1], *look) for updates, *look in lines if updates] == [
        *((12, "C0", ":"), (12, "C0", "-")),
        *((6, "C1", ":"), (4, "C1", "-")),
    ]
    legend = panels[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["group", "document"]
    assert [line.get_color() for line in legend.get_lines()] == ["C0", "C1"]
    (entropy,) = panels[2].lines
    assert (list(entropy.get_xdata()), list(entropy.get_ydata())) == ([4, 8, 12], [1.25, 1.125, 1 + 1 / 12])
    assert [panel.get_legend() is not None for panel in panels] == [True] + [False] * 8
