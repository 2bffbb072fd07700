"""What kind of file a text is (by its name, then by how it begins), and the documents of text and of JSON Lines.

    jsonl      x.jsonl, x.ndjson, or a first line that is a JSON object with `source`, `target` or `text`
    markdown   x.md, x.markdown
    text       all else that is text: running text, or a corpus of one sentence a line, as the command takes it

Each may be compressed (x.txt.gz). Formats that are text with something else in it (subtitles, web pages, translation
memories) and office documents are refused by name: their marks would be translated as if they were sentences.

JSON Lines are one JSON object a line. A document is written in one of three forms, which may stand in one file.

    {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}     a whole document, lists of sentences
    {"document": "a", "source": "One.", "target": "Eins."}                    a sentence of the document "a"
    {"id": "a", "text": "One. Two."}                                          a document of running text

The second form is the one that `docmt translate` and `docmt score` write. Lines that follow each other with the same
`document` are one document, in which a `sentence` that does not count on begins another one. The third form, whose
text may also be the `source` of an object without `document`, is for translating alone: it has to be segmented.
`id` and `document` name the document in all forms; one without a name has its ordinal number ("1", "2", ...).
Only the side that is needed must be there, and other entries are passed over. Where `error` says that a sentence has
no translation, its `target` is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK, GZIP_SUFFIX, STANDARD, decoded_lines

DOCUMENT_MARK = "<d>"
"""A line that opens a document in a text file of one sentence a line."""
Format = Literal["text", "markdown", "jsonl"]

_EXTRACT = "extract the text (pandoc FILE -t plain does for most), and translate that"
_AS_LINES = "into a file of one sentence a line, and translate that with --layout lines"
_SUBTITLES = "subtitles", f"put their text {_AS_LINES}"
_PAGE = "a web page", _EXTRACT
_XML = "XML", _EXTRACT
_OFFICE = "an office document", _EXTRACT
_SENTENCES = f"put the sentences of one language {_AS_LINES}"
_REFUSED = {
    **dict.fromkeys((".srt", ".vtt", ".sub", ".ass"), _SUBTITLES),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _PAGE),
    **dict.fromkeys((".docx", ".odt", ".doc", ".rtf", ".pptx", ".xlsx", ".epub"), _OFFICE),
    ".xml": _XML,
    ".pdf": ("a PDF document", "extract the text (pdftotext does), and translate that with --join-lines"),
    ".po": ("messages of gettext", _SENTENCES),
    ".tmx": ("a translation memory", _SENTENCES),
    ".xliff": ("a translation in XLIFF", _SENTENCES),
    ".xlf": ("a translation in XLIFF", _SENTENCES),
    ".json": ("JSON that is no JSON Lines", "give one object a line, with `text` or with `source` sentences"),
}
_MARKUP = (
    (re.compile(r"\s*(<!doctype html|<html[\s>])", re.IGNORECASE), _PAGE),
    (re.compile(r"\s*<\?xml\s"), _XML),
    (re.compile(r"WEBVTT(\s|$)"), _SUBTITLES),
    (re.compile(r"\s*\d+\s*\n\s*\d\d:\d\d:\d\d[,.]\d+\s*-->"), _SUBTITLES),
    (re.compile(r"%PDF-\d"), _REFUSED[".pdf"]),
)
_BY_FORCE = " (--layout text takes it for plain text as it stands)"
_MARKDOWN = (".md", ".markdown")


def format_of(path: Path | str, text: str) -> Format:
    """The format of a file with this text ("-" is standard input). Raises DocmtError for those that are refused."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    if named_jsonl(path) or begins_as_jsonl(text.lstrip().partition("\n")[0]):
        return "jsonl"
    check_name(path)
    check_markup(path, text, _BY_FORCE)
    return "markdown" if _suffix(path) in _MARKDOWN else "text"


def is_jsonl(path: Path | str) -> bool:
    """Whether a corpus is JSONL, by its name or (of a file that can be read twice) by its first line."""
    if named_jsonl(path):
        return True
    if not Path(path).is_file():
        return False
    lines = (line for _, line in islice(decoded_lines(path), 1))
    return any(begins_as_jsonl(line) for line in lines)


def check_name(path: Path | str) -> None:
    """Raises DocmtError for a file that is, by its name, of a format that docmt does not read."""
    if refused := _REFUSED.get(_suffix(path)):
        raise _refusal(path, *refused, _BY_FORCE)


def check_markup(path: Path | str, text: str, more: str = "") -> None:
    """Raises DocmtError, perhaps with more advice, for text that begins as a format that docmt does not read."""
    for beginning, refused in _MARKUP:
        if beginning.match(text):
            raise _refusal(path, *refused, more)


def _refusal(path: Path | str, what: str, advice: str, more: str) -> DocmtError:
    name = "standard input" if str(path) == STANDARD else path
    return DocmtError(f"{name}: this is {what}, which docmt does not read: {advice}{more}")


def _suffix(path: Path | str) -> str:
    return Path(str(path).removesuffix(GZIP_SUFFIX)).suffix.lower()


Row = tuple[int, tuple[str, ...]]
"""The number of a line, and the sentences in that line, one for each side."""


class WrittenDocument(NamedTuple):
    """A document as its file has it, with the sides that were asked for."""

    id: str
    line: int
    """where it begins"""
    rows: list[Row]
    """its sentences, stripped of surrounding white space"""
    text: str | None = None
    """running text in place of sentences"""


def text_documents(rows: Iterable[Row], paths: Sequence[Path | str]) -> Iterator[WrittenDocument]:
    """Stream the documents of a text file, or of several read in lockstep; their ids are their ordinal numbers.

    rows: all lines, stripped. Empty lines part documents, or marks open them: see `docmt.documents.corpus_files`.
    Raises DocmtError for a border that is not in all files, and for a mark in a file that does not begin with one.
    """
    count = 0
    document: WrittenDocument | None = None
    marked: bool | None = None  # unknown before the first line that is not empty
    for number, row in rows:
        if marked is None and any(row):
            marked = DOCUMENT_MARK in row
        if not marked and DOCUMENT_MARK in row:
            raise DocmtError(
                f"{paths[row.index(DOCUMENT_MARK)]}, line {number}: a document mark {DOCUMENT_MARK} in a file that "
                f"does not begin with one; open every document with {DOCUMENT_MARK}, or use empty lines only"
            )
        border = DOCUMENT_MARK if marked else ""
        is_border = border in row
        if is_border:
            _check_border(paths, number, row, border)
            if document is not None:
                yield document
            document = None
        # A mark opens a document; where there are none, a line that is no border does.
        if document is None and is_border == bool(marked):
            count += 1
            document = WrittenDocument(str(count), number, [])
        if document is not None and not is_border:
            document.rows.append((number, row))
    if document is not None:
        yield document


def _check_border(paths: Sequence[Path | str], number: int, row: tuple[str, ...], border: str) -> None:
    if all(line == border for line in row):
        return
    with_border = paths[row.index(border)]
    without = next(path for path, line in zip(paths, row, strict=True) if line != border)
    name = f"a document mark {border}" if border else "an empty line (the end of a document)"
    raise DocmtError(
        f"line {number}: {with_border} has {name} where {without} has none; "
        "the files part here or in the document before: align them again"
    )


LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SUFFIXES = (".jsonl", ".ndjson")
_ONE_A_LINE = "JSONL has one object a line"
_OR_BOTH_FILES = ", and a text corpus needs both its files named"
_SIDES = ("source", "target")
Record = dict[str, object]


def named_jsonl(path: Path | str) -> bool:
    """Whether a file is JSONL by its name (x.jsonl, x.ndjson, x.jsonl.gz)."""
    return str(path).removesuffix(GZIP_SUFFIX).lower().endswith(_SUFFIXES)


def begins_as_jsonl(line: str) -> bool:
    """Whether the first line of a text is an object with sentences."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and any(side in record for side in (*_SIDES, "text"))


def json_documents(
    lines: Iterable[tuple[int, str]], path: Path | str, sides: Sequence[str], running_text: bool = False
) -> Iterator[WrittenDocument]:
    """Streams the documents in numbered lines of JSONL; `sides` ("source", "target", "draft"): what is read of them.

    `running_text`: documents of running text are allowed. Sentences are stripped of surrounding white space.
    Raises DocmtError, naming the line of `path`, for what is none of the three forms.
    """
    count = 0
    document: WrittenDocument | None = None  # the open one, whose sentences stand in lines of their own
    name, place = "", 0  # its `document`, and the `sentence` of its last line
    for number, record in json_records(lines, path, _ONE_A_LINE if running_text else _ONE_A_LINE + _OR_BOTH_FILES):
        where = f"{path}, line {number}"
        own = _name(record, "document", where)
        alone = "error" in record or any(isinstance(record.get(side), str) for side in sides)
        if own is None or not alone:
            if document is not None:
                yield document
                document = None
            count += 1
            yield _whole_document(record, number, str(count), sides, running_text, where)
            continue
        row = number, tuple(_sentence(record, side, where) for side in sides)
        following = record.get("sentence")
        after = following if isinstance(following, int) else place + 1
        if document is None or own != name or after <= place:
            if document is not None:
                yield document
            count += 1
            document = WrittenDocument(own or str(count), number, [])
        name, place = own, after
        document.rows.append(row)
    if document is not None:
        yield document


def json_records(
    lines: Iterable[tuple[int, str]], path: Path | str, advice: str = _ONE_A_LINE
) -> Iterator[tuple[int, Record]]:
    """Yield (number, object) of the lines that are not empty. Raises DocmtError for a line that is no JSON object."""
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            raise DocmtError(f"{where}: not valid JSON ({reason}); {advice}") from error
        if not isinstance(record, dict):
            raise DocmtError(f"{where}: not a JSON object; give one with `source` and `target`, lists of sentences")
        yield number, record


def _whole_document(
    record: Record, line: int, ordinal: str, sides: Sequence[str], running_text: bool, where: str
) -> WrittenDocument:
    """A document that is one line of the file."""
    id = _name(record, "id", where) or _name(record, "document", where) or ordinal
    text = record.get("source", record.get("text"))
    if running_text and isinstance(text, str):
        return WrittenDocument(id, line, [], _proper(text, where))
    found = [_sentences(record, side, where) for side in sides]
    if len({len(sentences) for sentences in found}) > 1:
        raise DocmtError(
            f"{where}: `source` has {len(found[0])} sentences and `{sides[1]}` {len(found[1])}; "
            f"give one {sides[1]} sentence for each source sentence"
        )
    return WrittenDocument(id, line, [(line, row) for row in zip(*found, strict=True)])


def _name(record: Record, entry: str, where: str) -> str | None:
    """The name of a document in that entry, if there is one."""
    name = record.get(entry)
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if name is not None and not isinstance(name, str):
        raise DocmtError(f"{where}: `{entry}` is {_json_type(name)}; give a string, or leave it out")
    return None if name is None else _proper(name, where)


def _sentence(record: Record, side: str, where: str) -> str:
    """The sentence of a line that is one."""
    sentence = record.get(side)
    if sentence is None and "error" in record:
        return ""
    if side not in record:
        raise DocmtError(f"{where}: `{side}` is missing; give a sentence")
    if not isinstance(sentence, str):
        raise DocmtError(f"{where}: `{side}` is {_json_type(sentence)}; give a string, a sentence of the document")
    return _proper(sentence, where).strip()


def _sentences(record: Record, side: str, where: str) -> list[str]:
    if side not in record:
        more = "; running text (`text`) can only be translated" if "text" in record else ""
        raise DocmtError(f"{where}: `{side}` is missing; give a list of sentences{more}")
    sentences = record[side]
    if not isinstance(sentences, list):
        more = ", or with each sentence the `document` that it belongs to" if isinstance(sentences, str) else ""
        raise DocmtError(f"{where}: `{side}` is {_json_type(sentences)}; give a list of sentences{more}")
    for index, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str):
            raise DocmtError(f"{where}: sentence {index} of `{side}` is {_json_type(sentence)}; give a string")
    return [_proper(sentence, where).strip() for sentence in sentences]


def _proper(text: str, where: str) -> str:
    """The same. Raises DocmtError if it holds what UTF-8 cannot."""
    if LONE_SURROGATE.search(text):
        raise DocmtError(f"{where}: holds a lone surrogate (\\ud800 to \\udfff), which is no character; remove it")
    return text


def _json_type(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "null" if value is None else "an object")
