"""Checkpoints that are damaged or half-replaced, and starting from other models."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from docmt.checkpoint.model_directory import load_model
from docmt.checkpoint.weights import average_weights
from docmt.core.errors import DocmtError
from docmt.core.files import find_leftovers
from docmt.model import TranslationModel
from docmt.training import StopConfig, train
from docmt.training.finetune import initialize_from, trainable_parameters
from docmt.training.optimizer import optimizer_tensors, restore_optimizer
from docmt.training.run_directory import finish_interrupted_swaps, save_checkpoint
from docmt.training.training_corpus import fit_model_config


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", cut_short, "model.safetensors is damaged"),
        ("optimizer.safetensors", cut_short, "optimizer.safetensors is damaged"),
        ("optimizer.safetensors", lambda path: path.unlink(), "optimizer.safetensors is missing"),
        ("state.json", lambda path: path.write_text('{"update": 2'), "state.json is damaged"),
        ("state.json", lambda path: path.write_text('{"update": 2}'), "state.json cannot be read"),
        ("state.json", lambda path: path.write_text("[]"), "state.json does not hold a JSON object"),
    ],
)
def test_damaged_checkpoints_are_named(finished, file, damage, message):
    damage(finished.run / "checkpoints" / "last" / file)
    with pytest.raises(DocmtError, match=message):
        train(finished, resume=True)


def test_a_damaged_recipe_is_named(finished):
    (finished.run / "recipe.yaml").write_text("a: [1")
    with pytest.raises(DocmtError, match=r"recipe.yaml is damaged"):
        train(finished, resume=True)


def test_a_kill_between_the_two_steps_of_a_swap_is_mended(tmp_path):
    (tmp_path / ".last.4194305-00000000.x1y2.old").mkdir()
    (tmp_path / ".last.4194305-00000000.x1y2.old" / "state.json").write_text("old")
    (tmp_path / ".last.4194305-00000000.x1y2.tmp").mkdir()
    finish_interrupted_swaps(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    (tmp_path / ".last.4194305-00000000.abcd.old").mkdir()
    finish_interrupted_swaps(tmp_path)
    assert (tmp_path / "last" / "state.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_a_group_model_starts_from_a_sentence_model(change, store, sentence_run, tmp_path):
    pretrained = load_model(sentence_run).state_dict()
    config = change(run=tmp_path / "second", initialize_from=sentence_run, stop__max_steps=1)
    torch.manual_seed(0)
    model = TranslationModel(fit_model_config(config.model, store))
    random = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    new = set(initialize_from(model, sentence_run, store.tokenizer))
    for name, tensor in model.state_dict().items():
        if ".gate." in name or ".global." in name:
            assert name in new
            assert torch.equal(tensor, random[name])
        else:
            assert name not in new
            assert torch.equal(tensor, pretrained[name])
    assert any(".gate." in name for name in new)
    train(config)
    log = (tmp_path / "second" / "train.log").read_text()
    count = sum(random[name].numel() for name in new)
    assert f"{len(new)} new tensors ({count:,} weights): encoder.*.attention.global, encoder.*.attention.gate, " in log
    assert f"loaded {len(pretrained)} of {len(random)} weights from" in log


def test_attention_over_the_document_may_start_as_that_within_sentences(change, store, sentence_run, tmp_path):
    pretrained = load_model(sentence_run).state_dict()
    config = change(model__group__global_start="local", initialize_from=sentence_run)
    model = TranslationModel(fit_model_config(config.model, store))
    new = initialize_from(model, sentence_run, store.tokenizer)
    assert new
    assert all(".gate." in name for name in new)
    for name, tensor in model.state_dict().items():
        if name not in new:
            assert torch.equal(tensor, pretrained[name.replace(".global.", ".local.")])
    # A model with group attention only has no weights under the global ones' names.
    train(change(run=tmp_path / "grouped", model__group__top_attention="group", stop__max_steps=1))
    grouped = load_model(tmp_path / "grouped").state_dict()
    assert all(".gate." in name for name in initialize_from(model, tmp_path / "grouped", store.tokenizer))
    whole = "decoder.1.cross.global.key.weight"
    assert torch.equal(model.state_dict()[whole], grouped[whole.replace("global", "local")])


def test_closed_gates_begin_with_the_sentence_model(change, store, sentence_run):
    """With gates closed to the document and positions restarting, a group model is the sentence model at first."""
    sentence_model = load_model(sentence_run).eval()
    config = fit_model_config(change(model__positions="sentence", model__group__gate_bias=40.0).model, store)
    model = TranslationModel(config).eval()
    initialize_from(model, sentence_run, store.tokenizer)
    bos, eos = store.tokenizer.specials.bos, store.tokenizer.specials.eos
    document = [([bos, 5, 6, eos], [bos, 7, eos]), ([bos, 8, eos], [bos, 9, 10, eos])]
    with torch.no_grad():
        [together] = model.logits([tuple(zip(*document, strict=True))])
        alone = torch.cat(sentence_model.logits([([source], [target]) for source, target in document]))
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


@pytest.mark.full
def test_loaded_weights_learn_more_slowly_and_resume_so(change, sentence_run, tmp_path):
    shutil.copytree(sentence_run, tmp_path / "first")
    # One update of Adam from zero moments changes every weight by its learning rate.
    settings = {"initialize_from": tmp_path / "first", "optimizer__pretrained_lr_scale": 0.25, "optimizer__warmup": 0}
    torch.manual_seed(0)
    config = change(run=tmp_path / "one", stop__max_steps=1, model__dropout=0.0, **settings)
    train(config)
    trained = load_model(tmp_path / "one").state_dict()
    pretrained = load_model(tmp_path / "first").state_dict()
    state = json.loads((tmp_path / "one" / "checkpoints" / "last" / "state.json").read_text())
    changes = {
        name: (tensor - pretrained[name]).abs().median().item()
        for name, tensor in trained.items()
        if name not in state["new_weights"] and "feed_forward.inner" in name
    }
    assert changes
    assert list(changes.values()) == pytest.approx([0.25 * config.optimizer.learning_rate] * len(changes), rel=0.01)
    gates = [tensor for name, tensor in trained.items() if name.endswith("gate.linear.bias")]
    assert all(name in state["new_weights"] for name in trained if ".gate." in name)
    for bias in gates:  # they start at zero
        assert bias.abs().median().item() == pytest.approx(config.optimizer.learning_rate, rel=0.01)
    # Interrupted and resumed, the same weights come out, though nothing is missing any more.
    train(change(run=tmp_path / "whole", stop__max_steps=6, **settings))
    train(change(run=tmp_path / "halves", stop__max_steps=3, **settings))
    (tmp_path / "first").rename(tmp_path / "gone")
    train(change(run=tmp_path / "halves", stop__max_steps=6, **settings), resume=True)
    whole, halves = (load_model(tmp_path / name).state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_a_model_of_the_same_system_is_taken_whole(finished, store):
    model = TranslationModel(load_model(finished.run).config)
    assert initialize_from(model, finished.run, store.tokenizer) == []
    for name, tensor in load_model(finished.run).state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


def test_starting_from_unfit_models_is_refused(finished, change, store):
    wider = TranslationModel(fit_model_config(change(model__width=32).model, store))
    with pytest.raises(DocmtError, match=r"model.width is 32, but 16 in .*, the start model. Set the same value"):
        initialize_from(wider, finished.run, store.tokenizer)
    tokenizer = type(store.tokenizer).train(["other words than those"] * 3, 263)
    with pytest.raises(DocmtError, match=r"another vocabulary .*docmt prepare --tokenizer"):
        initialize_from(wider, finished.run, tokenizer)


def test_the_state_is_plain_json(finished):
    state = json.loads((finished.run / "checkpoints" / "last" / "state.json").read_text())
    assert state["update"] == 2
    assert state["validated"] == 2
    assert set(state["best"]) == {"higher_is_better", "score", "update", "since"}


def test_files_that_a_kill_left_do_not_stop_a_resume(finished):
    """They were taken for directories, and no resume worked until somebody deleted them."""
    for name in (".recipe.yaml.4194305-00000000.1234.tmp", ".metrics.jsonl.4194305-00000000.abcd.tmp"):
        (finished.run / name).write_text("half")
    (finished.run / "checkpoints" / ".last.4194305-00000000.abcd.tmp").mkdir()
    train(replace(finished, stop=StopConfig(max_steps=4)), resume=True)
    assert find_leftovers(finished.run) + find_leftovers(finished.run / "checkpoints") == []


@pytest.mark.full
def test_a_start_that_was_killed_before_its_recipe_was_written_is_new(config):
    (config.run / "checkpoints").mkdir(parents=True)
    (config.run / ".recipe.yaml.4194305-00000000.abcd.tmp").write_text("half")
    (config.run / ".lock").write_text("4194305 elsewhere\n")
    train(config)
    assert find_leftovers(config.run) == []


@pytest.mark.parametrize("name", ["metrics.jsonl", ".a.tmp", "checkpoints/best/model.safetensors"])
def test_a_directory_with_anything_else_in_it_is_not_new(config, name):
    (config.run / name).parent.mkdir(parents=True)
    (config.run / name).write_text("work")
    with pytest.raises(DocmtError, match="already exists: choose another --run"):
        train(config)
    assert (config.run / name).read_text() == "work"


def test_a_start_that_fails_leaves_a_link_to_an_empty_directory(config):
    (config.run.parent / "disk").mkdir()
    config.run.symlink_to(config.run.parent / "disk")
    with pytest.raises(DocmtError, match="there is no directory"):
        train(replace(config, initialize_from=config.run.parent / "none"))
    assert list((config.run.parent / "disk").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"update": [60]}, "update is .*give a whole number"),
        ({"position": None}, "position is None: give a whole number"),
        ({"epoch": -1}, "epoch is -1"),
        ({"best": 3}, "best in state.json is not a group"),
        ({"snapshots": [3]}, "snapshots is"),
        ({"interval": {"loss": "much"}}, "interval.loss is 'much': give a number"),
        ({"new_weights": [1]}, "new_weights is"),
    ],
)
def test_a_state_of_other_types_is_named(finished, changes, message):
    path = finished.run / "checkpoints" / "last" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(DocmtError, match=rf"state\.json cannot be read \(.*{message}"):
        train(finished, resume=True)


def test_a_state_without_its_epoch_is_named(finished):
    path = finished.run / "checkpoints" / "last" / "state.json"
    values = json.loads(path.read_text())
    del values["epoch"]
    path.write_text(json.dumps(values))
    with pytest.raises(DocmtError, match="it has no epoch"):
        train(finished, resume=True)


def test_metrics_with_bytes_that_are_no_text(finished, caplog):
    path = finished.run / "metrics.jsonl"
    before = path.read_bytes()
    path.write_bytes(b"\xff{\n" + before + b'{"update": 2, "x\xff')
    train(finished, resume=True)
    assert path.read_bytes().startswith(before)
    assert "removed damaged lines: 1" in caplog.text


def small_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    return model, torch.optim.Adam(parameter for parameter in model.parameters() if parameter.requires_grad)


def restore_anew(path):
    model, optimizer = small_model()
    restore_optimizer(trainable_parameters(model), optimizer, path)


def test_the_optimizer_of_a_partly_frozen_model(tmp_path):
    """All parameters were counted, frozen ones too: every resume said that the file is not complete."""
    model, optimizer = small_model()
    model[1](model[0](torch.ones(2))).sum().backward()  # the last layer has no gradient yet
    optimizer.step()
    save_checkpoint(
        tmp_path / "last", {"optimizer.safetensors": optimizer_tensors(trainable_parameters(model), optimizer)}, {}
    )
    path = tmp_path / "last" / "optimizer.safetensors"
    other, restored = small_model()
    restore_optimizer(trainable_parameters(other), restored, path)
    assert len(restored.state) == 4
    for parameter, restored_parameter in zip(model[1].parameters(), other[1].parameters(), strict=True):
        assert optimizer.state[parameter].keys() == restored.state[restored_parameter].keys()
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(value, restored.state[restored_parameter][key])
    for parameter in other[2].parameters():
        assert all(not value.any() for value in restored.state[parameter].values())
    tensors = load_file(path)
    (tmp_path / "last" / "state.json").write_text("{}")  # as of a version that wrote no checksums
    for name in ("1.weight.step", "2.bias.exp_avg"):
        save_file({key: value for key, value in tensors.items() if key != name}, path)
        with pytest.raises(DocmtError, match=rf"lacks weights for {name}\. Copy the run directory again"):
            restore_anew(path)
    save_file({**tensors, "0.weight.exp_avg": torch.zeros(3, 2)}, path)
    with pytest.raises(DocmtError, match=r"has weights 0.weight.exp_avg, which .*\. Copy the run directory again"):
        restore_anew(path)


@pytest.mark.full
def test_a_checkpoint_of_another_model_is_noticed_when_a_run_goes_on(config):
    """Not at the end of the training, when the average is made."""
    config = replace(config, checkpoints=replace(config.checkpoints, average="last", average_count=2))
    train(config)
    path = next(config.run.glob("checkpoints/update-*/model.safetensors"))
    save_file({"a": torch.ones(2)}, path)
    updates = (config.run / "metrics.jsonl").read_text()
    with pytest.raises(DocmtError, match=rf"{path} lacks weights for .*\. It belongs to another model"):
        train(replace(config, stop=replace(config.stop, max_steps=100_000)), resume=True)
    assert (config.run / "metrics.jsonl").read_text() == updates


def test_an_average_of_two_models_is_refused(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "one")
    save_file({"b": torch.ones(2)}, tmp_path / "other")
    with pytest.raises(DocmtError, match="are different models"):
        average_weights([tmp_path / "one", tmp_path / "other"])
