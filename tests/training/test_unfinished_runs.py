"""The models of a run before it is finished: its checkpoints are model directories, also while they are replaced."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
import torch
from runs import Killed, kill_before
from safetensors.torch import load_file

from docmt import Document, SearchConfig, Translator
from docmt.checkpoint import weights
from docmt.checkpoint.model_card import ModelCard
from docmt.checkpoint.model_directory import describe_model, load_languages, load_model, load_model_tokenizer
from docmt.checkpoint.weights import save_tensors
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel
from docmt.training import train
from docmt.training.corpus import fit_model_config
from docmt.training.finetune import initialize_from
from docmt.training.run_directory import save_checkpoint


@pytest.fixture
def unfinished(change, monkeypatch):
    """A run that was killed before its tenth update: the best of update 8, and the last of the same."""
    config = change(checkpoints__average="last", checkpoints__average_count=2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 10)
        train(config)
    return config.run


@pytest.mark.parametrize("name", ["best", "last", "update-4"])
def test_a_checkpoint_is_a_model_directory(unfinished, store, name):
    checkpoint = unfinished / "checkpoints" / name
    weights = load_file(checkpoint / "model.safetensors")
    model = load_model(checkpoint)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    translation = Translator(checkpoint, search=SearchConfig(beam=1)).translate(
        Document.from_sentences(["bo ka", "me"])
    )
    assert len(translation.document.sentences) == 2
    assert load_model_tokenizer(checkpoint).same_words(store.tokenizer)
    assert load_languages(checkpoint) == ("xx", "yy")
    update = 4 if name == "update-4" else 8
    assert f"those after update {update} of an unfinished training" in (checkpoint / "README.md").read_text()


def test_a_run_gives_its_best_model_then_its_last_then_the_finished_one(unfinished, caplog, change):
    best = unfinished / "checkpoints" / "best"

    def given():
        caplog.clear()
        tensor = load_model(unfinished).tokens.weight
        return tensor, [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    tensor, said = given()
    assert torch.equal(tensor, load_file(best / "model.safetensors")["tokens.weight"])
    assert said == [f"the run {unfinished} is not finished: taking its best model so far (update 8)"]
    # In the middle of being replaced, or killed just then.
    aside = best.with_name(f".best.{os.getpid()}-00000000.abcd.old")
    best.rename(aside)
    assert given()[1] == said
    shutil.rmtree(aside)
    tensor, said = given()
    assert said == [f"the run {unfinished} is not finished: taking its last checkpoint (update 8)"]
    train(change(checkpoints__average="last", checkpoints__average_count=2), resume=True)
    tensor, said = given()
    assert torch.equal(tensor, load_file(unfinished / "model" / "model.safetensors")["tokens.weight"])
    assert said == []


def test_a_training_may_start_from_an_unfinished_run(unfinished, store, change, caplog):
    model = TranslationModel(fit_model_config(change().model, store))
    assert initialize_from(model, unfinished, store.tokenizer) == []
    best = load_file(unfinished / "checkpoints" / "best" / "model.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    assert "taking its best model so far (update 8)" in caplog.text


def test_checkpoints_of_weights_alone_are_no_models(unfinished):
    for config in unfinished.rglob("config.json"):
        config.unlink()
    with pytest.raises(
        DocmtError, match=r"has no finished model yet .* nor a checkpoint with a config.json: go on with"
    ):
        load_model(unfinished)
    with pytest.raises(DocmtError, match=r"best.config.json: there is no such file"):
        load_model(unfinished / "checkpoints" / "best")


def test_reading_while_a_training_replaces_the_best(unfinished, store, monkeypatch):
    """Every model that is read is one of those that were written, whole, though moments are made longer in which
    there is none at its place."""
    original = Path.replace

    def slow(self, target):
        original(self, target)
        if Path(target).suffix == ".old":
            time.sleep(0.01)

    monkeypatch.setattr(Path, "replace", slow)
    shutil.rmtree(unfinished / "checkpoints" / "last")
    best = unfinished / "checkpoints" / "best"
    models = [load_model(best), load_model(best)]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter += 1
    stop = threading.Event()

    def replace_on_and_on():
        number = 0
        while not stop.is_set():
            number += 1
            model = models[number % 2]

            def describe(folder, model=model):
                describe_model(folder, model, store.tokenizer, ModelCard())

            save_checkpoint(best, {"model.safetensors": model.state_dict()}, {"update": number}, describe)
            time.sleep(0.01)

    writer = threading.Thread(target=replace_on_and_on)
    writer.start()
    try:
        for _ in range(40):
            found = load_model(unfinished).state_dict()
            added = {round((found[name] - tensor).mean().item()) for name, tensor in models[0].state_dict().items()}
            assert added in ({0}, {1})
            assert load_model_tokenizer(best).same_words(store.tokenizer)
    finally:
        stop.set()
        writer.join()


def test_real_damage_is_told_at_once(unfinished):
    for name in ("best", "last"):
        save_tensors(unfinished / "checkpoints" / name / "model.safetensors", {"other": torch.zeros(1)})
    with pytest.raises(DocmtError, match=r"best/model.safetensors has .*copy the directory again"):
        load_model(unfinished)


def test_a_reader_begins_again_when_its_model_is_replaced(unfinished, monkeypatch):
    best, original, seen = unfinished / "checkpoints" / "best", weights.read_tensors, []

    def in_the_gap(path):
        seen.append(path)
        if len(seen) > 1:
            return original(path)
        aside = best.rename(best.with_name(f".best.{os.getpid()}-00000000.abcd.old"))
        try:
            return original(path)
        finally:
            shutil.copytree(aside, best)
            shutil.rmtree(aside)

    monkeypatch.setattr(weights, "read_tensors", in_the_gap)
    load_model(unfinished)
    assert len(seen) == 2
