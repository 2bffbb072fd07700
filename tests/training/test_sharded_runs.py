"""Sharded trainings: resumed in other numbers of processes and by another strategy; damaged; translating."""

import json
import os
from dataclasses import replace

import pytest
import torch
from launching import train_all
from runs import metrics
from test_exact_updates import check_equal

from docmt.checkpoint.model_directory import load_model
from docmt.core.errors import DocmtError
from docmt.training import train

pytestmark = [pytest.mark.full, pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")]


@pytest.fixture
def sharded(change):
    """Six updates of four batches, validated and saved after every second one."""
    return change(
        strategy="fsdp",
        batches__gradient_accumulation=4,
        stop__max_steps=6,
        validation__every=2,
        checkpoints__every=2,
        optimizer__epsilon=1e-4,
    )


def go_on(config, steps, count, folder):
    """Resume the run in `count` processes until it has made this many updates."""
    config = replace(config, stop=replace(config.stop, max_steps=steps))
    train_all([config], count, folder, resume=True)


def test_a_run_goes_on_in_any_number_of_processes(sharded, tmp_path):
    whole = replace(sharded, run=tmp_path / "whole", strategy="ddp")
    train(whole)
    run = replace(sharded, run=tmp_path / "parts", batches=replace(sharded.batches, gradient_accumulation=1))
    parts = replace(run, stop=replace(run.stop, max_steps=2))
    train_all([replace(parts, batches=sharded.batches)], 4, tmp_path)
    train(replace(run, stop=replace(run.stop, max_steps=4)), resume=True)
    go_on(run, 6, 2, tmp_path)
    check_equal(tmp_path / "whole", tmp_path / "parts")


def test_a_sharded_run_goes_on_by_the_other_strategy_and_back(sharded, tmp_path):
    """In this process: a sharded training in one process is one, too."""
    sharded = replace(sharded, batches=replace(sharded.batches, gradient_accumulation=1))
    train(replace(sharded, run=tmp_path / "whole", strategy="ddp"))
    for steps, strategy in ((2, "fsdp"), (4, "ddp"), (6, "fsdp")):
        config = replace(sharded, strategy=strategy, stop=replace(sharded.stop, max_steps=steps))
        train(config, resume=steps > 2)
        left = {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE"} & set(os.environ)
        assert not left and not torch.distributed.is_initialized(), "later programs would look for this process"
    check_equal(tmp_path / "whole", sharded.run)
    assert load_model(sharded.run)


def test_a_damaged_shard_is_one_sentence(sharded):
    train(replace(sharded, stop=replace(sharded.stop, max_steps=2)))
    shard = next((sharded.run / "checkpoints" / "last").glob("*.distcp"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DocmtError, match=r"\.distcp is damaged \(it does not match its checksum"):
        train(sharded, resume=True)
    shard.unlink()
    with pytest.raises(DocmtError, match=r"distcp: there is no such file; copy the directory again"):
        train(sharded, resume=True)


def test_two_processes_of_a_sharded_model_translate_the_dev_split(sharded, tmp_path):
    validation = replace(sharded.validation, best_by="d_bleu", beam=2)
    config = replace(sharded, validation=validation, stop=replace(sharded.stop, max_steps=4))
    one = replace(config, run=tmp_path / "one", strategy="ddp")
    train(one)
    (tmp_path / "two").mkdir()
    train_all([config], 2, tmp_path / "two")
    for expected, actual in zip(metrics(one.run), metrics(config.run), strict=True):
        assert actual == pytest.approx(expected, rel=1e-6, abs=1e-6)
    state = json.loads((config.run / "checkpoints" / "last" / "state.json").read_text())
    assert state["processes"] == 2
