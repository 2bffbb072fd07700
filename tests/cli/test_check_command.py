"""docmt check: what it prints and writes, its status, and how fast its help is there."""

import json
import os
import subprocess
import sys

import pytest
from commands import call, fails


@pytest.fixture
def files(tmp_path):
    """A source and a translation with a wrong number and an address that is lost."""
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("We need 45 of them.\nSee https://example.org now.\n\nIt is old.\n")
    target.write_text("Wir brauchen 54 davon.\nSiehe dort.\n\nEs ist alt.\n")
    return source, target


def test_what_is_printed_and_written(files, tmp_path):
    outcome = call(
        "check", *files, "--json", tmp_path / "o.json", "--html", tmp_path / "o.html", "--target-language=de"
    )
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith("2 documents, 3 sentences, ? to de\n")
    assert "      1  number  numbers missing or added\n" in outcome.out
    assert "  “45” not in the translation; “54” not in the source\n" in outcome.out
    assert "    1:2 (line 2)  See https://example.org now.\n      -> Siehe dort.\n" in outcome.out
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["source"] == str(files[0]) and found["target"] == str(files[1])
    assert {kind: count for kind, count in found["counts"].items() if count} == {"number": 1, "url": 1}
    assert "<mark>https://example.org</mark>" in (tmp_path / "o.html").read_text()


def test_placeholders_by_patterns_of_the_user(tmp_path):
    source, target, patterns = (tmp_path / name for name in ("a.en", "a.fr", "p.txt"))
    source.write_text("Open @@A. b@@ now.\n")
    target.write_text("Ouvrez A. b.\n")
    patterns.write_text("@@.*?@@\n")
    for layout in ("auto", "text"):
        options = ("check", source, target, "--layout", layout, "--only", "placeholder")
        assert "no findings" in call(*options).out
        assert "“@@A. b@@” not in the translation" in call(*options, "--protect", patterns).out


@pytest.mark.full
def test_translations_of_docmt(run, corpus, tmp_path):
    written = call("translate", run, corpus / "test.en", "--layout", "lines", "--format", "jsonl", "--beam", 1)
    (tmp_path / "t.jsonl").write_text(written.out)
    outcome = call("check", tmp_path / "t.jsonl", "--json", "-")
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["target"] is None and found["sentences"] == written.out.count("\n")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ((), 0),
        (("--fail-on", "any"), 1),
        (("--fail-on", "loop", "number"), 1),
        (("--fail-on", "loop", "term"), 0),
        (("--only", "url", "--fail-on", "any"), 1),
        (("--only", "loop", "--fail-on", "any"), 0),
    ],
)
def test_status(files, options, status):
    assert call("check", *files, *options).status == status


def test_what_is_looked_for_and_shown(files):
    out = call("check", *files, "--only", "url").out
    assert "url" in out and "number" not in out
    out = call("check", *files, "--show", 0).out
    assert "“45”" not in out and "number" in out
    assert call("check", files[1], files[1], "--only", "number").out.endswith("no findings\n")


def test_what_strangers_wrote_does_not_move_the_cursor(files):
    files[0].write_text("We need 45 \x1b[2J of them.\nSee https://example.org\u202e now.\n\nIt is old.\n")
    out = call("check", *files).out
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[2J" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-on", "numbers"), "--fail-on is 'numbers': choose one of any, sentence_count, empty"),
        (("--only", "loop", "--fail-on", "url"), "--fail-on url is not checked: add it to --only"),
        (
            ("--show", 7, "--json", "-"),
            "--show is for the terminal, but standard output gets JSON or HTML: name a file",
        ),
        (
            ("--only", "loop", "--term-share", 0.5),
            "--check.term-share is for findings of kind term, which is not checked: add it to --only",
        ),
        (("--show", -1), "--show is -1: choose a number from 0"),
        (("--json", "-", "--html", "-"), "two outputs would both go to standard output: name a file for one of them"),
        (("--json", "none/there/x.json"), "cannot write none/there/x.json"),
        (("--length-factor", 0), "--check.length-factor is 0.0: choose a number from 1"),
        (("--layout", "pages"), "layout is 'pages': choose one of auto, text"),
    ],
)
def test_options_that_mean_nothing(files, options, message):
    fails("check", *files, *options, message=message)


def test_every_limit_is_of_a_kind():
    """But for what is said of the whole file. So its name tells which findings it is for."""
    from docmt.checking import KINDS, CheckConfig

    limits = {limit for limit in vars(CheckConfig()) if limit.partition("_")[0] not in KINDS}
    assert limits == {"source_language", "target_language", "certainty", "batch_sentences", "protect"}


def test_names_of_any_bytes(files, tmp_path):
    """JSON has no place for bytes that are no UTF-8, so that nothing was written."""
    name = files[1].rename(tmp_path / "\udcff.de")
    outcome = call("check", files[0], name, "--json", tmp_path / "o.json")
    assert (outcome.status, outcome.err) == (0, "")
    assert json.loads((tmp_path / "o.json").read_text())["target"] == str(name)


def test_files_that_are_not_there(files, tmp_path):
    fails("check", files[0], message="a.en has only one side. Name the file with its translation too.")
    fails("check", files[0], tmp_path / "none", message="cannot read .*none")
    os.mkfifo(tmp_path / "pipe")
    fails("check", files[0], tmp_path / "pipe", message="it is read more than once, but is")
    (tmp_path / "bad").write_bytes(b"caf\xe9\n")
    fails("check", files[0], tmp_path / "bad", message="bad, line 1, byte 4: not UTF-8")


def test_neither_torch_nor_metrics_are_loaded(files):
    script = (
        "import sys; from docmt.cli.app import main; main(sys.argv[1:]); "
        "print(sorted({'torch', 'sacrebleu', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    arguments = [sys.executable, "-c", script, "check", *map(str, files)]
    assert subprocess.run(arguments, capture_output=True, text=True).stderr == "[]\n"
