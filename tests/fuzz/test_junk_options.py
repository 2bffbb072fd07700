"""Options: no value that anybody can type, as a flag or in a recipe, does more than be taken or be refused."""

import json
import re
from pathlib import Path

import pytest
from harness import is_refused, keeps_to_the_contract, options_of

from docmt.cli.app import COMMANDS
from docmt.core.settings import format_flag
from docmt.model.systems import SYSTEMS

pytestmark = pytest.mark.full

# What each command needs besides, with files that are not there: no work is done, whatever the option.
NEEDED = {
    "prepare": ["--store", "s", "--train", "none.en", "none.de"],
    "train": ["--store", "none", "--run", "r"],
    "translate": ["none", "none.txt"],
    "extract": ["none.html", "-o", "none.xlf"],
    "merge": ["none.xlf", "-o", "none.html"],
    "score": ["none", "none.en", "none.de"],
    "evaluate": ["--hypothesis", "none.en", "--reference", "none.de"],
    "probe": ["none", "--source", "none.en", "--reference", "none.de"],
    "check": ["none.en", "none.de"],
    "terms": ["check", "none.tsv"],
    "inspect": ["none", "none.en", "none.de"],
    "average": ["none", "none", "-o", "m"],
    "convert": ["fairseq-gtransformer", "none.pt", "--dictionary", "none.txt", "-o", "m"],
    "reproduce": ["figure3", "--store", "none", "--output", "o"],
    "demo": ["--output", "full/file"],
    "pull": ["none"],
    "serve": ["none"],
    "bulk": ["none", "none.jsonl", "-o", "d"],
}
# The slow parsers are asked less often: those of train and reproduce take a third of a second.
COUNTS = {"train": 18, "reproduce": 8}
NUMBERS = ["nan", ".nan", "inf", "-inf", ".inf", "1e999", "-1e999", "1e30", "-1e30", "9" * 30, "-" + "9" * 30]
NUMBERS += ["9" * 5000, "-1000000001", "9223372036854775808"]
WORDS = ["", " ", "-1", "0", "0x10", "1_0", "1.5", "-0.0", "٣", "true", "null", "None", "~", "[]", "{}", "[1", "{a: 1}"]
WORDS += ["!!python/object/apply:os.getcwd []", "&a [*a]", "\x1b]0;owned\x07", "\u202egnp", "\udcff", "a" * 10_000]
WORDS += ["../..", "/dev/null", "/dev/full", "-", "--", "--seed", "=", "@file", "%s%n", "{}", "$HOME", "a\nb", "😀"]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A working directory in which nothing is but a directory that a demonstration may not be written to."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without(arguments, option):
    """The arguments without those of an option."""
    kept = list(arguments)
    for flag in option.flags:
        if flag in kept:
            place = kept.index(flag)
            end = next((n for n in range(place + 1, len(kept)) if kept[n].startswith("-")), len(kept))
            del kept[place:end]
    return kept


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_of(command, cases, nowhere):
    options = options_of(command)
    for chance in cases(COUNTS.get(command, 40), "options"):
        option = chance.choice(options)
        if (command, option.name) == ("demo", "output"):
            continue  # a demonstration anywhere else would begin
        value = chance.choice(NUMBERS + WORDS)
        arguments = without(NEEDED.get(command, []), option)
        if chance.random() < 0.5:
            flag = chance.choice(option.flags)
            arguments += [f"{flag}={value}"] if flag.startswith("--") and chance.random() < 0.7 else [flag, value]
        else:
            Path("r.yaml").write_bytes(recipe(option.name, value, chance).encode("utf-8", "surrogateescape"))
            arguments += ["--config", "r.yaml"]
        may_succeed = option.name == "dry_run" or command == "models"
        keeps_to_the_contract(command, *arguments, statuses=(0, 2) if may_succeed else (2,))
        assert sorted(path.name for path in nowhere.iterdir() if path.name not in ("full", "r.yaml")) == []


def recipe(name, value, chance):
    """A YAML file with a setting, the value as it stands, in quotes, or as an item of a list."""
    *groups, last = name.split(".")
    written = chance.choice([value, json.dumps(value), f"[{value}]", f"{{{value}: {value}}}"])
    lines = [f"{'  ' * depth}{group}:" for depth, group in enumerate(groups)]
    return "\n".join([*lines, f"{'  ' * len(groups)}{last}: {written}\n"])


# The settings of reproduce are those of train; they are checked with the recipes that they change.
@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"reproduce"}))
def test_every_number_has_a_range(command, cases, nowhere):
    options = [option for option in options_of(command) if option.value_kind in (int, float)]
    for chance in cases(min(len(options), COUNTS.get(command, 20)), "numbers out of range"):
        option = chance.choice(options)
        value = chance.choice(NUMBERS)
        system = re.match(rf"model\.({'|'.join(SYSTEMS)})\.", option.name)
        needed = [*NEEDED.get(command, []), *([f"--model.system={system[1]}"] if system else [])]
        outcome = is_refused(command, *needed, f"--{option.name}={value}")
        assert re.search(rf"{format_flag(option.name)} is .*: (choose a number from|give a)", outcome.err), outcome.err


JUNK = ["tranlsate", "", "-", "--", "-x", "\x1b[2J", "\udcff", "train.yaml", "a\nb", "💥", "help", "--version=1"]


def test_arguments_in_any_order(cases, nowhere):
    for chance in cases(40, "heaps of arguments"):
        command = chance.choice(["translate", "score", "evaluate", "convert", "prepare"])
        heap = [*NEEDED[command], *chance.choices(WORDS + NUMBERS + JUNK, k=chance.randrange(3))]
        chance.shuffle(heap)
        keeps_to_the_contract(command, *heap)
        keeps_to_the_contract(chance.choice(JUNK), *heap)
