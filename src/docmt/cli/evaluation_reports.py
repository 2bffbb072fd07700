"""Files of `docmt evaluate` besides its tables: a campaign for human evaluation, its answers, and a page to send."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import changed
from docmt.cli.output import print_table, write_results
from docmt.core.errors import DocmtError
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import format_flag
from docmt.evaluation import Evaluation
from docmt.evaluation.metrics import Documents
from docmt.evaluation.pearmut import build_campaign, score_answers
from docmt.evaluation.report_page import render_report

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredTexts:
    """The D documents that all systems have translated."""

    sources: Sequence[tuple[str, Sequence[str]]]
    """[D] ids and source sentences"""
    references: Documents
    systems: Mapping[str, Documents]
    """[D] translations by system"""


def check_reports(options: Any, systems: int) -> list[str]:
    """Return the files to write. Raises DocmtError if they need an option that is not set."""
    for flag, path in (("--html", options.html), ("--export-pearmut", options.export_pearmut)):
        if path and not options.source:
            raise DocmtError(f"{flag} needs --source, the text that was translated: name its file")
        if path == STANDARD:
            raise DocmtError(f"{flag} cannot be standard output: name a file")
    if options.html and systems < 2:
        raise DocmtError("--html needs several systems: name more than one, or leave it out")
    campaign = options.export_pearmut
    return [path for path in (options.html, campaign, campaign and _key_path(campaign)) if path]


def _key_path(campaign: str) -> str:
    return str(Path(campaign).with_suffix(".key.json"))


def write_reports(options: Any, read_texts: Callable[[], ScoredTexts], evaluations: Mapping[str, Evaluation]) -> None:
    """Write the campaign and the page, if there is a file for them."""
    if not (options.export_pearmut or options.html):
        return
    texts = read_texts()
    if options.html:
        title = f"docmt evaluate: {' '.join(options.reference) or options.source}"
        page = render_report(title, evaluations, options.significance, texts.sources, texts.references, texts.systems)
        write_text(options.html, page)
    if path := options.export_pearmut:
        seed, protocol = options.significance.seed, options.pearmut_protocol
        campaign, key = build_campaign(Path(path).stem, texts.sources, texts.systems, protocol, seed)
        for file, values in ((path, campaign), (_key_path(path), key)):
            write_text(file, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
        _log.info(
            f"{path}: {len(campaign['data'])} documents for `pearmut add`; keep {_key_path(path)} for the answers"
        )


def report_answers(options: Any) -> int:
    """Print the scores of systems by the answers of annotators. Return the exit status."""
    others = [
        "hypothesis",
        "model",
        "systems",
        "source",
        "reference",
        "glossaries",
        "output",
        "by_position",
        "html",
        "export_pearmut",
        "aer",
    ]
    if unused := changed(options, *others, "search", "metrics", "external"):
        names = ", ".join(format_flag(name) for name in unused)
        raise DocmtError(f"--pearmut-answers has no use for {names}: leave it out")
    check_outputs(options.json, options.markdown, inputs=options.pearmut_answers)
    scores = score_answers(options.pearmut_answers, options.significance)
    write_results(options, {"answers": options.pearmut_answers, **scores.to_json()}, scores.to_markdown())
    print_table(options, scores.format())
    return 0
