"""True, empty and shuffled context: does it matter to a model which sentences stand before the one it translates?

Each sentence is read as the last one of a short document: after the n sentences before it (true), after n sentences of
another document (shuffled), after its own with none of them seen (empty), or as a document of its own (alone). A model
that gains from true context and not from shuffled one uses what it says; one that gains from both only likes to have
some. Empty and alone differ where positions run on through a document: a sentence far in it may be hard for a model
that has seen few, with context or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmt.core.errors import DocmtError
from docmt.documents import Document, ParallelDocument
from docmt.evaluation.config import MetricConfig
from docmt.evaluation.contrastive import aligned
from docmt.evaluation.estimates import Estimate, estimate, too_few
from docmt.evaluation.metrics import evaluate_documents
from docmt.evaluation.scores import MetricScore
from docmt.evaluation.significance import SignificanceConfig
from docmt.evaluation.usage import ContextScorer, Gain, Scored, UsageConfig, check_context


@dataclass(frozen=True)
class Window:
    """A sentence as the last one after others, which are its own document's or another one's."""

    document: int
    """number of its document, from 0"""
    sentence: int
    """its place in the document, from 1"""
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
            own + 1,
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
    translations: dict[str, dict[str, Estimate]] | None
    """s-BLEU and chrF of translations by condition, and the same gains of them; None: not measured"""
    undefined: str | None = None
    """why translations have no scores"""

    def format(self) -> str:
        """Tables for people."""
        lines = [f"reference after up to {self.before} sentences before it (nats)"]
        rows = [["", "per sentence", "per token", "sentences"]]
        rows += [[name, *gain.cells()] for name, gain in self.likelihood.items()]
        rows += [[name, *gain.cells()] for name, gain in self.gains.items()]
        lines.append("\n".join(aligned(rows)))
        if self.translations is not None:
            lines += ["", f"translations after up to {self.before} sentences before (of the source)"]
            names = list(next(iter(self.translations.values())))
            rows = [["", *names]]
            for name, scores in self.translations.items():
                rows.append([name, *(own.format(2, signed=name in self.gains) for own in scores.values())])
            lines.append("\n".join(aligned(rows)))
        lines += too_few(self.likelihood["true"].documents)
        if self.undefined is not None:
            lines.append(f"translations have no scores: {self.undefined}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        translations = None
        if self.translations is not None:
            translations = {
                name: {metric: own.to_json() for metric, own in scores.items()}
                for name, scores in self.translations.items()
            }
        return {
            "before": self.before,
            "likelihood": {name: own.to_json() for name, own in self.likelihood.items()},
            "gains": {name: own.to_json() for name, own in self.gains.items()},
            "translations": translations,
            "undefined": self.undefined,
        }


def other_context(
    scorer: ContextScorer,
    documents: Sequence[ParallelDocument],
    config: UsageConfig | None = None,
    metrics: MetricConfig | None = None,
    significance: SignificanceConfig | None = None,
    on_translation: Callable[[Window, str, Scored], object] = lambda window, condition, translation: None,
) -> OtherContext:
    """How probable references are after true, empty, shuffled and no context, and how good translations (on demand).

    Scores 3 (before + 1) + 1 sentences for each. metrics: how translations are scored; significance:
    samples and seed of the intervals, and the seed of the choice. on_translation is told of every translation that is
    made: of which window, and whether it is true, shuffled or alone. Raises DocmtError as `windows` does.
    """
    config, significance = config or UsageConfig(), significance or SignificanceConfig()
    found = windows(documents, config.before, significance.seed)
    own = [(Document.from_sentences(each.source), Document.from_sentences(each.target)) for each in found]
    other = [(Document.from_sentences(each.other_source), Document.from_sentences(each.other_target)) for each in found]
    alone = [(Document.from_sentences(each.source[-1:]), Document.from_sentences(each.target[-1:])) for each in found]
    asked = {"true": (own, True), "empty": (own, False), "shuffled": (other, True), "alone": (alone, True)}
    last = {
        name: [each.sentences[-1] for each in scorer.score_all(pairs, limited=False, context=context)]
        for name, (pairs, context) in asked.items()
    }
    scores = {name: np.array([sentence.score for sentence in own]) for name, own in last.items()}
    tokens = np.array([sentence.tokens for sentence in last["true"]], dtype=np.float64)
    bounds = _bounds(found)

    def mean(totals: NDArray[np.float64]) -> Gain:
        rows = np.stack([totals, np.ones_like(totals), tokens], axis=1)
        return Gain.of(np.stack([rows[first:last].sum(axis=0) for first, last in bounds]), significance)

    translations, undefined = None, None
    if config.translate:
        translations, undefined = _translations(scorer, found, metrics, significance, on_translation)
    return OtherContext(
        config.before,
        {name: mean(own) for name, own in scores.items()},
        {f"true - {name}": mean(scores["true"] - own) for name, own in scores.items() if name != "true"},
        translations,
        undefined,
    )


def _translations(
    scorer: ContextScorer,
    found: Sequence[Window],
    metrics: MetricConfig | None,
    significance: SignificanceConfig,
    on_translation: Callable[[Window, str, Scored], object],
) -> tuple[dict[str, dict[str, Estimate]] | None, str | None]:
    """s-BLEU and chrF of the last sentences, translated after each context, and differences; or why there are none."""
    sources = {
        "true": [each.source for each in found],
        "shuffled": [each.other_source for each in found],
        "alone": [each.source[-1:] for each in found],
    }
    references = _by_document(found, [each.target[-1] for each in found])
    evaluations = {}
    for name, texts in sources.items():
        translated = scorer.translate_all([Document.from_sentences(text) for text in texts])
        for window, each in zip(found, translated, strict=True):
            on_translation(window, name, each)
        if any(each.miscounted for each in translated):
            return (
                None,
                "the model gave another number of sentences than the source has, so which is the last is unknown",
            )
        evaluations[name] = evaluate_documents(
            _by_document(found, [_last(each) for each in translated]), references, metrics
        )
    scores: dict[str, dict[str, Estimate]] = {}
    for metric in ("s_bleu", "chrf"):
        own: dict[str, MetricScore] = {name: getattr(evaluation, metric) for name, evaluation in evaluations.items()}
        rows = {name: each.by_document(len(references)) for name, each in own.items()}
        formula, title = own["true"].from_many_sums, own["true"].name
        for name in rows:
            scores.setdefault(name, {})[title] = estimate(rows[name], formula, significance)
        for name in ("shuffled", "alone"):
            gain = estimate(rows["true"], formula, significance, minus=rows[name])
            scores.setdefault(f"true - {name}", {})[title] = gain
    return scores, None


def _bounds(found: Sequence[Window]) -> list[tuple[int, int]]:
    """First and after last of the windows of each document, which stand in its order."""
    sizes = [len(list(own)) for _, own in groupby(found, key=lambda window: window.document)]
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _by_document(found: Sequence[Window], sentences: Sequence[str]) -> list[list[str]]:
    """The last sentences of the windows by document."""
    return [list(sentences[first:last]) for first, last in _bounds(found)]


def _last(translated: Scored) -> str:
    return translated.sentences[-1].target
