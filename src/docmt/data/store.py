"""Prepared corpora on disk: token ids in memory-mapped arrays, with the tokenizer that made them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, matches, parse_json
from docmt.data.arrays import Offsets, Tokens, damaged, load_array, save_array, token_dtype
from docmt.data.statistics import STATISTICS_FILE, CorpusStatistics, StatisticsError
from docmt.text import Side, Tokenizer, load_tokenizer

SIDES = ("source", "target")
TOKENIZER_FOLDER = "tokenizer"
DOCUMENTS_FILE = "documents.json"
SPLIT_FILES = (
    "source_tokens.npy",
    "target_tokens.npy",
    "source_offsets.npy",
    "target_offsets.npy",
    "document_offsets.npy",
    DOCUMENTS_FILE,
)
"""What a split consists of."""
DRAFT_FILES = ("draft_tokens.npy", "draft_offsets.npy")
"""What it has besides, if it was prepared with drafts."""

AGAIN = "run `docmt prepare` again to write the store anew"
"""What mends a store."""


class ParallelStore:
    """The D documents, S sentence pairs and tokens of one split, read from disk as they are needed.

    `source_tokens`, `target_tokens`: word ids without marks, all sentences end to end; `source_offsets`,
    `target_offsets` [S + 1]: where each sentence begins among them; `document_offsets` [D + 1]: the first sentence of
    each document; `document_ids` [D]. `drafts`: tokens and offsets [S + 1] of first translations, if there are any.
    """

    def __init__(self, directory: Path, sums: Mapping[str, str] | None = None) -> None:
        """See `open`."""
        self.directory = directory
        self.sides: tuple[Side, Side] = ("source", "target")
        """which side of the files is the source, and which the target"""
        self.source_tokens: Tokens = load_array(directory / "source_tokens.npy", "ui", AGAIN)
        self.target_tokens: Tokens = load_array(directory / "target_tokens.npy", "ui", AGAIN)
        self.source_offsets: Offsets = load_array(directory / "source_offsets.npy", "i", AGAIN)
        self.target_offsets: Offsets = load_array(directory / "target_offsets.npy", "i", AGAIN)
        self.document_offsets: Offsets = load_array(directory / "document_offsets.npy", "i", AGAIN)
        self.document_ids: list[str] = _load_ids(directory / DOCUMENTS_FILE)
        sentences = len(self.source_offsets) - 1
        _check_offsets(directory / "source_offsets.npy", self.source_offsets, len(self.source_tokens))
        _check_offsets(directory / "target_offsets.npy", self.target_offsets, len(self.target_tokens))
        _check_offsets(directory / "document_offsets.npy", self.document_offsets, sentences)
        self.drafts = _load_drafts(directory, sentences) if _has_drafts(directory, sums or {}) else None
        if len(self.target_offsets) != sentences + 1:
            raise _damaged(directory / "target_offsets.npy", "its sentences are not as many as the source's")
        if len(self.document_ids) != len(self.document_offsets) - 1:
            raise _damaged(directory / DOCUMENTS_FILE, "it does not have an id for every document")
        # Last, as what is wrong otherwise says more. Always, as 100 MB take 20 ms and are then in memory for training.
        for name, wanted in (sums or {}).items():
            if name in (*SPLIT_FILES, *DRAFT_FILES) and not matches(directory / name, wanted):
                raise _damaged(directory / name, f"it is not what its checksum in {STATISTICS_FILE} says")

    @classmethod
    def open(cls, directory: Path, sums: Mapping[str, str] | None = None) -> Self:
        """Opens one split; `sums`: checksums of its files, by name, as far as they are known.

        Raises DocmtError, naming the file, if one is missing, truncated, does not fit, or is not what its sum says.
        """
        return cls(directory, sums)

    def reversed(self) -> Self:
        """The same split with source and target in each other's place."""
        other = copy(self)
        other.sides = (self.sides[1], self.sides[0])
        other.source_tokens, other.target_tokens = self.target_tokens, self.source_tokens
        other.source_offsets, other.target_offsets = self.target_offsets, self.source_offsets
        other.drafts = None
        return other

    @property
    def source_lengths(self) -> Offsets:
        """[S] words of each source sentence, without marks."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> Offsets:
        """[S] words of each target sentence, without marks."""
        return np.diff(self.target_offsets)

    def source_sentence(self, sentence: int) -> Tokens:
        """Word ids of one source sentence."""
        return self.source_tokens[self.source_offsets[sentence] : self.source_offsets[sentence + 1]]

    def target_sentence(self, sentence: int) -> Tokens:
        """Word ids of one target sentence."""
        return self.target_tokens[self.target_offsets[sentence] : self.target_offsets[sentence + 1]]

    def documents(self, side: Side) -> list[list[list[int]]]:
        """The word ids of every sentence of every document, of one side."""
        sentence = self.source_sentence if side == "source" else self.target_sentence
        borders = pairwise(self.document_offsets.tolist())
        return [[sentence(number).tolist() for number in range(first, last)] for first, last in borders]


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
        self._splits: dict[str, ParallelStore] = {}
        for name in self.splits:
            self.split(name)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Opens a store and checks every file of it. Raises DocmtError if one is missing or damaged."""
        return cls(directory)

    def __repr__(self) -> str:
        sizes = [f"{name} {len(self.split(name).document_ids)} documents" for name in self.splits]
        return f"<PreparedStore {str(self.directory)!r}: {', '.join(sizes)}>"

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits it has: "train", "dev" and perhaps "test"."""
        return tuple(self.statistics.splits)

    def split(self, name: str) -> ParallelStore:
        """One split. Raises DocmtError if the store has none of that name."""
        if name not in self.statistics.splits:
            raise DocmtError(
                f"the store {self.directory} has no split {name!r}, only {', '.join(self.splits)}; "
                f"run `docmt prepare` again with --{name}"
            )
        if name not in self._splits:
            self._splits[name] = ParallelStore.open(self.directory / name, self.statistics.splits[name].crc32)
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
    """Writes one split document by document; nothing but offsets and ids is kept in memory.

    To be used within `docmt.core.files.atomic_directory`: what it leaves is a split only after the block ended well.
    """

    def __init__(self, directory: Path, vocabulary_size: int, drafts: bool = False) -> None:
        """drafts: whether each sentence has one."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.has_drafts = directory, drafts
        self._dtype = token_dtype(vocabulary_size)
        self._columns = (*SIDES, "draft") if drafts else SIDES
        self._files = [_TokenFile(directory / f"{name}_tokens.npy", self._dtype) for name in self._columns]
        self._offsets = [array("q", [0]) for _ in self._columns]
        self._documents = array("q", [0])
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
        for file, offsets, sentences in zip(self._files, self._offsets, columns, strict=True):
            for sentence in sentences:
                file.append(sentence)
                offsets.append(file.length)
        self._documents.append(len(self._offsets[0]) - 1)
        self._ids.append(id)

    @property
    def documents(self) -> int:
        """How many documents there are so far."""
        return len(self._ids)

    @property
    def sentences(self) -> int:
        """How many pairs of sentences there are so far."""
        return self._documents[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
        if error is None:
            for name, offsets in zip(self._columns, self._offsets, strict=True):
                save_array(self.directory / f"{name}_offsets.npy", np.array(offsets, dtype="<i8"))
            save_array(self.directory / "document_offsets.npy", np.array(self._documents, dtype="<i8"))
            (self.directory / DOCUMENTS_FILE).write_text(json.dumps(self._ids) + "\n", encoding="utf-8")


class _TokenFile:
    """An .npy file of one dimension, whose length becomes known at the end."""

    BUFFER_TOKENS = 1 << 20

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.length = 0
        self._dtype = dtype
        self._buffer: list[int] = []
        self._file: BinaryIO = path.open("wb")
        self._header_length = self._write_header()

    def append(self, tokens: Sequence[int]) -> None:
        self._buffer += tokens
        self.length += len(tokens)
        if len(self._buffer) >= self.BUFFER_TOKENS:
            self._flush()

    def close(self) -> None:
        with self._file:
            self._flush()
            self._file.seek(0)
            if self._write_header() != self._header_length:
                raise AssertionError("numpy pads headers so that their length does not depend on the shape")

    def _flush(self) -> None:
        self._file.write(np.array(self._buffer, dtype=self._dtype).tobytes())
        self._buffer.clear()

    def _write_header(self) -> int:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


def _load_ids(path: Path) -> list[str]:
    try:
        check_regular(path)
        ids = parse_json(path.read_bytes())
    except OSError as error:
        raise _damaged(path, error.strerror or "it cannot be read") from error
    except ValueError as error:
        raise _damaged(path, "it is truncated or not JSON") from error
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise _damaged(path, "it is not a list of document ids")
    return ids


def _has_drafts(directory: Path, sums: Mapping[str, str]) -> bool:
    return any(name in sums or (directory / name).exists() for name in DRAFT_FILES)


def _load_drafts(directory: Path, sentences: int) -> tuple[Tokens, Offsets]:
    """The drafts of a split. Raises DocmtError where they are damaged, or too few or too many."""
    tokens = load_array(directory / DRAFT_FILES[0], "ui", AGAIN)
    offsets = load_array(directory / DRAFT_FILES[1], "i", AGAIN)
    if len(offsets) != sentences + 1 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
        raise _damaged(directory / DRAFT_FILES[1], "it does not fit the other files beside it")
    return tokens, offsets


def _check_offsets(path: Path, offsets: Offsets, end: int) -> None:
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != end or bool((np.diff(offsets) <= 0).any()):
        raise _damaged(path, "it does not fit the other files beside it")


def _damaged(path: Path, reason: str) -> DocmtError:
    return damaged(path, reason, AGAIN)
