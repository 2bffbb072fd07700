"""Contrastive test sets: what is right, what a tie is, and files that are none."""

import json
import math
import re
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from benchmarks.synthetic.synthetic_corpus import write_corpus

from docmt.core.errors import DocmtError
from docmt.evaluation import contrastive, evaluate_items, read_items
from docmt.evaluation.contrastive import (
    AnswerCounts,
    ContrastiveResult,
    SuiteConfig,
    build_suite_rows,
    grade_item,
    suite_text,
)
from docmt.evaluation.suites import SuiteItem

RECORD = {
    "id": "a",
    "phenomenon": "pronoun",
    "distance": 1,
    "source": ["This is a key.", "I need it."],
    "candidates": [["Ein Schlüssel.", "Ich brauche ihn."], ["Ein Schlüssel.", "Ich brauche sie."]],
    "correct": 0,
    "sentence": 1,
}


def item(phenomenon="pronoun", distance=1, correct=0, candidates=2, label=""):
    texts = tuple(("x", f"y {number}") for number in range(candidates))
    return SuiteItem("i", phenomenon, distance, ("a", "b"), texts, correct, 1, label)


def count_right(items, totals):
    return ContrastiveResult(items, "".join(map(grade_item, items, totals)))


def table_of(items, result):
    """The lines of the table, without the notes below."""
    return suite_text(build_suite_rows("set", items, [result]), ["model"]).partition("\n\n")[0].splitlines()


@pytest.fixture
def write(tmp_path):
    """A function that writes lines, each a text or a record, and returns the path of the file."""

    def written(*lines):
        path = tmp_path / "suite.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    return written


def test_the_items_of_a_file(write):
    nameless = {name: value for name, value in RECORD.items() if name not in ("id", "phenomenon")}
    first, second = read_items(write("", RECORD, " ", {**nameless, "note": 1, "correct": 1, "distance": 0}))
    assert json.loads(json.dumps(asdict(first))) == {**RECORD, "label": "", "expected": "", "document": ""}
    assert (second.id, second.phenomenon, second.correct, second.distance) == ("", "", 1, 0)


def test_what_the_synthetic_corpus_writes_is_read(tmp_path):
    write_corpus(tmp_path / "corpus", train=5, dev=1, test=4, seed=1)
    path = tmp_path / "corpus" / "test.contrastive.jsonl"
    items = read_items(path)
    assert len(items) == len(path.read_text().splitlines()) > 4
    for suite_item in items:
        sentences = zip(*suite_item.candidates, strict=True)
        differing = [number for number, variants in enumerate(sentences) if len(set(variants)) > 1]
        assert differing == [suite_item.sentence]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON. A test set has one JSON object a line"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "not a JSON object"),
        ({"source": []}, "source is empty. Give one sentence or more"),
        ({"source": "This is"}, "source must be a list of sentences"),
        ({"source": ["a", 3]}, "source must be a list of sentences (strings)"),
        ({"source": ["a", "\ud800"]}, "source has a lone surrogate"),
        ({"candidates": None}, "`candidates` must be a list of two or more translations"),
        ({"candidates": []}, "`candidates` is empty. Give two or more translations"),
        ({"candidates": [["a", "b"]]}, "there is only one candidate. Give two or more"),
        ({"candidates": [["a", "b"], "c"]}, "candidate 2 must be a list of sentences"),
        ({"candidates": [["a", "b"], ["c"]]}, "candidate 2 has 1 sentences but the source has 2. Give one for each"),
        ({"candidates": [["a", "b"], ["a", "b"]]}, "all candidates are equal. Give different ones"),
        (
            {"candidates": [["a", "b"], ["a", " "]]},
            "candidate 2 is empty. Give every candidate a text, or leave it out",
        ),
        ({"correct": 2}, "`correct` must be an integer from 0 to 1"),
        ({"correct": True}, "`correct` must be an integer"),
        ({"correct": None}, "`correct` must be an integer"),
        ({"sentence": 2}, "`sentence` must be an integer from 0 to 1"),
        ({"source": ["a"], "sentence": ...}, "`sentence` is missing. Give 0"),
        ({"sentence": ...}, "`sentence` is missing. Give an integer from 0 to 1"),
        ({"correct": ...}, "`correct` is missing. Give an integer from 0 to 1"),
        ({"sentence": 0}, "`candidates` differ outside sentence 0"),
        ({"distance": -1}, "`distance` must be an integer from 0"),
        ({"distance": 1.5}, "`distance` must be an integer"),
        ({"id": 5}, "`id` is not a text"),
        ({"phenomenon": ["a"]}, "`phenomenon` is not a text"),
    ],
)
def test_lines_that_are_no_items(write, line, message):
    merged = {**RECORD, **({} if isinstance(line, str) else line)}
    entries = {name: value for name, value in merged.items() if value is not ...}
    path = write(RECORD, line if isinstance(line, str) else entries)
    with pytest.raises(DocmtError, match=f"suite.jsonl, line 2: {re.escape(message)}") as caught:
        read_items(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(write, tmp_path):
    with pytest.raises(DocmtError, match=r"is empty\. Give a test set"):
        read_items(write(""))
    with pytest.raises(DocmtError, match="there is no such file"):
        read_items(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("totals", "correct", "right"),
    [
        ([-3.0, -2.0], 1, True),
        ([-3.0, -2.0], 0, False),
        ([-2.0, -3.0, -2.5], 0, True),
        ([-2.0, -3.0, -1.5], 0, False),
        ([-2.0, -2.0], 0, False),
        ([-2.0, -2.0], 1, False),
        ([-2.0, -2.00001], 0, False),
        ([-2.0, -2.001], 0, True),
        ([math.nan, -3.0], 0, False),
        ([-3.0, math.nan], 0, False),
        ([-3.0, -math.inf], 0, True),
        ([-math.inf, -math.inf], 0, False),
    ],
)
def test_right_is_what_is_more_probable_than_all_others(totals, correct, right):
    result = count_right([item(correct=correct, candidates=len(totals))], [totals])
    best = max(total for number, total in enumerate(totals) if number != correct)
    tied = abs(totals[correct] - best) < 1e-4
    assert result.overall == AnswerCounts(int(right), 1, 1 / len(totals), ties=int(tied))
    assert result.answers == ("=" if tied else "+" if right else "-")


def test_equal_candidates_count_as_one():
    texts = (("x", "y"), ("x", "z"), ("x", "y"), ("x", "z"))
    both = SuiteItem("i", "p", 1, ("a", "b"), texts, 0, 1)
    assert [count_right([both], [totals]).overall for totals in ([-1.0, -2, -1, -2], [-2.0, -1, -2, -1])] == [
        AnswerCounts(1, 1, 0.5),
        AnswerCounts(0, 1, 0.5),
    ]
    all_equal = SuiteItem("i", "p", 1, ("a", "b"), texts[:1] * 3, 0, 1)
    assert count_right([all_equal], [[-1.0, -1, -1]]).overall == AnswerCounts(0, 1, 1.0, ties=1)


def test_counts_by_phenomenon_and_distance():
    asked = [("pronoun", 2, 3), ("sense", 1, 2), ("pronoun", 1, 3), ("pronoun", 2, 3), ("sense", 10, 2)]
    items = [item(name, distance, 0, candidates) for name, distance, candidates in asked]
    totals = [[-1.0, -2, -3], [-2.0, -1], [-2.0, -1, -1], [-2.0, -1, -1], [-1.0, -2]]
    result = count_right(items, totals)
    assert result.cells == {
        "pronoun": {1: AnswerCounts(0, 1, 1 / 3), 2: AnswerCounts(1, 2, 2 / 3, ties=0)},
        "sense": {1: AnswerCounts(0, 1, 0.5), 10: AnswerCounts(1, 1, 0.5)},
    }
    pronouns = result.phenomenon_counts("pronoun")
    assert (pronouns.accuracy, pronouns.chance) == (1 / 3, pytest.approx(1 / 3))
    assert (result.overall.accuracy, result.overall.chance) == (0.4, pytest.approx(2 / 5))
    assert [line.split() for line in table_of(items, result)] == [
        ["items", "chance", "model"],
        ["set", "5", "40.0", "40.0", "[11.8,", "76.9]"],
        ["pronoun", "3", "33.3", "33.3", "[6.1,", "79.2]"],
        ["distance", "1", "1", "33.3", "0.0", "[0.0,", "79.3]"],
        ["distance", "2", "2", "33.3", "50.0", "[9.5,", "90.5]"],
        ["sense", "2", "50.0", "50.0", "[9.5,", "90.5]"],
        ["distance", "1", "1", "50.0", "0.0", "[0.0,", "79.3]"],
        ["distance", "10", "1", "50.0", "100.0", "[20.7,", "100.0]"],
        ["ties", "0"],
    ]
    assert len({len(line) for line in table_of(items, result)}) == 1
    written = json.loads(json.dumps(result.to_json()))
    assert written["phenomena"]["pronoun"]["distances"]["2"]["accuracy"] == 0.5
    assert (written["correct"], written["total"]) == (2, 5)
    assert ContrastiveResult(items, written["answers"]) == result


def test_a_file_without_phenomena_has_rows_by_distance():
    items = [item(""), item("", 2)]
    lines = table_of(items, count_right(items, [[-1.0, -2], [-2.0, -1]]))
    assert [line.split()[0] for line in lines] == ["items", "set", "distance", "distance", "ties"]


class Counting:
    """Scores a document by the letters of its sentences, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def score_all(self, pairs, free_at_limit, context, noise):
        self.asked.append(pairs)
        return [
            SimpleNamespace(sentences=[SimpleNamespace(score=-float(len(s)), token_ids=()) for s in target.sentences])
            for _, target in pairs
        ]


def test_whole_documents_are_scored_in_groups(monkeypatch):
    monkeypatch.setattr(contrastive, "ITEMS_AT_ONCE", 2)
    texts = [(("aa", "b"), ("a", "b"), ("aaa", "b")), (("a", "bbb"), ("aa", "b")), (("a", ""), ("a", "b"))]
    items = [SuiteItem(f"{n}", "p", 1, ("s", "t"), candidates, correct, 0) for n, (candidates, correct) in
             enumerate(zip(texts, (1, 0, 0), strict=True))]  # fmt: skip
    scorer, heard = Counting(), []
    result = evaluate_items(scorer, items, on_item=lambda number, scored: heard.append((number, scored.sentences)))
    assert result.overall == AnswerCounts(2, 3, 1 / 3 + 1 / 2 + 1 / 2)
    assert [len(pairs) for pairs in scorer.asked] == [5, 2]
    firsts = [[SimpleNamespace(score=-float(len(t)), token_ids=()) for t in each.candidates[0]] for each in items]
    assert heard == list(enumerate(firsts))  # of every item once
    for pairs, group in zip(scorer.asked, (items[:2], items[2:]), strict=True):
        wanted = [(each.source, candidate) for each in group for candidate in each.candidates]
        assert [(source.sentences, target.sentences) for source, target in pairs] == wanted


def test_items_that_cannot_be_scored_are_wrong(monkeypatch):
    monkeypatch.setattr(contrastive, "ITEMS_AT_ONCE", 2)
    items = [replace(item(), id=id) for id in "abcd"]

    class Failing(Counting):
        def score_all(self, pairs, free_at_limit, context, noise):
            if bad := [source.id for source, _ in pairs if source.id in "bd"]:
                raise DocmtError(f"{bad[0]} is too long")
            result = super().score_all(pairs, free_at_limit, context, noise)
            for wrong in result[1::2]:  # the right one is the first
                wrong.sentences[0].score -= 1
            return result

    heard = []
    result = evaluate_items(Failing(), items, on_item=lambda *own: heard.append(own))
    assert (result.answers, result.overall) == ("+!+!", AnswerCounts(2, 4, 2.0, unanswered=2))
    assert [number for number, _ in heard] == [0, 1, 2, 3]
    assert [str(own) for _, own in heard[1::2]] == ["b is too long", "d is too long"]
    assert table_of(items, result)[-1].split() == ["unanswered", "2"]
    written = json.loads(json.dumps(result.to_json()))
    assert (written["unanswered"], ContrastiveResult(items, written["answers"])) == (2, result)
    with pytest.raises(DocmtError, match="b is too long"):
        evaluate_items(Failing(), items[1:])


class Told:
    """Gives the sentences of a document, in turn, the losses and tokens that are written in them."""

    def score_all(self, pairs, free_at_limit, context, noise):
        def sentence(text):
            loss, tokens = map(float, text.split())
            return SimpleNamespace(score=-loss, tokens=int(tokens), token_ids=())

        return [SimpleNamespace(sentences=[sentence(text) for text in target.sentences]) for _, target in pairs]


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        # Of losses 10 (8 tokens) and 9 (6 tokens) the sum finds the second better, the mean the first: 1.25 < 1.5.
        ({}, "-"),
        ({"normalization": "mean"}, "-"),
        ({"sentences": "deciding"}, "-"),
        ({"sentences": "deciding", "normalization": "mean"}, "+"),
    ],
)
def test_published_protocols_disagree(settings, answer):
    candidates = (("0 1", "10 8", "40 10"), ("0 1", "9 6", "3 30"))
    asked = SuiteItem("i", "p", 1, ("a", "b", "c"), candidates, 0, 1)
    assert evaluate_items(Told(), [asked], SuiteConfig(**settings)).answers == answer
    sentence_item = SuiteItem("i", "p", 1, ("a",), (("10 8",), ("9 6",)), 0, 0)
    wanted = "+" if settings.get("normalization") == "mean" else "-"
    assert evaluate_items(Told(), [sentence_item], SuiteConfig(**settings)).answers == wanted


def test_a_tie_of_means_is_as_close_as_one_of_sums():
    close, distant = (
        SuiteItem("i", "p", 1, ("a",), (("10 10",), (f"{other} 10",)), 0, 0) for other in (10.00005, 10.0005)
    )
    for normalization in ("sum", "mean"):
        config = SuiteConfig(normalization=normalization)
        assert evaluate_items(Told(), [close, distant], config).answers == "=+"


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # The examples of Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_intervals(correct, total, low, high):
    assert AnswerCounts(correct, total, 0.0).interval == pytest.approx((low, high), abs=5e-5)
    assert AnswerCounts(total - correct, total, 0.0).interval == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_labels_and_unknown_distances():
    items = [item("", None, label="er"), item("", 2, label="sie"), item("", None, label="er")]
    result = count_right(items, [[-1.0, -2], [-2.0, -1], [-1.0, -1]])
    assert list(result.cells[""]) == [2, None]
    assert result.labels == {"er": AnswerCounts(1, 2, 1.0, ties=1), "sie": AnswerCounts(0, 1, 0.5)}
    assert result.answers == "+-="
    written = json.loads(json.dumps(result.to_json()))
    assert set(written["phenomena"][""]["distances"]) == {"2", "unknown"}
    assert ContrastiveResult(items, written["answers"]) == result
    rows = [line.split()[:4] for line in table_of(items, result)]
    assert rows[2:] == [
        ["distance", "2", "1", "50.0"],
        ["distance", "unknown", "2", "50.0"],
        ["(er)", "2", "50.0", "50.0"],
        ["(sie)", "1", "50.0", "0.0"],
        ["ties", "1"],
    ]
