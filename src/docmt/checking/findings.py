"""What is looked for in a translation, what was found and where, and the report as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import groupby
from typing import Any, Literal, get_args

from docmt.core.errors import printable
from docmt.core.settings import MANY, check_fields, ranged
from docmt.documents import ParallelDocument

KINDS: Mapping[str, str] = {
    "sentence_count": "documents whose translation has another number of sentences",
    "empty": "sentences without a translation",
    "untranslated": "sentences left as they are in the source, or in its language",
    "loop": "words that are said again and again",
    "duplicate": "different sentences with the same translation",
    "length": "translations that are far too short or too long for their source",
    "number": "numbers that are lost or new",
    "url": "web and mail addresses that are lost or new",
    "placeholder": "placeholders and tags that are lost or new",
    "bracket": "brackets without their partners",
    "name": "names translated in several ways in a document",
    "term": "terms translated in several ways in a document",
    "repetition": "the same sentence translated in several ways in a document",
    "formality": "formal and informal address in a document",
}
"""What is looked for, by the names that options and JSON have for it, in the order of reports."""
Certainty = Literal["sure", "likely", "possible"]
CERTAINTIES = get_args(Certainty)


@dataclass(frozen=True)
class CheckConfig:
    """From where on something in a translation is told; a share is between 0 and 1."""

    source_language: str = ""
    """code of the language of the source, such as en; found by its commonest words if left out"""
    target_language: str = ""
    """code of the language of the translation, as source_language. Formality needs it, numbers in words do too"""
    certainty: Certainty = "likely"
    """the least certain findings that are shown; less certain ones are counted"""
    length_factor: float = ranged(2.0, 1, 1000)
    """a translation is too short or too long by this factor, against the ratio of characters in the whole file"""
    length_deviation: float = ranged(6.0, 0, 1000)
    """and lies this many (robust) standard deviations off; they grow with the root of the length (Gale and Church
    1993), so that short sentences may differ more"""
    loop_repetitions: int = ranged(3, 2, 1000)
    """how often one or two words follow each other to be a loop; of three words and more, twice are enough"""
    duplicate_words: int = ranged(6, 1, 1000)
    """words that a translation of several different sentences has at least"""
    similarity: float = ranged(0.5, 0, 1)
    """share of words that two source sentences have in common to be the same in other words: their translations may
    be equal"""
    copied_share: float = ranged(0.8, 0, 1)
    """share of the words of a translation that stand in its source, in the same order, to be left untranslated"""
    number_words: int = ranged(12, 0, 100)
    """numbers up to this one may be written in words in languages whose number words are not known"""
    term_occurrences: int = ranged(3, 2, MANY)
    """sentences of a document with a term, at least, to ask whether it is translated in one way"""
    term_share: float = ranged(0.6, 0, 1)
    """share of the commonest translation of a term in the whole file, at least: words without one are no terms"""
    term_documents: float = ranged(0.2, 0, 1)
    """share of the documents of a file (of ten and more) that a term stands in at most: it is what some are about"""
    term_evidence: int = ranged(3, 1, MANY)
    """sentences of the file in which a word translates the term, at least, to be one of its translations"""
    name_similarity: float = ranged(0.7, 0, 1)
    """share of letters that a word has in common with a name to be another spelling of it"""
    repetition_words: int = ranged(4, 1, 1000)
    """words that a source sentence has at least, to be asked whether it is translated in one way"""
    batch_sentences: int = ranged(25_000, 100, MANY)
    """sentences checked together: memory grows with it; what words translate each other is found in a portion alone"""

    def __post_init__(self) -> None:
        check_fields(self, "check.")


Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Place:
    """One sentence with its translation; marks are (start, end) in characters of what it is about."""

    document: str
    sentence: int
    """counted from 1 in its document"""
    line: int
    """in the source file; 0 if it has no lines"""
    source: str
    target: str
    source_marks: Spans = ()
    target_marks: Spans = ()


@dataclass(frozen=True)
class Finding:
    """Something that a person should look at."""

    kind: str
    """one of KINDS"""
    what: str
    """in words, with what it is about in quotes"""
    places: tuple[Place, ...]
    certainty: Certainty = "likely"


@dataclass(frozen=True)
class CheckReport:
    """All findings of a translation, in the order of KINDS and of the text.

    `hidden`: how many findings of each kind are less certain than asked for; `notes`: what could not be checked.
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
        """The number of findings of every kind, those of which there are none included."""
        found = Counter(finding.kind for finding in self.findings)
        return {kind: found[kind] for kind in KINDS}

    def of_kind(self, kind: str) -> list[Finding]:
        """The findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def to_json(self) -> dict[str, Any]:
        """In types that `json.dumps` takes."""
        return {
            "documents": self.documents,
            "sentences": self.sentences,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "counts": self.counts(),
            "hidden": dict(self.hidden),
            "notes": list(self.notes),
            "settings": asdict(self.config),
            "findings": [asdict(finding) for finding in self.findings],
        }


def place(document: ParallelDocument, number: int, source: Iterable[Any] = (), target: Iterable[Any] = ()) -> Place:
    """The place of a sentence (from 0) of a document, with what is marked in it."""
    line = document.lines[number] if document.lines else 0
    texts = document.source[number], document.target[number]
    return Place(document.id, number + 1, line, *texts, tuple(source), tuple(target))


def is_certain(finding: Finding, least: str) -> bool:
    """Whether a finding is as certain as asked for."""
    return CERTAINTIES.index(finding.certainty) <= CERTAINTIES.index(least)


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; table-layout: fixed }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ddd;
  overflow-wrap: anywhere }
th { font-weight: 600; color: #555 }
.summary { width: auto; table-layout: auto }
.summary td:first-child { text-align: right }
.where { width: 11rem; color: #555; font-size: .85rem }
.less { color: #777; font-size: .85rem }
mark { background: #ffe08a; color: inherit; border-radius: .15rem }
summary { cursor: pointer; font-size: 1.2rem; margin: .6rem 0 }
h3 { font-size: 1rem; margin: 1rem 0 0 }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #e6e6e6 }
  th, .where, .less { color: #aaa }
  th, td { border-color: #444 }
  mark { background: #7a5c00 }
}
"""


def page(report: CheckReport, title: str, most: int) -> str:
    """The page; of each kind it shows `most` findings, and says how many there are."""
    sections = [
        _section(kind, list(found), most) for kind, found in groupby(report.findings, key=lambda found: found.kind)
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1>{_text(title)}</h1>",
            _summary(report),
            *sections,
            "</body>\n</html>\n",
        ]
    )


def _summary(report: CheckReport) -> str:
    languages = f"{report.source_language or 'unknown'} to {report.target_language or 'unknown'}"
    rows = []
    for kind, count in report.counts().items():
        name = f'<a href="#{kind}">{KINDS[kind]}</a>' if count else KINDS[kind]
        hidden = f"{report.hidden[kind]:,} less certain ones are not shown" if report.hidden[kind] else ""
        if count or hidden:
            rows.append(f'<tr><td>{count:,}</td><td>{name}</td><td class="less">{hidden}</td></tr>')
    notes = "".join(f"<p>{_text(note)}</p>" for note in report.notes)
    counted = f"<p>{report.documents:,} documents, {report.sentences:,} sentences, {_text(languages)}.</p>"
    if not rows:
        return f"{counted}{notes}<p>Nothing was found.</p>"
    return f'{counted}{notes}<table class="summary">{"".join(rows)}</table>'


def _section(kind: str, found: Sequence[Finding], most: int) -> str:
    """All findings of one kind."""
    left = len(found) - most
    more = f"<p>{left:,} more are in the JSON (--json).</p>" if left > 0 else ""
    shown = "".join(map(_finding, found[:most]))
    title = KINDS[kind][0].upper() + KINDS[kind][1:]
    return f'<details open id="{kind}"><summary>{title} ({len(found):,})</summary>{shown}{more}</details>'


def _finding(found: Finding) -> str:
    rows = "".join(map(_row, found.places))
    sure = "" if found.certainty == "sure" else f' <span class="less">({found.certainty})</span>'
    head = '<tr><th class="where">where</th><th>source</th><th>translation</th></tr>'
    return f"<h3>{_text(found.what)}{sure}</h3>\n<table>{head}{rows}</table>\n"


def _row(place: Place) -> str:
    line = f", line {place.line}" if place.line else ""
    where = f"document {place.document}, sentence {place.sentence}{line}"
    source, target = _marked(place.source, place.source_marks), _marked(place.target, place.target_marks)
    return f'<tr><td class="where">{_text(where)}</td><td dir="auto">{source}</td><td dir="auto">{target}</td></tr>'


def _marked(text: str, spans: Spans) -> str:
    """The text with these stretches marked."""
    parts, position = [], 0
    for start, end in sorted(spans):
        if start >= position:
            parts += [_text(text[position:start]), f"<mark>{_text(text[start:end])}</mark>"]
            position = end
    return "".join([*parts, _text(text[position:])])


def _text(text: str) -> str:
    """Text of strangers: nothing in it is markup, and nothing moves what stands around it."""
    return escape(printable(text))
