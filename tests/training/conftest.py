"""A small prepared store, and configurations of runs that take a second."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import docmt
from docmt.data import PrepareConfig, prepare
from docmt.decoding import SearchConfig, Translator
from docmt.model import ModelConfig
from docmt.model.systems import Group
from docmt.training import (
    BatchConfig,
    CheckpointConfig,
    ObjectiveConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ValidationConfig,
    train,
)

DRAFT_SEARCH = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)
WORDS = ["bo", "ka", "lu", "me", "ni", "po", "ra", "su", "ta", "vu"]


def write_corpus(path, documents, seed):
    """Documents of 1 to 4 short sentences; the target repeats the source in capitals."""
    generator = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            source = [" ".join(generator.choices(WORDS, k=generator.randint(2, 5))) for _ in range(number % 4 + 1)]
            target = [sentence.upper() for sentence in source]
            file.write(json.dumps({"id": f"d{number}", "source": source, "target": target}) + "\n")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "train.jsonl", 24, 1)
    write_corpus(folder / "dev.jsonl", 6, 2)
    config = PrepareConfig(
        store=folder / "store",
        train=[folder / "train.jsonl"],
        dev=[folder / "dev.jsonl"],
        source_language="xx",
        target_language="yy",
        vocabulary_size=300,
    )
    return prepare(config)


TINY = ModelConfig(
    system="group",
    width=16,
    feed_forward=32,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    group=Group(encoder_layers=1, decoder_layers=1, cross_layers=1),
    dropout=0.1,
    instance_tokens=64,
)


@pytest.fixture(scope="session")
def tiny_config(store):
    """Twelve updates of a tiny model with everything random switched on, in a directory yet to be named."""
    return TrainConfig(
        store=store.directory,
        run=Path("nowhere"),
        model=TINY,
        batches=BatchConfig(batch_tokens=128),
        objective=ObjectiveConfig(word_dropout=0.2, word_dropout_epochs=2),
        optimizer=OptimizerConfig(learning_rate=2e-3, warmup=4),
        validation=ValidationConfig(every=4),
        stop=StopConfig(max_steps=12),
        checkpoints=CheckpointConfig(every=5),
        device="cpu",
        seed=3,
        log_every=2,
    )


@pytest.fixture(scope="session")
def sentence_run(tiny_config, tmp_path_factory):
    """The run directory of a sentence model."""
    model = replace(tiny_config.model, system="sentence", group=Group())
    run = tmp_path_factory.mktemp("drafter") / "sentence"
    train(replace(tiny_config, run=run, model=model, stop=replace(tiny_config.stop, max_steps=3)))
    return run


@pytest.fixture(scope="session")
def whole_run(tiny_config, tmp_path_factory):
    """The run directory of the tiny configuration, to be read."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train(replace(tiny_config, run=run))
    return run


@pytest.fixture(scope="session")
def short_run(tiny_config, tmp_path_factory):
    """The run directory of two updates, to be copied."""
    run = tmp_path_factory.mktemp("short") / "run"
    train(replace(tiny_config, run=run, stop=replace(tiny_config.stop, max_steps=2)))
    return run


@pytest.fixture
def finished(change, short_run):
    """The configuration of a run of two updates in a directory of this test, which may go on."""
    config = change(stop__max_steps=2)
    shutil.copytree(short_run, config.run)
    return config


def draft(corpus, model, output, search=DRAFT_SEARCH):
    """Write the translations of a JSONL corpus by a model as drafts."""
    translator = Translator(model, device="cpu", search=search)
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    documents = [docmt.Document.from_sentences(record["source"]) for record in records]
    texts = [translation.document.sentences for translation in translator.translate_all(documents)]
    output.write_text("".join(json.dumps({"draft": list(text)}) + "\n" for text in texts))
    return output


@pytest.fixture(scope="session")
def prepare_with_drafts(store, sentence_run, tmp_path_factory):
    """A function that prepares the corpus of `store` again, with drafts of the sentence model."""

    def prepared(search=DRAFT_SEARCH):
        corpora, folder = store.directory.parent, tmp_path_factory.mktemp("drafted")
        files = {"train": [corpora / "train.jsonl"], "dev": [corpora / "dev.jsonl"], "test": [corpora / "dev.jsonl"]}
        drafts = [
            draft(corpora / f"{name}.jsonl", sentence_run, folder / f"{name}.jsonl", search)
            for name in ("train", "dev")
        ]
        languages = {"source_language": "xx", "target_language": "yy"}
        tokenizer = str(store.directory / "tokenizer")
        return prepare(PrepareConfig(folder / "store", tokenizer=tokenizer, drafts=drafts, **languages, **files))

    return prepared


@pytest.fixture(scope="session")
def drafted(prepare_with_drafts):
    """The store with a test split and drafts."""
    return prepare_with_drafts()


@pytest.fixture
def config(tiny_config, tmp_path):
    """The tiny run in a directory of this test."""
    return replace(tiny_config, run=tmp_path / "run")


@pytest.fixture
def change(config):
    """A function giving `config` with other settings: change(seed=1, model__group__top_attention="group").

    With another system, the options of the group system are left out.
    """

    def nested(settings):
        values = {}
        for name, value in settings.items():
            group, _, field = name.partition("__")
            if field:
                values.setdefault(group, {})[field] = value
            else:
                values[group] = value
        return values

    def changed(part, settings):
        values = nested(settings)
        if values.get("system", "group") != "group":
            values.setdefault("group", Group())
        for name, value in values.items():
            if isinstance(value, dict):
                values[name] = changed(getattr(part, name), value)
        return replace(part, **values)

    return lambda **settings: changed(config, settings)
