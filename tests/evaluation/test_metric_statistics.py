"""TER is sacreBLEU's own; statistics are scored one sum at a time as by sacreBLEU, and many sums at once the same."""

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from docmt.core.errors import DocmtError
from docmt.evaluation import MetricConfig, document_bleu, evaluate_documents
from docmt.evaluation.metrics import bleu_from_sums, chrf_from_sums, compute_bleu, ter_from_sums

WORDS = [
    "the",
    "a",
    "old",
    "new",
    "bridge",
    "river",
    "was",
    "is",
    "not",
    "closed",
    "open",
    "in",
    "May",
    "Monday",
    ".",
    "!",
]
TWINS = {
    "bleu": (lambda sums: compute_bleu(sums).score, bleu_from_sums),
    "chrf": (lambda sums: CHRF()._compute_score_from_stats(sums.tolist()).score, chrf_from_sums),
    "ter": (lambda sums: TER()._compute_score_from_stats(sums.tolist()).score, ter_from_sums),
}


def texts(seed, documents=6):
    """Documents of random sentences of a few words, so that there are matches; the same seed has the same lengths."""
    lengths, words = np.random.default_rng(0), np.random.default_rng(seed)
    sizes = lengths.integers(1, 5, size=documents)
    return [[" ".join(words.choice(WORDS, size=words.integers(3, 12))) for _ in range(size)] for size in sizes]


def flat(documents):
    return [sentence for document in documents for sentence in document]


@pytest.mark.parametrize("references", [1, 2, 3])
def test_ter_is_that_of_sacrebleu_to_the_last_digit(references):
    hypotheses, *sides = (texts(seed) for seed in range(references + 1))
    result = evaluate_documents(
        hypotheses,
        sides[0],
        MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"]),
        more_references=sides[1:],
    )
    metric = TER()
    assert result.ter.score == metric.corpus_score(flat(hypotheses), list(map(flat, sides))).score
    assert result.ter.signature == str(metric.get_signature())
    assert result.ter.lower_is_better and not result.s_bleu.lower_is_better
    assert result.format().splitlines()[4].startswith(f"TER     {result.ter.score:6.2f}  ")
    assert result.to_json()["ter"]["score"] == result.ter.score
    assert evaluate_documents(hypotheses, sides[0]).ter is None


def test_ter_tells_how_far_it_is(monkeypatch, capsys):
    """A part of the sentences at a time, with the same result."""
    hypotheses, references = texts(1, 40), texts(2, 40)
    whole = evaluate_documents(
        hypotheses, references, MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    ).ter
    monkeypatch.setattr("docmt.evaluation.metrics._TER_BATCH", 30)
    monkeypatch.setattr("docmt.core.progress.time.monotonic", iter(range(0, 10_000, 20)).__next__)
    parts = evaluate_documents(
        hypotheses, references, MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    ).ter
    sentences = len(flat(references))
    assert f"TER (sentences): 30 of {sentences} " in capsys.readouterr().err
    assert parts == whole and (parts.statistics == whole.statistics).all() and len(parts.statistics) == sentences


def test_ter_counted_by_hand():
    """One word shifted in the first sentence, one left out in the second: 2 edits of 7 words."""
    result = evaluate_documents(
        [["c a b d", "e f"]], [["a b c d", "e f g"]], MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    )
    assert result.ter.statistics.tolist() == [[1, 4], [1, 3]]
    assert result.ter.score == pytest.approx(200 / 7)


@pytest.mark.parametrize("metric", TWINS)
def test_many_sums_are_scored_as_one_by_one(metric):
    evaluation = evaluate_documents(
        texts(1, 40), texts(2, 40), MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    )
    statistics = {"bleu": evaluation.s_bleu, "chrf": evaluation.chrf, "ter": evaluation.ter}[metric].statistics
    generator = np.random.default_rng(5)
    rows = [statistics, statistics[:0].sum(axis=0)[None]]  # nothing, and sentences with orders that never match
    rows += [generator.integers(0, 4, size=(3, len(statistics))) @ statistics]
    sums = np.concatenate(rows)
    one, many = TWINS[metric]
    assert many(sums) == pytest.approx([one(each) for each in sums], rel=1e-12)
    assert many(sums.astype(float)[None, :, None]).shape == (1, len(sums), 1)
    assert len(set(many(sums).round(3))) > 20


def test_edits_without_any_reference_word():
    sums = np.array([[3.0, 0.0], [0.0, 0.0]])
    assert ter_from_sums(sums).tolist() == [TWINS["ter"][0](each) for each in sums] == [100, 0]


@pytest.mark.parametrize("metric", ["s_bleu", "chrf", "ter", "d_bleu"])
def test_statistics_by_document_are_those_of_its_sentences(metric):
    hypotheses, references = texts(1), texts(2)
    config = MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    whole = getattr(evaluate_documents(hypotheses, references, config), metric)
    summed = whole.by_document(6)
    for number, pair in enumerate(zip(hypotheses, references, strict=True)):
        single = getattr(evaluate_documents(*([side] for side in pair), config), metric)
        assert summed[number].tolist() == single.statistics.sum(axis=0).tolist()
    assert whole.formula(summed.sum(axis=0)) == pytest.approx(whole.score, rel=1e-15)


def test_documents_of_instances_and_without_sentences():
    instances = [[(0, 1), (1, 2)], [], [(0, 1)]]
    sides = [["a b", "c"], [], ["d"]]
    result = evaluate_documents(sides, sides, MetricConfig(unit="instance"), instances)
    assert result.d_bleu.documents.tolist() == result.s_bleu.documents.tolist() == [0, 0, 2]
    assert result.d_bleu.by_document(3)[:, 0].tolist() == [3, 0, 1]


def test_document_bleu_alone():
    hypotheses, references = texts(1), texts(2)
    assert document_bleu(hypotheses, references) == evaluate_documents(hypotheses, references).d_bleu
    sides = [[" ".join(document) for document in side] for side in (hypotheses, references)]
    assert document_bleu(hypotheses, references).score == sacrebleu.corpus_bleu(sides[0], [sides[1]]).score
    with pytest.raises(DocmtError, match="the hypothesis has 5 documents"):
        document_bleu(hypotheses[1:], references)


def test_the_private_part_of_sacrebleu_is_as_it_was():
    """`_extract_corpus_statistics` has no public twin for chrF. If it changes, `evaluation.metrics` must follow."""
    hypotheses, references = ["the old bridge", "closed"], [["the new bridge", "closed"], ["an old bridge", "shut"]]
    bleu, chrf, ter = (m._extract_corpus_statistics(hypotheses, references) for m in (BLEU(), CHRF(), TER()))
    assert bleu == [[3, 3, 3, 1, 0, 0, 3, 2, 1, 0], [1, 1, 1, 0, 0, 0, 1, 0, 0, 0]]
    assert [len(row) for row in chrf] == [18, 18] and chrf[1][:6] == [6, 6, 6, 5, 5, 5]
    assert ter == [[1, 3], [0, 1]]
