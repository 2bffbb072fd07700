"""Reports of terms over several files, and after an interruption."""

from typing import get_args

import pytest
from commands import call, interrupting

from docmt.terms.matching import TermMode

COMMON = ("translate", "en-fr-sentence", "a.txt", "b.txt", "--layout", "lines", "--beam", "1", "--batch-tokens", "64")
TEXTS = {
    "a.txt": ["The programme is old.", "It is a good report.", "The committee adopted these measures."] * 4,
    "b.txt": ["Nothing here.", "The committee has left.", "The programme is here."] * 3,
}


@pytest.mark.parametrize("mode", get_args(TermMode))
@pytest.mark.parametrize("additions", [2, 3])
@pytest.mark.full
def test_a_resumed_translation_has_the_report_of_a_whole_one(mode, additions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "terms.tsv").write_text("programme\txylophone quantique\ncommittee\tcomité\nreport\trapport\n")
    for name, lines in TEXTS.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    options = [*COMMON, "--terms", "terms.tsv", "--terms-mode", mode, "--terms-report"]
    whole = call(*options, "whole.tsv", "-o", "whole")
    with interrupting(monkeypatch, additions):
        assert call(*options, "part.tsv", "-o", "part").status == 130
    resumed = call(*options, "part.tsv", "-o", "part", "--resume")
    assert (whole.status, resumed.status) == (0, 0), resumed.err
    reports = [(tmp_path / f"{name}.tsv").read_text() for name in ("whole", "part")]
    assert reports[0] == reports[1]
    rows = [line.split("\t") for line in reports[0].splitlines()[1:]]
    assert [(row[0], int(row[1]), row[2]) for row in rows] == [
        (name, number, term)
        for name, lines in TEXTS.items()
        for number, line in enumerate(lines, 1)
        for term in ("programme", "report", "committee")
        if term in line
    ]
    assert {row[5] for row in rows if row[2] == "programme"} == {"refused" if mode == "prefer" else "second_search"}
    last = [each.err.splitlines()[-1].partition("(")[0] for each in (whole, resumed)]
    assert last[0] == last[1] and last[0].startswith("docmt: terms: 18 asked, ")
    assert all((tmp_path / "whole" / name).read_text() == (tmp_path / "part" / name).read_text() for name in TEXTS)


def test_words_that_terms_replace_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("search._MOST_CHECKED", 1), ("openings._LIKELY", -1.0), ("openings._CLEAR", -1.0)):
        monkeypatch.setattr(f"docmt.decoding.term_{name}", value)  # the best one for the model drops a word
    (tmp_path / "terms.tsv").write_text("group\tcercle\n")
    (tmp_path / "a.txt").write_text("The steering group has a new chair.\n")
    options = ("--beam", "2", "--terms", "terms.tsv", "--terms-mode", "require", "--terms-report", "r.tsv")
    outcome = call("translate", "en-fr-sentence", "a.txt", *options, "-o", "b.txt")
    told, last = outcome.err.splitlines()[-2:]
    assert told == "docmt: 1 x terms replace other words, too (`dropped` in r.tsv)"
    assert last.startswith("docmt: terms: 1 asked, 1 met")
    assert (tmp_path / "r.tsv").read_text().splitlines()[1].split("\t")[8] == "steering"
