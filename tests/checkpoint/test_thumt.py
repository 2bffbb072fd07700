"""Files of THUMT that are damaged, missing, or describe what docmt does not have: one sentence each."""

import json
import shutil

import pytest
import zhang

from docmt.checkpoint import convert_thumt
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
        ("shared_source_target_embedding", True, "trained with shared_source_target_embedding = True, where docmt"),
        ("context_representation", "cnn", "context_representation = 'cnn', where docmt's model knows self_attention"),
        ("num_context_layers", 3, r"lacks weights for context\.1\."),
        (
            "num_encoder_layers",
            1,
            "has 2 layers of the encoder where its arguments ask for 1: they belong to another checkpoint",
        ),
        ("num_decoder_layers", 1000, "has 2 layers of the decoder where its arguments ask for 1000"),
    ],
)
def test_parameters_that_do_not_fit(given, name, value, message):
    values = json.loads(given["arguments"].read_text())
    values["parameters"][name] = value
    given["arguments"].write_text(json.dumps(values))
    refused(message, given)


def test_nothing_is_written_over(given):
    given["output"].mkdir()
    refused("exists already", given)


def test_npz_files_that_are_none(given, tmp_path):
    given["checkpoint"] = tmp_path / "model.npz"
    given["checkpoint"].write_bytes(b"PK nothing")
    refused("is damaged or no .npz file", given)
