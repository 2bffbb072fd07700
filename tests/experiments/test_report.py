"""The table and the figure of an experiment, with and without a contrastive test set."""

import json
import sys
from dataclasses import replace

import pytest

import docmt
from docmt.analysis import Point, draw_points
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.evaluation import MetricConfig, evaluate_items, read_suite
from docmt.experiments import EvaluationConfig, determine_state, reproduce, runs, write_figure, write_report

FULL = pytest.mark.full
GREEDY = EvaluationConfig(SearchConfig(beam=1))


def write_and_read(plan, evaluation=GREEDY):
    text = write_report(plan, evaluation, {})
    assert (plan.output / "small-cpu.md").read_text() == text
    return text, json.loads((plan.output / "small-cpu.json").read_text())


@pytest.mark.full
def test_the_table_has_the_scores(plan_of, copied):
    text, content = write_and_read(plan_of(copied))
    lines = text.splitlines()
    assert lines[0] == "# Small: where documents help"
    assert lines[4] == "|  | seeds | s-BLEU | d-BLEU | chrF | dev loss | published d-BLEU |"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[6:8]]
    assert [row[:2] + row[-1:] for row in rows] == [["tuned", "2/2", "33.50"], ["sentence", "2/2", ""]]
    assert "- published: Nobody 2020, Table 1\n" in text
    assert "d-BLEU: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|unit:document|version:" in text
    assert "- test split, beam 1\n" in text
    for row, cells in zip(content["rows"], rows, strict=True):
        assert [run["seed"] for run in row["runs"]] == [1, 2]
        for column, measure, digits in ((2, "s_bleu", 2), (3, "d_bleu", 2), (4, "chrf", 2), (5, "dev_loss", 3)):
            values = [run["measures"][measure] for run in row["runs"]]
            assert measure == "dev_loss" or values == [run["scores"][measure]["score"] for run in row["runs"]]
            score = row["measures"][measure]
            assert score["mean"] == pytest.approx(sum(values) / 2)
            assert score["spread"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
            assert cells[column] == f"{score['mean']:.{digits}f} ± {score['spread']:.{digits}f}"
    assert content["rows"][0]["published"] == {"d-BLEU": 33.5}
    assert {run["state"] for row in content["rows"] for run in row["runs"]} == {"done"}


def test_published_scores_of_other_segments_are_said_to_be_such(plan_of, tmp_path):
    plan = plan_of(tmp_path)
    plan = replace(plan, experiment=replace(plan.experiment, protocol="gtransformer"))
    note = "so do not compare them: unit instance, text detokenized, tokenize 13a, lowercase false. `--metrics.protocol"
    assert note in write_and_read(plan)[0]
    same = replace(GREEDY, metrics=MetricConfig(protocol="gtransformer", language="de"))
    assert "so do not compare" not in write_and_read(plan, same)[0]
    with pytest.raises(DocmtError, match="protocol is 'own': choose one of gtransformer"):
        replace(plan.experiment, protocol="own")


def test_unfinished_runs_and_overrides(plan_of, tmp_path):
    plan = plan_of(tmp_path, seeds=[3], overrides={"model.group.encoder_layers": 0, "stop.max_steps": 4})
    text, content = write_and_read(plan)
    assert "| tuned | 0/1 | - | - | - | - | 33.50 |" in text
    assert "unfinished runs: 2; repeat the command to continue" in text
    assert "- overrides of the recipes: model.group.encoder_layers 0, stop.max_steps 4\n" in text
    assert content["overrides"] == {"model.group.encoder_layers": "0", "stop.max_steps": "4"}
    with pytest.raises(DocmtError, match="there is nothing to draw"):
        write_figure(plan, GREEDY)


@FULL
def test_document_models_have_sentence_scores_only_where_sentences_match(plan_of, tmp_path):
    text = "title: Alone\nvariants: {document: {recipe: group-cpu.yaml, settings: {model.system: document}}}"
    plan = plan_of(tmp_path, text)
    assert reproduce(plan, GREEDY) == {}
    table, content = write_and_read(plan)
    scores = content["rows"][0]["runs"][0]["scores"]
    assert scores["s_bleu"] is None
    assert "another number of sentences than the source has" in scores["undefined"]
    assert "| document | 1/1 | - | " in table
    assert "if the model changed the number of sentences: 1 of 1 runs (`undefined` in the JSON file)\n" in table


GRID = """
title: Grid
variants:
  one: {recipe: group-cpu.yaml, settings: {model.system: sentence}, published: {d-BLEU: 1}}
axes:
  - name: width
    points: {8: {model.width: 8}, 16: {}}
    published: {16: {d-BLEU: 2.5}}
"""


def test_a_grid_has_a_row_for_each_point_and_a_figure(plan_of, copied, monkeypatch):
    plan = plan_of(copied, GRID)
    table, _ = write_and_read(plan)
    assert "|  | width | seeds | s-BLEU |" in table
    rows = [line for line in table.splitlines() if line.startswith("| one")]
    assert [line.split(" | ")[1:3] for line in rows] == [["8", "0/1"], ["16", "1/1"]]
    assert [line.split()[-2] for line in rows] == ["1.00", "2.50"]
    with monkeypatch.context() as patch:
        for name in ("matplotlib", "matplotlib.figure"):
            patch.setitem(sys.modules, name, None)
        with pytest.raises(DocmtError, match=r"a figure needs matplotlib: run pip install '\.\[plots\]'"):
            write_figure(plan, GREEDY)
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    assert write_figure(plan, GREEDY).read_bytes().startswith(b"\x89PNG")


SEEING = """
title: Seeing
seeds: [1, 2]
variants:
  sentence: {recipe: group-cpu.yaml, settings: {model.system: sentence}}
  backward: {recipe: group-cpu.yaml, settings: {model.system: sentence, reverse: true, stop.max_steps: 2}}
"""


@pytest.fixture
def suite(tmp_path):
    """A test set of two phenomena at two distances, one of them unknown."""
    path = tmp_path / "suite.jsonl"
    with path.open("w") as file:
        for number in range(8):
            source, wrong = ["bo ka", "lu", "me"], ["BO KA", "LU", "NI"]
            phenomenon, distance = "pronoun" if number % 4 else "other", 1 if number % 2 else None
            record = {"id": f"{number}", "phenomenon": phenomenon, "distance": distance, "source": source}
            right = [sentence.upper() for sentence in source]
            file.write(json.dumps({**record, "candidates": [wrong, right], "correct": 1, "sentence": 2}) + "\n")
    return path


def evaluation_of(suite, **search):
    return EvaluationConfig(SearchConfig(beam=1, **search), suite=read_suite(suite))


@FULL
def test_every_run_of_the_direction_answers_a_test_set_once(plan_of, copied, suite, monkeypatch):
    plan, evaluation = plan_of(copied, SEEING, seeds=[1]), evaluation_of(suite)
    assert reproduce(plan, GREEDY) == {}
    assert [determine_state(run, evaluation) for run in plan.runs] == ["trained", "done"]
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_score_test", lambda *_: pytest.fail("only the test set was new"))
        assert reproduce(plan, evaluation) == {}
        patch.setattr(runs, "evaluate_items", lambda *_: pytest.fail("it is known"))
        assert reproduce(plan, evaluation) == {}
    assert {determine_state(run, config) for run in plan.runs for config in (GREEDY, evaluation)} == {"done"}
    run = plan.runs[0].config.run
    table, content = write_and_read(plan, evaluation)
    result = evaluate_items(docmt.Translator(run / "model"), evaluation.suite.items).to_json()
    sentence, backward = [row["runs"][0] for row in content["rows"]]
    assert (sentence["suite"], backward["suite"]) == (result, None)
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert head[-3:] == ["other unknown", "pronoun 1", "pronoun unknown"]
    shares = [cell["accuracy"] for row in result["phenomena"].values() for cell in row["distances"].values()]
    assert [row[-3:] for row in rows] == [[f"{100 * share:.1f}" for share in shares], ["-"] * 3]
    assert "- phenomena and distances: percent right in suite.jsonl\n" in table
    assert content["suite"]["name"] == "suite.jsonl"
    assert write_and_read(plan)[1]["suite"] is None

    (run / "suite.json").write_text('{"config": ')
    assert [determine_state(run, evaluation) for run in plan.runs] == ["trained", "done"]
    assert reproduce(plan, evaluation) == {}
    assert determine_state(plan.runs[0], evaluation_of(suite, temperature=2.0)) == "trained"
    suite.write_text(suite.read_text().replace("NI", "PO"))
    assert determine_state(plan.runs[0], evaluation_of(suite)) == "trained"
    assert determine_state(plan.runs[0], GREEDY) == "done"


def test_answers_have_means_spreads_and_a_figure(plan_of, copied, suite, tmp_path, monkeypatch):
    plan, evaluation = plan_of(copied, SEEING.partition("  backward")[0]), evaluation_of(suite)
    results = {
        run.config.run: {"phenomena": {"pronoun": {"distances": {"1": {"accuracy": share}, "2": {"accuracy": 1.0}}}}}
        for run, share in zip(plan.runs, (0.25, 0.75), strict=True)
    }
    monkeypatch.setattr(runs, "load_suite_result", lambda run, _: results[run])
    monkeypatch.setattr("docmt.experiments.report.load_suite_result", lambda run, _: results[run])
    table, content = write_and_read(plan, evaluation)
    assert " | 50.0 ± 35.4 | 100.0 ± 0.0 |\n" in table
    assert content["rows"][0]["measures"]["pronoun 1"]["mean"] == 50
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    assert write_figure(plan, evaluation).read_bytes().startswith(b"\x89PNG")
    draw_points({"a": {"x": [Point("1", 50.0)]}}, "", tmp_path / "one.svg", "distance (sentences)", {"a": 50.0})
    assert (tmp_path / "one.svg").read_text().count("distance (sentences)") == 1


def test_generative_test_sets_are_refused(suite):
    suite.write_text(json.dumps({"src_context": [], "src": "bo", "expected": "BO"}))
    with pytest.raises(DocmtError, match=r"is not contrastive\. Use a test set with candidates"):
        evaluation_of(suite)
