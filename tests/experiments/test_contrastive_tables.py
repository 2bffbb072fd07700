"""A contrastive test set for every run: scored once, with predictions in a table, and a figure."""

import json
import re

import pytest

import docmt
from docmt.analysis import Point, draw_points
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.evaluation import evaluate_items, read_suite
from docmt.evaluation.contrastive import AnswerCounts, ContrastiveResult
from docmt.experiments import (
    EvaluationConfig,
    determine_state,
    make_plan,
    read_experiment,
    report,
    reproduce,
    runs,
    write_contrastive_figure,
    write_report,
)
from docmt.experiments.experiment_files import VisibleContext
from docmt.experiments.report import format_contrastive_table, is_above_chance

TEXT = """
title: Seeing
variants:
  sentence:
    recipe: group-cpu.yaml
    settings: {model.system: sentence}
    sees: {}
  group:
    recipe: group-cpu.yaml
    sees: {source: 2, target: 1}
  backward:
    recipe: group-cpu.yaml
    settings: {model.system: sentence, reverse: true}
"""


@pytest.fixture
def suite(tmp_path):
    """A test set of a phenomenon that is known and of one that is not."""
    path = tmp_path / "suite.jsonl"
    with path.open("w") as file:
        for number in range(8):
            source, wrong = ["bo ka", "lu", "me"], ["BO KA", "LU", "NI"]
            phenomenon = "pronoun" if number % 4 else "other"
            record = {"id": f"{number}", "phenomenon": phenomenon, "distance": number % 2 + 1, "source": source}
            right = [sentence.upper() for sentence in source]
            file.write(json.dumps({**record, "candidates": [wrong, right], "correct": 1, "sentence": 2}) + "\n")
    return path


def evaluation_of(suite, **search):
    return EvaluationConfig(SearchConfig(beam=1, **search), suite=read_suite(suite))


@pytest.fixture
def plan(write_experiment, store, tmp_path):
    return make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out")


@pytest.mark.full
def test_every_run_of_the_direction_is_scored_once(plan, suite, monkeypatch):
    without_suite, evaluation = EvaluationConfig(SearchConfig(beam=1)), evaluation_of(suite)
    assert reproduce(plan, without_suite) == {}
    assert {determine_state(run, without_suite) for run in plan.runs} == {"done"}
    assert [determine_state(run, evaluation) for run in plan.runs] == ["trained", "trained", "done"]
    translated = []
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_score_test", lambda *_: translated.append(1))
        assert reproduce(plan, evaluation) == {}
    assert translated == [], "only the test set was new"
    assert {determine_state(run, config) for run in plan.runs for config in (without_suite, evaluation)} == {"done"}
    content = json.loads(write_and_read(plan, evaluation)[1])
    assert [row["variant"] for row in content["suite"]["rows"]] == ["sentence", "group"]
    for run, row in zip(plan.runs, content["suite"]["rows"], strict=False):
        result = evaluate_items(docmt.Translator(run.config.run / "model"), evaluation.suite.items)
        counts = {
            name: {int(distance): (cell["correct"], cell["total"]) for distance, cell in cells.items()}
            for name, cells in row["cells"].items()
        }
        assert counts == {
            name: {distance: (count.correct, count.total) for distance, count in cells.items()}
            for name, cells in result.cells.items()
        }
    assert "suite" not in json.loads(write_and_read(plan, without_suite)[1])

    (plan.runs[0].config.run / "suite.json").write_text('{"suite": ')
    assert [determine_state(run, evaluation) for run in plan.runs] == ["trained", "done", "done"]
    assert determine_state(plan.runs[1], evaluation_of(suite, temperature=2.0)) == "trained"
    suite.write_text(suite.read_text().replace("NI", "PO"))
    assert determine_state(plan.runs[1], evaluation_of(suite)) == "trained"
    assert determine_state(plan.runs[1], without_suite) == "done"


@pytest.mark.full
def test_test_sets_of_other_kinds(plan, suite):
    """Items without a distance have one column. Generative test sets are refused."""
    lines = [json.loads(line) for line in suite.read_text().splitlines()]
    suite.write_text("".join(json.dumps({**line, "distance": None}) + "\n" for line in lines))
    evaluation = evaluation_of(suite)
    assert reproduce(plan, evaluation) == {}
    page, content = write_and_read(plan, evaluation)
    cells = json.loads(content)["suite"]["rows"][0]["cells"]
    assert {name: list(row) for name, row in cells.items()} == {"pronoun": ["unknown"], "other": ["unknown"]}
    assert cells["pronoun"]["unknown"]["predicted"] is None
    assert "pronoun (50): unknown" in page
    suite.write_text(json.dumps({"src_context": [], "src": "bo", "expected": "BO"}))
    with pytest.raises(DocmtError, match=r"is not contrastive\. Use a test set with candidates"):
        evaluation_of(suite)


def write_and_read(plan, evaluation):
    write_report(plan, evaluation, {})
    return [(plan.output / f"small-cpu.{suffix}").read_text() for suffix in ("md", "json")]


RESULTS = {
    "sentence": {"name": {1: (10, 20), 2: (10, 20)}, "pronoun": {1: (10, 20), 2: (19, 20)}},
    "group": {"name": {1: (17, 20), 2: (20, 20)}, "pronoun": {1: (20, 20), 2: (19, 20)}},
}


@pytest.fixture
def answered(plan, suite, monkeypatch):
    """The plan, as if its runs had given these answers."""
    by_run = {run.config.run: RESULTS.get(run.variant) for run in plan.runs}

    def stored(run, evaluation):
        cells = by_run[run]
        return cells and ContrastiveResult(
            {n: {d: AnswerCounts(right, of, of / 2) for d, (right, of) in row.items()} for n, row in cells.items()}
        )

    monkeypatch.setattr(report, "load_contrastive", stored)
    plan.output.mkdir(exist_ok=True)
    return plan


def test_table_has_predictions_and_differences(answered, suite):
    text, written = write_and_read(answered, evaluation_of(suite))
    lines = text[text.index("## Right candidates of suite.jsonl") :].splitlines()
    assert lines[2] == "|  | pronoun (50): 1 | 2 | name (50): 1 | 2 |"
    assert lines[4] == "| sentence | (50.0) | (95.0) ! | (50.0) | (50.0) |"
    assert lines[5] == "| group | **100.0** | **95.0** | **85.0** | (100.0) ! |"
    assert "(20 a cell)" in text
    assert "3 standard errors): 2 of 8 cells\n  - sentence: pronoun at 2\n  - group: name at 2\n" in text
    cell = json.loads(written)["suite"]["rows"][1]["cells"]["name"]["2"]
    assert (cell["predicted"], cell["above_chance"], cell["accuracy"], cell["chance"]) == (False, True, 1.0, 0.5)


def test_table_without_predictions(answered, suite):
    rows = report.collect_contrastive(answered, evaluation_of(suite))
    for row in rows:
        for cells in row["cells"].values():
            for cell in cells.values():
                cell["predicted"] = None
    lines = format_contrastive_table(rows, "x")
    assert "| sentence | 50.0 | 95.0 | 50.0 | 50.0 |" in lines
    assert not [line for line in lines if "contrary" in line]
    assert format_contrastive_table([], "x") == []


@pytest.mark.parametrize(
    ("correct", "total", "above"),
    [(50, 100, False), (65, 100, False), (66, 100, True), (3, 3, None), (9, 9, None), (10, 10, True)],
)
def test_above_chance(correct, total, above):
    assert is_above_chance(AnswerCounts(correct, total, total / 2)) is above


def test_the_reach_of_a_system_in_a_file(write_experiment):
    variants = read_experiment(str(write_experiment(TEXT))).variants
    assert [variant.sees for variant in variants.values()] == [
        VisibleContext(),
        VisibleContext(source=2, target=1),
        None,
    ]
    for entry, message in (
        ("{source: 1.5}", "sees.source is '1.5': give a whole number"),
        ("{target: -1}", "sees.target is -1: choose a number from 0"),
        ("{source: all}", "sees.source is 'all': give a whole number"),
        ("{draft: 1}", "has the unknown setting sees.draft: remove it"),
        ("[3]", "sees in"),
    ):
        text = f"title: x\nvariants: {{a: {{recipe: group-cpu.yaml, sees: {entry}}}}}"
        with pytest.raises(DocmtError, match=re.escape(message)):
            read_experiment(str(write_experiment(text)))


@pytest.mark.full
def test_the_figure(answered, suite, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    path = write_contrastive_figure(answered, evaluation_of(suite))
    assert path.name == "small-cpu-suite.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    draw_points({"a": {"x": [Point("1", 50.0)]}}, "", tmp_path / "one.svg", "distance (sentences)", {"a": 50.0})
    assert (tmp_path / "one.svg").read_text().count("distance (sentences)") == 1
    with pytest.raises(DocmtError, match="no run has a score yet"):
        draw_points({}, "", tmp_path / "none.png", chances={})
