"""docmt evaluate --hypothesis FILE --reference FILE, or docmt evaluate --model DIR --source FILE --reference FILE"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt.cli.parsing import add_model_options, make_parser, parse, translator_of
from docmt.decoding import SearchConfig
from docmt.documents import Document, read_parallel
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError
from docmt.evaluation import Evaluation, MetricConfig, evaluate_documents, evaluate_files


def run(arguments: Sequence[str]) -> int:
    """Prints s-BLEU, d-BLEU and chrF with their signatures."""
    parser = make_parser(
        "evaluate",
        "Scores translations: those of a file (--hypothesis), or those a model makes (--model and --source).",
    )
    parser.add_argument(
        "--reference", type=str, help="reference sentences, one a line, an empty line between documents"
    )
    parser.add_argument("--hypothesis", type=str, help="translated sentences in the same form")
    parser.add_argument("--model", type=str, help="model or run directory to translate with")
    parser.add_argument("--source", type=str, help="source sentences for --model; a JSONL corpus needs no --reference")
    parser.add_argument("-o", "--output", type=str, help="where the translations of --model go")
    parser.add_argument("--json", type=str, help="where the scores go as JSON, besides the table (- for only that)")
    parser.add_class_arguments(MetricConfig, "metrics")
    parser.add_class_arguments(SearchConfig, "search")
    add_model_options(parser)
    options = parse(parser, arguments)
    evaluation = _evaluate(options)
    if options.json:
        write_text(options.json, json.dumps(evaluation.to_json(), indent=2) + "\n")
    if options.json != "-":
        print(evaluation.format())
    return 0


def _evaluate(options: Any) -> Evaluation:
    if options.hypothesis and not options.model:
        if not options.reference:
            raise DocmtError("--hypothesis needs --reference: name the file with the references")
        return evaluate_files(Path(options.hypothesis), Path(options.reference), options.metrics)
    if not options.model or not options.source or options.hypothesis:
        raise DocmtError("give either --hypothesis and --reference, or --model, --source and --reference")
    reference = Path(options.reference) if options.reference else None
    corpus = list(read_parallel(Path(options.source), reference))
    if not corpus:
        raise DocmtError(f"{options.source} holds no sentence: give a file with text")
    translator = translator_of(options)
    translations = translator.translate_all([Document.from_sentences(d.source, id=d.id) for d in corpus])
    if options.output:
        write_text(options.output, "\n".join(translation.text() for translation in translations))
    hypotheses = [translation.document.sentences for translation in translations]
    references = [document.target for document in corpus]
    instances = None
    if options.metrics.unit == "instance":
        instances = [translator.instances(d.source, d.target) for d in corpus]
    return evaluate_documents(hypotheses, references, options.metrics, instances)
