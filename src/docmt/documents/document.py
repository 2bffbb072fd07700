"""Documents as sentences with the text between them, and the documents of an input file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK, read_text, write_text
from docmt.documents.input_formats import check_name, detect_format, parse_jsonl, parse_text
from docmt.documents.segmentation import find_fenced_code, looks_wrapped, sentence_spans
from docmt.documents.words import Span, complement_spans, strip_span

Layout = Literal["auto", "text", "lines", "jsonl"]
_MAX_CHARACTERS = 40


@dataclass(frozen=True)
class Document:
    """An immutable sequence of sentences with the gaps around them: gap, sentence, gap, ..., sentence, gap.

    Invariants: len(gaps) == len(sentences) + 1, and gaps and sentences joined in order are the text. For documents
    from `from_text` and `read` this is the original text, character for character. White space around sentences, list
    and heading marks and a byte-order mark are in the gaps. Raises ValueError if the counts do not match.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    id: str = ""
    marked: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """of a file with markup, its sentences with marks for their codes, for a memory (`docmt.formats.marked_text`)"""

    def __post_init__(self) -> None:
        if len(self.gaps) != len(self.sentences) + 1:
            raise ValueError(
                f"{len(self.sentences)} sentences need {len(self.sentences) + 1} gaps, not {len(self.gaps)}"
            )

    def __repr__(self) -> str:
        return summarize(self, self.id, self.sentences)

    def __str__(self) -> str:
        return self.text()

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.sentences)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the sentences."""
        return iter(self.sentences)

    def text(self) -> str:
        """Return the whole text."""
        return "".join(gap + sentence for gap, sentence in zip(self.gaps, (*self.sentences, ""), strict=True))

    def spans(self) -> list[tuple[int, int]]:
        """Return the (start, end) of every sentence in `text()`, in characters (code points)."""
        lengths = (len(text) for pair in zip(self.gaps, self.sentences, strict=False) for text in pair)
        borders = list(accumulate(lengths))
        return list(zip(borders[::2], borders[1::2], strict=True))

    def replace_sentences(self, sentences: Sequence[str]) -> Document:
        """Return the document with other sentences and the same gaps and id.

        Raises DocmtError for another number of sentences.
        """
        if len(sentences) != len(self.sentences):
            name = f"document {self.id}" if self.id else "the document"
            raise DocmtError(
                f"{name} has {len(self.sentences)} sentences but {len(sentences)} replacements. "
                "Give exactly one for each sentence."
            )
        return replace(self, sentences=tuple(sentences), marked=())

    def slice(self, first: int, last: int) -> Document:
        """Return sentences first .. last - 1 with the gaps before them, and the last gap with the last sentence.

        The texts of adjacent slices, joined, are the whole text.
        """
        end = self.gaps[-1] if last == len(self.sentences) else ""
        sentences, marked = self.sentences[first:last], self.marked[first:last]
        return replace(self, sentences=sentences, gaps=(*self.gaps[first:last], end), marked=marked)

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        language: str = "en",
        join_lines: bool = False,
        id: str = "",
        verbatim: Sequence[tuple[int, int]] = (),
        protect: Sequence[str] = (),
    ) -> Document:
        """Segment a text into sentences.

        Each line ends a sentence. With `join_lines` a paragraph is joined first, and a sentence may contain line
        breaks (`unwrap_lines` removes them for translation). The (start, end) spans of `verbatim`, in order, contain
        no sentences. No sentence ends within a match of `protect`, regular expressions. Raises DocmtError for lone
        surrogates and TypeError for anything but a str.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        spans = [
            (first + start, first + end)
            for first, last in complement_spans(verbatim, len(text))
            for start, end in sentence_spans(text[first:last], language, join_lines, protect)
        ]
        return _cut_text(text, spans, id)

    @classmethod
    def from_sentences(cls, sentences: Sequence[str], *, id: str = "") -> Document:
        """Return a document of these sentences, one a line. Raises TypeError for anything but a sequence of str."""
        if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
            raise TypeError("sentences must be a sequence of str. Use Document.from_text to segment a text.")
        return cls(tuple(sentences), ("", *["\n"] * len(sentences)), id)

    @classmethod
    def read(cls, path: Path | str, *, language: str = "en", join_lines: bool = False) -> Document:
        """Read a file ("-" is standard input) like the command line; the path becomes the id.

        Fenced code stays in the gaps. `read_input` reads files of several documents. Raises DocmtError for a file that
        cannot be read or does not contain exactly one document.
        """
        documents = read_input(path, language=language, join_lines=join_lines).documents
        if len(documents) != 1:
            raise DocmtError(f"{path} has {len(documents)} documents. Read them with docmt.documents.read_input.")
        return documents[0]

    def write(self, path: Path | str) -> None:
        """Write the text as UTF-8 with newlines unchanged: atomically to a file, or to standard output for "-".

        Raises DocmtError for operating system errors and for text that UTF-8 cannot encode.
        """
        write_text(path, self.text())


def _cut_text(text: str, spans: Sequence[Span], id: str) -> Document:
    """Return the document of a text whose sentences are these spans of it."""
    borders = [0, *(border for span in spans for border in span), len(text)]
    pieces = [text[start:end] for start, end in pairwise(borders)]
    return Document(tuple(pieces[1::2]), tuple(pieces[::2]), id)


def summarize(value: object, id: str, sentences: Sequence[str]) -> str:
    """Return a one-line repr with the id, the number of sentences and the beginning of the first."""
    count = f"{len(sentences)} sentence{'' if len(sentences) == 1 else 's'}"
    name = f" {shorten(id)}" if id else ""
    return f"<{type(value).__name__}{name}: {count}{f', {shorten(sentences[0])}' if sentences else ''}>"


def shorten(text: str) -> str:
    """Return the text in quotes, truncated if it is long."""
    return repr(text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…")


@dataclass(frozen=True)
class InputFile:
    """The contents of an input file."""

    format: Literal["text", "lines", "jsonl"]
    documents: list[Document]
    """Their joined texts are the file, character for character. Those of JSONL are the text file that is its
    translation: one sentence a line, or running text, with an empty line between documents."""
    code_lines: int = 0
    """number of lines that are fenced code, which is not translated"""
    looks_wrapped: bool = False
    """whether lines of running text, each read as a paragraph, look hard-wrapped"""


def read_input(
    path: Path | str,
    *,
    layout: Layout = "auto",
    language: str = "en",
    join_lines: bool = False,
    text: str | None = None,
    protect: Sequence[str] = (),
) -> InputFile:
    """Read the documents of a file ("-" is standard input).

    layout: "auto" detects the format (see `docmt.documents.input_formats`), "text" is running text without detection,
    "lines" is one sentence a line. language, join_lines, protect: for running text, see `Document.from_text`. Raises
    DocmtError for files that cannot be read, or of formats that cannot be translated.
    """
    if layout == "auto":
        check_name(path)
    text = read_text(path) if text is None else text
    segment = partial(Document.from_text, language=language, join_lines=join_lines, protect=protect)
    kind = detect_format(path, text) if layout == "auto" else layout
    if kind == "lines":
        return InputFile("lines", _parse_lines(text, path))
    if kind == "jsonl":
        return InputFile("jsonl", list(_parse_jsonl_documents(text, path, segment)))
    spans = find_fenced_code(text) if layout == "auto" else []
    id = os.fsencode(path).decode(errors="backslashreplace")  # JSON needs UTF-8 for any file name
    document = segment(text, id=id, verbatim=spans)
    code_lines = sum(text[start:end].removesuffix("\n").count("\n") + 1 for start, end in spans)
    running_text = "\n".join(text[start:end] for start, end in complement_spans(spans, len(text)))
    return InputFile("text", [document], code_lines, not join_lines and looks_wrapped(running_text, language))


def _parse_jsonl_documents(text: str, path: Path | str, segment: Callable[..., Document]) -> Iterator[Document]:
    lines = enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1)
    parsed = list(parse_jsonl(lines, path, ["source"], running_text=True))
    for number, entry in enumerate(parsed, 1):
        if entry.text is None:
            document = Document.from_sentences([sentence for _, (sentence,) in entry.rows], id=entry.id)
        else:
            document = segment(entry.text, id=entry.id)
        last = document.gaps[-1]
        if document.sentences and not last.endswith("\n"):
            last += "\n"
        yield replace(document, gaps=(*document.gaps[:-1], last + "\n" * (number < len(parsed))))


def _parse_lines(text: str, path: Path | str) -> list[Document]:
    """Return the documents of a text of one sentence a line, with the boundaries of `read_documents`.

    Empty lines, document marks and white space around sentences are in the gaps. There is at least one document,
    perhaps without sentences. Raises DocmtError for a document mark in a file that does not begin with one.
    """
    content = text.removeprefix(BYTE_ORDER_MARK)
    lines = content.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=len(text) - len(content)))
    documents: list[Document] = []
    position = 0  # where the next document begins
    for parsed in parse_text(((number, (line.strip(),)) for number, line in enumerate(lines, 1)), [path]):
        spans = [strip_span(text, starts[number - 1], starts[number] - 1) for number, (line,) in parsed.rows if line]
        if spans:
            end = starts[parsed.rows[-1][0]]
            inside = [(start - position, last - position) for start, last in spans]
            documents.append(_cut_text(text[position:end], inside, parsed.id))
            position = end
    last = documents.pop() if documents else Document((), ("",))
    return [*documents, replace(last, gaps=(*last.gaps[:-1], last.gaps[-1] + text[position:]))]
