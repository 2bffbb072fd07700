"""Progress: how long something will take, in plain lines and on a terminal."""

import io
import re

import pytest
from rich.console import Console

from docmt.core import progress as module
from docmt.core.progress import progress, progress_prefix


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only as told, for what looks at the clock here."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("total", "shown"),
    [
        (40, "work: 10 of 40 note (0:20, 1:00 left)\n"),
        (2000, "work: 10 of 2000 note (0:20, 1:06:20 left)\n"),
        (None, "work: 10 note (0:20)\n"),
    ],
)
def test_plain_lines(clock, capsys, total, shown):
    with progress("work", total) as bar:
        clock[0] += 20
        bar.advance(10, "note")
        bar.advance(1, "note")  # not again within ten seconds
    assert capsys.readouterr().err == shown


def test_lines_of_a_long_run_become_rarer(clock, capsys):
    with progress("work", 3600) as bar:
        for _ in range(3600):
            clock[0] += 1
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines[:5]] == ["10", "20", "30", "40", "54"]
    assert 18 < len(lines) < 26, "an hour"


def test_what_the_work_belongs_to(clock, capsys, monkeypatch):
    def line():
        with progress("work") as bar:
            clock[0] += 20
            bar.advance(1)
        return capsys.readouterr().err

    name = "runs/[bold]\n"
    with progress_prefix(name):
        assert line() == "runs/[bold]\\n: work: 1  (0:20)\n"
        with progress_prefix("inner"), progress_prefix(""):
            assert line() == "runs/[bold]\\n: inner: work: 1  (0:20)\n"
    assert line() == "work: 1  (0:20)\n"
    screen = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda file: Console(file=screen, force_terminal=True, width=120))
    with progress_prefix(name), progress("work", 40):
        pass
    assert "runs/[bold]\\n: work" in screen.getvalue()


def test_a_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda file: Console(file=screen, force_terminal=True, width=120))
    with progress("work", 40) as bar:
        bar.advance(10, "a note")
    assert "a note" in screen.getvalue()
    assert "-:--:--" in screen.getvalue()


def test_a_part_of_the_work_has_a_line_below(monkeypatch, clock, capsys):
    with progress("work", 2) as outer, progress("part", 50) as inner:
        clock[0] += 20
        inner.advance(25)
        outer.advance()
    assert capsys.readouterr().err == "part: 25 of 50  (0:20, 0:20 left)\nwork: 1 of 2  (0:20, 0:20 left)\n"
    screen, made = io.StringIO(), []
    monkeypatch.setattr(
        module, "Console", lambda file: made.append(file) or Console(file=screen, force_terminal=True, width=120)
    )
    with progress("work", 2) as outer:
        with progress("part", 50) as inner:
            inner.advance(25)
        outer.advance()
    assert len(made) == 1, "two displays would draw over each other"
    assert re.search("work.*0/2.*\n.*part.* 0/50", screen.getvalue())
    last = screen.getvalue().rpartition("work")[2]
    assert "1/2" in last and "part" not in last
    with progress("later", 3) as bar:
        bar.advance()
    assert len(made) == 2, "the first display is gone"
