"""Runs that read drafts are told apart by these, and are the same before and after the drafts are made."""

import shutil

import pytest

from docmt.data import PreparedStore
from docmt.decoding import SearchConfig
from docmt.decoding.config import USUAL_DRAFT_BEAM
from docmt.decoding.draft_store import draft_store
from docmt.experiments import make_plan, read_experiment
from docmt.training import train

TEXT = """
title: "Small: hops"
source: Nobody 2021, Table 1
seeds: [1, 2]
variants:
  hops:
    recipe: group-{scale}.yaml
    start_from: sentence
    settings: {model.system: multihop}
  sentence:
    recipe: group-{scale}.yaml
    settings: {model.system: sentence, stop.max_steps: 1}
"""


@pytest.fixture
def names(write_experiment, store, tmp_path):
    """A function that plans the experiment on a store: the names of the runs, by title."""
    path = str(write_experiment(TEXT))

    def plan(data, output=tmp_path / "runs"):
        return make_plan(read_experiment(path), "cpu", data, output)

    return lambda *places: {run.title: run.config.run.name for run in plan(*places).trainings()}, plan


def test_runs_by_their_drafts(names, store, tmp_path):
    name, plan = names
    data = shutil.copytree(store, tmp_path / "store")
    planned = name(data)
    first = next(run.config for run in plan(data).trainings() if run.title == "sentence, seed 1")
    train(first)
    usual = SearchConfig(beam=USUAL_DRAFT_BEAM)
    draft_store(PreparedStore.open(data), first.run, usual, device="cpu")
    assert name(data) == planned  # they are those that were to be made
    assert name(data, tmp_path / "moved") == planned
    found = {planned["hops, seed 1"]}
    elsewhere = shutil.copytree(first.run, tmp_path / "elsewhere")
    for model, search in ((first.run, SearchConfig(beam=1)), (elsewhere, usual), (elsewhere, SearchConfig(beam=1))):
        draft_store(PreparedStore.open(data), model, search, device="cpu", overwrite=True)
        others = name(data)
        assert others["sentence, seed 1"] == planned["sentence, seed 1"]
        found.add(others["hops, seed 1"])
    assert len(found) == 4
