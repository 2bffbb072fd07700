"""Detect the format of an input file, and parse the documents of text and of JSON Lines.

The name of a file decides its format, then its beginning. Files of `FORMATS` are read by `docmt.formats` as units.
Here they are refused, as their markup would be translated like sentences. Others are

    jsonl      x.jsonl, x.ndjson, or a first line that is a JSON object with `source`, `target` or `text`
    text       any other text: running text, or one sentence a line, depending on the command

Each may be compressed (x.txt.gz, x.txt.zst).

JSON Lines have one JSON object a line. A document has one of three forms, which one file may mix.

    {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}     a whole document, lists of sentences
    {"document": "a", "source": "One.", "target": "Eins."}                    a sentence of the document "a"
    {"id": "a", "text": "One. Two."}                                          a document of running text

`docmt translate` and `docmt score` write the second form. Consecutive lines with the same `document` are one document.
A `sentence` number that does not increase begins another one. The third form is for translation only, as it must be
segmented; its text may also be the `source` of an object without `document`.
`id` and `document` name the document in all forms; the default is its ordinal number ("1", "2", ...).
Only the needed side is required, and other entries are ignored. Where `error` says that a sentence has no translation,
its `target` is empty.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json_or_none
from docmt.core.plain_text import BYTE_ORDER_MARK, STANDARD, plain_name, read_lines
from docmt.core.settings import read_package_yaml

DOCUMENT_MARK = "<d>"
"""The line that opens a document in a text file of one sentence a line."""
_DocumentFormat = Literal["html", "xhtml", "epub", "markdown", "docx", "pptx", "xlsx", "odf", "srt", "vtt"]
_MessageFormat = Literal["xliff", "po", "json", "notebook", "strings", "tsv"]
FormatName = Literal[_DocumentFormat, _MessageFormat]
"""Formats that are read as units."""
_ROWS = 20
_HEAD = 4000
"""Characters of a file that show its format."""


class FileFormat(NamedTuple):
    """A format of files with markup."""

    name: str
    suffixes: tuple[str, ...]
    reader: str = ""
    """module and function of `docmt.formats` that reads it into units; empty: docmt does not read it"""
    description: str = ""
    """in messages; empty: commands that know no units read it as text"""
    is_checked: bool = False
    """whether `docmt check` compares two such files"""
    has_fields: bool = False
    """whether names of fields say what is translated"""
    advice: str = "Extract the text, for example with pandoc FILE -t plain, and translate that"
    """what to do where it is not read"""

    @property
    def module(self) -> str:
        """Module of `docmt.formats`."""
        return self.reader.partition(".")[0]


_DATA = read_package_yaml("docmt.documents", "input_formats.yaml", typed=True)
_TABLE = [
    FileFormat(name, **{**values, "suffixes": tuple(values["suffixes"].split())})
    for name, values in _DATA["formats"].items()
]
_BY_NAME = {each.name: each for each in _TABLE}
_BY_SUFFIX = {suffix: each for each in _TABLE for suffix in each.suffixes}
FORMATS = {each.name: each for each in _TABLE if each.reader}
"""The formats that are read as units, by name."""
_SAVE_AS = {suffix: formats for formats, suffixes in _DATA["save_as"].items() for suffix in suffixes.split()}
"""Formats that docmt does not read, with those to save them as."""
_FORCE_TEXT = ", or read it as plain text with --layout text"


def guess_markup(text: str) -> str:
    """Return what a text without the name of a format looks like: a format, "LaTeX" or "program code", or nothing."""
    for name, look, least in _DATA["looks"]:
        if len(re.findall(look, text[:_HEAD], re.MULTILINE)) >= least:
            return name
    lines = text[:_HEAD].strip().splitlines()[:_ROWS]
    return "tsv" if len(lines) > 1 and any(_is_table(lines, separator) for separator in ",;") else ""


def _is_table(lines: Sequence[str], separator: str) -> bool:
    """Return whether lines have equal numbers of cells without a space before them, as prose has after its commas."""
    rows = list(csv.reader(lines, delimiter=separator))
    return len(set(map(len, rows))) == 1 < len(rows[0]) and not any(cell[:1] == " " for row in rows for cell in row)


def find_format_of_name(path: Path | str) -> FileFormat | None:
    """Return the format of a file with units by its suffix alone, or None."""
    format = _BY_SUFFIX.get(find_content_suffix(path))
    return format if format and format.reader else None


def find_format(path: Path | str, data: bytes = b"") -> FileFormat | None:
    """Return the format of a file with units by its suffix, else by its beginning; None for text and unknown files."""
    if find_content_suffix(path) == ".json" and _looks_like_json_lines(data):
        return None
    if format := find_format_of_name(path):
        return format
    if data.startswith(b"PK\3\4"):
        return next((FORMATS[name] for mark, name in _DATA["packages"].items() if mark.encode() in data), None)
    format = _match_beginning(data[:_HEAD].removeprefix(BYTE_ORDER_MARK.encode()).decode("latin-1"))
    return format if format and format.reader else None


def _looks_like_json_lines(data: bytes) -> bool:
    """Return whether the first line is a whole object, and others follow."""
    first, _, rest = data.lstrip().partition(b"\n")
    return first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")


def _match_beginning(text: str) -> FileFormat | None:
    head = text[:_HEAD].lstrip()
    return next((_BY_NAME[name] for name, beginning in _DATA["beginnings"].items() if re.match(beginning, head)), None)


def detect_format(path: Path | str, text: str) -> Literal["text", "jsonl"]:
    """Return the format of a file with this text ("-" is standard input). Raises DocmtError for refused formats."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    if has_jsonl_name(path) or starts_like_jsonl(text.lstrip().partition("\n")[0]):
        return "jsonl"
    check_name(path)
    check_markup(path, text, _FORCE_TEXT)
    return "text"


def is_refused(path: Path | str, text: str) -> bool:
    """Return whether a text is refused because its name or its beginning shows another format."""
    try:
        detect_format(path, text)
    except DocmtError:
        return True
    return False


def is_jsonl(path: Path | str) -> bool:
    """Return whether a corpus is JSONL, by its name or, for a regular file, by its first line."""
    if has_jsonl_name(path):
        return True
    _, line = next(read_lines(path), (0, "")) if Path(path).is_file() else (0, "")
    return starts_like_jsonl(line)


def check_known(path: Path | str, more: str = "") -> None:
    """Raise DocmtError for a file whose name shows a format that docmt does not read, as text or as units.

    more: additional advice.
    """
    suffix = find_content_suffix(path)
    if formats := _SAVE_AS.get(suffix):
        advice = f"Save it as {formats}, and translate that"
        raise DocmtError(f"{path}: docmt does not read {suffix} files. {advice}{more}.")


def check_name(path: Path | str) -> None:
    """Raise DocmtError for a file whose name shows a format that is not read as text."""
    check_known(path, _FORCE_TEXT)
    format = _BY_SUFFIX.get(find_content_suffix(path))
    if format and format.description:
        raise _unsupported(path, format, _FORCE_TEXT)


def check_markup(path: Path | str, text: str, more: str = "") -> None:
    """Raise DocmtError for text that begins like an unsupported format. `more`: additional advice."""
    if format := _match_beginning(text):
        raise _unsupported(path, format, more)


def _unsupported(path: Path | str, format: FileFormat, more: str) -> DocmtError:
    name = "standard input" if str(path) == STANDARD else path
    readers = "only docmt translate and docmt check read" if format.is_checked else "only docmt translate reads"
    advice = format.advice + ("" if format.name == "pdf" else more)  # whose text is compressed
    return DocmtError(
        f"{name} is {format.description}, which {readers if format.reader else 'docmt does not read'}. {advice}."
    )


def find_content_suffix(path: Path | str) -> str:
    """Return the suffix of a name in lower case, without that of compression: .txt of X.TXT.gz."""
    return Path(plain_name(path)).suffix.lower()


Row = tuple[int, tuple[str, ...]]
"""(line number, the sentence of each side in that line)"""


class FileDocument(NamedTuple):
    """A document as parsed from a file, with the requested sides."""

    id: str
    line: int
    """its first line"""
    rows: list[Row]
    """its sentences, stripped of white space"""
    text: str | None = None
    """running text instead of sentences"""
    has_name: bool = False
    """whether the file names it; otherwise its id is its number"""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the first side."""
        return tuple(sentences[0] for _, sentences in self.rows)


def parse_text(rows: Iterable[Row], paths: Sequence[Path | str]) -> Iterator[FileDocument]:
    """Yield the documents of a text file, or of several read in parallel. Ids are ordinal numbers.

    rows: all lines, stripped. Empty lines or document marks separate documents: see `docmt.documents.corpus_files`.
    Raises DocmtError for a boundary missing in some files, and for a mark in a file that does not begin with one.
    """
    count = 0
    document: FileDocument | None = None
    marked: bool | None = None  # unknown before the first line that is not empty
    for number, row in rows:
        if marked is None and any(row):
            marked = DOCUMENT_MARK in row
        if not marked and DOCUMENT_MARK in row:
            raise DocmtError(
                f"{paths[row.index(DOCUMENT_MARK)]}, line {number}: document mark {DOCUMENT_MARK} in a file that "
                f"does not begin with one. Begin every document with {DOCUMENT_MARK}, or use empty lines only."
            )
        boundary = DOCUMENT_MARK if marked else ""
        is_boundary = boundary in row
        if is_boundary:
            _check_boundary(paths, number, row, boundary)
            if document is not None:
                yield document
            document = None
        # A mark opens a document. Without marks, the first line after a boundary does.
        if document is None and is_boundary == bool(marked):
            count += 1
            document = FileDocument(str(count), number, [])
        if document is not None and not is_boundary:
            document.rows.append((number, row))
    if document is not None:
        yield document


def _check_boundary(paths: Sequence[Path | str], number: int, row: tuple[str, ...], boundary: str) -> None:
    if all(line == boundary for line in row):
        return
    with_boundary = paths[row.index(boundary)]
    without = next(path for path, line in zip(paths, row, strict=True) if line != boundary)
    name = f"a document mark {boundary}" if boundary else "an empty line (end of a document)"
    raise DocmtError(
        f"line {number}: {with_boundary} has {name} but {without} does not. "
        "Align the files again: they differ here or in the previous document."
    )


LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_AS_OBJECTS = "Write one JSON object a line"
_OR_BOTH_FILES = ", or name both files of a text corpus"
_SIDES = ("source", "target")
Record = dict[str, object]


def has_suffix(path: Path | str, *suffixes: str) -> bool:
    """Return whether the name of a file has one of these suffixes, perhaps before that of compression (x.tsv.gz)."""
    return plain_name(path).lower().endswith(suffixes)


def has_jsonl_name(path: Path | str) -> bool:
    """Return whether the name of a file is that of JSONL (x.jsonl, x.ndjson, x.jsonl.gz, x.jsonl.zst)."""
    return has_suffix(path, ".jsonl", ".ndjson")


def starts_like_jsonl(line: str) -> bool:
    """Return whether the first line of a text is an object with sentences."""
    record = parse_json_or_none(line)
    return isinstance(record, dict) and any(side in record for side in (*_SIDES, "text"))


def parse_jsonl(
    lines: Iterable[tuple[int, str]], path: Path | str, sides: Sequence[str], running_text: bool = False
) -> Iterator[FileDocument]:
    """Yield the documents in numbered lines of JSONL.

    sides: the sides to read ("source", "target", "draft"). running_text: whether running text is allowed. Sentences
    are stripped of white space. Raises DocmtError, naming the line of `path`, for any other form.
    """
    count = 0
    document: FileDocument | None = None  # the open one, with one sentence a line
    open_name, sentence_number = "", 0  # `document` and last `sentence` of the open document
    for number, record in parse_json_lines(lines, path, _AS_OBJECTS if running_text else _AS_OBJECTS + _OR_BOTH_FILES):
        location = f"{path}, line {number}"
        document_name = _read_name(record, "document", location)
        is_sentence = "error" in record or any(isinstance(record.get(side), str) for side in sides)
        if document_name is None or not is_sentence:
            if document is not None:
                yield document
                document = None
            count += 1
            yield _parse_whole_document(record, number, str(count), sides, running_text, location)
            continue
        row = number, tuple(_read_sentence(record, side, location) for side in sides)
        number_in_record = record.get("sentence")
        next_number = number_in_record if isinstance(number_in_record, int) else sentence_number + 1
        if document is None or document_name != open_name or next_number <= sentence_number:
            if document is not None:
                yield document
            count += 1
            document = FileDocument(document_name or str(count), number, [], has_name=bool(document_name))
        open_name, sentence_number = document_name, next_number
        document.rows.append(row)
    if document is not None:
        yield document


def parse_json_lines(
    lines: Iterable[tuple[int, str]], path: Path | str, advice: str = _AS_OBJECTS
) -> Iterator[tuple[int, Record]]:
    """Yield (line number, object) of non-empty lines. Raises DocmtError for a line that is no JSON object."""
    for number, line in lines:
        if not line.strip():
            continue
        location = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            raise DocmtError(f"{location}: not valid JSON ({reason}). {advice}.") from error
        if not isinstance(record, dict):
            raise DocmtError(f"{location}: not a JSON object. Write one with lists `source` and `target`.")
        yield number, record


def _parse_whole_document(
    record: Record, line: int, ordinal: str, sides: Sequence[str], running_text: bool, location: str
) -> FileDocument:
    """Return the document of a line with a whole document."""
    name = _read_name(record, "id", location) or _read_name(record, "document", location)
    id = name or ordinal
    text = record.get("source", record.get("text"))
    if running_text and isinstance(text, str):
        return FileDocument(id, line, [], check_unicode(text, location), bool(name))
    columns = [_read_sentences(record, side, location) for side in sides]
    if len({len(sentences) for sentences in columns}) > 1:
        raise DocmtError(
            f"{location}: `source` has {len(columns[0])} sentences but `{sides[1]}` has {len(columns[1])}. "
            f"Give one {sides[1]} sentence for each source sentence."
        )
    return FileDocument(id, line, [(line, row) for row in zip(*columns, strict=True)], has_name=bool(name))


def _read_name(record: Record, entry: str, location: str) -> str | None:
    """Return the document name in this entry, or None."""
    name = record.get(entry)
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if name is not None and not isinstance(name, str):
        raise DocmtError(f"{location}: `{entry}` is {_json_type(name)}. Use a string, or leave it out.")
    return None if name is None else check_unicode(name, location)


def _read_sentence(record: Record, side: str, location: str) -> str:
    """Return the sentence of a line with one sentence."""
    sentence = record.get(side)
    if sentence is None and "error" in record:
        return ""
    if side not in record:
        raise DocmtError(f"{location}: `{side}` is missing. Add a sentence.")
    if not isinstance(sentence, str):
        raise DocmtError(f"{location}: `{side}` is {_json_type(sentence)}. Use a string with one sentence.")
    return check_unicode(sentence, location).strip()


def _read_sentences(record: Record, side: str, location: str) -> list[str]:
    if side not in record:
        more = " Running text (`text`) can only be translated." if "text" in record else ""
        raise DocmtError(f"{location}: `{side}` is missing. Add a list of sentences.{more}")
    sentences = record[side]
    if not isinstance(sentences, list):
        more = ", or add the `document` of the sentence" if isinstance(sentences, str) else ""
        raise DocmtError(f"{location}: `{side}` is {_json_type(sentences)}. Use a list of sentences{more}.")
    for index, sentence in enumerate(sentences, 1):
        if not isinstance(sentence, str):
            raise DocmtError(f"{location}: sentence {index} of `{side}` is {_json_type(sentence)}. Use a string.")
    return [check_unicode(sentence, location).strip() for sentence in sentences]


def check_unicode(text: str, location: str) -> str:
    """Return the text. Raises DocmtError for lone surrogates, which UTF-8 cannot encode."""
    if LONE_SURROGATE.search(text):
        raise DocmtError(f"{location}: contains a lone surrogate (\\ud800 to \\udfff). Remove it.")
    return text


def _json_type(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "null" if value is None else "an object")
