"""The published pipeline by the command line alone: moses-bpe from text files to scores by published protocols."""

import json
import re

import pytest
from commands import QUICK, TINY, call, fails

import docmt
from docmt.cli.commands.evaluate import cut_units
from docmt.documents import ParallelDocument
from docmt.text import MosesBpeTokenizer

LANGUAGES = ["--source-language", "en", "--target-language", "de"]


@pytest.fixture(scope="module")
def moses_store(corpus, tmp_path_factory):
    """A prepared store of the corpus with Moses tokens."""
    path = tmp_path_factory.mktemp("moses") / "store"
    sides = {name: (corpus / f"{name}.en", corpus / f"{name}.de") for name in ("train", "dev")}
    outcome = call(
        *("prepare", "--store", path, "--train", *sides["train"], "--dev", *sides["dev"]),
        *("--tokenizer", "moses-bpe", "--vocabulary-size", 500, *LANGUAGES),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("en to de, moses-bpe vocabulary of 500\n")
    return path


@pytest.fixture(scope="module")
def moses_run(moses_store):
    """The run directory of a model that was trained on it for a moment."""
    path = moses_store.parent / "run"
    outcome = call("train", "--store", moses_store, "--run", path, *TINY, "--stop.max-steps", 12)
    assert outcome.status == 0, outcome.err
    return path


@pytest.mark.full
def test_prepared_ids_are_those_of_each_side(moses_store, corpus):
    from docmt.data import PreparedStore
    from docmt.documents import read_documents

    store = PreparedStore.open(moses_store)
    dev, tokenizer = store.split("dev"), store.tokenizer
    assert tokenizer.languages == ("en", "de")
    for side in ("source", "target"):
        ids = [sentence for document in dev.documents(side) for sentence in document]
        language = {"source": "en", "target": "de"}[side]
        sentences = [sentence for _, document in read_documents(corpus / f"dev.{language}") for sentence in document]
        for number, sentence in enumerate(sentences):
            assert ids[number] == tokenizer.encode(sentence, side)
            assert tokenizer.decode(ids[number], side) == sentence


@pytest.mark.full
def test_translate_score_and_evaluate(moses_run, corpus, tmp_path):
    outcome = call(
        "translate", moses_run, corpus / "test.en", "--input.layout", "lines", "-o", tmp_path / "out", *QUICK
    )
    assert outcome.status == 0, outcome.err
    assert len((tmp_path / "out").read_text().splitlines()) == len((corpus / "test.en").read_text().splitlines())
    scored = call("score", moses_run, corpus / "test.en", corpus / "test.de")
    assert scored.status == 0, scored.err
    assert all(float(line) < 0 for line in scored.out.split())

    translator = docmt.Translator(moses_run)
    source, target = ["It is cheap.", "She sees it."], ["Sie ist billig.", "Sie sieht sie."]
    assert translator.encode(source, "source") == translator.tokenizer.encode_batch(source, "source")
    score = translator.score(docmt.Document.from_sentences(source), docmt.Document.from_sentences(target))
    assert len(score.sentences) == 2

    evaluated = ["evaluate", "--model", moses_run, "--source", corpus / "test.en", "--reference", corpus / "test.de"]
    outcome = call(
        *evaluated,
        *QUICK,
        "--metrics.protocol",
        "gtransformer",
        "--metrics.language",
        "de",
        "--json",
        tmp_path / "json",
    )
    assert outcome.status == 0, outcome.err
    assert re.search(r"^d-BLEU .*\|text:detokenized\.de\.sacremoses-[\d.]+\|unit:instance\|", outcome.out, re.M)
    assert re.search(r"^protocol gtransformer \(Bao et al. 2021; ", outcome.out, re.M)
    scores = json.loads((tmp_path / "json").read_text())
    assert scores["unit"] == "instance" and scores["protocol"] == "gtransformer"


def test_every_caller_says_the_right_side(moses_run, monkeypatch):
    """English is source and German target."""
    seen = []
    for name in ("encode_batch", "decode_batch"):
        original = getattr(MosesBpeTokenizer, name)

        def spy(self, batch, side=None, name=name, original=original):
            seen.append((name, side))
            return original(self, batch, side)

        monkeypatch.setattr(MosesBpeTokenizer, name, spy)
    translator = docmt.Translator(moses_run)
    english, german = (docmt.Document.from_sentences([text]) for text in ("It is cheap.", "Sie ist billig."))
    encoding, decoding = ("encode_batch", "source"), ("decode_batch", "target")
    translator.translate(english)
    assert seen == [encoding, decoding]
    translator.score(english, german)
    cut_units(translator, ParallelDocument("", tuple(english.sentences), tuple(german.sentences)))
    assert seen[2:] == [encoding, ("encode_batch", "target")] * 2


@pytest.mark.parametrize("protocol", ["zhang2018", "multihop", "rfa"])
def test_files_are_scored_by_protocols_over_documents(corpus, protocol):
    reference = corpus / "test.de"
    outcome = call(
        *("evaluate", "--hypothesis", reference, "--reference", reference),
        *("--metrics.protocol", protocol, "--metrics.language", "de"),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("100.00") == 4
    assert f"protocol {protocol} (" in outcome.out


def test_a_ready_tokenizer_is_for_its_languages_in_their_order(moses_run, corpus, tmp_path):
    arguments = [
        *("prepare", "--store", tmp_path / "s", "--tokenizer", moses_run / "model"),
        *("--train", corpus / "dev.de", corpus / "dev.en"),
    ]
    message = r"the tokenizer in \S+ is for en to de; set --source-language and --target-language to these codes"
    fails(*arguments, message=message)
    fails(*arguments, "--source-language", "de", "--target-language", "en", message=message)
    arguments[-2:] = corpus / "dev.en", corpus / "dev.de"
    outcome = call(*arguments, *LANGUAGES)
    assert outcome.status == 0, outcome.err
    again = call(
        "train",
        "--store",
        tmp_path / "s",
        "--run",
        tmp_path / "r",
        *TINY,
        "--stop.max-steps",
        2,
        *("--initialize-from", moses_run),
    )
    assert again.status == 0, again.err
