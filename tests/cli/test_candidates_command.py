"""docmt candidates, and translating with what it wrote."""

import json
import re
import shutil

import pytest
import torch
from commands import QUICK, TINY, call, fails
from safetensors.torch import load_file, save_file

import docmt

FILE = "candidates.safetensors"


@pytest.fixture
def model(run, tmp_path):
    """A model directory of its own."""
    return shutil.copytree(run / "model", tmp_path / "model")


def test_candidates_are_counted_and_searched(model, store, corpus, tmp_path):
    command = ("candidates", model, "--store", store, "--per_token", 20, "--frequent", 30)
    outcome = call(*command)
    assert (outcome.status, outcome.err) == (0, "")
    first, head, *rows = outcome.out.splitlines()
    assert first == f"{model / FILE} has up to 20 candidates for each source token"
    assert re.fullmatch(r"--search.candidates +candidates of an instance \(of 400\) +tokens of dev among them", head)
    counts, sizes, covered = zip(*(row.split() for row in rows), strict=True)
    assert counts == ("8", "16", "20")
    sizes, covered = [int(own) for own in sizes], [float(own.rstrip("%")) for own in covered]
    assert sizes == sorted(sizes) and sizes[-1] < 400
    assert covered == sorted(covered) and covered[-1] > 95
    table = load_file(model / FILE)
    assert table["best"].shape == (400, 20) and table["always"].shape == (30,)
    assert torch.equal(table["best"][:, 0], torch.arange(400, dtype=torch.int32))
    translated = {}
    for number in (0, 8, 20):
        output = tmp_path / f"{number}.jsonl"
        options = ("--search.candidates", number, "--format", "jsonl", "--layout=lines", "-o", output)
        assert call("translate", model, corpus / "test.en", *options, *QUICK).status == 0
        translated[number] = [json.loads(line) for line in output.read_text().splitlines()]
    assert translated[0] != translated[8]
    fails(*command, message="candidates.safetensors is there already: add --overwrite to replace it")
    before = (model / FILE).read_bytes()
    assert call(*command, "--overwrite").status == 0
    assert (model / FILE).read_bytes() == before


def test_a_model_is_the_same_with_candidates_that_are_not_asked_for(model, store):
    before = docmt.Translator(model, device="cpu").checksums()
    assert call("candidates", model, "--store", store).status == 0
    assert docmt.Translator(model, device="cpu").checksums() == before
    assert len(docmt.Translator(model, device="cpu", candidates=8).checksums()) == len(before) + 1


def test_a_sentence_model(store, tmp_path):
    sizes = [argument for argument in TINY if not argument.startswith("--model.group.")]
    run = tmp_path / "sentence"
    trained = call("train", "--store", store, "--run", run, *sizes, "--system", "sentence", "--stop.max_steps", 2)
    assert trained.status == 0
    outcome = call("candidates", run, "--store", store, "--per_token", 8)
    assert "candidates of a sentence (of 400)" in outcome.out and (run / "model" / FILE).exists()


def test_what_is_refused(model, store, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("translate", model, corpus / "test.en", "--candidates", 8)
    fails(
        *asked, message=r"model has no candidates \(.*safetensors is missing\).*\(docmt candidates .* --store STORE\)"
    )
    fails("candidates", model, message="--store is missing")
    fails("candidates", model, "--store", "nowhere", message="nowhere is not a prepared store")
    fails("candidates", "nowhere", "--store", store, message="there is no directory nowhere")
    for option, value in (("per_token", 0), ("frequent", 0), ("sentences", 0)):
        fails("candidates", model, "--store", store, f"--{option}", value, message=f"--{option} is {value}: choose a")
    fails("score", model, "a", "b", "--search.candidates", 8, message="unknown option --search.candidates")
    fails(
        *("translate", model, "a", "--search.candidates", 8, "--search.compatibility", "gtransformer"),
        message="--search.candidates is not for search.compatibility gtransformer",
    )
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "target_language": "fr"}))
    fails("candidates", model, "--store", store, message="translates from en to fr, but the store .* from en to de")
    (model / "config.json").write_text(json.dumps(config))
    other = tmp_path / "other"
    sides = (corpus / "train.en", corpus / "train.de")
    assert call("prepare", "--store", other, "--train", *sides, "--vocabulary_size", 300).status == 0
    fails("candidates", model, "--store", other, message="has another tokenizer than the store .*other: count in")
    assert not (model / FILE).exists()


def test_damaged_tables(model, store, corpus):
    assert call("candidates", model, "--store", store, "--per_token", 8).status == 0
    command = ("translate", model, corpus / "test.en", "--candidates", 8)
    table = load_file(model / FILE)
    wrong = (
        {"best": table["best"]},
        {**table, "best": table["best"][:-1].clone()},
        {**table, "best": table["best"] + 400},
        {**table, "best": table["best"] - 401},
        {**table, "always": table["always"].float()},
        {**table, "always": table["always"][None]},
        {**table, "always": table["always"][:0]},
    )
    for tensors in wrong:
        save_file(tensors, model / FILE)
        fails(*command, message="safetensors holds no candidates of this vocabulary: run `docmt candidates` again")
    (model / FILE).write_bytes(b"x" * 100)
    fails(*command, message="candidates.safetensors is damaged")
