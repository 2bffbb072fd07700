"""Training on drafts: what is read, resumed and refused; models that carry their drafter; jack-knifing."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs import Killed, assert_equal_runs, kill_before

from docmt.checkpoint.model_directory import find_drafter
from docmt.checkpoint.weights import WEIGHTS_FILE
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, PreparedStore, Words, prepare
from docmt.decoding import SearchConfig, Translator, translate_ids
from docmt.decoding.draft_store import draft_store
from docmt.decoding.drafting import load_drafter, stored_search
from docmt.evaluation import MetricConfig, evaluate_documents
from docmt.experiments import EvaluationConfig
from docmt.experiments.scores import evaluate_run, stored_scores
from docmt.model.systems import Group, MultiHop
from docmt.training import train
from docmt.training.averaging import average_models
from docmt.training.corpus import TrainingCorpus
from docmt.training.jackknife import part_configs, train_parts

SEARCH = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)
HOPS = {"model__system": "multihop", "model__multihop": MultiHop(sentences=2), "model__group": Group()}
SENTENCE = {"model__system": "sentence", "model__group": Group()}


@pytest.fixture
def hops(change, drafted, tmp_path):
    """A function giving the configuration of a multihop training: hops(name, **settings)."""
    return lambda name, **settings: change(run=tmp_path / name, **{"store": drafted.directory, **HOPS, **settings})


def translated(model, sources=(("bo ka", "lu"), ("me",))):
    translator = Translator(model, device="cpu", search=SEARCH)
    documents = [translator.tokenizer.encode_batch(source, "source") for source in sources]
    return translator.drafts(documents), [translator.translate(". ".join(source)) for source in sources]


def test_batches_have_the_drafts_of_their_sentences(hops, drafted, change):
    corpus = TrainingCorpus(drafted, hops("run"))
    assert corpus.fingerprint != TrainingCorpus(drafted, change(**SENTENCE)).fingerprint
    for name, split in (("train", corpus.train), ("dev", corpus.dev)):
        drafts, words = Words(*drafted.drafts.column(name)), drafted.split(name)
        for indices in split.plan.in_order():
            reading = split.batch(indices).reading
            assert reading.references is None
            numbers = [n for i in indices for n in range(split.instances.before[i], split.instances.last[i])]
            for packed, own in (
                (reading.drafts, drafts),
                (reading.source, Words(words.source_tokens, words.source_offsets)),
            ):
                found = packed.tokens.split(packed.sentences.lengths.tolist())
                wanted = [[0, *own.tokens[own.offsets[n] : own.offsets[n + 1]], 2] for n in numbers]
                assert [sentence.tolist() for sentence in found] == wanted


def test_references_are_for_training_alone(hops, drafted):
    corpus = TrainingCorpus(drafted, hops("run", model__multihop=MultiHop(sentences=2, context="references")))
    [indices, *_] = corpus.train.plan.in_order()
    reading = corpus.train.batch(indices).reading
    assert len(reading.references.sentences) == len(reading.drafts.sentences) == len(reading.source.sentences)
    assert not torch.equal(reading.references.tokens, reading.drafts.tokens)
    assert corpus.dev.batch(corpus.dev.plan.in_order()[0]).reading.references is None


@pytest.mark.parametrize("context", ["drafts", "references"])
def test_a_killed_run_resumes_bit_for_bit(hops, monkeypatch, tmp_path, context):
    settings = {
        "model__multihop": MultiHop(sentences=2, context=context),
        "stop__max_steps": 4,
        "checkpoints__every": 2,
    }
    settings |= {"checkpoints__every": 2, "validation__every": 2, "precision": "bfloat16"}
    train(hops("whole", **settings))
    with monkeypatch.context() as patch:
        kill_before(patch, 4)
        with pytest.raises(Killed):
            train(hops("halves", **settings))
    train(hops("halves", **settings), resume=True)
    assert_equal_runs(tmp_path / "whole", tmp_path / "halves")


def test_models_and_checkpoints_have_their_drafter(hops, drafted, monkeypatch, tmp_path):
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
    found = translated(run)
    moved = shutil.copytree(run / "model", tmp_path / "moved")
    shutil.rmtree(run)
    assert translated(moved) == found
    wanted = load_drafter(drafted.drafts.drafter, drafted.tokenizer, "cpu", "float32")
    assert wanted.search == SEARCH
    assert found[0] == drafts == wanted.drafts([drafted.tokenizer.encode_batch(d) for d in (("bo ka", "lu"), ("me",))])
    assert "by the sentence model in `drafter`" in (moved / "README.md").read_text()


def test_a_run_that_has_trained_nothing_takes_the_drafter_of_other_drafts(
    hops, drafted, sentence_run, monkeypatch, tmp_path
):
    store = PreparedStore.open(shutil.copytree(drafted.directory, tmp_path / "store"))
    config = hops("run", store=store.directory, stop__max_steps=1)
    with monkeypatch.context() as patch:
        kill_before(patch, 1)
        with pytest.raises(Killed):
            train(config)
    draft_store(store, sentence_run, replace(SEARCH, beam=1), device="cpu", overwrite=True)
    train(config, resume=True)
    assert stored_search(find_drafter(config.run)) == replace(SEARCH, beam=1)


def test_experiments_evaluate_with_the_drafts_of_the_model(hops, drafted, tmp_path):
    config = hops("run", stop__max_steps=1)
    train(config)
    dev, evaluation = drafted.split("dev"), EvaluationConfig(SEARCH)
    tested = SimpleNamespace(split=lambda name: dev)  # a store whose test split is what is dev here
    evaluate_run(config, tested, evaluation)
    scores = stored_scores(config.run, evaluation)
    translator = Translator(tmp_path / "run", device="cpu", search=SEARCH)
    sources, specials = dev.documents("source"), translator.tokenizer.specials
    drafts = translator.drafts(sources)
    assert drafts == Words(*drafted.drafts.column("dev")).documents(dev.document_offsets)
    found = translate_ids(translator.model, sources, specials, SEARCH, drafts)
    texts = [
        [translator.tokenizer.decode_batch(own, "target") for own in side] for side in (found, dev.documents("target"))
    ]
    assert scores["d_bleu"]["score"] == evaluate_documents(*texts).to_json()["d_bleu"]["score"]
    by_instance = replace(evaluation, metrics=MetricConfig(unit="instance"))
    evaluate_run(config, tested, by_instance)
    assert stored_scores(config.run, by_instance)["sentences"] == len(dev.source_lengths)


def test_a_drafter_that_is_missing(hops, tmp_path):
    train(hops("run", stop__max_steps=1))
    for model, place, whole in (
        ("run/model", "run/model/drafter", "model"),
        ("run/checkpoints/last", "run/drafter", "run"),
    ):
        shutil.rmtree(tmp_path / place)
        message = rf"reads drafts, but the model that writes them is missing \(.*{place}\): copy the {whole} directory"
        with pytest.raises(DocmtError, match=message):
            Translator(tmp_path / model, device="cpu")
    train(hops("run", stop__max_steps=2), resume=True)
    translated(tmp_path / "run" / "checkpoints" / "last")
    translated(tmp_path / "run")


def test_a_drafter_that_is_another(hops, tmp_path):
    train(hops("run", stop__max_steps=1))
    drafter = tmp_path / "run" / "model" / "drafter"
    config = drafter / "config.json"
    values = json.loads(config.read_text())
    values["source_language"], values["target_language"] = values["target_language"], values["source_language"]
    config.write_text(json.dumps(values))
    with pytest.raises(
        DocmtError, match=r"translates from yy to xx, but .*run.*, which is to read its drafts, from xx to"
    ):
        Translator(tmp_path / "run", device="cpu")
    (drafter / "drafting.json").unlink()
    values["source_language"], values["target_language"] = "xx", "yy"
    config.write_text(json.dumps(values))
    with pytest.raises(DocmtError, match=r"drafting.json is missing, which says how drafts are searched for"):
        Translator(tmp_path / "run", device="cpu")


def test_a_store_without_drafts_is_refused(change, tmp_path):
    with pytest.raises(DocmtError, match=r"multihop system reads drafts, but the store .* has none: run `docmt draft"):
        train(change(run=tmp_path / "run", **HOPS))
    assert not (tmp_path / "run").exists()
    source_alone = {**HOPS, "model__multihop": MultiHop(sentences=2, side="source")}
    train(change(run=tmp_path / "source", stop__max_steps=1, **source_alone))
    assert not (tmp_path / "source" / "drafter").exists()
    assert translated(tmp_path / "source")[0] is None


def test_a_run_does_not_go_on_with_other_drafts(hops, drafted, sentence_run, change, tmp_path):
    copy = shutil.copytree(drafted.directory, tmp_path / "copy")
    config = hops("run", store=copy, stop__max_steps=2, checkpoints__every=1)
    train(config)
    draft_store(PreparedStore.open(copy), sentence_run, replace(SEARCH, beam=1), device="cpu", overwrite=True)
    longer = replace(config, stop=replace(config.stop, max_steps=3))
    with pytest.raises(DocmtError, match=r"the training data in .* is not what the run .* was started with"):
        train(longer, resume=True)
    plain = change(store=copy, run=tmp_path / "plain", stop__max_steps=1, **SENTENCE)
    train(plain)
    shutil.rmtree(copy / "drafts")
    train(replace(plain, stop=replace(plain.stop, max_steps=2)), resume=True)
    with pytest.raises(DocmtError, match="has none: run `docmt draft"):
        train(longer, resume=True)
    shutil.copytree(drafted.directory / "drafts", copy / "drafts")
    train(longer, resume=True)


def test_long_drafts_count_as_tokens_and_need_positions(hops, drafted):
    settings = {"model__position_encoding": "learned"}
    longest = max(
        int(lengths.max())
        for name in ("train", "dev")
        for split in [drafted.split(name)]
        for lengths in (split.source_lengths, split.target_lengths, np.diff(drafted.drafts.column(name).offsets))
    )
    corpus = TrainingCorpus(drafted, hops("run", **settings, model__max_positions=longest + 2))
    drafts = Words(*drafted.drafts.column("train"))
    long = Words(np.repeat(drafts.tokens[:1], 40 * len(drafts.lengths)), 40 * np.arange(len(drafts.lengths) + 1))
    store, config = drafted.split("train"), hops("run")
    with_long = type(corpus.train)(store, config, corpus.specials, drafts=long)
    sentences = with_long.instances.last - with_long.instances.before
    assert with_long.plan._lengths == (42 * sentences).tolist()
    with pytest.raises(DocmtError, match=r"has 42 tokens, but model.max_positions is 41"):
        type(corpus.train)(store, hops("run", **settings, model__max_positions=41), corpus.specials, drafts=long)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_drafter_is_told_before_training(hops, drafted, tmp_path, damage):
    copy = shutil.copytree(drafted.directory, tmp_path / "copy")
    weights = PreparedStore.open(copy).drafts.drafter / WEIGHTS_FILE
    if damage == "changed":
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    else:
        weights.unlink()
    with pytest.raises(DocmtError, match=r"drafter/model.safetensors is missing or damaged .*again with --overwrite"):
        train(hops("run", store=copy, stop__max_steps=1))
    assert not (tmp_path / "run").exists()


def test_averages_carry_the_drafter(hops, drafted, sentence_run, tmp_path):
    train(hops("one", stop__max_steps=1))
    train(hops("two", stop__max_steps=1, seed=5))
    average_models([tmp_path / "one", tmp_path / "two"], tmp_path / "mean")
    assert translated(tmp_path / "mean")[0] == translated(tmp_path / "one")[0]
    ensemble = translated([tmp_path / "one", tmp_path / "two", sentence_run])
    assert ensemble[0] == translated(tmp_path / "one")[0]
    copy = shutil.copytree(drafted.directory, tmp_path / "copy")
    draft_store(PreparedStore.open(copy), sentence_run, replace(SEARCH, beam=1), device="cpu", overwrite=True)
    train(hops("other", store=copy, stop__max_steps=1))
    with pytest.raises(DocmtError, match=r"other reads drafts of another model than .*one"):
        average_models([tmp_path / "one", tmp_path / "other"], tmp_path / "no")
    with pytest.raises(
        DocmtError, match=r"one and .*other cannot translate as one: they read drafts of different models"
    ):
        Translator([tmp_path / "one", tmp_path / "other"], device="cpu")


def documents_of(split):
    return sorted(set(split.instances.document.tolist()))


def test_a_part_is_left_out(change, store):
    whole = TrainingCorpus(store, change())
    for number in (1, 2, 3):
        part = TrainingCorpus(store, change(batches__leave_out=f"{number}/3"))
        assert documents_of(part.train) == [d for d in documents_of(whole.train) if d % 3 != number - 1]
        split = store.split("train")
        numbers = [n for d in documents_of(part.train) for n in range(*split.document_offsets[d : d + 2])]
        tokens = (int(lengths[numbers].sum()) for lengths in (split.source_lengths, split.target_lengths))
        assert part.train.size == (16, len(numbers), *tokens)
        batches = [part.train.batch(indices) for indices in part.train.plan.epoch(0)]
        assert sum(len(batch.reading.target.sentences) for batch in batches) == len(numbers)
        assert sum(batch.tokens for batch in batches) == sum(map(part.train.label_tokens, part.train.plan.epoch(0)))
        assert documents_of(part.dev) == documents_of(whole.dev)
    with pytest.raises(
        DocmtError, match=r"leave_out is 1/25, but .* gives 24 documents to train on: choose fewer parts"
    ):
        TrainingCorpus(store, change(batches__leave_out="1/25"))
    with pytest.raises(DocmtError, match=r"batches.leave_out is '1/0': give the number of a part"):
        change(batches__leave_out="1/0")


def test_another_part_is_another_training(change, tmp_path):
    train(change(batches__leave_out="1/2", stop__max_steps=1))
    with pytest.raises(DocmtError, match=r"batches.leave_out is '2/2' but was '1/2'"):
        train(change(batches__leave_out="2/2", stop__max_steps=2), resume=True)


def test_jackknifed_models_never_saw_what_they_draft(store, sentence_run, tmp_path, monkeypatch):
    store = PreparedStore.open(shutil.copytree(store.directory, tmp_path / "store"))
    configs = part_configs(sentence_run, store, 3, tmp_path / "parts", "cpu")
    with monkeypatch.context() as patch:
        kill_before(patch, 2)
        with pytest.raises(Killed):
            train_parts(configs)
    told = []
    assert train_parts(configs, told.append)
    assert [line.split()[3] for line in told] == ["1/3", "2/3", "3/3"]
    monkeypatch.setattr("docmt.training.jackknife.train", None)
    assert train_parts(configs)  # finished ones are used as they are
    draft_store(store, sentence_run, SEARCH, parts=[config.run for config in configs], device="cpu")
    documents = store.split("train").documents("source")
    drafts = Words(*store.drafts.column("train")).documents(store.split("train").document_offsets)
    for number, config in enumerate(configs):
        seen = documents_of(TrainingCorpus(store, config).train)
        own = [document for document in range(len(documents)) if document not in seen]
        assert own == list(range(number, len(documents), 3))
        drafter = load_drafter(config.run, store.tokenizer, "cpu", "float32", SEARCH)
        assert drafter.drafts([documents[d] for d in own]) == [drafts[d] for d in own]
    carried = (store.drafts.drafter / WEIGHTS_FILE).read_bytes()
    assert carried == (sentence_run / "model" / WEIGHTS_FILE).read_bytes()


def test_parts_of_another_store_are_not_used(store, sentence_run, tmp_path):
    [config, _] = part_configs(sentence_run, store, 2, tmp_path / "parts", "cpu")
    assert train_parts([config])
    corpora = store.directory.parent
    files = {"train": [corpora / "dev.jsonl"], "dev": [corpora / "dev.jsonl"]}
    other = prepare(PrepareConfig(tmp_path / "other", tokenizer=str(store.directory / "tokenizer"), **files))
    [config, _] = part_configs(sentence_run, other, 2, tmp_path / "parts", "cpu")
    with pytest.raises(DocmtError, match=r"part-1-of-2 was trained on other data than the store .*other, so that"):
        train_parts([config])


def test_the_recipe_of_the_run_is_that_of_the_parts(store, sentence_run, tiny_config):
    configs = part_configs(sentence_run, store, 2)
    folder = sentence_run.parent / "sentence-jackknife"
    assert [config.run for config in configs] == [folder / "part-1-of-2", folder / "part-2-of-2"]
    for config in configs:
        assert config.batches.batch_tokens == tiny_config.batches.batch_tokens
        assert (config.model.system, config.stop.max_steps, config.seed) == ("sentence", 3, tiny_config.seed)


def test_parts_that_cannot_be_trained(store, sentence_run, change, tmp_path):
    with pytest.raises(DocmtError, match=r"model is no run directory \(recipe.yaml is missing\): give the run"):
        part_configs(sentence_run / "model", store, 2)
    train(change(run=tmp_path / "part", batches__leave_out="1/2", stop__max_steps=1, **SENTENCE))
    with pytest.raises(DocmtError, match=r"was itself trained without a part \(1/2\)"):
        part_configs(tmp_path / "part", store, 2)
    copy = shutil.copytree(sentence_run, tmp_path / "several")
    recipe = (copy / "recipe.yaml").read_text()
    (copy / "recipe.yaml").write_text(recipe.replace("devices: 1", "devices: 2"))
    with pytest.raises(DocmtError, match=r"trained by 2 processes: train the parts with `docmt train .*leave_out 1/2`"):
        part_configs(copy, store, 2)
    [config, _] = part_configs(sentence_run, store, 2, tmp_path / "parts")
    train(replace(config, seed=9, stop=replace(config.stop, max_steps=1)))
    with pytest.raises(DocmtError, match="cannot be resumed with another configuration: seed"):
        train_parts([config])
