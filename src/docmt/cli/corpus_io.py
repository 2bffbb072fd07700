"""Reading of parallel corpora, checks of output paths, and work that survives failures of single documents."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from docmt.core.errors import DocmtError, map_or_error
from docmt.core.files import check_writable
from docmt.core.plain_text import STANDARD, read_lines
from docmt.documents import Document, ParallelDocument, SkipReport, read_parallel
from docmt.documents.input_formats import DOCUMENT_MARK, is_jsonl

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_or_report(
    items: Sequence[Item], names: Sequence[str], work: Callable[[Sequence[Item]], Sequence[Result]], failures: list[str]
) -> list[Result | None]:
    """Return the result of `work` for every item, or None after adding its error to `failures`."""
    results = map_or_error(items, work)
    failures += [
        f"{name}: {error}" for name, error in zip(names, results, strict=True) if isinstance(error, DocmtError)
    ]
    return [None if isinstance(result, DocmtError) else result for result in results]


def call_or_report(name: str, work: Callable[[], Result], failures: list[str]) -> Result | None:
    """Return the result of `work`, or None after adding its error to `failures`."""
    return map_or_report([work], [name], lambda functions: [function() for function in functions], failures)[0]


def document_name(file: str, document: ParallelDocument) -> str:
    """Return the name of a document for messages: file, number, and id if it differs from the number."""
    id = "" if document.id == str(document.number) else f" ({document.id!r})"
    return f"{file}, document {document.number}{id}"


def read_corpus(
    source: str, target: str | None, name: str = "--reference", keep_empty: bool = False
) -> list[ParallelDocument]:
    """Return the documents of a parallel corpus. Skipped sentence pairs are logged.

    name: option or argument of the target, which one JSONL file does not need. keep_empty: keep pairs with an empty
    side. Raises DocmtError for files that cannot be read, do not match each other, or have no sentence pair.
    """
    if target is None and Path(source).is_file() and not is_jsonl(source):
        raise DocmtError(f"{name} is missing: {source} is not JSONL with both sides, so name the other file")
    skipped = SkipReport()
    corpus = list(read_parallel(Path(source), Path(target) if target else None, skipped=skipped, keep_empty=keep_empty))
    if not corpus:
        names = f"{source} and {target} hold" if target else f"{source} holds"
        raise DocmtError(f"{names} no sentence pairs: name files with parallel sentences")
    for reason, count in skipped.counts.items():
        examples = "; ".join(skipped.examples[reason])
        _log.warning(f"left out {count} x {reason} ({examples}{', ...' if count > 3 else ''})")
    return corpus


def lines_like_source(source: str, corpus: Sequence[ParallelDocument], translations: Sequence[Sequence[str]]) -> str:
    """Return the translations of a corpus as text that has a line for each line of the source file.

    Empty lines and document marks are copied, and skipped pairs are empty lines. The documents of a JSONL file are
    separated by empty lines instead.
    """
    if is_jsonl(source):
        return "\n".join(Document.from_sentences(sentences).text() for sentences in translations)
    translated = {
        line: sentence
        for document, sentences in zip(corpus, translations, strict=True)
        for line, sentence in zip(document.lines, sentences, strict=True)
    }
    source_lines = ((number, line.strip()) for number, line in read_lines(source))
    lines = [translated.get(number, line if line == DOCUMENT_MARK else "") for number, line in source_lines]
    return "".join(f"{line}\n" for line in lines)


def check_outputs(*outputs: str | None, inputs: Sequence[str | None] = ()) -> None:
    """Check the output paths of a command before its work.

    inputs: files that the command reads. Raises DocmtError for an output that cannot be written, for two outputs with
    one path (or both standard output), and for an output that would overwrite an input.
    """
    known: dict[object, str] = {}
    for path in filter(None, outputs):
        if path != STANDARD:
            check_writable(Path(path))
        identity = _file_identity(path)
        if identity in known:
            problem = "go to standard output: name a" if path == STANDARD else f"be written to {path}: name another"
            raise DocmtError(f"two outputs would both {problem} file for one of them")
        if identity is not None:
            known[identity] = path
    for path in filter(None, inputs):
        if path != STANDARD and (output := known.get(_file_identity(path))):
            raise DocmtError(f"{path} is an input and would be overwritten by the output {output}: name another output")


def _file_identity(path: str) -> object | None:
    """Return a value that is equal for two paths to one file, existing or not. A device has None."""
    if path == STANDARD:
        return STANDARD
    with suppress(OSError):  # the reader reports what is wrong with such a path
        status = Path(path).stat()
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
    return os.path.realpath(path)
