"""Sentence segmentation: docmt beside sentencex alone, and pysbd where it is installed.

python -m benchmarks.sentence_borders FILE... [--show N]

Files with a sentence a line and an empty line between documents; the suffix is the language. Every eight sentences of
a document are joined to a paragraph and segmented. Precision, recall and F1 are those of the borders between sentences,
as positions in the text without white space. A line that holds two sentences costs every segmenter precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import sentencex

from docmt.documents import sentence_spans

PARAGRAPH = 8
"""sentences"""
Segmenter = Callable[[str, str], Sequence[str]]
"""It returns the sentences of a text in a language."""


def main() -> None:
    """Print a row of a table for each file and segmenter, and some of the errors of docmt."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sentence_borders", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--show", type=int, default=0, help="errors of docmt for each file: + is a border too many")
    options = parser.parse_args()
    print("| file | segmenter | precision | recall | F1 | characters a second |\n|---|---|---|---|---|---|")
    for path in options.files:
        language = path.suffix[1:]
        documents = [part.split("\n") for part in path.read_text(encoding="utf-8").strip("\n").split("\n\n")]
        paragraphs = [part[n : n + PARAGRAPH] for part in documents for n in range(0, len(part), PARAGRAPH)]
        texts = [" ".join(paragraph) for paragraph in paragraphs]
        gold = [find_borders(paragraph) for paragraph in paragraphs]
        for name, segment in list_segmenters().items():
            start = time.perf_counter()
            segmented = [find_borders(segment(text, language)) for text in texts]
            speed = sum(map(len, texts)) / (time.perf_counter() - start)
            right, total, expected = (
                sum(map(len, sets)) for sets in (map(set.__and__, gold, segmented), segmented, gold)
            )
            scores = [right / (total or 1), right / (expected or 1), 2 * right / (total + expected or 1)]
            print(f"| {path.parent.name} {path.name} | {name} |", *(f"{100 * each:.2f} |" for each in scores), end="")
            print(f" {speed:,.0f} |")
            if name == "docmt":
                errors = [each for row in zip(texts, gold, segmented, strict=True) for each in show_errors(*row)]
                print(*errors[:: max(1, len(errors) // options.show)] if options.show else (), sep="\n", end="")


def list_segmenters() -> dict[str, Segmenter]:
    """Return the segmenters by name."""
    segmenters: dict[str, Segmenter] = {"docmt": segment_with_docmt, "sentencex": segment_with_sentencex}
    try:
        import pysbd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return segmenters
    return segmenters | {"pysbd": lambda text, language: pysbd.Segmenter(language, clean=False).segment(text)}


def segment_with_docmt(text: str, language: str) -> list[str]:
    """Return the sentences of docmt, each with what follows it."""
    starts = [start for start, _ in sentence_spans(text, language)]
    return [text[start:end] for start, end in pairwise([0, *starts[1:], len(text)])]


def segment_with_sentencex(text: str, language: str) -> list[str]:
    """Return the sentences of sentencex."""
    return list(sentencex.segment(language, text))


def find_borders(sentences: Sequence[str]) -> set[int]:
    """Return the ends of all sentences but the last, in characters that are no white space."""
    ends = accumulate(len("".join(sentence.split())) for sentence in sentences)
    return set(list(ends)[:-1])


def show_errors(text: str, gold: set[int], segmented: set[int]) -> list[str]:
    """Return the surroundings of each wrong border, in order."""
    places = [place for place, character in enumerate(text) if not character.isspace()]
    return [
        f"{'+' if border in segmented else '-'} {text[max(0, places[border] - 50) : places[border] + 40]}"
        for border in sorted(gold ^ segmented)
    ]


if __name__ == "__main__":
    main()
