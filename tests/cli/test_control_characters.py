"""What strangers wrote reaches the terminal escaped: it sets no window title and makes no second line."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from commands import QUICK, TINY, call
from safetensors.torch import load_file, save_file

from docmt.core.logging import LogHandler

ESCAPE = "\x1b]0;owned\x07"


def json_entry(*names, value=ESCAPE):
    """Damage: an entry of a JSON file is another."""

    def change(path):
        values = json.loads(path.read_text())
        place = values
        for name in names[:-1]:
            place = place[name]
        place[names[-1]] = value
        path.write_text(json.dumps(values))

    return change


def odd_version(path):
    path.write_text(json.dumps({"docmt_version": ESCAPE, "model": {"more": 1}}))


def odd_tensor(path):
    save_file({**load_file(path), ESCAPE: torch.zeros(2)}, path)


def assert_clean(outcome):
    """One line on standard error, which shows what was escaped."""
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert outcome.err[:-1].isprintable(), outcome.err
    assert "owned" in outcome.err


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("config.json", odd_version),
        ("config.json", json_entry("model", "system")),
        ("config.json", json_entry("model", ESCAPE)),
        ("model.safetensors", odd_tensor),
        ("tokenizer_config.json", json_entry("kind")),
    ],
)
def test_models(run, tmp_path, file, damage):
    shutil.copytree(run / "model", tmp_path / "m")
    damage(tmp_path / "m" / file)
    (tmp_path / "a.txt").write_text("She sees the dog.\n")
    outcome = call("translate", tmp_path / "m", tmp_path / "a.txt", *QUICK)
    assert (outcome.status, outcome.out) == (2, "")
    assert_clean(outcome)


@pytest.mark.full
def test_names_of_files_and_options(run, store, tmp_path):
    assert_clean(call("translate", run, tmp_path / f"none{ESCAPE}\n.txt", *QUICK))
    assert_clean(call("train", f"--{ESCAPE}", 1))
    assert_clean(
        call("train", "--store", store, "--run", tmp_path / "r", *TINY, "--initialize-from", f"no{ESCAPE}\nne")
    )
    assert not (tmp_path / "r").exists()
    (tmp_path / "recipe.yaml").write_text(f"{json.dumps(ESCAPE)}: 1\n")
    assert_clean(call("train", tmp_path / "recipe.yaml"))


@pytest.mark.full
def test_documents_and_corpora(tmp_path):
    lines = [{"id": f"{ESCAPE}{number}\u202e", "source": ["a b c"], "target": ["d e f"]} for number in range(3)]
    lines.append({"id": f"{ESCAPE}\nempty", "source": ["a", ""], "target": ["b", "c"]})
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = call("prepare", "--store", tmp_path / "s", "--train", tmp_path / "c.jsonl", "--vocabulary-size", 262)
    assert outcome.status == 0
    assert "owned" in outcome.out
    for line in (outcome.out + outcome.err).splitlines():
        assert line.isprintable()


def test_warnings(capsys):
    record = logging.LogRecord("docmt", logging.WARNING, "", 0, "%s: odd", (f"a{ESCAPE}\n",), None)
    LogHandler().handle(record)
    assert capsys.readouterr().err == "a\\x1b]0;owned\\x07\\n: odd\n"


@pytest.mark.full
def test_the_log_of_a_run(store, tmp_path):
    arguments = ["train", "--store", store, "--run", tmp_path / "r", *TINY, "--stop.max-steps", 1]
    assert call(*arguments).status == 0
    metrics = tmp_path / "r" / "metrics.jsonl"
    metrics.write_text("{\n" + metrics.read_text() + "[\n")
    moved = (tmp_path / "r").rename(tmp_path / f"r{ESCAPE}\n")
    outcome = call("train", "--resume", moved, "--stop.max-steps", 2)
    assert outcome.status == 0
    log = Path(moved / "train.log").read_text()
    assert "removed damaged lines: 2\n" in log
    assert "owned" in log
    for line in (outcome.out + outcome.err + log).splitlines():
        assert line.isprintable()


def test_the_output_of_average(run, tmp_path):
    outcome = call("average", run, run, "-o", tmp_path / ESCAPE)
    assert outcome.status == 0, outcome.err
    assert outcome.out[:-1].isprintable() and "owned" in outcome.out
