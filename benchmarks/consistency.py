"""Lexical consistency: how often two occurrences of a source word in a document have the same translation.

python -m benchmarks.consistency SOURCE TRANSLATION... [--corpus SOURCE TARGET] [--sentences N]

Files with a sentence a line and an empty line between documents. The measure is the lexical translation consistency
ratio of Lyu et al. (2021): of all pairs of occurrences of a word in a document, the share with one translation. Words
count that have at least four letters and are not among the most frequent. IBM model 1 links words that occur once in
their sentence. It learns from each translation and the corpus.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from pathlib import Path

from docmt.checking.lexical_model import SentenceWords, link_words

LETTERS = 4
FREQUENT = 300
"""source words of the file that are too frequent to count"""


def main() -> None:
    """Print the ratio of each translation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consistency", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("translations", type=Path, nargs="+")
    parser.add_argument("--corpus", type=Path, nargs=2, help="parallel text, for IBM model 1")
    parser.add_argument("--sentences", type=int, default=50_000, help="read from the corpus")
    options = parser.parse_args()
    corpus = [read_words(path)[: options.sentences] for path in options.corpus or ()] or [[], []]
    for path in options.translations:
        same, pairs = measure_consistency(read_words(options.source), read_words(path), corpus)
        print(f"{path}: {same / pairs:.1%} of {pairs:,} pairs")


def read_words(path: Path) -> list[list[str]]:
    """Return the words of each line in lower case."""
    with path.open(encoding="utf-8") as lines:
        return [re.findall(r"\w+", line.lower()) for line in lines]


def measure_consistency(
    source: list[list[str]], target: list[list[str]], corpus: list[list[list[str]]]
) -> tuple[int, int]:
    """Return how many pairs of occurrences have the same translation, and the number of pairs."""
    ids: dict[str, int] = {}
    sides = [[[ids.setdefault(word, len(ids)) for word in line] for line in [*source, *corpus[0]]]]
    sides.append([[ids.setdefault(word, len(ids)) for word in line] for line in [*target, *corpus[1]]])
    names = list(ids)
    encoded = [SentenceWords.from_tokens(side, len(ids)) for side in sides]
    words, linked = link_words(*encoded)
    frequent = {word for word, _ in Counter(word for line in source for word in line).most_common(FREQUENT)}
    document_of, document = [], 0
    for line in source:
        document += not line
        document_of.append(document)
    translations: dict[tuple[int, str], list[str]] = defaultdict(list)
    for one, other in zip(words.source_index[linked].tolist(), words.target_index[linked].tolist(), strict=True):
        sentence, word = int(encoded[0].sentence[one]), names[encoded[0].ids[one]]
        if sentence < len(source) and len(word) >= LETTERS and word not in frequent:
            translations[document_of[sentence], word].append(names[encoded[1].ids[other]])
    counts = [Counter(each) for each in translations.values()]
    same = sum(n * (n - 1) // 2 for each in counts for n in each.values())
    return same, sum(each.total() * (each.total() - 1) // 2 for each in counts)


if __name__ == "__main__":
    main()
