"""Documents: sentences and the text between them, plain text files, and parallel corpora."""

from docmt.documents.corpus import (
    ParallelDocument,
    Skipped,
    read_documents,
    read_parallel,
    write_jsonl,
    write_parallel,
)
from docmt.documents.document import Document
from docmt.documents.inputs import Input, read_input
from docmt.documents.lines import read_lines
from docmt.documents.segmentation import one_line, sentence_spans

__all__ = [
    "Document",
    "Input",
    "ParallelDocument",
    "Skipped",
    "one_line",
    "read_documents",
    "read_input",
    "read_lines",
    "read_parallel",
    "sentence_spans",
    "write_jsonl",
    "write_parallel",
]
