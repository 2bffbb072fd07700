"""Scores by the place of a sentence in its document."""

import json

import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import SignificanceConfig, evaluate_documents, scores_by_position
from docmt.evaluation.significance import BUCKET_NAMES, bucket_numbers, few_documents_notes

FEW = SignificanceConfig(samples=100)
REFERENCES = [
    ["the first cat sat here", "then it slept for a day", "and then another one came", "they met in the end"],
    ["a title of a speech", "many thanks for all of this"],
]
HYPOTHESES = [
    ["the first cat sat here", "then he slept a long day", "and then another one came", "they left"],
    ["a title of a speech", "many thanks for all"],
]


def test_buckets():
    assert BUCKET_NAMES == ("1", "2", "3", "4-6", "7-12", "13+")
    assert bucket_numbers([1, 2, 3, 4, 6, 7, 12, 13, 1000]).tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 5]


def test_each_bucket_is_scored_as_a_corpus_of_its_sentences():
    evaluation = evaluate_documents(HYPOTHESES, REFERENCES)
    scores = scores_by_position({"one": evaluation, "same": evaluation}, FEW)
    assert {name: bucket.sentences for name, bucket in scores.buckets.items()} == {"1": 2, "2": 2, "3": 1, "4-6": 1}
    for position, bucket in enumerate(scores.buckets.values()):
        pairs = [(h[position], r[position]) for h, r in zip(HYPOTHESES, REFERENCES, strict=True) if position < len(r)]
        corpus_scores = evaluate_documents([[h] for h, _ in pairs], [[r] for _, r in pairs])
        cell = bucket.systems["one"]
        assert (cell["s_bleu"].value, cell["chrf"].value) == pytest.approx(
            (corpus_scores.s_bleu.score, corpus_scores.chrf.score)
        )
        assert bucket.systems["same"] == cell
    first = scores.buckets["1"].systems["one"]["s_bleu"]
    assert (first.low, first.value, first.high) == pytest.approx((100, 100, 100))
    assert scores.buckets["3"].systems["one"]["s_bleu"].low is None, "a single document has no interval"


def test_the_table_and_json():
    scores = scores_by_position({"one": evaluate_documents(HYPOTHESES, REFERENCES)}, FEW)
    lines = scores.format().splitlines()
    assert lines[0].split() == ["sentence", "metric", "count", "one"]
    assert lines[1].split()[:4] == ["1", "s-BLEU", "2", "100.00"]
    assert len(lines) == 1 + 2 * 4 + 1
    assert lines[-1].startswith("with fewer than 6 documents no difference can be significant, whatever its interval")
    written = json.loads(json.dumps(scores.to_json()))
    assert (written["1"]["sentences"], written["3"]["documents"]) == (2, 1)
    assert written["1"]["systems"]["one"]["chrf"]["value"] == pytest.approx(100)


def test_few_documents_of_a_part_have_a_note():
    (note,) = few_documents_notes(7, {"3": 5, "4-6": 2, "7-12": 6, "13+": 1})  # a single one has no interval
    assert note.startswith("with fewer than 6 documents (3, 4-6) no difference can be significant")
    assert few_documents_notes(7, {"3": 6}) == []


def test_systems_without_scores_of_sentences():
    other_counts = evaluate_documents([["one sentence only"], HYPOTHESES[1]], REFERENCES)
    with pytest.raises(DocmtError, match="joined has no scores of sentences, so none by position: 1 of 2 documents"):
        scores_by_position({"joined": other_counts})
