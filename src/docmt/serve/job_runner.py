"""The translation of a job: what its journal lacks is asked of the engine, and each part is written to the journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from docmt.checking import CheckConfig, check_documents
from docmt.core.errors import DocmtError
from docmt.decoding.translation_results import PartialTranslation, WordLink, non_finite_error
from docmt.documents import ParallelDocument
from docmt.formats.language_codes import primary_language
from docmt.serve.job_journal import JobJournal, Links, TranslationPlan
from docmt.serve.job_store import JobFacts

if TYPE_CHECKING:
    from docmt.serve.engine import Engine

CHECKED_KINDS = ("empty", "untranslated", "loop", "number", "url", "placeholder", "bracket")
"""Checks of single sentences."""
_DIGITS = 4


async def translate_job(engine: Engine, facts: JobFacts, journal: JobJournal, on_change: Callable[[], None]) -> None:
    """Translate all sentences that are to be translated.

    on_change: called after each part. Raises DocmtError if the engine cannot translate at all, or for a full disk.
    """
    while (plan := journal.plan()) is not None:
        if not await _translate_plan(engine, facts, journal, plan, on_change):
            raise DocmtError("the engine returned no translation")


async def _translate_plan(
    engine: Engine, facts: JobFacts, journal: JobJournal, plan: TranslationPlan, on_change: Callable[[], None]
) -> bool:
    """Translate one stretch. Return whether the journal has changed, perhaps by an edit."""
    edits, events, shift = journal.edits, len(journal.events), plan.shift
    work = engine.submit(
        facts.model,
        plan.source,
        lane="jobs",
        align=lambda position: position + shift in journal.contents.aligned,
        resume_point=plan.resume_point,
        targets=plan.targets,
    )
    try:
        async for part in work.parts():
            if journal.edits != edits:  # the part was translated after other sentences
                break
            line, is_whole = describe_part(part, plan, journal, facts)
            journal.append(line)
            on_change()
            if not is_whole:
                break
    finally:
        work.cancel()
    return len(journal.events) > events


def describe_part(
    part: PartialTranslation, plan: TranslationPlan, journal: JobJournal, facts: JobFacts
) -> tuple[dict[str, Any], bool]:
    """Return the line of the journal for a part, and whether it has all sentences of the part.

    A part ends before a sentence that the user wrote.
    """
    translation, error = part.translation, part.error
    if translation is not None and not all(math.isfinite(each.score) for each in translation):
        translation, error = None, non_finite_error()
    warnings = translation.warnings() if translation else []
    rows: list[dict[str, Any]] = []
    context: list[str] = []
    is_whole = True
    for index, number in enumerate(range(part.first + plan.shift, part.first + plan.shift + len(part.source))):
        sentence = translation.sentences[index] if translation else None
        if number < journal.starts[plan.document]:
            context.append(sentence.target if sentence else "")
            continue
        if not journal.sentences[number].stale:
            is_whole = False
            break
        if sentence is None:
            rows.append({"number": number, "error": str(error)})
            continue
        # Further digits depend on the batch.
        score = round(float(sentence.score), _DIGITS)
        row = {"number": number, "target": sentence.target, "score": score, "tokens": sentence.tokens}
        row["warnings"] = warnings[index]
        if sentence.alignment is not None and number in journal.contents.aligned:
            row["links"] = list_links(sentence.alignment)
        rows.append(row)
    findings = check_pairs([(journal.sources[row["number"]], row["target"]) for row in rows if "target" in row], facts)
    for row, messages in zip([row for row in rows if "target" in row], findings, strict=True):
        row["findings"] = messages
    line: dict[str, Any] = {"document": plan.document, "sentences": rows}
    if context:
        line["context"] = context
    if is_whole:
        history = [[list(map(int, words)) for words in each] for each in part.resume_point.history]
        line["resume"] = [part.resume_point.sentences, history]
    return line, is_whole


def list_links(alignment: Sequence[WordLink]) -> Links:
    """Return word links as values for JSON."""
    return [[*map(int, (*link.source, *link.target, link.mutual))] for link in alignment]


def check_pairs(pairs: Sequence[tuple[str, str]], facts: JobFacts) -> list[list[str]]:
    """Return the findings of `docmt check` in each pair of sentences, as short texts."""
    findings: list[list[str]] = [[] for _ in pairs]
    if pairs:
        codes = primary_language(facts.source_language), primary_language(facts.target_language)
        sources, targets = zip(*pairs, strict=True)
        document = ParallelDocument("", sources, targets)
        for finding in check_documents([document], CheckConfig(*codes), kinds=CHECKED_KINDS).findings:
            findings[finding.sentences[0].sentence - 1].append(f"{finding.kind}: {finding.message}")
    return findings
