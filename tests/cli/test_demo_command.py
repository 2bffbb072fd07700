"""The demonstration at a size that takes seconds."""

import json
import signal

import docx
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
        outcome = call("demo", "--training", *SMALL, "--output", output)
    assert outcome.status == 130
    assert "interrupted; run the same command again to continue" in outcome.out
    models = [output / name / "model" / "model.safetensors" for name in ("sentence", "group")]
    written = [model.stat().st_mtime_ns for model in models]
    fails("demo", "--training", "--output", output, message="has a demo of another size .*documents 60.*: remove it")
    outcome = call("demo", "--training", *SMALL, "--output", output)
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
    fails(
        "demo",
        "--training",
        *SMALL,
        "--output",
        output,
        message="already exists: remove it, or choose another --output",
    )


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
        outcome = call("demo", "--training", *SMALL, "--output", output)
    assert outcome.status == 130, outcome.err
    state = output / "sentence" / "checkpoints" / "last" / "state.json"
    assert json.loads(state.read_text())["update"] == 1
    corpus = (output / "corpus" / "train.en").stat().st_mtime_ns
    outcome = call("demo", "--training", *SMALL, "--output", output)
    assert outcome.status == 0, outcome.err
    assert "training from update 1" in (output / "sentence" / "train.log").read_text()
    assert (output / "corpus" / "train.en").stat().st_mtime_ns == corpus
    assert (output / "results.json").is_file()


@pytest.mark.full
def test_a_signal_ends_both_trainings(tmp_path):
    """It reaches only the process that began them."""
    output = tmp_path / "demo"
    process = start("demo", "--training", "--documents", 60, "--steps", 100_000, "--output", output)
    for system in demo.SYSTEMS:
        wait_for_lines(output / system / "train.log", 2, process)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=120)
    assert (process.returncode, "interrupted; run the same command again to continue" in told) == (130, True)
    for system in demo.SYSTEMS:
        assert (output / system / "checkpoints" / "last").is_dir()


def test_the_document_of_the_package_is_translated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    outcome = call("demo")
    assert outcome.status == 0, outcome.err
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if "│" in line]
    french = {row[0]: row[1:] for row in rows}
    assert french["They are supported by all political groups."] == [
        "[Ils] sont [soutenus] par tous les groupes politiques.",
        ">Elles< sont >soutenues< par tous les groupes politiques.",
    ]
    assert french["The measures are simple."] == ["Les mesures sont simples.", ""]
    assert "The directive replaces the rules of 1980." in french, "the footnote"
    assert "docmt-demo/directive.fr.docx" in outcome.out and "try: docmt translate en-fr" in outcome.out
    assert sorted(path.name for path in (tmp_path / "docmt-demo").iterdir()) == ["directive.docx", "directive.fr.docx"]
    document = docx.Document(tmp_path / "docmt-demo" / "directive.fr.docx")
    assert next(each.text for each in document.paragraphs if each.style.name == "Heading 1") == "La proposition"
    assert next(run.text for each in document.paragraphs for run in each.runs if run.bold) == "Elle est courte"
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["Les mesures", "La date", "Le budget"]
    (link,) = [link for each in document.paragraphs for link in each.hyperlinks]
    assert (link.text, link.address) == ("notre site Internet", "https://example.org/water")
    assert call("demo").status == 0, "a second time"


def test_a_package_without_models(home, package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("demo", message="has no model en-fr in its package: get one with `docmt pull Helsinki-NLP/opus")
    fails("demo", "--steps", 9, message="--steps has no effect without --training: leave it out, or add --training")
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_demonstration_that_cannot_be_leaves_nothing(tmp_path):
    output = tmp_path / "demo"
    fails("demo", "--training", "--steps", 0, "--output", output, message="--steps is 0: choose a number from 1 to")
    assert not output.exists()
    outcome = call("demo", "--training", "--documents", 0, "--output", output)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, "--documents is 0: choose a number from 1 to")
    assert not output.exists()


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    fails("demo", "--training", "--output", tmp_path, message="already exists: remove it, or choose another --output")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
