"""Measure the pairs of a text and its translation in which a translator changed something (`--reuse`).

python -m benchmarks.earlier_versions MODEL SOURCE TARGET [SHARE]

The files have a sentence a line, and an empty line between documents. In each document of eight lines or more one thing
is changed. Counted are pairs and wrong ones: by order alone, by `pair_texts`, and after the check by the model. SHARE:
one document of so many is read (default: 6).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import docmt
from docmt.terms import Memory
from docmt.terms.memory import drop_misfits, make_key
from docmt.terms.version_pairs import pair_texts

Lines = list[str]


def cut(line: str) -> Lines:
    """Return the halves of a line."""
    words = line.split()
    return [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]


CHANGES: dict[str, Callable[[Lines, int, str], Lines]] = {
    "nothing": lambda rows, n, new: rows,
    "one removed": lambda rows, n, new: [*rows[:n], *rows[n + 1 :]],
    "one added": lambda rows, n, new: [*rows[:n], new, *rows[n:]],
    "one removed, one added later": lambda rows, n, new: [*rows[:n], *rows[n + 1 : n + 4], new, *rows[n + 4 :]],
    "two swapped": lambda rows, n, new: [*rows[:n], rows[n + 1], rows[n], *rows[n + 2 :]],
    "one replaced": lambda rows, n, new: [*rows[:n], new, *rows[n + 1 :]],
    "two joined": lambda rows, n, new: [*rows[:n], f"{rows[n]} {rows[n + 1]}", *rows[n + 2 :]],
    "one cut": lambda rows, n, new: [*rows[:n], *cut(rows[n]), *rows[n + 1 :]],
    "one cut, the next two joined": lambda rows, n, new: [
        *(*rows[:n], *cut(rows[n])),
        *(f"{rows[n + 1]} {rows[n + 2]}", *rows[n + 3 :]),
    ],
}


def read_documents(path: str) -> list[Lines]:
    """Return the documents of a file."""
    return [block.split("\n") for block in Path(path).read_text(encoding="utf-8").strip().split("\n\n")]


def main(arguments: Sequence[str]) -> None:
    """Print a row for each change."""
    model, *paths = arguments[:3]
    translator = docmt.Translator(model)
    documents = [pair for pair in zip(*map(read_documents, paths), strict=True) if len(pair[0]) > 7]
    others = [line for _, lines in documents for line in lines]
    chance = random.Random(1)
    print("change | lines | pairs, wrong ones: by order | by pair_texts | checked by the model")
    for name, change in CHANGES.items():
        counts = Counter[str]()
        for source, target in documents[:: int(arguments[3]) if len(arguments) > 3 else 6]:
            changed = change(target, chance.randrange(len(target) - 4), chance.choice(others))
            right = {tuple(map(make_key, pair)) for pair in zip(source, target, strict=True)}
            by_order = list(zip(source, changed, strict=False)) if len(source) == len(changed) else []
            paired = [(source[one], changed[two]) for one, two in pair_texts(source, changed).items()]
            memory, _ = drop_misfits(Memory.from_pairs(paired, translator.languages), translator)
            kept = [(one, each.target) for one, entries in memory.entries.items() for each in entries]
            counts["lines"] += len(source)
            for way, pairs in (("order", by_order), ("texts", paired), ("model", kept)):
                counts[way] += len(pairs)
                counts[f"{way} wrong"] += sum(tuple(map(make_key, pair)) not in right for pair in pairs)
        columns = (f"{counts[way]}, {counts[f'{way} wrong']}" for way in ("order", "texts", "model"))
        print(f"{name} | {counts['lines']} | {' | '.join(columns)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
