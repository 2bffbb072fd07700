"""docmt probe: whether models use their context."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from docmt import decoding, evaluation
from docmt.cli.model_arguments import (
    SEARCH_DETAILS,
    ModelOptions,
    check_models,
    check_unique,
    document_name,
    load_translator,
    read_corpus,
    short_names,
)
from docmt.cli.output import Report, call_or_report, check_outputs, map_or_report, print_table, write_results
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.progress import progress_prefix
from docmt.core.settings import Excludes, Needs, option
from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translation_results import Translation
from docmt.documents import ParallelDocument
from docmt.evaluation.context_usage import (
    CONDITIONS,
    SCORED_CONDITIONS,
    check_has_context,
    document_gains,
    score_with_and_without_context,
    shuffle_contexts,
)
from docmt.evaluation.contrastive import SuiteRow, build_suite_rows, suite_markdown, suite_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(ModelOptions):
    """docmt probe MODEL --suite NAME|FILE

    Measure whether models use their context. --suite counts how often a model prefers the right translation, or
    produces the form that context requires. --source and --reference measure the effect of context on the
    log-probability of the reference (CXMI).

    usage:
        MODEL [MODEL ...] --suite NAME|FILE [NAME|FILE ...] [options]
        MODEL [MODEL ...] --source FILE --reference FILE [options]
        MODEL [MODEL ...] --source CORPUS.jsonl [options]

    examples:
        docmt probe MODEL --suite test.contrastive.jsonl
        docmt probe MODEL OTHER --suite phenomena --json answers.json
        docmt probe MODEL --suite phenomena --context-ablation
        docmt probe MODEL --source test.en --reference test.de

    common:
        suite source reference context_ablation translate json markdown search.beam device
    """

    models: list[str] = option(positional=True, metavar="MODEL")
    """model or run directories, or M1,M2 for an ensemble; compared with the first"""
    suite: list[str] = option([], metavar="NAME|FILE")
    """discourse test sets: files (JSONL, ContraPro, DiscEvalMT, ctxPro), or pronouns, phenomena"""
    source: str | None = option(None, metavar="FILE")
    """source sentences, one a line, an empty line between documents, or JSONL"""
    reference: str | None = option(None, metavar="FILE")
    """reference sentences in the same format; not needed for JSONL with both sides"""
    context_ablation: bool = False
    """also run --suite without context, with the context of another item, and with noise in its place"""
    translate: bool = False
    """with --context-ablation: also translate contrastive items, and count which candidate's form comes first"""
    json: str | None = option(None, metavar="FILE")
    """write all results as JSON (-: to standard output)"""
    markdown: str | None = option(None, metavar="FILE")
    """write the table of --suite as Markdown (-: to standard output); not with --context-ablation"""
    contrastive: evaluation.SuiteConfig = field(default_factory=evaluation.SuiteConfig)
    """comparison of the candidates of --suite"""
    cxmi: evaluation.UsageConfig = field(default_factory=evaluation.UsageConfig)
    """measurement of context usage on the references"""
    significance: evaluation.SignificanceConfig = option(evaluation.SignificanceConfig(), skip=("test", "resample"))
    """confidence intervals"""
    search: SearchConfig = option(SearchConfig(), skip=SEARCH_DETAILS)
    """beam search"""

    option_rules = (
        Needs("context_ablation", "suite"),
        Needs("markdown", "suite"),
        Needs("contrastive", "suite"),
        Needs("reference", "source"),
        Needs("cxmi", "source"),
        Needs("translate", "context_ablation"),
        Excludes("markdown", "context_ablation", "does not go with {}, which has several tables: use --json"),
    )


@dataclass
class Probe:
    """Results of one model."""

    answers: dict[str, evaluation.ContrastiveResult] = field(default_factory=dict)
    """answers to each test set, by its name or path"""
    warnings: dict[str, int] = field(default_factory=dict)
    """counts of the warnings on the answers"""
    usage: dict[str, Any] = field(default_factory=dict)
    """context usage, for the JSON"""
    status: int = 0


@dataclass(frozen=True)
class ProbeRun:
    """One call of the command: options, test sets and corpus."""

    options: ProbeOptions
    suites: Mapping[str, evaluation.Suite]
    """test sets by name or path"""
    corpus: Sequence[ParallelDocument]
    names: Mapping[str, str]
    """a short unique name of each model"""

    def prefix(self, model: str) -> str:
        """Return the name of a model as a prefix of messages, if there are several models."""
        return f"{self.names[model]}: " if len(self.names) > 1 else ""

    def label_progress(self, model: str, suite: str) -> AbstractContextManager[None]:
        """Return a context manager that labels progress with model and test set, if there are several."""
        return progress_prefix(f"{self.prefix(model)}{suite}" if len(self.names) > 1 or len(self.suites) > 1 else "")


def run_probe(options: ProbeOptions) -> int:
    """Print the accuracy of models on test sets, and their context usage."""
    command = _read(options)
    probes, failures = dict[str, Probe](), list[str]()
    missing: list[str] = []
    for number, model in enumerate(options.models):
        try:
            if (probe := call_or_report(model, partial(_probe, command, model), failures)) is not None:
                probes[model] = probe
        except KeyboardInterrupt:  # write the results of finished models
            if not (probes or failures):
                raise
            missing = options.models[number:]
            break
    if probes:
        _write(command, probes)
    for failure in failures:
        _log.error(failure)
    if missing:
        _log.warning(f"interrupted: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        return INTERRUPTED
    return max([2 if failures else 0, *(probe.status for probe in probes.values())])


def _read(options: ProbeOptions) -> ProbeRun:
    """Check the options and read the inputs. Raises DocmtError for invalid inputs, outputs or combinations."""
    if not (options.suite or options.source):
        raise DocmtError("nothing to measure: name test sets (--suite), or a corpus (--source and --reference)")
    check_unique(options.models, "the list of models")
    check_unique(options.suite, "--suite")
    inputs = [*options.suite, options.source, options.reference]
    check_outputs(options.json, options.markdown, inputs=inputs)
    suites = {name: evaluation.read_suite(name) for name in options.suite}
    corpus = read_corpus(options.source, options.reference) if options.source else []
    if options.translate and all(suite.generative for suite in suites.values()):
        raise DocmtError("--translate needs a contrastive --suite: add one, or leave --translate out")
    if options.context_ablation:
        for suite in suites.values():
            shuffle_contexts(suite.items, options.significance.seed)
    if corpus:
        check_has_context(max(map(len, corpus)))
    for model, languages in check_models(options.models, options.context, options.search).items():
        for suite in suites.values():
            suite.check_languages(model, languages)
    for remark in (remark for suite in suites.values() for remark in suite.remarks()):
        _log.warning(remark)
    names = dict(zip(options.models, short_names(options.models), strict=True))
    return ProbeRun(options, suites, corpus, names)


def _probe(command: ProbeRun, model: str) -> Probe:
    """Measure one model, which is loaded only here, and log warnings on its results."""
    options, translator, probe = command.options, load_translator(command.options, model), Probe()
    texts, report = [], Report()
    total, done = len(command.corpus), 0
    if command.suites and not options.context_ablation:
        _run_suites(command, model, translator, probe)
    elif command.suites:
        texts.append(_run_suites_in_contexts(command, model, translator, probe, report))
        total, done = total + len(command.suites), len(probe.usage["suites"])
    if command.corpus:
        texts.append(_measure_context_gain(command, model, translator, probe, report))
        done += len(command.corpus) - probe.usage["left_out"]
    if texts:
        probe.usage["warnings"] = report.counts()
        nouns = ["test sets"] * options.context_ablation + ["documents"] * bool(command.corpus)
        probe.status = max(probe.status, report.log(total, done, " and ".join(nouns), "scored"))
        text = "\n\n".join(filter(None, texts))
        print_table(options, f"{model}\n{text}\n" if text and len(options.models) > 1 else text)
    return probe


def _run_suites(command: ProbeRun, model: str, translator: decoding.Translator, probe: Probe) -> None:
    """Run a model on every test set."""
    report, config = Report(), command.options.contrastive
    for name, suite in command.suites.items():
        collect = partial(_collect, report, f"{command.prefix(model)}{name}", suite, "")
        with command.label_progress(model, name):
            if suite.generative:
                probe.answers[name] = evaluation.evaluate_translations(translator, suite.items, collect)
            else:
                probe.answers[name] = evaluation.evaluate_items(translator, suite.items, config, collect)
    counts = [result.overall for result in probe.answers.values()]
    items, failed = (sum(getattr(count, name) for count in counts) for name in ("total", "unanswered"))
    probe.warnings, probe.status = report.counts(), report.log(items, items - failed, "items", "answered")


def _collect(
    report: Report, name: str, suite: evaluation.Suite, condition: str, number: int, result: Translation | DocmtError
) -> None:
    """Add the error of an item, or the warnings on its translation, to the report. name: of the test set."""
    item = suite.items[number]
    id = "" if item.id in ("", str(number + 1)) else f" ({item.id!r})"
    location = f"{name}, item {number + 1}{id}{f', {condition} context' if condition else ''}"
    if isinstance(result, DocmtError):
        report.failures.append(f"{location}: {result}")
        return
    if condition not in ("", CONDITIONS[0]):
        result = replace(result, overlong=())  # reported only for the first condition
    has_target_only = len(result.sentences) < len(item.source)  # the tested sentence without its context
    report.add_warnings(location, result, item.sentence if has_target_only else 0)


def _run_suites_in_contexts(
    command: ProbeRun, model: str, translator: decoding.Translator, probe: Probe, report: Report
) -> str:
    """Run a model on every test set with true, empty and shuffled context, and with noise. Return the text table.

    Failed test sets are reported and left out.
    """
    options, prefix = command.options, command.prefix(model)
    rows, values = list[SuiteRow](), dict[str, Any]()
    remarks, tables = list[str](), list[str]()
    for short, (name, suite) in zip(short_names(options.suite), command.suites.items(), strict=True):
        collect = partial(_collect, report, f"{prefix}{name}", suite)
        measure = partial(
            evaluation.compare_suite_contexts,
            *(translator, suite.items, options.contrastive, options.significance, collect),
            translate=options.translate,
        )
        with command.label_progress(model, name):
            result = call_or_report(f"{prefix}{name}", measure, report.failures)
        if result is not None:
            rows += result.rows(short)
            values[name] = result.to_json()
            if result.marked:
                tables.append(f"{short}: {result.marked.format()}")
            if result.skipped:
                remarks.append(
                    f"{result.skipped:,} of {len(suite.items):,} items of {short} are left out of all contexts: they "
                    "have none, one for each candidate, or one on a side where others have too few sentences"
                )
    probe.usage |= {**asdict(options.contrastive), "suites": values}
    if options.translate or any(suite.generative for suite in command.suites.values()):
        probe.usage["beam"] = options.search.beam
    if not rows:
        return ""
    columns = [f"{name} context" for name in SCORED_CONDITIONS[: max(len(row.counts) for row in rows)]]
    return "\n\n".join(["\n".join([suite_text(rows, columns, columns[0]), *remarks]), *tables])


def _measure_context_gain(
    command: ProbeRun, model: str, translator: decoding.Translator, probe: Probe, report: Report
) -> str:
    """Measure the effect of context on the scores of the references. Return the text tables.

    Failed documents and failed measurements are reported and left out.
    """
    options, prefix = command.options, command.prefix(model)
    names = [prefix + document_name(str(options.source), document) for document in command.corpus]
    results = map_or_report(command.corpus, names, partial(score_with_and_without_context, translator), report.failures)
    documents, gains = [], []
    for name, document, scores in zip(names, command.corpus, results, strict=True):
        if scores is not None:
            report.add_warnings(name, scores[0])
            documents.append(document)
            gains.append(document_gains(document, *scores))
    parts: dict[str, evaluation.ContextGain | evaluation.ContextComparison] = {}
    if documents:
        parts["context_gain"] = evaluation.context_gain(gains, options.cxmi, options.significance)
    if options.cxmi.replaced_sentences and len(documents) == 1:
        _log.warning("there is only one document: the context of another document is not measured")
    elif options.cxmi.replaced_sentences and documents:
        measure = partial(evaluation.compare_contexts, translator, documents, options.cxmi, options.significance)
        contexts = call_or_report(f"{prefix}true, empty and shuffled context", measure, report.failures)
        if contexts is not None:
            parts["other_context"] = contexts
    probe.usage |= {"source": options.source, "reference": options.reference}
    probe.usage |= {"before": options.cxmi.replaced_sentences, "examples": options.cxmi.examples}
    probe.usage |= {"left_out": len(command.corpus) - len(documents)}
    probe.usage |= {name: part.to_json() for name, part in parts.items()}
    return "\n\n".join(part.format() for part in parts.values())


def _write(command: ProbeRun, probes: Mapping[str, Probe]) -> None:
    """Print one table of the results of all models on the test sets, and write the output files."""
    options = command.options
    content, text, page = dict[str, Any](), "", ""
    if any(probe.answers for probe in probes.values()):
        content, text, page = _format_answers(command, probes)
    usage = [
        {"model": model, "samples": options.significance.samples, "seed": options.significance.seed, **probe.usage}
        for model, probe in probes.items()
        if probe.usage
    ]
    if usage:
        usage_content = {"systems": usage} if len(options.models) > 1 else usage[0]
        content = {**content, "context_usage": usage_content} if content else usage_content
    print_table(options, text)
    write_results(options, content, page)


def _format_answers(command: ProbeRun, probes: Mapping[str, Probe]) -> tuple[dict[str, Any], str, str]:
    """Return the results on the test sets as values for JSON, as text and as Markdown."""
    options, paths, models = command.options, command.options.suite, list(probes)
    short = dict(zip(short_names(paths), paths, strict=True))
    rows = list[SuiteRow]()
    for name, path in short.items():
        rows += build_suite_rows(name, command.suites[path].items, [probe.answers[path] for probe in probes.values()])
    names = [command.names[model] for model in models]
    beam = options.search.beam if any(suite.generative for suite in command.suites.values()) else None
    content: dict[str, Any] = {**asdict(options.contrastive), "beam": beam}
    results = {path: {model: probe.answers[path].to_json() for model, probe in probes.items()} for path in paths}
    text, page = suite_text(rows, names), suite_markdown(rows, names)
    if len(options.models) == len(paths) == 1:
        (model,), (path,) = models, paths
        content |= {"model": model, "suite": path, **results[path][model], "warnings": probes[model].warnings}
        return content, text, page
    content |= {"systems": models, "suites": paths}
    content["rows"] = [replace(row, suite=short[row.suite]).to_json(models) for row in rows]
    for kind in ("answers", "items"):  # results of single items, which only some test sets have
        by_path = {path: {m: r[kind] for m, r in by_model.items() if kind in r} for path, by_model in results.items()}
        content[kind] = {path: by_model for path, by_model in by_path.items() if by_model}
    content["warnings"] = {model: probe.warnings for model, probe in probes.items()}
    return content, text, page
