"""A tiny model to give to the command line, and what it was made of."""

import pytest
from commands import TINY, call

from docmt.synthetic import write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with train, dev and test documents in English and German."""
    folder = tmp_path_factory.mktemp("cli") / "corpus"
    write_corpus(folder, train=200, dev=10, test=6, seed=1)
    return folder


@pytest.fixture(scope="session")
def store(corpus):
    """A prepared store of the corpus."""
    path = corpus.parent / "store"
    sides = {name: (corpus / f"{name}.en", corpus / f"{name}.de") for name in ("train", "dev")}
    outcome = call(
        *("prepare", "--store", path, "--train", *sides["train"], "--dev", *sides["dev"]),
        *("--vocabulary_size", 400, "--source_language", "en", "--target_language", "de"),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.err.startswith("docmt: try: docmt train --store ")
    return path


@pytest.fixture(scope="session")
def run(store):
    """The run directory of a trained tiny model."""
    path = store.parent / "run"
    outcome = call("train", "--data", store, "--run", path, *TINY, "--model.dropout", 0, "--stop.max_steps", 100)
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"100 updates are done; the model is in {path / 'model'}\n"
    return path
