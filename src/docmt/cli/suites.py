"""docmt evaluate --suite: test sets that ask whether a model uses its context."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmt.cli.corpora import check_outputs
from docmt.cli.options import Parser, add_settings, changed, translator_of
from docmt.cli.results import Report
from docmt.cli.translating import ask_models, check_models
from docmt.core.errors import DocmtError, printable
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import within
from docmt.decoding import SearchConfig
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
from docmt.evaluation.contrastive import OnItem, Row, rows_of, suite_markdown, suite_text
from docmt.evaluation.suites import Item

if TYPE_CHECKING:
    from docmt.decoding import Translation, Translator

_log = logging.getLogger(__name__)

SCORING = ("temperature", "compatibility")
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
    check_suite_models(options, models, suites)
    for remark in (remark for suite in suites for remark in suite.remarks()):
        _log.warning(remark)
    names = dict(zip(models, short(models), strict=True))
    whose = {model: f"{name}: " if len(models) > 1 else "" for model, name in names.items()}
    asked = ask_models(models, lambda model: _ask(options, model, suites, whose[model]))
    if asked.made:
        _write(options, suites, asked.made, [names[model] for model in asked.made])
    return max([asked.tell(), *(own.status for own in asked.made.values())])


def _write(options: Any, suites: Sequence[Suite], answered: Mapping[str, Answers], names: Sequence[str]) -> None:
    """Prints the answers, and writes them where they are wanted; names: of the models that have answered."""
    results = [[own.results[number] for own in answered.values()] for number in range(len(suites))]
    rows = [
        row
        for name, suite, own in zip(short(options.suite), suites, results, strict=True)
        for row in rows_of(name, suite.items, own)
    ]
    alone = len(options.systems) == len(suites) == 1
    if options.markdown:
        write_text(options.markdown, suite_markdown(rows, names))
    if options.json:
        beam = options.search.beam if any(suite.generative for suite in suites) else None
        found = _facts_of_one(options, answered) if alone else _facts(options, answered, rows)
        content = {**asdict(options.candidates), "beam": beam, **found}
        write_text(options.json, json.dumps(content, indent=2) + "\n")
    if STANDARD not in (options.json, options.markdown):
        print(printable(results[0][0].format() if alone else suite_text(rows, names), kept="\n"))


def _facts_of_one(options: Any, answered: Mapping[str, Answers]) -> dict[str, Any]:
    """What the JSON says of one model and one test set."""
    ((model, own),) = answered.items()
    named = {"model": model, "suite": options.suite[0]}
    return {**named, **own.results[0].to_json(), "warnings": own.warnings}


def _facts(options: Any, answered: Mapping[str, Answers], rows: Sequence[Row]) -> dict[str, Any]:
    """What the JSON says of several: the rows of the table, and by test set and model every answer."""
    paths = dict(zip(short(options.suite), options.suite, strict=True))
    of_all = {
        path: {model: own.results[number].to_json() for model, own in answered.items()}
        for number, path in enumerate(options.suite)
    }

    def by_item(kind: str) -> dict[str, dict[str, Any]]:
        """What was said to every item, of the test sets that have such."""
        own = {
            path: {model: found[kind] for model, found in models.items() if kind in found}
            for path, models in of_all.items()
        }
        return {path: models for path, models in own.items() if models}

    return {
        "systems": list(answered),
        "suites": options.suite,
        "rows": [replace(row, suite=paths[row.suite]).to_json(list(answered)) for row in rows],
        "answers": by_item("answers"),
        "items": by_item("items"),
        "warnings": {model: own.warnings for model, own in answered.items()},
    }


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
    if options.output and any(generative):
        raise DocmtError(
            "--output has no meaning with --suite, where --json says what every item was translated to: give that"
        )
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
    check_outputs(options.json, options.markdown, inputs=options.suite)


def check_suite_models(options: Any, models: Sequence[str], suites: Sequence[Suite]) -> None:
    """Raises DocmtError for models that are none, or do not translate between the languages of the test sets."""
    for model, languages in check_models(options, models, "answer a test set").items():
        for suite in suites:
            suite.check_languages(model, languages)


@dataclass(frozen=True)
class Answers:
    """What a model answered to every test set."""

    results: Sequence[ContrastiveResult]
    """of each test set"""
    warnings: Mapping[str, int]
    status: int


def _ask(options: Any, model: str, suites: Sequence[Suite], whose: str) -> Answers:
    """The answers of a model to each test set; it is in memory no longer than that.

    What may be wrong with them is told; whose: what that says before the name of a test set, if there are several
    models.
    """
    translator, results, report = translator_of(options, model), [], Report()
    for suite, given in zip(suites, options.suite, strict=True):
        collect = partial(collect_item, report, whose + given, suite.items)
        with within(whose + given if whose or len(suites) > 1 else ""):
            results.append(_evaluate(translator, suite, options, collect))
    counts = [result.all for result in results]
    items, failed = (sum(getattr(count, name) for count in counts) for name in ("total", "unanswered"))
    status = report.print(items, items - failed, "items", "answered")
    return Answers(results, report.counts(), status)


def _evaluate(translator: Translator, suite: Suite, options: Any, on_item: OnItem) -> ContrastiveResult:
    if suite.generative:
        return evaluate_translations(translator, suite.items, on_item)
    return evaluate_items(translator, suite.items, options.candidates, on_item)


def collect_item(
    report: Report, name: str, items: Sequence[Item], number: int, made: Translation | DocmtError, where: str = ""
) -> None:
    """Adds why an item failed, or what may be wrong with its translation.

    name: of the test set; where: what else messages say of the place.
    """
    item = items[number]
    named = "" if item.id in ("", str(number + 1)) else f" ({item.id!r})"
    place = f"{name}, item {number + 1}{named}{where}"
    if isinstance(made, DocmtError):
        report.failures.append(f"{place}: {made}")
        return
    alone = len(made.sentences) < len(item.source)  # the sentence that is asked for, without its context
    report.collect(place, made, item.sentence if alone else 0)


def short(names: Sequence[str]) -> list[str]:
    """The names without folders, if these are different."""
    found = [",".join(Path(part).name for part in name.split(",")) for name in names]
    return found if len(set(found)) == len(found) else list(names)
