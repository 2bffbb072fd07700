"""docmt draft, and every command with a model that reads drafts."""

import json
import shutil

import pytest
from commands import TINY_SENTENCE, call, fails

import docmt
from docmt.decoding import score_documents, translate_documents
from docmt.decoding.drafting import Drafter

SEARCH = ["--search.beam", 2, "--search.max_length_ratio=0", "--search.max_length_extra=3"]


@pytest.fixture(scope="module")
def folder(store, tmp_path_factory):
    """A folder with a drafted store S, the sentence run that drafted it and a run of a model that reads the drafts."""
    folder = tmp_path_factory.mktemp("drafts")
    shutil.copytree(store, folder / "S")
    sentence = [*TINY_SENTENCE, "--model.system", "sentence", "--stop.max_steps", 20]
    assert call("train", "--store", folder / "S", "--run", folder / "sentence", *sentence).status == 0
    hops = [
        *TINY_SENTENCE,
        "--model.system=multihop",
        "--stop.max_steps=20",
        f"--initialize_from={folder / 'sentence'}",
    ]
    fails("train", "--store", folder / "S", "--run", folder / "hops", *hops, message="has none: run `docmt draft MODEL")
    outcome = call("draft", folder / "sentence", "--store", folder / "S", *SEARCH, "--device", "cpu")
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith("sentences of train, dev are drafted\n")
    start = f"--system multihop --initialize_from {folder / 'sentence'}"
    recipe = folder / "sentence" / "recipe.yaml"
    assert outcome.err == f"docmt: try: docmt train {recipe} --store {folder / 'S'} --run RUN {start}\n"
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
    with_drafts = {"drafts": translator.drafts(ids)}
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
    fails(
        "translate",
        tmp_path / "moved",
        corpus / "test.en",
        message="drafts, but the model that writes",
    )


def test_jackknifing(folder, tmp_path):
    shutil.copytree(folder / "S", tmp_path / "S")
    arguments = ["draft", folder / "sentence", "--store", tmp_path / "S", "--runs", tmp_path / "runs", *SEARCH]
    fails(*arguments, "--jackknife", 2, message="S has drafts already: add --overwrite to replace them")
    outcome = call(*arguments, "--jackknife", 2, "--overwrite", "--device", "cpu")
    assert outcome.status == 0, outcome.err
    assert "docmt: training without part 2/2 (" in outcome.err
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["part-1-of-2", "part-2-of-2"]
    facts = json.loads((tmp_path / "S/drafts/drafts.json").read_text())
    assert len(set(facts["parts"])) == 2 and facts["weights"] not in facts["parts"]
    outcome = call(*arguments, "--jackknife", 2, "--overwrite", "--device", "cpu")
    assert outcome.status == 0 and "training" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL and --store are missing|MODEL .* missing"),
        (["{folder}/sentence"], "--store is missing"),
        (["{folder}/sentence", "--store", "{folder}/S"], "S has drafts already: add --overwrite"),
        (["{folder}/sentence", "--store", "nowhere"], "nowhere is not a prepared store"),
        (["nowhere", "--store", "{folder}/S", "--overwrite"], "there is no directory nowhere"),
        (["{folder}/hops", "--store", "{folder}/S", "--overwrite"], "hops reads drafts itself: draft with a model"),
        (["{folder}/sentence", "--store", "{folder}/S", "--runs", "r"], "--runs has no effect without --jackknife"),
        (
            ["{folder}/sentence", "--store", "{folder}/S", "--jackknife", "1"],
            "--jackknife is 1: choose a number",
        ),
        (
            ["{folder}/sentence/model", "--store", "{folder}/S", "--jackknife", "2", "--overwrite"],
            "is no run",
        ),
        (["{folder}/sentence", "--store", "{folder}/S", "--overwrite", "--device", "tpu"], "device tpu cannot be"),
        (
            ["{folder}/sentence", "--store", "{folder}/S", "--overwrite", "--search.carry", "2"],
            r"search.carry is for systems that translate whole instances .*, not for this sentence model",
        ),
    ],
)
def test_what_cannot_be_drafted(folder, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(folder.rglob("*"))
    fails("draft", *[argument.format(folder=folder) for argument in arguments], message=message)
    assert list(tmp_path.iterdir()) == []
    assert sorted(folder.rglob("*")) == before


def test_interrupted(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "S", tmp_path / "S")
    shutil.rmtree(tmp_path / "S" / "drafts")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    arguments = ["draft", folder / "sentence", "--store", tmp_path / "S", *SEARCH]
    with monkeypatch.context() as patch:
        patch.setattr("docmt.decoding.drafting.Drafter.drafts", interrupted)
        outcome = call(*arguments)
    assert outcome.status == 130
    assert outcome.err == "docmt: give the same command again to go on\ndocmt: interrupted\n"
    assert call(*arguments).status == 0


def test_an_interrupted_training_of_a_part(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "S", tmp_path / "S")
    monkeypatch.setattr("docmt.training.jackknife.train_parts", lambda configs, tell: False)
    arguments = ["--store", tmp_path / "S", "--overwrite", "--jackknife", 2, "--runs", tmp_path / "runs"]
    outcome = call("draft", folder / "sentence", *arguments)
    assert (outcome.status, outcome.err) == (130, "docmt: give the same command again to go on\n")


def test_a_document_that_cannot_be_drafted_does_not_stop_what_is_looked_at(folder, corpus, monkeypatch):
    drafted = Drafter.drafts
    encoded = docmt.Translator(folder / "hops", device="cpu").tokenizer.encode_batch(
        read_documents(corpus, "en")[1], "source"
    )

    def drafts(self, sources, *rest):
        if encoded in list(sources):
            raise docmt.DocmtError("the draft is too long")
        return drafted(self, sources, *rest)

    monkeypatch.setattr(Drafter, "drafts", drafts)
    outcome = call("inspect", folder / "hops", corpus / "test.en", corpus / "test.de", "--json", "-")
    assert outcome.status == 2
    assert outcome.err.splitlines() == [
        f"docmt: error: {corpus / 'test.en'}, document 2: the draft is too long",
        "docmt: 1 of 6 documents could not be looked at",
    ]
    found = json.loads(outcome.out)
    assert found["documents"] == 5 and {own["kind"] for own in found["gates"]} == {"encoder_hops", "decoder_hops"}
