"""Writing and opening the arrays of one split."""

from pathlib import Path

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.core.files import file_checksums
from docmt.data import ParallelStore, PreparedStore, StoreWriter

DOCUMENTS = [("ep-1", [[4, 5, 6], [7]], [[8], [9, 10]]), ("Grüße \n 2", [[11, 12]], [[13, 14, 15]])]
FILES = [
    "source_tokens.npy",
    "target_tokens.npy",
    "source_offsets.npy",
    "target_offsets.npy",
    "document_offsets.npy",
    "documents.json",
]


def write(directory: Path, vocabulary_size: int = 100) -> Path:
    with StoreWriter(directory, vocabulary_size) as writer:
        for document in DOCUMENTS:
            writer.add(*document)
    return directory


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store = ParallelStore(write(tmp_path / "train"))
    assert store.source.tokens.tolist() == [4, 5, 6, 7, 11, 12]
    assert store.target.tokens.tolist() == [8, 9, 10, 13, 14, 15]
    assert store.source.offsets.tolist() == [0, 3, 4, 6]
    assert store.target.offsets.tolist() == [0, 1, 3, 6]
    assert store.document_offsets.tolist() == [0, 2, 3]
    assert store.document_ids == ["ep-1", "Grüße \n 2"]
    assert store.source.lengths.tolist() == [3, 1, 2] and store.target.lengths.tolist() == [1, 2, 3]
    assert store.documents("source")[0][0] == [4, 5, 6] and store.documents("target")[0][1] == [9, 10]
    assert isinstance(store.source.tokens, np.memmap)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == sorted(FILES)


@pytest.mark.parametrize(("size", "dtype"), [(100, "uint16"), (65_536, "uint16"), (65_537, "int32")])
def test_two_bytes_a_token_where_they_suffice(size: int, dtype: str, tmp_path: Path) -> None:
    with StoreWriter(tmp_path, size) as writer:
        writer.add("", [[size - 3]], [[4]])
    store = ParallelStore(tmp_path)
    assert store.source.tokens.dtype == store.target.tokens.dtype == dtype
    assert store.source.tokens.tolist() == [size - 3]


def test_more_than_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docmt.data.store._NpyWriter.BUFFERED", 7)
    with StoreWriter(tmp_path, 50_000) as writer:
        for number in range(10_000):
            writer.add(str(number), [[number + 4] * 3], [[number + 5] * 2])
    store = ParallelStore(tmp_path)
    assert store.source.tokens.tolist() == [number + 4 for number in range(10_000) for _ in range(3)]
    assert store.documents("target")[9_999][0] == [10_004, 10_004]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "other"])
def test_missing_and_damaged_files_are_named(file: str, damage: str, tmp_path: Path) -> None:
    path = write(tmp_path) / file
    checksums = file_checksums(tmp_path, FILES)
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        path.write_bytes(path.with_name("documents.json" if path.suffix == ".npy" else FILES[0]).read_bytes())
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else -1])
    with pytest.raises(DocmtError, match=rf"{file} is missing or damaged .*run `docmt prepare` again"):
        ParallelStore(tmp_path, checksums)


def test_ids_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    """Those of a million documents take 100 MB. The checksum tells whether they are as they were written."""
    checksums = file_checksums(write(tmp_path), FILES)
    split = ParallelStore(tmp_path, checksums)
    assert split.num_documents == 2 and "document_ids" not in vars(split)
    assert split.reversed().document_ids == split.document_ids == ["ep-1", "Grüße \n 2"]
    (tmp_path / "documents.json").write_text('["one", "two"]')
    with pytest.raises(DocmtError, match=r"documents\.json .*its checksum differs"):
        ParallelStore(tmp_path, checksums)


def test_every_file_needs_its_checksum(tmp_path: Path) -> None:
    checksums = file_checksums(write(tmp_path), FILES)
    for file in FILES:
        with pytest.raises(DocmtError, match=rf"{file} is missing or damaged"):
            ParallelStore(tmp_path, {name: checksum for name, checksum in checksums.items() if name != file})


def test_sides_that_do_not_match_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, 100) as writer:
        with pytest.raises(ValueError, match="1 source and 2 target"):
            writer.add("x", [[4]], [[4], [5]])
        with pytest.raises(ValueError, match="0 source"):
            writer.add("x", [], [])
        writer.add("y", [[4]], [[5]])


def test_a_store_is_opened_by_text_as_by_a_path(tmp_path):
    with pytest.raises(DocmtError, match="is not a prepared store"):
        PreparedStore.open(str(tmp_path))
