"""docmt translate MODEL FILE... -o OUT"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from docmt.cli.corpora import check_outputs, each_alone
from docmt.cli.parsing import SEARCH_TITLE, add_model_options, add_settings, make_parser, parse, translator_of
from docmt.cli.results import Report, records
from docmt.decoding import SearchConfig
from docmt.documents import Document, read_lines
from docmt.documents.plain_text import STANDARD, write_text
from docmt.errors import DocmtError
from docmt.files import cannot_write

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

UNKNOWN_LANGUAGE = "en"  # whose rules also serve for languages that have none
GROUP = 64  # documents translated together; finished groups are written at once

EXAMPLES = (
    "docmt translate MODEL report.txt -o bericht.txt",
    "docmt translate MODEL *.txt -o translated/ --beam 4",
    "cat report.txt | docmt translate MODEL --format jsonl > report.jsonl",
)
COMMON = (
    "output",
    "format",
    "search.beam",
    "search.n_best",
    "search.length_penalty",
    "search.batch_tokens",
    "input.layout",
    "input.join_lines",
    "device",
    "precision",
)


@dataclass(frozen=True)
class InputConfig:
    """How the files are read."""

    layout: Literal["text", "lines"] = "text"
    """text: running text, segmented into sentences; lines: one sentence a line, an empty line between documents, or
    <d> lines before them; in both all that stands between sentences is kept as it is"""
    language: str = ""
    """language code for the segmentation of running text (default: the source language of the model, or en where the
    model does not say)"""
    join_lines: bool = False
    """the lines of a paragraph are one text, hard-wrapped (otherwise every line ends a sentence)"""


@dataclass(frozen=True)
class _File:
    """One input file, its documents (whose texts, joined, are the file), and where its translation goes."""

    path: str
    output: str
    documents: list[Document]

    @property
    def names(self) -> list[str]:
        """Of its documents, for messages."""
        file = "standard input" if self.path == STANDARD else self.path
        several = len(self.documents) > 1
        return [f"{file}, document {document.id}" if several else file for document in self.documents]


def run(arguments: Sequence[str]) -> int:
    """Translates files; returns 2 if any of them could not be."""
    parser = make_parser(
        "translate",
        "Translates documents, one target sentence for each source sentence; blank lines and layout are kept.",
        "MODEL [FILE ...] [options]",
        examples=EXAMPLES,
        common=COMMON,
    )
    parser.add_argument("model", type=str, metavar="MODEL", help="model directory or run directory")
    parser.add_argument("files", nargs="*", type=str, metavar="FILE", help="text files; none, or -, is standard input")
    parser.add_argument(
        "-o",
        "--output",
        type=str,
        default=STANDARD,
        metavar="PATH",
        help="file, or directory for several files; - for the terminal",
    )
    parser.add_argument(
        "--format",
        type=Literal["text", "jsonl"],
        default="text",
        help="text, or one JSON object per sentence with its score, its place in the source and target text, and "
        "warnings (sentence_count, length_limit, long_source: what is also told at the end)",
    )
    add_settings(parser, InputConfig, "input", "how the files are read")
    add_settings(parser, SearchConfig, "search", SEARCH_TITLE)
    add_model_options(parser)
    options = parse(parser, arguments)
    if options.search.n_best > 1 and options.format == "text":
        raise DocmtError("--search.n_best above 1 needs --format jsonl: text has room for one translation")
    outputs = _outputs(options.files or [STANDARD], options.output)
    translator = translator_of(options)
    report = Report()
    language = options.input.language or translator.languages[0] or UNKNOWN_LANGUAGE
    files = _read(outputs, replace(options.input, language=language), report.failures)
    written = 0
    for group in _groups(files):
        found = _translate(translator, group, report)
        for file in group:
            translations = [found[id(document)] for document in file.documents if id(document) in found]
            if len(translations) == len(file.documents) and _write(file, translations, options.format, report):
                written += 1
                for name, translation in zip(file.names, translations, strict=True):
                    report.collect(name, translation)
    return report.print(len(outputs), written, "files", "translated")


def _outputs(files: Sequence[str], output: str) -> dict[str, str]:
    """Input path -> output path. Raises DocmtError where a translation could not be written, or would do harm."""
    if len(files) > 1 and output == STANDARD:
        raise DocmtError(f"{len(files)} files need an output directory: add -o DIRECTORY")
    to_directory = len(files) > 1 or output.endswith(os.sep) or Path(output).is_dir()
    pairs = {file: str(Path(output) / Path(file).name) if to_directory else output for file in files}
    if to_directory:
        if STANDARD in files:
            raise DocmtError("standard input has no name for a file in a directory: translate it alone with -o FILE")
        _make_directory(Path(output))
    for one, other in pairwise(sorted(pairs.values())):
        if one == other:
            raise DocmtError(f"two of the files would both be written to {one}: translate them in two calls")
    for source, target in pairs.items():
        if STANDARD not in (source, target) and Path(source).resolve() == Path(target).resolve():
            raise DocmtError(f"{source} would be overwritten by its own translation: choose another -o")
    check_outputs(*pairs.values())
    return pairs


def _make_directory(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise DocmtError(f"{directory} is a file, but several files need a directory: choose another -o")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error


def _read(outputs: dict[str, str], config: InputConfig, failures: list[str]) -> list[_File]:
    """The readable files; a sentence for each of the others is added to `failures` (raised if there is only one)."""
    files = []
    for path, output in outputs.items():
        try:
            if config.layout == "lines":
                documents = read_lines(path)
            else:
                documents = [Document.read(path, language=config.language, join_lines=config.join_lines)]
        except DocmtError as error:
            if len(outputs) == 1:
                raise
            failures.append(str(error))
            continue
        files.append(_File(path, output, documents))
    return files


def _groups(files: Sequence[_File]) -> list[list[_File]]:
    """Files with about GROUP documents together, in order."""
    groups: list[list[_File]] = []
    for file in files:
        if not groups or sum(len(f.documents) for f in groups[-1]) + len(file.documents) > GROUP:
            groups.append([])
        groups[-1].append(file)
    return groups


def _translate(translator: Translator, files: Sequence[_File], report: Report) -> dict[int, Translation]:
    """Translations by identity of the document; one that fails does not stop the others."""
    documents = [document for file in files for document in file.documents]
    names = [name for file in files for name in file.names]
    translations = each_alone(documents, names, translator.translate_all, report.failures)
    translations = report.numbers_only(translations, names)
    pairs = zip(documents, translations, strict=True)
    return {id(document): translation for document, translation in pairs if translation is not None}


def _write(file: _File, translations: Sequence[Translation], format: str, report: Report) -> bool:
    """Writes the translation of a file; returns whether that went well."""
    text = _jsonl(file, translations) if format == "jsonl" else "".join(t.text() for t in translations)
    try:
        write_text(file.output, text)
    except DocmtError as error:
        report.failures.append(str(error))
        return False
    return True


def _jsonl(file: _File, translations: Sequence[Translation]) -> str:
    """One line for each sentence; its spans are places in the whole source file and the whole translated file."""
    lines = []
    source_start = target_start = 0
    for document, translation in zip(file.documents, translations, strict=True):
        for record in records(translation):
            record["source_span"] = [source_start + place for place in record["source_span"]]
            record["target_span"] = [target_start + place for place in record["target_span"]]
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        source_start += len(document.text())
        target_start += len(translation.text())
    return "".join(lines)
