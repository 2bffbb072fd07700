"""The plan of a bulk job: its settings, the kind of its input, and the shards."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from docmt.bulk.job_directory import Claim, JobDirectory, Plan, Shard
from docmt.bulk.shard_files import FileShards, list_files
from docmt.bulk.shard_kinds import CountTokens, ShardKind
from docmt.bulk.shard_rows import JsonlRows, ParquetRows, RowConfig
from docmt.core.errors import DocmtError
from docmt.core.files import json_checksum, read_error
from docmt.core.plain_text import find_suffix
from docmt.core.progress import progress
from docmt.core.settings import quote
from docmt.decoding.file_translation import FileConfig
from docmt.documents.input_formats import has_jsonl_name
from docmt.documents.row_files import is_parquet

_SAMPLE_BYTES = 1 << 16
_ROW_KINDS = {kind.format: kind for kind in (JsonlRows, ParquetRows)}


def choose_kind(paths: Sequence[Path], rows: RowConfig, files: FileConfig) -> ShardKind:
    """Return how the input of a job is read. Raises DocmtError for input that bulk jobs do not read."""
    formats = {_find_format(path): path for path in paths}
    if len(formats) > 1:
        one, other, *_ = formats.values()
        raise DocmtError(f"{one} and {other} are input of different kinds: translate them in two jobs")
    format, path = next(iter(formats.items()))
    if format == FileShards.format:
        return FileShards(files, paths)
    has_full_ids = len({path.name for path in paths}) < len(paths)
    return _ROW_KINDS[format](replace(rows, has_full_ids=has_full_ids), f".{format}{find_suffix(path)}", paths)


def _find_format(path: Path) -> str:
    if path.is_dir():
        return FileShards.format
    if is_parquet(path):
        return ParquetRows.format
    if has_jsonl_name(path):
        return JsonlRows.format
    raise DocmtError(f"{path} is no input of a bulk job: give JSONL or Parquet with a document a row, or a folder")


def open_kind(values: Mapping[str, Any], folders: Sequence[Path] = ()) -> ShardKind:
    """Return the kind that a plan describes. folders: where the input is, if not where the planner had it."""
    settings = dict(values)
    format = settings.pop("format")
    if format == FileShards.format:
        return FileShards.from_description(settings, folders)
    suffix = settings.pop("suffix")
    return _ROW_KINDS[format](RowConfig(**settings), suffix)


def describe_input(paths: Sequence[Path]) -> list[list[Any]]:
    """Return the name of each file or folder, with what tells it from others. Raises DocmtError if one is missing.

    A file has its size and the checksum of its beginning and end; a folder that of the names and sizes of its files.
    """
    try:
        return [
            [path.name, json_checksum([(str(name), _find_size(path / name)) for name in list_files(path)])]
            if path.is_dir()
            else [path.name, *_describe_file(path)]
            for path in paths
        ]
    except OSError as error:
        raise read_error(error.filename, error) from error


def _find_size(path: Path) -> int:
    """Return the size of a file, or -1: that it cannot be read is told when it is translated."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _describe_file(path: Path) -> tuple[int, int]:
    """Return the size of a file, and the CRC-32 of its first and last bytes: a whole corpus would take minutes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        beginning = file.read(_SAMPLE_BYTES)
        file.seek(max(size - _SAMPLE_BYTES, 0))
        return size, zlib.crc32(file.read(_SAMPLE_BYTES), zlib.crc32(beginning))


def make_plan(
    job: JobDirectory, claim: Claim, kind: ShardKind, settings: dict[str, Any], count: CountTokens, shard_tokens: int
) -> Plan | None:
    """Split the input into shards of about so many source tokens, and write them and the plan.

    Return None if the claim was returned because this worker seemed dead. Raises DocmtError for input that cannot be
    read, or without documents.
    """
    job.clear_shards()
    shards: list[Shard] = []
    with progress("planning (documents)") as bar:
        for number, part in enumerate(kind.split(count, shard_tokens), 1):
            if not claim.is_held:
                return None
            name = f"{number:06d}"
            job.write_shard(name, part.data)
            shards.append(Shard(name, part.documents, part.tokens, f"{zlib.crc32(part.data):08x}"))
            bar.advance(part.documents)
    if not shards:
        raise DocmtError("there are no documents in the input: name files with a document a row")
    if not claim.is_held:
        return None
    plan = Plan(settings, shards, kind.describe())
    job.write_plan(plan)
    job.drop(claim)
    return plan


def check_settings(job: JobDirectory, plan: Plan, settings: Mapping[str, Any]) -> None:
    """Raise DocmtError if a worker has other settings than the plan, apart from those that it lacks."""
    names = [name for name, value in settings.items() if plan.settings.get(name) != value]
    if names:
        others = [f"{name} ({quote(plan.settings.get(name))})" if name.startswith("-") else name for name in names]
        raise DocmtError(
            f"{job.path} was planned with another {', '.join(others)}: use the same, or choose another -o DIR"
        )


def select_shards(plan: Plan, share: tuple[int, int]) -> Iterator[Shard]:
    """Yield every n-th shard, from the i-th on: share (i, n), i from 1."""
    yield from plan.shards[share[0] - 1 :: share[1]]
