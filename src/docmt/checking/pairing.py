"""Read a source and its translation, and pair their sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Literal

from docmt.checking.findings import CheckConfig, Finding, MarkedSentence
from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import STANDARD, read_bytes
from docmt.documents import ParallelDocument
from docmt.documents.corpus_files import read_filled, read_hypothesis
from docmt.documents.document import read_input
from docmt.documents.input_formats import FileFormat, check_name, find_format, find_format_of_name, is_jsonl
from docmt.formats.readable_units import make_readable
from docmt.formats.unit_documents import UnitDocuments
from docmt.formats.units import ReadConfig, Unit, UnitFile, read_units

Layout = Literal["auto", "text"]
Segment = tuple[str, Sequence[str]]
"""A line or unit: its text, and its sentences."""
_MAX_EXAMPLES = 3


@dataclass(frozen=True)
class PairedDocuments:
    """The documents of a source and its translation.

    `findings` holds one for each document whose sides have different numbers of sentences; those are not in
    `documents`.
    """

    documents: list[ParallelDocument]
    findings: list[Finding]


def read_translation(
    source: Path, target: Path | None, layout: Layout = "auto", config: CheckConfig | None = None
) -> PairedDocuments:
    """Read a source file and its translation, or a file with both sides: JSONL, a catalog (PO), or XLIFF.

    layout: "text" is running text in the languages of the configuration (default: English), "auto" paragraphs of
    Markdown, office documents, web pages, books and subtitles, and one sentence a line otherwise.
    Raises DocmtError for files that cannot be read or paired, and for sides with different numbers of
    documents.
    """
    if STANDARD in (str(source), str(target)):
        raise DocmtError("standard input cannot be checked, as files are read more than once: name a file")
    config = config or CheckConfig()
    if target is None and not is_jsonl(source):
        return _pair_messages(source, config)
    if layout == "text":
        if target is None or is_jsonl(source):
            raise DocmtError(f"{source} is JSONL, not running text. Leave --layout out.")
        return _pair_running_text(source, target, config)
    if target is not None:
        formats = [_find_format(path) for path in (source, target)]
        if any(each and each.is_checked for each in formats):
            return _pair_units((source, target), formats, config)
        for path, format in zip((source, target), formats, strict=True):
            if format and format.reader and format.description:
                raise DocmtError(
                    f"{path} is {format.description}, which docmt check does not read. It reads a PO or XLIFF file "
                    "with its translations alone, what docmt translate writes with --format jsonl, or plain text with "
                    "--layout text."
                )
    check_name(source)
    sources = list(read_filled(source, "source"))
    source_documents = [document.sentences for document in sources]
    if target is None:
        target_documents = [document.sentences for document in read_filled(source, "target")]
    else:
        check_name(target)
        target_documents = read_hypothesis(target, source, source_documents, "source")
    for file, side in ((source, source_documents), (target, target_documents)):
        if file and not any(map(len, side)):
            raise DocmtError(f"{file} has no sentences to check. Name a file with text.")
    if len(source_documents) != len(target_documents):
        raise DocmtError(
            f"{source} has {len(source_documents)} documents but {target} has {len(target_documents)}. "
            "Give the same documents in the same order, or --layout text for running text."
        )
    documents, findings = [], []
    for number, (document, translated) in enumerate(zip(sources, target_documents, strict=True), 1):
        if len(document.rows) == len(translated):
            lines = () if is_jsonl(source) else tuple(line for line, _ in document.rows)
            documents.append(ParallelDocument(document.id, document.sentences, translated, number, lines))
        else:
            findings.append(_report_miscount(document.id, document.sentences, translated))
    return PairedDocuments(documents, findings)


def _report_miscount(id: str, source: Sequence[str], target: Sequence[str], unit: str = "sentences") -> Finding:
    """Return the finding for a document with different numbers of sentences, with its last sentences."""
    last = max(len(source), len(target))
    examples = range(max(0, last - _MAX_EXAMPLES), last)
    pairs = list(zip_longest(source, target, fillvalue=""))
    sentences = tuple(MarkedSentence(id, index + 1, 0, *pairs[index]) for index in examples)
    message = f"{len(source)} source {unit} but {len(target)} target {unit}; the document is not checked further"
    return Finding("sentence_count", message, sentences, "sure")


def _find_languages(config: CheckConfig) -> tuple[str, str]:
    return config.source_language or "en", config.target_language or "en"


def _pair_running_text(source: Path, target: Path, config: CheckConfig) -> PairedDocuments:
    """Pair the sentences of two files of running text, line by line.

    Lines without text may be more or fewer in one file. Raises DocmtError if lines cannot be paired.
    """
    paths = zip((source, target), _find_languages(config), strict=True)
    sides = [_read_lines(path, language, config.protect) for path, language in paths]
    if len(sides[0]) != len(sides[1]):
        sides = [[row for row in side if row[1][1]] for side in sides]
        if len(sides[0]) != len(sides[1]):
            raise DocmtError(
                f"{source} has {len(sides[0])} lines of text but {target} has {len(sides[1])}. "
                "Give a translation that keeps the lines, or files with one sentence a line."
            )
    rows = ((number, segment, other) for (number, segment), (_, other) in zip(*sides, strict=True))
    document = _pair_segments(source.name, 1, rows)
    if not document:
        raise DocmtError(f"{source} has no sentences to check. Name a file with text.")
    return PairedDocuments([document], [])


def _read_lines(path: Path, language: str, protect: Sequence[str]) -> list[tuple[int, Segment]]:
    """Return the lines of running text with their numbers."""
    [document] = read_input(path, layout="text", language=language, protect=protect).documents
    breaks = accumulate(gap.count("\n") for gap in document.gaps)
    sentences = group_pairs(zip(breaks, document.sentences, strict=False))
    lines = document.text().removesuffix("\n").split("\n")
    return [(number + 1, (line, sentences.get(number, ()))) for number, line in enumerate(lines)]


def _pair_segments(id: str, number: int, rows: Iterable[tuple[int, Segment, Segment]]) -> ParallelDocument:
    """Return the document of pairs of lines or units, each with the number of its line, or 0."""
    pairs = [(line, *pair) for line, source, target in rows for pair in _pair_sentences(source, target)]
    sources, targets = tuple(source for _, source, _ in pairs), tuple(target for _, _, target in pairs)
    return ParallelDocument(id, sources, targets, number, tuple(line for line, _, _ in pairs if line))


def _pair_sentences(source: Segment, target: Segment) -> list[tuple[str, str]]:
    """Pair the sentences of a line or unit; its whole texts are one pair if their numbers differ.

    Nothing is paired if no side has words.
    """
    if not source[1] and not target[1]:
        return []
    sides = [sentences or [text.strip()] for text, sentences in (source, target)]
    if len(sides[0]) != len(sides[1]):
        sides = [[" ".join(sentences)] for sentences in sides]
    return list(zip(*sides, strict=True))


def _pair_units(paths: tuple[Path, Path], formats: Sequence[FileFormat | None], config: CheckConfig) -> PairedDocuments:
    """Pair the sentences of two files of one format, unit by unit.

    Chapters with different numbers of units are findings. Raises DocmtError if the files have different formats or
    numbers of chapters, or cannot be read.
    """
    named = list(zip(paths, formats, strict=True))
    names = (f"{path} is {each.name if each else 'JSONL' if is_jsonl(path) else 'text'}" for path, each in named)
    if len({each and each.module for each in formats}) > 1:
        raise DocmtError(f"{' but '.join(names)}. Give both in the same format.")
    protect = ReadConfig(protect=config.protect)
    files = [read_units(format, read_bytes(path), str(path), protect) for path, format in named if format]
    sides = [_read_chapters(*side, config.protect) for side in zip(files, _find_languages(config), strict=True)]
    if len(sides[0]) != len(sides[1]):
        raise _refuse_counts(paths, [len(side) for side in sides], "chapters")
    documents, findings = [], []
    for number, chapter in enumerate(zip(*sides, strict=True), 1):
        id = f"{paths[0].name} {number}" if len(sides[0]) > 1 else paths[0].name
        if len(chapter[0]) == len(chapter[1]):
            documents.append(_pair_segments(id, number, ((0, *pair) for pair in zip(*chapter, strict=True))))
        elif len(sides[0]) == 1:
            raise _refuse_counts(paths, [len(segments) for segments in chapter], "paragraphs (and cells, labels)")
        else:
            texts, others = ([text for text, _ in segments] for segments in chapter)
            findings.append(_report_miscount(id, texts, others, "paragraphs"))
    if not findings and not any(map(len, documents)):
        raise DocmtError(f"{paths[0]} has no sentences to check. Name a file with text.")
    return PairedDocuments(documents, findings)


def _pair_messages(path: Path, config: CheckConfig) -> PairedDocuments:
    """Pair the sentences of the translated units of a file that has both sides; see `UnitFile.list_pairs`."""
    format, units = _find_format(path), None
    if format and format.reader and not format.has_fields:
        units = read_units(format, read_bytes(path), str(path), ReadConfig(protect=config.protect)).list_pairs()
    if units is None:
        raise DocmtError(f"{path} has only one side. Name the file with its translation too.")
    (source, target), protect = _find_languages(config), config.protect
    rows = (
        (0, _read_segment(each.source, source, protect), _read_segment(each.target, target, protect)) for each in units
    )
    document = _pair_segments(path.name, 1, rows)
    if not document:
        raise DocmtError(f"{path} has no finished translation to check. Fuzzy messages are left out.")
    return PairedDocuments([document], [])


def _find_format(path: Path) -> FileFormat | None:
    """Return the format of a file, by its name or its content."""
    return find_format_of_name(path) or find_format(STANDARD, read_bytes(path))


def _read_segment(unit: Unit, language: str, protect: Sequence[str]) -> Segment:
    """Return a unit with its placeholders as text."""
    readable = make_readable(unit, protect)
    text = readable.unit.text
    return text, [text[slice(*span)] for span in readable.find_sentences(language, protect)]


def _read_chapters(file: UnitFile, language: str, protect: Sequence[str]) -> list[list[Segment]]:
    """Return the units of each chapter."""
    cut = UnitDocuments(file, language, protect=protect)
    documents = zip(cut.documents, cut.sentences, strict=True)
    pairs = (pair for document, spans in documents for pair in zip(spans, document.sentences, strict=True))
    sentences = group_pairs((span.unit, sentence) for span, sentence in pairs)
    segments: list[Segment] = [(each.unit.text, sentences.get(unit, ())) for unit, each in enumerate(cut.units)]
    return [segments[first:last] for first, last in pairwise([*file.document_starts, len(file.units)])]


def _refuse_counts(paths: tuple[Path, Path], counts: Sequence[int], unit: str) -> DocmtError:
    """Return the error for two files with different numbers of a unit."""
    return DocmtError(
        f"{paths[0]} has {counts[0]} {unit} but {paths[1]} has {counts[1]}. Give a translation that keeps them, or "
        "files with one sentence a line."
    )
