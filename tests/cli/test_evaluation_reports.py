"""docmt evaluate: the page, the campaign for Pearmut, and its answers."""

import json
import shutil

import pytest
from commands import QUICK, call, fails

FILES = ["--source", "test.en", "--reference", "test.de"]
SYSTEMS = ["evaluate", "--systems", "a.de", "b.de", *FILES]


@pytest.fixture
def files(corpus, tmp_path, monkeypatch):
    """The test set and two files of translations in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("test.en", "test.de"):
        shutil.copy(corpus / name, name)
    text = (corpus / "test.de").read_text()
    (tmp_path / "a.de").write_text(text.replace("ist", "war"))
    (tmp_path / "b.de").write_text(text.replace("e", "i"))
    return tmp_path


def test_a_page_and_a_campaign_are_written(files):
    outcome = call(*SYSTEMS, "--html", "r.html", "--export-pearmut", "c.json", "--samples", 200)
    assert (
        outcome.status == 0 and "c.json: 6 documents for `pearmut add`; keep c.key.json for the answers" in outcome.err
    )
    page = (files / "r.html").read_text()
    assert "<h1>docmt evaluate: test.de</h1>" in page and "200 samples" in page and "<mark>war</mark>" in page
    campaign, key = (json.loads((files / name).read_text()) for name in ("c.json", "c.key.json"))
    assert campaign["campaign_id"] == key["campaign_id"] == "c" and key["systems"] == ["a.de", "b.de"]
    assert campaign["data"][0][0]["src"] == (files / "test.en").read_text().split("\n")[0]


def test_documents_that_are_judged_as_a_whole_are_counted(files):
    (files / "b.de").write_text((files / "b.de").read_text().replace("\n", " ", 1))
    outcome = call(*SYSTEMS, "--export-pearmut", "c.json", "--pearmut-protocol", "ESA", "--samples", 200)
    assert "6 documents for `pearmut add`, of which 1 is judged as a whole" in outcome.err


def test_a_single_model_makes_a_campaign(files, run):
    call("evaluate", "--model", run, *FILES, *QUICK, "--export-pearmut", "c.json", "--pearmut-protocol", "ESA")
    campaign = json.loads((files / "c.json").read_text())
    assert {tuple(item["tgt"]) for items in campaign["data"] for item in items} == {("A",)}


def test_answers_are_read_back(files):
    call(*SYSTEMS, "--export-pearmut", "c.json", "--samples", 200)
    campaign, key = (json.loads((files / name).read_text()) for name in ("c.json", "c.key.json"))
    entries = []
    for number, items in enumerate(campaign["data"]):
        names = key["documents"][number]["systems"]
        points = {letter: {"score": 40 if name == "a.de" else 90, "error_spans": []} for letter, name in names.items()}
        entries.append({"user_id": "anna", "item_i": number, "item": items, "annotation": [points] * len(items)})
    (files / "answers.json").write_text(json.dumps({"c": entries}))
    arguments = ("evaluate", "--pearmut-answers", "answers.json", "c.key.json", "--samples", 500)
    outcome = call(*arguments, "--json", "s.json", "--markdown", "s.md")
    assert (outcome.status, outcome.err) == (0, "")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[0] == ["points", "errors"] and rows[1][:2] == ["a.de", "40.00"] and rows[2][:2] == ["b.de", "90.00"]
    found = json.loads((files / "s.json").read_text())
    assert [(each["points"]["score"], each["annotators"]) for each in found["systems"]] == [(40, 1), (90, 1)]
    assert (files / "s.md").read_text().startswith("|  | points | errors |")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "a.de", "b.de", "--reference", "test.de", "--html", "r.html"], "--html needs --source"),
        (["--hypothesis", "a.de", "--reference", "test.de", "--export-pearmut", "c"], "--export-pearmut needs"),
        (["--hypothesis", "a.de", *FILES, "--html", "r.html"], "--html needs several systems: name more than one"),
        ([*SYSTEMS[1:], "--html", "no/r.html"], "cannot write no/r.html: there is no directory"),
        ([*SYSTEMS[1:], "--html", "a.de"], "a.de is an input and would be overwritten by the output"),
        ([*SYSTEMS[1:], "--export-pearmut", "no/c.json"], "cannot write no/c.json: there is no directory"),
        ([*SYSTEMS[1:], "--html", "-"], "--html cannot be standard output: name a file"),
        ([*SYSTEMS[1:], "--pearmut-protocol", "ESA"], "--pearmut-protocol has no effect without --export-pearmut"),
        (["--model", "m", "--aer", "a.de", "--html", "r.html"], "--aer has no use for --html"),
        (["--pearmut-answers", "a.de"], "a.de has no annotations: name what Pearmut's dashboard gives to download"),
        (["--pearmut-answers", "none"], "cannot read none: there is no such file"),
        (["--pearmut-answers", "a.de", "--device", "cpu"], "--pearmut-answers has no use for --device"),
        (["--pearmut-answers", "a.de", "--source", "test.en"], "--pearmut-answers has no use for --source"),
    ],
)
def test_what_cannot_be_is_refused(files, arguments, message):
    fails("evaluate", *arguments, message=message)
