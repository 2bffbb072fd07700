"""Metrics for TensorBoard: every number once, and never a reason for a training to fail."""

import importlib.util
import json
import sys
import types

import pytest
from runs import Killed, kill_before, metrics

from docmt.training import train
from docmt.training.reporting import tensorboard_tag


@pytest.fixture
def writers(monkeypatch):
    """Stands in for TensorBoard's writer: every writer that is made, with its points."""
    writers = []

    class Writer:
        def __init__(self, folder, purge_step):
            self.folder, self.purge_step, self.points, self.flushed, self.closed = folder, purge_step, [], 0, False
            writers.append(self)

        def add_scalar(self, tag, value, step):
            self.points.append((tag, step, value))

        def flush(self):
            self.flushed += 1

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    return writers


def test_every_number_of_the_metrics_is_a_point(change, writers):
    config = change(tensorboard="true", validation__entropy=True)
    train(config)
    [writer] = writers
    assert writer.folder == str(config.run / "tensorboard")
    assert writer.closed
    lines = [json.loads(line) for line in (config.run / "metrics.jsonl").read_text().splitlines()]
    skipped = {"update", "epoch", "seconds", "best"}
    expected = [
        (tensorboard_tag(name), line["update"], line[name]) for line in lines for name in line if name not in skipped
    ]
    assert writer.points == expected
    tags = {tag for tag, _, _ in writer.points}
    assert tags >= {"train/loss", "train/nll", "train/ppl", "train/learning_rate", "train/gradient_norm"}
    assert tags >= {"train/tokens_per_second", "dev/loss", "dev/nll", "dev/ppl"}
    assert any(tag.startswith("entropy/") for tag in tags)
    assert len({(tag, step) for tag, step, _ in writer.points}) == len(writer.points)


@pytest.mark.full
def test_a_resumed_run_takes_the_place_of_what_was_lost(change, writers, monkeypatch):
    config = change(tensorboard="true")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 8)
        train(config)
    train(config, resume=True)
    first, second = writers
    assert first.flushed == 2  # with the checkpoints after updates 4 and 5
    assert second.purge_step == 6
    visible = [point for point in first.points if point[1] < second.purge_step] + second.points
    assert len({point[:2] for point in visible}) == len(visible)
    assert {step for tag, step, _ in visible if tag == "train/loss"} == {2, 4, 6, 8, 10, 12}


@pytest.mark.parametrize(
    "method", ["add_scalar", *(pytest.param(name, marks=pytest.mark.full) for name in ("__init__", "flush", "close"))]
)
def test_trouble_is_told_once_and_the_training_goes_on(change, writers, monkeypatch, caplog, method):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["torch.utils.tensorboard"].SummaryWriter, method, full)
    config = change(tensorboard="true")
    assert train(config).model is not None
    assert caplog.text.count("TensorBoard logging has stopped ([Errno 28] No space left on device)") == 1
    assert len(metrics(config.run)) == 9


@pytest.mark.full
def test_without_tensorboard_nothing_is_loaded(change, monkeypatch, caplog):
    find_spec = importlib.util.find_spec

    def not_installed(name, *arguments):
        return None if name == "tensorboard" else find_spec(name, *arguments)

    monkeypatch.setattr("docmt.training.reporting.find_spec", not_installed)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # to import it fails
    for wanted in ("auto", "false"):
        config = change(run=change().run / wanted, tensorboard=wanted)
        assert train(config).model is not None
        assert not (config.run / "tensorboard").exists()
    assert "TensorBoard" not in caplog.text
    assert train(change(tensorboard="true", run=change().run / "true")).model is not None
    assert caplog.text.count("; run pip install '.[track]'") == 1


def test_tensorboard_reads_it(change, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard (extra: track) is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = change()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 8)
        train(config)
    train(config, resume=True)
    events = EventAccumulator(str(config.run / "tensorboard"))
    events.Reload()
    for tag, name in (("train/loss", "loss"), ("dev/loss", "valid_loss")):
        lines = [(line["update"], line[name]) for line in metrics(config.run) if name in line]
        assert [(event.step, event.value) for event in events.Scalars(tag)] == [
            (step, pytest.approx(value)) for step, value in lines
        ]
