"""From corpus files to scores by the command line alone: prepare, train, kill, resume, translate, score, evaluate."""

import io
import json
import logging
import re
import signal
import sys

import pytest
from commands import QUICK, TINY, call, start, wait_for_lines

import docmt
from docmt.core.logging import LogHandler
from docmt.decoding import SearchConfig, translate_documents
from docmt.documents import Document, read_documents, unwrap_lines

TEXT = (
    "\ufeffThe Report\r\n\r\n"
    "Anna bought a lamp yesterday. It is quite cheap!\r\n"
    "  - Tom found an umbrella.  It was in the park.\r\n"
    "  - It is old.\r\n\r\n\t\r\n"
    "-----\n"
    "1. She sees the dog.\u2028\nThe last line has no end"
)
TIMES = {"seconds", "tokens_per_second"}


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def checkpoint(run):
    return json.loads((run / "checkpoints" / "last" / "state.json").read_text())


def records(outcome):
    assert outcome.status == 0, outcome.err
    assert outcome.err == ""
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.txt"
    path.write_bytes(TEXT.encode())
    return path


def assert_same_layout(translated):
    """Only the sentences of TEXT are replaced, each by one line."""
    gaps = Document.from_text(TEXT).gaps
    assert len(gaps) == 9
    assert re.fullmatch("(.*)".join(map(re.escape, gaps)), translated), translated


def test_text_and_jsonl_make_the_same_store(corpus, store, tmp_path):
    from docmt.documents import read_parallel, write_jsonl

    files = []
    for name in ("train", "dev"):
        files.append(tmp_path / f"{name}.jsonl")
        write_jsonl(read_parallel(corpus / f"{name}.en", corpus / f"{name}.de"), files[-1])
    recipe = tmp_path / "prepare.yaml"
    recipe.write_text(
        f"train: ['{files[0]}']\ndev: ['{files[1]}']\nvocabulary_size: 400\nsource_language: no\ntarget_language: de\n"
    )
    outcome = call("prepare", recipe, "--store", tmp_path / "store", "--source-language", "en")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("en to de, bpe vocabulary of 400\n")
    ours = {path.relative_to(store): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    theirs = {path: (tmp_path / "store" / path).read_bytes() for path in ours}
    assert ours == theirs


@pytest.mark.full
def test_interrupted_killed_and_resumed_is_as_never_stopped(store, tmp_path, caplog):
    settings = ["--store", store, *TINY, "--stop.patience", 0, "--log-every", 1, "--checkpoints.every", 4]
    whole, run = tmp_path / "whole", tmp_path / "run"

    first = start("train", *settings, "--run", run, "--stop.max-steps", 100_000)
    wait_for_lines(run / "metrics.jsonl", 8, first)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert out == ""
    assert re.search(
        rf"^docmt: interrupted after update \d+\ndocmt: to continue: docmt train --resume {run}$", err, re.M
    )
    assert f"docmt: the current model can be used: docmt translate {run} FILE\n" in err
    assert "Traceback" not in err
    assert not (run / "model").exists()
    early = call("translate", run, *QUICK, stdin=b"A lamp.\n")
    assert early.status == 0
    assert caplog.text.count(f"the run {run} is not finished. Using its ") == 1
    done = metrics(run)[-1]["update"]
    assert checkpoint(run)["update"] == done, "an interrupted run saves where it stands"

    second = start("train", "--resume", run, "--stop.max-steps", done + 300)
    wait_for_lines(run / "metrics.jsonl", done + 10, second)
    second.kill()
    second.communicate()
    last = checkpoint(run)["update"]
    assert done < last <= metrics(run)[-1]["update"]

    steps = ["--stop.max-steps", last + 15]
    outcome = call("train", "--resume", run, *steps)
    assert (outcome.status, outcome.out) == (0, f"{last + 15} updates are done; the model is in {run / 'model'}\n")
    assert call("train", *settings, "--run", whole, *steps).status == 0
    assert metrics(run) == metrics(whole)
    weights = "model/model.safetensors"
    assert (run / weights).read_bytes() == (whole / weights).read_bytes()


def test_layout_is_kept_wherever_text_comes_from_and_goes(run, report, tmp_path):
    printed = call("translate", run, report)
    assert printed.status == 0
    assert printed.err == ""
    assert_same_layout(printed.out)
    assert call("translate", run, stdin=TEXT.encode()) == printed
    assert call("translate", run, "-", stdin=TEXT.encode()) == printed
    assert call("translate", run, report, "-o", tmp_path / "out.txt").out == ""
    assert (tmp_path / "out.txt").read_bytes() == printed.out.encode()


def test_several_files_into_a_directory(run, report, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("It is cheap.\n")
    expected = {path.name: call("translate", run, path, *QUICK).out for path in (report, other)}
    assert call("translate", run, report, other, "-o", tmp_path / "new" / "folder", *QUICK).status == 0
    found = {path.name: path.read_bytes().decode() for path in (tmp_path / "new" / "folder").iterdir()}
    assert found == expected
    assert call("translate", run, other, "-o", f"{tmp_path}/slash/", *QUICK).status == 0
    assert (tmp_path / "slash" / "other.txt").read_text() == expected["other.txt"]


def test_jsonl_has_a_record_for_every_sentence(run, report):
    text = call("translate", run, report).out
    found = records(call("translate", run, report, "--format", "jsonl", "--n-best", 3))
    assert [record["source"] for record in found] == list(Document.from_text(TEXT).sentences)
    assert [record["sentence"] for record in found] == list(range(1, 9))
    for record in found:
        assert record["document"] == str(report)
        assert TEXT[slice(*record["source_span"])] == record["source"]
        assert text[slice(*record["target_span"])] == record["target"]
        assert record["score"] < 0
        assert len(record["alternatives"]) == 2
        assert all(set(other) == {"target", "score", "rank_score"} for other in record["alternatives"])
        ranks = [record["rank_score"], *(other["rank_score"] for other in record["alternatives"])]
        assert ranks == sorted(ranks, reverse=True)
    total = [sum(record["score"] for record in found)]
    total += [sum(record["alternatives"][rank]["score"] for record in found) for rank in range(2)]
    assert len(set(total)) == 3


def test_what_may_be_wrong_is_told(run, tmp_path):
    """A translation that the length limit ended, and one that lacks words."""
    path = tmp_path / "long.txt"
    path.write_text("It is cheap.\n" + "It is cheap and " * 60 + "old.\n", encoding="utf-8")
    short = call("translate", run, path, "--format", "jsonl", *QUICK)
    warnings = [json.loads(line)["warnings"] for line in short.out.splitlines()]
    assert warnings == [["length_limit"], ["length_limit", "missing_text"]]
    assert short.status == 0
    lines = short.err.splitlines()
    assert lines[0].startswith(
        "docmt: 2 x sentences ended by the length limit, so that words may be missing (--max-length-ratio"
    )
    assert lines[0].endswith(f"(first: {path}, sentence 1)")
    assert lines[1].startswith("docmt: 1 x sentences of which a part seems not to be translated")
    assert lines[1].endswith(f"({path}, sentence 2)")
    assert len(lines) == 2


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("\n\nIt is cheap.\n She sees the dog.  \n\n \n\nIt is old.\n\n", marks=pytest.mark.full),
        "<d>\nIt is cheap.\n\nShe sees the dog.\n<d>\n<d>\r\nIt is old.\r\n",
    ],
)
def test_lines_stay_beside_their_source(run, tmp_path, source):
    path = tmp_path / "lines.txt"
    path.write_bytes(source.encode())
    arguments = ["translate", run, path, "--input.layout", "lines"]
    outcome = call(*arguments)
    assert outcome.status == 0
    by_stdin = call(*arguments[:2], *arguments[3:], stdin=source.encode())
    assert by_stdin == outcome._replace(err=outcome.err.replace(str(path), "standard input"))
    for ours, theirs in zip(outcome.out.split("\n"), source.split("\n"), strict=True):
        if theirs.strip() in ("", "<d>"):
            assert ours == theirs
        else:
            assert ours.strip()
    found = records(call(*arguments, "--format", "jsonl"))
    ids = [id for id, sentences in read_documents(path) for sentence in sentences if sentence]
    assert [record["document"] for record in found] == ids
    for record in found:
        assert source[slice(*record["source_span"])] == record["source"]
        assert outcome.out[slice(*record["target_span"])] == record["target"]


@pytest.mark.full
def test_scores_are_those_of_the_search(run, corpus, tmp_path):
    """Where the tokenizer splits a translation as the model wrote it, it gets the score that it had in the search."""
    sentences = [sentence for _, document in read_documents(corpus / "dev.en") for sentence in document]
    sentences = [sentence for sentence in sentences if len(sentence.split()) < 9]  # none is searched again
    sources = [sentences[start : start + 2] for start in range(0, 40, 2)]
    lines, pairs = tmp_path / "lines.en", tmp_path / "pairs.jsonl"
    lines.write_text("\n".join("".join(f"{sentence}\n" for sentence in source) for source in sources))

    translator = docmt.Translator(run)
    tokenizer = translator.tokenizer
    ids = [tokenizer.encode_batch(source) for source in sources]
    found = translate_documents(translator.model, ids, tokenizer.specials, translator.search)
    texts = [[unwrap_lines(text).strip() for text in tokenizer.decode_batch(best.sentences)] for (best,) in found]
    agree = [tokenizer.encode_batch(text) == best.sentences for text, (best,) in zip(texts, found, strict=True)]
    assert sum(agree) >= 5

    translated = records(call("translate", run, lines, "--input.layout", "lines", "--format", "jsonl"))
    assert [record["target"] for record in translated] == [sentence for text in texts for sentence in text]
    with pairs.open("w") as file:
        for number, (source, text) in enumerate(zip(sources, texts, strict=True), 1):
            file.write(json.dumps({"id": str(number), "source": source, "target": text}) + "\n")
    scored = records(call("score", run, pairs, "--format", "jsonl"))
    for number, same in enumerate(agree, 1):
        ours, theirs = ([r["score"] for r in found if r["document"] == str(number)] for found in (scored, translated))
        assert not same or ours == pytest.approx(theirs, abs=1e-3)
    printed = call("score", run, pairs).out.split("\n")
    assert [f"{record['score']:.6f}" for record in scored] == [line for line in printed if line]
    assert printed.count("") == len(sources)  # one between two documents, and one after the last line feed


@pytest.mark.full
def test_evaluating_a_model_is_evaluating_its_translations(run, corpus, tmp_path):
    files = {"source": corpus / "test.en", "reference": corpus / "test.de", "hypothesis": tmp_path / "test.out"}
    assert call("translate", run, files["source"], "--input.layout", "lines", "-o", files["hypothesis"]).status == 0
    by_model = call(
        *("evaluate", "--model", run, "--source", files["source"], "--reference", files["reference"]),
        *("-o", tmp_path / "test.again", "--json", tmp_path / "scores.json"),
    )
    by_file = call("evaluate", "--hypothesis", files["hypothesis"], "--reference", files["reference"])
    assert by_model.out == by_file.out
    assert by_model.status == by_file.status == 0
    told = r"docmt: (\d+) x sentences of which a part [^\n]+\n"  # such a model translates into few words
    missing = re.fullmatch(told, by_model.err)
    assert missing and by_file.err == ""
    assert by_model.out.startswith("s-BLEU ")
    assert (tmp_path / "test.again").read_bytes() == files["hypothesis"].read_bytes()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["documents"] == 6
    only_json = call("evaluate", "--hypothesis", files["hypothesis"], "--reference", files["reference"], "--json", "-")
    warnings = scores.pop("warnings")
    assert (scores.pop("left_out"), warnings.pop("missing_text"), {*warnings.values()}) == (0, int(missing[1]), {0})
    by_json = json.loads(only_json.out)
    named = [{name: found.pop(name) for name in (*files, "model", "beam")} for found in (scores, by_json)]
    paths = {name: str(path) for name, path in files.items()}
    assert named == [
        {**paths, "hypothesis": None, "model": str(run), "beam": SearchConfig().beam},
        {**paths, "source": None, "model": None, "beam": None},
    ]
    assert by_json == scores
    perfect = call("evaluate", "--hypothesis", files["reference"], "--reference", files["reference"])
    assert perfect.out.count("100.00") == 4
    instances = ["--metrics.unit", "instance", "--json", "-"]
    found = call("evaluate", "--model", run, "--source", files["source"], "--reference", files["reference"], *instances)
    assert json.loads(found.out)["d_bleu"]["segments"] > 6  # instances of at most 128 tokens


def test_the_python_interface(run, report, tmp_path):
    model = docmt.load_model(run)
    assert model.config.width == 16
    document = docmt.Document.read(report)
    assert document.text() == TEXT
    translation = docmt.Translator(run, search=docmt.SearchConfig(beam=2)).translate(document)
    assert translation.document.gaps == document.gaps
    translation.document.write(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == translation.text().encode()
    for sentence, source in zip(translation.sentences, document.sentences, strict=True):
        assert sentence.source == source
        assert translation.text()[slice(*sentence.target_span)] == sentence.target
    with pytest.raises(docmt.DocmtError, match="there is no directory"):
        docmt.load_model(tmp_path / "none")


def test_progress_off_a_terminal_is_plain_lines_on_standard_error(run, report, monkeypatch):
    silent = call("translate", run, report, *QUICK)
    monkeypatch.setattr("docmt.core.progress.LINE_INTERVAL_SECONDS", 0.0)
    outcome = call("translate", run, report, *QUICK)
    assert outcome.out == silent.out
    assert re.fullmatch(r"docmt: 8 x sentences ended by the length limit, [^\n]+\n", silent.err)
    progress = outcome.err.removesuffix(silent.err)
    assert re.fullmatch(
        r"(translating on cpu in float32 \(sentences\): \d of 8  \([\d:]+(, [\d:]+ left)?\)\n)+", progress
    )


def test_log_lines_go_where_standard_error_is_now(monkeypatch):
    """A progress bar stands in for standard error while it is shown, to write lines above itself."""
    handler = LogHandler()
    for text in ("one", "two"):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        handler.handle(logging.makeLogRecord({"msg": text}))
        assert stream.getvalue() == f"{text}\n"
