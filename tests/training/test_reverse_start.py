"""What reads target text starts from a sentence model of the other direction."""

from dataclasses import replace

import pytest
import torch

from docmt.checkpoint.model_directory import load_model
from docmt.core.errors import DocmtError
from docmt.model import TranslationModel
from docmt.model.systems import MultiHop
from docmt.training import train
from docmt.training.finetune import initialize_from
from docmt.training.training_corpus import fit_model_config


@pytest.fixture(scope="session")
def two_models(store, tmp_path_factory, tiny_config):
    """Run directories of two sentence models, the second of the other direction."""
    folder = tmp_path_factory.mktemp("both")
    model = replace(tiny_config.model, system="sentence", group=type(tiny_config.model.group)())
    for name, seed in (("forward", 1), ("reverse", 2)):
        stop = replace(tiny_config.stop, max_steps=2)
        reverse = name == "reverse"
        train(replace(tiny_config, run=folder / name, model=model, seed=seed, stop=stop, reverse=reverse))
    return folder / "forward", folder / "reverse"


def multihop(change, store, **options):
    settings = {"model__system": "multihop", "model__multihop": MultiHop(**options)}
    torch.manual_seed(1)
    return TranslationModel(fit_model_config(change(**settings).model, store))


@pytest.mark.parametrize("keys", ["attention", "output"])
def test_each_sentence_encoder_is_that_of_its_direction(change, store, two_models, keys):
    model = multihop(change, store, keys=keys)
    forward, reverse = (load_model(run).state_dict() for run in two_models)
    new = initialize_from(model, two_models[0], store.tokenizer, two_models[1])
    state = model.state_dict()
    for name in state:
        if name.startswith("target_sentences.layers."):
            assert torch.equal(state[name], reverse[name.replace("target_sentences.layers.", "encoder.")])
        elif name.startswith("source_sentences.layers."):
            assert torch.equal(state[name], forward[name.replace("source_sentences.layers.", "encoder.")])
        elif ".hops" in name or ".draft" in name:
            assert name in new
        elif not name.startswith("target_sentences."):
            assert torch.equal(state[name], forward[name]), name
    assert torch.equal(state["target_sentences.embeddings.tokens.weight"], reverse["tokens.weight"])
    assert set(new) == {name for name in state if model.system.initial_weight(name) is None}


def test_without_a_reverse_model_the_forward_model_serves(change, store, two_models):
    model = multihop(change, store)
    forward = load_model(two_models[0]).state_dict()
    initialize_from(model, two_models[0], store.tokenizer)
    state = model.state_dict()
    name = "attention.local.query.weight"
    assert torch.equal(state[f"target_sentences.layers.1.{name}"], forward[f"encoder.1.{name}"])
    assert torch.equal(state["target_sentences.embeddings.tokens.weight"], forward["tokens.weight"])


def test_what_has_no_use_for_a_reverse_model_refuses_it(change, store, two_models):
    for options in (
        {"model__system": "context"},
        {"model__system": "multihop", "model__multihop": MultiHop(side="source")},
    ):
        model = TranslationModel(fit_model_config(change(**options).model, store))
        with pytest.raises(
            DocmtError, match=r"initialize_reverse_from is set, but this \w+ model does not encode target"
        ):
            initialize_from(model, two_models[0], store.tokenizer, two_models[1])


def test_a_reverse_model_must_be_a_sentence_model_of_the_same_sizes(change, store, two_models, tmp_path):
    train(change(run=tmp_path / "context", model__system="context", stop__max_steps=1, reverse=True))
    with pytest.raises(DocmtError, match="is a context model: name a sentence model in initialize_reverse_from"):
        initialize_from(multihop(change, store), two_models[0], store.tokenizer, tmp_path / "context")
    sentence = {"model__system": "sentence", "model__feed_forward": 64}
    train(change(run=tmp_path / "wide", stop__max_steps=1, reverse=True, **sentence))
    with pytest.raises(DocmtError, match=r"model.feed_forward is 32, but 64 in .*wide.* Set the same value"):
        initialize_from(multihop(change, store), two_models[0], store.tokenizer, tmp_path / "wide")


def test_a_model_of_the_same_direction_is_no_reverse_model(change, store, two_models):
    forward = two_models[0]
    with pytest.raises(DocmtError, match=r"forward, which translates from xx to yy as .*forward does: name a model of"):
        initialize_from(multihop(change, store), forward, store.tokenizer, forward)


def test_a_start_from_a_model_of_other_languages_is_told(change, store, two_models, caplog):
    def warnings(*languages):
        caplog.clear()
        initialize_from(multihop(change, store), two_models[0], store.tokenizer, languages=languages)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    assert warnings("xx", "yy") == warnings("xx_Latn", "") == []
    (reverse,) = warnings("yy", "xx")
    told = (
        "forward translates from xx to yy, but this training translates from yy to xx. If that is wrong, change --rev"
    )
    assert told in reverse
    assert warnings("xx", "zz")[0].endswith("from xx to zz. If that is wrong, start from another model")


def test_a_reverse_model_alone_is_no_start(change, two_models):
    with pytest.raises(DocmtError, match="initialize_reverse_from is set but initialize_from is not"):
        change(initialize_reverse_from=two_models[1])
    with pytest.raises(DocmtError, match=r"model.multihop.sentence_encoders is set but initialize_from is not"):
        change(model__system="multihop", model__multihop=MultiHop(sentence_encoders="frozen"))
