"""Decoding in rounds beside sequential decoding: scores, correct words and time (decision 0002).

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
"""Numbers of rounds; 0 is sequential decoding."""
TARGET_DECIDES = {
    "name": None,
    "address-free": ({"du", "dich", "dir", "dein", "deine", "deinen", "deinem", "deiner"}, {"Sie", "Ihnen", "Ihr"}),
}
"""Phenomena that only the translation decides, with informal and formal words of those with forms of address."""


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
        translated = [[sentence.target for sentence in result.sentences] for result in translator.translate(documents)]
        evaluation = evaluate_documents(translated, references)
        sentences = [sentence for document in translated for sentence in document]
        sequential = sequential or sentences
        equal = sum(a == b for a, b in zip(sentences, sequential, strict=True)) / len(sentences)
        row = {"rounds": rounds, "beam": options.beam, "equal": 100 * equal}
        row |= {name: score.score for name, score in evaluation.scores().items() if score is not None}
        rows.append(row | count_right(items[: len(translated)], translated) if items else row)
        print(format_row(rows[-1]), flush=True)
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
        print(format_row(row))
    if options.output:
        write_text(options.output, json.dumps(rows, indent=1) + "\n")


def format_row(row: dict[str, Any]) -> str:
    """Return a row as one line."""
    return ", ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def count_right(items: Sequence[dict[str, Any]], translated: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the share of correct free translations, where the source decides and where only the target decides.

    The words that distinguish the candidates tell which of them a translation chose. Where only the target decides,
    correct is the choice of an earlier sentence of the same translation; items without one do not count.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for item, sentences in zip(items, translated, strict=True):
        position = item["sentence"]
        candidate_words = [_split_words(candidate[position]) for candidate in item["candidates"]]
        distinctive = [
            words.difference(*(other for other in candidate_words if other is not words)) for words in candidate_words
        ]
        if item["phenomenon"] not in TARGET_DECIDES:
            right["source"].append(_find_choice(distinctive, sentences[position]) == item["correct"])
            continue
        forms = TARGET_DECIDES[item["phenomenon"]]
        if forms:
            distinctive = [forms[0] if words & forms[0] else forms[1] for words in distinctive]
        choices = [_find_choice(distinctive, sentence) for sentence in sentences[:position]]
        earlier = [choice for choice in choices if choice is not None]
        if earlier:
            right["target"].append(_find_choice(distinctive, sentences[position]) == earlier[0])
    return {
        name: value
        for side, results in right.items()
        for name, value in ((f"{side} decides", 100 * sum(results) / len(results)), (f"{side} items", len(results)))
    }


def _split_words(sentence: str) -> set[str]:
    return set(sentence.strip(".?!").replace(",", " ").split())


def _find_choice(candidates: Sequence[set[str]], sentence: str) -> int | None:
    """Return the number of the only candidate whose words this sentence has."""
    matches = [number for number, words in enumerate(candidates) if words & _split_words(sentence)]
    return matches[0] if len(matches) == 1 else None


if __name__ == "__main__":
    main()
