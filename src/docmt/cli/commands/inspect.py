"""docmt score and docmt inspect: what a model makes of supplied translations, and what it is."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from docmt import analysis, decoding
from docmt.analysis.figures import METRICS_FILE, draw_curves, figure_format, read_curves, summarize_run
from docmt.cli.model_arguments import (
    SEARCH_DETAILS,
    ModelOptions,
    document_name,
    load_translator,
    read_corpus,
    short_names,
)
from docmt.cli.output import (
    Report,
    call_or_report,
    check_alignments,
    check_outputs,
    error_records,
    map_or_report,
    print_table,
    sentence_records,
    write_json,
)
from docmt.core.errors import DocmtError, map_or_error, printable
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.settings import Excludes, Needs, option
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation_results import Translation
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus_files import count_untranslated

_log = logging.getLogger(__name__)
NO_SCORE = "-"
"""Text output for a sentence of a document that could not be scored."""
_NOT_COMPUTED = "has no effect without {}, because nothing is computed: leave it out"
DRAWN_TOKENS = 60
"""Longest side of a heat map."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ModelOptions):
    """docmt score MODEL SOURCE TARGET

    Print the log-probability (nats) of each sentence of supplied translations, in the context of its document. JSONL
    has one object a line, {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or {"document": "a",
    "source": "One.", "target": "Eins."} for each sentence.

    usage:
        MODEL SOURCE TARGET [options]
        MODEL CORPUS.jsonl [options]

    examples:
        docmt score MODEL test.en test.de
        docmt score MODEL test.jsonl --format jsonl -o scores.jsonl

    common:
        output format alignments batch_tokens device precision
    """

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


def run_score(options: ScoreOptions) -> int:
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


@dataclass(frozen=True, kw_only=True)
class InspectOptions(ModelOptions):
    """docmt inspect MODEL, docmt inspect MODEL SOURCE [TARGET], and docmt inspect --curves RUN RUN ...

    Describe a model and its training. With text, measure its attention (entropy and distance by layer and head) and its
    context gates. With --curves, compare the learning curves of trainings.

    usage:
        MODEL [options]
        MODEL SOURCE [TARGET] [--figure FILE] [options]
        --curves RUN RUN ... [--figure FILE]

    examples:
        docmt inspect MODEL
        docmt inspect MODEL test.en test.de --json looks.json
        docmt inspect --curves runs/group runs/concat --figure curves.png

    common:
        figure json curves search.beam device
    """

    model: str = option("", positional=True, metavar="MODEL")
    """model or run directory"""
    source: str = option("", positional=True, metavar="SOURCE")
    """source sentences, one a line, an empty line between documents, or JSONL"""
    target: str | None = option(None, positional=True, metavar="TARGET")
    """translations in the same format (default: those of the model)"""
    figure: Path | None = option(None, metavar="FILE")
    """draw --curves, or attention in the first sentences, to a .png, .svg or .pdf file; numbers beside it as .json"""
    json: str | None = option(None, metavar="FILE")
    """write all numbers as JSON (-: to standard output)"""
    curves: list[Path] = option([], metavar="RUN")
    """run directories, or metrics.jsonl files"""
    search: SearchConfig = option(SearchConfig(), skip=SEARCH_DETAILS)
    """beam search"""

    option_rules = (
        Excludes("curves", "model", "and {} are both set: inspect trainings or a model"),
        *(Needs(name, "source", _NOT_COMPUTED) for name in ("device", "precision", "batch_tokens")),
        Needs("search", "source", "has no effect without {}: leave it out"),
        Needs("context", "source", "has no effect without {}: leave it out"),
        Excludes("search", "target", "has no effect with {}, because nothing is translated: leave it out"),
    )

    def metrics_files(self) -> dict[Path, Path]:
        """Return the file of metrics of each path of --curves."""
        return {path: path / METRICS_FILE if path.is_dir() else path for path in self.curves}

    def numbers_files(self) -> list[str]:
        """Return the JSON files to write: --json, and the one beside the figure. Both may be the same."""
        beside = [str(self.figure.with_suffix(".json"))] if self.figure else []
        return list(dict.fromkeys(filter(None, [*beside, self.json])))


def run_inspect(options: InspectOptions) -> int:
    """Describe a model, measure its attention, or compare learning curves."""
    _check(options)
    if options.curves:
        return _compare_runs(options)
    from docmt.checkpoint.model_names import parse_model_paths  # imported here because torch loads slowly

    if len(paths := parse_model_paths(options.model)) > 1:
        raise DocmtError(f"{options.model} is an ensemble: inspect one model at a time, such as {paths[0]}")
    if options.source:
        return _inspect_attention(options)
    from docmt.analysis.model_summary import ModelSummary

    facts = ModelSummary.from_directory(options.model)
    _write_report(options, facts.format(), facts.to_json())
    return 0


def _check(options: InspectOptions) -> None:
    """Raise DocmtError for incompatible options and for outputs that cannot be written."""
    if not options.curves and not options.model:
        raise DocmtError("MODEL is missing; name a model directory, or run directories with --curves")
    if options.figure and not (options.curves or options.source):
        raise DocmtError("--figure draws learning curves or attention: name run directories with --curves, or SOURCE")
    outputs = options.numbers_files()
    if options.figure:
        figure_format(options.figure)
        outputs.append(str(options.figure))
    check_outputs(*outputs, inputs=[options.source, options.target, *map(str, options.metrics_files().values())])


def _compare_runs(options: InspectOptions) -> int:
    """Compare the learning curves of several trainings."""
    files = options.metrics_files()
    runs = dict(zip(short_names(list(map(str, files))), files.values(), strict=True))
    curves_of_runs = {name: read_curves(path) for name, path in runs.items()}
    if options.figure:
        draw_curves(runs, options.figure)
    width, lines, numbers = max(map(len, runs)), [], {}
    for name, curves in curves_of_runs.items():
        facts = ", ".join(f"{key.replace('_', ' ')} {value:,.5g}" for key, value in summarize_run(curves).items())
        lines.append(f"{name:<{width}}  {facts or 'no metrics yet'}")
        # Names that are not UTF-8 are escaped in the file, as in the table and the figure.
        numbers[printable(name)] = {key: vars(curve) for key, curve in curves.items()}
    _write_report(options, "\n".join(lines), {"runs": numbers})
    return 0


def _inspect_attention(options: InspectOptions) -> int:
    """Measure the attention of a model in a corpus. Failed documents do not stop the others."""
    import torch  # imported here because it loads slowly

    from docmt.core.progress import progress
    from docmt.evaluation.metrics import format_count
    from docmt.model.products import precision_context

    corpus, failures = _read_corpus(options), Report()
    translator = load_translator(options)
    documents = corpus if options.target else _translate_corpus(options, corpus, translator, failures)
    report, inspected = analysis.AttentionReport(), list[ParallelDocument]()
    with (
        torch.inference_mode(),
        precision_context(translator.model, translator.precision),
        progress(f"recording attention on {translator.device} (sentences)", sum(map(len, documents))) as bar,
    ):
        for document in documents:
            record = partial(_record_attention, translator, document, report)
            if recorded := call_or_report(document_name(options.source, document), record, failures.failures):
                report = recorded
                inspected.append(document)
            bar.advance(len(document))
    if report.attentions:
        sentences, kind = sum(map(len, inspected)), "supplied" if options.target else "own"
        counts = f"{format_count(len(inspected), 'document')}, {format_count(sentences, 'sentence')}"
        numbers: dict[str, Any] = {name: getattr(options, name) for name in ("model", "source", "target")}
        numbers |= {"documents": len(inspected), "sentences": sentences, **report.to_json()}
        _write_report(options, f"{counts}, {kind} translations\n\n{report.format()}", numbers)
        if options.figure:
            draw = partial(_draw_attention, options.figure, translator, inspected[0])
            if drawn := call_or_report(document_name(options.source, inspected[0]), draw, failures.failures):
                _log.info("%s", drawn)
    return failures.log(len(corpus), len(inspected), "documents", "inspected")


def _read_corpus(options: InspectOptions) -> list[ParallelDocument]:
    """Return the documents, with empty translations if there is no TARGET."""
    if options.target:
        return read_corpus(options.source, options.target)
    corpus = []
    for number, (id, sentences) in enumerate(read_documents(Path(options.source)), 1):
        if filled := tuple(filter(None, sentences)):
            corpus.append(ParallelDocument(id, filled, ("",) * len(filled), number))
    if not corpus:
        raise DocmtError(f"{options.source} holds no sentences: name a file with text")
    return corpus


def _translate_corpus(
    options: InspectOptions, corpus: Sequence[ParallelDocument], translator: decoding.Translator, failures: Report
) -> list[ParallelDocument]:
    """Return the documents with translations of the model, without failed ones."""
    sources = [Document.from_sentences(document.source, id=document.id) for document in corpus]
    names = [document_name(options.source, document) for document in corpus]
    translations = map_or_report(sources, names, translator.translate_all, failures.failures)
    return [
        replace(document, target=tuple(translation.document.sentences))
        for document, translation in zip(corpus, translations, strict=True)
        if translation is not None
    ]


def _record_attention(
    translator: decoding.Translator, document: ParallelDocument, earlier: analysis.AttentionReport
) -> analysis.AttentionReport:
    """Return a report with the attention of the model while it scores the translation of one more document."""
    from docmt.analysis.token_maps import scoring_passes

    report = deepcopy(earlier)  # a document may fail midway
    target = translator.encode(document.target, "target")
    analysis.report_attention(translator.model, scoring_passes(translator, document.source, target), report)
    return report


def _draw_attention(figure: Path, translator: decoding.Translator, document: ParallelDocument) -> str:
    """Draw the attention of the last layers in the first sentences of a document. Return which these are."""
    sides = translator.encode(document.source, "source"), translator.encode(document.target, "target")
    lengths = accumulate(max(map(len, pair)) + 2 for pair in zip(*sides, strict=True))  # with boundary tokens
    count = max(1, sum(length <= DRAWN_TOKENS for length in lengths))
    source, target = (Document.from_sentences(side[:count]) for side in (document.source, document.target))
    maps = analysis.attention_maps(translator, translator.score(source, target))
    last = {name.rpartition(" ")[0]: name for name in maps}  # of each kind, the last layer
    analysis.draw_attention({name: maps[name] for name in last.values()}, figure)
    name = document_name(str(figure), document)
    return f"{name}: the last layer of each kind in {count} of {len(document)} sentences, means over heads"


def _write_report(options: InspectOptions, table: str, numbers: dict[str, Any]) -> None:
    """Print the table, and write the numbers beside the figure and to --json."""
    for path in options.numbers_files():
        write_json(path, numbers, indent=None)
    print_table(options, table)
