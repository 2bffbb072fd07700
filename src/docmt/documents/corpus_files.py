"""Parallel corpora: pairs of text files with one sentence a line, or JSONL; read and written as a stream.

In text files documents are parted by empty lines, or each document is opened by a line `<d>`; a file is of the
second kind if its first line that is not empty is `<d>`. Or a third file names the document of every line. Line n of
the source file belongs to line n of the target file, empty lines and marks included. Only a line feed (with or without
a carriage return) ends a line. What JSONL looks like says `docmt.documents.formats`; one side may be JSONL and the
other text. All may be compressed by gzip.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_path
from docmt.core.plain_text import BYTE_ORDER_MARK, decoded_lines
from docmt.documents.document import brief
from docmt.documents.formats import (
    DOCUMENT_MARK,
    LONE_SURROGATE,
    Row,
    WrittenDocument,
    check_markup,
    is_jsonl,
    json_documents,
    json_records,
    text_documents,
)


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
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """where each sentence stands in the source file"""
    drafts: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """first translations of the source sentences, where they were asked for; any of them may be empty"""

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
    source: Path,
    target: Path | None = None,
    *,
    docids: Path | None = None,
    drafts: Path | None = None,
    skipped: Skipped | None = None,
) -> Iterator[ParallelDocument]:
    """Streams the documents of a parallel corpus: two files, or (without `target`) one JSONL file with both sides.

    Of text files the id of a document is its ordinal number ("1", "2", ...), or what the file `docids` says: it has
    the name of a document beside each of its sentences. Sentences are stripped of surrounding white space. Pairs with
    an empty side (where empty lines are no borders) and documents without any pair are left out and counted in
    `skipped`. The file `drafts` has a first translation of every source sentence: a text file whose lines belong to
    those of the source, or JSONL with the same documents, whose `draft` is read, or `target` if none has a `draft`.
    Raises DocmtError, naming the file and line, for sides that do not fit together, bad UTF-8 and bad JSON.
    """
    skipped = Skipped() if skipped is None else skipped
    documents = _parallel(source, target, docids)
    if drafts is not None:
        documents = _with_drafts(documents, source, target, drafts)
    for number, document in enumerate(documents, 1):
        pairs, lines = [], []
        for line, pair in document.rows:
            if all(pair[:2]):
                pairs.append(pair)
                lines.append(line)
            else:
                skipped.add("pair with an empty side", f"{source}, line {line}")
        if pairs:
            ours, theirs, *drafted = zip(*pairs, strict=True)
            yield ParallelDocument(document.id, ours, theirs, number, tuple(lines), *drafted)
        else:
            skipped.add("document without sentences", f"{source}, line {document.line}")


def _parallel(source: Path, target: Path | None, docids: Path | None) -> Iterator[WrittenDocument]:
    """Yields every document of a corpus, in whatever form it is."""
    if docids is not None and (target is None or is_jsonl(source) or is_jsonl(target)):
        raise DocmtError(f"{source} is JSONL, which has its ids itself: give - instead of {docids}")
    if target is None:
        return json_documents(decoded_lines(source), source, ["source", "target"])
    if docids is not None:
        return _read_with_ids(source, target, docids)
    if is_jsonl(source) or is_jsonl(target):
        return _beside(_side(source, "source"), _side(target, "target"), source, target)
    return _text_files(source, target)


def read_documents(path: Path | str, side: str = "source") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Streams one side alone: the (id, sentences) of every document of a text file, ids as in `read_parallel`.

    Of a JSONL file it is the side of that name. Empty lines within documents opened by `<d>` stay, as empty sentences,
    so that line numbers can be matched with those of another file; documents without any line are left out.
    Raises DocmtError as `read_parallel` does.
    """
    for document in _side(Path(path), side):
        if document.rows:
            yield document.id, tuple(sentences[0] for _, sentences in document.rows)


def _read_with_ids(source: Path, target: Path, docids: Path) -> Iterator[WrittenDocument]:
    """Yields the documents of two text files with a third that names them line by line.

    Lines that follow each other with the same id are one document. Lines that are empty in all files are passed over.
    """
    document: WrittenDocument | None = None
    for number, (ours, theirs, id) in _lockstep((source, target, docids)):
        for path, line in ((source, ours), (target, theirs)):
            if line == DOCUMENT_MARK:
                raise DocmtError(
                    f"{path}, line {number}: a document mark {DOCUMENT_MARK} in a corpus whose documents {docids} "
                    "names; give only one of the two"
                )
        if not id and (ours or theirs):
            raise DocmtError(f"{docids}, line {number}: there is no id beside the sentence; give one on every line")
        if not id:
            continue
        if document is None or id != document.id:
            if document is not None:
                yield document
            document = WrittenDocument(id, number, [])
        document.rows.append((number, (ours, theirs)))
    if document is not None:
        yield document


def _text_files(*paths: Path) -> Iterator[WrittenDocument]:
    """Yields the documents of one text file, or of several read in lockstep."""
    return text_documents(_lockstep(paths), paths)


def _lockstep(paths: Sequence[Path]) -> Iterator[Row]:
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


def _stripped_lines(path: Path) -> Iterator[str]:
    begins = False
    for _, raw in decoded_lines(path):
        line = raw.strip()
        if line and not begins:
            check_markup(path, line)
            begins = True
        yield line


def _with_drafts(
    documents: Iterator[WrittenDocument], source: Path, target: Path | None, drafts: Path
) -> Iterator[WrittenDocument]:
    """Yields the documents with the draft of each sentence at the end of its row."""
    sides, named = _draft_entries(drafts) if is_jsonl(drafts) else (["target"], False)
    for path in (source, target or source):
        if sides[-1] != "draft" and path.exists() and drafts.exists() and path.samefile(drafts):
            raise DocmtError(f"{drafts} is a file of the corpus, not its drafts: give a translation of {source}")
    if is_jsonl(drafts):
        drafted = json_documents(decoded_lines(drafts), drafts, sides)
        beside = _beside(documents, drafted, source, drafts, same_ids=named and is_jsonl(source))
        for number, document in enumerate(beside, 1):
            # A row is source, target, draft; or source, target, source beside the draft, draft.
            for _, texts in document.rows:
                if len(texts) > 3 and texts[0].split() != texts[2].split():
                    raise DocmtError(
                        f"{drafts}: the source of document {number} ({document.id!r}) is {texts[2]!r}, but "
                        f"{texts[0]!r} in {source}: give the drafts of this corpus, in its order"
                    )
            yield document._replace(rows=[(line, (*texts[:2], texts[-1])) for line, texts in document.rows])
        return
    if is_jsonl(source):
        yield from _beside(documents, _text_files(drafts), source, drafts)
        return
    lines = enumerate(_stripped_lines(drafts), 1)
    for document in documents:
        rows: list[Row] = []
        for number, texts in document.rows:
            for at, draft in lines:
                if draft and (at == number) == (draft == DOCUMENT_MARK):
                    what = "document mark beside a sentence" if at == number else "draft beside the end of a document"
                    raise DocmtError(
                        f"{drafts}, line {at}: a {what} of {source}; line n must be the draft of line n: translate "
                        f"{source} with --layout lines"
                    )
                if at == number:
                    rows.append((number, (*texts, draft)))
                    break
            else:
                raise DocmtError(
                    f"{drafts} ends before line {number} of {source}: give a file with a draft of each of its lines, "
                    "such as `docmt translate` writes"
                )
        yield document._replace(rows=rows)
    if left := next((number for number, line in lines if line not in ("", DOCUMENT_MARK)), None):
        raise DocmtError(f"{drafts} goes on after the end of {source} (line {left}): give the drafts of this file")


def _draft_entries(drafts: Path) -> tuple[list[str], bool]:
    """Return the entries of a JSONL file of drafts to read, the drafts last, and whether its documents have names.

    Raises DocmtError for a sentence without a translation, and where some objects have a `draft` and others none.
    """
    entry, named, with_source = "", False, False
    for number, record in json_records(decoded_lines(drafts), drafts):
        where = f"{drafts}, line {number}"
        if "error" in record and not (record.get("draft") or record.get("target")):
            raise DocmtError(f"{where}: no draft, but an error ({record['error']}): translate it again")
        has = "draft" if "draft" in record else "target"
        entry = entry or has
        if has != entry:
            raise DocmtError(
                f"{where}: its draft is in `{has}`, those before in `{entry}`: give `draft` in all objects, or in none"
            )
        named = named or any(record.get(name) is not None for name in ("id", "document"))
        with_source = with_source or "source" in record
    entry = entry or "target"
    return (["source", entry] if with_source else [entry]), named


def _beside(
    ours: Iterator[WrittenDocument],
    theirs: Iterator[WrittenDocument],
    source: Path,
    target: Path,
    same_ids: bool = False,
) -> Iterator[WrittenDocument]:
    """Yields documents with the sentences of both files in each row.

    same_ids: raise DocmtError for documents whose ids differ.
    """
    for number, (one, other) in enumerate(zip_longest(ours, theirs), 1):
        if one is None or other is None:
            shorter, longer = (source, target) if one is None else (target, source)
            raise DocmtError(
                f"{shorter} has {number - 1} documents, but {longer} has more; they must be the same documents in the "
                "same order"
            )
        if same_ids and one.id != other.id:
            raise DocmtError(
                f"document {number} is {one.id!r} in {source}, but {other.id!r} in {target}: give the same documents "
                "in the same order"
            )
        if len(one.rows) != len(other.rows):
            raise DocmtError(
                f"document {number} ({one.id!r}) has {len(one.rows)} sentences in {source} and {len(other.rows)} in "
                f"{target}; give one target sentence for each source sentence"
            )
        pairs = zip(one.rows, other.rows, strict=True)
        yield one._replace(rows=[(line, (*left, *right)) for (line, left), (_, right) in pairs])


def _side(path: Path, side: str) -> Iterator[WrittenDocument]:
    """One side alone, of a JSONL file or of a text file."""
    return json_documents(decoded_lines(path), path, [side]) if is_jsonl(path) else _text_files(path)


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
        problems = {
            "is empty": not sentence.strip(),
            "holds a line break": "\n" in sentence or "\r" in sentence,
            f"is the document mark {DOCUMENT_MARK}": sentence.strip() == DOCUMENT_MARK,
            "holds a lone surrogate": LONE_SURROGATE.search(sentence),
        }
        if found := [problem for problem, applies in problems.items() if applies]:
            raise DocmtError(
                f"{where}: sentence {number} {found[0]}, which a text corpus cannot show; mend it or write JSONL"
            )
    text = "".join(f"{sentence}\n" for sentence in sentences)
    if not is_first:
        text = "\n" + text
    elif text.startswith(BYTE_ORDER_MARK):
        text = BYTE_ORDER_MARK + text  # readers drop one at the start of a file
    return text.encode("utf-8")


def write_jsonl(documents: Iterable[ParallelDocument], path: Path) -> None:
    """Writes one JSON object a line: id, source and target. Raises DocmtError for lone surrogates."""
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        for document in documents:
            record = {"id": document.id, "source": document.source, "target": document.target}
            try:
                file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
            except UnicodeEncodeError as error:
                raise DocmtError(f"document {document.id} holds a lone surrogate; remove it") from error


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
    if is_jsonl(reference_path):  # as a text file has them, an empty line after each document
        reference = [line for document in references for line in (*document, "")]
    else:
        reference = [line for _, line in decoded_lines(reference_path)]
    aligned = align_lines([line for _, line in decoded_lines(path)], reference, references)
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
