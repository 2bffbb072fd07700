"""docmt terms check FILE...
docmt terms convert FILE... -o FILE

Check or convert glossaries: TSV, CSV, TBX, TMX or JSON. `check` counts the terms of each file by languages, and lists
rows that cannot be used, duplicates and contradictions; those between files need --from and --to. `convert` writes the
terms of all files as one TSV or TBX 3 file.

usage:
    check FILE ... [--from CODE] [--to CODE] [--json FILE]
    convert FILE ... -o FILE [--from CODE] [--to CODE]

examples:
    docmt terms check glossary.tsv
    docmt terms convert terms.tbx -o terms.tsv --from en --to fr
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import Parser
from docmt.cli.output import write_json
from docmt.core.errors import USAGE_ERROR, DocmtError, printable
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import MANY, option
from docmt.documents.document import shorten
from docmt.terms import Glossary, SkippedRow
from docmt.terms.glossary import GlossaryBuilder, list_pairs
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_output import find_writer

_MAX_PAIRS = 40
"""Pairs of languages of a file in a report."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TermsOptions:
    """The options of the command."""

    action: Literal["check", "convert"] = option(positional=True, metavar="check|convert")
    """check: report what files hold; convert: write another file"""
    files: list[str] = option(positional=True, metavar="FILE")
    """glossaries: TSV, CSV, TBX, TMX or JSON (-: standard input)"""
    source_language: str = option("", flags=("--from",), metavar="CODE")
    """source language (default of check: all)"""
    target_language: str = option("", flags=("--to",), metavar="CODE")
    """target language (default of check: all)"""
    output: str | None = option(None, flags=("-o",), metavar="FILE")
    """convert: file to write, x.tsv or x.tbx"""
    json: str | None = option(None, metavar="FILE")
    """check: write the report as JSON (-: to standard output)"""
    show: int = option(10, range=(0, MANY))
    """check: maximum rows of each file that are listed"""


@dataclass
class _FileReport:
    """What docmt terms check says of a file."""

    path: str
    format: str = ""
    pairs: list[dict[str, Any]] = field(default_factory=list)
    """number of terms and duplicates by pair of languages"""
    more_pairs: int = 0
    """of languages that were not looked at"""
    skipped: list[SkippedRow] = field(default_factory=list)
    remarks: list[SkippedRow] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """why it cannot be used: an error of the file, or entries that contradict each other"""


def terms_parser() -> Parser[TermsOptions]:
    """Return the parser of docmt terms."""
    return Parser("terms", TermsOptions, __doc__)


def run_terms(arguments: Sequence[str]) -> int:
    """Report on glossaries, or convert them."""
    options = terms_parser().parse(arguments)
    check_outputs(options.output, options.json, inputs=options.files)
    return (_convert_files if options.action == "convert" else _check_files)(options)


def _convert_files(options: TermsOptions) -> int:
    if not options.output:
        raise DocmtError("docmt terms convert needs a file to write: add -o FILE.tsv or -o FILE.tbx")
    if options.json:
        raise DocmtError("--json is for docmt terms check: leave it out")
    render = find_writer(options.output)
    glossary = Glossary.read(*options.files, languages=(options.source_language, options.target_language))
    write_text(options.output, render(glossary))
    if glossary.skipped:
        rows, first = len(glossary.skipped), glossary.skipped[0]
        skipped = "1 row is" if rows == 1 else f"{rows:,} rows are"
        _log.warning("%s skipped (first: %s, line %d: %s)", skipped, first.path, first.line, first.reason)
    return 0


def _check_files(options: TermsOptions) -> int:
    if options.output:
        raise DocmtError("-o is for docmt terms convert: leave it out, or write the report with --json FILE")
    languages = options.source_language, options.target_language
    reports = [_check_file(path, languages) for path in options.files]
    if options.json and any(report.format for report in reports):
        write_json(options.json, {"files": [asdict(report) for report in reports]})
    if options.json != STANDARD:
        print(printable("\n".join(line for report in reports for line in _format(report, options.show)), allowed="\n"))
    errors = [error for report in reports for error in report.errors]
    if not errors and all(languages):  # files may contradict each other
        Glossary.read(*options.files, languages=languages)
    for error in errors[: max(options.show, 1)]:
        _log.error(error)
    return USAGE_ERROR if errors else 0


def _check_file(path: str, wanted: tuple[str, str]) -> _FileReport:
    report = _FileReport(path)
    try:
        file = read_entries(path, wanted)
    except DocmtError as error:
        report.errors.append(str(error))
        return report
    report.format = file.format
    pairs = [wanted] if all(wanted) else list_pairs(file, wanted)
    if not any(wanted):  # of a file without directions, each pair is there both ways
        pairs = [pair for number, pair in enumerate(pairs) if pair[::-1] not in pairs[:number]]
    report.more_pairs = max(len(pairs) - _MAX_PAIRS, 0)
    skipped, remarks, errors = dict[SkippedRow, None](), dict[SkippedRow, None](), list[str]()
    for pair in pairs[:_MAX_PAIRS] or [wanted]:
        builder = GlossaryBuilder(pair)
        try:
            builder.add(file)
        except DocmtError as error:
            errors.append(str(error))
        else:
            names = dict(zip(("source", "target"), pair, strict=True))
            first = next(iter(builder.terms.values())).term
            example = f"{first.source} → {' | '.join(first.targets or first.forbidden)}"
            counts = {"terms": len(builder.terms), "duplicates": builder.duplicates}
            report.pairs.append(names | counts | {"first": example})
        skipped |= dict.fromkeys(builder.skipped + (builder.foreign if all(wanted) else []))
        remarks |= dict.fromkeys(builder.remarks)
        report.errors += builder.conflicts
    report.skipped, report.remarks = list(skipped), list(remarks)
    report.errors += [] if report.pairs else errors[:1]
    return report


def _format(report: _FileReport, most: int) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{report.path} ({report.format or 'unusable'})"
    for pair in report.pairs:
        languages = " to ".join(filter(None, (pair["source"], pair["target"]))) or "any languages"
        counts = [f"{pair[name]:,} {name[: -1 if pair[name] == 1 else None]}" for name in ("terms", "duplicates")]
        yield f"  {languages}: {', '.join(counts[: 2 if pair['duplicates'] else 1])} (first: {shorten(pair['first'])})"
    if report.more_pairs:
        yield f"  ... and {report.more_pairs:,} more pairs of languages (name one with --from and --to)"
    for title, rows in (("skipped", report.skipped), ("looks wrong, but is used", report.remarks)):
        if rows:
            yield f"  {title}: {len(rows):,}"
        counted = "entry" if report.format == "JSON" else "line"
        yield from (f"    {counted} {row.line}: {row.reason}" for row in rows[:most])
        if len(rows) > most:
            yield f"    ... and {len(rows) - most:,} more (--show {len(rows)}, --json)"
