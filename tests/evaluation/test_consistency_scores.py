"""LTCR equals a count of single words that translate each other one by one, and its intervals are over documents."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from commands import call

from docmt.evaluation import MetricConfig, SignificanceConfig, compare, evaluate_documents
from docmt.evaluation.source_scores import score_consistency

WORDS = {"Parliament": ["Ratsaal", "Kammer"], "budget": ["Haushalt", "Etat"], "minister": ["Ressortchef", "Minister"]}


def make_documents(seed, share):
    """Return sources and translations with the rarer word in a share of the cases, and what stands for what."""
    generator, sides, uses = random.Random(seed), ([], []), []
    for _ in range(12):
        rows, used = [], defaultdict(list)
        for number in range(6):
            word = generator.choice(list(WORDS))
            other = WORDS[word][generator.random() < share]
            used[word].append(other)
            rows.append((f"The {word} is here {number}.", f"Der {other} ist da {number}."))
        for side, texts in zip(sides, zip(*rows, strict=True), strict=True):
            side.append(list(texts))
        uses.append(used)
    return *sides, uses


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_rates_are_those_of_the_words(share):
    sources, translations, uses = make_documents(1, share)
    scores = score_consistency(sources, translations, translations, ("en", "de"))
    repeated = [words for used in uses for words in used.values() if len(words) > 1]
    most = sum(max(Counter(words).values()) for words in repeated)
    first = sum(words[1:].count(words[0]) for words in repeated)
    total = sum(map(len, repeated))
    assert scores["ltcr"].score == pytest.approx(100 * most / total)
    assert scores["ltcr_1"].score == pytest.approx(100 * first / (total - len(repeated)))
    assert scores["ltcr"].reference == scores["ltcr"].score
    assert scores["ltcr"].signature == f"reference:{scores['ltcr'].score:.2f}|counted:{total}"
    assert scores["ltcr"].statistics.shape == (12, 2)


def test_an_occurrence_without_a_link_counts_if_the_usual_translation_stands_there():
    sources, translations, _ = make_documents(4, 0.0)
    sources.append(
        ["The budget is here.", "The budget is good.", "The budget of the budget is bad.", "It is a budget."]
    )
    translations.append(
        ["Der Etat ist da.", "Der Haushalt ist gut.", "Der Haushalt des Haushalt ist schlecht.", "Es ist."]
    )
    scores = score_consistency(sources, translations, translations, ("en", "de"))
    assert scores["ltcr"].statistics[-1].tolist() == [5, 3], "of five three are the usual one"
    assert scores["ltcr_1"].statistics[-1].tolist() == [4, 0], "none of the others is the first one"
    translations[-1][2] = "Der Haushalt ist fad."
    changed = score_consistency(sources, translations, translations, ("en", "de"))
    assert changed["ltcr"].statistics[-1].tolist() == [5, 2]


def test_a_more_consistent_system_is_found(tmp_path):
    sources, alike, _ = make_documents(2, 0.0)
    mixed = make_documents(2, 0.4)[1]
    for name, side in (("s.en", sources), ("a.de", alike), ("m.de", mixed)):
        (tmp_path / name).write_text("\n".join("".join(f"{line}\n" for line in document) for document in side))
    files = ["--reference", tmp_path / "a.de", "--source", tmp_path / "s.en", "--language", "de", "--samples", 500]
    systems = ["evaluate", "--systems", tmp_path / "a.de", tmp_path / "m.de", "--metrics", "ltcr", "chrf++", "ltcr-1"]
    outcome = call(*systems, *files)
    assert outcome.status == 0, outcome
    head, first, second = [line.split("  ") for line in outcome.out.splitlines()[:3]]
    assert [each.strip() for each in head if each.strip()] == ["LTCR", "chrF++", "LTCR-1"]
    assert "100.00 ± 0.00" in first[1:] and [each[-1] for each in second if each[:2] == "p "] == ["*"] * 3
    assert "over 12 documents" in outcome.out
    missing = call(*systems, "--reference", tmp_path / "a.de")
    assert missing.status == 2 and "--metrics ltcr needs --source" in missing.err


def test_intervals_are_drawn_over_documents():
    sources, translations, _ = make_documents(3, 0.3)
    scores = score_consistency(sources, translations, translations, ("en", "de"))
    evaluation = evaluate_documents(translations, translations, MetricConfig(names=["ltcr"]))
    evaluations = dict.fromkeys("ab", replace(evaluation, metrics={"ltcr": scores["ltcr"]}))
    config = SignificanceConfig(samples=200, resample="sentences")
    comparison = compare(evaluations, config)
    assert comparison.segments("ltcr") == "12 documents"
    assert (
        comparison.outcomes["ltcr"][0].interval.low
        < scores["ltcr"].score
        < comparison.outcomes["ltcr"][0].interval.high
    )
