"""How much a model uses its context.

Three measures, with one model for all conditions. All log-probabilities are in nats.

- CXMI (`context_gain`): conditional cross-mutual information (Fernandes et al. 2021, "Measuring and Increasing Context
  Usage in Context-Aware Machine Translation"), log p(reference | source, context) - log p(reference | source). For the
  second term the context is hidden: the same passes are made, and no sentence sees another one.
- Other contexts (`other_context`): each sentence is read as the last one of a short document: after the n sentences
  before it (true), after n sentences of another document (shuffled), after its own with none of them seen (empty), or
  as a document of its own (alone). A model that gains from true context and not from shuffled one uses what it says.
  Empty and alone differ where positions run on through a document.
- Test suites (`suite_context`): the same conditions for items of a suite. What a model has right without the context
  that decides, it has right by habit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.core.plain_text import aligned
from docmt.core.settings import check_fields, ranged
from docmt.documents import Document, ParallelDocument
from docmt.documents.document import shorten
from docmt.evaluation.comparison import BUCKETS, buckets
from docmt.evaluation.contrastive import (
    ContrastiveResult,
    SuiteConfig,
    SuiteRow,
    evaluate_items,
    evaluate_translations,
    rows_of,
)
from docmt.evaluation.significance import Estimate, SignificanceConfig, estimate, ratio, too_few
from docmt.evaluation.suites import Item

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

CONDITIONS = ("true", "empty", "shuffled")
"""Contexts that are compared: the sentence's own, none, and another document's."""


@dataclass(frozen=True)
class UsageConfig:
    """How the use of context is measured."""

    before: int = ranged(3, 0, 1000)
    """sentences before each that are replaced by those of another document, to see whether it matters which they are
    (0: this is not measured)"""
    examples: int = ranged(10, 0, 1_000_000)
    """sentences with the largest gain from their context that are shown"""

    def __post_init__(self) -> None:
        check_fields(self, "usage.")


@dataclass(frozen=True)
class SentenceGain:
    """A reference sentence, and how probable it is with and without the other sentences of its document."""

    document: str
    """its id"""
    number: int
    """its place in the document, from 1"""
    source: str
    target: str
    tokens: int
    """whose log-probabilities are summed: its words, as the model has them, and the marks that it predicts"""
    with_context: float
    """log-probability (nats)"""
    without: float

    @property
    def gain(self) -> float:
        """What the context adds to the log-probability (nats)."""
        return self.with_context - self.without


def sentence_gains(translator: Translator, documents: Sequence[ParallelDocument]) -> list[list[SentenceGain]]:
    """Of each document all sentences that are not empty on both sides, with what their context adds.

    Limits of length of a search do not count: the end of a sentence costs what it costs. Raises DocmtError where a
    sentence cannot fit, and for a model whose scores are not numbers.
    """
    scored = scored_twice(translator, documents)
    return [gains_of(document, *both) for document, both in zip(documents, scored, strict=True)]


def scored_twice(
    translator: Translator, documents: Sequence[ParallelDocument]
) -> list[tuple[Translation, Translation]]:
    """The references of each document as they are scored with and without context, as `sentence_gains` has it."""
    pairs = [
        (Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in documents
    ]
    seen, hidden = (translator.score_all(pairs, free_at_limit=False, context=context) for context in (True, False))
    return list(zip(seen, hidden, strict=True))


def gains_of(document: ParallelDocument, seen: Translation, hidden: Translation) -> list[SentenceGain]:
    """What context adds to the sentences of a document that was scored twice, but for those empty on both sides."""
    scores = zip(document, seen.sentences, hidden.sentences, strict=True)
    return [
        SentenceGain(document.id, number, source, target, ours.tokens, ours.score, theirs.score)
        for number, ((source, target), ours, theirs) in enumerate(scores, 1)
        if source or target
    ]


@dataclass(frozen=True)
class Gain:
    """A difference of log-probabilities (nats), on average over sentences and over tokens."""

    per_sentence: Estimate
    per_token: Estimate
    sentences: int
    tokens: int
    documents: int
    """that have any of the sentences"""

    @classmethod
    def of(cls, rows: NDArray[np.float64], config: SignificanceConfig) -> Gain:
        """rows [D, 3]: of each document that has any sentences the summed difference, the sentences and the tokens."""
        per_sentence, per_token = (estimate(rows[:, [0, column]], ratio, config) for column in (1, 2))
        return cls(per_sentence, per_token, int(rows[:, 1].sum()), int(rows[:, 2].sum()), len(rows))


def _table(gains: Mapping[str, Gain]) -> Iterator[str]:
    """Return the lines of a table for people."""
    rows = [["", "per sentence", "per token", "sentences"]]
    for name, gain in gains.items():
        means = (mean.format(4, signed=True) for mean in (gain.per_sentence, gain.per_token))
        rows.append([name, *means, f"{gain.sentences:,}"])
    return aligned(rows)


@dataclass(frozen=True)
class ContextGain:
    """What the model's own context adds to the log-probability of the references (CXMI)."""

    all: Gain
    by_position: dict[str, Gain]
    """by the place of the sentences in their documents"""
    examples: list[SentenceGain]
    """those with the largest gains, largest first"""
    documents: int

    def format(self) -> str:
        """Tables for people."""
        places = {f"sentence {name}": gain for name, gain in self.by_position.items()}
        intervals = "" if self.all.per_sentence.low is None else f"; 95 % intervals over {self.documents} documents"
        lines = [
            f"CXMI: what context adds to the log-probability of the reference (nats{intervals})",
            *_table({"all": self.all, **places}),
            *too_few(self.documents, {name: gain.documents for name, gain in places.items()}),
        ]
        if self.examples:
            lines += ["", "largest gains"]
        for own in self.examples:
            place = f"document {own.document or '?'}, sentence {own.number}"
            lines.append(f"{own.gain:+8.3f}  {place}: {shorten(own.source)} -> {shorten(own.target)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            **asdict(self.all),
            "documents": self.documents,
            "by_position": {name: asdict(gain) for name, gain in self.by_position.items()},
            "examples": [{**asdict(own), "gain": own.gain} for own in self.examples],
        }


def context_gain(
    found: Iterable[Sequence[SentenceGain]],
    config: UsageConfig | None = None,
    significance: SignificanceConfig | None = None,
) -> ContextGain:
    """CXMI of documents whose sentences were scored (`sentence_gains`).

    significance: samples and seed of the intervals. Raises DocmtError where no document has two sentences, so that
    none has a context.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    documents = [own for own in found if own]
    check_context(max(map(len, documents), default=0))
    by_bucket: dict[int, list[list[SentenceGain]]] = {}
    for own in documents:
        for number, chosen in groupby(own, lambda sentence: int(buckets(sentence.number))):
            by_bucket.setdefault(number, []).append(list(chosen))
    ranked = sorted((sentence for own in documents for sentence in own), key=lambda sentence: -sentence.gain)
    return ContextGain(
        Gain.of(_rows(documents), significance),
        {BUCKETS[number]: Gain.of(_rows(own), significance) for number, own in sorted(by_bucket.items())},
        [sentence for sentence in ranked[: config.examples] if sentence.gain > 0],
        len(documents),
    )


def check_context(most_sentences: int) -> None:
    """Raises DocmtError for a corpus whose longest document has fewer than two sentences."""
    if most_sentences < 2:
        raise DocmtError(
            "no document has two sentences, so there is no context to measure: give whole documents, with borders only "
            "between them"
        )


def _rows(documents: Sequence[Sequence[SentenceGain]]) -> NDArray[np.float64]:
    """[D, 3] the gain, sentences and tokens of each document."""
    return np.array(
        [[sum(s.gain for s in own), len(own), sum(s.tokens for s in own)] for own in documents], dtype=np.float64
    )


@dataclass(frozen=True)
class Window:
    """A sentence as the last one after others, which are its own document's or another one's."""

    document: int
    """number of its document, from 0"""
    source: tuple[str, ...]
    target: tuple[str, ...]
    other_source: tuple[str, ...]
    """the same number of sentences, all but the last from another document"""
    other_target: tuple[str, ...]


def windows(documents: Sequence[ParallelDocument], before: int, seed: int) -> list[Window]:
    """Every sentence that has another one before it, with at most so many before it, true and shuffled.

    The other document of each is the next one in a random order that is long enough; of it those sentences are taken
    that end at the same place, or where it ends. A sentence for which no other document is long enough has fewer before
    it. Raises DocmtError where there are not two documents, or none has two sentences.
    """
    lengths = [len(document) for document in documents]
    check_context(max(lengths, default=0))
    if len(documents) < 2:
        raise DocmtError("there is one document only, so its context cannot be another one's: give several")
    second, longest = sorted(lengths)[-2:]
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(documents)), kind="stable").tolist()
    found: list[Window] = []
    for place, number in sorted(enumerate(order), key=lambda each: each[1]):
        others = (documents[order[(place + step) % len(order)]] for step in range(1, len(order)))
        most = min(before, max(second, 1) if lengths[number] == longest else longest)
        found += _windows_of(documents[number], number, others, most)
    return found


def _windows_of(
    document: ParallelDocument, number: int, others: Iterator[ParallelDocument], most: int
) -> Iterator[Window]:
    """Those of one document, with at most so many sentences before the last, which one of the others has as well."""
    other = next(others)
    for own in range(1, len(document)):
        count = min(most, own)
        while len(other) < count:  # which never shrinks, so that those that are passed over were too short for good
            other = next(others)
        end = min(own, len(other))
        ours, theirs = slice(own - count, own), slice(end - count, end)
        yield Window(
            number,
            source=(*document.source[ours], document.source[own]),
            target=(*document.target[ours], document.target[own]),
            other_source=(*other.source[theirs], document.source[own]),
            other_target=(*other.target[theirs], document.target[own]),
        )


@dataclass(frozen=True)
class OtherContext:
    """What sentences gain from the sentences before them and from those of another document."""

    before: int
    """at most how many"""
    likelihood: dict[str, Gain]
    """log-probability (nats) of the references, by condition"""
    gains: dict[str, Gain]
    """of true context over each other one"""

    def format(self) -> str:
        """Tables for people."""
        title = f"reference after up to {self.before} sentences before it (nats)"
        notes = too_few(self.likelihood["true"].documents)
        return "\n".join([title, *_table(self.likelihood | self.gains), *notes])

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def other_context(
    translator: Translator,
    documents: Sequence[ParallelDocument],
    config: UsageConfig | None = None,
    significance: SignificanceConfig | None = None,
) -> OtherContext:
    """Measure how probable references are after true, empty, shuffled and no context.

    Scores 3 (before + 1) + 1 sentences for each. significance: samples and seed of the intervals, and the seed of the
    choice. Raises DocmtError as `windows` does.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    found = windows(documents, config.before, significance.seed)
    true = [(Document.from_sentences(each.source), Document.from_sentences(each.target)) for each in found]
    other = [(Document.from_sentences(each.other_source), Document.from_sentences(each.other_target)) for each in found]
    alone = [(Document.from_sentences(each.source[-1:]), Document.from_sentences(each.target[-1:])) for each in found]
    conditions = {"true": (true, True), "empty": (true, False), "shuffled": (other, True), "alone": (alone, True)}
    last = {
        name: [each.sentences[-1] for each in translator.score_all(pairs, free_at_limit=False, context=context)]
        for name, (pairs, context) in conditions.items()
    }
    scores = {name: np.array([sentence.score for sentence in sentences]) for name, sentences in last.items()}
    tokens = np.array([sentence.tokens for sentence in last["true"]], dtype=np.float64)
    starts = np.flatnonzero(np.diff([window.document for window in found], prepend=-1))  # of each document

    def mean(totals: NDArray[np.float64]) -> Gain:
        rows = np.stack([totals, np.ones_like(totals), tokens], axis=1)
        return Gain.of(np.add.reduceat(rows, starts, axis=0), significance)

    return OtherContext(
        config.before,
        {name: mean(own) for name, own in scores.items()},
        {f"true - {name}": mean(scores["true"] - own) for name, own in scores.items() if name != "true"},
    )


OnItem = Callable[[str, int, Any], object]
"""Gets, for every item and condition, the condition, the number of the item, and the translation or a DocmtError."""


@dataclass(frozen=True)
class SuiteContext:
    """The answers to the same items with true, empty and shuffled context."""

    items: Sequence[Item]
    results: dict[str, ContrastiveResult]
    """by condition"""
    left_out: int
    """items to which no other can lend its context: their candidates have contexts of their own, or no other item has
    as many sentences before and after the one asked for"""

    def rows(self, name: str) -> list[SuiteRow]:
        """Of a table whose columns are the conditions; name: of the test set."""
        return rows_of(name, self.items, [self.results[condition] for condition in CONDITIONS])

    def to_json(self) -> dict[str, Any]:
        """The results, and how many items were left out."""
        return {"left_out": self.left_out, **{name: result.to_json() for name, result in self.results.items()}}


def suite_context(
    translator: Translator,
    items: Sequence[Item],
    candidates: SuiteConfig | None = None,
    significance: SignificanceConfig | None = None,
    on_item: OnItem | None = None,
) -> SuiteContext:
    """Ask a model the items with their context, with none, and with that of another item.

    candidates: how they compare; significance: its seed chooses the other items; on_item: as `evaluate_items` has it.
    Raises DocmtError where no item has a context, or none can have that of another one.
    """
    shuffled = with_other_context(items, (significance or SignificanceConfig()).seed)
    numbers = list(shuffled)
    kept = [items[number] for number in numbers]

    def answers(condition: str) -> ContrastiveResult:
        asked = list(shuffled.values()) if condition == "shuffled" else kept
        tell = None if on_item is None else lambda index, result: on_item(condition, numbers[index], result)
        if kept[0].candidates:
            return evaluate_items(translator, asked, candidates, tell, context=condition != "empty")
        if condition == "empty":
            asked = [replace(item, source=(item.source[item.sentence],), sentence=0) for item in kept]
        return evaluate_translations(translator, asked, tell)

    return SuiteContext(kept, {condition: answers(condition) for condition in CONDITIONS}, len(items) - len(kept))


def with_other_context(items: Sequence[Item], seed: int) -> dict[int, Item]:
    """Numbers of the items that can have the context of another one, and each of these with it.

    Raises DocmtError where no item has a context, or none can have that of another one.
    """
    if not any(item.has_context for item in items):
        raise DocmtError("no item has a context, so there is none to measure: give items with other sentences around")
    # All candidates have one context, so that another one leaves what they differ in.
    comparable = [
        number
        for number, item in enumerate(items)
        if len({_around(candidate, item.sentence) for candidate in item.candidates}) <= 1
    ]
    others = shuffled_items([items[number] for number in comparable], seed)
    found = {number: other for number, other in zip(comparable, others, strict=True) if other}
    if not found:
        raise DocmtError(
            "no two items have as many sentences before and after the one that is asked for, with other words in them "
            "and the same for all candidates, so none can have the context of another one: give a larger test set"
        )
    return found


def shuffled_items(items: Sequence[Item], seed: int) -> list[Item | None]:
    """Each item with the other sentences, on both sides, of another item of as many sentences before and after.

    The other one is the next in a random order whose context has another source; of its target that of its right
    candidate is taken. None where there is no such item.
    """
    order = np.argsort(np.random.default_rng(seed).bit_generator.random_raw(len(items)), kind="stable").tolist()
    alike: dict[tuple[int, int], list[int]] = {}
    for number in order:
        alike.setdefault((len(items[number].source), items[number].sentence), []).append(number)
    found: list[Item | None] = [None] * len(items)
    for numbers in alike.values():
        for place, number in enumerate(numbers):
            others = (items[i] for i in (*numbers[place + 1 :], *numbers[:place]))
            own = _around(items[number].source, items[number].sentence)
            other = next((each for each in others if _around(each.source, each.sentence) != own), None)
            found[number] = _with_context_of(items[number], other) if other else None
    return found


def _around(sentences: tuple[str, ...], own: int) -> tuple[str, ...]:
    return sentences[:own] + sentences[own + 1 :]


def _with_context_of(item: Item, other: Item) -> Item:
    """The item with its own sentence among those of the other one."""
    own = item.sentence

    def among(theirs: tuple[str, ...], ours: tuple[str, ...]) -> tuple[str, ...]:
        return (*theirs[:own], ours[own], *theirs[own + 1 :])

    candidates = tuple(among(other.candidates[other.correct], candidate) for candidate in item.candidates)
    return replace(item, source=among(other.source, item.source), candidates=candidates)
