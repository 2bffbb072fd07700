"""Averages of finished models, and checkpoints that a run keeps for them."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from runs import Killed, assert_equal_runs, assert_equal_weights, kill_before
from safetensors.torch import load_file

from docmt.checkpoint.averaging import average_models
from docmt.checkpoint.model_directory import load_languages, load_model
from docmt.core.errors import DocmtError
from docmt.training import CheckpointConfig, StopConfig, train
from docmt.training.run_directory import kept_checkpoints

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def kept(tiny_config, tmp_path_factory):
    """A run of three validations, at updates 4, 8 and 12, that keeps the checkpoints of all."""
    config = replace(
        tiny_config, run=tmp_path_factory.mktemp("kept") / "run", checkpoints=CheckpointConfig(every=5, keep=3)
    )
    train(config)
    return config


def names(paths):
    return sorted(path.name for path in paths)


def test_a_run_keeps_what_it_is_told_and_its_model_is_the_best(kept, change):
    assert names((kept.run / "checkpoints").glob("update-*")) == ["update-12", "update-4", "update-8"]
    assert_equal_weights(kept.run / "model" / WEIGHTS, kept.run / "checkpoints" / "best" / WEIGHTS)
    train(change())
    assert_equal_runs(change().run, kept.run)


@pytest.mark.full
def test_the_average_of_a_run_is_that_of_its_own_though_more_is_kept(change, tmp_path):
    settings = {"checkpoints__average": "best", "checkpoints__average_count": 2}
    train(change(run=tmp_path / "few", **settings))
    train(change(run=tmp_path / "many", checkpoints__keep=3, **settings))
    assert_equal_runs(tmp_path / "few", tmp_path / "many")


@pytest.mark.full
def test_a_killed_run_keeps_the_same(change, tmp_path, kept, monkeypatch):
    config = change(checkpoints__keep=3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 10)
        train(config)
    train(config, resume=True)
    assert_equal_runs(config.run, kept.run)
    for update in (4, 8, 12):
        place = f"checkpoints/update-{update}/{WEIGHTS}"
        assert_equal_weights(config.run / place, kept.run / place)
    # Keeping more or less changes nothing else, so a resumed run may.
    longer = change(checkpoints__keep=2, stop__max_steps=16)
    train(longer, resume=True)
    assert names(kept_checkpoints(longer.run, "last", 2)) == ["update-12", "update-16"]


def test_the_mean_is_that_of_float64_to_the_last_bit(kept, tmp_path):
    checkpoints = kept_checkpoints(kept.run, "last", 3)
    average_models(checkpoints, tmp_path / "mean")
    tensors = [load_file(checkpoint / WEIGHTS) for checkpoint in checkpoints]
    for name, tensor in load_model(tmp_path / "mean").state_dict().items():
        expected = torch.stack([found[name].double() for found in tensors]).sum(0) / 3
        assert torch.equal(tensor, expected.float()), name
    card = (tmp_path / "mean" / "README.md").read_text()
    assert "weights: mean of those of 3 models" in card
    assert all(str(checkpoint) in card for checkpoint in checkpoints)
    assert load_languages(tmp_path / "mean") == ("xx", "yy")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_model_is_the_mean_of_itself(kept, tmp_path, count):
    average_models([kept.run] * count, tmp_path / "same")
    assert_equal_weights(tmp_path / "same" / WEIGHTS, kept.run / "model" / WEIGHTS)


def test_the_last_and_the_best(kept):
    scores = dict(json.loads((kept.run / "checkpoints" / "last" / "state.json").read_text())["snapshots"])
    assert names(kept_checkpoints(kept.run, "last", 2)) == ["update-12", "update-8"]
    best = sorted(scores, key=scores.get)[:2]
    assert names(kept_checkpoints(kept.run, "best", 2)) == sorted(f"update-{update}" for update in best)


def test_what_cannot_be_averaged_is_named(kept, change, tmp_path):
    def fails(models, message, output="mean"):
        with pytest.raises(DocmtError, match=message):
            average_models(models, tmp_path / output)
        assert not (tmp_path / "mean").exists()

    train(change(run=tmp_path / "narrow", model__width=8, stop__max_steps=1))
    fails([kept.run, tmp_path / "narrow"], r"model.width is 8 in .*narrow, but 16 in .*\. Average models of one arch")
    shutil.copytree(kept.run / "model", tmp_path / "other")
    tokenizer = tmp_path / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"a"', '"\u20ac"'))
    fails([kept.run, tmp_path / "other"], "has another vocabulary|tokenizer.json")
    fails([kept.run, tmp_path / "none"], "there is no directory .*none")
    fails([kept.run, kept.run], r"other exists already\. Remove it, or choose another --output", "other")
    with pytest.raises(DocmtError, match=r"keeps 3 checkpoints, and 4 are to be averaged.*--checkpoints.keep 4"):
        kept_checkpoints(kept.run, "last", 4)
    with pytest.raises(DocmtError, match=r"model is no run directory with checkpoints"):
        kept_checkpoints(kept.run / "model", "best", 1)


def test_without_a_dev_split_there_is_no_best(change, tmp_path, store):
    store_of_train = tmp_path / "store"
    shutil.copytree(store.directory, store_of_train)
    shutil.rmtree(store_of_train / "dev")
    statistics = json.loads((store_of_train / "statistics.json").read_text())
    del statistics["splits"]["dev"]
    (store_of_train / "statistics.json").write_text(json.dumps(statistics))
    config = change(store=store_of_train, checkpoints__keep=2)
    train(config)
    assert names(kept_checkpoints(config.run, "last", 2)) == ["update-10", "update-12"]
    with pytest.raises(DocmtError, match="has no dev split that says which checkpoints are the best: use --last"):
        kept_checkpoints(config.run, "best", 2)


def test_models_may_have_been_trained_with_other_dropout(kept, change, tmp_path):
    config = change(run=tmp_path / "dropout", model__dropout=0.3, stop=StopConfig(max_steps=2))
    train(config)
    average_models([config.run, kept.run], tmp_path / "mean")
    assert load_model(tmp_path / "mean").config.dropout == 0.3
