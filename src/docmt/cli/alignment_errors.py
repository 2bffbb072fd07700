"""The table of `docmt evaluate --aer`: word alignments of models against links by people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpus_io import check_outputs
from docmt.cli.model_arguments import check_models, load_translator
from docmt.cli.options import refuse_others
from docmt.cli.output import print_table, write_results
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.documents import Document
from docmt.evaluation.alignment_error import AlignedPair, AlignmentScore, read_alignments, score_alignments

if TYPE_CHECKING:
    from docmt.decoding import Translator


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
        entries.append({"name": name, "path": path, **score.to_json()})
    page = "\n".join(markdown_table([[escape_markdown(row[0]), *row[1:]] for row in rows])) + "\n"
    write_results(options, {"gold": options.aer, "sentences": len(pairs), "systems": entries}, page)
    print_table(options, "\n".join(align_columns(rows)))
    return 0


def _score_links(translator: Translator, pairs: Sequence[AlignedPair]) -> AlignmentScore:
    """Return the score of the mutual links. Each sentence pair is a document of its own."""
    documents = [
        (Document.from_sentences([" ".join(pair.source)]), Document.from_sentences([" ".join(pair.target)]))
        for pair in pairs
    ]
    aligned = translator.align(translator.score_all(documents))
    links = [
        pair.match((link.source, link.target) for link in links if link.mutual)
        for pair, translation in zip(pairs, aligned, strict=True)
        for links in translation.alignments()
    ]
    return score_alignments(pairs, links)
