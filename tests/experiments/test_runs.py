"""Runs of experiments: done is skipped, killed goes on, failed is reported, and equal trainings are one run."""

import json
import re
import shutil

import pytest
import torch
import yaml
from forked import Forking
from safetensors.torch import load_file

from docmt.checkpoint.model_directory import load_model, save_model
from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.decoding import ContextConfig, SearchConfig
from docmt.decoding.scheduler import select_effective_settings
from docmt.decoding.search_rules import choose_order
from docmt.evaluation import MetricConfig
from docmt.experiments import EvaluationConfig, determine_state, reproduce, runs, write_report
from docmt.model import ModelConfig, TranslationModel
from docmt.training import TrainConfig
from docmt.training.loop import Training
from docmt.training.training_corpus import fit_model_config

FULL = pytest.mark.full
GREEDY = EvaluationConfig(SearchConfig(beam=1))
MULTIHOP = """
title: Hops
variants:
  hops:
    recipe: group-cpu.yaml
    start_from: forward
    start_reverse_from: backward
    settings: {model.system: multihop, model.multihop.sentences: 1}
  backward: {recipe: group-cpu.yaml, settings: {model.system: sentence, reverse: true}}
  forward: {recipe: group-cpu.yaml, settings: {model.system: sentence}}
"""


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


def states(plan, evaluation=GREEDY):
    return [determine_state(run, evaluation) for run in plan.unique_runs()]


def names(plan):
    return [run.config.run.name for run in plan.unique_runs()]


def stop_at(monkeypatch, run, update, error):
    """Make the training in this directory raise an error instead of making this update."""
    original = Training._update

    def stopping(self):
        if self.run.path == run and self.state.update + 1 == update:
            raise error
        return original(self)

    monkeypatch.setattr(Training, "_update", stopping)


# Names of run directories


def test_directories_have_the_variant_and_an_identifier_of_the_training(plan_of, tmp_path):
    def directories(text, output="out"):
        return {run.title: run.config.run.name for run in plan_of(tmp_path / output, text).runs}

    text = (
        "title: x\nvariants:\n  a, half: {recipe: group-cpu.yaml}\n  b: {recipe: group-cpu.yaml, start_from: 'a, half'}"
    )
    new = directories(text)
    assert [name[:-8] for name in new.values()] == ["a-half-seed1-", "b-seed1-"]
    axes = directories(text + "\naxes: [{name: w, points: {1/2: {model.width: 8}}}]")
    assert axes["b, w 1/2, seed 1"][:-8] == "b-w-1-2-seed1-"
    # Another experiment has the same training under another name, and finds the directory that is there.
    old = f"group-cpu-seed1-{new['a, half, seed 1'][-8:]}"
    (tmp_path / "out" / "runs" / old).mkdir(parents=True)
    assert directories(text) == {**new, "a, half, seed 1": old}
    assert list(directories("title: x\nvariants: {c: {recipe: group-cpu.yaml}}").values()) == [old]
    twice = directories("title: x\nvariants: {c: {recipe: group-cpu.yaml}, d: {recipe: group-cpu.yaml}}", "else")
    assert set(twice.values()) == {f"c-seed1-{old[-8:]}"}


def test_identifiers_depend_on_what_changes_the_model(plan_of, tmp_path, monkeypatch):
    def made(**settings):
        return names(plan_of(**{"output": tmp_path, **settings}))

    same = [made(output=tmp_path / "else"), made(overrides={"log_every": 7, "device": "auto"})]
    assert [made(), made(overrides={"model.dropout": 0.1})] == same
    others = [made(overrides={"model.dropout": 0.2}), made(overrides={"stop.max_steps": 9}), made(scale="full")]
    assert len({*made(), *(name for other in others for name in other)}) == 16
    assert made(seeds=[2]) == made()[2:]
    before, to_dict = made(), TrainConfig.to_dict
    monkeypatch.setattr(TrainConfig, "to_dict", lambda self: {**to_dict(self), "younger": {"option": 3}})
    assert made() == before, "a new option with a default trains no run again"


def test_overrides_apply_to_variants_of_their_system(plan_of, tmp_path):
    plan = plan_of(tmp_path / "out", overrides={"model.group.encoder_layers": 0})
    layers = {run.variant: run.config.model.group.encoder_layers for run in plan.runs}
    assert layers == {"sentence": ModelConfig().group.encoder_layers, "tuned": 0}


# Training and resuming


@FULL
def test_killed_and_continued_is_as_never_stopped(plan_of, copied, tmp_path, monkeypatch, trained):
    plan = plan_of(tmp_path / "killed")
    directories = names(plan)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        stop_at(patch, plan.unique_runs()[1].config.run, 6, Killed)
        reproduce(plan, GREEDY)
    assert states(plan) == ["done", "resumable", "missing", "missing"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(runs, "evaluate_run", lambda *_: (_ for _ in ()).throw(Killed()))
        reproduce(plan, GREEDY)
    assert states(plan) == ["done", "trained", "missing", "missing"]
    assert reproduce(plan, GREEDY) == {}
    resumed = [(directories[1], True), *((name, False) for name in directories[2:])]
    assert trained == [(directories[0], False), (directories[1], False), *resumed]
    outputs = copied, plan.output
    assert write_report(plan_of(copied), GREEDY, {}) == write_report(plan, GREEDY, {})
    whole, continued = [(output / "small-cpu.json").read_text() for output in outputs]
    assert whole == continued
    for name in directories:
        weights = [load_file(output / "runs" / name / "model/model.safetensors") for output in outputs]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_a_finished_output_is_skipped_also_where_it_was_moved(plan_of, copied, trained):
    plan = plan_of(copied)
    assert plan.runs[1].config.initialize_from.parent == copied / "runs"
    assert (states(plan), reproduce(plan, GREEDY)) == (["done"] * 4, {})
    (plan.runs[0].config.run / "test.json").write_text('{"config": ')
    (plan.runs[1].config.run / "test.json").unlink()
    assert states(plan) == ["trained", "trained", "done", "done"]
    assert reproduce(plan, GREEDY) == {}
    assert (states(plan), trained) == (["done"] * 4, [])


def test_scores_of_other_settings_are_computed_again(plan_of, copied, trained):
    plan = plan_of(copied, seeds=[1])
    other = EvaluationConfig(SearchConfig(beam=2), MetricConfig(unit="instance", lowercase=True))
    assert states(plan, other) == ["trained"] * 2
    assert (reproduce(plan, other), trained) == ({}, [])
    signatures = []
    for evaluation in (GREEDY, other):
        text = write_report(plan, evaluation, {})
        signatures.append(json.loads((copied / "small-cpu.json").read_text())["signatures"])
    assert signatures[0] != signatures[1]
    assert "case:lc" in text and "unit:instance" in text
    assert states(plan) == ["trained"] * 2


def test_scores_are_stored_with_the_settings_that_were_chosen():
    """What an evaluation fills in by itself does not count: scores of earlier versions remain valid."""
    assert EvaluationConfig().score_settings == {"search": {}, "context": {}, "metrics": {}}
    chosen = EvaluationConfig(SearchConfig(beam=1), MetricConfig(language="de"))
    assert chosen.score_settings == {"search": {"beam": 1}, "context": {}, "metrics": {"language": "de"}}


def test_a_model_that_was_trained_with_other_settings_is_not_done(plan_of, copied, trained):
    plan = plan_of(copied, seeds=[1])
    run = plan.runs[0].config.run
    before = (run / "recipe.yaml").read_text()
    for old, new, message in (
        ("warmup: 4", "warmup: 5", r"trained with other settings .optimizer.warmup is 4 but was 5.. Move it away"),
        ("max_steps: 8", "max_steps: 9", "stop.max_steps is 8 but was 9"),
        ("  label_smoothing: 0.1\n", "  label_smoothing: 0.2\n", "objective.label_smoothing is 0.1 but was 0.2"),
        ("seed: 1", "seed: [1", "the training settings of .* cannot be read"),
    ):
        assert before.count(old) == 1
        (run / "recipe.yaml").write_text(before.replace(old, new))
        assert states(plan) == ["changed", "done"]
        failures = reproduce(plan, GREEDY)
        assert re.search(message, failures[run])
        assert "| sentence | 0/1 | - |" in write_report(plan, GREEDY, failures)
    (run / "recipe.yaml").write_text(before)
    assert (states(plan), trained) == (["done"] * 2, [])


def test_one_failure_stops_only_runs_that_start_from_it(plan_of, copied, trained):
    text = """
title: One of them is hopeless
variants:
  hopeless: {recipe: group-cpu.yaml, settings: {model.position_encoding: learned, model.max_positions: 1}}
  heir: {recipe: group-cpu.yaml, start_from: hopeless}
  good: {recipe: group-cpu.yaml, settings: {model.system: sentence}}
"""
    plan = plan_of(copied, text)
    hopeless, heir, good = [run.config.run for run in plan.unique_runs()]
    (good / "test.json").unlink()
    failures = reproduce(plan, GREEDY)
    assert set(failures) == {hopeless, heir}
    assert "but model.max_positions is 1" in failures[hopeless]
    assert failures[heir] == f"the run it starts from, {hopeless.name}, failed"
    assert states(plan)[2] == "done"
    assert trained == [(hopeless.name, False)]
    assert reproduce(plan, GREEDY) == failures
    assert [name for name, _ in trained] == [hopeless.name] * 2
    table = write_report(plan, GREEDY, failures)
    rows = json.loads((copied / "small-cpu.json").read_text())["rows"]
    assert [(row["variant"], row["runs"][0]["state"]) for row in rows] == [
        ("hopeless", "failed"),
        ("heir", "failed"),
        ("good", "done"),
    ]
    assert f"- failed: hopeless, seed 1: {failures[hopeless]}" in table
    assert "| hopeless | 0/1 | - | - | - | - |" in table
    assert "unfinished" not in table


@FULL
def test_ctrl_c_ends_all_and_the_run_goes_on(plan_of, tmp_path, monkeypatch):
    plan = plan_of(tmp_path, seeds=[1])
    original = Training._update

    def interrupting(self):
        if self.state.update == 5:
            import signal

            signal.raise_signal(signal.SIGINT)
        return original(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "_update", interrupting)
        reproduce(plan, GREEDY)
    assert states(plan) == ["resumable", "missing"]
    assert json.loads((plan.runs[0].config.run / "checkpoints/last/state.json").read_text())["update"] == 6
    assert reproduce(plan, GREEDY) == {}


@FULL
def test_a_kill_before_the_recipe_was_written(plan_of, tmp_path):
    plan = plan_of(tmp_path, "title: One\nvariants: {one: {recipe: group-cpu.yaml}}")
    (plan.runs[0].config.run / "checkpoints").mkdir(parents=True)
    assert states(plan) == ["missing"]
    assert reproduce(plan, GREEDY) == {}


def test_an_output_is_for_one_process(plan_of, tmp_path):
    plan = plan_of(tmp_path / "out")
    (tmp_path / "out").mkdir()
    with lock_directory(tmp_path / "out", "x"), pytest.raises(DocmtError, match=r"are being run by process \d+ on"):
        reproduce(plan, GREEDY)
    assert states(plan) == ["missing"] * 4


def test_torchrun_is_refused(plan_of, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(DocmtError, match="Set --devices instead of using torchrun"):
        reproduce(plan_of(tmp_path), GREEDY)


@FULL
def test_several_devices_train_in_separate_processes(plan_of, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(runs, "subprocess", Forking)
    text = "title: Two\nvariants: {two: {recipe: group-cpu.yaml, settings: {devices: 2}}}"
    plan = plan_of(tmp_path, text)
    assert (reproduce(plan, GREEDY), states(plan)) == ({}, ["done"])
    assert not list((tmp_path / "runs").glob("*.yaml"))
    overrides = {"model.position_encoding": "learned", "model.max_positions": 1, "model.positions": "document"}
    hopeless = plan_of(tmp_path, text, overrides=overrides)
    failure = next(iter(reproduce(hopeless, GREEDY).values()))
    assert failure == "docmt train exited with status 2. See its message on standard error."
    assert "docmt: error: the instance that begins" in capfd.readouterr().err


# Ways to translate


@FULL
def test_the_unit_instance_is_translated_by_itself(plan_of, tmp_path, monkeypatch):
    settings = {"model.instance_tokens": 12}
    plan = plan_of(tmp_path, "title: One\nvariants: {group: {recipe: group-cpu.yaml}}", overrides=settings)
    seen = []
    original = runs.translate_documents

    def spy(model, documents, *args, **kwargs):
        seen.append(documents)
        return original(model, documents, *args, **kwargs)

    monkeypatch.setattr(runs, "translate_documents", spy)
    segments = []
    for evaluation in (GREEDY, EvaluationConfig(GREEDY.search, MetricConfig(unit="instance"))):
        assert reproduce(plan, evaluation) == {}
        segments.append(runs.load_scores(plan.runs[0].config.run, evaluation)["d_bleu"]["segments"])
    documents, instances = seen
    assert [sentence for part in instances for sentence in part] == [s for document in documents for s in document]
    assert segments == [len(documents), len(instances)]
    assert len(instances) > len(documents)


WINDOWS = """
title: Windows
variants:
  start: {recipe: "group-{scale}.yaml", scale: cpu, settings: {model.system: sentence}}
  one: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 1}}
  two: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 2}}
  linear: {recipe: "group-{scale}.yaml", start_from: start,
    settings: {model.system: concat, model.concat.sentences: 2, model.concat.attention: linear}}
"""
SHORT = {"stop.max_steps": 2, "validation.every": 2}


@FULL
def test_both_ways_to_translate_of_one_training(plan_of, tmp_path, monkeypatch):
    """One set of runs serves both. They are scored again, and only windows are translated differently."""
    plan = plan_of(tmp_path / "out", WINDOWS, overrides=SHORT)
    usual, prefix = GREEDY, EvaluationConfig(GREEDY.search, context=ContextConfig(window_decoding="prefix"))
    assert reproduce(plan, usual) == {}
    assert states(plan, prefix) == ["trained"] * 4
    orders = []
    translate = runs.translate_documents

    def translated(model, documents, specials, search, *, context, **options):
        orders.append(choose_order(model, search, context))
        return translate(model, documents, specials, search, context=context, **options)

    monkeypatch.setattr(runs, "translate_documents", translated)
    assert reproduce(plan, prefix) == {}
    assert orders == ["sentences", "sequential", "sequential", "sequential"]
    assert "- test split, beam 1, `window_decoding: prefix`\n" in write_report(plan, prefix, {})
    write_report(plan, usual, {})
    pages = sorted(path.name for path in plan.output.glob("*.md"))
    assert pages == ["small-cpu-window_decoding-prefix.md", "small-cpu.md"], "one does not replace the other"
    assert states(plan, usual) == ["trained"] * 4


def test_options_that_not_all_runs_have(plan_of, tmp_path):
    options = ContextConfig(window_decoding="prefix", overlap=2, instance_tokens=99)
    plan = plan_of(tmp_path / "out", WINDOWS, overrides=SHORT)
    effective = {run.variant: select_effective_settings(options, run.config.model.system_options) for run in plan.runs}
    assert effective.pop("start") == ContextConfig()
    assert set(effective.values()) == {ContextConfig(window_decoding="prefix", instance_tokens=99)}


# Starts of the other direction, and drafts


@pytest.fixture
def drafted(store, tmp_path):
    """A store of the same corpus with drafts."""
    files = {name: [store.parent / f"{name}.jsonl"] for name in ("train", "dev", "test")}
    drafts = [tmp_path / "train.drafts.jsonl", tmp_path / "dev.drafts.jsonl"]
    for path, (corpus,) in zip(drafts, (files["train"], files["dev"]), strict=True):
        shutil.copy(corpus, path)  # any text does: these are the references
    tokenizer = str(store / "tokenizer")
    return prepare(PrepareConfig(tmp_path / "drafted", tokenizer=tokenizer, drafts=drafts, **files)).directory


def test_a_run_comes_after_both_that_it_starts_from(plan_of, drafted, tmp_path):
    plan = plan_of(tmp_path / "out", MULTIHOP, data=drafted)
    assert [run.variant for run in plan.runs] == ["backward", "forward", "hops"]
    backward, forward, hops = [run.config for run in plan.runs]
    assert (backward.reverse, forward.reverse, hops.reverse) == (True, False, False)
    assert (hops.initialize_from, hops.initialize_reverse_from) == (forward.run, backward.run)
    assert names(plan_of(tmp_path / "else", MULTIHOP, data=drafted)) == names(plan)
    text = MULTIHOP.replace("sentence, reverse", "sentence, model.dropout: 0.2, reverse")
    other = plan_of(tmp_path / "out", text, data=drafted)
    changed = [one != two for one, two in zip(names(other), names(plan), strict=True)]
    assert changed == [True, False, True], "a start is part of the identity of a run"


def test_variants_that_read_drafts_need_a_store_that_has_them(plan_of, store, tmp_path):
    plan = plan_of(tmp_path / "out", MULTIHOP)
    assert [run.variant for run in plan.runs] == ["backward", "forward"]
    assert plan.skipped == {"hops": f"drafts are missing in {store}: run `docmt prepare` again with --drafts"}


@FULL
def test_reverse_runs_are_scored_in_their_target_language(plan_of, store, copied, tmp_path, monkeypatch):
    translated = shutil.copytree(store, tmp_path / "store")
    statistics = json.loads((translated / "statistics.json").read_text())
    statistics |= {"source_language": "en", "target_language": "de"}
    (translated / "statistics.json").write_text(json.dumps(statistics))
    calls = []
    original = runs.evaluate_documents

    def spy(hypotheses, references, metrics, *args, **kwargs):
        calls.append((references[3][0], metrics.language))
        return original(hypotheses, references, metrics, *args, **kwargs)

    monkeypatch.setattr(runs, "evaluate_documents", spy)
    text = MULTIHOP.split("variants:")[0] + "variants:\n" + MULTIHOP[MULTIHOP.index("  backward") :]
    evaluation = EvaluationConfig(SearchConfig(beam=1), MetricConfig(text="tokenized", language="de"))
    assert reproduce(plan_of(copied, text, data=translated), evaluation) == {}
    (backward, english), (forward, german) = calls
    assert (english, german) == ("en", "de")
    assert backward.islower()
    assert backward.upper() == forward


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "start_from: backward",
            "start_from names backward, which has reverse true. Name a variant with reverse false.",
        ),
        (
            "start_from: forward, start_reverse_from: forward",
            "start_reverse_from names forward, which has reverse false. Name a variant with reverse true.",
        ),
        ("start_from: forward, start_reverse_from: none", "cannot start from 'none'. Name another variant"),
        ("start_from: forward, start_reverse_from: hops", "cannot start from 'hops'. Name another variant"),
        ("start_reverse_from: [x]", r"start_reverse_from is .'x'.: give text"),
    ],
)
def test_starts_that_cannot_be(plan_of, drafted, entry, message, tmp_path):
    backward = MULTIHOP[MULTIHOP.index("  backward") :]
    variant = f"  hops: {{recipe: group-cpu.yaml, {entry}, settings: {{model.system: multihop}}}}\n"
    with pytest.raises(DocmtError, match=message):
        plan_of(tmp_path / "out", f"title: x\nvariants:\n{variant}{backward}", data=drafted)


def test_a_store_that_cannot_be_reversed_is_refused_at_once(plan_of, monkeypatch, tmp_path):
    monkeypatch.setattr("docmt.text.bpe.BpeTokenizer.shares_vocabulary", False)
    with pytest.raises(DocmtError, match="cannot be reversed: its bpe tokenizer has separate vocabularies for source"):
        plan_of(tmp_path / "out", MULTIHOP)


# Pretrained models with their own store

PRETRAINED = """
title: From nothing, and from a pretrained model
variants:
  sentence:
    recipe: group-{scale}.yaml
    settings: {model.system: sentence}
  pretrained:
    recipe: pretrained.yaml
    settings: {store: STORE}
    published: {d-BLEU: 30}
"""


@pytest.fixture
def plan_pretrained(plan_of, write_experiment, tmp_path):
    """Return a function that plans PRETRAINED. Its recipe names a store `other` and a model `start`."""
    write_experiment()
    recipe = yaml.safe_load((tmp_path / "group-cpu.yaml").read_text())
    recipe |= {"store": str(tmp_path / "other"), "initialize_from": str(tmp_path / "start")}
    recipe["model"] = {"system": "group", "instance_tokens": 64}
    (tmp_path / "pretrained.yaml").write_text(yaml.safe_dump(recipe))
    return lambda output: plan_of(output, PRETRAINED.replace("STORE", str(tmp_path / "other")))


def test_without_a_pretrained_model_the_variant_is_skipped(plan_pretrained, tmp_path):
    plan = plan_pretrained(tmp_path / "out")
    assert [run.variant for run in plan.runs] == ["sentence"]
    missing = f"{tmp_path / 'other'} and {tmp_path / 'start'} missing: see {tmp_path / 'pretrained.yaml'} for"
    assert plan.skipped == {"pretrained": f"{missing} how to create them"}
    plan.output.mkdir()
    text = write_report(plan, GREEDY, {})
    assert f"- skipped: pretrained ({missing}" in text
    assert "| pretrained | 0/0 |" in text


@FULL
def test_a_pretrained_variant_has_its_vocabulary_and_sizes(plan_pretrained, copied, store, tmp_path):
    splits = {name: [store.parent / f"{name}.jsonl"] for name in ("train", "dev", "test")}
    other_store = prepare(PrepareConfig(store=tmp_path / "other", vocabulary_size=280, **splits))
    sizes = {"width": 8, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    torch.manual_seed(1)
    model = TranslationModel(fit_model_config(ModelConfig(system="sentence", **sizes), other_store))
    save_model(tmp_path / "start", model, other_store.tokenizer)
    plan = plan_pretrained(copied)
    assert reproduce(plan, GREEDY) == {}
    ordinary, pretrained = (load_model(run.config.run).config for run in plan.runs)
    words = PreparedStore.open(store).tokenizer.vocabulary_size
    assert (ordinary.vocabulary_size, ordinary.width) == (words, 16)
    assert (pretrained.vocabulary_size, pretrained.width) == (other_store.tokenizer.vocabulary_size, 8)
    assert other_store.tokenizer.vocabulary_size != words
    again = plan_pretrained(copied)
    assert states(again) == ["done", "done"]
    assert [run.config for run in again.runs] == [run.config for run in plan.runs]
    with torch.no_grad():
        model.decoder[0].feed_forward.inner.bias += 1
    save_model(tmp_path / "start", model, other_store.tokenizer)
    assert states(plan_pretrained(copied)) == ["done", "missing"], "another model is another run"
