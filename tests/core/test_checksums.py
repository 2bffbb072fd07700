"""Checksums: every flipped bit is noticed, wherever it is; files without checksums are read."""

import json
import random
import zlib
from dataclasses import asdict

import pytest
import torch

from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model
from docmt.checkpoint.weights import load_weights
from docmt.core.errors import DocmtError
from docmt.core.files import CHECKSUMS_KEY, check_checksum, file_checksum, json_checksum, stored_checksums
from docmt.data import PrepareConfig, PreparedStore, prepare
from docmt.model import ModelConfig, TranslationModel
from docmt.text import BpeTokenizer
from docmt.training.finetune import trainable_parameters
from docmt.training.optimizer import optimizer_tensors, restore_optimizer
from docmt.training.run_directory import BestValidation, TrainingState, read_state, save_checkpoint

SIZES = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
SPLIT = ["source_tokens.npy", "target_tokens.npy", "source_offsets.npy", "target_offsets.npy", "document_offsets.npy"]
FLIPS = 12


@pytest.fixture(scope="module")
def tokenizer():
    return BpeTokenizer.train(["a few words", "a few more words"], 264)


def make_model():
    torch.manual_seed(0)
    return TranslationModel(ModelConfig(system="sentence", vocabulary_size=264, **SIZES))


@pytest.fixture
def model(tmp_path, tokenizer):
    save_model(tmp_path / "model", make_model(), tokenizer)
    return tmp_path / "model"


def trained_files():
    """What a checkpoint holds after one update."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return {
        "model.safetensors": model.state_dict(),
        "optimizer.safetensors": optimizer_tensors(trainable_parameters(model), optimizer),
    }


@pytest.fixture
def checkpoint(tmp_path):
    state = TrainingState(BestValidation(False, 1.5, 2, 0), data="1234", update=2, snapshots=[(1, 0.1)])
    save_checkpoint(tmp_path / "last", trained_files(), asdict(state))
    return tmp_path / "last"


@pytest.fixture
def store(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"c.{side}").write_text("".join(f"words number {number}\n" for number in range(50)))
    files = [tmp_path / "c.en", tmp_path / "c.de"]
    return prepare(PrepareConfig(tmp_path / "store", train=files, dev=files, vocabulary_size=264)).directory


def flips(path, start=0, count=FLIPS):
    """Flips one bit after another, at random places from the byte `start` on; the file is as it was in the end."""
    data = path.read_bytes()
    generator = random.Random(path.name)
    for _ in range(count):
        place, bit = generator.randrange(start, len(data)), generator.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        yield place
    path.write_bytes(data)


def header_end(path):
    """Where the numbers of a safetensors file begin."""
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def open_checkpoint(directory):
    model = make_model()
    load_weights(model, directory / "model.safetensors")
    restore_optimizer(
        trainable_parameters(model), torch.optim.Adam(model.parameters()), directory / "optimizer.safetensors"
    )
    return read_state(directory)


def refused(read, path):
    with pytest.raises(DocmtError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_checksum_is_that_of_the_whole_file(tmp_path):
    data = random.Random(0).randbytes((2 << 20) + 5)  # more than two blocks
    (tmp_path / "a").write_bytes(data)
    assert file_checksum(tmp_path / "a") == f"{zlib.crc32(data):08x}"
    assert json_checksum({"a": 1, "b": (2,)}) == json_checksum({"b": [2], "a": 1}) != json_checksum({"a": 1, "b": [3]})


def test_every_flipped_bit_of_the_weights_is_noticed(model):
    path = model / "model.safetensors"
    for _ in flips(path, header_end(path)):
        message = refused(load_model, model)
        assert message.startswith(f"{path} is damaged (it does not match its checksum in config.json): copy it again")
    for _ in flips(path):
        assert str(path) in refused(load_model, model)
    load_model(model)


def test_every_flipped_bit_of_a_tokenizer_is_noticed(model):
    for _ in flips(model / "tokenizer.json"):
        assert str(model / "tokenizer.json") in refused(load_model_tokenizer, model)
    load_model_tokenizer(model)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_every_flipped_bit_of_a_checkpoint_is_noticed(checkpoint, name):
    for _ in flips(checkpoint / name):
        message = refused(open_checkpoint, checkpoint)
        assert str(checkpoint / name) in message or "checksum in state.json" in message
    assert open_checkpoint(checkpoint).update == 2


@pytest.mark.parametrize("split", ["train", "dev"])
def test_every_flipped_bit_of_a_store_is_noticed(store, split):
    for name in [*SPLIT, "documents.json"]:
        for _ in flips(store / split / name, count=6):
            assert str(store / split / name) in refused(PreparedStore.open, store)
    PreparedStore.open(store)


def without_checksums(path):
    values = json.loads(path.read_text())
    values.pop(CHECKSUMS_KEY, None)
    path.write_text(json.dumps(values))


def test_files_without_checksums_are_read(model, checkpoint):
    for path in (model / "config.json", model / "tokenizer_config.json", checkpoint / "state.json"):
        assert json.loads(path.read_text())[CHECKSUMS_KEY]
        without_checksums(path)
    for place in flips(model / "model.safetensors", header_end(model / "model.safetensors"), count=1):
        assert place
        load_model(model)  # nothing says that it is another
    load_model_tokenizer(model)
    open_checkpoint(checkpoint)


@pytest.mark.parametrize("entry", [[], "x", {"model.safetensors": 5}, {"model.safetensors": None}])
def test_checksums_that_are_none(model, entry):
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), CHECKSUMS_KEY: entry}))
    assert "has no valid checksums" in refused(load_model, model)
    with pytest.raises(DocmtError, match="has no valid checksums"):
        stored_checksums({CHECKSUMS_KEY: entry}, path)


def test_a_description_in_a_place_that_nobody_can_read(model):
    (model / "state.json").mkdir()
    with pytest.raises(DocmtError, match=r"cannot read \S+state\.json: it is a directory"):
        check_checksum(model / "model.safetensors", "state.json")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("heads", 4, False),
        ("system", "document", None),  # which has other weights
        ("normalization", "pre", None),
        ("activation", "gelu", False),
        ("positions", "document", False),
        ("dropout", 0.0, True),
        ("attention_dropout", 0.2, True),
        ("instance_tokens", 100, True),
        ("instance_sentences", 3, True),
    ],
)
def test_a_config_that_was_changed_in_what_the_weights_mean_is_refused(model, name, value, accepted):
    path = model / "config.json"
    values = json.loads(path.read_text())
    values["model"][name] = value
    path.write_text(json.dumps(values))
    if accepted:
        assert getattr(load_model(model).config, name) == value
        return
    assert "config.json was changed after the model was written" in refused(load_model, model)
    without_checksums(path)  # as the message says
    if accepted is False:
        assert getattr(load_model(model).config, name) == value
