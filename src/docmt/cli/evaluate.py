"""docmt evaluate --hypothesis FILE --reference FILE, or --model DIR with --source and --reference, or with --suite"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import check_outputs, document_name, each_alone, lines_beside, read_corpus
from docmt.cli.parsing import SEARCH_TITLE, Parser, add_model_options, add_settings, make_parser, parse, translator_of
from docmt.cli.results import Report
from docmt.cli.suites import add_suite_options, check_no_suite, evaluate_suites
from docmt.decoding import SearchConfig
from docmt.documents import Document, ParallelDocument
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError
from docmt.evaluation import (
    Evaluation,
    MetricConfig,
    evaluate_documents,
    evaluate_files,
    in_units,
)
from docmt.files import check_regular

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

USAGE = """--hypothesis FILE --reference FILE [options]
--model DIRECTORY --source FILE --reference FILE [options]
--model DIRECTORY --source CORPUS.jsonl [options]
--model DIRECTORY --suite NAME|FILE ... [options]
--systems DIRECTORY ... --suite NAME|FILE ... [options]"""
EXAMPLES = (
    "docmt evaluate --hypothesis output.de --reference test.de",
    "docmt evaluate --model MODEL --source test.en --reference test.de --beam 4 -o output.de",
    "docmt evaluate --model MODEL --suite test.contrastive.jsonl",
    "docmt evaluate --systems MODEL OTHER --suite phenomena --json answers.json",
)
COMMON = (
    "hypothesis",
    "model",
    "source",
    "reference",
    "suite",
    "output",
    "json",
    "metrics.protocol",
    "metrics.unit",
    "search.beam",
    "device",
)


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "evaluate",
        "Scores translations, those of a file (--hypothesis) or those that a model makes of a source (--model): BLEU "
        "over sentences (s-BLEU) and over whole documents (d-BLEU), and chrF. With --suite it counts how often models "
        "find the right one of several given translations the most probable, or say the form that context requires.",
        USAGE,
        examples=EXAMPLES,
        common=COMMON,
    )
    made.add_argument(
        "--reference",
        type=str,
        metavar="FILE",
        help="reference sentences, one a line, an empty line between documents, or the `target` of JSONL",
    )
    made.add_argument(
        "--hypothesis",
        type=str,
        metavar="FILE",
        help="translated sentences in the same form; of JSONL (docmt translate --format jsonl) the `target`",
    )
    made.add_argument(
        "--model",
        type=str,
        metavar="DIRECTORY",
        help="model or run directory to translate with; M1,M2 is an ensemble",
    )
    made.add_argument(
        "--source",
        type=str,
        metavar="FILE",
        help="source sentences for --model; JSONL with `source` and `target` needs no --reference",
    )
    made.add_argument(
        "--systems",
        type=str,
        nargs="+",
        metavar="SYSTEM",
        help="several model or run directories for --suite, the first of which the others are compared with",
    )
    add_suite_options(made)
    made.add_argument("-o", "--output", type=str, metavar="FILE", help="where the translations of --model go")
    made.add_argument(
        "--json", type=str, metavar="FILE", help="where the scores go as JSON, besides the table (- for only that)"
    )
    made.add_argument("--markdown", type=str, metavar="FILE", help="where the table goes as Markdown, with --suite")
    add_settings(made, MetricConfig, "metrics", "how text becomes scores (scores compare only under equal settings)")
    add_settings(made, SearchConfig, "search", f"{SEARCH_TITLE}, with --model", skip={"n_best"})
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Prints s-BLEU, d-BLEU and chrF with their signatures, or how often the right candidates were preferred."""
    options = parse(parser(), arguments)
    if options.suite:
        return evaluate_suites(options)
    check_no_suite(options)
    _check(options)
    if options.hypothesis:
        _tell(options, _evaluate_file(options), "", {})
        return 0
    return _evaluate_model(options)


def _tell(options: Any, evaluation: Evaluation, remark: str, more: dict[str, Any]) -> None:
    """Writes the scores: as a table with a last line, if there is a remark, and as JSON with more entries.

    The JSON says first what was scored, so that the files of several systems can be told apart.
    """
    if options.json:
        named = {name: getattr(options, name) for name in ("hypothesis", "model", "source", "reference")}
        named["beam"] = options.search.beam if options.model else None
        write_text(options.json, json.dumps({**named, **evaluation.to_json(), **more}, indent=2) + "\n")
    if options.json != "-":
        print(f"{evaluation.format()}\n{remark}" if remark else evaluation.format())


def _check(options: Any) -> None:
    """Raises DocmtError for options that do not go together and for outputs that cannot be written."""
    for name in ("systems", "markdown"):
        if getattr(options, name):
            raise DocmtError(f"--{name} needs --suite: name a test set")
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
        raise DocmtError(
            "give --hypothesis and --reference, or --model, --source and --reference, or --model and --suite"
        )
    check_outputs(options.output, options.json)
    if options.output:  # it is written line by line beside the source
        check_regular(options.source, "with -o it is read more than once, but is")


def _evaluate_file(options: Any) -> Evaluation:
    for path in (options.hypothesis, options.reference):
        check_regular(path, "it may be read more than once, but is")
    return evaluate_files(Path(options.hypothesis), Path(options.reference), options.metrics)


def _evaluate_model(options: Any) -> int:
    """Translates and scores; documents that cannot be translated are left out of the scores, on both sides."""
    corpus = read_corpus(options.source, options.reference)
    translator = translator_of(options)
    instances = [_instances(translator, document, options.metrics.unit) for document in corpus]
    report, names = Report(), [document_name(options.source, document) for document in corpus]
    sources = [in_units([document.source], [ranges]) for document, ranges in zip(corpus, instances, strict=True)]
    found = each_alone(sources, names, partial(_translate, translator), report.failures)
    for name, units, ranges in zip(names, found, instances, strict=True):
        if units is not None:
            for translation, (first, _) in zip(units, ranges, strict=True):
                report.collect(name, translation, first)
    hypotheses = [
        [sentence for unit in units for sentence in unit.document.sentences] if units else [""] * len(document.source)
        for units, document in zip(found, corpus, strict=True)
    ]
    if options.output:
        write_text(options.output, lines_beside(options.source, corpus, hypotheses))
    kept = [number for number, units in enumerate(found) if units]
    if kept:
        evaluation = evaluate_documents(
            [hypotheses[number] for number in kept],
            [corpus[number].target for number in kept],
            options.metrics,
            [instances[number] for number in kept] if options.metrics.unit == "instance" else None,
            miscounted=len(report.places["sentence_count"]),
        )
        left_out = len(corpus) - len(kept)
        remark = f"{left_out} of {len(corpus)} documents left out, as they could not be translated" if left_out else ""
        _tell(options, evaluation, remark, {"left_out": left_out, "warnings": report.counts()})
    return report.print(len(corpus), len(kept), "documents", "translated")


def _instances(translator: Translator, document: ParallelDocument, unit: str) -> list[tuple[int, int]]:
    """What is translated by itself: the instances of a document, or (of another unit) all of it."""
    if unit == "instance":
        return translator.instances(document.source, document.target)
    return [(0, len(document.source))]


def _translate(translator: Translator, documents: Sequence[Sequence[Sequence[str]]]) -> list[list[Translation]]:
    """The translations of the units of every document, all searched together."""
    units = [Document.from_sentences(unit) for document in documents for unit in document]
    translations = iter(translator.translate_all(units))
    return [[next(translations) for _ in document] for document in documents]
