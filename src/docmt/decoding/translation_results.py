"""Prepared documents, and results: hypotheses of a search, translated spans of a document, and translated documents."""

from __future__ import annotations

import logging
import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Literal, TypeVar

from docmt.core.errors import DocmtError
from docmt.core.settings import quote
from docmt.decoding.search_config import SearchConfig
from docmt.documents import Document
from docmt.documents.document import shorten, summarize
from docmt.documents.words import Span, find_words, normalize_characters
from docmt.documents.words import WordLink as WordLink
from docmt.terms.memory import QUALITY, MatchKind, Memory, MemoryMatch

_log = logging.getLogger(__name__)
DocumentKind = TypeVar("DocumentKind")


@dataclass(frozen=True)
class PreparedDocument:
    """A source document with its tokens. The model reads the pieces of a long sentence as sentences."""

    document: Document
    """the sentences that the model reads, each a whole one or a piece"""
    words: Sequence[Sequence[int]]
    """ids of each of these, without boundary tokens"""
    whole: Document
    """the document as it was given"""
    numbers: Sequence[int]
    """for each sentence that the model reads, the number of the sentence of `whole`"""
    matches: Mapping[int, MemoryMatch] = field(default_factory=dict)
    """what a memory has for sentences of `whole`, by number"""
    given: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """word ids of the translations of sentences that the model does not translate, by number"""

    def slice(self, first: int, last: int) -> PreparedDocument:
        """Return the sentences first .. last - 1 that the model reads, of which whole ones; see `Document.slice`."""
        start, stop = self.count_whole(first), self.count_whole(last)
        return replace(
            self,
            document=self.document.slice(first, last),
            words=self.words[first:last],
            whole=self.whole.slice(start, stop),
            numbers=[number - start for number in self.numbers[first:last]],
            matches={number - start: each for number, each in self.matches.items() if start <= number < stop},
            given={number - first: ids for number, ids in self.given.items() if first <= number < last},
        )

    def with_memory(
        self, memory: Memory, encode: Callable[[list[str], list[str]], list[list[int]]]
    ) -> PreparedDocument:
        """Return the document with what a memory has for it.

        encode: returns the word ids of the translations of some sentences, from both.
        """
        matches = memory.match(self.whole)
        used = [number for number, match in matches.items() if match.target]
        targets = [normalize_characters(matches[number].target) for number in used]
        ids = dict(zip(used, encode([self.whole.sentences[number] for number in used], targets), strict=True))
        rows = self.divide_targets([ids.get(number, ()) for number in range(len(self.whole))])
        given = {n: row for n, (number, row) in enumerate(zip(self.numbers, rows, strict=True)) if number in ids}
        return replace(self, matches=matches, given=given)

    def count_whole(self, pieces: int) -> int:
        """Return how many whole sentences are in the first ones that the model reads."""
        return self.numbers[pieces] if pieces < len(self.numbers) else len(self.whole)

    def divide_point(self, point: ResumePoint) -> ResumePoint:
        """Return a resume point that counts what the model reads, from one that counts whole sentences."""
        return replace(point, sentences=bisect_left(self.numbers, point.sentences))

    def make_part(self, span: TranslatedSpan, translation: Translation | None) -> PartialTranslation:
        """Return the translation of a span of what the model read, which ends with a whole sentence."""
        first, last, done = map(self.count_whole, (span.first, span.last, span.resume_point.sentences))
        point = replace(span.resume_point, sentences=done)
        return PartialTranslation(span.document, first, self.whole.slice(first, last), point, translation, span.error)

    def divide_targets(self, targets: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Return word ids of the first translations for what the model reads: about equal parts for the pieces."""
        counts = Counter(self.numbers)
        return [
            ids[len(ids) * part // counts[number] : len(ids) * (part + 1) // counts[number]]
            for number, ids in enumerate(targets)
            for part in range(counts[number])
        ]

    def list_given(self, translation: Translation) -> dict[int, list[TranslatedSentence]]:
        """Return what a memory gave, as translations of the first pieces of sentences; the other pieces have none.

        translation: of this document. A sentence that the model counted otherwise has none: its neighbours may have its
        words.
        """
        joined = {n for span in translation.miscounted for n in range(*span)}
        rows = dict[int, list[TranslatedSentence]]()
        for number in self.given.keys() - joined:
            whole, rows[number] = self.numbers[number], []
            if number == 0 or self.numbers[number - 1] != whole:
                given = self.recall(whole)
                rows[number] = [replace(given, pieces=((given.source_span, given.target_span),))]
        return rows

    def recall(self, number: int) -> TranslatedSentence:
        """Return the translation that a memory has for a whole sentence."""
        text, match = self.whole.sentences[number], self.matches[number]
        links = None if match.links is None else tuple(WordLink(each[:2], each[2:], 1.0, True) for each in match.links)
        ends = (0, len(text)), (0, len(match.target))
        return TranslatedSentence(text, match.target, 0.0, *ends, memory=match.kind, alignment=links)

    def lengths(self) -> list[int]:
        """Return the tokens of each whole sentence, without boundary tokens."""
        lengths = [0] * len(self.whole)
        for number, ids in zip(self.numbers, self.words, strict=True):
            lengths[number] += len(ids)
        return lengths


@dataclass(frozen=True)
class Hypothesis:
    """Translation of consecutive sentences: one result of the search, or several joined."""

    sentences: list[list[int]]
    """word ids of each target sentence without boundary tokens; joined results have one (possibly empty) for each
    source sentence"""
    sentence_scores: list[float]
    """log-probability (nats) of each sentence: its words, and its boundary tokens that were chosen, not forced"""
    sentence_tokens: list[int]
    """number of tokens in each of these scores"""
    score: float
    """log-probability divided by (number of chosen tokens ** length_penalty)"""
    chosen_tokens: int
    """tokens that count in the length: those chosen, not forced. The searches of published code count forced tokens,
    too (G-Transformer: except those of a prefix)"""
    at_limit: list[int] = field(default_factory=list)
    """sentences (from 0) that the length limit ended, so words may be missing (plain document system: the last sentence
    of an instance)"""
    miscounted: list[tuple[int, int]] = field(default_factory=list)
    """ranges of sentences (first, after last) whose translation had another number of sentences (plain document system
    only): surplus sentences are joined to the last of the range, missing ones are empty"""
    rank_scores: list[float] = field(default_factory=list)
    """for each sentence of joined results, the length-normalised log-probability by which the search ranked its row"""
    token_scores: list[array[float]] = field(default_factory=list)
    """for supplied translations: log-probability (nats) of each word id of each sentence"""
    token_losses: list[array[float]] = field(default_factory=list)
    """for an opening alone: nats by which each of its first word ids is less likely than the likeliest one"""

    def drop_prefix(self, count: int, *, only_next: bool = False) -> Hypothesis:
        """Return the hypothesis without its first `count` sentences; score and chosen tokens do not change.

        only_next: keep the next sentence alone and count its tokens only (the published search of RFA).
        """
        last = count + 1 if only_next else len(self.sentences)
        tokens = self.sentence_tokens[count:last] or [0]
        return replace(
            self,
            sentences=self.sentences[count:last] or [[]],
            sentence_scores=self.sentence_scores[count:last] or [0.0],
            sentence_tokens=tokens,
            chosen_tokens=sum(tokens) if only_next else self.chosen_tokens,
            at_limit=[number - count for number in self.at_limit if number >= count],
        )

    def fit_sentences(self, count: int) -> list[list[int]]:
        """Return `count` sentences: surplus ones are joined to the last, missing ones are empty."""
        surplus = [word for sentence in self.sentences[count:] for word in sentence]
        sentences = [*self.sentences[:count], *[[]] * (count - len(self.sentences))]
        return [*sentences[:-1], sentences[-1] + surplus] if surplus else sentences

    def insert_empty(self, positions: Sequence[int], count: int) -> Hypothesis:
        """Return the hypothesis for a document of `count` sentences with empty ones inserted.

        positions: of the sentences that the model saw.
        """
        if len(positions) == count:
            return self

        def spread(values: Sequence[Any], empty: Any) -> list[Any]:
            by_position = dict(zip(positions, values, strict=True))
            return [by_position.get(number, empty) for number in range(count)]

        return replace(
            self,
            sentences=spread(self.sentences, []),
            sentence_scores=spread(self.sentence_scores, 0.0),
            sentence_tokens=spread(self.sentence_tokens, 0),
            miscounted=[(positions[first], positions[last - 1] + 1) for first, last in self.miscounted],
            at_limit=[positions[number] for number in self.at_limit],
            rank_scores=spread(self.rank_scores, 0.0),
            token_scores=spread(self.token_scores, array("f")) if self.token_scores else [],
        )


def non_finite_error() -> DocmtError:
    """Return the error for a model whose scores are not finite numbers."""
    return DocmtError(
        "the model's weights or scores are not finite numbers. Train it again with a lower optimizer.learning_rate, or "
        "set search.temperature closer to 1."
    )


@dataclass(frozen=True)
class ResumePoint:
    """Progress of a document's translation: all that is needed to resume it."""

    sentences: int
    """number of its first sentences that are translated"""
    history: Sequence[Sequence[Sequence[int]]] = ()
    """translations (word ids, best first) of the last non-empty ones, as many as the next sentence sees"""
    is_supplied: bool = False
    """the translations were not made here: the history is of all non-empty sentences before, and an instance may be cut
    in two"""


@dataclass(frozen=True)
class TranslatedSpan:
    """Translations of the sentences first .. last - 1 of a document.

    Inside a search sentences are numbered through the task (`Task`), as if it were one document. A `DocumentStream`
    yields spans numbered within their document.
    """

    document: int
    first: int
    last: int
    hypotheses: Sequence[Hypothesis] = ()
    """best first"""
    resume_point: ResumePoint = ResumePoint(0)
    """progress of the document with this span"""
    error: DocmtError | None = None
    """reason why there are no translations"""


def join_spans(spans: Sequence[TranslatedSpan], search: SearchConfig, start: int = 0) -> list[Hypothesis]:
    """Join consecutive spans: the j-th best result joins the j-th best of every span.

    start: number of the first sentence, which is 0 in the result. A span with fewer hypotheses repeats its last one.
    """
    count = max((len(span.hypotheses) for span in spans), default=1)
    return [
        _join_rank([(span, span.hypotheses[min(rank, len(span.hypotheses) - 1)]) for span in spans], search, start)
        for rank in range(count)
    ]


def _join_rank(pairs: Sequence[tuple[TranslatedSpan, Hypothesis]], search: SearchConfig, start: int) -> Hypothesis:
    """Return one hypothesis with exactly one target sentence per source sentence."""
    sentences: list[list[int]] = []
    scores: list[float] = []
    tokens: list[int] = []
    for span, hypothesis in pairs:
        count = span.last - span.first
        sentences += hypothesis.fit_sentences(count)
        scores += _fit_numbers(hypothesis.sentence_scores, count)
        tokens += map(int, _fit_numbers(hypothesis.sentence_tokens, count))
    chosen = sum(hypothesis.chosen_tokens for _, hypothesis in pairs)
    return Hypothesis(
        sentences,
        scores,
        tokens,
        search.normalize_score(sum(scores), chosen),
        chosen,
        at_limit=[span.first - start + number for span, part in pairs for number in part.at_limit],
        miscounted=[
            (span.first - start, span.last - start)
            for span, part in pairs
            if len(part.sentences) != span.last - span.first
        ],
        rank_scores=[part.score for span, part in pairs for _ in range(span.first, span.last)],
        token_scores=[scores for _, part in pairs for scores in part.token_scores],
    )


def _fit_numbers(numbers: Sequence[float], count: int) -> list[float]:
    """Return `count` numbers: surplus ones are added to the last, missing ones are 0."""
    return ([*numbers[: count - 1], sum(numbers[count - 1 :])] + [0] * (count - len(numbers)))[:count]


TermStatus = Literal["met", "other_form", "second_search", "refused", "lost", "forbidden", "protected", "consistent"]
"""met: as the glossary has it; other_form: in another form; second_search: met by it; refused: it would cost too much;
lost: no search met it; forbidden: it has no target, and a forbidden translation stands there; protected: it stands in
text that stays as it is; consistent: no term of a glossary, but translated as elsewhere in the document."""


@dataclass(frozen=True)
class TermUse:
    """A term of a glossary in a sentence, and what became of it."""

    span: Span
    """its characters in the source sentence"""
    term: str
    """source text of the entry"""
    wanted: tuple[str, ...]
    """targets that the glossary allows"""
    found: str
    """what stands for it in the translation, or nothing"""
    status: TermStatus
    loss: float = 0.0
    """log-probability (nats) that the terms of the sentence cost, or that this one would"""
    replaced: str = ""
    """consistent: the words that stood there"""
    dropped: str = ""
    """source words that the sentence does not translate any more with its terms, or would not with this one"""
    reason: str = ""
    """why a change was refused"""
    forbidden: tuple[str, ...] = ()
    """targets that the glossary forbids"""
    case: bool = False
    """whether capitals count"""


@dataclass(frozen=True)
class EngineUse:
    """What the translation of a sentence by a server took."""

    name: str
    """of its profile"""
    requests: int = 0
    input_tokens: int = 0
    """as the server counts them"""
    output_tokens: int = 0
    cost: float = 0.0
    """by the prices of the profile"""
    currency: str = ""

    def __add__(self, other: EngineUse) -> EngineUse:
        """Return what two took together."""
        return EngineUse(
            self.name or other.name,
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.currency or other.currency,
        )

    def __sub__(self, other: EngineUse) -> EngineUse:
        """Return what came after another one."""
        less = -other.requests, -other.input_tokens, -other.output_tokens, -other.cost
        return self + EngineUse(other.name, *less)

    def __str__(self) -> str:
        """Return it for people."""
        tokens = f", {self.input_tokens:,} tokens read and {self.output_tokens:,} written"
        cost = f", about {self.cost:,.4f} {self.currency}" if self.currency else ""
        requests = f"{self.requests:,} request{'s' * (self.requests != 1)}"
        return f"{self.name}: {requests}{tokens if self.input_tokens else ''}{cost}"


def sum_uses(uses: Iterable[EngineUse | None]) -> EngineUse | None:
    """Return what translations took together, None if no server made any."""
    engine_uses = [use for use in uses if use is not None]
    return reduce(add, engine_uses) if engine_uses else None


@dataclass(frozen=True)
class TranslatedSentence:
    """Source sentence and its translation."""

    source: str
    target: str
    score: float
    """log-probability (nats) of the target sentence"""
    source_span: tuple[int, int]
    """first character and the one after the last, in the source text"""
    target_span: tuple[int, int]
    """character range in the target text"""
    rank_score: float = 0.0
    """length-normalised log-probability of the part (instance, window or sentence) that was searched; alternatives are
    in the order of these scores, while `score` is of the sentence alone"""
    tokens: int = 0
    """number of target tokens in `score`: words, the token that ends the sentence (unless the length limit did) and, in
    the plain document system, the token after it"""
    alignment: tuple[WordLink, ...] | None = None
    """one link for each target word in order, to its best source word (`Translator.align`); None: not aligned"""
    token_ids: Sequence[int] = field(default=(), hash=False)
    """ids of the target's tokens, without boundary tokens"""
    token_scores: Sequence[float] = field(default=(), hash=False)
    """log-probability (nats) of each of these tokens; a search has none, only `Translator.score`"""
    pieces: tuple[tuple[Span, Span], ...] = ()
    """of a sentence that was translated in pieces: the characters of each in `source` and `target`"""
    terms: tuple[TermUse, ...] = ()
    """terms of the glossary in it, in order"""
    memory: MatchKind = ""
    """what a memory has for it; "exact" and "context" are reused, and have no score"""
    engine: EngineUse | None = None
    """what a server took for it"""

    @property
    def has_score(self) -> bool:
        """Whether `score` says anything: most servers give none."""
        return self.engine is None or self.tokens > 0

    @property
    def has_tokens(self) -> bool:
        """Whether `token_ids` spell the target: those of a server and of pieces are not known."""
        return not self.pieces and (len(self.token_ids) > 0 or not self.target)

    def __repr__(self) -> str:
        return f"<TranslatedSentence {shorten(self.source)} -> {shorten(self.target)}, {self.score:.3f}>"

    def __str__(self) -> str:
        return self.target

    def to_json(self) -> dict[str, Any]:
        """Return the fields of one JSONL line; `alignment`, the mutual links, only if the sentence is aligned."""
        links = self.alignment
        return {
            "source": self.source,
            "target": self.target,
            **({"score": self.score} if self.has_score else {}),
            "source_span": list(self.source_span),
            "target_span": list(self.target_span),
            **({} if links is None else {"alignment": [[*link.source, *link.target] for link in links if link.mutual]}),
            **({"terms": list(map(asdict, self.terms))} if self.terms else {}),
            **({"origin": "memory", "match": QUALITY[self.memory]} if self.memory in QUALITY else {}),
            **({"origin": "engine", "engine": asdict(self.engine)} if self.engine else {}),
        }


def link_terms(sentence: TranslatedSentence, links: Sequence[WordLink]) -> tuple[WordLink, ...]:
    """Return the links of a sentence, in which all words that stand for a term lead to the term.

    A term that stands there twice is let alone.
    """
    for use in sentence.terms:
        if not use.found or sentence.target.count(use.found) != 1:
            continue
        start, (first, last) = sentence.target.index(use.found), use.span
        inside = [link for link in links if start <= link.target[0] < start + len(use.found)]
        linked = [link.source for link in inside]
        words = [(first + one, first + other) for one, other in find_words(sentence.source[first:last])]
        free = [word for word in words if word not in linked] or words
        wrong = [link for link in inside if not first <= link.source[0] < last]
        links = [replace(link, source=free[0]) if link in wrong else link for link in links]
    return tuple(links)


@dataclass(frozen=True)
class Translation:
    """Translated document: the gaps of the source around one target sentence per source sentence.

    `str` returns its text, `len` and iteration its sentences.
    """

    document: Document
    sentences: tuple[TranslatedSentence, ...]
    score: float
    """length-normalised log-probability of the whole document, as in the search"""
    miscounted: tuple[tuple[int, int], ...] = ()
    """ranges of source sentences (first, after last) for which the model gave another number of sentences (plain
    document system only): surplus sentences were joined to the last of the range, missing ones are empty"""
    at_limit: tuple[int, ...] = ()
    """sentences (from 0) that the length limit of the search ended, so words may be missing"""
    overlong: tuple[int, ...] = ()
    """source sentences (from 0) that reach the limit of an instance; each was an instance of its own"""
    missing: tuple[int, ...] = ()
    """sentences (from 0) of which a run of words seems not to be translated"""
    alternatives: tuple[Translation, ...] = ()
    """further translations, best first, when n_best is above 1: the j-th joins the j-th best of every part, by
    `rank_score`; their scores are their own log-probabilities"""

    def __repr__(self) -> str:
        return summarize(self, self.document.id, self.document.sentences)

    def __str__(self) -> str:
        return self.text()

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.sentences)

    def __iter__(self) -> Iterator[TranslatedSentence]:
        """Iterate over the sentences."""
        return iter(self.sentences)

    @property
    def has_finite_scores(self) -> bool:
        """True if all scores of sentences are finite numbers; those of a damaged model are not."""
        return all(math.isfinite(sentence.score) for sentence in self.sentences)

    def text(self) -> str:
        """Return the translated text in the layout of the source."""
        return self.document.text()

    def with_links(self, links: Mapping[int, tuple[WordLink, ...]]) -> Translation:
        """Return the translation with the links of some sentences, by their numbers from 0."""
        aligned = list(self.sentences)
        for number, each in links.items():
            aligned[number] = replace(aligned[number], alignment=link_terms(aligned[number], each))
        return replace(self, sentences=tuple(aligned))

    def alignments(self) -> list[list[WordLink]]:
        """Return the links of the words of each sentence. Raises DocmtError where a sentence is not aligned."""
        links = [sentence.alignment for sentence in self.sentences]
        if None in links:
            raise DocmtError(
                f"sentence {links.index(None) + 1} is not aligned. Call Translator.align with this translation first."
            )
        return [list(each) for each in links if each is not None]

    def warnings(self) -> list[list[str]]:
        """Return the warnings of each sentence: the names in docs/translating.md, or none."""
        warnings: list[list[str]] = [[] for _ in self.sentences]
        joined = [number for first, last in self.miscounted for number in range(first, last)]
        for name, numbers in (
            ("sentence_count", joined),
            ("length_limit", self.at_limit),
            ("long_source", self.overlong),
            ("missing_text", self.missing),
        ):
            for number in numbers:
                warnings[number].append(name)
        return warnings


@dataclass(frozen=True)
class PartialTranslation:
    """Consecutive sentences of a document, translated before the rest of it.

    The texts of all parts of a document, joined, are the text of the document.
    """

    document: int
    """number of its document, from 0"""
    first: int
    """number of its first sentence in the document, from 0"""
    source: Document
    """its sentences and the gaps before them; the last part of a document also has the gap at its end"""
    resume_point: ResumePoint
    """progress of the document with this part"""
    translation: Translation | None
    """sentences and character spans are counted from the beginning of the part"""
    error: DocmtError | None = None
    """reason why there is no translation"""

    def text(self) -> str:
        """Return the translated text; sentences without a translation are empty."""
        if self.translation is not None:
            return self.translation.text()
        return "".join(self.source.gaps)


def log_warnings(translations: Iterable[Translation]) -> None:
    """Log how many warnings translations have, by their names in `Translation.warnings`."""
    counts = Counter(name for translation in translations for warnings in translation.warnings() for name in warnings)
    if counts:
        summary = ", ".join(f"{count} x {name}" for name, count in counts.items())
        _log.warning("%s. Translate a Document to see where (Translation.warnings).", summary)


def check_documents(documents: Iterable[DocumentKind]) -> Iterable[DocumentKind]:
    """Return the documents. Raises DocmtError for a single one, and for a value that is not a list."""
    if isinstance(documents, str | Document):
        raise DocmtError("one document is not a list of documents. Put it into a list, or call translate.")
    if not isinstance(documents, Iterable):
        raise DocmtError(f"{type(documents).__name__} is not a list of documents. Give texts or Documents.")
    return documents


def check_pairs(pairs: Iterable[Any]) -> None:
    """Raise DocmtError for a value that is not a pair."""
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DocmtError(f"{quote(pair)} is not a pair. Give (source, target) for each document.")


def check_lengths(pairs: Sequence[tuple[Document, Document]]) -> None:
    """Raise DocmtError for a source and a target of unequal numbers of sentences."""
    for source, target in pairs:
        if len(source.sentences) != len(target.sentences):
            name = f"document {source.id}" if source.id else "the document"
            raise DocmtError(
                f"{name} has {len(source.sentences)} source but {len(target.sentences)} target sentences. Give one "
                "target sentence for each."
            )
