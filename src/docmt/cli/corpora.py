"""Parallel corpora and output files as the commands take them."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from docmt.core.errors import DocmtError, map_or_error
from docmt.core.files import cannot_write, check_writable
from docmt.core.plain_text import STANDARD, decoded_lines
from docmt.documents import Document, ParallelDocument, SkipReport, read_parallel
from docmt.documents.input_formats import DOCUMENT_MARK, is_jsonl

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def each_alone(
    items: Sequence[Item],
    names: Sequence[str],
    work: Callable[[Sequence[Item]], Sequence[Result]],
    failures: list[str],
) -> list[Result | None]:
    """What `work` makes of all items; of one that cannot be done there is None, and a sentence in `failures`."""
    found = map_or_error(items, work)
    failures += [f"{name}: {done}" for name, done in zip(names, found, strict=True) if isinstance(done, DocmtError)]
    return [None if isinstance(done, DocmtError) else done for done in found]


def attempt(name: str, work: Callable[[], Result], failures: list[str]) -> Result | None:
    """Return the result of `work`. After a failure return None and add a sentence to `failures`."""
    return each_alone([work], [name], lambda works: [each() for each in works], failures)[0]


def document_name(file: str, document: ParallelDocument) -> str:
    """A document as messages name it: by file, number, and id if that is another."""
    id = "" if document.id == str(document.number) else f" ({document.id!r})"
    return f"{file}, document {document.number}{id}"


def read_corpus(source: str, target: str | None, name: str = "--reference") -> list[ParallelDocument]:
    """The documents of a parallel corpus; what is left out of it is told on standard error.

    name: of the option or argument for the target, which one file of JSONL does not need. Raises DocmtError for files
    that cannot be read, that do not fit together, or that hold no sentence pair.
    """
    if target is None and Path(source).is_file() and not is_jsonl(source):
        raise DocmtError(f"{name} is missing: {source} is no JSONL with both sides, so name the file beside it")
    skipped = SkipReport()
    corpus = list(read_parallel(Path(source), Path(target) if target else None, skipped=skipped))
    if not corpus:
        names = f"{source} and {target} hold" if target else f"{source} holds"
        raise DocmtError(f"{names} no sentence pairs: give files with parallel sentences")
    for reason, count in skipped.counts.items():
        places = "; ".join(skipped.examples[reason])
        _log.warning(f"left out {count} x {reason} ({places}{', ...' if count > 3 else ''})")
    return corpus


def lines_beside(source: str, corpus: Sequence[ParallelDocument], translations: Sequence[Sequence[str]]) -> str:
    """The translations of a corpus as text of as many lines as its source file, each beside its source.

    Empty lines and document marks stand where they stand there; pairs that were left out are empty lines. A JSONL
    file has no such lines: its documents are parted by empty lines.
    """
    if is_jsonl(source):
        return "\n".join(Document.from_sentences(sentences).text() for sentences in translations)
    found = {
        line: sentence
        for document, sentences in zip(corpus, translations, strict=True)
        for line, sentence in zip(document.lines, sentences, strict=True)
    }
    marked = ((number, line.strip()) for number, line in decoded_lines(source))
    lines = [found.get(number, line if line == DOCUMENT_MARK else "") for number, line in marked]
    return "".join(f"{line}\n" for line in lines)


def check_outputs(*outputs: str | None, inputs: Sequence[str | None] = ()) -> None:
    """Check the outputs of a command before any work is done for them.

    inputs: the files that the command reads. Raises DocmtError for an output that cannot be written, for two outputs
    that are one file (or both standard output), and for an output that would replace an input.
    """
    known: dict[object, str] = {}
    for path in filter(None, outputs):
        if path != STANDARD:
            check_writable(Path(path))
        identity = _identity(path)
        if identity in known:
            place = "go to standard output: name a" if path == STANDARD else f"be written to {path}: name another"
            raise DocmtError(f"two outputs would both {place} file for one of them")
        if identity is not None:
            known[identity] = path
    for path in filter(None, inputs):
        if path != STANDARD and (output := known.get(_identity(path))):
            raise DocmtError(f"{path} is an input and would be overwritten by the output {output}: name another output")


def make_directory(path: Path) -> None:
    """Make a directory for outputs, unless it is there. Raises DocmtError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def _identity(path: str) -> object | None:
    """Return what two paths to one file have in common, existing or not; None for a device, which is no file."""
    if path == STANDARD:
        return STANDARD
    with suppress(OSError):  # the reader of such a path says what is wrong with it
        found = Path(path).stat()
        return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
    return os.path.realpath(path)
