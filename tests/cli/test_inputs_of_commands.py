"""JSONL, compressed files and Markdown through the commands, and where what they write goes."""

import gzip
import json
import os
import re

import pytest
from commands import QUICK, call, fails

from docmt.documents import read_documents

AT_LIMIT = r"docmt: \d+ x sentences ended by the length limit, [^\n]+\n"


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def write(path, *documents):
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    return path


@pytest.fixture
def lists(tmp_path):
    """JSONL with documents in all forms, that with numbers alone included."""
    return write(
        tmp_path / "in.jsonl",
        {"id": "a", "source": ["It is cheap.", "42", "", "It is old."]},
        {"document": "b", "source": "She sees the dog."},
        {"document": "b", "source": "It is old."},
        {"id": "c", "text": "It is cheap. It is old."},
    )


@pytest.mark.full
def test_jsonl_is_translated_to_jsonl(run, lists, tmp_path):
    outcome = call("translate", run, lists)
    assert (outcome.status, outcome.err) == (0, "")
    found = rows(outcome.out)
    (tmp_path / "text.txt").write_text("It is cheap.\n")
    assert call("translate", run, tmp_path / "text.txt", "-o", tmp_path / "named.jsonl").status == 0
    assert rows((tmp_path / "named.jsonl").read_text())[0]["source"] == "It is cheap."
    assert [(row["document"], row["sentence"], row["source"]) for row in found] == [
        *[("a", 1, "It is cheap."), ("a", 2, "42"), ("a", 3, ""), ("a", 4, "It is old.")],
        *[("b", 1, "She sees the dog."), ("b", 2, "It is old."), ("c", 1, "It is cheap."), ("c", 2, "It is old.")],
    ]
    assert (found[2]["target"], found[2]["score"]) == ("", 0.0)
    assert all(isinstance(row["score"], float) for row in found)
    text = "It is cheap.\n42\n\nIt is old.\n"
    assert [text[slice(*row["source_span"])] for row in found[:4]] == [row["source"] for row in found[:4]]
    for data in (lists.read_bytes(), gzip.compress(lists.read_bytes())):
        assert call("translate", run, stdin=data).out == outcome.out
        assert call("translate", run, "--input.layout", "jsonl", stdin=data).out == outcome.out
    # As text: a sentence a line, running text as it was, an empty line between documents.
    targets = [row["target"] for row in found]
    expected = "\n".join([*targets[:4], "", *targets[4:6], "", " ".join(targets[6:])]) + "\n"
    assert call("translate", run, lists, "--format", "text").out == expected
    # What was written is read back as what was translated.
    (tmp_path / "out.jsonl").write_text(outcome.out)
    again = rows(call("translate", run, tmp_path / "out.jsonl", *QUICK).out)
    assert [(row["document"], row["source"]) for row in again] == [(row["document"], row["source"]) for row in found]


def test_what_docmt_writes_it_reads_everywhere(run, corpus, tmp_path):
    """Translations and scores as JSONL, compressed too, count as the text with the same sentences does."""
    source, reference = corpus / "test.en", corpus / "test.de"
    lines = ["--input.layout", "lines", *QUICK]
    text, translated = tmp_path / "out.txt.gz", tmp_path / "out.jsonl.gz"
    assert call("translate", run, source, *lines, "-o", text).status == 0
    assert call("translate", run, source, *lines, "--format", "jsonl", "-o", translated).status == 0
    references = tmp_path / "ref.jsonl"
    write(references, *({"id": id, "target": list(sentences)} for id, sentences in read_documents(reference)))
    by_text = call("evaluate", "--hypothesis", text, "--reference", reference)
    assert by_text.status == 0
    for hypothesis in (text, translated):
        for expected in (reference, references):
            assert call("evaluate", "--hypothesis", hypothesis, "--reference", expected) == by_text
    by_model = call("evaluate", "--model", run, "--source", source, "--reference", reference, *QUICK)
    assert by_model.out == by_text.out
    found = call("evaluate", "--model", run, "--source", translated, "--reference", references, *QUICK)
    assert found.out == by_text.out
    scored = call("score", run, translated, references, "--format", "jsonl")
    assert scored.status == 0
    assert scored.out == call("score", run, source, reference, "--format", "jsonl").out
    (tmp_path / "scored.jsonl").write_text(scored.out)
    assert call("score", run, tmp_path / "scored.jsonl", "--format", "jsonl").out == scored.out
    store = tmp_path / "store"
    assert call("prepare", "--store", store, "--train", tmp_path / "scored.jsonl", "--vocabulary-size", 300).status == 0
    documents = list(read_documents(source))
    statistics = json.loads((store / "statistics.json").read_text())["splits"]["train"]
    assert (statistics["documents"], statistics["sentences"]) == (6, sum(len(own) for _, own in documents))


def test_jsonl_without_the_side_that_is_needed(run, lists, corpus):
    missing = r"in\.jsonl, line 1: `target` is missing\. Add a list of sentences"
    fails("evaluate", "--hypothesis", lists, "--reference", corpus / "test.de", message=missing)
    fails("evaluate", "--hypothesis", corpus / "test.de", "--reference", lists, message=missing)
    fails("evaluate", "--model", run, "--source", lists, message=missing)
    fails("score", run, lists, message=missing)
    fails("score", run, corpus / "test.en", lists, message=missing)
    running = r"in\.jsonl, line 1: `source` is missing\. Add a list of sentences\. Running text \(`text`\)"
    fails("score", run, write(lists, {"text": "It is old."}), corpus / "test.de", message=running)


def test_lines_without_letters_are_kept_in_running_text_and_translated_in_corpora(run, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("It is cheap.\n42\n\n---\nIt is old.\n 00:01 \n")
    text = call("translate", run, path, "--format", "jsonl")
    assert [row["source"] for row in rows(text.out)] == ["It is cheap.", "It is old."]
    kept = call("translate", run, path).out
    assert re.fullmatch(r"[^\n]*\n42\n\n---\n[^\n]*\n 00:01 \n", kept)
    # A corpus has a sentence in every line; what a model makes of it is what it is scored and evaluated by.
    lines = rows(call("translate", run, path, "--layout", "lines", "--format", "jsonl", *QUICK).out)
    assert [row["source"] for row in lines] == ["It is cheap.", "42", "---", "It is old.", "00:01"]
    out = tmp_path / "out"
    arguments = ["--source", path, "--reference", path, "-o", out, *QUICK]
    assert call("evaluate", "--model", run, *arguments).status == 0
    assert [line for line in out.read_text().split("\n") if line] == [row["target"] for row in lines if row["target"]]


def test_evaluate_writes_as_many_lines_as_the_source_has(run, tmp_path):
    source, reference, out = (tmp_path / name for name in ("s", "t", "out"))
    for text in ("It is cheap.\n\n\nIt is old.\n\n", "\n<d>\nIt is cheap.\n\nIt is old.\n<d>\n", "It is cheap."):
        source.write_text(text)
        reference.write_text(text.replace("It is old.", "") if "<d>" in text else text)
        arguments = ["--source", source, "--reference", reference, "-o", out, *QUICK]
        assert call("evaluate", "--model", run, *arguments).status == 0
        lines = text.removesuffix("\n").split("\n")
        found = out.read_text()
        assert found.endswith("\n")
        for theirs, ours in zip(lines, found.removesuffix("\n").split("\n"), strict=True):
            assert (ours == "<d>") == (theirs == "<d>")
            assert bool(ours) == (bool(theirs) and not ("<d>" in text and theirs == "It is old."))


def test_a_pipe_cannot_be_read_twice(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    arguments = ["--source", tmp_path / "pipe", "--reference", tmp_path / "pipe", "-o", tmp_path / "out"]
    fails("evaluate", "--model", run, *arguments, message="it may be read more than once, but is a pipe; give a file")


def test_a_language_without_rules_is_told(run, tmp_path):
    (tmp_path / "text").write_text("It is old.\n")
    outcome = call("translate", run, tmp_path / "text", "--input.language", "xx")
    assert outcome.status == 0
    assert outcome.err.startswith("docmt: --input.language xx: there are no segmentation rules for this language")


def test_what_is_left_as_it_is_is_told_once(run, tmp_path):
    path = tmp_path / "x.md"
    path.write_text("It is old.\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n")
    outcome = call("translate", run, path)
    told = f"docmt: {path}: not translated: 1 x code (--report FILE lists them)\n"
    assert outcome.status == 0 and outcome.err.startswith(told)
    assert re.search(r"\n\n```\ncode\n```\n\n\| .* \| .* \|\n\|---\|---\|\n$", outcome.out)
    plain = tmp_path / "plain"
    plain.write_text("It is old.\n\n```\ncode\n```\n")
    outcome = call("translate", run, plain)
    assert (outcome.status, outcome.err) == (0, f"docmt: {plain}: not translated: 3 lines of code\n")
    assert outcome.out.endswith("\n\n```\ncode\n```\n")
    path = tmp_path / "x.txt"
    path.write_text("She sees the dog which is in the park\nand which is old and which she\n" * 4)
    outcome = call("translate", run, path, *QUICK)
    assert re.fullmatch(rf"docmt: {path}: looks hard-wrapped [^\n]+: add --join-lines\n" + AT_LIMIT, outcome.err)
    assert "wrapped" not in call("translate", run, path, "--input.join-lines", "true", *QUICK).err


def test_other_formats_are_refused_by_name(run, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>It is old.</p>\n")
    pdf = b"%PDF-1.4\n"
    fails("translate", run, stdin=pdf, message=r"standard input is a PDF document, which docmt does not read")
    outcome = call("translate", run, page, "--input.layout", "text", *QUICK)
    assert outcome.status == 0
    (tmp_path / "good.txt").write_text("It is old.\n")
    (tmp_path / "old.doc").write_text("It is old.\n")
    outcome = call("translate", run, tmp_path / "old.doc", tmp_path / "good.txt", "-o", tmp_path / "out", *QUICK)
    assert outcome.status == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"good.txt", "good.txt.partial"}
    assert "1 of 2 files could not be translated" in outcome.err


def test_names_in_the_output_directory(run, tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    one.write_text("It is old.\n")
    two.write_bytes(gzip.compress(b"It is old.\n"))
    lists = write(tmp_path / "three.jsonl", {"source": ["It is old."]})
    files = [one, two, lists]
    for format, names in (
        ("auto", ["one.txt", "three.jsonl", "two.txt.gz"]),
        ("jsonl", ["one.txt.jsonl", "three.jsonl", "two.txt.jsonl.gz"]),
        ("text", ["one.txt", "three.jsonl.txt", "two.txt.gz"]),
    ):
        out = tmp_path / format
        assert call("translate", run, *files, "-o", out, "--format", format, *QUICK).status == 0
        assert sorted(path.name for path in out.iterdir()) == names
        assert gzip.decompress((out / names[2]).read_bytes())
    message = r"3 files need a directory, but \S+out\.txt looks like a file: name a directory, such as out/"
    fails("translate", run, *files, "-o", tmp_path / "out.txt", message=message)
    assert not (tmp_path / "out.txt").exists()
    (tmp_path / "model.v2").mkdir()
    assert call("translate", run, *files, "-o", tmp_path / "model.v2", *QUICK).status == 0
    assert call("translate", run, *files, "-o", f"{tmp_path / 'new.v3'}/", *QUICK).status == 0


def test_several_translations_need_room(run, lists, tmp_path):
    """They go where the format is JSONL, chosen or by itself."""
    text, few = tmp_path / "one.txt", ("--search.n-best", 2, "--beam", 2, "--max-length-extra", 5)
    text.write_text("It is old.\n")
    written = call("translate", run, text, "-o", tmp_path / "one.jsonl", *few)
    assert written.status == 0
    for out in (call("translate", run, lists, *few).out, (tmp_path / "one.jsonl").read_text()):
        assert all(len(row["alternatives"]) == 1 for row in rows(out) if row["source"] not in ("", "42"))
    sentence = "above 1 needs --format jsonl"
    fails("translate", run, text, *few, message=sentence)
    fails("translate", run, lists, "--format", "text", *few, message=sentence)
    fails("translate", run, text, lists, "-o", f"{tmp_path / 'both'}/", *few, message=sentence)
    named = tmp_path / "lines.jsonl"
    named.write_text("It is old.\n")
    fails("translate", run, named, "--layout", "lines", *few, message=sentence)


def test_score_tells_of_long_sentences(run, tmp_path):
    long = write(tmp_path / "long.jsonl", {"source": ["x" * 300], "target": ["y"]})
    outcome = call("score", run, long)
    assert outcome.status == 0
    assert outcome.err.startswith("docmt: 1 x source sentences longer than an instance")


@pytest.mark.parametrize("flag", ["--train-docids", "--train_docids"])
def test_ids_of_documents_beside_a_corpus(tmp_path, flag):
    for name, text in (("s", "It is old.\nIt is cheap.\n"), ("t", "Er ist alt.\nEr ist billig.\n"), ("ids", "a\nb\n")):
        (tmp_path / name).write_text(text)
    files = ["--train", tmp_path / "s", tmp_path / "t", flag, tmp_path / "ids"]
    outcome = call("prepare", "--store", tmp_path / "store", *files, "--vocabulary-size", 270)
    assert (outcome.status, outcome.err.count("\n")) == (0, 1), outcome.err
    assert json.loads((tmp_path / "store" / "train" / "documents.json").read_text()) == ["a", "b"]


def test_prepare_suggests_a_system_that_reads_the_drafts(run, tmp_path):
    """The next step was a system that ignores them."""
    for name, text in (
        ("s", "It is old.\nIt is cheap.\n"),
        ("t", "Er ist alt.\nEr ist billig.\n"),
        ("d", "Es.\nEr.\n"),
    ):
        (tmp_path / name).write_text(text)
    files = ["--train", tmp_path / "s", tmp_path / "t", "--drafts", tmp_path / "d"]
    outcome = call("prepare", "--store", tmp_path / "a", *files, "--vocabulary-size", 270)
    train = "docmt: try: docmt train --store {} --run RUN --system multihop --initialize-from {}\n"
    model = "docmt: MODEL: the sentence model that wrote the drafts, which needs the tokenizer of this store\n"
    assert outcome.err == train.format(tmp_path / "a", "MODEL") + model
    languages = ["--source-language", "en", "--target-language", "de"]
    outcome = call("prepare", "--store", tmp_path / "b", *files, *languages, "--tokenizer", run)
    assert outcome.err == train.format(tmp_path / "b", run)


def test_help_shows_a_line_of_each_form():
    for command in ("translate", "score", "prepare"):
        shown = " ".join(call(command, "--help").out.split())
        assert '{"id": "a", "source": ["One.", "Two."]' in shown
        assert '{"document": "a", "source": "One."' in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "RUN", "s.en", "s.de", "-o", "s.en"],
        ["score", "RUN", "s.en", "s.de", "-o", "./s.de"],
        ["check", "s.en", "s.de", "--html", "s.de"],
        ["check", "s.en", "s.de", "--json", "link"],
        ["evaluate", "--hypothesis", "h.de", "--reference", "s.de", "--json", "h.de"],
        ["evaluate", "--hypothesis", "h.de", "--reference", "s.de", "--json", "hard"],
        ["evaluate", "--hypothesis", "h.de", "--reference", "s.en", "s.de", "--json", "s.de"],
        ["evaluate", "--systems", "h.de", "s.en", "--reference", "s.de", "--markdown", "s.de"],
        ["evaluate", "--systems", "h.de", "s.en", "--reference", "s.de", "--json", "h.de"],
        ["evaluate", "--model", "RUN", "--source", "s.en", "--reference", "s.de", "-o", "s.en"],
        ["probe", "RUN", "--suite", "s.jsonl", "--json", "s.jsonl"],
        ["probe", "RUN", "--source", "s.en", "--reference", "s.de", "--json", "s.de"],
    ],
    ids=" ".join,
)
def test_no_output_replaces_an_input(arguments, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    contents = {"s.en": "It is old.\n", "s.de": "Er ist alt.\n", "h.de": "Er ist neu.\n"}
    contents["s.jsonl"] = '{"source": ["A."], "candidates": [["B."], ["C."]], "correct": 0, "sentence": 0}\n'
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("s.en")
    (tmp_path / "hard").hardlink_to("h.de")
    (tmp_path / "RUN").symlink_to(run)
    fails(*arguments, message="is an input and would be overwritten by the output")
    assert {name: (tmp_path / name).read_text() for name in contents} == contents


def test_a_name_that_is_no_utf_8(run, tmp_path):
    """The name of the file is the id of its document, which a lone surrogate kept out of JSON."""
    source = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xf6sse.txt")
    with open(source, "w") as file:  # noqa: PTH123
        file.write("It is cheap.\n")
    outcome = call("translate", run, source, "--format", "jsonl", "-o", tmp_path / "out.jsonl", *QUICK)
    assert outcome.status == 0, outcome.err
    assert rows((tmp_path / "out.jsonl").read_text())[0]["document"] == f"{tmp_path}/gr\\xf6sse.txt"
