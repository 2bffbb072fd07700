"""Scores of terms equal an independent count: every way to give each occurrence words of its own is tried."""

import json
import random
import re
from itertools import product

import pytest
from commands import assert_one_sentence, call

from docmt.core.errors import DocmtError
from docmt.evaluation.source_scores import match_terms, score_terms
from docmt.terms import Glossary, Term
from docmt.terms.matching import TermMatcher

PAIRS = {"a": ["x y", "z"], "b": ["y"], "c": ["y z", "x"], "d e": ["z y x"], "e": ["z z"]}
TERMS = {source: Term(source, tuple(targets)) for source, targets in PAIRS.items()}


def count_by_trying(sources, target, most=None):
    """Return the most occurrences that disjoint spans of a translation can meet."""
    words, choices = target.split(), []
    for source in sources:
        forms = [text.split() for text in PAIRS[source][:most]]
        spans = [
            range(n, n + len(form)) for form in forms for n in range(len(words)) if words[n : n + len(form)] == form
        ]
        choices.append([None, *spans])
    best = 0
    for chosen in product(*choices):
        taken = [number for span in chosen if span for number in span]
        if len(taken) == len(set(taken)):
            best = max(best, sum(span is not None for span in chosen))
    return best


def make_texts(seed):
    """Return documents of sources and of translations; the terms do not overlap in a source."""
    generator, sides = random.Random(seed), ([], [])
    for _ in range(8):
        sources = [" - ".join(generator.choices(list(PAIRS), k=generator.randint(0, 4))) for _ in range(4)]
        targets = [" ".join(generator.choices("xyzw", k=generator.randint(1, 7))) for _ in sources]
        for side, texts in zip(sides, (sources, targets), strict=True):
            side.append(texts)
    return sides


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_every_assignment_tried(seed):
    sources, targets = make_texts(seed)
    references = make_texts(seed + 10)[1]
    matcher = TermMatcher(Glossary.from_pairs(PAIRS))
    scores = score_terms(matcher, sources, targets, references)
    rows = [
        ([each for each in source.split(" - ") if each], target)
        for document in zip(sources, targets, strict=True)
        for source, target in zip(*document, strict=True)
    ]
    asked = sum(len(terms) for terms, _ in rows)
    for key, most in (("terms", None), ("terms_listed", None), ("terms_base", 1)):
        met = [count_by_trying(terms, target, most) for terms, target in rows]
        assert scores[key].statistics.tolist() == [[len(terms), n] for (terms, _), n in zip(rows, met, strict=True)]
        assert scores[key].score == pytest.approx(100 * sum(met) / asked)
    assert scores["terms"].reference == score_terms(matcher, sources, references, references)["terms"].score
    repeated = sum(len(re.findall(r"(?=\b(\w) \1\b)", text)) for document in targets for text in document)
    assert scores["repeated"].score == pytest.approx(
        100 * repeated / sum(len(text.split()) for document in targets for text in document)
    )


def test_greedy_matching_would_lose_a_term():
    matcher = TermMatcher(Glossary.from_pairs({"a": "x", "b": "x y"}))
    scores = score_terms(matcher, [["a - b", "a a"]], [["x y x", "x"]], [["x", "x x"]])
    assert scores["terms"].statistics.tolist() == [[2, 2], [2, 1]] and scores["terms"].reference == 75
    spans = {(TERMS["a"], 0): [(0, 3), (2, 5)], (TERMS["b"], 0): [(0, 1)], (TERMS["c"], 0): [(4, 5)]}
    assert len(match_terms({TERMS["a"]: 1, TERMS["b"]: 1, TERMS["c"]: 1}, spans)) == 2
    assert match_terms({TERMS["a"]: 1}, {}) == []


def test_a_form_counts_in_the_last_tier_only():
    pytest.importorskip("simplemma", reason="the extra terms is not installed")
    glossary = Glossary.from_pairs({"measure": ["mesure", "disposition"]}, ("en", "fr"))
    sources = [["These measures.", "This measure.", "A measure."]]
    scores = score_terms(
        TermMatcher(glossary),
        sources,
        [["Ces mesures.", "Cette mesure.", "Une disposition."]],
        [["Ces mesures.", "Cela.", "Cela."]],
    )
    values = [scores[key].score for key in ("terms_base", "terms_listed", "terms", "consistency")]
    assert values == pytest.approx([100 / 3, 200 / 3, 100, 200 / 3])
    assert "reference:33.33|asked:3|forms:simplemma" in scores["terms"].signature


def test_a_term_that_no_document_repeats_has_no_consistency():
    sides = [["a"], ["a"]], [["x"], ["y"]], [["x"], ["x"]]
    scores = score_terms(TermMatcher(Glossary.from_pairs({"a": "x"})), *sides)
    assert scores["consistency"] is None and scores["terms"].score == 50
    with pytest.raises(DocmtError, match="no term of the glossary stands in the source"):
        score_terms(TermMatcher(Glossary.from_pairs({"q": "x"})), *sides)


@pytest.mark.parametrize(("repeating", "interval"), [(1, ""), (2, " ± 0.00")])
def test_documents_without_repeated_terms_are_not_drawn_for_consistency(tmp_path, monkeypatch, repeating, interval):
    """Samples of them alone have no consistency, and must not count as 0."""
    monkeypatch.chdir(tmp_path)
    documents = [["b", "a"]] * (7 - repeating) + [["a", "a"]] * repeating
    for name, words in {"source.txt": "ab", "reference.txt": "xy", "good.txt": "xz"}.items():
        lines = ["\n".join(document).translate(str.maketrans("ab", words)) for document in documents]
        (tmp_path / name).write_text("\n\n".join(lines) + "\n")
    (tmp_path / "terms.tsv").write_text("a\tx\n")
    arguments = ("--reference", "reference.txt", "--source", "source.txt", "--terms", "terms.tsv", "--metrics", "chrf")
    outcome = call("evaluate", "--systems", "reference.txt", "good.txt", *arguments)
    assert outcome.status == 0, outcome.err
    cells = next(line for line in outcome.out.splitlines() if line.startswith("reference.txt")).split("  ")
    assert [cell.strip() for cell in cells if cell][5] == f"100.00{interval}"
    assert f"over 7 documents (consistency: {repeating} document" in outcome.out
    assert "with fewer than 6 documents no difference of consistency can be significant" in outcome.out


def test_terms_of_systems_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"source.txt": ["a"] * 7, "reference.txt": ["x"] * 7, "good.txt": ["x"] * 7, "bad.txt": ["y"] * 6 + ["x"]}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n\n".join(lines) + "\n")
    (tmp_path / "terms.tsv").write_text("a\tx\n")
    common = ["--reference", "reference.txt", "--terms", "terms.tsv"]
    both = call("evaluate", "--systems", "good.txt", "bad.txt", "--source", "source.txt", *common, "--json", "all.json")
    assert both.status == 0, both.err
    assert re.search(r"^good.txt +100.00 ± 0.00 .*\nbad.txt +14.29 ± \d+\.\d+  p 0\.0\d+\* ", both.out, re.MULTILINE)
    first, second = json.loads((tmp_path / "all.json").read_text())["systems"]
    assert first["terms"]["score"] == first["terms"]["reference"] == 100 and first["consistency"] is None
    assert second["outcomes"]["terms"]["difference"]["value"] == pytest.approx(-600 / 7)
    assert_one_sentence(call("evaluate", "--hypothesis", "good.txt", *common).err, "--terms needs --source")
    (tmp_path / "short.txt").write_text("a\n")
    outcome = call("evaluate", "--hypothesis", "good.txt", "--source", "short.txt", *common)
    assert outcome.status == 2 and "short.txt has 1 document but" in outcome.err
    (tmp_path / "more.txt").write_text("x\nx\n\n" + "\n\n".join(["x"] * 6) + "\n")
    outcome = call("evaluate", "--hypothesis", "more.txt", "--source", "source.txt", *common)
    assert outcome.status == 0 and re.search(r"^terms +- +not defined$", outcome.out, re.MULTILINE)
    (tmp_path / "terms.tsv").write_text("x\ta\n")
    outcome = call("evaluate", "--hypothesis", "good.txt", "--source", "source.txt", *common)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, "no term of the glossary stands in the source")
