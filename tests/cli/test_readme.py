"""What the README tells people to type works, at a size that takes seconds."""

import argparse
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUICK, TINY, TINY_SENTENCE, call
from safetensors.torch import load_file

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CHECKPOINT = Path(__file__).parents[1] / "data" / "gtransformer_tiny"
THUMT = CHECKPOINT.parent / "context_tiny"
BLOCKS = [(kind, text) for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)]
COMMANDS = [
    shlex.split(line, comments=True)
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.splitlines()
    if line.startswith("docmt")
]
# Settings of real models, and what makes a command quick instead.
SMALLER = {
    "prepare": ["--vocabulary_size", "400"],
    "train": [*TINY, "--stop.max_steps", "2"],
    "translate": QUICK,
    "evaluate": QUICK,
    "score": QUICK[1:],
}


def thumt_checkpoint(folder):
    """A checkpoint of the code of Zhang et al. (2018): its variables, its parameters and its vocabularies."""
    variant = THUMT / "both_gate"
    values = json.loads((variant / "args.json").read_text())
    weights = load_file(THUMT / "weights_common.safetensors")
    np.savez(folder / "model.npz", **{name: weights[name].numpy() for name in values["variables"]})
    (folder / "params.json").write_text(json.dumps(values["parameters"]))
    for side, size in (("zh", values["source_vocabulary_size"]), ("en", values["target_vocabulary_size"])):
        symbols = ["<pad>", "<eos>", "<unk>", *(f"{side}{number}" for number in range(3, size))]
        (folder / f"vocab.{side}.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))


@pytest.fixture
def folder(corpus, run, tmp_path, monkeypatch):
    """A working directory with the files that the README speaks of."""
    for path in corpus.iterdir():
        shutil.copy(path, tmp_path / path.name)
    (tmp_path / "report.txt").write_text("Anna bought a lamp yesterday.\nIt is quite cheap.\n")
    shutil.copytree(run / "model", tmp_path / "MODEL")
    weights = load_file(CHECKPOINT / "trained_partial" / "weights.safetensors")
    arguments = json.loads((CHECKPOINT / "trained_partial" / "args.json").read_text())["args"]
    torch.save({"args": argparse.Namespace(**arguments), "model": weights}, tmp_path / "checkpoint_best.pt")
    symbols = [line.split("\t")[1] for line in (CHECKPOINT / "vocab.tsv").read_text().splitlines()]
    (tmp_path / "dict.en.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols[4:-5]))
    thumt_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_options(arguments, options):
    """The arguments with these options in place of their own: none may be there twice."""
    names = {option.partition("=")[0] for option in options if option.startswith("--")} | {"--model.preset"}
    kept = [
        argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if argument not in names and before not in names
    ]
    return [*kept, *options]


def test_every_command_can_be_typed(folder):
    assert {command[1] for command in COMMANDS} >= {"prepare", "train", "translate", "evaluate", "score", "convert"}
    for command in COMMANDS:
        arguments = command[1:]
        if arguments[0] == "convert":
            shutil.rmtree("MODEL")
        smaller = [] if "--resume" in arguments else SMALLER.get(arguments[0], [])
        if arguments[0] == "train" and ({"sentence", "context"} & set(arguments)) and "--model.system" in arguments:
            smaller = [*TINY_SENTENCE, *smaller[len(TINY) :]]
        outcome = call(*with_options(arguments, smaller))
        assert outcome.status == 0, (command, outcome.err)
    assert (folder / "bericht.txt").read_text().count("\n") == 2


def test_the_python_example_runs(folder, monkeypatch):
    (code,) = (text for kind, text in BLOCKS if kind == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert (folder / "bericht.txt").read_text().count("\n") == 2
