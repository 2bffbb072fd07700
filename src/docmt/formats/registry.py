"""The file formats, by name, suffix and content."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from docmt.core.plain_text import plain_name
from docmt.documents.input_formats import check_known
from docmt.formats.units import UnitFile

FormatName = Literal[
    "html", "xhtml", "epub", "markdown", "docx", "pptx", "xlsx", "odf", "srt", "vtt", "xliff", "po", "json", "tsv"
]


@dataclass(frozen=True)
class ReadConfig:
    """How a file is read."""

    fields: tuple[str, ...] = ()
    """names of fields to translate: paths of JSON (menu.items.title), columns of TSV and CSV, keys of front matter"""
    source_language: str = ""
    """code of the language of the texts; empty: any"""
    target_language: str = ""
    """code of the language of the translation; empty: any"""


@dataclass(frozen=True)
class FileFormat:
    """A format that is read into units."""

    name: FormatName
    suffixes: tuple[str, ...]
    module: str
    """module of `docmt.formats` with a function `read(data, path, config)` that returns a `UnitFile`"""
    has_fields: bool = False
    """whether `ReadConfig.fields` has an effect"""

    def read(self, data: bytes, path: str, config: ReadConfig = ReadConfig()) -> UnitFile:
        """Return the units of a file. path: its name in messages. Raises DocmtError if it cannot be read."""
        reader: Callable[[bytes, str, ReadConfig], UnitFile]
        reader = importlib.import_module(f"docmt.formats.{self.module}").read
        return reader(data, path, config)


_FORMATS = (
    FileFormat("html", (".html", ".htm"), "html_pages"),
    FileFormat("xhtml", (".xhtml",), "xhtml_pages"),
    FileFormat("epub", (".epub",), "epub_books"),
    FileFormat("markdown", (".md", ".markdown"), "markdown_texts", has_fields=True),
    FileFormat("docx", (".docx",), "word_documents"),
    FileFormat("pptx", (".pptx",), "presentations"),
    FileFormat("xlsx", (".xlsx",), "workbooks"),
    FileFormat("odf", (".odt", ".odp", ".ods"), "open_documents"),
    FileFormat("srt", (".srt",), "subtitles"),
    FileFormat("vtt", (".vtt",), "subtitles"),
    FileFormat("xliff", (".xlf", ".xliff", ".sdlxliff", ".mqxliff"), "xliff_files"),
    FileFormat("po", (".po", ".pot"), "gettext_files"),
    FileFormat("json", (".json",), "json_files", has_fields=True),
    FileFormat("tsv", (".tsv", ".csv"), "table_files", has_fields=True),
)
FORMATS: dict[str, FileFormat] = {each.name: each for each in _FORMATS}
"""All formats by name."""
_BY_SUFFIX = {suffix: each for each in _FORMATS for suffix in each.suffixes}


def find_format_of_name(path: Path | str) -> FileFormat | None:
    """Return the format of a file by its suffix alone, or None."""
    return _BY_SUFFIX.get(_suffix(path))


def find_format(path: Path | str, data: bytes = b"") -> FileFormat | None:
    """Return the format of a file by its suffix, else by its beginning; None for text, JSONL and unknown files.

    Raises DocmtError for formats that docmt knows and does not read.
    """
    check_known(path)
    if _suffix(path) == ".json" and _looks_like_jsonl(data):
        return None
    return find_format_of_name(path) or _find_by_content(data)


def _suffix(path: Path | str) -> str:
    return Path(plain_name(path)).suffix.lower()


def _looks_like_jsonl(data: bytes) -> bool:
    """Return whether the first line is a whole object, and others follow."""
    first, _, rest = data.lstrip().partition(b"\n")
    return first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")


def _find_by_content(data: bytes) -> FileFormat | None:
    head = data[:4000].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PK\3\4"):
        return _find_package(data)
    if re.match(rb"(?i)<!doctype html|<html[\s>]", head):
        return FORMATS["html"]
    if re.match(rb"WEBVTT(\s|$)", head):
        return FORMATS["vtt"]
    if re.match(rb"\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->", head):
        return FORMATS["srt"]
    if re.search(rb"<xliff[\s>]", head) and head.startswith(b"<"):
        return FORMATS["xliff"]
    if re.search(rb"<html[\s>]", head) and head.startswith(b"<?xml"):
        return FORMATS["xhtml"]
    return None


def _find_package(data: bytes) -> FileFormat | None:
    """Return the format of a zip package by the names in its directory."""
    for mark, name in (
        (b"word/document", "docx"),
        (b"ppt/presentation", "pptx"),
        (b"xl/workbook", "xlsx"),
        (b"application/epub+zip", "epub"),
        (b"application/vnd.oasis.opendocument", "odf"),
    ):
        if mark in data:
            return FORMATS[name]
    return None
