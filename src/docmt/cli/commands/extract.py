"""docmt extract FILE -o FILE.xlf

Write the text of a file to a bilingual XLIFF file, for people who translate or post-edit it. With a model, the
translation and its scores are added. docmt merge puts the edited translation back into the file.

usage:
    FILE -o FILE.xlf [options]

examples:
    docmt extract report.docx -o report.xlf --model MODEL
    docmt extract page.html -o page.xlf --source-language en --target-language fr
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import Parser, SearchOptions, translator_of
from docmt.cli.output import Report
from docmt.core.errors import DocmtError
from docmt.core.settings import option
from docmt.decoding.file_translation import FileConfig, FileTranslation, align_parts, read_file
from docmt.documents.input_formats import FORMATS, FormatName

if TYPE_CHECKING:
    from docmt.decoding import Translator

_log = logging.getLogger(__name__)

SUFFIXES = (".xlf", ".xliff")


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(SearchOptions):
    """The options of the command."""

    file: str = option(positional=True, metavar="FILE")
    """input file"""
    output: str = option(flags=("-o",), metavar="FILE.xlf")
    """XLIFF 2 file to write"""
    model: str = option("", metavar="MODEL")
    """model or run directory that translates the text (default: none)"""
    format: Literal["auto", FormatName] = "auto"
    """format of the input (auto: by its name and content)"""
    fields: list[str] = option([], metavar="NAME")
    """JSON paths (menu.*.title), columns or front-matter keys to translate"""
    source_language: str = option("", metavar="CODE")
    """language of the text (default: that of the model)"""
    target_language: str = option("", metavar="CODE")
    """language of the translation (default: that of the model)"""


def parser() -> Parser[ExtractOptions]:
    """Return the parser of the command."""
    return Parser(
        "extract",
        ExtractOptions,
        __doc__,
        common="output model format fields source_language target_language search.beam batch_tokens device precision",
    )


def run(arguments: Sequence[str]) -> int:
    """Write a bilingual file. Return 2 if a part could not be translated."""
    options = parser().parse(arguments)
    if Path(options.output).suffix.lower() not in SUFFIXES:
        raise DocmtError(f"-o {options.output}: extract writes XLIFF. End the name in {' or '.join(SUFFIXES)}.")
    check_outputs(options.output, inputs=[options.file])
    translator = translator_of(options) if options.model else None
    model_languages = translator.languages if translator else ("", "")
    source = options.source_language or model_languages[0]
    config = FileConfig(source, options.target_language or model_languages[1], source or "en", tuple(options.fields))
    file = read_markup(options.file, options.format, config)
    if not (options.target_language or model_languages[1]):
        _log.warning("%s names no target language: add --target-language CODE", options.output)
    report = Report()
    records = None if translator is None else _translate(translator, file, report)
    file.write_bilingual(options.output, None if records is None else file.translate_units(records))
    return report.log(1, 1, "files", "translated")


def read_markup(path: str, format: str, config: FileConfig) -> FileTranslation:
    """Return a file with markup. format: see `read_file`. Raises DocmtError for plain text and JSONL."""
    file = read_file(path, format, config)
    if isinstance(file, bytes):
        names = ", ".join(FORMATS)
        raise DocmtError(f"{path} is plain text or JSONL, without markup. This is for files of the formats {names}.")
    return file


def _translate(translator: Translator, file: FileTranslation, report: Report) -> list[str]:
    """Return the records of all sentences. Failures are added to the report."""
    records = []
    for parts in translator.stream_parts(file.documents):
        for part in align_parts(parts, file, translator.align):
            result = part.error if part.translation is None else part.translation
            assert result is not None  # a part has a translation or an error
            checked = report.check_result(file.documents[part.document].id, result, part.first)
            if isinstance(checked, DocmtError):
                part = replace(part, translation=None, error=checked)
            records.append(file.to_records(part))
    return records
