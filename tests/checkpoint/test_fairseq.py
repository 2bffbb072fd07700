"""Converting checkpoints: what is honoured, what is refused, and what a user sees."""

import argparse
import json
import pickle
import warnings

import gtransformer
import pytest
import torch
from gtransformer import FIXTURES
from safetensors.torch import load_file, save_file

from docmt import Translator, load_model
from docmt.checkpoint import convert_gtransformer
from docmt.checkpoint.fairseq import read_architecture
from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Group

VARIANT = "trained_partial"


@pytest.fixture
def checkpoint(tmp_path):
    """Weights, arguments and a dictionary as three files."""
    gtransformer.convert(VARIANT, tmp_path)
    weights = load_file(FIXTURES / VARIANT / "weights.safetensors")
    return weights, gtransformer.arguments(VARIANT), tmp_path / "dict.en.txt"


def test_a_checkpoint_as_fairseq_writes_it(tmp_path, checkpoint, capsys):
    weights, arguments, dictionary = checkpoint
    torch.save({"args": argparse.Namespace(**arguments), "model": weights, "optimizer_history": []}, tmp_path / "c.pt")
    output = tmp_path / "model"
    command = ["convert", "fairseq-gtransformer", tmp_path / "c.pt", "--dictionary", dictionary, "-o", output]
    assert main([str(word) for word in command]) == 0
    assert "system group" in capsys.readouterr().out
    for one, other in zip(load_model(output).parameters(), load_model(tmp_path / VARIANT).parameters(), strict=True):
        assert torch.equal(one, other)
    translator = Translator(output)
    source = Document.from_sentences(["v11 v22 v13", "v03 v07"])
    translation = translator.translate(source)
    assert len(translation.sentences) == 2
    assert set(translation.text().split()) <= set(translator.tokenizer.symbols)


def test_a_file_that_runs_code_is_not_opened(tmp_path, checkpoint):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    weights, _, dictionary = checkpoint
    torch.save({"args": Evil(), "model": weights}, tmp_path / "evil.pt")
    with pytest.raises(DocmtError, match=r"without running code from it .*print.*safetensors"):
        convert_gtransformer(tmp_path / "evil.pt", dictionary, tmp_path / "model")
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"model": 1}))
    with warnings.catch_warnings(), pytest.raises(DocmtError, match=r"old\.pt cannot be opened"):
        warnings.simplefilter("ignore")
        convert_gtransformer(tmp_path / "old.pt", dictionary, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.full
@pytest.mark.parametrize("junk", ["the quick\n", "hello world\n", "", "\x80\x02]", "(" * 200])
def test_an_invalid_checkpoint_is_refused(tmp_path, checkpoint, junk):
    (tmp_path / "junk.pt").write_text(junk, encoding="latin-1")
    with warnings.catch_warnings(), pytest.raises(DocmtError, match=r"junk\.pt (is damaged|cannot be opened)"):
        warnings.simplefilter("ignore")
        convert_gtransformer(tmp_path / "junk.pt", checkpoint[2], tmp_path / "model")


@pytest.mark.full
def test_arguments_that_are_none_are_asked_for(tmp_path, checkpoint):
    weights, _, dictionary = checkpoint
    torch.save({"args": "--arch gtransformer_base", "model": weights}, tmp_path / "c.pt")
    with pytest.raises(DocmtError, match=r"c\.pt has no training arguments\. Add a JSON file"):
        convert_gtransformer(tmp_path / "c.pt", dictionary, tmp_path / "model")
    with pytest.raises(DocmtError, match=r"there is no file .*none\.json\. Name a JSON file"):
        convert_gtransformer(tmp_path / "c.pt", dictionary, tmp_path / "model", arguments=tmp_path / "none.json")
    with pytest.raises(DocmtError, match=r"there is no file .*none\.safetensors\. Name a checkpoint"):
        convert_gtransformer(tmp_path / "none.safetensors", dictionary, tmp_path / "model")


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_all_embeddings": False}, "share_all_embeddings = False"),
        ({"no_scale_embedding": True}, "no_scale_embedding = True"),
        ({"decoder_attention_heads": 2}, "encoder_attention_heads = 4 and decoder_attention_heads = 2"),
        ({"activation_fn": "tanh"}, r"activation_fn = 'tanh'\. docmt's model supports relu, gelu"),
        ({"doc_mode": "hmt"}, "doc_mode = 'hmt'"),
        ({"encoder_layers": None}, "lack encoder_layers"),
        ({"quant_noise_scalar": 0.5}, "quant_noise_scalar = 0.5, which docmt's model does not support"),
        ({"activation_fn": ["relu"]}, r"activation_fn = \['relu'\]\. docmt's model supports"),
        ({"dropout": "much"}, r"dropout = 'much'\. It must be a number"),
    ],
)
def test_architectures_that_docmt_lacks_are_refused_by_name(change, message):
    values = {**gtransformer.arguments(VARIANT), **change}
    with pytest.raises(DocmtError, match=message):
        read_architecture({name: value for name, value in values.items() if value is not None}, 59)


@pytest.mark.full
def test_every_argument_that_docmt_has_is_honoured(tmp_path, checkpoint):
    _, arguments, dictionary = checkpoint
    arguments |= {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
        "max_source_positions": 40,
        "max_target_positions": 40,
        "layernorm_embedding": True,
        "activation_fn": "gelu",
        "encoder_ctxlayers": 1,
        "decoder_ctxlayers": 0,
        "cross_ctxlayers": 3,
    }
    config = read_architecture(arguments, 59)
    assert (config.normalization, config.activation, config.embedding_normalization) == ("pre", "gelu", True)
    assert (config.position_encoding, config.max_positions) == ("learned", 40)
    assert config.group == Group(encoder_layers=1, decoder_layers=0, cross_layers=3)
    # A checkpoint with these parts under their names: the weights of a model of ours, renamed back.
    torch.manual_seed(1)
    model = TranslationModel(config).eval()
    assert [
        ["local" if a.global_ is None else "global" if a.local is None else "both" for a in attentions]
        for attentions in (
            [layer.attention for layer in model.encoder],
            [layer.attention for layer in model.decoder],
            [layer.cross for layer in model.decoder],
        )
    ] == [["local", "local", "both"], ["local"] * 3, ["both"] * 3]
    weights = {checkpoint_names(name): tensor for name, tensor in model.state_dict().items()}
    for side in ("encoder", "decoder"):
        table = f"{side}.embed_positions.weight"
        weights[table] = torch.cat((torch.full((2, 32), 9.0), weights[table]))
    save_file(weights, tmp_path / "pre.safetensors")
    (tmp_path / "pre.json").write_text(json.dumps(arguments))
    converted = convert_gtransformer(
        tmp_path / "pre.safetensors", dictionary, tmp_path / "pre", arguments=tmp_path / "pre.json"
    )
    pairs = [([[0, 5, 6, 2], [0, 7, 2]], [[0, 9, 2], [0, 8, 8, 2]])]
    assert torch.equal(converted.logits(pairs)[0], model.logits(pairs)[0])


def checkpoint_names(name):
    for pattern, replacement in (
        ("tokens.weight", "encoder.embed_tokens.weight"),
        ("source_positions.table", "encoder.embed_positions"),
        ("target_positions.table", "decoder.embed_positions"),
        ("source_norm", "encoder.layernorm_embedding"),
        ("target_norm", "decoder.layernorm_embedding"),
        ("encoder_norm", "encoder.layer_norm"),
        ("decoder_norm", "decoder.layer_norm"),
        ("attention_residual.norm", "self_attn_layer_norm"),
        ("cross_residual.norm", "encoder_attn_layer_norm"),
        ("feed_forward_residual.norm", "final_layer_norm"),
        ("feed_forward.inner", "fc1"),
        ("feed_forward.outer", "fc2"),
        ("attention.gate.linear", "self_attn_gate.0"),
        ("cross.gate.linear", "encoder_attn_gate.0"),
        ("attention.local", "self_attn_local"),
        ("attention.global", "self_attn_global"),
        ("cross.local", "encoder_attn_local"),
        ("cross.global", "encoder_attn_global"),
        (".query.", ".q_proj."),
        (".key.", ".k_proj."),
        (".value.", ".v_proj."),
        (".output.", ".out_proj."),
    ):
        name = name.replace(pattern, replacement)
    for side in ("encoder", "decoder"):
        if name.startswith(f"{side}.") and name.split(".")[1].isdigit():
            name = name.replace(f"{side}.", f"{side}.layers.", 1)
    return name


def test_the_end_of_a_document_is_the_target_language_wherever_its_row_is(tmp_path, checkpoint):
    weights, arguments, dictionary = checkpoint
    backwards = {**arguments, "source_lang": "de", "target_lang": "en"}
    save_file(weights, tmp_path / "weights.safetensors")
    (tmp_path / "args.json").write_text(json.dumps({"args": backwards}))
    model = convert_gtransformer(tmp_path / "weights.safetensors", dictionary, tmp_path / "de-en")
    rows, embeddings = weights["encoder.embed_tokens.weight"], model.tokens.weight
    assert torch.equal(embeddings[57], rows[56])
    assert torch.equal(embeddings[56], rows[57])
    assert Translator(tmp_path / "de-en").tokenizer.symbols[-1] == "[de]"


@pytest.mark.full
def test_damaged_and_mismatched_files_are_refused(tmp_path, checkpoint):
    weights, arguments, dictionary = checkpoint
    (tmp_path / "args.json").write_text(json.dumps(arguments))

    def refused(message, changed=weights, **options):
        save_file(changed, tmp_path / "weights.safetensors")
        with pytest.raises(DocmtError, match=message):
            convert_gtransformer(
                tmp_path / "weights.safetensors", options.pop("dictionary", dictionary), tmp_path / "new", **options
            )
        assert not (tmp_path / "new").exists()

    name = "decoder.layers.0.fc1.bias"
    refused(r"lacks weights for decoder.0.feed_forward.inner.bias", {k: v for k, v in weights.items() if k != name})
    refused(r"has weights decoder.0.more", {**weights, "decoder.layers.0.more": weights[name].clone()})
    more_layers = {**weights, "decoder.layers.7.fc1.bias": weights[name].clone()}
    refused(r"has 4 decoder layers, but its arguments need 3\. They belong to another checkpoint", more_layers)
    refused(r"has NaN or infinite weights \(in decoder", {**weights, name: weights[name] * torch.nan})
    refused(r"of shape \[3\]", {**weights, name: torch.zeros(3)})
    copy = "decoder.output_projection.weight"
    refused(f"has a {copy} that differs", {**weights, copy: weights["encoder.embed_tokens.weight"] + 1})
    refused("not a sentence model", sentences=True)
    (tmp_path / "short.txt").write_text("v01 1\n")
    refused("has 1 symbols, but the checkpoint has 59", dictionary=tmp_path / "short.txt")
    (tmp_path / "text.txt").write_text("v01 1\nnot a count\n")
    refused("line 2 of .*text.txt", dictionary=tmp_path / "text.txt")
    refused("cannot read the dictionary", dictionary=tmp_path / "absent.txt")
    (tmp_path / "args.json").unlink()
    refused("has no training arguments")
    (tmp_path / "new").mkdir()
    with pytest.raises(DocmtError, match="exists already"):
        convert_gtransformer(tmp_path / "weights.safetensors", dictionary, tmp_path / "new")


@pytest.mark.full
def test_a_plain_checkpoint_may_be_a_sentence_model(tmp_path):
    model = gtransformer.convert("trained_full", tmp_path, sentences=True)
    assert model.config.system == "sentence"
    assert isinstance(model.config, ModelConfig)
