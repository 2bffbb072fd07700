"""Running experiments: done is skipped, killed goes on, failed is told, and the table is the same in the end."""

import json
import re
import sys

import pytest
import torch
from safetensors.torch import load_file

from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory
from docmt.decoding import SearchConfig
from docmt.evaluation import MetricConfig
from docmt.experiments import (
    EvaluationConfig,
    determine_state,
    make_plan,
    read_experiment,
    reproduce,
    runs,
    write_figure,
    write_report,
)
from docmt.model import ModelConfig
from docmt.training.loop import Training

GREEDY = EvaluationConfig(SearchConfig(beam=1))


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


@pytest.fixture
def plan_of(write_experiment, store):
    """Return a function that plans an experiment text."""

    def plan(output, text=None, **settings):
        path = write_experiment(text) if text else write_experiment()
        scale, data = settings.pop("scale", "cpu"), settings.pop("data", store)
        return make_plan(read_experiment(str(path)), scale, data, output, **settings)

    return plan


def states(plan, evaluation=GREEDY):
    return [determine_state(run, evaluation) for run in plan.unique_runs()]


@pytest.fixture
def trained(monkeypatch):
    """The directories in which a training began or went on, with whether it was resumed."""
    calls = []
    original = runs.train

    def recording(config, resume=False):
        calls.append((config.run.name, resume))
        return original(config, resume)

    monkeypatch.setattr(runs, "train", recording)
    return calls


def kill_in(monkeypatch, run, update):
    """Makes the training in this directory die instead of making this update."""
    original = Training._update

    def dying(self):
        if self.run.path == run and self.state.update + 1 == update:
            raise Killed
        return original(self)

    monkeypatch.setattr(Training, "_update", dying)


def finish(plan, evaluation=GREEDY):
    failures = reproduce(plan, evaluation)
    write_report(plan, evaluation, failures)
    base = plan.output / f"{plan.experiment.name}-{plan.scale}"
    return failures, base.with_suffix(".md").read_text(), json.loads(base.with_suffix(".json").read_text())


@pytest.mark.full
def test_killed_and_gone_on_with_is_as_never_stopped(plan_of, tmp_path, monkeypatch, trained):
    whole = finish(plan_of(tmp_path / "whole"))
    names = [name for name, _ in trained]
    assert len(set(names)) == 4
    assert (whole[0], states(plan_of(tmp_path / "whole"))) == ({}, ["done"] * 4)
    trained.clear()

    plan = plan_of(tmp_path / "killed")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_in(patch, plan.unique_runs()[1].config.run, 6)
        reproduce(plan, GREEDY)
    assert states(plan) == ["done", "resumable", "missing", "missing"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(runs, "evaluate_run", lambda *_: (_ for _ in ()).throw(Killed()))
        reproduce(plan, GREEDY)
    assert states(plan) == ["done", "trained", "missing", "missing"]
    assert finish(plan) == whole
    resumed = [(names[1], True), *((name, False) for name in names[2:])]
    assert trained == [(names[0], False), (names[1], False), *resumed]
    for name in names:
        weights = [load_file(tmp_path / o / "runs" / name / "model/model.safetensors") for o in ("whole", "killed")]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    trained.clear()
    assert finish(plan) == whole
    assert trained == []


@pytest.mark.full
def test_table_has_the_scores(plan_of, tmp_path):
    _, text, content = finish(plan_of(tmp_path))
    lines = text.splitlines()
    assert lines[0] == "# Small: where documents help"
    assert lines[4] == "|  | seeds | s-BLEU | d-BLEU | chrF | dev loss | published d-BLEU |"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[6:8]]
    assert [row[:2] + row[-1:] for row in rows] == [["tuned", "2/2", "33.50"], ["sentence", "2/2", ""]]
    assert "Nobody 2020, Table 1" in text
    assert "d-BLEU: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|unit:document|version:" in text
    assert "beam 1" in text
    for row, cells in zip(content["rows"], rows, strict=True):
        runs = row["runs"]
        assert [run["seed"] for run in runs] == [1, 2]
        for column, measure, digits in ((2, "s_bleu", 2), (3, "d_bleu", 2), (4, "chrf", 2), (5, "dev_loss", 3)):
            values = [run["measures"][measure] for run in runs]
            assert measure == "dev_loss" or values == [run["scores"][measure]["score"] for run in runs]
            assert row[measure]["mean"] == pytest.approx(sum(values) / 2)
            assert row[measure]["spread"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
            assert cells[column] == f"{row[measure]['mean']:.{digits}f} ± {row[measure]['spread']:.{digits}f}"
    assert content["rows"][0]["published"] == {"d-BLEU": 33.5}
    assert {run["state"] for row in content["rows"] for run in row["runs"]} == {"done"}


def test_report_of_unfinished_runs(plan_of, tmp_path):
    plan = plan_of(tmp_path / "out", seeds=[3])
    plan.output.mkdir()
    text = write_report(plan, GREEDY, {})
    assert "| tuned | 0/1 | - | - | - | - | 33.50 |" in text
    assert "unfinished runs: 2; repeat the command to continue" in text
    assert text.count("±") == 1
    with pytest.raises(DocmtError, match="there is nothing to draw"):
        write_figure(plan, GREEDY)


def test_overrides_are_reported_and_apply_to_their_system(plan_of, tmp_path):
    plan = plan_of(tmp_path / "out", overrides={"model.group.encoder_layers": 0, "stop.max_steps": 4})
    layers = {run.variant: run.config.model.group.encoder_layers for run in plan.runs}
    assert layers == {"sentence": ModelConfig().group.encoder_layers, "tuned": 0}
    (tmp_path / "out").mkdir()
    text = write_report(plan, GREEDY, {})
    assert "- overrides of the recipes: model.group.encoder_layers 0, stop.max_steps 4 (options" in text
    written = json.loads((tmp_path / "out" / "small-cpu.json").read_text())
    assert written["overrides"] == {"model.group.encoder_layers": "0", "stop.max_steps": "4"}


def test_one_failure_stops_only_runs_that_start_from_it(plan_of, tmp_path, trained):
    text = """
title: One of them is hopeless
variants:
  hopeless: {recipe: group-cpu.yaml, settings: {model.position_encoding: learned, model.max_positions: 1}}
  heir: {recipe: group-cpu.yaml, start_from: hopeless}
  good: {recipe: group-cpu.yaml}
"""
    plan = plan_of(tmp_path / "out", text)
    failures, table, content = finish(plan)
    hopeless, heir, good = [run.config.run for run in plan.unique_runs()]
    assert set(failures) == {hopeless, heir}
    assert "but model.max_positions is 1" in failures[hopeless]
    assert failures[heir] == f"the run it starts from, {hopeless.name}, failed"
    assert [(row["variant"], row["runs"][0]["state"]) for row in content["rows"]] == [
        ("hopeless", "failed"),
        ("heir", "failed"),
        ("good", "done"),
    ]
    assert f"- failed: hopeless, seed 1: {failures[hopeless]}" in " ".join(table.split())
    assert "| hopeless | 0/1 | - | - | - | - |" in table
    assert "unfinished" not in table
    assert [name for name, _ in trained] == [hopeless.name, good.name]
    trained.clear()
    assert finish(plan) == (failures, table, content)
    assert [name for name, _ in trained] == [hopeless.name]


@pytest.mark.full
def test_ctrl_c_ends_all_and_the_run_goes_on(plan_of, tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    original = Training._update

    def interrupting(self):
        if self.state.update == 5:
            import signal

            signal.raise_signal(signal.SIGINT)
        return original(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "_update", interrupting)
        reproduce(plan, GREEDY)
    assert states(plan) == ["resumable", "missing", "missing", "missing"]
    assert json.loads((plan.runs[0].config.run / "checkpoints/last/state.json").read_text())["update"] == 6
    assert reproduce(plan, GREEDY) == {}


@pytest.mark.full
def test_a_kill_before_the_recipe_was_written(plan_of, tmp_path):
    plan = plan_of(tmp_path, seeds=[1])
    (plan.runs[0].config.run / "checkpoints").mkdir(parents=True)
    assert states(plan) == ["missing", "missing"]
    assert reproduce(plan, GREEDY) == {}


@pytest.mark.full
def test_scores_of_other_settings_are_computed_again(plan_of, tmp_path, trained):
    plan = plan_of(tmp_path, seeds=[1])
    _, _, content = finish(plan)
    trained.clear()
    other = EvaluationConfig(SearchConfig(beam=2), MetricConfig(unit="instance", lowercase=True))
    assert states(plan, other) == ["trained"] * 2
    _, text, again = finish(plan, other)
    assert trained == []
    assert "case:lc" in text
    assert "unit:instance" in text
    assert content["signatures"] != again["signatures"]
    assert states(plan) == ["trained"] * 2


@pytest.mark.full
def test_document_models_have_sentence_scores_only_where_sentences_match(plan_of, tmp_path):
    text = "title: Alone\nvariants: {document: {recipe: group-cpu.yaml, settings: {model.system: document}}}"
    _, table, content = finish(plan_of(tmp_path, text))
    scores = content["rows"][0]["runs"][0]["scores"]
    assert scores["s_bleu"] is None
    assert "another number of sentences than the source has" in scores["undefined"]
    assert "| document | 1/1 | - | " in table
    assert "if the model changed the number of sentences: 1 of 1 runs (`undefined` in the JSON file)\n" in table


@pytest.mark.full
def test_the_unit_instance_is_translated_by_itself(plan_of, tmp_path, store, monkeypatch):
    settings = {"model.instance_tokens": 12}
    plan = plan_of(tmp_path, "title: One\nvariants: {group: {recipe: group-cpu.yaml}}", overrides=settings)
    seen = []
    original = runs.translate_documents

    def spy(model, documents, *args, **kwargs):
        seen.append(documents)
        return original(model, documents, *args, **kwargs)

    monkeypatch.setattr(runs, "translate_documents", spy)
    _, _, whole = finish(plan)
    _, _, parts = finish(plan, EvaluationConfig(GREEDY.search, MetricConfig(unit="instance")))
    documents, instances = seen
    assert [sentence for part in instances for sentence in part] == [s for document in documents for s in document]
    segments = [content["rows"][0]["runs"][0]["scores"]["d_bleu"]["segments"] for content in (whole, parts)]
    assert segments == [len(documents), len(instances)]
    assert len(instances) > len(documents)


@pytest.mark.full
def test_damaged_scores_are_computed_again(plan_of, tmp_path, trained):
    plan = plan_of(tmp_path, seeds=[1])
    finish(plan)
    trained.clear()
    (plan.runs[0].config.run / "test.json").write_text('{"config": ')
    assert states(plan) == ["trained", "done"]
    assert finish(plan)[0] == {}
    assert trained == []


@pytest.mark.full
def test_an_output_that_was_moved_goes_on(plan_of, tmp_path, trained):
    finish(plan_of(tmp_path / "out", seeds=[1]))
    (tmp_path / "out").rename(tmp_path / "moved")
    trained.clear()
    moved = plan_of(tmp_path / "moved", seeds=[1])
    assert moved.runs[1].config.initialize_from.parent == tmp_path / "moved" / "runs"
    assert states(moved) == ["done", "done"]
    (moved.runs[1].config.run / "test.json").unlink()
    assert finish(moved)[0] == {}
    assert trained == []


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("warmup: 4", "warmup: 5"), "trained with other settings .optimizer.warmup is 4 but was 5.. Move it away"),
        pytest.param(("max_steps: 8", "max_steps: 9"), "stop.max_steps is 8 but was 9", marks=pytest.mark.full),
        pytest.param(
            ("  label_smoothing: 0.1\n", "  label_smoothing: 0.2\n"),
            "objective.label_smoothing is 0.1 but was 0.2",
            marks=pytest.mark.full,
        ),
        pytest.param(("seed: 1", "seed: [1"), "the training settings of .* cannot be read", marks=pytest.mark.full),
    ],
)
def test_a_model_that_was_trained_in_another_way_is_not_done(plan_of, tmp_path, trained, edit, message):
    text = "title: One\nvariants: {one: {recipe: group-cpu.yaml}}"
    plan = plan_of(tmp_path, text)
    finish(plan)
    recipe = plan.runs[0].config.run / "recipe.yaml"
    before = recipe.read_text()
    assert before.count(edit[0]) == 1
    recipe.write_text(before.replace(*edit))
    assert states(plan) == ["changed"]
    failures, table, _ = finish(plan)
    assert re.search(message, failures[plan.runs[0].config.run])
    assert "| one | 0/1 | - |" in table
    assert len(trained) == 1
    recipe.write_text(before)
    assert states(plan) == ["done"]


def test_an_output_is_for_one_process(plan_of, tmp_path):
    plan = plan_of(tmp_path / "out")
    (tmp_path / "out").mkdir()
    with lock_directory(tmp_path / "out", "x"), pytest.raises(DocmtError, match=r"are being run by process \d+ on"):
        reproduce(plan, GREEDY)
    assert states(plan) == ["missing"] * 4


GRID = """
title: Grid
variants:
  one: {recipe: group-cpu.yaml, published: {d-BLEU: 1}}
axes:
  - name: width
    points: {8: {model.width: 8}, 16: {}}
    published: {16: {d-BLEU: 2.5}}
"""


@pytest.mark.full
def test_a_grid_has_a_figure(plan_of, tmp_path, monkeypatch):
    plan = plan_of(tmp_path, GRID, seeds=[1, 2])
    _, table, _ = finish(plan)
    assert "|  | width | seeds | s-BLEU |" in table
    assert [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| one")] == ["8", "16"]
    assert [line.split()[-2] for line in table.splitlines() if line.startswith("| one")] == ["1.00", "2.50"]
    with monkeypatch.context() as patch:
        for name in ("matplotlib", "matplotlib.figure"):
            patch.setitem(sys.modules, name, None)
        with pytest.raises(DocmtError, match=r"pip install docmt\[plots\]"):
            write_figure(plan, GREEDY)
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    assert write_figure(plan, GREEDY).read_bytes().startswith(b"\x89PNG")


def test_torchrun_is_refused(plan_of, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(DocmtError, match="Set --devices instead of using torchrun"):
        reproduce(plan_of(tmp_path), GREEDY)


@pytest.mark.full
def test_several_devices_train_in_separate_processes(plan_of, tmp_path, capfd):
    text = "title: Two\nvariants: {two: {recipe: group-cpu.yaml, settings: {devices: 2}}}"
    plan = plan_of(tmp_path, text)
    failures, _, content = finish(plan)
    assert failures == {}
    assert content["rows"][0]["runs"][0]["state"] == "done"
    assert not list((tmp_path / "runs").glob("*.yaml"))
    overrides = {"model.position_encoding": "learned", "model.max_positions": 1, "model.positions": "document"}
    hopeless = plan_of(tmp_path, text, overrides=overrides)
    failure = next(iter(reproduce(hopeless, GREEDY).values()))
    assert failure == "docmt train exited with status 2. See its message on standard error."
    assert "docmt: error: the instance that begins" in capfd.readouterr().err
