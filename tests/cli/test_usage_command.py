"""docmt probe of a corpus, and docmt evaluate --by-position: what is written, and what cannot be measured."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from commands import QUICK, call, fails

import docmt
from docmt.checkpoint.model_directory import load_model_config, load_model_tokenizer, save_model
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel


@pytest.fixture(scope="module")
def sentence_run(run):
    """A model that sees no context, with random weights."""
    path, config = run.parent / "sentence-run", load_model_config(run)
    torch.manual_seed(1)
    model = TranslationModel(replace(config, system="sentence", group=type(config.group)()))
    save_model(path, model, load_model_tokenizer(run), {"source_language": "en", "target_language": "de"})
    return path


@pytest.fixture
def asked(corpus):
    """The options that name what is measured on."""
    return ("--source", corpus / "test.en", "--reference", corpus / "test.de")


def test_what_context_is_worth(run, asked, corpus, tmp_path):
    outcome = call("probe", run, *asked, "--json", tmp_path / "usage.json")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith("CXMI: gain in log-probability of the reference from context (nats; 95 % ")
    assert "\nlargest gains\n" in outcome.out and "\ntrue - shuffled " in outcome.out
    found = json.loads((tmp_path / "usage.json").read_text())
    translator = docmt.Translator(run)
    sides = [(corpus / f"test.{side}").read_text().strip().split("\n\n") for side in ("en", "de")]
    pairs = [tuple(docmt.Document.from_sentences(d.splitlines()) for d in pair) for pair in zip(*sides, strict=True)]
    gains = [
        ours.score - theirs.score
        for seen, hidden in zip(
            *(translator.score_all(pairs, False, context) for context in (True, False)), strict=True
        )
        for ours, theirs in zip(seen.sentences, hidden.sentences, strict=True)
    ]
    gain = found["context_gain"]
    assert gain["per_sentence"]["value"] == pytest.approx(sum(gains) / len(gains))
    assert gain["examples"][0]["gain"] == pytest.approx(max(gains))
    assert (gain["sentences"], gain["documents"], found["left_out"]) == (len(gains), 6, 0)
    assert call("probe", run, *asked, "--json", "-").out == (tmp_path / "usage.json").read_text()


def test_several_models_and_one_that_sees_no_context(run, sentence_run, asked):
    more = ("--cxmi.examples", 1, "--cxmi.replaced-sentences", 2, "--json", "-")
    found = json.loads(call("probe", sentence_run, run, *asked, *more).out)
    sentence, group = found["systems"]
    zero = {"value": 0, "low": 0, "high": 0}
    assert sentence["context_gain"]["per_sentence"] == sentence["context_gain"]["per_token"] == zero
    assert sentence["context_gain"]["examples"] == []
    assert sentence["other_context"]["gains"]["true - empty"]["per_token"] == zero
    alone = sentence["other_context"]["gains"]["true - alone"]["per_token"]["value"]
    assert alone == pytest.approx(0, abs=1e-5)
    assert group["context_gain"]["per_sentence"]["value"] != 0
    assert len(group["context_gain"]["examples"]) == 1
    printed = call("probe", sentence_run, run, *asked, *more[:-2]).out
    assert printed.startswith(f"{sentence_run}\nCXMI") and f"\n{run}\nCXMI" in printed


@pytest.mark.full
def test_what_may_be_wrong_is_told_as_docmt_score_and_translate_tell_it(run, corpus, tmp_path):
    long = {side: tmp_path / f"long.{side}" for side in ("en", "de")}
    for side, path in long.items():
        texts = (corpus / f"test.{side}").read_text().split("\n\n")
        path.write_text("\n\n".join([" ".join(texts[0].splitlines() * 9) + "\n" + texts[0], *texts[1:]]))
    sides = ("--source", long["en"], "--reference", long["de"])
    outcome = call("probe", run, *sides, "--json", tmp_path / "usage.json")
    scored = call("score", run, *long.values(), "-o", tmp_path / "scores")
    told = "docmt: 1 x source sentences longer than an instance, each processed without context in most systems ("
    assert outcome.err == scored.err
    assert outcome.err.startswith(told) and outcome.err.endswith("long.en, document 1, sentence 1)\n")
    assert outcome.status == 0
    found = json.loads((tmp_path / "usage.json").read_text())
    assert found["warnings"] == {"sentence_count": 0, "length_limit": 0, "long_source": 1, "missing_text": 0}


@pytest.fixture
def failing(monkeypatch):
    """Fails where sentences are translated or scored after those of another document."""

    def fail(*arguments):
        raise DocmtError("no context")

    monkeypatch.setattr("docmt.evaluation.compare_contexts", fail)


@pytest.mark.full
def test_what_was_measured_before_something_failed_is_kept(run, sentence_run, asked, failing, tmp_path):
    one = call("probe", run, *asked, "--json", tmp_path / "one.json")
    assert (one.status, one.err) == (2, "docmt: error: true, empty and shuffled context: no context\n")
    assert one.out.startswith("CXMI") and "shuffled" not in one.out
    found = json.loads((tmp_path / "one.json").read_text())
    assert found["context_gain"]["sentences"] and "other_context" not in found
    two = call("probe", run, sentence_run, *asked, "--json", tmp_path / "two.json")
    assert two.status == 2 and two.out.count("CXMI") == 2
    assert "docmt: error: sentence-run: true, empty and shuffled context: no context\n" in two.err
    assert len(json.loads((tmp_path / "two.json").read_text())["systems"]) == 2


@pytest.mark.full
def test_a_model_that_fails_does_not_take_the_others_with_it(run, sentence_run, asked, monkeypatch, tmp_path):
    monkeypatch.setattr("docmt.cli.commands.probe.load_translator", lambda options, model: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # what is no error of the user is not swallowed
        call("probe", run, *asked)

    def load_translator(options, model):
        if model == str(sentence_run):
            raise DocmtError("its memory is gone")
        return docmt.Translator(model)

    monkeypatch.setattr("docmt.cli.commands.probe.load_translator", load_translator)
    outcome = call("probe", sentence_run, run, *asked, "--json", tmp_path / "usage.json")
    assert (outcome.status, outcome.err) == (2, f"docmt: error: {sentence_run}: its memory is gone\n")
    assert outcome.out.startswith(f"{run}\nCXMI")
    (found,) = json.loads((tmp_path / "usage.json").read_text())["systems"]
    assert found["model"] == str(run)


def test_what_was_measured_before_an_interruption_is_kept(run, sentence_run, asked, monkeypatch, tmp_path):
    def load_translator(options, model):
        if model == str(sentence_run):
            raise KeyboardInterrupt
        return docmt.Translator(model)

    monkeypatch.setattr("docmt.cli.commands.probe.load_translator", load_translator)
    path, alone = tmp_path / "usage.json", call("probe", run, *asked, "--json", "-")
    outcome = call("probe", run, sentence_run, *asked, "--json", path)
    assert (outcome.status, outcome.out.count("CXMI")) == (130, 1)
    assert outcome.err == f"docmt: interrupted: {sentence_run} is missing\n"
    assert json.loads(path.read_text()) == {"systems": [json.loads(alone.out)]}
    path.write_text("kept")
    nothing = call("probe", sentence_run, run, *asked, "--json", path)
    assert nothing == (130, "", "docmt: interrupted\n") and path.read_text() == "kept"


@pytest.mark.parametrize("kind", ["none", "weights", "tokenizer"])
def test_a_later_model_that_is_no_good_is_found_before_the_first_is_asked(run, asked, kind, tmp_path, monkeypatch):
    later = tmp_path / "later"
    if kind != "none":
        shutil.copytree(run / "model", later)
        (later / {"weights": "model.safetensors", "tokenizer": "tokenizer.json"}[kind]).write_bytes(b"nothing")
    for name in ("cli.commands.probe.score_with_and_without_context", "evaluation.compare_suite_contexts"):
        monkeypatch.setattr(f"docmt.{name}", lambda *arguments: 1 / 0)
    fails("probe", run, later, *asked, message="later")
    fails("probe", run, later, "--suite", "pronouns", "--context-ablation", message="later")
    monkeypatch.setattr("docmt.cli.commands.evaluate.translate_corpus", lambda *arguments: 1 / 0)
    fails("evaluate", "--systems", run, later, *asked, message="later")


def test_languages_of_later_models_and_test_sets_are_looked_at_first(run, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("docmt.evaluation.compare_suite_contexts", lambda *arguments: 1 / 0)
    suite = tmp_path / "suite.en-fr.jsonl"
    shutil.copy(corpus / "test.contrastive.jsonl", suite)
    asked = ("--suite", "pronouns", suite, "--context-ablation")
    fails("probe", run, *asked, message="en-fr|French|fr")


def test_test_sets_with_true_empty_and_shuffled_context_and_noise(run, corpus, tmp_path):
    suite, expected = tmp_path / "suite.jsonl", corpus / "test.contrastive.jsonl"
    suite.write_text("".join(expected.read_text().splitlines(keepends=True)[:12]))
    ours = call("probe", run, "--suite", suite, "--context-ablation", "--json", tmp_path / "found.json")
    assert ours.status == 0, ours.err
    conditions = ["true", "empty", "shuffled", "noise"]
    assert ours.out.splitlines()[0].split() == ["items", "chance", *" context ".join([*conditions, ""]).split()]
    found = json.loads((tmp_path / "found.json").read_text())["suites"][str(suite)]
    assert {found["left_out"] + found[name]["total"] for name in conditions} == {12}
    assert list(found["marked_tokens"]["likelihood"]) == conditions and "\ntrue - noise  " in ours.out
    assert list(found["marked_tokens"]["gains"]) == conditions[1:]
    if not found["left_out"]:
        plain = json.loads(call("probe", run, "--suite", suite, "--json", "-").out)
        assert found["true"]["answers"] == plain["answers"]


@pytest.mark.full
def test_marked_tokens_and_translations_of_contrastive_items(run, corpus, tmp_path):
    suite, records = tmp_path / "suite.jsonl", (corpus / "test.contrastive.jsonl").read_text().splitlines()[:12]
    lines = [json.dumps(json.loads(record) | {"document": str(number // 3)}) for number, record in enumerate(records)]
    suite.write_text("\n".join(lines))
    asked = ("probe", run, "--suite", suite, "--context-ablation")
    outcome = call(*asked, "--translate", "--beam", 1, "--json", tmp_path / "found.json")
    assert outcome.status == 0, outcome.err
    written = json.loads((tmp_path / "found.json").read_text())
    found = written["suites"][str(suite)]
    assert written["beam"] == 1 and found["marked_tokens"]["items"] + found["left_out"] == 12
    assert found["marked_tokens"]["documents"] <= 4
    assert {name: each["total"] for name, each in found["translated"].items()} == dict.fromkeys(
        ("true", "empty", "shuffled"), 12 - found["left_out"]
    )
    (row,) = [line for line in outcome.out.splitlines() if line.startswith("suite.jsonl, translated")]
    assert row.split()[3] == "-" and "true - shuffled" in outcome.out
    plain = call(*asked, "--json", "-")
    assert json.loads(plain.out)["warnings"]["long_source"] == written["warnings"]["long_source"]
    fails(
        "probe",
        run,
        "--suite",
        suite,
        "--translate",
        message="--translate has no effect without --context-ablation: leave it out",
    )
    item = {"src_context": ["A."], "src": "It.", "expected": "es"}
    suite.write_text(json.dumps(item) + "\n" + json.dumps(item | {"src_context": ["B."]}) + "\n")
    fails(*asked, "--translate", message="--translate needs a contrastive --suite")


def test_scores_by_position(run, corpus, tmp_path):
    sides = ("--source", corpus / "test.en", "--reference", corpus / "test.de")
    one = call("evaluate", "--model", run, *sides, *QUICK, "-o", tmp_path / "out.de", "--by-position", "--json", "-")
    places = json.loads(one.out)["by_position"]
    assert places["1"]["sentences"] == 6
    reference = ("--reference", corpus / "test.de", "--by-position")
    printed = call("evaluate", "--hypothesis", tmp_path / "out.de", *reference).out
    assert "\n\nsentence  metric  count  " in printed
    both = ("--systems", tmp_path / "out.de", corpus / "test.de", *reference)
    found = json.loads(call("evaluate", *both, "--json", "-").out)["by_position"]["1"]["systems"]
    assert found["test.de"]["s_bleu"]["value"] == pytest.approx(100)
    assert found["out.de"]["s_bleu"]["value"] == pytest.approx(places["1"]["systems"][str(run)]["s_bleu"]["value"])


def test_intervals_of_scores_by_position_are_drawn_as_asked(corpus, tmp_path):
    changed = tmp_path / "changed.de"
    changed.write_text((corpus / "test.de").read_text().replace("Er ", "Sie ").replace(" ist ", " war "))
    asked = ("--hypothesis", changed, "--reference", corpus / "test.de", "--by-position", "--json", "-")
    drawn, others = (call("evaluate", *asked, "--samples", 200, "--seed", seed) for seed in (3, 4))
    assert drawn.status == 0 and drawn.out != others.out


def test_systems_without_scores_of_sentences_have_none_by_position(corpus, tmp_path):
    """The other scores are told all the same."""
    joined, reference = tmp_path / "joined.de", corpus / "test.de"
    joined.write_text("\n\n".join(" ".join(text.split("\n")) for text in reference.read_text().split("\n\n")))
    asked = ("--reference", reference, "--by-position", "--json", tmp_path / "scores.json")
    told = "joined.de has no scores of sentences, so none by position: 6 of 6 documents differ"
    one = call("evaluate", "--hypothesis", joined, *asked)
    assert one.status == 2 and one.err.startswith("docmt: error: ") and told in one.err
    assert "d-BLEU" in one.out and json.loads((tmp_path / "scores.json").read_text())["s_bleu"] is None
    both = call("evaluate", "--systems", joined, reference, *asked)
    assert both.status == 0 and both.err.startswith("docmt: joined.de") and told in both.err
    assert list(json.loads((tmp_path / "scores.json").read_text())["by_position"]["1"]["systems"]) == ["test.de"]
    copy = tmp_path / "copy.de"
    copy.write_text(joined.read_text())
    neither = call("evaluate", "--systems", joined, copy, *asked)
    assert neither.status == 2 and "docmt: error: joined.de has no scores of sentences" in neither.err
    assert neither.out


def test_settings_of_the_search_that_scoring_does_not_read_are_accepted(run, asked, corpus):
    plain = call("probe", run, *asked, "--json", "-")
    assert call("probe", run, *asked, "--beam", 1, "--json", "-") == plain


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--cxmi.replaced-sentences", "-1"], "--cxmi.replaced-sentences is -1: choose a number from 0"),
        (["--json", "none/there.json"], "cannot write none/there.json"),
        (["--context-ablation"], "--context-ablation has no effect without --suite: leave it out, or add --suite"),
        (["--normalization", "mean"], "--contrastive.normalization has no effect without --suite"),
        (["--suite", "pronouns", "pronouns"], "--suite has pronouns twice: name it once"),
        (["--suite", "pronouns", "--context-ablation", "--markdown", "m"], "--markdown does not go with --context-"),
        (["--suite", "pronouns", "--markdown", "none/there.md"], "cannot write none/there.md"),
    ],
)
def test_options_that_do_not_fit(run, asked, more, message):
    fails("probe", run, *asked, *more, message=message)


@pytest.mark.full
def test_a_test_set_and_a_corpus_at_once(run, asked, suite, corpus, tmp_path):
    page, found = tmp_path / "page.md", tmp_path / "found.json"
    both = call("probe", run, *asked, "--suite", suite, "--json", found, "--markdown", page)
    assert both.status == 0, both.err
    usage, answers = (call("probe", run, *which, "--json", "-") for which in (asked, ("--suite", suite)))
    assert json.loads(found.read_text()) == {**json.loads(answers.out), "context_usage": json.loads(usage.out)}
    assert both.out.startswith("CXMI") and "\n  odd " in both.out
    assert page.read_text().startswith("|  | items | chance | run |")
    suite.write_text("".join((corpus / "test.contrastive.jsonl").read_text().splitlines(keepends=True)[:12]))
    hidden = call("probe", run, *asked, "--suite", suite, "--context-ablation", "--json", found)
    assert hidden.status == 0, hidden.err
    written = json.loads(found.read_text())
    assert {"suites", "context_gain", "other_context", "warnings"} <= written.keys()


def test_corpora_without_context(run, tmp_path):
    sides = ("--source", tmp_path / "a.en", "--reference", tmp_path / "a.de")
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("One.\n\nTwo.\n")
    message = "no document has two sentences, so there is no context to measure. Give whole documents"
    fails("probe", run, *sides, message=message)
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("One.\nTwo.\n")
    outcome = call("probe", run, *sides)
    assert outcome.status == 0 and "95 %" not in outcome.out
    assert outcome.err == "docmt: there is only one document: the context of another document is not measured\n"
    (tmp_path / "a.de").write_text("One.\n")
    fails("probe", run, *sides, message="a.en")


def test_test_sets_without_context(run, tmp_path):
    path = tmp_path / "suite.jsonl"
    item = {"source": ["It."], "candidates": [["Er."], ["Sie."]], "correct": 0, "sentence": 0, "distance": 0}
    path.write_text(json.dumps(item) + "\n")
    message = "no item has a context, so there is none to measure"
    fails("probe", run, "--suite", path, "--context-ablation", message=message)
    item |= {"source": ["A.", "It."], "candidates": [["A.", "Er."], ["A.", "Sie."]], "sentence": 1}
    path.write_text(json.dumps(item) + "\n")
    message = "no two items can exchange their contexts: they need sentences on the same side of the tested sentence"
    fails("probe", run, "--suite", path, "--context-ablation", message=message)
