"""docmt score MODEL SOURCE TARGET"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from docmt.cli.corpora import check_outputs, document_name, each_alone, read_corpus
from docmt.cli.options import CONTEXT_TITLE, Parser, add_model_options, add_settings, make_parser, parse, translator_of
from docmt.cli.results import Report, error_records, records
from docmt.core.plain_text import write_text
from docmt.decoding import ContextConfig
from docmt.documents import Document

if TYPE_CHECKING:
    from docmt.decoding import Translation

NO_SCORE = "-"
"""Stands in the text output for a sentence of a document that could not be scored."""


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "score",
        "Prints the log-probability (nats) that a model gives to each sentence of given translations, in the context "
        "of their document.",
        "MODEL SOURCE TARGET [options]\nMODEL CORPUS.jsonl [options]",
        examples=("docmt score MODEL test.en test.de", "docmt score MODEL test.jsonl --format jsonl -o scores.jsonl"),
        common=("output", "format", "batch_tokens", "device", "precision"),
    )
    made.add_argument("model", type=str, metavar="MODEL", help="model or run directory; M1,M2 is an ensemble")
    made.add_argument(
        "source",
        type=str,
        metavar="SOURCE",
        help="source sentences: one a line, an empty line between documents, or the `source` of JSONL; CORPUS.jsonl "
        'has both sides: {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or what docmt '
        'translate --format jsonl writes, {"document": "a", "source": "One.", "target": "Eins."}',
    )
    made.add_argument(
        "target",
        type=str,
        nargs="?",
        metavar="TARGET",
        help="their translations in the same form (of JSONL the `target`); not needed where SOURCE has both sides",
    )
    made.add_argument("-o", "--output", type=str, default="-", metavar="FILE", help="output file; - for the terminal")
    made.add_argument(
        "--format",
        type=Literal["text", "jsonl"],
        default="text",
        help="text: one number a line for each pair of sentences, an empty line between documents, - where a "
        "document could not be scored; jsonl: one JSON object per pair, with its score or with error",
    )
    add_settings(made, ContextConfig, "context", CONTEXT_TITLE)
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Prints the log-probability of every given target sentence in its document."""
    options = parse(parser(), arguments)
    check_outputs(options.output, inputs=[options.source, options.target])
    corpus = read_corpus(options.source, options.target, "TARGET")
    pairs = [(Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id)) for d in corpus]
    report, names = Report(), [document_name(options.source, document) for document in corpus]
    found = each_alone(pairs, names, translator_of(options).score_all, report.failures)
    scored = report.numbers_only(found, names)
    for name, document in zip(names, scored, strict=True):
        if document is not None:
            report.collect(name, document)
    if options.format == "jsonl":
        found_records = [
            records(document) if document is not None else error_records(source, report.reason(name))
            for document, (source, _), name in zip(scored, pairs, names, strict=True)
        ]
        lines = [json.dumps(record, ensure_ascii=False) for own in found_records for record in own]
        write_text(options.output, "".join(line + "\n" for line in lines))
    else:
        blocks = [_lines(document, len(pair.source)) for document, pair in zip(scored, corpus, strict=True)]
        write_text(options.output, "\n".join(blocks))
    return report.print(len(corpus), sum(document is not None for document in scored), "documents", "scored")


def _lines(scored: Translation | None, sentences: int) -> str:
    """A line for each sentence of a document, whether or not it could be scored: they stay beside their source."""
    if scored is None:
        return f"{NO_SCORE}\n" * sentences
    return "".join(f"{sentence.score:.6f}\n" for sentence in scored.sentences)
