"""Curves read from metrics.jsonl, and figures of them."""

import json
import math
import sys

import pytest

from docmt.analysis import KINDS, Point, draw_curves, draw_points, figures, read_curves
from docmt.errors import DocmtError


def write_metrics(path, entropy=True, steps=6):
    with path.open("w") as file:
        for update in range(2, 2 * steps + 1, 2):
            file.write(json.dumps({"update": update, "epoch": 0, "loss": 8 / update, "nll": 7 / update}) + "\n")
            if update % 4 == 0:
                line = {"update": update, "valid_loss": 9 / update, "best": True}
                line |= {f"entropy_{kind}": 1 + place / update for place, kind in enumerate(KINDS) if entropy}
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
    with pytest.raises(DocmtError, match=r"metrics.jsonl, line 2: this is no line of metrics; name"):
        read_curves(path)


def test_files_that_cannot_be_read_or_drawn(tmp_path):
    metrics = write_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(DocmtError, match=r"cannot read .*nothing.jsonl: there is no such file"):
        read_curves(tmp_path / "nothing.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(DocmtError, match=r"cannot read .*binary: it is no text in UTF-8"):
        read_curves(tmp_path / "binary")
    with pytest.raises(DocmtError, match=r"cannot draw .*x.gif: name a file that ends in .png, .pdf, .svg"):
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
    with pytest.raises(DocmtError, match=r"pip install docmt\[plots\]"):
        draw_curves({"one": metrics}, tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_figure_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    runs = {"group": write_metrics(tmp_path / "a.jsonl"), "document": write_metrics(tmp_path / "b.jsonl", False, 3)}
    draw_curves(runs, tmp_path / f"curves.{suffix}")
    assert (tmp_path / f"curves.{suffix}").read_bytes().startswith(start)


class Recorder:
    """Stands in for a matplotlib figure, and its axes, and notes what is asked of it."""

    def __init__(self, panels=0):
        self.axes = [Recorder() for _ in range(panels)]
        self.lines, self.settings, self.off, self.legends = [], {}, False, 0

    def plot(self, updates, values, *style, **settings):
        self.lines.append((list(updates), list(values), *style, settings))

    def set(self, **settings):
        self.settings |= settings

    def grid(self, **settings):
        pass

    def set_axis_off(self):
        self.off = True

    def legend(self):
        self.legends += 1

    def savefig(self, path, **settings):
        path.write_text(settings["format"])


def test_points_stand_over_their_settings(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    drawings, original = [], figures._new_drawing

    def keep(columns, rows):
        drawings.append(original(columns, rows))
        return drawings[-1]

    monkeypatch.setattr(figures, "_new_drawing", keep)
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
    with pytest.raises(DocmtError, match="there is nothing to draw: no run has a score yet"):
        draw_points({"length": {"document": document[:1]}}, "d-BLEU", tmp_path / "points.png")
    with pytest.raises(DocmtError, match=r"cannot draw .*points.gif"):
        draw_points(panels, "d-BLEU", tmp_path / "points.gif")


def test_every_run_is_a_line_in_every_panel_that_it_has(tmp_path, monkeypatch):
    drawings = []

    def record(columns, rows):
        drawings.append(Recorder(columns * rows))
        return drawings[-1]

    monkeypatch.setattr("docmt.analysis.figures._new_drawing", record)
    runs = {"group": write_metrics(tmp_path / "a.jsonl"), "document": write_metrics(tmp_path / "b.jsonl", False, 3)}
    draw_curves(runs, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text() == "svg"
    panels = drawings[0].axes
    assert len(panels) == 9
    assert [panel.off for panel in panels] == [False] * 7 + [True] * 2
    assert [panel.settings.get("title") for panel in panels[1:7]] == [f"entropy, {k.replace('_', ' ')}" for k in KINDS]
    assert [(line[0][-1:], line[3]["color"]) for line in panels[0].lines if len(line) > 3] == [
        ([12], "C0"),
        ([12], "C0"),
        ([6], "C1"),
        ([4], "C1"),
    ]
    assert [line[-1] for line in panels[0].lines if not line[0]] == [
        {"color": "C0", "label": "group"},
        {"color": "C1", "label": "document"},
    ]
    assert panels[2].lines == [([4, 8, 12], [1.25, 1.125, 1 + 1 / 12], "-", {"color": "C0", "linewidth": 1.2})]
    assert [panel.legends for panel in panels] == [1] + [0] * 8
