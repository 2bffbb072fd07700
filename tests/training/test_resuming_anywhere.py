"""A run goes on from any folder, as its recipe names store and start from the root on."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from runs import Killed, assert_equal_runs, kill_before

from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, prepare
from docmt.training import train


@pytest.fixture
def project(change, store, tmp_path, monkeypatch):
    """A folder with stores/small, and a run in runs/one that was started there, with paths from there on."""
    folder = tmp_path / "project"
    shutil.copytree(store.directory, folder / "stores" / "small")
    monkeypatch.chdir(folder)
    config = change(store=Path("stores/small"), run=Path("runs/one"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_before(patch, 7)
        train(config)
    return folder


@pytest.mark.full
def test_a_run_goes_on_from_another_folder(project, change, tmp_path, monkeypatch, capsys):
    run = project / "runs" / "one"
    assert yaml.safe_load((run / "recipe.yaml").read_text())["store"] == str(project / "stores" / "small")
    train(change(run=tmp_path / "whole"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["train", "--resume", "../project/runs/one"]) == 0, capsys.readouterr().err
    assert_equal_runs(run, tmp_path / "whole")


def test_a_run_of_an_earlier_version_gets_one_sentence(project, capsys):
    """Version 0.3.0 called the store `data`."""
    path = project / "runs" / "one" / "recipe.yaml"
    path.write_text(path.read_text().replace("store: ", "data: "))
    assert main(["train", "--resume", "runs/one"]) == 2
    assert re.fullmatch(
        r"docmt: error: .*recipe.yaml has the setting data, which this version of docmt does not know. "
        r"Resume the run with the version that began it, or start a new run with --initialize-from runs/one\n",
        capsys.readouterr().err,
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["data", "store"])
def test_a_run_may_be_called_as_an_option(project, name, monkeypatch, capsys):
    (project / "runs" / "one").rename(project / "runs" / name)
    monkeypatch.chdir(project / "runs")
    assert main(["train", "--resume", name, "-q"]) == 0
    assert capsys.readouterr().err == ""  # and quiet it is


def test_a_store_that_is_gone_is_asked_for(project, capsys):
    (project / "stores").rename(project / "moved")
    assert main(["train", "--resume", "runs/one"]) == 2
    message = f"{project / 'stores' / 'small'} is not a prepared store (statistics.json: No such file or directory); "
    assert capsys.readouterr().err.startswith(f"docmt: error: {message}")
    assert main(["train", "--resume", "runs/one", "--store", "moved/small"]) == 0


@pytest.mark.full
def test_a_start_is_found_again_though_it_is_given_from_here(project, change, monkeypatch):
    train(change(store=Path("stores/small"), run=Path("runs/first"), model__system="sentence", stop__max_steps=1))
    config = change(store=Path("stores/small"), run=Path("runs/two"), initialize_from=Path("runs/first"))
    config = replace(config, run=Path("runs/two"))
    train(replace(config, stop=replace(config.stop, max_steps=2)))
    monkeypatch.chdir(project / "runs")
    moved = replace(config, store=Path("../stores/small"), run=Path("two"), initialize_from=Path("first"))
    assert train(moved, resume=True).update == 12


def test_a_refused_resume_leaves_the_recipe(change, tmp_path):
    """A store with other text is refused; the run must still go on with its own."""
    config = change(stop__max_steps=2)
    train(config)
    before = (config.run / "recipe.yaml").read_bytes()
    lines = [{"id": "a", "source": ["bo ka", "lu"], "target": ["BO KA", "LU"]}] * 30
    (tmp_path / "other.jsonl").write_text(
        "".join(json.dumps({**line, "id": str(n)}) + "\n" for n, line in enumerate(lines))
    )
    corpus = [tmp_path / "other.jsonl"]
    prepare(PrepareConfig(tmp_path / "other", train=corpus, dev=corpus, tokenizer=str(config.store / "tokenizer")))
    with pytest.raises(DocmtError, match="training data"):
        train(change(store=tmp_path / "other", stop__max_steps=4), resume=True)
    assert (config.run / "recipe.yaml").read_bytes() == before
    train(change(stop__max_steps=4), resume=True)
