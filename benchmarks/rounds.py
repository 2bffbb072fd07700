"""Scores, right words and time of decoding in rounds (docs/contributing/decisions/0002-rounds.md) beside sequential.

python -m benchmarks.rounds MODEL SOURCE REFERENCE [--suite FILE.jsonl] [--beam N] [--repeats N] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt import ContextConfig, Document, SearchConfig, Translator
from docmt.core.files import write_text
from docmt.documents.corpus_files import read_reference
from docmt.evaluation.metrics import evaluate_documents

ROUNDS = (0, 1, 2, 3)
"""0 is sequential decoding"""
TARGET_DECIDES = {
    "name": None,
    "address-free": ({"du", "dich", "dir", "dein", "deine", "deinen", "deinem", "deiner"}, {"Sie", "Ihnen", "Ihr"}),
}
"""Phenomena that only the translation decides. Their forms of address: informal and formal words."""


def main() -> None:
    """Print one row for each number of rounds, and write all rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds", description=__doc__)
    for name in ("model", "source", "reference"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--suite", type=Path, help="contrastive items, one for each document, of the synthetic corpus")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--window-decoding", default="", help="context.window_decoding: prefix for a concat model")
    parser.add_argument("--documents", type=int, help="how many are scored (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="timings, of which the best counts; 0: no times")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    sources, references = (
        [list(document) for document in read_reference(path)][: options.documents]
        for path in (options.source, options.reference)
    )
    items = [json.loads(line) for line in options.suite.read_text().splitlines()] if options.suite else []
    context = ContextConfig(window_decoding=options.window) if options.window else ContextConfig()
    translators = {
        rounds: Translator(options.model, search=SearchConfig(beam=options.beam, rounds=rounds), context=context)
        for rounds in ROUNDS
    }
    documents = [Document.from_sentences(source) for source in sources]
    rows: list[dict[str, Any]] = []
    sequential: list[str] = []
    for rounds, translator in translators.items():
        translated = [[sentence.target for sentence in each.sentences] for each in translator.translate(documents)]
        evaluation = evaluate_documents(translated, references)
        sentences = [sentence for document in translated for sentence in document]
        sequential = sequential or sentences
        equal = sum(a == b for a, b in zip(sentences, sequential, strict=True)) / len(sentences)
        row = {"rounds": rounds, "beam": options.beam, "equal": 100 * equal}
        row |= {name: score.score for name, score in evaluation.scores().items() if score is not None}
        rows.append(row | right_items(items[: len(translated)], translated) if items else row)
        print(row_text(rows[-1]), flush=True)
    for count in (1, 16) if options.repeats else ():
        timed = sorted(documents[:16], key=lambda document: -len(document.sentences))[:count]
        seconds = defaultdict(list)
        for _ in range(options.repeats):
            for rounds, translator in translators.items():
                begin = time.perf_counter()
                translator.translate(timed)
                seconds[rounds].append(time.perf_counter() - begin)
        for row in rows:
            row[f"seconds {count}"] = min(seconds[row["rounds"]])
            row[f"speed {count}"] = min(seconds[0]) / row[f"seconds {count}"]
    for row in rows:
        print(row_text(row))
    if options.output:
        write_text(options.output, json.dumps(rows, indent=1) + "\n")


def row_text(row: dict[str, Any]) -> str:
    """Return a row as one line."""
    return ", ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def right_items(items: Sequence[dict[str, Any]], translated: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the share of right free translations, where the source decides and where only the target decides.

    The words that tell the candidates apart say which of them a translation chose. Where only the target decides, right
    is the choice that an earlier sentence of the same translation made; items without one do not count.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for item, sentences in zip(items, translated, strict=True):
        place = item["sentence"]
        words = [_words(candidate[place]) for candidate in item["candidates"]]
        own = [each.difference(*(other for other in words if other is not each)) for each in words]
        if item["phenomenon"] not in TARGET_DECIDES:
            right["source"].append(_choice(own, sentences[place]) == item["correct"])
            continue
        forms = TARGET_DECIDES[item["phenomenon"]]
        if forms:
            own = [forms[0] if each & forms[0] else forms[1] for each in own]
        earlier = [choice for each in sentences[:place] if (choice := _choice(own, each)) is not None]
        if earlier:
            right["target"].append(_choice(own, sentences[place]) == earlier[0])
    return {
        name: value
        for who, each in right.items()
        for name, value in ((f"{who} decides", 100 * sum(each) / len(each)), (f"{who} items", len(each)))
    }


def _words(sentence: str) -> set[str]:
    return set(sentence.strip(".?!").replace(",", " ").split())


def _choice(own: Sequence[set[str]], sentence: str) -> int | None:
    """Return the number of the one candidate whose words this sentence has."""
    chosen = [number for number, each in enumerate(own) if each & _words(sentence)]
    return chosen[0] if len(chosen) == 1 else None


if __name__ == "__main__":
    main()
