"""A small store with a test split, recipes of one-second trainings, and experiments of them."""

import json
import random

import pytest
import yaml

from docmt.data import PrepareConfig, prepare

WORDS = ["bo", "ka", "lu", "me", "ni", "po", "ra", "su", "ta", "vu"]

RECIPE = {
    "store": "somewhere",
    "run": "somewhere/else",
    "model": {
        "system": "group",
        "width": 16,
        "feed_forward": 32,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.1,
        "instance_tokens": 64,
    },
    "batches": {"batch_tokens": 128},
    "optimizer": {"learning_rate": 2e-3, "warmup": 4},
    "validation": {"every": 4},
    "stop": {"max_steps": 8},
    "checkpoints": {"every": 3},
    "device": "cpu",
    "log_every": 2,
}

EXPERIMENT = """
title: "Small: where documents help"
source: Nobody 2020, Table 1
seeds: [1, 2]
variants:
  tuned:
    recipe: group-{scale}.yaml
    start_from: sentence
    settings: {optimizer.pretrained_lr_scale: 0.5}
    published: {d-BLEU: 33.5}
  sentence:
    recipe: group-{scale}.yaml
    settings: {model.system: sentence}
"""


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiments")
    generator = random.Random(1)
    splits = {}
    for name, documents in (("train", 24), ("dev", 4), ("test", 4)):
        path = folder / f"{name}.jsonl"
        with path.open("w") as file:
            for number in range(documents):
                source = [" ".join(generator.choices(WORDS, k=generator.randint(2, 5))) for _ in range(number % 4 + 1)]
                target = [sentence.upper() for sentence in source]
                file.write(json.dumps({"id": f"d{number}", "source": source, "target": target}) + "\n")
        splits[name] = [path]
    return prepare(PrepareConfig(store=folder / "store", vocabulary_size=300, **splits)).directory


@pytest.fixture
def write_experiment(tmp_path):
    """Return a function that writes an experiment file beside its recipe and returns its path."""
    for scale, steps in (("cpu", 8), ("full", 20)):
        recipe = {**RECIPE, "stop": {"max_steps": steps}}
        (tmp_path / f"group-{scale}.yaml").write_text(yaml.safe_dump(recipe))

    def write(text=EXPERIMENT, name="small.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write
