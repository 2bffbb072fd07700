"""Reading a hypothesis file beside its reference, where an empty line is a border or an empty sentence.

Either may be JSONL, of which the `target` is read, and which says itself what its sentences are.
"""

from __future__ import annotations

from pathlib import Path

from docmt.core.plain_text import BYTE_ORDER_MARK, read_text
from docmt.documents.corpus import DOCUMENT_MARK, read_documents
from docmt.documents.formats import is_jsonl

Corpus = list[tuple[str, ...]]
"""Documents of sentences."""


def read_reference(path: Path) -> Corpus:
    """The documents of a file of one sentence a line with document marks, or of JSONL."""
    return [sentences for _, sentences in read_documents(path, "target")]


def read_hypothesis(path: Path, reference_path: Path, references: Corpus) -> Corpus:
    """The documents of a hypothesis file, given its reference file and the documents read from that.

    Line by line beside the reference where the two files run parallel (see `align_lines`), else by the
    hypothesis's own document marks, as for a system that keeps documents but not sentences.
    Raises DocmtError for a file that cannot be read.
    """
    if is_jsonl(path):
        return read_reference(path)
    reference = _lines_of(references) if is_jsonl(reference_path) else _lines(reference_path)
    aligned = align_lines(_lines(path), reference, references)
    return aligned if aligned is not None else read_reference(path)


def align_lines(hypothesis: list[str], reference: list[str], references: Corpus) -> Corpus | None:
    """The hypothesis under the borders of the reference, if the lines of the two files translate each other.

    hypothesis, reference: the lines of both files; references: the documents read from the latter.
    An empty hypothesis line beside a reference sentence is an empty sentence.
    None if the files do not run parallel: another number of lines (empty ones at the end aside), text of the
    hypothesis beside a border of the reference, or a document mark beside a sentence.
    """
    if any(line.strip() for line in hypothesis[len(reference) :]):
        return None
    expected = [sentence for document in references for sentence in document]
    found: list[str] = []
    for ours, theirs in zip(hypothesis, reference, strict=False):
        ours = ours.strip()
        # What the corpus reader took for sentences are sentences; other lines of the reference are borders.
        if len(found) < len(expected) and theirs.strip() == expected[len(found)].strip():
            if ours == DOCUMENT_MARK:
                return None
            found.append(ours)
        elif ours not in ("", DOCUMENT_MARK):
            return None
    if len(found) != len(expected):
        return None
    remaining = iter(found)
    return [tuple(next(remaining) for _ in document) for document in references]


def _lines_of(documents: Corpus) -> list[str]:
    """The lines of a text file with these documents, parted by empty lines."""
    lines = [line for document in documents for line in (*document, "")]
    return lines[:-1]


def _lines(path: Path) -> list[str]:
    lines = read_text(path).removeprefix(BYTE_ORDER_MARK).split("\n")
    return lines[:-1] if lines[-1] == "" else lines
