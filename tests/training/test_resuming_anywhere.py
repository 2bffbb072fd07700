"""A run goes on from any folder: where its data is, is found again."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from runs import Killed, assert_equal_runs, kill_before

from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.training import train
from docmt.training.run_directory import find_again


@pytest.fixture
def project(change, store, tmp_path, monkeypatch):
    """A folder with stores/small, and a run in runs/one that was started there, with paths from there on."""
    folder = tmp_path / "project"
    shutil.copytree(store.directory, folder / "stores" / "small")
    monkeypatch.chdir(folder)
    config = change(data=Path("stores/small"), run=Path("runs/one"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 7)
        train(config)
    return folder


def write_recipe(run, **settings):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    (run / "recipe.yaml").write_text(yaml.safe_dump({**recipe, **settings}))


@pytest.mark.parametrize("as_before", [False, True], ids=["paths from the root on", "relative paths"])
def test_a_run_goes_on_from_another_folder(project, change, tmp_path, monkeypatch, as_before, capsys):
    run = project / "runs" / "one"
    assert yaml.safe_load((run / "recipe.yaml").read_text())["data"] == str(project / "stores" / "small")
    if as_before:
        write_recipe(run, data="stores/small")
    train(change(run=tmp_path / "whole"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["train", "--resume", "../project/runs/one"]) == 0, capsys.readouterr().err
    assert_equal_runs(run, tmp_path / "whole")


@pytest.mark.parametrize("name", ["data", "store"])
def test_a_run_may_be_called_as_an_option(project, name, monkeypatch, capsys):
    run = (project / "runs" / "one").rename(project / "runs" / name)
    write_recipe(run, data="stores/small")
    monkeypatch.chdir(project / "runs")
    assert main(["train", "--resume", name, "-q"]) == 0
    assert capsys.readouterr().err == ""  # and quiet it is


def test_a_store_that_is_gone_is_asked_for(project, tmp_path, capsys):
    run = project / "runs" / "one"
    (project / "stores").rename(project / "moved")
    (tmp_path / "elsewhere").mkdir()
    assert main(["train", "--resume", str(run)]) == 2
    message = f"the store of the run {run}, {project / 'stores' / 'small'}, is not there: give --data STORE"
    assert capsys.readouterr().err == f"docmt: error: {message}\n"
    write_recipe(run, data="stores/small")
    with pytest.raises(
        DocmtError, match=r"small \(relative to where it was started\), is not there: give --data STORE"
    ):
        find_again(run)
    assert main(["train", "--resume", str(run), "--data", "moved/small"]) == 0


def test_the_nearest_folder_above_the_run_counts(project, monkeypatch):
    run = project / "runs" / "one"
    write_recipe(run, data="stores/small", initialize_from="runs/first")
    shutil.copytree(project / "stores", project / "runs" / "stores")
    assert find_again(run) == {"data": project / "runs" / "stores" / "small"}
    shutil.rmtree(project / "runs" / "stores")
    (project / "runs" / "first").mkdir()
    assert find_again(Path("runs/one")) == {
        "data": project / "stores" / "small",
        "initialize_from": project / "runs" / "first",
    }


def test_a_recipe_that_is_damaged_is_left_to_its_reader(project):
    (project / "runs" / "one" / "recipe.yaml").write_text("data: [")
    assert find_again(project / "runs" / "one") == {}


def test_a_start_is_found_again_though_it_is_given_from_here(project, change, monkeypatch):
    train(change(data=Path("stores/small"), run=Path("runs/first"), model__system="sentence", stop__max_steps=1))
    config = change(data=Path("stores/small"), run=Path("runs/two"), initialize_from=Path("runs/first"))
    config = replace(config, run=Path("runs/two"))
    train(replace(config, stop=replace(config.stop, max_steps=2)))
    monkeypatch.chdir(project / "runs")
    moved = replace(config, data=Path("../stores/small"), run=Path("two"), initialize_from=Path("first"))
    assert train(moved, resume=True).update == 12
