"""Encoders of transformers (BERT, RoBERTa, XLM-R) as the start of a training."""

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import hub
import pytest
import torch
from commands import TINY_SENTENCE, call
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")


from benchmarks.synthetic.synthetic_corpus import write_corpus
from quick_cases import full_except

from docmt import SearchConfig, Translator
from docmt.checkpoint.model_directory import load_model, load_model_config, load_model_tokenizer, load_model_weights
from docmt.data import PreparedStore
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.model.systems import Group
from docmt.text import PairTokenizer, SpecialTokens, load_tokenizer
from docmt.training.finetune import adopt_architecture, initialize_from

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "max_position_embeddings": 50,
    "initializer_range": 0.3,
}
KINDS = {"bert_json": "Bert", "bert_cased": "Bert", "roberta_json": "Roberta", "xlm_roberta_json": "XLMRoberta"}
DECODER = {"width": 16, "feed_forward": 32, "heads": 2, "decoder_layers": 2}
DOCUMENTS = [
    ["The house is big.", "She sees the old dog near the river, and it is cheap.", "Yes."],
    ["It was closed ½ 你 ~.", "The clock"],
]


def make(name, folder, head="Model", **options):
    """A directory of that layout with a random encoder in it, and transformers' model."""
    import transformers

    directory = getattr(hub, name)(folder)
    kind = KINDS[name]
    if kind != "Bert":
        options = {"layer_norm_eps": 1e-5, "pad_token_id": 1, **options}
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, "vocab_size": directory.rows, **options})
    torch.manual_seed(3)
    model = getattr(transformers, f"{kind}{head}")(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    model.save_pretrained(directory.path)
    return directory, model


def converted(directory, output, *options):
    outcome = call("convert", "huggingface", directory.path, "-o", output, *options)
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"{output}: an encoder, for docmt train --initialize-from\n"
    return output


def started(encoder, group=None, **options):
    """A random model that starts from an encoder, and its tokenizer."""
    tokenizer = PairTokenizer(load_model_tokenizer(encoder), load_model_tokenizer(encoder))
    config = ModelConfig(**DECODER, group=group or Group(), positions="sentence", **options)
    config = replace(
        adopt_architecture(config, load_model_config(encoder, encoders=True)), vocabulary_size=tokenizer.vocabulary_size
    )
    model = TranslationModel(config).eval()
    return model, tokenizer, initialize_from(model, encoder, tokenizer)


@torch.no_grad()
def states(model, tokenizer):
    """Return the encoder states of all sentences, with each document read at once."""
    opens, closes = ([SpecialTokens.bos], [SpecialTokens.eos])
    ids = [
        [[*opens, *words, *closes] for words in tokenizer.encode_batch(document, "source")] for document in DOCUMENTS
    ]
    return model.encode(pack(ids))


@torch.no_grad()
def expected(directory, model):
    """Return transformers' encoder states of each sentence, from a padded batch."""
    texts = [directory.tokenizer(sentence)["input_ids"] for document in DOCUMENTS for sentence in document]
    longest, pad = max(map(len, texts)), directory.tokenizer.pad_token_id
    ids = torch.tensor([[*text, *[pad] * (longest - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    base = getattr(model, model.base_model_prefix, model)
    return base(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]


@pytest.mark.parametrize("name", full_except(KINDS, "bert_json", "xlm_roberta_json"))
@pytest.mark.parametrize("head", full_except(["Model", "ForMaskedLM"], "ForMaskedLM"))
def test_encoder_states_are_those_of_transformers(name, head, tmp_path):
    directory, reference = make(name, tmp_path, head)
    model, tokenizer, new = started(converted(directory, tmp_path / "encoder"), Group(top_attention="group"))
    assert torch.allclose(states(model, tokenizer), expected(directory, reference), atol=1e-5)
    assert not [name for name in new if name.startswith(("encoder", "source"))]
    assert all(name.startswith(("decoder", "target")) for name in new)


def test_document_attention_has_no_effect_at_the_start(tmp_path):
    directory, reference = make("bert_json", tmp_path)
    encoder = converted(directory, tmp_path / "encoder")
    model, tokenizer, new = started(encoder)
    assert torch.allclose(states(model, tokenizer), expected(directory, reference), atol=1e-5)
    assert [name for name in new if name.startswith("encoder.2.attention.gate")]
    published, _, _ = started(encoder, Group(fusion="published"))
    assert not torch.allclose(states(published, tokenizer), expected(directory, reference), atol=1e-2)


def test_old_names_and_weights_in_half_precision(tmp_path):
    """As the first BERT models are on the hub."""
    directory, _ = make("bert_json", tmp_path, "ForMaskedLM")
    path = directory.path / "model.safetensors"
    weights = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    for name in [name for name in weights if "LayerNorm" in name]:
        weights[name.replace("weight", "gamma").replace("bias", "beta")] = weights.pop(name)
    weights["bert.embeddings.position_ids"] = torch.arange(50.0)[None]
    save_file(weights, path)
    encoder = load_model_weights(converted(directory, tmp_path / "encoder"))
    assert torch.equal(
        encoder["encoder.0.attention_residual.norm.weight"],
        weights["bert.encoder.layer.0.attention.output.LayerNorm.gamma"].float(),
    )


@pytest.mark.parametrize(("name", "mask"), [("bert_json", "[MASK]"), ("roberta_json", "<mask>")])
def test_hidden_words_look_as_they_did(name, mask, tmp_path):
    directory, reference = make(name, tmp_path)
    table = load_model_weights(converted(directory, tmp_path / "encoder"))["source_tokens.weight"]
    row = directory.tokenizer.convert_tokens_to_ids(mask)
    assert torch.equal(table[-1], reference.embeddings.word_embeddings.weight[row])
    assert not table[-2].any()


def test_a_smaller_vocabulary_gives_the_same_states(tmp_path):
    directory, reference = make("bert_json", tmp_path)
    (tmp_path / "text").write_text("".join(f"{sentence}\n" for document in DOCUMENTS for sentence in document))
    encoder = converted(directory, tmp_path / "encoder", "--keep-vocabulary", tmp_path / "text", tmp_path / "text")
    model, tokenizer, _ = started(encoder, Group(top_attention="group"))
    assert tokenizer.source_vocabulary_size < directory.rows
    assert torch.allclose(states(model, tokenizer), expected(directory, reference), atol=1e-5)
    row = reference.embeddings.word_embeddings.weight[directory.tokenizer.mask_token_id]
    assert torch.equal(model.source_tokens.weight[-1], row)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'. docmt's model"),
        ({"is_decoder": True}, "is_decoder = True. docmt's model needs False"),
        ({"add_cross_attention": True}, "add_cross_attention = True. docmt's model needs False"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'. docmt's model needs 'gelu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps = 1e-05. docmt's model needs 1e-12"),
        ({"model_type": "deberta"}, "model_type 'deberta', .* encoders of the types bert, roberta, xlm-roberta"),
        ({"vocab_size": 3}, "rows in embeddings.word_embeddings.weight, but config.json has vocab_size = 3"),
        ({"num_hidden_layers": 2}, "has 3 encoder layers, but its config.json needs 2"),
        ({"hidden_size": 48}, r"has source_tokens.weight of shape .*, 24\], but .*, 48\]"),
        ({"num_attention_heads": 5}, r"model.encoder_width is 24: choose a multiple of model.encoder_heads .5"),
        ({"num_attention_heads": "3"}, "num_attention_heads = '3'. It must be a whole number"),
        ({"max_position_embeddings": 40}, r"source_positions.table.weight of shape \[50, 24\]"),
    ],
)
def test_unsupported_encoders_are_refused(changes, message, setup, tmp_path):
    path = tmp_path / "changed"
    shutil.copytree(setup.hub.path, path)
    values = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(values))
    refused(message, "convert", "huggingface", path, "-o", tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


@dataclass
class EncoderSetup:
    """A directory of transformers, the encoder made of it, a corpus, and a store with its tokenizer for the source."""

    hub: hub.Hub
    encoder: Path
    corpus: list
    store: Path


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    directory, _ = make("bert_json", folder)
    encoder = converted(directory, folder / "encoder")
    write_corpus(folder / "corpus", train=30, dev=4, test=1, seed=2)
    corpus = [
        each
        for split in ("train", "dev")
        for each in (f"--{split}", folder / f"corpus/{split}.en", folder / f"corpus/{split}.de")
    ]
    setup = EncoderSetup(directory, encoder, corpus, folder / "store")
    works("prepare", "--store", setup.store, *corpus, "--source-tokenizer", encoder, "--vocabulary-size", 400)
    return setup


def works(*arguments):
    outcome = call(*arguments)
    assert outcome.status == 0, outcome.err
    return outcome


def refused(message, *arguments):
    outcome = call(*arguments)
    assert outcome.status == 2
    assert re.search(message, outcome.err.replace("\n", " ")), outcome.err


def trained(setup, run, *options):
    """A tiny decoder on the encoder, whose sizes are not said."""
    tiny = [option for option in TINY_SENTENCE if "encoder_layers" not in option and "positions" not in option]
    works("train", "--store", setup.store, "--run", run, "--initialize-from", setup.encoder, *tiny, *options)
    return run


def test_each_side_has_its_tokenizer(setup, tmp_path):
    tokenizer = PreparedStore.open(setup.store).tokenizer
    source_tokenizer = load_tokenizer(setup.encoder)
    assert tokenizer.for_side("source").has_same_vocabulary(source_tokenizer)
    assert (tokenizer.for_side("target").kind, tokenizer.vocabulary_size) == ("bpe", 400)
    assert tokenizer.source_vocabulary_size == source_tokenizer.vocabulary_size
    text = "The HOUSE — is big."
    assert tokenizer.encode(text, "source") == source_tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text, "target"), "target") == text
    assert tokenizer.decode(source_tokenizer.encode(text), "source") == "the house is big."
    with pytest.raises(ValueError, match="has two sides"):
        tokenizer.encode(text)
    works(
        *("prepare", "--store", tmp_path / "again", *setup.corpus),
        *("--source-tokenizer", setup.store / "tokenizer", "--tokenizer", setup.store / "tokenizer"),
    )
    assert PreparedStore.open(tmp_path / "again").tokenizer.has_same_vocabulary(tokenizer)
    assert not tokenizer.has_same_vocabulary(source_tokenizer) and not source_tokenizer.has_same_vocabulary(tokenizer)


@pytest.mark.full
def test_a_training_begins_with_it_goes_on_and_translates(setup, tmp_path):
    options = ("--checkpoints.every", 2, "--objective.word-dropout", 0.2, "--objective.word-dropout-epochs", 1)
    whole = trained(setup, tmp_path / "whole", *options, "--stop.max-steps", 6)
    parts = trained(setup, tmp_path / "parts", *options, "--stop.max-steps", 4)
    works("train", "--resume", parts, "--max-steps", 6)
    whole_weights, resumed_weights = load_model_weights(whole), load_model_weights(parts)
    assert all(torch.equal(whole_weights[name], resumed_weights[name]) for name in whole_weights)
    model, encoder = load_model(whole), load_model_weights(setup.encoder)
    config = model.config
    assert (config.family, config.encoder_width, config.width, config.encoder_layers) == ("bert", 24, 16, 3)
    assert (config.decoder_layers, config.max_positions, config.group.fusion) == (1, 50, "identity")
    assert model.source_tokens.weight.shape == encoder["source_tokens.weight"].shape
    changed = (model.encoder[0].attention.local.query.weight - encoder["encoder.0.attention.local.query.weight"]).abs()
    assert 0 < changed.max() < 0.2
    translation = Translator(whole, search=SearchConfig(beam=2)).translate(DOCUMENTS[0])
    assert len(translation) == 3
    works("score", whole, setup.corpus[4], setup.corpus[5])
    assert "encoder 24" in works("inspect", whole).out


@pytest.mark.full
def test_systems_that_start_from_a_model_with_a_pretrained_encoder(setup, tmp_path):
    sentence = trained(setup, tmp_path / "sentence", "--model.system", "sentence", "--stop.max-steps", 2)
    options = ("--stop.max-steps", 1, "--freeze", "pretrained", "--optimizer.warmup", 1)
    for system in ("group", "context", "hierarchical", "concat"):
        run = tmp_path / system
        works(
            *("train", "--store", setup.store, "--run", run, "--initialize-from", sentence, "--model.system", system),
            *("--device", "cpu", *(options if system != "concat" else (*options[:2], "--model.concat.sentences", 2))),
        )
        config = load_model(run).config
        assert (config.family, config.encoder_heads, config.heads) == ("bert", 3, 2)
    sentence_weights, group_weights = load_model_weights(sentence), load_model_weights(tmp_path / "group")
    assert torch.equal(
        sentence_weights["encoder.1.feed_forward.inner.weight"], group_weights["encoder.1.feed_forward.inner.weight"]
    )
    assert torch.equal(sentence_weights["target_tokens.weight"], group_weights["target_tokens.weight"])


@pytest.mark.full
def test_invalid_uses_of_an_encoder_are_refused(setup, tmp_path):
    alone = "is an encoder alone, which cannot translate. Start a training from it"
    refused(alone, "translate", setup.encoder, setup.corpus[1])
    refused(alone, "inspect", setup.encoder)
    start = ("train", "--store", setup.store, "--run", tmp_path / "run", "--initialize-from", setup.encoder)
    refused("cannot encode target text, but this multihop model reads drafts", *start, "--system", "multihop")
    refused("model.encoder_layers is 2, but 3 in", *start, "--model.encoder-layers", 2)
    refused("model.encoder_heads is 4, but 3 in", *start, "--model.family", "bert", "--model.encoder-heads", 4)
    refused("cannot be reversed: its pair tokenizer", *start, "--reverse", "true")
    other = tmp_path / "store"
    works("prepare", "--store", other, *setup.corpus, "--vocabulary-size", 400)
    again = ("train", "--store", other, "--run", tmp_path / "run", "--initialize-from", setup.encoder)
    refused(r"another vocabulary .* \(`docmt prepare --source-tokenizer .*encoder`\)", *again)


def test_sentences_are_as_long_as_its_positions(setup, tmp_path):
    """A target may be longer: the positions of the decoder are computed."""
    long = tmp_path / "long.jsonl"
    words = " ".join(["house"] * 60)
    lines = [{"id": "a", "source": ["The house.", "Yes."], "target": [words, "Ja."]}]
    for path, text in ((long, lines), (tmp_path / "other.jsonl", [{**lines[0], "source": [words, "Yes."]}])):
        path.write_text("".join(json.dumps(line) + "\n" for line in text))
        works(
            *("prepare", "--store", path.with_suffix(""), "--train", path, "--source-tokenizer", setup.encoder),
            *("--tokenizer", setup.store / "tokenizer"),
        )
    trained(replace(setup, store=long.with_suffix("")), tmp_path / "run", "--stop.max-steps", 1)
    sizes = ("--initialize-from", setup.encoder, "--run", tmp_path / "none", "--model.positions", "sentence")
    refused(
        "sentence 1 of document 'a' .* has 182 tokens, but model.max_positions is 50: .* leave out",
        "train",
        "--store",
        tmp_path / "other",
        *sizes,
    )
