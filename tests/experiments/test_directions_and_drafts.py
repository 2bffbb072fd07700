"""Variants that start from a model of the other direction, and drafts that the runner makes."""

import json
import shutil
from dataclasses import replace

import pytest

from docmt.core.errors import DocmtError
from docmt.data import PreparedStore
from docmt.decoding import SearchConfig
from docmt.decoding.draft_store import draft_store
from docmt.evaluation import MetricConfig
from docmt.experiments import EvaluationConfig, make_plan, read_experiment, reproduce, runner, scores, write_report
from docmt.experiments.runner import state_of
from docmt.training import train

GREEDY = EvaluationConfig(SearchConfig(beam=1))
MULTIHOP = """
title: Hops
variants:
  hops:
    recipe: group-cpu.yaml
    start_from: forward
    start_reverse_from: backward
    settings: {model.system: multihop, model.multihop.sentences: 1}
  backward: {recipe: group-cpu.yaml, settings: {model.system: sentence, reverse: true}}
  forward: {recipe: group-cpu.yaml, settings: {model.system: sentence}}
"""


@pytest.fixture
def own_store(store, tmp_path):
    """A copy of the store, to which drafts can be added."""
    return shutil.copytree(store, tmp_path / "store")


@pytest.fixture
def plan_of(write_experiment, own_store, tmp_path):
    """A function that plans an experiment text on this copy."""
    return lambda text=MULTIHOP, **settings: make_plan(
        read_experiment(str(write_experiment(text))), "cpu", own_store, tmp_path / "out", **settings
    )


def states(plan):
    return {run.variant: state_of(run, GREEDY) for run in plan.runs}


def test_a_run_comes_after_both_that_it_starts_from(plan_of, tmp_path):
    plan = plan_of()
    assert [run.variant for run in plan.runs] == ["backward", "forward", "hops"]
    backward, forward, hops = [run.config for run in plan.runs]
    assert (backward.reverse, forward.reverse, hops.reverse) == (True, False, False)
    assert (hops.initialize_from, hops.initialize_reverse_from) == (forward.run, backward.run)
    assert plan.drafter == forward.run
    moved = make_plan(plan.experiment, "cpu", plan.store.directory, tmp_path / "else")
    assert [run.config.run.name for run in moved.runs] == [run.config.run.name for run in plan.runs]
    other = plan_of(MULTIHOP.replace("sentence, reverse", "sentence, model.dropout: 0.2, reverse"))
    changed = [run.config.run.name != was.config.run.name for run, was in zip(other.runs, plan.runs, strict=True)]
    assert changed == [True, False, True], "what is started from is part of what a run is"


def test_the_runner_drafts_once(plan_of, own_store, monkeypatch):
    calls = []
    original = runner.draft_store
    monkeypatch.setattr(runner, "draft_store", lambda *a, **k: (calls.append(a[1]), original(*a, **k)))
    plan, told = plan_of(), []
    assert reproduce(plan, GREEDY, told.append) == {}
    assert calls == [plan.drafter]
    drafting = next(number for number, line in enumerate(told) if line.startswith("drafting the store"))
    assert "training hops" in told[drafting - 1]
    assert PreparedStore.open(own_store).drafts.facts["search"]["beam"] == 4
    assert set(states(plan).values()) == {"done"}
    assert states(plan_of()) == states(plan), "the same runs once the drafts are there"
    assert reproduce(plan_of(seeds=[1, 2]), GREEDY) == {}
    assert len(calls) == 1, "the other seed reads the same drafts"

    text = write_report(plan, GREEDY, {})
    assert "| hops | 1/1 | " in text
    assert "- from the target to the source language, and scored against the source: backward\n" in text
    assert f"- drafts: {plan.drafter.name}, beam 4, jack-knifed parts: 0" in text
    content = json.loads((plan.output / "small-cpu.json").read_text())
    assert [row["runs"][0]["reverse"] for row in content["rows"]] == [False, True, False]


def test_drafts_that_the_store_has_are_named(plan_of, own_store, tmp_path):
    config = plan_of().runs[1].config
    train(replace(config, run=tmp_path / "another"))
    draft_store(PreparedStore.open(own_store), tmp_path / "another", SearchConfig(beam=1), device="cpu")
    plan, told = plan_of(), []
    assert reproduce(plan, GREEDY, told.append) == {}
    assert f"reading the drafts that the store {own_store} has already, by {tmp_path / 'another'}" in told
    wanted = "- drafts: those that the store had already, by another, beam 1, jack-knifed parts: 0"
    assert wanted in write_report(plan, GREEDY, {})


def test_a_store_that_is_drafted_otherwise_meanwhile(plan_of, own_store):
    plan = plan_of()

    def meanwhile(line):
        if "training hops" in line:
            draft_store(plan.store, plan.drafter, SearchConfig(beam=1), device="cpu")

    failures = reproduce(plan, GREEDY, meanwhile)
    assert list(failures.values()) == [
        f"the store {own_store} has been drafted by another model or in another way meanwhile: give the same command "
        "again to train on these drafts"
    ]
    assert reproduce(plan_of(), GREEDY) == {}


def test_no_model_to_draft_with(plan_of, own_store):
    alone = "title: x\nvariants: {hops: {recipe: group-cpu.yaml, settings: {model.system: multihop}}}"
    failures = reproduce(plan_of(alone), GREEDY)
    assert list(failures.values()) == [
        f"the multihop system reads drafts, but the store {own_store} has none: let the variant start from one of "
        "single sentences, which then drafts, or run `docmt draft`"
    ]


def test_a_drafter_that_failed(plan_of, monkeypatch):
    text = MULTIHOP.replace("{model.system: sentence}", "{model.system: sentence, optimizer.learning_rate: 1e3}")
    hopeless = plan_of(text)
    monkeypatch.setattr(runner, "_train", lambda config, resume: (_ for _ in ()).throw(DocmtError("no")))
    failures = reproduce(hopeless, GREEDY)
    assert sorted(failures.values()) == ["no", "no", f"the run that it starts from, {hopeless.drafter.name}, failed"]


def test_the_other_direction_is_scored_as_its_own_language(plan_of, own_store, monkeypatch):
    statistics = json.loads((own_store / "statistics.json").read_text())
    statistics |= {"source_language": "en", "target_language": "de"}
    (own_store / "statistics.json").write_text(json.dumps(statistics))
    seen = []
    original = scores.evaluate_documents

    def spy(hypotheses, references, metrics, *others, **named):
        seen.append((references[3][0], metrics.language))
        return original(hypotheses, references, metrics, *others, **named)

    monkeypatch.setattr(scores, "evaluate_documents", spy)
    text = MULTIHOP.split("variants:")[0] + "variants:\n" + MULTIHOP[MULTIHOP.index("  backward") :]
    evaluation = EvaluationConfig(SearchConfig(beam=1), MetricConfig(text="tokenized", language="de"))
    assert reproduce(plan_of(text), evaluation) == {}
    (backward, english), (forward, german) = seen
    assert (english, german) == ("en", "de")
    assert backward.islower()
    assert backward.upper() == forward


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("start_from: backward", "start_from names backward, which has reverse true: name a variant whose settings"),
        (
            "start_from: forward, start_reverse_from: forward",
            "start_reverse_from names forward, which has reverse false: name a variant whose settings have reverse tr",
        ),
        ("start_from: forward, start_reverse_from: none", "cannot start from 'none': name another variant"),
        ("start_from: forward, start_reverse_from: hops", "cannot start from 'hops': name another variant"),
        ("start_reverse_from: [x]", "start_reverse_from is a list: write text"),
    ],
)
def test_starts_that_cannot_be(plan_of, entry, message):
    rest = MULTIHOP[MULTIHOP.index("  backward") :]
    own = f"  hops: {{recipe: group-cpu.yaml, {entry}, settings: {{model.system: multihop}}}}\n"
    with pytest.raises(DocmtError, match=message):
        plan_of(f"title: x\nvariants:\n{own}{rest}")


def test_a_store_that_cannot_be_reversed_is_told_at_once(plan_of, monkeypatch):
    monkeypatch.setattr("docmt.text.bpe.BpeTokenizer.shares_vocabulary", False)
    with pytest.raises(DocmtError, match="cannot be reversed, as its bpe tokenizer has a vocabulary for each side"):
        plan_of()
