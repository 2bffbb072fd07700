"""Prepared corpora on disk: token ids in memory-mapped arrays, with their tokenizer and statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError, printable
from docmt.core.files import check_regular, file_checksum, parse_json, read_bytes
from docmt.core.plain_text import align_columns
from docmt.text import Side, Tokenizer, load_tokenizer
from docmt.text.tokenizer import SIDES

STATISTICS_FILE = "statistics.json"
TOKENIZER_FOLDER = "tokenizer"
DOCUMENTS_FILE = "documents.json"

Offsets = NDArray[np.int64]


class StatisticsError(ValueError):
    """Error for a value of the wrong type in statistics that are read."""


@dataclass(frozen=True)
class CorpusCounts:
    """Number of documents and sentences of a split from one of its corpora."""

    documents: int
    sentences: int


@dataclass(frozen=True)
class SplitStatistics:
    """Counts of one split. Costs are tokens as instances count them: the longer side with boundary tokens."""

    documents: int
    sentences: int
    """Sentence pairs."""
    instances: int
    source_tokens: int
    """Subwords of the source, without boundary tokens."""
    target_tokens: int
    cost: int
    """Summed cost of all sentences."""
    longest_cost: int
    """Cost of the longest sentence pair."""
    longest_document: str
    """Id of the document with the longest pair; `longest_sentence` counts in it from 1."""
    longest_sentence: int
    over_limit: int
    """Sentences at or over the limit of an instance. Each is an instance of its own; nothing is truncated."""
    crc32: dict[str, str]
    """Checksum of every file of the split."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Reasons for skipped pairs, with the number of cases."""
    skipped_examples: dict[str, list[str]] = field(default_factory=dict)
    """First few locations for each reason."""
    corpora: dict[str, CorpusCounts] = field(default_factory=dict)
    """Counts by corpus, if there are several."""

    def reversed(self) -> SplitStatistics:
        """Return the statistics with source and target exchanged."""
        return replace(self, source_tokens=self.target_tokens, target_tokens=self.source_tokens)


@dataclass(frozen=True)
class CorpusStatistics:
    """Contents and settings of a prepared store."""

    source_language: str
    target_language: str
    tokenizer: str
    """Kind of the tokenizer."""
    vocabulary_size: int
    instance_tokens: int
    """Token limit of the counted instances."""
    splits: dict[str, SplitStatistics]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language; empty if unknown."""
        return self.source_language, self.target_language

    def reversed(self) -> CorpusStatistics:
        """Return the statistics with source and target exchanged."""
        return replace(
            self,
            source_language=self.target_language,
            target_language=self.source_language,
            splits={name: split.reversed() for name, split in self.splits.items()},
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> CorpusStatistics:
        """Parse the output of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        statistics: CorpusStatistics = _parse(cls, parse_json(data), "it")
        return statistics


def _parse(kind: Any, value: Any, name: str) -> Any:
    """Return a JSON value as a dataclass, dict, list, str or int. Raises StatisticsError for another type."""
    expected = dict if is_dataclass(kind) else get_origin(kind) or kind
    if type(value) is not expected:
        raise StatisticsError(f"{name} is {value!r}"[:80])
    if is_dataclass(kind):
        types = get_type_hints(kind)
        values = {key: _parse(types[key], item, key) for key, item in value.items()}
        return cast(type[Any], kind)(**values)
    if expected is dict:
        return {key: _parse(get_args(kind)[1], item, name) for key, item in value.items()}
    return [_parse(get_args(kind)[0], item, name) for item in value] if expected is list else value


def format_statistics(statistics: CorpusStatistics) -> str:
    """Return the statistics as text: a table with a column for each split, then skipped pairs."""
    splits = statistics.splits
    values = splits.values()
    counts = ("documents", "sentences", "instances", "source_tokens", "target_tokens")
    rows = [
        ["", *splits],
        *([name.replace("_", " "), *(f"{getattr(split, name):,}" for split in values)] for name in counts),
        ["sentences per instance", *(f"{split.sentences / split.instances:.1f}" for split in values)],
        ["tokens per instance", *(f"{split.cost / split.instances:.1f}" for split in values)],
        ["longest sentence (tokens)", *(f"{split.longest_cost:,}" for split in values)],
        [f"sentences of {statistics.instance_tokens} tokens or more", *(f"{split.over_limit:,}" for split in values)],
    ]
    languages = f"{statistics.source_language or 'source'} to {statistics.target_language or 'target'}"
    head = f"{languages}, {statistics.tokenizer} vocabulary of {statistics.vocabulary_size:,}"
    lines = [head, "", *align_columns(rows)]
    lines += ["", "Tokens per instance and of a sentence: the longer side, with <s> and </s>. Nothing is cut."]
    for name, split in splits.items():
        for corpus, size in split.corpora.items():
            lines.append(f"{name}: {size.documents:,} documents, {size.sentences:,} sentences from {corpus}")
        lines.append(f"{name}: longest is sentence {split.longest_sentence} of document {split.longest_document}")
        for reason, count in split.skipped.items():
            locations = split.skipped_examples.get(reason, [])
            ellipsis = ", ..." if count > len(locations) else ""
            lines.append(f"{name}: skipped {count:,} x {reason} ({'; '.join(locations)}{ellipsis})")
    return "\n".join(map(printable, lines))


@dataclass(frozen=True)
class SentenceTokens:
    """Word ids of S sentences of one side, end to end: sentence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[np.unsignedinteger | np.signedinteger]
    offsets: NDArray[np.int64]
    """[S + 1]"""

    @classmethod
    def from_documents(cls, documents: Sequence[Sequence[Sequence[int]]]) -> SentenceTokens:
        """Return the sentences of documents of word ids, in order."""
        sentences = [sentence for document in documents for sentence in document]
        tokens = np.array([word for sentence in sentences for word in sentence], dtype=np.int64)
        return cls(tokens, np.cumsum([0, *map(len, sentences)]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[S] words of each sentence."""
        return np.diff(self.offsets)

    def slice(self, first: int, last: int) -> SentenceTokens:
        """Return the sentences first .. last - 1."""
        offsets = self.offsets[first : last + 1]
        return SentenceTokens(self.tokens[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_documents(self, document_offsets: Sequence[int] | NDArray[np.int64]) -> list[list[list[int]]]:
        """Return documents of word ids; document_offsets [D + 1] is the first sentence of each document."""
        sentences = [tokens.tolist() for tokens in np.split(self.tokens, self.offsets[1:-1])]
        return [sentences[first:last] for first, last in pairwise(np.asarray(document_offsets).tolist())]


class ParallelStore:
    """One split with D documents and S sentence pairs, memory-mapped from disk.

    `source`, `target`: word ids without boundary tokens; `document_offsets` [D + 1]: first sentence of each document;
    `drafts`: first translations of the source, or None. Nothing of them is in memory that other processes do not share.
    """

    def __init__(self, directory: Path, checksums: Mapping[str, str] | None = None) -> None:
        """checksums: of all files, by name; None: the files were just written.

        Raises DocmtError with the name of a file that is missing or has another checksum.
        """
        self.directory, self._checksums = directory, checksums
        self.source, self.target = self._load_column("source"), self._load_column("target")
        has_drafts = (directory / "draft_tokens.npy").exists() or "draft_tokens.npy" in (checksums or ())
        self.drafts = self._load_column("draft") if has_drafts else None
        self.document_offsets: Offsets = self._load_array("document_offsets.npy")
        self._check(DOCUMENTS_FILE)

    def _check(self, name: str) -> Path:
        """Return the path of a file. Raises DocmtError if it is missing or its checksum differs."""
        path = self.directory / name
        if self._checksums is not None:
            try:
                checksum = file_checksum(path)  # always, as 100 MB take 20 ms and are then in memory for training
            except DocmtError as error:
                raise _damage_error(path, "it cannot be read") from error
            if checksum != self._checksums.get(name):
                raise _damage_error(path, f"its checksum differs from that in {STATISTICS_FILE}")
        return path

    def _load_array(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.load(self._check(name), mmap_mode="r")
        return array

    def _load_column(self, name: str) -> SentenceTokens:
        """Return the words of a side or of the drafts."""
        return SentenceTokens(self._load_array(f"{name}_tokens.npy"), self._load_array(f"{name}_offsets.npy"))

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.document_offsets) - 1

    @cached_property
    def document_ids(self) -> list[str]:
        """Ids of the documents [D]. They are read when they are first asked for: a training needs none."""
        ids: list[str] = parse_json(read_bytes(self.directory / DOCUMENTS_FILE))
        return ids

    def reversed(self) -> Self:
        """Return the split with source and target exchanged."""
        other = copy(self)
        other.source, other.target = self.target, self.source
        other.drafts = None
        return other

    def documents(self, side: Side) -> list[list[list[int]]]:
        """Return the word ids of every sentence of every document, of one side."""
        return (self.source if side == "source" else self.target).to_documents(self.document_offsets)


class PreparedStore:
    """Directory that `prepare` wrote: `tokenizer/`, one folder for each split, `statistics.json`."""

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
            raise _damage_error(path, str(error) if isinstance(error, StatisticsError) else "unreadable") from error
        self.tokenizer: Tokenizer = load_tokenizer(directory / TOKENIZER_FOLDER)
        if self.tokenizer.vocabulary_size != self.statistics.vocabulary_size:
            raise _damage_error(directory / TOKENIZER_FOLDER, "the store was prepared with another tokenizer")
        splits = self.statistics.splits
        self._splits = {name: ParallelStore(directory / name, split.crc32) for name, split in splits.items()}

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Open a store and check all its files. Raises DocmtError if one is missing or damaged."""
        return cls(Path(directory))

    def __repr__(self) -> str:
        sizes = [f"{name} {self.split(name).num_documents} documents" for name in self.splits]
        return f"<PreparedStore {str(self.directory)!r}: {', '.join(sizes)}>"

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits: "train", "dev" and perhaps "test"."""
        return tuple(self.statistics.splits)

    def split(self, name: str) -> ParallelStore:
        """Return one split. Raises DocmtError if the store has none of that name."""
        if name not in self._splits:
            raise DocmtError(
                f"the store {self.directory} has no split {name!r}, only {', '.join(self.splits)}; "
                f"run `docmt prepare` again with --{name}"
            )
        return self._splits[name]

    def reversed(self) -> Self:
        """Return the corpus with source and target exchanged.

        Raises DocmtError if the tokenizer treats source and target differently.
        """
        if self.tokenizer.languages is not None or not self.tokenizer.shares_vocabulary:
            difference = "vocabularies" if self.tokenizer.languages is None else "rules"
            raise DocmtError(
                f"the store {self.directory} cannot be reversed: its {self.tokenizer.kind} tokenizer has separate "
                f"{difference} for source and target. Run `docmt prepare` with source and target exchanged"
            )
        other = copy(self)
        other.statistics = self.statistics.reversed()
        other._splits = {name: self.split(name).reversed() for name in self.splits}
        return other


class StoreWriter:
    """Writer of one split, document by document; only document ids stay in memory.

    For use within `docmt.core.files.atomic_directory`: the split is complete only after the block.
    """

    def __init__(self, directory: Path, vocabulary_size: int, drafts: bool = False) -> None:
        """drafts: True if each sentence has a draft."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.has_drafts = directory, drafts
        self.documents = self.sentences = 0  # so far
        # Two bytes a token if the ids allow it, which halves the reading.
        kind = "<u2" if vocabulary_size <= 1 << 16 else "<i4"
        columns = (*SIDES, "draft") if drafts else SIDES
        self._tokens = [_NpyWriter(directory / f"{name}_tokens.npy", kind) for name in columns]
        self._offsets = [_NpyWriter(directory / f"{name}_offsets.npy", "<i8", [0]) for name in columns]
        self._document_offsets = _NpyWriter(directory / "document_offsets.npy", "<i8", [0])
        self._ids: list[str] = []

    def add(
        self,
        id: str,
        source: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        drafts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Append a document; sentence i of `source` belongs to sentence i of `target` and of `drafts`.

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
        self._document_offsets.append([self.sentences])
        self._ids.append(id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in (*self._tokens, *self._offsets, self._document_offsets):
            file.close()
        if kind is None:
            (self.directory / DOCUMENTS_FILE).write_text(json.dumps(self._ids) + "\n", encoding="utf-8")


class _NpyWriter:
    """Writer of a one-dimensional .npy file whose length is known only at the end.

    Unlike `np.save`, it reports a full disk as such.
    """

    BUFFERED = 1 << 20  # numbers

    def __init__(self, path: Path, type_code: str, numbers: Sequence[int] = ()) -> None:
        """type_code: numpy type of the numbers. numbers: first ones to write."""
        self.length = 0
        self._dtype = np.dtype(type_code)
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
        """Write the header. numpy pads it, so its size does not depend on the length of the array."""
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _damage_error(path: Path, reason: str) -> DocmtError:
    return DocmtError(f"{path} is missing or damaged ({reason}); run `docmt prepare` again to write the store anew")
