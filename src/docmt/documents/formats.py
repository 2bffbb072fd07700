"""What kind of input a file is: by its name, then by how it begins. The one place that says so.

    jsonl      x.jsonl, x.ndjson, or a first line that is a JSON object with `source`, `target` or `text`
    markdown   x.md, x.markdown
    text       all else that is text: running text, or a corpus of one sentence a line, as the command takes it

Each may be compressed (x.txt.gz). Formats that are text with something else in it (subtitles, web pages, translation
memories) and office documents are refused by name: their marks would be translated as if they were sentences.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK, GZIP_SUFFIX, STANDARD, decoded_lines
from docmt.documents.jsonl import begins_as_jsonl, named_jsonl

Format = Literal["text", "markdown", "jsonl"]

_EXTRACT = "extract the text (pandoc FILE -t plain does for most), and translate that"
_SUBTITLES = (
    "subtitles",
    "put their text into a file of one sentence a line, and translate that with --layout lines",
)
_PAGE = "a web page", _EXTRACT
_XML = "XML", _EXTRACT
_OFFICE = "an office document", _EXTRACT
_SENTENCES = (
    "put the sentences of one language into a file of one sentence a line, and translate that with --layout lines"
)
_REFUSED = {
    **dict.fromkeys((".srt", ".vtt", ".sub", ".ass"), _SUBTITLES),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _PAGE),
    **dict.fromkeys((".docx", ".odt", ".doc", ".rtf", ".pptx", ".xlsx", ".epub"), _OFFICE),
    ".xml": _XML,
    ".pdf": ("a PDF document", "extract the text (pdftotext does), and translate that with --join_lines"),
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
