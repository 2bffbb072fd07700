"""docmt translate MODEL FILE... -o OUT

Translates documents, one target sentence for each source sentence; blank lines and layout are kept.

usage:
    MODEL [FILE ...] [options]

examples:
    docmt translate MODEL report.txt -o bericht.txt
    docmt translate MODEL *.txt -o translated/ --beam 4
    docmt translate MODEL book.txt -o buch.txt --resume
    cat report.txt | docmt translate MODEL --format jsonl > report.jsonl
"""

from __future__ import annotations

import logging
import os
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docmt.cli.corpora import check_outputs, make_directory
from docmt.cli.options import Parser, SearchOptions, translator_of
from docmt.cli.results import File, Report, Writer, stays
from docmt.core.errors import DocmtError
from docmt.core.plain_text import GZIP_SUFFIX, STANDARD
from docmt.core.progress import plain_lines
from docmt.core.settings import flag_of, option
from docmt.decoding import SearchConfig
from docmt.documents import read_input
from docmt.documents.document import Layout
from docmt.documents.input_formats import has_jsonl_name
from docmt.documents.segmentation import knows_language

if TYPE_CHECKING:
    from docmt.decoding import Translator

_log = logging.getLogger(__name__)

UNKNOWN_LANGUAGE = "en"  # whose rules also serve for languages that have none
GROUP = 64  # documents of which the files are read into batches together


@dataclass(frozen=True)
class InputConfig:
    """How the files are read."""

    layout: Layout = "auto"
    """auto: as the name and the beginning of the file say, jsonl (x.jsonl), markdown (x.md) or text; text: running
    text, segmented into sentences; lines: one sentence a line, an empty line between documents, or <d> lines before
    them; markdown: text whose code, tables and HTML are left as they are; jsonl: one object a line, such as {"id": "a",
    "source": ["One.", "Two."]}, {"document": "a", "source": "One."} for each sentence (what --format jsonl writes), or
    {"id": "a", "text": "One. Two."}; all that stands between sentences is kept as it is, and so are lines of
    running text without any letter; files may be compressed (x.gz)"""
    language: str = ""
    """language code for the segmentation of running text (default: the source language of the model, or en where the
    model does not say)"""
    join_lines: bool = False
    """the lines of a paragraph are one text, hard-wrapped (otherwise every line ends a sentence)"""

    def __post_init__(self) -> None:
        if self.join_lines and self.layout == "lines":
            raise DocmtError("input.join_lines is for running text, but --input.layout is lines: leave one of them out")


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions):
    """The options of the command."""

    model: str = option(positional=True, metavar="MODEL")
    """model or run directory; M1,M2 is an ensemble"""
    files: list[str] = option([], positional=True, metavar="FILE")
    """files; none, or -, is standard input"""
    output: str = option(STANDARD, flags=("-o",), metavar="PATH")
    """file (x.gz is compressed), or directory for several files; - for the terminal"""
    format: Literal["auto", "text", "jsonl"] = "auto"
    """text; jsonl: one JSON object per sentence with its score, its place in the source and target text, warnings
    (sentence_count, length_limit, long_source: what is also told at the end), or error; auto: jsonl for JSONL and into
    x.jsonl, else text"""
    resume: bool = False
    """continue an interrupted translation from OUT.partial. Input, model and options must be the same (except
    --batch-tokens). After failures, outputs that this command has finished, and outputs that were edited, stay as they
    are. Outputs in which documents failed, and outputs that it has not finished itself, are translated again"""
    input: InputConfig = InputConfig()
    """how the files are read"""
    search: SearchConfig = SearchConfig()
    """beam search over whole documents"""


def parser() -> Parser[TranslateOptions]:
    """Return the parser of the command."""
    return Parser(
        "translate",
        TranslateOptions,
        __doc__,
        common="output format resume search.beam search.n_best search.length_penalty batch_tokens input.layout "
        "input.join_lines device precision",
        also={"nbest": "search.n_best"},
    )


def run(arguments: Sequence[str]) -> int:
    """Translates files; returns 2 if any of them could not be."""
    options = parser().parse(arguments)
    outputs = _outputs(options.files or [STANDARD], options.output, options.format)
    layout = options.input.layout
    _check_room(options.search, [_chosen(options.format, layout, *names) for names in outputs.items()])
    if options.input.language and not knows_language(options.input.language):
        _log.warning(
            f"--input.language {options.input.language}: there are no rules for this language, and those of English "
            "find its sentences"
        )
    for output in outputs.values() if options.resume else ():
        if not stays(output):
            name = "standard output" if output == STANDARD else f"{output}, a device or pipe,"
            raise DocmtError(f"--resume: of {name} nothing is kept to go on with; write to a file with -o FILE")
    translator = translator_of(options)
    report = Report()
    language = options.input.language or translator.languages[0] or UNKNOWN_LANGUAGE
    files = _read(outputs, replace(options.input, language=language), options.format, report.failures)
    _check_room(options.search, [file.format for file in files])
    facts = _facts(translator, files)
    writers = [Writer(file, facts, options.resume, report) for file in files]
    for writer in writers if options.resume else ():
        if writer.lacks_documents:
            _log.warning(f"{writer.file.output} lacks documents that failed: translating it again")
        elif not writer.begun and Path(writer.file.output).is_file():
            what = f"{writer.file.output} is there already, and nothing tells what it was made from"
            _log.warning(f"{what}: translating it again")
    # Lines that are drawn anew and again would be mixed with the translation.
    with plain_lines() if _on_terminal(files) else nullcontext():
        written = _write(translator, writers, report)
    return report.print(len(outputs), written, "files", "translated")


def _check_room(search: SearchConfig, formats: Iterable[str]) -> None:
    """Raises DocmtError for several translations of a sentence in one of these formats that has room for one."""
    if search.n_best > 1 and any(format != "jsonl" for format in formats):
        raise DocmtError("--search.n-best above 1 needs --format jsonl: text has room for one translation")


def _chosen(format: str, layout: str, source: str, output: str) -> str:
    """The format of a translation, by that of its source (jsonl, or another) and the names."""
    if format != "auto":
        return format
    return "jsonl" if layout == "jsonl" or has_jsonl_name(output) or has_jsonl_name(source) else "text"


def _facts(translator: Translator, files: Sequence[File]) -> dict[str, Any]:
    """What translations depend on besides the file, by names for messages; nothing where none are kept."""
    if not any(stays(file.output) for file in files):
        return {}
    search = {flag_of(f"search.{name}"): value for name, value in asdict(translator.search).items()}
    search |= {flag_of(f"context.{name}"): value for name, value in asdict(translator.context).items()}
    return {"model": translator.checksums(), "--precision": translator.precision, **search}


def _on_terminal(files: Sequence[File]) -> bool:
    return any(file.output == STANDARD for file in files) and sys.stdout is not None and sys.stdout.isatty()


def _write(translator: Translator, writers: Sequence[Writer], report: Report) -> int:
    """Translates files, and writes what is finished; says how to go on where that ends before its time.

    Returns how many files have a translation. Where the report has failures, finished outputs keep their OUT.partial,
    so that `--resume` leaves them as they are.
    """
    try:
        for group in _groups(writers):
            _translate(translator, group)
        written = sum([writer.finish() for writer in writers])
        for writer in writers if not report.failures else ():
            writer.remove()
        return written
    except BaseException:
        if places := [writer.unfinished for writer in writers if writer.unfinished]:
            _log.warning(f"what is finished is in {', '.join(places)}: the same command with --resume goes on")
        raise
    finally:
        for writer in writers:
            writer.close()


def _outputs(files: Sequence[str], output: str, format: str) -> dict[str, str]:
    """Input path -> output path. Raises DocmtError where a translation could not be written, or would do harm."""
    if len(files) > 1 and output == STANDARD:
        raise DocmtError(f"{len(files)} files need an output directory: add -o DIRECTORY")
    to_directory = len(files) > 1 or output.endswith(os.sep) or Path(output).is_dir()
    pairs = {file: str(Path(output) / _output_name(file, format)) if to_directory else output for file in files}
    if to_directory:
        if Path(output).suffix and not output.endswith(os.sep) and not Path(output).exists():
            raise DocmtError(
                f"{len(files)} files need a directory, but {output} is the name of a file: name a directory, such as "
                f"out{os.sep} (a name that ends in {os.sep} is always one)"
            )
        if STANDARD in files:
            raise DocmtError("standard input has no name for a file in a directory: translate it alone with -o FILE")
        make_directory(Path(output))
    for one, other in pairwise(sorted(pairs.values())):
        if one == other:
            raise DocmtError(f"two of the files would both be written to {one}: translate them in two calls")
    check_outputs(*pairs.values(), inputs=files)
    return pairs


def _output_name(file: str, format: str) -> str:
    """The name of the file in the output directory: that of the input, and if that says otherwise the format."""
    name = Path(file).name
    bare = name.removesuffix(GZIP_SUFFIX)
    if format != "auto" and has_jsonl_name(name) != (format == "jsonl"):
        bare += ".jsonl" if format == "jsonl" else ".txt"
    return bare + GZIP_SUFFIX if name.endswith(GZIP_SUFFIX) else bare


def _read(outputs: dict[str, str], config: InputConfig, format: str, failures: list[str]) -> list[File]:
    """The readable files; a sentence for each of the others is added to `failures` (raised if there is only one)."""
    files = []
    for path, output in outputs.items():
        try:
            found = read_input(path, layout=config.layout, language=config.language, join_lines=config.join_lines)
        except DocmtError as error:
            if len(outputs) == 1:
                raise
            failures.append(str(error))
            continue
        files.append(File(path, output, _chosen(format, found.format, "", output), found))
        _tell(files[-1])
    return files


def _tell(file: File) -> None:
    """Says what was seen in a file that its user may not know."""
    if left := file.input.verbatim_lines:
        parts = [f"{count} {'line' if count == 1 else 'lines'} of {kind}" for kind, count in left.items()]
        _log.info(f"{file.name}: left as they are: {', '.join(parts)}")
    if file.input.looks_wrapped:
        _log.warning(
            f"{file.name}: looks hard-wrapped (its lines end in the middle of sentences, and each is translated as a "
            "sentence): add --join-lines"
        )


def _groups(writers: Sequence[Writer]) -> list[list[Writer]]:
    """Files with about GROUP documents together, in order."""
    groups: list[list[Writer]] = []
    for writer in writers:
        documents = len(writer.file.documents)
        if not groups or sum(len(own.file.documents) for own in groups[-1]) + documents > GROUP:
            groups.append([])
        groups[-1].append(writer)
    return groups


def _translate(translator: Translator, writers: Sequence[Writer]) -> None:
    """Translates the documents of these files; a piece that fails does not stop the others."""
    documents = [document for writer in writers for document in writer.file.documents]
    starts = [0, *accumulate(len(writer.file.documents) for writer in writers)]
    done = {}
    for start, writer in zip(starts, writers, strict=False):
        reached = writer.begin()
        done.update({start + number: place for number, place in reached.items()})
        if reached:
            finished = sum(place.sentences for place in reached.values())
            total = sum(map(len, writer.file.documents))
            _log.info(f"{writer.file.name}: {finished:,} of {total:,} sentences are done")
    if len(done) == len(documents) and all(done[n].sentences == len(own) for n, own in enumerate(documents)):
        return
    for pieces in translator.stream_parts(documents, resume_points=done):
        for number, own in groupby(pieces, lambda piece: bisect_right(starts, piece.document) - 1):
            writers[number].add([replace(piece, document=piece.document - starts[number]) for piece in own])
