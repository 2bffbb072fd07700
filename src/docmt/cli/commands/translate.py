"""docmt translate, and docmt demo, which translates a document of the package."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from importlib import resources
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from docmt import decoding
from docmt.checking.languages import detect_language
from docmt.cli.model_arguments import SearchOptions, TermOptions, load_engine, log_use, read_languages
from docmt.cli.output import Report, TranslationJob, TranslationWriter, check_alignments, check_outputs, is_resumable
from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.files import make_directory
from docmt.core.plain_text import STANDARD, decode_utf8, find_suffix, plain_name, read_bytes, write_bytes, write_text
from docmt.core.progress import plain_progress
from docmt.core.settings import CheckedSettings, Excludes, Needs, option
from docmt.decoding import SearchConfig
from docmt.decoding.file_translation import FileConfig, FileTranslation, align_parts, check_bilingual, read_file
from docmt.decoding.translation_results import PartialTranslation
from docmt.documents import Document, InputFile, read_input
from docmt.documents.document import Layout
from docmt.documents.input_formats import (
    FORMATS,
    FileFormat,
    FormatName,
    find_content_suffix,
    find_format,
    find_format_of_name,
    guess_markup,
    has_jsonl_name,
    is_refused,
)
from docmt.documents.segmentation import DEFAULT_LANGUAGE, knows_language
from docmt.formats.language_codes import is_same_language

if TYPE_CHECKING:
    from docmt.decoding.document_translator import DocumentTranslator

_log = logging.getLogger(__name__)

_SUFFIX_FORMATS = {".txt": "text", ".jsonl": "jsonl"}
GROUP_DOCUMENTS = 64  # maximum documents of several files that are batched together


@dataclass(frozen=True)
class InputConfig(CheckedSettings, prefix="input."):
    """Reading of the input files."""

    layout: Layout = "auto"
    """format of the input: text, lines (one sentence a line), jsonl, or auto"""
    language: str = ""
    """language code for sentence segmentation (default: that of the model, or en)"""
    join_lines: bool = False
    """join hard-wrapped lines of a paragraph (otherwise every line ends a sentence)"""

    option_rules = (Excludes("join_lines", "layout lines", "needs running text, not {}: leave one of them out"),)


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions, TermOptions):
    """docmt translate MODEL FILE... -o OUT

    Translate documents: text, Markdown, JSONL, HTML, docx, pptx, xlsx, odt, epub, subtitles, XLIFF, PO, JSON,
    notebooks, tables. There is one target sentence for each source sentence, and layout and markup are kept. JSONL
    input has one object a line, {"id": "a", "source": ["One.", "Two."]}, {"id": "a", "text": "One. Two."}, or
    {"document": "a", "source": "One."}.

    usage:
        MODEL [FILE ...] [options]

    examples:
        docmt translate MODEL report.docx -o bericht.docx
        docmt translate MODEL *.html -o translated/ --beam 4
        docmt translate MODEL book.txt -o buch.txt --resume
        cat report.txt | docmt translate MODEL --format jsonl > report.jsonl

    common:
        output format fields protect terms terms_mode terms_report consistent memory reuse bilingual report resume
        search.beam input.layout device
    """

    model: str = option(positional=True, metavar="MODEL")
    """model, run directory, ensemble M1,M2 or endpoint:PROFILE"""
    files: list[str] = option([], positional=True, metavar="FILE")
    """input files (default: standard input, also -)"""
    output: str = option(STANDARD, flags=("-o",), metavar="PATH")
    """output file (x.gz, x.zst: compressed), or directory for several files (-: standard output)"""
    format: Literal["auto", "text", "jsonl", FormatName] = "auto"
    """auto: that of the input, by its name and content; jsonl: one JSON object a sentence"""
    alignments: bool = False
    """add the positions of aligned words to each record (jsonl)"""
    fields: list[str] = option([], metavar="NAME")
    """JSON paths (menu.*.title), columns or front-matter keys to translate"""
    bilingual: str = option("", metavar="FILE")
    """also write source and translation side by side: x.html, x.xlf or x.tmx"""
    report: str = option("", metavar="FILE")
    """list what was not translated in files with markup"""
    terms_report: str = option("", metavar="FILE")
    """list each occurrence of a term, tab-separated"""
    consistent: bool = False
    """translate what a document repeats as it mostly does"""
    reuse: list[str] = option([], metavar="FILE")
    """the same with an earlier version and its translation"""
    resume: bool = False
    """continue what was interrupted, with the same options"""
    dry_run: bool = False
    """show the first two requests to a server and an estimate, and send nothing"""
    input: InputConfig = InputConfig()
    """reading of the input files"""
    search: SearchConfig = SearchConfig()
    """beam search"""

    option_rules = (Needs("terms_mode", "terms"),)


def run_translate(options: TranslateOptions) -> int:
    """Translate files. Return 2 if any of them failed."""
    outputs = _outputs(options)
    if options.terms_report and not (options.terms or options.consistent):
        raise DocmtError("--terms-report lists the terms of --terms or --consistent: add one, or leave it out")
    check_bilingual(options.bilingual)
    if options.bilingual and len(outputs) > 1:
        raise DocmtError(f"--bilingual is one file, but there are {len(outputs)} inputs: translate them one by one")
    _check_formats(options, [_output_format(options.format, options.input.layout, *names) for names in outputs.items()])
    if options.input.language and not knows_language(options.input.language):
        _log.warning(
            f"--input.language {options.input.language}: there are no segmentation rules for this language; those of "
            "English are used"
        )
    for output in outputs.values() if options.resume else ():
        if not is_resumable(output):
            name = "standard output" if output == STANDARD else f"{output}, a device or pipe"
            raise DocmtError(f"--resume cannot continue {name}; write to a file with -o FILE")
    languages = read_languages(options.model)
    report = Report()
    language = options.input.language or languages[0] or DEFAULT_LANGUAGE
    fields = tuple(options.fields)
    markup = FileConfig(*languages, language, fields, options.bilingual, protect=options.patterns)
    files = _read(outputs, replace(options.input, language=language), options.format, markup, report.failures)
    _check_formats(options, [file.format for file in files])
    for file in files:
        _warn_of_language(file, language, languages[1])
    translator = load_engine(options)  # last, because a large model takes minutes
    if options.dry_run:
        return _preview(translator, files)
    fingerprint = _fingerprint(translator, files, options)
    writers = [TranslationWriter(file, fingerprint, options.resume, report) for file in files]
    if options.resume:
        _log_repeated(writers)
    # A progress bar would be mixed with a translation on the terminal.
    prints_translation = _is_terminal() and any(file.output == STANDARD for file in files)
    with plain_progress() if prints_translation else nullcontext():
        written = _write(translator, writers, report, options.alignments)
    _report_skipped(files, options.report)
    status = report.log(len(outputs), written, "files", "translated")
    log_use(translator)
    _log_partial(writers)
    if options.terms or options.consistent:
        report.log_terms(options.terms_report, options.terms_mode)
    if options.memory or options.reuse:
        report.log_memory()
    return status


def _preview(translator: DocumentTranslator, files: Sequence[TranslationJob]) -> int:
    """Print what a server would be asked. Raises DocmtError for a model, which is asked nothing."""
    from docmt.engines import EndpointTranslator

    if not isinstance(translator, EndpointTranslator):
        raise DocmtError("--dry-run shows requests to a server (endpoint:PROFILE): leave it out")
    print(translator.preview([document for file in files for document in file.documents]))
    return 0


def _log_repeated(writers: Iterable[TranslationWriter]) -> None:
    """Log which files are translated again although they exist."""
    for writer in writers:
        if writer.lacks_documents:
            _log.warning(f"{writer.file.output} lacks documents that failed: translating it again")
        elif not writer.begun and Path(writer.file.output).is_file():
            _log.warning(
                f"{writer.file.output} exists and has no unfinished part to resume: translating all of it again"
            )


def _log_partial(writers: Iterable[TranslationWriter]) -> None:
    """Log what OUT.partial is for, where failures left any."""
    if paths := [writer.partial for writer in writers if writer.partial]:
        count = len(paths) - 1
        others = f" (and {count} {'other' if count == 1 else 'others'})" if count else ""
        advice = "which translates only documents that failed: delete it otherwise"
        _log.warning(f"{paths[0]}{others} is for --resume, {advice}")


def _check_formats(options: TranslateOptions, formats: Iterable[str]) -> None:
    """Raise DocmtError for n-best output or alignments in a format with one translation a sentence."""
    formats = set(formats)
    if options.search.n_best > 1 and formats - {"jsonl"}:
        raise DocmtError("--search.n-best above 1 needs --format jsonl: text has one translation a sentence")
    check_alignments(options.alignments, formats)


def _output_format(format: str, layout: str, source: str, output: str) -> str:
    """Return the output format, from the source layout and the file names if it is "auto"."""
    if format != "auto":
        return format
    return "jsonl" if layout == "jsonl" or has_jsonl_name(output) or has_jsonl_name(source) else "text"


def _fingerprint(
    translator: DocumentTranslator, files: Sequence[TranslationJob], options: TranslateOptions
) -> dict[str, Any]:
    """Return model and options, which must be equal to resume; nothing if no output can be resumed."""
    if not any(is_resumable(file.output) for file in files):
        return {}
    others = {"--fields": options.fields, "--bilingual": options.bilingual, "--consistent": options.consistent}
    return {**translator.settings, "--alignments": options.alignments, **others}


def _is_terminal() -> bool:
    """Return whether standard output is shown."""
    return sys.stdout is not None and sys.stdout.isatty()


def _write(
    translator: DocumentTranslator, writers: Sequence[TranslationWriter], report: Report, alignments: bool
) -> int:
    """Translate files and write the results. After an interruption, log how to resume.

    Returns the number of files with a translation. After failures, finished outputs keep their OUT.partial, so that
    `--resume` does not translate them again.
    """
    try:
        earlier = Counter[int]()  # of equal documents, whose samples differ
        for group in _groups(writers):
            _translate(translator, group, alignments, earlier)
        written = sum([writer.finish() for writer in writers])
        for writer in writers if not report.failures else ():
            writer.remove()
        return written
    except BaseException:
        if paths := [writer.unfinished for writer in writers if writer.unfinished]:
            _log.warning(f"finished parts are in {', '.join(paths)}: run the same command with --resume to continue")
        raise
    finally:
        for writer in writers:
            writer.close()


def _outputs(options: TranslateOptions) -> dict[str, str]:
    """Return the output path of each input path. Raises DocmtError for outputs that cannot or must not be written."""
    files, output, format = options.files or [STANDARD], options.output, options.format
    if len(files) > 1 and output == STANDARD:
        raise DocmtError(f"{len(files)} files need an output directory: add -o DIRECTORY")
    to_directory = len(files) > 1 or output.endswith(os.sep) or Path(output).is_dir()
    pairs = {file: str(Path(output) / _output_name(file, format)) if to_directory else output for file in files}
    if to_directory:
        if Path(output).suffix and not output.endswith(os.sep) and not Path(output).exists():
            raise DocmtError(
                f"{len(files)} files need a directory, but {output} looks like a file: name a directory, such as "
                f"out{os.sep} (a path that ends in {os.sep} is always one)"
            )
        if STANDARD in files:
            raise DocmtError("standard input has no name for a file in a directory: translate it alone with -o FILE")
        make_directory(Path(output))
    for one, other in pairwise(sorted(pairs.values())):
        if one == other:
            raise DocmtError(f"two files would both be written to {one}: translate them in two calls")
    inputs = [*files, *options.terms, *options.memory, *options.reuse, options.protect]
    check_outputs(*pairs.values(), options.bilingual, options.report, options.terms_report, inputs=inputs)
    return pairs


def _output_name(file: str, format: str) -> str:
    """Return the name of the output file: that of the input, with a suffix for another format."""
    name = Path(file).name
    stem = plain_name(name)
    if format == "text" and find_format(name) is not None:
        return f"{stem}.txt"
    if format in ("text", "jsonl") and has_jsonl_name(name) != (format == "jsonl"):
        stem += ".jsonl" if format == "jsonl" else ".txt"
    return stem + find_suffix(name)


def _read(
    outputs: dict[str, str], config: InputConfig, format: str, markup: FileConfig, failures: list[str]
) -> list[TranslationJob]:
    """Return the readable files. Errors of others are added to `failures`, or raised if there is only one file."""
    read = partial(read_input, language=config.language, join_lines=config.join_lines, protect=markup.protect or ())
    files = []
    for path, output in outputs.items():
        try:
            file = read_file(path, format, markup) if config.layout == "auto" else read_bytes(path)
            if isinstance(file, FileTranslation):
                files.append(_make_job(path, output, format, config, file))
                continue
            if markup.fields or markup.bilingual:
                name = "fields" if markup.fields else "bilingual"
                if path == STANDARD:
                    raise DocmtError(f"standard input has no name: add --format NAME for --{name} (tsv is also CSV)")
                raise DocmtError(f"{path}: --{name} is for files with markup, not for plain text and JSONL")
            _warn_of_markup(path, file, config.layout)
            text = decode_utf8(file, "standard input" if path == STANDARD else path)
            layout = "text" if format == "text" and is_refused(path, text) else config.layout
            input = read(path, layout=layout, text=text)
            if format == layout == "auto" and input.format == "text":
                _warn_of_markup_without_a_name(path, text)
            output_format = _output_format(format, input.format, "", output)
            _check_text_output(path, output, output_format, FORMATS["markdown"], find_format_of_name(path))
        except DocmtError as error:
            if len(outputs) == 1:
                raise
            failures.append(str(error))
            continue
        files.append(TranslationJob(path, output, output_format, input))
        _log_input_notes(files[-1])
    return files


def _check_text_output(path: str, output: str, format: str, *allowed: FileFormat | None) -> None:
    """Raise DocmtError for an output of text or JSONL whose suffix is that of a format which is not allowed."""
    if find_format_of_name(output) not in (None, *allowed):
        name, suffix = "standard input" if path == STANDARD else path, Path(plain_name(output)).suffix
        end = ".jsonl" if format == "jsonl" else ".txt"
        raise DocmtError(f"{name} is translated into {format}, but {output} ends in {suffix}: end it in {end}")


def _warn_of_markup(path: str, data: bytes, layout: Layout) -> None:
    """Warn if a layout of plain text is chosen for a file with markup."""
    format = find_format(path, data)
    if layout != "auto" and format:
        _log.warning(
            f"{path} is {format.name}, but --layout {layout} translates its markup like words: leave out --layout"
        )


def _warn_of_markup_without_a_name(path: str, text: str) -> None:
    """Warn if a text looks like a format that the name of the file does not tell."""
    if look := guess_markup(text):
        name = "standard input" if path == STANDARD else path
        advice = f"add --format {look}" if look in FORMATS else "save it as Markdown, HTML, srt or JSON"
        _log.warning(f"{name} looks like {look} but is translated as text: {advice}, or --format text if it is text")


def _make_job(path: str, output: str, format: str, config: InputConfig, file: FileTranslation) -> TranslationJob:
    """Return the job of a file with markup. Raises DocmtError for an output of another format."""
    if config.join_lines:
        raise DocmtError(f"{path} is {file.format.name}, where paragraphs are marked: leave out --join-lines")
    if format == "auto":
        suffix = find_content_suffix(output)
        has_equal_name = suffix == find_content_suffix(path) != ""
        format = file.format.name if has_equal_name else _SUFFIX_FORMATS.get(suffix, file.format.name)
        if has_equal_name and find_format_of_name(path) is None:
            _log.warning(f"{path} is {format} by its content, and stays so; --format text writes its words only")
    if format == file.format.name:
        file.check_output(output)
        if file.is_package and output == STANDARD and _is_terminal():
            raise DocmtError(f"{path}: a {format} file cannot be shown on the terminal: add -o FILE")
    else:
        _check_text_output(path, output, format, FORMATS["markdown"])
        if file.bilingual:
            names = f"{file.format.name}, not {format}"
            raise DocmtError(f"{path}: --bilingual needs output in {names}: leave out one of them")
    return TranslationJob(path, output, format, InputFile("text", file.documents), file)


def _report_skipped(files: Sequence[TranslationJob], path: str) -> None:
    """Log how much of files with markup is not translated, and write the list to a path."""
    lines: list[str] = []
    for file in files:
        if file.markup is None:
            continue
        counts = file.markup.units.count_skipped()
        if file.markup.misplaced:
            counts["codes without a word, now at the end of their paragraph"] = len(file.markup.misplaced)
        if counts:
            parts = ", ".join(f"{count} x {reason}" for reason, count in counts.items())
            _log.info(f"{file.name}: not translated: {parts}{'' if path else ' (--report FILE lists them)'}")
        if not any(map(len, file.documents)):
            _log.warning(f"{file.name}: there is no text to translate")
        lines += file.markup.report_lines()
    if path:
        write_text(path, "".join(lines))


def _warn_of_language(file: TranslationJob, source: str, target: str) -> None:
    """Warn of a file that is in the language of the translation already."""
    found = detect_language(text for document in file.input.documents for text in document.sentences[:1000])
    if found and is_same_language(found, target) and not is_same_language(source, target):
        _log.warning(f"{file.name} seems to be in {found} already: give the text in {source}, or another model")


def _log_input_notes(file: TranslationJob) -> None:
    """Log what was not translated in a file, and whether it looks hard-wrapped."""
    if count := file.input.code_lines:
        _log.info(f"{file.name}: not translated: {count} lines of code")
    if file.input.looks_wrapped:
        _log.warning(
            f"{file.name}: looks hard-wrapped (its lines end in the middle of sentences, and each is translated as a "
            "sentence): add --join-lines"
        )


def _groups(writers: Sequence[TranslationWriter]) -> list[list[TranslationWriter]]:
    """Group the files, in order, with at most `GROUP_DOCUMENTS` documents in groups of several files."""
    groups: list[list[TranslationWriter]] = []
    for writer in writers:
        documents = len(writer.file.documents)
        if not groups or sum(len(other.file.documents) for other in groups[-1]) + documents > GROUP_DOCUMENTS:
            groups.append([])
        groups[-1].append(writer)
    return groups


def _translate(
    translator: DocumentTranslator, writers: Sequence[TranslationWriter], alignments: bool, earlier: Counter[int]
) -> None:
    """Translate the documents of these files. Failed parts do not stop the others. earlier: equal ones."""
    sizes = [len(document) for writer in writers for document in writer.file.documents]
    documents = [document for writer in writers for document in writer.file.documents]
    copies = translator.count_copies(documents, earlier)
    starts = [0, *accumulate(len(writer.file.documents) for writer in writers)]
    done = {}
    for start, writer in zip(starts, writers, strict=False):
        resume_points = writer.begin()
        done.update({start + number: point for number, point in resume_points.items()})
        if resume_points:
            finished = sum(point.sentences for point in resume_points.values())
            total = sum(map(len, writer.file.documents))
            _log.info(f"{writer.file.name}: {finished:,} of {total:,} sentences are done")
    if all(number in done and done[number].sentences == size for number, size in enumerate(sizes)):
        return
    for parts in translator.stream_parts(documents, copies=copies, resume_points=done):
        parts = _align(translator, parts) if alignments else parts
        for number, group in groupby(parts, lambda part: bisect_right(starts, part.document) - 1):
            file_parts = [replace(part, document=part.document - starts[number]) for part in group]
            file = writers[number].file
            if file.rendered is not None:
                file_parts = align_parts(file_parts, file.rendered, translator.align)
            writers[number].add(file_parts)


def _align(translator: DocumentTranslator, parts: Sequence[PartialTranslation]) -> list[PartialTranslation]:
    """Return the parts with links. A part that cannot be aligned has an error instead of its translation."""
    return [
        replace(part, translation=None, error=result) if isinstance(result, DocmtError) else result
        for part, result in zip(parts, map_or_error(parts, translator.align), strict=True)
    ]


# docmt demo

_MODEL = "en-fr"
_DOCUMENT = "demo.docx"


@dataclass(frozen=True)
class DemoOptions:
    """docmt demo

    Translate a document of the package, two pages of Word, with the English-French model of the package. Both sides are
    shown, and what the model translates otherwise without the sentences before.

    usage:
        [-o DIRECTORY]

    examples:
        docmt demo
    """

    output: Path = option(Path("docmt-demo"), flags=("-o",), metavar="DIRECTORY")
    """directory for the document and its translation"""


def run_demo(options: DemoOptions) -> int:
    """Translate the document of the package and show both sides. Raises DocmtError if the package has no model."""
    started, console = time.monotonic(), Console()
    if options.output.is_file():
        raise DocmtError(f"-o {options.output} is a file: name a directory")
    # imported here because torch loads slowly
    from docmt.checkpoint.model_names import find_named_model, find_package_model

    if (model := find_package_model(_MODEL) or find_named_model(_MODEL)) is None:
        advice = f"get one with `docmt pull Helsinki-NLP/opus-mt-{_MODEL}`"
        raise DocmtError(f"this docmt has no model {_MODEL} in its package: {advice}")
    source, target = options.output / "directive.docx", options.output / "directive.fr.docx"
    make_directory(options.output)
    if not source.exists():  # perhaps with changes of the user
        write_bytes(source, resources.files("docmt.cli").joinpath(_DOCUMENT).read_bytes())
    _say(console, f"translating {source} with the model {_MODEL}, which reads the sentences before")
    translator = decoding.Translator(model)
    translations = translator.translate_file(source, target)
    sentences = [sentence for translation in translations for sentence in translation.sentences]
    alone = translator.translate_all([Document.from_sentences([sentence.source]) for sentence in sentences])
    table = Table("English", "French ([bold green]\\[changed by context][/])", "without context")
    for sentence, other in zip(sentences, alone, strict=True):
        table.add_row(Text(sentence.source), *_mark_changes(sentence.target, other.sentences[0].target))
    console.print(table)
    _say(console, f"{time.monotonic() - started:.0f} seconds; the translated file is {target}")
    command = "docmt" if shutil.which("docmt") else sys.argv[0]  # as it was called, outside of an environment
    _say(console, f"try: {command} translate {_MODEL} YOUR_FILE.docx -o TRANSLATION.docx")
    return 0


def _mark_changes(target: str, other: str) -> tuple[Text, Text]:
    """Return two translations of a sentence, with the words that differ in brackets; the other is empty if equal."""
    words, other_words = target.split(), other.split()
    marked, other_marked = Text(), Text()
    blocks = SequenceMatcher(None, words, other_words, autojunk=False).get_opcodes()
    for kind, start, end, other_start, other_end in blocks:
        for word in words[start:end]:
            marked.append(*((f"{word} ",) if kind == "equal" else (f"[{word}] ", "bold green")))
        for word in other_words[other_start:other_end] if other != target else ():
            other_marked.append(*((f"{word} ",) if kind == "equal" else (f">{word}< ", "bold red")))
    return marked, other_marked


def _say(console: Console, text: str) -> None:
    console.print(Text(printable(f"docmt demo: {text}")))
