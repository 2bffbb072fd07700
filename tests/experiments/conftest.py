"""A small store with a test split, recipes of one-second trainings, and an experiment of them that is finished."""

import json
import random
import shutil

import pytest
import yaml

from docmt.data import PrepareConfig, prepare
from docmt.decoding import SearchConfig
from docmt.experiments import EvaluationConfig, make_plan, read_experiment, reproduce, runs

GREEDY = EvaluationConfig(SearchConfig(beam=1))

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


def write_files(folder, text=EXPERIMENT, name="small.yaml"):
    """Write an experiment file beside its recipe, and return its path."""
    for scale, steps in (("cpu", 8), ("full", 20)):
        recipe = {**RECIPE, "stop": {"max_steps": steps}}
        (folder / f"group-{scale}.yaml").write_text(yaml.safe_dump(recipe))
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def write_experiment(tmp_path):
    """Return a function that writes an experiment file beside its recipe and returns its path."""
    return lambda text=EXPERIMENT, name="small.yaml": write_files(tmp_path, text, name)


@pytest.fixture
def plan_of(write_experiment, store):
    """Return a function that plans an experiment text."""

    def plan(output, text=EXPERIMENT, scale="cpu", data=store, **settings):
        return make_plan(read_experiment(str(write_experiment(text))), scale, data, output, **settings)

    return plan


@pytest.fixture(scope="session")
def finished(store, tmp_path_factory):
    """The output directory of EXPERIMENT, whose four runs are trained and evaluated."""
    folder = tmp_path_factory.mktemp("finished")
    plan = make_plan(read_experiment(str(write_files(folder))), "cpu", store, folder / "out")
    assert reproduce(plan, GREEDY) == {}
    return plan.output


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished output directory, which may be changed."""
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture
def trained(monkeypatch):
    """The directories in which a training began or went on, with whether it was resumed."""
    calls = []
    original = runs.train

    def recording(config, resume=False):
        calls.append((config.run.name, resume))
        return original(config, resume)

    monkeypatch.setattr(runs, "train", recording)
    return calls
