"""Options as people write them: shortened, with hyphens, without `true`; arguments by name; paths with dashes."""

import argparse
import os
from pathlib import Path

import pytest
from commands import call, fails

from docmt.cli.spelling import closest, short_name, spelled_out
from docmt.core.errors import DocmtError


def actions():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", "--output")
    parser.add_argument("-q", "--quiet", type=bool)
    parser.add_argument("--input.join_lines", type=bool)
    parser.add_argument("--search.beam", type=int)
    parser.add_argument("--model.layers", type=int)
    parser.add_argument("--model.group.layers", type=int)
    parser.add_argument("--model.concat.sentences", type=int)
    parser.add_argument("--model.context.sentences", type=int)
    return parser._actions


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("--beam 3", "--search.beam 3"),
        ("--beam=3", "--search.beam=3"),
        ("--search.beam 3", "--search.beam 3"),
        ("--join-lines", "--input.join_lines=true"),
        ("--input.join-lines f", "--input.join_lines=true f"),
        ("--join_lines false f", "--input.join_lines=false f"),
        ("--join_lines=false f", "--input.join_lines=false f"),
        ("-q m", "--quiet=true m"),
        ("m s --quiet", "m s --quiet=true"),
        ("--layers 1", "--model.layers 1"),
        ("--group.layers 1", "--model.group.layers 1"),
        ("--context.sentences 1", "--model.context.sentences 1"),
        ("f --model m --source=s", "m s f"),
        ("--source s f --model m", "m s f"),
        ("--model m s", "m s"),
        ("--store=s", "--output=s"),
        ("-o x -- -dash --beam - plain", "-o x ./-dash ./--beam - plain"),
        ("--unknown 1 --beam", "--unknown 1 --search.beam"),
        ("-o --beam=1", "-o --search.beam=1"),
    ],
)
def test_what_the_parser_reads(written, read):
    assert spelled_out(written.split(), actions(), {"store": "output"}) == read.split()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("--sentences 2", "--sentences may be --model.concat.sentences or --model.context.sentences: write which"),
        ("--source s m", "--source needs --model before it: name both, or neither"),
    ],
)
def test_what_may_mean_several_things(written, message):
    with pytest.raises(DocmtError, match=message):
        spelled_out(written.split(), actions())


def test_the_shortest_names_mean_the_option_itself():
    options = [string for action in actions() for string in action.option_strings]
    assert [short_name(option, options) for option in options if option.startswith("--model.")] == [
        "--layers",
        "--group.layers",
        "--concat.sentences",
        "--context.sentences",
    ]
    for option in options:
        if option.startswith("--"):
            assert spelled_out([f"{short_name(option, options)}=true"], actions()) == [f"{option}=true"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("--search.baem", "--search.beam"),
        ("--baem", "--search.beam"),
        ("--beam_size", "--search.beam"),
        ("--beam-size", "--search.beam"),
        ("--model", ""),
        ("outptu", "output"),
    ],
)
def test_hints_are_right_or_there_are_none(name, hint):
    dashes = "--" if name.startswith("--") else ""
    assert closest(name, [f"{dashes}output", f"{dashes}search.beam", f"{dashes}seed", f"{dashes}help"]) == hint


def test_a_command_is_found_by_its_letters():
    fails("tranlsate", message=r"unknown command 'tranlsate': did you mean translate\?")
    assert call("help", "translate") == call("translate", "--help")


@pytest.mark.parametrize("command", ["translate", "train", "prepare", "score", "evaluate", "reproduce", "convert"])
def test_help_begins_with_examples_and_common_options(command):
    text = call(command, "--help").out
    places = [text.index(f"\n{title}:\n") for title in ("examples", "common options", "options")]
    assert places == sorted(places)
    examples = text[places[0] : places[1]].strip().splitlines()[1:]
    assert examples
    for example in examples:
        line = example.strip().split("|")[-1].split(">")[0].split()
        assert line[0] == "docmt"
        assert "unknown option" not in call(*line[1:], "--print_config").err


def test_paths_of_any_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"-d\xff\xfe.txt")
    Path(name).write_text("a b c\n")
    outcome = call("prepare", "--store", f"./{name}.store", "--vocabulary_size", "265", "--train", "--", name, name)
    assert outcome.status == 0, outcome.err
    assert (tmp_path / f"{name}.store" / "statistics.json").is_file()
    fails("train", f"--store={name}.store", f"--run={name}", "--seed", "x", message=r"--seed is 'x': give a whole")
    fails("score", "no", "--", name, name, message=r"there is no directory no: give a model directory")


@pytest.mark.parametrize("written", [["--resume", "null"], ["--resume=~"], ["--resume=-dash"]])
def test_a_run_may_have_any_name(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("train", *written, message=r"there is no run to resume in (./null|./~|-dash) \(recipe.yaml is missing\)")
    run = Path(written[-1].rpartition("=")[2])
    run.mkdir()
    (run / "recipe.yaml").write_text(f"data: none\nrun: {tmp_path}\n")
    fails("train", *written, message=r"the store of the run (null|~|-dash), none .* is not there")
