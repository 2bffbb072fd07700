"""What can go wrong with files and models: one sentence that names the place, status 2, and nothing is lost."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import QUICK, TINY, assert_one_sentence, call, fails, start, wait_for_lines

from docmt.checkpoint.weights import read_tensors
from docmt.cli.commands.translate import GROUP_DOCUMENTS
from docmt.data import PreparedStore
from docmt.documents import Document

SHORT = ["--stop.max-steps", 2]


@pytest.fixture
def files(tmp_path):
    """A folder with files that are odd, and some that are good."""
    contents = {
        "good.txt": b"It is cheap.\nShe sees the dog.\n",
        "good.de": b"Er ist billig.\nSie sieht den Hund.\n",
        "one.txt": b"It is cheap.\n",
        "empty.txt": b"",
        "blank.txt": b"\n \n\r\n\n",
        "latin.txt": "It is cheap.\nThe café is open.\n".encode("latin1"),
        "nul.txt": b"A\0B is cheap.\n",
        "emoji.txt": "😀 🎉\n".encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    return tmp_path


def arguments_of(name, run, source, target, folder):
    """A command that reads files, with these as its source and target."""
    good = [folder / "good.txt", folder / "good.de", "--vocabulary-size", 262]
    return {
        "prepare": ["prepare", "--store", folder / "new", "--train", source, target],
        "dev": ["prepare", "--store", folder / "new", "--train", *good, "--dev", source, target],
        "translate": ["translate", run, source],
        "score": ["score", run, source, target],
        "check": ["check", source, target],
        "evaluate files": ["evaluate", "--hypothesis", source, "--reference", target],
        "evaluate a model": ["evaluate", "--model", run, "--source", source, "--reference", target],
    }[name]


NAMES = ["prepare", "dev", "translate", "score", "evaluate files", "evaluate a model"]
PARALLEL = [name for name in NAMES if name != "translate"]


@pytest.mark.parametrize("name", [*NAMES, "check"])
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("latin.txt", r"latin\.txt, line 2, byte 8: not UTF-8 \(0xE9\); it looks like Latin-1; save it as UTF-8"),
        ("missing.txt", r"cannot read \S*missing\.txt: there is no such file"),
        ("", r"cannot read \S+: it is a directory"),
        ("loop.txt", r"cannot read \S*loop\.txt: Too many levels of symbolic links"),
    ],
)
def test_unreadable_files(run, files, name, file, message):
    fails(*arguments_of(name, run, files / file, files / "good.de", files), message=message)
    if name != "translate":
        fails(*arguments_of(name, run, files / "good.txt", files / file, files), message=message)
    assert not (files / "new").exists()


@pytest.mark.parametrize("name", PARALLEL)
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("empty.txt", "hold no sentence pairs|holds no sentence pairs|has no documents"),
        ("blank.txt", "hold no sentence pairs|holds no sentence pairs|has no documents"),
    ],
)
def test_files_without_text(run, files, name, file, message):
    fails(*arguments_of(name, run, files / file, files / file, files), message=message)


@pytest.mark.parametrize("file", ["empty.txt", "blank.txt"])
@pytest.mark.parametrize("options", [[], ["--input.layout", "lines"], ["--input.join-lines", "true"]])
def test_nothing_to_translate_is_translated_to_nothing(run, files, file, options):
    outcome = call("translate", run, files / file, *options)
    assert outcome == (0, (files / file).read_bytes().decode(), "")
    assert call("translate", run, files / file, "--format", "jsonl", *options) == (0, "", "")


@pytest.mark.parametrize("name", [name for name in PARALLEL if name != "evaluate files"])
def test_sides_of_unequal_length(run, files, name):
    message = r"one\.txt ends after line 1 but \S+ has text in line 2\. Align the files again"
    fails(*arguments_of(name, run, files / "good.txt", files / "one.txt", files), message=message)
    fails(*arguments_of(name, run, files / "one.txt", files / "good.de", files), message=message)
    message = r"empty\.txt is empty but \S+ has text in line 1"
    fails(*arguments_of(name, run, files / "good.txt", files / "empty.txt", files), message=message)


def test_empty_translations_are_no_translations(files):
    fails("evaluate", "--hypothesis", files / "blank.txt", "--reference", files / "good.de", message="has no text")


def test_pairs_with_an_empty_side_are_scored(run, files):
    pairs = files / "pairs.jsonl"
    pairs.write_text(json.dumps({"source": ["One.", "Two."], "target": ["Eins.", ""]}) + "\n")
    outcome = call("score", run, pairs)
    assert outcome.status == 0
    assert outcome.out.count("\n") == 2
    assert outcome.err == ""


@pytest.mark.parametrize("name", ["nul.txt", "emoji.txt"])
def test_odd_characters(run, files, name):
    text = (files / name).read_bytes().decode()
    outcome = call("translate", run, files / name, *QUICK)
    assert outcome.status == 0
    assert re.fullmatch(AT_LIMIT if name == "nul.txt" else "", outcome.err)
    assert name == "nul.txt" or outcome.out == text, "there is nothing to translate in a row of emoji"
    assert call("score", run, files / name, files / name).status == 0
    store = files / "store"
    assert call("prepare", "--store", store, "--train", *[files / name] * 2, "--vocabulary-size", 262).status == 0
    prepared = PreparedStore.open(store)
    assert prepared.tokenizer.decode(prepared.split("train").documents("source")[0][0]) == text.strip()


@pytest.mark.full
def test_a_sentence_of_five_thousand_words(run, files):
    draw = random.Random(1)
    words = [draw.choice("aio") for _ in range(5000)]
    long = files / "long.txt"
    long.write_text("It is cheap.\n" + " ".join(words) + ".\nShe sees the dog.\n")
    outcome = call("translate", run, long, *QUICK)
    assert outcome.status == 0
    assert re.fullmatch(
        AT_LIMIT + r"docmt: 1 x sentences of which a part seems not [^\n]+long\.txt, sentence 2\)\n", outcome.err
    )
    assert outcome.out.count("\n") == 3
    store, trained = files / "store", files / "run"
    outcome = call("prepare", "--store", store, "--train", long, long, "--vocabulary-size", 265)
    assert outcome.status == 0
    assert "longest is sentence 2 of document 1" in outcome.out
    assert re.search(r"^instances +3$", outcome.out, re.M), "it is an instance of its own"
    assert re.search(r"^sentences of 512 tokens or more +1$", outcome.out, re.M)
    outcome = call("train", "--store", store, "--run", trained, *TINY, "--stop.max-epochs", 1)
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("1 epoch is done")


@pytest.mark.full
def test_a_document_of_thousands_of_sentences(run, files):
    """Linear work all the way: this would take much longer if anything were done again for every sentence."""
    many, translated = files / "many.txt", files / "many.out"
    text = "".join(f"It is {number}." + ("\n\n" if number % 10 == 0 else " ") for number in range(1500))
    many.write_text(text)
    options = ["--search.beam=1", "--search.max-length-ratio=0", "--search.max-length-extra=1"]
    outcome = call("translate", run, many, "-o", translated, *options)
    assert (outcome.status, outcome.out) == (0, "")
    gaps = Document.from_text(text).gaps
    assert len(gaps) == 1501
    found = translated.read_text()
    position = 0
    for gap in gaps:  # one regular expression of all gaps would be too large
        position = found.index(gap, position) + len(gap)
    assert found.count("\n") == text.count("\n")
    many.write_text(text.replace(" It", "\nIt").replace("\n\n", "\n"))
    outcome = call("prepare", "--store", files / "store", "--train", many, many, "--vocabulary-size", 270)
    assert outcome.status == 0, outcome.err
    assert re.search(r"^sentences +1,500$", outcome.out, re.M)


def test_a_vocabulary_larger_than_the_text_allows(files):
    pair = ["--train", files / "good.txt", files / "good.de"]
    message = r"a vocabulary of 9000 is too large for [^;]*\. Set --vocabulary-size to at most \d+"
    fails("prepare", "--store", files / "s", *pair, "--vocabulary-size", 9000, message=message)
    message = r"a vocabulary of 10 is too small. It needs at least 262"
    fails("prepare", "--store", files / "s", *pair, "--vocabulary-size", 10, message=message)
    assert not (files / "s").exists()


# What a translation under QUICK says: its tiny model goes on to the limit.
AT_LIMIT = r"docmt: \d+ x sentences ended by the length limit, [^\n]+\n"


def keep(size):
    """Damage: only so many bytes are left."""
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def cut_before(word):
    """Damage: only what stands before the word is left."""
    return lambda path: path.write_text(path.read_text(encoding="utf-8").partition(word)[0], encoding="utf-8")


def garbage(path):
    path.write_bytes(random.Random(1).randbytes(5000))


def text(content):
    """Damage: other content."""
    return lambda path: path.write_text(content)


def changed(old, new):
    """Damage: one word is another."""

    def change(path):
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new))

    return change


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", remove, r"model\.safetensors is missing\. Copy the whole directory again"),
        ("model.safetensors", keep(300), r"model\.safetensors is damaged .*\. Copy it again"),
        ("model.safetensors", keep(9000), r"model\.safetensors is damaged .*\. Copy it again"),
        ("model.safetensors", keep(0), r"model\.safetensors is damaged .*\. Copy it again"),
        ("model.safetensors", garbage, r"model\.safetensors is damaged .*\. Copy it again"),
        ("config.json", remove, r"cannot read \S+config\.json: there is no such file; copy the directory again"),
        ("config.json", garbage, r"config\.json is damaged"),
        ("config.json", text("{"), r"config\.json is damaged"),
        ("config.json", text("{}"), r'config\.json has no entry "model"'),
        ("config.json", changed('"width": 16', '"width": 32'), r"config\.json was changed after the model was written"),
        (
            "config.json",
            changed('"width": 16', '"width": "16"'),
            r"model\.width is '16', but must be of another type, such as 0",
        ),
        (
            "config.json",
            changed('"width"', '"girth"'),
            r"is not valid \(the configuration has the unknown setting model\.girth: .*; written by docmt",
        ),
        ("tokenizer.json", remove, r"cannot read \S*tokenizer\.json: there is no such file; copy the directory again"),
        ("tokenizer.json", keep(3000), r"tokenizer\.json is damaged"),
        ("tokenizer.json", garbage, r"tokenizer\.json is damaged"),
        ("tokenizer_config.json", remove, r"there is no tokenizer in"),
        ("tokenizer_config.json", text("[]"), r"does not describe a docmt tokenizer"),
    ],
)
def test_damaged_models(run, files, file, damage, message):
    model = files / "model"
    shutil.copytree(run / "model", model)
    damage(model / file)
    fails("translate", model, files / "good.txt", message=message)
    fails(
        "evaluate",
        "--model",
        model,
        *("--source", files / "good.txt", "--reference", files / "good.de"),
        message=message,
    )


def test_models_that_are_none(run, files):
    fails("translate", files / "none", files / "good.txt", message="there is no directory")
    fails("translate", files, files / "good.txt", message="is not a model directory")
    fails("score", files / "good.txt", *[files / "good.txt"] * 2, message="is not a model directory")
    (files / "unfinished" / "checkpoints").mkdir(parents=True)
    fails("translate", files / "unfinished", files / "good.txt", message="has no model yet")
    (files / "unfinished" / "checkpoints").rename(files / "other")
    (files / "unfinished" / "recipe.yaml").touch()  # killed before its first checkpoint
    fails("translate", files / "unfinished", files / "good.txt", message="has no model yet: .* Continue the training")


def test_a_foreign_tokenizer(run, files):
    call("prepare", "--store", files / "s", "--train", files / "good.txt", files / "good.de", "--vocabulary-size", 262)
    shutil.copytree(run / "model", files / "model")
    shutil.copytree(files / "s" / "tokenizer", files / "model", dirs_exist_ok=True)
    message = "has 262 entries but the model has 400. Copy the directory again"
    fails("translate", files / "model", files / "good.txt", message=message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_devices_that_are_not_there(run, store, files):
    fails("translate", run, files / "good.txt", "--device", "cuda", message="device cuda .*no GPU.*: choose cpu")
    fails(
        "translate", run, files / "good.txt", "--device", "tpux", message="device tpux .*no such device.*: choose cpu"
    )
    elsewhere = [option for option in TINY if not option.startswith("--device")]
    arguments = ["train", "--store", store, "--run", files / "run", *elsewhere, *SHORT]
    fails(*arguments, "--device", "cuda", message="PyTorch sees no GPU here: choose --device cpu")
    assert not (files / "run").exists()


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("statistics.json", remove, "is not a prepared store .*run `docmt prepare`"),
        ("statistics.json", keep(50), r"statistics\.json is missing or damaged"),
        ("train", remove, r"train/source_tokens\.npy is missing or damaged"),
        ("train/source_tokens.npy", keep(60), r"source_tokens\.npy is missing or damaged \(its checksum differs"),
        ("train/target_offsets.npy", garbage, r"target_offsets\.npy is missing or damaged"),
        ("dev/documents.json", text("["), r"dev/documents\.json is missing or damaged"),
        ("tokenizer", remove, r"there is no tokenizer in"),
    ],
)
def test_damaged_stores(store, files, file, damage, message):
    copy = files / "store"
    shutil.copytree(store, copy)
    damage(copy / file)
    fails("train", "--store", copy, "--run", files / "run", *TINY, *SHORT, message=message)
    assert not (files / "run").exists()


def test_stores_that_are_none_or_stand_already(store, files):
    fails("train", "--store", files / "none", "--run", files / "run", *SHORT, message="is not a prepared store")
    pair = ["--train", files / "good.txt", files / "good.de", "--vocabulary-size", 262]
    before = (store / "statistics.json").read_bytes()
    fails("prepare", "--store", store, *pair, message="exists already; add --overwrite to replace it")
    fails("prepare", "--store", files, *pair, message="exists and is not a prepared store")
    fails("prepare", "--store", files / "one.txt", *pair, message="is a file")
    fails("prepare", "--store", files / "one.txt" / "s", *pair, message="a file is where a directory is needed")
    assert (store / "statistics.json").read_bytes() == before


@pytest.mark.full
def test_runs_that_stand_already_or_are_none(store, run, files):
    before = (run / "metrics.jsonl").read_bytes()
    arguments = ["train", "--store", store, *TINY, *SHORT, "--run"]
    fails(*arguments, run, message=f"{run} already exists: add --resume {run} to continue it, or choose another --run")
    fails(*arguments, files, message="already exists: choose another --run")
    fails("train", "--resume", files, message=r"no run to resume in \S+ \(recipe\.yaml is missing\)")
    fails("train", "--resume", files / "none", message="no run to resume")
    message = r"cannot be resumed with another configuration: optimizer\.warmup is 7 but was 10; only stop limits"
    fails("train", "--resume", run, "--optimizer.warmup", 7, message=message)
    fails("train", "--resume", run, "--run", files / "other", message="to resume a run, use --resume only")
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("recipe.yaml", cut_before("run:"), r"recipe\.yaml has no setting run"),
        ("recipe.yaml", cut_before("vocabulary_size:"), r"recipe\.yaml is damaged \(its end is missing\)"),
        ("recipe.yaml", text("[1"), r"recipe\.yaml, line 1: not valid YAML"),
        ("checkpoints/last/model.safetensors", keep(500), r"last/model\.safetensors is damaged"),
        ("checkpoints/last/optimizer.safetensors", remove, r"last/optimizer\.safetensors is missing"),
        ("checkpoints/last/state.json", text("{}"), r"last/state\.json cannot be read"),
    ],
)
def test_damaged_runs(run, files, file, damage, message):
    copy = files / "run"
    shutil.copytree(run, copy)
    damage(copy / file)
    fails("train", "--resume", copy, "--stop.max-steps", 110, message=message)
    assert (copy / "model" / "model.safetensors").is_file()


def test_a_start_that_fails_leaves_no_run(store, files):
    arguments = ["train", "--store", store, *TINY, *SHORT, "--run", files / "run"]
    fails(*arguments, "--initialize-from", files / "none", message="there is no directory")
    assert not (files / "run").exists()
    assert call(*arguments).status == 0


def test_outputs_that_cannot_be_written(run, files):
    good, missing = files / "good.txt", files / "none" / "out.txt"
    message = r"cannot write \S+: there is no directory \S+none; create it, or choose another path"
    fails("translate", run, good, "-o", missing, message=message)
    fails("score", run, good, files / "good.de", "-o", missing, message=message)
    fails("evaluate", "--hypothesis", good, "--reference", good, "--json", missing, message=message)
    fails("translate", run, good, "-o", files / "loop.txt", message=r"cannot write \S+loop\.txt: ")
    model = ["evaluate", "--model", run, "--source", good, "--reference", good]
    fails(*model, "-o", missing, message=message)
    fails(*model, "-o", files, message="it is a directory; name a file")
    fails(
        "translate",
        run,
        good,
        good.with_suffix(".de"),
        "-o",
        files / "one.txt",
        message="a file is where a directory is needed",
    )
    fails("translate", run, good, files / "one.txt", message="2 files need an output directory: add -o DIRECTORY")
    fails("translate", run, good, "-", "-o", files / "new", message="standard input has no name")


def test_no_source_is_overwritten(run, files):
    good = files / "good.txt"
    before = good.read_bytes()
    (files / "sub").mkdir()
    (files / "sub" / "good.txt").write_text("Another.\n")
    (files / "link.txt").symlink_to(good)
    message = "is an input and would be overwritten by the output"
    for arguments in ([good, "-o", good], [good, "-o", files], [good, "-o", files / "link.txt"]):
        fails("translate", run, *arguments, message=message)
    fails("translate", run, good, files / "one.txt", "-o", files, message=message)
    message = "two files would both be written to"
    fails("translate", run, good, files / "sub" / "good.txt", "-o", files / "new", message=message)
    assert good.read_bytes() == before


def test_one_bad_file_among_good_ones(run, files):
    names = ["good.txt", "latin.txt", "one.txt", "missing.txt", "nul.txt"]
    outcome = call("translate", run, *[files / name for name in names], "-o", files / "new", *QUICK)
    assert (outcome.status, outcome.out) == (2, "")
    cut, *lines = outcome.err.splitlines(keepends=True)
    assert re.fullmatch(AT_LIMIT, cut)
    assert len(lines) == 4
    assert re.search(r"latin\.txt, line 2, byte 8: not UTF-8", lines[0])
    assert re.search(r"missing\.txt: there is no such file", lines[1])
    assert lines[2] == "docmt: 2 of 5 files could not be translated\n"
    assert re.search(r"good\.txt\.partial \(and 2 others\) is for --resume", lines[3])
    outputs = {name for good in ("good.txt", "nul.txt", "one.txt") for name in (good, f"{good}.partial")}
    assert {path.name for path in (files / "new").iterdir()} == outputs


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system of a few kilobytes, or skips the test where that is not allowed."""
    mounted = []

    def mount(kilobytes):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        if (
            os.name != "posix"
            or shutil.which("mount") is None
            or subprocess.run(command, capture_output=True).returncode
        ):
            pytest.skip("file systems cannot be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


FULL = "No space left on device; free space or choose another path"


def fill(folder, left=0):
    """Fills a file system up to so many bytes; returns the file that does it."""
    filler = folder / "filler"
    free = shutil.disk_usage(folder).free
    filler.write_bytes(b"x" * (free - left))
    return filler


@pytest.mark.full
def test_a_full_disk_while_preparing(store, corpus, tmp_path, small_disk):
    disk = small_disk(64)
    pair = ["--train", corpus / "train.en", corpus / "train.de"]
    fails("prepare", "--store", disk / "s", *pair, "--vocabulary-size", 400, message=rf"cannot write \S+/s: {FULL}")
    assert list(disk.iterdir()) == []
    short = tmp_path / "short.txt"  # whose offsets take more room than its tokens
    short.write_text("a\n" * 20_000)
    disk = small_disk(200)
    arguments = ["--train", short, short, "--vocabulary-size", 263]
    fails("prepare", "--store", disk / "s", *arguments, message=rf"cannot write \S+/s: {FULL}")
    assert list(disk.iterdir()) == []
    disk = small_disk(400)
    shutil.copytree(store, disk / "s")
    fill(disk, left=20_000)
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    replace = ["--vocabulary-size", 400, "--overwrite", "true"]
    fails("prepare", "--store", disk / "s", *pair, *replace, message=rf"cannot write \S+/s: {FULL}")
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before


def test_a_full_disk_while_translating(run, files, small_disk):
    disk = small_disk(40)
    out, good = disk / "out.txt", files / "good.txt"
    out.write_text("old")
    fill(disk)
    message = rf"cannot write \S+out\S*: {FULL}"
    fails("translate", run, good, "-o", out, *QUICK, message=message)
    fails("score", run, good, files / "good.de", "-o", out, message=message)
    fails("evaluate", "--hypothesis", good, "--reference", good, "--json", out, message=message)
    assert out.read_text() == "old"
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "out.txt"]
    outcome = call("translate", run, good, files / "one.txt", "-o", disk, *QUICK)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, message.replace("out", "good"))
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "out.txt"]


@pytest.mark.full
def test_a_full_disk_while_training(store, tmp_path, small_disk):
    disk = small_disk(1000)
    run = disk / "run"
    arguments = ["train", "--store", store, "--run", run, *TINY, "--stop.max-steps", 10, "--log-every", 5]
    assert call(*arguments).status == 0
    filler = fill(disk, left=40_000)
    last = run / "checkpoints" / "last"
    before = {path.name: path.read_bytes() for path in last.iterdir()}
    resume = ["train", "--resume", run, "--stop.max-steps", 20]
    fails(*resume, message=rf"cannot write \S+checkpoints/(best|last): {FULL}")
    assert {path.name: path.read_bytes() for path in last.iterdir()} == before
    assert json.loads((last / "state.json").read_text())["update"] == 10
    filler.unlink()
    assert call(*resume).status == 0
    whole = [*arguments[:4], tmp_path / "whole", *TINY, "--stop.max-steps", 10, "--log-every", 5]
    assert call(*whole).status == 0
    assert call("train", "--resume", tmp_path / "whole", "--stop.max-steps", 20).status == 0
    ours, theirs = (read_tensors(path / "model" / "model.safetensors") for path in (run, tmp_path / "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    fill(disk)
    fails(*arguments[:3], "--run", disk / "other", *TINY, *SHORT, message=rf"cannot write \S+: {FULL}")


def test_a_disk_that_may_not_be_written(run, store, files, small_disk):
    disk = small_disk(100)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    good = files / "good.txt"
    fails("translate", run, good, "-o", disk / "out.txt", message="there is no permission to write in")
    fails("translate", run, good, files / "one.txt", "-o", disk / "new", message="cannot write .*Read-only file system")
    fails(
        "train", "--store", store, "--run", disk / "run", *TINY, *SHORT, message="cannot write .*Read-only file system"
    )
    arguments = ["--train", good, files / "good.de", "--vocabulary-size", 262]
    fails("prepare", "--store", disk / "s", *arguments, message="cannot write .*Read-only file system")


def long_text(files):
    path = files / "long.txt"
    path.write_text("".join(f"She sees the dog number {number}. It is cheap.\n" for number in range(12_000)))
    return path


@pytest.mark.full
def test_a_reader_that_goes_away(run, files):
    process = start("translate", run, files / "good.txt", *QUICK)
    process.stdout.close()
    process.stdout = None
    assert re.fullmatch(AT_LIMIT, process.communicate(timeout=60)[1])
    assert process.returncode == 0
    process = start("evaluate", "--hypothesis", files / "good.txt", "--reference", files / "good.txt")
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


@pytest.mark.full
def test_a_translation_that_is_interrupted(run, files):
    """In the middle of a long text: the documents that are translated before it are there, and so is its beginning."""
    (files / "first.txt").write_text("It is cheap.\n\n" * GROUP_DOCUMENTS)
    outputs = files / "out"
    outputs.mkdir()
    (outputs / "long.txt").write_text("old")
    asked = ("-o", outputs, "--layout", "lines", "--search.max-length-extra", 50, "--quiet")
    process = start("translate", run, files / "first.txt", long_text(files), *asked)
    wait_for_lines(outputs / "first.txt", GROUP_DOCUMENTS, process)
    # An interrupt while first.txt is released, before long.txt is locked, would leave the lock file of first.txt.
    wait_for_lines(outputs / ".long.txt.lock", 1, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err.splitlines()[-1]) == ("", "docmt: interrupted")
    found = {path.name for path in outputs.iterdir()}
    assert found - {"long.txt.partial"} == {"first.txt", "first.txt.partial", "long.txt"}
    assert "long.txt.partial" not in found or "long.txt.partial: run the same command with --resume to continue" in err
    assert (outputs / "long.txt").read_text() == "old"


@pytest.mark.full
def test_a_full_disk_behind_standard_output(run, files):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no device that is always full")
    for arguments in (
        ["translate", run, files / "good.txt", *QUICK],
        ["evaluate", "--hypothesis", files / "good.txt", "--reference", files / "good.txt"],
    ):
        with full.open("w") as output:
            process = start(*arguments, stdout=output)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert_one_sentence(err, "[Nn]o space left on device")


def test_an_interrupt_while_modules_are_imported_ends_the_process_at_once(tmp_path):
    """A library that is loaded in part raises errors that have nothing to do with the interrupt."""
    (tmp_path / "heavy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise AttributeError\n")
    program = (
        "import sys; from docmt.cli import app; app._run = lambda arguments: __import__('heavy'); sys.exit(app.main())"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (130, "docmt: interrupted\n")


def test_an_interrupt_while_python_ends_keeps_the_status():
    program = (
        "import atexit, os, signal, sys; from docmt.cli import app\n"
        "app._run = lambda arguments: 7\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))\n"
        "sys.exit(app.main())"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (7, "")
