"""docmt evaluate --suite: test sets that ask whether a model uses its context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import check_outputs
from docmt.cli.parsing import Parser, add_settings, changed, translator_of
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
from docmt.evaluation.suite_tables import rows_of, suite_markdown, suite_text
from docmt.streams import warn

if TYPE_CHECKING:
    from docmt.decoding import Translator

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
    for suite in suites:
        for remark in suite.remarks():
            warn(remark)
    translators = [_translator(options, model, suites) for model in models]
    results = [[_evaluate(translator, suite, options) for translator in translators] for suite in suites]
    how = {
        **asdict(options.candidates),
        "beam": options.search.beam if any(each.generative for each in suites) else None,
    }
    systems = short(models)
    rows = [
        row
        for name, suite, own in zip(short(options.suite), suites, results, strict=True)
        for row in rows_of(name, suite.items, own)
    ]
    if options.markdown:
        write_text(options.markdown, suite_markdown(rows, systems))
    if len(models) == len(suites) == 1:
        named = {"model": models[0], "suite": options.suite[0], **how}
        found, shown = {**named, **results[0][0].to_json()}, results[0][0].format()
    else:
        answers = {
            name: {model: result.answers for model, result in zip(models, own, strict=True)}
            for name, own in zip(options.suite, results, strict=True)
        }
        found = {"systems": models, "suites": options.suite, **how, "rows": [row.to_json(models) for row in rows]}
        found, shown = {**found, "answers": answers}, suite_text(rows, systems)
    if options.json:
        write_text(options.json, json.dumps(found, indent=2) + "\n")
    if STANDARD not in (options.json, options.markdown):
        print(printable(shown, kept="\n"))
    return 0


def _models(options: Any) -> list[str]:
    """The models that are asked. Raises DocmtError where none is named."""
    if not options.systems:
        raise DocmtError("--suite needs --model: name the model whose preferences count")
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


def _translator(options: Any, model: str, suites: Sequence[Suite]) -> Translator:
    """The model of that name. Raises DocmtError where it does not translate between the languages of the test sets."""
    translator = translator_of(options, model)
    for suite in suites:
        suite.check_languages(model, translator.languages)
    return translator


def _evaluate(translator: Translator, suite: Suite, options: Any) -> ContrastiveResult:
    if suite.generative:
        return evaluate_translations(translator, suite.items)
    return evaluate_items(translator, suite.items, options.candidates)


def short(names: Sequence[str]) -> list[str]:
    """The names without folders, if these are different."""
    found = [",".join(Path(part).name for part in name.split(",")) for name in names]
    return found if len(set(found)) == len(found) else list(names)
