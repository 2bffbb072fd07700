"""Several systems beside each other: which rows there are, and what differs by more than chance."""

import json
from math import comb

import pytest

from docmt.evaluation.contrastive import ContrastiveResult, build_suite_rows, sign_test, suite_markdown, suite_text
from docmt.evaluation.suites import SuiteItem


def item(phenomenon, distance, label=""):
    return SuiteItem("i", phenomenon, distance, ("a", "b"), (("x", "y"), ("x", "z")), 0, 1, label)


ITEMS = [item("pronoun", 1, "er"), item("pronoun", 2, "es"), item("name", None), item("pronoun", 1, "es")]


def rows(*answers, items=ITEMS, suite="set|1"):
    return build_suite_rows(suite, items, [ContrastiveResult(items, system_answers) for system_answers in answers])


def test_rows_are_all_then_phenomena_with_distances_then_labels():
    table_rows = rows("+-=+", "++++")
    assert [(row.by, row.phenomenon, row.distance, row.label) for row in table_rows] == [
        ("suite", None, None, None),
        ("phenomenon", "pronoun", None, None),
        ("distance", "pronoun", 1, None),
        ("distance", "pronoun", 2, None),
        ("phenomenon", "name", None, None),
        ("label", None, None, "er"),
        ("label", None, None, "es"),
    ]
    assert [[(count.correct, count.total) for count in row.counts] for row in table_rows] == [
        [(2, 4), (4, 4)],
        [(2, 3), (3, 3)],
        [(2, 2), (2, 2)],
        [(0, 1), (1, 1)],
        [(0, 1), (1, 1)],
        [(1, 1), (1, 1)],
        [(1, 2), (2, 2)],
    ]
    assert table_rows[0].counts[0].ties == 1
    assert [row.p_values for row in table_rows[:2]] == [(1.0, 0.5), (1.0, 1.0)]


def test_what_has_one_kind_has_one_row():
    assert [row.name for row in rows("+-", items=[item("p", 1, "er"), item("p", 1, "er")])] == ["set|1"]
    assert rows("+-", items=[item("a\nb", 1), item("p", 1)])[1].name == r"  a\nb"
    assert [row.name for row in rows("+-", items=[item("p", 1), item("p", 2)])] == [
        "set|1", "  p", "    distance 1", "    distance 2"]  # fmt: skip
    near, unknown = (row.to_json(["s"]) for row in rows("+-", items=[item("p", None), item("p", 1)])[2:])
    assert [(row["by"], row["distance"]) for row in (near, unknown)] == [("distance", 1), ("distance", None)]


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    # By hand: 2 x the sum of C(n, k) / 2 ** n for k up to the smaller number; 8 against 1 is 20 / 512.
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (8, 1, 0.0390625), (1, 8, 0.0390625), (3, 3, 1.0)],
)
def test_the_sign_test(won, lost, p):
    first, other = "-" * won + "+" * lost + "+-=", "+" * won + "=" * lost + "+=-"
    assert sign_test(first, other) == pytest.approx(p)


def test_the_sign_test_of_many_items():
    many = sign_test("-" * 2100 + "+" * 1900, "+" * 2100 + "-" * 1900)
    assert many == pytest.approx(2 * sum(comb(4000, k) for k in range(1901)) / 2**4000)
    assert 0.001 < many < 0.002


def test_the_table_marks_what_is_other_than_chance():
    items = [item("p", 1)] * 12
    table_rows = rows("+" * 4 + "-" * 8, "+" * 12, "+" * 5 + "=" * 7, items=items)
    lines = suite_text(table_rows, ["base", "better", "alike"]).splitlines()
    assert lines[0].split() == ["items", "chance", "base", "better", "alike"]
    assert lines[1].split() == [
        *("set|1", "12", "50.0", "33.3", "[13.8,", "60.9]", "100.0", "[75.8,", "100.0]", "+66.7*"),
        *("41.7", "[19.3,", "68.0]", "+8.3"),
    ]
    assert lines[2].split() == ["ties", "0", "0", "7"]
    assert "p < 0.05" in lines[-1]
    single = suite_text(rows("+" * 12, items=items), ["base"])
    assert "p < 0.05" not in single and "+" not in single
    assert all(
        "assume independent items" in text for text in (single, suite_text(table_rows, ["base", "better", "alike"]))
    )
    written = json.loads(json.dumps(table_rows[0].to_json(["base", "better", "alike"])))
    assert [(each["system"], each["correct"], each["p"]) for each in written["systems"]] == [
        ("base", 4, 1.0),
        ("better", 12, 0.0078125),
        ("alike", 5, 1.0),
    ]
    assert written["systems"][1]["difference"] == pytest.approx(2 / 3)


def test_markdown():
    lines = suite_markdown([*rows("+-=+", "++++"), *rows("+-=+", "++++", suite="b")], ["one", "two"]).splitlines()
    assert lines[:3] == [
        "|  | items | chance | one | two |",
        "| --- | --: | --: | --: | --: |",
        r"| set\|1 | 4 | 50.0 | 50.0 [15.0, 85.0] | 100.0 [51.0, 100.0] +50.0 |",
    ]
    assert "| &nbsp;&nbsp;&nbsp;&nbsp;distance 1 | 2 | 50.0 |" in lines[4]
    assert [line for line in lines if "ties" in line] == ["| &nbsp;&nbsp;ties |  |  | 1 | 0 |"] * 2 + [lines[-3]]
    assert lines[-1].startswith(r"- \*: different from the first system")


def test_the_table_counts_what_has_another_number_of_sentences():
    table_rows = rows("+??=", "++-=")
    lines = suite_text(table_rows, ["document", "group"]).splitlines()
    assert next(line.split() for line in lines if "miscounted" in line) == ["miscounted", "2", "0"]
    assert any(
        line.startswith("miscounted: wrong, because the model generated another number of sentences") for line in lines
    )
    assert "miscounted" not in suite_text(rows("+--=", "++-="), ["document", "group"])
    assert "| &nbsp;&nbsp;miscounted |  |  | 2 | 0 |" in suite_markdown(table_rows, ["document", "group"]).splitlines()
    assert table_rows[0].to_json(["document", "group"])["systems"][0]["miscounted"] == 2


def test_the_table_counts_what_could_not_be_answered_and_says_what_is_compared():
    table_rows = rows("+!!=", "++-=")
    text = suite_text(table_rows, ["true context", "empty context"], "true context")
    assert next(line.split() for line in text.splitlines() if "unanswered" in line) == ["unanswered", "2", "0"]
    assert text.endswith("unanswered: wrong, because the model could not score or translate them")
    assert "*: different from true context, p < 0.05" in text
    assert "- unanswered: wrong" in suite_markdown(table_rows, ["one", "two"])
