"""docmt merge FILE.xlf -o FILE

Write a file with the translation of a bilingual XLIFF file, which docmt extract made and people edited. All else in the
file stays as in the original.

usage:
    FILE.xlf -o FILE [options]

examples:
    docmt merge report.xlf -o bericht.docx
    docmt merge report.xlf -o bericht.docx --original archive/report.docx
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt.cli.commands.extract import read_markup
from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import Parser
from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_bytes, write_bytes
from docmt.core.settings import option
from docmt.decoding.file_translation import FIELD_SEPARATOR, FileConfig
from docmt.formats.xliff_exchange import apply_targets, read_xliff_targets

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """The options of the command."""

    file: str = option(positional=True, metavar="FILE.xlf")
    """XLIFF 2 file with translations"""
    output: str = option(flags=("-o",), metavar="FILE")
    """translated file to write, in the format of the original"""
    original: str = option("", metavar="FILE")
    """file that was extracted (default: as the XLIFF file names it)"""
    fields: list[str] = option([], metavar="NAME")
    """fields that were extracted (default: as the XLIFF file names them)"""


def parser() -> Parser[MergeOptions]:
    """Return the parser of the command."""
    return Parser("merge", MergeOptions, __doc__, common="output original fields")


def run(arguments: Sequence[str]) -> int:
    """Write the translated file."""
    options = parser().parse(arguments)
    targets = read_xliff_targets(read_bytes(options.file), options.file)
    original = options.original or _find_original(targets.original, options.file)
    check_outputs(options.output, inputs=[options.file, original])
    format, *fields = targets.format.split(FIELD_SEPARATOR)
    languages = targets.source_language, targets.target_language
    file = read_markup(original, format or "auto", FileConfig(*languages, fields=tuple(options.fields or fields)))
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
