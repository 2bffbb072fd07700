"""A document that cannot be done is named and counted, and the others are done."""

import json
import math
import os
import re
from dataclasses import replace

import pytest
import torch
from commands import QUICK, call, fails

from docmt.checkpoint.model_directory import load_model_tokenizer
from docmt.cli.output import map_or_report
from docmt.core.errors import DocmtError
from docmt.decoding import Translator, document_stream
from docmt.documents import Document

ERRORS = {
    "no positions": (DocmtError("sentence 1 may need 700 positions: split it"), "sentence 1 may need 700 positions"),
    "memory": (MemoryError(), "out of memory: split its long sentences, or use smaller batches"),
    "GPU memory": (torch.OutOfMemoryError("CUDA out of memory"), "out of memory: split its long sentences"),
    "torch": (RuntimeError("can't allocate memory: you tried to allocate 1 bytes"), "out of memory: split its"),
}


@pytest.fixture(params=ERRORS)
def bad(request, run, monkeypatch):
    """Documents with the sentence BAD. cannot be done; gives what is said of them."""
    error, message = ERRORS[request.param]
    search, score_all = document_stream.search_task, Translator.score_all
    (bad,) = load_model_tokenizer(run).encode_batch(["BAD."], "source")

    def searching(task, on_sentences):
        if bad in task.words.to_documents([0, len(task.words.lengths)])[0]:
            raise error
        return search(task, on_sentences)

    def scoring(self, pairs):
        if any("BAD" in sentence for source, _ in pairs for sentence in source.sentences):
            raise error
        return score_all(self, pairs)

    monkeypatch.setattr(document_stream, "search_task", searching)
    monkeypatch.setattr(Translator, "score_all", scoring)
    return message


@pytest.fixture
def files(tmp_path):
    """Four documents, the second and the last of them bad, as text and as JSONL with ids."""
    source = [["It is cheap."], ["BAD.", "It is old."], ["She sees the dog.", "It is old."], ["BAD."]]
    target = [["Er ist billig."], ["X.", "Er ist alt."], ["Sie sieht den Hund.", "Er ist alt."], ["X."]]
    for name, documents in (("en", source), ("de", target)):
        (tmp_path / f"test.{name}").write_text("\n".join("".join(f"{s}\n" for s in d) for d in documents))
    rows = [
        {"id": f"id{n}", "source": one, "target": other}
        for n, (one, other) in enumerate(zip(source, target, strict=True))
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def errors(outcome):
    notes = re.compile(r"ended by the length limit|\.partial .*is for --resume")
    return [line.removeprefix("docmt: ") for line in outcome.err.splitlines() if not notes.search(line)]


def test_translate_names_the_file(run, files, bad):
    text = files / "good.txt"
    text.write_text("It is cheap.\n")
    lines = ["--input.layout", "lines", *QUICK]
    outcome = call("translate", run, files / "test.en", text, "-o", files / "out", *lines)
    assert outcome.status == 2
    first, second, whole = errors(outcome)
    assert first.startswith(f"error: {files}/test.en, document 2: {bad}")
    assert second.startswith(f"error: {files}/test.en, document 4: {bad}")
    place = files / "out" / "test.en"
    assert whole == f"error: 2 of 4 documents are not wholly translated: {place} has empty lines there"
    outputs = {"good.txt", "good.txt.partial", "test.en", "test.en.partial"}
    assert {path.name for path in (files / "out").iterdir()} == outputs
    found = place.read_text().split("\n")
    assert [bool(line) for line in found] == [True, False, False, False, False, True, True, False, False, False]
    first, whole = errors(call("translate", run, *lines, stdin=b"It is cheap.\n\nBAD.\n"))
    assert first.startswith(f"error: standard input, document 2: {bad}")
    assert whole == "error: 1 of 2 documents are not wholly translated: standard output has empty lines there"
    (only,) = errors(call("translate", run, files / "test.en", *QUICK))
    assert only.startswith(f"error: {files}/test.en: {bad}")
    (files / "bad.txt").write_text("BAD.\n")
    *_, summary = errors(call("translate", run, files / "bad.txt", text, "-o", files / "two", *lines))
    assert summary == "1 of 2 files could not be translated"
    assert {path.name for path in (files / "two").iterdir()} == {"good.txt", "good.txt.partial"}


def test_jsonl_says_which_documents_failed(run, files, bad, caplog):
    outcome = call("translate", run, files / "test.jsonl", *QUICK)
    assert outcome.status == 2
    assert errors(outcome)[0].startswith(f"error: {files}/test.jsonl, document id1: {bad}")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(row["document"], row["sentence"]) for row in rows] == [
        *[("id0", 1), ("id1", 1), ("id1", 2), ("id2", 1), ("id2", 2), ("id3", 1)]
    ]
    for row in rows:
        failed = row["document"] in ("id1", "id3")
        assert ("error" in row, "target" in row) == (failed, not failed)
        assert not failed or row["error"].startswith(bad)
    # Read back, its translations are there and the others are empty.
    (files / "out.jsonl").write_text(outcome.out)
    (files / "out.txt").write_text(call("translate", run, files / "test.jsonl", "--format", "text", *QUICK).out)
    scores = [
        call("evaluate", "--hypothesis", files / name, "--reference", files / "test.jsonl")
        for name in ("out.jsonl", "out.txt")
    ]
    assert scores[0].out == scores[1].out
    assert scores[0].status == scores[1].status == 0
    assert "3 sentences not translated (error), scored as empty translations" in caplog.text


def test_score_keeps_the_lines(run, files, bad):
    outcome = call("score", run, files / "test.en", files / "test.de")
    assert outcome.status == 2
    first, second, summary = errors(outcome)
    assert first.startswith(f"error: {files}/test.en, document 2: {bad}")
    assert second.startswith(f"error: {files}/test.en, document 4: {bad}")
    assert summary == "2 of 4 documents could not be scored"
    lines = outcome.out.split("\n")
    assert [line if line in ("", "-") else "x" for line in lines] == ["x", "", "-", "-", "", "x", "x", "", "-", ""]
    outcome = call("score", run, files / "test.jsonl", "--format", "jsonl")
    assert outcome.status == 2
    assert errors(outcome)[0].startswith(f"error: {files}/test.jsonl, document 2 ('id1'): {bad}")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["document"] for row in rows if "score" in row] == ["id0", "id2", "id2"]
    assert [row["document"] for row in rows if bad in row.get("error", "")] == ["id1", "id1", "id3"]


@pytest.mark.parametrize("unit", ["document", "instance"])
def test_evaluate_leaves_them_out_on_both_sides(run, files, bad, unit):
    arguments = ["evaluate", "--model", run, "--metrics.unit", unit, *QUICK]
    outcome = call(*arguments, "--source", files / "test.jsonl", "--json", files / "s.json", "-o", files / "out")
    assert outcome.status == 2
    first, second, summary = errors(outcome)
    assert first.startswith(f"error: {files}/test.jsonl, document 2 ('id1'): {bad}")
    assert second.startswith(f"error: {files}/test.jsonl, document 4 ('id3'): {bad}")
    assert summary == "2 of 4 documents could not be translated"
    assert outcome.out.endswith("\n2 of 4 documents left out, as they could not be translated\n")
    scores = json.loads((files / "s.json").read_text())
    assert (scores["documents"], scores["sentences"], scores["left_out"]) == (2, 3, 2)
    lines = (files / "out").read_text().split("\n")
    assert [bool(line) for line in lines] == [True, False, False, False, False, True, True, False, False, False]
    rows = (files / "test.jsonl").read_text().splitlines(keepends=True)
    (files / "good.jsonl").write_text(rows[0] + rows[2])
    alone = call(*arguments, "--source", files / "good.jsonl", "--json", "-")
    assert alone.status == 0
    assert json.loads(alone.out) == {**scores, "source": str(files / "good.jsonl"), "left_out": 0}


def test_what_one_system_cannot_translate_is_left_out_of_all(run, files, bad):
    arguments = ["--source", files / "test.en", "--reference", files / "test.de", "--json", files / "s.json", *QUICK]
    outcome = call("evaluate", "--systems", files / "test.de", run, *arguments, "-o", files / "out")
    assert outcome.status == 2
    first, second, summary = errors(outcome)
    assert first.startswith(f"error: run: {files}/test.en, document 2: {bad}") and second.startswith("error: run: ")
    assert summary == "2 of 4 documents could not be translated by every system"
    assert outcome.out.endswith("\n2 of 4 documents left out of all scores, as not every system could translate them\n")
    found = json.loads((files / "s.json").read_text())
    assert (found["left_out"], [own["documents"] for own in found["systems"]]) == (2, [2, 2])
    lines = (files / "out" / "run.txt").read_text().split("\n")
    assert [bool(line) for line in lines] == [True, False, False, False, False, True, True, False, False, False]


def test_where_nothing_can_be_done_there_are_no_scores(run, files, bad):
    (files / "bad.jsonl").write_text(json.dumps({"source": ["BAD."], "target": ["X."]}) + "\n")
    arguments = ["evaluate", "--model", run, "--source", files / "bad.jsonl", "--json", files / "s.json"]
    fails(*arguments, message=rf"bad\.jsonl, document 1: {bad}")
    assert not (files / "s.json").exists()


@pytest.mark.full
def test_evaluate_tells_what_translate_tells(run, corpus, tmp_path):
    lines = ["--input.layout", "lines", "-o", tmp_path / "out"]
    told = call("translate", run, corpus / "test.en", *lines, *QUICK)
    arguments = ["evaluate", "--model", run, "--source", corpus / "test.en", "--reference", corpus / "test.de", *QUICK]
    outcome = call(*arguments, "--json", tmp_path / "s.json")
    assert (outcome.status, outcome.err) == (0, told.err)
    count = int(told.err.split()[1])
    missing = int((re.search(r"(\d+) x sentences of which a part", told.err) or [0, 0])[1])
    warnings = {"sentence_count": 0, "length_limit": count, "long_source": 0, "missing_text": missing}
    assert count > 0 and json.loads((tmp_path / "s.json").read_text())["warnings"] == warnings
    # By instances the sentences are numbered as in the whole document.
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"source": ["It is old."] * 60 + ["é" * 600], "target": ["Er ist alt."] * 61}) + "\n")
    outcome = call("evaluate", "--model", run, "--source", long, "--metrics.unit", "instance", *QUICK)
    assert "1 x source sentences longer than an instance" in outcome.err
    assert f"({long}, document 1, sentence 61)" in outcome.err


def test_a_score_that_is_no_number_fails_its_document(run, files, monkeypatch):
    score_all = Translator.score_all

    def scoring(self, pairs):
        first, second, *others = score_all(self, pairs)
        sentences = (second.sentences[0], replace(second.sentences[1], score=math.nan))
        return [first, replace(second, sentences=sentences), *others]

    monkeypatch.setattr(Translator, "score_all", scoring)
    for format in ("text", "jsonl"):
        outcome = call("score", run, files / "test.en", files / "test.de", "--format", format)
        assert outcome.status == 2
        first, summary = errors(outcome)
        assert first.startswith(
            f"error: {files}/test.en, document 2: the score of sentence 2 is not a number; check that the model"
        )
        assert summary == "1 of 4 documents could not be scored"
        assert "nan" not in outcome.out.lower()


def test_the_ones_that_fail_are_found_by_halving():
    calls = []

    def work(items):
        calls.append(len(items))
        if 37 in items:
            raise DocmtError("it is 37")
        return [item + 1 for item in items]

    failures = []
    found = map_or_report(range(100), [f"item {item}" for item in range(100)], work, failures)
    assert found == [None if item == 37 else item + 1 for item in range(100)]
    assert failures == ["item 37: it is 37"]
    assert len(calls) < 20
    assert map_or_report([], [], work, failures) == []

    def broken(items):
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault"):
        map_or_report([1], ["one"], broken, failures)


@pytest.mark.full
def test_text_is_segmented_in_the_language_of_the_model(run, tmp_path, monkeypatch):
    """The model's source language, unless another is asked for; of old models, which do not say, English."""
    seen = []
    from_text = Document.from_text

    def inputs(text, *, language, **options):
        seen.append(language)
        return from_text(text, language=language, **options)

    monkeypatch.setattr(Document, "from_text", inputs)
    text = tmp_path / "text.txt"
    text.write_text("It is cheap.\n")
    config = run / "model" / "config.json"
    before = config.read_text()
    try:
        for language in ("de", ""):
            config.write_text(json.dumps({**json.loads(before), "source_language": language}))
            assert call("translate", run, text, *QUICK).status == 0
        assert call("translate", run, text, "--input.language", "fr", *QUICK).status == 0
    finally:
        config.write_text(before)
    assert seen == ["de", "en", "fr"]
    assert json.loads(before)["source_language"] == "en"
    assert json.loads(before)["target_language"] == "de"
    assert "(default: that of the model, or en)" in " ".join(call("translate", "--help", "input.language").out.split())


def test_files_that_are_read_twice_are_no_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "good").write_text("Good.\n")
    for arguments in (["pipe", "good"], ["good", "pipe"]):
        names = [tmp_path / name for name in arguments]
        message = r"cannot read \S+pipe: it may be read more than once, but is a pipe; give a file"
        fails("evaluate", "--hypothesis", names[0], "--reference", names[1], message=message)


def test_documents_are_counted_as_they_stand_in_the_file(run, tmp_path, bad):
    """Those that are left out, for they have no pairs of sentences, count."""
    for side in ("en", "de"):
        (tmp_path / f"test.{side}").write_text("<d>\nIt is cheap.\n<d>\n<d>\nBAD.\n")
    outcome = call("score", run, tmp_path / "test.en", tmp_path / "test.de")
    assert f"error: {tmp_path}/test.en, document 3: {bad}" in outcome.err
    outcome = call("translate", run, tmp_path / "test.en", "--input.layout", "lines", *QUICK)
    assert f"error: {tmp_path}/test.en, document 3: {bad}" in outcome.err
