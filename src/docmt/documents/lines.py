"""Text files of one sentence a line as documents that keep the lines between them."""

from __future__ import annotations

import re
from pathlib import Path

from docmt.core.plain_text import BYTE_ORDER_MARK, read_text
from docmt.documents.corpus import DOCUMENT_MARK, stray_mark
from docmt.documents.document import Document

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def read_lines(path: Path | str) -> list[Document]:
    """The documents of a text file of one sentence a line ("-" is standard input), with `read_documents`'s borders.

    Empty lines, document marks and white space around sentences are in the gaps, so the texts of all documents, joined,
    are the file, character for character. At least one document, though it may have no sentences.
    Raises DocmtError for a file that cannot be read and for a document mark in a file that does not begin with one.
    """
    return documents_of_lines(read_text(path), path)


def documents_of_lines(text: str, path: Path | str) -> list[Document]:
    """Like `read_lines`, of the text of that file."""
    documents: list[Document] = []
    sentences: list[str] = []
    gaps: list[str] = []
    marked: bool | None = None
    count = 0
    position = 0  # where the open gap begins

    def close(end: int) -> None:
        nonlocal position
        documents.append(Document(tuple(sentences), (*gaps, text[position:end]), str(count)))
        sentences.clear()
        gaps.clear()
        position = end

    for number, line in enumerate(_LINE.finditer(text), 1):
        raw = line[0].removeprefix(BYTE_ORDER_MARK) if number == 1 else line[0]
        sentence = raw.strip()
        if marked is None and sentence:
            marked = sentence == DOCUMENT_MARK
        if sentence == DOCUMENT_MARK and not marked:
            raise stray_mark(path, number)
        if sentence == (DOCUMENT_MARK if marked else ""):
            if sentences:
                close(line.start())
            count += bool(marked)
        elif sentence:
            if not sentences and not marked:
                count += 1
            start = line.end() - len(raw.lstrip())
            gaps.append(text[position:start])
            sentences.append(sentence)
            position = start + len(sentence)
    if sentences or not documents:
        close(len(text))
    elif position < len(text):
        last = documents.pop()
        documents.append(Document(last.sentences, (*last.gaps[:-1], last.gaps[-1] + text[position:]), last.id))
    return documents
