"""Whole runs: what they leave behind, and that killing and resuming them changes nothing."""

import json
import logging
import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from forked import ForkedPython
from runs import Killed, assert_equal_runs, assert_equal_weights, copy_before, kill_before, metrics
from safetensors.torch import load_file

from docmt.analysis import KINDS, attention_entropy
from docmt.checkpoint.model_directory import load_alignment_layer, load_model
from docmt.core.errors import DocmtError
from docmt.core.files import CHECKSUMS_KEY, file_checksum
from docmt.data import PrepareConfig, prepare
from docmt.training import train
from docmt.training.loop import Training
from docmt.training.run_directory import RunDirectory
from docmt.training.training_corpus import BatchedSplit, TrainingCorpus


def test_a_run_leaves_a_model_and_its_history(config):
    result = train(config)
    assert not result.interrupted
    assert result.update == 12
    lines = metrics(config.run)
    assert [line["update"] for line in lines if "loss" in line] == [2, 4, 6, 8, 10, 12]
    assert [line["update"] for line in lines if "valid_loss" in line] == [4, 8, 12]
    assert all(line["loss"] > line["nll"] * 0.9 > 0 for line in lines if "loss" in line)
    assert not load_model(config.run).training
    card = (config.run / "model" / "README.md").read_text()
    assert "xx to yy" in card
    assert "24 documents" in card
    assert "training from update 0" in (config.run / "train.log").read_text()
    layer = load_alignment_layer(config.run)
    assert layer.layer in (1, 2) and load_alignment_layer(config.run / "checkpoints" / "last") is None
    assert not list(config.run.rglob("*.pt")) + list(config.run.rglob("*.pkl"))


def test_a_training_ends_without_a_layer_for_alignments_where_none_can_be_chosen(change, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise DocmtError("sentence 1 of the document may need 90 positions")

    monkeypatch.setattr("docmt.training.validation.choose_alignment_layer", fail)
    result = train(change(stop__max_steps=1))
    assert load_alignment_layer(result.model) is None
    assert "no layer was chosen for word alignments: sentence 1 of the document may need 90 positions" in caplog.text


@pytest.mark.parametrize(
    ("killed_before", "settings"),
    [
        (8, {}),  # after the checkpoints at 4 and 5: a log interval is cut in two, the epoch is in its middle
        pytest.param(3, {}, marks=pytest.mark.full),  # before the first checkpoint
        pytest.param(
            9,
            {"checkpoints__average": "best", "checkpoints__average_count": 2, "validation__every": 0},
            marks=pytest.mark.full,
        ),
        pytest.param(8, {"batches__train_share": 0.5}, marks=pytest.mark.full),
        pytest.param(
            8,
            {"batches__gradient_accumulation": 2, "precision": "bfloat16", "optimizer__clip_norm": 0.5},
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(change, tmp_path, monkeypatch, killed_before, settings):
    config = change(**settings)
    with monkeypatch.context() as patch:
        copy_before(patch, killed_before, config.run)
        train(change(run=tmp_path / "whole", **settings))
    (config.run / "metrics.jsonl").open("a").write('{"update": 7, "loss"')  # the kill came while a line was written
    train(config, resume=True)
    assert_equal_runs(config.run, tmp_path / "whole")


@pytest.mark.full
def test_batches_laid_out_ahead_change_nothing(change, tmp_path, monkeypatch):
    """On by default beside an accelerator only; here on the CPU, killed and resumed."""
    settings = {"batches__gradient_accumulation": 2, "stop__max_steps": 10}  # over the end of several epochs
    config = change(**settings)
    with monkeypatch.context() as patch:
        copy_before(patch, 7, config.run)
        train(change(run=tmp_path / "plain", **settings))
    monkeypatch.setattr("docmt.training.loop._uses_prefetching", lambda device: True)
    threads, original = set(), BatchedSplit.build_batch

    def noted(self, indices):
        threads.add(threading.current_thread() is threading.main_thread())
        return original(self, indices)

    monkeypatch.setattr(BatchedSplit, "build_batch", noted)
    train(config, resume=True)
    assert_equal_runs(config.run, tmp_path / "plain")
    assert threads == {False, True}  # batches of updates, and of validations


def test_what_goes_wrong_ahead_is_told(change, monkeypatch):
    monkeypatch.setattr("docmt.training.loop._uses_prefetching", lambda device: True)
    monkeypatch.setattr(BatchedSplit, "build_batch", lambda self, indices: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(change())


def run_in_background(config, folder, *launcher):
    """Starts a training in a process of its own."""
    recipe, script = folder / f"{config.run.name}.yaml", folder / "script.py"
    recipe.write_text(yaml.safe_dump(config.to_dict()))
    script.write_text(
        "import sys, yaml\n"
        "from docmt.training import TrainConfig, train\n"
        "result = train(TrainConfig.from_dict(yaml.safe_load(open(sys.argv[1]))), resume='--resume' in sys.argv)\n"
        "sys.exit(130 if result.interrupted else 0)\n"
    )
    return ForkedPython([*launcher, script, recipe])


def wait_for_lines(path, count, process):
    """Until the metrics have `count` lines."""
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.full
def test_sigkill_at_any_moment_then_resume(change, tmp_path):
    settings = {"stop__max_steps": 40, "checkpoints__every": 1, "validation__every": 20, "log_every": 1}
    config = change(**settings)
    process = run_in_background(config, tmp_path)
    wait_for_lines(config.run / "metrics.jsonl", 10, process)
    process.kill()
    process.communicate()
    done = metrics(config.run)[-1]["update"]
    assert 10 <= done < 40
    train(config, resume=True)
    train(change(run=tmp_path / "whole", **settings))
    assert_equal_runs(config.run, tmp_path / "whole")


@pytest.mark.full
def test_sigterm_finishes_the_update_and_saves(change, tmp_path):
    config = change(stop__max_steps=100_000, log_every=1, validation__every=50_000)
    process = run_in_background(config, tmp_path)
    wait_for_lines(config.run / "metrics.jsonl", 3, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    state = json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())
    assert state["update"] == metrics(config.run)[-1]["update"] >= 3
    assert not (config.run / "model").exists()


@pytest.fixture
def interruptible():
    """A process that Ctrl-C stops, also where a shell started it in the background."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.full
def test_a_second_signal_acts_as_usual(change, monkeypatch, interruptible):
    config = change(stop__max_steps=100)
    original = Training._update

    def interrupting(self):
        signal.raise_signal(signal.SIGINT)
        if self.state.update == 4:
            signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Training, "_update", interrupting)
    result = train(config)
    assert result.interrupted
    assert result.model is None
    assert result.update == 1
    twice = [signal.SIGINT, signal.SIGTERM]
    monkeypatch.setattr(Training, "_update", lambda self: (list(map(signal.raise_signal, twice)), original(self))[1])
    assert train(config, resume=True).interrupted, "of two at the same moment the second is passed over"
    monkeypatch.setattr("docmt.training.distributed._SAME_SIGNAL_SECONDS", -1.0)
    monkeypatch.setattr(Training, "_update", lambda self: [signal.raise_signal(signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        train(config, resume=True)


def test_more_updates_may_be_added_to_a_finished_run(change):
    train(change(stop__max_steps=4))
    longer = change(stop__max_steps=8)
    assert train(longer, resume=True).update == 8
    assert [line["update"] for line in metrics(longer.run) if "loss" in line] == [2, 4, 6, 8]


@pytest.mark.full
def test_the_updates_since_the_last_line_have_one_when_a_run_ends(change, monkeypatch, tmp_path, interruptible):
    """Whether it is done or interrupted. It goes when the run goes on, so that all lines are those of one run."""
    original, settings = Training._update, {"log_every": 5, "validation__every": 8}

    def updates(run):
        return [line["update"] for line in metrics(run) if "loss" in line]

    config = change(stop__max_steps=12, **settings)
    monkeypatch.setattr(Training, "_update", lambda self: (self.state.update == 2 and _interrupt(), original(self))[1])
    assert train(config, resume=False).interrupted and updates(config.run) == [3]
    monkeypatch.setattr(Training, "_update", original)
    train(change(stop__max_steps=8, **settings), resume=True)
    assert updates(config.run) == [5, 8]
    train(config, resume=True)
    assert updates(config.run) == [5, 10, 12]
    train(change(run=tmp_path / "whole", stop__max_steps=12, **settings))
    assert sorted(map(str, metrics(config.run))) == sorted(map(str, metrics(tmp_path / "whole")))


def _interrupt():
    signal.raise_signal(signal.SIGINT)


def test_an_existing_run_is_not_overwritten(finished, change):
    with pytest.raises(DocmtError, match=r"run already exists: add --resume"):
        train(finished)
    with pytest.raises(DocmtError, match=r"optimizer.warmup is 5 but was 4"):
        train(change(stop__max_steps=1, optimizer__warmup=5), resume=True)


def test_a_foreign_directory_is_left_alone(config):
    config.run.mkdir()
    (config.run / "thesis.txt").write_text("years of work")
    with pytest.raises(DocmtError, match=r"already exists: choose another --run"):
        train(config)
    with pytest.raises(DocmtError, match=r"no run to resume .*recipe.yaml is missing"):
        train(config, resume=True)


def test_a_training_that_cannot_begin_removes_only_its_own_files(change, monkeypatch):
    """A scheduler may put its log into the run directory at any moment: it was removed with the rest."""
    config = change(optimizer__lr_factors=["no_such_weight=2"])

    def slow_corpus(*arguments):
        (config.run / "slurm-1.out").write_text("job 1 starts")
        return TrainingCorpus(*arguments)

    monkeypatch.setattr("docmt.training.loop.TrainingCorpus", slow_corpus)
    with pytest.raises(DocmtError, match=r"matches no weight"):
        train(config)
    assert [path.name for path in config.run.iterdir()] == ["slurm-1.out"]
    (config.run / "slurm-1.out").unlink()
    train(change(stop__max_steps=1))


def test_the_library_leaves_the_allocator_of_its_process_alone(change, monkeypatch):
    """The command may change it (`docmt.cli.app.main`), not a function that a notebook calls."""
    calls = []
    monkeypatch.setattr("docmt.cli.app.ctypes.CDLL", lambda name: calls.append(name))
    train(change(stop__max_steps=1))
    assert calls == []


def test_a_run_of_another_version_is_refused_in_one_sentence(finished, change):
    state = finished.run / "checkpoints" / "last" / "state.json"
    values = json.loads(state.read_text())
    del values["processes"], values[CHECKSUMS_KEY]
    state.write_text(json.dumps(values))
    with pytest.raises(DocmtError, match=r"it has no processes.* written by another version of docmt"):
        train(change(stop__max_steps=8), resume=True)


def test_other_data_at_the_same_place_is_refused(finished, monkeypatch):
    monkeypatch.setattr("docmt.training.training_corpus.TrainingCorpus.fingerprint", "00000000")
    with pytest.raises(DocmtError, match=r"differs from that of the run .*\. Restore the old store"):
        train(finished, resume=True)


@pytest.mark.parametrize("damage", ["text", "gone"])
def test_another_dev_split_at_the_same_place_is_refused(finished, store, tmp_path, damage):
    """The best model would be chosen by scores on two different texts."""
    shutil.copytree(store.directory, tmp_path / "store")
    dev, statistics = tmp_path / "store" / "dev", tmp_path / "store" / "statistics.json"
    values = json.loads(statistics.read_text())
    if damage == "gone":
        shutil.rmtree(dev)
        del values["splits"]["dev"]
    else:
        tokens = np.load(dev / "target_tokens.npy")
        np.save(dev / "target_tokens.npy", tokens[::-1].copy())
        values["splits"]["dev"]["crc32"]["target_tokens.npy"] = file_checksum(dev / "target_tokens.npy")
    statistics.write_text(json.dumps(values))
    with pytest.raises(DocmtError, match=r"the dev data in .* differs from that of the run .* \(text\). Restore"):
        train(replace(finished, store=tmp_path / "store", stop=replace(finished.stop, max_steps=4)), resume=True)


def test_the_clock_ends_the_run(change):
    config = change(stop__max_steps=0, stop__max_minutes=1e-9)
    assert train(config).update == 1
    assert (config.run / "model").is_dir()


def test_patience_ends_the_run(change):
    result = train(change(optimizer__learning_rate=1e-12, stop__patience=2, stop__max_steps=100, validation__every=1))
    assert "2 validations brought no improvement" in result.reason
    assert result.update < 20


@pytest.mark.full
def test_a_tiny_model_learns_by_heart(change):
    config = change(
        model__dropout=0.0,
        model__width=32,
        objective__label_smoothing=0.0,
        objective__word_dropout=0.0,
        optimizer__learning_rate=1e-2,
        optimizer__warmup=20,
        stop__max_steps=100,
        validation__every=100,
        batches__batch_tokens=1024,
    )
    train(config)
    losses = [line["loss"] for line in metrics(config.run) if "loss" in line]
    assert losses[0] > 4
    assert losses[-1] < 0.5


@pytest.mark.parametrize("gradient_accumulation", [1, pytest.param(2, marks=pytest.mark.full)])
def test_an_epoch_shows_every_instance_once(change, monkeypatch, gradient_accumulation):
    drawn = []
    original = BatchedSplit.build_batch

    def recording(self, indices):
        if len(self.instances) > 10:  # 24 documents to train on, 6 in the dev split
            drawn.extend(indices.tolist())
        return original(self, indices)

    config = change(
        stop__max_steps=0,
        stop__max_epochs=1,
        batches__batch_tokens=40,
        batches__gradient_accumulation=gradient_accumulation,
    )
    monkeypatch.setattr(BatchedSplit, "build_batch", recording)
    train(config)
    assert sorted(drawn) == list(range(len(set(drawn))))
    assert len(set(drawn)) >= 24


@pytest.mark.full
@pytest.mark.parametrize("system", ["sentence", "document"])
def test_the_other_systems_train_too(change, system):
    config = change(model__system=system, stop__max_steps=2)
    train(config)
    assert load_model(config.run).config.system == system


def test_document_bleu_chooses_the_best(change):
    config = change(validation__best_by="d_bleu", stop__max_steps=8)
    train(config)
    scores = [line["valid_d_bleu"] for line in metrics(config.run) if "valid_loss" in line]
    assert len(scores) == 2
    assert all(0 <= score <= 100 for score in scores)
    assert "d-BLEU (dev)" in (config.run / "model" / "README.md").read_text()


@pytest.mark.full
def test_entropy_is_recorded_and_changes_nothing_else(change, whole_run, tmp_path):
    measured = change(run=tmp_path / "measured", validation__entropy=True)
    train(measured)
    lines = metrics(measured.run)
    names = {f"entropy_{kind}" for kind in KINDS}
    for line in lines:
        assert names & set(line) == (names if "valid_loss" in line else set())
        assert all(0 < line[name] < 6 for name in names if name in line)
    assert len([line for line in lines if "valid_loss" in line]) == 3
    unmeasured = [{name: value for name, value in line.items() if name not in names} for line in lines]
    assert unmeasured == metrics(whole_run)
    assert_equal_weights(measured.run / "model/model.safetensors", whole_run / "model/model.safetensors")


def test_recorded_entropy_is_that_of_the_validated_weights(change, store):
    config = change(validation__entropy=True, stop__max_steps=4)
    train(config)
    dev = BatchedSplit(store.split("dev"), config, store.tokenizer.specials)
    entropies = attention_entropy(
        load_model(config.run), [dev.build_batch(indices) for indices in dev.plan.batches_in_order()]
    )
    line = metrics(config.run)[-1]
    assert {f"entropy_{kind}": pytest.approx(bits, abs=1e-9) for kind, bits in entropies.items()} == {
        name: value for name, value in line.items() if name.startswith("entropy_")
    }


@pytest.mark.full
def test_averages_of_the_last_weights(change):
    config = change(checkpoints__average="last", checkpoints__average_count=2)
    train(config)
    snapshots = sorted(path.name for path in (config.run / "checkpoints").glob("update-*"))
    assert snapshots == ["update-12", "update-8"]
    first, second = (load_file(config.run / "checkpoints" / name / "model.safetensors") for name in snapshots)
    for name, tensor in load_file(config.run / "model" / "model.safetensors").items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)


def test_an_average_that_is_not_made(change):
    with pytest.raises(DocmtError, match=r"checkpoints.average_count is set but checkpoints.average is none: choose"):
        change(checkpoints__average_count=2)


@pytest.mark.full
def test_a_full_disk_leaves_the_previous_checkpoint(change, whole_run, monkeypatch):
    from safetensors import SafetensorError

    from docmt.checkpoint import weights

    config = change()
    original = weights.save_file
    saved = []

    def full(tensors, path, facts=None):
        saved.append(path)
        if len(saved) > 4:  # the best and the last at update 4, with optimiser, are three
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        original(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(weights, "save_file", full)
        with pytest.raises(DocmtError, match=r"cannot write .*last: .*No space left on device.*; free space"):
            train(config)
    state = json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())
    assert state["update"] == 4
    assert [path.name for path in (config.run / "checkpoints").iterdir() if path.name.startswith(".")] == []
    train(config, resume=True)
    assert_equal_runs(config.run, whole_run)


@pytest.mark.full
def test_two_processes_make_the_updates_of_one(change, tmp_path):
    settings = {"model__dropout": 0.0, "objective__word_dropout": 0.0, "validation__entropy": True, "log_every": 1}
    alone = change(run=tmp_path / "alone", batches__gradient_accumulation=2, **settings)
    train(alone)
    together = change(run=tmp_path / "together", **settings)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = run_in_background(together, tmp_path, *launcher)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    single, shared = metrics(alone.run), metrics(together.run)
    assert [line["update"] for line in single] == [line["update"] for line in shared]
    for one, other in zip(single, shared, strict=True):
        for name in one:
            if name != "best":
                assert one[name] == pytest.approx(other[name], rel=1e-4), (name, one["update"])


def spoil(monkeypatch, update, target):
    """Makes the loss of this update no number or, after it, a weight."""
    original = Training._update

    def spoiled(self):
        ended = original(self)
        if self.state.update == update:
            if target == "loss":
                self.sums += float("nan")
            else:
                next(self.model.parameters()).data.view(-1)[0] = float("nan")
        return ended

    monkeypatch.setattr(Training, "_update", spoiled)


def test_a_loss_that_is_no_number_ends_the_run(config, monkeypatch):
    spoil(monkeypatch, 3, "loss")
    with pytest.raises(
        DocmtError, match=r"loss is nan after update 4. Train again with a lower optimizer\.learning_rate"
    ):
        train(config)


@pytest.mark.parametrize("target", ["weights", pytest.param("loss", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "settings",
    [
        {"log_every": 100},
        pytest.param({"log_every": 100, "validation__every": 100}, marks=pytest.mark.full),
        pytest.param(
            {"log_every": 100, "validation__best_by": "d_bleu", "checkpoints__average": "last"}, marks=pytest.mark.full
        ),
    ],
)
def test_what_is_no_number_is_never_saved(change, monkeypatch, target, settings):
    """It was looked for at log_every only: a validation or the end saved it before."""
    config = change(**settings)
    spoil(monkeypatch, 7, target)
    with pytest.raises(
        DocmtError, match=r"^the (loss|largest weight) is nan after update \d+. Train again .*clip_norm$"
    ):
        train(config)
    assert not config.run.joinpath("model").exists()
    for weights in config.run.rglob("model.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(weights).values())
    assert json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())["update"] == 5


@pytest.fixture
def store_without_dev(store, tmp_path):
    return prepare(
        PrepareConfig(store=tmp_path / "no_dev", train=[store.directory.parent / "train.jsonl"], vocabulary_size=300)
    ).directory


@pytest.mark.full
def test_averages_of_the_last_checkpoints_without_a_dev_split(change, store_without_dev, tmp_path, monkeypatch):
    """They were the last weights alone, without a word."""
    settings = {"store": store_without_dev, "checkpoints__average": "last", "checkpoints__average_count": 2}
    config = change(**settings)
    train(change(run=tmp_path / "whole", **settings))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 12)
        train(config)
    train(config, resume=True)
    assert_equal_runs(config.run, tmp_path / "whole")
    snapshots = sorted(path.name for path in (config.run / "checkpoints").glob("update-*"))
    assert snapshots == ["update-10", "update-12"]
    first, second = (load_file(config.run / "checkpoints" / name / "model.safetensors") for name in snapshots)
    for name, tensor in load_file(config.run / "model" / "model.safetensors").items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)


def test_an_average_of_the_best_needs_a_dev_split(change, store_without_dev):
    config = change(store=store_without_dev, checkpoints__average="best")
    with pytest.raises(DocmtError, match=r"checkpoints.average is 'best', but the store .* has no dev split"):
        train(config)
    assert not config.run.exists()


@pytest.mark.full
def test_a_run_is_trained_by_one_process(change, monkeypatch):
    config = change()
    refused = []
    original = Training._update

    def second(self):
        with pytest.raises(DocmtError) as caught:
            train(config, resume=True)
        refused.append(str(caught.value))
        return original(self)

    monkeypatch.setattr(Training, "_update", second)
    train(config)
    assert len(refused) == 12
    assert f"the run {config.run} is being trained by process {os.getpid()} on" in refused[0]


def test_a_full_disk_under_the_log_is_not_shown(config, capsys):
    config.run.mkdir()
    (config.run / "train.log").symlink_to("/dev/full")
    run = RunDirectory(config.run)
    with run.log_to_file():
        logging.getLogger("docmt").info("something")
    assert capsys.readouterr().err == ""
