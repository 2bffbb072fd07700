"""docmt evaluate --hypothesis FILE --reference FILE, or --model DIR with --source and --reference, or with --suite

Several systems are compared by `docmt.cli.systems`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from docmt.cli import usage
from docmt.cli.corpora import check_outputs, document_name, lines_beside, read_corpus
from docmt.cli.external import check_external, score_documents, score_files
from docmt.cli.options import (
    CONTEXT_TITLE,
    SEARCH_TITLE,
    Parser,
    add_model_options,
    add_settings,
    changed,
    make_parser,
    parse,
    translator_of,
)
from docmt.cli.suites import add_suite_options, check_no_suite, evaluate_suites
from docmt.cli.systems import compare_systems, read_references
from docmt.cli.translating import check_no_model, translate_corpus
from docmt.core.errors import DocmtError, printable
from docmt.core.files import check_regular
from docmt.core.plain_text import write_text
from docmt.decoding import ContextConfig, SearchConfig
from docmt.evaluation import (
    Evaluation,
    MetricConfig,
    SignificanceConfig,
    UsageConfig,
    evaluate_files,
)
from docmt.evaluation.external import ExternalConfig, ExternalScore

USAGE = """--hypothesis FILE --reference FILE [options]
--model DIRECTORY --source FILE --reference FILE [options]
--model DIRECTORY --source CORPUS.jsonl [options]
--systems SYSTEM SYSTEM [SYSTEM ...] [--source FILE] --reference FILE [options]
--model DIRECTORY --suite NAME|FILE ... [options]
--systems DIRECTORY ... --suite NAME|FILE ... [options]
--model DIRECTORY --source FILE --reference FILE --context_usage [options]"""
EXAMPLES = (
    "docmt evaluate --hypothesis output.de --reference test.de",
    "docmt evaluate --model MODEL --source test.en --reference test.de --beam 4 -o output.de",
    "docmt evaluate --systems baseline.de other.de third.de --reference test.de",
    "docmt evaluate --model MODEL --suite test.contrastive.jsonl",
    "docmt evaluate --systems MODEL OTHER --suite phenomena --json answers.json",
)
COMMON = (
    "hypothesis",
    "model",
    "systems",
    "source",
    "reference",
    "suite",
    "output",
    "json",
    "markdown",
    "metrics.protocol",
    "metrics.unit",
    "significance.test",
    "significance.resample",
    "search.beam",
    "device",
)


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "evaluate",
        "Scores translations, those of a file (--hypothesis) or those that a model makes of a source (--model): BLEU "
        "over sentences (s-BLEU) and over whole documents (d-BLEU), chrF of both kinds, and TER. Several systems "
        "(--systems, or several files or models) are compared with the first. With --suite it counts how often models "
        "find the right one of several given translations the most probable, or say the form that context requires.",
        USAGE,
        examples=EXAMPLES,
        common=COMMON,
    )
    made.add_argument(
        "--reference",
        type=str,
        nargs="+",
        metavar="FILE",
        help="reference sentences, one a line, an empty line between documents, or the `target` of JSONL; several "
        "files are several references of the same sentences",
    )
    made.add_argument(
        "--hypothesis",
        type=str,
        nargs="+",
        metavar="FILE",
        help="translated sentences in the same form; of JSONL (docmt translate --format jsonl) the `target`; several "
        "files are compared",
    )
    made.add_argument(
        "--model",
        type=str,
        nargs="+",
        metavar="DIRECTORY",
        help="model or run directory to translate with; M1,M2 is an ensemble; several are compared",
    )
    made.add_argument(
        "--systems",
        type=str,
        nargs="+",
        metavar="SYSTEM",
        help="systems to compare with the first: files as for --hypothesis, directories as for --model, or both kinds",
    )
    made.add_argument(
        "--source",
        type=str,
        metavar="FILE",
        help="source sentences for --model; JSONL with `source` and `target` needs no --reference",
    )
    add_suite_options(made)
    made.add_argument(
        "-o",
        "--output",
        type=str,
        metavar="PATH",
        help="where the translations of a model go; of several systems a directory, with a file for each model",
    )
    made.add_argument(
        "--json", type=str, metavar="FILE", help="where the scores go as JSON, besides the table (- for only that)"
    )
    made.add_argument(
        "--markdown",
        type=str,
        metavar="FILE",
        help="where the table of several systems, or of --suite, goes as Markdown (- as for JSON)",
    )
    made.add_argument(
        "--context_usage",
        type=bool,
        default=False,
        help="how much --model uses its context: what it adds to the probability of the reference (CXMI), and what "
        "that of another document adds; with --suite, how many items are right with true, no and another context",
    )
    made.add_argument(
        "--by_position",
        type=bool,
        default=False,
        help="also s-BLEU and chrF of the first sentences of documents, the second ones, and so on",
    )
    add_settings(made, UsageConfig, "usage", "how the use of context is measured, with --context_usage")
    add_settings(made, MetricConfig, "metrics", "how text becomes scores (scores compare only under equal settings)")
    add_settings(made, SignificanceConfig, "significance", "how several systems are compared, and intervals drawn")
    add_settings(made, ExternalConfig, "external", "a metric that is a process of its own, such as COMET")
    add_settings(made, SearchConfig, "search", f"{SEARCH_TITLE}, with --model", skip={"n_best"})
    add_settings(made, ContextConfig, "context", f"{CONTEXT_TITLE}, with --model")
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Prints s-BLEU, d-BLEU and chrF with their signatures, or how often the right candidates were preferred."""
    options = parse(parser(), arguments)
    _sort_systems(options)
    check_external(options)
    _check_metrics(options)
    if options.context_usage:
        return usage.run(options)
    usage.check_unasked(options)
    if options.suite:
        return evaluate_suites(options)
    check_no_suite(options)
    if options.systems:
        return compare_systems(options)
    _check(options)
    if options.hypothesis:
        _tell(options, _evaluate_file(options), "", {}, partial(score_files, options))
        return 0
    return _evaluate_model(options)


def _check_metrics(options: Any) -> None:
    """Raises DocmtError for a language that nothing asks for."""
    if options.metrics.language and options.metrics.text == "plain":
        raise DocmtError(
            "--metrics.language has no meaning for plain text: leave it out, or set metrics.text or a protocol"
        )


def _sort_systems(options: Any) -> None:
    """Sees to it that `systems` has all systems if several are compared, else `model` or `hypothesis` the only one.

    With --suite `systems` has all models, and `model` the only one. `reference` becomes the first of `references`.
    """
    given = [name for name in ("hypothesis", "model", "systems") if getattr(options, name)]
    if options.suite and "hypothesis" in given:
        given.remove("hypothesis")  # which has no meaning there at all
    if len(given) > 1:
        raise DocmtError(
            f"--{given[0]} and --{given[1]} both name translations: give one of them (--systems takes all)"
        )
    named = [name for option in given for name in getattr(options, option)]
    for option in given:
        setattr(options, option, named[0] if len(named) == 1 else None)
    compared = len(named) > 1 or given == ["systems"] or options.suite
    options.systems = named if compared else []
    options.references = options.reference or []
    options.reference = options.references[0] if options.references else None


def _tell(
    options: Any, evaluation: Evaluation, remark: str, more: dict[str, Any], score: Callable[[], ExternalScore | None]
) -> None:
    """Writes the scores: as a table with a last line, if there is a remark, and as JSON with more entries.

    The JSON says first what was scored, so that the files of several systems can be told apart.
    `score` asks the external metric, if there is one; should it fail, the other scores are written all the same.
    """
    places = usage.by_position(options, {options.hypothesis or options.model: evaluation})
    external, failure = None, None
    try:
        external = score()
    except DocmtError as error:
        failure = error
    if options.json:
        named = {name: getattr(options, name) for name in ("hypothesis", "model", "source", "reference")}
        more = {**more, "by_position": places.to_json()} if places else more
        named["references"] = options.references
        named["beam"] = options.search.beam if options.model else None
        more = {**more, "external": external.to_json() if external else None}
        write_text(options.json, json.dumps({**named, **evaluation.to_json(), **more}, indent=2) + "\n")
    if options.json != "-":
        lines = [evaluation.format(), printable(external.format()) if external else "", remark]
        print("\n".join(filter(None, [*lines, f"\n{places.format()}" if places else ""])))
    if failure is not None:
        raise failure
    usage.check_positions(options, {options.hypothesis or options.model: evaluation})


def _check(options: Any) -> None:
    """Raises DocmtError for options that do not go together and for outputs that cannot be written."""
    drawn = {name: getattr(options.significance, name) for name in ("samples", "seed") if options.by_position}
    unused = changed(options.significance, SignificanceConfig(**drawn), "significance")
    unused += ["markdown"] if options.markdown else []
    if unused:
        raise DocmtError(f"--{unused[0]} is for comparing several systems: name more than one, or leave it out")
    if options.hypothesis:
        if not options.reference:
            raise DocmtError("--hypothesis needs --reference: name the file with the references")
        for name in ("output",) if options.external.command else ("source", "output"):
            if getattr(options, name):
                raise DocmtError(f"--{name} has no meaning with --hypothesis: leave it out, or give --model instead")
        check_no_model(options)
        if options.metrics.unit == "instance":
            protocol = options.metrics.protocol
            raise DocmtError(
                f"--metrics.{f'protocol {protocol}' if protocol else 'unit instance'} needs --model, whose instances "
                f"are its segments: {'set the other metrics options' if protocol else 'use unit document'} here"
            )
    elif not (options.model and options.source):
        raise DocmtError(
            "give --hypothesis and --reference, or --model, --source and --reference, or --systems and --reference, or "
            "--suite with --model or --systems"
        )
    inputs = [options.hypothesis, options.source, *options.references]
    check_outputs(options.output, options.json, inputs=inputs)
    if options.output:  # it is written line by line beside the source
        check_regular(options.source, "with -o it is read more than once, but is")


def _evaluate_file(options: Any) -> Evaluation:
    for path in (options.hypothesis, *options.references):
        check_regular(path, "it may be read more than once, but is")
    more = options.references[1:]
    return evaluate_files(options.hypothesis, options.reference, options.metrics, more_references=more)


def _evaluate_model(options: Any) -> int:
    """Translates and scores; documents that cannot be translated are left out of the scores, on both sides."""
    corpus = read_corpus(options.source, options.reference)
    references = read_references(options, corpus)
    names = [document_name(options.source, document) for document in corpus]
    found = translate_corpus(translator_of(options), corpus, options.metrics.unit, names)
    if options.output:
        write_text(options.output, lines_beside(options.source, corpus, found.hypotheses))
    kept = [number for number in range(len(corpus)) if number not in found.failed]
    if kept:
        evaluation = found.evaluate(references, kept, options.metrics)
        left_out = len(found.failed)
        remark = f"{left_out} of {len(corpus)} documents left out, as they could not be translated" if left_out else ""
        external = partial(score_documents, options, corpus, found.hypotheses, kept)
        _tell(options, evaluation, remark, {"left_out": left_out, "warnings": found.report.counts()}, external)
    return found.report.print(len(corpus), len(kept), "documents", "translated")
