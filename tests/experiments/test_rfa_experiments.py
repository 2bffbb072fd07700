"""The experiments of Wu et al. (2022), and what they need beyond a grid: two ways to translate."""

import json

import pytest

from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.scheduler import select_effective_settings
from docmt.decoding.search_rules import choose_order
from docmt.evaluation import read_suite
from docmt.experiments import (
    EvaluationConfig,
    determine_state,
    list_experiments,
    make_plan,
    read_experiment,
    reproduce,
    runs,
    write_report,
)
from docmt.experiments.experiment_files import VisibleContext

SYSTEMS = {
    "Transformer": ("softmax", "none", 2.0),
    "RFA": ("linear", "none", 2.0),
    "RFA-sgate": ("linear", "decay", 2.0),
    "RFA-sgate-avg": ("linear", "average", 0.0),
    "Learned features": ("linear", "none", 2.0),
}
PUBLISHED = {  # BLEU on IWSLT and OpenSubtitles
    "Transformer, L = 1": (31.7, 32.6),
    "Transformer, L = 4": (30.4, 33.1),
    "RFA, L = 1": (31.0, 32.9),
    "RFA, L = 4": (30.7, 33.2),
    "RFA-sgate-avg, L = 4": (30.8, 33.0),
    "RFA-sgate, L = 4": (31.2, 33.2),
}
GREEDY = SearchConfig(beam=1)


def shipped(name, scale, store, tmp_path):
    return make_plan(list_experiments()[name], scale, store, tmp_path / "out")


@pytest.mark.parametrize("scale", ["cpu", pytest.param("full", marks=pytest.mark.full)])
def test_trained_variants(scale, store, tmp_path):
    plan = shipped("rfa-table1", scale, store, tmp_path)
    runs = [run for run in plan.runs if run.variant != "start"]
    # Gates have nothing to do in windows of one sentence.
    assert [run.variant for run in runs] == [
        f"{system}, L = {length}"
        for system, (_, gate, _) in SYSTEMS.items()
        for length in range(1 + (gate != "none"), 5)
    ]
    for run in runs:
        system, length = run.variant.split(", L = ")
        model = run.config.model
        assert (model.concat.attention, model.linear.gate, model.linear.gate_bias) == SYSTEMS[system]
        assert (model.concat.sentences, model.concat.window_decoding, model.concat.loss) == (int(length), "last", "all")
        linear = model.linear
        learned = system in ("Transformer", "Learned features")
        assert linear.feature_map == ("learned" if learned else "random")
        assert not (learned and (linear.features or linear.cross_features))  # as many as a head is wide
        if scale == "full":
            assert (model.width, model.feed_forward, model.heads, model.activation) == (512, 1024, 8, "gelu")
            if not learned:
                assert (linear.features, linear.cross_features, linear.gate_per) == (32, 256, "head")
            assert model.concat.padding_windows == (length != "1")
            optimizer, batches = run.config.optimizer, run.config.batches
            assert (optimizer.learning_rate, optimizer.warmup) == (1e-3, 8000)
            assert batches.batch_tokens * batches.gradient_accumulation == 16384
    starts = {run.config.initialize_from for run in runs}
    assert starts == ({None} if scale == "full" else {plan.runs[0].config.run})
    assert len({run.config.run for run in runs}) == 18
    figure_runs = {run.config.run for run in shipped("rfa-figure3", scale, store, tmp_path).runs}
    assert figure_runs >= {run.config.run for run in runs}


def test_published_scores():
    experiments = list_experiments()
    variants = experiments["rfa-table1"].variants.items()
    assert {name: tuple(variant.published.values()) for name, variant in variants if variant.published} == PUBLISHED
    assert experiments["rfa-figure3"].variants.keys() == experiments["rfa-table1"].variants.keys()
    for name, variant in experiments["rfa-figure3"].variants.items():
        visible = int(name.partition(", L = ")[2] or 1) - 1
        assert variant.sees == VisibleContext(visible, visible)


TEXT = """
title: Windows
variants:
  start: {recipe: "group-{scale}.yaml", scale: cpu, settings: {model.system: sentence}, sees: {}}
  one: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 1}}
  two: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 2}}
  linear: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 2, model.concat.attention: linear}}
"""


@pytest.fixture
def plan(write_experiment, store, tmp_path):
    overrides = {"stop.max_steps": 2, "validation.every": 2}
    return make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out", overrides=overrides)


@pytest.mark.full
def test_both_ways_to_translate_of_one_training(plan, monkeypatch):
    """One set of runs serves both. They are scored again, and only windows are translated differently."""
    usual, prefix = EvaluationConfig(GREEDY), EvaluationConfig(GREEDY, context=ContextConfig(window_decoding="prefix"))
    assert reproduce(plan, usual) == {}
    assert [determine_state(run, prefix) for run in plan.runs] == ["trained"] * 4
    orders = []
    translate = runs.translate_documents

    def translated(model, documents, specials, search, *, context, **given):
        orders.append(choose_order(model, search, context))
        return translate(model, documents, specials, search, context=context, **given)

    monkeypatch.setattr(runs, "translate_documents", translated)
    assert reproduce(plan, prefix) == {}
    assert orders == ["sentences", "sequential", "sequential", "sequential"]
    assert "- test split, beam 1, `window_decoding: prefix`; dev loss" in write_report(plan, prefix, {})
    write_report(plan, usual, {})
    pages = sorted(path.name for path in plan.output.glob("*.md"))
    name = f"{plan.experiment.name}-cpu"
    assert pages == [f"{name}-window_decoding-prefix.md", f"{name}.md"], "one does not take the place of the other"
    assert [determine_state(run, usual) for run in plan.runs] == ["trained"] * 4


def test_options_that_not_all_runs_have(plan):
    asked = ContextConfig(window_decoding="prefix", overlap=2, instance_tokens=99)
    found = {run.variant: select_effective_settings(asked, run.config.model.system_options) for run in plan.runs}
    assert found.pop("start") == ContextConfig()
    assert set(found.values()) == {ContextConfig(window_decoding="prefix", instance_tokens=99)}


WINDOWS = """
title: Windows that are requested
variants:
  start: {recipe: "group-{scale}.yaml", scale: cpu, settings: {model.system: sentence}, sees: {}}
  linear: {recipe: "group-{scale}.yaml", start_from: start, sees: {source: 1, target: 1},
    settings: {model.system: concat, model.concat.sentences: 2, model.concat.attention: linear}}
"""


def test_the_report_of_windows_with_a_suite(write_experiment, store, tmp_path):
    """From the experiment file to the page and its JSON: the scores, and what each system can see of what decides."""
    path = tmp_path / "suite.jsonl"
    with path.open("w") as file:
        for number in range(40):
            source = [("bo ka", "lu", "ta vu")[number % 3], "ni", "me"]
            right, wrong = [sentence.upper() for sentence in source], [*(s.upper() for s in source[:2]), "RA"]
            record = {"id": f"{number}", "phenomenon": "pronoun", "distance": number % 2 + 1, "source": source}
            file.write(json.dumps({**record, "candidates": [right, wrong], "correct": 0, "sentence": 2}) + "\n")
    experiment = read_experiment(str(write_experiment(WINDOWS)))
    overrides = {"stop.max_steps": 2, "validation.every": 2}
    plan = make_plan(experiment, "cpu", store, tmp_path / "out", overrides=overrides)
    evaluation = EvaluationConfig(GREEDY, suite=read_suite(path))
    assert reproduce(plan, evaluation) == {}
    assert [determine_state(run, evaluation) for run in plan.runs] == ["done"] * 2
    page = write_report(plan, evaluation, {})
    content = json.loads((plan.output / "small-cpu.json").read_text())
    scores = [row["s_bleu"]["mean"] for row in content["rows"]]
    for row, score in zip(content["rows"], scores, strict=True):
        assert f"| {row['variant']} | 1/1 | {score:.2f} |" in page
    assert (content["suite"]["name"], content["suite"]["crc32"]) == (path.name, evaluation.suite_settings["crc32"])
    cells = {row["variant"]: row["cells"]["pronoun"] for row in content["suite"]["rows"]}
    assert {name: {at: cell["predicted"] for at, cell in row.items()} for name, row in cells.items()} == {
        "start": {"1": False, "2": False},
        "linear": {"1": True, "2": False},
    }
    lines = page[page.index("## Right candidates of suite.jsonl") :].splitlines()
    assert lines[2] == "|  | pronoun (50): 1 | 2 |"
    for line, (name, row) in zip(lines[4:6], cells.items(), strict=True):
        assert all((cell["total"], cell["chance"]) == (20, 0.5) for cell in row.values())
        first, second = (f"{100 * cell['accuracy']:.1f}" for cell in row.values())
        one, two = line.removeprefix(f"| {name} | ").removesuffix(" |").replace(" !", "").split(" | ")
        assert (one, two) == (f"**{first}**" if name == "linear" else f"({first})", f"({second})")
    assert "(20 a cell)" in page
