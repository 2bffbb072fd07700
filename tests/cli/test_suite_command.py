"""docmt probe --suite: the preferences of a model, as its scores of the candidates say."""

import gc
import json
import re
import shutil
import weakref
from dataclasses import replace

import pytest
from commands import QUICK, call, fails

import docmt
from docmt.checkpoint import model_directory
from docmt.cli.commands import probe
from docmt.decoding import Translator


@pytest.mark.full
def test_the_preferences_are_those_of_the_scores(run, suite, tmp_path):
    outcome = call("probe", run, "--suite", suite, "--json", tmp_path / "found.json")
    assert (outcome.status, outcome.err) == (0, "")
    names = [line.split()[0] for line in outcome.out.partition("\n\n")[0].splitlines()]
    assert [name for name in names if name != "distance"] == ["items", "suite.jsonl", "odd", "even", "ties"]
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
    assert found["answers"].count("+") == sum(right)
    only_json = call("probe", run, "--suite", suite, "--json", "-", "--batch-tokens", 64)
    assert json.loads(only_json.out) == found


def test_a_sentence_at_its_limit_gains_nothing(run, suite):
    """Its end would be free, so that a candidate of just that length had an edge."""
    item = json.loads(suite.read_text().splitlines()[0])
    pair = [docmt.Document.from_sentences(sentences) for sentences in (item["source"], item["candidates"][0])]
    usual = docmt.Translator(run)
    wanted = usual.score(*pair).sentences[0].score
    words = len(usual.tokenizer.encode(item["candidates"][0][0]))
    tight = docmt.Translator(run, search=docmt.SearchConfig(max_length_ratio=0, max_length_extra=words))
    at_limit, free = (tight.score_all([pair], free_at_limit)[0].sentences[0].score for free_at_limit in (True, False))
    assert at_limit > free == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--markdown", "none/there.md"], "cannot write none/there.md"),
        (["--normalization", "median"], "contrastive.normalization is 'median': choose one of sum, mean"),
        (["--json", "none/there.json"], "cannot write none/there.json"),
        (["--json", "-", "--markdown", "-"], "two outputs would both go to standard output"),
        (["--source", "none.en", "--reference", "none.de"], "cannot read none.en: there is no such file"),
        (["--reference", "none.de"], "--reference has no effect without --source: leave it out, or add --source"),
        (["--cxmi.examples", 3], "--cxmi.examples has no effect without --source"),
        (["--context.window-decoding", "prefix"], "context.window_decoding is for systems that translate windows"),
    ],
)
def test_options_that_do_not_fit(run, suite, arguments, message):
    fails("probe", run, "--suite", suite, *arguments, message=message)


def test_what_is_missing_or_wrong(run, suite):
    fails("probe", "--suite", suite, message="MODEL is missing")
    fails("probe", run, message="nothing to measure: name test sets .--suite., or a corpus .--source and --reference")
    fails("probe", run, "--source", "s", "--markdown", "m", message="--markdown has no effect without --suite")
    fails("probe", run, "--suite", "none.jsonl", message="cannot read none.jsonl: there is no such file")
    suite.write_text("5\n")
    fails("probe", run, "--suite", suite, message=r"suite.jsonl: not an item of a known test set format")


@pytest.mark.full
def test_several_systems_and_test_sets(run, suite, asked, tmp_path):
    other = shutil.copytree(run / "model", tmp_path / "other")
    found, page = tmp_path / "found.json", tmp_path / "found.md"
    outcome = call(
        *("probe", run, other, "--suite", suite, asked, "--json", found, "--markdown", page),
        *("--beam", 1, "--normalization", "mean", "--contrastive.sentences", "deciding"),
    )
    assert (outcome.status, outcome.err.count("ended by the length limit")) == (0, 2)
    table = [line.split() for line in outcome.out.splitlines()]
    assert table[0] == ["items", "chance", "run", "other"]
    names = [line[0] for line in table if line and line[0] != "distance"]
    assert names[1:7] == ["suite.jsonl", "odd", "even", "ties", "forms.en-de.jsonl", "(said)"]
    written = json.loads(found.read_text())
    assert (written["systems"], written["suites"]) == ([str(run), str(other)], [str(suite), str(asked)])
    assert (written["normalization"], written["sentences"], written["beam"]) == ("mean", "deciding", 1)
    for row in written["rows"]:
        one, same = row["systems"]
        assert (one["correct"], same["p"], same["difference"]) == (same["correct"], 1.0, 0.0)
    by_label = {row["label"]: row["systems"][0]["accuracy"] for row in written["rows"] if row["label"]}
    assert by_label == {"said": 1.0, "unsaid": 0.0}
    assert (
        list(written["answers"]) == [str(suite), str(asked)] == list(dict.fromkeys(r["suite"] for r in written["rows"]))
    )
    assert {row["distance"] for row in written["rows"] if row["by"] == "distance"} <= {0, 1, 2, 3, 4, None}
    assert [row["systems"][0]["chance"] for row in written["rows"] if row["suite"] == str(asked)] == [None] * 3
    assert list(written["items"]) == [str(asked)]
    assert list(written["items"][str(asked)]) == [str(run), str(other)]
    assert page.read_text().splitlines()[0] == "|  | items | chance | run | other |"


@pytest.mark.full
def test_means_and_deciding_sentences_are_those_of_the_scores(run, suite):
    arguments = ("--json", "-", "--normalization", "mean", "--contrastive.sentences", "deciding")
    found = json.loads(call("probe", run, "--suite", suite, *arguments).out)
    translator, answers = docmt.Translator(run), ""
    for line in suite.read_text().splitlines():
        item = json.loads(line)
        source, place = docmt.Document.from_sentences(item["source"]), item["sentence"]
        means = []
        for candidate in item["candidates"]:
            scored = translator.score(source, docmt.Document.from_sentences(candidate)).sentences[place]
            assert scored.tokens == len(translator.tokenizer.encode(candidate[place])) + 1
            means.append(scored.score / scored.tokens)
        answers += "+" if means.index(max(means)) == item["correct"] else "-"
    assert found["answers"] == answers


@pytest.mark.full
def test_a_made_test_set(run):
    outcome = call("probe", run, "--suite", "phenomena", "--json", "-")
    found = json.loads(outcome.out)
    assert (found["total"], len(found["phenomena"]), found["suite"]) == (288, 6, "phenomena")


@pytest.mark.full
def test_translations_are_asked_of_one_model(run, asked, tmp_path):
    outcome = call("probe", run, "--suite", asked, "--beam", 1, "--json", tmp_path / "found.json")
    assert (outcome.status, outcome.err.count("ended by the length limit")) == (0, 1)
    names = [line.split()[0] for line in outcome.out.partition("\n\n")[0].splitlines()]
    assert names == ["items", "forms.en-de.jsonl", "(said)", "(unsaid)", "ties"]
    found = json.loads((tmp_path / "found.json").read_text())
    translator = docmt.Translator(run, search=docmt.SearchConfig(beam=1))
    for number, line in enumerate(asked.read_text().splitlines()):
        own = json.loads(line)
        said = (
            translator.translate(docmt.Document.from_sentences([*own["src_context"], own["src"]])).sentences[2].target
        )
        answer = "+" if own["rule"] == "said" else "-"
        wanted = {"id": str(number + 1), "expected": own["expected"], "translation": said, "answer": answer}
        assert found["items"][number] == wanted
    assert len(found["items"]) == 6 and found["chance"] is None


def test_what_fits_neither_model_nor_test_set(run, suite, asked, tmp_path):
    french = tmp_path / "suite.en-fr.jsonl"
    shutil.copy(suite, french)
    fails("probe", run, "--suite", french, message="suite.en-fr.jsonl is en-fr, but .* translates en-de")
    fails("probe", run, "--suite", "lcpt", message="no test set 'lcpt'. Choose one of pronouns, phenomena")
    fails("probe", run, "--suite", suite, suite, message="--suite has .*suite.jsonl twice: name it once")
    fails("probe", run, run, "--suite", suite, message="the list of models has .*run twice: name it once")


def test_items_without_context_are_told(run, suite):
    item = json.loads(suite.read_text().splitlines()[0])
    place = item["sentence"]
    alone = {"source": item["source"][place : place + 1], "candidates": [[c[place]] for c in item["candidates"]]}
    suite.write_text(json.dumps({**item, **alone, "sentence": 0}) + "\n")
    outcome = call("probe", run, "--suite", suite)
    assert outcome.status == 0
    assert outcome.err == "docmt: 1 of 1 items of suite.jsonl have no context to decide them\n"


@pytest.mark.full
def test_what_may_be_wrong_with_translations_is_told_of_each_model(run, asked, tmp_path):
    other = shutil.copytree(run / "model", tmp_path / "other")
    arguments = ("--suite", asked, "--json", tmp_path / "found.json", *QUICK)
    alone = call("probe", run, *arguments)
    assert alone.status == 0
    pattern = r"docmt: (\d+) x (sentences ended by the length limit, .* raise it\)) \(first: (.*)\)\n"
    told, missing = re.match(pattern, alone.err), re.search(r"(\d+) x sentences of which a part.*", alone.err)
    assert told[3] == f"{asked}, item 1, sentence 1"
    warnings = {"sentence_count": 0, "length_limit": int(told[1]), "missing_text": int(missing[1]), "long_source": 0}
    assert json.loads((tmp_path / "found.json").read_text())["warnings"] == warnings
    both = call("probe", run, other, *arguments)
    lines = [f"docmt: {told[1]} x {told[2]} (first: {name}: {told[3]})" for name in ("run", "other")]
    assert (both.status, both.err.splitlines()[::2]) == (0, lines)
    of_both = json.loads((tmp_path / "found.json").read_text())["warnings"]
    assert of_both == {str(run): warnings, str(other): warnings}


def test_sentences_too_long_for_an_instance_are_told_once_an_item(run, tmp_path):
    long, path = "x" * 300, tmp_path / "long.jsonl"
    records = [{"id": id, "source": ["A.", long], "candidates": [["A.", "B."], ["A.", "C."]]} for id in ("1", "b")]
    path.write_text("".join(json.dumps({**record, "correct": 0, "sentence": 1}) + "\n" for record in records))
    outcome = call("probe", run, "--suite", path)
    assert outcome.status == 0
    assert outcome.err.startswith("docmt: 2 x source sentences longer than an instance")
    assert outcome.err.endswith(f"(first: {path}, item 1, sentence 2)\n")
    path.write_text(path.read_text().splitlines()[1])
    assert call("probe", run, "--suite", path).err.endswith(f"({path}, item 1 ('b'), sentence 2)\n")


def test_miscounted_sentences_are_told(run, asked, monkeypatch):
    translate_all = Translator.translate_all

    def translating(self, documents):
        first, *others = translate_all(self, documents)
        return [replace(first, miscounted=((1, 3),)), *others]

    monkeypatch.setattr(Translator, "translate_all", translating)
    outcome = call("probe", run, "--suite", asked, "--beam", 1)
    assert "docmt: 1 x spans with another number of sentences than their source" in outcome.err
    assert f"({asked}, item 1, sentences 2 to 3)" in outcome.err
    assert "\nmiscounted: wrong, because the model generated another number of sentences" in outcome.out


@pytest.mark.full
def test_one_model_is_in_memory_at_a_time(run, suite, short_suites, tmp_path, monkeypatch):
    others = [shutil.copytree(run / "model", tmp_path / name) for name in ("second", "third")]
    loaded, load_translator = [], probe.load_translator

    def loading(options, model):
        gc.collect()
        assert [reference() for reference in loaded] == [None] * len(loaded)
        translator = load_translator(options, model)
        loaded.append(weakref.ref(translator))
        return translator

    monkeypatch.setattr(probe, "load_translator", loading)
    outcome = call("probe", run, *others, "--suite", suite, "phenomena")
    assert (outcome.status, outcome.err, len(loaded)) == (0, "", 3)


def test_models_are_checked_before_any_of_them_is_asked(run, suite, tmp_path, monkeypatch):
    french = shutil.copytree(run / "model", tmp_path / "french")
    config = json.loads((french / "config.json").read_text())
    (french / "config.json").write_text(json.dumps({**config, "target_language": "fr"}))
    monkeypatch.setattr(probe, "load_translator", lambda *given: pytest.fail("a model was loaded"))
    fails("probe", run, french, "--suite", "phenomena", message="en-de, but .*french translates en-fr")
    fails(
        "probe",
        run,
        f"{run},{french}",
        "--suite",
        "phenomena",
        message="run and .*french cannot form an ensemble: they translate en-de and en-fr",
    )
    damaged = shutil.copytree(run / "model", tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    fails("probe", run, damaged, "--suite", "phenomena", message="damaged")
    for systems in ([run, suite], [suite, run], [f"{run},{suite}"]):
        message = "suite.jsonl is a file, not a model: name model directories only"
        fails("probe", *systems, "--suite", "phenomena", message=message)
        fails("probe", *systems, "--suite", "phenomena", "--context-ablation", message=message)
    fails("probe", run, tmp_path / "no", "--suite", "phenomena", message="there is no directory .*no. Name a model")


@pytest.mark.full
def test_progress_says_which_model_is_asked_what(run, others, suite, asked, monkeypatch):
    monkeypatch.setattr("docmt.core.progress.LINE_INTERVAL_SECONDS", 0.0)

    def told(*arguments):
        lines = call("probe", *arguments, *QUICK).err.splitlines()
        return list(dict.fromkeys(line.partition(" on cpu")[0] for line in lines if "(sentences): " in line))

    assert told(run, "--suite", asked) == ["translating"]
    both = told(run, others[0], "--suite", suite, asked)
    work = [f"{suite}: scoring", f"{asked}: translating"]
    assert both == [f"{model}: {line}" for model in ("run", "second") for line in work]
    forms = [{"src_context": [own], "src": "It is old.", "expected": "Er"} for own in ("A dog.", "A car.")]
    asked.write_text("".join(json.dumps(row) + "\n" for row in forms))
    contexts = [f"{condition} context" for condition in ("true", "empty", "shuffled")]
    assert told(run, "--suite", asked, "--context-ablation") == [f"{each}: translating" for each in contexts]
    both = told(run, others[0], "--suite", asked, "--context-ablation")
    assert both == [f"{model}: {asked}: {each}: translating" for model in ("run", "second") for each in contexts]


@pytest.mark.full
def test_progress_says_which_context_is_scored(run, corpus, monkeypatch):
    """All four bars were called `scoring`."""
    monkeypatch.setattr("docmt.core.progress.LINE_INTERVAL_SECONDS", 0.0)
    sides = ("--source", corpus / "test.en", "--reference", corpus / "test.de")
    outcome = call("probe", run, "--suite", corpus / "test.contrastive.jsonl", "--context-ablation", *sides)
    assert outcome.status == 0, outcome.err
    titles = [line.partition(": scoring on")[0] for line in outcome.err.splitlines() if ": scoring on" in line]
    contexts = [f"{condition} context" for condition in ("true", "empty", "shuffled", "noise")]
    others = ["true context", "empty context", "shuffled context", "no context"]
    changes = [title for title, before in zip(titles, ["", *titles], strict=False) if title != before]
    assert changes == [*contexts, "with context", "without context", *others]


@pytest.mark.full
def test_each_model_is_loaded_once(run, others, suite, corpus, monkeypatch):
    loaded, load = [], model_directory.load_model
    monkeypatch.setattr(
        model_directory, "load_model", lambda path, **given: loaded.append(str(path)) or load(path, **given)
    )
    assert call("probe", run, others[0], "--suite", suite).status == 0
    sides = ("--source", corpus / "test.en", "--reference", corpus / "test.de")
    assert call("evaluate", "--systems", run, others[0], *sides, *QUICK).status == 0
    assert loaded == [str(run), str(others[0])] * 2
