"""Read a source and its translation, and pair their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Literal

from docmt.checking.findings import CheckConfig, Finding, MarkedSentence
from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK, STANDARD, read_bytes, read_lines, read_text
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus_files import read_hypothesis
from docmt.documents.input_formats import FORMATS, FileFormat, check_name, find_format, find_format_of_name, is_jsonl
from docmt.formats.markdown_texts import find_blocks
from docmt.formats.subtitles import SubtitleFile
from docmt.formats.unit_documents import UnitDocuments
from docmt.formats.units import UnitFile, read_units

Layout = Literal["auto", "lines", "text"]
Group = tuple[list[int], list[int]]
"""(units of the source, units of the translation)"""
_MAX_EXAMPLES = 3
_BEGINNING = 4096
"""Bytes of a file that show its format."""
_TABLE = re.compile(r"(?=[^-]*-)(?=[^|]*\|)[ |:-]+")
"""The line between the header of a Markdown table and its cells."""


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
    """Read a source file and its translation, or a JSONL file with both sides.

    layout: "lines" is one sentence a line, "text" running text in the languages of the configuration (default:
    English), "auto" paragraphs of office documents, web pages, books and subtitles, running text for Markdown, and
    lines otherwise. Raises DocmtError for files that cannot be read or paired, and for sides with different numbers of
    documents.
    """
    if STANDARD in (str(source), str(target)):
        raise DocmtError("standard input cannot be checked, as files are read more than once: name a file")
    if target is None and not is_jsonl(source):
        raise DocmtError(f"{source} has only one side. Name the file with its translation too.")
    config = config or CheckConfig()
    languages = config.source_language or "en", config.target_language or "en"
    if target and layout != "text":
        formats = [_detect_format(path) for path in (source, target)]
        if any(each and each.is_checked and each.name != "markdown" for each in formats):
            return _pair_units((source, target), formats, layout, languages)
    if layout == "text" or (layout == "auto" and _is_markdown(source)):
        if target is None or is_jsonl(source):
            raise DocmtError(f"{source} is JSONL, not running text. Leave --layout out.")
        return _pair_running_text(source, target, languages)
    check_name(source)
    named_documents = list(read_documents(source, "source"))
    source_documents = [sentences for _, sentences in named_documents]
    if target is None:
        target_documents = [sentences for _, sentences in read_documents(source, "target")]
    else:
        check_name(target)
        target_documents = read_hypothesis(target, source, source_documents, "source")
    if not any(map(len, source_documents)):
        raise DocmtError(f"{source} has no sentences to check. Name a file with text.")
    if target and not any(map(len, target_documents)):
        raise DocmtError(f"{target} has no sentences to check. Name a file with text.")
    if len(source_documents) != len(target_documents):
        raise DocmtError(
            f"{source} has {len(source_documents)} documents but {target} has {len(target_documents)}. "
            "Give the same documents in the same order, or --layout text for running text."
        )
    documents, findings = [], []
    paired = zip(named_documents, target_documents, _line_numbers(source, source_documents), strict=True)
    for number, ((id, sentences), translated, lines) in enumerate(paired, 1):
        if len(sentences) == len(translated):
            documents.append(ParallelDocument(id, tuple(sentences), tuple(translated), number, lines))
        else:
            findings.append(_report_miscount(id, sentences, translated))
    return PairedDocuments(documents, findings)


def _report_miscount(id: str, source: Sequence[str], target: Sequence[str], what: str = "sentences") -> Finding:
    """Return the finding for a document with different numbers of sentences, with its last sentences."""
    last = max(len(source), len(target))
    examples = range(max(0, last - _MAX_EXAMPLES), last)
    pairs = list(zip_longest(source, target, fillvalue=""))
    sentences = tuple(MarkedSentence(id, index + 1, 0, *pairs[index]) for index in examples)
    message = f"{len(source)} source {what} but {len(target)} target {what}; the document is not checked further"
    return Finding("sentence_count", message, sentences, "sure")


def _line_numbers(path: Path, documents: Sequence[Sequence[str]]) -> list[tuple[int, ...]]:
    """Return the line of each sentence of a text file, or nothing for JSONL."""
    if is_jsonl(path):
        return [() for _ in documents]
    numbered = read_lines(path)
    return [
        tuple(next(number for number, line in numbered if line.strip() == sentence) for sentence in document)
        for document in documents
    ]


def _pair_running_text(source: Path, target: Path, languages: tuple[str, str]) -> PairedDocuments:
    """Pair the sentences of two files of running text, line by line.

    Markdown is paired by paragraphs and cells if its lines have text in other places, as translations join the lines of
    a paragraph, or if it has tables. Raises DocmtError if lines cannot be paired.
    """
    paths = source, target
    documents = [_read_running_text(path, language) for path, language in zip(paths, languages, strict=True)]
    source_lines, target_lines = map(_sentences_by_line, documents)
    lines = [document.text().split("\n") for document in documents]
    if all(map(_is_markdown, paths)):
        has_table = any(_TABLE.fullmatch(line) for side in lines for line in side)
        are_broken_alike = [not line.strip() for line in lines[0]] == [not line.strip() for line in lines[1]]
        if has_table or not (are_broken_alike or source_lines.keys() == target_lines.keys()):
            files = [read_units(FORMATS["markdown"], read_bytes(path), str(path)) for path in paths]
            rows = {sum("|" in line for line in side) for side in lines}
            if len(files[0].units) == len(files[1].units) or (has_table and len(rows) > 1):
                return _pair_files(paths, files, languages)
    counts = {len(document.text().rstrip("\n").split("\n")) for document in documents}
    if len(counts) == 1 or len(lines[0]) == len(lines[1]):
        _add_missing(source_lines, target_lines, *lines, first=1)
    if len(source_lines) != len(target_lines):
        raise DocmtError(
            f"{source} has {len(source_lines)} lines of text but {target} has {len(target_lines)}. "
            "Give a translation that keeps the lines, or files with one sentence a line."
        )
    pairs = _pair_groups(source_lines, target_lines)
    if not pairs:
        raise DocmtError(f"{source} has no sentences to check. Name a file with text.")
    numbers, *sides = (tuple(column) for column in zip(*pairs, strict=True))
    return PairedDocuments([ParallelDocument(source.name, sides[0], sides[1], 1, numbers)], [])


def _detect_format(path: Path) -> FileFormat | None:
    """Return the format of a file by its suffix, else by its beginning; None for text and for what is no file."""
    if (named := find_format_of_name(path)) or not path.is_file():
        return named
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
        return find_format(STANDARD, beginning + (file.read() if beginning.startswith(b"PK") else b""))


def _pair_units(
    paths: tuple[Path, Path], formats: Sequence[FileFormat | None], layout: Layout, languages: tuple[str, str]
) -> PairedDocuments:
    """Pair the sentences of two files of one format, paragraph by paragraph.

    Raises DocmtError if they have different formats or numbers of paragraphs, or cannot be read.
    """
    names = (
        f"{path} is {each.name if each else 'JSONL' if is_jsonl(path) else 'text'}"
        for path, each in zip(paths, formats, strict=True)
    )
    if len({each and each.module for each in formats}) > 1:
        raise DocmtError(f"{' but '.join(names)}. Give both in the same format.")
    if layout == "lines":
        raise DocmtError(f"{next(names)}, not sentences by line. Leave --layout out.")
    pairs = zip(formats, paths, strict=True)
    files = [read_units(format, read_bytes(path), str(path)) for format, path in pairs if format]
    return _pair_files(paths, files, languages)


def _pair_files(paths: tuple[Path, Path], files: Sequence[UnitFile], languages: tuple[str, str]) -> PairedDocuments:
    """Pair the sentences of two files of units. Chapters with different numbers of paragraphs are findings."""
    sentences = [_sentences_by_unit(file, language) for file, language in zip(files, languages, strict=True)]
    chapters = [list(pairwise([*file.document_starts, len(file.units)])) for file in files]
    if len(chapters[0]) != len(chapters[1]):
        raise _refuse_counts(paths, [len(each) for each in chapters], "chapters")
    documents, findings = [], []
    for number, bounds in enumerate(zip(*chapters, strict=True), 1):
        id = f"{paths[0].name} {number}" if len(chapters[0]) > 1 else paths[0].name
        units = [range(first, last) for first, last in bounds]
        groups = _group_units(files, units)
        if groups is None and len(chapters[0]) == 1:
            raise _refuse_counts(paths, [len(each) for each in units], "paragraphs (and cells, labels)")
        if groups is None:
            first, second = (
                [file.units[index].text for index in each] for file, each in zip(files, units, strict=True)
            )
            findings.append(_report_miscount(id, first, second, "paragraphs"))
            continue
        sides: list[dict[int, list[str]]] = [{}, {}]
        whole: list[list[str]] = [[], []]
        for index, group in enumerate(groups):
            for side, members in enumerate(group):
                whole[side].append(" ".join(files[side].units[unit].text for unit in members))
                if found := [sentence for unit in members for sentence in sentences[side].get(unit, ())]:
                    sides[side][index] = found
        _add_missing(sides[0], sides[1], whole[0], whole[1], first=0)
        pairs = _pair_groups(sides[0], sides[1])
        texts = tuple(source for _, source, _ in pairs), tuple(target for _, _, target in pairs)
        documents.append(ParallelDocument(id, *texts, number))
    if not findings and not any(map(len, documents)):
        raise DocmtError(f"{paths[0]} has no sentences to check. Name a file with text.")
    return PairedDocuments(documents, findings)


def _group_units(files: Sequence[UnitFile], units: Sequence[range]) -> list[Group] | None:
    """Group the units of a chapter of two files: subtitles by time, others in order. None if their numbers differ."""
    in_order = [([one], [other]) for one, other in zip(*units, strict=False)]
    is_equal = len(units[0]) == len(units[1])
    times = [_end_at_next(file.times) for file in files if isinstance(file, SubtitleFile)]
    if not times:
        return in_order if is_equal else None
    groups = list(_group_by_time(*times))
    were_moved = is_equal and any(not source or not target for source, target in groups)
    return in_order if were_moved else groups


def _refuse_counts(paths: tuple[Path, Path], counts: Sequence[int], what: str) -> DocmtError:
    """Return the error for two files with different numbers of something."""
    return DocmtError(
        f"{paths[0]} has {counts[0]} {what} but {paths[1]} has {counts[1]}. Give a translation that keeps them, or "
        "files with one sentence a line."
    )


def _group_by_time(sources: Sequence[tuple[float, float]], targets: Sequence[tuple[float, float]]) -> Iterator[Group]:
    """Yield the units of two files of subtitles that are shown together. A group may lack one side."""
    events = sorted(
        (start, end, side, index)
        for side, times in enumerate((sources, targets))
        for index, (start, end) in enumerate(times)
    )
    group: Group = ([], [])
    shown: dict[int, tuple[float, float]] = {}  # from when to when, by side
    for start, end, side, index in events:
        if shown and not any(_are_together(each, (start, end)) for each in shown.values()):
            yield group
            group, shown = ([], []), {}
        group[side].append(index)
        first, last = shown.get(side, (start, end))
        shown[side] = first, max(last, end)
    if shown:
        yield group


def _end_at_next(times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the times without what overlaps with the next one, such as an end with a wrong hour."""
    following = [*(start for start, _ in times[1:]), float("inf")]
    return [
        (start, min(end, later) if later > start else end) for (start, end), later in zip(times, following, strict=True)
    ]


def _are_together(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two times overlap in half of the shorter one."""
    overlap = min(one[1], other[1]) - max(one[0], other[0])
    return overlap >= 0 and 2 * overlap >= min(one[1] - one[0], other[1] - other[0])


def _sentences_by_unit(file: UnitFile, language: str) -> dict[int, list[str]]:
    """Return the sentences of every unit that has any, by its index."""
    sentences: dict[int, list[str]] = {}
    cut = UnitDocuments(file, language)
    for document, places in zip(cut.documents, cut.sentences, strict=True):
        for sentence, place in zip(document.sentences, places, strict=True):
            sentences.setdefault(place.unit, []).append(sentence)
    return sentences


def _add_missing(
    sources: dict[int, list[str]],
    targets: dict[int, list[str]],
    source_texts: Sequence[str],
    target_texts: Sequence[str],
    *,
    first: int,
) -> None:
    """Add the text of lines or units that have a sentence on the other side alone. first: number of the first text."""
    for number in sources.keys() ^ targets.keys():
        sources.setdefault(number, [source_texts[number - first].strip()])
        targets.setdefault(number, [target_texts[number - first].strip()])


def _pair_groups(
    sources: Mapping[int, Sequence[str]], targets: Mapping[int, Sequence[str]]
) -> list[tuple[int, str, str]]:
    """Pair the sentences of as many lines or units on both sides, by number. Return (number in the source, pair).

    If the two sides of a line or unit have different numbers of sentences, its whole texts are one pair.
    """
    pairs = []
    for number, other in zip(sorted(sources), sorted(targets), strict=True):
        source, target = sources[number], targets[other]
        if len(source) != len(target):
            source, target = [" ".join(source)], [" ".join(target)]
        pairs += [(number, *pair) for pair in zip(source, target, strict=True)]
    return pairs


def _is_markdown(path: Path) -> bool:
    return find_format_of_name(path) is FORMATS["markdown"]


def _read_running_text(path: Path, language: str) -> Document:
    """Return a file of running text as one document."""
    text = read_text(path).removeprefix(BYTE_ORDER_MARK)
    blocks = find_blocks(text) if _is_markdown(path) else ()
    return Document.from_text(text, language=language, verbatim=[(block.start, block.end) for block in blocks])


def _sentences_by_line(document: Document) -> dict[int, list[str]]:
    """Return the sentences of every line that has any, by line number."""
    sentences: dict[int, list[str]] = {}
    line = 1
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        line += gap.count("\n")
        sentences.setdefault(line, []).append(sentence)
    return sentences
