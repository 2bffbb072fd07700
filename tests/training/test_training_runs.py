"""Whole runs: what they leave behind, and that killing and resuming them changes nothing."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from docmt.errors import DocmtError
from docmt.model_directory import load_model
from docmt.training import train
from docmt.training import loop as loop_module

TIMINGS = {"seconds", "tokens_per_second"}


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in lines]


def weights(run):
    return load_file(run / "model" / "model.safetensors")


def assert_equal_runs(one, other):
    assert metrics(one) == metrics(other)
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    for file in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = (load_file(run / "checkpoints" / "last" / file) for run in (one, other))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), file


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
