"""docmt evaluate --hypothesis FILE --reference FILE, or docmt evaluate --model DIR --source FILE --reference FILE"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt.cli.corpora import check_outputs, read_corpus
from docmt.cli.parsing import SEARCH_TITLE, add_model_options, add_settings, make_parser, parse, translator_of
from docmt.decoding import SearchConfig
from docmt.documents import Document
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError
from docmt.evaluation import (
    Evaluation,
    MetricConfig,
    evaluate_documents,
    evaluate_files,
    in_documents,
    in_units,
)

USAGE = """--hypothesis FILE --reference FILE [options]
--model DIRECTORY --source FILE --reference FILE [options]
--model DIRECTORY --source CORPUS.jsonl [options]"""


def run(arguments: Sequence[str]) -> int:
    """Prints s-BLEU, d-BLEU and chrF with their signatures."""
    parser = make_parser(
        "evaluate",
        "Scores translations, those of a file (--hypothesis) or those that a model makes of a source (--model): BLEU "
        "over sentences (s-BLEU) and over whole documents (d-BLEU), and chrF.",
        USAGE,
    )
    parser.add_argument(
        "--reference", type=str, metavar="FILE", help="reference sentences, one a line, an empty line between documents"
    )
    parser.add_argument("--hypothesis", type=str, metavar="FILE", help="translated sentences in the same form")
    parser.add_argument("--model", type=str, metavar="DIRECTORY", help="model or run directory to translate with")
    parser.add_argument(
        "--source", type=str, metavar="FILE", help="source sentences for --model; a JSONL corpus needs no --reference"
    )
    parser.add_argument("-o", "--output", type=str, metavar="FILE", help="where the translations of --model go")
    parser.add_argument(
        "--json", type=str, metavar="FILE", help="where the scores go as JSON, besides the table (- for only that)"
    )
    add_settings(parser, MetricConfig, "metrics", "how text becomes scores (scores compare only under equal settings)")
    add_settings(parser, SearchConfig, "search", f"{SEARCH_TITLE}, with --model", skip={"n_best"})
    add_model_options(parser)
    options = parse(parser, arguments)
    _check(options)
    evaluation = _evaluate_model(options) if options.model else _evaluate_file(options)
    if options.json:
        write_text(options.json, json.dumps(evaluation.to_json(), indent=2) + "\n")
    if options.json != "-":
        print(evaluation.format())
    return 0


def _check(options: Any) -> None:
    """Raises DocmtError for options that do not go together and for outputs that cannot be written."""
    if options.hypothesis and options.model:
        raise DocmtError("--hypothesis and --model both name translations: give one of them")
    if options.hypothesis:
        if not options.reference:
            raise DocmtError("--hypothesis needs --reference: name the file with the references")
        for name in ("source", "output"):
            if getattr(options, name):
                raise DocmtError(f"--{name} has no meaning with --hypothesis: leave it out, or give --model instead")
        if options.metrics.unit == "instance":
            protocol = options.metrics.protocol
            raise DocmtError(
                f"--metrics.{f'protocol {protocol}' if protocol else 'unit instance'} needs --model, whose instances "
                f"are its segments: {'set the other metrics options' if protocol else 'use unit document'} here"
            )
    elif not (options.model and options.source):
        raise DocmtError("give --hypothesis and --reference, or --model, --source and --reference")
    check_outputs(options.output, options.json)


def _evaluate_file(options: Any) -> Evaluation:
    return evaluate_files(Path(options.hypothesis), Path(options.reference), options.metrics)


def _evaluate_model(options: Any) -> Evaluation:
    corpus = read_corpus(options.source, options.reference)
    translator = translator_of(options)
    instances = None
    if options.metrics.unit == "instance":
        instances = [translator.instances(document.source, document.target) for document in corpus]
    units = in_units([document.source for document in corpus], instances)
    translations = translator.translate_all([Document.from_sentences(unit) for unit in units])
    hypotheses = in_documents([translation.document.sentences for translation in translations], instances)
    if options.output:
        write_text(options.output, "\n".join(Document.from_sentences(sentences).text() for sentences in hypotheses))
    return evaluate_documents(
        hypotheses,
        [document.target for document in corpus],
        options.metrics,
        instances,
        miscounted=sum(len(translation.miscounted) for translation in translations),
    )
