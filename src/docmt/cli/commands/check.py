"""docmt check: inconsistencies and errors in a translation, without a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from docmt import checking
from docmt.checking import KINDS, CheckConfig, CheckReport, Finding
from docmt.cli.model_arguments import ProtectOptions
from docmt.cli.output import check_outputs, write_json
from docmt.core.errors import DocmtError, printable
from docmt.core.files import check_regular
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import progress
from docmt.core.settings import MANY, check_choice, find_set, format_flag, option

FAILING_FINDINGS = 1
"""Exit status after findings of a kind that --fail-on names."""
ANY = "any"
_WIDTH = 100
"""Characters of a sentence in the terminal."""
_MAX_IN_PAGE = 1000
"""Findings of each kind in the HTML page."""
_MAX_SENTENCES = 3
"""Sentences of a finding in the terminal."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ProtectOptions):
    """docmt check SOURCE TARGET

    Report inconsistencies and errors in a translation, without a reference: inconsistent terms, missing, untranslated,
    repeated, too short or too long sentences, and changed numbers, URLs and placeholders. The exit status is 0, or 1 if
    there are findings of a kind that --fail-on names.

    usage:
        SOURCE TARGET [options]
        TRANSLATION.jsonl [options]

    examples:
        docmt check test.en output.de
        docmt check output.jsonl --html report.html --json report.json
        docmt check report.docx bericht.docx
        docmt check report.txt bericht.txt --layout text --target-language de --fail-on number url

    common:
        html json fail_on only show check.target_language check.certainty
    """

    source: str = option(positional=True, metavar="SOURCE")
    """source sentences, one a line, JSONL, Markdown, an office document, web page, book or subtitles; TRANSLATION.jsonl
    has both sides"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """translation to check, in the format of SOURCE; not needed for TRANSLATION.jsonl"""
    layout: Literal["auto", "text"] = "auto"
    """text: running text; auto: by the name of the file, or one sentence a line"""
    json: str | None = option(None, metavar="FILE")
    """write all findings as JSON (-: to standard output)"""
    html: str | None = option(None, metavar="FILE")
    """write the findings as an HTML page"""
    fail_on: list[str] = option([], metavar="KIND")
    """kinds of findings that make the exit status 1, or any; see --only"""
    only: list[str] = option([], metavar="KIND")
    """check these kinds only: sentence_count, empty, untranslated, loop, duplicate,
    length, missing_text, number, url, placeholder, bracket, term, repetition"""
    show: int = option(5, range=(0, MANY))
    """maximum findings of each kind in the terminal"""
    check: CheckConfig = option(CheckConfig(), skip=("protect",))
    """thresholds of the checks"""


def run_check(options: CheckOptions) -> int:
    """Check a translation. Print the findings, and write them as JSON and HTML."""
    _check(options)
    config, kinds = replace(options.check, protect=options.patterns or ()), options.only or tuple(KINDS)
    with progress("checking (sentences)") as bar:
        report = checking.check_files(
            options.source, options.target, config, layout=options.layout, kinds=kinds, on_progress=bar.advance
        )
    title = f"{options.source} and {options.target}" if options.target else options.source
    if options.json:
        files = {"source": options.source, "target": options.target}
        write_json(options.json, {**files, **report.to_json()}, indent=1)
    if options.html:
        write_text(options.html, checking.render_html(report, f"docmt check: {title}", _MAX_IN_PAGE))
    if STANDARD not in (options.json, options.html):
        _print(report, options.show)
    counts = report.counts()
    failing = counts if ANY in options.fail_on else options.fail_on
    return FAILING_FINDINGS if any(counts[kind] for kind in failing) else 0


def _check(options: CheckOptions) -> None:
    """Raise DocmtError for unknown kinds, and for outputs that cannot be written."""
    for flag, allowed in (("fail_on", (ANY, *KINDS)), ("only", tuple(KINDS))):
        for kind in getattr(options, flag):
            check_choice(format_flag(flag), kind, allowed)
    if options.only and (unchecked := sorted({*options.fail_on} - {ANY, *options.only})):
        raise DocmtError(f"--fail-on {unchecked[0]} is not checked: add it to --only")
    if options.show != CheckOptions.show and STANDARD in (options.json, options.html):
        raise DocmtError(
            "--show is for the terminal, but standard output gets JSON or HTML: name a file, or leave --show out"
        )
    for name in find_set(options.check, *vars(options.check)) if options.only else ():
        kind = name.partition("_")[0]  # thresholds begin with their kind
        if kind in KINDS and kind not in options.only:
            raise DocmtError(
                f"{format_flag(f'check.{name}')} is for findings of kind {kind}, which is not checked: add it to --only"
            )
    check_outputs(options.json, options.html, inputs=[options.source, options.target])
    for path in filter(None, (options.source, options.target)):
        check_regular(path, "it is read more than once, but is")


def _print(report: CheckReport, most: int) -> None:
    """Print a table of all findings, then the first ones of each kind."""
    counts = {kind: count for kind, count in report.counts().items() if count or report.hidden[kind]}
    languages = f"{report.source_language or '?'} to {report.target_language or '?'}"
    documents = f"{report.documents:,} document{'s' * (report.documents != 1)}"
    sentences = f"{report.sentences:,} sentence{'s' * (report.sentences != 1)}"
    for line in [f"{documents}, {sentences}, {languages}", *report.notes]:
        print(printable(line))
    if not counts:
        print("no findings")
        return
    width = max(map(len, counts))
    for kind, count in counts.items():
        hidden = report.hidden[kind]
        uncertain = f" ({hidden:,} less certain, --certainty possible)" if hidden else ""
        print(f"{count:>7,}  {kind:<{width}}  {KINDS[kind]}{uncertain}")
    for kind, count in counts.items():
        if count and most:
            print(f"\n{kind}: {KINDS[kind]}")
            for finding in report.select(kind)[:most]:
                print(printable(_format_finding(finding), allowed="\n"))
            if count > most:
                print(f"  ... and {count - most:,} more (--show {count}, --json, --html)")


def _format_finding(finding: Finding) -> str:
    """Return the lines of a finding, with its first sentences."""
    certainty = "" if finding.certainty == "sure" else f" ({finding.certainty})"
    lines = [f"  {_shorten(finding.message, 2 * _WIDTH)}{certainty}"]
    for sentence in finding.sentences[:_MAX_SENTENCES]:
        line = f" (line {sentence.line})" if sentence.line else ""
        source = _excerpt(sentence.source, sentence.source_marks)
        target = _excerpt(sentence.target, sentence.target_marks)
        lines += [f"    {sentence.document}:{sentence.sentence}{line}  {source}", f"      -> {target}"]
    if len(finding.sentences) > _MAX_SENTENCES:
        more = len(finding.sentences) - _MAX_SENTENCES
        lines.append(f"    ... and {more} more sentence{'s' * (more > 1)}")
    return "\n".join(lines)


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _excerpt(text: str, marks: Sequence[tuple[int, int]]) -> str:
    """Return a part of a sentence that has its first mark and fits the width."""
    text = text.replace("\n", " ")
    first = marks[0][0] if marks else 0
    start = max(0, min(first - _WIDTH // 2, len(text) - _WIDTH)) if first >= _WIDTH // 2 else 0
    return ("…" if start else "") + _shorten(text[start:], _WIDTH)
