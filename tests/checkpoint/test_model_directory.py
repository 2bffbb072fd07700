"""Model directories: what is saved is loaded, and damage is named."""

import json
import os
import stat
import time
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file, save_file

from docmt.checkpoint.model_directory import ModelCard, load_languages, load_model, load_model_tokenizer, save_model
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.model_config import Linear
from docmt.model.systems import Concat, Context, Group, Hierarchical
from docmt.text import BpeTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return BpeTokenizer.train(["a few words", "a few more words"], 264)


def make_model(seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    if settings.get("system", "group") == "group":
        settings = {"group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1), **settings}
    return TranslationModel(ModelConfig(vocabulary_size=264, **sizes, **settings))


@pytest.fixture
def directory(tmp_path, tokenizer):
    path = tmp_path / "model"
    save_model(path, make_model(), tokenizer)
    return path


PAIR = [([[0, 5, 6, 2], [0, 7, 2]], [[0, 8, 2], [0, 9, 10, 2]])]


VARIANTS = [
    {},
    {"normalization": "pre", "position_encoding": "learned"},
    {"system": "sentence"},
    {"system": "document", "normalization": "pre"},
    {"system": "concat", "concat": Concat(sentences=3, loss="last", window_decoding="prefix")},
    {"system": "concat", "concat": Concat(padding_windows=True)},
    *(
        {
            "system": "concat",
            "concat": Concat(attention="linear"),
            "linear": Linear(feature_map="random", feature_sampling=sampling),
        }
        for sampling in ("independent", "orthogonal", "quasi")
    ),
    {"system": "context"},
    {"system": "context", "context": Context(sentences=1, layers=2, fusion="published"), "normalization": "pre"},
    {"system": "context", "context": Context(representation="bilstm", gating="residual", side="decoder")},
    {"system": "context", "context": Context(representation="embedding", side="encoder")},
    {"group": Group(sentence_distances=True)},
    {"system": "hierarchical", "hierarchical": Hierarchical(side="both")},
    {"system": "flat"},
    {"system": "hybrid"},
    {"system": "selective"},
    {"system": "cadec"},
]


@pytest.mark.parametrize("settings", VARIANTS)
def test_a_saved_model_is_loaded(tmp_path, tokenizer, settings):
    model = make_model(**settings)
    save_model(tmp_path / "m", model, tokenizer)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    loaded = load_model(tmp_path / "m")
    assert torch.equal(before, torch.get_rng_state()), "loading must not draw random numbers"
    assert loaded.config == model.config
    assert not loaded.training
    trained = [[parameter.requires_grad for parameter in each.parameters()] for each in (loaded, model)]
    assert trained[0] == trained[1]
    assert all(trained[0]) == (model.config.system != "cadec")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    drafts = [PAIR[0][1]] if model.system.context_spec().drafts else ()
    assert torch.equal(loaded.logits(PAIR, drafts)[0], model.logits(PAIR, drafts)[0])
    assert load_model_tokenizer(tmp_path / "m").encode("a few words") == tokenizer.encode("a few words")


def test_a_run_directory_will_do(directory):
    assert load_model(directory.parent).config == load_model(str(directory)).config


def test_an_old_directory_is_replaced(directory, tokenizer):
    save_model(directory, make_model(seed=9), tokenizer)
    assert torch.equal(load_model(directory).tokens.weight, make_model(seed=9).tokens.weight)
    assert [path.name for path in directory.parent.iterdir()] == ["model"]


def test_the_card_tells_where_the_model_comes_from(tmp_path, tokenizer):
    card = ModelCard(
        title="News",
        source_language="en",
        target_language="de",
        data={"train": "3 documents"},
        recipe={"seed": 1},
        training={"updates": 7},
        scores=[{"name": "d-BLEU", "score": 12.345, "signature": "nrefs:1|case:mixed"}],
    )
    save_model(tmp_path / "m", make_model(), tokenizer, card)
    text = (tmp_path / "m" / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: docmt\n")
    for part in ("- en\n- de\n", "# News", "train: 3 documents", '"seed": 1', "updates: 7"):
        assert part in text
    assert "| d-BLEU | 12.35 | `nrefs:1\\|case:mixed` |" in text
    assert load_languages(tmp_path / "m") == ("en", "de")
    save_model(tmp_path / "m", make_model(), tokenizer, asdict(card))
    assert (tmp_path / "m" / "README.md").read_text() == text


def test_languages_that_are_not_recorded(directory):
    assert load_languages(directory) == ("", "")
    config = json.loads((directory / "config.json").read_text())
    del config["source_language"]  # as written before languages were stored
    (directory / "config.json").write_text(json.dumps(config))
    assert load_languages(directory.parent) == ("", "")
    (directory / "config.json").write_text(json.dumps({**config, "source_language": ["en"]}))
    with pytest.raises(DocmtError, match=r"config.json has a language \['en'\]\. Write a code"):
        load_languages(directory)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer_config.json", "tokenizer.json"])
def test_nobody_waits_for_a_pipe(directory, file):
    (directory / file).unlink()
    os.mkfifo(directory / file)
    with pytest.raises(DocmtError, match=rf"cannot read .*{file}: it is a pipe; give a file"):
        load_model_tokenizer(directory) if file.startswith("tokenizer") else load_model(directory)


def rewrite(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", lambda path: path.unlink(), "model.safetensors is missing"),
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-50]), "model.safetensors is damaged"),
        ("model.safetensors", lambda path: path.write_bytes(b""), "model.safetensors is damaged"),
        ("model.safetensors", lambda path: path.write_bytes(b"\x80\x02."), "model.safetensors is damaged"),
        (
            "model.safetensors",
            lambda path: rewrite(path, lambda t: t.pop("encoder.0.feed_forward.inner.bias")),
            r"lacks weights for encoder.0.feed_forward.inner.bias",
        ),
        (
            "model.safetensors",
            lambda path: rewrite(path, lambda t: t.update(extra=torch.zeros(1))),
            "has weights extra, which docmt's model does not have",
        ),
        (
            "model.safetensors",
            lambda path: rewrite(path, lambda t: t.update({"tokens.weight": torch.zeros(5, 16)})),
            r"tokens.weight of shape \[5, 16\], but the config needs \[264, 16\]",
        ),
        ("config.json", lambda path: path.unlink(), "cannot read .*config.json: there is no such file; copy the"),
        ("config.json", lambda path: path.write_text("{"), "config.json is damaged"),
        ("config.json", lambda path: path.write_text("[" * 100_000), "config.json is damaged .*brackets"),
        ("config.json", lambda path: path.write_bytes(b'{"model": "\xff"}'), "config.json is damaged"),
        ("config.json", lambda path: path.write_text("{}"), 'config.json has no entry "model"'),
        (
            "config.json",
            lambda path: path.write_text('{"docmt_version": "9.9", "model": {"hyper": 1}}'),
            r"is not valid \(the configuration has the unknown setting model\.hyper: .*written by docmt 9.9",
        ),
        (
            "config.json",
            lambda path: path.write_text(json.dumps({"model": {"width": "wide"}})),
            "config.json is not valid",
        ),
    ],
)
def test_damage_is_named(directory, file, damage, message):
    damage(directory / file)
    with pytest.raises(DocmtError, match=message) as caught:
        load_model(directory)
    assert "\n" not in str(caught.value)


HUGE = {
    "encoder_layers": (1000, r"has 1 encoder layers, but the config needs 1000\. It belongs to another model"),
    "decoder_layers": (1000, r"has 1 decoder layers, but the config needs 1000\. It belongs to another model"),
    "vocabulary_size": (10**7, r"tokens.weight of shape \[264, 16\], but the config needs \[10000000, 16\]"),
    "width": (2**16, r"but the config needs \[264, 65536\]"),
    "feed_forward": (2**20, r"but the config needs \[1048576"),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_config_of_another_model_takes_no_memory(directory, name):
    """500 bytes asked for more memory than there is, before the weights were looked at."""
    path = directory / "config.json"
    value, message = HUGE[name]
    values = json.loads(path.read_text())
    path.write_text(json.dumps({"model": {**values["model"], name: value}}))
    before = time.process_time()
    with pytest.raises(DocmtError, match=message):
        load_model(directory)
    assert time.process_time() - before < 5


def test_layers_of_contexts_without_end(tmp_path, tokenizer):
    save_model(tmp_path, make_model(system="context"), tokenizer)
    values = json.loads((tmp_path / "config.json").read_text())
    values["model"]["context"]["layers"] = 1000
    (tmp_path / "config.json").write_text(json.dumps({"model": values["model"]}))
    with pytest.raises(DocmtError, match=r"has \d+ weights, but the config needs 1000 layers"):
        load_model(tmp_path)


KINDS = {
    torch.int8: "I8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_weights_of_kinds_that_are_no_fractions_are_refused(directory, kind):
    rewrite(directory / "model.safetensors", lambda t: t.update({"tokens.weight": t["tokens.weight"].to(kind)}))
    message = f"model.safetensors has tokens.weight as {KINDS[kind]}. Convert it to one of F32, F16, BF16, F64"
    with pytest.raises(DocmtError, match=message):
        load_model(directory)


def forget_checksums(directory):
    path = directory / "config.json"
    path.write_text(json.dumps({"model": json.loads(path.read_text())["model"]}))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weights_of_other_fractions_become_float32(directory, kind):
    wanted = load_model(directory).state_dict()
    rewrite(directory / "model.safetensors", lambda t: t.update({name: t[name].to(kind) for name in t}))
    forget_checksums(directory)
    for name, tensor in load_model(directory).state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, wanted[name].to(kind).float())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused(directory, number):
    rewrite(directory / "model.safetensors", lambda t: t["encoder.0.feed_forward.inner.bias"][3:4].fill_(number))
    forget_checksums(directory)
    message = r"NaN or infinite weights \(in encoder\.0\.feed_forward\.inner\.bias\)"
    with pytest.raises(DocmtError, match=message):
        load_model(directory)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_mode_of_the_umask(tmp_path, tokenizer, mask, mode):
    before = os.umask(mask)
    try:
        save_model(tmp_path / "m", make_model(), tokenizer)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()} == {mode}


def test_a_link_to_a_model_goes_on_pointing_to_it(tmp_path, directory, tokenizer):
    (tmp_path / "link").symlink_to(directory)
    save_model(tmp_path / "link", make_model(seed=9), tokenizer)
    assert (tmp_path / "link").readlink() == directory
    assert torch.equal(load_model(directory).tokens.weight, make_model(seed=9).tokens.weight)


def test_places_without_a_model_are_named(tmp_path):
    with pytest.raises(DocmtError, match=r"there is no directory .*nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(
        DocmtError, match=r"is not a model directory\. It has neither config.json and model.safetensors nor"
    ):
        load_model(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DocmtError, match="is not a model directory"):
        load_model(tmp_path / "file")


@pytest.mark.parametrize("invalid", [None, 3, ["a"]])
def test_an_invalid_path_is_a_type_error(invalid):
    with pytest.raises(TypeError, match=r"a model directory is a path \(str or Path\), not"):
        load_model(invalid)


def test_a_full_disk_leaves_the_old_model(directory, tokenizer, monkeypatch):
    before = (directory / "model.safetensors").read_bytes()

    def full(tensors, path, facts=None):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("docmt.checkpoint.weights.save_file", full)
    with pytest.raises(DocmtError, match=r"cannot write .*model: No space left on device"):
        save_model(directory, make_model(seed=2), tokenizer)
    assert (directory / "model.safetensors").read_bytes() == before
    assert [path.name for path in directory.parent.iterdir()] == ["model"]
