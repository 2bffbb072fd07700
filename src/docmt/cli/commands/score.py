"""docmt score MODEL SOURCE TARGET

Prints the log-probability (nats) that a model gives to each sentence of given translations, in the context of their
document.

usage:
    MODEL SOURCE TARGET [options]
    MODEL CORPUS.jsonl [options]

examples:
    docmt score MODEL test.en test.de
    docmt score MODEL test.jsonl --format jsonl -o scores.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from docmt.cli.corpora import check_outputs, document_name, read_corpus
from docmt.cli.options import ModelOptions, Parser, translator_of
from docmt.cli.results import Report, error_records, records
from docmt.core.errors import DocmtError, map_or_error
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import option
from docmt.documents import Document

if TYPE_CHECKING:
    from docmt.decoding import Translation

NO_SCORE = "-"
"""Stands in the text output for a sentence of a document that could not be scored."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ModelOptions):
    """The options of the command."""

    model: str = option(positional=True, metavar="MODEL")
    """model or run directory; M1,M2 is an ensemble"""
    source: str = option(positional=True, metavar="SOURCE")
    """source sentences: one a line, an empty line between documents, or the `source` of JSONL; CORPUS.jsonl has both
    sides: {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or what docmt translate --format jsonl
    writes, {"document": "a", "source": "One.", "target": "Eins."}"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """their translations in the same form (of JSONL the `target`); not needed where SOURCE has both sides"""
    output: str = option(STANDARD, flags=("-o",), metavar="FILE")
    """output file; - for the terminal"""
    format: Literal["text", "jsonl"] = "text"
    """text: one number a line for each pair of sentences, an empty line between documents, - where a document could not
    be scored; jsonl: one JSON object per pair, with its score or with error"""


def parser() -> Parser[ScoreOptions]:
    """Return the parser of the command."""
    return Parser("score", ScoreOptions, __doc__, common="output format batch_tokens device precision")


def run(arguments: Sequence[str]) -> int:
    """Prints the log-probability of every given target sentence in its document."""
    options = parser().parse(arguments)
    check_outputs(options.output, inputs=[options.source, options.target])
    corpus = read_corpus(options.source, options.target, "TARGET")
    pairs = [(Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in corpus]
    report, names = Report(), [document_name(options.source, document) for document in corpus]
    results = map_or_error(pairs, translator_of(options).score_all)
    scored = [report.checked(name, result) for name, result in zip(names, results, strict=True)]
    if options.format == "jsonl":
        rows = [
            error_records(source, str(result)) if isinstance(result, DocmtError) else records(result)
            for result, (source, _) in zip(scored, pairs, strict=True)
        ]
        lines = [json.dumps(record, ensure_ascii=False) for document in rows for record in document]
        write_text(options.output, "".join(line + "\n" for line in lines))
    else:
        blocks = [_lines(result, len(pair.source)) for result, pair in zip(scored, corpus, strict=True)]
        write_text(options.output, "\n".join(blocks))
    return report.print(len(corpus), len(corpus) - len(report.failures), "documents", "scored")


def _lines(scored: Translation | DocmtError, sentences: int) -> str:
    """A line for each sentence of a document, whether or not it could be scored: they stay beside their source."""
    if isinstance(scored, DocmtError):
        return f"{NO_SCORE}\n" * sentences
    return "".join(f"{sentence.score:.6f}\n" for sentence in scored.sentences)
