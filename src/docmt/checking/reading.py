"""Both sides of a translation as documents of pairs, whatever the files are; sentences may be empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from docmt.checking.config import CheckConfig
from docmt.checking.finding import Finding, Place
from docmt.core.errors import DocmtError
from docmt.core.plain_text import decoded_lines
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus import read_hypothesis
from docmt.documents.document import read_input
from docmt.documents.formats import check_name, is_jsonl

Layout = Literal["auto", "lines", "text"]
_MARKDOWN = (".md", ".markdown")
_SHOWN = 3


@dataclass(frozen=True)
class Translated:
    """A source with its translation. Documents whose numbers of sentences differ are in `findings` alone."""

    documents: list[ParallelDocument]
    findings: list[Finding]


def read_translation(
    source: Path, target: Path | None, layout: Layout = "auto", config: CheckConfig | None = None
) -> Translated:
    """The documents of a source file and of its translation, or of a JSONL file with both sides.

    layout: "lines" is a sentence a line, "text" running text (of the languages of the configuration, or English),
    "auto" running text for Markdown and lines for all else. Raises DocmtError for files that cannot be read or have
    other documents than each other.
    """
    if target is None and not is_jsonl(source):
        raise DocmtError(f"{source} has one side alone: name the file with its translation too")
    if layout == "text" or (layout == "auto" and source.suffix in _MARKDOWN):
        if target is None or is_jsonl(source):
            raise DocmtError(f"{source} is JSONL, which is no running text: leave --layout out")
        config = config or CheckConfig()
        return _running_text(source, target, (config.source_language or "en", config.target_language or "en"))
    check_name(source)
    ids = list(read_documents(source, "source"))
    ours = [sentences for _, sentences in ids]
    lines = _line_numbers(source, ours)
    if target is None:
        theirs = [sentences for _, sentences in read_documents(source, "target")]
    else:
        check_name(target)
        theirs = read_hypothesis(target, source, ours)
    if not any(map(len, ours)):
        raise DocmtError(f"{source} has no sentences, so nothing can be checked: give a file with text")
    if len(ours) != len(theirs):
        raise DocmtError(
            f"{source} has {len(ours)} documents and {target} {len(theirs)}: give the same documents in the same order "
            "(--layout text takes both for running text)"
        )
    return _paired([id for id, _ in ids], ours, theirs, lines)


def _paired(
    ids: Sequence[str], ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]], lines: Sequence[Sequence[int]]
) -> Translated:
    documents, findings = [], []
    for number, (id, source, target, own) in enumerate(zip(ids, ours, theirs, lines, strict=True), 1):
        if len(source) == len(target):
            documents.append(ParallelDocument(id, tuple(source), tuple(target), number, tuple(own)))
        else:
            findings.append(_miscounted(id, source, target))
    return Translated(documents, findings)


def _miscounted(id: str, source: Sequence[str], target: Sequence[str]) -> Finding:
    """The finding for a document of unequal sides, with its last sentences, where they part most clearly."""
    last = max(len(source), len(target))
    shown = range(max(0, last - _SHOWN), last)
    pairs = list(zip_longest(source, target, fillvalue=""))
    places = tuple(Place(id, number + 1, 0, *pairs[number]) for number in shown)
    what = f"{len(source)} sentences have a translation of {len(target)}; nothing else of this document is checked"
    return Finding("sentence_count", what, places, "sure")


def _line_numbers(path: Path, documents: Sequence[Sequence[str]]) -> list[Sequence[int]]:
    """Where the sentences stand in a text file; of JSONL nothing is told."""
    if is_jsonl(path):
        return [() for _ in documents]
    numbered = decoded_lines(path)
    return [
        tuple(next(number for number, line in numbered if line.strip() == sentence) for sentence in document)
        for document in documents
    ]


def _running_text(source: Path, target: Path, languages: tuple[str, str]) -> Translated:
    """Two files of running text, paragraph by paragraph.

    A translation that is segmented anew may get other sentences: a paragraph with other numbers of them on the two
    sides is one pair. Raises DocmtError for another number of paragraphs.
    """
    ours, theirs = (
        list(_paragraphs(read_input(path, layout=_text_layout(path), language=language).documents))
        for path, language in zip((source, target), languages, strict=True)
    )
    if len(ours) != len(theirs):
        raise DocmtError(
            f"{source} has {len(ours)} lines of text and {target} {len(theirs)}, so it cannot be told which belong "
            "together: give a translation that keeps the lines, or files of a sentence a line"
        )
    pairs = [
        pair
        for one, other in zip(ours, theirs, strict=True)
        for pair in (zip(one, other, strict=True) if len(one) == len(other) else [(" ".join(one), " ".join(other))])
    ]
    if not pairs:
        raise DocmtError(f"{source} has no sentences, so nothing can be checked: give a file with text")
    sides = [tuple(pair[side] for pair in pairs) for side in range(2)]
    return Translated([ParallelDocument(source.name, sides[0], sides[1], number=1)], [])


def _text_layout(path: Path) -> Literal["markdown", "text"]:
    return "markdown" if path.suffix in _MARKDOWN else "text"


def _paragraphs(documents: Sequence[Document]) -> Iterator[list[str]]:
    """The sentences of every line of running text."""
    for document in documents:
        line: list[str] = []
        for gap, sentence in zip(document.gaps, document.sentences, strict=False):
            if line and "\n" in gap:
                yield line
                line = []
            line.append(sentence)
        if line:
            yield line
