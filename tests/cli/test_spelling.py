"""Options as people write them: shortened, with hyphens, without `true`; arguments by name; paths with dashes."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import call, fails

from docmt.cli.app import COMMANDS, load_command
from docmt.cli.options import SHORT_NAMES, Parser
from docmt.core.errors import DocmtError
from docmt.core.settings import option


@dataclass
class Group:
    layers: int = 0


@dataclass
class Sentences:
    sentences: int = 0


@dataclass
class Model:
    width: int = 0
    layers: int = 0
    group: Group = field(default_factory=Group)
    """group"""
    concat: Sentences = field(default_factory=Sentences)
    """concat"""
    context: Sentences = field(default_factory=Sentences)
    """context"""


@dataclass
class Search:
    beam: int = 0
    n_best: int = 0


@dataclass
class Text:
    join_lines: bool = False


@dataclass
class Try:
    model: str | None = option(None, positional=True, metavar="MODEL")
    source: str | None = option(None, positional=True, metavar="SOURCE")
    files: list[str] = option([], positional=True)
    output: str | None = option(None, flags=("-o",))
    only: list[str] = option([])
    input: Text = field(default_factory=Text)
    """input"""
    search: Search = field(default_factory=Search)
    """search"""


@pytest.fixture
def parser():
    made = Parser("try", Try, "docmt try\n\nTries.")
    made.add_settings(Model, "model", "model")
    return made


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("--beam 3", {"search.beam": "3"}),
        ("--beam=3", {"search.beam": "3"}),
        ("--search.beam 3", {"search.beam": "3"}),
        ("--n-best 3", {"search.n_best": "3"}),
        ("--search.n-best=3", {"search.n_best": "3"}),
        ("--width -4", {"model.width": "-4"}),
        ("--join-lines", {"input.join_lines": "true"}),
        ("--input.join-lines f", {"input.join_lines": "true", "model": "f"}),
        ("--join-lines false f", {"input.join_lines": "false", "model": "f"}),
        ("--join-lines=no f", {"input.join_lines": "false", "model": "f"}),
        ("-q m", {"quiet": "true", "model": "m"}),
        ("m s --quiet", {"quiet": "true", "model": "m", "source": "s"}),
        ("m --beam 1 s f g", {"search.beam": "1", "model": "m", "source": "s", "files": ["f", "g"]}),
        ("--group.layers 1", {"model.group.layers": "1"}),
        ("--context.sentences 1", {"model.context.sentences": "1"}),
        ("f --model m --source=s", {"model": "m", "source": "s", "files": ["f"]}),
        ("--source s f --model m", {"model": "m", "source": "s", "files": ["f"]}),
        ("--model m s", {"model": "m", "source": "s"}),
        ("--source s m", {"model": "m", "source": "s"}),
        ("--output=s", {"output": "s"}),
        (
            "-o x -- -dash --beam - plain",
            {"output": "x", "model": "-dash", "source": "--beam", "files": ["-", "plain"]},
        ),
        ("m s - -o -", {"model": "m", "source": "s", "files": ["-"], "output": "-"}),
        ("--only a b --only=c", {"only": ["a", "b", "c"]}),
        ("--only -- -a --b", {"only": ["-a", "--b"]}),
    ],
)
def test_what_the_parser_reads(written, read, parser):
    assert parser.read(written.split()) == (read, {})


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("--sentences 2", "--sentences may be --model.concat.sentences or --model.context.sentences: write which"),
        ("--layers 2", "--layers may be --model.layers or --model.group.layers: write which"),
        ("--unknown 1 --beam", "unknown option --unknown; see docmt try --help"),
        ("--join-line", r"unknown option --join-line; did you mean --input.join-lines\?"),
        ("-x", "unknown option -x; see docmt try --help"),
        ("-o --beam=1", "-o has no value: give one"),
        ("--beam", "--beam has no value: give a whole number"),
        ("--beam 1 --search.beam 2", "--search.beam is there twice: give it once"),
        ("--config", "--config needs the path of a YAML file"),
    ],
)
def test_what_does_not_fit(written, message, parser):
    with pytest.raises(DocmtError, match=message):
        parser.read(written.split())


NOT_SHORT = {("reproduce", "instance_tokens")}
"""Names of two options of a command."""


def test_a_short_name_means_one_option():
    """A new option cannot take a short name away: here somebody has to decide."""
    used = set()
    for command in COMMANDS:
        parser = load_command(command)[0]
        for each in parser.options:
            group, _, last = each.name.rpartition(".")
            if last in SHORT_NAMES.get(group, "").split():
                used.add((group, last))
                if (command, last) not in NOT_SHORT:
                    assert parser.names[last] is each, f"docmt {command} --{last}"
    assert used == {(group, name) for group, names in SHORT_NAMES.items() for name in names.split()}


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--search.baem", r"did you mean --search.beam\?"),
        ("--baem", r"did you mean --search.beam\?"),
        ("--beam_size", r"did you mean --search.beam\?"),
        ("--beam-size", r"did you mean --search.beam\?"),
        ("--modul", "see docmt try --help"),
        ("--outptu", r"did you mean --output\?"),
        ("--context_ablation", "docmt probe has it"),
        ("--rounds", "see docmt try --help"),
    ],
)
def test_hints_are_right_or_there_are_none(flag, hint):
    with pytest.raises(DocmtError, match=f"unknown option {flag}; {hint}$"):
        Parser("try", Try, "docmt try\n\nTries.").read([flag, "x"])


def test_a_command_is_found_by_its_letters():
    fails("tranlsate", message=r"unknown command 'tranlsate': did you mean translate\?")
    assert call("help", "translate") == call("translate", "--help")
    fails("help", "transalte", message=r"unknown command 'transalte': did you mean translate\?")


LONGEST = ["translate", "train", "prepare", "score", "evaluate", "probe", "reproduce", "convert"]


@pytest.mark.parametrize("command", LONGEST)
def test_help_ends_with_examples_that_are_understood(command):
    text = call(command, "--help").out
    examples = text.partition("\nexamples:\n")[2].splitlines()
    assert examples
    for example in examples:
        line = example.strip().split("|")[-1].split(">")[0].split()
        assert line[0] == "docmt"
        assert "unknown option" not in call(*line[1:], "--print-config").err


def test_paths_of_any_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"-d\xff\xfe.txt")
    Path(name).write_text("a b c\n")
    outcome = call("prepare", "--store", f"./{name}.store", "--vocabulary-size", "265", "--train", "--", name, name)
    assert outcome.status == 0, outcome.err
    assert (tmp_path / f"{name}.store" / "statistics.json").is_file()
    fails("train", f"--store={name}.store", f"--run={name}", "--seed", "x", message=r"--seed is 'x': give a whole")
    fails("score", "no", "--", name, name, message=r"there is no directory no. Name a model directory")


@pytest.mark.parametrize("written", [["--resume", "null"], ["--resume=~"], ["--resume=-dash"]])
def test_a_run_may_have_any_name(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("train", *written, message=r"there is no run to resume in (null|~|-dash) \(recipe.yaml is missing\)")
    run = Path(written[-1].rpartition("=")[2])
    run.mkdir()
    (run / "recipe.yaml").write_text(f"store: none\nrun: {tmp_path}\n")
    fails("train", *written, message="none is not a prepared store")
