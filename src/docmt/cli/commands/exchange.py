"""docmt extract, merge and terms: what people who translate are given and give, bilingual XLIFF and glossaries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docmt import decoding
from docmt.checking import read_translation
from docmt.checking.languages import detect_language
from docmt.checking.renderings import Links, find_renderings, find_repeated_phrases, link_by_counts, most_common_text
from docmt.cli.model_arguments import ProtectOptions, SearchOptions, link_words, load_engine, log_use, read_languages
from docmt.cli.output import Report, check_outputs, print_table, write_json
from docmt.core.errors import USAGE_ERROR, DocmtError
from docmt.core.plain_text import plain_name, read_bytes, write_bytes, write_text
from docmt.core.settings import MANY, Needs, option
from docmt.decoding.file_translation import FIELD_SEPARATOR, FileConfig, FileTranslation, align_parts, read_file
from docmt.documents import ParallelDocument
from docmt.documents.document import shorten
from docmt.documents.input_formats import FORMATS, FormatName
from docmt.documents.segmentation import DEFAULT_LANGUAGE
from docmt.formats.language_codes import is_same_language, primary_language
from docmt.formats.xliff_exchange import apply_targets, read_xliff_targets
from docmt.terms import Glossary, SkippedRow, Term
from docmt.terms.glossary import GlossaryBuilder, clean_text, find_writer, list_pairs
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_tables import ALTERNATIVES
from docmt.terms.word_forms import choose_lemma

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

    option_rules = tuple(Needs(name, "model") for name in ("search", "context", "device", "precision", "batch_tokens"))


def run_extract(options: ExtractOptions) -> int:
    """Write a bilingual file. Return 2 if a part could not be translated."""
    if Path(options.output).suffix.lower() not in SUFFIXES:
        raise DocmtError(f"-o {options.output}: extract writes XLIFF. End the name in {' or '.join(SUFFIXES)}.")
    check_outputs(options.output, inputs=[options.file])
    translator = load_engine(options) if options.model else None
    model_languages = translator.languages if translator else ("", "")
    source = options.source_language or model_languages[0]
    target = options.target_language or model_languages[1]
    config = FileConfig(source, target, source or DEFAULT_LANGUAGE, tuple(options.fields), protect=options.patterns)
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
            records.append(file.to_records(report.check_part(file.documents[part.document].id, part)))
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


# Glossaries

_LEAST_USES, _MOST_OTHERS = 3, 5
"""Known translations of a term that is proposed, and other translations in its note."""
_MAX_PAIRS = 40
"""Pairs of languages of a file in a report."""


@dataclass(frozen=True, kw_only=True)
class TermsOptions:
    """docmt terms check FILE...
    docmt terms convert FILE... -o FILE
    docmt terms extract SOURCE TARGET -o FILE

    Check, convert or propose glossaries: TSV, CSV, TBX, TMX or JSON. `check` counts the terms of each file by
    languages, and lists rows that cannot be used, duplicates and contradictions; those between files need --from and
    --to. `convert` writes the terms of all files as one TSV or TBX 3 file. `extract` proposes terms from documents and
    their translations (two files, or a JSONL or TMX file with both sides), those first that were translated in several
    ways.

    usage:
        check FILE ... [--from CODE] [--to CODE] [--json FILE]
        convert FILE ... -o FILE [--from CODE] [--to CODE]
        extract FILE [FILE] -o FILE [--from CODE] [--to CODE]

    examples:
        docmt terms check glossary.tsv
        docmt terms convert terms.tbx -o terms.tsv --from en --to fr
        docmt terms extract report.docx rapport.docx -o terms.tsv --model en-fr
    """

    action: Literal["check", "convert", "extract"] = option(positional=True, metavar="check|convert|extract")
    """check: report what files hold; convert: write another file; extract: propose terms"""
    files: list[str] = option(positional=True, metavar="FILE")
    """glossaries: TSV, CSV, TBX, TMX or JSON (-: standard input); extract: translated documents"""
    source_language: str = option("", flags=("--from",), metavar="CODE")
    """source language (default of check: all)"""
    target_language: str = option("", flags=("--to",), metavar="CODE")
    """target language (default of check: all)"""
    output: str | None = option(None, flags=("-o",), metavar="FILE")
    """convert, extract: file to write, x.tsv or x.tbx"""
    model: str = option("", metavar="MODEL")
    """extract: model that aligns the words; without one these are counted, which needs more text"""
    json: str | None = option(None, metavar="FILE")
    """check: write the report as JSON (-: to standard output)"""
    show: int = option(10, range=(0, MANY))
    """check: maximum rows of each file that are listed"""

    option_rules = (
        Needs("model", "action extract", "is for docmt terms extract: leave it out"),
        Needs("json", "action check", "is for docmt terms check: leave it out"),
        Needs("show", "action check", "is for docmt terms check: leave it out"),
    )


@dataclass
class _GlossaryReport:
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


def run_terms(options: TermsOptions) -> int:
    """Report on glossaries, convert them, or propose one."""
    check_outputs(options.output, options.json, inputs=options.files)
    if options.action == "check":
        return _check_glossaries(options)
    if not options.output:
        raise DocmtError(f"docmt terms {options.action} needs a file to write: add -o FILE.tsv or -o FILE.tbx")
    (_convert_glossaries if options.action == "convert" else _extract_terms)(options, options.output)
    return 0


def _extract_terms(options: TermsOptions, output: str) -> None:
    """Write the nouns, names and phrases that documents repeat, with their most frequent translations."""
    render = find_writer(output)
    documents = _read_documents(options)
    pairs = [pair for document in documents for pair in document]
    known = read_languages(options.model) if options.model else ("", "")
    languages = options.source_language or known[0], options.target_language or known[1]
    codes = [primary_language(code) or detect_language([pair[n] for pair in pairs]) for n, code in enumerate(languages)]
    lemmas = choose_lemma(codes[0]), choose_lemma(codes[1])
    phrases = find_repeated_phrases([source for source, _ in pairs], codes[0], lemmas[0])
    if options.model:
        texts = [(document.source, document.target) for document in documents]
        links: Links = dict(enumerate(link_words(decoding.Translator(options.model), texts)))
    else:
        links = link_by_counts(pairs, (codes[0], codes[1]), lemmas)
    found = find_renderings(pairs, phrases, links, codes[1], lemmas[1])
    found = [phrase for phrase in found if phrase.total >= _LEAST_USES and len(phrase.groups[0]) > 1]
    found.sort(key=lambda phrase: (len(phrase.groups[0]) - phrase.total, -phrase.total, phrase.text))
    terms: dict[str, Term] = {}
    for phrase in found:
        (target, problem), *others = [
            clean_text(most_common_text([each.text for each in group])) for group in phrase.groups
        ]
        counts = [f"{text} ({len(group)})" for (text, _), group in zip(others, phrase.groups[1:], strict=True)]
        note = f"{len(phrase.groups[0])} of {phrase.total}; {', '.join(counts[:_MOST_OTHERS])}".removesuffix("; ")
        if not problem and ALTERNATIVES not in target:
            terms.setdefault(phrase.text, Term(phrase.text, (target,), note=note))
    if not terms:
        raise DocmtError(f"{options.files[0]} repeats no noun or name with a known translation: give more text")
    write_text(output, render(Glossary((codes[0], codes[1]), tuple(terms.values()))))
    _log.info(f"terms in {output}: {len(terms):,}; read them before use, the least consistent are first")


def _read_documents(options: TermsOptions) -> list[ParallelDocument]:
    """Return documents and their translations. Raises DocmtError for files that cannot be read or paired."""
    paths = options.files
    if len(paths) > 2:
        raise DocmtError("docmt terms extract reads a file and its translation, or one file with both: name these only")
    if len(paths) == 1 and plain_name(paths[0]).lower().endswith(".tmx"):
        file, wanted = read_entries(paths[0]), (options.source_language, options.target_language)
        if not all(wanted):
            raise DocmtError(f"{paths[0]} has several languages: add --from CODE and --to CODE")
        rows = [[[each.text for each in unit.words if is_same_language(each.language, code)] for code in wanted]
                for unit in file.entries]  # fmt: skip
        sides = [[side[number][0] for side in rows if all(side)] for number in (0, 1)]
        if not sides[0]:
            raise DocmtError(
                f"{paths[0]} has no sentence in both {' and '.join(wanted)}: docmt terms check lists its languages"
            )
        return [ParallelDocument(paths[0], tuple(sides[0]), tuple(sides[1]))]
    paired = read_translation(Path(paths[0]), Path(paths[1]) if len(paths) > 1 else None)
    for finding in paired.findings:
        _log.warning(f"{finding.sentences[0].document}: skipped: {finding.message}")
    return paired.documents


def _convert_glossaries(options: TermsOptions, output: str) -> None:
    render = find_writer(output)
    glossary = Glossary.read(*options.files, languages=(options.source_language, options.target_language))
    write_text(output, render(glossary))
    if glossary.skipped:
        rows, first = len(glossary.skipped), glossary.skipped[0]
        skipped = "1 row is" if rows == 1 else f"{rows:,} rows are"
        _log.warning("%s skipped (first: %s, line %d: %s)", skipped, first.path, first.line, first.reason)


def _check_glossaries(options: TermsOptions) -> int:
    if options.output:
        raise DocmtError("-o is for docmt terms convert: leave it out, or write the report with --json FILE")
    languages = options.source_language, options.target_language
    reports = [_check_glossary(path, languages) for path in options.files]
    if options.json and any(report.format for report in reports):
        write_json(options.json, {"files": [asdict(report) for report in reports]})
    print_table(options, "\n".join(line for report in reports for line in _format_report(report, options.show)))
    errors = [error for report in reports for error in report.errors]
    if not errors and all(languages):  # files may contradict each other
        Glossary.read(*options.files, languages=languages)
    for error in errors[: max(options.show, 1)]:
        _log.error(error)
    return USAGE_ERROR if errors else 0


def _check_glossary(path: str, wanted: tuple[str, str]) -> _GlossaryReport:
    report = _GlossaryReport(path)
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


def _format_report(report: _GlossaryReport, most: int) -> Iterator[str]:
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
