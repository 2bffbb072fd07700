"""Drafting a store: what is written, kills, other settings, and models that cannot draft for it."""

import json
import random
import shutil

import numpy as np
import pytest
import torch

from docmt.checkpoint.model_directory import load_model_tokenizer, save_model
from docmt.core.errors import DocmtError
from docmt.core.files import lock_directory
from docmt.data import PrepareConfig, PreparedStore, Words, prepare
from docmt.decoding import SearchConfig, Translator
from docmt.decoding.draft_store import draft_store
from docmt.decoding.drafting import Drafter
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import MultiHop

WORDS = ["bo", "ka", "lu", "me", "ni"]
SEARCH = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=3.0)
SIZES = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


def write_corpus(path, documents, seed):
    chance = random.Random(seed)
    with path.open("w") as file:
        for number in range(documents):
            source = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(number % 3 + 1)]
            file.write(json.dumps({"id": f"d{number}", "source": source, "target": source}) + "\n")


def save(directory, tokenizer, seed=0, languages=("en", "de"), **options):
    torch.manual_seed(seed)
    options = {"system": "sentence", **options}
    model = TranslationModel(ModelConfig(vocabulary_size=tokenizer.vocabulary_size, **SIZES, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_model(directory, model, tokenizer, {"source_language": languages[0], "target_language": languages[1]})
    return directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store of twelve training documents, dev and test, and models for it: one, another."""
    folder = tmp_path_factory.mktemp("drafting")
    for name, documents in (("train", 12), ("dev", 3), ("test", 4)):
        write_corpus(folder / f"{name}.jsonl", documents, documents)
    files = {name: [folder / f"{name}.jsonl"] for name in ("train", "dev", "test")}
    languages = {"source_language": "en", "target_language": "de"}
    store = prepare(PrepareConfig(store=folder / "store", vocabulary_size=270, **languages, **files))
    for seed, name in enumerate(("one", "another", "third")):
        save(folder / name, store.tokenizer, seed)
    return folder


@pytest.fixture
def store(folder, tmp_path):
    """The store of this test."""
    return PreparedStore.open(shutil.copytree(folder / "store", tmp_path / "store"))


def columns(store):
    return {
        name: Words(*store.drafts.column(name)).documents(store.split(name).document_offsets) for name in store.splits
    }


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def dying_after(monkeypatch, groups):
    """Makes drafting die instead of drafting one group more; returns the numbers of sentences of those drafted."""
    drafted, original = [], Drafter.drafts

    def dying(self, documents, *rest):
        if len(drafted) == groups:
            raise Killed
        drafted.append(sum(map(len, documents)))
        return original(self, documents, *rest)

    monkeypatch.setattr(Drafter, "drafts", dying)
    return drafted


def test_drafts_are_the_models_translations(store, folder):
    draft_store(store, folder / "one", SEARCH)
    translator = Translator(folder / "one", device="cpu", search=SEARCH)
    specials = store.tokenizer.specials
    for name, documents in columns(store).items():
        for source, drafts in zip(store.split(name).documents("source"), documents, strict=True):
            for sentence, draft in zip(source, drafts, strict=True):
                (alone,) = Drafter(translator.model, store.tokenizer, SEARCH, "float32").drafts([[sentence]])
                assert alone == [draft]
                assert all(specials.unk < word < specials.eod for word in draft)
    found = {path.name for path in store.directory.iterdir()}
    assert found == {"train", "dev", "test", "tokenizer", "statistics.json", "drafts", ".lock"}
    assert (store.drafts.drafter / "model.safetensors").read_bytes() == (folder / "one/model.safetensors").read_bytes()
    assert load_model_tokenizer(store.drafts.drafter).same_words(store.tokenizer)
    assert store.drafts.facts["search"]["beam"] == 2 and store.drafts.system == "sentence"


@pytest.mark.parametrize("parts", [0, 3])
def test_what_was_killed_goes_on(store, folder, tmp_path, monkeypatch, parts):
    monkeypatch.setattr("docmt.decoding.draft_store.GROUP_SENTENCES", 5)
    models = [folder / "another", folder / "third", folder / "one"][:parts]
    other = PreparedStore.open(shutil.copytree(store.directory, tmp_path / "other"))
    with monkeypatch.context() as patch:
        drafted = dying_after(patch, -1)
        draft_store(other, folder / "one", SEARCH, parts=models)
        total = sum(len(store.split(name).source_lengths) for name in store.splits)
        assert sum(drafted) == total and len(drafted) >= 6
    seen = []
    for groups in (2, 0, 1):
        with monkeypatch.context() as patch:
            drafted = dying_after(patch, groups)
            with pytest.raises(Killed):
                draft_store(store, folder / "one", SEARCH, parts=models)
            seen += drafted
            assert store.drafts is None
    with monkeypatch.context() as patch:
        drafted = dying_after(patch, -1)
        draft_store(store, folder / "one", SEARCH, parts=models)
        assert sum(seen) + sum(drafted) == total
    ours, theirs = (contents(one.directory / "drafts") for one in (store, other))
    assert ours == theirs
    assert not (store.directory / "drafts.partial").exists()


def test_each_part_has_a_model_of_its_own(store, folder):
    models = [folder / "another", folder / "third"]
    draft_store(store, folder / "one", SEARCH, parts=models)
    wanted = {}
    for name in ("one", "another", "third"):
        translator = Translator(folder / name, device="cpu", search=SEARCH)
        drafter = Drafter(translator.model, store.tokenizer, SEARCH, "float32")
        wanted[name] = {split: drafter.drafts(store.split(split).documents("source")) for split in store.splits}
    assert wanted["another"] != wanted["third"] != wanted["one"]
    found = columns(store)
    assert found["dev"] == wanted["one"]["dev"] and found["test"] == wanted["one"]["test"]
    for number, document in enumerate(found["train"]):
        assert document == wanted[("another", "third")[number % 2]]["train"][number]
    assert len(store.drafts.facts["parts"]) == 2


def test_drafts_that_are_there(store, folder):
    draft_store(store, folder / "one", SEARCH)
    before = store.drafts.identity
    with pytest.raises(DocmtError, match="store has drafts already: add --overwrite to replace them"):
        draft_store(store, folder / "another", SEARCH)
    assert store.drafts.identity == before
    draft_store(store, folder / "another", SEARCH, overwrite=True)
    assert store.drafts.identity != before


@pytest.mark.parametrize(
    ("model", "search", "parts", "what"),
    [
        ("another", SEARCH, (), "weights"),
        ("one", SearchConfig(beam=3), (), "search"),
        ("one", SEARCH, ("another", "third"), "parts"),
    ],
)
def test_other_settings_do_not_go_on(store, folder, monkeypatch, model, search, parts, what):
    with monkeypatch.context() as patch:
        dying_after(patch, 1)
        with pytest.raises(Killed):
            draft_store(store, folder / "one", SEARCH)
    settings = {"parts": [folder / part for part in parts]}
    with pytest.raises(DocmtError, match=rf"other settings \({what}\) were begun in .*partial: give that command"):
        draft_store(store, folder / model, search, **settings)
    draft_store(store, folder / model, search, overwrite=True, **settings)
    overwritten = contents(store.directory / "drafts")
    shutil.rmtree(store.directory / "drafts")
    draft_store(store, folder / model, search, **settings)
    assert contents(store.directory / "drafts") == overwritten


def test_more_searched_together_goes_on(store, folder, monkeypatch):
    with monkeypatch.context() as patch:
        dying_after(patch, 1)
        with pytest.raises(Killed):
            draft_store(store, folder / "one", SEARCH)
    draft_store(store, folder / "one", SearchConfig(**{**vars(SEARCH), "batch_tokens": 50}))


def test_killed_while_it_cleans_up(store, folder, monkeypatch):
    def removing(path, **options):
        if path.name != "drafts.partial":
            return remove(path, **options)
        (path / "drafter" / "config.json").unlink()
        raise Killed

    remove = shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", removing)
        with pytest.raises(Killed):
            draft_store(store, folder / "one", SEARCH)
    whole = contents(store.directory / "drafts")
    draft_store(store, folder / "one", SEARCH, overwrite=True)
    assert contents(store.directory / "drafts") == whole
    assert not (store.directory / "drafts.partial").exists()


def test_a_damaged_group_is_told(store, folder, monkeypatch):
    with monkeypatch.context() as patch:
        dying_after(patch, 1)
        with pytest.raises(Killed):
            draft_store(store, folder / "one", SEARCH)
    [group] = (store.directory / "drafts.partial").glob("*.npz")
    whole = group.read_bytes()
    for content in (b"", whole[:100], whole.replace(b"lengths", b"breadth"), b"\x93NUMPY" + whole):
        group.write_bytes(content)
        with pytest.raises(DocmtError, match=r"\.npz is damaged .*: remove it, and give the same command again"):
            draft_store(store, folder / "one", SEARCH)
    group.unlink()
    draft_store(store, folder / "one", SEARCH)


def test_one_process_at_a_time(store, folder):
    with (
        lock_directory(store.directory, "the test is run"),
        pytest.raises(DocmtError, match=r"is being drafted by process \d+ on .*: wait for it"),
    ):
        draft_store(store, folder / "one", SEARCH)
    assert store.drafts is None


def test_a_store_that_changes_meanwhile(store, folder, monkeypatch):
    original = Drafter.drafts

    def preparing(self, *rest):
        statistics = store.directory / "statistics.json"
        statistics.write_text(statistics.read_text().replace('"en"', '"fr"'))
        return original(self, *rest)

    monkeypatch.setattr(Drafter, "drafts", preparing)
    with pytest.raises(DocmtError, match="was prepared anew while it was being drafted: draft it again"):
        draft_store(store, folder / "one", SEARCH)
    assert not (store.directory / "drafts").exists()


def test_models_that_cannot_draft(store, folder, tmp_path):
    files = {"train": [folder / "dev.jsonl"], "vocabulary_size": 265}
    other = prepare(PrepareConfig(store=tmp_path / "other", **files)).tokenizer
    models = {
        "another tokenizer than what is to read its drafts: .*--tokenizer": save(tmp_path / "words", other),
        "translates from de to en, but the store .* is from en to de: draft with a model of this direction": save(
            tmp_path / "reverse", store.tokenizer, languages=("de", "en")
        ),
        "reads drafts itself: draft with a model that does not": save(
            tmp_path / "hops", store.tokenizer, system="multihop", multihop=MultiHop(sentences=1)
        ),
        "there is no directory": tmp_path / "nowhere",
    }
    for message, model in models.items():
        for given in ({"model": model}, {"model": folder / "one", "parts": [folder / "another", model]}):
            with pytest.raises(DocmtError, match=message):
                draft_store(store, search=SEARCH, **given)
    assert {path.name for path in store.directory.iterdir()} == {"train", "dev", "test", "tokenizer", "statistics.json"}


def test_any_system_without_drafts_may_draft(store, folder, tmp_path):
    draft_store(store, save(tmp_path / "context", store.tokenizer, system="context"), SEARCH)
    assert store.drafts.system == "context"
    assert np.array_equal(
        [len(document) for document in columns(store)["train"]], np.diff(store.split("train").document_offsets)
    )
