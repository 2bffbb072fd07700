"""docmt evaluate: scores of translations, of a file or made by a model; several systems are compared with the first.

Scores translations, those of a file (--hypothesis) or those that a model makes of a source (--model): BLEU over
sentences (s-BLEU) and over whole documents (d-BLEU), chrF of both kinds, and TER. Several systems are compared with
the first. docmt probe measures whether models use their context.

usage:
    --hypothesis FILE [FILE ...] --reference FILE [options]
    --model DIRECTORY [DIRECTORY ...] --source FILE --reference FILE [options]
    --model DIRECTORY [DIRECTORY ...] --source CORPUS.jsonl [options]
    --systems SYSTEM [SYSTEM ...] [--source FILE] --reference FILE [options]

examples:
    docmt evaluate --hypothesis output.de --reference test.de
    docmt evaluate --model MODEL --source test.en --reference test.de --beam 4 -o output.de
    docmt evaluate --systems baseline.de other.de third.de --reference test.de
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docmt.cli.corpora import check_outputs, document_name, lines_beside, make_directory, read_corpus
from docmt.cli.options import Parser, SearchOptions, changed, translator_of
from docmt.cli.results import Report, print_table, write_results
from docmt.cli.systems import (
    ScoredSystem,
    Translations,
    check_models,
    check_once,
    is_model,
    short_names,
    translate_corpus,
)
from docmt.core.errors import DocmtError
from docmt.core.files import check_regular
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import on_terminal, progress
from docmt.core.settings import flag_of, option
from docmt.documents import ParallelDocument, read_documents
from docmt.documents.corpus_files import Corpus, read_reference
from docmt.evaluation import (
    Evaluation,
    ExternalConfig,
    ExternalScore,
    MetricConfig,
    PositionScores,
    SignificanceConfig,
    compare,
    score_externally,
    scores_by_position,
)
from docmt.evaluation.metrics import read_aligned_documents
from docmt.evaluation.system_comparison import check_can_resample

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(SearchOptions):
    """The options of the command."""

    hypothesis: list[str] = option([], metavar="FILE")
    """translated sentences, one a line, an empty line between documents, or (docmt translate --format jsonl) the
    `target` of JSONL; several files are compared"""
    model: list[str] = option([], metavar="DIRECTORY")
    """model or run directory to translate with; M1,M2 is an ensemble; several are compared"""
    systems: list[str] = option([], metavar="SYSTEM")
    """systems to compare with the first: files as for --hypothesis, directories as for --model, or both kinds"""
    source: str | None = option(None, metavar="FILE")
    """source sentences for models (and for a metric that needs them); JSONL with both sides needs no --reference"""
    reference: list[str] = option([], metavar="FILE")
    """reference sentences in the form of --hypothesis; several files are several references of the same sentences"""
    output: str | None = option(None, flags=("-o",), metavar="PATH")
    """where the translations of a model go; of several systems a directory, with a file for each model"""
    json: str | None = option(None, metavar="FILE")
    """where the scores go as JSON (- for only that)"""
    markdown: str | None = option(None, metavar="FILE")
    """where the table of several systems goes as Markdown (- as for JSON)"""
    by_position: bool = False
    """also s-BLEU and chrF of the first sentences of documents, the second ones, and so on"""
    metrics: MetricConfig = field(default_factory=MetricConfig)
    """how text becomes scores (scores compare only under equal settings)"""
    significance: SignificanceConfig = field(default_factory=SignificanceConfig)
    """how several systems are compared, and intervals drawn"""
    external: ExternalConfig = field(default_factory=ExternalConfig)
    """a metric that is a process of its own, such as COMET"""

    def named_systems(self) -> list[ScoredSystem]:
        """Return the systems with names that tell them apart. Raises DocmtError if there is none, or one twice."""
        systems = [ScoredSystem(path, False) for path in self.hypothesis]
        systems += [ScoredSystem(path, True) for path in self.model]
        systems += [ScoredSystem(path, is_model(path)) for path in self.systems]
        if not systems:
            raise DocmtError("give --hypothesis and --reference, or --model, --source and --reference, or --systems")
        paths = [system.path for system in systems]
        check_once(paths, "the list of systems")
        names = short_names(paths) if len(paths) > 1 else paths
        return [replace(system, name=name) for system, name in zip(systems, names, strict=True)]


def parser() -> Parser[EvaluateOptions]:
    """Return the parser of the command."""
    return Parser(
        "evaluate",
        EvaluateOptions,
        __doc__,
        common="hypothesis model systems source reference output json markdown metrics.protocol metrics.unit "
        "significance.test significance.resample search.beam device",
    )


@dataclass
class EvaluateRun:
    """One call of the command: its options, its systems, and the test set of D documents.

    corpus: the documents to translate, empty where no system is a model.
    """

    options: EvaluateOptions
    systems: Sequence[ScoredSystem]
    corpus: Sequence[ParallelDocument]
    references: list[Corpus]
    """of each [D]"""
    found: dict[ScoredSystem, Translations] = field(default_factory=dict)
    """the translations of each system, as far as there are any"""

    @property
    def models(self) -> list[ScoredSystem]:
        return [system for system in self.systems if system.is_model]

    def outputs(self) -> dict[ScoredSystem, str]:
        """Return the file for the translations of each model, if they are wanted."""
        path = self.options.output
        if not path:
            return {}
        if len(self.systems) == 1:
            return dict.fromkeys(self.models, path)
        names = {system: system.name.replace("/", "-").replace(",", "+") for system in self.models}
        return {system: str(Path(path) / f"{name}.txt") for system, name in names.items()}

    def read(self, path: str) -> Corpus:
        """Return the translations, or further references, in a file, document by document."""
        reference = self.options.reference[0] if self.options.reference else str(self.options.source)
        if self.corpus and read_reference(Path(reference)) != self.references[0]:
            raise DocmtError(
                f"{path} cannot be told from the places that were left out of {reference}: remove pairs with an empty "
                "side from the corpus"
            )
        return read_aligned_documents(path, reference, self.references[0])

    def kept(self) -> list[int]:
        """Return the numbers of the documents that every system has."""
        failed = frozenset[int]().union(*(translations.failed for translations in self.found.values()))
        return [number for number in range(len(self.references[0])) if number not in failed]


def run(arguments: Sequence[str]) -> int:
    """Prints s-BLEU, d-BLEU and chrF with their signatures; of several systems with intervals and p-values."""
    options = parser().parse(arguments)
    systems = options.named_systems()
    _check(options, systems)
    command = _read(options, systems)
    try:
        _translate(command)
        return _score(command)
    except KeyboardInterrupt:
        _tell_way_on(command)
        raise


def _check(options: EvaluateOptions, systems: Sequence[ScoredSystem]) -> None:
    """Raises DocmtError for inputs that are missing and for outputs that cannot be written."""
    models = [system for system in systems if system.is_model]
    files = [system for system in systems if not system.is_model]
    of_models = ["output", "device", "precision", "batch_tokens", *([] if options.external.command else ["source"])]
    if not models and (idle := changed(options, *of_models, "search", "context")):
        names = ", ".join(flag_of(name) for name in idle)
        _log.warning(f"{names}: of no effect here, as only files are scored")
    if models and not options.source:
        raise DocmtError(f"{models[0].path} is a model, which needs --source: name the file to translate")
    if files and not options.reference:
        raise DocmtError(f"{files[0].path} needs --reference: name the file with the references")
    if files and options.metrics.unit == "instance":
        raise DocmtError(
            f"{files[0].path} is a file, which has no instances: score models alone with "
            f"--metrics.{f'protocol {protocol}' if (protocol := options.metrics.protocol) else 'unit instance'}"
        )
    if options.external.command:
        options.external.check_command()
        if len(systems) > 1:
            raise DocmtError("--external.command scores the translations of one system: call it for each of them")
        if not options.source:
            raise DocmtError("--external.command needs --source beside --hypothesis: name the file that was translated")
    if options.markdown and len(systems) == 1:
        raise DocmtError("--markdown is for comparing several systems: name more than one, or leave it out")
    read = [*(system.path for system in files), *options.reference]
    inputs = [*read, options.source] if models and (options.output or len(systems) > 1) else read
    for path in filter(None, inputs):
        check_regular(path, "it may be read more than once, but is")
    output = options.output if len(systems) == 1 and models else None
    check_outputs(options.json, options.markdown, output, inputs=[*read, options.source])
    if len(models) > 1:
        check_models([system.path for system in models], options.context, options.search)
    if len(systems) > 1 and options.output == STANDARD:
        raise DocmtError("-o - has no room for the translations of several systems: name a directory")


def _read(options: EvaluateOptions, systems: Sequence[ScoredSystem]) -> EvaluateRun:
    """Read the corpus to translate, if there is a model, the documents of every reference, and translations."""
    corpus: list[ParallelDocument] = []
    if any(system.is_model for system in systems):
        corpus = read_corpus(str(options.source), next(iter(options.reference), None))
    first = [document.target for document in corpus] or read_reference(Path(options.reference[0]))
    command = EvaluateRun(options, systems, corpus, [first])
    command.references += map(command.read, options.reference[1:])
    if len(systems) > 1:
        check_can_resample(len(first), options.significance)
    command.found = {system: Translations(command.read(system.path)) for system in systems if not system.is_model}
    return command


def _translate(command: EvaluateRun) -> None:
    """Translate the corpus with each model. Write its translations, if they are wanted, as soon as they are there."""
    options, outputs, several = command.options, command.outputs(), len(command.systems) > 1
    if outputs and several:
        for path in outputs.values():
            if Path(path).exists():
                raise DocmtError(f"{path} is there already: remove it, or name another directory with -o")
        make_directory(Path(str(options.output)))
        check_outputs(*outputs.values())
    for system in command.models:
        if several and on_terminal():
            _log.info(f"translating with {system.name}")
        whose = f"{system.name}: " if several else ""
        names = [whose + document_name(str(options.source), document) for document in command.corpus]
        translator = translator_of(options, system.path)
        command.found[system] = translate_corpus(translator, command.corpus, options.metrics.unit, names)
        if system in outputs:
            lines = lines_beside(str(options.source), command.corpus, command.found[system].hypotheses)
            write_text(outputs[system], lines)


def _score(command: EvaluateRun) -> int:
    """Score all systems on the documents that all of them have, and write it. Returns the status of the command."""
    _tell_equal(command)
    options, report, total, kept = command.options, Report(), len(command.references[0]), command.kept()
    several, evaluations = len(command.systems) > 1, dict[str, Evaluation]()
    for system in command.systems:
        report.add(command.found[system].report)
    if kept:
        try:
            with progress("scoring (systems)", len(command.systems)) as bar:
                for system in command.systems:
                    translations = command.found[system]
                    evaluations[system.name] = translations.evaluate(command.references, kept, options.metrics)
                    bar.advance()
            write = _compared if several else _alone
            values, lines, page = write(command, evaluations, report.failures)
            if options.by_position and (positions := _by_position(options, evaluations, report.failures)):
                values["by_position"] = positions.to_json()
                lines.append(f"\n{positions.format()}")
            write_results(options, values, page)
            print_table(options, "\n".join(filter(None, lines)))
        except DocmtError as error:  # after what is known of the translations
            report.failures.append(str(error))
    return report.print(total, len(kept), "documents", f"translated{' by every system' * several}")


Results = tuple[dict[str, Any], list[str], str]
"""What a command found: for JSON, for people, and in Markdown."""


def _alone(command: EvaluateRun, evaluations: Mapping[str, Evaluation], failures: list[str]) -> Results:
    """Return the scores of a single system.

    The JSON says first what was scored, so that the files of several systems can be told apart. Should the external
    metric fail, the other scores are there all the same.
    """
    (system,), (evaluation,), options = command.systems, evaluations.values(), command.options
    total, left_out, external = len(command.references[0]), len(command.references[0]) - len(command.kept()), None
    try:
        external = _external_score(command)
    except DocmtError as error:
        failures.append(str(error))
    kinds = {"hypothesis": None, "model": None, "model" if system.is_model else "hypothesis": system.path}
    named = {**kinds, "source": options.source, "reference": next(iter(options.reference), None)}
    beam = options.search.beam if system.is_model else None
    values = {**named, "references": options.reference, "beam": beam, **evaluation.to_json()}
    if system.is_model:
        values |= {"left_out": left_out, "warnings": command.found[system].report.counts()}
    values["external"] = external.to_json() if external else None
    remark = f"{left_out} of {total} documents left out, as they could not be translated" if left_out else ""
    return values, [evaluation.format(), external.format() if external else "", remark], ""


def _compared(command: EvaluateRun, evaluations: Mapping[str, Evaluation], failures: list[str]) -> Results:
    """Return the scores of several systems, and how they compare."""
    options, comparison = command.options, compare(evaluations, command.options.significance)
    values = {"source": options.source, "references": options.reference, **comparison.to_json()}
    for system, entry in zip(command.systems, values["systems"], strict=True):
        entry["path"] = system.path
        entry["beam"] = options.search.beam if system.is_model else None
        entry["warnings"] = command.found[system].report.counts() if system.is_model else None
    total, left_out = len(command.references[0]), len(command.references[0]) - len(command.kept())
    values["left_out"], remark = left_out, ""
    if left_out:
        remark = f"{left_out} of {total} documents left out of all scores, as not every system could translate them"
    return values, [comparison.format(), remark], comparison.to_markdown() + (f"- {remark}\n" if remark else "")


def _external_score(command: EvaluateRun) -> ExternalScore | None:
    """Score the documents that are translated in the external metric, if there is one."""
    if not command.options.external.command:
        return None
    kept, (translations,) = command.kept(), command.found.values()
    documents = [(command.corpus[number].id, command.corpus[number].source) for number in kept if command.corpus]
    documents = documents or list(read_documents(Path(str(command.options.source))))
    sources, ids = [sentences for _, sentences in documents], [id for id, _ in documents]
    hypotheses, references = ([side[n] for n in kept] for side in (translations.hypotheses, command.references[0]))
    external = score_externally(sources, hypotheses, references, ids, command.options.external)
    if external.too_long:
        _log.warning(external.warning())
    return external


def _by_position(
    options: EvaluateOptions, evaluations: Mapping[str, Evaluation], failures: list[str]
) -> PositionScores | None:
    """Return scores by the place of a sentence, of the systems that have scores of sentences.

    Tell which systems have none. That none has any is a failure.
    """
    defined = {name: own for name, own in evaluations.items() if own.s_bleu is not None}
    remarks = [
        f"{name} has no scores of sentences, so none by position: {own.undefined}"
        for name, own in evaluations.items()
        if name not in defined
    ]
    if not defined:
        failures.append(remarks[0])
        return None
    for remark in remarks:
        _log.warning(remark)
    return scores_by_position(defined, options.significance)


def _tell_equal(command: EvaluateRun) -> None:
    """Says which systems cannot differ."""
    texts = [[list(document) for document in command.found[system].hypotheses] for system in command.systems]
    for number, text in enumerate(texts):
        if text in texts[:number]:
            path, same = command.systems[number].path, command.systems[texts.index(text)].path
            _log.warning(f"{path} has the same translations as {same}, so that they cannot differ")


def _tell_way_on(command: EvaluateRun) -> None:
    """Says which models have their translations in files, and how to go on without making these again."""
    written = {system: path for system, path in command.outputs().items() if system in command.found}
    if not written or len(command.systems) == 1:
        return
    advice = "what else their scores need does not stand there: to compare them, translate again, with another -o"
    if all(_says_all(command, path, command.found[system]) for system, path in written.items()):
        names = shlex.join(written.get(system, system.path) for system in command.systems)
        needed = "" if command.options.reference else f" --reference {shlex.quote(str(command.options.source))}"
        advice = f"go on with --systems {names}{needed}"
    _log.warning(f"complete: {', '.join(written.values())}; {advice}")


def _says_all(command: EvaluateRun, path: str, own: Translations) -> bool:
    """Whether the file of a model has the same scores as what the model made."""
    if own.failed or any(own.miscounted) or command.options.metrics.unit == "instance":
        return False
    try:
        return list(map(list, command.read(path))) == list(map(list, own.hypotheses))
    except DocmtError:  # all of it is empty, or pairs were left out
        return False
