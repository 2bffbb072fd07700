"""Models by name and pair: what counts first, and weights stored in fewer bits."""

import json
import logging
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from docmt import DocmtError, Translator
from docmt.checkpoint import list_models, model_names
from docmt.checkpoint.model_directory import ModelCard, average_models, find_model, load_model, save_model
from docmt.checkpoint.weights import convert_weights, read_weights
from docmt.model import ModelConfig, TranslationModel
from docmt.text import BpeTokenizer

SIZES = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "system": "sentence"}


@pytest.fixture(scope="module")
def tokenizer():
    return BpeTokenizer.train(["a few words", "a few more words"], 264)


@pytest.fixture
def write(tokenizer, home, package):
    """Write a tiny model to the data home or the package. The age is in seconds."""

    def write(name, source="en", target="de", age=0, folder=home / "models", **facts):
        torch.manual_seed(len(name))
        model = TranslationModel(ModelConfig(vocabulary_size=264, **SIZES))
        card = ModelCard(source_language=source, target_language=target, **facts)
        save_model(folder / name, model, tokenizer, card)
        os.utime(folder / name / "config.json", (1e9 - age, 1e9 - age))
        return folder / name

    return write


def test_names_and_pairs_find_models(write, home, package, monkeypatch, tmp_path, caplog):
    marian = write("opus-mt-en-de", hub_id="Helsinki-NLP/opus-mt-en-de")
    nllb = write("nllb.eng_Latn-zho_Hans", "eng_Latn", "zho_Hans")
    shipped = write("en-fr", "en", "fr", folder=package)
    model_names._log_choice.cache_clear()
    for name in ("opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de", "en-de", "eng_Latn-deu_Latn", "en-GB-de"):
        assert find_model(name) == marian, name
    assert find_model("en-zh") == find_model("en-zh-Hans") == nllb
    second = write("en-fr-sentence", "en", "fr", folder=package)
    assert find_model("en-fr") == shipped and find_model("en-fr-sentence") == second
    assert not caplog.messages, "the package has a first model for each pair"
    pulled = write("better", "en", "fr")
    assert find_model("en-fr") == pulled and find_model("en-fr-sentence") == second
    choice = f"en-fr is the pair of several models. Using better, pulled last; the others are {shipped} of the package"
    assert caplog.messages == [choice]
    assert model_names.find_package_model("en-fr") == shipped
    monkeypatch.chdir(tmp_path)
    here = write("en-de", folder=tmp_path)
    assert find_model("en-de").resolve() == here


def test_of_several_models_of_a_pair_the_last_one_counts(write, caplog):
    write("old", age=9)
    new = write("new")
    model_names._log_choice.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [find_model("en-de") for _ in range(2)] == [new, new]
    assert caplog.messages == ["en-de is the pair of several models. Using new, pulled last; the others are old"]
    assert find_model("old").name == "old"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("en-xx", "no model en-xx here. Get it with `docmt pull Helsinki-NLP/opus-mt-en-xx`"),
        ("opus-mt-en-xx", "Get it with `docmt pull Helsinki-NLP/opus-mt-en-xx`"),
        (
            "runs/x",
            "no directory runs/x. Name a model directory or a run directory, or get a model of the hub with `docmt "
            "pull runs/x`",
        ),
        ("none", "there is no directory none. Name a model directory"),
        ("../models/x", "there is no directory ../models/x. Name a model directory"),
    ],
)
def test_an_unknown_model_names_the_command_that_gets_it(home, name, message):
    with pytest.raises(DocmtError, match=message):
        find_model(name)


def test_the_list_describes_models_and_leaves_out_damaged_ones(write, home, package, caplog):
    path = write("a", "eng_Latn", "de", license="cc-by-nc-4.0", hub_id="x/a")
    write("en-fr", "en", "fr", folder=package, license="apache-2.0")
    (write("b") / "model.safetensors").unlink()
    (home / "models" / ".c.1-2.tmp").mkdir()
    first, second = list_models()
    assert (first.name, first.pair, first.system, first.licence, first.hub_id) == (
        *("a", "en-de", "sentence", "cc-by-nc-4.0", "x/a"),
    )
    assert first.path == path and first.size > 4 * first.parameters > 0
    assert (second.name, second.pair, second.path.parent) == ("en-fr", "en-fr", package)
    assert "model.safetensors is missing" in caplog.text


def test_a_pair_is_enough_for_a_translator_and_its_licence_is_logged_once(write, caplog):
    path = write("a", license="cc-by-nc-4.0")
    model_names.warn_if_non_commercial.cache_clear()
    for _ in range(2):
        assert Translator("en-de").languages == ("en", "de")
    assert caplog.messages.count("the licence of a, cc-by-nc-4.0, forbids commercial use") == 1
    translator, checksums = Translator("en-de"), Translator("a").checksums()
    write("newer", age=-9)
    assert translator.checksums() == checksums and Translator("en-de").checksums() != checksums
    text = (path / "README.md").read_text()
    assert "\nlicense: cc-by-nc-4.0\n" in text and "Licence: cc-by-nc-4.0, which forbids commercial use." in text


@pytest.mark.parametrize(
    ("licence", "limited"),
    [("cc-by-nc-4.0", True), ("CC-BY-NC-SA-4.0", True), ("cc-by-4.0", False), ("apache-2.0", False), ("", False)],
)
def test_licences_without_commercial_use(licence, limited):
    assert model_names.is_non_commercial(licence) is limited


def test_half_precision_halves_the_file_and_loads_as_float32(write, tmp_path):
    path = write("a", license="cc-by-nc-4.0", data={"train": "3 documents"})
    average_models([path], tmp_path / "half", "float16")
    assert (tmp_path / "half" / "README.md").read_text() == (path / "README.md").read_text()
    stored, whole = (load_file(each / "model.safetensors") for each in (tmp_path / "half", path))
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = load_model(tmp_path / "half").state_dict()
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    for name, tensor in whole.items():
        assert torch.equal(loaded[name], tensor.half().float()), name
    assert json.loads((tmp_path / "half" / "config.json").read_text())["license"] == "cc-by-nc-4.0"
    average_models([path, tmp_path / "half"], tmp_path / "mean")
    assert load_file(tmp_path / "mean" / "model.safetensors")["tokens.weight"].dtype == torch.float32


def test_int8_quarters_the_file_and_rounds_each_row_to_127_steps(write, tmp_path):
    path = write("a")
    average_models([path], tmp_path / "small", "int8")
    stored, whole = (load_file(each / "model.safetensors") for each in (tmp_path / "small", path))
    matrices = {name for name, tensor in whole.items() if tensor.dim() == 2}
    assert {name for name, tensor in stored.items() if tensor.dtype == torch.int8} == matrices
    assert sum(each.nbytes for each in stored.values()) < 0.4 * sum(each.nbytes for each in whole.values())
    loaded = load_model(tmp_path / "small").state_dict()
    assert loaded.keys() == whole.keys()
    for name, tensor in whole.items():
        if name not in matrices:
            assert torch.equal(loaded[name], tensor), name
            continue
        step = tensor.abs().amax(dim=1, keepdim=True) / 127
        assert bool(((loaded[name] - tensor).abs() <= 0.5001 * step).all()), name
    average_models([tmp_path / "small"], tmp_path / "whole", "float32")
    assert torch.equal(load_file(tmp_path / "whole" / "model.safetensors")["tokens.weight"], loaded["tokens.weight"])
    average_models([tmp_path / "small"], tmp_path / "again", "int8")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(again[name], stored[name]) for name in matrices)


def test_small_numbers_and_wrong_scales_of_int8(tmp_path):
    rows = torch.tensor([[1e-38, 0.0], [0.0, 0.0], [3.0, -4.0]])
    stored = convert_weights(tmp_path, {"m": rows.double(), "v": rows[0]}, "int8")
    assert stored["m.int8_scale"].dtype == torch.float32
    save_file(stored, tmp_path / "model.safetensors")
    restored = read_weights(tmp_path / "model.safetensors")
    torch.testing.assert_close(restored["m"], rows, atol=1e-37, rtol=4e-3)
    assert restored["m"][1].tolist() == [0, 0] and torch.equal(restored["v"], rows[0])
    save_file(stored | {"m.int8_scale": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(DocmtError, match="has 1 scales for m, one for each row is needed"):
        read_weights(tmp_path / "model.safetensors")
    with pytest.raises(DocmtError, match="NaN or infinite"):
        convert_weights(tmp_path, {"m": rows.double() * 1e300}, "int8")


def test_int8_without_scales_is_refused(write, tmp_path):
    path = write("a")
    average_models([path], tmp_path / "small", "int8")
    file = tmp_path / "small" / "model.safetensors"
    tensors = load_file(file)
    del tensors["tokens.weight.int8_scale"]
    save_file(tensors, file)
    with pytest.raises(DocmtError, match=r"has tokens.weight as I8. Convert it to one of F32"):
        load_model(tmp_path / "small")


@pytest.mark.parametrize("stored", ["float16", "int8"])
def test_weights_beyond_the_stored_type_are_refused(write, tmp_path, tokenizer, stored):
    model = load_model(write("a"))
    with torch.no_grad():
        model.tokens.weight[5, 0] = 1e6 if stored == "float16" else torch.inf
    with pytest.raises(DocmtError, match=r"NaN or infinite weights \(in tokens.weight\)"):
        save_model(tmp_path / "half", model, tokenizer, stored=stored)
    assert not (tmp_path / "half").exists()
