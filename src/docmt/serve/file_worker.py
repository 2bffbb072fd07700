"""The process that reads and writes the file of one job, within limits of memory and time.

It is started as `python -m docmt.serve.file_worker` with a `FileTask` in JSON as standard input. It writes its result
and its answer, {} or {"error": "one sentence"}, to the paths of the task. It imports no torch.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from docmt.core.errors import DocmtError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docmt.decoding.file_translation import FileTranslation
    from docmt.documents import Document
    from docmt.documents.document import InputFile, Layout
    from docmt.formats.bilingual_files import BilingualUnit

TEXT_FORMATS = ("text", "jsonl")
"""Formats without units."""
_FIELDS = "in “Fields to translate” (in requests: fields)"
"""What pages and requests have for the option `--fields`."""
_BEGINNING = 1024
"""Bytes of a file in which 0 is a sign that it is no text."""


@dataclass(frozen=True)
class FileLimits:
    """Limits of a process that reads or writes a file."""

    memory: int = 1024 * 2**20
    """bytes of address space"""
    seconds: int = 60
    """processor time, and time that passes"""
    result: int = 512 * 2**20
    """bytes of a result"""
    contents: int = 64 * 2**20
    """bytes of the sentences of a file, in JSON"""
    sentences: int = 100_000
    processes: int = 2
    """processes at once"""


@dataclass(frozen=True)
class JobFacts:
    """The properties of a job that never change."""

    name: str
    """file name as the user knows it"""
    format: str
    """text, jsonl, or a name in `docmt.documents.input_formats`"""
    model: str
    source_language: str
    target_language: str
    """codes of the model; empty where it has none"""
    sentences: int
    fields: tuple[str, ...] = ()
    """see `docmt.formats.units.ReadConfig`"""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """number of parts that are not translated, by reason"""
    glossary_ids: tuple[str, ...] = ()
    """glossaries that the client named; the folder of the job has their entries of then"""

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target."""
        return self.source_language, self.target_language


@dataclass(frozen=True)
class FileTask:
    """Reading or writing of a file."""

    source: str
    """path of the file"""
    output: str
    """path of the result"""
    answer: str
    """path of the answer"""
    facts: JobFacts
    """its name is in messages and in the result; its format may be auto"""
    limits: FileLimits
    protect: Sequence[str] | None
    """see `FileConfig`"""
    records: str = ""
    """path of the translations, one JSON object a sentence; empty: the file is read"""
    result: str = ""
    """original, html, xlf (2.1), xlf12, tmx or txt; or changes, those of a reviewed XLIFF file"""
    reviewed: str = ""
    """path of that file"""
    reviewed_name: str = ""
    revision: str = ""
    """of the translations, in XLIFF"""

    @property
    def subject(self) -> str:
        """Name of the file that errors are about."""
        return self.reviewed_name or self.facts.name

    @classmethod
    def from_json(cls, text: str) -> FileTask:
        """Parse the fields of a task."""
        values = json.loads(text)
        return cls(**{**values, "facts": JobFacts(**values["facts"]), "limits": FileLimits(**values["limits"])})


def main() -> None:
    """Run the task of standard input."""
    task = FileTask.from_json(sys.stdin.read())
    limit_resources(task)
    answer = answer_task(task)
    with open(task.answer, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is imported with the formats only
        json.dump(answer, file)


def answer_task(task: FileTask) -> dict[str, str]:
    """Run a task. Return its answer."""
    try:
        run(task)
    except DocmtError as error:
        return {"error": str(error).replace("with --fields", _FIELDS)}
    except MemoryError:
        return {"error": f"{task.subject} takes too much memory. Split it, or remove pictures."}
    except OSError as error:
        return {"error": f"{task.subject} cannot be translated: {error.strerror}. Split it, or free space."}
    except Exception as error:  # whatever a hostile file causes; its message may hold text of the file
        return {"error": f"{task.subject} is damaged ({type(error).__name__}). Save it again and retry."}
    return {}


def limit_resources(task: FileTask) -> None:
    """Limit the memory, time and files of this process. Windows has no such limits."""
    if sys.platform == "win32":
        return
    import resource
    import signal

    limits, seconds = task.limits, task.limits.seconds
    file_size = limits.result if task.records else limits.contents
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # a signal that tells the reason, first
    signal.alarm(seconds + 1)  # ends this process where the server was killed


def run(task: FileTask) -> None:
    """Read or write the file. Raises DocmtError for a file that cannot be read."""
    from pathlib import Path

    from docmt.core.files import read_bytes

    file = open_file(task)
    count = sum(map(len, file.documents))
    if count > (most := task.limits.sentences):
        raise DocmtError(f"{task.facts.name} has {count:,} sentences, more than {most:,}. Split it.")
    if not task.records:
        contents = json.dumps(describe_file(file), ensure_ascii=False).encode()
    else:
        lines = read_bytes(task.records).decode().splitlines()
        if len(lines) != count:
            raise DocmtError(f"{task.facts.name} was read in another way than before. Upload it again.")
        contents = render(file, lines, task)
    Path(task.output).write_bytes(contents)


def render(file: JobMarkupFile | JobTextFile, lines: list[str], task: FileTask) -> bytes:
    """Return the result of a task that writes. Raises DocmtError for the XLIFF file of another document."""
    from docmt.core.files import read_bytes
    from docmt.decoding.file_translation import FIELD_SEPARATOR, format_bilingual
    from docmt.formats.xliff_exchange import read_xliff_targets
    from docmt.formats.xliff_review import find_changes

    if task.result == "original":
        return file.render(lines)
    if task.result == "txt":
        return write_plain_text(file.documents, lines).encode()
    units, languages = file.pair_units(lines), task.facts.languages
    if task.result == "changes":
        reviewed = read_xliff_targets(read_bytes(task.reviewed), task.reviewed_name, versions="12")
        return json.dumps([*find_changes(units, reviewed, *languages), reviewed.revision]).encode()
    format = FIELD_SEPARATOR.join([file.format, *task.facts.fields])
    return format_bilingual(units, task.result, task.facts.name, format, languages, task.revision)


def open_file(task: FileTask) -> JobMarkupFile | JobTextFile:
    """Read the file of a task. Raises DocmtError if it cannot be read."""
    from docmt.core.plain_text import decode_utf8, read_bytes
    from docmt.decoding.file_translation import FileConfig, FileTranslation
    from docmt.documents import read_input
    from docmt.documents.input_formats import FORMATS, check_known, find_format

    facts, data = task.facts, read_bytes(task.source)
    language = facts.source_language or "en"
    if facts.format not in TEXT_FORMATS:
        check_known(facts.name)
        if format := FORMATS.get(facts.format) or find_format(facts.name, data):
            config = FileConfig(*facts.languages, language, tuple(facts.fields), protect=task.protect)
            return JobMarkupFile(FileTranslation(facts.name, data, format, config))
    if facts.fields:
        raise DocmtError(f"{facts.name}: fields are for files with markup, not for plain text and JSONL")
    if b"\0" in data[:_BEGINNING] and not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        suffixes = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
        raise DocmtError(f"{facts.name} is no text and no document that docmt reads. It reads {suffixes} and .txt.")
    layout: Layout = "text" if facts.format == "text" else "jsonl" if facts.format == "jsonl" else "auto"
    text = decode_utf8(data, facts.name)
    return JobTextFile(read_input(facts.name, layout=layout, language=language, text=text, protect=task.protect or ()))


def describe_file(file: JobMarkupFile | JobTextFile) -> dict[str, Any]:
    """Return the contents of a file as values for JSON; see `FileContents`."""
    names = ("id", "sentences", "gaps", "marked")
    documents = [{name: getattr(each, name) for name in names} for each in file.documents]
    return {
        "format": file.format,
        "documents": documents,
        "paragraphs": file.list_paragraphs(),
        "aligned": file.list_aligned(),
        "skipped": file.skipped,
    }


class JobMarkupFile:
    """A file of units."""

    def __init__(self, file: FileTranslation) -> None:
        self._file, self.documents = file, file.documents
        self.format: str = file.format.name
        self.skipped = file.units.count_skipped()

    def list_paragraphs(self) -> list[list[int]]:
        """Return the number of the unit of each sentence."""
        return [[sentence.unit for sentence in each] for each in self._file.units.sentences]

    def list_aligned(self) -> list[list[int]]:
        """Return the sentences of each document whose codes need word alignment."""
        units = self._file.units
        return [[i for i in range(len(each)) if units.needs_alignment(n, i)] for n, each in enumerate(self.documents)]

    def render(self, lines: list[str]) -> bytes:
        """Return the translated file."""
        return self._file.render(lines)

    def pair_units(self, lines: list[str]) -> list[BilingualUnit]:
        """Return the units of both sides."""
        return self._file.pair_units(self._file.translate_units(lines))


class JobTextFile:
    """A file of plain text or JSON Lines."""

    def __init__(self, input: InputFile) -> None:
        self.format: str = input.format
        self.documents = input.documents
        self.skipped = {"code": input.code_lines} if input.code_lines else {}

    def list_paragraphs(self) -> list[list[int]]:
        """Return the number of the line of each sentence that has any."""
        rows, number = [], -1
        for document in self.documents:
            row = []
            for index, gap in enumerate(document.gaps[:-1]):
                number += index == 0 or "\n" in gap
                row.append(number)
            rows.append(row)
        return rows

    def list_aligned(self) -> list[list[int]]:
        """Return no sentences: there are no codes."""
        return [[] for _ in self.documents]

    def render(self, lines: list[str]) -> bytes:
        """Return the translated file."""
        if self.format != "jsonl":
            return write_plain_text(self.documents, lines).encode()
        records, rows = iter(lines), []
        for document in self.documents:
            for number, source in enumerate(document.sentences, 1):
                record = json.loads(next(records))
                row = {"document": document.id, "sentence": number, "source": source}
                rows.append(row | {name: record[name] for name in ("target", "score", "error") if name in record})
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()

    def pair_units(self, lines: list[str]) -> list[BilingualUnit]:
        """Return the lines of text as units."""
        from itertools import groupby

        from docmt.formats.bilingual_files import BilingualSentence, BilingualUnit
        from docmt.formats.unit_documents import Review
        from docmt.formats.units import Unit

        records = iter(lines)
        rows = [
            (paragraph, gap, source, json.loads(next(records)))
            for document, paragraphs in zip(self.documents, self.list_paragraphs(), strict=True)
            for paragraph, gap, source in zip(paragraphs, document.gaps[:-1], document.sentences, strict=True)
        ]
        units = []
        for number, (_, group) in enumerate(groupby(rows, key=lambda row: row[0]), 1):
            sides, sentences = ["", ""], []
            for index, (_, gap, source, record) in enumerate(group):
                spans = []
                for side, text in enumerate((source, record.get("target", source))):
                    sides[side] += gap * (index > 0)
                    spans.append((len(sides[side]), len(sides[side]) + len(text)))
                    sides[side] += text
                review = Review(**record.get("review", {}))
                is_done = "target" in record
                sentences.append(BilingualSentence(spans[0], spans[1], record.get("score"), is_done, review))
            units.append(BilingualUnit(str(number), Unit(sides[0]), Unit(sides[1]), tuple(sentences)))
        return units


def write_plain_text(documents: list[Document], lines: list[str]) -> str:
    """Return the text of translated documents in their layout; failed sentences keep their source."""
    records, texts = iter(lines), []
    for document in documents:
        targets = [json.loads(next(records)).get("target", source) for source in document.sentences]
        texts.append(document.replace_sentences(targets).text())
    return "".join(texts)


if __name__ == "__main__":
    main()
