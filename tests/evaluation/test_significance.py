"""The tests of significance: against sacreBLEU's own, against each text scored anew, and counted by hand."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from docmt.core.errors import DocmtError
from docmt.evaluation import MetricConfig, SignificanceConfig, compare, evaluate_documents
from docmt.evaluation.significance import (
    Interval,
    bootstrap,
    compare_statistics,
    count_exchange_signs,
    randomization,
    sampled_p_value,
    sign_p_value,
)

METRICS = {"s_bleu": BLEU, "chrf": CHRF, "chrf_pp": partial(CHRF, word_order=2), "ter": TER}
WITH_TER = MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])


def mean(sums):
    """A metric that can be computed by hand: points per segment."""
    return sums[..., 0] / sums[..., 1]


def points(*systems):
    """[S, G, 2], the statistics of systems that have these points in their segments."""
    return np.stack([np.array([[point, 1] for point in system]) for system in systems])


def corpora(seed, documents=12, quality=(0.8, 0.75)):
    """References, and hypotheses that keep each of their words with these chances."""
    random = np.random.default_rng(seed)
    vocabulary = np.array([f"word{number}" for number in range(60)])
    sizes = random.integers(2, 7, size=documents)
    sides = [[[list(random.choice(vocabulary, size=random.integers(5, 14))) for _ in range(n)] for n in sizes]]
    for chance in quality:
        noisy = [
            [[word if random.random() < chance else str(random.choice(vocabulary)) for word in s] for s in document]
            for document in sides[0]
        ]
        sides.append(noisy)
    return [[[" ".join(sentence) for sentence in document] for document in side] for side in sides]


def flat(documents):
    return [sentence for document in documents for sentence in document]


def evaluations(seed=1, config=WITH_TER, **options):
    references, *systems = corpora(seed, **options)
    return {name: evaluate_documents(system, references, config) for name, system in zip("abcd", systems, strict=False)}


@pytest.mark.parametrize(("test", "name_in_sacrebleu"), [("bootstrap", "bs"), ("randomization", "ar")])
@pytest.mark.parametrize("seed", [1, 2])
def test_over_sentences_the_numbers_are_those_of_sacrebleu(test, name_in_sacrebleu, seed, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    references, *systems = corpora(seed, quality=(0.8, 0.78, 0.7))
    named = [(name, flat(outcome)) for name, outcome in zip("abc", systems, strict=True)]
    judge = PairedTest(
        named, {name: kind() for name, kind in METRICS.items()}, [flat(references)], name_in_sacrebleu, 300, 300
    )
    reference = judge()[1]
    config = SignificanceConfig(test=test, resample="sentences", samples=300, seed=77)
    metrics = MetricConfig(names=["s-bleu", "d-bleu", "chrf", "chrf++", "d-chrf", "ter"])
    systems = evaluations(seed, metrics, quality=(0.8, 0.78, 0.7))
    comparison = compare(systems, config)
    for key, name in {"s_bleu": "BLEU", "chrf": "chrF2", "chrf_pp": "chrF2++", "ter": "TER"}.items():
        for number, (outcome, expected) in enumerate(zip(comparison.outcomes[key], reference[name], strict=True)):
            if number:
                p_value = outcome.difference.p_value
                if (test, key) == ("randomization", "ter"):
                    # Whole edits: many samples differ by just as much as the systems, and sacreBLEU passes them over.
                    pair = np.stack([systems[each].ter.statistics for each in ("a", "abc"[number])])
                    samples = randomization(pair, systems["a"].ter.formula, 300, 77)[0, 1]
                    observed = abs(outcome.difference.value)
                    assert p_value == sampled_p_value(samples, observed)
                    p_value = sampled_p_value(samples, observed + 1e-6)
                assert p_value == expected.p_value
                assert outcome.difference.value == pytest.approx(expected.score - reference[name][0].score, abs=1e-9)
            if number == 0 or test == "bootstrap":  # with --paired-ar systems are drawn with other random numbers
                assert outcome.interval.mean == pytest.approx(expected.mean, rel=1e-6)
                assert outcome.interval.half_width == pytest.approx(expected.ci, rel=1e-5)
    p_values = [outcome.difference.p_value for outcomes in comparison.outcomes.values() for outcome in outcomes[1:]]
    assert min(p_values) < 0.05 < max(p_values)


@pytest.mark.parametrize("work", [lambda *a: bootstrap(*a)[1], lambda *a: randomization(*a)[0, 1]])
def test_memory_is_bounded_and_changes_nothing(work, monkeypatch):
    statistics = np.random.default_rng(3).integers(0, 9, size=(2, 7, 2)) + 1.0
    whole = work(statistics, mean, 1000, 5)
    sizes = []

    def formula(sums):
        sizes.append(sums.shape[-2])
        return mean(sums)

    monkeypatch.setattr("docmt.evaluation.significance._MAX_WEIGHTS", 7 * 100)
    assert work(statistics, formula, 1000, 5).tolist() == whole.tolist()
    assert set(sizes) == {96, 1000 % 96}


def test_bootstrap_by_hand():
    """Of two segments with 0 and 1 points a sample has 0, 1 (twice as often) or 2 in total; c has 2 more in each."""
    scores = bootstrap(points([0, 1], [2, 3]).astype(float), mean, 4000, 1)
    values, counts = np.unique(scores[0], return_counts=True)
    assert values.tolist() == [0, 0.5, 1]
    assert counts / 4000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    assert (scores[1] - scores[0]).tolist() == [2] * 4000


def test_randomization_by_hand():
    """Three segments, each one point better: all three heads or tails, a quarter of the tosses, differ by a point."""
    differences = randomization(points([0, 0, 0], [1, 1, 1]).astype(float), mean, 4000, 1)[0, 1]
    values, counts = np.unique(differences.round(9), return_counts=True)
    assert values == pytest.approx([1 / 3, 1])
    assert counts / 4000 == pytest.approx([0.75, 0.25], abs=0.03)
    tosses = np.random.default_rng(1).integers(2, size=(4000, 3), dtype=bool)
    assert counts[1] == (tosses.all(axis=1) | ~tosses.any(axis=1)).sum()
    config = SignificanceConfig(samples=4000, seed=1)
    outcome = compare_statistics(points([0, 0, 0], [1, 1, 1]), mean, config)[1]
    assert outcome.difference.p_value == (counts[1] + 1) / 4001


def test_p_values_by_hand():
    assert sampled_p_value(np.array([1.0, 2.0, 3.0, 4.0]), 3.0) == 3 / 5  # 3, 4 and the observation itself
    assert sampled_p_value(np.array([1.0, 3.0 - 1e-12]), 3.0) == 2 / 3
    interval = Interval.from_samples(np.arange(40.0)[::-1])
    assert (interval.low, interval.high, interval.mean, interval.half_width) == (1, 38, 19.5, 18.5)


@pytest.mark.parametrize(
    ("better", "worse", "chance"),
    [
        (8, 2, 2 * (1 + 10 + 45) / 2**10),
        (2, 8, 2 * (1 + 10 + 45) / 2**10),
        (6, 0, 2 / 2**6),
        (0, 5, 2 / 2**5),
        (3, 3, 1),
        (1, 0, 1),
        (0, 0, 1),
    ],
)
def test_the_sign_test_by_hand(better, worse, chance):
    assert sign_p_value(better, worse) == pytest.approx(chance, rel=1e-12)


@pytest.mark.full
def test_the_sign_test_of_many_segments():
    """The normal distribution with correction for continuity: (|1000 - 900| - 1) / sqrt(1900) = 2.271 deviations."""
    assert sign_p_value(1000, 900) == pytest.approx(0.0231, abs=2e-4)
    assert sign_p_value(60_000, 50_000) < 1e-190


def test_exchanged_segments_by_hand():
    """The second is better in segments 1 and 2, worse in 3, and equal in 4 (by points that lie elsewhere)."""
    pair = points([1, 1, 1, 1], [2, 3, 0, 1])
    assert count_exchange_signs(pair, mean) == (2, 1)
    assert count_exchange_signs(pair, mean, lower_is_better=True) == (1, 2)
    difference = compare_statistics(pair, mean, SignificanceConfig(test="sign"))[1].difference
    assert (difference.segments_better, difference.segments_worse) == (2, 1)
    assert (difference.p_value, difference.value) == (1, 0.5)


@pytest.mark.parametrize("resample", ["sentences", "documents"])
def test_exchanged_segments_are_those_of_the_texts(resample):
    """Collins et al. (2005): the baseline with one translation of the other system, scored anew by sacreBLEU."""
    references, one, other = corpora(4)
    if resample == "documents":
        references, one, other = ([" ".join(document) for document in side] for side in (references, one, other))
    else:
        references, one, other = map(flat, (references, one, other))
    whole = sacrebleu.corpus_bleu(one, [references]).score
    changes = [
        sacrebleu.corpus_bleu([*one[:i], other[i], *one[i + 1 :]], [references]).score - whole for i in range(len(one))
    ]
    key = "d_bleu" if resample == "documents" else "s_bleu"
    config = SignificanceConfig(test="sign", resample=resample)
    difference = compare(evaluations(4), config).outcomes[key][1].difference
    better, worse = (sum(sign * change > 1e-9 for change in changes) for sign in (1, -1))
    assert (difference.segments_better, difference.segments_worse) == (better, worse) and min(better, worse) > 0
    assert difference.p_value == sign_p_value(better, worse)


@pytest.mark.parametrize("test", ["randomization", "bootstrap", "sign"])
def test_equal_systems_do_not_differ(test):
    references, one, _ = corpora(1)
    same = evaluate_documents(one, references)
    comparison = compare({"a": same, "b": same}, SignificanceConfig(test=test, samples=100))
    assert {outcomes[1].difference.p_value for outcomes in comparison.outcomes.values()} == {1}
    assert "*" not in comparison.format().splitlines()[2]


def test_documents_are_drawn_whole():
    """With the documents as sentences, resampling sentences says what resampling documents does."""
    references, one, other = corpora(5)
    by_document = compare(
        {name: evaluate_documents(hypotheses, references) for name, hypotheses in (("a", one), ("b", other))},
        SignificanceConfig(),
    )
    merged = [[[" ".join(document)] for document in side] for side in (references, one, other)]
    as_sentences = compare(
        {name: evaluate_documents(hypotheses, merged[0]) for name, hypotheses in (("a", merged[1]), ("b", merged[2]))},
        SignificanceConfig(resample="sentences"),
    )
    assert by_document.outcomes["d_bleu"] == as_sentences.outcomes["s_bleu"] == as_sentences.outcomes["d_bleu"]
    assert by_document.outcomes["d_chrf"] == as_sentences.outcomes["chrf"]
    assert by_document.outcomes["s_bleu"] != as_sentences.outcomes["s_bleu"]
    assert by_document.segments("s_bleu") == by_document.segments("d_bleu") == "12 documents"
    assert (
        compare(evaluations(5), SignificanceConfig(resample="sentences")).segments("ter")
        == f"{len(flat(one))} sentences"
    )


def test_instances_of_different_models_are_compared_by_document():
    references, one, other = corpora(6)
    config = MetricConfig(unit="instance")
    halves = [[(0, 1), (1, len(document))] for document in references]
    whole = [[(0, len(document))] for document in references]
    systems = {
        "a": evaluate_documents(one, references, config, halves),
        "b": evaluate_documents(other, references, config, whole),
    }
    outcomes = compare(systems).outcomes["d_bleu"]
    assert systems["a"].d_bleu.segments == 24 and outcomes[1].difference.value == pytest.approx(
        systems["b"].d_bleu.score - systems["a"].d_bleu.score
    )


def test_a_better_system_is_found_and_its_numbers_agree():
    systems = evaluations(7, quality=(0.6, 0.8, 0.6))
    comparison = compare(systems)
    for key, outcomes in comparison.outcomes.items():
        better, luck = (outcome.difference for outcome in outcomes[1:])
        scores = [evaluation.metrics[key].score for evaluation in systems.values()]
        assert better.is_significant and better.p_value < 0.001 and not luck.is_significant
        assert (better.value < 0) == (key == "ter")
        assert better.value == pytest.approx(scores[1] - scores[0])
        assert better.interval.low < better.value < better.interval.high
        assert not better.interval.low < 0 < better.interval.high
        assert all(
            outcome.interval.low < score < outcome.interval.high
            for outcome, score in zip(outcomes, scores, strict=True)
        )
    head, first, second, third, *notes = comparison.format().splitlines()
    assert head.split() == ["s-BLEU", "d-BLEU", "chrF", "d-chrF", "TER"]
    half = comparison.outcomes["s_bleu"][1].interval.half_width
    assert second.startswith(f"b  {systems['b'].s_bleu.score:.2f} ± {half:.2f}  p ")
    assert (first.count("p "), first.count("*"), second.count("*"), third.count("p "), third.count("*")) == (
        0,
        0,
        5,
        5,
        0,
    )
    assert notes[0] == f"s-BLEU  {systems['a'].s_bleu.signature}"
    assert (
        "half of the 95 % bootstrap confidence interval over 12 documents; p and * (p < 0.05): against a, " in notes[5]
    )
    assert "against a, paired approximate randomization; 10,000" in notes[5]
    written = json.loads(json.dumps(comparison.to_json()))
    assert [entry["name"] for entry in written["systems"]] == ["a", "b", "c"]
    assert written["systems"][1]["d_bleu"]["score"] == systems["b"].d_bleu.score
    outcome = written["systems"][1]["outcomes"]["ter"]
    assert outcome["difference"]["p_value"] == comparison.outcomes["ter"][1].difference.p_value
    assert written["significance"] == {
        "test": "randomization",
        "resample": "documents",
        "samples": 10000,
        "seed": 12345,
    }
    assert written["resampled"]["ter"] == "12 documents"


def test_markdown():
    systems = evaluations(7, quality=(0.6, 0.8))
    comparison = compare({"a|b_c": systems["a"], "*": systems["b"]}, SignificanceConfig(resample="sentences"))
    lines = comparison.to_markdown().splitlines()
    assert lines[:2] == ["|  | s-BLEU | d-BLEU | chrF | d-chrF | TER |", "| --- | --- | --- | --- | --- | --- |"]
    assert lines[2].startswith(r"| a\|b\_c | ") and lines[3].startswith(r"| \* | ")
    assert [line.replace("\\|", "").count("|") for line in lines[:4]] == [7] * 4
    assert lines[3].count(r"p <0.0001\*") + lines[3].count("p 0.0") >= 5
    assert "(d-BLEU, d-chrF: 12 documents); p and \\* (p < 0.05)" in lines[5]
    assert lines[-1] == f"- TER: `{systems['a'].ter.signature}`"


def test_systems_with_other_signatures_are_named():
    references, one, other = corpora(8)
    systems = {"a": evaluate_documents(one, references), "b": evaluate_documents(other, references)}
    score = systems["b"].s_bleu
    aligned = dataclasses.replace(score, signature="other")
    systems["b"] = dataclasses.replace(systems["b"], metrics={**systems["b"].metrics, "s_bleu": aligned})
    signatures = compare(systems).signatures()
    assert signatures["s_bleu"] == f"{score.signature}; b: other" and ";" not in signatures["chrf"]


@pytest.mark.parametrize("undefined", ["a", "b"])
def test_a_system_without_sentence_scores(undefined):
    references, one, other = corpora(8)
    texts = {"a": one, "b": other, "c": one}
    texts[undefined] = [[" ".join(document)] for document in texts[undefined]]
    systems = {name: evaluate_documents(hypotheses, references) for name, hypotheses in texts.items()}
    comparison = compare(systems)
    rows = dict(zip("abc", comparison.rows()[1:], strict=True))
    assert rows[undefined][1] == rows[undefined][3] == "-" and "±" in rows[undefined][2]
    other_outcome = comparison.outcomes["s_bleu"]["abc".index("c")]
    assert (other_outcome.difference is None) == (undefined == "a") and other_outcome.interval.half_width > 0
    assert comparison.outcomes["d_bleu"][2].difference is not None
    assert f"{undefined}: s-BLEU and chrF are not defined: 12 of 12 documents differ" in comparison.format()
    assert comparison.signatures()["s_bleu"] == systems["c"].s_bleu.signature


@pytest.mark.parametrize(
    ("test", "documents", "has_note"), [("sign", 5, True), ("sign", 6, False), ("bootstrap", 5, False)]
)
def test_too_few_documents_for_any_significance(test, documents, has_note):
    comparison = compare(evaluations(9, documents=documents), SignificanceConfig(test=test))
    assert ("fewer than 6 documents no difference can be significant" in comparison.format()) == has_note


IN_DOCUMENTS = "with fewer than 6 documents no difference of d-BLEU and d-chrF"


@pytest.mark.parametrize(
    ("test", "documents", "note"),
    [("sign", 5, IN_DOCUMENTS), ("randomization", 1, IN_DOCUMENTS), ("randomization", 6, None), ("bootstrap", 5, None)],
)
def test_too_few_documents_where_sentences_are_resampled(test, documents, note):
    """The metrics over documents have no more segments than before."""
    systems = evaluations(9, documents=documents)
    assert systems["a"].sentences >= 6 or documents == 1
    if documents == 1:
        references, one, other = ([flat(side)] for side in corpora(9))
        systems = {"a": evaluate_documents(one, references), "b": evaluate_documents(other, references)}
    notes = compare(systems, SignificanceConfig(test=test, resample="sentences", samples=100)).notes()
    assert [note for note in notes if "fewer than" in note] == (
        [f"{note} can be significant: add documents"] if note else []
    )


def test_too_few_sentences_where_these_are_resampled():
    """Five that are all better for one system are not enough, six are."""
    for count in (5, 6):
        references = [[f"one two three four {i}"] for i in range(count)]
        systems = {
            name: evaluate_documents(texts, references)
            for name, texts in (("a", references), ("b", [["one two four"] for _ in references]))
        }
        comparison = compare(systems, SignificanceConfig(resample="sentences"))
        has_note = any(note.startswith("with fewer than 6 sentences no difference of ") for note in comparison.notes())
        assert has_note == (not any(outcomes[1].difference.is_significant for outcomes in comparison.outcomes.values()))
        assert has_note == (count == 5)


def test_a_single_document():
    systems = evaluations(10, documents=1)
    with pytest.raises(
        DocmtError, match=r"cannot resample a single document.*or resample sentences \(--significance.resa"
    ):
        compare(systems)
    comparison = compare(systems, SignificanceConfig(resample="sentences"))
    assert comparison.outcomes["d_bleu"] == [None, None]
    assert "±" not in comparison.rows()[2][2] and "±" in comparison.rows()[2][1]


def test_what_cannot_be_compared():
    systems = evaluations(1)
    with pytest.raises(DocmtError, match=r"^cannot compare 1 system. Give two or more$"):
        compare({"a": systems["a"]})
    for other in (evaluations(2)["b"], evaluations(1, MetricConfig())["b"]):
        with pytest.raises(DocmtError, match=r"^z and a were scored with different references or settings. "):
            compare({"a": systems["a"], "z": other})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test": "t"}, r"significance.test is 't': choose one of randomization, bootstrap, sign"),
        ({"resample": "words"}, r"significance.resample is 'words': choose one of documents, sentences"),
        ({"samples": 0}, r"significance.samples is 0: choose a number from 100 to 1,000,000"),
        ({"seed": -1}, r"significance.seed is -1: choose a number from 0 to"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(DocmtError, match=message):
        SignificanceConfig(**settings)
