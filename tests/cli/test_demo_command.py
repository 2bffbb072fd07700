"""The demonstration at a size that takes seconds."""

import json

import pytest
from commands import assert_one_sentence, call, fails

from docmt.synthetic import write_corpus


@pytest.mark.slow
def test_the_demonstration_in_small(tmp_path, monkeypatch):
    def three_tests(folder, **sizes):
        write_corpus(folder, **{**sizes, "test": 3})

    monkeypatch.setattr("docmt.cli.demo.write_corpus", three_tests)
    output = tmp_path / "demo"
    outcome = call("demo", "--documents", 60, "--steps", 2, "--output", output)
    assert outcome.status == 0, outcome.err
    results = json.loads((output / "results.json").read_text())
    assert set(results) == {"sentence", "group"}
    for scores in results.values():
        assert set(scores) == {"s_bleu", "d_bleu", "pronoun_accuracy"}
        assert all(0 <= score <= 100 for score in scores.values())
    for name in ("sentence", "group"):
        assert (output / name / "model" / "model.safetensors").is_file()
    assert "try: docmt translate" in outcome.out.replace("\n", " ")
    fails("demo", "--output", output, message="is there already: remove it or choose another --output")


def test_a_demonstration_that_cannot_be_leaves_nothing(tmp_path):
    output = tmp_path / "demo"
    fails("demo", "--steps", 0, "--output", output, message="the training would never end")
    assert not output.exists()
    outcome = call("demo", "--documents", 0, "--output", output)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, "at least one document")
    assert not output.exists()
