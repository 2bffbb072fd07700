"""Draft, check, repair beside the sequential search: equal sentences, scores, right words and time (decision 37).

python -m benchmarks.repair MODEL SOURCE REFERENCE [--suite FILE.jsonl] [--beam N] [--repeats N] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import format_table
from docmt import ContextConfig, Document, SearchConfig, Translator
from docmt.core.files import write_text
from docmt.documents.corpus_files import read_reference
from docmt.evaluation.metrics import evaluate_documents

TARGET_DECIDES = {
    "name": None,
    "address-free": ({"du", "dich", "dir", "dein", "deine", "deinen", "deinem", "deiner"}, {"Sie", "Ihnen", "Ihr"}),
}
"""Phenomena that only the translation decides, with informal and formal words of those with forms of address."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each of both searches, and write them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repair", description=__doc__)
    for name in ("model", "source", "reference"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--suite", type=Path, help="contrastive items, one for each document, of the synthetic corpus")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--window-decoding", default="auto", help="context.window_decoding: prefix for a concat model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--documents", type=int, help="how many are scored (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="timings, of which the best counts; 0: no times")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    sources, references = (
        [list(document) for document in read_reference(path)][: options.documents]
        for path in (options.source, options.reference)
    )
    items = [json.loads(line) for line in options.suite.read_text().splitlines()] if options.suite else []
    context = ContextConfig(window_decoding=options.window_decoding)
    repair = Translator(options.model, search=SearchConfig(options.beam), context=context, device=options.device)
    translators = {"sequential": repair.with_search(SearchConfig(options.beam, sequential=True)), "repair": repair}
    documents = [Document.from_sentences(source) for source in sources]
    rows, exact = dict[str, dict[str, Any]](), list[str]()
    for name, translator in translators.items():
        translated = [[sentence.target for sentence in result.sentences] for result in translator.translate(documents)]
        sentences = [sentence for document in translated for sentence in document]
        exact = exact or sentences
        equal = sum(a == b for a, b in zip(sentences, exact, strict=True)) / len(sentences)
        scores = evaluate_documents(translated, references).metrics
        row = {"search": name, "beam": options.beam, "equal": 100 * equal}
        row |= {metric: score.score for metric, score in scores.items() if score is not None}
        rows[name] = row | (count_right(items[: len(translated)], translated) if items else {})
    for count in (1, 16) if options.repeats else ():
        timed = sorted(documents[:16], key=lambda document: -len(document.sentences))[:count]
        seconds = defaultdict(list)
        for _ in range(options.repeats):
            for name, translator in translators.items():
                begin = time.perf_counter()
                translator.translate(timed)
                seconds[name].append(time.perf_counter() - begin)
        for name, row in rows.items():
            row[f"seconds {count}"] = min(seconds[name])
            row[f"speed {count}"] = min(seconds["sequential"]) / min(seconds[name])
    print(format_table(list(rows.values())))
    if options.output:
        write_text(options.output, json.dumps(list(rows.values()), indent=1) + "\n")


def count_right(items: Sequence[dict[str, Any]], translated: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the share of correct free translations, where the source decides and where only the target decides.

    The words that distinguish the candidates tell which of them a translation chose. Where only the target decides,
    correct is the choice of an earlier sentence of the same translation; items without one do not count.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for item, sentences in zip(items, translated, strict=True):
        position = item["sentence"]
        words = [_split_words(candidate[position]) for candidate in item["candidates"]]
        distinctive = [each.difference(*(other for other in words if other is not each)) for each in words]
        if item["phenomenon"] not in TARGET_DECIDES:
            right["source"].append(_find_choice(distinctive, sentences[position]) == item["correct"])
            continue
        if forms := TARGET_DECIDES[item["phenomenon"]]:
            distinctive = [forms[0] if each & forms[0] else forms[1] for each in distinctive]
        choices = [_find_choice(distinctive, sentence) for sentence in sentences[: position + 1]]
        if earlier := [choice for choice in choices[:-1] if choice is not None]:
            right["target"].append(choices[-1] == earlier[0])
    return {f"{side} decides": 100 * sum(results) / len(results) for side, results in right.items()}


def _split_words(sentence: str) -> set[str]:
    return set(sentence.strip(".?!").replace(",", " ").split())


def _find_choice(candidates: Sequence[set[str]], sentence: str) -> int | None:
    """Return the number of the only candidate whose words this sentence has."""
    matches = [number for number, words in enumerate(candidates) if words & _split_words(sentence)]
    return matches[0] if len(matches) == 1 else None


if __name__ == "__main__":
    main()
