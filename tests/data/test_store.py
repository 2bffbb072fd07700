"""Writing and opening the arrays of one split."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.core.files import file_checksums
from docmt.data import ParallelStore, PreparedStore, StoreWriter
from docmt.data import store as store_module

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
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated"])
def test_missing_and_truncated_files_are_named(file: str, damage: str, tmp_path: Path) -> None:
    path = write(tmp_path) / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else -1])
        if file == "documents.json" and damage == "truncated":
            path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DocmtError, match=rf"{file} is missing or damaged .*run `docmt prepare` again"):
        ParallelStore(tmp_path)


def test_ids_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a million documents take 100 MB. The checksum tells whether they are as they were written."""
    checksums = file_checksums(write(tmp_path), FILES)
    read: list[Path] = []

    def load(path: Path, documents: int) -> list[str]:
        read.append(path)
        return load_ids(path, documents)

    load_ids = store_module._load_ids
    monkeypatch.setattr(store_module, "_load_ids", load)
    split = ParallelStore(tmp_path, checksums)
    assert split.num_documents == 2 and not read
    assert split.reversed().document_ids == split.document_ids == ["ep-1", "Grüße \n 2"] and len(read) == 2
    assert ParallelStore(tmp_path).num_documents == 2 and len(read) == 3  # of a version that wrote no checksums
    (tmp_path / "documents.json").write_text('["one"]')
    for known in (checksums, {}):
        with pytest.raises(DocmtError, match=r"documents\.json .*id for every document"):
            ParallelStore(tmp_path, known)
    (tmp_path / "documents.json").write_text('["one", "two"]')
    with pytest.raises(DocmtError, match=r"documents\.json .*its checksum differs"):
        ParallelStore(tmp_path, checksums)


def test_offsets_are_checked_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked some at a time, and a step between two parts is a step, too."""
    with StoreWriter(tmp_path, 100) as writer:
        writer.add("a", [[4]] * 9, [[5, 6]] * 9)
    offsets = np.load(tmp_path / "target_offsets.npy")
    for at_once in (2, 3, 4, 100):
        monkeypatch.setattr(store_module, "_CHECKED_AT_ONCE", at_once)
        for number in range(1, 9):
            damaged = offsets.copy()
            damaged[number] = damaged[number + 1]
            np.save(tmp_path / "target_offsets.npy", damaged)
            with pytest.raises(DocmtError, match=r"target_offsets\.npy .*does not match"):
                ParallelStore(tmp_path)
        np.save(tmp_path / "target_offsets.npy", offsets)
        assert len(ParallelStore(tmp_path).target.lengths) == 9


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path)
    for file in ("source_tokens.npy", "target_offsets.npy", "document_offsets.npy"):
        data = (tmp_path / file).read_bytes()
        np.save(tmp_path / file, np.array([0, 2, 7], dtype=np.int64))
        with pytest.raises(DocmtError, match="does not match"):
            ParallelStore(tmp_path)
        (tmp_path / file).write_bytes(data)
    for other in (np.array([0.5]), np.zeros((2, 2), dtype=np.int64), np.array(["a"])):
        np.save(tmp_path / "source_tokens.npy", other)
        with pytest.raises(DocmtError, match="whole numbers"):
            ParallelStore(tmp_path)
    write(tmp_path)
    (tmp_path / "documents.json").write_text('["one"]')
    with pytest.raises(DocmtError, match=r"documents\.json .*id for every document"):
        ParallelStore(tmp_path)
    (tmp_path / "documents.json").write_text("{}")
    with pytest.raises(DocmtError, match=r"documents\.json .*not a list"):
        ParallelStore(tmp_path)


def test_sides_that_do_not_match_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, 100) as writer:
        with pytest.raises(ValueError, match="1 source and 2 target"):
            writer.add("x", [[4]], [[4], [5]])
        with pytest.raises(ValueError, match="0 source"):
            writer.add("x", [], [])
        writer.add("y", [[4]], [[5]])


def test_a_flipped_bit_in_a_header_is_damage(tmp_path: Path) -> None:
    """numpy reads the header as Python, which fails in many ways, or not at all where the bit does not count."""
    path = write(tmp_path) / "source_tokens.npy"
    data = path.read_bytes()
    for bit in range(0, 128 * 8, 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with contextlib.suppress(DocmtError):
            ParallelStore(tmp_path)


def test_ids_that_are_no_text(tmp_path: Path) -> None:
    write(tmp_path)
    for content in ("[1, 2]", "[" * 100_000):
        (tmp_path / "documents.json").write_text(content)
        with pytest.raises(DocmtError, match=r"documents\.json is missing or damaged"):
            ParallelStore(tmp_path)


def test_a_store_is_opened_by_text_as_by_a_path(tmp_path):
    with pytest.raises(DocmtError, match="is not a prepared store"):
        PreparedStore.open(str(tmp_path))
