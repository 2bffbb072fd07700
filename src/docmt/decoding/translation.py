"""Results: hypotheses of a search, spans of a document, and translated documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from docmt.core.errors import DocmtError
from docmt.decoding.search_config import SearchConfig
from docmt.documents import Document
from docmt.documents.document import shorten, summarize


@dataclass(frozen=True)
class Hypothesis:
    """One translation of consecutive sentences: of a row of the search, or of several joined."""

    sentences: list[list[int]]
    """word ids of each target sentence, marks not included; of joined ones one (possibly empty) for each source
    sentence"""
    sentence_scores: list[float]
    """log-probability (nats) of each sentence: its words and marks as far as they were chosen, not forced"""
    sentence_tokens: list[int]
    """how many tokens of each these are"""
    score: float
    """log-probability divided by (number of free tokens ** length_penalty)"""
    free_tokens: int
    """tokens that count in the length: those chosen rather than forced (in the published search of G-Transformer all
    but those of translations that were given, in that of RFA all)"""
    at_limit: list[int] = field(default_factory=list)
    """sentences (from 0) that the length limit ended, so that words may be missing (of the plain document system the
    last sentence of an instance)"""
    miscounted: list[tuple[int, int]] = field(default_factory=list)
    """ranges of sentences (first, after last) whose translation had another number of sentences (plain document system
    only): surplus sentences are joined to the range's last one, missing ones are empty"""
    rank_scores: list[float] = field(default_factory=list)
    """of joined ones, for each sentence the score by which the search ranked the row that it was found in:
    log-probability normalised by length"""

    def after(self, count: int, *, alone: bool = False) -> Hypothesis:
        """Its sentences but the first `count`; score and free tokens are those of the whole, in which a prefix that was
        given has no part.

        alone: of what follows the next sentence only, whatever comes after, and its tokens (the published search of
        RFA).
        """
        last = count + 1 if alone else None
        tokens = self.sentence_tokens[count:last] or [0]
        return replace(
            self,
            sentences=self.sentences[count:last] or [[]],
            sentence_scores=self.sentence_scores[count:last] or [0.0],
            sentence_tokens=tokens,
            free_tokens=sum(tokens) if alone else self.free_tokens,
        )

    def fitted(self, count: int) -> list[list[int]]:
        """Return `count` sentences: surplus ones are joined to the last of these, missing ones are empty."""
        surplus = [word for sentence in self.sentences[count:] for word in sentence]
        sentences = [*self.sentences[:count], *[[]] * (count - len(self.sentences))]
        return [*sentences[:-1], sentences[-1] + surplus] if surplus else sentences

    def spread(self, places: Sequence[int], count: int) -> Hypothesis:
        """The same for a document of `count` sentences, of which the model saw those at `places`; others are empty."""
        if len(places) == count:
            return self
        sentences: list[list[int]] = [[] for _ in range(count)]
        scores, tokens, rank_scores = [0.0] * count, [0] * count, [0.0] * count
        for number, place in enumerate(places):
            sentences[place], scores[place] = self.sentences[number], self.sentence_scores[number]
            tokens[place], rank_scores[place] = self.sentence_tokens[number], self.rank_scores[number]
        return replace(
            self,
            sentences=sentences,
            sentence_scores=scores,
            sentence_tokens=tokens,
            miscounted=[(places[first], places[last - 1] + 1) for first, last in self.miscounted],
            at_limit=[places[number] for number in self.at_limit],
            rank_scores=rank_scores,
        )


def not_numbers() -> DocmtError:
    """The error for a model whose scores are no numbers."""
    return DocmtError(
        "the model's weights or scores are not numbers: train it again with a lower optimizer.learning_rate, or set "
        "search.temperature nearer to 1"
    )


@dataclass(frozen=True)
class ResumePoint:
    """How far a document is translated: all that is needed to go on from there."""

    sentences: int
    """its first ones, all of which are translated"""
    said: Sequence[Sequence[Sequence[int]]] = ()
    """of the last of them that are not empty, as many as what follows sees: the translations (word ids, best first)"""


@dataclass(frozen=True)
class TranslatedSpan:
    """The translations of the sentences first .. last - 1 of a document.

    While a task is searched, these are numbered through all its documents (`Task`); in what a stream gives, in theirs.
    """

    document: int
    first: int
    last: int
    ranks: Sequence[Hypothesis] = ()
    """best first"""
    reached: ResumePoint = ResumePoint(0)
    """how far the document is translated with this span"""
    error: DocmtError | None = None
    """why there are no translations"""


def join(spans: Sequence[TranslatedSpan], search: SearchConfig, start: int = 0) -> list[Hypothesis]:
    """Return the hypotheses of consecutive spans joined, best first: the j-th joins the j-th best of every span.

    start: the number of their first sentence, which is 0 in what they give. Where a span has fewer hypotheses than
    another one, its last stands in for the missing ranks.
    """
    ranks = max((len(span.ranks) for span in spans), default=1)
    return [
        _joined([(span, span.ranks[min(rank, len(span.ranks) - 1)]) for span in spans], search, start)
        for rank in range(ranks)
    ]


def _joined(parts: Sequence[tuple[TranslatedSpan, Hypothesis]], search: SearchConfig, start: int) -> Hypothesis:
    """One hypothesis with exactly as many target sentences as there are source sentences."""
    sentences: list[list[int]] = []
    scores: list[float] = []
    tokens: list[int] = []
    for span, part in parts:
        count = span.last - span.first
        sentences += part.fitted(count)
        scores += _fitted(part.sentence_scores, count)
        tokens += map(int, _fitted(part.sentence_tokens, count))
    free = sum(part.free_tokens for _, part in parts)
    return Hypothesis(
        sentences,
        scores,
        tokens,
        search.normalized(sum(scores), free),
        free,
        at_limit=[span.first - start + number for span, part in parts for number in part.at_limit],
        miscounted=[
            (span.first - start, span.last - start)
            for span, part in parts
            if len(part.sentences) != span.last - span.first
        ],
        rank_scores=[part.score for span, part in parts for _ in range(span.first, span.last)],
    )


def _fitted(numbers: Sequence[float], count: int) -> list[float]:
    """`count` numbers: surplus ones are added to the last of these, missing ones are 0."""
    return ([*numbers[: count - 1], sum(numbers[count - 1 :])] + [0] * (count - len(numbers)))[:count]


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
        return summarize(self, self.document.id, self.document.sentences)

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
    reached: ResumePoint
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
