"""The comparison of an experiment's systems: paired tests, contexts of a test set, costs, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.plain_text import escape_markdown, markdown_table
from docmt.data import PreparedStore
from docmt.evaluation import compare, evaluate_documents
from docmt.experiments.costs import LONG_DOCUMENT, Costs, load_costs, measure_costs, save_costs
from docmt.experiments.runs import EvaluationConfig, Plan, PlannedRun, determine_state, load_contexts, load_translations

COSTS_SUFFIX = "-costs.json"


def select_compared(plan: Plan, evaluation: EvaluationConfig) -> dict[str, PlannedRun]:
    """Return a finished run of each variant in the direction of the store, that of the first seed."""
    finished: dict[str, PlannedRun] = {}
    for planned in plan.runs:
        if not planned.config.reverse and determine_state(planned, evaluation) == "done":
            finished.setdefault(planned.variant, planned)
    order = plan.experiment.select_variants(plan.scale)
    return {variant: finished[variant] for variant in order if variant in finished}


def update_costs(plan: Plan, evaluation: EvaluationConfig) -> None:
    """Measure the costs of all compared runs, unless they are stored."""
    runs = select_compared(plan, evaluation)
    path = plan.output_path(evaluation.context, COSTS_SUFFIX)
    if runs and not load_costs(path, [planned.config.run.name for planned in runs.values()], evaluation):
        save_costs(path, measure_costs([planned.config for planned in runs.values()], evaluation), evaluation)


def format_comparison(plan: Plan, evaluation: EvaluationConfig) -> list[str]:
    """Return the lines of the tables in Markdown, with at least two finished variants; otherwise nothing."""
    runs = select_compared(plan, evaluation)
    if len(runs) < 2:
        return []
    lines = ["", "## Comparison", ""]
    try:
        lines += [*_format_scores(evaluation, runs), ""]
    except DocmtError as error:  # such as a test split of one document
        lines += [f"- no paired tests: {escape_markdown(str(error))}", ""]
    if evaluation.suite is not None:
        results = {variant: load_contexts(planned.config.run, evaluation) for variant, planned in runs.items()}
        known = {variant: result for variant, result in results.items() if result is not None}
        lines += [f"### {escape_markdown(evaluation.suite.name)} by context", "", *_format_contexts(known)]
    names = {variant: planned.config.run.name for variant, planned in runs.items()}
    costs = load_costs(plan.output_path(evaluation.context, COSTS_SUFFIX), list(names.values()), evaluation)
    if costs:
        lines += ["### Costs", "", *_format_costs({variant: costs[name] for variant, name in names.items()})]
    return lines


def _format_scores(evaluation: EvaluationConfig, runs: Mapping[str, PlannedRun]) -> list[str]:
    """Return the paired tests of all variants against the first one."""
    systems = {}
    for variant, planned in runs.items():
        translations = load_translations(planned.config.run, evaluation)
        assert translations is not None  # the run is done
        systems[variant] = evaluate_documents(
            translations["documents"],
            _references(planned),
            evaluation.metrics,
            translations["instances"],
            miscounted=translations["miscounted"],
        )
    return compare(systems).to_markdown().splitlines()


def _references(planned: PlannedRun) -> list[Sequence[str]]:
    store = PreparedStore.open(planned.config.store)
    documents = store.split("test").documents("target")
    return [store.tokenizer.decode_batch(document, "target") for document in documents]


def _format_contexts(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the right answers of each variant by context, and the gain on the tokens in which candidates differ."""
    first = next(iter(results.values()), {})
    conditions = [name for name, result in first.items() if isinstance(result, Mapping) and "answers" in result]
    rows = [["", *conditions, *(f"gain over {name} (nats)" for name in conditions[1:])]]
    for variant, result in results.items():
        row = [escape_markdown(variant), *(f"{100 * result[name]['accuracy']:.1f}" for name in conditions)]
        gains = (result.get("marked_tokens") or {}).get("gains", {})
        rows.append(row + [_format_gain(gains.get(name)) for name in conditions[1:]])
    used = f"{first['true']['total']:,} items" if conditions else "no items"
    if first.get("left_out"):
        used += f"; {first['left_out']:,} are left out, as no other item has as many sentences"
    notes = [
        f"- percent of the items whose right candidate is the most probable, by the visible context ({used})",
        "- gain of true context on the tokens in which candidates differ, nats an item, with its p-value",
    ]
    return [*markdown_table(rows), "", *notes, ""]


def _format_gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return "-"
    value = gain["gain"]
    return f"{value['value']:+.3f} (p {gain['p_value']:.4f})"


def _format_costs(costs: Mapping[str, Costs]) -> list[str]:
    """Return weights, memory, and speeds relative to the first variant."""
    first = next(iter(costs.values()))
    rows = [["", "weights (M)", "training", "translation", f"memory for {LONG_DOCUMENT:,} tokens (MB)"]]
    for variant, each in costs.items():
        memory = "-" if each.long_document is None else f"{each.long_document / 1e6:.0f}"
        training = each.training_tokens / first.training_tokens
        translation = each.translated_sentences / first.translated_sentences
        rows.append(
            [escape_markdown(variant), f"{each.weights / 1e6:.2f}", f"{training:.2f}", f"{translation:.2f}", memory]
        )
    notes = [
        "- speeds relative to the first system, the best of several turns over all; nothing is frozen by a setting",
        f"- memory: by how much a process grows that scores a document of {LONG_DOCUMENT:,} source tokens at once",
    ]
    return [*markdown_table(rows), "", *notes, ""]
