"""From the translations of a sentence model to a model that reads them as drafts, by commands."""

import json
import shutil

import pytest
from commands import TINY_SENTENCE, call, fails

import docmt
from docmt.decoding import score_documents, translate_documents
from docmt.decoding.drafter import Drafter

pytestmark = pytest.mark.full
SEARCH = ["--search.beam", 2, "--search.max-length-ratio=0", "--search.max-length-extra=3"]


@pytest.fixture(scope="module")
def folder(store, corpus, tmp_path_factory):
    """A folder with a store S with drafts, the sentence run that made them and a run of a model that reads them."""
    folder = tmp_path_factory.mktemp("drafts")
    sentence = [*TINY_SENTENCE, "--model.system", "sentence", "--stop.max-steps", 20]
    assert call("train", "--store", store, "--run", folder / "sentence", *sentence).status == 0
    greedy = ["--search.beam=1", *SEARCH[2:], "--layout", "lines"]
    for name in ("train", "dev"):
        output = folder / f"{name}.drafts"
        outcome = call("translate", folder / "sentence", corpus / f"{name}.en", "-o", output, *greedy)
        assert outcome.status == 0, outcome.err
    start = f"--initialize-from={folder / 'sentence'}"
    hops = [*TINY_SENTENCE, "--model.system=multihop", "--stop.max-steps=20", start]
    fails("train", "--store", store, "--run", folder / "hops", *hops, message="has none. Translate the source texts")
    sides = {name: (corpus / f"{name}.en", corpus / f"{name}.de") for name in ("train", "dev")}
    files = ["--train", *sides["train"], "--dev", *sides["dev"], "--source-language", "en", "--target-language", "de"]
    ready = ["prepare", "--store", folder / "S", "--tokenizer", folder / "sentence" / "model", *files]
    fails(*ready, "--drafts", folder / "train.drafts", message="--drafts names 1 files for 2 corpora of --train and --")
    short = folder / "short.drafts"
    short.write_text((folder / "train.drafts").read_text().partition("\n")[0])
    fails(*ready, "--drafts", short, folder / "dev.drafts", message=r"short.drafts ends before line \d+")
    outcome = call(*ready, "--drafts", folder / "train.drafts", folder / "dev.drafts")
    assert outcome.status == 0, outcome.err
    outcome = call("train", "--store", folder / "S", "--run", folder / "hops", *hops)
    assert outcome.status == 0, outcome.err
    return folder


def read_documents(corpus, language):
    return [block.splitlines() for block in (corpus / f"test.{language}").read_text().strip().split("\n\n")]


def test_translate_score_and_evaluate(folder, corpus, tmp_path):
    shutil.copytree(folder / "hops" / "model", tmp_path / "moved")
    output = tmp_path / "out.jsonl"
    outcome = call("translate", tmp_path / "moved", corpus / "test.en", "--layout=lines", "-o", output, *SEARCH)
    assert outcome.status == 0, outcome.err
    translated = [json.loads(line) for line in output.read_text().splitlines()]
    translator = docmt.Translator(folder / "hops", device="cpu")
    documents = [docmt.Document.from_sentences(document) for document in read_documents(corpus, "en")]
    targets = [docmt.Document.from_sentences(document) for document in read_documents(corpus, "de")]
    outcome = call("score", tmp_path / "moved", corpus / "test.en", corpus / "test.de")
    assert outcome.status == 0, outcome.err
    wanted = [own.score for pair in translator.score_all(list(zip(documents, targets, strict=True))) for own in pair]
    assert [float(line) for line in outcome.out.split()] == pytest.approx(wanted, abs=1e-4)
    # What is said is scored as it was found, token by token: as text it may have other tokens.
    ids = [translator.tokenizer.encode_batch(document.sentences, "source") for document in documents]
    search = docmt.SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)
    specials = translator.tokenizer.specials
    with_drafts = {"drafts": translator.draft_documents(ids)}
    found = [ranks[0] for ranks in translate_documents(translator.model, ids, specials, search, **with_drafts)]
    said = [own.sentences for own in found]
    scored = score_documents(translator.model, ids, said, specials, search, **with_drafts)
    for own, other in zip(scored, found, strict=True):
        assert own.sentence_scores == pytest.approx(other.sentence_scores, abs=1e-4)
    assert [own["score"] for own in translated] == pytest.approx(
        [score for own in found for score in own.sentence_scores], abs=1e-4
    )
    files = ["--source", corpus / "test.en", "--reference", corpus / "test.de", "-o", tmp_path / "again.de"]
    outcome = call("evaluate", "--model", tmp_path / "moved", *files, *SEARCH)
    assert outcome.status == 0 and "d-BLEU" in outcome.out, outcome.err
    assert (tmp_path / "again.de").read_text().split("\n\n")[0].splitlines() == [
        own["target"] for own in translated if own["document"] == translated[0]["document"]
    ]
    shutil.rmtree(tmp_path / "moved" / "drafter")
    fails("translate", tmp_path / "moved", corpus / "test.en", message="drafts, but the model that writes")


def test_a_document_that_cannot_be_drafted_does_not_stop_what_is_looked_at(folder, corpus, monkeypatch):
    drafted = Drafter.draft_documents
    encoded = docmt.Translator(folder / "hops", device="cpu").tokenizer.encode_batch(
        read_documents(corpus, "en")[1], "source"
    )

    def drafts(self, sources, *rest):
        if encoded in list(sources):
            raise docmt.DocmtError("the draft is too long")
        return drafted(self, sources, *rest)

    monkeypatch.setattr(Drafter, "draft_documents", drafts)
    outcome = call("inspect", folder / "hops", corpus / "test.en", corpus / "test.de", "--json", "-")
    assert outcome.status == 2
    assert outcome.err.splitlines() == [
        f"docmt: error: {corpus / 'test.en'}, document 2: the draft is too long",
        "docmt: 1 of 6 documents could not be inspected",
    ]
    found = json.loads(outcome.out)
    assert found["documents"] == 5 and {own["kind"] for own in found["gates"]} == {"encoder_hops", "decoder_hops"}
