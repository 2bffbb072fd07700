"""docmt score MODEL SOURCE TARGET

Print the log-probability (nats) of each sentence of supplied translations, in the context of its document. JSONL has
one object a line, {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or {"document": "a", "source":
"One.", "target": "Eins."} for each sentence.

usage:
    MODEL SOURCE TARGET [options]
    MODEL CORPUS.jsonl [options]

examples:
    docmt score MODEL test.en test.de
    docmt score MODEL test.jsonl --format jsonl -o scores.jsonl

common:
    output format alignments batch_tokens device precision
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from docmt import decoding
from docmt.cli.model_arguments import ModelOptions, document_name, load_translator, read_corpus
from docmt.cli.output import Report, check_alignments, check_outputs, error_records, sentence_records
from docmt.core.errors import DocmtError, map_or_error
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import option
from docmt.decoding.translation_results import Translation
from docmt.documents import Document
from docmt.documents.corpus_files import count_untranslated

_log = logging.getLogger(__name__)
NO_SCORE = "-"
"""Text output for a sentence of a document that could not be scored."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ModelOptions):
    """The options of the command."""

    model: str = option(positional=True, metavar="MODEL")
    """model or run directory; M1,M2 is an ensemble"""
    source: str = option(positional=True, metavar="SOURCE")
    """source sentences, one a line, an empty line between documents, or JSONL"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """translations in the same format; not needed for JSONL with both sides"""
    output: str = option(STANDARD, flags=("-o",), metavar="FILE")
    """output file (-: standard output)"""
    format: Literal["text", "jsonl"] = "text"
    """text: one score a line, or - after a failure; jsonl: one JSON object a sentence"""
    alignments: bool = False
    """align the words of each sentence: character positions in source and target (needs --format jsonl)"""


def run(options: ScoreOptions) -> int:
    """Print the log-probability of every supplied target sentence."""
    check_outputs(options.output, inputs=[options.source, options.target])
    check_alignments(options.alignments, [options.format])
    corpus = read_corpus(options.source, options.target, "TARGET", keep_empty=True)
    if failed := count_untranslated(Path(options.target or options.source)):
        _log.warning(f"{failed:,} x sentence not translated (error), scored as an empty translation")
    pairs = [(Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in corpus]
    report, names = Report(), [document_name(options.source, document) for document in corpus]
    results = map_or_error(pairs, partial(_score, load_translator(options), options.alignments))
    scored = [report.check_result(name, result) for name, result in zip(names, results, strict=True)]
    if options.format == "jsonl":
        rows = [
            error_records(source, str(result)) if isinstance(result, DocmtError) else sentence_records(result)
            for result, (source, _) in zip(scored, pairs, strict=True)
        ]
        lines = [json.dumps(record, ensure_ascii=False) for document in rows for record in document]
        write_text(options.output, "".join(line + "\n" for line in lines))
    else:
        blocks = [_format_scores(result, len(pair.source)) for result, pair in zip(scored, corpus, strict=True)]
        write_text(options.output, "\n".join(blocks))
    return report.log(len(corpus), len(corpus) - len(report.failures), "documents", "scored")


def _score(
    translator: decoding.Translator, alignments: bool, pairs: Sequence[tuple[Document, Document]]
) -> list[Translation]:
    """Return the scored translations, with links if `alignments` is set."""
    scored = translator.score_all(pairs)
    return translator.align(scored) if alignments else scored


def _format_scores(scored: Translation | DocmtError, sentences: int) -> str:
    """Return a line for each sentence of a document, also for one that could not be scored."""
    if isinstance(scored, DocmtError):
        return f"{NO_SCORE}\n" * sentences
    return "".join(f"{sentence.score:.6f}\n" for sentence in scored.sentences)
