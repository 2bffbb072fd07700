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
from docmt.cli.parsing import SEARCH_TITLE, Parser, add_model_options, add_settings, make_parser, parse, translator_of
from docmt.cli.results import Report, error_records, records
from docmt.decoding import SearchConfig
from docmt.documents import Document, Input, read_input
from docmt.documents.inputs import Layout
from docmt.documents.jsonl import named_jsonl
from docmt.documents.plain_text import GZIP_SUFFIX, STANDARD, write_text
from docmt.documents.segmentation import knows_language
from docmt.errors import DocmtError
from docmt.files import cannot_write
from docmt.streams import tell, warn

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


@dataclass(frozen=True)
class _File:
    """One input file, its documents, and where its translation goes."""

    path: str
    output: str
    format: str
    """of the output"""
    input: Input

    @property
    def documents(self) -> list[Document]:
        return self.input.documents

    @property
    def name(self) -> str:
        """For messages."""
        return "standard input" if self.path == STANDARD else self.path

    @property
    def names(self) -> list[str]:
        """Of its documents, for messages."""
        several = len(self.documents) > 1
        return [f"{self.name}, document {document.id}" if several else self.name for document in self.documents]


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "translate",
        "Translates documents, one target sentence for each source sentence; blank lines and layout are kept.",
        "MODEL [FILE ...] [options]",
        examples=EXAMPLES,
        common=COMMON,
        also={"nbest": "search.n_best"},
    )
    made.add_argument("model", type=str, metavar="MODEL", help="model or run directory; M1,M2 is an ensemble")
    made.add_argument("files", nargs="*", type=str, metavar="FILE", help="files; none, or -, is standard input")
    made.add_argument(
        "-o",
        "--output",
        type=str,
        default=STANDARD,
        metavar="PATH",
        help="file (x.gz is compressed), or directory for several files; - for the terminal",
    )
    made.add_argument(
        "--format",
        type=Literal["auto", "text", "jsonl"],
        default="auto",
        help="text; jsonl: one JSON object per sentence with its score, its place in the source and target text, and "
        "warnings (sentence_count, length_limit, long_source: what is also told at the end), or error; auto: jsonl for "
        "JSONL and into x.jsonl, else text",
    )
    add_settings(made, InputConfig, "input", "how the files are read")
    add_settings(made, SearchConfig, "search", SEARCH_TITLE)
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Translates files; returns 2 if any of them could not be."""
    options = parse(parser(), arguments)
    if options.search.n_best > 1 and options.format != "jsonl":
        raise DocmtError("--search.n_best above 1 needs --format jsonl: text has room for one translation")
    outputs = _outputs(options.files or [STANDARD], options.output, options.format)
    if options.input.language and not knows_language(options.input.language):
        warn(
            f"--input.language {options.input.language}: there are no rules for this language, and those of English "
            "find its sentences"
        )
    translator = translator_of(options)
    report = Report()
    language = options.input.language or translator.languages[0] or UNKNOWN_LANGUAGE
    files = _read(outputs, replace(options.input, language=language), options.format, report.failures)
    written = 0
    for group in _groups(files):
        found = _translate(translator, group, report)
        for file in group:
            translations = [found.get(id(document)) for document in file.documents]
            missing = translations.count(None)
            if missing < max(1, len(translations)) and _write(file, translations, report):
                written += 1
                for name, translation in zip(file.names, translations, strict=True):
                    if translation is not None:
                        report.collect(name, translation)
                if missing:
                    report.failures.append(_partly(file, missing))
    return report.print(len(outputs), written, "files", "translated")


def _partly(file: _File, missing: int) -> str:
    place = "standard output" if file.output == STANDARD else file.output
    instead = "lines with error" if file.format == "jsonl" else "empty lines"
    return f"{missing} of {len(file.documents)} documents have {instead} in {place} instead of their translations"


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
        _make_directory(Path(output))
    for one, other in pairwise(sorted(pairs.values())):
        if one == other:
            raise DocmtError(f"two of the files would both be written to {one}: translate them in two calls")
    for source, target in pairs.items():
        if STANDARD not in (source, target) and Path(source).resolve() == Path(target).resolve():
            raise DocmtError(f"{source} would be overwritten by its own translation: choose another -o")
    check_outputs(*pairs.values())
    return pairs


def _output_name(file: str, format: str) -> str:
    """The name of the file in the output directory: that of the input, and if that says otherwise the format."""
    name = Path(file).name
    bare = name.removesuffix(GZIP_SUFFIX)
    if format != "auto" and named_jsonl(name) != (format == "jsonl"):
        bare += ".jsonl" if format == "jsonl" else ".txt"
    return bare + GZIP_SUFFIX if name.endswith(GZIP_SUFFIX) else bare


def _make_directory(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise DocmtError(f"{directory} is a file, but several files need a directory: choose another -o")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error


def _read(outputs: dict[str, str], config: InputConfig, format: str, failures: list[str]) -> list[_File]:
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
        chosen = format
        if format == "auto":
            chosen = "jsonl" if found.format == "jsonl" or named_jsonl(output) else "text"
        files.append(_File(path, output, chosen, found))
        _tell(files[-1])
    return files


def _tell(file: _File) -> None:
    """Says what was seen in a file that its user may not know."""
    if left := file.input.verbatim:
        parts = [f"{count} {'line' if count == 1 else 'lines'} of {kind}" for kind, count in left.items()]
        tell(f"{file.name}: left as they are: {', '.join(parts)}")
    if file.input.looks_wrapped:
        warn(
            f"{file.name}: looks hard-wrapped (its lines end in the middle of sentences, and each is translated as a "
            "sentence): add --join_lines"
        )


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


def _write(file: _File, translations: Sequence[Translation | None], report: Report) -> bool:
    """Writes the translation of a file; returns whether that went well."""
    text = _jsonl(file, translations, report) if file.format == "jsonl" else _text(file, translations)
    try:
        write_text(file.output, text)
    except DocmtError as error:
        report.failures.append(str(error))
        return False
    return True


def _text(file: _File, translations: Sequence[Translation | None]) -> str:
    """The translated file; the sentences of a document that has no translation are empty."""
    documents = [
        translation.document if translation is not None else document.replace_sentences([""] * len(document.sentences))
        for document, translation in zip(file.documents, translations, strict=True)
    ]
    last = documents[-1:]
    # A last line that is empty and has no end would not be there at all.
    unended = bool(last and last[0].sentences and not last[0].sentences[-1] and not last[0].gaps[-1])
    return "".join(document.text() for document in documents) + "\n" * unended


def _jsonl(file: _File, translations: Sequence[Translation | None], report: Report) -> str:
    """One line for each sentence.

    Its spans are places in the whole source file and the whole translated file; of JSONL, which has no such text, in
    the text of the document, a sentence a line.
    """
    lines = []
    source_start = target_start = 0
    for name, document, translation in zip(file.names, file.documents, translations, strict=True):
        found = records(translation) if translation is not None else error_records(document, report.reason(name))
        for record in found:
            for span, start in (("source_span", source_start), ("target_span", target_start)):
                if span in record:
                    record[span] = [start + place for place in record[span]]
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        if file.input.format != "jsonl":
            source_start += len(document.text())
            target_start += len(translation.text() if translation is not None else "".join(document.gaps))
    return "".join(lines)
