"""docmt evaluate --suite: the preferences of a model, as its scores of the candidates say."""

import json

import pytest
from commands import call, fails

import docmt


@pytest.fixture
def suite(corpus, tmp_path):
    """A small test set of two phenomena."""
    lines = (corpus / "test.contrastive.jsonl").read_text().splitlines()[:6]
    path = tmp_path / "suite.jsonl"
    records = [{**json.loads(line), "phenomenon": "even" if n % 2 else "odd"} for n, line in enumerate(lines)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_preferences_are_those_of_the_scores(run, suite, tmp_path):
    outcome = call("evaluate", "--model", run, "--suite", suite, "--json", tmp_path / "found.json")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert [line.split()[0] for line in lines] == ["chance", "odd", "even", "all"]
    translator = docmt.Translator(run)
    right = []
    for line in suite.read_text().splitlines():
        item = json.loads(line)
        source = docmt.Document.from_sentences(item["source"])
        scored = [translator.score(source, docmt.Document.from_sentences(each)) for each in item["candidates"]]
        totals = [sum(sentence.score for sentence in each.sentences) for each in scored]
        right.append(totals.index(max(totals)) == item["correct"])
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["correct"], found["total"], found["chance"]) == (sum(right), 6, pytest.approx(1 / 3))
    assert found["phenomena"]["odd"]["correct"] == sum(right[::2])
    assert (found["model"], found["suite"]) == (str(run), str(suite))
    only_json = call("evaluate", "--model", run, "--suite", suite, "--json", "-", "--search.batch_tokens", 64)
    assert json.loads(only_json.out) == found


def test_a_sentence_at_its_limit_gains_nothing(run, suite):
    """Its end would be free, so that a candidate of just that length had an edge."""
    item = json.loads(suite.read_text().splitlines()[0])
    pair = [docmt.Document.from_sentences(sentences) for sentences in (item["source"], item["candidates"][0])]
    usual = docmt.Translator(run)
    wanted = usual.score(*pair).sentences[0].score
    words = len(usual.tokenizer.encode(item["candidates"][0][0]))
    tight = docmt.Translator(run, max_length_ratio=0, max_length_extra=words)
    at_limit, free = (tight.score_all([pair], limited)[0].sentences[0].score for limited in (True, False))
    assert at_limit > free == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reference", "x"], "--reference has no meaning with --suite, which translates nothing: leave it out"),
        (["-o", "x"], "--output has no meaning with --suite"),
        (["--hypothesis", "x"], "--hypothesis has no meaning with --suite"),
        (["--metrics.lowercase", "true"], "--metrics.lowercase has no meaning with --suite"),
        (["--search.beam", "3"], "--search.beam has no meaning with --suite"),
        (["--json", "none/there.json"], "cannot write none/there.json"),
    ],
)
def test_options_that_mean_nothing_here(run, suite, arguments, message):
    fails("evaluate", "--model", run, "--suite", suite, *arguments, message=message)


def test_what_is_missing_or_wrong(run, suite):
    fails("evaluate", "--suite", suite, message="--suite needs --model: name the model whose preferences count")
    fails("evaluate", "--model", run, "--suite", "none.jsonl", message="cannot read none.jsonl: there is no such file")
    suite.write_text("5\n")
    fails("evaluate", "--model", run, "--suite", suite, message=r"suite.jsonl, line 1: not a JSON object")
