"""Runs that are killed, and what two runs have in common."""

import json
import shutil

import torch
from safetensors.torch import load_file

from docmt.training.loop import Training

TIMINGS = {"seconds", "tokens_per_second"}


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in lines]


def assert_equal_weights(one, other):
    weights, expected = load_file(one), load_file(other)
    assert weights.keys() == expected.keys()
    for name in weights:
        assert torch.equal(weights[name], expected[name]), name


def assert_equal_runs(one, other):
    assert metrics(one) == metrics(other)
    for file in (
        "model/model.safetensors",
        "checkpoints/last/model.safetensors",
        "checkpoints/last/optimizer.safetensors",
    ):
        assert_equal_weights(one / file, other / file)


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


def kill_before(monkeypatch, update):
    """Makes a training die instead of making this update."""
    original = Training._update

    def dying(self):
        if self.state.update + 1 == update:
            raise Killed
        return original(self)

    monkeypatch.setattr(Training, "_update", dying)


def copy_before(monkeypatch, update, copy):
    """Makes a training copy its run directory before this update: what a kill would leave, beside the whole run."""
    original = Training._update

    def copying(self):
        if self.state.update + 1 == update:
            shutil.copytree(self.run.path, copy)
        return original(self)

    monkeypatch.setattr(Training, "_update", copying)
