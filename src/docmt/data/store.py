"""Prepared corpora on disk: token ids in memory-mapped arrays, with the tokenizer that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, file_checksum, parse_json, read_bytes
from docmt.data.statistics import STATISTICS_FILE, CorpusStatistics, StatisticsError
from docmt.text import Side, Tokenizer, load_tokenizer
from docmt.text.tokenizer import SIDES

TOKENIZER_FOLDER = "tokenizer"
DOCUMENTS_FILE = "documents.json"

Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class SentenceTokens:
    """Word ids of S sentences of one side, end to end: sentence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[np.unsignedinteger | np.signedinteger]
    offsets: NDArray[np.int64]
    """[S + 1]"""

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sequence[int]]]) -> SentenceTokens:
        """The sentences of documents of word ids, in order."""
        sentences = [sentence for document in documents for sentence in document]
        tokens = np.array([word for sentence in sentences for word in sentence], dtype=np.int64)
        return cls(tokens, np.cumsum([0, *map(len, sentences)]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[S] words of each sentence."""
        return np.diff(self.offsets)

    def part(self, first: int, last: int) -> SentenceTokens:
        """The sentences first .. last - 1 alone."""
        offsets = self.offsets[first : last + 1]
        return SentenceTokens(self.tokens[offsets[0] : offsets[-1]], offsets - offsets[0])

    def documents(self, document_offsets: Sequence[int] | NDArray[np.int64]) -> list[list[list[int]]]:
        """The inverse of `of`; document_offsets [D + 1]: the first sentence of each document."""
        sentences = [own.tolist() for own in np.split(self.tokens, self.offsets[1:-1])]
        return [sentences[first:last] for first, last in pairwise(np.asarray(document_offsets).tolist())]


class ParallelStore:
    """The D documents, S sentence pairs and tokens of one split, read from disk as they are needed.

    `source`, `target`: word ids without marks; `document_offsets` [D + 1]: the first sentence of each document;
    `document_ids` [D]; `drafts`: first translations of the source, if there are any.
    """

    def __init__(self, directory: Path, sums: Mapping[str, str] | None = None) -> None:
        """sums: checksums of the files, by name, as far as they are known.

        Raises DocmtError, naming the file, if one is missing, truncated, does not fit, or is not what its sum says.
        """
        self.directory = directory
        self.sides = SIDES
        """which side of the files is the source, and which the target"""
        self.source = _load_column(directory, "source")
        sentences = len(self.source.offsets) - 1
        self.target = _load_column(directory, "target", sentences)
        sums = sums or {}
        drafts = ("draft_tokens.npy", "draft_offsets.npy")
        has_drafts = any(name in sums or (directory / name).exists() for name in drafts)
        self.drafts = _load_column(directory, "draft", sentences) if has_drafts else None
        self.document_offsets: Offsets = _load_offsets(directory / "document_offsets.npy", sentences)
        self.document_ids: list[str] = _load_ids(directory / DOCUMENTS_FILE)
        if len(self.document_ids) != len(self.document_offsets) - 1:
            raise _damaged(directory / DOCUMENTS_FILE, "it does not have an id for every document")
        # Last, as what is wrong otherwise says more. Always, as 100 MB take 20 ms and are then in memory for training.
        for path in directory.iterdir():
            if path.name in sums and file_checksum(path) != sums[path.name]:
                raise _damaged(path, f"it is not what its checksum in {STATISTICS_FILE} says")

    def reversed(self) -> Self:
        """The same split with source and target in each other's place."""
        other = copy(self)
        other.sides = self.sides[::-1]
        other.source, other.target = self.target, self.source
        other.drafts = None
        return other

    def documents(self, side: Side) -> list[list[list[int]]]:
        """The word ids of every sentence of every document, of one side."""
        return (self.source if side == "source" else self.target).documents(self.document_offsets)


class PreparedStore:
    """A directory that `prepare` wrote: `tokenizer/`, one folder for each split, `statistics.json`."""

    def __init__(self, directory: Path) -> None:
        """See `open`."""
        self.directory = directory
        path = directory / STATISTICS_FILE
        try:
            check_regular(path)
            self.statistics = CorpusStatistics.from_json(path.read_bytes())
        except OSError as error:
            raise DocmtError(
                f"{directory} is not a prepared store ({STATISTICS_FILE}: {error.strerror or error}); "
                "run `docmt prepare` to make one, or give another directory"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(path, str(error) if isinstance(error, StatisticsError) else "it cannot be read") from error
        self.tokenizer: Tokenizer = load_tokenizer(directory / TOKENIZER_FOLDER)
        if self.tokenizer.vocabulary_size != self.statistics.vocabulary_size:
            raise _damaged(directory / TOKENIZER_FOLDER, "it is not the tokenizer that this store was made with")
        splits = self.statistics.splits
        self._splits = {name: ParallelStore(directory / name, split.crc32) for name, split in splits.items()}

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Opens a store and checks every file of it. Raises DocmtError if one is missing or damaged."""
        return cls(Path(directory))

    def __repr__(self) -> str:
        sizes = [f"{name} {len(self.split(name).document_ids)} documents" for name in self.splits]
        return f"<PreparedStore {str(self.directory)!r}: {', '.join(sizes)}>"

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits it has: "train", "dev" and perhaps "test"."""
        return tuple(self.statistics.splits)

    def split(self, name: str) -> ParallelStore:
        """One split. Raises DocmtError if the store has none of that name."""
        if name not in self._splits:
            raise DocmtError(
                f"the store {self.directory} has no split {name!r}, only {', '.join(self.splits)}; "
                f"run `docmt prepare` again with --{name}"
            )
        return self._splits[name]

    def reversed(self) -> Self:
        """The same corpus with source and target in each other's place.

        Raises DocmtError where the tokenizer treats them differently, so that no text of one can be the other.
        """
        if self.tokenizer.languages is not None or not self.tokenizer.shares_vocabulary:
            what = "a vocabulary" if self.tokenizer.languages is None else "rules"
            raise DocmtError(
                f"the store {self.directory} cannot be reversed, as its {self.tokenizer.kind} tokenizer has {what} for "
                "each side of its own: run `docmt prepare` with source and target exchanged"
            )
        other = copy(self)
        other.statistics = self.statistics.reversed()
        other._splits = {name: self.split(name).reversed() for name in self.splits}
        return other


class StoreWriter:
    """Writes one split document by document; nothing but ids is kept in memory.

    To be used within `docmt.core.files.atomic_directory`: what it leaves is a split only after the block ended well.
    """

    def __init__(self, directory: Path, vocabulary_size: int, drafts: bool = False) -> None:
        """drafts: whether each sentence has one."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.has_drafts = directory, drafts
        self.documents = self.sentences = 0  # so far
        # Two bytes for a token where the ids allow it: reading is then half the work.
        kind = "<u2" if vocabulary_size <= 1 << 16 else "<i4"
        columns = (*SIDES, "draft") if drafts else SIDES
        self._tokens = [_NumberFile(directory / f"{name}_tokens.npy", kind) for name in columns]
        self._offsets = [_NumberFile(directory / f"{name}_offsets.npy", "<i8", [0]) for name in columns]
        self._borders = _NumberFile(directory / "document_offsets.npy", "<i8", [0])
        self._ids: list[str] = []

    def add(
        self,
        id: str,
        source: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        drafts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Appends a document; sentence i of `source` belongs to sentence i of `target` and of `drafts`.

        Raises ValueError for sides of unequal length or a document without sentences.
        """
        columns = (source, target) if drafts is None else (source, target, drafts)
        if len({len(column) for column in columns}) > 1 or not source:
            raise ValueError(f"document {id}: {len(source)} source and {len(target)} target sentences")
        for tokens, offsets, sentences in zip(self._tokens, self._offsets, columns, strict=True):
            for sentence in sentences:
                tokens.append(sentence)
                offsets.append([tokens.length])
        self.documents += 1
        self.sentences += len(source)
        self._borders.append([self.sentences])
        self._ids.append(id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (*self._tokens, *self._offsets, self._borders):
            file.close()
        if error is None:
            (self.directory / DOCUMENTS_FILE).write_text(json.dumps(self._ids) + "\n", encoding="utf-8")


class _NumberFile:
    """An .npy file of one dimension, whose length becomes known at the end.

    The error of `np.save` for a full disk does not say that it is full.
    """

    BUFFERED = 1 << 20  # numbers

    def __init__(self, path: Path, kind: str, numbers: Sequence[int] = ()) -> None:
        """kind: of the numbers, as numpy calls it; numbers: the first ones."""
        self.length = 0
        self._dtype = np.dtype(kind)
        self._buffer: list[int] = []
        self._file: BinaryIO = path.open("wb")
        self._write_header()
        self.append(numbers)

    def append(self, numbers: Sequence[int]) -> None:
        self._buffer += numbers
        self.length += len(numbers)
        if len(self._buffer) >= self.BUFFERED:
            self._flush()

    def close(self) -> None:
        with self._file:
            self._flush()
            self._file.seek(0)
            self._write_header()

    def _flush(self) -> None:
        self._file.write(np.array(self._buffer, dtype=self._dtype).tobytes())
        self._buffer.clear()

    def _write_header(self) -> None:
        """Write the header, which numpy pads: its length does not depend on that of the array."""
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _load_ids(path: Path) -> list[str]:
    try:
        ids = parse_json(read_bytes(path, regular=True))
    except (DocmtError, ValueError) as error:
        raise _damaged(path, "it cannot be read, is truncated or not JSON") from error
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise _damaged(path, "it is not a list of document ids")
    return ids


def _load_column(directory: Path, name: str, sentences: int | None = None) -> SentenceTokens:
    """Return the words of a side, or of the drafts, of as many sentences as there are."""
    tokens = _load_array(directory / f"{name}_tokens.npy", "ui")
    path = directory / f"{name}_offsets.npy"
    offsets = _load_offsets(path, len(tokens), shortest=0 if name == "draft" else 1)
    if sentences not in (None, len(offsets) - 1):
        raise _damaged(path, "its sentences are not as many as the source's")
    return SentenceTokens(tokens, offsets)


def _load_offsets(path: Path, end: int, shortest: int = 1) -> Offsets:
    """Return what rises from 0 to `end`, by `shortest` or more at each step."""
    offsets: Offsets = _load_array(path, "i")
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != end or bool((np.diff(offsets) < shortest).any()):
        raise _damaged(path, "it does not fit the other files beside it")
    return offsets


def _load_array(path: Path, kinds: str) -> NDArray[Any]:
    """Return the array of one dimension in a file, mapped into memory; kinds: of its numbers, as numpy calls them.

    Raises DocmtError if it is missing or damaged.
    """
    check_regular(path)
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        # numpy reads the header as Python: a flipped bit raises TokenError, SyntaxError and whatever else it spells.
        raise _damaged(path, getattr(error, "strerror", None) or "it is truncated or no array") from error
    if not isinstance(loaded, np.ndarray) or loaded.ndim != 1 or loaded.dtype.kind not in kinds:
        raise _damaged(path, "it does not hold a list of whole numbers")
    return loaded


def _damaged(path: Path, reason: str) -> DocmtError:
    return DocmtError(f"{path} is missing or damaged ({reason}); run `docmt prepare` again to write the store anew")
