"""Every file of ours with every damage in its place: one sentence at once, no waiting, no traceback."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
from dataclasses import asdict

import pytest
import torch

from docmt.checkpoint.model_directory import load_languages, load_model, save_model
from docmt.checkpoint.weights import average_weights, load_weights
from docmt.core.errors import DocmtError
from docmt.core.files import write_text
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, PretrainedTokenizer, load_tokenizer, train_tokenizer
from docmt.text.pretrained import JsonSubwordModel, SpmSubwordModel, Vocabulary
from docmt.training import TrainConfig
from docmt.training.finetune import trainable_parameters
from docmt.training.optimizer import optimizer_tensors, restore_optimizer
from docmt.training.run_directory import BestValidation, RunDirectory, TrainingState, read_state, save_checkpoint

SIZES = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TEXT = ["a few words of text", "a few more words of another text"] * 20


def make_model():
    torch.manual_seed(0)
    return TranslationModel(ModelConfig(system="sentence", vocabulary_size=280, **SIZES))


def make_pretrained(folder):
    """A tokenizer with the pieces of both libraries: those of the tokenizers that were trained here."""
    data = {"source": folder / "model" / "tokenizer.json", "target": folder / "sentencepiece" / "tokenizer.model"}
    symbols = (*["<s>", "<pad>", "</s>", "<unk>"], "a", None, None)
    vocabulary = Vocabulary(symbols, frozenset(), tuple(range(len(symbols))))
    kinds = {"source": JsonSubwordModel, "target": SpmSubwordModel}
    pieces = {side: kinds[side](path.read_bytes(), vocabulary.word_ids()) for side, path in data.items()}
    return PretrainedTokenizer(dict.fromkeys(pieces, vocabulary), pieces, {})


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with one of everything: a model, a store, a run, and tokenizers of the other kinds."""
    folder = tmp_path_factory.mktemp("sound")
    for side in ("en", "de"):
        write_text(folder / f"c.{side}", "".join(f"{line}\n" for line in TEXT))
    files = [folder / "c.en", folder / "c.de"]
    store = prepare(PrepareConfig(folder / "store", train=files, dev=files, vocabulary_size=280))
    save_model(folder / "model", make_model(), store.tokenizer)
    run = RunDirectory(folder / "run")
    run.prepare(TrainConfig(store=folder / "store", run=folder / "run", model=make_model().config))
    run.add_metrics({"update": 1, "loss": 2.0})
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    files = {
        "model.safetensors": model.state_dict(),
        "optimizer.safetensors": optimizer_tensors(trainable_parameters(model), optimizer),
    }
    save_checkpoint(run.last, files, asdict(TrainingState(BestValidation(False), update=1)))
    sides = [(side, line) for line in TEXT for side in ("source", "target")]
    train_tokenizer("moses-bpe", sides, 282, ("en", "de")).save(folder / "moses")
    train_tokenizer("sentencepiece", TEXT, 279).save(folder / "sentencepiece")
    DictionaryTokenizer(["a", "b"], ["c"]).save(folder / "dictionary")
    make_pretrained(folder).save(folder / "pretrained")
    return folder


def open_model(directory):
    load_languages(directory)
    load_model(directory)
    load_tokenizer(directory)


def open_checkpoint(directory):
    model = make_model()
    load_weights(model, directory / "model.safetensors")
    restore_optimizer(
        trainable_parameters(model), torch.optim.Adam(model.parameters()), directory / "optimizer.safetensors"
    )
    read_state(directory)
    average_weights([directory / "model.safetensors"])


def open_run(directory):
    run = RunDirectory(directory)
    run.check_resumable(TrainConfig(store=directory.parent / "store", run=directory, model=make_model().config))
    run.truncate_metrics(1, within_interval=False)


READERS = {"model": open_model, "store": PreparedStore.open, "run": open_run, "run/checkpoints/last": open_checkpoint}
READERS |= dict.fromkeys(("moses", "sentencepiece", "dictionary", "pretrained"), load_tokenizer)
FILES = [
    *[("model", name) for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")],
    *[("store", "statistics.json"), ("store", "train/documents.json"), ("store", "tokenizer/tokenizer.json")],
    *[("store", f"train/{name}.npy") for name in ("source_tokens", "target_offsets", "document_offsets")],
    *[("run/checkpoints/last", f"{name}") for name in ("state.json", "model.safetensors", "optimizer.safetensors")],
    *[("run", "recipe.yaml"), ("run", "metrics.jsonl")],
    *[("moses", "moses.json"), ("moses", "tokenizer.json"), ("sentencepiece", "tokenizer.model")],
    *[("dictionary", "dictionary.txt"), ("dictionary", "source_dictionary.txt")],
    *[("pretrained", name) for name in ("vocabulary.json", "source.json", "target.model")],
]
QUICK = ("config.json", "statistics.json", "state.json", "moses.json", "vocabulary.json")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefgh")
)
CONTENTS = {
    "deep list": b"[" * 100_000,
    "deep mapping": b'{"a":' * 100_000,
    "deep YAML": b"- " * 100_000,
    "deep list that ends": b"[" * 100_000 + b"]" * 100_000,
    "alias bomb": BOMB.encode(),
    "list": b"[1, [2], {}]",
    "text": b'"text"',
    "number": b"5",
    "null": b"null",
    "truth": b"true",
    "endless number": b'{"model": ' + b"9" * 6000 + b"}",
    "lone surrogate": b'{"model": "\\ud800", "kind": "\\ud800", "update": "\\ud800"}',
    "controls": b'{"model": {"\\u001b]0;owned\\u0007": 1}, "kind": "\\u001b[2J", "splits": {"\\u001b": 1}}',
    "bytes": random.Random(1).randbytes(3000),
    "half a character": b'{"kind": "\xe2\x82',
    "NUL": b"\0" * 5000,
    "huge header": b"\xff" * 7 + b"\x7f" + b"{}",
    "deep header": (100_000).to_bytes(8, "little") + b"[" * 100_000,
}


def pipe(path):
    os.mkfifo(path)


def listener(path):
    with socket.socket(socket.AF_UNIX) as own:
        short = path.parent / "s"
        with contextlib.chdir(path.parent):  # names of sockets are short
            own.bind(short.name)
        short.rename(path)


PLACES = {
    "pipe": pipe,
    "directory": lambda path: path.mkdir(),
    "socket": listener,
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
}
PLACES |= {name: lambda path, data=data: path.write_bytes(data) for name, data in CONTENTS.items()}
# Damaged lines of metrics are dropped and counted.
HARMLESS = {("metrics.jsonl", name) for name in [*CONTENTS, "link to nowhere", "link to itself"]}
HARMLESS |= {("source_dictionary.txt", "link to nowhere"), ("dictionary.txt", "deep YAML")}


@pytest.fixture
def no_waiting():
    """A reader that waits or computes for ever ends with an error."""

    def late(number, frame):
        raise AssertionError("it took more than ten seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        pytest.param(folder, file, id=f"{folder}/{file}", marks=() if file in QUICK else pytest.mark.full)
        for folder, file in FILES
    ],
)
def test_a_file_that_is_not_ours_gives_one_sentence(sound, tmp_path, no_waiting, folder, file):
    shutil.copytree(sound, tmp_path / "all")
    path = tmp_path / "all" / folder / file
    for damage, put in PLACES.items():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        put(path)
        try:
            READERS[folder](tmp_path / "all" / folder)
        except DocmtError as error:
            message = str(error)
            assert len(message) < 1000, (damage, message)
            assert path.name in message or path.parent.name in message, (damage, message)
        else:
            assert (path.name, damage) in HARMLESS or _all_words(path, damage), damage


def _all_words(path, damage):
    """Whether the content is a dictionary: any lines are, if none is there twice."""
    return path.name.endswith("dictionary.txt") and damage in CONTENTS and damage != "half a character"
