"""All scores of a system that need its source, its glossary, or an alignment of its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from docmt.evaluation.metric_config import CONSISTENCY_METRICS, TERM_METRICS, MetricConfig
from docmt.evaluation.metrics import Evaluation, MetricScore, evaluate_documents
from docmt.evaluation.output_alignment import Documents, Ranges, align_output
from docmt.evaluation.term_scores import TermTask, score_consistency
from docmt.terms.matching import TermMatcher

Sides = tuple[Documents, Documents, Documents]
"""Source, translation and reference in pairs of sentences, or of the units of an alignment."""


def score_system(
    sources: Documents,
    hypotheses: Documents,
    references: Sequence[Documents],
    config: MetricConfig,
    *,
    matcher: TermMatcher | None = None,
    languages: tuple[str, str] = ("", ""),
    instances: Ranges | None = None,
    miscounted: int = 0,
) -> tuple[Evaluation, Sides | None]:
    """Score translated documents; see `evaluate_documents`. Return the scores and what was paired, if anything was.

    sources: with the sentences of the references; empty if neither consistency nor terms are scored and nothing is
    aligned. With the units sentence and paragraph, hypotheses with other sentences are aligned. matcher: of terms that
    are scored. languages: codes for consistency; empty ones are detected.
    """
    first, *more = references
    is_paired = not miscounted and list(map(len, hypotheses)) == list(map(len, first))
    is_aligned = config.unit in ("sentence", "paragraph") and not is_paired
    aligned = align_output(sources, hypotheses, first) if is_aligned else None
    scores = evaluate_documents(
        hypotheses, first, config, instances, more_references=more, miscounted=miscounted, aligned=aligned
    )
    extra: dict[str, MetricScore | None] = dict.fromkeys(TERM_METRICS) if matcher else {}
    sides: Sides | None = None
    if sources and not scores.undefined:
        translation, reference, source = aligned.pair(first, sources) if aligned else (hypotheses, first, sources)
        sides = source, translation, reference
        if not scores.metrics.keys().isdisjoint(CONSISTENCY_METRICS):
            rates = score_consistency(source, translation, reference, languages)
            extra |= {key: rate for key, rate in rates.items() if key in scores.metrics}
        if matcher:
            extra |= TermTask.from_sources(matcher, source).score(translation, reference)
    return replace(scores, metrics={**scores.metrics, **extra}), sides
