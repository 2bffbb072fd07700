"""Translate sentences after a similar sentence of other text and its translation, to see whether that helps.

python -m benchmarks.fuzzy_matches MODEL TRAIN_SOURCE TRAIN_TARGET TEST_SOURCE TEST_TARGET OUTPUT

Files have a sentence a line. Similar are 75 % and more (difflib, by words), with the same numbers and negations. Writes
OUTPUT.reference, OUTPUT.plain, OUTPUT.similar, and OUTPUT.other with the pair of another sentence, at most 300 lines.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import docmt
from docmt.terms import Memory

LEAST_RATIO, MOST_SENTENCES = 0.75, 300
_MOST_FREQUENT, _CANDIDATES = 3000, 25
_NEGATIONS = {"not", "no", "never", "without", "none", "nor", "neither", "n", "t", "cannot"}
Row = tuple[str, str, str, str]
"""A sentence, its reference, a similar sentence, and its translation."""


def read_lines(path: str) -> list[str]:
    """Return the lines of a file, which may be compressed."""
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8").split("\n")


def split(text: str) -> list[str]:
    """Return the words in lower case, and marks."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def find_similar(train: Sequence[Sequence[str]], test: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the sentences that have a similar one. train, test: lines of the source and of the target."""
    known, rows = [split(text) for text in train[0]], [split(text) for text in test[0]]
    wanted = {word for words in rows for word in words}
    counts = Counter(word for words in known for word in wanted.intersection(words))
    index: dict[str, list[int]] = defaultdict(list)
    for number, words in enumerate(known):
        for word in wanted.intersection(words):
            if counts[word] <= _MOST_FREQUENT:
                index[word].append(number)

    def describe(words: Sequence[str]) -> tuple[list[str], set[str]]:
        return sorted(filter(str.isdigit, words)), _NEGATIONS.intersection(words)

    for words, *pair in zip(rows, *test, strict=True):
        shared = defaultdict[int, float](float)
        for word in set(words) if 6 <= len(words) <= 60 and all(pair) else ():
            for number in index.get(word, ()):
                shared[number] += 1 / (1 + counts[word]) ** 0.5
        near = sorted(shared, key=shared.__getitem__, reverse=True)[:_CANDIDATES]
        if any(known[number] == words for number in near):
            continue
        near = [number for number in near if describe(known[number]) == describe(words)]
        ratios = [(SequenceMatcher(None, words, known[number], autojunk=False).ratio(), number) for number in near]
        ratio, number = max(ratios, default=(0.0, 0))
        if ratio >= LEAST_RATIO:
            yield pair[0], pair[1], train[0][number], train[1][number]


def main(arguments: Sequence[str]) -> None:
    """Write the translations."""
    model, *paths, output = arguments
    train, test = [list(map(read_lines, paths[first : first + 2])) for first in (0, 2)]
    rows = list(find_similar(train, test))
    random.Random(1).shuffle(rows)
    del rows[MOST_SENTENCES:]
    translator = docmt.Translator(model, search=docmt.SearchConfig(beam=2))

    def translate(pairs: Sequence[tuple[str, str]]) -> list[str]:
        after = translator.with_memory(Memory.from_pairs(pairs, translator.languages))
        texts = [docmt.Document.from_sentences([one, row[0]]) for (one, _), row in zip(pairs, rows, strict=True)]
        return [made.sentences[1].target for made in after.translate_all(texts)]

    similar = [(one, two) for _, _, one, two in rows]
    half = len(rows) // 2
    plain = translator.translate_all([docmt.Document.from_sentences([row[0]]) for row in rows])
    made = {"reference": [row[1] for row in rows], "plain": [each.sentences[0].target for each in plain]}
    made |= {"similar": translate(similar), "other": translate([*similar[half:], *similar[:half]])}
    for name, lines in made.items():
        Path(f"{output}.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
