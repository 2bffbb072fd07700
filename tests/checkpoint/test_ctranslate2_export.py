"""Models written for CTranslate2: translations and scores equal docmt's."""

import json
import re
import sys

import hub
import pytest
import torch
from hub import SOURCE as SENTENCES
from quick_cases import full_except
from tokenizers import Tokenizer as Library

from docmt import DocmtError, Document, Translator
from docmt.checkpoint import export_ctranslate2
from docmt.checkpoint.ctranslate2_export import list_token_texts
from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model
from docmt.cli.app import main
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import BpeTokenizer, DictionaryTokenizer, SpecialTokens, load_tokenizer, train_tokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 (the extra ctranslate2) is not installed")

TEXTS = [SENTENCES[0], "the clock", *SENTENCES[7:14], SENTENCES[0] + SENTENCES[3] + SENTENCES[5]]  # of unequal lengths
ODD_TEXTS = [
    "The Com\u00admis\u00adsion\u00a0must co\u00adoperate.",
    "The e\u0301lite has 5\u00a0000\u202feuros,\u2003cafe\u0301s\u205fand \u1100\u1161.",
    "The of\ufb01ce \ufb00 \ufb02ine is e\ufb03cient \ufb04 \ufb05 \ufb06.",
    "\ufeffThe co\u2011operation\u2010of\u200b states.\u200e\u200f\u2060",
    "one line\nand another\r\n  line,\u00a0\n\ta \u2028 fourth\x0b\x1f and a\u00a0\u00a0fifth",
    "\u4e2d\u6587\n\u4e2d\u6587 \n a\n\u4e2d",
    "\u00a0\u00a0",
    "\u00ad",
    "\n",
    "",
]
LIMIT = 40
SIZES = {"width": 16, "heads": 4, "feed_forward": 24, "encoder_layers": 3, "decoder_layers": 2, "max_positions": 128}
PRE = {"normalization": "pre", "embedding_normalization": False}
MBART = {"normalization": "pre", "embedding_normalization": True, "position_encoding": "learned"}
RELATIVE = {"position_encoding": "relative", "relative_buckets": 8, "relative_distance": 20}
T5 = {"normalization": "pre", "scale_embeddings": False, "head_width": 6, **RELATIVE}
MARKS = {"source_language_ids": [8], "target_language_ids": [9]}
VARIANTS = {
    "post": {},
    "pre": PRE,
    "learned": {"position_encoding": "learned", "scale_embeddings": False, "activation": "gelu"},
    "own matrix": {"output": "untied", "activation": "silu"},
    "embedding normalization": {"embedding_normalization": True, "activation": "gelu_tanh"},
    "relative, gated": {**RELATIVE, **PRE, "activation": "gated_silu"},
    "head width": {"head_width": 6, "activation": "gated_gelu"},
    "thumt": {"family": "thumt"},
    "roberta": {"family": "roberta", "encoder_width": 24, "encoder_feed_forward": 40, "encoder_heads": 6},
    "marian": {"family": "marian", "activation": "silu"},
    "bart": {"family": "bart", "embedding_normalization": True, "position_encoding": "learned", "activation": "gelu"},
    "mbart": {"family": "mbart", **MBART, **MARKS},
    "mbart50": {"family": "mbart50", **MBART, **MARKS},
    "m2m_100": {"family": "m2m_100", **PRE, **MARKS},
    "t5": {"family": "t5", **T5, "output": "scaled", "target_language_ids": [7, 9]},
    "t5, gated": {"family": "t5", **T5, "output": "untied", "activation": "gated_gelu_tanh"},
    "madlad": {"family": "madlad", **T5, "output": "untied", "activation": "gated_gelu_tanh"},
}

# Noise of weights, how much larger the row of </s> is, what its logit has besides, and the seed: found by trying, so
# that translations are of several lengths.
RANDOM = {
    "post": (0.5, 6.0, 1.0, 1),
    "pre": (0.3, 6.0, 1.0, 1),
    "learned": (0.5, 6.0, 3.0, 1),
    "own matrix": (0.5, 6.0, 1.0, 1),
    "embedding normalization": (0.5, 6.0, 3.0, 2),
    "relative, gated": (0.5, 3.0, 1.0, 1),
    "head width": (0.5, 3.0, 1.0, 1),
    "thumt": (0.3, 6.0, 1.0, 4),
    "roberta": (0.3, 3.0, 3.0, 2),
    "marian": (0.3, 6.0, 3.0, 3),
    "bart": (0.3, 6.0, 3.0, 2),
    "mbart": (0.3, 3.0, 1.0, 1),
    "mbart50": (0.5, 6.0, 3.0, 3),
    "m2m_100": (0.5, 3.0, 1.0, 1),
    "t5": (0.5, 3.0, 1.0, 3),
    "t5, gated": (0.3, 3.0, 1.0, 3),
    "madlad": (0.3, 3.0, 1.0, 2),
}
SMALL_NOISE = (0.3, 1.0, 0.0, 1)
QUICK = ("post", "embedding normalization", "relative, gated", "marian", "m2m_100", "t5, gated")
PREFIXED = ("bart", "mbart50", "m2m_100")


@pytest.fixture(scope="module")
def tokenizer():
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    return train_tokenizer("bpe", sentences, 400)


def new_model(directory, tokenizer, variant="post", random=None, **options):
    """A model with random weights whose translations end by themselves, in a directory.

    What docmt's search never says is as improbable as in a model that was trained: other searches do not know that.
    """
    noise, eos_scale, eos_bias, seed = random or RANDOM[variant]
    options = {**VARIANTS[variant], **options}
    torch.manual_seed(seed)
    config = {"system": "sentence", **SIZES, "vocabulary_size": tokenizer.vocabulary_size, **options}
    if FAMILIES[options.get("family", "docmt")].encoder is not None:
        config["source_vocabulary_size"] = tokenizer.source_vocabulary_size
    model = TranslationModel(ModelConfig.from_dict(config))
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            weights.data.normal_(
                std=0.6 if re.match(r"(\w+_)?(tokens|softmax)|.*(positions|distances)", name) else noise
            )
        else:
            weights.data.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.3)
    with torch.no_grad():
        _scale_end_row(model, tokenizer.specials, eos_scale, eos_bias)
    save_model(directory, model, tokenizer)
    return load_model(directory)


def _scale_end_row(model, specials, eos_scale, eos_bias):
    """States become such that the sum of a row is, times the width, what its logit has besides."""
    last, head = model.decoder_norm or model.decoder[-1].feed_forward_residual.norm, model.head()
    rows = {id: id - head.first for id in range(specials.vocabulary_size) if 0 <= id - head.first < len(head.weight)}
    head.weight.sub_(head.weight.mean(1, keepdim=True))
    head.weight[rows[specials.eos]] *= eos_scale
    if getattr(last, "bias", None) is None:
        return
    last.weight.fill_(1.0)
    last.bias.fill_(1.0)
    head.weight[rows[specials.eos]] += eos_bias / model.config.width
    for id in (specials.bos, specials.pad, specials.unk, specials.eod, specials.mask):
        if id in rows:
            head.weight[rows[id]] = -2.0


class Exported:
    """A model in docmt and in CTranslate2."""

    def __init__(self, folder, name="own"):
        tokenizer = load_model_tokenizer(folder / name)
        self.model, self.specials = load_model(folder / name), tokenizer.specials
        self.values = export_ctranslate2(folder / name, folder / "exported")
        self.entries = self.values["docmt"]
        self.translator = ctranslate2.Translator(str(folder / "exported"), compute_type="float32", intra_threads=1)
        self.texts = {side: list_token_texts(tokenizer, side) for side in ("source", "target")}
        self.inner = len(self.entries["target_prefix"])
        self.sources = [tokenizer.encode(text, "source") for text in TEXTS]

    def add_boundaries(self, ids):
        words = [self.texts["source"][token] for token in ids]
        return [*self.entries["source_opens"], *words, *self.entries["source_closes"]]

    def translate(self, min_length=0, **options):
        """Their translations in docmt's ids, and their scores."""
        results = self.translator.translate_batch(
            [self.add_boundaries(ids) for ids in self.sources],
            target_prefix=[self.entries["target_prefix"]] * len(self.sources),
            max_decoding_length=LIMIT + self.inner,
            min_decoding_length=min_length and min_length + self.inner,
            max_input_length=0,
            return_scores=True,
            **options,
        )
        hypotheses = [result.hypotheses[0][self.inner :] for result in results]
        return [list(map(self.texts["target"].index, tokens)) for tokens in hypotheses], [
            result.scores[0] for result in results
        ]

    def search(self, **options):
        """docmt's translations, and their scores."""
        config = SearchConfig(max_length_ratio=0, max_length_extra=LIMIT, **{"min_length": 0, **options})
        results = translate_documents(self.model, [[ids] for ids in self.sources], self.specials, config)
        return [result[0].sentences[0] for result in results], [result[0].score for result in results]


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """Models by their variants, made once."""
    cache = {}

    def get(variant, random=None):
        if (variant, random) not in cache:
            folder = tmp_path_factory.mktemp("model")
            new_model(folder / "own", tokenizer, variant, random)
            cache[variant, random] = Exported(folder)
        return cache[variant, random]

    return get


@pytest.mark.parametrize("variant", full_except(VARIANTS, *QUICK))
def test_supplied_translations_have_the_same_probability(variant, exported, tokenizer):
    model = exported(variant, SMALL_NOISE)  # with others float32 is not exact enough, neither there nor here
    targets = [tokenizer.encode(text, "target") for text in hub.TARGET[5 : 5 + len(TEXTS)]]
    words = [[model.texts["target"][token] for token in ids] for ids in targets]
    results = model.translator.score_batch(
        [model.add_boundaries(ids) for ids in model.sources],
        [[*model.entries["target_prefix"], *tokens] for tokens in words],
        offset=model.inner,
    )
    documents = ([[ids] for ids in side] for side in (model.sources, targets))
    config = SearchConfig(length_penalty=0)
    expected = score_documents(model.model, *documents, model.specials, config, free_at_limit=False)
    assert [sum(result.log_probs) for result in results] == pytest.approx(
        [result.score for result in expected], abs=1e-4, rel=1e-6
    )


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_search_finds_the_same(variant, exported):
    model = exported(variant)
    hypotheses, scores = model.translate(beam_size=1)
    expected, expected_scores = model.search(
        beam=1, implementation="huggingface"
    )  # in which what is given counts in the length
    assert hypotheses == expected
    assert len(set(map(len, hypotheses))) > 1
    assert scores == pytest.approx(expected_scores, abs=1e-3)


@pytest.mark.parametrize("variant", full_except(VARIANTS, *QUICK))
@pytest.mark.parametrize("beam", full_except([3, 5], 3))
def test_beam_search_without_a_length_penalty_equals_transformers(beam, variant, exported):
    model = exported(variant)
    min_length = int(variant in PREFIXED)  # a translation that ends at once is not always found there
    hypotheses, scores = model.translate(min_length, beam_size=beam, length_penalty=0)
    expected, expected_scores = model.search(
        beam=beam, length_penalty=0, min_length=min_length, implementation="huggingface"
    )
    assert hypotheses == expected
    assert len(set(map(len, hypotheses))) > 1
    if not min_length:  # what may not come first has no share of the probability there
        assert scores == pytest.approx(expected_scores, abs=1e-3)


@pytest.mark.parametrize(
    "variant", full_except(["thumt", "marian", "mbart"], "thumt")
)  # whose last mark is that of the sentence
@pytest.mark.parametrize(("beam", "penalty"), full_except([(4, 1.0), (5, 0.6)], (4, 1.0)))
def test_beam_search_with_a_length_penalty_equals_docmt(beam, penalty, variant, exported):
    model = exported(variant)
    hypotheses, scores = model.translate(beam_size=beam, length_penalty=penalty)
    expected, expected_scores = model.search(beam=beam, length_penalty=penalty)
    assert hypotheses == expected
    assert len(set(map(len, hypotheses))) > 1
    assert scores == pytest.approx(expected_scores, abs=1e-3)


def test_padding_is_not_generated(tokenizer, tmp_path):
    model = new_model(tmp_path / "likely", tokenizer, "marian")
    model.head_bias.vector[SpecialTokens.pad - 1] = 50.0  # <s> has no logit
    save_model(tmp_path / "own", model, tokenizer)
    both = Exported(tmp_path)
    hypotheses = both.translate(beam_size=1)[0]
    assert hypotheses == both.search(beam=1, implementation="huggingface")[0]
    assert not any(SpecialTokens.pad in tokens for tokens in hypotheses)


def test_boundary_tokens_of_families_are_in_the_config(exported):
    entries = {name: exported(name).entries for name in ("post", "bart", "mbart", "m2m_100", "t5", "thumt")}
    assert entries["post"] == {
        "source_opens": ["<s>"],
        "source_closes": ["</s>"],
        "target_prefix": [],
        "tokenizer": "tokenizer.json",
    }
    texts = exported("post").texts["target"]
    first, second = texts[8], texts[9]
    assert entries["bart"]["target_prefix"] == ["<s>"]
    assert (entries["mbart"]["source_closes"], entries["mbart"]["target_prefix"]) == (["</s>", first], [])
    assert exported("mbart").values["decoder_start_token"] == second
    assert (entries["m2m_100"]["source_opens"], entries["m2m_100"]["target_prefix"]) == ([first], [second])
    assert entries["t5"]["source_opens"] == [texts[7], second]
    assert entries["thumt"]["source_opens"] == []


def translated(directory):
    """Return docmt's translations of TEXTS."""
    rules = {"beam": 1, "min_length": 0, "max_length_ratio": 0, "max_length_extra": LIMIT}
    rules["implementation"] = "huggingface"  # searches nothing again that seems to be missing
    translator = Translator(directory, device="cpu", search=SearchConfig(**rules))
    return [
        translation.document.sentences[0]
        for translation in translator.translate([Document.from_sentences([text]) for text in TEXTS])
    ]


def assert_reads_as_docmt(folder, name="own"):
    """The tokenizer.json reads characters of documents and line breaks as docmt does, and adds boundary tokens."""
    library = Library.from_file(str(folder / "exported" / "tokenizer.json"))
    encoded = [library.encode(text).ids for text in ODD_TEXTS]
    opening, closing = encoded[-1][:-1], encoded[-1][-1:]
    expected = Translator(folder / name).encode(ODD_TEXTS, "source")
    assert encoded == [[*opening, *ids, *closing] for ids in expected]


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_the_tokenizer_beside_it_leads_from_text_to_text(kind, tmp_path):
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    new_model(tmp_path / "own", train_tokenizer(kind, sentences, 400))
    model = Exported(tmp_path)
    library = Library.from_file(str(tmp_path / "exported" / "tokenizer.json"))
    tokens = [library.encode(text).tokens for text in TEXTS]
    assert tokens == [model.add_boundaries(ids) for ids in model.sources]
    results = model.translator.translate_batch(
        tokens, beam_size=1, max_decoding_length=LIMIT, min_decoding_length=0, max_input_length=0
    )
    hypotheses = [library.decode([library.token_to_id(token) for token in result.hypotheses[0]]) for result in results]
    assert [" ".join(text.split()) for text in hypotheses] == [
        " ".join(text.split()) for text in translated(tmp_path / "own")
    ]
    assert_reads_as_docmt(tmp_path)


def test_a_normalizer_of_the_tokenizer_is_exported(tmp_path):
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    values = json.loads(train_tokenizer("bpe", sentences, 400).to_json())
    values["normalizer"] = {"type": "Replace", "pattern": {"String": "e"}, "content": "a"}
    new_model(tmp_path / "own", BpeTokenizer(Library.from_str(json.dumps(values))))
    Exported(tmp_path)
    library = Library.from_file(str(tmp_path / "exported" / "tokenizer.json"))
    encoded = [library.encode(text).tokens for text in ("the clock", "tha clock", "tho clock")]
    assert encoded[0] == encoded[1] != encoded[2]


def test_other_tokenizers_are_written_as_docmt_has_them(tmp_path):
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    words = [sorted({word for text in texts for word in text.split()}) for texts in (hub.TARGET, SENTENCES)]
    kinds = {
        "moses": (train_tokenizer("moses-bpe", sentences, 400, ("en", "de")), {}),
        "dictionary": (DictionaryTokenizer(*words), {"source_vocabulary_size": len(words[1]) + SpecialTokens.count}),
    }
    for kind, (tokenizer, options) in kinds.items():
        new_model(tmp_path / kind / "own", tokenizer, "thumt", **options)
        model = Exported(tmp_path / kind)
        assert model.entries["tokenizer"] == "docmt"
        assert load_tokenizer(tmp_path / kind / "exported").has_same_vocabulary(tokenizer)
        assert model.translate(beam_size=1)[0] == model.search(beam=1, implementation="huggingface")[0]


@pytest.mark.parametrize("variant", full_except(["m2m_100", "marian, apart", "t5, version 1.1"]))
def test_a_converted_model_finds_the_same(variant, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers (the extra bench) is not installed")
    from tiny_pretrained import PAIRS, convert_pretrained

    _, directory, _ = convert_pretrained(tmp_path, variant, *PAIRS[variant])
    model = Exported(tmp_path, directory.name)
    assert model.entries["tokenizer"] == ("MarianTokenizer" if "marian" in variant else "tokenizer.json")
    if "marian" not in variant:
        assert_reads_as_docmt(tmp_path, directory.name)
    assert model.translate(beam_size=1)[0] == model.search(beam=1, implementation="huggingface")[0]
    hypotheses = model.translate(1, beam_size=3, length_penalty=0)[0]
    assert hypotheses == model.search(beam=3, length_penalty=0, min_length=1, implementation="huggingface")[0]
    if "marian" not in variant:
        library = Library.from_file(str(tmp_path / "exported" / "tokenizer.json"))
        tokens = [library.encode(text).tokens for text in TEXTS]
    else:
        library = transformers.MarianTokenizer.from_pretrained(tmp_path / "exported")
        vocabulary = json.loads((tmp_path / "exported" / "source_vocabulary.json").read_text())
        tokens = [[vocabulary[token] for token in library(text)["input_ids"]] for text in TEXTS]
        mark = [model.texts["source"][token] for token in model.model.config.target_language_ids]
        tokens = [[*mark, *text_tokens] for text_tokens in tokens]  # which a caller writes before the text
    assert tokens == [model.add_boundaries(ids) for ids in model.sources]


def test_weights_are_stored_once_and_quantized(tokenizer, tmp_path):
    new_model(tmp_path / "own", tokenizer)
    sizes = {}
    for kind in ("float32", "float16", "int8"):
        export_ctranslate2(tmp_path / "own", tmp_path / kind, quantization=kind)
        sizes[kind] = (tmp_path / kind / "model.bin").stat().st_size
        for compute in ("int8", "float32"):
            translator = ctranslate2.Translator(str(tmp_path / kind), compute_type=compute, intra_threads=1)
            assert translator.translate_batch([["<s>", "</s>"]], max_decoding_length=3)[0].hypotheses
    model = load_model(tmp_path / "own")
    weights = sum(weights.numel() for weights in model.parameters()) + 1024 * SIZES["width"]  # computed positions
    assert 4 * weights < sizes["float32"] < 4 * weights + 12_000
    assert sizes["float16"] < 2 * weights + 12_000
    assert sizes["int8"] < sizes["float32"] - 2 * weights + 4 * 1024 * SIZES["width"]


REFUSED = {
    "group": ({"system": "group"}, "is a model of system group. CTranslate2 only supports sentence models"),
    "encoder of another kind": ({"family": "bert"}, "model.family 'bert'"),
    "settings of a family": ({"family": "thumt", **RELATIVE}, "model.family 'thumt'"),
    "no language": ({"family": "mbart", **MBART}, "model.target_language_ids []"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_models_are_refused(case, tokenizer, tmp_path):
    options, message = REFUSED[case]
    new_model(tmp_path / "own", tokenizer, **options)
    with pytest.raises(DocmtError, match=re.escape(message)):
        export_ctranslate2(tmp_path / "own", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_missing_package_is_named(tokenizer, tmp_path, monkeypatch, capsys):
    new_model(tmp_path / "own", tokenizer)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert main(["export", "ctranslate2", str(tmp_path / "own"), "-o", str(tmp_path / "exported")]) == 2
    assert "pip install '.[ctranslate2]' where docmt was unpacked" in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()


def test_the_command_prints_the_boundary_tokens_and_does_not_overwrite(tokenizer, tmp_path, capsys):
    new_model(tmp_path / "own", tokenizer, "m2m_100")
    arguments = ["export", "ctranslate2", str(tmp_path / "own"), "-o", str(tmp_path / "exported")]
    assert main([*arguments, "--quantization", "int8"]) == 0
    first, second = list_token_texts(tokenizer, "target")[8:10]
    marked = f"its input is {first} TOKENS </s> (its encode adds these tokens), target_prefix {second}"
    entries = f"CTranslate2 model, tokenizer tokenizer.json; {marked}"
    assert capsys.readouterr().out == f"{tmp_path / 'exported'}: {entries}\n"
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["docmt"]["target_prefix"] == [second]
    assert main(arguments) == 2
    assert "exported exists already" in capsys.readouterr().err
    both = f"{tmp_path / 'own'},{tmp_path / 'own'}"
    assert main(["export", "ctranslate2", both, "-o", str(tmp_path / "other")]) == 2
    assert "is an ensemble: export one model" in capsys.readouterr().err


@pytest.mark.parametrize("named", [("source",), ("target",), ("source", "target")], ids=str)
def test_unknown_words_are_unknown_in_ctranslate2(named, tmp_path):
    words = {side: [f"{side[0]}{number}" for number in range(9)] for side in ("source", "target")}
    for side in named:
        words[side][3] = "<unk>"  # a word of that dictionary
    tokenizer = DictionaryTokenizer(words["target"], words["source"])
    torch.manual_seed(2)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "source_vocabulary_size": tokenizer.source_vocabulary_size}
    model = TranslationModel(ModelConfig(system="sentence", family="thumt", **SIZES, **sizes)).eval()
    save_model(tmp_path / "own", model, tokenizer)
    entries = export_ctranslate2(tmp_path / "own", tmp_path / "exported")["docmt"]
    translator = ctranslate2.Translator(str(tmp_path / "exported"), compute_type="float32", intra_threads=1)
    source, target = tokenizer.encode("s1 s2 nowhere s7", "source"), tokenizer.encode("t5 t1", "target")
    assert SpecialTokens.unk in source
    source_tokens = [*entries["source_opens"], "s1", "s2", "nowhere", "s7", *entries["source_closes"]]
    (result,) = translator.score_batch([source_tokens], [["t5", "t1"]])
    (expected,) = score_documents(model, [[source]], [[target]], tokenizer.specials, SearchConfig())
    assert sum(result.log_probs) == pytest.approx(expected.sentence_scores[0], abs=1e-4)
