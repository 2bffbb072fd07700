"""docmt score: what an output line or record belongs to."""

import json

import pytest
from commands import call, fails
from tiny_model import save_tiny_model

import docmt
from docmt import Document


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("score") / "model", system="context")


def write(path, *documents):
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def test_pairs_with_an_empty_side_keep_their_place(model, tmp_path):
    source, target = ["a few words", "more words", "", "few a"], ["words", "", "", "more"]
    corpus = write(tmp_path / "c.jsonl", {"id": "c", "source": source, "target": target})
    expected = docmt.Translator(model).score(Document.from_sentences(source), Document.from_sentences(target))
    outcome = call("score", model, corpus, "--format", "jsonl")
    assert outcome.status == 0, outcome.err
    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert [record["sentence"] for record in records] == [1, 2, 3, 4]
    assert [record["score"] for record in records] == pytest.approx([each.score for each in expected.sentences])
    assert len(call("score", model, corpus).out.splitlines()) == 4


def test_documents_in_another_order_are_refused(model, tmp_path):
    first, second = ({"id": name, "source": [text], "target": [text]} for name, text in (("a", "few"), ("b", "more")))
    source, target = write(tmp_path / "s.jsonl", first, second), write(tmp_path / "t.jsonl", second, first)
    fails("score", model, source, target, message="document 2 is 'b' in .*s.jsonl but 'a' in .*t.jsonl. Give the same")


def test_failed_sentences_are_told(model, tmp_path):
    rows = [{"document": "1", "source": "a few", "target": "words"}, {"document": "1", "source": "more", "error": "no"}]
    outcome = call("score", model, write(tmp_path / "c.jsonl", *rows))
    assert outcome.status == 0 and len(outcome.out.splitlines()) == 2
    assert "1 x sentence not translated (error), scored as an empty translation" in outcome.err
