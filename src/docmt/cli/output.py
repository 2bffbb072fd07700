"""Output of the commands: its paths, JSON records of sentences, warnings and failures, and translated files."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.files import check_writable, encode_utf8, write_all, writing
from docmt.core.plain_text import STANDARD, write_bytes, write_text
from docmt.core.resumable_file import Note, ResumableFile
from docmt.decoding.file_translation import FileTranslation
from docmt.decoding.term_report import TERM_COLUMNS, make_rows, render_rows, summarize_terms
from docmt.decoding.translation_results import PartialTranslation, ResumePoint, Translation
from docmt.documents import Document, InputFile
from docmt.terms.matching import TermMode

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

WARNINGS = {
    "sentence_count": "spans with another number of sentences than their source: surplus sentences were joined, "
    "missing ones are empty",
    "length_limit": "sentences ended by the length limit, so that words may be missing (--max-length-ratio and "
    "--max-length-extra raise it)",
    "missing_text": "sentences of which a part seems not to be translated",
    "long_source": "source sentences longer than an instance, each processed without context in most systems",
}


def check_outputs(*outputs: str | None, inputs: Sequence[str | None] = ()) -> None:
    """Check the output paths of a command before its work.

    inputs: files that the command reads. Raises DocmtError for an output that cannot be written, for two outputs with
    one path (or both standard output), and for an output that would overwrite an input.
    """
    known: dict[object, str] = {}
    for path in filter(None, outputs):
        if path != STANDARD:
            check_writable(Path(path))
        identity = _file_identity(path)
        if identity in known:
            problem = "go to standard output: name a" if path == STANDARD else f"be written to {path}: name another"
            raise DocmtError(f"two outputs would both {problem} file for one of them")
        if identity is not None:
            known[identity] = path
    for path in filter(None, inputs):
        if path != STANDARD and (output := known.get(_file_identity(path))):
            raise DocmtError(f"{path} is an input and would be overwritten by the output {output}: name another output")


def _file_identity(path: str) -> object | None:
    """Return a value that is equal for two paths to one file, existing or not. A device has None."""
    if path == STANDARD:
        return STANDARD
    with suppress(OSError):  # the reader reports what is wrong with such a path
        status = Path(path).stat()
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
    return os.path.realpath(path)


def check_alignments(alignments: bool, formats: Iterable[str]) -> None:
    """Raise DocmtError for alignments in a format without records."""
    if alignments and any(format != "jsonl" for format in formats):
        raise DocmtError("--alignments needs --format jsonl: text has no record of a sentence to hold them")


def sentence_records(translation: Translation) -> list[dict[str, Any]]:
    """Return one JSON object for each sentence of a translation."""
    rows = []
    for number, (sentence, warnings) in enumerate(zip(translation.sentences, translation.warnings(), strict=True)):
        record = {"document": translation.document.id, "sentence": number + 1, **sentence.to_json()}
        if sentence.has_score:
            record["score"] = float(sentence.score)  # an empty sum is an int
        record["warnings"] = warnings
        if translation.alternatives:
            alternatives = [alternative.sentences[number] for alternative in translation.alternatives]
            record["rank_score"] = sentence.rank_score
            record["alternatives"] = [
                {"target": other.target, "score": other.score, "rank_score": other.rank_score} for other in alternatives
            ]
        rows.append(record)
    return rows


def error_records(document: Document, error: str) -> list[dict[str, Any]]:
    """Return one JSON object for each sentence of a document without translation or scores."""
    return [
        {"document": document.id, "sentence": number, "source": source, "source_span": list(span), "error": error}
        for number, (source, span) in enumerate(zip(document.sentences, document.spans(), strict=True), 1)
    ]


@dataclass
class Report:
    """Warnings with their locations, and failures."""

    locations: dict[str, list[str]] = field(default_factory=lambda: {warning: [] for warning in WARNINGS})
    failures: list[str] = field(default_factory=list)
    """messages, each naming its file"""
    terms: list[list[Any]] = field(default_factory=list)
    """what became of terms, in the order of `TERM_COLUMNS`"""
    memory: Counter[str] = field(default_factory=Counter)
    """number of sentences by what a memory has for them"""

    def add_warnings(self, document: str, translation: Translation, first: int = 0) -> None:
        """Add the warnings of a translation.

        document: name of its document. first: index in that document of its first sentence.
        """
        for start, end in translation.miscounted:
            self.locations["sentence_count"].append(f"{document}, sentences {first + start + 1} to {first + end}")
        for number, warnings in enumerate(translation.warnings(), first + 1):
            for warning in set(warnings) - {"sentence_count"}:
                self.locations[warning].append(f"{document}, sentence {number}")
        for number, sentence in enumerate(translation.sentences, first + 1):
            self.memory[sentence.memory] += 1
            self.terms += make_rows(document, number, sentence.source, sentence.target, sentence.terms)

    def counts(self) -> dict[str, int]:
        """Return the number of locations of each warning."""
        return {warning: len(locations) for warning, locations in self.locations.items()}

    def check_result(
        self, document: str, result: Translation | DocmtError, first: int = 0, sentences: str = ""
    ) -> Translation | DocmtError:
        """Return a result after adding its warnings or its error. A translation with an invalid score is an error.

        Invalid scores (NaN, infinity) come from damaged weights or from an extreme temperature.
        document, first: see `add_warnings`. sentences: suffix of the name, for an error of a part of the document.
        """
        if not isinstance(result, DocmtError) and (problem := find_invalid_score(result, first)):
            result = DocmtError(problem)
        if isinstance(result, DocmtError):
            self.failures.append(f"{document}{sentences}: {result}")
        else:
            self.add_warnings(document, result, first)
        return result

    def check_part(self, document: str, part: PartialTranslation, sentences: str = "") -> PartialTranslation:
        """Return a part, as an error if its scores are invalid. See `check_result`."""
        result = part.error if part.translation is None else part.translation
        assert result is not None  # a part has a translation or an error
        checked = self.check_result(document, result, part.first, sentences)
        return replace(part, translation=None, error=checked) if isinstance(checked, DocmtError) else part

    def merge(self, other: Report) -> None:
        """Add the warnings and failures of other documents."""
        for warning, locations in other.locations.items():
            self.locations[warning].extend(locations)
        self.failures.extend(other.failures)
        self.terms.extend(other.terms)
        self.memory.update(other.memory)

    def log_memory(self) -> None:
        """Log how many sentences were reused from a memory."""
        context, exact, conflicts = map(self.memory.__getitem__, ("context", "exact", "conflict"))
        total = self.memory.total()
        text = f"{total:,} sentence{'s' * (total != 1)}, {context + exact:,} reused"
        others = f"; {conflicts:,} translated anew, because the memory has several translations" * bool(conflicts)
        _log.info(f"memory: {text} ({context:,} with the sentence before){others}")

    def log_terms(self, path: str, mode: TermMode) -> None:
        """Log what became of terms, and write each of them to a path as tab-separated values."""
        status, dropped = map(TERM_COLUMNS.index, ("status", "dropped"))
        counts = Counter(row[status] for row in self.terms)
        losing = {tuple(row[:2]) for row in self.terms if row[status] == "second_search" and row[dropped] != ""}
        if losing:
            _log.warning(f"{len(losing):,} x terms replace other words, too (`dropped` in {path or '--terms-report'})")
        advice = "; --terms-mode require takes what is refused, but for verbs"
        advice *= counts["refused"] > 0 and mode == "prefer"
        _log.info(f"{summarize_terms(counts)} ({path or '--terms-report FILE lists them'}{advice})")
        if path:
            write_text(path, render_rows(self.terms))

    def log(self, total: int, done: int, noun: str, participle: str) -> int:
        """Log all warnings and failures, then how many of the `total` are not done. Return the exit status.

        noun, participle: for the message, such as "files" and "translated".
        """
        for warning, locations in self.locations.items():
            if locations:
                first = f"first: {locations[0]}" if len(locations) > 1 else locations[0]
                _log.warning(f"{len(locations)} x {WARNINGS[warning]} ({first})")
        for failure in self.failures:
            _log.error(failure)
        if done < total and total > 1:
            _log.warning(f"{total - done} of {total} {noun} could not be {participle}")
        return 2 if self.failures else 0


def map_or_report(
    items: Sequence[Item], names: Sequence[str], work: Callable[[Sequence[Item]], Sequence[Result]], failures: list[str]
) -> list[Result | None]:
    """Return the result of `work` for every item, or None after adding its error to `failures`."""
    results = map_or_error(items, work)
    failures += [
        f"{name}: {error}" for name, error in zip(names, results, strict=True) if isinstance(error, DocmtError)
    ]
    return [None if isinstance(result, DocmtError) else result for result in results]


def call_or_report(name: str, work: Callable[[], Result], failures: list[str]) -> Result | None:
    """Return the result of `work`, or None after adding its error to `failures`."""
    return map_or_report([work], [name], lambda functions: [function() for function in functions], failures)[0]


def find_invalid_score(translation: Translation, first: int = 0) -> str:
    """Return a message on the first score that is NaN or infinite, or an empty string.

    first: index of the first sentence in its document.
    """
    for number, sentence in enumerate(translation.sentences, first + 1):
        if not math.isfinite(sentence.score):
            return (
                f"the score of sentence {number} is not a number; check that the model is not damaged and that the "
                "--search options are sensible"
            )
    return ""


def write_json(path: str, values: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write values as JSON. Lone surrogates, from file names that are not UTF-8, are escaped."""
    text = json.dumps(values, ensure_ascii=False, indent=indent) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


def write_results(options: Any, values: Mapping[str, Any], page: str) -> None:
    """Write results as JSON and as Markdown (`page`) if the options say so."""
    if options.json:
        write_json(options.json, values)
    if options.markdown:
        write_text(options.markdown, page)


def print_table(options: Any, table: str) -> None:
    """Print a table of results, unless JSON or Markdown goes to standard output."""
    if table and STANDARD not in (options.json, getattr(options, "markdown", None)):
        print(printable(table, allowed="\n"), flush=True)


@dataclass(frozen=True)
class TranslationJob:
    """An input file with its documents and the path of its translation."""

    path: str
    output: str
    format: str
    """format of the output"""
    input: InputFile
    markup: FileTranslation | None = None
    """its units, of a file with markup"""

    @property
    def documents(self) -> list[Document]:
        return self.input.documents

    @property
    def rendered(self) -> FileTranslation | None:
        """The file with markup that the output is rendered from; None: the output is the texts of the parts."""
        return self.markup if self.markup and self.format == self.markup.format.name else None

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return "standard input" if self.path == STANDARD else self.path

    def document_name(self, document: int) -> str:
        """Return the name of one of its documents for messages."""
        if len(self.documents) < 2:
            return self.name
        return f"{self.name}, document {self.documents[document].id if self.markup is None else document + 1}"

    def checksum(self) -> str:
        """Return a checksum of the text, and of the ids of JSONL output."""
        checksum = hashlib.sha256(self.markup.checksum().encode() if self.markup else b"")
        for document in self.documents:
            id = document.id if self.format == "jsonl" else ""
            checksum.update(json.dumps([id, document.sentences, document.gaps]).encode())
        return checksum.hexdigest()


class StreamOutput:
    """Output to standard output, a device or a pipe. It is written at once and cannot be resumed."""

    finished = False

    def __init__(self, path: str, render: Callable[[Iterator[str]], bytes] | None = None) -> None:
        """render: see `ResumableFile`; the output is then written at the end."""
        self.notes: list[Note] = []
        self._make_output = render
        self._texts: list[str] = []
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, text: str, note: Note) -> None:
        """Write text."""
        self.notes[:] = [note]
        if self._make_output is not None:
            self._texts.append(text)
            return
        if self._path == STANDARD:
            write_text(STANDARD, text)
            return
        with writing(self._path):
            if self._file is None:
                self._file = Path(self._path).open("wb", buffering=0)  # noqa: SIM115 - stays open for the next parts
            write_all(self._file, encode_utf8(text, self._path))

    def close(self) -> None:
        """Close the device."""
        if self._file is not None:
            self._file.close()

    def finish(self) -> None:
        """Write what is written at the end, and close the device."""
        if self._make_output is not None and self._texts:
            write_bytes(self._path, self._make_output(iter(self._texts)))
        self.close()

    def acquire(self) -> None:
        """Do nothing, because streams need no lock and leave no files."""

    remove = acquire


@dataclass
class _WriterState:
    """Position of a writer in a file. OUT.partial stores the fields by these names."""

    documents: int = 0
    """finished documents"""
    sentences: int = 0
    """finished sentences of the next document"""
    history: Sequence[Any] = ()
    """target history, see `ResumePoint`"""
    source: int = 0
    """characters of the source so far, for spans that are offsets in the whole file"""
    target: int = 0
    """characters of the translation so far"""
    failed: int = 0
    """documents with failed translations"""
    last_failed: int = -1
    """index of the last of them"""


class TranslationWriter:
    """Writer of the translation of a file."""

    def __init__(self, file: TranslationJob, fingerprint: Mapping[str, Any], resume: bool, report: Report) -> None:
        """fingerprint: model and options, by their names in messages.

        Raises DocmtError if unfinished output would be lost, or if it cannot be resumed (`resume`).
        """
        self.file, self._report = file, report
        render = file.rendered.render if file.rendered else None
        self._output: ResumableFile | StreamOutput = StreamOutput(file.output, render)
        self.lacks_documents = False
        """whether a finished translation has failed documents, which are tried again"""
        if is_resumable(file.output):
            fingerprint = {**fingerprint, "--format": file.format, "input": file.checksum()}
            open_output = partial(ResumableFile, Path(file.output), fingerprint, render=render)
            self._output = open_output(resume=resume)
            notes = self._output.notes
            if notes and notes[-1]["state"]["failed"] and self._output.is_unchanged:
                self._output, self.lacks_documents = open_output(resume=False), True
        self._state = _WriterState()
        self._pending: list[PartialTranslation] = []
        self._pending_report = Report()  # of the pending parts
        self._finished = False

    def begin(self) -> dict[int, ResumePoint]:
        """Lock the file for this process. Return the progress of each document that has been started."""
        self._output.acquire()
        for note in self._output.notes:
            self._state = _WriterState(**note["state"])
            self._report.merge(Report(note["locations"], note["failures"], note["terms"], note["memory"]))
        done = {number: ResumePoint(len(self.file.documents[number])) for number in range(self._state.documents)}
        if self._state.sentences:
            done[self._state.documents] = ResumePoint(self._state.sentences, self._state.history)
        if self._state.documents == len(self.file.documents):
            self.finish()
        return done

    @property
    def begun(self) -> bool:
        """Whether any output exists."""
        return bool(self._output.notes) or self._output.finished

    @property
    def unfinished(self) -> str:
        """Path of OUT.partial with an unfinished translation, or an empty string."""
        return self.partial if self._output.notes and not self._output.finished else ""

    @property
    def partial(self) -> str:
        """Path of OUT.partial, or an empty string if there is none."""
        file = self._output
        return str(file.partial) if isinstance(file, ResumableFile) and file.partial.exists() else ""

    def add(self, parts: Sequence[PartialTranslation]) -> None:
        """Write parts in order. Failures are kept back until a part succeeds.

        parts: with document indices of the file.
        """
        self._pending += [self._check_part(part) for part in parts]
        if self._output.notes or any(part.translation is not None for part in self._pending):
            text, report = "".join(map(self._format_part, self._pending)), self._pending_report
            note = {"state": asdict(self._state), **vars(report)}
            self._output.add(text, note)
            self._report.merge(report)
            self._pending, self._pending_report = [], Report()
        if self._state.documents == len(self.file.documents):
            self.finish()

    def finish(self) -> bool:
        """Complete the file after the last part. Return whether there is a translation."""
        exists = bool(self._output.notes) or not self.file.documents
        if not self._finished:
            self._finished = True
            self._report.merge(self._pending_report)
            if exists:
                self._output.finish()
            if self._output.notes and self._state.failed:
                self._report.failures.append(self._describe_failures())
            self._output.close()
        return exists

    def close(self) -> None:
        """Release the file, finished or not."""
        self._output.close()

    def remove(self) -> None:
        """Remove OUT.partial of a finished file."""
        self._output.remove()

    def _check_part(self, part: PartialTranslation) -> PartialTranslation:
        """Return the part after adding its warnings or its error to the report."""
        last, whole = part.first + len(part.source.sentences), self.file.documents[part.document].sentences
        span = f"sentences {part.first + 1} to {last}" if last - part.first > 1 else f"sentence {last}"
        sentences = "" if last - part.first == len(whole) else f", {span}"
        return self._pending_report.check_part(self.file.document_name(part.document), part, sentences)

    def _format_part(self, part: PartialTranslation) -> str:
        """Return the output for a part, and advance the state."""
        state, text = self._state, part.text()
        if self.file.input.format == "jsonl" and not part.first:
            state.source = state.target = 0
        lines = self._json_lines(part) if self.file.format == "jsonl" else ""
        if self.file.rendered is not None:
            lines = self.file.rendered.to_records(part)
        state.source += len(part.source.text())
        state.target += len(text)
        if part.error is not None and state.last_failed < part.document:
            state.failed, state.last_failed = state.failed + 1, part.document
        state.documents, state.sentences = part.document, part.resume_point.sentences
        state.history = part.resume_point.history
        if state.sentences == len(self.file.documents[part.document].sentences):
            state.documents, state.sentences, state.history = part.document + 1, 0, ()
        if self.file.format == "jsonl" or self.file.rendered is not None:
            return lines
        # An empty last line needs a line feed, or it would not exist.
        ends = state.documents == len(self.file.documents)
        target = part.translation.document if part.translation is not None else None
        empty = bool(part.source.sentences) and not (target and target.sentences[-1]) and not part.source.gaps[-1]
        return text + "\n" * (ends and empty)

    def _json_lines(self, part: PartialTranslation) -> str:
        """Return one line of JSON for each sentence.

        Spans are offsets in the source file and the translated file. For JSONL input they are offsets in the document,
        with one sentence a line.
        """
        translation = part.translation
        rows = sentence_records(translation) if translation is not None else error_records(part.source, str(part.error))
        for record in rows:
            record["sentence"] += part.first
            for span, start in (("source_span", self._state.source), ("target_span", self._state.target)):
                if span in record:
                    record[span] = [start + offset for offset in record[span]]
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in rows)

    def _describe_failures(self) -> str:
        output = "standard output" if self.file.output == STANDARD else self.file.output
        replacement = "lines with error" if self.file.format == "jsonl" else "empty lines"
        if self.file.rendered is not None:
            replacement = "the source text"
        failed, documents = self._state.failed, len(self.file.documents)
        return f"{failed} of {documents} documents are not wholly translated: {output} has {replacement} there"


def is_resumable(output: str) -> bool:
    """Return whether an output is a file, which a later call can resume."""
    return output != STANDARD and (Path(output).is_file() or not Path(output).exists())
