"""Options, recipes and help: what is wrong is named with its place, and nothing of Python shows."""

import dataclasses
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import yaml
from commands import call, fails

from docmt.cli.app import COMMANDS
from docmt.cli.model_arguments import resolve_model_names
from docmt.core.settings import field_types, format_flag
from docmt.data import PrepareConfig
from docmt.decoding import SearchConfig
from docmt.training import TrainConfig

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("[!e]*/*.yaml"))  # not recipes/experiments
TRAIN = ["train", "--store", "store", "--run", "run"]
PREPARE = ["prepare", "--store", "s", "--train", "a", "b"]
MOSES = ["--tokenizer", "moses-bpe", "--source-language", "en"]
EVALUATE = ["evaluate", "--hypothesis", "a", "--reference", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tranlsate"], r"unknown command 'tranlsate': did you mean translate\?"),
        (["fly"], r"unknown command 'fly': choose one of prepare, train, average"),
        (["--verbose"], r"unknown option '--verbose': choose one of prepare"),
        (["train"], r"--store and --run are missing; a whole command is: docmt train"),
        (["train", "--run", "x"], r"--store is missing; a whole command is"),
        (["prepare"], r"--store and --train are missing"),
        (["translate"], r"MODEL is missing; a whole command is"),
        (["score", "model"], r"SOURCE is missing; a whole command is"),
        (["evaluate"], r"name --hypothesis and --reference, or --model, --source and --reference, or --systems"),
        (["evaluate", "--model", "m"], r"m is a model, which needs --source: name the file to translate"),
        (["evaluate", "--hypothesis", "a"], r"a needs --reference: name the file"),
        ([*EVALUATE, "--metrics.unit", "instance"], r"a is a file, which has no instances"),
        (["probe"], r"MODEL is missing; a whole command is"),
        (["probe", "m"], r"name test sets \(--suite\), or a corpus"),
        (
            [*EVALUATE, "--metrics.unit", "page"],
            r"--metrics.unit is 'page': choose one of document, sentence, paragraph, instance",
        ),
        (
            [*EVALUATE, "--metrics.protocol", "han"],
            r"--metrics.protocol is 'han': choose one of gtransformer, zhang2018,",
        ),
        ([*EVALUATE, "--metrics.protocol", "rfa"], r"--metrics.protocol rfa needs (--)?metrics.language"),
        (
            [*EVALUATE, "--metrics.protocol", "gtransformer", "--metrics.language", "de"],
            r"a is a file, which has no instances: score only models with --metrics.protocol gtransformer",
        ),
        ([*EVALUATE, "--metrics.tokenize", "14a"], r"--metrics.tokenize is '14a': choose one of none, zh, 13a"),
        ([*TRAIN, "--model.widht", "3"], r"unknown option --model.widht; did you mean --model.width\?"),
        ([*TRAIN, "--model.widht=3"], r"unknown option --model.widht; did you mean --model.width\?"),
        ([*TRAIN, "--quickly"], r"unknown option --quickly; see docmt train --help"),
        ([*TRAIN, "--gate-bias", "1e9"], r"--model.group.gate-bias is 1000000000.0: choose"),
        (
            [*TRAIN, "--sentences", "1"],
            r"--sentences may be --model.concat.sentences or .*--model.cadec.sentences: wri",
        ),
        ([*TRAIN, "--batch-size", "1"], r"unknown option --batch-size; did you mean --batches.batch-tokens\?"),
        ([*TRAIN, "--lr", "1"], r"unknown option --lr; did you mean --optimizer.learning-rate\?"),
        (
            [*TRAIN, "--model.source-vocabulary-size", "9"],
            r"--model.source-vocabulary-size is only for (--)?model.family thumt",
        ),
        ([*TRAIN, "--see", "3"], r"unknown option --see; did you mean --seed\?"),
        ([*TRAIN, "more"], r"unexpected argument 'more'; whole commands are: docmt train --store"),
        ([*TRAIN, "--seed"], r"--seed has no value: give a whole number"),
        ([*TRAIN, "--model.width", "wide"], r"--model.width is 'wide': give a whole number"),
        ([*TRAIN, "--model.width", "1.5"], r"--model.width is '1.5': give a whole number"),
        ([*TRAIN, "--model.width", "-4"], r"--model.width is -4: choose a number from 0 to 65,536"),
        ([*TRAIN, "--model.width", "15"], r"--model.width is 15: choose an even multiple of (--)?model.heads .8"),
        ([*TRAIN, "--model.dropout", "1.5"], r"--model.dropout is 1.5: choose a number from 0 to 0.99"),
        ([*TRAIN, "--model.dropout", "high"], r"--model.dropout is 'high': give a number"),
        ([*TRAIN, "--model.dropout", ".nan"], r"--model.dropout is nan: choose a number from 0"),
        (
            [*TRAIN, "--model.group.self-locality", "perhaps"],
            r"--model.group.self-locality is 'perhaps': choose true or false",
        ),
        ([*TRAIN, "--model.system", "big"], r"--model.system is 'big': choose one of sentence, document, group"),
        (
            [*TRAIN, "--model.system", "sentence", "--model.group.top-attention", "group"],
            r"--model.group.top-attention is set, but (--)?model.system is sentence: leave it out, or set",
        ),
        (
            [*TRAIN, "--model.concat.window-decoding", "all"],
            r"--model.concat.window-decoding is 'all': choose one of last, prefix",
        ),
        (
            [*TRAIN, "--model.group.top-atention", "group"],
            r"unknown option --model.group.top-atention; did you mean --model.group.top-attention\?",
        ),
        ([*TRAIN, "--model.group.global-start", "local"], r"global-start is set but (--)?initialize.from is not"),
        ([*TRAIN, "--model", "big"], r"--model is a group of options, such as --model.preset"),
        ([*TRAIN, "--stop.patience", "0"], r"the training would never end: set one of (--)?stop.max.steps"),
        (["convert", "huggingface", "d", "-o", "m", "--keep-vocabulary", "a"], "takes 2 values: give a path"),
        ([*TRAIN, "--log-every", "0"], r"--log-every is 0: choose a number from 1 to 1,000,000,000"),
        (["train", "--resume"], r"--resume has no value: give a path"),
        (["train", "--config"], r"--config needs the path of a YAML file"),
        (["train", "none.yaml"], r"cannot read none.yaml: there is no such file"),
        (["train", "--config=none.yaml"], r"cannot read none.yaml: there is no such file"),
        ([*PREPARE, "c"], r"--train names 3 files; give one JSONL file, or a source and a target file"),
        ([*PREPARE, "--vocabulary-size", "many"], r"--vocabulary-size is 'many': give a whole number"),
        (
            [*PREPARE, "--tokenizer", "words"],
            r"--tokenizer is 'words', and there is no such directory: choose one of bpe, sentencepiece, moses-bpe",
        ),
        (
            [*PREPARE, "--tokenizer", "moses-bpe"],
            r"--tokenizer moses-bpe depends on the languages; add --source-language",
        ),
        (
            [*PREPARE, *MOSES, "--target-language", "german"],
            r"--target-language 'german' is not the code of a language",
        ),
        ([*PREPARE, "--instance-tokens", "2"], r"--instance-tokens is 2: choose a number from 3 to"),
        ([*PREPARE, "--overwrite", "perhaps"], r"--overwrite is 'perhaps': choose true or false"),
        (["evaluate", "a", "b"], r"unexpected argument 'a'; whole commands are: docmt evaluate --hypothesis"),
        (["score", "--target", "t", "m"], r"SOURCE is missing; a whole command is"),
        (["prepare", "--store", "s", "--train"], r"--train has no value: give a path"),
        ([*EVALUATE, "--suite", "s"], r"unknown option --suite; docmt probe has it"),
        ([*EVALUATE, "--context-ablation"], r"unknown option --context-ablation; docmt probe has it"),
        (
            [*EVALUATE, "--cxmi.replaced-sentences", "3"],
            r"unknown option --cxmi.replaced-sentences; docmt probe has it",
        ),
        (
            ["translate", "m", "f", "--layout", "lines", "--join-lines"],
            r"--input.join-lines needs running text, not --input.layout lines: leave one of them out",
        ),
        (["translate", "m", "f", "--format", "xml"], r"--format is 'xml': choose one of auto, text, jsonl"),
        (["translate", "m", "f", "--search.beam", "0"], r"--search.beam is 0: choose a number from 1 to"),
        (
            ["translate", "m", "f", "--search.n-best", "9"],
            r"--search.n-best is 9 but the beam is 5: choose at most the beam",
        ),
        (["translate", "m", "f", "--sampling"], r"--search.sampling needs --search.beam 1: set it"),
        (["translate", "m", "f", "--seed", "3"], r"--search.seed has no effect without --search.sampling"),
        (["serve", "m", "--search.sampling"], r"unknown option --search.sampling"),
        (["merge", "a"], r"--output is missing; a whole command is: docmt merge"),
        (["bulk", "a", "b", "-o", "d", "--samples", "0"], r"--samples is 0: choose a number from 1"),
        (["translate", "m", "f", "--search.n-best", "2"], r"--search.n-best above 1 needs --format jsonl"),
        (
            ["translate", "m", "f", "--search.length-penalty", ".nan"],
            r"--search.length-penalty is nan: choose a number from",
        ),
        (["translate", "m", "f", "--search.max-length-ratio", ".inf"], r"--search.max-length-ratio is inf: choose"),
        (
            ["translate", "m", "f", "--search.max-length-extra", "0"],
            r"--search.max-length-extra is 0.0: choose at least 1",
        ),
        (
            ["translate", "m", "f", "--input.layout", "page"],
            r"--input.layout is 'page': choose one of auto, text, lines",
        ),
        (["translate", "m", "f", "-o"], r"-o has no value: give one"),
        (["score", "m", "a", "b", "--search.n-best", "2"], r"unknown option --search.n-best"),
        (
            ["translate", "m", "f", "--search.beam", "3", "--search.beam=4"],
            r"--search.beam is there twice: give it once",
        ),
        (["translate", "m", "f", "-o", "x", "--output", "y"], r"--output is there twice: give it once"),
        ([*EVALUATE, "--json", "c", "--json", "c"], r"--json is there twice: give it once"),
        ([*TRAIN, "--run", "r"], r"--run is there twice: give it once"),
        (
            ["translate", "m", "f", "--search.temperature", "0"],
            r"--search.temperature is 0.*: choose a number from 0.001",
        ),
    ],
)
def test_options_that_do_not_fit(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(*arguments, message=message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("store: a\nrun: [\n", r"recipe.yaml, line 3: not valid YAML"),
        ("store: a\nrun: b\n\tseed: 3\n", r"recipe.yaml, line 3: not valid YAML"),
        ("store: a\0b\n", r"recipe.yaml: not valid YAML"),
        ("store: caf\xe9\n", r"recipe.yaml, line 1, byte 11: not UTF-8 .*looks like Latin-1"),
        ("", r"recipe.yaml is empty: write options into it"),
        ("# nothing\n", r"recipe.yaml is empty"),
        ("- a\n", r"recipe.yaml does not consist of `option: value` lines"),
        ("? [a, b]\n: 3\n", r"recipe.yaml, line 1: not an `option: value` line"),
        ("store: a\nrnu: b\n", r"recipe.yaml, line 2: unknown option rnu; did you mean run\?"),
        ("model:\n  # sizes\n  widht: 3\n", r"recipe.yaml, line 3: unknown option model.widht; did you mean"),
        ("colour: red\n", r"recipe.yaml, line 1: unknown option colour; see docmt train --help"),
        ("store: a\nseed: 1\nseed: 2\n", r"recipe.yaml, line 3: seed is set twice; remove one of the lines"),
        (
            "model: {system: a}\nrun: b\nsystem: c\n",
            r"recipe.yaml, line 3: model.system is set here and in recipe.yaml, line 1: write it once",
        ),
        ("store: a\nrun:\n", r"recipe.yaml, line 2: run has no value; write one after the colon"),
        ("store: [a, b]\n", r"recipe.yaml, line 1: store takes one value"),
        ("store: {a: b}\n", r"recipe.yaml, line 1: store takes one value"),
        (
            "model: 5\n",
            r"recipe.yaml, line 1: model is a group of options, such as model.preset; see docmt train --help",
        ),
        ("store: a\nrun: b\nseed: one\n", r"recipe.yaml, line 3: seed is 'one': give a whole number"),
        (
            "store: a\nrun: b\nmodel:\n  preset: huge\n",
            r"recipe.yaml, line 4: model.preset is 'huge': choose one of tiny",
        ),
        (
            "store: a\nrun: b\nmodel:\n  dropout: 3\n",
            r"recipe.yaml, line 4: model.dropout is 3.0: choose a number from 0",
        ),
        ("run: b\n", r"--store is missing"),
    ],
)
def test_recipes_that_do_not_fit(recipe, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_bytes(recipe.encode("latin1"))
    fails("train", "recipe.yaml", message=message)
    fails("train", "--config", "recipe.yaml", message=message)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


def test_recipes_of_other_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("store: s\ntrain: [a, b]\ninstance_tokens: 2\n")
    fails("prepare", "p.yaml", message=r"p.yaml, line 3: instance_tokens is 2: choose a number from 3 to")
    fails("train", "p.yaml", message=r"p.yaml, line 2: unknown option train; see docmt train --help")
    Path("good.yaml").write_text("store: d\nrun: r\nseed: 1\n")
    fails("train", "good.yaml", "--seed", "x", message=r"^docmt: error: --seed is 'x'")
    fails("train", "good.yaml", "--seed=x", message=r"^docmt: error: --seed is 'x'")
    Path("t.yaml").write_text("search:\n  beam: 4\n  length_penalty: .inf\n")
    fails("translate", "m", "f", "--config", "t.yaml", message=r"t.yaml, line 3: search.length_penalty is inf: choose")


class ParsedError(Exception):
    """Raised instead of doing the work."""


@pytest.fixture
def parsed(monkeypatch):
    """A function that gives the configuration a command would work with."""
    seen = []

    def record(config, **_):
        seen.append(config)
        raise ParsedError

    for function in ("docmt.training.train", "docmt.data.prepare"):
        monkeypatch.setattr(function, record)

    def config_of(*arguments):
        with pytest.raises(ParsedError):
            call(*arguments)
        return seen.pop()

    return config_of


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_recipes_can_be_used(path, parsed):
    written = yaml.safe_load(path.read_text())
    if path.stem.startswith("prepare"):
        config = parsed("prepare", path, "--train", "a", "b")
        assert str(config.store) == written["store"]
    else:
        config = parsed("train", path)
        assert (str(config.store), str(config.run)) == (written["store"], written["run"])
        assert resolve_model_names(TrainConfig.from_dict(written), "initialize_from") == config


def test_flags_go_before_recipes_and_later_recipes_before_earlier(tmp_path, parsed):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("store: d\nrun: r\nseed: 5\nmodel: {width: 64, preset: tiny}\ninitialize_from: null\n")
    two.write_text("model.width: 32\nstop:\n  max_steps: 9\n")
    config = parsed("train", one, "--config", two, "--seed", 6, "--model.dropout=0")
    assert (config.model.width, config.model.preset, config.model.dropout) == (32, "tiny", 0.0)
    assert (config.stop.max_steps, config.seed, config.initialize_from) == (9, 6, None)


def test_a_list_that_is_there_twice_is_one_list(tmp_path, parsed):
    """Of several corpora none is dropped."""
    expected = [Path(name) for name in ("a", "b", "c", "d", "e.jsonl")]
    config = parsed("prepare", "--train", "a", "b", "--store", "s", "--train", "c", "d", "--train=e.jsonl")
    assert (config.train, config.store) == (expected, Path("s"))
    assert parsed("prepare", "--train=e.jsonl", "--store", "s", "--train", "c", "d").train == [
        Path("e.jsonl"),
        Path("c"),
        Path("d"),
    ]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("store: s\ntrain: [x, y]\n")
    assert parsed("prepare", recipe, "--train", "a", "b", "--train", "c", "d").train == expected[:4]
    assert parsed("prepare", recipe).train == [Path("x"), Path("y")]


def test_words_that_yaml_takes_for_something_else(tmp_path, parsed):
    recipe = tmp_path / "recipe.yml"
    recipe.write_text('store: 2024\ntrain: [on, "off"]\nsource_language: no\ntarget_language: "null"\n')
    config = parsed("prepare", recipe)
    assert (config.source_language, config.target_language, str(config.store)) == ("no", "null", "2024")
    assert [str(path) for path in config.train] == ["on", "off"]


def test_a_printed_recipe_is_a_recipe(tmp_path, parsed):
    outcome = call("train", "--store", "d", "--run", "r", "--stop.max-steps", 7, "--print-config")
    assert outcome.status == 0
    path = tmp_path / "recipe.yaml"
    path.write_text(outcome.out)
    assert parsed("train", path) == parsed("train", "--store", "d", "--run", "r", "--stop.max-steps", 7)


def help_of(command, *topic):
    outcome = call(command, "--help", *topic)
    assert (outcome.status, outcome.err) == (0, "")
    return outcome.out


def flags(settings, prefix=""):
    """The flags of all fields of a dataclass."""
    for field in dataclasses.fields(settings):
        inner = field.default_factory
        if dataclasses.is_dataclass(inner):
            yield from flags(inner, f"{prefix}{field.name}.")
        else:
            yield format_flag(f"{prefix}{field.name}")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_for_people(command):
    text = help_of(command)
    assert re.match(rf"usage: docmt {command} ", text)
    text += help_of(command, "all")
    for jargon in ("<class", "Literal", "null", "None", "type:", "CONFIG", "Namespace", "dataclass", "bool", "str,"):
        assert jargon not in text
    for paragraph in re.split(r"\n(?=  -|\n)", text):
        if paragraph.startswith("  -"):
            assert len(paragraph.split(maxsplit=2)) == 3, f"no word of explanation: {paragraph}"


@pytest.mark.parametrize(
    ("command", "settings", "prefix"),
    [("train", TrainConfig, ""), ("prepare", PrepareConfig, ""), ("translate", SearchConfig, "search.")],
)
def test_help_lists_every_setting(command, settings, prefix):
    listed = re.findall(r"^  (?:-o, |-q, |-h, |--[\w-]+, )?(--[\w.-]+)", help_of(command, "all"), re.M)
    assert len(listed) == len(set(listed)), "an option is there twice"
    assert set(flags(settings, prefix)) <= set(listed)
    assert (
        command != "train" or len(listed) == len(set(flags(settings))) + 5
    )  # --help, --config, --print-config, --quiet, --resume


@pytest.mark.parametrize("command", COMMANDS)
def test_the_short_help_fits_a_screen_and_its_topics_hold_all_other_options(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(command)
    assert text.count("\n") <= 45
    assert [line for line in text.partition("\nexamples:")[0].splitlines() if len(line) > 80] == []
    topics = " ".join(text.partition("--help ")[2].partition("\n\n")[0].split()).split(" | ")
    assert topics[-1] == "all"
    by_topic = "".join(help_of(command, topic) for topic in topics[:-1])
    assert {*re.findall(r"--[\w.-]+", help_of(command, "all"))} == {*re.findall(r"--[\w.-]+", by_topic)}


def test_the_help_of_one_option_and_of_an_unknown_topic():
    assert help_of("train", "warmup") == help_of("train", "--optimizer.warmup"[2:]) != help_of("train", "optimizer")
    assert "updates" in help_of("train", "warmup")
    fails("train", "--help", "optimzer", message=r"no options called 'optimzer'; did you mean optimizer\?")


def test_the_commands_are_listed():
    outcome = call("--help")
    assert outcome.status == 0
    for command, summary in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(summary)}$", outcome.out, re.M)
    assert re.findall(r"^(\w+):$", outcome.out, re.M) == ["train", "use", "measure", "files"]
    assert call() == (2, outcome.out, "")
    assert call("help") == call("-h") == outcome
    assert re.fullmatch(r"docmt \d+\.\d+\S*\n", call("--version").out)


def test_no_memory_is_no_unknown_option(monkeypatch):
    """What options there are is never guessed: out of memory on the way there is told as that."""

    def fail(*_):
        raise MemoryError

    field_types.cache_clear()
    monkeypatch.setattr(typing, "get_type_hints", fail)
    fails(*TRAIN, message=r"^docmt: error: out of memory")


SLOW = ("torch", "lightning_fabric")
QUICK = [["--help"], ["--version"], ["nonsense"], ["reproduce", "--list"]]
QUICK += [["completion", "bash"], ["evaluate", "--hypothesis", __file__, "--reference", __file__]]
QUICK += [[command, "--help"] for command in COMMANDS] + [["translate", "--nonsense"]]
MISTAKES = [[command, "--nonsense"] for command in COMMANDS]


def test_help_and_mistakes_do_not_wait_for_torch():
    script = f"""
import sys
from docmt.cli.app import main
for arguments in {[*QUICK, *MISTAKES]!r}:
    try:
        main(arguments)
    except SystemExit:
        pass
    assert not sys.modules.keys() & {SLOW!r}, arguments
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert process.returncode == 0, process.stderr[-2000:]


def test_recipes_take_hyphens_as_flags_do(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("batches: {batch-tokens: 123}\nlog-every: 7\n")
    printed = call("train", recipe, "--store", "s", "--run", "r", "--print-config")
    assert printed.status == 0, printed.err
    values = yaml.safe_load(printed.out)
    assert (values["batches"]["batch_tokens"], values["log_every"]) == (123, 7)
