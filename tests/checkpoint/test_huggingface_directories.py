"""Complete transformers directories through `docmt convert huggingface`: text in, the same text out."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from commands import call, fails
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

import hub
from quick_cases import full_except
from tiny_pretrained import MARIAN, SIZES, T5_SIZES

from docmt import Document, SearchConfig, Translator, load_model
from docmt.checkpoint.hf_import import find_language
from docmt.checkpoint.model_directory import load_languages, load_model_tokenizer
from docmt.model import pack

NEW = 12  # tokens that are said at most
SENTENCES = ["The house is big.", "She sees the old dog near the river, and it is cheap.", "Yes.", "It was closed."]
LANGUAGES = {
    "marian": ("en", "fra"),
    "m2m100": ("en", "de"),
    "mbart_json": ("en_XX", "de_DE"),
    "mbart50_json": ("en_XX", "de_DE"),
    "nllb_json": ("eng_Latn", "deu_Latn"),
    "bart_json": ("", ""),
    "t5_json": ("", ""),
    "madlad": ("", "de"),
}
KINDS = {"marian": "Marian", "m2m_100": "M2M100", "mbart": "MBart", "bart": "Bart", "t5": "T5"}
PREFIX = "the house: "


def make(name, folder):
    """A directory of that layout with a random model in it, and transformers' model."""
    import transformers

    directory = getattr(hub, name)(folder)
    kind = directory.config["model_type"]
    special_ids = {"pad_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False} if name == "madlad" else {}
    options = dict(T5_SIZES | special_ids if kind == "t5" else SIZES | {"max_position_embeddings": 80}) | {
        "vocab_size": directory.rows
    }
    if kind == "marian":
        options |= MARIAN | {
            "pad_token_id": directory.rows - 1,
            "decoder_start_token_id": directory.rows - 1,
            "scale_embedding": True,
        }
    torch.manual_seed(5)
    config = getattr(transformers, f"{KINDS[kind]}Config")(**{**options, "forced_eos_token_id": None})
    ending = "MTModel" if kind == "marian" else "ForConditionalGeneration"
    model = getattr(transformers, f"{KINDS[kind]}{ending}")(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.requires_grad and weights.dim() > 1:
                weights.normal_(std=0.5)
    model.save_pretrained(directory.path)
    return directory, model


def marked(directory, name, sentence):
    """Ids of a source sentence with its marks, and those of the begin of its translation, written down by hand."""
    words, ids = directory.encode(sentence, "source"), directory.tokenizer.convert_tokens_to_ids
    source, target = LANGUAGES[name]
    if name == "marian":
        return [ids(">>fra<<"), *words, 0], [directory.rows - 1]
    if name == "m2m100":
        return [ids(f"__{source}__"), *words, 2], [2, ids(f"__{target}__")]
    if name == "mbart_json":
        return [*words, 2, ids(source)], [ids(target)]
    if name in ("mbart50_json", "nllb_json"):
        return [ids(source), *words, 2], [2, ids(target)]
    if name == "bart_json":
        return [0, *words, 2], [2, 0]
    if name == "madlad":
        return [ids(f"<2{target}>"), *words, 2], [0]
    return [*directory.encode(PREFIX, "source"), *words, 1], [0]


def translations(directory, model, name):
    """Return transformers' greedy translations of the sentences, one by one."""
    results = []
    for sentence in SENTENCES:
        source, begin = marked(directory, name, sentence)
        eos = {"marian": 0, "t5_json": 1}.get(name, 2)
        generated = list(begin)
        with torch.no_grad():
            while len(generated) < len(begin) + NEW and (len(generated) == len(begin) or generated[-1] != eos):
                logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([generated])).logits[
                    0, -1
                ]
                if name == "marian":
                    logits[directory.rows - 1] = -torch.inf  # padding has a row, but is never said
                generated.append(int(logits.argmax()))
        text = directory.decode([token for token in generated[len(begin) :] if token != eos])
        results.append(text.strip())  # a translation begins and ends with no blank
    return results


@pytest.fixture(scope="module")
def pretrained_model(tmp_path_factory):
    """Directory, model and layout, by the name of the layout; made once."""
    folder, cache = tmp_path_factory.mktemp("hub"), {}

    def get(name):
        if name not in cache:
            cache[name] = make(name, folder)
        return cache[name]

    return get


def convert(directory, name, output, *options):
    """Convert a directory with the command, and return the model directory."""
    source, target = LANGUAGES[name]
    languages = ["--source-language", source] if source else []
    languages += ["--target-language", target] if target else []
    prefix = ["--prefix", PREFIX] if name == "t5_json" else []
    outcome = call("convert", "huggingface", directory.path, "-o", output, *languages, *prefix, *options)
    assert outcome.status == 0, outcome.err
    return output


@pytest.mark.parametrize("name", full_except(LANGUAGES, "marian", "nllb_json"))
def test_text_is_translated_as_by_transformers(name, pretrained_model, tmp_path):
    directory, model = pretrained_model(name)
    search = SearchConfig(beam=1, implementation="huggingface", min_length=0, max_length_ratio=0, max_length_extra=NEW)
    model_path = convert(directory, name, tmp_path / "model")
    translator = Translator(model_path, search=search, precision="float32", protect=None)
    results = translator.translate(SENTENCES)
    expected = translations(directory, model, name)
    assert results == expected and any(expected)


def test_a_smaller_vocabulary_gives_the_same_translations_of_its_text(pretrained_model, tmp_path):
    directory, _ = pretrained_model("nllb_json")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(SENTENCES) + "\n")
    whole = convert(directory, "nllb_json", tmp_path / "whole")
    small = convert(directory, "nllb_json", tmp_path / "small", "--keep-vocabulary", text, text)
    sizes = [load_model(model).config.vocabulary_size for model in (whole, small)]
    assert sizes[1] < sizes[0] / 2
    tokenizers = [load_model_tokenizer(model) for model in (whole, small)]
    counts = [[len(ids) for ids in tokenizer.encode_batch(SENTENCES, "source")] for tokenizer in tokenizers]
    assert counts[0] == counts[1]
    # What may be said is less, so translations may be others where a token that was dropped was best: scores of the
    # text itself are those of the same weights, but for what the dropped tokens took.
    source, target = (Document.from_sentences(SENTENCES) for _ in range(2))
    scores = [Translator(model).score(source, target).score for model in (whole, small)]
    assert scores[1] >= scores[0]
    states = []
    for model, tokenizer in zip((whole, small), tokenizers, strict=True):
        loaded = load_model(model)
        frame = loaded.boundary_tokens
        words = tokenizer.encode(SENTENCES[1], "source")
        states.append(loaded.encode(pack([[[*frame.source_opening, *words, *frame.source_closing]]])))
    assert torch.equal(*states)


@pytest.mark.full
@pytest.mark.parametrize("name", full_except(["marian", "mbart50_json", "t5_json"], "mbart50_json"))
def test_a_document_model_is_trained_from_a_converted_one(name, pretrained_model, tmp_path):
    """With the commands of the guide: it begins as good as the sentence model, and learns."""
    model = convert(pretrained_model(name)[0], name, tmp_path / "model")
    for side, sentences in (("en", hub.SOURCE), ("de", hub.TARGET)):
        lines = [line for number in range(0, 60, 4) for line in (*sentences[number : number + 4], "")]
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n")
    store, run = tmp_path / "store", tmp_path / "run"
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    prepared = call("prepare", "--store", store, "--tokenizer", model, "--train", *files, "--dev", *files)
    assert prepared.status == 0, prepared.err
    options = ["--model.system", "group", "--dropout", 0, "--max-steps", 6, "--validation.every", 3]
    options += ["--learning-rate", 0.003, "--warmup", 1, "--batch-tokens", 512, "--freeze", "embeddings"]
    assert f"--system group --initialize-from {model}" in prepared.err
    trained = call("train", "--store", store, "--run", run, "--initialize-from", model, *options)
    assert trained.status == 0, trained.err
    assert load_languages(run) == load_languages(model) == LANGUAGES[name]
    start, group_model = load_model(model), load_model(run)
    assert (group_model.config.family, group_model.config.system) == (start.config.family, "group")
    for entry in (
        "width",
        "heads",
        "encoder_layers",
        "source_language_ids",
        "target_language_ids",
        "output",
        "activation",
    ):
        assert getattr(group_model.config, entry) == getattr(start.config, entry)
    assert group_model.config.group.fusion == "identity"
    tables = group_model.table_names()
    assert all(
        torch.equal(group_model.state_dict()[f"{table}.weight"], start.state_dict()[f"{table}.weight"])
        for table in tables
    )
    begun = tmp_path / "begun"
    one_step = ["--model.system", "group", "--max-steps", 1, "--learning-rate", 1e-12, "--initialize-from", model]
    assert call("train", "--store", store, "--run", begun, *one_step).status == 0
    sides = [Document.from_sentences(sentences[:8], id="d") for sentences in (hub.SOURCE, hub.TARGET)]
    scores = [Translator(each).score(*sides).score for each in (model, begun, run)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-5)
    assert scores[2] > scores[0] + 0.02
    translated = call("translate", run, files[0], "-o", tmp_path / "out.txt", "--beam", 2, "--max-length-extra", 3)
    assert translated.status == 0, translated.err
    assert len((tmp_path / "out.txt").read_text().split("\n")) == len(files[0].read_text().split("\n"))


@torch.no_grad()
def test_the_published_layout_marks_sentences_as_docmt_does(pretrained_model, tmp_path):
    directory, reference = pretrained_model("mbart_json")
    output = convert(directory, "mbart_json", tmp_path / "model", "--layout", "published")
    model, tokenizer = load_model(output), load_model_tokenizer(output)
    ids = directory.tokenizer.convert_tokens_to_ids
    assert model.config.family == "docmt" and model.config.vocabulary_size == directory.rows
    assert tokenizer.rows("target")[-2:] == [ids("de_DE"), ids("<mask>")]
    rows = tokenizer.rows("target")
    words = [[rows.index(row) for row in directory.encode(sentence, "source")] for sentence in SENTENCES[:2]]
    assert tokenizer.encode_batch(SENTENCES[:2], "source") == words
    assert tokenizer.decode(words[0]) == directory.decode(directory.encode(SENTENCES[0], "source"))
    source, target = ([[0, *sentence, 2]] for sentence in words)
    logits = model.logits([(source, target)])[0]
    inputs = [torch.tensor([[rows[id] for id in side[0]]]) for side in (source, target)]
    wanted = reference(input_ids=inputs[0], decoder_input_ids=inputs[1]).logits[0]
    assert torch.allclose(logits, wanted[:, rows], atol=1e-4)
    path = pretrained_model("nllb_json")[0].path
    languages = ["--source-language", "eng_Latn", "--target-language", "deu_Latn", "--layout", "published"]
    fails("convert", "huggingface", path, "-o", tmp_path / "other", *languages, message="layout published is for mBART")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        *[("de", "deu_Latn"), ("zh-Hans", "zho_Hans"), ("deu_Latn", "deu_Latn"), ("en", "en"), ("pt", "pt_XX")],
        *[("zh", ""), ("deu_Ltan", ""), ("fi", ""), ("", "")],
    ],
)
def test_a_language_finds_the_code_of_a_model(language, code):
    assert find_language(language, ["deu_Latn", "zho_Hans", "zho_Hant", "en", "pt_XX"]) == code


def damaged(directory, folder, change):
    """A copy of the directory, changed."""
    copy = folder / "copy"
    shutil.copytree(directory.path, copy)
    change(copy)
    return copy


def entries(**values):
    """Changes entries of config.json."""

    def change(path):
        known = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**known, **values}))

    return change


def weights(change):
    """Changes weights by name."""

    def changed(path):
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})

    return changed


FAULTS = {
    "no such directory": (lambda path: path.rename(path.parent / "gone"), "there is no directory"),
    "no config": (lambda path: (path / "config.json").unlink(), r"has no config\.json"),
    "no config but text": (lambda path: (path / "config.json").write_text("{"), r"config\.json is not JSON|damaged"),
    "pickled": (
        lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"),
        r"weights in pytorch_model\.bin, which may hold code and is not opened",
    ),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), r"has neither model\.safetensors nor"),
    "cut weights": (
        lambda path: (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:5000]),
        r"model\.safetensors is damaged",
    ),
    "a shard is missing": (
        lambda path: (
            (path / "model.safetensors").rename(path / "x")
            and (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
        ),
        r"model-1\.safetensors is missing",
    ),
    "a shard elsewhere": (
        lambda path: (
            (path / "model.safetensors").rename(path.parent / "model-1.safetensors")
            and (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../model-1.safetensors"}}')
        ),
        r"copy/model-1\.safetensors is missing",
    ),
    "an index that is none": (
        lambda path: (
            (path / "model.safetensors").unlink()
            or (path / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}')
        ),
        "has no weight_map",
    ),
    "no tokenizer": (
        lambda path: [(path / name).unlink() for name in ("source.spm", "target.spm", "vocab.json")],
        r"tokenizer\.json",
    ),
    "decoder only": (
        entries(model_type="llama", is_encoder_decoder=False),
        "model_type 'llama', not an encoder-decoder model. docmt reads encoder-decoder models",
    ),
    "unknown type": (entries(model_type="pegasus", is_encoder_decoder=True), "model_type 'pegasus'.* bart, m2m_100"),
    "no type": (entries(model_type=None), "model_type None"),
    "a size that is text": (entries(d_model="wide"), "d_model = 'wide'. It must be a whole number"),
    "a size that is a list": (entries(encoder_layers=[2]), r"encoder_layers = \[2\]. It must be a whole number"),
    "a switch that is text": (entries(scale_embedding="no"), "scale_embedding = 'no'. It must be true or false"),
    "rate that is text": (entries(dropout="much"), "dropout = 'much'. It must be a number"),
    "unknown activation": (
        entries(activation_function="swiglu"),
        "activation_function = 'swiglu'. docmt's model supports relu, gelu",
    ),
    "sides that differ": (
        entries(decoder_ffn_dim=99),
        "encoder_ffn_dim = 24 and decoder_ffn_dim = 99. docmt's model has one setting for both",
    ),
    "norms before": (entries(normalize_before=True), "normalize_before = True. docmt's model needs False"),
    "other sizes": (entries(d_model=32), "arguments need"),
    "heads that do not fit": (entries(encoder_attention_heads=5, decoder_attention_heads=5), "heads .5"),
    "more layers": (entries(encoder_layers=4), "3 encoder layers, but its arguments need 4"),
    "another vocabulary": (entries(vocab_size=7, decoder_vocab_size=7), "vocab_size = 7"),
    "tied weights that differ": (
        weights(lambda tensors: tensors.update({"lm_head.weight": tensors["model.shared.weight"] + 1})),
        r"lm_head\.weight that differs from model\.shared\.weight, of which it should be a copy",
    ),
    "weights that are missing": (
        weights(lambda tensors: tensors.pop("model.decoder.layers.1.fc1.weight")),
        r"lacks weights for decoder\.1\.feed_forward\.inner\.weight",
    ),
    "weights without a place": (
        weights(lambda tensors: tensors.update(extra=torch.zeros(2))),
        "weights extra, which docmt's model does not have",
    ),
    "a bias that is too short": (
        weights(lambda tensors: tensors.update(final_logits_bias=torch.zeros(1, 5))),
        r"has a bias of 5 logits but \d+ embeddings",
    ),
    "a bare model": (
        lambda path: save_file(
            {
                name.removeprefix("model."): tensor
                for name, tensor in load_file(path / "model.safetensors").items()
                if name.startswith("model.")
            },
            path / "model.safetensors",
        ),
        "no weights for model.shared. Save a whole MarianMTModel",
    ),
    "a pointer of git-lfs": (
        lambda path: (path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n"),
        "is a git-lfs placeholder without weights. Run `git lfs pull`",
    ),
    "a folder of a cache": (lambda path: (path / "snapshots").mkdir(), "Name the directory in its folder snapshots"),
    "weights that are no numbers": (
        weights(lambda tensors: tensors["model.decoder.layers.1.fc1.weight"].fill_(torch.nan)),
        "NaN or infinite weights",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_unsupported_directories_are_refused_in_one_sentence(fault, pretrained_model, tmp_path):
    change, message = FAULTS[fault]
    copy = damaged(pretrained_model("marian")[0], tmp_path, change)
    output = tmp_path / "model"
    fails("convert", "huggingface", copy, "-o", output, "--target-language", "fra", message=message)
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("nllb_json", ["eng_Latn", "deu_Ltan"], "target-language is 'deu_Ltan', .* Did you mean deu_Latn"),
        (
            "mbart_json",
            ["english", "de_DE"],
            "source-language is 'english', which this model does not know. Did you mean",
        ),
        ("m2m100", ["en", ""], r"between many languages. Add --target-language, one of .* \(\d+ in all\)"),
        ("marian", ["en", "de"], "target-language is 'de', .* Did you mean fra"),
    ],
)
def test_languages_that_a_model_does_not_know_are_refused(name, languages, message, pretrained_model, tmp_path):
    options = [
        item for pair in zip(("--source-language", "--target-language"), languages, strict=True) for item in pair
    ]
    fails("convert", "huggingface", pretrained_model(name)[0].path, "-o", tmp_path / "model", *options, message=message)


def test_options_of_other_families_are_refused(pretrained_model, tmp_path):
    path, empty = pretrained_model("bart_json")[0].path, tmp_path / "empty.txt"
    empty.write_text("\n")
    for options, message in (
        (["--prefix", "translate:"], "prefix is for T5 models"),
        (["--arguments", path / "config.json"], "arguments is for .* or thumt, not for huggingface"),
        (["--dictionary", path / "vocab.json"], "dictionary is for fairseq-gtransformer"),
        (["--keep-vocabulary", path / "none.txt", path / "none.txt"], r"none\.txt"),
        (["--keep-vocabulary", empty, empty], r"empty\.txt has no text"),
    ):
        fails("convert", "huggingface", path, "-o", tmp_path / "model", *options, message=message)


def test_positions_beside_the_weights_are_left_out(pretrained_model, tmp_path):
    """Some directories have them as whole numbers, in an index of shards as well."""
    copy = damaged(
        pretrained_model("marian")[0],
        tmp_path,
        weights(lambda tensors: tensors.update(position_ids=torch.arange(3)[None])),
    )
    names = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").rename(copy / "model-1.safetensors")
    index = {"weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    conversion = call("convert", "huggingface", copy, "-o", tmp_path / "model", "--target-language", "fra")
    assert conversion.status == 0, conversion.err


def test_a_directory_whose_name_is_no_text(pretrained_model, tmp_path):
    copy = damaged(pretrained_model("marian")[0], tmp_path, lambda path: None)
    odd = copy.rename(os.fsdecode(os.fsencode(tmp_path) + b"/cop\xff"))
    conversion = call("convert", "huggingface", odd, "-o", tmp_path / "model", "--target-language", "fra")
    assert conversion.status == 0, conversion.err


@pytest.mark.parametrize("name", ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"])
def test_other_positions_than_those_of_the_family_are_refused(pretrained_model, tmp_path, name):
    def change(tensors):
        tensors[name] = torch.ones(20, tensors["model.shared.weight"].shape[1])

    copy = damaged(pretrained_model("marian")[0], tmp_path, weights(change))
    command = ["convert", "huggingface", copy, "-o", tmp_path / "model", "--target-language", "fra"]
    fails(*command, message=rf"has learned positions in {name}")


def test_a_directory_that_was_not_converted_is_refused(pretrained_model, tmp_path):
    path = pretrained_model("nllb_json")[0].path
    message = "is a directory of transformers. Convert it first: docmt convert huggingface"
    text = tmp_path / "text.txt"
    text.write_text("It is cheap.\n")
    fails("translate", path, text, message=message)
    fails("prepare", "--store", tmp_path / "s", "--tokenizer", path, "--train", text, text, message=message)
    fails("export", "ctranslate2", path, "-o", tmp_path / "out", message=message)


@pytest.mark.full
def test_a_converted_model_is_used_without_transformers(pretrained_model, tmp_path):
    """In a process in which it cannot be imported."""
    model = convert(pretrained_model("t5_json")[0], "t5_json", tmp_path / "model")
    code = (
        "import sys; sys.modules['transformers'] = None; sys.modules['sentencepiece_model_pb2'] = None\n"
        f"from docmt import Translator; print(len(Translator({str(model)!r}).translate(['It is cheap.'])))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr
