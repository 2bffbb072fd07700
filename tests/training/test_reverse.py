"""Training the model of the other direction from the same store."""

import json
from dataclasses import replace

import numpy as np
import pytest
import runs

from docmt.checkpoint.model_directory import load_languages
from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, prepare
from docmt.data.store import format_statistics
from docmt.model.systems import Group
from docmt.model.systems.base import ContextSpec
from docmt.text import Tokenizer
from docmt.training import train

SIDES = ("source", "target")


@pytest.fixture(scope="module")
def exchanged(store, tmp_path_factory):
    """A store made of the same corpus with its sides exchanged, with the same tokenizer."""
    folder = tmp_path_factory.mktemp("exchanged")
    splits = {}
    for name in store.splits:
        split, path = store.split(name), folder / f"{name}.jsonl"
        documents = zip(
            split.document_ids,
            *([store.tokenizer.decode_batch(document) for document in split.documents(side)] for side in SIDES),
            strict=True,
        )
        lines = [{"id": id, "source": target, "target": source} for id, source, target in documents]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        splits[name] = [path]
    settings = {"source_language": "yy", "target_language": "xx", "tokenizer": str(store.directory / "tokenizer")}
    return prepare(PrepareConfig(store=folder / "store", **settings, **splits))


def test_a_reversed_store_is_that_of_the_exchanged_corpus(store, exchanged):
    reversed_store = store.reversed()
    assert format_statistics(reversed_store.statistics) == format_statistics(exchanged.statistics)
    for name in store.splits:
        for side in SIDES:
            assert reversed_store.split(name).documents(side) == exchanged.split(name).documents(side)
            lengths = [getattr(each.split(name), side).lengths for each in (reversed_store, exchanged)]
            assert np.array_equal(*lengths)
    back = reversed_store.reversed()
    assert back.statistics == store.statistics
    assert back.split("dev").documents("source") == store.split("dev").documents("source")


@pytest.mark.parametrize("best_by", ["loss", pytest.param("d_bleu", marks=pytest.mark.full)])
def test_a_reversed_training_is_that_on_the_exchanged_corpus(change, exchanged, tmp_path, best_by):
    settings = {"validation__best_by": best_by, "stop__max_steps": 6}
    train(change(reverse=True, run=tmp_path / "reversed", **settings))
    train(change(store=exchanged.directory, run=tmp_path / "exchanged", **settings))
    runs.assert_equal_runs(tmp_path / "reversed", tmp_path / "exchanged")
    model = tmp_path / "reversed" / "model"
    assert load_languages(model) == load_languages(tmp_path / "exchanged" / "model") == ("yy", "xx")
    assert ", target to source" in (model / "README.md").read_text()
    assert ", target to source: train 24 documents" in (tmp_path / "reversed" / "train.log").read_text()


@pytest.mark.full
def test_only_the_same_direction_is_resumed(change, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(runs.Killed):
        runs.kill_before(patch, 5)
        train(change(reverse=True))
    with pytest.raises(DocmtError, match="reverse is False but was True"):
        train(change(), resume=True)
    train(change(reverse=True), resume=True)
    assert (change().run / "model").exists()


@pytest.mark.parametrize(
    ("name", "value", "difference"),
    [("languages", ("xx", "yy"), "rules"), ("shares_vocabulary", False, "vocabularies")],
)
def test_tokenizers_with_two_sides_are_refused(config, monkeypatch, name, value, difference):
    monkeypatch.setattr(Tokenizer, name, property(lambda self: value))
    with pytest.raises(
        DocmtError, match=f"cannot be reversed: its bpe tokenizer has separate {difference} for source and"
    ):
        train(replace(config, reverse=True))
    assert not config.run.exists()


def test_systems_that_read_drafts_are_refused(config, monkeypatch):
    monkeypatch.setattr(Group, "context_spec", lambda self: ContextSpec(drafts=True))
    with pytest.raises(DocmtError, match="reverse is true, but the group system reads drafts, which are translations"):
        replace(config, reverse=True)
