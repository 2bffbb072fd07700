"""Files to translate, of whatever kind, as documents that keep all that stands between their sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from docmt.core.plain_text import BYTE_ORDER_MARK, read_text
from docmt.documents.document import Document, between
from docmt.documents.formats import Format, check_name, format_of
from docmt.documents.jsonl import JsonDocument, json_documents
from docmt.documents.layout import looks_wrapped
from docmt.documents.lines import documents_of_lines
from docmt.documents.verbatim import fenced, markdown_blocks

Layout = Literal["auto", "text", "lines", "markdown", "jsonl"]


@dataclass(frozen=True)
class Input:
    """What an input file holds."""

    format: Format | Literal["lines"]
    documents: list[Document]
    """Their texts, joined, are the file, character for character. Of JSONL they are what a text file with the same
    documents would hold: a sentence a line, or running text, and an empty line between documents."""
    verbatim: dict[str, int] = field(default_factory=dict)
    """lines that are never translated, by what they are"""
    looks_wrapped: bool = False
    """whether the lines of running text, each taken for itself, seem to be those of a page"""


def read_input(path: Path | str, *, layout: Layout = "auto", language: str = "en", join_lines: bool = False) -> Input:
    """The documents of a file ("-" is standard input).

    layout: "auto" looks at the file (see `docmt.documents.formats`); "text" is running text whatever it looks like,
    "lines" a sentence a line (see `read_lines`). language, join_lines: of running text, see `Document.from_text`.
    Raises DocmtError for a file that cannot be read, or is of a kind that cannot be translated.
    """
    if layout == "auto":
        check_name(path)
    text = read_text(path)
    kind = format_of(path, text) if layout == "auto" else layout
    if kind == "lines":
        return Input("lines", documents_of_lines(text, path))
    if kind == "jsonl":
        return Input("jsonl", list(_of_jsonl(text, path, language, join_lines)))
    verbatim = markdown_blocks(text) if kind == "markdown" else fenced(text) if layout == "auto" else []
    stretches = [(stretch.start, stretch.end) for stretch in verbatim]
    document = Document.from_text(text, language=language, join_lines=join_lines, id=str(path), verbatim=stretches)
    lines: Counter[str] = Counter()
    for stretch in verbatim:
        lines[stretch.kind] += stretch.lines
    rest = "\n".join(text[start:end] for start, end in between(stretches, len(text)))
    return Input(kind, [document], dict(lines), not join_lines and looks_wrapped(rest, language))


def _of_jsonl(text: str, path: Path | str, language: str, join_lines: bool) -> Iterator[Document]:
    lines = enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1)
    found = list(json_documents(lines, path, ["source"], running_text=True))
    documents = [_document(one, language, join_lines) for one in found]
    for number, document in enumerate(documents, 1):
        last = document.gaps[-1]
        if document.sentences and not last.endswith("\n"):
            last += "\n"
        yield replace(document, gaps=(*document.gaps[:-1], last + "\n" * (number < len(documents))))


def _document(found: JsonDocument, language: str, join_lines: bool) -> Document:
    if found.text is None:
        return Document.from_sentences(found.sides[0], id=found.id)
    return Document.from_text(found.text, language=language, join_lines=join_lines, id=found.id)
