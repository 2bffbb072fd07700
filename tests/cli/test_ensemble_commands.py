"""Several models with commas between them translate, score and evaluate as one."""

import json

import pytest
from commands import QUICK, call, fails

from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model

SEARCH = ["--search.beam=2", "--search.max-length-ratio=0", "--search.max-length-extra=6"]


@pytest.fixture(scope="module")
def other(run, tmp_path_factory):
    """The same model with other weights in its decoder."""
    path = tmp_path_factory.mktemp("other") / "model"
    model = load_model(run)
    model.load_state_dict(
        {name: 0.8 * own if name.startswith("decoder") else own for name, own in model.state_dict().items()}
    )
    save_model(path, model, load_model_tokenizer(run))
    return path


def scores(outcome):
    assert outcome.status == 0, outcome.err
    return [json.loads(line)["score"] for line in outcome.out.splitlines()]


@pytest.mark.full
def test_a_model_with_itself_translates_as_the_model(run, corpus):
    for options in (SEARCH, [*SEARCH, "--format", "jsonl"]):
        twice, once = (call("translate", names, corpus / "test.en", *options) for names in (f"{run},{run}/model", run))
        assert twice.status == once.status == 0
        if "jsonl" in options:
            assert scores(twice) == pytest.approx(scores(once), abs=1e-5)
        else:
            assert twice == once


def test_scores_are_of_the_mean_of_probabilities(run, other, corpus):
    files = (corpus / "test.en", corpus / "test.de", "--format", "jsonl")
    one, two, both = (scores(call("score", names, *files)) for names in (run, other, f"{run},{other}"))
    assert both == scores(call("score", f"{other},{run}", *files))
    assert both != pytest.approx(one, abs=1e-3)
    assert all(
        mean > (a + b) / 2 - 1e-4 for a, b, mean in zip(one, two, both, strict=True)
    )  # of logarithms, as log is concave


def test_evaluating_an_ensemble_is_evaluating_its_translations(run, other, corpus, tmp_path):
    names, out = f"{run},{other}", tmp_path / "test.out"
    assert call("translate", names, corpus / "test.en", "--input.layout", "lines", "-o", out, *QUICK).status == 0
    by_model = call(
        "evaluate", "--model", names, "--source", corpus / "test.en", "--reference", corpus / "test.de", *QUICK
    )
    by_file = call("evaluate", "--hypothesis", out, "--reference", corpus / "test.de")
    assert by_model.out == by_file.out


def test_what_is_no_ensemble_is_one_sentence(run, corpus, tmp_path):
    for names, message in (
        (f"{run},", "lacks the name of a model"),
        (f"{run},{tmp_path}/none", "there is no directory"),
    ):
        fails("translate", names, corpus / "test.en", message=message)


@pytest.mark.full
def test_the_device_is_chosen_by_itself(run, corpus):
    for command in (("translate", run, corpus / "test.en"), ("score", run, corpus / "test.en", corpus / "test.de")):
        assert call(*command, "--device", "auto", *QUICK[1:]) == call(*command, *QUICK[1:])
        assert "--device" in call(command[0], "--help").out
        about = call(command[0], "--help").out.partition("--device")[2].partition("--precision")[0]
        assert "(default: auto)" in " ".join(about.split())


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_terminal_is_told_the_device(run, corpus, monkeypatch, quiet):
    monkeypatch.setattr("docmt.core.progress.is_terminal", lambda: True)
    outcome = call("score", run, corpus / "test.en", corpus / "test.de", *quiet)
    assert outcome.status == 0
    assert outcome.err == ("" if quiet else "docmt: computing on cpu in float32\n")
