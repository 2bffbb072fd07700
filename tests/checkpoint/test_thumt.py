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
def given(tmp_path):
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


def refused(message, given):
    with pytest.raises(DocmtError, match=message):
        convert_thumt(given.pop("checkpoint"), given.pop("output"), **given)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("source_vocabulary", b"\xff", r"is no text in UTF-8 .*: give the vocabulary of the checkpoint"),
        ("source_vocabulary", b"a\nb\n", r"does not begin with <pad>, <eos>, <unk>, a line each"),
        ("source_vocabulary", b"<pad>\n<eos>\n<unk>\na\na\n", "has a symbol twice"),
        ("source_vocabulary", b"<pad>\n<eos>\n<unk>\na\n", r"has source_tokens.weight of shape \[65, 32\] where"),
        ("arguments", b"{", "is damaged"),
        ("checkpoint", b"nothing", "is damaged"),
    ],
)
def test_damaged_files(given, file, content, message):
    given[file].write_bytes(content)
    refused(message, given)


@pytest.mark.parametrize("file", ["source_vocabulary", "arguments", "checkpoint"])
def test_missing_files(given, file):
    given[file].unlink()
    refused("no such file|there is no file", given)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("multiply_embedding_mode", "none", "trained with multiply_embedding_mode = 'none', where docmt"),
        ("context_representation", "cnn", "context_representation = 'cnn', where docmt's model knows self_attention"),
        ("num_context_layers", 3, r"lacks weights for context\.1\."),
        (
            "num_encoder_layers",
            1,
            "has 2 layers of the encoder where its arguments ask for 1: they belong to another checkpoint",
        ),
        ("residual_dropout", "much", "residual_dropout = 'much', which is no number"),
        ("num_decoder_layers", 1000, "has 2 layers of the decoder where its arguments ask for 1000"),
    ],
)
def test_parameters_that_do_not_fit(given, name, value, message):
    values = json.loads(given["arguments"].read_text())
    values["parameters"][name] = value
    given["arguments"].write_text(json.dumps(values))
    refused(message, given)


def logits(given, output, tensors, **parameters):
    """Logits of a conversion of these variables, with these parameters."""
    values = json.loads(given["arguments"].read_text())
    values["parameters"] |= parameters
    given["arguments"].write_text(json.dumps(values))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, given["checkpoint"])
    files = {name: given[name] for name in ("target_vocabulary", "arguments")}
    model = convert_thumt(given["checkpoint"], output, source_vocabulary=given["target_vocabulary"], **files)
    source = [[5, 6, 7, 2], [8, 9, 2]]
    return model.logits([(source, [[0, 10, 11], [0, 12]])])[0]


def test_shared_embeddings_are_those_of_both_sides_and_of_the_softmax(given, tmp_path):
    """The published code has one variable `weights` for both sides, and none for a shared softmax."""
    apart = load_file(given["checkpoint"])
    scope = next(name for name in apart if name.endswith("/target_embedding")).rpartition("/")[0]
    table = apart[f"{scope}/target_embedding"]
    apart |= {f"{scope}/source_embedding": table, f"{scope}/softmax": table}
    expected = logits(given, tmp_path / "apart", apart)
    tied = {name: tensor for name, tensor in apart.items() if not name.endswith("/softmax")}
    found = logits(given, tmp_path / "tied", tied, shared_embedding_and_softmax_weights=True)
    assert torch.equal(found, expected)
    one = {name: tensor for name, tensor in tied.items() if not name.endswith("_embedding")} | {
        f"{scope}/weights": table
    }
    assert torch.equal(logits(given, tmp_path / "one", one, shared_source_target_embedding=True), expected)
    assert load_model(tmp_path / "one").config.output == "tied"


def test_nothing_is_written_over(given):
    given["output"].mkdir()
    refused("exists already", given)


def test_npz_files_that_are_none(given, tmp_path):
    given["checkpoint"] = tmp_path / "model.npz"
    given["checkpoint"].write_bytes(b"PK nothing")
    refused("is damaged or no .npz file", given)
