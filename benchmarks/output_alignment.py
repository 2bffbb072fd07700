"""Measure the alignment of translations with other sentences than their source, with sentences changed at random.

python -m benchmarks.output_alignment SOURCE REFERENCE TRANSLATION [SHARE]

The files have one sentence a line and an empty line between documents. Each change (two sentences merged, one cut in
two, left out, or added from another document) comes to SHARE of the sentences (default: 0.1). Links are pairs of a
source sentence and a sentence of the translation.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from docmt.documents import read_documents
from docmt.evaluation.output_alignment import AlignedOutput, align_output

Documents = Sequence[Sequence[str]]


def change_sentences(
    documents: Documents, share: float, seed: int = 1
) -> tuple[list[list[str]], set[tuple[int, int, int]], list[int]]:
    """Return changed documents, the true triples of document, source line and line, and the counts of changes."""
    generator, changed = random.Random(seed), []
    links, counts = set[tuple[int, int, int]](), [0, 0, 0, 0]
    for number, document in enumerate(documents):
        lines: list[str] = []
        position = 0
        while position < len(document):
            text, kind = document[position], int(generator.random() / share) if share else 4
            words, sources = text.split(), [position]
            if kind == 0 and position + 1 < len(document):
                sources, texts = [position, position + 1], [f"{text.rstrip('.')}, {document[position + 1]}"]
            elif kind == 1 and len(words) > 5:
                texts = [f"{' '.join(words[: len(words) // 2])}.", " ".join(words[len(words) // 2 :])]
            elif kind == 2:
                texts = []
            else:
                texts = [text]
            if kind == 3:
                other = documents[(number + 1) % len(documents)]
                lines.append(generator.choice(other))
            if kind < 4:
                counts[kind] += 1
            links |= {(number, one, len(lines) + other) for one in sources for other in range(len(texts))}
            lines += texts
            position += len(sources)
        changed.append(lines)
    return changed, links, counts


def measure_links(output: AlignedOutput, links: set[tuple[int, int, int]]) -> tuple[float, float]:
    """Return precision and recall of the links of an alignment."""
    linked = {(number, *link) for number, links_of_document in enumerate(output.links) for link in links_of_document}
    return len(linked & links) / len(linked), len(linked & links) / len(links)


def main(arguments: Sequence[str]) -> None:
    """Print precision, recall and F1 of the links, and the shares that were counted."""
    source, reference, translation = ([each for _, each in read_documents(Path(path))] for path in arguments[:3])
    changed, links, counts = change_sentences(translation, float([*arguments, "0.1"][3]))
    output = align_output(source, changed, reference)
    precision, recall = measure_links(output, links)
    score = 2 * precision * recall / (precision + recall)
    print(f"precision {precision:.4f}, recall {recall:.4f}, F1 {score:.4f}")
    print("changed: {} merged, {} cut, {} left out, {} added".format(*counts))
    print(output.shares.format() if output.shares else "")


if __name__ == "__main__":
    main(sys.argv[1:])
