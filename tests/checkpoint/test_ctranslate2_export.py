"""Models written for CTranslate2: what its search finds, and what it says of given translations, is what docmt has."""

import json
import re
import sys

import hub
import pytest
import torch
from hub import SOURCE as SENTENCES
from tiers import only
from tokenizers import Tokenizer as Library

from docmt import DocmtError, Document, Translator
from docmt.checkpoint import export_ctranslate2
from docmt.checkpoint.ctranslate2_export import token_texts
from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model
from docmt.cli.app import main
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import DictionaryTokenizer, SpecialTokens, load_tokenizer, train_tokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 (the extra ctranslate2) is not installed")

TEXTS = [SENTENCES[0], "the clock", *SENTENCES[7:14], SENTENCES[0] + SENTENCES[3] + SENTENCES[5]]  # of unequal lengths
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
PLAIN = (0.3, 1.0, 0.0, 1)
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
    noise, larger, ends, seed = random or RANDOM[variant]
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
        _end(model, tokenizer.specials, larger, ends)
    save_model(directory, model, tokenizer)
    return load_model(directory)


def _end(model, specials, larger, ends):
    """States become such that the sum of a row is, times the width, what its logit has besides."""
    last, head = model.decoder_norm or model.decoder[-1].feed_forward_residual.norm, model.head()
    rows = {id: id - head.first for id in range(specials.vocabulary_size) if 0 <= id - head.first < len(head.weight)}
    head.weight.sub_(head.weight.mean(1, keepdim=True))
    head.weight[rows[specials.eos]] *= larger
    if getattr(last, "bias", None) is None:
        return
    last.weight.fill_(1.0)
    last.bias.fill_(1.0)
    head.weight[rows[specials.eos]] += ends / model.config.width
    for id in (specials.bos, specials.pad, specials.unk, specials.eod, specials.mask):
        if id in rows:
            head.weight[rows[id]] = -2.0


class Exported:
    """A model in docmt and in CTranslate2."""

    def __init__(self, folder, name="own"):
        tokenizer = load_model_tokenizer(folder / name)
        self.ours, self.specials = load_model(folder / name), tokenizer.specials
        self.values = export_ctranslate2(folder / name, folder / "exported")
        self.given = self.values["docmt"]
        self.theirs = ctranslate2.Translator(str(folder / "exported"), compute_type="float32", intra_threads=1)
        self.texts = {side: token_texts(tokenizer, side) for side in ("source", "target")}
        self.inner = len(self.given["target_prefix"])
        self.sources = [tokenizer.encode(text, "source") for text in TEXTS]

    def framed(self, ids):
        words = [self.texts["source"][token] for token in ids]
        return [*self.given["source_opens"], *words, *self.given["source_closes"]]

    def translate(self, least=0, **options):
        """Their translations in docmt's ids, and their scores."""
        found = self.theirs.translate_batch(
            [self.framed(ids) for ids in self.sources],
            target_prefix=[self.given["target_prefix"]] * len(self.sources),
            max_decoding_length=LIMIT + self.inner,
            min_decoding_length=least and least + self.inner,
            max_input_length=0,
            return_scores=True,
            **options,
        )
        said = [own.hypotheses[0][self.inner :] for own in found]
        return [list(map(self.texts["target"].index, own)) for own in said], [own.scores[0] for own in found]

    def search(self, **options):
        """docmt's translations, and their scores."""
        config = SearchConfig(max_length_ratio=0, max_length_extra=LIMIT, **{"min_length": 0, **options})
        found = translate_documents(self.ours, [[own] for own in self.sources], self.specials, config)
        return [own[0].sentences[0] for own in found], [own[0].score for own in found]


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """Models by their variants, made once."""
    made = {}

    def get(variant, random=None):
        if (variant, random) not in made:
            folder = tmp_path_factory.mktemp("model")
            new_model(folder / "own", tokenizer, variant, random)
            made[variant, random] = Exported(folder)
        return made[variant, random]

    return get


@pytest.mark.parametrize("variant", only(VARIANTS, *QUICK))
def test_given_translations_have_the_same_probability_there(variant, exported, tokenizer):
    model = exported(variant, PLAIN)  # with others float32 is not exact enough, neither there nor here
    targets = [tokenizer.encode(text, "target") for text in hub.TARGET[5 : 5 + len(TEXTS)]]
    words = [[model.texts["target"][token] for token in ids] for ids in targets]
    found = model.theirs.score_batch(
        [model.framed(ids) for ids in model.sources],
        [[*model.given["target_prefix"], *own] for own in words],
        offset=model.inner,
    )
    documents = ([[own] for own in ids] for ids in (model.sources, targets))
    config = SearchConfig(length_penalty=0)
    expected = score_documents(model.ours, *documents, model.specials, config, free_at_limit=False)
    assert [sum(own.log_probs) for own in found] == pytest.approx([own.score for own in expected], abs=1e-4, rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_search_finds_the_same(variant, exported):
    model = exported(variant)
    said, scores = model.translate(beam_size=1)
    expected, worth = model.search(beam=1, implementation="huggingface")  # in which what is given counts in the length
    assert said == expected
    assert len(set(map(len, said))) > 1
    assert scores == pytest.approx(worth, abs=1e-3)


@pytest.mark.parametrize("variant", only(VARIANTS, *QUICK))
@pytest.mark.parametrize("beam", only([3, 5], 3))
def test_beam_search_without_a_length_penalty_finds_what_that_of_transformers_finds(beam, variant, exported):
    model = exported(variant)
    least = int(variant in PREFIXED)  # a translation that ends at once is not always found there
    said, scores = model.translate(least, beam_size=beam, length_penalty=0)
    expected, worth = model.search(beam=beam, length_penalty=0, min_length=least, implementation="huggingface")
    assert said == expected
    assert len(set(map(len, said))) > 1
    if not least:  # what may not come first has no share of the probability there
        assert scores == pytest.approx(worth, abs=1e-3)


@pytest.mark.parametrize(
    "variant", only(["thumt", "marian", "mbart"], "thumt")
)  # whose last mark is that of the sentence
@pytest.mark.parametrize(("beam", "penalty"), only([(4, 1.0), (5, 0.6)], (4, 1.0)))
def test_beam_search_with_a_length_penalty_finds_what_that_of_docmt_finds(beam, penalty, variant, exported):
    model = exported(variant)
    said, scores = model.translate(beam_size=beam, length_penalty=penalty)
    expected, worth = model.search(beam=beam, length_penalty=penalty)
    assert said == expected
    assert len(set(map(len, said))) > 1
    assert scores == pytest.approx(worth, abs=1e-3)


def test_padding_that_a_family_never_says_is_not_said_there(tokenizer, tmp_path):
    model = new_model(tmp_path / "likely", tokenizer, "marian")
    model.head_bias.vector[SpecialTokens.pad - 1] = 50.0  # <s> has no logit
    save_model(tmp_path / "own", model, tokenizer)
    both = Exported(tmp_path)
    said = both.translate(beam_size=1)[0]
    assert said == both.search(beam=1, implementation="huggingface")[0]
    assert not any(SpecialTokens.pad in own for own in said)


def test_what_families_need_is_told(exported):
    told = {name: exported(name).given for name in ("post", "bart", "mbart", "m2m_100", "t5", "thumt")}
    assert told["post"] == {
        "source_opens": ["<s>"],
        "source_closes": ["</s>"],
        "target_prefix": [],
        "tokenizer": "tokenizer.json",
    }
    texts = exported("post").texts["target"]
    first, second = texts[8], texts[9]
    assert told["bart"]["target_prefix"] == ["<s>"]
    assert (told["mbart"]["source_closes"], told["mbart"]["target_prefix"]) == (["</s>", first], [])
    assert exported("mbart").values["decoder_start_token"] == second
    assert (told["m2m_100"]["source_opens"], told["m2m_100"]["target_prefix"]) == ([first], [second])
    assert told["t5"]["source_opens"] == [texts[7], second]
    assert told["thumt"]["source_opens"] == []


def translated(directory):
    """What docmt says to TEXTS."""
    rules = {"beam": 1, "min_length": 0, "max_length_ratio": 0, "max_length_extra": LIMIT}
    translator = Translator(directory, device="cpu", search=SearchConfig(**rules))
    return [
        own.document.sentences[0] for own in translator.translate([Document.from_sentences([text]) for text in TEXTS])
    ]


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_the_tokenizer_beside_it_leads_from_text_to_text(kind, tmp_path):
    sentences = [("source", text) for text in SENTENCES] + [("target", text) for text in hub.TARGET]
    new_model(tmp_path / "own", train_tokenizer(kind, sentences, 400))
    model = Exported(tmp_path)
    library = Library.from_file(str(tmp_path / "exported" / "tokenizer.json"))
    tokens = [library.encode(text).tokens for text in TEXTS]
    assert tokens == [model.framed(ids) for ids in model.sources]
    found = model.theirs.translate_batch(
        tokens, beam_size=1, max_decoding_length=LIMIT, min_decoding_length=0, max_input_length=0
    )
    said = [library.decode([library.token_to_id(token) for token in own.hypotheses[0]]) for own in found]
    assert [" ".join(own.split()) for own in said] == [" ".join(own.split()) for own in translated(tmp_path / "own")]


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
        assert model.given["tokenizer"] == "docmt"
        assert load_tokenizer(tmp_path / kind / "exported").same_words(tokenizer)
        assert model.translate(beam_size=1)[0] == model.search(beam=1, implementation="huggingface")[0]


@pytest.mark.parametrize("variant", only(["m2m_100", "marian, apart", "t5, version 1.1"], "marian, apart"))
def test_a_converted_model_finds_the_same(variant, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers (the extra bench) is not installed")
    from pretrained import PAIRS, pretrained

    _, directory, _ = pretrained(tmp_path, variant, *PAIRS[variant])
    model = Exported(tmp_path, directory.name)
    assert model.given["tokenizer"] == ("MarianTokenizer" if "marian" in variant else "tokenizer.json")
    assert model.translate(beam_size=1)[0] == model.search(beam=1, implementation="huggingface")[0]
    said = model.translate(1, beam_size=3, length_penalty=0)[0]
    assert said == model.search(beam=3, length_penalty=0, min_length=1, implementation="huggingface")[0]
    if "marian" not in variant:
        library = Library.from_file(str(tmp_path / "exported" / "tokenizer.json"))
        tokens = [library.encode(text).tokens for text in TEXTS]
    else:
        library = transformers.MarianTokenizer.from_pretrained(tmp_path / "exported")
        vocabulary = json.loads((tmp_path / "exported" / "source_vocabulary.json").read_text())
        tokens = [[vocabulary[token] for token in library(text)["input_ids"]] for text in TEXTS]
        mark = [model.texts["source"][token] for token in model.ours.config.target_language_ids]
        tokens = [[*mark, *own] for own in tokens]  # which a caller writes before the text
    assert tokens == [model.framed(ids) for ids in model.sources]


def test_weights_are_in_the_file_once_and_smaller_if_asked(tokenizer, tmp_path):
    new_model(tmp_path / "own", tokenizer)
    sizes = {}
    for kind in ("float32", "float16", "int8"):
        export_ctranslate2(tmp_path / "own", tmp_path / kind, quantization=kind)
        sizes[kind] = (tmp_path / kind / "model.bin").stat().st_size
        for compute in ("int8", "float32"):
            theirs = ctranslate2.Translator(str(tmp_path / kind), compute_type=compute, intra_threads=1)
            assert theirs.translate_batch([["<s>", "</s>"]], max_decoding_length=3)[0].hypotheses
    model = load_model(tmp_path / "own")
    weights = sum(weights.numel() for weights in model.parameters()) + 1024 * SIZES["width"]  # computed positions
    assert 4 * weights < sizes["float32"] < 4 * weights + 12_000
    assert sizes["float16"] < 2 * weights + 12_000
    assert sizes["int8"] < sizes["float32"] - 2 * weights + 4 * 1024 * SIZES["width"]


REFUSED = {
    "group": ({"system": "group"}, "is a model of system group: only a sentence model"),
    "encoder of another kind": ({"family": "bert"}, "model.family 'bert'"),
    "settings of a family": ({"family": "thumt", **RELATIVE}, "model.family 'thumt'"),
    "no language": ({"family": "mbart", **MBART}, "model.target_language_ids []"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_ctranslate2_does_not_have_is_refused(case, tokenizer, tmp_path):
    options, message = REFUSED[case]
    new_model(tmp_path / "own", tokenizer, **options)
    with pytest.raises(DocmtError, match=re.escape(message)):
        export_ctranslate2(tmp_path / "own", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_missing_package_is_named(tokenizer, tmp_path, monkeypatch, capsys):
    new_model(tmp_path / "own", tokenizer)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert main(["export", "ctranslate2", str(tmp_path / "own"), "-o", str(tmp_path / "exported")]) == 2
    assert "pip install docmt[ctranslate2]" in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()


def test_the_command_says_what_to_give_and_writes_nothing_twice(tokenizer, tmp_path, capsys):
    new_model(tmp_path / "own", tokenizer, "m2m_100")
    arguments = ["export", "ctranslate2", str(tmp_path / "own"), "-o", str(tmp_path / "exported")]
    assert main([*arguments, "--quantization", "int8"]) == 0
    first, second = token_texts(tokenizer, "target")[8:10]
    marked = f"give it {first} TOKENS </s> (its encode adds these marks), target_prefix {second}"
    told = f"model of CTranslate2, tokenizer tokenizer.json; {marked}"
    assert capsys.readouterr().out == f"{tmp_path / 'exported'}: {told}\n"
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["docmt"]["target_prefix"] == [second]
    assert main(arguments) == 2
    assert "exported exists already" in capsys.readouterr().err
    both = f"{tmp_path / 'own'},{tmp_path / 'own'}"
    assert main(["export", "ctranslate2", both, "-o", str(tmp_path / "other")]) == 2
    assert "is an ensemble, which cannot be exported: export one model" in capsys.readouterr().err


@pytest.mark.parametrize("named", [("source",), ("target",), ("source", "target")], ids=str)
def test_unknown_words_are_unknown_there(named, tmp_path):
    words = {side: [f"{side[0]}{number}" for number in range(9)] for side in ("source", "target")}
    for side in named:
        words[side][3] = "<unk>"  # a word of that dictionary
    tokenizer = DictionaryTokenizer(words["target"], words["source"])
    torch.manual_seed(2)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "source_vocabulary_size": tokenizer.source_vocabulary_size}
    model = TranslationModel(ModelConfig(system="sentence", family="thumt", **SIZES, **sizes)).eval()
    save_model(tmp_path / "own", model, tokenizer)
    given = export_ctranslate2(tmp_path / "own", tmp_path / "exported")["docmt"]
    theirs = ctranslate2.Translator(str(tmp_path / "exported"), compute_type="float32", intra_threads=1)
    source, target = tokenizer.encode("s1 s2 nowhere s7", "source"), tokenizer.encode("t5 t1", "target")
    assert SpecialTokens.unk in source
    framed = [*given["source_opens"], "s1", "s2", "nowhere", "s7", *given["source_closes"]]
    (found,) = theirs.score_batch([framed], [["t5", "t1"]])
    (ours,) = score_documents(model, [[source]], [[target]], tokenizer.specials, SearchConfig())
    assert sum(found.log_probs) == pytest.approx(ours.sentence_scores[0], abs=1e-4)
