"""docmt score MODEL SOURCE TARGET"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from docmt.cli.parsing import add_model_options, make_parser, parse, translator_of
from docmt.cli.translate import records
from docmt.decoding import SearchConfig
from docmt.documents import Document, read_parallel
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError


def run(arguments: Sequence[str]) -> int:
    """Prints the log-probability of every given target sentence in its document."""
    parser = make_parser("score", "Log-probabilities (nats) that a model gives to translations, in document context.")
    parser.add_argument("model", type=str, help="model directory or run directory")
    parser.add_argument("source", type=str, help="source sentences (one a line, empty line between documents) or JSONL")
    parser.add_argument("target", type=str, nargs="?", help="their translations, line by line; not needed with JSONL")
    parser.add_argument("-o", "--output", type=str, default="-", help="output file")
    parser.add_argument(
        "--format",
        type=Literal["text", "jsonl"],
        default="text",
        help="text: one number a line, aligned with the source; jsonl: one JSON object per sentence",
    )
    parser.add_class_arguments(SearchConfig, "search")
    add_model_options(parser)
    options = parse(parser, arguments)
    target = Path(options.target) if options.target else None
    pairs = [
        (Document.from_sentences(d.source, id=d.id), Document.from_sentences(d.target, id=d.id))
        for d in read_parallel(Path(options.source), target)
    ]
    if not pairs:
        raise DocmtError(f"{options.source} holds no sentence: give a file with text")
    scored = translator_of(options).score_all(pairs)
    if options.format == "jsonl":
        lines = [json.dumps(record, ensure_ascii=False) for document in scored for record in records(document)]
        write_text(options.output, "".join(line + "\n" for line in lines))
    else:
        blocks = ["".join(f"{s.score:.6f}\n" for s in document.sentences) for document in scored]
        write_text(options.output, "\n".join(blocks))
    return 0
