"""docmt evaluate --context_usage: how much a model uses its context, on a test set or on contrastive items"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docmt.cli.corpora import check_outputs, document_name, each_alone, read_corpus
from docmt.cli.parsing import translator_of
from docmt.cli.results import Report
from docmt.decoding import SearchConfig
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError, printable
from docmt.evaluation import (
    Evaluation,
    MetricConfig,
    PositionScores,
    UsageConfig,
    context_gain,
    other_context,
    read_items,
    scores_by_position,
    sentence_gains,
    suite_context,
)
from docmt.evaluation.suite_context import check_items
from docmt.evaluation.usage import check_context
from docmt.streams import warn

SCORED_WITH = ("temperature", "batch_tokens", "compatibility")
"""Options of the search that have a meaning where given texts are scored."""


def run(options: Any) -> int:
    """Prints what the context of models is worth to them; options: those of `docmt evaluate`."""
    _check(options)
    return _on_suite(options) if options.suite else _on_corpus(options)


def by_position(options: Any, systems: Mapping[str, Evaluation]) -> PositionScores | None:
    """The scores of systems by the place of a sentence, if asked for; of those that have scores of sentences."""
    defined = {name: own for name, own in systems.items() if own.s_bleu is not None}
    if not (options.by_position and defined):
        return None
    return scores_by_position(defined, options.significance.samples, options.significance.seed)


def check_unasked(options: Any) -> None:
    """Raises DocmtError for options of this that are given without --context_usage."""
    if options.usage != UsageConfig():
        raise DocmtError("the --usage options have no meaning without --context_usage: give it, or leave them out")


def _check(options: Any) -> None:
    """Raises DocmtError for options that do not go together, and for an output that cannot be written."""
    if not options.model or not (options.source or options.suite):
        raise DocmtError("--context_usage needs --model, and --source with --reference or --suite: name them")
    unused = [name for name in ("hypothesis", "output", "markdown", "by_position") if getattr(options, name)]
    unused += [name for name in ("source", "reference") if options.suite and getattr(options, name)]
    unused += ["usage.translate"] if options.suite and options.usage.translate else []
    if unused:
        asked = "--context_usage --suite" if options.suite else "--context_usage"
        raise DocmtError(f"--{unused[0]} has no meaning with {asked}: leave it out")
    if not options.usage.translate:
        usual = SearchConfig(**{name: getattr(options.search, name) for name in SCORED_WITH})
        if options.search != usual or options.metrics != MetricConfig():
            raise DocmtError(
                "--context_usage translates nothing, so options of metrics and of the search but "
                f"{', '.join(SCORED_WITH)} have no meaning: leave them out, or give --usage.translate"
            )
    if options.metrics.unit == "instance":
        raise DocmtError("--context_usage compares scores of sentences, which have no instances: use unit document")
    check_outputs(options.json)


def _on_suite(options: Any) -> int:
    items = read_items(Path(options.suite))
    check_items(items)
    result = suite_context(translator_of(options), items, options.usage)
    _tell(options, {"suite": options.suite, **result.to_json()}, result.format())
    return 0


def _on_corpus(options: Any) -> int:
    """Documents that cannot be scored are named and left out."""
    corpus = read_corpus(options.source, options.reference)
    check_context(max(map(len, corpus)))
    translator, report = translator_of(options), Report()
    names = [document_name(options.source, document) for document in corpus]
    found = each_alone(corpus, names, partial(sentence_gains, translator), report.failures)
    scored = [gains for gains in found if gains is not None]
    kept = [document for document, gains in zip(corpus, found, strict=True) if gains is not None]
    if scored:
        parts: dict[str, Any] = {"context_gain": context_gain(scored, options.usage)}
        if options.usage.sentences and len(kept) > 1:
            parts["other_context"] = other_context(translator, kept, options.usage, options.metrics)
        elif options.usage.sentences:
            warn("there is one document only: what the context of another one is worth is not measured")
        values = {"source": options.source, "reference": options.reference, "left_out": len(corpus) - len(kept)}
        values |= {name: part.to_json() for name, part in parts.items()}
        _tell(options, values, "\n\n".join(part.format() for part in parts.values()))
    return report.print(len(corpus), len(kept), "documents", "scored")


def _tell(options: Any, values: dict[str, Any], text: str) -> None:
    """Writes the JSON, where it is asked for, and prints the table, unless only the JSON is."""
    if options.json:
        write_text(options.json, json.dumps({"model": options.model, **values}, indent=2, ensure_ascii=False) + "\n")
    if options.json != "-":
        print(printable(text, kept="\n"))
