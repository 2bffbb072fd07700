"""A document: its sentences, and the text between them; and the documents of a file of any kind that docmt reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.plain_text import BYTE_ORDER_MARK, read_text, write_text
from docmt.documents.formats import Format, check_name, format_of, json_documents, text_documents
from docmt.documents.layout import looks_wrapped, verbatim_lines
from docmt.documents.segmentation import sentence_spans

Layout = Literal["auto", "text", "lines", "markdown", "jsonl"]
_SHOWN = 40


def between(stretches: Iterable[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """The (start, end) of what stands before, between and after stretches of a text of this length, in order."""
    borders = [0, *(place for stretch in stretches for place in stretch), end]
    return list(zip(borders[::2], borders[1::2], strict=True))


@dataclass(frozen=True)
class Document:
    """An immutable sequence of sentences with the gaps around them: gap, sentence, gap, ..., sentence, gap.

    Invariants: len(gaps) == len(sentences) + 1, and joining gaps and sentences in order gives the text. Of a
    document made by `from_text` or `read` the text is the original one, character for character; all white space
    around sentences, list and heading marks and a byte-order mark are in the gaps.
    Raises ValueError when the counts do not fit.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    id: str = ""

    def __post_init__(self) -> None:
        if len(self.gaps) != len(self.sentences) + 1:
            raise ValueError(f"{len(self.sentences)} sentences need one gap more, not {len(self.gaps)} gaps")

    def __repr__(self) -> str:
        return brief(self, self.id, self.sentences)

    def __str__(self) -> str:
        return self.text()

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.sentences)

    def __iter__(self) -> Iterator[str]:
        """The sentences."""
        return iter(self.sentences)

    def text(self) -> str:
        """The whole text."""
        return "".join(gap + sentence for gap, sentence in zip(self.gaps, (*self.sentences, ""), strict=True))

    def spans(self) -> list[tuple[int, int]]:
        """The (start, end) of every sentence in `text()`, in characters (code points)."""
        spans, position = [], 0
        for gap, sentence in zip(self.gaps, self.sentences, strict=False):
            start = position + len(gap)
            position = start + len(sentence)
            spans.append((start, position))
        return spans

    def replace_sentences(self, sentences: Sequence[str]) -> Document:
        """The same gaps and id around other sentences, one for each. Raises DocmtError for another number of them."""
        if len(sentences) != len(self.sentences):
            name = f"document {self.id}" if self.id else "the document"
            raise DocmtError(
                f"{name} has {len(self.sentences)} sentences, but {len(sentences)} were given to replace them; "
                "give exactly one for each"
            )
        return replace(self, sentences=tuple(sentences))

    def part(self, first: int, last: int) -> Document:
        """The sentences first .. last - 1 and the gaps before them; with the last sentence also the gap at the end.

        So the texts of parts end to end, joined, are the text of the whole.
        """
        end = self.gaps[-1] if last == len(self.sentences) else ""
        return replace(self, sentences=self.sentences[first:last], gaps=(*self.gaps[first:last], end))

    def keep(self, kept: Sequence[int]) -> Document:
        """The same text with only these of its sentences (from 0, in order); the others become parts of gaps."""
        text, spans = self.text(), self.spans()
        gaps = tuple(text[start:end] for start, end in between([spans[number] for number in kept], len(text)))
        return replace(self, sentences=tuple(self.sentences[number] for number in kept), gaps=gaps)

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        language: str = "en",
        join_lines: bool = False,
        id: str = "",
        verbatim: Sequence[tuple[int, int]] = (),
    ) -> Document:
        """Segments text into sentences.

        Each line ends a sentence; with `join_lines` the lines of a paragraph belong together, and a sentence may
        hold line breaks (`one_line` removes them for translation). There are no sentences in the stretches (start,
        end) of `verbatim`, which are in order. Raises DocmtError for lone surrogates, TypeError for what is no str.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        sentences, gaps, position = [], [], 0
        for first, last in between(verbatim, len(text)):
            for start, end in sentence_spans(text[first:last], language, join_lines):
                gaps.append(text[position : first + start])
                sentences.append(text[first + start : first + end])
                position = first + end
        gaps.append(text[position:])
        return cls(tuple(sentences), tuple(gaps), id)

    @classmethod
    def from_sentences(cls, sentences: Sequence[str], *, id: str = "") -> Document:
        """Return a document of these sentences, one a line. Raises TypeError for anything but a sequence of str."""
        if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
            raise TypeError("sentences must be a sequence of str; Document.from_text cuts a text into sentences")
        return cls(tuple(sentences), ("", *["\n"] * len(sentences)), id)

    @classmethod
    def read(cls, path: Path | str, *, language: str = "en", join_lines: bool = False) -> Document:
        """Read a file ("-" is standard input) as the command line reads it; the path becomes the id.

        Front matter, tables and code of Markdown, and code between fences, stay in the gaps. `read_input` reads files
        of several documents. Raises DocmtError for a file that cannot be read or holds another number of documents.
        """
        documents = read_input(path, language=language, join_lines=join_lines).documents
        if len(documents) != 1:
            raise DocmtError(f"{path} holds {len(documents)} documents: read them with docmt.documents.read_input")
        return documents[0]

    def write(self, path: Path | str) -> None:
        """Writes the text as UTF-8, newlines as they are: atomically to a file, or to standard output for "-".

        Raises DocmtError for operating system errors and for text that UTF-8 cannot hold.
        """
        write_text(path, self.text())


def brief(shown: object, id: str, sentences: Sequence[str]) -> str:
    """A repr in one line for what holds sentences: its id, how many there are, and how the first begins."""
    count = f"{len(sentences)} sentence{'' if len(sentences) == 1 else 's'}"
    name = f" {shorten(id)}" if id else ""
    return f"<{type(shown).__name__}{name}: {count}{f', {shorten(sentences[0])}' if sentences else ''}>"


def shorten(text: str) -> str:
    """The text in quotes, its end left out where it is long."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")


@dataclass(frozen=True)
class Input:
    """What an input file holds."""

    format: Format | Literal["lines"]
    documents: list[Document]
    """Their texts, joined, are the file, character for character. Of JSONL they are what a text file with the same
    documents would hold: a sentence a line, or running text, and an empty line between documents."""
    verbatim: dict[str, int] = field(default_factory=dict)
    """lines that are never translated, by what they are"""
    looks_wrapped: bool = False
    """whether the lines of running text, each taken for itself, seem to be those of a page"""


def read_input(path: Path | str, *, layout: Layout = "auto", language: str = "en", join_lines: bool = False) -> Input:
    """The documents of a file ("-" is standard input).

    layout: "auto" looks at the file (see `docmt.documents.formats`); "text" is running text whatever it looks like,
    "lines" a sentence a line. language, join_lines: of running text, see `Document.from_text`.
    Raises DocmtError for a file that cannot be read, or is of a kind that cannot be translated.
    """
    if layout == "auto":
        check_name(path)
    text = read_text(path)
    kind = format_of(path, text) if layout == "auto" else layout
    if kind == "lines":
        return Input("lines", _of_lines(text, path))
    if kind == "jsonl":
        return Input("jsonl", list(_of_jsonl(text, path, language, join_lines)))
    is_markdown = kind == "markdown"
    verbatim = verbatim_lines(text, is_markdown) if is_markdown or layout == "auto" else []
    stretches = [(stretch.start, stretch.end) for stretch in verbatim]
    id = os.fsencode(path).decode(errors="backslashreplace")  # of a name that is no UTF-8, too, so that JSON holds it
    document = Document.from_text(text, language=language, join_lines=join_lines, id=id, verbatim=stretches)
    lines: Counter[str] = Counter()
    for stretch in verbatim:
        lines[stretch.kind] += stretch.lines
    rest = "\n".join(text[start:end] for start, end in between(stretches, len(text)))
    return Input(kind, [document], dict(lines), not join_lines and looks_wrapped(rest, language))


def _of_jsonl(text: str, path: Path | str, language: str, join_lines: bool) -> Iterator[Document]:
    lines = enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1)
    found = list(json_documents(lines, path, ["source"], running_text=True))
    for number, one in enumerate(found, 1):
        if one.text is None:
            document = Document.from_sentences([sentence for _, (sentence,) in one.rows], id=one.id)
        else:
            document = Document.from_text(one.text, language=language, join_lines=join_lines, id=one.id)
        last = document.gaps[-1]
        if document.sentences and not last.endswith("\n"):
            last += "\n"
        yield replace(document, gaps=(*document.gaps[:-1], last + "\n" * (number < len(found))))


def _of_lines(text: str, path: Path | str) -> list[Document]:
    """Return the documents of a text of one sentence a line, with the borders that `read_documents` finds.

    Empty lines, document marks and white space around sentences are in the gaps. At least one document, though it may
    have no sentences. Raises DocmtError for a document mark in a file that does not begin with one.
    """
    bare = text.removeprefix(BYTE_ORDER_MARK)
    lines = bare.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=len(text) - len(bare)))
    documents: list[Document] = []
    position = 0  # where the open gap begins
    for found in text_documents(((number, (line.strip(),)) for number, line in enumerate(lines, 1)), [path]):
        gaps, sentences = [], []
        for number, (sentence,) in found.rows:
            if sentence:
                start = text.index(sentence, starts[number - 1])
                gaps.append(text[position:start])
                sentences.append(sentence)
                position = start + len(sentence)
        if sentences:
            end = starts[found.rows[-1][0]]
            documents.append(Document(tuple(sentences), (*gaps, text[position:end]), found.id))
            position = end
    last = documents.pop() if documents else Document((), ("",))
    return [*documents, replace(last, gaps=(*last.gaps[:-1], last.gaps[-1] + text[position:]))]
