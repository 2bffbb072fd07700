"""A translated document, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.documents.document import brief, shorten


@dataclass(frozen=True)
class TranslatedSentence:
    """One source sentence and what became of it."""

    source: str
    target: str
    score: float
    """log-probability (nats) of the target sentence"""
    source_span: tuple[int, int]
    """first character and the one after the last, in the source text"""
    target_span: tuple[int, int]
    """the same in the target text"""
    rank_score: float = 0.0
    """log-probability, normalised by length, of the part (instance, window or sentence) that was searched: the best
    translation and its alternatives are in the order of these scores, while `score` is of the sentence alone"""
    tokens: int = 0
    """tokens of the target sentence whose log-probabilities `score` is the sum of: its words, the mark that ends it
    (unless the length limit did) and, of the plain document system, the mark after that, which says whether another
    sentence follows"""

    def __repr__(self) -> str:
        return f"<TranslatedSentence {shorten(self.source)} -> {shorten(self.target)}, {self.score:.3f}>"

    def __str__(self) -> str:
        return self.target

    def to_json(self) -> dict[str, Any]:
        """For one line of JSONL."""
        return {
            "source": self.source,
            "target": self.target,
            "score": self.score,
            "source_span": list(self.source_span),
            "target_span": list(self.target_span),
        }


@dataclass(frozen=True)
class Translation:
    """A translated document: the gaps of the source around one target sentence per source sentence.

    `str` gives its text, `len` and iteration its sentences.
    """

    document: Document
    sentences: tuple[TranslatedSentence, ...]
    score: float
    """log-probability of the whole, normalised by length as in the search"""
    miscounted: tuple[tuple[int, int], ...] = ()
    """ranges of source sentences (first, after last) where the model gave another number of sentences: only the plain
    document system can; surplus sentences were joined to the last of the range, missing ones are empty"""
    at_limit: tuple[int, ...] = ()
    """sentences (from 0) that the length limit of the search ended, so that words may be missing"""
    overlong: tuple[int, ...] = ()
    """source sentences (from 0) of as many tokens as an instance of the training had at most, or more; each was
    translated alone"""
    alternatives: tuple[Translation, ...] = ()
    """further translations in the order of the search, when n_best is above 1: the j-th joins the j-th best of every
    part, by `rank_score`; their scores are the log-probabilities of what they say, as everywhere"""

    def __repr__(self) -> str:
        return brief(self, self.document.id, self.document.sentences)

    def __str__(self) -> str:
        return self.text()

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.sentences)

    def __iter__(self) -> Iterator[TranslatedSentence]:
        """The sentences."""
        return iter(self.sentences)

    def text(self) -> str:
        """The translated text, laid out as the source was."""
        return self.document.text()

    def warnings(self) -> list[list[str]]:
        """What may be wrong with each sentence: `sentence_count`, `length_limit`, `long_source`, or nothing."""
        found: list[list[str]] = [[] for _ in self.sentences]
        joined = [number for first, last in self.miscounted for number in range(first, last)]
        for name, numbers in (
            ("sentence_count", joined),
            ("length_limit", self.at_limit),
            ("long_source", self.overlong),
        ):
            for number in numbers:
                found[number].append(name)
        return found


@dataclass(frozen=True)
class Reached:
    """How far a document is translated: all that is needed to go on from there."""

    sentences: int
    """its first ones, all of which are translated"""
    said: Sequence[Sequence[Sequence[int]]] = ()
    """of the last of them that are not empty, as many as what follows sees: the translations (word ids, best first)"""


@dataclass(frozen=True)
class Piece:
    """Sentences that follow each other in a document, translated while others are not yet.

    The texts of all pieces of a document, joined, are the text of the document.
    """

    document: int
    """number, from 0, among those that were given"""
    first: int
    """number of its first sentence in the document, from 0"""
    source: Document
    """these sentences and the gaps before them; of the last piece of a document that at its end, too"""
    reached: Reached
    """how far the document is translated with this piece"""
    translation: Translation | None
    """places and numbers of sentences count from the beginning of the piece"""
    error: DocmtError | None = None
    """why there is no translation"""

    def text(self) -> str:
        """The translated text; sentences that have no translation are empty."""
        if self.translation is not None:
            return self.translation.text()
        return "".join(self.source.gaps)
