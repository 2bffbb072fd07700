"""docmt evaluate --suite: test sets that ask whether a model uses its context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import check_outputs
from docmt.cli.parsing import Parser, add_settings, changed, translator_of
from docmt.cli.results import Report
from docmt.decoding import SearchConfig
from docmt.documents.plain_text import STANDARD, write_text
from docmt.errors import DocmtError, printable
from docmt.evaluation import (
    ContrastiveResult,
    MetricConfig,
    SignificanceConfig,
    Suite,
    SuiteConfig,
    evaluate_items,
    evaluate_translations,
    read_suite,
)
from docmt.evaluation.contrastive import OnItem
from docmt.evaluation.suite_items import Item
from docmt.evaluation.suite_tables import Row, rows_of, suite_markdown, suite_text
from docmt.streams import warn

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

SCORING = ("temperature", "batch_tokens", "compatibility")
"""Options of the search that have a meaning where given texts are scored."""


def add_suite_options(parser: Parser) -> None:
    """The test sets, and how their candidates compare."""
    parser.add_argument(
        "--suite",
        type=str,
        nargs="+",
        metavar="NAME|FILE",
        help="test sets that ask models (--model or --systems) whether they use context: files with candidates "
        "(docmt's JSONL, ContraPro, DiscEvalMT, the consistency sets) or with expected forms (ctxPro), or pronouns or "
        "phenomena, which are made (English-German)",
    )
    add_settings(parser, SuiteConfig, "candidates", "how the candidates of --suite compare")


def check_no_suite(options: Any) -> None:
    """Raises DocmtError for options that have a meaning with --suite alone."""
    if unusual := changed(options.candidates, SuiteConfig(), "candidates"):
        raise DocmtError(f"--{unusual[0]} has no meaning without --suite: leave it out, or name a test set")


def evaluate_suites(options: Any) -> int:
    """Prints how often models answered rightly, by phenomenon and distance: of several in one table."""
    models = _models(options)
    suites = [read_suite(given) for given in once(options.suite, "suite")]
    _check(options, suites)
    _check_models(models, suites)
    for suite in suites:
        for remark in suite.remarks():
            warn(remark)
    systems, reports = short(models), {model: Report() for model in models}
    within = [f"{name}: " for name in systems] if len(models) > 1 else [""]
    answered = [
        _ask(options, model, suites, report, whose)
        for whose, (model, report) in zip(within, reports.items(), strict=True)
    ]
    results = list(zip(*answered, strict=True))  # of each test set those of all models
    rows = [
        row
        for name, suite, own in zip(short(options.suite), suites, results, strict=True)
        for row in rows_of(name, suite.items, own)
    ]
    if options.markdown:
        write_text(options.markdown, suite_markdown(rows, systems))
    if options.json:
        beam = options.search.beam if any(suite.generative for suite in suites) else None
        content = {**asdict(options.candidates), "beam": beam, **_facts(options, results, rows, reports)}
        write_text(options.json, json.dumps(content, indent=2) + "\n")
    if STANDARD not in (options.json, options.markdown):
        shown = results[0][0].format() if len(models) == len(suites) == 1 else suite_text(rows, systems)
        print(printable(shown, kept="\n"))
    return 0


def _facts(
    options: Any, results: Sequence[Sequence[ContrastiveResult]], rows: Sequence[Row], reports: Mapping[str, Report]
) -> dict[str, Any]:
    """What the JSON says of a model and a test set or, as of several, of each row of the table.

    results: of each test set those of all models; reports: of each model.
    """
    models, warnings = list(reports), {model: report.counts() for model, report in reports.items()}
    if len(models) == len(results) == 1:
        named = {"model": models[0], "suite": options.suite[0]}
        return {**named, **results[0][0].to_json(), "warnings": warnings[models[0]]}
    answers = {
        name: {model: result.answers for model, result in zip(models, own, strict=True)}
        for name, own in zip(options.suite, results, strict=True)
    }
    shown = [row.to_json(models) for row in rows]
    return {"systems": models, "suites": options.suite, "rows": shown, "answers": answers, "warnings": warnings}


def _models(options: Any) -> list[str]:
    """The models that are asked. Raises DocmtError where none is named."""
    if not options.systems:
        raise DocmtError("--suite needs --model or --systems: name the models whose preferences count")
    return once(options.systems, "systems")


def once(names: Sequence[str], option: str) -> list[str]:
    """The names. Raises DocmtError for one that is there twice."""
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise DocmtError(f"--{option} names {twice[0]} twice: name it once")
    return list(names)


def _check(options: Any, suites: Sequence[Suite]) -> None:
    """Raises DocmtError for options that mean nothing with these test sets, and for outputs that cannot be written."""
    generative = [suite.generative for suite in suites]
    unused = [name for name in ("source", "reference", "hypothesis", "output") if getattr(options, name)]
    unused += changed(options.metrics, MetricConfig(), "metrics")
    unused += changed(options.significance, SignificanceConfig(), "significance")
    if not any(generative):
        unusual = changed(options.search, SearchConfig(), "search")
        unused += [name for name in unusual if name.removeprefix("search.") not in SCORING]
    if unused:
        what = "asks for other things" if any(generative) else "translates nothing"
        raise DocmtError(f"--{unused[0]} has no meaning with --suite, which {what}: leave it out")
    if all(generative) and (unusual := changed(options.candidates, SuiteConfig(), "candidates")):
        raise DocmtError(f"--{unusual[0]} has no meaning for test sets without candidates: leave it out")
    check_outputs(options.json, options.markdown)


def _check_models(models: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raises DocmtError for models that are none, or do not translate between the languages of the test sets."""
    from docmt.decoding.loading import model_paths
    from docmt.model_directory import load_languages, load_model_config

    for path in (path for model in models for path in model_paths(model)):
        load_model_config(path)
        for suite in suites:
            suite.check_languages(str(path), load_languages(path))


def _ask(options: Any, model: str, suites: Sequence[Suite], report: Report, whose: str) -> list[ContrastiveResult]:
    """The answers of a model to each test set; it is in memory no longer than that.

    What may be wrong with them is collected in the report, and told; whose: what it says before the name of a test set.
    """
    translator, results = translator_of(options, model), []
    for suite, given in zip(suites, options.suite, strict=True):
        collect = partial(_collect, report, whose + given, suite.items)
        results.append(_evaluate(translator, suite, options, collect))
    items = sum(len(suite.items) for suite in suites)
    report.print(items, items, "items", "answered")
    return results


def _evaluate(translator: Translator, suite: Suite, options: Any, on_item: OnItem) -> ContrastiveResult:
    if suite.generative:
        return evaluate_translations(translator, suite.items, on_item)
    return evaluate_items(translator, suite.items, options.candidates, on_item)


def _collect(report: Report, name: str, items: Sequence[Item], number: int, translation: Translation) -> None:
    """Adds what may be wrong with the translation of an item; name: of the test set."""
    id = items[number].id
    named = "" if id in ("", str(number + 1)) else f" ({id!r})"
    report.collect(f"{name}, item {number + 1}{named}", translation)


def short(names: Sequence[str]) -> list[str]:
    """The names without folders, if these are different."""
    found = [",".join(Path(part).name for part in name.split(",")) for name in names]
    return found if len(set(found)) == len(found) else list(names)
