"""A tiny model to give to the command line, and what it was made of."""

import gzip
import json
import re
import shutil

import pytest
from benchmarks.synthetic.synthetic_corpus import write_corpus
from commands import TINY, call

import docmt
from docmt.evaluation import suites


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with train, dev and test documents in English and German."""
    folder = tmp_path_factory.mktemp("cli") / "corpus"
    write_corpus(folder, train=200, dev=10, test=6, seed=1)
    return folder


@pytest.fixture(scope="session")
def store(corpus, copy_of_one):
    """A prepared store of the corpus."""

    def prepare(path):
        sides = {name: (corpus / f"{name}.en", corpus / f"{name}.de") for name in ("train", "dev")}
        outcome = call(
            *("prepare", "--store", path, "--train", *sides["train"], "--dev", *sides["dev"]),
            *("--vocabulary-size", 400, "--source-language", "en", "--target-language", "de"),
        )
        assert outcome.status == 0, outcome.err
        assert outcome.err.startswith("docmt: try: docmt train --store ")

    path = corpus.parent / "store"
    copy_of_one(path, prepare)
    return path


@pytest.fixture(scope="session")
def run(store, copy_of_one):
    """The run directory of a trained tiny model."""

    def train(path):
        outcome = call("train", "--store", store, "--run", path, *TINY, "--model.dropout", 0, "--stop.max-steps", 100)
        assert outcome.status == 0, outcome.err
        assert outcome.out == f"100 updates are done; the model is in {path / 'model'}\n"

    path = store.parent / "run"
    copy_of_one(path, train)
    return path


@pytest.fixture
def suite(corpus, tmp_path):
    """A small test set of two phenomena."""
    lines = (corpus / "test.contrastive.jsonl").read_text().splitlines()[:6]
    path = tmp_path / "suite.jsonl"
    records = [{**json.loads(line), "phenomenon": "even" if n % 2 else "odd"} for n, line in enumerate(lines)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def short_suites(tmp_path_factory, monkeypatch):
    """The test sets of the package, cut to a few items."""
    folder = tmp_path_factory.mktemp("suites")
    for path in suites._TEST_SETS.glob("*.gz"):
        with gzip.open(path) as whole, gzip.open(folder / path.name, "wb") as short:
            short.writelines(line for number, line in enumerate(whole) if number % 12 == 0)
    monkeypatch.setattr(suites, "_TEST_SETS", folder)


@pytest.fixture(scope="session")
def form_items(run, corpus):
    """Lines of a small generative test set, with words that the model says and words that it does not say."""
    translator, lines = docmt.Translator(run, search=docmt.SearchConfig(beam=1)), []
    for own in map(json.loads, (corpus / "test.contrastive.jsonl").read_text().splitlines()[:3]):
        said = translator.translate(docmt.Document.from_sentences(own["source"][:3])).sentences[2].target
        for rule, form in (("said", re.search(r"\w+", said)[0].upper()), ("unsaid", "quatsch")):
            item = {"src_context": own["source"][:2], "src": own["source"][2], "expected": form, "rule": rule}
            lines.append(json.dumps(item))
    return lines


@pytest.fixture
def asked(form_items, tmp_path):
    """The file of a small generative test set."""
    path = tmp_path / "forms.en-de.jsonl"
    path.write_text("\n".join(form_items))
    return path


@pytest.fixture
def others(run, tmp_path):
    """Two more models."""
    return [shutil.copytree(run / "model", tmp_path / name) for name in ("second", "third")]
