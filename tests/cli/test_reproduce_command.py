"""docmt reproduce by the command line: a whole experiment, and what is said where something does not fit."""

import json
import re

import pytest
from commands import SIZES, assert_one_sentence, call, fails, start, wait_for_lines

from docmt.experiments import list_experiments

EXPERIMENT = """
title: A sentence model and the group model that starts from it
variants:
  sentence:
    recipe: tiny.yaml
    settings: {model.system: sentence}
    published: {d-BLEU: 12.5}
  group:
    recipe: tiny.yaml
    start_from: sentence
    settings: {optimizer.pretrained_lr_scale: 0.5}
"""
TABLE = r"\| (\w+) \| 1/1 \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|( 12.50)?"


@pytest.fixture(scope="module")
def tested(corpus):
    """A store of the corpus with its test split."""
    path = corpus.parent / "tested"
    splits = [
        part
        for name in ("train", "dev", "test")
        for part in (f"--{name}", corpus / f"{name}.en", corpus / f"{name}.de")
    ]
    assert call("prepare", "--store", path, *splits, "--vocabulary-size", 400).status == 0
    return path


@pytest.fixture
def experiment(tmp_path):
    """An experiment of two one-second trainings."""
    # Two layers, as the group system has without options: the sentence system could not have them.
    shared = {name: value for name, value in SIZES.items() if not name.startswith("group.")}
    shared |= {"encoder_layers": 2, "decoder_layers": 2}
    sizes = "".join(f"  {name}: {value}\n" for name, value in shared.items())
    (tmp_path / "tiny.yaml").write_text(
        f"store: x\nrun: x\nmodel:\n{sizes}  dropout: 0.0\nbatches: {{batch_tokens: 512}}\n"
        "optimizer: {learning_rate: 0.02, warmup: 10}\nvalidation: {every: 20}\nstop: {max_steps: 40}\n"
        "checkpoints: {every: 10}\ndevice: cpu\nlog_every: 1\n"
    )
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT)
    return path


@pytest.mark.full
def test_a_whole_experiment_killed_once(experiment, tested, corpus, tmp_path):
    output = tmp_path / "out"
    command = ["reproduce", experiment, "--store", tested, "--output", output, "--search.beam", 1]
    dry = call(*command, "--dry-run")
    assert (dry.status, dry.err, output.exists()) == (0, "", False)
    names = re.findall(r"\((.*)\)", dry.out)
    assert [line.split()[:2] for line in dry.out.splitlines()] == [["missing", "sentence,"], ["missing", "group,"]]

    killed = start(*command)
    wait_for_lines(output / "runs" / names[0] / "metrics.jsonl", 15, killed)
    killed.kill()
    killed.communicate()
    assert call(*command, "--dry-run").out.split()[0] == "resumable"
    outcome = call(*command)
    assert outcome.status == 0, outcome.err
    assert f"docmt: [1/2] resuming sentence, seed 1 ({names[0]})\n" in outcome.err
    assert f"docmt: [2/2] training group, seed 1 ({names[1]})\n" in outcome.err
    assert outcome.out == (output / "small-cpu.md").read_text()
    assert [(row[1], bool(row[6])) for row in re.finditer(TABLE, outcome.out)] == [("sentence", True), ("group", False)]
    again = call(*command)
    assert (again.status, again.out) == (0, outcome.out)
    assert "training" not in again.err
    assert {line.split()[0] for line in call(*command, "--dry-run").out.splitlines()} == {"done"}

    # The scores are those that docmt evaluate gives to the same model.
    content = json.loads((output / "small-cpu.json").read_text())
    scores = tmp_path / "scores.json"
    files = ("--source", corpus / "test.en", "--reference", corpus / "test.de", "--json", scores)
    run = output / "runs" / names[1]
    assert call("evaluate", "--model", run, *files, "--search.beam", 1, "--protect", "none").status == 0
    found = json.loads(scores.read_text())
    stored = content["rows"][1]["runs"][0]["scores"]
    assert {name: found[name] for name in stored} == stored
    assert content["rows"][1]["runs"][0]["scores"]["chrf"]["score"] > 0

    # The answers to a test set are those that docmt probe has.
    suite = ["--suite", corpus / "test.contrastive.jsonl"]
    outcome = call(*command, *suite)
    assert outcome.status == 0, outcome.err
    assert "- phenomena and distances: percent right in test.contrastive.jsonl\n" in outcome.out
    rows = json.loads((output / "small-cpu.json").read_text())["rows"]
    alone = json.loads(call("probe", run, *suite, "--json", "-").out)["phenomena"]
    assert rows[1]["runs"][0]["suite"]["phenomena"] == alone
    assert (
        list(alone) == [""]
        and " | distance 1 | " in outcome.out
        and f"| {100 * alone['']['distances']['1']['accuracy']:.1f} |" in outcome.out
    )
    message = "small.yaml, line 2: not valid JSON. A test set has one JSON object a line"
    fails(*command, "--suite", experiment, message=message)


@pytest.mark.full
def test_overrides_reach_every_run(experiment, tested, tmp_path):
    settings = ["--stop.max-steps", 4, "--model.width=8", "--stop.patience", 0, "--search.beam", 1, "--seeds", "4, 7"]
    options = tmp_path / "options.yaml"
    options.write_text(f"store: {tested}\noutput: {tmp_path / 'out'}\n")
    outcome = call("reproduce", experiment, "--config", options, *settings)
    assert outcome.status == 0, outcome.err
    assert "| sentence | 2/2 |" in outcome.out
    for run in sorted((tmp_path / "out" / "runs").iterdir()):
        config = json.loads((run / "model" / "config.json").read_text())
        assert config["model"]["width"] == 8
        assert (run / "train.log").read_text().count("finished: 4 updates are done") == 1
        assert run.name.split("-")[1] in ("seed4", "seed7")


@pytest.mark.full
def test_a_failed_run_is_told_at_the_end(experiment, tested, tmp_path):
    experiment.write_text(
        EXPERIMENT.partition("  group:")[0]
        + "  hopeless: {recipe: tiny.yaml, settings: {model.position_encoding: learned, model.max_positions: 1,\n"
        "    model.positions: document}}\n"
    )
    options = ["--store", tested, "--output", tmp_path / "out", "--stop.max-steps", 4, "--search.beam", 1]
    outcome = call("reproduce", experiment, *options)
    assert outcome.status == 2
    assert "- failed: hopeless, seed 1: the instance that begins with sentence 1 of document" in outcome.out
    assert len(re.findall(TABLE, outcome.out)) == 1
    assert_one_sentence(outcome.err.splitlines(keepends=True)[-1], "1 of 2 runs failed, see the table; run the same")


def test_what_an_experiment_has_no_use_for(experiment, tested, tmp_path):
    command = ["reproduce", experiment, "--store", tested, "--output", tmp_path / "out", "--dry-run"]
    fails(
        *command,
        "--context.window-decoding",
        "prefix",
        message=r"context.window_decoding is for systems that translate windows \(concat\), not for (this|models of) ",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "device is cuda, but PyTorch sees no GPU here: choose --device cpu"),
        (["--devices", 1000], r"devices is 1000, but this machine has \d+ processor core"),
        (["--checkpoints.average-count", 3], "checkpoints.average_count is set but checkpoints.average is none"),
        (["--optimizer.lr-factors", "nix*=2"], "optimizer.lr_factors has 'nix.*', which matches no weight"),
        (["--objective.weighted-words", "zzz"], "no token of the target language is 'zzz'"),
        (["--stop.max-steps", -1], "--stop.max-steps is -1: choose a number from 0"),
        (["--model.group.top-attention", "x"], "--model.group.top-attention is 'x': choose one of"),
        (["--seeds", "1,-3"], "--seeds is -3: choose a number from 0"),
    ],
)
def test_a_wrong_option_of_all_runs_is_told_once(experiment, tested, tmp_path, monkeypatch, options, message):
    """Each run failed with it, one after the other, and --dry-run did not notice."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    fails(
        "reproduce", experiment, "--store", tested, "--output", tmp_path / "out", *options, "--dry-run", message=message
    )
    assert not (tmp_path / "out").exists()


def test_an_option_with_which_some_runs_can_start_is_no_error(experiment, tested, tmp_path):
    command = ["reproduce", experiment, "--store", tested, "--output", tmp_path / "out", "--dry-run"]
    outcome = call(*command, "--optimizer.lr-factors", "*gate*=2")
    assert (outcome.status, outcome.err) == (0, "")


SYSTEMS = ["reproduce", "systems", "--scale", "cpu", "--dry-run"]


@pytest.mark.full
def test_missing_drafts_are_told_once_and_the_other_systems_go_on(corpus, tmp_path):
    """The experiment that compares all systems, on a store of the tokenizer of its start model."""
    splits = [
        part for name in ("train", "test") for part in (f"--{name}", *(corpus / f"{name}.{x}" for x in ("en", "de")))
    ]
    languages = ["--source-language", "en", "--target-language", "fr"]
    store = tmp_path / "store"
    assert call("prepare", "--store", store, *splits, *languages, "--tokenizer", "en-fr-sentence").status == 0
    command = [*SYSTEMS, "--store", store, "--output", tmp_path / "out"]
    outcome = call(*command)
    assert outcome.status == 0
    assert outcome.err == (
        f"docmt: left out: multihop; selective, decoder; cadec (drafts are missing in {store}: run `docmt prepare` "
        "again with --drafts)\n"
    )
    variants = [line.split(" ", 1)[1].strip().split(", seed")[0] for line in outcome.out.splitlines()]
    read_drafts = ("multihop", "selective, decoder", "cadec")
    assert variants == [name for name in list_experiments()["systems"].variants if name not in read_drafts]
    fails(
        *command, "--suite", "phenomena", message="phenomena is en-de, but a model of .*store translates en-fr. Name a"
    )


def test_a_store_of_another_tokenizer_is_refused_at_once(tested, tmp_path):
    command = [*SYSTEMS, "--store", tested, "--output", tmp_path / "out"]
    fails(*command, message="no variant can be trained here: .*en-fr-sentence has another vocabulary than the training")


def test_ctrl_c_says_how_to_go_on(experiment, tested, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("docmt.experiments.runs.train", interrupt)
    outcome = call("reproduce", experiment, "--store", tested, "--output", tmp_path / "out")
    assert outcome.status == 130
    assert "docmt: to continue, run the same command again: it skips finished runs and" in outcome.err


def test_the_experiments_are_listed():
    outcome = call("reproduce", "--list")
    assert outcome.status == 0
    for name, experiment in list_experiments().items():
        assert re.search(rf"^{re.escape(name)} +{re.escape(experiment.title)}$", outcome.out, re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"NAME is missing; docmt reproduce --list shows the experiments"),
        (["table1"], r"unknown experiment 'table1': choose one of concat, figure2, .*or give the path"),
        (["none.yaml"], r"cannot read none.yaml: there is no such file"),
        (["none.yaml", "table2"], r"none.yaml and table2 both name an experiment"),
        (["table2"], r"--store is missing; see docmt reproduce --help"),
        (["table2", "--store", "s"], r"--output is missing"),
        (["table2", "--store", "s", "--output", "o"], r"s is not a prepared store"),
        (["table2", "--scale", "huge"], r"--scale is 'huge': choose one of cpu, full"),
        (
            ["table2", "--store", "s", "--output", "o", "--seeds", "1;2"],
            r"--seeds is '1;2': give whole numbers, such as 1,2,3",
        ),
        (
            ["table2", "--store", "s", "--output", "o", "--context.window-decoding", "no"],
            r"--context.window-decoding is 'no': choose one of auto, last",
        ),
        (["table2", "--seed", "1"], r"unknown option --seed; did you mean --seeds\?"),
        (["table2", "--stop.max-stops", "1"], r"unknown option --stop.max-stops; did you mean --stop.max-steps\?"),
        (["table2", "--stop.max-steps", "x"], r"--stop.max-steps is 'x': give a whole number"),
        (["table2", "--store", "s", "--output", "o", "--search.beam", "0"], r"search.beam is 0: choose a number"),
    ],
)
def test_what_does_not_fit(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("reproduce", *arguments, message=message)
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_a_test_split_is_refused_at_once(experiment, store, tmp_path):
    options = ["--store", store, "--output", tmp_path / "out"]
    fails("reproduce", experiment, *options, message=r"no split 'test', only train, dev; run `docmt prepare` again")
