"""The comparison of all systems of an experiment: paired tests, contexts, costs, each computed once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_model import save_tiny_model

from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.evaluation import MetricConfig, read_suite
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
    assert sorted(map(len, translations["documents"])) == sorted(references)
    other = replace(evaluation, search=SearchConfig(beam=2))
    assert load_translations(plan.runs[0].config.run, other) is None


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell peak memory")
@pytest.mark.parametrize("system", ["group", "sentence", "context", "hybrid", "cadec"])
def test_memory_is_that_of_the_long_document(system, tmp_path, monkeypatch):
    """Not that of the process that started the measurement, and known for every system."""
    ballast = torch.ones(2**26)  # 256 MB
    save_tiny_model(tmp_path / "model", system=system)
    memory = costs._measure_memory(tmp_path / "model")
    assert 1e6 < memory < 4e9 and ballast.sum() > 0


def test_a_model_that_cannot_be_measured_has_no_memory(tmp_path):
    assert costs._measure_memory(tmp_path / "no such run") is None


def test_costs_of_other_runs_or_settings_are_not_used(tmp_path):
    known, evaluation, path = {"one": costs.Costs(1, 2.0, 3.0, None)}, EvaluationConfig(), tmp_path / "costs.json"
    costs.save_costs(path, known, evaluation)
    assert costs.load_costs(path, ["one"], evaluation) == known
    assert costs.load_costs(path, ["one"], EvaluationConfig(SearchConfig(beam=1))) == {}
    assert costs.load_costs(path, ["one", "two"], evaluation) == {}
    path.write_text('{"costs": {"one"')
    assert costs.load_costs(path, ["one"], evaluation) == {}


@pytest.mark.full
def test_costs_of_systems_that_start_from_a_model(write_experiment, store, tmp_path, small_costs):
    """Their training is measured as it was configured."""
    settings = {"model.group.global_start": "local", "optimizer.pretrained_lr_scale": 0.5}
    text = TEXT + f"    settings: {json.dumps(settings)}\n    start_from: sentence\n"
    plan = make_plan(read_experiment(str(write_experiment(text))), "cpu", store, tmp_path / "out")
    evaluation = EvaluationConfig(SearchConfig(beam=1), comparison=True)
    assert reproduce(plan, evaluation) == {}
    update_costs(plan, evaluation)
    assert "### Costs" in write_report(plan, evaluation, {})


def test_without_a_paired_test_there_is_a_reason(write_experiment, store, tmp_path, monkeypatch):
    """An experiment goes on, whatever cannot be compared."""
    plan = make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out")
    evaluation = EvaluationConfig(SearchConfig(beam=1), comparison=True)
    monkeypatch.setattr(comparison, "compare", lambda systems: (_ for _ in ()).throw(DocmtError("one document")))
    assert reproduce(plan, evaluation, on_run_end=lambda failures: write_report(plan, evaluation, failures)) == {}
    assert "- no paired tests: one document" in write_report(plan, evaluation, {})


def test_scores_by_instance_are_compared_by_instance(write_experiment, store, tmp_path):
    plan = make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out")
    evaluation = EvaluationConfig(SearchConfig(beam=1), MetricConfig(unit="instance"), comparison=True)
    assert reproduce(plan, evaluation) == {}
    page = write_report(plan, evaluation, {})
    assert "no paired tests" not in page and "## Comparison" in page


def test_the_option_of_the_command(write_experiment, store, suite, tmp_path, small_costs, capsys):
    experiment = write_experiment(TEXT)
    arguments = [str(experiment), "--store", str(store), "--output", str(tmp_path / "out"), "--search.beam", "1"]
    assert main(["reproduce", *arguments, "--comparison", "true"]) == 0
    page = capsys.readouterr().out
    assert "### Costs" in page and "by context" not in page  # no test set is given
