"""docmt evaluate: scores of translations and models, and comparisons of systems."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.checking.languages import detect_language
from docmt.cli.evaluation_reports import ReportOptions, report_alignment_errors, report_answers, write_reports
from docmt.cli.model_arguments import (
    ModelOptions,
    ProtectOptions,
    check_models,
    check_unique,
    document_name,
    is_model_path,
    load_engine,
    log_use,
    read_corpus,
    read_languages,
    short_names,
)
from docmt.cli.output import Report, check_outputs, map_or_report, print_table, write_results
from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, make_directory
from docmt.core.plain_text import STANDARD, read_lines, write_text
from docmt.core.progress import is_terminal, progress
from docmt.core.settings import find_set, format_flag, option
from docmt.data.instances import cut_dbleu_units
from docmt.decoding.search_config import FOR_TRANSLATE, SearchConfig
from docmt.decoding.translation_results import Translation
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus_files import Corpus, read_reference
from docmt.documents.input_formats import DOCUMENT_MARK, is_jsonl
from docmt.engines import is_endpoint
from docmt.evaluation import compare, scores_by_position
from docmt.evaluation.external import ExternalConfig, ExternalScore, score_externally
from docmt.evaluation.metric_config import CONSISTENCY_METRICS, METRIC_NAMES, MetricConfig
from docmt.evaluation.metrics import Evaluation, check_document_counts, group_by_unit, read_aligned_documents
from docmt.evaluation.output_alignment import Documents, Ranges, Sources
from docmt.evaluation.significance import Comparison, PositionScores, SignificanceConfig, check_can_resample
from docmt.evaluation.source_scores import score_system
from docmt.terms import Glossary
from docmt.terms.matching import TermMatcher

if TYPE_CHECKING:
    from docmt.decoding.document_translator import DocumentTranslator

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ScoredSystem:
    """A file of translations, or a model, to score on a test set of D documents."""

    path: str
    is_model: bool
    name: str = ""
    """shortest unique end of its path; the whole path of a single system"""
    output: str = ""
    """file for the translations of a model; empty: none"""
    hypotheses: Documents | None = None
    """[D] sentences of each document, empty where the model failed; None before the translation"""
    instances: Ranges | None = None
    """[D] ranges of sentences that a model translated separately"""
    miscounted: Sequence[int] = ()
    """[D] numbers of instances that a model translated by another number of sentences"""
    failed: frozenset[int] = frozenset()
    """indices of documents without translation"""
    report: Report = field(default_factory=Report)
    """warnings and failures of the translation"""
    external: ExternalScore | None = None
    """score of the external metric"""

    def describe(self, options: EvaluateOptions) -> dict[str, Any]:
        """Return what its scores come from, and that of the external metric, as JSON values."""
        of_model = {"beam": options.search.beam, "warnings": self.report.counts()}
        external = {"external": self.external and self.external.to_json()}
        return (of_model if self.is_model else dict.fromkeys(of_model)) | external


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions, ProtectOptions, ReportOptions):
    """docmt evaluate --hypothesis FILE --reference FILE

    Score the translations of files (--hypothesis) or models (--model): BLEU over sentences (s-BLEU) and over documents
    (d-BLEU), chrF of both kinds, and others with --metrics. Several systems are compared with the first. docmt probe
    measures the use of context. With --aer, score the word alignments of models.

    usage:
        --hypothesis FILE ... --reference FILE [options]
        --model MODEL ... --source FILE --reference FILE [options]
        --model MODEL ... --source CORPUS.jsonl [options]
        --systems SYSTEM ... --reference FILE [options]
        --model MODEL ... --aer FILE [options]
        --pearmut-answers FILE ... [options]

    examples:
        docmt evaluate --hypothesis output.de --reference test.de
        docmt evaluate --model MODEL --source test.en --reference test.de --beam 4 -o output.de
        docmt evaluate --systems baseline.de other.de third.de --reference test.de

    common:
        hypothesis model systems source reference glossaries output json markdown html metrics.protocol metrics.names
        metrics.unit search.beam device
    """

    hypothesis: list[str] = option([], metavar="FILE")
    """translated sentences, one a line, or JSONL; several files are compared"""
    model: list[str] = option([], metavar="DIRECTORY")
    """models, as in docmt translate"""
    systems: list[str] = option([], metavar="SYSTEM")
    """files and models to compare with the first"""
    source: str | None = option(None, metavar="FILE")
    """source sentences of models and some metrics; JSONL may have both sides"""
    reference: list[str] = option([], metavar="FILE")
    """reference sentences, as --hypothesis; several files are multiple references"""
    output: str | None = option(None, flags=("-o",), metavar="PATH")
    """write translations of models (several: a directory)"""
    json: str | None = option(None, metavar="FILE")
    """write the scores as JSON (-: to standard output)"""
    markdown: str | None = option(None, metavar="FILE")
    """write the table of several systems as Markdown"""
    aer: str | None = option(None, metavar="FILE")
    """alignment error rate of models: lines of source tokens, target tokens and links such as 1-2 or 1p2, with tabs"""
    glossaries: list[str] = option([], flags=("--terms",), metavar="FILE")
    """glossaries: score terms"""
    by_position: bool = False
    """also report s-BLEU and chrF by the position of sentences in documents"""
    metrics: MetricConfig = field(default_factory=MetricConfig)
    """settings of the metrics (compare scores only under equal settings)"""
    significance: SignificanceConfig = field(default_factory=SignificanceConfig)
    """significance tests and confidence intervals"""
    external: ExternalConfig = field(default_factory=ExternalConfig)
    """an external metric, such as COMET"""
    search: SearchConfig = option(SearchConfig(), skip=(*FOR_TRANSLATE, "temperature", "sequential"))
    """beam search"""

    @property
    def needs_source(self) -> str:
        """The first option that needs the source of files, too; empty if none does."""
        rates = not CONSISTENCY_METRICS.keys().isdisjoint(self.metrics.keys)
        aligned = self.metrics.unit in ("sentence", "paragraph")
        needed = {"--terms": self.glossaries, "--external.command": self.external.command, "--metrics ltcr": rates}
        return next((name for name, value in needed.items() if value), f"--unit {self.metrics.unit}" * aligned)

    def named_systems(self) -> list[ScoredSystem]:
        """Return the systems with unique names. Raises DocmtError if there is none, or one is repeated."""
        systems = [ScoredSystem(path, False) for path in self.hypothesis]
        systems += [ScoredSystem(path, True) for path in self.model]
        systems += [ScoredSystem(path, is_model_path(path)) for path in self.systems]
        if not systems:
            if self.aer:
                raise DocmtError("--aer needs models: name them with --model")
            raise DocmtError("name --hypothesis and --reference, or --model, --source and --reference, or --systems")
        paths = [system.path for system in systems]
        check_unique(paths, "the list of systems")
        for system, name in zip(systems, short_names(paths) if len(paths) > 1 else paths, strict=True):
            system.name = name
            if system.is_model and self.output:
                file = f"{name.replace('/', '-').replace(',', '+')}.txt"
                system.output = str(Path(self.output) / file) if len(paths) > 1 else self.output
        return systems


@dataclass
class EvaluateRun:
    """One call of the command: options, systems, and a test set of D documents."""

    options: EvaluateOptions
    systems: Sequence[ScoredSystem]
    corpus: Sequence[ParallelDocument]
    """[D] documents to translate; empty if no system is a model"""
    references: list[Corpus]
    """[D] documents of each reference"""
    sources: Sources = ()
    """[D] ids and source sentences, if anything needs them"""
    matcher: TermMatcher | None = None
    """of the glossaries, if there are any"""

    def read(self, path: str) -> Corpus:
        """Return the documents of a file with translations or further references."""
        reference = self.options.reference[0] if self.options.reference else str(self.options.source)
        if self.corpus and read_reference(Path(reference)) != self.references[0]:
            raise DocmtError(
                f"{path} cannot be aligned with {reference}, of which sentence pairs were left out: remove pairs with "
                "an empty side from the corpus"
            )
        return read_aligned_documents(path, reference, self.references[0])

    def read_sources(self) -> Sources:
        """Return ids and source sentences. Raises DocmtError if pairs are needed, and the reference has others."""
        path, reference = str(self.options.source), self.references[0]
        pairs = [(document.id, document.source) for document in self.corpus]
        sources = pairs or list(read_documents(Path(path), "source"))
        check_document_counts(len(sources), len(reference), path, next(iter(self.options.reference), ""))
        needed = self.options.needs_source
        if needed and [len(sentences) for _, sentences in sources] != list(map(len, reference)):
            raise DocmtError(
                f"{path} has other sentences than the reference, but {needed} needs pairs: give files with a line of "
                "the one for each line of the other"
            )
        return sources

    def leave_out_failed(self) -> int:
        """Leave out the documents that some system could not translate, and return their number."""
        failed = frozenset[int]().union(*(system.failed for system in self.systems))

        def select(values: Any) -> Any:
            return values and [value for number, value in enumerate(values) if number not in failed]

        self.references, self.sources = list(map(select, self.references)), select(self.sources)
        for system in self.systems:
            system.hypotheses, system.instances = select(system.hypotheses), select(system.instances)
            system.miscounted = select(system.miscounted)
        return len(failed)

    @cached_property
    def metrics(self) -> MetricConfig:
        """The settings of the metrics. Terms are scored beside chrF++."""
        names = [METRIC_NAMES[key].lower() for key in (*self.options.metrics.keys, "chrf_pp")]
        is_usual = self.options.glossaries and not self.options.metrics.names
        return replace(self.options.metrics, names=names) if is_usual else self.options.metrics

    @cached_property
    def languages(self) -> tuple[str, str]:
        """The languages of the first model, or else those that the texts seem to have."""
        for system in self.systems:
            if system.is_model:
                return read_languages(system.path)
        sides = [sentences for _, sentences in self.sources], self.references[0]
        source, target = (detect_language([text for document in side for text in document]) for side in sides)
        return source, self.options.metrics.language or target


def run_evaluate(options: EvaluateOptions) -> int:
    """Print scores with their signatures, and intervals and p-values of several systems."""
    if options.pearmut_answers:
        return report_answers(options)
    systems = options.named_systems()
    if options.aer:
        for system in systems:
            if not system.is_model:
                raise DocmtError(f"{system.path} is a file, but --aer reads the attention of models: name models only")
        return report_alignment_errors(options, {system.name: system.path for system in systems})
    _check(options, systems)
    command = _read(options, systems)
    _translate(command)
    return _score(command)


def _check(options: EvaluateOptions, systems: Sequence[ScoredSystem]) -> None:
    """Raise DocmtError for missing inputs and for outputs that cannot be written."""
    models = [system.path for system in systems if system.is_model]
    files = [system.path for system in systems if not system.is_model]
    several, protocol = len(systems) > 1, options.metrics.protocol
    model_options = ["output", "device", "precision", "batch_tokens", "protect"]
    model_options += [] if options.needs_source or options.report_files else ["source"]
    if not models and (unused := find_set(options, *model_options, "search", "context")):
        names = ", ".join(format_flag(name) for name in unused)
        _log.warning(f"{names}: no effect, because only files are scored")
    if options.external.command:
        options.external.arguments()
    model, file = (next(iter(paths), "") for paths in (models, files))
    unit = f"protocol {protocol}" if protocol else "unit instance"
    faults = (
        (model and not options.source, f"{model} is a model, which needs --source: name the file to translate"),
        (file and not options.reference, f"{file} needs --reference: name the file with the references"),
        (
            file and options.metrics.unit == "instance",
            f"{file} is a file, which has no instances: score only models with --metrics.{unit}",
        ),
        (
            options.needs_source and not options.source,
            f"{options.needs_source} needs --source beside --hypothesis: name the file that was translated",
        ),
        (
            model and any(key.startswith("p_") for key in options.metrics.keys),
            f"{model} is a model, but only files show paragraphs: write its translations with -o, and score these",
        ),
        (
            several and options.external.window and options.significance.resample == "sentences",
            "--external-window scores several sentences at once, so resample documents: leave --resample out",
        ),
        (options.markdown and not several, "--markdown needs several systems: name more than one, or leave it out"),
        (
            several and options.output == STANDARD,
            "-o - cannot take the translations of several systems: name a directory",
        ),
    )
    for is_fault, message in faults:
        if is_fault:
            raise DocmtError(message)
    options.check_reports(options.source, several)
    inputs = [*files, *options.reference, *options.glossaries]
    for path in filter(None, [*inputs, options.source] if models and (options.output or several) else inputs):
        check_regular(path, "it may be read more than once, but is")
    output = options.output if models and not several else None
    check_outputs(options.json, options.markdown, output, *options.report_files, inputs=[*inputs, options.source])
    if len(models) > 1:
        check_models(models, options.context, options.search)


def _read(options: EvaluateOptions, systems: Sequence[ScoredSystem]) -> EvaluateRun:
    """Read the corpus to translate (if there is a model), the references, and files of translations."""
    corpus: list[ParallelDocument] = []
    if any(system.is_model for system in systems):
        corpus = read_corpus(str(options.source), next(iter(options.reference), None))
    first = [document.target for document in corpus] or read_reference(Path(options.reference[0]))
    command = EvaluateRun(options, systems, corpus, [first])
    command.references += map(command.read, options.reference[1:])
    if options.needs_source or options.report_files:
        command.sources = command.read_sources()
    if options.glossaries:
        command.matcher = TermMatcher(Glossary.read(*options.glossaries, languages=command.languages))
    if len(systems) > 1:
        check_can_resample(len(first), options.significance)
    for system in systems:
        if not system.is_model:
            system.hypotheses = command.read(system.path)
    return command


def _translate(command: EvaluateRun) -> None:
    """Translate the corpus with each model. Write the translations of a model, if asked, before the next model."""
    options, several, source = command.options, len(command.systems) > 1, str(command.options.source)
    models = [system for system in command.systems if system.is_model]
    if models and several and options.output:
        for system in models:
            if Path(system.output).exists():
                raise DocmtError(f"{system.output} already exists: remove it, or name another directory with -o")
        make_directory(Path(options.output))
        check_outputs(*(system.output for system in models))
    for system in models:
        if several and is_terminal():
            _log.info(f"translating with {system.name}")
        names = [f"{system.name}: " * several + document_name(source, document) for document in command.corpus]
        translator = load_engine(options, system.path)
        translate_corpus(translator, system, command.corpus, options.metrics.unit, names)
        log_use(translator)
        if system.output:
            write_text(system.output, lines_like_source(source, command.corpus, system.hypotheses or []))


def lines_like_source(source: str, corpus: Sequence[ParallelDocument], translations: Sequence[Sequence[str]]) -> str:
    """Return the translations of a corpus as text that has a line for each line of the source file.

    Empty lines and document marks are copied, and skipped pairs are empty lines. The documents of a JSONL file are
    separated by empty lines instead.
    """
    if is_jsonl(source):
        return "\n".join(Document.from_sentences(sentences).text() for sentences in translations)
    translated = {
        line: sentence
        for document, sentences in zip(corpus, translations, strict=True)
        for line, sentence in zip(document.lines, sentences, strict=True)
    }
    source_lines = ((number, line.strip()) for number, line in read_lines(source))
    lines = [translated.get(number, line if line == DOCUMENT_MARK else "") for number, line in source_lines]
    return "".join(f"{line}\n" for line in lines)


def cut_units(translator: Any, document: ParallelDocument) -> list[tuple[int, int]]:
    """Cut a document into instances as in training: ranges of sentences, the published units of d-BLEU."""
    sides = translator.encode(document.source, "source"), translator.encode(document.target, "target")
    configs, names = [member.config for member in translator.models], ("instance_tokens", "instance_sentences")
    limits = replace(configs[0], **{name: min(getattr(config, name) for config in configs) for name in names})
    return cut_dbleu_units(limits, list(map(len, sides[0])), list(map(len, sides[1])), [0, len(document.source)])[0]


def translate_corpus(
    translator: DocumentTranslator,
    system: ScoredSystem,
    corpus: Sequence[ParallelDocument],
    unit: str,
    names: Sequence[str],
) -> None:
    """Translate every document. Failed documents are empty, and added to the report of the system.

    unit: "instance" or "document", which is translated separately. names: names of the documents for messages.
    """
    is_cut = unit == "instance"
    if is_cut and is_endpoint(system.path):
        raise DocmtError(f"{system.path} is a server, which has no instances: leave --metrics.unit instance out")
    system.instances = [cut_units(translator, each) if is_cut else [(0, len(each.source))] for each in corpus]
    sources = [group_by_unit([each.source], [ranges]) for each, ranges in zip(corpus, system.instances, strict=True)]
    results = map_or_report(sources, names, partial(_translate_units, translator), system.report.failures)
    system.hypotheses = [
        [sentence for unit in units for sentence in unit.document.sentences] if units else [""] * len(document.source)
        for document, units in zip(corpus, results, strict=True)
    ]
    system.miscounted = [sum(len(unit.miscounted) for unit in units or ()) for units in results]
    system.failed = frozenset(number for number, units in enumerate(results) if units is None)
    for name, units, ranges in zip(names, results, system.instances, strict=True):
        for translation, (first, _) in zip(units or (), ranges, strict=False):
            system.report.add_warnings(name, translation, first)


def _translate_units(
    translator: DocumentTranslator, documents: Sequence[Sequence[Sequence[str]]]
) -> list[list[Translation]]:
    """Return the translations of the units of every document, decoded together."""
    units = [Document.from_sentences(unit) for document in documents for unit in document]
    translations = iter(translator.translate_all(units))
    return [[next(translations) for _ in document] for document in documents]


def _score(command: EvaluateRun) -> int:
    """Score all systems on the documents that all have translated. Write the scores and return the exit status."""
    _warn_about_equal_systems(command)
    options, systems, report = command.options, command.systems, Report()
    total, several = len(command.references[0]), len(systems) > 1
    for system in systems:
        report.merge(system.report)
    left_out = command.leave_out_failed()
    if total > left_out:
        try:
            evaluations = _evaluate_systems(command, report.failures)
            comparison = compare(evaluations, options.significance) if several else None
            values = _collect_values(command, evaluations, comparison, left_out)
            remark = "as not every system could translate them" if several else "as they could not be translated"
            remark = f"{left_out} of {total} documents left out{' of all scores' * several}, {remark}" * bool(left_out)
            page = comparison.to_markdown() + f"- {remark}\n" * bool(left_out) if comparison else ""
            positions = _score_by_position(options, evaluations, report.failures) if options.by_position else None
            values |= {"by_position": positions.to_json()} if positions else {}
            write_results(options, values, page)
            external = "" if several or systems[0].external is None else systems[0].external.format()
            table = comparison.format() if comparison else evaluations[systems[0].name].format()
            by_position = f"\n{positions.format()}" if positions else ""
            print_table(options, "\n".join(filter(None, [table, external, remark, by_position])))
            if options.report_files:
                translations = {system.name: system.hypotheses or [] for system in systems}
                write_reports(options, comparison, command.sources, command.references[0], translations)
        except DocmtError as error:  # logged after the warnings on translations
            report.failures.append(str(error))
    return report.log(total, total - left_out, "documents", f"translated{' by every system' * several}")


def _evaluate_systems(command: EvaluateRun, failures: list[str]) -> dict[str, Evaluation]:
    """Return the scores of each system. An error of the external metric does not lose the other scores."""
    options, evaluations = command.options, dict[str, Evaluation]()
    sources = [sentences for _, sentences in command.sources] if options.needs_source else []
    several, languages = len(command.systems) > 1, command.languages if sources else ("", "")
    with progress("scoring (systems)", len(command.systems)) as bar:
        for system in command.systems:
            evaluation, sides = score_system(
                *(sources, system.hypotheses or [], command.references, command.metrics),
                matcher=command.matcher,
                languages=languages,
                instances=system.instances,
                miscounted=sum(system.miscounted),
            )
            if options.external.command:
                try:
                    if sides is None:
                        need = "an external metric needs a translation of each sentence"
                        raise DocmtError(f"{need}: add --unit sentence to align them")
                    system.external = score_externally(*sides, [id for id, _ in command.sources], options.external)
                    if system.external.too_long:
                        _log.warning(f"{system.name}: " * several + system.external.warning())
                except DocmtError as error:
                    failures.append(f"{system.name}: " * several + str(error))
                if several:
                    score = system.external.to_metric() if system.external else None
                    evaluation = replace(evaluation, metrics={**evaluation.metrics, "external": score})
            evaluations[system.name] = evaluation
            bar.advance()
    return evaluations


def _collect_values(
    command: EvaluateRun, evaluations: Mapping[str, Evaluation], comparison: Comparison | None, left_out: int
) -> dict[str, Any]:
    """Return the scores as JSON values, with the inputs, which identify them.

    left_out: documents without scores. A single file of translations has neither these nor warnings.
    """
    options = command.options
    values: dict[str, Any] = {"source": options.source, "references": options.reference}
    if comparison is not None:
        values |= comparison.to_json()
        for system, entry in zip(command.systems, values["systems"], strict=True):
            entry |= {"path": system.path, **system.describe(options)}
        return values | {"left_out": left_out}
    (system,), (evaluation,) = command.systems, evaluations.values()
    inputs = {"hypothesis": None, "model": None, "model" if system.is_model else "hypothesis": system.path}
    reference = {"reference": next(iter(options.reference), None)}
    described = system.describe(options) | {"left_out": left_out}
    if not system.is_model:
        del described["warnings"], described["left_out"]
    return {**inputs, **values, **reference, **evaluation.to_json(), **described}


def _score_by_position(
    options: EvaluateOptions, evaluations: Mapping[str, Evaluation], failures: list[str]
) -> PositionScores | None:
    """Return scores by sentence position. It is a failure if no system has scores of sentences."""
    try:
        positions = scores_by_position(evaluations, options.significance)
    except DocmtError as error:
        failures.append(str(error))
        return None
    for remark in positions.missing:
        _log.warning(remark)
    return positions


def _warn_about_equal_systems(command: EvaluateRun) -> None:
    """Warn of systems with equal translations."""
    texts = [[list(document) for document in system.hypotheses or ()] for system in command.systems]
    for number, text in enumerate(texts):
        if text in texts[:number]:
            path, same = command.systems[number].path, command.systems[texts.index(text)].path
            _log.warning(f"{path} has the same translations as {same}")
