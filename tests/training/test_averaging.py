"""Averages of finished models, and checkpoints that a run keeps for them."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from runs import Killed, assert_equal_runs, assert_equal_weights, kill_before
from safetensors.torch import load_file

from docmt.checkpoint.model_directory import average_models, load_languages, load_model
from docmt.core.errors import DocmtError
from docmt.training import CheckpointConfig, StopConfig, train
from docmt.training.run_directory import select_snapshots

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def finished(tiny_config, tmp_path_factory):
    """A run of three validations, at updates 4, 8 and 12, that keeps the checkpoints of all."""
    config = replace(
        tiny_config, run=tmp_path_factory.mktemp("kept") / "run", checkpoints=CheckpointConfig(every=5, keep=3)
    )
    train(config)
    return config


def names(paths):
    return sorted(path.name for path in paths)


def test_a_run_keeps_what_it_is_told_and_its_model_is_the_best(finished, change):
    assert names((finished.run / "checkpoints").glob("update-*")) == ["update-12", "update-4", "update-8"]
    assert_equal_weights(finished.run / "model" / WEIGHTS, finished.run / "checkpoints" / "best" / WEIGHTS)
    train(change())
    assert_equal_runs(change().run, finished.run)


@pytest.mark.full
def test_the_average_of_a_run_is_that_of_its_own_though_more_is_kept(change, tmp_path):
    settings = {"checkpoints__average": "best", "checkpoints__average_count": 2}
    train(change(run=tmp_path / "few", **settings))
    train(change(run=tmp_path / "many", checkpoints__keep=3, **settings))
    assert_equal_runs(tmp_path / "few", tmp_path / "many")


@pytest.mark.full
def test_a_killed_run_keeps_the_same(change, tmp_path, finished, monkeypatch):
    config = change(checkpoints__keep=3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 10)
        train(config)
    train(config, resume=True)
    assert_equal_runs(config.run, finished.run)
    for update in (4, 8, 12):
        path = f"checkpoints/update-{update}/{WEIGHTS}"
        assert_equal_weights(config.run / path, finished.run / path)
    # Keeping more or less changes nothing else, so a resumed run may.
    longer = change(checkpoints__keep=2, stop__max_steps=16)
    train(longer, resume=True)
    assert names(select_snapshots(longer.run, "last", 2)) == ["update-12", "update-16"]


def test_the_mean_is_that_of_float64_to_the_last_bit(finished, tmp_path):
    checkpoints = select_snapshots(finished.run, "last", 3)
    average_models(checkpoints, tmp_path / "mean")
    tensors = [load_file(checkpoint / WEIGHTS) for checkpoint in checkpoints]
    for name, tensor in load_model(tmp_path / "mean").state_dict().items():
        expected = torch.stack([state[name].double() for state in tensors]).sum(0) / 3
        assert torch.equal(tensor, expected.float()), name
    card = (tmp_path / "mean" / "README.md").read_text()
    assert "weights: mean of those of 3 models" in card
    assert all(str(checkpoint) in card for checkpoint in checkpoints)
    assert load_languages(tmp_path / "mean") == ("xx", "yy")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_model_is_the_mean_of_itself(finished, tmp_path, count):
    average_models([finished.run] * count, tmp_path / "same")
    assert_equal_weights(tmp_path / "same" / WEIGHTS, finished.run / "model" / WEIGHTS)


def test_the_last_and_the_best(finished):
    scores = dict(json.loads((finished.run / "checkpoints" / "last" / "state.json").read_text())["snapshots"])
    assert names(select_snapshots(finished.run, "last", 2)) == ["update-12", "update-8"]
    best = sorted(scores, key=scores.get)[:2]
    assert names(select_snapshots(finished.run, "best", 2)) == sorted(f"update-{update}" for update in best)


def test_what_cannot_be_averaged_is_named(finished, change, tmp_path):
    def fails(models, message, output="mean"):
        with pytest.raises(DocmtError, match=message):
            average_models(models, tmp_path / output)
        assert not (tmp_path / "mean").exists()

    train(change(run=tmp_path / "narrow", model__width=8, stop__max_steps=1))
    fails(
        [finished.run, tmp_path / "narrow"], r"model.width is 8 in .*narrow, but 16 in .*\. Average models of one arch"
    )
    shutil.copytree(finished.run / "model", tmp_path / "other")
    tokenizer = tmp_path / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"a"', '"\u20ac"'))
    fails([finished.run, tmp_path / "other"], "has another vocabulary|tokenizer.json")
    fails([finished.run, tmp_path / "none"], "there is no directory .*none")
    fails([finished.run, finished.run], r"other exists already. Remove it, or choose another --output", "other")
    with pytest.raises(DocmtError, match=r"has 3 checkpoints to average, but 4 are requested.*--checkpoints.keep 4"):
        select_snapshots(finished.run, "last", 4)
    with pytest.raises(DocmtError, match=r"model has no checkpoints of a run"):
        select_snapshots(finished.run / "model", "best", 1)


@pytest.mark.full
def test_without_a_dev_split_there_is_no_best(change, tmp_path, store):
    store_of_train = tmp_path / "store"
    shutil.copytree(store.directory, store_of_train)
    shutil.rmtree(store_of_train / "dev")
    statistics = json.loads((store_of_train / "statistics.json").read_text())
    del statistics["splits"]["dev"]
    (store_of_train / "statistics.json").write_text(json.dumps(statistics))
    config = change(store=store_of_train, checkpoints__keep=2)
    train(config)
    assert names(select_snapshots(config.run, "last", 2)) == ["update-10", "update-12"]
    with pytest.raises(DocmtError, match="has no dev scores to choose the best checkpoints by: use --last"):
        select_snapshots(config.run, "best", 2)


def test_models_may_have_been_trained_with_other_dropout(finished, change, tmp_path):
    config = change(run=tmp_path / "dropout", model__dropout=0.3, stop=StopConfig(max_steps=2))
    train(config)
    average_models([config.run, finished.run], tmp_path / "mean")
    assert load_model(tmp_path / "mean").config.dropout == 0.3
