"""Names of models on the command line, and docmt models."""

import re
import shutil

import pytest
from commands import QUICK, TINY, call, fails

UPDATES = [argument for argument in TINY if not argument.startswith("--model.")]


@pytest.fixture
def pulled(run, home, package):
    """The trained model in the data home."""
    return shutil.copytree(run / "model", home / "models" / "opus-mt-en-de")


def test_models_are_listed_with_pair_size_and_licence(pulled, home):
    outcome = call("models")
    head, line = outcome.out.splitlines()
    assert (outcome.status, head.split()) == (0, ["name", "pair", "system", "parameters", "size", "licence", "folder"])
    name, pair, system, *_, licence, folder = line.split()
    assert (name, pair, system, licence, folder) == (
        *("opus-mt-en-de", "en-de", "group", "unknown", str(home / "models")),
    )


def test_no_model_is_there(home, package):
    outcome = call("models")
    assert outcome.out == f"there is no model in {home / 'models'} or in the package: see docmt models --available\n"


def test_the_model_of_the_package_translates(home, tmp_path):
    """By its pair, with its licence, from one file format to the same, and small enough for a package."""
    from docmt.checkpoint.model_names import PACKAGE_MODELS

    files = [path for path in (PACKAGE_MODELS / "en-fr").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 16 * 2**20
    assert "apache-2.0" in call("models").out
    (tmp_path / "page.html").write_text("<p>The report was <b>adopted</b> by the European Parliament.</p>")
    outcome = call("translate", "en-fr", tmp_path / "page.html", "-o", tmp_path / "out.html")
    assert outcome.status == 0, outcome.err
    text = (tmp_path / "out.html").read_text()
    assert "Parlement européen" in text and re.search(r"<b>(adopté|approuvé)</b>", text)


@pytest.mark.parametrize("name", ["en-fr", "en-fr-sentence"])
def test_the_models_of_the_package_read_curly_quotation_marks_as_straight_ones(name, home, tmp_path):
    """They were trained on straight ones, and dropped the negation of *isn’t*."""
    (tmp_path / "curly.txt").write_text("We won’t accept it.\n“The Council‘s report isn’t final”, he said.\n")
    (tmp_path / "straight.txt").write_text("We won't accept it.\n\"The Council's report isn't final\", he said.\n")
    curly, straight = (call("translate", name, tmp_path / f"{each}.txt") for each in ("curly", "straight"))
    assert curly.status == 0, curly.err
    assert curly.out == straight.out
    first, second = curly.out.splitlines()
    assert all(re.search(r"\bpas\b", line) for line in (first, second))


def test_recommended_models_say_what_is_not_checked():
    out = call("models", "--available").out
    assert "facebook/nllb-200-distilled-600M" in out and "cc-by-nc-4.0, no commercial use" in out
    assert out.count("(not checked: ") == 5


def test_commands_take_a_pair(pulled, corpus, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, target = corpus / "test.en", corpus / "test.de"
    (tmp_path / "in.txt").write_text("The clock is old.\n")
    for arguments in (
        ("translate", "en-de", "in.txt", "-o", "out.txt", *QUICK),
        ("score", "opus-mt-en-de", source, target, "-o", "scores.jsonl"),
        ("evaluate", "--systems", "en-de", target, "--source", source, "--reference", target, *QUICK),
        ("inspect", "en-de"),
        ("average", "en-de", "en-de", "-o", "mean"),
        ("prepare", "--store", "new", "--train", source, target, "--tokenizer", "en-de"),
        *[("train", "--store", "new", "--run", "run", "--initialize-from", "en-de", "--stop.max-steps", 1)],
    ):
        outcome = call(*arguments)
        assert outcome.status == 0, outcome.err
    assert (tmp_path / "out.txt").read_text().endswith("\n")
    assert str(pulled) in (tmp_path / "run" / "recipe.yaml").read_text()


def test_a_setting_that_the_start_model_would_replace_is_refused(run, store, tmp_path):
    """Also one that is set to its default."""
    arguments = ("train", "--store", store, "--run", tmp_path / "new", "--initialize-from", run, "--max-steps", 1)
    message = "model.group.encoder_layers is 2, but 1 in the start model .*Leave it out, or start from another model"
    fails(*arguments, "--model.group.encoder-layers", 2, message=message)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: {group: {sentence_distances: false}, positions: auto}\n")
    assert call(*arguments[:1], recipe, *arguments[1:]).status == 0


def test_an_unknown_pair_names_the_command(pulled, corpus):
    message = "no model en-fi here. Get it with `docmt pull Helsinki-NLP/opus-mt-en-fi`"
    fails("translate", "en-fi", corpus / "test.en", message=message)
    sides = ("--source", corpus / "test.en", "--reference", corpus / "test.de")
    fails("evaluate", "--systems", "en-fi", *sides, message=message)
