"""docmt probe --suite: what is told and kept when items or models fail, or somebody interrupts."""

import json

import pytest
from commands import QUICK, call

import docmt
from docmt.cli.commands import probe
from docmt.decoding import Translator


def test_what_is_finished_is_kept_when_somebody_interrupts(run, others, suite, tmp_path, monkeypatch):
    score_all, asked = Translator.score_all, []

    def interrupted(self, pairs, free_at_limit, context, noise=None):
        asked.append(pairs)
        if len(asked) == last:
            raise KeyboardInterrupt
        return score_all(self, pairs, free_at_limit, context=context, noise=noise)

    monkeypatch.setattr(Translator, "score_all", interrupted)
    found, page = tmp_path / "found.json", tmp_path / "found.md"
    arguments = ("probe", run, *others, "--suite", suite, "--json", found, "--markdown", page)
    last = 1
    first = call(*arguments)
    assert (first.status, first.out, first.err) == (130, "", "docmt: interrupted\n")
    assert not found.exists()
    asked.clear()
    last = 2
    second = call(*arguments)
    missing = f"{others[0]}, {others[1]}"
    assert (second.status, second.err) == (130, f"docmt: interrupted: {missing} are missing\n")
    assert second.out.splitlines()[0].split() == ["items", "chance", "run"]
    written = json.loads(found.read_text())
    assert written["systems"] == [str(run)] == list(written["answers"][str(suite)]) == list(written["warnings"])
    assert page.read_text().startswith("|  | items | chance | run |\n")


def test_a_model_that_fails_later_does_not_take_the_others_with_it(run, others, suite, tmp_path, monkeypatch):
    load_translator = probe.load_translator

    def failing(options, model):
        if model == str(others[0]):
            raise docmt.DocmtError("its memory is gone")
        return load_translator(options, model)

    monkeypatch.setattr(probe, "load_translator", failing)
    found = tmp_path / "found.json"
    outcome = call("probe", run, *others, "--suite", suite, "--json", found)
    assert (outcome.status, outcome.err) == (2, f"docmt: error: {others[0]}: its memory is gone\n")
    assert outcome.out.splitlines()[0].split() == ["items", "chance", "run", "third"]
    assert json.loads(found.read_text())["systems"] == [str(run), str(others[1])]
    monkeypatch.setattr(probe, "load_translator", lambda *given: failing(None, str(others[0])))
    alone = call("probe", run, "--suite", suite, "--json", "-")
    assert (alone.status, alone.out, alone.err) == (2, "", f"docmt: error: {run}: its memory is gone\n")


@pytest.fixture
def failing(monkeypatch):
    """What can be neither scored nor translated is what has BAD in it."""

    def checked(work):
        def working(self, given, *more, **options):
            sources = [each[0] if isinstance(each, tuple) else each for each in given]
            if any("BAD." in source.sentences for source in sources):
                raise docmt.DocmtError("BAD is too long")
            return work(self, given, *more, **options)

        return working

    for name in ("score_all", "translate_all"):
        monkeypatch.setattr(Translator, name, checked(getattr(Translator, name)))


@pytest.fixture
def with_bad(suite, asked):
    """The items of the small test sets, the second of each with a word that makes models fail."""
    for path, entry in ((suite, "source"), (asked, "src")):
        first, second, *others = path.read_text().splitlines()
        item = json.loads(second)
        item[entry] = "BAD." if entry == "src" else ["BAD.", *item["source"][1:]]
        path.write_text("\n".join([first, json.dumps({**item, "id": "b"}), *others]) + "\n")
    return suite, asked


def test_items_that_fail_are_wrong_and_told(run, with_bad, failing, tmp_path):
    suite, asked = with_bad
    found = tmp_path / "found.json"
    outcome = call("probe", run, "--suite", suite, "--json", found)
    lines = [f"error: {suite}, item 2 ('b'): BAD is too long", "1 of 6 items could not be answered"]
    assert (outcome.status, outcome.err.splitlines()) == (2, [f"docmt: {line}" for line in lines])
    assert "\nunanswered: wrong, because the model could not score or translate them" in outcome.out
    written = json.loads(found.read_text())
    assert (written["unanswered"], written["total"], written["answers"][1]) == (1, 6, "!")
    assert written["answers"].count("!") == 1
    both = call("probe", run, "--suite", suite, asked, "--json", found, *QUICK)
    assert both.status == 2 and "2 of 12 items could not be answered" in both.err
    assert both.out.count("\n  unanswered ") == 2
    items = json.loads(found.read_text())["items"][str(asked)][str(run)]
    assert [item["answer"] for item in items if item["translation"] is None] == ["!"]


def test_what_is_wrong_is_told_with_its_context(run, failing, tmp_path):
    """With --context-ablation, too; a sentence that is too long is told once."""
    long, pair = ["x" * 300, "It."], [["X.", "A."], ["X.", "B."]]
    rows = [{"source": source, "candidates": pair, "correct": 0, "sentence": 1} for source in (long, ["BAD.", "It."])]
    forms = [{"src_context": [own], "src": "It is old.", "expected": "Er"} for own in ("A dog.", "A car.")]
    path, asked, found = tmp_path / "context.jsonl", tmp_path / "forms.jsonl", tmp_path / "found.json"
    asked.write_text("".join(json.dumps(row) + "\n" for row in forms))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = call("probe", run, "--suite", path, asked, "--context-ablation", "--json", found, *QUICK)
    assert outcome.status == 2
    told = outcome.err.splitlines()
    places = [line.partition(": BAD is too long")[0] for line in told if line.endswith(": BAD is too long")]
    wanted = [(1, "shuffled"), (2, "true"), (2, "empty")]  # the sentence around another item fails with that one
    assert {f"docmt: error: {path}, item {n}, {c} context" for n, c in wanted} <= set(places)
    (line,) = [line for line in told if "longer than an instance" in line]
    assert line.startswith("docmt: 1 x ") and line.endswith(f"({path}, item 1, true context, sentence 1)")
    (line,) = [line for line in told if "ended by the length limit" in line]
    assert f"first: {asked}, item 1, true context, sentence 1)" in line
    warnings = json.loads(found.read_text())["warnings"]
    assert warnings["long_source"] == 1 and line.startswith(f"docmt: {warnings['length_limit']} x ")
    assert "\n*: different from true context, p < 0.05" in outcome.out
    items = json.loads(found.read_text())["suites"][str(asked)]["empty"]["items"]
    assert all(set(item) == {"id", "expected", "translation", "answer"} for item in items)
