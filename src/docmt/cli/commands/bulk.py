"""docmt bulk: any number of workers translate a corpus."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.bulk.job_directory import JobDirectory, JobStatus, read_status, sign_of_life
from docmt.cli.model_arguments import ModelOptions, ProtectOptions, TermOptions, load_engine, read_languages
from docmt.cli.output import check_outputs, print_table, write_json
from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, Needs, find_set, format_flag, option, quote
from docmt.decoding.search_config import SearchConfig
from docmt.documents.segmentation import DEFAULT_LANGUAGE

if TYPE_CHECKING:
    from docmt.decoding.document_translator import DocumentTranslator

_STATUS = "status"
_SHARE = re.compile(r"(\d{1,9})/(\d{1,9})")
_OF_ROWS = ("text_column", "id_column", "swap", "samples")
"""Options that folders of files do not have."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BulkOptions(ModelOptions, ProtectOptions, TermOptions):
    """docmt bulk MODEL INPUT... -o DIRECTORY

    Translate the documents of a corpus, each once, with any number of workers. Input is JSONL or Parquet, in which a
    row is a document, or folders of files that docmt translate reads. The same command, on any machine that shares the
    directory, is one worker more. A worker may be killed at any time. docmt bulk status DIRECTORY shows how far the job
    is.

    usage:
        MODEL INPUT ... -o DIRECTORY [options]
        MODEL -o DIRECTORY [options]
        status DIRECTORY [--json FILE]

    examples:
        docmt bulk en-fr corpus/*.jsonl.zst -o translated
        docmt bulk status translated

    common:
        output text_column id_column swap samples shard_tokens shard plan_only search.beam search.sampling terms
        terms_mode memory device precision
    """

    model: str = option(positional=True, metavar="MODEL")
    """model, run directory, M1,M2 or endpoint:PROFILE"""
    input: list[str] = option([], positional=True, metavar="INPUT")
    """JSONL or Parquet files, which only the worker that plans the job needs; or folders, which all need"""
    output: str = option("", flags=("-o",), metavar="DIRECTORY")
    """directory of the job, which all workers share"""
    text_column: str = option("", metavar="NAME")
    """column with text, or with a list of sentences (default: source, text or sentences)"""
    id_column: str = option("id", metavar="NAME")
    """column of ids; empty: by file and line"""
    language: str = ""
    """language code for sentence segmentation (default: that of the model, or en)"""
    swap: bool = False
    """write translations as source and documents as target, to train the other direction (back-translation)"""
    consistent: bool = False
    """translate what a document repeats as it mostly does"""
    samples: int = option(1, range=(1, 1000))
    """translations of each document by --search.sampling"""
    shard_tokens: int = option(100_000, range=(1, MANY))
    """source tokens of a shard, about: what a killed worker may lose"""
    shard: str = option("", metavar="I/N")
    """translate the I-th of N parts of the job only; without it, workers share all of it as they come"""
    plan_only: bool = False
    """plan the job and end"""
    ray: int = option(0, range=(0, 100_000))
    """run so many workers as actors of a Ray cluster, each with a GPU if it has any; 0: work in this process"""
    json: str | None = option(None, metavar="FILE")
    """write the status to this file, or to standard output for -"""
    search: SearchConfig = SearchConfig()
    """beam search"""

    option_rules = (
        Needs("samples", "search.sampling", "has no effect without {}: add it, with --search.beam 1"),
        Needs("terms_mode", "terms"),
    )


def run_bulk(options: BulkOptions) -> int:
    """Work on a job, or print its status. Return 2 if documents of a complete job failed."""
    check_outputs(options.json)
    if options.model == _STATUS and not options.output:
        return _print_status(options)
    if not options.output:
        raise DocmtError("-o is missing: name the directory of the job")
    share = _parse_share(options.shard)
    status = _work_on_ray(options, share) if options.ray else _work(options, share)
    if options.json:
        write_json(options.json, status.to_json())
    if options.plan_only and not status.done:
        _log.info(f"{status.path} is planned: {status.documents:,} documents, shards: {status.shards:,}")
        return 0
    if not status.is_complete:
        _log.info(f"{status.done:,} of {status.shards:,} shards are done: docmt bulk status {options.output}")
        return 0
    (_log.error if status.failed else _log.info)(status.summarize())
    return 2 if status.failed else 0


def _print_status(options: BulkOptions) -> int:
    if len(options.input) != 1:
        raise DocmtError("docmt bulk status needs one directory: that after -o of docmt bulk")
    status = read_status(JobDirectory(Path(options.input[0])))
    if options.json:
        write_json(options.json, status.to_json())
    print_table(options, status.format())
    return 0


def _parse_share(text: str) -> tuple[int, int]:
    """Return I and N. Raises DocmtError unless I is from 1 to N."""
    if not text:
        return 1, 1
    match = _SHARE.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise DocmtError(f"--shard is {quote(text)}: give I/N with I from 1 to N, such as 1/8")
    return int(match[1]), int(match[2])


def _work_on_ray(options: BulkOptions, share: tuple[int, int]) -> JobStatus:
    """Run workers as actors."""
    from docmt.bulk.worker import run_actors

    work = partial(_work_in, Path.cwd(), options, share)
    return run_actors(work, options.ray, use_gpus=options.device != "cpu")


def _work_in(folder: Path, options: BulkOptions, share: tuple[int, int]) -> JobStatus:
    """Work where this command was called, as paths may be relative: an actor begins elsewhere."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise DocmtError(f"{folder} is not on each machine. Start the command in a folder that all have") from error
    return _work(options, share)


def _work(options: BulkOptions, share: tuple[int, int]) -> JobStatus:
    """Plan the job, if nobody has, and translate its shards. Return its status."""
    from docmt.bulk.shards import FileShards, RowConfig, choose_kind, describe_input
    from docmt.bulk.worker import Worker
    from docmt.decoding.file_translation import FileConfig

    logging.getLogger("docmt.bulk").setLevel(logging.INFO)
    paths = [Path(path) for path in options.input]
    names = describe_input(paths)
    languages = read_languages(options.model)
    language = options.language or languages[0] or DEFAULT_LANGUAGE
    columns = options.text_column, options.id_column, language, options.swap
    patterns, has_terms = options.patterns or (), bool(options.terms or options.consistent)
    rows = RowConfig(*columns, protect=patterns, has_terms=has_terms, has_memory=bool(options.memory))
    kind = choose_kind(paths, rows, FileConfig(*languages, language, protect=options.patterns)) if paths else None
    if kind is None:
        JobDirectory(Path(options.output))  # there must be one
    elif isinstance(kind, FileShards):
        _check_folders(options, paths)
    translator = load_engine(options)
    job = JobDirectory.create(Path(options.output))
    settings = _settings(translator, options)
    with sign_of_life(job.workers) as name:
        job.sweep(complete=False)
        worker = Worker(job, name, translator, options.samples)
        try:
            plan = worker.plan(kind, {**settings, "input": names} if paths else settings, options.shard_tokens)
            if not options.plan_only:
                worker.work(plan, share, paths)
        except KeyboardInterrupt:
            status_of = f"docmt bulk status {shlex.quote(str(job.path))}"
            _log.warning(f"finished shards are kept; to go on, start a worker again ({status_of})")
            raise
        status = read_status(job)
        job.sweep(complete=status.is_complete)
        return status


def _check_folders(options: BulkOptions, folders: Sequence[Path]) -> None:
    """Raise DocmtError for options of rows, and for a job inside a folder of its input."""
    for folder in folders:
        if Path(options.output).resolve().is_relative_to(folder.resolve()):
            raise DocmtError(f"{options.output} is inside the input {folder}: choose another -o DIR")
    for name in find_set(options, *_OF_ROWS, "search.n_best"):
        raise DocmtError(f"{format_flag(name)} is for JSONL and Parquet, not for folders of files: leave it out")


def _settings(translator: DocumentTranslator, options: BulkOptions) -> dict[str, Any]:
    """Return what the workers of a job must agree on, by its names in messages."""
    names = ("precision", "batch_tokens", "language", *_OF_ROWS, "shard_tokens")
    others = {format_flag(name): getattr(options, name) for name in names}
    return {**translator.settings, **others, "--consistent": options.consistent or None}
