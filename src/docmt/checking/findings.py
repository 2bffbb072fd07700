"""The kinds of findings, their settings, and the report with its HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, get_args

from docmt.core.html_page import escape_text, mark_spans, render_page
from docmt.core.settings import MANY, check_fields, ranged
from docmt.documents import ParallelDocument
from docmt.documents.numbers import Certainty

KINDS: Mapping[str, str] = {
    "sentence_count": "documents with a different number of source and target sentences",
    "empty": "sentences without a translation",
    "untranslated": "sentences left in the source language",
    "loop": "words or phrases repeated in a row",
    "duplicate": "different sentences with the same translation",
    "length": "translations that are far too short or too long for their source",
    "missing_text": "parts of sentences that seem not to be translated",
    "number": "numbers missing or added",
    "url": "web and mail addresses missing or added",
    "placeholder": "placeholders and tags missing or added",
    "bracket": "unbalanced brackets",
    "term": "terms translated inconsistently in a document",
    "repetition": "the same sentence translated inconsistently in a document",
}
"""Kinds of findings by the names that options and JSON use, in report order."""
CERTAINTIES = get_args(Certainty)


@dataclass(frozen=True)
class CheckConfig:
    """The thresholds of the checks. Shares are between 0 and 1."""

    source_language: str = ""
    """language code of the source, such as en (default: detected)"""
    target_language: str = ""
    """language code of the translation (default: detected)"""
    certainty: Certainty = "likely"
    """least certainty of findings to show; less certain ones are only counted"""
    length_factor: float = ranged(2.0, 1, 1000)
    """report translations this many times too long or too short, by the file's length ratio"""
    duplicate_words: int = ranged(6, 1, 1000)
    """shortest translation, in words, to compare with others in the document"""
    number_words: int = ranged(12, 0, 100)
    """largest number that may be spelled out: where only such numbers are missing, it is possible"""
    term_occurrences: int = ranged(3, 2, MANY)
    """fewest sentences of a document with a term, to check its consistency"""
    term_share: float = ranged(0.6, 0, 1)
    """least share of a term's usual translation in the file"""
    term_documents: float = ranged(0.2, 0, 1)
    """largest share of documents that contain a term (if the file has ten or more)"""
    term_evidence: int = ranged(3, 1, MANY)
    """fewest sentences of the file in which a word translates the term"""
    batch_sentences: int = ranged(25_000, 100, MANY)
    """sentences checked together; more take more memory, but give better word alignments"""
    protect: tuple[str, ...] = ()
    """regular expressions of placeholders, beside those that docmt knows"""

    def __post_init__(self) -> None:
        check_fields(self, "check.")


Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MarkedSentence:
    """One sentence with its translation. Marks are the (start, end) to highlight, in characters."""

    document: str
    sentence: int
    """counted from 1 in its document"""
    line: int
    """in the source file, 0 if unknown"""
    source: str
    target: str
    source_marks: Spans = ()
    target_marks: Spans = ()


@dataclass(frozen=True)
class Finding:
    """A possible fault for a person to look at."""

    kind: str
    """one of KINDS"""
    message: str
    """description, with quoted text"""
    sentences: tuple[MarkedSentence, ...]
    certainty: Certainty = "likely"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as values that `json.dumps` takes."""
        sentences = [asdict(sentence) for sentence in self.sentences]
        return {"kind": self.kind, "what": self.message, "places": sentences, "certainty": self.certainty}


@dataclass(frozen=True)
class CheckReport:
    """All findings of a translation, in the order of KINDS and of the text.

    `hidden`: number of findings below the requested certainty, by kind. `notes`: checks that could not run, and why.
    """

    config: CheckConfig
    documents: int
    sentences: int
    source_language: str
    target_language: str
    findings: Sequence[Finding]
    hidden: Counter[str] = field(default_factory=Counter)
    notes: Sequence[str] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of findings of every kind, zeros included."""
        counts = Counter(finding.kind for finding in self.findings)
        return {kind: counts[kind] for kind in KINDS}

    def select(self, kind: str) -> list[Finding]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def to_json(self) -> dict[str, Any]:
        """Return the report as values that `json.dumps` takes."""
        return {
            "documents": self.documents,
            "sentences": self.sentences,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "counts": self.counts(),
            "hidden": dict(self.hidden),
            "notes": list(self.notes),
            "settings": asdict(self.config),
            "findings": [finding.to_json() for finding in self.findings],
        }


def mark_sentence(
    document: ParallelDocument, index: int, source: Iterable[Any] = (), target: Iterable[Any] = ()
) -> MarkedSentence:
    """Return sentence `index` (from 0) of a document with its source and target marks."""
    line = document.lines[index] if document.lines else 0
    texts = document.source[index], document.target[index]
    return MarkedSentence(document.id, index + 1, line, *texts, tuple(source), tuple(target))


def quote(texts: Iterable[str]) -> str:
    """Return texts in quotation marks, separated by commas."""
    return ", ".join(f"“{text}”" for text in texts)


def is_certain(finding: Finding, least: str) -> bool:
    """Return whether a finding is at least as certain as `least`."""
    return CERTAINTIES.index(finding.certainty) <= CERTAINTIES.index(least)


def render_html(report: CheckReport, title: str, limit: int) -> str:
    """Return the report as an HTML page, with at most `limit` findings of each kind."""
    groups = groupby(report.findings, key=lambda finding: finding.kind)
    sections = [_section(kind, list(group), limit) for kind, group in groups]
    return render_page(title, [_summary(report), *sections])


def _summary(report: CheckReport) -> str:
    languages = f"{report.source_language or 'unknown'} to {report.target_language or 'unknown'}"
    rows = []
    for kind, count in report.counts().items():
        name = f'<a href="#{kind}">{KINDS[kind]}</a>' if count else KINDS[kind]
        hidden = f"{report.hidden[kind]:,} less certain, not shown" if report.hidden[kind] else ""
        if count or hidden:
            rows.append(f'<tr><td>{count:,}</td><td>{name}</td><td class="less">{hidden}</td></tr>')
    notes = "".join(f"<p>{escape_text(note)}</p>" for note in report.notes)
    counted = f"<p>{report.documents:,} documents, {report.sentences:,} sentences, {escape_text(languages)}.</p>"
    if not rows:
        return f"{counted}{notes}<p>No findings.</p>"
    return f'{counted}{notes}<table class="summary">{"".join(rows)}</table>'


def _section(kind: str, findings: Sequence[Finding], limit: int) -> str:
    """Return the HTML section with the findings of one kind."""
    omitted = len(findings) - limit
    more = f"<p>{omitted:,} more are in the JSON (--json).</p>" if omitted > 0 else ""
    visible = "".join(map(_finding, findings[:limit]))
    title = KINDS[kind][0].upper() + KINDS[kind][1:]
    return f'<details open id="{kind}"><summary>{title} ({len(findings):,})</summary>{visible}{more}</details>'


def _finding(finding: Finding) -> str:
    rows = "".join(map(_row, finding.sentences))
    sure = "" if finding.certainty == "sure" else f' <span class="less">({finding.certainty})</span>'
    head = '<tr><th class="where less">location</th><th>source</th><th>translation</th></tr>'
    return f"<h3>{escape_text(finding.message)}{sure}</h3>\n<table>{head}{rows}</table>\n"


def _row(sentence: MarkedSentence) -> str:
    line = f", line {sentence.line}" if sentence.line else ""
    location = f"document {sentence.document}, sentence {sentence.sentence}{line}"
    sides = (sentence.source, sentence.source_marks), (sentence.target, sentence.target_marks)
    texts = "".join(f'<td dir="auto">{mark_spans(*side)}</td>' for side in sides)
    return f'<tr><td class="where less">{escape_text(location)}</td>{texts}</tr>'
