"""The models of a run before it is finished: its checkpoints are model directories, also while they are replaced."""

import shutil

import pytest
import torch
from runs import Killed, kill_before
from safetensors.torch import load_file

from docmt import Document, SearchConfig, Translator
from docmt.checkpoint.model_directory import load_languages, load_model, load_model_tokenizer
from docmt.checkpoint.weights import save_tensors
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel
from docmt.training import train
from docmt.training.finetune import initialize_from
from docmt.training.training_corpus import fit_model_config


@pytest.fixture
def unfinished(change, monkeypatch):
    """A run that was killed before its tenth update: the best of update 8, and the last of the same."""
    config = change(checkpoints__average="last", checkpoints__average_count=2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 10)
        train(config)
    return config.run


@pytest.mark.parametrize(
    "name", ["best", *(pytest.param(name, marks=pytest.mark.full) for name in ("last", "update-4"))]
)
def test_a_checkpoint_is_a_model_directory(unfinished, store, name):
    checkpoint = unfinished / "checkpoints" / name
    weights = load_file(checkpoint / "model.safetensors")
    model = load_model(checkpoint)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    translation = Translator(checkpoint, search=SearchConfig(beam=1)).translate(
        Document.from_sentences(["bo ka", "me"])
    )
    assert len(translation.document.sentences) == 2
    assert load_model_tokenizer(checkpoint).has_same_vocabulary(store.tokenizer)
    assert load_languages(checkpoint) == ("xx", "yy")
    update = 4 if name == "update-4" else 8
    assert f"those after update {update} of an unfinished training" in (checkpoint / "README.md").read_text()


def test_a_run_gives_its_best_model_then_its_last_then_the_finished_one(unfinished, caplog, change):
    best = unfinished / "checkpoints" / "best"

    def load_with_messages():
        caplog.clear()
        tensor = load_model(unfinished).tokens.weight
        return tensor, [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    tensor, messages = load_with_messages()
    assert torch.equal(tensor, load_file(best / "model.safetensors")["tokens.weight"])
    assert messages == [f"the run {unfinished} is not finished. Using its best model so far (update 8)"]
    shutil.rmtree(best)
    tensor, messages = load_with_messages()
    assert messages == [f"the run {unfinished} is not finished. Using its last checkpoint (update 8)"]
    train(change(checkpoints__average="last", checkpoints__average_count=2), resume=True)
    tensor, messages = load_with_messages()
    assert torch.equal(tensor, load_file(unfinished / "model" / "model.safetensors")["tokens.weight"])
    assert messages == []


def test_a_training_may_start_from_an_unfinished_run(unfinished, store, change, caplog):
    model = TranslationModel(fit_model_config(change().model, store))
    assert initialize_from(model, unfinished, store.tokenizer) == []
    best = load_file(unfinished / "checkpoints" / "best" / "model.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    assert "Using its best model so far (update 8)" in caplog.text


def test_checkpoints_of_weights_alone_are_no_models(unfinished):
    for config in unfinished.rglob("config.json"):
        config.unlink()
    for path in (unfinished, unfinished / "checkpoints" / "best"):
        with pytest.raises(DocmtError, match=r"best.config.json: there is no such file; copy the directory again"):
            load_model(path)


def test_real_damage_is_told_at_once(unfinished):
    for name in ("best", "last"):
        save_tensors(unfinished / "checkpoints" / name / "model.safetensors", {"other": torch.zeros(1)})
    with pytest.raises(DocmtError, match=r"best/model.safetensors has .*Copy the directory again"):
        load_model(unfinished)
