"""Files of rows with named columns: JSON Lines (x.jsonl), Parquet (x.parquet) and TSV (x.tsv).

JSONL and TSV may be compressed (x.tsv.zst). Cells of TSV have no quotes; its columns have the names in its first line,
or are numbered from 1.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docmt.core.errors import DocmtError, missing_package_error
from docmt.core.files import check_regular, read_error
from docmt.core.plain_text import BYTE_ORDER_MARK, decode_utf8, plain_name, read_raw_lines

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema, Table

PARQUET_SUFFIX = ".parquet"
TSV_SUFFIX = ".tsv"
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
    return plain_name(path).lower().endswith(TSV_SUFFIX)


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
    number = 0
    with _parquet_errors(path) as parquet:
        check_regular(path)
        try:
            file = parquet.ParquetFile(path)
        except FileNotFoundError as error:
            raise read_error(path, error) from error
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for values in list_rows(batch):
                number += 1
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
    rows: list[dict[str, Any]] = type(table).from_arrays(columns, names=table.schema.names).to_pylist()
    return rows


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
