"""The experiments of Wu et al. (2022), and what they need beyond a grid: lines, two ways to translate, speed."""

import json
import math

import pytest

from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.rules import order_of
from docmt.experiments import (
    EvaluationConfig,
    SpeedTest,
    Suite,
    contrastive,
    list_experiments,
    make_plan,
    measure_speed,
    read_experiment,
    reproduce,
    scores,
    write_contrastive_figure,
    write_report,
    write_speed_figure,
)
from docmt.experiments import speed as speed_module
from docmt.experiments.contrastive import collect_contrastive
from docmt.experiments.runner import state_of

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


@pytest.mark.parametrize("scale", ["cpu", "full"])
def test_what_is_trained(scale, store, tmp_path):
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
        assert (model.concat.attention, model.linear.gate, model.linear.gate_start) == SYSTEMS[system]
        assert (model.concat.sentences, model.concat.keep, model.concat.loss) == (int(length), "last", "all")
        own = model.linear
        learned = system in ("Transformer", "Learned features")
        assert own.map == ("learned" if learned else "random")
        assert not (learned and (own.features or own.cross_features))  # as many as a head is wide
        if scale == "full":
            assert (model.width, model.feed_forward, model.heads, model.activation) == (512, 1024, 8, "gelu")
            if not learned:
                assert (own.features, own.cross_features, own.gates) == (32, 256, "head")
            assert model.concat.padding_windows == (length != "1")
            optimizer, batches = run.config.optimizer, run.config.batches
            assert (optimizer.learning_rate, optimizer.warmup) == (1e-3, 8000)
            assert batches.batch_tokens * batches.accumulate == 16384
    starts = {run.config.initialize_from for run in runs}
    assert starts == ({None} if scale == "full" else {plan.runs[0].config.run})
    assert len({run.config.run for run in runs}) == 18
    for other, shared in (("rfa-figure3", 18), ("rfa-figure4", 2)):
        theirs = {run.config.run for run in shipped(other, scale, store, tmp_path).runs}
        assert len(theirs & {run.config.run for run in runs}) == shared


def test_what_was_published():
    found = list_experiments()
    variants = found["rfa-table1"].variants.items()
    assert {name: tuple(variant.published.values()) for name, variant in variants if variant.published} == PUBLISHED
    assert {(v.line, v.at) for v in found["rfa-figure3"].variants.values() if v.line} == {
        tuple(name.split(", L = ")) for name in found["rfa-table1"].variants if name != "start"
    }
    for variant in found["rfa-figure3"].variants.values():
        seen = int(variant.at or 1) - 1
        assert all(reach == seen for reach in variant.sees.values())
    speed = found["rfa-figure4"].speed
    assert speed.windows == (1, 2, 3, 4, 5, 10, 15)
    assert speed.published == {"1": {"CPU": 1.58}, "4": {"CPU": 3.27}, "15": {"GPU": 2.09}}


TEXT = """
title: Windows
over: sentences of a window
variants:
  start: {recipe: "group-{scale}.yaml", scale: cpu, settings: {model.system: sentence}, sees: {}}
  one: {recipe: "group-{scale}.yaml", start_from: start, line: softmax, at: 1,
    settings: {model.system: concat, model.concat.sentences: 1}}
  two: {recipe: "group-{scale}.yaml", start_from: start, line: softmax, at: 2,
    settings: {model.system: concat, model.concat.sentences: 2}}
  linear: {recipe: "group-{scale}.yaml", start_from: start, line: linear, at: 2,
    settings: {model.system: concat, model.concat.sentences: 2, model.concat.attention: linear}}
speed:
  of: linear
  to: two
  windows: [1, 3]
  documents: 2
  sentences: 4
  rounds: 2
  published: {3: {CPU: 3.27}}
"""


@pytest.fixture
def plan(write_experiment, store, tmp_path):
    overrides = {"stop.max_steps": 2, "validation.every": 2}
    return make_plan(read_experiment(str(write_experiment(TEXT))), "cpu", store, tmp_path / "out", overrides=overrides)


def suite_of(tmp_path):
    path = tmp_path / "suite.jsonl"
    with path.open("w") as file:
        for number in range(6):
            record = {"id": f"{number}", "phenomenon": "pronoun", "distance": number % 2 + 1, "source": ["bo ka", "lu"]}
            candidates = [["BO KA", "NI"], ["BO KA", "LU"]]
            file.write(json.dumps({**record, "candidates": candidates, "correct": 1, "sentence": 1}) + "\n")
    return Suite.read(path)


def test_lines_of_a_figure(plan, tmp_path):
    evaluation = EvaluationConfig(GREEDY, suite=suite_of(tmp_path))
    assert reproduce(plan, evaluation) == {}
    page = write_report(plan, evaluation, {})
    title, _, heads, _, *rows = page.split("## Right candidates over ")[1].splitlines()[:7]
    assert title == "sentences of a window"
    assert heads == "|  | sentences of a window | pronoun (50) | all (50) |"
    counts = {row["variant"]: row["cells"]["pronoun"] for row in collect_contrastive(plan, evaluation)}
    for row, name in zip(rows, ("one", "two", "linear"), strict=True):
        line, at, *shown = [cell.strip() for cell in row.split("|")[1:-1]]
        assert (line, at) == (plan.experiment.variants[name].line, plan.experiment.variants[name].at)
        share = 100 * sum(cell["correct"] for cell in counts[name].values()) / 6
        assert [cell.split()[0] for cell in shown] == [f"{share:.1f}"] * 2
        low, high = (float(end) for end in shown[0].partition("[")[2][:-1].split(","))
        assert low <= share <= high
    assert write_contrastive_figure(plan, evaluation).stat().st_size > 10_000
    (plan.runs[1].config.run / "suite.json").unlink()
    first, second = contrastive._over_lines(plan, collect_contrastive(plan, evaluation), "pronoun")["softmax"]
    assert (first.label, second.label) == ("1", "2"), "what is not measured keeps its place"
    assert math.isnan(first.mean)
    assert second.mean == 100 * sum(cell["correct"] for cell in counts["two"].values()) / 6


def test_both_ways_to_translate_of_one_training(plan, monkeypatch):
    """The same runs serve both: they are scored anew, and windows alone are translated otherwise."""
    usual, prefix = EvaluationConfig(GREEDY), EvaluationConfig(GREEDY, context=ContextConfig(window="prefix"))
    assert reproduce(plan, usual) == {}
    assert [state_of(run, prefix) for run in plan.runs] == ["trained"] * 4
    orders = []
    translate = scores.translate_documents

    def translated(model, documents, specials, search, *, context, **given):
        orders.append(order_of(model, search, context))
        return translate(model, documents, specials, search, context=context, **given)

    monkeypatch.setattr(scores, "translate_documents", translated)
    assert reproduce(plan, prefix) == {}
    assert orders == ["sentences", "in turn", "in turn", "in turn"]
    assert "- test split, beam 1, `window: prefix`; dev loss" in write_report(plan, prefix, {})
    write_report(plan, usual, {})
    pages = sorted(path.name for path in plan.output.glob("*.md"))
    name = f"{plan.experiment.name}-cpu"
    assert pages == [f"{name}-window-prefix.md", f"{name}.md"], "one does not take the place of the other"
    assert [state_of(run, usual) for run in plan.runs] == ["trained"] * 4


def test_options_that_not_all_runs_have(plan):
    asked = ContextConfig(window="prefix", overlap=2, instance_tokens=99)
    found = {run.variant: EvaluationConfig(GREEDY, context=asked).context_of(run.config) for run in plan.runs}
    assert found.pop("start") == ContextConfig()
    assert set(found.values()) == {ContextConfig(window="prefix", instance_tokens=99)}


def test_speed_is_measured_once_and_in_both_models(plan, monkeypatch):
    evaluation = EvaluationConfig(GREEDY)
    told = []
    measure_speed(plan, evaluation, told.append)
    assert told == ["speed is not measured: one of the two runs is not done"]
    assert reproduce(plan, evaluation) == {}
    orders = []
    translate = speed_module.translate_documents

    def translated(model, documents, *given, **more):
        assert [len(document) for document in documents] == [4] * len(documents)
        orders.append((model.system.attention, model.system.sentences, len(documents)))
        return translate(model, documents, *given, **more)

    monkeypatch.setattr(speed_module, "translate_documents", translated)
    measure_speed(plan, evaluation, told.append)
    models = ["linear", "softmax"]
    warm = [(model, 1, 1) for model in models]
    assert orders == warm + [(model, window, 2) for window in (1, 3) for model in models] * 2
    test = SpeedTest.of(plan, evaluation)
    rows = test.stored()
    for row in rows:
        for kind, ratios in row["ratios"].items():
            pairs = zip(row["of"], row["to"], strict=True)
            own = [of["positions"] / of[kind] / (to["positions"] / to[kind]) for of, to in pairs]
            assert ratios == pytest.approx(own)
        assert all(0 < each["forward"] < each["whole"] and each["positions"] > 8 for each in row["of"] + row["to"])
    measure_speed(plan, evaluation, told.append)
    assert len(orders) == 10, "once is enough"
    assert SpeedTest.of(plan, EvaluationConfig(GREEDY, context=ContextConfig(window="prefix"))).stored() is None
    page = write_report(plan, evaluation, {})
    lines = page.split("## Speed: linear against two")[1].splitlines()
    assert [row.split("|")[1].strip() for row in lines[4:6]] == ["1", "3"]
    assert [row.split("|")[-2].strip() for row in lines[4:6]] == ["", "3.27"]
    assert write_speed_figure(plan, evaluation).stat().st_size > 10_000


def test_speed_of_reversed_models_is_that_of_what_they_read(write_experiment, store, tmp_path, monkeypatch):
    text = TEXT.replace("over: ", "settings: {reverse: true}\nover: ").replace("windows: [1, 3]", "windows: [3]")
    overrides = {"stop.max_steps": 2, "validation.every": 2}
    plan = make_plan(read_experiment(str(write_experiment(text))), "cpu", store, tmp_path / "out", overrides=overrides)
    evaluation, read = EvaluationConfig(GREEDY), []
    assert reproduce(plan, evaluation) == {}
    translate = speed_module.translate_documents
    monkeypatch.setattr(speed_module, "translate_documents", lambda *own: (read.append(own[1]), translate(*own)))
    measure_speed(plan, evaluation, lambda line: None)
    ours = SpeedTest.of(plan, evaluation).documents(plan.store.reversed())
    assert read == [ours[:1]] * 2 + [ours] * 4
    assert ours != SpeedTest.of(plan, evaluation).documents(plan.store)


def test_speed_that_cannot_be_measured(write_experiment, store, tmp_path):
    def planned(text):
        return make_plan(read_experiment(str(write_experiment(text))), "full", store, tmp_path / "out")

    no_windows = TEXT.replace("{model.system: concat, model.concat.sentences: 1}", "{}").replace("to: two", "to: one")
    with pytest.raises(DocmtError, match="speed is that of windows, which one does not translate: name a variant"):
        planned(no_windows)
    many = planned(TEXT.replace("sentences: 4", "sentences: 1000"))
    with pytest.raises(DocmtError, match="documents of 1000 sentences, but the test split has 10: take a larger one"):
        SpeedTest.of(many, EvaluationConfig()).documents(many.store)
    assert [run.variant for run in many.runs] == ["one", "two", "linear"]
    assert {run.config.initialize_from for run in many.runs} == {None}
