"""The commands of README.md and of the pages in docs/, typed as they stand there, at sizes that take seconds.

Lines of a block marked `sh` are run, in their order, in a folder with the files that the pages speak of. Lines of a
block marked `bash` need a GPU, several machines or hours: of these every `docmt` command is parsed, so that its options
exist. A block marked `yaml` whose first line is `# NAME.yaml` is written to that file before.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import docx
import numpy as np
import pytest
import torch
import yaml
from commands import QUICK, TINY, TINY_SENTENCE, call
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
NOT_RUN = ("make", "pip", "git")  # they are what runs the tests, or come before them
RECIPE = "store: STORE\nmodel: {system: group}\n"
# Settings of real models, and what makes a command quick instead.
SMALLER = {"prepare": ["--vocabulary-size", "400"], "translate": QUICK, "evaluate": QUICK, "inspect": QUICK}


class Line(NamedTuple):
    """A command of a page."""

    text: str
    run: bool
    """or only parsed"""


def blocks(page):
    """The (kind, text) of every block of code of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def lines(page):
    """The commands of a page."""
    found = []
    for kind, text in blocks(page):
        if kind in ("sh", "bash"):
            joined = re.sub(r"\s*\\\n\s*", " ", text)
            found += [Line(line, kind == "sh") for line in map(str.strip, joined.splitlines()) if line]
    return found


def make_folder(folder, corpus, store, run):
    """Write the files that pages name: corpora, two texts, STORE, RUN, MODEL, recipes and published checkpoints."""
    for path in corpus.iterdir():
        documents = path.read_text().split("\n\n")  # one of a file of records
        (folder / path.name).write_text("\n\n".join(documents[: 60 if "train" in path.name else 5]).rstrip() + "\n")
    shutil.copy(corpus / "test.de", folder / "mono.de")
    (folder / "report.txt").write_text("Anna bought a lamp yesterday.\nIt is quite cheap.\n")
    (folder / "letter.txt").write_text("Tom found an umbrella\nin the attic. It is old.\n")
    (folder / "book.md").write_text("# The umbrella\n\nTom found it in the attic. It is old.\n\n- It is cheap.\n")
    document = docx.Document()
    document.add_paragraph("Anna bought a ").add_run("lamp").bold = True
    document.save(folder / "report.docx")
    document.add_paragraph("It is quite cheap.")
    document.save(folder / "report-v2.docx")
    sides = (f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("en", "It is."), ("fr", "Oui.")))
    (folder / "archive.tmx").write_text(f"<tmx><header/><body><tu>{''.join(sides)}</tu></body></tmx>")
    (folder / "page.html").write_text("<p>It is <b>cheap</b>.</p>\n")
    (folder / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nIt is old.\n")
    (folder / "menu.json").write_text('{"items": [{"title": "It is new."}]}\n')
    (folder / "terms.tsv").write_text("source\ttarget\tkeep\numbrella\tSchirm\nlamp\tLeuchte\nDocker\t\tyes\n")
    shutil.copytree(run / "model", folder / "MODEL")
    shutil.copytree(run, folder / "RUN")
    (folder / "STORE").symlink_to(store)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    (folder / "gold.tsv").write_text("It is old .\tEr ist alt .\t1-1 2-2 3p3 4-4\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    write_gtransformer_checkpoint(folder)
    write_rfa_checkpoint(folder)
    write_thumt_checkpoint(folder)


def write_nllb(folder):
    """Write a directory of transformers in the layout of NLLB with a tiny random model."""
    transformers = pytest.importorskip("transformers")
    import hub
    from tiny_pretrained import SIZES

    directory = hub.nllb_spm(folder)
    torch.manual_seed(1)
    sizes = {**SIZES, "max_position_embeddings": 80, "vocab_size": directory.rows}
    config = transformers.M2M100Config(**sizes, forced_eos_token_id=None)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(directory.path)
    directory.path.rename(folder / "nllb-200-distilled-600M")


def write_gtransformer_checkpoint(folder):
    """Write a checkpoint of the code of Bao et al. (2021) with its dictionary."""
    data = DATA / "gtransformer_tiny"
    weights = load_file(data / "trained_partial" / "weights.safetensors")
    arguments = json.loads((data / "trained_partial" / "args.json").read_text())["args"]
    torch.save({"args": argparse.Namespace(**arguments), "model": weights}, folder / "checkpoint_best.pt")
    symbols = [line.split("\t")[1] for line in (data / "vocab.tsv").read_text().splitlines()]
    (folder / "dict.en.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols[4:-5]))


def write_rfa_checkpoint(folder):
    """Write a checkpoint of the code of Wu et al. (2022) with its dictionaries."""
    data = DATA / "rfa_tiny"
    values = json.loads((data / "rfa_sgate" / "args.json").read_text())
    weights = load_file(data / values["weights"])
    torch.save({"args": argparse.Namespace(**values["args"]), "model": weights}, folder / "rfa.pt")
    for side, language in (("src", "zh"), ("tgt", "en")):
        shutil.copy(data / f"dict.{side}.txt", folder / f"rfa.{language}.txt")


def write_thumt_checkpoint(folder):
    """Write a checkpoint of the code of Zhang et al. (2018): variables, parameters and vocabularies."""
    data = DATA / "context_tiny"
    values = json.loads((data / "both_gate" / "args.json").read_text())
    weights = load_file(data / "weights_common.safetensors")
    np.savez(folder / "model.npz", **{name: weights[name].numpy() for name in values["variables"]})
    (folder / "params.json").write_text(json.dumps(values["parameters"]))
    for side, size in (("zh", values["source_vocabulary_size"]), ("en", values["target_vocabulary_size"])):
        symbols = ["<pad>", "<eos>", "<unk>", *(f"{side}{number}" for number in range(3, size))]
        (folder / f"vocab.{side}.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))


def write_recipes(page, folder):
    """Writes the recipes that a page shows."""
    for kind, text in blocks(page):
        if kind == "yaml" and (name := re.match(r"# ([\w.-]+\.yaml)", text)):
            (folder / name[1]).write_text(text)


def type_line(line):
    """Runs or parses a line of a page. Returns the outcome of its `docmt` command; fails if another command does."""
    words = shlex.split(line.text, comments=True)
    if words[0] in NOT_RUN:
        return None
    if words[0] != "docmt" and line.run:
        subprocess.run(line.text, shell=True, check=True, executable="/bin/bash")
        return None
    begin = next((place for place, word in enumerate(words) if word in ("docmt", "docmt.cli.app")), None)
    if begin is None:
        return None
    arguments, stdin, output = redirected(words[begin + 1 :])
    if not line.run:
        return call(*arguments, *parse_only(arguments))
    outcome = call(*with_options(arguments, smaller(arguments)), stdin=stdin)
    if output:
        output.write_text(outcome.out)
    return outcome


def check(line):
    """Types a line; it must be understood. Returns whether it was a command of docmt."""
    outcome = type_line(line)
    if outcome is None:
        return False
    assert outcome.status == 0, (line, outcome.err)
    return True


def parse_only(arguments):
    """What makes the command stop when it has understood its arguments."""
    option = "--dry-run" if arguments[0] == "reproduce" else "--print-config"
    return [] if option in arguments else [option]


def parse_page(page):
    """Parse the commands of a page in the current folder, but for those that read what another one has written."""
    Path("recipes").symlink_to(ROOT / "recipes")
    Path("recipe.yaml").write_text(RECIPE)
    Path("report.txt").write_text("It is cheap.\n")
    write_recipes(page, Path())
    for line in lines(page):
        if not re.search(r"train --resume|docmt reproduce|runs/sentence/recipe", line.text):
            check(line._replace(run=False))


def redirected(words):
    """The arguments without `< FILE` and `> FILE`, the bytes of the first and the path of the second."""
    stdin, output, kept = b"", None, []
    rest = iter(words)
    for word in rest:
        if word == "<":
            stdin = Path(next(rest)).read_bytes()
        elif word == ">":
            output = Path(next(rest))
        else:
            kept.append(word)
    return kept, stdin, output


def smaller(arguments):
    """The options that make a command quick."""
    files_alone = arguments[0] == "evaluate" and ("--hypothesis" in arguments or "--source" not in arguments)
    given = arguments[0] == "inspect" and ("test.en" not in arguments or "test.de" in arguments)
    if files_alone or given or any(each.startswith("endpoint:") for each in arguments):  # nothing is searched
        return []
    if arguments[0] != "train":
        return SMALLER.get(arguments[0], [])
    if "--resume" in arguments:
        return ["--stop.max-steps", "4"]  # two more than before
    options = TINY if system(arguments) == "group" else TINY_SENTENCE
    if any("nllb" in argument for argument in arguments):  # it has its own sizes
        options = [option for option in options if not option.startswith("--model.")]
    return [*options, "--stop.max-steps", "2"]


def system(arguments):
    """The system that a training is told, by an option or by its recipe."""
    for name, value in pairwise(arguments):
        if name in ("--model.system", "--system"):
            return value
    recipes = [argument for argument in arguments if argument.endswith(".yaml")]
    found = yaml.safe_load(Path(recipes[0]).read_text()).get("model", {}) if recipes else {}
    return found.get("system", "group")


def with_options(arguments, options):
    """The arguments with these options in place of their own: none may be there twice, short or in full."""
    names = {last_word(option) for option in options if option.startswith("--")} | {"preset"}
    kept, value_too = [], False
    for argument in arguments:
        if argument.startswith("--") and last_word(argument) in names:
            value_too = "=" not in argument
        elif value_too:
            value_too = False
        else:
            kept.append(argument)
    return [*kept, *options]


def last_word(option):
    """`max_steps` of `--stop.max-steps=2`."""
    return option.partition("=")[0].lstrip("-").replace("-", "_").split(".")[-1]
