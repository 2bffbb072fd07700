"""Reading and writing of files in a child process with limits, so that a hostile file costs one error.

Nothing but the child parses an uploaded file. See `docmt.serve.file_worker`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import writing
from docmt.core.plain_text import plain_name
from docmt.documents import Document
from docmt.formats.language_codes import format_language_tag
from docmt.serve.file_worker import FileLimits, FileTask, JobFacts

_NAMES = ("html", "xlf", "tmx", "txt")
RESULTS: Mapping[str, str] = {
    "original": "",
    **{name: f".{name}" for name in _NAMES},
    "xlf12": ".xlf",
    "terms": ".terms.tsv",
}
"""Formats of results, with the suffixes of their names; empty: that of the file."""
WORK_PREFIX = "work."
"""Beginning of the names of folders, in that of a job, in which a file is being written."""
_MAX_ANSWER, _LEAST_ROOM = 2**16, 2**16
_GRACE = 2
"""Seconds for the start of the process."""
_TIME_SIGNALS = {int(getattr(signal, name, 0)) for name in ("SIGALRM", "SIGXCPU")}
"""They end a process at its limits."""


@dataclass(frozen=True)
class FileContents:
    """What is translated of a file. Its sentences are numbered through all documents."""

    format: str
    documents: tuple[Document, ...]
    paragraphs: tuple[int, ...]
    """number of the paragraph (unit, or line of text) of each sentence, never decreasing"""
    aligned: frozenset[int]
    """sentences whose codes need word alignment"""
    skipped: dict[str, int]
    """number of parts that are not translated, by reason"""

    @classmethod
    def from_json(cls, data: bytes) -> FileContents:
        """Parse the result of a child process. Raises ValueError, KeyError or TypeError if it is damaged."""
        values = json.loads(data)
        documents = list[Document]()
        for each in values["documents"]:
            sentences, gaps = _check_texts(each["sentences"]), _check_texts(each["gaps"])
            documents.append(Document(sentences, gaps, str(each["id"]), _check_texts(each.get("marked", ()))))
        paragraphs: list[int] = []
        aligned: list[int] = []
        last = -1  # documents never share a paragraph
        for row, numbers in zip(values["paragraphs"], values["aligned"], strict=True):
            aligned += [len(paragraphs) + int(number) for number in numbers]
            shift = last + 1 - int(row[0]) if row and int(row[0]) <= last else 0
            paragraphs += [int(number) + shift for number in row]
            last = paragraphs[-1] if paragraphs else -1
        if len(paragraphs) != sum(map(len, documents)) or paragraphs != sorted(paragraphs):
            raise ValueError("sentences and paragraphs differ")
        skipped = {str(reason): int(count) for reason, count in values["skipped"].items()}
        return cls(str(values["format"]), tuple(documents), tuple(paragraphs), frozenset(aligned), skipped)


def _check_texts(values: Any) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError("not a text")
    return tuple(values)


class FileProcess:
    """Starts the processes, a few at once."""

    module = "docmt.serve.file_worker"

    def __init__(self, limits: FileLimits, protect: Sequence[str] | None = ()) -> None:
        self._limits, self._protect = limits, protect
        self._slots = asyncio.Semaphore(limits.processes)

    async def read(self, source: Path, output: Path, facts: JobFacts) -> FileContents:
        """Read a file, and write its contents to `output` (`FileContents.from_json`).

        facts: name, format ("auto": by name and content), fields and languages. Raises DocmtError with one sentence
        for a file that cannot be read, or not within the limits.
        """
        await self._run(self._make_task(source, output, facts))
        try:
            return await asyncio.to_thread(lambda: FileContents.from_json(output.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise _damaged(facts.name) from error

    async def write(
        self, source: Path, output: Path, facts: JobFacts, records: Iterable[object], format: str, **options: str
    ) -> None:
        """Write the translated file, its text, or both sides; or the changes of a reviewed XLIFF file.

        records: for each sentence its document, and target, score and links (see `FileTranslation.to_records`), or an
        error. format: one of `RESULTS`, or changes. options: reviewed, reviewed_name and revision of the `FileTask`.
        Raises DocmtError if that fails.
        """
        with (
            writing(output),
            TemporaryDirectory(prefix=WORK_PREFIX, dir=output.parent, ignore_cleanup_errors=True) as folder,
        ):  # names that no process of an earlier server writes to
            lines, result = Path(folder, "records"), Path(folder, "result")
            lines.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
            options |= {"records": str(lines.absolute()), "result": format}
            await self._run(self._make_task(source, result, facts, **options))
            if not result.is_file():
                raise _damaged(facts.name)
            result.replace(output)

    def _make_task(self, source: Path, output: Path, facts: JobFacts, **options: str) -> FileTask:
        paths = str(source.absolute()), str(output.absolute()), f"{output.absolute()}.answer"
        return FileTask(*paths, facts, self._limits, self._protect, **options)

    async def _run(self, task: FileTask) -> None:
        """Run a process to its end. Raises DocmtError for an error of the file, and for a process that dies."""
        answer = Path(task.answer)
        async with self._slots:
            # -P: the current directory holds no modules. The answer is a file: a pipe may have any amount of data.
            command, data = (sys.executable, "-P", "-m", self.module), json.dumps(asdict(task)).encode()
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
            try:
                await asyncio.wait_for(process.communicate(data), task.limits.seconds + _GRACE)
            except TimeoutError as error:
                raise _too_long(task) from error
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        try:
            with answer.open("rb") as file:
                message = json.loads(file.read(_MAX_ANSWER)).get("error", "")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            is_late = process.returncode is not None and -process.returncode in _TIME_SIGNALS
            raise _too_long(task) if is_late else _damaged(task.subject) from (_find_reason(answer) or error)
        finally:
            answer.unlink(missing_ok=True)
        if message:
            raise DocmtError(str(message)) from _find_reason(answer)


def _find_reason(file: Path) -> OSError | None:
    """Return the error of a full disk if the disk of a file is full now: the process tells it in words, if at all."""
    is_full = shutil.disk_usage(file.parent).free < _LEAST_ROOM
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else None


def _too_long(task: FileTask) -> DocmtError:
    return DocmtError(f"{task.subject} takes more than {task.limits.seconds} seconds. Split it, or save it again.")


def _damaged(name: str) -> DocmtError:
    return DocmtError(f"{name} is damaged or too large. Save it again, or split it, and retry.")


def name_result(facts: JobFacts, format: str) -> str:
    """Return report.fr.docx for report.docx, and report.en-fr.html for both sides of it; XLIFF 1.2 is named so."""
    path = Path(plain_name(facts.name))
    source, target = (format_language_tag(code) if code else "" for code in facts.languages)
    label = target or "translated"
    if format not in ("original", "txt") and source and target:
        label = f"{source}-{target}" + ".xliff12" * (format == "xlf12")
    return f"{path.stem}.{label}{RESULTS[format] or path.suffix}"
