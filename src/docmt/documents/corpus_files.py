"""Parallel corpora: pairs of text files with one sentence a line, or JSONL, read and written as streams.

In text files, documents are separated by empty lines, or each begins with a line `<d>`. A file is of the second kind
if its first non-empty line is `<d>`. Or a third file names the document of every line. Line n of the source file is
the translation of line n of the target file, empty lines and marks included. Only a line feed (with or without a
carriage return) ends a line. `docmt.documents.input_formats` describes JSONL. One side may be JSONL and the other
text. `docmt.documents.published_corpora` describes other files with both sides. Files may be compressed (x.gz, x.zst).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import BinaryIO

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_path
from docmt.core.plain_text import BYTE_ORDER_MARK, find_suffix, open_compressing, read_lines
from docmt.documents.document import summarize
from docmt.documents.input_formats import (
    DOCUMENT_MARK,
    LONE_SURROGATE,
    FileDocument,
    Row,
    check_markup,
    is_jsonl,
    parse_json_lines,
    parse_jsonl,
    parse_text,
)
from docmt.documents.published_corpora import Columns, is_published, read_published

_OPUS_TABS = 3
_MAX_EXAMPLES = 3


@dataclass(frozen=True)
class ParallelDocument:
    """A document in two languages. Sentence i of the target translates sentence i of the source.

    Raises ValueError if the sides differ in length.
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    number: int = field(default=0, compare=False, repr=False)
    """ordinal number in its corpus from 1, skipped documents included"""
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """line of each sentence in the source file"""
    drafts: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """first translations of the source sentences if requested, each may be empty"""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} source sentences, {len(self.target)} target sentences")

    def __repr__(self) -> str:
        return summarize(self, self.id, self.source)

    def __len__(self) -> int:
        """Return the number of sentence pairs."""
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Iterate over the pairs of source and target sentence."""
        return zip(self.source, self.target, strict=True)


@dataclass
class SkipReport:
    """Counts of skipped pairs and documents by reason, with the locations of the first ones."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, location: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.examples[reason] = [*self.examples.get(reason, []), location][:_MAX_EXAMPLES]


def read_parallel(
    source: Path,
    target: Path | None = None,
    *,
    docids: Path | None = None,
    drafts: Path | None = None,
    columns: Columns = Columns(),
    languages: tuple[str, str] = ("", ""),
    skipped: SkipReport | None = None,
    keep_empty: bool = False,
) -> Iterator[ParallelDocument]:
    """Yield the documents of a parallel corpus: two files, or (without `target`) one file with both sides.

    For text files a document's id is its ordinal number ("1", "2", ...), or its name in the file `docids`, which has
    one name a line. Sentences are stripped of white space. Pairs with an empty side (where empty lines separate no
    documents) and documents without pairs are skipped and counted in `skipped`. keep_empty: keep such pairs. The file
    `drafts` has a first translation of every source sentence: a text file parallel to the source, or JSONL with the
    same documents. Of JSONL, `draft` is read, or `target` if no object has a `draft`. columns, languages: see
    `read_published`. Raises DocmtError, naming file and line, for sides that do not match, bad UTF-8 and bad JSON.
    """
    skipped = SkipReport() if skipped is None else skipped
    if target is None and (is_published(source) or columns != Columns()):
        if docids is not None:
            raise DocmtError(f"{source} contains document ids, or has none. Give - instead of {docids}.")
        documents = read_published(source, columns, languages)
    else:
        documents = _read_corpus(source, target, docids)
    if drafts is not None:
        documents = _add_drafts(documents, source, target, drafts)
    for number, document in enumerate(documents, 1):
        pairs, lines = [], []
        for line, pair in document.rows:
            if keep_empty or all(pair[:2]):
                pairs.append(pair)
                lines.append(line)
            else:
                skipped.add("pair with an empty side", f"{source}, line {line}")
        if pairs:
            sources, targets, *draft_texts = zip(*pairs, strict=True)
            yield ParallelDocument(document.id, sources, targets, number, tuple(lines), *draft_texts)
        else:
            skipped.add("document without sentences", f"{source}, line {document.line}")


def _read_corpus(source: Path, target: Path | None, docids: Path | None) -> Iterator[FileDocument]:
    """Yield every document of a corpus in any form."""
    if docids is not None and (target is None or is_jsonl(source) or is_jsonl(target)):
        raise DocmtError(f"{source} is JSONL, which contains document ids. Give - instead of {docids}.")
    if target is None:
        return parse_jsonl(read_lines(source), source, ["source", "target"])
    if docids is not None:
        return _read_with_ids(source, target, docids)
    if is_jsonl(source) or is_jsonl(target):
        return _zip_sides(_read_side(source, "source"), _read_side(target, "target"), source, target)
    return _read_text_files(source, target)


def read_documents(path: Path | str, side: str = "source") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (id, sentences) of every document of one side. Ids are as in `read_parallel`.

    For a JSONL file `side` names the side. Empty lines within documents opened by `<d>` become empty sentences, so
    that line numbers match those of another file. Documents without lines are left out. Raises DocmtError as
    `read_parallel` does.
    """
    for document in read_filled(Path(path), side):
        yield document.id, document.sentences


def read_filled(path: Path, side: str) -> Iterator[FileDocument]:
    """Yield the documents of one side that have lines, see `read_documents`."""
    return (document for document in _read_side(path, side) if document.rows)


def _read_with_ids(source: Path, target: Path, docids: Path) -> Iterator[FileDocument]:
    """Yield the documents of two text files with a third that names them line by line, or of OPUS.

    Consecutive lines with the same id are one document. Lines that are empty in all files are ignored.
    """
    for id, lines in groupby(_read_named_lines(source, target, docids), key=lambda line: line[0]):
        rows = [row for _, row in lines]
        yield FileDocument(id, rows[0][0], rows)


def _read_named_lines(source: Path, target: Path, docids: Path) -> Iterator[tuple[str, Row]]:
    """Yield the id of the document of each line, and the line.

    Lines of .ids files of OPUS have the files of both sides, and the numbers of the sentences there.
    """
    is_opus = False
    for number, (source_line, target_line, id) in _read_in_parallel((source, target, docids)):
        for path, line in ((source, source_line), (target, target_line)):
            if line == DOCUMENT_MARK:
                raise DocmtError(
                    f"{path}, line {number}: document mark {DOCUMENT_MARK} in a corpus with document ids in {docids}. "
                    "Remove the marks or the file of ids."
                )
        if not id and (source_line or target_line):
            raise DocmtError(f"{docids}, line {number}: the sentence has no id. Write one on every line.")
        if not id:
            continue
        is_opus = is_opus or id.count("\t") == _OPUS_TABS
        if is_opus:  # a line without sentences on one side has fewer tabs, as lines are stripped
            id = "\t".join(id.split("\t")[:2])
        yield id, (number, (source_line, target_line))


def _read_text_files(*paths: Path) -> Iterator[FileDocument]:
    """Yield the documents of one text file, or of several read in parallel."""
    return parse_text(_read_in_parallel(paths), paths)


def _read_in_parallel(paths: Sequence[Path]) -> Iterator[Row]:
    """Yield the stripped lines of all files together. A shorter file may lack empty lines at the end."""
    last = 0  # the last line that all files have
    for number, row in enumerate(zip_longest(*map(_read_stripped_lines, paths)), 1):
        if None not in row:
            last = number
            yield number, row
        elif any(row):
            shorter = paths[row.index(None)]
            longer = next(path for path, line in zip(paths, row, strict=True) if line)
            ends = f"ends after line {last}" if last else "is empty"
            raise DocmtError(
                f"{shorter} {ends} but {longer} has text in line {number}. "
                "Align the files again: line n of one must belong to line n of the other."
            )


def _read_stripped_lines(path: Path) -> Iterator[str]:
    has_text = False
    for _, raw in read_lines(path):
        line = raw.strip()
        if line and not has_text:
            check_markup(path, line)
            has_text = True
        yield line


def _add_drafts(
    documents: Iterator[FileDocument], source: Path, target: Path | None, drafts: Path
) -> Iterator[FileDocument]:
    """Yield the documents with the draft of each sentence at the end of its row."""
    is_json = is_jsonl(drafts)
    sides, has_names = _find_draft_entries(drafts) if is_json else (["target"], False)
    for path in (source, target or source):
        if sides[-1] != "draft" and path.exists() and drafts.exists() and path.samefile(drafts):
            raise DocmtError(f"{drafts} is a file of the corpus itself. Give a translation of {source}.")
    has_documents = not is_published(source) and is_jsonl(source)
    if is_json or has_documents:
        drafted = parse_jsonl(read_lines(drafts), drafts, sides) if is_json else _read_text_files(drafts)
        documents_with_drafts = _zip_sides(documents, drafted, source, drafts, same_ids=has_names and has_documents)
        for number, document in enumerate(documents_with_drafts, 1):
            # A row is (source, target, draft), or (source, target, the drafts' source, draft).
            for _, texts in document.rows:
                if len(texts) > 3 and texts[0].split() != texts[2].split():
                    raise DocmtError(
                        f"{drafts}: the source of document {number} ({document.id!r}) is {texts[2]!r}, but "
                        f"{texts[0]!r} in {source}. Give the drafts of this corpus in its order."
                    )
            yield document._replace(rows=[(line, (*texts[:2], texts[-1])) for line, texts in document.rows])
        return
    lines = enumerate(_read_stripped_lines(drafts), 1)
    for document in documents:
        rows: list[Row] = []
        for number, texts in document.rows:
            for line, draft in lines:
                if draft and (line == number) == (draft == DOCUMENT_MARK):
                    problem = "document mark beside a sentence" if line == number else "draft beside a boundary"
                    raise DocmtError(
                        f"{drafts}, line {line}: {problem} of {source}. Line n must be the draft of line n: "
                        f"translate {source} with --layout lines."
                    )
                if line == number:
                    rows.append((number, (*texts, draft)))
                    break
            else:
                raise DocmtError(
                    f"{drafts} ends before line {number} of {source}. "
                    "Give a draft for each line, as `docmt translate` writes them."
                )
        yield document._replace(rows=rows)
    if extra := next((number for number, line in lines if line not in ("", DOCUMENT_MARK)), None):
        raise DocmtError(f"{drafts} has text after the end of {source} (line {extra}). Give the drafts of this file.")


def _find_draft_entries(drafts: Path) -> tuple[list[str], bool]:
    """Return the entries to read in a JSONL file of drafts, drafts last, and whether its documents have names.

    Raises DocmtError for a sentence without translation, and if only some objects have a `draft`.
    """
    entry, has_names, has_source = "", False, False
    for number, record in parse_json_lines(read_lines(drafts), drafts):
        location = f"{drafts}, line {number}"
        if "error" in record and not (record.get("draft") or record.get("target")):
            raise DocmtError(f"{location}: an error instead of a draft ({record['error']}). Translate it again.")
        current = "draft" if "draft" in record else "target"
        entry = entry or current
        if current != entry:
            raise DocmtError(
                f"{location}: the draft is in `{current}`, earlier ones in `{entry}`. Use one entry in all objects."
            )
        has_names = has_names or any(record.get(name) is not None for name in ("id", "document"))
        has_source = has_source or "source" in record
    entry = entry or "target"
    return (["source", entry] if has_source else [entry]), has_names


def _zip_sides(
    sources: Iterator[FileDocument], targets: Iterator[FileDocument], source: Path, target: Path, same_ids: bool = False
) -> Iterator[FileDocument]:
    """Yield documents with the sentences of both files in each row.

    same_ids: whether to raise DocmtError for documents with different ids. Otherwise only for the same ones in another
    order.
    """
    pairs = _check_order(zip_longest(sources, targets), source, target, same_ids)
    for number, (document, other) in enumerate(pairs, 1):
        if document is None or other is None:
            shorter, longer = (source, target) if document is None else (target, source)
            raise DocmtError(
                f"{shorter} has {number - 1} documents but {longer} has more. "
                "Give the same documents in the same order."
            )
        if len(document.rows) != len(other.rows):
            raise DocmtError(
                f"document {number} ({document.id!r}) has {len(document.rows)} sentences in {source} but "
                f"{len(other.rows)} in {target}. Give one target sentence for each source sentence."
            )
        rows = zip(document.rows, other.rows, strict=True)
        yield document._replace(rows=[(line, (*texts, *other_texts)) for (line, texts), (_, other_texts) in rows])


_Pair = tuple[FileDocument | None, FileDocument | None]


def _check_order(pairs: Iterable[_Pair], source: Path, target: Path, same_ids: bool = False) -> Iterator[_Pair]:
    """Yield the documents of two files, side by side. None: there is no other.

    Raises DocmtError for a document whose name was, or is, beside another one. same_ids: for any other name. Numbers
    may begin at 0 in one file and at 1 in the other: they are only wrong if both files have the same ones.
    """
    names, others = set[str](), set[str]()  # of documents beside one with another name
    first: DocmtError | None = None
    for number, (document, other) in enumerate(pairs, 1):
        if document and other and document.id != other.id:
            error = DocmtError(
                f"document {number} is {document.id!r} in {source} but {other.id!r} in {target}. "
                "Give the same documents in the same order."
            )
            is_known = False
            if document.has_name and other.has_name:
                first = first or error
                names.add(document.id)
                others.add(other.id)
                are_numbers = document.id.isdigit() and other.id.isdigit()
                is_known = (document.id in others or other.id in names) and not are_numbers
            if same_ids or is_known:
                raise error
        yield document, other
    if first is not None and names == others:
        raise first


def _read_side(path: Path, side: str) -> Iterator[FileDocument]:
    """Return the documents of one side, from JSONL or text."""
    return parse_jsonl(read_lines(path), path, [side]) if is_jsonl(path) else _read_text_files(path)


def write_parallel(documents: Iterable[ParallelDocument], source_path: Path, target_path: Path) -> None:
    """Write two text files with one sentence a line and an empty line between documents. Ids are not written.

    Raises DocmtError, before either file appears, for documents that the format cannot express: without sentences, or
    with sentences that are empty, contain line breaks or are document marks. Use JSONL for those.
    """
    if Path(source_path).absolute() == Path(target_path).absolute():
        raise DocmtError(f"source and target would both be written to {source_path}. Give two different paths.")
    with (
        atomic_path(Path(source_path)) as source,
        atomic_path(Path(target_path)) as target,
        _open_output(source, source_path) as source_file,
        _open_output(target, target_path) as target_file,
    ):
        for index, document in enumerate(documents):
            name = f"document {document.id or index + 1}"
            if not document.source:
                raise DocmtError(f"{name} has no sentences, which a text corpus cannot express. Leave it out.")
            source_file.write(_encode_lines(document.source, f"source of {name}", is_first=index == 0))
            target_file.write(_encode_lines(document.target, f"target of {name}", is_first=index == 0))


@contextmanager
def _open_output(temporary: Path, path: Path) -> Iterator[BinaryIO]:
    """Yield an open file that is compressed if the name of `path` says so."""
    with temporary.open("wb") as file, open_compressing(file, find_suffix(path)) as output:
        yield output


def _encode_lines(sentences: Sequence[str], name: str, is_first: bool) -> bytes:
    for number, sentence in enumerate(sentences, 1):
        problems = {
            "is empty": not sentence.strip(),
            "contains a line break": "\n" in sentence or "\r" in sentence,
            f"is the document mark {DOCUMENT_MARK}": sentence.strip() == DOCUMENT_MARK,
            "contains a lone surrogate": LONE_SURROGATE.search(sentence),
        }
        if present := [problem for problem, applies in problems.items() if applies]:
            raise DocmtError(f"{name}: sentence {number} {present[0]}, which a text corpus cannot express. Use JSONL.")
    text = "".join(f"{sentence}\n" for sentence in sentences)
    if not is_first:
        text = "\n" + text
    elif text.startswith(BYTE_ORDER_MARK):
        text = BYTE_ORDER_MARK + text  # readers remove the first one of a file
    return text.encode("utf-8")


def write_jsonl(documents: Iterable[ParallelDocument], path: Path) -> None:
    """Write one JSON object a line: id, source and target. Raises DocmtError for lone surrogates."""
    with atomic_path(Path(path)) as temporary, _open_output(temporary, path) as file:
        for document in documents:
            record = {"id": document.id, "source": document.source, "target": document.target}
            try:
                file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
            except UnicodeEncodeError as error:
                raise DocmtError(f"document {document.id} contains a lone surrogate. Remove it.") from error


Corpus = list[tuple[str, ...]]
"""Sentences of each document."""


def read_reference(path: Path) -> Corpus:
    """Return the documents of a reference file: text with one sentence a line, or JSONL."""
    return [sentences for _, sentences in read_documents(path, "target")]


def read_hypothesis(path: Path, reference_path: Path, references: Corpus, side: str = "target") -> Corpus:
    """Return the documents of a hypothesis file.

    references: the documents of the file `reference_path`, of this side. If the two files are parallel (see
    `align_lines`), the reference has the boundaries. If not, the hypothesis has, as for a system that keeps documents
    but not sentences. Raises DocmtError for a file that cannot be read, and for JSONL with the documents of the
    reference in another order.
    """
    if is_jsonl(path):
        documents = list(read_filled(path, "target"))
        if is_jsonl(reference_path):
            # It raises DocmtError for another order.
            list(_check_order(zip(read_filled(reference_path, side), documents, strict=False), reference_path, path))
        return [document.sentences for document in documents]
    if is_jsonl(reference_path):  # as in a text file: an empty line after each document
        reference = [line for document in references for line in (*document, "")]
    else:
        reference = [line for _, line in read_lines(reference_path)]
    aligned = align_lines([line for _, line in read_lines(path)], reference, references)
    return aligned if aligned is not None else read_reference(path)


def count_untranslated(path: Path) -> int:
    """Return the number of sentences of a JSONL file that have an `error` instead of a `target`; 0 for other files."""
    if not is_jsonl(path):
        return 0
    records = parse_json_lines(read_lines(path), path)
    return sum("error" in record and not record.get("target") for _, record in records)


def align_lines(hypothesis: list[str], reference: list[str], references: Corpus) -> Corpus | None:
    """Return the hypothesis in the documents of the reference, or None if their lines are not parallel.

    hypothesis, reference: the lines of both files. references: the documents of the latter. An empty hypothesis line
    for a reference sentence is an empty sentence. Lines are not parallel if their numbers differ (apart from empty
    lines at the end), or if text faces a boundary or a document mark a sentence.
    """
    if any(line.strip() for line in hypothesis[len(reference) :]):
        return None
    expected = [sentence for document in references for sentence in document]
    aligned: list[str] = []
    for line, reference_line in zip(hypothesis, reference, strict=False):
        line = line.strip()
        # Lines that the corpus reader did not return as sentences are boundaries.
        if len(aligned) < len(expected) and reference_line.strip() == expected[len(aligned)].strip():
            if line == DOCUMENT_MARK:
                return None
            aligned.append(line)
        elif line not in ("", DOCUMENT_MARK):
            return None
    if len(aligned) != len(expected):
        return None
    remaining = iter(aligned)
    return [tuple(next(remaining) for _ in document) for document in references]
