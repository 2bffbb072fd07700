"""What commands tell of documents (a record a sentence, warnings, failures), and translations on their way out."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from docmt.core.errors import DocmtError, printable
from docmt.core.files import cannot_write, utf8_of, write_all
from docmt.core.partial import Note, PartialFile
from docmt.core.plain_text import GZIP_SUFFIX, STANDARD, write_text
from docmt.decoding.translation_results import ResumePoint
from docmt.documents import Document, InputFile

if TYPE_CHECKING:
    from docmt.decoding import Translation
    from docmt.decoding.translation_results import PartialTranslation

_log = logging.getLogger(__name__)

WARNINGS = {
    "sentence_count": "places where the model gave another number of sentences than the source has: surplus sentences "
    "were joined, missing ones left empty",
    "length_limit": "sentences ended by the length limit, so that words may be missing (--max-length-ratio and "
    "--max-length-extra raise it)",
    "long_source": "source sentences longer than an instance, each read as an instance of its own, in which most "
    "systems see no context",
}


def records(translation: Translation) -> list[dict[str, Any]]:
    """One JSON object per sentence of a translation."""
    found = []
    for number, (sentence, warnings) in enumerate(zip(translation.sentences, translation.warnings(), strict=True)):
        record = {"document": translation.document.id, "sentence": number + 1, **sentence.to_json()}
        record["score"] = float(sentence.score)  # of a sentence that is missing it is a sum of nothing, a whole number
        record["warnings"] = warnings
        if translation.alternatives:
            others = [alternative.sentences[number] for alternative in translation.alternatives]
            record["rank_score"] = sentence.rank_score
            record["alternatives"] = [
                {"target": other.target, "score": other.score, "rank_score": other.rank_score} for other in others
            ]
        found.append(record)
    return found


def error_records(document: Document, error: str) -> list[dict[str, Any]]:
    """One JSON object per sentence of a document that has no translation, or no scores."""
    return [
        {"document": document.id, "sentence": number, "source": source, "source_span": list(span), "error": error}
        for number, (source, span) in enumerate(zip(document.sentences, document.spans(), strict=True), 1)
    ]


@dataclass
class Report:
    """Where each warning applies, and why something could not be done."""

    places: dict[str, list[str]] = field(default_factory=lambda: {warning: [] for warning in WARNINGS})
    failures: list[str] = field(default_factory=list)
    """a sentence each, which names the file"""

    def collect(self, within: str, translation: Translation, first: int = 0) -> None:
        """Adds the warnings of a translation; `within` names its document, whose sentence `first` is its sentence 0."""
        for start, end in translation.miscounted:
            self.places["sentence_count"].append(f"{within}, sentences {first + start + 1} to {first + end}")
        for warning, numbers in (("length_limit", translation.at_limit), ("long_source", translation.overlong)):
            self.places[warning].extend(f"{within}, sentence {first + number + 1}" for number in numbers)

    def counts(self) -> dict[str, int]:
        """How often each warning applies."""
        return {warning: len(found) for warning, found in self.places.items()}

    def checked(
        self, within: str, result: Translation | DocmtError, first: int = 0, sentences: str = ""
    ) -> Translation | DocmtError:
        """Return a result, and note what is told of it. A translation with a score that is no number is an error.

        Such scores come from weights that are damaged, or divided by a temperature beyond all measure. within, first:
        see `collect`. sentences: which of the document an error is about, as messages name them.
        """
        if not isinstance(result, DocmtError) and (problem := not_a_number(result, first)):
            result = DocmtError(problem)
        if isinstance(result, DocmtError):
            self.failures.append(f"{within}{sentences}: {result}")
        else:
            self.collect(within, result, first)
        return result

    def add(self, other: Report) -> None:
        """What is told of other documents as well."""
        for warning, found in other.places.items():
            self.places[warning].extend(found)
        self.failures.extend(other.failures)

    def print(self, total: int, done: int, things: str, undone: str) -> int:
        """Tells all on standard error, at the end how many of the `total` things ("files") were not done, and how.

        Returns the status of the command.
        """
        for warning, found in self.places.items():
            if found:
                first = f"first: {found[0]}" if len(found) > 1 else found[0]
                _log.warning(f"{len(found)} x {WARNINGS[warning]} ({first})")
        for failure in self.failures:
            _log.error(failure)
        if done < total and total > 1:
            _log.warning(f"{total - done} of {total} {things} could not be {undone}")
        return 2 if self.failures else 0


def not_a_number(translation: Translation, first: int = 0) -> str:
    """A sentence on the first score that is not a number, or so far below all numbers that JSON has no word for it;
    empty if there is none. first: number of the first sentence in its document."""
    for number, sentence in enumerate(translation.sentences, first + 1):
        if not math.isfinite(sentence.score):
            return (
                f"the score of sentence {number} is no number; copy the model again if it is damaged, and give usual "
                "--search options"
            )
    return ""


def write_json(path: str, values: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write values as JSON. Half characters, of names of files that are no UTF-8, are escaped."""
    text = json.dumps(values, ensure_ascii=False, indent=indent) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


def write_results(options: Any, values: Mapping[str, Any], page: str) -> None:
    """Write results as JSON and as Markdown (`page`) where the options say."""
    if options.json:
        write_json(options.json, values)
    if options.markdown:
        write_text(options.markdown, page)


def print_table(options: Any, table: str) -> None:
    """Print a table of results, unless standard output is for JSON or Markdown."""
    if table and STANDARD not in (options.json, options.markdown):
        print(printable(table, kept="\n"), flush=True)


@dataclass(frozen=True)
class File:
    """One input file, its documents, and where its translation goes."""

    path: str
    output: str
    format: str
    """of the output"""
    input: InputFile

    @property
    def documents(self) -> list[Document]:
        return self.input.documents

    @property
    def name(self) -> str:
        """For messages."""
        return "standard input" if self.path == STANDARD else self.path

    def name_of(self, document: int) -> str:
        """Of one of its documents, for messages."""
        return f"{self.name}, document {self.documents[document].id}" if len(self.documents) > 1 else self.name

    def checksum(self) -> str:
        """Of all that its translation depends on, the ids that stand in JSONL included."""
        found = hashlib.sha256()
        for document in self.documents:
            id = document.id if self.format == "jsonl" else ""
            found.update(json.dumps([id, document.sentences, document.gaps]).encode())
        return found.hexdigest()


class StreamOutput:
    """What goes to standard output, a device or a pipe: at once, and nothing is known of it afterwards."""

    finished = False

    def __init__(self, path: str) -> None:
        self.notes: list[Note] = []
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, text: str, note: Note) -> None:
        """Write text."""
        self.notes[:] = [note]
        if self._path == STANDARD:
            write_text(STANDARD, text)
            return
        try:
            if self._file is None:
                self._file = Path(self._path).open("wb", buffering=0)  # noqa: SIM115 - stays open for what follows
            write_all(self._file, utf8_of(text, self._path))
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Let go of the device."""
        if self._file is not None:
            self._file.close()

    finish = close

    def hold(self) -> None:
        """Do nothing: a stream can be held by several processes, and leaves nothing behind."""

    remove = hold


@dataclass
class _State:
    """What is written of a file so far."""

    documents: int = 0
    """that are finished"""
    sentences: int = 0
    """of the next one"""
    said: Sequence[Any] = ()
    """see `ResumePoint`"""
    source: int = 0
    """characters of the source so far, where spans are places in a whole file"""
    target: int = 0
    """the same of the translation"""
    failed: int = 0
    """documents that lack translations"""
    last_failed: int = -1
    """the last of them"""


class Writer:
    """The translation of a file on its way to where it goes."""

    def __init__(self, file: File, facts: Mapping[str, Any], resume: bool, report: Report) -> None:
        """facts: what it depends on besides the file, by names for messages. Raises DocmtError where something would be
        lost, or where it cannot go on (`resume`)."""
        self.file, self._report = file, report
        self._place: PartialFile | StreamOutput = StreamOutput(file.output)
        self.lacks_documents = False
        """whether there is a finished translation in which documents failed, and are to be tried again"""
        if stays(file.output):
            facts = {**facts, "--format": file.format, "input": file.checksum()}
            place = partial(PartialFile, Path(file.output), facts, compressed=file.output.endswith(GZIP_SUFFIX))
            self._place = place(resume=resume)
            notes = self._place.notes
            if notes and notes[-1]["state"]["failed"] and self._place.as_written:
                self._place, self.lacks_documents = place(resume=False), True
        self._state = _State()
        self._held: list[PartialTranslation] = []
        self._news = Report()  # of what is not written yet
        self._finished = False

    def begin(self) -> dict[int, ResumePoint]:
        """Keep the file for this process. Returns how far each of its documents is translated, of those begun."""
        self._place.hold()
        for note in self._place.notes:
            self._state = _State(**note["state"])
            self._report.add(Report(note["places"], note["failures"]))
        done = {number: ResumePoint(len(self.file.documents[number])) for number in range(self._state.documents)}
        if self._state.sentences:
            done[self._state.documents] = ResumePoint(self._state.sentences, self._state.said)
        if self._state.documents == len(self.file.documents):
            self.finish()
        return done

    @property
    def begun(self) -> bool:
        """Whether something of it is written."""
        return bool(self._place.notes) or self._place.finished

    @property
    def unfinished(self) -> str:
        """Where the beginning of the translation is kept, if there is one."""
        place = self._place
        return str(place.partial) if isinstance(place, PartialFile) and place.notes and not place.finished else ""

    def add(self, pieces: Sequence[PartialTranslation]) -> None:
        """Writes pieces, in order, whose documents count within the file. Before any is translated, none is written."""
        self._held += [self._noted(piece) for piece in pieces]
        if self._place.notes or any(piece.translation is not None for piece in self._held):
            text = "".join(map(self._text, self._held))
            self._place.add(text, {"state": asdict(self._state), **asdict(self._news)})
            self._report.add(self._news)
            self._held, self._news = [], Report()
        if self._state.documents == len(self.file.documents):
            self.finish()

    def finish(self) -> bool:
        """The last piece is there; returns whether there is a translation."""
        exists = bool(self._place.notes) or not self.file.documents
        if not self._finished:
            self._finished = True
            self._report.add(self._news)
            if exists:
                self._place.finish()
            if self._place.notes and self._state.failed:
                self._report.failures.append(self._partly())
            self._place.close()
        return exists

    def close(self) -> None:
        """Lets go of the file, finished or not."""
        self._place.close()

    def remove(self) -> None:
        """Removes what tells how far it was."""
        self._place.remove()

    def _noted(self, piece: PartialTranslation) -> PartialTranslation:
        """The piece, without a translation that has no scores; what may be wrong with it is noted."""
        result = piece.error if piece.translation is None else piece.translation
        assert result is not None  # a piece has one of them
        last, whole = piece.first + len(piece.source.sentences), self.file.documents[piece.document].sentences
        sentences = "" if last - piece.first == len(whole) else f", sentences {piece.first + 1} to {last}"
        result = self._news.checked(self.file.name_of(piece.document), result, piece.first, sentences)
        return replace(piece, translation=None, error=result) if isinstance(result, DocmtError) else piece

    def _text(self, piece: PartialTranslation) -> str:
        """What is written of a piece, which is counted as written."""
        state, text = self._state, piece.text()
        if self.file.input.format == "jsonl" and not piece.first:
            state.source = state.target = 0
        lines = self._lines(piece) if self.file.format == "jsonl" else ""
        state.source += len(piece.source.text())
        state.target += len(text)
        if piece.error is not None and state.last_failed < piece.document:
            state.failed, state.last_failed = state.failed + 1, piece.document
        point = piece.resume_point
        state.documents, state.sentences, state.said = piece.document, point.sentences, point.history
        if state.sentences == len(self.file.documents[piece.document].sentences):
            state.documents, state.sentences, state.said = piece.document + 1, 0, ()
        if self.file.format == "jsonl":
            return lines
        # A last line that is empty and has no end would not be there at all.
        ends = state.documents == len(self.file.documents)
        target = piece.translation.document if piece.translation is not None else None
        empty = bool(piece.source.sentences) and not (target and target.sentences[-1]) and not piece.source.gaps[-1]
        return text + "\n" * (ends and empty)

    def _lines(self, piece: PartialTranslation) -> str:
        """One line of JSON for each sentence.

        Its spans are places in the whole source file and the whole translated file; of JSONL, which has no such text,
        in the text of the document, a sentence a line.
        """
        translation = piece.translation
        found = records(translation) if translation is not None else error_records(piece.source, str(piece.error))
        for record in found:
            record["sentence"] += piece.first
            for span, start in (("source_span", self._state.source), ("target_span", self._state.target)):
                if span in record:
                    record[span] = [start + place for place in record[span]]
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in found)

    def _partly(self) -> str:
        place = "standard output" if self.file.output == STANDARD else self.file.output
        instead = "lines with error" if self.file.format == "jsonl" else "empty lines"
        failed, documents = self._state.failed, len(self.file.documents)
        return f"{failed} of {documents} documents have {instead} in {place} instead of their translations"


def stays(output: str) -> bool:
    """Whether this output is a file, which a later call finds again."""
    return output != STANDARD and (Path(output).is_file() or not Path(output).exists())
