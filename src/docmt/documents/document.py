"""A document: its sentences, and the text between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_text, write_text
from docmt.documents.segmentation import sentence_spans

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
        parts = [self.gaps[0]]
        for sentence, gap in zip(self.sentences, self.gaps[1:], strict=True):
            parts += (sentence, gap)
        return "".join(parts)

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
        end) of `verbatim`, which are in order. Raises DocmtError for lone surrogates.
        """
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
        """A document of the given sentences, one a line."""
        return cls(tuple(sentences), ("", *["\n"] * len(sentences)), id)

    @classmethod
    def read(cls, path: Path | str, *, language: str = "en", join_lines: bool = False) -> Document:
        """Reads a UTF-8 text file ("-" is standard input) and segments it; the path becomes the id.

        All of the file is taken for text; `docmt.documents.read_input` looks at what kind of file it is.
        Raises DocmtError for a file that cannot be read and for bytes that are not UTF-8.
        """
        return cls.from_text(read_text(path), language=language, join_lines=join_lines, id=str(path))

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
