"""A report as one page of HTML that needs nothing else: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from docmt.checking.config import KINDS
from docmt.checking.finding import Finding, Place, Report, Spans
from docmt.core.errors import printable

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


def page(report: Report, title: str, most: int) -> str:
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


def _summary(report: Report) -> str:
    languages = f"{report.source_language or 'unknown'} to {report.target_language or 'unknown'}"
    rows = [
        f'<tr><td>{count:,}</td><td>{_linked(kind, count)}</td><td class="less">{_hidden(report, kind)}</td></tr>'
        for kind, count in report.counts().items()
        if count or report.hidden[kind]
    ]
    notes = "".join(f"<p>{_text(note)}</p>" for note in report.notes)
    counted = f"<p>{report.documents:,} documents, {report.sentences:,} sentences, {_text(languages)}.</p>"
    if not rows:
        return f"{counted}{notes}<p>Nothing was found.</p>"
    return f'{counted}{notes}<table class="summary">{"".join(rows)}</table>'


def _linked(kind: str, count: int) -> str:
    return f'<a href="#{kind}">{KINDS[kind]}</a>' if count else KINDS[kind]


def _hidden(report: Report, kind: str) -> str:
    return f"{report.hidden[kind]:,} less certain ones are not shown" if report.hidden[kind] else ""


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
