"""Models written for transformers: what comes back, or is said there, is what docmt has."""

import re
import shutil

import hub
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("transformers")

from hub import SOURCE as SENTENCES
from pretrained import VARIANTS, build

from docmt import DocmtError, Document, Translator
from docmt.checkpoint import convert_huggingface, export_huggingface
from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model
from docmt.cli.app import main
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import SentencePieceTokenizer, train_tokenizer

TEXTS = [SENTENCES[0], SENTENCES[7], "the clock", "Straße, 12,5 😀 €"]
LIMIT = 14
NLLB, DE = {"source_language": "deu_Latn", "target_language": "eng_Latn"}, {"source_language": "de_DE"}
PAIRS = {
    "bart": (hub.bart_json, {}),
    "bart, scaled": (hub.bart_files, {}),
    "mbart": (hub.mbart_spm, {**DE, "target_language": "en_XX"}),
    "mbart50": (hub.mbart50_json, {**DE, "target_language": "en_XX"}),
    "m2m_100": (hub.m2m100, {"source_language": "de", "target_language": "en"}),
    "marian": (hub.marian, {"source_language": "en", "target_language": "fra"}),
    "marian, apart": (lambda folder: hub.marian(folder, separate=True), {"target_language": "fra"}),
    "t5": (hub.t5_json, {"prefix": "translate this:"}),
    "t5, version 1.1": (hub.t5_spm, {}),
    "mt5": (hub.t5_json, {}),
    "t5, gated silu": (hub.t5_spm, {}),
    "madlad": (hub.madlad, {"target_language": "de"}),
}
MORE = {"m2m_100": (hub.nllb_json, NLLB), "mbart": (hub.mbart_json, {**DE, "target_language": "en_XX"})}
assert PAIRS.keys() == VARIANTS.keys()


def pretrained(folder, variant, make, languages, bias=True):
    """A directory of transformers with a tokenizer, and what it is converted to."""
    made = make(folder)
    sizes = {"vocab_size": made.rows}
    if "marian" in variant:
        pad = made.config["pad_token_id"]
        sizes |= {"pad_token_id": pad, "decoder_start_token_id": pad, "decoder_vocab_size": made.rows}
        if made.theirs.separate_vocabs:
            pad = made.theirs.target_encoder["<pad>"]
            sizes["decoder_start_token_id"] = pad  # of as many rows: the source's has to have one there, too
    ids = {code: made.theirs.convert_tokens_to_ids(code) for code in languages.values()}
    first = [ids[code] for name, code in languages.items() if name == "target_language"]
    if variant == "m2m_100" and make is hub.m2m100:
        first = [made.theirs.convert_tokens_to_ids("__en__")]
    if variant == "mbart":
        sizes["decoder_start_token_id"] = first[0]
    if variant in ("mbart50", "m2m_100"):
        sizes["forced_bos_token_id"] = first[0]
    theirs = build(variant, random=True, **sizes)
    if "marian" in variant:
        theirs.generation_config.pad_token_id = pad
    if not bias:
        theirs.final_logits_bias.zero_()
    directory = folder / f"{variant} {make.__name__}"
    shutil.copytree(made.path, directory, dirs_exist_ok=True)
    theirs.save_pretrained(directory)
    convert_huggingface(directory, folder / f"{directory.name} docmt", **languages)
    return theirs, folder / f"{directory.name} docmt", made


def load(directory):
    """Their model, into which every weight of the directory went, and their tokenizer."""
    import transformers

    model, told = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory, output_loading_info=True)
    assert not any(told[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval(), transformers.AutoTokenizer.from_pretrained(directory)


def generated(model, ids, **options):
    """What their greedy search says to sources that are given one by one."""
    found = [model.generate(torch.tensor([own]), max_new_tokens=LIMIT, do_sample=False, **options) for own in ids]
    return [own[0].tolist() for own in found]


def translated(directory, texts=TEXTS):
    """What docmt says to them."""
    opens = len(load_model(directory).parts.frame.target_opens)
    rules = {
        "compatibility": "huggingface",
        "min_length": 0,
        "max_length_ratio": 0,
        "max_length_extra": LIMIT - opens + 1,
    }
    translator = Translator(directory, device="cpu", beam=1, **rules)
    return [
        own.document.sentences[0] for own in translator.translate([Document.from_sentences([text]) for text in texts])
    ]


def squeezed(texts):
    """Texts without what documents do with blanks."""
    return [" ".join(text.split()) for text in texts]


CASES = [*((variant, *pair) for variant, pair in PAIRS.items()), *((variant, *pair) for variant, pair in MORE.items())]


@pytest.mark.parametrize(("variant", "make", "languages"), CASES, ids=lambda own: getattr(own, "__name__", None))
def test_a_converted_model_comes_back(variant, make, languages, tmp_path):
    theirs, converted, made = pretrained(tmp_path, variant, make, languages)
    export_huggingface(converted, tmp_path / "exported")
    again, tokenizer = load(tmp_path / "exported")
    assert again.config.model_type == theirs.config.model_type.replace("mt5", "t5")
    about = FAMILIES[load_model(converted).config.family].huggingface
    synonyms = {"swish": "silu"}
    for entry in about.usual:
        value = getattr(theirs.config, entry)
        assert getattr(again.config, entry) == synonyms.get(value, value), entry
    before = theirs.state_dict()
    for name, weights in again.state_dict().items():
        skipped = 2 if "embed_positions" in name and "marian" not in variant else 0  # rows that nothing reads
        assert torch.equal(weights[skipped:], before[name][skipped:]), name
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    if "marian" in variant and languages:
        mark = made.theirs.convert_tokens_to_ids(f">>{languages['target_language']}<<")
        ids = [[mark, *own] for own in ids]
    words = [made.encode(text, "source") for text in TEXTS]
    assert all(_within(own, whole) for own, whole in zip(words, ids, strict=True))
    said = generated(again, ids)
    assert said == generated(theirs, ids)
    if "marian" not in variant:  # whose class gives other marks of its own
        assert squeezed(tokenizer.batch_decode(said, skip_special_tokens=True)) == squeezed(translated(converted))
    restored = tmp_path / "again"
    convert_huggingface(tmp_path / "exported", restored, **languages)
    first, second = (load_file(own / "model.safetensors") for own in (converted, restored))
    assert first.keys() == second.keys()
    ours, back = load_model_tokenizer(converted), load_model_tokenizer(restored)
    for side, sentence in [*(("source", text) for text in SENTENCES[:40]), *(("target", text) for text in hub.TARGET)]:
        assert back.encode(sentence, side) == ours.encode(sentence, side)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert load_model(restored).config == load_model(converted).config


def _within(words, whole):
    """Whether a sentence has these words in a row, with marks around them."""
    return any(whole[first : first + len(words)] == words for first in range(len(whole)))


def test_tokens_that_were_dropped_stay_dropped(tmp_path):
    theirs, whole, made = pretrained(tmp_path, "m2m_100", hub.nllb_json, NLLB)
    for name, sentences in (("source", SENTENCES[:12]), ("target", hub.TARGET[:12])):
        (tmp_path / name).write_text("\n".join(sentences) + "\n")
    texts = (tmp_path / "source", tmp_path / "target")
    convert_huggingface(
        whole.with_name(whole.name[: -len(" docmt")]), tmp_path / "small", keep_vocabulary=texts, **NLLB
    )
    export_huggingface(tmp_path / "small", tmp_path / "exported")
    model, tokenizer = load(tmp_path / "exported")
    rows = load_model_tokenizer(tmp_path / "small").rows("target")
    kept = sorted(row for row in rows if row >= 0)
    assert len(kept) == model.config.vocab_size < theirs.config.vocab_size
    assert torch.equal(model.state_dict()["model.shared.weight"], theirs.state_dict()["model.shared.weight"][kept])
    for text in SENTENCES[:12]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert [kept[own] for own in ids] == made.encode(text, "source")
    said = generated(model, [tokenizer(text)["input_ids"] for text in TEXTS])
    assert squeezed(tokenizer.batch_decode(said, skip_special_tokens=True)) == squeezed(translated(tmp_path / "small"))


OWN = {
    "marian": {},
    "marian, learned": {"position_encoding": "learned", "scale_embeddings": False, "activation": "gelu"},
    "marian, own": {"output": "own"},
    "bart": {"embedding_normalization": True, "position_encoding": "learned", "activation": "gelu_tanh"},
    "bart, sinusoidal": {"embedding_normalization": True},
    "m2m_100": {"normalization": "pre"},
    "m2m_100, own": {"normalization": "pre", "output": "own", "activation": "silu"},
    "mbart": {"normalization": "pre", "embedding_normalization": True},
    "mbart, learned": {"normalization": "pre", "embedding_normalization": True, "position_encoding": "learned"},
}
SIZES = {"width": 16, "heads": 4, "feed_forward": 24, "encoder_layers": 3, "decoder_layers": 2, "max_positions": 128}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """A tokenizer of each kind that can be exported."""
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    sentences += [("source", "what is </s> and <s> </s>")] * 500  # so that words look like marks
    made = {kind: train_tokenizer(kind, sentences, 400) for kind in ("bpe", "sentencepiece")}
    made["brought along"] = SentencePieceTokenizer(hub.spm("unigram", normalization="nmt_nfkc"))
    made["brought along, bpe"] = SentencePieceTokenizer(hub.spm("bpe", normalization="nmt_nfkc"))
    return made


def own_model(directory, tokenizer, **options):
    """A model of docmt's own with random weights, in a directory."""
    torch.manual_seed(1)
    config = {"system": "sentence", **SIZES, "vocabulary_size": tokenizer.vocabulary_size, **options}
    model = TranslationModel(ModelConfig.from_dict(config))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            small = weights.dim() == 1 or name.startswith(("tokens", "softmax"))
            weights.add_((0.1 if small else 0.4) * torch.randn_like(weights))
    save_model(directory, model, tokenizer)
    return load_model(directory)


@pytest.mark.parametrize("variant", OWN)
@torch.no_grad()
def test_a_model_of_our_own_computes_the_same_there(variant, tokenizers, tmp_path):
    tokenizer = tokenizers["bpe"]
    ours = own_model(tmp_path / "own", tokenizer, **OWN[variant])
    export_huggingface(tmp_path / "own", tmp_path / "exported")
    model, theirs = load(tmp_path / "exported")
    assert model.config.model_type == variant.partition(",")[0]
    rows = torch.arange(tokenizer.vocabulary_size)
    if "marian" in variant:  # whose last row is that of <pad>, with which translations begin
        rows = torch.tensor([0, len(rows) - 1, *range(1, len(rows) - 1)])
    for source, target in zip(SENTENCES[:5], hub.TARGET[5:10], strict=True):
        ids, words = ([0, *tokenizer.encode(text)] for text in (source, target))
        assert theirs(source)["input_ids"] == rows[[*ids, 2]].tolist()
        expected = ours.logits([([[*ids, 2]], [words])])[0]
        start = torch.tensor([model.generation_config.decoder_start_token_id])
        given = torch.cat((start, rows[words[1:]]))
        found = model(input_ids=rows[[*ids, 2]][None], decoder_input_ids=given[None]).logits[0]
        assert torch.allclose(found[:, rows], expected, atol=1e-5)
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    said = model.generate(**batch, max_new_tokens=LIMIT)
    assert squeezed(theirs.batch_decode(said, skip_special_tokens=True)) == squeezed(translated(tmp_path / "own"))


def test_a_model_of_a_family_that_docmt_trained_from_the_start_computes_the_same_there(tokenizers, tmp_path):
    t5 = {"family": "t5", "normalization": "pre", "position_encoding": "relative", "scale_embeddings": False}
    more = {"output": "own", "head_width": 6, "activation": "gated_silu", "target_mark": [7, 9]}
    ours = own_model(tmp_path / "own", tokenizers["bpe"], **t5, **more)
    export_huggingface(tmp_path / "own", tmp_path / "exported")
    model, theirs = load(tmp_path / "exported")
    assert not torch.equal(model.lm_head.weight, model.shared.weight)
    source, target = (tokenizers["bpe"].encode(text) for text in (SENTENCES[0], hub.TARGET[0]))
    ids = theirs(SENTENCES[0])["input_ids"]
    assert ids == [token - 1 for token in [7, 9, *source, 2]]  # without <s>
    words = torch.tensor([[0, *(token - 1 for token in target)]])
    found = model.double()(input_ids=torch.tensor([ids]), decoder_input_ids=words).logits[0]
    expected = ours.double().logits([([[7, 9, *source, 2]], [[1, *target]])])[0]
    assert torch.allclose(found, expected[:, 1:-2], atol=1e-4)  # T5's norm is computed in float32 there


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "brought along", "brought along, bpe"])
def test_tokenizers_of_our_own_do_the_same_there(kind, tokenizers, tmp_path):
    tokenizer = tokenizers[kind]
    own_model(tmp_path / "own", tokenizer)
    export_huggingface(tmp_path / "own", tmp_path / "exported")
    _, theirs = load(tmp_path / "exported")
    marked = hub.MARKED if kind == "bpe" else []  # a unigram model has its marks among its pieces there
    rows = [0, tokenizer.vocabulary_size - 1, *range(1, tokenizer.vocabulary_size - 1)]
    for text in [*SENTENCES[:60], *hub.TARGET[:60], *hub.ODD, *hub.SPACED, *marked, ""]:
        ids = tokenizer.encode(text, "source")
        theirs_of_it = [rows[own] for own in [0, *ids, 2]]
        assert theirs(text)["input_ids"] == theirs_of_it, text
        assert theirs.decode(theirs_of_it, skip_special_tokens=True) == tokenizer.decode(ids, "source")


def test_mbart_in_the_published_layout_goes_back_with_its_marks(tmp_path):
    _, converted, _ = pretrained(tmp_path, "mbart", hub.mbart_json, PAIRS["mbart"][1], bias=False)
    directory, languages = converted.with_name(converted.name[: -len(" docmt")]), PAIRS["mbart"][1]
    convert_huggingface(directory, tmp_path / "published", layout="published", **languages)
    export_huggingface(tmp_path / "published", tmp_path / "exported")
    model, theirs = load(tmp_path / "exported")
    ours, tokenizer = load_model(tmp_path / "published").double(), load_model_tokenizer(tmp_path / "published")
    ids, words = ([0, *tokenizer.encode(text)] for text in (SENTENCES[0], hub.TARGET[0]))
    assert theirs(SENTENCES[0])["input_ids"] == [*ids, 2]
    found = model.double()(input_ids=torch.tensor([[*ids, 2]]), decoder_input_ids=torch.tensor([words])).logits[0]
    assert torch.allclose(found, ours.logits([([[*ids, 2]], [words])])[0])


REFUSED = {
    "group": ({"system": "group"}, "is a model of system group: only a sentence model"),
    "relative": ({"normalization": "pre", "position_encoding": "relative"}, "model.position_encoding 'relative'"),
    "learned": ({"normalization": "pre", "position_encoding": "learned"}, "model.position_encoding 'learned'"),
    "gated": ({"activation": "gated_relu"}, "model.activation 'gated_relu'"),
    "head width": ({"head_width": 6}, "model.head_width 6"),
    "scaled": ({"output": "scaled"}, "model.output 'scaled'"),
    "family": ({"family": "thumt"}, "model.family 'thumt'"),
    "encoder of another kind": ({"family": "bert"}, "model.family 'bert'"),
    "settings of a family": ({"family": "m2m_100"}, "model.normalization 'post'"),
    "no language": (
        {"family": "mbart", "normalization": "pre", "embedding_normalization": True, "position_encoding": "learned"},
        "model.target_mark has 0 tokens",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_transformers_does_not_have_is_refused(case, tokenizers, tmp_path):
    options, message = REFUSED[case]
    own_model(tmp_path / "own", tokenizers["bpe"], **options)
    with pytest.raises(DocmtError, match=re.escape(message)):
        export_huggingface(tmp_path / "own", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_tokenizers_without_a_form_there_are_refused(tmp_path):
    sentences = [("source", text) for text in SENTENCES[:50]] + [("target", text) for text in hub.TARGET[:50]]
    own_model(tmp_path / "own", train_tokenizer("moses-bpe", sentences, 400, ("en", "de")))
    with pytest.raises(DocmtError, match="tokenizer of kind moses-bpe has no form in transformers"):
        export_huggingface(tmp_path / "own", tmp_path / "exported")
    symbols = SentencePieceTokenizer(hub.spm(symbols=("the clock",)))
    own_model(tmp_path / "symbols", symbols)
    with pytest.raises(DocmtError, match="symbols that its user defined"):
        export_huggingface(tmp_path / "symbols", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("variant", ["marian", "bart", "m2m_100", "mbart"])
def test_an_exported_model_of_our_own_is_not_taken_for_one_of_the_family(variant, tokenizers, tmp_path):
    own_model(tmp_path / "own", tokenizers["bpe"], **OWN[variant])
    export_huggingface(tmp_path / "own", tmp_path / "exported")
    with pytest.raises(DocmtError, match="if docmt exported it, use the model that it was made from"):
        convert_huggingface(tmp_path / "exported", tmp_path / "again")


def test_the_command_says_what_it_wrote_and_writes_nothing_twice(tokenizers, tmp_path, capsys):
    own_model(tmp_path / "own", tokenizers["bpe"])
    arguments = ["export", "huggingface", str(tmp_path / "own"), "-o", str(tmp_path / "exported")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'exported'}: MarianMTModel of transformers\n"
    assert main(arguments) == 2
    assert "exported exists already" in capsys.readouterr().err
