"""What the README tells people to type works, at a size that takes seconds."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import ROOT, blocks, check, lines, make_folder
from safetensors.torch import load_file

README = ROOT / "README.md"
CHECKPOINT = Path(__file__).parents[1] / "data" / "gtransformer_tiny"
THUMT = CHECKPOINT.parent / "context_tiny"
RFA = CHECKPOINT.parent / "rfa_tiny"


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


def rfa_checkpoint(folder):
    """A checkpoint of the code of Wu et al. (2022) with its dictionaries."""
    values = json.loads((RFA / "rfa_sgate" / "args.json").read_text())
    weights = load_file(RFA / values["weights"])
    torch.save({"args": argparse.Namespace(**values["args"]), "model": weights}, folder / "rfa.pt")
    for side, language in (("src", "zh"), ("tgt", "en")):
        shutil.copy(RFA / f"dict.{side}.txt", folder / f"rfa.{language}.txt")


@pytest.fixture
def folder(corpus, store, run, tmp_path, monkeypatch):
    """A working directory with the files that the README speaks of."""
    make_folder(tmp_path, corpus, store, run)
    weights = load_file(CHECKPOINT / "trained_partial" / "weights.safetensors")
    arguments = json.loads((CHECKPOINT / "trained_partial" / "args.json").read_text())["args"]
    torch.save({"args": argparse.Namespace(**arguments), "model": weights}, tmp_path / "checkpoint_best.pt")
    symbols = [line.split("\t")[1] for line in (CHECKPOINT / "vocab.tsv").read_text().splitlines()]
    (tmp_path / "dict.en.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols[4:-5]))
    thumt_checkpoint(tmp_path)
    rfa_checkpoint(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_can_be_typed(folder):
    typed = set()
    for line in lines(README):
        if check(line):
            typed.add(line.text.split()[1])
    assert typed >= {"prepare", "train", "translate", "evaluate"}
    assert (folder / "bericht.txt").read_text().count("\n") == 2


def test_the_python_example_runs(folder):
    (code,) = (text for kind, text in blocks(README) if kind == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert (folder / "bericht.txt").read_text().count("\n") == 2


def test_it_is_short():
    assert README.read_text().count("\n") <= 120
