"""Files of THUMT that are damaged, missing, or describe what docmt does not have: one sentence each."""

import json
import shutil

import pytest
import torch
import zhang
from safetensors.torch import load_file, save_file

from docmt.checkpoint import convert_thumt
from docmt.checkpoint.model_directory import load_model
from docmt.core.errors import DocmtError

VARIANT = "both_gate"


@pytest.fixture
def conversion(tmp_path):
    """Arguments of a conversion that works, with files of their own."""
    if VARIANT not in zhang.VARIANTS:
        pytest.skip(f"{VARIANT} is not in {zhang.FIXTURES}")
    zhang.convert(VARIANT, tmp_path)
    shutil.rmtree(tmp_path / VARIANT)
    return {
        "checkpoint": tmp_path / f"{VARIANT}.safetensors",
        "output": tmp_path / VARIANT,
        "source_vocabulary": tmp_path / f"{VARIANT}.s.txt",
        "target_vocabulary": tmp_path / f"{VARIANT}.t.txt",
        "arguments": tmp_path / f"{VARIANT}.json",
    }


def refused(message, conversion):
    with pytest.raises(DocmtError, match=message):
        convert_thumt(conversion.pop("checkpoint"), conversion.pop("output"), **conversion)


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("source_vocabulary", b"\xff", r"is not UTF-8 text .*\. Use the vocabulary of the checkpoint"),
        ("source_vocabulary", b"a\nb\n", r"does not begin with the lines <pad>, <eos>, <unk>"),
        ("source_vocabulary", b"<pad>\n<eos>\n<unk>\na\na\n", "has a duplicate symbol"),
        ("source_vocabulary", b"<pad>\n<eos>\n<unk>\na\n", r"has source_tokens.weight of shape \[65, 32\], but"),
        ("arguments", b"{", "is damaged"),
        ("checkpoint", b"nothing", "is damaged"),
    ],
)
def test_damaged_files(conversion, file, content, message):
    conversion[file].write_bytes(content)
    refused(message, conversion)


@pytest.mark.full
@pytest.mark.parametrize("file", ["source_vocabulary", "arguments", "checkpoint"])
def test_missing_files(conversion, file):
    conversion[file].unlink()
    refused("no such file|there is no file", conversion)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("multiply_embedding_mode", "none", "trained with multiply_embedding_mode = 'none', which docmt"),
        ("context_representation", "cnn", r"context_representation = 'cnn'\. docmt's model supports self_attention"),
        ("num_context_layers", 3, r"lacks weights for context\.1\."),
        (
            "num_encoder_layers",
            1,
            r"has 2 encoder layers, but its arguments need 1\. They belong to another checkpoint",
        ),
        ("residual_dropout", "much", r"residual_dropout = 'much'\. It must be a number"),
        ("num_decoder_layers", 1000, "has 2 decoder layers, but its arguments need 1000"),
    ],
)
def test_parameters_that_do_not_fit(conversion, name, value, message):
    values = json.loads(conversion["arguments"].read_text())
    values["parameters"][name] = value
    conversion["arguments"].write_text(json.dumps(values))
    refused(message, conversion)


def logits(conversion, output, tensors, **parameters):
    """Logits of a conversion of these variables, with these parameters."""
    values = json.loads(conversion["arguments"].read_text())
    values["parameters"] |= parameters
    conversion["arguments"].write_text(json.dumps(values))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, conversion["checkpoint"])
    files = {name: conversion[name] for name in ("target_vocabulary", "arguments")}
    model = convert_thumt(conversion["checkpoint"], output, source_vocabulary=conversion["target_vocabulary"], **files)
    source = [[5, 6, 7, 2], [8, 9, 2]]
    return model.logits([(source, [[0, 10, 11], [0, 12]])])[0]


@pytest.mark.full
def test_shared_embeddings_are_those_of_both_sides_and_of_the_softmax(conversion, tmp_path):
    """The published code has one variable `weights` for both sides, and none for a shared softmax."""
    variables = load_file(conversion["checkpoint"])
    scope = next(name for name in variables if name.endswith("/target_embedding")).rpartition("/")[0]
    table = variables[f"{scope}/target_embedding"]
    variables |= {f"{scope}/source_embedding": table, f"{scope}/softmax": table}
    expected = logits(conversion, tmp_path / "apart", variables)
    tied = {name: tensor for name, tensor in variables.items() if not name.endswith("/softmax")}
    results = logits(conversion, tmp_path / "tied", tied, shared_embedding_and_softmax_weights=True)
    assert torch.equal(results, expected)
    one = {name: tensor for name, tensor in tied.items() if not name.endswith("_embedding")} | {
        f"{scope}/weights": table
    }
    assert torch.equal(logits(conversion, tmp_path / "one", one, shared_source_target_embedding=True), expected)
    assert load_model(tmp_path / "one").config.output == "tied"


def test_nothing_is_written_over(conversion):
    conversion["output"].mkdir()
    refused("exists already", conversion)


@pytest.mark.full
def test_npz_files_that_are_none(conversion, tmp_path):
    conversion["checkpoint"] = tmp_path / "model.npz"
    conversion["checkpoint"].write_bytes(b"PK nothing")
    refused("is damaged or not an .npz file", conversion)
