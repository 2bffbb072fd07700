"""Read translations from files and run all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Literal

from docmt.checking.consistency import WordKinds, find_inconsistent_names, find_inconsistent_terms, find_links
from docmt.checking.copied_content import check_content
from docmt.checking.findings import KINDS, CheckConfig, CheckReport, Finding, MarkedSentence, is_certain
from docmt.checking.languages import FORMAL, FUNCTION_WORDS, base_language, detect_language, is_unspaced
from docmt.checking.sentence_checks import (
    CopyCounts,
    LengthModel,
    find_duplicates,
    find_empty,
    find_inconsistent_repeats,
    find_loops,
    find_mixed_formality,
    find_untranslated,
    find_unusual_lengths,
)
from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_bytes, read_lines
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus_files import read_hypothesis
from docmt.documents.document import read_input
from docmt.documents.input_formats import check_name, is_jsonl
from docmt.formats.registry import FORMATS, FileFormat, find_format, find_format_of_name
from docmt.formats.unit_documents import UnitDocuments
from docmt.formats.units import UnitFile

Layout = Literal["auto", "lines", "text"]
_PAIRED_BY_UNITS = frozenset({"html", "xhtml", "epub", "docx", "pptx", "xlsx", "odf", "srt", "vtt"})
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
    """Read a source file and its translation, or a JSONL file with both sides.

    layout: "lines" is one sentence a line, "text" running text in the languages of the configuration (default:
    English), "auto" paragraphs of office documents, web pages, books and subtitles, running text for Markdown, and
    lines otherwise. Raises DocmtError for files that cannot be read or paired, and for sides with different numbers of
    documents.
    """
    if target is None and not is_jsonl(source):
        raise DocmtError(f"{source} has only one side. Name the file with its translation too.")
    config = config or CheckConfig()
    languages = config.source_language or "en", config.target_language or "en"
    format = find_format_of_name(source)
    if target and layout == "auto" and format and format.name in _PAIRED_BY_UNITS:
        return _pair_units(source, target, format, languages)
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


def _report_miscount(id: str, source: Sequence[str], target: Sequence[str]) -> Finding:
    """Return the finding for a document with different numbers of sentences, with its last sentences."""
    last = max(len(source), len(target))
    examples = range(max(0, last - _MAX_EXAMPLES), last)
    pairs = list(zip_longest(source, target, fillvalue=""))
    sentences = tuple(MarkedSentence(id, index + 1, 0, *pairs[index]) for index in examples)
    message = f"{len(source)} source sentences but {len(target)} target sentences; the document is not checked further"
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

    Markdown whose lines differ is paired by paragraphs, since translations join the lines of a paragraph. Raises
    DocmtError if lines cannot be paired.
    """
    documents = [_read_running_text(path, language) for path, language in zip((source, target), languages, strict=True)]
    source_lines, target_lines = map(_sentences_by_line, documents)
    lines = [document.text().rstrip("\n").split("\n") for document in documents]
    if len(lines[0]) == len(lines[1]):
        _add_missing(source_lines, target_lines, *lines, first=1)
    if len(source_lines) != len(target_lines):
        if _is_markdown(source) and _is_markdown(target):
            return _pair_units(source, target, FORMATS["markdown"], languages)
        raise DocmtError(
            f"{source} has {len(source_lines)} lines of text but {target} has {len(target_lines)}. "
            "Give a translation that keeps the lines, or files with one sentence a line."
        )
    pairs = _pair_groups(source_lines, target_lines)
    if not pairs:
        raise DocmtError(f"{source} has no sentences to check. Name a file with text.")
    numbers, *sides = (tuple(column) for column in zip(*pairs, strict=True))
    return PairedDocuments([ParallelDocument(source.name, sides[0], sides[1], 1, numbers)], [])


def _pair_units(source: Path, target: Path, format: FileFormat, languages: tuple[str, str]) -> PairedDocuments:
    """Pair the sentences of two files of one format, paragraph by paragraph (`UnitFile.units`).

    Raises DocmtError if a file cannot be read, or the files have different numbers of paragraphs.
    """
    contents = [read_bytes(path) for path in (source, target)]
    if (other := find_format(target, contents[1])) is not format:
        name = other.name if other else "text"
        raise DocmtError(f"{source} is {format.name} but {target} is {name}. Give both in the same format.")
    files = [format.read(data, str(path)) for data, path in zip(contents, (source, target), strict=True)]
    starts = files[0].document_starts
    if len(files[0].units) != len(files[1].units) or starts != files[1].document_starts:
        counts = [len(file.units) for file in files]
        raise DocmtError(
            f"{source} has {counts[0]} paragraphs (and cells, cues, labels) but {target} has {counts[1]}. Give a "
            "translation that keeps them, or files with one sentence a line."
        )
    source_units, target_units = map(_sentences_by_unit, files, languages)
    _add_missing(source_units, target_units, *([unit.text for unit in file.units] for file in files), first=0)
    pairs = _pair_groups(source_units, target_units)
    documents = []
    for number, (first, last) in enumerate(pairwise([*starts, len(files[0].units)]), 1):
        id = f"{source.name} {number}" if len(starts) > 1 else source.name
        inside = [pair for unit, *pair in pairs if first <= unit < last]
        sources, targets = (tuple(pair[side] for pair in inside) for side in (0, 1))
        documents.append(ParallelDocument(id, sources, targets, number))
    if not any(map(len, documents)):
        raise DocmtError(f"{source} has no sentences to check. Name a file with text.")
    return PairedDocuments(documents, [])


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
    layout: Literal["markdown", "text"] = "markdown" if _is_markdown(path) else "text"
    [document] = read_input(path, layout=layout, language=language).documents
    return document


def _sentences_by_line(document: Document) -> dict[int, list[str]]:
    """Return the sentences of every line that has any, by line number."""
    sentences: dict[int, list[str]] = {}
    line = 1
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        line += gap.count("\n")
        sentences.setdefault(line, []).append(sentence)
    return sentences


Check = Callable[[int, ParallelDocument], Iterator[Finding]]
"""Called with the index of a document's first sentence, over all documents, and the document."""
CONTENT_KINDS = frozenset({"number", "url", "placeholder", "bracket"})
OnProgress = Callable[[int], object]
"""Called with the number of sentences checked since the last call."""
_DETECTION_SENTENCES = 5000
"""Sentences from which the language of a text is detected."""


def check_files(
    source: Path | str,
    target: Path | str | None = None,
    config: CheckConfig | None = None,
    *,
    layout: Layout = "auto",
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
) -> CheckReport:
    """Check a translation; see `read_translation` for the files and `check_documents` for the rest."""
    paired = read_translation(Path(source), Path(target) if target is not None else None, layout, config)
    return check_documents(paired.documents, config, kinds=kinds, on_progress=on_progress, earlier=paired.findings)


def check_documents(
    documents: Sequence[ParallelDocument],
    config: CheckConfig | None = None,
    *,
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
    earlier: Sequence[Finding] = (),
) -> CheckReport:
    """Check translated documents, whose sentences may be empty, for findings of these kinds.

    earlier: findings to include, such as documents that cannot be paired.
    """
    config = config or CheckConfig()
    texts = _first_sentences(documents)
    codes = config.source_language, config.target_language
    source, target = (base_language(code or detect_language(text)) for code, text in zip(codes, texts, strict=True))
    unspaced = any(map(is_unspaced, texts))
    wanted = set(kinds)
    if unspaced:
        wanted -= {"name", "term"}
    if target not in FORMAL:
        wanted -= {"formality"}
    findings = list(earlier)
    for portion in _split_into_portions(documents, config.batch_sentences):
        checks = _build_checks(portion, config, (source, target), wanted)
        first = 0
        for document in portion:
            for check in checks:
                findings += check(first, document)
            first += len(document)
            if on_progress is not None:
                on_progress(len(document))
    findings = [finding for finding in findings if finding.kind in kinds]
    order = list(KINDS)
    visible = [finding for finding in findings if is_certain(finding, config.certainty)]
    hidden = Counter(finding.kind for finding in findings if not is_certain(finding, config.certainty))
    return CheckReport(
        config=config,
        documents=len(documents) + sum(each.kind == "sentence_count" for each in earlier),
        sentences=sum(map(len, documents)),
        source_language=source,
        target_language=target,
        findings=sorted(visible, key=lambda finding: order.index(finding.kind)),
        hidden=hidden,
        notes=list(_notes(set(kinds), source, target, unspaced)),
    )


def _first_sentences(documents: Sequence[ParallelDocument]) -> list[list[str]]:
    """Return the first sentences of both sides, for language detection."""
    sides = (
        (sentence for document in documents for sentence in document.source),
        (sentence for document in documents for sentence in document.target),
    )
    return [list(islice(side, _DETECTION_SENTENCES)) for side in sides]


def _split_into_portions(documents: Sequence[ParallelDocument], max_sentences: int) -> Iterator[list[ParallelDocument]]:
    """Yield consecutive documents of about `max_sentences` sentences together."""
    portion: list[ParallelDocument] = []
    size = 0
    for document in documents:
        if portion and size + len(document) > max_sentences:
            yield portion
            portion, size = [], 0
        portion.append(document)
        size += len(document)
    if portion:
        yield portion


def _build_checks(
    documents: Sequence[ParallelDocument], config: CheckConfig, languages: tuple[str, str], wanted: Set[str]
) -> list[Check]:
    """Return the checks of the wanted kinds, with word and length statistics of these documents."""
    checks: dict[str, Check] = {
        "empty": lambda _, document: find_empty(document),
        "loop": lambda _, document: find_loops(document, config),
        "duplicate": lambda _, document: find_duplicates(document, config),
        "repetition": lambda _, document: find_inconsistent_repeats(document, config),
        "formality": lambda _, document: find_mixed_formality(document, languages[1]),
    }
    if "untranslated" in wanted:
        copies = CopyCounts.from_documents(documents)
        checks["untranslated"] = lambda _, document: find_untranslated(document, config, languages, copies)
    if "length" in wanted and (length_model := LengthModel.fit(documents)) is not None:
        checks["length"] = lambda _, document: find_unusual_lengths(document, config, length_model)
    if wanted & {"name", "term"}:
        sources = [document.source for document in documents]
        source_kinds = WordKinds.from_documents(sources, languages[0], config.term_documents)
        checks["name"] = lambda _, document: find_inconsistent_names(document, config, source_kinds, languages[1])
    if "term" in wanted:
        target_kinds = WordKinds.from_documents([document.target for document in documents], languages[1])
        links = find_links(documents, languages)
        kinds = source_kinds, target_kinds
        checks["term"] = lambda first, document: find_inconsistent_terms(first, document, config, kinds, links)
    selected = [check for kind, check in checks.items() if kind in wanted]
    if wanted & CONTENT_KINDS:
        selected.append(lambda _, document: check_content(document, config, languages))
    return selected


def _notes(kinds: Collection[str], source: str, target: str, unspaced: bool) -> Iterator[str]:
    """Yield what was not checked, and why."""
    if unspaced and {"name", "term"} & set(kinds):
        yield "names and terms were not checked: one side is in a script without spaces between words"
    if "formality" in kinds and target not in FORMAL:
        reason = f"no forms of address are known for {target}" if target else "the language is unknown"
        yield f"formality was not checked: {reason} (--target-language)"
    if "untranslated" in kinds and not {source, target} <= FUNCTION_WORDS.keys():
        yield (
            "untranslated sentences were found by comparison only: --source-language or --target-language is unknown, "
            "or a language without a list of function words"
        )
