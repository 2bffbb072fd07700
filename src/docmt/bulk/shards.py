"""Shards of a bulk job: of folders of files that `docmt translate` reads, and of rows with a document each."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, make_directory
from docmt.core.plain_text import ZSTD_SUFFIX, compress, write_bytes
from docmt.core.settings import quote
from docmt.decoding.file_translation import Align, FileConfig, SourceFile
from docmt.decoding.translation_results import TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.input_formats import LONE_SURROGATE, has_jsonl_name
from docmt.documents.published_corpora import Row, format_parquet, is_parquet, list_rows, read_parquet_schema, read_rows
from docmt.terms.memory import QUALITY

CountTokens = Callable[[Sequence[str]], list[int]]
"""Returns the number of tokens of each text."""
_BLOCK = 256  # items whose tokens are counted together
Item = TypeVar("Item")


@dataclass(frozen=True)
class ShardItem:
    """A row or a file, which is translated whole or fails whole."""

    name: str
    """for messages"""
    documents: list[Document]
    values: dict[str, Any] = field(default_factory=dict)
    """what the kind needs to write it, and what is told if it fails"""
    error: str = ""
    """why it cannot be read"""
    file: SourceFile | None = None
    """the file, if it is none of rows"""

    def failure(self, reason: str) -> dict[str, Any]:
        """Return the record of an item that failed."""
        return {**self.values, "location": self.name, "error": reason}


Versions = Sequence[Sequence[Translation]]
"""The translations of each document of an item, best first."""
Result = tuple[ShardItem, Versions]
Failure = tuple[ShardItem, str]
"""An item that failed, and why."""


def describe_error(error: Exception) -> str:
    """Return why an item failed; errors that are no DocmtErrors are named."""
    return str(error) if isinstance(error, DocmtError) else f"{type(error).__name__}: {error}"


class Part(NamedTuple):
    """A shard of a plan."""

    data: bytes
    documents: int
    tokens: int


Written = tuple[list[str], list[Failure]]
"""The files that are written of a shard, below the output folder, and the items that cannot be written."""


def group_by_tokens(
    items: Iterable[Item], texts: Callable[[Item], Sequence[str]], count: CountTokens, limit: int
) -> Iterator[tuple[list[Item], int]]:
    """Yield items in order, in groups that end when they have `limit` tokens or more, and the tokens of the group."""
    group: list[Item] = []
    tokens, iterator = 0, iter(items)
    while block := list(islice(iterator, _BLOCK)):
        block_texts = [texts(item) for item in block]
        counts = iter(count([text for each in block_texts for text in each]))
        for item, each in zip(block, block_texts, strict=True):
            group.append(item)
            tokens += sum(islice(counts, len(each)))
            if tokens >= limit:
                yield group, tokens
                group, tokens = [], 0
    if group:
        yield group, tokens


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, relative to it, in order; names that begin with a dot are left out.

    A link to a folder is not followed but counts as a file, which cannot be read. Raises OSError.
    """
    files = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [name for name in folders if Path(parent, name).is_symlink()]
        files += [Path(parent, name).relative_to(folder) for name in names if not name.startswith(".")]
    return sorted(files)


def _raise(error: OSError) -> NoReturn:
    raise error


class FileShards:
    """Files in folders. A shard that waits has their paths, as (number of the folder, path in it)."""

    format = "files"

    def __init__(self, config: FileConfig, folders: Sequence[Path]) -> None:
        """folders: with several, outputs are in a folder for each. Raises DocmtError for two of one name."""
        self._config, self._folders = config, [folder.absolute() for folder in folders]
        self._names = [folder.name for folder in self._folders] if len(self._folders) > 1 else [""]
        if len(set(self._names)) < len(self._names):
            raise DocmtError(f"two folders have one name among {', '.join(self._names)}: translate them in two jobs")

    @classmethod
    def from_description(cls, values: Mapping[str, Any], folders: Sequence[Path]) -> FileShards:
        """Return the kind of a plan. folders: where this worker has them, if elsewhere."""
        config = FileConfig(**{**values["config"], "fields": tuple(values["config"]["fields"])})
        kind = cls(config, folders or list(map(Path, values["folders"])))
        if missing := next((folder for folder in kind._folders if not folder.is_dir()), None):
            raise DocmtError(f"there is no folder {missing}: name the input as this machine has it")
        return kind

    def describe(self) -> dict[str, Any]:
        """Return JSON values for `from_description`."""
        config = {name: value for name, value in asdict(self._config).items() if name != "tags"}  # of requests alone
        return {"format": self.format, "config": config, "folders": list(map(str, self._folders))}

    def split(self, count: CountTokens, limit: int) -> Iterator[Part]:
        """Yield shards of files. Raises DocmtError for files of rows."""
        files = self._list_files()
        for group, tokens in group_by_tokens(files, self._texts, count, limit):
            yield Part(json.dumps(group).encode(), len(group), tokens)

    def _list_files(self) -> Iterator[tuple[int, str]]:
        for number, folder in enumerate(self._folders):
            for path in list_files(folder):
                if is_parquet(path) or has_jsonl_name(path):
                    raise DocmtError(f"{folder / path} has a document a row: name such files, not their folder")
                yield number, str(path)

    def _texts(self, file: tuple[int, str]) -> list[str]:
        """Return the sentences of a file, to count their tokens; none if it cannot be read."""
        return [sentence for document in self._read(*file).documents for sentence in document.sentences]

    def read(self, data: bytes) -> list[ShardItem]:
        """Return an item for each file."""
        return [self._read(number, path) for number, path in json.loads(data)]

    def _read(self, number: int, name: str) -> ShardItem:
        path, values = str(self._folders[number] / name), {"path": self._output_name(number, name)}
        try:
            check_regular(path)  # nobody may write to a pipe in a folder
            file = SourceFile.read(path, "auto", self._config)
            return ShardItem(path, file.documents, values, file=file)
        except Exception as error:  # whatever a damaged file causes must not stop the others
            reason = describe_error(error).removeprefix(f"{path}: ")
            if " --" in reason.replace(path, ""):
                reason += " (an option of docmt translate, which docmt bulk lacks)"
            return ShardItem(path, [], values, reason)

    def write(self, output: Path, name: str, data: bytes, results: Sequence[Result], align: Align) -> Written:
        """Write each file to its path in the output folder. name, data: of the file of the shard."""
        files, failures = list[str](), list[Failure]()
        for item, versions in results:
            assert item.file is not None
            try:
                translated, _ = item.file.render([best for best, *_ in versions], align)
            except Exception as error:  # of a file that cannot be put together again
                failures.append((item, describe_error(error)))
                continue
            path = output / item.values["path"]
            make_directory(path.parent)
            write_bytes(path, translated)
            files.append(item.values["path"])
        # An earlier worker may have written a file that now fails, and have been killed before the shard was done.
        for file in {self._output_name(*each) for each in json.loads(data)} - set(files):
            (output / file).unlink(missing_ok=True)
        return files, failures

    def _output_name(self, number: int, name: str) -> str:
        return str(Path(self._names[number], name))


TEXT_COLUMNS = ("source", "text", "sentences")
"""Columns of the text, of which a row has one, unless an option names another."""
DEFAULT_ID_COLUMN = "id"
_PATH, _NUMBER = "docmt.path", "docmt.number"
_DIGITS = 4  # of scores, whose last digits depend on the processor
_DIGEST_BYTES = 8
_FIRST_LOOK = 1 << 16  # ids, after which there is a look at every doubling
_MOST_SUSPECTS = 1000  # are enough: different ids of one digest are rare


@dataclass(frozen=True)
class RowConfig:
    """Options of reading and writing rows."""

    text_column: str
    """running text, or a list of sentences; empty: one of `TEXT_COLUMNS`"""
    id_column: str
    """name of the document; a row without it is named by its file and line, all rows if this is empty"""
    language: str
    """code of the language whose rules cut sentences"""
    swap: bool = False
    """write translations as source and documents as target"""
    has_full_ids: bool = False
    """name rows without an id by the path of their file, as two files have one name"""
    protect: tuple[str, ...] = ()
    """see `Document.from_text`"""
    has_terms: bool = False
    """write what became of terms"""
    has_memory: bool = False
    """write which sentences were reused"""


class ShardRows:
    """Rows of documents, in JSON Lines. A shard that waits has path, number, values and error of each."""

    format = "jsonl"

    def __init__(self, config: RowConfig, suffix: str, paths: Sequence[Path] = ()) -> None:
        """suffix: of the names of parts, that of the input. paths: the input, to split it."""
        self.config, self.suffix, self.paths = config, suffix, paths

    def describe(self) -> dict[str, Any]:
        """Return JSON values that make an equal kind."""
        return {"format": self.format, "suffix": self.suffix, **asdict(self.config)}

    def split(self, count: CountTokens, limit: int) -> Iterator[Part]:
        """Yield shards of rows. Raises DocmtError if the first row has no text."""
        rows = self._check_rows(self._read_input())
        for number, (group, tokens) in enumerate(group_by_tokens(rows, self._texts, count, limit)):
            if number == 0:
                self._check_columns(group[0])
            yield Part(self.pack(group), len(group), tokens)

    def _read_input(self) -> Iterator[Row]:
        return (row for path in self.paths for row in read_rows(path))

    def _check_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield rows. Raises DocmtError if one has two columns of text, or the id of another."""
        ids = IdChecker()
        for row in rows:
            names = [name for name in TEXT_COLUMNS if name in row.values]
            if len(names) > 1 and not self.config.text_column:
                raise DocmtError(
                    f"{row.location} has the columns {' and '.join(names)}: name that of the text with --text-column"
                )
            if suspects := ids.add(self._read_id(row)):
                self._check_ids(suspects)
            yield row
        self._check_ids(ids.find_repeated())

    def _check_ids(self, suspects: Collection[int]) -> None:
        """Read the input again, and raise DocmtError for two equal ids whose digest is a suspect."""
        locations: dict[str, str] = {}
        for row in self._read_input() if suspects else ():
            id = self._read_id(row)
            if digest_id(id) not in suspects:
                continue
            if (first := locations.get(id)) == row.location:
                raise DocmtError(f"{row.path} is named twice: name it once")
            if first:
                raise DocmtError(
                    f"{first} and {row.location} have the same id {quote(id)}: change one, name another column with "
                    "--id-column, or name rows by their file and line with --id-column ''"
                )
            locations[id] = row.location

    def _check_columns(self, row: Row) -> None:
        if row.error:
            raise DocmtError(f"{row.location}: {row.error}; give JSONL or Parquet, a document a row")
        columns = ", ".join(row.values) or "none"
        if self.config.id_column not in (DEFAULT_ID_COLUMN, "", *row.values):
            raise DocmtError(
                f"{row.location} has no column {self.config.id_column}: check --id-column (there are {columns})"
            )
        if self._find_text_column(row) is None:
            raise DocmtError(
                f"{row.location} has no column {self.config.text_column or ', '.join(TEXT_COLUMNS)}: name the column "
                f"of the text with --text-column (there are {columns})"
            )

    def _find_text_column(self, row: Row) -> str | None:
        names = (self.config.text_column,) if self.config.text_column else TEXT_COLUMNS
        return next((name for name in names if name in row.values), None)

    def _texts(self, row: Row) -> list[str]:
        """Return the texts of a row, to count their tokens."""
        value = row.values.get(self._find_text_column(row) or "")
        return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]

    def read(self, data: bytes) -> list[ShardItem]:
        """Return an item for each row."""
        return [self._read_row(row) for row in self.unpack(data)]

    def _read_row(self, row: Row) -> ShardItem:
        name = self._find_text_column(row)
        value = None if name is None else row.values[name]
        error, id = row.error, self._read_id(row)
        if not error and name is None:
            error = f"there is no column {self.config.text_column or ' or '.join(TEXT_COLUMNS)}"
        texts = value if isinstance(value, list) else [value]
        if not error and not all(isinstance(text, str) for text in texts):
            error = f"`{name}` is neither a text nor a list of sentences"
        if not error and any(LONE_SURROGATE.search(text) for text in [*texts, id]):
            error = f"`{name}` contains a lone surrogate (\\ud800 to \\udfff)"
        if error:
            return ShardItem(row.location, [], row.values, error)
        try:
            if isinstance(value, list):
                document = Document.from_sentences([text.strip() for text in value], id=id)
            else:
                config = self.config
                document = Document.from_text(str(value), language=config.language, id=id, protect=config.protect)
        except Exception as reason:  # of the rules of segmentation, for some strange text
            return ShardItem(row.location, [], row.values, describe_error(reason))
        return ShardItem(row.location, [document], row.values)

    def _read_id(self, row: Row) -> str:
        value = row.values.get(self.config.id_column)
        is_missing = value in (None, "") or value != value  # tables write NaN for what is missing
        if not is_missing and not isinstance(value, list | dict | bytes):
            return str(value)
        return f"{row.path if self.config.has_full_ids else Path(row.path).name}:{row.number}"

    def write(self, output: Path, name: str, data: bytes, results: Sequence[Result], align: Align) -> Written:
        """Write part-NAME, with a record for each translation."""
        records = [record for item, (versions,) in results for record in self._make_records(item, versions)]
        part = f"part-{name}{self.suffix}"
        write_bytes(output / part, self.format_records(records, data))
        return [part], []

    def _make_records(self, item: ShardItem, versions: Sequence[Translation]) -> Iterator[dict[str, Any]]:
        (document,) = item.documents
        column = self._find_text_column(Row("", 0, item.values))
        used = (column, self.config.id_column, "translation")  # the last may be one of another job
        others = {name: each for name, each in item.values.items() if name not in used}
        is_text = column is not None and isinstance(item.values[column], str)
        for number, translation in enumerate(versions, 1):
            sides = [list(document.sentences), list(translation.document.sentences)]
            source, target = reversed(sides) if self.config.swap else sides
            scores = [round(float(each.score), _DIGITS) if each.has_score else None for each in translation]
            yield {
                **others,
                "id": f"{document.id}-{number}" if len(versions) > 1 else document.id,
                "source_id": document.id,
                "source": source,
                "target": target,
                **({"translation": translation.text()} if is_text else {}),
                **({"terms": list(map(_list_terms, translation))} if self.config.has_terms else {}),
                **({"match": [QUALITY.get(each.memory, 0) for each in translation]} if self.config.has_memory else {}),
                "score": None if None in scores else round(float(translation.score), _DIGITS),
                "scores": scores,
                "warnings": sorted({name for names in translation.warnings() for name in names}),
            }

    def pack(self, rows: Sequence[Row]) -> bytes:
        """Return the file of a shard that waits: compressed JSON lines."""
        return compress("".join(json.dumps(row) + "\n" for row in rows).encode(), ZSTD_SUFFIX)

    def unpack(self, data: bytes) -> list[Row]:
        """Return the rows."""
        import zstandard

        return [Row(*json.loads(line)) for line in zstandard.decompress(data).splitlines()]

    def format_records(self, records: Sequence[dict[str, Any]], data: bytes) -> bytes:
        """Return the file of a part, without compression. data: the file of its shard."""
        return "".join(_format_record(record) + "\n" for record in records).encode()


def _list_terms(sentence: TranslatedSentence) -> list[dict[str, Any]]:
    """Return what became of the terms of a sentence."""
    return [{**asdict(use), "loss": round(use.loss, _DIGITS)} for use in sentence.terms]


def _format_record(record: dict[str, Any]) -> str:
    """Return a line of JSON; in ASCII if another column has lone surrogates, which UTF-8 cannot hold."""
    line = json.dumps(record, ensure_ascii=False)
    return json.dumps(record) if LONE_SURROGATE.search(line) else line


class ParquetRows(ShardRows):
    """Rows of Parquet, all of the same columns. A shard that waits has two columns more: path and number."""

    format = "parquet"

    def split(self, count: CountTokens, limit: int) -> Iterator[Part]:
        """Yield shards of rows. Raises DocmtError for files with different columns."""
        first, *others = self.paths
        self._columns = read_parquet_schema(first).remove_metadata()
        if len(set(self._columns.names)) < len(self._columns.names):
            raise DocmtError(f"{first} has two columns of one name: rename one of them")
        for path in others:
            if read_parquet_schema(path).remove_metadata() != self._columns:
                raise DocmtError(f"{path} has other columns than {first}: translate them in two jobs")
        return super().split(count, limit)

    def pack(self, rows: Sequence[Row]) -> bytes:
        """Return the rows with path and number."""
        import pyarrow

        schema = self._columns.append(pyarrow.field(_PATH, pyarrow.string()))
        schema = schema.append(pyarrow.field(_NUMBER, pyarrow.int64()))
        return format_parquet([{**row.values, _PATH: row.path, _NUMBER: row.number} for row in rows], schema)

    def unpack(self, data: bytes) -> list[Row]:
        """Return the rows."""
        from pyarrow import BufferReader, parquet

        records = list_rows(parquet.read_table(BufferReader(data)))
        return [Row(record.pop(_PATH), record.pop(_NUMBER), record) for record in records]

    def format_records(self, records: Sequence[dict[str, Any]], data: bytes) -> bytes:
        """Return the other columns of the input, with their types, and those of translations."""
        import pyarrow
        from pyarrow import BufferReader, parquet

        text, number, texts = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.string())
        names = dict.fromkeys(("id", "source_id", "translation"), text) | {"source": texts, "target": texts}
        names |= {"score": number, "scores": pyarrow.list_(number), "warnings": texts}
        if self.config.has_terms:
            use = dict.fromkeys(("term", "found", "status", "replaced", "dropped", "reason"), text)
            use |= {"span": pyarrow.list_(pyarrow.int64()), "wanted": texts, "forbidden": texts, "loss": number}
            use["case"] = pyarrow.bool_()
            names["terms"] = pyarrow.list_(pyarrow.list_(pyarrow.struct(use)))
        if self.config.has_memory:
            names["match"] = pyarrow.list_(pyarrow.int64())
        schema = parquet.read_schema(BufferReader(data))
        column = self._find_text_column(Row("", 0, dict.fromkeys(schema.names)))
        used = {column, self.config.id_column, _PATH, _NUMBER, *names}
        if pyarrow.types.is_nested(schema.field(column).type):
            del names["translation"]
        others = [field for field in schema if field.name not in used]
        return format_parquet(records, pyarrow.schema([*others, *map(pyarrow.field, names, names.values())]))


ShardKind = FileShards | ShardRows
"""A kind of input: the splitting of it, and the reading and writing of its shards."""


def digest_id(id: str) -> int:
    """Return a digest of an id, in which two of ten million ids agree by chance once in 400,000 jobs."""
    return int.from_bytes(blake2b(id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest())


class IdChecker:
    """A check that the ids of millions of documents differ, in 8 bytes of memory for each."""

    def __init__(self) -> None:
        self._digests, self._next_look = array("Q"), _FIRST_LOOK

    def add(self, id: str) -> set[int]:
        """Add an id. Now and then, return the digests that came twice, so that long input is not read in vain."""
        self._digests.append(digest_id(id))
        if len(self._digests) < self._next_look:
            return set()
        self._next_look *= 2
        return self.find_repeated()

    def find_repeated(self) -> set[int]:
        """Return digests that came twice, some of them if there are many."""
        digests = np.array(self._digests)
        digests.sort()
        return set(digests[1:][digests[1:] == digests[:-1]][:_MOST_SUSPECTS].tolist())
