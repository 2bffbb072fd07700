"""Standard streams, names and places that are not what one expects."""

import os
import subprocess
import sys

import pytest
from commands import QUICK, call
from harness import TEXT, Child, check_outcome, keeps_to_the_contract

pytestmark = pytest.mark.full


def reader_that_went_away():
    """The end of a pipe that nobody reads."""
    inputs, writing = os.pipe()
    os.close(inputs)
    return writing


STREAMS = {
    "closed": lambda: Child.CLOSED,
    "a reader that went away": reader_that_went_away,
    "a full disk": lambda: os.open("/dev/full", os.O_WRONLY),
    "a file": lambda: None,
}


def test_streams_that_do_not_take_what_is_said(cases, run, source, store, corpus, tmp_path):
    expected = call("translate", run, source, *QUICK).out
    pair = [corpus / "test.en", corpus / "test.de"]
    commands = [
        ["translate", run, source, *QUICK],
        ["translate", run, source, "-o", tmp_path / "out.txt", *QUICK],
        ["score", run, *pair],
        ["evaluate", "--hypothesis", pair[1], "--reference", pair[1]],
        ["translate", run, tmp_path / "none.txt"],
        ["reproduce", "--list"],
        ["--help"],
    ]
    for chance in cases(14, "streams that do not take what is said"):
        command = chance.choice(commands)
        out, err = chance.choice(list(STREAMS)), chance.choice(list(STREAMS))
        child = Child(
            tmp_path, *command, out=STREAMS[out](), err=STREAMS[err](), encoding=chance.choice(["utf-8", "ascii"])
        )
        outcome = child.end()
        assert outcome.status in (0, 2), (command, out, err, outcome)
        if err == "a file":
            check_outcome(outcome, (command, out, err))
        if command is commands[0] and out == "a file":
            assert (outcome.status, outcome.out) == (0, expected)
        if command is commands[1]:
            assert outcome.status == 0
            assert (tmp_path / "out.txt").read_text() == expected
        if command is commands[0] and out in ("closed", "a full disk"):
            assert outcome.status == 2


def test_names_that_are_no_text(cases, run, prepare, train, tmp_path):
    for number, chance in enumerate(cases(3, "odd names")):
        name = chance.choice(
            [
                b"\xff",
                b"a\nb",
                b"\xe2\x80\xae",
                b" ",
                b"'\"`$(x)",
                b"-",
                b"--",
                b"{}%s",
                b"[a]*?",
                b"\x1b[2J",
                b"x" * 240,
            ]
        )
        folder = tmp_path / str(number) / os.fsdecode(name)
        folder.mkdir(parents=True)
        source = folder / os.fsdecode(name + b".txt")
        source.write_text(TEXT)
        keeps_to_the_contract("translate", run, source, "-o", folder / os.fsdecode(name), *QUICK, statuses=(0,))
        keeps_to_the_contract("translate", run, source, "-o", folder / "j", "--format=jsonl", *QUICK)
        keeps_to_the_contract("score", run, source, source, statuses=(0,))
        keeps_to_the_contract(*prepare, "--store", folder / "s", statuses=(0,))
        keeps_to_the_contract("translate", folder / "none", source)
        keeps_to_the_contract("evaluate", "--hypothesis", source, "--reference", folder / "none")
        keeps_to_the_contract("train", "--store", folder / "s", *train[3:], "--run", folder / "r", statuses=(0,))


PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        (PLAIN, ["prepare", "--store", "s", "--train", "a.jsonl", "--tokenizer"]),
        ({"PYTHONIOENCODING": "ascii"}, ["translate", "wört.txt", "-o", "out.txt", *QUICK]),
    ],
)
def test_a_terminal_that_knows_no_letters(variables, command, cases, run, tmp_path):
    for _ in cases(1, "terminals without letters"):
        record = '{"id": "dök\\u001b[31m", "source": ["Ä ß."], "target": ["Ö."]}\n'
        (tmp_path / "a.jsonl").write_text(record, encoding="utf-8")
        (tmp_path / "wört.txt").write_text("Ä ß.\n", encoding="utf-8")
        model = str(run / "model")
        arguments = [*command, model] if command[0] == "prepare" else [command[0], model, *command[1:]]
        process = subprocess.run(
            [sys.executable, "-m", "docmt.cli.app", *arguments],
            env={**os.environ, **variables},
            cwd=tmp_path,
            capture_output=True,
        )
        assert process.returncode == 0, process
        assert b"Traceback" not in process.stderr
        assert b"\x1b" not in process.stdout + process.stderr
        assert (tmp_path / ("s" if command[0] == "prepare" else "out.txt")).exists()
