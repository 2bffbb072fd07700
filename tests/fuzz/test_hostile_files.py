"""Every file of every directory that docmt reads, damaged in every way: it is done as well as it was, or refused."""

import json
import os
import shutil

import pytest
from commands import QUICK
from harness import keeps_to_the_contract

pytestmark = pytest.mark.full

DEEP = 100_000


def emptied(path, chance):
    path.write_bytes(b"")


def deleted(path, chance):
    path.unlink()


def cut_short(path, chance):
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) or 1)])


def bits_flipped(path, chance):
    data = bytearray(path.read_bytes())
    # Headers are in the beginning, and hold what everything else hangs on.
    for _ in range(chance.choice([1, 1, 5])):
        if data:
            data[chance.randrange(min(len(data), chance.choice([16, 300, len(data)])))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def random_bytes(path, chance):
    path.write_bytes(chance.randbytes(chance.choice([1, 100, 5000])))


def deep(path, chance):
    opening = chance.choice(["[", '{"a":', "- " if path.suffix == ".yaml" else "["])
    path.write_text(opening * DEEP)


def a_directory(path, chance):
    path.unlink()
    path.mkdir()


def a_pipe(path, chance):
    path.unlink()
    os.mkfifo(path)


def a_link(path, chance):
    path.unlink()
    path.symlink_to(chance.choice(["/dev/zero", "/dev/full", "nowhere", path.name, "/etc/passwd"]))


def not_utf8(path, chance):
    path.write_bytes(path.read_bytes() + b"\xff\n")


def other_values(path, chance):
    """Another value somewhere in a JSON or YAML file, or a line of text that is not there, or twice."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = json.loads(text)
    except ValueError:
        lines = text.splitlines(keepends=True) or [""]
        place = chance.randrange(len(lines))
        key = lines[place].partition(":")[0]
        lines[place] = chance.choice(["", lines[place] * 2, f"{key}: {chance.choice(VALUES)!r}\n", f"{key}: 1e999\n"])
        path.write_text("".join(lines), encoding="utf-8")
        return
    groups = [values]
    for group in groups:
        groups += [
            item for item in (group.values() if isinstance(group, dict) else group) if isinstance(item, dict | list)
        ]
    group = chance.choice([group for group in groups if group] or [{"a": 1}])
    key = chance.choice(list(group) if isinstance(group, dict) else range(len(group)))
    if chance.random() < 0.2:
        del group[key]
    else:
        group[key] = chance.choice(VALUES)
    path.write_text(json.dumps(values), encoding="utf-8")


VALUES = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    10**30,
    -(10**30),
    1.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\x1b[31m",
    "5",
]
VALUES += ["nan", "\u202e", "a" * 5000, [], [[]], {}, {"a": {"b": []}}, ["x"], [1, 2], "../..", "/dev/zero", "bpe"]
HARMS = [emptied, deleted, cut_short, bits_flipped, random_bytes, deep, a_directory, a_pipe, a_link, not_utf8]
HARMS += [other_values] * 5


@pytest.fixture
def harm(copy, cases):
    """Calls a function with a copy of a directory of which one file is no longer what it was."""

    def do(directory, count, kind, use, but=()):
        names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
        names = [name for name in names if not name.endswith(but)]
        for number, chance in enumerate(cases(count, kind)):
            damaged = copy(directory)
            names_left = [name for name in names if not name.endswith(".safetensors")] if number % 2 else names
            chance.choice(HARMS)(damaged / chance.choice(names_left), chance)
            use(damaged)
            shutil.rmtree(damaged)

    return do


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("She sees the dog. It is cheap.\n")
    return path


def test_a_model(harm, run, source):
    def use(model):
        keeps_to_the_contract("translate", model, source, *QUICK)

    harm(run / "model", 70, "damaged models", use, but=("README.md",))


def test_a_store(harm, store, train, tmp_path):
    place = tmp_path / "run"

    def use(damaged):
        arguments = [damaged if argument == store else argument for argument in train]
        keeps_to_the_contract(*arguments, "--stop.max-steps=1", "--run", place)
        shutil.rmtree(place, ignore_errors=True)

    train = [argument for argument in train if not str(argument).startswith("--stop")]
    harm(store, 15, "damaged stores", use)


def test_a_run(harm, run):
    def use(damaged):
        keeps_to_the_contract("train", "--resume", damaged, "--stop.max-steps=9")

    harm(run, 10, "damaged runs", use, but=("README.md", "train.log"))


def test_recipes_and_experiments(cases, tmp_path, monkeypatch):
    recipes = {
        "train": "store: s\nrun: r\nmodel:\n  system: group\n  width: 16\n  group:\n    top_attention: group\nseed: 1\n"
    }
    recipes["prepare"] = "store: s\ntrain: [a.en, a.de]\nvocabulary_size: 300\ntokenizer: bpe\n"
    recipes["reproduce"] = (
        "title: x\nsource: y\nseeds: [1, 2]\nsettings: {seed: 1}\nvariants:\n  a:\n    recipe: r.yaml\n"
        "    published: {d-BLEU: 33.87}\naxes:\n  - name: size\n    points: {small: {model.width: 128}}\n"
    )
    monkeypatch.chdir(tmp_path)
    for chance in cases(30, "damaged recipes"):
        command = chance.choice(sorted(recipes))
        path = tmp_path / "recipe.yaml"
        path.write_text(recipes[command])
        chance.choice([harm for harm in HARMS if harm != a_pipe])(path, chance)  # whoever names a pipe will fill it
        more = ["--store", "none", "--output", "o"] if command == "reproduce" else []
        keeps_to_the_contract(command, "recipe.yaml", *more, statuses=(2,))
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
