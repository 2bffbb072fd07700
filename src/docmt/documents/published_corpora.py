"""Files of rows with named columns, and parallel corpora as they are published, both sides in one file.

    Parquet, JSONL   a row is a document (lists of sentences, or texts with as many lines), or a sentence pair
    TSV              a line is a sentence pair: source, target and, if there is a third column, its document
    TMX              the sentence pairs of one document, in order

Consecutive sentence pairs with the same document are one. Without a column of documents, each pair is a document.
JSONL and TSV may be compressed (x.tsv.zst). Cells of TSV have no quotes; its columns have the names in its first line,
or are numbered from 1.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docmt.core.errors import DocmtError, missing_package_error
from docmt.core.files import check_regular, read_error
from docmt.core.plain_text import BYTE_ORDER_MARK, decode_utf8, open_bytes, read_raw_lines
from docmt.documents.input_formats import FileDocument, check_unicode, has_jsonl_name, has_suffix
from docmt.documents.input_formats import Row as SentenceRow

if TYPE_CHECKING:
    from lxml import etree
    from pyarrow import RecordBatch, Schema, Table

PARQUET_SUFFIX = ".parquet"
TSV_SUFFIX, _TMX_SUFFIX = ".tsv", ".tmx"
_BATCH_ROWS = 256


class Row(NamedTuple):
    """A row of a file."""

    path: str
    number: int
    """of its line in JSONL, of the row in Parquet, from 1"""
    values: dict[str, Any]
    """by column"""
    error: str = ""
    """why there are no values"""

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return f"{self.path}, {'row' if is_parquet(self.path) else 'line'} {self.number}"


def is_parquet(path: Path | str) -> bool:
    """Return whether a file is Parquet, by its name."""
    return str(path).lower().endswith(PARQUET_SUFFIX)


def is_tsv(path: Path | str) -> bool:
    """Return whether a file is TSV, by its name (x.tsv, x.tsv.gz, x.tsv.zst)."""
    return has_suffix(path, TSV_SUFFIX)


def read_rows(path: Path | str, header: bool = False) -> Iterator[Row]:
    """Yield the rows of a file. A line that is no JSON object, or not UTF-8, is a row with an error.

    header: whether the first line of TSV has the names of its columns. Raises DocmtError for a file that cannot be
    read.
    """
    if is_parquet(path):
        return _read_parquet(path)
    return _read_tsv(path, header) if is_tsv(path) else _read_json_lines(path)


def _read_tsv(path: Path | str, header: bool) -> Iterator[Row]:
    names: list[str] = []
    for number, raw in read_raw_lines(path):
        row = Row(str(path), number, {})
        try:
            line = decode_utf8(raw, path, number).removeprefix(BYTE_ORDER_MARK if number == 1 else "")
        except DocmtError as error:
            yield row._replace(error=str(error).removeprefix(f"{row.location}, "))
            continue
        cells = line.rstrip("\r\n").split("\t")
        if header and not names:
            names = cells
        elif any(cells):
            columns = names or [str(column) for column in range(1, len(cells) + 1)]
            yield row._replace(values=dict(zip(columns, cells, strict=False)))


def _read_json_lines(path: Path | str) -> Iterator[Row]:
    for number, raw in read_raw_lines(path):
        if not raw.strip():
            continue
        row = Row(str(path), number, {})
        try:
            values = json.loads(decode_utf8(raw, path, number).removeprefix(BYTE_ORDER_MARK))
        except DocmtError as error:  # its message has the location
            yield row._replace(error=str(error).removeprefix(f"{row.location}, "))
        except (ValueError, RecursionError) as error:
            yield row._replace(error=f"not valid JSON ({error})")
        else:
            yield row._replace(values=values) if isinstance(values, dict) else row._replace(error="not a JSON object")


def _read_parquet(path: Path | str) -> Iterator[Row]:
    with _parquet_errors(path) as parquet:
        check_regular(path)
        try:
            file = parquet.ParquetFile(path)
        except FileNotFoundError as error:
            raise read_error(path, error) from error
        rows = chain.from_iterable(map(list_rows, file.iter_batches(batch_size=_BATCH_ROWS)))
        for number, values in enumerate(rows, 1):
            yield Row(str(path), number, values)


def read_parquet_schema(path: Path | str) -> Schema:
    """Return the columns of a Parquet file and their types. Raises DocmtError if it cannot be read."""
    with _parquet_errors(path) as parquet:
        return parquet.read_schema(path)


def list_rows(table: Table | RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a table. Times are whole numbers, as those of Python have no nanoseconds."""
    import pyarrow

    is_time = (pyarrow.types.is_timestamp, pyarrow.types.is_duration, pyarrow.types.is_time64)
    columns = [
        column.cast(pyarrow.int64()) if any(check(column.type) for check in is_time) else column
        for column in table.columns
    ]
    return type(table).from_arrays(columns, names=table.schema.names).to_pylist()


def format_parquet(rows: Sequence[Mapping[str, Any]], schema: Schema) -> bytes:
    """Return a Parquet file of rows."""
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), file, compression="zstd")
    return file.getvalue()


@contextmanager
def _parquet_errors(path: Path | str) -> Iterator[Any]:
    """Yield the module of Parquet files; its errors become DocmtErrors."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_package_error(str(path), "pyarrow", "parquet") from error
    try:
        yield parquet
    except pyarrow.ArrowException as error:
        raise DocmtError(f"{path} is no Parquet file, or damaged: copy it again") from error
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} has text that is not UTF-8: write it again") from error
    except OSError as error:
        raise read_error(path, error) from error


_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = {"bpt", "ept", "ph", "it", "ut"}
"""Elements of TMX that hold markup of the original file; others (hi, sub) hold text."""
_COLUMN_NAMES = frozenset(
    re.findall(
        "[a-z]+",
        "source src target trg tgt reference ref translation text sentence sent segment seg line document doc docid id "
        "lang language english french german spanish italian portuguese dutch eng fra fre deu ger spa ita por nld",
    )
)
"""Words of names of columns, besides codes of languages."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that hold a corpus; empty: the usual one of the format."""

    source: str = ""
    """sentence, list of sentences, or text with a sentence a line; usually source, in TSV the first column"""
    target: str = ""
    """usually target, in TSV the second column"""
    document: str = ""
    """usually document, in TSV the third column"""
    source_context: str = ""
    """text before the sentence, which becomes a pair of its own with that of the other side"""
    target_context: str = ""

    def for_file(self, path: Path | str) -> Columns:
        """Return the columns with the usual names of a format."""
        source, target, document = ("1", "2", "3") if is_tsv(path) else ("source", "target", "document")
        return replace(
            self, source=self.source or source, target=self.target or target, document=self.document or document
        )

    @property
    def are_named(self) -> bool:
        """Whether any column has a name that is no number."""
        return not all(name.isdecimal() for name in vars(self).values() if name)


def holds_both_sides(path: Path | str) -> bool:
    """Return whether a file holds both sides of a corpus, by its name."""
    return has_jsonl_name(path) or is_published(path)


def is_published(path: Path | str) -> bool:
    """Return whether a file is read by `read_published`, whatever its columns, by its name."""
    return is_parquet(path) or has_suffix(path, TSV_SUFFIX, _TMX_SUFFIX)


def read_published(path: Path, columns: Columns, languages: tuple[str, str]) -> Iterator[FileDocument]:
    """Yield the documents of a corpus. languages: codes of source and target, which TMX needs.

    Raises DocmtError, naming the row, for columns that are missing, and for sides that do not match.
    """
    if has_suffix(path, _TMX_SUFFIX):
        return _read_tmx(path, languages)
    return _read_row_corpus(path, columns, languages)


def _read_row_corpus(path: Path, columns: Columns, languages: tuple[str, str]) -> Iterator[FileDocument]:
    names = columns.for_file(path)
    document: FileDocument | None = None
    for count, row in enumerate(read_rows(path, header=columns.are_named), 1):
        if row.error:
            raise DocmtError(f"{row.location}: {row.error}")
        source, target = (_read_cell(row, name) for name in (names.source, names.target))
        if count == 1 and is_tsv(path) and not names.are_named and _are_column_names((source, target), languages):
            raise DocmtError(
                f"{row.location}: these are names of columns, not sentences ({', '.join(row.values.values())}); name "
                "them with --columns, or remove the line"
            )
        id = row.values.get(names.document, row.values.get("id") if isinstance(source, list) else None)
        id = None if id == "" else id
        pairs = [(row.number, pair) for pair in _make_pairs(row, names, source, target)]
        is_whole = id is None or isinstance(row.values[names.source], list)
        if document is None or is_whole or str(id) != document.id:
            if document is not None:
                yield document
            document = FileDocument(str(count) if id is None else str(id), row.number, [])
        document.rows.extend(pairs)
    if document is not None:
        yield document


def _read_cell(row: Row, name: str) -> str | list[str]:
    """Return a sentence, or the sentences of a document."""
    if name not in row.values:
        there = ", ".join(row.values)
        raise DocmtError(f"{row.location}: there is no column {name}; name them with --columns (there are {there})")
    value = row.values[name]
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise DocmtError(f"{row.location}: `{name}` is neither a text nor a list of sentences; name another column")
    for text in texts:
        check_unicode(text, row.location)
    if isinstance(value, str) and "\n" not in value.strip():
        return value.strip()
    # Lines that are empty at the beginning keep their place beside sentences of the other side.
    return [text.strip() for text in (value.split("\n") if isinstance(value, str) else value)]


def _are_column_names(cells: tuple[object, object], languages: tuple[str, str]) -> bool:
    """Return whether two different cells consist of words that name columns."""
    known = _COLUMN_NAMES | {language.lower().partition("-")[0] for language in languages}
    words = [[word.rstrip("s") for word in re.findall(r"[^\W\d_]+", str(cell).lower())] for cell in cells]
    return words[0] != words[1] and all(
        not known.isdisjoint(each) and all(word in known or len(word) < 3 for word in each) for each in words
    )


def _make_pairs(row: Row, names: Columns, source: Any, target: Any) -> list[tuple[str, str]]:
    """Return the sentence pairs of a row, with the contexts before them."""
    sides = [side if isinstance(side, list) else [side] for side in (source, target)]
    if isinstance(row.values[names.source], str):  # and one text ends in a line break
        while len(sides[0]) != len(sides[1]) and not (longer := max(sides, key=len))[-1]:
            longer.pop()
    if len(sides[0]) != len(sides[1]):
        raise DocmtError(
            f"{row.location}: `{names.source}` has {len(sides[0])} sentences but `{names.target}` has "
            f"{len(sides[1])}. Give one target sentence for each source sentence."
        )
    columns = names.source_context, names.target_context
    contexts = [" ".join(str(row.values.get(name) or "").split()) for name in columns]
    before = [(contexts[0], contexts[1])] if all(contexts) else []
    return [*before, *zip(*sides, strict=True)]


def _read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[FileDocument]:
    """Yield the one document of a translation memory."""
    from lxml import etree

    if not all(languages):
        raise DocmtError(f"{path} may have many languages: add --source-language and --target-language")
    rows: list[SentenceRow] = []
    try:
        with open_bytes(path) as (contents, _):
            options = {"tag": "{*}tu", "resolve_entities": False, "no_network": True, "load_dtd": False}
            for _, element in etree.iterparse(contents, **options):
                sides = [_find_segment(element, language) for language in languages]
                if None not in sides:
                    rows.append((element.sourceline or 0, (sides[0] or "", sides[1] or "")))
                element.clear()
                while element.getprevious() is not None:  # what was read would stay in memory
                    del element.getparent()[0]
    except etree.XMLSyntaxError as error:
        raise DocmtError(f"{path} is no TMX file, or damaged ({error}): export it again") from error
    if not rows:
        raise DocmtError(f"{path} has no pairs of {' and '.join(languages)}: check the languages")
    yield FileDocument("1", 1, rows)


def _find_segment(unit: etree._Element, language: str) -> str | None:
    """Return the text of a language in a translation unit: of its code, or of one with a region (en-GB)."""
    for variant in unit.iterfind("{*}tuv"):
        code = variant.get(_LANGUAGE) or variant.get("lang") or ""
        if language.lower() in (code.lower(), code.lower().partition("-")[0]):
            segment = variant.find("{*}seg")
            return None if segment is None else " ".join("".join(segment_texts(segment)).split())
    return None


def segment_texts(element: etree._Element) -> Iterator[str]:
    """Yield the texts of a segment without markup."""
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str) and child.tag.rpartition("}")[2] not in _CODES:
            yield from segment_texts(child)
        yield child.tail or ""
