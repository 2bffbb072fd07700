"""A tiny model and a corpus for it."""

import pytest
from bulk_jobs import DOCUMENTS, TEXTS, write_rows
from tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The directory of a model with random weights."""
    return save_tiny_model(tmp_path_factory.mktemp("bulk") / "model")


@pytest.fixture
def corpus(tmp_path):
    """JSONL with texts."""
    rows = [{"id": f"d{n}", "text": TEXTS[n % len(TEXTS)], "url": f"u{n}"} for n in range(DOCUMENTS)]
    return write_rows(tmp_path / "corpus.jsonl", rows)
