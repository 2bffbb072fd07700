"""A tiny model and a corpus for it."""

import pytest
from bulk_jobs import write_corpus
from tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The directory of a model with random weights."""
    return save_tiny_model(tmp_path_factory.mktemp("bulk") / "model")


@pytest.fixture
def corpus(tmp_path):
    """JSONL with texts."""
    return write_corpus(tmp_path)
