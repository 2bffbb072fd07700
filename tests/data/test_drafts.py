"""The drafts of a store: what is written is read, and what is missing, damaged or of another store is told."""

import json
import shutil

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.data import PrepareConfig, Words, prepare
from docmt.data.drafts import Drafts, identity_of, write_columns
from docmt.data.parts import Part

DRAFTS = [[[7, 8], [9]], [[], [10, 11, 12], [4]]]
"""Of two documents; one sentence has no words."""


def write_corpus(path, documents):
    lines = [{"id": f"d{n}", "source": ["ka bo"] * size, "target": ["BO KA"] * size} for n, size in documents]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def store(tmp_path):
    """A store of five training sentences in two documents, and a dev split of two sentences."""
    write_corpus(tmp_path / "train.jsonl", [(0, 2), (1, 3)])
    write_corpus(tmp_path / "dev.jsonl", [(0, 2)])
    files = {"train": [tmp_path / "train.jsonl"], "dev": [tmp_path / "dev.jsonl"]}
    return prepare(PrepareConfig(store=tmp_path / "store", vocabulary_size=263, **files))


def write(store, drafts=DRAFTS, dev=((), (5, 6)), **facts):
    """Drafts in the store, without a drafter."""
    folder = store.directory / "drafts"
    folder.mkdir(exist_ok=True)
    columns = {"train": Words.of(drafts), "dev": Words.of([dev])}
    usual = {"model": "/models/one", "system": "sentence", "weights": "1", "search": {"beam": 4}, "parts": []}
    facts = {"store": identity_of(store.statistics), **usual, **facts}
    arrays = {name: (words.tokens, words.offsets) for name, words in columns.items()}
    write_columns(folder, arrays, store.tokenizer.vocabulary_size, facts)
    return folder


def test_what_was_written_is_read(store):
    assert store.drafts is None
    before = (store.directory / "statistics.json").read_bytes()
    write(store)
    for drafts in (store.drafts, Drafts(store.directory / "drafts", store.statistics)):
        words = Words(*drafts.column("train"))
        assert words.documents(store.split("train").document_offsets) == DRAFTS
        assert words.tokens.dtype == np.uint16 and isinstance(words.tokens, np.memmap)
        assert words.lengths.tolist() == [2, 1, 0, 3, 1]
        assert drafts.column("dev").tokens.tolist() == [5, 6]
    assert (store.directory / "statistics.json").read_bytes() == before


def test_drafts_are_told_apart(store):
    write(store)
    first = store.drafts.identity
    write(store, docmt_version="9", model="/elsewhere")
    assert store.drafts.identity == first
    found = {first}
    for drafts, facts in (
        ([[[7, 8], [9]], [[], [10, 11], [4]]], {}),
        (DRAFTS, {"weights": "2"}),
        (DRAFTS, {"search": {}}),
    ):
        write(store, drafts, **facts)
        found.add(store.drafts.identity)
    assert len(found) == 4


def test_a_store_prepared_anew_has_no_drafts(store, tmp_path):
    write(store)
    again = prepare(
        PrepareConfig(store=store.directory, train=[tmp_path / "train.jsonl"], vocabulary_size=263, overwrite=True)
    )
    assert again.drafts is None


@pytest.mark.parametrize("file", ["train_tokens.npy", "train_offsets.npy"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "changed"])
def test_damage_is_told(store, file, damage):
    path = write(store) / file
    data = bytearray(path.read_bytes())
    data[-8 if file == "train_tokens.npy" else -16] ^= 1
    contents = {"empty": b"", "truncated": path.read_bytes()[:-1], "changed": bytes(data)}
    path.unlink() if damage == "missing" else path.write_bytes(contents[damage])
    with pytest.raises(DocmtError, match=rf"{file} is missing or damaged .*run `docmt draft` again with --overwrite"):
        store.drafts.column("train")
    assert len(store.drafts.column("dev").offsets) == 3


@pytest.mark.parametrize(("name", "value"), [("parts", 3), ("search", []), ("model", None), ("system", ["sentence"])])
def test_a_description_of_other_kinds_is_damaged(store, name, value):
    write(store, **{name: value})
    with pytest.raises(
        DocmtError, match=rf"drafts\.json is damaged \(it does not say '{name}'\): run `docmt draft` again"
    ):
        store.drafts  # noqa: B018


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"store": 1, "crc32": {"train_tokens.npy": 3}}'])
def test_a_damaged_description_is_told(store, content):
    path = write(store) / "drafts.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DocmtError, match=r"drafts\.json"):
        store.drafts  # noqa: B018


def test_another_number_of_sentences(store):
    write(store, DRAFTS[:1])
    with pytest.raises(DocmtError, match=r"are of 2 sentences of train, where .* has 5: run `docmt draft`"):
        store.drafts.column("train")


def test_numbers_that_are_no_words(store):
    for token in (1, store.tokenizer.specials.eod, store.tokenizer.vocabulary_size):
        write(store, [[[7, 8], [9]], [[token], [10], [4]]])
        with pytest.raises(DocmtError, match=r"train_tokens\.npy is missing or damaged .*no words"):
            store.drafts.column("train")
    for token in (store.tokenizer.specials.unk, store.tokenizer.specials.mask):
        write(store, [[[7, 8], [9]], [[token], [10], [4]]])
        assert token in store.drafts.column("train").tokens


def test_drafts_of_another_store(store, tmp_path):
    write(store)
    write_corpus(tmp_path / "other.jsonl", [(0, 3), (1, 2)])
    other = prepare(PrepareConfig(store=tmp_path / "other", train=[tmp_path / "other.jsonl"], vocabulary_size=263))
    shutil.copytree(store.directory / "drafts", other.directory / "drafts")
    with pytest.raises(DocmtError, match=r"other/drafts are of another store .*run `docmt draft` again"):
        other.drafts  # noqa: B018


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_document_is_in_one_part(count):
    documents = np.arange(20)
    parts = [Part.parse(f"{number}/{count}", "leave_out").has(documents) for number in range(1, count + 1)]
    assert np.sum(parts, axis=0).tolist() == [1] * 20
    sizes = [int(part.sum()) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "text", ["2", "0/5", "6/5", "1/1", "1/1001", "-1/5", "1/ 5", "a/b", "1/5/2", "٣/٤", "1" * 5000]
)
def test_what_is_no_part(text):
    with pytest.raises(DocmtError, match=r"leave_out is .*: give the number of a part and how many there are"):
        Part.parse(text, "leave_out")
