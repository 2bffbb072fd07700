"""docmt evaluate --context_usage: how much models use their context; --by_position: scores by the place of sentences"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import check_outputs, document_name, each_alone, read_corpus
from docmt.cli.options import changed, translator_of
from docmt.cli.results import Report
from docmt.cli.suites import SCORING, check_no_suite, check_suite_models, collect_item, once, short
from docmt.cli.translating import attempted, check_models
from docmt.core.errors import DocmtError, printable
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import within
from docmt.decoding import SearchConfig
from docmt.documents import ParallelDocument
from docmt.evaluation import (
    ContextGain,
    Evaluation,
    MetricConfig,
    OtherContext,
    PositionScores,
    SignificanceConfig,
    Suite,
    SuiteConfig,
    UsageConfig,
    context_gain,
    other_context,
    read_suite,
    scores_by_position,
    suite_context,
)
from docmt.evaluation.contrastive import suite_text
from docmt.evaluation.suites import Item
from docmt.evaluation.usage import CONDITIONS, check_context, gains_of, scored_twice, with_other_context

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """What was measured of one model."""

    values: dict[str, Any]
    """for the JSON"""
    text: str
    """for people; empty if nothing could be measured"""
    status: int = 0


def run(options: Any) -> int:
    """Prints what the context of models is worth to them; options: those of `docmt evaluate`."""
    models = once(options.systems, "systems") if options.systems else [options.model] if options.model else []
    _check(options, models)
    measure = _measure_suites(options, models) if options.suite else _measure_corpus(options, models)
    found, failures = dict[str, Measured](), list[str]()
    try:
        for model in models:
            own = attempted(model, partial(_load_and_measure, options, measure, model), failures)
            if own is None:
                continue
            found[model] = own
            if own.text and options.json != STANDARD:
                print(printable(f"{model}\n{own.text}\n" if len(models) > 1 else own.text, kept="\n"), flush=True)
    except KeyboardInterrupt:
        if found:
            _log.warning(f"{len(found)} of {len(models)} models measured before the interruption")
        raise
    finally:  # what was measured before an interruption is written, too
        for failure in failures:
            _log.error(failure)
        _write(options, found, len(models) > 1)
    return max([2 if failures else 0, *(own.status for own in found.values())])


def _write(options: Any, found: Mapping[str, Measured], several: bool) -> None:
    """The JSON of the models that were measured, if it is asked for; several: whether more than one was to be."""
    if options.json and found:
        drawn = {"samples": options.significance.samples, "seed": options.significance.seed}
        values = [{"model": model, **drawn, **own.values} for model, own in found.items()]
        whole = {"systems": values} if several else values[0]
        write_text(options.json, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def _load_and_measure(options: Any, measure: Callable[[str, Translator], Measured], model: str) -> Measured:
    return measure(model, translator_of(options, model))


def by_position(options: Any, systems: Mapping[str, Evaluation]) -> PositionScores | None:
    """The scores of systems by the place of a sentence, if asked for; of those that have scores of sentences."""
    defined = {name: own for name, own in systems.items() if own.s_bleu is not None}
    if not (options.by_position and defined):
        return None
    return scores_by_position(defined, options.significance)


def check_positions(options: Any, systems: Mapping[str, Evaluation]) -> None:
    """Tells which systems have no scores by position though they are asked for; to be called after all else is told.

    Raises DocmtError where none has any.
    """
    undefined = [
        f"{name} has no scores of sentences, so none by position: {own.undefined}"
        for name, own in systems.items()
        if options.by_position and own.s_bleu is None
    ]
    if undefined and len(undefined) == len(systems):
        raise DocmtError(undefined[0])
    for remark in undefined:
        _log.warning(remark)


def check_unasked(options: Any) -> None:
    """Raises DocmtError for options of this that are given without --context_usage, or where they mean nothing."""
    if options.usage != UsageConfig():
        raise DocmtError("the --usage options have no meaning without --context_usage: give it, or leave them out")
    if options.by_position and options.suite:
        raise DocmtError("--by_position has no meaning with --suite, whose items are scored alone: leave it out")


def _check(options: Any, models: Sequence[str]) -> None:
    """Raises DocmtError for options that do not go together, and for an output that cannot be written."""
    if not models or not (options.source or options.suite):
        raise DocmtError(
            "--context_usage needs --model or --systems, and --source with --reference, or --suite: name them"
        )
    unused = [name for name in ("hypothesis", "output", "markdown", "by_position") if getattr(options, name)]
    unused += [name for name in ("source", "reference") if options.suite and getattr(options, name)]
    if unused:
        asked = "--context_usage --suite" if options.suite else "--context_usage"
        raise DocmtError(f"--{unused[0]} has no meaning with {asked}: leave it out")
    if len(options.references) > 1:
        raise DocmtError("--context_usage asks how probable a reference is: give one --reference")
    if options.suite and options.usage != UsageConfig():
        raise DocmtError("the --usage options have no meaning with --suite: leave them out")
    seed = SignificanceConfig(seed=options.significance.seed)
    drawn = seed if options.suite else replace(seed, samples=options.significance.samples)
    if unused := changed(options.significance, drawn, "significance"):
        where, taken = (" --suite", "the seed") if options.suite else ("", "samples and seed")
        raise DocmtError(
            f"--{unused[0]} has no meaning with --context_usage{where}, which takes {taken} alone: leave it out"
        )
    if not options.suite:
        check_no_suite(options)
        _check_translating(options, False, "leave out --context_usage")
    if options.metrics.unit == "instance":
        raise DocmtError("--context_usage compares scores of sentences, which have no instances: use unit document")
    check_outputs(options.json, inputs=[*(options.suite or ()), options.source, *options.references])


def _check_translating(options: Any, translates: bool, advice: str) -> None:
    """Raises DocmtError for options of translations and their scores where nothing is translated."""
    usual = SearchConfig(**{name: getattr(options.search, name) for name in SCORING})
    if not translates and (options.search != usual or options.metrics != MetricConfig()):
        raise DocmtError(
            f"nothing is translated here, so of the options of metrics and search only {', '.join(SCORING)} have a "
            f"meaning: leave the others out, or {advice}"
        )


def _measure_suites(options: Any, models: Sequence[str]) -> Callable[[str, Translator], Measured]:
    suites = [read_suite(given) for given in once(options.suite, "suite")]
    _check_translating(options, any(suite.generative for suite in suites), "name a test set without candidates")
    unused = changed(options.metrics, MetricConfig(), "metrics")
    if all(suite.generative for suite in suites):
        unused += changed(options.candidates, SuiteConfig(), "candidates")
    if unused:
        raise DocmtError(f"--{unused[0]} has no meaning for these test sets: leave it out")
    for suite in suites:  # before any work is done
        with_other_context(suite.items, options.significance.seed)
    check_suite_models(options, models, suites)
    for remark in (remark for suite in suites for remark in suite.remarks()):
        _log.warning(remark)
    return partial(_on_suites, options, suites)


def _on_suites(options: Any, suites: Sequence[Suite], model: str, translator: Translator) -> Measured:
    """Items that cannot be scored or translated are wrong; test sets that cannot be asked are named and left out."""
    rows, values, remarks, report = [], {}, [], Report()
    for name, given, suite in zip(short(options.suite), options.suite, suites, strict=True):
        whole = _of_model(options, model, given)
        tell = partial(_collect_item, report, whole, suite.items)
        asked = (translator, suite.items, options.candidates, options.significance, tell)
        with within(whole if len(suites) > 1 or len(options.systems) > 1 else ""):
            found = attempted(whole, partial(suite_context, *asked), report.failures)
        if found is None:
            continue
        rows += found.rows(name)
        values[given] = found.to_json()
        if found.left_out:
            remarks.append(f"{found.left_out:,} items of {name} left out, as no other item has as many sentences")
    columns = [f"{name} context" for name in CONDITIONS]
    text = suite_text(rows, columns, f"with {columns[0]}") if rows else ""
    status = report.print(len(suites), len(values), "test sets", "scored")
    counted = {"warnings": report.counts(), "suites": values}
    return Measured({**asdict(options.candidates), **counted}, "\n".join([text, *remarks]), status)


def _measure_corpus(options: Any, models: Sequence[str]) -> Callable[[str, Translator], Measured]:
    corpus = read_corpus(options.source, options.reference)
    check_context(max(map(len, corpus)))
    check_models(options, models, "say how much they use context")
    return partial(_on_corpus, options, corpus)


def _on_corpus(options: Any, corpus: Sequence[ParallelDocument], model: str, translator: Translator) -> Measured:
    """Documents that cannot be scored are named and left out, and so is what cannot be measured."""
    report, config = Report(), options.usage
    names = [_of_model(options, model, document_name(options.source, document)) for document in corpus]
    found = each_alone(corpus, names, partial(scored_twice, translator), report.failures)
    kept, gains = [], []
    for name, document, scores in zip(names, corpus, found, strict=True):
        if scores is not None:
            report.collect(name, scores[0])
            kept.append(document)
            gains.append(gains_of(document, *scores))
    parts: dict[str, ContextGain | OtherContext | None] = {}
    if kept:
        work = partial(context_gain, gains, config, options.significance)
        parts["context_gain"] = attempted(_of_model(options, model, "CXMI"), work, report.failures)
    if config.before and len(kept) == 1:
        _log.warning("there is one document only: what the context of another one is worth is not measured")
    elif config.before and parts.get("context_gain"):
        others = partial(other_context, translator, kept, config, options.significance)
        name = _of_model(options, model, "true, empty and shuffled context")
        parts["other_context"] = attempted(name, others, report.failures)
    measured = {name: part for name, part in parts.items() if part is not None}
    values: dict[str, Any] = {"source": options.source, "reference": options.reference, **asdict(config)}
    values |= {"left_out": len(corpus) - len(kept), "warnings": report.counts()}
    values |= {name: part.to_json() for name, part in measured.items()}
    status = report.print(len(corpus), len(kept), "documents", "scored")
    return Measured(values, "\n\n".join(part.format() for part in measured.values()), status)


def _of_model(options: Any, model: str, name: str) -> str:
    """A name as messages have it: with that of the model, if there are several."""
    return f"{model}: {name}" if len(options.systems) > 1 else name


def _collect_item(
    report: Report, name: str, items: Sequence[Item], condition: str, number: int, made: Translation | DocmtError
) -> None:
    """Adds why an item failed, or what may be wrong with its translation; name: of the test set."""
    if condition != CONDITIONS[0] and not isinstance(made, DocmtError):
        made = replace(made, overlong=())  # which is told once
    collect_item(report, name, items, number, made, f", {condition} context")
