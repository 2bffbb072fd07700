"""Whole documents from the parts in which they were translated or scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from docmt.decoding.config import SearchConfig
from docmt.decoding.hypothesis import Hypothesis
from docmt.decoding.rules import Rules


@dataclass(frozen=True)
class Part:
    """A hypothesis for the sentences first .. last - 1 of a document."""

    document: int
    first: int
    last: int
    hypothesis: Hypothesis


@dataclass(frozen=True)
class DocumentHypothesis:
    """A translation of a whole document: one (possibly empty) target sentence per source sentence."""

    sentences: list[list[int]]
    """word ids of each target sentence"""
    sentence_scores: list[float]
    """log-probability (nats) of each"""
    sentence_tokens: list[int]
    """of each how many tokens that is the sum over: its words and marks as far as they were chosen, not forced"""
    score: float
    """log-probability divided by (number of free tokens ** length_penalty)"""
    miscounted: list[tuple[int, int]] = field(default_factory=list)
    """ranges of sentences (first, after last) whose translation had another number of sentences (plain document system
    only): surplus sentences are joined to the range's last one, missing ones are empty"""
    at_limit: list[int] = field(default_factory=list)
    """sentences (from 0) that the length limit ended, so that words may be missing (of the plain document system the
    last sentence of an instance)"""
    rank_scores: list[float] = field(default_factory=list)
    """for each sentence the score by which the search ranked the part that it was found in, among the others of the
    same part: log-probability normalised by length"""

    def spread(self, places: Sequence[int], count: int) -> DocumentHypothesis:
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


def ranked(parts: dict[tuple[int, int], list[Part]], documents: int) -> list[list[list[Part]]]:
    """For each document and rank its parts in order; parts are given best first, by document and first sentence.

    Where a part has fewer translations than another one, its last stands in for the missing ranks.
    """
    own: list[list[list[Part]]] = [[] for _ in range(documents)]
    for (document, _), ranks in sorted(parts.items()):
        own[document].append(ranks)
    return [
        [[ranks[min(rank, len(ranks) - 1)] for ranks in document] for rank in range(max(map(len, document), default=1))]
        for document in own
    ]


def join(parts: Sequence[Part], config: SearchConfig) -> DocumentHypothesis:
    """One document from its parts, each with exactly as many target sentences as it has source sentences."""
    sentences: list[list[int]] = []
    scores: list[float] = []
    tokens: list[int] = []
    miscounted = []
    for part in parts:
        count, found = part.last - part.first, part.hypothesis
        own = list(found.sentences)
        if len(own) != count:
            miscounted.append((part.first, part.last))
            surplus = [word for sentence in own[count:] for word in sentence]
            own = own[:count] + [[]] * (count - len(own))
            own[-1] = own[-1] + surplus
        sentences += own
        scores += _joined(found.sentence_scores, count)
        tokens += map(int, _joined(found.sentence_tokens, count))
    free = sum(part.hypothesis.free_tokens for part in parts)
    return DocumentHypothesis(
        sentences,
        scores,
        tokens,
        config.normalized(sum(scores), free),
        miscounted,
        rank_scores=[part.hypothesis.score for part in parts for _ in range(part.first, part.last)],
    )


def _joined(numbers: Sequence[float], count: int) -> list[float]:
    """`count` numbers: surplus ones are added to the last of these, missing ones are 0."""
    return ([*numbers[: count - 1], sum(numbers[count - 1 :])] + [0] * (count - len(numbers)))[:count]


def ended_by_limit(parts: Sequence[Part], source: Sequence[int], rules: Rules, config: SearchConfig) -> list[int]:
    """The sentences of a translated document (source: words of each) that the length limit ended."""
    found = []
    for part in parts:
        limits = [config.sentence_limit(words) for words in source[part.first : part.last]]
        lengths = [len(sentence) for sentence in part.hypothesis.sentences]
        ended = rules.ended_by_limit(lengths, limits, part.hypothesis.free_tokens)
        found += [part.first + number for number in ended]
    return found
