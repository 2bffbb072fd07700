"""docmt extract and docmt merge: the text of a file to bilingual XLIFF, and the edited translation back."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from docmt.cli.model_arguments import ProtectOptions, SearchOptions, load_engine, log_use
from docmt.cli.output import Report, check_outputs
from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_bytes, write_bytes
from docmt.core.settings import option
from docmt.decoding.file_translation import FIELD_SEPARATOR, FileConfig, FileTranslation, align_parts, read_file
from docmt.documents.input_formats import FORMATS, FormatName
from docmt.formats.xliff_exchange import apply_targets, read_xliff_targets

if TYPE_CHECKING:
    from docmt.decoding.document_translator import DocumentTranslator

_log = logging.getLogger(__name__)

SUFFIXES = (".xlf", ".xliff")


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(SearchOptions):
    """docmt extract FILE -o FILE.xlf

    Write the text of a file to a bilingual XLIFF file, for people who translate or post-edit it. With a model, the
    translation and its scores are added. docmt merge puts the edited translation back into the file.

    usage:
        FILE -o FILE.xlf [options]

    examples:
        docmt extract report.docx -o report.xlf --model MODEL
        docmt extract page.html -o page.xlf --source-language en --target-language fr

    common:
        output model format fields source_language target_language search.beam batch_tokens device precision
    """

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


def run_extract(options: ExtractOptions) -> int:
    """Write a bilingual file. Return 2 if a part could not be translated."""
    if Path(options.output).suffix.lower() not in SUFFIXES:
        raise DocmtError(f"-o {options.output}: extract writes XLIFF. End the name in {' or '.join(SUFFIXES)}.")
    check_outputs(options.output, inputs=[options.file])
    translator = load_engine(options) if options.model else None
    model_languages = translator.languages if translator else ("", "")
    source = options.source_language or model_languages[0]
    target = options.target_language or model_languages[1]
    config = FileConfig(source, target, source or "en", tuple(options.fields), protect=options.patterns)
    file = _read_markup(options.file, options.format, config)
    if not target:
        _log.warning("%s names no target language: add --target-language CODE", options.output)
    report = Report()
    records = None if translator is None else _translate(translator, file, report)
    file.write_bilingual(options.output, None if records is None else file.translate_units(records))
    log_use(translator)
    return report.log(1, 1, "files", "translated")


def _read_markup(path: str, format: str, config: FileConfig) -> FileTranslation:
    """Return a file with markup. format: see `read_file`. Raises DocmtError for plain text and JSONL."""
    file = read_file(path, format, config)
    if isinstance(file, bytes):
        names = ", ".join(FORMATS)
        raise DocmtError(f"{path} is plain text or JSONL, without markup. This is for files of the formats {names}.")
    return file


def _translate(translator: DocumentTranslator, file: FileTranslation, report: Report) -> list[str]:
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


@dataclass(frozen=True, kw_only=True)
class MergeOptions(ProtectOptions):
    """docmt merge FILE.xlf -o FILE

    Write a file with the translation of a bilingual XLIFF file, which docmt extract made and people edited. All else in
    the file stays as in the original.

    usage:
        FILE.xlf -o FILE [options]

    examples:
        docmt merge report.xlf -o bericht.docx
        docmt merge report.xlf -o bericht.docx --original archive/report.docx

    common:
        output original fields
    """

    file: str = option(positional=True, metavar="FILE.xlf")
    """XLIFF 2 file with translations"""
    output: str = option(flags=("-o",), metavar="FILE")
    """translated file to write, in the format of the original"""
    original: str = option("", metavar="FILE")
    """file that was extracted (default: as the XLIFF file names it)"""
    fields: list[str] = option([], metavar="NAME")
    """fields that were extracted (default: as the XLIFF file names them)"""


def run_merge(options: MergeOptions) -> int:
    """Write the translated file."""
    targets = read_xliff_targets(read_bytes(options.file), options.file)
    original = options.original or _find_original(targets.original, options.file)
    check_outputs(options.output, inputs=[options.file, original])
    format, *fields = targets.format.split(FIELD_SEPARATOR)
    languages = targets.source_language, targets.target_language
    config = FileConfig(*languages, fields=tuple(options.fields or fields), protect=options.patterns)
    file = _read_markup(original, format or "auto", config)
    file.check_output(options.output)
    units, warnings = apply_targets(file.units.file.units, targets)
    write_bytes(options.output, file.units.file.write(units, targets.target_language))
    for warning in warnings[:20]:
        _log.warning("%s", warning)
    if len(warnings) > 20:
        _log.warning("%s: and %d more", options.file, len(warnings) - 20)
    return 0


def _find_original(name: str, file: str) -> str:
    """Return the path of the original: as named, or beside the XLIFF file. Raises DocmtError if there is none."""
    for path in (Path(name), Path(file).parent / name, Path(file).parent / Path(name).name):
        if name and path.is_file():
            return str(path)
    raise DocmtError(f"{file} was extracted from {name or 'an unnamed file'}, which is not there: add --original FILE")
