"""Other results of `docmt evaluate`: a page to send, human evaluation, and word alignments against links by people."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from docmt import decoding
from docmt.cli.model_arguments import check_models, link_words, load_translator
from docmt.cli.options import refuse_others
from docmt.cli.output import check_outputs, print_table, write_results
from docmt.core.errors import DocmtError
from docmt.core.plain_text import STANDARD, align_columns, escape_markdown, markdown_table, write_text
from docmt.core.settings import Needs, option
from docmt.evaluation.alignment_error import AlignedPair, AlignmentScore, read_alignments, score_alignments
from docmt.evaluation.metrics import format_count
from docmt.evaluation.output_alignment import Documents, Sources
from docmt.evaluation.pearmut import HumanProtocol, build_campaign, score_answers
from docmt.evaluation.report_page import render_report
from docmt.evaluation.significance import Comparison

_log = logging.getLogger(__name__)


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


def write_reports(
    options: Any,
    comparison: Comparison | None,
    sources: Sources,
    references: Documents,
    systems: Mapping[str, Documents],
) -> None:
    """Write the campaign and the page, if there is a file for them.

    comparison: None for a single system, which has no page. sources: [D] ids and sentences. systems: [D] translations.
    """
    if options.html and comparison is not None:
        title = f"docmt evaluate: {' '.join(options.reference) or options.source}"
        write_text(options.html, render_report(title, comparison, sources, references, systems))
    if path := options.export_pearmut:
        seed, protocol = options.significance.seed, options.pearmut_protocol
        campaign, key = build_campaign(Path(path).stem, sources, systems, protocol, seed)
        for file, values in ((path, campaign), (_key_path(path), key)):
            write_text(file, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
        sides = [sentences for _, sentences in sources], *systems.values()
        whole = sum(len(set(map(len, each))) > 1 for each in zip(*sides, strict=True))
        verb = "is" if whole == 1 else "are"
        remark = f", of which {whole} {verb} judged as a whole, as a system has other sentences" if whole else ""
        number = format_count(len(sources), "document")
        _log.info(f"{path}: {number} for `pearmut add`{remark}; keep {_key_path(path)} for the answers")


def report_answers(options: Any) -> int:
    """Print the scores of systems by the answers of annotators. Return the exit status."""
    refuse_others(options, "--pearmut-answers", "pearmut_answers", "json", "markdown", "significance")
    check_outputs(options.json, options.markdown, inputs=options.pearmut_answers)
    scores = score_answers(options.pearmut_answers, options.significance)
    write_results(options, {"answers": options.pearmut_answers, **scores.to_json()}, scores.to_markdown())
    print_table(options, scores.format())
    return 0


def report_alignment_errors(options: Any, models: Mapping[str, str]) -> int:
    """Print the alignment error rate of each model on the pairs of `options.aer`. Return the exit status.

    models: paths by name. Raises DocmtError for options without effect.
    """
    used = "aer", "model", "systems", "json", "markdown", "device", "batch_tokens", "precision", "context"
    refuse_others(options, "--aer", *used)
    check_outputs(options.json, options.markdown, inputs=[options.aer])
    pairs = read_alignments(Path(str(options.aer)))
    check_models(list(models.values()), options.context, options.search)
    rows, entries = [["system", "AER", "precision", "recall", "links"]], []
    for name, path in models.items():
        score = _score_links(load_translator(options, path), pairs)
        percent = [f"{100 * value:.1f}" for value in (score.aer, score.precision, score.recall)]
        rows.append([name, *percent, f"{score.links:,}"])
        entries.append({"name": name, "path": path, **asdict(score)})
    page = "\n".join(markdown_table([[escape_markdown(row[0]), *row[1:]] for row in rows])) + "\n"
    write_results(options, {"gold": options.aer, "sentences": len(pairs), "systems": entries}, page)
    print_table(options, "\n".join(align_columns(rows)))
    return 0


def _score_links(translator: decoding.Translator, pairs: Sequence[AlignedPair]) -> AlignmentScore:
    """Return the score of the mutual links. Each sentence pair is a document of its own."""
    sentences = link_words(translator, [([" ".join(pair.source)], [" ".join(pair.target)]) for pair in pairs])
    links = [
        pair.match((link.source, link.target) for link in links if link.mutual)
        for pair, links in zip(pairs, sentences, strict=True)
    ]
    return score_alignments(pairs, links)
