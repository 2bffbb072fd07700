"""`docmt evaluate --aer`: how well models align the words of sentence pairs that people have aligned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpus_io import check_outputs
from docmt.cli.options import changed, translator_of
from docmt.cli.output import print_table, write_results
from docmt.cli.scored_systems import ScoredSystem, check_models
from docmt.core.errors import DocmtError
from docmt.core.plain_text import align_columns, escape_markdown, markdown_table
from docmt.core.settings import flag_of
from docmt.documents import Document
from docmt.evaluation.alignment_error import AlignedPair, AlignmentScore, read_alignments, score_alignments

if TYPE_CHECKING:
    from docmt.decoding import Translator


def report_alignment_errors(options: Any, systems: Sequence[ScoredSystem]) -> int:
    """Print the alignment error rate of each model on the pairs of `options.aer`. Return the exit status.

    Raises DocmtError for files of translations, which have no attention, and for options without effect.
    """
    for system in systems:
        if not system.is_model:
            raise DocmtError(f"{system.path} is a file, but --aer reads the attention of models: name models only")
    others = ("source", "reference", "output", "by_position", "search", "metrics", "significance", "external")
    if unused := changed(options, *others):
        names = ", ".join(flag_of(name) for name in unused)
        raise DocmtError(f"--aer has no use for {names}: leave it out (it aligns the sentence pairs of its file)")
    check_outputs(options.json, options.markdown, inputs=[options.aer])
    pairs = read_alignments(Path(options.aer))
    check_models([system.path for system in systems], options.context, options.search)
    scores = {system: _score(translator_of(options, system.path), pairs) for system in systems}
    rows = [["system", "AER", "precision", "recall", "links"]]
    for system, score in scores.items():
        percent = [f"{100 * value:.1f}" for value in (score.aer, score.precision, score.recall)]
        rows.append([system.name, *percent, f"{score.links:,}"])
    entries = [{"name": system.name, "path": system.path, **score.to_json()} for system, score in scores.items()]
    page = "\n".join(markdown_table([[escape_markdown(row[0]), *row[1:]] for row in rows])) + "\n"
    write_results(options, {"gold": options.aer, "sentences": len(pairs), "systems": entries}, page)
    print_table(options, "\n".join(align_columns(rows)))
    return 0


def _score(translator: Translator, pairs: Sequence[AlignedPair]) -> AlignmentScore:
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
