"""docmt probe: do models use their context, and where? Test suites, and what context adds to references.

Measures whether models use their context, and where. With --suite it counts how often they find the right one of
several given translations the most probable, or say the form that context requires. With --source and --reference it
measures what context adds to the probability of the reference (CXMI), and what the context of another document adds.

usage:
    MODEL [MODEL ...] --suite NAME|FILE [NAME|FILE ...] [options]
    MODEL [MODEL ...] --source FILE --reference FILE [options]
    MODEL [MODEL ...] --source CORPUS.jsonl [options]

examples:
    docmt probe MODEL --suite test.contrastive.jsonl
    docmt probe MODEL OTHER --suite phenomena --json answers.json
    docmt probe MODEL --suite phenomena --context-usage
    docmt probe MODEL --source test.en --reference test.de
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import attempt, check_outputs, document_name, each_alone, read_corpus
from docmt.cli.options import Parser, SearchOptions, translator_of
from docmt.cli.results import Report, print_table, write_results
from docmt.cli.systems import check_models, check_once, short_names
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.progress import within
from docmt.core.settings import option
from docmt.documents import ParallelDocument
from docmt.evaluation import (
    ContrastiveResult,
    SignificanceConfig,
    Suite,
    SuiteConfig,
    UsageConfig,
    compare_contexts,
    compare_suite_contexts,
    context_gain,
    evaluate_items,
    evaluate_translations,
    read_suite,
)
from docmt.evaluation.context_usage import (
    CONDITIONS,
    check_has_context,
    document_gains,
    score_with_and_without_context,
    shuffle_contexts,
)
from docmt.evaluation.contrastive import build_suite_rows, suite_markdown, suite_text

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(SearchOptions):
    """The options of the command."""

    models: list[str] = option(positional=True, metavar="MODEL")
    """model or run directories; M1,M2 is an ensemble; several are compared with the first"""
    suite: list[str] = option([], metavar="NAME|FILE")
    """test sets that ask models whether they use context: files with candidates (docmt's JSONL, ContraPro, DiscEvalMT,
    the consistency sets) or with expected forms (ctxPro), or pronouns or phenomena, which come with docmt
    (English-German)"""
    source: str | None = option(None, metavar="FILE")
    """source sentences, one a line, an empty line between documents; JSONL with both sides needs no --reference"""
    reference: str | None = option(None, metavar="FILE")
    """reference sentences in the same form"""
    context_usage: bool = False
    """of --suite also how many items are right without context and with that of another item"""
    json: str | None = option(None, metavar="FILE")
    """where all results go as JSON (- for only that)"""
    markdown: str | None = option(None, metavar="FILE")
    """where the tables of --suite go as Markdown (- as for JSON)"""
    candidates: SuiteConfig = field(default_factory=SuiteConfig)
    """how the candidates of --suite compare"""
    usage: UsageConfig = field(default_factory=UsageConfig)
    """what context adds to the references"""
    significance: SignificanceConfig = field(default_factory=SignificanceConfig)
    """how intervals are drawn"""


def parser() -> Parser[ProbeOptions]:
    """Return the parser of the command."""
    return Parser(
        "probe",
        ProbeOptions,
        __doc__,
        common="suite source reference context_usage json markdown search.beam device",
    )


@dataclass
class Probe:
    """What is measured of one model."""

    answers: dict[str, ContrastiveResult] = field(default_factory=dict)
    """of each test set, by its name or path"""
    warnings: dict[str, int] = field(default_factory=dict)
    """of the answers"""
    usage: dict[str, Any] = field(default_factory=dict)
    """what context is worth, for the JSON"""
    markdown: str = ""
    status: int = 0


@dataclass(frozen=True)
class ProbeRun:
    """One call of the command: its options, the test sets and the corpus."""

    options: ProbeOptions
    suites: Mapping[str, Suite]
    """by their names or paths, as they were given"""
    corpus: Sequence[ParallelDocument]

    def short_names(self) -> dict[str, str]:
        """Return a name of each model."""
        return dict(zip(self.options.models, short_names(self.options.models), strict=True))

    def name(self, model: str) -> str:
        """Return what messages say before a name: that of the model, if there are several."""
        return f"{self.short_names()[model]}: " if len(self.options.models) > 1 else ""

    def tell(self, model: str, suite: str) -> AbstractContextManager[None]:
        """Return a block in which progress says which test set a model is asked, if there are several of them."""
        return within(f"{self.name(model)}{suite}" if len(self.options.models) > 1 or len(self.suites) > 1 else "")


def run(arguments: Sequence[str]) -> int:
    """Prints how often models answered rightly, and what their context is worth to them."""
    options = parser().parse(arguments)
    command = _read(options)
    found, failures = dict[str, Probe](), list[str]()
    missing: list[str] = []
    for number, model in enumerate(options.models):
        try:
            if (probe := attempt(model, partial(_probe, command, model), failures)) is not None:
                found[model] = probe
        except KeyboardInterrupt:  # what other models took hours for is written
            if not (found or failures):
                raise
            missing = options.models[number:]
            break
    if found:
        _write(command, found)
    for failure in failures:
        _log.error(failure)
    if missing:
        _log.warning(f"interrupted: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        return INTERRUPTED
    return max([2 if failures else 0, *(probe.status for probe in found.values())])


def _read(options: ProbeOptions) -> ProbeRun:
    """Check the options and read the inputs. Raises DocmtError for what cannot be read, written or measured."""
    if not (options.suite or options.source):
        raise DocmtError("name test sets (--suite), or a corpus (--source and --reference), to probe models with")
    if options.markdown and not options.suite:
        raise DocmtError("--markdown is for the tables of --suite: name a test set, or leave it out")
    check_once(options.models, "the list of models")
    check_once(options.suite, "--suite")
    inputs = [*options.suite, options.source, options.reference]
    check_outputs(options.json, options.markdown, inputs=inputs)
    suites = {name: read_suite(name) for name in options.suite}
    corpus = read_corpus(options.source, options.reference) if options.source else []
    if options.context_usage:
        for suite in suites.values():
            shuffle_contexts(suite.items, options.significance.seed)
    if corpus:
        check_has_context(max(map(len, corpus)))
    for model, languages in check_models(options.models, options.context, options.search).items():
        for suite in suites.values():
            suite.check_languages(model, languages)
    for remark in (remark for suite in suites.values() for remark in suite.remarks()):
        _log.warning(remark)
    return ProbeRun(options, suites, corpus)


def _probe(command: ProbeRun, model: str) -> Probe:
    """Measure a model, which is in memory no longer than that. What may be wrong with the results is told."""
    translator, probe = translator_of(command.options, model), Probe()
    if command.suites and not command.options.context_usage:
        _answer(command, model, translator, probe)
    texts, report, total = [], Report(), 0
    if command.suites and command.options.context_usage:
        total += len(command.suites)
        texts.append(_in_contexts(command, model, translator, probe, report))
    done = len(probe.usage.get("suites", ()))
    if command.corpus:
        total += len(command.corpus)
        texts.append(_gains(command, model, translator, probe, report))
        done += len(command.corpus) - probe.usage["left_out"]
    if total:
        probe.usage["warnings"] = report.counts()
        things = ["test sets"] * command.options.context_usage + ["documents"] * bool(command.corpus)
        probe.status = max(probe.status, report.print(total, done, " and ".join(things), "scored"))
        if text := "\n\n".join(filter(None, texts)):
            print_table(command.options, f"{model}\n{text}\n" if len(command.options.models) > 1 else text)
    return probe


def _answer(command: ProbeRun, model: str, translator: Translator, probe: Probe) -> None:
    """Ask a model every test set."""
    report = Report()
    for name, suite in command.suites.items():
        collect = partial(_collect, report, f"{command.name(model)}{name}", suite, "")
        with command.tell(model, name):
            if suite.generative:
                probe.answers[name] = evaluate_translations(translator, suite.items, collect)
            else:
                probe.answers[name] = evaluate_items(translator, suite.items, command.options.candidates, collect)
    counts = [result.overall for result in probe.answers.values()]
    items, failed = (sum(getattr(count, name) for count in counts) for name in ("total", "unanswered"))
    probe.warnings, probe.status = report.counts(), report.print(items, items - failed, "items", "answered")


def _collect(
    report: Report, name: str, suite: Suite, condition: str, number: int, result: Translation | DocmtError
) -> None:
    """Adds why an item failed, or what may be wrong with its translation. name: of the test set."""
    item = suite.items[number]
    id = "" if item.id in ("", str(number + 1)) else f" ({item.id!r})"
    place = f"{name}, item {number + 1}{id}{f', {condition} context' if condition else ''}"
    if isinstance(result, DocmtError):
        report.failures.append(f"{place}: {result}")
        return
    if condition not in ("", CONDITIONS[0]):
        result = replace(result, overlong=())  # which is told once
    alone = len(result.sentences) < len(item.source)  # the sentence that is asked for, without its context
    report.collect(place, result, item.sentence if alone else 0)


def _in_contexts(command: ProbeRun, model: str, translator: Translator, probe: Probe, report: Report) -> str:
    """Ask a model every test set with true, empty and shuffled context. Returns the table for people.

    Test sets that cannot be asked are named and left out.
    """
    options, whose = command.options, command.name(model)
    rows, values, remarks = [], {}, []
    for short, (name, suite) in zip(short_names(options.suite), command.suites.items(), strict=True):
        tell = partial(_collect, report, f"{whose}{name}", suite)
        measure = partial(
            compare_suite_contexts, translator, suite.items, options.candidates, options.significance, tell
        )
        with command.tell(model, name):
            found = attempt(f"{whose}{name}", measure, report.failures)
        if found is not None:
            rows += found.rows(short)
            values[name] = found.to_json()
            if found.skipped:
                remarks.append(f"{found.skipped:,} items of {short} left out, as no other item has as many sentences")
    probe.usage |= {**asdict(options.candidates), "suites": values}
    if not rows:
        return ""
    columns = [f"{name} context" for name in CONDITIONS]
    probe.markdown = f"# {model}\n\n{suite_markdown(rows, columns)}"
    return "\n".join([suite_text(rows, columns, columns[0]), *remarks])


def _gains(command: ProbeRun, model: str, translator: Translator, probe: Probe, report: Report) -> str:
    """Measure what context adds to the references. Returns the tables for people.

    Documents that cannot be scored are named and left out, and so is what cannot be measured.
    """
    options, whose = command.options, command.name(model)
    names = [whose + document_name(str(options.source), document) for document in command.corpus]
    found = each_alone(command.corpus, names, partial(score_with_and_without_context, translator), report.failures)
    kept, gains = [], []
    for name, document, scores in zip(names, command.corpus, found, strict=True):
        if scores is not None:
            report.collect(name, scores[0])
            kept.append(document)
            gains.append(document_gains(document, *scores))
    parts: dict[str, Any] = {}
    if kept:
        parts["context_gain"] = context_gain(gains, options.usage, options.significance)
    if options.usage.before and len(kept) == 1:
        _log.warning("there is one document only: what the context of another one is worth is not measured")
    elif options.usage.before and kept:
        measure = partial(compare_contexts, translator, kept, options.usage, options.significance)
        others = attempt(f"{whose}true, empty and shuffled context", measure, report.failures)
        parts |= {"other_context": others} if others is not None else {}
    values = {"source": options.source, "reference": options.reference, **asdict(options.usage)}
    probe.usage |= {**values, "left_out": len(command.corpus) - len(kept)}
    probe.usage |= {name: part.to_json() for name, part in parts.items()}
    return "\n\n".join(part.format() for part in parts.values())


def _write(command: ProbeRun, found: Mapping[str, Probe]) -> None:
    """Prints the answers to the test sets, of several models in one table, and writes all that is wanted."""
    options, page = command.options, "\n".join(probe.markdown for probe in found.values())
    content, text = dict[str, Any](), ""
    if any(probe.answers for probe in found.values()):
        content, text, page = _answers(command, found)
    usage = [
        {"model": model, "samples": options.significance.samples, "seed": options.significance.seed, **probe.usage}
        for model, probe in found.items()
        if probe.usage
    ]
    if usage:
        whole = {"systems": usage} if len(options.models) > 1 else usage[0]
        content = {**content, "context_usage": whole} if content else whole
    print_table(options, text)
    write_results(options, content, page)


def _answers(command: ProbeRun, found: Mapping[str, Probe]) -> tuple[dict[str, Any], str, str]:
    """Return the answers to the test sets for the JSON, for people, and as Markdown."""
    options, paths, models = command.options, command.options.suite, list(found)
    short = dict(zip(short_names(paths), paths, strict=True))
    rows = [
        row
        for name, path in short.items()
        for row in build_suite_rows(name, command.suites[path].items, [probe.answers[path] for probe in found.values()])
    ]
    names = [command.short_names()[model] for model in models]
    beam = options.search.beam if any(suite.generative for suite in command.suites.values()) else None
    content: dict[str, Any] = {**asdict(options.candidates), "beam": beam}
    results = {path: {model: probe.answers[path].to_json() for model, probe in found.items()} for path in paths}
    text, page = suite_text(rows, names), suite_markdown(rows, names)
    if len(options.models) == len(paths) == 1:
        (model,), (path,) = models, paths
        content |= {"model": model, "suite": path, **results[path][model], "warnings": found[model].warnings}
        return content, text, page
    content |= {"systems": models, "suites": paths}
    content["rows"] = [replace(row, suite=short[row.suite]).to_json(models) for row in rows]
    for kind in ("answers", "items"):  # what was said to every item, of the test sets that have such
        of_kind = {path: {m: found[kind] for m, found in own.items() if kind in found} for path, own in results.items()}
        content[kind] = {path: own for path, own in of_kind.items() if own}
    content["warnings"] = {model: probe.warnings for model, probe in found.items()}
    return content, text, page
