"""Files of `docmt evaluate` besides its tables: a campaign for human evaluation, its answers, and a page to send."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import refuse_others
from docmt.cli.output import print_table, write_results
from docmt.core.errors import DocmtError
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import Needs, option
from docmt.evaluation import Evaluation
from docmt.evaluation.metrics import format_count
from docmt.evaluation.output_alignment import Documents
from docmt.evaluation.pearmut import HumanProtocol, build_campaign, score_answers
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


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The files besides the tables."""

    html: str | None = option(None, metavar="FILE")
    """write a page with scores, pictures and differences"""
    export_pearmut: str | None = option(None, metavar="FILE")
    """write a campaign for human evaluation by Pearmut, and its key as .key.json beside it"""
    pearmut_protocol: HumanProtocol = "cESA"
    """error span annotation of all outputs side by side (cESA), or of one at a time (ESA)"""
    pearmut_answers: list[str] = option([], metavar="FILE")
    """score the answers of Pearmut: its files, and the key of the campaign"""

    option_rules = (Needs("pearmut_protocol", "export_pearmut"),)

    @property
    def report_files(self) -> list[str]:
        """The files to write."""
        campaign = self.export_pearmut
        return [path for path in (self.html, campaign, campaign and _key_path(campaign)) if path]

    def check_reports(self, source: str | None, several: bool) -> None:
        """Raise DocmtError for files that need something else. several: whether there are several systems."""
        for flag, path in (("--html", self.html), ("--export-pearmut", self.export_pearmut)):
            if path and not source:
                raise DocmtError(f"{flag} needs --source, the text that was translated: name its file")
            if path == STANDARD:
                raise DocmtError(f"{flag} cannot be standard output: name a file")
        if self.html and not several:
            raise DocmtError("--html needs several systems: name more than one, or leave it out")


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
        sides = [sentences for _, sentences in texts.sources], *texts.systems.values()
        whole = sum(len(set(map(len, each))) > 1 for each in zip(*sides, strict=True))
        verb = "is" if whole == 1 else "are"
        remark = f", of which {whole} {verb} judged as a whole, as a system has other sentences" if whole else ""
        number = format_count(len(texts.sources), "document")
        _log.info(f"{path}: {number} for `pearmut add`{remark}; keep {_key_path(path)} for the answers")


def report_answers(options: Any) -> int:
    """Print the scores of systems by the answers of annotators. Return the exit status."""
    refuse_others(options, "--pearmut-answers", "pearmut_answers", "json", "markdown", "significance")
    check_outputs(options.json, options.markdown, inputs=options.pearmut_answers)
    scores = score_answers(options.pearmut_answers, options.significance)
    write_results(options, {"answers": options.pearmut_answers, **scores.to_json()}, scores.to_markdown())
    print_table(options, scores.format())
    return 0
