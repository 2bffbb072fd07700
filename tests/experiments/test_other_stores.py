"""Variants that start from a pretrained model: with their own store, in the same table."""

import json

import pytest
import torch
import yaml

from docmt.checkpoint.model_directory import load_model, save_model
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.decoding import SearchConfig
from docmt.experiments import EvaluationConfig, determine_state, make_plan, read_experiment, reproduce, write_report
from docmt.model import ModelConfig, TranslationModel
from docmt.training.training_corpus import fit_model_config

GREEDY = EvaluationConfig(SearchConfig(beam=1))
TEXT = """
title: From nothing, and from a pretrained model
variants:
  sentence:
    recipe: group-{scale}.yaml
    settings: {model.system: sentence}
  pretrained:
    recipe: pretrained.yaml
    settings: {store: STORE}
    published: {d-BLEU: 30}
"""


@pytest.fixture
def plan_of(write_experiment, store, tmp_path):
    """Return a function that plans the experiment. Its recipe names a store `other` and a model `start`."""
    write_experiment()
    recipe = yaml.safe_load((tmp_path / "group-cpu.yaml").read_text())
    recipe |= {"store": str(tmp_path / "other"), "initialize_from": str(tmp_path / "start")}
    recipe["model"] = {"system": "group", "instance_tokens": 64}
    (tmp_path / "pretrained.yaml").write_text(yaml.safe_dump(recipe))

    def plan(text=TEXT):
        experiment = read_experiment(str(write_experiment(text.replace("STORE", str(tmp_path / "other")))))
        return make_plan(experiment, "cpu", store, tmp_path / "out")

    return plan


@pytest.fixture
def other_store(store, tmp_path):
    """Another store of the same documents, with fewer words, and a model of other sizes to start from."""
    splits = {name: [store.parent / f"{name}.jsonl"] for name in ("train", "dev", "test")}
    prepared = prepare(PrepareConfig(store=tmp_path / "other", vocabulary_size=280, **splits))
    sizes = {"width": 8, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    torch.manual_seed(1)
    model = TranslationModel(fit_model_config(ModelConfig(system="sentence", **sizes), prepared))
    save_model(tmp_path / "start", model, prepared.tokenizer)
    return prepared


def test_without_them_the_variant_is_skipped(plan_of, tmp_path):
    plan = plan_of()
    assert [run.variant for run in plan.runs] == ["sentence"]
    missing = f"{tmp_path / 'other'} and {tmp_path / 'start'} missing: see {tmp_path / 'pretrained.yaml'} for"
    assert plan.skipped == {"pretrained": f"{missing} how to create them"}
    plan.output.mkdir()
    text = write_report(plan, GREEDY, {})
    assert f"- skipped: pretrained ({missing}" in " ".join(text.split())
    assert "| pretrained | 0/0 |" in text


@pytest.mark.full
def test_variant_has_its_vocabulary_and_sizes(plan_of, other_store, store, tmp_path):
    plan = plan_of()
    assert reproduce(plan, GREEDY) == {}
    ordinary, pretrained = (load_model(run.config.run).config for run in plan.runs)
    words = PreparedStore.open(store).tokenizer.vocabulary_size
    assert (ordinary.vocabulary_size, ordinary.width) == (words, 16)
    assert (pretrained.vocabulary_size, pretrained.width) == (other_store.tokenizer.vocabulary_size, 8)
    assert other_store.tokenizer.vocabulary_size != words
    again = plan_of()
    assert [determine_state(run, GREEDY) for run in again.runs] == ["done", "done"]
    assert [run.config for run in again.runs] == [run.config for run in plan.runs]
    model = load_model(tmp_path / "start")
    with torch.no_grad():
        model.decoder[0].feed_forward.inner.bias += 1
    save_model(tmp_path / "start", model, other_store.tokenizer)
    assert [determine_state(run, GREEDY) for run in plan_of().runs] == ["done", "missing"], (
        "another model is another run"
    )
    write_report(again, GREEDY, {})
    rows = json.loads((plan.output / "small-cpu.json").read_text())["rows"]
    assert [row["runs"][0]["state"] for row in rows] == ["done", "done"]
