"""docmt check SOURCE TARGET

Tells what a person can see in a translation without a reference: terms and names translated in several ways in a
document, mixed address, sentences that are missing, untranslated, said twice, too short or too long, numbers,
addresses and placeholders that are lost or new. The status is 0 whatever is found, unless --fail-on names it: then it
is 1.

usage:
    SOURCE TARGET [options]
    TRANSLATION.jsonl [options]

examples:
    docmt check test.en output.de
    docmt check output.jsonl --html report.html --json report.json
    docmt check report.txt bericht.txt --layout text --target-language de --fail-on number url
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from docmt.checking import KINDS, CheckConfig, CheckReport, Finding
from docmt.cli.corpora import check_outputs
from docmt.cli.options import Parser, changed
from docmt.cli.results import write_json
from docmt.core.errors import DocmtError, printable
from docmt.core.files import check_regular
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import progress
from docmt.core.settings import MANY, flag_of, one_of, option

FOUND = 1
"""The status where something was found that --fail-on names."""
ANY = "any"
_LONGEST = 100
"""Characters of a sentence in the terminal."""
_PLACES = 3
"""Sentences of a finding in the terminal."""
_LIMITS = {"similarity": "duplicate", "copied_share": "untranslated"}
"""The kind of finding of limits that do not begin with it."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options of the command."""

    source: str = option(positional=True, metavar="SOURCE")
    """source sentences: one a line, an empty line between documents, or the `source` of JSONL; TRANSLATION.jsonl (docmt
    translate --format jsonl) has both sides"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """what is checked, in the form of SOURCE (of JSONL the `target`); not needed for TRANSLATION.jsonl"""
    layout: Literal["auto", "lines", "text"] = "auto"
    """lines: a sentence a line; text: running text, as docmt translate gives it back; auto: text for Markdown, lines
    for all else"""
    json: str | None = option(None, metavar="FILE")
    """where all findings go as JSON (- for only that)"""
    html: str | None = option(None, metavar="FILE")
    """where they go as a page to read"""
    fail_on: list[str] = option([], metavar="KIND")
    """findings that make the status 1: any, or some kinds of those that --only takes"""
    only: list[str] = option([], metavar="KIND")
    """look for these alone (the default is for all): sentence_count, empty, untranslated, loop, duplicate,
    length, number, url, placeholder, bracket, name, term, repetition, formality"""
    show: int = option(5, range=(0, MANY))
    """findings of each kind in the terminal"""
    show_html: int = option(1000, range=(0, MANY))
    """findings of each kind in the page"""
    check: CheckConfig = CheckConfig()
    """from where on something is told"""


def parser() -> Parser[CheckOptions]:
    """Return the parser of the command."""
    return Parser(
        "check",
        CheckOptions,
        __doc__,
        common="html json fail_on only show check.target_language check.certainty",
    )


def run(arguments: Sequence[str]) -> int:
    """Prints what was found, and writes it as JSON and HTML."""
    options = parser().parse(arguments)
    _check(options)
    report = _report(options)
    named = f"{options.source} and {options.target}" if options.target else options.source
    if options.json:
        files = {"source": options.source, "target": options.target}
        write_json(options.json, {**files, **report.to_json()}, indent=1)
    if options.html:
        from docmt.checking import render_html

        write_text(options.html, render_html(report, f"docmt check: {named}", options.show_html))
    if STANDARD not in (options.json, options.html):
        _print(report, options.show)
    counts = report.counts()
    failing = counts if ANY in options.fail_on else options.fail_on
    return FOUND if any(counts[kind] for kind in failing) else 0


def _report(options: CheckOptions) -> CheckReport:
    """What is found."""
    from docmt.checking import check_documents, read_translation

    target = Path(options.target) if options.target else None
    paired = read_translation(Path(options.source), target, options.layout, options.check)
    with progress("checking", sum(map(len, paired.documents))) as bar:
        kinds = options.only or tuple(KINDS)
        return check_documents(
            paired.documents, options.check, kinds=kinds, on_progress=bar.advance, earlier=paired.findings
        )


def _check(options: CheckOptions) -> None:
    """Raises DocmtError for unknown kinds, and for outputs that cannot be written."""
    for flag, allowed in (("fail_on", (ANY, *KINDS)), ("only", tuple(KINDS))):
        for kind in getattr(options, flag):
            one_of(flag_of(flag), kind, allowed)
    if options.only and (unseen := sorted({*options.fail_on} - {ANY, *options.only})):
        raise DocmtError(f"--fail-on {unseen[0]} is not looked for: add it to --only")
    if options.show_html != CheckOptions.show_html and not options.html:
        raise DocmtError("--show-html is for the page: add --html FILE, or leave it out")
    if options.show != CheckOptions.show and STANDARD in (options.json, options.html):
        raise DocmtError("--show is for the terminal, but standard output takes a file: name one, or leave --show out")
    _check_limits(options)
    check_outputs(options.json, options.html, inputs=[options.source, options.target])
    for path in filter(None, (options.source, options.target)):
        check_regular(path, "it is read more than once, but is")


def _check_limits(options: CheckOptions) -> None:
    """Raises DocmtError for a limit of what is not looked for."""
    for name in changed(options.check, *vars(CheckConfig())) if options.only else ():
        if (kind := limited_kind(name)) and kind not in options.only:
            raise DocmtError(
                f"{flag_of(f'check.{name}')} is for findings of {kind}, which are not looked for: add it to --only"
            )


def limited_kind(limit: str) -> str:
    """Return the kind of finding that a limit is for; nothing if it is for all."""
    kind = _LIMITS.get(limit, limit.partition("_")[0])
    return kind if kind in KINDS else ""


def _print(report: CheckReport, most: int) -> None:
    """The table of what was found, then the first findings of each kind."""
    rows = [
        (kind, count, report.hidden[kind]) for kind, count in report.counts().items() if count or report.hidden[kind]
    ]
    languages = f"{report.source_language or '?'} to {report.target_language or '?'}"
    documents = f"{report.documents:,} document{'s' * (report.documents != 1)}"
    for line in [f"{documents}, {report.sentences:,} sentences, {languages}", *report.notes]:
        print(printable(line))
    if not rows:
        print("nothing was found")
        return
    width = max(len(kind) for kind, _, _ in rows)
    for kind, count, hidden in rows:
        less = f" ({hidden:,} less certain, --certainty possible)" if hidden else ""
        print(f"{count:>7,}  {kind:<{width}}  {KINDS[kind]}{less}")
    for kind, count, _ in rows:
        if count and most:
            print(f"\n{kind}: {KINDS[kind]}")
            for finding in report.select(kind)[:most]:
                print(printable(_lines(finding), kept="\n"))
            if count > most:
                print(f"  ... and {count - most:,} more (--show {count}, --json, --html)")


def _lines(finding: Finding) -> str:
    """A finding in words, with its first sentences."""
    sure = "" if finding.certainty == "sure" else f" ({finding.certainty})"
    lines = [f"  {_short(finding.message, 2 * _LONGEST)}{sure}"]
    for place in finding.sentences[:_PLACES]:
        line = f" (line {place.line})" if place.line else ""
        source = _around(place.source, place.source_marks)
        target = _around(place.target, place.target_marks)
        lines += [f"    {place.document}:{place.sentence}{line}  {source}", f"      -> {target}"]
    if len(finding.sentences) > _PLACES:
        more = len(finding.sentences) - _PLACES
        lines.append(f"    ... and {more} more sentence{'s' * (more > 1)}")
    return "\n".join(lines)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _around(text: str, marks: Sequence[tuple[int, int]]) -> str:
    """As much of a sentence as fits, with the first mark in it."""
    text = text.replace("\n", " ")
    first = marks[0][0] if marks else 0
    start = max(0, min(first - _LONGEST // 2, len(text) - _LONGEST)) if first >= _LONGEST // 2 else 0
    return ("…" if start else "") + _short(text[start:], _LONGEST)
