"""Parallel corpora: pairs of text files with one sentence a line, or JSONL; read and written as a stream.

In text files documents are parted by empty lines, or each document is opened by a line `<d>`; a file is of the
second kind if its first line that is not empty is `<d>`. Line n of the source file belongs to line n of the target
file, empty lines and marks included. Only a line feed (with or without a carriage return) ends a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from docmt.documents.document import brief
from docmt.documents.plain_text import decode_utf8, open_binary
from docmt.errors import DocmtError
from docmt.files import atomic_path, cannot_read

DOCUMENT_MARK = "<d>"
_BYTE_ORDER_MARK = "\ufeff"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_Row = tuple[int, tuple[str, ...]]  # a line number and the sentences in that line, one for each side


@dataclass(frozen=True)
class ParallelDocument:
    """A document in two languages, sentence i of the source belonging to sentence i of the target.

    Raises ValueError if the sides differ in length.
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    number: int = field(default=0, compare=False, repr=False)
    """its place in the corpus that it was read from, counted from 1, those that were left out included"""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source sentences, {len(self.target)} target sentences")

    def __repr__(self) -> str:
        return brief(self, self.id, self.source)

    def __len__(self) -> int:
        """The number of pairs of sentences."""
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The pairs of source and target sentence."""
        return zip(self.source, self.target, strict=True)


@dataclass
class Skipped:
    """What was left out and why: the number of cases for each reason, and the first few places."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    examples_kept: int = 3

    def add(self, reason: str, where: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.examples.setdefault(reason, [])
        if len(places) < self.examples_kept:
            places.append(where)


def read_parallel(
    source: Path, target: Path | None = None, *, skipped: Skipped | None = None
) -> Iterator[ParallelDocument]:
    """Streams the documents of a parallel corpus: two text files, or (without `target`) one JSONL file.

    A JSONL line is an object with `source` and `target` (lists of sentences, equally long) and perhaps `id`;
    without one, and for text files, the id is the ordinal number of the document ("1", "2", ...).
    Sentences are stripped of surrounding white space. Pairs with an empty side (in files with `<d>` marks and in
    JSONL) and documents without any pair are left out and counted in `skipped`.
    Raises DocmtError, naming the file and line, for sides that do not fit together, bad UTF-8 and bad JSON.
    """
    skipped = Skipped() if skipped is None else skipped
    documents = _read_jsonl(source) if target is None else _read_lines((source, target))
    for number, (id, place, rows) in enumerate(documents, 1):
        pairs = []
        for line, pair in rows:
            if all(pair):
                pairs.append(pair)
            else:
                skipped.add("pair with an empty side", f"{source}, line {line}")
        if pairs:
            yield ParallelDocument(id, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs), number)
        else:
            skipped.add("document without sentences", f"{source}, line {place}")


def read_documents(path: Path | str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Streams one side alone: the (id, sentences) of every document of a text file, ids as in `read_parallel`.

    Empty lines within documents opened by `<d>` stay, as empty sentences, so that line numbers can be matched with
    those of another file; documents without any line are left out. Raises DocmtError as `read_parallel` does.
    """
    for id, _, rows in _read_lines((Path(path),)):
        if rows:
            yield id, tuple(sentences[0] for _, sentences in rows)


def _read_lines(paths: Sequence[Path]) -> Iterator[tuple[str, int, list[_Row]]]:
    """Yields (ordinal, first line, rows) of every document of one file, or of several read in lockstep."""
    count, opened, rows = 0, 0, list[_Row]()
    marked: bool | None = None  # unknown before the first line that is not empty
    for number, row in _lockstep(paths):
        if marked is None and any(row):
            marked = DOCUMENT_MARK in row
        border = DOCUMENT_MARK if marked else ""
        if not marked and DOCUMENT_MARK in row:
            raise stray_mark(paths[row.index(DOCUMENT_MARK)], number)
        if border not in row:
            opened = opened or number
            rows.append((number, row))
            continue
        _check_border(paths, number, row, border)
        if opened:
            count += 1
            yield str(count), opened, rows
        opened, rows = (number if marked else 0), []
    if opened:
        yield str(count + 1), opened, rows


def stray_mark(path: Path | str, line: int) -> DocmtError:
    """The error for a document mark in a file whose documents are not opened by marks."""
    return DocmtError(
        f"{path}, line {line}: a document mark {DOCUMENT_MARK} in a file that "
        f"does not begin with one; open every document with {DOCUMENT_MARK}, or use empty lines only"
    )


def _lockstep(paths: Sequence[Path]) -> Iterator[_Row]:
    """Yields the stripped lines of all files side by side. Empty lines after the end of a shorter file are allowed."""
    last = 0  # the last line that all files have
    for number, row in enumerate(zip_longest(*map(_stripped_lines, paths)), 1):
        if None not in row:
            last = number
            yield number, row
        elif any(row):
            shorter = paths[row.index(None)]
            longer = next(path for path, line in zip(paths, row, strict=True) if line)
            ends = f"ends after line {last}" if last else "is empty"
            raise DocmtError(
                f"{shorter} {ends}, but {longer} goes on (line {number}); "
                "the two files must have one line for each other's lines: align them again"
            )


def _check_border(paths: Sequence[Path], number: int, row: tuple[str, ...], border: str) -> None:
    if all(line == border for line in row):
        return
    with_border = paths[row.index(border)]
    without = next(path for path, line in zip(paths, row, strict=True) if line != border)
    name = f"a document mark {border}" if border else "an empty line (the end of a document)"
    raise DocmtError(
        f"line {number}: {with_border} has {name} where {without} has none; "
        "the files part here or in the document before: align them again"
    )


def _stripped_lines(path: Path) -> Iterator[str]:
    for _, line in _decoded_lines(path):
        yield line.strip()


def _decoded_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (number, line) split at line feeds only, without a byte-order mark at the start of the file."""
    with open_binary(path) as file:
        for number, raw in enumerate(_raw_lines(file, path), 1):
            line = decode_utf8(raw, path, number)
            yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def _raw_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except OSError as error:
        raise cannot_read(path, error) from error


def _read_jsonl(path: Path) -> Iterator[tuple[str, int, list[_Row]]]:
    """Yields (id, line, rows) of every document; all rows of a document stand in one line of the file."""
    count = 0
    for number, line in _decoded_lines(path):
        if not line.strip():
            continue
        count += 1
        id, source, target = _parse_document(line, f"{path}, line {number}")
        yield id or str(count), number, [(number, pair) for pair in zip(source, target, strict=True)]


def _parse_document(line: str, where: str) -> tuple[str | None, list[str], list[str]]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise DocmtError(
            f"{where}: not valid JSON ({reason}); a JSONL corpus has one object a line, and a text corpus needs "
            "both its files named"
        ) from error
    if not isinstance(record, dict):
        raise DocmtError(f"{where}: not a JSON object; give one with `source` and `target`, lists of sentences")
    source, target = (_sentences(record, side, where) for side in ("source", "target"))
    if len(source) != len(target):
        raise DocmtError(
            f"{where}: `source` has {len(source)} sentences and `target` {len(target)}; "
            "give one target sentence for each source sentence"
        )
    id = record.get("id")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if id is not None and not isinstance(id, str):
        raise DocmtError(f"{where}: `id` is {_json_type(id)}; give a string, or leave it out")
    if _LONE_SURROGATE.search("".join((id or "", *source, *target))):
        raise DocmtError(f"{where}: holds a lone surrogate (\\ud800 to \\udfff), which is no character; remove it")
    return id, source, target


def _sentences(record: dict[str, object], side: str, where: str) -> list[str]:
    if side not in record:
        raise DocmtError(f"{where}: `{side}` is missing; give a list of sentences")
    sentences = record[side]
    if not isinstance(sentences, list):
        raise DocmtError(f"{where}: `{side}` is {_json_type(sentences)}; give a list of sentences")
    for index, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str):
            raise DocmtError(f"{where}: sentence {index} of `{side}` is {_json_type(sentence)}; give a string")
    return [sentence.strip() for sentence in sentences]


def _json_type(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "null" if value is None else "an object")


def write_parallel(documents: Iterable[ParallelDocument], source_path: Path, target_path: Path) -> None:
    """Writes two text files, one sentence a line, an empty line between documents. Ids are not kept.

    Raises DocmtError, before anything appears at either path, for what this format cannot hold: documents without
    sentences, empty sentences, sentences with line breaks and sentences that are document marks; use JSONL for those.
    """
    if Path(source_path).absolute() == Path(target_path).absolute():
        raise DocmtError(f"source and target would both be written to {source_path}; give two different paths")
    with (
        atomic_path(Path(source_path)) as source,
        atomic_path(Path(target_path)) as target,
        source.open("wb") as source_file,
        target.open("wb") as target_file,
    ):
        for index, document in enumerate(documents):
            name = f"document {document.id or index + 1}"
            if not document.source:
                raise DocmtError(f"{name} has no sentences, which a text corpus cannot show; leave it out")
            source_file.write(_text_lines(document.source, f"source of {name}", is_first=index == 0))
            target_file.write(_text_lines(document.target, f"target of {name}", is_first=index == 0))


def _text_lines(sentences: Sequence[str], where: str, is_first: bool) -> bytes:
    for number, sentence in enumerate(sentences, 1):
        problem = _unwritable(sentence)
        if problem:
            raise DocmtError(
                f"{where}: sentence {number} {problem}, which a text corpus cannot show; mend it or write JSONL"
            )
    text = "".join(f"{sentence}\n" for sentence in sentences)
    if not is_first:
        text = "\n" + text
    elif text.startswith(_BYTE_ORDER_MARK):
        text = _BYTE_ORDER_MARK + text  # readers drop one at the start of a file
    return text.encode("utf-8")


def _unwritable(sentence: str) -> str | None:
    checks: tuple[tuple[Callable[[str], bool], str], ...] = (
        (lambda text: not text.strip(), "is empty"),
        (lambda text: "\n" in text or "\r" in text, "holds a line break"),
        (lambda text: text.strip() == DOCUMENT_MARK, f"is the document mark {DOCUMENT_MARK}"),
        (lambda text: _LONE_SURROGATE.search(text) is not None, "holds a lone surrogate"),
    )
    return next((problem for check, problem in checks if check(sentence)), None)


def write_jsonl(documents: Iterable[ParallelDocument], path: Path) -> None:
    """Writes one JSON object a line: id, source and target. Raises DocmtError for lone surrogates."""
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        for document in documents:
            record = {"id": document.id, "source": document.source, "target": document.target}
            try:
                file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
            except UnicodeEncodeError as error:
                raise DocmtError(f"document {document.id} holds a lone surrogate; remove it") from error
