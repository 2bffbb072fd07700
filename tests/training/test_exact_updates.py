"""The number of processes changes neither the batches of an update nor its gradient, and so not the weights."""

import os
from dataclasses import replace

import pytest
import torch
from launching import train_all
from runs import metrics
from safetensors.torch import load_file
from test_every_system import SYSTEMS

from docmt.model.systems import Group
from docmt.training import train

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")

UPDATES = {
    "batches__gradient_accumulation": 4,
    "stop__max_steps": 2,
    "validation__every": 2,
    "checkpoints__every": 100,
    # Adam divides by the size of a gradient: one that is zero but for rounding would make steps of the usual size.
    "optimizer__epsilon": 1e-4,
}
SHARDED = (
    *("group", "concat, rfa", "context lstm", "multihop", "hierarchical on both sides"),
    *("flat", "hybrid", "selective", "selective in the decoder", "cadec"),
)
"""Systems that are trained in shards, too: one of each."""
FINE_TUNED = {
    "clipping": {"optimizer__clip_norm": 0.5},
    "adapters": {"adapters__rank": 2},
    "frozen": {"freeze": "encoder", "model__group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)},
    "bfloat16 weights": {"precision": "bfloat16-weights"},
    "checkpointing": {"activation_checkpointing": True, "optimizer__clip_norm": 0.5},
}


@pytest.fixture
def change(change, drafted, sentence_run):
    """Two updates of four unequal batches, with everything random; frozen parts and adapters have a start."""

    def changed(**settings):
        system = settings.get("model__system")
        if system == "cadec" or settings.keys() & {"adapters__rank", "freeze"}:
            settings = {"initialize_from": sentence_run, **settings}
        config = change(**{"store": drafted.directory, **UPDATES, **settings})
        return replace(config, drafter=sentence_run) if config.model.system_options.context_spec().drafts else config

    return changed


def check_equal(one, other, tolerance=1e-6):
    """The same losses and the same weights."""
    for expected, actual in zip(metrics(one), metrics(other), strict=True):
        assert actual == pytest.approx(expected, rel=tolerance, abs=tolerance)
    expected = load_file(one / "model" / "model.safetensors")
    for name, tensor in load_file(other / "model" / "model.safetensors").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=tolerance, msg=lambda text, n=name: n + text)


def train_in(counts, configs, tmp_path):
    """Train configurations in each number of processes: the folders of runs by number."""
    folders = {count: tmp_path / str(count) for count in counts}
    for count, folder in folders.items():
        folder.mkdir()
        runs = [replace(config, run=folder / str(i)) for i, config in enumerate(configs)]
        if count == 1:
            for config in runs:
                train(config)
        else:
            train_all(runs, count, folder)
    return folders


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        pytest.param(strategy, name, marks=pytest.mark.rotated)
        for strategy, names in (("ddp", SYSTEMS), ("fsdp", SHARDED))
        for name in names
    ],
)
def test_two_processes_are_one_for_every_system(strategy, name, change, tmp_path):
    # With the usual seed, rounding decides on which side of zero a unit of a ReLU is in one of these systems.
    config = change(**SYSTEMS[name], seed=5 if name == "selective, as published" else 3)
    folders = train_in([1], [config], tmp_path) | train_in([2], [replace(config, strategy=strategy)], tmp_path)
    check_equal(folders[1] / "0", folders[2] / "0")


@pytest.mark.full
def test_one_two_and_four_processes_train_alike(change, tmp_path):
    """Both strategies are trained in the same processes."""
    longer = [SYSTEMS["group"], {**SYSTEMS["context lstm"], "optimizer__clip_norm": 0.5}]
    settings = [*({**each, "stop__max_steps": 4} for each in longer), *FINE_TUNED.values()]
    ddp, fsdp = ([change(strategy=strategy, **each) for each in settings] for strategy in ("ddp", "fsdp"))
    rounded = list(FINE_TUNED).index("bfloat16 weights") + len(longer)  # in another order in shards
    one, four = [*ddp, fsdp[rounded]], ddp[: len(longer) + 1]
    folders = train_in([1], one, tmp_path) | train_in([2], [*ddp, *fsdp], tmp_path) | train_in([4], four, tmp_path)
    for number in range(len(settings)):
        check_equal(folders[1] / str(number), folders[2] / str(number))
        in_shards = folders[2] / str(len(settings) + number)
        check_equal(folders[1] / str(len(settings) if number == rounded else number), in_shards)
        if number < len(four):
            check_equal(folders[1] / str(number), folders[4] / str(number))
