"""The comparison of all systems of an experiment: paired tests, contexts, costs, each computed once."""

import json
from dataclasses import replace

import pytest

from docmt.cli.app import main
from docmt.decoding import SearchConfig
from docmt.evaluation import read_suite
from docmt.experiments import (
    EvaluationConfig,
    comparison,
    costs,
    determine_state,
    make_plan,
    read_experiment,
    reproduce,
    runs,
    update_costs,
    write_report,
)
from docmt.experiments.runs import load_contexts, load_translations

TEXT = """
title: All
variants:
  sentence:
    recipe: group-cpu.yaml
    settings: {model.system: sentence}
  group:
    recipe: group-cpu.yaml
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    with path.open("w") as file:
        for number, word in enumerate(["bo", "ka", "lu", "me"]):
            record = {"id": f"{number}", "document": f"{number}", "source": [word, "ni"], "correct": 0, "sentence": 1}
            candidates = [[word.upper(), "NI"], [word.upper(), "PO"]]
            file.write(json.dumps({**record, "candidates": candidates}) + "\n")
    return path


@pytest.fixture
def small_costs(monkeypatch):
    """Short measurements; returns the list of calls."""
    calls, measure = [], costs.measure_costs
    monkeypatch.setattr(costs, "TURNS", 1)
    monkeypatch.setattr(costs, "UPDATES", 1)
    monkeypatch.setattr(costs, "_measure_memory", lambda run: 2_000_000)
    monkeypatch.setattr(comparison, "measure_costs", lambda *some: calls.append(some) or measure(*some))
    return calls


def test_everything_is_measured_once_and_written(write_experiment, store, suite, tmp_path, small_costs, monkeypatch):
    plan = make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out")
    plain = EvaluationConfig(SearchConfig(beam=1), suite=read_suite(suite))
    evaluation = replace(plain, comparison=True)
    assert reproduce(plan, plain) == {}
    assert {determine_state(run, plain) for run in plan.runs} == {"done"}
    assert {determine_state(run, evaluation) for run in plan.runs} == {"trained"}
    assert reproduce(plan, evaluation) == {}
    assert {determine_state(run, evaluation) for run in plan.runs} == {"done"}
    update_costs(plan, evaluation)
    with monkeypatch.context() as patch:
        for name in ("_score_test", "evaluate_items", "compare_suite_contexts"):
            patch.setattr(runs, name, lambda *_: pytest.fail("it is known"))
        assert reproduce(plan, evaluation) == {}
        update_costs(plan, evaluation)
    assert len(small_costs) == 1
    page = write_report(plan, evaluation, {})
    assert "## Comparison" in page and "## Comparison" not in write_report(plan, plain, {})
    lines = page.splitlines()
    (head,) = [line for line in lines if "empty" in line and line.startswith("|")]
    assert head.startswith("|  | true | empty | shuffled")
    row = lines[lines.index(head) + 3]
    contexts = load_contexts(plan.runs[1].config.run, evaluation)
    assert row.startswith(f"| group | {100 * contexts['true']['accuracy']:.1f} |")
    assert "| sentence | 0.0" in page.partition("### Costs")[2]  # millions of weights
    assert "| 1.00 | 1.00 | 2 |" in page
    translations = load_translations(plan.runs[0].config.run, evaluation)
    references = [4, 1, 2, 3]
    assert sorted(map(len, translations)) == sorted(references)
    other = replace(evaluation, search=SearchConfig(beam=2))
    assert load_translations(plan.runs[0].config.run, other) is None


def test_a_model_without_long_documents_has_no_memory(write_experiment, store, tmp_path):
    """The process that scores one may fail or be ended."""
    assert costs._measure_memory(tmp_path / "no such run") is None


def test_costs_of_other_runs_are_not_used(tmp_path):
    known = {"one": costs.Costs(1, 2.0, 3.0, None)}
    costs.save_costs(tmp_path / "costs.json", known)
    assert costs.load_costs(tmp_path / "costs.json", ["one"]) == known
    assert costs.load_costs(tmp_path / "costs.json", ["one", "two"]) == {}
    (tmp_path / "costs.json").write_text('{"costs": {"one"')
    assert costs.load_costs(tmp_path / "costs.json", ["one"]) == {}


def test_the_option_of_the_command(write_experiment, store, suite, tmp_path, small_costs, capsys):
    experiment = write_experiment(TEXT)
    arguments = [str(experiment), "--store", str(store), "--output", str(tmp_path / "out"), "--search.beam", "1"]
    assert main(["reproduce", *arguments, "--comparison", "true"]) == 0
    page = capsys.readouterr().out
    assert "### Costs" in page and "by context" not in page  # no test set is given
