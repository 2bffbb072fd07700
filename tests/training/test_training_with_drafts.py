"""Training on drafts: what is read, resumed and refused; models that carry their drafter."""

import json
import shutil
from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs import Killed, assert_equal_runs, copy_before, kill_before

from docmt.checkpoint.model_directory import average_models, find_drafter
from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens
from docmt.decoding import SearchConfig, Translator, translate_documents
from docmt.decoding.drafter import load_drafter
from docmt.evaluation import MetricConfig, evaluate_documents
from docmt.experiments import EvaluationConfig
from docmt.experiments.runs import evaluate_run, load_scores
from docmt.model.systems import Group, MultiHop
from docmt.training import train
from docmt.training.training_corpus import TrainingCorpus

SEARCH = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)
HOPS = {"model__system": "multihop", "model__multihop": MultiHop(sentences=2), "model__group": Group()}
SENTENCE = {"model__system": "sentence", "model__group": Group()}


@pytest.fixture
def hops(change, drafted, sentence_run, tmp_path):
    """A function giving the configuration of a multihop training: hops(name, **settings)."""
    usual = {"store": drafted.directory, "drafter": sentence_run, **HOPS}
    return lambda name, **settings: change(run=tmp_path / name, **{**usual, **settings})


def translated(model, sources=(("bo ka", "lu"), ("me",))):
    translator = Translator(model, device="cpu", search=SEARCH)
    documents = [translator.tokenizer.encode_batch(source, "source") for source in sources]
    return translator.draft_documents(documents), [translator.translate(". ".join(source)) for source in sources]


def test_batches_have_the_drafts_of_their_sentences(hops, drafted, change):
    corpus = TrainingCorpus(drafted, hops("run"))
    assert corpus.fingerprint != TrainingCorpus(drafted, change(**SENTENCE)).fingerprint
    for name, split in (("train", corpus.train), ("dev", corpus.dev)):
        drafts, stored = drafted.split(name).drafts, drafted.split(name)
        for indices in split.plan.batches_in_order():
            inputs, instances = split.build_batch(indices).inputs, split.instances.select(indices)
            assert inputs.references is None
            numbers = [n for pair in zip(instances.before, instances.last, strict=True) for n in range(*pair)]
            for packed, words in ((inputs.drafts, drafts), (inputs.source, stored.source)):
                sentences = packed.tokens.split(packed.sentences.lengths.tolist())
                wanted = [[0, *words.tokens[words.offsets[n] : words.offsets[n + 1]], 2] for n in numbers]
                assert [sentence.tolist() for sentence in sentences] == wanted


def test_references_are_for_training_alone(hops, drafted):
    corpus = TrainingCorpus(drafted, hops("run", model__multihop=MultiHop(sentences=2, target_context="references")))
    [indices, *_] = corpus.train.plan.batches_in_order()
    inputs = corpus.train.build_batch(indices).inputs
    assert len(inputs.references.sentences) == len(inputs.drafts.sentences) == len(inputs.source.sentences)
    assert not torch.equal(inputs.references.tokens, inputs.drafts.tokens)
    assert corpus.dev.build_batch(corpus.dev.plan.batches_in_order()[0]).inputs.references is None


@pytest.mark.full
@pytest.mark.parametrize("context", ["drafts", pytest.param("references", marks=pytest.mark.full)])
def test_a_killed_run_resumes_bit_for_bit(hops, monkeypatch, tmp_path, context):
    settings = {
        "model__multihop": MultiHop(sentences=2, target_context=context),
        "stop__max_steps": 4,
        "checkpoints__every": 2,
    }
    settings |= {"checkpoints__every": 2, "validation__every": 2, "precision": "bfloat16"}
    with monkeypatch.context() as patch:
        copy_before(patch, 4, tmp_path / "halves")
        train(hops("whole", **settings))
    train(hops("halves", **settings), resume=True)
    assert_equal_runs(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.full
def test_models_and_checkpoints_have_their_drafter(hops, drafted, sentence_run, monkeypatch, tmp_path):
    settings = {"stop__max_steps": 4, "validation__every": 2, "validation__best_by": "d_bleu", "checkpoints__keep": 1}
    with monkeypatch.context() as patch:
        kill_before(patch, 4)
        with pytest.raises(Killed):
            train(hops("run", **settings))
    run = tmp_path / "run"
    drafts, unfinished = translated(run)
    for name in ("last", "best", "update-2"):  # all of them the same weights
        assert find_drafter(run / "checkpoints" / name) == run / "drafter"
    assert (drafts, unfinished) == translated(run / "checkpoints" / "update-2")
    train(hops("run", **settings), resume=True)
    translations = translated(run)
    moved = shutil.copytree(run / "model", tmp_path / "moved")
    shutil.rmtree(run)
    assert translated(moved) == translations
    wanted = load_drafter(sentence_run, drafted.tokenizer, "cpu", "float32")
    assert wanted.search == SearchConfig(beam=4)
    assert (
        translations[0]
        == drafts
        == wanted.draft_documents([drafted.tokenizer.encode_batch(d) for d in (("bo ka", "lu"), ("me",))])
    )
    assert "the model in `drafter` writes them" in (moved / "README.md").read_text()


@pytest.mark.full
def test_experiments_evaluate_with_the_drafts_of_the_model(hops, drafted, tmp_path):
    config = hops("run", stop__max_steps=1)
    train(config)
    dev, evaluation = drafted.split("dev"), EvaluationConfig(SEARCH)
    tested = SimpleNamespace(split=lambda name: dev)  # a store whose test split is what is dev here
    evaluate_run(config, tested, evaluation)
    scores = load_scores(config.run, evaluation)
    translator = Translator(tmp_path / "run", device="cpu", search=SEARCH)
    sources, specials = dev.documents("source"), translator.tokenizer.specials
    drafts = translator.draft_documents(sources)
    translations = translate_documents(translator.model, sources, specials, SEARCH, drafts=drafts)
    texts = [
        [translator.tokenizer.decode_batch(document, "target") for document in side]
        for side in ([ranks[0].sentences for ranks in translations], dev.documents("target"))
    ]
    assert scores["d_bleu"]["score"] == evaluate_documents(*texts).to_json()["d_bleu"]["score"]
    by_instance = replace(evaluation, metrics=MetricConfig(unit="instance"))
    evaluate_run(config, tested, by_instance)
    assert load_scores(config.run, by_instance)["sentences"] == len(dev.source.lengths)


@pytest.mark.full
def test_a_drafter_that_is_missing(hops, tmp_path):
    train(hops("run", stop__max_steps=1))
    for model, path, whole in (
        ("run/model", "run/model/drafter", "model"),
        ("run/checkpoints/last", "run/drafter", "run"),
    ):
        shutil.rmtree(tmp_path / path)
        message = rf"the model that writes them is missing \(.*{path}\)\. Copy the whole {whole} directory"
        with pytest.raises(DocmtError, match=message):
            Translator(tmp_path / model, device="cpu")
    train(hops("run", stop__max_steps=2), resume=True)
    translated(tmp_path / "run" / "checkpoints" / "last")
    translated(tmp_path / "run")


@pytest.mark.full
def test_a_drafter_that_is_another(hops, tmp_path):
    train(hops("run", stop__max_steps=1))
    drafter = tmp_path / "run" / "model" / "drafter"
    config = drafter / "config.json"
    values = json.loads(config.read_text())
    values["source_language"], values["target_language"] = values["target_language"], values["source_language"]
    config.write_text(json.dumps(values))
    with pytest.raises(DocmtError, match=r"translates from yy to xx, but .*run.* translates from xx to"):
        Translator(tmp_path / "run", device="cpu")


def test_a_store_without_drafts_is_refused(change, tmp_path):
    with pytest.raises(
        DocmtError, match=r"multihop model reads drafts, but .*store.train has none. Translate the source"
    ):
        train(change(run=tmp_path / "run", **HOPS))
    assert not (tmp_path / "run").exists()
    source_alone = {**HOPS, "model__multihop": MultiHop(sentences=2, side="source")}
    train(change(run=tmp_path / "source", stop__max_steps=1, **source_alone))
    assert not (tmp_path / "source" / "drafter").exists()
    assert translated(tmp_path / "source")[0] is None


@pytest.mark.full
def test_a_run_does_not_go_on_with_other_drafts(hops, prepare_with_drafts, change):
    config = hops("run", stop__max_steps=2, checkpoints__every=1)
    train(config)
    other = prepare_with_drafts(replace(SEARCH, max_length_extra=1.0))
    longer = replace(config, stop=replace(config.stop, max_steps=3))
    with pytest.raises(DocmtError, match=r"the training data in .* differs from that of the run .* \(drafts or"):
        train(replace(longer, store=other.directory), resume=True)
    train(longer, resume=True)


@pytest.mark.full
def test_other_systems_do_not_care_about_drafts_and_say_so(change, store, drafted, tmp_path):
    sentence_config = change(store=drafted.directory, run=tmp_path / "plain", stop__max_steps=1, **SENTENCE)
    train(sentence_config)
    train(replace(sentence_config, store=store.directory, stop=replace(sentence_config.stop, max_steps=2)), resume=True)
    log = (tmp_path / "plain" / "train.log").read_text()
    assert log.count("the store has drafts, which this model does not read\n") == 1


def test_the_drafter_is_named_or_that_of_the_start(hops, change, sentence_run, tmp_path):
    with pytest.raises(DocmtError, match=r"needs another one that writes drafts at translation. Add --initialize-from"):
        train(hops("run", drafter=None, stop__max_steps=1))
    assert not (tmp_path / "run").exists()
    train(hops("one", drafter=None, initialize_from=sentence_run, stop__max_steps=1))
    train(hops("two", drafter=None, initialize_from=tmp_path / "one", stop__max_steps=1))
    for name in ("one", "two"):
        weights = find_drafter(tmp_path / name) / "model.safetensors"
        assert weights.read_bytes() == (sentence_run / "model" / "model.safetensors").read_bytes()
    with pytest.raises(DocmtError, match="drafter is set, but the sentence system reads no drafts"):
        change(drafter=sentence_run, **SENTENCE)


def test_long_drafts_count_as_tokens_and_need_positions(hops, drafted):
    settings = {"model__position_encoding": "learned"}
    longest = max(
        int(lengths.max())
        for name in ("train", "dev")
        for split in [drafted.split(name)]
        for lengths in (split.source.lengths, split.target.lengths, split.drafts.lengths)
    )
    corpus = TrainingCorpus(drafted, hops("run", **settings, model__max_positions=longest + 2))
    drafts = drafted.split("train").drafts
    long = SentenceTokens(
        np.repeat(drafts.tokens[:1], 40 * len(drafts.lengths)), 40 * np.arange(len(drafts.lengths) + 1)
    )
    store, config = copy(drafted.split("train")), hops("run")
    store.drafts = long
    with_long = type(corpus.train)(store, config, corpus.tokenizer.specials)
    instances = with_long.instances
    sentences = instances.last - instances.before
    assert with_long.plan.lengths.tolist() == (42 * sentences).tolist()
    with pytest.raises(DocmtError, match=r"has 42 tokens, but model.max_positions is 41"):
        type(corpus.train)(store, hops("run", **settings, model__max_positions=41), corpus.tokenizer.specials)


@pytest.mark.full
def test_averages_carry_the_drafter(hops, change, sentence_run, tmp_path):
    other_sentence_run = tmp_path / "sentence"
    train(change(run=other_sentence_run, stop__max_steps=1, **SENTENCE))
    train(hops("one", stop__max_steps=1))
    train(hops("two", stop__max_steps=1, seed=5))
    average_models([tmp_path / "one", tmp_path / "two"], tmp_path / "mean")
    assert translated(tmp_path / "mean")[0] == translated(tmp_path / "one")[0]
    ensemble = translated([tmp_path / "one", tmp_path / "two", sentence_run])
    assert ensemble[0] == translated(tmp_path / "one")[0]
    train(hops("other", drafter=other_sentence_run, stop__max_steps=1))
    with pytest.raises(DocmtError, match=r"other reads drafts of another model than .*one"):
        average_models([tmp_path / "one", tmp_path / "other"], tmp_path / "no")
    with pytest.raises(
        DocmtError, match=r"one and .*other cannot form an ensemble: they read drafts of different models"
    ):
        Translator([tmp_path / "one", tmp_path / "other"], device="cpu")
