"""Converting checkpoints of the RFA code: what is honoured, what is refused, and what a user sees."""

import argparse
import json

import pytest
import rfa
import torch
from safetensors.torch import load_file, save_file

from docmt import SearchConfig, Translator
from docmt.analysis.model_summary import ModelSummary
from docmt.checkpoint import convert_rfa
from docmt.checkpoint.rfa import read_architecture
from docmt.cli.app import main
from docmt.core.errors import DocmtError
from docmt.model.model_config import Linear

VARIANT = "rfa_sgate"


@pytest.fixture
def conversion(tmp_path):
    """Arguments of a conversion that works, with files of their own."""
    files = rfa.conversion_arguments(VARIANT)
    weights = load_file(files["checkpoint"])
    copies = {name: tmp_path / path.name for name, path in files.items()}
    for name, path in copies.items():
        path.write_bytes(files[name].read_bytes())
    return {**copies, "output": tmp_path / "model"}, weights


def values_of(variant, **changes):
    return {**rfa.read_json(variant, "args.json")["args"], **changes}


def config_of(values, linear=True):
    return read_architecture(values, linear=linear, source_size=42, target_size=42)


def test_a_checkpoint_as_fairseq_writes_it_translates_text(conversion, capsys):
    """With the pools of features and copies of embeddings that such a file holds as well."""
    files, weights = conversion
    weights |= {
        "decoder.output_projection.weight": weights["decoder.embed_tokens.weight"].clone(),
        "decoder.random_matrices": torch.zeros(500, 8, 8),
        "encoder.cross_attention_project.random_matrices": torch.zeros(500, 16, 8),
        "encoder.embed_positions._float_tensor": torch.zeros(1),
        "decoder.version": torch.tensor([3.0]),
    }
    arguments = argparse.Namespace(**values_of(VARIANT))
    torch.save({"args": arguments, "model": weights}, files["checkpoint"].with_suffix(".pt"))
    command = [
        *("convert", "fairseq-rfa", files["checkpoint"].with_suffix(".pt"), "-o", files["output"]),
        *("--source-dictionary", files["source_dictionary"], "--target-dictionary", files["target_dictionary"]),
    ]
    assert main([str(word) for word in command]) == 0
    assert "system concat" in capsys.readouterr().out
    text = files["output"].parent / "source.txt"
    text.write_text("s22 s11 s2\ns26\n")
    assert main(["translate", str(files["output"]), str(text), "--search.implementation", "rfa"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    translator = Translator(files["output"], search=SearchConfig(beam=2), protect=None)
    facts = ModelSummary.from_directory(files["output"])
    lines = [" ".join(line.split()) for line in facts.format().splitlines()]
    assert ": concat model of family rfa, " in lines[0]
    assert {"Options of linear attention", "feature_map random", "gate decay"} <= set(lines)
    assert sum(facts.parameters.values()) == sum(weight.numel() for weight in translator.model.parameters())
    assert set(translator.translate("s22 s11 s2").split()) <= set(translator.tokenizer.symbols)


@pytest.mark.full
def test_every_argument_that_docmt_has_is_honoured():
    config = config_of(values_of(VARIANT))
    assert (config.family, config.system, config.activation, config.width) == ("rfa", "concat", "gelu", 32)
    concat = config.concat
    assert (concat.sentences, concat.loss, concat.window_decoding, concat.attention) == (4, "all", "prefix", "linear")
    assert config.linear == Linear(feature_map="random", features=8, cross_features=16, gate="decay", gate_bias=2.0)
    config = config_of(values_of(VARIANT, use_sentential_gate=True, decay_sentential_gate=False, norm_rescale=False))
    assert (config.linear.gate, config.linear.rescale_keys) == ("average", False)
    config = config_of(values_of("rfa_reparam", full_supervision=False, context_size=0, extra_padding=True))
    assert (config.linear.temperature_per, config.linear.gate) == ("dimension", "none")
    assert (config.concat.sentences, config.concat.loss, config.concat.padding_windows) == (1, "last", False)
    assert config_of(values_of(VARIANT, extra_padding=True)).concat.padding_windows
    assert config_of(values_of(VARIANT, full_supervision=False, seq2seq=True)).concat.loss == "all"
    assert config_of(values_of("softmax"), linear=False).concat.attention == "softmax"
    large = read_architecture(values_of(VARIANT), linear=True, source_size=50, target_size=42)
    assert (large.source_vocabulary_size, large.vocabulary_size) == (50, 42)


@pytest.mark.full
def test_a_temperature_that_is_not_learned_is_that_of_the_arguments(conversion):
    files, weights = conversion
    save_file({name: value for name, value in weights.items() if not name.endswith(".tau")}, files["checkpoint"])
    values = values_of(VARIANT, learned_tau=False, causal_tau=1.5, cross_tau=0.5)
    files["arguments"].write_text(json.dumps(values))
    layer = convert_rfa(**files).decoder[1]
    assert layer.attention.global_.features.temperature.unique().tolist() == [1.5]
    assert layer.cross.global_.features.temperature.unique().tolist() == [0.5]


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_decoder_input_output_embed": False}, "share_decoder_input_output_embed = False, which docmt's model"),
        ({"share_all_embeddings": True}, "share_all_embeddings = True"),
        ({"use_sep": False}, "use_sep = False"),
        ({"random_feature": "prf"}, r"random_feature = 'prf'\. docmt's model supports rrf"),
        ({"encoder_normalize_before": True}, "encoder_normalize_before = True"),
        ({"layernorm_embedding": True}, "layernorm_embedding = True"),
        ({"decoder_attention_heads": 2}, "encoder_attention_heads = 4 and decoder_attention_heads = 2"),
        ({"use_sentential_gate": True}, "decay_sentential_gate and use_sentential_gate"),
        ({"causal_proj_dim": None}, "lack causal_proj_dim"),
        ({"context_size": None}, "lack context_size"),
        ({"context_size": "three"}, r"context_size = 'three'\. It must be a number"),
        ({"context_size": -1}, r"model\.concat\.sentences"),
    ],
)
def test_architectures_that_docmt_lacks_are_refused_by_name(change, message):
    values = {name: value for name, value in values_of(VARIANT, **change).items() if value is not None}
    with pytest.raises(DocmtError, match=message):
        config_of(values)


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("source_dictionary", b"\xff", "is not UTF-8 text"),
        ("source_dictionary", b"a 1\nb\n", "line 2 of .* is not a symbol and its count"),
        (
            "target_dictionary",
            b"a 1\n",
            "has 1 symbols, but the checkpoint has 40 embeddings, 5 of them for special tokens",
        ),
        ("target_dictionary", b"a 1\n" * 35, "has a duplicate symbol"),
        ("arguments", b"{", "is damaged"),
        ("checkpoint", b"nothing", "is damaged"),
    ],
)
def test_damaged_files(conversion, file, content, message):
    conversion[0][file].write_bytes(content)
    with pytest.raises(DocmtError, match=message):
        convert_rfa(**conversion[0])
    assert not conversion[0]["output"].exists()


@pytest.mark.full
@pytest.mark.parametrize("file", ["source_dictionary", "arguments", "checkpoint"])
def test_missing_files(conversion, file):
    conversion[0][file].unlink()
    with pytest.raises(DocmtError, match=r"no such file|there is no file"):
        convert_rfa(**conversion[0])


@pytest.mark.full
def test_weights_that_do_not_fit(conversion):
    files, weights = conversion

    def refused(message, changed):
        save_file(changed, files["checkpoint"])
        with pytest.raises(DocmtError, match=message):
            convert_rfa(**files)

    without = {name: value for name, value in weights.items() if "embed_tokens" not in name}
    refused("has no decoder.embed_tokens.weight", without)
    untied = {**weights, "decoder.output_projection.weight": weights["decoder.embed_tokens.weight"] + 1}
    refused("has a decoder.output_projection.weight that differs", untied)
    ungated = {name: value for name, value in weights.items() if "g_proj" not in name}
    refused(r"lacks weights for decoder\.0\.attention\.global\.gate", ungated)
    name = "decoder.random_matrices_eval"
    refused(r"of shape \[4, 9, 8\], but its arguments need \[4, 8, 8\]", {**weights, name: torch.zeros(4, 9, 8)})
    missing = {other: value for other, value in weights.items() if other != name}
    refused(r"lacks weights for decoder\.0\.attention\.global\.features\.matrices", missing)
    files["output"].mkdir()
    refused("exists already", weights)


@pytest.mark.full
def test_a_dictionary_that_is_filled_up_has_the_same_symbols(conversion):
    """Symbols that fairseq adds may be in the file or not."""
    files, _ = conversion
    tokenizers = []
    for number in range(2):
        if number:
            lines = files["target_dictionary"].read_text().splitlines()
            files["target_dictionary"].write_text("".join(f"{line}\n" for line in lines if "madeup" not in line))
        output = files["output"].with_name(f"model{number}")
        convert_rfa(**{**files, "output": output})
        tokenizers.append(Translator(output).tokenizer)
    assert tokenizers[0].symbols == tokenizers[1].symbols
    assert tokenizers[0].symbols[-1] == "madeupword0004"
