"""Translation of files with their markup: from units to sentences, and from translated sentences to the file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import encode_utf8
from docmt.core.plain_text import decode_utf8, read_bytes, write_bytes
from docmt.decoding.translation_results import PartialTranslation, ResumePoint, Translation, non_finite_error
from docmt.documents import Document, read_input
from docmt.documents.input_formats import (
    FORMATS,
    FileFormat,
    check_known,
    find_content_suffix,
    find_format,
    has_jsonl_name,
)
from docmt.documents.segmentation import DEFAULT_LANGUAGE
from docmt.formats.bilingual_files import BilingualSentence, BilingualUnit, write_page, write_tmx
from docmt.formats.language_codes import format_language_tag
from docmt.formats.unit_documents import Review, SentenceTranslation, TranslatedUnits, UnitDocuments
from docmt.formats.units import ALL_TAGS, ReadConfig, TagRules, Unit, read_units
from docmt.formats.xliff_exchange import write_xliff
from docmt.terms.memory import QUALITY

_log = logging.getLogger(__name__)

Align = Callable[[Sequence[PartialTranslation], Sequence[Sequence[int]]], list[PartialTranslation]]
"""Adds alignments to these sentences of parts."""
FIELD_SEPARATOR = "|"
"""Between the format and the fields that an XLIFF file names."""
_DISTINCT_FORMATS = {"odf", "tsv", "strings"}  # whose suffixes are not of one content
BILINGUAL_SUFFIXES = (".html", ".xlf", ".xliff", ".tmx")


@dataclass(frozen=True)
class FileConfig:
    """Options of reading and writing a file with markup."""

    source_language: str = ""
    target_language: str = ""
    """codes of the model; empty where it has none"""
    segmentation: str = DEFAULT_LANGUAGE
    """code of the language whose rules cut sentences"""
    fields: tuple[str, ...] = ()
    """see `ReadConfig`"""
    bilingual: str = ""
    """path of a bilingual file, or empty"""
    tags: TagRules = ALL_TAGS
    """see `ReadConfig`"""
    protect: Sequence[str] | None = ()
    """see `Protection`; None: the model reads all text but the placeholders of a file, which are codes"""


def check_bilingual(path: str) -> None:
    """Raise DocmtError for a bilingual file with another suffix than those of its formats."""
    if path and Path(path).suffix.lower() not in BILINGUAL_SUFFIXES:
        names = ", ".join(BILINGUAL_SUFFIXES)
        raise DocmtError(f"{path}: the suffix of a bilingual file decides its format. End the name in {names}.")


class FileTranslation:
    """A file of units, perhaps a zip package, its documents, and what is written from their translations.

    `bilingual` is the path of the bilingual file that `render` writes, or empty.
    """

    def __init__(self, path: str, data: bytes, format: FileFormat, config: FileConfig) -> None:
        """Read the units. Raises DocmtError for a file that cannot be read, and for fields that have no effect."""
        if config.fields and not format.has_fields:
            names = ", ".join(name for name, each in FORMATS.items() if each.has_fields)
            raise DocmtError(f"{path} is {format.name}, which has no fields. --fields is for {names}.")
        codes = config.source_language, config.target_language
        source, target = (format_language_tag(code) if code else "" for code in codes)
        self.format, self._path, self._config, self._languages = format, path, config, (source, target)
        self._data, self.is_package, self.bilingual = data, data.startswith(b"PK"), config.bilingual
        file = read_units(format, data, path, ReadConfig(config.fields, source, target, config.tags, config.protect))
        self.units = UnitDocuments(file, config.segmentation, path, config.protect)
        self.documents = self.units.documents
        self.misplaced: list[str] = []
        """codes that had no place in the last rendering"""
        self._failed: list[str] = []  # sentences without a translation in the last rendering
        self._missing: list[str] = []  # sentences with missing text in the last rendering

    def checksum(self) -> str:
        """Return a checksum of the file and of how it is read."""
        settings = json.dumps([self.format.name, *self._languages])
        return hashlib.sha256(self._data + settings.encode()).hexdigest()

    def check_output(self, path: str) -> None:
        """Raise DocmtError for an output whose suffix is that of another format."""
        given, suffix = map(find_content_suffix, (self._path, path))
        suffixes = (given,) if given and self.format.name in _DISTINCT_FORMATS else self.format.suffixes
        if suffix and suffix not in (given, *suffixes) and path != os.devnull:
            names = " or ".join(suffixes)
            raise DocmtError(
                f"{self._path} is translated into {self.format.name}, but {path} ends in {suffix}: end it in {names}"
            )

    def select_sentences(self, part: PartialTranslation) -> list[int]:
        """Return the sentences of a part, from 0, whose codes need word alignment."""
        if part.translation is None:
            return []
        count = len(part.source.sentences)
        return [i for i in range(count) if self.units.needs_alignment(part.document, part.first + i)]

    def to_records(self, part: PartialTranslation) -> str:
        """Return one JSON line for each sentence of a part, which `render` reads."""
        if part.translation is None:
            return (json.dumps({"document": part.document}) + "\n") * len(part.source.sentences)
        rows = []
        for number, each in enumerate(part.translation):
            row: dict[str, Any] = {"document": part.document}
            if number in part.translation.missing:
                row["missing"] = True
            match = QUALITY.get(each.memory, 0)
            row |= {"target": each.target, **({"review": {"match": match}} if match else {"score": each.score})}
            if each.alignment is not None:
                row["links"] = [[*link.source, *link.target] for link in each.alignment]
            rows.append(json.dumps(row) + "\n")
        return "".join(rows)

    def render(self, records: Iterable[str]) -> bytes:
        """Return the translated file, and write the bilingual one. Sentences that failed keep their source."""
        translated = self.translate_units(records)
        self.misplaced = translated.misplaced
        if self.bilingual:
            self.write_bilingual(self.bilingual, translated)
        return self.units.file.write(translated.units, self._languages[1])

    def translate_units(self, records: Iterable[str]) -> TranslatedUnits:
        """Return the translated units from the records of all sentences."""
        rows: list[list[SentenceTranslation]] = [[] for _ in self.documents]
        self._failed, self._missing = [], []
        for block in records:
            for line in block.splitlines():
                row = json.loads(line)
                document = rows[row["document"]]
                for problem, sentences in (("target" not in row, self._failed), ("missing" in row, self._missing)):
                    if problem:
                        sentences.append(self.documents[row["document"]].sentences[len(document)])
                review = Review(**row.get("review", {}))
                document.append(SentenceTranslation(row.get("target"), row.get("links"), row.get("score"), review))
        translated = self.units.translate(rows)
        self.units.file.failed = frozenset(index for index, each in enumerate(translated.failed) if any(each))
        return translated

    def write_bilingual(self, path: str, translated: TranslatedUnits | None) -> None:
        """Write source and translation side by side, in the format that the suffix names. None: source only."""
        format = FIELD_SEPARATOR.join([self.format.name, *self._config.fields])  # for merge
        suffix = Path(path).suffix.lower()[1:]
        write_bytes(path, format_bilingual(self.pair_units(translated), suffix, self._path, format, self._languages))

    def pair_units(self, translated: TranslatedUnits | None) -> list[BilingualUnit]:
        """Return the units of both sides. None: without translations."""
        sources = self.units.file.units
        sentences = [each for document in self.units.sentences for each in document]
        new = [SentenceTranslation(None)] * len(sentences) if translated is None else translated.sentences
        by_unit: list[list[BilingualSentence]] = [[] for _ in sources]
        for sentence, each in zip(sentences, new, strict=True):
            row = by_unit[sentence.unit]
            span = (0, 0) if translated is None else translated.target_spans[sentence.unit][len(row)]
            spans = (sentence.start, sentence.end), span
            names = self.units.units[sentence.unit].list_placeholders(sentence.readable)
            row.append(BilingualSentence(*spans, each.score, each.target is not None, each.review, names))
        targets = [Unit("")] * len(sources) if translated is None else translated.units
        rows = enumerate(zip(sources, targets, by_unit, strict=True), 1)
        return [BilingualUnit(str(number), source, target, tuple(row)) for number, (source, target, row) in rows]

    def report_lines(self) -> list[str]:
        """Return one line for each part that is not translated, and for each code without a place."""
        parts = [(part.reason, part.text) for part in self.units.file.skipped]
        parts += [("sentences that failed", text) for text in self._failed]
        parts += [("missing text", text) for text in self._missing]
        parts += [("codes at the end of their unit", text) for text in self.misplaced]
        return ["\t".join(" ".join(value.split()) for value in (self._path, *part)) + "\n" for part in parts]


def format_bilingual(
    units: Sequence[BilingualUnit], kind: str, path: str, format: str, languages: tuple[str, str], revision: str = ""
) -> bytes:
    """Return both sides of a file. kind: html, tmx, xlf12 (XLIFF 1.2), or another name for XLIFF 2.1.

    revision: see `write_xliff`.
    """
    if kind == "html":
        return write_page(units, Path(path).name, *languages).encode()
    if kind == "tmx":
        return write_tmx(units, *languages)
    return write_xliff(units, path, format, *languages, "1.2" if kind == "xlf12" else "2.1", revision)


def read_file(path: str, format: str, config: FileConfig) -> FileTranslation | bytes:
    """Return a file of units, or the bytes of text and JSONL.

    format: name of the format, or "auto" by name and content. Raises DocmtError if it cannot be read.
    """
    if format == "auto":
        check_known(path, ", or add --format text if it is plain text")
    data = read_bytes(path)
    detected = FORMATS.get(format) or find_format(path, data)
    return FileTranslation(path, data, detected, config) if detected else data


def align_parts(parts: Sequence[PartialTranslation], file: FileTranslation, align: Align) -> list[PartialTranslation]:
    """Return parts of a file with the alignments that their codes need; align: `Translator.align`."""
    sentences = [file.select_sentences(part) for part in parts]
    if not any(sentences):
        return list(parts)
    try:
        return align(parts, sentences)
    except DocmtError as error:
        _log.warning("codes are placed by the order of words, not by alignment: %s", error)
        return list(parts)


def _check_paths(path: str, output: str, bilingual: str) -> None:
    """Raise DocmtError if an output would overwrite the input or the other output, and for a wrong bilingual name."""
    check_bilingual(bilingual)
    for other in filter(None, (output, bilingual)):
        if Path(other).exists() and Path(path).exists() and Path(other).samefile(path):
            raise DocmtError(f"{path} would be overwritten by its translation. Name another target.")
    if bilingual and Path(bilingual).resolve() == Path(output).resolve():
        raise DocmtError(f"{output} is the target and the bilingual file. Name another file for one of them.")


@dataclass(frozen=True)
class SourceFile:
    """A file that is read, with its documents: the file with markup, or the bytes of text or JSONL."""

    path: str
    content: FileTranslation | bytes
    documents: list[Document]

    @classmethod
    def read(cls, path: str, format: str, config: FileConfig) -> SourceFile:
        """Read a file. Raises DocmtError if it cannot be read, and for settings that have no effect."""
        content = read_file(path, format, config)
        if isinstance(content, FileTranslation):
            return cls(path, content, content.documents)
        if config.fields or config.bilingual:
            raise DocmtError(f"{path}: fields and bilingual are for files with markup, not for plain text and JSONL")
        if has_jsonl_name(path):
            raise DocmtError(f"{path} is JSONL: translate its documents with `docmt translate`, or `translate_all`")
        text = decode_utf8(content, path)
        input = read_input(path, language=config.segmentation, text=text, protect=config.protect or ())
        return cls(path, content, input.documents)

    def check_output(self, path: str) -> None:
        """Raise DocmtError for an output whose suffix is that of another format."""
        if isinstance(self.content, FileTranslation):
            self.content.check_output(path)

    def render(self, translations: Sequence[Translation], align: Align) -> tuple[bytes, list[Translation]]:
        """Return the file with the translations of its documents, and these, perhaps aligned.

        align: `Translator.align`. Raises DocmtError for scores that are not finite.
        """
        if not all(each.has_finite_scores for each in translations):
            raise non_finite_error()
        if isinstance(self.content, bytes):
            return encode_utf8("".join(each.text() for each in translations), self.path), list(translations)
        parts = [
            PartialTranslation(number, 0, document, ResumePoint(len(document)), each)
            for number, (document, each) in enumerate(zip(self.documents, translations, strict=True))
        ]
        aligned = align_parts(parts, self.content, align)
        data = self.content.render(map(self.content.to_records, aligned))
        return data, [each.translation for each in aligned if each.translation is not None]


def translate_file(
    path: str,
    output: str,
    format: str,
    config: FileConfig,
    translate: Callable[[Sequence[Document]], list[Translation]],
    align: Align,
) -> list[Translation]:
    """Translate a file as `Translator.translate_file` does. translate, align: methods of the translator."""
    _check_paths(path, output, config.bilingual)
    file = SourceFile.read(path, format, config)
    file.check_output(output)
    data, translations = file.render(translate(file.documents), align)
    write_bytes(output, data)
    return translations
