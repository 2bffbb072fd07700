"""The demonstration at a size that takes seconds."""

import json
import shutil
import signal

import pytest
from commands import assert_one_sentence, call, fails, start, wait_for_lines

from docmt.cli.commands import demo
from docmt.synthetic import write_corpus
from docmt.training.loop import Training

SMALL = ("--documents", 60, "--steps", 2)


@pytest.fixture
def three_tests(monkeypatch):
    def write(folder, **sizes):
        write_corpus(folder, **{**sizes, "test": 3})

    monkeypatch.setattr("docmt.cli.commands.demo.write_corpus", write)


@pytest.mark.full
def test_the_demonstration_in_small(tmp_path, monkeypatch, three_tests):
    output = tmp_path / "demo"

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("docmt.cli.commands.demo._compare", interrupted)
        outcome = call("demo", *SMALL, "--output", output)
    assert outcome.status == 130
    assert "interrupted; run the same command again to continue" in outcome.out
    models = [output / name / "model" / "model.safetensors" for name in ("sentence", "group")]
    written = [model.stat().st_mtime_ns for model in models]
    fails("demo", "--output", output, message="has a demo of another size .*documents 60.*: remove it")
    outcome = call("demo", *SMALL, "--output", output)
    assert outcome.status == 0, outcome.err
    assert "continuing the demonstration in" in outcome.out
    assert [model.stat().st_mtime_ns for model in models] == written, "what is trained is not trained again"
    results = json.loads((output / "results.json").read_text())
    assert set(results) == {"sentence", "group"}
    for scores in results.values():
        assert set(scores) == {"s_bleu", "d_bleu", "pronoun_accuracy"}
        assert all(0 <= score <= 100 for score in scores.values())
    assert "try: docmt translate" in outcome.out.replace("\n", " ")
    assert "3 unseen documents" in outcome.out
    fails("demo", *SMALL, "--output", output, message="already exists: remove it, or choose another --output")


def here(config):
    """Trains the two models one after the other, in this process."""
    if any(demo._train(config, system) for system in demo.SYSTEMS):
        raise KeyboardInterrupt


@pytest.mark.full
def test_an_interrupted_training_goes_on(tmp_path, monkeypatch, three_tests):
    """The first is interrupted after one update; all that was done stays."""
    monkeypatch.setattr("docmt.cli.commands.demo._train_side_by_side", here)
    original = Training._stop_reason

    def at_once(self, wish):
        wish.requested = self.state.update == 1
        return original(self, wish)

    output = tmp_path / "demo"
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_stop_reason", at_once)
        outcome = call("demo", *SMALL, "--output", output)
    assert outcome.status == 130, outcome.err
    state = output / "sentence" / "checkpoints" / "last" / "state.json"
    assert json.loads(state.read_text())["update"] == 1
    corpus = (output / "corpus" / "train.en").stat().st_mtime_ns
    outcome = call("demo", *SMALL, "--output", output)
    assert outcome.status == 0, outcome.err
    assert "training from update 1" in (output / "sentence" / "train.log").read_text()
    assert (output / "corpus" / "train.en").stat().st_mtime_ns == corpus
    assert (output / "results.json").is_file()


@pytest.mark.full
def test_a_signal_ends_both_trainings(tmp_path):
    """It reaches only the process that began them."""
    output = tmp_path / "demo"
    process = start("demo", "--documents", 60, "--steps", 100_000, "--output", output)
    for system in demo.SYSTEMS:
        wait_for_lines(output / system / "train.log", 2, process)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=120)
    assert (process.returncode, "interrupted; run the same command again to continue" in told) == (130, True)
    for system in demo.SYSTEMS:
        assert (output / system / "checkpoints" / "last").is_dir()


def test_quick_translates_a_text_with_the_model_of_the_package(run, home, package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("demo", "--quick", message="has no model en-fr in its package: get one with `docmt pull Helsinki-NLP/opus")
    shutil.copytree(run / "model", package / "en-fr")
    outcome = call("demo", "--quick")
    assert outcome.status == 0, outcome.err
    assert "I have read the" in outcome.out and "try: docmt translate en-fr" in outcome.out
    assert "alone" not in outcome.out
    shutil.copytree(run / "model", package / "en-fr-sentence")
    assert "alone" in call("demo", "--quick").out
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_a_demonstration_that_cannot_be_leaves_nothing(tmp_path):
    output = tmp_path / "demo"
    fails("demo", "--steps", 0, "--output", output, message="--steps is 0: choose a number from 1 to")
    assert not output.exists()
    outcome = call("demo", "--documents", 0, "--output", output)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, "--documents is 0: choose a number from 1 to")
    assert not output.exists()


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    fails("demo", "--output", tmp_path, message="already exists: remove it, or choose another --output")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
