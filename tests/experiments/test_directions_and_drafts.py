"""Variants that start from a model of the other direction, and those that read drafts."""

import json
import shutil

import pytest

from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, prepare
from docmt.decoding import SearchConfig
from docmt.evaluation import MetricConfig
from docmt.experiments import EvaluationConfig, determine_state, make_plan, read_experiment, reproduce, runs

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
def copied_store(store, tmp_path):
    """A copy of the store, which may be changed."""
    return shutil.copytree(store, tmp_path / "store")


@pytest.fixture
def drafted(store, tmp_path):
    """A store of the same corpus with drafts."""
    files = {name: [store.parent / f"{name}.jsonl"] for name in ("train", "dev", "test")}
    drafts = [tmp_path / "train.drafts.jsonl", tmp_path / "dev.drafts.jsonl"]
    for path, (corpus,) in zip(drafts, (files["train"], files["dev"]), strict=True):
        shutil.copy(corpus, path)  # any text does: these are the references
    tokenizer = str(store / "tokenizer")
    return prepare(PrepareConfig(tmp_path / "drafted", tokenizer=tokenizer, drafts=drafts, **files)).directory


@pytest.fixture
def plan_of(write_experiment, copied_store, tmp_path):
    """Return a function that plans an experiment text on this copy."""
    return lambda text=MULTIHOP, data=copied_store, **settings: make_plan(
        read_experiment(str(write_experiment(text))), "cpu", data, tmp_path / "out", **settings
    )


def states(plan):
    return {run.variant: determine_state(run, GREEDY) for run in plan.runs}


def test_a_run_comes_after_both_that_it_starts_from(plan_of, drafted, tmp_path):
    plan = plan_of(data=drafted)
    assert [run.variant for run in plan.runs] == ["backward", "forward", "hops"]
    backward, forward, hops = [run.config for run in plan.runs]
    assert (backward.reverse, forward.reverse, hops.reverse) == (True, False, False)
    assert (hops.initialize_from, hops.initialize_reverse_from) == (forward.run, backward.run)
    moved = make_plan(plan.experiment, "cpu", plan.store.directory, tmp_path / "else")
    assert [run.config.run.name for run in moved.runs] == [run.config.run.name for run in plan.runs]
    other = plan_of(MULTIHOP.replace("sentence, reverse", "sentence, model.dropout: 0.2, reverse"), data=drafted)
    changed = [run.config.run.name != was.config.run.name for run, was in zip(other.runs, plan.runs, strict=True)]
    assert changed == [True, False, True], "what is started from is part of what a run is"


def test_variants_that_read_drafts_need_a_store_that_has_them(plan_of, write_experiment, store, tmp_path):
    plan = plan_of()
    assert [run.variant for run in plan.runs] == ["backward", "forward"]
    assert plan.skipped == {
        "hops": f"drafts are missing in {plan.store.directory}: run `docmt prepare` again with --drafts"
    }


@pytest.mark.full
def test_reverse_runs_are_scored_in_their_target_language(plan_of, copied_store, monkeypatch):
    statistics = json.loads((copied_store / "statistics.json").read_text())
    statistics |= {"source_language": "en", "target_language": "de"}
    (copied_store / "statistics.json").write_text(json.dumps(statistics))
    calls = []
    original = runs.evaluate_documents

    def spy(hypotheses, references, metrics, *args, **kwargs):
        calls.append((references[3][0], metrics.language))
        return original(hypotheses, references, metrics, *args, **kwargs)

    monkeypatch.setattr(runs, "evaluate_documents", spy)
    text = MULTIHOP.split("variants:")[0] + "variants:\n" + MULTIHOP[MULTIHOP.index("  backward") :]
    evaluation = EvaluationConfig(SearchConfig(beam=1), MetricConfig(text="tokenized", language="de"))
    assert reproduce(plan_of(text), evaluation) == {}
    (backward, english), (forward, german) = calls
    assert (english, german) == ("en", "de")
    assert backward.islower()
    assert backward.upper() == forward


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "start_from: backward",
            "start_from names backward, which has reverse true. Name a variant with reverse false.",
        ),
        (
            "start_from: forward, start_reverse_from: forward",
            "start_reverse_from names forward, which has reverse false. Name a variant with reverse true.",
        ),
        ("start_from: forward, start_reverse_from: none", "cannot start from 'none'. Name another variant"),
        ("start_from: forward, start_reverse_from: hops", "cannot start from 'hops'. Name another variant"),
        ("start_reverse_from: [x]", r"start_reverse_from is .'x'.: give text"),
    ],
)
def test_starts_that_cannot_be(plan_of, drafted, entry, message):
    backward = MULTIHOP[MULTIHOP.index("  backward") :]
    variant = f"  hops: {{recipe: group-cpu.yaml, {entry}, settings: {{model.system: multihop}}}}\n"
    with pytest.raises(DocmtError, match=message):
        plan_of(f"title: x\nvariants:\n{variant}{backward}", data=drafted)


def test_a_store_that_cannot_be_reversed_is_refused_at_once(plan_of, monkeypatch):
    monkeypatch.setattr("docmt.text.bpe.BpeTokenizer.shares_vocabulary", False)
    with pytest.raises(DocmtError, match="cannot be reversed: its bpe tokenizer has separate vocabularies for source"):
        plan_of()
