"""What a training tells people: at its start and end, of new weights, and while it goes on."""

import logging
import re
from dataclasses import replace

import pytest
from runs import metrics

from docmt.model import TranslationModel
from docmt.model.systems import Group
from docmt.training import train
from docmt.training.finetune import describe_new_weights, match_names
from docmt.training.training_corpus import TrainingCorpus, fit_model_config


@pytest.mark.full
def test_the_beginning_and_the_end_are_told(change):
    config = change(batches__gradient_accumulation=2, stop__max_epochs=9, stop__max_minutes=0.5)
    train(config)
    log = (config.run / "train.log").read_text()
    for line in (
        "training from update 0: group model of 2+2 layers, width 16, feed-forward width 32, 2 heads, vocabulary of "
        "300, 20,784 weights\n",
        f"data {config.store}: train 24 documents, 60 sentence pairs, 258 and 220 tokens; dev 6 documents, 13 sentence "
        "pairs, 56 and 48 tokens\n",
        "an update sees up to 128 tokens x 2 on each device, an epoch has 2 updates; on cpu, float32\n",
        "training stops after 12 update(s) or 9 epoch(s) or 0.5 minute(s) or 10 validation(s) without improvement\n",
        "finished: 12 updates are done; the model is best of the validations (update ",
        "best validation: dev loss ",
        f"try: docmt translate {config.run} FILE\n",
    ):
        assert line in log
    assert len(metrics(config.run)) == 9


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_processor_without_bfloat16_is_told(change, monkeypatch, precision):
    monkeypatch.setattr("docmt.training.loop.multiplies_bfloat16", lambda device: False)
    config = change(stop__max_steps=1, precision=precision)
    train(config)
    log = (config.run / "train.log").read_text()
    assert ("no bfloat16 instructions: --precision float32 is faster here" in log) == (precision == "bfloat16")


def test_a_group_model_from_random_weights_on_little_data_is_told(change, sentence_run):
    needed = "from random weights, a group model needs 1,000,000 sentence pairs or more: start from a sentence model"
    for start in (None, sentence_run):
        config = change(stop__max_steps=1, initialize_from=start)
        config = replace(config, run=config.run / str(start is None))
        train(config)
        assert (needed in (config.run / "train.log").read_text()) == (start is None)


def test_part_of_the_data_and_of_the_weights(change, sentence_run):
    config = change(initialize_from=sentence_run, freeze="pretrained", batches__train_share=0.5, stop__max_steps=1)
    train(config)
    log = (config.run / "train.log").read_text()
    assert "20,784 weights, of which 4,848 are trained" in log
    assert "train 12 documents, 30 sentence pairs, " in log


@pytest.mark.parametrize(
    ("settings", "new", "patterns"),
    [
        (
            {"model__group": Group(encoder_layers=1, decoder_layers=2, cross_layers=1)},
            None,
            "encoder.*.attention.global, encoder.*.attention.gate, decoder.*.attention.global, "
            "decoder.*.attention.gate, decoder.*.cross.global, decoder.*.cross.gate",
        ),
        ({}, ["encoder.0.feed_forward.inner.bias"], "encoder.*.feed_forward.inner"),
        ({}, ["tokens.weight"], "tokens.weight"),
    ],
)
def test_new_weights_are_told_by_patterns(change, store, settings, new, patterns):
    model = TranslationModel(fit_model_config(change(**settings).model, store))
    tensors = model.state_dict()
    new = new or [name for name in tensors if model.system.initial_weight(name) is None]
    count = sum(tensors[name].numel() for name in new)
    description = describe_new_weights(new, model)
    start = f"{len(new)} new tensors ({count:,} weights): "
    assert description.startswith(start)
    assert sorted(description.removeprefix(start).split(", ")) == sorted(patterns.split(", "))
    for pattern in patterns.split(", "):  # as options of a training take them
        assert match_names("freeze", f"{pattern}*", tensors)


@pytest.mark.parametrize("log_every", [1, 100])
def test_the_progress_line(change, store, log_every, monkeypatch, capsys):
    """Loss, speed, learning rate, the last validation and the time left until the nearest limit."""
    monkeypatch.setattr("docmt.core.progress.LINE_INTERVAL_SECONDS", 0.0)
    stop = {"stop__max_steps": 1000, "stop__max_epochs": 30, "stop__patience": 2}
    config = change(**stop, optimizer__learning_rate=1e-12, log_every=log_every)
    train(config)
    total = 30 * TrainingCorpus(store, config).count_updates(0)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training (updates)")]
    assert len(lines) == 12
    number = r"[\d.,e+-]+"
    for line, dev in (
        (lines[0], ""),
        (lines[3], rf", dev loss {number} \(best\)"),
        (lines[9], rf", dev loss {number} \(best {number}\)"),
    ):
        assert_matches(
            rf"training \(updates\): \d+ of {total} loss {number}, {number} tokens/s, learning rate {number}{dev} ",
            line,
        )
        assert_matches(r".*\(0:\d\d, \d+:\d\d left\)$", line)


def assert_matches(pattern, line):
    assert re.match(pattern, line), line


@pytest.mark.full
def test_document_bleu_is_told_where_it_chooses(change, caplog):
    caplog.set_level(logging.INFO)
    config = change(validation__best_by="d_bleu", stop__max_steps=4)
    train(config)
    assert "best validation: dev d-BLEU " in caplog.text
